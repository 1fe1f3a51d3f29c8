"""Recordings and identification of arm and loop: torques and angles of a manipulation, followed under feedback (`tracking`).

Legend: T control steps, nx state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ...core.errors import OptionError
from ...core.parameters import Parameters
from ...core.procedure import (
    Causes,
    Experiment,
    InitialState,
    Measurement,
    MethodData,
    Procedure,
    Recorded,
    Stage,
    StageData,
    StageSimulator,
    in_half_steps,
)
from ...core.simulator import Array
from ...core.trajectory import Trajectory
from .links import TWIST
from .manipulation import SCALES, STIFF, STILL, Waves, reference
from .model import ARM, CLAMP, FRICTION, LoopModel
from .springs import AXES, SIDES, factor_names
from .tracking import HELD, MAX_LOOP_STEP, MORE, TORQUES, creeping, held, named, pulled, tracker

STIFFNESS = ("theta_stiffness", "psi_stiffness")
OFFSETS = tuple(f"offset_{name}" for name in ARM)
"""Offsets of the torque sensors: a nuisance that biases the stiffness unless it is fitted with it."""
DAMPING = ("loop_damping", "arm_damping")
HAND = ("hand.x", "hand.y", "hand.z")
"""[m] Origin of frame H."""
LOOP_MAX_SECONDS = 20.0
"""[s]"""
GUESS = {"theta_stiffness": 5.0, "psi_stiffness": 5.0}
"""The paper's initial guess."""


@runtime_checkable
class Sensing(Protocol):
    """A ground truth whose recordings go through its own sensors."""

    def sensed(self, recording: Trajectory, rng: np.random.Generator) -> Trajectory:
        """Recording as the sensors show it."""


