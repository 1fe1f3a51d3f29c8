"""Sample-based iLQG: the fit against the ground truth, the KL bound against its definition, the plan against Riccati."""

import numpy as np
import pytest
from agents_models import Linear, Pendulum
from scipy.linalg import solve_discrete_are

from agents.control.cost import FeatureCost
from agents.control.gps import GPSOptions, plan_gps
from agents.control.ilqg import plan_ilqg
from agents.control.linear_gaussian import Controller, fit_dynamics, kl_bounded_step, kl_lqr, predict
from agents.control.plan import UnstablePlanError, random_controls
from softgym_envs.core.errors import OptionError

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
    class Fragile(Linear):
        def _step(self, state, control, parameter_values, substeps):
            after, status = super()._step(state, control, parameter_values, substeps)
            bad = (np.abs(after) > 1.0).any(axis=1)
            return np.where(bad[:, None], state, after), np.where(bad, 1, status).astype(np.int32)

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
