"""A scene and a camera become pixels: ground, shadow, what lies on the ground, then bodies from far to near.

Bodies are cut into short pieces before they are sorted by depth, so that crossing rods and cables hide each other where
they should. Every picture is drawn at twice its size and scaled down, which smooths all edges. Legend: M pieces.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pygame
from numpy.typing import NDArray

from ..core.simulator import Array
from .camera import NEAR_PLANE, Camera
from .colors import PAPER, mix, to_ints
from .ground import draw_arrow, draw_ground, draw_marker, draw_prisms, draw_shadow, hidden_by_ground
from .scene import Arrow, GroundGrid, Marker, Primitive, Prism, Scene, Segment, Sphere, Trail

SUPERSAMPLING = 2
PIECE = 0.16
"""Longest piece of a bar [m]."""
SCREEN_LIGHT = np.array([-0.40, -0.62, 0.68])
"""Direction to the light in the picture: right, down, towards the viewer."""
HALO = 2.0
"""Width of the light rim that lifts a bar off what lies behind it, in supersampled pixels at a height of 960."""

Polygon = tuple[list[int], list[list[float]]]
"""Colour and corners in pixels."""
_Row = tuple[Array, Array, Array, Array, bool]


class _Pieces(NamedTuple):
    """Short bars; a ball is a bar of no length."""

    start: Array  # (M, 3) [m]
    end: Array  # (M, 3) [m]
    radius: Array  # (M,) [m]
    color: Array  # (M, 3)
    solid: NDArray[np.bool_]  # (M,): casts a shadow and has a rim
    front: Array  # (M,) [m]: hides what is not nearer by more than this


def render(scene: Scene, camera: Camera, size: tuple[int, int]) -> pygame.Surface:
    """The picture of a scene, of `size` (width, height) pixels; the same arguments give the same pixels."""
    large = pygame.Surface((SUPERSAMPLING * size[0], SUPERSAMPLING * size[1]))
    large.fill(PAPER)
    grounds = [p for p in scene.primitives if isinstance(p, GroundGrid)]
    pieces = _collect(scene)
    if grounds:
        draw_ground(large, grounds[0], camera)
        draw_shadow(
            large, grounds[0], camera, pieces.start[pieces.solid], pieces.end[pieces.solid], pieces.radius[pieces.solid]
        )
    draw_prisms(large, camera, [p for p in scene.primitives if isinstance(p, Prism)])
    for primitive in scene.primitives:
        if isinstance(primitive, Marker) and grounds:
            draw_marker(large, grounds[0], camera, primitive)
        elif isinstance(primitive, Arrow):
            draw_arrow(large, camera, primitive)
    if grounds:
        pieces = _take(pieces, ~hidden_by_ground(0.5 * (pieces.start + pieces.end), grounds[0], camera))
    _draw_pieces(large, camera, pieces)
    return pygame.transform.smoothscale(large, size)


def _collect(scene: Scene) -> _Pieces:
    """All bars, balls, trails and goal pins as pieces."""
    rows = [(row, getattr(p, "front", 0.0)) for p in scene.primitives for row in _rows(p)]
    if not rows:
        return _Pieces(np.zeros((0, 3)), np.zeros((0, 3)), np.zeros(0), np.zeros((0, 3)), np.zeros(0, dtype=bool), np.zeros(0))
    solid = np.concatenate([np.full(len(row[0]), row[4]) for row, _ in rows])
    front = np.concatenate([np.full(len(row[0]), value) for row, value in rows])
    start, end, radius, color = (np.concatenate([row[i] for row, _ in rows]) for i in range(4))
    return _Pieces(start, end, radius, color, solid, front)


def _rows(p: Primitive) -> list[_Row]:
    """Start, end, radius, colour and whether they are solid, of a primitive's pieces; none for things on the ground."""
    if isinstance(p, Segment):
        return [_cut(p)]
    if isinstance(p, Sphere):
        return [(p.center[None], p.center[None], np.array([p.radius]), np.array([p.color], dtype=float), True)]
    if isinstance(p, Trail) and len(p.points) > 1:
        share = np.linspace(0.15, 1.0, len(p.points) - 1)
        return [(p.points[:-1], p.points[1:], np.full(len(share), 0.5 * p.width), mix(PAPER, p.color, share), False)]
    return _pin(p) if isinstance(p, Marker) else []


def _cut(bar: Segment) -> _Row:
    """A bar in pieces of at most PIECE [m]; of a dashed one every second half piece."""
    length = float(np.linalg.norm(bar.end - bar.start))
    count = max(1, math.ceil(length / PIECE)) if not bar.dashed else 2 * max(1, math.ceil(length / (0.6 * PIECE))) + 1
    share = np.linspace(0.0, 1.0, count + 1)[:, None]
    points = (1.0 - share) * bar.start + share * bar.end
    start, end = (points[:-1:2], points[1::2]) if bar.dashed else (points[:-1], points[1:])
    return start, end, np.full(len(start), 0.5 * bar.width), np.tile(np.array(bar.color, dtype=float), (len(start), 1)), True


def _pin(marker: Marker) -> list[_Row]:
    """A thin pole with a ball over the goal."""
    top = marker.position + np.array([0.0, 0.0, 1.6 * marker.radius])
    pole = _cut(Segment(marker.position, top, 0.05 * marker.radius, marker.color))
    return [pole, (top[None], top[None], np.array([0.11 * marker.radius]), np.array([marker.color], dtype=float), True)]


