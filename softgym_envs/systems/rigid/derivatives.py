"""Derivatives of the steps of `stepping`: complex steps with the basic pairs fixed, then the chain rule over the steps.

Legend: m pairs of a body.
"""

from __future__ import annotations

import numpy as np

from ...engines.numba.engine import inner, kernel
from .lcp import gauss, places
from .problem import BLOCK, assemble, buffers, edge, eliminate, move, slide
from .stepping import OK, gather, step

SELECTING_VELOCITY = 1e-8
"""Velocity along `stepping.DIRECTION` whose addition selects the piece that is differentiated [m/s]."""
COMPLEX_STEP = 1e-30


@inner
def _sliding(scene, chosen, directions):  # type: ignore[no-untyped-def]
    """Whether every support of a block slides along one direction, by its basic pairs; writes these into `directions`."""
    count = len(scene.directions)
    if scene.kind != BLOCK or len(chosen) != 6:
        return False
    for i in range(3):
        directions[i] = chosen[i] - i * count
        if not (0 <= directions[i] < count and chosen[3 + i] == 3 * count + i):
            return False
    return True


@inner
def _slid_step(scene, x, u, p, problem, directions, y):  # type: ignore[no-untyped-def]
    """The step of a block that slides, for complex numbers."""
    assemble(scene, x, u, p, problem)
    velocity = np.empty((3, 1), np.complex128)
    slide(scene, p, problem, directions, velocity)
    for i in range(3):
        y[3 + i] = velocity[i, 0]
        y[i] = x[i] + scene.dt * y[3 + i]


@inner
def _held_step(scene, x, u, p, problem, chosen, y):  # type: ignore[no-untyped-def]
    """The step with the basic pairs fixed, z_B = -M_BB^-1 q_B, for complex numbers."""
    assemble(scene, x, u, p, problem)
    if scene.kind == BLOCK:
        for row in chosen:
            edge(scene, p, problem, row)
    mobile, M, q = eliminate(scene, problem, chosen)
    rhs, z = np.empty((len(q), 1), q.dtype), np.empty(len(q), q.dtype)
    for i in range(len(q)):
        rhs[i, 0] = -q[i]
    gauss(M, rhs)
    for i in range(len(q)):
        z[i] = rhs[i, 0]
    move(scene, x, mobile, z, y)


@inner
def _body_jacobian(scene, xb, ub, pb, real, compound, active, z, y, jacobian):  # type: ignore[no-untyped-def]
    """d(next state) / d(state, control, parameters) of one body and physics step, and the state in y; -> whether it exists."""
    if step(scene, xb, ub, pb, SELECTING_VELOCITY, real, active, z, y) != OK:
        return False
    first, second = len(xb), len(xb) + len(ub)
    xc, uc, pc = np.empty(first, np.complex128), np.empty(len(ub), np.complex128), np.empty(len(pb), np.complex128)
    yc, chosen, directions = np.empty(first, np.complex128), places(active), np.empty(3, np.int64)
    sliding = _sliding(scene, chosen, directions)
    for j in range(jacobian.shape[1]):
        for i in range(first):
            xc[i] = complex(xb[i], COMPLEX_STEP if i == j else 0.0)
        for i in range(len(ub)):
            uc[i] = complex(ub[i], COMPLEX_STEP if first + i == j else 0.0)
        for i in range(len(pb)):
            pc[i] = complex(pb[i], COMPLEX_STEP if second + i == j else 0.0)
        if sliding:
            _slid_step(scene, xc, uc, pc, compound, directions, yc)
        else:
            _held_step(scene, xc, uc, pc, compound, chosen, yc)
        for i in range(first):
            jacobian[i, j], y[i] = yc[i].imag / COMPLEX_STEP, yc[i].real
    return True


@inner
def _chain(one, total, width):  # type: ignore[no-untyped-def]
    """total <- d(step) / d(state) total + d(step) / d(control, parameters): the chain rule over one more step, in place."""
    for j in range(total.shape[1]):
        column = np.empty(width)
        for i in range(width):
            column[i] = one[i, j] if j >= width else 0.0
            for k in range(width):
                column[i] += one[i, k] * total[k, j]
        for i in range(width):
            total[i, j] = column[i]


@kernel
def derivative(scene, state, control, parameter_values, substeps, A, B, C):  # type: ignore[no-untyped-def]
    """See `NumbaEngine`; the chain rule over substeps, body by body, as bodies do not interact."""
    width, nu = 2 * scene.nv, scene.nu
    real, compound = buffers(scene, state), buffers(scene, np.empty(0, np.complex128))
    m = len(real[5])
    active, z = np.zeros(m, np.bool_), np.zeros(m)
    xb, ub, pb, yb = np.zeros(width), np.zeros(nu), np.zeros(scene.place.shape[1]), np.zeros(width)
    columns = width + nu + len(pb)
    one, total = np.zeros((width, columns)), np.zeros((width, columns))
    for row in range(len(state)):
        for i in range(state.shape[1]):
            for j in range(state.shape[1]):
                A[row, i, j] = 0.0
            for j in range(control.shape[1]):
                B[row, i, j] = 0.0
            for j in range(parameter_values.shape[1]):
                C[row, i, j] = 0.0
        for body in range(scene.bodies):
            gather(scene, body, state[row], control[row], parameter_values[row], xb, ub, pb)
            for i in range(width):
                for j in range(columns):
                    total[i, j] = 1.0 if i == j else 0.0
            good = True
            for _ in range(substeps):
                good = good and _body_jacobian(scene, xb, ub, pb, real, compound, active, z, yb, one)
                if good:
                    _chain(one, total, width)
                    for i in range(width):
                        xb[i] = yb[i]
            for i in range(width):
                place = body * width + i
                for j in range(columns):
                    value = total[i, j] if good else np.nan
                    if j < width:
                        A[row, place, body * width + j] = value
                    elif j < width + nu:
                        B[row, place, body * nu + j - width] = value
                    else:
                        C[row, place, scene.place[body, j - width - nu]] = value
