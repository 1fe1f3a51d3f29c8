"""Kernels of the elbow: steps by Newton's method, derivatives by the complex step and the implicit function theorem.

The slope of a step's equation comes with its value: the equation is evaluated at w + i 1e-30. Derivatives of whole steps
use it, too: one column after the other runs through complex numbers, with one Newton step from the real solution, exact in
first order.
Legend: B batch, T control steps, P parameters.
"""

from __future__ import annotations

import numpy as np

from ...core.simulator import Status
from ...engines.numba.engine import inner, kernel
from .elbow import activations, balance

TINY = 1e-30
"""Imaginary step: its square is lost in rounding, so that derivatives are exact to rounding."""
ELBOW_SPEED_TOLERANCE = 1e-13
"""Tolerance of w, relative to 1 + |w|."""
ELBOW_ITERATIONS = 40
SPEED_LIMIT = 1e3
"""[rad/s]"""

_OK, _DIVERGED, _UNSOLVED = int(Status.OK), int(Status.DIVERGED), int(Status.UNSOLVED)


@inner
def solve(g, c, q, v, first, second):
    """Solve w of a step; also the equation's slope there, and the status. Steps that dry friction reverses are halved."""
    w, slope, last = v, 0.0, 0.0
    for _ in range(ELBOW_ITERATIONS):
        value = balance(g, c, g.dt, q, v, w + TINY * 1j, first, second)
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
        c = parameter_values[row]
        states[row, 0] = state[row]
        for t in range(controls.shape[1]):
            q, v, a, b = states[row, t]
            if abs(v) > SPEED_LIMIT:
                status[row] = _DIVERGED
            for _ in range(substeps):
                if status[row] == _OK:
                    middle_a, next_a = activations(g, c, a, controls[row, t, 0], g.dt)
                    middle_b, next_b = activations(g, c, b, controls[row, t, 1], g.dt)
                    w, _, status[row] = solve(g, c, q, v, middle_a, middle_b)
                    q, v, a, b = q + g.dt * w, 2.0 * w - v, next_a, next_b
            if status[row] == _OK:
                states[row, t + 1, 0], states[row, t + 1, 1] = q, v
                states[row, t + 1, 2], states[row, t + 1, 3] = a, b
            else:
                states[row, t + 1] = states[row, t]


@inner
def push(g, x, e, c, speeds, slopes, out):
    """Push x (4,), e (2,), c (P,) complex through steps with real solutions `speeds` and slopes (K,); out: derivative (4,)."""
    q, v, a, b = x
    for k in range(len(speeds)):
        middle_a, next_a = activations(g, c, a, e[0], g.dt)
        middle_b, next_b = activations(g, c, b, e[1], g.dt)
        w = speeds[k] - balance(g, c, g.dt, q, v, speeds[k] + 0j, middle_a, middle_b) / slopes[k]
        q, v, a, b = q + g.dt * w, 2.0 * w - v, next_a, next_b
    out[0], out[1], out[2], out[3] = q.imag / TINY, v.imag / TINY, a.imag / TINY, b.imag / TINY


@kernel
def derivative(g, state, control, parameter_values, substeps, A, B, C):
    """See `engines.numba.engine.NumbaEngine`; NaN in a row that fails."""
    count = parameter_values.shape[1]
    inputs, column = np.empty(6 + count, dtype=np.complex128), np.empty(4)
    speeds, slopes = np.empty(substeps), np.empty(substeps)
    for row in range(len(state)):
        c, status = parameter_values[row], _OK
        q, v, a, b = state[row]
        if abs(v) > SPEED_LIMIT:
            status = _DIVERGED
        for k in range(substeps):
            if status == _OK:
                middle_a, next_a = activations(g, c, a, control[row, 0], g.dt)
                middle_b, next_b = activations(g, c, b, control[row, 1], g.dt)
                speeds[k], slopes[k], status = solve(g, c, q, v, middle_a, middle_b)
                q, v, a, b = q + g.dt * speeds[k], 2.0 * speeds[k] - v, next_a, next_b
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
