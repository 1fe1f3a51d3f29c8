"""Numba kernels of the tasks' rewards: a dozen NumPy calls on a row cost more than all their arithmetic. Legend: B batch."""

from __future__ import annotations

from ...engines.numba.engine import inner, kernel
from .task_kernels import APPROACHED, DISTANCE, MEAN_ACROSS, MEAN_ALONG, MEAN_UP, REACHED


@inner
def _squares(action, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(action.shape[1]):
        total += action[b, k] * action[b, k]
    return total


@kernel
def follow_terms(action, after, weights, effort, found):  # type: ignore[no-untyped-def]
    """Minus the weighted squares of the velocity's averaged error along, across, up; effort |action|^2: (4, B)."""
    for b in range(len(action)):
        found[0, b] = -weights[0] * after[b, MEAN_ALONG] ** 2
        found[1, b] = -weights[1] * after[b, MEAN_ACROSS] ** 2
        found[2, b] = -weights[2] * after[b, MEAN_UP] ** 2
        found[3, b] = effort * _squares(action, b)


@kernel
def visit_terms(action, before, after, bonus, effort, found):  # type: ignore[no-untyped-def]
    """Progress towards the waypoint that was next, bonus for those reached, effort |action|^2: (3, B)."""
    for b in range(len(action)):
        found[0, b] = before[b, DISTANCE] - after[b, APPROACHED]
        found[1, b] = bonus * (after[b, REACHED] - before[b, REACHED])
        found[2, b] = effort * _squares(action, b)
