"""A world with another one's derivatives: its runs are its own, its slopes those of an engine of the same robot.

Differences of a slow world with many entries cost hours, and a good engine's slopes point the same way: a planner that keeps
only what lowers the cost of true runs ends near the same plan. Legend: B batch, n tangent, nu control, P parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array, IntArray, Linearization, Simulator

from .wrapper import Wrapper


@dataclass(frozen=True, eq=False)
class BorrowedSlopes(Wrapper):
    """See the module docstring; entries that only the inner world has are behind the engine's, and have no slope."""

    engine: Simulator
    """Engine, whose states are the first entries of the inner world's."""
    parameter_values: Parameters
    """Parameters of the engine, one row."""

    def step(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """See `Simulator.step`."""
        return self.simulator.step(state, control, parameters, substeps=substeps)

    def linearize(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Linearization:
        """See `Simulator.linearize`; slopes by the engine's parameters."""
        seen = np.ascontiguousarray(state[:, : self.engine.nx])
        A, B, C = self.engine.linearize(seen, control, self.parameter_values, substeps=substeps)
        more = (0, self.n - self.engine.n)
        return Linearization(np.pad(A, ((0, 0), more, more)), *(np.pad(part, ((0, 0), more, (0, 0))) for part in (B, C)))
