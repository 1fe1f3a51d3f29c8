"""How well a fit predicts unseen data: open-loop errors against the horizon, compared with two reference predictors.

A prediction starts from a recorded state and sees only the controls; where states are measured in part, or with noise, it
starts from an estimated one (`.initial_state`). None starts before the row from which the acting commands are known. Errors are
RMS over the columns of one physical kind. Reference predictors: *persistence* (everything stays as it is at the window's start)
and the parameters before the fit. Legend: W windows, L steps, ny columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from softgym_envs.core.errors import DataError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.procedure import EXPERIMENT, Measurement
from softgym_envs.core.simulator import Array
from softgym_envs.core.trajectory import FILE, Trajectory, TrajectorySet

from ..problem.problem import FitProblem
from ..problem.recording_parameters import RecordingParameters
from ..problem.wrong_units import quantities
from .initial_state import followed_whole, predicted, rows_of_start, rows_unknown, starts_of, without_first

HORIZONS = (0.1, 0.5, 1.0, 2.0, 5.0)  # Horizons [s].
WINDOWS, ESTIMATED = 10, 4
"""Largest number of starts per recording: recorded ones; estimated ones (over all recordings if states are in part)."""
ROLES = {"train": "fitted", "validation": "held out for validation", "test": "held out"}
"""Part of the data -> its name for people."""


@dataclass(frozen=True)
class HorizonError:
    """RMS open-loop error at one horizon, over the columns of one kind and all windows of one part of the data."""

    part: str  # train, validation or test.
    kind: str  # Unit of the columns, or "other".
    horizon: float  # [s]
    fitted: float
    start: float  # Error with the parameters before the fit.
    persistence: float
    windows: int
    failed: int  # Windows in which the simulation diverged; they are left out of `fitted` and `start`.


class Trace(NamedTuple):
    """One recording with its open-loop prediction."""

    label: str  # File or experiment, and whether it was fitted.
    times: Array  # (T+1,) [s] since the recording began.
    names: tuple[str, ...]
    units: tuple[str, ...]
    measured: Array  # (T+1, ny)
    fitted: Array  # (T+1, ny)
    start: Array  # (T+1, ny) with the parameters before the fit.


NO_TRACE = Trace("", np.zeros(0), (), (), *(np.zeros((0, 0)),) * 3)
"""Trace of a fit that was read from a file, or that only shows what another lacks."""


def open_loop(
    problem: FitProblem,
    parameters: Parameters,
    *,
    view: RecordingParameters | None = None,
    horizons: tuple[float, ...] = HORIZONS,
    measurement: Measurement | None = None,
) -> tuple[HorizonError, ...]:
    """Errors on train, validation and test recordings; horizons longer than a recording are left out.

    Args:
        problem: Simulator, data, and the parameters before the fit.
        parameters: Parameters to judge.
        view: Parameters of the recordings to judge; None: the problem's.
        horizons: [s]
        measurement: Judge this function of the state (a CoM, say) instead of the fitted columns; needs fully measured states.

    Raises:
        DataError: `measurement` is given but the states are not fully measured.
    """
    if measurement is not None and not problem.full_state:
        raise DataError("errors of another measurement need fully measured states")
    found: list[HorizonError] = []
    for part, trajectories in zip(("train", "validation", "test"), problem.split, strict=True):
        if len(trajectories):
            found += _part_errors(_pair(problem, parameters, view), part, trajectories, horizons, measurement)
    return tuple(found)


Judged = tuple[FitProblem, Parameters]
"""Parameters, and a problem whose view they are judged with."""


def _pair(problem: FitProblem, parameters: Parameters, view: RecordingParameters | None) -> tuple[Judged, Judged]:
    """The judged parameters and those before the fit, each with its own parameters of the recordings."""
    fitted = problem if view is None or view == problem.view else problem.replace(view=view)
    return (fitted, parameters), (problem, problem.initial_parameters)


def _part_errors(
    pair: tuple[Judged, Judged], part: str, trajectories: TrajectorySet, horizons: tuple[float, ...],
    measurement: Measurement | None,
) -> list[HorizonError]:  # fmt: skip
    problem, _ = pair[0]
    names = measurement.names if measurement else problem.column_names
    units = ("SI",) * len(names) if measurement else trajectories[0].select(names).units
    kind = quantities(problem.simulator, names, units)
    steps = sorted({round(h / trajectories[0].period) for h in horizons} - {0})
    estimated = ESTIMATED if problem.full_state else max(ESTIMATED // len(trajectories), 1)
    windows = [_windows(pair, _known(pair, t), steps, measurement, estimated) for t in trajectories]
    found = []
    for place, count in enumerate(steps):
        errors = np.concatenate([w[:, place] for w in windows])  # (W, 3, ny)
        errors = errors[~np.isnan(errors[:, 2]).all(axis=1)]
        for chosen in dict.fromkeys(kind):
            some = errors[:, :, kind == chosen]
            if len(some) and not np.isnan(some[:, 2]).all():
                rms = [_rms(some[:, predictor]) for predictor in range(3)]
                failed = int(np.isinf(some[:, 0]).any(axis=1).sum())
                found.append(
                    HorizonError(part, str(chosen), count * trajectories[0].period, rms[0], rms[1], rms[2], len(some), failed)
                )
    return found


def _known(pair: tuple[Judged, Judged], trajectory: Trajectory) -> Trajectory:
    """The recording from the first row at which the acting commands are known, by the larger latency of both."""
    return without_first(trajectory, max(rows_unknown(viewed, trajectory) for viewed, _ in pair))


def _rms(errors: Array) -> float:
    there = errors[np.isfinite(errors)]
    return float(np.sqrt(np.mean(there**2))) if len(there) else float("inf")


def _windows(
    pair: tuple[Judged, Judged], trajectory: Trajectory, steps: list[int], measurement: Measurement | None, estimated: int
) -> Array:
    """Errors (W, horizons, 3 predictors, ny): NaN past the end or where nothing was measured, infinity where diverged."""
    problem, _ = pair[0]
    total, look = trajectory.num_steps, rows_of_start(problem, trajectory)
    windowed = problem.full_state or look > 0
    longest, last = min(look + max(steps), total), max(total - look - min(steps), 0) if windowed else 0
    most = (estimated if look else WINDOWS) if windowed else 1
    first = np.unique(np.linspace(0, last, most).astype(int))
    data = problem.values(trajectory)
    predictions = [
        predicted(viewed, parameter_values, trajectory, first, starts_of(viewed, trajectory, parameter_values, first), longest)
        for viewed, parameter_values in pair
    ]
    observers = [measurement.function if measurement else _seen_by(viewed) for viewed, _ in pair]
    width = len(measurement.names) if measurement else data.shape[1]
    errors = np.full((len(first), len(steps), 3, width), np.nan)
    for w, begin in enumerate(first):
        for place, count in enumerate(steps):
            now, then = begin + look, begin + look + count
            if then > total:
                continue
            for predictor, ((states, good), observe) in enumerate(zip(predictions, observers, strict=True)):
                error = _error(problem, states[w, look + count], data[then], observe)
                errors[w, place, predictor] = error if good[w] else np.inf
            still = _error(problem, data[now], data[then], observers[0]) if problem.full_state else data[then] - data[now]
            errors[w, place, 2] = still
    return errors


def _seen_by(problem: FitProblem) -> Callable[[Array], Array]:
    """States (L, nx) -> the fitted columns as the camera sees them."""
    return lambda states: problem.seen(states[None])[0]


def _error(problem: FitProblem, state: Array, data: Array, observe: Callable[[Array], Array]) -> Array:
    """Predicted minus measured columns; a measured quaternion is first brought to the predicted one's sign."""
    if problem.full_state:
        data = observe(problem.simulator.retract(state[None], problem.simulator.difference(data[None], state[None])))[0]
    return np.asarray(observe(state[None])[0] - data)


