"""Starts of predictions: a recorded state, or one estimated from the rows that follow it, with fixed parameters.

Noisy measured states make poor starts: an error of 1 degree/s is one of a degree after a second, whatever the parameters are,
so that errors of predictions would show the noise instead of the model. Where states are exact, predictions start at them.
No prediction starts before the first row from which the acting commands are known. Legend: W windows, nx state,
n tangent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array
from softgym_envs.core.trajectory import Trajectory, TrajectorySet

from ..least_squares.cutting import cut
from ..least_squares.levenberg import LevenbergOptions, levenberg_marquardt, start_state
from ..least_squares.system import HUBER, ShootingSystem, channel_scale
from ..problem import deadline
from ..problem.problem import FitProblem
from ..problem.recording_parameters import delayed
from ..problem.stamps import when_seen

FIRST_PART, LONGEST_START = 0.25, 1.0
"""Share of a recording, and [s], that an unknown start is estimated from at most, where states are measured in part."""
FEWEST_ROWS = 10  # Smallest number of those rows.
LOOK = 0.1
"""[s] Rows that estimate a start of states measured with noise: `FEWEST_ROWS` rows at least, half a recording at most."""
LOOK_IN_PART = 0.25  # [s] Rows that estimate a start of states measured in part.
NEAR_SPREADS = 4
"""Most iterations from a recorded state, which is nearly right; more would fit the start to errors of the parameters."""
WHOLE = 1e-6  # [rows] Tolerance within which a latency is a whole number of rows.
LEAST = 1e-4  # Smallest noise of a channel that is assumed, as a share of its motion: other channels may be exact.


def rows_of_start(problem: FitProblem, trajectory: Trajectory) -> int:
    """Number of rows from which a prediction's start is estimated; 0 where it starts at a recorded state.

    It is 0, too, where states are measured in part and a recording's start is given, or the recording is too short for windows.
    """
    if not problem.estimates_initial:
        return 0
    look = max(round((LOOK if problem.full_state else LOOK_IN_PART) / trajectory.period), FEWEST_ROWS)
    half = trajectory.num_steps // 2
    return min(look, half) if problem.full_state else look if look <= half else 0


def rows_unknown(problem: FitProblem, trajectory: Trajectory) -> int:
    """Number of first rows in which unknown commands act, given before the recording; the problem's latency is d rows.

    It is d, rounded up, less the rows of `Trajectory.before`; 0 where no later start can be had: states measured in part, and
    not estimated.
    """
    if not trajectory.controls.shape[1] or not (problem.full_state or problem.estimates_initial):
        return 0
    late = int(np.ceil(problem.view.latency / trajectory.period - WHOLE))
    return min(max(late - len(trajectory.before), 0), trajectory.num_steps - 1)


def without_first(trajectory: Trajectory, rows: int) -> Trajectory:
    """The recording without its first `rows`, whose commands become those before it."""
    return trajectory.window(trajectory.times[rows], trajectory.times[-1]) if rows else trajectory


def starts_of(problem: FitProblem, trajectory: Trajectory, parameters: Parameters, first: NDArray[np.intp]) -> Array:
    """States (W, nx) at rows `first`: measured, or estimated. Row 0 only, if measured in part and `rows_of_start` is 0."""
    look = rows_of_start(problem, trajectory)
    if look == 0:
        return (
            np.asarray(problem.states_at_rows(trajectory)[first])
            if problem.full_state
            else estimate_start(problem, trajectory, parameters)[None]
        )
    stretches = [trajectory.window(trajectory.times[row], trajectory.times[row + look]) for row in first]
    alone = problem.full_state or not first.any()
    guesses = [None] * len(first) if alone else _passed(problem, trajectory, parameters, first, stretches)
    return np.stack(
        [start_from(problem, part, parameters, initial_guess) for part, initial_guess in zip(stretches, guesses, strict=True)]
    )


def _passed(
    problem: FitProblem, trajectory: Trajectory, parameters: Parameters, first: NDArray[np.intp], stretches: list[Trajectory]
) -> list[Array]:
    """States (nx,) at rows `first` of one run through the recording; where it diverges, the problem's guesses.

    Entries that a stretch does not show (pressures, motors) so keep the effect of the commands before it.
    """
    begin = estimate_start(problem, trajectory, parameters)
    (run,), (good,) = predicted(problem, parameters, trajectory, np.array([0]), begin[None], trajectory.num_steps)
    return [run[row] if good else problem.initial_guess(stretch) for row, stretch in zip(first, stretches, strict=True)]


def predicted(
    problem: FitProblem, parameters: Parameters, trajectory: Trajectory, first: NDArray[np.intp], starts: Array, length: int
) -> tuple[Array, NDArray[np.bool_]]:
    """States (W, length + 1, nx) when rows from `first` on were seen, and success (W,); commands act as the view says.

    Predictions start from `starts` (W, nx) at the times of these rows. Beyond the recording's end its last command goes on.
    """
    deadline.check()
    parts, irregular = problem.parts, len(trajectory.offsets) > 0
    rows = parts * first[:, None] + np.arange(parts * (length + irregular))  # the last values may be seen after their row
    delay = np.full(len(first), parts * problem.view.latency / trajectory.period)
    controls = delayed(problem.commands(trajectory), rows, delay) / problem.view.command_gain
    states, status = problem.simulator.rollout(starts, controls, parameters, substeps=trajectory.substeps // parts)
    if not irregular:
        return states[:, ::parts], np.asarray(status == 0)
    late = np.append(trajectory.late, np.zeros(length + 1))[first[:, None] + np.arange(length + 2)]
    return when_seen(problem, states, late)[:, :-1], np.asarray(status == 0)


def followed_whole(problem: FitProblem, parameters: Parameters, trajectory: Trajectory) -> tuple[Array, bool]:
    """States (T+1, nx) simulated over a whole recording, and success."""
    first = np.array([0])
    start = (
        starts_of(problem, trajectory, parameters, first)[0]
        if problem.full_state
        else estimate_start(problem, trajectory, parameters)
    )
    (states,), (good,) = predicted(problem, parameters, trajectory, first, start[None], trajectory.num_steps)
    return states, bool(good)


@dataclass(frozen=True, eq=False)
class OnlyStarts:
    """`levenberg.System` with fixed parameters: its unknowns are the initial states."""

    system: ShootingSystem
    theta: Array

    def cost(self, theta: Array, blocks: Array) -> float:
        """See `System`."""
        return self.system.cost(self.theta, blocks)

    def compress(self, theta: Array, blocks: Array) -> Array:
        """See `System`."""
        rows = self.system.compress(self.theta, blocks)
        n = rows.shape[2] - len(self.theta) - 1
        return np.ascontiguousarray(np.concatenate([rows[:, :, :n], rows[:, :, -1:]], axis=2))

    def move(self, blocks: Array, step: Array) -> Array:
        """See `System`."""
        return self.system.move(blocks, step)


@lru_cache(maxsize=4)
def estimate_start(problem: FitProblem, trajectory: Trajectory, parameters: Parameters) -> Array:
    """Initial state (nx,) of a partly measured recording, fitted to its first quarter, at most 1 s, with fixed parameters.

    Huber's loss keeps outliers from moving it.
    """
    if not problem.estimates_initial:
        return problem.initial_guess(trajectory)
    last = min(FIRST_PART * trajectory.num_steps * trajectory.period, LONGEST_START)
    quarter = trajectory.window(trajectory.times[0], trajectory.times[0] + max(last, FEWEST_ROWS * trajectory.period))
    return start_from(problem, quarter, parameters)


def start_from(problem: FitProblem, part: Trajectory, parameters: Parameters, initial_guess: Array | None = None) -> Array:
    """Initial state (nx,) of a stretch, fitted with fixed parameters, from a guess (nx,) or the problem's own."""
    segments = cut(problem, TrajectorySet((part,)), None, free=True, exact=False)
    if initial_guess is not None:
        segments = replace(segments, starts=initial_guess[None])
    sigma = problem.known_noise if problem.known_noise is not None else channel_scale(segments)
    if problem.full_state:
        sigma = np.maximum(problem.rough_noise, LEAST * sigma)
    system = OnlyStarts(ShootingSystem(segments, sigma, HUBER), problem.encode(parameters))
    nothing = np.zeros(0)
    if not np.isfinite(system.cost(nothing, segments.starts)):
        return np.asarray(segments.starts[0])
    options = LevenbergOptions(max_iterations=NEAR_SPREADS if problem.full_state else 20, cost_tolerance=1e-3)
    state = start_state(system, nothing, segments.starts, options)
    try:
        return np.asarray(levenberg_marquardt(system, state, (nothing, nothing), options=options).blocks[0])
    except DataError:  # parameters at the edge of what can be simulated: no state around the guess can be
        return np.asarray(segments.starts[0])
