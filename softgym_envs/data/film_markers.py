"""Coloured markers in a film: blobs of each colour, assigned to markers over time by their distance from a prediction.

Legend: M markers, k blobs of one colour, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from ..core.errors import OptionError
from ..core.simulator import Array
from .film_colors import COLORFUL, Contrast, Image, ground_of, lab_of, rgb_of

SAME = 12.0
"""Distance in Lab within which two markers have one colour."""
REACH = 2.0
"""Diameters of a marker that it moves in a frame at most, beside its speed."""
FEWEST = 6
"""Pixels of a marker at least."""
SATURATED = 0.5
"""Score from which on a pixel has its full weight: a ball's own shade must not move its centre."""
LOST = 10
"""Frames after which a lost marker is looked for no farther away."""


@dataclass(eq=False)
class Markers:
    """Markers of a film, where they were last."""

    colors: list[tuple[Contrast, list[int]]]
    """Each colour, and the markers that have it."""
    areas: Array
    """Pixels of each marker in the first frame, (M,)."""
    places: Array
    """Where each was last seen, (M, 2)."""
    speeds: Array
    """Pixels per frame, (M, 2)."""
    lost: Array
    """Frames since it was seen, (M,)."""
    straight: Callable[[Array], Array]

    @classmethod
    def found(cls, frame: Image, spots: Array, straight: Callable[[Array], Array]) -> Markers:
        """Markers at pixels (M, 2) of the first frame.

        Raises:
            OptionError: There is no marker at such a pixel.
        """
        lab, ground = lab_of(frame), ground_of(frame)
        own = [np.median(_window(lab, spot), axis=(0, 1)) for spot in spots]
        colors: list[tuple[Contrast, list[int]]] = []
        for k, (body, spot) in enumerate(zip(own, spots, strict=True)):
            if np.linalg.norm(body[1:] - ground[1:]) < COLORFUL:
                raise OptionError(
                    f"marker {k} at pixel {spot.round().astype(int).tolist()} has the colour {rgb_of(body)}, which does not "
                    f"stand out from the ground's, {rgb_of(ground)}: give the pixels of the markers in the first frame"
                )
            for contrast, members in colors:
                if np.linalg.norm(contrast.body[1:] - body[1:]) < SAME:
                    members.append(k)
                    break
            else:
                colors.append((Contrast(ground, body), [k]))
        self = cls(colors, np.zeros(len(spots)), spots.copy(), np.zeros_like(spots), np.zeros(len(spots)), straight)
        for contrast, members in colors:
            centers, areas = _blobs(contrast.score(frame))
            for k in members:
                off = np.linalg.norm(centers - spots[k], axis=1) if len(centers) else np.array([np.inf])
                if not off.min() < 2.0 * np.sqrt(areas[int(off.argmin())] if len(areas) else 1.0):
                    raise OptionError(f"marker {k} at pixel {spots[k].tolist()} is too small: it needs {FEWEST} pixels")
                self.areas[k] = areas[int(off.argmin())]
        self.areas = np.maximum(self.areas, np.median(self.areas))  # one that is half hidden at first is no smaller
        return self

    def step(self, frame: Image) -> tuple[Array, Array]:
        """Pixels (M, 2), NaN where lost, and confidence (M,) in the next frame."""
        seen, sure = np.full_like(self.places, np.nan), np.zeros(len(self.areas))
        self.lost += 1
        for contrast, members in self.colors:
            centers, areas = _blobs(contrast.score(frame))
            if not len(centers):
                continue
            diameter = 2.0 * np.sqrt(self.areas[members] / np.pi)
            ahead = self.places[members] + self.speeds[members] * np.minimum(self.lost[members], 3)[:, None]
            off = np.linalg.norm(ahead[:, None] - centers, axis=2)
            reach = REACH * diameter * np.minimum(self.lost[members], LOST)
            for row, column in zip(*linear_sum_assignment(np.minimum(off, 2 * reach[:, None])), strict=True):
                k = members[row]
                if off[row, column] <= reach[row]:
                    seen[k] = centers[column]
                    size = float(np.clip(areas[column] / self.areas[k], 0.01, 100.0))
                    sure[k] = max(0.0, 1.0 - abs(np.log(size)) / np.log(4.0) * 1.5)
        self._follow(seen, sure)
        return self.straight(np.nan_to_num(seen)) + 0.0 * seen, sure

    def _follow(self, seen: Array, sure: Array) -> None:
        """Update places and speeds; sizes change slowly, as a marker comes nearer."""
        found = np.isfinite(seen).all(axis=1)
        moved = (seen[found] - self.places[found]) / self.lost[found, None]
        self.speeds[found] = np.where(sure[found, None] > 0.5, moved, self.speeds[found])
        self.places[found] = seen[found]
        self.lost[found] = 0


def _window(lab: Array, spot: Array) -> Array:
    """Colours in the three pixels by three about a pixel."""
    x, y = np.rint(spot).astype(int)
    return lab[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]


def _blobs(score: Array) -> tuple[Array, Array]:
    """Centres (k, 2), weighted by the score, and areas (k,) of connected pixels above a half."""
    import cv2

    count, labels, stats, _ = cv2.connectedComponentsWithStats((score > 0.5).astype(np.uint8), connectivity=8)
    centers, areas = [], []
    for k in range(1, count):
        left, top, width, height, area = (int(value) for value in stats[k])
        if area < FEWEST:
            continue
        rows, columns = slice(max(top - 2, 0), top + height + 2), slice(max(left - 2, 0), left + width + 2)
        own = (labels[rows, columns] == k) | (labels[rows, columns] == 0)
        weight = np.where(own, np.clip(score[rows, columns] / SATURATED, 0.0, 1.0), 0.0)
        weight[weight < 0.4] = 0.0
        y, x = np.mgrid[rows.start : rows.start + weight.shape[0], columns.start : columns.start + weight.shape[1]]
        centers.append([float((weight * axis).sum() / weight.sum()) for axis in (x, y)])
        areas.append(float(weight.sum()))
    return np.array(centers).reshape(-1, 2), np.array(areas)
