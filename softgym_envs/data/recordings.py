"""Recordings of a laboratory: HDF5, columns over time, or tracked points; -> `Trajectory` in SI.

See `data.formats` for what a file may look like, `data.mapping` for names that are not ours, and `core.units` for units.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..core.errors import DataError, FileFormatError
from ..core.simulator import Array
from ..core.trajectory import FILE, UNKNOWN, Trajectory, TrajectorySet, means_between
from .formats import RECORDINGS, format_of, read_table
from .mapping import Mapping, z_up
from .tables import Grid, Table, uniform_grid

FPS = "fps"
"""Key of a recording's metadata: frames per second, as the user states them."""
UNWRAPPED = "unwrapped"
"""Key of a recording's metadata: columns of angles that jumped by whole turns in the file."""
TURNED = "turned"
"""Key of a recording's metadata: which axis of the file pointed up, where it was not z."""
IRREGULAR = "irregular"
"""Key of a recording's metadata: how far its time stamps were off the rows of its grid."""
MOST_TURNED = 4 * np.pi
"""[rad] Range above which an angle cannot be wrapped: it is unwrapped, or not in rad."""
MOST_EMPTY, EMPTIEST = 1_000_000, 100
"""Largest number of points times frames: `MOST_EMPTY` plus `EMPTIEST` times the number of lines."""


def read_csv(path: str | Path, *, meters_per_pixel: float | None = None, fps: float | None = None) -> Trajectory:
    """Read a recording in wide form; see `wide`, whose options these are."""
    return wide(read_table(path), meters_per_pixel=meters_per_pixel, fps=fps)


def wide(table: Table, *, meters_per_pixel: float | None = None, fps: float | None = None) -> Trajectory:
    """A recording in wide form: `time [s], tip.x [mm], tip.y [mm], control:valve [-]`, one line per time.

    Columns whose name begins with `control:` are controls; each acts until the next line, the last line's are not used.
    Everything is converted to SI. Angles that jump by more than half a turn from one line to the next are unwrapped; the
    metadata name them. Lines that are not there become rows of NaN, where nothing acts. Values of irregular stamps stand in the
    nearest row of a uniform grid, with the time by which they were seen later (`Trajectory.offsets`); each line's controls act
    from its own time on, and those of a row are means over it. The metadata say how far stamps are off, and how many rows have
    no line.

    Args:
        table: Its columns.
        meters_per_pixel: Size of a pixel [m], needed if a column is in px.
        fps: Frames per second, needed if there is a column `frame` and no `time`, or if the stamps are rough.

    Raises:
        FileFormatError: No such file, or not such a table; the message names line and column.
        DataError: Unknown units, times of another rate than fps, controls missing, or lines of a file that has controls.
    """
    path = table.path
    stamps = table.times(fps)
    grid = uniform_grid(stamps, where=path, fps=fps)
    times, late = grid.times, _late(stamps, grid)
    acted = [name for name in table.names if name.startswith("control:")]
    absent = len(times) - len(stamps)
    if absent and acted and not grid.irregular:
        raise DataError(
            f"{path}: {absent} lines are missing between {stamps[0]:g} and {stamps[-1]:g} s, and nobody knows "
            f"what acted there; write a line for each, with {acted[0]!r} and empty cells for what was not measured"
        )
    controls: list[tuple[str, Array, str]] = []
    measured: list[tuple[str, Array, str]] = []
    turned: list[str] = []
    for name in table.names:
        if name not in ("time", "frame", *table.aside):
            seen, unit = table.si(name, meters_per_pixel=meters_per_pixel)
            if name.startswith("control:"):
                if np.isnan(seen[:-1]).any():
                    line = table.lines[int(np.argmax(np.isnan(seen)))]
                    raise DataError(f"{path}, line {line}: control {name.removeprefix('control:')!r} is missing")
                controls.append((name.removeprefix("control:"), seen, unit))
                continue
            if unit == "rad" and _unwrap(seen):
                turned.append(name)
            measured.append((name, _placed(seen[:, None], grid, late)[:, 0], unit))
    acting = _columns([seen for _, seen, _ in controls], len(stamps))
    if grid.irregular and controls:
        commanded = np.column_stack([stamps, acting])[:-1]
        acting = means_between(times, commanded)
    else:
        commanded, rows = UNKNOWN, np.full((len(times), acting.shape[1]), np.nan)
        rows[grid.place] = acting
        acting = rows[:-1]
    return Trajectory(
        times,
        acting,
        _columns([values for _, values, _ in measured], len(times)),
        tuple(name for name, _, _ in measured),
        tuple(unit for _, _, unit in measured),
        tuple(name for name, _, _ in controls),
        tuple(unit for _, _, unit in controls),
        metadata={"source": Path(path).name, **({UNWRAPPED: ", ".join(turned)} if turned else {}), **_irregular(stamps, grid)},
        commanded=commanded,
        offsets=_offsets(grid, late),
    )


