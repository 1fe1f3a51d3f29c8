"""Tasks of tensegrity robots: follow a velocity (roll, crawl, terrain), visit waypoints.

Observation ("sensors", what a laboratory with motion capture and motor encoders has): position relative to the centre of
mass and velocity of every node, in the command frame (z up, x along the commanded direction); motor positions; height of the
centre of mass over the ground; then the entries of the task. "state" replaces the body part by the simulator's full state
and writes the task's vectors in the world frame.

Legend: B batch, N nodes, C cables, K waypoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import OptionError, ShapeError, shown
from ..core.objective import Objective
from ..core.row_kernel import RowKernel
from ..core.simulator import as_numbers, check_number
from ..core.task import BoolArray, Entry, Start
from . import poses
from .features import HEADING, SPEED_BOUND, Body, feel, to_world
from .model import TensegrityModel
from .poses import Spread
from .rewards import follow_terms, visit_terms
from .task_kernels import (
    ACROSS,
    ALONG,
    COM_X,
    COM_Y,
    COUNT,
    DISTANCE,
    FOLLOW,
    FRAME_NAMES,
    GOAL_X,
    GOAL_Y,
    GROUND,
    HX,
    HY,
    NODE,
    POINTS,
    REACHED,
    SCALE,
    START_ACROSS,
    START_ALONG,
    SUCCESS,
    TARGET_ALONG,
    V_ACROSS,
    V_ALONG,
    V_UP,
    VISIT,
)

Array = NDArray[np.float64]

ROLL = Objective(TensegrityModel.com_velocity, weights=(1.0, 0.5, 0.1), target=(1.0, 0.0, 0.0))
"""[Wang2020] V-C: (along, across, up) the command [m/s], weights [s^2/m^2]."""
CRAWL = Objective(TensegrityModel.com_velocity, weights=(25.0, 12.5, 2.5), target=(0.2, 0.0, 0.0))
"""As `ROLL`, over 0.2 m/s squared: the paper gives no target for the prism."""
OBS_MODES = ("sensors", "state")
LEVELS = (0.0, 3.0)
"""Allowed levels of uneven ground: the constant terrain_scale."""
PATCH = np.array([(0.0, 0.0), *((np.cos(angle), np.sin(angle)) for angle in 0.25 * np.pi * np.arange(8))])
"""(9, 2) [m]: where the ground is felt, in the command frame: under the centre of mass, then around it counter-clockwise."""


@dataclass(frozen=True, eq=False)
class _Settings:
    """What all tensegrity tasks have in common."""

    model: TensegrityModel
    control_period: float = 0.1
    """[s]"""
    obs_mode: str = "sensors"
    """"sensors" or "state"."""
    control_weight: float = 0.01
    """Weight of the mean squared action."""
    settle_time: float = 0.5
    """How long the robot comes to rest before an episode [s]."""
    spread: Spread = field(default_factory=Spread)
    constants: Mapping[str, float] = field(default_factory=dict)
    """Constants that the task fixes."""

    def __post_init__(self) -> None:
        if self.obs_mode not in OBS_MODES:
            raise OptionError(f"obs_mode is {self.obs_mode!r}, allowed are {', '.join(OBS_MODES)}")
        if not self.model.nu:
            raise OptionError("actuated is empty: a task needs a robot with at least one motor")
        check_number("control_weight", self.control_weight, low=0.0)
        _ = self.faces

    @cached_property
    def faces(self) -> Array:
        """Stable faces, as rotations (F, 4)."""
        return poses.stable_faces(self.model)

    @cached_property
    def body(self) -> Body:
        """Observations of the robot itself."""
        return Body(self.model)

    @cached_property
    def body_entries(self) -> tuple[Entry, ...]:
        """Entries before those of the task."""
        return self.body.entries() if self.obs_mode == "sensors" else self.body.state_entries()

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """See `Task`; every task adds its own."""
        return self.body_entries

    @cached_property
    def actuator_views(self) -> NDArray[np.int64] | None:
        """Entries that every motor looks at, from either end of its cable, (2, nu, F); None for obs_mode "state".

        The two ends, the other ends of their rods, the motor itself, and all that is no part of the body.
        """
        if self.obs_mode == "state":
            return None
        model, first = self.model, 2 * NODE * self.model.num_rods
        ends = np.array(model.cables)[list(model.actuated)].T  # (2, nu)
        nodes = np.stack([np.stack([a, b, a ^ 1, b ^ 1]) for a, b in (ends, ends[::-1])])  # rods are nodes 2r, 2r + 1
        points = (NODE * nodes[..., None] + np.arange(NODE)).transpose(0, 2, 1, 3).reshape(2, model.nu, 4 * NODE)
        motors = np.broadcast_to(np.arange(first, first + model.nu)[:, None], (2, model.nu, 1))
        rest = np.arange(first + model.nu, len(self.entries))
        return np.concatenate([points, motors, np.broadcast_to(rest, (2, model.nu, len(rest)))], axis=2)

    @cached_property
    def disturbance_scale(self) -> Array:
        """See `Task`."""
        return poses.disturbance_scale(self.model)

    @cached_property
    def action_names(self) -> tuple[str, ...]:
        """One motor per entry."""
        return self.model.control_names

    def first_states(self, start: Start) -> Array:
        """The caller's states, or random ones."""
        if start.state is not None:
            return start.state
        return poses.random_states(self.model, self.faces, self.spread, start, self.settle_time)

    def scale_action(self, action: Array) -> Array:
        """Motor command = action * control_limit, (B, nu)."""
        return action * self._limit

    @cached_property
    def _limit(self) -> Array:
        return np.array(self.model.control_limit)  # NumPy multiplies by an array faster than by a number

    @cached_property
    def minus_weight(self) -> float:
        """Of the sum of squared actions: -control_weight / nu."""
        return -self.control_weight / self.model.nu

    def terminated(self, state: Array, context: Array) -> BoolArray:
        """Never: episodes end by time or by failure of the simulation."""
        return np.zeros(len(state), dtype=np.bool_)


