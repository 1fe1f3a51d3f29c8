"""A tree as the arrays that kernels read, and the index of each of its numbers in the vector of parameters.

Fixed joints vanish: their bodies ride on the last joint that moves. Legend: n coordinates, nb bodies with mass, nc constraints,
m constraint rows, nb2 balls, np pegs, nu controls, V values, P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.errors import OptionError, StructureError
from ..core.simulator import Array, check_number
from .elimination import eliminate
from .tree import WORLD, Body, Frame, Joint, Tree, Value, Weld

Places = NDArray[np.int64]
SPLITS = {"left": 1.0, "symmetric": 0.5}
"""Share of an interval's force impulse that acts at its beginning."""


class Skeleton(NamedTuple):
    """Arrays of a `TreeArrays` that place its links (`kernels.place_links`): each array costs 0.2 us per call of a kernel."""

    parent: Places
    prismatic: NDArray[np.bool_]
    origin: Array
    axis: Array
    turn: Array

    def up_to(self, joint: int) -> Skeleton:
        """The joints up to this one: all that carry it are among them."""
        n = joint + 1
        return Skeleton(self.parent[:n], self.prismatic[:n], self.origin[:n], self.axis[:n], self.turn[:n])


class TreeArrays(NamedTuple):
    """Arrays shared by all rows.

    Values: stiffness, rest, damping, armature, offset (n each), gravity (3), scale (nb), poses (6 nc), poses of pegs (6 np),
    friction (n).
    """

    dt: float
    early: float
    """Share of the force impulse at the beginning of a step: 1 as in the paper, 1/2 of second order."""
    base: Array
    """(V,) values that are numbers."""
    place: Places
    """(V,) index of a value in the parameters, or -1."""
    parent: Places
    """(n,) joint that carries this one, or -1; parents come first."""
    prismatic: NDArray[np.bool_]
    """(n,)"""
    slip: Array
    """(n,) w of dry friction [rad/s, m/s]."""
    origin: Array
    """(n, 3) origin in the parent's frame [m]."""
    axis: Array
    """(n, 3) unit vector in the parent's frame."""
    turn: Array
    """(n, 3, 9): rotation into the parent is turn_0 + cos(q) turn_1 + sin(q) turn_2 [Rodrigues]."""
    body: Places
    """(nb,) joint that a body rides on."""
    mass: Array
    """(nb,) [kg]"""
    com: Array
    """(nb, 3) in the joint's frame [m]."""
    inertia: Array
    """(nb, 9) about the centre of mass, in the joint's frame [kg m^2]."""
    weld: NDArray[np.bool_]
    """(nc,) a weld, or else a pin or a bond."""
    row: Places
    """(nc + 1,) first row of a constraint; the last is m."""
    ends: Places
    """(nc, 2) joints that its two frames ride on, or -1 for the world."""
    point: Array
    """(nc, 2, 3) origins of the two frames in the joints' frames [m]."""
    facing: Array
    """(nc, 2, 9) rotations of the two frames in the joints' frames."""
    ball_joint: Places
    """(nb2,) joint that a ball rides on."""
    ball: Array
    """(nb2, 4) centre of a ball in the joint's frame, and its radius [m]."""
    stopped: Places
    """(k,) joints with stops."""
    stop: Array
    """(k, 4) lower and upper limit [rad, m], stiffness, softness."""
    peg: Array
    """(np, 4) length, radius [m], stiffness [N/m], softness [m]."""
    actuated: Places
    """(nu,) joint of a control."""
    slot: NDArray[np.uint64]
    """(n + m,) indices of coordinates and constraint rows in a step's matrix; see `elimination`, as for the rest."""
    near: NDArray[np.uint64]
    """(n + m,)"""
    far: NDArray[np.uint64]
    """(n + m,)"""
    left: NDArray[np.uint64]
    """(n + m,)"""

    @property
    def skeleton(self) -> Skeleton:
        """Arrays that place the links."""
        return Skeleton(self.parent, self.prismatic, self.origin, self.axis, self.turn)


