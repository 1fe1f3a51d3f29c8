"""The list of systems. Systems of other packages are found through the entry-point group `softgym_envs.systems`.

>>> system("vine").name, [entry.id for entry in system("block").tasks]
('vine', ['SlidingBlock-v0'])
"""

from __future__ import annotations

import warnings
from difflib import get_close_matches
from importlib import metadata
from typing import Any

from ..core.errors import OptionError
from ..core.system import System, TaskId
from ..core.task import load

GROUP = "softgym_envs.systems"
"""Entry-point group: name = "package.module:SYSTEM"."""

LIST = [
    "softgym_envs.systems.vine:SYSTEM",
    "softgym_envs.systems.rigid:BLOCK",
    "softgym_envs.systems.rigid:PARTICLES",
    "softgym_envs.systems.box:SYSTEM",
    "softgym_envs.systems.tensegrity:SYSTEM",
    "softgym_envs.systems.loop:SYSTEM",
    "softgym_envs.systems.arm:SYSTEM",
    "softgym_envs.systems.upper_body:SYSTEM",
]
"""Paths where our systems are declared."""

_FOUND: dict[str, System] = {}
"""Path of a system -> system, in the order of the list."""

_AWAITED: set[str] = set()
"""Paths of entry points whose package is still being imported: it imports ours before it declares its system."""


def systems() -> dict[str, System]:
    """All systems by name."""
    return {system.name: system for system in systems_by_path().values()}


def system(name: str) -> System:
    """A system by its name, or by the path "package.module:SYSTEM" where it is declared.

    Raises:
        OptionError: There is none.
    """
    if ":" in name:
        return _load(name)
    found = systems()
    if name not in found:
        raise OptionError(f"unknown system {name!r}; there are {', '.join(found)}")
    return found[name]


def system_of(simulator: Any) -> System:
    """The system that a simulator's attribute `system` names.

    Raises:
        OptionError: It names none.
    """
    name = getattr(simulator, "system", None)
    if not isinstance(name, str):
        raise OptionError(f"{type(simulator).__name__} says of no system that it belongs to it: give it an attribute `system`")
    return system(name)


def tasks() -> tuple[TaskId, ...]:
    """Every environment id, system by system."""
    return tuple(task for system in systems_by_path().values() for task in system.tasks)


def system_of_task(task_id: str) -> System:
    """The system of an environment id, with or without "softgym_envs:" in front.

    Raises:
        OptionError: No system has it.
    """
    name = task_id.rpartition(":")[2]
    for found in systems_by_path().values():
        if any(task.id == name for task in found.tasks):
            return found
    there = [task.id for task in tasks()]
    like = get_close_matches(name, there, n=1)
    meant = f"; is it {like[0]}?" if like else ""
    own = (
        "" if name == task_id else f"; a package's ids are known where it is installed with an entry point of the group {GROUP}"
    )
    raise OptionError(f"unknown environment {name!r}{meant} (there are {', '.join(there)}{own})")


def add(path: str) -> System:
    """Put a system on the list; `softgym_envs.add_system` registers its ids too.

    Raises:
        OptionError: Nothing is there, it is no system, or another system has its name or one of its ids.
    """
    if not isinstance(path, str):
        raise OptionError(
            f"path is a {type(path).__name__}, expected text that says where the system is: 'package.module:SYSTEM'"
        )
    found = _load(path)
    _check_names(path, found, systems_by_path())
    systems_by_path()[path] = found
    return found


def _check_names(path: str, found: System, others: dict[str, System]) -> None:
    """Raise `OptionError` if another system has the name of this one, or one of its ids."""
    for other in (system for system in others.values() if system is not found):
        if other.name == found.name:
            raise OptionError(f"system {found.name!r} of {path} has the name of another system")
        taken = {task.id for task in other.tasks} & {task.id for task in found.tasks}
        if taken:
            raise OptionError(f"system {found.name!r} of {path} has an id of system {other.name!r}: {', '.join(sorted(taken))}")


def systems_by_path() -> dict[str, System]:
    """All systems by the path of their declaration; other packages' that cannot be loaded are skipped with a warning."""
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
            warnings.warn(f"system {path!r} of another package is left out: {error}", stacklevel=2)
        _AWAITED.discard(path)
    return _FOUND


def awaits_systems() -> bool:
    """Whether a package that declares a system is still being imported."""
    return bool(_AWAITED)


def _load(path: str) -> System:
    if path in _FOUND:
        return _FOUND[path]
    found = load(path)
    if not isinstance(found, System):
        raise OptionError(f"{path!r} is {type(found).__name__}, expected a System; see core/system.py")
    return found
