"""Numba kernels of `dynamics`, where the equations are: the solution of one body's problem, batches of rows.

Legend: B batch, m pairs of a body.
"""

from __future__ import annotations

import numpy as np

from ...core.simulator import Status
from ...engines.numba.engine import inner, kernel
from .lcp import gauss, pivot, places
from .problem import BLOCK, PARTICLE, along, assemble, buffers, edge, eliminate, move, slide

SPEED_LIMIT = 1e3
"""Largest velocity [m/s, rad/s] before a row counts as diverged."""
DIRECTION = (1.0, -0.7, 17.0)
"""Direction along which a step may be pushed [m/s, rad/s]; rad/s count as speeds at some centimetres."""

OK, DIVERGED, UNSOLVED = int(Status.OK), int(Status.DIVERGED), int(Status.UNSOLVED)


@inner
def _first_pairs(scene, x, problem, included):  # type: ignore[no-untyped-def]
    """Pairs to start from: all; for a block the directions against its motion (at rest: its push, and four all around)."""
    count = len(scene.directions)
    for i in range(len(included)):
        included[i] = scene.kind == PARTICLE or i >= 3 * count
    if scene.kind == PARTICLE:
        return
    lhs, velocity = np.empty((3, 3)), np.empty((3, 1))
    moving = max(abs(x[3]), abs(x[4]), abs(x[5])) > 1e-9
    for i in range(3):
        velocity[i, 0] = x[3 + i] if moving else problem[1][i]
        for j in range(3):
            lhs[i, j] = problem[0][i, j]
    if not moving:
        gauss(lhs, velocity)
    for i in range(3):
        if not moving:
            for k in range(0, count, max(1, count // 4)):
                included[i * count + k] = True
        best, _ = _steepest(scene, problem[6], velocity, i)
        for k in (best - 1, best, best + 1):
            included[i * count + k % count] = True


@inner
def _add_violated(scene, problem, z, y, included):  # type: ignore[no-untyped-def]
    """Include the direction that each support of state y violates most, f = D_k v_i + sigma_i < 0; -> whether there is none."""
    count, arms, velocity = len(scene.directions), problem[6], np.empty((3, 1))
    for i in range(3):
        velocity[i, 0] = y[3 + i]
    done = True
    for i in range(3):
        worst, least = -1, -1e-13
        best, _ = _steepest(scene, arms, velocity, i)
        for k in (best - 1, best, best + 1):
            row = i * count + k % count
            if not included[row]:
                slack = z[3 * count + i] + _speed(scene, arms, velocity, i, k % count)
                if slack < least:
                    worst, least = row, slack
        if worst >= 0:
            included[worst], done = True, False
    return done


@inner
def _slides(scene, x, p, problem, active, z, y):  # type: ignore[no-untyped-def]
    """The step of a block that slides on all supports, into `active`, z and y; -> whether it does.

    Friction is then known, its largest value d against the motion of each support, and no program has to be solved. The answer
    is the problem's if that direction is the steepest one at the end of the step, too; else the step is repeated with that one,
    at most three times in all.
    """
    d, arms = problem[5], problem[6]
    count, m = len(scene.directions), len(z)
    if max(abs(x[3]), abs(x[4]), abs(x[5])) <= 1e-9:
        return False
    velocity, chosen = np.empty((3, 1)), np.empty(3, np.int64)
    for i in range(3):
        velocity[i, 0] = x[3 + i]
    for _ in range(3):
        for i in range(3):
            chosen[i], _ = _steepest(scene, arms, velocity, i)
        slide(scene, p, problem, chosen, velocity)
        right = True
        for i in range(3):
            best, least = _steepest(scene, arms, velocity, i)
            z[3 * count + i] = -least
            steep = best == chosen[i] or _speed(scene, arms, velocity, i, chosen[i]) <= least + 1e-13
            right = right and least < 0.0 and steep
        if right:
            for i in range(3):
                y[3 + i] = velocity[i, 0]
                y[i] = x[i] + scene.dt * y[3 + i]
            for i in range(m):
                active[i] = i >= 3 * count
                if i < 3 * count:
                    z[i] = 0.0
            for i in range(3):
                row = i * count + chosen[i]
                active[row], z[row] = True, d[3 * count + i]
            return True
    return False


@inner
def _speed(scene, arms, velocity, i, k):  # type: ignore[no-untyped-def]
    """Speed of support i along direction k."""
    x, y, turn = along(scene, arms, i, k)
    return x * velocity[0, 0] + y * velocity[1, 0] + turn * velocity[2, 0]


@inner
def _steepest(scene, arms, velocity, i):  # type: ignore[no-untyped-def]
    """The direction along which the speed of support i is least, and that speed; of equal ones the first.

    Directions are evenly spread, so it is the one nearest to the opposite of the velocity; its neighbours are checked, too.
    """
    count = len(scene.directions)
    x = velocity[0, 0] - arms[i, 1] * velocity[2, 0]
    y = velocity[1, 0] + arms[i, 0] * velocity[2, 0]
    if x == 0.0 and y == 0.0:
        return 0, _speed(scene, arms, velocity, i, 0)
    near = int(np.rint(np.arctan2(-y, -x) * count / (2.0 * np.pi)))
    best, least = count, np.inf
    for k in (near - 1, near, near + 1):
        speed = _speed(scene, arms, velocity, i, k % count)
        if speed < least or (speed == least and k % count < best):
            best, least = k % count, speed
    return best, least


@inner
def _solve(scene, x, p, problem, active, z, y):  # type: ignore[no-untyped-def]
    """The step's problem, into `active`, z and y; -> status.

    Few of a cone's many edges ever carry force. So the problem is solved for few of them, and edges that the solution violates
    are added until there are none: it then solves the whole problem, with zero force along the others.
    """
    if scene.kind == BLOCK and _slides(scene, x, p, problem, active, z, y):
        return OK
    m = len(z)
    included = np.empty(m, np.bool_)
    _first_pairs(scene, x, problem, included)
    while True:
        chosen = places(included)
        if scene.kind == BLOCK:
            for row in chosen:
                edge(scene, p, problem, row)
        mobile, M, q = eliminate(scene, problem, chosen)
        for i in range(len(q)):
            if not np.isfinite(q[i]):
                return DIVERGED
        basic, part = np.empty(len(chosen), np.bool_), np.empty(len(chosen))
        if not pivot(M, q, basic, part):
            return UNSOLVED
        move(scene, x, mobile, part, y)
        for i in range(m):
            active[i], z[i] = False, 0.0
        for i in range(len(chosen)):
            active[chosen[i]], z[chosen[i]] = basic[i], part[i]
        if scene.kind == PARTICLE or _add_violated(scene, problem, z, y, included):
            return OK


@inner
def step(scene, x, u, p, push, problem, active, z, y):  # type: ignore[no-untyped-def]
    """One step of one body after a `push` along `DIRECTION`, into y, with its basic pairs and z; -> status."""
    if not assemble(scene, x, u, p, problem):
        return DIVERGED
    A, b = problem[0], problem[1]
    for i in range(scene.nv):
        for j in range(scene.nv):
            b[i] += A[i, j] * push * DIRECTION[j]
    status = _solve(scene, x, p, problem, active, z, y)
    for i in range(scene.nv):
        if not abs(y[scene.nv + i]) < SPEED_LIMIT:
            return DIVERGED
    return status


@inner
def gather(scene, body, x, u, p, xb, ub, pb):  # type: ignore[no-untyped-def]
    """Copy one body's part of a row's state, control and parameters into xb, ub and pb."""
    for i in range(len(xb)):
        xb[i] = x[body * len(xb) + i]
    for i in range(len(ub)):
        ub[i] = u[body * len(ub) + i]
    for k in range(len(pb)):
        pb[k] = p[scene.place[body, k]]


@kernel
def forward(scene, state, controls, parameter_values, substeps, states, status):  # type: ignore[no-untyped-def]
    """See `NumbaEngine`."""
    width, horizon = 2 * scene.nv, controls.shape[1]
    problem = buffers(scene, state)
    m = len(problem[5])
    active, z = np.zeros(m, np.bool_), np.zeros(m)
    xb, ub, pb, yb = np.zeros(width), np.zeros(scene.nu), np.zeros(scene.place.shape[1]), np.zeros(width)
    for row in range(len(state)):
        for i in range(state.shape[1]):
            states[row, 0, i] = state[row, i]
        for t in range(horizon):
            before, x, u = states[row, t], states[row, t + 1], controls[row, t]
            for body in range(scene.bodies):
                gather(scene, body, before, u, parameter_values[row], xb, ub, pb)
                for _ in range(substeps):
                    if status[row] == OK:
                        status[row] = step(scene, xb, ub, pb, 0.0, problem, active, z, yb)
                    if status[row] == OK:
                        for i in range(width):
                            xb[i] = yb[i]
                for i in range(width):
                    x[body * width + i] = xb[i]
            if status[row] != OK:
                for i in range(state.shape[1]):
                    x[i] = before[i]


@kernel
def contact_forces(scene, state, control, parameter_values, forces):  # type: ignore[no-untyped-def]
    """Impulses over mass and slack speeds of one physics step, (B, bodies m), NaN where it fails."""
    problem = buffers(scene, state)
    m = len(problem[5])
    active, z = np.zeros(m, np.bool_), np.zeros(m)
    xb, ub, pb, yb = np.zeros(2 * scene.nv), np.zeros(scene.nu), np.zeros(scene.place.shape[1]), np.zeros(2 * scene.nv)
    for row in range(len(state)):
        for body in range(scene.bodies):
            gather(scene, body, state[row], control[row], parameter_values[row], xb, ub, pb)
            failed = step(scene, xb, ub, pb, 0.0, problem, active, z, yb) != OK
            for i in range(m):
                forces[row, body * m + i] = np.nan if failed else z[i]
