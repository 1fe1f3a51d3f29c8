"""Drawing primitives of a picture, in metres; no robot, no task, no pygame.

A system turns a model and a state into a `Scene`; `raster` turns a scene and a camera into pixels.
Legend: k number of points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..core.simulator import Array
from .colors import GROUND, Color

Height = Callable[[Array, Array], Array]
"""Ground height [m] at points x, y [m] of any shape."""


def level(x: Array, y: Array) -> Array:
    """The height of the plane z = 0."""
    return np.zeros_like(np.asarray(x, dtype=np.float64))


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
    """Legend of the tension colours; drawn with a HUD only."""

    label: str
    low: float
    high: float
    note: str = ""


Primitive = Segment | Sphere | Trail | Arrow | Marker | GroundGrid | Prism


@dataclass(frozen=True, eq=False)
class Scene:
    """Everything to draw, and where to look: a camera some 2.6 `extent` away from `look_at` sees the whole robot."""

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


def extent_of(points: Array, look_at: Array, least: float) -> float:
    """The extent [m] at which points (k, 3) are within the picture of a scene that looks at `look_at`, at least `least`."""
    return max(least, 1.15 * float(np.linalg.norm(points - look_at, axis=1).max()))
