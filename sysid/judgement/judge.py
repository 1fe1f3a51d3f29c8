"""From the end of a minimisation to a `FitResult`: uncertainty, identifiability, verdicts, errors on held-out data.

Shared by every method. Legend: S segments, L' compared rows, m channels, p constants, n tangent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import OptionError

from ..data.problem import FitProblem
from ..least_squares.levenberg import IterLog, triangle
from ..least_squares.segments import Segments, ShootingSystem, channel_scale
from .laws import LeftOpen, Varied, left_open
from .result import Estimate, FitResult, provenance_of
from .scan import Compatible, model_error, scan
from .sides import OneSided, one_sided
from .uncertainty import (
    Identifiability,
    PosteriorParameters,
    analyse,
    clustered_covariance,
    column_lengths,
    combinations,
    correlation_in_time,
    quantile_95,
)
from .validation import open_loop, trace
from .verdicts import TOLD, Evidence, misfit, verdicts
from .whiteness import whiteness

Array = NDArray[np.float64]

CLUSTERS = 30
"""Stretches of time that count as independent with errors="clustered"."""
WEAK = 1e-4
"""Directions with singular values below this times the largest are measured by secants."""
UNSURE = 1e-6
"""Below this times the largest, singular values from derivatives alone may be errors of the derivatives."""
NEGLIGIBLE = 0.05
"""Of the half width that noise gives: a smaller error of the model opens nothing."""
CREEP = 0.1
"""Standard deviations by which one more step may still move the constants where a method stopped at its last iteration."""
ASSUMED = 0.5**0.5
"""Of the prior's standard deviation: where more is left, the prior's information is larger than the data's."""
SECANT = 0.02
"""Half length of a secant [fit coordinate]."""


@dataclass(frozen=True, eq=False)
class Ending:
    """Where a method stopped."""

    method: str
    theta: Array
    """(p,)"""
    starts: Array
    """(S, nx)"""
    converged: bool
    message: str
    log: tuple[IterLog, ...]
    start_costs: tuple[float, ...]
    seconds: float


class _Weighted(NamedTuple):
    """Residuals with unknown starts projected out, as rows."""

    residual: Array
    """(N,)"""
    jacobian: Array
    """(N, p)"""
    cluster: NDArray[np.intp]
    """(N,)"""
    in_time: Array
    """(S, L', m) weighted residuals."""
    basis: Array
    """(S, L' m, k) orthonormal: what the unknown starts can explain."""
    dof: int
    present: NDArray[np.bool_]
    """(S L' m,) what was measured."""

    def project(self, rows: Array) -> Array:
        """Rows (S, L' m, q) without what the unknown starts can explain."""
        return np.asarray(rows - self.basis @ (np.swapaxes(self.basis, 1, 2) @ rows))

    def left(self, noise: Array, seen: Array) -> Array:
        """What a fit leaves of noise (S, L', m, D), zero where nothing is measured: less starts and seen constants (p, r)."""
        shape = noise.shape
        rows = self.project(noise.reshape(shape[0], -1, shape[-1])).reshape(-1, shape[-1])
        if seen.shape[1]:
            q, _ = np.linalg.qr(self.jacobian @ seen)
            there = self.present
            rows[there] -= q @ (q.T @ rows[there])
        return rows.reshape(shape)


