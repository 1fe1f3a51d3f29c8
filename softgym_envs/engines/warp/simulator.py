"""Simulators on Warp kernels: those that run forward only, and those that run backward too; the torch bridge."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.base import RolledSimulator
from ...core.parameters import Parameters
from ...core.simulator import Array, Gradient, Linearization, check_number
from .engine import WarpEngine, check_device

if TYPE_CHECKING:
    import torch


def torch_rollout(engine: WarpEngine, state: Any, controls: Any, parameter_values: Any, substeps: int) -> Any:
    """`WarpEngine.rollout` for torch tensors (float64, CPU), with gradients for all three arguments.

    Args:
        engine: The system's engine.
        state: (B, nx) tensor.
        controls: (B, T, nu) tensor.
        parameter_values: (B, P) tensor.
        substeps: Physics steps per control step.

    Returns:
        states (B, T+1, nx). Rows that fail keep their last good state and have gradient NaN.
    """
    import torch

    class Rollout(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, u: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, u, p)
            states, _ = engine.rollout(_numpy(x), _numpy(u), _numpy(p), substeps)
            return torch.from_numpy(states)

        @staticmethod
        def backward(ctx: Any, cotangent: torch.Tensor) -> Any:
            x, u, p = (_numpy(saved) for saved in ctx.saved_tensors)
            pulled = engine.vjp(x, u, p, substeps, _numpy(cotangent))
            return tuple(torch.from_numpy(g) for g in (pulled.state, pulled.controls, pulled.parameter_values))

    return Rollout.apply(state, controls, parameter_values)  # type: ignore[no-untyped-call]


def _numpy(tensor: Any) -> Array:
    return np.ascontiguousarray(tensor.detach().numpy(), dtype=np.float64)


class _OnDevice(RolledSimulator):
    """Base class of all simulators with Warp kernels."""

    device: str

    @property
    @abstractmethod
    def engine(self) -> WarpEngine:
        """The Warp side of this simulator."""

    def check_options(self) -> None:
        """Raise `OptionError` if `dt` is not positive or the device is unknown."""
        check_number("dt", self.dt, positive=True, unit="s")
        check_device(self.device)


class WarpSimulator(_OnDevice):
    """A simulator with kernels that run forward only; derivatives are finite differences."""

    def _linearize(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> Linearization:
        return self._differences(state, control, parameter_values, substeps)


class AdjointSimulator(_OnDevice):
    """A simulator with kernels that run backward too; see `core.simulator.Differentiable`."""

    exact = True

    def vjp(
        self, state: Array, controls: Array, cotangent: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Gradient:
        """See `Differentiable.vjp`."""
        found = self._pull(state, controls, cotangent, parameters, substeps)
        return found._replace(parameter_values=found.parameter_values[:, : found.parameter_values.shape[1] - len(self.weights)])

    def torch_rollout(self, state: Any, controls: Any, parameter_values: Any, *, substeps: int = 1) -> Any:
        """`rollout` for torch tensors with autograd; parameters is a (B, P) tensor in the order of `to_vector`."""
        if self.weights:
            import torch

            weights = torch.tensor(self.weights, dtype=parameter_values.dtype).expand(len(parameter_values), -1)
            parameter_values = torch.cat([parameter_values, weights], dim=1)
        return torch_rollout(self.engine, state, controls, parameter_values, substeps)

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
