"""Small simulators with known physics for the tests of `sysid`: a driven mass on a spring, and a spinning body on quaternions.

Exact maps where there are any, so that identification is tested against mathematics and not against another integrator of ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm

from softgym_envs.core import lie
from softgym_envs.core.base import BaseSimulator, PlainStructure, SteppedSimulator, pull_back, repeat_steps
from softgym_envs.core.layout import QUATERNION, Field, StateLayout
from softgym_envs.core.parameters import Parameters, param
from softgym_envs.core.simulator import Gradient, IntArray, Linearization
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from sysid import FitProblem
from sysid.diagnostics.result import FitResult

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SpringParameters(Parameters):
    """m a + c v + k x = g u, plus a parameter that has no effect."""

    mass: float = param(2.0, unit="kg", bounds=(0.01, 100.0), scale="log")
    stiffness: float = param(20.0, unit="N/m", bounds=(0.1, 1e4), scale="log")
    damping: float = param(1.5, unit="N s/m", bounds=(0.01, 100.0), scale="log")
    gain: float = param(3.0, unit="N", bounds=(0.01, 1e3), scale="log")
    offset: float = param(0.5, unit="m/s^2", bounds=(-5.0, 5.0))
    paint: float = param(1.0, unit="-", bounds=(0.0, 2.0))


MASS_ON_A_SPRING = PlainStructure(
    StateLayout(Field("mass", None, ("x", "m"), ("vx", "m/s"))),
    ("force",), ("N",), (np.array([-1.0]), np.array([1.0])), np.zeros(2),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Spring(BaseSimulator):
    """Exact zero-order-hold map of the driven mass on a spring; its linearize comes from a Frechet derivative of expm."""

    parameters_class = SpringParameters

    model: Any = MASS_ON_A_SPRING
    dt: float = 0.02
    exact: bool = True

    def _maps(self, parameter_values: Array, substeps: int) -> Array:
        """expm of [[A, B, e], 0] per row, (B, 4, 4)."""
        unique, place = np.unique(parameter_values, axis=0, return_inverse=True)
        generators = np.zeros((len(unique), 4, 4))
        m, k, c, g, e = unique[:, :5].T
        generators[:, 0, 1] = 1.0
        generators[:, 1] = np.stack([-k / m, -c / m, g / m, e], axis=1)
        return expm(generators * self.dt * substeps)[place]

    def _step(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        """Rows faster than 1e6 m/s have diverged."""
        return self._advance(state, control, self._maps(parameter_values, substeps))

    def _advance(self, state: Array, control: Array, maps: Array) -> tuple[Array, IntArray]:
        new = maps[:, :2, 0] * state[:, :1] + maps[:, :2, 1] * state[:, 1:] + (maps[:, :2, 2] * control + maps[:, :2, 3])
        failed = ~(np.abs(new[:, 1]) < 1e6)
        return np.where(failed[:, None], state, new), failed.astype(np.int32)

    def _rollout(self, state: Array, controls: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        """As step by step, which takes five times as long, in the same order of operations."""
        maps = self._maps(parameter_values, substeps)
        by_x, by_v, driven = maps[:, :2, 0], maps[:, :2, 1], maps[:, None, :2, 2] * controls + maps[:, None, :2, 3]
        states, now = np.empty((len(state), controls.shape[1] + 1, 2)), state
        states[:, 0] = state
        with np.errstate(over="ignore", invalid="ignore"):
            for t in range(controls.shape[1]):
                now = by_x * now[:, :1] + by_v * now[:, 1:] + driven[:, t]
                states[:, t + 1] = now
        if (np.abs(states[:, 1:, 1]) < 1e6).all():
            return states, np.zeros(len(state), dtype=np.int32)
        return repeat_steps(lambda rows, x, u: self._advance(x, u, maps[rows]), state, controls)

    def vjp(self, state: Array, controls: Array, cotangent: Array, parameters: Any = None, *, substeps: int = 1) -> Gradient:
        """See `Differentiable.vjp`."""
        given = parameters or self.default_parameters
        return pull_back(self, self.layout, state, controls, cotangent, given, substeps)

    def _linearize(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> Linearization:
        """Derivative of expm by the block-triangular identity: expm([[X, E], [0, X]]) = [[., L(X, E)], [0, .]]."""
        m, k, c, g, e = parameter_values[0, :5]
        X = np.zeros((4, 4))
        X[0, 1], X[1] = 1.0, [-k / m, -c / m, g / m, e]
        full = np.concatenate([state, control, np.ones((len(state), 1))], axis=1)
        E = np.zeros((6, 4, 4))
        E[0, 1, :3] = np.array([k, c, -g]) / m**2
        E[1, 1, 0], E[2, 1, 1], E[3, 1, 2], E[4, 1, 3] = -1 / m, -1 / m, 1 / m, 1.0
        columns = []
        for direction in E:
            block = np.block([[X, direction], [np.zeros((4, 4)), X]]) * self.dt * substeps
            columns.append(full @ expm(block)[:2, 4:].T)
        F = expm(X * self.dt * substeps)
        tile = np.repeat(F[None], len(state), axis=0)
        return Linearization(tile[:, :2, :2], tile[:, :2, 2:3], np.stack(columns, axis=-1))


@dataclass(frozen=True)
class SpinParameters(Parameters):
    """Viscous drag and motor gain of a spinning body, both over its inertia."""

    drag: float = param(0.7, unit="1/s", bounds=(0.0, 5.0))
    torque: float = param(2.0, unit="rad/s^2", bounds=(0.1, 50.0), scale="log")


BALL = PlainStructure(
    StateLayout(Field("ball", None, ("qw qx qy qz", "-", QUATERNION), ("wx wy wz", "rad/s"))),
    ("ux", "uy", "uz"), ("-", "-", "-"), (-np.ones(3), np.ones(3)), np.array([1.0, 0, 0, 0, 0, 0, 0]),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Spin(SteppedSimulator):
    """A ball driven about its body axes: w' = w + dt (torque u - drag w), q' = q exp(dt w'). nx = 7, n = 6."""

    parameters_class = SpinParameters

    model: Any = BALL
    dt: float = 0.02

    def _step(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        drag, torque = parameter_values.T[..., None]
        q, w = state[:, :4], state[:, 4:]
        for _ in range(substeps):
            w = w + self.dt * (torque * control - drag * w)
            q = lie.retract(q, self.dt * w)
        return np.concatenate([q, w], axis=1), np.zeros(len(state), dtype=np.int32)


def record(
    simulator: Any,
    ground_truth: Parameters | None = None,
    *,
    steps: int = 200,
    count: int = 1,
    seed: int = 0,
    noise: Any = 0.0,
    substeps: int = 1,
) -> TrajectorySet:
    """Recordings of a simulator under controls that are random every fifth step, with Gaussian noise on the states."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        low, high = simulator.control_bounds
        held = rng.uniform(low, high, (-(-steps // 5), simulator.nu))
        controls = np.repeat(held, 5, axis=0)[:steps]
        states, status = simulator.rollout(simulator.initial_state(1), controls[None], ground_truth, substeps=substeps)
        assert not status.any()
        made.append(Trajectory.from_rollout(simulator, states[0], controls, substeps=substeps).with_noise(rng, noise))
    return TrajectorySet(tuple(made))


GROUND_TRUTH = SpringParameters(mass=3.0, stiffness=45.0, damping=0.8, gain=2.0)
START = SpringParameters(mass=3.0)
FREE = ("stiffness", "damping", "gain")


def problem(**changes: Any) -> FitProblem:
    split = record(Spring(), GROUND_TRUTH, count=3).split(1, 1, 1)
    return FitProblem(Spring(), **{"data": split, "free": FREE, "start": START, **changes})


def errors(result: FitResult, ground_truth: Any = GROUND_TRUTH) -> list[float]:
    return [abs(getattr(result.parameters, name) / getattr(ground_truth, name) - 1) for name in result.free]


def severities(result: FitResult, code: str, parameter: str = "") -> list[str]:
    return [d.severity for d in result.of(code) if parameter in ("", d.parameter)]
