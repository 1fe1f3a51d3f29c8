"""The tree of the flexible loop on Baxter's left arm [Caldwell2014, section IV].

The loop is a regular polygon of rigid links. One link is in the gripper, centred in frame H; two branches of equal length grow
from its ends and meet in the link that is clamped to the table, where a weld holds the end of each. Joint i turns by theta_i
about X and then by psi_i about Y, in a frame turned about X by the polygon's outer angle; links lie along Z; all angles zero is
the regular polygon. (The paper's 5 pi / 6 is the inner angle of a dodecagon.)

Not in the paper, assumed here: links are thin tubes of the tyre's `tube_radius`; `radius` is that of the corners; the clamped
link is half in each branch; H is the electric gripper's base; the loop rests as a regular polygon.

A loop that is not clamped hangs from the gripper, closed by a bond, in front of a peg that it touches (`mechanics.contact`), by
balls of the tyre's thickness, four to a link. The parameters of the clamp's pose are then those of the peg's, from its tip.

A state is (q, v): the angles, and the speeds of the physics step that led to them, (q - q before) / dt. The integrator's
momenta follow from it (`stepping`), and only the integrator needs them: encoders measure q, their differences are v, a
semi-implicit engine such as MuJoCo has the same v, and tasks read speeds without knowing a parameter. Legend: B batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import cos, pi, sin
from pathlib import Path

import numpy as np

from ...core.errors import StructureError, shown
from ...core.layout import Field, StateLayout
from ...core.parameters import Parameters
from ...core.simulator import Array, Status, check_number
from ...mechanics.mechanism import Mechanism
from ...mechanics.placement import frame_pose, roll_pitch_yaw
from ...mechanics.tree import Bond, Frame, Joint, Peg, Tree, Weld
from ...mechanics.tree_file import load_tree
from .links import TWIST, balls, branch, link
from .springs import SIDES, factor_names, spring_slopes, spring_values

MAX_LOOP_LINKS = 200
SIZES = {"radius": (0.01, 100.0, "m"), "mass": (1e-4, 1000.0, "kg"), "tube_radius": (1e-4, 100.0, "m")}
"""Bounds and units of the loop's sizes."""
ARM_FILE = Path(__file__).with_name("baxter.toml")
ARM = ("s0", "s1", "e0", "e1", "w0", "w1", "w2")
"""Joints of the arm."""
CLAMP = ("clamp_x", "clamp_y", "clamp_z", "clamp_roll", "clamp_pitch", "clamp_yaw")
"""Parameters of the clamp's pose [m, rad]."""
LOOP = ("theta_stiffness", "psi_stiffness", "loop_damping", "loop_scale")
"""Parameters of the loop [N m/rad, N m/rad, N m s/rad, -]."""
FRICTION = tuple(f"friction_{name}" for name in ARM)
"""Dry friction of the arm's joints [N m]."""
PARAMETERS = (*LOOP, "arm_damping", *FRICTION, *(f"offset_{name}" for name in ARM), *CLAMP, "gravity_z")
"""Parameters of the tree, in the order of their vector (P = 26); those of a loop with springs of its own follow."""
SIGNS = np.array([1.0] * (len(PARAMETERS) - 1) + [-1.0])
"""Gravity points downwards."""
START = (0.0, -1.0, 0.0, 1.5, 0.0, pi / 2 - 0.5, 0.0)
"""[rad] The hand points down; holding arm and loop takes 38 of s1's 50 N m."""


PEG_TIP = 0.05
"""Distance from the loop to the peg's tip in front of it [m]."""
PEG_LENGTH, PEG_RADIUS = 0.5, 0.02
"""[m]"""
PEG_STIFFNESS, PEG_SOFTNESS = 200.0, 0.005
"""[N/m], [m] Contact: the loop's weight presses a ball in by 9 mm. Stable at steps of 10 ms, which 1000 N/m are not."""


