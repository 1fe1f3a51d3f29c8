"""Four rows of a batch in one thread: a kernel's own text, compiled with four numbers in place of each float64.

`lanes.h` precedes the C++ that Warp makes of a kernel, and redefines `float64` and `bool`. The processor's wide registers then
do for four rows what they did for one, and physics is written once. Rules for a kernel:

- A branch on a number of a row runs if any of the four rows takes it, and changes only variables, as a whole: no member of a
  struct, no array (but it may add what is zero for the others).
- Integers and loops are the same for all rows; status is a float64. Where rows need loops of different lengths, all run the
  longest (`largest` in `lanes.h`), and each row selects its results by a number for its own end.
- A failed row goes on, and its numbers mean nothing: its status selects what is kept of it.
- C++ of a kernel's own (`wp.func_native`) defines what it does for lanes.

A row's result is equal bit for bit with any other rows beside it, and with none. A single row runs the kernel as it is, so the
compiler may neither fuse nor reorder sums and products in either version: it would do so differently in the two.

Legend: B batch, G groups of LANES rows; the last axis of an array in memory is the lane.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

LANES = 4
"""Rows of a group: 256 bits of numbers, as most processors' registers hold; the compiler splits them where they hold less."""
CACHE_LINE = 64
HEADER = Path(__file__).with_name("lanes.h")
_Number = ctypes.c_double * LANES


def compiler_options(flags: str, level: int, before: str) -> tuple[tuple[str, Any], ...]:
    """Options of Warp's compiler for a kernel that runs LANES rows at once: `before` stands in front of it, then the header."""
    header = wp.ModuleBuildOptions(extra_cpu_preamble=f"{before}\n#define SOFTGYM_LANES {LANES}\n{HEADER.read_text('utf-8')}")
    return (("cpu_compiler_flags", f"{flags} -std=c++20"), ("optimization_level", level), ("extra_build_options", header))


def spread(rows: NDArray[np.float64], lanes: NDArray[np.float64]) -> None:
    """Write (B, ...) to (G, ..., LANES); places without a row repeat the last one."""
    places = np.minimum(np.arange(len(lanes) * LANES), len(rows) - 1)
    lanes[...] = np.moveaxis(rows[places].reshape(len(lanes), LANES, *rows.shape[1:]), 1, -1)


def gather(lanes: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """(G, ..., LANES) -> the first `count` rows, (count, ...), a copy."""
    rows = np.empty((len(lanes) * LANES, *lanes.shape[1:-1]))
    rows.reshape(len(lanes), LANES, *lanes.shape[1:-1])[...] = np.moveaxis(lanes, -1, 1)
    return rows[:count]


class Wide:
    """Copies of a launch's arguments in the layout of `lanes.h`: every float64 becomes LANES numbers."""

    def __init__(self) -> None:
        self._memory: dict[int, NDArray[Any]] = {}

    def numbers(self, array: Any) -> NDArray[np.float64]:
        """The copy of an array of float64, (*shape, LANES)."""
        return self._memory[array.ptr] if array.size else np.zeros((*array.shape, LANES))

    def argument(self, value: Any, kind: Any = None) -> Any:
        """The copy of an array, a struct, or a number of this kind, in C's types."""
        if isinstance(value, wp.array):
            return self._array(value)
        if _is_struct(type(value)):
            out = _layout(value._cls)()
            for name, var in value._cls.vars.items():
                setattr(out, name, self.argument(getattr(value, name), var.type))
            return out
        kind = type(value) if kind is None else kind
        if _layout(kind) is ctypes.c_int32:
            return ctypes.c_int32(value)
        made = np.repeat(np.asarray(value, dtype=float).reshape(-1), LANES)
        return _layout(kind).from_buffer_copy(made)

    def _array(self, value: Any) -> Any:
        """The copy of an array; for a view of another array's memory, a view of that one's copy."""
        if not value.size:
            return value.__ctype__()
        known = self._memory.get(value.ptr)
        if known is not None:
            strides: Any = [LANES * stride for stride in value.strides]
        else:
            known = _aligned_zeros(value.shape, np.dtype(_layout(value.dtype)))
            _fill(known, value.numpy(), value.dtype)
            self._memory[value.ptr] = known
            strides = known.strides
        return type(value.__ctype__())(known.ctypes.data, 0, value.ndim, value.shape, strides)


def _aligned_zeros(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Zeros aligned to a cache line, so that no group of numbers lies in two."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.zeros(size + CACHE_LINE, dtype=np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return np.ndarray(shape, dtype, memory, start)


def _is_struct(kind: Any) -> bool:
    return hasattr(kind, "native_name")


@cache
def _layout(kind: Any) -> Any:
    """Layout of a type of Warp in `lanes.h`."""
    if kind in (int, wp.int32):
        return ctypes.c_int32
    if kind in (float, wp.float64):
        return _Number
    if _is_struct(kind):
        fields = [(name, _layout(var.type)) for name, var in kind.vars.items()]
        return type(kind.key, (ctypes.Structure,), {"_fields_": fields})
    if hasattr(kind, "_wp_scalar_type_"):
        return _Number * kind._length_
    return type(kind.__ctype__())


def _fill(lanes: NDArray[Any], values: NDArray[Any], kind: Any) -> None:
    """Copy values to every lane."""
    if _is_struct(kind):
        for name, var in kind.vars.items():
            _fill(lanes[name], values[name], var.type)
    elif kind in (int, wp.int32):
        lanes[...] = values
    else:
        lanes[...] = values.reshape(lanes.shape[:-1])[..., None]
