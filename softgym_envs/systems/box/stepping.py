"""Numba kernels of `dynamics`, where the equations are: a step that stops at every impact, batches of rows, derivatives.

Legend: B batch, n corners, k corners that touch, nq numbers of a pose, nv velocities.
"""

from __future__ import annotations

import numpy as np

from ...core.simulator import Status
from ...engines.numba.engine import inner, kernel
from .contacts import impulses
from .geometry import FRICTION, GRAVITY, INERTIA, MASS, RESTITUTION, attitude, contact_rows, gap, move

OK, DIVERGED = int(Status.OK), int(Status.DIVERGED)
SPEED_LIMIT = 1e3
"""Largest velocity [m/s, rad/s] before a row counts as diverged."""
TOUCHING = 2e-5
"""[m] Height below which a corner touches: difference between chord and arc of a rotation in a step."""
ARRIVING = 1e-4
"""[m/s] Speed above which a corner that touches strikes. Slower ones are lasting contact, so that motion has no kink where a
face lies on the table."""
MOST_IMPACTS = 12
"""Most stops per step; the rest of the step is contact without bounces."""
COMPLEX_STEP = 1e-30


@inner
def step(scene, x, u, p, y):  # type: ignore[no-untyped-def]
    """One physics step of one row, x -> y; -> status."""
    n, nq, nv = len(scene.signs), scene.nq, scene.nv
    q, v, after, moved = np.empty(nq, y.dtype), np.empty(nv, y.dtype), np.empty(nv, y.dtype), np.empty(nq, y.dtype)
    R, J, gaps = np.empty((3, 3), y.dtype), np.empty((n, 3, nv), y.dtype), np.empty(n, y.dtype)
    weights, touching = np.empty(nv, y.dtype), np.empty(n, np.int64)
    for i in range(nq):
        q[i] = x[i]
    for i in range(nv):
        v[i] = x[nq + i]
        weights[i] = 1.0 if scene.uniform[i] == 1.0 else 1.0 / (p[INERTIA] * scene.uniform[i])
    left = scene.dt + 0.0 * x[0]  # of the state's number type
    for stops in range(MOST_IMPACTS + 1):
        last = stops == MOST_IMPACTS
        attitude(scene, q, R)
        k = _contacts(scene, q, R, p, v, left, last, touching, gaps, J)
        if not last and _arriving(J, v, k):
            status = _bounce(scene, J[:k], weights, p, v, after)
            if status != OK:
                return status
            for i in range(nv):
                v[i] = after[i]
        status = _push(scene, J[:k], gaps, weights, p, u, v, left, last, after)
        if status != OK:
            return status
        if last:
            for i in range(nv):
                v[i] = after[i]
        hit, when = (-1, left) if last else _first_hit(scene, q, v, after, left, p, touching, k, moved, R)
        move(scene, q, v, after, when, left, moved)
        for i in range(nq):
            q[i] = moved[i]
        for i in range(nv):
            v[i] = v[i] + when / left * (after[i] - v[i])
            if not abs(v[i]) < SPEED_LIMIT:
                return DIVERGED
        if hit < 0:
            break
        left = left - when
    for i in range(nq):
        if q[i] != q[i]:  # a quaternion without length
            return DIVERGED
        y[i] = q[i]
    for i in range(nv):
        y[nq + i] = v[i]
    return OK


@inner
def _contacts(scene, q, R, p, v, left, last, touching, gaps, J):  # type: ignore[no-untyped-def]
    """Find corners that touch (in the last part of a step: that may touch), their gaps and rows; -> k."""
    reach = TOUCHING
    if last:
        for i in range(scene.nv):
            reach += 2.0 * abs(v[i]) * left.real * (1.0 if scene.uniform[i] == 1.0 else scene.sizes.max())
    k = 0
    for corner in range(len(scene.signs)):
        height = gap(scene, q, R, p, corner)
        if height.real <= reach:
            touching[k], gaps[k] = corner, height
            contact_rows(scene, q, R, p, corner, J[k])
            k += 1
    return k


@inner
def _arriving(J, v, k):  # type: ignore[no-untyped-def]
    """Whether a corner that touches comes down as a strike, not as lasting contact (`_push`)."""
    for c in range(k):
        if _down(J[c], v).real < -ARRIVING:
            return True
    return False


@inner
def _down(rows, v):  # type: ignore[no-untyped-def]
    """Vertical speed of a corner."""
    speed = 0.0 * v[0]
    for i in range(len(v)):
        speed += rows[0, i] * v[i]
    return speed


