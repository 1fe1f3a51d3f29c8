"""Vine robots in transfer studies: a tip is brought to a goal, in the open or through clutter.

Legend: B rows, T control steps, nx state, nu control.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ...core.parameters import Parameters
from ...core.scenario import BatchPolicy, Scenario, StudyScene
from ...core.simulator import Array, Simulator
from .model import VineModel, with_obstacles
from .obstacles import Obstacle, circle, rectangle
from .parameters import VineBody, VineParameters
from .tasks import GOAL_TOLERANCE, tip_position

LINKS = 16
"""Links of the robot in studies."""
VINE_STEP = 0.005
"""[s] Physics step of both simulators; the MuJoCo model's contact needs the longer time constant of 2 DT there."""


def among(obstacles: tuple[Obstacle, ...], goal: tuple[float, float]) -> StudyScene:
    """The robot among fixed obstacles, and its goal [m]."""
    return StudyScene(with_obstacles(VineModel(num_links=LINKS), obstacles), np.array(goal))


def starts(engine: Simulator, parameters: Parameters, rng: np.random.Generator, count: int) -> Array:
    """Robots of about the initial length with a slight bend, the first one straight."""
    robot: Any = engine
    model: VineModel = robot.model
    length, bend = 0.02 * rng.standard_normal(count), 0.2 * rng.standard_normal(count)
    length[:1], bend[:1] = 0.0, 0.0
    first = model.initial_length
    return np.stack([model.straight_state(first + float(a), float(b)) for a, b in zip(length, bend, strict=True)])


def growing(model: VineModel, rng: np.random.Generator) -> BatchPolicy:
    """Full growth under constant pressures."""
    limit = np.array(model.control_bounds[1])
    control = limit * np.concatenate([[1.0], rng.uniform(0.0, 0.5, len(limit) - 1)])
    return lambda x, t: np.tile(control, (len(x), 1))


def distances(model: VineModel, target: Array, states: Array) -> Mapping[str, Array]:
    """Distance of the tip from the goal [m]: the smallest, at the end; whether it was ever within `GOAL_TOLERANCE`."""
    distance = np.linalg.norm(tip_position(model, states) - target, axis=-1)
    nearest = distance.min(axis=1)
    return {"nearest [m]": nearest, "last [m]": distance[:, -1], "reached": (nearest < GOAL_TOLERANCE).astype(np.float64)}


def position(model: VineModel, states: Array) -> Array:
    """Position of the tip."""
    tip = tip_position(model, states)
    return np.concatenate([tip, np.zeros((*tip.shape[:-1], 1))], axis=-1)


def body_constants(ground_truth: Parameters) -> VineParameters:
    """The MuJoCo model's parameters of the body; contact has others there."""
    return VineParameters(**{name: getattr(ground_truth, name) for name in VineBody.names()})


_SHARED: dict[str, Any] = {
    "starts": starts, "first_policy": growing, "measure": distances, "position": position,
    "best": body_constants, "recorded": "VineGrow-v0", "dt": VINE_STEP,
    "ground_truth_parameters": {"contact_timeconst": 2 * VINE_STEP},
}  # fmt: skip

FOUR = (
    circle(0.5804953134747638, -0.025813098644571264, 0.025),
    rectangle(0.5187092695109347, -0.20510377619978415, 0.025, 0.04, 0.06952956254200426),
    circle(0.695202681336712, -0.21344799568669176, 0.0375),
    rectangle(0.5231057328537403, -0.043557073764816046, 0.0375, 0.06, 1.1297887328624237),
)
"""Obstacles beside the way to the goal among them."""
STUDY = {
    "VineGrow-v0": Scenario("reach", partial(among, (), (0.635963762953808, 0.29357899147410094)), **_SHARED),
    "VineNavigate-v0": Scenario("reach", partial(among, FOUR, (0.6125334985949052, -0.15889197587130408)), **_SHARED),
}
"""Scenarios in the open, and among four obstacles; recordings are made in the open."""
