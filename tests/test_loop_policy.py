"""The committed policy of LoopReach opens by plain PPO.load and reaches goals in both backends, with noise and delay too."""

import gymnasium as gym
import numpy as np
import pytest

from softgym_envs.core.files import read_json

POLICY = "results/loop_reach/policy.zip"
ROWS = 8


def reached(seed, **keywords):
    """How many of `ROWS` episodes succeed within 120 steps of 200."""
    from stable_baselines3 import PPO

    model = PPO.load(POLICY, device="cpu")
    envs = gym.make_vec("softgym_envs:LoopReach-v0", num_envs=ROWS, **keywords)
    observation, _ = envs.reset(seed=seed)
    done = np.zeros(ROWS, dtype=bool)
    for _ in range(120):
        action, _ = model.predict(observation, deterministic=True)
        observation, _, _, _, info = envs.step(action)
        done |= info["is_success"]
        if done.all():
            break
    return int(done.sum())


@pytest.mark.parametrize("keywords", [{}, {"backend": "mujoco"}, {"sensor_noise": 0.02, "action_delay": 1}])
def test_the_policy_reaches_goals(keywords):
    """One that succeeds in 90 % of the episodes fails in four or more of eight with a chance of 0.5 %."""
    pytest.importorskip("stable_baselines3")
    assert reached(40, **keywords) >= ROWS - 3


def test_what_is_stated_of_it():
    stated = read_json("results/loop_reach/evaluation.json")
    for backend in ("native", "mujoco"):
        assert stated[backend]["episodes"] >= 100 and stated[backend]["success"] >= 0.9
