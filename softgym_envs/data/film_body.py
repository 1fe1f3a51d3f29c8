"""The centre line of a slender body in a picture, open or closed, and points at equal distances along it.

Legend: P points, S stations along the centre line, H height, W width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d, map_coordinates, maximum_filter1d
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import dijkstra

from ..core.errors import DataError
from ..core.simulator import Array
from .film_colors import Contrast, Image

SPACING = 2.0
"""Pixels between stations."""
SMALLEST_PART = 0.03
"""Share of the body's pixels that a part of it has at least."""
WIDTHS = (0.6, 1.6)
"""Widths over the usual one within which a station is the body's."""
NARROWEST = 1.0
"""Smallest half width [px] that is tracked."""
EDGE = 0.4
"""Score from which on a pixel is the body's; a body's own shade lowers it."""
INNER, FAINTEST = (0.3, 0.75), 0.5
"""Half widths from the middle between which the score of a side is taken, and the least it is taken for."""
BODY_STEP = 0.25
"""Pixels between samples across the body."""


@dataclass(eq=False)
class TrackedBody:
    """A body of one colour; see the module docstring."""

    contrast: Contrast
    base: Array
    """(2,) pixel"""
    points: int
    ring: bool
    straight: Callable[[Array], Array]
    """Pixels (k, 2) -> without the lens's distortion."""
    radius: float = 0.0
    """Half width [px]."""

    @classmethod
    def found(
        cls, frame: Image, contrast: Contrast, base: Array, points: int, ring: bool, straight: Callable[[Array], Array]
    ) -> TrackedBody:
        """The body in the first frame.

        Raises:
            DataError: It is thinner than two pixels.
        """
        self = cls(contrast, base, points, ring, straight)
        mask = contrast.score(frame) > EDGE
        self.radius = _half_width(mask)
        if self.radius < NARROWEST:
            raise DataError(f"the body is {2 * self.radius:.1f} pixels wide in the first frame: come nearer, or give `color`")
        return self

    def step(self, frame: Image) -> tuple[Array, Array, float]:
        """Pixels (P, 2) without distortion, confidence (P,) and the body's length [px]; NaN where there is no body."""
        lost = np.full((self.points, 2), np.nan), np.zeros(self.points), np.nan
        score = self._closed(self.contrast.score(frame))
        mask = score > EDGE
        if self.ring:  # cut open where it begins
            y, x = np.ogrid[: mask.shape[0], : mask.shape[1]]
            mask &= np.hypot(x - self.base[0], y - self.base[1]) > 1.6 * self.radius
        parts = self._parts(mask)
        if not parts:
            return lost
        line, bridged = self._chained(parts)
        if len(line) < 4:
            return lost
        line, good, width = self._centred(line, score)
        good &= ~bridged
        if not good.any():
            return lost
        line, good, width = self._with_ends(line, good, width, score)
        if self.ring and _area(line) > 0:  # clockwise in a picture with y down is counterclockwise to the eye
            line, good, width = line[::-1], good[::-1], width[::-1]
        return self._spread(self.straight(line), good, width)

    def _closed(self, score: Array) -> Array:
        """Score without dark bands across the body."""
        import cv2

        size = 2 * max(1, round(0.35 * self.radius)) + 1
        return np.asarray(cv2.morphologyEx(score, cv2.MORPH_CLOSE, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (size, size))))

    def _parts(self, mask: NDArray[np.bool_]) -> list[Array]:
        """The longest path along the skeleton of every part of the body, each (k, 2) pixels."""
        import cv2

        count, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
        found = []
        areas = stats[1:, cv2.CC_STAT_AREA]
        for k in 1 + np.flatnonzero(areas >= SMALLEST_PART * max(areas.sum(), 1)) if count > 1 else ():
            left, top, width, height = (int(value) for value in stats[k][:4])
            piece = labels[top : top + height, left : left + width] == k
            path = _longest_path(np.pad(piece, 1))
            if len(path) > 2 * self.radius:
                found.append(path + np.array([left - 1.0, top - 1.0]))
        return found

    def _chained(self, parts: list[Array]) -> tuple[Array, NDArray[np.bool_]]:
        """Stations (S, 2) along the parts from the base on, each begun at its nearest end; and which of them lie in gaps."""
        here, parts = self.base, list(parts)
        line: list[Array] = []
        bridged: list[NDArray[np.bool_]] = []
        while parts:
            ends = np.array([[np.linalg.norm(part[end] - here) for end in (0, -1)] for part in parts])
            which, end = np.unravel_index(int(ends.argmin()), ends.shape)
            part = parts.pop(int(which))
            part = _resampled(gaussian_filter1d(part[::-1] if end else part, self.radius, axis=0, mode="nearest"))
            if line:
                gap = _resampled(np.array([line[-1][-1], part[0]]))[1:-1]
                line, bridged = [*line, gap], [*bridged, np.ones(len(gap), dtype=bool)]
            line, bridged, here = [*line, part], [*bridged, np.zeros(len(part), dtype=bool)], part[-1]
        return np.concatenate(line), np.concatenate(bridged)

    def _centred(self, line: Array, score: Array) -> tuple[Array, NDArray[np.bool_], Array]:
        """Stations (S, 2) moved to the middle between both edges; whether both were found; and the width there [px], (S,)."""
        across = np.arange(0.0, 2.5 * self.radius + 3.0, BODY_STEP)
        for _ in range(3):
            normal = _normals(line)
            edges = [_edge(score, line, side * normal, across, self.radius) for side in (1.0, -1.0)]
            shift, width = 0.5 * (edges[0] - edges[1]), edges[0] + edges[1]
            usual = float(np.nanmedian(width)) if np.isfinite(width).any() else np.nan
            good = np.isfinite(width) & (width > WIDTHS[0] * usual) & (width < WIDTHS[1] * usual)
            if not good.any():
                break
            places = np.arange(len(line))
            shift = np.interp(places, places[good], shift[good])
            line = line + gaussian_filter1d(shift, 2.0, mode="nearest")[:, None] * normal
        return line, good, width

    def _with_ends(
        self, line: Array, good: NDArray[np.bool_], width: Array, score: Array
    ) -> tuple[Array, NDArray[np.bool_], Array]:
        """The line from the base to the tip, half a width before the visible end; or from the base around to the base."""
        half = 0.5 * float(np.median(width[good]))
        along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(line, axis=0), axis=1))])
        near = np.linalg.norm(line - self.base, axis=1) < 2.0 * half
        keep = ~(near & (along < 4.0 * half))
        if self.ring:
            keep &= ~(near & (along[-1] - along < 4.0 * half))
            end = self.base
        else:
            keep &= along < along[-1] - half
            if keep.sum() < 4:
                return line, good & False, width
            end, visible = _tip(line[keep], half, score)
        sure = self.ring or visible
        usual = np.array([2.0 * half])
        return (
            np.concatenate([self.base[None], line[keep], end[None]]),
            np.concatenate([[True], good[keep], [sure]]),
            np.concatenate([usual, width[keep], usual]),
        )

    def _spread(self, line: Array, good: NDArray[np.bool_], width: Array) -> tuple[Array, Array, float]:
        """Points at equal distances (P, 2), their confidence (P,), and the length."""
        along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(line, axis=0), axis=1))])
        share = np.arange(self.points) / (self.points if self.ring else self.points - 1)
        places = along[-1] * share
        found = np.stack([np.interp(places, along, axis) for axis in line.T], axis=1)
        usual = float(np.median(width[good])) if good.any() else np.nan
        agree = 1.0 - np.abs(np.log(np.where(good, width, usual) / usual)) / np.log(2.0)
        sure = np.interp(places, along, np.where(good, np.clip(agree, 0.0, 1.0), 0.0))
        # All points move if a part is missing: lengths beyond it are guesses.
        return found, sure * (0.5 + 0.5 * good.mean() if good.mean() > 0.7 else 0.0), float(along[-1])


