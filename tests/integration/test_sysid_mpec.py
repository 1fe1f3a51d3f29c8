"""Identification through complementarity: known ground truths, bounds of information, gates, diagnostics; filter and
evolution."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import load_script

from reproductions.berard2008.particle_filter import ParticleOptions, _systematic, bootstrap_filter
from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.systems.rigid.dynamics import BlockSimulator, ParticleSimulator
from softgym_envs.systems.rigid.experiments import record
from softgym_envs.systems.rigid.model import BlockModel, ParticleModel
from softgym_envs.systems.rigid.parameters import BlockParameters, ParticleParameters
from softgym_envs.systems.rigid.procedure import BLOCK, CAMERA, complementarity, first_state
from sysid import FitProblem
from sysid.fitting.box import _hit_and_run
from sysid.fitting.collocation import Collocation, _accumulate, window_of
from sysid.fitting.evolution import EvolutionOptions, cma_es
from sysid.fitting.mpec import MpecOptions, gate, homotopy, mpec, separable, solve
from sysid.fitting.online import HorizonOptions, online
from sysid.least_squares.cutting import cut
from sysid.least_squares.system import ShootingSystem
from sysid.problem.problem import Measurement
from sysid.report.files import rows_in_words

pytest.importorskip("casadi")
from softgym_envs.systems.rigid.symbolic import complementarity_form

PARTICLE = ParticleSimulator()
FORM = complementarity_form(PARTICLE)
START = PARTICLE.initial_state()[0]


def falling(eps, seed, friction=1.0, steps=100, start=START, force=5.0):
    """The setting of [Berard2008] slide 27: noise uniform in +-eps on positions, fit from friction 1."""
    sigma = eps / np.sqrt(3)
    recording = record(
        PARTICLE,
        start,
        np.full((steps, 1), force),
        noise={"x": sigma, "y": sigma},
        rng=np.random.default_rng(seed),
        uniform=True,
    )
    noise = {"x": sigma, "y": sigma}
    initial_guess = ParticleParameters(friction=friction)
    return FitProblem(PARTICLE, TrajectorySet((recording,)), ("friction",), start=initial_guess, noise=noise, free_motion=True)


def at_ground_truth(problem, ground_truth, start):
    """Objective at the ground truth, and the Fisher bound of the first parameter with unknown initial state."""
    segments = cut(problem, problem.split.train, None, free=True, exact=True)
    theta = problem.encode(ground_truth)
    found = segments.derivative(theta, start[None])
    J = np.concatenate([found.by_parameters, found.starts], axis=-1)[0] / problem.known_noise[:, None]
    J = J.reshape(-1, J.shape[-1])
    objective = np.sum((found.residual[0] / problem.known_noise) ** 2)
    return objective, np.sqrt(np.linalg.inv(J.T @ J)[0, 0]) * problem.slopes(theta)[0]


@pytest.mark.parametrize("eps", [5e-5, 5e-3, 5e-1])
def test_friction_of_a_falling_particle_is_found_globally(eps):
    """Objective at most the ground truth's in every seed, first way; error within four standard deviations; all inside the
    box."""
    for seed in range(5):
        problem = falling(eps, seed)
        found = solve(problem, FORM, MpecOptions(box=True))
        objective, fisher = at_ground_truth(problem, PARTICLE.default_parameters, START)
        assert found.objective <= objective * (1 + 1e-12)
        assert found.boxed and found.attempts[0].accepted and found.attempts[0].objective <= found.objective * (1 + 1e-6)
        assert abs(problem.decode(found.theta).friction - 0.2) < 4 * fisher
        states, _ = PARTICLE.rollout(found.starts, np.full((1, 100, 1), 5.0), problem.decode(found.theta))
        assert np.abs(states[0, :, :2] - problem.values(problem.split.train[0])).max() <= eps * (1 + 1e-6)


def test_bound_of_information_by_differences():
    """Whole rollouts, moved by each unknown: 5.9e-3 eps with unknown initial state."""

    def positions(v):
        states, _ = PARTICLE.rollout(v[None, 1:], np.full((1, 100, 1), 5.0), ParticleParameters(friction=v[0]))
        return states[0, :, :2].ravel()

    v = np.array([0.2, *START])
    J = np.array([(positions(v + 1e-6 * e) - positions(v - 1e-6 * e)) / 2e-6 for e in np.eye(5)]).T
    expected = np.sqrt(np.linalg.inv(J.T @ J)[0, 0] / 3)
    _, fisher = at_ground_truth(falling(1.0, 0), PARTICLE.default_parameters, START)
    assert fisher == pytest.approx(expected, rel=1e-6)
    assert fisher == pytest.approx(5.9e-3, rel=0.01)


def test_start_constants_do_not_matter():
    """Also from friction at which the particle would stick."""
    ends = [solve(falling(5e-3, 1, friction=friction), FORM) for friction in (0.02, 0.6, 1.0)]
    assert all(end.accepted for end in ends)
    np.testing.assert_allclose([end.theta[0] for end in ends], ends[0].theta[0], atol=1e-6)


def test_smoothed_solution_has_the_products_it_was_asked_for():
    """z f = tau in every pair, and g = 0: evaluated through the system's form, not through the solver's own derivatives."""
    problem = falling(5e-3, 0)
    window = window_of(problem, problem.split.train[0], FORM)
    collocation = Collocation(problem, FORM, (window,), problem.known_noise)
    point, _ = homotopy(collocation, problem.encode(problem.initial_parameters), MpecOptions(last=1e-2, iterations=60))
    point, _ = collocation.relax(point, 1e-2, iterations=60, tolerance=1e-9)
    x, z = point.states[0], point.pairs[0]
    parameter_values = np.repeat(problem.vectors(point.theta[None]), 100, axis=0)
    g, f = (np.array(part).T for part in FORM.step(x[:-1].T, window.controls.T, parameter_values.T, x[1:].T, z.T))
    assert np.abs(g).max() < 1e-8
    assert (z > 0).all() and (f > 0).all()
    np.testing.assert_allclose(z * f, 1e-2, rtol=1e-5)


@pytest.mark.filterwarnings("error")
def test_trajectories_that_run_away_end_in_one_error_and_no_noise(capfd):
    """E.g. of metres that were called mm: neither NumPy's warnings nor LAPACK's lines reach the terminal."""
    problem = falling(5e-3, 0)
    collocation = Collocation(problem, FORM, (window_of(problem, problem.split.train[0], FORM),), problem.known_noise)
    point = collocation.first_guess(problem.encode(problem.initial_parameters), 1e-2)
    far = [(1e200 * value, jacobian) for value, jacobian in collocation._defects(point, 1e-2)]
    with pytest.raises(np.linalg.LinAlgError, match="run away"):
        collocation._direction(point, far, 1e-3)
    said = capfd.readouterr()
    assert said.out == said.err == ""


def test_recursion_by_doubling_is_the_loop():
    rng = np.random.default_rng(0)
    A, D = rng.normal(size=(13, 3, 3)), rng.normal(size=(13, 3, 2))
    through, forced = _accumulate(A, D)
    product, total = np.eye(3), np.zeros((3, 2))
    for k in range(13):
        product, total = A[k] @ product, A[k] @ total + D[k]
        np.testing.assert_allclose(through[k], product, atol=1e-9 * np.abs(product).max())
        np.testing.assert_allclose(forced[k], total, atol=1e-9 * np.abs(total).max())


def two_particles(seed=0, free=("friction0", "friction1")):
    simulator = ParticleSimulator(ParticleModel(2))
    ground_truth = simulator.parameters_class(friction0=0.1, friction1=0.4)
    start = np.array([-3.0, 1.0, 0, 0, 4.0, 4.0, 0, 0])
    recording = record(
        simulator, start, np.full((100, 2), 5.0), ground_truth, noise={"x": 3e-3, "y": 3e-3}, rng=np.random.default_rng(seed)
    )
    initial_guess = ground_truth.replace(friction0=1.0, friction1=1.0)
    noise = dict.fromkeys(recording.names, 3e-3)
    return FitProblem(simulator, TrajectorySet((recording,)), free, start=initial_guess, noise=noise, free_motion=True)


def test_particles_are_solved_one_by_one_unless_they_share_a_free_constant():
    problem = two_particles()
    form = complementarity_form(problem.simulator)
    assert [list(sub.free) for _, sub in separable(problem, form)] == [["friction"], ["friction"]]
    found = solve(problem, form)
    assert found.accepted and [a.method for a in found.attempts].count("homotopy") == 2
    values = problem.decode(found.theta)
    assert (values.friction0, values.friction1) == (pytest.approx(0.1, abs=2e-4), pytest.approx(0.4, abs=2e-4))
    shared = two_particles(free=("friction0", "friction1", "mass"))
    assert separable(shared, form) == []
    together = solve(shared, replace(form, parts=()))
    assert together.accepted
    assert shared.decode(together.theta).mass == pytest.approx(1.0, rel=1e-2)


def test_report_states_interval_and_diagnostics():
    fit = mpec(falling(5e-3, 2), FORM)
    (estimate,) = fit.estimates
    assert fit.method == "mpec" and fit.codes[0] == "identified"
    assert estimate.interval[0] < 0.2 < estimate.interval[1]
    assert estimate.std == pytest.approx(5.9e-3 * 5e-3, rel=0.05)


def test_a_stated_noise_box_sharpens_the_report():
    """Uniform noise: the posterior is less than two thirds as wide as Fisher's bound, and its interval holds the
    ground truth."""
    fit = mpec(falling(5e-3, 2), FORM, MpecOptions(box=True))
    (estimate,) = fit.estimates
    assert estimate.interval[0] < 0.2 < estimate.interval[1]
    assert 0 < estimate.std < 0.67 * 5.9e-3 * 5e-3
    assert estimate.value == pytest.approx(fit.parameters.friction) and fit.codes[-1] == "noise_bound"


def test_a_noise_box_that_is_missed_is_said():
    """Residuals of noise twice as large as stated, in one row, are in no box; the least squares stay."""
    problem = falling(5e-3, 0)
    (recording,) = problem.split.train
    values = recording.values.copy()
    values[50, 0] += 2.5 * 5e-3
    struck = problem.replace(data=TrajectorySet((replace(recording, values=values),)))
    solution = solve(struck, FORM, MpecOptions(box=True))
    assert solution.accepted and not solution.boxed
    assert mpec(struck, FORM, MpecOptions(box=True)).codes[-1] == "outside_noise_bound"


def test_points_of_a_polytope_are_spread_evenly():
    """A triangle cut off a square: area, mean and a quarter's share in closed form."""
    A, b = np.array([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]]), np.array([0.0, 0.0, 1.0])
    points = _hit_and_run(A, b, np.array([0.1, 0.1]), np.random.default_rng(0))
    assert (points @ A.T <= b + 1e-9).all()
    np.testing.assert_allclose(points.mean(axis=0), 1 / 3, atol=0.02)
    assert np.mean(points.sum(axis=1) < 0.5) == pytest.approx(0.25, abs=0.04)


