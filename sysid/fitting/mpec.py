r"""Identification through complementarity: states, contact forces and friction at once [Berard2008], slides 19 and 26.

A mathematical program with equilibrium constraints has one minimum per sequence of contact modes, and most are useless. The
right one is found in these steps:

1. *Homotopy*: the smoothed problem (`collocation`) from tau = 10 down to nothing, from observed positions, no forces, and the
   start parameters. With large smoothing even a block that sticks shows the fit in which direction its friction is wrong.
2. *Polish*: single shooting through the simulator itself, with its exact derivatives; from here on complementarity is exact.
3. *Gate*: the noise must explain the objective. For n measured numbers the sum of (n/sigma)^2 has mean n and variance
   kappa n (kappa = 2, or 4/5 for uniform noise); four standard deviations are allowed.
4. *Another way*: shooting from the best of a grid of parameters; the lower of the two minima counts. A cone of many edges has
   minima whose objectives differ by less than the gate resolves, but whose parameters differ by five standard deviations.
5. *Fallbacks*, while the gate is shut and the two ways end apart (else the model is wrong): slower homotopies from
   other parameters.
6. *Noise box*: if the noise is stated to be bounded, |n| <= sqrt(3) sigma, the mean of all possible values (`box`); parameters
   are sharper. If nothing is possible the report says so.

Where the scene falls apart (particles that do not touch) every part is solved on its own, unless a free parameter is shared.
If nothing slides, no value of friction explains the data better than another, and the result says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from softgym_envs.core.complementarity import ComplementarityForm, ComplementarityPart
from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.simulator import Array, is_exact
from softgym_envs.core.trajectory import Trajectory, TrajectorySet

from ..diagnostics.diagnose import Ending, diagnose
from ..diagnostics.intervals import IntervalOptions
from ..diagnostics.model_form import half_step_variation
from ..diagnostics.result import Ended, FitResult
from ..diagnostics.rules import ESTIMATED
from ..least_squares.cutting import cut
from ..least_squares.levenberg import FitIteration, LevenbergOptions, levenberg_marquardt, start_state
from ..least_squares.system import ShootingSystem
from ..problem.problem import FitProblem
from .box import box_posterior
from .collocation import Collocation, Point, window_of

CLOSER = 3  # Number of nested grids: friction is found to a thousandth of its range.
SAME_MINIMUM = 1e-2  # Relative difference of objectives, and of fit coordinates, up to which two ways ended at one minimum.


@dataclass(frozen=True)
class MpecOptions:
    """Settings of `mpec`.

    Raises:
        OptionError: A value is not allowed.
    """

    box: bool = False
    """Whether the noise is uniform: bounded by sqrt(3) times its standard deviation."""
    tau: float = 10.0
    """Initial smoothing [products of the pairs' units]."""
    factor: float = 0.2
    """Factor from one smoothing to the next."""
    last: float = 1e-6
    """Final smoothing of the homotopy."""
    iterations: int = 20
    """Most iterations per smoothing."""
    polish: int = 40
    """Most iterations of the polish."""
    fallbacks: int = 3
    """Most further homotopies; where the model is known to be wrong and the gate stays shut, 0 or 1 save time."""
    grid: int = 24
    """Number of parameters that the other way tries; 0: none."""
    errors: Literal["independent", "clustered"] = "independent"
    """Assumption of the covariance about the residuals; see `diagnose`."""
    intervals: IntervalOptions = field(default_factory=IntervalOptions)

    def __post_init__(self) -> None:
        if not (0 < self.last < self.tau < np.inf and 0 < self.factor < 1):
            raise OptionError(
                f"tau {self.tau}, last {self.last}, factor {self.factor}: expected 0 < last < tau and 0 < factor < 1"
            )
        if min(self.iterations, self.polish) < 1 or min(self.fallbacks, self.grid) < 0:
            raise OptionError(
                f"iterations {self.iterations}, polish {self.polish}, fallbacks {self.fallbacks}, grid {self.grid}: "
                "expected the first two >= 1, the others >= 0"
            )


@dataclass(frozen=True)
class Attempt:
    """Result of one way to a minimum."""

    method: str
    objective: float
    iterations: int
    accepted: bool  # Whether it passed the gate.
    seconds: float


@dataclass(frozen=True, eq=False)
class MpecSolution:
    """Parameters and states; see `mpec` for the whole report."""

    theta: Array  # (p,) fit coordinates; the mean inside of the noise box where there is one.
    starts: Array  # (S, nx) initial states; likewise.
    objective: float  # Smallest sum of (n / sigma)^2 found; with a noise box it is that of `least`.
    limit: float  # The largest objective that the noise explains.
    attempts: tuple[Attempt, ...]
    least: tuple[Array, Array]  # theta and starts of the least objective.
    samples: Array  # (K, p) samples of the noise box; (0, p) where none was requested or nothing was found inside.
    seconds: float

    @property
    def accepted(self) -> bool:
        """Whether the noise explains the residuals."""
        return self.objective <= self.limit

    @property
    def boxed(self) -> bool:
        """Whether a noise box was requested, and residuals are inside."""
        return len(self.samples) > 0


def mpec(problem: FitProblem, form: ComplementarityForm, options: MpecOptions | None = None) -> FitResult:
    """Identify; see the module docstring.

    Args:
        problem: With known noise; measured columns are state entries.
        form: The simulator's physics step (or a coarser one's, for the homotopy), from the system.
        options: Settings.

    Raises:
        OptionError: The noise is not given, or the problem does not suit the method.
        DataError: The simulation fails everywhere.
    """
    options = options or MpecOptions()
    solution = solve(problem, form, options)
    system = whole_recordings(problem)
    tried = ", ".join(f"{a.method}: {a.objective:.4g}" for a in solution.attempts)
    explained = "" if solution.accepted else "; the noise does not explain the residuals"
    log = tuple(
        FitIteration(i, 0.5 * a.objective, 0.0, float("nan"), 0.0, a.accepted, a.seconds)
        for i, a in enumerate(solution.attempts)
    )
    message = f"objective {solution.objective:.4g} of at most {solution.limit:.4g} ({tried}){explained}"
    costs = (0.5 * solution.objective,)
    ending = Ending("mpec", *solution.least, True, message, log, costs, solution.seconds)
    segments, intervals = system.segments, options.intervals
    varied = half_step_variation(segments) if intervals.half_step else None
    if intervals.difference_step:
        system = replace(system, segments=replace(segments, epsilon=intervals.difference_step))
    result = diagnose(problem, system, ending, intervals, errors=options.errors, varied=varied)
    result = replace(result, ended=Ended(system.segments.whole(*solution.least), system.sigma))
    return _inside(problem, solution, result) if options.box else result


def solve(problem: FitProblem, form: ComplementarityForm, options: MpecOptions | None = None) -> MpecSolution:
    """Parameters and initial states: `mpec` without its report."""
    options, begin = options or MpecOptions(), time.perf_counter()
    if problem.known_noise is None:
        raise OptionError(
            "`noise` is not given: complementarity needs it (standard deviation per column) to know when it is done"
        )
    if problem.full_state:
        raise OptionError("all state entries are measured; this method fits recordings of a part of them, such as positions")
    parts = separable(problem, form)
    if parts:
        return _joined(problem, [(part, solve(sub, part.form, options)) for part, sub in parts], begin)
    system = whole_recordings(problem)
    tried = list(_attempts(problem, form, system, options))
    if not tried:
        raise DataError(
            "the simulation fails with all parameters that were tried: check units, noise, robot and start parameters"
        )
    best, theta, starts = min(tried, key=lambda one: one[0].objective)
    least, samples = (theta, starts), np.zeros((0, len(theta)))
    box = box_posterior(problem, system, theta, starts) if options.box and best.accepted else None
    if box is not None:
        theta, starts, samples = box.theta, box.starts, box.samples
    attempts, limit = tuple(one[0] for one in tried), gate(system, options, estimated=problem.noise_estimated)
    objective = 2.0 * system.cost(*least)
    return MpecSolution(theta, starts, objective, limit, attempts, least, samples, time.perf_counter() - begin)


def _inside(problem: FitProblem, solution: MpecSolution, result: FitResult) -> FitResult:
    """The result with parameters from the noise box, or with the diagnostic that nothing is inside."""
    if not solution.boxed:
        return result.with_diagnostic("outside_noise_bound", "warning", "", None, _SIDES)
    values = problem.vectors(solution.samples)[:, problem.columns]
    low, high = np.quantile(values, [0.025, 0.975], axis=0)
    best = problem.vectors(solution.theta[None])[0, problem.columns]
    estimates = tuple(
        e if e.hidden else replace(e, value=float(v), std=float(s), interval=(float(a), float(b)))
        for e, v, s, a, b in zip(result.estimates, best, values.std(axis=0), low, high, strict=True)
    )
    posterior = replace(result.posterior, mean=solution.theta, covariance=np.atleast_2d(np.cov(solution.samples, rowvar=False)))
    found = replace(result, estimates=estimates, posterior=posterior, parameters=problem.decode(solution.theta))
    return found.with_diagnostic("noise_bound", "note", "", None, _SIDES)


def gate(system: ShootingSystem, options: MpecOptions, *, estimated: bool = False) -> float:
    """n + 4 sqrt(kappa n), for n measured numbers; kappa is larger for noise estimated from recordings, which has an error."""
    count = float(system.segments.present.sum())
    return count + 4.0 * float(np.sqrt(((0.8 if options.box else 2.0) + ESTIMATED * estimated) * count))


_SIDES = 3.0**0.5


# --- Ways to a minimum ------------------------------------------------------------------------------------------------


def _attempts(
    problem: FitProblem, form: ComplementarityForm, system: ShootingSystem, options: MpecOptions
) -> Iterator[tuple[Attempt, Array, Array]]:
    """Yield a homotopy from the start parameters; shooting from a grid; homotopies from the middle and from both ends.

    After the grid it stops if one was accepted, or if the grid ended at the minimum of the homotopy: a minimum reached from
    two sides is that of all ways.
    """
    low, high = problem.theta_bounds
    windows = tuple(window_of(problem, recording, form) for recording in problem.split.train)
    assert problem.known_noise is not None
    collocation = Collocation(problem, form, windows, problem.known_noise)
    first = _way("homotopy", collocation, system, problem.encode(problem.initial_parameters), options)
    yield from first
    shot: list[tuple[Attempt, Array, Array]] = []
    if options.grid:
        starts = first[0][2] if first else system.segments.starts
        shot = list(_from_grid(problem, system, starts, options, gate(system, options)))
        yield from shot
        if first and shot and _same(first[0], min(shot, key=lambda one: one[0].objective)):
            return
    if any(attempt.accepted for attempt, *_ in (*first, *shot)):
        return
    slow = replace(options, tau=10 * options.tau, factor=float(np.sqrt(options.factor)), iterations=2 * options.iterations)
    for share in (0.5, 0.1, 0.9)[: options.fallbacks]:
        found = _way(f"homotopy from {share:g}", collocation, system, low + share * (high - low), slow)
        yield from found
        if found and found[0][0].accepted:
            return


def _way(
    name: str, collocation: Collocation, system: ShootingSystem, theta: Array, options: MpecOptions
) -> list[tuple[Attempt, Array, Array]]:
    """A homotopy and its polish; [] where it diverged."""
    begin = time.perf_counter()
    try:
        point, used = homotopy(collocation, theta, options)
    except np.linalg.LinAlgError:
        return []
    starts = np.stack([x[0] for x in point.states])
    found = _polished(collocation.problem, system, point.theta, starts, options)
    if found is None:
        return []
    theta, ends, objective, more = found
    accepted, seconds = objective <= gate(system, options), time.perf_counter() - begin
    return [(Attempt(name, objective, used + more, accepted, seconds), theta, ends)]


def _same(one: tuple[Attempt, Array, Array], other: tuple[Attempt, Array, Array]) -> bool:
    """Whether two ways ended at one minimum."""
    near = abs(one[0].objective - other[0].objective) <= SAME_MINIMUM * one[0].objective
    return near and bool(np.abs(one[1] - other[1]).max() <= SAME_MINIMUM)


def homotopy(collocation: Collocation, theta: Array, options: MpecOptions) -> tuple[Point, int]:
    """Solve the smoothed problem from tau down to `last`; -> final point, iterations."""
    point, total, tau = collocation.first_guess(theta, options.tau), 0, options.tau
    while True:
        point, used = collocation.relax(point, tau, iterations=options.iterations)
        total += used
        if tau <= options.last:
            return point, total
        tau = max(options.factor * tau, options.last)


def _from_grid(
    problem: FitProblem, system: ShootingSystem, starts: Array, options: MpecOptions, limit: float
) -> Iterator[tuple[Attempt, Array, Array]]:
    """Shooting from the best of a grid (one free parameter), or from the three best of random parameters.

    The grid is used twice, from initial states that were found and from those that were guessed: where the states are wrong,
    each finds other parameters best.
    """
    low, high = problem.theta_bounds
    for first in (starts, system.segments.starts) if len(low) == 1 else (starts,):
        begin = time.perf_counter()
        if len(low) == 1:
            thetas = [_closer(system, first, low, high, options.grid)]
        else:
            drawn = np.random.default_rng(0).uniform(low, high, size=(options.grid, len(low)))
            thetas = list(drawn[np.argsort(system.costs(drawn, first))[:3]])
        for theta in thetas:
            if np.isfinite(system.cost(theta, first)):
                found = _polished(problem, system, theta, first, options)
                if found is not None:
                    theta, ends, objective, used = found
                    yield Attempt("grid", objective, used, objective <= limit, time.perf_counter() - begin), theta, ends
            begin = time.perf_counter()


def _closer(system: ShootingSystem, starts: Array, low: Array, high: Array, count: int) -> Array:
    """Best value (1,) of a grid, refined between the neighbours of the best, as the valley is narrow."""
    for _ in range(CLOSER):
        thetas = np.linspace(low, high, count)
        best = thetas[int(np.argmin(system.costs(thetas, starts)))]
        apart = (high - low) / max(count - 1, 1)
        low, high = np.maximum(best - apart, low), np.minimum(best + apart, high)
    return np.asarray(best)


def _polished(
    problem: FitProblem, system: ShootingSystem, theta: Array, starts: Array, options: MpecOptions
) -> tuple[Array, Array, float, int] | None:
    """Single shooting to theta, starts, objective, iterations; None where it cannot be simulated.

    It runs twice: from the initial states found and from those guessed. A cone of many edges makes the objective a fine
    staircase, on which one of the two may stop early.
    """
    settings = LevenbergOptions(max_iterations=options.polish, cost_tolerance=1e-7, step_tolerance=1e-11)
    theta, ends = np.clip(theta, *problem.theta_bounds), []
    for first in (starts, system.segments.starts):
        if np.isfinite(first).all() and np.isfinite(system.cost(theta, first)):
            try:
                begin = start_state(system, theta, first, settings)
                ends.append(levenberg_marquardt(system, begin, problem.theta_bounds, options=settings))
            except DataError:
                continue
            theta = ends[-1].theta
    if not ends:
        return None
    best = min(ends, key=lambda end: end.cost)
    return best.theta, best.blocks, 2.0 * best.cost, sum(len(end.log) - 1 for end in ends)


def whole_recordings(problem: FitProblem, *, free: bool = True) -> ShootingSystem:
    """Single shooting over the training recordings, with free initial states or guessed ones, and the given noise."""
    exact = is_exact(problem.simulator)
    segments = cut(problem, problem.split.train, None, free=free, exact=exact)
    assert problem.known_noise is not None
    return ShootingSystem(segments, problem.known_noise)


# --- Scenes that fall apart -------------------------------------------------------------------------------------------


def separable(problem: FitProblem, form: ComplementarityForm) -> list[tuple[ComplementarityPart, FitProblem]]:
    """Problem of every part, if no free parameter belongs to two of them; else []."""
    owners = [name for part in form.parts for name in part.parameter_values.values() if name in problem.free]
    if not form.parts or problem.prior or len(set(owners)) != len(owners):
        return []
    return [
        (part, _part_problem(problem, part)) for part in form.parts if set(part.parameter_values.values()) & set(problem.free)
    ]


def _part_problem(problem: FitProblem, part: ComplementarityPart) -> FitProblem:
    columns = {own: whole for own, whole in part.states.items() if whole in problem.column_names}
    values = {own: float(getattr(problem.initial_parameters, whole)) for own, whole in part.parameter_values.items()}

    def cut_out(recording: Trajectory) -> Trajectory:
        seen = recording.select(tuple(columns.values())).select_controls(tuple(part.controls.values()))
        return replace(seen, names=tuple(columns), control_names=tuple(part.controls))

    assert problem.noise is not None
    return FitProblem(
        part.simulator,
        TrajectorySet(tuple(cut_out(recording) for recording in problem.split.train)),
        tuple(own for own, whole in part.parameter_values.items() if whole in problem.free),
        start=part.simulator.default_parameters.replace(**values),
        noise={own: problem.noise[whole] for own, whole in columns.items()},
        free_motion=problem.free_motion,
    )


def _joined(problem: FitProblem, parts: list[tuple[ComplementarityPart, MpecSolution]], begin: float) -> MpecSolution:
    """Join the solutions of all parts; parts without free parameters keep the guess."""
    theta = problem.encode(problem.initial_parameters)
    starts = np.stack([problem.initial_guess(recording) for recording in problem.split.train])
    least, names = (theta.copy(), starts.copy()), problem.simulator.state_names
    boxed = all(found.boxed for _, found in parts)
    samples = np.repeat(theta[None], min(len(found.samples) for _, found in parts), axis=0)
    for part, found in parts:
        columns = [problem.free.index(whole) for whole in part.parameter_values.values() if whole in problem.free]
        places = [names.index(part.states[name]) for name in part.simulator.state_names]
        theta[columns], starts[:, places] = (found.theta, found.starts) if boxed else found.least
        least[0][columns], least[1][:, places] = found.least
        samples[:, columns] = found.samples[: len(samples)]
    solutions = [found for _, found in parts]
    return MpecSolution(
        theta,
        starts,
        sum(s.objective for s in solutions),
        sum(s.limit for s in solutions),
        tuple(a for s in solutions for a in s.attempts),
        least,
        samples,
        time.perf_counter() - begin,
    )
