"""Plain tables: a header with names and units, then one line per row; and logs without header.

Cells are separated by commas, semicolons, tabs or white space. Lines that begin with # and empty lines are skipped; a header
may begin with #, as NumPy writes it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...core.errors import FileFormatError
from ...core.files import doubled
from ..tables import Table
from .text import MISSING, cells_of, columns_of, lines_of, name_and_unit, separator_of

TIMES = ("time", "t", "timestamp", "time_stamp", "stamp", "%time", "__time", "elapsed", "elapsed_time", "elapsed time")
"""Names of the time, in small letters."""
FRAMES = ("frame", "frame#", "frame_number", "frames")
"""Names of the number of a frame."""


def read(path: Path, names: Sequence[str] = (), *, numbered: bool = False) -> Table:
    """A plain table.

    Args:
        path: The file.
        names: Names of the columns of a file without header, with or without units; "" for one that is left out.
        numbered: Whether names of a file without header are made up.

    Raises:
        FileFormatError: No rows, doubled columns, rows of another length, or no header and no names.
    """
    every = [(number, line) for number, line in enumerate(lines_of(path), 1) if line.strip()]
    content = [(number, line) for number, line in every if not line.startswith("#")]
    if len(content) < 2:
        raise FileFormatError(
            f"{path} is a text file and has {len(content)} lines, expected a header and at least one row: "
            "export the table with a line of names and units, as 'time [s], x [mm]'"
        )
    separator = separator_of([line for _, line in content[:3]])
    header = cells_of(str(path), *content[0], separator)
    invented = False
    if headerless := _all_numbers(header):
        above = [line.lstrip("# ") for number, line in every if number < content[0][0]]
        title = [] if names or not above else cells_of(str(path), 1, above[-1], separator_of([above[-1], content[0][1]]))
        invented = numbered and not names and len(title) != len(header)
        header = _made_up(path, content, separator) if invented else _given_names(path, len(header), list(names), title)
    elif names:
        raise FileFormatError(f"{path} has a header, {content[0][1][:80]!r}: leave `names` out of the mapping")
    rows = _rows(path, content[0 if headerless else 1 :], separator, header)
    named = [name_and_unit(str(path), cell) if cell else ("", "") for cell in header]
    kept = [place for place, (name, _) in enumerate(named) if name]
    columns = columns_of(str(path), rows, separator)
    found, units = usual_names([named[place][0] for place in kept]), [named[place][1] for place in kept]
    if (twice := doubled(found)) is not None:
        raise FileFormatError(f"{path}: column {twice!r} is there twice")
    lines = tuple(number for number, _ in content[0 if headerless else 1 :])
    units = of_quaternions(found, units)
    return Table(
        str(path), tuple(found), tuple(units), lines, tuple(columns[place] for place in kept), source=path, numbered=invented
    )


def _all_numbers(cells: Sequence[str]) -> bool:
    """Whether a first line is a row already."""
    numbers = [bool(re.fullmatch(r"[+-]?[\d.,]+(e[+-]?\d+)?", cell.lower())) for cell in cells]
    return any(numbers) and all(one or cell.lower() in MISSING for one, cell in zip(numbers, cells, strict=True))


def _made_up(path: Path, numbered: Sequence[tuple[int, str]], separator: str) -> list[str]:
    """Names column0, column1, ...; a count of rows is called frame, and the first column that grows evenly time."""
    rows = [cells_of(str(path), number, line, separator) for number, line in numbered[:200]]
    names = [f"column{place}" for place in range(len(rows[0]))]
    for place, column in enumerate(zip(*rows, strict=False)):
        try:
            steps = np.diff([float(cell) for cell in column])
        except ValueError:
            continue
        if not len(steps) or not (steps > 0).all() or np.ptp(steps) > 0.5 * steps.mean():
            continue
        counts = bool((steps == 1.0).all())
        name = "frame" if counts and place == 0 else "time [s]" if not counts else ""
        if name and name not in names:
            names[place] = name
    return names


def _given_names(path: Path, width: int, names: list[str], title: list[str]) -> list[str]:
    """Header of a file that has none: as given, or its last comment."""
    found = names or title
    if len(found) != width:
        given = f"; there are {len(found)} names" if names else ""
        raise FileFormatError(
            f"{path} is a table of {width} columns without header{given}: name all in a mapping (`map`), "
            f'names = ["time [s]", "", ...]; `softgym-envs inspect {path}` writes one'
        )
    return found


def _rows(path: Path, numbered: Sequence[tuple[int, str]], separator: str, header: list[str]) -> list[list[str]]:
    """Cells of every row, as many as the header has; empty ones behind them are dropped, from the header, too."""
    rows = [cells_of(str(path), number, line, separator) for number, line in numbered]
    while header and not header[-1] and all(len(row) < len(header) or not row[-1] for row in rows):
        header.pop()
    for (number, _), row in zip(numbered, rows, strict=True):
        while len(row) > len(header) and not row[-1]:
            row.pop()
        if len(row) != len(header):
            raise FileFormatError(
                f"{path}, line {number} has {len(row)} cells, the header has {len(header)}; decimals are written with a point"
            )
    return rows


def usual_names(names: list[str]) -> list[str]:
    """Names in which time and frame have our names, if one column alone can be it."""
    for ours, others in (("time", TIMES), ("frame", FRAMES)):
        alike = [place for place, name in enumerate(names) if name.lower() in others]
        if ours not in names and len(alike) == 1:
            names[alike[0]] = ours
    return names


def of_quaternions(names: Sequence[str], units: list[str]) -> list[str]:
    """Units in which entries of a whole quaternion have none."""
    for place, name in enumerate(names):
        stem = name[:-1] if name[-2:] in ("qw", "qx", "qy", "qz") else None
        if stem is not None and all(stem + axis in names for axis in "wxyz"):
            units[place] = units[place] or "-"
    return units
