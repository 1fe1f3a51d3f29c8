"""Tables with names and units, and time stamps on a uniform grid; `data.formats` reads tables from files."""

from __future__ import annotations

import datetime
import decimal
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.errors import DataError, FileFormatError, shown
from ..core.simulator import Array, check_number
from ..core.units import UNITS, to_si, unit_named

IntArray = NDArray[np.int64]

MOST_MISSING, EMPTIEST = 10_000, 20
"""Largest number of frames of a grid: `MOST_MISSING` plus `EMPTIEST` times the number of stamps."""
JITTER = 0.05
"""Largest distance of a time stamp from its uniform grid, as a share of the period, plus half of its rounding."""
MAX_ROUNDING_ERROR = 0.3
"""Largest such distance for any rounding, or if fps is given: beyond it a frame may be taken for its neighbour."""


@dataclass(frozen=True)
class Table:
    """Columns of a file, as text or numbers, with names and units of the header."""

    path: str
    """The file, and its format unless it is plain CSV, for messages."""
    names: tuple[str, ...]
    units: tuple[str, ...]
    """As written in the header; "" where there is none."""
    lines: Sequence[int]
    """Line in the file of each row, for messages."""
    columns: tuple[Sequence[str] | Array, ...]
    """Cells or numbers (rows,) of each column; "" and NaN where nothing was measured."""
    factors: tuple[float, ...] = ()
    """Factor of each column's numbers; (): 1."""
    rate: float | None = None
    """Rows a second by the file's own words, where it has no column of times."""
    up: str = "z"
    """Axis that points up, as formats have it by convention."""
    aside: frozenset[str] = frozenset()
    """Columns that are read only if a mapping names them."""
    source: Path = Path()
    """The file."""
    numbered: bool = False
    """Whether the names are made up, as the file has no header."""

    def index(self, name: str) -> int:
        """Index of column `name`.

        Raises:
            FileFormatError: No such column.
        """
        if name not in self._places:
            named = ", ".join(self.names[:12]) + (f", ... ({len(self.names)} in all)" if len(self.names) > 12 else "")
            raise FileFormatError(f"{self.path} has no column {name!r}; its columns are {named}")
        return self._places[name]

    @functools.cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def column(self, name: str) -> list[str]:
        """Cells of column `name` as text."""
        return [str(cell) for cell in self.columns[self.index(name)]]

    def numbers(self, name: str) -> Array:
        """Column `name` in the unit of the header, (rows,); empty cells are NaN.

        Raises:
            FileFormatError: A cell is no number, or infinite.
        """
        place = self.index(name)
        column, factor = self.columns[place], self.factors[place] if self.factors else 1.0
        if not isinstance(column, np.ndarray):
            column = np.array([self._number(line, name, cell) for line, cell in zip(self.lines, column, strict=True)])
        return column * factor

    def si(self, name: str, *, meters_per_pixel: float | None = None) -> tuple[Array, str]:
        """Column `name` in SI, (rows,), and its SI unit.

        Raises:
            FileFormatError: The header gives no unit, or a cell is no number.
            DataError: Unknown unit, or pixels while `meters_per_pixel` is not given.
        """
        unit = self.units[self.index(name)]
        if not unit:
            example = f"{name} [{'s' if name == 'time' else 'mm'}]"
            raise FileFormatError(
                f"{self.path}: column {name!r} has no unit in the header; write for example {example!r}, or give it in a "
                f"mapping (`map`): `softgym-envs inspect {self.source}` writes one"
            )
        if unit == "px":
            if meters_per_pixel is None:
                raise DataError(f"{self.path}: column {name!r} is in px; say how large a pixel is with `meters_per_pixel=...`")
            return self.numbers(name) * check_number("meters_per_pixel", meters_per_pixel, positive=True), "m"
        si_unit, factor = to_si(unit, where=f"{self.path}: column {name!r}")
        return self.numbers(name) * factor, si_unit

    def times(self, fps: float | None = None) -> Array:
        """Column `time` in s, or column `frame` over `fps` or the file's own rate where there is no time, (rows,).

        Times of a clock, as of Unix, begin at 0. Without unit they are in the one that makes them times of our days.

        Raises:
            FileFormatError: The column is missing, is no time or no whole number, or has an empty cell.
            DataError: There are only frames, and `fps` is not given.
        """
        if "time" not in self.names and (fps or self.rate) and "frame" not in self.names:
            return np.arange(len(self.lines)) / self._rate(fps)
        if "time" not in self.names and "frame" in self.names:
            return self._frames() / self._rate(fps)
        self = self._with_clock()
        times, unit = self.si("time")
        if unit != "s":
            raise FileFormatError(
                f"{self.path}: column 'time' is in {self.units[self.index('time')]!r}, expected s, ms, us or ns"
            )
        if np.isnan(times).any():
            raise FileFormatError(f"{self.path}, line {self.lines[int(np.argmax(np.isnan(times)))]}: the time is missing")
        return times

    def _with_clock(self) -> Table:
        """The table with times since the first one where they are dates or large; a float would round them."""
        place = self.index("time")
        cells, unit = self.columns[place], self.units[place]
        if not len(cells) or isinstance(cells, np.ndarray):
            return self
        if not unit and re.match(r"\d{4}-\d\d-\d\d[T ]", cells[0]):
            stamps, unit = [_seconds_of_date(cell) for cell in cells], "s"
        else:
            try:
                stamps = [decimal.Decimal(cell) for cell in cells]
            except decimal.InvalidOperation:  # named by `numbers`
                return self
            known = unit_named(unit)
            scale = UNITS[known][1] if known else next((u for low, u in CLOCKS if stamps[0] >= low), 0.0)
            if not scale or not float(stamps[0]) * scale > OLDEST:
                return self
            unit = unit or next(name for name, (si, factor) in UNITS.items() if si == "s" and factor == scale)
        since = np.array([float(stamp - stamps[0]) if stamp.is_finite() else np.nan for stamp in stamps])
        columns = (*self.columns[:place], since, *self.columns[place + 1 :])
        return replace(self, columns=columns, units=(*self.units[:place], unit, *self.units[place + 1 :]))

    def _frames(self) -> Array:
        """Column `frame`, (rows,)."""
        frames = self.numbers("frame")
        wrong = ~(frames == np.rint(frames))
        if wrong.any():
            place = int(np.argmax(wrong))
            cell = self.column("frame")[place]
            raise FileFormatError(f"{self.path}, line {self.lines[place]}: frame is {cell!r}, expected a whole number")
        return frames

    def _rate(self, fps: float | None) -> float:
        rate = self.rate if fps is None else fps
        if rate is None:
            raise DataError(f"{self.path} has frames and no column 'time'; say how many frames a second has with `fps=...`")
        return checked_rate(rate, self.path)

    def _number(self, line: int, name: str, cell: str) -> float:
        try:
            value = float(cell) if cell else np.nan
        except ValueError:
            hint = " (write decimals with a point)" if "," in cell else ""
            raise FileFormatError(f"{self.path}, line {line}: {name} is {shown(cell)}, expected a number{hint}") from None
        if np.isinf(value):
            raise FileFormatError(f"{self.path}, line {line}: {name} is infinite; leave the cell empty if it was not measured")
        return value


