"""Fits in two ways: the better one is kept, and it is known no better than both agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sysid_systems import Spring, SpringParameters, record

from softgym_envs.core.errors import DataError, OptionError
from sysid import FitProblem
from sysid.diagnostics.intervals import IntervalOptions
from sysid.diagnostics.result import FitResult
from sysid.diagnostics.uncertainty import NORMAL
from sysid.fitting.second_fit import REACH, by_two_ways, either
from sysid.fitting.shooting import InitialFit, ShootingOptions, single_shooting

GROUND_TRUTH = SpringParameters(mass=2.0, stiffness=45.0, damping=0.8, gain=2.0)


@pytest.fixture(scope="module")
def fitted() -> tuple[FitProblem, FitResult]:
    """Stiffness, which is fitted by its logarithm, and the offset, which is not; noise of 5 mm."""
    data = record(Spring(), GROUND_TRUTH, count=2, noise={"mass.x": 5e-3, "mass.vx": 5e-3})
    problem = FitProblem(Spring(), data, ("stiffness", "offset"), start=GROUND_TRUTH)
    return problem, single_shooting(problem, ShootingOptions(intervals=IntervalOptions(model_error=False)))


def moved(fit: FitResult, chi2: float, **parameter_values: float) -> FitResult:
    return replace(fit, parameters=fit.parameters.replace(**parameter_values), reduced_chi2=chi2 * fit.reduced_chi2)


def test_the_lower_of_two_is_kept_and_its_interval_reaches_towards_the_other(fitted: tuple[FitProblem, FitResult]) -> None:
    """By a factor where the logarithm is fitted, and the posterior as far; which of both is named first does not matter."""
    problem, fit = fitted
    constant = next(e for e in fit.estimates if e.name == "stiffness")
    other = moved(fit, 1.02, stiffness=1.5 * constant.value)
    one, two = either(problem, fit, other), either(problem, other, fit)
    assert one.parameters == two.parameters == fit.parameters
    wide = next(e for e in one.estimates if e.name == constant.name)
    low, high = constant.interval[0] / 1.5**REACH, constant.interval[1] * 1.5**REACH
    np.testing.assert_allclose(wide.interval, np.clip((low, high), *constant.bounds), rtol=1e-9)
    place = fit.posterior.names.index(constant.name)
    std = [np.sqrt(found.posterior.covariance[place, place]) for found in (fit, one)]
    assert std[1] - std[0] == pytest.approx(REACH * np.log(1.5) / NORMAL, rel=1e-6)
    assert one.diagnostics[0].severity == "warning" and one.codes[-1] == "fits_disagree"
    same = [next(e for e in found.estimates if e.name == "offset").interval for found in (fit, one)]  # both agree on it
    np.testing.assert_allclose(same[0], same[1], rtol=1e-9)


def test_two_that_agree_change_nothing_that_is_said(fitted: tuple[FitProblem, FitResult]) -> None:
    problem, fit = fitted
    assert either(problem, fit, fit).diagnostics == fit.diagnostics


def test_a_minimum_is_better_than_what_is_none_unless_that_is_much_lower(fitted: tuple[FitProblem, FitResult]) -> None:
    problem, fit = fitted
    lower = replace(fit, converged=False)
    assert either(problem, replace(fit, converged=True), moved(lower, 0.97)).converged
    assert not either(problem, replace(fit, converged=True), moved(lower, 0.9)).converged


def test_where_the_second_way_diverges_the_first_is_alone(fitted: tuple[FitProblem, FitResult]) -> None:
    problem, fit = fitted

    def diverges() -> FitResult:
        raise DataError("the simulation diverges")

    def ends() -> FitResult:
        return fit

    assert by_two_ways(problem, ends, diverges) is fit
    with pytest.raises(DataError):
        by_two_ways(problem, diverges, ends)


def test_a_way_has_segments_of_rows() -> None:
    with pytest.raises(OptionError, match="a length in second_progressive is 0"):
        InitialFit(second_progressive=(5, 0))
