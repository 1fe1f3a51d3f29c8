"""Do the constants hold for recordings that were kept back? Their residuals, beside those of the recordings that were fitted.

A fit that explains one recording says nothing of another robot, or of another load. So the recordings for testing are cut into
segments as those for training were, their unknown starts are fitted with the constants held (from two guesses each: where a
body comes to rest there are minima that are none), and what is left is compared with what the fit left: a ratio of 1 but for
chance and for what the constants' own errors make, if robot, model and noise are the same. With residuals r of unit variance,
their Jacobian J by the constants and the covariance C of these, r' (I + J C J')^{-1} r is chi square. Rows in which nobody
knows what acts (`.starts.rows_unknown`) are left out, and the largest `OUTLIERS` of the numbers of either are no matter.
Nothing is said where starts end at no minimum, where errors of the constants make more than noise does, as no straight line
says what, nor of recordings that are followed by a filter, which fits no starts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from softgym_envs.core.errors import DataError, ShapeError
from softgym_envs.core.trajectory import Trajectory, TrajectorySet

from ..least_squares.cutting import cut
from ..least_squares.levenberg import LevenbergOptions, levenberg_marquardt, start_state
from ..least_squares.segments import Segments
from ..least_squares.system import ShootingSystem
from .residuals import WeightedResiduals, weighted_residuals
from .starts import FEWEST, OnlyStarts, rows_unknown, without_first

Array = NDArray[np.float64]

OUTLIERS = 0.02
"""Share of numbers that a camera may have wrong."""
WORTH = 1.25
"""Ratio of standard deviations below which nothing is said, however sure: a lamp or a lens may differ by so much."""
RARE = 1e-3
"""Share of fits of right models that are meant to be called wrong: noise is hardly ever quite the same twice."""
BEGIN = 0.3
"""[s] Of a segment that tell the second guess of its start."""

_OPTIONS = LevenbergOptions(cost_tolerance=1e-3)


class Elsewhere(NamedTuple):
    """Residuals of recordings that were kept back."""

    column: int
    """Whose residuals are largest beside those that were fitted."""
    ratio: float
    """Of all columns, of standard deviations."""
    share: float
    """Ratio of variances over what chance allows: it is more."""


def elsewhere(system: ShootingSystem, theta: Array, weighted: WeightedResiduals, covariance: Array) -> Elsewhere | None:
    """The ratio, where it is more than chance and errors of constants make it; None: it is not, or nothing is kept back.

    Args:
        system: Segments and weights of the fit.
        theta: (p,) where it ended.
        weighted: Residuals there.
        covariance: (p, p) of the constants.
    """
    segments = system.segments
    if not isinstance(segments, Segments):
        return None
    problem, whole = segments.problem, max(t.num_steps for t in segments.problem.split.train) <= segments.horizon
    if not len(problem.split.test):
        return None
    late = problem.replace(view=problem.view_at(theta))
    known = [without_first(t, rows_unknown(late, t)) for t in problem.split.test]

    def of(recordings: list[Trajectory]) -> ShootingSystem:
        cuts = cut(
            problem, TrajectorySet(tuple(recordings)), None if whole else segments.horizon, free=segments.free,
            exact=segments.exact, epsilon=segments.epsilon, one_sided=segments.one_sided,
        )  # fmt: skip
        return replace(system, segments=cuts)

    try:
        other = of(known)
        if not segments.free:
            return _compared(other, theta, other.segments.starts, system, weighted, covariance)
        each, found = [of([recording]) for recording in known], None
        ends: list[list[Array]] = [[] for _ in each]
        for short in (False, True):
            for one, there in zip(each, ends, strict=True):
                there += _minima(one, theta, _short(one, theta) if short else one.segments.starts)
            if not all(ends):
                continue
            starts = np.concatenate([_best(one, theta, there) for one, there in zip(each, ends, strict=True)])
            found = _compared(other, theta, starts, system, weighted, covariance)
            if found is None:
                break
    except (DataError, ShapeError):  # nothing can be predicted from there
        return None
    return found


def _compared(
    other: ShootingSystem, theta: Array, starts: Array, system: ShootingSystem, weighted: WeightedResiduals, covariance: Array
) -> Elsewhere | None:
    """`elsewhere` of segments that begin at `starts` (S, nx)."""
    there = weighted_residuals(other, theta, starts)
    ours, theirs = _kept(there.in_time, other.segments.present), _kept(weighted.in_time, system.segments.present)
    if there.dof < 1 or weighted.dof < 1:
        return None
    noise = float(np.sum(theirs * weighted.in_time**2)) / weighted.dof
    kept = ours.reshape(-1)[there.present]
    along = there.jacobian @ _root(covariance / max(noise, 1e-300)) * kept[:, None]
    if np.sum(along**2) > there.dof:
        return None
    left = _without_errors(there.residual * kept, along)
    ratio, limit = left / there.dof / noise, float(stats.f.isf(RARE, there.dof, weighted.dof))
    if ratio <= max(WORTH**2, limit):
        return None
    shares = _by_column(ours * there.in_time**2) / np.maximum(_by_column(theirs * weighted.in_time**2), 1e-300)
    return Elsewhere(int(np.argmax(shares)), float(np.sqrt(ratio)), ratio / limit)


def _short(other: ShootingSystem, theta: Array) -> Array:
    """Starts (S, nx) that the first rows of segments tell, the constants held."""
    cuts = other.segments
    rows = max(round(BEGIN / cuts.problem.split.test[0].period), FEWEST)
    if rows >= cuts.horizon or cuts.begins.any():  # segments that follow each other are short themselves
        return cuts.starts
    found = _minima(replace(other, segments=cuts.cut(0, rows)), theta, cuts.starts)
    return found[0] if found else cuts.starts


def _minima(other: ShootingSystem, theta: Array, starts: Array) -> list[Array]:
    """Starts (S, nx) where a search from others ends, the constants held; none where it does not converge."""
    held, nothing = OnlyStarts(other, theta), np.zeros(0)
    begun = start_state(held, nothing, starts, _OPTIONS)
    end = levenberg_marquardt(held, begun, (nothing, nothing), options=_OPTIONS)
    return [end.blocks] if end.outcome is not None and end.outcome.converged else []


def _best(other: ShootingSystem, theta: Array, ends: list[Array]) -> Array:
    """Of several starts (S, nx), per segment those that leave least."""
    residuals = [other.segments.residuals(theta[None], end)[0][0] / other.sigma for end in ends]
    least = np.argmin([np.sum(residual**2, axis=(1, 2)) for residual in residuals], axis=0)
    return np.stack([ends[best][place] for place, best in enumerate(least)])


def _root(covariance: Array) -> Array:
    """L (p, p) with L L' = C."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _without_errors(residual: Array, along: Array) -> float:
    """r' (I + A A')^{-1} r, A (N, p) = J L."""
    moved = along.T @ residual
    return float(residual @ residual - moved @ np.linalg.solve(np.eye(len(moved)) + along.T @ along, moved))


def _kept(residual: Array, present: NDArray[np.bool_]) -> Array:
    """(S, L', m) 1 for what counts; zero where nothing was measured and for the largest ones."""
    squares = np.where(present, residual**2, 0.0)
    return np.where(present & (squares <= np.quantile(squares[present], 1.0 - OUTLIERS)), 1.0, 0.0)


def _by_column(squares: Array) -> Array:
    return np.asarray(squares.sum(axis=(0, 1)))


__all__ = ["Elsewhere", "elsewhere"]
