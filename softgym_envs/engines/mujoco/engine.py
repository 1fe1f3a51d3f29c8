"""Batched, pure, deterministic control steps of any MjModel. All MuJoCo models are built on it.

A control step is one call of `mujoco.rollout` for all rows: physics runs in C++ threads, Python once per control step.
It keeps the promises of `core.simulator`:

* *Complete state*: MuJoCo carries the constraint solver's warm start from step to step. It is not part of our state, so
  every control step starts cold (from zero), also inside `rollout`. Within a control step it is kept as usual.
* *Independent rows*: every row loads its whole state into a thread's MjData before it runs, so neither the size of the
  batch nor the number of threads can change a bit. Each distinct row of parameters has its own MjModel, made once and cached.
* *Failure is a status*: MuJoCo's automatic reset is switched off, its warnings are counted and not printed, and no
  MUJOCO_LOG.TXT is written. A warning, a value that is not finite or beyond 1e10, or a velocity over the speed limit makes
  the row `Status.DIVERGED`; it keeps its last good state.

A whole horizon in one call could not start each control step cold, and would gain little: of MPPI on the SUPERball (128 rows
of 15 control steps of 100 substeps) 99 % of the time is spent inside MuJoCo's own step, 30 us per row and substep on one core.

Legend: B batch, T horizon, nx state of the robot, nu control, P parameters.
"""

from __future__ import annotations

import atexit
import copy
import functools
import math
import os
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import mujoco
import numpy as np
from mujoco.rollout import Rollout
from numpy.typing import NDArray

from ...core.errors import StructureError
from ...core.mismatch import MismatchedModel
from ...core.parameters import Parameters
from ...core.simulator import Array, IntArray, Status
from ..threads import ForkLock

_CONTROL_SPEC = int(mujoco.mjtState.mjSTATE_CTRL | mujoco.mjtState.mjSTATE_MOCAP_POS | mujoco.mjtState.mjSTATE_MOCAP_QUAT)
_LARGEST = 1e10  # MuJoCo's own limit, mjMAXVAL
_BUFFER_BYTES = 64 * 2**20  # mujoco.rollout records every substep: larger batches are cut into pieces

_OK, _DIVERGED = np.int32(Status.OK), np.int32(Status.DIVERGED)

