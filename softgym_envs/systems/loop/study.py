"""Arm and loop in transfer studies: a point of the loop, which nothing measures, or the hand is brought to a goal and held.

Controls are torques beyond those that hold the start (`LoopModel.command_limit`), so an arm without control stays.
Offsets and delay of the torque sensors belong to recordings: they are fitted with the rest, and plans have none.

Legend: B rows, T control steps, nx state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...core.objective import Objective
from ...core.parameters import Parameters
from ...core.scenario import BatchPolicy, Noise, Scenario, StudyScene
from ...core.simulator import Array, Simulator
from ...core.task import Start
from .arm_task import INCREMENT, rest_under
from .bend import BEND_LEVER, PERIOD, TIME, LoopBend, rotation_vector
from .build import held
from .model import ARM, LoopModel
from .tasks import FAR_GOAL

LOOP_STEP = 0.005
"""[s] Control step of both simulators; MuJoCo integrates shorter ones inside it."""
GOAL_ACTION = 0.8
"""Share of the action that reaches the goal."""
SEED = 7
"""Seed of the goals."""
KICK = 0.1
"""[rad/s] Largest first speed of a joint of the arm."""


def commanded() -> LoopModel:
    """Robot of the tasks, with controls beyond those that hold the start."""
    return replace(held(LoopModel(12)), command_limit=tuple(float(limit) for limit in INCREMENT))


def middle(model: LoopModel, states: Array) -> Array:
    """Middle of the loop's left side, (..., nx) -> (..., 3) [m]."""
    rows = np.ascontiguousarray(states.reshape(-1, states.shape[-1])[:, : model.n])
    return model.mechanism.origins(rows)[:, model.node_coordinates[model.links // 4]].reshape(*states.shape[:-1], 3)


def hand(model: LoopModel, states: Array) -> Array:
    """Place of the hand and `BEND_LEVER` times its turn since the start, (..., nx) -> (..., 6) [m]."""
    rows = np.ascontiguousarray(states.reshape(-1, states.shape[-1])[:, : model.n])
    turn, place = model.mechanism.pose("H", rows)
    first, _ = model.mechanism.pose("H", model.rest_state()[None, : model.n])
    turned = BEND_LEVER * rotation_vector(turn @ first[0].T)
    return np.concatenate([place, turned], axis=1).reshape(*states.shape[:-1], 6)


REACH = Objective(middle, weights=(100.0,) * 3, control_weight=0.002)
BEND = Objective(hand, weights=(100.0,) * 6, control_weight=0.002)


def reach_goal(model: LoopModel, rng: np.random.Generator) -> Array:
    """A goal (3,) that a constant action reaches with the default parameters, 6 cm or more from the start."""
    first = middle(model, model.rest_state()[None])[0]
    while True:
        q, good = rest_under(model, rng.uniform(-GOAL_ACTION, GOAL_ACTION, (1, len(ARM))) * INCREMENT, model.defaults[None])
        goal = middle(model, q)[0]
        if good[0] and np.linalg.norm(goal - first) >= FAR_GOAL:
            return np.asarray(goal)


def bend_goal(model: LoopModel, rng: np.random.Generator) -> Array:
    """Far end (6,) of a profile, drawn as in LoopBend."""
    task = LoopBend(model)
    _, context = task.reset(Start([rng], {}, {}, lambda state, control, seconds: state))
    context[:, TIME] = 0.5 * context[:, PERIOD]
    q = np.zeros((1, model.n))
    q[:, : len(ARM)] = task.profile(context)
    return np.asarray(hand(model, q)[0])


def scene(goal: Callable[[LoopModel, np.random.Generator], Array]) -> StudyScene:
    """The robot with a fixed goal."""
    model = commanded()
    return StudyScene(model, goal(model, np.random.default_rng(SEED)))


def starts(engine: Simulator, parameters: Parameters, rng: np.random.Generator, count: int) -> Array:
    """Rest states of the loop with the arm moving a little; the first one without."""
    states, n = engine.initial_state(count), engine.nx // 2
    states[1:, n : n + len(ARM)] = rng.uniform(-KICK, KICK, (count - 1, len(ARM)))
    return states


def still(model: LoopModel, rng: np.random.Generator) -> BatchPolicy:
    """No torques beyond those that hold the start."""
    return lambda x, t: np.zeros((len(x), len(ARM)))


def off_goal(feature: Callable[[Any, Array], Array], model: LoopModel, target: Array, states: Array) -> Mapping[str, Array]:
    """Distance of a feature from the goal [m]: at the end, and on average over the second half."""
    off = np.linalg.norm(feature(model, states) - target, axis=-1)
    return {"last [m]": off[:, -1], "late [m]": off[:, off.shape[1] // 2 :].mean(axis=1)}


_SHARED: dict[str, Any] = {
    "starts": starts,
    "first_policy": still,
    "first_noise": Noise(0.05, 4, 16),
    "parameters": dict.fromkeys((*(f"offset_{name}" for name in ARM), "torque_delay"), 0.0),
    "dt": LOOP_STEP,
    "difference_step": None,
}

STUDY = {
    "LoopReach-v0": Scenario("reach", partial(scene, reach_goal), measure=partial(off_goal, middle), **_SHARED),
    "LoopBend-v0": Scenario(
        "bend", partial(scene, bend_goal), measure=partial(off_goal, hand), recorded="LoopReach-v0", **_SHARED
    ),
}
"""Both are recorded alike: a manipulation of the loop."""