def judge(
    problem: FitProblem,
    system: ShootingSystem,
    ending: Ending,
    *,
    errors: str = "independent",
    scanned: bool = True,
    varied: Mapping[str, Varied] | None = None,
    unit: bool = False,
) -> FitResult:
    """Assemble the result.

    Args:
        problem: What was fitted.
        system: Segments and the final weights.
        ending: Where the method stopped.
        scanned: Whether to ask what the model's own error leaves open.
        varied: Choice of the model in words -> predictions with another amount of it: what it leaves open (`.laws`).
        errors: "independent" residuals, or "clustered" in time: wider, right also for a model that is structurally wrong.
        unit: Noise was taken off what moves the model, so that residuals lack power where all is right (`.whiteness`).

    Raises:
        OptionError: Unknown `errors`.
    """
    if errors not in ("independent", "clustered"):
        raise OptionError(f"errors is {errors!r}, allowed are 'independent' and 'clustered'")
    known = problem.known_noise is not None
    weighted = _weighted(system, ending)
    rounding = is_rounding(weighted.in_time * system.sigma, channel_scale(system.segments))
    chi2 = float(weighted.residual @ weighted.residual) / max(weighted.dof, 1)
    # What recordings told of their noise has an error itself: where residuals are larger, they are believed.
    variance = chi2 if not known else max(1.0, chi2) if problem.told else 1.0
    stacked = np.vstack([weighted.jacobian, _prior_jacobian(problem) * np.sqrt(variance)])
    found = analyse(stacked, variance, problem.specs)
    covariance, seen_by_noise = found.covariance, found.covariance / max(variance, 1e-300)
    if errors == "clustered" and found.seen.shape[1]:
        covariance = clustered_covariance(weighted.jacobian, weighted.residual, weighted.cluster, found.seen)
        found = Identifiability(found.singular_values, found.seen, found.null, found.structural, covariance)
    converged, message = _at_minimum(problem, ending, weighted, rounding)
    theta = _back_along_null(problem, system, ending, found)
    freedom = int(2 * weighted.dof / TOLD) if problem.told else weighted.dof
    quantile = quantile_95(known and not problem.told, freedom)
    asked = (system, ending, theta, weighted, rounding, quantile * np.sqrt(variance))
    compatible = _compatible(*asked) if scanned else ()
    sides = (
        (None,) * len(theta)
        if rounding or not converged
        else one_sided(system, theta, ending.starts, variance=variance, doubted=_doubted(problem, theta, found, quantile))
    )
    opened = () if rounding else _left_open(system, varied or {}, theta, ending.starts, weighted, seen_by_noise)
    unsure = np.sum([np.zeros(len(theta)), *(each.reach for each in opened)], axis=0)
    estimates = _estimates(problem, theta, found, quantile, compatible, sides, unsure)
    parameters, view = problem.decode(theta), problem.view_at(theta)
    viewed = problem.replace(view=view) if view != problem.view else problem
    loop = open_loop(viewed, parameters)
    correlation = 0.0 if rounding else correlation_in_time(weighted.in_time)
    tested = None if rounding else whiteness(weighted.in_time, lambda noise: weighted.left(noise, found.seen), unit=unit)
    evidence = Evidence(
        problem,
        found,
        estimates,
        converged,
        message,
        chi2,
        weighted.dof,
        correlation,
        errors,
        ending.start_costs,
        _pressed(problem, ending.theta, found),
        loop,
        compatible,
        tested,
        sides,
        opened,
    )
    return FitResult(
        method=ending.method, parameters=parameters, start=problem.constants, estimates=estimates,
        combinations=combinations(found, theta, quantile, problem.specs),
        posterior=_of_the_robot(problem, theta, _widened(covariance, theta, quantile, compatible, unsure)),
        noise=dict(_noise(problem, system)), noise_known=known, reduced_chi2=chi2, dof=weighted.dof,
        singular_values=tuple(float(s) for s in found.singular_values), verdicts=verdicts(evidence), log=ending.log,
        start_costs=ending.start_costs, converged=converged, open_loop=loop, trace=trace(viewed, parameters),
        seconds=ending.seconds, provenance=provenance_of(problem),
        spec=problem.spec, misfit=misfit(evidence), view=view,
    )  # fmt: skip


