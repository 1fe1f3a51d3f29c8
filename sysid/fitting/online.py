r"""Online identification over a moving horizon: the future work of [Berard2008], slide 35.

At every recorded row the last L rows are fitted; earlier ones are summarised by the arrival cost, a normal distribution of
(theta, state at the first row of the window). When the window moves by one row, this distribution takes in the row that leaves
and moves with the model, linearised at the fit (an extended Kalman step),

.. math:: P \leftarrow (P^{-1} + H^T R^{-1} H)^{-1}, \qquad P \leftarrow F P F^T + Q, \qquad F = \begin{pmatrix} I & 0 \\ C & A
\end{pmatrix}

Physics is the simulator's own, with its own step and friction cone, linearised by its exact derivatives: nothing is smoothed,
and a cone of 128 edges costs little more than one of 8. So that a robot need not wait, a row gets one Gauss-Newton step
(real-time iteration; Diehl, Bock and Schloder 2005), from the fit before, moved on by a row; it is halved while it would raise
the objective. The first window is fitted through complementarity (`mpec`). A row's estimate uses no later rows.

Legend: L window, T rows, p parameters, n state.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.complementarity import ComplementarityForm
from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.simulator import Array, is_exact
from softgym_envs.core.trajectory import UNKNOWN, Trajectory, TrajectorySet

from ..least_squares.cutting import cut
from ..least_squares.segments import Segments
from ..problem.problem import FitProblem
from .mpec import solve

STEP_HALVINGS = 4  # Number of tried step lengths, each half of the one before, while the objective rises.


@dataclass(frozen=True)
class HorizonOptions:
    """Settings of `online`.

    Raises:
        OptionError: A value is not allowed.
    """

    window: int = 20
    """Length L of the window [recorded rows]."""
    process: float = 1e-3
    """Standard deviation of the model's error per row, for every state entry [SI]."""
    walk: float = 1e-4
    """Standard deviation of the parameters' drift per row, in fit coordinates."""
    first_state: float = 10.0
    """Standard deviation of the guess of the first state, for every entry [SI]."""

    def __post_init__(self) -> None:
        if self.window < 2 or not (self.process > 0 and self.walk >= 0 and self.first_state > 0):
            raise OptionError(
                f"window {self.window}, process {self.process}, walk {self.walk}, first_state {self.first_state}: "
                "expected >= 2, > 0, >= 0, > 0"
            )


@dataclass(frozen=True, eq=False)
class HorizonResult:
    """Estimates at every row from the window's length on, by the rows up to it."""

    names: tuple[str, ...]
    times: Array  # (R,) [s] times of the rows with an estimate.
    mean: Array  # (R, p) parameters, in their units.
    std: Array  # (R, p) standard deviations of the parameters.
    states: Array  # (R, nx) state at that row.
    seconds: Array  # (R,) processor time per row; that of the first row is for the whole first window.
    excess: Array
    """(R,) sum of squares of the window's residuals / sigma, over the largest that noise explains; above 1: model error."""

    @property
    def explained(self) -> bool:
        """Whether noise explains the residuals of every window: errors of one window affect all later ones."""
        return bool((self.excess <= 1.0).all())

    @property
    def determined(self) -> NDArray[np.bool_]:
        """(p,) whether the last row determines a parameter to a tenth of its value."""
        return np.asarray(self.std[-1] < 0.1 * np.abs(self.mean[-1]))


