"""The list of rooms. Rooms of other packages are found through the entry-point group `softgym_envs.rooms`.

>>> room("vine").name, [entry.id for entry in room("block").tasks]
('vine', ['SlidingBlock-v0'])
"""

from __future__ import annotations

import warnings
from difflib import get_close_matches
from importlib import metadata
from typing import Any

from .core.errors import OptionError
from .core.room import Room, TaskId
from .core.task import load

GROUP = "softgym_envs.rooms"
"""Entry-point group: name = "package.module:ROOM"."""

LIST = [
    "softgym_envs.vine:ROOM",
    "softgym_envs.rigid:BLOCK",
    "softgym_envs.rigid:PARTICLES",
    "softgym_envs.box:ROOM",
    "softgym_envs.tensegrity:ROOM",
    "softgym_envs.loop:ROOM",
    "softgym_envs.arm:ROOM",
    "softgym_envs.upper_body:ROOM",
]
"""Paths where our rooms are declared."""

_FOUND: dict[str, Room] = {}
"""Path of a room -> room, in the order of the list."""

_AWAITED: set[str] = set()
"""Paths of entry points whose package is still being imported: it imports ours before it declares its room."""


def rooms() -> dict[str, Room]:
    """All rooms by name."""
    return {room.name: room for room in rooms_by_path().values()}


def room(name: str) -> Room:
    """A room by its name, or by the path "package.module:ROOM" where it is declared.

    Raises:
        OptionError: There is none.
    """
    if ":" in name:
        return _load(name)
    found = rooms()
    if name not in found:
        raise OptionError(f"unknown room {name!r}; there are {', '.join(found)}")
    return found[name]


def room_of(simulator: Any) -> Room:
    """The room that a simulator's attribute `room` names.

    Raises:
        OptionError: It names none.
    """
    name = getattr(simulator, "room", None)
    if not isinstance(name, str):
        raise OptionError(f"{type(simulator).__name__} says of no room that it belongs to it: give it an attribute `room`")
    return room(name)


def tasks() -> tuple[TaskId, ...]:
    """Every environment id, room by room."""
    return tuple(task for room in rooms_by_path().values() for task in room.tasks)


def room_of_task(task_id: str) -> Room:
    """The room of an environment id, with or without "softgym_envs:" in front.

    Raises:
        OptionError: No room has it.
    """
    name = task_id.rpartition(":")[2]
    for found in rooms_by_path().values():
        if any(task.id == name for task in found.tasks):
            return found
    there = [task.id for task in tasks()]
    like = get_close_matches(name, there, n=1)
    meant = f"; is it {like[0]}?" if like else ""
    own = (
        "" if name == task_id else f"; a package's ids are known where it is installed with an entry point of the group {GROUP}"
    )
    raise OptionError(f"unknown environment {name!r}{meant} (there are {', '.join(there)}{own})")


def add(path: str) -> Room:
    """Put a room on the list; `softgym_envs.add_room` registers its ids too.

    Raises:
        OptionError: Nothing is there, it is no room, or another room has its name or one of its ids.
    """
    if not isinstance(path, str):
        raise OptionError(f"path is a {type(path).__name__}, expected text that says where the room is: 'package.module:ROOM'")
    found = _load(path)
    _check_names(path, found, rooms_by_path())
    rooms_by_path()[path] = found
    return found


def _check_names(path: str, found: Room, others: dict[str, Room]) -> None:
    """Raise `OptionError` if another room has the name of this one, or one of its ids."""
    for other in (room for room in others.values() if room is not found):
        if other.name == found.name:
            raise OptionError(f"room {found.name!r} of {path} has the name of another room")
        taken = {task.id for task in other.tasks} & {task.id for task in found.tasks}
        if taken:
            raise OptionError(f"room {found.name!r} of {path} has an id of room {other.name!r}: {', '.join(sorted(taken))}")


def rooms_by_path() -> dict[str, Room]:
    """All rooms by the path of their declaration; rooms of other packages that cannot be loaded are skipped with a warning."""
    paths = sorted(_AWAITED)
    if not _FOUND:
        _FOUND.update({path: _load(path) for path in LIST})
        paths = [entry.value for entry in metadata.entry_points(group=GROUP)]
    for path in paths:
        try:
            found = _load(path)
            _check_names(path, found, _FOUND)
            _FOUND[path] = found
        except Exception as error:  # somebody else's package must not break ours
            if "partially initialized" in str(error):
                _AWAITED.add(path)
                continue
            warnings.warn(f"room {path!r} of another package is left out: {error}", stacklevel=2)
        _AWAITED.discard(path)
    return _FOUND


def awaits_rooms() -> bool:
    """Whether a package that declares a room is still being imported."""
    return bool(_AWAITED)


def _load(path: str) -> Room:
    if path in _FOUND:
        return _FOUND[path]
    found = load(path)
    if not isinstance(found, Room):
        raise OptionError(f"{path!r} is {type(found).__name__}, expected a Room; see core/room.py")
    return found
