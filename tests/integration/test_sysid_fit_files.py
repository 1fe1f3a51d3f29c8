"""Fits survive interruption, and write files that can be read again."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from spring_fits import GROUND_TRUTH, START, problem
from sysid_systems import Spin, Spring, SpringParameters, record

from reproductions.wang2020.adam import AdamOptions
from softgym_envs.core.errors import DataError, FileFormatError, OptionError
from softgym_envs.core.files import read_toml
from softgym_envs.core.interface import Interface
from softgym_envs.core.posterior import PosteriorParameters
from sysid import FitProblem
from sysid.fitting import checkpoint
from sysid.fitting.running import Running
from sysid.fitting.shooting import InitialFit, ShootingOptions, one_step, single_shooting
from sysid.least_squares.levenberg import FitIteration, LevenbergOptions, LevenbergState
from sysid.problem.recording_parameters import RecordingParameters
from sysid.procedure.identification import loaded
from sysid.report.files import save
from sysid.report.page import render
from sysid.report.progress import Seldom


@pytest.mark.parametrize("after", [3, 9, 14])
def test_an_interrupted_fit_resumes_to_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    file = tmp_path / "checkpoint.json"
    made = problem(data=record(Spring(), GROUND_TRUTH, noise=0.01), free_initial=True)
    options = {"starts": 2, "jacobian": "exact"}
    expected = single_shooting(made, ShootingOptions(**options))  # type: ignore[arg-type]
    original, calls = Spring.linearize, []

    def tired(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) > after:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    monkeypatch.setattr(Spring, "linearize", tired)
    said = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        single_shooting(made, ShootingOptions(**options), Running(checkpoint=file, progress=said))  # type: ignore[arg-type]
    assert "interrupted" in said.getvalue() and "cost" in said.getvalue()
    monkeypatch.setattr(Spring, "linearize", original)
    resumed = single_shooting(made, ShootingOptions(**options), Running(file, resume=True))  # type: ignore[arg-type]
    assert resumed.parameters == expected.parameters and resumed.std == expected.std and resumed.noise == expected.noise
    assert not file.exists()


def test_a_checkpoint_of_another_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "checkpoint.json"

    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Spring, "linearize", stop)
    with pytest.raises(KeyboardInterrupt):
        one_step(problem(), ShootingOptions(jacobian="exact"), Running(file))
    with pytest.raises(OptionError, match="belongs to another fit"):
        one_step(problem(free=("gain",)), ShootingOptions(jacobian="exact"), Running(file, resume=True))
    file.write_text("{}")
    with pytest.raises(FileFormatError, match="no checkpoint"):
        one_step(problem(), running=Running(file, resume=True))
    with pytest.raises(FileFormatError, match="cannot read"):
        one_step(problem(), running=Running(tmp_path / "none.json", resume=True))


def test_a_checkpoint_keeps_trials_that_could_not_be_simulated(tmp_path: Path) -> None:
    """Their ratio is minus infinity, the first one's is no number: neither is JSON."""
    file, made = tmp_path / "checkpoint.json", problem()
    log = tuple(
        FitIteration(k, 1.0, 1e-3, ratio, 0.0, False, 0.0) for k, ratio in enumerate((float("nan"), float("-inf"), 0.5))
    )
    state = LevenbergState(np.ones(1), np.zeros((1, 0)), 1.0, 1e-3, 2.0, np.ones(1), np.zeros((0, 0)), log)
    checkpoint.save(file, "mine", made.spec, checkpoint.Journal(0, np.ones(1), (), state))
    kept = checkpoint.read(file, "mine", made.spec).state
    assert kept is not None and str(kept.log) == str(log)


