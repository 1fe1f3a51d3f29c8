"""From the end of a minimisation to a `FitResult`: uncertainty, identifiability, diagnostics, errors on held-out data.

Shared by every method. Legend: S segments, L' compared rows, m channels, p parameters, n tangent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from softgym_envs.core.errors import OptionError
from softgym_envs.core.posterior import PosteriorParameters, reduced
from softgym_envs.core.simulator import Array

from ..least_squares.levenberg import FitIteration
from ..least_squares.system import ShootingSystem, channel_scale
from ..problem.interface import sensors_of
from ..problem.problem import FitProblem
from .hold_out_test import hold_out_test
from .intervals import IntervalOptions, doubted, estimates_of, pressed, widened
from .model_form import Heterogeneity, ModelFormEffect, Varied, change, heterogeneity_effect, model_form_effect
from .one_sided import one_sided
from .residuals import WeightedResiduals, is_rounding, weighted_residuals
from .result import FitResult, provenance_of
from .rules import ESTIMATED, Evidence, diagnostics, misfit
from .scan import Compatible, model_error, scan
from .score_test import score_test
from .segment_length_test import segment_length_test
from .uncertainty import (
    Identifiability,
    analyse,
    clustered_covariance,
    combinations,
    correlation_in_time,
    quantile_95,
)
from .validation import NO_TRACE, open_loop, trace
from .whiteness import Whiteness, whiteness

FAINT = 0.3
"""Share of the variance of noise below which errors count as none, whatever their shape: a recording without noise, whose
errors are far below the sensors' least noise."""
NEGLIGIBLE = 0.05  # Share of the half width by noise below which an error of the model is ignored.
CREEP, SLOWLY = 0.1, 1.0
"""Moves of the parameters by one more step [standard deviations], where a method stopped at its last iteration: up to the first
nothing is reported, up to the second intervals are widened by the move."""


@dataclass(frozen=True, eq=False)
class Ending:
    """Final state of a method."""

    method: str
    theta: Array  # (p,)
    starts: Array  # (S, nx)
    converged: bool
    message: str
    log: tuple[FitIteration, ...]
    start_costs: tuple[float, ...]
    seconds: float


def diagnose(
    problem: FitProblem,
    system: ShootingSystem,
    ending: Ending,
    intervals: IntervalOptions | None = None,
    *,
    errors: str = "independent",
    varied: Mapping[str, Varied] | None = None,
    homogeneous: Mapping[str, Heterogeneity] | None = None,
    unit: bool = False,
    lengthened: bool = False,
) -> FitResult:
    """Assemble the result.

    Args:
        problem: What was fitted.
        system: Segments and the final weights.
        ending: Where the method stopped.
        intervals: What to compute; errors of predictions take estimates of many initial states, one whole prediction and
            one-sided bounds.
        varied: Choice of the model in words -> predictions with another amount of it, by which intervals grow (`.model_form`).
        homogeneous: What the model assumes to be homogeneous in words -> effects of differences (`.model_form`).
        errors: "independent" residuals, or "clustered" in time: wider, right also for a model that is structurally wrong.
        unit: Noise was taken off what moves the model, so that residuals lack power where all is right (`.whiteness`).
        lengthened: Whether a fit that short segments explain is tested over longer ones (`.segment_length_test`).

    Raises:
        OptionError: Unknown `errors`.
    """
    if errors not in ("independent", "clustered"):
        raise OptionError(f"errors is {errors!r}, allowed are 'independent' and 'clustered'")
    intervals = intervals or IntervalOptions()
    weighted = weighted_residuals(system, ending.theta, ending.starts)
    rounding = is_rounding(weighted.in_time * system.sigma, channel_scale(system.segments))
    chi2, variance, quantile = _noise_level(problem, weighted)
    faint = rounding or (unit and chi2 < FAINT)
    found, by_noise = _identifiable(problem, weighted, variance, errors, quantile)
    converged, message, crept = _at_minimum(problem, ending, weighted, rounding, by_noise)
    theta, starts = _back_along_null(problem, system, ending, found), ending.starts
    noise = quantile * np.sqrt(variance)
    compatible = _compatible(system, theta, starts, weighted, faint, noise) if intervals.model_error else ()
    doubts = doubted(problem, theta, found, quantile)
    sides, untested = (
        ((None,) * len(theta), ())
        if rounding or not converged or not intervals.prediction_errors
        else one_sided(system, theta, starts, variance=variance, doubted=doubts)
    )
    opened = () if rounding else _left_open(system, varied or {}, homogeneous or {}, theta, starts, weighted, by_noise)
    unsure = np.sum([crept, *(each.reach for each in opened if each.allowed)], axis=0)
    estimates = estimates_of(problem, theta, found, quantile, compatible, sides, unsure)
    covariance = widened(found.covariance, theta, quantile, compatible, unsure)
    parameters, view = problem.decode(theta), problem.view_at(theta)
    loop = open_loop(problem, parameters, view=view) if intervals.prediction_errors else ()
    tested = None if faint else whiteness(weighted.in_time, lambda noise: weighted.left(noise, found.seen), unit=unit)
    if tested is not None and not tested.white and varied and not unit:
        tested = _without(system, varied, theta, starts, weighted, found.seen) or tested
    from_measured = problem.full_state and not system.segments.free
    evidence = Evidence(
        problem, found, estimates, converged, message, chi2, weighted.dof,
        0.0 if faint else correlation_in_time(weighted.in_time), errors, ending.start_costs,
        pressed(problem, ending.theta, found), loop, compatible,
        tested, sides, opened, from_measured and system.segments.horizon == 1, from_measured, _propagated(problem, ending),
    )  # fmt: skip
    if problem.candidate_causes and converged and tested is not None and misfit(evidence) <= 1.0:
        reach = quantile * found.std
        score = score_test(
            system, theta, starts, weighted, found.seen, varied or {},
            inverse=by_noise, half_width=reach, noise=noise, least=float(unit),
        )  # fmt: skip
        evidence = replace(evidence, score_test=score)
    if converged and tested is not None and misfit(evidence) <= 1.0:
        evidence = replace(evidence, hold_out_test=hold_out_test(system, theta, weighted, covariance))
    if lengthened and converged and tested is not None and misfit(evidence) <= 1.0:
        evidence = replace(evidence, segment_length_test=segment_length_test(system, theta, starts, halved=bool(varied)))
    residual = dict(_noise(problem, system))
    result = FitResult(
        method=ending.method, parameters=parameters, start=problem.initial_parameters, estimates=estimates,
        combinations=combinations(found, theta, quantile, problem.specs),
        posterior=_of_the_robot(problem, theta, covariance, found.null),
        noise=residual, noise_known=problem.known_noise is not None, reduced_chi2=chi2, dof=weighted.dof,
        singular_values=tuple(float(s) for s in found.singular_values), diagnostics=diagnostics(evidence), log=ending.log,
        start_costs=ending.start_costs, converged=converged, open_loop=loop,
        trace=trace(problem, parameters, view) if intervals.prediction_errors else NO_TRACE,
        seconds=ending.seconds, provenance=provenance_of(problem),
        spec=problem.spec, misfit=misfit(evidence), view=view, sensors=sensors_of(problem, residual),
    )  # fmt: skip
    unsearched = ", ".join(f"bounds of {problem.free[place]}" for place in untested)
    return result.with_diagnostic("not_searched", "note", unsearched) if untested else result


