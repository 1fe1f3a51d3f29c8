"""Tests whether the simulator's step is why a fit does not explain its data.

Discretisation is part of a model: a block with 32 edges of its friction cone at 10 ms leaves residuals of twice the noise on
recordings of the same block with 128 edges at 5 ms. Before other causes are tried, the fit is repeated in the simulator that
the system's procedure names `finer`, from its result, and in still finer ones while they help.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from softgym_envs.core.errors import DataError
from softgym_envs.core.procedure import Procedure

from ..diagnostics.intervals import IntervalOptions
from ..diagnostics.model_form import in_steps_of
from ..diagnostics.result import FitResult, remaining_share
from ..fitting.shooting import InitialFit, ShootingOptions, single_shooting
from ..least_squares.levenberg import LevenbergOptions
from ..problem.problem import FitProblem
from .candidate_causes import BRIEF_TOLERANCE

EXPLAINED_WORTH = 0.8
"""Largest remaining share of the misfit for a cause: a test that fails by a little may pass in finer steps by chance."""
PART = 0.5  # Largest remaining share of the misfit for steps to be named as a part of the cause.
BRIEF = ShootingOptions(
    intervals=IntervalOptions(prediction_errors=False), levenberg=LevenbergOptions(cost_tolerance=BRIEF_TOLERANCE)
)
"""Options of the repeated fits, each from the end of another."""
MOST, LESS = 4, 0.5  # Most refinements, and the share of the misfit below which each must bring it to go on.


def with_finer_steps(
    procedure: Procedure, problem: FitProblem, result: FitResult, say: Callable[[str], None] = lambda what: None
) -> FitResult:
    """The result, with a diagnostic where finer steps explain what it does not; parameters stay those of its own simulator.

    `say` is called with a line before every try.
    """
    if result.explained or procedure.steps.finer is None or not result.usable:
        return result
    simulator, again, misfit = problem.simulator, result, np.inf
    for _ in range(MOST):
        simulator, misfit = procedure.steps.finer(simulator), again.misfit
        say(f"the model does not explain the data; trying steps of {simulator.dt:g} s")
        start = simulator.default_parameters.replace(
            **{name: getattr(again.parameters, name) for name in again.parameters.names()}
        )
        try:
            options = replace(BRIEF, initial=InitialFit(ended=again.ended))
            again = single_shooting(in_steps_of(problem, simulator).replace(start=start), options)
        except DataError:
            return result
        if again.explained or again.misfit > LESS * misfit:
            break
    if not again.usable or again.misfit > (EXPLAINED_WORTH if again.explained else PART) * result.misfit:
        return result
    return result.with_diagnostic(
        "step_matters", "warning", "dt", remaining_share(again, result), None,
        before=problem.simulator.dt, after=simulator.dt, changed=problem.spec.differences(again.spec),
        adequate=again.explained, told="; ".join(e.line() for e in again.estimates),
    )  # fmt: skip
