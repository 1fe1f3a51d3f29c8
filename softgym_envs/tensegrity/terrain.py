"""The ground under a robot: a plane of any slope, or a height field over it (steps, rubble)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..core.errors import StructureError

Array = NDArray[np.float64]

FEW_POINTS = 32
"""Up to so many points are faster without NumPy."""


@dataclass(frozen=True, eq=False)
class Terrain:
    """Ground z = slope + terrain_scale * heights, with `terrain_scale` a constant of the robot's parameters.

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
        """Ground height [m] at points x, y [m] (any shape, alike), NaN at NaN; `scale` multiplies the height field.

        Bilinear within a cell: z = a + b s + (c + d s) t, with s and t in [0, 1] along x and y.
        """
        slope = x * self._rise
        if self.is_plane:
            return np.asarray(slope + scale * (0.0 * y))
        field = self._one_by_one(x, y) if np.size(x) <= FEW_POINTS else self._all_at_once(x, y)
        return np.asarray(slope + scale * field)

    def _all_at_once(self, x: Array, y: Array) -> Array:
        last, columns = self._last, self.heights.shape[1] - 1
        place = np.stack([x, y])
        points = place.reshape(2, -1)
        points *= 1.0 / self.cell
        points += 0.5 * (last + 1.0)
        np.maximum(points, 0.0, out=points)
        np.minimum(points, last + 1.0, out=points)
        index = np.fmin(points, last).astype(np.intp)  # fmin: NaN reads some cell, and its s or t stays NaN
        points -= index
        s, t = place
        a, b, c, d = self._cells.take(index[0] * columns + index[1], axis=1).reshape(4, *x.shape)
        return np.asarray(a + b * s + (c + d * s) * t)

    def _one_by_one(self, x: Array, y: Array) -> Array:
        """The same numbers, bit for bit, without NumPy: several times as fast for a dozen points."""
        last_x, last_y = self._last.ravel().tolist()
        shift_x, shift_y, end_x, end_y = 0.5 * (last_x + 1.0), 0.5 * (last_y + 1.0), last_x + 1.0, last_y + 1.0
        columns, per_cell, cells = self.heights.shape[1] - 1, 1.0 / self.cell, self._cell_list
        heights = []
        for px, py in zip(np.ravel(x).tolist(), np.ravel(y).tolist(), strict=True):
            s, t = px * per_cell + shift_x, py * per_cell + shift_y
            if s != s or t != t:
                heights.append(s + t)
                continue
            s = 0.0 if s < 0.0 else end_x if s > end_x else s
            t = 0.0 if t < 0.0 else end_y if t > end_y else t
            i, j = int(s if s < last_x else last_x), int(t if t < last_y else last_y)
            a, b, c, d = cells[i * columns + j]
            s -= i
            t -= j
            heights.append(a + b * s + (c + d * s) * t)
        return np.array(heights).reshape(np.shape(x))

    @cached_property
    def _rise(self) -> float:
        return float(np.tan(self.angle))

    @cached_property
    def _last(self) -> Array:
        """Index of the last cell along x and along y, (2, 1)."""
        return np.array(self.heights.shape, dtype=np.float64)[:, None] - 2.0

    @cached_property
    def _cells(self) -> Array:
        """The coefficients a, b, c, d of all cells, (4, cells)."""
        h = self.heights
        along_x, along_y = h[1:] - h[:-1], h[:, 1:] - h[:, :-1]
        return np.stack([h[:-1, :-1], along_x[:, :-1], along_y[:-1], along_y[1:] - along_y[:-1]]).reshape(4, -1)

    @cached_property
    def _cell_list(self) -> list[list[float]]:
        rows: list[list[float]] = self._cells.T.tolist()
        return rows
