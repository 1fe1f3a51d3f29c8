"""Engine on NVIDIA Warp: devices, launches over threads, recorded rollouts and their gradients.

A system writes its physics once, as a Warp kernel in which one thread runs one row of the batch through a whole rollout
(the loops over control steps and substeps are inside the kernel: a launch per substep would cost 10-20 times as much).
The kernel's arguments are, in this order::

    *structure          defined by the system, usually one struct (numbers, arrays shared by all rows)
    parameters           (B, P)
    controls            (B, T, nu)
    horizon, substeps, slots       int
    state               (slots B, nx)     state k of row b stands at [k % slots * B + b]
    tape                struct of arrays (slots B, count) that the system declares: values of a step for the backward pass
    workspace           struct of arrays (B, count): scratch memory without derivative, overwritten by every step
    states              (B, T+1, nx)      result; the kernel writes states[b, t+1]
    status              (B,)              result, of int or of float64

`tape` and `workspace` (see `memory`) are left out where a system declares none. No index may be negative: kernels that
only run forward have loops and arrays of their own on the CPU (`plain.h`). There, a kernel that is made for it runs forward
with four rows in one thread (`lanes`). With slots = 2 the kernel only runs forward; with slots = T substeps + 1 nothing is
overwritten, which is what Warp's reverse mode needs: a value overwritten between its use and the backward pass gives silently
wrong gradients. For the same reason no local variable of the kernel may change across iterations of a dynamic loop, and a
function that writes to the tape is a `stage`.

Legend: B batch, T control steps, P parameters.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from ...core.errors import DependencyError, OptionError
from ...core.simulator import Array, Gradient, IntArray
from ..kernel_cache import load_whole, spare_folder
from ..threads import ForkLock, in_threads
from .buffers import Buffers, KernelProgram, LaneBuffers, Stepper
from .lanes import LANES

OLDEST = "1.19"
"""The first version of Warp that computes our kernels right, as in pyproject.toml: 1.13 and 1.14 lose the sign of a negated
constant; in 1.16 to 1.18 the derivative of a variable leaks into its namesake in an earlier loop. Tests ask later ones."""


def check_version(version: str) -> None:
    """Refuse a Warp that is known to be too old, before a missing function looks like our fault.

    Raises:
        DependencyError: Its version is below `OLDEST`.
    """
    numbers = [tuple(int(part) for part in re.findall(r"\d+", text)[:2]) for text in (version, OLDEST)]
    if numbers[0] < numbers[1]:
        raise DependencyError(f'Warp is {version}, needed is {OLDEST} or later: pip install "warp-lang>={OLDEST}"')


check_version(wp.__version__)

wp.config.log_level = wp.LOG_ERROR if hasattr(wp, "LOG_ERROR") else 40


def _start_warp() -> None:
    """`wp.init`, without the line that Warp's C code prints on a machine without CUDA driver: nothing is wrong there."""
    try:
        ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        with open(os.devnull, "wb") as nowhere:
            kept = os.dup(2)
            os.dup2(nowhere.fileno(), 2)
            try:
                wp.init()
            finally:
                os.dup2(kept, 2)
                os.close(kept)
    wp.init()


try:
    _start_warp()
except OSError:  # the cache of kernels cannot be made
    wp.config.kernel_cache_dir = str(spare_folder("warp"))
    _start_warp()

MIN_ROW_SUBSTEPS_PER_THREAD = 500
"""Row-substeps below which another thread costs more than it saves (measured: about 0.2 ms)."""
CACHED_SHAPES = 8
Read = Callable[[Any], Array]
"""What is read of buffers after a launch."""
_read_states, _read_last = methodcaller("states"), methodcaller("last")
FORWARD_BYTES = 8 * 2**20
"""Rows that would need more memory than this at once are run one part after the other."""
RECORD_BYTES = 64 * 2**20
"""A recorded rollout that would need more memory than this is recorded control step by control step instead."""


def announce(kernel: Any, what: str) -> None:
    """Announce a compilation on stderr, if this machine has not compiled the kernel before."""
    if not any(Path(wp.config.kernel_cache_dir or ".").glob(f"wp_{kernel.module.name}_*/*.meta")):
        print(f"softgym_envs: compiling {what}, cached afterwards", file=sys.stderr)


