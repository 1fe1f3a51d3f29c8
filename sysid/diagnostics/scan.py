r"""Effect of a model's own error: each parameter is varied over its range, others fixed; costs are compared.

A structurally wrong model fits its parameters to its error. Their bias is as large as the error can look like their
effect, and no interval from curvature or scatter at the minimum shows it (Brynjarsdottir and O'Hagan 2014). With weighted
residuals r, least squares C(theta) = |r|^2 and its smallest value C*, a value is *compatible* if

.. math:: \sqrt{C(\theta) - C^*} \le q s + M, \qquad M^2 = \sum_c \max\Big(0, \sum_t r_{t,c}\, r_{t+1,c}\Big)

q s is the half width of the interval for white noise. M is the size of the part of the residuals that lasts from row to row,
which is no noise; at worst all of it is in the direction of one parameter (set membership: Milanese and Vicino 1991). If M is
zero within chance, nothing is simulated. The other parameters and the starts stay as fitted: the true range is no smaller
than the one found. Legend: S segments, L' compared rows, m channels, p parameters, K values.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from softgym_envs.core.parameters import ParameterSpec
from softgym_envs.core.simulator import Array

from ..least_squares.system import ShootingSystem

VALUES = 33  # K values per parameter, evenly spaced over its range in fit coordinates.
WHITE_CHANCE = 4.0  # Standard deviations that the persistent part of white noise stays below.
VAGUE_FACTOR, VAGUE_SHARE = 10.0, 0.5
"""A parameter is unknown if its compatible values span an order of magnitude (log scale), or half of what is allowed."""


class Compatible(NamedTuple):
    """Values of one parameter that the model's own error cannot tell apart."""

    low: float  # [fit coordinate]
    high: float  # [fit coordinate]
    better: float | None
    """[fit coordinate] Value that fits significantly better than the fit, which ended in a local minimum; else None."""

    def vague(self, spec: ParameterSpec) -> bool:
        """Whether the range is too wide to name a value; see `VAGUE_FACTOR`."""
        if spec.scale == "log":
            return bool(self.high - self.low > np.log(VAGUE_FACTOR))
        width = float(spec.encode(spec.bounds[1]) - spec.encode(spec.bounds[0]))
        return bool(self.high - self.low > VAGUE_SHARE * width)


def model_error(in_time: Array) -> float:
    """M of the module docstring from weighted residuals (S, L', m); zero if chance explains it.

    Over N products of white noise of variance s^2 the sum has a standard deviation of s^2 sqrt(N).
    """
    rows = in_time if in_time.shape[1] > 1 else np.swapaxes(in_time, 0, 1)  # segments of one step follow each other in time
    products = np.sum(rows[:, :-1] * rows[:, 1:], axis=(0, 1))
    spread = np.sqrt(np.sum(rows[:, :-1] ** 2 * rows[:, 1:] ** 2))
    if products.sum() <= WHITE_CHANCE * spread:
        return 0.0
    return float(np.sqrt(np.maximum(products, 0.0).sum()))


def scan(system: ShootingSystem, theta: Array, starts: Array, *, error: float, noise: float) -> tuple[Compatible, ...]:
    """Compatible values of every parameter.

    Args:
        system: Segments and weights.
        theta: (p,) as fitted.
        starts: (S, nx) as fitted.
        error: M of the module docstring.
        noise: q s of the module docstring.
    """
    lower, upper = system.segments.problem.theta_bounds
    grid = np.linspace(lower, upper, VALUES)
    tried = np.tile(theta, (len(theta), VALUES, 1))
    for j in range(len(theta)):
        tried[j, :, j] = grid[:, j]
    costs = system.costs(np.concatenate([theta[None], tried.reshape(-1, len(theta))]), starts)
    own, found = 2.0 * costs[0], 2.0 * costs[1:].reshape(len(theta), VALUES)
    return tuple(compatible(theta[j], grid[:, j], own, found[j], error, noise) for j in range(len(theta)))


def compatible(value: float, grid: Array, own: float, costs: Array, error: float, noise: float) -> Compatible:
    """Compatible values from costs |r|^2 over a grid of one parameter, and the fit's own; `noise` is q s, `error` is M."""
    best = min(own, float(costs.min()))
    good = np.append(grid[np.sqrt(np.maximum(costs - best, 0.0)) <= noise + error], value)
    better = float(grid[np.argmin(costs)]) if own - best > noise**2 else None
    return Compatible(float(good.min()), float(good.max()), better)
