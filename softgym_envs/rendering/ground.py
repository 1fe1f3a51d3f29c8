"""The ground as pixels: quads, grid lines, soft shadows, markers and arrows lying on it.

Drawn back to front before the bodies; everything here lies on the ground and never hides a body except through
`hidden_by_ground`. Legend: nx, ny grid points along x and y; M pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pygame
import pygame.gfxdraw
from numpy.typing import NDArray

from ..core.simulator import Array
from .camera import NEAR_PLANE, Camera
from .colors import GRID, PAPER, SHADOW, Color, in_chunks, mix, to_bytes, to_ints
from .scene import Arrow, GroundGrid, Marker, Prism

Size = tuple[int, int]

LIGHT = np.array([-0.35, -0.25, 0.90]) / math.sqrt(0.35**2 + 0.25**2 + 0.90**2)
"""Direction to the sun, world frame."""
FAINTEST = 0.04
"""Ground that has faded more than this is not drawn."""
LIFT = 0.004
"""Height over the ground at which things lying on it are drawn [m]."""


class GroundMesh(NamedTuple):
    """Grid points of a ground patch, and which grid lines are drawn."""

    x: Array  # (nx,) [m]
    y: Array  # (ny,) [m]
    points: Array  # (nx, ny, 3) [m]
    major_x: NDArray[np.bool_]  # (nx,)
    major_y: NDArray[np.bool_]  # (ny,)


def _lines(center: float, ground: GroundGrid, breaks: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Coordinates of grid lines and bends within the patch, sorted, and which of them are grid lines."""
    low, high = center - ground.radius, center + ground.radius
    major = ground.spacing * np.arange(math.floor(low / ground.spacing), math.ceil(high / ground.spacing) + 1)
    inside = breaks[(breaks > major[0]) & (breaks < major[-1])]
    values = np.unique(np.round(np.concatenate([major, inside]), 9))
    return values, np.isin(values, np.round(major, 9))


def ground_mesh(ground: GroundGrid) -> GroundMesh:
    """The square patch that holds the ground's round one."""
    x, major_x = _lines(ground.center[0], ground, ground.breaks[0])
    y, major_y = _lines(ground.center[1], ground, ground.breaks[1])
    gx, gy = np.meshgrid(x, y, indexing="ij")
    return GroundMesh(x, y, np.stack([gx, gy, ground.height(gx, gy)], axis=-1), major_x, major_y)


def _shade(corners: Array) -> Array:
    """Brightness of quads from their normals, 1 on level ground; corners (Q, 4, 3) -> (Q,)."""
    normal = np.cross(corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1])
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-12)
    return np.asarray(1.0 + 0.55 * (normal @ LIGHT - LIGHT[2]))


def _corners(values: Array) -> Array:
    """The four corners of every quad, (nx, ny, ...) -> (Q, 4, ...)."""
    four = np.stack([values[:-1, :-1], values[1:, :-1], values[1:, 1:], values[:-1, 1:]], axis=2)
    return four.reshape(-1, *four.shape[2:])


def draw_ground(surface: pygame.Surface, ground: GroundGrid, camera: Camera) -> None:
    """Shaded quads with their grid lines, far ones first, fading into the background."""
    mesh = ground_mesh(ground)
    shape, lines = mesh.points.shape, (mesh.major_x.tobytes(), mesh.major_y.tobytes())
    level = float(ground.height(*np.array(ground.center)))
    patch = _Patch(mesh.points.tobytes(), shape, lines, ground.center, ground.radius, ground.color, level)
    surface.blit(_painted(surface.get_size(), camera, patch), (0, 0))


class _Patch(NamedTuple):
    """Everything of a ground that decides its pixels."""

    points: bytes
    shape: tuple[int, ...]
    major: tuple[bytes, bytes]
    center: tuple[float, float]
    radius: float
    color: Color
    level: float


@lru_cache(maxsize=4)
def _painted(size: Size, camera: Camera, patch: _Patch) -> pygame.Surface:
    """The ground alone, kept: in most pictures neither the camera nor the ground moves."""
    surface = pygame.Surface(size)
    surface.fill(PAPER)
    points = np.frombuffer(patch.points).reshape(patch.shape)
    major_x, major_y = (np.frombuffer(lines, dtype=np.bool_) for lines in patch.major)
    pixels, depth = camera.project(points, size)
    world, screen, depths = _corners(points), _corners(pixels), _corners(depth)
    middle = world.mean(axis=1)
    away = np.hypot(middle[:, 0] - patch.center[0], middle[:, 1] - patch.center[1]) / patch.radius
    fade = np.clip(1.0 - away**2, 0.0, 1.0)
    shade = _shade(world) + 0.5 * np.clip((middle[:, 2] - patch.level) / patch.radius, -0.25, 0.15)  # the higher, the lighter
    visible = np.flatnonzero((fade > FAINTEST) & (depths.min(axis=1) > NEAR_PLANE) & _on_screen(screen, size))
    distance = np.hypot(*(middle - camera.position)[visible, :2].T)
    order = visible[np.argsort(-distance, kind="stable")]
    fill = to_bytes(mix(PAPER, np.clip(shade[:, None] * np.asarray(patch.color), 0, 255), fade)[order])
    line = to_bytes(mix(PAPER, GRID, 0.9 * fade)[order])
    width = max(1, round(size[1] / 480))
    far = _far_corner(middle[order], camera.position)
    edges = _major_edges(major_x, major_y)[order]
    rows = np.arange(len(order))
    corner = np.stack([screen[order][rows, (far + step) % 4] for step in (-1, 0, 1)], axis=1)
    kind = edges[rows, (far - 1) % 4] + 2 * edges[rows, far]
    for quad, paint, ink, bend, drawn in in_chunks(screen[order], fill, line, corner, kind):
        pygame.draw.polygon(surface, paint, quad)
        if drawn == 3:
            pygame.draw.lines(surface, ink, False, bend, width)
        elif drawn:
            pygame.draw.line(surface, ink, bend[drawn - 1], bend[drawn], width)
    return surface


