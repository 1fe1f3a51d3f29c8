"""Optimal control through the symbolic entry point: closed forms, replay in the engine, meshes, words about what cannot be
done. Sample-based iLQG: the fit against the ground truth, the KL bound against its definition, the plan against Riccati."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest
from agents_models import Fragile, Linear, Pendulum
from scipy.linalg import solve_discrete_are

from agents.control.cost import FeatureCost
from agents.control.first_guess import driving_controls, minimum_jerk, rates_of, resample
from agents.control.gps import GPSOptions, plan_gps
from agents.control.ilqg import plan_ilqg
from agents.control.linear_gaussian import Controller, fit_dynamics, kl_bounded_step, kl_lqr, predict
from agents.control.optimal import Manoeuvre, plan_motion, solve_form
from agents.control.plan import UnstablePlanError, random_controls
from reproductions.penner2020.search import plan_free_time, refined
from softgym_envs.core.base import PlainStructure, SteppedSimulator
from softgym_envs.core.complementarity import ComplementarityForm
from softgym_envs.core.errors import OptionError, ShapeError
from softgym_envs.core.layout import Field, StateLayout
from softgym_envs.systems.arm.dynamics import ElbowSimulator
from softgym_envs.systems.arm.parameters import ElbowParameters
from softgym_envs.systems.rigid.dynamics import BlockSimulator, ParticleSimulator
from softgym_envs.systems.rigid.model import BlockModel
from softgym_envs.systems.upper_body.dynamics import BodySimulator

FREE = np.nan


def bend(steps: int, **more) -> Manoeuvre:
    """The elbow from 0.4 to 1.8 rad, rest to rest."""
    bounds = (np.array([0.0, -np.inf, 0.0, 0.0]), np.array([2.6, np.inf, 1.0, 1.0]))
    start, end = np.array([0.4, 0.0, 0.05, 0.05]), np.array([1.8, 0.0, FREE, FREE])
    return Manoeuvre(start, end, steps, (np.zeros(2), np.ones(2)), bounds, **{"smoothness": 1e-3, **more})


def test_a_double_integrator_is_moved_as_the_closed_form_says():
    """min sum u^2 from rest to rest over a distance of 1: least squares in u."""
    h, count = 0.05, 20
    x, u, y, p, z = (ca.SX.sym(name, size) for name, size in (("x", 2), ("u", 1), ("y", 2), ("p", 0), ("z", 0)))
    step = ca.Function("step", [x, u, p, y, z], [ca.vertcat(y[0] - x[0] - h * y[1], y[1] - x[1] - h * u), ca.SX.zeros(0)])
    manoeuvre = Manoeuvre(np.zeros(2), np.array([1.0, 0.0]), count, (np.array([-50.0]), np.array([50.0])))
    found = solve_form(
        ComplementarityForm(step), manoeuvre, h, np.zeros(0), minimum_jerk(np.zeros(2), np.array([1.0, 0.0]), count)
    )
    rows = np.array([[h * h * (count - k) for k in range(count)], [h] * count])
    np.testing.assert_allclose(found.controls[:, 0], np.linalg.lstsq(rows, [1.0, 0.0], rcond=None)[0], atol=1e-6)
    assert found.solved and found.message == "solved"


def test_driving_controls_are_inverse_dynamics():
    """Those of a motion of the engine are found again, within their bounds; the elbow's step is not linear in its own."""
    simulator, rng = BodySimulator(dt=0.01), np.random.default_rng(0)
    controls = 0.2 * simulator.model.effort * rng.uniform(-1, 1, (1, 6, 12))
    states, _ = simulator.rollout(simulator.initial_state(), controls)
    form, parameter_values, bounds = simulator.symbolic_step(), simulator.model.defaults, simulator.model.control_bounds
    found = driving_controls(form, states[0], parameter_values, bounds)
    assert found is not None
    np.testing.assert_allclose(found, controls[0], atol=1e-7)
    clipped = driving_controls(form, states[0], parameter_values, (np.full(12, -0.1), np.full(12, 0.1)))
    assert clipped is not None and np.abs(clipped).max() <= 0.1
    elbow = ElbowSimulator()
    assert driving_controls(elbow.symbolic_step(), np.zeros((3, 4)), elbow.default_parameters.to_matrix(1)[0], bounds) is None