def test_nothing_touches_and_nothing_moves():
    """A fall that never lands shows no friction, nor does what rests in the camera's noise; a still picture is refused."""
    fit = mpec(falling(1e-3, 0, friction=0.3, steps=40, start=np.array([0.0, 50.0, 0, 0])), FORM)
    assert fit.estimates[0].hidden
    assert fit.codes[0] == "none_identifiable"
    fit = mpec(falling(1e-3, 0, start=np.zeros(4), force=0.5), FORM)
    assert fit.estimates[0].hidden and fit.estimates[0].std == np.inf
    with pytest.raises(DataError, match="nothing moves in the training recordings"):
        falling(0, 0, start=np.zeros(4), force=0.5)


def test_gate_is_shut_for_a_wrong_model():
    """A particle twice as heavy, under a force that turns: no friction explains it."""
    problem = falling(5e-3, 0)
    heavy = record(
        PARTICLE,
        START,
        np.where(np.arange(100) < 50, 5.0, -1.0)[:, None],
        ParticleParameters(mass=2.0),
        noise=dict(problem.noise),
        rng=np.random.default_rng(0),
    )
    wrong = problem.replace(data=TrajectorySet((heavy,)))
    found = solve(wrong, FORM, MpecOptions(fallbacks=1, grid=4))
    assert not found.accepted and len(found.attempts) > 1
    counts = load_script("reproductions/berard2008/run.py").without_fallback
    assert not counts(solve(wrong, FORM, MpecOptions(fallbacks=1, grid=0))) and counts(solve(problem, FORM))
    assert mpec(wrong, FORM, MpecOptions(fallbacks=0, grid=0)).of("noise_exceeded")


