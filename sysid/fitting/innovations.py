r"""Identification from recordings that a model follows under feedback, where noise of measured inputs disturbs the model, too.

Errors of such a prediction last in time even if the model is right: one noisy torque changes the simulated motion for good. The
system's `Tracker` makes them white with the filter that belongs to model and noise; then

.. math:: C(\theta) = \tfrac12 \sum_t \| S_t^{-1/2} \nu_t(\theta) \|^2

is minus the log-likelihood, its curvature is the Fisher information, and 2 C / dof near 1 means that the model explains the
data. The filter belongs to one motion, so it is computed again (`anchors` times) at the end of each minimisation. A model that
does not follow the recordings at the start parameters is led there from parameters that are `gentle`. A fit that does not
converge, or that leaves much more than noise, starts again from the end of a fit with forgetful filters: these assume noisier
controls, so that an error lasts for fewer rows and there are fewer wrong minima.

Residuals are reported per column in its unit, as if an innovation came only from the noise of that sensor.
Legend: T rows of all recordings, m channels, p parameters, K candidates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

import numpy as np

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.simulator import Array
from softgym_envs.core.trajectory import Trajectory

from ..diagnostics.diagnose import FAINT, Ending, diagnose
from ..diagnostics.result import FitResult
from ..diagnostics.sentences import Diagnostic
from ..least_squares.levenberg import LevenbergOptions, LevenbergState, StopReason, levenberg_marquardt, start_state
from ..least_squares.system import ShootingSystem
from ..problem.problem import FitProblem
from .closed_loop import CONTROL, Choices, Homogeneous, Tracker, anchored, control_noise, set_apart, with_others

LAG_CHANCE = 3.3  # Standard deviations of a correlation that noise may reach.
ROUGH = LevenbergOptions(cost_tolerance=1e-2, step_tolerance=1e-2)  # Options of a fit whose filter is not the last one.
WAY_BACK = (1.0, 0.5, 0.25, 0.125)  # Shares of the way from gentle parameters to those of the start.
BEFORE = 2  # Number of filters of a rough fit.
CLOSE_FILTER = 0.1  # Move [standard deviations, of the surest direction at most] below which a new filter is the last one.
FORGETFUL = 10.0  # Factor on the noise of the controls; with 100, filters no longer separate stiffness from damping.
SMALLEST_SHARE = 0.1  # Smallest share of a step to another filter.
MUCH = 1.5  # Variance of innovations above which a minimum may be a wrong one.
LOWER = 0.95  # Largest ratio of squared innovations for a fit to replace another minimum.


@dataclass(frozen=True)
class InnovationOptions:
    """Settings of `innovations`.

    Raises:
        OptionError: A value is not allowed.
    """

    tracker: Callable[[Any, Trajectory], Tracker] | None = None
    """(simulator, recording) -> tracker of the recording; the system's procedure provides it."""
    gentle: Mapping[str, float] = field(default_factory=dict)
    """Parameter -> value with which the model follows recordings whatever the others are, as much damping; see `led`."""
    together: Mapping[str, str] = field(default_factory=dict)
    """Pattern of free parameters -> the one that is fitted roughly in their place, before they are freed."""
    anchors: int = 10
    """Most filters, one after the other."""
    errors: Literal["independent", "clustered"] = "independent"
    """Assumption of intervals about residuals: "independent", or "clustered" in time, for a structurally wrong model."""
    levenberg: LevenbergOptions = field(default_factory=lambda: LevenbergOptions(cost_tolerance=1e-6))
    """Options of every minimisation."""

    def __post_init__(self) -> None:
        if self.anchors < 1:
            raise OptionError(f"anchors is {self.anchors}, expected >= 1")


