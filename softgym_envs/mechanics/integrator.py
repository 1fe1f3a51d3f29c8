r"""Midpoint variational integrator of a tree in (q, p), with constraints [Caldwell2014, eqs. 3, 4; Johnson, Murphey 2009].

With q_m = (q + q^+)/2, v = (q^+ - q)/h, forces f = B u + offset - d v - d_0 tanh(v / w), the last of which is dry friction, and
the share a of their impulse at the beginning:

.. math::
   r = p + \tfrac h2 L_q(q_m, v) - L_v(q_m, v) + a h f - h_q(q)^T \lambda = 0, \qquad h(q^+) = 0

.. math:: p^+ = \tfrac h2 L_q(q_m, v) + L_v(q_m, v) + (1 - a) h f

solved for (q^+, lambda) by Newton's method on the whole Karush-Kuhn-Tucker system, whose factors are kept while they serve. It
starts from q^+ = q, and behind another step of the same control step from that one's velocity: so a control step depends on its
state alone. lambda / h are the constraints' forces.
a = 1 is the paper's split: forces act half a step late, and momentum at rest is not zero; a = 1/2 is of second order.

Numba caches compiled code per source file: after a change in a file that this one uses, touch this one.
Legend: B batch, T control steps, n coordinates, m constraint rows, nu controls, P constants; state x = (q, p), length 2 n.
"""

from __future__ import annotations

import numpy as np

from ..core.numba_engine import inner, kernel
from ..core.simulator import Status
from .constraints import gap_slopes, gaps
from .contact import add_contact_curvature
from .kernels import place_links, prepare_curvature, slopes
from .linear import SUMS, factor, factor_any, solve
from .scratch import force, new_scratch, resistance, set_constants, set_forces

STEP_TOLERANCE = 1e-12
"""A step of Newton's method that changes q [rad, m] by no more is the last one."""
LEFT_TOLERANCE = 1e-13
"""Largest error of q [rad, m] that a larger last step is estimated to leave."""
GAP_TOLERANCE = 1e-11
"""Largest |h| that a step may leave [m, -]."""
MAX_ITERATIONS = 30
SLOW = 0.05
"""Contraction per iteration above which the factors are renewed."""
FAR = 1e-2
"""First change of q [rad, m] above which they are renewed at once: contraction is of the guess's error."""
SPEED_LIMIT = 1e3
"""Largest |v| [rad/s, m/s] before a row counts as diverged."""

_OK, _DIVERGED, _UNSOLVED = int(Status.OK), int(Status.DIVERGED), int(Status.UNSOLVED)


@inner
def evaluate(s, q, q1, w):
    """L_q and L_v at the midpoint and h at q1; -> whether all is finite and slow enough."""
    n, slow = len(s.parent), True
    for i in range(n):
        w.q[i] = 0.5 * (q[i] + q1[i])
        w.v[i] = (q1[i] - q[i]) / s.dt
        slow = slow and abs(w.v[i]) < SPEED_LIMIT
    place_links(s, w.q, w.mid)
    slopes(s, w.values, w.scales, w.q, w.v, w.mid, w.Lq, w.Lv)
    if len(w.h) > 0:
        place_links(s, q1, w.end)
        gaps(s, w.values, w.end, w.h)
    return slow


@inner
def newton_matrix(s, w):
    """K = d(r, h) / d(q^+, lambda) = [[R, -G'], [G1, 0]], R = h/4 Q + (C - C')/2 - M/h - a d(v), where last evaluated."""
    n, h, K, A, slot = len(s.parent), s.dt, w.K, w.rows, s.slot
    prepare_curvature(s, w.values, w.scales, w.mid)
    K[:] = 0.0
    for j in range(n):
        for k in range(6):
            A[k, j], A[6 + k, j] = w.mid.S[j, k], w.mid.w[j, k]
    for i in range(n):
        _row(w, i, 0.25 * h, 1.0 / h, 0.5, A[12])
        _row(w, i, 0.25 * h, 1.0 / h, -0.5, A[13])
        a, j = slot[i], i
        while j >= 0:
            K[a, slot[j]], K[slot[j], a] = A[12, j], A[13, j]
            j = s.parent[j]
        K[a, a] -= 0.25 * h * w.values[i] + w.values[3 * n + i] / h + s.early * resistance(s, w, i)
    w.touch[:] = 0.0
    if add_contact_curvature(s, w.values, w.mid, 0.25 * h, w.touch):
        for i in range(n):
            for j in range(n):
                K[slot[i], slot[j]] += w.touch[i, j]
    put_gap_slopes(s, w)


