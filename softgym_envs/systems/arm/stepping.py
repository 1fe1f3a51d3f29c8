"""Kernels of the elbow: steps by the secant method, derivatives by the complex step and the implicit function theorem.

A step's equation is solved in real numbers, from the slope that the step before ended with. Where that takes long, Newton's
method goes on: the equation is evaluated at w + i 1e-30, and its slope comes with its value. Derivatives of whole steps use
complex numbers, too: one column after the other runs through them, with one Newton step from the real solution, exact in first
order.
Legend: B batch, T control steps, P parameters.
"""

from __future__ import annotations

import numpy as np

from ...core.simulator import Status
from ...engines.numba.engine import inner, kernel
from .elbow import DAMPING, activations, balance, both_tangents, inertia

TINY = 1e-30
"""Imaginary step: its square is lost in rounding, so that derivatives are exact to rounding."""
ELBOW_SPEED_TOLERANCE = 1e-13
"""Tolerance of w, relative to 1 + |w|."""
SECANTS = 10
"""Iterations of the secant method."""
ELBOW_ITERATIONS = 40
"""Iterations of Newton's method, which follows."""
SPEED_LIMIT = 1e3
"""[rad/s]"""

_OK, _DIVERGED, _UNSOLVED = int(Status.OK), int(Status.DIVERGED), int(Status.UNSOLVED)


@inner
def first_slope(g, c):
    """Slope of a step's equation without muscles and dry friction."""
    return 2.0 * inertia(g, c) + g.dt * c[DAMPING]


@inner
def solve(g, c, known, q, v, first, second, guess, slope):
    """Solve w of a step from a guess and a slope of the equation; -> w, the last secant's slope, status."""
    w, change, before, least = guess, 0.0, 0.0, inertia(g, c)
    for k in range(SECANTS):
        value = balance(g, c, g.dt, q, v, w, first, second, known)
        secant = (before - value) / change
        if k > 0 and secant >= least:
            slope = secant
        before, change = value, value / slope
        w -= change
        if not abs(w) < SPEED_LIMIT:
            break
        if abs(change) <= ELBOW_SPEED_TOLERANCE * (1.0 + abs(w)):
            return w, slope, _OK
    return newton(g, c, known, q, v, first, second)


@inner
def newton(g, c, known, q, v, first, second):
    """`solve` by Newton's method from v. Steps that dry friction reverses are halved."""
    w, slope, last = v, 0.0, 0.0
    for _ in range(ELBOW_ITERATIONS):
        value = balance(g, c, g.dt, q, v, w + TINY * 1j, first, second, known)
        slope = value.imag / TINY
        change = value.real / slope
        if change * last < 0.0 and abs(change) > 0.5 * abs(last):
            change *= 0.5
        last = change
        w -= change
        if not abs(w) < SPEED_LIMIT:
            return w, slope, _DIVERGED
        if abs(change) <= ELBOW_SPEED_TOLERANCE * (1.0 + abs(w)):
            return w, slope, _OK
    return w, slope, _UNSOLVED


@kernel
def forward(g, state, controls, parameter_values, substeps, states, status):
    """See `engines.numba.engine.NumbaEngine`."""
    for row in range(len(state)):
        c, known = parameter_values[row], both_tangents(g, parameter_values[row])
        states[row, 0] = state[row]
        for t in range(controls.shape[1]):
            q, v, a, b = states[row, t]
            guess, slope = v, first_slope(g, c)
            if abs(v) > SPEED_LIMIT:
                status[row] = _DIVERGED
            for _ in range(substeps):
                if status[row] == _OK:
                    middle_a, next_a = activations(g, c, a, controls[row, t, 0], g.dt)
                    middle_b, next_b = activations(g, c, b, controls[row, t, 1], g.dt)
                    w, slope, status[row] = solve(g, c, known, q, v, middle_a, middle_b, guess, slope)
                    q, v, a, b, guess = q + g.dt * w, 2.0 * w - v, next_a, next_b, 3.0 * w - 2.0 * v
            if status[row] == _OK:
                states[row, t + 1, 0], states[row, t + 1, 1] = q, v
                states[row, t + 1, 2], states[row, t + 1, 3] = a, b
            else:
                states[row, t + 1] = states[row, t]


@inner
def push(g, x, e, c, speeds, slopes, out):
    """Push x (4,), e (2,), c (P,) complex through steps with real solutions `speeds` and slopes (K,); out: derivative (4,)."""
    q, v, a, b = x
    known = both_tangents(g, c)
    for k in range(len(speeds)):
        middle_a, next_a = activations(g, c, a, e[0], g.dt)
        middle_b, next_b = activations(g, c, b, e[1], g.dt)
        w = speeds[k] - balance(g, c, g.dt, q, v, speeds[k] + 0j, middle_a, middle_b, known) / slopes[k]
        q, v, a, b = q + g.dt * w, 2.0 * w - v, next_a, next_b
    out[0], out[1], out[2], out[3] = q.imag / TINY, v.imag / TINY, a.imag / TINY, b.imag / TINY


@kernel
def derivative(g, state, control, parameter_values, substeps, A, B, C):
    """See `engines.numba.engine.NumbaEngine`; NaN in a row that fails."""
    count = parameter_values.shape[1]
    inputs, column = np.empty(6 + count, dtype=np.complex128), np.empty(4)
    speeds, slopes = np.empty(substeps), np.empty(substeps)
    for row in range(len(state)):
        c, known, status = parameter_values[row], both_tangents(g, parameter_values[row]), _OK
        q, v, a, b = state[row]
        guess, slope = v, first_slope(g, c)
        if abs(v) > SPEED_LIMIT:
            status = _DIVERGED
        for k in range(substeps):
            if status == _OK:
                middle_a, next_a = activations(g, c, a, control[row, 0], g.dt)
                middle_b, next_b = activations(g, c, b, control[row, 1], g.dt)
                speeds[k], slope, status = solve(g, c, known, q, v, middle_a, middle_b, guess, slope)
                slopes[k] = balance(g, c, g.dt, q, v, speeds[k] + TINY * 1j, middle_a, middle_b, known).imag / TINY
                q, v, a, b, guess = q + g.dt * speeds[k], 2.0 * speeds[k] - v, next_a, next_b, 3.0 * speeds[k] - 2.0 * v
        inputs[:4], inputs[4:6], inputs[6:] = state[row], control[row], c
        for j in range(6 + count):
            column[:] = np.nan
            if status == _OK:
                inputs[j] += TINY * 1j
                push(g, inputs[:4], inputs[4:6], inputs[6:], speeds, slopes, column)
                inputs[j] = inputs[j].real
            if j < 4:
                A[row, :, j] = column
            elif j < 6:
                B[row, :, j - 4] = column
            else:
                C[row, :, j - 6] = column
