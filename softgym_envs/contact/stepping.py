"""Numba kernels of `dynamics`, where the equations are: one body's problem, its solution and derivative, batches of rows.

In here z are impulses over the body's mass (then slack speeds sigma), so that all pairs are in m/s.
Legend: B batch, nv velocities of a body, m pairs of a body, d friction directions.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from ..core.simulator import Array, Status
from .lcp import gauss, pivot

PARTICLE, BLOCK = 0, 1
SPEED_LIMIT = 1e3
"""Largest velocity [m/s, rad/s] before a row counts as diverged."""
SHORTEST_STRING = 1e-3
"""[m] A block that is nearer to the pulley has no direction of pull: the row counts as diverged."""
PUSH = 1e-8
"""Velocity [m/s, rad/s] whose addition selects the piece that is differentiated."""
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


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _buffers(scene, like):  # type: ignore[no-untyped-def]
    """Arrays A (nv, nv), b (nv), W (nv, m), K (m, nv), C (m, m), d (m), of the number type of `like`."""
    n = scene.nv
    m = 4 if scene.kind == PARTICLE else 3 * len(scene.directions) + 3
    kind = like.dtype
    return (
        np.zeros((n, n), kind), np.zeros(n, kind), np.zeros((n, m), kind),
        np.zeros((m, n), kind), np.zeros((m, m), kind), np.zeros(m, kind),
    )  # fmt: skip


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _assemble(scene, x, u, p, problem):  # type: ignore[no-untyped-def]
    """Fill A, b, W, K, C, d for a body's state, control and constants; -> whether there is such a problem."""
    if scene.kind == PARTICLE:
        _particle(scene.dt, x, u, p, problem)
        return True
    return _block(scene, x, u, p, problem)


@numba.njit(cache=True, nogil=True, error_model="numpy")
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


@numba.njit(cache=True, nogil=True, error_model="numpy")
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
    A[:, :] = 0.0
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


@numba.njit(cache=True, nogil=True, error_model="numpy")
def pull(points, x, y, theta):  # type: ignore[no-untyped-def]
    """Generalised direction of the string, w = J_a' u with u from the attachment to the pulley; and its length [m]."""
    c, s = np.cos(theta), np.sin(theta)
    ax, ay = c * points[0, 0] - s * points[0, 1], s * points[0, 0] + c * points[0, 1]
    dx, dy = points[1, 0] - x - ax, points[1, 1] - y - ay
    length = np.sqrt(dx * dx + dy * dy)
    ux, uy = dx / length, dy / length
    return ux, uy, ax * uy - ay * ux, length.real