def test_the_upper_body_reaches_in_few_iterations():
    simulator, goal = BodySimulator(dt=0.08), np.array([[0.4, -0.2, -0.1]])
    model = simulator.model
    end, (low, high) = np.concatenate([model.reaching(goal)[0][0], np.zeros(12)]), model.limits
    sides = (np.concatenate([low, np.full(12, -12.0)]), np.concatenate([high, np.full(12, 12.0)]))
    found = plan_motion(simulator, Manoeuvre(model.rest_state(), end, 10, model.control_bounds, sides, smoothness=1e-3))
    assert found.solved and found.iterations < 60 and found.error < 1e-6
    assert np.linalg.norm(model.hand(found.states[-1:, :12])[0] - goal[0]) < 5e-3


def test_the_elbows_motion_is_one_of_the_engine_on_every_mesh():
    costs = []
    for steps in (10, 40):
        simulator = ElbowSimulator(dt=0.5 / steps)
        found = plan_motion(simulator, bend(steps))
        assert found.solved and found.iterations < 100 and found.error < 1e-6
        assert abs(found.states[-1, 0] - 1.8) < 1e-7 and abs(found.states[-1, 1]) < 1e-7
        assert found.controls.min() > -1e-7 and found.states[:, 0].max() < 2.6 + 1e-6
        states, status = simulator.rollout(found.states[:1], found.controls[None])
        assert status[0] == 0
        np.testing.assert_allclose(states[0], found.states, atol=1e-4)
        costs.append(found.objective)
    assert abs(costs[0] / costs[1] - 1) < 0.15


def test_a_plan_on_another_mesh_is_a_guess():
    coarse = plan_motion(ElbowSimulator(dt=0.05), bend(10))
    simulator = ElbowSimulator(dt=0.025)
    found, cold = plan_motion(simulator, bend(20), initial_guess=coarse), plan_motion(simulator, bend(20))
    assert found.solved and abs(found.objective / cold.objective - 1) < 1e-5


def test_a_particle_with_contact_is_planned_too():
    """Another system's entry point, with complementarity: pushed over the ground from rest to rest against friction."""
    simulator = ParticleSimulator(dt=0.05)
    form, nx = simulator.symbolic_step(), simulator.nx
    start = np.zeros(nx)
    end = start.copy()
    end[0] += 0.3
    high = simulator.control_bounds[1]
    limit = np.where(np.isfinite(high), high, 20.0)
    manoeuvre = Manoeuvre(start, end, 20, (-limit, limit))
    parameter_values = simulator.default_parameters.to_matrix(1)[0]
    path = minimum_jerk(start, end, 20, rates_of(simulator), simulator.dt)
    found = solve_form(
        form, manoeuvre, simulator.dt, parameter_values, path, np.zeros((20, simulator.nu)), taus=(1.0, 1e-2, 1e-4, 1e-6)
    )
    assert found.solved, found.message
    assert found.states.shape == (21, nx) and abs(found.states[-1, 0] - end[0]) < 1e-6
    states, _ = simulator.rollout(start[None], found.controls[None])
    assert abs(states[0, -1, 0] - end[0]) < 0.02


class Cart(SteppedSimulator):
    """A point that a force moves along a line, exact for forces that are held."""

    system, parameters_class = "cart", ElbowParameters
    model = PlainStructure(
        StateLayout(Field("", None, ("x", "m"), ("vx", "m/s"))), ("force",), ("N",), (-np.ones(1), np.ones(1)), np.zeros(2)
    )

    def __init__(self, dt: float) -> None:
        self.dt = dt

    def _step(self, state, control, parameter_values, substeps):
        x, v, force = state[:, 0], state[:, 1], control[:, 0]
        h = self.dt * substeps
        return np.stack([x + h * v + h**2 / 2 * force, v + h * force], axis=1), np.zeros(len(state), dtype=np.int32)

    def symbolic_step(self) -> ComplementarityForm:
        x, u, y, p, z = (ca.SX.sym(name, size) for name, size in (("x", 2), ("u", 1), ("y", 2), ("p", 0), ("z", 0)))
        p = ca.SX.sym("p", len(self.default_parameters.names()))
        moved = ca.vertcat(y[0] - x[0] - self.dt * x[1] - self.dt**2 / 2 * u, y[1] - x[1] - self.dt * u)
        return ComplementarityForm(ca.Function("step", [x, u, p, y, z], [moved, ca.SX.zeros(0)]))


