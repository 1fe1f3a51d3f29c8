"""Orbit camera: a point to look at, two angles and a distance; perspective projection of many points at once.

Legend: k number of points. World: z up, metres. Pixels: x to the right, y down, (0, 0) the upper left corner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..core.errors import OptionError
from ..core.simulator import Array

NEAR_PLANE = 0.05
"""Points closer to the camera than this [m] are not drawn."""
ASPECT = 4 / 3
"""Width over height of the picture for which scenes are framed: narrower ones show as much from left to right."""
VIEWS = ("default", "side", "front", "top", "follow")
"""Named views of a scene, see `view_of`."""


@dataclass(frozen=True)
class Camera:
    """Looks at `target` from `distance`; with equal arguments it always makes the same picture.

    Raises:
        OptionError: Distance, field of view or elevation out of range, or not finite.
    """

    target: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Point to look at [m]."""
    distance: float = 5.0
    """Distance from the target [m]."""
    azimuth: float = float(np.deg2rad(-62.0))
    """Direction from the target to the camera [rad]; 0 is +x, pi/2 is +y."""
    elevation: float = float(np.deg2rad(20.0))
    """Height of the camera over the horizon of the target [rad]."""
    field_of_view: float = float(np.deg2rad(34.0))
    """Vertical opening angle of a picture of 4:3 or wider [rad]."""

    def __post_init__(self) -> None:
        numbers = {
            "distance": (self.distance, 2 * NEAR_PLANE, 1e4),
            "elevation": (self.elevation, -np.pi / 2, np.pi / 2),
            "field_of_view": (self.field_of_view, 0.01, 3.0),
            "azimuth": (self.azimuth, -1e6, 1e6),
        }
        for name, (value, lower, upper) in numbers.items():
            if not lower <= value <= upper:  # NaN fails too
                raise OptionError(f"camera {name} is {value}, allowed is [{lower:.4g}, {upper:.4g}]")

    @cached_property
    def axes(self) -> Array:
        """Rows: to the right, up, forward, in the world frame, (3, 3)."""
        ca, sa, ce, se = np.cos(self.azimuth), np.sin(self.azimuth), np.cos(self.elevation), np.sin(self.elevation)
        return np.array([[-sa, ca, 0.0], [-se * ca, -se * sa, ce], [-ce * ca, -ce * sa, -se]])

    @cached_property
    def position(self) -> Array:
        """Position of the camera, (3,) [m]."""
        return np.asarray(np.asarray(self.target) - self.distance * self.axes[2])

    def focal_length(self, size: tuple[int, int]) -> float:
        """f = (H / 2) / tan(field_of_view / 2) in pixels; H is the height, or that of a picture of 4:3 if it is wider."""
        return float(0.5 * min(size[1], size[0] / ASPECT) / np.tan(0.5 * self.field_of_view))

    def project(self, points: Array, size: tuple[int, int]) -> tuple[Array, Array]:
        """x = W/2 + f X/Z, y = H/2 - f Y/Z with (X, Y, Z) in the camera's frame.

        Args:
            points: World points (..., 3) [m].
            size: Width and height of the picture in pixels.

        Returns:
            Pixels (..., 2), and depth Z (...) [m] along the viewing direction. Where Z < NEAR the pixels mean nothing.
        """
        local = (points - self.position) @ self.axes.T
        depth = local[..., 2]
        scale = self.focal_length(size) / np.maximum(depth, NEAR_PLANE)
        pixels = np.stack([0.5 * size[0] + scale * local[..., 0], 0.5 * size[1] - scale * local[..., 1]], axis=-1)
        return pixels, depth

    def orbit(self, azimuth: float, elevation: float) -> Camera:
        """Turn by two angles [rad]; the elevation stays between 2 degrees under the horizon and 88 degrees over it."""
        raised = float(np.clip(self.elevation + elevation, np.deg2rad(-2.0), np.deg2rad(88.0)))
        return replace(self, azimuth=float((self.azimuth + azimuth + np.pi) % (2 * np.pi) - np.pi), elevation=raised)

    def zoom(self, factor: float) -> Camera:
        """Multiply the distance by `factor`, between 0.3 m and 200 m."""
        return replace(self, distance=float(np.clip(self.distance * factor, 0.3, 200.0)))

    def looking_at(self, target: Array | tuple[float, float, float]) -> Camera:
        """Copy that looks at another point (3,) [m]."""
        x, y, z = (float(v) for v in target)
        return replace(self, target=(x, y, z))
