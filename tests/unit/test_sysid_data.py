"""Unusable recordings end in a diagnostic, never in numbers. Fits say what they cannot know: ratios, parameters without effect
or drowned by noise, wrong models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sysid_systems import GROUND_TRUTH, Spin, SpinParameters, Spring, SpringParameters, problem, record, severities

from softgym_envs.core.errors import DataError, OptionError, ParameterError, ShapeError
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet
from sysid import FitProblem, multiple_shooting
from sysid.diagnostics.scan import compatible, model_error
from sysid.diagnostics.uncertainty import clustered_covariance, correlation_in_time
from sysid.fitting.shooting import ShootingOptions, one_step, single_shooting
from sysid.problem.problem import Measurement

SPRING = SpringParameters(mass=3.0, stiffness=45.0, damping=0.8, gain=2.0)


def good() -> Trajectory:
    return record(Spring(), SPRING)[0]


def usable(trajectory: Trajectory, **changes: Any) -> FitProblem:
    return FitProblem(
        **{"simulator": Spring(), "data": TrajectorySet((trajectory,)), "free": ("stiffness", "damping"), **changes}
    )


def with_values(edit: Any) -> Trajectory:
    values = good().values.copy()
    values = edit(values)
    return replace(good(), values=values)


def nan_rows(values: Any) -> Any:
    values[50:53] = np.nan
    return values


def mostly_nan(values: Any) -> Any:
    return np.where(np.arange(len(values))[:, None] % 4 > 0, np.nan, values)


def test_good_data_pass() -> None:
    assert usable(good()).full_state
    assert not usable(good(), measured=("mass.x",)).full_state


BAD = {
    "too short": (lambda: good().window(0, 0.1), "too short: 5 steps, expected at least 10"),
    "constant controls": (lambda: replace(good(), controls=np.full((200, 1), 0.5)), "controls never change"),
    "nothing moves": (lambda: with_values(np.zeros_like), "nothing moves"),
    "NaN rows": (lambda: with_values(mostly_nan), "mass.x is NaN in 75 % of the rows"),
    "units of length": (lambda: with_values(lambda v: 1000 * v), r"wrong units: the columns in m travel over"),
    "units of position alone": (lambda: with_values(lambda v: v * [1000, 1]), r"wrong units: the lengths look .* mm"),
    "units of velocity alone": (lambda: with_values(lambda v: v * [1, 100]), r"wrong units: the velocities look .* cm"),
    "kilometres": (lambda: with_values(lambda v: v * [1e-3, 1]), r"wrong units: the lengths look .* km"),
    "controls beyond the limits": (
        lambda: replace(good(), controls=1000 * good().controls),
        "the limits are -1 ... 1: wrong unit",
    ),
    "frames given twice": (
        lambda: with_values(lambda v: np.repeat(v[::2], 2, axis=0)[: len(v)]),
        r"\d+ rows repeat the row before",
    ),
    "50 frames in 60 rows": (lambda: with_values(lambda v: v[np.arange(len(v)) * 5 // 6]), r"\d+ rows repeat the row before"),
    "times in milliseconds": (lambda: replace(good(), times=1000 * good().times), "are the times in seconds"),
    "times in milliseconds said to be seconds": (
        lambda: replace(good(), times=1000 * good().times).for_timestep(Spring().dt),
        "rows 20 s apart, .* are the times in ms",
    ),
    "other columns": (lambda: replace(good(), names=("a", "b")), "missing columns: the recordings hold a, b"),
    "other controls": (lambda: replace(good(), control_names=("push",)), "control 'force' is not recorded"),
}


@pytest.mark.parametrize("name", BAD)
def test_unusable_data_end_in_a_diagnostic(name: str) -> None:
    make, diagnostic = BAD[name]
    with pytest.raises(DataError, match=diagnostic):
        usable(make())


def test_an_encoder_that_moves_slowly_repeats_no_frames() -> None:
    """Nor does one that moves by as much in every other row."""
    quantum = 1.05 * np.abs(np.diff(good().values, axis=0)).max(axis=0)  # no row moves by more
    coarse = with_values(lambda v: quantum * np.round(v / quantum))
    assert (np.diff(coarse.values, axis=0) == 0).all(axis=1).mean() > 0.1
    assert usable(coarse).full_state
    steady = np.round(np.arange(201) / 2.5)[:, None] * [0.01, 0.01]
    assert usable(with_values(lambda v: steady), measured=("mass.x",)).column_names == ("mass.x",)


def test_degrees_are_found_on_rotating_robots() -> None:
    trajectory = record(Spin(), SpinParameters(drag=2.0, torque=7.0))[0]
    wrong = replace(trajectory, values=trajectory.values * [1, 1, 1, 1, 57.29578, 57.29578, 57.29578])
    with pytest.raises(DataError, match="degrees"):
        FitProblem(Spin(), TrajectorySet((wrong,)), free=("drag",))


def test_recordings_of_older_versions_take_the_units_of_the_simulator(tmp_path: Path) -> None:
    old = replace(good(), units=("SI", "SI"), control_units=("SI",), values=1000 * good().values)
    loaded = Trajectory.load(TrajectorySet((old,)).save(tmp_path / "old.h5"))
    assert loaded.units == ("SI", "SI")
    with pytest.raises(DataError, match="columns in m travel"):
        usable(loaded)


def test_noise_and_wrong_constants_are_not_taken_for_wrong_units() -> None:
    for seed in range(5):
        noisy = record(Spring(), SPRING, seed=seed, noise=0.05)[0]
        usable(noisy)
        usable(noisy, start=SpringParameters(mass=0.3, stiffness=200.0))


def test_a_missing_column_is_named() -> None:
    with pytest.raises(DataError, match=r"missing column 'mass\.z'"):
        usable(good(), measured=("mass.x", "mass.z"))


def test_throws_may_have_constant_controls_if_declared() -> None:
    controls = np.zeros((1, 60, 1))
    states, _ = Spring().rollout(np.array([[0.3, 0.0]]), controls, SPRING)
    throw = Trajectory.from_rollout(Spring(), states[0], controls[0])
    with pytest.raises(DataError, match="free_motion=True"):
        usable(throw)
    assert usable(throw, free_motion=True).full_state


def test_tracked_points_in_millimetres_are_found_by_the_robot_at_rest() -> None:
    measurement = Measurement(("a.x", "b.x"), lambda x: np.stack([x[..., 0], x[..., 0] + 0.4], axis=-1))
    t = good()
    values = measurement.function(t.values)

    def make(factor: float) -> FitProblem:
        points = Trajectory(t.times, t.controls, factor * values, ("a.x", "b.x"), ("m", "m"), ("force",), ("SI",))
        return usable(points, measurement=measurement)

    assert not make(1.0).full_state
    named = r"spread over 400, the robot over 0\.4 \(1e\+03 times\), as if they were given in mm \(1000 x too large\); use SI"
    with pytest.raises(DataError, match=named):
        make(1000.0)


def test_one_measured_column_in_millimetres_is_found_by_how_far_it_travels() -> None:
    wrong = with_values(lambda v: 1000 * v)
    with pytest.raises(DataError, match="travel over"):
        usable(wrong, measured=("mass.x",))


def test_partly_measured_recordings_may_have_gaps_but_not_too_many() -> None:
    gaps = with_values(nan_rows)
    assert usable(gaps, measured=("mass.x",)).values(gaps).shape == (201, 1)
    empty = with_values(mostly_nan)
    with pytest.raises(DataError, match="NaN in 75 % of the rows"):
        usable(empty, measured=("mass.x",))


def test_states_with_gaps_are_measured_in_part() -> None:
    """Cells that are missing anywhere, where segments begin too: parameters are within four standard deviations."""
    noisy = record(Spring(), SPRING)[0].with_noise(np.random.default_rng(0), {"mass.x": 1e-3, "mass.vx": 5e-3})
    missing = np.random.default_rng(1).random(noisy.values.shape) < 0.05
    missing[[0, 50]] = True, False
    gaps = replace(noisy, values=np.where(missing, np.nan, noisy.values))
    asked = usable(gaps, start=SpringParameters(mass=3.0, stiffness=20.0, damping=2.0, gain=2.0))
    assert not asked.full_state and asked.whole and np.isfinite(asked.states_at_rows(gaps)).all()
    blind = replace(gaps, values=np.where([False, True], np.nan, gaps.values))
    assert (asked.states_at_rows(blind)[:, 1] == 0.0).all()  # as in a window of a longer gap: at rest
    found = multiple_shooting(asked, ShootingOptions(segment_steps=50))
    assert found.converged and found.explained
    for name in ("stiffness", "damping"):
        estimate = next(e for e in found.estimates if e.name == name)
        width = 0.5 * (estimate.interval[1] - estimate.interval[0])
        assert abs(estimate.value - getattr(SPRING, name)) < 2 * width < 0.2 * getattr(SPRING, name)
    with pytest.raises(DataError, match="needs every state entry measured"):
        one_step(asked)


def test_validation_recordings_are_judged_too() -> None:
    train, bad = good(), with_values(mostly_nan)
    with pytest.raises(DataError, match=r"test recording 0: mass\.x is NaN in 75 %"):
        FitProblem(Spring(), DataSplit(TrajectorySet((train,)), TrajectorySet(()), TrajectorySet((bad,))), free=("stiffness",))
    with pytest.raises(DataError, match="no recording to train on"):
        FitProblem(Spring(), TrajectorySet(()), free=("stiffness",))


def test_another_control_period_is_refused() -> None:
    other = record(Spring(), SPRING, substeps=2)[0]
    with pytest.raises(DataError, match="has 2 substeps, the first 1"):
        FitProblem(Spring(), TrajectorySet((good(), other)), free=("stiffness",))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"free": ()}, ParameterError, "at least one name"),
        ({"free": ("stiffness", "stiffness")}, ParameterError, "each once"),
        ({"free": ("colour",)}, ParameterError, "unknown parameter 'colour'"),
        ({"start": SpinParameters()}, ParameterError, "this simulator takes SpringParameters"),
        ({"start": SpringParameters(mass=np.ones(3))}, ParameterError, "3 rows"),  # type: ignore[arg-type]
        ({"prior": {"mass": (1.0, 0.1)}}, ParameterError, "prior of mass"),
        ({"prior": {"damping": (1.0, -0.1)}}, ParameterError, "prior of damping"),
        ({"noise": {"mass.x": 0.1}}, OptionError, "noise of mass.vx is missing"),
        ({"noise": 0.001}, OptionError, r"noise is 0.001, expected \{column: standard deviation\}"),
        ({"free": "mass"}, ParameterError, r"free is 'mass', expected names in a tuple: \('mass',\)"),
        ({"data": good()}, DataError, r"data is Trajectory, expected a TrajectorySet\(\(recording, \.\.\.\)\)"),
        ({"data": [good()]}, DataError, "data is list, expected a TrajectorySet"),
        ({"noise": {"mass.y": 0.1}}, OptionError, "noise names 'mass.y'"),
        ({"measurement": Measurement(("mass.x",), lambda x: x)}, ShapeError, r"shape \(2, 2\)"),
    ],
)
def test_bad_problems_are_refused(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        usable(good(), **changes)


def test_a_third_of_all_frames_may_be_missing() -> None:
    ground_truth = SpringParameters(stiffness=35.0)
    (clean,) = record(Spring(), ground_truth, steps=300, noise=0.01)
    values = clean.select(("mass.x",)).values.copy()
    values[np.random.default_rng(0).random(len(values)) < 0.33] = np.nan
    seen = replace(clean.select(("mass.x",)), values=values)
    usable = FitProblem(
        Spring(), TrajectorySet((seen,)), ("stiffness",), start=ground_truth.replace(stiffness=25.0), measured=("mass.x",)
    )
    (stiffness,) = single_shooting(usable).estimates
    assert abs(stiffness.value - 35.0) < 4.0 * stiffness.std < 3.0


@pytest.mark.parametrize("method", [one_step, single_shooting])
def test_constants_that_only_appear_as_ratios_get_a_diagnostic_and_the_ratios_numbers(method: Any) -> None:
    result = method(problem(free=("mass", "stiffness", "damping", "gain"), start=SpringParameters(mass=7.0)))
    assert all(e.hidden and e.std == np.inf and e.interval == e.bounds for e in result.estimates)
    assert {c.formula: c.value for c in result.combinations} == pytest.approx(
        {"stiffness / mass": 15.0, "damping / mass": 0.8 / 3, "gain / mass": 2 / 3}, rel=1e-8
    )
    assert result.codes[0] == "none_identifiable" and not result.usable
    (found,) = result.of("only_combinations")
    assert found.facts["seen"] == ["stiffness / mass", "damping / mass", "gain / mass"]
    assert found.sentence().endswith("only stiffness / mass and damping / mass and gain / mass are seen")
    assert not any(line.startswith(f"{name} =") for line in result.summary().splitlines() for name in result.free)
    # along the null direction (all four by one factor) nothing moves: the geometric mean stays at its start
    product = np.prod([getattr(result.parameters, n) / getattr(result.start, n) for n in result.free])
    assert product == pytest.approx(1.0, rel=1e-6)


def test_a_constant_without_effect_is_named_and_keeps_its_start() -> None:
    result = one_step(problem(free=("stiffness", "paint"), start=GROUND_TRUTH.replace(stiffness=20.0, paint=0.7)))
    stiffness, paint = result.estimates
    assert not stiffness.hidden and stiffness.value == pytest.approx(45.0, rel=1e-9)
    assert paint.hidden and paint.value == pytest.approx(0.7)
    assert severities(result, "no_effect", "paint") == ["warning"] and result.of("no_effect")[0].facts["structural"]


def test_a_constant_that_noise_drowns_is_hidden_and_would_not_be_without_noise() -> None:
    small = {"mass.x": 50.0, "mass.vx": 50.0}
    kwargs = {"free": ("stiffness", "offset"), "start": GROUND_TRUTH}
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
        assert e.value == pytest.approx(getattr(GROUND_TRUTH, e.name), rel=1e-3) and e.std / e.value == pytest.approx(
            0.02, rel=0.02
        )


def test_a_wrong_model_is_noticed_and_clustered_errors_are_wider() -> None:
    data = record(Spring(), GROUND_TRUTH.replace(offset=1.5), steps=400)  # the fit believes in offset = 0.5
    independent = multiple_shooting(problem(data=data))
    clustered = multiple_shooting(problem(data=data), ShootingOptions(errors="clustered"))
    assert severities(independent, "residuals_last") == ["warning"] and severities(clustered, "residuals_last") == ["note"]
    assert clustered.std["stiffness"] > 1.5 * independent.std["stiffness"]
    # the wrong offset presses the gain to where it has no effect: no number, and the reason is given
    assert independent.estimates[2].hidden and severities(independent, "pressed", "gain") == ["warning"]
    known = one_step(problem(data=data, noise={"mass.x": 1e-4, "mass.vx": 1e-4}))
    assert severities(known, "noise_exceeded") == ["warning"]


def test_what_a_wrong_model_leaves_open_holds_the_ground_truth() -> None:
    """A fit that believes in another rest position is biased by much more than its standard deviations say."""
    data = record(Spring(), GROUND_TRUTH.replace(offset=1.5), steps=400)
    result = multiple_shooting(problem(data=data))
    stiffness, damping, _ = result.estimates
    assert abs(stiffness.value - GROUND_TRUTH.stiffness) > 10 * stiffness.std
    assert stiffness.interval[0] < GROUND_TRUTH.stiffness < stiffness.interval[1] and not stiffness.hidden
    assert damping.hidden and damping.interval[0] < GROUND_TRUTH.damping < damping.interval[1]
    assert severities(result, "within_model_error", "damping") == ["warning"]
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
    assert severities(one_step(problem(data=record(Spring(), GROUND_TRUTH, noise=0.05))), "noisy_starts") == ["warning"]
    assert not severities(one_step(problem()), "noisy_starts")


def test_no_improvement_is_said() -> None:
    split = record(Spring(), GROUND_TRUTH, count=2, noise=0.01).split(1, 0, 1)
    assert severities(one_step(problem(data=split, start=GROUND_TRUTH)), "no_improvement") == ["warning"]
    assert not severities(
        single_shooting(problem(data=record(Spring(), GROUND_TRUTH, count=2).split(1, 0, 1))), "no_improvement"
    )
    exact = one_step(problem(data=record(Spring(), GROUND_TRUTH, count=2).split(1, 0, 1), start=GROUND_TRUTH))
    assert not severities(exact, "no_improvement") and severities(exact, "start_sufficed") == ["note"]


def test_clustered_covariance_of_independent_residuals_is_the_ordinary_one() -> None:
    rng = np.random.default_rng(0)
    jacobian, residual = rng.standard_normal((40_000, 3)), rng.standard_normal(40_000)
    covariance = clustered_covariance(jacobian, residual, np.arange(40_000) // 20, np.eye(3))
    np.testing.assert_allclose(covariance, np.linalg.inv(jacobian.T @ jacobian), atol=0.15 / 40_000)
    # MuJoCo models: every residual counted twice adds no knowledge, the covariance must not halve
    twice = clustered_covariance(np.repeat(jacobian, 2, 0), np.repeat(residual, 2), np.arange(80_000) // 40, np.eye(3))
    np.testing.assert_allclose(twice, covariance, rtol=1e-9)


def test_clustered_errors_are_right_for_correlated_residuals_where_independent_ones_are_not() -> None:
    # Slope of a random walk regressor under AR(1) noise, 2000 times: the scatter of the estimates is the ground truth to be
    # stated.
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


def test_clustered_intervals_hold_the_ground_truth_where_few_clusters_tell_of_a_constant() -> None:
    """As of thrown boxes, whose strikes say more the later they come: clusters weigh 1, 1/2, 1/4 ... times the first one.

    White errors first, of which the covariance is known; then errors that clusters share, for which it must hold, too.
    """
    rng, count, rows = np.random.default_rng(2), 12, 20
    clusters = np.arange(count * rows) // rows
    weight = 0.7 ** np.arange(count)
    regressor = np.column_stack([np.repeat(weight, rows), rng.standard_normal(count * rows)])
    inverse = np.linalg.inv(regressor.T @ regressor)
    for shared in (0.0, 1.0):
        noise = rng.standard_normal((4000, count * rows)) + shared * np.repeat(rng.standard_normal((4000, count)), rows, axis=1)
        found = noise @ regressor @ inverse
        left = noise - found @ regressor.T
        std = np.array([np.sqrt(np.diag(clustered_covariance(regressor, r, clusters, np.eye(2)))) for r in left])
        held = np.mean(np.abs(found) <= 1.96 * std, axis=0)
        assert (held > 0.93).all() and (held < 0.985).all(), held


def test_correlation_in_time() -> None:
    noise = np.random.default_rng(0).standard_normal((1, 10_000, 2))
    assert abs(correlation_in_time(noise)) < 0.03
    assert correlation_in_time(noise[:, 1:] - noise[:, :-1]) == pytest.approx(-0.5, abs=0.03)
    assert correlation_in_time(np.swapaxes(noise[:, 1:] - noise[:, :-1], 0, 1)) == pytest.approx(-0.5, abs=0.03)
    assert correlation_in_time(np.cumsum(noise, axis=1)) > 0.95


def test_an_interval_that_ends_where_a_constant_may_not_go_says_so() -> None:
    found = single_shooting(
        problem(data=record(Spring(), GROUND_TRUTH, steps=60, noise=0.02), free=("offset",), free_initial=True)
    )
    narrow = found.estimates[0]
    assert "allowed" not in narrow.line()
    text = replace(narrow, value=4.9, interval=(4.7, narrow.bounds[1])).line()
    assert text.endswith("95 % [4.7, 5] (as far as it is allowed: 5)")


def test_what_data_bound_on_one_side_was_not_pressed_there_by_a_wrong_model() -> None:
    """Damping of 0.012 N s/m, allowed from 0.01 on: sixty noisy rows say that it is small."""
    ground_truth = GROUND_TRUTH.replace(damping=0.012)
    data = record(Spring(), ground_truth, steps=60, noise=0.02)
    found = single_shooting(problem(data=data, free=("damping",), start=ground_truth, free_initial=True))
    assert found.estimates[0].hidden and severities(found, "one_sided", "damping") == ["warning"]
    assert not found.of("pressed")