def test_gate_lets_the_ground_truth_through():
    """n + 4 sqrt(kappa n): of 400 sets of true noise not one is refused (4 standard deviations: 1 in 30 000)."""
    problem = falling(5e-3, 0)
    system = ShootingSystem(cut(problem, problem.split.train, None, free=True, exact=True), problem.known_noise)
    rng = np.random.default_rng(0)
    for options, draw in (
        (MpecOptions(), rng.standard_normal((400, 202))),
        (MpecOptions(box=True), rng.uniform(-1, 1, (400, 202)) * np.sqrt(3)),
    ):
        limit = gate(system, options)
        assert (np.sum(draw**2, axis=1) <= limit).all() and limit < 1.6 * 202


def block_problem(seed=0, directions=8):
    model = BlockModel(num_directions=directions)
    simulator = BlockSimulator(model, dt=0.02)
    noise = {"x": 1e-3, "y": 1e-3, "theta": 5e-3}
    recording = record(simulator, simulator.initial_state()[0], np.zeros((40, 2)), noise=noise, rng=np.random.default_rng(seed))
    start = BlockParameters(friction=1.0)
    return FitProblem(simulator, TrajectorySet((recording,)), ("friction",), start=start, noise=noise, free_motion=True)


def test_friction_of_the_block_from_camera_data():
    problem = block_problem()
    found = solve(problem, complementarity_form(problem.simulator))
    _, fisher = at_ground_truth(problem, BlockParameters(), np.zeros(6))
    assert found.accepted
    assert abs(problem.decode(found.theta).friction - 0.33) < 5 * fisher


