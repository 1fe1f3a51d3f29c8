"""Random forces on any simulator: a cheap alternative to domain randomisation, with common random numbers for planners.

Before every control step the state is kicked, x <- retract(x, scale * xi_rt), xi standard normal, drawn once for every
realisation r and time t. The realisation is one more constant, and the time is one more entry of the state; so the
simulator stays pure, rows stay independent, and a planner sees the same kicks in every iteration. Realisation 0 is free of
forces. After Valassakis, Ding and Johns, "Crossing the gap", IROS 2020.

Legend: B batch, T horizon, n tangent of the simulator without clock, R realisations.
"""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from softgym_envs.core.errors import OptionError, ShapeError
from softgym_envs.core.parameters import Parameters, param
from softgym_envs.core.simulator import Array, IntArray, Linearization

from ..control.cost import Cost, Expansion
from ..control.plan import Plan
from .wrapper import Wrapper


@dataclass(frozen=True, eq=False)
class ForcedSimulator(Wrapper):
    """See the module docstring; state (nx + 1) and tangent (n + 1) end in the clock, which counts control steps.

    Raises:
        OptionError: There is no realisation or no time.
        ShapeError: `scale` does not fit the tangent space.
    """

    scale: Array
    """(n,) standard deviation of a kick in tangent coordinates; zero where nothing is kicked."""
    realisations: int
    """Number R of realisations, without the one that is free of forces."""
    horizon: int
    """T control steps; later ones repeat the last kick."""
    seed: int = 0

    extra = (("clock", "-"),)

    def __post_init__(self) -> None:
        if self.realisations < 1 or self.horizon < 1:
            raise OptionError(f"realisations {self.realisations} and horizon {self.horizon} must be >= 1")
        if np.shape(self.scale) != (self.simulator.n,):
            raise ShapeError(f"scale has shape {np.shape(self.scale)}, expected ({self.simulator.n},)")

    @cached_property
    def kicks(self) -> Array:
        """Kicks (R + 1, T, n); those of the first realisation are zero."""
        rng = np.random.default_rng(self.seed)
        drawn = rng.standard_normal((self.realisations, self.horizon, self.simulator.n)) * self.scale
        return np.concatenate([np.zeros((1, *drawn.shape[1:])), drawn])

    @cached_property
    def default_parameters(self) -> Parameters:
        """The simulator's parameters and "realisation", 0 by default."""
        return self.rows(self.simulator.default_parameters)

    def rows(self, parameter_values: Parameters, *, ensemble: bool = False) -> Parameters:
        """Parameters of one row with realisation 0, or of R + 1 rows with one realisation each."""
        kind = _with_realisation(type(parameter_values), self.realisations)
        index = np.arange(self.realisations + 1.0) if ensemble else np.zeros(1)
        rows = np.column_stack([parameter_values.to_matrix(len(index)), index])
        return kind.from_vector(rows if ensemble else rows[0])

    def _parts(self, state: Array, parameters: Parameters | None) -> tuple[Array, Array, Parameters]:
        """Kicked state (B, nx), time (B,), parameters without the realisation."""
        given = parameters or self.default_parameters
        rows = given.to_matrix(len(state))
        inner = type(self.simulator.default_parameters).from_vector(rows[:, :-1])
        time = state[:, -1]
        place = np.clip(np.round(time).astype(int), 0, self.horizon - 1)
        kick = self.kicks[np.round(rows[:, -1]).astype(int), place]
        return self.simulator.retract(np.ascontiguousarray(state[:, :-1]), kick), time, inner

    # --- the protocol ----------------------------------------------------------------------------------------------

    def timed(self, state: Array, time: int = 0) -> Array:
        """States (..., nx) with the clock at this control step."""
        return np.concatenate([state, np.full((*state.shape[:-1], 1), float(time))], axis=-1)

    def step(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """See `Simulator.step`; the kick comes first."""
        kicked, time, inner = self._parts(state, parameters)
        after, status = self.simulator.step(kicked, control, inner, substeps=substeps)
        moved = np.column_stack([after, time + 1.0])
        return np.where((status != 0)[:, None], state, moved), status

    def linearize(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Linearization:
        """The simulator's derivatives at the kicked state: exact for kicks of velocities, which only add."""
        kicked, _, inner = self._parts(state, parameters)
        A, B, C = self.simulator.linearize(kicked, control, inner, substeps=substeps)
        rows, n, nu = B.shape
        wide = np.zeros((rows, n + 1, n + 1))
        wide[:, :n, :n], wide[:, n, n] = A, 1.0
        zeros = np.zeros((rows, 1, nu))
        parameter_values = np.pad(C, ((0, 0), (0, 1), (0, 1)))
        return Linearization(wide, np.concatenate([B, zeros], axis=1), parameter_values)

    # --- costs and plans -------------------------------------------------------------------------------------------

    def without_clock(self, plan: Plan) -> Plan:
        """A plan made here, converted to one for the simulator itself."""
        return replace(plan, simulator=self.simulator, states=plan.states[:, :-1].copy(), gains=plan.gains[..., :-1].copy())


@dataclass(frozen=True, eq=False)
class ClockCost:
    """A cost of the simulator as a cost of `ForcedSimulator`: the clock is free."""

    cost: Cost

    def value(self, states: Array, controls: Array) -> Array:
        """See `Cost.value`."""
        return self.cost.value(states[..., :-1], controls)

    def expand(self, states: Array, controls: Array) -> Expansion:
        """See `Cost.expand`."""
        inner = self.cost.expand(np.ascontiguousarray(states[..., :-1]), controls)

        def pad(array: Array, axes: int) -> Array:
            return np.pad(array, [(0, 0)] * (array.ndim - axes) + [(0, 1)] * axes)

        return inner._replace(x=pad(inner.x, 1), xx=pad(inner.xx, 2), ux=pad(inner.ux, 1))


def _with_realisation(kind: type[Parameters], count: int) -> type[Parameters]:
    """Class of parameters with one more, "realisation"."""
    extra: Any = ("realisation", float, param(0.0, unit="-", bounds=(0.0, float(count)), source="which random forces act"))
    return make_dataclass(f"Forced{kind.__name__}", [extra], bases=(kind,), frozen=True)
