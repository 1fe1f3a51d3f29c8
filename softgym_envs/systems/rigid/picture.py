"""The block on its table (with string, pulley and goal pose) and particles over the ground as scenes, and driven by keys.

Pure functions of model and state: one state always gives one picture. Legend: k trail points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ...core.parameters import Parameters
from ...core.simulator import Array, check_array
from ...rendering.colors import CAP, GOAL, OBSTACLE, RING, ROD, TRAIL, TUBE
from ...rendering.picture import BasePicture, shown
from ...rendering.scene import (
    Arrow,
    GroundGrid,
    Height,
    Legend,
    Primitive,
    Prism,
    Scene,
    Segment,
    Sphere,
    Trail,
    extent_of,
    level,
)
from .model import BlockModel, ParticleModel

HEIGHT = 0.05
"""Height of the drawn block [m]."""
AZIMUTH, ELEVATION = -0.5 * np.pi, float(np.deg2rad(58.0))
"""Angles of the camera [rad]."""
LEGEND = Legend(entries=((GOAL, "goal pose"), (RING, "front of the block"), (ROD, "handle")))
LEVEL = np.zeros(2)
"""Slope of a table that is level."""
STEEP = 1e-4
"""Slope above which an arrow shows downhill."""
ASIDE = np.array([-0.55, -0.25])
"""Start of that arrow, from the middle of the picture [extents]."""
BALL = 0.06
"""Radius of a drawn particle [m]."""


class BlockPicture(BasePicture):
    """Draws and drives the block; see `rendering.picture.Picture`."""

    keys: ClassVar[Mapping[str, str]] = {"arrows": "push that way", "1 2": "push back, to its right", "space": "let go"}

    def scene(self, simulator: Any, state: Array, hints: Mapping[str, Array], parameters: Parameters) -> Scene:
        """Block, string and table, tilted by the parameters, with the hints "trail" and "pose"."""
        known = parameters.names()  # a user's own simulator may have none
        tilts = (float(np.ravel(getattr(parameters, name))[0]) if name in known else 0.0 for name in ("tilt_x", "tilt_y"))
        return block_scene(simulator.model, state, slope=fall(*tilts), **shown(hints, "trail", "pose"))

    def followed(self, model: BlockModel, state: Array) -> Array:
        """The centre of mass, on the table, (3,) [m]."""
        return np.array([state[0], state[1], 0.0])

    def heading_action(self, model: BlockModel, state: Array, heading: Array) -> Array:
        """The largest force at the handle towards the heading: R(theta)^T heading."""
        c, s = math.cos(state[2]), math.sin(state[2])
        return np.array([c * heading[0] + s * heading[1], c * heading[1] - s * heading[0]])


class ParticlePicture(BasePicture):
    """Draws and drives particles; see `rendering.picture.Picture`."""

    keys: ClassVar[Mapping[str, str]] = {"arrows": "push that way", "1-6": "push particles back", "space": "let go"}

    def scene(self, simulator: Any, state: Array, hints: Mapping[str, Array], parameters: Parameters) -> Scene:
        """Particles side by side, each in its own vertical plane, and ground, with the hint "trail"."""
        rows = check_array("state", state, (None,))[: simulator.model.layout.nx].reshape(-1, 4)
        highest = float(rows[:, 1].max())
        middle = np.array([float(rows[:, 0].mean()), 0.0, max(0.5, 0.5 * highest)])
        places = [np.array([x, 4.0 * BALL * (i - 0.5 * (len(rows) - 1)), y + BALL]) for i, (x, y, *_) in enumerate(rows)]
        extent = max(1.5, float(np.ptp(rows[:, 0])), highest)
        parts: list[Primitive] = [
            GroundGrid(level, (float(middle[0]), 0.0), 3.0 * extent),
            *(Sphere(p, BALL, TUBE) for p in places),
        ]
        if "trail" in hints:
            parts.append(Trail(check_array("trail", hints["trail"], (None, 3)), 0.02, TRAIL))
        return Scene(tuple(parts), middle, extent, None, azimuth=-0.5 * np.pi)

    def followed(self, model: ParticleModel, state: Array) -> Array:
        """The middle of all particles, (3,) [m]."""
        x, y = np.reshape(state[: model.layout.nx], (-1, 4))[:, :2].mean(axis=0)
        return np.array([x, 0.0, y + BALL])

    def heading_action(self, model: ParticleModel, state: Array, heading: Array) -> Array:
        """The heading's part along x, for every particle: they move in vertical planes."""
        return np.full(model.nu, heading[0])


BLOCK = BlockPicture()
PARTICLES = ParticlePicture()


