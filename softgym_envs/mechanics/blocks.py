r"""Partial derivatives of one step's equations r, h(q^+) and of p^+, by q, q^+ and every parameter.

.. math::
   r_q = \tfrac h4 Q - \tfrac12 (C + C^T) + \tfrac 1h M + a d - \textstyle\sum_k \lambda_k h_{k,qq}(q), \qquad
   p_+ = \tfrac h4 Q + \tfrac12 (C + C^T) + \tfrac 1h M - (1 - a) d

   p_q = \tfrac h4 Q - \tfrac12 (C - C^T) - \tfrac 1h M + (1 - a) d

By p, r_p = 1; by a control r_u = a h and p_u = (1 - a) h. Legend: n coordinates, nb bodies, m rows, P parameters.
"""

from __future__ import annotations

from typing import NamedTuple

from ..core.simulator import Array
from ..engines.numba.engine import inner, lean
from ..engines.numba.lanes import some, tanh, zeros
from .constraints import add_gap_curvature, gap_slopes, held_axes, pose_bend, pose_slopes, pose_start, pose_turns
from .contact import add_contact_columns, add_contact_curvature
from .integrator import evaluate, put_gap_slopes
from .kernels import body_slopes, curvature, gather_momentum, gravity, lift, place_links, prepare_curvature
from .linear import exchange, factor
from .scratch import resistance
from .stops import stop_stiffness
from .vectors import screw, vec


class Blocks(NamedTuple):
    """Partial derivatives of r, h(q^+) and p^+ of one step; K's factors are in the scratch memory."""

    rq: Array
    """(n, n)"""
    pq: Array
    """(n, n)"""
    pn: Array
    """(n, n) by q^+."""
    rc: Array
    """(n, P)"""
    hc: Array
    """(m, P)"""
    pc: Array
    """(n, P)"""
    scales: Array
    """(nb,) memory."""


@inner
def new_blocks(s, count, zero=0.0):
    """Empty memory for `count` parameters and numbers like `zero`."""
    n, m = len(s.parent), s.row[-1]
    return Blocks(
        zeros((n, n), zero), zeros((n, n), zero), zeros((n, n), zero), zeros((n, count), zero), zeros((m, count), zero),
        zeros((n, count), zero), zeros(len(s.body), zero),
    )  # fmt: skip


@lean
def differentiate(s, q, q1, lam, w, d):
    """Fill the blocks and factor K at a solved step (q, q1, lambda) with parameters and forces set; -> whether K is regular."""
    place_links(s, q, w.end)
    gap_slopes(s, w.values, w.end, w.G)
    _start_blocks(s, w, lam, d)
    evaluate(s, q, q1, w)
    return _solved_blocks(s, w, d)


@lean
def differentiate_here(s, q, q1, lam, w, d):
    """`differentiate` right after `integrator.step`, which left G, the midpoint and h of this step in `w`."""
    place_links(s, q, w.end)
    _start_blocks(s, w, lam, d)
    place_links(s, q1, w.end)
    return _solved_blocks(s, w, d)


@lean
def _start_blocks(s, w, lam, d):
    """Set parts by the constraints at q, where `end` is placed; the rest of r_q and of the parameters' columns is zero."""
    d.rc[:], d.hc[:], d.pc[:] = 0.0, 0.0, 0.0
    _pose_columns(s, w, lam, d)
    d.rq[:] = 0.0
    add_gap_curvature(s, w.values, w.end, lam, -1.0, d.rq)


@lean
def _solved_blocks(s, w, d):
    """Add the remaining parts from the results of `evaluate`; -> whether K is regular."""
    prepare_curvature(s, w.values, w.scales, w.mid)
    _midpoint_blocks(s, w, d)
    _contact_blocks(s, w, d)
    _damping_blocks(s, w, d)
    _force_columns(s, w, d)
    _gravity_columns(s, w, d)
    for columns in (d.rc, d.pc):
        add_contact_columns(s, w.values, w.mid, 0.5 * w.length[0], columns)
    if len(w.h) > 0:
        _gap_columns(s, w, d)
    _mass_columns(s, w, d)
    for attempt in range(2):
        _newton_matrix(s, w, d)
        good = factor(w.K, w.order, s.near, s.far, s.left) if attempt == 0 else exchange(w.K, w.order)
        if some(good):
            break
    return good


@lean
def _midpoint_blocks(s, w, d):
    """Add r_q, set p_q and p_+ of the Lagrangian, without damping. Entries of unrelated coordinates are and stay zero."""
    n, h = len(s.parent), w.length[0]
    S, ww, rq, pq, pn = w.mid.S, w.mid.w, d.rq, d.pq, d.pn
    for i in range(n):
        a, b, t, j = screw(w.mid.a, i), screw(w.mid.b, i), vec(w.mid.t, i), i
        while j >= 0:
            M, C, D, Q = curvature(S, ww, j, a, b, t)
            M, Q, even, odd = M / h, 0.25 * h * Q, 0.5 * (C + D), 0.5 * (C - D)
            own = 0.0
            if i == j:
                M += w.values[3 * n + i] / h
                Q -= 0.25 * h * w.values[i]
            else:
                own = Q + M - even
            rq[i, j] += Q + M - even
            rq[j, i] += own
            pn[i, j] = Q + M + even
            pn[j, i] = Q + M + even
            pq[i, j] = Q - M - odd
            pq[j, i] = Q - M + odd
            j = s.parent[j]


