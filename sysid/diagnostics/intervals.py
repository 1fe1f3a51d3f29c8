"""From covariances to estimates of parameters: values, intervals, bounds at which they lie. Legend: p parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from softgym_envs.core.simulator import Array, check_number

from ..problem.problem import FitProblem
from .one_sided import OneSided
from .result import Estimate
from .scan import Compatible
from .uncertainty import Identifiability

ASSUMED = 0.5**0.5  # Share of the prior's standard deviation: above it the prior holds more information than the data.


@dataclass(frozen=True)
class IntervalOptions:
    """Settings of intervals and tests after a fit.

    Raises:
        OptionError: A value is not allowed.
    """

    difference_step: float = 0.0
    """Step of differences [fit coordinate], where it is larger than the fit's: steps of a simulator make predictions jump where
    a contact begins, and over a short step a jump passes for a slope, and for knowledge. 0: the fit's."""
    half_step: bool = False
    """Whether intervals allow for the effect of half the simulator's step on the parameters (`.model_form`)."""
    model_error: bool = True
    """Whether intervals allow for the model's own error (`.scan`): not for a fit that is only a start."""
    prediction_errors: bool = True
    """Whether to compute errors of predictions, with the start parameters', too, and one-sided bounds: not for a fit that shows
    what another lacks."""

    def __post_init__(self) -> None:
        check_number("difference_step", self.difference_step, low=0.0)

    @property
    def minimal(self) -> IntervalOptions:
        """The same without what a fit that only provides a start does not need."""
        return replace(self, half_step=False, model_error=False, prediction_errors=False)


def widened(covariance: Array, theta: Array, quantile: float, compatible: tuple[Compatible, ...], unsure: Array) -> Array:
    """Covariance whose 95 % intervals cover the compatible values and, added to that, the effects of model choices."""
    if not compatible and not unsure.any():
        return covariance
    own = quantile * np.sqrt(np.maximum(np.diag(covariance), 0.0))
    reach = own.copy()
    if compatible:
        reach = np.maximum(reach, [max(c.high - t, t - c.low) for c, t in zip(compatible, theta, strict=True)])
    factor = np.divide(reach + unsure, own, out=np.ones(len(own)), where=own > 0)  # a fixed parameter has no covariance
    return np.asarray(covariance * np.outer(factor, factor))


def estimates_of(
    problem: FitProblem,
    theta: Array,
    found: Identifiability,
    quantile: float,
    compatible: tuple[Compatible, ...],
    sides: tuple[OneSided | None, ...],
    unsure: Array,
) -> tuple[Estimate, ...]:
    """Estimates of every parameter; hidden are those that neither curvature nor the model's error nor one side determines."""
    std = found.std
    at_bound = _sides(problem, theta)
    values, began = problem.natural(np.stack([theta, problem.encode(problem.initial_parameters)]))
    slopes, before = problem.slopes(theta), problem.prior_rows[1]
    estimates = []
    for j, spec in enumerate(problem.specs):
        reach = [theta[j] - quantile * std[j], theta[j] + quantile * std[j]]
        vague = bool(compatible) and compatible[j].vague(spec)
        if compatible:
            reach = [min(reach[0], compatible[j].low), max(reach[1], compatible[j].high)]
        reach = [reach[0] - unsure[j], reach[1] + unsure[j]]
        one = sides[j]
        hidden = bool(found.hidden[j]) or vague or one is not None
        side = "" if hidden else at_bound[j]
        ends = np.clip(spec.decode(np.array(reach)), *spec.bounds)
        if one is not None and np.isfinite(one.limit):
            known, (low, high) = float(spec.decode(one.limit)), spec.bounds
            ends = np.array([known, high] if one.open == "upper" else [low, known])
        estimates.append(
            Estimate(
                spec.name,
                spec.unit,
                float(values[j]),
                float("inf") if hidden else float(std[j] * slopes[j]),
                spec.bounds if (found.hidden[j] if one is None else np.isnan(one.limit)) else (float(ends[0]), float(ends[1])),
                float(began[j]),
                spec.bounds,
                side,
                hidden,
                bool(not hidden and std[j] > ASSUMED * before[j]),
            )
        )
    return tuple(estimates)


def doubted(problem: FitProblem, theta: Array, found: Identifiability, quantile: float) -> tuple[tuple[bool, bool], ...]:
    """Per parameter, whether its lower and upper bounds lie outside its curvature interval; both where curvature gives none."""
    lower, upper = problem.theta_bounds
    reach = quantile * found.std
    free = [spec.scale == "log" or not found.hidden[j] or len(theta) == 1 for j, spec in enumerate(problem.specs)]
    return tuple(
        (asked and (hidden or low < t - r), asked and (hidden or high > t + r))
        for asked, hidden, low, high, t, r in zip(free, found.hidden, lower, upper, theta, reach, strict=True)
    )


def _sides(problem: FitProblem, theta: Array) -> list[str]:
    """Bound at which each parameter lies: "lower", "upper" or ""."""
    lower, upper = problem.theta_bounds
    margin = 1e-9 * (upper - lower)
    return [
        "lower" if low else "upper" if high else ""
        for low, high in zip(theta <= lower + margin, theta >= upper - margin, strict=True)
    ]


def pressed(problem: FitProblem, theta: Array, found: Identifiability) -> tuple[tuple[str, str], ...]:
    """Hidden parameters that the method moved to a bound, where they may have lost their effect, and that bound."""
    start, end = _sides(problem, problem.encode(problem.initial_parameters)), _sides(problem, theta)
    named = zip(problem.free, found.hidden, start, end, strict=True)
    return tuple((name, after) for name, hidden, before, after in named if hidden and after and not before)
