"""The vine robot's side of a transfer study: a tip is brought to a goal, in the open or through clutter (see transfer.py)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from agents.models.residual import learn_correction
from agents.planning.cost import Cost, FeatureCost
from agents.study.protocol import BatchPolicy, Corrected, Identified
from softgym_envs.core.parameters import Parameters, UniformParameters
from softgym_envs.core.simulator import Simulator
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet
from softgym_envs.vine.dynamics import VineSimulator
from softgym_envs.vine.layouts import Clutter, Open
from softgym_envs.vine.model import VineModel, with_obstacles
from softgym_envs.vine.mujoco import VineTwin, VineTwinParameters
from softgym_envs.vine.obstacles import Obstacle
from softgym_envs.vine.parameters import VineBody, VineParameters
from sysid import FitProblem, LevenbergOptions, ShootingOptions, multiple_shooting

Array = NDArray[np.float64]

BODY = ("bending_stiffness", "bending_damping", "steering_gain", "steering_lag")
GUESS = {"bending_stiffness": 0.06, "bending_damping": 6e-4, "steering_gain": 1.5e-6, "steering_lag": 0.6}
"""Constants before identification: a factor of about three off, as from a data sheet."""
DT, SUBSTEPS = 0.005, 40
"""Physics step [s] of both simulators, and steps per control step."""
LONGEST = 25
"""Control steps of the longest recording: after 5 s at half speed the robot is 0.6 m long."""
SEGMENT = 5
"""Control steps of a segment when constants are fitted."""
AGREEMENT = {"theta": 2e-3, "omega": 0.05, "length": 1e-3, "growth": 5e-3, "left": 50.0, "right": 50.0, "obstacle": 1e-3}
"""[rad, rad/s, m, m/s, Pa, m or rad] How well predictions of state entries are asked to agree; see `FitProblem.noise`."""
TOLERANCE = 0.03
"""[m] The goal is reached within it, as in VineGrow-v0."""
SCENES = {"grow": 5, "navigate": 2}
"""Seed of the goal and of the clutter."""
HALF_LENGTHS = (0.6, 0.75)
"""[m] Lengths of a robot that ends at the goal: it can grow as long in the 5 s of a run."""


@dataclass(frozen=True)
class VineCase:
    """A vine robot as an `agents.study.protocol.Case`."""

    scene: Literal["grow", "navigate"]
    """In the open as VineGrow-v0, or among four obstacles as VineNavigate-v0 at level 1."""
    num_links: int = 16

    @property
    def name(self) -> str:
        """For study.json."""
        return repr(self)

    @property
    def env_id(self) -> str:
        """Of the same task."""
        return f"softgym_envs:Vine{self.scene.title()}-v0"

    @cached_property
    def _furnished(self) -> tuple[VineModel, Array]:
        """The robot among its obstacles, and the goal (2,) [m]."""
        bare, rng = VineModel(num_links=self.num_links), np.random.default_rng(SCENES[self.scene])
        layout = Open(HALF_LENGTHS) if self.scene == "grow" else Clutter(HALF_LENGTHS, most=4)
        model = layout.furnish(bare)
        drawn = layout.draw(model, rng, 1.0)
        stand = (Obstacle(o.shape, *map(float, pose)) for o, pose in zip(model.obstacles, drawn.poses, strict=True))
        return with_obstacles(model, tuple(stand)), drawn.goal

    @property
    def model(self) -> VineModel:
        """The structure."""
        return self._furnished[0]

    @property
    def goal(self) -> Array:
        """Where the tip shall be (2,) [m]."""
        return self._furnished[1]

    @property
    def hints(self) -> dict[str, Array]:
        """For pictures."""
        return {"goal": np.array([*self.goal, 0.0])}

    def native(self) -> VineSimulator:
        """Our engine."""
        return VineSimulator(self.model, DT)

    def truth(self) -> VineTwin:
        """The MuJoCo twin; contact needs the longer time constant of `truth_parameters` at this step."""
        return VineTwin(self.model, DT)

    def truth_parameters(self) -> VineTwinParameters:
        """The twin's defaults."""
        return VineTwinParameters(contact_timeconst=2 * DT)

    def recorded(self) -> VineCase:
        """Recordings are made in the open."""
        return replace(self, scene="grow")

    def adapt(self, parameters: Parameters) -> Parameters:
        """The same constants."""
        return parameters

    def default(self) -> VineParameters:
        """Before identification."""
        return VineParameters(**GUESS)

    def best(self) -> VineParameters:
        """The twin's constants of the body."""
        truth = self.truth_parameters()
        return VineParameters(**{name: getattr(truth, name) for name in VineBody.names()})

    def wide(self) -> UniformParameters:
        """Body constants within a factor of four of the guess."""
        return UniformParameters({name: (0.25 * value, 4.0 * value) for name, value in GUESS.items()})

    def cost(self, simulator: Simulator) -> Cost:
        """sum_t 10 |tip - goal|^2 [m^2] and a thousandth per full control."""
        limit = simulator.control_bounds[1]
        return FeatureCost(simulator, self._tip, self.goal, np.full(2, 10.0), control_weight=1e-3 / limit**2)

    def _tip(self, states: Array) -> Array:
        return np.asarray(self.model.tip(states)[..., :2])

    def starts(self, rng: np.random.Generator, count: int) -> Array:
        """Robots of about the initial length with a slight bend, the first one straight."""
        length, bend = 0.02 * rng.standard_normal(count), 0.2 * rng.standard_normal(count)
        length[:1], bend[:1] = 0.0, 0.0
        first = self.model.initial_length
        return np.stack([self.model.straight_state(first + float(a), float(b)) for a, b in zip(length, bend, strict=True)])

    def first_policy(self, rng: np.random.Generator) -> BatchPolicy:
        """Full growth under pressures that stay."""
        limit = self.truth().control_bounds[1]
        control = limit * np.concatenate([[1.0], rng.uniform(0.0, 0.5, len(limit) - 1)])
        return lambda x, t: np.tile(control, (len(x), 1))

    def force_scale(self) -> Array:
        """A kick of 1 m/s at full length turns a link by 1 / max_length rad/s."""
        scale = np.zeros(self.model.layout.n)
        scale[self.model.num_links : 2 * self.model.num_links] = 1.0 / self.model.max_length
        return scale

    def record(self, rng: np.random.Generator, steps: int) -> DataSplit:
        """Growth at about half speed under random pressures; three more recordings to judge predictions by."""
        count = max(steps // SUBSTEPS, 1)
        parts = np.array_split(np.zeros(count), -(-count // LONGEST))
        train = [self._recording(rng, len(part)) for part in parts]
        test = [self._recording(np.random.default_rng(i), LONGEST) for i in range(3)]
        return DataSplit(TrajectorySet(tuple(train)), TrajectorySet(()), TrajectorySet(tuple(test)))

    def _recording(self, rng: np.random.Generator, length: int) -> Trajectory:
        """New pressures every second control step; one of every two muscles is empty."""
        truth, limit = self.truth(), self.truth().control_bounds[1]
        steer = np.repeat(rng.uniform(-1.0, 1.0, (-(-length // 2), self.model.num_sections)), 2, axis=0)[:length]
        controls = np.empty((length, truth.nu))
        controls[:, 0] = limit[0] * rng.uniform(0.2, 0.9, length)
        controls[:, 1::2], controls[:, 2::2] = limit[1::2] * np.maximum(steer, 0), limit[2::2] * np.maximum(-steer, 0)
        start = self.model.straight_state()[None]
        states, _ = truth.rollout(start, controls[None], self.truth_parameters(), substeps=SUBSTEPS)
        return Trajectory.from_rollout(truth, states[0], controls, substeps=SUBSTEPS)

    def fit(self, data: DataSplit) -> Identified:
        """Bending and muscles from segments of a second."""
        options = ShootingOptions(errors="clustered", levenberg=LevenbergOptions(max_iterations=30))
        kinds = {name: name.split(".")[0].rstrip("0123456789") for name in data.train[0].names}
        noise = {name: AGREEMENT[kind] for name, kind in kinds.items()}
        problem = FitProblem(self.native(), data.train, free=BODY, start=self.default(), noise=noise)
        found = multiple_shooting(problem, replace(options, segment_steps=SEGMENT))
        return Identified(found.parameters, found.distribution(), found.verdicts[0].text)

    def residual(self, data: DataSplit, fit: Identified, rng: np.random.Generator) -> Corrected:
        """A correction of the body, learned in the open; the engine under it knows the obstacles."""
        found = learn_correction(self.recorded().native(), data.train, fit.parameters, substeps=SUBSTEPS, rng=rng)
        return Corrected(found.on(self.native()), found.summary())

    def measure(self, states: Array) -> dict[str, Array]:
        """Distance of the tip from the goal [m]: the smallest, at the end; whether it was ever within `TOLERANCE`."""
        distance = np.linalg.norm(self._tip(states) - self.goal, axis=-1)
        nearest = distance.min(axis=1)
        return {"nearest [m]": nearest, "last [m]": distance[:, -1], "reached": (nearest < TOLERANCE).astype(np.float64)}

    def position(self, states: Array) -> Array:
        """The tip."""
        tip = self._tip(states)
        return np.concatenate([tip, np.zeros((*tip.shape[:-1], 1))], axis=-1)


def keywords(case: VineCase) -> dict[str, Any]:
    """Of the environments of the same task."""
    return {} if case.scene == "grow" else {"level": 1.0}
