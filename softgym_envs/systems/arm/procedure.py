"""Recording and identification of the elbow: random excitations; forces, lengths and moment arms.

A laboratory records joint angles and activations (rectified, filtered EMG; of pneumatic muscles, pressures inside in shares of
the supply's); the payload is the weight that it has put into the hand.
Planners and studies minimise `REACH`. Legend: T control steps, nx state.
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
    StageData,
    StageSimulator,
    Steps,
    in_usual_steps,
)
from ...core.scenario import Scenario
from ...core.simulator import Array
from ...core.trajectory import Trajectory
from .model import ElbowModel

ELBOW_ROW_PERIOD = 0.01
"""[s] Rows of a recording."""
ELBOW_STEP = 0.005
"""[s] Our engine's physics step."""
ELBOW_FIT_STEP = 1e-3
"""[s] Steps for fits of a laboratory's recordings: those of `ELBOW_STEP` are off by 0.03 rad after some seconds."""
ELBOW_MAX_STEPS = 1600
"""Physics steps of 5 ms, 8 s."""
HOLDS = (8, 40)
"""Rows for which random excitations are held."""
GUESS = {
    "biceps_force": 800.0, "biceps_optimal": 0.125, "biceps_slack": 0.14, "biceps_radius": 0.018, "triceps_force": 1500.0,
    "triceps_optimal": 0.12, "triceps_slack": 0.09, "triceps_radius": 0.015, "damping": 0.1,
    "rise_time": 0.025, "fall_time": 0.04,
}  # fmt: skip
"""Initial guess, as from tables of another person."""


def initial_guess(simulator: Any) -> dict[str, float]:
    """`GUESS` for the drawn arm; nothing for one whose file gives its numbers, or with other muscles."""
    return GUESS if simulator.model == ElbowModel(simulator.model.rest_angle) else {}


def unknown(simulator: Any) -> tuple[str, ...]:
    """Unknown parameters: all but the payload and dry friction."""
    return tuple(name for name in simulator.default_parameters.names() if name not in ("payload", "friction"))


def excited(ground_truth: Any, rng: np.random.Generator, *, steps: int, parameters: Parameters | None = None) -> Trajectory:
    """Random excitations, held for 0.08 to 0.4 s, more often of one muscle than of both, so the elbow visits its whole range.

    Rows are 10 ms apart, whatever steps the ground truth takes.
    """
    substeps, rows = (
        max(round(ELBOW_ROW_PERIOD / ground_truth.dt), 1),
        max(round(steps * ground_truth.dt / ELBOW_ROW_PERIOD), 10),
    )
    controls = np.zeros((rows, 2))
    begin = 0
    while begin < rows:
        end = begin + int(rng.integers(*HOLDS))
        both = rng.uniform(0.0, 0.6, 2) * (0.5, 0.25)  # the triceps is stronger
        alone = int(rng.integers(0, 3))
        if alone < 2:
            both[1 - alone] = 0.0
        controls[begin:end] = both
        begin = end
    states, _ = ground_truth.rollout(ground_truth.initial_state(), controls[None], parameters, substeps=substeps)
    return Trajectory.from_rollout(ground_truth, states[0], controls, substeps=substeps).for_timestep(ELBOW_STEP)


def bend(model: ElbowModel, states: Array) -> Array:
    """Angle and a tenth of its rate, (..., 4) -> (..., 2)."""
    return np.stack([states[..., 0], 0.1 * states[..., 1]], axis=-1)


def stops(simulator: Any) -> dict[str, tuple[float, float]]:
    """Range of the elbow's angle [rad]."""
    return {simulator.state_names[0]: simulator.model.limits}


CANDIDATE_CAUSES = {
    "another payload": ("payload",),
    "dry friction": ("friction",),
    "commands that act late": ("latency",),
    "another zero of the angle's sensor": ("angle_offset",),
    "another gain of the angle's sensor": ("angle_gain",),
}
"""See `Causes.candidates`."""
REACH = Objective(bend, weights=(1.0, 0.2), target=(1.5, 0.0), control_weight=0.002)
"""Bring the elbow to 1.5 rad and to rest."""


PROCEDURE = Procedure(
    experiments=(Experiment("excited", excited, ELBOW_MAX_STEPS),),
    recorded=Recorded(limits=stops),
    stages=(Stage("muscles", "excited", unknown, "one_step"),),
    # Measured states are noisy: predictions that start from them carry their noise along, and look like those of a wrong model.
    from_recordings=Stage(
        "from_recordings",
        "",
        unknown,
        "multiple_shooting",
        {"initial": {"restart_steps": 20}},
        data=StageData(free_initial=True),
        causes=Causes(CANDIDATE_CAUSES),
        simulator=StageSimulator(fallback=in_usual_steps),
    ),
    initial_guess=initial_guess,
    steps=Steps(ELBOW_FIT_STEP),
)


HOLD = Objective(bend, weights=(1.0, 0.05), target=(1.3, 0.0), control_weight=0.002)
"""Stay at 1.3 rad."""


def kicked(engine: Any, parameter_values: Parameters, rng: np.random.Generator, count: int) -> Array:
    """Starts (count, 4) near the angle to hold, muscles nearly off, kicked by about 1.5 rad/s except the first."""
    states = np.tile([1.3, 0.0, 0.05, 0.05], (count, 1))
    states[1:, 0] += 0.1 * rng.standard_normal(count - 1)
    states[1:, 1] += 1.5 * rng.standard_normal(count - 1)
    return states


STUDY = {"ArmReach-v0": Scenario("reach"), "ArmHold-v0": Scenario("hold", starts=kicked, parameters={"payload": 1.5})}