def test_the_fastest_motion_is_bang_bang():
    """A metre from rest to rest with a force of 1 N at most and a mass of 1 kg: 2 s."""
    asked = Manoeuvre(np.zeros(2), np.array([1.0, 0.0]), 20, (-np.ones(1), np.ones(1)), effort=0.0)
    found = plan_free_time(Cart, asked, (0.5, 6.0), time_weight=1.0)
    assert found.motion.solved and 2.0 < found.seconds < 2.1 and abs(found.cost - found.seconds) < 1e-6
    force = found.motion.controls[:, 0]
    assert force[:8].min() > 0.9 and force[-8:].max() < -0.9


def test_time_and_effort_are_weighed():
    """Least int (u / 2)^2 of a metre in T is 3 / T^3, over the controls' range of 2: with T, least at 9^(1/4)."""
    asked = Manoeuvre(np.zeros(2), np.array([1.0, 0.0]), 40, (-np.full(1, 1e3), np.full(1, 1e3)), effort=1e6)
    found = plan_free_time(Cart, asked, (0.5, 6.0), time_weight=1.0, tolerance=1e-3)
    assert abs(found.seconds - 9**0.25) < 0.02 and abs(found.motion.objective - 3 / found.seconds**3) < 2e-3


def test_refined_meshes_converge():
    found = refined(lambda dt: ElbowSimulator(dt=dt), bend(10), 0.5, (10, 20, 40, 80), tolerance=0.02)
    assert all(motion.solved for motion in found) and 2 <= len(found) <= 4
    assert abs(found[-1].objective / found[-2].objective - 1) <= 0.02
    with pytest.raises(OptionError, match="meshes are"):
        refined(lambda dt: ElbowSimulator(dt=dt), bend(10), 0.5, (20, 10))


def test_what_is_out_of_reach_is_said_with_the_nearest_end():
    """In 1 s no force of 1 N moves 1 kg by a metre and stops it; nor is the elbow so fast."""
    asked = Manoeuvre(np.zeros(2), np.array([1.0, 0.0]), 20, (-np.ones(1), np.ones(1)))
    said = plan_motion(Cart(0.05), asked).message
    assert "in 1 s, at the nearest, x ends at" in said and "where 1 is asked" in said and "force" in said, said
    said = plan_motion(ElbowSimulator(dt=0.006), bend(25)).message
    assert "in 0.15 s, at the nearest, elbow ends at 1." in said and "biceps" in said, said
    weak = ElbowSimulator().default_parameters.replace(biceps_force=200.0, payload=6.0)
    said = plan_motion(ElbowSimulator(dt=0.02), bend(25), parameters=weak).message  # the arm falls out of its range
    assert "the bounds on the way" in said, said
    with pytest.raises(OptionError, match="end_weight"):
        Manoeuvre(np.zeros(1), np.zeros(1), 5, (np.zeros(1), np.ones(1)), end_weight=-1.0)


def test_what_cannot_be_done_is_said():
    late = plan_motion(ElbowSimulator(dt=0.002), bend(10), iterations=60)  # 1.4 rad in 20 ms
    assert not late.solved and ("no motion" in late.message or "not solved" in late.message) and "equation" in late.message
    with pytest.raises(OptionError, match=r"end\[0\] is 2.9, outside of its bounds"):
        Manoeuvre(np.zeros(1), np.array([2.9]), 5, (np.zeros(1), np.ones(1)), (np.array([-1.0]), np.array([2.6])))
    with pytest.raises(OptionError, match="start has shape"):
        plan_motion(ElbowSimulator(), Manoeuvre(np.zeros(3), np.zeros(3), 5, (np.zeros(2), np.ones(2))))
    with pytest.raises(OptionError, match=r"control_bounds have shape \(1,\), expected \(2,\)"):
        plan_motion(ElbowSimulator(), Manoeuvre(np.zeros(4), np.zeros(4), 5, (np.zeros(1), np.ones(1))))
    with pytest.raises(OptionError, match="no symbolic step"):
        from softgym_envs.systems.arm.mujoco import MujocoElbow

        plan_motion(MujocoElbow(), bend(5))  # type: ignore[arg-type]


