r"""Kernels of simulators whose states are (q, v): steps of `integrator`, which are of (q, p).

v is the speed of the physics step that led to q, so that with q_0 = q - h v and the midpoint (q_0 + q) / 2 the momentum is

.. math:: p = \tfrac h2 L_q + L_v, \qquad v^+ = (q^+ - q) / h

(forces act at the beginning of a step, as in the paper). A control step depends only on (q, v), whatever came before.

*Parts.* The equations of a step may have no solution: where fast modes move far in it, the branch of solutions q^+(h) that
begins at h = 0 turns back before h = dt, and Newton's method, damped or not, ends where K is singular. Such a step is taken in
parts of dt/2, dt/4, ..., the largest that have solutions, from (q, p) to (q, p) under the same forces. v stays the speed of the
whole step, so a state means the same however it was reached; derivatives are those of the parts that were taken.

*Batches.* Rows of a batch are stepped LANES at a time (`engines.numba.lanes`), each with the bits that it has alone.
Legend: B batch, T control steps, n coordinates, m constraint rows, nu controls, P parameters; state x = (q, v), length 2 n.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.simulator import Array, IntArray, Status
from ..engines.numba.engine import LEAN, inner, kernel, lean
from ..engines.numba.lanes import WIDE, is_wide, like, overload, rows_of, select, some, spread, zeros
from .blocks import differentiate, differentiate_here, new_blocks
from .derivatives import push_forward
from .integrator import evaluate, go_on, iterate, step, still
from .scratch import new_scratch, set_constants, set_forces

LEAST_PART = 1 / 16
"""Smallest part of a step that is tried."""
ALONE = -1
"""Status of a row that must be stepped alone."""

_OK, _DIVERGED = int(Status.OK), int(Status.DIVERGED)


@lean
def with_momentum(s, x, w, now, before):
    """now = (q, p) and before = q - h v of a state x = (q, v); -> whether it is finite and slow enough."""
    n = len(s.parent)
    for i in range(n):
        before[i] = x[i] - s.dt * x[n + i]
        now[i] = x[i]
    slow = evaluate(s, before, now[:n], w)
    for i in range(n):
        now[n + i] = 0.5 * s.dt * w.Lq[i] + w.Lv[i]
    return slow


@lean
def take_part(s, x, w, x1, lam, part):
    """x1 and lambda of x after `part` of a step, or half, a quarter, ... of that; -> the part that was taken, 0 if none can be.

    `w` keeps the part's length.
    """
    while part >= LEAST_PART:
        w.length[0] = part * s.dt
        still(x, x1, lam)
        if step(s, x, w, x1, lam, False) == _OK:
            return part
        part *= 0.5
    return 0.0


@lean
def take_parts(s, x, w, x1, lam, here):
    """x1 of x after a whole step in parts; here (2 n,) is memory; -> whether there is one."""
    for i in range(len(x)):
        here[i] = x[i]
    done, part = 0.0, 0.5
    while part > 0.0 and done < 1.0:
        part = take_part(s, here, w, x1, lam, part)
        for i in range(len(x)):
            here[i] = x1[i]
        done += part
    w.length[0] = s.dt
    return done == 1.0


def forward(
    s: Any, state: Array, controls: Array, parameter_values: Array, substeps: int, states: Array, status: IntArray
) -> None:
    """See `engines.numba.engine.NumbaEngine`; rows that need more than a first try of every step are stepped alone."""
    if len(state) == 1:
        return step_rows(s, state, controls, parameter_values, substeps, states, status, 0.0)
    step_rows(s, state, controls, parameter_values, substeps, states, status, WIDE)
    for row in np.flatnonzero(status == ALONE):
        mine = slice(row, row + 1)
        status[mine] = _OK
        step_rows(s, state[mine], controls[mine], parameter_values[mine], substeps, states[mine], status[mine], 0.0)


@kernel
def step_rows(s, state, controls, parameter_values, substeps, states, status, zero):
    """`forward` of as many rows at a time as `zero` has; of several, rows that cannot go on have the status ALONE."""
    n, lanes, rows = len(s.parent), rows_of(zero), len(state)
    w, lam, here, before = new_scratch(s, zero), zeros(s.row[-1], zero), zeros(2 * n, zero), zeros(n, zero)
    now, then, on = zeros(2 * n, zero), zeros(2 * n, zero), np.zeros((1, lanes))
    X, U, C = np.zeros((2 * n, lanes)), np.zeros((controls.shape[2], lanes)), np.zeros((parameter_values.shape[1], lanes))
    x, u, running = like(X, zero), like(U, zero), like(on, zero)
    for first in range(0, rows, lanes):
        mine = slice(first, min(first + lanes, rows))
        spread(parameter_values[mine], C)
        set_constants(s, like(C, zero), w)
        states[mine, 0] = state[mine]
        running[0] = 1.0
        for t in range(controls.shape[1]):
            states[mine, t + 1] = states[mine, t]
            going, code = running[0] > 0.0, _DIVERGED
            if some(going):
                spread(controls[mine, t], U)
                spread(states[mine, t], X)
                set_forces(s, u, w)
                going = going & with_momentum(s, x, w, now, before)
                lam[:], behind = 0.0, False
                for _ in range(substeps):
                    if some(going):
                        going, behind, code = advance(s, before, now, w, then, lam, here, behind, going)
                        before[:], now[:] = now[:n], then
                for i in range(n):
                    x[i], x[n + i] = now[i], (now[i] - before[i]) / s.dt
                running[0] = select(going, 1.0, 0.0)
                for k in range(len(states[mine])):
                    if on[0, k] > 0.0:
                        states[first + k, t + 1] = X[:, k]
                    elif status[first + k] == _OK:
                        status[first + k] = code


def advance(s, before, now, w, then, lam, here, behind, going):  # type: ignore[no-untyped-def]
    """`then` and lambda a physics step after `now`; -> whether there are any, whether without parts, status of others."""
    raise NotImplementedError


@overload(advance, jit_options=LEAN)
def _advance(s, before, now, w, then, lam, here, behind, going):  # type: ignore[no-untyped-def]
    def one(s, before, now, w, then, lam, here, behind, going):  # type: ignore[no-untyped-def]
        for _ in range(2):
            go_on(before, now, then)
            status, again = step(s, now, w, then, lam, behind), behind
            behind = status == _OK
            if behind or not again:  # as `derivative` begins
                break
        if not behind and take_parts(s, now, w, then, lam, here):
            status = _OK
        return status == _OK, behind, status

    def several(s, before, now, w, then, lam, here, behind, going):  # type: ignore[no-untyped-def]
        go_on(before, now, then)
        return iterate(s, now, w, then, lam, behind, going)[0], True, ALONE

    return several if is_wide(going) else one


@inner
def momentum_slopes(s, d, dx, dc):
    """Rows p of dx (2 n, k), given its rows q, v as (dq, dv), by the blocks of the step that led here."""
    n, columns = len(s.parent), dx.shape[1]
    dp = np.zeros((n, columns))
    for i in range(n):
        for j in range(n):
            by_q, by_v = d.pn[i, j] + d.pq[i, j], -s.dt * d.pq[i, j]
            if by_q != 0.0 or by_v != 0.0:
                for k in range(columns):
                    dp[i, k] += by_q * dx[j, k] + by_v * dx[n + j, k]
        for c in range(dc.shape[0]):
            if d.pc[i, c] != 0.0:
                for k in range(columns):
                    dp[i, k] += d.pc[i, c] * dc[c, k]
    dx[n:] = dp


@kernel
def derivative(s, state, control, parameter_values, substeps, A, B, C):
    """See `engines.numba.engine.NumbaEngine`; NaN in a row that fails."""
    n, m, nu, count = len(s.parent), s.row[-1], control.shape[1], parameter_values.shape[1]
    w, d, lam, x, x1, before = new_scratch(s), new_blocks(s, count), np.zeros(m), np.empty(2 * n), np.empty(2 * n), np.empty(n)
    columns = 2 * n + nu + count
    dx, dx1, X = np.empty((2 * n, columns)), np.empty((2 * n, columns)), np.empty((n + m, columns))
    du, dc, old = np.zeros((nu, columns)), np.zeros((count, columns)), np.empty((n, columns))
    for i in range(nu):
        du[i, 2 * n + i] = 1.0
    for i in range(count):
        dc[i, 2 * n + nu + i] = 1.0
    for row in range(len(state)):
        set_constants(s, parameter_values[row], w)
        set_forces(s, control[row], w)
        dx[:] = 0.0
        for i in range(2 * n):
            dx[i, i] = 1.0
        lam[:] = 0.0
        good = with_momentum(s, state[row], w, x, before) and differentiate(s, before, x[:n], lam, w, d)
        if good:
            momentum_slopes(s, d, dx, dc)
        for _ in range(substeps):
            go_on(before, x, x1)
            old[:], before[:], done = dx[:n], x[:n], 0.0
            part = 1.0 if good and step(s, x, w, x1, lam, False) == _OK else 0.5
            while good and done < 1.0:
                if part < 1.0:
                    part = take_part(s, x, w, x1, lam, part)
                good = part > 0.0 and differentiate_here(s, x[:n], x1[:n], lam, w, d)
                if good:
                    push_forward(s, w, d, dx, du, dc, X, dx1)
                    x[:], dx[:] = x1, dx1
                    done += part
            w.length[0] = s.dt
        if good:
            dx[n:] = (dx[:n] - old) / s.dt
        else:
            dx[:] = np.nan
        A[row], B[row], C[row] = dx[:, : 2 * n], dx[:, 2 * n : 2 * n + nu], dx[:, 2 * n + nu :]


@kernel
def momenta(s, state, parameter_values, p, by_state, by_constant, good):
    """Momenta p (B, n) of states (B, 2 n), their derivatives (B, n, 2 n), (B, n, P), and whether they are regular (B,)."""
    n, count = len(s.parent), parameter_values.shape[1]
    w, d, lam, now, before = new_scratch(s), new_blocks(s, count), np.zeros(s.row[-1]), np.empty(2 * n), np.empty(n)
    for row in range(len(state)):
        set_constants(s, parameter_values[row], w)
        good[row] = with_momentum(s, state[row], w, now, before)
        p[row] = now[n:]
        if good[row]:
            good[row] = differentiate(s, before, now[:n], lam, w, d)
            by_state[row, :, :n], by_state[row, :, n:] = d.pn + d.pq, -s.dt * d.pq
            by_constant[row] = d.pc
