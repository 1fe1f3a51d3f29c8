"""Distances between a chain of capsules and obstacles, in Warp functions.

The obstacles of `systems.vine.obstacles` as arrays. A capsule (a segment, thickened by the tube's radius) keeps clear of a
convex shape if and only if its ends keep clear of the shape, and the shape's corners (a circle's centre) of the segment between
its ends; so these are all gaps, and each has the gradient of the true distance.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

from typing import Any

import numpy as np
import warp as wp

from ...engines.warp import engine as warp_engine  # noqa: F401  (sets Warp up)
from .obstacles import Circle, Obstacle, Polygon

CIRCLE, POLYGON, WALL = map(wp.constant, range(3))

_zero = wp.constant(wp.float64(0.0))
_one = wp.constant(wp.float64(1.0))
_far = wp.constant(wp.float64(1e30))
_tiny = wp.constant(wp.float64(1e-12))


@wp.struct
class Shape:
    """An obstacle: kind, radius (circle), range of corners (polygon), and its bounding circle and box in its own frame."""

    kind: int
    radius: wp.float64
    first: int
    count: int
    bound: wp.float64
    middle: wp.vec2d
    half: wp.vec2d


@wp.struct
class ObstaclePose:
    """Pose of an obstacle: position and (cos, sin) of its angle."""

    p: wp.vec2d
    n: wp.vec2d


def shape_arrays(obstacles: tuple[Obstacle, ...], device: str) -> tuple[Any, Any]:
    """Structs `Shape` (M,), and all corners in their shapes' frames (at least 1, 2), as arrays of Warp."""
    shapes: Any = np.zeros(len(obstacles), dtype=Shape.numpy_dtype())  # type: ignore[attr-defined]
    corners: list[tuple[float, float]] = []
    for entry, obstacle in zip(shapes, obstacles, strict=True):
        shape = obstacle.shape
        entry["kind"] = CIRCLE if isinstance(shape, Circle) else POLYGON if isinstance(shape, Polygon) else WALL
        entry["radius"] = shape.radius if isinstance(shape, Circle) else 0.0
        entry["bound"] = min(shape.bound, 1e30)
        entry["first"] = len(corners)
        if isinstance(shape, Polygon):
            entry["count"] = len(shape.vertices)
            low, high = np.min(shape.vertices, axis=0), np.max(shape.vertices, axis=0)
            entry["middle"], entry["half"] = 0.5 * (low + high), 0.5 * (high - low)
            corners += shape.vertices
    points = np.array(corners or [(0.0, 0.0)])
    return wp.array(shapes, dtype=Shape, device=device), wp.array(points, dtype=wp.float64, device=device)


@wp.func
def place_obstacles(
    row: int,
    poses: int,
    state: wp.array2d(dtype=wp.float64),
    shapes: wp.array(dtype=Shape),
    local: wp.array2d(dtype=wp.float64),
    places: wp.array2d(dtype=ObstaclePose),
    corners: wp.array2d(dtype=wp.vec2d),
):
    """Read the poses of row `row` from column `poses` of the state, and put the corners into the world."""
    for m in range(shapes.shape[0]):
        place = ObstaclePose()
        place.p = wp.vec2d(state[row, poses + 3 * m], state[row, poses + 3 * m + 1])
        angle = state[row, poses + 3 * m + 2]
        place.n = wp.vec2d(wp.cos(angle), wp.sin(angle))
        places[row, m] = place
        shape = shapes[m]
        for k in range(shape.first, shape.first + shape.count):
            x = local[k, 0]
            y = local[k, 1]
            corners[row, k] = place.p + wp.vec2d(place.n[0] * x - place.n[1] * y, place.n[1] * x + place.n[0] * y)


@wp.func
def clearance(p: wp.vec2d, shape: Shape, place: ObstaclePose):
    """A lower bound of the distance of a point from a shape: that of a wall or circle; that of a polygon's box."""
    to = p - place.p
    out = wp.dot(place.n, to)
    if shape.kind == CIRCLE:
        out = wp.length(to) - shape.radius
    elif shape.kind == POLYGON:
        x = wp.abs(out - shape.middle[0]) - shape.half[0]
        y = wp.abs(place.n[0] * to[1] - place.n[1] * to[0] - shape.middle[1]) - shape.half[1]
        out = wp.length(wp.vec2d(wp.max(x, _zero), wp.max(y, _zero)))
    return out


@wp.func
def polygon_distance(row: int, p: wp.vec2d, first: int, count: int, corners: wp.array2d(dtype=wp.vec2d)):
    """(signed distance, gradient) of a point and a polygon: nearest point of the rim; inside, the face that is nearest."""
    nearest = wp.float64(1e30)
    away = wp.vec2d(_zero, _zero)
    face = wp.float64(-1e30)
    normal = wp.vec2d(_zero, _zero)
    for k in range(count):
        a = corners[row, first + k]
        following = k + 1
        if following == count:
            following = 0
        edge = corners[row, first + following] - a
        to = p - a
        squared = wp.dot(edge, edge)
        along = wp.clamp(wp.dot(to, edge) / squared, _zero, _one)
        apart = to - along * edge
        d2 = wp.dot(apart, apart)
        if d2 < nearest:
            nearest = d2
            away = apart
        outward = wp.vec2d(edge[1], -edge[0]) / wp.sqrt(squared)
        height = wp.dot(to, outward)
        if height > face:
            face = height
            normal = outward
    distance = face
    if face > _zero:
        distance = wp.sqrt(nearest)
        if distance > _tiny:
            normal = away / distance
    return wp.vec3d(distance, normal[0], normal[1])


@wp.func
def point_distance(row: int, p: wp.vec2d, shape: Shape, place: ObstaclePose, corners: wp.array2d(dtype=wp.vec2d)):
    """(signed distance, gradient) of a point and a shape."""
    out = wp.vec3d(_far, _one, _zero)
    if shape.kind == WALL:
        out = wp.vec3d(wp.dot(place.n, p - place.p), place.n[0], place.n[1])
    elif shape.kind == CIRCLE:
        to = p - place.p
        distance = wp.length(to)
        if distance > _tiny:
            out = wp.vec3d(distance - shape.radius, to[0] / distance, to[1] / distance)
        else:
            out = wp.vec3d(-shape.radius, _one, _zero)
    else:
        out = polygon_distance(row, p, shape.first, shape.count, corners)
    return out


@wp.func
def inner_distance(q: wp.vec2d, near: wp.vec2d, t: wp.vec2d, length: wp.float64):
    """(distance, gradient, arm) of the point q of an obstacle and the segment's inside; far away if it is beyond the ends."""
    to = q - near
    arm = wp.dot(to, t)
    out = wp.vec4d(_far, _one, _zero, _zero)
    if arm > _zero and arm < length:
        away = arm * t - to
        distance = wp.length(away)
        if distance > _tiny:
            out = wp.vec4d(distance, away[0] / distance, away[1] / distance, arm)
    return out
