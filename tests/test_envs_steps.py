"""Long walks of every id, world and observation."""

import gymnasium as gym
import numpy as np
import pytest
from helpers import EVERY_WORLD, actions_of

import softgym_envs  # noqa: F401  (registers the ids)


@EVERY_WORLD
@pytest.mark.parametrize("obs_mode", ["sensors", "state"])
def test_200_random_steps(env_id, backend, obs_mode):
    """Spaces hold, rewards are finite and the sum of their terms, no observation entry is constant."""
    env = gym.make(env_id, backend=backend, obs_mode=obs_mode, max_episode_steps=50)
    observed = [env.reset(seed=1)[0]]
    assert len({entry.name for entry in env.unwrapped.task.entries}) == len(observed[0])
    for action in actions_of(env, 200):
        observation, reward, terminated, truncated, info = env.step(action)
        assert env.observation_space.contains(observation)
        terms = [value for name, value in info.items() if name.startswith("reward_")]
        assert np.isfinite(reward) and reward == pytest.approx(sum(terms), rel=1e-12, abs=1e-12)
        assert not info["sim_failed"]
        observed.append(observation)
        if terminated or truncated:
            observed.append(env.reset()[0])
    names = [entry.name for entry in env.unwrapped.task.entries]
    constant = [name for name, span in zip(names, np.ptp(observed, axis=0), strict=True) if span == 0]
    assert constant == []
