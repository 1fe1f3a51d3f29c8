"""Costs of trajectories and their second-order expansions.

Legend: B batch, T control steps, nx state, n tangent, nu control, m features. A cost sees the T + 1 states and T controls of
a trajectory and charges each time t = 0 ... T; the last one has no control. Derivatives are taken in the tangent
coordinates of the simulator, so quaternions and angles need no care here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from softgym_envs.core.errors import OptionError, ShapeError
from softgym_envs.core.objective import Objective
from softgym_envs.core.simulator import Array, Simulator, check_array


class Expansion(NamedTuple):
    """l(x + dx, u + du) = value + x.dx + u.du + 1/2 dx.xx.dx + du.ux.dx + 1/2 du.uu.du, at every time of B trajectories."""

    value: Array
    """(B, T+1)"""
    x: Array
    """(B, T+1, n)"""
    u: Array
    """(B, T, nu)"""
    xx: Array
    """(B, T+1, n, n)"""
    uu: Array
    """(B, T, nu, nu)"""
    ux: Array
    """(B, T, nu, n)"""


class Cost(Protocol):
    """See the module docstring; any object with these two methods is a cost."""

    def value(self, states: Array, controls: Array) -> Array:
        """Cost of every time: (B, T+1, nx), (B, T, nu) -> (B, T+1)."""
        ...

    def expand(self, states: Array, controls: Array) -> Expansion:
        """Second-order expansion along (B, T+1, nx), (B, T, nu); planners want `xx` positive semidefinite."""
        ...


@dataclass(frozen=True, eq=False)
class FeatureCost:
    """Weighted squares of features of the state and of the control.

    The cost of time t is

        l_t = sum_i w_ti (f_i(x_t) - target_ti)^2 + sum_j r_tj u_tj^2,    w = running for t < T, terminal for t = T.

    Target and weights are the same at all times, or have a row for every time; then plans have that horizon.

    The Hessian is Gauss-Newton, 2 F' diag(w) F with F = df/dx, so it is positive semidefinite. [Wang2020] V-C is
    f = velocity of the centre of mass, target (1, 0, 0) m/s, w = (1, 0.5, 0.1), r = 0.

    Raises:
        ShapeError: `feature` loses the rows of states; `target` or a weight does not fit the features, or is not finite.
        OptionError: A weight is negative.
    """

    simulator: Simulator
    """Simulator for `retract`, n and nu; the cost never steps it."""
    feature: Callable[[Array], Array]
    """States (..., nx) -> features (..., m), smooth."""
    target: Array
    """(m,) or (T+1, m) target features."""
    running: Array
    """(m,) or (T, m) weights of t < T"""
    terminal: Array | None = None
    """(m,) weights of t = T; None: the last running ones"""
    control_weight: float | Array = 0.0
    """(nu,), (T, nu) or one number for all controls [cost per control squared, each in its own unit]"""
    epsilon: float = field(default=1e-6, repr=False)
    """Half width of the central differences that give F, in tangent units."""

    def __post_init__(self) -> None:
        states = self.simulator.initial_state(1)
        shape, running = np.shape(self.feature(states)), np.asarray(self.running, dtype=np.float64)
        if len(shape) != 2 or shape[0] != 1:
            raise ShapeError(f"feature gives {shape} for states {states.shape}, expected (1, m): (..., nx) -> (..., m)")
        if not running.size:
            raise ShapeError(f"running has shape {running.shape}, expected ({shape[1]},) or (T, {shape[1]})")
        m = shape[1]
        nu, control = self.simulator.nu, np.asarray(self.control_weight, dtype=np.float64)
        last = np.atleast_2d(running)[-1] if self.terminal is None else self.terminal
        shapes: dict[str, tuple[object, int]] = {
            "target": (self.target, m),
            "running": (self.running, m),
            "terminal": (last, m),
            "control_weight": (np.full(nu, control) if control.ndim == 0 else control, nu),
        }
        for name, (value, size) in shapes.items():
            rows = name != "terminal" and np.ndim(value) == 2  # type: ignore[arg-type]
            checked = check_array(name, value, (None, size) if rows else (size,))
            if name != "target" and (checked < 0).any():
                raise OptionError(f"{name} is {checked.tolist()}, allowed are weights >= 0")
            object.__setattr__(self, name, checked)

    @classmethod
    def of(cls, objective: Objective, simulator: Simulator, model: Any) -> FeatureCost:
        """Cost of a system's objective, on this simulator's states.

        Args:
            objective: Objective with a target.
            simulator: Its control limits are the units of the controls.
            model: The structure of which the features are.
        """
        weight = objective.control_weight
        effort = weight / simulator.control_bounds[1] ** 2 if weight else 0.0
        return cls(
            simulator, partial(_features, objective, model), np.array(objective.aim), np.array(objective.weights),
            control_weight=effort,
        )  # fmt: skip

    def _weights(self, times: int) -> Array:
        """One row of feature weights per time, (T+1, m)."""
        for name, count in (("target", times), ("running", times - 1), ("control_weight", times - 1)):
            if (given := getattr(self, name)).ndim == 2 and len(given) != count:
                raise ShapeError(f"{name} has {len(given)} rows, expected {count} for {times - 1} control steps")
        weights = np.empty((times, self.running.shape[-1]))
        weights[:-1], weights[-1] = self.running, self.terminal
        return weights

    def value(self, states: Array, controls: Array) -> Array:
        """See `Cost.value`."""
        weights = self._weights(states.shape[-2])
        cost = np.sum(weights * (np.asarray(self.feature(states)) - self.target) ** 2, axis=-1)
        cost[..., :-1] += np.sum(self.control_weight * controls**2, axis=-1)
        return np.asarray(cost)

    def jacobian(self, states: Array) -> Array:
        """F = df/dx by central differences in one vectorised call, (..., nx) -> (..., m, n)."""
        n, h = self.simulator.n, self.epsilon
        steps = h * np.concatenate([np.eye(n), -np.eye(n)])
        shape = (*states.shape[:-1], 2 * n)
        moved = self.simulator.retract(
            np.broadcast_to(states[..., None, :], (*shape, states.shape[-1])), np.broadcast_to(steps, (*shape, n))
        )
        f = np.asarray(self.feature(moved))
        return np.swapaxes(f[..., :n, :] - f[..., n:, :], -1, -2) / (2.0 * h)

    def expand(self, states: Array, controls: Array) -> Expansion:
        """See `Cost.expand`."""
        weights = 2.0 * self._weights(states.shape[-2])
        error = np.asarray(self.feature(states)) - self.target
        F = self.jacobian(states)
        Ft = np.swapaxes(F, -1, -2)
        batch, horizon, nu = controls.shape
        uu = np.broadcast_to(2.0 * np.asarray(self.control_weight)[..., None] * np.eye(nu), (batch, horizon, nu, nu))
        return Expansion(
            self.value(states, controls),
            (Ft @ (weights * error)[..., None])[..., 0],
            2.0 * self.control_weight * controls,
            Ft @ (weights[..., None] * F),
            uu,
            np.zeros((batch, horizon, nu, self.simulator.n)),
        )


def _features(objective: Objective, model: Any, states: Array) -> Array:
    """Features of those entries of a state that the model has."""
    return objective.features(model, states[..., : model.layout.nx])