def innovations(
    problem: FitProblem,
    options: InnovationOptions | None = None,
    choices: Choices | None = None,
    homogeneous: Homogeneous | None = None,
) -> FitResult:
    """Identify; see the module docstring.

    Args:
        problem: With the noise of every column; that of a control `u` is `control:u`, or estimated from third differences.
        options: Settings, with a tracker.
        choices: Choices of the model, see `Procedure.choices`; the tracker can follow with other amounts, too.
        homogeneous: Parts that the model assumes to be alike, see `MethodData.homogeneous`.

    Raises:
        OptionError: There is no tracker, or the noise is not given.
        DataError: The model does not follow the recordings at the start parameters, nor where they were led.
    """
    options = options or InnovationOptions()
    if options.tracker is None or problem.known_noise is None:
        raise OptionError("innovations needs a system whose procedure says how recordings are followed, and all noise")
    trackers = [options.tracker(problem.simulator, recording) for recording in problem.split.train]
    noise = {**control_noise(trackers), **(problem.noise or {})}
    begin = time.perf_counter()
    problem = begun(problem, trackers, noise, options)
    ended = _minimum(problem, problem, trackers, noise, options)
    second, there = False, ended.ending.converged
    if not there or ended.variance > MUCH:
        again = _again(problem, trackers, noise, options)
        if again is not None and again.variance <= ended.variance * (LOWER if there else 1.0):
            ended, second = again, True
    ending = replace(ended.ending, seconds=time.perf_counter() - begin)
    varied, lost = with_others(problem, options.tracker, choices or {}, ending.theta, noise)
    apart = set_apart(problem, options.tracker, homogeneous or {}, ending.theta, noise)
    examined = diagnose(problem, ended.system, ending, errors=options.errors, varied=varied, homogeneous=apart, unit=True)
    result = explained(examined, ended.system, ending.theta)
    for cause in lost:
        result = result.with_diagnostic("choice_not_followed", "warning", cause)
    return result.with_diagnostic("second_fit", "note", how="forgetful") if second else result


class FilterEnd(NamedTuple):
    """Result of minimisations with one filter after the other."""

    ending: Ending
    system: ShootingSystem  # Least squares with the last filter.

    @property
    def variance(self) -> float:
        """Variance of the innovations: 1 where only noise remains."""
        return 2.0 * self.ending.start_costs[0] / self.system.segments.present.size


def _again(
    problem: FitProblem, trackers: list[Tracker], noise: Mapping[str, float], options: InnovationOptions
) -> FilterEnd | None:
    """Fit from the end of a rough one that assumes `FORGETFUL` times the noise of the controls; None: it does not converge."""
    more = {name: FORGETFUL * value if name.startswith(CONTROL) else value for name, value in noise.items()}
    try:
        near = problem.replace(start=problem.decode(_roughly(problem, trackers, more, options)))
        found = _minimum(problem, near, trackers, noise, options)
    except DataError:
        return None
    return found if found.ending.converged else None


def _minimum(
    problem: FitProblem, first: FitProblem, trackers: list[Tracker], noise: Mapping[str, float], options: InnovationOptions
) -> FilterEnd:
    """Minimise; `first` is the problem with the parameters from which the first minimisation starts."""
    theta, system = led(first, trackers, noise, options.gentle)
    ends: list[LevenbergState] = []
    step, share = np.zeros_like(theta), 1.0
    for _ in range(options.anchors):
        end = minimised(system, theta, ROUGH if not ends and options.anchors > 1 else options.levenberg)
        ends.append(end)
        before, step, theta = step, end.theta - theta, end.theta
        rows = system.compress(end.theta, end.blocks)[0][:, :-1]
        moved = float(np.linalg.norm(rows @ step))
        if moved < CLOSE_FILTER and (ends[1:] or options.anchors == 1):
            break
        if ends[2:]:
            share = _relaxed(share, rows @ before, rows @ step)
            theta = theta - (1.0 - share) * step
        system = anchored(problem, trackers, theta, noise)
    log = [replace(entry, iteration=i) for i, entry in enumerate(entry for end in ends for entry in end.log)]
    outcome = ends[-1].outcome or StopReason.ITERATIONS
    settled = moved < CLOSE_FILTER
    message = outcome.message if settled or not outcome.converged else f"not settled after {len(ends)} filters"
    ending = Ending(
        "innovations", theta, system.segments.starts, outcome.converged and settled, message, tuple(log), (ends[-1].cost,), 0.0
    )
    return FilterEnd(ending, system)


def _relaxed(share: float, before: Array, now: Array) -> float:
    """Share of a step (p,) to take, after `share` of the one before: Aitken's relaxation, at most 1.

    Irons and Tuck 1969: filters that alternate converge at once, as far as they are linear in the parameters.
    """
    turned = now - before
    length = max(float(turned @ turned), 1e-300)
    return float(np.clip(-share * float(before @ turned) / length, SMALLEST_SHARE, 1.0))


