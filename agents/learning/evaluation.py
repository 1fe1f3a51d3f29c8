"""Whole episodes of a policy, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import OptionError

from .policy import Policy


class Evaluation(NamedTuple):
    """Episodes of a policy."""

    returns: NDArray[np.float64]
    """(E,)"""
    success: NDArray[np.float64]
    """(E,) 1 where the episode ended in success"""
    failed: NDArray[np.float64]
    """(E,) 1 where the simulation failed"""


def evaluate(
    policy: Policy | None, env_id: str, *, episodes: int, seed: int, keywords: Mapping[str, Any] | None = None
) -> Evaluation:
    """Returns of whole episodes, all side by side: episode i begins from seed + i, whatever the policy.

    Args:
        policy: See `agents.learning.policy`; None: no action.
        env_id: Of the environment.
        episodes: E
        seed: Of the first episode.
        keywords: Of `gym.make_vec`, e.g. backend="mujoco".

    Raises:
        OptionError: `episodes` is not positive, or the environment does not end by itself.
    """
    if episodes < 1:
        raise OptionError(f"episodes is {episodes}, allowed is >= 1")
    envs = gym.make_vec(env_id, num_envs=episodes, autoreset_mode="next_step", **dict(keywords or {}))
    try:
        limit = None if envs.spec is None else envs.spec.max_episode_steps
        if limit is None:
            raise OptionError(f"{env_id} has no max_episode_steps: its episodes need not end")
        observation, _ = envs.reset(seed=seed)
        alive, returns = np.ones(episodes, dtype=np.bool_), np.zeros(episodes)
        success, failed = np.zeros(episodes), np.zeros(episodes)
        zero = np.zeros((episodes, *(envs.single_action_space.shape or ())), dtype=np.float32)
        for _ in range(limit):
            action = zero if policy is None else policy(observation)
            observation, reward, terminated, truncated, info = envs.step(action)
            returns += np.where(alive, reward, 0.0)
            success = np.where(alive, info["is_success"], success)
            failed = np.where(alive, info["sim_failed"], failed)
            alive &= ~np.logical_or(terminated, truncated)
            if not alive.any():
                break
    finally:
        envs.close()
    return Evaluation(returns, np.asarray(success, dtype=np.float64), np.asarray(failed, dtype=np.float64))
