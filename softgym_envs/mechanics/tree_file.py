"""Trees from TOML files; `load_tree` describes the form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..core.errors import FileFormatError
from ..core.files import number_in, read_toml, text_in
from .tree import Ball, Body, Bond, Frame, Joint, Peg, Pin, Tree, Weld

PARTS: dict[str, tuple[str, type]] = {
    "body": ("bodies", Body),
    "joint": ("joints", Joint),
    "frame": ("frames", Frame),
    "weld": ("constraints", Weld),
    "pin": ("constraints", Pin),
    "bond": ("constraints", Bond),
    "ball": ("balls", Ball),
    "peg": ("pegs", Peg),
}
"""Tables of a file -> what they describe."""
TOP = ("name", "gravity", "actuated")


def load_tree(path: str | Path) -> Tree:
    """Read a tree from a TOML file, in SI units and rad.

    The entries are the fields of `tree.Body`, `Joint`, `Frame`, `Weld`, `Pin`, `Bond`, `Ball` and `Peg`; a string where a
    number may stand is the name of a constant. The form::

        name = "pendulum"
        gravity = [0.0, 0.0, -9.81]        # optional
        actuated = ["hinge"]               # optional

        [[body]]
        name = "rod"
        mass = 1.0
        com = [0.0, 0.0, -0.5]
        inertia = [0.08, 0.08, 0.001]
        [[joint]]
        name = "hinge"
        kind = "revolute"
        parent = "world"
        child = "rod"
        axis = [0.0, 1.0, 0.0]
        damping = "friction"               # a constant
        [[frame]]
        name = "tip"
        body = "rod"
        xyz = [0.0, 0.0, -1.0]
        [[weld]]                           # or [[pin]], [[bond]] with first, second
        name = "clamp"
        frame = "tip"
        xyz = [0.0, 0.0, -1.0]

    Raises:
        FileFormatError: No such file, not TOML, missing or unknown entries, entries of the wrong kind.
        StructureError: The tree is invalid.
    """
    return tree_of(path, read_toml(path))


def tree_of(path: str | Path, document: Mapping[str, Any]) -> Tree:
    """Make a tree from the contents of a file; see `load_tree`."""
    for key in document:
        if key not in (*TOP, *PARTS):
            raise FileFormatError(f"{path}: unknown entry {key!r}; allowed are {', '.join((*TOP, *PARTS))}")
    found: dict[str, list[Any]] = {group: [] for group, _ in PARTS.values()}
    for key, (group, kind) in PARTS.items():
        tables = document.get(key, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise FileFormatError(f"{path}: {key} must be an array of tables, [[{key}]]")
        found[group] += [_build(f"{path}: {key} {index}", kind, table) for index, table in enumerate(tables)]
    top = {key: _plain(f"{path}: {key}", document[key]) for key in ("gravity", "actuated") if key in document}
    name = text_in(f"{path}: name", document.get("name", Path(path).stem))
    return Tree(name=name, **{key: tuple(parts) for key, parts in found.items()}, **top)


def _build(where: str, kind: type, table: dict[str, Any]) -> Any:
    """A part of the tree from its table."""
    known = {field.name for field in fields(kind)}
    for key in table:
        if key not in known:
            raise FileFormatError(f"{where}: unknown entry {key!r}; allowed are {', '.join(sorted(known))}")
    values = {key: _plain(f"{where}: {key}", value) for key, value in table.items()}
    for field in fields(kind):
        default = field.default
        if (
            field.name in values
            and isinstance(values[field.name], tuple) != isinstance(default, tuple)
            and not _free(field.name)
        ):
            raise FileFormatError(f"{where}: {field.name} is {table[field.name]!r}, expected like {default!r}")
    try:
        return kind(**values)
    except TypeError as error:
        raise FileFormatError(f"{where}: {error}") from error


def _free(name: str) -> bool:
    """Whether an entry has no default to compare with."""
    return name in ("name", "kind", "parent", "child", "body", "frame", "first", "second")


def _plain(where: str, value: Any) -> Any:
    """Check numbers and strings, and convert lists of them to tuples."""
    if isinstance(value, list):
        return tuple(part if isinstance(part, str) else number_in(where, part) for part in value)
    return value if isinstance(value, str) else number_in(where, value)
