"""A scene and a camera become pixels: ground, shadow, what lies on the ground, then bodies from far to near.

Bodies are cut into short pieces before they are sorted by depth, so that crossing rods and cables hide each other where
they should. Every picture is drawn at twice its size and scaled down, which smooths all edges. Legend: M pieces.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pygame
from numpy.typing import NDArray

from ..core.simulator import Array
from .camera import NEAR_PLANE, Camera
from .colors import PAPER, in_chunks, mix, to_bytes
from .ground import LIGHT, draw_arrow, draw_ground, draw_marker, draw_prisms, draw_shadow, hidden_by_ground
from .scene import Arrow, Face, GroundGrid, Marker, Primitive, Prism, Scene, Segment, Sphere, Trail

SUPERSAMPLING = 2
PIECE = 0.18
"""Longest piece of a bar over the extent of the scene."""
SCREEN_LIGHT = np.array([-0.40, -0.62, 0.68])
"""Direction to the light in the picture: right, down, towards the viewer."""
DISCS = np.array([[1.0, 0.62], [0.86, 0.82], [0.66, 1.0], [0.42, 1.22], [0.18, 1.55]])
"""Sizes of the discs of a ball, and their brightness."""
STEEP = math.radians(50.0)
"""Elevation of the camera from which goals have no pin [rad]."""
HALO = 2.0
"""Width of the light rim that lifts a bar off what lies behind it, in supersampled pixels at a height of 960."""


class _Pieces(NamedTuple):
    """Short bars; a ball is a bar of no length."""

    start: Array  # (M, 3) [m]
    end: Array  # (M, 3) [m]
    radius: Array  # (M,) [m]
    color: Array  # (M, 3)
    solid: NDArray[np.bool_]  # (M,): casts a shadow and has a rim
    front: Array  # (M,) [m]: hides what is not nearer by more than this


def render(scene: Scene, camera: Camera, size: tuple[int, int], *, overlay: bool = True) -> pygame.Surface:
    """The picture of a scene, of `size` (width, height) pixels; the same arguments give the same pixels."""
    primitives = (*scene.primitives, *scene.overlay) if overlay else scene.primitives
    grounds = [p for p in primitives if isinstance(p, GroundGrid)]
    large = pygame.Surface((SUPERSAMPLING * size[0], SUPERSAMPLING * size[1]))
    if not grounds:
        large.fill(PAPER)
    pieces = _collect(primitives, camera, PIECE * scene.extent)
    if grounds:
        draw_ground(large, grounds[0], camera)
        draw_shadow(
            large, grounds[0], camera, pieces.start[pieces.solid], pieces.end[pieces.solid], pieces.radius[pieces.solid]
        )
    draw_prisms(large, camera, [p for p in primitives if isinstance(p, Prism)])
    for primitive in primitives:
        if isinstance(primitive, Marker) and grounds:
            draw_marker(large, grounds[0], camera, primitive)
        elif isinstance(primitive, Arrow):
            draw_arrow(large, camera, primitive)
    if grounds:
        pieces = _take(pieces, ~hidden_by_ground(0.5 * (pieces.start + pieces.end), grounds[0], camera))
    _draw_pieces(large, camera, pieces, [p for p in primitives if isinstance(p, Face)])
    return pygame.transform.smoothscale(large, size)


def _collect(primitives: Sequence[Primitive], camera: Camera, longest: float) -> _Pieces:
    """All bars, balls, trails and goal pins as pieces."""
    parts = [*primitives]
    if camera.elevation < STEEP:  # seen from above a pin would hide its own goal
        parts += [part for p in primitives if isinstance(p, Marker) for part in _pin(p)]
    bars = [p for p in parts if isinstance(p, Segment)]
    balls = [p for p in parts if isinstance(p, Sphere)]
    trails = [p for p in parts if isinstance(p, Trail) and len(p.points) > 1]
    centers, radii = np.array([p.center for p in balls]).reshape(-1, 3), np.array([p.radius for p in balls])
    colors = np.array([p.color for p in balls], dtype=np.float64).reshape(-1, 3)
    fronts = np.array([p.front for p in balls])
    found = [_cut(bars, longest), _Pieces(centers, centers, radii, colors, np.ones(len(balls), dtype=bool), fronts)]
    for p in trails:
        share, width = np.linspace(0.15, 1.0, len(p.points) - 1), np.full(len(p.points) - 1, 0.5 * p.width)
        flat = np.zeros(len(share), dtype=bool)
        fading = mix(PAPER, p.color, share)
        found.append(_Pieces(p.points[:-1], p.points[1:], width, fading, flat, np.full(len(share), p.front)))
    return _Pieces(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _cut(bars: list[Segment], longest: float) -> _Pieces:
    """Bars in pieces of at most `longest` [m]; of a dashed one every second, shorter ones."""
    starts, ends = (np.array(points).reshape(-1, 3) for points in ([p.start for p in bars], [p.end for p in bars]))
    dashed = np.array([p.dashed for p in bars], dtype=bool)
    length = np.linalg.norm(ends - starts, axis=1)
    whole = np.maximum(1, np.ceil(length / np.where(dashed, 0.6 * longest, longest))).astype(int)
    count = np.where(dashed, 2 * whole + 1, whole)
    which = np.repeat(np.arange(len(bars)), count)
    index = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
    kept = ~dashed[which] | (index % 2 == 0)
    which, index = which[kept], index[kept]
    along = (ends - starts)[which] / count[which, None]
    start = starts[which] + index[:, None] * along
    radius = 0.5 * np.array([p.width for p in bars])[which]
    color = np.array([p.color for p in bars], dtype=np.float64).reshape(-1, 3)[which]
    return _Pieces(start, start + along, radius, color, np.ones(len(which), dtype=bool), np.zeros(len(which)))


def _pin(marker: Marker) -> list[Segment | Sphere]:
    """A thin pole with a ball over the goal."""
    top = marker.position + np.array([0.0, 0.0, 1.6 * marker.radius])
    pole = Segment(marker.position, top, 0.05 * marker.radius, marker.color)
    return [pole, Sphere(top, 0.11 * marker.radius, marker.color)]


def _take(pieces: _Pieces, keep: NDArray[np.bool_]) -> _Pieces:
    start, end, radius, color, solid, front = pieces
    return _Pieces(start[keep], end[keep], radius[keep], color[keep], solid[keep], front[keep])


def _draw_pieces(surface: pygame.Surface, camera: Camera, pieces: _Pieces, faces: list[Face]) -> None:
    """Far pieces and faces first, pieces a little paler with distance."""
    size = surface.get_size()
    (p0, z0), (p1, z1) = camera.project(pieces.start, size), camera.project(pieces.end, size)
    keep = (np.minimum(z0, z1) > NEAR_PLANE) & (np.maximum(np.abs(p0).max(axis=1), np.abs(p1).max(axis=1)) < 1e5)
    p0, p1, z0, z1, pieces = p0[keep], p1[keep], z0[keep], z1[keep], _take(pieces, keep)
    depth, focal, unit = 0.5 * (z0 + z1), camera.focal_length(size), size[1] / 960
    smallest = np.where(pieces.solid, 1.3, 1.0) * unit
    r0, r1 = (np.maximum(pieces.radius * focal / z, smallest) for z in (z0, z1))
    color = mix(pieces.color, PAPER, np.clip(0.10 * (depth - camera.distance) / (0.3 * camera.distance), 0.0, 0.35))
    ball = pieces.solid & (p0 == p1).all(axis=1)
    flat, fill, away = _faces(faces, camera, size)
    order = np.argsort(np.concatenate([pieces.front - depth, -away]), kind="stable")
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    halo = np.where(pieces.solid, HALO * unit, 0.0)
    own, rest = rank[: len(depth)], rank[len(depth) :]
    inks = [_Ink(flat, fill, rest, np.zeros(len(flat), dtype=bool)), _discs(p0[ball], r0[ball], color[ball], own[ball])]
    inks += _strips(*(values[~ball] for values in (p0, p1, r0, r1, color, halo, own)))
    corners, fill, rank, is_round = (np.concatenate(column) for column in zip(*inks, strict=True))
    order = np.argsort(rank, kind="stable")
    for points, paint, disc in in_chunks(corners[order], to_bytes(fill[order]), is_round[order]):
        if disc:
            pygame.draw.circle(surface, paint, points[0], points[1][0])
        else:
            pygame.draw.polygon(surface, paint, points)


def _faces(faces: list[Face], camera: Camera, size: tuple[int, int]) -> tuple[Array, Array, Array]:
    """Corners (F, 4, 2) in pixels, colours (F, 3) and depths (F,) [m] of the faces that are turned to the camera."""
    corners = np.array([face.corners for face in faces]).reshape(-1, 4, 3)
    normal = np.cross(corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1])
    middle, body = corners.mean(axis=1), corners.mean(axis=(0, 1)) if faces else np.zeros(3)
    normal *= np.sign(np.sum(normal * (middle - body), axis=1, keepdims=True))
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-12)
    pixels, depth = camera.project(corners, size)
    seen = (np.sum(normal * (camera.position - middle), axis=1) > 0) & (depth.min(axis=1) > NEAR_PLANE)
    light = 0.74 + 0.30 * np.clip(normal @ LIGHT, -0.6, 1.0)
    colors = np.array([face.color for face in faces]).reshape(-1, 3) * light[:, None]
    return pixels[seen], colors[seen], depth.mean(axis=1)[seen]


class _Ink(NamedTuple):
    """Polygons and discs."""

    corners: Array  # (Q, 4, 2) in pixels; of a disc: its centre, its radius twice, and nothing
    fill: Array  # (Q, 3)
    rank: NDArray[np.intp]  # (Q,): drawn in this order
    round: NDArray[np.bool_]  # (Q,): a disc


def _strips(a: Array, b: Array, ra: Array, rb: Array, color: Array, halo: Array, rank: NDArray[np.intp]) -> list[_Ink]:
    """Each bar's polygons: a light rim (if `halo` > 0), then 1, 3 or 5 strips across it.

    Args:
        a: Ends (M, 2) in pixels, as `b`.
        b: See `a`.
        ra: Half widths at the ends (M,) in pixels, as `rb`.
        rb: See `ra`.
        color: (M, 3).
        halo: Width of the rim (M,) in pixels; 0 also means flat colour.
        rank: Place of the bar in the order of drawing (M,).
    """
    along = b - a
    length = np.linalg.norm(along, axis=1)
    n = np.stack([-along[:, 1], along[:, 0]], axis=1) / np.maximum(length, 1e-9)[:, None]
    rim = np.flatnonzero(halo > 0)
    inset = along[rim] / np.maximum(length[rim], 2.0)[:, None]  # a pixel shorter: the rim must not cut into the next piece
    rims = _quads(a[rim] + inset, b[rim] - inset, n[rim], ra[rim] + halo[rim], rb[rim] + halo[rim], 1)[:, 0]
    found = [_Ink(rims, np.tile(np.array(PAPER, dtype=np.float64), (len(rim), 1)), rank[rim], np.zeros(len(rim), dtype=bool))]
    counts = np.where((halo == 0) | (ra < 2), 1, np.where(ra < 5, 3, 5))
    for count in (1, 3, 5):
        which = np.flatnonzero(counts == count)
        quads = _quads(a[which], b[which], n[which], ra[which], rb[which], count).reshape(-1, 4, 2)
        light = _brightness(n[which], count) if count > 1 else np.ones((len(which), 1))
        fill = (color[which, None] * light[..., None]).reshape(-1, 3)
        found.append(_Ink(quads, fill, np.repeat(rank[which], count), np.zeros(len(quads), dtype=bool)))
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


def _discs(center: Array, radius: Array, color: Array, rank: NDArray[np.intp]) -> _Ink:
    """Five discs for each ball, which grow smaller, brighter and closer to the light; (M, 2), (M,), (M, 3), (M,)."""
    share, light = DISCS.T
    middle = center[:, None] + 0.62 * (1.0 - share)[:, None] * radius[:, None, None] * SCREEN_LIGHT[:2]
    radii = np.maximum(share * radius[:, None], 1.0)
    corners = np.zeros((len(center), len(share), 4, 2))
    corners[:, :, 0], corners[:, :, 1] = middle, radii[..., None]
    fill = (color[:, None] * light[:, None]).reshape(-1, 3)
    return _Ink(corners.reshape(-1, 4, 2), fill, np.repeat(rank, len(share)), np.ones(len(fill), dtype=bool))
