"""Receding horizon: the goal is reached, the count and the clock are right, failures are rejected. Planning in actions for a
task's own reward, beside the environment. MPC by a task's own reward."""

import gymnasium as gym
import numpy as np
import pytest
from agents_models import CartPole, Fragile, Linear, OneConstant, Pendulum
from scipy.linalg import solve_discrete_are

from agents.control.actions import ActionSimulator, RewardCost
from agents.control.cost import FeatureCost
from agents.control.ilqg import ILQGOptions, plan_ilqg
from agents.control.mpc import ILQGController, SamplingController, SamplingOptions, mix
from agents.control.observer import Observer, _Members
from agents.control.plan import UnstablePlanError, random_controls, run_policy, spline_matrix
from agents.control.task_mpc import TaskMpc, World, with_drawn
from agents.learning.evaluation import evaluate_controller, zero
from softgym_envs.core.errors import OptionError, ParameterError, ShapeError
from softgym_envs.core.simulator import finite_differences
from softgym_envs.systems import system, system_of_task

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


def test_ilqg_mpc_of_many_states_is_that_of_each_and_keeps_limits_of_rates():
    """Starts that differ, a plant that pushes with 80 %, replans every third step: rows know nothing of each other."""
    s, starts, steps = CartPole(), np.outer([0.1, -0.2, 0.05], [0.0, 1.0, 0.0, 0.0]), 20
    cost = FeatureCost(s, lambda x: x, np.zeros(4), [1.0, 1.0, 0.1, 0.1], control_weight=0.01)

    def controller():
        return ILQGController(s, cost, np.zeros((15, 1)), replan_every=3, rate_limits=40.0, first_control=np.zeros(1))

    many, world = controller(), OneConstant(gain=0.8)
    run = run_policy(many, s, starts, steps=steps, parameters=world)
    for row, start in enumerate(starts):
        single = controller()
        own = run_policy(single, s, start, steps=steps, parameters=world)
        np.testing.assert_array_equal(run.controls[row], own.controls[0])
        assert many.rows[row].outcomes == single.outcomes and many.rows[row].steps == single.steps
    changes, allowed = np.abs(np.diff(run.controls, axis=1, prepend=0.0)), 40.0 * s.dt
    assert changes.max() == pytest.approx(allowed, rel=1e-12)
    with pytest.raises(OptionError, match=r"2 states, 3 at the last call; call reset\(\)"):
        many(starts[:2], 0)
    many.reset()
    assert many(starts[:2], 0).shape == (2, 1)


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
    with pytest.raises(ShapeError, match=r"state has shape \(0, 3\), expected a row at least"):
        ILQGController(p, balance(p), np.zeros((5, 1)))(np.zeros((0, 3)), 0)
    with pytest.raises(OptionError, match="first_control limits nothing without rate_limits"):
        ILQGController(p, balance(p), np.zeros((5, 1)), first_control=np.zeros(1))
    with pytest.raises(ShapeError, match="first_control"):
        ILQGController(p, balance(p), np.zeros((5, 1)), rate_limits=1.0, first_control=np.zeros(2))
    with pytest.raises(OptionError, match=r"substeps is 1: a control step of 0.05 s, the policy plans steps of 0.1 s"):
        run_policy(ILQGController(p, balance(p), np.zeros((5, 1)), substeps=2), p, p.initial_state()[0], steps=1)


@pytest.fixture(params=["ArmReach-v0", "VineGrow-v0", "SlidingBlock-v0"])
def made(request):
    """An environment of three rows after a reset, and the simulator of its actions."""
    envs = gym.make_vec(f"softgym_envs:{request.param}", num_envs=3)
    envs.reset(seed=2)
    inner = envs.unwrapped
    yield inner, ActionSimulator(inner.simulator, inner.task)
    envs.close()


def drawn(inner, steps):
    """Actions (3, T, na) as the environment takes them."""
    size = (3, steps, inner.action_space.shape[1])
    return np.random.default_rng(0).uniform(0.2, 0.9, size).astype(np.float32).astype(np.float64)


