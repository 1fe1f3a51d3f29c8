"""The elbow with biceps and triceps: structure and state, from the tree and the muscles in the TOML files beside.

A state is (elbow, velbow, biceps, triceps): angle (0: stretched, positive: flexed), its rate, and both activations. Controls
are excitations, 0 ... 1. Legend: B batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ..core.errors import StructureError
from ..core.layout import Field, StateLayout
from ..core.simulator import Array, check_number
from ..mechanics.placement import frame_pose
from ..mechanics.structure import rotation
from ..mechanics.tree import Tree
from ..mechanics.tree_file import load_tree
from .elbow import Elbow, Wrapped, muscle_state
from .paths import Muscle, Muscles, load_muscles

FOLDER = Path(__file__).parent
MUSCLES = ("biceps", "triceps")
"""In the order of controls and activations."""
JOINT = "elbow"
POINTS = 12
"""Of a path, on the arc where a muscle touches."""


@dataclass(frozen=True)
class ElbowModel:
    """Structure of the elbow.

    >>> model = ElbowModel()
    >>> model.layout.names, model.control_names
    (('elbow', 'velbow', 'biceps', 'triceps'), ('biceps', 'triceps'))

    Raises:
        OptionError: The rest angle is not a number.
    """

    rest_angle: float = 0.3
    """Where an arm at rest hangs, muscles off [rad]."""

    def __post_init__(self) -> None:
        check_number("rest_angle", self.rest_angle, low=-1.0, high=3.0, unit="rad")

    @cached_property
    def tree(self) -> Tree:
        """Bones and load, with the constants `damping` and `payload`."""
        return load_tree(FOLDER / "elbow.toml")

    @cached_property
    def muscles(self) -> Muscles:
        """Paths of both muscles."""
        return load_muscles(FOLDER / "elbow_muscles.toml")

    def muscle(self, name: str) -> Muscle:
        """A muscle by its name."""
        return next(muscle for muscle in self.muscles.muscles if muscle.name == name)

    layout = StateLayout(
        Field("", None, (JOINT, "rad"), (f"v{JOINT}", "rad/s"), (" ".join(MUSCLES), "-")),
    )
    control_names, control_units = MUSCLES, ("-", "-")

    @property
    def control_bounds(self) -> tuple[Array, Array]:
        """Excitations, each (2,)."""
        return np.zeros(2), np.ones(2)

    @property
    def limits(self) -> tuple[float, float]:
        """Range of the elbow [rad]."""
        joint = self.tree.moving[0]
        return joint.lower, joint.upper

    def rest_state(self) -> Array:
        """At `rest_angle`, muscles off, (4,)."""
        return np.array([self.rest_angle, 0.0, 0.0, 0.0])

    # --- as the equations read it -------------------------------------------------------------------------------------

    def structure(self, dt: float) -> Elbow:
        """The numbers of `elbow`, from tree and muscles.

        Raises:
            StructureError: A muscle does not wrap around the elbow's own axis in the plane of motion.
        """
        bodies = {body.name: body for body in self.tree.bodies}
        forearm, (lower, upper) = bodies["forearm"], self.limits
        reach = next(joint.xyz for joint in self.tree.joints if joint.child == "load")
        about = forearm.inertia_matrix[1, 1] + forearm.mass * float(np.dot(forearm.com, forearm.com))
        first, second = (self._wrapped(name) for name in MUSCLES)
        return Elbow(first, second, float(about), -forearm.mass * forearm.com[2], -reach[2], lower, upper, dt)

    def _wrapped(self, name: str) -> Wrapped:
        muscle = self.muscle(name)
        if len(muscle.surfaces) != 1 or muscle.via:
            raise StructureError(
                f"muscle {name!r} wraps around {len(muscle.surfaces)} surfaces, with {len(muscle.via)} via points; "
                "expected one surface, and none"
            )
        surface = self.muscles.surface(muscle.surfaces[0])
        turn = rotation(surface.rpy)
        # elbow and humerus have one origin: a surface there lies about the axis
        if (
            surface.kind != "cylinder"
            or any(surface.xyz)
            or abs(turn[1, 2]) < 1 - 1e-9
            or muscle.origin[1]
            or muscle.insertion[1]
        ):
            raise StructureError(f"muscle {name!r} must wrap around a cylinder about the elbow's axis, in the plane of motion")
        a, b = np.array(muscle.origin)[[0, 2]], np.array(muscle.insertion)[[0, 2]]
        side = (turn @ np.array(muscle.sides[0]))[[0, 2]]
        sign = (
            1.0 if a[0] * side[1] - a[1] * side[0] > 0 else -1.0
        )  # counter-clockwise past the side: flexion adds to the angle
        angle = np.arctan2(sign * (a[0] * b[1] - a[1] * b[0]), a @ b) % (2 * np.pi)
        return Wrapped(float(np.linalg.norm(a)), float(np.linalg.norm(b)), float(angle), sign)

    def lengths(self, angle: Array, constants: Array) -> tuple[Array, Array]:
        """Lengths and moment arms of both muscles at angles (B,) with constants (P,), each (B, 2) [m]."""
        structure = self.structure(0.0)
        found = [
            muscle_state(m, constants, 4 * i, angle, 0.0 * angle) for i, m in enumerate((structure.biceps, structure.triceps))
        ]
        return np.stack([part[0] for part in found], axis=1), np.stack([part[1] for part in found], axis=1)

    def places(self, angle: float) -> dict[str, Array]:
        """Where hand, origins and insertions are, each (3,) [m]."""
        turn, hand = frame_pose(self.tree, "hand", {JOINT: angle})
        found = {"elbow": np.zeros(3), "hand": hand}
        for muscle in self.muscles.muscles:
            found[f"{muscle.name}_origin"] = np.array(muscle.origin)
            found[f"{muscle.name}_insertion"] = turn @ np.array(muscle.insertion)
        return found


def muscle_path(wrapped: Wrapped, ends: tuple[Array, Array], radius: float, angle: float) -> Array:
    """Points of a muscle's path from origin to insertion, (k, 3) [m]."""
    first, last = ends
    a, b = (np.arctan(np.sqrt(r * r - radius * radius) / radius) for r in (wrapped.origin, wrapped.insertion))
    touching = wrapped.angle + wrapped.sign * angle - a - b
    if touching <= 0:
        return np.array([first, last])
    begin = np.arctan2(first[2], first[0]) + wrapped.sign * a
    turns = begin + wrapped.sign * np.linspace(0.0, touching, POINTS)
    arc = radius * np.stack([np.cos(turns), np.zeros(POINTS), np.sin(turns)], axis=1)
    return np.vstack([first, arc, last])


def elbow() -> ElbowModel:
    """The two-muscle arm of [Penner2020], section 3.1."""
    return ElbowModel()
