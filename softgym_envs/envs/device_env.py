"""Environments of which a whole control step runs on a device: torch tensors in, torch tensors out, nothing through the host.

A step is a fixed list of launches (`device_kernels`, the engine's physics, the task's own kernels), on CUDA one graph. Only the
starts of episodes are drawn on the host, ahead, by `Episodes.reset` and every row's own generator: in float64 on the CPU row i
equals row i of `SoftgymVectorEnv`, and so a single environment, bit for bit.

Legend: B batch, na action, no observation, S starts per row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import warp as wp
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from ..core.errors import OptionError, ShapeError
from ..core.simulator import Simulator, check_choice, check_number
from ..core.system import NATIVE
from ..core.task import Task, options_of
from ..engines.warp.buffers import Packed, prepare
from ..engines.warp.engine import LOADING, WarpEngine
from ..engines.warp.float32 import as_float32, in_float32
from ..engines.warp.row_kernel import HasKernels, RowKernel, TaskKernels
from . import device_kernels
from .vector_env import SoftgymVectorEnv

Step = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, dict[str, Any]]

MOST_STARTS = 1000
"""Most starts that a row keeps."""
AHEAD = 2
"""Starts per row that are drawn ahead, if none are used again: after so many control steps the host looks which are used up."""
LARGEST_SEED = 2**30
"""Seeds of the device are smaller."""
NOT_PLAYED = ("sensor_bias", "sensor_gain")
"""Keywords of `Settings` that change what sensors measure."""


def has_kernels(task: Task) -> bool:
    """Whether a task can run on a device."""
    return isinstance(task, HasKernels)


class DeviceVectorEnv(gym.vector.VectorEnv[torch.Tensor, torch.Tensor, torch.Tensor]):
    """B robots with one task on one device. Made by `gym.make_vec(id, num_envs=B, device="cuda", output="torch")`.

    Differences from `SoftgymVectorEnv`: actions, observations, rewards and flags are tensors on the device, fresh ones in every
    step. `info` holds is_success, sim_failed, reward_<term> and what the task measures; with autoreset_mode "same_step" it
    describes the step that was made, and `final_obs` holds the last observation of the rows in `_final_obs`. The only option
    of `reset` is "reset_mask". An action that is NaN ends its row as a failed simulation. Disturbances and the noise of sensors
    are drawn on the device, by `reset`'s seed, so that these numbers, and the starts that follow, are others than on NumPy.
    Copies, `call`, `get_state` and `episodes` are on NumPy alone.

    The host is waited for at a reset, and every `AHEAD` control steps, when rows that have begun new episodes get new starts
    (by `Episodes.reset`, all of them in one batch). With `starts` it is not.

    Args:
        host: The same environment on NumPy; it draws the starts.
        starts: S, the number of starts of each row, which it begins from in turn; None: every episode has a start of its own,
            as on NumPy.
        dtype: "float64" or "float32", of states, contexts, rewards and all computation on the device; observations are float32.

    Raises:
        OptionError: A keyword is not played on a device, `starts` is no whole number in 1 ... 1000, or `dtype` is another.
    """

    def __init__(self, host: SoftgymVectorEnv, *, starts: int | None = None, dtype: str = "float64") -> None:
        self.host = host
        episodes, task, simulator = host.episodes, host.task, host.simulator
        self._on_device: Any = device_kernels
        self._real: Any = wp.float64
        if check_choice("dtype", dtype, ("float64", "float32")) == "float32":
            task, simulator = as_float32(task), as_float32(simulator)
            self._on_device, self._real = in_float32(device_kernels.__name__), wp.float32
        self.kernels = checked_kernels(host, task)
        self.ahead = AHEAD if starts is None else int(check_number("starts", starts, low=1, high=MOST_STARTS, whole=True))
        self.fresh = starts is None
        self.num_envs, self.metadata, self.render_mode = host.num_envs, host.metadata, host.render_mode
        self.single_observation_space, self.single_action_space = host.single_observation_space, host.single_action_space
        self.observation_space, self.action_space = host.observation_space, host.action_space
        self.device = torch.device(wp.device_to_torch(episodes.settings.device))
        self._drawn = np.zeros(self.num_envs, dtype=np.int64)
        self._left = 0  # control steps until the host must look
        self._begun = False
        self._graph: Any = None
        self._kept: list[Any] = []
        with LOADING:
            self._build(simulator.engine)  # type: ignore[attr-defined]

    # --- memory and launches, made once -----------------------------------------------------------------------------

    def _build(self, engine: WarpEngine) -> None:
        episodes, rows, kernels = self.host.episodes, self.num_envs, self.kernels
        timing, entries, width = episodes.timing, len(episodes.task.entries), len(episodes.low)
        na, nu, size = len(episodes.task.action_names), episodes.simulator.nu, len(episodes.task.context_names)
        changes, looks = timing.instants
        noise, pushed, push = episodes.noise, *self._kicks()
        marks = [*sorted(changes | looks), episodes.substeps]
        stepper = engine.stepper(rows, sorted({b - a for a, b in zip([0, *marks], marks, strict=False)}))
        pending = self._new(rows, timing.pending_observations, entries)
        queue, memory = self._new(rows, timing.pending_actions, na), self._new(rows, episodes.settings.action_memory, na)
        older, newer = self._new(rows, na), self._new(rows, na)
        older_control = self._new(rows, 1, nu)
        newer_control = self._new(rows, 1, nu) if changes else stepper.controls
        given, after, looked = self._new(rows, na, dtype=wp.float32), self._new(rows, size), self._new(rows, entries)
        steps, taken, clock = (self._new(rows, dtype=wp.int32) for _ in range(3))
        seed = self._new(1, dtype=wp.int32)
        self._pool = self._starts(self.ahead * rows, size)
        row = self._starts(rows, size)
        row.state, row.parameter_values = stepper.state, stepper.parameter_values
        self._out = self._outcome(rows, width)
        instants, by = self._on_device.Timing(), self._on_device.Drive()
        instants.substeps, instants.sample = episodes.substeps, timing.sample
        by.columns, by.scale = self._array(kernels.columns, wp.int32), self._array(kernels.scale)
        by.lowest = kernels.lowest
        self._runs: list[Callable[[], Any]] = []
        self._physics: list[Callable[[], Any]] = []

        def add(kernel: Any, *inputs: Any) -> None:
            self._runs.append(self._launch(kernel, *inputs))

        def run(kernel: RowKernel, *inputs: Any) -> None:
            add(kernel.kernel, *kernel.structure_on(episodes.settings.device), *inputs)

        def look(mark: int) -> None:
            run(kernels.updates[0], row.state, row.context, after)
            for more in kernels.updates[1:]:
                run(more, after, after)
            run(kernels.observe, row.state, after, looked)
            if noise.any():
                add(self._on_device.blur, seed, 1 + mark, clock, self._array(noise), looked)
            if pending.size:
                add(self._on_device.keep, mark, instants, row.late, steps, looked, pending)

        if len(pushed):
            add(self._on_device.kick, seed, clock, self._array(pushed, wp.int32), self._array(push), row.state)
        begun = 0
        acting = (older, newer, older_control, newer_control)
        physics = (row.state, stepper.states, stepper.status)
        add(self._on_device.act, given, instants, by, row.late, memory, queue, *acting, *physics)
        for mark in marks:
            if changes:
                add(self._on_device.choose, mark, instants, row.late, older_control, newer_control, stepper.controls)
            self._physics.append(stepper.runs[mark - begun].run)
            self._runs.append(self._physics[-1])
            begun = mark
            if mark < episodes.substeps:
                add(self._on_device.carry, stepper.states, row.state)
            if mark in looks:
                look(mark)
        add(self._on_device.settle, *physics, self._out.failed)
        look(episodes.substeps)
        run(kernels.reward, newer, row.context, after, self._out.terms)
        enough = -1 if kernels.enough is None else kernels.enough
        ends = (kernels.success, enough, kernels.ends, self.host.max_episode_steps or 0)
        bounds = self._array(episodes.low), self._array(episodes.high)
        add(
            self._on_device.finish,
            *ends,
            *bounds,
            after,
            looked,
            pending,
            memory,
            row.context,
            row.observed,
            steps,
            clock,
            self._out,
        )
        begin = (rows, self._pool, row, queue, memory, pending, steps, taken, self._out)
        self._restart = self._launch(self._on_device.restart, False, *begin)
        mode = self.metadata["autoreset_mode"]
        if mode is not AutoresetMode.DISABLED:
            add(self._on_device.restart, mode is AutoresetMode.SAME_STEP, *begin)
        self._kept += [stepper, row]
        self._given, self._taken, self._seed, self._clock = map(wp.to_torch, (given, taken, seed, clock))
        self._rows, self._results, self._starting = map(_tensors, (row, self._out, self._pool))

    def _kicks(self) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Columns of the state that a disturbance changes, and the standard deviation in each."""
        simulator, kick = self.host.simulator, self.host.episodes.kick
        rest, places = simulator.initial_state(1), np.flatnonzero(kick)
        moved = [simulator.retract(rest, np.eye(len(kick))[[k]]) - rest for k in places]
        return np.array([np.abs(one[0]).argmax() for one in moved], dtype=np.intp), kick[places]

    def _new(self, *shape: int, dtype: Any = None) -> Any:
        return wp.zeros(shape, dtype=dtype or self._real, device=self.host.episodes.settings.device)

    def _array(self, values: NDArray[Any], dtype: Any = None) -> Any:
        return wp.array(values, dtype=dtype or self._real, device=self.host.episodes.settings.device)

    def _starts(self, count: int, size: int) -> Any:
        episodes, made = self.host.episodes, self._on_device.Starts()
        made.state, made.context = self._new(count, episodes.simulator.nx), self._new(count, size)
        made.parameter_values = self._new(count, self._columns(episodes.parameter_values).shape[1])
        made.late = self._new(count, 2, dtype=wp.int32)
        made.clean, made.observed = self._new(count, len(episodes.task.entries)), self._new(count, len(episodes.low))
        return made

    def _outcome(self, rows: int, width: int) -> Any:
        out = self._on_device.Outcome()
        out.observation, out.final = self._new(rows, width, dtype=wp.float32), self._new(rows, width, dtype=wp.float32)
        out.reward, out.terms = self._new(rows), self._new(rows, len(self.kernels.terms) + 1)
        for name in ("terminated", "truncated", "success", "failed", "ended"):
            setattr(out, name, self._new(rows, dtype=wp.bool))
        return out

    def _launch(self, kernel: Any, *inputs: Any) -> Callable[[], Any]:
        self._kept.append(inputs)  # a struct does not own its arrays
        return Packed(prepare(kernel, self.num_envs, list(inputs), self.host.episodes.settings.device)).run

    def _columns(self, parameter_values: Any) -> Any:
        """Parameters as the engine takes them."""
        return self.host.episodes.simulator._columns(parameter_values)  # type: ignore[attr-defined]

    # --- episodes ---------------------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        """Point to the environment on NumPy, whose rows can be read and set: `episodes`, `call`, `get_state`, ..."""
        hint = "; one with output='numpy' has it" if hasattr(self.__dict__.get("host"), name) else ""
        raise AttributeError(f"an environment with output='torch' has no {name!r}{hint}", name=name, obj=self)

    @property
    def task(self) -> Task:
        """The task."""
        return self.host.task

    @property
    def simulator(self) -> Simulator:
        """The simulator under the task."""
        return self.host.simulator

    @property
    def state(self) -> torch.Tensor:
        """The simulator's states, (B, nx): the memory itself."""
        return self._rows["state"]

    @property
    def context(self) -> torch.Tensor:
        """The task's memory, (B, nc): the memory itself."""
        return self._rows["context"]

    @property
    def parameter_values(self) -> torch.Tensor:
        """The parameters of every row, (B, P): the memory itself."""
        return self._rows["parameter_values"]

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """Begin an episode in every row, or with the option "reset_mask" (B,) in some; seeds as for `SoftgymVectorEnv.reset`.

        Raises:
            OptionError: Another option, or there is not one seed per row.
        """
        given = options_of(options)
        mask = given.pop("reset_mask", None)
        if given:
            raise OptionError(f"option {next(iter(given))!r} is not known with output='torch'; allowed is reset_mask")
        self.host.episodes.begun = self._begun
        rows = self.host.chosen(mask.cpu().numpy() if isinstance(mask, torch.Tensor) else mask)
        if seed is not None:
            seeded = self.host.seeded(seed)
            for row in rows:
                self.host.episodes.rngs[row] = seeded[row]
            self._seed.fill_(int(seed if isinstance(seed, (int, np.integer)) else seed[0]) % LARGEST_SEED)
            self._clock.zero_()
        with self._stream():
            taken = self._taken.cpu().numpy()
            chosen = np.zeros(self.num_envs, dtype=np.bool_)
            chosen[rows] = True
            if seed is not None or not self._begun:
                self._drawn[rows] = taken[rows]
                self._draw(taken, chosen | self.fresh)
            elif self.fresh:
                self._draw(taken)
            self._results["ended"].copy_(torch.from_numpy(chosen))
            self._restart()
            self._begun, self._left = True, self.ahead - 1
            return self._results["observation"].clone(), self._info(self._results)

    def _draw(self, taken: NDArray[Any], among: Any = True) -> None:
        """Draw starts until every row, or those `among` them, has S that it has not used."""
        episodes = self.host.episodes
        while len(rows := np.flatnonzero((self._drawn - taken < self.ahead) & among)):
            episodes.reset(rows)
            place = torch.from_numpy(self._drawn[rows] % self.ahead * self.num_envs + rows).to(self.device)
            for name, memory in self._starting.items():
                values = getattr(episodes, name)
                values = self._columns(values) if name == "parameter_values" else values
                memory[place] = torch.from_numpy(values[rows]).to(self.device, memory.dtype)
            self._drawn[rows] += 1

    def step(self, actions: torch.Tensor) -> Step:  # type: ignore[override]  # flags are tensors
        """Run one control period in every row; actions (B, na), clipped to [-1, 1].

        Raises:
            ShapeError: The actions have another shape, or are no real numbers.
            gymnasium.error.ResetNeeded: No episode has begun, or with autoreset_mode "disabled" a row has ended.
        """
        if not self._begun:
            raise gym.error.ResetNeeded("call reset() before step()")
        try:
            actions = torch.as_tensor(actions).detach()
        except (TypeError, ValueError, RuntimeError) as error:
            raise ShapeError(f"actions are no tensor of numbers: {error}") from error
        if actions.dtype is torch.bool or actions.is_complex():
            raise ShapeError(f"actions are {actions.dtype}, expected real numbers")
        if actions.shape != self._given.shape:
            raise ShapeError(f"actions have shape {tuple(actions.shape)}, expected {tuple(self._given.shape)}")
        out = self._results
        if self.metadata["autoreset_mode"] is AutoresetMode.DISABLED and bool((out["terminated"] | out["truncated"]).any()):
            raise gym.error.ResetNeeded('rows have ended: call reset(options={"reset_mask": terminated | truncated})')
        with self._stream():
            if self.fresh and not self._left:
                self._draw(self._taken.cpu().numpy())
                self._left = self.ahead
            self._left -= 1
            self._given.copy_(actions)
            self.advance()
            kept = {name: value.clone() for name, value in out.items()}
        info = self._info(kept)
        if self.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP:
            info |= {"final_obs": kept["final"], "_final_obs": kept["ended"]}
        return kept["observation"], kept["reward"], kept["terminated"], kept["truncated"], info

    def advance(self) -> None:
        """Run the launches of a control step; on CUDA as one graph, captured after the first step, when all is loaded."""
        with self._stream():
            if self._graph is not None:
                wp.capture_launch(self._graph)
                return
            for run in self._runs:
                run()
        if self.device.type == "cuda":
            stream = wp.Stream(self.host.episodes.settings.device)  # not torch's
            with wp.ScopedStream(stream), wp.ScopedCapture() as capture:
                for run in self._runs:
                    run()
            self._graph = capture.graph

    def physics(self) -> None:
        """Run only the launches of physics, from where they are: for measurements."""
        with self._stream():
            for run in self._physics:
                run()

    def _stream(self) -> Any:
        """Warp's launches go to torch's stream, so that neither waits for the other."""
        if self.device.type == "cpu":
            return nullcontext()
        return wp.ScopedStream(wp.stream_from_torch(torch.cuda.current_stream(self.device)))

    def _info(self, out: dict[str, torch.Tensor]) -> dict[str, Any]:
        names = (*self.kernels.terms, "failure")
        info: dict[str, Any] = {f"reward_{name}": out["terms"][:, k].clone() for k, name in enumerate(names)}
        info |= {"is_success": out["success"].clone(), "sim_failed": out["failed"].clone()}
        measured: Any = self.host.task.measure
        return info | {name: value.clone() for name, value in measured(self.state, self.context).items()}

    def render(self) -> Any:
        """One picture per row, if the render mode is "rgb_array"; states come to the host."""
        episodes = self.host.episodes
        episodes.state, episodes.context = self.state.cpu().numpy().copy(), self.context.cpu().numpy().copy()
        return self.host.render()

    def __reduce__(self) -> Any:
        """Refuse a copy: memory and launches belong to the device."""
        raise TypeError("environments with output='torch' are not pickled or copied; those with output='numpy' are")

    def close_extras(self, **kwargs: Any) -> None:
        """Close the renderer."""
        self.host.close(**kwargs)


def _tensors(struct: Any) -> dict[str, torch.Tensor]:
    """The arrays of a struct as tensors on the same memory."""
    return {name: wp.to_torch(getattr(struct, name)) for name in struct._cls.vars}


def checked_kernels(host: SoftgymVectorEnv, task: Task) -> TaskKernels:
    """The kernels of a task of a precision.

    Raises:
        OptionError: A keyword is not played on a device.
    """
    settings = host.episodes.settings
    values = {name: getattr(settings, name) for name in NOT_PLAYED}
    given = [f"{name} is {value}" for name, value in values.items() if value not in (float(name == "sensor_gain"), {})]
    kernels = task.kernels() if isinstance(task, HasKernels) else None
    if host.episodes.measures_state:
        given.append(f"sensor_noise is {settings.sensor_noise}, a noise of the state")
    if str(settings.backend) != NATIVE:
        given.append(f"backend is {settings.backend!r}")
    elif kernels is None:
        given.append("obs_mode is 'state'")
    if given or kernels is None:
        raise OptionError(f"{given[0]}, which output='torch' does not play; leave it out, or take output='numpy'")
    return kernels