Index = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class MujocoEngine:
    """Batched control steps of one MjModel; state, control and parameters are the robot's, in any order of entries.

    Raises:
        StructureError: The model has hidden state (plugins, delays), or the indices do not fit it.
    """

    model: mujoco.MjModel
    """Copied; automatic reset is switched off in the copy."""
    nx: int
    """Length of the robot's state; entries that no index names stay as they are."""
    nu: int
    """Number of controls; actuators without a control get zero."""
    state_index: Index
    """(nq + nv + na,): indices in the robot's state of MuJoCo's qpos, qvel and act."""
    write_parameters: Callable[[mujoco.MjModel, Array], None]
    """Writes one row of parameters (P,) into a model; derived fields (mj_setConst) are renewed afterwards."""
    mocap_index: Index = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    """(7 nmocap,): indices in the state of the positions, then the quaternions of mocap bodies (held fixed)."""
    held: Callable[[Array, Array], Array] | None = None
    """State (B, nx) and parameters (B, P) -> positions, then quaternions of all mocap bodies (B, 7 nmocap), if they are not in
    the state: evaluated every `held_steps`, after which the solver starts cold."""
    held_steps: int = 1
    """Integration steps between evaluations of `held`."""
    control_index: Index = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    """(k nu,): actuators that the controls drive, k times all nu in order; empty: the first nu."""
    speed_limit: float = 1e3
    """Largest velocity [m/s, rad/s] before a row counts as diverged."""
    num_threads: int = field(default_factory=lambda: _available_cores())
    """Threads of a batch; a single row runs on the calling thread."""
    cache_bytes: int = 256 * 2**20
    """Memory for models whose parameters may come again; 16 models are always kept."""
    _cache: OrderedDict[bytes, mujoco.MjModel] = field(default_factory=OrderedDict, init=False, repr=False)
    _lock: ForkLock = field(default_factory=ForkLock, init=False, repr=False)

    def __post_init__(self) -> None:
        model = copy.copy(self.model)
        model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
        object.__setattr__(self, "model", model)
        size = model.nq + model.nv + model.na
        if mujoco.mj_stateSize(model, int(mujoco.mjtState.mjSTATE_FULLPHYSICS)) != 1 + size:
            raise StructureError("the model has state beside qpos, qvel and act (plugins or delays); the engine cannot hold it")
        mocap = 7 * model.nmocap if self.held else len(self.mocap_index)
        if len(self.state_index) != size or mocap != 7 * model.nmocap or not 0 <= self.nu <= model.nu:
            raise StructureError(
                f"state_index has {len(self.state_index)} entries, mocap_index {len(self.mocap_index)}, nu is {self.nu}; "
                f"the model needs {size}, {7 * model.nmocap} and at most {model.nu}"
            )

    def step(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        """One control step: (B, nx), (B, nu), parameters (B, P) -> next state (B, nx), status (B,)."""
        models, physics, now = self.models(parameter_values), self._physics(state), state
        span = self.held_steps if self.held else max(substeps, 1)
        for done in range(0, substeps, span):
            physics = self._go(models, physics, self._inputs(now, control, parameter_values), min(span, substeps - done))
            if self.held:
                now = state.copy()
                now[:, self.state_index] = physics[:, 1:]
        return self._judge(state, physics, substeps)

    def models(self, parameter_values: Array) -> list[mujoco.MjModel]:
        """The MjModel of every row of parameters (B, P)."""
        if len(parameter_values) == 1 or (parameter_values == parameter_values[:1]).all():
            return [self._model(row) for row in parameter_values[:1]] * len(parameter_values)
        return [self._model(row) for row in parameter_values]

    def evaluate(self, state: Array, parameter_values: Array, read: Callable[[mujoco.MjModel, mujoco.MjData], Array]) -> Array:
        """Call `read(model, data)` after mj_forward at every state (B, nx), with zero control; -> its results, stacked."""
        physics, inputs = self._physics(state), self._inputs(state, np.zeros((len(state), self.nu)), parameter_values)
        data, results = self._data[0], []
        with self._lock, _quiet:
            for row, model in enumerate(self.models(parameter_values)):
                mujoco.mj_setState(model, data, physics[row], int(mujoco.mjtState.mjSTATE_FULLPHYSICS))
                mujoco.mj_setState(model, data, inputs[row], _CONTROL_SPEC)
                data.qacc_warmstart[:] = 0.0
                mujoco.mj_forward(model, data)
                results.append(read(model, data))
        return np.array(results)

    # --- one control step ------------------------------------------------------------------------------------------

    def _physics(self, state: Array) -> Array:
        """MuJoCo's full physics state (B, 1 + nq + nv + na), time first."""
        physics = np.zeros((len(state), 1 + len(self.state_index)))
        physics[:, 1:] = state[:, self.state_index]
        return physics

    def _inputs(self, state: Array, control: Array, parameter_values: Array) -> Array:
        """MuJoCo's ctrl, mocap_pos and mocap_quat, one row each."""
        inputs = np.zeros((len(state), self.model.nu + 7 * self.model.nmocap))
        if len(self.control_index):
            inputs[:, self.control_index] = np.tile(control, len(self.control_index) // self.nu)
        else:
            inputs[:, : self.nu] = control
        inputs[:, self.model.nu :] = self.held(state, parameter_values) if self.held else state[:, self.mocap_index]
        return inputs

    def _go(self, models: list[mujoco.MjModel], physics: Array, inputs: Array, substeps: int) -> Array:
        """`_run` in pieces of as many rows as the buffer holds."""
        end = np.empty_like(physics)
        piece = max(1, _BUFFER_BYTES // (8 * substeps * (physics.shape[1] + inputs.shape[1])))
        for first in range(0, len(physics), piece):
            rows = slice(first, first + piece)
            end[rows] = self._run(models[rows], physics[rows], inputs[rows], substeps)
        return end

    def _run(self, models: list[mujoco.MjModel], physics: Array, inputs: Array, substeps: int) -> Array:
        """Physics states after `substeps` cold-started steps; a row stops at its first warning."""
        count = len(models)
        threads = 0 if count == 1 or self.num_threads == 1 else self.num_threads
        inputs = np.repeat(inputs[:, None], substeps, axis=1)
        states = np.empty((count, substeps, physics.shape[1]))
        cold = np.zeros((count, self.model.nv))
        pool = _pool(os.getpid(), threads) if threads else self._single
        with self._lock, pool.lock, _quiet:
            pool.rollout.rollout(
                models,
                self._data[: max(1, threads)],
                physics,
                inputs,
                control_spec=_CONTROL_SPEC,
                skip_checks=True,
                nstep=substeps,
                initial_warmstart=cold,
                state=states,
            )
        return np.asarray(states[:, -1])

    def _judge(self, state: Array, end: Array, substeps: int) -> tuple[Array, IntArray]:
        """Next states and status; failed rows keep their state."""
        complete = end[:, 0] > (substeps - 0.5) * self.model.opt.timestep  # else stopped by a warning
        good = complete & (np.abs(end) < self._limits).all(axis=1)  # False for NaN
        after = state.copy()
        rows = np.flatnonzero(good)
        after[rows[:, None], self.state_index] = end[rows, 1:]
        return after, np.where(good, _OK, _DIVERGED)

    # --- models and workspace --------------------------------------------------------------------------------------

    def _model(self, parameter_values: Array) -> mujoco.MjModel:
        key = parameter_values.tobytes()
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
            model = copy.copy(self.model)
            self.write_parameters(model, parameter_values)
            mujoco.mj_setConst(model, self._data[0])
            self._cache[key] = model
            while len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
            return model

    @functools.cached_property
    def _cache_size(self) -> int:
        return max(16, int(self.cache_bytes // mujoco.mj_sizeModel(self.model)))

    @functools.cached_property
    def _data(self) -> list[mujoco.MjData]:
        return [mujoco.MjData(self.model) for _ in range(max(1, self.num_threads))]

    @functools.cached_property
    def _limits(self) -> Array:
        """Largest magnitude of each entry of the physics state."""
        limits = np.full(1 + len(self.state_index), _LARGEST)
        limits[1 + self.model.nq : 1 + self.model.nq + self.model.nv] = self.speed_limit
        return limits

    @functools.cached_property
    def _single(self) -> _Pool:
        return _Pool(Rollout(nthread=0), ForkLock())


class MujocoSimulator(MismatchedModel):
    """A simulator that is an MjModel, stepped by a `MujocoEngine`; derivatives are finite differences."""

    @property
    @abstractmethod
    def engine(self) -> MujocoEngine:
        """Batched stepping."""

    @property
    def longest_dt(self) -> float:
        """Longest integration step of MuJoCo [s]."""
        return math.inf

    @property
    def refinement(self) -> int:
        """Integration steps of MuJoCo per physics step; `engine` is compiled for them."""
        return max(math.ceil(self.dt / self.longest_dt * (1 - 1e-9)), 1) * (2 if self.sizes.get("half_steps") else 1)

    def mj_model(self, parameters: Parameters | None = None) -> mujoco.MjModel:
        """A copy of the compiled MuJoCo model with one set of parameters, e.g. to look at it in MuJoCo's viewer."""
        return copy.copy(self.engine.models(self.parameter_values(parameters, 1))[0])

    def _held(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        return self.engine.step(state, control, parameter_values, substeps * self.refinement)


def empty_spec(dt: float, integrator: mujoco.mjtIntegrator = mujoco.mjtIntegrator.mjINT_EULER) -> mujoco.MjSpec:
    """A world without bodies; its Jacobian is dense: MuJoCo 4.0.0 has a bug in the sparse solver (its issue 3767)."""
    spec = mujoco.MjSpec()
    spec.option.timestep, spec.option.integrator = dt, integrator
    spec.option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    spec.option.solver, spec.option.jacobian = mujoco.mjtSolver.mjSOL_NEWTON, mujoco.mjtJacobian.mjJAC_DENSE
    return spec


def _available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class _Pool:
    """MuJoCo's thread pool, and the lock that lets one caller in at a time."""

    rollout: Rollout
    lock: ForkLock


@functools.cache
def _pool(process: int, threads: int) -> _Pool:
    """The persistent pool of this process; threads do not survive a fork, so each process makes its own."""
    rollout = Rollout(nthread=threads)

    def close() -> None:
        if os.getpid() == process:
            rollout.close()

    atexit.register(close)
    return _Pool(rollout, ForkLock())


class _WarningsOff:
    """Context without MuJoCo's printed warnings and MUJOCO_LOG.TXT; the engine reads the outcome itself.

    There is one handler per process: the first thread to enter replaces it, the last to leave restores it.
    """

    def __init__(self) -> None:
        self.lock, self.count, self.handler = ForkLock(), 0, None

    def __enter__(self) -> None:
        with self.lock:
            if self.count == 0:
                self.handler = mujoco.get_mju_user_warning()
                mujoco.set_mju_user_warning(_ignore)
            self.count += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.count -= 1
            if self.count == 0:
                mujoco.set_mju_user_warning(self.handler)

    def forget(self) -> None:
        """Restore the handler in a forked child: threads that were inside in the parent do not exist here."""
        if self.count:
            self.count = 0
            mujoco.set_mju_user_warning(self.handler)


def _ignore(message: str) -> None:
    """A warning handler that does nothing."""


_quiet = _WarningsOff()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_quiet.forget)
