"""Warp kernels over NumPy rows, on the CPU and without gradients: observations of a state in microseconds.

A dozen NumPy calls on one row cost more than all the arithmetic in them; a kernel is one call. Legend: B batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import warp as wp
from numpy.typing import NDArray

from ...core.simulator import Array
from ..kernel_cache import load_whole
from ..threads import ForkLock
from .buffers import Packed
from .engine import LOADING


class RowKernel:
    """out[b] = f(structure, inputs[b]): rows never interact, so that a row of a batch equals that row alone, bit for bit.

    May be called from several threads; they wait for each other.

    Args:
        kernel: Its arguments are *structure, then one (B, width) array of float64 per input, then out (B, width); thread b
            writes row b of out.
        structure: Data shared by all rows: scalars, and NumPy arrays of float64 or int32.
        widths: Widths of the inputs.
        width: Width of out.
    """

    def __init__(self, kernel: Any, structure: Sequence[Any], widths: Sequence[int], width: int) -> None:
        self.kernel, self._widths = kernel, (*widths, width)
        self.width = width
        """Width of out."""
        self.structure = [_on_host(value) if isinstance(value, np.ndarray) else value for value in structure]
        self._lock = ForkLock()
        self._capacity = self._rows = 0
        self._launch: Any = None
        self._arrays: list[Any] = []
        self._views: list[Array] = []

    def __call__(self, *inputs: Array) -> Array:
        """Inputs (B, width) each -> out (B, width), a fresh array."""
        rows = len(inputs[0])
        with self._lock:
            if rows != self._rows:
                self._fit(rows)
            *views, result = self._views
            for view, values in zip(views, inputs, strict=True):
                view[...] = values
            self._launch.run()
            return result.copy()

    def structure_on(self, device: str) -> list[Any]:
        """The data shared by all rows on a device."""
        return [value.to(device) if isinstance(value, wp.array) else value for value in self.structure]

    def _fit(self, rows: int) -> None:
        self._rows = 0
        if rows > self._capacity:
            self._capacity = 0  # until all is there: a launch may fail, or the process fork meanwhile
            self._arrays = [_on_host(np.zeros((rows, width))) for width in self._widths]
            inputs = [*self.structure, *self._arrays]
            start = partial(wp.launch, self.kernel, dim=rows, inputs=inputs, device="cpu", record_cmd=True)
            with LOADING:
                launch = load_whole(Path(wp.config.kernel_cache_dir), self.kernel.module.name, start)
                self._launch = Packed(launch)
            self._capacity = rows
        self._launch.resize(rows)
        self._views = [array.numpy()[:rows] for array in self._arrays]
        self._rows = rows


class TaskKernels(NamedTuple):
    """What a device runs of a task in a control step; thread b works on row b, and `RowKernel` says with which arguments.

    The control is u = max(lowest, scale_u a), a = action[columns_u].
    """

    columns: NDArray[np.integer[Any]]
    """(nu,)"""
    scale: Array
    """(nu,)"""
    lowest: float
    updates: tuple[RowKernel, ...]
    """The first: (state, context) -> context after the step; others, if any: context -> context."""
    observe: RowKernel
    """(state, context) -> observation"""
    reward: RowKernel
    """(action, context before, context after) -> terms"""
    terms: tuple[str, ...]
    """Names of the terms."""
    success: int
    """Column of the context: a row succeeds once it is at least `enough`."""
    enough: int | None = None
    """Column of the context; None: 1."""
    ends: bool = True
    """Whether success ends the episode."""


@runtime_checkable
class HasKernels(Protocol):
    """A task that can run on a device."""

    def kernels(self) -> TaskKernels | None:
        """What the device runs; None: it cannot with these keywords."""


def _on_host(values: NDArray[Any]) -> Any:
    return wp.array(values, dtype=wp.float64 if values.dtype.kind == "f" else wp.int32, device="cpu")