def minimised(system: ShootingSystem, theta: Array, options: LevenbergOptions) -> LevenbergState:
    """Minimise with this filter by Levenberg-Marquardt, from theta (p,).

    Raises:
        DataError: The model has no derivatives at theta.
    """
    state = start_state(system, theta, system.segments.starts, options)
    return levenberg_marquardt(system, state, system.segments.problem.theta_bounds, options=options)


def begun(problem: FitProblem, trackers: list[Tracker], noise: Mapping[str, float], options: InnovationOptions) -> FitProblem:
    """The problem, started from a rough fit of fewer parameters, with one in place of those that `options.together` names.

    Raises:
        DataError: The model does not follow the recordings.
    """
    stands = [
        next((one for pattern, one in options.together.items() if fnmatchcase(name, pattern)), name) for name in problem.free
    ]
    few = tuple(dict.fromkeys(stands))
    if set(few) == set(problem.free):
        return problem
    part = problem.replace(free=few, prior={name: known for name, known in problem.prior.items() if name in few})
    return problem.replace(start=part.decode(_roughly(part, trackers, noise, options)))


def _roughly(problem: FitProblem, trackers: list[Tracker], noise: Mapping[str, float], options: InnovationOptions) -> Array:
    """Theta (p,) after minimisations with `BEFORE` filters."""
    theta, system = led(problem, trackers, noise, options.gentle)
    for _ in range(BEFORE):
        theta = minimised(system, theta, ROUGH).theta
        system = anchored(problem, trackers, theta, noise)
    return theta


def led(
    problem: FitProblem, trackers: list[Tracker], noise: Mapping[str, float], gentle: Mapping[str, float]
) -> tuple[Array, ShootingSystem]:
    """Theta (p,) at which the model follows the recordings, and its errors there: the start, or else by continuation.

    Continuation fits the other free parameters roughly at the `gentle` ones, then moves these back to the start; where the
    model does not follow, by half, a quarter .. of the way (of their logarithms, on a log scale).

    Raises:
        DataError: The model follows neither at the start nor on that way.
    """
    theta = problem.encode(problem.initial_parameters)
    try:
        return theta, anchored(problem, trackers, theta, noise)
    except DataError:
        free = tuple(name for name in problem.free if name not in gentle)
        if not free or not set(gentle) & set(problem.free):
            raise
    known = {name: said for name, said in problem.prior.items() if name in free}
    eased = problem.initial_parameters.replace(**{name: value for name, value in gentle.items() if name in problem.free})
    part = problem.replace(free=free, start=eased, prior=known)
    system = anchored(part, trackers, part.encode(eased), noise)
    near = problem.encode(part.decode(minimised(system, part.encode(eased), ROUGH).theta))
    own = np.array([name not in gentle for name in problem.free])
    for share in (*WAY_BACK, 0.0):
        found = np.where(own, near, share * theta + (1.0 - share) * near)
        try:
            return found, anchored(problem, trackers, found, noise)
        except DataError:
            if share == 0.0:
                raise
    raise AssertionError("the last share returns or raises")


def explained(result: FitResult, system: ShootingSystem, theta: Array) -> FitResult:
    """The result, headed by a warning where the model does not explain the data; numbers not to be used stay so.

    Innovations of a right model are white, column by column: neighbours are correlated by more than `LAG_CHANCE` / sqrt(T) less
    than once in a thousand columns. (Smoothed controls make them negatively correlated.)
    """
    white = system.segments.derivative(theta, system.segments.starts).residual[0]
    lag = np.mean(white[1:] * white[:-1], axis=0) / np.maximum(np.mean(white**2, axis=0), 1e-300)
    limit = LAG_CHANCE / np.sqrt(len(white))
    lasting = [f"{name} {value:.2f}" for name, value in zip(result.noise, lag, strict=True) if value > limit]
    large = "noise_exceeded" in result.codes
    if result.reduced_chi2 < FAINT:
        return result
    result = replace(result, misfit=max(result.misfit, float(lag.max()) / limit))
    if not (lasting or large):
        return result
    facts = {"lasting": lasting, "chance": float(limit), "factor": float(np.sqrt(result.reduced_chi2)) if large else 0.0}
    names = ", ".join(e.name for e in result.estimates if not e.hidden)
    said, first = Diagnostic("model_mismatch", "warning", names, result.misfit, 1.0, facts), 0 if result.usable else 1
    return replace(result, diagnostics=(*result.diagnostics[:first], said, *result.diagnostics[first:]))
