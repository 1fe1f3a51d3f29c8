"""Small simulators with known answers, for the tests of agents."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from softgym_envs.core.base import PlainStructure, SteppedSimulator
from softgym_envs.core.layout import Field, StateLayout
from softgym_envs.core.parameters import Parameters, param
from softgym_envs.core.simulator import Linearization


@dataclass(frozen=True)
class OneConstant(Parameters):
    gain: float = param(1.0, unit="-", bounds=(0.1, 10.0))


@dataclass(frozen=True, eq=False)
class Base(SteppedSimulator):
    """Shared plumbing of the two simulators below: `advance` is one physics step of B rows."""

    parameters_class = OneConstant

    dt: float = 0.05
    limit: float = np.inf
    rows_stepped: list = field(default_factory=lambda: [0])

    @cached_property
    def model(self):
        limit = np.full(len(self.controls), self.limit)
        return PlainStructure(self.state_layout, self.controls, ("-",) * len(limit), (-limit, limit), self.rest)

    def _step(self, state, control, parameter_values, substeps):
        self.rows_stepped[0] += len(state) * substeps
        x = state
        for _ in range(substeps):
            x = self.advance(x, control, parameter_values[:, 0])
        good = np.isfinite(x).all(axis=1) & (np.abs(x) < 1e3).all(axis=1)
        return np.where(good[:, None], x, state), (~good).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Linear(Base):
    """x' = A x + gain B u, exactly; two inputs, four states, one unstable mode."""

    state_layout, controls, rest = StateLayout(Field("", 4, ("x", "m"))), ("u0", "u1"), np.zeros(4)
    A = np.array([[1.05, 0.1, 0.0, 0.02], [0.0, 0.9, 0.1, 0.0], [0.03, 0.0, 0.95, 0.2], [0.0, -0.1, 0.0, 0.8]])
    B = np.array([[0.0, 0.1], [0.5, 0.0], [0.0, 0.3], [0.2, 0.1]])

    def advance(self, x, u, gain):
        return x @ self.A.T + gain[:, None] * (u @ self.B.T)

    def _linearize(self, state, control, parameter_values, substeps):
        gain = parameter_values[:, 0]
        powers = [np.linalg.matrix_power(self.A, k) for k in range(substeps)]
        B = sum(powers) @ self.B
        rows = len(state)
        A = np.linalg.matrix_power(self.A, substeps)
        C = (control @ B.T)[..., None]
        return Linearization(np.tile(A, (rows, 1, 1)), gain[:, None, None] * B, C)


class Circle:
    """Layout of the pendulum: a manifold that `StateLayout` does not know."""

    nx, n = 3, 2
    names, units = ("x0", "x1", "x2"), ("-", "-", "rad/s")

    def retract(self, state, dx):
        c, s = np.cos(dx[..., 0]), np.sin(dx[..., 0])
        cos, sin = state[..., 0], state[..., 1]
        return np.stack([c * cos - s * sin, s * cos + c * sin, state[..., 2] + dx[..., 1]], axis=-1)

    def difference(self, a, b):
        angle = np.arctan2(a[..., 1] * b[..., 0] - a[..., 0] * b[..., 1], a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1])
        return np.stack([angle, a[..., 2] - b[..., 2]], axis=-1)


@dataclass(frozen=True, eq=False)
class Pendulum(Base):
    """Torque-limited pendulum, hanging at rest: state (cos th, sin th, om) on the circle, tangent (dth, dom).

    om' = om + dt (-g sin th - c om + gain u), th' = th + dt om'; upright is th = pi.
    """

    limit: float = 4.0
    state_layout, controls, rest = Circle(), ("u0",), np.array([1.0, 0.0, 0.0])

    def advance(self, x, u, gain):
        om = x[:, 2] + self.dt * (-9.81 * x[:, 1] - 0.1 * x[:, 2] + gain * u[:, 0])
        return self.retract(np.column_stack([x[:, :2], om]), np.column_stack([self.dt * om, 0 * om]))

    def _linearize(self, state, control, parameter_values, substeps):
        counted = self.rows_stepped[0]
        result = super()._linearize(state, control, parameter_values, substeps)
        self.rows_stepped[0] = counted
        return result


@dataclass(frozen=True, eq=False)
class CartPole(Base):
    """Uniform pole of 0.1 kg and 1 m on a cart of 1 kg: position, angle from upright, and their rates; semi-implicit Euler."""

    limit: float = 20.0
    state_layout, controls, rest = StateLayout(Field("", 4, ("x", "-"))), ("force",), np.zeros(4)

    def advance(self, x, u, gain):
        sin, cos, omega = np.sin(x[:, 1]), np.cos(x[:, 1]), x[:, 3]
        push = (gain * u[:, 0] + 0.05 * omega**2 * sin) / 1.1
        turn = (9.81 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        rates = x[:, 2:] + self.dt * np.column_stack([push - 0.05 * turn * cos / 1.1, turn])
        return np.column_stack([x[:, :2] + self.dt * rates, rates])
