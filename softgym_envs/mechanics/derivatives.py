r"""Exact derivatives of the integrator's step by the implicit function theorem, forward and adjoint.

With K = d(r, h)/d(q^+, lambda) of `integrator`, and y any of q, p, u and the constants c:

.. math::
   K \, d(q^+, \lambda) = -(r_y, h_y) \, dy, \qquad dp^+ = p_y \, dy + p_+ \, dq^+

   r_q = \tfrac h4 Q - \tfrac12 (C + C^T) + \tfrac 1h M + a d - \textstyle\sum_k \lambda_k h_{k,qq}(q), \qquad
   p_+ = \tfrac h4 Q + \tfrac12 (C + C^T) + \tfrac 1h M - (1 - a) d

   p_q = \tfrac h4 Q - \tfrac12 (C - C^T) - \tfrac 1h M + (1 - a) d

This is eq. (7) of [Caldwell2014] with the multipliers' change, which eq. (7b) leaves out. The adjoint of its lemma 1 takes the
*partial* derivative by the constants at a fixed state; eq. (8) as printed is the whole one, which would count the past twice.

Numba caches compiled code per source file: after a change in a file that this one uses, touch this one.
Legend: B batch, T control steps, K substeps, n coordinates, m rows, nu controls, P constants; state x = (q, p), length 2 n.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.numba_engine import inner, kernel
from ..core.simulator import Array, Status
from .constraints import add_gap_curvature, gap_slopes, pose_bend, pose_slopes, pose_start
from .integrator import evaluate, new_scratch, put_gap_slopes, set_constants, set_forces, step
from .kernels import body_slopes, curvature, gather_momentum, lift, place_links, prepare_curvature
from .linear import factor, solve_columns, solve_transposed
from .vectors import screw, vec

_OK = int(Status.OK)


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
def new_blocks(s, count):
    """Empty memory for `count` constants."""
    n, m = len(s.parent), s.row[-1]
    return Blocks(
        np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, count)), np.zeros((m, count)), np.zeros((n, count)),
        np.zeros(len(s.body)),
    )  # fmt: skip


@inner
def differentiate(s, q, q1, lam, w, d):
    """Fill the blocks and factor K at a solved step (q, q1, lambda), whose constants and forces are set; -> whether K is regular."""
    place_links(s, q, w.end)
    gap_slopes(s, w.values, w.end, w.G)
    d.rc[:], d.hc[:], d.pc[:] = 0.0, 0.0, 0.0
    _pose_columns(s, w, lam, d)
    d.rq[:] = 0.0
    add_gap_curvature(s, w.values, w.end, lam, -1.0, d.rq)
    evaluate(s, q, q1, w)
    prepare_curvature(s, w.values, w.mid)
    _midpoint_blocks(s, w, d)
    _newton_matrix(s, w, d)
    _damping_blocks(s, w, d)
    _force_columns(s, w, d)
    _gravity_columns(s, w, d)
    if len(w.h) > 0:
        _gap_columns(s, w, d)
    _mass_columns(s, w, d)
    return factor(w.K, w.order)


@inner
def _midpoint_blocks(s, w, d):
    """Add r_q, set p_q and p_+ of the Lagrangian, without damping. Entries of unrelated coordinates are and stay zero."""
    n, h = len(s.parent), s.dt
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


@inner
def _damping_blocks(s, w, d):
    """Damping's share of the blocks."""
    n = len(s.parent)
    for i in range(n):
        damping = w.values[2 * n + i]
        d.rq[i, i] += s.early * damping
        d.pq[i, i] += (1.0 - s.early) * damping
        d.pn[i, i] -= (1.0 - s.early) * damping


@inner
def _newton_matrix(s, w, d):
    """K as in `integrator`: without damping, its first block is p_q'."""
    n, K = len(s.parent), w.K
    for i in range(n):
        for j in range(n):
            K[n - 1 - i, n - 1 - j] = d.pq[j, i]
        K[n - 1 - i, n - 1 - i] -= s.early * w.values[2 * n + i]
    put_gap_slopes(s, w)


@inner
def _force_columns(s, w, d):
    """By stiffness, rest, damping, armature and offset of the joints."""
    n, h = len(s.parent), s.dt
    for i in range(n):
        slopes = (w.values[n + i] - w.q[i], w.values[i], -w.v[i], w.v[i], 1.0)
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
            d.rc[i, c] += early * slopes[kind]
            d.pc[i, c] += late * slopes[kind]


@inner
def _gravity_columns(s, w, d):
    """By the components of gravity."""
    n = len(s.parent)
    for k in range(3):
        c = s.place[5 * n + k]
        if c >= 0:
            for i in range(n):
                slope = 0.5 * s.dt * lift(w.mid, i)[k]
                d.rc[i, c] += slope
                d.pc[i, c] += slope


