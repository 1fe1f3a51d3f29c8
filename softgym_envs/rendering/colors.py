"""Colours: one palette for all systems, and a perceptually uniform map from tension to colour.

Colours are (red, green, blue) in 0 ... 255. Legend: k number of colours.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.simulator import Array

Color = tuple[int, int, int]

CHUNK = 64
"""Rows that `in_chunks` turns into lists at a time."""
PAPER: Color = (248, 249, 251)
"""Background; the ground fades into it."""
GROUND: Color = (226, 231, 236)
GRID: Color = (190, 199, 208)
SHADOW: Color = (120, 130, 145)
ROD: Color = (72, 82, 98)
CAP: Color = (44, 51, 63)
SLACK: Color = (128, 134, 143)
TRAIL: Color = (35, 120, 190)
GOAL: Color = (24, 148, 96)
COMMAND: Color = (24, 148, 96)
VELOCITY: Color = (35, 120, 190)
TUBE: Color = (236, 190, 112)
RING: Color = (92, 66, 30)
OBSTACLE: Color = (150, 160, 174)
FORCE: Color = (206, 62, 54)
INK: Color = (38, 44, 54)
"""Text."""
FAINT: Color = (112, 120, 132)
"""Secondary text."""


def oklch_to_rgb(lch: Array) -> Array:
    """Lightness, chroma, hue [rad] of Oklab [Ottosson2020], (..., 3) -> sRGB in 0 ... 1, (..., 3), clipped."""
    lightness, chroma, hue = np.moveaxis(np.asarray(lch, dtype=np.float64), -1, 0)
    lab = np.stack([lightness, chroma * np.cos(hue), chroma * np.sin(hue)], axis=-1)
    to_cone = np.array(
        [[1.0, 0.3963377774, 0.2158037573], [1.0, -0.1055613458, -0.0638541728], [1.0, -0.0894841775, -1.2914855480]]
    )
    to_linear = np.array(
        [
            [4.0767416621, -3.3077115913, 0.2309699292],
            [-1.2684380046, 2.6097574011, -0.3413193965],
            [-0.0041960863, -0.7034186147, 1.7076147010],
        ]
    )
    linear = np.clip((lab @ to_cone.T) ** 3 @ to_linear.T, 0.0, 1.0)
    return np.asarray(np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055))


@lru_cache(maxsize=1)
def _tension_table() -> NDArray[np.uint8]:
    """256 colours along one sweep: light teal over violet to dark red, lightness and hue linear, (256, 3)."""
    s = np.linspace(0.0, 1.0, 256)
    lightness = 0.74 - 0.30 * s
    chroma = 0.105 + 0.085 * s
    hue = np.deg2rad(205.0 + (385.0 - 205.0) * s)
    return np.asarray(np.round(255 * oklch_to_rgb(np.stack([lightness, chroma, hue], axis=-1))), dtype=np.uint8)


def tension_colors(values: Array) -> NDArray[np.uint8]:
    """Colour of a value in 0 ... 1 (clipped), (k,) -> (k, 3): the darker and redder, the tighter."""
    index = np.round(255 * np.clip(np.nan_to_num(values), 0.0, 1.0)).astype(int)
    return np.asarray(_tension_table()[index])


def as_color(rgb: Array | NDArray[np.uint8]) -> Color:
    """Three numbers as a tuple of int, clipped to 0 ... 255."""
    r, g, b = (int(min(max(c, 0), 255)) for c in rgb)
    return r, g, b


def to_ints(colors: Array | NDArray[Any]) -> list[Any]:
    """Colours (..., 3) as nested lists of int, clipped to 0 ... 255, as pygame takes them."""
    listed: list[Any] = to_bytes(colors).tolist()
    return listed


def to_bytes(colors: Array | NDArray[Any]) -> NDArray[np.int64]:
    """Colours (..., 3) as whole numbers, clipped to 0 ... 255."""
    return np.asarray(np.clip(np.round(colors), 0, 255), dtype=np.int64)


def in_chunks(*arrays: Any) -> Iterator[Any]:
    """Rows of arrays (k, ...) as nested lists, made some at a time: many lists at once make Python search all its memory."""
    for start in range(0, len(arrays[0]), CHUNK):
        yield from zip(*(array[start : start + CHUNK].tolist() for array in arrays), strict=True)


def mix(a: Array | Color, b: Array | Color, share: Array | float) -> Array:
    """(1 - share) a + share b for colours (..., 3) and share (...)."""
    weight = np.asarray(share, dtype=np.float64)[..., None]
    return (1.0 - weight) * np.asarray(a, dtype=np.float64) + weight * np.asarray(b, dtype=np.float64)
