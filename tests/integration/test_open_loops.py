"""Tasks that need their robot: what a policy did in one episode, done again without looking, is of no use in another."""

import gymnasium as gym
import numpy as np
import pytest

from agents import pretrained
from agents.transfer_study.statistics import share

IDS = ("LoopPeg-v0", "LoopReach-v0", "VineWall-v0")
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
    policy = pretrained(env_id)
    envs = gym.make_vec(f"softgym_envs:{env_id}", num_envs=ROWS, **policy.keywords)
    steps = envs.spec.max_episode_steps
    success, length, actions = episodes(envs, 60, lambda t, observation: policy(observation), steps)
    good = np.flatnonzero(success)[:REPLAYS]
    assert len(good) == REPLAYS
    for row in good:
        kept = actions[: length[row], row]
        again = episodes(envs, 7000, lambda t, _: np.tile(kept[min(t, len(kept) - 1)], (ROWS, 1)), steps)[0]  # noqa: B023
        assert again.mean() <= SHARE, f"actions of episode {row} succeed in {again.sum()} of {ROWS} others"


@pytest.mark.parametrize("level", [1.0, 2.0, 3.0])
def test_replays_that_know_which_way_the_wall_ends_fail(level):
    """What is done is mirrored where the wall ends on the other side: read once, at the reset."""
    policy = pretrained("VineWall-v0")
    envs = gym.make_vec("softgym_envs:VineWall-v0", num_envs=ROWS, level=level, **policy.keywords)
    steps = envs.spec.max_episode_steps

    def mirror():
        """(B, 3): of actions, where the wall ends to the right."""
        world = envs.unwrapped
        side = -np.sign(world.simulator.model.split(world.state).obstacles[:, 0, 1])  # the wall's middle is on the other one
        return np.stack([np.ones(ROWS), side, side], axis=1)

    envs.reset(seed=60)
    before = mirror()
    success, length, actions = episodes(envs, 60, lambda t, observation: policy(observation), steps)
    envs.reset(seed=7000)
    after = mirror()
    for row in np.flatnonzero(success)[:REPLAYS]:
        kept = actions[: length[row], row] * before[row]
        again = episodes(envs, 7000, lambda t, _: kept[min(t, len(kept) - 1)] * after, steps)[0]  # noqa: B023
        found = share(int(again.sum()), ROWS)
        assert found.high <= 0.35, f"actions of episode {row} succeed in {found} of others"
