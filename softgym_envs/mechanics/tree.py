r"""Trees of rigid bodies as data: bodies, joints, frames, and the constraints that close their loops.

Every joint carries one body, its child, and has at most one coordinate; a body with several joint angles is a chain through
massless bodies. A number of the description may be the *name* of a parameter instead: then its value is part of the vector of
parameters that a step takes, and can be identified. Lengths in m, angles in rad, masses in kg; `xyz` and `rpy` place a frame in
its parent, with R = R_z(yaw) R_y(pitch) R_x(roll) as in URDF.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from ..core.errors import StructureError
from .checks import check_known, check_name, check_unique, check_values

Value = float | str
"""A number, or the name of the parameter that holds it."""
Triple = tuple[float, float, float]
ValueTriple = tuple[Value, Value, Value]

WORLD = "world"
"""Name of the ground, the root of every tree."""
KINDS = ("revolute", "prismatic", "fixed")
ORIGIN: Triple = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Body:
    """A rigid body; without mass it is a frame between two joints.

    Raises:
        StructureError: Negative mass, or an inertia that no rigid body has.
    """

    name: str
    mass: float = 0.0
    """[kg]"""
    com: Triple = ORIGIN
    """Centre of mass in the body's frame [m]."""
    inertia: tuple[float, ...] = ORIGIN
    """Inertia about the centre of mass, along the body's axes [kg m^2]: (xx, yy, zz) or (xx, yy, zz, xy, xz, yz)."""
    scale: Value = 1.0
    """Factor of mass and inertia [-]."""

    def __post_init__(self) -> None:
        where = f"body {self.name!r}"
        check_name(where, self.name)
        check_values(where, "mass", self.mass, low=0.0)
        check_values(where, "com", *self.com, count=3)
        check_values(where, "inertia", *self.inertia)
        check_values(where, "scale", self.scale, low=0.0, named=True)
        if len(self.inertia) not in (3, 6):
            raise StructureError(
                f"{where}: inertia has {len(self.inertia)} numbers, expected (xx, yy, zz) or these and (xy, xz, yz)"
            )
        moments = np.linalg.eigvalsh(self.inertia_matrix)
        if moments[0] < -1e-9 * moments[2] or moments[0] + moments[1] < (1 - 1e-6) * moments[2]:
            raise StructureError(
                f"{where}: principal moments {moments.tolist()} belong to no rigid body (each <= sum of the others)"
            )
        if self.mass == 0 and np.any(moments != 0):
            raise StructureError(f"{where}: has inertia but no mass")

    @property
    def inertia_matrix(self) -> np.ndarray:
        """Inertia about the centre of mass, (3, 3) [kg m^2]."""
        xx, yy, zz, xy, xz, yz = (*self.inertia, 0.0, 0.0, 0.0)[:6]
        return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]], dtype=np.float64)


@dataclass(frozen=True)
class Joint:
    """Carries `child` on `parent`: first the fixed placement `xyz`, `rpy`, then a motion q along or about `axis`.

    Raises:
        StructureError: Unknown kind, zero axis, numbers out of range.
    """

    name: str
    kind: str
    parent: str
    child: str
    axis: Triple = (0.0, 0.0, 1.0)
    """Axis in the child's frame; need not have length 1."""
    xyz: Triple = ORIGIN
    rpy: Triple = ORIGIN
    lower: float = -inf
    """Limits of q [rad, m], effort [N m, N] and speed [rad/s, m/s]: for information, but for `stop_stiffness`."""
    upper: float = inf
    effort: float = inf
    velocity: float = inf
    damping: Value = 0.0
    """d in the force -d q' [N m s/rad, N s/m]."""
    friction: Value = 0.0
    """Dry friction f in the force -f tanh(q' / w), w = `friction_speed` [N m, N]."""
    friction_speed: float = 0.02
    """Speed [rad/s, m/s] below which dry friction acts as damping: nothing sticks forever, and all has derivatives."""
    stiffness: Value = 0.0
    """k in the energy k (q - rest)^2 / 2 [N m/rad, N/m]."""
    rest: Value = 0.0
    """Coordinate q without spring force [rad, m]."""
    armature: Value = 0.0
    """a in the kinetic energy a q'^2 / 2, as of a geared motor [kg m^2, kg]."""
    offset: Value = 0.0
    """Force added to the control [N m, N]."""
    stop_stiffness: float = 0.0
    """k of the stops at `lower` and `upper`, springs that push back beyond them (`stops`); 0: none [N m/rad, N/m]."""
    stop_softness: float = 0.02
    """Excess over which a stop's stiffness begins [rad, m]."""

    def __post_init__(self) -> None:
        where = f"joint {self.name!r}"
        check_name(where, self.name)
        if self.kind not in KINDS:
            raise StructureError(f"{where}: kind is {self.kind!r}, expected one of {', '.join(KINDS)}")
        for name, triple in (("axis", self.axis), ("xyz", self.xyz), ("rpy", self.rpy)):
            check_values(where, name, *triple, count=3)
        for name in ("damping", "stiffness", "armature"):
            check_values(where, name, getattr(self, name), low=0.0, named=True)
        check_values(where, "rest", self.rest, named=True)
        check_values(where, "offset", self.offset, named=True)
        check_values(where, "friction", self.friction, low=0.0, named=True)
        check_values(where, "friction_speed", self.friction_speed, low=1e-6)
        check_values(where, "stop_stiffness", self.stop_stiffness, low=0.0)
        check_values(where, "stop_softness", self.stop_softness, low=1e-6)
        if not any(self.axis):
            raise StructureError(f"{where}: axis is zero")
        if not self.lower <= self.upper:
            raise StructureError(f"{where}: limits are [{self.lower}, {self.upper}], expected lower <= upper")
        if not (self.effort >= 0 and self.velocity >= 0):
            raise StructureError(f"{where}: effort {self.effort} and velocity {self.velocity} must not be negative")


