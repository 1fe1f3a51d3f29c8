r"""Estimates measurement noise from third differences of recordings.

White noise of standard deviation sigma has third differences

.. math:: y_{k+3} - 3 y_{k+2} + 3 y_{k+1} - y_k \quad\text{of standard deviation}\quad \sqrt{20}\, \sigma

Those of a motion are its jerk times the cube of the period: small where frames are many. Kinks (impacts, sticking) make a
few of them large, and so do outliers. So sigma is taken not from their squares but from the quantile that is one standard
deviation of a normal distribution, and what is beyond five sigma is left out of the next estimate.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array, Simulator
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet

WITHIN = 0.6827  # Share of a normal distribution within one standard deviation.
BEYOND = 5.0  # Standard deviations beyond which differences are left out: one in two million normal numbers.
FEWEST_STRETCHES = 20  # Fewest third differences without a gap for an estimate.

NOISY, CERTAIN, CHANNELS = -0.25, 1.65, 0.1
"""Test of noise: correlation of consecutive one-step errors below which they are noise, standard deviations that it must be
below, and share of channels that must be so."""
EXACT = 1e-8  # Errors below this share of a channel's motion are rounding.


class SeenNoise(Protocol):
    """Fields of a problem from which noise of full states is estimated; see `FitProblem`."""

    @property
    def simulator(self) -> Simulator: ...  # noqa: D102

    @property
    def initial_parameters(self) -> Parameters: ...  # noqa: D102

    @property
    def split(self) -> DataSplit: ...  # noqa: D102

    def states_at_rows(self, trajectory: Trajectory) -> Array: ...  # noqa: D102

    def controls(self, trajectory: Trajectory) -> Array: ...  # noqa: D102


def noisy_states(problem: SeenNoise) -> bool:
    r"""Whether recorded full states (fitted ones) carry noise, from predictions of single steps.

    One step from a noisy state is off by e_{k+1} - A e_k, whose neighbours are correlated by -1/2: noise is differenced. Errors
    of the parameters or the model last from step to step, or are new in every one (correlation 1 to 0); where they are larger
    than the noise, none is found. Measured: -0.5 in a quarter of the channels of a SUPERball with noise of 0.1 mm and 1 mm/s,
    parameters a factor of 3 off, above -0.2 in 19 of 20 without any.
    """
    products, squares, travel, count = 0.0, 0.0, 0.0, 0
    for trajectory in problem.split.train:
        rows, simulator = problem.states_at_rows(trajectory), problem.simulator
        controls = problem.controls(trajectory)[:, None]
        states, status = simulator.rollout(rows[:-1], controls, problem.initial_parameters, substeps=trajectory.substeps)
        error = np.where(status[:, None] == 0, simulator.difference(states[:, 1], rows[1:]), 0.0)
        moved = simulator.difference(rows[1:], np.repeat(rows[:1], len(rows) - 1, axis=0))
        products = products + np.sum(error[1:] * error[:-1], axis=0)
        squares, travel = squares + np.sum(error**2, axis=0), travel + np.sum(moved**2, axis=0)
        count += len(error)
    there = np.asarray(squares > EXACT**2 * np.maximum(travel, 1e-6 * np.median(travel)))
    if count < FEWEST_STRETCHES or not there.any():
        return False
    correlation = np.asarray(products)[there] / np.asarray(squares)[there]
    return bool(np.mean(correlation < NOISY - CERTAIN / np.sqrt(count)) >= CHANNELS)


def roughness(recordings: TrajectorySet, names: tuple[str, ...]) -> Array:
    """Standard deviations (ny,) by third differences of columns; zero where they show none. See `noise_of`."""
    found = []
    for name in names:
        size = _third_differences(recordings, name)
        found.append(_deviation(size) / np.sqrt(20.0) if len(size) else 0.0)
    return np.array(found)


def noise_of(recordings: TrajectorySet, names: tuple[str, ...]) -> dict[str, float]:
    """Column -> standard deviation of its noise [SI]; see the module docstring.

    From 40 rows it is accurate to 20 % (one standard deviation), from 400 to 6 %.

    Raises:
        DataError: Too few rows without gaps, or no noise at all: simulated data, or a constant column.
    """
    found = {}
    for name in names:
        size = _third_differences(recordings, name)
        if len(size) < FEWEST_STRETCHES:
            raise DataError(
                f"`noise` is not given, and that of {name} cannot be told from {len(size)} stretches of four rows without a "
                f"gap, {FEWEST_STRETCHES} are needed"
            )
        sigma = _deviation(size) / np.sqrt(20.0)
        largest = max(float(np.nanmax(np.abs(recording.select((name,)).values))) for recording in recordings)
        if sigma <= 1e-12 * max(largest, 1e-12):
            raise DataError(f"`noise` is not given, and {name} shows none{_hung(recordings, name)}: give what is known of it")
        found[name] = float(sigma)
    return found


def _hung(recordings: TrajectorySet, name: str) -> str:
    """Half a sentence on a recording whose column stays at one value for most of its rows; "" for none."""
    for recording in recordings:
        values = recording.select((name,)).values[:, 0]
        changed = np.flatnonzero(np.diff(values) != 0)
        last = int(changed[-1]) + 1 if len(changed) else 0
        if 0 < last < len(values) // 2:
            return f" (it stays at {values[last]:.6g} from row {last} on: does its sensor hang?)"
    return ""


def _third_differences(recordings: TrajectorySet, name: str) -> Array:
    """Sizes of a column's third differences without a gap."""
    size = np.abs(np.concatenate([np.diff(recording.on_grid.select((name,)).values[:, 0], n=3) for recording in recordings]))
    return np.asarray(size[np.isfinite(size)])


def _deviation(size: NDArray[np.float64]) -> float:
    """Standard deviation of normal numbers of these sizes, robust against outliers among them."""
    found = float(np.quantile(size, WITHIN))
    for _ in range(5):
        found = float(np.quantile(size[size <= BEYOND * found], WITHIN))
    return found
