"""The rigid system's environments: each function builds a task. See `envs.registry`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...core.errors import OptionError, shown
from ...core.simulator import check_number
from ...core.task import Task
from .model import BlockModel
from .tasks import ReachPose


def sliding_block(
    model: BlockModel,
    *,
    control_period: float = 0.1,
    obs_mode: str = "sensors",
    supports: Sequence[Sequence[float]] | None = None,
    handle: Sequence[float] | None = None,
    goal_distance: Sequence[float] = (0.15, 0.4),
    goal_turn: float = 1.0,
    tolerance: Sequence[float] = (0.02, 0.15),
    control_weight: float = 0.001,
) -> Task:
    """A force at its handle moves a block over a table to a pose ([Berard2008] slide 31).

    Its friction is not observed. With randomize={"friction": (0.15, 0.5)} every episode has its own, and a policy that finds it
    out has an advantage. handle=(0, 0) with goal_turn=0 is the easier task of pushing it to a place.
    The table has no edge.

    Args:
        obs_mode: "sensors" or "state".
        supports: Three points of the block that touch the table, from its centre of mass [m]; None: the model's.
        handle: Where the force acts [m]; None: the model's.
        goal_distance: Distance of the goal from the first pose, (low, high) [m].
        goal_turn: Largest angle of the goal from the first pose [rad].
        tolerance: How near the goal counts as reached, (place [m], angle [rad]).
        control_weight: Weight of the mean squared action.
    """
    model = replace(model, pulley=None)
    if supports is not None:
        model = replace(model, supports=_points(supports))
    if handle is not None:
        model = replace(model, handle=_pair("handle", handle))
    return ReachPose(
        model, control_period, obs_mode, control_weight, goal_distance=_pair("goal_distance", goal_distance),
        goal_turn=goal_turn, tolerance=_pair("tolerance", tolerance),
    )  # fmt: skip


def _points(value: Any) -> Any:
    """Pairs of numbers; () for anything else, which the model refuses."""
    try:
        return tuple((float(x), float(y)) for x, y in value)
    except (TypeError, ValueError):
        return ()


def _pair(name: str, value: Any) -> tuple[float, float]:
    """Two finite numbers."""
    try:
        a, b = value
    except (TypeError, ValueError):
        raise OptionError(f"{name} is {shown(value)}, expected two numbers") from None
    return check_number(f"{name}[0]", a), check_number(f"{name}[1]", b)
