"""Arm, loop and clamp as a scene, and the arm driven by keys. Pure functions of model and state. Legend: k trail points."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from ..core.parameters import Parameters
from ..core.simulator import Array, check_array
from ..rendering.colors import CAP, GOAL, OBSTACLE, RING, ROD, TRAIL, TUBE
from ..rendering.picture import shown
from ..rendering.scene import GroundGrid, Marker, Primitive, Scene, Segment, Sphere, Trail
from .model import ARM, LoopModel

BELOW = 0.03
"""How far the table is below the clamped link's axis [m]."""
THICKNESS = (0.11, 0.11, 0.09, 0.09, 0.07, 0.07, 0.05)
"""Of the arm's drawn parts, from each joint to the next [m]."""


class LoopPicture:
    """Draws and drives arm and loop; see `rendering.picture.Picture`."""

    keys: ClassVar[Mapping[str, str]] = {"arrows": "move the hand that way", "1-6": "turn joints back", "space": "let go"}

    def scene(self, simulator: Any, state: Array, hints: Mapping[str, Array], parameters: Parameters) -> Scene:
        """Arm, loop, clamp and table, with the hints "trail" and "goal"."""
        return loop_scene(simulator.model, state, **shown(hints, "trail", "goal"))

    def followed(self, model: LoopModel, state: Array) -> Array:
        """The hand, (3,) [m]."""
        return hand(model, state)

    def heading_action(self, model: LoopModel, state: Array, heading: Array) -> Array:
        """Torques J' (heading, 0) that push the hand that way, the largest of them 1."""
        slopes = model.mechanism.point_slopes("H", _angles(model, state))[0, :, : len(ARM)]
        torques = np.array([*heading, 0.0]) @ slopes
        return np.asarray(torques / np.abs(torques).max())

    def rest_action(self, model: LoopModel) -> Array:
        """No torques beyond those that hold the start, (7,)."""
        return np.zeros(len(ARM))


PICTURE = LoopPicture()


def hand(model: LoopModel, state: Array) -> Array:
    """Where H is, (3,) [m]."""
    return np.asarray(model.mechanism.pose("H", _angles(model, state))[1][0])


def loop_scene(model: LoopModel, state: Array, *, trail: Array | None = None, goal: Array | None = None) -> Scene:
    """Everything visible.

    Args:
        model: Structure.
        state: One state (nx,).
        trail: Earlier places of the hand (k, 3) [m], oldest first.
        goal: A point (3,) [m].

    Raises:
        ShapeError: An argument has the wrong shape, or is not finite.
    """
    state = check_array("state", state, (None,))[: model.layout.nx]
    origins, grip = model.mechanism.origins(_angles(model, state))[0], hand(model, state)
    clamp = np.array(model.clamp[:3])
    table = clamp[2] - BELOW
    middle = np.array([0.5 * clamp[0], 0.5 * clamp[1], 0.5 * (clamp[2] + grip[2])])
    parts: list[Primitive] = [GroundGrid(lambda x, y: np.full_like(np.asarray(x, dtype=np.float64), table), _flat(middle), 3.0)]
    foot = np.array([origins[0, 0], origins[0, 1], table])
    joints = [foot, *origins[: len(ARM)], grip]
    for start, end, width in zip(joints[:-1], joints[1:], (0.16, *THICKNESS), strict=True):
        if np.linalg.norm(end - start) > 1e-6:
            parts.append(Segment(start, end, width, ROD))
    parts += [Sphere(place, 0.55 * width, CAP) for place, width in zip(joints[1:-1], THICKNESS, strict=True)]
    parts += _loop(model, state, grip, clamp)
    block = np.array([0.0, 0.0, BELOW])
    parts.append(Segment(clamp - block, clamp + block, 0.12, OBSTACLE))
    parts.append(Sphere(grip, 0.03, RING))
    if goal is not None:
        parts.append(Marker(check_array("goal", goal, (3,)), 0.035, GOAL))
    if trail is not None:
        parts.append(Trail(check_array("trail", trail, (None, 3)), 0.01, TRAIL))
    return Scene(tuple(parts), middle, 1.1, None, azimuth=-0.35 * np.pi)


def _loop(model: LoopModel, state: Array, grip: Array, clamp: Array) -> list[Primitive]:
    """Links of both sides, from the gripper to the clamp."""
    nodes, half, width = model.nodes(state[None])[0], model.links // 2, 2 * model.tube_radius
    parts: list[Primitive] = []
    for side in (nodes[:half], nodes[half:]):
        line = [grip, *side, clamp]
        parts += [Segment(a, b, width, TUBE) for a, b in pairwise(line)]
        parts += [Sphere(place, 0.5 * width, TUBE) for place in side]
    return parts


def _angles(model: LoopModel, state: Array) -> Array:
    """q, (1, n)."""
    return np.ascontiguousarray(state[None, : model.n])


def _flat(place: Array) -> tuple[float, float]:
    return float(place[0]), float(place[1])
