"""Controllers that the loop's tasks are judged by; see `core.room.Room.controllers`.

Each is a function of a vector environment, which it may look into. Legend: B rows, T control steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.simulator import Array
from .model import ARM
from .tasks import INCREMENT

Policy = Callable[[Array], Array]

EXCITATION = np.array(
    [
        [0, 0, 0, 0, 0, 0, 0],
        [-1, -1, -1, -1, -1, -1, 1],
        [-1, 1, -1, -1, 1, -1, 1],
        [1, -1, 1, 1, 1, 1, 1],
        [1, 1, -1, 1, -1, 1, -1],
        [1, -1, 1, 1, 1, 1, -1],
    ],
    dtype=np.float64,
)
"""Poses that tell the stiffnesses apart: of 209 sequences, drawn and changed, that with the smallest standard deviations."""
RAMP = 0.5
"""Share of the time between two poses that is spent on the way: jumps are more than a soft loop bears."""


def excite(envs: Any) -> Policy:
    """Goes from pose to pose of `EXCITATION`, spread over the episode, whatever it feels."""
    task, step = envs.episodes.task, iter(range(10**9))

    def act(observation: Array) -> Array:
        place = min(next(step) / task.steps * (len(EXCITATION) - 1), len(EXCITATION) - 1 - 1e-9)
        first = int(place)
        share = 0.5 - 0.5 * np.cos(np.pi * min((place - first) / RAMP, 1.0))
        action = (1.0 - share) * EXCITATION[first] + share * EXCITATION[first + 1]
        return np.tile(action, (len(observation), 1)).astype(np.float32)

    return act


def push(envs: Any) -> Policy:
    """Holds one pose, whatever it feels."""
    return lambda observation: np.full((len(observation), len(ARM)), 0.5, dtype=np.float32)


def track(envs: Any) -> Policy:
    """Torques that hold the arm where the profile is, at rest, and those of its damping; knows the profile, not the loop."""
    episodes = envs.episodes
    task, model = episodes.task, episodes.task.model
    lead, period = 0.5 * task.control_period, task.control_period

    def act(observation: Array) -> Array:
        context = episodes.context
        now, later = task.profile(context, lead), task.profile(context, lead + period)
        needed = model.relax(now, np.tile(model.defaults, (len(now), 1)))[1]
        damping = (model.servo_damping + 0.7) * (later - now) / period
        return np.clip((needed - model.hold + damping) / INCREMENT, -1.0, 1.0).astype(np.float32)

    return act


CONTROLLERS: dict[str, dict[str, Callable[[Any], Policy]]] = {
    "LoopBend-v0": {"heuristic": track, "blind": push},
    "LoopIdentify-v0": {"heuristic": excite, "blind": push},
}
"""Id -> name -> controller."""
