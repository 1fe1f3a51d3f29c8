"""Rod-cable structures from TOML files; `load_structure` describes the form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import FileFormatError, StructureError
from ...core.files import check_entries, doubled, made, made_each, read_toml
from .model import TensegrityModel
from .parameters import TensegrityBody

Triple = tuple[float, float, float]


@dataclass(frozen=True)
class _Rod:
    nodes: tuple[str, str]


@dataclass(frozen=True)
class _Cable:
    nodes: tuple[str, str]
    name: str | int | None = None
    stiffness_ratio: float = 1.0
    rest_ratio: float = 1.0


@dataclass(frozen=True)
class _Structure:
    """Entries of a file besides its arrays of tables."""

    name: str
    nodes: Mapping[str, Triple]
    actuated: tuple[str | int, ...] | None = None
    rod_radius: float = TensegrityModel.rod_radius
    cap_radius: float = TensegrityModel.cap_radius
    control_limit: float = TensegrityModel.control_limit
    parameters: Mapping[str, Any] = field(default_factory=dict)


def load_structure(path: str | Path) -> TensegrityModel:
    """Read a rod-cable structure from a TOML file, with lengths in m.

    The form::

        name = "my prism"
        actuated = ["tie0", "tie1"]        # optional; all cables where it is missing
        rod_radius = 0.01                  # optional, as cap_radius and control_limit

        [parameters]                        # optional, of `TensegrityBody`, in its units; they replace the defaults
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
        ParameterError: An unknown parameter, or one in another unit.
        StructureError: The structure makes no sense: dangling cable, node without rod, ...
    """
    document = read_toml(path)
    check_entries(str(path), document, (*(f.name for f in fields(_Structure)), "rods", "cables"))
    for key in ("nodes", "rods", "cables"):
        if not document.get(key):
            raise FileFormatError(f"{path}: [{key}] is missing or empty")
    rods, cables = made_each(path, document, "rods", _Rod), made_each(path, document, "cables", _Cable)
    rest = {key: value for key, value in document.items() if key not in ("rods", "cables")}
    given = made(str(path), rest, _Structure, name=Path(path).stem)
    ends = [_checked(path, f"rod {k}", rod.nodes, given.nodes) for k, rod in enumerate(rods)]
    pairs = [_checked(path, f"cable {k}", cable.nodes, given.nodes) for k, cable in enumerate(cables)]
    order = [name for pair in ends for name in pair]
    for name in given.nodes:
        if order.count(name) != 1:
            raise StructureError(f"{path}: node {name!r} is the end of {order.count(name)} rods, expected exactly one")
    return TensegrityModel(
        name=given.name,
        nodes=np.array([given.nodes[name] for name in order]),
        cables=tuple((order.index(a), order.index(b)) for a, b in pairs),
        actuated=_actuated(path, cables, given.actuated),
        stiffness_ratio=tuple(cable.stiffness_ratio for cable in cables),
        rest_ratio=tuple(cable.rest_ratio for cable in cables),
        rod_radius=given.rod_radius,
        cap_radius=given.cap_radius,
        control_limit=given.control_limit,
        parameter_values=TensegrityBody.read_table(path, given.parameters),
    )


def _checked(path: str | Path, what: str, pair: tuple[str, str], nodes: Mapping[str, Triple]) -> tuple[str, str]:
    """The names of two nodes."""
    for name in pair:
        if name not in nodes:
            raise StructureError(f"{path}: {what} dangles: node {name!r} does not exist; nodes are {', '.join(nodes)}")
    return pair


def _actuated(path: str | Path, cables: tuple[_Cable, ...], chosen: tuple[str | int, ...] | None) -> tuple[int, ...]:
    """Indices of the actuated cables; None: all."""
    twice = doubled(str(cable.name) for cable in cables if cable.name is not None)
    if twice is not None:
        raise StructureError(f"{path}: two cables are named {twice!r}")
    names = [str(index if cable.name is None else cable.name) for index, cable in enumerate(cables)]
    for name in chosen or ():
        if str(name) not in names:
            raise StructureError(f"{path}: actuated cable {name!r} does not exist; cables are {', '.join(names)}")
    return tuple(range(len(names)) if chosen is None else (names.index(str(name)) for name in chosen))
