r"""Midpoint variational integrator of a tree in (q, p), with constraints [Caldwell2014, eqs. 3, 4; Johnson, Murphey 2009].

With q_m = (q + q^+)/2, v = (q^+ - q)/h, forces f = B u + offset - d v, and the share a of their impulse at the beginning:

.. math::
   r = p + \tfrac h2 L_q(q_m, v) - L_v(q_m, v) + a h f - h_q(q)^T \lambda = 0, \qquad h(q^+) = 0

.. math:: p^+ = \tfrac h2 L_q(q_m, v) + L_v(q_m, v) + (1 - a) h f

solved for (q^+, lambda) by Newton's method on the whole Karush-Kuhn-Tucker system, whose factors are kept while they serve. It
starts from the velocity that p stands for, so that a step depends on its state alone. lambda / h are the constraints' forces.
a = 1 is the paper's split: forces act half a step late, and momentum at rest is not zero; a = 1/2 is of second order.

Numba caches compiled code per source file: after a change in a file that this one uses, touch this one.
Legend: B batch, T control steps, n coordinates, m constraint rows, nu controls, P constants; state x = (q, p), length 2 n.
"""

from __future__ import annotations

import numpy as np

from ..core.numba_engine import inner, kernel
from ..core.simulator import Status
from .constraints import gap_slopes, gaps
from .kernels import curvature, place_links, prepare_curvature, slopes
from .linear import factor, solve
from .scratch import force, new_scratch, set_constants, set_forces
from .vectors import screw, vec

STEP_TOLERANCE = 1e-12
"""Largest error of q [rad, m] that Newton's method is estimated to leave."""
GAP_TOLERANCE = 1e-11
"""Largest |h| that a step may leave [m, -]."""
MAX_ITERATIONS = 30
SLOW = 0.05
"""Contraction per iteration above which the factors are renewed."""
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
def predict(s, q, p, w, q1):
    """q1 = q + h v, v of the interval before: (M - h^2/4 Q) v = p - h/2 L_q(q, 0) - (1 - a) h f; `end` is placed at q.

    -> Whether that is regular.
    """
    n, A = len(s.parent), w.first
    for i in range(n):
        w.v[i] = 0.0
        for j in range(n):
            A[i, j] = 0.0
    slopes(s, w.values, w.scales, q, w.v, w.end, w.Lq, w.Lv)
    prepare_curvature(s, w.values, w.end)
    for i in range(n):
        w.b[n - 1 - i] = p[i] - 0.5 * s.dt * w.Lq[i] - (1.0 - s.early) * s.dt * w.tau[i]
        a, b, t, j = screw(w.end.a, i), screw(w.end.b, i), vec(w.end.t, i), i
        while j >= 0:
            M, _, _, Q = curvature(w.end.S, w.end.w, j, a, b, t)
            A[n - 1 - j, n - 1 - i] = M - 0.25 * s.dt * s.dt * Q
            A[n - 1 - i, n - 1 - j] = M - 0.25 * s.dt * s.dt * Q
            j = s.parent[j]
        A[n - 1 - i, n - 1 - i] += w.values[3 * n + i] + 0.25 * s.dt * s.dt * w.values[i]
    regular = factor(A, w.order[:n])
    if regular:
        solve(A, w.order[:n], w.b[:n])
        for i in range(n):
            q1[i] = q[i] + s.dt * w.b[n - 1 - i]
    return regular


@inner
def newton_matrix(s, w):
    """K = d(r, h) / d(q^+, lambda) = [[R, -G'], [G1, 0]], R = h/4 Q + (C - C')/2 - M/h - a d, where last evaluated."""
    n, h, K = len(s.parent), s.dt, w.K
    prepare_curvature(s, w.values, w.mid)
    for i in range(n):
        for j in range(n):
            K[i, j] = 0.0
    for i in range(n):
        a, b, t, j = screw(w.mid.a, i), screw(w.mid.b, i), vec(w.mid.t, i), i
        while j >= 0:
            M, C, D, Q = curvature(w.mid.S, w.mid.w, j, a, b, t)
            even, odd = 0.25 * h * Q - M / h, 0.5 * (C - D)
            K[n - 1 - j, n - 1 - i] = even - odd
            K[n - 1 - i, n - 1 - j] = even + odd
            j = s.parent[j]
        K[n - 1 - i, n - 1 - i] -= 0.25 * h * w.values[i] + w.values[3 * n + i] / h + s.early * w.values[2 * n + i]
    put_gap_slopes(s, w)


