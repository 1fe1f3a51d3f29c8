r"""Numba functions of impulses at several corners, with Coulomb's law: round cones, no penalty.

With impulses over the body's mass, rows J of contact Jacobians and M of mass 1,

.. math::
   v^+ = v + M^{-1} J^T \lambda, \quad 0 \le \lambda_n \perp v_n^+ + b \ge 0, \quad
   \lambda_t = \operatorname{proj}_{|\cdot| \le \mu \lambda_n} (\lambda_t - s \, v_t^+)

for every corner; b = e v_n of a corner that comes with v_n < 0 is Newton's law of restitution [Moreau 1988]. Projected
Gauss-Seidel [Jourdan, Alart, Jean 1998] solves this corner by corner until no impulse changes by more than `STILL`, or by more
than `CREEPING` after `ENOUGH` rounds. On complex numbers decisions use real parts, and the iteration continues until
imaginary parts converge, too: they are then the derivative.

How the four corners of a face share its load is indeterminate, and friction of a face that slides and spins depends on it.
Their normal impulses are those with the least sum of squares, as of four equal, very stiff feet (`_share`): so the motion does
not depend on how corners are numbered. Legend: k corners that touch.
"""

from __future__ import annotations

import numpy as np

from ...core.simulator import Status
from ...engines.numba.engine import inner

OK, UNSOLVED = int(Status.OK), int(Status.UNSOLVED)
STILL, CREEPING, SLOPE_STILL = 1e-11, 1e-7, 1e-7
"""Convergence tolerances: change of impulses over mass in a round [m/s]; the same after `ENOUGH` rounds, as corners that just
stick turn their friction ever more slowly; change of derivatives, relative to the largest."""
MOST_ROUNDS, ENOUGH = 4000, 300
"""Most rounds; rounds after which derivatives need not converge."""
HOLDING = 1e-8
"""Normal speed beyond its target below which a corner holds [m/s]."""
PATIENCE, LESS = 400, 0.5
"""Every `PATIENCE` rounds the share of its step that a corner takes is multiplied by `LESS`: friction above 1 may oscillate."""
EVERY, UNCHANGED = 8, 1e-3
"""Rounds between checks for drifting normal impulses; largest difference between the changes of two rounds, over a change."""


@inner
def impulses(J, weights, bias, friction, v, after):  # type: ignore[no-untyped-def]
    """Velocities after contact, into `after`; -> status.

    Args:
        J: (k, 3, nv) rows of every corner along z, x, y.
        weights: (nv,) inverse masses.
        bias: (k,) b.
        friction: mu.
        v: (nv,) velocities without contact.
        after: (nv,) result.
    """
    k = len(bias)
    impulse, steps = np.zeros((k, 3), after.dtype), np.empty((k, 2))
    changes = np.zeros((2, k, 3), after.dtype)
    for i in range(len(v)):
        after[i] = v[i]
    for c in range(k):
        _step_lengths(J[c], weights, steps[c])
    share, opposite = 1.0, _opposite(J)
    for turn in range(MOST_ROUNDS):
        change = changes[turn % 2]
        if turn % PATIENCE == PATIENCE - 1:
            share *= LESS
        for c in range(k):
            _one_corner(J[c], weights, bias[c], friction, steps[c], share, impulse[c], change[c], after)
        shifted = 0.0 * after[0]
        if opposite > 0:
            shifted = _share(J, bias, opposite, impulse, after)
        size, slope_change, slope = abs(shifted.real), abs(shifted.imag), 0.0
        for c in range(k):
            for i in range(3):
                size = max(size, abs(change[c, i].real))
                slope_change = max(slope_change, abs(change[c, i].imag))
                slope = max(slope, abs(impulse[c, i].imag))
        if not np.isfinite(size):
            return UNSOLVED
        if (size < STILL and slope_change <= SLOPE_STILL * slope) or (turn > ENOUGH and size < CREEPING):
            return OK
        if turn % EVERY == EVERY - 1:
            _skip(J, weights, change, changes[1 - turn % 2], impulse, after)
    return UNSOLVED


