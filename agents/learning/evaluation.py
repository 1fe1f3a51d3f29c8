"""Whole episodes of a policy, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import OptionError, shown
from softgym_envs.core.simulator import check_number
from softgym_envs.core.system import SET_BY_COMMANDS
from softgym_envs.core.task import load

from ..transfer_study.statistics import Interval, share
from .policy import Network, Policy

Controller = Callable[[Any], Policy]
"""Vector environment -> policy, which may read the environment's internals; see `System.controllers`."""


class Evaluation(NamedTuple):
    """Episodes of a policy."""

    returns: NDArray[np.float64]
    """(E,)"""
    success: NDArray[np.float64]
    """(E,) 1 where the episode succeeded"""
    failed: NDArray[np.float64]
    """(E,) 1 where the simulation failed"""

    @property
    def share(self) -> Interval:
        """Share of successes with its 95 % interval."""
        return share(int(self.success.sum()), len(self.success))

    def table(self) -> dict[str, Any]:
        """Plain numbers for a file."""
        return {
            "episodes": len(self.success),
            "success": self.share.value,
            "success_95": [self.share.low, self.share.high],
            "return_mean": float(self.returns.mean()),
            "return_std": float(self.returns.std()),
            "failed_simulations": int(self.failed.sum()),
            "seeds_without_success": np.flatnonzero(self.success == 0).tolist(),
        }

    def __str__(self) -> str:
        return f"success {self.share}, return {self.returns.mean():.3f} ± {self.returns.std():.3f}"


def evaluate(
    policy: Policy | None, env_id: str, *, episodes: int, seed: int, keywords: Mapping[str, Any] | None = None
) -> Evaluation:
    """Returns of whole episodes of a policy, or of no action (None); see `evaluate_controller`.

    Raises:
        OptionError: As `evaluate_controller`, or the policy's contract does not fit the environment.
    """

    def opened(envs: Any) -> Policy:
        if policy is None:
            return zero(envs)
        if isinstance(policy, Network):
            policy.check(envs)
        return policy

    return evaluate_controller(opened, env_id, episodes=episodes, seed=seed, keywords=keywords)


def zero(envs: Any) -> Policy:
    """Controller of zero actions."""
    return lambda observation: np.zeros(envs.action_space.shape, dtype=np.float32)


def uniform(envs: Any) -> Policy:
    """Controller of uniform random actions, new in every step and reproducible."""
    rng, shape = np.random.default_rng(0), envs.action_space.shape
    return lambda observation: rng.uniform(-1.0, 1.0, shape).astype(np.float32)


def controller_of(path: str) -> Controller:
    """The controller of the user's own that "package.module:function" names.

    Raises:
        OptionError: There is none, or it makes no policy.
    """
    found = load(path)

    def opened(envs: Any) -> Policy:
        policy = found(envs) if callable(found) else None
        if not callable(policy):
            made = f"made {shown(policy)}" if callable(found) else f"is {shown(found)}"
            expected = "a function (envs) -> (observations (B, no) -> actions (B, na))"
            raise OptionError(f"policy {path!r} {made}, expected {expected}")
        return policy  # type: ignore[no-any-return]

    return opened


def evaluate_controller(
    controller: Controller,
    env_id: str,
    *,
    episodes: int,
    seed: int,
    keywords: Mapping[str, Any] | None = None,
    alive: NDArray[np.bool_] | None = None,
) -> Evaluation:
    """Returns of whole episodes, all side by side: episode i starts from seed + i, for every controller.

    Args:
        controller: See `Controller`.
        env_id: Id of the environment.
        episodes: E
        seed: Seed of the first episode.
        keywords: Keywords of `gym.make_vec`, e.g. backend="mujoco".
        alive: (E,) becomes False where an episode ends, so that a planner can leave out these rows; True at the start.

    Raises:
        OptionError: `episodes` is not positive, `seed` is negative, a keyword is set here, the environment does not end by
            itself, or the controller steps or resets it.
    """
    check_free(keywords or {})
    check_number("episodes", episodes, low=1, whole=True)
    check_number("seed", seed, low=0, whole=True)
    envs = gym.make_vec(env_id, num_envs=episodes, autoreset_mode="next_step", **dict(keywords or {}))
    try:
        limit = None if envs.spec is None else envs.spec.max_episode_steps
        if limit is None:
            raise OptionError(f"{env_id} has no max_episode_steps: its episodes need not end")
        observation, _ = envs.reset(seed=seed)
        alive = np.ones(episodes, dtype=np.bool_) if alive is None else alive
        returns = np.zeros(episodes)
        success, failed = np.zeros(episodes), np.zeros(episodes)
        before, policy = _place(envs), controller(envs.unwrapped)
        for _ in range(limit):
            action = policy(observation)
            if _place(envs) != before:
                raise OptionError(
                    "the controller stepped or reset the environment that it drives: look ahead in a copy, copy.deepcopy(envs)"
                )
            observation, reward, terminated, truncated, info = envs.step(action)
            before = _place(envs)
            returns += np.where(alive, reward, 0.0)
            success = np.where(alive, info["is_success"], success)
            failed = np.where(alive, info["sim_failed"], failed)
            alive &= ~np.logical_or(terminated, truncated)
            if not alive.any():
                break
    finally:
        envs.close()
    return Evaluation(returns, np.asarray(success, dtype=np.float64), np.asarray(failed, dtype=np.float64))


def _place(envs: Any) -> list[bytes]:
    """Where the episodes of an environment are."""
    episodes = envs.unwrapped.episodes
    return [array.tobytes() for array in (episodes.steps, episodes.state, episodes.context)]


def interface_played(env_id: str, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of the interface that an environment plays: those of its file included, sensors that it lacks left out."""
    env: Any = gym.make(env_id, **keywords)
    played: dict[str, Any] = env.unwrapped.episodes.settings.table()
    env.close()
    return played


def check_free(keywords: Mapping[str, Any]) -> None:
    """Check that keywords leave out what trainings and evaluations set themselves.

    Raises:
        OptionError: They do not.
    """
    for name in SET_BY_COMMANDS:
        if name in keywords:
            raise OptionError(f"{name} is {shown(keywords[name])}, which trainings and evaluations set: leave it out")


def check_keywords(env_id: str, keywords: Mapping[str, Any]) -> None:
    """Raise the error of making this environment, if there is one."""
    gym.make(env_id, **keywords).close()
