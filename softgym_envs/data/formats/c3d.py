"""C3D: markers and analog channels, read by ezc3d."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import FileFormatError, needed
from ...core.units import unit_named
from ..tables import Table
from .motion import Column, motion_table

KIND = "C3D"


def read(path: Path) -> Table:
    """Markers, NaN where they were not seen; analog channels at the frames, which a mapping may name.

    The axis that points up is POINT:Y_SCREEN, z where the file has none.

    Raises:
        FileFormatError: It cannot be read, or has no markers.
        MissingDependencyError: ezc3d is not installed.
    """
    with needed(f"{path} is a C3D file, which needs ezc3d", "formats"):
        import ezc3d
    try:
        file = ezc3d.c3d(str(path))
    except Exception as error:  # it raises whatever its C++ does
        raise FileFormatError(f"{path} ({KIND}) cannot be read: {error}; export it again") from error
    points = file["data"]["points"]  # (4, markers, frames)
    labels, rate = _setting(file, "POINT", "LABELS"), float(file["header"]["points"]["frame_rate"])
    if not points.shape[1] or not rate > 0:
        raise FileFormatError(f"{path} ({KIND}) has {points.shape[1]} markers at {rate:g} Hz: export it with `Trajectories`")
    unit = _unit(_setting(file, "POINT", "UNITS"))
    columns = [
        Column(str(label), axis, unit, points[k, place]) for place, label in enumerate(labels) for k, axis in enumerate("xyz")
    ][: 3 * points.shape[1]]
    analogs = file["data"]["analogs"]  # (1, channels, samples)
    steps = analogs.shape[2] // max(points.shape[2], 1)
    for place, name in enumerate(_setting(file, "ANALOG", "LABELS") if steps else ()):
        units = _setting(file, "ANALOG", "UNITS")
        found = _unit(units[place : place + 1])
        columns.append(Column(str(name), "analog", found, analogs[0, place, ::steps][: points.shape[2]], aside=True))
    first = int(file["header"]["points"]["first_frame"])
    frames = np.arange(first, first + points.shape[2], dtype=np.float64)
    up = str(next(iter(_setting(file, "POINT", "Y_SCREEN")), "+Z")).strip().lower().lstrip("+")
    lines = range(1, points.shape[2] + 1)
    clock = [("frame", "", frames)]
    return motion_table(path, KIND, columns, lines, clock=clock, rate=rate, up=up if up.lstrip("-") in ("x", "y", "z") else "z")


def _setting(file: Any, group: str, name: str) -> list[Any]:
    """A parameter of the file; [] if it has none."""
    return list(file["parameters"].get(group, {}).get(name, {}).get("value", []))


def _unit(given: list[Any]) -> str:
    text = str(given[0]).strip() if given else ""
    return unit_named(text) or text
