r"""Trajectory and parameters in one nonlinear program, as [Jitosho2021] III fits a vine robot to points tracked on video.

Unknowns are parameters theta, the states x_0 ... x_K of every physics step, and the pairs z_1 ... z_K of contact:

.. math::
   \min \tfrac12 \sum_k \| (y_k - h(x_k)) / \sigma \|^2 \quad\text{s.t.}\quad g(x_k, u_k, \theta, x_{k+1}, z_{k+1}) = 0, \;
   0 \le z \perp f \ge 0

The program is `core.transcription`'s: the contact schedule is *given* ([Jitosho2021] assumes it) or *found*. A polish by single
shooting from its solution then removes the remaining tau and gives the usual diagnostics. With `free_initial=False` the first
states are the guess.

Measured points are a function of the state that CasADi can differentiate (`observe`), from the system. Compared with
`sysid.mpec`, which eliminates the states and needs measured state entries, this is slower and more general.

Legend: K physics steps, nx state, nz pairs, p free parameters, ny measured columns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.complementarity import ComplementarityForm
from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.simulator import Array
from softgym_envs.core.trajectory import Trajectory
from softgym_envs.core.transcription import Arc, Decisions, Solution, Symbols, Transcription, casadi

from ..diagnostics.diagnose import Ending, diagnose
from ..diagnostics.result import Ended, FitResult
from ..least_squares.levenberg import FitIteration, LevenbergOptions, levenberg_marquardt, start_state
from ..problem.problem import FitProblem
from .collocation import Window, window_of
from .mpec import whole_recordings

Schedule = Sequence[NDArray[np.bool_]]
"""Contact schedule per recording (K, nz): True where f = 0 (a contact touches, a slider slides), False where z = 0."""


@dataclass(frozen=True)
class SimultaneousOptions:
    """Settings of `simultaneous`.

    Raises:
        OptionError: A value is not allowed.
    """

    tau: float = 1.0
    """Initial largest product of a pair [units of the form]."""
    factor: float = 0.1
    """Factor on tau from program to program."""
    last: float = 1e-6
    """Final tau."""
    iterations: int = 300
    """Most iterations of IPOPT per program."""
    polish: int = 40
    """Most iterations of single shooting at the end."""

    def __post_init__(self) -> None:
        if not (0 < self.last <= self.tau < np.inf and 0 < self.factor < 1):
            raise OptionError(
                f"tau {self.tau}, last {self.last}, factor {self.factor}: expected 0 < last <= tau and 0 < factor < 1"
            )
        if min(self.iterations, self.polish) < 1:
            raise OptionError(f"iterations {self.iterations}, polish {self.polish}: expected >= 1")


def simultaneous(
    problem: FitProblem,
    form: ComplementarityForm,
    options: SimultaneousOptions | None = None,
    *,
    observe: Any = None,
    schedule: Schedule | None = None,
) -> FitResult:
    """Identify; see the module docstring.

    Args:
        problem: With known noise.
        form: The simulator's physics step, from the system.
        options: Settings.
        observe: casadi.Function x (nx) -> measured columns (ny), equal to the problem's measurement; None: state entries.
        schedule: The contact schedule; None: it is found.

    Raises:
        OptionError: The noise is not given, `observe` is missing or wrong, or the schedule does not fit the recordings.
        DataError: The recordings cannot be simulated from the guess, nor from where IPOPT ends.
        MissingDependencyError: CasADi is not installed.
    """
    begin, options = time.perf_counter(), options or SimultaneousOptions()
    found = solve(problem, form, options, observe=observe, schedule=schedule)
    system = whole_recordings(problem, free=problem.free_initial is not False)
    starts = np.stack([piece.states[0] for piece in found.pieces])
    settings = LevenbergOptions(max_iterations=options.polish, cost_tolerance=1e-9)
    try:
        state = start_state(system, found.theta, starts, settings)
    except DataError as error:
        raise DataError(f"IPOPT ({found.message}) ended where the simulation fails: {error}") from error
    end = levenberg_marquardt(system, state, problem.theta_bounds, options=settings)
    seconds, cost = time.perf_counter() - begin, found.objective
    moved = float(np.abs(end.theta - found.theta).max(initial=0.0))
    message = f"IPOPT: {found.message} after {found.iterations} iterations; shooting then moved the parameters by {moved:.1e}"
    log = (FitIteration(0, cost, 0.0, float("nan"), 0.0, found.solved, seconds),)
    ending = Ending("simultaneous", end.theta, end.blocks, found.solved, message, log, (cost,), seconds)
    ended = Ended(system.segments.whole(end.theta, end.blocks), system.sigma)
    return replace(diagnose(problem, system, ending), ended=ended)


def solve(
    problem: FitProblem,
    form: ComplementarityForm,
    options: SimultaneousOptions | None = None,
    *,
    observe: Any = None,
    schedule: Schedule | None = None,
) -> Solution:
    """Solve without polish and report; theta are fit coordinates, the objective is half the sum of squares."""
    options = options or SimultaneousOptions()
    taus = [options.tau]
    while taus[-1] > options.last * (1.0 + 1e-9):
        taus.append(max(options.factor * taus[-1], options.last))
    return transcribed(problem, form, observe, schedule).solve(taus, iterations=options.iterations)


def chosen_outputs(observe: Any, places: tuple[int, ...]) -> Any:
    """Function with only the given entries of the casadi.Function's result, in this order."""
    ca = casadi()
    x = ca.SX.sym("x", observe.size1_in(0))
    return ca.Function("chosen", [x], [observe(x)[list(places)]])


