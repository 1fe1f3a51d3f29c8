"""Groups of constants one after the other ([Wang2020] IV-D): what one stage found is fixed in the next.

The first group is the one that the model describes best (cables and motors, from a recording in the air); contact follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from softgym_envs.core.errors import OptionError
from softgym_envs.core.parameters import Parameters

from ..data.problem import FitProblem
from ..judgement.result import FitResult


@dataclass(frozen=True)
class Stage:
    """One group: which problem, given the constants so far, and how it is solved."""

    name: str
    problem: Callable[[Parameters], FitProblem]
    """Constants found so far -> problem; use them as `start`."""
    method: Callable[[FitProblem], FitResult]
    """`one_step`, or a `functools.partial` of another method."""


@dataclass(frozen=True)
class ProgressiveResult:
    """The stages' results, in their order."""

    results: dict[str, FitResult]

    @property
    def parameters(self) -> Parameters:
        """Constants after the last stage."""
        return list(self.results.values())[-1].parameters

    def summary(self) -> str:
        """All stages' summaries."""
        return "\n".join(f"{name}\n{result.summary()}" for name, result in self.results.items())


def progressive(
    start: Parameters, stages: Sequence[Stage], *, announce: Callable[[str], None] | None = None
) -> ProgressiveResult:
    """Solve the stages in order, each starting from the constants of the one before.

    Args:
        start: Constants before the first stage.
        stages: At least one; their names differ.
        announce: Called with the name of each stage as it begins.

    Raises:
        OptionError: No stage, or two of one name.
        DataError: A stage's recordings cannot be used.
    """
    names = [stage.name for stage in stages]
    if not names or len(set(names)) != len(names):
        raise OptionError(f"stages are named {names}, expected at least one, each name once")
    results: dict[str, FitResult] = {}
    current = start
    for stage in stages:
        if announce is not None:
            announce(stage.name)
        results[stage.name] = stage.method(stage.problem(current))
        current = results[stage.name].parameters
    return ProgressiveResult(results)
