r"""Midpoint variational integrator of a tree in (q, p), with constraints [Caldwell2014, eqs. 3, 4; Johnson, Murphey 2009].

With q_m = (q + q^+)/2, v = (q^+ - q)/h, forces f = B u + offset - d v - d_0 tanh(v / w), the last of which is dry friction, and
the share a of their impulse at the beginning:

.. math::
   r = p + \tfrac h2 L_q(q_m, v) - L_v(q_m, v) + a h f - h_q(q)^T \lambda = 0, \qquad h(q^+) = 0

.. math:: p^+ = \tfrac h2 L_q(q_m, v) + L_v(q_m, v) + (1 - a) h f

solved for (q^+, lambda) by Newton's method on the whole Karush-Kuhn-Tucker system, whose factors are reused while they
converge. The first step of a control step starts from q^+ = q; later ones start from the velocity and factors of the step
before: so a control step depends only on its state. lambda / h are the constraints' forces.
If dry friction is large for the step, Newton's method may jump from one branch of tanh to the other and fail. Then the slope of
dry friction is that of the secant through rest, f tanh(v / w) / v, until changes are small: its quadratic lies above the
potential f w log cosh(v / w) and touches it, so that the energy of a convex step falls in every iteration.
a = 1 is the paper's split: forces act half a step late, and momentum at rest is not zero; a = 1/2 is of second order.

Legend: B batch, T control steps, n coordinates, m constraint rows, nu controls, P parameters; state x = (q, p), length 2 n.
"""

from __future__ import annotations

import numpy as np

from ..core.simulator import Status
from ..engines.numba.engine import LEAN, kernel, lean
from ..engines.numba.lanes import blend, fma, is_wide, overload, rows_of, select, size, some, without
from .constraints import gap_slopes, gaps
from .contact import add_contact_curvature
from .kernels import place_links, prepare_curvature, slopes
from .linear import exchange, factor, solve
from .scratch import force, friction, new_scratch, resistance, secant_resistance, set_constants, set_forces
from .stops import stop_stiffness
from .vectors import screw, vec

STEP_TOLERANCE = 1e-12
"""Change of q [rad, m] at which Newton's method ends."""
LEFT_TOLERANCE = 1e-13
"""Largest error of q [rad, m] that a larger last step is estimated to leave."""
GAP_TOLERANCE = 1e-11
"""Largest |h| that a step may leave [m, -]."""
STEP_ITERATIONS = 30
MAX_SECANTS = 1000
"""Iterations with secants of dry friction."""
CALM = 1e-6
"""Change of q [rad, m] by a secant below which Newton's method takes over."""
MAX_CONTRACTION = 0.05
"""Contraction per iteration above which the factors are renewed."""
RENEW_AT_ONCE = 1e-2
"""First change of q [rad, m] by new factors above which they are renewed at once: contraction is of the guess's error."""
RENEW_NEXT = 1e-5
"""First change of q [rad, m] by the factors of the step before above which they are renewed."""
SPEED_LIMIT = 1e3
"""Largest |v| [rad/s, m/s] before a row counts as diverged."""

_OK, _DIVERGED, _UNSOLVED = int(Status.OK), int(Status.DIVERGED), int(Status.UNSOLVED)


@lean
def evaluate(s, q, q1, w):
    """L_q and L_v at the midpoint and h at q1; -> whether all is finite and slow enough."""
    n, h, slow = len(s.parent), w.length[0], q[0] == q[0]
    for i in range(n):
        w.q[i] = 0.5 * (q[i] + q1[i])
        w.v[i] = (q1[i] - q[i]) / h
        slow = slow & (size(w.v[i]) < SPEED_LIMIT)
    place_links(s, w.q, w.mid)
    slopes(s, w.values, w.scales, w.q, w.v, w.mid, w.Lq, w.Lv)
    if len(w.h) > 0:
        place_links(s, q1, w.end)
        gaps(s, w.values, w.end, w.h)
    return slow