def trace(problem: FitProblem, parameters: Parameters, view: RecordingParameters | None = None) -> Trace:
    """The first test (else validation, else train) recording with its open-loop prediction to the end; see `open_loop`."""
    parts = (("test", problem.split.test), ("validation", problem.split.validation), ("train", problem.split.train))
    part, trajectories = next((name, t) for name, t in parts if len(t))
    pair, columns = _pair(problem, parameters, view), []
    trajectory = _known(pair, trajectories[0])
    for viewed, parameter_values in pair:
        states, _ = followed_whole(viewed, parameter_values, trajectory)
        columns.append(_seen_by(viewed)(states))
    times = trajectory.times + trajectory.period * trajectory.late - trajectories[0].times[0]
    label = ", ".join(filter(None, (source_of(trajectories[0]), ROLES[part])))
    units = quantities(problem.simulator, problem.column_names, problem.column_units)
    return Trace(label, times, problem.column_names, tuple(map(str, units)), problem.values(trajectory), columns[0], columns[1])


def source_of(recording: Trajectory) -> str:
    """File or experiment of a recording; "" if it names none."""
    return recording.metadata.get(FILE) or recording.metadata.get(EXPERIMENT) or recording.metadata.get("source", "")


def held_out(errors: tuple[HorizonError, ...]) -> tuple[HorizonError, ...]:
    """Errors on data that were not fitted: test if there are any, else validation."""
    for part in ("test", "validation"):
        found = tuple(e for e in errors if e.part == part)
        if found:
            return found
    return ()
