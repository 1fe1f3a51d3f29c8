"""A fit that grows: brief fits over ever longer segments, each from the parameters and states of the one before.

Where states are measured in part, the start of every segment is unknown, and a guess of it from a few rows is off by more than
the noise. Over a quarter of a second of contacts no minimisation converges from there, not even at the true parameters: where
a contact begins a step of the simulator earlier, predictions jump, and the cost has many minima. Over a few rows it converges,
and its predictions are starts of longer segments, off by about the noise. The first fit is of starts only: over a few rows
the parameters have little effect, and would compensate for starts that are far off.
Legend: S segments, M recordings, T rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from softgym_envs.core.errors import DataError
from softgym_envs.core.simulator import Array

from ..diagnostics.initial_state import OnlyStarts
from ..least_squares.cutting import cut
from ..least_squares.levenberg import LevenbergOptions, levenberg_marquardt, start_state
from ..least_squares.system import HUBER, ShootingSystem, channel_scale
from ..problem.problem import FitProblem
from .outliers import spread

BRIEF = LevenbergOptions(max_iterations=15, cost_tolerance=3e-3)  # Options of every fit but the last.


class Beginning(NamedTuple):
    """Start of a fit."""

    problem: FitProblem  # Problem with initial parameters.
    states: tuple[Array, ...] | None = None  # States of every recording, (T+1, nx); None: from the recordings.


@dataclass(frozen=True)
class ProgressiveFits:
    """Brief fits over growing segments; see the module docstring."""

    lengths: Sequence[int]  # Rows of the segments of each fit in turn.
    exact: bool  # Argument of `cut`, and so are the next two.
    epsilon: float
    one_sided: bool
    robust: bool  # Whether to use Huber's loss instead of squares.
    coarse: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the simulator that are changed during brief fits, whose starts need not be exact."""

    def begin(self, problem: FitProblem) -> Beginning:
        """Run the brief fits and return the start for the last one.

        Raises:
            DataError: The simulation diverges at the start parameters.
        """
        simulator: Any = problem.simulator
        found = Beginning(problem.replace(simulator=replace(simulator, **self.coarse)) if self.coarse else problem)
        for length in self.lengths:
            found = self._longer(found, length)
        return found._replace(problem=found.problem.replace(simulator=simulator))

    def _longer(self, found: Beginning, length: int) -> Beginning:
        """One brief fit from the start `found`."""
        problem = found.problem
        segments = cut(
            problem, problem.split.train, length, free=True, exact=self.exact, epsilon=self.epsilon, one_sided=self.one_sided,
            states=found.states,
        )  # fmt: skip
        theta, starts = problem.encode(problem.initial_parameters), segments.starts
        known = 0.0 if problem.known_noise is None else problem.known_noise
        sigma = np.maximum(known, spread(segments, theta, channel_scale(segments)))
        system = ShootingSystem(segments, sigma, HUBER if self.robust else np.inf)
        if not np.isfinite(system.cost(theta, starts)):
            raise DataError(f"the simulation diverges at the start parameters {problem.initial_parameters}")
        if found.states is None:
            alone, none = OnlyStarts(system, theta), np.zeros(0)
            starts = levenberg_marquardt(alone, start_state(alone, none, starts, BRIEF), (none, none), options=BRIEF).blocks
        else:
            end = levenberg_marquardt(system, start_state(system, theta, starts, BRIEF), problem.theta_bounds, options=BRIEF)
            theta, starts = end.theta, end.blocks
        begun = problem.replace(start=problem.decode(theta), view=problem.view_at(theta))
        return Beginning(begun, segments.whole(theta, starts))