def test_costs_are_the_rewards_of_the_environment(made):
    inner, simulator = made
    actions, states = drawn(inner, 6), inner.state
    found = simulator.rollout(states, actions, inner.episodes.parameters, substeps=inner.episodes.substeps)[0]
    costs = [RewardCost(simulator, inner.context[row]).value(found[row][None], actions[row][None])[0] for row in range(3)]
    rewards = np.stack([inner.step(actions[:, t])[1] for t in range(6)], axis=1)
    np.testing.assert_allclose(np.array(costs)[:, 1:], -rewards, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(inner.state, found[:, -1])


def test_derivatives_by_actions_are_differences(made):
    inner, simulator = made
    actions, state = drawn(inner, 1)[:, 0], inner.state
    exact, other = simulator.linearize(state, actions, substeps=2), finite_differences(simulator, state, actions, substeps=2)
    np.testing.assert_allclose(exact.B, other.B, rtol=1e-4, atol=1e-6 * np.abs(other.B).max())


@pytest.mark.parametrize("made", ["ArmReach-v0", "VineGrow-v0"], indirect=True)
def test_gradients_through_the_dynamics_are_differences_of_the_return(made):
    inner, simulator = made
    cost, actions, start = RewardCost(simulator, inner.context[0]), drawn(inner, 4)[:1], inner.state[:1]
    substeps = inner.episodes.substeps
    states = simulator.rollout(start, actions, substeps=substeps)[0]
    expansion, slopes = cost.expand(states, actions), simulator.linearize(states[0, :-1], actions[0], substeps=substeps)
    gradient, pull = np.zeros(actions.shape[1:]), expansion.x[0, 4]
    for t in reversed(range(4)):
        gradient[t] = expansion.u[0, t] + slopes.B[t].T @ pull
        pull = expansion.x[0, t] + slopes.A[t].T @ pull
    h, expected = 1e-5, np.zeros_like(gradient)
    for place in np.ndindex(*gradient.shape):
        both = np.repeat(actions, 2, axis=0)
        both[0][place] += h
        both[1][place] -= h
        total = cost.value(simulator.rollout(np.repeat(start, 2, axis=0), both, substeps=substeps)[0], both).sum(axis=1)
        expected[place] = (total[0] - total[1]) / (2 * h)
    np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=2e-4 * np.abs(expected).max())


def test_ilqg_plans_for_the_reward_of_an_id():
    """The planned return is that of the environment; rest costs 33, the first plan of 30 iterations 3.6."""
    envs = gym.make_vec("softgym_envs:ArmReach-v0", num_envs=1)
    envs.reset(seed=5)
    inner, found = envs.unwrapped, 0.0
    simulator, options = ActionSimulator(inner.simulator, inner.task), ILQGOptions(max_iterations=12)
    cost, controls = RewardCost(simulator, inner.context[0]), np.zeros((40, 2))
    plan = plan_ilqg(simulator, cost, inner.state[0], controls=controls, substeps=inner.episodes.substeps, options=options)
    rest = cost.value(simulator.rollout(inner.state, controls[None], substeps=inner.episodes.substeps)[0], controls[None]).sum()
    for action in plan.controls:
        _, reward, terminated, _, _ = envs.step(action[None].astype(np.float32))
        found += reward[0]
        if terminated[0]:
            break
    assert found == pytest.approx(-plan.cost, rel=1e-4) and plan.cost < 0.3 * rest
    envs.close()


ARM, BLOCK = "ArmReach-v0", "SlidingBlock-v0"


def controller(envs):
    """Plans in our engine, whatever world it drives."""
    return TaskMpc(horizon=15, samples=32).controller(envs, system_of_task(ARM).simulator(envs.simulator.model))


@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_reaches_what_no_action_does_not(backend):
    found, idle = (
        evaluate_controller(who, f"softgym_envs:{ARM}", episodes=3, seed=5, keywords={"backend": backend})
        for who in (controller, zero)
    )
    assert found.success.all() and not idle.success.any()
    assert (found.returns > idle.returns).all()


@pytest.mark.parametrize(
    ("env_id", "changed"),
    [(ARM, {}), ("TensegrityCrawl-v0", {}), ("TensegrityCrawl-v0", {"cable_stiffness": 8e3}), ("SlidingBlock-v0", {})],
)
def test_imagined_returns_are_those_of_the_environment(env_id, changed):
    """The same actions and parameters, in the planner's world and in the environment: the same sums of rewards."""
    parameter_values = system_of_task(env_id).simulator().default_parameters.replace(**changed)
    envs = gym.make_vec(f"softgym_envs:{env_id}", num_envs=3, **({"params": parameter_values} if changed else {}))
    envs.reset(seed=2)
    inner = envs.unwrapped
    actions = np.random.default_rng(0).uniform(-1, 1, (3, 6, inner.action_space.shape[1])).astype(np.float32)
    world = World(inner.task, inner.simulator, inner.episodes.substeps, parameter_values)
    imagined = world.returns(world.begin(inner, np.arange(3)), actions.astype(np.float64))
    real = sum(envs.step(actions[:, t])[1] for t in range(6))
    np.testing.assert_allclose(imagined, real, rtol=1e-9)
    envs.close()


