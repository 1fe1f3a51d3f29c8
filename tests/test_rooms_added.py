"""Rooms that are added by hand: bad paths, and names and ids that another room has, are refused."""

from __future__ import annotations

import sys
import types
from dataclasses import replace
from typing import Any

import pytest

import softgym_envs
from softgym_envs.core.errors import OptionError
from softgym_envs.rooms import room, rooms


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module for rooms of somebody else."""
    module = types.ModuleType("rooms_of_somebody_else")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "elbow_of_mine"}, "has an id of room 'arm': ArmHold-v0, ArmReach-v0"),
        ({"tasks": ()}, "has the name of another room"),
    ],
)
def test_names_and_ids_of_another_room_are_refused(other: Any, changes: dict[str, Any], words: str) -> None:
    """Before, an id that was there already stayed the other room's, and nothing said so."""
    other.ROOM, before = replace(room("arm"), **changes), set(rooms())
    with pytest.raises(OptionError, match=words):
        softgym_envs.add_room("rooms_of_somebody_else:ROOM")
    assert set(rooms()) == before


def test_a_room_that_is_no_path_is_refused() -> None:
    wrong: Any = room("vine")
    with pytest.raises(OptionError, match="path is a Room, expected text"):
        softgym_envs.add_room(wrong)


OTHER = [path for entry in rooms().values() for path in (entry.engine, *entry.truths.values())]


@pytest.mark.parametrize("name", rooms())
def test_a_simulator_of_another_room_is_no_backend(name: str) -> None:
    """Before, some were taken, with the names of the model that they were given; others ended in an AttributeError."""
    own = room(name)
    for path in set(OTHER) - {own.engine, *own.truths.values()}:
        with pytest.raises(OptionError, match=f"is a simulator of room '[a-z_]+', this is {name!r}"):
            own.simulator(backend=path)


@pytest.mark.parametrize("path", ["math:pi", "os:path", "builtins:dict", "builtins:print", "numpy:array", "operator:neg"])
def test_what_makes_no_simulator_is_no_backend(path: str) -> None:
    with pytest.raises(OptionError, match=f"backend '{path}'"):
        room("block").simulator(backend=path)