@inner(fastmath=SUMS)
def _row(w, i, f, g, e, out):
    """out_j = f Q_ij - g M_ij + e (C_ij - C_ji) of the bodies, for all j <= i: from the rows of S and w, all j at once."""
    A, x = w.rows, w.mid
    c0, c1, c2 = (
        f * x.t[i, 0] - g * x.b[i, 0] + e * x.a[i, 0],
        f * x.t[i, 1] - g * x.b[i, 1] + e * x.a[i, 1],
        f * x.t[i, 2] - g * x.b[i, 2] + e * x.a[i, 2],
    )
    c3, c4, c5 = e * x.a[i, 3] - g * x.b[i, 3], e * x.a[i, 4] - g * x.b[i, 4], e * x.a[i, 5] - g * x.b[i, 5]
    d0, d1, d2 = f * x.a[i, 0] - e * x.b[i, 0], f * x.a[i, 1] - e * x.b[i, 1], f * x.a[i, 2] - e * x.b[i, 2]
    d3, d4, d5 = f * x.a[i, 3] - e * x.b[i, 3], f * x.a[i, 4] - e * x.b[i, 4], f * x.a[i, 5] - e * x.b[i, 5]
    for j in range(i + 1):
        turn = c0 * A[0, j] + c1 * A[1, j] + c2 * A[2, j] + d0 * A[6, j] + d1 * A[7, j] + d2 * A[8, j]
        out[j] = turn + c3 * A[3, j] + c4 * A[4, j] + c5 * A[5, j] + d3 * A[9, j] + d4 * A[10, j] + d5 * A[11, j]


@inner
def put_gap_slopes(s, w):
    """-G' and G1 of K, where `end` is placed at q^+."""
    n, m, K, slot = len(s.parent), len(w.h), w.K, s.slot
    if m > 0:
        gap_slopes(s, w.values, w.end, w.G1)
    for r in range(m):
        a = slot[n + r]
        for i in range(n):
            K[slot[i], a], K[a, slot[i]] = -w.G[r, i], w.G1[r, i]


@inner
def remainders(s, p, w, lam):
    """w.r <- r from what `evaluate` left."""
    n = len(s.parent)
    for i in range(n):
        w.r[i] = p[i] + 0.5 * s.dt * w.Lq[i] - w.Lv[i] + s.early * s.dt * force(s, w, i)
    for k in range(len(lam)):
        for i in range(n):
            w.r[i] -= w.G[k, i] * lam[k]


@inner
def improve(s, p, w, q1, lam):
    """One Newton step of q1 and lambda from what `evaluate` left; -> the largest change of q1."""
    n, m, b = len(s.parent), len(w.h), w.b
    remainders(s, p, w, lam)
    for i in range(n):
        b[s.slot[i]] = -w.r[i]
    for k in range(m):
        b[s.slot[n + k]] = -w.h[k]
    solve(w.K, w.order, s.near, s.far, s.left, b)
    size = 0.0
    for i in range(n):
        change = b[s.slot[i]]
        q1[i] += change
        size = max(size, abs(change))
    for k in range(m):
        lam[k] += b[s.slot[n + k]]
    return size