@lean
def _contact_blocks(s, w, d):
    """Add the share of contacts and stops to the blocks."""
    for k in range(len(s.stopped)):
        i, slope = s.stopped[k], 0.25 * w.length[0] * stop_stiffness(s, k, w.q)
        for blocks in (d.rq, d.pq, d.pn):
            blocks[i, i] -= slope
    w.touch[:] = 0.0
    if add_contact_curvature(s, w.values, w.mid, 0.25 * w.length[0], w.touch):
        for blocks in (d.rq, d.pq, d.pn):
            for i in range(len(blocks)):
                for j in range(len(blocks)):
                    blocks[i, j] += w.touch[i, j]


@lean
def _damping_blocks(s, w, d):
    """Add the share of damping and dry friction to the blocks."""
    n = len(s.parent)
    for i in range(n):
        damping = resistance(s, w, i)
        d.rq[i, i] += s.early * damping
        d.pq[i, i] += (1.0 - s.early) * damping
        d.pn[i, i] -= (1.0 - s.early) * damping


@lean
def _newton_matrix(s, w, d):
    """Fill K as in `integrator`: its first block is p_q' except for damping, of which p_q' holds the share 1 - a."""
    n, K = len(s.parent), w.K
    K[:] = 0.0
    for i in range(n):
        a, j = s.slot[i], i
        while j >= 0:
            K[a, s.slot[j]], K[s.slot[j], a] = d.pq[j, i], d.pq[i, j]
            j = s.parent[j]
        K[a, a] -= resistance(s, w, i)
    put_gap_slopes(s, w, K)


@lean
def _force_columns(s, w, d):
    """Columns by stiffness, rest, damping, armature, offset and dry friction of the joints."""
    n, h = len(s.parent), w.length[0]
    for i in range(n):
        slopes = (w.values[n + i] - w.q[i], w.values[i], -w.v[i], w.v[i])
        for kind in range(5):
            c = s.place[kind * n + i]
            if c < 0:
                continue
            if kind < 2:  # part of L_q
                early, late = 0.5 * h, 0.5 * h
            elif kind == 3:  # part of L_v
                early, late = -1.0, 1.0
            else:  # a force
                early, late = s.early * h, (1.0 - s.early) * h
            slope = slopes[kind] if kind < 4 else 1.0
            d.rc[i, c] += early * slope
            d.pc[i, c] += late * slope
        c = s.place[len(s.base) - n + i]
        if c >= 0:
            dry = -tanh(w.v[i] / s.slip[i])
            d.rc[i, c] += s.early * h * dry
            d.pc[i, c] += (1.0 - s.early) * h * dry


@lean
def _gravity_columns(s, w, d):
    """Columns by the components of gravity."""
    n = len(s.parent)
    for k in range(3):
        c = s.place[5 * n + k]
        if c >= 0:
            for i in range(n):
                slope = 0.5 * w.length[0] * lift(w.mid, i)[k]
                d.rc[i, c] += slope
                d.pc[i, c] += slope


@lean
def _mass_columns(s, w, d):
    """Columns by factors of bodies: L_q and L_v are linear in them. Overwrites the masses in `mid`."""
    n = len(s.parent)
    g = gravity(s, w.values)
    for c in range(d.rc.shape[1]):
        used = False
        for k in range(len(s.body)):
            mine = s.place[5 * n + 3 + k] == c
            d.scales[k], used = 1.0 if mine else 0.0, used or mine
        if used:
            gather_momentum(s, d.scales, w.mid)
            body_slopes(s, g, w.mid, w.Lq, w.Lv)
            for i in range(n):
                d.rc[i, c] += 0.5 * w.length[0] * w.Lq[i] - w.Lv[i]
                d.pc[i, c] += 0.5 * w.length[0] * w.Lq[i] + w.Lv[i]


@lean
def _pose_columns(s, w, lam, d):
    """Columns of r by the poses of welds, which turn the constraints' directions at q."""
    for c in range(len(s.weld)):
        if not s.weld[c]:
            continue
        held, turns = held_axes(s, w.values, w.end, c), pose_turns(s, w.values, c)
        for angle in range(3):
            column = s.place[pose_start(s, c) + 3 + angle]
            i = s.ends[c, 0] if column >= 0 else -1
            while i >= 0:
                d.rc[i, column] -= pose_bend(s, w.end, c, held, turns[angle], i, lam)
                i = s.parent[i]


@lean
def _gap_columns(s, w, d):
    """Columns of h(q^+) by the poses of welds; `end` is placed at q^+."""
    for c in range(len(s.weld)):
        for k in range(3):
            shift, turn = s.place[pose_start(s, c) + k], s.place[pose_start(s, c) + 3 + k]
            if s.weld[c] and shift >= 0:
                d.hc[s.row[c] + k, shift] -= 1.0
            if s.weld[c] and turn >= 0:
                slopes = pose_slopes(s, w.values, w.end, c, k)
                for r in range(3):
                    d.hc[s.row[c] + 3 + r, turn] += slopes[r]
