"""Fits recover known truths, say what they cannot know, survive interruption, and write files that can be read again."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sysid_systems import Spin, SpinParameters, Spring, SpringParameters, record

from softgym_envs.core.errors import DataError, FileFormatError, OptionError
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from sysid import (
    AdamOptions,
    FitProblem,
    FitResult,
    LevenbergOptions,
    Measurement,
    ShootingOptions,
    adam,
    load_distribution,
    multiple_shooting,
    one_step,
    open_loop,
    save,
    single_shooting,
)
from sysid.judgement.scan import compatible, model_error
from sysid.judgement.uncertainty import clustered_covariance, correlation_in_time

TRUTH = SpringParameters(mass=3.0, stiffness=45.0, damping=0.8, gain=2.0)
START = SpringParameters(mass=3.0)
FREE = ("stiffness", "damping", "gain")


def problem(**changes: Any) -> FitProblem:
    split = record(Spring(), TRUTH, count=3).split(1, 1, 1)
    return FitProblem(Spring(), **{"data": split, "free": FREE, "start": START, **changes})


def errors(result: FitResult, truth: Any = TRUTH) -> list[float]:
    return [abs(getattr(result.parameters, name) / getattr(truth, name) - 1) for name in result.free]


def levels(result: FitResult, word: str) -> list[str]:
    return [v.level for v in result.verdicts if word in v.text]


# --- recovery -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jacobian", ["exact", "differences"])
@pytest.mark.parametrize("method", [one_step, lambda p, o: multiple_shooting(p, replace(o, segment_steps=7)), single_shooting])
def test_noise_free_data_give_the_truth(method: Any, jacobian: Any) -> None:
    result = method(problem(), ShootingOptions(jacobian=jacobian))
    assert max(errors(result)) < 1e-9 and result.verdicts[0].level == "ok"


def test_states_on_a_manifold() -> None:
    truth = SpinParameters(drag=2.0, torque=7.0)
    data = record(Spin(), truth, count=2)
    for result in (
        one_step(FitProblem(Spin(), data, free=("drag", "torque"))),
        single_shooting(FitProblem(Spin(), data, free=("drag", "torque"))),
    ):
        assert max(errors(result, truth)) < 1e-8


def test_positions_alone_identify_the_constants_and_the_initial_state() -> None:
    result = single_shooting(problem(measured=("mass.x",)))
    assert max(errors(result)) < 1e-8


def test_any_function_of_the_state_can_be_measured() -> None:
    measurement = Measurement(
        ("strain", "far.x"), lambda x: np.stack([np.sin(x[..., 0]), x[..., 0] + 0.1 * x[..., 1]], axis=-1)
    )
    made = [
        Trajectory(t.times, t.controls, measurement.function(t.values), measurement.names, ("-", "m"), ("force",), ("SI",))
        for t in record(Spring(), TRUTH, count=2)
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
    data = record(Spring(), TRUTH.replace(offset=5.0))
    pressed = one_step(problem(data=data, free=("offset",), start=TRUTH.replace(offset=0.0)))
    assert pressed.parameters.offset == 5.0
    assert pressed.at_bound == ("offset",) and levels(pressed, "offset ended at its upper bound 5") == ["warning"]


def test_many_starts_find_the_minimum_that_one_start_misses() -> None:
    far = TRUTH.replace(stiffness=2000.0)
    data = record(Spring(), TRUTH, steps=300)
    alone = single_shooting(problem(data=data, start=far, free=("stiffness",)))
    many = single_shooting(problem(data=data, start=far, free=("stiffness",)), ShootingOptions(starts=8))
    assert errors(alone)[0] > 0.1  # a spring out of phase: a local minimum
    assert errors(many)[0] < 1e-8
    assert len(many.start_costs) == 8 and levels(many, "of 8 starts")


def test_a_fit_that_ends_at_no_minimum_begins_again_near_one() -> None:
    """A spring 44 times too stiff: 12 iterations over 6 s end nowhere, over 0.2 s and then over 6 s at the truth."""
    far = TRUTH.replace(stiffness=2000.0, damping=8.0)
    data = record(Spring(), TRUTH, steps=300, noise=0.01, count=2).split(1, 0, 1)
    given = problem(data=data, start=far, free_initial=True)
    options = ShootingOptions(levenberg=LevenbergOptions(max_iterations=12))
    alone, led = single_shooting(given, options), single_shooting(given, replace(options, near=10))
    assert not alone.converged and alone.misfit > 1.0
    assert led.converged and led.explained and max(errors(led)) < 0.05
    assert led.start == far and levels(led, "begins at what segments of 10 rows give") == ["note"]
    assert not levels(led, "NO IMPROVEMENT")  # over where the user began
    hasty = replace(options, near=10, levenberg=LevenbergOptions(max_iterations=4))  # too few near it, too
    assert single_shooting(given, hasty).misfit == single_shooting(given, replace(hasty, near=0)).misfit


def test_a_fit_begins_over_shorter_segments_where_it_is_told_to() -> None:
    """The same spring: 6 s end nowhere, but at the truth from what 0.2 s give; judged beside where the user began."""
    far = TRUTH.replace(stiffness=2000.0, damping=8.0)
    data = record(Spring(), TRUTH, steps=300, noise=0.01, count=2).split(1, 0, 1)
    given = problem(data=data, start=far, free_initial=True)
    options = ShootingOptions(levenberg=LevenbergOptions(max_iterations=12))
    alone, led = single_shooting(given, options), single_shooting(given, replace(options, shorter=10))
    assert not alone.converged and led.converged and led.explained and max(errors(led)) < 0.05
    assert led.start == far and led.seconds > led.log[-1].seconds and not levels(led, "NO IMPROVEMENT")


def test_a_fit_that_ends_at_a_wrong_minimum_begins_again_near_the_right_one() -> None:
    """Out of phase over 6 s a spring converges away from the truth; where the model is wrong, both ways end at one minimum."""
    far = TRUTH.replace(stiffness=2000.0)
    data = record(Spring(), TRUTH, steps=300, noise=0.01, count=2).split(1, 0, 1)
    given = problem(data=data, start=far, free=("stiffness",), free_initial=True)
    alone, led = single_shooting(given), single_shooting(given, ShootingOptions(near=10))
    assert alone.converged and not alone.explained and errors(alone)[0] > 0.1
    assert led.converged and led.explained and errors(led)[0] < 0.01
    assert levels(led, "ended at a minimum that did not explain the data; this one begins") == ["note"]
    wrong = problem(data=data, start=TRUTH.replace(mass=2 * TRUTH.mass), free=("damping",), free_initial=True)
    once, twice = single_shooting(wrong), single_shooting(wrong, ShootingOptions(near=10))
    assert not once.explained and twice.misfit == once.misfit and not levels(twice, "begins at what segments")


def test_the_recipe_of_the_paper_comes_near_and_says_that_it_is_not_at_a_minimum() -> None:
    data = record(Spring(), TRUTH, steps=400)
    result = adam(problem(data=data), AdamOptions(epochs=20, batch=32))
    assert max(errors(result)) < 0.2 < max(abs(getattr(START, n) / getattr(TRUTH, n) - 1) for n in FREE)
    assert result.log[-1].cost < 1e-2 * result.log[0].cost
    assert not result.converged and result.verdicts[0].text.startswith("NOT CONVERGED")
    assert max(errors(one_step(problem(data=data)))) < 1e-9


# --- what cannot be known -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [one_step, single_shooting])
def test_constants_that_only_appear_as_ratios_get_a_verdict_and_the_ratios_numbers(method: Any) -> None:
    result = method(problem(free=("mass", "stiffness", "damping", "gain"), start=SpringParameters(mass=7.0)))
    assert all(e.hidden and e.std == np.inf and e.interval == e.bounds for e in result.estimates)
    assert {c.formula: c.value for c in result.combinations} == pytest.approx(
        {"stiffness / mass": 15.0, "damping / mass": 0.8 / 3, "gain / mass": 2 / 3}, rel=1e-8
    )
    assert result.verdicts[0].level == "failure" and "NOT IDENTIFIABLE" in result.verdicts[0].text
    assert levels(result, "only stiffness / mass and damping / mass and gain / mass are seen")
    assert not any(line.startswith(f"{name} =") for line in result.summary().splitlines() for name in result.free)
    # along the null direction (all four by one factor) nothing moves: the geometric mean stays at its start
    product = np.prod([getattr(result.parameters, n) / getattr(result.start, n) for n in result.free])
    assert product == pytest.approx(1.0, rel=1e-6)


def test_a_constant_without_effect_is_named_and_keeps_its_start() -> None:
    result = one_step(problem(free=("stiffness", "paint"), start=TRUTH.replace(stiffness=20.0, paint=0.7)))
    stiffness, paint = result.estimates
    assert not stiffness.hidden and stiffness.value == pytest.approx(45.0, rel=1e-9)
    assert paint.hidden and paint.value == pytest.approx(0.7)
    assert levels(result, "paint is not identifiable (for any data of this kind): it has no effect") == ["warning"]


def test_a_constant_that_noise_drowns_is_hidden_and_would_not_be_without_noise() -> None:
    small = {"mass.x": 50.0, "mass.vx": 50.0}
    kwargs = {"free": ("stiffness", "offset"), "start": TRUTH}
    assert all(e.hidden for e in one_step(problem(noise=small, **kwargs)).estimates)
    assert not any(e.hidden for e in one_step(problem(noise={"mass.x": 1e-3, "mass.vx": 1e-3}, **kwargs)).estimates)


def test_a_prior_resolves_what_the_data_cannot() -> None:
    free = ("mass", "stiffness", "damping", "gain")
    result = single_shooting(
        problem(noise={"mass.x": 1e-4, "mass.vx": 1e-4}, free=free, start=SpringParameters(), prior={"mass": (3.0, 0.06)})
    )
    assert not any(e.hidden for e in result.estimates)
    # the mass is known to 2 %, and through it everything else (the data add next to nothing)
    for e in result.estimates:
        assert e.value == pytest.approx(getattr(TRUTH, e.name), rel=1e-3) and e.std / e.value == pytest.approx(0.02, rel=0.02)


def test_a_wrong_model_is_noticed_and_clustered_errors_are_wider() -> None:
    data = record(Spring(), TRUTH.replace(offset=1.5), steps=400)  # the fit believes in offset = 0.5
    independent = multiple_shooting(problem(data=data))
    clustered = multiple_shooting(problem(data=data), ShootingOptions(errors="clustered"))
    assert levels(independent, "correlated in time") == ["warning"] and not levels(clustered, "correlated in time")
    assert clustered.std["stiffness"] > 1.5 * independent.std["stiffness"]
    # the wrong offset presses the gain to where it has no effect: no number, and the reason is given
    assert independent.estimates[2].hidden and levels(independent, "gain was pressed to its lower bound") == ["warning"]
    known = one_step(problem(data=data, noise={"mass.x": 1e-4, "mass.vx": 1e-4}))
    assert levels(known, "times the stated noise: the model cannot explain") == ["warning"]


def test_what_a_wrong_model_leaves_open_holds_the_truth() -> None:
    """A fit that believes in another rest position is biased by much more than its standard deviations say."""
    data = record(Spring(), TRUTH.replace(offset=1.5), steps=400)
    result = multiple_shooting(problem(data=data))
    stiffness, damping, _ = result.estimates
    assert abs(stiffness.value - TRUTH.stiffness) > 10 * stiffness.std
    assert stiffness.interval[0] < TRUTH.stiffness < stiffness.interval[1] and not stiffness.hidden
    assert damping.hidden and damping.interval[0] < TRUTH.damping < damping.interval[1]
    assert levels(result, "damping is not identifiable (by this model)") == ["warning"]
    posterior = result.posterior
    assert np.sqrt(posterior.covariance[0, 0]) > 2 * stiffness.std / stiffness.value  # a log scale


def test_white_noise_is_no_model_error_and_what_lasts_is_measured() -> None:
    """M^2 = N a^2 for an offset a in N rows; zero for white noise, whatever its size."""
    rng = np.random.default_rng(3)
    white = 7.0 * rng.normal(size=(4, 200, 3))
    assert model_error(white) == 0.0 and model_error(np.swapaxes(white.reshape(1, 800, 3), 0, 1)) == 0.0
    assert model_error(0.1 * white + 2.0) == pytest.approx(2.0 * np.sqrt(4 * 199 * 3), rel=0.05)


def test_a_fit_that_ends_in_a_local_minimum_says_where_a_better_one_is() -> None:
    """The scan of a double well from its upper minimum; from its lower one, nothing is better."""
    grid = np.linspace(-2.0, 2.0, 33)

    def well(x: Any) -> Any:
        return 100.0 * (x**2 - 1) ** 2 - 30.0 * x

    upper, lower = (compatible(at, grid, well(at), well(grid), 1.0, 2.0) for at in (-0.9625, 1.0375))
    assert upper.better == pytest.approx(1.0, abs=0.13) and lower.better is None
    assert lower.high - lower.low < 0.5


def test_noise_on_states_that_predictions_start_from_is_noticed() -> None:
    assert levels(one_step(problem(data=record(Spring(), TRUTH, noise=0.05))), "constants are biased") == ["warning"]
    assert not levels(one_step(problem()), "constants are biased")


def test_no_improvement_is_said() -> None:
    split = record(Spring(), TRUTH, count=2, noise=0.01).split(1, 0, 1)
    assert levels(one_step(problem(data=split, start=TRUTH)), "NO IMPROVEMENT") == ["warning"]
    assert not levels(single_shooting(problem(data=record(Spring(), TRUTH, count=2).split(1, 0, 1))), "NO IMPROVEMENT")
    exact = one_step(problem(data=record(Spring(), TRUTH, count=2).split(1, 0, 1), start=TRUTH))
    assert not levels(exact, "NO IMPROVEMENT") and levels(exact, "predicted the held-out recordings already") == ["note"]


def test_clustered_covariance_of_independent_residuals_is_the_ordinary_one() -> None:
    rng = np.random.default_rng(0)
    jacobian, residual = rng.standard_normal((40_000, 3)), rng.standard_normal(40_000)
    covariance = clustered_covariance(jacobian, residual, np.arange(40_000) // 20, np.eye(3))
    np.testing.assert_allclose(covariance, np.linalg.inv(jacobian.T @ jacobian), atol=0.15 / 40_000)
    # twins: every residual counted twice adds no knowledge, the covariance must not halve
    twice = clustered_covariance(np.repeat(jacobian, 2, 0), np.repeat(residual, 2), np.arange(80_000) // 40, np.eye(3))
    np.testing.assert_allclose(twice, covariance, rtol=1e-9)


def test_clustered_errors_are_right_for_correlated_residuals_where_independent_ones_are_not() -> None:
    # Slope of a random walk regressor under AR(1) noise, 2000 times: the scatter of the estimates is the truth to be stated.
    rng = np.random.default_rng(1)
    regressor = rng.standard_normal((1200, 1)).cumsum(axis=0)[::-1] / 20
    noise = np.zeros((2000, 1200))
    for k in range(1, 1200):
        noise[:, k] = 0.9 * noise[:, k - 1] + rng.standard_normal(2000)
    bread = 1.0 / float(np.sum(regressor**2))
    estimates = noise @ regressor[:, 0] * bread
    clusters, eye = np.arange(1200) // 40, np.eye(1)
    fitted = noise - estimates[:, None] * regressor[:, 0]
    stated = np.mean([clustered_covariance(regressor, r, clusters, eye)[0, 0] for r in fitted[:300]])
    assert 0.6 < stated / np.var(estimates) < 1.4  # 30 clusters of 4 correlation times
    assert bread * noise.var() / np.var(estimates) < 0.15  # (1 - 0.9) / (1 + 0.9) = 0.05


def test_correlation_in_time() -> None:
    noise = np.random.default_rng(0).standard_normal((1, 10_000, 2))
    assert abs(correlation_in_time(noise)) < 0.03
    assert correlation_in_time(noise[:, 1:] - noise[:, :-1]) == pytest.approx(-0.5, abs=0.03)
    assert correlation_in_time(np.swapaxes(noise[:, 1:] - noise[:, :-1], 0, 1)) == pytest.approx(-0.5, abs=0.03)
    assert correlation_in_time(np.cumsum(noise, axis=1)) > 0.95


# --- open loop ------------------------------------------------------------------------------------------------------


def test_open_loop_errors_are_those_of_the_closed_form() -> None:
    # From a release at 0.3 m without drag: x(t) = 0.3 cos(w t). The start constants have w0; persistence stays at 0.3.
    truth = SpringParameters(mass=1.0, stiffness=4.0, damping=0.01, offset=0.0)
    states, _ = Spring().rollout(np.array([[0.3, 0.0]]), np.zeros((1, 10, 1)), truth)
    throw = Trajectory.from_rollout(Spring(), states[0], np.zeros((10, 1)))
    start = truth.replace(stiffness=9.0)
    made = FitProblem(Spring(), TrajectorySet((throw,)), free=("stiffness",), start=start, free_motion=True)
    found = {(e.kind, round(e.horizon, 3)): e for e in open_loop(made, truth, horizons=(0.2,))}
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
    truth = SpinParameters(drag=2.0, torque=7.0)
    t = record(Spin(), truth)[0]
    flipped = Trajectory(
        t.times, t.controls, t.values * [-1, -1, -1, -1, 1, 1, 1], t.names, t.units, t.control_names, t.control_units
    )
    result = single_shooting(FitProblem(Spin(), TrajectorySet((flipped,)), free=("drag", "torque")))
    assert max(errors(result, truth)) < 1e-8 and max(e.fitted for e in result.open_loop) < 1e-8


# --- interruption and files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [3, 9, 14])
def test_an_interrupted_fit_resumes_to_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    file = tmp_path / "checkpoint.json"
    made = problem(data=record(Spring(), TRUTH, noise=0.01), free_initial=True)
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
        single_shooting(made, ShootingOptions(checkpoint=file, progress=said, **options))  # type: ignore[arg-type]
    assert "interrupted" in said.getvalue() and "cost" in said.getvalue()
    monkeypatch.setattr(Spring, "linearize", original)
    resumed = single_shooting(made, ShootingOptions(checkpoint=file, resume=True, **options))  # type: ignore[arg-type]
    assert resumed.parameters == expected.parameters and resumed.std == expected.std and resumed.noise == expected.noise
    assert not file.exists()


def test_a_checkpoint_of_another_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "checkpoint.json"

    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Spring, "linearize", stop)
    with pytest.raises(KeyboardInterrupt):
        one_step(problem(), ShootingOptions(checkpoint=file, jacobian="exact"))
    with pytest.raises(OptionError, match="belongs to another fit"):
        one_step(problem(free=("gain",)), ShootingOptions(checkpoint=file, jacobian="exact", resume=True))
    file.write_text("{}")
    with pytest.raises(FileFormatError, match="no checkpoint"):
        one_step(problem(), ShootingOptions(checkpoint=file, resume=True))
    with pytest.raises(FileFormatError, match="cannot read"):
        one_step(problem(), ShootingOptions(checkpoint=tmp_path / "none.json", resume=True))


def test_bad_options_are_refused() -> None:
    for changes in ({"jacobian": "magic"}, {"errors": "none"}, {"starts": 0}, {"reweight": -1}, {"near": -1}, {"resume": True}):
        with pytest.raises(OptionError):
            ShootingOptions(**changes)  # type: ignore[arg-type]
    for changes in ({"shorter": -1}, {"segment_steps": 0}):
        with pytest.raises(OptionError):
            ShootingOptions(**changes)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="batch is 0"):
        AdamOptions(batch=0)
    with pytest.raises(OptionError, match="Spin has no exact derivatives"):
        one_step(FitProblem(Spin(), record(Spin()), free=("drag",)), ShootingOptions(jacobian="exact"))
    with pytest.raises(DataError, match="every state entry measured"):
        one_step(problem(measured=("mass.x",)))


def test_stopping_early_is_a_failure() -> None:
    result = one_step(problem(), ShootingOptions(reweight=0, levenberg=LevenbergOptions(max_iterations=2)))
    assert not result.converged and result.verdicts[0].text.startswith("NOT CONVERGED")


def test_weights_of_a_minimisation_that_ended_far_off_do_not_reach_the_result() -> None:
    """Six iterations from a far start are too few for the first minimisations: what they leave as noise is mostly misfit."""
    start = SpringParameters(mass=3.0, stiffness=450.0, damping=8.0)
    found = problem(data=record(Spring(), TRUTH, noise=0.01), start=start, free_initial=True)
    hurried = single_shooting(found, ShootingOptions(levenberg=LevenbergOptions(max_iterations=6)))
    patient = single_shooting(found)
    assert hurried.noise == pytest.approx(patient.noise, rel=0.02)
    assert hurried.std == pytest.approx(patient.std, rel=0.02)
    assert hurried.reduced_chi2 == pytest.approx(1.0, abs=0.02)


def test_saved_fits_can_be_read_again(tmp_path: Path) -> None:
    split = record(Spring(), TRUTH, count=2, noise=0.01).split(1, 0, 1)
    result = single_shooting(problem(data=split, free_initial=True))
    save(result, tmp_path / "fit")
    assert SpringParameters.load(tmp_path / "fit" / "fit.toml") == result.parameters
    document = json.loads((tmp_path / "fit" / "fit.json").read_text())
    assert document["estimates"][0]["value"] == result.parameters.stiffness
    assert document["provenance"]["data_sha256_train"] == split.train.sha256
    page = (tmp_path / "fit" / "report.html").read_text()
    assert result.verdicts[0].text in page and "<script" not in page and "http" not in page.replace("http-equiv", "")
    assert page.count("data:image/svg+xml;base64,") == 5
    same = load_distribution(tmp_path / "fit")
    nominal, rng = START, np.random.default_rng(0)
    assert same.sample(rng, nominal) == result.distribution().sample(np.random.default_rng(0), nominal)
    for bad in (tmp_path / "none.json", tmp_path / "fit" / "fit.toml"):
        with pytest.raises(FileFormatError):
            load_distribution(bad)


def test_hidden_constants_appear_nowhere_as_numbers(tmp_path: Path) -> None:
    result = one_step(problem(free=("stiffness", "paint"), start=TRUTH.replace(paint=0.712345)))
    page = (save(result, tmp_path) / "report.html").read_text()
    assert "not identifiable" in page
    document = json.loads((tmp_path / "fit.json").read_text())
    paint = next(e for e in document["estimates"] if e["name"] == "paint")
    assert paint["std"] == "inf" and paint["hidden"]
    assert "std = inf" in (tmp_path / "fit.toml").read_text()


def test_the_posterior_has_the_covariance_of_the_fit() -> None:
    result = single_shooting(problem(data=record(Spring(), TRUTH, noise=0.02), free_initial=True))
    rng, distribution = np.random.default_rng(0), result.distribution()
    drawn = np.array([list(distribution.sample(rng, START).values()) for _ in range(4000)])
    logs = np.log(drawn)
    np.testing.assert_allclose(
        logs.mean(axis=0), distribution.mean, atol=5 * np.sqrt(np.diag(distribution.covariance) / 4000).max()
    )
    ratio = np.cov(logs.T) / distribution.covariance
    assert np.all(np.abs(np.diag(ratio) - 1) < 5 * np.sqrt(2 / 4000))
    wide = distribution.widened(1000.0)
    for _ in range(50):
        for name, value in wide.sample(rng, START).items():
            lower, upper = START.specs()[name].bounds
            assert lower <= value <= upper


def test_along_null_directions_the_posterior_keeps_the_ratio() -> None:
    free = ("mass", "stiffness", "damping", "gain")
    result = single_shooting(problem(data=record(Spring(), TRUTH, noise=0.01), free=free, free_initial=True))
    rng = np.random.default_rng(0)
    ratio = next(c for c in result.combinations if c.formula == "stiffness / mass")
    drawn = [result.distribution().sample(rng, START) for _ in range(2000)]
    values = np.log([d["stiffness"] / d["mass"] for d in drawn])
    assert np.std(values) == pytest.approx(ratio.relative_std, rel=0.1)
    assert ratio.interval[0] < 15.0 < ratio.interval[1]