@pytest.mark.parametrize(
    ("env_id", "latency"), [(ARM, 2.0), (ARM, 1.5), (ARM, 0.25), (ARM, (0.0, 2.5)), ("TensegrityCrawl-v0", (0.0, 2.5))]
)
def test_imagined_returns_are_those_of_the_environment_under_latency(env_id, latency):
    """Of `latency` control steps: what waits is played first, and rows that draw other latencies differ."""
    period = 0.1 if env_id == "TensegrityCrawl-v0" else 0.02
    span = tuple(period * end for end in latency) if isinstance(latency, tuple) else period * latency
    envs = gym.make_vec(f"softgym_envs:{env_id}", num_envs=4, action_latency=span)
    inner = envs.unwrapped
    assert inner.episodes.settings.control_period == period
    envs.reset(seed=2)
    rng, size = np.random.default_rng(0), inner.action_space.shape[1]
    waiting, actions = (rng.uniform(-1, 1, (4, count, size)).astype(np.float32) for count in (4, 6))
    for t in range(4):
        envs.step(waiting[:, t])
    world = World(inner.task, inner.simulator, inner.episodes.substeps, inner.simulator.default_parameters)
    imagined = world.returns(world.begin(inner, np.arange(4)), actions.astype(np.float64))
    whole = inner.episodes.late[:, 0] // inner.episodes.substeps
    assert isinstance(latency, float) or len(set(whole)) > 1
    after = [envs.step(actions[:, min(t, 5)])[1] for t in range(6 + whole.max())]
    real = [sum(reward[row] for reward in after[late : late + 6]) for row, late in enumerate(whole)]
    np.testing.assert_allclose(imagined, real, rtol=1e-9)
    envs.close()


@pytest.mark.parametrize("latency", [0.04, 0.03])
def test_plans_through_known_latency(latency):
    """Two and one and a half control steps: 37 % and 75 % of 8 episodes while plans began at once."""
    keywords = {"action_latency": latency}
    found = evaluate_controller(controller, f"softgym_envs:{ARM}", episodes=4, seed=30_000_001, keywords=keywords)
    assert found.success.all()


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_a_new_episode_has_a_new_plan_whatever_the_others_do(mode, monkeypatch):
    """Rows begin episodes at other times, also between two plans: each then plans anew, from a plan of zeros."""
    calls, starts = [], 0
    monkeypatch.setattr(TaskMpc, "_planned", lambda self, model, envs, rows, plan, rngs: calls.append((rows, plan)) or plan + 1)
    envs = gym.make_vec(f"softgym_envs:{ARM}", num_envs=3, autoreset_mode=mode, max_episode_steps=7)
    observation, _ = envs.reset(seed=2)
    inner = envs.unwrapped
    policy = TaskMpc(horizon=6, knots=3, replan_every=4).controller(inner, system_of_task(ARM).simulator())
    for t in range(20):
        if t == 3:
            envs.reset(options={"reset_mask": np.array([False, True, False])})
        fresh = np.flatnonzero(inner.episodes.steps == 0)
        policy(observation)
        rows, plan = calls.pop() if calls else (fresh, np.zeros((len(fresh), 1, 1)))
        assert (np.isin(rows, fresh) == ~plan.any(axis=(1, 2))).all() and np.isin(fresh, rows).all()
        starts += len(fresh)
        observation = envs.step(np.full((3, 2), 0.1, dtype=np.float32))[0]
    assert starts >= 8 and not calls
    envs.close()


def test_rows_draw_their_own_samples_by_the_seed():
    """A row plans as it does alone, and another seed plans otherwise."""
    engine, found = system_of_task(ARM).simulator(), []
    for rows, seed in ((1, 3), (2, 3), (1, 4)):
        envs = gym.make_vec(f"softgym_envs:{ARM}", num_envs=rows)
        observation, _ = envs.reset(seed=2)
        policy = TaskMpc(samples=8, horizon=5).controller(envs.unwrapped, engine, seed=seed)
        found.append(policy(observation)[0])
        envs.close()
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_later_rewards_weigh_less_with_a_discount():
    envs = gym.make_vec(f"softgym_envs:{ARM}", num_envs=3)
    envs.reset(seed=2)
    inner = envs.unwrapped
    actions = np.random.default_rng(0).uniform(-1, 1, (3, 6, 2)).astype(np.float32)
    world = World(inner.task, inner.simulator, inner.episodes.substeps, inner.simulator.default_parameters)
    imagined = world.returns(world.begin(inner, np.arange(3)), actions.astype(np.float64), 0.7)
    real = sum(0.7**t * envs.step(actions[:, t])[1] for t in range(6))
    np.testing.assert_allclose(imagined, real, rtol=1e-9)
    envs.close()