def compile_tree(tree: Tree, parameter_names: Sequence[str], dt: float, *, force_split: str = "left") -> TreeArrays:
    """Make the arrays of `tree`.

    Args:
        tree: The mechanism.
        parameter_names: Names of the P parameters in the order of their vector; the tree need not use all of them.
        dt: Step [s].
        force_split: "left", the impulse of forces acts at the beginning of the step (as in [Caldwell2014], first order);
            "symmetric", half at each end (second order).

    Raises:
        StructureError: The tree names a parameter that is not there.
        OptionError: `dt` or `force_split` is not allowed.
    """
    check_number("dt", dt, positive=True, unit="s")
    if force_split not in SPLITS:
        raise OptionError(f"force_split is {force_split!r}, expected one of {', '.join(SPLITS)}")
    for name in tree.parameter_names:
        if name not in parameter_names:
            raise StructureError(
                f"tree {tree.name!r} uses parameter {name!r}; the parameters are {', '.join(parameter_names) or 'none'}"
            )
    ride = _rides(tree)
    base, place = _values(tree, ride, list(parameter_names))
    parts: dict[str, Any] = {**_joints(tree, ride), **_bodies(tree, ride), **_ends(tree, ride), **_contacts(tree, ride)}
    order = eliminate(parts["parent"], parts["row"], parts["ends"])
    return TreeArrays(dt=float(dt), early=SPLITS[force_split], base=base, place=place, **parts, **order._asdict())


def with_numbers(s: TreeArrays, parameter_values: Array, free: Places) -> TreeArrays:
    """Fix parameters (P,) as numbers, except those at `free` (c,): these are then the only ones, in this order."""
    index = np.full(len(parameter_values) + 1, -1)
    index[free] = np.arange(len(free))
    number = (s.place >= 0) & (index[s.place] < 0)
    return s._replace(
        base=np.where(number, parameter_values[s.place], s.base), place=index[s.place]
    )  # the last entry is for -1


class Ride(NamedTuple):
    """A placement on a moving joint: its index (-1: the world), rotation (3, 3) and origin (3,) in its frame."""

    joint: int
    rotation: Array
    origin: Array

    def then(self, rotation: Array, xyz: Sequence[float]) -> Ride:
        """A placement given in this one."""
        return Ride(self.joint, self.rotation @ rotation, self.origin + self.rotation @ np.asarray(xyz))


def rotation(rpy: Sequence[float]) -> Array:
    """R_z(yaw) R_y(pitch) R_x(roll), (3, 3)."""
    (a, b, c), (i, j, k) = np.cos(rpy), np.sin(rpy)
    return np.array(
        [[b * c, i * j * c - a * k, a * j * c + i * k], [b * k, i * j * k + a * c, a * j * k - i * c], [-j, i * b, a * b]]
    )


def _rides(tree: Tree) -> dict[str, Ride]:
    """Find the placement of every body on the moving joints."""
    found = {WORLD: Ride(-1, np.eye(3), np.zeros(3))}
    index = {name: i for i, name in enumerate(tree.coordinates)}
    for joint in tree.ordered:
        moved = Ride(index.get(joint.name, 0), np.eye(3), np.zeros(3))
        found[joint.child] = found[joint.parent].then(rotation(joint.rpy), joint.xyz) if joint.kind == "fixed" else moved
    return found


def place_frame(tree: Tree, frame: Frame) -> Ride:
    """The joint that a frame rides on, and its placement there."""
    return _rides(tree)[frame.body].then(rotation(frame.rpy), frame.xyz)


def _joints(tree: Tree, ride: dict[str, Ride]) -> dict[str, Any]:
    """parent, prismatic, slip, origin, axis, turn, stopped, stop."""
    carriers = [ride[joint.parent].then(rotation(joint.rpy), joint.xyz) for joint in tree.moving]
    axes = [np.array(joint.axis) / np.linalg.norm(joint.axis) for joint in tree.moving]
    return {
        "parent": np.array([carrier.joint for carrier in carriers], dtype=np.int64),
        "prismatic": np.array([joint.kind == "prismatic" for joint in tree.moving]),
        "slip": np.array([joint.friction_speed for joint in tree.moving], dtype=np.float64),
        "origin": np.array([carrier.origin for carrier in carriers]),
        "axis": np.array([carrier.rotation @ axis for carrier, axis in zip(carriers, axes, strict=True)]),
        "turn": np.array([_turn(j, c.rotation, a) for j, c, a in zip(tree.moving, carriers, axes, strict=True)]),
        "stopped": np.array([i for i, joint in enumerate(tree.moving) if joint.stop_stiffness > 0], dtype=np.int64),
        "stop": np.array(
            [[j.lower, j.upper, j.stop_stiffness, j.stop_softness] for j in tree.moving if j.stop_stiffness > 0]
        ).reshape(-1, 4),
    }