@dataclass(frozen=True)
class Frame:
    """A named placement on a body (or on the world)."""

    name: str
    body: str
    xyz: Triple = ORIGIN
    rpy: Triple = ORIGIN

    def __post_init__(self) -> None:
        where = f"frame {self.name!r}"
        check_name(where, self.name)
        check_values(where, "xyz", *self.xyz, count=3)
        check_values(where, "rpy", *self.rpy, count=3)


@dataclass(frozen=True)
class Weld:
    """Fixes a frame at a pose of the world: h = (r - xyz, x.Y, x.Z, y.Z), 6 rows; x, y of the frame, Y, Z of the pose.

    The rows also vanish where the frame is turned half around an axis of the pose: start near the right solution.
    """

    name: str
    frame: str
    xyz: ValueTriple = ORIGIN
    rpy: ValueTriple = ORIGIN
    rows = 6

    def __post_init__(self) -> None:
        check_name(f"weld {self.name!r}", self.name)
        check_values(f"weld {self.name!r}", "xyz", *self.xyz, count=3, named=True)
        check_values(f"weld {self.name!r}", "rpy", *self.rpy, count=3, named=True)


@dataclass(frozen=True)
class Pin:
    """Holds the origins of two frames together: h = r_first - r_second, 3 rows."""

    name: str
    first: str
    second: str
    rows = 3

    def __post_init__(self) -> None:
        check_name(f"pin {self.name!r}", self.name)


@dataclass(frozen=True)
class Bond:
    """Holds two frames together, place and rotation: h = (r_first - r_second, x.Y, x.Z, y.Z), 6 rows; Y, Z of the second.

    The rows also vanish where one frame is turned half around an axis of the other: start near the right solution.
    """

    name: str
    first: str
    second: str
    rows = 6

    def __post_init__(self) -> None:
        check_name(f"bond {self.name!r}", self.name)


@dataclass(frozen=True)
class Ball:
    """A sphere that rides on a body and touches all pegs."""

    name: str
    body: str
    xyz: Triple = ORIGIN
    radius: float = 0.0
    """[m]"""

    def __post_init__(self) -> None:
        where = f"ball {self.name!r}"
        check_name(where, self.name)
        check_values(where, "xyz", *self.xyz, count=3)
        check_values(where, "radius", self.radius, low=0.0)


@dataclass(frozen=True)
class Peg:
    """A rod with round ends that stands in the world, from its pose along z; balls touch it without friction, see `contact`."""

    name: str
    xyz: ValueTriple = ORIGIN
    rpy: ValueTriple = ORIGIN
    length: float = 0.1
    """Length between the centres of its ends [m]."""
    radius: float = 0.02
    """[m]"""
    stiffness: float = 1000.0
    """Stiffness of the contact [N/m]."""
    softness: float = 0.002
    """Depth up to which stiffness grows [m]."""

    def __post_init__(self) -> None:
        where = f"peg {self.name!r}"
        check_name(where, self.name)
        check_values(where, "xyz", *self.xyz, count=3, named=True)
        check_values(where, "rpy", *self.rpy, count=3, named=True)
        for name in ("length", "radius", "stiffness", "softness"):
            check_values(where, name, getattr(self, name), low=0.0)
        if not (self.radius > 0 and self.softness > 0):
            raise StructureError(f"{where}: radius {self.radius} and softness {self.softness} must be positive")


