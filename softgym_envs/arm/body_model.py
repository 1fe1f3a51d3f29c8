"""The upper body: structure and state, from the tree in the TOML file beside, or from a user's.

A state is the angles of all joints, then their speeds; controls are the joints' torques. Legend: B batch, n joints.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from ..core.errors import StructureError
from ..core.layout import Field, StateLayout
from ..core.simulator import Array, Status
from ..mechanics.mechanism import Mechanism
from ..mechanics.tree import Tree
from ..mechanics.tree_file import load_tree
from .body_parameters import BodyParameters

FILE = Path(__file__).parent / "upper_body.toml"
HAND = "right_hand"
"""Frame that is brought to a point."""
CONSTANTS = BodyParameters.names()
ROUNDS, DAMPING, POSTURE = 60, 0.05, 0.02
"""Of inverse kinematics: iterations, damping [m], pull to the rest pose."""


@dataclass(frozen=True)
class BodyModel:
    """Structure of the upper body.

    >>> model = BodyModel()
    >>> len(model.tree.coordinates), len([body for body in model.tree.bodies if body.mass > 0 and body.name != "load"])
    (12, 9)

    Raises:
        StructureError: The tree has no frame "right_hand", a joint without limits or effort, or a constant that nobody knows.
    """

    tree: Tree = field(default_factory=partial(load_tree, FILE))
    """Bodies and joints; every joint that moves is a hinge with a motor."""

    def __post_init__(self) -> None:
        tree = self.tree
        tree.frame(HAND)
        unknown = [name for name in tree.constants if name not in CONSTANTS]
        if unknown:
            raise StructureError(f"tree {tree.name!r} uses constants {unknown}; there are {', '.join(CONSTANTS)}")
        if tree.actuated != tree.coordinates or tree.constraints:
            raise StructureError(f"tree {tree.name!r}: expected a control for every joint, in their order, and no constraints")
        for joint in tree.moving:
            if joint.kind != "revolute" or not np.isfinite([joint.lower, joint.upper, joint.effort]).all() or joint.effort <= 0:
                raise StructureError(
                    f"joint {joint.name!r} of tree {tree.name!r} is {joint.kind} with limits [{joint.lower}, {joint.upper}] "
                    f"and effort {joint.effort}; expected a hinge with finite limits and a positive effort"
                )

    @property
    def n(self) -> int:
        """Number of angles."""
        return len(self.tree.coordinates)

    @cached_property
    def layout(self) -> StateLayout:
        """Angles, then speeds."""
        names = self.tree.coordinates
        speeds = " ".join(f"v{name}" for name in names)
        return StateLayout(Field("", None, (" ".join(names), "rad")), Field("", None, (speeds, "rad/s")))

    @property
    def control_names(self) -> tuple[str, ...]:
        """The joints."""
        return self.tree.coordinates

    @property
    def control_units(self) -> tuple[str, ...]:
        """Torques."""
        return ("N m",) * self.n

    @cached_property
    def effort(self) -> Array:
        """Largest torques (n,) [N m]."""
        return np.array([joint.effort for joint in self.tree.moving])

    @property
    def control_bounds(self) -> tuple[Array, Array]:
        """Each (n,) [N m]."""
        return -self.effort, self.effort.copy()

    @cached_property
    def limits(self) -> tuple[Array, Array]:
        """Lowest and highest angles, each (n,) [rad]; tasks and planners keep to them, the mechanics does not."""
        return np.array([j.lower for j in self.tree.moving]), np.array([j.upper for j in self.tree.moving])

    @cached_property
    def mechanism(self) -> Mechanism:
        """The tree at rest and its places; its step is not used."""
        return Mechanism(self.tree, 0.01, CONSTANTS)

    @cached_property
    def defaults(self) -> Array:
        """Constants (P,)."""
        return np.asarray(BodyParameters().to_matrix(1)[0])

    @cached_property
    def rest(self) -> Array:
        """Angles (n,) where the body rests without torques, with the default constants.

        Raises:
            StructureError: It rests nowhere near the rests of its springs.
        """
        first = np.array([[0.0 if isinstance(joint.rest, str) else joint.rest for joint in self.tree.moving]])
        found = self.mechanism.rest(first, np.zeros((1, self.n)), self.defaults)
        if found.status[0] != Status.OK:
            raise StructureError(f"tree {self.tree.name!r} rests nowhere near the rests of its springs")
        return np.asarray(found.q[0])

    def rest_state(self) -> Array:
        """At rest, (2 n,)."""
        return np.concatenate([self.rest, np.zeros(self.n)])

    # --- places -------------------------------------------------------------------------------------------------------

    def hand(self, q: Array) -> Array:
        """Where the hand is at angles (B, n), (B, 3) [m]."""
        return self.mechanism.place(HAND, np.ascontiguousarray(q))

    def holding(self, q: Array, constants: Array | None = None) -> Array:
        """Torques (B, n) that hold angles (B, n) against gravity and springs [N m]."""
        given = self.defaults if constants is None else constants
        return -self.mechanism.slopes(q, np.zeros_like(q), given).q

    def reaching(self, points: Array) -> tuple[Array, Array]:
        """Angles (B, n) within the limits that bring the hand to points (B, 3), and the distances that are left (B,) [m].

        Damped least squares from the rest pose, to which joints are pulled that are free: a point always has the same answer.
        """
        q, (low, high) = np.tile(self.rest, (len(points), 1)), self.limits
        for k in range(ROUNDS):
            slope, off = self.mechanism.point_slopes(HAND, q), points - self.hand(q)
            inverse = slope.swapaxes(1, 2) @ np.linalg.inv(slope @ slope.swapaxes(1, 2) + DAMPING**2 * np.eye(3))
            posture = POSTURE * (1 - k / ROUNDS) * (self.rest - q)
            free = posture - (inverse @ (slope @ posture[..., None]))[..., 0]
            q = np.clip(q + np.clip((inverse @ off[..., None])[..., 0], -0.3, 0.3) + free, low, high)
        return q, np.linalg.norm(points - self.hand(q), axis=1)


def upper_body() -> BodyModel:
    """9 bodies, 8 joints, 12 degrees of freedom [Penner2020], section 3.2."""
    return BodyModel()


def read_body(path: str | Path) -> BodyModel:
    """A user's arm or body from a TOML file as `mechanics.tree_file` reads it, with a frame "right_hand".

    Raises:
        FileFormatError: As for `load_tree`.
        StructureError: It is none that the room's tasks can move; see `BodyModel`.
    """
    return BodyModel(load_tree(path))
