"""Recordings of [Dubied2022]: markers of a beam that is held and let go -> their paths in the beam's plane from then on.

The files have columns `t_s`, `Tip - 1_x`, `Tip - 1_y`, `Tip - 1_z`, ..., `Base - 1_x`, ... [m] at 100 Hz. Used are z, along the
beam, and x, up. Markers on the base show its displacement between files; their rotation is not used, as one of them
jumps by 0.9 mm when a beam is let go. Legend: T rows, M markers.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from softgym_envs.core.errors import DataError, FileFormatError

Array = NDArray[np.float64]

REFERENCE = {
    "Base - 1": (-0.021467, 0.048689), "Base - 2": (-0.018478, 0.076118), "Base - 3": (-0.022365, 0.049296),
}  # fmt: skip
"""Places of the base's markers in beam_gravity_V2_a.csv, (z, x) [m]."""
PERIOD = 0.01
"""[s]"""
AWAY = 0.096
"""[m] Distance from a marker of the base to those of the held tip; in files in m within a factor of 2."""
MOVED, SHAKEN, LEAST = 0.02, 5.0, 1e-4
"""Least motion of a moving tip: share of its whole way, standard deviations of the held part, and [m]."""
HELD = 0.25
"""[s] Time over which the median gives the place where the tip is held."""
DISTURBED = 14
"""Unused rows from the release on: the holder may be in the beam's way, the load's string slack."""
LOST = 0.05
"""[s] Longest gap of a marker; one with a longer gap is not used."""
LONGEST = 240
"""Most rows that are used."""


class Release(NamedTuple):
    """A recording from the release on."""

    name: str
    load: float
    """[kg]"""
    labels: tuple[str, ...]
    """M names of the markers at the tip."""
    began: float
    """[s] Time of the release by the recording's clock."""
    shift: Array
    """(2,) displacement of the base from the reference [m], which is subtracted."""
    paths: Array
    """(T, M, 2) along, up [m], every `PERIOD`; row 0 is where they were held."""

    @property
    def heights(self) -> Array:
        """Mean height of the markers (T,) [m]."""
        return np.asarray(self.paths[:, :, 1].mean(axis=1))


def read(path: Path, load: float) -> Release:
    """A file, with its load [kg].

    Raises:
        FileFormatError: No such file, or no such columns.
        DataError: It contains no release of a beam, or it is not in m.
    """
    times, tracks = _tracks(path)
    tips = {name: track for name, track in tracks.items() if name.lower().startswith("tip")}
    if not tips:
        raise FileFormatError(f"{path} has markers {', '.join(tracks)}; expected some whose names begin with Tip")
    moves = [np.median(tracks[n], axis=0) - place for n, place in REFERENCE.items() if n in tracks]
    shift = np.median(moves, axis=0) if moves else np.zeros(2)
    paths = np.stack(list(tips.values()), axis=1) - shift
    heights = paths[:, :, 1].mean(axis=1)
    away = float(np.hypot(*(paths[:10].mean(axis=(0, 1)) - REFERENCE["Base - 1"])))
    if not 0.5 * AWAY < away < 2.0 * AWAY:
        raise DataError(f"{path}: tip and base are {away:.4g} m apart, {AWAY:g} in this beam: are its columns in m?")
    limit = max(MOVED * np.ptp(heights), SHAKEN * heights[:10].std(), LEAST)
    moving = np.flatnonzero(np.abs(heights - heights[:10].mean()) > limit)
    if not len(moving) or times[moving[0]] < times[0] + 0.1 or len(times) - moving[0] < 100:
        raise DataError(f"{path}: the beam must be held still for 0.1 s, and be seen for a second after it is let go")
    first = int(moving[0])
    began = _began(times, heights, first)
    held = np.median(paths[(times < times[first] - 2 * PERIOD) & (times > times[first] - HELD)], axis=0)
    rows = min(LONGEST, int((times[-1] - began) / PERIOD))
    paths = CubicSpline(times, paths)(began + PERIOD * np.arange(rows))
    paths[0] = held
    return Release(path.stem, load, tuple(tips), began, shift, paths)


def _tracks(path: Path) -> tuple[Array, dict[str, Array]]:
    """Times (T,) and (z, x) of every marker, (T, 2) [m]."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        names = lines[0].split(",") if lines else []
        table = np.genfromtxt(lines, delimiter=",", skip_header=1) if len(lines) > 1 else np.empty(0)
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise FileFormatError(f"cannot read {path}: {error}") from None
    column = {name.strip(): k for k, name in enumerate(names)}
    labels = [name[:-2] for name in column if name.endswith("_x") and f"{name[:-2]}_z" in column]
    if "t_s" not in column or not labels or table.ndim != 2 or table.shape[1] != len(names):
        raise FileFormatError(f"{path}: expected columns t_s, Tip - 1_x, Tip - 1_y, Tip - 1_z, ... in m")
    found = {label: table[:, [column[f"{label}_z"], column[f"{label}_x"]]] for label in labels}
    times = table[:, column["t_s"]]
    if len(times) < 2 or not (np.diff(times) > 0).all():
        raise FileFormatError(f"{path}: t_s is missing in some row, or does not grow")
    filled = {label: _filled(times, track) for label, track in found.items()}
    seen = {label: track for label, track in filled.items() if track is not None}
    if not seen:
        raise FileFormatError(f"{path}: every marker is lost for more than {LOST:g} s at a time")
    return times, seen


def _filled(times: Array, track: Array) -> Array | None:
    """Places of a marker (T, 2) with short gaps filled; None if one is too long, or at an end."""
    seen = np.flatnonzero(np.isfinite(track).all(axis=1))
    if len(seen) < 2 or seen[0] > 0 or seen[-1] < len(track) - 1 or np.diff(times[seen]).max() > LOST:
        return None
    return np.asarray(CubicSpline(times[seen], track[seen])(times)) if len(seen) < len(track) else track


def _began(times: Array, heights: Array, first: int) -> float:
    """Release time: half a period before the first turning point, the period lasting to the third; near the first move [s]."""
    turns: list[float] = []
    place = first + 3
    while len(turns) < 3 and place < len(times) - 1:
        below, here, above = heights[place - 1 : place + 2]
        if (here - below) * (above - here) <= 0 and above - 2 * here + below != 0:
            turns.append(times[place] + 0.5 * PERIOD * (below - above) / (above - 2 * here + below))
            place += 3
        place += 1
    told = turns[0] - 0.5 * (turns[2] - turns[0]) if len(turns) == 3 else times[first]
    return float(np.clip(told, times[first] - 4 * PERIOD, times[first]))


def to_csv(release: Release, path: Path) -> Path:
    """Write the recording in the form that `softgym-envs identify vine` reads; disturbed rows are empty."""
    names = [f"marker{k}.{axis} [m]" for k in range(release.paths.shape[1]) for axis in "xy"]
    lines = [",".join(["time [s]", *names, "control:load [kg]"])]
    for row, places in enumerate(release.paths):
        cells = [f"{v:.7f}" if not 0 < row < DISTURBED else "" for v in places.ravel()]
        lines.append(",".join([f"{PERIOD * row:.2f}", *cells, f"{release.load:g}"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path
