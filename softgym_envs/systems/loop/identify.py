r"""Task LoopIdentify: the arm moves to learn, from its own angles and torques only, how stiff the loop is.

Both stiffnesses and the offsets of the torque sensors are drawn anew for every episode and are not seen. Angles are measured
with noise. `estimate.Estimator` follows the motion with our model, in whatever world it happens, and updates its estimate
after every control step. The reward is the information gained about both stiffnesses, in nat:

.. math:: \tfrac12 \Delta \log \det (P^{-1})_{\theta\psi} - \text{control}, \qquad \text{and a bonus for a good estimate}

where P is the estimator's covariance, offsets marginalised. A loop kinks, and the episode fails, where a joint's moment,
stiffness times angle, exceeds `LIMIT` about either axis. A stiffness counts at its load only: moments about both axes must
have reached `PROOF` of that. So the arm has to bend gently first, and then up to the limit by the current estimate;
the bends of another episode kink stiffer loops, and load softer ones too little.

The ground truth is used only for this and for success. That needs an estimate which is right and whose interval is narrow
enough: an estimate that is right by luck does not count.

Observation ("sensors"): measured angles from the start, torques of the motors, the estimate and its standard deviation, moments
by the estimate, and the remaining time. "state" adds the true angles and speeds of arm and loop.

Legend: B batch, T control steps of an episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...core.parameters import UniformParameters
from ...core.simulator import Array, check_number
from ...core.task import BoolArray, Entry, Start
from ...engines.numba.engine import plain
from .arm_task import ArmTask, motion_entries, rest_under, tree_constants
from .estimate import NUM_FREE, OFFSETS, STIFFNESS, Belief, Estimator
from .estimator_kernels import (
    BELIEF,
    GROUND_TRUTH,
    INFORMATION,
    KNOWN,
    MEASURED,
    MOMENT,
    TIME,
    TORQUE,
    Course,
    gains,
    measure,
    sense,
)
from .model import ARM

THETA, PSI = (1.0, 8.0), (0.4, 2.4)
"""[N m/rad] Least and largest stiffness about both axes."""
OFFSET = 0.2
"""[N m] Largest offset of a torque sensor."""
LIMIT = (0.7, 0.25)
"""[N m] Largest moments about both axes that a joint of the loop withstands."""
PROOF = 0.8
"""Share of `LIMIT` that moments must have reached."""
HIDDEN = UniformParameters({STIFFNESS[0]: THETA, STIFFNESS[1]: PSI, **dict.fromkeys(OFFSETS, (-OFFSET, OFFSET))})
"""Distribution of the hidden parameters of every episode; stiffness log-uniform."""
HEAD = (
    "time", *(f"torque.{name}" for name in ARM), *(f"measured.{name}" for name in ARM), *STIFFNESS, "information", "known",
    "moment_theta", "moment_psi",
)  # fmt: skip
MOST_STEPS = 10_000
"""Most control steps of an episode: their noise is drawn beforehand."""
TORQUES, GROUND_TRUTHS, LOGS = slice(TORQUE, MEASURED), slice(GROUND_TRUTH, INFORMATION), slice(BELIEF, BELIEF + len(STIFFNESS))
MOMENTS = slice(MOMENT, BELIEF)
SEEN = ("log_theta", "log_psi", "deviation_theta", "deviation_psi", "load_theta", "load_psi", "left")
"""Estimated log stiffnesses, their standard deviations, current largest moments by them over `LIMIT`, remaining time [s]."""


@dataclass(frozen=True, eq=False)
class LoopIdentify(ArmTask):
    """Learn both stiffnesses by moving: reward = information gained [nat] + bonus at the end if they are known - control.

    The episode ends when its time is over, or the loop kinks. See `systems.loop.identify` for the definition,
    `systems.loop.estimate` for the estimate.
    """

    control_period: float = 0.02
    """[s]"""
    duration: float = 4.0
    """Length of an episode [s]."""
    angle_noise: float = 0.001
    """Standard deviation of a measured angle [rad]."""
    tolerance: float = 0.03
    """Relative error of either stiffness up to which it counts as known, and half width of its 95 % interval."""
    control_weight: float = 0.005
    """Weight of the mean squared action."""

    done_column = KNOWN
    success_definition = (
        "At the end, both stiffnesses are within `tolerance` of the ground truth, with 95 % intervals of at most `tolerance` "
        f"to either side. The largest moments about both axes were {100 * PROOF:.0f} to 100 % of those at which the loop kinks."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("duration", self.duration, positive=True, unit="s")
        check_number("angle_noise", self.angle_noise, positive=True, high=np.pi, unit="rad")
        check_number("tolerance", self.tolerance, positive=True, high=1.0)
        for name in ("control_weight", "bonus"):
            check_number(name, getattr(self, name), low=0.0)
        check_number("duration", self.duration, high=MOST_STEPS * self.control_period, unit="s")

    @cached_property
    def estimator(self) -> Estimator:
        """Estimator that the arm learns with."""
        return Estimator(self.model, self.control_period, self.angle_noise, (THETA, PSI), OFFSET)

    @cached_property
    def steps(self) -> int:
        """Control steps of an episode, T."""
        return max(round(self.duration / self.control_period), 1)

    @cached_property
    def context_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Time [s], torques, measured angles, true stiffnesses, information, whether they are known; moments; belief; noise."""
        belief = (f"belief{i}" for i in range(self.estimator.size))
        return (*HEAD, *belief, *(f"noise{t}.{name}" for t in range(self.steps + 1) for name in ARM))

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """See the module docstring."""
        angles = [Entry(f"measured.{name}", "rad", -10.0, 10.0, 0.1) for name in ARM]
        torques = [Entry(f"torque.{name}", "N m", -200.0, 200.0, 5.0) for name in ARM]
        units = (*("-",) * (len(SEEN) - 1), "s")
        seen = [Entry(name, unit, -100.0, 100.0, 0.1) for name, unit in zip(SEEN, units, strict=True)]
        true = motion_entries(self.model, "state") if self.obs_mode == "state" else []
        return (*angles, *torques, *seen, *true)

    def reset(self, start: Start) -> tuple[Array, Array]:
        """See `Task`: at rest without action."""
        columns, rows = tree_constants(self.model, start), len(start.rngs)
        torques = self.scale_action(np.zeros((rows, len(ARM))))
        rest = np.pad(rest_under(self.model, torques, columns)[0], ((0, 0), (0, self.model.n)))
        state = rest if start.state is None else start.state
        context = np.zeros((rows, len(self.context_names)))
        context[:, GROUND_TRUTHS], context[:, TORQUES] = columns[:, :2], torques
        context[:, self._noise] = [rng.standard_normal((self.steps + 1) * len(ARM)) for rng in start.rngs]
        context[:, BELIEF : self._noise.start] = self.estimator.pack(self.estimator.prior)
        return state, self._measured(context, state, 0.0)

    @cached_property
    def _noise(self) -> slice:
        """Columns of the noise in the context."""
        return slice(BELIEF + self.estimator.size, None)

    def _measured(self, context: Array, state: Array, period: float) -> Array:
        """Measure the angles `period` later and update the context with them, in place."""
        measure(self.estimator.gauge, self._course, NUM_FREE, state, context, period)
        return context

    @cached_property
    def _course(self) -> Any:
        period, duration, tolerance = float(self.control_period), float(self.duration), float(self.tolerance)
        load = (np.array(LIMIT), PROOF, self.model.turns)
        return plain(Course(period, self.steps, duration, tolerance, *load, self._noise.start))

    def belief(self, context: Array) -> Belief:
        """Current estimate."""
        return self.estimator.unpack(context[:, BELIEF : self._noise.start])

    def update(self, context: Array, state: Array) -> Array:
        """One control step later: predict the motion, measure angles, correct the estimate; the torques stay."""
        return self._learned(context.copy(), np.ascontiguousarray(context[:, TORQUES]), state)

    def update_after(self, context: Array, control: Array, state: Array) -> Array:
        """See `update`; with the torques that the arm was told to give."""
        context = context.copy()
        context[:, TORQUES] = control
        return self._learned(context, control, state)

    def _learned(self, context: Array, torques: Array, state: Array) -> Array:
        """See `update`. In place."""
        self.estimator.predict_rows(context, BELIEF, torques)
        return self._measured(context, state, self.control_period)

    def observe(self, state: Array, context: Array) -> Array:
        """See `entries`."""
        found = np.empty((len(state), len(self.entries)))
        sense(self._start, self._servo, float(self.model.servo_damping), self._course, NUM_FREE, state, context, found)
        return found

    @cached_property
    def _servo(self) -> Array:
        return np.array(self.model.servo_stiffness)

    def reward(self, state: Array, next_state: Array, action: Array, before: Array, after: Array) -> dict[str, Array]:
        """Terms "information", "known", "control"; see the class."""
        found = np.empty((3, len(action)))
        gains(action, before, after, self.bonus, -self.control_weight / len(ARM), found)
        return {"information": found[0], "known": found[1], "control": found[2]}

    def terminated(self, state: Array, context: Array) -> BoolArray:
        """Whether the time is over, or the loop has kinked."""
        return np.asarray((context[:, TIME] >= self.duration - 1e-9) | (context[:, MOMENTS] > 1.0).any(axis=1))

    def measure(self, state: Array, context: Array) -> dict[str, Array]:
        """Relative errors of the estimates, information [nat], and the largest moments so far over `LIMIT`."""
        error = np.abs(np.exp(context[:, LOGS]) / context[:, GROUND_TRUTHS] - 1.0)
        moments = {"theta_moment": context[:, MOMENT], "psi_moment": context[:, MOMENT + 1]}
        return {"theta_error": error[:, 0], "psi_error": error[:, 1], "information": context[:, INFORMATION], **moments}
