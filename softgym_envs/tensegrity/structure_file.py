"""Rod-cable structures from TOML files; `load_structure` describes the form."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import FileFormatError, StructureError, shown
from ..core.files import check_entries, doubled, number_in, read_toml, text_in
from .model import TensegrityModel
from .parameters import TensegrityBody

Points = dict[str, list[float]]

PARTS = {"rods": ("nodes",), "cables": ("name", "nodes", "stiffness_ratio", "rest_ratio")}
"""Entries of a rod and of a cable."""
ALLOWED = ("name", "actuated", "rod_radius", "cap_radius", "control_limit", "constants", "nodes", "rods", "cables")
"""Entries of a file."""


def load_structure(path: str | Path) -> TensegrityModel:
    """Read a rod-cable structure from a TOML file, with lengths in m.

    The form::

        name = "my prism"
        actuated = ["tie0", "tie1"]        # optional; all cables where it is missing
        rod_radius = 0.01                  # optional, as cap_radius and control_limit

        [constants]                        # optional, of `TensegrityBody`, in its units; they replace the defaults
        rod_mass = 0.5
        rest_length = 0.3
        cable_stiffness = 500.0            # light rods with stiff cables need steps below 1 ms
        cable_damping = 10.0

        [nodes]                            # a guess of the rest pose, see `statics.find_form`
        a0 = [0.25, 0.0, 0.0]
        a1 = [-0.125, 0.2165, 0.0]
        a2 = [-0.125, -0.2165, 0.0]
        b0 = [-0.2165, 0.125, 0.4]
        b1 = [0.0, -0.25, 0.4]
        b2 = [0.2165, 0.125, 0.4]

        [[rods]]
        nodes = ["a0", "b0"]
        [[rods]]
        nodes = ["a1", "b1"]
        [[rods]]
        nodes = ["a2", "b2"]

        [[cables]]
        nodes = ["a0", "a1"]
        [[cables]]
        nodes = ["a1", "a2"]
        [[cables]]
        nodes = ["a2", "a0"]
        [[cables]]
        nodes = ["b0", "b1"]
        [[cables]]
        nodes = ["b1", "b2"]
        [[cables]]
        nodes = ["b2", "b0"]
        [[cables]]
        name = "tie0"                      # optional; `actuated` needs it
        nodes = ["a0", "b2"]
        stiffness_ratio = 1.0              # optional, as rest_ratio
        [[cables]]
        name = "tie1"
        nodes = ["a1", "b0"]
        [[cables]]
        nodes = ["a2", "b1"]

    Every node is the end of exactly one rod. Columns of recordings count from 0 in the order of the file, whatever the names:
    rod0.x, node0.x (the first rod's first end), node1.x, control:cable6 for tie0.

    Raises:
        FileFormatError: No such file, not TOML, missing or unknown entries, entries of the wrong kind.
        ParameterError: An unknown constant, or one in another unit.
        StructureError: The structure makes no sense: dangling cable, node without rod, ...
    """
    document = read_toml(path)
    _check_entries(path, document)
    points = _read_nodes(path, document["nodes"])
    order = _read_rods(path, document["rods"], points)
    pairs = [_node_pair(path, f"cable {index}", cable, points) for index, cable in enumerate(document["cables"])]
    numbers = {key: _number(path, key, document.get(key, getattr(TensegrityModel, key))) for key in ALLOWED[2:5]}
    return TensegrityModel(
        name=text_in(f"{path}: name", document.get("name", Path(path).stem)),
        nodes=np.array([points[name] for name in order]),
        cables=tuple((order.index(a), order.index(b)) for a, b in pairs),
        actuated=_read_actuated(path, document),
        stiffness_ratio=_ratios(path, document["cables"], "stiffness_ratio"),
        rest_ratio=_ratios(path, document["cables"], "rest_ratio"),
        rod_radius=numbers["rod_radius"],
        cap_radius=numbers["cap_radius"],
        control_limit=numbers["control_limit"],
        constants=TensegrityBody.read_table(path, document.get("constants", {})),
    )


def _check_entries(path: str | Path, document: Mapping[str, Any]) -> None:
    for key in document:
        if key not in ALLOWED:
            raise FileFormatError(f"{path}: unknown entry {key!r}; allowed are {', '.join(ALLOWED)}")
    for key in ("nodes", "rods", "cables"):
        if not document.get(key):
            raise FileFormatError(f"{path}: [{key}] is missing or empty")
    for key in ("rods", "cables"):
        if not isinstance(document[key], list):
            raise FileFormatError(f"{path}: {key} must be tables, each under [[{key}]]")
        for index, table in enumerate(document[key]):
            check_entries(f"{path}: {key[:-1]} {index}", table, PARTS[key])
    twice = doubled(str(cable["name"]) for cable in document["cables"] if "name" in cable)
    if twice is not None:
        raise StructureError(f"{path}: two cables are named {twice!r}")


def _read_nodes(path: str | Path, table: object) -> Points:
    points: Points = {}
    if not isinstance(table, dict):
        raise FileFormatError(f"{path}: [nodes] must be a table of name = [x, y, z]")
    for name, value in table.items():
        if not (isinstance(value, list) and len(value) == 3):
            raise FileFormatError(f"{path}: node {name!r} is {shown(value)}, expected [x, y, z] in m")
        points[name] = [_number(path, f"node {name!r}: {axis}", v) for axis, v in zip("xyz", value, strict=True)]
    return points


def _read_rods(path: str | Path, rods: list[object], points: Points) -> list[str]:
    """Names of the nodes in the order of the rods."""
    order: list[str] = []
    for index, rod in enumerate(rods):
        order += _node_pair(path, f"rod {index}", rod, points)
    for name in points:
        if order.count(name) != 1:
            raise StructureError(f"{path}: node {name!r} is the end of {order.count(name)} rods, expected exactly one")
    return order


def _read_actuated(path: str | Path, document: Mapping[str, Any]) -> tuple[int, ...]:
    names = [str(cable.get("name", index)) for index, cable in enumerate(document["cables"])]
    actuated = document.get("actuated", names)
    if not isinstance(actuated, list):
        raise FileFormatError(f"{path}: actuated is {actuated!r}, expected a list of names of cables")
    for name in actuated:
        if str(name) not in names:
            raise StructureError(f"{path}: actuated cable {name!r} does not exist; cables are {', '.join(names)}")
    return tuple(names.index(str(name)) for name in actuated)


def _node_pair(path: str | Path, what: str, entry: object, points: Points) -> tuple[str, str]:
    nodes = entry.get("nodes") if isinstance(entry, dict) else None
    if not (isinstance(nodes, list) and len(nodes) == 2 and all(isinstance(name, str) for name in nodes)):
        raise FileFormatError(f'{path}: {what} needs nodes = ["a", "b"], got {shown(nodes)}')
    for name in nodes:
        if name not in points:
            raise StructureError(f"{path}: {what} dangles: node {name!r} does not exist; nodes are {', '.join(points)}")
    return nodes[0], nodes[1]


def _ratios(path: str | Path, cables: list[dict[str, Any]], key: str) -> tuple[float, ...]:
    return tuple(_number(path, f"{key} of cable {index}", cable.get(key, 1.0)) for index, cable in enumerate(cables))


def _number(path: str | Path, what: str, value: object) -> float:
    return number_in(f"{path}: {what}", value)