def test_a_block_slides_to_a_pose_through_stick_and_slip():
    """27 pairs a step: its friction is loosened, then driven to the law; the engine moves as the program says."""
    simulator = BlockSimulator(BlockModel(num_directions=8, pulley=None))
    asked = Manoeuvre([0] * 6, [0.1, 0.05, 0.3, 0, 0, 0], 40, simulator.control_bounds)
    found = plan_motion(simulator, asked)
    assert found.solved and found.error < 1e-7, found.message
    states, _ = simulator.rollout(found.states[:1], found.controls[None])
    np.testing.assert_allclose(states[0, -1], asked.end, atol=2e-3)
    late = plan_motion(simulator, asked, seconds=0.05)
    assert not late.solved and "not solved in so many seconds: allow more" in late.message and "as much time" in late.message


def test_lists_are_taken_and_what_is_no_number_is_named():
    plain = Manoeuvre([0, 0], [1, np.nan], 5, ([-1], [1]), ([-2, -3], [2, 3]))
    arrays = Manoeuvre(np.zeros(2), np.array([1, np.nan]), 5, (-np.ones(1), np.ones(1)), np.array([[-2.0, -3.0], [2.0, 3.0]]))
    for a, b in zip(plain.bounds(), arrays.bounds(), strict=True):
        np.testing.assert_array_equal(a, b)
    for wrong, message in (
        ({"start": "here"}, "start is not an array of numbers"),
        ({"control_bounds": ([1.0], [-1.0])}, "control_bounds is"),
        ({"control_bounds": 3}, "control_bounds is 3"),
        ({"state_bounds": ([0.0], [1.0])}, r"state_bounds have shape \(1,\)"),
    ):
        with pytest.raises((OptionError, ShapeError), match=message):
            Manoeuvre(**({"start": [0, 0], "end": [1, 0], "steps": 5, "control_bounds": ([-1], [1])} | wrong))


def test_paths_are_resampled_and_start_with_least_jerk():
    path = minimum_jerk(np.array([0.0, 0.0]), np.array([1.0, np.nan]), 10, ((0, 1),), 0.1)
    assert path[0, 0] == 0 and path[-1, 0] == 1 and abs(path[5, 0] - 0.5) < 1e-12 and abs(path[5, 1] - 1.875) < 0.1
    np.testing.assert_allclose(resample(path, 21)[::2], path)


X0 = np.array([1.0, -0.5, 0.3, 0.8])


def samples(noise, rows=40, horizon=20, seed=0):
    """Rollouts of the linear system under random controls, with noise on the states after each step."""
    rng, s = np.random.default_rng(seed), Linear()
    dx, du = rng.normal(size=(rows, horizon, 4)), rng.normal(size=(rows, horizon, 2))
    return s, dx, du, dx @ s.A.T + du @ s.B.T + noise * rng.normal(size=dx.shape)


@pytest.fixture
def problem():
    s = Linear()
    cost = FeatureCost(s, lambda x: x, np.zeros(4), [1.0, 0.1, 0.5, 0.2], control_weight=[0.3, 0.2])
    dx, du = np.random.default_rng(1).normal(size=(2, 40, 10, 4)), np.random.default_rng(2).normal(size=(40, 10, 2))
    model = fit_dynamics(dx[0], du, dx[0] @ s.A.T + du @ s.B.T)
    expansion = cost.expand(np.tile(X0, (1, 11, 1)), np.zeros((1, 10, 2)))
    old = Controller(np.zeros((10, 2)), np.zeros((10, 2, 4)), np.tile(0.01 * np.eye(2), (10, 1, 1)))
    return s, cost, model, expansion, old


# --- fitted dynamics ----------------------------------------------------------------------------------------------


def test_fit_is_exact_without_noise():
    s, dx, du, after = samples(noise=0.0)
    model = fit_dynamics(dx, du, after + 0.7)
    np.testing.assert_allclose(model.A, np.tile(s.A, (20, 1, 1)), atol=1e-5)
    np.testing.assert_allclose(model.B, np.tile(s.B, (20, 1, 1)), atol=1e-5)
    np.testing.assert_allclose(model.offset, 0.7, atol=1e-5)


def test_pooling_uses_the_samples_of_all_times():
    """One model for all times is estimated from N T samples: standard deviation sigma / sqrt(N T) per entry."""
    s, dx, du, after = samples(noise=0.1)
    model = fit_dynamics(dx, du, after)
    error = np.concatenate([model.A - s.A, model.B - s.B], axis=2)
    assert np.sqrt(np.mean(error**2)) < 2 * 0.1 / np.sqrt(40 * 20)
    np.testing.assert_allclose(np.mean([np.trace(c) / 4 for c in model.noise]), 0.01, rtol=0.1)


