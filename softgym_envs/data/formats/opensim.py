"""Files of OpenSim: markers (.trc), and motions, states and forces (.mot, .sto)."""

from __future__ import annotations

import re
from pathlib import Path

from ...core.errors import FileFormatError
from ...core.units import unit_named
from ..tables import Table
from .motion import Column, filled, motion_table, padded
from .text import cells_of, columns_of, lines_of

UNITS_OF_NAMES = (
    (r".*(activation|excitation)", "-"),
    (r".*_[tp][xyz]|.*/.*_t[xyz]/value|.*(fiber_length|tendon_length)", "m"),
    (r".*_v[xyz]|.*force", "N"),
    (r".*_m[xyz]|.*_torque.*|.*_moment", "N m"),
    (r".*/speed|.*_u", "rad/s"),
    (r".*/value", "rad"),
)
"""Pattern of a name of OpenSim -> its unit, where angles are in rad."""


def read_trc(path: Path) -> Table:
    """Markers of a .trc file; y is up, as in OpenSim.

    Raises:
        FileFormatError: Lines of the header are missing.
    """
    where = f"{path} (OpenSim .trc)"
    lines = lines_of(path)
    cells = [cells_of(where, number, line, "\t") for number, line in enumerate(lines, 1)]
    header = next((k for k, row in enumerate(cells) if row and row[0].lower() in ("frame#", "frame")), None)
    if header is None or header < 2 or len(cells) < header + 2:
        raise FileFormatError(f"{where} has no line `Frame#  Time  ...`: export it again")
    settings = dict(zip(cells[header - 2], cells[header - 1], strict=False))
    width = max(len(cells[header]), len(cells[header + 1]))
    labels = filled(padded(cells[header], width))
    axes = padded(cells[header + 1], width)
    rows = [(k, padded(row, width)) for k, row in enumerate(cells[header + 2 :], header + 3) if row and row[0].isdigit()]
    columns = columns_of(where, [row for _, row in rows], "\t")
    unit = unit_named(settings.get("Units", "m")) or ""
    found = [
        Column(labels[place], axes[place][:1].lower(), unit, columns[place])
        for place in range(2, width if columns else 0)
        if axes[place][:1] in ("X", "Y", "Z")
    ]
    clock = [("frame", "", columns[0]), ("time", "s", columns[1])] if columns else []
    return motion_table(path, "OpenSim .trc", found, [number for number, _ in rows], clock=clock, up="y")


def read_motion(path: Path) -> Table:
    """Columns of a .mot or .sto file; units follow from its names and `inDegrees`, where they do.

    Raises:
        FileFormatError: No line of names, or no rows.
    """
    lines, where = lines_of(path), f"{path} (OpenSim {path.suffix or '.sto'})"
    end = next(k for k, line in enumerate(lines) if line.strip().lower() == "endheader")
    degrees = any(re.fullmatch(r"indegrees\s*=\s*yes", line.strip().lower()) for line in lines[:end])
    content = [(number, line.split()) for number, line in enumerate(lines[end + 1 :], end + 2) if line.strip()]
    if len(content) < 2:
        raise FileFormatError(f"{where} has no rows below its line of names: export it again")
    names = tuple(content[0][1])
    for number, row in content[1:]:
        if len(row) != len(names):
            raise FileFormatError(f"{where}, line {number} has {len(row)} cells, the line of names has {len(names)}")
    columns = columns_of(where, [row for _, row in content[1:]], "\t")
    units = tuple("s" if name == "time" else _unit(name, degrees) for name in names)
    return Table(where, names, units, tuple(number for number, _ in content[1:]), columns, source=path)


def _unit(name: str, degrees: bool) -> str:
    """Unit of a column; "" if the name does not tell it."""
    for pattern, unit in UNITS_OF_NAMES:
        if re.fullmatch(pattern, name.lower()):
            return unit.replace("rad", "deg") if degrees else unit
    return "deg" if degrees else ""
