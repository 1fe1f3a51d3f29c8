"""The upper body: structure and state, from the tree in this folder's TOML file, or from a user's.

A state is the angles of all joints, then their speeds; controls are the joints' torques. With muscles, activations follow
the speeds, and controls are the muscles' excitations, then torques of the joints that no muscle moves.
Legend: B batch, n joints.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from ...core.errors import StructureError
from ...core.layout import VECTOR, Field, StateLayout
from ...core.simulator import Array, Status
from ...mechanics.mechanism import Mechanism
from ...mechanics.tree import Frame, Joint, Tree
from ...mechanics.tree_file import load_tree
from ...muscles.arm_file import constants_of, load_arm, load_muscles
from ...muscles.paths import NEAR_ACTIVATIONS, Muscles
from ...muscles.routes import Routes
from .muscle_kernels import passive_torques
from .muscle_tree import MuscleTree, muscle_tree, passed
from .parameters import BodyParameters

FILE = Path(__file__).parent / "upper_body.toml"
MUSCLE_FILE = Path(__file__).parent / "upper_body_muscles.toml"
HAND = "right_hand"
"""Frame that is brought to a goal."""
PARAMETERS = BodyParameters.names()
RISE, FALL = 0.015, 0.06
"""Time constants of activation and deactivation [s] [DeGroote2016]."""
REST_ROUNDS, REST_TOLERANCE = 200, 1e-9
"""Rounds and tolerance [rad] of the search for the rest pose with muscles off."""
ROUNDS, DAMPING, POSTURE = 60, 0.05, 0.02
"""Inverse kinematics: iterations, damping [m], pull to the rest pose."""
RESTART_DISTANCE = 0.005
"""[m] Distance from which another start is tried."""
STOP_EXCESS = 0.05
"""[rad] A joint's stops are as stiff as its effort over this."""