def _left_open(
    system: ShootingSystem, varied: Mapping[str, Varied], theta: Array, starts: Array, weighted: _Weighted, inverse: Array
) -> tuple[LeftOpen, ...]:
    """What every choice of the model leaves open."""
    given: dict[str, Any] = {"project": weighted.project, "jacobian": weighted.jacobian, "inverse": inverse}
    return tuple(LeftOpen(cause, left_open(system, other, theta, starts, **given)) for cause, other in varied.items())


def _of_the_robot(problem: FitProblem, theta: Array, covariance: Array) -> PosteriorParameters:
    """What is known of the robot's constants, whatever those of the recordings are."""
    places = [problem.free.index(name) for name in problem.own]
    return PosteriorParameters(problem.own, theta[places], covariance[np.ix_(places, places)])


def is_rounding(residual: Array, scale: Array) -> bool:
    """Whether residuals (..., m) are nothing against what there is to predict (m,): data of the simulator itself."""
    rms = np.sqrt(np.mean(residual.reshape(-1, residual.shape[-1]) ** 2, axis=0))
    return bool((rms < 1e-8 * scale).all())


def estimated_noise(segments: Segments, theta: Array, starts: Array, scale: Array) -> Array:
    """Standard deviation of the residuals per channel (m,), unbiased by the number of unknowns; at least 1e-12 of `scale`."""
    residual, _ = segments.residuals(theta[None], starts)
    present = segments.present
    count = np.maximum(present.sum(axis=(0, 1)), 1)
    unknowns = len(theta) + (starts.shape[0] * len(segments.problem.unknown_start) if segments.free else 0)
    total = int(present.sum())
    correction = total / max(total - unknowns, 1)
    return np.asarray(np.maximum(np.sqrt(np.sum(residual[0] ** 2, axis=(0, 1)) / count * correction), 1e-12 * scale))


def _weighted(system: ShootingSystem, ending: Ending) -> _Weighted:
    segments, p = system.segments, len(ending.theta)
    derivative = segments.derivative(ending.theta, ending.starts)
    weight, rows = 1.0 / system.sigma, segments.present.reshape(-1)
    count, length, channels = derivative.residual.shape
    in_time = derivative.residual * weight
    stretch = np.arange(count * length) * CLUSTERS // (count * length)
    cluster = np.repeat(stretch, channels)[rows].astype(np.intp)
    starts = (derivative.starts * weight[:, None]).reshape(count, length * channels, -1)
    basis, rank = _column_space(starts)
    dof = int(rows.sum()) - p - rank
    raw = _Weighted(in_time.reshape(-1)[rows], np.zeros((0, p)), cluster, in_time, basis, dof, rows)
    jacobian = raw.project((derivative.constants * weight[:, None]).reshape(count, -1, p))
    jacobian = _refined(system, ending, raw, jacobian)
    return raw._replace(jacobian=jacobian.reshape(-1, p)[rows])


def _column_space(columns: Array) -> tuple[Array, int]:
    """Orthonormal basis of the columns (S, N, n) of every block, zero where they are dependent, and the rank of all."""
    if columns.shape[2] == 0:
        return columns, 0
    u, s, _ = np.linalg.svd(columns, full_matrices=False)
    kept = s > 1e-10 * s[:, :1]
    return np.asarray(np.where(kept[:, None, :], u, 0.0)), int(kept.sum())


