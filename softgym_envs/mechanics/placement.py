"""Poses of the frames of a tree, in NumPy: for building trees, before there is a mechanism."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..core.simulator import Array
from .structure import rotation
from .tree import WORLD, Tree


def frame_pose(tree: Tree, frame: str, q: Mapping[str, float]) -> tuple[Array, Array]:
    """Rotation (3, 3) and origin (3,) [m] of a frame in the world; coordinates that `q` does not name are zero.

    Raises:
        StructureError: There is no such frame.
    """
    found = {WORLD: (np.eye(3), np.zeros(3))}
    for joint in tree.ordered:
        turn, origin = found[joint.parent]
        origin, turn = origin + turn @ np.array(joint.xyz), turn @ rotation(joint.rpy)
        axis, value = np.array(joint.axis) / np.linalg.norm(joint.axis), q.get(joint.name, 0.0)
        if joint.kind == "prismatic":
            origin = origin + turn @ axis * value
        if joint.kind == "revolute":
            turn = turn @ about(axis, value)
        found[joint.child] = (turn, origin)
    wanted = tree.frame(frame)
    turn, origin = found[wanted.body]
    return turn @ rotation(wanted.rpy), origin + turn @ np.array(wanted.xyz)


def about(axis: Array, angle: float) -> Array:
    """exp(angle [a]x) = 1 + sin(angle) [a]x + (1 - cos(angle)) [a]x^2, (3, 3)."""
    skew = np.cross(np.eye(3), axis)
    return np.asarray(np.eye(3) + np.sin(angle) * skew + (1.0 - np.cos(angle)) * skew @ skew)


def roll_pitch_yaw(R: Array) -> tuple[float, float, float]:
    """The angles whose rotation R_z R_y R_x is R."""
    pitch = np.arctan2(-R[2, 0], np.hypot(R[2, 1], R[2, 2]))
    return float(np.arctan2(R[2, 1], R[2, 2])), float(pitch), float(np.arctan2(R[1, 0], R[0, 0]))
