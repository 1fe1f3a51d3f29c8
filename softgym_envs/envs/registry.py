"""The one list of environment ids.

A version is raised by any change of observation, action, reward, end of episode or physics; the old id stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium as gym


@dataclass(frozen=True)
class EnvironmentId:
    """One line of the list."""

    id: str
    build: str
    """"package.module:function" of the room: builds the task and the simulator; its docstring describes the environment."""
    max_episode_steps: int
    """Control steps until truncation."""


ENVIRONMENTS = (
    EnvironmentId("VineGrow-v0", "softgym_envs.vine.build:grow", 150),
    EnvironmentId("VineNavigate-v0", "softgym_envs.vine.build:navigate", 150),
    EnvironmentId("VineSqueeze-v0", "softgym_envs.vine.build:squeeze", 150),
    EnvironmentId("VineWall-v0", "softgym_envs.vine.build:wall", 150),
    EnvironmentId("SlidingBlock-v0", "softgym_envs.rigid.build:sliding_block", 100),
    EnvironmentId("TensegrityRoll-v0", "softgym_envs.tensegrity.build:roll", 50),
    EnvironmentId("TensegrityCrawl-v0", "softgym_envs.tensegrity.build:crawl", 150),
    EnvironmentId("TensegrityWaypoint-v0", "softgym_envs.tensegrity.build:waypoint", 300),
    EnvironmentId("TensegrityTerrain-v0", "softgym_envs.tensegrity.build:terrain", 100),
)


def register() -> None:
    """Tell Gymnasium of every id; ids that it knows already stay as they are.

    Entry points are strings, so that nothing heavy is imported and a spec can be written as JSON.
    """
    for entry in ENVIRONMENTS:
        if entry.id not in gym.registry:
            gym.register(
                entry.id,
                entry_point="softgym_envs.envs.env:SoftgymEnv",
                vector_entry_point="softgym_envs.envs.vector_env:SoftgymVectorEnv",
                max_episode_steps=entry.max_episode_steps,
                kwargs={"build": entry.build},
            )
