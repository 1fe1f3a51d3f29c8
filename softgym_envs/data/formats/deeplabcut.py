"""CSV of DeepLabCut: rows of scorer, perhaps individuals, body parts and coordinates, then a row per frame, in pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ...core.errors import FileFormatError
from ..tables import Table
from .motion import Column, motion_table, padded
from .text import cells_of, columns_of, lines_of

KIND = "DeepLabCut CSV"
LEAST_LIKELIHOOD = 0.6
"""Points of a smaller likelihood were not seen: DeepLabCut's own `pcutoff`."""


def read(path: Path) -> Table:
    """Points in pixels, NaN where their likelihood is below `LEAST_LIKELIHOOD`.

    Raises:
        FileFormatError: Rows of the header are missing.
    """
    where = f"{path} ({KIND})"
    cells = [cells_of(where, number, line, ",") for number, line in enumerate(lines_of(path), 1)]
    first = next((k for k, row in enumerate(cells) if row and row[0].isdigit()), len(cells))
    width = max(len(row) for row in cells)
    titles = {row[0].lower(): padded(row, width) for row in cells[:first] if row}
    if not {"bodyparts", "coords"} <= set(titles) or first == len(cells):
        raise FileFormatError(f"{where} has no rows `bodyparts` and `coords`, or no frames: export it with `save_as_csv=True`")
    coords = titles["coords"]
    parts, animals = titles["bodyparts"], titles.get("individuals", [""] * width)
    rows = [(number, padded(row, width)) for number, row in enumerate(cells[first:], first + 1) if any(row)]
    columns = columns_of(where, [row for _, row in rows], ",")
    numbers = [number for number, _ in rows]
    table = Table(where, tuple(map(str, range(width))), ("",) * width, numbers, columns)
    several = len({name for name in animals[1:] if name}) > 1
    labels = [f"{animal}.{part}" if several else part for animal, part in zip(animals, parts, strict=False)]
    found = []
    for place in range(1, width):
        sure = [k for k in range(1, width) if labels[k] == labels[place] and coords[k] == "likelihood"]
        values = table.numbers(str(place))
        if coords[place] == "likelihood":
            found.append(Column(labels[place], "likelihood", "-", values, aside=True))
        elif coords[place] in ("x", "y", "z"):
            for k in sure:
                values = np.where(table.numbers(str(k)) < LEAST_LIKELIHOOD, np.nan, values)
            found.append(Column(labels[place], coords[place], "px", values))
    return motion_table(path, KIND, found, numbers, clock=[("frame", "", columns[0])])