@inner
def _bounce(scene, J, weights, p, v, after):  # type: ignore[no-untyped-def]
    """Velocities after a strike: Newton's law e v_n where any corner is faster than `settle_speed`; -> status."""
    fastest = 0.0
    for c in range(len(J)):
        fastest = min(fastest, _down(J[c], v).real)
    if fastest > -scene.settle_speed:
        return _strike(J, weights, p, 0.0 * p[RESTITUTION], 1, v, after)
    status = _strike(J, weights, p, p[RESTITUTION], scene.strike_parts, v, after)
    before = _energy(weights, v, v)
    if status != OK or _energy(weights, after, after).real <= before.real:
        return status
    return _dampen(scene, J, weights, p, v, before, after)


@inner
def _strike(J, weights, p, restitution, parts, v, after):  # type: ignore[no-untyped-def]
    """Velocities after a strike from v_n to -e v_n; -> status. With parts > 1 of second order: 2 v(2 parts) - v(parts).

    During a strike slip turns and may stop or reverse, and friction with it [Routh 1905; Keller 1986].
    """
    status = _strike_in(J, weights, p, restitution, parts, v, after)
    if status != OK or parts == 1:
        return status
    coarse = after.copy()
    status = _strike_in(J, weights, p, restitution, 2 * parts, v, after)
    for i in range(len(v)):
        after[i] = 2.0 * after[i] - coarse[i]
    return status


@inner
def _strike_in(J, weights, p, restitution, parts, v, after):  # type: ignore[no-untyped-def]
    """Velocities after a strike in equal `parts`, each with Coulomb's law at the slip of its end; -> status."""
    arriving, bias, now = np.zeros(len(J), J.dtype), np.zeros(len(J), J.dtype), np.empty(len(v), J.dtype)
    for c in range(len(J)):
        speed = _down(J[c], v)
        if speed.real < 0.0:
            arriving[c] = speed
    for i in range(len(v)):
        after[i] = v[i]
    for part in range(parts):
        for i in range(len(v)):
            now[i] = after[i]
        for c in range(len(J)):
            bias[c] = arriving[c] * ((1.0 + restitution) * (part + 1) / parts - 1.0)
        status = impulses(J, weights, bias, p[FRICTION], now, after)
        if status != OK:
            return status
    return OK


@inner
def _dampen(scene, J, weights, p, v, before, after):  # type: ignore[no-untyped-def]
    """Interpolate between a strike without bounce and `after` to the velocities that keep the energy, into `after`; -> status.

    Newton's law with friction can gain energy [Kane 1984]; strikes without bounce never do, and all in between obey the cones.
    """
    still = np.empty(len(v), J.dtype)
    status = _strike(J, weights, p, 0.0 * p[RESTITUTION], scene.strike_parts, v, still)
    for i in range(len(v)):
        after[i] -= still[i]
    a, b, c = _energy(weights, after, after), _energy(weights, still, after), _energy(weights, still, still) - before
    if not a.real > 0.0:
        return status
    share = (np.sqrt(b * b - a * c) - b) / a
    for i in range(len(v)):
        after[i] = still[i] + share * after[i]
    return status


@inner
def _energy(weights, v, w):  # type: ignore[no-untyped-def]
    """v . M w, over the body's mass."""
    total = 0.0 * v[0]
    for i in range(len(v)):
        total += v[i] * w[i] / weights[i]
    return total


@inner
def _push(scene, J, gaps, weights, p, u, v, left, last, after):  # type: ignore[no-untyped-def]
    """Velocities after `left` s of gravity, control, gyroscopic moments and lasting contact; -> status.

    A corner that touches may close its gap by the end, v_n >= -gap / h; one under the table is pushed out at `TOUCHING` / h.
    """
    free, half = np.empty(scene.nv, J.dtype), np.empty(3, J.dtype)
    for i in range(scene.nv):
        free[i] = v[i]
    free[1 if scene.nq == 3 else 2] -= left * p[GRAVITY]
    for i in range(scene.nu):
        free[scene.force_columns[i]] += left * u[i] / p[MASS]
    if scene.nv == 6:
        _spin(scene, v, 0.5 * left, v, half)
        _spin(scene, half, left, v, free[3:])
    if len(J) == 0:
        for i in range(scene.nv):
            after[i] = free[i]
        return OK
    bias = np.empty(len(J), J.dtype)
    for c in range(len(J)):
        bias[c] = gaps[c] / (left if last else scene.dt)
        if gaps[c].real < -TOUCHING:
            bias[c] = -TOUCHING / scene.dt
    return impulses(J, weights, bias, p[FRICTION], free, after)


