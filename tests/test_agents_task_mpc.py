"""MPC by a task's own reward."""

import gymnasium as gym
import numpy as np
import pytest

from agents.learning.evaluation import evaluate_controller, zero
from agents.planning.task_mpc import TaskMpc, World
from softgym_envs.core.errors import OptionError
from softgym_envs.rooms import room_of_task

ARM = "ArmReach-v0"


def controller(envs):
    """Plans in our engine, whatever world it drives."""
    return TaskMpc(horizon=15, samples=32).controller(envs, room_of_task(ARM).simulator(envs.simulator.model))


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
    """The same actions and constants, in the planner's world and in the environment: the same sums of rewards."""
    constants = room_of_task(env_id).simulator().default_parameters.replace(**changed)
    envs = gym.make_vec(f"softgym_envs:{env_id}", num_envs=3, **({"params": constants} if changed else {}))
    envs.reset(seed=2)
    inner = envs.unwrapped
    actions = np.random.default_rng(0).uniform(-1, 1, (3, 6, inner.action_space.shape[1])).astype(np.float32)
    world = World(inner.task, inner.simulator, inner.episodes.substeps, constants)
    imagined = world.returns(inner.state, inner.context, actions.astype(np.float64))
    real = sum(envs.step(actions[:, t])[1] for t in range(6))
    np.testing.assert_allclose(imagined, real, rtol=1e-9)
    envs.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("samples", 1), ("horizon", 1), ("knots", 1), ("iterations", 0), ("replan_every", 0), ("temperature", -0.1),
        ("temperature", np.nan), ("noise", -0.5), ("noise", np.inf), ("noise", "much"), ("knots", 21), ("replan_every", 21),
        ("samples", 8.5),
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(OptionError, match=name):
        TaskMpc(**{name: value})