VELOCITY = np.array([V_ALONG, V_ACROSS, V_UP])


@dataclass(frozen=True, eq=False)
class FollowVelocity(_Settings):
    r"""Track a commanded velocity v* of the centre of mass: reward -(w_x (v_x - v*)^2 + w_y v_y^2 + w_z v_z^2) - control.

    v is the velocity of the centre of mass at the end of the control step, in the command frame. The objective of [Wang2020]
    V-C (`ROLL`) or V-D (`CRAWL`), as named terms.
    """

    objective: Objective = ROLL
    """Its weights: (along, across, up) the command; its target is the usual command."""
    target_speed: tuple[float, float] = (ROLL.aim[0], ROLL.aim[0])
    """The commanded speed is drawn from this interval [m/s]."""
    heading: float | None = 0.0
    """Commanded direction, angle from the world's x axis [rad]; None draws a new one for every episode."""
    uneven: bool = False
    """Whether eight heights of the ground around the robot are observed, and `reset` takes the option "level"."""

    @cached_property
    def context_names(self) -> tuple[str, ...]:
        """Command, motion, start and target, time, success; heights of the ground under and around the robot."""
        names = ("start_along", "target_along", "start_across", "target_across", "elapsed", "success")
        return (*FRAME_NAMES, *names, *(f"ground{i}" for i in range(9 if self.uneven else 0)))

    success_definition = (
        "At least 2 s have passed, and since the start the centre of mass has moved along the command by at least half of "
        "target speed x elapsed time, and sideways by no more than it moved along."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heading is not None:
            check_number("heading", self.heading, unit="rad")
        low, high = self.target_speed
        if not 0 <= low <= high < np.inf:
            raise OptionError(f"target_speed is {self.target_speed} m/s, expected 0 <= low <= high")

    @property
    def option_names(self) -> tuple[str, ...]:
        """Beside the shared ones: "velocity" (2,) [m/s], and "level" where the ground has levels."""
        return ("velocity", "level") if self.uneven else ("velocity",)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """See `Task`; the velocity error is in the command frame ("sensors") or the world frame ("state")."""
        names = ("along", "across", "up") if self.obs_mode == "sensors" else ("x", "y", "z")
        error = [Entry(f"velocity_error.{name}", "m/s", -SPEED_BOUND, SPEED_BOUND) for name in names]
        ground = [Entry(f"ground{45 * i}deg", "m", -10.0, 10.0) for i in range(8)] if self.uneven else []
        return (*self.body_entries, *error, *ground)

    def option_constants(self, options: Mapping[str, Any]) -> Mapping[str, float]:
        """The level is the constant terrain_scale."""
        return {"terrain_scale": terrain_level(options["level"])} if "level" in options else {}

    def reset(self, start: Start) -> tuple[Array, Array]:
        """See `Task`."""
        state = self.first_states(start)
        uniform = np.array([rng.random(2) for rng in start.rngs])
        low, high = self.target_speed
        context = np.zeros((len(state), len(self.context_names)))
        angle = 2 * np.pi * uniform[:, 0] if self.heading is None else np.full(len(state), self.heading)
        context[:, HX], context[:, HY] = np.cos(angle), np.sin(angle)
        context[:, TARGET_ALONG] = low + (high - low) * uniform[:, 1]
        if "velocity" in start.options:
            self._command(context, start.options["velocity"])
        context[:, SCALE] = start.constants["terrain_scale"]
        for column, start_column in ((ALONG, START_ALONG), (ACROSS, START_ACROSS)):
            context[:, start_column] = self._begin(state, context)[:, column]
        return state, self._grounded(self._begin(state, context))

    def _command(self, context: Array, velocity: Any) -> None:
        v = plane_vectors("velocity", velocity, "(2,) [m/s]")
        if v.shape != (2,):
            raise OptionError(f"option 'velocity' has shape {v.shape}, expected (2,) [m/s]")
        speed = float(np.hypot(v[0], v[1]))
        context[:, TARGET_ALONG] = speed
        if speed > 0:
            context[:, HX], context[:, HY] = v[0] / speed, v[1] / speed

    @cached_property
    def _begin(self) -> RowKernel:
        return self._advance_by(0.0)

    @cached_property
    def _advance(self) -> RowKernel:
        return self._advance_by(self.control_period)

    def _advance_by(self, seconds: float) -> RowKernel:
        size = len(self.context_names)
        return RowKernel(FOLLOW, (self.model.num_rods, seconds), (self.model.layout.nx, size), size)

    @cached_property
    def _observer(self) -> RowKernel:
        return self.body.observer((*VELOCITY, *range(GROUND + 1, len(self.context_names))), len(self.context_names))

    def _grounded(self, context: Array) -> Array:
        """With the heights of the ground, where it is uneven. In place."""
        if self.uneven:
            feel(self.model.terrain.field, PATCH, context)
        return context

    def update(self, context: Array, state: Array) -> Array:
        """Time, way, velocity error, ground."""
        return self._grounded(self._advance(state, context))

    def observe(self, state: Array, context: Array) -> Array:
        """See `entries`."""
        if self.obs_mode == "sensors":
            return self._observer(state, context)
        error = context.take(VELOCITY, axis=1)
        error[:, :2] = to_world(error[:, :2], context[:, HEADING])
        return np.concatenate([state, error, context[:, GROUND + 1 :]], axis=1)

    def reward(self, state: Array, next_state: Array, action: Array, before: Array, after: Array) -> dict[str, Array]:
        """Terms "along", "across", "up", "control"; see the class."""
        found = np.empty((4, len(action)))
        follow_terms(action, after, self.objective.weights, self.minus_weight, found)
        return {"along": found[0], "across": found[1], "up": found[2], "control": found[3]}

    def success(self, state: Array, context: Array) -> BoolArray:
        """See `success_definition`."""
        return context[:, SUCCESS].astype(np.bool_)

    def measure(self, state: Array, context: Array) -> dict[str, Array]:
        """Way along and across the command since the start [m]."""
        return {"along": context[:, ALONG], "across": context[:, ACROSS]}

    def draw_hints(self, context: Array) -> dict[str, Array]:
        """The commanded velocity [m/s]."""
        return {"velocity": context[TARGET_ALONG] * np.array([context[HX], context[HY], 0.0])}


@dataclass(frozen=True, eq=False)
class VisitWaypoints(_Settings):
    """Roll to waypoints one after the other: reward = progress towards the next [m] + bonus for reaching it - control.

    d is the horizontal distance of the centre of mass from the waypoint; it is reached when d <= radius at the end of a
    control step. The command frame's x axis points to the next waypoint, and stays at the last one.
    """

    num_waypoints: int = 3
    """K."""
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
        check_number("num_waypoints", self.num_waypoints, low=1, whole=True)
        check_number("radius", self.radius, positive=True, unit="m")
        check_number("leg", self.leg[0], positive=True, high=self.leg[1], unit="m")

    @cached_property
    def context_names(self) -> tuple[str, ...]:
        """Command, waypoint that is next, velocity, and all waypoints."""
        names = ("distance", "approached", "goal_x", "goal_y", "reached", "count")
        return (*FRAME_NAMES, *names, *(f"waypoint{i}_{axis}" for i in range(self.num_waypoints) for axis in "xy"))

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """See `Task`."""
        if self.obs_mode == "state":
            return (*self.body_entries, *(Entry(f"waypoint.{axis}", "m", -1e4, 1e4) for axis in "xy"))
        velocity = (Entry(f"com.v_{name}", "m/s", -SPEED_BOUND, SPEED_BOUND) for name in ("along", "across", "up"))
        return (*self.body_entries, *velocity, Entry("waypoint.distance", "m", 0.0, 1e4))

    def option_constants(self, options: Mapping[str, Any]) -> Mapping[str, float]:
        """None."""
        return {}

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
        context[:, SCALE] = start.constants["terrain_scale"]
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
        return {"progress": found[0], "reached": found[1], "control": found[2]}

    def success(self, state: Array, context: Array) -> BoolArray:
        """See `success_definition`."""
        return np.asarray(context[:, REACHED] >= context[:, COUNT])

    def measure(self, state: Array, context: Array) -> dict[str, Array]:
        """Distance from the next waypoint [m], and how many have been reached."""
        return {"distance": context[:, DISTANCE], "reached": context[:, REACHED]}

    def draw_hints(self, context: Array) -> dict[str, Array]:
        """The next waypoint [m]; the ground is flat."""
        return {"goal": np.array([context[GOAL_X], context[GOAL_Y], 0.0])}


def terrain_level(value: Any) -> float:
    """A level of uneven ground.

    Raises:
        OptionError: Not a number, or not allowed.
    """
    return check_number("level", value, low=LEVELS[0], high=LEVELS[1])


def plane_vectors(name: str, value: Any, expected: str) -> Array:
    """An option as finite numbers whose last axis is x, y.

    Raises:
        OptionError: It is not.
    """
    try:
        array = as_numbers(name, value)
    except ShapeError:
        array = np.full(1, np.nan)
    if array.ndim not in (1, 2) or array.shape[-1] != 2 or not len(array) or not np.isfinite(array).all():
        raise OptionError(f"option {name!r} is {shown(value)}, expected {expected}")
    return array