@inner
def _spin(scene, at, t, v, w):  # type: ignore[no-untyped-def]
    """Euler's equation w = w_0 - t I^-1 (w x I w), with the right side at `at` (its last three), into w (3,)."""
    a, b, c = at[len(at) - 3], at[len(at) - 2], at[len(at) - 1]
    A, B, C = scene.uniform[3], scene.uniform[4], scene.uniform[5]
    w[0], w[1], w[2] = v[3] - t * (C - B) / A * b * c, v[4] - t * (A - C) / B * c * a, v[5] - t * (B - A) / C * a * b


@inner
def _first_hit(scene, q, v, after, left, p, touching, k, moved, R):  # type: ignore[no-untyped-def]
    """Find the first corner to strike within `left`, and its time; -1 and `left` if none does."""
    hit, when = -1, left
    for corner in range(len(scene.signs)):
        known = False
        for c in range(k):
            known = known or touching[c] == corner
        if known or _gap_at(scene, q, v, after, when, left, p, corner, moved, R).real >= -TOUCHING:
            continue
        low, high = 0.0, when.real
        for _ in range(60):
            middle = 0.5 * (low + high)
            if _gap_at(scene, q, v, after, middle + 0.0 * left, left, p, corner, moved, R).real > 0.0:
                low = middle
            else:
                high = middle
            if high - low < 1e-13:
                break
        hit, when = corner, high + 0.0 * left
    if hit >= 0:  # one Newton step: gives the derivative of the time of impact
        before = _gap_at(scene, q, v, after, when - 1e-6, left, p, hit, moved, R).real
        height = _gap_at(scene, q, v, after, when, left, p, hit, moved, R)
        slope = _rate(scene, q, v, after, when, left, p, hit, moved, R)
        if before > 0.0 and slope.real < 0.0:
            when = when - height / slope
    return hit, when


@inner
def _gap_at(scene, q, v, after, t, left, p, corner, moved, R):  # type: ignore[no-untyped-def]
    """Height of a corner after t of the step."""
    move(scene, q, v, after, t, left, moved)
    attitude(scene, moved, R)
    return gap(scene, moved, R, p, corner)


@inner
def _rate(scene, q, v, after, t, left, p, corner, moved, R):  # type: ignore[no-untyped-def]
    """Vertical speed of a corner after t of the step."""
    rows, speed = np.empty((3, scene.nv), moved.dtype), 0.0 * left
    move(scene, q, v, after, t, left, moved)
    attitude(scene, moved, R)
    contact_rows(scene, moved, R, p, corner, rows)
    for i in range(scene.nv):
        speed += rows[0, i] * (v[i] + t / left * (after[i] - v[i]))
    return speed


# --- batches ----------------------------------------------------------------------------------------------------------


@kernel
def forward(scene, state, controls, parameter_values, substeps, states, status):  # type: ignore[no-untyped-def]
    """See `NumbaEngine`."""
    width = scene.nq + scene.nv
    x, y = np.empty(width), np.empty(width)
    for row in range(len(state)):
        for i in range(width):
            states[row, 0, i] = x[i] = state[row, i]
        for t in range(controls.shape[1]):
            for _ in range(substeps):
                if status[row] == OK:
                    status[row] = step(scene, x, controls[row, t], parameter_values[row], y)
                if status[row] == OK:
                    for i in range(width):
                        x[i] = y[i]
            for i in range(width):
                states[row, t + 1, i] = x[i] if status[row] == OK else states[row, t, i]


@kernel
def derivative(scene, state, control, parameter_values, substeps, A, B, C):  # type: ignore[no-untyped-def]
    """See `NumbaEngine`; by complex steps, one for every number of state, control and parameters."""
    width, nu, count = scene.nq + scene.nv, scene.nu, parameter_values.shape[1]
    x, u, p = np.empty(width, np.complex128), np.empty(nu, np.complex128), np.empty(count, np.complex128)
    y = np.empty(width, np.complex128)
    for row in range(len(state)):
        for j in range(width + nu + count):
            for i in range(width):
                x[i] = complex(state[row, i], COMPLEX_STEP if i == j else 0.0)
            for i in range(nu):
                u[i] = complex(control[row, i], COMPLEX_STEP if width + i == j else 0.0)
            for i in range(count):
                p[i] = complex(parameter_values[row, i], COMPLEX_STEP if width + nu + i == j else 0.0)
            status = OK
            for _ in range(substeps):
                if status == OK:
                    status = step(scene, x, u, p, y)
                    for i in range(width):
                        x[i] = y[i]
            for i in range(width):
                value = y[i].imag / COMPLEX_STEP if status == OK else np.nan
                if j < width:
                    A[row, i, j] = value
                elif j < width + nu:
                    B[row, i, j - width] = value
                else:
                    C[row, i, j - width - nu] = value
