"""Vine robots and their obstacles from TOML files; `load_scene` describes the form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..core.errors import FileFormatError, StructureError, shown
from ..core.files import number_in, read_toml
from .model import VineModel
from .obstacles import Obstacle, circle, polygon, rectangle, wall

ROBOT = tuple(f.name for f in fields(VineModel) if f.name != "obstacles")
"""Entries of [robot]."""
FORMS = {
    "circle": {"center": 2, "radius": 1},
    "rectangle": {"center": 2, "size": 2, "angle": 1},
    "wall": {"point": 2, "angle": 1},
    "polygon": {"points": 0},
}
"""Shape -> its entries, and how many numbers each holds (0: a list of points)."""
OPTIONAL = {"rectangle": {"angle": 0.0}}


def load_scene(path: str | Path) -> VineModel:
    """Read a robot and its obstacles from a TOML file, in m and rad.

    The form::

        [robot]                            # optional, as are its entries; see `VineModel`
        num_links = 40
        max_length = 1.2
        base = [0.0, 0.0, 0.0]             # x, y, heading

        [[obstacles]]
        circle = { center = [0.5, 0.1], radius = 0.06 }
        [[obstacles]]
        rectangle = { center = [0.8, 0.0], size = [0.1, 0.3], angle = 0.2 }
        [[obstacles]]
        polygon = { points = [[0.0, 0.3], [0.2, 0.3], [0.1, 0.5]] }     # convex, counter-clockwise
        [[obstacles]]
        wall = { point = [1.0, 0.0], angle = 3.14159 }                  # angle: direction to the free side

    Raises:
        FileFormatError: No such file, not TOML, missing or unknown entries, entries of the wrong kind.
        StructureError: The robot or an obstacle makes no sense, e.g. a polygon that is not convex.
    """
    document = read_toml(path)
    for key in document:
        if key not in ("robot", "obstacles"):
            raise FileFormatError(f"{path}: unknown entry {key!r}; allowed are [robot] and [[obstacles]]")
    obstacles = document.get("obstacles", [])
    if not isinstance(obstacles, list):
        raise FileFormatError(f"{path}: obstacles must be tables, each under [[obstacles]]")
    try:
        placed = tuple(_read_obstacle(path, index, table) for index, table in enumerate(obstacles))
        return VineModel(**_read_robot(path, document.get("robot", {})), obstacles=placed)
    except StructureError as error:
        raise StructureError(f"{path}: {error}") from None


def _read_robot(path: str | Path, table: object) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise FileFormatError(f"{path}: robot is {table!r}, expected a table [robot]")
    for key in table:
        if key not in ROBOT:
            raise FileFormatError(f"{path}: [robot] has {key!r}; allowed are {', '.join(ROBOT)}")
    values: dict[str, Any] = dict(table)
    for key, value in values.items():
        if key == "base":
            values[key] = tuple(_numbers(path, key, value, 3))
        elif key != "viscoelastic":  # the model requires true or false
            number_in(f"{path}: {key}", value)
    return values


def _read_obstacle(path: str | Path, index: int, table: object) -> Obstacle:
    what = f"obstacle {index}"
    if not (isinstance(table, dict) and len(table) == 1 and next(iter(table)) in FORMS):
        raise FileFormatError(f"{path}: {what} is {table!r}, expected one of {', '.join(FORMS)} = {{ ... }}")
    kind, entries = next(iter(table.items()))
    form, optional = FORMS[kind], OPTIONAL.get(kind, {})
    if not isinstance(entries, Mapping) or not set(form) - set(optional) <= set(entries) <= set(form):
        raise FileFormatError(f"{path}: {what}, {kind} is {entries!r}, expected {{ {', '.join(form)} }}")
    if kind == "polygon":
        points = entries["points"]
        if not isinstance(points, list):
            raise FileFormatError(f"{path}: {what}: points is {points!r}, expected a list of [x, y]")
        corners = [_numbers(path, f"{what}: corner {k}", p, 2) for k, p in enumerate(points)]
        return polygon(tuple((x, y) for x, y in corners))
    values = {key: _numbers(path, f"{what}: {key}", entries.get(key, optional.get(key)), count) for key, count in form.items()}
    make: Callable[..., Obstacle] = {"circle": circle, "rectangle": rectangle, "wall": wall}[kind]  # type: ignore[assignment]
    return make(*(number for key in form for number in values[key]))


def _numbers(path: str | Path, what: str, value: Any, count: int) -> list[float]:
    given = value if isinstance(value, list) else [value]
    if len(given) != count:
        expected = "a number" if count == 1 else f"{count} numbers"
        raise FileFormatError(f"{path}: {what} is {shown(value)}, expected {expected}")
    return [number_in(f"{path}: {what}", v) for v in given]
