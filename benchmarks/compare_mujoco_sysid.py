"""The same identification by ours and by MuJoCo 4's `mujoco.sysid`, in one process: table and results/mujoco_sysid.json.

A planar chain of ten links hangs in gravity, driven by a motor at its root; one stiffness and one damping, shared by all its
joints, are unknown. It is recorded once in MuJoCo (2 s, 100 Hz); every seed adds other noise to the same recording. All tools
get the same numbers, the same physics step, the same known initial state, the same start and bounds, and one thread; they run in
turn, so that whatever else the machine does hits all of them. `mujoco.sysid` runs twice on markers: as its documentation shows,
and with a residual function of the user's own that leaves out its normalisation (the strongest way to use it here).

Needs the extra `compare`: pip install -c constraints.txt -e '.[compare]'. Legend: T control steps, J joints, B rows.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import mujoco
import mujoco.rollout
import numpy as np
import tyro
from mujoco import sysid as peer
from numpy.typing import NDArray
from scipy import stats

from softgym_envs.core.errors import MissingDependencyError
from softgym_envs.core.mujoco_engine import MujocoEngine
from softgym_envs.core.parameters import Parameters, param, write_atomically
from softgym_envs.core.simulator import IntArray, Linearization, finite_differences
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet
from sysid import FitProblem, FitResult, Measurement, ShootingOptions, single_shooting

Array = NDArray[np.float64]
Sensors = Literal["markers", "joints"]

JOINTS = 10
LENGTH = 0.1
"""Of a link [m]."""
DT = 0.002
"""Physics step [s]."""
SUBSTEPS = 5
"""Physics steps per row of the recording."""
ROWS = 200
"""Control steps of a recording."""
NOISE = 1e-3
"""[m] on markers, [rad] on joint angles."""
REQUIRED = (0.90, 0.99)
"""Coverage of 95 % intervals that is asked for."""


@dataclass(frozen=True)
class ChainParameters(Parameters):
    """Constants of every joint: torque = -stiffness * angle - damping * rate."""

    stiffness: float = param(0.48, unit="N m/rad", bounds=(0.02, 2.0), scale="log", source="2.4 times the recorded chain's")
    damping: float = param(0.02, unit="N m s/rad", bounds=(5e-4, 0.05), scale="log", source="4 times the recorded chain's")


TRUTH = ChainParameters(stiffness=0.2, damping=0.005)


def chain_spec(sensors: Sensors) -> mujoco.MjSpec:
    """Ten capsules on hinges about y, a motor at the first joint, and a marker at the tip of every link, or joint sensors."""
    spec = mujoco.MjSpec()
    spec.option.timestep = DT
    spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    parent = spec.worldbody
    for i in range(1, JOINTS + 1):
        body = parent.add_body(name=f"link{i}", pos=[0.0, 0.0, -LENGTH if i > 1 else 0.0])
        start = ChainParameters()
        body.add_joint(
            name=f"joint{i}", type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, 1, 0], armature=5e-4,
            stiffness=[start.stiffness, 0, 0], damping=[start.damping, 0, 0],
        )  # fmt: skip
        body.add_geom(
            type=mujoco.mjtGeom.mjGEOM_CAPSULE, fromto=[0, 0, 0, 0, 0, -LENGTH], size=[0.01, 0, 0], mass=0.05
        )  # fmt: skip
        body.add_site(name=f"tip{i}", pos=[0.0, 0.0, -LENGTH])
        _add_sensor(spec, sensors, i)
        parent = body
    motor = spec.add_actuator(name="motor", target="joint1", trntype=mujoco.mjtTrn.mjTRN_JOINT)
    motor.set_to_motor()
    return spec


def _add_sensor(spec: mujoco.MjSpec, sensors: Sensors, i: int) -> None:
    if sensors == "markers":
        kind, what, name = mujoco.mjtSensor.mjSENS_FRAMEPOS, mujoco.mjtObj.mjOBJ_SITE, f"tip{i}"
    else:
        kind, what, name = mujoco.mjtSensor.mjSENS_JOINTPOS, mujoco.mjtObj.mjOBJ_JOINT, f"joint{i}"
    spec.add_sensor(name=f"{name}_pos", type=kind, objtype=what, objname=name)


@dataclass(frozen=True, eq=False)
class ChainSimulator:
    """The chain as a `Simulator`: state (angles, rates), control = torque at the first joint [N m]."""

    dt: float = DT
    at_once: bool = True
    """One call of `mujoco.rollout` per rollout instead of one per control step: the same bits, as nothing here has a constraint
    and the solver's warm start, which must not pass from one control step to the next, therefore has no meaning."""

    nx = n = 2 * JOINTS
    nu = 1
    state_names = tuple([f"joint{i}.angle" for i in range(1, JOINTS + 1)] + [f"joint{i}.rate" for i in range(1, JOINTS + 1)])
    control_names = ("motor",)
    control_bounds = (np.array([-2.0]), np.array([2.0]))
    default_parameters = ChainParameters()

    @cached_property
    def engine(self) -> MujocoEngine:
        """MuJoCo behind it, on one thread."""
        index = np.arange(self.nx, dtype=np.intp)
        return MujocoEngine(chain_spec("joints").compile(), self.nx, self.nu, index, _write_constants, num_threads=1)

    def initial_state(self, batch: int = 1) -> Array:
        """Hanging at rest, (B, nx)."""
        return np.zeros((batch, self.nx))

    def step(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """See `Simulator.step`."""
        return self.engine.step(state, control, (parameters or self.default_parameters).to_vector(), substeps=substeps)

    def rollout(
        self, state: Array, controls: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """See `Simulator.rollout`."""
        constants = (parameters or self.default_parameters).to_vector()
        if self.at_once:
            states = self._at_once(state, controls, constants, substeps)
            if (np.abs(states) < self.engine.speed_limit).all():  # else some row failed: let the engine judge
                return states, np.zeros(len(state), dtype=np.int32)
        return self.engine.rollout(state, controls, constants, substeps=substeps)

    def _at_once(self, state: Array, controls: Array, constants: Array, substeps: int) -> Array:
        models, data = self.engine.models(constants, len(state)), self._data
        physics = np.concatenate([np.zeros((len(state), 1)), state], axis=1)
        passed, _ = mujoco.rollout.rollout(models, data, physics, np.repeat(controls, substeps, axis=1))
        return np.concatenate([state[:, None], np.asarray(passed)[:, substeps - 1 :: substeps, 1:]], axis=1)

    @cached_property
    def _data(self) -> mujoco.MjData:
        return mujoco.MjData(self.engine.model)

    def retract(self, state: Array, dx: Array) -> Array:
        """State + dx: angles of hinges need no manifold."""
        return np.asarray(state + dx)

    def difference(self, a: Array, b: Array) -> Array:
        """A - b."""
        return np.asarray(a - b)

    def linearize(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Linearization:
        """Central differences."""
        return finite_differences(self, state, control, parameters, substeps=substeps)


def _write_constants(model: mujoco.MjModel, constants: Array) -> None:
    model.jnt_stiffness[:] = constants[0]
    model.dof_damping[:] = constants[1]


def marker_positions(states: Array) -> Array:
    """Tip of link i: p_i = p_{i-1} - length (sin phi_i, 0, cos phi_i), phi_i = q_1 + ... + q_i: (..., nx) -> (..., 3 J)."""
    phi = np.cumsum(states[..., :JOINTS], axis=-1)
    links = -LENGTH * np.stack([np.sin(phi), np.zeros_like(phi), np.cos(phi)], axis=-1)
    return np.asarray(np.cumsum(links, axis=-2).reshape(*states.shape[:-1], 3 * JOINTS))


MARKERS = Measurement(tuple(f"tip{i}.{axis}" for i in range(1, JOINTS + 1) for axis in "xyz"), marker_positions)
ANGLES = Measurement(ChainSimulator.state_names[:JOINTS], lambda states: np.ascontiguousarray(states[..., :JOINTS]))


# --- data -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Recording:
    """What MuJoCo's own rollout gives for the true constants, without noise."""

    start: Array
    """(nx,)"""
    controls: Array
    """(T, 1) [N m]"""
    values: Array
    """(T+1, ny), in the order of the model's sensors."""
    sensors: Sensors

    @property
    def measurement(self) -> Measurement:
        """The columns as a function of the state."""
        return MARKERS if self.sensors == "markers" else ANGLES

    @property
    def times(self) -> Array:
        """(T+1,) [s]"""
        return DT * SUBSTEPS * np.arange(len(self.values))

    def noisy(self, seed: int) -> Trajectory:
        """Values plus noise, as both tools get them."""
        names = self.measurement.names
        unit = "m" if self.sensors == "markers" else "rad"
        units = (unit,) * len(names)
        exact = Trajectory(self.times, self.controls, self.values, names, units, ("motor",), ("N m",), SUBSTEPS)
        return exact.with_noise(np.random.default_rng(seed), NOISE)


def record(sensors: Sensors, which: int = 0, *, amplitude: float = 0.2) -> Recording:
    """Recording number `which`: random bent start, torque of three sines, by `mujoco.rollout` with the true constants."""
    rng = np.random.default_rng([2026, which])
    start = np.concatenate([rng.uniform(0.0, 0.1, JOINTS), np.zeros(JOINTS)])
    t = DT * SUBSTEPS * np.arange(ROWS)
    phase, rate = rng.uniform(0, 2 * np.pi, 3), np.array([1.0, 2.3, 4.1])
    controls = amplitude * np.sin(2 * np.pi * rate * t[:, None] + phase).sum(axis=1, keepdims=True)
    model = chain_spec(sensors).compile()
    _write_constants(model, TRUTH.to_vector())
    _, sensed = mujoco.rollout.rollout(model, mujoco.MjData(model), np.concatenate([[0.0], start]), _held(controls))
    return Recording(start, controls, np.asarray(sensed[0, ::SUBSTEPS]), sensors)  # mj_step senses before it moves


def _held(controls: Array) -> Array:
    """Controls (T, 1) at every physics step, and once more for the last row: (T substeps + 1, 1)."""
    held = np.repeat(controls, SUBSTEPS, axis=0)
    return np.concatenate([held, held[-1:]])


# --- the two tools --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fitted:
    """What one fit says."""

    values: dict[str, float]
    half_widths: dict[str, tuple[float, float]]
    """Constant -> distance from the value to the lower and upper end of its 95 % interval."""
    seconds: float

    def covers(self, name: str) -> bool:
        """Whether the interval holds the true constant."""
        error = float(getattr(TRUTH, name)) - self.values[name]
        return -self.half_widths[name][0] <= error <= self.half_widths[name][1]


def our_problem(recording: Recording, data: TrajectorySet | DataSplit, start: ChainParameters) -> FitProblem:
    """The problem for `sysid`, with a known initial state."""
    return FitProblem(
        ChainSimulator(), data, ("stiffness", "damping"), start=start, measurement=recording.measurement,
        initial_state=lambda _: recording.start, free_initial=False,
    )  # fmt: skip


def ours(recording: Recording, trajectory: Trajectory, start: ChainParameters | None = None) -> Fitted:
    """Single shooting with noise estimated per channel, from the recording to the intervals."""
    begin = time.perf_counter()
    result = single_shooting(our_problem(recording, TrajectorySet((trajectory,)), start or ChainParameters()))
    return _fitted(result, time.perf_counter() - begin)


def _fitted(result: FitResult, seconds: float) -> Fitted:
    values = {e.name: e.value for e in result.estimates}
    ends = {e.name: (e.value - e.interval[0], e.interval[1] - e.value) for e in result.estimates}
    return Fitted(values, ends, seconds)


def plain_residual(
    params: Any, predicted: Any, measured: Any, model: mujoco.MjModel, return_pred_all: bool, **_: Any
) -> tuple[Array, Any, Any]:
    """A residual for `mujoco.sysid` without its division by each column's size; the columns have the same noise."""
    del params, model, return_pred_all
    inside = (measured.times >= predicted.times[0] - 1e-9) & (measured.times <= predicted.times[-1] + 1e-9)
    measured = peer.TimeSeries(measured.times[inside], measured.data[inside], measured.signal_mapping)
    # One mapping object for both: two equal ones of vector sensors cannot be compared by `mujoco.sysid`.
    predicted = peer.TimeSeries(measured.times, predicted.resample(measured.times).data, measured.signal_mapping)
    return np.asarray(predicted.data - measured.data), predicted, measured


def peer_parameters(start: ChainParameters) -> Any:
    """The unknown constants for `mujoco.sysid`."""

    def setter(attribute: str) -> Callable[[mujoco.MjSpec, Any], None]:
        def write(spec: mujoco.MjSpec, parameter: Any) -> None:
            for joint in spec.joints:
                setattr(joint, attribute, np.array([[float(parameter.value[0])], [0.0], [0.0]]))  # polynomial in MuJoCo 4

        return write

    found = peer.ParameterDict()
    for name, spec in ChainParameters.specs().items():
        found.add(peer.Parameter(name, float(getattr(start, name)), *spec.bounds, modifier=setter(name)))
    return found


def peer_sequences(recording: Recording, trajectory: Trajectory, *, lag: float = DT) -> Any:
    """The recording for `mujoco.sysid`: controls at every physics step; sensors stamped `lag` [s] late, as its rollouts are."""
    spec = chain_spec(recording.sensors)
    model = spec.compile()
    held = _held(recording.controls)
    control = peer.TimeSeries.from_control_names(DT * np.arange(len(held)), held, model)
    sensed = peer.TimeSeries.from_names(trajectory.times + lag, trajectory.values, model)
    physics = np.concatenate([[0.0], recording.start])
    return peer.ModelSequences("chain", spec, "recording", physics, control, sensed)


def theirs(
    recording: Recording,
    trajectory: Trajectory,
    start: ChainParameters | None = None,
    *,
    residual: Callable[..., Any] | None = None,
    lag: float = DT,
) -> Fitted:
    """`mujoco.sysid` with its own optimiser and intervals; `residual`: None for its default."""
    begin = time.perf_counter()
    options = {} if residual is None else {"modify_residual": residual}
    function = peer.build_residual_fn(
        models_sequences=[peer_sequences(recording, trajectory, lag=lag)], n_threads=1, **options
    )  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):  # the optimiser always prints its iterations
        found, result = peer.optimize(peer_parameters(start or ChainParameters()), function, verbose=False)
        residuals, _, _ = function(result.x, found)
    _, widths = peer.calculate_intervals(residuals, result.jac)
    names = ChainParameters.names()
    values = dict(zip(names, (float(x) for x in np.ravel(result.x)), strict=True))
    ends = {name: (float(w), float(w)) for name, w in zip(names, widths, strict=True)}
    return Fitted(values, ends, time.perf_counter() - begin)