def _placed(seen: Array, grid: Grid, late: Array) -> Array:
    """Values (rows, n) placed in the rows of a grid (frames, n), NaN where there are none; of two in one row, the nearer."""
    values = np.full((len(grid.times), seen.shape[1]), np.nan)
    order = np.argsort(-np.abs(late), kind="stable")  # of two, the nearer is written last
    values[grid.place[order]] = seen[order]
    return values


def _late(stamps: Array, grid: Grid) -> Array:
    """Delays [s] of time stamps behind the grid, (rows,); zero unless the grid is irregular."""
    return stamps - grid.times[grid.place] if grid.irregular else np.zeros(len(stamps))


def _offsets(grid: Grid, late: Array) -> Array:
    """`Trajectory.offsets` of the rows of a grid."""
    return np.nan_to_num(_placed(late[:, None], grid, late)[:, 0]) if grid.irregular else np.zeros(0)


def _irregular(stamps: Array, grid: Grid) -> dict[str, str]:
    """Entry of the metadata about irregular stamps."""
    if not grid.irregular:
        return {}
    off, rate = np.abs(stamps - grid.times[grid.place]).max(), 1.0 / (grid.times[1] - grid.times[0])
    absent = len(grid.times) - len(np.unique(grid.place))
    without = f", {absent} of {len(grid.times)} without a line" if absent else ""
    return {IRREGULAR: f"up to {1e3 * off:.3g} ms off {rate:.4g} frames/s{without}"}


def _unwrap(angles: Array) -> bool:
    """Remove whole turns between an angle [rad] and the last one that was measured, in place; -> whether there were any."""
    seen = np.isfinite(angles)
    if seen.any() and np.ptp(angles[seen]) > MOST_TURNED:
        return False
    straight = np.unwrap(angles[seen])
    turned = bool((np.abs(straight - angles[seen]) > np.pi).any())
    if turned:
        angles[seen] = straight
    return turned


def read_points_csv(path: str | Path, *, meters_per_pixel: float | None = None, fps: float | None = None) -> Trajectory:
    """Read tracked points in long form; see `points_over_time`, whose options these are."""
    return points_over_time(read_table(path), meters_per_pixel=meters_per_pixel, fps=fps)


def points_over_time(table: Table, *, meters_per_pixel: float | None = None, fps: float | None = None) -> Trajectory:
    """Tracked points in long form: `time [s], point, x [mm], y [mm]`, one line per point and time.

    Two or three of x, y and z are given. A column `confidence` is not used: leave out points that are not certain.
    Lines may come in any order; a point that is not there at a time, and a frame that is not there at all, become NaN.
    Values are named `point3.x` for a point called 3, `tip.x` for one called tip. Columns stand in the natural order of these
    names (point2, point10, tip), wherever a point first appears. Axes are those of the file; see `flip_y`.
    There are no controls; see `Trajectory.with_controls`. Files in which different points appear: see `align_points`.

    Args:
        table: Its columns.
        meters_per_pixel: Size of a pixel [m], needed if the points are in px.
        fps: Frames per second, needed if there is a column `frame` and no `time`, or if the stamps are rough.

    Raises:
        FileFormatError: No such file, or not such a table; the message names line and column.
        DataError: Unknown units, times of another rate than fps, a point twice at one time.
    """
    path = table.path
    points = table.column("point")
    axes = [axis for axis in ("x", "y", "z") if axis in table.names]
    unknown = sorted(set(table.names) - {"time", "frame", "point", "x", "y", "z", "confidence"})
    if unknown or len(axes) < 2:
        raise FileFormatError(
            f"{path} has columns {', '.join(table.names)}; expected time, point, x, y and perhaps "
            "z (or frame for time); two of x, y, z suffice, and confidence is allowed"
        )
    frames, inverse = np.unique(table.times(fps), return_inverse=True)
    grid = uniform_grid(frames, where=path, fps=fps)
    times, late = grid.times, _late(frames, grid)
    labels = _point_labels(table.path, table.lines, points)
    seen: dict[tuple[int, str], int] = {}
    for line, frame, label in zip(table.lines, inverse, labels, strict=True):
        if (int(frame), label) in seen:
            raise DataError(f"{path}, line {line}: {label} at {frames[frame]:g} s is in line {seen[int(frame), label]} already")
        seen[int(frame), label] = line
    order = {label: place for place, label in enumerate(sorted(set(labels), key=_natural))}
    if len(order) * len(times) > MOST_EMPTY + EMPTIEST * len(labels):
        raise DataError(
            f"{path} names {len(order)} points and {len(times)} times in {len(labels)} lines: nearly all are missing. Do the "
            "columns stand under the right names?"
        )
    values = np.full((len(frames), len(order), len(axes)), np.nan)
    units = []
    for place, axis in enumerate(axes):
        column, unit = table.si(axis, meters_per_pixel=meters_per_pixel)
        values[inverse, [order[label] for label in labels], place] = column
        units.append(unit)
    names = tuple(f"{label}.{axis}" for label in order for axis in axes)
    return Trajectory(
        times,
        np.zeros((len(times) - 1, 0)),
        _placed(values.reshape(len(frames), len(names)), grid, late),
        names,
        tuple(units) * len(order),
        metadata={"source": Path(table.path).name, **_irregular(frames, grid)},
        offsets=_offsets(grid, late),
    )


