"""Trees from TOML files; `load_tree` describes the form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.files import check_entries, made, made_each, read_toml
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
    number may stand is the name of a parameter. The form::

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
        damping = "friction"               # a parameter
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
    check_entries(str(path), document, (*TOP, *PARTS))
    found: dict[str, tuple[Any, ...]] = {}
    for key, (group, kind) in PARTS.items():
        found[group] = (*found.get(group, ()), *made_each(path, document, key, kind))
    return made(str(path), {"name": Path(path).stem, **{key: document[key] for key in TOP if key in document}}, Tree, **found)
