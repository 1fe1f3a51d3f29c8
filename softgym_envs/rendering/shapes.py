"""Scenes as instances and meshes, which a 3D viewer draws: one translation of the drawing primitives, for every system.

Round things (bars, balls, trails, pins) become instances of two unit meshes, flat things one mesh per colour.
Legend: M instances, V corners, F triangles, k points.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.simulator import Array
from .colors import PAPER, Color, as_color, mix
from .ground import LIFT, ground_mesh
from .scene import Arrow, Face, GroundGrid, Marker, Primitive, Prism, Scene, Segment, Sphere, Trail

SIDES = 16
"""Sides of a bar, and a quarter of the corners of a ring."""
DASH = 0.08
"""Longest dash of a dashed bar [m]."""
STRENGTH = 0.55
"""Share of the tint in the colours of a tinted scene."""

Triangles = NDArray[np.int64]
"""Corners of triangles (F, 3)."""
Flats = dict[Color, tuple[Array, Triangles]]
"""Colour -> corners (V, 3) [m] and triangles."""


@dataclass(frozen=True, eq=False)
class Instances:
    """Copies of a unit mesh."""

    positions: Array
    """(M, 3) [m]"""
    turns: Array
    """(M, 4): unit quaternions w, x, y, z."""
    scales: Array
    """(M, 3) [m]"""
    colors: NDArray[np.uint8]
    """(M, 3)"""


@dataclass(frozen=True, eq=False)
class Shapes:
    """A scene as a browser draws it."""

    bars: Instances
    """Cylinders of radius 1 and length 1 along z, their middle in the origin."""
    balls: Instances
    """Balls of radius 1."""
    flats: Flats
    ground: GroundGrid | None


def shapes_of(scene: Scene, tint: Color | None = None) -> Shapes:
    """Translate a scene; with a tint, in colours that are mixed with it."""
    parts, flats = (*scene.primitives, *scene.overlay), dict[Color, tuple[Array, Triangles]]()
    ground = next((part for part in parts if isinstance(part, GroundGrid)), None)
    for part in parts:
        for corners, triangles in _flat(part, ground):
            known, faces = flats.get(part.color, (np.zeros((0, 3)), np.zeros((0, 3), dtype=np.int64)))
            flats[part.color] = np.concatenate([known, corners]), np.concatenate([faces, triangles + len(known)])
    round_ones = [piece for part in parts for piece in _round(part)]
    bars = [piece for piece in round_ones if isinstance(piece, Segment)]
    balls = [piece for piece in round_ones if isinstance(piece, Sphere)]
    shapes = Shapes(_cylinders(bars), _spheres(balls), flats, ground)
    return shapes if tint is None else _tinted(shapes, tint)


def _round(part: Primitive) -> Iterable[Segment | Sphere]:
    """Bars and balls of a primitive; a bar that is not dashed has round ends."""
    if isinstance(part, Sphere):
        yield part
    elif isinstance(part, Segment) and part.dashed:
        count = 2 * max(1, math.ceil(float(np.linalg.norm(part.end - part.start)) / (2 * DASH))) + 1
        points = part.start + np.linspace(0.0, 1.0, count + 1)[:, None] * (part.end - part.start)
        yield from (Segment(a, b, part.width, part.color) for a, b in zip(points[:-1:2], points[1::2], strict=True))
    elif isinstance(part, Segment):
        yield part
        yield from (Sphere(end, 0.5 * part.width, part.color) for end in (part.start, part.end))
    elif isinstance(part, Trail) and len(part.points) > 1:
        shades = mix(PAPER, part.color, np.linspace(0.15, 1.0, len(part.points) - 1))
        pairs = zip(part.points[:-1], part.points[1:], shades, strict=True)
        yield from (Segment(a, b, part.width, as_color(shade)) for a, b, shade in pairs)
    elif isinstance(part, Marker):
        top = part.position + np.array([0.0, 0.0, 1.6 * part.radius])
        yield Segment(part.position, top, 0.05 * part.radius, part.color)
        yield Sphere(top, 0.11 * part.radius, part.color)


def _cylinders(bars: list[Segment]) -> Instances:
    start, end = (np.array([getattr(bar, name) for bar in bars]).reshape(-1, 3) for name in ("start", "end"))
    length = np.linalg.norm(end - start, axis=1)
    along = (end - start) / np.maximum(length, 1e-12)[:, None]
    turns = np.column_stack([1.0 + along[:, 2], -along[:, 1], along[:, 0], np.zeros(len(bars))])  # the shortest, from z
    turns[turns[:, 0] < 1e-9] = (0.0, 1.0, 0.0, 0.0)
    radius = np.array([0.5 * bar.width for bar in bars])
    scales = np.column_stack([radius, radius, length])
    return Instances(0.5 * (start + end), turns / np.linalg.norm(turns, axis=1, keepdims=True), scales, _colors(bars))


def _spheres(balls: list[Sphere]) -> Instances:
    positions = np.array([ball.center for ball in balls]).reshape(-1, 3)
    scales = np.repeat(np.array([[ball.radius] for ball in balls]).reshape(-1, 1), 3, axis=1)
    return Instances(positions, np.tile([1.0, 0.0, 0.0, 0.0], (len(balls), 1)), scales, _colors(balls))


def _colors(parts: list[Any]) -> NDArray[np.uint8]:
    return np.array([part.color for part in parts], dtype=np.uint8).reshape(-1, 3)


def _flat(part: Primitive, ground: GroundGrid | None) -> Iterable[tuple[Array, Triangles]]:
    """Corners and triangles of a block, a face, an arrow, or the rings of a goal."""
    if isinstance(part, Prism):
        low = np.column_stack([part.outline, part.floor(part.outline[:, 0], part.outline[:, 1])])
        high, k = low + np.array([0.0, 0.0, part.height]), len(low)
        yield high, _fan(k)
        yield np.concatenate([low, high]), strip(k)
    elif isinstance(part, Face):
        yield part.corners, _fan(len(part.corners))
    elif isinstance(part, Arrow):
        yield from ((corners, _fan(len(corners))) for corners in part.parts() if len(corners))
    elif isinstance(part, Marker):
        angle = np.linspace(0.0, 2.0 * np.pi, 4 * SIDES, endpoint=False)
        circle = np.column_stack([np.cos(angle), np.sin(angle)])
        for shares in ((1.0, 0.9), (0.45, 0.36)):
            flat = np.concatenate([part.position[:2] + share * part.radius * circle for share in shares])
            height = np.full(len(flat), part.position[2]) if ground is None else ground.height(flat[:, 0], flat[:, 1])
            yield np.column_stack([flat, height + LIFT]), strip(len(circle))


def _fan(k: int) -> Triangles:
    """Triangles of a convex outline of k corners."""
    return np.array([(0, i, i + 1) for i in range(1, k - 1)])


def strip(k: int) -> Triangles:
    """Triangles between two closed outlines of k corners each, (2 k, 3)."""
    i = np.arange(k)
    j = (i + 1) % k
    return np.concatenate([np.column_stack([i, j, j + k]), np.column_stack([i, j + k, i + k])])


def _tinted(shapes: Shapes, tint: Color) -> Shapes:
    def mixed(colors: Any) -> Any:
        return np.round(mix(colors, tint, STRENGTH)).astype(np.uint8)

    bars, balls = (replace(each, colors=mixed(each.colors)) for each in (shapes.bars, shapes.balls))
    flats: Flats = {}
    for color, mesh in shapes.flats.items():
        flats[as_color(mixed(color))] = mesh
    return Shapes(bars, balls, flats, shapes.ground)


class GroundPatch:
    """The ground as a mesh, made anew where it has another shape or the robot comes near its edge."""

    def __init__(self) -> None:
        self.middle, self.radius, self.points = np.zeros(2), 0.0, np.zeros((0, 0, 3))

    def follow(self, ground: GroundGrid) -> tuple[tuple[Array, Triangles], Array] | None:
        """Corners and triangles of a round patch, and its grid lines (M, 2, 3) [m]; None if they are as before."""
        if np.linalg.norm(np.array(ground.center) - self.middle) < 0.3 * self.radius:
            ground = replace(ground, center=(float(self.middle[0]), float(self.middle[1])), radius=self.radius)
        mesh = ground_mesh(ground)
        if np.array_equal(mesh.points, self.points):
            return None
        self.middle, self.radius, self.points = np.array(ground.center), ground.radius, mesh.points
        inside = np.linalg.norm(mesh.points[..., :2] - self.middle, axis=-1) <= ground.radius
        index = np.arange(inside.size).reshape(inside.shape)
        quads = np.stack([index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]], axis=-1).reshape(-1, 4)
        quads = quads[inside.reshape(-1)[quads].all(axis=1)]
        lines = [index[mesh.major_x], index.T[mesh.major_y]]
        pairs = np.concatenate([np.stack([line[:, :-1], line[:, 1:]], axis=-1).reshape(-1, 2) for line in lines])
        pairs = pairs[inside.reshape(-1)[pairs].all(axis=1)]
        corners = mesh.points.reshape(-1, 3)
        above = corners + np.array([0.0, 0.0, 0.2 * LIFT])
        return (corners, np.concatenate([quads[:, :3], quads[:, [0, 2, 3]]])), above[pairs]
