"""Environment of the upper body: a function builds the task. See `envs.registry`."""

from __future__ import annotations

from ...core.simulator import check_flag
from ...core.task import Task
from .model import BodyModel, muscled
from .tasks import UpperBodyReach


def reach(
    model: BodyModel,
    *,
    control_period: float = 0.02,
    goal_distance: float = 0.25,
    goal_effort: float = 0.75,
    tolerance: float = 0.04,
    hold_time: float = 0.3,
    effort_weight: float = 0.05,
    muscles: bool = False,
) -> Task:
    """The right hand of an upper body reaches a point. Actions are torques of all joints of both arms.

    Args:
        goal_distance: Least distance of the goal from the hand's rest [m].
        goal_effort: Largest share of the torques, or of the muscles, that holds the hand at the goal.
        tolerance: Distance at which the goal counts as reached [m].
        hold_time: Time for which it must be held [s].
        effort_weight: Weight of the mean squared action.
        muscles: Whether 14 muscles move the right arm, by their excitations, in place of its torques. Muscles in a
            file always do.
    """
    model = muscled(model) if check_flag("muscles", muscles) else model
    return UpperBodyReach(model, control_period, goal_distance, goal_effort, tolerance, hold_time, effort_weight)
