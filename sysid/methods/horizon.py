r"""Online identification over a moving horizon: the future work of [Berard2008], slide 35.

At every recorded row the last L rows are fitted through complementarity (`collocation`), warm from the fit before; what lay
earlier is remembered as the arrival cost, a normal distribution of (theta, state at the first row of the window). When the
window moves on by one row it takes that row in and moves with the model, linearised where the fit is (an extended Kalman step),

.. math:: P \leftarrow (P^{-1} + H^T R^{-1} H)^{-1}, \qquad P \leftarrow F P F^T + Q, \qquad F = \begin{pmatrix} I & 0 \\ C & A
\end{pmatrix}

Nothing of the recording's future is used for a row. Legend: L window, T rows, p constants, nx state.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.complementarity import ComplementarityForm
from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.trajectory import Trajectory

from ..data.problem import FitProblem
from .collocation import Collocation, Point, Prior, Window, window_of
from .mpec import MpecOptions, homotopy

Array = NDArray[np.float64]


@dataclass(frozen=True)
class HorizonOptions:
    """Settings of `moving_horizon`.

    Raises:
        OptionError: A value is not allowed.
    """

    window: int = 20
    """L, in recorded rows."""
    process: float = 1e-3
    """Standard deviation of what the model misses per row, for every state entry [SI]."""
    walk: float = 1e-4
    """The same for constants, in fit coordinates: how fast they may drift."""
    first_state: float = 10.0
    """Standard deviation of the guess of the first state, for every entry [SI]."""
    warm: MpecOptions = field(default_factory=lambda: MpecOptions(tau=1e-1, factor=0.1, iterations=10))
    """Homotopy of a row that begins at the fit before."""
    cold: MpecOptions = field(default_factory=MpecOptions)
    """Homotopy of the first window."""

    def __post_init__(self) -> None:
        if self.window < 2 or not (self.process > 0 and self.walk >= 0 and self.first_state > 0):
            raise OptionError(
                f"window {self.window}, process {self.process}, walk {self.walk}, first_state {self.first_state}: "
                "expected >= 2, > 0, >= 0, > 0"
            )


@dataclass(frozen=True, eq=False)
class HorizonResult:
    """What was known at every row from the window's length on, by the rows up to it."""

    names: tuple[str, ...]
    times: Array
    """(R,) [s] of the rows with an estimate."""
    mean: Array
    """(R, p) of the constants, in their units."""
    std: Array
    """(R, p)"""
    states: Array
    """(R, nx) at that row."""
    seconds: Array
    """(R,) of a processor per row; the first row's are those of the whole first window."""
    excess: Array
    """(R,) sum of the window's squared residuals / sigma over what noise explains; above 1 the model does not."""

    @property
    def told(self) -> NDArray[np.bool_]:
        """(p,) whether the last row knows a constant to a tenth of its value."""
        return np.asarray(self.std[-1] < 0.1 * np.abs(self.mean[-1]))


def moving_horizon(problem: FitProblem, form: ComplementarityForm, options: HorizonOptions | None = None) -> HorizonResult:
    """Go through the only recording of a problem row by row.

    Args:
        problem: With known noise; measured columns are state entries.
        form: The simulator's physics step.
        options: Settings.

    Raises:
        OptionError: The noise is not given.
        DataError: There are several recordings, or fewer rows than the window.
    """
    options = options or HorizonOptions()
    recording = check_recording(problem, options)
    assert problem.known_noise is not None
    whole, width = window_of(problem, recording), options.window * recording.substeps
    arrival, point, found = first_arrival(problem, options), None, []
    for last in range(options.window, recording.num_steps + 1):
        begin = time.process_time()
        first = (last - options.window) * recording.substeps
        window = Window(whole.controls[first : first + width], whole.values[first : first + width + 1])
        prior = Prior(arrival[0], np.linalg.cholesky(np.linalg.inv(arrival[1])).T)
        collocation = Collocation(problem, form, (window,), problem.known_noise, prior)
        point = _fit(collocation, point, recording.substeps, options)
        information, _ = collocation.linearized(point, options.warm.last)
        covariance = np.linalg.inv(information)[: len(point.theta), : len(point.theta)]
        std = np.sqrt(np.diag(covariance)) * problem.slopes(point.theta)
        values = problem.vectors(point.theta[None])[0, problem.columns]
        arrival = _moved_on(collocation, point, arrival, recording.substeps, options)
        excess = excess_of((point.states[0][:, problem.state_columns] - window.values) / problem.known_noise)
        found.append((recording.times[last], values, std, point.states[0][-1], time.process_time() - begin, excess))
    return HorizonResult(problem.free, *(np.array(column) for column in zip(*found, strict=True)))