@lean
def newton_matrix(s, w, secant):
    """w.fresh <- K = d(r, h) / d(q^+, lambda) = [[R, -G'], [G1, 0]], R = h/4 Q + (C - C')/2 - M/h - a d(v), where evaluated.

    `secant`: dry friction has the slope of its secant through rest.
    """
    n, h, K, A, slot, alone = len(s.parent), w.length[0], w.fresh, w.rows, s.slot, rows_of(w.q[0]) == 1
    prepare_curvature(s, w.values, w.scales, w.mid)
    K[:] = 0.0
    for j in range(n):
        for k in range(6):
            A[k, j], A[6 + k, j] = w.mid.S[j, k], w.mid.w[j, k]
    for i in range(n):
        a, last = slot[i], i
        if alone:  # of all j <= i: an instruction takes several
            _rows(w, i, 0, i, 0.25 * h, 1.0 / h, A[12], A[13])
        while last >= 0:  # joints that carry i, in runs where each is on the one before
            first = last
            while first > 0 and s.parent[first] == first - 1:
                first -= 1
            if not alone:
                _rows(w, i, first, last, 0.25 * h, 1.0 / h, A[12], A[13])
            for j in range(first, last + 1):
                K[a, slot[j]], K[slot[j], a] = A[12, j], A[13, j]
            last = s.parent[first]
        slope = secant_resistance(s, w, i) if secant else resistance(s, w, i)
        K[a, a] -= 0.25 * h * w.values[i] + w.values[3 * n + i] / h + s.early * slope
    w.touch[:] = 0.0
    for k in range(len(s.stopped)):
        K[slot[s.stopped[k]], slot[s.stopped[k]]] -= 0.25 * h * stop_stiffness(s, k, w.q)
    if add_contact_curvature(s, w.values, w.mid, 0.25 * h, w.touch):
        for i in range(n):
            for j in range(n):
                K[slot[i], slot[j]] += w.touch[i, j]
    put_gap_slopes(s, w, K)


@lean
def _rows(w, i, first, last, f, g, right, below):
    """f Q_ij - g M_ij +- (C_ij - C_ji) / 2 of the bodies, for first <= j <= last: from the rows of S and w."""
    A, x, e = w.rows, w.mid, 0.5
    a0, a1, a2, a3, a4, a5 = screw(x.a, i)
    b0, b1, b2, b3, b4, b5 = screw(x.b, i)
    t0, t1, t2 = vec(x.t, i)
    for j in range(np.uint64(first), np.uint64(last + 1)):
        S0, S1, S2, S3, S4, S5 = A[0, j], A[1, j], A[2, j], A[3, j], A[4, j], A[5, j]
        w0, w1, w2, w3, w4, w5 = A[6, j], A[7, j], A[8, j], A[9, j], A[10, j], A[11, j]
        Q = fma(S0, t0, fma(S1, t1, fma(S2, t2, fma(w0, a0, fma(w1, a1, fma(w2, a2, fma(w3, a3, fma(w4, a4, w5 * a5))))))))
        M = fma(S0, b0, fma(S1, b1, fma(S2, b2, fma(S3, b3, fma(S4, b4, S5 * b5)))))
        C = fma(S0, a0, fma(S1, a1, fma(S2, a2, fma(S3, a3, fma(S4, a4, S5 * a5)))))
        D = fma(w0, b0, fma(w1, b1, fma(w2, b2, fma(w3, b3, fma(w4, b4, w5 * b5)))))
        even, odd = fma(f, Q, -g * M), e * (C - D)
        right[j], below[j] = even + odd, even - odd


@lean
def put_gap_slopes(s, w, K):
    """-G' and G1 of K, where `end` is placed at q^+."""
    n, slot = np.uint64(len(s.parent)), s.slot
    if len(w.h) > 0:
        gap_slopes(s, w.values, w.end, w.G1)
    for c in range(len(s.weld)):
        for side in range(1 if s.weld[c] else 2):
            i = s.ends[c, side]
            while i >= 0:
                column, a = np.uint64(i), slot[i]
                for r in range(np.uint64(s.row[c]), np.uint64(s.row[c + 1])):
                    K[a, slot[n + r]], K[slot[n + r], a] = -w.G[r, column], w.G1[r, column]
                i = s.parent[i]