@pytest.mark.parametrize("seed", [25, 29, 34, 36])
def test_the_block_ends_no_higher_than_its_ground_truth(seed):
    """A cone of 32 edges makes many minima; these four recordings of 40 ended above the ground truth, three accepted."""
    simulator, rng = BlockSimulator(), np.random.default_rng(seed)
    ground_truth = BlockParameters(friction=float(rng.uniform(0.1, 0.45)))
    seen = record(simulator, np.zeros(6), np.zeros((50, 2)), ground_truth, noise=CAMERA, rng=rng, period=0.02)
    initial_guess = BlockParameters(friction=float(np.clip(ground_truth.friction * 3.0 ** rng.choice([-1, 1]), 0.0, 1.0)))
    problem = FitProblem(
        simulator, TrajectorySet((seen,)), ("friction",), start=initial_guess, noise=CAMERA, free_motion=True,
        initial_state=first_state(simulator, seen.names),
    )  # fmt: skip
    objective, _ = at_ground_truth(problem, ground_truth, np.zeros(6))
    assert solve(problem, complementarity(simulator)).objective <= objective


def test_bad_input_is_named():
    problem = falling(5e-3, 0)
    with pytest.raises(OptionError, match="`noise` is not given"):
        solve(problem.replace(noise=None), FORM)
    with pytest.raises(OptionError, match="tau"):
        MpecOptions(tau=0.0)
    with pytest.raises(OptionError, match="fallbacks -1"):
        MpecOptions(fallbacks=-1)
    function = Measurement(("x", "y"), lambda states: states[..., :2])
    with pytest.raises(OptionError, match="measurement is a function"):
        solve(problem.replace(measurement=function), FORM)