def transcribed(problem: FitProblem, form: ComplementarityForm, observe: Any, schedule: Schedule | None) -> Transcription:
    """The nonlinear program of all recordings.

    Raises:
        OptionError: The noise is not given, `observe` is missing or wrong, or the schedule does not fit the recordings.
    """
    sigma = problem.known_noise
    if sigma is None:
        raise OptionError("`noise` is not given: say how large the measurement noise of every column is")
    if (problem.measurement is None) != (observe is None):
        raise OptionError("observe is the CasADi function of the problem's measurement: give both or neither")
    windows = tuple(window_of(problem, recording, form) for recording in problem.split.train)
    schedules = [None] * len(windows) if schedule is None else [np.asarray(part, dtype=np.bool_) for part in schedule]
    if len(schedules) != len(windows):
        raise OptionError(f"schedule is of {len(schedules)} recordings, expected {len(windows)}")
    arcs = [
        Arc(_path(problem, window, recording), window.controls, fixed_start=problem.free_initial is False, schedule=part)
        for window, recording, part in zip(windows, problem.split.train, schedules, strict=True)
    ]

    def objective(symbols: Symbols) -> Any:
        total = _prior(problem, symbols.theta)
        for window, x in zip(windows, symbols.states, strict=True):
            total += _misfit(problem, sigma, observe, window, x)
        return total

    decisions = Decisions(*problem.theta_bounds, problem.encode(problem.initial_parameters), partial(_constants, problem))
    return Transcription(form, arcs, objective, decisions=decisions, nominal=problem.initial_parameters.to_vector())


def _path(problem: FitProblem, window: Window, recording: Trajectory) -> Array:
    """Simulation (K+1, nx) from the guessed start with the start parameters; the rest state where it fails."""
    start = problem.initial_guess(recording)
    states, status = problem.simulator.rollout(start[None], window.controls[None], problem.initial_parameters)
    return np.asarray(states[0] if status[0] == 0 else np.repeat(start[None], len(window.values), axis=0))


def _constants(problem: FitProblem, theta: Any) -> Any:
    """All parameters (P,) as expressions of fit coordinates."""
    ca = casadi()
    entries = [ca.MX(float(value)) for value in problem.initial_parameters.to_vector()]
    for place, (column, spec) in enumerate(zip(problem.columns, problem.specs, strict=True)):
        entries[column] = ca.exp(theta[place]) if spec.scale == "log" else theta[place] * float(spec.slope(0.0))
    return ca.vertcat(*entries)


def _prior(problem: FitProblem, theta: Any) -> Any:
    """Half of the squared weighted distance from the priors' means."""
    ca, (mean, std) = casadi(), problem.prior_rows
    known = np.isfinite(std)
    weight = np.where(known, 1.0 / std, 0.0)
    return 0.5 * ca.sumsqr(ca.DM(weight) * (theta - ca.DM(np.where(known, mean, 0.0))))


def _misfit(problem: FitProblem, sigma: Array, observe: Any, window: Window, x: Any) -> Any:
    """Half of the squared weighted residuals at the rows where something was measured."""
    ca, rows = casadi(), np.flatnonzero(np.isfinite(window.values).any(axis=1))
    seen = window.values[rows].T
    picked = x[:, [int(row) for row in rows]]
    if observe is not None:
        predicted = observe.map(len(rows))(picked)
    else:
        predicted = picked[[int(column) for column in problem.state_columns], :]
    weight = np.where(np.isfinite(seen), 1.0 / sigma[:, None], 0.0)
    return 0.5 * ca.sumsqr(ca.DM(weight) * (predicted - ca.DM(np.nan_to_num(seen))))
