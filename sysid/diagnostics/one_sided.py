r"""Parameters that data bound on one side only: a block that sticks shows a lower bound of friction, not its value.

There the curvature of the cost at the minimum means nothing: it belongs to the mode (sliding) in which the fit happened to
end, and an interval from it is wrong. The profile likelihood needs no curvature. A value of one parameter is excluded
if, with all other parameters and the starts fitted again, twice the cost rises by more than the 95 % quantile of chi square of
one degree of freedom,

.. math:: 2\,(C_j(v) - C^*) > 3.84\, s^2

Where starts, too, lose their effect at that value (a block that sticks does not use its initial velocity), the fit had
that many more unknowns to follow noise with. The quantile then has one more degree of freedom for each of them, and is that of
99 %: with a velocity in the plane and a rate of turning, 13.3. A side is *open* if not even its bound is excluded; where both
are open, all values explain the data. Every refit costs as much as a fit: where their time is over (`problem.deadline`), the
last excluded value is the limit. Legend: S segments, p parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv

from softgym_envs.core.simulator import Array

from ..least_squares.levenberg import LevenbergOptions, LevenbergState, levenberg_marquardt, start_state
from ..least_squares.system import ShootingSystem
from ..problem.deadline import OutOfTime, examination, is_over
from .residuals import rank_of_starts

LEVEL, STILL = 0.95, 0.99
"""Quantiles of chi square; the second where starts lose their effect (the interval would be that of no motion)."""
NEAR, NEARER = 30.0, 300.0
"""Multiples of the quantile beyond which a bound is excluded without a refit. The second holds where starts lose their effect,
as a cost with fixed starts says little there."""
BISECTIONS = 8  # Bisections between the estimate and the closed bound.
_OPTIONS = LevenbergOptions(max_iterations=15, cost_tolerance=1e-6)


class OneSided(NamedTuple):
    """Parameter that the data bound on one side, or on none."""

    open: str  # Side that the data leave open, "upper" or "lower"; "both": any value explains them.
    limit: float  # [fit coordinate] Bound on the other side, 95 %; NaN where both are open, or no time was left.


@dataclass(frozen=True, eq=False)
class _Profile:
    """Smallest cost with one parameter fixed, compared with the fit's."""

    system: ShootingSystem
    theta: Array
    starts: Array
    place: int
    own: float  # Cost of the fit.
    variance: float  # s^2.

    def held(self, value: float) -> Array:
        """Parameters (p,) with this one set to a value."""
        theta = self.theta.copy()
        theta[self.place] = value
        return theta

    def end(self, value: float) -> LevenbergState | None:
        """Refit with this value; None where the simulation diverges."""
        theta = self.held(value)
        if not np.isfinite(self.system.cost(theta, self.starts)):
            return None
        lower, upper = (bound.copy() for bound in self.system.segments.problem.theta_bounds)
        lower[self.place] = upper[self.place] = value
        state = start_state(self.system, theta, self.starts, _OPTIONS)
        return levenberg_marquardt(self.system, state, (lower, upper), options=_OPTIONS)

    def rise(self, value: float) -> float:
        """Twice the cost above the fit's, over what is allowed: a value is excluded above 1."""
        end = self.end(value)
        if end is None:
            return float("inf")
        rise = 2.0 * (end.cost - self.own) / self.variance
        if not self.quantile() < rise <= self.quantile(self.system.segments.unknowns):
            return rise / self.quantile()
        lost = self.unknowns() - rank_of_starts(self.system, end.theta, end.blocks)
        return rise / self.quantile(max(lost, 0))

    def unknowns(self) -> int:
        """Number of unknowns of the starts that have an effect at the fit, or at a bound."""
        bounds = [self.held(float(bound[self.place])) for bound in self.system.segments.problem.theta_bounds]
        possible = [theta for theta in bounds if np.isfinite(self.system.cost(theta, self.starts))]
        return max(rank_of_starts(self.system, theta, self.starts) for theta in (self.theta, *possible))

    def excludes(self, value: float) -> bool:
        """Whether the data exclude a value."""
        return self.rise(value) > 1.0

    def near(self, value: float) -> bool:
        """Whether a refit with this value may be as good as the fit, judged by its cost with all others fixed."""
        theta = self.held(value)
        rise = 2.0 * (self.system.cost(theta, self.starts) - self.own) / (self.quantile() * self.variance)
        if NEAR < rise <= NEARER and self.system.segments.free:
            return rank_of_starts(self.system, theta, self.starts) < self.unknowns()
        return rise <= NEAR

    @staticmethod
    def quantile(lost: int = 0) -> float:
        """Quantile of chi square where `lost` unknowns of the starts have no effect."""
        return 2.0 * float(gammaincinv((1 + lost) / 2, STILL if lost else LEVEL))  # quantile of chi square


def one_sided(
    system: ShootingSystem, theta: Array, starts: Array, *, variance: float, doubted: tuple[tuple[bool, bool], ...]
) -> tuple[tuple[OneSided | None, ...], tuple[int, ...]]:
    """Per parameter, its open side or sides, None where the data bound both sides; and those for which time ran out.

    Args:
        system: Segments and weights.
        theta: (p,) as fitted.
        starts: (S, nx) as fitted.
        variance: s^2.
        doubted: Per parameter, whether its lower and its upper bound are tested: those outside the interval so far.
    """
    lower, upper = system.segments.problem.theta_bounds
    own = system.cost(theta, starts)
    found: list[OneSided | None] = [None] * len(theta)
    untested: list[int] = []
    with examination():
        for place, asked in enumerate(doubted):
            profile = _Profile(system, theta, starts, place, own, variance)
            bounds = (float(lower[place]), float(upper[place]))
            opened: list[bool] = []
            try:
                for doubt, bound in zip(asked, bounds, strict=True):
                    opened.append(bool(doubt) and profile.near(bound) and not profile.excludes(bound))
            except OutOfTime:
                opened += [False] * (2 - len(opened))
            found[place] = _side(profile, opened, bounds) if any(opened) else None
            if any(asked) and is_over():
                untested.append(place)
    return tuple(found), tuple(untested)


def _side(profile: _Profile, opened: list[bool], bounds: tuple[float, float]) -> OneSided:
    """One-sided result where at least one bound is not excluded."""
    closed = bounds[1] if opened[0] else bounds[0]
    try:
        if all(opened) or not profile.excludes(closed):
            return OneSided("both", float("nan"))
    except OutOfTime:
        pass  # `_edge` then finds no time, too
    return OneSided("lower" if opened[0] else "upper", _edge(profile, float(profile.theta[profile.place]), closed))


def _edge(profile: _Profile, inside: float, outside: float) -> float:
    """Edge of the excluded values between a compatible and an excluded one, by bisection: the last interval's outer end.

    NaN where no time was left for any.
    """
    bound = outside
    try:
        if profile.excludes(inside):
            return inside
        for _ in range(BISECTIONS):
            middle = 0.5 * (inside + outside)
            if profile.excludes(middle):
                outside = middle
            else:
                inside = middle
    except OutOfTime:
        return outside if outside != bound else float("nan")
    return outside
