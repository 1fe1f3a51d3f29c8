"""The ground under a robot: a plane of any slope, or a height field over it (steps, rubble)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...core.errors import StructureError
from ...core.simulator import Array


class HeightField(NamedTuple):
    """Ground, as kernels read it: slope, and heights over it in cells (last_x + 1) x (last_y + 1)."""

    rise: float
    per_cell: float
    """[1/m]"""
    last_x: float
    last_y: float
    cells: Array
    """(cells, 4): coefficients of z = a + b s + (c + d s) t"""


@dataclass(frozen=True, eq=False)
class Terrain:
    """Ground z = slope + terrain_scale * heights, with `terrain_scale` one of the robot's parameters.

    Use the constructors `flat`, `slope`, `steps` and `rubble`. Outside its grid a height field goes on as at its rim.
    """

    angle: float = 0.0
    """Inclination [rad]; positive angles rise towards +x."""
    heights: Array = field(default_factory=lambda: np.zeros((2, 2)))
    """(nx, ny) [m]; heights[i, j] stands over origin + cell * (i, j)."""
    cell: float = 1.0
    """Distance of grid points [m]."""

    def __post_init__(self) -> None:
        if not abs(self.angle) < np.pi / 3:
            raise StructureError(f"slope angle is {self.angle} rad, allowed is |angle| < pi/3")
        if self.heights.ndim != 2 or min(self.heights.shape) < 2 or not np.isfinite(self.heights).all():
            raise StructureError(f"heights has shape {self.heights.shape}, expected (nx >= 2, ny >= 2), all finite")
        if not self.cell > 0:
            raise StructureError(f"cell is {self.cell} m, expected > 0")

    @cached_property
    def is_plane(self) -> bool:
        """Whether there is no height field."""
        return not self.heights.any()

    @property
    def is_level(self) -> bool:
        """Whether the ground is the plane z = 0."""
        return self.is_plane and self.angle == 0.0

    @property
    def origin(self) -> Array:
        """(2,) [m]: x, y of heights[0, 0]; the grid is centred on the world's origin."""
        return -0.5 * self.cell * (np.array(self.heights.shape) - 1.0)

    @classmethod
    def flat(cls) -> Terrain:
        """The plane z = 0."""
        return cls()

    @classmethod
    def slope(cls, angle: float) -> Terrain:
        """A plane inclined by `angle` [rad], rising towards +x."""
        return cls(angle=angle)

    @classmethod
    def steps(cls, *, height: float = 0.1, length: float = 1.0, size: float = 20.0, cell: float = 0.1) -> Terrain:
        """Stairs up to both sides of x = 0: a riser of `height` [m] every `length` [m], flat within `length` of 0.

        A riser is one cell wide.
        """
        count = round(size / cell) + 1
        x = (np.arange(count) - 0.5 * (count - 1)) * cell
        profile = height * np.floor(np.abs(x) / length + 1e-9)
        return cls(heights=np.repeat(profile[:, None], count, axis=1), cell=cell)

    @classmethod
    def rubble(
        cls, *, height: float = 0.15, length: float = 0.6, size: float = 20.0, cell: float = 0.2, seed: int = 0
    ) -> Terrain:
        """Smooth random ground of standard deviation `height` / 2 [m] and correlation length `length` [m]."""
        from scipy.ndimage import gaussian_filter

        count = round(size / cell) + 1
        noise = gaussian_filter(np.random.default_rng(seed).standard_normal((count, count)), length / cell, mode="wrap")
        return cls(heights=0.5 * height * noise / noise.std(), cell=cell)

    def height(self, x: Array, y: Array, scale: Array | float = 1.0) -> Array:
        """Ground height [m] at points x, y [m] (any shape, alike), NaN at NaN; `scale` multiplies the height field."""
        from .heights import heights  # loads Numba

        points = np.broadcast_arrays(np.asarray(x, dtype=np.float64), y, scale)
        found = np.empty(points[0].shape)
        heights(self.field, *(np.ravel(part).astype(np.float64) for part in points), found.reshape(-1))
        return found

    def normal(self, x: Array, y: Array, scale: Array | float = 1.0) -> Array:
        """Unit normals (..., 3) of the ground at points x, y [m] (any shape, alike), NaN at NaN; see `height`."""
        last = np.array(self.heights.shape) - 2
        raw = (np.stack(np.broadcast_arrays(x, y), axis=-1) - self.origin) / self.cell
        inside = np.clip(raw, 0.0, last + 1.0)
        corner = np.minimum(np.nan_to_num(inside), last).astype(np.intp)
        s, t = np.moveaxis(inside - corner, -1, 0)
        _, b, c, d = np.moveaxis(self._cells[corner[..., 0] * (last[1] + 1) + corner[..., 1]], -1, 0)
        rise = np.where(inside == raw, np.stack([b + d * t, c + d * s], axis=-1), 0.0 * raw) / self.cell
        rise = np.asarray(scale)[..., None] * rise + [np.tan(self.angle), 0.0]
        normal = np.concatenate([-rise, np.ones_like(rise[..., :1])], axis=-1)
        return np.asarray(normal / np.linalg.norm(normal, axis=-1, keepdims=True))

    @cached_property
    def field(self) -> HeightField:
        """The ground as kernels read it."""
        last_x, last_y = (float(count) - 2.0 for count in self.heights.shape)
        return HeightField(float(np.tan(self.angle)), 1.0 / self.cell, last_x, last_y, self._cells)

    @cached_property
    def _cells(self) -> Array:
        """The coefficients a, b, c, d of all cells, (cells, 4)."""
        h = self.heights
        along_x, along_y = h[1:] - h[:-1], h[:, 1:] - h[:, :-1]
        parts = h[:-1, :-1], along_x[:, :-1], along_y[:-1], along_y[1:] - along_y[:-1]
        return np.ascontiguousarray(np.stack(parts, axis=-1).reshape(-1, 4))
