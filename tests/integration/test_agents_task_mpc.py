"""MPC by a task's own reward."""

import gymnasium as gym
import numpy as np
import pytest

from agents.control.task_mpc import TaskMpc, World, with_drawn
from agents.learning.evaluation import evaluate_controller, zero
from softgym_envs.core.errors import OptionError
from softgym_envs.systems import system, system_of_task

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
