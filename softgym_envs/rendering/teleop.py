"""Turns pressed keys into an action, by a system's `Picture`; it knows no robot.

Actions are in -1 ... 1, one per control. Legend: na actions.
"""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Any

import numpy as np

from ..core.simulator import Array
from .picture import Picture

ARROWS = {"up": (1.0, 0.0), "down": (-1.0, 0.0), "left": (0.0, 1.0), "right": (0.0, -1.0)}
"""Key -> direction: away from the viewer, and to the left."""
GROUP_KEYS = tuple("123456")


def keyed_action(picture: Picture, model: Any, state: Array, pressed: Set[str], view: float) -> Array:
    """The action (na,) of the pressed keys; that of rest while space is down.

    Args:
        picture: Picture of the robot's system.
        model: The robot.
        state: One state (nx,).
        pressed: Names of the keys that are down.
        view: Azimuth in which the viewer looks [rad]; "up" is away from the viewer.
    """
    action = picture.rest_action(model)
    if "space" in pressed:
        return action
    away, left = (sum(ARROWS[key][i] for key in ARROWS if key in pressed) for i in (0, 1))
    if away or left:
        angle = view + np.arctan2(left, away)
        action = picture.heading_action(model, state, np.array([np.cos(angle), np.sin(angle)]))
    groups = tuple(int(key) - 1 for key in pressed if key in GROUP_KEYS)
    return np.clip(action + pull_groups(len(action), groups, len(GROUP_KEYS)), -1.0, 1.0)


def pull_groups(count: int, pulled: tuple[int, ...], groups: int = 6) -> Array:
    """-1 for the controls of the groups named in `pulled`, 0 for the others, (count,).

    Controls are dealt out to groups in their order; with fewer controls than groups some groups are empty.

    >>> pull_groups(8, (0, 2), groups=4).tolist()
    [-1.0, -1.0, 0.0, 0.0, -1.0, -1.0, 0.0, 0.0]
    """
    action = np.zeros(count)
    for group, members in enumerate(np.array_split(np.arange(count), groups)):
        if group in pulled:
            action[members] = -1.0
    return action


def ramp(action: Array, target: Array, period: float, time_constant: float = 0.2) -> Array:
    """First-order approach, a + (1 - exp(-period / time_constant)) (target - a); times in s.

    >>> round(float(ramp(np.zeros(1), np.ones(1), 0.2)[0]), 3)
    0.632
    """
    return action + (1.0 - math.exp(-period / time_constant)) * (target - action)
