"""What simulators around another simulator share: they are that simulator in all but `step` and `linearize`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import IntArray, Linearization, Simulator

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Wrapper(ABC):
    """A `softgym_envs.core.simulator.Simulator` made from another one: state, controls and constants are the inner one's."""

    simulator: Simulator
    """The inner one."""

    @property
    def nx(self) -> int:
        """Length of a state."""
        return self.simulator.nx

    @property
    def n(self) -> int:
        """Dimension of the tangent space."""
        return self.simulator.n

    @property
    def nu(self) -> int:
        """Number of controls."""
        return self.simulator.nu

    @property
    def dt(self) -> float:
        """Physics step [s]."""
        return self.simulator.dt

    @property
    def control_bounds(self) -> tuple[Array, Array]:
        """Lowest and highest control, each (nu,)."""
        return self.simulator.control_bounds

    @property
    def state_names(self) -> tuple[str, ...]:
        """One name per entry of the state."""
        return self.simulator.state_names

    @property
    def control_names(self) -> tuple[str, ...]:
        """One name per control."""
        return self.simulator.control_names

    @property
    def default_parameters(self) -> Parameters:
        """Constants before identification."""
        return self.simulator.default_parameters

    def initial_state(self, batch: int = 1) -> Array:
        """The rest state, (B, nx)."""
        return self.simulator.initial_state(batch)

    @abstractmethod
    def step(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """See `Simulator.step`."""

    def rollout(
        self, state: Array, controls: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """See `Simulator.rollout`."""
        states, status = [state], np.zeros(len(state), dtype=np.int32)
        for t in range(controls.shape[1]):
            after, failed = self.step(states[-1], controls[:, t], parameters, substeps=substeps)
            states.append(np.where((status != 0)[:, None], states[-1], after))
            status = np.where(status != 0, status, failed).astype(np.int32)
        return np.stack(states, axis=1), status

    def retract(self, state: Array, dx: Array) -> Array:
        """See `Simulator.retract`."""
        return self.simulator.retract(state, dx)

    def difference(self, a: Array, b: Array) -> Array:
        """See `Simulator.difference`."""
        return self.simulator.difference(a, b)

    @abstractmethod
    def linearize(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Linearization:
        """See `Simulator.linearize`."""
