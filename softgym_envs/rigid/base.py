"""What our engine and the MuJoCo twins of this room have in common: states are flat, tangent vectors are differences."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from functools import cached_property
from typing import Any

import numpy as np

from ..core.errors import ParameterError
from ..core.parameters import Parameters
from ..core.simulator import Array


class FlatSimulator(ABC):
    """Names, sizes and bounds of a `core.simulator.Simulator` that is a dataclass of a model and a timestep."""

    model: Any
    dt: float

    @property
    @abstractmethod
    def parameters_class(self) -> type[Parameters]:
        """Class of the constants."""

    @property
    @abstractmethod
    def state_names(self) -> tuple[str, ...]:
        """One name per entry of the state."""

    @abstractmethod
    def initial_state(self, batch: int = 1) -> Array:
        """Where the robot begins, (B, nx)."""

    def __getstate__(self) -> dict[str, Any]:
        """Fields only: the engine is made again where it is needed."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    @property
    def nx(self) -> int:
        """Length of a state."""
        return len(self.state_names)

    @property
    def n(self) -> int:
        """Dimension of the tangent space."""
        return self.nx

    @property
    def nu(self) -> int:
        """Number of controls."""
        return int(self.model.nu)

    @property
    def control_bounds(self) -> tuple[Array, Array]:
        """Lowest and highest force, each (nu,) [N]."""
        limit = np.full(self.nu, float(self.model.force_limit))
        return -limit, limit

    @property
    def control_names(self) -> tuple[str, ...]:
        """One name per control."""
        return tuple(self.model.control_names)

    @cached_property
    def default_parameters(self) -> Parameters:
        """Constants before identification; of a twin, with MuJoCo's default contact."""
        return self.parameters_class()

    def retract(self, state: Array, dx: Array) -> Array:
        """state + dx: angles are not wrapped."""
        return np.asarray(state + dx)

    def difference(self, a: Array, b: Array) -> Array:
        """a - b."""
        return np.asarray(a - b)

    def constants(self, parameters: Parameters | None) -> Parameters:
        """The constants given, or the default ones.

        Raises:
            ParameterError: They are those of another simulator.
        """
        parameters = parameters or self.default_parameters
        if not isinstance(parameters, self.parameters_class):
            raise ParameterError(
                f"parameters are {type(parameters).__name__}, {type(self).__name__} takes {self.parameters_class.__name__}"
            )
        return parameters
