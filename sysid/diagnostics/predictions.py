"""Errors of predictions of new recordings, beside those of two simple predictors, and coverage of a fit's prediction intervals.

A prediction begins at a row `now`. It knows the rows up to `now`, and all commands. The simple predictors know the same rows:
*standing still* repeats the last value, *constant velocity* continues a line through the last `VELOCITY_ROWS` rows. Errors are
RMS over the columns of one unit. Errors of quaternions are angles. Legend: W predictions, L rows, E last rows, ny columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core import lie
from softgym_envs.core.errors import DataError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array
from softgym_envs.core.trajectory import Trajectory
from softgym_envs.data.sensors import quaternions_of

from ..problem.problem import FitProblem
from .initial_state import (
    FEWEST_ROWS,
    FIRST_PART,
    LONGEST_START,
    followed_whole,
    predicted,
    rows_of_start,
    rows_unknown,
    starts_of,
    without_first,
)
from .prediction_intervals import MOST, MOST_ESTIMATED, ROWS, Band
from .validation import source_of

HORIZONS = (0.1, 0.25, 0.5, 1.0)  # Horizons [s]; the whole recording is one more.
WHOLE = float("inf")  # Horizon of predictions to the end of a recording.
VELOCITY_ROWS = 10  # Rows that give the velocity of the predictor with constant velocity.
STRIDE = 0.25  # [s] Time between the starts of two predictions.
FEW = 5  # Number of recordings that share the largest number of estimated starts.


@dataclass(frozen=True)
class PredictionError:
    """RMS errors over the columns of one unit at one horizon."""

    kind: str  # Unit of the columns.
    horizon: float  # [s]; infinite for whole recordings: then over all their rows.
    predicted: float
    still: float  # Error of standing still.
    velocity: float  # Error of constant velocity.
    windows: int
    failed: int  # Predictions that diverged; they are left out of `predicted`.


@dataclass(frozen=True)
class Coverage:
    """Share of predictions with errors within a stored prediction interval."""

    kind: str
    horizon: float  # [s]
    size: float  # Upper end of the interval [kind].
    windows: int
    within: float


@dataclass(frozen=True)
class Predictor:
    """A model that predicts columns of recordings: a fit (`of_fit`), or a model of your own."""

    function: Callable[[Trajectory, NDArray[np.intp], int], Array]
    """(recording, rows now (W,), steps) -> columns (W, steps + 1, ny) of the rows from now on; NaN where it diverged."""
    look: int = VELOCITY_ROWS
    """Rows before now that it needs."""
    stride: int = 0
    """Rows between predictions; 0: one per recording."""
    most: int | None = None
    """Largest number of predictions per recording."""

    def rows(self, recording: Trajectory, ahead: int) -> NDArray[np.intp]:
        """Rows at which predictions over `ahead` rows begin."""
        last = recording.num_steps - ahead
        if not self.stride:
            return np.array([self.look] if self.look <= last else [], dtype=np.intp)
        stride = max(self.stride, -(-(last - self.look) // max((self.most or last + 1) - 1, 1)))
        return np.arange(self.look, last + 1, stride)


@dataclass(frozen=True, eq=False)
class Ends:
    """Last rows of all predictions over one horizon, measured and predicted."""

    horizon: float  # [s]
    recording: NDArray[np.intp]  # (W,)
    now: NDArray[np.intp]  # (W,)
    measured: Array  # (W, E, ny)
    predicted: Array  # (W, E, ny); NaN where it diverged.
    still: Array  # (W, ny)
    velocity: Array  # (W, ny)


@dataclass(frozen=True, eq=False)
class Path:
    """A recording with its prediction to the end."""

    label: str
    times: Array  # (L,) [s] since the recording began.
    measured: Array  # (L, ny)
    predicted: Array  # (L, ny)
    still: Array  # (L, ny)
    velocity: Array  # (L, ny)


@dataclass(frozen=True, eq=False)
class Predictions:
    """All predictions of some recordings by one model."""

    names: tuple[str, ...]
    units: tuple[str, ...]
    ends: tuple[Ends, ...]  # One per horizon.
    paths: tuple[Path, ...]  # One per recording that is long enough.

    def errors(self) -> tuple[PredictionError, ...]:
        """Errors of every unit at every horizon, whole recordings last."""
        found: list[PredictionError] = []
        for ends in self.ends:
            three = (ends.predicted[:, -1], ends.still, ends.velocity)
            found += self._rows(ends.horizon, [self._apart(each, ends.measured[:, -1]) for each in three], len(ends.now))
        if self.paths:
            each = [[self._apart(getattr(path, name), path.measured) for path in self.paths] for name in SIMPLE]
            found += self._rows(WHOLE, [_joined(parts) for parts in each], len(self.paths), each[0])
        return tuple(found)

    def _rows(
        self, horizon: float, three: Sequence[dict[str, Array]], count: int, apart: list[dict[str, Array]] | None = None
    ) -> Iterable[PredictionError]:
        for kind, error in three[0].items():
            lost = ~np.isfinite(error).any(axis=1) & np.isfinite(three[1][kind]).any(axis=1)
            failed = int(lost.sum()) if apart is None else sum(bool(np.isnan(part[kind]).all()) for part in apart)
            sizes = [_rms(one[kind]) for one in three]
            if np.isfinite(sizes[1]):
                yield PredictionError(kind, horizon, sizes[0], sizes[1], sizes[2], count, failed)

    def coverage(self, bands: Sequence[Band]) -> tuple[Coverage, ...]:
        """Shares of predictions within prediction intervals, whose errors are medians of the last rows; see `Band`."""
        found, kinds = [], np.array(self.units)
        for band in bands:
            ends = next((each for each in self.ends if each.horizon == band.horizon), None)
            if ends is None or not len(ends.now):
                continue
            errors = (self._signed(ends.predicted, ends.measured) - ends.measured)[..., kinds == band.kind]
            there = np.isfinite(ends.measured[..., kinds == band.kind]).any(axis=(1, 2))
            with np.errstate(all="ignore"):
                middle = np.array([_median(error) for error in errors[there]])
            if len(middle):
                found.append(Coverage(band.kind, band.horizon, band.size, len(middle), float(np.mean(middle <= band.size))))
        return tuple(found)

    def _apart(self, values: Array, measured: Array) -> dict[str, Array]:
        """Unit -> errors (..., columns), those of quaternions as angles [rad] per axis."""
        turns = quaternions_of(self.names)
        plain = [place for place in range(len(self.names)) if all(place not in turn for turn in turns)]
        parts: dict[str, list[Array]] = {}
        for place in plain:
            parts.setdefault(self.units[place], []).append(values[..., place : place + 1] - measured[..., place : place + 1])
        for turn in turns:
            size = np.linalg.norm(values[..., turn], axis=-1, keepdims=True).clip(1e-12)
            parts.setdefault("rad", []).append(lie.difference(values[..., turn] / size, measured[..., turn]))
        return {kind: np.concatenate(columns, axis=-1) for kind, columns in parts.items()}

    def _signed(self, values: Array, measured: Array) -> Array:
        """Values whose quaternions have the measured ones' signs."""
        values = values.copy()
        for turn in quaternions_of(self.names):
            product = (values[..., turn] * measured[..., turn]).sum(axis=-1, keepdims=True)
            values[..., turn] *= np.where(product < 0, -1.0, 1.0)
        return values