@inner
def still(x, x1, lam):
    """First guess of a step from x alone: no motion."""
    lam[:] = 0.0
    for i in range(len(x) // 2):
        x1[i] = x[i]


@inner
def go_on(before, x, x1):
    """First guess of a step behind another one, which came from `before` (n,): the same velocity; lambda stays as it is."""
    for i in range(len(before)):
        x1[i] = 2.0 * x[i] - before[i]


@inner
def step(s, x, w, x1, lam):
    """x1 (2 n,) = (q^+, p^+) and lambda (m,) of x = (q, p) under the constants and forces set in `w`; -> status.

    x1 and lambda hold a first guess (`still`, `go_on`); where it fails, the step is tried again without.
    """
    n = len(s.parent)
    place_links(s, x[:n], w.end)
    gap_slopes(s, w.values, w.end, w.G)
    status = _iterate(s, x, w, x1, lam)
    if status != _OK:
        still(x, x1, lam)
        status = _iterate(s, x, w, x1, lam)
    return status


@inner
def _iterate(s, x, w, x1, lam):
    """Newton's method from the guess in x1 and lambda; -> status."""
    n = len(s.parent)
    q, p, q1 = x[:n], x[n:], x1[:n]
    renew, before = True, np.inf
    for iteration in range(MAX_ITERATIONS):
        if not evaluate(s, q, q1, w):
            return _DIVERGED
        if renew:
            newton_matrix(s, w)
            if not factor(w.K, w.order, s.near, s.far):
                newton_matrix(s, w)
                if not factor_any(w.K, w.order):
                    return _UNSOLVED
        size = improve(s, p, w, q1, lam)
        if not np.isfinite(size):
            return _DIVERGED
        rate = size / before if iteration > 0 else 1.0
        if size <= STEP_TOLERANCE or (rate < 1.0 and size * rate <= LEFT_TOLERANCE * (1.0 - rate)):
            if not evaluate(s, q, q1, w):
                return _DIVERGED
            if largest(w.h) <= GAP_TOLERANCE:
                finish(s, p, w, lam, x1)
                return _OK
        renew, before = rate > SLOW if iteration > 0 else size > FAR, size
    return _UNSOLVED


@inner
def largest(h):
    """Largest |h|, 0 of nothing."""
    found = 0.0
    for k in range(len(h)):
        found = max(found, abs(h[k]))
    return found


@inner
def finish(s, p, w, lam, x1):
    """p^+ from what `evaluate` left, and the r that Newton's method left: so it cannot leak conserved momentum."""
    n = len(s.parent)
    remainders(s, p, w, lam)
    for i in range(n):
        late = (1.0 - s.early) * s.dt * force(s, w, i)
        x1[n + i] = 0.5 * s.dt * w.Lq[i] + w.Lv[i] + late + w.r[i]


@inner
def control_at(controls, gains, t, x, u):
    """u = controls_t - gains_t x; gains (0, 1 or T, nu, nx): none, constant, or one per control step."""
    for k in range(len(u)):
        u[k] = controls[t, k]
        if len(gains) > 0:
            K = gains[t if len(gains) > 1 else 0, k]
            for j in range(len(x)):
                u[k] -= K[j] * x[j]


@kernel
def forward(s, state, controls, constants, substeps, states, status):
    """See `core.numba_engine.NumbaEngine`."""
    n, w, lam = len(s.parent), new_scratch(s), np.zeros(s.row[-1])
    now, then, before = np.empty(2 * n), np.empty(2 * n), np.empty(n)
    for row in range(len(state)):
        set_constants(s, constants[row], w)
        states[row, 0] = state[row]
        for t in range(controls.shape[1]):
            now[:] = states[row, t]
            set_forces(s, controls[row, t], w)
            still(now, then, lam)
            for _ in range(substeps):
                if status[row] == _OK:
                    status[row] = step(s, now, w, then, lam)
                if status[row] == _OK:
                    before[:], now[:] = now[:n], then
                    go_on(before, now, then)
            states[row, t + 1] = now if status[row] == _OK else states[row, t]


@kernel
def simulate(s, state, controls, gains, constants, substeps, path, multipliers, applied, status):
    """Every physics step of rows (B, 2 n): path (B, T K + 1, 2 n), multipliers (B, T K, m), applied u (B, T, nu), status (B,).

    K substeps; feedback as in `control_at`; a failed row keeps its last good state, with zero multipliers.
    """
    n, w, lam, then = len(s.parent), new_scratch(s), np.zeros(s.row[-1]), np.empty(state.shape[1])
    for row in range(len(state)):
        set_constants(s, constants[row], w)
        path[row, 0] = state[row]
        for t in range(controls.shape[1]):
            control_at(controls[row], gains, t, path[row, t * substeps], applied[row, t])
            set_forces(s, applied[row, t], w)
            for k in range(t * substeps, (t + 1) * substeps):
                if k == t * substeps:
                    still(path[row, k], then, lam)
                else:
                    go_on(path[row, k - 1, :n], path[row, k], then)
                if status[row] == _OK:
                    status[row] = step(s, path[row, k], w, then, lam)
                good = status[row] == _OK
                path[row, k + 1] = then if good else path[row, k]
                for r in range(len(lam)):
                    multipliers[row, k, r] = lam[r] if good else 0.0