def _propagated(problem: FitProblem, ending: Ending) -> tuple[str, ...]:
    """Patterns of state entries that segments within a recording took over from each other."""
    return problem.propagated if len(problem.propagated_entries) and len(ending.starts) > len(problem.split.train) else ()


def _noise_level(problem: FitProblem, weighted: WeightedResiduals) -> tuple[float, float, float]:
    """Reduced chi square, the variance of weighted residuals that counts as noise, and its 95 % quantile."""
    known = problem.known_noise is not None
    chi2 = float(weighted.residual @ weighted.residual) / max(weighted.dof, 1)
    # Noise estimated from recordings has an error itself: larger residuals replace it.
    variance = chi2 if not known else max(1.0, chi2) if problem.noise_estimated else 1.0
    freedom = int(2 * weighted.dof / ESTIMATED) if problem.noise_estimated else weighted.dof
    return chi2, variance, quantile_95(known and not problem.noise_estimated, freedom)


def _identifiable(
    problem: FitProblem, weighted: WeightedResiduals, variance: float, errors: str, quantile: float
) -> tuple[Identifiability, Array]:
    """Identifiability of the parameters with such errors, and the covariance (p, p) per unit of variance."""
    prior = _prior_jacobian(problem) * np.sqrt(variance)
    found = analyse(np.vstack([weighted.jacobian, prior]), variance, problem.specs)
    by_noise = found.covariance / max(variance, 1e-300)
    if errors == "clustered" and found.seen.shape[1]:
        covariance = clustered_covariance(
            weighted.jacobian, weighted.residual, weighted.cluster, found.seen, quantile, prior, variance
        )
        if weighted.basis.shape[2]:  # free starts follow the residuals and leave each cluster less than the noise
            least, own = np.diag(found.covariance), np.diag(covariance)
            grown = np.sqrt(np.maximum(least / np.where(own > 0, own, np.inf), 1.0))
            covariance = covariance * np.outer(grown, grown)
        found = Identifiability(found.singular_values, found.seen, found.null, found.structural, covariance)
    return found, by_noise


def _left_open(
    system: ShootingSystem,
    varied: Mapping[str, Varied],
    homogeneous: Mapping[str, Heterogeneity],
    theta: Array,
    starts: Array,
    weighted: WeightedResiduals,
    inverse: Array,
) -> tuple[ModelFormEffect, ...]:
    """Changes of the parameters by every choice of the model, and by all that it assumes to be alike."""
    given: dict[str, Any] = {"project": weighted.project, "jacobian": weighted.jacobian, "inverse": inverse}
    found = [
        ModelFormEffect(cause, model_form_effect(system, other, theta, starts, **given)) for cause, other in varied.items()
    ]
    found += [
        ModelFormEffect(cause, heterogeneity_effect(system, unlike, **given), allowed=False)
        for cause, unlike in homogeneous.items()
    ]
    return tuple(found)


