"""The elbow with biceps and triceps: structure and state, from the tree and muscles in this folder's TOML file, or a user's.

A state is (elbow, velbow, biceps, triceps): angle (0: stretched, positive: flexed), its rate, and both activations; of
pneumatic muscles, pressures in shares of the supply's. Controls are excitations, or pressures at the valves, 0 ... 1. Legend: B
batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from ...core.errors import FileFormatError, StructureError
from ...core.files import number_in
from ...core.layout import VECTOR, Field, StateLayout
from ...core.parameters import Parameters
from ...core.simulator import Array, check_number
from ...mechanics.placement import about, frame_pose
from ...mechanics.tree import Tree
from ...muscles.arm_file import Arm, constants_of, load_arm
from ...muscles.paths import KINDS, NEAR_ACTIVATIONS, Muscle, Muscles
from .elbow import Elbow, Wrapped, muscle_state
from .elbow_shape import HAND, elbow_numbers, ends, hinge_of, wrapped
from .parameters import ElbowParameters, PneumaticElbowParameters

FILE = Path(__file__).parent / "elbow.toml"
MUSCLES = ("biceps", "triceps")
"""Muscles in the order of controls and activations: one that flexes, one that stretches."""
JOINT = "elbow"
POINTS = 12
"""Points of a drawn path on the arc of contact."""
SHOULDER = "shoulder"
"""Frame from which the upper arm is drawn; without it, from the farthest muscle's origin."""
PRESSURE = 5e5
"""[Pa] Supply pressure of the pneumatic elbow."""
PARAMETERS: dict[str, type[Parameters]] = {"hill": ElbowParameters, "pneumatic": PneumaticElbowParameters}
"""Kind of the muscles -> parameters."""


@cache
def _drawn() -> Arm:
    return load_arm(FILE)


def _drawn_muscles() -> Muscles:
    found = _drawn().muscles
    assert found is not None
    return found


@dataclass(frozen=True)
class ElbowModel:
    """Structure of the elbow.

    >>> model = ElbowModel()
    >>> model.layout.names, model.control_names
    (('elbow', 'velbow', 'biceps', 'triceps'), ('biceps', 'triceps'))

    Raises:
        OptionError: The rest angle is not a number.
        StructureError: Muscles are not a biceps and a triceps of one kind.
    """

    rest_angle: float = 0.3
    """Rest angle of the arm, muscles off [rad]."""
    tree: Tree = field(default_factory=lambda: _drawn().tree)
    """Bones and load, with the parameters `damping`, `friction` and `payload`."""
    muscles: Muscles = field(default_factory=_drawn_muscles)
    """Paths of both muscles, and their numbers unless the class of parameters has them."""
    parameter_values: tuple[tuple[str, float], ...] = ()
    """Names and values that replace the defaults."""

    def __post_init__(self) -> None:
        check_number("rest_angle", self.rest_angle, low=-1.0, high=3.0, unit="rad")
        found = {muscle.name: muscle.kind for muscle in self.muscles.muscles}
        if set(found) != set(MUSCLES) or len(set(found.values())) != 1:
            raise StructureError(
                f"an elbow has muscles {found}; expected {' and '.join(map(repr, MUSCLES))}, both of one kind, "
                f"{' or '.join(KINDS)}"
            )

    @property
    def kind(self) -> str:
        """Kind of the muscles, one of `muscles.paths.KINDS`."""
        return self.muscles.muscles[0].kind

    @property
    def parameters_class(self) -> type[Parameters]:
        """Class of the parameters."""
        return PARAMETERS[self.kind]

    @cached_property
    def parameters(self) -> Parameters:
        """Parameters before identification, by precedence: `parameter_values`, muscles and hinge, the class.

        Raises:
            ParameterError: One is out of its bounds.
        """
        return self.parameters_class(**{**self.drawn, **dict(self.parameter_values)})

    @property
    def drawn(self) -> dict[str, float]:
        """Parameters given by muscles, their surfaces and the hinge."""
        values: dict[str, float] = {}
        for name in MUSCLES:
            muscle = self.muscle(name)
            values[f"{name}_radius"] = self.muscles.surface(muscle.surfaces[0]).size[0]
            known = [what for what in (*KINDS[self.kind], "slack") if getattr(muscle, what) is not None and what != "pressure"]
            values |= {f"{name}_{what}": getattr(muscle, what) for what in known}
        hinge = hinge_of(self.tree)
        own = {"damping": hinge.damping, "friction": hinge.friction}
        return values | {name: value for name, value in own.items() if not isinstance(value, str)}

    def muscle(self, name: str) -> Muscle:
        """A muscle by its name."""
        return next(muscle for muscle in self.muscles.muscles if muscle.name == name)

    layout = StateLayout(
        Field("", None, (JOINT, "rad"), (f"v{JOINT}", "rad/s"), (" ".join(MUSCLES), "-", VECTOR, NEAR_ACTIVATIONS))
    )
    control_names, control_units = MUSCLES, ("-", "-")

    @property
    def control_bounds(self) -> tuple[Array, Array]:
        """Bounds of the excitations, each (2,)."""
        return np.zeros(2), np.ones(2)

    @cached_property
    def state_bounds(self) -> tuple[Array, Array]:
        """Ranges of the activations, each (4,); angle and speed have none."""
        return np.array([-np.inf, -np.inf, 0.0, 0.0]), np.array([np.inf, np.inf, 1.0, 1.0])

    @property
    def limits(self) -> tuple[float, float]:
        """Range of the elbow [rad]."""
        joint = self.tree.moving[0]
        return joint.lower, joint.upper

    def rest_state(self) -> Array:
        """State at `rest_angle`, muscles off, (4,)."""
        return np.array([self.rest_angle, 0.0, 0.0, 0.0])

    # --- as the equations read it -------------------------------------------------------------------------------------

    def structure(self, dt: float) -> Elbow:
        """Numbers of `elbow`, from tree and muscles.

        Raises:
            StructureError: They are not of an elbow; see `elbow_shape`.
        """
        return elbow_numbers(self.tree, self._wrapped, dt)

    @cached_property
    def _wrapped(self) -> tuple[Wrapped, Wrapped]:
        first, second = (wrapped(self.tree, self.muscles, self.muscle(name)) for name in MUSCLES)
        if first.sign > 0 or second.sign < 0:
            wrong = MUSCLES[0] if first.sign > 0 else MUSCLES[1]
            raise StructureError(f"muscle {wrong!r} pulls the wrong way: the biceps bends the elbow, the triceps stretches it")
        return first, second

    def lengths(self, angle: Array, parameter_values: Array) -> tuple[Array, Array]:
        """Lengths and moment arms of both muscles at angles (B,) with parameters (P,), each (B, 2) [m]."""
        found = [muscle_state(m, parameter_values, 4 * i, angle, 0.0 * angle) for i, m in enumerate(self._wrapped)]
        return np.stack([part[0] for part in found], axis=1), np.stack([part[1] for part in found], axis=1)

    @cached_property
    def ends(self) -> dict[str, tuple[Array, Array]]:
        """Origin and insertion of every muscle in a stretched arm, each (3,) [m]."""
        return {name: ends(self.tree, self.muscle(name)) for name in MUSCLES}

    def places(self, angle: float) -> dict[str, Array]:
        """Places of shoulder, elbow, hand, origins and insertions, each (3,) [m]."""
        turn = about(np.array([0.0, -1.0, 0.0]), angle)
        found = {JOINT: np.zeros(3), HAND: frame_pose(self.tree, HAND, {self.tree.moving[0].name: angle})[1]}
        for name, (origin, insertion) in self.ends.items():
            found[f"{name}_origin"], found[f"{name}_insertion"] = origin, turn @ insertion
        drawn = any(frame.name == SHOULDER for frame in self.tree.frames)
        farthest = max((origin for origin, _ in self.ends.values()), key=lambda point: float(np.linalg.norm(point)))
        found[SHOULDER] = frame_pose(self.tree, SHOULDER, {})[1] if drawn else farthest
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