@dataclass(frozen=True)
class Tree:
    """Bodies on joints that grow from the world; see the module docstring.

    >>> arm = Joint("hinge", "revolute", "world", "rod", axis=(0.0, 1.0, 0.0), damping="friction")
    >>> tree = Tree("pendulum", (Body("rod", mass=1.0, com=(0.0, 0.0, -0.5)),), (arm,), actuated=("hinge",))
    >>> tree.coordinates, tree.parameter_names
    (('hinge',), ('friction',))

    Raises:
        StructureError: Names that are unknown or occur twice, joints that form a circle, bodies without a joint.
    """

    name: str
    bodies: tuple[Body, ...]
    joints: tuple[Joint, ...]
    frames: tuple[Frame, ...] = ()
    constraints: tuple[Weld | Pin | Bond, ...] = ()
    actuated: tuple[str, ...] = ()
    """Joints with a control, in the order of the controls."""
    gravity: ValueTriple = (0.0, 0.0, -9.81)
    """[m/s^2]"""
    balls: tuple[Ball, ...] = ()
    pegs: tuple[Peg, ...] = ()

    def __post_init__(self) -> None:
        check_values(f"tree {self.name!r}", "gravity", *self.gravity, count=3, named=True)
        kinds: tuple[tuple[str, tuple[Any, ...]], ...] = (
            ("body", self.bodies), ("joint", self.joints), ("frame", self.frames), ("constraint", self.constraints),
            ("ball", self.balls), ("peg", self.pegs),
        )  # fmt: skip
        for kind, parts in kinds:
            check_unique(kind, [part.name for part in parts])
        check_unique("actuated joint", list(self.actuated))
        if not any(joint.kind != "fixed" for joint in self.joints):
            raise StructureError(f"tree {self.name!r} has no joint that moves")
        self._check_references()
        self._check_descent()

    @cached_property
    def ordered(self) -> tuple[Joint, ...]:
        """All joints, parents before their children, otherwise in the order given."""
        found: list[Joint] = []
        reached, left = {WORLD}, list(self.joints)
        while left:
            joint = next(joint for joint in left if joint.parent in reached)
            left.remove(joint)
            reached.add(joint.child)
            found.append(joint)
        return tuple(found)

    @cached_property
    def moving(self) -> tuple[Joint, ...]:
        """The joints with a coordinate, in the order of q (n)."""
        return tuple(joint for joint in self.ordered if joint.kind != "fixed")

    @cached_property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the joints in the order of q (n)."""
        return tuple(joint.name for joint in self.moving)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of parameters that the description uses, sorted."""
        values: list[Value] = [*self.gravity, *(body.scale for body in self.bodies)]
        for joint in self.joints:
            values += [joint.damping, joint.stiffness, joint.rest, joint.armature, joint.offset]
        for weld in self.constraints:
            values += [*weld.xyz, *weld.rpy] if isinstance(weld, Weld) else []
        for peg in self.pegs:
            values += [*peg.xyz, *peg.rpy]
        return tuple(sorted({value for value in values if isinstance(value, str)}))

    def frame(self, name: str) -> Frame:
        """The frame of that name.

        Raises:
            StructureError: There is none.
        """
        check_known("frame", name, [frame.name for frame in self.frames])
        return next(frame for frame in self.frames if frame.name == name)

    def _check_references(self) -> None:
        movable = dict.fromkeys(body.name for body in self.bodies)
        bodies = {WORLD: None, **movable}
        if WORLD in movable:
            raise StructureError(f"a body is called {WORLD!r}, which is the name of the ground")
        for joint in self.joints:
            check_known(f"parent of joint {joint.name!r}", joint.parent, bodies)
            check_known(f"child of joint {joint.name!r}", joint.child, movable)
        for frame in self.frames:
            check_known(f"body of frame {frame.name!r}", frame.body, bodies)
        for ball in self.balls:
            check_known(f"body of ball {ball.name!r}", ball.body, movable)
        frames = [frame.name for frame in self.frames]
        for constraint in self.constraints:
            for name in [constraint.frame] if isinstance(constraint, Weld) else [constraint.first, constraint.second]:
                check_known(f"frame of constraint {constraint.name!r}", name, frames)
        turning = dict.fromkeys(joint.name for joint in self.joints if joint.kind != "fixed")
        for name in self.actuated:
            check_known("actuated joint", name, turning)

    def _check_descent(self) -> None:
        """Check that every body hangs on one joint, and through its parents on the world."""
        children = Counter(joint.child for joint in self.joints)
        for body in self.bodies:
            if children[body.name] != 1:
                raise StructureError(
                    f"body {body.name!r} is the child of {children[body.name]} joints, expected 1; "
                    "close a loop by a constraint (Weld or Pin)"
                )
        parent = {joint.child: joint.parent for joint in self.joints}
        hanging = {WORLD}
        for body in self.bodies:
            path, name = dict.fromkeys([body.name]), body.name
            while name not in hanging:
                name = parent[name]
                if name in path:
                    names = [*path, name]
                    circle = " -> ".join(names[names.index(name) :])
                    raise StructureError(f"bodies carry each other in a circle: {circle}; close a loop by a constraint instead")
                path[name] = None
            hanging.update(path)
