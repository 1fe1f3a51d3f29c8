"""Long walks of every id, world and observation."""

import inspect

import gymnasium as gym
import numpy as np
import pytest
from helpers import WORLDS, actions_of, system_of_id

import softgym_envs  # noqa: F401  (registers the ids)
from softgym_envs.core.task import load


def obs_modes(env_id):
    """Those of the id; ("",) if it has but one."""
    build = load(system_of_id(env_id).task(env_id).build)
    return ("sensors", "state") if "obs_mode" in inspect.signature(build).parameters else ("",)


WALKS = [(env_id, backend, obs_mode) for env_id, backend in WORLDS for obs_mode in obs_modes(env_id)]


@pytest.mark.parametrize(("env_id", "backend", "obs_mode"), WALKS, ids=["-".join(filter(None, walk[::-1])) for walk in WALKS])
def test_200_random_steps(env_id, backend, obs_mode):
    """Spaces hold, rewards are finite and the sum of their terms, no observation entry is constant."""
    keywords = {"obs_mode": obs_mode} if obs_mode else {}
    env = gym.make(env_id, backend=backend, max_episode_steps=50, **keywords)
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