def _refined(system: ShootingSystem, ending: Ending, raw: _Weighted, jacobian: Array) -> Array:
    """Jacobian whose weak directions are measured by long secants, (S, L' m, p).

    Derivatives carry an error relative to the strongest direction; along a direction that the data hardly see it hides whether
    they see it at all. A symmetry of the model (all masses and stiffnesses times two) holds for long steps too.
    """
    p = jacobian.shape[2]
    flat = triangle(np.vstack([jacobian.reshape(-1, p), np.zeros((p, p))]))
    lengths = column_lengths(flat)
    _, s, vt = np.linalg.svd(flat / lengths)
    lower, upper = system.segments.problem.theta_bounds
    turned = (jacobian / lengths) @ vt.T
    for i in np.flatnonzero(s < WEAK * s[0]):
        direction = vt[i] / lengths
        size = float(np.linalg.norm(direction))
        ends = [_reach(ending.theta, sign * direction / size, lower, upper) for sign in (-1.0, 1.0)]
        thetas = ending.theta + np.array([[-ends[0]], [ends[1]]]) * direction / size
        residual, good = system.segments.residuals(thetas, ending.starts)
        if good.all() and sum(ends) > 1e-6:
            difference = (residual[1] - residual[0]) / system.sigma / sum(ends) * size
            turned[:, :, i] = raw.project(difference.reshape(len(turned), -1, 1))[:, :, 0]
        elif s[i] < UNSURE * s[0]:
            turned[:, :, i] = 0.0  # bounds leave no room for a secant, and derivatives alone cannot tell
    return np.asarray((turned @ vt) * lengths)


def _reach(theta: Array, direction: Array, lower: Array, upper: Array) -> float:
    """How far theta may move along a direction, at most `SECANT`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(
            direction > 0, (upper - theta) / direction, np.where(direction < 0, (lower - theta) / direction, np.inf)
        )
    return float(np.clip(room.min(), 0.0, SECANT))


def _at_minimum(problem: FitProblem, ending: Ending, weighted: _Weighted, rounding: bool) -> tuple[bool, str]:
    """Whether the method converged, and why not: a Gauss-Newton step must not lower the cost by more than 1 %.

    A method that stopped at its largest number of iterations has converged if such a step is far inside of the noise (`CREEP`).
    """
    gradient = weighted.jacobian.T @ weighted.residual
    lower, upper = problem.theta_bounds
    pushed = ((ending.theta <= lower) & (gradient > 0)) | ((ending.theta >= upper) & (gradient < 0))
    free = weighted.jacobian[:, ~pushed]
    if rounding or problem.prior or free.shape[1] == 0:
        return ending.converged, ending.message
    size = float(weighted.residual @ weighted.residual)
    q, _ = np.linalg.qr(free / np.maximum(np.linalg.norm(free, axis=0), 1e-300))
    share = float(np.sum((q.T @ weighted.residual) ** 2)) / max(size, 1e-300)
    if not ending.converged:
        variance = 1.0 if problem.known_noise is not None else size / max(weighted.dof, 1)
        deviations = float(np.sqrt(share * size / variance))
        if deviations > CREEP:
            return False, ending.message
        return True, f"converged: one more step would move the constants by {deviations:.1g} of their standard deviation"
    # By chance alone the step lowers the cost by p / dof.
    if share > 0.01 + 10 * len(gradient) / max(weighted.dof, 1):
        return False, f"stopped away from a minimum: one more step would lower the cost by {100 * share:.0f} %"
    return True, ending.message


def _prior_jacobian(problem: FitProblem) -> Array:
    _, std = problem.prior_rows
    return np.diag(np.where(np.isfinite(std), 1.0 / std, 0.0))


def _back_along_null(problem: FitProblem, system: ShootingSystem, ending: Ending, found: Identifiability) -> Array:
    """Hidden constants keep their start value along null directions, if the cost agrees that nothing is lost."""
    shift = found.null @ (found.null.T @ (problem.encode(problem.constants) - ending.theta))
    moved = np.clip(ending.theta + shift, *problem.theta_bounds)
    before, after = system.costs(np.stack([ending.theta, moved]), ending.starts)
    # Half a unit of cost is one standard deviation: the smallest change that a noisy fit can speak of.
    return moved if after <= before + max(0.5, 1e-6 * before) else ending.theta


def _compatible(
    system: ShootingSystem, ending: Ending, theta: Array, weighted: _Weighted, rounding: bool, noise: float
) -> tuple[Compatible, ...]:
    """What the model's own error leaves open, per constant; nothing where it has none."""
    error = 0.0 if rounding else model_error(weighted.in_time)
    return scan(system, theta, ending.starts, error=error, noise=noise) if error > NEGLIGIBLE * noise else ()