# --- The baselines ------------------------------------------------------------------------------------------------------


def test_particle_filter_narrows_down_to_the_ground_truth():
    problem = falling(5e-3, 0)
    found = bootstrap_filter(
        problem,
        ParticleOptions(count=2000, process={"vx": 0.005, "vy": 0.005}, first={"vx": 0.1, "vy": 0.1}, walk=1e-3),
    )
    assert found.mean.shape == (101, 1) and found.states.shape == (101, 4)
    assert found.std[0, 0] > 0.2 > 0.02 > found.std[-1, 0]  # uniform on [0, 1] first
    assert abs(found.parameters.friction - 0.2) < 0.02
    again = bootstrap_filter(problem, ParticleOptions(count=50, seed=3))
    np.testing.assert_array_equal(again.mean, bootstrap_filter(problem, ParticleOptions(count=50, seed=3)).mean)


def test_particle_filter_is_bayes_rule_for_one_row():
    """Parameters do not matter to the first row: its posterior of x is normal, with both precisions added."""
    problem = falling(1e-1, 0)
    sigma = problem.known_noise[0]
    found = bootstrap_filter(problem, ParticleOptions(count=5000, first={"x": 2 * sigma}))
    measured, initial_guess = problem.values(problem.split.train[0])[0, 0], problem.initial_guess(problem.split.train[0])[0]
    expected = (measured / sigma**2 + initial_guess / (2 * sigma) ** 2) / (1 / sigma**2 + 1 / (2 * sigma) ** 2)
    assert found.states[0, 0] == pytest.approx(expected, abs=5 * sigma / np.sqrt(5000 / 4))


def test_systematic_resampling_is_fair():
    weight = np.array([0.5, 0.25, 0.25, 0.0])
    assert np.bincount(_systematic(weight, np.random.default_rng(0)), minlength=4).tolist() == [2, 1, 1, 0]


def test_evolution_finds_what_homotopy_finds():
    problem = falling(5e-3, 3, friction=0.9)
    found = cma_es(problem, EvolutionOptions(generations=400))
    best = solve(problem, FORM)
    assert found.converged
    assert 2 * found.start_costs[0] < best.objective + 1.0  # what one standard deviation of a parameter adds
    assert found.parameters.friction == pytest.approx(problem.decode(best.theta).friction, abs=5.9e-3 * 5e-3)


def test_bad_input_of_the_baselines_is_named():
    problem = falling(5e-3, 0)
    with pytest.raises(OptionError, match="`noise` is not given"):
        bootstrap_filter(problem.replace(noise=None))
    with pytest.raises(OptionError, match="'speed' is no state entry"):
        bootstrap_filter(problem, ParticleOptions(process={"speed": 1.0}))
    with pytest.raises(OptionError, match="count 1"):
        ParticleOptions(count=1)
    with pytest.raises(OptionError, match="standard deviation of x is -1"):
        ParticleOptions(first={"x": -1.0})
    with pytest.raises(OptionError, match="spread is 0"):
        EvolutionOptions(spread=0)
    (recording,) = problem.split.train
    with pytest.raises(DataError, match="2 recordings"):
        bootstrap_filter(problem.replace(data=TrajectorySet((recording, recording))))


# --- Online -------------------------------------------------------------------------------------------------------------