def pneumatic_elbow() -> ElbowModel:
    """The same bones, pulled by two pneumatic muscles."""
    drawn = _drawn_muscles()
    muscles = tuple(replace(muscle, kind="pneumatic", pressure=PRESSURE) for muscle in drawn.muscles)
    return ElbowModel(muscles=Muscles(drawn.surfaces, muscles))


def read_elbow(path: str | Path) -> ElbowModel:
    """A user's elbow from a TOML file as `muscles.arm_file.load_arm` reads it, with `rest_angle` [rad].

    One hinge in the world's origin about -y (x forwards, z upwards) with limits, a frame "hand", a body of mass 1 with
    `scale = "payload"`; muscles "biceps" and "triceps" of one kind, each around a cylinder about the hinge. The file's numbers
    are the defaults of the parameters: force, optimal, slack (or thread, turns, slack) of a muscle, the radius of its cylinder,
    the hinge's damping. `softgym_envs/systems/arm/elbow.toml` is the system's own, to copy and change.

    Raises:
        FileFormatError: As for `load_arm`.
        ParameterError: A parameter is unknown or out of its bounds.
        StructureError: It is not such an elbow.
    """
    arm = load_arm(path, "rest_angle")
    if arm.muscles is None:
        raise StructureError(f"{path}: has no muscles; expected [[muscle]] {' and '.join(map(repr, MUSCLES))}")
    rest = number_in(f"{path}: rest_angle", arm.rest.get("rest_angle", ElbowModel.rest_angle))
    model = ElbowModel(rest, arm.tree, arm.muscles)
    model = replace(model, parameter_values=constants_of(path, arm, model.parameters_class))
    twice = [name for name, _ in model.parameter_values if name in model.drawn]
    if twice:
        raise FileFormatError(f"{path}: [parameters] has {twice[0]}, which a muscle, its surface or the hinge says already")
    model.structure(1.0)
    model.parameters_class(**{**model.drawn, **dict(model.parameter_values)})
    return model
