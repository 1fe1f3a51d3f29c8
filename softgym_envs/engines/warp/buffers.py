"""Buffers for launches of a `KernelProgram`: its kernels, arrays of one shape, and the launch packed with them as one call.

Legend: B batch, T control steps, P parameters, as in `engines.warp.engine`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import warp as wp

from ...core.simulator import Array, IntArray
from ..kernel_cache import load_whole
from .lanes import LANES, Wide, compiler_options, gather, spread
from .memory import Memory, blank

if TYPE_CHECKING:
    from .engine import WarpEngine


@dataclass(frozen=True)
class KernelProgram:
    """A system's kernel, compiled twice: forward only, and with its adjoint."""

    function: Callable[..., None]
    tape: Memory | None = None
    """Memory of every step for the backward pass; differentiable."""
    workspace: Memory | None = None
    """Scratch memory, overwritten by every step; no derivative passes through it."""
    options: tuple[tuple[str, Any], ...] | None = None
    """(name, value) of each option of Warp's compiler; None: `FORWARD` and `RECORDED`."""
    lanes: bool = False
    """Whether the kernel obeys the rules of `lanes`: forward, the CPU runs four rows at once, but one row as it is."""
    size: int | None = None
    """Index of the state's entry that determines how long a row takes, for `lanes`: rows with similar values are grouped."""

    @property
    def forward(self) -> Any:
        """Kernel without adjoint."""
        return _compile(self.function, False, self.forward_options)

    @property
    def forward_options(self) -> tuple[tuple[str, Any], ...]:
        """Compiler options of `forward`: `EXACT` if the kernel also runs four rows at once."""
        usual = EXACT if self.lanes else FORWARD
        return usual if self.options is None else self.options

    @property
    def beside(self) -> Any:
        """Kernel without adjoint that runs four rows of float64 at once, on the CPU."""
        return _compile(self.function, False, IN_LANES)

    @property
    def recorded(self) -> Any:
        """Kernel with adjoint; the first use on a machine compiles it (half a minute), later ones use the cache."""
        return _compile(self.function, True, RECORDED if self.options is None else self.options)


BLOCK = 64
"""Threads of a block on CUDA: 1024 rows are 16 blocks."""
PROCESSOR = wp.config.cpu_compiler_flags or "-march=native"
CPU_FLAGS = f"{PROCESSOR} -ffp-contract=fast -fno-signed-zeros -mreassociate -freciprocal-math"
"""Warp's own flags, and permission to fuse and reorder sums and products. NaN and infinity keep their meaning."""
EXACT_FLAGS = f"{PROCESSOR} -ffp-contract=off -fno-signed-zeros"
"""Every sum and product rounds by itself, in its order."""
PLAIN = Path(__file__).with_name("plain.h").read_text("utf-8")
"""C++ that stands before kernels that only run forward, on the CPU."""
_in_front = ("extra_build_options", wp.ModuleBuildOptions(extra_cpu_preamble=PLAIN))
FORWARD = (("cpu_compiler_flags", CPU_FLAGS), ("optimization_level", 3), _in_front)
EXACT = (("cpu_compiler_flags", EXACT_FLAGS), ("optimization_level", 3), _in_front)
RECORDED = (("cpu_compiler_flags", CPU_FLAGS), ("optimization_level", 2))
IN_LANES = compiler_options(EXACT_FLAGS, 3, PLAIN)


@cache
def _compile(function: Callable[..., None], backward: bool, options: tuple[tuple[str, Any], ...]) -> Any:
    return wp.kernel(function, enable_backward=backward, module="unique", module_options=dict(options))


