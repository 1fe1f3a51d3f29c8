r"""What a choice of the model leaves open: the constants that the same robot would be given with none of it.

Constants belong to a discretisation, and to laws that stand for others. A cable's damping of 1000 N s/m in steps of 1 ms is, to
first order in the step, another one in continuous time; dry friction that sets in over a range of speeds is, to first order in
that range, more than Coulomb's. Where noise is small, that is more than what the noise leaves open. With weighted residuals r,
their derivatives J by the constants, and the residuals r' of the same robot with a share s more or less of it (of the step, of
the range of speeds) at the same constants, one Gauss-Newton step

.. math:: \delta = -(J^T J + P)^{-1} J^T (r' - r)

is by how much the constants move (P: what was known before; unknown starts are projected out). Where that is far, the other
robot is fitted instead. With none of it they move by delta / s, where it acts to first order, and by less where it is of a
higher one.

What a model takes to be alike, as the springs of a chain, may differ by factors exp(e_f) of chance, of standard deviation s.
With the derivatives D of the residuals by e the constants move by M e, M = -(J^T J + P)^{-1} J^T D, so constant i by a
standard deviation of s |M_i|.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..least_squares.levenberg import LevenbergOptions, levenberg_marquardt, start_state
from ..least_squares.segments import Segments
from ..least_squares.system import ShootingSystem
from .uncertainty import quantile_95

Array = NDArray[np.float64]

FAR = 0.02
"""[fit coordinate] A step that moves a constant by more is not taken at its word: starts that data hardly tell may turn a small
change of the model into any move; the other model is fitted instead."""
AGAIN = LevenbergOptions(max_iterations=30, cost_tolerance=1e-6)
"""Of that fit."""


class Varied(NamedTuple):
    """The model with another amount of one choice."""

    share: float
    """s, more or less: 0.5 of half of it, and of one and a half."""
    segments: Segments
    """Predicted with that; otherwise those that were fitted."""


class Unlike(NamedTuple):
    """What the model takes to be alike, and may not be."""

    spread: float
    """s: standard deviation of the logarithm of a factor of each."""
    slopes: Array
    """(S, L', m, F) derivatives of the residuals by the logarithms of these factors."""


class LeftOpen(NamedTuple):
    """What one choice leaves open."""

    cause: str
    """E.g. "the simulator's step of 2 ms"."""
    reach: Array
    """(p,) by how much the constants may be off [fit coordinate]."""
    allowed: bool = True
    """Whether intervals reach so much farther; else they are of a robot that is as the model takes it to be."""


def left_open(
    system: ShootingSystem,
    varied: Varied,
    theta: Array,
    starts: Array,
    *,
    project: Callable[[Array], Array],
    jacobian: Array,
    inverse: Array,
) -> Array:
    """By how much the constants may be off (p,) [fit coordinate], delta / s; zero where the other model diverges.

    Args:
        system: Segments and weights.
        varied: The same segments with another amount of it.
        theta: (p,) as fitted.
        starts: (S, nx) as fitted.
        project: Rows (S, L' m, 1) -> without what unknown starts explain.
        jacobian: (N, p) of what was measured, weighted and projected.
        inverse: (p, p), (J'J + P)^-1 where the data see something.
    """
    rows = change(system, varied, theta, starts, project)
    if rows is None:
        return np.zeros(len(theta))
    moved = np.abs(inverse @ (jacobian.T @ rows))
    if system.segments.free and moved.max(initial=0.0) > FAR:
        end = _fitted_again(system, varied, theta)
        moved = np.abs(end - theta) if end is not None else moved
    return np.asarray(moved / varied.share)


def change(
    system: ShootingSystem, varied: Varied, theta: Array, starts: Array, project: Callable[[Array], Array]
) -> Array | None:
    """r' - r (N,), projected, of the other model; None where one of them diverges. Arguments are those of `left_open`."""
    segments = system.segments
    ends = [some.residuals(theta[None], starts) for some in (segments, varied.segments)]
    if not all(good.all() for _, good in ends):
        return None
    rows = np.where(segments.present, (ends[1][0][0] - ends[0][0][0]) / system.sigma, 0.0)
    return np.asarray(project(rows.reshape(len(rows), -1, 1)).reshape(-1)[segments.present.reshape(-1)])


def _fitted_again(system: ShootingSystem, varied: Varied, theta: Array) -> Array | None:
    """Constants (p,) that the other model is given, from those that were fitted; None where that ends at no minimum.

    It begins at starts as they were guessed: fast modes in fitted ones, which data do not show, mean nothing to it.
    """
    other, bounds = replace(system, segments=varied.segments), system.segments.problem.theta_bounds
    begin = varied.segments.starts
    if not np.isfinite(other.cost(theta, begin)):
        return None
    end = levenberg_marquardt(other, start_state(other, theta, begin, AGAIN), bounds, options=AGAIN)
    return end.theta if end.outcome is not None and end.outcome.converged else None


def by_chance(
    system: ShootingSystem,
    unlike: Unlike,
    *,
    project: Callable[[Array], Array],
    jacobian: Array,
    inverse: Array,
) -> Array:
    """By how much the constants may be off (p,) [fit coordinate], 95 %: 1.96 s |M_i|; arguments are those of `left_open`."""
    segments = system.segments
    count = unlike.slopes.shape[-1]
    columns = np.where(segments.present[..., None], unlike.slopes / system.sigma[:, None], 0.0)
    rows = project(columns.reshape(len(columns), -1, count)).reshape(-1, count)[segments.present.reshape(-1)]
    moved = inverse @ (jacobian.T @ rows)
    return np.asarray(quantile_95(True, 1) * unlike.spread * np.linalg.norm(moved, axis=1))


__all__ = ["LeftOpen", "Unlike", "Varied", "by_chance", "change", "left_open"]
