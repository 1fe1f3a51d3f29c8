"""Base of the loop's tasks: torques as actions, an arm that senses only itself, and states of rest.

Legend: B batch, P parameters, n coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.errors import StructureError
from ...core.simulator import Array, Status, check_choice
from ...core.task import BoolArray, Entry, GoalTask, Start
from .model import ARM, LoopModel
from .observation import arm_terms, feel

OBS_MODES = ("sensors", "state")
INCREMENT = np.array([12.0, 12.0, 12.0, 12.0, 4.0, 4.0, 2.0])
"""[N m] Torques beyond those that hold the start, at an action of 1; s1 has no more."""


@dataclass(frozen=True, eq=False)
class ArmTask(GoalTask):
    """A task whose actions are torques beyond those that hold the start; see `tasks`."""

    model: LoopModel
    control_period: float = 0.05
    """[s]"""
    obs_mode: str = "sensors"
    """"sensors" or "state"."""
    control_weight: float = 0.01
    """Weight of the mean squared action."""
    bonus: float = 5.0
    """Reward for reaching the task's goal."""

    action_names = ARM

    def __post_init__(self) -> None:
        check_choice("obs_mode", self.obs_mode, OBS_MODES)
        for name, torque, effort in zip(ARM, self.hold, self.model.control_bounds[1], strict=True):
            if abs(torque) > effort:
                raise StructureError(
                    f"holding arm and loop at the start takes {abs(torque):.3g} N m of {name}, which gives {effort:.3g} N m: "
                    "give another start, or a lighter loop"
                )

    @cached_property
    def disturbance_scale(self) -> Array:
        """A kick of unit size is 1 rad/s in every joint of the arm."""
        kick = np.zeros(2 * self.model.n)
        kick[self.model.n : self.model.n + len(ARM)] = 1.0
        return kick

    def scale_action(self, action: Array) -> Array:
        """Torques (B, 7) [N m]: those that hold the start, and `INCREMENT` times the action."""
        hold, increment = self._torques
        return hold + action * increment

    @cached_property
    def _torques(self) -> tuple[Array, Array]:
        """`hold` and `INCREMENT` as (1, 7): NumPy is faster where shapes are alike."""
        return self.hold[None], INCREMENT[None]

    @cached_property
    def hold(self) -> Array:
        """Torques that hold the start (7,) [N m]."""
        return self.model.hold

    @cached_property
    def _start(self) -> Array:
        return np.array(self.model.start)

    def motion(self, state: Array) -> tuple[Array, Array]:
        """Entries of `motion_entries`: the arm's angles from the start (B, 7), and its speeds or the rest of the state."""
        n = self.model.n
        rest = state[:, len(ARM) :] if self.obs_mode == "state" else state[:, n : n + len(ARM)]
        return state[:, : len(ARM)] - self._start, rest

    def felt(self, state: Array, context: Array, columns: NDArray[np.int64], less: Array) -> Array:
        """Entries of `motion_entries` (B, .), followed by columns (k,) of the context minus `less` (k,)."""
        n = self.model.n
        first, count = (len(ARM), 2 * n) if self.obs_mode == "state" else (n, 2 * len(ARM))
        found = np.empty((len(state), count + len(columns)))
        feel(self._start, first, state, context, columns, less, found)
        return found

    def terms(self, action: Array, before: Array, after: Array, loss: int, gain: int) -> Array:
        """Reward terms (3, B): minus context column `loss`, `bonus` for the gain of column `gain`, minus the control's cost."""
        found = np.empty((3, len(action)))
        arm_terms(action, before, after, loss, gain, self.bonus, -self.control_weight / len(ARM), found)
        return found


def tree_constants(model: LoopModel, start: Start) -> Array:
    """Parameters of the tree for every row (B, P); those that the world does not have are at their defaults."""
    specs, rows = model.parameters_class.specs(), len(start.rngs)
    given: dict[str, Any] = {
        name: start.parameter_values.get(name, np.full(rows, spec.default)) for name, spec in specs.items()
    }
    return model.tree_constants(np.stack([given[name] for name in specs], axis=1))


def rest_under(model: LoopModel, torques: Array, columns: Array) -> tuple[Array, BoolArray]:
    """Rest of arm and loop under torques (B, 7) and parameters of the tree (B, P): q (B, n), and whether it was found.

    Where it was not, q is the model's rest.
    """
    first = np.tile(model.rest_state()[: model.n], (len(torques), 1))
    found = model.mechanism.rest(first, torques, columns)
    good = found.status == Status.OK
    return np.where(good[:, None], found.q, first), good


def motion_entries(model: LoopModel, obs_mode: str) -> list[Entry]:
    """Angles and speeds of the arm, or of arm and loop."""
    layout, n = model.layout, model.n
    seen = range(2 * n) if obs_mode == "state" else [*range(len(ARM)), *range(n, n + len(ARM))]
    sizes = {"rad": (10.0, 0.1), "rad/s": (100.0, 1.0)}  # largest, typical
    units = layout.units
    return [Entry(layout.names[i], units[i], -sizes[units[i]][0], sizes[units[i]][0], sizes[units[i]][1]) for i in seen]
