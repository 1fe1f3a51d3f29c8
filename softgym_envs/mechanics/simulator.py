"""A tree of rigid bodies as a `core.simulator.Simulator`, with states (q, v) and exact derivatives.

v is the speed of the step that led to q; see `stepping`. Derivatives are exact: of a step by the implicit function theorem, of
a whole motion by the discrete adjoint. Systems define the tree.
Legend: B batch, T control steps, K substeps, n coordinates, nu controls, P parameters.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..core.parameters import Parameters
from ..core.simulator import Array, Gradient, Linearization
from ..engines.numba.engine import NumbaEngine, NumbaSimulator
from ..engines.numba.lanes import LANES
from .mechanism import Mechanism
from .stepping import derivative, forward, momenta


@dataclass(frozen=True, eq=False)
class TreeSimulator(NumbaSimulator):
    """See the module docstring.

    A subclass defines `mechanism`, and `_columns` and `_by_constants` if its parameters are not the tree's.
    """

    @property
    @abstractmethod
    def mechanism(self) -> Mechanism:
        """The tree in (q, p)."""

    @cached_property
    def engine(self) -> NumbaEngine:
        """The numba side of this simulator."""
        return NumbaEngine(forward, derivative, self.mechanism.structure, self.nx, self.nu, LANES)

    def tree_constants(self, parameters: Parameters | None = None, batch: int = 1) -> Array:
        """Parameters of the tree, (B, P)."""
        return self._columns(self.parameter_values(parameters, batch))

    def momentum(self, state: Array, parameters: Parameters | None = None) -> Array:
        """The mechanism's states (q, p) of states (q, v), (B, 2 n)."""
        parameter_values = self.tree_constants(parameters, len(state))
        return np.hstack([state[:, : self.mechanism.n], self._momenta(state, parameter_values)[0]])

    def velocities(self, path: Array) -> Array:
        """States (q, v) of the mechanism's (q, p) of physics step after physics step, (B, T+1, 2 n) -> (B, T, 2 n)."""
        q = path[..., : self.mechanism.n]
        return np.concatenate([q[:, 1:], np.diff(q, axis=1) / self.dt], axis=-1)

    def vjp(
        self, state: Array, controls: Array, cotangent: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Gradient:
        """See `Differentiable.vjp`; by the discrete adjoint, at a cost that does not grow with P."""
        state, controls, parameter_values, cotangent = self._checked_cotangent(state, controls, cotangent, parameters, substeps)
        n, K = self.mechanism.n, int(substeps)
        columns = self._columns(parameter_values)
        states, status = self.engine.rollout(state, controls, columns, K)
        p, by_state, by_constant, good = self._momenta(state, columns)
        start = np.where(good[:, None], np.hstack([state[:, :n], p]), 0.0)
        motion = self.mechanism.simulate(start, np.repeat(controls, K, axis=1), columns)
        slopes = np.zeros_like(motion.path)
        slopes[:, ::K, :n] = cotangent[:, :, :n]
        if controls.shape[1]:
            late = cotangent[:, 1:, n:] / self.dt
            slopes[:, K::K, :n] += late
            slopes[:, K - 1 :: K, :n][:, : late.shape[1]] -= late
        found = self.mechanism.gradient(motion, slopes)
        dq, dp = found.state[:, :n], found.state[:, n:]
        dx = cotangent[:, 0] * np.repeat([0.0, 1.0], n) + np.einsum("bnx,bn->bx", by_state, dp)
        dx[:, :n] += dq
        du = found.controls.reshape(len(state), -1, K, self.nu).sum(axis=2)
        dc = self._by_constants(found.parameter_values + np.einsum("bnp,bn->bp", by_constant, dp), parameter_values)
        for gradient in (dx, du, dc):
            gradient[status != 0] = np.nan
        parted = (status == 0) & (motion.status != 0)  # steps in parts, which a motion of (q, p) does not have; see `stepping`
        if parted.any():
            given = self.parameters_class.from_vector(parameter_values[parted])
            some = super().vjp(state[parted], controls[parted], cotangent[parted], given, substeps=K)
            dx[parted], du[parted], dc[parted] = some.state, some.controls, some.parameter_values
        return Gradient(states, status, dx, du, dc)

    def _momenta(self, state: Array, columns: Array) -> tuple[Array, Array, Array, Any]:
        """p (B, n), its derivatives by (q, v) and by the tree's parameters, and whether they are regular."""
        batch, n = len(state), self.mechanism.n
        p, by_state = np.empty((batch, n)), np.zeros((batch, n, 2 * n))
        by_constant, good = np.zeros((batch, n, columns.shape[1])), np.empty(batch, dtype=np.bool_)
        momenta(self.mechanism.structure, state, columns, p, by_state, by_constant, good)
        return p, by_state, by_constant, good

    def _linearize(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> Linearization:
        A, B, C = super()._linearize(state, control, parameter_values, substeps)
        return Linearization(A, B, self._by_constants(C, parameter_values))

    def _by_constants(self, slopes: Array, parameter_values: Array) -> Array:
        """Slopes (B, ..., P') by the simulator's parameters (B, P') from those by the tree's (B, ..., P)."""
        del parameter_values
        return slopes
