"""The quadratic program of [Jitosho2021] (arXiv 2011.01917) II-H, written out as matrices: the oracle of `simulator`.

    minimise 1/2 v' M v + q' v   subject to   low <= A v <= high

`assemble` builds it row by row from the paper's equations, with maximal coordinates and no knowledge of the chain's structure;
`OsqpSolver` solves it as published (set up once, then updated and warm-started), `solve_exactly` to rounding.
Legend: L links, nb = 2 L bodies, M obstacles; rows are 2 per pin, 2 per prismatic joint, 1 growth per link, L M contacts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError, needed
from softgym_envs.systems.vine.obstacles import Circle, Polygon, Shape, to_local

from .model import PaperModel
from .parameters import PaperParameters
from .pushes import TIE

Array = NDArray[np.float64]

UNLIMITED = 1e30


class Program(NamedTuple):
    """One step's program; contacts are the last rows."""

    mass: Array
    """Diagonal of M, (3 nb,)"""
    q: Array
    """-(M v_k + h F), (3 nb,)"""
    A: Array
    """(rows, 3 nb)"""
    low: Array
    """(rows,)"""
    high: Array
    """(rows,); equal to low for equalities"""


def assemble(model: PaperModel, state: Array, growth: float, parameters: PaperParameters, dt: float) -> Program:
    """The program of one state (nx,) [SI]."""
    q, v = model.split(state)
    equal, values = _joint_rows(model, q)
    grow, speeds = _growth_rows(model, q, v, growth / model.num_links, dt)
    touch, gaps = contact_rows(model, q)
    mass = np.tile([parameters.body_mass, parameters.body_mass, parameters.body_inertia], model.num_bodies).astype(np.float64)
    force = np.zeros_like(v)
    force[:, 2] = bending_moments(model, q, v, parameters)
    A = np.concatenate([equal, grow, touch])
    low = np.concatenate([-values / dt, speeds, -gaps / dt])
    high = np.concatenate([-values / dt, speeds, np.full(len(gaps), UNLIMITED)])
    return Program(mass, -(mass * v.ravel() + dt * force.ravel()), A, low, high)


def bending_moments(model: PaperModel, q: Array, v: Array, parameters: PaperParameters) -> Array:
    """Moments on the bodies from tau = -(k dtheta + c domega) at every pin, +tau on its distal, -tau on its proximal body."""
    near, far = np.arange(0, model.num_bodies, 2), np.arange(1, model.num_bodies - 1, 2)
    bend = q[near, 2] - np.concatenate([[model.heading], q[far, 2]])
    rate = v[near, 2] - np.concatenate([[0.0], v[far, 2]])
    tau = -(parameters.joint_stiffness * bend + parameters.joint_damping * rate)
    moments = np.zeros(model.num_bodies)
    moments[near] += tau
    moments[far] -= tau[1:]
    return moments


def _joint_rows(model: PaperModel, q: Array) -> tuple[Array, Array]:
    """dc/dq and c of eqs (2) and (3)."""
    d, bodies = model.half_length, model.num_bodies
    rows, values = np.zeros((2 * bodies, 3 * bodies)), np.zeros(2 * bodies)
    for link in range(model.num_links):
        a, p, row = 2 * link, 2 * link + 1, 4 * link
        t, n = _directions(q[a, 2])
        rows[row : row + 2, 3 * a : 3 * a + 3] = np.column_stack([np.eye(2), -d * n])
        values[row : row + 2] = q[a, :2] - d * t
        if link > 0:
            t_before, n_before = _directions(q[a - 1, 2])
            rows[row : row + 2, 3 * a - 3 : 3 * a] = -np.column_stack([np.eye(2), d * n_before])
            values[row : row + 2] -= q[a - 1, :2] + d * t_before
        delta = q[p, :2] - q[a, :2]
        for k, body in enumerate((a, p)):
            t, n = _directions(q[body, 2])
            rows[row + 2 + k, 3 * a : 3 * a + 2] = -n
            rows[row + 2 + k, 3 * p : 3 * p + 2] = n
            rows[row + 2 + k, 3 * body + 2] += -t @ delta
            values[row + 2 + k] = n @ delta
    return rows, values


