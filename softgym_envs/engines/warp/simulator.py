"""Simulators on Warp kernels: those that run forward only, and those that run backward too."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from ...core.base import RolledSimulator
from ...core.parameters import Parameters
from ...core.simulator import Array, Gradient, IntArray, Linearization, check_number
from .engine import WarpEngine, check_device


class WarpSimulator(RolledSimulator):
    """A simulator with Warp kernels; derivatives are finite differences."""

    device: str

    @property
    @abstractmethod
    def engine(self) -> WarpEngine:
        """The Warp side of this simulator."""

    def _step(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        return self.engine.advance(state, control, self._columns(parameter_values), substeps)

    def check_options(self) -> None:
        """Raise `OptionError` if `dt` is not positive or the device is unknown."""
        check_number("dt", self.dt, positive=True, unit="s")
        check_device(self.device)


class AdjointSimulator(WarpSimulator):
    """A simulator with kernels that run backward too; see `core.simulator.Differentiable`."""

    exact = True

    def vjp(
        self, state: Array, controls: Array, cotangent: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Gradient:
        """See `Differentiable.vjp`."""
        found = self._pull(state, controls, cotangent, parameters, substeps)
        return found._replace(parameter_values=found.parameter_values[:, : found.parameter_values.shape[1] - len(self.weights)])

    def _pull(self, state: Array, controls: Array, cotangent: Array, parameters: Parameters | None, substeps: int) -> Gradient:
        """Pull-back to parameters and weights."""
        state, controls, parameter_values, cotangent = self._checked_cotangent(state, controls, cotangent, parameters, substeps)
        return self.engine.vjp(state, controls, self._columns(parameter_values), substeps, cotangent)

    def _linearize(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> Linearization:
        """One pull-back per tangent direction, all in one batch."""
        controls = control[:, None]
        end = self._rollout(state, controls, parameter_values, substeps)[0][:, 1]
        out_of, into = self.layout.difference_jacobian(end), self.layout.retract_jacobian(state)
        chunk = self.engine.rows_recorded_at_once(substeps, self.n)
        parts = []
        for first in range(0, len(state), chunk):
            rows = slice(first, first + chunk)
            parts.append(self._pulled(state[rows], controls[rows], parameter_values[rows], substeps, out_of[rows], into[rows]))
        return Linearization(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def _pulled(
        self, state: Array, controls: Array, parameter_values: Array, substeps: int, out_of: Array, into: Array
    ) -> Linearization:
        rows, n = len(state), self.n
        cotangent = np.zeros((rows * n, 2, self.nx))
        cotangent[:, 1] = out_of.reshape(rows * n, self.nx)
        spread = [np.repeat(a, n, axis=0) for a in (state, controls, self._columns(parameter_values))]
        pulled = self.engine.vjp(spread[0], spread[1], spread[2], substeps, cotangent)
        A = pulled.state.reshape(rows, n, self.nx) @ into
        C = pulled.parameter_values.reshape(rows, n, -1)[:, :, : parameter_values.shape[1]]
        return Linearization(A, pulled.controls.reshape(rows, n, self.nu), C)
