"""Arms from TOML files: bones, joints, and the muscles that move them; `load_arm` describes the form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..core.files import check_entries, made_each, read_toml
from ..core.parameters import Parameters
from ..mechanics.tree import Tree
from ..mechanics.tree_file import PARTS, TOP, tree_of
from .paths import Muscle, Muscles
from .surfaces import Surface

TABLES = ("surface", "muscle")
"""Arrays of tables that describe muscles."""


class Arm(NamedTuple):
    """Contents of a file."""

    tree: Tree
    muscles: Muscles | None
    """Muscles; None: the file has none."""
    rest: Mapping[str, Any]
    """Entries of the system, "parameters" among them."""


def load_arm(path: str | Path, *own: str) -> Arm:
    """Read an arm from a TOML file, in SI units and rad.

    Bones and joints are as in `mechanics.tree_file.load_tree`; with them, as fields of `Surface` and `Muscle`::

        [[surface]]
        name = "front"
        kind = "cylinder"                  # or sphere, capsule, ellipsoid
        body = "humerus"
        size = [0.022]
        rpy = [1.5707963267948966, 0, 0]   # a cylinder lies along its z axis
        [[muscle]]
        name = "biceps"
        kind = "hill"                      # force, optimal; or "pneumatic": thread, turns, pressure
        origin_body = "humerus"
        origin = [0.025, 0.0, 0.25]
        insertion_body = "forearm"
        insertion = [0.008, 0.0, -0.045]
        surfaces = ["front"]
        sides = [[0.2, 0.0, 0.0]]          # a point in each surface's frame, on the side where the muscle passes
        force = 1059.9                     # [N]
        optimal = 0.1157                   # [m]
        slack = 0.148                      # [m] of the tendon
        [parameters]                        # optional: of the system, in its units; they replace the defaults
        payload = 1.5

    Args:
        path: The file.
        own: Further entries that the system allows, with [parameters].

    Raises:
        FileFormatError: No such file, not TOML, missing or unknown entries, entries of the wrong kind.
        StructureError: Tree, surfaces or muscles make no sense.
    """
    document = check_entries(str(path), read_toml(path), (*TOP, *PARTS, *TABLES, "parameters", *own))
    parts: list[dict[str, Any]] = [
        {key: value for key, value in document.items() if key in names}
        for names in ((*TOP, *PARTS), TABLES, ("parameters", *own))
    ]
    return Arm(tree_of(path, parts[0]), muscles_of(path, parts[1]) if parts[1] else None, parts[2])


def constants_of(path: str | Path, arm: Arm, kind: type[Parameters]) -> tuple[tuple[str, float], ...]:
    """Names and values of a file's [parameters].

    Raises:
        FileFormatError: They are no table, or not numbers.
        ParameterError: An unknown parameter, or one in another unit or out of its bounds.
    """
    table = kind.read_table(path, arm.rest.get("parameters", {}))
    kind(**table)
    return tuple(table.items())


def load_muscles(path: str | Path) -> Muscles:
    """Read only surfaces and muscles, for a tree in another file; see `load_arm`, also for errors."""
    return muscles_of(path, check_entries(str(path), read_toml(path), TABLES))


def muscles_of(path: str | Path, document: Mapping[str, Any]) -> Muscles:
    """Surfaces and muscles from a file's contents; see `load_arm`, also for errors."""
    return Muscles(made_each(path, document, "surface", Surface), made_each(path, document, "muscle", Muscle))