def _turn(joint: Joint, fixed: Array, axis: Array) -> Array:
    """Rodrigues: R_0 (a a' + cos(q) (1 - a a') + sin(q) [a]x), (3, 9)."""
    if joint.kind == "prismatic":
        return np.array([fixed.ravel(), np.zeros(9), np.zeros(9)])
    along = np.outer(axis, axis)
    return np.array([(fixed @ part).ravel() for part in (along, np.eye(3) - along, np.cross(np.eye(3), axis))])


def _bodies(tree: Tree, ride: dict[str, Ride]) -> dict[str, Any]:
    """body, mass, com, inertia of the bodies that have mass and move."""
    bodies = _heavy(tree, ride)
    rides = [ride[body.name] for body in bodies]
    turned = [r.rotation @ body.inertia_matrix @ r.rotation.T for r, body in zip(rides, bodies, strict=True)]
    return {
        "body": np.array([r.joint for r in rides], dtype=np.int64),
        "mass": np.array([body.mass for body in bodies], dtype=np.float64),
        "com": np.array([r.then(np.eye(3), body.com).origin for r, body in zip(rides, bodies, strict=True)]).reshape(-1, 3),
        "inertia": np.array([inertia.ravel() for inertia in turned]).reshape(-1, 9),
    }


def _heavy(tree: Tree, ride: dict[str, Ride]) -> list[Body]:
    """Bodies that have mass and move."""
    return [body for body in tree.bodies if body.mass > 0 and ride[body.name].joint >= 0]


def _ends(tree: Tree, ride: dict[str, Ride]) -> dict[str, Any]:
    """weld, row, ends, point, facing, actuated."""
    ground = ride[WORLD]
    pairs = []
    for constraint in tree.constraints:
        names = [constraint.frame] if isinstance(constraint, Weld) else [constraint.first, constraint.second]
        rides = [place_frame(tree, tree.frame(name)) for name in names]
        pairs.append((*rides, ground)[:2])
        if rides[0].joint == rides[-1].joint == -1 or (not isinstance(constraint, Weld) and rides[0].joint == rides[1].joint):
            raise StructureError(f"constraint {constraint.name!r} holds nothing that can move")
    return {
        "weld": np.array([isinstance(constraint, Weld) for constraint in tree.constraints], dtype=np.bool_),
        "row": np.cumsum([0, *(constraint.rows for constraint in tree.constraints)]).astype(np.int64),
        "ends": np.array([[r.joint for r in pair] for pair in pairs], dtype=np.int64).reshape(-1, 2),
        "point": np.array([[r.origin for r in pair] for pair in pairs], dtype=np.float64).reshape(-1, 2, 3),
        "facing": np.array([[r.rotation.ravel() for r in pair] for pair in pairs], dtype=np.float64).reshape(-1, 2, 9),
        "actuated": np.array([tree.coordinates.index(name) for name in tree.actuated], dtype=np.int64),
    }


def _contacts(tree: Tree, ride: dict[str, Ride]) -> dict[str, Any]:
    """ball_joint, ball, peg."""
    rides = [ride[ball.body].then(np.eye(3), ball.xyz) for ball in tree.balls]
    for found, ball in zip(rides, tree.balls, strict=True):
        if found.joint < 0:
            raise StructureError(f"ball {ball.name!r} rides on {ball.body!r}, which does not move")
    balls = [[*r.origin, ball.radius] for r, ball in zip(rides, tree.balls, strict=True)]
    pegs = [[peg.length, peg.radius, peg.stiffness, peg.softness] for peg in tree.pegs]
    return {
        "ball_joint": np.array([r.joint for r in rides], dtype=np.int64),
        "ball": np.array(balls, dtype=np.float64).reshape(-1, 4),
        "peg": np.array(pegs, dtype=np.float64).reshape(-1, 4),
    }


def _values(tree: Tree, ride: dict[str, Ride], parameter_names: list[str]) -> tuple[Array, Places]:
    """base, place; see `TreeArrays`."""
    values: list[Value] = []
    for name in ("stiffness", "rest", "damping", "armature", "offset"):
        values += [getattr(joint, name) for joint in tree.moving]
    values += tree.gravity
    values += [body.scale for body in _heavy(tree, ride)]
    for constraint in tree.constraints:
        values += [*constraint.xyz, *constraint.rpy] if isinstance(constraint, Weld) else [0.0] * 6
    for peg in tree.pegs:
        values += [*peg.xyz, *peg.rpy]
    values += [joint.friction for joint in tree.moving]
    base = np.array([0.0 if isinstance(value, str) else value for value in values], dtype=np.float64)
    place = np.array([parameter_names.index(value) if isinstance(value, str) else -1 for value in values], dtype=np.int64)
    return base, place
