"""The vine room's environments: each function builds a task and the simulator under it. See `envs.registry`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.errors import OptionError
from ..core.simulator import Simulator
from ..core.task import Task
from .layouts import Clutter, Gap, Layout, Open, PaperClutter, WallAhead
from .model import VineModel
from .tasks import REACH, TOLERANCE, ReachGoal


def grow(
    model: VineModel,
    simulate: Callable[[Any], Simulator],
    *,
    control_period: float = 0.1,
    obs_mode: str = "sensors",
    tolerance: float = TOLERANCE,
    goal_length: Sequence[float] = (0.45, 1.0),
    control_weight: float = REACH.control_weight,
) -> tuple[Task, Simulator]:
    """A vine robot of 24 mm diameter grows from 0.3 m to at most 1.2 m and steers its tip to a goal in the open.

    Args:
        model: The robot.
        simulate: Makes the simulator of a model.
        control_period: Time between actions [s].
        obs_mode: "sensors" or "state".
        tolerance: The goal is reached within this distance of the tip [m].
        goal_length: Goals are where a bent robot of such a length ends, (low, high) [m].
        control_weight: Weight of the mean squared action.
    """
    layout = Open(interval("goal_length", goal_length, model.link_length, model.max_length))
    task = ReachGoal(model, control_period, obs_mode, control_weight, tolerance=tolerance, layout=layout)
    return task, simulate(model)


def navigate(
    model: VineModel,
    simulate: Callable[[Any], Simulator],
    *,
    control_period: float = 0.1,
    obs_mode: str = "sensors",
    clutter: str = "random",
    level: float = 1.0,
    tolerance: float = TOLERANCE,
    control_weight: float = REACH.control_weight,
) -> tuple[Task, Simulator]:
    """A vine robot finds its way through clutter to a goal; five range readings at the tip see 0.3 m far.

    Args:
        model: The robot.
        simulate: Makes the simulator of a model.
        control_period: Time between actions [s].
        obs_mode: "sensors" or "state".
        clutter: "random", circles and boxes anew in every episode, or "paper", the scene of [Jitosho2021] IV-C.
        level: Random clutter has 4 x level obstacles, up to 12. An option of `reset` as well.
        tolerance: The goal is reached within this distance of the tip [m].
        control_weight: Weight of the mean squared action.
    """
    if clutter not in CLUTTERS:
        raise OptionError(f"clutter is {clutter!r}, allowed are {', '.join(CLUTTERS)}")
    layout, constants = CLUTTERS[clutter]
    model = layout.furnish(model)
    task = ReachGoal(
        model, control_period, obs_mode, control_weight, tolerance=tolerance, layout=layout, level=level, constants=constants
    )
    return task, simulate(model)


CLUTTERS: dict[str, tuple[Layout, dict[str, float]]] = {
    "random": (Clutter(), {}),
    "paper": (PaperClutter(), {"bending_stiffness": 3.6e-4, "bending_damping": 1e-5}),  # k l of the authors' 12 mm links
}
"""Kinds of clutter, with the constants of their robots."""


def squeeze(
    model: VineModel,
    simulate: Callable[[Any], Simulator],
    *,
    control_period: float = 0.1,
    obs_mode: str = "sensors",
    level: float = 1.0,
    tolerance: float = 0.04,
    control_weight: float = REACH.control_weight,
) -> tuple[Task, Simulator]:
    """A vine robot of 24 mm passes a gap of 26 to 32 mm between slanted jaws, leaning on them, to a goal behind.

    Args:
        model: The robot.
        simulate: Makes the simulator of a model.
        control_period: Time between actions [s].
        obs_mode: "sensors" or "state".
        level: Divides the free width of the gap, from 1 to 3. An option of `reset` as well.
        tolerance: The goal is reached within this distance of the tip [m].
        control_weight: Weight of the mean squared action.
    """
    layout = Gap()
    model = layout.furnish(model)
    task = ReachGoal(model, control_period, obs_mode, control_weight, tolerance=tolerance, layout=layout, level=level)
    return task, simulate(model)


def wall(
    model: VineModel,
    simulate: Callable[[Any], Simulator],
    *,
    control_period: float = 0.1,
    obs_mode: str = "sensors",
    tolerance: float = TOLERANCE,
    control_weight: float = REACH.control_weight,
) -> tuple[Task, Simulator]:
    """A vine robot grows into a wall and slides along it to a goal beside the wall ([Jitosho2021] IV-B2).

    Args:
        model: The robot.
        simulate: Makes the simulator of a model.
        control_period: Time between actions [s].
        obs_mode: "sensors" or "state".
        tolerance: The goal is reached within this distance of the tip [m].
        control_weight: Weight of the mean squared action.
    """
    layout = WallAhead()
    model = layout.furnish(model)
    task = ReachGoal(model, control_period, obs_mode, control_weight, tolerance=tolerance, layout=layout)
    return task, simulate(model)


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
