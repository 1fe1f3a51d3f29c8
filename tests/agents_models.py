"""Small simulators with known answers, for the tests of agents, and a study whose answers are known: a pendulum that is pushed
by twice the gain that the engine assumes."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from agents.control.cost import FeatureCost
from agents.transfer_study.definition import GROUPS
from agents.transfer_study.task import Identified, TransferTask
from softgym_envs.core.base import PlainStructure, SteppedSimulator
from softgym_envs.core.errors import DataError
from softgym_envs.core.layout import Field, StateLayout
from softgym_envs.core.parameters import Parameters, UniformParameters, param
from softgym_envs.core.simulator import Linearization
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet
from softgym_envs.systems import system


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


@dataclass(frozen=True, eq=False)
class Fragile(Linear):
    """Fails wherever |x| > 1."""

    def _step(self, state, control, parameter_values, substeps):
        after, status = super()._step(state, control, parameter_values, substeps)
        bad = (np.abs(after) > 1.0).any(axis=1)
        return np.where(bad[:, None], state, after), np.where(bad, 1, status).astype(np.int32)


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


TRUE_GAIN = 2.0


def changed(study, **changes):
    """A study with other settings, those of its groups by their own names."""
    groups = {name: getattr(study, name) for name in GROUPS}
    own = {name: {n: changes.pop(n) for n in list(changes) if hasattr(group, n)} for name, group in groups.items()}
    return replace(study, **changes, **{name: replace(group, **own[name]) for name, group in groups.items()})


def system_case(task, **changes):
    """A system's own case of a task."""
    owner = system("vine" if task.startswith("Vine") else "tensegrity")
    return TransferTask(owner, task, **changes)


@dataclass(frozen=True)
class PendulumCase:
    """Swing to one radian; the ground truth is the engine with another gain, so the identified engine is the ground truth."""

    description: str = "pendulum"
    unusable: bool = False

    def native(self):
        return Pendulum()

    def ground_truth(self):
        return Pendulum()

    def ground_truth_values(self):
        return OneConstant(gain=TRUE_GAIN)

    def recorded(self):
        return self

    def adapt(self, parameters):
        return parameters

    def default(self):
        return OneConstant(gain=0.5)

    def best(self):
        return OneConstant(gain=TRUE_GAIN)

    def drawn(self, rng, factor):
        return OneConstant(gain=TRUE_GAIN * factor ** rng.choice([-1.0, 1.0]))

    def wide(self):
        return UniformParameters({"gain": (0.2, 5.0)})

    def around(self, center, factor):
        return UniformParameters({"gain": (center.gain / factor, center.gain * factor)})

    def cost(self, simulator):
        def angle(x):
            return np.stack([x[..., 0], x[..., 1], 0.1 * x[..., 2]], axis=-1)

        target, weights = np.array([np.cos(1.0), np.sin(1.0), 0.0]), np.ones(3)
        return FeatureCost(simulator, angle, target, weights, control_weight=1e-3)

    def starts(self, rng, count):
        dx = 0.05 * rng.standard_normal((count, 2))
        dx[0] = 0.0
        return Pendulum().retract(Pendulum().initial_state(count), dx)

    def first_policy(self, rng):
        push = rng.uniform(-1.0, 1.0)
        return lambda x, t: np.full((len(x), 1), push)

    def record(self, rng, steps):
        def one(count):
            controls = rng.uniform(-2, 2, (1, count, 1))
            states, _ = self.ground_truth().rollout(Pendulum().initial_state(1), controls, self.ground_truth_values())
            return Trajectory.from_rollout(Pendulum(), states[0], controls[0])

        return DataSplit(*(TrajectorySet((one(n),)) for n in (steps, 20, 40)))

    states = record

    def fit(self, data):
        if self.unusable:
            raise DataError("constant controls")
        states, controls = data.train[0].values, data.train[0].controls
        change = states[1:, 2] - states[:-1, 2] - 0.05 * (-9.81 * states[:-1, 1] - 0.1 * states[:-1, 2])
        gain = float(change @ controls[:, 0] / (0.05 * controls[:, 0] @ controls[:, 0]))
        spread = UniformParameters({"gain": (gain - 1e-3, gain + 1e-3)})
        return Identified(OneConstant(gain=gain), spread, "least squares")

    def measure(self, states):
        return {"angle": np.arctan2(states[:, -1, 1], states[:, -1, 0])}

    def position(self, states):
        return np.stack([states[..., 1], -states[..., 0], 0 * states[..., 0]], axis=-1)
