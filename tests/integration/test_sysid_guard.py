"""What must not be used is not used: rank beside exact channels, starts and stages that predict worse, exit codes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sysid_systems import Spring, SpringParameters, record

from softgym_envs.core.files import read_toml
from softgym_envs.core.procedure import EXPERIMENT, Experiment, Procedure, Stage
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet
from sysid import Diagnostic, FitProblem
from sysid.diagnostics.uncertainty import analyse
from sysid.diagnostics.validation import HorizonError
from sysid.procedure.guard import better_start, compare, kept_back
from sysid.procedure.identification import Identification
from sysid.procedure.run import run_procedure

PUSHED = (Experiment("pushed", record=lambda *_, **__: long_recording(), longest=1200),)
GROUND_TRUTH = SpringParameters(stiffness=35.0, damping=2.5)
"""Gain as by default."""


def long_recording(rows: int = 1200) -> Trajectory:
    return replace(record(Spring(), GROUND_TRUTH, steps=rows)[0], metadata={EXPERIMENT: "pushed"})


def specs(count: int) -> tuple[Any, ...]:
    return tuple(replace(SpringParameters.specs()["stiffness"], name=f"k{i}") for i in range(count))


def test_an_exact_channel_makes_no_other_constant_look_dead() -> None:
    """Column 0 is seen through a channel with weights of 1e13; 1 and 2 through white noise, 2 is ten times as weak as 1."""
    rng = np.random.default_rng(0)
    jacobian = np.zeros((300, 3))
    jacobian[:100, 0], jacobian[100:, 1], jacobian[100:, 2] = 1e13, rng.normal(size=200), 0.1 * rng.normal(size=200)
    found = analyse(jacobian, 1.0, specs(3))
    assert not found.hidden.any()
    expected = np.linalg.inv(jacobian[100:, 1:].T @ jacobian[100:, 1:])
    np.testing.assert_allclose(found.covariance[1:, 1:], expected, rtol=1e-9)


def test_a_product_stays_a_product_beside_an_exact_channel() -> None:
    rng = np.random.default_rng(1)
    jacobian = np.zeros((300, 3))
    jacobian[:100, 0] = 1e13
    jacobian[100:, 1] = rng.normal(size=200)
    jacobian[100:, 2] = -3.0 * jacobian[100:, 1]
    found = analyse(jacobian, 1.0, specs(3))
    assert found.hidden.tolist() == [False, True, True] and found.structural == (True,)
    np.testing.assert_allclose(np.abs(found.null[:, 0]), [0, 3 / np.sqrt(10), 1 / np.sqrt(10)], atol=1e-9)


def error(kind: str, fitted: float, start: float, part: str = "validation") -> HorizonError:
    return HorizonError(part, kind, 0.5, fitted, start, 1.0, 5, 0)


def test_a_perfect_motor_does_not_outweigh_a_bad_body() -> None:
    judged = compare((error("-", 1e-12, 1.0), error("m", 0.9, 0.3), error("m/s", 0.9, 0.3)))
    assert not judged.better
    assert compare((error("m", 0.1, 0.3), error("m", 9.0, 0.1, "train"))).better
    assert compare((error("m", 0.1, 0.3),)).better


def test_an_end_at_rest_does_not_judge_alone() -> None:
    """A throw: what was fitted moves ten times as far as the end that was kept back, and is predicted three times as well."""
    moving, resting = error("m", 0.1, 0.3, "train"), replace(error("m", 0.011, 0.01), persistence=0.1)
    assert not compare((error("m", 0.1, 0.3, "train"), error("m", 1.1, 1.0))).better
    assert compare((moving, resting)).better and compare((moving, resting)).data == "kept-back and fitted data"


def test_a_fifth_of_long_recordings_is_kept_back() -> None:
    split = kept_back(DataSplit(TrajectorySet((long_recording(),)), TrajectorySet(()), TrajectorySet(())))
    assert [part.num_steps for part in split] == [960, 240, 0]
    short = kept_back(DataSplit(TrajectorySet((long_recording(600),)), TrajectorySet(()), TrajectorySet(())))
    assert [part.num_steps for part in short] == [600, 0, 0]


def test_a_stage_starts_from_what_predicts_best_and_its_result_is_used_only_if_better() -> None:
    """The first stage may only move the spring's gain far off by a wrong mass: nothing of it goes on."""
    data, free = TrajectorySet((long_recording(),)), ("stiffness", "damping")
    problem = FitProblem(Spring(), kept_back(DataSplit(data, TrajectorySet(()), TrajectorySet(()))), free)
    collapsed = problem.replace(start=SpringParameters(stiffness=0.2, damping=30.0))
    assert better_start(collapsed, SpringParameters()).initial_parameters == SpringParameters()
    assert better_start(problem, SpringParameters(stiffness=0.2, damping=30.0)).initial_parameters == SpringParameters()
    stages = (Stage("all", "pushed", free, "multiple_shooting", {"segment_steps": 20}),)
    found = run_procedure(Procedure(stages, PUSHED), Spring(), data)
    assert found.unusable == () and found.parameters.stiffness == pytest.approx(35.0, rel=1e-6)


@pytest.mark.parametrize(("free", "unusable"), [("paint", ("paint",)), ("stiffness", ())])
def test_constants_that_no_stage_found_are_named_also_in_the_file(free: str, unusable: tuple[str, ...], tmp_path: Path) -> None:
    stages = (Stage("all", "pushed", (free,), "multiple_shooting", {"segment_steps": 20}),)
    found = run_procedure(Procedure(stages, PUSHED), Spring(), TrajectorySet((long_recording(),)), out=tmp_path)
    assert found.unusable == unusable
    provenance = read_toml(tmp_path / "fit.toml")["provenance"]
    assert provenance.get("do_not_use") == ("the fit says: the stage that gave paint failed" if unusable else None)
    assert SpringParameters.load(tmp_path / "fit.toml") == found.parameters


def test_a_fit_that_is_used_though_it_did_not_converge_says_so_in_its_headline_and_in_the_procedures() -> None:
    """What a transfer study prints of a fit is the procedure's headline: it must not forbid what the study does."""
    data, free = TrajectorySet((long_recording(),)), ("stiffness", "damping")
    options = {"segment_steps": 20, "reweight": 0, "levenberg": {"max_iterations": 2}}
    found = run_procedure(Procedure((Stage("all", "pushed", free, "multiple_shooting", options),), PUSHED), Spring(), data)
    (stage,) = found.stages
    assert not stage.fit.converged and not stage.fit.usable
    assert stage.fit.codes[0] == "used_unconverged" and "not_converged" not in stage.fit.codes
    assert found.headline.startswith("not converged, but used to predict, as errors on kept-back data are ")
    assert found.parameters.stiffness != Spring().default_parameters.stiffness and found.unusable == free


@pytest.mark.parametrize(("code", "unusable"), [("used_unconverged", ("stiffness",)), ("kept_previous", ())])
def test_what_a_failed_stage_changed_is_not_to_be_used_and_what_it_kept_is(code: str, unusable: tuple[str, ...]) -> None:
    data, free = TrajectorySet((long_recording(),)), ("stiffness",)
    good = run_procedure(
        Procedure((Stage("all", "pushed", free, "multiple_shooting", {"segment_steps": 20}),), PUSHED), Spring(), data
    ).stages[0]
    bad = replace(good, fit=replace(good.fit, diagnostics=(Diagnostic(code, "do_not_use"),)))
    assert Identification((good, bad)).unusable == unusable