def test_bad_options_are_refused() -> None:
    for changes in ({"jacobian": "magic"}, {"errors": "none"}, {"starts": 0}, {"reweight": -1}, {"segment_steps": 0}):
        with pytest.raises(OptionError):
            ShootingOptions(**changes)  # type: ignore[arg-type]
    for name in ("restart_steps", "short_steps"):
        with pytest.raises(OptionError, match=name):
            InitialFit(**{name: -1})
    with pytest.raises(OptionError, match="resume needs checkpoint"):
        Running(resume=True)
    with pytest.raises(OptionError, match="batch is 0"):
        AdamOptions(batch=0)
    with pytest.raises(OptionError, match="Spin has no exact derivatives"):
        one_step(FitProblem(Spin(), record(Spin()), free=("drag",)), ShootingOptions(jacobian="exact"))
    with pytest.raises(DataError, match="every state entry measured"):
        one_step(problem(measured=("mass.x",)))


def test_stopping_early_is_a_failure_and_its_file_says_so(tmp_path: Path) -> None:
    result = one_step(problem(), ShootingOptions(reweight=0, levenberg=LevenbergOptions(max_iterations=2)))
    assert not result.converged and result.codes[0] == "not_converged"
    assert "not converged" in read_toml(save(result, tmp_path) / "fit.toml")["provenance"]["do_not_use"]


def test_weights_of_a_minimisation_that_ended_far_off_do_not_reach_the_result() -> None:
    """Six iterations from a far start are too few for the first minimisations: what they leave as noise is mostly misfit."""
    start = SpringParameters(mass=3.0, stiffness=450.0, damping=8.0)
    found = problem(data=record(Spring(), GROUND_TRUTH, noise=0.01), start=start, free_initial=True)
    hurried = single_shooting(found, ShootingOptions(levenberg=LevenbergOptions(max_iterations=6)))
    patient = single_shooting(found)
    assert hurried.noise == pytest.approx(patient.noise, rel=0.02)
    assert hurried.std == pytest.approx(patient.std, rel=0.02)
    assert hurried.reduced_chi2 == pytest.approx(1.0, abs=0.02)


def test_saved_fits_can_be_read_again(tmp_path: Path) -> None:
    split = record(Spring(), GROUND_TRUTH, count=2, noise=0.01).split(1, 0, 1)
    result = single_shooting(problem(data=split, free_initial=True))
    save(result, tmp_path / "fit")
    assert SpringParameters.load(tmp_path / "fit" / "fit.toml") == result.parameters
    document = json.loads((tmp_path / "fit" / "fit.json").read_text())
    assert document["estimates"][0]["value"] == result.parameters.stiffness
    assert document["provenance"]["data_sha256_train"] == split.train.sha256
    page = (tmp_path / "fit" / "report.html").read_text()
    assert result.diagnostics[0].sentence() in page and "<script" not in page and "http" not in page.replace("http-equiv", "")
    assert page.count("data:image/svg+xml;base64,") == 6
    same = loaded(tmp_path / "fit", SpringParameters)
    nominal, rng = START, np.random.default_rng(0)
    assert same.posterior.sample(rng, nominal) == result.distribution().sample(np.random.default_rng(0), nominal)
    assert same.to_json() == result.to_json() and same.spec == result.spec and same.summary() == result.summary()
    assert render(same).count("data:image/svg+xml;base64,") == 4
    (tmp_path / "fit" / "fit.json").write_text("{}")
    for bad in (tmp_path / "none", tmp_path / "fit"):
        with pytest.raises(FileFormatError):
            loaded(bad, SpringParameters)


def test_numbers_of_numpy_are_written_as_plain_ones(tmp_path: Path) -> None:
    result = replace(one_step(problem()), misfit=np.float64(0.5)).with_diagnostic("interrupted", "note", seen=np.bool_(True))
    assert isinstance(result.explained, np.bool_)
    save(result, tmp_path, page=False)
    document = json.loads((tmp_path / "fit.json").read_text())
    assert document["explained"] is True and document["diagnostics"][-1]["facts"] == {"seen": True}


def test_hidden_constants_appear_nowhere_as_numbers(tmp_path: Path) -> None:
    result = one_step(problem(free=("stiffness", "paint"), start=GROUND_TRUTH.replace(paint=0.712345)))
    page = (save(result, tmp_path) / "report.html").read_text()
    assert "not identifiable" in page
    document = json.loads((tmp_path / "fit.json").read_text())
    paint = next(e for e in document["estimates"] if e["name"] == "paint")
    assert paint["std"] == "inf" and paint["hidden"]
    assert "std = inf" in (tmp_path / "fit.toml").read_text()


