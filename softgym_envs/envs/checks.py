"""Checks of every step, one pass each: NumPy's calls on small arrays cost more than the arithmetic in them.

Legend: B batch, nx state.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.errors import ShapeError
from ..core.simulator import Array, as_numbers
from ..engines.numba.engine import kernel


def checked_action(action: Any, shape: tuple[int, ...] | None) -> Array:
    """An action as a fresh array of float64, clipped to [-1, 1].

    Raises:
        ShapeError: It has another shape or holds NaN.
    """
    known = type(action) is np.ndarray and action.dtype.kind == "f"
    array = (action if known else as_numbers("action", action)).astype(np.float64, order="C")
    if array.shape != shape:
        raise ShapeError(f"action has shape {array.shape}, expected {shape}")
    if not clip(array.ravel()):
        raise ShapeError(f"action holds NaN at index {tuple(int(i[0]) for i in np.nonzero(np.isnan(array)))}")
    return array


@kernel
def clip(values):  # type: ignore[no-untyped-def]
    """Clip numbers to [-1, 1], in place; -> whether none is NaN."""
    good = True
    for i in range(len(values)):
        good = good and values[i] == values[i]
        if values[i] > 1.0:
            values[i] = 1.0
        elif values[i] < -1.0:
            values[i] = -1.0
    return good


@kernel
def mark_failed(status, state, failed):  # type: ignore[no-untyped-def]
    """Mark rows (B,) with a status other than 0, or a state (B, nx) that is not finite; -> whether there are any."""
    some = False
    for b in range(len(status)):
        bad = status[b] != 0
        for i in range(state.shape[1]):
            bad |= not np.isfinite(state[b, i])
        failed[b] = bad
        some |= bad
    return some


@kernel
def bound(values, low, high, shown):  # type: ignore[no-untyped-def]
    """Keep numbers (B, no) within bounds (no,), in place, and write them as float32 into `shown` (B, no); NaN stays NaN."""
    for b in range(len(values)):
        for i in range(len(low)):
            if values[b, i] < low[i]:
                values[b, i] = low[i]
            elif values[b, i] > high[i]:
                values[b, i] = high[i]
            shown[b, i] = values[b, i]
