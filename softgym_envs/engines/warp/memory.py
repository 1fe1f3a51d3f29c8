"""Memory of Warp kernels: structs of arrays that travel together, and the functions that may write to a tape.

A *tape* holds values of every step of a recorded rollout for the backward pass; nothing on it is overwritten. A *workspace*
is scratch memory without derivative. Both are structs that a system declares: a kernel passes one argument in place of ten.
Consequences (`tests/oracles/warp_answer.py` asks for the first two):

- The gradient of an array in a struct is the array's own `grad`; `wp.adjoint[tape]` does not contain it.
- Before Warp differentiates a function that a kernel calls, it runs it again, to have its results. Those of a function that
  writes to the tape are there already, and what it adds by `wp.atomic_add` would be added twice: hence `stage`.
- A struct is copied into every function that the compiler does not inline, and in the backward pass every use of an array in a
  struct writes 56 bytes of empty adjoint as soon as one function is not. Hence stages are inlined, and functions inside the
  innermost loops take the arrays and numbers that they need. Nor is a struct given a second value under its name in a branch
  of a loop: Warp then copies it in every iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import warp as wp


def stage(function: Callable[..., None]) -> Any:
    """A `wp.func` that writes to the tape and returns nothing: the backward pass does not run it again.

    It becomes part of the function that calls it: no argument is copied, and no adjoint of a struct has to be in memory.
    Warp's kernel cache does not notice when a `wp.func` becomes a stage: change its text, or empty the cache.
    """
    made: Any = wp.func(function, inline=True)
    made.skip_replay = True
    return made


@dataclass(frozen=True)
class Memory:
    """A struct of arrays with one row per row of the batch, or per slot and row of the batch."""

    struct: Any
    counts: Mapping[str, int]
    """Columns of each array, by its name."""
    views: Mapping[str, int] = field(default_factory=dict)
    """A tape's views of the state's own memory: name -> number of structs from its first entry on, made of float64 only: one
    load in place of many."""
    parts: Mapping[str, Memory] = field(default_factory=dict)
    """Fields of a workspace that are such structs themselves."""

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, including parts; views take none."""
        own: int = sum(count * wp.types.type_size_in_bytes(self._dtype(name)) for name, count in self.counts.items())
        return own + sum(part.row_bytes for part in self.parts.values())

    def allocate(self, rows: int, state: Any, differentiable: bool = False) -> Any:
        """The struct with all its arrays, zeros; `state` (rows, nx) is the memory of the views."""
        memory = self.struct()
        for name, count in self.counts.items():
            dtype = self._dtype(name)
            grad = differentiable and dtype not in (int, wp.int32)
            setattr(memory, name, wp.zeros((rows, count), dtype=dtype, device=state.device, requires_grad=grad))
        for name, part in self.parts.items():
            setattr(memory, name, part.allocate(rows, state))
        for name, count in self.views.items():
            setattr(memory, name, view_rows(state, self._dtype(name), count))
        return memory

    def _dtype(self, name: str) -> Any:
        return self.struct.vars[name].type.dtype


def view_rows(rows: Any, dtype: Any, count: int) -> Any:
    """The first `count` structs of every row of a float64 array (n, nx), as an array (n, count) on the same memory.

    Its gradient is a view of the array's gradient.
    """
    strides = (rows.strides[0], wp.types.type_size_in_bytes(dtype))
    view = wp.array(ptr=rows.ptr, dtype=dtype, shape=(rows.shape[0], count), strides=strides, device=rows.device)
    if rows.requires_grad:
        view.grad = view_rows(rows.grad, dtype, count)
    return view


def blank(value: Any) -> Any:
    """The adjoint of an argument without gradient: none, or for a struct an empty one, as Warp requires."""
    return type(value)() if hasattr(type(value), "native_name") else None
