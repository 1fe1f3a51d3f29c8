"""Task of tensegrity robots: visit waypoints. The observation's body part: `task_base`.

Legend: B batch, K waypoints.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...core.errors import OptionError
from ...core.simulator import Array, check_number
from ...core.task import BoolArray, Entry, Start
from ...engines.warp.row_kernel import RowKernel, TaskKernels
from .features import SPEED_BOUND
from .reward_kernels import visit_terms
from .task_base import VELOCITY, TensegrityTask, plane_vectors
from .task_kernels import (
    COM_X,
    COM_Y,
    COUNT,
    DISTANCE,
    FRAME_NAMES,
    GOAL_X,
    GOAL_Y,
    POINTS,
    REACHED,
    SCALE,
    VISIT,
    VISIT_REWARD,
)

TERMS = ("progress", "reached", "control")
"""Names of the reward's terms."""
MAX_WAYPOINT = 1e4
"""[m] A waypoint is observed up to this distance."""
MOST_WAYPOINTS = 1000
"""Most waypoints of an episode."""


@dataclass(frozen=True, eq=False)
class VisitWaypoints(TensegrityTask):
    """Roll to waypoints one after the other: reward = progress towards the next [m] + bonus for reaching it - control.

    d is the horizontal distance of the centre of mass from the waypoint; it is reached when d <= radius at the end of a
    control step. The command frame's x axis points to the next waypoint, and stays at the last one.
    """

    num_waypoints: int = 3
    """Number of waypoints, K."""
    radius: float = 0.5
    """[m]"""
    leg: tuple[float, float] = (1.5, 3.0)
    """Distance from one waypoint to the next [m]; directions are uniform."""
    bonus: float = 1.0
    """Reward for reaching a waypoint."""

    option_names = ("goal",)
    success_definition = "All waypoints of the episode have been reached, one after the other, each within `radius`."

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("num_waypoints", self.num_waypoints, low=1, high=MOST_WAYPOINTS, whole=True)
        check_number("leg", self.leg[0], positive=True, high=self.leg[1], unit="m")
        check_number("leg", self.leg[1], high=MAX_WAYPOINT / self.num_waypoints, unit="m")
        check_number("radius", self.radius, positive=True, high=self.leg[1], unit="m")

    @cached_property
    def context_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Command, next waypoint, velocity, and all waypoints."""
        names = ("distance", "approached", "goal_x", "goal_y", "reached", "count")
        return (*FRAME_NAMES, *names, *(f"waypoint{i}_{axis}" for i in range(self.num_waypoints) for axis in "xy"))

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """See `Task`."""
        if self.obs_mode == "state":
            return (*self.body_entries, *(Entry(f"waypoint.{axis}", "m", -MAX_WAYPOINT, MAX_WAYPOINT) for axis in "xy"))
        velocity = (Entry(f"com.v_{name}", "m/s", -SPEED_BOUND, SPEED_BOUND) for name in ("along", "across", "up"))
        return (*self.body_entries, *velocity, Entry("waypoint.distance", "m", 0.0, MAX_WAYPOINT))

    def reset(self, start: Start) -> tuple[Array, Array]:
        """See `Task`; the option "goal" is one waypoint (2,) or several (k <= K, 2) [m], in the world frame."""
        state = self.first_states(start)
        rows, K = len(state), self.num_waypoints
        uniform = np.array([rng.random((2, K)) for rng in start.rngs])
        length = self.leg[0] + (self.leg[1] - self.leg[0]) * uniform[:, 0]
        angle = 2 * np.pi * uniform[:, 1]
        legs = np.stack([length * np.cos(angle), length * np.sin(angle)], axis=-1)
        points = self.model.center_of_mass(state)[:, None, :2] + np.cumsum(legs, axis=1)
        context = np.zeros((rows, len(self.context_names)))
        context[:, COUNT] = K
        if "goal" in start.options:
            given = np.atleast_2d(plane_vectors("goal", start.options["goal"], f"(2,) or (up to {K}, 2) [m]"))
            if len(given) > K:
                raise OptionError(f"option 'goal' holds {len(given)} waypoints, at most {K} are allowed (num_waypoints)")
            points[:] = given[np.minimum(np.arange(K), len(given) - 1)]
            context[:, COUNT] = len(given)
        context[:, SCALE] = start.parameter_values["terrain_scale"]
        context[:, POINTS:] = points.reshape(rows, 2 * K)
        context[:, GOAL_X : GOAL_Y + 1] = points[:, 0]
        return state, self._begin(state, context)

    @cached_property
    def _begin(self) -> RowKernel:
        return self._advance_within(-1.0)

    @cached_property
    def _advance(self) -> RowKernel:
        return self._advance_within(self.radius)

    def _advance_within(self, radius: float) -> RowKernel:
        size = len(self.context_names)
        return RowKernel(VISIT, (self.model.num_rods, radius), (self.model.layout.nx, size), size)

    @cached_property
    def _observer(self) -> RowKernel:
        return self.body.observer((*VELOCITY, DISTANCE), len(self.context_names))

    def update(self, context: Array, state: Array) -> Array:
        """A waypoint that is reached hands over to the next."""
        return self._advance(state, context)

    def observe(self, state: Array, context: Array) -> Array:
        """See `entries`."""
        if self.obs_mode == "sensors":
            return self._observer(state, context)
        way = context[:, GOAL_X : GOAL_Y + 1] - context[:, COM_X : COM_Y + 1]
        return np.concatenate([state, way], axis=1)

    def reward(self, state: Array, next_state: Array, action: Array, before: Array, after: Array) -> dict[str, Array]:
        """Terms "progress", "reached", "control"; see the class."""
        found = np.empty((3, len(action)))
        visit_terms(action, before, after, self.bonus, self.minus_weight, found)
        return dict(zip(TERMS, found, strict=True))

    def kernels(self) -> TaskKernels | None:
        """What a device runs; None for obs_mode "state"."""
        if self.obs_mode == "state":
            return None
        size, nu = len(self.context_names), self.model.nu
        reward = RowKernel(VISIT_REWARD, (self.bonus, self.minus_weight), (nu, size, size), len(TERMS))
        scale = np.full(nu, self.model.control_limit)
        return TaskKernels(
            np.arange(nu), scale, -np.inf, (self._advance,), self._observer, reward, TERMS, int(REACHED), int(COUNT)
        )

    def terminated(self, state: Array, context: Array) -> BoolArray:
        """Whether the last waypoint has been reached."""
        return self.success(state, context)

    def success(self, state: Array, context: Array) -> BoolArray:
        """See `success_definition`."""
        return np.asarray(context[:, REACHED] >= context[:, COUNT])

    def measure(self, state: Array, context: Array) -> dict[str, Array]:
        """Distance from the next waypoint [m], and number of waypoints reached."""
        return {"distance": context[:, DISTANCE], "reached": context[:, REACHED]}

    def draw_hints(self, context: Array) -> dict[str, Array]:
        """The next waypoint [m]; the ground is flat."""
        return {"goal": np.array([context[GOAL_X], context[GOAL_Y], 0.0])}