def _tip(line: Array, half: float, score: Array) -> tuple[Array, bool]:
    """The point half a width before the visible end, along a parabola through the last of stations (S, 2); and is it seen?"""
    last = line[-max(4, round(6.0 * half / SPACING)) :]
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(last, axis=0), axis=1))])
    curve = np.polyfit(along - along[-1], last, 2)  # (3, 2)
    reach = np.arange(0.0, 5.0 * half + 5.0, BODY_STEP)
    ahead = np.stack([np.polyval(axis, reach) for axis in curve.T], axis=1)
    length = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(ahead, axis=0), axis=1))])
    values = map_coordinates(score, ahead.T[::-1], order=1, mode="constant", cval=0.0)
    inside = maximum_filter1d(values > EDGE, 2 * round(0.5 * half / BODY_STEP) + 1)  # a band across the tip is no end
    if not inside[0] or inside.all():
        return line[-1], False
    rim = int(np.argmin(inside))
    near = values[(length > length[rim] - 1.5 * half) & (length < length[rim] - 0.8 * half)]
    limit = 0.5 * max(float(np.median(near)) if near.size else 1.0, FAINTEST)
    k = int(np.flatnonzero(values[:rim] > limit)[-1]) + 1
    seen = length[k - 1] + (length[k] - length[k - 1]) * (values[k - 1] - limit) / (values[k - 1] - values[k])
    return np.array([np.interp(max(seen - half, 0.0), length, axis) for axis in ahead.T]), True


