"""A study as a TOML file: which system and task, and every field of `Study`.

name = "smoke"
kind = "plan"
conditions = ["zero", "nominal", "ground_truth"]
budgets = [1000]

[repeats]
seeds = 3

[planning]
horizon = 50

[case]
system = "..."
task = "..."

[[thresholds]]
condition = "nominal"
quantity = "score"
limit = 0.5
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from softgym_envs.core.errors import OptionError
from softgym_envs.core.files import read_toml
from softgym_envs.core.system import System
from softgym_envs.core.task import load
from softgym_envs.core.typed import typed
from softgym_envs.systems import system, systems

from .definition import GROUPS, Study, Threshold
from .task import TransferTask

T = TypeVar("T")


class StudyFile(NamedTuple):
    """Contents of a study's file."""

    study: Study
    case: TransferTask


def read_study(path: Path) -> StudyFile:
    """Read a study.

    Raises:
        FileFormatError: The file cannot be read, or is not TOML.
        OptionError: An entry is missing, unknown, or not of its type; or the system has no such task.
    """
    document = dict(read_toml(path))
    thresholds = document.pop("thresholds", [])
    if not isinstance(thresholds, list):
        raise OptionError(f"{path}: thresholds is {thresholds!r}, expected [[thresholds]] tables")
    promised = tuple(_made(Threshold, f"{path}: thresholds", entry) for entry in thresholds)
    where, table = f"{path}: case", document.pop("case", {})
    groups = {name: _made(kind, f"{path}: {name}", document.pop(name, {})) for name, kind in GROUPS.items()}
    study = _made(Study, str(path), document, thresholds=promised, **groups)
    stages = table.get("stages") if isinstance(table, Mapping) else None
    for name, stage in stages.items() if isinstance(stages, Mapping) else ():
        if not isinstance(stage, Mapping):
            raise OptionError(f"{where}: stages.{name} is {stage!r}, expected a table of options")
    given = isinstance(table, Mapping) and "system" in table
    return StudyFile(study, _made(TransferTask, where, table, **({"system": _system(where, table["system"])} if given else {})))


def _system(where: str, name: Any) -> System:
    """The system that a study names, put on the list of systems if it is a path."""
    found = system(typed(f"{where}: system", name, str))
    return found if found.name in systems() else load("softgym_envs:add_system")(name)


def _made(kind: type[T], where: str, table: Any, **more: Any) -> T:
    """Make a dataclass from a table."""
    if not isinstance(table, Mapping):
        raise OptionError(f"{where} is {table!r}, expected a table")
    hints, given = typing.get_type_hints(kind), {**table, **more}
    allowed = {entry.name: entry for entry in fields(kind)}  # type: ignore[arg-type]
    for name in given:
        if name not in allowed:
            raise OptionError(f"{where} has {name!r}; allowed are {', '.join(allowed)}")
    values = {name: more[name] if name in more else typed(f"{where}: {name}", table[name], hints[name]) for name in given}
    try:
        return kind(**values)
    except TypeError as error:  # of a dataclass: it names what is missing
        raise OptionError(f"{where}: {str(error).partition('__init__() ')[2] or error}") from error
