"""A study as a TOML file: which room and task, and every field of `Study`.

name = "smoke"
kind = "plan"
conditions = ["zero", "nominal", "truth"]
budgets = [1000]

[case]
room = "..."
task = "..."

[[thresholds]]
condition = "nominal"
quantity = "share"
limit = 0.5
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from softgym_envs.core.errors import OptionError
from softgym_envs.core.files import read_toml
from softgym_envs.core.typed import typed

from .definition import Study, Threshold

T = TypeVar("T")


@dataclass(frozen=True)
class CaseTable:
    """The table [case]: room, task and options of the case; see `.case.RoomCase`."""

    room: str
    task: str
    backend: str = ""
    structure: dict[str, Any] = field(default_factory=dict)
    truth_options: dict[str, Any] = field(default_factory=dict)
    truth_constants: dict[str, float] = field(default_factory=dict)
    recorded_task: str = ""
    sensor: tuple[str, ...] = ()
    stages: dict[str, Any] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)
    learning: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyFile:
    """Contents of a study's file."""

    study: Study
    case: CaseTable


def read_study(path: Path) -> StudyFile:
    """Read a study.

    Raises:
        FileFormatError: The file cannot be read, or is not TOML.
        OptionError: An entry is missing, unknown, or not of its type.
    """
    document = dict(read_toml(path))
    thresholds = document.pop("thresholds", [])
    if not isinstance(thresholds, list):
        raise OptionError(f"{path}: thresholds is {thresholds!r}, expected [[thresholds]] tables")
    promised = tuple(_made(Threshold, f"{path}: thresholds", entry) for entry in thresholds)
    case = _made(CaseTable, f"{path}: case", document.pop("case", {}))
    for name, stage in case.stages.items():
        if not isinstance(stage, Mapping):
            raise OptionError(f"{path}: case: stages.{name} is {stage!r}, expected a table of options")
    return StudyFile(_made(Study, str(path), document, thresholds=promised), case)


def _made(kind: type[T], where: str, table: Any, **more: Any) -> T:
    """Make a dataclass from a table.

    Raises:
        OptionError: An entry is missing, unknown, or not of its type.
    """
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
