"""What a file of a laboratory holds: format, columns, rate, gaps, repeated samples; and a mapping to begin with."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core.errors import DataError, FileFormatError, OptionError, StorageError
from ..core.files import write_atomically
from ..core.simulator import Array
from .formats import RECORDINGS, format_of, read_table
from .guess import guesses, usual_name
from .tables import Table

GAP = 1.5
"""Time between rows beyond which there is a gap, over the usual one."""
UNEVEN = 0.05
"""Spread of the times between rows, over the usual one, beyond which they are irregular."""


@dataclass(frozen=True)
class ColumnSeen:
    """One column of numbers."""

    name: str
    unit: str
    """"": the file does not say."""
    low: float
    high: float
    missing: int
    """Rows without a number."""
    repeated: float
    """Share of rows with the number of the row before."""
    aside: bool
    """Whether it is read only if a mapping names it."""


@dataclass(frozen=True)
class Inspection:
    """See the module docstring."""

    path: Path
    kind: str
    """Format of the file."""
    rows: int
    columns: tuple[ColumnSeen, ...]
    texts: tuple[str, ...]
    """Columns that hold no numbers."""
    clock: str
    """Times and rate in words."""
    held: int
    """Rows in which no number differs from the row before."""
    up: str
    timed: bool
    """Whether a column is the time, or the file has a rate."""
    clock_unit: bool
    """Whether the unit of the time is known."""
    header: tuple[str, ...]
    """Names that a mapping must give, for a file without header."""

    def summary(self) -> str:
        """Text for the command line."""
        width = max((len(column.name) for column in self.columns), default=4)
        lines = [f"{self.path.name}: {self.kind}, {self.rows} rows", f"time: {self.clock}"]
        if self.held:
            lines.append(f"held samples: {self.held} rows repeat the row before in every column")
        if self.up != "z":
            lines.append(f"{self.up} points up, as is usual for this format: turned when it is read, so that z does")
        for column in self.columns:
            words = [f"{column.missing} missing"] if column.missing else []
            words += [f"{100 * column.repeated:.0f} % repeated"] if 0.05 < column.repeated < 1.0 else []
            words += ["constant"] if column.low == column.high else []
            words += ["only by a mapping"] if column.aside else []
            unit = column.unit or "?"
            lines.append(
                f"  {column.name:{width}s}  [{unit}]".ljust(width + 12)
                + f"{column.low:.6g} to {column.high:.6g}".ljust(26)
                + " "
                + ", ".join(words)
            )
        if self.texts:
            lines.append(f"no numbers: {', '.join(self.texts[:12])}")
        return "\n".join(line.rstrip() for line in lines)

    def mapping(self, system: Mapping[str, str] | None = None) -> str:
        """A mapping (TOML) with the best guess, and all other columns as comments.

        Args:
            system: Names -> SI units of what the system's recordings may hold; None: columns keep their usual names.
        """
        names, units = [c.name for c in self.columns], [c.unit for c in self.columns]
        if system is None:
            found = {usual_name(c.name): c.name for c in self.columns if not c.aside}
        else:
            found = guesses(names, units, system)
        lines = [f'# {self.path.name} ({self.kind}): check every line; a unit "?" is to be filled in']
        if self.header:
            lines.append(f"names = [{', '.join(map(json.dumps, self.header))}]")
        if self.timed and not self.clock_unit:
            lines.append('time = {column = "time", unit = "s"}  # guess: the file gives no unit')
        lines += [] if self.timed else ["# rate = 100.0  # rows per second, if no column is the time"]
        lines.append(f'up = "{self.up}"  # axis of the file that points up')
        if any(name.endswith("qw") for name in found):
            lines.append('quaternion = "wxyz"  # what qw, qx, qy, qz below hold, in this order')
        lines += ["", "[columns]"]
        seen = dict(zip(names, units, strict=True))
        for ours, theirs in found.items():
            unit = seen[theirs] or (system or {}).get(ours) or ("-" if re.search(r"(^|\.)q[wxyz]$", ours) else "?")
            guessed = "" if seen[theirs] else "  # guess: the file gives no unit"
            key = ours if re.fullmatch(r"[A-Za-z0-9_-]+", ours) else json.dumps(ours)
            lines.append(f"{key} = {{column = {json.dumps(theirs)}, unit = {json.dumps(unit)}}}{guessed}")
        for theirs, unit in seen.items():
            if theirs not in found.values():
                lines.append(f'# "?" = {{column = {json.dumps(theirs)}, unit = {json.dumps(unit or "?")}}}')
        absent = [name for name in system or {} if name not in found]
        lines += [f"# of the system, not found: {', '.join(absent[:60])}"] if absent else []
        return "\n".join(lines) + "\n"

    def write_mapping(self, out: str | Path | None = None, system: Mapping[str, str] | None = None) -> Path:
        """Write the mapping, beside the file as NAME.map.toml or to `out`; a file that is there stays.

        Raises:
            OptionError: `out` is there already.
            StorageError: It cannot be written.
        """
        place = Path(out) if out is not None else self.path.with_name(self.path.name + ".map.toml")
        if place.exists():
            raise OptionError(f"{place} is there already, and stays as it is: name another file with `out`")
        try:
            write_atomically(place, self.mapping(system).encode())
        except StorageError as error:
            raise StorageError(f"{error}; `out` does so") from error
        return place


def inspect_file(path: str | Path) -> Inspection:
    """Look at a file of any format; nothing heavy is imported, and nothing is written.

    Raises:
        FileFormatError: It cannot be read; the message names the format and the next step.
        MissingDependencyError: Its format needs a package that is not installed.
    """
    place = Path(path)
    form = format_of(place)
    table = _of_recordings(place) if form is RECORDINGS else read_table(place, numbered=True)
    kind = f"{form.name} of softgym_envs" if form is RECORDINGS else form.name
    rows = len(table.lines)
    columns, texts, held, measured = [], [], np.ones(max(rows - 1, 0), dtype=bool), np.zeros(rows, dtype=bool)
    for name, unit in zip(table.names, table.units, strict=True):
        try:
            values = table.numbers(name)
        except FileFormatError:
            texts.append(name)
            continue
        if name in ("time", "frame"):
            continue
        same = np.diff(values) == 0
        held &= same | np.isnan(values[1:])
        measured |= np.isfinite(values)
        seen = values[np.isfinite(values)]
        low, high = (float(seen.min()), float(seen.max())) if len(seen) else (np.nan, np.nan)
        repeated = float(same.mean()) if len(same) else 0.0
        columns.append(ColumnSeen(name, unit, low, high, int(np.isnan(values).sum()), repeated, name in table.aside))
    count = int((held & measured[1:] & measured[:-1]).sum())
    clock, timed = _clock(table)
    headed = (f"{name} [{unit}]" if unit else name for name, unit in zip(table.names, table.units, strict=True))
    header = tuple(headed) if table.numbered else ()
    known = "of no unit" not in clock
    return Inspection(place, kind, rows, tuple(columns), tuple(texts), clock, count, table.up, timed, known, header)


def _of_recordings(path: Path) -> Table:
    """Columns of the recordings in a file of ours, one after another."""
    from ..core.trajectory import TrajectorySet  # h5py takes a quarter of the imports

    found = TrajectorySet.load(path)
    if not len(found):
        raise FileFormatError(f"{path} holds no recordings")
    first = found[0]
    controls = np.vstack([first.controls, np.full((1, first.controls.shape[1]), np.nan)])
    names = ("time", *first.names, *(f"control:{name}" for name in first.control_names))
    columns = (first.times, *first.values.T, *controls.T)
    units = ("s", *first.units, *first.control_units)
    where = f"{path} (the first of {len(found)} recordings)"
    return Table(where, names, units, range(1, len(first.times) + 1), columns, source=path)


def _clock(table: Table) -> tuple[str, bool]:
    """Times of a table in words, and whether there are any."""
    try:
        times = table.times()
    except (FileFormatError, DataError) as error:
        if "time" in table.names and not table.units[table.index("time")]:
            cells = table.columns[table.index("time")]
            return f"{cells[0]} to {cells[-1]} of no unit: the mapping must give it", True
        if "frame" in table.names:
            return "frames without a rate: say `fps`, or `rate` in the mapping", False
        return str(error), False
    return _steps(times), True


def _steps(times: Array) -> str:
    """Rate, gaps and irregular steps in words."""
    steps = np.diff(times)
    if not len(steps) or not (steps > 0).any():
        return f"{len(times)} rows at one time"
    usual = float(np.median(steps[steps > 0]))
    gaps = np.flatnonzero(steps > GAP * usual)
    within = steps[(steps > 0) & (steps <= GAP * usual)]
    words = [f"{times[0]:.6g} to {times[-1]:.6g} s", f"{1.0 / within.mean():.5g} rows/s"]
    back = int((steps <= 0).sum())
    words += [f"{back} rows are not later than the row before"] if back else []
    uneven = float(np.std(within)) / usual
    words += [f"irregular by {100 * uneven:.0f} % of a step"] if uneven > UNEVEN else []
    if len(gaps):
        worst = int(gaps[np.argmax(steps[gaps])])
        words.append(f"{len(gaps)} gaps, the longest {steps[worst]:.4g} s after {times[worst]:.6g} s")
    else:
        words.append("no gaps")
    return ", ".join(words)
