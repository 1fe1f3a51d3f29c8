"""Points in a film: equal distances along a bright or coloured body on a plain ground, or coloured markers.

    found = track("film.mp4", "vine", base=(80, 300), ruler=(100, 420, 500, 420, 0.4))
    found.save("tracked.csv")

[Jitosho2021] III takes points along a vine robot from a video in this way. Each frame is compared with the ground's colour; the
body's skeleton, ordered by its distance from the base along the body, is moved to the middle between both edges.

Legend: T frames, P points, H height, W width. Pixels: x to the right, y down.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import DataError, FileFormatError, OptionError, needed
from ..core.files import write_atomically
from ..core.simulator import Array, check_number
from .film_body import TrackedBody
from .film_colors import Image, picked, standing_out
from .film_markers import Markers

VIEWS = {"vine": ("line", "x", "y"), "loop": ("ring", "x", "z"), "tensegrity": ("markers", "x", "z")}
"""System -> what is seen of it, and the robot's axes to the right and up in the picture."""
LEAST_CONFIDENCE = 0.5
"""Confidence below which a point is left out."""
MAX_FPS = 1e5
"""Largest frame rate that a file is believed to state [1/s]."""
NEIGHBOURS = 4
"""Frames before and after one, whose lengths say how long a body is."""
LENGTH_OFF, PIXELS_OFF, TIMES_OFF = 0.03, 3.0, 8.0
"""Deviation from neighbouring frames beyond which points are not believed: share of a length, pixels, times the median."""


@dataclass(frozen=True, eq=False)
class Tracked:
    """Points of a film."""

    times: Array
    """(T,) [s]"""
    names: tuple[str, ...]
    """(P,)"""
    pixels: Array
    """(T, P, 2), without the lens's distortion; NaN where a point was not found."""
    positions: Array
    """(T, P, 2) [m] from the base, to the right and up."""
    confidence: Array
    """(T, P) in 0 ... 1."""
    axes: tuple[str, str]
    """Names of the robot's axes to the right and up."""

    def save(self, path: str | Path, *, least: float = LEAST_CONFIDENCE) -> Path:
        """Write a CSV of tracked points, which `sysid.load` reads; points below the confidence `least` are left out.

        Raises:
            OptionError: `least` is not in 0 ... 1.
            DataError: No point remains.
        """
        check_number("`least`", least, low=0.0, high=1.0)
        lines = [f"time [s], point, {self.axes[0]} [m], {self.axes[1]} [m], confidence"]
        kept = np.isfinite(self.positions).all(axis=2) & (self.confidence >= least)
        for row, place in np.argwhere(kept):
            (x, y), sure = self.positions[row, place], self.confidence[row, place]
            lines.append(f"{self.times[row]:.6f}, {self.names[place]}, {x:.6f}, {y:.6f}, {sure:.2f}")
        if len(lines) == 1:
            raise DataError(f"no point reaches a confidence of {least:g}: is anything in front of the body, or moving?")
        write_atomically(Path(path), "\n".join([*lines, ""]).encode())
        return Path(path)


def track(
    film: str | Path,
    system: str,
    *,
    base: Sequence[float],
    ruler: Sequence[float],
    points: int = 11,
    markers: Sequence[float] = (),
    color: Sequence[int] = (),
    fps: float | None = None,
    lens: Sequence[float] = (),
) -> Tracked:
    """Track points of a vine, a loop or a tensegrity robot in a film.

    A vine's points lie at equal distances from its base to its tip, half a width before its visible end. A loop's begin at its
    base and go round counterclockwise. A tensegrity robot's are coloured markers, named node0, node1, ... as given.

    Args:
        film: A file that OpenCV reads.
        system: "vine", "loop" or "tensegrity".
        base: Pixel x, y of the origin: the vine's base, the loop's clamp, or a point on the ground.
        ruler: Pixels x, y of two points in the plane of the motion, and their distance [m].
        points: Number of points along a body.
        markers: Pixels x, y of every marker in the first frame, in the order of the nodes; its colour is read there.
        color: Red, green, blue of the body, 0 ... 255; (): the colour that stands out from the ground.
        fps: Frames per second of the recording, if the file states another rate, as of slow motion.
        lens: Focal length in pixels and the radial coefficients k1, k2 of OpenCV about the picture's middle; (): no distortion.

    Raises:
        FileFormatError: The file is missing or no film.
        OptionError: An argument is not allowed, or no such colour is in the first frame.
        DataError: Nothing stands out from the ground, or the film has fewer than two frames.
        MissingDependencyError: OpenCV or scikit-image is not installed.
    """
    if system not in VIEWS:
        raise OptionError(f"`system` is {system!r}, expected {', '.join(VIEWS)}: other robots are not seen in a film")
    kind, *axes = VIEWS[system]
    _check(base=(base, (2,)), ruler=(ruler, (5,)), color=(color, (0, 3)), lens=(lens, (0, 3)))
    check_number("`points`", points, low=2, whole=True)
    if (kind == "markers") != bool(len(markers)) or len(markers) % 2:
        raise OptionError(f"`markers` has {len(markers)} numbers, expected x and y of every node, and none of a vine or loop")
    rate, frames = _opened(Path(film), fps)
    first = next(frames, None)
    if first is None:
        raise FileFormatError(f"{film} holds no frame that OpenCV can read")
    straight = _Lens(tuple(map(float, lens)), first.shape[1], first.shape[0])
    given = np.array([*base, *ruler[:4]], dtype=np.float64).reshape(3, 2)
    if outside := [spot for spot in (*given, *np.reshape(markers, (-1, 2))) if not _inside(spot, first)]:
        raise OptionError(f"pixel {outside[0].tolist()} is not in the picture of {first.shape[1]} x {first.shape[0]} pixels")
    origin, *ends = straight(given)
    size = float(np.linalg.norm(ends[1] - ends[0]))
    check_number("`ruler`: the length", ruler[4], positive=True)
    if size < 2:
        raise OptionError(f"`ruler` has ends {size:.2g} pixels apart, expected the pixels of two distant points")
    tracker: TrackedBody | Markers
    if kind == "markers":
        spots = np.reshape(np.asarray(markers, dtype=np.float64), (-1, 2))
        tracker = Markers.found(first, spots, straight)
    else:
        chosen = picked(first, tuple(color)) if len(color) else standing_out(first)
        tracker = TrackedBody.found(first, chosen, np.asarray(base, dtype=np.float64), points, kind == "ring", straight)
    seen = [tracker.step(first), *(tracker.step(frame) for frame in frames)]
    if len(seen) < 2:
        raise DataError(f"{film} has one frame, expected a film")
    pixels, confidence = (np.array([row[i] for row in seen]) for i in (0, 1))
    if kind != "markers":
        confidence = confidence * _steady(np.array([row[-1] for row in seen]))[:, None]
    confidence = np.where(np.isfinite(pixels).all(axis=2), confidence * _smooth(pixels), 0.0)
    positions = (pixels - origin) * np.array([1.0, -1.0]) * ruler[4] / size
    names = tuple(f"node{k}" if kind == "markers" else str(k) for k in range(pixels.shape[1]))
    return Tracked(np.arange(len(seen)) / rate, names, pixels, positions, confidence, (axes[0], axes[1]))


