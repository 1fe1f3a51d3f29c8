"""Vine robots and their obstacles from TOML files; `load_scene` describes the form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...core.errors import FileFormatError, StructureError
from ...core.files import check_entries, entries, made, read_toml
from .model import VineModel
from .obstacles import Obstacle, circle, polygon, rectangle, wall

Point = tuple[float, float]


@dataclass(frozen=True)
class _Circle:
    center: Point
    radius: float

    def place(self) -> Obstacle:
        return circle(*self.center, self.radius)


@dataclass(frozen=True)
class _Rectangle:
    center: Point
    size: Point
    angle: float = 0.0

    def place(self) -> Obstacle:
        return rectangle(*self.center, *self.size, self.angle)


@dataclass(frozen=True)
class _Wall:
    point: Point
    angle: float

    def place(self) -> Obstacle:
        return wall(*self.point, self.angle)


@dataclass(frozen=True)
class _Polygon:
    points: tuple[Point, ...]

    def place(self) -> Obstacle:
        return polygon(self.points)


FORMS = {"circle": _Circle, "rectangle": _Rectangle, "wall": _Wall, "polygon": _Polygon}


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
    document = check_entries(str(path), read_toml(path), ("robot", "obstacles"))
    obstacles = document.get("obstacles", [])
    if not isinstance(obstacles, list):
        raise FileFormatError(f"{path}: obstacles must be tables, each under [[obstacles]]")
    robot = entries(f"{path}: [robot]", document.get("robot", {}), VineModel, skip=("obstacles",))
    try:
        placed = tuple(_read_obstacle(f"{path}: obstacle {index}", table) for index, table in enumerate(obstacles))
        return VineModel(**robot, obstacles=placed)
    except StructureError as error:
        raise StructureError(f"{path}: {error}") from None


def _read_obstacle(where: str, table: object) -> Obstacle:
    if not (isinstance(table, dict) and len(table) == 1 and next(iter(table)) in FORMS):
        raise FileFormatError(f"{where} is {table!r}, expected one of {', '.join(FORMS)} = {{ ... }}")
    name, given = next(iter(table.items()))
    return made(f"{where}: {name}", given, FORMS[name]).place()