def test_the_posterior_has_the_covariance_of_the_fit() -> None:
    result = single_shooting(problem(data=record(Spring(), GROUND_TRUTH, noise=0.02), free_initial=True))
    rng, distribution = np.random.default_rng(0), result.distribution()
    drawn = np.array([list(distribution.sample(rng, START).values()) for _ in range(4000)])
    logs = np.log(drawn)
    np.testing.assert_allclose(
        logs.mean(axis=0), distribution.mean, atol=5 * np.sqrt(np.diag(distribution.covariance) / 4000).max()
    )
    ratio = np.cov(logs.T) / distribution.covariance
    assert np.all(np.abs(np.diag(ratio) - 1) < 5 * np.sqrt(2 / 4000))
    wide = replace(distribution, covariance=1e6 * distribution.covariance)
    for _ in range(50):
        for name, value in wide.sample(rng, START).items():
            lower, upper = START.specs()[name].bounds
            assert lower <= value <= upper


def test_along_null_directions_the_posterior_keeps_the_ratio() -> None:
    free = ("mass", "stiffness", "damping", "gain")
    result = single_shooting(problem(data=record(Spring(), GROUND_TRUTH, noise=0.01), free=free, free_initial=True))
    rng = np.random.default_rng(0)
    ratio = next(c for c in result.combinations if c.formula == "stiffness / mass")
    drawn = [result.distribution().sample(rng, START) for _ in range(2000)]
    values = np.log([d["stiffness"] / d["mass"] for d in drawn])
    assert np.std(values) == pytest.approx(ratio.relative_std, rel=0.1)
    assert ratio.interval[0] < 15.0 < ratio.interval[1]


def test_a_log_file_gets_a_line_now_and_then_and_no_bar() -> None:
    log, often = io.StringIO(), io.StringIO()
    for stream, every in ((log, 1e9), (often, 0.0)):
        one_step(problem(), running=Running(progress=Seldom(stream, every)))
    assert not log.getvalue()
    lines = often.getvalue().splitlines()
    assert "minimisation 1" in lines[0] and any("cost" in line for line in lines) and "\r" not in often.getvalue()


def test_a_fit_writes_interface_and_posterior_for_environments(tmp_path: Path) -> None:
    """Noise near that of the recording, the rate of its rows, latency, bias and gain; a camera's tilt is named as left out."""
    made = problem(data=record(Spring(), GROUND_TRUTH, noise=0.01), free=("stiffness", "paint"), free_initial=True)
    result = single_shooting(made)
    view = RecordingParameters(latency=0.03, angle_offset=0.02, angle_gain=1.1, tilt=0.1)
    result = replace(result, view=view)
    file = save(result, tmp_path, page=False) / "fit.toml"
    found, names = Interface.read(file), made.column_names
    assert found == result.interface == loaded(tmp_path, SpringParameters).interface
    assert (found.action_latency, found.sensor_bias, found.sensor_gain) == (0.03, {"rad": 0.02}, {"rad": 1.1, "rad/s": 1.1})
    assert found.observation_rate == pytest.approx(1 / made.split.train[0].period)
    assert found.sensor_noise == pytest.approx(dict.fromkeys(names, 0.01), rel=0.3)
    assert read_toml(file)["provenance"]["not_in_interface"] == "tilt"
    drawn = [PosteriorParameters.read(file).sample(np.random.default_rng(seed), START) for seed in range(200)]
    assert drawn[0] == result.distribution().sample(np.random.default_rng(0), START)
    paint = np.array([each["paint"] for each in drawn])
    low, high = START.specs()["paint"].bounds
    assert paint.min() < low + 0.05 * (high - low) and paint.max() > high - 0.05 * (high - low)  # nothing is known of it
    stiffness = np.log([each["stiffness"] for each in drawn])
    assert stiffness.std() == pytest.approx(np.sqrt(result.posterior.covariance[0, 0]), rel=0.2)
