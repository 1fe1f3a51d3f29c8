"""Two ways to the same data: a fit is repeated by other means, and intervals cover the difference of the two results.

Where contacts begin a step of the simulator earlier or later, predictions jump, and the squares have many minima of nearly the
same depth. Curvature shows the width of one of them, which may be ten times less than the distance between them. With the ends
theta, theta' [fit coordinate] of two fits the lower is kept; the interval of parameter j reaches `REACH` |theta_j - theta'_j|
farther, and so does the posterior.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from softgym_envs.core.errors import DataError

from ..diagnostics.intervals import widened
from ..diagnostics.result import Estimate, FitResult, remaining_share
from ..diagnostics.uncertainty import NORMAL
from ..problem.problem import FitProblem

REACH = 2.0
"""Multiple of the distance of two ends: for two normal draws a standard deviation is 0.7 of their distance on average."""
HARDLY = 1.05  # Ratio of squares up to which a minimum is better than a lower fit that did not converge.
OTHER_STEP = 10.0
"""Factor on the step of differences on the second way: over a longer step fewer jumps of predictions pass for slopes."""


def by_two_ways(problem: FitProblem, first: Callable[[], FitResult], second: Callable[[], FitResult]) -> FitResult:
    """Combine two fits of a problem; the first result only, where the simulation diverges on the second way.

    Raises:
        DataError: It diverges on the first way.
    """
    one = first()
    try:
        return either(problem, one, second())
    except DataError:
        return one


def ranked(one: FitResult, other: FitResult) -> tuple[FitResult, FitResult]:
    """Two fits of one problem, the better first: the lower one, unless it did not converge and the other is hardly higher."""
    best, second = sorted((one, other), key=lambda fit: remaining_share(fit, one))
    if second.converged and not best.converged and remaining_share(second, best) < HARDLY:
        return second, best
    return best, second


def either(problem: FitProblem, one: FitResult, other: FitResult) -> FitResult:
    """The better of two fits of one problem, with intervals and a posterior that cover the other; see the module docstring."""
    best, second = ranked(one, other)
    best = replace(best, seconds=one.seconds + other.seconds)
    ends = [problem.replace(view=fit.view).encode(fit.parameters) for fit in (best, second)]
    apart = np.abs(ends[0] - ends[1])
    estimates = tuple(
        _reaching(problem, place, estimate, REACH * apart[place]) for place, estimate in enumerate(best.estimates)
    )
    posterior, places = best.posterior, [problem.free.index(name) for name in best.posterior.names]
    covariance = widened(posterior.covariance, posterior.mean, NORMAL, (), REACH * apart[places])
    moved = {
        e.name: float(getattr(second.parameters, e.name))
        for e in best.estimates
        if e.name in problem.own and not e.hidden and not e.interval[0] <= getattr(second.parameters, e.name) <= e.interval[1]
    }
    found = replace(best, estimates=estimates, posterior=replace(posterior, covariance=covariance))
    return found.with_reservation("fits_disagree", ", ".join(moved), moved=moved) if moved else found


def _reaching(problem: FitProblem, place: int, estimate: Estimate, reach: float) -> Estimate:
    """The estimate with its interval widened by `reach` [fit coordinate], within its bounds."""
    spec = problem.specs[place]
    ends = spec.encode(np.array(estimate.interval)) + np.array([-reach, reach])
    low, high = np.clip(spec.decode(ends), *spec.bounds)
    std = estimate.std if estimate.hidden else float(high - low) / (2.0 * NORMAL)
    return replace(estimate, interval=(float(low), float(high)), std=std)
