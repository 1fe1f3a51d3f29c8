"""Registers every id of every system with Gymnasium.

A version is raised by any change of observation, action, reward, end of episode or physics; the old id stays.
"""

from __future__ import annotations

import gymnasium as gym

from ..core.system import WHEN_MADE, System
from ..systems import add, awaits_systems, systems_by_path


def register() -> None:
    """Register the ids of all systems; ids that Gymnasium knows already stay as they are."""
    if _register_awaited not in WHEN_MADE:
        WHEN_MADE.append(_register_awaited)
    for path, system in systems_by_path().items():
        register_system(path, system)


def _register_awaited(system: System) -> None:
    """Register a system by its name while its package, imported before ours, is being imported: no path can be loaded yet."""
    if awaits_systems():
        register_system(system.name, system)


def add_system(path: str) -> System:
    """Add a system that is declared elsewhere and register its ids; all subcommands then know it.

    Args:
        path: "package.module:SYSTEM": a path, so that worker processes find it too.

    Raises:
        OptionError: Nothing is there, it is no system, or another system has its name.
    """
    system = add(path)
    register_system(path, system)
    return system


def register_system(path: str, system: System) -> None:
    """Register the ids of one system.

    Entry points and keywords are strings, so that nothing heavy is imported and a spec can be written as JSON.

    Args:
        path: "package.module:SYSTEM", where the system is declared, or its name.
        system: The system.
    """
    for entry in system.tasks:
        if entry.id not in gym.registry:
            gym.register(
                entry.id,
                entry_point="softgym_envs.envs.env:SoftgymEnv",
                vector_entry_point="softgym_envs.envs.vector_env:make_vector_env",
                max_episode_steps=entry.max_episode_steps,
                kwargs={"system": path, "task": entry.id},
            )
