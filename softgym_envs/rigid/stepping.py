"""Numba kernels of `dynamics`, where the equations are: one body's problem, its solution and derivative, batches of rows.

In here z are impulses over the body's mass (then slack speeds sigma), so that all pairs are in m/s. Arrays are filled by loops
and not by slices: every slice assignment costs Numba a fifth of a second when it compiles, and all of them half a minute.
Legend: B batch, nv velocities of a body, m pairs of a body, d friction directions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.numba_engine import inner, kernel
from ..core.simulator import Array, Status
from .lcp import gauss, pivot, places

PARTICLE, BLOCK = 0, 1
SPEED_LIMIT = 1e3
"""Largest velocity [m/s, rad/s] before a row counts as diverged."""
SHORTEST_STRING = 1e-3
"""[m] A block that is nearer to the pulley has no direction of pull: the row counts as diverged."""
PUSH, DIRECTION = 1e-8, (1.0, -0.7, 17.0)
"""Velocity [m/s, rad/s] whose addition selects the piece that is differentiated; rad/s count as speeds at some centimetres."""
COMPLEX_STEP = 1e-30

_OK, _DIVERGED, _UNSOLVED = int(Status.OK), int(Status.DIVERGED), int(Status.UNSOLVED)


class Scene(NamedTuple):
    """What all rows share; bodies of one kind, which do not touch each other."""

    kind: int
    bodies: int
    dt: float
    nv: int
    """Velocities of a body."""
    nu: int
    """Controls of a body."""
    place: NDArray[np.int64]
    """(bodies, constants of a body): where they are in the vector of constants."""
    points: Array
    """(4, 2) attachment, pulley, handle; (1 with a string, 0 without; 0)."""
    supports: Array
    """(3, 2)"""
    shares: Array
    """(3,)"""
    directions: Array
    """(d, 2)"""


# --- The problem of one body ------------------------------------------------------------------------------------------


@inner
def _buffers(scene, like):  # type: ignore[no-untyped-def]
    """Arrays A (nv, nv), b (nv), W (nv, m), K (m, nv), C (m, m), d (m), of the number type of `like`."""
    n = scene.nv
    m = 4 if scene.kind == PARTICLE else 3 * len(scene.directions) + 3
    kind = like.dtype
    return (
        np.zeros((n, n), kind), np.zeros(n, kind), np.zeros((n, m), kind),
        np.zeros((m, n), kind), np.zeros((m, m), kind), np.zeros(m, kind),
    )  # fmt: skip


@inner
def _assemble(scene, x, u, p, problem):  # type: ignore[no-untyped-def]
    """Fill A, b, W, K, C, d for a body's state, control and constants; -> whether there is such a problem."""
    if scene.kind == PARTICLE:
        _particle(scene.dt, x, u, p, problem)
        return True
    return _block(scene, x, u, p, problem)


@inner
def _particle(h, x, u, p, problem):  # type: ignore[no-untyped-def]
    """[Berard2008] slide 25, with impulses over mass: z = (normal, friction to the left, to the right, sigma)."""
    A, b, W, K, C, d = problem
    friction, mass, gravity = p[0], p[1], p[2]
    A[0, 0] = A[1, 1] = 1.0
    b[0] = x[2] + h * u[0] / mass
    b[1] = x[3] - h * gravity
    W[1, 0], W[0, 1], W[0, 2] = 1.0, -1.0, 1.0
    K[0, 1], K[1, 0], K[2, 0] = 1.0, -1.0, 1.0
    C[1, 3] = C[2, 3] = 1.0
    C[3, 0], C[3, 1], C[3, 2] = friction, -1.0, -1.0
    d[0] = x[1] / h  # the gap at the end of the step over h: y/h + vy+ >= 0


