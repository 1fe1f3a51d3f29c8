"""Task of tensegrity robots: follow a velocity (roll, crawl, terrain). The observation's body part: `task_base`.

Legend: B batch, N nodes, C cables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...core.errors import OptionError
from ...core.objective import Objective
from ...core.simulator import Array, check_number
from ...core.task import BoolArray, Entry, Start
from ...engines.warp.row_kernel import RowKernel, TaskKernels
from .features import HEADING, SPEED_BOUND, feel, to_world
from .model import TensegrityModel
from .reward_kernels import follow_terms
from .task_base import VELOCITY, TensegrityTask, plane_vectors
from .task_kernels import (
    ACROSS,
    ALONG,
    FEEL,
    FOLLOW,
    FOLLOW_REWARD,
    FRAME_NAMES,
    GROUND,
    HX,
    HY,
    MEAN_ACROSS,
    MEAN_ALONG,
    MEAN_UP,
    SCALE,
    START_ACROSS,
    START_ALONG,
    SUCCESS,
    TARGET_ALONG,
)

ROLL = Objective(TensegrityModel.com_velocity, weights=(1.0, 0.5, 0.1), target=(1.0, 0.0, 0.0))
"""[Wang2020] V-C: (along, across, up) the command [m/s], weights [s^2/m^2]."""
CRAWL = Objective(TensegrityModel.com_velocity, weights=(25.0, 12.5, 2.5), target=(0.2, 0.0, 0.0))
"""As `ROLL`, over 0.2 m/s squared: the paper gives no target for the prism."""
TERMS = ("along", "across", "up", "control")
"""Names of the reward's terms."""
LEVELS = (0.0, 3.0)
"""Allowed levels of uneven ground: the parameter terrain_scale."""
FASTEST = 10.0
"""[m/s] Largest commanded speed: several times what a robot of the system reaches."""
LONGEST_MEAN = 60.0
"""[s] Largest averaging time: episodes last 10 to 20 s."""
PATCH = np.array([(0.0, 0.0), *((np.cos(angle), np.sin(angle)) for angle in 0.25 * np.pi * np.arange(8))])
"""Points of observed ground, (9, 2) [m], command frame: under the centre of mass, then counter-clockwise around it."""


