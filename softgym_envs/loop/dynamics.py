r"""Arm and loop by the midpoint variational integrator of [Caldwell2014], as a `core.simulator.Simulator`.

The equations are those of `mechanics.integrator` on the tree of `model`, (q, p) being made of (q, v) and back by `stepping`.
Derivatives are exact: of a step by the implicit function theorem, of a whole motion by the discrete adjoint of lemma 1.

*Damping.* The potential at the midpoint does not see a saw-tooth, q^+ = -q. Undamped loops have modes of 440 rad/s, which
steps of 10 ms turn into saw-teeth that grow in some poses (a real eigenvalue beyond -1), or for which there is no next state.
`loop_damping` >= 0.01 N m s/rad or dt <= 5 ms prevents it in slow motions; the simulator warns of less. Under random torques of
10 N m, new every 50 ms, 5 % of walks of 10 s fail with 0.01, 2 % with 0.015, none of 128 with 0.02 (the default) or 5 ms.

Legend: B batch, T control steps, K substeps, n coordinates, nu controls, P constants.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..core.numba_engine import NumbaEngine, NumbaSimulator
from ..core.parameters import Parameters
from ..core.simulator import Array, Gradient, Linearization, check_number
from ..mechanics.mechanism import Mechanism
from .model import CONSTANTS, SIGNS, LoopModel
from .parameters import LoopParameters
from .stepping import derivative, forward, momenta

FRAGILE_DT, FRAGILE_DAMPING = 0.005, 0.01
"""[s], [N m s/rad] Longer steps with less damping may blow up."""


@dataclass(frozen=True, eq=False)
class LoopSimulator(NumbaSimulator):
    """See the module docstring.

    >>> simulator = LoopSimulator()
    >>> hold = np.tile(simulator.model.hold, (1, 20, 1))
    >>> states, status = simulator.rollout(simulator.initial_state(), hold)
    >>> bool(np.abs(states[0, -1] - states[0, 0]).max() < 1e-6), status.tolist()
    (True, [0])

    Raises:
        OptionError: dt is not positive.
    """

    room = "loop"
    parameters_class = LoopParameters

    model: LoopModel = field(default_factory=LoopModel)
    """Structure."""
    dt: float = 0.01
    """Physics step [s]; Baxter's 100 Hz."""

    def __post_init__(self) -> None:
        check_number("dt", self.dt, positive=True, unit="s")

    @cached_property
    def mechanism(self) -> Mechanism:
        """The tree in (q, p), with constants `model.CONSTANTS`; see `tree_constants`."""
        return Mechanism(self.model.tree, self.dt, CONSTANTS)

    @cached_property
    def engine(self) -> NumbaEngine:
        """The numba side of this simulator."""
        return NumbaEngine(forward, derivative, self.mechanism.structure, self.nx, self.nu)

    def constants(self, parameters: Parameters | None, batch: int) -> Array:
        """See `BaseSimulator.constants`; warns of a damping that steps of this length do not bear."""
        found = super().constants(parameters, batch)
        if self.dt > FRAGILE_DT and parameters is not None and found[:, 2].min(initial=1.0) < FRAGILE_DAMPING:
            warnings.warn(
                f"loop_damping is below {FRAGILE_DAMPING:g} N m s/rad with dt {self.dt:g} s: the loop's fastest modes may "
                f"blow up as saw-teeth; use dt <= {FRAGILE_DT:g} s",
                stacklevel=3,
            )
        return found

    def tree_constants(self, parameters: Parameters | None = None, batch: int = 1) -> Array:
        """Constants of the tree, (B, P)."""
        return self._columns(self.constants(parameters, batch))

    def momentum(self, state: Array, parameters: Parameters | None = None) -> Array:
        """The mechanism's states (q, p) of states (q, v), (B, 2 n)."""
        constants = self.tree_constants(parameters, len(state))
        return np.hstack([state[:, : self.model.n], self._momenta(state, constants)[0]])

    def velocities(self, path: Array) -> Array:
        """States (q, v) of the mechanism's (q, p) of physics step after physics step, (B, T+1, 2 n) -> (B, T, 2 n)."""
        q = path[..., : self.model.n]
        return np.concatenate([q[:, 1:], np.diff(q, axis=1) / self.dt], axis=-1)

    def vjp(
        self, state: Array, controls: Array, cotangent: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Gradient:
        """See `Differentiable.vjp`; by the discrete adjoint, at a cost that does not grow with P."""
        state, controls, constants, cotangent = self._checked_cotangent(state, controls, cotangent, parameters, substeps)
        n, K = self.model.n, int(substeps)
        columns = self._columns(constants)
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
        dc = _padded((found.constants + np.einsum("bnp,bn->bp", by_constant, dp)) * SIGNS, constants.shape[1])
        for gradient in (dx, du, dc):
            gradient[status != 0] = np.nan
        return Gradient(states, status, dx, du, dc)

    def _momenta(self, state: Array, columns: Array) -> tuple[Array, Array, Array, Any]:
        """p (B, n), its derivatives by (q, v) and by the tree's constants, and whether they are regular."""
        batch, n = len(state), self.model.n
        p, by_state = np.empty((batch, n)), np.zeros((batch, n, 2 * n))
        by_constant, good = np.zeros((batch, n, columns.shape[1])), np.empty(batch, dtype=np.bool_)
        momenta(self.mechanism.structure, state, columns, p, by_state, by_constant, good)
        return p, by_state, by_constant, good

    def _columns(self, constants: Array) -> Array:
        """Constants of the tree."""
        return self.model.tree_constants(constants)

    def _linearize(self, state: Array, control: Array, constants: Array, substeps: int) -> Linearization:
        A, B, C = super()._linearize(state, control, constants, substeps)
        return Linearization(A, B, _padded(C * SIGNS, constants.shape[1]))


def _padded(slopes: Array, count: int) -> Array:
    """Slopes (..., P) by the tree's constants with zeros for those that only recordings have, (..., count)."""
    return np.concatenate([slopes, np.zeros((*slopes.shape[:-1], count - slopes.shape[-1]))], axis=-1)