@dataclass(frozen=True)
class BodyModel:
    """Structure of the upper body.

    >>> model = BodyModel()
    >>> len(model.tree.coordinates), len([body for body in model.tree.bodies if body.mass > 0 and body.name != "load"])
    (12, 9)

    Raises:
        StructureError: The tree has no frame "right_hand", a joint without limits or effort, or an unknown parameter.
    """

    tree: Tree = field(default_factory=partial(load_tree, FILE))
    """Bodies and joints; every joint that moves is a hinge with a motor. Joints without stops get those of `STOP_EXCESS`."""
    muscles: Muscles | None = None
    """Muscles that replace the motors of the joints that they pass."""
    parameter_values: tuple[tuple[str, float], ...] = ()
    """Names and values that replace the defaults."""

    def __post_init__(self) -> None:
        tree = self.tree
        tree.frame(HAND)
        unknown = [name for name in tree.parameter_names if name not in PARAMETERS]
        if unknown:
            raise StructureError(f"tree {tree.name!r} uses parameters {unknown}; there are {', '.join(PARAMETERS)}")
        if tree.actuated != tree.coordinates or tree.constraints:
            raise StructureError(f"tree {tree.name!r}: expected a control for every joint, in their order, and no constraints")
        for joint in tree.moving:
            if joint.kind != "revolute" or not np.isfinite([joint.lower, joint.upper, joint.effort]).all() or joint.effort <= 0:
                raise StructureError(
                    f"joint {joint.name!r} of tree {tree.name!r} is {joint.kind} with limits [{joint.lower}, {joint.upper}] "
                    f"and effort {joint.effort}; expected a hinge with finite limits and a positive effort"
                )
        object.__setattr__(self, "tree", replace(tree, joints=tuple(_stopped(joint) for joint in tree.joints)))

    @property
    def n(self) -> int:
        """Number of angles."""
        return len(self.tree.coordinates)

    @cached_property
    def routes(self) -> MuscleTree:
        """Muscle paths as kernels read them.

        Raises:
            StructureError: There are none, or they do not fit the tree.
        """
        if self.muscles is None:
            raise StructureError(f"tree {self.tree.name!r} has no muscles")
        return muscle_tree(Routes(self.tree, self.muscles))

    @cached_property
    def muscle_names(self) -> tuple[str, ...]:
        """Names in the order of activations."""
        return () if self.muscles is None else tuple(muscle.name for muscle in self.muscles.muscles)

    @cached_property
    def motors(self) -> tuple[int, ...]:
        """Coordinates of the joints that no muscle passes."""
        moved = () if self.muscles is None else passed(self.tree, self.muscles)
        return tuple(i for i, name in enumerate(self.tree.coordinates) if name not in moved)

    @cached_property
    def layout(self) -> StateLayout:
        """State layout: angles, then speeds, then activations."""
        names = self.tree.coordinates
        speeds = " ".join(f"v{name}" for name in names)
        activations = [Field("", None, (" ".join(self.muscle_names), "-", VECTOR, NEAR_ACTIVATIONS))] if self.muscles else []
        return StateLayout(Field("", None, (" ".join(names), "rad")), Field("", None, (speeds, "rad/s")), *activations)

    @property
    def control_names(self) -> tuple[str, ...]:
        """Names of the muscles, then of the joints with motors."""
        return (*self.muscle_names, *(self.tree.coordinates[i] for i in self.motors))

    @property
    def control_units(self) -> tuple[str, ...]:
        """Units of excitations, then of torques."""
        return (*("-" for _ in self.muscle_names), *("N m" for _ in self.motors))

    @cached_property
    def effort(self) -> Array:
        """Largest torques (n,) [N m]."""
        return np.array([joint.effort for joint in self.tree.moving])

    @property
    def control_bounds(self) -> tuple[Array, Array]:
        """Bounds of excitations 0 ... 1, then of torques [N m]."""
        count, effort = len(self.muscle_names), self.effort[list(self.motors)]
        return np.concatenate([np.zeros(count), -effort]), np.concatenate([np.ones(count), effort])

    @cached_property
    def state_bounds(self) -> tuple[Array, Array]:
        """Ranges of the activations, each (nx,); angles and speeds have none."""
        free, count = np.full(2 * self.n, np.inf), len(self.muscle_names)
        return np.concatenate([-free, np.zeros(count)]), np.concatenate([free, np.ones(count)])

    @cached_property
    def limits(self) -> tuple[Array, Array]:
        """Lowest and highest angles, each (n,) [rad], where the joints' stops begin."""
        return np.array([j.lower for j in self.tree.moving]), np.array([j.upper for j in self.tree.moving])

    @cached_property
    def mechanism(self) -> Mechanism:
        """Mechanism of the tree, for rest poses and places; its step is not used."""
        return Mechanism(self.tree, 0.01, PARAMETERS)

    @cached_property
    def parameters(self) -> BodyParameters:
        """Parameters before identification."""
        return BodyParameters(**dict(self.parameter_values))

    @cached_property
    def defaults(self) -> Array:
        """Parameters (P,)."""
        return np.asarray(self.parameters.to_matrix(1)[0])

    @cached_property
    def rest(self) -> Array:
        """Rest angles (n,) without torques, with the default parameters.

        Raises:
            StructureError: There is no rest near the rests of its springs.
        """
        first = np.array([[0.0 if isinstance(joint.rest, str) else joint.rest for joint in self.tree.moving]])
        for _ in range(1 if self.muscles is None else REST_ROUNDS):
            held = np.zeros(self.n) if self.muscles is None else passive_torques(self.routes, first[0])
            found = self.mechanism.rest(first, held[None], self.defaults)
            if found.status[0] != Status.OK:
                break
            change = found.q - first
            first = first + (1.0 if self.muscles is None else 0.5) * change
            if np.abs(change).max() < REST_TOLERANCE:
                break
        if found.status[0] != Status.OK or (self.muscles is not None and np.abs(change).max() > 1e3 * REST_TOLERANCE):
            raise StructureError(f"tree {self.tree.name!r} rests nowhere near the rests of its springs")
        return np.asarray(found.q[0])

    def rest_state(self) -> Array:
        """State at rest, muscles off, (nx,)."""
        return np.concatenate([self.rest, np.zeros(self.n + len(self.muscle_names))])

    # --- places -------------------------------------------------------------------------------------------------------

    @cached_property
    def _marked(self) -> Mechanism:
        """The tree with a frame at every point that a muscle passes."""
        marks = [
            Frame(f"{muscle.name}.{k}", body, place)
            for muscle in (self.muscles.muscles if self.muscles else ())
            for k, (body, place) in enumerate(muscle.points)
        ]
        return Mechanism(replace(self.tree, frames=(*self.tree.frames, *marks)), 0.01, PARAMETERS)

    def muscle_points(self, q: Array) -> list[Array]:
        """Points (k, 3) [m] of every muscle at angles (1, n)."""
        muscles = self.muscles.muscles if self.muscles else ()
        return [
            np.array([self._marked.pose(f"{muscle.name}.{k}", q)[1][0] for k in range(len(muscle.points))])
            for muscle in muscles
        ]

    def hand(self, q: Array) -> Array:
        """Positions of the hand (B, 3) [m] at angles (B, n)."""
        return self.mechanism.place(HAND, np.ascontiguousarray(q))

    def holding(self, q: Array, parameter_values: Array | None = None) -> Array:
        """Torques (B, n) that hold angles (B, n) against gravity and springs, not against stops [N m]."""
        given = self.defaults if parameter_values is None else parameter_values
        return -self.mechanism.slopes(np.clip(q, *self.limits), np.zeros_like(q), given).q

    @cached_property
    def reached(self) -> Array:
        """Whether a joint moves the hand (n,)."""
        q = np.random.default_rng(0).uniform(0.3, 0.7, (1, self.n))
        return np.asarray(self.mechanism.point_slopes(HAND, q)[0].any(axis=0))

    def reaching(self, points: Array, posture: Array | None = None) -> tuple[Array, Array]:
        """Angles (B, n) within the limits that bring the hand to points (B, 3), and the remaining distances (B,) [m].

        Damped least squares from a posture (n,) or postures (B, n), to which free joints are pulled: a point always
        has the same answer. None: the rest pose, and from the middle of the limits where that does not reach.
        """
        if posture is None:
            q, left = self.reaching(points, self.rest)
            far = left > RESTART_DISTANCE
            if far.any():
                middle = np.where(self.reached, 0.5 * sum(self.limits), self.rest)
                again, better = self.reaching(points[far], middle)
                good = better < left[far]
                q[far], left[far] = np.where(good[:, None], again, q[far]), np.where(good, better, left[far])
            return q, left
        q, (low, high) = np.broadcast_to(posture, (len(points), self.n)).copy(), self.limits
        for k in range(ROUNDS):
            slope, off = self.mechanism.point_slopes(HAND, q), points - self.hand(q)
            inverse = slope.swapaxes(1, 2) @ np.linalg.inv(slope @ slope.swapaxes(1, 2) + DAMPING**2 * np.eye(3))
            pull = POSTURE * (1 - k / ROUNDS) * (posture - q)
            free = pull - (inverse @ (slope @ pull[..., None]))[..., 0]
            q = np.clip(q + np.clip((inverse @ off[..., None])[..., 0], -0.3, 0.3) + free, low, high)
        return q, np.linalg.norm(points - self.hand(q), axis=1)


