r"""How arm and loop are recorded and identified: torques and angles of a manipulation, followed under feedback.

An arm without a controller falls away from its recording. So the model is fitted with springs K that pull the arm to `start`,
and with torques that make them pull to the recorded angles b instead, as eq. IV-C of [Caldwell2014] does:

.. math:: u_k = T_k + K \bigl(\tfrac14 (b_{k-1} + 2 b_k + b_{k+1}) - b_{start}\bigr)

Springs act at the midpoints of steps, hence these weights: where the model moves as recorded, nothing is added to T. What is
compared are the hand's position, the paper's cost, and the angles. Legend: T control steps, nx state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.parameters import Parameters
from ..core.recipe import Experiment, Measurement, Recipe, Stage
from ..core.simulator import Array
from ..core.trajectory import Trajectory
from .manipulation import SCALES, STIFF, STILL, reference
from .model import ARM, LoopModel

STIFFNESS = ("theta_stiffness", "psi_stiffness")
OFFSETS = tuple(f"offset_{name}" for name in ARM)
"""Of the torque sensors: a nuisance that spoils the stiffness where it is not fitted with it."""
HAND = ("hand.x", "hand.y", "hand.z")
"""[m] Origin of frame H."""
PERIOD = 0.01
"""[s] Baxter's 100 Hz."""
LONGEST = 20.0
"""[s]"""
FOLLOW = tuple(0.5 * value for value in STIFF)
"""[N m/rad] K."""
MARGIN = 3.0
"""[rad] Larger than any angle from the start."""
GUESS = {"theta_stiffness": 5.0, "psi_stiffness": 5.0}
"""The paper's start."""


def manipulation(truth: Any, rng: np.random.Generator, *, steps: int, parameters: Parameters | None = None) -> Trajectory:
    """Angles and torques while the loop is stretched, bent and twisted; `rng` draws the phases of the sines.

    The arm is held on its path by gains of 2 `STIFF`. Rows are 10 ms apart, and a physics step to whoever fits them, whatever
    steps the truth takes.
    """
    model, substeps = truth.model, max(round(PERIOD / truth.dt), 1)
    length, gains = max(steps // substeps, 2), 2 * np.array(STIFF)
    scale = SCALES[6 if model.links < 12 else 12]
    path = reference(model, length, dt=truth.dt * substeps, scale=scale, rng=rng)
    q, hold = model.relax(path[:1], model.tree_constants(truth.constants(parameters, 1)))
    states, torques = np.zeros((length + 1, truth.nx)), np.empty((length, truth.nu))
    states[0, : model.n] = q[0]
    for k in range(length):
        torques[k] = hold[0] + gains * (path[k] - states[k, : len(ARM)])
        found, _ = truth.rollout(states[k][None], torques[k][None, None], parameters, substeps=substeps)
        states[k + 1] = found[0, -1]
    return Trajectory.from_rollout(truth, states, torques, substeps=substeps).select(ARM).for_timestep(PERIOD)


def held(simulator: Any) -> Any:
    """The simulator with springs K on the arm, beside those that it may have."""
    model: LoopModel = simulator.model
    stiffness = tuple(own + more for own, more in zip(model.servo_stiffness, FOLLOW, strict=True))
    return replace(simulator, model=replace(model, servo_stiffness=stiffness, command_margin=MARGIN))


def followed(simulator: Any, trajectory: Trajectory) -> Trajectory:
    """The recording with the hand's position, and with torques that make the springs of `held` pull to its angles.

    Raises:
        DataError: It lacks an angle of the arm.
    """
    model = simulator.model
    angles = trajectory.select(ARM).values
    before = np.concatenate([angles[:1], angles[:-2]])
    middle = 0.25 * (before + 2 * angles[:-1] + angles[1:])
    q = np.zeros((len(angles), model.n))
    q[:, : len(ARM)] = angles
    order = [trajectory.control_names.index(name) for name in simulator.control_names]
    pulled = trajectory.controls[:, order] + np.array(FOLLOW) * (middle - np.array(model.start))
    units = (*("m",) * 3, *("rad",) * len(ARM))
    whole = replace(trajectory, values=np.hstack([model.mechanism.pose("H", q)[1], angles]), names=(*HAND, *ARM), units=units)
    return whole.with_controls(pulled, simulator.control_names, simulator.control_units).for_timestep(simulator.dt)


def measurement(simulator: Any, names: tuple[str, ...]) -> Measurement | None:
    """The hand's position, and the angles of the arm; None without the hand."""
    if not set(HAND) <= set(names):
        return None
    model: LoopModel = simulator.model

    def measure(states: Array) -> Array:
        q = np.ascontiguousarray(states[..., : model.n].reshape(-1, model.n))
        found = np.hstack([model.mechanism.pose("H", q)[1], q[:, : len(ARM)]])
        return np.asarray(found.reshape(*states.shape[:-1], -1))

    return Measurement((*HAND, *ARM), measure)


def first_state(simulator: Any, names: tuple[str, ...]) -> Callable[[Trajectory], Array] | None:
    """Recording -> rest (nx,) below the mean of its angles while the arm was still."""
    model: LoopModel = simulator.model

    def guess(trajectory: Trajectory) -> Array:
        rows = max(round(STILL / trajectory.period), 1)
        angles = trajectory.select(ARM).values[:rows].mean(axis=0)
        q, _ = model.relax(angles[None], model.defaults[None])
        return np.concatenate([q[0], np.zeros(model.n)])

    return guess


RECIPE = Recipe(
    experiments=(Experiment("manipulation", manipulation, round(LONGEST / PERIOD)),),
    stages=(
        Stage(
            "stiffness", "manipulation", STIFFNESS, "single_shooting", {"jacobian": "differences"},
            adapt=held, prepare=followed, free_initial=False,
        ),
        Stage(
            "offsets", "manipulation", (*STIFFNESS, *OFFSETS), "single_shooting", {"jacobian": "differences"},
            adapt=held, prepare=followed, free_initial=False,
        ),
    ),
    laboratory=Stage(
        "laboratory", "", (*STIFFNESS, *OFFSETS), "single_shooting", {"jacobian": "differences"},
        adapt=held, prepare=followed, free_initial=False,
    ),
    guess=GUESS,
    measurement=measurement,
    first_state=first_state,
)  # fmt: skip