@dataclass(frozen=True)
class LoopModel:
    """Structure of arm and loop.

    >>> model = LoopModel()
    >>> len(model.tree.coordinates), round(model.height, 4)
    (31, 0.6858)

    Raises:
        StructureError: The number of links is odd or below 6, the tube is thicker than the loop, or the start is no pose of the
            arm.
        OptionError: A length or mass is not of the size of a loop.
    """

    links: int = 12
    """Links of the loop; 12 and 6 in the paper."""
    radius: float = 0.355
    """Radius of the circle through the joints [m]."""
    mass: float = 0.132
    """The loop's mass [kg]."""
    tube_radius: float = 0.02
    """[m]"""
    start: tuple[float, ...] = START
    """(7,) pose of the arm [rad] below which the clamp is, where the loop is regular."""
    servo_stiffness: tuple[float, ...] = (0.0,) * 7
    """(7,) stiffness of the arm's own controller, which pulls its joints to `start` [N m/rad]; 0: none, as in the paper."""
    servo_damping: float = 0.0
    """That controller's damping in every joint of the arm [N m s/rad]."""
    command_margin: float = 0.0
    """[rad] Commands may exceed the motors' efforts by what the controller's springs pull at this angle."""
    own_arm: Tree | None = None
    """A laboratory's own arm: joints `ARM`, frame H on a body "gripper"; None: Baxter's. See `loop_file.read_model`."""
    command_limit: tuple[float, ...] = ()
    """(7,) If given, controls are torques beyond those that hold the start, up to this [N m]; (): whole torques."""
    hanging: bool = False
    """Whether the loop hangs from the gripper in front of a peg, and is not clamped."""
    spring_parts: int = 0
    """Parts of a side of the loop with stiffnesses of their own (`springs`), links / 2 at most; 0: all joints are alike."""
    twist: bool = False
    """Whether every joint has a third angle phi about the link's own axis; the paper's two do not twist."""
    control_names = ARM
    control_units = ("N m",) * 7

    def __post_init__(self) -> None:
        if not 6 <= self.links <= MAX_LOOP_LINKS or self.links % 2:
            raise StructureError(f"a loop of {shown(self.links)} links: expected an even number in [6, {MAX_LOOP_LINKS}]")
        check_number("spring_parts", self.spring_parts, low=0, high=self.links // 2, whole=True)
        if len(self.start) != len(ARM):
            raise StructureError(f"start has {len(self.start)} angles, expected {len(ARM)}")
        if len(self.servo_stiffness) != len(ARM):
            raise StructureError(f"servo_stiffness has {len(self.servo_stiffness)} numbers, expected {len(ARM)}")
        if len(self.command_limit) not in (0, len(ARM)):
            raise StructureError(f"command_limit has {len(self.command_limit)} numbers, expected none or {len(ARM)}")
        for name in ("servo_stiffness", "command_limit"):
            for value in getattr(self, name):
                check_number(f"{name} has an entry that", value, low=0.0)
        for name in ("servo_damping", "command_margin"):
            check_number(name, getattr(self, name), low=0.0)
        for name, (low, high, unit) in SIZES.items():
            check_number(name, getattr(self, name), low=low, high=high, unit=unit)
        if self.tube_radius >= self.radius:
            raise StructureError(f"tube_radius is {self.tube_radius} m, expected less than radius, {self.radius} m")
        if self.own_arm is not None:
            _check_arm(self.own_arm)
        self._check_start()

    def _check_start(self) -> None:
        """Raise `StructureError` unless the arm can stand at `start`, by its limits."""
        for name, angle, low, high in zip(ARM, self.start, *self.limits, strict=True):
            if not low <= check_number(f"start of {name}", angle, unit="rad") <= high:
                raise StructureError(f"start has {name} at {angle} rad, expected within the joint's limits [{low}, {high}] rad")

    @property
    def link_length(self) -> float:
        """Length of a link, 2 R sin(pi / links) [m]."""
        return 2 * self.radius * sin(pi / self.links)

    @property
    def height(self) -> float:
        """Height of H over the clamp in a regular loop, 2 R cos(pi / links) [m]."""
        return 2 * self.radius * cos(pi / self.links)

    @cached_property
    def arm(self) -> Tree:
        """Arm and gripper with frame H, without the loop."""
        if self.own_arm is not None:
            return self.own_arm
        return replace(load_tree(ARM_FILE), frames=(Frame("H", "gripper"),))

    @cached_property
    def clamp(self) -> tuple[float, ...]:
        """Pose of the clamp (6,): x, y, z [m], roll, pitch, yaw [rad]; below H, turned as H.

        For a hanging loop: pose of the peg, whose tip is `PEG_TIP` of the loop's middle, and which extends along its z.
        """
        turn, origin = frame_pose(self.arm, "H", dict(zip(ARM, self.start, strict=True)))
        if self.hanging:
            place = origin + turn @ np.array([-PEG_TIP, 0.0, 0.5 * self.height])
            turn = turn @ np.array([[0.0, 0.0, -1.0], [1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
            return (*(float(value) for value in place), *roll_pitch_yaw(turn))
        place = origin + turn @ np.array([0.0, 0.0, self.height])
        return (*(float(value) for value in place), *roll_pitch_yaw(turn))

    @cached_property
    def tree(self) -> Tree:
        """Arm, both branches and the welds that close them; q = (arm, left, right), each joint theta, psi."""
        bodies, joints, frames, welds = list(self.arm.bodies), self._held_arm(), list(self.arm.frames), []
        bodies.append(link(self, "grip", 1.0, 0.0))
        joints.append(Joint("grip", "fixed", "gripper", "grip", rpy=(pi / 2, 0.0, 0.0)))
        for side, sign in zip(SIDES, (1, -1), strict=True):
            more_bodies, more_joints = branch(self, side, sign)
            bodies += more_bodies
            joints += more_joints
            end = Frame(f"N_{side}", more_bodies[-1].name, (0.0, 0.0, self.link_length / 2), (-sign * pi / 2, 0.0, 0.0))
            frames.append(end)
            welds.append(Weld(f"clamp_{side}", end.name, CLAMP[:3], CLAMP[3:]))
        fall = (0.0, 0.0, "gravity_z")
        name = f"loop{self.links}"
        if not self.hanging:
            return Tree(name, tuple(bodies), tuple(joints), tuple(frames), tuple(welds), ARM, fall)
        bond = Bond("closed", *(f"N_{side}" for side in SIDES))
        peg = Peg("peg", CLAMP[:3], CLAMP[3:], PEG_LENGTH, PEG_RADIUS, PEG_STIFFNESS, PEG_SOFTNESS)
        return Tree(name, tuple(bodies), tuple(joints), tuple(frames), (bond,), ARM, fall, balls(self), (peg,))

    @property
    def defaults(self) -> np.ndarray:
        """Values of `parameter_names` (P,): stiffness as identified in the paper, damping that its integrator needs."""
        return np.asarray(self.tree_constants(self.parameters_class().to_matrix(1))[0])

    @property
    def parameters_class(self) -> type[Parameters]:
        """Class of the parameters that can be identified."""
        from .parameters import loop_parameters

        return loop_parameters(self.spring_parts, self.twist)

    @cached_property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the tree's parameters: `PARAMETERS`, those of twist, and the stiffness of every part."""
        return (*PARAMETERS, *(TWIST if self.twist else ()), *(f"spring_{name}" for name in factor_names(self.spring_parts)))

    def tree_constants(self, parameter_values: Array) -> Array:
        """Values of `parameter_names` (B, P) for `LoopParameters`: the clamp's shift, gravity downwards, factors."""
        parts = [parameter_values[:, : len(PARAMETERS)] * SIGNS + self._added]
        parts += [parameter_values[:, self._twist_columns]] if self.twist else []
        parts += [spring_values(parameter_values, self.spring_parts)] if self.spring_parts else []
        return np.hstack(parts) if parts[1:] else parts[0]

    def tree_slopes(self, parameter_values: Array) -> Array:
        """Derivatives of `tree_constants` by the columns of `LoopParameters`, of which there are P', (B, P, P')."""
        rows, width = parameter_values.shape
        own = np.zeros((rows, len(PARAMETERS), width))
        own[:, np.arange(len(PARAMETERS)), np.arange(len(PARAMETERS))] = SIGNS
        twist = np.tile(np.eye(width)[self._twist_columns if self.twist else []], (rows, 1, 1))
        return np.concatenate([own, twist, spring_slopes(parameter_values, self.spring_parts)], axis=1)

    @cached_property
    def _twist_columns(self) -> list[int]:
        """Columns of the twist parameters in `parameters_class`."""
        return [self.parameters_class.names().index(name) for name in TWIST]

    @cached_property
    def _added(self) -> Array:
        """Parameters that the model adds: its controller's damping, the torques that hold the start, and the clamp's place."""
        added = replace(self, command_limit=()).hold if self.command_limit else np.zeros(len(ARM))
        return np.array([*(0.0,) * 4, self.servo_damping, *np.zeros(len(ARM)), *added, *self.clamp, 0.0])

    # --- As a simulator's structure -----------------------------------------------------------------------------------

    @cached_property
    def layout(self) -> StateLayout:
        """Layout: s0 .. w2, left0.theta, left0.psi (and left0.phi), .. of all joints, then their speeds vs0 .. right5.vpsi."""
        count, fields = self.links // 2, []
        angles = ("theta", "psi", "phi")[: self.turns]
        for v, unit in (("", "rad"), ("v", "rad/s")):
            fields.append(Field("", None, (" ".join(v + name for name in ARM), unit)))
            fields += [Field(side, count, (" ".join(v + name for name in angles), unit)) for side in SIDES]
        return StateLayout(*fields)

    @property
    def n(self) -> int:
        """Number of angles: 7 + 2 (2 links / 2), or 7 + 3 (2 links / 2)."""
        return len(ARM) + self.turns * self.links

    @property
    def turns(self) -> int:
        """Angles per joint of the loop."""
        return 3 if self.twist else 2

    @cached_property
    def limits(self) -> tuple[Array, Array]:
        """Lowest and highest angles of the arm, each (7,) [rad]; not enforced by the mechanics."""
        joints = {joint.name: joint for joint in self.arm.joints}
        return np.array([joints[name].lower for name in ARM]), np.array([joints[name].upper for name in ARM])

    @cached_property
    def control_bounds(self) -> tuple[Array, Array]:
        """Bounds (7,) [N m]: motor efforts or `command_limit`, plus `command_margin`."""
        joints = {joint.name: joint for joint in self.arm.joints}
        effort = np.array(self.command_limit or [joints[name].effort for name in ARM])
        effort += self.command_margin * np.array(self.servo_stiffness)
        return -effort, effort

    @cached_property
    def mechanism(self) -> Mechanism:
        """Mechanism of the tree, for rest states and places; its step is not used."""
        return Mechanism(self.tree, 0.01, self.parameter_names)

    def relax(self, arm: Array, parameter_values: Array, *, tries: int = 8) -> tuple[Array, Array]:
        """Rest of the loop while the arm is held: angles q (B, n), and torques that hold it (B, 7) [N m].

        The arm is led from `start` to its pose, and the clamp to its place, in `tries` parts if one is too much.

        Args:
            arm: Poses (B, 7) [rad].
            parameter_values: Values of `PARAMETERS` (B, P).
            tries: Parts of the way at most.

        Raises:
            StructureError: The loop does not reach that far.
        """
        arm, own = np.asarray(arm, dtype=np.float64), self.defaults
        found, needed = np.empty((len(arm), self.n)), np.empty((len(arm), len(ARM)))
        for row in range(len(arm)):
            for parts in (1, tries):
                q = np.zeros((1, self.n))
                for part in np.arange(1, parts + 1) / parts:
                    q[0, : len(ARM)] = (1 - part) * np.array(self.start) + part * arm[row]
                    rest = self.mechanism.rest(q, parameter_values=(1 - part) * own + part * parameter_values[row], held=ARM)
                    q = rest.q
                if rest.status[0] == Status.OK:
                    break
            else:
                raise StructureError(f"the loop does not reach a gripper with the arm at {arm[row].round(3).tolist()} rad")
            found[row], needed[row] = rest.q[0], rest.needed[0, : len(ARM)]
        return found, needed

    @cached_property
    def _rest(self) -> tuple[Array, Array]:
        return self.relax(np.array([self.start]), self.defaults[None])

    @property
    def hold(self) -> Array:
        """Torques that hold arm and loop at `start` (7,) [N m]."""
        return self._rest[1][0].copy()

    def rest_state(self) -> Array:
        """State at `start`, the loop relaxed (nx,); without the torques `hold` the arm falls."""
        return np.concatenate([self._rest[0][0], np.zeros(self.n)])

    def nodes(self, state: Array) -> Array:
        """Places of the loop's joints, left side from the gripper to the clamp, then right: (B, nx) -> (B, links, 3) [m]."""
        return self.mechanism.origins(state[:, : self.n])[:, self.node_coordinates]

    @cached_property
    def node_coordinates(self) -> np.ndarray:
        """Coordinates whose links begin at the loop's joints, (links,): left side, then right."""
        return len(ARM) + self.turns * np.arange(self.links)

    # --- Parts of the tree --------------------------------------------------------------------------------------------

    def _held_arm(self) -> list[Joint]:
        """Joints of the arm with the springs of its controller."""
        springs = {name: {"stiffness": k, "rest": q} for name, k, q in zip(ARM, self.servo_stiffness, self.start, strict=True)}
        return [replace(joint, **springs.get(joint.name, {})) for joint in self.arm.joints]  # type: ignore[arg-type]


def _check_arm(arm: Tree) -> None:
    """Raise `StructureError` unless an arm can take the place of Baxter's."""
    if arm.actuated != ARM or {joint.name for joint in arm.moving} != set(ARM):
        raise StructureError(f"arm {arm.name!r} moves {', '.join(arm.coordinates)}, expected the joints {', '.join(ARM)}")
    for joint in arm.moving:
        if joint.kind != "revolute" or not np.isfinite(joint.effort) or joint.effort <= 0:
            raise StructureError(
                f"arm {arm.name!r}: joint {joint.name!r} is {joint.kind} with an effort of {joint.effort}, "
                "expected revolute with a finite positive one"
            )
    if arm.frame("H").body != "gripper" or arm.constraints:
        raise StructureError(f"arm {arm.name!r}: frame H must be on a body 'gripper', and no constraints close it")


def baxter6() -> LoopModel:
    """The paper's loop of 6 links: the arm's pose determines it."""
    return LoopModel(6)


def baxter12() -> LoopModel:
    """The paper's loop of 12 links."""
    return LoopModel(12)


def hanging12() -> LoopModel:
    """A small loop of 12 links, not clamped, in front of a peg."""
    return LoopModel(12, radius=0.07, hanging=True)


def baxter24() -> LoopModel:
    """A finer loop."""
    return LoopModel(24)