OLDEST = 1e6
"""Times [s] beyond it are those of a clock, not of a recording."""
CLOCKS = ((10**17, 1e-9), (10**14, 1e-6), (10**11, 1e-3), (10**9, 1.0))
"""Smallest number of a Unix time in ns, us, ms, s, and the unit [s]."""


def _seconds_of_date(cell: str) -> decimal.Decimal:
    """Seconds of a date in the form of ISO 8601; NaN if it is none."""
    try:
        moment = datetime.datetime.fromisoformat(cell)
    except ValueError:
        return decimal.Decimal("nan")
    return decimal.Decimal(str((moment.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)).total_seconds()))


PARTS, NEARBY = 8, (0.85, 1.2)
"""Bins per typical step in which irregular stamps are counted, and the range of rates tried, relative to that of such steps."""

MAX_STAMP_ERROR = 0.2
"""Largest error [frames] at the end of irregular stamps for which their rate is rounded to a whole number."""


class Grid(NamedTuple):
    """A uniform grid under increasing time stamps."""

    times: Array
    """(frames,) [s]"""
    place: IntArray
    """(rows,) frame of each stamp."""
    irregular: bool
    """Whether stamps lie off the grid, each nearest to its place; otherwise they are rounded times of the grid."""


def uniform_grid(times: Array, *, where: str, fps: float | None = None) -> Grid:
    """Find the uniform grid of time stamps (rows,).

    Stamps may be rounded (see `JITTER`) and frames may be missing: the grid is t_k = t_0 + k h, with h = 1 / fps, or of a whole
    number of frames per second if the stamps are its rounded times, or else fitted by least squares. Uniform stamps are
    returned as they are. Irregular stamps, if no fps is given, lie on no grid: then each has the nearest place, and two may
    share one.

    Raises:
        DataError: Fewer than two stamps, not increasing, or not of the given rate; or the grid would be nearly empty, as
            after a jump of the clock.
    """
    with np.errstate(over="ignore"):
        steps = np.diff(times)
    if len(times) < 2:
        raise DataError(f"{where}: {len(times)} points of time, expected at least 2")
    if not (steps > 0).all():
        at = int(np.argmin(steps > 0)) + 1
        raise DataError(f"{where}: times must increase, but {times[at]:g} s follows {times[at - 1]:g} s (frame {at})")
    # The lower median of the steps is one that occurs, never half a gap.
    typical = np.sort(steps)[(len(steps) - 1) // 2] if fps is None else 1.0 / checked_rate(fps, where)
    with np.errstate(over="ignore"):
        index = np.concatenate([[0], np.cumsum(np.maximum(np.rint(steps / typical), 1))])
        if fps is not None:  # each stamp for itself: a rough one does not move those after it
            places = np.rint((times - times[0]) * fps - np.median(((times - times[0]) * fps + 0.5) % 1.0 - 0.5))
            index = places - places[0] if (np.diff(places) > 0).all() else index
    if not index[-1] < MOST_MISSING + EMPTIEST * len(times):
        at = int(np.argmax(steps)) + 1
        raise DataError(
            f"{where}: {times[at]:.6g} s follows {times[at - 1]:.6g} s (frame {at}), where {typical:.4g} s are usual: has the "
            "clock jumped? Cut the file there"
        )
    index = index.astype(np.int64)
    period, start = np.polyfit(index.astype(np.float64), times, 1)
    rate = fps or _whole_rate(times, index, period)
    if rate is not None:
        period, start = 1.0 / rate, float(np.mean(times - index / rate))
    distance = np.abs(start + period * index - times) / period
    worst = int(np.argmax(distance))
    allowed = min(JITTER + 0.5 * _rounded_to(times) / period, MAX_ROUNDING_ERROR) if fps is None else MAX_ROUNDING_ERROR
    if distance[worst] > allowed and fps is not None:
        raise DataError(
            f"{where}: times are not uniform: frame {worst} at {times[worst]:g} s is {100 * distance[worst]:.0f} % of a period "
            f"({period:.4g} s) off the grid, allowed are {100 * allowed:.0f} %; is it another rate?"
        )
    if distance[worst] > allowed:
        return _steadiest_grid(times, typical)
    complete = len(index) == index[-1] + 1
    grid = times if complete and distance[worst] < 1e-9 else start + period * np.arange(index[-1] + 1.0)
    return Grid(grid, index, False)


def _steadiest_grid(times: Array, typical: float) -> Grid:
    """The grid of irregular stamps, with the rate at which their spectrum is highest near that of `typical` steps.

    Steps do not determine it: one of 1.6 frames may be two, or one and the next too early.
    """
    bins = ((times - times[0]) / (typical / PARTS)).astype(np.int64)
    size = 4 << int(bins[-1]).bit_length()
    low, high = (int(size * share / PARTS) for share in NEARBY)
    best = low + int(np.argmax(np.abs(np.fft.rfft(np.bincount(bins, minlength=size))[low : high + 1])))
    period = typical * size / (PARTS * best)
    places = np.rint((times - times[0]) / period - _phase((times - times[0]) / period))
    period, start = np.polyfit(places, times, 1)
    whole = round(1.0 / period)
    if whole > 0 and abs(whole * period - 1.0) * places[-1] < MAX_STAMP_ERROR:
        period, start = 1.0 / whole, float(np.mean(times - places / whole))
    places = np.rint((times - start) / period)
    index = (places - places[0]).astype(np.int64)
    return Grid(start + period * (places[0] + np.arange(index[-1] + 1.0)), index, True)


def _phase(frames: Array) -> float:
    """Circular mean of the fractional parts of frame numbers: -0.5 to 0.5."""
    return float(np.angle(np.exp(2j * np.pi * frames).sum()) / (2 * np.pi))


def _whole_rate(times: Array, index: IntArray, period: float) -> float | None:
    """The whole number of frames per second nearest to a fitted period [s], if the stamps are exactly its rounded times."""
    rate, step = round(1.0 / period) if period > 0 else 0, _rounded_to(times)
    return float(rate) if rate > 0 and np.ptp(times - index / rate) <= step * (1 + 1e-6) else None


def checked_rate(fps: float, where: str) -> float:
    """Frames per second; `OptionError` if it is no positive number."""
    return check_number(f"{where}: fps", fps, positive=True)


def _rounded_to(times: Array) -> float:
    """The largest power of ten down to 0.1 ms [s] of which all stamps are multiples; 0 if there is none."""
    with np.errstate(over="ignore", invalid="ignore"):
        for step in (1.0, 1e-1, 1e-2, 1e-3, 1e-4):
            if (np.abs(times / step - np.rint(times / step)) < 1e-6).all():
                return step
    return 0.0
