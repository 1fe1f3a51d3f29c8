"""Tasks of vine robots: bring the tip to a goal.

Observation ("sensors", what a laboratory with a camera on the tip, a reel encoder and pressure gauges has): length and growth
speed; pressure of every muscle over its range; tip position, heading and velocity; the goal in the frame of the tip; and, where
there are obstacles, range readings at the tip. "state" gives the simulator's full state and the goal instead.

Action: growth speed, none up to 0 and all at 1, and one number per section: the left muscle's pressure if positive, the right
one's if negative. The zero action is rest.

Legend: B batch, K sections, M obstacles, R range readings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...core.errors import OptionError
from ...core.objective import Objective
from ...core.simulator import Array, check_choice, check_number, check_place
from ...core.task import Entry, GoalTask, Start
from ...engines.warp.row_kernel import RowKernel, TaskKernels
from .geometry import shape_arrays
from .layouts import Layout, Open
from .memory import make_size
from .model import VineModel
from .obstacles import lines_apart
from .task_kernels import (
    APPROACHED,
    CONTEXT_NAMES,
    COS,
    DISTANCE,
    GOAL_X,
    GOAL_Y,
    OBSERVE,
    RANGES,
    REACHED,
    REWARD,
    SIN,
    TIP_X,
    TIP_Y,
    TRACK,
    drive,
    reward_terms,
)

MAX_TIP_GOAL = 100.0
"""[m] Largest coordinate of a given goal."""


def tip_position(model: VineModel, states: Array) -> Array:
    """Position of the tip, (..., nx) -> (..., 2) [m]."""
    return np.asarray(model.tip(states)[..., :2])


def disturbance_scale(model: VineModel) -> Array:
    """Tangent vector (n,) of a kick of 1 m/s: at full length it turns a link by 1 / max_length rad/s."""
    scale = np.zeros(model.layout.n)
    scale[model.num_links : 2 * model.num_links] = 1.0 / model.max_length
    return scale


REACH = Objective(tip_position, weights=(10.0, 10.0), control_weight=0.001)
"""Objective of planners [1/m^2]: squared distance of the tip from the goal. The task rewards progress in that distance."""
GOAL_TOLERANCE = 0.03
"""[m] Distance within which the goal is reached."""
OBS_MODES = ("sensors", "state")
TERMS = ("progress", "reached", "control")
"""Names of the reward's terms."""
MAX_LEVEL = 3.0
"""Highest level of difficulty."""
MAX_GOAL_SPEED = 0.15
"""[m/s] A tip that sweeps over the goal faster than this has not reached it; growth is at most 0.1 m/s."""
RAYS = np.deg2rad([-80.0, -60.0, -40.0, -20.0, 0.0, 20.0, 40.0, 60.0, 80.0])
"""(R,) [rad]: directions of the range readings from the tip's heading."""
RANGE = 0.5
"""[m] Farthest range reading."""
ANGLE_BOUND, RATE_BOUND, SPEED_BOUND = 100.0, 1e3, 50.0
"""[rad], [rad/s], [m/s] Observations are clipped here."""


