"""Task of the sliding block: bring it to a pose by pulling and pushing at its handle.

Observation ("sensors", what an overhead camera gives): the goal in the block's frame and its direction relative to the block's,
and the block's velocity in its own frame. "state" gives the planar state and the goal in the table's frame instead. Friction is
never observed: with randomize={"friction": (0.15, 0.5)} it differs between episodes, and a policy that identifies it has an
advantage.

Legend: B batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...core.errors import OptionError
from ...core.simulator import Array, check_choice, check_number
from ...core.task import BoolArray, Entry, GoalTask, Start
from ...engines.numba.engine import inner, kernel
from .model import BlockModel

OBS_MODES = ("sensors", "state")
CONTEXT = ("goal_x", "goal_y", "goal_theta", "reached", "distance", "turn", "cost", "lost")
GOAL_X, GOAL_Y, GOAL_THETA, REACHED, DISTANCE, TURN, COST, LOST = range(len(CONTEXT))
TURN_LEVER = 0.1
"""[m/rad] Distance that costs as much as an angle of 1 rad."""
MAX_BLOCK_GOAL = 10.0
"""[m] Largest distance of a goal."""
REST_SPEED = 0.05
"""[m/s] Speed of the block's corners at which it counts as at rest."""
FAST, AWAY = 60.0, 20.0
"""[rad/s, m] Spin, and distance from the goal, beyond which the camera loses the block: its force turns with it."""


@dataclass(frozen=True, eq=False)
class ReachPose(GoalTask):
    """Bring the block to a pose: reward = progress towards it [m] + bonus when it rests there - bonus if it is lost - control.

    Progress reduces the distance of the centre of mass plus `TURN_LEVER` times the angle. The episode ends at the goal. It
    also ends where the camera loses the block: it spins faster than 60 rad/s, or is farther than 20 m from the goal.
    """

    model: BlockModel
    control_period: float = 0.1
    """[s]"""
    obs_mode: str = "sensors"
    """"sensors" or "state"."""
    control_weight: float = 0.001
    """Weight of the mean squared action."""
    tolerance: tuple[float, float] = (0.02, 0.15)
    """Largest distance [m] and angle [rad] at which the goal is reached."""
    bonus: float = 1.0
    """Reward for reaching the goal."""
    goal_distance: tuple[float, float] = (0.15, 0.4)
    """Distance of the goal from the first pose [m]; directions are uniform."""
    goal_turn: float = 1.0
    """[rad] Largest angle from the first pose."""
    place: float = 0.2
    """First poses are within this of the origin, in x and in y [m]; directions are uniform."""
    parameter_values: Mapping[str, float] = field(default_factory=dict)
    """Parameters that the task fixes."""

    option_names = ("goal",)
    context_names = CONTEXT
    action_names = ("force_x", "force_y")
    done_column = REACHED
    success_definition = "The block rests at the goal, within `tolerance` in place and angle, at the end of a control step."

    def __post_init__(self) -> None:
        check_choice("obs_mode", self.obs_mode, OBS_MODES)
        check_number("control_weight", self.control_weight, low=0.0)
        check_number("tolerance in place", self.tolerance[0], positive=True, high=MAX_BLOCK_GOAL, unit="m")
        check_number("tolerance in angle", self.tolerance[1], positive=True, high=np.pi, unit="rad")
        check_number("goal_distance", self.goal_distance[0], low=0.0, high=self.goal_distance[1], unit="m")
        check_number("goal_distance", self.goal_distance[1], high=MAX_BLOCK_GOAL, unit="m")
        check_number("goal_turn", self.goal_turn, low=0.0, high=np.pi, unit="rad")

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """See `Task` and the module docstring."""
        velocity = ("v_ahead", "v_aside") if self.obs_mode == "sensors" else self.model.layout.names[3:5]
        motion = [*(Entry(name, "m/s", -100.0, 100.0) for name in velocity), Entry("omega", "rad/s", -1e3, 1e3)]
        if self.obs_mode == "sensors":
            goal = (Entry(f"goal.{name}", "m", -1e3, 1e3, 0.1) for name in ("ahead", "aside"))
            return (*goal, Entry("goal.cos", "-", -1.0, 1.0), Entry("goal.sin", "-", -1.0, 1.0), *motion)
        pose = [*(Entry(name, "m", -1e3, 1e3, 0.1) for name in ("x", "y")), Entry("theta", "rad", -1e3, 1e3)]
        return (*pose, *motion, *(Entry(f"goal.{e.name}", e.unit, e.low, e.high, e.scale) for e in pose))

    @cached_property
    def disturbance_scale(self) -> Array:
        """Kick of unit size: 1 m/s, and 1 m/s at 0.1 m from the centre."""
        return np.array([0.0, 0.0, 0.0, 1.0, 1.0, 10.0])

    def reset(self, start: Start) -> tuple[Array, Array]:
        """See `Task`; the option "goal" is a pose (3,): x, y [m], theta [rad]."""
        uniform = np.array([2.0 * rng.random(6) - 1.0 for rng in start.rngs])
        planar = np.zeros((len(uniform), 6))
        planar[:, :2], planar[:, 2] = self.place * uniform[:, :2], np.pi * uniform[:, 2]
        state = planar if start.state is None else start.state
        low, high = self.goal_distance
        length = low + (high - low) * 0.5 * (1.0 + uniform[:, 3])
        angle = np.pi * uniform[:, 4]
        context = np.zeros((len(state), len(CONTEXT)))
        context[:, GOAL_X] = state[:, 0] + length * np.cos(angle)
        context[:, GOAL_Y] = state[:, 1] + length * np.sin(angle)
        context[:, GOAL_THETA] = state[:, 2] + self.goal_turn * uniform[:, 5]
        if "goal" in start.options:
            context[:, : GOAL_THETA + 1] = _pose(start.options["goal"])
        return state, self._measured(context, state)

    def _measured(self, context: Array, state: Array) -> Array:
        """Context with distance and angle from the goal, and their cost."""
        after = np.empty_like(context)
        measure_goal(context, state, after)
        return after

    def scale_action(self, action: Array) -> Array:
        """Force = action * force_limit, (B, 2) [N]."""
        return action * self.model.force_limit

    def update(self, context: Array, state: Array) -> Array:
        """Distance, angle, and whether the goal has been reached."""
        after = np.empty_like(context)
        progress(context, state, self.tolerance, after)
        return after

    def observe(self, state: Array, context: Array) -> Array:
        """See `entries`."""
        if self.obs_mode == "state":
            return np.concatenate([state, context[:, : GOAL_THETA + 1]], axis=1)
        seen = np.empty((len(state), 7))
        look(context, state, seen)
        return seen

    def reward(self, state: Array, next_state: Array, action: Array, before: Array, after: Array) -> dict[str, Array]:
        """Terms "progress", "reached", "lost", "control"; see the class."""
        found = np.empty((4, len(action)))
        terms(action, before, after, self.bonus, -0.5 * self.control_weight, found)
        return {"progress": found[0], "reached": found[1], "lost": found[2], "control": found[3]}

    def terminated(self, state: Array, context: Array) -> BoolArray:
        """Whether the goal has been reached, or the block lost."""
        return np.asarray((context[:, REACHED] > 0.0) | (context[:, LOST] > 0.0))

    def measure(self, state: Array, context: Array) -> dict[str, Array]:
        """Distance [m] and angle [rad] from the goal."""
        return {"distance": context[:, DISTANCE], "turn": context[:, TURN]}

    def draw_hints(self, context: Array) -> dict[str, Array]:
        """The goal's pose."""
        return {"pose": context[: GOAL_THETA + 1].copy()}