def test_times_that_differ_are_told_apart():
    """With changing dynamics and little noise the ridge steps back: error of one time's regression, sigma / sqrt(N - d)."""
    _, dx, du, _ = samples(noise=0.0)
    A = np.random.default_rng(5).normal(size=(20, 4, 4))
    after = np.einsum("tij,ntj->nti", A, dx) + 1e-3 * np.random.default_rng(6).normal(size=dx.shape)
    model = fit_dynamics(dx, du, after)
    assert np.sqrt(np.mean((model.A - A) ** 2)) < 3 * 1e-3 / np.sqrt(40 - 7)


def test_fewer_samples_than_columns_is_no_problem_when_times_agree():
    s, dx, du, after = samples(noise=0.01, rows=5, horizon=100)
    model = fit_dynamics(dx, du, after)
    assert np.sqrt(np.mean((model.A - s.A) ** 2)) < 3 * 0.01 / np.sqrt(500)


def test_the_fit_does_not_depend_on_units():
    """In units D the same dynamics are D A D^-1 and D B; the widest and the narrowest state are 1e9 apart here."""
    _, dx, du, after = samples(noise=0.01, rows=10)
    plain, units = fit_dynamics(dx, du, after), np.array([1.0, 1e-6, 1e3, 1.0])
    scaled = fit_dynamics(dx * units, du, after * units)
    np.testing.assert_allclose(scaled.A / units[:, None] * units, plain.A, atol=1e-8)
    np.testing.assert_allclose(scaled.B / units[:, None], plain.B, atol=1e-8)


# --- KL-bounded LQR -----------------------------------------------------------------------------------------------


def test_kl_and_expected_cost_equal_monte_carlo(problem):
    _, _, model, expansion, old = problem
    old = old._replace(covariance=100 * old.covariance)  # wide, so that gains and spread matter
    new = kl_lqr(model, expansion, old, 5.0)
    expected, kl = predict(model, expansion, new, old)
    rng, count = np.random.default_rng(0), 200_000
    x, logs, total = np.zeros((count, 4)), np.zeros(count), np.full(count, expansion.value.sum())

    def log_density(c, t, u):
        r = u - c.k[t] - x @ c.K[t].T
        return -0.5 * np.sum(r @ np.linalg.inv(c.covariance[t]) * r, axis=1) - 0.5 * np.linalg.slogdet(c.covariance[t])[1]

    for t in range(10):
        u = new.k[t] + x @ new.K[t].T + rng.normal(size=(count, 2)) @ np.linalg.cholesky(new.covariance[t]).T
        logs += log_density(new, t, u) - log_density(old, t, u)
        total += x @ expansion.x[0, t] + 0.5 * np.sum(x @ expansion.xx[0, t] * x, axis=1)
        total += u @ expansion.u[0, t] + 0.5 * np.sum(u @ expansion.uu[0, t] * u, axis=1)
        x = x @ model.A[t].T + u @ model.B[t].T + model.offset[t]
    total += x @ expansion.x[0, -1] + 0.5 * np.sum(x @ expansion.xx[0, -1] * x, axis=1)
    for exact, drawn in ((kl, logs), (expected, total)):
        assert abs(exact - drawn.mean()) < 4 * drawn.std() / np.sqrt(count)
    assert predict(model, expansion, old, old)[1] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("bound", [0.1, 10.0])
def test_kl_bound_is_kept_and_used(problem, bound):
    _, _, model, expansion, old = problem
    new, eta = kl_bounded_step(model, expansion, old, bound)
    cost, kl = predict(model, expansion, new, old)
    assert 0.9 * bound < kl <= bound
    assert cost < predict(model, expansion, old, old)[0]
    gentler = kl_lqr(model, expansion, old, 10 * eta)
    assert (
        predict(model, expansion, gentler, old)[1]
        < kl
        < predict(model, expansion, kl_lqr(model, expansion, old, eta / 10), old)[1]
    )


def test_kl_step_is_the_optimum_of_its_lagrangian(problem):
    """E[cost] / eta + KL rises in every direction: mean, gain and covariance."""
    _, _, model, expansion, old = problem
    eta, rng = 3.0, np.random.default_rng(0)
    new = kl_lqr(model, expansion, old, eta)

    def value(c):
        cost, kl = predict(model, expansion, c, old)
        return cost / eta + kl

    best = value(new)
    for _ in range(20):
        factor = np.eye(2) + 1e-2 * rng.normal(size=(10, 2, 2))
        other = Controller(
            new.k + 1e-3 * rng.normal(size=new.k.shape),
            new.K + 1e-2 * rng.normal(size=new.K.shape),
            factor @ new.covariance @ np.swapaxes(factor, 1, 2),
        )
        assert value(other) > best


