"""Tensegrity robots in transfer studies: start states of runs, first policies of planners, and measures.

Legend: B rows, T control steps, nx state, n tangent, nu control.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...core.parameters import Parameters
from ...core.scenario import BatchPolicy, Noise, Scenario, StudyScene
from ...core.simulator import Array, Simulator
from .model import TensegrityModel, prism, superball
from .mujoco import native_constants
from .picture import PICTURE

SETTLING_STEPS = 2000
"""Physics steps on the ground before a run starts."""
SPREAD = np.array([0.005] * 3 + [0.01] * 3 + [0.02] * 6)
"""Spread of a rod's position [m], rotation [rad], velocities [m/s, rad/s]."""
STUDY_PERIOD = 0.1
"""[s] Control step."""


def starts(engine: Simulator, parameters: Parameters, rng: np.random.Generator, count: int) -> Array:
    """The rest pose after 2 s on the ground, then shifted, turned and pushed at random; never deeper in the ground."""
    robot: Any = engine
    model: TensegrityModel = robot.model
    rest = model.place_on_ground(model.state_from_nodes(model.nodes))
    settled, _ = engine.step(rest[None], np.zeros((1, model.nu)), parameters, substeps=SETTLING_STEPS)
    kick = np.zeros((count, model.layout.n))
    kick[:, : 12 * model.num_rods] = rng.standard_normal((count, 12 * model.num_rods)) * np.tile(SPREAD, model.num_rods)
    kick[:1] = 0.0
    states = model.layout.retract(np.repeat(settled, count, axis=0), kick)
    below = np.minimum(model.clearance(states) - float(model.clearance(settled)[0]), 0.0)
    for r in range(model.num_rods):
        states[:, 13 * r + 2] -= below
    return states


def rolling(model: TensegrityModel, rng: np.random.Generator) -> BatchPolicy:
    """The viewer's hand-tuned roll with a random strength and heading."""
    angle, size = rng.normal(0.0, 0.3), rng.uniform(0.5, 1.0)
    heading = np.array([np.cos(angle), np.sin(angle)])

    def roll(x: Array, t: int) -> Array:
        return np.asarray(size * model.control_limit * np.stack([PICTURE.heading_action(model, row, heading) for row in x]))

    return roll


def waving(model: TensegrityModel, rng: np.random.Generator) -> BatchPolicy:
    """Waves of a random rate and strength, every motor in a phase of its own."""
    rate, phase, size = rng.uniform(0.3, 1.5), rng.uniform(0.0, 2 * np.pi, model.nu), rng.uniform(0.3, 1.0)
    return lambda x, t: np.tile(model.control_limit * size * np.sin(2 * np.pi * rate * STUDY_PERIOD * t + phase), (len(x), 1))


def way(model: TensegrityModel, target: Array, states: Array) -> Mapping[str, Array]:
    """Displacement along and across the command [m]."""
    moved = position(model, states)[:, -1] - position(model, states)[:, 0]
    return {"along [m]": moved[:, 0], "across [m]": np.abs(moved[:, 1])}


def position(model: TensegrityModel, states: Array) -> Array:
    """Centre of mass."""
    return model.center_of_mass(states)


def superball_scene() -> StudyScene:
    """The SUPERball on flat ground."""
    return StudyScene(superball())


def prism_scene() -> StudyScene:
    """The prism on flat ground."""
    return StudyScene(prism())


_SHARED: dict[str, Any] = {
    "starts": starts, "measure": way, "position": position, "best": native_constants,
    "options": {"contact": "patch"}, "hint": "velocity",
}  # fmt: skip

STUDY = {
    "TensegrityRoll-v0": Scenario("roll", superball_scene, first_policy=rolling, first_noise=Noise(0.2, 10, 50), **_SHARED),
    "TensegrityCrawl-v0": Scenario(
        "crawl", prism_scene, first_policy=waving, recorded="TensegrityRoll-v0", parameters={"gravity": 0.981},
        keywords={"gravity": 0.981, "averaging_time": 0.0}, **_SHARED,
    ),
}  # fmt: skip
"""The prism takes over the SUPERball's parameters, identified at Earth's gravity, and is judged by the paper's objective."""
