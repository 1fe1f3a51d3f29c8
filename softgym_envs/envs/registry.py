"""Registers every id of every room with Gymnasium.

A version is raised by any change of observation, action, reward, end of episode or physics; the old id stays.
"""

from __future__ import annotations

import gymnasium as gym

from ..core.room import WHEN_MADE, Room
from ..rooms import add, awaits_rooms, rooms_by_path


def register() -> None:
    """Register the ids of all rooms; ids that Gymnasium knows already stay as they are."""
    if _register_awaited not in WHEN_MADE:
        WHEN_MADE.append(_register_awaited)
    for path, room in rooms_by_path().items():
        register_room(path, room)


def _register_awaited(room: Room) -> None:
    """Register a room by its name while its package, imported before ours, is being imported: its path cannot be loaded yet."""
    if awaits_rooms():
        register_room(room.name, room)


def add_room(path: str) -> Room:
    """Add a room that is declared elsewhere and register its ids; all verbs then know it.

    Args:
        path: "package.module:ROOM": a path, so that worker processes find it too.

    Raises:
        OptionError: Nothing is there, it is no room, or another room has its name.
    """
    room = add(path)
    register_room(path, room)
    return room


def register_room(path: str, room: Room) -> None:
    """Register the ids of one room.

    Entry points and keywords are strings, so that nothing heavy is imported and a spec can be written as JSON.

    Args:
        path: "package.module:ROOM", where the room is declared, or its name.
        room: The room.
    """
    for entry in room.tasks:
        if entry.id not in gym.registry:
            gym.register(
                entry.id,
                entry_point="softgym_envs.envs.env:SoftgymEnv",
                vector_entry_point="softgym_envs.envs.vector_env:SoftgymVectorEnv",
                max_episode_steps=entry.max_episode_steps,
                kwargs={"room": path, "task": entry.id},
            )
