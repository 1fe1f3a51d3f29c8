"""The loop as a Cosserat rod in PyElastica, on an arm in Pinocchio: a ground truth with neither our mechanics nor MuJoCo's.

Differences from the native engine, apart from rounding:

* Links are elements of a rod, which also stretch and shear (`STRETCH`, `SHEAR`). They twist by the parameters of twist if the
  model has it, or else hardly (`TWIST_HELD`). The rod's mass is in its nodes, at the joints.
* A joint resists the rotation vector between its links; natively, two angles in sequence. They agree to second order.
* Twist is damped as bending is. An element's inertia is m r^2 / 2 about all axes; natively, twice that about its own axis.
* Steps of the rod are those of PyElastica's position Verlet scheme, as many as its fastest mode needs. Each contains a
  half-implicit Euler step of the arm, by the articulated-body algorithm. The hand moves at constant speed during such a step.
* A loop that is not clamped is closed by itself. Contact with the peg follows the native law, at the same balls.

Effects of the mismatched model are those of the MuJoCo model; dry friction creeps as ours does.

A state begins with the model's. Further entries say how the rod differs from the model's polygon at these angles and speeds:
places and speeds of its nodes, rotations and rates of its elements. They are zero in the states of tasks. Speeds of the loop's
angles are differences over the control step. Legend: B rows, N nodes, M elements; see `elastica_ring`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from ...core.layout import Field
from ...core.mismatch import UNSEEN, MismatchedModel
from ...core.simulator import Array, IntArray, Status
from ...engines.threads import ForkLock
from ...mechanics.pinocchio_tree import SPEED_LIMIT, PinocchioTree, pinocchio_tree
from ...mechanics.structure import rotation
from ...mechanics.tree import Body, Joint, Tree
from .elastica_ring import Material, Motion, Path, Peg, Ring
from .links import about, first_turns, polygon_angles
from .mismatch import LADDER, flawed, with_sensor_errors
from .model import ARM, CLAMP, LoopModel

Index = NDArray[np.intp]
STRETCH, SHEAR = 4500.0, 1500.0
"""[N] EA and GA: 10 N stretch the rod by 0.2 %."""
TWIST_HELD = 500.0
"""[N m/rad] Stiffness against twist of joints whose links do not twist in the model; a closed loop turns on it."""
CALM = 1.3
"""Largest product of a rod's step and its fastest frequency; 2 is the limit of stability."""
MOST_ROWS = 64
"""Rows of a block."""
ANGLES = ("theta", "psi", "phi")
GRIPPER = "gripper"
"""Body that holds the loop."""


class Rigid(NamedTuple):
    """The model's polygon: positions of nodes, frames of elements (as directors), speeds, and rates in the links' frames."""

    x: Array
    Q: Array
    v: Array
    w: Array