@lean
def remainders(s, p, w, lam):
    """w.r <- r from the results of `evaluate`."""
    n, h = len(s.parent), w.length[0]
    for i in range(n):
        w.r[i] = p[i] + 0.5 * h * w.Lq[i] - w.Lv[i] + s.early * h * force(s, w, i)
    for k in range(len(lam)):
        for i in range(n):
            w.r[i] -= w.G[k, i] * lam[k]


@lean
def improve(s, p, w, q1, lam, going):
    """One Newton step of q1 and lambda of the rows that are `going`, where evaluated; -> the largest change of q1."""
    n, m, b = len(s.parent), len(w.h), w.b
    remainders(s, p, w, lam)
    for i in range(n):
        b[s.slot[i]] = -w.r[i]
    for k in range(m):
        b[s.slot[n + k]] = -w.h[k]
    solve(w.K, w.order, s.near, s.far, s.left, b)
    largest = 0.0
    for i in range(n):
        change = b[s.slot[i]]
        q1[i] = select(going, q1[i] + change, q1[i])
        largest = select(size(change) > largest, size(change), largest)
    for k in range(m):
        lam[k] = select(going, lam[k] + b[s.slot[n + k]], lam[k])
    return largest


@lean
def still(x, x1, lam):
    """First guess of a step from x only: no motion."""
    lam[:] = 0.0
    for i in range(len(x) // 2):
        x1[i] = x[i]


@lean
def go_on(before, x, x1):
    """First guess of a step after another one, which started from `before` (n,): equal velocity; lambda is kept."""
    for i in range(len(before)):
        x1[i] = 2.0 * x[i] - before[i]


@lean
def step(s, x, w, x1, lam, behind):
    """x1 (2 n,) = (q^+, p^+) and lambda (m,) of x = (q, p) under the parameters and forces set in `w`; -> status.

    x1 and lambda hold a first guess (`still`, `go_on`); if it fails, the step is tried again without it, then with secants.
    `behind`: `w` is from the step that led to x, whose factors serve for a first correction.
    """
    status = _UNSOLVED
    for attempt in range(3):
        if attempt > 0:
            still(x, x1, lam)
        if attempt == 2 and not (rubs(s, w) and _creep(s, x, w, x1, lam)):
            break
        solved, fine = iterate(s, x, w, x1, lam, behind and attempt == 0, True)
        if solved:
            return _OK
        status = _UNSOLVED if fine else _DIVERGED
    return status


def solved(s, x, w, x1, lam, behind, going):  # type: ignore[no-untyped-def]
    """Whether `step` finds x1 and lambda; of several rows that are `going`, whether its first try does."""
    raise NotImplementedError


@overload(solved, jit_options=LEAN)
def _solved(s, x, w, x1, lam, behind, going):  # type: ignore[no-untyped-def]
    if is_wide(going):
        return lambda s, x, w, x1, lam, behind, going: iterate(s, x, w, x1, lam, behind, going)[0]
    return lambda s, x, w, x1, lam, behind, going: going and step(s, x, w, x1, lam, behind) == _OK


@lean
def factor_anew(s, w, secant, renewed):
    """w.K <- the factors of `newton_matrix` of the rows that are `renewed`; -> whether they exist."""
    for attempt in range(2):
        newton_matrix(s, w, secant)
        if attempt == 0:
            good = factor(w.fresh, w.order, s.near, s.far, s.left)
        else:
            good = exchange(w.fresh, w.order)
        if some(good):
            blend(renewed, w.fresh, w.K, s.left)
            break
    return good


@lean
def rubs(s, w):
    """Whether a joint has dry friction."""
    for i in range(len(s.parent)):
        if friction(s, w, i) != 0.0:
            return True
    return False


@lean
def _creep(s, x, w, x1, lam):
    """A guess in x1 and lambda near the solution, by secants of dry friction; -> whether it is one."""
    n = len(s.parent)
    for _ in range(MAX_SECANTS):
        if not evaluate(s, x[:n], x1[:n], w):
            return False
        if not factor_anew(s, w, True, True):
            return False
        change = improve(s, x[n:], w, x1[:n], lam, True)
        if not np.isfinite(change):
            return False
        if change < CALM:
            return True
    return False


@lean
def iterate(s, x, w, x1, lam, known, going):
    """Newton's method from the guess in x1 and lambda, first with the factors in `w` if they are `known`: `w` is behind.

    For the rows that are `going`; each goes on until it is solved. -> which are solved, and which are finite and slow.
    """
    n = len(s.parent)
    q, p, q1 = x[:n], x[n:], x1[:n]
    if not known:
        place_links(s, q, w.end)
    gap_slopes(s, w.values, w.end, w.G)
    fine = evaluate(s, q, q1, w)
    going = going & fine
    solved, renew = without(going, going), going & (not known)
    before, limit = np.inf, RENEW_NEXT if known else RENEW_AT_ONCE
    for iteration in range(STEP_ITERATIONS):
        if some(renew):
            going = without(going, without(renew, factor_anew(s, w, False, renew)))
        change = improve(s, p, w, q1, lam, going)
        rate = change / before if iteration > 0 else 1.0
        fine = fine & evaluate(s, q, q1, w)
        going = going & fine
        small = (change <= STEP_TOLERANCE) | ((rate < 1.0) & (change * rate <= LEFT_TOLERANCE * (1.0 - rate)))
        solved = solved | (going & small & (largest(w.h) <= GAP_TOLERANCE))
        going = without(going, solved)
        if not some(going):
            break
        new = renew | (iteration == 0)
        renew, before, limit = going & ((new & (change > limit)) | without(rate > MAX_CONTRACTION, new)), change, RENEW_AT_ONCE
    if some(solved):
        finish(s, p, w, lam, x1)
    return solved, fine


@lean
def largest(h):
    """Largest |h|; 0 if h is empty."""
    found = 0.0
    for k in range(len(h)):
        found = select(size(h[k]) > found, size(h[k]), found)
    return found


@lean
def finish(s, p, w, lam, x1):
    """p^+ from the results of `evaluate` and Newton's residual r, so that conserved momentum does not leak."""
    n, h = len(s.parent), w.length[0]
    remainders(s, p, w, lam)
    for i in range(n):
        late = (1.0 - s.early) * h * force(s, w, i)
        x1[n + i] = 0.5 * h * w.Lq[i] + w.Lv[i] + late + w.r[i]


@lean
def control_at(controls, gains, t, x, u):
    """u = controls_t - gains_t x; gains (0, 1 or T, nu, nx): none, constant, or one per control step."""
    for k in range(len(u)):
        u[k] = controls[t, k]
        if len(gains) > 0:
            K = gains[t if len(gains) > 1 else 0, k]
            for j in range(len(x)):
                u[k] -= K[j] * x[j]


@kernel
def forward(s, state, controls, parameter_values, substeps, states, status):
    """See `engines.numba.engine.NumbaEngine`."""
    n, w, lam = len(s.parent), new_scratch(s), np.zeros(s.row[-1])
    now, then, before = np.empty(2 * n), np.empty(2 * n), np.empty(n)
    for row in range(len(state)):
        set_constants(s, parameter_values[row], w)
        states[row, 0] = state[row]
        for t in range(controls.shape[1]):
            now[:] = states[row, t]
            set_forces(s, controls[row, t], w)
            still(now, then, lam)
            for k in range(substeps):
                if status[row] == _OK:
                    status[row] = step(s, now, w, then, lam, k > 0)
                if status[row] == _OK:
                    before[:], now[:] = now[:n], then
                    go_on(before, now, then)
            states[row, t + 1] = now if status[row] == _OK else states[row, t]


@kernel
def simulate(s, state, controls, gains, parameter_values, substeps, path, multipliers, applied, status):
    """All physics steps of rows (B, 2 n): path (B, T K + 1, 2 n), multipliers (B, T K, m), applied u (B, T, nu), status (B,).

    K substeps; feedback as in `control_at`; a failed row keeps its last good state, with zero multipliers.
    """
    n, w, lam, then = len(s.parent), new_scratch(s), np.zeros(s.row[-1]), np.empty(state.shape[1])
    for row in range(len(state)):
        set_constants(s, parameter_values[row], w)
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
                    status[row] = step(s, path[row, k], w, then, lam, k > t * substeps)
                good = status[row] == _OK
                path[row, k + 1] = then if good else path[row, k]
                for r in range(len(lam)):
                    multipliers[row, k, r] = lam[r] if good else 0.0