@inner
def _block(scene, x, u, p, problem):  # type: ignore[no-untyped-def]
    r"""The sliding block with string: z = (friction at support 0 along direction 0, ..., sigma_0, sigma_1, sigma_2).

    Tension eliminated, with s = w(q-)' nu the speed of the weight at the beginning of the step (q- = q - h nu):

    .. math::
       M (\nu^+ - \nu) + m_w w(q) (w(q)^T \nu^+ - s) = h (\sum_i J_i^T D^T \lambda_i + m_w g w(q) + B u)
    """
    A, b, W, K, C, d = problem
    friction, mass, inertia, weight, gravity = p[0], p[1], p[2], p[3], p[4]
    h = scene.dt
    c, s = np.cos(x[2]), np.sin(x[2])
    hx, hy = scene.points[2, 0], scene.points[2, 1]
    fx, fy = c * u[0] - s * u[1], s * u[0] + c * u[1]
    for i in range(3):
        for j in range(3):
            A[i, j] = 0.0
    A[0, 0] = A[1, 1] = mass
    A[2, 2] = inertia
    b[0], b[1] = mass * x[3] + h * fx, mass * x[4] + h * fy
    b[2] = inertia * x[5] + h * (hx * u[1] - hy * u[0])
    if scene.points[3, 0] > 0:
        wx, wy, wt, length = pull(scene.points, x[0], x[1], x[2])
        px, py, pt, _ = pull(scene.points, x[0] - h * x[3], x[1] - h * x[4], x[2] - h * x[5])
        if not length > SHORTEST_STRING:
            return False
        drive = weight * (px * x[3] + py * x[4] + pt * x[5] + h * gravity)
        w = (wx, wy, wt)
        for i in range(3):
            b[i] += drive * w[i]
            for j in range(3):
                A[i, j] += weight * w[i] * w[j]
    count = len(scene.directions)
    for i in range(3):
        rx = c * scene.supports[i, 0] - s * scene.supports[i, 1]
        ry = s * scene.supports[i, 0] + c * scene.supports[i, 1]
        slack = 3 * count + i
        d[slack] = h * friction * gravity * scene.shares[i]
        for k in range(count):
            row = i * count + k
            dx, dy = scene.directions[k, 0], scene.directions[k, 1]
            K[row, 0], K[row, 1], K[row, 2] = dx, dy, rx * dy - ry * dx
            for j in range(3):
                W[j, row] = mass * K[row, j]
            C[row, slack], C[slack, row] = 1.0, -1.0
    return True


@kernel
def pull(points, x, y, theta):  # type: ignore[no-untyped-def]
    """Generalised direction of the string, w = J_a' u with u from the attachment to the pulley; and its length [m]."""
    c, s = np.cos(theta), np.sin(theta)
    ax, ay = c * points[0, 0] - s * points[0, 1], s * points[0, 0] + c * points[0, 1]
    dx, dy = points[1, 0] - x - ax, points[1, 1] - y - ay
    length = np.sqrt(dx * dx + dy * dy)
    ux, uy = dx / length, dy / length
    return ux, uy, ax * uy - ay * ux, length.real


# --- One step of one body ---------------------------------------------------------------------------------------------


@inner
def _eliminate(problem, chosen):  # type: ignore[no-untyped-def]
    """For some pairs (k,): A^-1 [W b], (nv, k + 1), and M = K A^-1 W + C, q = K A^-1 b + d."""
    A, b, W, K, C, d = problem
    n, k = len(b), len(chosen)
    mobile, lhs = np.empty((n, k + 1), A.dtype), np.empty((n, n), A.dtype)
    for i in range(n):
        mobile[i, k] = b[i]
        for j in range(k):
            mobile[i, j] = W[i, chosen[j]]
        for j in range(n):
            lhs[i, j] = A[i, j]
    gauss(lhs, mobile)
    M, q = np.empty((k, k), A.dtype), np.empty(k, A.dtype)
    for i in range(k):
        row = chosen[i]
        q[i] = d[row]
        for j in range(k):
            M[i, j] = C[row, chosen[j]]
        for v in range(n):
            factor = K[row, v]
            if factor != 0:
                q[i] += factor * mobile[v, k]
                for j in range(k):
                    M[i, j] += factor * mobile[v, j]
    return mobile, M, q


@inner
def _move(scene, x, mobile, z, y):  # type: ignore[no-untyped-def]
    """nu+ = A^-1 (b + W z), q+ = q + h nu+, into y."""
    n, m = scene.nv, len(z)
    for i in range(n):
        y[n + i] = mobile[i, m]
        for j in range(m):
            if z[j] != 0:
                y[n + i] += mobile[i, j] * z[j]
        y[i] = x[i] + scene.dt * y[n + i]