def _take(pieces: _Pieces, keep: NDArray[np.bool_]) -> _Pieces:
    start, end, radius, color, solid, front = pieces
    return _Pieces(start[keep], end[keep], radius[keep], color[keep], solid[keep], front[keep])


def _draw_pieces(surface: pygame.Surface, camera: Camera, pieces: _Pieces) -> None:
    """Far pieces first, a little paler with distance."""
    if not len(pieces.start):
        return
    size = surface.get_size()
    (p0, z0), (p1, z1) = camera.project(pieces.start, size), camera.project(pieces.end, size)
    keep = (np.minimum(z0, z1) > NEAR_PLANE) & (np.maximum(np.abs(p0).max(axis=1), np.abs(p1).max(axis=1)) < 1e5)
    p0, p1, z0, z1, pieces = p0[keep], p1[keep], z0[keep], z1[keep], _take(pieces, keep)
    depth, focal, unit = 0.5 * (z0 + z1), camera.focal_length(size[1]), size[1] / 960
    smallest = np.where(pieces.solid, 1.3, 1.0) * unit
    r0, r1 = (np.maximum(pieces.radius * focal / z, smallest) for z in (z0, z1))
    color = mix(pieces.color, PAPER, np.clip(0.10 * (depth - camera.distance) / (0.3 * camera.distance), 0.0, 0.35))
    ball = pieces.solid & (p0 == p1).all(axis=1)
    strips = _strips(p0, p1, r0, r1, color, np.where(pieces.solid, HALO * unit, 0.0))
    for i in np.argsort(pieces.front - depth, kind="stable").tolist():
        if ball[i]:
            _draw_ball(surface, p0[i], r0[i], color[i])
        else:
            for fill, quad in strips[i]:
                pygame.draw.polygon(surface, fill, quad)


def _strips(a: Array, b: Array, ra: Array, rb: Array, color: Array, halo: Array) -> list[list[Polygon]]:
    """Colour and corners of each bar's polygons: a light rim (if `halo` > 0), then 1, 3 or 5 strips across it.

    Args:
        a: Ends (M, 2) in pixels, as `b`.
        b: See `a`.
        ra: Half widths at the ends (M,) in pixels, as `rb`.
        rb: See `ra`.
        color: (M, 3).
        halo: Width of the rim (M,) in pixels; 0 also means flat colour.
    """
    along = b - a
    length = np.linalg.norm(along, axis=1)
    n = np.stack([-along[:, 1], along[:, 0]], axis=1) / np.maximum(length, 1e-9)[:, None]
    found: list[list[Polygon]] = [[] for _ in a]
    rim = np.nonzero(halo > 0)[0]
    inset = along[rim] / np.maximum(length[rim], 2.0)[:, None]  # a pixel shorter: the rim must not cut into the next piece
    rims = _quads(a[rim] + inset, b[rim] - inset, n[rim], ra[rim] + halo[rim], rb[rim] + halo[rim], 1)[:, 0].tolist()
    for i, quad in zip(rim.tolist(), rims, strict=True):
        found[i].append((list(PAPER), quad))
    counts = np.where((halo == 0) | (ra < 2), 1, np.where(ra < 5, 3, 5))
    for count in (1, 3, 5):
        which = np.nonzero(counts == count)[0]
        quads = _quads(a[which], b[which], n[which], ra[which], rb[which], count).tolist()
        light = _brightness(n[which], count) if count > 1 else np.ones((len(which), 1))
        fills = to_ints(color[which, None] * light[..., None])
        for i, fill, quad in zip(which.tolist(), fills, quads, strict=True):
            found[i].extend(zip(fill, quad, strict=True))
    return found


def _quads(a: Array, b: Array, n: Array, ra: Array, rb: Array, count: int) -> Array:
    """Corners of `count` equal strips across bars, (M, count, 4, 2)."""
    share = np.linspace(-1.0, 1.0, count + 1)[:, None]
    side_a = a[:, None] + n[:, None] * ra[:, None, None] * share
    side_b = b[:, None] + n[:, None] * rb[:, None, None] * share
    return np.stack([side_a[:, :-1], side_a[:, 1:], side_b[:, 1:], side_b[:, :-1]], axis=2)


def _brightness(n: Array, count: int) -> Array:
    """Light on strips of round bars, (M, count): at u in -1 ... 1 across, the normal is u n + sqrt(1 - u^2) to the viewer."""
    u = (np.arange(count) + 0.5) * 2.0 / count - 1.0
    facing = (n @ SCREEN_LIGHT[:2])[:, None] * u + np.sqrt(1.0 - u**2) * SCREEN_LIGHT[2]
    return np.asarray(0.62 + 0.62 * np.maximum(facing, 0.0))


def _draw_ball(surface: pygame.Surface, center: Array, radius: float, color: Array) -> None:
    """Discs that grow smaller, brighter and closer to the light."""
    for share, light in ((1.0, 0.62), (0.86, 0.82), (0.66, 1.0), (0.42, 1.22), (0.18, 1.55)):
        shift = 0.62 * (1.0 - share) * radius * SCREEN_LIGHT[:2]
        pygame.draw.circle(surface, to_ints(color * light), (center + shift).tolist(), max(share * radius, 1.0))