def ahead(horizon: float) -> str:
    """A horizon in words."""
    return "the whole recording" if horizon == WHOLE else f"{horizon:g} s"


def label(recording: Trajectory, place: int) -> str:
    """File or experiment of a recording, else its number."""
    return source_of(recording) or f"recording {place + 1}"


def joined(parts: Sequence[Predictions]) -> Predictions:
    """Predictions of the recordings of several stages as one.

    Raises:
        DataError: They are of different columns.
    """
    first, *others = parts
    if not others:
        return first
    if any(part.names != first.names for part in others):
        raise DataError("the recordings measure different quantities: predict them one by one")
    ends, before = [], np.cumsum([0, *(len(part.paths) for part in parts)])
    for each in zip(*(part.ends for part in parts), strict=True):
        moved = [replace(one, recording=one.recording + shift) for one, shift in zip(each, before, strict=False)]
        last = min(one.measured.shape[1] for one in moved)
        stacks = {name: [getattr(one, name) for one in moved] for name in ("recording", "now", *SIMPLE[1:])}
        cut = {name: [getattr(one, name)[:, -last:] for one in moved] for name in ("measured", "predicted")}
        ends.append(Ends(each[0].horizon, **{name: np.concatenate(values) for name, values in (stacks | cut).items()}))
    return Predictions(first.names, first.units, tuple(ends), tuple(path for part in parts for path in part.paths))


SIMPLE = ("predicted", "still", "velocity")  # Fields of `Ends` and `Path` that are predictions.


def compared(pairs: Sequence[tuple[Trajectory, Predictor]], names: Sequence[str], units: Sequence[str]) -> Predictions:
    """Predict columns of recordings, each by its predictor, which may be one for all.

    Args:
        pairs: Recordings, with their predictors.
        names: ny columns that are predicted.
        units: Their units.
    """
    shown = [(recording, predictor, recording.select(names).values) for recording, predictor in pairs]
    ends = tuple(_ends(shown, horizon) for horizon in HORIZONS)
    paths = []
    for index, (recording, predictor, values) in enumerate(shown):
        now = predictor.rows(recording, 1)[:1]
        if len(now):
            rows = slice(int(now[0]), None)
            path = predictor.function(recording, now, recording.num_steps - int(now[0]))[0]
            simple = [_simple(values, int(now[0]), len(path) - 1, moving) for moving in (False, True)]
            times = recording.times[rows] - recording.times[0]
            paths.append(Path(label(recording, index), times, values[rows], path, *simple))
    return Predictions(tuple(names), tuple(units), ends, tuple(paths))


