"""Fits recover known ground truths, and predict what follows from them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from spring_fits import FREE, GROUND_TRUTH, START, errors, problem, severities
from sysid_systems import Spin, SpinParameters, Spring, SpringParameters, record

from reproductions.wang2020.adam import AdamOptions, adam
from softgym_envs.core.errors import DataError
from softgym_envs.core.posterior import PosteriorParameters
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from sysid import FitProblem, multiple_shooting
from sysid.diagnostics.validation import open_loop
from sysid.fitting.evolution import EvolutionOptions, cma_es
from sysid.fitting.shooting import InitialFit, ShootingOptions, one_step, single_shooting
from sysid.least_squares.levenberg import LevenbergOptions
from sysid.problem.problem import Measurement

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
