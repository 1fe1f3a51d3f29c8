r"""Task LoopBend: the hand follows a profile that stretches, bends and twists the loop, within a budget of torques.

A profile is :math:`q(t) = q_{start} + \tfrac12 (1 - \cos(2 \pi t / T)) \Delta` of the arm's angles, where Delta moves the hand
by drawn amounts of stretch (up), bend (along the world's x and y) and twist (about the vertical). The budget is
`arm_task.INCREMENT`, the torques at an action of 1; its use costs reward.

Observation ("sensors"): the arm's angles from the start and their speeds, the wanted pose of the hand relative to its own (the
arm knows that by its own angles), and how the profile goes on from there. "state" adds the loop's angles and speeds.

Legend: B batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...core.simulator import Array, Status, check_number
from ...core.task import BoolArray, Entry, Start
from ...engines.numba.engine import plain
from .arm_task import INCREMENT, ArmTask, motion_entries, rest_under, tree_constants
from .model import ARM
from .observation import Bending, follow, hand_of, look_along, profiles

AMPLITUDE = np.array([0.06, 0.07, 0.07, 0.25])
"""Largest stretch, bend along x, along y [m], and twist about z [rad], in the world's axes."""
BEND_LEVER = 0.1
"""[m/rad] An error of one radian counts as this distance."""
PREVIEW = 0.25
"""Preview of the profile [s]."""
_POSE = (("x", "m"), ("y", "m"), ("z", "m"), ("rx", "rad"), ("ry", "rad"), ("rz", "rad"))
SEEN = tuple((f"{what}.{name}", unit) for what in ("off", "ahead") for name, unit in _POSE)
"""Wanted pose of the hand relative to its own, and the profile's preview: place and rotation vector in the world's axes."""
CONTEXT = ("stretch", "bend_x", "bend_y", "twist", "period", "time", "error", "total", "kept", *(name for name, _ in SEEN))
PERIOD, TIME, ERROR, TOTAL, KEPT, OFF = range(4, 10)
SHORTEST = np.array(1e-9)  # [s]; NumPy computes with an array faster than with a number
SEEN_COLUMNS, NOTHING = np.arange(OFF, OFF + len(SEEN)), np.zeros(len(SEEN))
TRIES, WAY = 20, 9
BUDGET = 0.8
"""Largest entry of the action that holds the profile's far end."""