def excess_of(residual: Array) -> float:
    """Sum of squares of what was measured over n + 4 sqrt(2 n)."""
    present = residual[np.isfinite(residual)]
    return float(present @ present / (present.size + 4.0 * np.sqrt(2.0 * present.size)))


def check_recording(problem: FitProblem, options: HorizonOptions) -> Trajectory:
    """The only recording of a problem with known noise.

    Raises:
        OptionError: The noise is not given.
        DataError: There are several recordings, or fewer rows than the window.
    """
    if problem.known_noise is None:
        raise OptionError("noise is not given: the arrival cost needs its standard deviation per column")
    if len(problem.split.train) != 1 or problem.split.train[0].num_steps < options.window:
        rows = [t.num_steps for t in problem.split.train]
        raise DataError(f"recordings of {rows} steps, expected one of at least {options.window} (window)")
    return problem.split.train[0]


def first_arrival(problem: FitProblem, options: HorizonOptions) -> tuple[Array, Array]:
    """Mean and covariance of (theta, x_0) before any row: all constants are as likely, the state hardly known."""
    low, high = problem.theta_bounds
    mean = np.concatenate([problem.encode(problem.constants), problem.guess(problem.split.train[0])])
    deviation = np.concatenate([high - low, np.full(problem.simulator.nx, options.first_state)])
    return mean, np.diag(deviation**2)


def _fit(collocation: Collocation, before: Point | None, substeps: int, options: HorizonOptions) -> Point:
    """From the fit before, shifted by a row; or from nothing."""
    if before is None:
        guess = collocation.problem.encode(collocation.problem.constants)
        return homotopy(collocation, guess, options.cold)[0]
    (x,), (z,) = before.states, before.pairs
    shifted = Point(
        before.theta,
        (np.concatenate([x[substeps:], np.repeat(x[-1:], substeps, axis=0)]),),
        (np.maximum(np.concatenate([z[substeps:], np.repeat(z[-1:], substeps, axis=0)]), 0.0),),
    )
    tau, point = options.warm.tau, shifted
    while tau > options.warm.last:
        point, _ = collocation.relax(point, tau, iterations=options.warm.iterations)
        tau *= options.warm.factor
    return collocation.relax(point, options.warm.last, iterations=options.warm.iterations)[0]


def _moved_on(
    collocation: Collocation, point: Point, arrival: tuple[Array, Array], substeps: int, options: HorizonOptions
) -> tuple[Array, Array]:
    """The arrival cost one row later; see the module docstring."""
    problem, p = collocation.problem, len(point.theta)
    mean, covariance = arrival
    here = np.concatenate([point.theta, point.states[0][0]])
    H = np.zeros((len(problem.state_columns), len(here)))
    H[np.arange(len(H)), p + problem.state_columns] = 1.0 / collocation.sigma
    measured = np.isfinite(collocation.windows[0].values[0])
    H, row = H[measured], (collocation.windows[0].values[0] / collocation.sigma)[measured]
    gain = covariance @ H.T @ np.linalg.inv(np.eye(len(H)) + H @ covariance @ H.T)
    mean, covariance = mean + gain @ (row - H @ mean), covariance - gain @ H @ covariance
    F = np.eye(len(here))
    F[p:] = collocation.linearized(point, options.warm.last)[1][substeps]
    ahead = np.concatenate([point.theta, point.states[0][substeps]])
    noise = np.concatenate([np.full(p, options.walk), np.full(len(here) - p, options.process)]) ** 2
    covariance = F @ covariance @ F.T + np.diag(noise)
    return ahead + F @ (mean - here), 0.5 * (covariance + covariance.T)
