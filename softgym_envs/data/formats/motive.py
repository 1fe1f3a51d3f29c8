"""CSV of OptiTrack Motive: a line of settings, then rows of types, names, ids, quantities and axes."""

from __future__ import annotations

from pathlib import Path

from ...core.errors import FileFormatError
from ...core.units import unit_named
from ..tables import Table
from .motion import Column, motion_table, padded
from .text import cells_of, columns_of, lines_of, separator_of

KIND = "Motive CSV"
BODIES = ("rigid body", "bone")


def read(path: Path) -> Table:
    """Rigid bodies and bones, or markers where there are none; y is up, as Motive has it by default.

    Raises:
        FileFormatError: No header of columns, no positions, or rotations that are no quaternions.
    """
    lines, where = lines_of(path), f"{path} ({KIND})"
    separator = separator_of(lines)
    cells = [cells_of(where, number, line, separator) for number, line in enumerate(lines, 1)]
    header = next((k for k, row in enumerate(cells) if row and row[0].lower() == "frame"), None)
    titles = [row for row in cells[1:header] if any(row)]
    if header is None or len(titles) < 3:
        raise FileFormatError(f"{where} has no header of columns: export it with `Header information`")
    settings = dict(zip(cells[0][::2], cells[0][1::2], strict=False))
    width = max(len(row) for row in cells[: header + 1])
    kinds, labels, quantities = (padded(row, width) for row in (titles[0], titles[1], titles[-1]))
    axes = padded(cells[header], width)
    rows = [(number, padded(row, width)) for number, row in enumerate(cells[header + 1 :], header + 2) if any(row)]
    columns = columns_of(where, [row for _, row in rows], separator)
    unit = unit_named(settings.get("Length Units", "Meters")) or ""
    has_bodies = any(kind.lower() in BODIES for kind in kinds)
    found = []
    for place in range(2, width if columns else 0):
        kind, quantity, axis = kinds[place].lower(), quantities[place].lower(), axes[place].lower()
        if quantity not in ("rotation", "position") or axis not in ("x", "y", "z", "w"):
            continue
        if quantity == "rotation" and settings.get("Rotation Type", "Quaternion") != "Quaternion":
            raise FileFormatError(
                f"{where} has rotations of type {settings['Rotation Type']}: export it with `Rotation Type: Quaternion`"
            )
        aside = (has_bodies and kind not in BODIES) or labels[place].startswith("Unlabeled")
        name, its = (f"q{axis}", "-") if quantity == "rotation" else (axis, unit)
        found.append(Column(labels[place], name, its, columns[place], aside))
    if not found:
        raise FileFormatError(f"{where} has neither rigid bodies nor markers: export it with `Rigid Bodies` or `Markers`")
    clock = [("frame", "", columns[0]), ("time", "s", columns[1])]
    return motion_table(path, KIND, _apart(found), [number for number, _ in rows], clock=clock, up="y")


def _apart(columns: list[Column]) -> list[Column]:
    """Columns in which a marker that Motive gives twice, as measured and as solved, is taken as measured."""
    seen: set[tuple[str, str]] = set()
    found = []
    for column in columns:
        if (column.label, column.axis) not in seen:
            found.append(column)
        seen.add((column.label, column.axis))
    return found