@inner
def _mass_columns(s, w, d):
    """By factors of bodies: L_q and L_v are linear in them. Overwrites what `mid` knows of masses."""
    n = len(s.parent)
    g = (w.values[5 * n], w.values[5 * n + 1], w.values[5 * n + 2])
    for c in range(d.rc.shape[1]):
        used = False
        for k in range(len(s.body)):
            mine = s.place[5 * n + 3 + k] == c
            d.scales[k], used = 1.0 if mine else 0.0, used or mine
        if used:
            gather_momentum(s, d.scales, w.mid)
            body_slopes(s, g, w.mid, w.Lq, w.Lv)
            for i in range(n):
                d.rc[i, c] += 0.5 * s.dt * w.Lq[i] - w.Lv[i]
                d.pc[i, c] += 0.5 * s.dt * w.Lq[i] + w.Lv[i]


@inner
def _pose_columns(s, w, lam, d):
    """r by the poses of welds, which turn the constraints' directions at q."""
    for c in range(len(s.weld)):
        for angle in range(3):
            column = s.place[pose_start(s, c) + 3 + angle]
            i = s.ends[c, 0]
            while s.weld[c] and column >= 0 and i >= 0:
                d.rc[i, column] -= pose_bend(s, w.values, w.end, c, angle, i, lam)
                i = s.parent[i]


@inner
def _gap_columns(s, w, d):
    """H(q^+) by the poses of welds; `end` is placed at q^+."""
    for c in range(len(s.weld)):
        for k in range(3):
            shift, turn = s.place[pose_start(s, c) + k], s.place[pose_start(s, c) + 3 + k]
            if s.weld[c] and shift >= 0:
                d.hc[s.row[c] + k, shift] -= 1.0
            if s.weld[c] and turn >= 0:
                slopes = pose_slopes(s, w.values, w.end, c, k)
                for r in range(3):
                    d.hc[s.row[c] + 3 + r, turn] += slopes[r]


@inner
def push_forward(s, w, d, dx, du, dc, X, dx1):
    """dx1 = A dx + B du + C dc, matrices (2 n, k), (nu, k), (P, k); X (n + m, k) is memory. -> dx1 (2 n, k)."""
    n, m, columns = len(s.parent), len(w.h), dx.shape[1]
    X[:] = 0.0
    dx1[:] = 0.0
    for i in range(n):
        for k in range(columns):
            X[n - 1 - i, k] = -dx[n + i, k]
        add_row(d.rq[i], dx, -1.0, X[n - 1 - i])
        add_row(d.rc[i], dc, -1.0, X[n - 1 - i])
        add_row(d.pq[i], dx, 1.0, dx1[n + i])
        add_row(d.pc[i], dc, 1.0, dx1[n + i])
    for r in range(m):
        add_row(d.hc[r], dc, -1.0, X[n + r])
    for c in range(len(s.actuated)):
        i = s.actuated[c]
        for k in range(columns):
            X[n - 1 - i, k] -= s.early * s.dt * du[c, k]
            dx1[n + i, k] += (1.0 - s.early) * s.dt * du[c, k]
    solve_columns(w.K, w.order, X)
    for i in range(n):
        for k in range(columns):
            dx1[i, k] = X[n - 1 - i, k]
    for i in range(n):
        add_row(d.pn[i], dx1, 1.0, dx1[n + i])


@inner
def add_row(row, X, factor, out):
    """Out (k,) += factor row (N,) X (N, k), where X may be longer."""
    for j in range(len(row)):
        f = factor * row[j]
        if f != 0.0:
            for k in range(len(out)):
                out[k] += f * X[j, k]