@dataclass(eq=False)
class WarpEngine:
    """Runs a `KernelProgram` over batches of rows: on the CPU in as many threads as there are cores, or on a CUDA device.

    Rows never interact, so how they are spread over threads changes no bit of the result.
    """

    program: KernelProgram
    structure: list[Any]
    nx: int
    nu: int
    num_parameters: int
    device: str = "cpu"
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)

    def __post_init__(self) -> None:
        self._buffers: OrderedDict[tuple[int, ...], list[Any]] = OrderedDict()
        self._lock = ForkLock()
        self.in_lanes = self.program.lanes and wp.get_device(self.device).is_cpu

    def rollout(self, state: Array, controls: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        """(B, nx), (B, T, nu), (B, P) -> states (B, T+1, nx), status (B,)."""
        return self._in_parts(state, controls, parameter_values, substeps, _read_states)

    def advance(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        """(B, nx), (B, nu), (B, P) -> state after one control step (B, nx), status (B,)."""
        return self._in_parts(state, control[:, None], parameter_values, substeps, _read_last)

    def _in_parts(
        self, state: Array, controls: Array, parameter_values: Array, substeps: int, read: Read
    ) -> tuple[Array, IntArray]:
        if len(state) == 1:
            return self._forward(state, controls, parameter_values, substeps, read)
        parts = len(state) * self._forward_bytes(controls.shape[1]) // FORWARD_BYTES
        shards = self._shards(len(state), controls.shape[1] * substeps, parts)
        order = self._order(state, len(shards))
        if order is None and len(shards) == 1:
            return self._forward(state, controls, parameter_values, substeps, read)

        def run(rows: slice) -> tuple[Array, IntArray]:
            chosen = rows if order is None else order[rows]
            return self._forward(state[chosen], controls[chosen], parameter_values[chosen], substeps, read)

        results = in_threads(run, shards, self.threads)
        states, status = (np.concatenate(parts) for parts in zip(*results, strict=True))
        if order is None:
            return states, status
        back = np.argsort(order)
        return states[back], status[back]

    def stepper(self, rows: int, parts: Sequence[int]) -> Stepper:
        """Physics whose state stays on the device."""
        with LOADING:
            announce(self.program.forward, "a simulator, some 10 s")
            return Stepper(self, rows, parts)

    def vjp(self, state: Array, controls: Array, parameter_values: Array, substeps: int, cotangent: Array) -> Gradient:
        """Rollout and pull-back of `cotangent` (B, T+1, nx); see `Gradient`. Rows that fail have gradient NaN."""
        shards = self._shards(len(state), 5 * controls.shape[1] * substeps)
        if len(shards) == 1:
            return self._vjp(state, controls, parameter_values, substeps, cotangent)

        def run(rows: slice) -> Gradient:
            return self._vjp(state[rows], controls[rows], parameter_values[rows], substeps, cotangent[rows])

        results = in_threads(run, shards, self.threads)
        return Gradient(*(np.concatenate(parts) for parts in zip(*results, strict=True)))

    def rows_recorded_at_once(self, substeps: int, copies: int) -> int:
        """Number of rows, each repeated `copies` times, of one recorded control step within RECORD_BYTES (at least 1)."""
        return max(1, RECORD_BYTES // self._record_bytes(copies, substeps))

    # --- one shard -------------------------------------------------------------------------------------------------

    def _forward(
        self, state: Array, controls: Array, parameter_values: Array, substeps: int, read: Read
    ) -> tuple[Array, IntArray]:
        with _Borrowed(self, state.shape[0], controls.shape[1], substeps, False) as buffers:
            status = buffers.forward(state, controls, parameter_values)
            return read(buffers), status

    def _vjp(self, state: Array, controls: Array, parameter_values: Array, substeps: int, cotangent: Array) -> Gradient:
        """In one piece if the record is small, else control step by control step from stored states, last first."""
        horizon = controls.shape[1]
        if self._record_bytes(len(state), horizon * substeps) <= RECORD_BYTES:
            with _Borrowed(self, state.shape[0], horizon, substeps, True) as buffers:
                status = buffers.forward(state, controls, parameter_values)
                return Gradient(buffers.states(), status, *_without_failed(status, *buffers.backward(cotangent)))
        states, status = self._forward(state, controls, parameter_values, substeps, _read_states)
        dx = cotangent[:, -1].copy()
        du = np.zeros_like(controls)
        dp = np.zeros_like(parameter_values)
        with _Borrowed(self, state.shape[0], 1, substeps, True) as buffers:
            pull = np.zeros((len(state), 2, self.nx))
            for t in reversed(range(horizon)):
                buffers.forward(states[:, t], controls[:, t : t + 1], parameter_values)
                pull[:, 1] = dx
                dx, du_t, dp_t = buffers.backward(pull)
                dx = dx + cotangent[:, t]
                du[:, t : t + 1] = du_t
                dp += dp_t
        return Gradient(states, status, *_without_failed(status, dx, du, dp))

    def _order(self, state: Array, shards: int) -> NDArray[np.intp] | None:
        """Order of rows: groups of LANES are of similar size, and each shard has groups of all sizes; None: unchanged."""
        if not self.in_lanes or self.program.size is None:
            return None
        order = np.argsort(state[:, self.program.size])
        groups = order[: len(order) // LANES * LANES].reshape(-1, LANES)
        return np.concatenate([*(groups[k::shards].ravel() for k in range(shards)), order[groups.size :]])

    def _record_bytes(self, rows: int, steps: int) -> int:
        tape = self.program.tape
        return 2 * rows * (steps + 1) * (8 * self.nx + (tape.row_bytes if tape else 0))

    def _forward_bytes(self, horizon: int) -> int:
        """Memory of one row of a rollout that is not recorded."""
        tape, workspace = (part.row_bytes if part else 0 for part in (self.program.tape, self.program.workspace))
        return 8 * (self.nx * (horizon + 3) + self.nu * horizon + self.num_parameters) + 2 * tape + workspace

    def _shards(self, rows: int, work_per_row: int, parts: int = 1) -> list[slice]:
        """The rows that each thread takes, in at least `parts` parts; one slice if threads do not pay, or on a CUDA device."""
        count = min(self.threads, rows, rows * work_per_row // MIN_ROW_SUBSTEPS_PER_THREAD) if self.device == "cpu" else 1
        count = max(count, min(parts, rows)) if self.device == "cpu" else count
        if count <= 1:
            return [slice(0, rows)]
        edges = np.linspace(0, rows, count + 1).astype(int)
        if self.in_lanes:
            edges = np.unique([*(edges[:-1] // LANES * LANES), rows])
        return [slice(a, b) for a, b in pairwise(edges)]


LOADING = ForkLock()
"""Held while a Warp module may be loaded: two threads that load one leave each other's launches dangling."""


def launch(kernel: Any, **keywords: Any) -> None:
    """`warp.launch` of a kernel that is no `KernelProgram`, with the same checks."""
    with LOADING:
        load_whole(Path(wp.config.kernel_cache_dir), kernel.module.name, partial(wp.launch, kernel, **keywords))


class _Borrowed:
    """Takes buffers of one shape out of the engine's cache, or makes them, and puts them back; every thread has its own."""

    def __init__(self, engine: WarpEngine, *key: int) -> None:
        self.engine, self.key = engine, key

    def __enter__(self) -> Any:
        with self.engine._lock:
            spare = self.engine._buffers.get(self.key)
            found = spare.pop() if spare else None
        if found is None:
            found = self._new()
        self.buffers = found
        return self.buffers

    def _new(self) -> Any:
        recorded, program = bool(self.key[-1]), self.engine.program
        with LOADING:
            if self.engine.in_lanes and not recorded and self.key[0] > 1:
                announce(program.beside, "a simulator, some 10 s")
                return LaneBuffers(self.engine, *self.key[:-1])
            if recorded:
                announce(program.recorded, "the gradients of a simulator, 15 s to a minute")
            else:
                announce(program.forward, "a simulator, some 10 s")
            return Buffers(self.engine, *self.key)  # type: ignore[arg-type]

    def __exit__(self, *_: object) -> None:
        with self.engine._lock:
            self.engine._buffers.setdefault(self.key, []).append(self.buffers)
            self.engine._buffers.move_to_end(self.key)
            while len(self.engine._buffers) > CACHED_SHAPES:
                self.engine._buffers.popitem(last=False)


def _without_failed(status: IntArray, *gradients: Array) -> list[Array]:
    for gradient in gradients:
        gradient[status != 0] = np.nan
    return list(gradients)


def check_device(device: str) -> str:
    """A device name that Warp knows.

    Raises:
        OptionError: No such device on this machine; the message lists those there are.
    """
    known = [str(d) for d in wp.get_devices()]
    if not isinstance(device, str) or (device not in known and not (device == "cuda" and wp.is_cuda_available())):
        raise OptionError(f"device is {device!r}, this machine has {', '.join(known)}")
    return device