@inner
def _one_corner(J, weights, bias, friction, steps, share, impulse, change, after):  # type: ignore[no-untyped-def]
    """Update one corner by a share of its step, in place; `change` receives the change of its impulse."""
    normal = impulse[0] - steps[0] * (_speed(J[0], after) + bias)
    if normal.real < 0.0:
        normal = 0.0 * bias
    if share < 1.0:
        normal = impulse[0] + share * (normal - impulse[0])
    change[0] = normal - impulse[0]
    _apply(J[0], weights, change[0], after)
    x = impulse[1] - steps[1] * _speed(J[1], after)
    y = impulse[2] - steps[1] * _speed(J[2], after)
    limit, size = friction * normal, np.sqrt(x * x + y * y)
    if size.real > limit.real:
        x, y = x * limit / size, y * limit / size
    if share < 1.0:
        x, y = impulse[1] + share * (x - impulse[1]), impulse[2] + share * (y - impulse[2])
    change[1], change[2] = x - impulse[1], y - impulse[2]
    _apply(J[1], weights, change[1], after)
    _apply(J[2], weights, change[2], after)
    impulse[0], impulse[1], impulse[2] = normal, x, y


@inner
def _opposite(J):  # type: ignore[no-untyped-def]
    """Corner across the face from the first of four that touch, 1 to 3; -1 where they are no face."""
    if len(J) != 4:
        return -1
    for other in range(1, 4):
        most = 0.0
        for i in range(J.shape[2]):
            along = 0.0
            for c in range(4):
                along += (1.0 if c in (0, other) else -1.0) * J[c, 0, i].real
            most = max(most, abs(along))
        if most < 1e-12:
            return other
    return -1


@inner
def _share(J, bias, opposite, impulse, after):  # type: ignore[no-untyped-def]
    """Shift normal impulses between the diagonals of a face to the least sum of squares, once all corners hold; -> the shift.

    It does not move the body. Corners that cannot all hold (speeds above `HOLDING`) keep the impulses they have.
    """
    shift = 0.0 * after[0]
    for c in range(4):
        if abs((_speed(J[c, 0], after) + bias[c]).real) > HOLDING:
            return 0.0 * after[0]
        shift += (0.25 if c in (0, opposite) else -0.25) * impulse[c, 0]
    for c in range(4):
        sign = 1.0 if c in (0, opposite) else -1.0
        if (impulse[c, 0] - sign * shift).real < 0.0:
            shift = sign * impulse[c, 0]
    for c in range(4):
        impulse[c, 0] -= (1.0 if c in (0, opposite) else -1.0) * shift
    return shift


@inner
def _skip(J, weights, change, before, impulse, after):  # type: ignore[no-untyped-def]
    """Extrapolate normal impulses that drift evenly, as of four corners that cannot all hold, until one becomes zero."""
    rounds, size = 0.0 * impulse[0, 0] + np.inf, 0.0
    for c in range(len(impulse)):
        size = max(size, abs(change[c, 0].real))
    if size < CREEPING:
        return
    for c in range(len(impulse)):
        if abs((change[c, 0] - before[c, 0]).real) > UNCHANGED * size:
            return
        if change[c, 0].real < 0.0:
            until = -impulse[c, 0] / change[c, 0]
            if until.real < rounds.real:
                rounds = until
    if not rounds.real < np.inf:
        return
    for c in range(len(impulse)):
        impulse[c, 0] += rounds * change[c, 0]
        _apply(J[c, 0], weights, rounds * change[c, 0], after)


@inner
def _step_lengths(rows, weights, steps):  # type: ignore[no-untyped-def]
    """Write steps (2,): inverse speed per impulse along z, and inverse of the largest in the table's plane."""
    xx, yy, xy, zz = 0.0, 0.0, 0.0, 0.0
    for i in range(len(weights)):
        weight = weights[i].real
        zz += weight * rows[0, i].real ** 2
        xx += weight * rows[1, i].real ** 2
        yy += weight * rows[2, i].real ** 2
        xy += weight * rows[1, i].real * rows[2, i].real
    steps[0] = 1.0 / zz
    steps[1] = 1.0 / (0.5 * (xx + yy) + np.sqrt(0.25 * (xx - yy) ** 2 + xy**2))


@inner
def _speed(row, v):  # type: ignore[no-untyped-def]
    """Speed of a corner along one direction."""
    speed = 0.0 * v[0]
    for i in range(len(v)):
        speed += row[i] * v[i]
    return speed


@inner
def _apply(row, weights, impulse, v):  # type: ignore[no-untyped-def]
    """Add the change of velocity by an impulse along one direction, in place."""
    for i in range(len(v)):
        v[i] += weights[i] * row[i] * impulse
