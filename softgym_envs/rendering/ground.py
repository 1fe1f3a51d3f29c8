"""The ground as pixels: quads, grid lines, soft shadows, markers and arrows lying on it.

Drawn back to front before the bodies; everything here lies on the ground and never hides a body except through
`hidden_by_ground`. Legend: nx, ny grid points along x and y; M pieces.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pygame
import pygame.gfxdraw
from numpy.typing import NDArray

from ..core.simulator import Array
from .camera import NEAR_PLANE, Camera
from .colors import GRID, PAPER, SHADOW, Color, mix, to_ints
from .scene import Arrow, GroundGrid, Marker, Prism

Size = tuple[int, int]

LIGHT = np.array([-0.35, -0.25, 0.90]) / math.sqrt(0.35**2 + 0.25**2 + 0.90**2)
"""Direction to the sun, world frame."""
LIFT = 0.004
"""Height over the ground at which things lying on it are drawn [m]."""


class _Mesh(NamedTuple):
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
    inside = breaks[(breaks > low) & (breaks < high)]
    values = np.unique(np.round(np.concatenate([major, inside]), 9))
    return values, np.isin(values, np.round(major, 9))


def _mesh(ground: GroundGrid) -> _Mesh:
    x, major_x = _lines(ground.center[0], ground, ground.breaks[0])
    y, major_y = _lines(ground.center[1], ground, ground.breaks[1])
    gx, gy = np.meshgrid(x, y, indexing="ij")
    return _Mesh(x, y, np.stack([gx, gy, ground.height(gx, gy)], axis=-1), major_x, major_y)


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
    mesh = _mesh(ground)
    pixels, depth = camera.project(mesh.points, surface.get_size())
    world, screen, depths = _corners(mesh.points), _corners(pixels), _corners(depth)
    middle = world.mean(axis=1)
    away = np.hypot(middle[:, 0] - ground.center[0], middle[:, 1] - ground.center[1]) / ground.radius
    fade = np.clip(1.0 - away**2, 0.0, 1.0)
    height = middle[:, 2] - float(ground.height(*np.array(ground.center)))
    shade = _shade(world) + 0.5 * np.clip(height / ground.radius, -0.25, 0.15)  # the higher, the lighter
    edges = _major_edges(mesh)
    visible = np.nonzero((fade > 0.0) & (depths.min(axis=1) > NEAR_PLANE) & _on_screen(screen, surface.get_size()))[0]
    order = visible[np.argsort(-depths[visible].mean(axis=1), kind="stable")]
    fill = to_ints(mix(PAPER, np.clip(shade[:, None] * np.asarray(ground.color), 0, 255), fade)[order])
    line = to_ints(mix(PAPER, GRID, 0.9 * fade)[order])
    width = max(1, round(surface.get_height() / 480))
    for quad, fill_color, line_color, drawn in zip(screen[order].tolist(), fill, line, edges[order].tolist(), strict=True):
        pygame.draw.polygon(surface, fill_color, quad)
        for side in range(4):
            if drawn[side]:
                pygame.draw.line(surface, line_color, quad[side], quad[(side + 1) % 4], width)


def _major_edges(mesh: _Mesh) -> NDArray[np.bool_]:
    """Whether the four sides of a quad (y low, x high, y high, x low) lie on grid lines, (Q, 4)."""
    nx, ny = len(mesh.x) - 1, len(mesh.y) - 1
    along_x, along_y = mesh.major_y[None, :].repeat(nx, axis=0), mesh.major_x[:, None].repeat(ny, axis=1)
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
    width = np.maximum(1, np.round(2.2 * radius * camera.focal_length(small[1]) / np.maximum(z0, NEAR_PLANE))).astype(int)
    order = np.argsort(strength, kind="stable")
    order = order[(np.minimum(z0, z1) > NEAR_PLANE)[order]]
    if len(order):
        box = _bounds(np.concatenate([p0[order], p1[order]]), int(width[order].max()) + 12, small)
        dark = to_ints(strength[order, None] * (np.asarray(PAPER) - SHADOW))
        lines = zip(
            dark, (p0[order] - box.topleft).tolist(), (p1[order] - box.topleft).tolist(), width[order].tolist(), strict=True
        )
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
    """A disc and two rings on the ground around the goal."""
    angle = np.linspace(0.0, 2 * np.pi, 65)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)

    def at(radius: float) -> Array:
        flat = marker.position[:2] + radius * marker.radius * circle
        return np.column_stack([flat, ground.height(flat[:, 0], flat[:, 1]) + LIFT])

    _fill(surface, camera, at(1.0), marker.color, 36)
    for outer, inner, alpha in ((1.0, 0.90, 210), (0.45, 0.36, 170)):
        _fill(surface, camera, np.concatenate([at(outer), at(inner)[::-1]]), marker.color, alpha)


def draw_arrow(surface: pygame.Surface, camera: Camera, arrow: Arrow) -> None:
    """A flat arrow; nothing if it is shorter than a millimetre."""
    along = arrow.end - arrow.start
    length = float(np.linalg.norm(along))
    if length < 1e-3:
        return
    along = along / length
    side = 0.5 * arrow.width * np.array([-along[1], along[0], 0.0]) / max(math.hypot(along[0], along[1]), 1e-9)
    neck = arrow.end - along * min(3.0 * arrow.width, length)
    shaft = [arrow.start + side, neck + side] if length > 3.0 * arrow.width else [neck]
    back = [neck - side, arrow.start - side] if length > 3.0 * arrow.width else []
    _fill(surface, camera, np.array([*shaft, neck + 2.6 * side, arrow.end, neck - 2.6 * side, *back]), arrow.color, 225)


def draw_prisms(surface: pygame.Surface, camera: Camera, prisms: list[Prism]) -> None:
    """Blocks as sides and top, far ones first. Bodies are drawn over them: meant for low blocks seen from above."""
    size = surface.get_size()
    feet = [np.column_stack([p.outline, p.floor(p.outline[:, 0], p.outline[:, 1])]) for p in prisms]
    where = [float(np.linalg.norm(foot.mean(axis=0) - camera.position)) for foot in feet]
    for index in np.argsort([-d for d in where], kind="stable").tolist():
        prism, low = prisms[index], feet[index]
        high = low + np.array([0.0, 0.0, prism.height])
        following = np.roll(np.arange(len(low)), -1)
        sides = np.stack([low, low[following], high[following], high], axis=1)
        order = np.argsort(-np.linalg.norm(sides.mean(axis=1) - camera.position, axis=1), kind="stable")
        shade = _shade(sides)
        faces = [(sides[i], 0.78 * min(max(float(shade[i]), 0.6), 1.1)) for i in order] + [(high, 1.0)]
        for corners, light in faces:
            pixels, depth = camera.project(corners, size)
            if depth.min() > NEAR_PLANE and np.abs(pixels).max() < 1e5:
                pygame.draw.polygon(surface, to_ints(light * np.asarray(prism.color, dtype=np.float64)), pixels.tolist())
