"""Tasks that need their robot: what a policy did in one episode, done again without looking, is of no use in another."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from agents.learning.policy import load_policy, observed_with

IDS = ("LoopPeg-v0", "LoopReach-v0")
ROWS, REPLAYS, SHARE = 64, 3, 0.3


def episodes(envs, seed, act, steps):
    """Whether each succeeds, how long it is, and all actions (T, B, m); act(t, observation)."""
    observation, _ = envs.reset(seed=seed)
    success, ended, length, actions = np.zeros(ROWS, bool), np.zeros(ROWS, bool), np.full(ROWS, steps), []
    for t in range(steps):
        actions.append(act(t, observation))
        observation, _, terminated, truncated, info = envs.step(actions[-1])
        now = (terminated | truncated) & ~ended
        success[now], length[now] = info["is_success"][now], t + 1
        ended |= now
        if ended.all():
            break
    return success, length, np.array(actions)


@pytest.mark.parametrize("env_id", IDS)
def test_replays_fail(env_id):
    """The last action of an episode is held on."""
    pytest.importorskip("stable_baselines3")
    file = Path(f"results/policies/{env_id}.zip")
    envs = gym.make_vec(f"softgym_envs:{env_id}", num_envs=ROWS, **observed_with(file))
    policy, steps = load_policy(file), envs.spec.max_episode_steps
    success, length, actions = episodes(envs, 60, lambda t, observation: policy(observation), steps)
    good = np.flatnonzero(success)[:REPLAYS]
    assert len(good) == REPLAYS
    for row in good:
        kept = actions[: length[row], row]
        again = episodes(envs, 7000, lambda t, _: np.tile(kept[min(t, len(kept) - 1)], (ROWS, 1)), steps)[0]  # noqa: B023
        assert again.mean() <= SHARE, f"actions of episode {row} succeed in {again.sum()} of {ROWS} others"
