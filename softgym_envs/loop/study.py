"""Arm and loop in transfer studies: a point of the loop, which nothing measures, or the hand is brought to a goal and held.

Both worlds take steps of 2 ms, the coarsest that MuJoCo bears. Controls are torques beyond those that hold the start
(`LoopModel.command_limit`), so that no control is an arm that stays. Legend: B rows, T control steps, nx state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..core.objective import Objective
from ..core.parameters import Parameters
from ..core.scenario import Scenario, Scene
from ..core.simulator import Array, Simulator
from .bend import KEPT, LEVER, PERIOD, TIME, LoopBend, rotation_vector
from .build import held
from .model import ARM, LoopModel
from .tasks import INCREMENT, LoopReach, rest_under

DT = 0.002
"""[s]"""
FAR = 0.8
"""Of the action that reaches the goal."""
BENT = (0.03, 0.05, -0.05, 0.2)
"""Stretch, bend along x and y [m], twist [rad] of LoopBend's goal."""
SPREAD = 0.2
"""Starts rest under actions of up to this."""


def commanded() -> LoopModel:
    """The robot of the tasks, with controls beyond those that hold the start."""
    return replace(held(LoopModel(12)), command_limit=tuple(float(limit) for limit in INCREMENT))


def middle(model: LoopModel, states: Array) -> Array:
    """The middle of the loop's left side, (..., nx) -> (..., 3) [m]."""
    rows = np.ascontiguousarray(states.reshape(-1, states.shape[-1])[:, : model.n])
    return model.mechanism.origins(rows)[:, model.node_coordinates[model.links // 4]].reshape(*states.shape[:-1], 3)


def hand(model: LoopModel, states: Array) -> Array:
    """Place of the hand and `LEVER` times its turn since the start, (..., nx) -> (..., 6) [m]."""
    rows = np.ascontiguousarray(states.reshape(-1, states.shape[-1])[:, : model.n])
    turn, place = model.mechanism.pose("H", rows)
    first, _ = model.mechanism.pose("H", model.rest_state()[None, : model.n])
    turned = LEVER * rotation_vector(turn @ first[0].T)
    return np.concatenate([place, turned], axis=1).reshape(*states.shape[:-1], 6)


REACH = Objective(middle, weights=(100.0,) * 3, control_weight=0.002)
BEND = Objective(hand, weights=(100.0,) * 6, control_weight=0.002)


def reach_scene() -> Scene:
    """A goal that a constant action reaches with the truth's constants, 6 cm or more from the start."""
    model, rng = commanded(), np.random.default_rng(7)
    first = middle(model, model.rest_state()[None])[0]
    while True:
        q, good = _rest(model, rng.uniform(-FAR, FAR, (1, len(ARM))), model.defaults[None])
        goal = middle(model, q)[0]
        if good[0] and np.linalg.norm(goal - first) >= LoopReach.goal_distance:
            return Scene(model, goal)


def bend_scene() -> Scene:
    """The far end of a profile of LoopBend."""
    model = commanded()
    task, context = LoopBend(model), np.zeros((1, KEPT + 1))
    context[0, :4], context[0, PERIOD], context[0, TIME] = BENT, 4.0, 2.0
    q = np.zeros((1, model.n))
    q[:, : len(ARM)] = task.profile(context)
    return Scene(model, hand(model, q)[0])


def _rest(model: LoopModel, action: Array, columns: Array) -> tuple[Array, Any]:
    """Where the loop rests under actions (B, 7): q (B, n), and whether it does."""
    return rest_under(model, action * INCREMENT, columns)


def starts(engine: Simulator, parameters: Parameters, rng: np.random.Generator, count: int) -> Array:
    """At rest under small random actions; the first one without."""
    robot: Any = engine
    model: LoopModel = robot.model
    actions = rng.uniform(-SPREAD, SPREAD, (count, len(ARM)))
    actions[:1] = 0.0
    q, _ = _rest(model, actions, robot.tree_constants(parameters, count))
    return np.pad(q, ((0, 0), (0, model.n)))


def off_goal(feature: Callable[[Any, Array], Array], model: LoopModel, target: Array, states: Array) -> Mapping[str, Array]:
    """Distance of a feature from the goal [m]: at the end, and on average over the second half."""
    off = np.linalg.norm(feature(model, states) - target, axis=-1)
    return {"last [m]": off[:, -1], "late [m]": off[:, off.shape[1] // 2 :].mean(axis=1)}


_SHARED: dict[str, Any] = {"starts": starts, "dt": DT, "difference_step": None}

STUDY = {
    "LoopReach-v0": Scenario("reach", reach_scene, measure=partial(off_goal, middle), **_SHARED),
    "LoopBend-v0": Scenario("bend", bend_scene, measure=partial(off_goal, hand), recorded="LoopReach-v0", **_SHARED),
}
"""Both are recorded alike: a manipulation of the loop."""
