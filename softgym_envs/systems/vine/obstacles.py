"""Obstacles in the plane: circles, convex polygons (rectangles among them) and walls, each placed by a pose (x, y, angle).

A shape is given in its own frame and never changes; where it stands is part of a simulator's state. A wall is the half-plane
behind a line through the pose, whose normal (cos angle, sin angle) points to the free side.

>>> round(float(Circle(0.1).distance(np.array([0.3, 0.0]))), 12)
0.2
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import cos, hypot, isfinite, sin

import numpy as np
from numpy.typing import NDArray

from ...core.errors import StructureError
from ...core.simulator import Array

MAX_VERTICES = 16


@dataclass(frozen=True)
class Circle:
    """All points within `radius` of the pose."""

    radius: float
    """[m]"""

    def __post_init__(self) -> None:
        if not (isfinite(self.radius) and self.radius > 0):
            raise StructureError(f"radius of a circle is {self.radius!r} m, expected a number > 0")

    @property
    def bound(self) -> float:
        """Radius of a circle about the pose that holds the shape [m]."""
        return self.radius

    def distance(self, points: Array) -> Array:
        """Signed distance |p| - r of points (..., 2) in the shape's frame [m]."""
        return np.asarray(np.linalg.norm(points, axis=-1) - self.radius)


