"""Baseline controllers of the elbow's tasks: a reflex that sees the error, and one that does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.simulator import Array

Controller = Callable[[Array], Array]
GAIN, RATE = 0.3, 0.095
"""Excitation per rad of error, and per rad/s."""


def reflex(envs: Any) -> Controller:
    """Excitation = activation +- (gain * error - rate * speed): integrates until the error is zero.

    So it needs no estimate of the load; the muscle that is not needed relaxes.
    """

    def act(observation: Array) -> Array:
        _, speed, biceps, triceps, error = np.asarray(observation, dtype=np.float64).T
        change = GAIN * error - RATE * speed
        excitation = np.stack([biceps + change, triceps - change], axis=1)
        both = np.clip(excitation, 0.0, 1.0)
        return np.asarray(2.0 * both - 1.0)

    return act


def blind(envs: Any) -> Controller:
    """Reflex whose target is always 1.45 rad, the middle of the range."""
    seeing = reflex(envs)

    def act(observation: Array) -> Array:
        blinded = np.array(observation, dtype=np.float64)
        blinded[:, 4] = 1.45 - blinded[:, 0]
        return seeing(blinded)

    return act


CONTROLLERS = {name: {"heuristic": reflex, "blind": blind} for name in ("ArmReach-v0", "ArmHold-v0")}
"""Id -> name -> factory of a policy; see `core.system.System.controllers`."""


def at_target(context: Array) -> Array:
    """The elbow at its target, at rest, with any activations."""
    return np.stack([context[:, 0], np.zeros(len(context)), *np.full((2, len(context)), np.nan)], axis=1)


ENDS = {"ArmReach-v0": at_target, "ArmHold-v0": at_target}
"""Id -> final states; see `core.system.System.ends`."""
PLANNING: dict[str, dict[str, float]] = {
    "ArmHold-v0": {
        "horizon": 12, "knots": 4, "samples": 32, "iterations": 3, "narrowing": 0.4, "replan_every": 1, "temperature": 0.05,
    },
    "ArmReach-v0": {"horizon": 15},
}  # fmt: skip
"""Id -> settings of sampling MPC; see `core.system.System.planning`."""
