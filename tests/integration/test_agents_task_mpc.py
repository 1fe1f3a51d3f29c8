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
    imagined = world.returns(inner.state, inner.context, actions.astype(np.float64))
    real = sum(envs.step(actions[:, t])[1] for t in range(6))
    np.testing.assert_allclose(imagined, real, rtol=1e-9)
    envs.close()


def test_later_rewards_weigh_less_with_a_discount():
    envs = gym.make_vec(f"softgym_envs:{ARM}", num_envs=3)
    envs.reset(seed=2)
    inner = envs.unwrapped
    actions = np.random.default_rng(0).uniform(-1, 1, (3, 6, 2)).astype(np.float32)
    world = World(inner.task, inner.simulator, inner.episodes.substeps, inner.simulator.default_parameters)
    imagined = world.returns(inner.state, inner.context, actions.astype(np.float64), 0.7)
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
    known = with_drawn(own, episodes, 2)
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