@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_constants_that_episodes_draw_are_known(backend):
    """The load in the hand, in both worlds; all others are the planner's own."""
    envs = gym.make_vec("softgym_envs:ArmHold-v0", num_envs=3, backend=backend)
    envs.reset(seed=2)
    episodes, engine = envs.unwrapped.episodes, system_of_task("ArmHold-v0").simulator()
    own = engine.default_parameters.replace(damping=0.2)
    known = with_drawn(own, episodes, np.repeat(np.arange(3), 2))
    loads = episodes.parameter_values[:, episodes.nominal.index("payload")]
    np.testing.assert_array_equal(known.payload, np.repeat(loads, 2))
    assert len(set(loads)) == 3 and known.replace(payload=own.payload).to_vector().tolist() == own.to_vector().tolist()
    envs.close()


def test_a_round_without_noise_keeps_the_plan():
    """So rounds that narrow to nothing are none."""
    envs = gym.make_vec(f"softgym_envs:{ARM}", num_envs=2)
    observation, _ = envs.reset(seed=2)
    engine = system_of_task(ARM).simulator()
    once, twice, wide = (
        TaskMpc(samples=8, horizon=5, iterations=rounds, narrowing=narrowing).controller(envs.unwrapped, engine)(observation)
        for rounds, narrowing in ((1, 1.0), (2, 0.0), (2, 1.0))
    )
    np.testing.assert_array_equal(twice, once)
    assert not np.array_equal(wide, once)
    envs.close()


def test_parks_the_block():
    """In 3 s. Without a discount and rounds that narrow, it spun the block about its handle and did 0 of 8 in 10 s."""
    settings = TaskMpc(horizon=24, knots=7, samples=64, noise=0.4, iterations=4, narrowing=0.5, temperature=0.05, discount=0.95)
    found = evaluate_controller(
        lambda envs: settings.controller(envs, envs.simulator),
        f"softgym_envs:{BLOCK}",
        episodes=4,
        seed=5,
        keywords={"max_episode_steps": 30},
    )
    assert found.success.sum() >= 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("samples", 1), ("horizon", 1), ("knots", 1), ("iterations", 0), ("replan_every", 0), ("temperature", -0.1),
        ("temperature", np.nan), ("noise", -0.5), ("noise", np.inf), ("noise", "much"), ("knots", 21), ("replan_every", 21),
        ("samples", 8.5), ("narrowing", 1.5), ("narrowing", -0.1), ("discount", 1.01), ("discount", np.nan),
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(OptionError, match=name):
        TaskMpc(**{name: value})


def test_a_single_environment_and_another_robots_engine_are_refused():
    one, many = gym.make("SlidingBlock-v0"), gym.make_vec("SlidingBlock-v0", num_envs=1)
    with pytest.raises(OptionError, match="envs is TimeLimit, expected a SoftgymVectorEnv"):
        TaskMpc().controller(one, many.unwrapped.simulator)
    with pytest.raises(
        OptionError, match="engine is of another robot than envs: its state has 'elbow' where that of envs has 'x'"
    ):
        TaskMpc().controller(many, system("arm").simulator())
    own = many.unwrapped
    for given, said in (({"mass": 1}, "{'mass': 1}"), (system("arm").simulator().default_parameters, "ElbowParameters")):
        for made in (TaskMpc().controller, Observer):
            with pytest.raises(ParameterError, match=f"parameters is {said}.*, expected BlockParameters, or None"):
                made(own, own.simulator, given)


def test_an_engine_whose_steps_do_not_divide_the_control_period_is_refused():
    envs = gym.make_vec(f"softgym_envs:{ARM}", num_envs=2)
    for opened in (TaskMpc().controller, Observer):
        with pytest.raises(
            OptionError, match=r"the control period of envs is 0.02 s, expected a whole number of physics steps"
        ):
            opened(envs.unwrapped, system("arm").simulator(dt=0.03))
        with pytest.raises(ShapeError, match=r"alive has shape \(3,\), expected \(2,\)"):
            opened(envs.unwrapped, system("arm").simulator(), alive=np.ones(3, dtype=np.bool_))


@pytest.mark.parametrize("env_id", ["TensegrityRoll-v0", "SlidingBlock-v0"])
def test_an_environment_of_tensors_is_refused(env_id):
    """On a device no planner sees where episodes begin."""
    pytest.importorskip("torch")
    envs = gym.make_vec(env_id, num_envs=2, output="torch")
    engine = system_of_task(env_id).simulator()
    for made in (TaskMpc().controller, Observer):
        with pytest.raises(OptionError, match=r"envs is .*, expected a SoftgymVectorEnv, as of .* output='numpy'\)"):
            made(envs, engine)