@inner
def pull_back(s, w, d, mu, b, nu, gradient):
    """mu (2 n,) <- A' mu; nu (nu,) += B' mu; gradient (P,) += C' mu; b (n + m,) is memory."""
    n, m = len(s.parent), len(w.h)
    for i in range(n):
        b[i] = mu[i]
    for i in range(n):
        add_scaled(d.pn[i], mu[n + i], b)
        mu[i] = 0.0
    for i in range(n):
        add_scaled(d.pq[i], mu[n + i], mu)
        add_scaled(d.pc[i], mu[n + i], gradient)
    for c in range(len(s.actuated)):
        nu[c] += (1.0 - s.early) * s.dt * mu[n + s.actuated[c]]
    for i in range(n // 2):  # K's order: from the last coordinate to the first
        b[i], b[n - 1 - i] = b[n - 1 - i], b[i]
    for r in range(m):
        b[n + r] = 0.0
    solve_transposed(w.K, w.order, b)
    for i in range(n):
        z = -b[n - 1 - i]
        add_scaled(d.rq[i], z, mu)
        add_scaled(d.rc[i], z, gradient)
        mu[n + i] = z
    for r in range(m):
        add_scaled(d.hc[r], -b[n + r], gradient)
    for c in range(len(s.actuated)):
        nu[c] += s.early * s.dt * mu[n + s.actuated[c]]


@inner
def add_scaled(row, factor, out):
    """Out[: len(row)] += factor row."""
    for j in range(len(row)):
        out[j] += factor * row[j]


@kernel
def linearization(s, state, control, constants, substeps, A, B, C):
    """See `core.numba_engine.NumbaEngine`; NaN in a row that fails."""
    n, m, nu, count = len(s.parent), s.row[-1], control.shape[1], constants.shape[1]
    w, d, lam, x, x1 = new_scratch(s), new_blocks(s, count), np.zeros(m), np.empty(2 * n), np.empty(2 * n)
    columns = 2 * n + nu + count
    dx, dx1, X = np.empty((2 * n, columns)), np.empty((2 * n, columns)), np.empty((n + m, columns))
    du, dc = np.zeros((nu, columns)), np.zeros((count, columns))
    for i in range(nu):
        du[i, 2 * n + i] = 1.0
    for i in range(count):
        dc[i, 2 * n + nu + i] = 1.0
    for row in range(len(state)):
        set_constants(s, constants[row], w)
        set_forces(s, control[row], w)
        dx[:] = 0.0
        for i in range(2 * n):
            dx[i, i] = 1.0
        x[:] = state[row]
        good = True
        for _ in range(substeps):
            good = good and step(s, x, w, x1, lam) == _OK and differentiate(s, x[:n], x1[:n], lam, w, d)
            if good:
                push_forward(s, w, d, dx, du, dc, X, dx1)
                x[:], dx[:] = x1, dx1
        if not good:
            dx[:] = np.nan
        A[row], B[row], C[row] = dx[:, : 2 * n], dx[:, 2 * n : 2 * n + nu], dx[:, 2 * n + nu :]


@kernel
def sensitivities(s, path, multipliers, applied, gains, constants, substeps, dx0, dx, good):
    """dx / dc along paths that `simulate` found: dx0 (B, 2 n, P) at their start, dx (B, T + 1, 2 n, P) at control steps.

    With the feedback's share, du = -gain dx. good (B,): whether all steps could be differentiated.
    """
    n, m, nu, count = len(s.parent), s.row[-1], applied.shape[2], constants.shape[1]
    w, d = new_scratch(s), new_blocks(s, count)
    now, then, X = np.empty((2 * n, count)), np.empty((2 * n, count)), np.empty((n + m, count))
    du, dc = np.zeros((nu, count)), np.eye(count)
    for row in range(len(path)):
        set_constants(s, constants[row], w)
        dx[row, 0] = dx0[row]
        for t in range(applied.shape[1]):
            set_forces(s, applied[row, t], w)
            now[:] = dx[row, t]
            du[:] = 0.0
            for c in range(nu if len(gains) > 0 else 0):
                add_row(gains[t if len(gains) > 1 else 0, c], now, -1.0, du[c])
            for k in range(t * substeps, (t + 1) * substeps):
                q, q1 = path[row, k, :n], path[row, k + 1, :n]
                good[row] = good[row] and differentiate(s, q, q1, multipliers[row, k], w, d)
                push_forward(s, w, d, now, du, dc, X, then)
                now[:] = then
            dx[row, t + 1] = now


@kernel
def adjoint(s, path, multipliers, applied, gains, constants, substeps, slopes, mu, nu, gradient, good):
    """Lemma 1 of [Caldwell2014]: gradients of J(x_0 .. x_T) whose partial derivatives are slopes (B, T + 1, 2 n).

    Fills dJ/dx_0 mu (B, 2 n), dJ/du_t nu (B, T, nu) and the gradient dJ/dc (B, P) by
    mu_t = A_t' mu_{t+1} + dJ/dx_t and dJ/dc = sum_t C_t' mu_{t+1}; A_t includes the feedback, C_t is partial.
    """
    n, m, count = len(s.parent), s.row[-1], constants.shape[1]
    w, d, b = new_scratch(s), new_blocks(s, count), np.empty(n + m)
    for row in range(len(path)):
        set_constants(s, constants[row], w)
        mu[row] = slopes[row, -1]
        gradient[row] = 0.0
        for t in range(applied.shape[1] - 1, -1, -1):
            set_forces(s, applied[row, t], w)
            nu[row, t] = 0.0
            for k in range((t + 1) * substeps - 1, t * substeps - 1, -1):
                q, q1 = path[row, k, :n], path[row, k + 1, :n]
                good[row] = good[row] and differentiate(s, q, q1, multipliers[row, k], w, d)
                pull_back(s, w, d, mu[row], b, nu[row, t], gradient[row])
            for c in range(applied.shape[2] if len(gains) > 0 else 0):
                add_scaled(gains[t if len(gains) > 1 else 0, c], -nu[row, t, c], mu[row])
            add_scaled(slopes[row, t], 1.0, mu[row])