def _growth_rows(model: PaperModel, q: Array, v: Array, speed: float, dt: float) -> tuple[Array, Array]:
    """g(q, v) = delta . dv / |delta| of every link, linearised as in eq. (14): (dg/dq dt + dg/dv) v+ = u + dg/dv v - g."""
    rows, values = np.zeros((model.num_links, 3 * model.num_bodies)), np.zeros(model.num_links)
    for link in range(model.num_links):
        a, p = 2 * link, 2 * link + 1
        delta, dv = q[p, :2] - q[a, :2], v[p, :2] - v[a, :2]
        length = np.linalg.norm(delta)
        e = delta / length
        g = e @ dv
        row = e + dt * (dv - g * e) / length
        rows[link, 3 * p : 3 * p + 2], rows[link, 3 * a : 3 * a + 2] = row, -row
        values[link] = speed + e @ dv - g
    return rows, values


def contact_rows(model: PaperModel, q: Array) -> tuple[Array, Array]:
    """L and Phi of every contact point and every obstacle, (L M, 3 nb) and (L M,) [m]."""
    rows, gaps = [], []
    for link in range(model.num_links):
        body = 2 * link + 1
        t, n = _directions(q[body, 2])
        point = q[body, :2] + model.half_length * t
        for obstacle, pose in zip(model.obstacles, model.poses, strict=True):
            distance, normal = _distance(obstacle.shape, point, pose)
            row = np.zeros(3 * model.num_bodies)
            row[3 * body : 3 * body + 3] = [*normal, model.half_length * normal @ n]
            rows.append(row)
            gaps.append(distance - 0.5 * model.diameter)
    return np.array(rows).reshape(-1, 3 * model.num_bodies), np.array(gaps)


def _directions(theta: float) -> tuple[Array, Array]:
    return np.array([np.cos(theta), np.sin(theta)]), np.array([-np.sin(theta), np.cos(theta)])


def _distance(shape: Shape, point: Array, pose: Array) -> tuple[float, Array]:
    """Signed distance, and the normal of the authors' program: radial for a circle, that of a face for a polygon."""
    local = to_local(point, pose)
    if isinstance(shape, Circle):
        normal = local / np.linalg.norm(local)
    else:
        assert isinstance(shape, Polygon)
        corners = np.asarray(shape.vertices)
        edges = np.roll(corners, -1, axis=0) - corners
        lengths = np.linalg.norm(edges, axis=1)
        outward = np.column_stack([edges[:, 1], -edges[:, 0]]) / lengths[:, None]
        height = ((local - corners) * outward).sum(axis=1)
        along = np.clip(((local - corners) * edges).sum(axis=1) / lengths**2, 0.0, 1.0)
        nearest = np.linalg.norm(local - corners - along[:, None] * edges, axis=1)
        normal = outward[np.argmax(height) if height.max() <= 0 else _first_smallest(nearest**2)]
    c, s = np.cos(pose[2]), np.sin(pose[2])
    return float(shape.distance(local)), np.array([c * normal[0] - s * normal[1], s * normal[0] + c * normal[1]])


def _first_smallest(values: Array) -> int:
    """Index of the smallest value; of values alike (see `geometry.TIE`) the first."""
    best = 0
    for index, value in enumerate(values):
        if value < (1.0 - TIE) * values[best]:
            best = index
    return best


def solve_exactly(program: Program) -> tuple[Array, int]:
    """v (3 nb,) and the number of contacts that push, with dense matrices and no use of the structure.

    In y = M^1/2 v, the equalities are eliminated by QR. The solution is then the point nearest to a target among half-spaces,
    found by a dual active set.

    Raises:
        DataError: The program is infeasible, or the conditions do not hold.
    """
    equal = program.low == program.high
    scale = 1.0 / np.sqrt(program.mass)  # y = M^1/2 v
    A, b = program.A[equal] * scale, program.low[equal]
    basis, triangle = np.linalg.qr(A.T, mode="complete")
    rank = len(b)
    y0 = basis[:, :rank] @ np.linalg.solve(triangle[:rank].T, b)
    free = basis[:, rank:]
    target = free.T @ (-program.q * scale - y0)
    G, g = (program.A[~equal] * scale) @ free, program.low[~equal] - (program.A[~equal] * scale) @ y0
    z, count = _nearest_point(G, g, target)
    return scale * (y0 + free @ z), count


