"""Objectives as data: the numbers of a reward or a cost, which task, planners and studies read.

    l(x, u) = sum_i w_i (f_i(x) - target_i)^2 + r sum_j (u_j / limit_j)^2

Legend: m features, nx state, nu control.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .errors import OptionError
from .simulator import Array


@dataclass(frozen=True)
class Objective:
    """See the module docstring.

    >>> def speed(model, states): return states[..., 1:]
    >>> Objective(speed, weights=(2.0,)).aimed((1.5,)).target
    (1.5,)

    Raises:
        OptionError: Weights are negative, or their number is not that of the target's entries.
    """

    features: Callable[[Any, Array], Array]
    """(model, states (..., nx)) -> (..., m), smooth."""
    weights: tuple[float, ...]
    """Weights w, (m,)."""
    target: tuple[float, ...] | None = None
    """Target, (m,); None: every scene or episode has its own."""
    control_weight: float = 0.0
    """Weight r of the controls."""

    def __post_init__(self) -> None:
        if not all(weight >= 0 for weight in (*self.weights, self.control_weight)):
            raise OptionError(f"weights are {self.weights} and {self.control_weight}, allowed are numbers >= 0")
        if self.target is not None and len(self.target) != len(self.weights):
            raise OptionError(f"the target has {len(self.target)} entries, expected one per weight: {len(self.weights)}")

    @property
    def aim(self) -> tuple[float, ...]:
        """The target (m,).

        Raises:
            OptionError: It has none of its own.
        """
        if self.target is None:
            raise OptionError("this objective has no target of its own: give it one with `aimed`")
        return self.target

    def aimed(self, target: tuple[float, ...] | Array) -> Objective:
        """Copy with this target (m,)."""
        return Objective(self.features, self.weights, tuple(float(entry) for entry in target), self.control_weight)