def _far_corner(middle: Array, camera: Array) -> NDArray[np.intp]:
    """Corner of quads (Q, 3) that is farthest from the camera (3,): its two sides are hidden by no other quad; (Q,)."""
    beyond_x, beyond_y = middle[:, 0] > camera[0], middle[:, 1] > camera[1]
    return np.where(beyond_y, np.where(beyond_x, 2, 3), np.where(beyond_x, 1, 0))


def _major_edges(major_x: NDArray[np.bool_], major_y: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether the four sides of a quad (y low, x high, y high, x low) lie on grid lines, (Q, 4)."""
    nx, ny = len(major_x) - 1, len(major_y) - 1
    along_x, along_y = major_y[None, :].repeat(nx, axis=0), major_x[:, None].repeat(ny, axis=1)
    return np.stack([along_x[:, :-1], along_y[1:], along_x[:, 1:], along_y[:-1]], axis=-1).reshape(-1, 4)


def _on_screen(polygons: Array, size: Size) -> NDArray[np.bool_]:
    """Whether the bounding boxes of polygons (Q, v, 2) touch the picture and are not absurdly large."""
    low, high = polygons.min(axis=1), polygons.max(axis=1)
    return np.asarray(
        (high[:, 0] >= 0)
        & (low[:, 0] < size[0])
        & (high[:, 1] >= 0)
        & (low[:, 1] < size[1])
        & ((high - low).max(axis=1) < 20 * size[0])
    )


def hidden_by_ground(points: Array, ground: GroundGrid, camera: Camera, margin: float = 0.06) -> NDArray[np.bool_]:
    """Whether the ground hides points (M, 3) from the camera, by 24 samples along the first 4 m of the ray; (M,)."""
    to_camera = camera.position - points
    length = np.linalg.norm(to_camera, axis=1, keepdims=True)
    reach = np.minimum(length, 4.0) * np.linspace(0.02, 1.0, 24)  # (M, 24)
    ray = points[:, None] + (to_camera / length)[:, None] * reach[..., None]
    clearance = ray[..., 2] - ground.height(ray[..., 0], ray[..., 1])
    return np.asarray((clearance < -margin).any(axis=1))


def draw_shadow(surface: pygame.Surface, ground: GroundGrid, camera: Camera, start: Array, end: Array, radius: Array) -> None:
    """Soft shadow of bars (M, 3) to (M, 3) with radii (M,) [m], cast along the light onto the ground."""
    small = (surface.get_width() // 2, surface.get_height() // 2)
    feet = [_cast(ground, p) for p in (start, end)]
    (p0, z0), (p1, z1) = (camera.project(foot, small) for foot in feet)
    high = 0.5 * (start[:, 2] - feet[0][:, 2] + end[:, 2] - feet[1][:, 2])
    strength = 0.62 * np.exp(-np.maximum(high, 0.0) / 1.2)
    width = np.maximum(1, np.round(2.2 * radius * camera.focal_length(small) / np.maximum(z0, NEAR_PLANE))).astype(int)
    order = np.argsort(strength, kind="stable")
    order = order[(np.minimum(z0, z1) > NEAR_PLANE)[order]]
    if len(order):
        box = _bounds(np.concatenate([p0[order], p1[order]]), int(width[order].max()) + 12, small)
        dark = to_bytes(strength[order, None] * (np.asarray(PAPER) - SHADOW))
        lines = in_chunks(dark, p0[order] - box.topleft, p1[order] - box.topleft, width[order])
        _subtract_blurred(surface, box, lines)


def _bounds(points: Array, margin: int, size: Size) -> pygame.Rect:
    """The part of the picture that holds points (k, 2), with a margin."""
    low = np.clip(np.floor(points.min(axis=0)) - margin, 0, size).astype(int)
    high = np.clip(np.ceil(points.max(axis=0)) + margin, 0, size).astype(int)
    return pygame.Rect(low.tolist(), (high - low).tolist())


def _subtract_blurred(
    surface: pygame.Surface, box: pygame.Rect, lines: Iterable[tuple[list[int], list[float], list[float], int]]
) -> None:
    """Darken the surface by lines on black, blurred; they and their box count pixels of half the size."""
    if min(box.size) < 3:
        return
    layer = pygame.Surface(box.size)
    for color, a, b, width in lines:
        _thick_line(layer, color, a, b, width)
    blurred = pygame.transform.smoothscale(layer, (box.width // 3, box.height // 3))
    large = pygame.transform.smoothscale(blurred, (2 * box.width, 2 * box.height))
    surface.blit(large, (2 * box.x, 2 * box.y), special_flags=pygame.BLEND_SUB)


def _cast(ground: GroundGrid, points: Array) -> Array:
    """Shadow of points (M, 3) on the ground: two fixed-point steps along the light; (M, 3)."""
    slant = -LIGHT[:2] / LIGHT[2]
    foot = points.copy()
    for _ in range(2):
        high = np.maximum(points[:, 2] - ground.height(foot[:, 0], foot[:, 1]), 0.0)
        foot[:, :2] = points[:, :2] + 0.45 * high[:, None] * slant  # steeper than the light: the shadow stays near its robot
    foot[:, 2] = ground.height(foot[:, 0], foot[:, 1]) + LIFT
    return foot


def _thick_line(surface: pygame.Surface, color: list[int], a: list[float], b: list[float], width: int) -> None:
    """A line with round ends."""
    pygame.draw.line(surface, color, a, b, width)
    if width > 2:
        pygame.draw.circle(surface, color, a, width / 2)
        pygame.draw.circle(surface, color, b, width / 2)


def _fill(surface: pygame.Surface, camera: Camera, points: Array, color: Color, alpha: int) -> None:
    """A world polygon (v, 3), half transparent."""
    pixels, depth = camera.project(points, surface.get_size())
    if depth.min() > NEAR_PLANE and np.abs(pixels).max() < 30000:  # gfxdraw takes 16-bit coordinates
        pygame.gfxdraw.filled_polygon(surface, np.round(pixels).astype(int).tolist(), (*color, alpha))


def draw_marker(surface: pygame.Surface, ground: GroundGrid, camera: Camera, marker: Marker) -> None:
    """A target on the ground: a disc and a ring around it."""
    angle = np.linspace(0.0, 2 * np.pi, 49)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)

    def at(radius: float) -> Array:
        flat = marker.position[:2] + radius * marker.radius * circle
        return np.column_stack([flat, ground.height(flat[:, 0], flat[:, 1]) + LIFT])

    _fill(surface, camera, at(1.0), marker.color, 40)
    _fill(surface, camera, np.concatenate([at(1.0), at(0.80)[::-1]]), marker.color, 235)
    _fill(surface, camera, at(0.45), marker.color, 235)


def draw_arrow(surface: pygame.Surface, camera: Camera, arrow: Arrow) -> None:
    """A flat arrow; nothing if it is shorter than a millimetre."""
    head, shaft = arrow.parts()
    if len(head):
        left, right, tip = head
        back = [shaft[2], shaft[1], shaft[0], shaft[3]] if len(shaft) else []
        _fill(surface, camera, np.array([left, tip, right, *back]), arrow.color, 225)


def draw_prisms(surface: pygame.Surface, camera: Camera, prisms: list[Prism]) -> None:
    """Blocks as sides and top, far ones first. Bodies are drawn over them: meant for low blocks seen from above."""
    if not prisms:
        return
    counts = [len(p.outline) for p in prisms]
    ends = np.cumsum(counts)
    feet = np.concatenate([np.column_stack([p.outline, p.floor(p.outline[:, 0], p.outline[:, 1])]) for p in prisms])
    tops = feet + np.repeat([(0.0, 0.0, p.height) for p in prisms], counts, axis=0)
    following = np.arange(len(feet)) + 1
    following[ends - 1] = ends - counts
    sides = np.stack([feet, feet[following], tops[following], tops], axis=1)
    pixels, depth = camera.project(sides, surface.get_size())
    seen = (depth.min(axis=1) > NEAR_PLANE) & (np.abs(pixels).max(axis=(1, 2)) < 1e5)
    away = np.linalg.norm(sides.mean(axis=1) - camera.position, axis=1)
    light = 0.78 * np.clip(_shade(sides), 0.6, 1.1)
    fill = to_ints(light[:, None] * np.repeat([p.color for p in prisms], counts, axis=0))
    corners = pixels.tolist()
    order = np.argsort(-away, kind="stable")
    owner = np.repeat(np.arange(len(prisms)), counts)
    for index in np.argsort([-away[end - count : end].mean() for end, count in zip(ends, counts, strict=True)], kind="stable"):
        own = order[owner[order] == index]
        if seen[own].all():
            for side in own.tolist():
                pygame.draw.polygon(surface, fill[side], corners[side])
            pygame.draw.polygon(surface, prisms[index].color, pixels[ends[index] - counts[index] : ends[index], 3].tolist())
