"""Predictions at the times when values were seen, between those of the parts of rows.

Legend: R rollouts, L rows, nx state.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.simulator import Array

from .problem import FitProblem

STEP = 1e-6  # Step of differences along tangents.


def between(late: Array, parts: int) -> tuple[NDArray[np.intp], Array]:
    """Last part of a row before values were seen (R, L+1), and the share of it that had passed by then.

    Args:
        late: Rows by which values were seen after their own (R, L+1).
        parts: Number of parts of a row.

    >>> low, share = between(np.array([[0.0, 0.25, 0.0]]), 2)
    >>> low.tolist(), share.tolist()
    ([[0, 2, 3]], [[0.0, 0.5, 1.0]])
    """
    rows = late.shape[1] - 1
    place = parts * (np.arange(rows + 1) + late)
    low = np.clip(np.floor(place), 0, parts * rows - 1).astype(np.intp)
    return low, place - low


def when_seen(problem: FitProblem, states: Array, late: Array) -> Array:
    """States (R, L+1, nx) when values were seen, interpolated between those of parts (R, L parts + 1, nx)."""
    before, after, share = _around(states, late)
    return _on_lines(problem, before, after, share)


def slopes_when_seen(problem: FitProblem, states: Array, late: Array, slopes: Array) -> Array:
    """Tangents (R, L+1, n, q) of `when_seen` along q unknowns, from those (2, R, L+1, n, q) of the parts before and after."""
    before, after, share = _around(states, late)
    retract, found = problem.simulator.retract, np.empty(slopes.shape[1:])
    for j in range(slopes.shape[-1]):
        size = np.maximum(np.abs(slopes[..., j]).max(axis=(0, -1)), 1e-300)[..., None]
        step = STEP * slopes[..., j] / size
        ends = [_on_lines(problem, retract(before, s * step[0]), retract(after, s * step[1]), share) for s in (1.0, -1.0)]
        found[..., j] = problem.simulator.difference(*ends) / (2 * STEP) * size
    return found


def _around(states: Array, late: Array) -> tuple[Array, Array, Array]:
    """States of the parts before and after values were seen, each (R, L+1, nx), and the share of the way (R, L+1, 1)."""
    low, share = between(late, (states.shape[1] - 1) // (late.shape[1] - 1))
    each = np.arange(len(states))[:, None]
    return states[each, low], states[each, low + 1], share[..., None]


def _on_lines(problem: FitProblem, before: Array, after: Array, share: Array) -> Array:
    return np.asarray(problem.simulator.retract(before, share * problem.simulator.difference(after, before)))