@inner
def put_gap_slopes(s, w):
    """-G' and G1 of K, where `end` is placed at q^+; and its empty block."""
    n, m, K = len(s.parent), len(w.h), w.K
    if m > 0:
        gap_slopes(s, w.values, w.end, w.G1)
    for r in range(m):
        for i in range(n):
            K[n - 1 - i, n + r] = -w.G[r, i]
            K[n + r, n - 1 - i] = w.G1[r, i]
        for k in range(m):
            K[n + r, n + k] = 0.0


@inner
def remainder(s, p, w, lam, i):
    """r_i from what `evaluate` left."""
    r = p[i] + 0.5 * s.dt * w.Lq[i] - w.Lv[i] + s.early * s.dt * force(s, w, i)
    for k in range(len(lam)):
        r -= w.G[k, i] * lam[k]
    return r


@inner
def improve(s, p, w, q1, lam):
    """One Newton step of q1 and lambda from what `evaluate` left; -> the largest change of q1."""
    n, m, b = len(s.parent), len(w.h), w.b
    for i in range(n):
        b[n - 1 - i] = -remainder(s, p, w, lam, i)
    for k in range(m):
        b[n + k] = -w.h[k]
    solve(w.K, w.order, b)
    size = 0.0
    for i in range(n):
        q1[i] += b[n - 1 - i]
        size = max(size, abs(b[n - 1 - i]))
    for k in range(m):
        lam[k] += b[n + k]
    return size


@inner
def step(s, x, w, x1, lam):
    """x1 (2 n,) = (q^+, p^+) and lambda (m,) of x = (q, p) under the constants and forces set in `w`; -> status."""
    n = len(s.parent)
    q, p, q1 = x[:n], x[n:], x1[:n]
    place_links(s, q, w.end)
    gap_slopes(s, w.values, w.end, w.G)
    if not predict(s, q, p, w, q1):
        return _UNSOLVED
    for k in range(len(lam)):
        lam[k] = 0.0
    renew, before = True, np.inf
    for iteration in range(MAX_ITERATIONS):
        if not evaluate(s, q, q1, w):
            return _DIVERGED
        if renew:
            newton_matrix(s, w)
            if not factor(w.K, w.order):
                return _UNSOLVED
        size = improve(s, p, w, q1, lam)
        if not np.isfinite(size):
            return _DIVERGED
        rate = size / before if iteration > 0 else 1.0
        if size <= STEP_TOLERANCE or (rate < 1.0 and size * rate <= STEP_TOLERANCE * (1.0 - rate)):
            if not evaluate(s, q, q1, w):
                return _DIVERGED
            if largest(w.h) <= GAP_TOLERANCE:
                finish(s, p, w, lam, x1)
                return _OK
        renew, before = iteration > 0 and rate > SLOW, size
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
    for i in range(n):
        late = (1.0 - s.early) * s.dt * force(s, w, i)
        x1[n + i] = 0.5 * s.dt * w.Lq[i] + w.Lv[i] + late + remainder(s, p, w, lam, i)


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
    w, lam, now, then = new_scratch(s), np.zeros(s.row[-1]), np.empty(state.shape[1]), np.empty(state.shape[1])
    for row in range(len(state)):
        set_constants(s, constants[row], w)
        states[row, 0] = state[row]
        for t in range(controls.shape[1]):
            now[:] = states[row, t]
            set_forces(s, controls[row, t], w)
            for _ in range(substeps):
                if status[row] == _OK:
                    status[row] = step(s, now, w, then, lam)
                if status[row] == _OK:
                    now[:] = then
            states[row, t + 1] = now if status[row] == _OK else states[row, t]


@kernel
def simulate(s, state, controls, gains, constants, substeps, path, multipliers, applied, status):
    """Every physics step of rows (B, 2 n): path (B, T K + 1, 2 n), multipliers (B, T K, m), applied u (B, T, nu), status (B,).

    K substeps; feedback as in `control_at`; a failed row keeps its last good state, with zero multipliers.
    """
    w, lam, then = new_scratch(s), np.zeros(s.row[-1]), np.empty(state.shape[1])
    for row in range(len(state)):
        set_constants(s, constants[row], w)
        path[row, 0] = state[row]
        for t in range(controls.shape[1]):
            control_at(controls[row], gains, t, path[row, t * substeps], applied[row, t])
            set_forces(s, applied[row, t], w)
            for k in range(t * substeps, (t + 1) * substeps):
                if status[row] == _OK:
                    status[row] = step(s, path[row, k], w, then, lam)
                good = status[row] == _OK
                path[row, k + 1] = then if good else path[row, k]
                for r in range(len(lam)):
                    multipliers[row, k, r] = lam[r] if good else 0.0
