"""Systems that are added by hand: bad paths, and names and ids that another system has, are refused."""

from __future__ import annotations

import sys
import types
from dataclasses import replace
from typing import Any

import pytest

import softgym_envs
from softgym_envs.core.errors import OptionError
from softgym_envs.systems import system, systems


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module for systems of somebody else."""
    module = types.ModuleType("systems_of_somebody_else")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "elbow_of_mine"}, "has an id of system 'arm': ArmHold-v0, ArmReach-v0"),
        ({"tasks": ()}, "has the name of another system"),
    ],
)
def test_names_and_ids_of_another_system_are_refused(other: Any, changes: dict[str, Any], words: str) -> None:
    """Before, an id that was there already stayed the other system's, and nothing said so."""
    other.SYSTEM, before = replace(system("arm"), **changes), set(systems())
    with pytest.raises(OptionError, match=words):
        softgym_envs.add_system("systems_of_somebody_else:SYSTEM")
    assert set(systems()) == before


def test_a_system_that_is_no_path_is_refused() -> None:
    wrong: Any = system("vine")
    with pytest.raises(OptionError, match="path is a System, expected text"):
        softgym_envs.add_system(wrong)


OTHER = [path for entry in systems().values() for path in (entry.engine, *entry.ground_truths.values())]


@pytest.mark.parametrize("name", systems())
def test_a_simulator_of_another_system_is_no_backend(name: str) -> None:
    """Before, some were taken, with the names of the model that they were given; others ended in an AttributeError."""
    own = system(name)
    for path in set(OTHER) - {own.engine, *own.ground_truths.values()}:
        with pytest.raises(OptionError, match=f"is a simulator of system '[a-z_]+', this is {name!r}"):
            own.simulator(backend=path)


@pytest.mark.parametrize("path", ["math:pi", "os:path", "builtins:dict", "builtins:print", "numpy:array", "operator:neg"])
def test_what_makes_no_simulator_is_no_backend(path: str) -> None:
    with pytest.raises(OptionError, match=f"backend '{path}'"):
        system("block").simulator(backend=path)
