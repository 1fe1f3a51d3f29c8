"""Fits that grow in a rougher simulator: only where they begin depends on it, and what explains the data ends the search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from sysid_systems import Spring, SpringParameters, record

from softgym_envs.core.errors import DataError
from softgym_envs.core.trajectory import TrajectorySet
from sysid import FitProblem
from sysid.diagnostics.intervals import IntervalOptions
from sysid.diagnostics.result import FitResult
from sysid.fitting import shooting
from sysid.fitting.progressive import Beginning, ProgressiveFits
from sysid.fitting.shooting import InitialFit, ShootingOptions, single_shooting

GROUND_TRUTH = SpringParameters(mass=2.0, stiffness=45.0, damping=0.8, gain=2.0)


@dataclass(frozen=True, eq=False)
class Rough(Spring):
    """A spring whose steps may be rough, which moves nothing."""

    parts: int = 32


@pytest.fixture(scope="module")
def problem() -> FitProblem:
    """Positions alone are measured, with noise of 5 mm."""
    data = record(Spring(), GROUND_TRUTH, count=2, steps=120, noise={"mass.x": 5e-3})
    seen = TrajectorySet(tuple(trajectory.select(("mass.x",)) for trajectory in data))
    return FitProblem(Rough(), seen, ("stiffness", "damping"), measured=("mass.x",), start=GROUND_TRUTH.replace(stiffness=60.0))


WAYS = ({"parts": 6}, {"parts": 2}, {"parts": 4})


def options(**more: Any) -> ShootingOptions:
    return ShootingOptions(
        intervals=IntervalOptions(model_error=False), initial=InitialFit(progressive=(6, 20), coarse=WAYS), **more
    )


@pytest.fixture
def grown(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """In how many parts fits grew."""
    found: list[int] = []
    begin = ProgressiveFits.begin

    def noted(self: ProgressiveFits, problem: FitProblem) -> Beginning:
        found.append(self.coarse.get("parts", 32))
        ended = begin(self, problem)
        assert ended.problem.simulator is problem.simulator
        return ended

    monkeypatch.setattr(ProgressiveFits, "begin", noted)
    return found


def test_a_fit_that_explains_its_data_grew_once_and_is_of_the_simulator_itself(problem: FitProblem, grown: list[int]) -> None:
    result = single_shooting(problem, options())
    plain = single_shooting(problem, replace(options(), initial=InitialFit(progressive=(6, 20))))
    assert result.explained and grown == [6, 32] and result.spec == plain.spec
    np.testing.assert_allclose(result.parameters.to_vector(), plain.parameters.to_vector(), rtol=1e-4)


def ended(monkeypatch: pytest.MonkeyPatch, fits: Iterator[FitResult | None]) -> None:
    """Fits that end as told; None diverges."""

    def fit(*_: Any) -> FitResult:
        found = next(fits)
        if found is None:
            raise DataError("the simulation diverges")
        return found

    monkeypatch.setattr(shooting, "_fit", fit)


def test_the_lowest_is_kept_where_none_explains_the_data(
    problem: FitProblem, grown: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = replace(single_shooting(problem, replace(options(), initial=InitialFit())), converged=True, misfit=2.0)
    fits = [replace(base, reduced_chi2=chi2 * base.reduced_chi2) for chi2 in (3.0, 2.0, 2.5)]
    for order in ((0, 1, 2), (1, 0, 2), (2, 0, 1)):
        ended(monkeypatch, iter([fits[place] for place in order]))
        found = single_shooting(problem, options())
        assert found.reduced_chi2 == fits[1].reduced_chi2
        assert bool(found.of("second_fit")) == (order[0] != 1)
    assert grown == [6, 2, 4] * 3


def test_the_first_that_explains_the_data_ends_the_search_though_it_is_higher(
    problem: FitProblem, grown: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its noise, not its squares; what did not converge explains nothing, and a way that diverges is passed by."""
    base = replace(single_shooting(problem, replace(options(), initial=InitialFit())), converged=True)
    wrong, high = replace(base, misfit=2.0), replace(base, misfit=0.5, reduced_chi2=1.1 * base.reduced_chi2)
    ended(monkeypatch, iter([wrong, high]))
    assert single_shooting(problem, options()).explained and grown == [6, 2]
    grown.clear()
    ended(monkeypatch, iter([replace(high, converged=False), wrong, None]))
    assert not single_shooting(problem, options()).explained and grown == [6, 2, 4]


def test_what_does_not_grow_is_fitted_once(problem: FitProblem, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(single_shooting(problem, replace(options(), initial=InitialFit())), converged=True, misfit=2.0)
    ended(monkeypatch, iter([wrong]))
    assert single_shooting(problem, replace(options(), initial=InitialFit(coarse=WAYS))) is not None


def test_a_minimum_comes_before_what_is_none_and_hardly_lower(
    problem: FitProblem, grown: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = replace(single_shooting(problem, replace(options(), initial=InitialFit())), converged=True, misfit=2.0)
    crept = replace(base, converged=False, reduced_chi2=0.99 * base.reduced_chi2)
    ended(monkeypatch, iter([base, crept, crept]))
    assert single_shooting(problem, options()).converged and grown == [6, 2, 4]


def test_a_simulator_without_such_a_field_grows_in_itself(problem: FitProblem, grown: list[int]) -> None:
    single_shooting(problem.replace(simulator=Spring()), options())
    assert grown == [32]
