"""Base of simulators around another simulator: equal to that simulator in all but `step` and `linearize`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.base import repeat_steps
from softgym_envs.core.parameters import Option, Parameters
from softgym_envs.core.simulator import Array, IntArray, Linearization, Simulator


@dataclass(frozen=True, eq=False)
class Wrapper(ABC):
    """A `softgym_envs.core.simulator.Simulator` around another one, with its state, controls and parameters.

    Abstract are `step` and `linearize`.
    """

    simulator: Simulator
    """Inner simulator."""

    extra: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Names and units of numbers that follow the inner one's in the state; they start at 0 and are a vector space."""

    @property
    def default_parameters(self) -> Parameters:
        """Parameters before identification."""
        return self.simulator.default_parameters

    @property
    def nx(self) -> int:
        """Length of a state."""
        return self.simulator.nx + len(self.extra)

    @property
    def n(self) -> int:
        """Dimension of the tangent space."""
        return self.simulator.n + len(self.extra)

    @property
    def nu(self) -> int:
        """Number of controls."""
        return self.simulator.nu

    @property
    def stretch(self) -> int:
        """Physics steps of the inner simulator per step here."""
        return 1

    @property
    def dt(self) -> float:
        """Physics step [s]."""
        return self.simulator.dt * self.stretch

    @property
    def control_bounds(self) -> tuple[Array, Array]:
        """Lowest and highest control, each (nu,)."""
        return self.simulator.control_bounds

    @property
    def state_names(self) -> tuple[str, ...]:
        """One name per entry of the state."""
        return (*self.simulator.state_names, *(name for name, _ in self.extra))

    @property
    def state_units(self) -> tuple[str, ...]:
        """One SI unit per entry of the state."""
        return (*self.simulator.state_units, *(unit for _, unit in self.extra))

    @property
    def control_names(self) -> tuple[str, ...]:
        """One name per control."""
        return self.simulator.control_names

    @property
    def control_units(self) -> tuple[str, ...]:
        """One SI unit per control."""
        return self.simulator.control_units

    @property
    def options(self) -> Mapping[str, Option]:
        """Options of the inner simulator."""
        return self.simulator.options

    def initial_state(self, batch: int = 1) -> Array:
        """The rest state, (B, nx)."""
        state = self.simulator.initial_state(batch)
        return np.concatenate([state, np.zeros((batch, len(self.extra)))], axis=1) if self.extra else state

    @abstractmethod
    def step(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """See `Simulator.step`."""

    def rollout(
        self, state: Array, controls: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """See `Simulator.rollout`."""
        given = self.default_parameters if parameters is None else parameters

        def advance(rows: NDArray[np.intp], x: Array, u: Array) -> tuple[Array, IntArray]:
            some = given if given.batch is None or len(rows) == len(state) else _rows(given, rows)
            return self.step(x, u, some, substeps=substeps)

        return repeat_steps(advance, state, controls)

    def retract(self, state: Array, dx: Array) -> Array:
        """See `Simulator.retract`."""
        if not self.extra:
            return self.simulator.retract(state, dx)
        nx, n = self.simulator.nx, self.simulator.n
        return np.concatenate([self.simulator.retract(state[..., :nx], dx[..., :n]), state[..., nx:] + dx[..., n:]], axis=-1)

    def difference(self, a: Array, b: Array) -> Array:
        """See `Simulator.difference`."""
        if not self.extra:
            return self.simulator.difference(a, b)
        nx = self.simulator.nx
        return np.concatenate([self.simulator.difference(a[..., :nx], b[..., :nx]), a[..., nx:] - b[..., nx:]], axis=-1)

    @abstractmethod
    def linearize(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Linearization:
        """See `Simulator.linearize`."""


def _rows(parameters: Parameters, rows: NDArray[np.intp]) -> Parameters:
    """Parameters of each row, for some rows."""
    return type(parameters).from_vector(parameters.to_vector()[rows])