def online(problem: FitProblem, form: ComplementarityForm, options: HorizonOptions | None = None) -> HorizonResult:
    """Fit the only recording of a problem row by row; no row uses a later one.

    Args:
        problem: With known noise; measured columns are state entries.
        form: A physics step for the first window, which may be coarser than the simulator's.
        options: Settings.

    Raises:
        OptionError: The noise is not given, commands act late, or the simulator has no exact derivatives or no vectors as
            states.
        DataError: There are several recordings, or fewer rows than the window, or the simulation fails.
    """
    options = options or HorizonOptions()
    recording = replace(_check_recording(problem, options).on_grid, commanded=UNKNOWN)  # of irregular times: means over rows
    problem = problem.replace(data=TrajectorySet((recording,)))
    if problem.view.latency != 0.0:
        raise OptionError(f"latency is {problem.view.latency:g} s: estimates row by row take commands to act at once")
    if not is_exact(problem.simulator) or problem.simulator.n != problem.simulator.nx:
        raise OptionError("estimates row by row need a simulator with exact derivatives whose states are vectors")
    begin = time.process_time()
    whole = cut(problem, TrajectorySet((recording,)), None, free=True, exact=True)
    theta, start = _first_window(problem, form, recording, options.window)
    mean, covariance = _first_arrival(problem, options)
    found = []
    for last in range(options.window, recording.num_steps + 1):
        window = replace(whole.cut(last - options.window, last), begins=np.array([last - options.window]))
        row = _Row(problem, window, mean, np.asarray(np.linalg.inv(covariance)))
        theta, states, spread, (mean, covariance) = row.step(theta, start, covariance, options)
        std = np.sqrt(np.diag(spread)[: len(theta)]) * problem.slopes(theta)
        values = problem.vectors(theta[None])[0, problem.columns]
        start, excess = states[1], _excess_of(row.residual(states))
        found.append((recording.times[last], values, std, states[-1], time.process_time() - begin, excess))
        begin = time.process_time()
    return HorizonResult(problem.free, *(np.array(column) for column in zip(*found, strict=True)))


def _excess_of(residual: Array) -> float:
    """Sum of squares of n measured numbers over n + 4 sqrt(2 n)."""
    present = residual[np.isfinite(residual)]
    return float(present @ present / (present.size + 4.0 * np.sqrt(2.0 * present.size)))


def _check_recording(problem: FitProblem, options: HorizonOptions) -> Trajectory:
    """The only recording of a problem with known noise."""
    if problem.known_noise is None:
        raise OptionError("`noise` is not given: the arrival cost needs its standard deviation per column")
    if len(problem.split.train) != 1 or problem.split.train[0].num_steps < options.window:
        rows = [t.num_steps for t in problem.split.train]
        raise DataError(f"recordings of {rows} steps, expected one of at least {options.window} (window)")
    return problem.split.train[0]


def _first_arrival(problem: FitProblem, options: HorizonOptions) -> tuple[Array, Array]:
    """Mean and covariance of (theta, x_0) before any row: all parameters are equally likely, the state is nearly unknown."""
    low, high = problem.search_range
    mean = np.concatenate([problem.encode(problem.initial_parameters), problem.initial_guess(problem.split.train[0])])
    deviation = np.concatenate([high - low, np.full(problem.simulator.nx, options.first_state)])
    return mean, np.diag(deviation**2)


def _first_window(problem: FitProblem, form: ComplementarityForm, recording: Trajectory, rows: int) -> tuple[Array, Array]:
    """Parameters and state at the first row; the guesses where nothing moves yet."""
    early = replace(
        recording, times=recording.times[: rows + 1], controls=recording.controls[:rows], values=recording.values[: rows + 1]
    )
    try:
        found = solve(problem.replace(data=TrajectorySet((early,))), form)
    except DataError:
        return problem.encode(problem.initial_parameters), problem.initial_guess(recording)
    return found.theta, found.starts[0]


class Found(NamedTuple):
    """Estimate at one row."""

    theta: Array  # (p,)
    states: Array  # (L+1, n)
    spread: Array  # (p + n, p + n) covariance of parameters and first state.
    arrival: tuple[Array, Array]  # Mean and covariance of the next row's arrival cost.


