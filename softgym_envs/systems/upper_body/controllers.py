"""Baseline controllers of the upper body's task: inverse kinematics with springs, and the same without sight of the goal.

With muscles see `muscle_control`.

Legend: B rows, n joints.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.simulator import Array
from .muscle_control import reach_by_muscles

Controller = Callable[[Array], Array]
FREQUENCY, RATIO = 10.0, 0.3
"""[rad/s], [-] Frequency of the controller's springs, and their damping ratio in addition to the joints' own dampers."""
GUESS = (0.3, -0.25, -0.2)
"""[m] A goal in the middle of all goals."""


def reach(envs: Any, *, sees: bool = True) -> Controller:
    """Torques that hold the body in place, with springs and dampers towards a pose that brings the hand to the goal.

    The pose is found when an episode begins, with default parameters.
    """
    episodes = envs.episodes
    model = episodes.task.model
    if model.muscles is not None:
        return reach_by_muscles(envs, None if sees else GUESS)
    n, rows = model.n, len(episodes.state)
    full = model.mechanism.slopes(model.rest[None], np.zeros((1, n)), model.defaults).vv[0]
    mass = 1.0 / np.diag(np.linalg.inv(full))  # inertia of a joint while the others are free
    stiffness, damping = FREQUENCY**2 * mass, 2 * RATIO * FREQUENCY * mass
    wanted, begun = np.zeros((rows, n)), np.zeros(rows, dtype=bool)

    def act(observation: Array) -> Array:
        fresh = np.flatnonzero((episodes.steps == 0) | ~begun)
        if len(fresh):
            points = episodes.context[fresh, :3] if sees else np.tile(GUESS, (len(fresh), 1))
            wanted[fresh], begun[fresh] = model.reaching(points)[0], True
        seen = np.asarray(observation, dtype=np.float64)
        q = np.ascontiguousarray(seen[:, :n])
        v = np.ascontiguousarray(seen[:, n : 2 * n])
        torque = model.holding(q) + stiffness * (wanted - q) - damping * v
        low, high = model.control_bounds
        return np.asarray(np.clip(2.0 * (torque - low) / (high - low) - 1.0, -1.0, 1.0), dtype=np.float32)

    return act


def blind(envs: Any) -> Controller:
    """Controller as `reach`, whose goal is always `GUESS`."""
    return reach(envs, sees=False)


CONTROLLERS = {"UpperBodyReach-v0": {"heuristic": reach, "blind": blind}}
"""Id -> name -> factory of a policy; see `core.system.System.controllers`."""

PLANNING: dict[str, dict[str, float]] = {
    "UpperBodyReach-v0": {"horizon": 12, "knots": 2, "iterations": 3, "narrowing": 0.4, "temperature": 0.05}
}
"""Id -> settings of sampling MPC; see `core.system.System.planning`."""
