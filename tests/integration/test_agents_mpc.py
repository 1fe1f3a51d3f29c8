"""Receding horizon: the goal is reached, the count and the clock are right, failures are rejected."""

import numpy as np
import pytest
from agents_models import CartPole, Linear, OneConstant, Pendulum
from scipy.linalg import solve_discrete_are

from agents.control.cost import FeatureCost
from agents.control.ilqg import ILQGOptions, plan_ilqg
from agents.control.mpc import ILQGController, SamplingController, SamplingOptions, mix
from agents.control.plan import UnstablePlanError, random_controls, run_policy, spline_matrix
from softgym_envs.core.errors import OptionError, ShapeError

UPRIGHT = np.array([-1.0, 0.0, 0.0])


def balance(p):
    return FeatureCost(p, lambda x: x, UPRIGHT, [1.0, 1.0, 0.1], [10.0, 10.0, 1.0], control_weight=0.01)


def sampling(p, seed=0, **options):
    options = {"samples": 60, "knots": 6, "noise": 0.4} | options
    return SamplingController(p, balance(p), 30, np.random.default_rng(seed), options=SamplingOptions(**options))


def final_distance(p, run):
    """Largest distance to the top over the last ten control steps."""
    return np.linalg.norm(p.difference(run.states[0, -10:], np.tile(UPRIGHT, (10, 1))), axis=1).max()


def test_ilqg_mpc_swings_up_and_stays_there_in_a_plant_that_differs():
    p = Pendulum(limit=6.0)
    controls = random_controls(p, 40, rng=np.random.default_rng(0), amplitude=0.5, knots=8)
    controller = ILQGController(
        p,
        balance(p),
        controls,
        options=ILQGOptions(max_iterations=2),
        first_options=ILQGOptions(max_iterations=30),
        replan_every=3,
    )
    run = run_policy(controller, p, p.initial_state()[0], steps=120, parameters=OneConstant(gain=0.9))
    assert final_distance(p, run) < 0.1
    assert np.abs(run.controls).max() <= 6.0
    assert len(controller.seconds) == 40
    assert controller.steps.linearized <= 40 * (31 + 39 * 3)


@pytest.mark.parametrize(("horizon", "replan_every"), [(20, 1), (60, 1), (60, 5)])
def test_ilqg_mpc_balances_as_well_as_lqr_whatever_the_horizon(horizon, replan_every):
    """A cart pushes with 80 % of the planned force. Warm starts without feedback cost 700 at horizon 60, LQR 1.519."""
    s, Q, R, start = CartPole(), np.diag([1.0, 1.0, 0.1, 0.1]), np.array([[0.01]]), np.array([0.0, 0.1, 0.0, 0.0])
    slopes = s.linearize(np.zeros((1, 4)), np.zeros((1, 1)))
    A, B = slopes.A[0], slopes.B[0]
    P = solve_discrete_are(A, B, Q, R)
    K, root = -np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A), np.linalg.cholesky(P)
    running, terminal = [*np.diag(Q), *np.zeros(4)], [*np.zeros(4), *np.ones(4)]  # x'Qx + u'Ru, at the end x'Px
    cost = FeatureCost(s, lambda x: np.concatenate([x, x @ root], axis=-1), np.zeros(8), running, terminal, R[0])

    def driven(policy, gain=0.8):
        run = run_policy(policy, s, start, steps=100, parameters=OneConstant(gain=gain))
        return run.controls[0], float(np.sum(run.states[0] ** 2 @ Q) + np.sum(run.controls[0] ** 2 @ R))

    controls, _ = driven(lambda x, t: K @ x, gain=1.0)
    controller = ILQGController(s, cost, controls[:horizon], replan_every=replan_every)
    _, found = driven(controller)
    assert found <= 1.001 * driven(lambda x, t: K @ x)[1]
    assert len(controller.outcomes) == 100 // replan_every and None not in controller.outcomes


def test_ilqg_mpc_plans_for_the_part_of_a_moving_target_that_lies_ahead():
    s, T, start = Linear(), 12, np.array([1.0, -0.5, 0.3, 0.8])
    path = np.sin(0.3 * np.arange(2 * T))[:, None] * np.ones(4)

    def cost(t):
        return FeatureCost(s, lambda x: x, path[t : t + T + 1], np.ones(4), control_weight=0.1)

    run = run_policy(ILQGController(s, cost, np.zeros((T, 2))), s, start, steps=T)
    for t in range(T):
        plan = plan_ilqg(s, cost(t), run.states[0, t], controls=np.zeros((T, 2)))
        np.testing.assert_allclose(run.controls[0, t], plan.controls[0], atol=1e-4)


@pytest.mark.parametrize("temperature", [0.0, 0.1])
def test_sampling_mpc_swings_up_and_stays_there(temperature):
    p = Pendulum(limit=6.0)
    controller = sampling(p, temperature=temperature)
    run = run_policy(controller, p, p.initial_state()[0], steps=160)
    # Torque 6 < g cannot hold it anywhere between hanging (cos = 1) and nearly upright.
    assert run.states[0, -20:, 0].max() < -0.8
    assert controller.steps.simulated == 160 * 60 * 30


