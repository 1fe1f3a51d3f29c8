"""Warp kernels over NumPy rows, on the CPU and without gradients: observations of a state in microseconds.

A dozen NumPy calls on one row cost more than all the arithmetic in them; a kernel is one call. Legend: B batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from ...core.simulator import Array
from ..fork import ForkLock
from ..kernel_cache import load_whole
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
        self._kernel, self._widths = kernel, (*widths, width)
        self._structure = [_on_host(value) if isinstance(value, np.ndarray) else value for value in structure]
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

    def _fit(self, rows: int) -> None:
        self._rows = 0
        if rows > self._capacity:
            self._capacity = 0  # until all is there: a launch may fail, or the process fork meanwhile
            self._arrays = [_on_host(np.zeros((rows, width))) for width in self._widths]
            inputs = [*self._structure, *self._arrays]
            start = partial(wp.launch, self._kernel, dim=rows, inputs=inputs, device="cpu", record_cmd=True)
            with LOADING:
                launch = load_whole(Path(wp.config.kernel_cache_dir), self._kernel.module.name, start)
                self._launch = Packed(launch)
            self._capacity = rows
        self._launch.resize(rows)
        self._views = [array.numpy()[:rows] for array in self._arrays]
        self._rows = rows


def _on_host(values: NDArray[Any]) -> Any:
    return wp.array(values, device="cpu")
