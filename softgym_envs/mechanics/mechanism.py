"""A tree that moves: checked arguments around the kernels. Systems build their simulators on it.

Parameters are an array (P,) or (B, P) in the order of `parameter_names`, as `Parameters.to_matrix` gives them. Feedback, where
wanted, is u = controls_t - gains_t x, with gains (nu, nx), or (T, nu, nx), or None.
Legend: B batch, T control steps, K substeps, n coordinates, m constraint rows, nu controls, P parameters; x = (q, p), nx = 2 n.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import ShapeError, StructureError
from ..core.simulator import Array, IntArray, Linearization, Status, check_array, check_number
from ..engines.numba.engine import NumbaEngine, spread
from .derivatives import adjoint, linearization, sensitivities
from .integrator import forward, simulate
from .queries import constraint_values, derivatives, frame_places, lagrangian, link_origins, link_poses, point_slopes
from .statics import find_rest
from .structure import Ride, TreeArrays, compile_tree, place_frame
from .tree import Tree

REST_WORK = 10
"""Time to find a rest, in physics steps."""


class Slopes(NamedTuple):
    """First and second derivatives of the Lagrangian L(q, v)."""

    q: Array
    """(B, n)"""
    v: Array
    """(B, n) momentum."""
    qq: Array
    """(B, n, n)"""
    qv: Array
    """(B, n, n): row q_i, column v_j."""
    vv: Array
    """(B, n, n) mass matrix."""


@dataclass(frozen=True, eq=False)
class Motion:
    """A simulated motion, and all that its derivatives need."""

    path: Array
    """(B, T K + 1, nx) after every physics step."""
    multipliers: Array
    """(B, T K, m) impulses of the constraints [N s, N m s]."""
    applied: Array
    """(B, T, nu) controls with feedback."""
    status: IntArray
    """(B,)"""
    gains: Array
    """(0, 1 or T, nu, nx)"""
    parameter_values: Array
    """(B, P)"""
    substeps: int

    @property
    def states(self) -> Array:
        """(B, T + 1, nx) at control steps."""
        return self.path[:, :: self.substeps]


class MotionGradient(NamedTuple):
    """Derivatives of a cost J(x_0 .. x_T)."""

    parameter_values: Array
    """(B, P)"""
    state: Array
    """(B, nx) by x_0."""
    controls: Array
    """(B, T, nu)"""


class Rest(NamedTuple):
    """Configurations where all forces balance."""

    q: Array
    """(B, n)"""
    multipliers: Array
    """(B, m) forces of the constraints [N, N m]."""
    needed: Array
    """(B, n) forces that hold the held coordinates [N m, N]."""
    status: IntArray
    """(B,)"""


@dataclass(frozen=True, eq=False)
class Mechanism:
    """See the module docstring.

    >>> from softgym_envs.mechanics.tree import Body, Joint
    >>> rod = Body("rod", mass=1.0, com=(0.0, 0.0, -1.0))
    >>> hinge = Joint("hinge", "revolute", "world", "rod", axis=(0.0, 1.0, 0.0))
    >>> pendulum = Mechanism(Tree("pendulum", (rod,), (hinge,)), dt=0.01)
    >>> motion = pendulum.simulate([[0.1, 0.0]], np.zeros((1, 100, 0)))
    >>> bool(abs(motion.states[0, -1, 0] - 0.1 * np.cos(np.sqrt(9.81))) < 1e-3), motion.status.tolist()
    (True, [0])

    Raises:
        StructureError: A coordinate that moves no mass.
        OptionError: dt or force_split is not allowed.
    """

    tree: Tree
    dt: float
    """Physics step [s]."""
    parameter_names: tuple[str, ...] = ()
    """Names of the P parameters."""
    force_split: str = "left"
    """See `structure.compile_tree`."""

    def __post_init__(self) -> None:
        ones = np.ones((1, len(self.parameter_names)))
        mass = self.slopes(np.full((1, self.n), 0.3), np.zeros((1, self.n)), ones).vv[0]
        if not np.isfinite(mass).all():
            raise StructureError(f"tree {self.tree.name!r}: masses and lengths are too large or too small to compute with")
        for i, name in enumerate(self.tree.coordinates):
            if not mass[i, i] > 0:
                raise StructureError(f"joint {name!r} moves no mass; give a body beyond it mass, or the joint an armature")
        size = np.sqrt(np.diag(mass))
        scaled = mass / size[:, None] / size
        if not np.isfinite(scaled).all() or np.linalg.cond(scaled) > 1e12:
            raise StructureError(f"tree {self.tree.name!r}: some joints together move no mass; give their bodies inertia")

    @cached_property
    def structure(self) -> TreeArrays:
        """Arrays that the kernels read."""
        return compile_tree(self.tree, self.parameter_names, self.dt, force_split=self.force_split)

    @cached_property
    def n(self) -> int:
        """Number of coordinates."""
        return len(self.tree.coordinates)

    @property
    def nx(self) -> int:
        """Length of a state (q, p)."""
        return 2 * self.n

    @property
    def nu(self) -> int:
        """Number of controls."""
        return len(self.tree.actuated)

    @property
    def m(self) -> int:
        """Number of constraint rows."""
        return int(self.structure.row[-1])

    @cached_property
    def engine(self) -> NumbaEngine:
        """Engine for simulators."""
        return NumbaEngine(forward, linearization, self.structure, self.nx, self.nu)

    # --- Motion -------------------------------------------------------------------------------------------------------

    def simulate(
        self, state: Any, controls: Any, parameter_values: Any = (), *, substeps: int = 1, gains: Any = None
    ) -> Motion:
        """T control steps from states (B, nx) with controls (B, T, nu).

        Raises:
            ShapeError: An array has another shape, or holds NaN or infinity.
            OptionError: `substeps` is not a positive integer.
        """
        state = check_array("state", state, (None, self.nx))
        batch = len(state)
        controls = check_array("controls", controls, (batch, None, self.nu))
        check_number("substeps", substeps, low=1, whole=True)
        horizon, rows = controls.shape[1], self._rows(parameter_values, batch)
        feedback = self._gains(gains, horizon)
        path, applied = np.empty((batch, horizon * substeps + 1, self.nx)), np.empty((batch, horizon, self.nu))
        multipliers, status = np.empty((batch, horizon * substeps, self.m)), np.full(batch, Status.OK, dtype=np.int32)
        simulate(self.structure, state, controls, feedback, rows, int(substeps), path, multipliers, applied, status)
        return Motion(path, multipliers, applied, status, feedback, rows, int(substeps))

    def linearize(self, state: Any, control: Any, parameter_values: Any = (), *, substeps: int = 1) -> Linearization:
        """Exact A (B, nx, nx), B (B, nx, nu), C (B, nx, P) of one control step; NaN in a row that fails."""
        state = check_array("state", state, (None, self.nx))
        return self.engine.linearize(state, control, self._rows(parameter_values, len(state)), substeps)

    def sensitivities(self, motion: Motion, start: Any = None, directions: Any = None, pushes: Any = None) -> Array:
        """dx / dc D of a motion, (B, T + 1, nx, k); NaN in a failed row.

        Args:
            motion: From `simulate`.
            start: dx_0 / dc D, (B, nx, k); zero by default.
            directions: D (P, k), directions in which the parameters change; every one by itself by default, k = P.
            pushes: Changes of the controls, before feedback, along these directions, (T, nu, k); zero by default.
        """
        batch, horizon = motion.applied.shape[:2]
        count = len(self.parameter_names)
        ways = np.eye(count) if directions is None else check_array("directions", directions, (count, None))
        shape = (batch, self.nx, ways.shape[1])
        first = np.zeros(shape) if start is None else check_array("start", start, shape)
        moved = (horizon, self.nu, ways.shape[1])
        push = np.zeros((0, *moved[1:])) if pushes is None else check_array("pushes", pushes, moved)
        found, good = np.empty((batch, horizon + 1, *shape[1:])), motion.status == Status.OK
        sensitivities(self.structure, *self._arguments(motion), ways, push, first, found, good)
        found[~good] = np.nan
        return found

    def gradient(self, motion: Motion, slopes: Any) -> MotionGradient:
        """Gradient of a cost J(x_0 .. x_T) with partial derivatives dJ/dx_t = slopes (B, T + 1, nx), by the discrete adjoint.

        Its cost does not grow with P. NaN in a failed row.
        """
        batch, horizon = motion.applied.shape[:2]
        slopes = check_array("slopes", slopes, (batch, horizon + 1, self.nx))
        mu, nu, by_constant = (
            np.empty((batch, self.nx)),
            np.empty((batch, horizon, self.nu)),
            np.empty((batch, len(self.parameter_names))),
        )
        good = motion.status == Status.OK
        adjoint(self.structure, *self._arguments(motion), slopes, mu, nu, by_constant, good)
        for part in (mu, nu, by_constant):
            part[~good] = np.nan
        return MotionGradient(by_constant, mu, nu)

    # --- States -------------------------------------------------------------------------------------------------------

    def slopes(self, q: Any, v: Any, parameter_values: Any = ()) -> Slopes:
        """Derivatives of the Lagrangian at rows q, v (B, n)."""
        q, v, rows = self._configuration(q, v, parameter_values)
        b, n = q.shape
        found = Slopes(np.empty((b, n)), np.empty((b, n)), *(np.empty((b, n, n)) for _ in range(3)))
        derivatives(self.structure, q, v, rows, *found)
        return found

    def energies(self, q: Any, v: Any, parameter_values: Any = ()) -> Array:
        """Kinetic and potential energy of rows q, v (B, n), (B, 2) [J]."""
        return np.asarray(lagrangian(self.structure, *self._configuration(q, v, parameter_values)))

    def state(self, q: Any, v: Any, control: Any = None, parameter_values: Any = ()) -> Array:
        """States (B, nx) that move with velocity v: p = L_v + h (1/2 - a) f, the momentum L_v under the force split."""
        q, v, rows = self._configuration(q, v, parameter_values)
        force = self._force(q, v, control, rows)
        return np.hstack([q, self.slopes(q, v, rows).v + self.dt * (0.5 - self.structure.early) * force])

    def rest_state(self, q: Any, control: Any = None, parameter_values: Any = ()) -> Array:
        """States (B, nx) that stay where they are, if forces balance at q (B, n): p = h/2 L_q + (1 - a) h f."""
        q, v, rows = self._configuration(q, np.zeros_like(q, dtype=np.float64), parameter_values)
        force = self._force(q, v, control, rows)
        return np.hstack([q, self.dt * (0.5 * self.slopes(q, v, rows).q + (1.0 - self.structure.early) * force)])

    def rest(self, q: Any, control: Any = None, parameter_values: Any = (), *, held: tuple[str, ...] = ()) -> Rest:
        """Find where all forces balance, from rows q (B, n) with the coordinates `held` fixed."""
        q, v, rows = self._configuration(q, np.zeros_like(q, dtype=np.float64), parameter_values)
        for name in held:
            if name not in self.tree.coordinates:
                raise StructureError(f"held coordinate {name!r} is unknown; there are {', '.join(self.tree.coordinates)}")
        mask, q = np.array([name in held for name in self.tree.coordinates]), q.copy()
        lam, needed, status = np.zeros((len(q), self.m)), np.zeros_like(q), np.zeros(len(q), dtype=np.int32)
        force = self._force(q, v, control, rows)

        def run(part: slice) -> None:
            own = (rows[part], q[part], lam[part], needed[part], status[part])
            find_rest(self.structure, mask, force[part], *own)

        spread(run, len(q), REST_WORK)
        return Rest(q, lam, needed, status)

    def impulses(self, before: Any, q: Any, after: Any, control: Any, parameter_values: Any = ()) -> Array:
        """Impulses lambda (B, m) of the constraints in the step from q to `after`, which one from `before` to q preceded.

        Rows (B, n); all forces act at the beginning of a step (force_split "left"). Least squares of r = 0, see `integrator`.
        """
        h, (_, G) = self.dt, self.gaps(q, parameter_values)
        first = self.slopes(0.5 * (before + q), (q - before) / h, parameter_values)
        middle, v, rows = self._configuration(0.5 * (q + after), (after - q) / h, parameter_values)
        second = self.slopes(middle, v, rows)
        push = 0.5 * h * (first.q + second.q) + first.v - second.v + h * self._force(middle, v, control, rows)
        return np.array([np.linalg.lstsq(g.T, r, rcond=None)[0] for g, r in zip(G, push, strict=True)])

    def gaps(self, q: Any, parameter_values: Any = ()) -> tuple[Array, Array]:
        """Constraints h (B, m) and their Jacobian (B, m, n) at rows q (B, n)."""
        q, _, rows = self._configuration(q, np.zeros_like(q, dtype=np.float64), parameter_values)
        h, G = np.empty((len(q), self.m)), np.empty((len(q), self.m, self.n))
        constraint_values(self.structure, q, rows, h, G)
        return h, G

    def pose(self, frame: str, q: Any) -> tuple[Array, Array]:
        """Rotation (B, 3, 3) and origin (B, 3) [m] of a frame at rows q (B, n).

        Raises:
            StructureError: There is no such frame.
        """
        q, ride = check_array("q", q, (None, self.n)), self._rides[self.tree.frame(frame).name]
        if ride.joint < 0:
            return np.tile(ride.rotation, (len(q), 1, 1)), np.tile(ride.origin, (len(q), 1))
        turns, origins = link_poses(self.structure, q)
        turn = turns[:, ride.joint]
        return turn @ ride.rotation, origins[:, ride.joint] + turn @ ride.origin

    def place(self, frame: str, q: Any) -> Array:
        """Origin (B, 3) [m] of a frame that moves with a link, at rows q (B, n): see `pose`, in a third of its time."""
        ride = self._rides[frame]
        return np.asarray(frame_places(self.structure, check_array("q", q, (None, self.n)), ride.joint, ride.origin))

    def origins(self, q: Any) -> Array:
        """Origins of the links at rows q (B, n), in the order of the coordinates: (B, n, 3) [m]."""
        return np.asarray(link_origins(self.structure, check_array("q", q, (None, self.n))))

    def point_slopes(self, frame: str, q: Any) -> Array:
        """Jacobian (B, 3, n) of a frame's origin at rows q (B, n)."""
        q, ride = check_array("q", q, (None, self.n)), self._rides[self.tree.frame(frame).name]
        return np.asarray(point_slopes(self.structure, q, ride.joint, ride.origin))

    @cached_property
    def _rides(self) -> dict[str, Ride]:
        """Placements of the frames on the links."""
        return {frame.name: place_frame(self.tree, frame) for frame in self.tree.frames}

    # --- Checks -------------------------------------------------------------------------------------------------------

    def _arguments(self, motion: Motion) -> tuple[Any, ...]:
        return motion.path, motion.multipliers, motion.applied, motion.gains, motion.parameter_values, motion.substeps

    def _rows(self, parameter_values: Any, batch: int) -> Array:
        """Parameters of every row, (B, P)."""
        array = np.atleast_2d(np.asarray(parameter_values, dtype=np.float64))
        if len(array) == 1:
            array = np.repeat(array, batch, axis=0)
        return check_array("parameter_values", array, (batch, len(self.parameter_names)))

    def _configuration(self, q: Any, v: Any, parameter_values: Any) -> tuple[Array, Array, Array]:
        q = check_array("q", q, (None, self.n))
        return q, check_array("v", v, q.shape), self._rows(parameter_values, len(q))

    def _gains(self, gains: Any, horizon: int) -> Array:
        """Gains, (0, 1 or T, nu, nx)."""
        if gains is None:
            return np.zeros((0, self.nu, self.nx))
        array = np.asarray(gains, dtype=np.float64)
        array = check_array("gains", array[None] if array.ndim == 2 else array, (None, self.nu, self.nx))
        if len(array) not in (1, horizon):
            raise ShapeError(f"gains are given for {len(array)} control steps, expected 1 or {horizon}")
        return array

    def _force(self, q: Array, v: Array, control: Any, rows: Array) -> Array:
        """B u + offset - d v - dry friction, (B, n)."""
        s, n = self.structure, self.n
        values = np.repeat(s.base[None], len(rows), axis=0)
        values[:, s.place >= 0] = rows[:, s.place[s.place >= 0]]
        total = values[:, 4 * n : 5 * n] - values[:, 2 * n : 3 * n] * v - values[:, -n:] * np.tanh(v / s.slip)
        if control is not None:
            total[:, s.actuated] += check_array("control", control, (len(q), self.nu))
        return np.asarray(total)
