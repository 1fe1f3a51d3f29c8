"""A mapping: which columns of a file of another program are ours, as a TOML file says.

::

    time = {column = "t", unit = "ms"}   # or rate = 148.0, if no column is the time
    up = "y"                             # axis of the file that points up; ours is z
    quaternion = "xyzw"                  # what the columns qw, qx, qy, qz hold, in this order
    names = ["t", "a", "", "b [mm]"]     # columns of a file without header, "" for one that is left out; or a file of names

    [columns]                            # ours = column of the file; without this table all columns keep their names
    x = {column = "pos[0]", unit = "mm"}
    "control:valve" = {column = "u_m", unit = "bar", factor = -1.0}
"""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import DataError, FileFormatError, OptionError
from ..core.files import check_entries, number_in, read_text, read_toml
from ..core.simulator import Array, check_number
from ..core.trajectory import Trajectory
from .formats.delimited import usual_names
from .tables import Table

TO_Z_UP: dict[str, Array] = {
    "z": np.eye(3),
    "y": np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]]),
    "x": np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
    "-z": np.diag([1.0, -1.0, -1.0]),
    "-y": np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]]),
    "-x": np.array([[0.0, -1.0, 0.0], [0.0, 0.0, 1.0], [-1.0, 0.0, 0.0]]),
}
"""Axis that points up in a file -> rotation into axes in which z does."""
VECTORS = ("", "v", "w", "q", "a", "force_", "torque_")
"""What stands before x, y, z in names of vectors; a quaternion's entries qx, qy, qz turn like one."""


@dataclass(frozen=True)
class FileColumn:
    """A column of a file."""

    column: str
    unit: str = ""
    """As in headers; "": the file's own."""
    factor: float = 1.0


@dataclass(frozen=True)
class Mapping:
    """See the module docstring.

    Raises:
        OptionError: An axis, an order or a rate that is none.
    """

    columns: MappingOf[str, FileColumn] = field(default_factory=dict)
    """Ours -> the file's; empty: all columns, under their own names."""
    time: FileColumn | None = None
    rate: float | None = None
    """Rows a second, if no column is the time."""
    up: str | None = None
    """None: as the format has it."""
    quaternion: str = "wxyz"
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.up is not None and self.up not in TO_Z_UP:
            raise OptionError(f"up is {self.up!r}, allowed are {', '.join(TO_Z_UP)}")
        if sorted(self.quaternion) != sorted("wxyz"):
            raise OptionError(f"quaternion is {self.quaternion!r}, expected the order of its four entries, as 'wxyz' or 'xyzw'")
        if self.rate is not None:
            check_number("rate", self.rate, positive=True)

    @classmethod
    def load(cls, path: str | Path) -> Mapping:
        """Read a TOML file.

        Raises:
            FileFormatError: It is none, or has an unknown entry.
            OptionError: An axis, an order or a rate that is none.
        """
        document = read_toml(path)
        check_entries(str(path), document, ("columns", "time", "rate", "up", "quaternion", "names"))
        columns = document.get("columns", {})
        if not isinstance(columns, dict):
            raise FileFormatError(f'{path}: columns is no table; expected ours = {{column = "theirs", unit = "mm"}}')
        more: dict[str, Any] = {key: document[key] for key in ("up", "quaternion") if key in document}
        if wrong := next((key for key, value in more.items() if not isinstance(value, str)), None):
            raise FileFormatError(f"{path}: {wrong} is {document[wrong]!r}, expected text")
        if "rate" in document:
            more["rate"] = number_in(f"{path}: rate", document["rate"])
        if "time" in document:
            more["time"] = _file_column(f"{path}: time", document["time"])
        found = {str(name): _file_column(f"{path}: {name}", entry) for name, entry in columns.items()}
        return cls(found, names=_names(Path(path), document.get("names", [])), **more)

    def of(self, table: Table) -> Table:
        """A table's columns under our names, in the units that the mapping gives.

        Raises:
            FileFormatError: A column is not there, or the quaternion's four are not.
        """
        clocked = ("time",) if self.time is None else ("time", _as_read(table, self.time.column))
        own_names = [name for name in table.names if name not in (*clocked, *table.aside)]
        chosen: dict[str, FileColumn] = dict(self.columns) or {name: FileColumn(name) for name in own_names}
        clock = [name for name in ("time", "frame") if name in table.names and name not in chosen]
        first: dict[str, FileColumn] = {name: FileColumn(name) for name in clock}
        if self.time is not None:
            first = {"time": self.time}
        elif self.rate is not None:
            first.pop("time", None)
        picks = {**first, **self._in_order(table, chosen)}
        places = [table.index(_as_read(table, each.column)) for each in picks.values()]
        own = table.factors or (1.0,) * len(table.names)
        return replace(
            table,
            names=tuple(picks),
            units=tuple(each.unit or table.units[place] for each, place in zip(picks.values(), places, strict=True)),
            columns=tuple(table.columns[place] for place in places),
            factors=tuple(each.factor * own[place] for each, place in zip(picks.values(), places, strict=True)),
            rate=self.rate or table.rate,
            up=self.up or table.up,
            aside=frozenset(),
        )

    def _in_order(self, table: Table, chosen: dict[str, FileColumn]) -> dict[str, FileColumn]:
        """Columns in which a quaternion's entries w, x, y, z are what `quaternion` says the four hold."""
        if self.quaternion == "wxyz":
            return chosen
        stems = [name[:-2] for name in chosen if name.endswith("qw")]
        if not stems:
            raise FileFormatError(f"{table.path}: quaternion is {self.quaternion!r}, but no column is called qw")
        found = dict(chosen)
        for stem in stems:
            four = [f"{stem}q{axis}" for axis in "wxyz"]
            if absent := [name for name in four if name not in chosen]:
                raise FileFormatError(f"{table.path}: quaternion is {self.quaternion!r}, but there is no column {absent[0]!r}")
            found.update({f"{stem}q{axis}": chosen[name] for axis, name in zip(self.quaternion, four, strict=True)})
        return found