@dataclass(frozen=True, eq=False)
class ElasticaLoop(MismatchedModel):
    """See the module docstring.

    >>> simulator = ElasticaLoop()
    >>> still = np.tile(simulator.model.hold, (1, 2, 1))
    >>> states, status = simulator.rollout(simulator.initial_state(), still, substeps=50)
    >>> bool(np.abs(states[0, -1, :31] - states[0, 0, :31]).max() < 3e-3), status.tolist()
    (True, [0])
    """

    system = "loop"
    ladder = LADDER
    sensed = with_sensor_errors

    model: LoopModel = field(default_factory=LoopModel)
    """Structure."""
    dt: float = 1e-3
    """Step of the arm [s], split into as many of the rod's as needed."""
    _lock: ForkLock = field(default_factory=ForkLock, init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=ForkLock())

    @cached_property
    def extra_fields(self) -> tuple[Field, ...]:  # type: ignore[override]
        """Differences of the rod from the polygon."""
        return (
            Field(f"{UNSEEN}node", len(self._nodes), ("x y z", "m"), ("vx vy vz", "m/s")),
            Field(f"{UNSEEN}link", len(self._links), ("rx ry rz", "rad"), ("wx wy wz", "rad/s")),
        )

    @property
    def extra_rest(self) -> Array:
        """None."""
        return np.zeros(6 * (len(self._nodes) + len(self._links)))

    @cached_property
    def _nodes(self) -> list[int]:
        """Nodes that neither gripper nor clamp holds."""
        J = self.model.links // 2
        return [n for n in range(2, 2 * J) if self.model.hanging or n not in (J, J + 1)]

    @cached_property
    def _links(self) -> list[int]:
        """Elements that neither gripper nor clamp holds."""
        J = self.model.links // 2
        return [e for e in range(1, 2 * J) if self.model.hanging or e != J]

    # --- parameters ---------------------------------------------------------------------------------------------------

    @cached_property
    def _arm(self) -> Tree:
        """The arm with the loop's link in its gripper, and the halves of its neighbours as points at its ends."""
        tree, link, kept = self.model.tree, 0.5 * self.model.link_length, {body.name for body in self.model.arm.bodies}
        grip = next(body for body in tree.bodies if body.name == "grip")
        ends = grip.mass * link**2
        across, along = grip.inertia[0] + ends, grip.inertia[2]
        heavy = Body("grip", 2 * grip.mass, grip.com, (across, across, along), scale=grip.scale)
        bodies = (*(body for body in tree.bodies if body.name in kept), heavy)
        joints = tuple(joint for joint in tree.joints if joint.child in kept or joint.child == "grip")
        return Tree("arm", bodies, joints, (), (), ARM, tree.gravity)

    def _values(self, row: Array) -> dict[str, float]:
        """Values of the tree's parameters, with the effects of a mismatched model."""
        constants = self.model.tree_constants(flawed(self, row)[None])[0].tolist()
        return dict(zip(self.model.parameter_names, constants, strict=True))

    def _made(self, values: dict[str, float]) -> PinocchioTree:
        """Pinocchio's arm."""
        made = pinocchio_tree(self._arm, values)
        return replace(made, friction=made.friction + np.abs(self.spread("friction", len(ARM))))

    def _material(self, rows: list[dict[str, float]]) -> Material:
        model, J = self.model, self.model.links // 2
        joints, names = {joint.name: joint for joint in model.tree.joints}, [n for n in model.tree.coordinates if n not in ARM]
        spread = dict(zip(names, np.exp(self.spread("stiffness_spread", len(names))).tolist(), strict=True))

        sides = [*(f"left_{{}}{i}" for i in range(J)), *(f"right_{{}}{i}" for i in reversed(range(J)))]

        def stiffness(values: dict[str, float], joint: Joint | None) -> float:
            if joint is None:
                return TWIST_HELD
            given = joint.stiffness
            return spread[joint.name] * (values[given] if isinstance(given, str) else given)

        return Material(
            np.array([model.mass / model.links * values["loop_scale"] for values in rows]),
            model.tube_radius,
            np.array([[[stiffness(v, joints.get(side.format(a))) for a in ANGLES] for side in sides] for v in rows]),
            np.array([[values["loop_damping"]] * len(sides) for values in rows]),
            STRETCH,
            SHEAR,
            np.array([-values["gravity_z"] for values in rows]),
        )

    def _steps(self, material: Material) -> Array:
        """Steps of the rod in one of the arm (B,), from its fastest modes: shear with bending, twist, and stretch."""
        across, length = 0.5 * material.mass * material.radius**2, self.model.link_length
        bending, twist = material.stiffness[:, :, :2].max(axis=(1, 2)), material.stiffness[:, :, 2].max(axis=1)
        turning = np.maximum(SHEAR * length + 4.0 * bending, 2.0 * twist) / across
        fastest = np.sqrt(np.maximum(turning, 4.0 * STRETCH / length / material.mass))
        return np.array([ceil(self.dt * rate / CALM) for rate in fastest])

    # --- steps --------------------------------------------------------------------------------------------------------

    def _held(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        after, status = state.copy(), np.full(len(state), Status.OK, dtype=np.int32)
        own = self.model.layout.nx + len(self.extra_rest)
        values = [self._values(row) for row in parameter_values]
        steps = self._steps(self._material(values))
        with self._lock, np.errstate(all="ignore"):
            for rows in _pieces(steps):
                moved = self._moved(
                    state[rows, :own], control[rows], [values[row] for row in rows], substeps, int(steps[rows[0]])
                )
                good = np.isfinite(moved).all(axis=1) & (np.abs(moved[:, self._rates]) < SPEED_LIMIT).all(axis=1)
                after[rows[good], :own] = moved[good]
                status[rows[~good]] = Status.DIVERGED
        return after, status

    @cached_property
    def _rates(self) -> Index:
        """Columns of speeds among the state's."""
        own = self.model.layout.nx + len(self.extra_rest)
        return np.flatnonzero(np.isin(self.state_units[:own], ["m/s", "rad/s"]))

    @cached_property
    def _rings(self) -> dict[int, Ring]:
        return {}

    def _ring(self, rows: int) -> Ring:
        if rows not in self._rings:
            self._rings[rows] = Ring(rows, self.model.links, self.model.link_length, self.model.tube_radius)
        return self._rings[rows]

    def _moved(self, state: Array, control: Array, values: list[dict[str, float]], substeps: int, steps: int) -> Array:
        """States after some steps; rows that fail are not finite, or too fast."""
        count, n, arm = len(state), self.model.n, len(ARM)
        fast = np.asarray((np.abs(state[:, self._rates]) >= SPEED_LIMIT).any(axis=1))
        state = np.where(fast[:, None], self.initial_state()[0, : state.shape[1]], state)
        size = 1 << (count - 1).bit_length()  # few sizes of blocks
        padded = [*range(count), *[count - 1] * (size - count)]
        state, control, values = state[padded], control[padded], [values[row] for row in padded]
        arms = [Arm(self._made(row), self.dt) for row in values]
        clamp, ring = np.array([[row[name] for name in CLAMP] for row in values]), self._ring(size)
        bottom, turn = clamp[:, :3], np.array([rotation(pose) for pose in clamp[:, 3:]])
        q, v = state[:, :arm].copy(), state[:, n : n + arm].copy()
        pose = _of_rows(a.hand(row) for a, row in zip(arms, q, strict=True))
        rates = _of_rows(a.rates(*row) for a, row in zip(arms, zip(q, v, strict=True), strict=True))
        held = None if self.model.hanging else (bottom, turn @ about(0, np.array(-0.5 * np.pi)).swapaxes(-1, -2))
        peg = Peg(bottom, np.ascontiguousarray(turn[:, :, 2]), self._peg) if self.model.hanging else None
        ring.load(self._material(values), self._bent(state, self._polygon((*pose, *rates), state)), held, peg)
        for _ in range(substeps):
            ahead = q + self.dt * v
            place, turn = _of_rows(a.hand(row) for a, row in zip(arms, ahead, strict=True))
            rate = Rotation.from_matrix(turn @ pose[1].swapaxes(-1, -2)).as_rotvec() / self.dt
            wrench = ring.advance(Path(pose[0], pose[1], (place - pose[0]) / self.dt, rate), self.dt, steps)
            v = np.array([a.faster(*row) for a, row in zip(arms, zip(ahead, v, control, wrench, strict=True), strict=True)])
            q, pose = ahead, (place, turn)
        after = self._state(q, v, arms, ring.motion(), state, self.dt * substeps)[:count]
        after[fast] = np.nan
        return after

    @cached_property
    def _peg(self) -> Array:
        peg, ball = self.model.tree.pegs[0], self.model.tree.balls[0]
        return np.array([peg.length, peg.radius, peg.stiffness, peg.softness, ball.radius])

    # --- states -------------------------------------------------------------------------------------------------------

    def _polygon(self, pose: tuple[Array, ...], state: Array) -> Rigid:
        """The model's polygon at the hand's place, rotation, speed and rate in the world."""
        (place, turn, speed, rate), model = pose, self.model
        J, n, k, length = model.links // 2, model.n, model.turns, model.link_length
        rows = len(state)
        x, v = np.empty((rows, 2 * J + 2, 3)), np.empty((rows, 2 * J + 2, 3))
        R, w = np.empty((rows, 2 * J + 1, 3, 3)), np.empty((rows, 2 * J + 1, 3))
        x[:, 0] = x[:, -1] = place
        v[:, 0] = v[:, -1] = speed
        R[:, 0] = R[:, -1] = turn @ about(0, np.array(-0.5 * np.pi))
        w[:, 0] = w[:, -1] = rate
        for side, sign in enumerate((1, -1)):
            angles, rates = (
                state[:, first + side * k * J : first + (side + 1) * k * J].reshape(rows, J, k)
                for first in (len(ARM), n + len(ARM))
            )
            frame, spin = turn, rate
            at, moving = (
                place + 0.5 * sign * length * turn[:, :, 1],
                speed + np.cross(rate, 0.5 * sign * length * turn[:, :, 1]),
            )
            for i, regular in enumerate(first_turns(sign, model.links)):
                frame = frame @ regular
                for axis in range(k):
                    spin = spin + frame[:, :, axis] * rates[:, i, axis, None]
                    frame = frame @ about(axis, angles[:, i, axis])
                node, link = (1 + i, 1 + i) if side == 0 else (2 * J - i, 2 * J - 1 - i)
                x[:, node], v[:, node] = at, moving
                if i < J - 1 or side == 0:
                    R[:, link], w[:, link] = (frame if side == 0 else frame * [1.0, -1.0, -1.0]), spin
                at, moving = at + length * frame[:, :, 2], moving + np.cross(spin, length * frame[:, :, 2])
        Q = R.swapaxes(-1, -2)
        return Rigid(x, Q, v, np.einsum("beij,bej->bei", Q, w))

    def _split(self, state: Array) -> tuple[Array, Array]:
        """Entries of nodes (B, k, 6) and links (B, k', 6)."""
        first = self.model.layout.nx
        middle, last = first + 6 * len(self._nodes), first + len(self.extra_rest)
        return state[:, first:middle].reshape(len(state), -1, 6), state[:, middle:last].reshape(len(state), -1, 6)

    def _bent(self, state: Array, rigid: Rigid) -> Motion:
        """The rod of a state."""
        nodes, links = self._split(state)
        x, Q, v, w = (part.copy() for part in rigid)
        x[:, self._nodes] += nodes[..., :3]
        v[:, self._nodes] += nodes[..., 3:]
        turns = Rotation.from_rotvec(links[..., :3].reshape(-1, 3)).as_matrix().reshape(*links.shape[:2], 3, 3)
        Q[:, self._links] = turns @ Q[:, self._links]
        w[:, self._links] += links[..., 3:]
        return Motion(x, Q, v, w)

    def _state(self, q: Array, v: Array, arms: list[Arm], rod: Motion, before: Array, seconds: float) -> Array:
        """The state of an arm and a rod."""
        n, arm, J, after = self.model.n, len(ARM), self.model.links // 2, before.copy()
        pose = _of_rows((*a.hand(row), *a.rates(row, rate)) for a, row, rate in zip(arms, q, v, strict=True))
        ways, across = np.diff(rod.x, axis=1), rod.Q[:, :, 0] if self.model.twist else None
        left, right = list(range(1, J + 1)), list(range(2 * J - 1, J - 1, -1))
        angles = [
            polygon_angles(pose[1], sign, sign * ways[:, side], self.model.links, None if across is None else across[:, side])
            for sign, side in ((1, left), (-1, right))
        ]
        after[:, :arm], after[:, arm:n] = q, np.concatenate(angles, axis=1)
        after[:, n : n + arm], after[:, n + arm : 2 * n] = v, (after[:, arm:n] - before[:, arm:n]) / seconds
        rigid = self._polygon(pose, after)
        nodes, links = self._split(after)
        nodes[..., :3], nodes[..., 3:] = (rod.x - rigid.x)[:, self._nodes], (rod.v - rigid.v)[:, self._nodes]
        turns = (rod.Q @ rigid.Q.swapaxes(-1, -2))[:, self._links]
        good = np.isfinite(turns).all(axis=(1, 2, 3))
        turns[~good] = np.eye(3)
        links[..., :3] = Rotation.from_matrix(turns.reshape(-1, 3, 3)).as_rotvec().reshape(links[..., :3].shape)
        links[..., 3:] = (rod.w - rigid.w)[:, self._links]
        after[:, self.model.layout.nx :] = np.concatenate([nodes.reshape(len(q), -1), links.reshape(len(q), -1)], axis=1)
        after[~good] = np.nan
        return after


class Arm:
    """One row's arm in Pinocchio, with buffers of its own; dampers and dry friction act implicitly."""

    def __init__(self, tree: PinocchioTree, dt: float):
        self.tree, self.dt, self.model = tree, dt, tree.model.copy()
        self.data, self.armature = self.model.createData(), tree.model.armature + dt * tree.damping
        self.model.armature = self.armature
        self.joint, self.place = tree.joints[GRIPPER], tree.places[GRIPPER]
        self.wrenches = pin.StdVec_Force()
        self.wrenches.extend([pin.Force.Zero() for _ in range(self.model.njoints)])

    def hand(self, q: Array) -> tuple[Array, Array]:
        """Place and rotation of the gripper."""
        pin.forwardKinematics(self.model, self.data, q)
        pose = self.data.oMi[self.joint] * self.place
        return pose.translation, pose.rotation

    def rates(self, q: Array, v: Array) -> tuple[Array, Array]:
        """The gripper's speed, and its rotation rate in the world."""
        pin.forwardKinematics(self.model, self.data, q, v)
        at = self.data.oMi[self.joint]
        moving = at.act(self.data.v[self.joint])  # at the world's origin
        return moving.linear + np.cross(moving.angular, (at * self.place).translation), moving.angular

    def faster(self, q: Array, v: Array, torque: Array, wrench: Array) -> Array:
        """Speeds (7,) after a step under torques and the loop's wrench about the world's origin; q was placed by `hand`."""
        tree = self.tree
        if tree.friction.any():
            rubbing = tree.friction * np.tanh(v / tree.friction_speed) / np.where(v == 0.0, 1.0, v)
            rubbing = np.where(v == 0.0, tree.friction / tree.friction_speed, rubbing)
            self.model.armature = self.armature + self.dt * rubbing
        at = self.data.oMi[self.joint]
        self.wrenches[self.joint] = at.actInv(pin.Force(wrench[:3], wrench[3:]))
        return np.asarray(v + self.dt * pin.aba(self.model, self.data, q, v, torque + tree.forces(q, v), self.wrenches))


def _of_rows(found: Iterable[tuple[Array, ...]]) -> tuple[Array, ...]:
    """One array of each part of all rows' results."""
    return tuple(np.array(part) for part in zip(*found, strict=True))


def _pieces(steps: Array) -> Iterator[Index]:
    """Rows of equally many steps, `MOST_ROWS` at most."""
    for count in np.unique(steps):
        rows = np.flatnonzero(steps == count)
        yield from (rows[first : first + MOST_ROWS] for first in range(0, len(rows), MOST_ROWS))
