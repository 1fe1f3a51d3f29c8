"""Is it the simulator's step? Where a fit does not explain its data, the same robot in finer steps may.

Discretisation is part of a model: a block with 32 edges of its friction cone at 10 ms leaves residuals of twice the noise on
recordings of the same block with 128 edges at 5 ms. Before anything else is blamed, the fit is repeated in the simulator that
the room's recipe names `finer`, from where it ended.
"""

from __future__ import annotations

from softgym_envs.core.errors import DataError
from softgym_envs.core.recipe import Recipe

from ..data.problem import FitProblem
from ..judgement.result import FitResult
from ..judgement.step import in_finer_steps
from .shooting import single_shooting

WORTH = 0.8
"""Of the misfit must be left at most: a test that fails by a little may pass in finer steps by chance."""


def blamed(recipe: Recipe, problem: FitProblem, result: FitResult) -> FitResult:
    """The result, with a sentence where finer steps explain what it does not; constants stay those of its own simulator."""
    if result.explained or recipe.finer is None or not result.usable:
        return result
    simulator = recipe.finer(problem.simulator)
    start = simulator.default_parameters.replace(
        **{name: getattr(result.parameters, name) for name in result.parameters.names()}
    )
    try:
        again = single_shooting(in_finer_steps(problem, simulator).replace(start=start))
    except DataError:
        return result
    if not (again.usable and again.misfit <= min(1.0, WORTH * result.misfit)):
        return result
    told = "; ".join(e.text() for e in again.estimates)
    return result.with_verdict(
        "warning",
        f"the simulator's own step of {problem.simulator.dt:g} s is why: with finer ones the data are explained: {told}",
    )


__all__ = ["blamed"]
