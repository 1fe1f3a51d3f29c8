"""CSV of Vicon: sections, each with a title, its rate, and rows of labels, axes and units."""

from __future__ import annotations

import re
from pathlib import Path

from ...core.errors import FileFormatError
from ...core.units import unit_named
from ..tables import Table
from .motion import Column, filled, motion_table, padded
from .text import cells_of, columns_of, lines_of, separator_of

KIND = "Vicon CSV"
TITLES = ("Trajectories", "Segments", "Objects")
"""Sections that are read; others (Devices, Joints, Model Outputs, Events) are not."""
AXES = {"x": "x", "y": "y", "z": "z", "tx": "x", "ty": "y", "tz": "z", "rx": "qx", "ry": "qy", "rz": "qz", "rw": "qw"}


def read(path: Path) -> Table:
    """Markers of `Trajectories`, or poses of `Segments` or `Objects` where their rotations are quaternions.

    Raises:
        FileFormatError: No such section, or no rate.
    """
    lines, where = lines_of(path), f"{path} ({KIND})"
    start = next((k for k, line in enumerate(lines) if _title(line) in TITLES), None)
    if start is None or len(lines) < start + 6:
        there = (
            ", ".join(filter(None, (_title(line) for line in lines if re.fullmatch(r"[A-Z][A-Za-z ]+\W*", line)))) or "nothing"
        )
        raise FileFormatError(f"{where} has {there}: export Trajectories (markers), or Objects (poses)")
    separator = separator_of(lines[start + 3 :])
    head = [cells_of(where, start + k + 1, lines[start + k], separator) for k in range(1, 5)]
    width = len(head[2])
    labels, axes, units = filled(padded(head[1], width)), head[2], padded(head[3], width)
    if not re.fullmatch(r"[\d.]+", (head[0] or [""])[0]):
        raise FileFormatError(f"{where}, line {start + 2} is {lines[start + 1][:40]!r}, expected frames per second")
    rows = []
    for number, line in enumerate(lines[start + 5 :], start + 6):
        row = cells_of(where, number, line, separator)
        if not any(row):
            break
        rows.append((number, padded(row, width)))
    columns = columns_of(where, [row for _, row in rows], separator)
    found = []
    for place in range(2, width if columns else 0):
        label, axis = re.sub(r"^(Global|Local) (Angle|Position|Translation)s? ?", "", labels[place]), axes[place].lower()
        quaternion = "RW" in axes
        if axis not in AXES or not label:
            continue
        turns = axis.startswith("r")
        name = AXES[axis] if quaternion or not turns else axis
        unit = "-" if turns and quaternion else unit_named(units[place]) or units[place]
        found.append(Column(label, name, unit, columns[place], aside=turns and not quaternion))
    clock = [("frame", "", columns[0])] if columns else []
    return motion_table(path, KIND, found, [number for number, _ in rows], clock=clock, rate=float(head[0][0]))


def _title(line: str) -> str:
    return line.strip().strip(',;\t"').strip()