def manipulation(
    ground_truth: Any,
    rng: np.random.Generator,
    *,
    steps: int,
    parameters: Parameters | None = None,
    period: float = MAX_LOOP_STEP,
    scale: float | None = None,
    waves: Waves | None = None,
) -> Trajectory:
    """Angles and torques while the loop is stretched, bent and twisted; `rng` draws the phases of the sines.

    The arm is held on its path by gains of 2 `STIFF`. Rows are `period` [s] apart, which is the physics step of a fit,
    whatever steps the ground truth takes. `scale` is the motion's; None: the largest that is stable for such a loop. `waves`
    are other sines than those of `manipulation.CYCLES`.

    Raises:
        OptionError: The waves begin elsewhere than at the start, at which only this ground truth is at rest.
    """
    if ground_truth.extra_fields and waves is not None and np.any(waves.offsets):
        raise OptionError(
            f"waves have offsets {waves.offsets}, expected none: {type(ground_truth).__name__} is at rest at its start only"
        )
    model, substeps = ground_truth.model, max(round(period / ground_truth.dt), 1)
    length, gains = max(steps // substeps, 2), 2 * np.array(STIFF)
    scale = SCALES[6 if model.links < 12 else 12] if scale is None else scale
    path = reference(model, length, dt=ground_truth.dt * substeps, scale=scale, rng=rng, waves=waves)
    q, hold = model.relax(path[:1], model.tree_constants(ground_truth.parameter_values(parameters, 1)))
    states, torques = ground_truth.initial_state(length + 1), np.empty((length, ground_truth.nu))
    if not ground_truth.extra_fields:  # another world has its own rest
        states[0, : model.n] = q[0]
    for k in range(length):
        torques[k] = hold[0] + gains * (path[k] - states[k, : len(ARM)])
        found, _ = ground_truth.rollout(states[k][None], torques[k][None, None], parameters, substeps=substeps)
        states[k + 1] = found[0, -1]
    acting = {TORQUES: HELD if substeps > 1 else "sampled"}  # a physics step begins with its impulse
    recording = (
        Trajectory.from_rollout(ground_truth, states, torques, substeps=substeps, metadata=acting)
        .select(ARM)
        .for_timestep(ground_truth.dt * substeps)
    )
    return ground_truth.sensed(recording, rng) if isinstance(ground_truth, Sensing) else recording


def followed(simulator: Any, trajectory: Trajectory) -> Trajectory:
    """The recording as `tracking.pulled` makes it, with the hand's position, which the paper's cost compares.

    Raises:
        DataError: The recording cannot be used.
    """
    found, model = pulled(simulator, trajectory), simulator.model
    q = np.zeros((len(found.values), model.n))
    q[:, : len(ARM)] = found.values
    hand = model.mechanism.pose("H", q)[1]
    units = (*("m",) * 3, *found.units)
    return replace(found, values=np.hstack([hand, found.values]), names=(*HAND, *ARM), units=units)


def measurement(simulator: Any, names: tuple[str, ...]) -> Measurement | None:
    """The hand's position, and the angles of the arm; None without the hand."""
    if not set(HAND) <= set(names):
        return None
    model: LoopModel = simulator.model

    def measure(states: Array) -> Array:
        q = np.ascontiguousarray(states[..., : model.n].reshape(-1, model.n))
        found = np.hstack([model.mechanism.pose("H", q)[1], q[:, : len(ARM)]])
        return np.asarray(found.reshape(*states.shape[:-1], -1))

    return Measurement((*HAND, *ARM), measure)


def first_state(simulator: Any, names: tuple[str, ...]) -> Callable[[Trajectory], Array] | None:
    """Recording -> rest (nx,) below the mean of its angles while the arm was still."""
    model: LoopModel = simulator.model

    def initial_guess(trajectory: Trajectory) -> Array:
        rows = max(round(STILL / trajectory.period), 1)
        angles = trajectory.select(ARM).values[:rows].mean(axis=0)
        q, _ = model.relax(angles[None], model.defaults[None])
        return np.concatenate([q[0], np.zeros(model.n)])

    return initial_guess


EVERYTHING = (*STIFFNESS, *DAMPING, *FRICTION, *OFFSETS, *CLAMP, "torque_delay")
"""Unknown parameters of a loop whose joints are alike."""
SPRING_DEVIATION = 0.3
"""Prior standard deviation of the log factor between springs of one loop."""
UNLIKE = 0.05
"""Standard deviation between joints that are taken to be alike, whose effect a diagnostic reports."""
FACTORS = {f"{axis}_{side}*": (1.0, SPRING_DEVIATION) for axis in AXES for side in SIDES}
KNOWN = {**dict.fromkeys(CLAMP[:3], (0.0, 0.01)), **dict.fromkeys(CLAMP[3:], (0.0, 0.03)), "torque_delay": (0.0, 0.005)}
"""Prior knowledge from a ruler and a clock, of the clamp [m, rad] and the torques [s]: mean and standard deviation."""
FITTED = {
    "tracker": tracker,
    "gentle": {"loop_damping": 0.6},
    "together": {f"{axis}_*": stiffness for axis, stiffness in zip(AXES, STIFFNESS, strict=True)},
}
"""`gentle`: with so much damping a loop of any stiffness is stable at steps of 10 ms."""


def own_springs(simulator: Any) -> Any:
    """The loop with a factor of the stiffness for every joint; None if its parts already have factors."""
    model: LoopModel = simulator.model
    return None if model.spring_parts else replace(simulator, model=replace(model, spring_parts=model.links // 2))


def unknown(simulator: Any) -> tuple[str, ...]:
    """Unknown parameters: `EVERYTHING`, or factors of the stiffness that is identified with it first."""
    parts, twist = simulator.model.spring_parts, TWIST if simulator.model.twist else ()
    return (*(factor_names(parts) or STIFFNESS), *EVERYTHING[len(STIFFNESS) :], *twist)


CANDIDATE_CAUSES = {"torque sensors of another gain": ("torque_gain",)}
"""See `Causes.candidates`."""
FOLLOWED: dict[str, Any] = {
    "prior": {**KNOWN, **FACTORS}, "simulator": StageSimulator(adapt=held), "data": StageData(pulled, free_initial=False),
}  # fmt: skip
PROCEDURE = Procedure(
    experiments=(Experiment("manipulation", manipulation, round(LOOP_MAX_SECONDS / MAX_LOOP_STEP)),),
    stages=(
        Stage("manipulation", "manipulation", unknown, "innovations", FITTED, **FOLLOWED, causes=Causes(CANDIDATE_CAUSES)),
    ),
    # Few recordings determine the loop's mass, but a scale does; the torques' offsets depend on it.
    from_recordings=Stage(
        "from_recordings",
        "",
        unknown,
        "innovations",
        FITTED,
        **FOLLOWED,
        causes=Causes(CANDIDATE_CAUSES, doubtful=("loop_scale",)),
    ),
    initial_guess=GUESS,
    recorded=Recorded(measurement, infer_controls=named),
    initial=InitialState(first_state),
    methods=MethodData(
        choices={
            "the simulator's own step": (0.5, in_half_steps),
            "friction that creeps, f tanh(speed / w), and does not stick as Coulomb's": (MORE, creeping),
        },
        homogeneous={
            f"springs that differ by {100 * UNLIKE:.0f} % (standard deviation; spring_parts in the loop's file fits each)": (
                UNLIKE,
                own_springs,
            )
        },
    ),
)
PAPER = Stage(
    "paper", "", STIFFNESS, "single_shooting", {"jacobian": "differences"},
    simulator=StageSimulator(adapt=held), data=StageData(followed, free_initial=False),
)  # fmt: skip
"""The paper's cost: the hand's position (and the angles), least squares that ignore how noise moves the model."""