# --- One step of one body ---------------------------------------------------------------------------------------------


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _eliminate(problem, chosen):  # type: ignore[no-untyped-def]
    """For some pairs (k,): A^-1 [W b], (nv, k + 1), and M = K A^-1 W + C, q = K A^-1 b + d."""
    A, b, W, K, C, d = problem
    n, k = len(b), len(chosen)
    mobile = np.empty((n, k + 1), A.dtype)
    for i in range(n):
        mobile[i, k] = b[i]
        for j in range(k):
            mobile[i, j] = W[i, chosen[j]]
    gauss(A.copy(), mobile)
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


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _move(scene, x, mobile, z, y):  # type: ignore[no-untyped-def]
    """nu+ = A^-1 (b + W z), q+ = q + h nu+, into y."""
    n, m = scene.nv, len(z)
    for i in range(n):
        y[n + i] = mobile[i, m]
        for j in range(m):
            if z[j] != 0:
                y[n + i] += mobile[i, j] * z[j]
        y[i] = x[i] + scene.dt * y[n + i]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _first_pairs(scene, x, problem, included):  # type: ignore[no-untyped-def]
    """Pairs to begin with: all; of a block the directions against its motion (at rest: its push, and four all around)."""
    if scene.kind == PARTICLE:
        included[:] = True
        return
    included[:] = False
    K, count = problem[3], len(scene.directions)
    included[3 * count :] = True
    push = np.empty((3, 1))
    push[:, 0] = problem[1]
    gauss(problem[0].copy(), push)
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


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _add_violated(scene, problem, z, velocity, included):  # type: ignore[no-untyped-def]
    """Include the direction that each support violates most, f = D_k v_i + sigma_i < 0; -> whether there is none."""
    K, count = problem[3], len(scene.directions)
    done = True
    for i in range(3):
        worst, least = -1, -1e-13
        for k in range(count):
            row = i * count + k
            if not included[row]:
                slack = z[3 * count + i]
                for j in range(3):
                    slack += K[row, j] * velocity[j]
                if slack < least:
                    worst, least = row, slack
        if worst >= 0:
            included[worst], done = True, False
    return done


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _solve(scene, x, problem, active, z, y):  # type: ignore[no-untyped-def]
    """The step's problem, into `active`, z and y; -> status.

    Of a cone's many edges few ever carry force. So the problem is solved for few of them, and those that its solution violates
    are added until there are none: then it is the solution of the whole problem, with zero force along the others.
    """
    m = len(z)
    included = np.empty(m, np.bool_)
    _first_pairs(scene, x, problem, included)
    while True:
        chosen = np.nonzero(included)[0]
        mobile, M, q = _eliminate(problem, chosen)
        for i in range(len(q)):
            if not np.isfinite(q[i]):
                return _DIVERGED
        basic, part = np.zeros(len(chosen), np.bool_), np.zeros(len(chosen))
        if not pivot(M, q, basic, part):
            return _UNSOLVED
        _move(scene, x, mobile, part, y)
        active[:], z[:] = False, 0.0
        for i in range(len(chosen)):
            active[chosen[i]], z[chosen[i]] = basic[i], part[i]
        if scene.kind == PARTICLE or _add_violated(scene, problem, z, y[scene.nv :], included):
            return _OK


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _step(scene, x, u, p, problem, active, z, y):  # type: ignore[no-untyped-def]
    """One step of one body, into y, with its basic pairs and z; -> status."""
    if not _assemble(scene, x, u, p, problem):
        return _DIVERGED
    status = _solve(scene, x, problem, active, z, y)
    for i in range(scene.nv):
        if not abs(y[scene.nv + i]) < SPEED_LIMIT:
            return _DIVERGED
    return status


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _gather(scene, body, x, u, p, xb, ub, pb):  # type: ignore[no-untyped-def]
    """The body's part of a row's state, control and constants."""
    width = 2 * scene.nv
    xb[:] = x[body * width : (body + 1) * width]
    ub[:] = u[body * scene.nu : (body + 1) * scene.nu]
    for k in range(scene.place.shape[1]):
        pb[k] = p[scene.place[body, k]]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def forward(scene, state, controls, constants, substeps, states, status):  # type: ignore[no-untyped-def]
    """See `NumbaEngine`."""
    width, horizon = 2 * scene.nv, controls.shape[1]
    problem = _buffers(scene, state)
    m = len(problem[5])
    active, z = np.zeros(m, np.bool_), np.zeros(m)
    xb, ub, pb, yb = np.zeros(width), np.zeros(scene.nu), np.zeros(scene.place.shape[1]), np.zeros(width)
    for row in range(len(state)):
        states[row, 0] = state[row]
        for t in range(horizon):
            x = states[row, t + 1]
            x[:] = states[row, t]
            for body in range(scene.bodies):
                for _ in range(substeps):
                    if status[row] == _OK:
                        _gather(scene, body, x, controls[row, t], constants[row], xb, ub, pb)
                        status[row] = _step(scene, xb, ub, pb, problem, active, z, yb)
                        if status[row] == _OK:
                            x[body * width : (body + 1) * width] = yb
            if status[row] != _OK:
                x[:] = states[row, t]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def contact_forces(scene, state, control, constants, forces):  # type: ignore[no-untyped-def]
    """Impulses over mass and slack speeds of one physics step, (B, bodies m), NaN where it fails."""
    problem = _buffers(scene, state)
    m = len(problem[5])
    active, z = np.zeros(m, np.bool_), np.zeros(m)
    xb, ub, pb, yb = np.zeros(2 * scene.nv), np.zeros(scene.nu), np.zeros(scene.place.shape[1]), np.zeros(2 * scene.nv)
    for row in range(len(state)):
        for body in range(scene.bodies):
            _gather(scene, body, state[row], control[row], constants[row], xb, ub, pb)
            failed = _step(scene, xb, ub, pb, problem, active, z, yb) != _OK
            forces[row, body * m : (body + 1) * m] = np.nan if failed else 0.0
            forces[row, body * m : (body + 1) * m] += z