class _Row:
    """The least squares of one window with its arrival cost: residuals / sigma and root @ (unknowns - mean)."""

    def __init__(self, problem: FitProblem, window: Segments, mean: Array, information: Array) -> None:
        assert problem.known_noise is not None
        self.problem, self.window, self.sigma = problem, window, problem.known_noise
        self.mean, self.information = mean, information

    def residual(self, states: Array) -> Array:
        """Predicted minus measured, over sigma, (L+1, ny); NaN where nothing was measured."""
        return np.asarray((states[:, self.problem.state_columns] - self.window.values[0]) / self.sigma)

    def cost(self, theta: Array, start: Array) -> tuple[float, Array]:
        """The objective, infinite where the simulation fails, and states (L+1, n)."""
        states, _, good = self.window.rollout(theta[None], start[None])
        if not good.all():
            return float("inf"), states[0]
        away = np.concatenate([theta, start]) - self.mean
        return float(np.nansum(self.residual(states[0]) ** 2) + away @ self.information @ away), states[0]

    def step(self, theta: Array, start: Array, covariance: Array, options: HorizonOptions) -> Found:
        """One Gauss-Newton step, and the arrival cost of the next row.

        Raises:
            DataError: The simulation diverges.
        """
        p, here = len(theta), np.concatenate([theta, start])
        before, states = self.cost(theta, start)
        if not np.isfinite(before):
            raise DataError(f"the simulation diverges at {self.problem.decode(theta)}")
        local = [(A[0], C[0]) for A, C in self.window.linearizations(theta, states[None])]
        J, r = self.derivative(local, p) / self.sigma[:, None], self.residual(states)
        J, r = J[np.isfinite(r)], r[np.isfinite(r)]
        spread = np.asarray(np.linalg.inv(J.T @ J + self.information))
        change = -spread @ (J.T @ r + self.information @ (here - self.mean))
        for halving in range(STEP_HALVINGS):
            tried = here + 0.5**halving * change
            tried[:p] = np.clip(tried[:p], *self.problem.theta_bounds)
            cost, ahead = self.cost(tried[:p], tried[p:])
            if cost <= before:
                here, states = tried, ahead
                break
        return Found(here[:p], states, spread, self.moved_on(here[:p], states, covariance, local[0], options))

    def derivative(self, local: list[tuple[Array, Array]], p: int) -> Array:
        """Derivatives of measured columns by parameters and first state, (L+1, ny, p + n)."""
        n = self.problem.simulator.n
        sensitivity = np.concatenate([np.zeros((n, p)), np.eye(n)], axis=1)
        rows = [sensitivity]
        for A, C in local:
            sensitivity = A @ sensitivity
            sensitivity[:, :p] += C
            rows.append(sensitivity)
        return np.stack(rows)[:, self.problem.state_columns]

    def moved_on(
        self, theta: Array, states: Array, covariance: Array, local: tuple[Array, Array], options: HorizonOptions
    ) -> tuple[Array, Array]:
        """Mean and covariance of the arrival cost one row later: an extended Kalman step."""
        p, here = len(theta), np.concatenate([theta, states[0]])
        values = self.window.values[0, 0] / self.sigma
        H = np.zeros((len(values), len(here)))
        H[np.arange(len(H)), p + self.problem.state_columns] = 1.0 / self.sigma
        H, values = H[np.isfinite(values)], values[np.isfinite(values)]
        gain = covariance @ H.T @ np.linalg.inv(np.eye(len(H)) + H @ covariance @ H.T)
        mean, covariance = self.mean + gain @ (values - H @ self.mean), covariance - gain @ H @ covariance
        F = np.eye(len(here))
        F[p:, p:], F[p:, :p] = local
        ahead = np.concatenate([theta, states[1]])
        noise = np.concatenate([np.full(p, options.walk), np.full(len(here) - p, options.process)]) ** 2
        covariance = F @ covariance @ F.T + np.diag(noise)
        return ahead + F @ (mean - here), 0.5 * (covariance + covariance.T)
