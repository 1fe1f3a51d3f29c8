"""Task of the upper body: the right hand goes to a point and stays there.

Actions are torques over the joints' efforts; without them, springs and gravity carry the body back to its rest.
With muscles, actions of the right arm are excitations, off at -1.
Observation ("sensors"): angles and speeds of all joints, activations of the muscles if there are any, the goal relative to the
hand's rest, and relative to the hand. Legend: B batch, n joints.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...core.errors import OptionError
from ...core.simulator import Array, check_number, check_place
from ...core.task import BoolArray, Entry, GoalTask, Start
from ...engines.numba.observation import joined
from .model import HAND, BodyModel
from .observation import BodyHand, hand_of, reach_terms, watch_hand
from .sharing import share

DISTANCE, HELD, REACHED = 3, 4, 5
"""Columns in the context, behind the goal."""
SEEN_COLUMNS = np.array([0, 1, 2, 6, 7, 8])
"""The goal, and the way to it."""
MAX_HAND_GOAL = 3.0
"""[m] Bound of the goals' coordinates."""
GOALS_AT_ONCE = 20
"""Goals that are drawn at once; the first suitable one is taken."""
SEARCHED = 1000
"""Most goals that are drawn."""
MISSING = 0.5
"""Torque that muscles may lack to hold a goal [N m]."""


