"""The vine system's environments: each function builds a task. See `envs.registry`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.errors import OptionError
from ...core.simulator import check_choice
from ...core.task import Task
from .layouts import Clutter, Doors, Gap, Layout, Open, PaperClutter, Plate, Pocket
from .model import VineModel
from .tasks import GOAL_TOLERANCE, REACH, ReachGoal


def grow(
    model: VineModel,
    *,
    control_period: float = 0.1,
    obs_mode: str = "sensors",
    tolerance: float = GOAL_TOLERANCE,
    goal_length: Sequence[float] = (0.45, 1.0),
    control_weight: float = REACH.control_weight,
) -> Task:
    """A vine robot grows to a goal in the open. Its diameter is 24 mm, its length 0.3 m at first and 1.2 m at most.

    Args:
        obs_mode: "sensors" or "state".
        tolerance: The goal is reached within this distance of the tip [m].
        goal_length: Goals are where a bent robot of such a length ends, (low, high) [m].
        control_weight: Weight of the mean squared action.
    """
    layout = Open(interval("goal_length", goal_length, model.link_length, model.max_length))
    return ReachGoal(model, control_period, obs_mode, control_weight, tolerance=tolerance, layout=layout)


def navigate(
    model: VineModel,
    *,
    control_period: float = 0.1,
    obs_mode: str = "sensors",
    clutter: str = "random",
    level: float = 1.0,
    tolerance: float = GOAL_TOLERANCE,
    control_weight: float = REACH.control_weight,
) -> Task:
    """A vine robot grows through the gaps of barriers to a goal. Nine range readings at the tip see 0.5 m far.

    Args:
        obs_mode: "sensors" or "state".
        clutter: "random", barriers with openings, and blocks, anew in every episode; "scattered", blocks only; "pocket", a
            pocket in front of the goal, which has to be avoided from afar; or "paper", the scene of [Jitosho2021] IV-C.
        level: Number of barriers, from 1 to 3; their openings become narrower. An option of `reset` as well. "pocket" and
            "paper" have no levels.
        tolerance: The goal is reached within this distance of the tip [m].
        control_weight: Weight of the mean squared action.
    """
    layout, parameter_values = CLUTTERS[check_choice("clutter", clutter, CLUTTERS)]
    layout, model = furnished(model, layout)
    return ReachGoal(
        model,
        control_period,
        obs_mode,
        control_weight,
        tolerance=tolerance,
        layout=layout,
        level=level,
        parameter_values=parameter_values,
    )


CLUTTERS: dict[str, tuple[Layout, dict[str, float]]] = {
    "random": (Doors(), {}),
    "scattered": (Clutter(), {}),
    "pocket": (Pocket(), {}),
    "paper": (PaperClutter(), {"bending_stiffness": 3.6e-4, "bending_damping": 1e-5}),  # k l of the authors' 12 mm links
}
"""Kinds of clutter, with the parameters of their robots."""


def squeeze(
    model: VineModel,
    *,
    control_period: float = 0.1,
    obs_mode: str = "sensors",
    level: float = 1.0,
    tolerance: float = 0.04,
    control_weight: float = REACH.control_weight,
) -> Task:
    """A vine robot grows through a narrow gap to a goal. The gap between slanted jaws is 28 to 32 mm, the robot 24 mm.

    Args:
        obs_mode: "sensors" or "state".
        level: Divides the free width of the gap, and turns it more, from 1 to 3. An option of `reset` as well.
        tolerance: The goal is reached within this distance of the tip [m].
        control_weight: Weight of the mean squared action.
    """
    layout, model = furnished(model, Gap())
    return ReachGoal(model, control_period, obs_mode, control_weight, tolerance=tolerance, layout=layout, level=level)


def wall(
    model: VineModel,
    *,
    control_period: float = 0.1,
    obs_mode: str = "sensors",
    level: float = 1.0,
    tolerance: float = GOAL_TOLERANCE,
    hold_time: float = 1.5,
    control_weight: float = REACH.control_weight,
) -> Task:
    """A vine robot grows along a wall and around its edge to a goal ([Jitosho2021] IV-B2).

    The range readings show on which side it ends. No free motion leads to the goal, where the tip must stay.

    Args:
        obs_mode: "sensors" or "state".
        level: The wall ends farther aside, from 1 to 3. An option of `reset` as well.
        tolerance: The tip is to stay within this distance of the goal [m].
        hold_time: How long it is to stay there [s].
        control_weight: Weight of the mean squared action.
    """
    layout, model = furnished(model, Plate())
    return ReachGoal(
        model, control_period, obs_mode, control_weight, tolerance=tolerance, hold_time=hold_time, layout=layout, level=level
    )


def furnished(model: VineModel, layout: Layout) -> tuple[Layout, VineModel]:
    """The layout and the robot in it; a robot that brings obstacles, as from a scene file, stays among them.

    Raises:
        OptionError: The layout is not made for this robot.
    """
    if model.obstacles:
        return Open(), model
    if model.max_length < TASK_LENGTH:
        raise OptionError(
            f"max_length of the model is {model.max_length:g} m, this task is for robots of at least {TASK_LENGTH:g} m"
        )
    if model.base != (0.0, 0.0, 0.0):
        raise OptionError(f"base of the model is {model.base}, this task puts its obstacles before a robot at (0, 0, 0)")
    return layout, layout.furnish(model)


TASK_LENGTH = 1.15
"""[m] Least full length of robots for which layouts have goals."""


def interval(name: str, value: Any, lowest: float, highest: float) -> tuple[float, float]:
    """Two numbers [m] with lowest <= low <= high <= highest.

    Raises:
        OptionError: Anything else.
    """
    try:
        low, high = (float(end) for end in value)
    except (TypeError, ValueError):
        low, high = 1.0, 0.0
    if not lowest <= low <= high <= highest:
        raise OptionError(f"{name} is {value!r}, expected (low, high) in [{lowest:g}, {highest:g}] m")
    return low, high
