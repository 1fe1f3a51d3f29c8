"""The search for what a fit lacks ends in time, says what it left out, and changes no parameter. Fits in two ways: the better
one is kept, and it is known no better than both agree. Fits that grow in a rougher simulator: only where they begin depends
on it, and what explains the data ends the search."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sysid_systems import Spring, SpringParameters, record
from test_sysid_script import FREE, GROUND_TRUTH, PROCEDURE, SPRING

import sysid
from softgym_envs.core.errors import DataError, FileFormatError, OptionError
from softgym_envs.core.procedure import Causes
from softgym_envs.core.trajectory import TrajectorySet
from sysid import FitProblem
from sysid.diagnostics.intervals import IntervalOptions
from sysid.diagnostics.result import FitResult
from sysid.diagnostics.uncertainty import NORMAL
from sysid.fitting import shooting
from sysid.fitting.progressive import Beginning, ProgressiveFits
from sysid.fitting.second_fit import REACH, by_two_ways, either
from sysid.fitting.shooting import InitialFit, ShootingOptions, single_shooting
from sysid.problem import deadline
from sysid.procedure.search import Search

CAUSES = {"another mass": ("mass",), "commands that act late": ("latency",)}


def busy(seconds: float) -> str:
    """Work that looks at its deadline, as predictions do."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        deadline.check()
    return "done"


def test_a_candidate_is_stopped_when_the_time_is_up_and_later_ones_are_left_out() -> None:
    said: list[str] = []
    search = Search("quick", 0.3, said.append)
    search.plan(3)
    assert search.tried("a", lambda: busy(0.05)) == "done"
    begun = time.process_time()
    assert search.tried("b", lambda: busy(1e9)) is None and search.tried("c", lambda: busy(0.0)) is None
    assert time.process_time() - begun < 0.5
    assert (search.done, search.skipped) == (["a"], ["b", "c"])
    assert "trying a (1 of 3, 0 s left at most)" in said[0] and "trying b (2 of 3, about" in said[1] and len(said) == 2


def test_what_may_forbid_a_fit_has_more_time_and_examinations_of_the_fit_leave_less() -> None:
    search = Search("quick", 0.3, used=0.3)
    assert search.tried("a", lambda: busy(0.01)) is None and search.tried("b", lambda: busy(0.01), forbids=True) == "done"
    assert search.tried("c", lambda: busy(1e9), forbids=True) is None and search.skipped == ["a", "c"]
    with deadline.until(0.0), deadline.until(float("inf")), pytest.raises(deadline.OutOfTime):
        deadline.check()


def test_all_is_tried_or_nothing_where_that_is_asked_for() -> None:
    for diagnose, done in (("none", []), ("full", ["a"])):
        search = Search(diagnose, 0.0)  # type: ignore[arg-type]
        search.tried("a", lambda: busy(0.01))
        assert search.done == done
    with pytest.raises(OptionError, match="`diagnose` is 'some', allowed are 'none', 'quick', 'full'"):
        Search("some")  # type: ignore[arg-type]


def test_parameters_are_the_same_however_long_causes_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spring with twice the mass of the fit's: without a search that is not known, and the report says so."""
    stage = replace(PROCEDURE.from_recordings, free=FREE[:2], causes=Causes(CAUSES))  # type: ignore[type-var]
    monkeypatch.setattr("test_sysid_script.PROCEDURE", replace(PROCEDURE, from_recordings=stage))
    seen = record(Spring(), replace(GROUND_TRUTH, gain=1.0), count=2, noise=0.002)
    guess = SpringParameters(mass=4.0, gain=1.0)
    found = {
        diagnose: sysid.identify(SPRING, seen, initial_guess=guess, diagnose=diagnose, max_iterations=20)
        for diagnose in ("none", "quick", "full")
    }
    assert found["none"].parameters == found["quick"].parameters == found["full"].parameters
    (left_out,) = (d for d in found["none"].diagnostics if d.code == "not_searched")
    assert left_out.parameter == "another mass, commands that act late"
    assert "not searched: another mass" in found["none"].summary()
    (cause,) = (d for d in found["full"].diagnostics if d.code == "likely_cause")
    assert cause.parameter == "another mass"
    assert not any(d.code == "not_searched" for d in found["full"].diagnostics)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    """One fit, and several stages: parameters, diagnostics, summary and posterior."""
    rng = np.random.default_rng(0)
    labelled = TrajectorySet(
        tuple(PROCEDURE.record_one("pushed", Spring(), rng, steps=100, parameters=GROUND_TRUTH) for _ in range(2))
    )
    for name, data in (("one", record(Spring(), GROUND_TRUTH, count=2, noise=0.01)), ("several", labelled)):
        found = sysid.identify(SPRING, data, diagnose="none")
        again = sysid.Identification.load(found.save(tmp_path / name / "fit.toml"), system=SPRING)
        assert again.parameters == found.parameters and again.diagnostics == found.diagnostics
        assert again.summary() == found.summary() and again.spec == found.spec
        nominal, draws = found.parameters, [each.distribution() for each in (found, again)]
        one, other = (each.sample(np.random.default_rng(0), nominal) for each in draws)
        assert one == other
        assert again.report(tmp_path / "page.html").stat().st_size > 10_000
    assert [stage.name for stage in again.stages] == ["elastic", "all"]
    with pytest.raises(FileFormatError, match=r"not named fit\.toml"):
        found.save(tmp_path / "mine.json")


def test_notes_are_values(tmp_path: Path) -> None:
    said: list[Any] = []
    found = sysid.identify(SPRING, record(Spring(), GROUND_TRUTH, count=2), diagnose="none", announce=said.append)
    assert found.notes == tuple(said[1:-1]) and "2 recordings (the last one is held out)" in found.notes[0]
    assert said[-1] == found.summary()


TWO_WAYS_GROUND_TRUTH = SpringParameters(mass=2.0, stiffness=45.0, damping=0.8, gain=2.0)


@pytest.fixture(scope="module")
def fitted() -> tuple[FitProblem, FitResult]:
    """Stiffness, which is fitted by its logarithm, and the offset, which is not; noise of 5 mm."""
    data = record(Spring(), TWO_WAYS_GROUND_TRUTH, count=2, noise={"mass.x": 5e-3, "mass.vx": 5e-3})
    problem = FitProblem(Spring(), data, ("stiffness", "offset"), start=TWO_WAYS_GROUND_TRUTH)
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


ROUGH_SPRING = SpringParameters(mass=2.0, stiffness=45.0, damping=0.8, gain=2.0)


@dataclass(frozen=True, eq=False)
class Rough(Spring):
    """A spring whose steps may be rough, which moves nothing."""

    parts: int = 32


@pytest.fixture(scope="module")
def problem() -> FitProblem:
    """Positions alone are measured, with noise of 5 mm."""
    data = record(Spring(), ROUGH_SPRING, count=2, steps=120, noise={"mass.x": 5e-3})
    seen = TrajectorySet(tuple(trajectory.select(("mass.x",)) for trajectory in data))
    return FitProblem(Rough(), seen, ("stiffness", "damping"), measured=("mass.x",), start=ROUGH_SPRING.replace(stiffness=60.0))


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