# --- Kernels: a dozen NumPy calls on a row cost more than the physics --------------------------------------------------


@inner
def _goal(context, state, after, b):  # type: ignore[no-untyped-def]
    """Row b of a context, with distance and angle from the goal, and their cost."""
    for k in range(context.shape[1]):
        after[b, k] = context[b, k]
    x, y = context[b, GOAL_X] - state[b, 0], context[b, GOAL_Y] - state[b, 1]
    turn = context[b, GOAL_THETA] - state[b, 2]
    after[b, DISTANCE] = np.sqrt(x * x + y * y)
    after[b, TURN] = abs(np.arctan2(np.sin(turn), np.cos(turn)))
    after[b, COST] = after[b, DISTANCE] + TURN_LEVER * after[b, TURN]


@kernel
def measure_goal(context, state, after):  # type: ignore[no-untyped-def]
    """See `ReachPose._measured`."""
    for b in range(len(context)):
        _goal(context, state, after, b)


@kernel
def progress(context, state, tolerance, after):  # type: ignore[no-untyped-def]
    """See `ReachPose.update`."""
    for b in range(len(context)):
        _goal(context, state, after, b)
        speed = np.sqrt(state[b, 3] ** 2 + state[b, 4] ** 2) + TURN_LEVER * abs(state[b, 5])
        if after[b, DISTANCE] <= tolerance[0] and after[b, TURN] <= tolerance[1] and speed <= REST_SPEED:
            after[b, REACHED] = 1.0
        if abs(state[b, 5]) > FAST or after[b, DISTANCE] > AWAY:
            after[b, LOST] = 1.0


@kernel
def look(context, state, seen):  # type: ignore[no-untyped-def]
    """See the module docstring, "sensors"."""
    for b in range(len(context)):
        c, s = np.cos(state[b, 2]), np.sin(state[b, 2])
        x, y = context[b, GOAL_X] - state[b, 0], context[b, GOAL_Y] - state[b, 1]
        turn, vx, vy = context[b, GOAL_THETA] - state[b, 2], state[b, 3], state[b, 4]
        seen[b, 0], seen[b, 1] = c * x + s * y, c * y - s * x
        seen[b, 2], seen[b, 3] = np.cos(turn), np.sin(turn)
        seen[b, 4], seen[b, 5], seen[b, 6] = c * vx + s * vy, c * vy - s * vx, state[b, 5]


@kernel
def terms(action, before, after, bonus, weight, found):  # type: ignore[no-untyped-def]
    """See `ReachPose.reward`."""
    for b in range(len(action)):
        found[0, b] = before[b, COST] - after[b, COST]
        found[1, b] = bonus * (after[b, REACHED] - before[b, REACHED])
        found[2, b] = -bonus * (after[b, LOST] - before[b, LOST])
        found[3, b] = weight * (action[b, 0] ** 2 + action[b, 1] ** 2)


def _pose(value: Any) -> Array:
    """An option as a pose."""
    try:
        pose = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        pose = np.full(1, np.nan)
    if pose.shape != (3,) or not np.isfinite(pose).all():
        raise OptionError(f"option 'goal' is {value!r}, expected (3,): x, y [m], theta [rad]")
    return pose
