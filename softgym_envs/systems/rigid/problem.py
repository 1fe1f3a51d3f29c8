"""The complementarity problem of one body and step, stated in `dynamics`: data that kernels share, and functions to fill it.

Here z are impulses over the body's mass (then slack speeds sigma), so that all pairs are in m/s. Arrays are filled by loops
and not by slices: every slice assignment costs Numba a fifth of a second when it compiles, and all of them half a minute.
Legend: B batch, nv velocities of a body, m pairs of a body, d friction directions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.simulator import Array
from ...engines.numba.engine import inner, kernel
from .lcp import gauss

PARTICLE, BLOCK = 0, 1
SHORTEST_STRING = 1e-3
"""[m] A block that is nearer to the pulley has no direction of pull: the row counts as diverged."""


class BodiesData(NamedTuple):
    """Data that all rows share; bodies of one kind, which do not touch each other."""

    kind: int
    bodies: int
    dt: float
    nv: int
    """Velocities of a body."""
    nu: int
    """Controls of a body."""
    place: NDArray[np.int64]
    """(bodies, parameters of a body): their indices in the vector of parameters."""
    points: Array
    """(4, 2) attachment, pulley, handle; (1 with a string, 0 without; 0)."""
    supports: Array
    """(3, 2)"""
    shares: Array
    """(3,)"""
    directions: Array
    """(d, 2)"""


@inner
def buffers(scene, like):  # type: ignore[no-untyped-def]
    """Arrays A (nv, nv), b (nv), W (nv, m), K (m, nv), C, d (m), arms (3, 2), of the number type of `like`.

    C is (4, 4) for a particle; for a block it is empty, as its entries are constant, see `_between`.
    """
    n, kind, few = scene.nv, like.dtype, scene.kind == PARTICLE
    m = 4 if few else 3 * len(scene.directions) + 3
    return (
        np.zeros((n, n), kind), np.zeros(n, kind), np.zeros((n, m), kind), np.zeros((m, n), kind),
        np.zeros((4, 4) if few else (0, 0), kind), np.zeros(m, kind), np.zeros((0 if few else 3, 2), kind),
    )  # fmt: skip


@inner
def assemble(scene, x, u, p, problem):  # type: ignore[no-untyped-def]
    """Fill all but a block's W and K (see `edge`) for its state, control and parameters; -> whether there is a problem."""
    if scene.kind == PARTICLE:
        _particle(scene.dt, x, u, p, problem)
        return True
    return _block(scene, x, u, p, problem)


@inner
def edge(scene, p, problem, row):  # type: ignore[no-untyped-def]
    """Fill W and K for one pair of an assembled block: only pairs of friction along a direction have entries."""
    _, _, W, K, _, _, arms = problem
    count = len(scene.directions)
    if row < 3 * count:
        i, k = row // count, row % count
        K[row, 0], K[row, 1], K[row, 2] = along(scene, arms, i, k)
        for j in range(3):
            W[j, row] = p[1] * K[row, j]


@inner
def along(scene, arms, i, k):  # type: ignore[no-untyped-def]
    """Generalised direction k at support i of a block, D_k' J_i."""
    dx, dy = scene.directions[k, 0], scene.directions[k, 1]
    return dx, dy, arms[i, 0] * dy - arms[i, 1] * dx