class Arguments:
    """Arrays of one shape, and all other arguments of the kernel, in order."""

    def __init__(self, engine: WarpEngine, kernel: Any, rows: int, horizon: int, substeps: int, recorded: bool) -> None:
        program, device = engine.program, engine.device
        slots = horizon * substeps + 1 if recorded else 2

        def new(*shape: int) -> Any:
            return wp.zeros(shape, dtype=wp.float64, device=device, requires_grad=recorded)

        self.parameter_values = new(rows, engine.num_parameters)
        self.controls = new(rows, horizon, engine.nu)
        self.state = new(slots * rows, engine.nx)
        self.states = new(rows, horizon + 1, engine.nx)
        self.status = wp.zeros(rows, dtype=kernel.adj.args[-1].type.dtype, device=device)
        self.memory: list[Any] = []
        self.differentiable = [self.parameter_values, self.controls, self.state, self.states]
        if program.tape:
            self.memory.append(program.tape.allocate(slots * rows, self.state, recorded))
            self.differentiable += [getattr(self.memory[0], name) for name in program.tape.counts]
        if program.workspace:
            self.memory.append(program.workspace.allocate(rows, self.state))
        self._before, self._slots = [*engine.structure, self.parameter_values, self.controls], slots
        self.inputs = self.inputs_for(horizon, substeps)

    def inputs_for(self, horizon: int, substeps: int) -> list[Any]:
        """Arguments of a rollout that is no longer than the one they were made for."""
        return [*self._before, horizon, substeps, self._slots, self.state, *self.memory, self.states, self.status]

    @property
    def exchanged(self) -> list[Any]:
        """Arrays that are written before a launch or read after it."""
        return [self.parameter_values, self.controls, self.state, self.states, self.status]


def prepare(kernel: Any, rows: int, inputs: list[Any], device: str) -> Any:
    """The launch of a kernel, compiled and loaded, not run."""
    start = partial(wp.launch, kernel, dim=rows, inputs=inputs, device=device, record_cmd=True, block_dim=BLOCK)
    return load_whole(Path(wp.config.kernel_cache_dir), kernel.module.name, start)


