r"""Tasks of the elbow: bring the forearm to an angle, or hold it at two against kicks with an unknown load in the hand.

Actions are the muscles' excitations, -1: none, 1: full. Observation ("sensors"): angle, speed, both activations, and the error.
No target is near an angle where the arm rests by itself when both muscles are half excited, an action of zero.
Legend: B batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...core.simulator import Array, check_number
from ...core.task import Entry, GoalTask, Start
from ...engines.numba.engine import kernel
from ...engines.numba.observation import joined
from .elbow import net_torque
from .model import ElbowModel

ERROR, HELD, REACHED, NEXT = 1, 2, 3, 4
"""Columns in the context, behind the target."""
SEEN_COLUMNS, NOTHING = np.array([ERROR]), np.zeros(1)
MAX_TARGET_ANGLE = 2.6
"""[rad] Bound of target angles, and of distances from them."""
TRIES = 12
"""Most targets that are drawn until one is far enough."""


@dataclass(frozen=True, eq=False)
class ArmReach(GoalTask):
    """Bring the elbow to a target angle and keep it there: reward = -|error| [rad] + bonus - effort.

    Where the target moves, the bonus is paid for either angle; else a planner with a short horizon would not let it move.
    """

    model: ElbowModel
    control_period: float = 0.02
    """[s]"""
    targets: tuple[float, float] = (0.7, 2.2)
    """Range of target angles [rad]."""
    start_error: tuple[float, float] = (0.3, 1.6)
    """Range of the first distance from the target [rad]."""
    tolerance: float = 0.05
    """Error within which the target counts as reached [rad]."""
    hold_time: float = 0.3
    """Time for which it must be held [s]; where it moves, half of that before and half after."""
    effort_weight: float = 0.05
    """Weight of the mean squared excitation."""
    bonus: float = 5.0
    """Reward for having held the target, and the next one."""
    idle_distance: float = 0.25
    """Least distance of a target from the arm's rest with both muscles half excited, an action of zero [rad]."""

    move: float = 0.0
    """Least move of the target once it has been held, as far as its range allows [rad]; 0: it stays."""

    context_names = ("target", "error", "held", "reached", "next")
    option_names = ("goal",)
    done_column = REACHED
    success_definition = "The elbow has been within `tolerance` of the target, and of the next one, for `hold_time` in all."

    def __post_init__(self) -> None:
        for name in ("effort_weight", "bonus", "idle_distance", "move"):
            check_number(name, getattr(self, name), low=0.0)
        check_number("tolerance", self.tolerance, positive=True, high=MAX_TARGET_ANGLE, unit="rad")
        check_number("hold_time", self.hold_time, positive=True, unit="s")
        for name in ("targets", "start_error"):
            low, high = getattr(self, name)
            check_number(f"{name}[1]", check_number(f"{name}[0]", low, low=0.0) and high, low=low, high=MAX_TARGET_ANGLE)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """See the module docstring."""
        return (
            Entry("elbow", "rad", -3.0, 6.0, 0.1), Entry("velbow", "rad/s", -50.0, 50.0, 1.0),
            Entry("biceps", "-", -0.5, 1.5, 0.1), Entry("triceps", "-", -0.5, 1.5, 0.1), Entry("error", "rad", -6.0, 6.0, 0.1),
        )  # fmt: skip

    @property
    def disturbance_scale(self) -> Array:
        """A kick of unit size is 1 rad/s."""
        return np.array([0.0, 1.0, 0.0, 0.0])

    def reset(self, start: Start) -> tuple[Array, Array]:
        """See `Task`: still, muscles nearly off, at a drawn distance from the target; option "goal": the first one [rad]."""
        state, context = np.zeros((len(start.rngs), 4)), np.zeros((len(start.rngs), len(self.context_names)))
        low, high = self.model.limits
        for row, rng in enumerate(start.rngs):
            target = self._far(rng)
            if "goal" in start.options:
                target = check_number("option 'goal'", start.options["goal"], low=low, high=high, unit="rad")
            away = rng.uniform(*self.start_error) * rng.choice([-1.0, 1.0])
            state[row, 0] = target + away if low < target + away < high else np.clip(target - away, low, high)
            state[row, 2:] = rng.uniform(0.0, 0.2, 2)
            context[row, 0], context[row, NEXT] = target, self._moved(target, rng)
        state = state if start.state is None else start.state
        context[:, ERROR] = context[:, 0] - state[:, 0]
        return state, context

    @cached_property
    def _idle(self) -> Array:
        """Angles at which torques balance at an action of zero, with parameters at their defaults."""
        structure, c = self.model.structure(0.0), self.model.parameters.to_matrix(1)[0]
        angles = np.linspace(*self.model.limits, 521)
        torque = np.array([float(net_torque(structure, c, angle, 0.0, 0.5, 0.5)) for angle in angles])
        return np.asarray(angles[:-1][torque[:-1] * torque[1:] <= 0])

    def _far(self, rng: np.random.Generator) -> float:
        """Draw a target at least `idle_distance` from the angles of rest, or the farthest of `TRIES`."""
        best, farthest = 0.0, -1.0
        for _ in range(TRIES):
            target = rng.uniform(*self.targets)
            distance = float(np.abs(self._idle - target).min(initial=np.inf))
            if distance > farthest:
                best, farthest = target, distance
            if farthest >= self.idle_distance:
                break
        return best

    def _moved(self, target: float, rng: np.random.Generator) -> float:
        """Draw a target `move` away or farther; at most half the range, so that there is one."""
        if self.move == 0.0:
            return target
        low, high = self.targets
        least = min(self.move, 0.5 * (high - low))
        below, above = max(target - least - low, 0.0), max(high - target - least, 0.0)
        share = rng.uniform(0.0, below + above)
        return low + share if share < below else target + least + share - below

    def update(self, context: Array, state: Array) -> Array:
        """Update error, time for which it has been small, and whether that was long enough."""
        after = np.empty_like(context)
        hold = self.hold_time if self.move == 0.0 else 0.5 * self.hold_time
        progress(context, state, self.tolerance, self.control_period, hold, after)
        return after

    def observe(self, state: Array, context: Array) -> Array:
        """See `entries`."""
        return joined(state, 4, context, SEEN_COLUMNS, NOTHING)

    def reward(self, state: Array, next_state: Array, action: Array, before: Array, after: Array) -> dict[str, Array]:
        """Terms "distance", "reached", "effort"; see the class."""
        found = np.empty((3, len(action)))
        terms(action, before, after, self.bonus, 0.125 * self.effort_weight, found)
        return {"distance": found[0], "reached": found[1], "effort": found[2]}

    def measure(self, state: Array, context: Array) -> dict[str, Array]:
        """Error [rad], and time for which it has been small [s]."""
        return {"error": context[:, ERROR], "held": context[:, HELD]}

    def draw_hints(self, context: Array) -> dict[str, Array]:
        """Wanted place of the hand."""
        return {"goal": self.model.places(float(context[0]))["hand"]}


@kernel
def progress(context, state, tolerance, period, hold_time, after):
    """See `ArmReach.update`: a dozen NumPy calls on a row cost more than the physics."""
    for row in range(len(context)):
        target, following, reached = context[row, 0], context[row, NEXT], context[row, REACHED]
        held = context[row, HELD] + period if abs(target - state[row, 0]) <= tolerance else 0.0
        if held >= hold_time - 1e-9:
            if target == following:
                reached = 1.0
            else:
                target, held = following, 0.0
        after[row, 0], after[row, ERROR], after[row, HELD] = target, target - state[row, 0], held
        after[row, REACHED], after[row, NEXT] = reached, following


@kernel
def terms(action, before, after, bonus, weight, found):
    """See `ArmReach.reward`."""
    for row in range(len(action)):
        found[0, row] = -abs(after[row, ERROR])
        moved = 1.0 if after[row, 0] != before[row, 0] else 0.0
        found[1, row] = bonus * (after[row, REACHED] - before[row, REACHED] + moved)
        found[2, row] = -weight * ((action[row, 0] + 1.0) ** 2 + (action[row, 1] + 1.0) ** 2)
