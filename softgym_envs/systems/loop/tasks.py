"""Tasks of arm and loop: actions are torques beyond those that hold the start, and the loop is not seen.

The arm's own controller (`LoopModel.servo_stiffness`) pulls its joints to the start, so that an arm without actions stays
there. Observation ("sensors", what the arm itself measures, as in [Caldwell2014]): its angles from the start and their speeds,
and the goal. "state" adds the loop's angles and speeds.

Legend: B batch, P parameters, k wanted points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.errors import OptionError
from ...core.simulator import Array, check_choice, check_number, check_place
from ...core.task import BoolArray, Entry, Start
from ...engines.numba.engine import plain
from .arm_task import ArmTask, motion_entries, rest_under, tree_constants
from .model import ARM
from .observation import watch_goal

GOALS = ("point", "shape")
MAX_LOOP_GOAL = 2.0
"""[m] Bound of the goals' coordinates."""
FAR_GOAL = 0.06
"""Default distance of goals of a point [m]."""
TRIES = 12
"""Most goals that are drawn until one is far enough."""
REACHED = 200
"""Goals by which is checked whether any can be far enough."""


@dataclass(frozen=True, eq=False)
class LoopReach(ArmTask):
    """Bring a point of the loop, or its whole shape, to a goal and hold it: reward = -distance [m] + bonus - control.

    A goal is the loop at rest under torques that are drawn, so a constant action reaches it. The episode ends when it has been
    held.
    """

    goal: str = "point"
    """"point": the middle of the loop's left side; "shape": all joints of the loop but those in gripper and clamp."""
    goal_distance: float | None = None
    """Least mean distance of the goal from the first state, and from the rest without action [m].

    None: `FAR_GOAL` for a point, and for the whole shape the farthest of `TRIES`.
    """
    goal_action: float = 1.0
    """Largest entry of the constant action that reaches the goal."""
    tolerance: float = 0.02
    """Mean distance at which the goal counts as reached [m]."""
    hold_time: float = 2.0
    """Time for which it must be held [s]."""
    spread: float = 0.2
    """Largest action under which first states rest."""

    option_names = ("goal",)
    done_column = -1
    success_definition = "The wanted points have been within `tolerance` of the goal, on average, for `hold_time`."

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("goal", self.goal, GOALS)
        for name in ("control_weight", "bonus"):
            check_number(name, getattr(self, name), low=0.0)
        if self.goal_distance is not None:
            check_number("goal_distance", self.goal_distance, low=0.0, unit="m")
        for name in ("goal_action", "spread"):
            check_number(name, getattr(self, name), low=0.0, high=1.0)
        check_number("hold_time", self.hold_time, positive=True, unit="s")
        check_number("tolerance", self.tolerance, positive=True, unit="m")
        if self.tolerance > FAR_GOAL:
            check_number("tolerance", self.tolerance, high=self._reach, unit="m")

    @cached_property
    def wanted(self) -> np.ndarray:
        """Indices of the wanted joints of the loop, (k,)."""
        half = self.model.links // 2
        sides = np.concatenate([np.arange(1, half), half + np.arange(1, half)])
        return sides if self.goal == "shape" else np.array([half // 2])

    @cached_property
    def context_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The goal's points [m], mean distance [m], time for which it has been held [s], and whether that was long enough."""
        return (*(f"goal{i}.{axis}" for i in self.wanted for axis in "xyz"), "distance", "held", "reached")

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """See the module docstring; goals from where the points rest without action."""
        goal = (Entry(name, "m", -MAX_LOOP_GOAL, MAX_LOOP_GOAL, 0.1) for name in self.context_names[:-3])
        return (*motion_entries(self.model, self.obs_mode), *goal)

    def reset(self, start: Start) -> tuple[Array, Array]:
        """See `Task`: at rest near the model's start; the option "goal" is (3,), or of a shape (k, 3) [m]."""
        columns = tree_constants(self.model, start)
        drawn = np.array([rng.uniform(-self.spread, self.spread, len(ARM)) for rng in start.rngs])
        state = start.state if start.state is not None else np.pad(self.rest(drawn, columns)[0], ((0, 0), (0, self.model.n)))
        idle = self.points(self.rest(np.zeros_like(drawn), columns)[0])
        context = np.zeros((len(state), len(self.context_names)))
        context[:, :-3] = self._goals(start.rngs, columns, np.stack([self.points(state), idle], axis=1)).reshape(len(state), -1)
        if "goal" in start.options:
            shape = (3,) if self.goal == "point" else (len(self.wanted), 3)
            context[:, :-3] = check_place("option 'goal'", start.options["goal"], shape, MAX_LOOP_GOAL).ravel()
        return state, self._watched(context, state, 0.0)

    def rest(self, action: Array, columns: Array) -> tuple[Array, BoolArray]:
        """Rest of the loop under a constant action (B, 7) and parameters of the tree (B, P): q (B, n), whether it was found."""
        return rest_under(self.model, self.scale_action(action), columns)

    def _goals(self, rngs: Sequence[np.random.Generator], columns: Array, places: Array) -> Array:
        """Draw goals (B, k, 3) far enough from `places` (B, 2, k, 3), or keep the farthest; rows draw independently."""
        best, farthest = places[:, 0].copy(), np.full(len(places), -1.0)
        least = self.goal_distance if self.goal_distance is not None else FAR_GOAL if self.goal == "point" else np.inf
        rows = np.arange(len(places))
        for _ in range(TRIES):
            drawn = np.array([rngs[int(row)].uniform(-self.goal_action, self.goal_action, len(ARM)) for row in rows])
            q, good = self.rest(drawn, columns[rows])
            points = self.points(q)
            distance = np.linalg.norm(points[:, None] - places[rows], axis=3).mean(axis=2).min(axis=1)
            better = good & (distance > farthest[rows])
            best[rows[better]], farthest[rows[better]] = points[better], distance[better]
            rows = rows[farthest[rows] < least]
            if not len(rows):
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
        """Largest distance of goals from the rest without action [m]: over `REACHED` of them, default parameters."""
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
        """Points in the model's rest state (3 k,)."""
        return self.points(self.model.rest_state()[None])[0].ravel()

    @cached_property
    def _goal_columns(self) -> NDArray[np.int64]:
        return np.arange(len(self._idle))

    def _watched(self, context: Array, state: Array, period: float) -> Array:
        """Update distance, the time within the tolerance, and whether that was long enough, in place."""
        watch_goal(self._skeleton, self._joints, state, context, period, self.tolerance, self.hold_time)
        return context

    @cached_property
    def _skeleton(self) -> Any:
        return plain(self.model.mechanism.structure.skeleton.up_to(int(self._joints.max())))

    def update(self, context: Array, state: Array) -> Array:
        """Update distance, the time within the tolerance, and whether that was long enough."""
        return self._watched(context.copy(), state, self.control_period)

    def observe(self, state: Array, context: Array) -> Array:
        """See `entries`."""
        return self.felt(state, context, self._goal_columns, self._idle)

    def reward(self, state: Array, next_state: Array, action: Array, before: Array, after: Array) -> dict[str, Array]:
        """Terms "distance", "reached", "control"; see the class."""
        last = after.shape[1]
        found = self.terms(action, before, after, last - 3, last - 1)
        return {"distance": found[0], "reached": found[1], "control": found[2]}

    def measure(self, state: Array, context: Array) -> dict[str, Array]:
        """Mean distance from the goal [m], and time for which it has been held [s]."""
        return {"distance": context[:, -3], "held": context[:, -2]}

    def draw_hints(self, context: Array) -> dict[str, Array]:
        """Middle of the goal's points."""
        return {"goal": context[:-3].reshape(-1, 3).mean(axis=0)}