def observed(env_id, rows=4, seed=0, **keywords):
    """Environment, planner's engine and observer of an id."""
    envs = gym.make_vec(f"softgym_envs:{env_id}", num_envs=rows, vectorization_mode="vector_entry_point", **keywords)
    engine = system_of_task(env_id).simulator(envs.simulator.model)
    return envs, engine, Observer(envs, engine, seed=seed)


def test_the_observer_is_a_kalman_filter_where_observations_are_linear():
    """Mean and covariance of the closed form, in one part or four, within the errors of 4,000 samples."""
    envs, engine, _ = observed(ARM, rows=1)
    observer = Observer(envs, engine, members=4000)
    rng, size = np.random.default_rng(0), engine.n
    root, H, seen = rng.standard_normal((size, size)), rng.standard_normal((5, size)), rng.standard_normal((1, 5))
    prior, observer.deviation, observer.drawn = root @ root.T, np.full(5, 0.5), np.array([], dtype=int)
    gain = prior @ H.T @ np.linalg.inv(H @ prior @ H.T + 0.25 * np.eye(5))
    expected, cover = gain @ seen[0], prior - gain @ H @ prior
    for parts in (1, 4):
        members = _Members(*(np.repeat(one, 1, axis=0) for one in observer.first))
        members = members._replace(states=(rng.standard_normal((1, 4000, size)) @ root.T))
        for _ in range(parts):
            members = observer._corrected(np.array([0]), members, members.states @ H.T, seen, parts**0.5)
        found = members.states[0]
        assert np.abs(found.mean(axis=0) - expected).max() < 0.1 * np.sqrt(np.diag(prior)).max()
        np.testing.assert_allclose(np.cov(found.T), cover, atol=0.1 * np.diag(prior).max())
    envs.close()


def test_the_observer_finds_state_goal_and_load():
    """Of an arm that is kicked: the load, up to 2 kg, is known to 50 g after a second; no sensor shows it."""
    envs, engine, observer = observed("ArmHold-v0")
    observation, _ = envs.reset(seed=3)
    rng, load = np.random.default_rng(0), engine.default_parameters.names().index("payload")
    policy = observer.policy(lambda seen: rng.uniform(-1, 1, envs.action_space.shape).astype(np.float32))
    for step in range(50):
        action = policy(observation)
        away = np.abs(observer.episodes.parameter_values - envs.episodes.parameter_values)[:, load]
        assert np.abs(observer.state - envs.state).max() < 0.02
        assert np.abs(observer.context - envs.context)[:, 0].max() < 0.02  # the target [rad]
        assert step or away.max() > 0.5
        observation, *_ = envs.step(action)
    assert away.max() < 0.05
    envs.close()


@pytest.mark.parametrize("latency", [0.0, 0.03])
def test_plans_from_sensors(latency):
    """A planner that sees what policies see holds an unknown load, whose target changes half way; late by 1.5 steps too."""

    def opened(envs):
        engine = system("arm").simulator(envs.simulator.model)
        observer = Observer(envs, engine)
        return observer.policy(TaskMpc(**system("arm").planning_of("ArmHold-v0")).controller(observer, engine))

    keywords = {"action_latency": latency}
    found = evaluate_controller(opened, "softgym_envs:ArmHold-v0", episodes=4, seed=30_000_001, keywords=keywords)
    assert found.success.all()


def test_an_observer_refuses_what_it_does_not_know():
    for keyword, value in {"observation_latency": 0.02, "observation_rate": 10.0}.items():
        with pytest.raises(OptionError, match=keyword):
            observed(ARM, **{keyword: value})
    with pytest.raises(OptionError, match="action_memory"):
        observed(ARM, action_memory=1)
    envs, engine, observer = observed(ARM)
    observation, _ = envs.reset(seed=0)
    for wrong in (observation[:1], observation[:, :3], np.full_like(observation, np.nan)):
        with pytest.raises(ShapeError, match=r"^observation "):
            observer.estimated(wrong)
    for given in ((gym.make(f"softgym_envs:{ARM}"), engine), (envs, system("block").simulator())):
        with pytest.raises(OptionError, match=r"^(envs|engine) is "):
            Observer(*given)
    for name, value in {"members": 2, "accuracy": 0.0, "seed": -1}.items():
        with pytest.raises(OptionError, match=name):
            Observer(envs, engine, **{name: value})