@inner
def _first_pairs(scene, x, problem, included):  # type: ignore[no-untyped-def]
    """Pairs to begin with: all; of a block the directions against its motion (at rest: its push, and four all around)."""
    count = len(scene.directions)
    for i in range(len(included)):
        included[i] = scene.kind == PARTICLE or i >= 3 * count
    if scene.kind == PARTICLE:
        return
    K, lhs, push = problem[3], np.empty((3, 3)), np.empty((3, 1))
    for i in range(3):
        push[i, 0] = problem[1][i]
        for j in range(3):
            lhs[i, j] = problem[0][i, j]
    gauss(lhs, push)
    moving = max(abs(x[3]), abs(x[4]), abs(x[5])) > 1e-9
    for i in range(3):
        best, fastest = 0, np.inf
        for k in range(count):
            row, speed = i * count + k, 0.0
            for j in range(3):
                speed += K[row, j] * (x[3 + j] if moving else push[j, 0])
            if speed < fastest:
                best, fastest = k, speed
            included[row] = not moving and k % max(1, count // 4) == 0
        for k in (best - 1, best, best + 1):
            included[i * count + k % count] = True


@inner
def _add_violated(scene, problem, z, y, included):  # type: ignore[no-untyped-def]
    """Include the direction that each support of state y violates most, f = D_k v_i + sigma_i < 0; -> whether there is none."""
    K, count = problem[3], len(scene.directions)
    done = True
    for i in range(3):
        worst, least = -1, -1e-13
        for k in range(count):
            row = i * count + k
            if not included[row]:
                slack = z[3 * count + i]
                for j in range(3):
                    slack += K[row, j] * y[3 + j]
                if slack < least:
                    worst, least = row, slack
        if worst >= 0:
            included[worst], done = True, False
    return done


@inner
def _solve(scene, x, problem, active, z, y):  # type: ignore[no-untyped-def]
    """The step's problem, into `active`, z and y; -> status.

    Of a cone's many edges few ever carry force. So the problem is solved for few of them, and those that its solution violates
    are added until there are none: then it is the solution of the whole problem, with zero force along the others.
    """
    m = len(z)
    included = np.empty(m, np.bool_)
    _first_pairs(scene, x, problem, included)
    while True:
        chosen = places(included)
        mobile, M, q = _eliminate(problem, chosen)
        for i in range(len(q)):
            if not np.isfinite(q[i]):
                return _DIVERGED
        basic, part = np.empty(len(chosen), np.bool_), np.empty(len(chosen))
        if not pivot(M, q, basic, part):
            return _UNSOLVED
        _move(scene, x, mobile, part, y)
        for i in range(m):
            active[i], z[i] = False, 0.0
        for i in range(len(chosen)):
            active[chosen[i]], z[chosen[i]] = basic[i], part[i]
        if scene.kind == PARTICLE or _add_violated(scene, problem, z, y, included):
            return _OK


@inner
def _step(scene, x, u, p, push, problem, active, z, y):  # type: ignore[no-untyped-def]
    """One step of one body after a `push` along `DIRECTION`, into y, with its basic pairs and z; -> status."""
    if not _assemble(scene, x, u, p, problem):
        return _DIVERGED
    A, b = problem[0], problem[1]
    for i in range(scene.nv):
        for j in range(scene.nv):
            b[i] += A[i, j] * push * DIRECTION[j]
    status = _solve(scene, x, problem, active, z, y)
    for i in range(scene.nv):
        if not abs(y[scene.nv + i]) < SPEED_LIMIT:
            return _DIVERGED
    return status


@inner
def _gather(scene, body, x, u, p, xb, ub, pb):  # type: ignore[no-untyped-def]
    """The body's part of a row's state, control and constants."""
    for i in range(len(xb)):
        xb[i] = x[body * len(xb) + i]
    for i in range(len(ub)):
        ub[i] = u[body * len(ub) + i]
    for k in range(len(pb)):
        pb[k] = p[scene.place[body, k]]


@kernel
def forward(scene, state, controls, constants, substeps, states, status):  # type: ignore[no-untyped-def]
    """See `NumbaEngine`."""
    width, horizon = 2 * scene.nv, controls.shape[1]
    problem = _buffers(scene, state)
    m = len(problem[5])
    active, z = np.zeros(m, np.bool_), np.zeros(m)
    xb, ub, pb, yb = np.zeros(width), np.zeros(scene.nu), np.zeros(scene.place.shape[1]), np.zeros(width)
    for row in range(len(state)):
        for i in range(state.shape[1]):
            states[row, 0, i] = state[row, i]
        for t in range(horizon):
            before, x, u = states[row, t], states[row, t + 1], controls[row, t]
            for body in range(scene.bodies):
                _gather(scene, body, before, u, constants[row], xb, ub, pb)
                for _ in range(substeps):
                    if status[row] == _OK:
                        status[row] = _step(scene, xb, ub, pb, 0.0, problem, active, z, yb)
                    if status[row] == _OK:
                        for i in range(width):
                            xb[i] = yb[i]
                for i in range(width):
                    x[body * width + i] = xb[i]
            if status[row] != _OK:
                for i in range(state.shape[1]):
                    x[i] = before[i]


@kernel
def contact_forces(scene, state, control, constants, forces):  # type: ignore[no-untyped-def]
    """Impulses over mass and slack speeds of one physics step, (B, bodies m), NaN where it fails."""
    problem = _buffers(scene, state)
    m = len(problem[5])
    active, z = np.zeros(m, np.bool_), np.zeros(m)
    xb, ub, pb, yb = np.zeros(2 * scene.nv), np.zeros(scene.nu), np.zeros(scene.place.shape[1]), np.zeros(2 * scene.nv)
    for row in range(len(state)):
        for body in range(scene.bodies):
            _gather(scene, body, state[row], control[row], constants[row], xb, ub, pb)
            failed = _step(scene, xb, ub, pb, 0.0, problem, active, z, yb) != _OK
            for i in range(m):
                forces[row, body * m + i] = np.nan if failed else z[i]


# --- Derivatives ------------------------------------------------------------------------------------------------------


@inner
def _held_step(scene, x, u, p, problem, chosen, y):  # type: ignore[no-untyped-def]
    """The step with the basic pairs held, z_B = -M_BB^-1 q_B, for complex numbers."""
    _assemble(scene, x, u, p, problem)
    mobile, M, q = _eliminate(problem, chosen)
    rhs, z = np.empty((len(q), 1), q.dtype), np.empty(len(q), q.dtype)
    for i in range(len(q)):
        rhs[i, 0] = -q[i]
    gauss(M, rhs)
    for i in range(len(q)):
        z[i] = rhs[i, 0]
    _move(scene, x, mobile, z, y)


@inner
def _body_jacobian(scene, xb, ub, pb, real, compound, active, z, y, jacobian):  # type: ignore[no-untyped-def]
    """d(next state) / d(state, control, constants) of one body and physics step, and the state in y; -> whether it exists."""
    if _step(scene, xb, ub, pb, PUSH, real, active, z, y) != _OK:
        return False
    first, second = len(xb), len(xb) + len(ub)
    xc, uc, pc = np.empty(first, np.complex128), np.empty(len(ub), np.complex128), np.empty(len(pb), np.complex128)
    yc, chosen = np.empty(first, np.complex128), places(active)
    for j in range(jacobian.shape[1]):
        for i in range(first):
            xc[i] = complex(xb[i], COMPLEX_STEP if i == j else 0.0)
        for i in range(len(ub)):
            uc[i] = complex(ub[i], COMPLEX_STEP if first + i == j else 0.0)
        for i in range(len(pb)):
            pc[i] = complex(pb[i], COMPLEX_STEP if second + i == j else 0.0)
        _held_step(scene, xc, uc, pc, compound, chosen, yc)
        for i in range(first):
            jacobian[i, j], y[i] = yc[i].imag / COMPLEX_STEP, yc[i].real
    return True


@inner
def _chain(one, total, width):  # type: ignore[no-untyped-def]
    """total <- d(step) / d(state) total + d(step) / d(control, constants): the chain rule over one more step, in place."""
    for j in range(total.shape[1]):
        column = np.empty(width)
        for i in range(width):
            column[i] = one[i, j] if j >= width else 0.0
            for k in range(width):
                column[i] += one[i, k] * total[k, j]
        for i in range(width):
            total[i, j] = column[i]


@kernel
def derivative(scene, state, control, constants, substeps, A, B, C):  # type: ignore[no-untyped-def]
    """See `NumbaEngine`; the chain rule over substeps, body by body, which do not move each other."""
    width, nu = 2 * scene.nv, scene.nu
    real, compound = _buffers(scene, state), _buffers(scene, np.empty(0, np.complex128))
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
            for j in range(constants.shape[1]):
                C[row, i, j] = 0.0
        for body in range(scene.bodies):
            _gather(scene, body, state[row], control[row], constants[row], xb, ub, pb)
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
