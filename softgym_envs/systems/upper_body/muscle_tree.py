"""Muscles on a tree of hinges as arrays, for the kernels in `muscle_kernels`.

Legend: b bodies, p points, k pieces, s surfaces, m muscles.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...core.errors import StructureError
from ...mechanics.placement import frame_pose
from ...mechanics.structure import rotation
from ...mechanics.tree import WORLD, Frame, Tree
from ...muscles.paths import Muscles
from ...muscles.routes import Routes

STRAIGHT, CYLINDER, SPHERE = 0, 1, 2
KINDS = {"cylinder": CYLINDER, "sphere": SPHERE}


class MuscleTree(NamedTuple):
    """Arrays that the kernels read; bodies are those that muscles pull, and all that carry them."""

    parent: np.ndarray
    """(b,) parent of a body, of lower index; -1: the world."""
    coordinate: np.ndarray
    """(b,) coordinate of the hinge that turns a body; -1: none."""
    shift: np.ndarray
    """(b, 3) place of the joint in the parent's frame [m]."""
    turn: np.ndarray
    """(b, 3, 3) rotation of the joint in the parent's frame."""
    axis: np.ndarray
    """(b, 3)"""
    body: np.ndarray
    """(p,) body that a point rides on; -1: the world."""
    point: np.ndarray
    """(p, 3) point in its frame [m]."""
    piece: np.ndarray
    """(k, 4): muscle, first point, kind, surface; the second point is the next one."""
    surface: np.ndarray
    """(s,) body of every surface."""
    place: np.ndarray
    """(s, 3) [m]"""
    stand: np.ndarray
    """(s, 3, 3)"""
    radius: np.ndarray
    """(s,) [m]"""
    side: np.ndarray
    """(k, 2) for a cylinder: a point in its frame on the side where the muscle passes [m]."""
    numbers: np.ndarray
    """(m, 3): force [N], optimal and slack length [m]."""


def muscle_tree(routes: Routes) -> MuscleTree:
    """The arrays of muscles on a tree.

    Raises:
        StructureError: A muscle says no force or lengths, a piece goes around more than one surface, or around one that is
            neither cylinder nor sphere, or begins or ends inside of it with all angles 0, or a joint slides.
    """
    tree, muscles = routes.tree, routes.muscles
    carrier = {joint.child: joint for joint in tree.ordered}
    wanted = {surface.body for surface in muscles.surfaces} | {body for m in muscles.muscles for body, _ in m.points}
    for body in list(wanted):
        while body != WORLD:
            wanted.add(body)
            body = carrier[body].parent
    joints = [joint for joint in tree.ordered if joint.child in wanted]
    index = {WORLD: -1, **{joint.child: i for i, joint in enumerate(joints)}}
    if any(joint.kind == "prismatic" for joint in joints):
        raise StructureError(f"tree {tree.name!r}: muscles pull at bodies that a slide carries; expected hinges")
    bodies, pieces, sides = [], [], []
    points: list[tuple[float, float, float]] = []
    names = [surface.name for surface in muscles.surfaces]
    for k, muscle in enumerate(muscles.muscles):
        if muscle.kind != "hill":
            raise StructureError(f"muscle {muscle.name!r} is {muscle.kind}; a body's are hill, only an elbow's may be others")
        if muscle.force is None or muscle.optimal is None:
            raise StructureError(f"muscle {muscle.name!r} has no force or no optimal length")
        for piece in range(len(muscle.points) - 1):
            around = muscle.around(piece)
            kinds = [muscles.surface(muscle.surfaces[i]).kind for i in around]
            if len(kinds) > 1 or not set(kinds) <= set(KINDS):
                raise StructureError(
                    f"muscle {muscle.name!r}: piece {piece} goes around {kinds}, expected a cylinder or a sphere"
                )
            kind, surface = (KINDS[kinds[0]], names.index(muscle.surfaces[around[0]])) if kinds else (STRAIGHT, 0)
            pieces.append((k, len(points) + piece, kind, surface))
            sides.append(muscle.sides[around[0]][:2] if kinds else (0.0, 0.0))
        bodies += [index[body] for body, _ in muscle.points]
        points += [place for _, place in muscle.points]
    _check_outside(routes)
    axes = [np.array(joint.axis) / np.linalg.norm(joint.axis) for joint in joints]
    surfaces = muscles.surfaces
    return MuscleTree(
        np.array([index[joint.parent] for joint in joints]),
        np.array([tree.coordinates.index(j.name) if j.kind == "revolute" else -1 for j in joints]),
        np.array([joint.xyz for joint in joints]), np.array([rotation(joint.rpy) for joint in joints]), np.array(axes),
        np.array(bodies), np.array(points), np.array(pieces), np.array([index[s.body] for s in surfaces], dtype=np.int64),
        np.array([s.xyz for s in surfaces]).reshape(-1, 3), np.array([rotation(s.rpy) for s in surfaces]).reshape(-1, 3, 3),
        np.array([s.size[0] for s in surfaces]), np.array(sides),
        np.array([m.numbers for m in muscles.muscles]),
    )  # fmt: skip


def passed(tree: Tree, muscles: Muscles) -> frozenset[str]:
    """Joints that move one part of a muscle against another."""
    above: dict[str, frozenset[str]] = {WORLD: frozenset()}
    for joint in tree.ordered:
        above[joint.child] = above[joint.parent] | ({joint.name} if joint in tree.moving else frozenset())
    found: frozenset[str] = frozenset()
    for muscle in muscles.muscles:
        bodies = [*(body for body, _ in muscle.points), *(muscles.surface(name).body for name in muscle.surfaces)]
        found |= frozenset.union(*(above[body] for body in bodies)) - frozenset.intersection(*(above[body] for body in bodies))
    return found


def _check_outside(routes: Routes) -> None:
    """Raises a StructureError where a path would go through a surface that it is to go around."""
    tree, muscles = routes.tree, routes.muscles
    for muscle in muscles.muscles:
        for k in range(len(muscle.points) - 1):
            for i in muscle.around(k):
                surface = muscles.surface(muscle.surfaces[i])
                marks = [Frame(f"end{e}", body, place) for e, (body, place) in enumerate(muscle.points[k : k + 2])]
                marked = replace(tree, frames=(Frame("around", surface.body, surface.xyz, surface.rpy), *marks))
                turn, centre = frame_pose(marked, "around", {})
                for mark in marks:
                    off = turn.T @ (frame_pose(marked, mark.name, {})[1] - centre)
                    distance = np.linalg.norm(off if surface.kind == "sphere" else off[:2])
                    if distance <= surface.size[0]:
                        raise StructureError(
                            f"muscle {muscle.name!r} goes through surface {surface.name!r}: its point {list(mark.xyz)} on "
                            f"{mark.body!r} is {distance:.4g} m from the middle, the radius is {surface.size[0]:g} m"
                        )
