"""Tests whether the parameters hold for held-out recordings: their residuals are compared with those of the fitted recordings.

A fit that explains one recording says nothing about another robot, or another load. So the recordings for testing are cut into
segments as those for training were. Their unknown starts are fitted with fixed parameters, from two guesses each, since where a
body comes to rest there are false minima. The residuals are compared with those of the fit: if robot, model and noise are the
same, the ratio of variances is 1 but for chance and for the errors of the parameters. With residuals r of unit variance,
their Jacobian J by the parameters and the covariance C of these, r' (I + J C J')^{-1} r is chi square. Rows in which the acting
commands are unknown (`.initial_state.rows_unknown`) are left out, and so are the largest `OUTLIERS` of the numbers of both
sets. Nothing is reported where the starts do not converge, where errors of the parameters weigh more than noise (too much for a
linear model), nor for recordings that are followed by a filter, which fits no starts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtri

from softgym_envs.core.errors import DataError, ShapeError
from softgym_envs.core.simulator import Array
from softgym_envs.core.trajectory import Trajectory, TrajectorySet

from ..least_squares.cutting import cut
from ..least_squares.levenberg import LevenbergOptions, levenberg_marquardt, start_state
from ..least_squares.segments import Segments
from ..least_squares.system import ShootingSystem
from .initial_state import FEWEST_ROWS, OnlyStarts, rows_unknown, without_first
from .residuals import WeightedResiduals, weighted_residuals

OUTLIERS = 0.02  # Share of numbers that may be outliers of a camera.
LEAST_RATIO = 1.25  # Ratio of standard deviations below which nothing is reported: a lamp or a lens may differ by as much.
RARE = 1e-3  # False-alarm rate for fits of right models; small, as noise is hardly ever quite the same twice.
BEGIN = 0.3  # [s] First part of a segment that gives the second guess of its start.

_OPTIONS = LevenbergOptions(cost_tolerance=1e-3)


class HoldOutTest(NamedTuple):
    """Test of held-out recordings whose residuals are too large."""

    column: int  # Column whose residuals grow most against the fitted recordings.
    ratio: float  # Ratio of standard deviations over all columns.
    share: float  # Ratio of variances over the largest that chance allows (> 1).


def hold_out_test(system: ShootingSystem, theta: Array, weighted: WeightedResiduals, covariance: Array) -> HoldOutTest | None:
    """Compare residuals; None: no larger than by chance and errors of parameters, or nothing is held out.

    Args:
        system: Segments and weights of the fit.
        theta: (p,) final parameters.
        weighted: Residuals of the fit.
        covariance: (p, p) of the parameters.
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
    except (DataError, ShapeError):  # no prediction from there
        return None
    return found


def _compared(
    other: ShootingSystem, theta: Array, starts: Array, system: ShootingSystem, weighted: WeightedResiduals, covariance: Array
) -> HoldOutTest | None:
    """`elsewhere` of segments with starts (S, nx)."""
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
    ratio, limit = left / there.dof / noise, float(fdtri(there.dof, weighted.dof, 1.0 - RARE))
    if ratio <= max(LEAST_RATIO**2, limit):
        return None
    shares = _by_column(ours * there.in_time**2) / np.maximum(_by_column(theirs * weighted.in_time**2), 1e-300)
    return HoldOutTest(int(np.argmax(shares)), float(np.sqrt(ratio)), ratio / limit)


def _short(other: ShootingSystem, theta: Array) -> Array:
    """Starts (S, nx) fitted to the first rows of segments, with fixed parameters."""
    cuts = other.segments
    rows = max(round(BEGIN / cuts.problem.split.test[0].period), FEWEST_ROWS)
    if rows >= cuts.horizon or cuts.begins.any():  # segments that follow each other are short themselves
        return cuts.starts
    found = _minima(replace(other, segments=cuts.cut(0, rows)), theta, cuts.starts)
    return found[0] if found else cuts.starts


def _minima(other: ShootingSystem, theta: Array, starts: Array) -> list[Array]:
    """Starts (S, nx) to which a search from given ones converges, with fixed parameters; empty where it does not converge."""
    held, nothing = OnlyStarts(other, theta), np.zeros(0)
    begun = start_state(held, nothing, starts, _OPTIONS)
    end = levenberg_marquardt(held, begun, (nothing, nothing), options=_OPTIONS)
    return [end.blocks] if end.outcome is not None and end.outcome.converged else []


def _best(other: ShootingSystem, theta: Array, ends: list[Array]) -> Array:
    """Starts (S, nx): per segment those of several that leave the smallest residuals."""
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
    """Mask (S, L', m): 1 for numbers that count, 0 where nothing was measured and for the largest ones."""
    squares = np.where(present, residual**2, 0.0)
    return np.where(present & (squares <= np.quantile(squares[present], 1.0 - OUTLIERS)), 1.0, 0.0)


def _by_column(squares: Array) -> Array:
    return np.asarray(squares.sum(axis=(0, 1)))
