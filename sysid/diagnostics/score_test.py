r"""Tests whether a fixed parameter is wrong: projects residuals that pass for noise onto its effect (Rao 1948).

Drag of the table moves a slide by less than the noise of a row, so that no general test sees it, yet it changes friction by a
fifth. Let r be N weighted residuals, and D (N, k) the effects of k parameters on them, without the part that free parameters,
unknown starts and allowed choices of the model explain. Then

.. math:: F = \frac{|P_D r|^2 / k}{(|r|^2 - |P_D r|^2) / (\nu - k)}

is Fisher's F(k, nu - k) for white noise of any size, for every D. The tested parameters are those of
`FitProblem.candidate_causes`; the
rate of false alarms is that of all of them together. Noise that was estimated from recordings may be off by 40 % in a column
of 50 rows, and F with it; there the columns are weighted by their own residuals, which pass for noise.

The free parameters depend on a fixed one that the data do not show: if its own effect d leaves it a standard deviation of
sigma / |d|, they move by (J^T J + P)^{-1} J^T D times that. The tilt of a table cannot be separated from friction in one
straight slide.

Legend: N measured numbers, p parameters, k parameters of one cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import fdtri

from softgym_envs.core.simulator import Array

from ..least_squares.segments import Segments
from ..least_squares.system import ShootingSystem
from .model_form import Varied, change
from .residuals import WeightedResiduals, weighted_residuals
from .whiteness import ALARM

FIRST, LARGEST = 1e-3, 0.1  # [fit coordinate] First and largest change of a parameter that is tried.
SMALL = 0.01  # Effect of the second change on all predictions, in standard deviations of the noise of one number.
SAME_EFFECT = 1e-6  # Share of an effect below which its part beside the free parameters is rounding.


class NotGiven(NamedTuple):
    """A fixed parameter that the data determine too poorly."""

    name: str
    amount: float
    """[its unit] Possible error of its value, 95 %; infinite where the data do not separate it from the free parameters."""
    moved: Array  # (p,) changes of the free parameters by that error [fit coordinate].


class ScoreTest(NamedTuple):
    """Result of the test of all candidate causes."""

    cause: str  # Cause that explains the residuals best, in words.
    share: float  # Statistic over its limit, as a ratio of standard deviations; at most 1 where the fit is explained.
    not_given: tuple[NotGiven, ...]  # Fixed parameters that may move a free one by more than its interval.


def score_test(
    system: ShootingSystem,
    theta: Array,
    starts: Array,
    weighted: WeightedResiduals,
    seen: Array,
    varied: Mapping[str, Varied],
    *,
    inverse: Array,
    half_width: Array,
    noise: float,
    least: float = 0.0,
) -> ScoreTest | None:
    """Test every candidate cause of the problem; None where there is none, or none has an effect.

    Args:
        system: Segments and weights.
        theta: (p,) final parameters of the fit.
        starts: (S, nx) final starts of the fit.
        weighted: Residuals of the fit.
        seen: (p, r) directions of the parameters that residuals determine.
        varied: Choices of the model that intervals allow for.
        inverse: (p, p), (J'J + P)^-1 where the data see something.
        half_width: (p,) of the intervals [fit coordinate].
        noise: Standard deviation of weighted residuals times the 95 % quantile.
        least: Smallest variance assumed of weighted residuals, for those from which noise was taken off.
    """
    problem = system.segments.problem
    asked = _asked(system, theta, starts, weighted, seen, varied)
    not_given = []
    for name, rows in ((name, rows) for effects in asked.effects.values() for name, rows in effects.items()):
        left, per_unit = float(np.linalg.norm(_across(asked.free, rows))), inverse @ (weighted.jacobian.T @ rows)
        spec = problem.known_specs[name]
        most = float(spec.encode(spec.bounds[1]) - spec.encode(spec.bounds[0]))
        reach = noise / max(left, SAME_EFFECT * float(np.linalg.norm(rows)))
        moved = np.abs(per_unit) * min(reach, most)
        if (moved > half_width).any():
            amount = np.inf if reach >= most else reach * abs(float(spec.slope(problem.given(name))))
            not_given.append(NotGiven(name, amount, moved))
    if problem.noise_estimated:
        weighed = replace(system, sigma=system.sigma * _sizes(weighted))
        asked = _asked(weighed, theta, starts, weighted_residuals(weighed, theta, starts), seen, varied)
    shares = _shares(asked, least)
    if not shares:
        return None
    cause = max(shares, key=lambda one: shares[one])
    return ScoreTest(cause, shares[cause], tuple(not_given))


class _Asked(NamedTuple):
    """Residuals and effects for the test."""

    residual: Array  # (N,) without the part of unknown starts.
    dof: int
    free: Array  # (N, r) orthonormal: effects of free parameters and allowed choices.
    effects: dict[str, dict[str, Array]]  # Cause -> fixed parameters that have an effect -> their effects (N,).


def _asked(
    system: ShootingSystem, theta: Array, starts: Array, weighted: WeightedResiduals, seen: Array, varied: Mapping[str, Varied]
) -> _Asked:
    """Residuals and effects of every candidate cause of the problem."""
    problem = system.segments.problem
    allowed = [change(system, other, theta, starts, weighted.project) for other in varied.values()]
    q, _ = np.linalg.qr(np.column_stack([weighted.jacobian @ seen, *(rows for rows in allowed if rows is not None)]))
    open_to = set(problem.known_specs) - set(problem.free)
    found = {}
    for cause, names in problem.candidate_causes.items():
        if set(names) <= open_to:
            effects = {name: _effect(system, name, theta, starts, weighted) for name in names}
            found[cause] = {name: rows for name, rows in effects.items() if rows is not None}
    return _Asked(weighted.residual, weighted.dof, q, found)


def _shares(asked: _Asked, least: float) -> dict[str, float]:
    """Cause -> share of the limit; see `ScoreTest`."""
    shares = {}
    residual = _across(asked.free, asked.residual)
    for cause, effects in asked.effects.items():
        basis = _beside(asked.free, list(effects.values()))[:, asked.free.shape[1] :]
        k, dof = basis.shape[1], asked.dof
        if effects and k < dof:
            along = float(np.sum((basis.T @ residual) ** 2))
            rest = float(residual @ residual) - along
            limit = float(fdtri(max(k, 1), dof - k, 1.0 - ALARM / len(asked.effects)))
            shares[cause] = float(np.sqrt(along / max(k, 1) / max(rest / (dof - k), least) / limit))
    return shares


def _sizes(weighted: WeightedResiduals) -> Array:
    """(m,) root mean square of every column's weighted residuals; 1 where they are zero."""
    there = weighted.present.reshape(-1, weighted.in_time.shape[-1])
    squares = np.sum(weighted.in_time.reshape(there.shape) ** 2, axis=0, where=there)
    sizes = np.sqrt(squares / np.maximum(there.sum(axis=0), 1))
    return np.where(sizes > 0, sizes, 1.0)


def _across(q: Array, rows: Array) -> Array:
    """Rows (N,) without their part along orthonormal columns (N, r)."""
    return np.asarray(rows - q @ (q.T @ rows))


def _effect(system: ShootingSystem, name: str, theta: Array, starts: Array, weighted: WeightedResiduals) -> Array | None:
    """Effect of a fixed parameter on the residuals (N,), per fit coordinate; None: no effect, or a simulation diverges."""
    spec = system.segments.problem.known_specs[name]
    value = system.segments.problem.given(name)
    low, at, high = (float(spec.encode(each)) for each in (spec.bounds[0], value, spec.bounds[1]))
    sign, space = (1.0, high - at) if high - at >= at - low else (-1.0, at - low)
    step, rows = min(FIRST, space), None
    for _ in range(2):
        other = Varied(step, _at(system.segments, name, float(spec.decode(at + sign * step))))
        rows = change(system, other, theta, starts, weighted.project)
        if rows is None or not rows.any():
            return None
        rows = sign / step * rows
        step = min(SMALL / float(np.linalg.norm(rows)), LARGEST, space)
    return rows


def _at(segments: Segments, name: str, value: float) -> Segments:
    """Copy of the segments, predicted with another value of the parameter."""
    problem = segments.problem
    if name in problem.view.names():
        return replace(segments, problem=problem.replace(view=problem.view.replace(**{name: value})))
    return replace(segments, problem=problem.replace(start=problem.initial_parameters.replace(**{name: value})))


def _beside(q: Array, effects: list[Array]) -> Array:
    """Orthonormal columns (N, k): the columns q extended by effects (N,); effects that q holds to rounding add none."""
    for rows in effects:
        across = _across(q, _across(q, rows))
        if np.linalg.norm(across) > SAME_EFFECT * np.linalg.norm(rows):
            q = np.column_stack([q, across / np.linalg.norm(across)])
    return q
