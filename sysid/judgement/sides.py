r"""Constants that data bound on one side only: a block that sticks says that friction is at least so much, not how much.

At such a place the curvature of the cost at the minimum says nothing: it belongs to the mode (sliding) that the fit happened to
end in, and an interval from it is wrong. The profile likelihood does not ask for curvature: a value of one constant is excluded
if with it, all others and the starts fitted anew, twice the cost rises by more than the 95 % quantile of chi square of one
degree of freedom,

.. math:: 2\,(C_j(v) - C^*) > 3.84\, s^2

A side is *open* if not even its bound is excluded. Legend: S segments, p constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..least_squares.levenberg import LevenbergOptions, levenberg_marquardt, start_state
from ..least_squares.system import ShootingSystem

Array = NDArray[np.float64]

QUANTILE = 3.84
"""95 %, chi square of one degree of freedom."""
NEAR = 30.0
"""With all others held, a bound that costs more than so many times the quantile is taken as excluded."""
HALVINGS = 8
"""Of the way from the estimate to the closed bound."""
_OPTIONS = LevenbergOptions(max_iterations=15, cost_tolerance=1e-6)


class OneSided(NamedTuple):
    """What the data say of a constant that they bound on one side."""

    open: str
    """"upper" or "lower": the side that they leave open."""
    limit: float
    """[fit coordinate] of the other side, 95 %."""


@dataclass(frozen=True, eq=False)
class _Profile:
    """Twice the smallest cost with one constant held."""

    system: ShootingSystem
    theta: Array
    starts: Array
    place: int

    def held(self, value: float) -> Array:
        """Constants (p,) with this one moved."""
        theta = self.theta.copy()
        theta[self.place] = value
        return theta

    def __call__(self, value: float) -> float:
        """Refitted; infinite where the simulation diverges."""
        theta = self.held(value)
        if not np.isfinite(self.system.cost(theta, self.starts)):
            return float("inf")
        lower, upper = (bound.copy() for bound in self.system.segments.problem.theta_bounds)
        lower[self.place] = upper[self.place] = value
        state = start_state(self.system, theta, self.starts, _OPTIONS)
        return 2.0 * levenberg_marquardt(self.system, state, (lower, upper), options=_OPTIONS).cost


def one_sided(
    system: ShootingSystem, theta: Array, starts: Array, *, variance: float, doubted: tuple[tuple[bool, bool], ...]
) -> tuple[OneSided | None, ...]:
    """Per constant, the side that is open, if just one is.

    Args:
        system: Segments and weights.
        theta: (p,) as fitted.
        starts: (S, nx) as fitted.
        variance: s^2.
        doubted: Per constant, whether its lower and its upper bound are asked for: beyond the interval, so far.
    """
    lower, upper = system.segments.problem.theta_bounds
    limit, own = QUANTILE * variance, 2.0 * system.cost(theta, starts)
    found: list[OneSided | None] = []
    for place, (low, high) in enumerate(doubted):
        profile = _Profile(system, theta, starts, place)
        ends = np.stack([profile.held(lower[place]), profile.held(upper[place])])
        near = 2.0 * system.costs(ends, starts) - own <= NEAR * limit
        open_low, open_high = (
            bool(asked and close) and profile(bound) - own <= limit
            for asked, close, bound in ((low, near[0], lower[place]), (high, near[1], upper[place]))
        )
        if open_low == open_high:
            found.append(None)
            continue
        closed = float(upper[place] if open_low else lower[place])
        if profile(closed) - own <= limit:
            found.append(None)  # nothing is known of it: what is hidden is said elsewhere
            continue
        found.append(OneSided("lower" if open_low else "upper", _edge(profile, float(theta[place]), closed, own + limit)))
    return tuple(found)


def _edge(profile: _Profile, inside: float, outside: float, highest: float) -> float:
    """Where the profile passes `highest` between a value that is compatible and one that is not: the outer of both ends."""
    if profile(inside) > highest:
        return inside
    for _ in range(HALVINGS):
        middle = 0.5 * (inside + outside)
        if profile(middle) <= highest:
            inside = middle
        else:
            outside = middle
    return outside


__all__ = ["OneSided", "one_sided"]