@dataclass(frozen=True, eq=False)
class ReachGoal(GoalTask):
    """Bring the tip to a goal: reward = progress towards it [m] + bonus for reaching it - control.

    The episode ends there. A robot that has grown past its goal cannot come back.
    """

    model: VineModel
    control_period: float = 0.1
    """[s]"""
    obs_mode: str = "sensors"
    """"sensors" or "state"."""
    control_weight: float = REACH.control_weight
    """Weight of the mean squared action."""
    tolerance: float = GOAL_TOLERANCE
    """[m]"""
    hold_time: float = 0.0
    """Time for which the tip is to stay at the goal [s]; 0: reaching it is enough."""
    bonus: float = 1.0
    """Reward for reaching the goal."""
    layout: Layout = field(default_factory=Open)
    """Layout of obstacles and goals; the model must have its shapes (`Layout.furnish`)."""
    level: float = 1.0
    """Level of difficulty, unless `reset` has the option "level"."""
    settle_time: float = 0.5
    """Time for the robot to come to rest before an episode [s]."""
    parameter_values: Mapping[str, float] = field(default_factory=dict)
    """Parameters that the task fixes."""

    done_column = REACHED

    def __post_init__(self) -> None:
        check_choice("obs_mode", self.obs_mode, OBS_MODES)
        check_number("control_weight", self.control_weight, low=0.0)
        check_number("tolerance", self.tolerance, positive=True, high=self.model.max_length, unit="m")
        check_number("hold_time", self.hold_time, low=0.0, unit="s")
        if check_number("level", self.level, low=1.0, high=MAX_LEVEL) != 1.0 and not self.layout.levels:
            raise OptionError(f"level is {self.level:g}, but these obstacles have no levels; leave it out")

    @property
    def success_definition(self) -> str:
        """See `Task`."""
        when = "every control step for `hold_time`" if self.hold_time > 0.0 else "a control step"
        return f"The tip has been within `tolerance` of the goal, no faster than 0.15 m/s, at the end of {when}."

    @property
    def option_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Options beside the shared ones: "goal" (2,) [m], and "level" where the layout has levels."""
        return ("goal", "level") if self.layout.levels else ("goal",)

    # --- names and sizes -------------------------------------------------------------------------------------------

    @cached_property
    def num_rays(self) -> int:
        """R; a robot without obstacles has none."""
        return len(RAYS) if self.model.obstacles else 0

    @cached_property
    def context_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Goal, tip, ranges; see `task_kernels`."""
        return (*CONTEXT_NAMES, *(f"range{k}" for k in range(self.num_rays)))

    @cached_property
    def action_names(self) -> tuple[str, ...]:
        """Growth, then one per section."""
        return ("growth", *(f"steer{k}" for k in range(self.model.num_sections)))

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """See `Task` and the module docstring."""
        model = self.model
        reach = 2.0 * model.max_length + float(np.hypot(*model.base[:2]))
        goal = 2.0 * reach
        if self.obs_mode == "state":
            return (*self._state_entries(), *(Entry(f"goal.{axis}", "m", -goal, goal) for axis in "xy"))
        gauges = [Entry(f"pressure.{name}", "of range", 0.0, 1.0) for name in model.control_names[1:]]
        return (
            Entry("length", "m", 0.0, model.max_length),
            Entry("growth", "m/s", -SPEED_BOUND, SPEED_BOUND, scale=model.max_growth),
            *gauges,
            *(Entry(f"tip.{axis}", "m", -reach, reach) for axis in "xy"),
            *(Entry(f"tip.{name}", "-", -1.0, 1.0) for name in ("cos", "sin")),
            *(Entry(f"tip.v{axis}", "m/s", -SPEED_BOUND, SPEED_BOUND, scale=model.max_growth) for axis in "xy"),
            *(Entry(f"goal.{name}", "m", -goal, goal) for name in ("ahead", "aside")),
            *(Entry(f"range{np.rad2deg(angle):+.0f}deg", "m", 0.0, RANGE, scale=0.1) for angle in RAYS[: self.num_rays]),
        )

    def _state_entries(self) -> list[Entry]:
        model = self.model
        bound, scale = np.ones((2, model.layout.nx))
        bounds, scales = model.split(bound), model.split(scale)
        bounds.theta[...], bounds.omega[...], bounds.length[...] = ANGLE_BOUND, RATE_BOUND, model.max_length
        bounds.growth[...], scales.growth[...] = SPEED_BOUND, model.max_growth
        bounds.pressure[...], scales.pressure[...] = 10 * model.max_steering, model.max_steering
        bounds.obstacles[...] = 1e3
        table = zip(model.layout.names, model.layout.units, bound.tolist(), scale.tolist(), strict=True)
        return [Entry(name, unit, -high, high, scale=size) for name, unit, high, size in table]

    @cached_property
    def disturbance_scale(self) -> Array:
        """See the function of this name."""
        return disturbance_scale(self.model)

    # --- an episode ------------------------------------------------------------------------------------------------

    def reset(self, start: Start) -> tuple[Array, Array]:
        """A robot of about the initial length, at rest with a little pressure in its muscles; obstacles; and its goal."""
        level = check_number("level", start.options.get("level", self.level), low=1.0, high=MAX_LEVEL)
        first, control = self._first(start)
        try:
            poses, goals = self.layout.draw(self.model, start.rngs, level)
        except OptionError:
            self._require_free(first)
            raise
        if start.state is None:
            self.model.split(first).obstacles[:] = poses
            self._require_free(first)
            state = start.settle(first, control, self.settle_time)
        else:
            state = start.state
            self._require_free(state)
        context = np.zeros((len(state), len(self.context_names)))
        context[:, [GOAL_X, GOAL_Y]] = goals
        if "goal" in start.options:
            context[:, [GOAL_X, GOAL_Y]] = check_place("option 'goal'", start.options["goal"], (2,), MAX_TIP_GOAL)
        context = self._track(state, context)
        context[:, APPROACHED] = context[:, DISTANCE]
        return state, context

    def _require_free(self, state: Array) -> None:
        """Refuse robots whose axis is inside an obstacle."""
        model = self.model
        axes, poses = model.points(state)[:, None], model.split(state).obstacles
        shapes = [obstacle.shape for obstacle in model.obstacles]
        if all(lines_apart(shape, poses[:, k], axes, 0.0).all() for k, shape in enumerate(shapes)):
            return
        deepest = model.clearance(state) + model.radius
        if (deepest < 0.0).any():
            raise OptionError(f"an obstacle stands over the robot: their overlap is {-deepest.min():.3g} m at the tube's axis")

    def _first(self, start: Start) -> tuple[Array, Array]:
        """Straight robots (B, nx), and pressures to settle under (B, nu)."""
        model = self.model
        state, control = np.tile(model.rest_state(), (len(start.rngs), 1)), np.zeros((len(start.rngs), model.nu))
        length = model.split(state).length
        low, high = max(model.link_length, 0.9 * model.initial_length), min(1.1 * model.initial_length, model.max_length)
        drawn = np.array([rng.random(1 + 2 * model.num_sections) for rng in start.rngs])
        length[...], control[:, 1:] = low + (high - low) * drawn[:, 0], 0.1 * model.max_steering * drawn[:, 1:]
        return state, control

    def scale_action(self, action: Array) -> Array:
        """Speed max_growth max(0, a); pressures max_steering max(0, a) and max_steering max(0, -a)."""
        control = np.empty((len(action), self.model.nu))
        drive(action, *self._actuators, control)
        return control

    @cached_property
    def _actuators(self) -> tuple[NDArray[np.intp], Array]:
        """For every control, the entry of the action that drives it, and its scale."""
        pairs = 1 + np.arange(self.model.num_sections)
        scale = [self.model.max_growth, *self.model.num_sections * (self.model.max_steering, -self.model.max_steering)]
        return np.concatenate([[0], np.repeat(pairs, 2)]), np.array(scale)

    @cached_property
    def _track(self) -> RowKernel:
        around = shape_arrays(self.model.obstacles, "cpu")
        rays = np.stack([np.cos(RAYS), np.sin(RAYS)], axis=1)[: self.num_rays]
        wanted = (self.tolerance, MAX_GOAL_SPEED, self.control_period, self.hold_time)
        structure = (make_size(self.model, 1.0, 0), *around, rays, RANGE, *wanted)
        width = len(self.context_names)
        return RowKernel(TRACK, structure, (self.model.layout.nx, width), width)

    @cached_property
    def _observer(self) -> RowKernel:
        columns = np.array([*range(TIP_X, DISTANCE), *range(APPROACHED + 1, RANGES + self.num_rays)], dtype=np.int32)
        width = 2 + 2 * self.model.num_sections + len(columns)
        widths = (self.model.layout.nx, len(self.context_names))
        return RowKernel(OBSERVE, (make_size(self.model, 1.0, 0), columns), widths, width)

    def update(self, context: Array, state: Array) -> Array:
        """Tip, distance, ranges."""
        return self._track(state, context)

    def observe(self, state: Array, context: Array) -> Array:
        """See `entries`."""
        if self.obs_mode == "sensors":
            return self._observer(state, context)
        return np.concatenate([state, context[:, [GOAL_X, GOAL_Y]]], axis=1)

    def reward(self, state: Array, next_state: Array, action: Array, before: Array, after: Array) -> dict[str, Array]:
        """Terms "progress", "reached", "control"; see the class."""
        found = np.empty((3, len(action)))
        reward_terms(action, before, after, self.bonus, self._minus_weight, found)
        return dict(zip(TERMS, found, strict=True))

    @cached_property
    def _minus_weight(self) -> float:
        """Factor on the sum of squared actions."""
        return -self.control_weight / len(self.action_names)

    def kernels(self) -> TaskKernels | None:
        """What a device runs; None for obs_mode "state"."""
        if self.obs_mode == "state":
            return None
        size, na = len(self.context_names), len(self.action_names)
        reward = RowKernel(REWARD, (self.bonus, self._minus_weight), (na, size, size), len(TERMS))
        columns, scale = self._actuators
        return TaskKernels(columns, scale, 0.0, (self._track,), self._observer, reward, TERMS, int(REACHED))

    def measure(self, state: Array, context: Array) -> dict[str, Array]:
        """Distance from the goal and length of the robot [m]."""
        return {"distance": context[:, DISTANCE], "length": state[:, 2 * self.model.num_links]}

    def draw_hints(self, context: Array) -> dict[str, Array]:
        """The goal, and the range readings from the tip to where they end [m]."""
        hints = {"goal": np.array([context[GOAL_X], context[GOAL_Y], 0.0])}
        if self.num_rays:
            angle = np.arctan2(context[SIN], context[COS]) + RAYS
            tip, height = context[[TIP_X, TIP_Y]], np.full(self.num_rays, self.model.radius)
            ends = tip + context[RANGES:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
            hints["rays"] = np.stack(
                [np.column_stack([np.broadcast_to(tip, ends.shape), height]), np.column_stack([ends, height])], axis=1
            )
        return hints
