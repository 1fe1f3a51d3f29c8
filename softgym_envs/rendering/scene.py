"""Drawing primitives of a picture, in metres; no robot, no task, no pygame.

A system turns a model and a state into a `Scene`; `raster` turns a scene and a camera into pixels.
Legend: k number of points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..core.simulator import Array
from .camera import ASPECT, Camera
from .colors import GROUND, Color

Height = Callable[[Array, Array], Array]
"""Ground height [m] at points x, y [m] of any shape."""


DISTANCE = 3.0
"""Distance of the default camera over a scene's extent."""
NEAR = 0.45
"""Distance of the view "follow" over that of the default camera."""
LOW = float(np.deg2rad(8.0))
"""Elevation of the views "side" and "front" [rad]."""
SHARE = 0.86
"""Part of the picture that `extent_of` fills at most."""


def flat(z: float) -> Height:
    """The height of a horizontal plane."""
    return lambda x, y: np.full_like(np.asarray(x, dtype=np.float64), z)


level = flat(0.0)


@dataclass(frozen=True, eq=False)
class Segment:
    """A round bar from `start` to `end`."""

    start: Array
    """(3,) [m]"""
    end: Array
    """(3,) [m]"""
    width: float
    """Diameter [m]."""
    color: Color
    dashed: bool = False


@dataclass(frozen=True, eq=False)
class Sphere:
    """A ball."""

    center: Array
    """(3,) [m]"""
    radius: float
    """[m]"""
    color: Color
    front: float = 0.0
    """Drawn over everything that is nearer to the camera by at most this [m]."""


@dataclass(frozen=True, eq=False)
class Trail:
    """A path, fading towards its first (oldest) point."""

    points: Array
    """(k, 3) [m]"""
    width: float
    """[m]"""
    color: Color
    front: float = 0.0
    """See `Sphere.front`."""


@dataclass(frozen=True, eq=False)
class Arrow:
    """A flat arrow from `start` to `end`, lying horizontally."""

    start: Array
    """(3,) [m]"""
    end: Array
    """(3,) [m]"""
    width: float
    """Width of the shaft [m]."""
    color: Color

    def parts(self) -> tuple[Array, Array]:
        """Head, left, right, tip (3, 3), and shaft, left, right, right, left (4, 3) or (0, 3) [m]; both empty below 1 mm."""
        along = self.end - self.start
        length = float(np.linalg.norm(along))
        if length < 1e-3:
            return np.zeros((0, 3)), np.zeros((0, 3))
        along = along / length
        side = 0.5 * self.width * np.array([-along[1], along[0], 0.0]) / max(math.hypot(along[0], along[1]), 1e-9)
        neck = self.end - along * min(3.0 * self.width, length)
        head = np.array([neck + 2.6 * side, neck - 2.6 * side, self.end])
        if length <= 3.0 * self.width:
            return head, np.zeros((0, 3))
        return head, np.array([self.start + side, self.start - side, neck - side, neck + side])


@dataclass(frozen=True, eq=False)
class Marker:
    """A goal: rings on the ground around `position`, and a pin."""

    position: Array
    """(3,) [m]"""
    radius: float
    """Radius of the outer ring [m]."""
    color: Color


@dataclass(frozen=True, eq=False)
class GroundGrid:
    """A round patch of ground with grid lines every `spacing` metres, fading out towards `radius`."""

    height: Height
    center: tuple[float, float]
    """[m]"""
    radius: float
    """[m]"""
    spacing: float = 0.5
    """[m]"""
    breaks: tuple[Array, Array] = (np.zeros(0), np.zeros(0))
    """Further x, and y [m], at which the ground may bend; between them it is drawn flat."""
    color: Color = GROUND


@dataclass(frozen=True, eq=False)
class Prism:
    """A block that stands on a plane."""

    outline: Array
    """(k, 2) [m]: its corners, convex."""
    height: float
    """[m]"""
    color: Color
    floor: Height = level
    """Height of the plane."""


@dataclass(frozen=True, eq=False)
class Face:
    """A flat face of the one closed convex body of a scene; it casts no shadow."""

    corners: Array
    """(4, 3) [m], in order around it."""
    color: Color


@dataclass(frozen=True)
class Bar:
    """One horizontal bar of a HUD: `value` between `low` and `high`."""

    label: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Hud:
    """Text and bars over a picture."""

    title: str = ""
    lines: tuple[str, ...] = ()
    bars: tuple[Bar, ...] = ()
    help: tuple[str, ...] = ()
    """Lines at the lower edge: which key does what."""
    badge: str = ""
    """A word at the upper right: "paused", "recording", ..."""


@dataclass(frozen=True)
class Legend:
    """What the tension colours and other colours mean; drawn with the overlay only."""

    label: str = ""
    """Quantity of the tension colours; "" for none."""
    low: float = 0.0
    high: float = 1.0
    note: str = ""
    entries: tuple[tuple[Color, str], ...] = ()
    """Further colours and what they mean."""


Primitive = Segment | Sphere | Trail | Arrow | Marker | GroundGrid | Prism | Face


@dataclass(frozen=True, eq=False)
class Scene:
    """Everything to draw, and where to look: a camera 3 `extent` away from `look_at` sees the whole robot."""

    primitives: tuple[Primitive, ...]
    look_at: Array
    """(3,) [m]"""
    extent: float
    """Size of the thing looked at [m]."""
    legend: Legend | None = None
    azimuth: float | None = None
    """Best azimuth of a camera [rad]; None for the default, as for `elevation`. See `Camera`."""
    elevation: float | None = None
    """Best elevation of a camera [rad]."""
    overlay: tuple[Primitive, ...] = ()
    """What no camera would see (forces, range readings, ...), drawn with the overlay only."""


def default_camera(scene: Scene) -> Camera:
    """Camera that sees the whole robot, from the scene's angles, or from the front right and a little above."""
    angles = {name: value for name in ("azimuth", "elevation") if (value := getattr(scene, name)) is not None}
    return Camera(distance=DISTANCE * scene.extent, **angles).looking_at(scene.look_at)


def view_of(scene: Scene, view: str, point: Array) -> Camera:
    """Camera of one of `camera.VIEWS`.

    Args:
        scene: What is looked at.
        view: "default", see `default_camera`; "side" from the same side, "front" from a quarter turn to the right, both just
            over the ground; "top" straight from above; "follow" from near to `point`.
        point: The followed point (3,) [m].
    """
    camera = default_camera(scene)
    if view == "follow":
        return replace(camera.looking_at(point), distance=NEAR * camera.distance)
    turned = {"side": (0.0, LOW), "front": (0.5 * np.pi, LOW), "top": (0.0, 0.5 * np.pi)}
    if view not in turned:
        return camera
    azimuth, elevation = turned[view]
    return replace(camera, azimuth=camera.azimuth + azimuth, elevation=elevation)


def extent_of(
    points: Array, look_at: Array, least: float, *, azimuth: float | None = None, elevation: float | None = None
) -> float:
    """The extent [m], at least `least`, at which points (k, 3) [m] are within the middle `SHARE` of the default picture."""
    camera = default_camera(Scene((), look_at, 1.0, azimuth=azimuth, elevation=elevation))
    x, y, z = camera.axes @ (points - look_at).T
    most = SHARE * np.tan(0.5 * camera.field_of_view)
    return max(least, float(np.max(np.maximum(np.abs(x) / ASPECT, np.abs(y)) / most - z)) / DISTANCE)