def _without(
    system: ShootingSystem, varied: Mapping[str, Varied], theta: Array, starts: Array, weighted: WeightedResiduals, seen: Array
) -> Whiteness | None:
    """Whiteness without the effects of allowed choices; None where residuals still last, or where a choice diverges."""
    moved = [change(system, other, theta, starts, weighted.project) for other in varied.values()]
    columns = [rows for rows in moved if rows is not None]
    if len(columns) < len(moved):
        return None
    q, _ = np.linalg.qr(np.column_stack([weighted.jacobian @ seen, *columns]))
    along, there = q[:, seen.shape[1] :], weighted.present

    def less(rows: Array) -> Array:
        flat = rows.reshape(len(there), -1).copy()
        flat[there] -= along @ (along.T @ flat[there])
        return flat.reshape(rows.shape)

    found = whiteness(less(weighted.in_time), lambda noise: less(weighted.left(noise, seen)))
    return found if found.white else None


def _of_the_robot(problem: FitProblem, theta: Array, covariance: Array, null: Array) -> PosteriorParameters:
    """Posterior of the robot's parameters, with those of the recordings marginalised."""
    places = [problem.free.index(name) for name in problem.own]
    return PosteriorParameters(problem.own, theta[places], covariance[np.ix_(places, places)], reduced(null[places]))


def _at_minimum(
    problem: FitProblem, ending: Ending, weighted: WeightedResiduals, rounding: bool, inverse: Array
) -> tuple[bool, str, Array]:
    """Whether the method converged, the reason, and distance to the minimum (p,): a Gauss-Newton step may win 1 % at most.

    A method that stopped at its largest number of iterations has converged if such a step is within the noise (`CREEP`,
    `SLOWLY`).

    Args:
        problem: What was fitted.
        ending: Final state of the method.
        weighted: Residuals there.
        rounding: Whether these residuals are only rounding.
        inverse: (p, p), (J'J + P)^-1 in the directions that the data see.
    """
    nothing = np.zeros(len(ending.theta))
    gradient = weighted.jacobian.T @ weighted.residual
    lower, upper = problem.theta_bounds
    pushed = ((ending.theta <= lower) & (gradient > 0)) | ((ending.theta >= upper) & (gradient < 0))
    free = weighted.jacobian[:, ~pushed]
    if rounding or problem.prior or free.shape[1] == 0:
        return ending.converged, ending.message, nothing
    size = float(weighted.residual @ weighted.residual)
    q, _ = np.linalg.qr(free / np.maximum(np.linalg.norm(free, axis=0), 1e-300))
    share = float(np.sum((q.T @ weighted.residual) ** 2)) / max(size, 1e-300)
    if not ending.converged:
        variance = 1.0 if problem.known_noise is not None else size / max(weighted.dof, 1)
        deviations = float(np.sqrt(share * size / variance))
        if deviations > SLOWLY:
            return False, ending.message, nothing
        said = f"converged: one more step would move the parameters by {deviations:.1g} of their standard deviation"
        if deviations <= CREEP:
            return True, said, nothing
        return True, f"{said}, and intervals reach so much farther", np.abs(inverse @ gradient)
    # By chance alone the step lowers the cost by p / dof.
    if share > 0.01 + 10 * len(gradient) / max(weighted.dof, 1):
        return False, f"stopped away from a minimum: one more step would lower the cost by {100 * share:.0f} %", nothing
    return True, ending.message, nothing


def _prior_jacobian(problem: FitProblem) -> Array:
    _, std = problem.prior_rows
    return np.diag(np.where(np.isfinite(std), 1.0 / std, 0.0))


def _back_along_null(problem: FitProblem, system: ShootingSystem, ending: Ending, found: Identifiability) -> Array:
    """Move hidden parameters back to their start values along null directions, if that does not raise the cost."""
    shift = found.null @ (found.null.T @ (problem.encode(problem.initial_parameters) - ending.theta))
    moved = np.clip(ending.theta + shift, *problem.theta_bounds)
    before, after = system.costs(np.stack([ending.theta, moved]), ending.starts)
    # Half a unit of cost is one standard deviation: the smallest change that noise lets one see.
    return moved if after <= before + max(0.5, 1e-6 * before) else ending.theta


def _compatible(
    system: ShootingSystem, theta: Array, starts: Array, weighted: WeightedResiduals, faint: bool, noise: float
) -> tuple[Compatible, ...]:
    """Values of every parameter that the model's own error allows; () where it has none."""
    error = 0.0 if faint else model_error(weighted.in_time)
    return scan(system, theta, starts, error=error, noise=noise) if error > NEGLIGIBLE * noise else ()


def _noise(problem: FitProblem, system: ShootingSystem) -> list[tuple[str, float]]:
    """Channel -> sigma; tangent coordinates that share a name (as the state entry they move) get a number."""
    found: dict[str, float] = {}
    for name, value in zip(problem.channel_names, system.sigma, strict=True):
        key, count = name, 2
        while key in found:
            key, count = f"{name}#{count}", count + 1
        found[key] = float(value)
    return list(found.items())