# --- the planner --------------------------------------------------------------------------------------------------


def test_gps_reaches_the_lqr_optimum():
    """The fit is exact for linear dynamics without noise, so only the KL bound keeps it from the optimum at first."""
    s = Linear(limit=100.0)
    Q, R = np.diag([1.0, 0.1, 0.5, 0.2]), np.diag([0.3, 0.2])
    P = solve_discrete_are(s.A, s.B, Q, R)
    L = np.linalg.cholesky(P).T
    features = lambda x: np.concatenate([x, x @ L.T], axis=-1)  # noqa: E731  P is no diagonal weight: two sets of features
    weights = np.array([1.0, 0.1, 0.5, 0.2, 0, 0, 0, 0]), np.array([0.0] * 4 + [1.0] * 4)
    cost = FeatureCost(s, features, np.zeros(8), *weights, np.diag(R))
    best = X0 @ P @ X0
    plan = plan_gps(
        s, cost, X0, controls=np.zeros((12, 2)), rng=np.random.default_rng(0), options=GPSOptions(iterations=15, noise=0.02)
    )
    K = -np.linalg.solve(R + s.B.T @ P @ s.B, s.B.T @ P @ s.A)
    assert best * (1 - 1e-9) <= plan.cost < best * (1 + 1e-4)
    # The gain of a controller whose cost is within 1e-4 of the optimum is near the optimal one, which the cost is flat around.
    assert np.abs(plan.gains[:6] - K).max() < 0.1 * np.abs(K).max()


def test_gps_approaches_ilqg_on_a_pendulum_and_counts_its_steps():
    p = Pendulum(limit=6.0)
    cost = FeatureCost(p, lambda x: x, [-1.0, 0.0, 0.0], [1.0, 1.0, 0.1], control_weight=0.05)
    start = p.initial_state()[0]
    controls = random_controls(p, 40, rng=np.random.default_rng(0), amplitude=0.5, knots=8)
    first = cost.value(*(a[None] for a in (p.rollout(start[None], controls[None])[0][0], controls))).sum()
    exact = plan_ilqg(p, cost, start, controls=controls)
    before, log = p.rows_stepped[0], []
    options = GPSOptions(iterations=15, rollouts=20)
    plan = plan_gps(
        p, cost, start, controls=controls, rng=np.random.default_rng(1), substeps=1, options=options, callback=log.append
    )
    assert plan.steps.simulated == p.rows_stepped[0] - before == (15 * 20 + 1) * 40
    assert plan.steps.linearized == 0
    assert len(plan.log) == 15 and list(plan.log) == log
    assert plan.cost <= min(entry.cost for entry in plan.log) + 1e-9
    assert first - plan.cost > 0.8 * (first - exact.cost)
    assert np.abs(plan.controls).max() <= 6.0
    again = plan_gps(p, cost, start, controls=controls, rng=np.random.default_rng(1), options=options)
    np.testing.assert_array_equal(again.controls, plan.controls)


def test_failed_rollouts_are_left_out():
    s = Fragile(limit=2.0)
    cost = FeatureCost(s, lambda x: x[..., :1], [2.0], [1.0], control_weight=1e-3)
    plan = plan_gps(
        s,
        cost,
        np.zeros(4),
        controls=np.zeros((10, 2)),
        rng=np.random.default_rng(0),
        options=GPSOptions(iterations=8, noise=0.3),
    )
    states, status = s.rollout(np.zeros((1, 4)), plan.controls[None])
    assert status.tolist() == [0]
    np.testing.assert_allclose(states[0], plan.states, atol=1e-12)
    assert plan.cost < cost.value(np.zeros((1, 11, 4)), np.zeros((1, 10, 2))).sum()
    with pytest.raises(UnstablePlanError, match="rollouts of the first controller"):
        plan_gps(s, cost, np.full(4, 0.99), controls=np.full((10, 2), 2.0), rng=np.random.default_rng(0))


@pytest.mark.parametrize("name", ["iterations", "rollouts", "noise", "kl_step"])
def test_bad_options_are_named(name):
    with pytest.raises(OptionError, match=name):
        GPSOptions(**{name: 0})