@dataclass(frozen=True, eq=False)
class FollowVelocity(TensegrityTask):
    r"""Track a commanded velocity v* of the centre of mass: reward -(w_x (u_x - v*)^2 + w_y u_y^2 + w_z u_z^2) - control.

    u averages the velocity v of the centre of mass at the end of each control step, in the command frame:
    u_k = a u_{k-1} + (1 - a) v_k, u_0 = 0, a = exp(-control_period / averaging_time); u - v* is observed, too. With
    averaging_time 0, u = v: the objective of [Wang2020] V-C (`ROLL`) or V-D (`CRAWL`), as named terms.
    """

    objective: Objective = ROLL
    """Objective with weights (along, across, up) the command; its target is the usual command."""
    target_speed: tuple[float, float] = (ROLL.aim[0], ROLL.aim[0])
    """The commanded speed is drawn from this interval [m/s]."""
    heading: float | None = 0.0
    """Commanded direction, angle from the world's x axis [rad]; None draws a new one for every episode."""
    uneven: bool = False
    """Whether eight heights of the ground around the robot are observed, and `reset` takes the option "level"."""
    averaging_time: float = 0.0
    """Time over which the velocity of the reward is averaged [s]; see the class."""

    @cached_property
    def context_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Command, motion, start and target, time, success, averaged velocity error; ground under and around the robot."""
        names = ("start_along", "target_along", "start_across", "target_across", "elapsed", "success")
        mean = ("mean_along", "mean_across", "mean_up")
        return (*FRAME_NAMES, *names, *mean, *(f"ground{i}" for i in range(9 if self.uneven else 0)))

    success_definition = (
        "At least 2 s have passed. Since the start, the centre of mass has moved along the command by target speed x elapsed "
        "time, and not across it. Either may be off by half of that way, or by 0.1 m where that is more."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heading is not None:
            check_number("heading", self.heading, unit="rad")
        low, high = self.target_speed
        if not 0 <= low <= high <= FASTEST:
            raise OptionError(f"target_speed is {self.target_speed} m/s, expected 0 <= low <= high <= {FASTEST:g}")
        check_number("averaging_time", self.averaging_time, low=0.0, high=LONGEST_MEAN, unit="s")

    @property
    def option_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Options beside the shared ones: "velocity" (2,) [m/s], and "level" where the ground has levels."""
        return ("velocity", "level") if self.uneven else ("velocity",)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """See `Task`; the velocity error is in the command frame ("sensors") or the world frame ("state")."""
        names = ("along", "across", "up") if self.obs_mode == "sensors" else ("x", "y", "z")
        error = [Entry(f"velocity_error.{name}", "m/s", -SPEED_BOUND, SPEED_BOUND) for name in names]
        error += [replace(entry, name=f"mean_{entry.name}") for entry in error] if self.averaging_time else []
        ground = [Entry(f"ground{45 * i}deg", "m", -10.0, 10.0) for i in range(8)] if self.uneven else []
        return (*self.body_entries, *error, *ground)

    def option_constants(self, options: Mapping[str, Any]) -> Mapping[str, float]:
        """Value of the parameter terrain_scale: the level."""
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
        context[:, MEAN_ALONG] = -context[:, TARGET_ALONG]
        context[:, SCALE] = start.parameter_values["terrain_scale"]
        for column, start_column in ((ALONG, START_ALONG), (ACROSS, START_ACROSS)):
            context[:, start_column] = self._begin(state, context)[:, column]
        return state, self._grounded(self._begin(state, context))

    def _command(self, context: Array, velocity: Any) -> None:
        v = plane_vectors("velocity", velocity, "(2,) [m/s]")
        if v.shape != (2,):
            raise OptionError(f"option 'velocity' has shape {v.shape}, expected (2,) [m/s]")
        speed = check_number("speed of option 'velocity'", float(np.hypot(v[0], v[1])), high=FASTEST, unit="m/s")
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
        keep = np.exp(-seconds / self.averaging_time) if self.averaging_time else float(seconds == 0.0)
        return RowKernel(FOLLOW, (self.model.num_rods, seconds, float(1.0 - keep)), (self.model.layout.nx, size), size)

    @cached_property
    def _observer(self) -> RowKernel:
        return self.body.observer((*self._errors, *range(GROUND + 1, len(self.context_names))), len(self.context_names))

    @cached_property
    def _errors(self) -> tuple[int, ...]:
        """Columns of the observed errors, three for each."""
        return (*VELOCITY, MEAN_ALONG, MEAN_ACROSS, MEAN_UP) if self.averaging_time else (*VELOCITY,)

    def _grounded(self, context: Array) -> Array:
        """Add the heights of the ground to the context, where it is uneven. In place."""
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
        error = context.take(self._errors, axis=1)
        for i in range(0, len(self._errors), 3):
            error[:, i : i + 2] = to_world(error[:, i : i + 2], context[:, HEADING])
        return np.concatenate([state, error, context[:, GROUND + 1 :]], axis=1)

    def reward(self, state: Array, next_state: Array, action: Array, before: Array, after: Array) -> dict[str, Array]:
        """Terms "along", "across", "up", "control"; see the class."""
        found = np.empty((4, len(action)))
        follow_terms(action, after, self.objective.weights, self.minus_weight, found)
        return dict(zip(TERMS, found, strict=True))

    def kernels(self) -> TaskKernels | None:
        """What a device runs; None for obs_mode "state"."""
        if self.obs_mode == "state":
            return None
        size, nu = len(self.context_names), self.model.nu
        structure = (*self.objective.weights, self.minus_weight)
        reward = RowKernel(FOLLOW_REWARD, structure, (nu, size, size), len(TERMS))
        updates, field = [self._advance], self.model.terrain.field
        if self.uneven:
            ground = (field.rise, field.per_cell, int(field.last_x), int(field.last_y), field.cells, PATCH)
            updates.append(RowKernel(FEEL, ground, (size,), size))
        scale = np.full(nu, self.model.control_limit)
        return TaskKernels(
            np.arange(nu), scale, -np.inf, tuple(updates), self._observer, reward, TERMS, int(SUCCESS), ends=False
        )

    def success(self, state: Array, context: Array) -> BoolArray:
        """See `success_definition`."""
        return context[:, SUCCESS].astype(np.bool_)

    def measure(self, state: Array, context: Array) -> dict[str, Array]:
        """Way along and across the command since the start [m]."""
        return {"along": context[:, ALONG], "across": context[:, ACROSS]}

    def draw_hints(self, context: Array) -> dict[str, Array]:
        """The commanded velocity [m/s]."""
        return {"velocity": context[TARGET_ALONG] * np.array([context[HX], context[HY], 0.0])}


def terrain_level(value: Any) -> float:
    """A level of uneven ground.

    Raises:
        OptionError: Not a number, or not allowed.
    """
    return check_number("level", value, low=LEVELS[0], high=LEVELS[1])