def _as_read(table: Table, column: str) -> str:
    """The name under which a table has the file's column: `time` where the file says `t`."""
    usual = usual_names([column.rpartition(".")[2]])[0]
    return usual if column not in table.names and usual in ("time", "frame") and usual in table.names else column


def _file_column(where: str, entry: Any) -> FileColumn:
    """A column of the file, by its name alone or with unit and factor."""
    if isinstance(entry, str):
        return FileColumn(entry)
    check_entries(where, entry, ("column", "unit", "factor"))
    if not isinstance(entry.get("column"), str) or not isinstance(entry.get("unit", ""), str):
        raise FileFormatError(f'{where} is {entry!r}, expected {{column = "theirs", unit = "mm"}}')
    return FileColumn(entry["column"], entry.get("unit", ""), number_in(f"{where}: factor", entry.get("factor", 1.0)))


def _names(path: Path, given: Any) -> tuple[str, ...]:
    """Names of the columns of a file without header: a list, or a text file beside the mapping."""
    if isinstance(given, str):
        lines = read_text(path.parent / given, "CSV").replace("\n", ",").split(",")
        given = [name.strip() for name in lines if name.strip()]
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise FileFormatError(f"{path}: names is {given!r}, expected a list of names, or a file of them")
    return tuple(given)


def z_up(recording: Trajectory, up: str, *, needed: bool) -> Trajectory:
    """A recording whose positions, velocities, forces and quaternions are turned so that z points up.

    Axes of the bodies are turned like those of the world: a body's axis that was called y is called z.

    Args:
        recording: Recorded with another axis up.
        up: That axis.
        needed: Whether to refuse a recording that has no vectors.

    Raises:
        DataError: It has none, but `needed`; or one of its vectors lacks an axis.
    """
    if up == "z":
        return recording
    values, controls = recording.values.copy(), recording.controls.copy()
    turned = _turn(values, recording.names, up, needed) + _turn(controls, recording.control_names, up, needed)
    commanded = recording.commanded.copy()
    if len(commanded):
        _turn(commanded, ("", *recording.control_names), up, needed)
    if not turned and needed:
        raise DataError(f"up is {up!r}, but no columns are the x, y, z of a vector: {', '.join(recording.names[:12])}")
    return replace(recording, values=values, controls=controls, commanded=commanded)


def _turn(values: Array, names: tuple[str, ...], up: str, needed: bool) -> int:
    """Turn all vectors among columns (rows, n) in place; -> how many there are."""
    place = {name: k for k, name in enumerate(names)}
    stems = dict.fromkeys(name[:-1] for name in names if name[-1:] in ("x", "y", "z"))
    count = 0
    for stem in stems:
        if not any(stem.rpartition(".")[2] == known for known in VECTORS):
            continue
        there = [axis for axis in "xyz" if stem + axis in place]
        if len(there) < 3 and not needed:
            continue
        if len(there) < 3:
            raise DataError(f"up is {up!r}, and {stem}{there[0]} is recorded without the other axes: name all three")
        three = [place[stem + axis] for axis in "xyz"]
        values[:, three] = values[:, three] @ TO_Z_UP[up].T
        count += 1
    return count