def _half_width(mask: NDArray[np.bool_]) -> float:
    """Half width of the largest part of a mask [px]: its distance to the edge along the skeleton; 0 if there is none."""
    import cv2
    from skimage.morphology import skeletonize

    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    if count < 2:
        return 0.0
    piece = labels == 1 + int(stats[1:, cv2.CC_STAT_AREA].argmax())
    deep = cv2.distanceTransform(piece.astype(np.uint8), cv2.DIST_L2, 5)[skeletonize(piece)]
    return float(np.quantile(deep, 0.75) - 0.5) if deep.size else 0.0


def _longest_path(piece: NDArray[np.bool_]) -> Array:
    """Pixels (k, 2), x and y, along the skeleton between its two ends that are farthest apart along it."""
    from skimage.morphology import skeletonize

    y, x = np.nonzero(skeletonize(piece))
    if len(x) < 2:
        return np.zeros((0, 2))
    number = np.full(piece.shape, -1)
    number[y, x] = np.arange(len(x))
    pairs: list[tuple[NDArray[np.int64], NDArray[np.int64], float]] = []
    for dy, dx in ((0, 1), (1, 0), (1, 1), (1, -1)):
        other = number[y + dy, x + dx]
        pairs.append((np.flatnonzero(other >= 0), other[other >= 0], float(np.hypot(dy, dx))))
    rows, columns = (np.concatenate([pair[i] for pair in pairs]) for i in (0, 1))
    weights = np.concatenate([np.full(len(pair[0]), pair[2]) for pair in pairs])
    graph = coo_matrix((weights, (rows, columns)), shape=(len(x), len(x))).tocsr()
    start = 0
    for _ in range(2):  # from anywhere to the farthest pixel, and from there to the farthest
        away, before = dijkstra(graph, directed=False, indices=start, return_predecessors=True)
        first, start = start, int(np.where(np.isfinite(away), away, -1.0).argmax())
    path = [start]
    while path[-1] != first:
        path.append(int(before[path[-1]]))
    return np.stack([x[path], y[path]], axis=1).astype(np.float64)


def _resampled(line: Array) -> Array:
    """Stations `SPACING` apart along a line (k, 2), its ends included."""
    along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(line, axis=0), axis=1))])
    places = np.linspace(0.0, along[-1], max(2, round(along[-1] / SPACING) + 1))
    return np.stack([np.interp(places, along, axis) for axis in line.T], axis=1)


def _normals(line: Array) -> Array:
    """Unit normals at stations, (S, 2)."""
    along = np.gradient(gaussian_filter1d(line, 1.5, axis=0, mode="nearest"), axis=0)
    along /= np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1e-9)
    return np.stack([-along[:, 1], along[:, 0]], axis=1)


def _edge(score: Array, line: Array, ways: Array, reach: Array, half: float) -> Array:
    """Distance [px] from stations (S, 2) along unit ways (S, 2) to the body's edge, (S,); NaN: none.

    There the score falls below half of what it is between `INNER` half widths on the same side, which may lie in its own shade.
    """
    spots = line[:, None] + reach[:, None] * ways[:, None]
    values = map_coordinates(score, [spots[..., 1], spots[..., 0]], order=1, mode="constant", cval=0.0)
    inner = (reach >= INNER[0] * half) & (reach <= INNER[1] * half)
    limit = 0.5 * np.maximum(np.median(values[:, inner], axis=1), FAINTEST)
    inside = values > limit[:, None]
    last = np.argmin(inside, axis=1)  # first sample outside
    rows = np.arange(len(line))
    known = (last > 0) & ~inside[rows, last]
    a, b = values[rows, last - 1], values[rows, last]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = reach[last - 1] + BODY_STEP * (a - limit) / (a - b)
    return np.asarray(np.where(known, found, np.nan))


def _area(line: Array) -> float:
    """Signed area of a closed line in a picture, positive if clockwise to the eye."""
    (x, y), (u, v) = line.T, np.roll(line, -1, axis=0).T
    return 0.5 * float((x * v - u * y).sum())
