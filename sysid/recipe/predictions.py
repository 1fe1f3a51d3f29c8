"""Adds bands of predictions to a fit, and states what its intervals mean: a wrong model has no true constants."""

from __future__ import annotations

from dataclasses import replace

from softgym_envs.core.errors import DataError

from ..data.noise import noise_of
from ..data.problem import FitProblem
from ..judgement.bands import FEWEST, HORIZONS, bands, told
from ..judgement.result import FitResult

INTERVALS = (
    "the model does not explain these data: intervals are of the constants with which it predicts such recordings best, and of "
    "what its error leaves open, not of the robot's own"
)


def banded(problem: FitProblem, result: FitResult) -> FitResult:
    """The result with bands of predictions (`judgement.bands`), and sentences on them.

    Args:
        problem: As it was fitted; recordings that it held out are predicted, too.
        result: With the constants and the latency that are used.
    """
    found = bands(problem.replace(view=result.view), result.parameters)
    result = replace(result, bands=found)
    if found:
        result = result.with_verdict("note", told(found, result.explained))
    if result.explained:
        return result
    shortest = (FEWEST + 1) * HORIZONS[0] / 2
    known = problem.full_state or problem.estimates_initial
    where = f"bands of predictions need {shortest:g} s" if known and not found else ""
    if found and all(band.fitted == 0 for band in found):
        where = "trust the bands of predictions"
    if not found and not result.noise_known:
        where = "; ".join(part for part in (_far(problem, result), where) if part)
    return result.with_verdict("note", f"{INTERVALS}; {where}" if where else INTERVALS)


def _far(problem: FitProblem, result: FitResult) -> str:
    """Errors of predictions of the fitted recordings beside the noise of these, in words; "" where these show none."""
    names = tuple(name for name in problem.column_names if name in result.noise)
    try:
        told = noise_of(problem.split.train, names)
        worst = max(names, key=lambda name: result.noise[name] / told[name])
    except (DataError, ValueError):
        return ""
    unit = problem.column_units[problem.column_names.index(worst)]
    return (
        f"predictions of these are off by up to {result.noise[worst]:.2g} {unit} ({worst}), noise is {told[worst]:.2g} {unit}"
    )


__all__ = ["banded"]