@dataclass(frozen=True)
class Polygon:
    """The inside of a convex polygon.

    Raises:
        StructureError: Fewer than three corners, no area, not convex, or not counter-clockwise.
    """

    vertices: tuple[tuple[float, float], ...]
    """Corners in the shape's frame, counter-clockwise [m]."""

    def __post_init__(self) -> None:
        points = np.asarray(self.vertices, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != 2 or not 3 <= len(points) <= MAX_VERTICES or not np.isfinite(points).all():
            raise StructureError(f"vertices is {self.vertices!r}, expected 3 to {MAX_VERTICES} finite points (x, y) [m]")
        edges = np.roll(points, -1, axis=0) - points
        following = np.roll(edges, -1, axis=0)
        turns = edges[:, 0] * following[:, 1] - edges[:, 1] * following[:, 0]
        total = float(np.arctan2(turns, (edges * following).sum(axis=1)).sum())
        if (turns <= 1e-12).any() or abs(total - 2 * np.pi) > 1e-6:
            raise StructureError(f"vertices {self.vertices!r} are not the corners of a convex polygon, counter-clockwise")

    @property
    def bound(self) -> float:
        """Radius of a circle about the pose that holds the shape [m]."""
        return max(hypot(x, y) for x, y in self.vertices)

    def distance(self, points: Array) -> Array:
        """Signed distance of points (..., 2) in the shape's frame [m]: to the nearest edge; inside, minus that depth."""
        points = np.asarray(points, dtype=np.float64)
        found = np.empty(points.shape[:-1])
        from .segments import point_distances  # loads Numba

        point_distances(np.array(self.vertices), _rows(points), found.reshape(-1))
        return found


@dataclass(frozen=True)
class Wall:
    """The half-plane x <= 0 of the shape's frame."""

    @property
    def bound(self) -> float:
        """Infinite: no circle holds a wall."""
        return float("inf")

    def distance(self, points: Array) -> Array:
        """Signed distance x of points (..., 2) in the shape's frame [m]."""
        return np.asarray(points)[..., 0]


Shape = Circle | Polygon | Wall


@dataclass(frozen=True)
class Obstacle:
    """A shape and its first pose."""

    shape: Shape
    x: float = 0.0
    """[m]"""
    y: float = 0.0
    """[m]"""
    angle: float = 0.0
    """[rad]"""

    def __post_init__(self) -> None:
        if not all(isfinite(value) for value in (self.x, self.y, self.angle)):
            raise StructureError(f"an obstacle stands at {(self.x, self.y, self.angle)}, expected finite numbers [m, m, rad]")


def circle(x: float, y: float, radius: float) -> Obstacle:
    """A circle about (x, y) [m]."""
    return Obstacle(Circle(radius), x, y)


def rectangle(x: float, y: float, width: float, height: float, angle: float = 0.0) -> Obstacle:
    """A rectangle with its centre at (x, y) [m], turned by `angle` [rad]."""
    if not (isfinite(width) and isfinite(height) and width > 0 and height > 0):
        raise StructureError(f"a rectangle is {width!r} m x {height!r} m, expected numbers > 0")
    w, h = 0.5 * width, 0.5 * height
    return Obstacle(Polygon(((-w, -h), (w, -h), (w, h), (-w, h))), x, y, angle)


def polygon(points: tuple[tuple[float, float], ...]) -> Obstacle:
    """A convex polygon with its corners at `points` [m], counter-clockwise; its pose is their mean."""
    array = np.asarray(points, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != 2:
        raise StructureError(f"points is {points!r}, expected corners (x, y) [m]")
    x, y = array.mean(axis=0)
    return Obstacle(Polygon(tuple((float(a - x), float(b - y)) for a, b in array)), float(x), float(y))


def wall(x: float, y: float, angle: float) -> Obstacle:
    """A wall through (x, y) [m]; `angle` [rad] is the direction from the wall to the free side."""
    return Obstacle(Wall(), x, y, angle)


def to_local(points: Array, pose: Array) -> Array:
    """World points (..., 2) in the frame of a pose (..., 3) = (x, y, angle) [m, m, rad]."""
    dx, dy = points[..., 0] - pose[..., 0], points[..., 1] - pose[..., 1]
    c, s = np.cos(pose[..., 2]), np.sin(pose[..., 2])
    return np.stack([c * dx + s * dy, c * dy - s * dx], axis=-1)


def segment_distance(shape: Shape, a: Array, b: Array) -> Array:
    """Smallest distance of segments a, b (..., 2) in a shape's frame from the shape (...) [m].

    Where they overlap it is negative: minus the depth of the deeper end, and at most 0 for a segment that crosses an edge.
    """
    if isinstance(shape, Wall):
        return np.minimum(shape.distance(a), shape.distance(b))
    corners, radius = _corners(shape)
    found = np.empty(a.shape[:-1])
    from .segments import segment_distances

    segment_distances(corners, _rows(a), _rows(b), found.reshape(-1))
    return found - radius


def lines_apart(shape: Shape, poses: Array, lines: Array, least: float) -> NDArray[np.bool_]:
    """Whether all lines of points (B, L, k, 2) are more than `least` [m] > 0 away from a shape at poses (B, 3), (B,)."""
    if isinstance(shape, Wall):
        return np.asarray((to_local(lines, poses[:, None, None])[..., 0] > least).all(axis=(1, 2)))
    from .segments import lines_apart

    found = np.empty(len(poses), dtype=np.bool_)
    turns = np.stack([np.cos(poses[:, 2]), np.sin(poses[:, 2])], axis=1)
    reach, poses, lines = shape.bound + least, np.ascontiguousarray(poses), np.ascontiguousarray(lines)
    lines_apart(*_sides(shape), reach, poses, turns, lines, least, found)
    return found


@lru_cache(256)
def _sides(shape: Circle | Polygon) -> tuple[Array, Array, float]:
    """Corners (V, 2), outward normals of the sides that end there (V, 2), and the radius about them [m]."""
    corners, radius = _corners(shape)
    edges = corners - np.roll(corners, 1, axis=0)
    sizes = np.maximum(np.hypot(edges[:, 0], edges[:, 1]), 1e-30)
    return corners, np.stack([edges[:, 1], -edges[:, 0]], axis=1) / sizes[:, None], radius


def _corners(shape: Circle | Polygon) -> tuple[Array, float]:
    """Corners (V, 2) or a centre (1, 2), and the radius about them [m]."""
    return (np.zeros((1, 2)), shape.radius) if isinstance(shape, Circle) else (np.array(shape.vertices), 0.0)


def _rows(points: Array) -> Array:
    """Points (..., 2) as rows (n, 2)."""
    return np.ascontiguousarray(points).reshape(-1, 2)


def outline(obstacle: Shape, pose: Array, reach: float = 10.0) -> Array:
    """Corners of a shape at a pose (3,) in the world frame, (k, 2) [m]; circles by 48 corners, walls cut off at `reach`."""
    if isinstance(obstacle, Circle):
        angles = np.linspace(0.0, 2 * np.pi, 48, endpoint=False)
        local = obstacle.radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    elif isinstance(obstacle, Polygon):
        local = np.asarray(obstacle.vertices)
    else:
        local = np.array([(0.0, -reach), (0.0, reach), (-reach, reach), (-reach, -reach)])
    c, s = cos(pose[2]), sin(pose[2])
    return np.asarray(local @ np.array([[c, s], [-s, c]]) + pose[:2])
