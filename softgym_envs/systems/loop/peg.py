r"""Task LoopPeg: a loop that hangs from the hand is slipped over a peg and kept there.

The peg is horizontal, its tip in front of the loop and off its rim, at a place that is drawn for every episode. So the hand has
to go up or sideways first, and then forward; if it comes too early the loop runs against the tip and bends. Inside means:
seen along the peg's axis, the loop winds around it once,

.. math:: \tfrac{1}{2 \pi} \sum_i \angle(r_i, r_{i+1}) = \pm 1

with r_i from the axis to its joints, and all of these are beyond the tip by at least `depth`.

Observation ("sensors"): the arm's angles from the start, their speeds, the torques of the last control, and where the tip is
from the middle of a loop that does not swing, by the arm's angles: aside, down, ahead. "state" gives the loop's angles and
speeds too.

Legend: B batch, k joints of the loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...core.errors import OptionError
from ...core.parameters import Parameters
from ...core.simulator import Array, check_number
from ...core.task import Entry, Start
from ...engines.numba.engine import plain
from ...mechanics.structure import rotation
from .arm_task import ArmTask, motion_entries, rest_under, tree_constants
from .model import ARM, CLAMP, PARAMETERS, PEG_LENGTH
from .observation import Pegging, hand_of, look_at_peg

OFF = ("off.aside", "off.down", "off.ahead")
"""Tip relative to the loop's middle, along the peg's x, y and -z at its nominal pose [m]."""
CONTEXT = (*(f"torque.{name}" for name in ARM), *CLAMP, *OFF, "distance", "around", "depth", "held", "done")
TORQUE, PEG, OFFSET = slice(0, 7), slice(7, 13), slice(13, 16)
DISTANCE, AROUND, DEPTH, HELD, DONE = range(16, 21)
SEEN_COLUMNS = np.array([*range(7), *range(13, 16)])


@dataclass(frozen=True)
class PegPlaces:
    """Distribution of pegs: off the rim of the loop, all around but not below it. A `core.parameters.ParameterDistribution`.

    The loop covers a tenth of their area, so a controller that ignores the peg misses it.
    """

    heading: float = 0.75 * np.pi
    """Direction of the horizontal line in the loop's plane, about z; by the mount of Baxter's left arm [rad]."""
    off: tuple[float, float] = (0.12, 0.3)
    """Least and largest distance from the loop's middle [m]; uniform per area between them."""
    angle: float = 0.65 * np.pi
    """Largest angle from straight above, to either side [rad]: as far as the arm reaches."""

    def sample(self, rng: np.random.Generator, nominal: Parameters) -> dict[str, float]:
        """Draw shifts of the tip from the loop's middle [m]."""
        low, high = self.off
        far, turn = np.sqrt(rng.uniform(low**2, high**2)), rng.uniform(-self.angle, self.angle)
        aside, up = far * np.sin(turn), far * np.cos(turn)
        return {"clamp_x": aside * np.cos(self.heading), "clamp_y": aside * np.sin(self.heading), "clamp_z": up}


@dataclass(frozen=True, eq=False)
class LoopPeg(ArmTask):
    """Slip the loop over the peg: reward = -distance of its middle from its place on the peg [m] + bonus - control.

    The episode ends when it has been kept there.
    """

    depth: float = 0.01
    """Least distance of all joints of the loop beyond the tip [m]."""
    hold_time: float = 1.0
    """Time for which it must be kept [s]."""
    goal_depth: float = 0.05
    """Wanted depth of the loop's middle beyond the tip [m]."""

    context_names = CONTEXT
    done_column = DONE
    success_definition = "The loop has been around the peg, beyond its tip by `depth`, for `hold_time`."

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.model.hanging:
            raise OptionError("model has a clamped loop; LoopPeg needs one with hanging = true")
        for name in ("control_weight", "bonus"):
            check_number(name, getattr(self, name), low=0.0)
        for name in ("depth", "goal_depth"):
            check_number(name, getattr(self, name), low=0.0, high=PEG_LENGTH, unit="m")
        check_number("hold_time", self.hold_time, positive=True)

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """See the module docstring."""
        torques = [Entry(f"torque.{name}", "N m", -200.0, 200.0, 5.0) for name in ARM]
        return (*motion_entries(self.model, self.obs_mode), *torques, *(Entry(name, "m", -4.0, 4.0, 0.1) for name in OFF))

    def reset(self, start: Start) -> tuple[Array, Array]:
        """See `Task`: at rest without action."""
        columns = tree_constants(self.model, start)
        torques = self.scale_action(np.zeros((len(columns), len(ARM))))
        rest = np.pad(rest_under(self.model, torques, columns)[0], ((0, 0), (0, self.model.n)))
        state = rest if start.state is None else start.state
        context = np.zeros((len(state), len(CONTEXT)))
        context[:, PEG] = columns[:, [PARAMETERS.index(name) for name in CLAMP]]
        return state, self._looked(context, torques, np.ascontiguousarray(state), 0.0)

    @cached_property
    def _axes(self) -> Array:
        """Aside, down, ahead of the loop that hangs at the start: the nominal peg's x, y, z, as columns (3, 3)."""
        return rotation(self.model.clamp[3:])

    @cached_property
    def _pegging(self) -> Any:
        tree = self.model.mechanism.structure.skeleton
        hand = hand_of(self.model)
        middle = 0.5 * self.model.height  # of a loop that does not swing
        wanted = (float(self.goal_depth), float(self.depth), float(self.hold_time))
        return plain(Pegging(tree, hand.joint, hand.origin, self._ring, self._axes, float(middle), *wanted))

    @cached_property
    def _ring(self) -> np.ndarray:
        """Coordinates whose links begin at the loop's joints, all around (links,)."""
        left, right = np.split(self.model.node_coordinates, 2)
        return np.concatenate([left, right[::-1]])

    def _looked(self, context: Array, torques: Array, state: Array, period: float) -> Array:
        """Update torques, places of tip and loop, time around the peg, and whether that was long enough, in place."""
        look_at_peg(self._pegging, torques, state, context, period)
        return context

    def update(self, context: Array, state: Array) -> Array:
        """See `_looked`; the torques stay."""
        return self._looked(context.copy(), np.ascontiguousarray(context[:, TORQUE]), state, self.control_period)

    def update_after(self, context: Array, control: Array, state: Array) -> Array:
        """See `_looked`."""
        return self._looked(context.copy(), control, state, self.control_period)

    def observe(self, state: Array, context: Array) -> Array:
        """See `entries`; torques from those that hold the start."""
        return self.felt(state, context, SEEN_COLUMNS, self._from)

    @cached_property
    def _from(self) -> Array:
        return np.concatenate([self.hold, np.zeros(len(OFF))])

    def reward(self, state: Array, next_state: Array, action: Array, before: Array, after: Array) -> dict[str, Array]:
        """Terms "distance", "kept", "control"; see the class."""
        found = self.terms(action, before, after, DISTANCE, DONE)
        return {"distance": found[0], "kept": found[1], "control": found[2]}

    def measure(self, state: Array, context: Array) -> dict[str, Array]:
        """Distance of the loop's middle from its wanted place [m], whether it is around the axis, and its depth [m]."""
        return {"distance": context[:, DISTANCE], "around": context[:, AROUND], "depth": context[:, DEPTH]}

    def draw_hints(self, context: Array) -> dict[str, Array]:
        """Wanted place of the loop's middle, and the peg."""
        turn, tip = rotation(context[PEG][3:].tolist()), context[PEG][:3]
        return {"goal": tip + self.goal_depth * turn[:, 2]}