def align_points(recordings: Sequence[Trajectory]) -> list[Trajectory]:
    """The recordings with the columns of all of them, in natural order; a column that a recording lacks is NaN there.

    For files of tracked points: a point that the tracker never found in one file is missing there, not another point.

    >>> still = Trajectory(np.arange(2.0), np.zeros((1, 0)), np.zeros((2, 1)), ("point10.x",), ("m",))
    >>> [run.names for run in align_points([still, replace(still, names=("point2.x",))])]
    [('point2.x', 'point10.x'), ('point2.x', 'point10.x')]

    Raises:
        DataError: Two recordings give a column in different units.
    """
    units: dict[str, str] = {}
    for recording in recordings:
        for name, unit in zip(recording.names, recording.units, strict=True):
            if units.setdefault(name, unit) != unit:
                raise DataError(f"{name} is in {unit} in one recording and in {units[name]} in another; expected one unit")
    names = tuple(sorted(units, key=_natural))
    return [_with_columns(recording, names, tuple(units[name] for name in names)) for recording in recordings]


def _with_columns(recording: Trajectory, names: tuple[str, ...], units: tuple[str, ...]) -> Trajectory:
    """The recording with these columns in this order, NaN in those that it lacks."""
    values, place = np.full((len(recording.times), len(names)), np.nan), {name: k for k, name in enumerate(names)}
    values[:, [place[name] for name in recording.names]] = recording.values
    return replace(recording, values=values, names=names, units=units)


