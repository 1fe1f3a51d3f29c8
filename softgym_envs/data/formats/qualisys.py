"""TSV of Qualisys Track Manager: lines of settings, then rows of markers (3D) or bodies (6D)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from ...core.errors import FileFormatError
from ...core.simulator import Array
from ..tables import Table
from .motion import Column, motion_table, padded
from .text import cells_of, columns_of, lines_of

KIND = "Qualisys TSV"
PER_BODY = 16
"""Columns of a body: position, three angles, residual, rotation matrix (column by column)."""


def read(path: Path) -> Table:
    """Markers in mm, or poses of bodies; zeros are markers that were not seen.

    Raises:
        FileFormatError: No names, no rate, or rows of another length.
    """
    lines, where = lines_of(path), f"{path} ({KIND})"
    cells = [cells_of(where, number, line, "\t") for number, line in enumerate(lines, 1)]
    first = next((k for k, row in enumerate(cells) if row and re.fullmatch(r"[+-]?[\d.,]+(e[+-]?\d+)?", row[0].lower())), None)
    above = cells[:first]
    settings = {row[0]: row[1:] for row in above if row}
    names = [name for name in settings.get("MARKER_NAMES", settings.get("BODY_NAMES", [])) if name]
    if first is None or not names:
        raise FileFormatError(f"{where} has {'no rows' if first is None else 'no names'}: export it with `Include header`")
    each = 3 if "MARKER_NAMES" in settings else PER_BODY
    title = [cell.lower() for cell in above[-1] if cell]
    clock = [name for name in title[:2] if name in ("frame", "time")]
    width = len(clock) + each * len(names)
    rows = [(number, padded(row, width), len(row)) for number, row in enumerate(cells[first:], first + 1) if any(row)]
    for number, _, length in rows:
        if length < width - each:
            raise FileFormatError(f"{where}, line {number} has {length} cells, expected {width} for {len(names)} names")
    columns = columns_of(where, [row for _, row, _ in rows], "\t")
    numbers = [number for number, _, _ in rows]
    table = Table(where, tuple(map(str, range(width))), ("",) * width, numbers, columns)
    values = np.column_stack([table.numbers(str(k)) for k in range(len(clock), width)]).reshape(len(rows), len(names), each)
    values[(values[..., :3] == 0.0).all(axis=-1)] = np.nan
    found = []
    for place, name in enumerate(names):
        found += [Column(name, axis, "mm", values[:, place, k]) for k, axis in enumerate("xyz")]
        if each == PER_BODY:
            quaternions = _quaternions(values[:, place, 7:])
            found += [Column(name, f"q{axis}", "-", quaternions[:, k]) for k, axis in enumerate("wxyz")]
    rate = "".join(settings.get("FREQUENCY", [])[:1]).replace(",", ".")
    if not re.fullmatch(r"\d+(\.\d+)?", rate) and "time" not in clock:
        raise FileFormatError(f"{where} has no number as FREQUENCY: export it with `Include header`")
    timed = [(name, "s" if name == "time" else "", columns[k]) for k, name in enumerate(clock)]
    return motion_table(path, KIND, found, numbers, clock=timed, rate=None if "time" in clock else float(rate))


def _quaternions(matrices: Array) -> Array:
    """Quaternions w x y z (rows, 4) of rotation matrices, column by column (rows, 9); NaN where there is none."""
    from scipy.spatial.transform import Rotation

    found = np.full((len(matrices), 4), np.nan)
    seen = np.isfinite(matrices).all(axis=1) & (np.abs(matrices).max(axis=1) > 0.5)
    if seen.any():
        turns = Rotation.from_matrix(matrices[seen].reshape(-1, 3, 3).transpose(0, 2, 1))
        found[seen] = turns.as_quat(canonical=True)[:, [3, 0, 1, 2]]
    return found