def _widened(covariance: Array, theta: Array, quantile: float, compatible: tuple[Compatible, ...], unsure: Array) -> Array:
    """Covariance whose 95 % intervals reach as far as the compatible values, and farther by what choices leave open."""
    if not compatible and not unsure.any():
        return covariance
    own = quantile * np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    reach = own.copy()
    if compatible:
        reach = np.maximum(reach, [max(c.high - t, t - c.low) for c, t in zip(compatible, theta, strict=True)])
    factor = (reach + unsure) / own
    return np.where(covariance != 0, covariance * np.outer(factor, factor), 0.0)


def _estimates(
    problem: FitProblem,
    theta: Array,
    found: Identifiability,
    quantile: float,
    compatible: tuple[Compatible, ...],
    sides: tuple[OneSided | None, ...],
    unsure: Array,
) -> tuple[Estimate, ...]:
    std = np.sqrt(np.maximum(np.diag(found.covariance), 0.0))
    at_bound = _sides(problem, theta)
    values, began = problem.natural(np.stack([theta, problem.encode(problem.constants)]))
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
        if one is not None:
            known, (low, high) = float(spec.decode(one.limit)), spec.bounds
            ends = np.array([known, high] if one.open == "upper" else [low, known])
        estimates.append(
            Estimate(
                spec.name,
                spec.unit,
                float(values[j]),
                float("inf") if hidden else float(std[j] * slopes[j]),
                spec.bounds if found.hidden[j] and one is None else (float(ends[0]), float(ends[1])),
                float(began[j]),
                spec.bounds,
                side,
                hidden,
                bool(not hidden and std[j] > ASSUMED * before[j]),
            )
        )
    return tuple(estimates)


def _doubted(problem: FitProblem, theta: Array, found: Identifiability, quantile: float) -> tuple[tuple[bool, bool], ...]:
    """Per constant, whether its lower and its upper bound are beyond what its curvature allows; all where there is none."""
    lower, upper = problem.theta_bounds
    reach = quantile * np.sqrt(np.maximum(np.diag(found.covariance), 0.0))
    free = [spec.scale == "log" or not found.hidden[j] or len(theta) == 1 for j, spec in enumerate(problem.specs)]
    return tuple(
        (asked and (hidden or low < t - r), asked and (hidden or high > t + r))
        for asked, hidden, low, high, t, r in zip(free, found.hidden, lower, upper, theta, reach, strict=True)
    )


def _sides(problem: FitProblem, theta: Array) -> list[str]:
    """At which bound each constant lies: "lower", "upper" or ""."""
    lower, upper = problem.theta_bounds
    margin = 1e-9 * (upper - lower)
    return [
        "lower" if low else "upper" if high else ""
        for low, high in zip(theta <= lower + margin, theta >= upper - margin, strict=True)
    ]


def _pressed(problem: FitProblem, theta: Array, found: Identifiability) -> tuple[str, ...]:
    """Hidden constants that the method moved to a bound: there they may have lost the effect they had."""
    start, end = _sides(problem, problem.encode(problem.constants)), _sides(problem, theta)
    named = zip(problem.free, found.hidden, start, end, strict=True)
    return tuple(
        f"{name} was pressed to its {after} bound" for name, hidden, before, after in named if hidden and after and not before
    )


def _noise(problem: FitProblem, system: ShootingSystem) -> list[tuple[str, float]]:
    """Channel -> sigma; tangent coordinates that share a name (as the state entry they move) get a number."""
    found: dict[str, float] = {}
    for name, value in zip(problem.channel_names, system.sigma, strict=True):
        key, count = name, 2
        while key in found:
            key, count = f"{name}#{count}", count + 1
        found[key] = float(value)
    return list(found.items())