def _natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Sort key in which numbers count as numbers: point2 before point10."""
    parts = re.split(r"(\d+)", name)
    numbers = [part.lstrip("0") if place % 2 else part for place, part in enumerate(parts)]
    return [(len(part) if place % 2 else 0, part) for place, part in enumerate(numbers)], name


def flip_y(recording: Trajectory) -> Trajectory:
    """A recording of a plane in image coordinates, y down, in those of the robots, y up: signs of y and of angles change.

    >>> image = Trajectory(np.arange(2.0), np.zeros((1, 0)), np.ones((2, 3)), ("x", "y", "theta"), ("m", "m", "rad"))
    >>> flip_y(image).values[0].tolist()
    [1.0, -1.0, -1.0]

    Raises:
        DataError: There is a third axis.
    """
    axes = [name.split(".")[-1].removeprefix("v") for name in recording.names]
    if "z" in axes:
        raise DataError(f"{recording.names[axes.index('z')]} is recorded: only recordings of a plane are flipped, not of space")
    turned = [axis == "y" or unit in ("rad", "rad/s") for axis, unit in zip(axes, recording.units, strict=True)]
    return replace(recording, values=recording.values * np.where(turned, -1.0, 1.0))


def read_recordings(
    paths: Sequence[str | Path],
    *,
    meters_per_pixel: float | None = None,
    fps: float | None = None,
    mapping: Mapping | None = None,
) -> tuple[Trajectory, ...]:
    """All recordings of HDF5 files of `TrajectorySet.save`, of tables in wide form, and of tables of tracked points.

    Tables may be in any of `data.formats`. Files of tracked points have the columns of all of them; see `align_points`. Options
    are those of `wide`; a mapping names the columns of all tables.

    Raises:
        FileFormatError: A file is missing, or has no reader; the message says what to do.
        DataError: Two files of points give a column in different units, or `meters_per_pixel` is given and no column is in px.
    """
    tables = {path: _table(path, mapping) for path in map(Path, paths) if not _is_ours(path)}
    if meters_per_pixel is not None and not any("px" in table.units for table in tables.values()):
        raise DataError(f"`meters_per_pixel={meters_per_pixel}` is given, but no column of a file is in px")
    found: list[Trajectory] = []
    points: list[int] = []
    for path in map(Path, paths):
        if path not in tables:
            inside = TrajectorySet.load(path)
            if not len(inside):
                raise FileFormatError(f"{path} holds no recordings")
            numbers = [f" [{place + 1}]" if len(inside) > 1 else "" for place in range(len(inside))]
            found += [_named(each, f"{path.name}{number}") for each, number in zip(inside, numbers, strict=True)]
            continue
        table = tables[path]
        long = "point" in table.names
        points += [len(found)] if long else []
        read = (points_over_time if long else wide)(table, meters_per_pixel=meters_per_pixel, fps=fps)
        turned = _turned(read, table.up, stated=mapping is not None and mapping.up is not None)
        found.append(_named(turned, path.name))
    for place, aligned in zip(points, align_points([found[place] for place in points]), strict=True):
        found[place] = aligned
    return tuple(found)


def _is_ours(path: Path) -> bool:
    """Whether `TrajectorySet.load` reads it, or says best why it cannot."""
    named = path.suffix.lower() in (".h5", ".hdf5")
    if not path.is_file() or not path.stat().st_size:
        return named
    form = format_of(path)
    return form is RECORDINGS or (named and not form.remedy)


def _table(path: Path, mapping: Mapping | None) -> Table:
    """The columns of a file under our names."""
    if mapping is not None:
        return mapping.of(read_table(path, mapping.names))
    table = read_table(path)
    if not set(table.names) - {"time", "frame", *table.aside}:
        raise FileFormatError(
            f"{table.path} has {', '.join(table.names[:12])}: say which of them are the system's in a mapping (`map`); "
            f"`softgym-envs inspect {path} SYSTEM` writes one"
        )
    return table


def _turned(recording: Trajectory, up: str, *, stated: bool) -> Trajectory:
    """The recording with z up, and a word about it in its metadata."""
    found = z_up(recording, up, needed=stated)
    return found if found is recording else replace(found, metadata={**found.metadata, TURNED: up})


def _named(recording: Trajectory, name: str) -> Trajectory:
    """The recording with the name of its file."""
    return replace(recording, metadata={**recording.metadata, FILE: name})


def in_order_of(first: Trajectory, other: Trajectory) -> Trajectory:
    """Order quantities and controls as in the first recording, each if their names agree."""
    if set(other.names) == set(first.names):
        other = other.select(first.names)
    if set(other.control_names) != set(first.control_names):
        return other
    return other.select_controls(first.control_names)


def with_controls_of(trajectory: Trajectory, given: Trajectory) -> Trajectory:
    """A recording with the controls of another one of the same times.

    Raises:
        DataError: Their times differ.
    """
    if given.num_steps != trajectory.num_steps or not np.allclose(given.times, trajectory.times, atol=1e-3 * trajectory.period):
        raise DataError(
            f"controls have {given.num_steps} steps from {given.times[0]:g} s, the recording {trajectory.num_steps} from "
            f"{trajectory.times[0]:g} s; they must have the same times"
        )
    found = trajectory.with_controls(given.controls, given.control_names, given.control_units)
    return replace(found, commanded=given.commanded)


def _point_labels(path: str, lines: Sequence[int], points: Sequence[str]) -> list[str]:
    for line, point in zip(lines, points, strict=True):
        if not point:
            raise FileFormatError(f"{path}, line {line}: the point has no name")
    return [f"point{point}" if point.isdigit() else point for point in points]


def _columns(columns: Sequence[Array], rows: int) -> Array:
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0))
