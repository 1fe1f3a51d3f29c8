"""Recording and identification of the upper body: random torques; masses, load, springs and dampers.

A laboratory records joint angles and torques. Planners and studies minimise `REACH`. Legend: T control steps, nx state.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.objective import Objective
from ...core.parameters import Parameters
from ...core.procedure import (
    Causes,
    Experiment,
    Procedure,
    Recorded,
    Stage,
    StageSimulator,
    Steps,
    in_half_steps,
    in_usual_steps,
)
from ...core.scenario import Scenario
from ...core.simulator import Array
from ...core.trajectory import Trajectory
from .model import BodyModel
from .parameters import BodyParameters

PERIOD, STEP = 0.01, 0.005
"""[s] Rows of a recording; our engine's physics step."""
BODY_FIT_STEP = 0.0025
"""[s] Rows and step for fits of a laboratory's recordings: with steps of 5 ms a right model was rejected."""
BODY_MAX_STEPS = 1600
"""Physics steps of 5 ms, 8 s."""
HOLDS = (5, 30)
"""Rows for which random torques are held."""
EFFORT_SHARE = 0.4
"""Share of the joints' efforts."""
FREE = BodyParameters.names()


def moved(ground_truth: Any, rng: np.random.Generator, *, steps: int, parameters: Parameters | None = None) -> Trajectory:
    """Random torques of all joints, independent and held for 0.05 to 0.3 s; rows are 10 ms apart."""
    substeps, rows = max(round(PERIOD / ground_truth.dt), 1), max(round(steps * ground_truth.dt / PERIOD), 10)
    controls = np.zeros((rows, ground_truth.nu))
    for joint in range(ground_truth.nu):
        begin = 0
        while begin < rows:
            end = begin + int(rng.integers(*HOLDS))
            controls[begin:end, joint] = EFFORT_SHARE * ground_truth.model.effort[joint] * rng.uniform(-1.0, 1.0)
            begin = end
    states, _ = ground_truth.rollout(ground_truth.initial_state(), controls[None], parameters, substeps=substeps)
    return Trajectory.from_rollout(ground_truth, states[0], controls, substeps=substeps).for_timestep(STEP)


def hand(model: BodyModel, states: Array) -> Array:
    """Position of the right hand, and a tenth of the joints' speeds, (..., nx) -> (..., 3 + n)."""
    rows = states.reshape(-1, states.shape[-1])
    found = np.concatenate([model.hand(rows[:, : model.n]), 0.1 * rows[:, model.n : 2 * model.n]], axis=1)
    return found.reshape(*states.shape[:-1], -1)


REACH = Objective(hand, weights=(30.0,) * 3 + (0.05,) * 12, target=(0.35, -0.15, -0.15) + (0.0,) * 12, control_weight=0.01)
"""Bring the right hand in front of the chest, and the body to rest."""


def limits(simulator: Any) -> dict[str, tuple[float, float]]:
    """Lowest and highest angle [rad] of every joint."""
    low, high = simulator.model.limits
    return dict(zip(simulator.state_names, zip(low.tolist(), high.tolist(), strict=True), strict=False))


PROCEDURE = Procedure(
    experiments=(Experiment("moved", moved, BODY_MAX_STEPS),),
    recorded=Recorded(limits=limits),
    stages=(Stage("body", "moved", FREE, "one_step"),),
    from_recordings=Stage(
        "from_recordings", "", FREE, "multiple_shooting",
        {"initial": {"restart_steps": 20}, "intervals": {"half_step": True}},
        causes=Causes({"commands that act late": ("latency",), "torque sensors of another gain": ("command_gain",)}),
        simulator=StageSimulator(fallback=in_usual_steps),
    ),
    steps=Steps(BODY_FIT_STEP, finer=in_half_steps),
    initial_guess={
        "upper_arm_scale": 0.8, "forearm_scale": 1.2, "payload": 0.1, "armature": 0.05, "shoulder_stiffness": 6.0,
        "elbow_stiffness": 6.0, "forearm_stiffness": 1.0, "wrist_stiffness": 1.0, "shoulder_damping": 1.0,
        "elbow_damping": 1.0, "forearm_damping": 0.15, "wrist_damping": 0.06,
    },
)  # fmt: skip
STUDY = {"UpperBodyReach-v0": Scenario("reach")}
