"""Base of simulators around another simulator: equal to that simulator in all but `step` and `linearize`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.base import repeat_steps
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array, IntArray, Linearization, Simulator


def _inner(name: str) -> Any:
    """A property or method of the inner simulator."""
    return property(lambda self: getattr(self.simulator, name), doc=f"See `Simulator.{name}`.")


@dataclass(frozen=True, eq=False)
class Wrapper(ABC):
    """A `softgym_envs.core.simulator.Simulator` around another one, with its state, controls and parameters.

    Abstract are `step` and `linearize`.
    """

    simulator: Simulator
    """Inner simulator."""

    default_parameters = _inner("default_parameters")
    nx, n, nu = _inner("nx"), _inner("n"), _inner("nu")
    control_bounds, options = _inner("control_bounds"), _inner("options")
    state_names, state_units = _inner("state_names"), _inner("state_units")
    control_names, control_units = _inner("control_names"), _inner("control_units")
    initial_state, retract, difference = _inner("initial_state"), _inner("retract"), _inner("difference")

    @property
    def stretch(self) -> int:
        """Physics steps of the inner simulator per step here."""
        return 1

    @property
    def dt(self) -> float:
        """Physics step [s]."""
        return self.simulator.dt * self.stretch

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

    @abstractmethod
    def linearize(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Linearization:
        """See `Simulator.linearize`."""


def _rows(parameters: Parameters, rows: NDArray[np.intp]) -> Parameters:
    """Parameters of each row, for some rows."""
    return type(parameters).from_vector(parameters.to_vector()[rows])
