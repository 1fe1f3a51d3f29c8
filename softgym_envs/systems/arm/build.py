"""Environments of the elbow: each function builds a task. See `envs.registry`."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.errors import StructureError
from ...core.task import Task
from .model import ElbowModel
from .tasks import ArmReach

LOADS: Mapping[str, tuple[float, float]] = {"payload": (0.0, 3.0)}
"""[kg] Range of the hand's load in ArmHold, drawn for every episode."""

BONUS = 25.0
"""Reward for an angle held in ArmHold: more than the cost of the way to the next one, 21 from 1.5 rad in half a second."""

MOVE = 0.5
"""[rad] Least distance between the two angles of ArmHold: no constant excitation holds both."""


def targets_of(model: ElbowModel) -> tuple[float, float]:
    """Range of target angles [rad]: those of the drawn arm, within the range of a user's elbow.

    Raises:
        StructureError: The elbow hardly turns.
    """
    lower, upper = model.limits
    low, high = max(0.7, lower + 0.3), min(2.2, upper - 0.4)
    if high - low < 0.5:
        raise StructureError(
            f"tree {model.tree.name!r}: the elbow turns from {lower:g} to {upper:g} rad; tasks need 0.7 to 1.6"
        )
    return low, high


def reach(
    model: ElbowModel,
    *,
    control_period: float = 0.02,
    tolerance: float = 0.05,
    hold_time: float = 0.3,
    effort_weight: float = 0.05,
) -> Task:
    """Biceps and triceps bring the forearm to a target angle and keep it there.

    Args:
        tolerance: Error within which the target counts as reached [rad].
        hold_time: Time for which it must be held [s].
        effort_weight: Weight of the mean squared excitation.
    """
    return ArmReach(
        model, control_period, targets_of(model), tolerance=tolerance, hold_time=hold_time, effort_weight=effort_weight
    )


def hold(
    model: ElbowModel,
    *,
    control_period: float = 0.02,
    disturbance: float = 0.15,
    randomize: Mapping[str, tuple[float, float]] = LOADS,
    tolerance: float = 0.15,
    hold_time: float = 1.2,
    effort_weight: float = 0.05,
) -> Task:
    """Biceps and triceps hold the forearm with an unknown load against disturbances. The load is 0 to 3 kg.

    Args:
        disturbance: Standard deviation of kicks before every action [rad/s].
        randomize: Parameters drawn for every episode, which are not observed.
        tolerance: Error that counts as held [rad].
        hold_time: Time for which angles must be held, half of it each [s].
        effort_weight: Weight of the mean squared excitation.
    """
    return ArmReach(
        model,
        control_period,
        targets_of(model),
        start_error=(0.0, 0.1),
        tolerance=tolerance,
        hold_time=hold_time,
        effort_weight=effort_weight,
        bonus=BONUS,
        move=MOVE,
    )