def _stopped(joint: Joint) -> Joint:
    """The joint with stops, if it moves and has none."""
    if joint.kind == "fixed" or joint.stop_stiffness:
        return joint
    return replace(joint, stop_stiffness=joint.effort / STOP_EXCESS)


def upper_body() -> BodyModel:
    """9 bodies, 8 joints, 12 degrees of freedom [Penner2020], section 3.2."""
    return BodyModel()


def muscled(model: BodyModel) -> BodyModel:
    """The same body with its own muscles, or else those of the right arm.

    Raises:
        StructureError: They do not fit its tree.
    """
    found = model if model.muscles else replace(model, muscles=load_muscles(MUSCLE_FILE))
    return found if found.routes else model


def read_body(path: str | Path) -> BodyModel:
    """A user's arm or body from a TOML file as `muscles.arm_file.load_arm` reads it, with a frame "right_hand".

    Muscles move the joints that they pass, in place of motors; each of their pieces goes around one cylinder or sphere at most.
    `softgym_envs/systems/upper_body/upper_body.toml` and `upper_body_muscles.toml` are the system's own, to copy and change.

    Raises:
        FileFormatError: As for `load_arm`.
        ParameterError: A parameter is unknown or out of its bounds.
        StructureError: The system's tasks cannot move it; see `BodyModel` and `muscle_tree`.
    """
    arm = load_arm(path)
    model = BodyModel(arm.tree, arm.muscles, constants_of(path, arm, BodyParameters))
    return model if model.muscles is None else muscled(model)
