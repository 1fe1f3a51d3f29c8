"""Controllers that the sliding block is judged by; see `core.system.System.controllers`.

A block that is pulled slowly at a handle off its centre turns about a point behind it, as a trailer does about its axle. So it
is parked as a car is.

Legend: B batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.simulator import Array
from .model import BlockModel
from .tasks import GOAL_THETA, GOAL_X

Policy = Callable[[Any], Array]

AXLE = -0.04
"""Position of the axle from the centre of mass, along the block [m]."""
SPEED, RATE = 0.2, 3.0
"""Largest speed [m/s] and turn rate [rad/s]."""
SLOPE, LEAN = 12.0, 1.2
"""Heading towards the goal's line per distance from it [rad/m], and its limit [rad]."""
BESIDE, ASKEW, SYSTEM = 0.012, 0.1, 0.12
"""Largest distance [m] and angle [rad] of a block that is on the line; distance to shunt beyond the goal [m]."""
SMOOTHING_SPEED = 0.01
"""[m/s] Speed below which friction of supports is smoothed."""


def park(envs: Any, *, turns: bool = True) -> Policy:
    """Shunts to and fro until the block is on the line through the goal, then along it; without `turns`, on any line."""
    model: BlockModel = envs.simulator.model
    parameter_values, period = envs.episodes.simulator.default_parameters, envs.task.control_period
    way = np.zeros(envs.num_envs)

    def act(observation: Any) -> Array:
        state, goal = envs.state[:, :6], envs.context[:, GOAL_X : GOAL_THETA + 1].copy()
        if not turns:
            goal[:, 2] = state[:, 2]
        along, beside, askew = _from_goal(state, goal)
        way[envs.episodes.steps == 0] = 0.0
        way[:] = np.where((way == 0.0) | (np.abs(along) > SYSTEM), -np.sign(along), way)
        wanted = -way * np.clip(SLOPE * beside, -LEAN, LEAN)
        lined = (np.abs(beside) < BESIDE) & (np.abs(askew) < ASKEW)
        forward = np.where(
            lined, np.clip(-3.0 * along, -SPEED, SPEED), way * SPEED * np.maximum(np.cos(wanted - askew), 0.0) ** 2
        )
        turn = np.clip(5.0 * (np.where(lined, 0.0, wanted) - askew), -RATE, RATE)
        return _force(model, parameter_values, state, forward, turn, period) / model.force_limit

    return act


def _from_goal(state: Array, goal: Array) -> tuple[Array, Array, Array]:
    """Position of the axle along and beside the goal's line [m], and the block's angle from it [rad], each (B,)."""
    c, s = np.cos(goal[:, 2]), np.sin(goal[:, 2])
    x = state[:, 0] + AXLE * np.cos(state[:, 2]) - goal[:, 0] - AXLE * c
    y = state[:, 1] + AXLE * np.sin(state[:, 2]) - goal[:, 1] - AXLE * s
    askew = state[:, 2] - goal[:, 2]
    return c * x + s * y, c * y - s * x, np.arctan2(np.sin(askew), np.cos(askew))


def _force(model: BlockModel, parameter_values: Any, state: Array, forward: Array, turn: Array, period: float) -> Array:
    """Force at the handle (B, 2) [N] that gives the axle that speed within a control period, against friction."""
    c, s = np.cos(state[:, 2]), np.sin(state[:, 2])
    ahead = c * state[:, 3] + s * state[:, 4]
    load = parameter_values.friction * parameter_values.mass * parameter_values.gravity * model.shares
    x, y = np.array(model.supports).T
    slide = np.stack([forward[:, None] - turn[:, None] * y, turn[:, None] * (x - AXLE)], axis=2)
    drag = load[:, None] * slide / np.sqrt((slide**2).sum(axis=2, keepdims=True) + SMOOTHING_SPEED**2)
    torque = (x * drag[..., 1] - y * drag[..., 0]).sum(axis=1)
    fx = drag[..., 0].sum(axis=1) + parameter_values.mass * (forward - ahead) / period
    torque = torque + parameter_values.inertia * (turn - state[:, 5]) / period
    hx, hy = model.handle
    return np.clip(np.stack([fx, (torque + hy * fx) / hx], axis=1), -model.force_limit, model.force_limit)


def shove(envs: Any) -> Policy:
    """Brings the block to the goal's position, ignoring its direction."""
    return park(envs, turns=False)


CONTROLLERS: dict[str, dict[str, Callable[[Any], Policy]]] = {"SlidingBlock-v0": {"heuristic": park, "blind": shove}}
"""Id -> name -> controller."""

PLANNING: dict[str, dict[str, float]] = {
    "SlidingBlock-v0": {
        "horizon": 24, "knots": 7, "noise": 0.4, "samples": 64, "iterations": 4, "narrowing": 0.5, "temperature": 0.05,
        "discount": 0.95,
    },
}  # fmt: skip
"""Id -> settings of sampling MPC; see `core.system.System.planning`."""