def _ends(shown: Sequence[tuple[Trajectory, Predictor, Array]], horizon: float) -> Ends:
    fewest = min(max(round(horizon / recording.period), 1) for recording, _, _ in shown)
    last = min(ROWS, fewest)
    parts: list[tuple[Any, ...]] = []
    for index, (recording, predictor, values) in enumerate(shown):
        ahead = round(horizon / recording.period)
        now = predictor.rows(recording, ahead)
        if ahead and len(now):
            found = predictor.function(recording, now, ahead)[:, -last:]
            measured = np.stack([values[row + ahead + 1 - last : row + ahead + 1] for row in now])
            still, velocity = (
                np.stack([_simple(values, int(row), ahead, moving)[-1] for row in now]) for moving in (False, True)
            )
            parts.append((np.full(len(now), index), now, measured, found, still, velocity))
    width = shown[0][2].shape[1]
    shapes = ((0,), (0,), (0, last, width), (0, last, width), (0, width), (0, width))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [np.zeros(s) for s in shapes]
    return Ends(horizon, columns[0].astype(np.intp), columns[1].astype(np.intp), *columns[2:])


def _simple(values: Array, now: int, ahead: int, moving: bool) -> Array:
    """Standing still, or constant velocity: columns (ahead + 1, ny) of the rows from `now` on; NaN where nothing was seen."""
    known = values[max(now - VELOCITY_ROWS, 0) : now + 1]
    seen, found = np.isfinite(known), np.full((ahead + 1, known.shape[1]), np.nan)
    for column in np.flatnonzero(seen.any(axis=0)):
        rows = np.flatnonzero(seen[:, column])
        last, times = known[rows, column], rows - (len(known) - 1.0)
        if moving and len(rows) > 1:
            slope, value = np.polyfit(times, last, 1)
            found[:, column] = value + slope * np.arange(ahead + 1)
        else:
            found[:, column] = last[-1]
    return found


def _rms(errors: Array) -> float:
    there = errors[np.isfinite(errors)]
    return float(np.sqrt(np.mean(there**2))) if len(there) else float("nan")


def _median(error: Array) -> float:
    """RMS over columns of medians over rows (E, columns); infinite where the prediction diverged."""
    there = np.isfinite(error).any(axis=0)
    return float(np.sqrt(np.mean(np.nanmedian(error[:, there], axis=0) ** 2))) if there.any() else float("inf")


def _joined(parts: list[dict[str, Array]]) -> dict[str, Array]:
    return {kind: np.concatenate([part[kind] for part in parts]) for kind in parts[0]}


# --- A fit as a predictor ---------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Fitted:
    """Predictions of one recording by the simulator of a problem; starts are estimated once."""

    problem: FitProblem
    parameters: Parameters
    look: int
    starts: dict[int, Array] = field(default_factory=dict)

    def __call__(self, recording: Trajectory, now: NDArray[np.intp], steps: int) -> Array:
        first = now - self.look
        if missing := [row for row in first.tolist() if row not in self.starts]:
            found = starts_of(self.problem, recording, self.parameters, np.array(missing))
            self.starts |= dict(zip(missing, found, strict=True))
        starts = np.stack([self.starts[row] for row in first.tolist()])
        states, good = predicted(self.problem, self.parameters, recording, first, starts, self.look + steps)
        columns = self.problem.seen(states)[:, self.look :].copy()
        columns[~good] = np.nan
        return columns


def of_fit(problem: FitProblem, parameters: Parameters, recording: Trajectory, count: int = 1) -> tuple[Trajectory, Predictor]:
    """A recording from the first row at which the acting commands are known, and the fit as its predictor.

    Predictions start at recorded states, or where these are noisy or measured in part at ones estimated from the rows before
    now. A recording too short for that is predicted once, from its first quarter.

    Args:
        problem: Simulator, columns, parameters of the recordings.
        parameters: Identified parameters.
        recording: One of the problem's columns.
        count: Number of recordings, which share the largest number of estimated starts.
    """
    recording = without_first(recording, rows_unknown(problem, recording))
    look, stride = rows_of_start(problem, recording), max(round(STRIDE / recording.period), 1)
    if problem.full_state and not look:
        return recording, Predictor(_Fitted(problem, parameters, 0), stride=stride, most=MOST)
    if look:
        most = max(MOST_ESTIMATED * FEW // max(count, FEW), 1)
        return recording, Predictor(_Fitted(problem, parameters, look), look, stride, most)
    length = recording.num_steps * recording.period
    begun = round(min(FIRST_PART * length, LONGEST_START) / recording.period) if problem.estimates_initial else FEWEST_ROWS

    def whole(given: Trajectory, now: NDArray[np.intp], steps: int) -> Array:
        states, good = followed_whole(problem, parameters, given)
        columns = problem.seen(states[None])[0, now[0] : now[0] + steps + 1]
        return np.asarray(columns if good else np.full(columns.shape, np.nan))[None]

    return recording, Predictor(whole, min(max(begun, FEWEST_ROWS), recording.num_steps - 1))
