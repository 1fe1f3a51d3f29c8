"""Fits recover known ground truths, and predict what follows from them. Fits survive interruption, and write files that can be
read again."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sysid_systems import (
    FREE,
    GROUND_TRUTH,
    START,
    Spin,
    SpinParameters,
    Spring,
    SpringParameters,
    errors,
    problem,
    record,
    severities,
)

from reproductions.wang2020.adam import AdamOptions, adam
from softgym_envs.core.errors import DataError, FileFormatError, OptionError
from softgym_envs.core.files import read_toml
from softgym_envs.core.interface import Interface
from softgym_envs.core.posterior import PosteriorParameters
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from sysid import FitProblem, multiple_shooting
from sysid.diagnostics.validation import open_loop
from sysid.fitting import checkpoint
from sysid.fitting.evolution import EvolutionOptions, cma_es
from sysid.fitting.running import Running
from sysid.fitting.shooting import InitialFit, ShootingOptions, one_step, single_shooting
from sysid.least_squares.levenberg import FitIteration, LevenbergOptions, LevenbergState
from sysid.problem.problem import Measurement
from sysid.problem.recording_parameters import RecordingParameters
from sysid.procedure.identification import loaded
from sysid.report.files import save
from sysid.report.page import render
from sysid.report.progress import Seldom

# --- recovery -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jacobian", ["exact", "differences"])
@pytest.mark.parametrize("method", [one_step, lambda p, o: multiple_shooting(p, replace(o, segment_steps=7)), single_shooting])
def test_noise_free_data_give_the_ground_truth(method: Any, jacobian: Any) -> None:
    result = method(problem(), ShootingOptions(jacobian=jacobian))
    assert max(errors(result)) < 1e-9 and result.codes[0] == "identified"


def test_states_on_a_manifold() -> None:
    ground_truth = SpinParameters(drag=2.0, torque=7.0)
    data = record(Spin(), ground_truth, count=2)
    for result in (
        one_step(FitProblem(Spin(), data, free=("drag", "torque"))),
        single_shooting(FitProblem(Spin(), data, free=("drag", "torque"))),
    ):
        assert max(errors(result, ground_truth)) < 1e-8


def test_positions_alone_identify_the_constants_and_the_initial_state() -> None:
    result = single_shooting(problem(measured=("mass.x",)))
    assert max(errors(result)) < 1e-8


def test_any_function_of_the_state_can_be_measured() -> None:
    measurement = Measurement(
        ("strain", "far.x"), lambda x: np.stack([np.sin(x[..., 0]), x[..., 0] + 0.1 * x[..., 1]], axis=-1)
    )
    made = [
        Trajectory(t.times, t.controls, measurement.function(t.values), measurement.names, ("-", "m"), ("force",), ("SI",))
        for t in record(Spring(), GROUND_TRUTH, count=2)
    ]
    result = multiple_shooting(
        problem(data=TrajectorySet(tuple(made)), measurement=measurement), ShootingOptions(segment_steps=60)
    )
    assert max(errors(result)) < 1e-8


@pytest.mark.parametrize(
    "edge", [{"stiffness": 0.1}, {"stiffness": 1e4}, {"damping": 0.01, "gain": 1e3}, {"damping": 100.0, "gain": 0.01}]
)
def test_a_start_at_a_bound_does_not_stall(edge: dict[str, float]) -> None:
    result = one_step(problem(start=START.replace(**edge)))
    assert max(errors(result)) < 1e-9


def test_a_constant_that_ends_at_a_bound_is_reported() -> None:
    data = record(Spring(), GROUND_TRUTH.replace(offset=5.0))
    pressed = one_step(problem(data=data, free=("offset",), start=GROUND_TRUTH.replace(offset=0.0)))
    assert pressed.parameters.offset == 5.0
    assert pressed.at_bound == ("offset",) and severities(pressed, "at_bound", "offset") == ["warning"]


def test_many_starts_find_the_minimum_that_one_start_misses() -> None:
    far = GROUND_TRUTH.replace(stiffness=2000.0)
    data = record(Spring(), GROUND_TRUTH, steps=300)
    alone = single_shooting(problem(data=data, start=far, free=("stiffness",)))
    many = single_shooting(problem(data=data, start=far, free=("stiffness",)), ShootingOptions(starts=8))
    assert errors(alone)[0] > 0.1  # a spring out of phase: a local minimum
    assert errors(many)[0] < 1e-8
    assert len(many.start_costs) == 8 and many.of("starts")[0].limit == 8


def test_a_fit_that_ends_at_no_minimum_begins_again_near_one() -> None:
    """A spring 44 times too stiff: 12 iterations over 6 s end nowhere, over 0.2 s and then over 6 s at the ground truth."""
    far = GROUND_TRUTH.replace(stiffness=2000.0, damping=8.0)
    data = record(Spring(), GROUND_TRUTH, steps=300, noise=0.01, count=2).split(1, 0, 1)
    given = problem(data=data, start=far, free_initial=True)
    options = ShootingOptions(levenberg=LevenbergOptions(max_iterations=12))
    alone, led = single_shooting(given, options), single_shooting(given, replace(options, initial=InitialFit(restart_steps=10)))
    assert not alone.converged and alone.misfit > 1.0
    assert led.converged and led.explained and max(errors(led)) < 0.05
    assert led.start == far and led.of("second_fit")[0].facts["rows"] == 10
    assert not led.of("no_improvement")  # over where the user began
    hasty = replace(
        options, initial=InitialFit(restart_steps=10), levenberg=LevenbergOptions(max_iterations=4)
    )  # too few near it, too
    assert single_shooting(given, hasty).misfit == single_shooting(given, replace(hasty, initial=InitialFit())).misfit


def test_a_fit_begins_over_shorter_segments_where_it_is_told_to() -> None:
    """The same spring: 6 s end nowhere, but at the ground truth from what 0.2 s give; judged beside where the user began."""
    far = GROUND_TRUTH.replace(stiffness=2000.0, damping=8.0)
    data = record(Spring(), GROUND_TRUTH, steps=300, noise=0.01, count=2).split(1, 0, 1)
    given = problem(data=data, start=far, free_initial=True)
    options = ShootingOptions(levenberg=LevenbergOptions(max_iterations=12))
    alone, led = single_shooting(given, options), single_shooting(given, replace(options, initial=InitialFit(short_steps=10)))
    assert not alone.converged and led.converged and led.explained and max(errors(led)) < 0.05
    assert led.start == far and led.seconds > led.log[-1].seconds and not led.of("no_improvement")


def test_a_fit_that_ends_at_a_wrong_minimum_begins_again_near_the_right_one() -> None:
    """Out of phase over 6 s a spring converges away from the ground truth; where the model is wrong, both ways end at one
    minimum."""
    far = GROUND_TRUTH.replace(stiffness=2000.0)
    data = record(Spring(), GROUND_TRUTH, steps=300, noise=0.01, count=2).split(1, 0, 1)
    given = problem(data=data, start=far, free=("stiffness",), free_initial=True)
    alone, led = single_shooting(given), single_shooting(given, ShootingOptions(initial=InitialFit(restart_steps=10)))
    assert alone.converged and not alone.explained and errors(alone)[0] > 0.1
    assert led.converged and led.explained and errors(led)[0] < 0.01
    assert led.of("second_fit")[0].facts["converged"]
    wrong = problem(data=data, start=GROUND_TRUTH.replace(mass=2 * GROUND_TRUTH.mass), free=("damping",), free_initial=True)
    once, twice = single_shooting(wrong), single_shooting(wrong, ShootingOptions(initial=InitialFit(restart_steps=10)))
    assert not once.explained and twice.misfit == once.misfit and not twice.of("second_fit")


def test_the_procedure_of_the_paper_comes_near_and_says_that_it_is_not_at_a_minimum() -> None:
    data = record(Spring(), GROUND_TRUTH, steps=400)
    result = adam(problem(data=data), AdamOptions(epochs=20, batch=32))
    assert max(errors(result)) < 0.2 < max(abs(getattr(START, n) / getattr(GROUND_TRUTH, n) - 1) for n in FREE)
    assert result.log[-1].cost < 1e-2 * result.log[0].cost
    assert not result.converged and result.codes[0] == "not_converged"
    assert max(errors(one_step(problem(data=data)))) < 1e-9


def test_limits_do_not_shape_the_search() -> None:
    """The ground truth lies 1 % below a limit: the sigmoid of `adam`, fit coordinates and spreads are those of the declared
    bounds."""
    pytest.importorskip("cma")
    near, start = {"damping": (0.01, 0.808)}, GROUND_TRUTH.replace(damping=0.5)
    data = record(Spring(), GROUND_TRUTH, steps=100)
    given = problem(data=data, start=start, free=("damping",), limits=near)
    assert errors(adam(given, AdamOptions(epochs=20, batch=20)))[0] < 1e-4
    beyond = adam(given.replace(limits={"damping": (0.01, 0.7)}), AdamOptions(epochs=5, batch=20)).parameters
    assert beyond.damping == pytest.approx(0.7, rel=1e-12)  # type: ignore[attr-defined]
    assert given.search_range[1] == np.log(100.0) and given.theta_bounds[1] == np.log(0.808)

    drawn_in = [
        cma_es(given.replace(limits=limits), EvolutionOptions(generations=2)) for limits in ({}, {"damping": (0.01, 50.0)})
    ]
    assert drawn_in[0].log[0].cost == drawn_in[1].log[0].cost  # the same candidates

    linear = problem(free=("offset",), limits={"offset": (0.4, 0.6)})
    theta = linear.encode(START)
    assert theta == linear.replace(limits={}).encode(START) and linear.decode(theta) == START
    drawn = PosteriorParameters(("offset",), theta, np.zeros((1, 1))).sample(np.random.default_rng(0), START)
    assert drawn["offset"] == pytest.approx(START.offset, rel=1e-12)


# --- open loop ------------------------------------------------------------------------------------------------------


def test_open_loop_errors_are_those_of_the_closed_form() -> None:
    # From a release at 0.3 m without drag: x(t) = 0.3 cos(w t). The start parameters have w0; persistence stays at 0.3.
    ground_truth = SpringParameters(mass=1.0, stiffness=4.0, damping=0.01, offset=0.0)
    states, _ = Spring().rollout(np.array([[0.3, 0.0]]), np.zeros((1, 10, 1)), ground_truth)
    throw = Trajectory.from_rollout(Spring(), states[0], np.zeros((10, 1)))
    start = ground_truth.replace(stiffness=9.0)
    made = FitProblem(Spring(), TrajectorySet((throw,)), free=("stiffness",), start=start, free_motion=True)
    found = {(e.kind, round(e.horizon, 3)): e for e in open_loop(made, ground_truth, horizons=(0.2,))}
    position = found["m", 0.2]
    assert position.windows == 1 and position.fitted < 1e-14
    assert position.start == pytest.approx(0.3 * abs(np.cos(3 * 0.2) - np.cos(2 * 0.2)), rel=1e-2)
    assert position.persistence == pytest.approx(0.3 * (1 - np.cos(2 * 0.2)), rel=1e-2)


def test_open_loop_errors_of_another_measurement() -> None:
    p = problem()
    double = Measurement(("double",), lambda x: 2.0 * x[..., :1])
    plain = {(e.part, e.horizon): e for e in open_loop(p, START) if e.kind == "m"}
    for e in open_loop(p, START, measurement=double):
        assert e.fitted == pytest.approx(2.0 * plain[e.part, e.horizon].fitted)
    assert {e.part for e in open_loop(p, START)} == {"train", "validation", "test"}
    with pytest.raises(DataError, match="fully measured"):
        open_loop(problem(measured=("mass.x",)), START, measurement=double)


def test_quaternions_of_either_sign_are_the_same_measurement() -> None:
    ground_truth = SpinParameters(drag=2.0, torque=7.0)
    t = record(Spin(), ground_truth)[0]
    flipped = Trajectory(
        t.times, t.controls, t.values * [-1, -1, -1, -1, 1, 1, 1], t.names, t.units, t.control_names, t.control_units
    )
    result = single_shooting(FitProblem(Spin(), TrajectorySet((flipped,)), free=("drag", "torque")))
    assert max(errors(result, ground_truth)) < 1e-8 and max(e.fitted for e in result.open_loop) < 1e-8


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