def _nearest_point(G: Array, g: Array, target: Array) -> tuple[Array, int]:
    """min |z - target| with G z >= g: the worst violation joins the active set, the most negative multiplier leaves it."""
    need = g - G @ target
    active: list[int] = []
    for _ in range(100 + 10 * len(g)):
        multipliers = np.zeros(len(g))
        if active:
            Ga = G[active]
            multipliers[active] = scipy.linalg.solve(Ga @ Ga.T, need[active], assume_a="pos")
            worst = active[int(np.argmin(multipliers[active]))]
            if multipliers[worst] < -1e-12 * np.abs(multipliers).max():
                active.remove(worst)
                continue
        z = target + G.T @ multipliers
        violation = g - G @ z
        violation[active] = -np.inf
        if not len(g) or violation.max() <= 1e-10:
            return z, len(active)
        active.append(int(np.argmax(violation)))
    raise DataError("the program has no solution: the robot grows into an obstacle that it cannot slide along")


@dataclass
class OsqpSolver:
    """The program by OSQP, in the authors' units (mm): set up for the first state, then updated and warm-started.

    Its answer depends on the states solved before (by the warm start), within `eps`; it is an oracle and a benchmark.
    """

    eps: float = 1e-3
    """Absolute and relative tolerance; OSQP's default, as in the paper."""
    warm: bool = True
    """Whether to update and warm-start; else every program is set up anew, as the authors' program does."""

    def __post_init__(self) -> None:
        with needed("this solver needs osqp", "control"):
            import osqp
        self._module: Any = osqp
        self._solver: Any = None
        self._pattern: Any = None

    def load(self, program: Program) -> None:
        """Hand over the numbers of a program."""
        program = in_millimetres(program)
        if self._solver is None or not self.warm:
            self._pattern = scipy.sparse.csc_matrix(_structural(program))
            self._solver = self._module.OSQP()
            self._solver.setup(
                scipy.sparse.diags(program.mass).tocsc(),
                program.q,
                self._filled(program),
                program.low,
                program.high,
                eps_abs=self.eps,
                eps_rel=self.eps,
                adaptive_rho_interval=50,
                verbose=False,
            )
        else:
            self._solver.update(q=program.q, Ax=self._filled(program).data, l=program.low, u=program.high)

    def solve(self) -> tuple[Array, bool]:
        """v (3 nb,) [SI], and whether OSQP reports a solution."""
        result = self._solver.solve(raise_error=False)
        return np.asarray(result.x, dtype=np.float64) / _per_metre(len(result.x)), result.info.status_val == 1

    def _filled(self, program: Program) -> Any:
        filled = self._pattern.copy()
        filled.data = _entries(program.A, self._pattern)
        return filled


def _per_metre(size: int) -> Array:
    """Factors from SI to mm of velocities (size,)."""
    return np.tile([1e3, 1e3, 1.0], size // 3)


def in_millimetres(program: Program) -> Program:
    """The program with velocities and gaps in mm/s, and kg mm^2: a solver's tolerances mean what they meant to the authors."""
    factor = _per_metre(len(program.q))
    mass = program.mass * np.tile([1.0, 1.0, 1e6], len(program.q) // 3)
    bounds = [np.where(np.abs(b) < UNLIMITED, 1e3 * b, b) for b in (program.low, program.high)]
    return Program(mass, 1e6 * program.q / factor, 1e3 * program.A / factor, *bounds)


def _structural(program: Program) -> Array:
    """1 where an entry of A may be non-zero in any state: the blocks of the bodies that a row involves."""
    blocks = (program.A.reshape(len(program.A), -1, 3) != 0).any(axis=2)
    return np.repeat(blocks, 3, axis=1).astype(np.float64)


def _entries(A: Array, pattern: Any) -> Array:
    """Entries of A at the pattern's places, column by column."""
    columns = np.repeat(np.arange(A.shape[1]), np.diff(pattern.indptr))
    return np.asarray(A[pattern.indices, columns])