def test_online_estimates_are_right_within_what_they_state_at_every_row():
    """Six standard deviations at all 81 rows of a seed; the last word is as sharp as the window and the memory allow."""
    found = online(falling(5e-3, 0), FORM)
    assert found.times[0] == pytest.approx(1.0) and found.times[-1] == pytest.approx(5.0) and len(found.times) == 81
    assert (np.abs(found.mean[:, 0] - 0.2) < 6 * found.std[:, 0]).all()
    assert found.std[-1, 0] < found.std[0, 0] / 3
    ground_truth, _ = PARTICLE.rollout(START[None], np.full((1, 100, 1), 5.0))
    assert np.abs(found.states[:, :2] - ground_truth[0, 20:, :2]).max() < 5e-3


def test_online_estimates_through_the_simulator_are_right_at_every_row_and_use_no_future():
    """A block: within five standard deviations at every row, which fall; noise explains all windows."""
    simulator = BlockSimulator(BlockModel(num_directions=32))
    noise = {"x": 1e-3, "y": 1e-3, "theta": 5e-3}
    recording = record(
        simulator, simulator.initial_state()[0], np.zeros((40, 2)), noise=noise, rng=np.random.default_rng(0), period=0.02
    )
    start = BlockParameters(friction=1.0)
    problem = FitProblem(simulator, TrajectorySet((recording,)), ("friction",), start=start, noise=noise, free_motion=True)
    form = BLOCK.methods.complementarity(simulator)
    found = online(problem, form)
    assert len(found.times) == 21 and found.determined.all() and (found.excess < 1).all()
    assert (np.abs(found.mean[:, 0] - 0.33) < 5 * found.std[:, 0]).all()
    assert found.std[-1, 0] < 0.6 * found.std[0, 0]
    early = replace(recording, times=recording.times[:26], controls=recording.controls[:25], values=recording.values[:26])
    np.testing.assert_array_equal(online(problem.replace(data=TrajectorySet((early,))), form).mean, found.mean[:6])


def test_online_estimates_say_where_nothing_slides_and_what_is_not_the_models():
    """What falls without landing tells no friction; a push that turns, unknown to the model, is not explained."""
    assert not online(falling(1e-3, 0, start=np.array([0.0, 50.0, 0, 0]), steps=30), FORM).determined.any()
    problem = falling(5e-3, 0)
    (recording,) = problem.split.train
    push = np.where(np.arange(100) < 50, 5.0, -1.0)[:, None]
    turned = record(PARTICLE, START, push, noise=dict(problem.noise), rng=np.random.default_rng(0))
    unknown = replace(turned, controls=recording.controls)
    found = online(problem.replace(data=TrajectorySet((unknown,))), FORM)
    assert not found.explained and "do not use these numbers: in " in rows_in_words(found)
    found = online(problem.replace(data=TrajectorySet((turned,))), FORM)
    assert found.explained and "do not use" not in rows_in_words(found)


@pytest.mark.parametrize("told", [False, True])
def test_residuals_beyond_the_noise_are_said_whoever_told_the_noise(told):
    """A push that turns, unknown to the model; by its own push it is explained."""
    problem = falling(5e-3, 0)
    push = np.where(np.arange(100) < 50, 5.0, -1.0)[:, None]
    turned = record(PARTICLE, START, push, noise=dict(problem.noise), rng=np.random.default_rng(0))
    (recording,) = problem.split.train
    for data, explained in ((turned, True), (replace(turned, controls=recording.controls), False)):
        found = solve(problem.replace(data=TrajectorySet((data,)), noise_estimated=told), FORM, MpecOptions())
        assert found.accepted == explained


def test_bad_input_of_the_horizon_is_named():
    problem = falling(5e-3, 0)
    with pytest.raises(OptionError, match="window 1"):
        HorizonOptions(window=1)
    with pytest.raises(DataError, match="at least 200"):
        online(problem, FORM, HorizonOptions(window=200))
    with pytest.raises(OptionError, match="`noise` is not given"):
        online(problem.replace(noise=None), FORM)
