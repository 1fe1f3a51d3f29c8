"""Do the constants hold for recordings that were kept back? Their residuals, beside those of the recordings that were fitted.

A fit that explains one recording says nothing of another robot, or of another load. So the recordings for testing are cut into
segments as those for training were, their unknown starts are fitted with the constants held, and what is left is compared with
what the fit left: a ratio of 1 but for chance, if robot, model and noise are the same. Rows in which nobody
knows what acts (`.starts.rows_unknown`) are left out, and the largest `OUTLIERS` of the numbers of either are no matter.
Nothing is said where starts end at no minimum, nor of recordings that are followed by a filter, which fits no starts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from softgym_envs.core.errors import DataError
from softgym_envs.core.trajectory import TrajectorySet

from ..least_squares.cutting import cut
from ..least_squares.levenberg import LevenbergOptions, levenberg_marquardt, start_state
from ..least_squares.segments import Segments
from ..least_squares.system import ShootingSystem
from .residuals import WeightedResiduals, rank_of_starts
from .starts import OnlyStarts, rows_unknown, without_first
from .whiteness import ALARM

Array = NDArray[np.float64]

OUTLIERS = 0.02
"""Share of numbers that a camera may have wrong."""
WORTH = 1.25
"""Ratio of standard deviations below which nothing is said: constants have errors, too."""

_OPTIONS = LevenbergOptions(cost_tolerance=1e-3)


class Elsewhere(NamedTuple):
    """Residuals of recordings that were kept back."""

    column: int
    """Whose residuals are largest beside those that were fitted."""
    ratio: float
    """Of all columns, of standard deviations."""


def elsewhere(system: ShootingSystem, theta: Array, weighted: WeightedResiduals) -> Elsewhere | None:
    """The ratio, where it is more than chance and errors of constants make it; None: it is not, or nothing is kept back.

    Args:
        system: Segments and weights of the fit.
        theta: (p,) where it ended.
        weighted: Residuals there.
    """
    segments = system.segments
    if not isinstance(segments, Segments):
        return None
    problem, whole = segments.problem, max(t.num_steps for t in segments.problem.split.train) <= segments.horizon
    if not len(problem.split.test):
        return None
    late = problem.replace(view=problem.view_at(theta))
    known = TrajectorySet(tuple(without_first(t, rows_unknown(late, t)) for t in problem.split.test))
    try:
        cuts = cut(
            problem, known, None if whole else segments.horizon, free=segments.free, exact=segments.exact,
            epsilon=segments.epsilon, one_sided=segments.one_sided,
        )  # fmt: skip
        other = replace(system, segments=cuts)
        starts, rank = cuts.starts, 0
        if cuts.free:
            held, nothing = OnlyStarts(other, theta), np.zeros(0)
            begun = start_state(held, nothing, starts, _OPTIONS)
            end = levenberg_marquardt(held, begun, (nothing, nothing), options=_OPTIONS)
            if end.outcome is None or not end.outcome.converged:
                return None
            starts, rank = end.blocks, rank_of_starts(other, theta, end.blocks)
    except DataError:
        return None
    found, good = cuts.residuals(theta[None], starts)
    if not good.all():
        return None
    dof = cuts.measured - rank
    ours, theirs = _left(found[0] / system.sigma, cuts.present), _left(weighted.in_time, segments.present)
    if dof < 1 or weighted.dof < 1:
        return None
    ratio = float(np.sum(ours) / dof / (np.sum(theirs) / weighted.dof))
    if ratio <= max(WORTH**2, float(stats.f.isf(ALARM, dof, weighted.dof))):
        return None
    shares = ours.sum(axis=(0, 1)) / np.maximum(theirs.sum(axis=(0, 1)), 1e-300)
    return Elsewhere(int(np.argmax(shares)), float(np.sqrt(ratio)))


def _left(residual: Array, present: NDArray[np.bool_]) -> Array:
    """Squares (S, L', m), zero where nothing was measured and for the largest ones."""
    squares = np.where(present, residual**2, 0.0)
    return np.where(squares <= np.quantile(squares[present], 1.0 - OUTLIERS), squares, 0.0)


__all__ = ["Elsewhere", "elsewhere"]