def _check(**given: tuple[Sequence[float], tuple[int, ...]]) -> None:
    """Raise OptionError for a wrong count of numbers."""
    for name, (numbers, counts) in given.items():
        if len(numbers) not in counts or not np.isfinite(np.asarray(numbers, dtype=np.float64)).all():
            raise OptionError(f"`{name}` is {tuple(numbers)}, expected {' or '.join(map(str, counts))} numbers")


def _inside(spot: Array, frame: Image) -> bool:
    return bool(0 <= spot[0] < frame.shape[1] and 0 <= spot[1] < frame.shape[0])


def _opened(path: Path, fps: float | None) -> tuple[float, Iterator[Image]]:
    """Frames per second, and the frames as red, green, blue, (H, W, 3) each."""
    with needed("tracking a film needs OpenCV and scikit-image", "video"):
        import cv2
        import skimage  # noqa: F401
    if not path.is_file():
        raise FileFormatError(f"{path} is missing")
    film = cv2.VideoCapture(str(path))
    if not film.isOpened():
        raise FileFormatError(f"{path} is no film that OpenCV can read: convert it, for example to MP4 with H.264")
    rate = float(film.get(cv2.CAP_PROP_FPS)) if fps is None else fps
    if not 0 < rate < MAX_FPS:
        raise OptionError(f"{path} states {rate:g} frames per second: give the camera's as `fps`")

    def frames() -> Iterator[Image]:
        good, frame = film.read()
        while good:
            yield np.asarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB), dtype=np.uint8)
            good, frame = film.read()
        film.release()

    return rate, frames()


@dataclass(frozen=True)
class _Lens:
    """Pixels (k, 2) of a distorted picture -> those of a pinhole camera."""

    numbers: tuple[float, ...]
    width: int
    height: int

    def __call__(self, pixels: Array) -> Array:
        if not self.numbers:
            return np.asarray(pixels, dtype=np.float64)
        import cv2

        focal, k1, k2 = self.numbers
        matrix = np.array([[focal, 0.0, 0.5 * self.width], [0.0, focal, 0.5 * self.height], [0.0, 0.0, 1.0]])
        given: Any = np.asarray(pixels, dtype=np.float64).reshape(-1, 1, 2)
        found = cv2.undistortPoints(given, matrix, np.array([k1, k2, 0.0, 0.0]), P=matrix)
        return np.asarray(found, dtype=np.float64).reshape(-1, 2)


def _steady(lengths: Array) -> NDArray[np.bool_]:
    """Whether a body is as long as in neighbouring frames, (T,): else a part of it is hidden, or something was added."""
    rows = np.arange(len(lengths))
    near = [lengths[max(0, k - NEIGHBOURS) : k + NEIGHBOURS + 1] for k in rows]
    if not np.isfinite(lengths).any():
        return np.zeros(len(lengths), dtype=bool)
    off = np.array([abs(lengths[k] - np.nanmedian(near[k])) if np.isfinite(near[k]).any() else np.nan for k in rows])
    limit = np.maximum(LENGTH_OFF * np.nanmedian(lengths), TIMES_OFF * np.nanmedian(off))
    return np.asarray(off <= limit, dtype=np.bool_)


def _smooth(pixels: Array) -> NDArray[np.bool_]:
    """Whether points are near the middle of their places one frame before and after, (T, P)."""
    near = np.ones(pixels.shape[:2], dtype=bool)
    if len(pixels) > 2:
        off = np.linalg.norm(pixels[1:-1] - 0.5 * (pixels[2:] + pixels[:-2]), axis=2)
        known = off[np.isfinite(off)]
        limit = max(PIXELS_OFF, TIMES_OFF * float(np.median(known))) if known.size else PIXELS_OFF
        near[1:-1] = ~(off > limit)
    return near
