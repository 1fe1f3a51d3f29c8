"""Commands that act late: the latency whose fit predicts best, by its profile cost.

A robot that follows commands 30 ms late looks like one with slower motors, to a fit that knows no latency: constants of motors
come out wrong by ten times. Here the shooting cost C(d), minimised over the constants, is followed over latencies d: first in
coarse steps for as long as it falls, then by golden section. Weights stay those of the fit without latency.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from ..data.problem import FitProblem
from ..judgement.judge import estimated_noise
from ..least_squares.levenberg import LevenbergOptions, levenberg_marquardt, start_state
from ..least_squares.segments import Segments, ShootingSystem, channel_scale, cut

Array = NDArray[np.float64]

STEP = 0.01
"""[s] Of the coarse search."""
RESOLUTION = 5e-4
"""[s] Where the golden section ends."""
LEAST = 0.9
"""A latency is believed if it lowers the cost below this share of that without."""
BRIEF = LevenbergOptions(max_iterations=12, cost_tolerance=1e-3)


@dataclass(frozen=True)
class Latency:
    """What was found."""

    delay: float
    """[s] 0: none."""
    share: float
    """Cost with it over cost without."""

    def text(self) -> str:
        """One sentence; "" without a latency."""
        if not self.delay:
            return ""
        left = f"squared residuals are {100 * self.share:.2g} % of those without latency"
        return f"commands act {1e3 * self.delay:.3g} ms late: {left}; the constants are those with it"


def find_latency(problem: FitProblem, longest: float, segment_steps: int) -> Latency:
    """The latency, up to `longest` [s]."""
    profile = _Profile(problem, segment_steps)
    none = profile.cost(0.0)
    coarse, costs = [0.0], [none]
    while coarse[-1] + STEP <= longest + 1e-9 and (len(costs) < 3 or costs[-1] < costs[-2] or costs[-2] < costs[-3]):
        coarse.append(coarse[-1] + STEP)
        costs.append(profile.cost(coarse[-1]))
        if len(costs) == 2 and costs[1] > none:
            break  # most robots: one more fit says that there is none
    best = int(np.argmin(costs))
    low, high = max(coarse[best] - STEP, 0.0), min(coarse[best] + STEP, longest)
    found = minimize_scalar(profile.cost, bounds=(low, high), method="bounded", options={"xatol": RESOLUTION})
    delay, cost = min(((float(found.x), float(found.fun)), (coarse[best], costs[best])), key=lambda pair: pair[1])
    share = cost / none if none > 0 else 1.0
    return Latency(delay, share) if share < LEAST and delay > RESOLUTION else Latency(0.0, 1.0)


class _Profile:
    """C(d), from the problem's start and from the best constants so far."""

    def __init__(self, problem: FitProblem, segment_steps: int) -> None:
        self.problem, self.starts = problem, [problem.encode(problem.constants)]
        self._cut = partial(cut, steps=segment_steps, free=problem.estimates_initial, exact=False)
        segments = self.segments(0.0)
        scale = channel_scale(segments)
        theta = self.starts[0]
        known = problem.known_noise
        self.sigma = estimated_noise(segments, theta, segments.starts, scale) if known is None else known
        self.least = np.inf

    def segments(self, delay: float) -> Segments:
        delayed = self.problem.replace(delay=delay)
        return self._cut(delayed, delayed.split.train)

    def cost(self, delay: float) -> float:
        segments = self.segments(delay)
        system = ShootingSystem(segments, self.sigma)
        ends = []
        for theta in self.starts:
            if np.isfinite(system.cost(theta, segments.starts)):
                first = start_state(system, theta, segments.starts, BRIEF)
                ends.append(levenberg_marquardt(system, first, self.problem.theta_bounds, options=BRIEF))
        if not ends:
            return np.inf
        best = min(ends, key=lambda end: end.cost)
        if best.cost < self.least:
            self.least, self.starts = best.cost, [self.starts[0], best.theta]
        return best.cost


__all__ = ["Latency", "find_latency"]
