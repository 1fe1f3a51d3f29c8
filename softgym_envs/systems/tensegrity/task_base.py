"""Base of the tensegrity tasks: the robot, its start, its action and its part of the observation.

Observation ("sensors", what a laboratory with motion capture and motor encoders has): position relative to the centre of
mass and velocity of every node, in the command frame (z up, x along the commanded direction); motor positions; height of the
centre of mass over the ground; then the entries of the task. "state" replaces the body part by the simulator's full state
and writes the task's vectors in the world frame.

Legend: B batch, F faces or entries, nu motors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.errors import OptionError, ShapeError, shown
from ...core.simulator import Array, as_numbers, check_choice, check_number
from ...core.task import BaseTask, Entry, Start
from . import poses
from .features import RowFeatures
from .model import TensegrityModel
from .poses import StartSpread
from .task_kernels import NODE, V_ACROSS, V_ALONG, V_UP

OBS_MODES = ("sensors", "state")
VELOCITY = np.array([V_ALONG, V_ACROSS, V_UP])
"""Columns of a context that hold the centre of mass' velocity in the command frame."""


@dataclass(frozen=True, eq=False)
class TensegrityTask(BaseTask):
    """Base of the tensegrity tasks: the robot, its start, its action and its part of the observation."""

    model: TensegrityModel
    control_period: float = 0.1
    """[s]"""
    obs_mode: str = "sensors"
    """"sensors" or "state"."""
    control_weight: float = 0.01
    """Weight of the mean squared action."""
    settle_time: float = 0.5
    """Time for the robot to come to rest before an episode [s]."""
    spread: StartSpread = field(default_factory=StartSpread)
    num_kept: int = 0
    """Number of starts that episodes on level ground begin from, each settled once; 0: every episode settles its own."""
    parameter_values: Mapping[str, float] = field(default_factory=dict)
    """Parameters that the task fixes."""

    def __post_init__(self) -> None:
        check_choice("obs_mode", self.obs_mode, OBS_MODES)
        if not self.model.nu:
            raise OptionError("actuated is empty: a task needs a robot with at least one motor")
        check_number("control_weight", self.control_weight, low=0.0)
        _ = self.faces

    @cached_property
    def faces(self) -> Array:
        """Stable faces, as rotations (F, 4)."""
        return poses.stable_faces(self.model)

    @cached_property
    def body(self) -> RowFeatures:
        """Observations of the robot itself."""
        return RowFeatures(self.model)

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
        """Entries that belong to every motor, seen from either end of its cable, (2, nu, F); None for obs_mode "state".

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

    def first_states(self, start: Start) -> Array:
        """The caller's states, or random ones."""
        if start.state is not None:
            return start.state
        if self.num_kept and self.model.terrain.is_level:
            return poses.repeated_states(self.model, self._kept, self.spread, start, self.settle_time)
        return poses.random_states(self.model, self.faces, self.spread, start, self.settle_time)

    @cached_property
    def _kept(self) -> Array:
        """Starts (num_kept, nx) before they settle."""
        return poses.kept_starts(self.model, self.faces, self.spread, self.num_kept)

    def scale_action(self, action: Array) -> Array:
        """Motor command = action * control_limit, (B, nu)."""
        return action * self._limit

    @cached_property
    def _limit(self) -> Array:
        return np.array(self.model.control_limit)  # NumPy multiplies by an array faster than by a number

    @cached_property
    def minus_weight(self) -> float:
        """Factor on the sum of squared actions: -control_weight / nu."""
        return -self.control_weight / self.model.nu


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
