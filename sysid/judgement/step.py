r"""What a simulator's own step leaves open: the constants that the same robot in half the step would be given.

Constants belong to a discretisation. A cable's damping of 1000 N s/m in steps of 1 ms is, to first order in the step, another
one in continuous time, and where noise is small that is more than what the noise leaves open. With weighted residuals r of the
step h, their derivatives J by the constants, and the residuals of half the step at the same constants, one Gauss-Newton step

.. math:: \delta = -(J^T J + P)^{-1} J^T \big( r_{h/2} - r_h \big)

is by how much the constants move (P: what was known before; unknown starts are projected out). In the limit of small steps they
move by twice that where the scheme is of first order, and by less where it is of a higher one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import OptionError
from softgym_envs.core.trajectory import DataSplit, TrajectorySet

from ..data.problem import FitProblem
from ..least_squares.segments import ShootingSystem

Array = NDArray[np.float64]

LIMIT = 2.0
"""From half a step to none, of a scheme of first order."""


def in_finer_steps(problem: FitProblem, simulator: Any) -> FitProblem:
    """The problem with the same robot in finer steps, of which recordings take as many more."""
    factor = round(problem.simulator.dt / simulator.dt)
    parts = (TrajectorySet(tuple(replace(t, substeps=factor * t.substeps) for t in part)) for part in problem.split)
    return problem.replace(simulator=simulator, data=DataSplit(*parts))


def halved(problem: FitProblem) -> FitProblem:
    """The problem in half the simulator's step.

    Raises:
        OptionError: The simulator has no step that can be changed.
    """
    simulator: Any = problem.simulator
    if not is_dataclass(problem.simulator) or not hasattr(simulator, "dt"):
        raise OptionError(f"{type(simulator).__name__} has no field dt: its step cannot be halved")
    return in_finer_steps(problem, replace(simulator, dt=0.5 * simulator.dt))


def left_open(
    system: ShootingSystem, theta: Array, starts: Array, *, project: Callable[[Array], Array], jacobian: Array, inverse: Array
) -> Array:
    """By how much the constants may be off (p,) [fit coordinate], twice delta; zero where half the step diverges.

    Args:
        system: Segments and weights.
        theta: (p,) as fitted.
        starts: (S, nx) as fitted.
        project: Rows (S, L' m, 1) -> without what unknown starts explain.
        jacobian: (N, p) of what was measured, weighted and projected.
        inverse: (p, p), (J'J + P)^-1 where the data see something.

    Raises:
        OptionError: The simulator has no step that can be changed.
    """
    segments = system.segments
    finer = replace(segments, problem=halved(segments.problem), substeps=2 * segments.substeps)
    ends = [some.residuals(theta[None], starts) for some in (segments, finer)]
    if not all(good.all() for _, good in ends):
        return np.zeros(len(theta))
    change = (ends[1][0][0] - ends[0][0][0]) / system.sigma
    present = segments.present.reshape(-1)
    rows = project(np.where(segments.present, change, 0.0).reshape(len(change), -1, 1)).reshape(-1)[present]
    return np.asarray(LIMIT * np.abs(inverse @ (jacobian.T @ rows)))


__all__ = ["halved", "in_finer_steps", "left_open"]