# --- Derivatives ------------------------------------------------------------------------------------------------------


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _select(scene, x, u, p, problem, active, z, y):  # type: ignore[no-untyped-def]
    """The basic pairs of the piece to differentiate: those of the step after a tiny fixed push. -> whether it is solved."""
    if not _assemble(scene, x, u, p, problem):
        return False
    A, b = problem[0], problem[1]
    push = np.array([1.0, -0.7, 17.0])  # rad/s count as speeds at some centimetres
    for i in range(scene.nv):
        for j in range(scene.nv):
            b[i] += A[i, j] * PUSH * push[j]
    return _solve(scene, x, problem, active, z, y) == _OK


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _held_step(scene, x, u, p, problem, chosen, y):  # type: ignore[no-untyped-def]
    """The step with the basic pairs held, z_B = -M_BB^-1 q_B, for complex numbers."""
    _assemble(scene, x, u, p, problem)
    mobile, M, q = _eliminate(problem, chosen)
    z = -q.reshape((len(q), 1))
    gauss(M, z)
    _move(scene, x, mobile, z[:, 0], y)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _body_jacobian(scene, xb, ub, pb, real, compound, active, z, jacobian):  # type: ignore[no-untyped-def]
    """d(next state) / d(state, control, constants) of one body and one physics step; -> whether it exists."""
    if not _select(scene, xb, ub, pb, real, active, z, np.empty(len(xb))):
        return False
    xc, uc, pc = xb.astype(np.complex128), ub.astype(np.complex128), pb.astype(np.complex128)
    yc, chosen = np.zeros(len(xb), np.complex128), np.nonzero(active)[0]
    first, second = len(xb), len(xb) + len(ub)
    for j in range(jacobian.shape[1]):
        if j < first:
            xc[j] += COMPLEX_STEP * 1j
        elif j < second:
            uc[j - first] += COMPLEX_STEP * 1j
        else:
            pc[j - second] += COMPLEX_STEP * 1j
        _held_step(scene, xc, uc, pc, compound, chosen, yc)
        for i in range(len(yc)):
            jacobian[i, j] = yc[i].imag / COMPLEX_STEP
        if j < first:
            xc[j] = xb[j]
        elif j < second:
            uc[j - first] = ub[j - first]
        else:
            pc[j - second] = pb[j - second]
    return True


@numba.njit(cache=True, nogil=True, error_model="numpy")
def derivative(scene, state, control, constants, substeps, A, B, C):  # type: ignore[no-untyped-def]
    """See `NumbaEngine`; the chain rule over substeps, body by body."""
    width, nu = 2 * scene.nv, scene.nu
    real, compound = _buffers(scene, state), _buffers(scene, np.zeros(0, np.complex128))
    m = len(real[5])
    active, z = np.zeros(m, np.bool_), np.zeros(m)
    xb, ub, pb, yb = np.zeros(width), np.zeros(nu), np.zeros(scene.place.shape[1]), np.zeros(width)
    columns = width + nu + len(pb)
    one, total = np.zeros((width, columns)), np.zeros((width, columns))
    for row in range(len(state)):
        A[row], B[row], C[row] = 0.0, 0.0, 0.0
        for body in range(scene.bodies):
            _gather(scene, body, state[row], control[row], constants[row], xb, ub, pb)
            total[:] = 0.0
            for i in range(width):
                total[i, i] = 1.0
            good = True
            for _ in range(substeps):
                good = good and _body_jacobian(scene, xb, ub, pb, real, compound, active, z, one)
                good = good and _step(scene, xb, ub, pb, real, active, z, yb) == _OK
                if good:
                    moved = np.dot(np.ascontiguousarray(one[:, :width]), total)
                    moved[:, width:] += one[:, width:]
                    total[:] = moved
                    xb[:] = yb
            if not good:
                total[:] = np.nan
            rows = slice(body * width, (body + 1) * width)
            A[row, rows, rows] = total[:, :width]
            B[row, rows, body * nu : (body + 1) * nu] = total[:, width : width + nu]
            for k in range(len(pb)):
                C[row, rows, scene.place[body, k]] = total[:, width + nu + k]