@inner
def _particle(h, x, u, p, problem):  # type: ignore[no-untyped-def]
    """[Berard2008] slide 25, with impulses over mass: z = (normal, friction to the left, to the right, sigma).

    In addition to the slide: drag -c v+, and ground that is not level; x is along it.
    """
    A, b, W, K, C, d, _ = problem
    friction, mass, gravity, drag, tilt = p[0], p[1], p[2], p[3], p[4]
    A[0, 0] = A[1, 1] = 1.0 + h * drag / mass
    b[0] = x[2] + h * u[0] / mass + h * gravity * np.sin(tilt)
    b[1] = x[3] - h * gravity * np.cos(tilt)
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
       M (\nu^+ - \nu) + m_w w(q) (w(q)^T \nu^+ - s) = h (\sum_i J_i^T D^T \lambda_i + m_w g w(q) + B u + f)

    f: drag -c v+ at the centre of mass, and weight along a table that is not level.
    """
    A, b, _, _, _, d, arms = problem
    friction, mass, inertia, weight, gravity, drag = p[0], p[1], p[2], p[3], p[4], p[5]
    h = scene.dt
    level_x, level_y = np.cos(p[6]), np.cos(p[7])
    fall_x, fall_y = np.sin(p[6]), level_x * np.sin(p[7])
    c, s = np.cos(x[2]), np.sin(x[2])
    hx, hy = scene.points[2, 0], scene.points[2, 1]
    fx, fy = c * u[0] - s * u[1], s * u[0] + c * u[1]
    for i in range(3):
        for j in range(3):
            A[i, j] = 0.0
    A[0, 0] = A[1, 1] = mass + h * drag
    A[2, 2] = inertia
    b[0] = mass * x[3] + h * (fx + mass * gravity * fall_x)
    b[1] = mass * x[4] + h * (fy + mass * gravity * fall_y)
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
        arms[i, 0] = c * scene.supports[i, 0] - s * scene.supports[i, 1]
        arms[i, 1] = s * scene.supports[i, 0] + c * scene.supports[i, 1]
        d[3 * count + i] = h * friction * gravity * level_x * level_y * scene.shares[i]
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


@inner
def slide(scene, p, problem, chosen, velocity):  # type: ignore[no-untyped-def]
    """nu+ = A^-1 (b + W z) of a block with the largest friction along one direction at each support, into (3, 1)."""
    A, b, _, _, _, d, arms = problem
    lhs = np.empty((3, 3), A.dtype)
    for i in range(3):
        velocity[i, 0] = b[i]
        for j in range(3):
            lhs[i, j] = A[i, j]
    for j in range(3):
        friction = p[1] * d[3 * len(scene.directions) + j]
        x, y, turn = along(scene, arms, j, chosen[j])
        velocity[0, 0] += x * friction
        velocity[1, 0] += y * friction
        velocity[2, 0] += turn * friction
    gauss(lhs, velocity)


# --- Velocities eliminated, and the motion that follows ---------------------------------------------------------------


@inner
def _between(scene, C, row, column):  # type: ignore[no-untyped-def]
    """Entry of C; for a block 1 at (direction, its support's slack speed), -1 at the transposed place, else 0."""
    if scene.kind == PARTICLE:
        return C[row, column]
    count = len(scene.directions)
    if row < 3 * count and column == 3 * count + row // count:
        return C.dtype.type(1.0)
    if column < 3 * count and row == 3 * count + column // count:
        return C.dtype.type(-1.0)
    return C.dtype.type(0.0)


@inner
def eliminate(scene, problem, chosen):  # type: ignore[no-untyped-def]
    """For some pairs (k,): A^-1 [W b], (nv, k + 1), and M = K A^-1 W + C, q = K A^-1 b + d."""
    A, b, W, K, C, d, _ = problem
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
            M[i, j] = _between(scene, C, row, chosen[j])
        for v in range(n):
            factor = K[row, v]
            if factor != 0:
                q[i] += factor * mobile[v, k]
                for j in range(k):
                    M[i, j] += factor * mobile[v, j]
    return mobile, M, q


@inner
def move(scene, x, mobile, z, y):  # type: ignore[no-untyped-def]
    """nu+ = A^-1 (b + W z), q+ = q + h nu+, into y."""
    n, m = scene.nv, len(z)
    for i in range(n):
        y[n + i] = mobile[i, m]
        for j in range(m):
            if z[j] != 0:
                y[n + i] += mobile[i, j] * z[j]
        y[i] = x[i] + scene.dt * y[n + i]