def test_reset_forgets_everything_but_the_random_stream():
    p = Pendulum(limit=6.0)
    controller, other = sampling(p, seed=1), sampling(p, seed=1)
    state = p.initial_state()[0]
    first = [controller(state, t) for t in range(3)]
    np.testing.assert_array_equal(first, [other(state, t) for t in range(3)])
    controller.reset()
    assert controller.seconds == [] and controller.steps.simulated == 0 and not controller.controls.any()


def test_shifted_spline_is_the_old_spline_later():
    """Knots on control steps: shifting by whole knots must reproduce the plan exactly, with the end held."""
    p = Linear(limit=1.0)
    cost = FeatureCost(p, lambda x: x, np.zeros(4), np.ones(4))
    options = SamplingOptions(samples=2, knots=4, noise=0.0)
    controller = SamplingController(p, cost, 10, np.random.default_rng(0), options=options, replan_every=3)
    controller(np.zeros(4), 0)
    controller.knots = np.random.default_rng(0).uniform(-1, 1, (4, 2))
    controller.controls = spline_matrix(10, 4) @ controller.knots
    old = controller.controls.copy()
    for t in range(1, 4):
        controller(np.zeros(4), t)
    np.testing.assert_allclose(controller.controls[:7], old[3:], atol=1e-12)
    np.testing.assert_allclose(controller.controls[7:], np.tile(old[-1], (3, 1)), atol=1e-12)


def test_splines_keep_the_limits_and_meet_their_knots():
    W = spline_matrix(13, 4)
    np.testing.assert_allclose(W.sum(axis=1), 1.0, rtol=1e-12)
    assert W.min() >= 0
    np.testing.assert_allclose(W[[0, 4, 8, 12]], np.eye(4), atol=1e-12)
    np.testing.assert_array_equal(spline_matrix(5, 1), np.ones((5, 1)))


def test_mix_rejects_failed_samples_and_tends_to_the_best():
    knots = np.arange(4.0)[:, None, None] * np.ones((4, 2, 1))
    costs = np.array([3.0, np.inf, 1.0, 2.0])
    assert mix(knots, costs, 0.0)[0, 0] == 2.0
    assert mix(knots, costs, 1e-3)[0, 0] == pytest.approx(2.0, abs=1e-12)
    spread = np.array([3.0, 1.0, 2.0]).std()
    weights = np.exp(-(np.array([3.0, 1.0, 2.0]) - 1.0) / spread)
    assert mix(knots, costs, 1.0)[0, 0] == pytest.approx(weights @ [0.0, 2.0, 3.0] / weights.sum(), rel=1e-12)
    assert mix(knots, np.full(4, np.inf), 1.0)[0, 0] == 0.0


def test_ilqg_mpc_keeps_its_plan_where_the_shifted_one_fails():
    class Fragile(Linear):
        def _step(self, state, control, parameter_values, substeps):
            after, status = super()._step(state, control, parameter_values, substeps)
            bad = (np.abs(after) > 1.0).any(axis=1)
            return np.where(bad[:, None], state, after), np.where(bad, 1, status).astype(np.int32)

    s = Fragile(limit=0.05)
    cost = FeatureCost(s, lambda x: x, np.zeros(4), np.ones(4), control_weight=0.1)
    controller = ILQGController(s, cost, np.zeros((5, 2)))
    controller(0.1 * np.ones(4), 0)
    plan = controller.plan
    control = controller(np.array([0.99, 0.9, 0.99, 0.99]), 1)  # every continuation leaves the box at once
    assert controller.plan is plan and controller.outcomes[-1] is None
    np.testing.assert_array_equal(control, plan.policy(np.array([0.99, 0.9, 0.99, 0.99]), 1))
    controller.reset()
    with pytest.raises(UnstablePlanError):
        controller(np.array([0.99, 0.9, 0.99, 0.99]), 0)


@pytest.mark.parametrize("name", ["samples", "knots", "noise", "temperature", "iterations"])
def test_bad_sampling_options_are_named(name):
    with pytest.raises(OptionError, match=name):
        SamplingOptions(**{name: -1})
    with pytest.raises(OptionError, match=name):
        SamplingOptions(**{name: np.inf})


def test_bad_controllers_are_named():
    p = Pendulum()
    with pytest.raises(OptionError, match="knots"):
        SamplingController(p, balance(p), 3, np.random.default_rng(0))
    with pytest.raises(OptionError, match="replan_every"):
        SamplingController(p, balance(p), 10, np.random.default_rng(0), replan_every=11)
    with pytest.raises(OptionError, match="replan_every"):
        ILQGController(p, balance(p), np.zeros((5, 1)), replan_every=0)
    with pytest.raises(ShapeError, match="controls"):
        ILQGController(p, balance(p), np.zeros((5, 2)))
    with pytest.raises(ShapeError, match="state"):
        sampling(p)(np.zeros(2), 0)