def fall(tilt_x: float, tilt_y: float) -> Array:
    """Slope along the table's axes (2,), as change of height: the part of gravity's direction along the table (`.symbolic`)."""
    return -np.array([math.sin(tilt_x), math.cos(tilt_x) * math.sin(tilt_y)])


def block_scene(
    model: BlockModel, state: Array, *, trail: Array | None = None, pose: Array | None = None, slope: Array = LEVEL
) -> Scene:
    """Everything visible of the block; on a table that is not level, with an arrow downhill.

    Args:
        model: Geometry.
        state: One state, (6,) or longer (the MuJoCo model's).
        trail: Earlier places (k, 3) [m], oldest first.
        pose: The goal: x, y [m], theta [rad].
        slope: Slope of the table (2,), see `fall`.

    Raises:
        ShapeError: An argument has the wrong shape, or is not finite.
    """
    state = check_array("state", state, (None,))[:6]
    corners = _corners(model, state)
    if pose is not None:  # keep the goal in view
        pose = check_array("pose", pose, (3,))
        corners = np.concatenate([corners, _corners(model, np.concatenate([pose, np.zeros(3)]))])
    middle = 0.5 * (corners.min(axis=0) + corners.max(axis=0))
    seen, look_at = np.column_stack([corners, np.zeros(len(corners))]), np.array([*middle, 0.0])
    extent = extent_of(seen, look_at, 3.2 * max(model.half_size), azimuth=AZIMUTH, elevation=ELEVATION)

    def floor(x: Array, y: Array) -> Array:
        return np.asarray(slope[0] * (x - middle[0]) + slope[1] * (y - middle[1]))

    ground = GroundGrid(floor, (float(middle[0]), float(middle[1])), 3.0 * extent, spacing=max(model.half_size))
    parts: list[Primitive] = [ground]
    if np.linalg.norm(slope) > STEEP:
        parts.append(_downhill(middle + extent * ASIDE, slope, extent, floor))
    if pose is not None:
        goal = np.concatenate([pose, np.zeros(3)])
        parts += _outline(model, goal, floor)
    parts.append(Prism(_corners(model, state), HEIGHT, TUBE, floor))
    for point in model.supports:
        parts.append(Sphere(_at(model, state, point, HEIGHT, floor), 0.008, CAP))
    nose = _at(model, state, (model.half_size[0], 0.0), HEIGHT + 0.002, floor)
    middle_of_front = _at(model, state, (0.3 * model.half_size[0], 0.0), HEIGHT + 0.002, floor)
    parts.append(Arrow(middle_of_front, nose, 0.15 * model.half_size[1], RING))
    parts.append(Sphere(_at(model, state, model.handle, HEIGHT, floor), 0.015, ROD))
    if model.pulley is not None:
        pulley = _on(floor, np.array(model.pulley), 0.5 * HEIGHT)
        parts += [
            Segment(_at(model, state, model.attachment, 0.5 * HEIGHT, floor), pulley, 0.006, ROD),
            Sphere(pulley, 0.03, OBSTACLE),
        ]
    if trail is not None:
        points = check_array("trail", trail, (None, 3))
        points = np.column_stack([points[:, :2], points[:, 2] + floor(points[:, 0], points[:, 1])])
        parts.append(Trail(points, 0.01, TRAIL))
    return Scene(tuple(parts), look_at, extent, LEGEND, azimuth=AZIMUTH, elevation=ELEVATION)


def _on(floor: Height, place: Array, height: float = 0.0) -> Array:
    """Point (3,) at `height` [m] over a place (2,) of the table."""
    return np.array([*place, height + float(floor(place[0], place[1]))])


def _at(model: BlockModel, state: Array, point: tuple[float, float], height: float, floor: Height) -> Array:
    return _on(floor, model.to_table(state, point), height)


def _corners(model: BlockModel, state: Array) -> Array:
    a, b = model.half_size
    return np.array([model.to_table(state, corner) for corner in ((a, b), (-a, b), (-a, -b), (a, -b))])


def _outline(model: BlockModel, state: Array, floor: Height) -> list[Primitive]:
    """Edges of the block at the goal, and an arrow to its front."""
    corners = [_on(floor, corner, 0.002) for corner in _corners(model, state)]
    parts: list[Primitive] = [Segment(corners[i - 1], corners[i], 0.010, GOAL) for i in range(4)]
    front = _at(model, state, (model.half_size[0], 0.0), 0.002, floor)
    parts.append(Arrow(_on(floor, state[:2], 0.002), front, 0.016, GOAL))
    return parts


def _downhill(place: Array, slope: Array, extent: float, floor: Height) -> Arrow:
    """Arrow from a place (2,) downhill."""
    end = place - 0.2 * extent * slope / np.linalg.norm(slope)
    return Arrow(_on(floor, place, 0.002), _on(floor, end, 0.002), 0.03 * extent, OBSTACLE)