@dataclass(frozen=True, eq=False)
class UpperBodyReach(GoalTask):
    """Bring the right hand to a point and keep it there: reward = -distance [m] + bonus - effort.

    A goal is the hand's place in a pose that is drawn within the joints' limits, and that `goal_effort` of the torques,
    or of the muscles, holds. Stops keep the joints within their limits, in both simulators.

    Raises:
        OptionError: A number is not allowed, or no goal is far enough and held by so little effort.
    """

    model: BodyModel
    control_period: float = 0.02
    """[s]"""
    goal_distance: float = 0.25
    """Least distance of the goal from the hand's rest [m]."""
    goal_effort: float = 0.75
    """Largest share of the torques, or of the muscles' activations, that holds the hand at the goal."""
    tolerance: float = 0.04
    """Distance at which the goal counts as reached [m]."""
    hold_time: float = 0.3
    """Time for which it must be held [s]."""
    effort_weight: float = 0.05
    """Weight of the mean squared action."""
    bonus: float = 5.0
    """Reward for having held the goal."""
    spread: float = 0.1
    """Largest distance of the first angles from rest [rad]."""

    context_names = ("goal.x", "goal.y", "goal.z", "distance", "held", "reached", "off.x", "off.y", "off.z")
    option_names = ("goal",)
    done_column = REACHED
    success_definition = "The hand has been within `tolerance` of the goal for `hold_time`."

    def __post_init__(self) -> None:
        for name in ("goal_distance", "effort_weight", "bonus", "spread"):
            check_number(name, getattr(self, name), low=0.0)
        check_number("goal_effort", self.goal_effort, positive=True, high=1.0)
        check_number("hold_time", self.hold_time, positive=True, unit="s")
        check_number("tolerance", self.tolerance, positive=True, unit="m")
        self._goal(np.random.default_rng(0))
        if self.tolerance > self.goal_distance:
            farthest = self._drawn(np.random.default_rng(0), SEARCHED)[1].max()
            check_number("tolerance", self.tolerance, high=farthest, unit="m")

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """See the module docstring."""
        layout, sizes = self.model.layout, {"rad": (10.0, 0.1), "rad/s": (100.0, 1.0), "-": (2.0, 0.1)}  # largest, typical
        motion = (
            Entry(name, unit, -sizes[unit][0], *sizes[unit]) for name, unit in zip(layout.names, layout.units, strict=True)
        )
        points = (
            Entry(f"{what}.{axis}", "m", -MAX_HAND_GOAL, MAX_HAND_GOAL, 0.1) for what in ("goal", "off") for axis in "xyz"
        )
        return (*motion, *points)

    @cached_property
    def disturbance_scale(self) -> Array:
        """A kick of unit size is 1 rad/s in every joint."""
        n, m = self.model.n, len(self.model.muscle_names)
        return np.repeat([0.0, 1.0, 0.0], [n, n, m])

    @cached_property
    def hanging(self) -> Array:
        """Rest position of the hand (3,) [m]."""
        return self.model.hand(self.model.rest[None])[0]

    def reset(self, start: Start) -> tuple[Array, Array]:
        """See `Task`: still, near rest; the option "goal" is a place (3,) of the hand [m]."""
        rows, n = len(start.rngs), self.model.n
        state, context = np.tile(self.model.rest_state(), (rows, 1)), np.zeros((rows, len(self.context_names)))
        for row, rng in enumerate(start.rngs):
            state[row, :n] += rng.uniform(-self.spread, self.spread, n)
            context[row, :3] = self._goal(rng)
        if "goal" in start.options:
            context[:, :3] = check_place("option 'goal'", start.options["goal"], (3,), MAX_HAND_GOAL)
        state = state if start.state is None else start.state
        watch_hand(self._hand, np.ascontiguousarray(state), context, 0.0, self.tolerance, np.inf)
        return state, context

    def _goal(self, rng: np.random.Generator) -> Array:
        """Draw a point (3,) that can be held, and is far enough from the hand's rest.

        Raises:
            OptionError: There is none.
        """
        for _ in range(SEARCHED // GOALS_AT_ONCE):
            places, distance, held = self._drawn(rng, GOALS_AT_ONCE)
            good = np.flatnonzero(held & (distance >= self.goal_distance))
            if len(good):
                return np.asarray(places[good[0]])
        return np.asarray(self._known[rng.integers(len(self._known))])

    @cached_property
    def _known(self) -> Array:
        """Suitable goals (k, 3), for draws that contain none."""
        places, distance, held = self._drawn(np.random.default_rng(0), SEARCHED)
        found = places[held & (distance >= self.goal_distance)]
        if not len(found):
            farthest = (
                f"the farthest that is held is {distance[held].max():.3g} m away" if held.any() else "none is held at all"
            )
            raise OptionError(
                f"goal_distance is {self.goal_distance:g} m and goal_effort {self.goal_effort:g}: of {SEARCHED} poses none "
                f"brings the hand so far and is held by so much of the torques or muscles; {farthest}"
            )
        return np.asarray(found)

    def _drawn(self, rng: np.random.Generator, count: int) -> tuple[Array, Array, BoolArray]:
        """Draw poses within the joints' limits: places of the hand (count, 3), distances [m], and whether they can be held."""
        low, high = self.model.limits
        poses = low + (high - low) * rng.uniform(0.1, 0.9, (count, self.model.n))
        poses = np.where(self.model.reached, poses, self.model.rest)
        places = self.model.hand(poses)
        return places, np.linalg.norm(places - self.hanging, axis=1), self._effort(poses) <= self.goal_effort

    def _effort(self, poses: Array) -> Array:
        """Largest share of a torque or muscle that holds poses (B, n); infinite where muscles cannot."""
        model, torque = self.model, self.model.holding(poses)
        motors = list(model.motors)
        used = (np.abs(torque) / model.effort)[:, motors].max(axis=1, initial=0.0)
        if model.muscles is None:
            return np.asarray(used)
        found = share(model, poses, np.zeros_like(poses), torque)
        most = np.maximum(used, found.activations.max(axis=1))
        return np.where(np.abs(found.missing).max(axis=1) <= MISSING, most, np.inf)

    @cached_property
    def _hand(self) -> BodyHand:
        return hand_of(self.model.mechanism, HAND)

    @cached_property
    def _seen(self) -> int:
        """Number of observed entries of a state: all of the model's."""
        return self.model.layout.nx

    def update(self, context: Array, state: Array) -> Array:
        """Update distance, time for which it has been small, and whether that was long enough."""
        context = context.copy()
        watch_hand(self._hand, state, context, self.control_period, self.tolerance, self.hold_time)
        return context

    def observe(self, state: Array, context: Array) -> Array:
        """See `entries`."""
        return joined(state, self._seen, context, SEEN_COLUMNS, self._from)

    @cached_property
    def _from(self) -> Array:
        return np.concatenate([self.hanging, np.zeros(3)])

    def reward(self, state: Array, next_state: Array, action: Array, before: Array, after: Array) -> dict[str, Array]:
        """Terms "distance", "reached", "effort"; see the class."""
        found = np.empty((3, len(action)))
        weight = -self.effort_weight / action.shape[1]
        reach_terms(action, len(self.model.muscle_names), before, after, self.bonus, weight, found)
        return {"distance": found[0], "reached": found[1], "effort": found[2]}

    def measure(self, state: Array, context: Array) -> dict[str, Array]:
        """Distance from the goal [m], and time for which it has been held [s]."""
        return {"distance": context[:, DISTANCE], "held": context[:, HELD]}

    def draw_hints(self, context: Array) -> dict[str, Array]:
        """Position of the goal."""
        return {"goal": context[:3].copy()}
