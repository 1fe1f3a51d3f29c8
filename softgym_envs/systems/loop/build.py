"""The loop system's environments: each function builds a task. See `envs.registry`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...core.errors import OptionError
from ...core.parameters import ParameterDistribution
from ...core.task import Task
from .bend import LoopBend
from .identify import HIDDEN, LoopIdentify
from .model import LoopModel
from .peg import LoopPeg, PegPlaces
from .tasks import LoopReach

STIFFNESS = (60.0, 60.0, 50.0, 50.0, 16.0, 16.0, 8.0)
"""[N m/rad] Stiffness of the arm's own controller unless the model has one: an action of 1 moves a joint by 0.2 to 0.25 rad."""
DAMPING = 5.0
"""[N m s/rad]"""
PEGS = PegPlaces()


def held(model: LoopModel) -> LoopModel:
    """The model with the arm's own controller."""
    return model if any(model.servo_stiffness) else replace(model, servo_stiffness=STIFFNESS, servo_damping=DAMPING)


def reach(
    model: LoopModel,
    *,
    control_period: float = 0.05,
    obs_mode: str = "sensors",
    goal: str = "point",
    goal_distance: float | None = None,
    goal_action: float = 1.0,
    tolerance: float = 0.02,
    hold_time: float = 2.0,
    control_weight: float = 0.01,
) -> Task:
    """An arm brings a point or the shape of a clamped loop to a goal. It observes its own joints only.

    Its controls are torques beyond those that hold the start; the arm's own weak controller keeps it from falling.

    Args:
        obs_mode: "sensors" (the arm's angles and speeds, and the goal) or "state" (those of the loop too).
        goal: "point", the middle of the loop's left side, or "shape", all its free joints.
        goal_distance: Least mean distance of the goal from the first state, and from rest without action [m]; none: 0.06 m for
            a point, and for the whole shape the farthest of 12 drawn goals.
        goal_action: Largest entry of the constant action that reaches the goal.
        tolerance: Mean distance at which the goal counts as reached [m].
        hold_time: Time for which the goal must be held [s].
        control_weight: Weight of the mean squared action.
    """
    model = held(model)
    return LoopReach(
        model, control_period, obs_mode, control_weight, goal=goal, goal_distance=goal_distance,
        goal_action=goal_action, tolerance=tolerance, hold_time=hold_time,
    )  # fmt: skip


def bend(
    model: LoopModel,
    *,
    control_period: float = 0.05,
    obs_mode: str = "sensors",
    duration: float = 8.0,
    periods: Sequence[float] = (3.0, 5.0),
    tolerance: float = 0.01,
    control_weight: float = 0.01,
) -> Task:
    """An arm stretches, bends and twists a clamped loop. Its hand follows a drawn profile, within torque limits.

    Its controls are torques beyond those that hold the start; the arm's own weak controller keeps it from falling.

    Args:
        obs_mode: "sensors" (the arm's angles and speeds, and the profile) or "state" (those of the loop too).
        duration: Length of the profile [s]; a shorter limit of the episode ends it before.
        periods: Shortest and longest period [s].
        tolerance: Mean error up to which a profile counts as followed [m].
        control_weight: Weight of the mean squared action.
    """
    try:
        shortest, longest = (float(end) for end in periods)
    except (TypeError, ValueError):
        raise OptionError(f"periods is {periods!r}, expected two numbers [s]") from None
    model = held(model)
    return LoopBend(
        model, control_period, obs_mode, control_weight,
        duration=duration, periods=(shortest, longest), tolerance=tolerance,
    )  # fmt: skip


def identify(
    model: LoopModel,
    *,
    control_period: float = 0.02,
    randomize: ParameterDistribution = HIDDEN,
    obs_mode: str = "sensors",
    duration: float = 4.0,
    angle_noise: float = 0.001,
    tolerance: float = 0.03,
    control_weight: float = 0.005,
) -> Task:
    """An arm bends a clamped loop to learn its stiffness, within a load limit. The reward is information.

    It measures its own noisy angles, and torques. Both stiffnesses (1 to 8 and 0.4 to 2.4 N m/rad) and the offsets of its
    torque sensors (0.2 N m) are hidden. A loop kinks where a joint has more than 0.7 N m about theta or 0.25 N m about psi;
    its stiffness counts as known only if its moments reached 80 % of that.

    Args:
        randomize: Parameters that are hidden, and drawn for every episode by its runner.
        obs_mode: "sensors" (measured angles, torques, and the current estimate) or "state" (true angles and speeds too).
        duration: Length of an episode [s]; a shorter limit of the episode ends it before, without an answer.
        angle_noise: Standard deviation of a measured angle [rad].
        tolerance: Relative error of either stiffness up to which it counts as known, and half width of its 95 % interval.
        control_weight: Weight of the mean squared action.
    """
    model = held(model)
    return LoopIdentify(
        model, control_period, obs_mode, control_weight, duration=duration, angle_noise=angle_noise, tolerance=tolerance
    )


def peg(
    model: LoopModel,
    *,
    control_period: float = 0.05,
    randomize: ParameterDistribution = PEGS,
    obs_mode: str = "sensors",
    depth: float = 0.01,
    hold_time: float = 1.0,
    control_weight: float = 0.01,
) -> Task:
    """An arm slips a flexible loop over a peg and keeps it there. The loop hangs from its hand and touches the peg.

    The peg is horizontal, off the rim of the loop, at a place that is drawn for every episode.

    Args:
        randomize: Places of pegs (the parameters of the clamp's pose), drawn for every episode by its runner.
        obs_mode: "sensors" (the arm's angles, speeds and torques, and the tip's place) or "state" (the loop's motion too).
        depth: Least distance of all joints of the loop beyond the tip [m].
        hold_time: Time for which the loop must stay around the peg [s].
        control_weight: Weight of the mean squared action.
    """
    model = held(model)
    return LoopPeg(model, control_period, obs_mode, control_weight, depth=depth, hold_time=hold_time)
