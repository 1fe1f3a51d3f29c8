"""Motion capture: columns of markers and bodies -> a table with the names `tip.x`, or `x`, `qw` where there is one body."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ...core.errors import FileFormatError
from ...core.files import doubled
from ...core.simulator import Array
from ..tables import Table


class Column(NamedTuple):
    """One column of a marker or body."""

    label: str
    """As in the file: subject:marker, or the marker alone."""
    axis: str
    """x, y, z, qw, qx, qy, qz, or something aside."""
    unit: str
    cells: Sequence[str] | Array
    aside: bool = False
    """Whether it is read only if a mapping names it."""


def motion_table(
    path: Path,
    kind: str,
    columns: Sequence[Column],
    lines: Sequence[int],
    *,
    clock: Sequence[tuple[str, str, Sequence[str] | Array]] = (),
    rate: float | None = None,
    up: str = "z",
) -> Table:
    """Table of these columns.

    Args:
        path: The file.
        kind: Its format in words.
        columns: Columns of markers and bodies.
        lines: Lines of the rows in the file.
        clock: Name ("time" or "frame"), unit, cells of columns that are times.
        rate: Rows a second by the header.
        up: Axis that points up.

    Raises:
        FileFormatError: There are no rows, or two columns have one name.
    """
    where = f"{path} ({kind})"
    if not len(lines) or not columns:
        raise FileFormatError(f"{where} has {len(lines)} rows and {len(columns)} columns of markers or bodies: export it again")
    short = _short_labels(list(dict.fromkeys(column.label for column in columns)))
    seen = {column.label for column in columns if not column.aside}
    alone = len(seen) == 1 and any(column.axis == "qw" for column in columns if not column.aside)
    names = [c.axis if alone and c.label in seen else f"{short[c.label]}.{c.axis}" for c in columns]
    if (twice := doubled(names)) is not None:
        raise FileFormatError(f"{where} has column {twice!r} twice: give each marker a name of its own, and export it again")
    return Table(
        where,
        (*(name for name, _, _ in clock), *names),
        (*(unit for _, unit, _ in clock), *(column.unit for column in columns)),
        lines,
        (*(cells for _, _, cells in clock), *(column.cells for column in columns)),
        rate=rate,
        up=up,
        aside=frozenset(name for name, column in zip(names, columns, strict=True) if column.aside),
        source=path,
    )


def _short_labels(labels: Sequence[str]) -> dict[str, str]:
    """Labels without their subject, as far as they stay different; p0, p1 ... are points."""
    short = {label: label.rpartition(":")[2].strip() for label in labels}
    if len(set(short.values())) < len(short):
        short = {label: label for label in labels}
    numbered = [re.fullmatch(r"(?:p|pt|kp|point|keypoint)_?(\d+)", name, re.IGNORECASE) for name in short.values()]
    if all(numbered):
        return {label: f"point{found[1]}" for label, found in zip(labels, numbered, strict=True) if found}
    return short


def filled(cells: Sequence[str]) -> list[str]:
    """Cells in which an empty one has the text before it: a label stands above the first of its columns."""
    found: list[str] = []
    for cell in cells:
        found.append(cell or (found[-1] if found else ""))
    return found


def padded(cells: Sequence[str], width: int) -> list[str]:
    """Cells of this width: shorter rows are filled with empty ones, empty ones behind are cut."""
    return [*cells, *[""] * width][:width]
