"""Fits say what they cannot know: ratios, parameters without effect or drowned by noise, wrong models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from spring_fits import GROUND_TRUTH, problem, severities
from sysid_systems import Spring, SpringParameters, record

from sysid import multiple_shooting
from sysid.diagnostics.scan import compatible, model_error
from sysid.diagnostics.uncertainty import clustered_covariance, correlation_in_time
from sysid.fitting.shooting import ShootingOptions, one_step, single_shooting


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
