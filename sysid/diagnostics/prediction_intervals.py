r"""Bands that hold nine of ten predictions of recordings like these, whether or not the model is right.

An interval of a parameter is right only if the model is: the parameters of a wrong model predict best, they are not true. A
band assumes nothing about the model. Errors are medians of three rows, which single outliers of a camera do not move: single
readings scatter more. n predictions are made as a user makes them: from the state where a window starts (estimated
where it is not measured, or noisy) and from the commands. Their errors are sorted. The next prediction on such a recording is
off by no more than the k-th of them,

.. math:: k = \lceil 0.9\,(n + 1) \rceil

in nine of ten cases (split conformal prediction: Vovk et al. 2005). Windows start every half of their horizon, the first one at
the row from which the acting commands are known. Only held-out recordings count where they have enough windows; else the fitted
ones count, too: there are few parameters for many rows. Legend: W windows, L rows, nx state, ny columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array
from softgym_envs.core.trajectory import Trajectory

from ..problem.problem import FitProblem
from ..problem.wrong_units import kinds
from .initial_state import predicted, rows_of_start, rows_unknown, starts_of, without_first

COVERAGE = 0.9
HORIZONS = (0.5, 1.0)  # Horizons [s].
FEWEST_WINDOWS = 9  # Smallest number of windows from which a band can be given.
MOST, MOST_ESTIMATED = 40, 12  # Largest number of windows per recording: with recorded starts, with estimated ones.
ROWS = 3  # Rows before a horizon's end whose median error counts, so that a single outlier of a camera has no effect.


@dataclass(frozen=True)
class Band:
    """Upper bound of the RMS error over the columns of one kind, for nine of ten predictions."""

    kind: str  # Unit of the columns, or "other".
    horizon: float  # [s]
    size: float  # [kind]
    windows: int
    fitted: int  # Number of these windows that are in fitted recordings.


def bands(problem: FitProblem, parameters: Parameters) -> tuple[Band, ...]:
    """Bands of every kind of column at every horizon with enough windows; () where starts cannot be known."""
    kept = [scores(problem, parameters, recording) for part in problem.split[1:] for recording in part]
    fitted = [scores(problem, parameters, recording) for recording in problem.split.train]
    found = []
    for horizon in HORIZONS:
        parts = [part[horizon] for part in kept]
        own = 0
        if sum(len(part) for part in parts) < FEWEST_WINDOWS:
            own = sum(len(part[horizon]) for part in fitted)
            parts += [part[horizon] for part in fitted]
        for kind, column in zip(_kinds(problem), np.concatenate(parts).T, strict=True):
            there = np.sort(column[~np.isnan(column)])
            place = int(np.ceil(COVERAGE * (len(there) + 1)))
            if FEWEST_WINDOWS <= place <= len(there) and np.isfinite(there[place - 1]):
                found.append(Band(kind, horizon, float(there[place - 1]), len(there), own))
    return tuple(found)


def _kinds(problem: FitProblem) -> tuple[str, ...]:
    """Kinds of the measured columns, each once."""
    return tuple(dict.fromkeys(kinds(problem).tolist()))


def scores(problem: FitProblem, parameters: Parameters, trajectory: Trajectory) -> dict[float, Array]:
    """Horizon [s] -> errors of predictions that far ahead (W, kinds): infinite where the simulation diverged, NaN unmeasured.

    Args:
        problem: Simulator, measured columns, latency.
        parameters: Parameters to validate.
        trajectory: Any recording of the problem's columns.
    """
    trajectory = without_first(trajectory, rows_unknown(problem, trajectory))
    period, total = trajectory.period, trajectory.num_steps
    look = rows_of_start(problem, trajectory)
    aheads = {horizon: round(horizon / period) for horizon in HORIZONS}
    shortest = look + min(aheads.values())
    errors: dict[float, list[list[float]]] = {horizon: [] for horizon in HORIZONS}
    if total >= shortest and (problem.full_state or look):
        most = MOST_ESTIMATED if look else MOST
        stride = max(min(aheads.values()) // 2, -(-(total - shortest) // (most - 1)), 1)
        first = np.arange(0, total - shortest + 1, stride)
        values = problem.values(trajectory)
        starts = starts_of(problem, trajectory, parameters, first)
        for horizon, ahead in aheads.items():
            end = look + ahead
            chosen = np.arange(0, len(first), max(-(-ahead // (2 * stride)), 1))
            chosen = chosen[first[chosen] + end <= total]
            if not len(chosen):
                continue
            # No farther than the recording goes: a simulator that fails beyond its end makes no error of a prediction.
            states, good = predicted(problem, parameters, trajectory, first[chosen], starts[chosen], end)
            rows = slice(end + 1 - min(ROWS, ahead), end + 1)
            errors[horizon] = [
                _error(problem, run[rows], values[row:][rows], bool(went))
                for run, row, went in zip(states, first[chosen], good, strict=True)
            ]
    return {horizon: np.array(found).reshape(-1, len(_kinds(problem))) for horizon, found in errors.items()}


def _error(problem: FitProblem, states: Array, measured: Array, good: bool) -> list[float]:
    """RMS over the columns of each kind of the errors' medians over rows: states (L, nx), measured (L, ny)."""
    if not good:
        return [float("inf")] * len(_kinds(problem))
    if problem.full_state:  # a measured quaternion has the predicted one's sign
        measured = problem.observe(problem.simulator.retract(states, problem.simulator.difference(measured, states)))
    error = problem.seen(states[None])[0] - measured
    there = np.isfinite(error).any(axis=0)
    middle = np.full(error.shape[1], np.nan)
    middle[there] = np.nanmedian(error[:, there], axis=0)
    kind = kinds(problem)
    squares = [middle[(kind == chosen) & there] ** 2 for chosen in _kinds(problem)]
    return [float(np.sqrt(np.mean(square))) if len(square) else float("nan") for square in squares]
