"""An elbow's numbers in its plane of motion, from a tree and its muscles; errors name what does not fit.

The elbow is the origin of the world and turns about -y, the muscles stay in planes of x and z. Points are those of a stretched
arm, at an angle of 0.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...core.errors import StructureError
from ...core.simulator import Array
from ...mechanics.checks import check_known
from ...mechanics.placement import frame_pose
from ...mechanics.structure import rotation
from ...mechanics.tree import ORIGIN, WORLD, Body, Frame, Joint, Tree, Triple
from ...muscles.paths import Muscle, Muscles
from .elbow import Elbow, Wrapped

HAND = "hand"
"""Frame that is shown, and whose path is followed."""
TREE_CONSTANTS = ("damping", "friction", "payload")
"""Parameters allowed for the hinge's damping and dry friction, and for the load's `scale`."""
SLIGHT = 1e-9
"""Values below this count as zero, for directions [-] and places [m]."""


def hinge_of(tree: Tree) -> Joint:
    """Joint of the elbow.

    Raises:
        StructureError: It is not the only joint that moves, not a hinge about -y in the origin, or has more than damping
            and dry friction.
    """
    where = f"tree {tree.name!r}"
    moving = [joint.name for joint in tree.moving]
    if len(moving) != 1 or tree.moving[0].kind != "revolute" or tree.constraints:
        raise StructureError(f"{where}: an elbow has one hinge and no constraints; here {', '.join(moving) or 'nothing'} moves")
    hinge = tree.moving[0]
    turn, place = stand(tree, hinge.child, ORIGIN)
    axis = turn @ np.array(hinge.axis) / np.linalg.norm(hinge.axis)
    if np.abs(axis - [0.0, -1.0, 0.0]).max() > SLIGHT or np.abs(place).max() > SLIGHT:
        raise StructureError(
            f"{where}: hinge {hinge.name!r} turns about {axis.round(4).tolist()} at {place.round(4).tolist()}; expected the "
            "elbow in the world's origin, about [0, -1, 0]: x forwards, z upwards"
        )
    if any((hinge.stiffness, hinge.armature, hinge.offset)):
        raise StructureError(
            f"{where}: hinge {hinge.name!r} has stiffness, armature or offset; an elbow has damping and dry friction"
        )
    if not -np.pi < hinge.lower < hinge.upper < np.pi:
        raise StructureError(f"{where}: hinge {hinge.name!r} turns from {hinge.lower} to {hinge.upper}; expected limits [rad]")
    unknown = [name for name in tree.parameter_names if name not in TREE_CONSTANTS]
    for what in ("damping", "friction"):
        if isinstance(getattr(hinge, what), str) and getattr(hinge, what) != what:
            unknown.append(f"{getattr(hinge, what)} as {what}")
    if unknown:
        raise StructureError(f"{where} uses parameters {', '.join(unknown)}; there are {', '.join(TREE_CONSTANTS)}")
    return hinge


def stand(tree: Tree, body: str, point: Triple) -> tuple[Array, Array]:
    """Rotation (3, 3) of a body in the world, and a point (3,) of its frame [m], at an angle of 0."""
    return frame_pose(replace(tree, frames=(Frame("here", body, point),)), "here", {})


def swung(tree: Tree) -> tuple[str, ...]:
    """Bodies that the elbow carries."""
    found = [hinge_of(tree).child]
    for joint in tree.ordered:
        if joint.parent in found:
            found.append(joint.child)
    return tuple(found)


class Forearm(NamedTuple):
    """Mass properties of all that the elbow moves, in a stretched arm."""

    mass: float
    """Mass without the load [kg]."""
    com: Array
    """Centre of mass (2,): x and z [m]."""
    inertia: float
    """Moment of inertia about the elbow [kg m^2]."""
    load: Array
    """Place of the load (3,) [m]."""


def forearm_of(tree: Tree) -> Forearm:
    """All bodies that the elbow carries, as one.

    Raises:
        StructureError: As for `hinge_of`; or there is no load, or a body of other scale, or nothing has inertia.
    """
    moved, where = swung(tree), f"tree {tree.name!r}"
    loads = [body for body in tree.bodies if body.scale == "payload"]
    if len(loads) != 1 or loads[0] != Body(loads[0].name, 1.0, scale="payload") or loads[0].name not in moved:
        raise StructureError(
            f"{where}: {len(loads)} bodies are scaled by 'payload'; expected one on the forearm, a point of mass 1, "
            "in the origin of its frame"
        )
    mass, inertia, moment = 0.0, 0.0, np.zeros(2)
    for body in tree.bodies:
        if isinstance(body.scale, str) and body is not loads[0]:
            raise StructureError(f"{where}: body {body.name!r} is scaled by {body.scale!r}; only the load is, by 'payload'")
        if body.name in moved and body is not loads[0]:
            turn, com = stand(tree, body.name, body.com)
            flat, own, factor = com[[0, 2]], body.mass * float(body.scale), float(body.scale)
            inertia += factor * (turn @ body.inertia_matrix @ turn.T)[1, 1] + own * float(np.dot(flat, flat))
            mass, moment = mass + own, moment + own * flat
    if inertia <= 0:
        raise StructureError(f"{where}: what the elbow moves has no inertia about it")
    return Forearm(mass, moment / mass, float(inertia), stand(tree, loads[0].name, ORIGIN)[1])


def elbow_numbers(tree: Tree, muscles: tuple[Wrapped, Wrapped], dt: float) -> Elbow:
    """Numbers of the equations.

    Raises:
        StructureError: As for `forearm_of`; no frame "hand" on the forearm, or no gravity in the plane.
    """
    hinge, forearm, where = hinge_of(tree), forearm_of(tree), f"tree {tree.name!r}"
    if tree.frame(HAND).body not in swung(tree):
        raise StructureError(f"{where}: frame {HAND!r} is on {tree.frame(HAND).body!r}, which the elbow does not move")
    numbers = [g for g in tree.gravity if not isinstance(g, str)]
    if len(numbers) < 3 or numbers[1] != 0 or not any(numbers):
        raise StructureError(f"{where}: gravity is {tree.gravity}, expected numbers in the plane of x and z")
    gravity = float(np.hypot(numbers[0], numbers[2]))
    down, load = np.array([numbers[0], numbers[2]]) / gravity, forearm.load[[0, 2]]
    moment = _parts(forearm.mass * forearm.com, down)
    return Elbow(
        *muscles,
        inertia=forearm.inertia,
        moment=moment,
        load=_parts(load, down),
        reach=float(np.hypot(*load)),
        gravity=gravity,
        lower=hinge.lower,
        upper=hinge.upper,
        creep=hinge.friction_speed,
        dt=dt,
    )


def _parts(place: Array, down: Array) -> tuple[float, float]:
    """Components of a place (2,) along gravity, and across it: forwards of what hangs."""
    return float(place @ down), float(place[1] * down[0] - place[0] * down[1])


def wrapped(tree: Tree, muscles: Muscles, muscle: Muscle) -> Wrapped:
    """Numbers of a muscle in the plane of motion.

    Raises:
        StructureError: It does not wrap around one cylinder about the elbow's axis, from a fixed point to a moving one, in
            the plane of motion; or it goes through its cylinder.
    """
    where, moved = f"muscle {muscle.name!r}", swung(tree)
    if len(muscle.surfaces) != 1 or muscle.via:
        raise StructureError(
            f"{where} wraps around {len(muscle.surfaces)} surfaces, with {len(muscle.via)} via points; "
            "expected one surface, and none"
        )
    surface, known = muscles.surface(muscle.surfaces[0]), [WORLD, *(body.name for body in tree.bodies)]
    for what, body in (("origin", muscle.origin_body), ("insertion", muscle.insertion_body), ("surface", surface.body)):
        check_known(f"{where}: body of its {what}", body, known)
    if muscle.origin_body in moved or muscle.insertion_body not in moved:
        raise StructureError(
            f"{where}: goes from {muscle.origin_body!r} to {muscle.insertion_body!r}; expected from a body that stands still "
            f"to one that the elbow moves, {', '.join(moved)}"
        )
    turn, centre = stand(tree, surface.body, surface.xyz)
    turn = turn @ rotation(surface.rpy)
    first, last = ends(tree, muscle)
    across = surface.kind != "cylinder" or np.abs(centre[[0, 2]]).max() > SLIGHT or abs(turn[1, 2]) < 1 - SLIGHT
    if across or abs(first[1] - last[1]) > SLIGHT:
        raise StructureError(f"{where} must wrap around a cylinder about the elbow's axis, in the plane of motion")
    a, b, radius = first[[0, 2]], last[[0, 2]], surface.size[0]
    for name, end in (("origin", a), ("insertion", b)):
        if np.linalg.norm(end) <= radius:
            raise StructureError(
                f"{where} goes through surface {surface.name!r}: its {name} is {np.linalg.norm(end):.4g} m from the elbow's "
                f"axis, the radius is {radius:g} m"
            )
    side = (turn @ np.array(muscle.sides[0]))[[0, 2]]
    # counter-clockwise past the side: flexion adds to the angle
    sign = 1.0 if a[0] * side[1] - a[1] * side[0] > 0 else -1.0
    angle = np.arctan2(sign * (a[0] * b[1] - a[1] * b[0]), a @ b) % (2 * np.pi)
    return Wrapped(float(np.linalg.norm(a)), float(np.linalg.norm(b)), float(angle), sign, muscle.pressure)


def ends(tree: Tree, muscle: Muscle) -> tuple[Array, Array]:
    """Origin and insertion of a muscle in the world, each (3,) [m], at an angle of 0."""
    return stand(tree, muscle.origin_body, muscle.origin)[1], stand(tree, muscle.insertion_body, muscle.insertion)[1]