class LaneBuffers:
    """Buffers of one shape in the layout of `lanes`, and the launch packed for them; forward, on the CPU."""

    def __init__(self, engine: WarpEngine, rows: int, horizon: int, substeps: int) -> None:
        kernel, groups, self.rows = engine.program.beside, -(-rows // LANES), rows
        given = Arguments(engine, kernel, groups, horizon, substeps, False)
        wide = Wide()
        values = [wide.argument(value) for value in given.inputs]
        self.packed = Packed(prepare(kernel, groups, given.inputs, engine.device), values)
        self.keep = wide
        self.parameter_values, self.controls, state, self._states, self.status = map(wide.numbers, given.exchanged)
        self.state = state[:groups]

    def forward(self, state: Array, controls: Array, parameter_values: Array) -> IntArray:
        """Run the rollout; -> status."""
        spread(parameter_values, self.parameter_values)
        spread(controls, self.controls)
        spread(state, self.state)
        self._states[:, 0] = self.state
        self.status[...] = 0.0
        self.packed.run()
        return gather(self.status, self.rows).astype(np.int32)

    def states(self) -> Array:
        """States of the rollout just run, (B, T+1, nx), a copy."""
        return gather(self._states, self.rows)

    def last(self) -> Array:
        """The last of them, (B, nx)."""
        return gather(self._states[:, -1], self.rows)


class Buffers:
    """Buffers of one shape, and the launch packed for them, so that a small rollout costs no allocation."""

    def __init__(self, engine: WarpEngine, rows: int, horizon: int, substeps: int, recorded: bool) -> None:
        self.rows, program, device = rows, engine.program, engine.device
        kernel = program.recorded if recorded else program.forward
        given = Arguments(engine, kernel, rows, horizon, substeps, recorded)
        self.parameter_values, self.controls, self.state, self._states, self.status = given.exchanged
        self.arguments = list(given.inputs)  # kept: a struct points to its arrays' memory, but does not own it
        forward = Packed(prepare(kernel, rows, given.inputs, device))
        self.launches = [forward]
        self.run = forward.run
        if recorded:
            self.gradients = [array.grad for array in given.differentiable]
            d_constants, d_controls, d_state, d_states = self.gradients[:4]
            around, beside = map(blank, engine.structure), map(blank, given.memory)
            adjoints = [*around, d_constants, d_controls, None, None, None, d_state, *beside, d_states, None]
            self.arguments += adjoints
            options: dict[str, Any] = {"adj_inputs": adjoints, "adj_outputs": [], "adjoint": True}
            backward = Packed(wp.launch(kernel, dim=rows, inputs=given.inputs, device=device, record_cmd=True, **options))
            self.launches.append(backward)
            self.pull = backward.run
        self.on_host = self._states.device.is_cpu
        if self.on_host:
            self.views = [a.numpy() for a in given.exchanged]

    def forward(self, state: Array, controls: Array, parameter_values: Array) -> IntArray:
        """Run the rollout; -> status."""
        if self.on_host:
            v_constants, v_controls, v_state, v_states, v_status = self.views
            v_constants[...] = parameter_values
            v_controls[...] = controls
            v_state[: self.rows] = state
            v_states[:, 0] = state
            v_status[...] = 0
            self.run()
            return v_status.astype(np.int32)
        self.parameter_values.assign(parameter_values)
        self.controls.assign(controls)
        self.state[: self.rows].assign(state)
        wp.copy(self._states[:, 0], self.state[: self.rows])
        self.status.zero_()
        self.run()
        return self.status.numpy().astype(np.int32)

    def states(self) -> Array:
        """States of the rollout just run, (B, T+1, nx), a copy."""
        return self.views[3].copy() if self.on_host else self._states.numpy()

    def last(self) -> Array:
        """The last of them, (B, nx)."""
        return self.views[3][:, -1].copy() if self.on_host else self._states[:, -1].numpy()

    def backward(self, cotangent: Array) -> tuple[Array, Array, Array]:
        """Pull a cotangent of the states (B, T+1, nx) back through the rollout just run."""
        for gradient in self.gradients:
            if gradient is not None:
                gradient.zero_()
        self._states.grad.assign(cotangent)
        self.pull()
        # The kernel starts from the first slot; states[:, 0] is a copy made outside it.
        initial = self.state.grad.numpy()[: self.rows] + cotangent[:, 0]
        return initial, self.controls.grad.numpy().copy(), self.parameter_values.grad.numpy().copy()


class Stepper:
    """Physics of B rows whose state stays on the device; a kernel of the caller writes the first of `states`, and `status`.

    Args:
        engine: The engine.
        rows: B.
        parts: Numbers of physics steps; one of `runs` makes each.
    """

    def __init__(self, engine: WarpEngine, rows: int, parts: Sequence[int]) -> None:
        kernel = engine.program.forward
        given = Arguments(engine, kernel, rows, 1, max(parts), False)
        self.parameter_values, self.controls, self.states, self.status = (
            given.parameter_values, given.controls, given.states, given.status,
        )  # fmt: skip
        self.state = given.state[:rows]
        """(B, nx), from which physics begins"""
        self.inputs = {part: given.inputs_for(1, part) for part in parts}
        self.runs = {part: Packed(prepare(kernel, rows, inputs, engine.device)) for part, inputs in self.inputs.items()}


class Packed:
    """A recorded launch as one call, `run`. On the CPU, Warp would pack its arguments anew each time, which takes 20 us."""

    def __init__(self, launch: Any, values: Sequence[Any] = ()) -> None:
        """`values`: arguments in C's types that replace the launch's own."""
        self.launch = launch
        """Keeps the compiled module and the arrays alive."""
        self._arguments: list[ctypes.Structure] = []
        if values:
            self._arguments = [struct_of(values)]
        elif launch.device.is_cpu:
            count = 1 + len(launch.kernel.adj.args)
            parts = [launch.params[1:count], launch.params[count:]] if launch.adjoint else [launch.params[1:count]]
            self._arguments = [struct_of(part) for part in parts]
        self.run = self._call()

    def resize(self, rows: int) -> None:
        """Set the number of threads of later runs."""
        self.launch.set_dim(rows)
        self.run = self._call()

    def _call(self) -> Callable[[], Any]:
        if not self._arguments:
            return self.launch.launch  # type: ignore[no-any-return]
        hooks = self.launch.hooks
        entry = hooks.backward if self.launch.adjoint else hooks.forward
        return partial(entry, *map(ctypes.byref, (self.launch.bounds, *self._arguments)))


def struct_of(values: Sequence[Any]) -> ctypes.Structure:
    """The C struct whose members are `values`, in this order."""
    fields = [(f"m{k}", type(value)) for k, value in enumerate(values)]
    struct: Any = type("Arguments", (ctypes.Structure,), {"_fields_": fields})
    return struct(*values)  # type: ignore[no-any-return]
