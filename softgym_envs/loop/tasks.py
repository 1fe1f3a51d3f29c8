"""Tasks of arm and loop: actions are torques beyond those that hold the start, and the loop is not seen.

The arm's own controller (`LoopModel.servo_stiffness`) pulls its joints to the start, so that an arm without actions stays
there. Observation ("sensors", what the arm itself knows, as in [Caldwell2014]): its angles from the start and their speeds, and
what is wanted. "state" gives the loop's angles and speeds too.

Legend: B batch, P constants, k wanted points.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..core.errors import OptionError
from ..core.simulator import Array, check_number
from ..core.task import BoolArray, Entry, Start
from ..mechanics.structure import Skeleton
from .arm_task import ArmTask, motion_entries, rest_under, tree_constants
from .model import ARM
from .sight import watch_goal

GOALS = ("point", "shape")
FAR_GOAL = 0.06
"""How far goals of a point are, unless told [m]."""
TRIES = 12
"""Goals that are drawn at most until one is far enough."""
REACHED = 200
"""Goals that tell whether any can be far enough."""


@dataclass(frozen=True, eq=False)
class LoopReach(ArmTask):
    """Bring a point of the loop, or its whole shape, to a goal and hold it: reward = -distance [m] + bonus - control.

    A goal is the loop at rest under torques that are drawn, so a constant action reaches it. The episode ends when it has been
    held.
    """

    goal: str = "point"
    """"point": the middle of the loop's left side; "shape": all joints of the loop but those in gripper and clamp."""
    goal_distance: float | None = None
    """Least mean distance of the goal from the first state, and from where no action leads [m].

    None: `FAR_GOAL` of a point, and of the whole shape the farthest of `TRIES`.
    """
    goal_action: float = 0.8
    """Largest entry of the constant action that reaches the goal."""
    tolerance: float = 0.02
    """Mean distance at which the goal counts as reached [m]."""
    hold_time: float = 0.5
    """How long it is to be held [s]."""
    control_weight: float = 0.01
    """Weight of the mean squared action."""
    bonus: float = 5.0
    """Reward for holding the goal."""
    spread: float = 0.2
    """First states rest under actions of up to this."""

    success_definition = "The wanted points have been within `tolerance` of the goal, on average, for `hold_time`."

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.goal not in GOALS:
            raise OptionError(f"goal is {self.goal!r}, allowed are {', '.join(GOALS)}")
        for name in ("control_weight", "bonus"):
            check_number(name, getattr(self, name), low=0.0)
        if self.goal_distance is not None:
            check_number("goal_distance", self.goal_distance, low=0.0, unit="m")
        for name in ("goal_action", "spread"):
            check_number(name, getattr(self, name), low=0.0, high=1.0)
        for name in ("tolerance", "hold_time"):
            check_number(name, getattr(self, name), positive=True)

    @cached_property
    def wanted(self) -> np.ndarray:
        """Which of the loop's joints, (k,)."""
        half = self.model.links // 2
        sides = np.concatenate([np.arange(1, half), half + np.arange(1, half)])
        return sides if self.goal == "shape" else np.array([half // 2])

    @cached_property
    def context_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The goal's points [m], mean distance [m], time that it has been held [s], and whether that was long enough."""
        return (*(f"goal{i}.{axis}" for i in self.wanted for axis in "xyz"), "distance", "held", "reached")

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """See the module docstring; goals from where the points rest without action."""
        goal = (Entry(name, "m", -2.0, 2.0, 0.1) for name in self.context_names[:-3])
        return (*motion_entries(self.model, self.obs_mode), *goal)

    def reset(self, start: Start) -> tuple[Array, Array]:
        """See `Task`: at rest near the model's start."""
        columns = tree_constants(self.model, start)
        drawn = np.array([rng.uniform(-self.spread, self.spread, len(ARM)) for rng in start.rngs])
        state = start.state if start.state is not None else np.pad(self.rest(drawn, columns)[0], ((0, 0), (0, self.model.n)))
        idle = self.points(self.rest(np.zeros_like(drawn), columns)[0])
        context = np.zeros((len(state), len(self.context_names)))
        places = self.points(state)
        for row, rng in enumerate(start.rngs):
            context[row, :-3] = self._goal(rng, columns[row], np.array([places[row], idle[row]])).ravel()
        return state, self._watched(context, state, 0.0)

    def rest(self, action: Array, columns: Array) -> tuple[Array, BoolArray]:
        """Where the loop rests under a constant action (B, 7) and constants of the tree (B, P): q (B, n), whether it does."""
        return rest_under(self.model, self.scale_action(action), columns)

    def _goal(self, rng: np.random.Generator, columns: Array, places: Array) -> Array:
        """Points (k, 3) that are far enough from `places` (2, k, 3), or the farthest drawn."""
        best, farthest = places[0], -1.0
        least = self.goal_distance if self.goal_distance is not None else FAR_GOAL if self.goal == "point" else np.inf
        for _ in range(TRIES):
            q, good = self.rest(rng.uniform(-self.goal_action, self.goal_action, (1, len(ARM))), columns[None])
            points = self.points(q)[0]
            distance = np.linalg.norm(points - places, axis=2).mean(axis=1).min()
            if good[0] and distance > farthest:
                best, farthest = points, distance
            if farthest >= least:
                return best
        name, wanted = ("goal_distance", least) if np.isfinite(least) else ("tolerance", self.tolerance)
        if wanted > self._reach:
            raise OptionError(
                f"{name} is {wanted} m, but constant actions of up to {self.goal_action} (goal_action) bring the wanted points "
                f"{self._reach:.3g} m from where no action leads, at most"
            )
        return best

    @cached_property
    def _reach(self) -> float:
        """How far the points of goals are from where no action leads, at most [m]: the farthest of many, usual constants."""
        actions = np.random.default_rng(0).uniform(-self.goal_action, self.goal_action, (REACHED, len(ARM)))
        actions[0] = 0.0
        q, good = self.rest(actions, np.tile(self.model.defaults, (REACHED, 1)))
        points = self.points(q)
        return float(np.linalg.norm(points - points[0], axis=2).mean(axis=1)[good].max(initial=0.0))

    def points(self, state: Array) -> Array:
        """Places of the wanted joints, (B, nx) -> (B, k, 3) [m]."""
        return self.model.mechanism.origins(state[:, : self.model.n])[:, self._joints]

    @cached_property
    def _joints(self) -> np.ndarray:
        """Coordinates whose links begin at the wanted joints, (k,)."""
        return self.model.node_coordinates[self.wanted]

    @cached_property
    def _idle(self) -> Array:
        """Where the points are in the model's rest state, (3 k,)."""
        return self.points(self.model.rest_state()[None])[0].ravel()

    def _watched(self, context: Array, state: Array, period: float) -> Array:
        """With distance, the time within the tolerance, and whether that was long enough, in place."""
        watch_goal(self._skeleton, self._joints, state, context, period, self.tolerance, self.hold_time)
        return context

    @cached_property
    def _skeleton(self) -> Skeleton:
        return self.model.mechanism.structure.skeleton

    def update(self, context: Array, state: Array) -> Array:
        """Distance, the time within the tolerance, and whether that was long enough."""
        return self._watched(context.copy(), state, self.control_period)

    def observe(self, state: Array, context: Array) -> Array:
        """See `entries`."""
        return np.concatenate([*self.motion(state), context[:, :-3] - self._idle], axis=1)

    def reward(self, state: Array, next_state: Array, action: Array, before: Array, after: Array) -> dict[str, Array]:
        """Terms "distance", "reached", "control"; see the class."""
        return {
            "distance": -after[:, -3],
            "reached": self.bonus * (after[:, -1] - before[:, -1]),
            "control": -self.control_weight / len(ARM) * (action * action).sum(axis=1),
        }

    def terminated(self, state: Array, context: Array) -> BoolArray:
        """When the goal has been held."""
        return np.asarray(context[:, -1] > 0)

    def success(self, state: Array, context: Array) -> BoolArray:
        """See `success_definition`."""
        return np.asarray(context[:, -1] > 0)

    def measure(self, state: Array, context: Array) -> dict[str, Array]:
        """Mean distance from the goal [m], and how long it has been held [s]."""
        return {"distance": context[:, -3].copy(), "held": context[:, -2].copy()}

    def draw_hints(self, context: Array) -> dict[str, Array]:
        """The middle of the goal's points."""
        return {"goal": context[:-3].reshape(-1, 3).mean(axis=0)}