@dataclass(frozen=True, eq=False)
class LoopBend(ArmTask):
    """Follow a profile with the hand: reward = -error [m] + bonus at the end if it was followed - control.

    The error is the hand's distance plus `BEND_LEVER` times its angle from the profile. The episode ends with the profile.
    """

    duration: float = 8.0
    """Length of the profile [s]."""
    periods: tuple[float, float] = (3.0, 5.0)
    """Shortest and longest period T [s]."""
    tolerance: float = 0.01
    """Mean error up to which a profile counts as followed [m]."""
    least: float = 0.025
    """Least mean error of an arm that stays at the start [m]."""

    context_names = CONTEXT
    done_column = KEPT
    success_definition = "The mean error over the whole profile is at most `tolerance`."

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("duration", self.duration, positive=True, unit="s")
        check_number("tolerance", self.tolerance, positive=True, high=self.least, unit="m")
        check_number("the longest of periods", self.periods[1], low=0.5, unit="s")
        check_number("the shortest of periods", self.periods[0], low=0.5, high=self.periods[1], unit="s")
        for name in ("least", "control_weight", "bonus"):
            check_number(name, getattr(self, name), low=0.0)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """See the module docstring."""
        return (*motion_entries(self.model, self.obs_mode), *(Entry(name, unit, -4.0, 4.0, 0.1) for name, unit in SEEN))

    # --- The profile --------------------------------------------------------------------------------------------------

    @cached_property
    def _directions(self) -> Array:
        """Change of the arm's angles per unit of stretch, bend and twist (7, 4), by the pseudo-inverse of the hand's slopes."""
        start, step = np.array(self.model.start), 1e-6
        R, p = self._hand(start[None])
        turned, moved = self._hand(start + step * np.eye(len(ARM)))
        slopes = np.concatenate([(moved - p) / step, rotation_vector(turned @ R[0].T) / step], axis=1).T
        wanted = np.zeros((6, 4))
        wanted[[2, 0, 1, 5], [0, 1, 2, 3]] = 1.0
        return np.asarray(np.linalg.pinv(slopes, rcond=1e-3) @ wanted)

    def profile(self, context: Array, ahead: float = 0.0) -> Array:
        """Wanted angles of the arm `ahead` seconds from now (B, 7) [rad]."""
        found = np.empty((len(context), len(ARM)))
        profiles(self._bending, context, context[:, TIME] + ahead, found)
        return found

    @cached_property
    def _bending(self) -> Any:
        return plain(Bending(self._start, self._directions, float(self.duration)))

    def _hand(self, arm: Array) -> tuple[Array, Array]:
        """Rotation (B, 3, 3) and place (B, 3) [m] of the hand at angles of the arm (B, 7)."""
        q = np.zeros((len(arm), self.model.n))
        q[:, : len(ARM)] = arm
        return self.model.mechanism.pose("H", q)

    def seen(self, arm: Array, context: Array) -> Array:
        """Values of `SEEN` (B, 12) at angles of the arm (B, 7)."""
        found = np.empty((len(arm), len(SEEN)))
        look_along(self._grip, self._bending, np.ascontiguousarray(arm), context, context[:, TIME].copy(), PREVIEW, found)
        return found

    @cached_property
    def _grip(self) -> Any:
        return plain(hand_of(self.model))

    # --- As a task ----------------------------------------------------------------------------------------------------

    def reset(self, start: Start) -> tuple[Array, Array]:
        """See `Task`: at rest without action."""
        columns = tree_constants(self.model, start)
        q = rest_under(self.model, self.scale_action(np.zeros((len(columns), len(ARM)))), columns)[0]
        state = start.state if start.state is not None else np.pad(q, ((0, 0), (0, self.model.n)))
        context = np.zeros((len(state), len(CONTEXT)))
        for row, rng in enumerate(start.rngs):
            context[row, : PERIOD + 1] = self._draw(rng, columns[row])
        return state, self._followed(context, np.ascontiguousarray(state), 0.0)

    def _draw(self, rng: np.random.Generator, columns: Array) -> Array:
        """Draw stretch, bends, twist and period (5,): the first draw that, shrunk to the budget, still leads far enough."""
        best, farthest = np.zeros(PERIOD + 1), -1.0
        for _ in range(TRIES):
            drawn = np.append(AMPLITUDE * rng.uniform(-1.0, 1.0, 4), rng.uniform(*self.periods))
            drawn[:PERIOD] *= min(1.0, BUDGET / self._effort(drawn[:PERIOD], columns))
            size = 0.5 * (np.linalg.norm(drawn[:3]) + BEND_LEVER * abs(drawn[3]))  # the mean of the profile's share is a half
            if size > farthest:
                best, farthest = drawn, size
            if farthest >= self.least:
                break
        return best

    def _effort(self, amount: Array, columns: Array) -> float:
        """Largest entry of the action that holds the far end of a profile; infinite where the loop does not reach."""
        q = self.model.rest_state()[None, : self.model.n].copy()
        q[0, : len(ARM)] += self._directions @ amount
        found = self.model.mechanism.rest(q, parameter_values=columns[None], held=ARM)
        needed = np.abs((found.needed[0, : len(ARM)] - self.hold) / INCREMENT).max()
        return float(needed) if found.status[0] == Status.OK else np.inf

    def _followed(self, context: Array, state: Array, period: float) -> Array:
        """Update time, error, its integral over time, at the end whether the profile was followed, and `SEEN`, in place."""
        follow(self._grip, self._bending, state, context, period, PREVIEW, BEND_LEVER, self.tolerance)
        return context

    def update(self, context: Array, state: Array) -> Array:
        """See `_followed`."""
        return self._followed(context.copy(), state, self.control_period)

    def observe(self, state: Array, context: Array) -> Array:
        """See `entries`."""
        return self.felt(state, context, SEEN_COLUMNS, NOTHING)

    def reward(self, state: Array, next_state: Array, action: Array, before: Array, after: Array) -> dict[str, Array]:
        """Terms "error", "kept", "control"; see the class."""
        found = self.terms(action, before, after, ERROR, KEPT)
        return {"error": found[0], "kept": found[1], "control": found[2]}

    def terminated(self, state: Array, context: Array) -> BoolArray:
        """Whether the profile has ended."""
        return np.asarray(context[:, TIME] >= self.duration - 1e-9)

    def measure(self, state: Array, context: Array) -> dict[str, Array]:
        """Current error and its mean so far [m]."""
        return {"error": context[:, ERROR], "mean_error": context[:, TOTAL] / np.maximum(context[:, TIME], SHORTEST)}

    def draw_hints(self, context: Array) -> dict[str, Array]:
        """Wanted place of the hand, and its way from the start to the profile's far end."""
        share = np.linspace(0.0, 1.0, WAY)[:, None]
        way = self._start + share * (self._directions @ context[:PERIOD])
        return {"goal": self._hand(self.profile(context[None]))[1][0], "way": self._hand(way)[1]}


def rotation_vector(R: Array) -> Array:
    """Rotation vectors (B, 3) of rotations (B, 3, 3) by less than half a turn."""
    axis = 0.5 * np.stack([R[:, 2, 1] - R[:, 1, 2], R[:, 0, 2] - R[:, 2, 0], R[:, 1, 0] - R[:, 0, 1]], axis=1)
    sine = np.sqrt((axis**2).sum(axis=1))
    angle = np.arctan2(sine, 0.5 * (R[:, 0, 0] + R[:, 1, 1] + R[:, 2, 2] - 1.0))
    return axis * np.where(sine > 1e-12, angle / np.maximum(sine, 1e-12), 1.0)[:, None]
