"""Small simulators with known answers, for the tests of agents."""

from dataclasses import dataclass, field

import numpy as np

from softgym_envs.core.parameters import Parameters, param
from softgym_envs.core.simulator import Linearization, finite_differences


@dataclass(frozen=True)
class OneConstant(Parameters):
    gain: float = param(1.0, unit="-", bounds=(0.1, 10.0))


@dataclass(frozen=True, eq=False)
class Base:
    """Shared plumbing of the two simulators below: `advance` is one physics step of B rows."""

    dt: float = 0.05
    limit: float = np.inf
    rows_stepped: list = field(default_factory=lambda: [0])

    nu = 1
    default_parameters = OneConstant()

    @property
    def control_bounds(self):
        return -np.full(self.nu, self.limit), np.full(self.nu, self.limit)

    @property
    def state_names(self):
        return tuple(f"x{i}" for i in range(self.nx))

    @property
    def control_names(self):
        return tuple(f"u{i}" for i in range(self.nu))

    def step(self, state, control, parameters=None, *, substeps=1):
        gain = (parameters or self.default_parameters).to_matrix(len(state))[:, 0]
        self.rows_stepped[0] += len(state) * substeps
        x = state
        for _ in range(substeps):
            x = self.advance(x, control, gain)
        good = np.isfinite(x).all(axis=1) & (np.abs(x) < 1e3).all(axis=1)
        return np.where(good[:, None], x, state), (~good).astype(np.int32)

    def rollout(self, state, controls, parameters=None, *, substeps=1):
        states, status = [state], np.zeros(len(state), np.int32)
        for t in range(controls.shape[1]):
            after, failed = self.step(states[-1], controls[:, t], parameters, substeps=substeps)
            states.append(np.where((status != 0)[:, None], states[-1], after))
            status = np.maximum(status, failed)
        return np.stack(states, axis=1), status

    def retract(self, state, dx):
        return state + dx

    def difference(self, a, b):
        return a - b


@dataclass(frozen=True, eq=False)
class Linear(Base):
    """x' = A x + gain B u, exactly; two inputs, four states, one unstable mode."""

    nx = n = 4
    nu = 2
    A = np.array([[1.05, 0.1, 0.0, 0.02], [0.0, 0.9, 0.1, 0.0], [0.03, 0.0, 0.95, 0.2], [0.0, -0.1, 0.0, 0.8]])
    B = np.array([[0.0, 0.1], [0.5, 0.0], [0.0, 0.3], [0.2, 0.1]])

    def initial_state(self, batch=1):
        return np.zeros((batch, 4))

    def advance(self, x, u, gain):
        return x @ self.A.T + gain[:, None] * (u @ self.B.T)

    def linearize(self, state, control, parameters=None, *, substeps=1):
        gain = (parameters or self.default_parameters).to_matrix(len(state))[:, 0]
        powers = [np.linalg.matrix_power(self.A, k) for k in range(substeps)]
        B = sum(powers) @ self.B
        rows = len(state)
        A = np.linalg.matrix_power(self.A, substeps)
        C = (control @ B.T)[..., None]
        return Linearization(np.tile(A, (rows, 1, 1)), gain[:, None, None] * B, C)


@dataclass(frozen=True, eq=False)
class Pendulum(Base):
    """Torque-limited pendulum, hanging at rest: state (cos th, sin th, om) on the circle, tangent (dth, dom).

    om' = om + dt (-g sin th - c om + gain u), th' = th + dt om'; upright is th = pi.
    """

    limit: float = 4.0
    nx = 3
    n = 2

    def initial_state(self, batch=1):
        return np.tile([1.0, 0.0, 0.0], (batch, 1))

    def advance(self, x, u, gain):
        om = x[:, 2] + self.dt * (-9.81 * x[:, 1] - 0.1 * x[:, 2] + gain * u[:, 0])
        return self.retract(np.column_stack([x[:, :2], om]), np.column_stack([self.dt * om, 0 * om]))

    def retract(self, state, dx):
        c, s = np.cos(dx[..., 0]), np.sin(dx[..., 0])
        cos, sin = state[..., 0], state[..., 1]
        return np.stack([c * cos - s * sin, s * cos + c * sin, state[..., 2] + dx[..., 1]], axis=-1)

    def difference(self, a, b):
        angle = np.arctan2(a[..., 1] * b[..., 0] - a[..., 0] * b[..., 1], a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1])
        return np.stack([angle, a[..., 2] - b[..., 2]], axis=-1)

    def linearize(self, state, control, parameters=None, *, substeps=1):
        counted = self.rows_stepped[0]
        result = finite_differences(self, state, control, parameters, substeps=substeps)
        self.rows_stepped[0] = counted
        return result
