"""Observations of tasks: entries of the state, followed by some of the context. Legend: B batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...core.simulator import Array
from .engine import kernel


def joined(state: Array, count: int, context: Array, columns: NDArray[np.int64], less: Array) -> Array:
    """Concatenates the first `count` entries of states and columns (k,) of contexts minus `less` (k,), (B, count + k)."""
    found = np.empty((len(state), count + len(columns)))
    join(state, context, columns, less, found)
    return found


@kernel
def join(state, context, columns, less, found):  # type: ignore[no-untyped-def]
    """See `joined`."""
    count = found.shape[1] - len(columns)
    for b in range(len(state)):
        for i in range(count):
            found[b, i] = state[b, i]
        for i in range(len(columns)):
            found[b, count + i] = context[b, columns[i]] - less[i]
