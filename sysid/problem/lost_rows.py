"""Rows that a tracker lost (zeros) or repeated become NaN, with a note.

Legend: T rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError
from softgym_envs.core.trajectory import Trajectory

FAR = 5.0
"""Distance from zero, over the largest step beside, above which rows of zeros are lost: motion itself gives about 1."""
JUMP = 0.5
"""Share of the motion during repeated rows that the row after them makes up at once. Bodies that stand still and start make up
at most one row of it, 1/3 of two repeated ones; steady motion makes up all."""
RESOLUTION = 4.0
"""Smallest jump after repeated rows, over the smallest change of a column: fewer are an encoder that moves slowly."""
MOST_REPEATED = 0.25
"""Largest share of repeated rows that become NaN."""


def without_lost(recording: Trajectory) -> tuple[Trajectory, tuple[str, ...]]:
    """The recording with NaN in rows that a tracker lost or repeated, and notes on them.

    Raises:
        DataError: More than a quarter of the rows are repeated.
    """
    values, notes = recording.values.copy(), []
    zero: NDArray[np.bool_] = _zero_rows(recording)
    if zero.any():
        values[zero] = np.nan
        notes.append(f"{_rows(zero)} of zeros are lost frames: taken as missing; leave their cells empty")
    repeated = _repeated_rows(replace(recording, values=values))
    if (share := float(repeated.any(axis=1).mean())) > MOST_REPEATED:
        raise DataError(
            f"{_rows(repeated)} repeat the row before while it moves, {100 * share:.0f} % of all: the tracker repeated its "
            "last value; leave these cells empty, or give each sample once with its own time"
        )
    if repeated.any():
        values[repeated] = np.nan
        notes.append(f"{_rows(repeated)} repeat the row before while it moves: taken as missing; leave cells empty")
    return (replace(recording, values=values), tuple(notes)) if notes else (recording, ())


def _bodies(recording: Trajectory) -> Iterator[tuple[list[int], list[int]]]:
    """Columns of every place (coordinates of one point, or one angle), and those of the attitude that belongs to it."""
    places: dict[str, list[int]] = {}
    turns: dict[str, list[int]] = {}
    for k, (name, unit) in enumerate(zip(recording.names, recording.units, strict=True)):
        stem, _, entry = name.rpartition(".")
        if entry in ("x", "y", "z"):
            places.setdefault(stem, []).append(k)
        elif entry in ("qw", "qx", "qy", "qz"):
            turns.setdefault(stem, []).append(k)
        elif unit in ("m", "rad"):
            places[f"{stem}.{entry}"] = [k]
    for stem in dict.fromkeys([*places, *turns]):
        turn = turns.get(stem, [])
        yield places.get(stem, []), turn if len(turn) == 4 else []


def _zero_rows(recording: Trajectory) -> NDArray[np.bool_]:
    """Flags (T, ny): zeros that are no measurements. A quaternion is never zero; a place is not between rows far from it."""
    values, lost = recording.values, np.zeros(recording.values.shape, dtype=bool)
    for place, turn in _bodies(recording):
        if turn:
            lost[:, turn] |= (values[:, turn] == 0.0).all(axis=1, keepdims=True)
        if not place:
            continue
        zero = (values[:, place] == 0.0).all(axis=1)
        seen = np.flatnonzero(~zero & np.isfinite(values[:, place]).all(axis=1))
        if not zero.any() or len(seen) < 4:
            continue
        steps = np.linalg.norm(np.diff(values[seen][:, place], axis=0), axis=1)
        usual = float(np.median(steps[steps > 0.0])) if steps.any() else 0.0
        for first, last in runs_of(zero):
            at = int(np.searchsorted(seen, first))
            beside = [k for k in (at - 1, at) if 0 <= k < len(seen)]
            across = at - 1  # the step over the gap itself is no step of the motion
            near = np.delete(steps, across) if 0 <= across < len(steps) else steps
            near = near[max(at - 4, 0) : at + 3]
            distance = min(float(np.linalg.norm(values[seen[k]][place])) for k in beside)
            if distance > FAR * max(float(near.max(initial=0.0)), usual):
                lost[first : last + 1, [*place, *turn]] = True
    return lost


def _repeated_rows(recording: Trajectory) -> NDArray[np.bool_]:
    """Flags (T, ny): bodies that stay bit for bit for two rows or more, and then make up for the motion at once."""
    values, repeated = recording.values, np.zeros(recording.values.shape, dtype=bool)
    for place, turn in _bodies(recording):
        columns = [*place, *turn]
        part = values[:, columns]
        seen = np.flatnonzero(np.isfinite(part).all(axis=1))
        if len(seen) < 6:
            continue
        change = np.diff(part[seen], axis=0)
        size = np.linalg.norm(change, axis=1)
        smallest = np.where(change != 0.0, np.abs(change), np.inf).min(axis=0)
        for first, last in runs_of(size == 0.0):  # changes first ... last are zero: rows first + 1 ... last + 1 repeat
            count = last - first + 1
            if count < 2 or first < 1 or last + 2 >= len(size):
                continue
            jump = change[last + 1]
            beside = max(size[first - 1], size[last + 2])
            if size[last + 1] > JUMP * (count + 1) * beside > 0.0 and (np.abs(jump) > RESOLUTION * smallest).any():
                repeated[seen[first + 1 : last + 2, None], columns] = True
    return repeated


def runs_of(flags: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """First and last index of every run of flags."""
    for flag, run in groupby(range(len(flags)), key=lambda k: bool(flags[k])):
        if flag:
            indices = list(run)
            yield indices[0], indices[-1]


def _rows(flags: NDArray[np.bool_]) -> str:
    """Rows with a flag (T, ny), in words: "3 rows (5, 9 to 10)", counted from 1."""
    rows: NDArray[np.bool_] = np.asarray(flags.any(axis=1))
    runs = [f"{a + 1}" if a == b else f"{a + 1} to {b + 1}" for a, b in runs_of(rows)]
    some = ", ".join(runs[:4]) + (", ..." if len(runs) > 4 else "")
    count = int(rows.sum())
    return f"{count} row{'s' * (count > 1)} ({some})"
