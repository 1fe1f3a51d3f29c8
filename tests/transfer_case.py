"""A study whose answers are known: a pendulum that is pushed by twice the gain that the engine assumes."""

from dataclasses import dataclass, replace

import numpy as np
from agents_models import OneConstant, Pendulum

from agents.control.cost import FeatureCost
from agents.transfer_study.definition import GROUPS
from agents.transfer_study.task import Identified, TransferTask
from softgym_envs.core.errors import DataError
from softgym_envs.core.parameters import UniformParameters
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet
from softgym_envs.systems import system

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
