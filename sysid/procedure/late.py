r"""Initial latency of a fit: the whole number of rows at which single steps from recorded states fit best.

Commands that change in every row differ from the same commands a few rows later: from no latency, the cost is flat, and its
gradient does not point to the minimum. One step from a recorded state does not need right parameters: where commands have an
effect in the rows, the squared errors

.. math:: \sum_k |f(y_k, u_{k-d}) - y_{k+1}|^2 / \sigma^2

have their minimum at the true d for any size of that effect but zero. All allowed d are tried, on the first second.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from softgym_envs.core.trajectory import TrajectorySet

from ..diagnostics.residuals import estimated_noise
from ..least_squares.cutting import cut
from ..least_squares.system import ShootingSystem, channel_scale
from ..problem.problem import FitProblem

SECONDS = 1.0  # First part of every recording that is used [s].


def searched(problem: FitProblem) -> FitProblem:
    """The problem with the initial latency of its fit; unchanged where states are measured in part, or latency is fixed."""
    if "latency" not in problem.free or not problem.full_state:
        return problem
    recordings = TrajectorySet(tuple(t.window(t.times[0], t.times[0] + SECONDS) for t in problem.split.train))
    segments = cut(problem, recordings, 1, free=False, exact=False)
    theta, place = problem.encode(problem.parameter_values), problem.free.index("latency")
    spec = problem.specs[place]
    low, high = (end / recordings[0].period for end in spec.bounds)
    tried = recordings[0].period * np.arange(np.ceil(low), np.floor(high) + 1)
    thetas = np.repeat(theta[None], len(tried), axis=0)
    thetas[:, place] = spec.encode(tried)
    system = ShootingSystem(segments, estimated_noise(segments, theta, segments.starts, channel_scale(segments)))
    best = tried[np.argmin(system.costs(thetas, segments.starts))]
    return problem.replace(view=replace(problem.view, latency=float(best)))


__all__ = ["searched"]
