"""Adds bands of predictions to a fit, and states what its intervals mean: a wrong model has no true parameters."""

from __future__ import annotations

from dataclasses import replace

from softgym_envs.core.errors import DataError

from ..diagnostics.prediction_intervals import FEWEST_WINDOWS, HORIZONS, ROWS, bands
from ..diagnostics.result import FitResult
from ..problem.noise import noise_of
from ..problem.problem import FitProblem


def banded(problem: FitProblem, result: FitResult) -> FitResult:
    """The result with bands of predictions (`judgement.bands`), and diagnostics on them.

    Args:
        problem: As it was fitted; recordings that it held out are predicted, too.
        result: With the parameters and the latency that are used.
    """
    found = bands(problem.replace(view=result.view), result.parameters)
    result = replace(result, bands=found)
    if found:
        few = min(found, key=lambda band: band.windows)
        sizes = [
            (horizon, [f"{band.size:.2g} {band.kind}".removesuffix(" -") for band in found if band.horizon == horizon])
            for horizon in dict.fromkeys(band.horizon for band in found)
        ]
        result = result.with_diagnostic(
            "prediction_interval", "note", sizes=sizes, rows=ROWS, windows=few.windows, fitted=few.fitted,
            adequate=result.explained,
        )  # fmt: skip
    if result.explained:
        return result
    known = problem.full_state or problem.estimates_initial
    need = (FEWEST_WINDOWS + 1) * HORIZONS[0] / 2 if known and not found else 0.0
    trust = bool(found) and all(band.fitted == 0 for band in found)
    far = () if found or result.noise_known else _far(problem, result)
    unit = problem.column_units[problem.column_names.index(far[0])] if far else ""
    return result.with_diagnostic("intervals_of_model", "note", *far, need=need, trust=trust, unit=unit)


def _far(problem: FitProblem, result: FitResult) -> tuple[str, float, float] | tuple[()]:
    """The column that fitted predictions miss by most beside its noise, by how much, and that noise; () where none shows."""
    names = tuple(name for name in problem.column_names if name in result.noise)
    try:
        noise = noise_of(problem.split.train, names)
        worst = max(names, key=lambda name: result.noise[name] / noise[name])
    except (DataError, ValueError):
        return ()
    return worst, result.noise[worst], noise[worst]


__all__ = ["banded"]
