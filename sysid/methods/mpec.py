r"""Identification through complementarity: states, contact forces and friction at once [Berard2008], slides 19 and 26.

A mathematical program with equilibrium constraints has one minimum per sequence of contact modes, and most are useless. The way
to the right one:

1. *Homotopy*: the smoothed problem (`collocation`) from tau = 10 down to nothing, from observed positions, no forces, and the
   start constants. With large smoothing even a block that sticks shows the fit which way its friction is wrong.
2. *Polish*: single shooting through the simulator itself, with its exact derivatives; from here on complementarity is exact.
3. *Gate*: the objective must be what the noise explains. For n measured numbers the sum of (n/sigma)^2 has mean n and variance
   kappa n (kappa = 2, or 4/5 for uniform noise); four standard deviations are allowed.
4. *Fallbacks*, while the gate is shut: shooting from the best of a grid of constants; where that ends elsewhere than the
   homotopy (else it is the model that is wrong), slower homotopies from other constants.
5. *Noise box*: if the noise is known to be bounded, |n| <= sqrt(3) sigma, the smallest residuals inside of it; constants are
   sharper then.

Where the scene falls apart (particles that do not touch) every part is solved on its own, unless a free constant is shared.
Nothing slides? Then no value of friction explains the data better than another, and the result says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from softgym_envs.core.complementarity import ComplementarityForm, ComplementarityPart
from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.simulator import is_exact
from softgym_envs.core.trajectory import Trajectory, TrajectorySet

from ..data.problem import FitProblem
from ..judgement.judge import Ending, judge
from ..judgement.result import FitResult
from ..least_squares.levenberg import IterLog, LevenbergOptions, levenberg_marquardt, start_state
from ..least_squares.segments import ShootingSystem, cut
from .collocation import Collocation, Point, window_of

Array = NDArray[np.float64]


SAME = 1e-2
"""Of the objective, and of fit coordinates: ways that end no farther apart ended at one minimum."""


@dataclass(frozen=True)
class MpecOptions:
    """Settings of `mpec`.

    Raises:
        OptionError: A value is not allowed.
    """

    box: bool = False
    """The noise is uniform: bounded by sqrt(3) times its standard deviation."""
    tau: float = 10.0
    """Smoothing at first [products of the pairs' units]."""
    factor: float = 0.2
    """From one smoothing to the next."""
    last: float = 1e-6
    """Smoothing at the end of the homotopy."""
    iterations: int = 20
    """Per smoothing, at most."""
    polish: int = 40
    """Iterations of the polish, at most."""
    fallbacks: int = 3
    """Further homotopies at most; where the model is known to be wrong and the gate stays shut, 0 or 1 save time."""
    grid: int = 24
    """Constants that the first fallback tries; 0: none."""
    errors: Literal["independent", "clustered"] = "independent"
    """What the covariance assumes of the residuals; see `judge`."""

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
    """One way that was tried."""

    method: str
    objective: float
    iterations: int
    accepted: bool
    """Whether it passed the gate."""
    seconds: float


@dataclass(frozen=True, eq=False)
class MpecSolution:
    """Constants and states; see `mpec` for the whole report."""

    theta: Array
    """(p,) fit coordinates."""
    starts: Array
    """(S, nx) initial states."""
    objective: float
    """Sum of (n / sigma)^2."""
    limit: float
    """The largest objective that the noise explains."""
    attempts: tuple[Attempt, ...]
    boxed: bool
    """Whether the residuals are inside the noise box (asked for, and possible)."""
    seconds: float

    @property
    def accepted(self) -> bool:
        """Whether the noise explains the residuals."""
        return self.objective <= self.limit


def mpec(problem: FitProblem, form: ComplementarityForm, options: MpecOptions | None = None) -> FitResult:
    """Identify; see the module docstring.

    Args:
        problem: With known noise; measured columns are state entries.
        form: The simulator's physics step (or a coarser one's, for the homotopy), from the room.
        options: Settings.

    Raises:
        OptionError: The noise is not given, or the problem does not suit the method.
        DataError: The simulation fails everywhere.
    """
    solution = solve(problem, form, options)
    system = whole_recordings(problem)
    tried = ", ".join(f"{a.method}: {a.objective:.4g}" for a in solution.attempts)
    explained = "" if solution.accepted or problem.told else "; the noise does not explain the residuals"
    log = tuple(
        IterLog(i, 0.5 * a.objective, 0.0, float("nan"), 0.0, a.accepted, a.seconds) for i, a in enumerate(solution.attempts)
    )
    message = f"objective {solution.objective:.4g} of at most {solution.limit:.4g} ({tried}){explained}"
    costs = (0.5 * solution.objective,)
    ending = Ending("mpec", solution.theta, solution.starts, True, message, log, costs, solution.seconds)
    return judge(problem, system, ending, errors=(options or MpecOptions()).errors)


def solve(problem: FitProblem, form: ComplementarityForm, options: MpecOptions | None = None) -> MpecSolution:
    """Constants and initial states alone: `mpec` without its report."""
    options, begin = options or MpecOptions(), time.perf_counter()
    if problem.known_noise is None:
        raise OptionError(
            "noise is not given: complementarity needs it (standard deviation per column) to know when it is done"
        )
    if problem.full:
        raise OptionError("all state entries are measured; this method fits recordings of a part of them, such as positions")
    parts = separable(problem, form)
    if parts:
        return _joined(problem, [(part, solve(sub, part.form, options)) for part, sub in parts], begin)
    system = whole_recordings(problem)
    tried: list[tuple[Attempt, Array, Array]] = []
    for attempt in _attempts(problem, form, system, options):
        tried.append(attempt)
        if attempt[0].accepted:
            break
    if not tried:
        raise DataError(
            "the simulation fails with all constants that were tried: check units, noise, robot and start constants"
        )
    best, theta, starts = min(tried, key=lambda one: one[0].objective)
    boxed = _boxed(problem, system, theta, starts) if options.box and best.accepted else None
    if boxed is not None:
        theta, starts = boxed
    objective = 2.0 * system.cost(theta, starts)
    attempts = tuple(one[0] for one in tried)
    limit = gate(system, options)
    return MpecSolution(theta, starts, objective, limit, attempts, boxed is not None, time.perf_counter() - begin)


def gate(system: ShootingSystem, options: MpecOptions) -> float:
    """n + 4 sqrt(kappa n), for n measured numbers."""
    count = float(system.segments.present.sum())
    return count + 4.0 * float(np.sqrt((0.8 if options.box else 2.0) * count))


# --- Ways to a minimum ------------------------------------------------------------------------------------------------


def _attempts(
    problem: FitProblem, form: ComplementarityForm, system: ShootingSystem, options: MpecOptions
) -> Iterator[tuple[Attempt, Array, Array]]:
    """A homotopy from the start constants; shooting from a grid; homotopies from the middle and from both ends.

    No more of them where the grid ends at the minimum that the homotopy found: from two sides, then, all ways lead there.
    """
    low, high = problem.theta_bounds
    windows = tuple(window_of(problem, recording) for recording in problem.split.train)
    assert problem.known_noise is not None
    collocation = Collocation(problem, form, windows, problem.known_noise)
    first = _way("homotopy", collocation, system, problem.encode(problem.constants), options)
    yield from first
    if options.grid:
        starts = first[0][2] if first else system.segments.starts
        shot = []
        for attempt in _from_grid(problem, system, starts, options, gate(system, options)):
            shot.append(attempt)
            yield attempt
        if first and shot and _same(first[0], min(shot, key=lambda one: one[0].objective)):
            return
    slow = replace(options, tau=10 * options.tau, factor=float(np.sqrt(options.factor)), iterations=2 * options.iterations)
    for share in (0.5, 0.1, 0.9)[: options.fallbacks]:
        yield from _way(f"homotopy from {share:g}", collocation, system, low + share * (high - low), slow)


def _way(
    name: str, collocation: Collocation, system: ShootingSystem, theta: Array, options: MpecOptions
) -> list[tuple[Attempt, Array, Array]]:
    """A homotopy and its polish; nothing where it ran away."""
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
    near = abs(one[0].objective - other[0].objective) <= SAME * one[0].objective
    return near and bool(np.abs(one[1] - other[1]).max() <= SAME)


def homotopy(collocation: Collocation, theta: Array, options: MpecOptions) -> tuple[Point, int]:
    """The smoothed problem from tau down to `last`; -> where it ends, iterations."""
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
    """Shooting from the three best of a grid (one free constant) or of random constants."""
    begin = time.perf_counter()
    low, high = problem.theta_bounds
    if len(low) == 1:
        thetas = np.linspace(low, high, options.grid)
    else:
        thetas = np.random.default_rng(0).uniform(low, high, size=(options.grid, len(low)))
    costs = system.costs(thetas, starts)
    for index in np.argsort(costs)[:3]:
        if np.isfinite(costs[index]):
            found = _polished(problem, system, thetas[index], starts, options)
            if found is not None:
                theta, ends, objective, used = found
                yield Attempt("grid", objective, used, objective <= limit, time.perf_counter() - begin), theta, ends
        begin = time.perf_counter()


def _polished(
    problem: FitProblem, system: ShootingSystem, theta: Array, starts: Array, options: MpecOptions
) -> tuple[Array, Array, float, int] | None:
    """Single shooting to theta, starts, objective, iterations; None where it cannot be simulated.

    Twice: from the initial states found and from those guessed. A cone of many edges makes the objective a fine staircase, on
    which one of the two may stop early.
    """
    settings = LevenbergOptions(max_iterations=options.polish, cost_tolerance=1e-9, step_tolerance=1e-11)
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
    """Single shooting over the training recordings, with free initial states or guessed ones, and the noise that is given."""
    exact = is_exact(problem.simulator)
    segments = cut(problem, problem.split.train, None, free=free, exact=exact)
    assert problem.known_noise is not None
    return ShootingSystem(segments, problem.known_noise)


# --- The noise box ----------------------------------------------------------------------------------------------------


def _boxed(problem: FitProblem, system: ShootingSystem, theta: Array, starts: Array) -> tuple[Array, Array] | None:
    """min |n|^2 subject to |n| <= sqrt(3) sigma, by sequential quadratic programs; None if no way into the box is found."""
    bound = np.sqrt(3.0) * (1.0 + 1e-9)
    for _ in range(8):
        found = system.segments.derivative(theta, starts)
        residual = (found.residual / system.sigma)[system.segments.present]
        if np.abs(residual).max() <= bound * (1.0 + 1e-9):
            return theta, starts
        step = _quadratic(problem, system, found, theta, bound)
        if step is None:
            return None
        theta = np.clip(theta + step[: len(theta)], *problem.theta_bounds)
        starts = system.move(starts, step[len(theta) :].reshape(len(starts), -1))
        if not np.isfinite(system.cost(theta, starts)):
            return None
    return None


def _quadratic(problem: FitProblem, system: ShootingSystem, found: Any, theta: Array, bound: float) -> Array | None:
    """The step d that minimises |r + J d|^2 inside the box, in columns of unit length."""
    count, length, channels, p = found.constants.shape
    n = found.starts.shape[-1]
    J = np.zeros((count, length, channels, p + count * n))
    J[..., :p] = found.constants
    for s in range(count):
        J[s, ..., p + s * n : p + (s + 1) * n] = found.starts[s]
    present = system.segments.present
    J, r = (J / system.sigma[:, None])[present], (found.residual / system.sigma)[present]
    size = np.linalg.norm(J, axis=0) + 1e-12
    J = J / size
    normal, gradient = J.T @ J, J.T @ r
    inside = {
        "type": "ineq",
        "fun": lambda d: np.concatenate([bound - r - J @ d, bound + r + J @ d]),
        "jac": lambda d: np.concatenate([-J, J]),
    }
    low, high = ((b - theta) * size[:p] for b in problem.theta_bounds)
    bounds = [*zip(low, high, strict=True), *([(None, None)] * (len(size) - p))]
    result = minimize(
        lambda d: 0.5 * d @ normal @ d + gradient @ d,
        np.zeros(len(size)),
        jac=lambda d: normal @ d + gradient,
        method="SLSQP",
        bounds=bounds,
        constraints=[inside],
        options={"maxiter": 100, "ftol": 1e-12},
    )
    return np.asarray(result.x / size) if result.success else None


# --- Scenes that fall apart -------------------------------------------------------------------------------------------


def separable(problem: FitProblem, form: ComplementarityForm) -> list[tuple[ComplementarityPart, FitProblem]]:
    """The problem of every part, if no free constant belongs to two of them; else nothing."""
    owners = [name for part in form.parts for name in part.constants.values() if name in problem.free]
    if not form.parts or problem.prior or len(set(owners)) != len(owners):
        return []
    return [(part, _part_problem(problem, part)) for part in form.parts if set(part.constants.values()) & set(problem.free)]


def _part_problem(problem: FitProblem, part: ComplementarityPart) -> FitProblem:
    columns = {own: whole for own, whole in part.states.items() if whole in problem.column_names}
    values = {own: float(getattr(problem.constants, whole)) for own, whole in part.constants.items()}

    def cut_out(recording: Trajectory) -> Trajectory:
        seen = recording.select(tuple(columns.values()))
        places = [recording.control_names.index(name) for name in part.controls.values()]
        units = tuple(recording.control_units[i] for i in places)
        return replace(
            seen,
            names=tuple(columns),
            controls=recording.controls[:, places],
            control_names=tuple(part.controls),
            control_units=units,
        )

    assert problem.noise is not None
    return FitProblem(
        part.simulator,
        TrajectorySet(tuple(cut_out(recording) for recording in problem.split.train)),
        tuple(own for own, whole in part.constants.items() if whole in problem.free),
        start=part.simulator.default_parameters.replace(**values),
        noise={own: problem.noise[whole] for own, whole in columns.items()},
        free_motion=problem.free_motion,
    )


def _joined(problem: FitProblem, parts: list[tuple[ComplementarityPart, MpecSolution]], begin: float) -> MpecSolution:
    """Solutions of all parts as one; parts without free constants keep the guess."""
    theta = problem.encode(problem.constants)
    starts = np.stack([problem.guess(recording) for recording in problem.split.train])
    names = problem.simulator.state_names
    for part, found in parts:
        free = [whole for whole in part.constants.values() if whole in problem.free]
        theta[[problem.free.index(name) for name in free]] = found.theta
        starts[:, [names.index(part.states[name]) for name in part.simulator.state_names]] = found.starts
    solutions = [found for _, found in parts]
    return MpecSolution(
        theta,
        starts,
        sum(s.objective for s in solutions),
        sum(s.limit for s in solutions),
        tuple(a for s in solutions for a in s.attempts),
        all(s.boxed for s in solutions),
        time.perf_counter() - begin,
    )
