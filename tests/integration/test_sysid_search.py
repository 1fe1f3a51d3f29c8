"""The search for what a fit lacks ends in time, says what it left out, and changes no parameter."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sysid_systems import Spring, SpringParameters, record
from test_sysid_script import FREE, GROUND_TRUTH, PROCEDURE, SPRING

import sysid
from softgym_envs.core.errors import FileFormatError, OptionError
from softgym_envs.core.procedure import Causes
from softgym_envs.core.trajectory import TrajectorySet
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
