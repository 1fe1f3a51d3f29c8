"""The committed policies of the loop's tasks succeed in both backends, with noise and delay too."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from helpers import late

from agents.learning.policy import load_policy, observed_with

IDS = ("LoopReach-v0", "LoopBend-v0", "LoopPeg-v0", "LoopIdentify-v0")
ROWS = 8


def succeeded(env_id, seed, **keywords):
    """How many of `ROWS` episodes do."""
    file = Path(f"agents/policies/{env_id}.npz")
    policy = load_policy(file)
    envs = gym.make_vec(f"softgym_envs:{env_id}", num_envs=ROWS, **observed_with(file), **keywords)
    observation, _ = envs.reset(seed=seed)
    done = np.zeros(ROWS, dtype=bool)
    for _ in range(200):
        observation, _, _, _, info = envs.step(policy(observation))
        done |= info["is_success"]
        if done.all():
            break
    return int(done.sum())


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize(("keywords", "steps"), [({}, 0), ({"backend": "mujoco"}, 0), ({"sensor_noise": 0.02}, 1)])
def test_the_policy_succeeds(env_id, keywords, steps):
    """One that succeeds in 90 % of the episodes fails in four or more of eight with a chance of 0.5 %."""
    assert succeeded(env_id, 40, **keywords, **late(env_id, steps)) >= ROWS - 3


@pytest.mark.parametrize("env_id", ["LoopBend-v0", "LoopPeg-v0"])
def test_two_steps_late(env_id):
    """As they learned, and as the cards state."""
    assert succeeded(env_id, 41, sensor_noise=0.02, **late(env_id, 2)) >= ROWS - 3
