"""Checks of poses before anything is simulated: units of length, frame rate, the vertical, the order of quaternions.

Only names, units, values, gravity and the outline of the bodies are used. Another reading of the columns is named only where
the data contradict the columns as they are, and this reading explains them: gravity pulls along another axis, a body at rest
stands on no face, strikes at no common height, or has another shape. Symmetric, resting and flying bodies often show nothing:
then nothing is said.

Legend: T rows, n points of an outline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core import lie
from softgym_envs.core.errors import DataError
from softgym_envs.core.procedure import Outline
from softgym_envs.core.simulator import Array
from softgym_envs.core.trajectory import Trajectory
from softgym_envs.data.mapping import TO_Z_UP
from softgym_envs.data.sensors import quaternions_of

from .lost_rows import runs_of

Outlined = Callable[[Any, Trajectory], Outline | None]
"""See `Recorded.outline`."""
Shown = Callable[[Trajectory], Outline | None]
"""Recording -> its outline."""
QUIET, WINDOWS = 0.1, (3, 5, 7, 9, 13, 17, 25, 35)
"""Largest standard deviation of an acceleration, over gravity, and the rows of parabolas that are tried until it is met."""
FALLING, STRUCK = 0.25, 0.5
"""Deviation from free fall, over gravity, below which a body falls (2.5 standard deviations), and above which it touches."""
FALL_ROWS, TOUCH_ROWS, STILL_ROWS = 5, 6, 4
"""Fewest rows of a fall, one after the other, of touching, and of rest, that count as evidence."""
POSE_SHORTEST = 4e-3
"""Time between rows [s] that is short enough for impacts."""
SHORT = 8
"""Steps of a recording that is too short to judge."""
FALLEN = 0.1
"""Least height of a fall, over the size of the body: shorter ones are vibrations."""
POSE_STILL = 0.03
"""Motion within five rows, over the size of the body, below which it rests."""
TIMES = 2.0
"""Factor by which another reading must explain the data better. Of 285 real tosses of a cube, wrong readings left at least 0.76
times what the right one did, in the median 16 times."""
UPRIGHT = 3.0
"""`TIMES` for the vertical at rest, as few points stand on the ground."""
STANDS = 0.1
"""Largest misfit of a body that stands, over its size; real cubes leave 0.03, robots before cameras 0.06."""
POSE_LEAST = 0.04
"""Misfit of the outline over the size of the body below which no other reading is tried; right tosses leave 0.03."""
FLIGHT_ROWS, OVER_GROUND = 8, 0.1
"""Fewest rows before the first strike whose fall is compared with gravity, and height over the lowest place, over the size of
the body, below which it may have struck."""
STEADY, ASIDE = 0.5, 0.25
"""Largest change of a fall's acceleration within half of its rows, and largest acceleration aside, over its mean: a hand does
more of either."""
FALL_TIMES, FALL_ERRORS = 1.4, 6.0
"""Factor, and standard errors, by which a fall must differ from gravity. 535 real throws and drops fell with 0.78 to 1.03 times
gravity: plates brake."""
FINE = 1e-4
"""Least change of a column [m, rad, -] above which all are rounded so coarsely that one may stay by chance."""
LENGTHS = {1e-3: "mm", 1e-2: "cm", 1e-1: "dm", 1e3: "km"}
"""Metres per unit of length that columns may be in."""
DEGREES = float(np.sqrt(180.0 / np.pi))
"""Angle over the end of a joint's range above which it is in degrees: half of the way on a logarithmic scale."""
STANDING = 0.1
"""Error of a centre's height at rest, over the height of a box that stands, with which it shows mm: no table is 50 m high."""
RATES = 0.5
"""Difference of recorded angular velocities from those of the attitudes, over their size, above which other readings are tried:
rates that a tracker differentiates and filters lag, and are off by 0.2; those of another order by 1 and more."""
TURN = 4.0 * np.pi
"""Range of an angle of a plate [rad] above which it may be in degrees: no recorded one turned twice."""
POSE_ALIKE = 1.3
"""Multiple of the best reading's misfit up to which another one is named as well."""


UP: Array = np.array([0.0, 0.0, 1.0])
"""Direction away from gravity."""


class PoseReading(NamedTuple):
    """Another reading of the columns."""

    words: str
    """What looks wrong, and the remedy."""
    read: Callable[[Trajectory], Trajectory]
    """The recording as it is then meant."""


def check_poses(outlined: Outlined, simulator: Any, recording: Trajectory, gravities: Sequence[float] = (9.81,)) -> None:
    """Compare a recording with gravity, and its bodies' outline with level ground and their shape at rest.

    Args:
        outlined: See `Recorded.outline`.
        simulator: Simulator of the system.
        recording: Recording of a laboratory.
        gravities: Accelerations with which a free body may fall [m/s^2]; none: any.

    Raises:
        DataError: Lengths, times, the vertical or quaternions look otherwise than labelled, or a column of a moving body never
            changes; the message names the remedy.
    """
    if recording.num_steps < SHORT * POSE_SHORTEST / min(recording.period, POSE_SHORTEST):
        return
    given, recording = recording, _plain(recording)

    def shown(read: Trajectory) -> Outline | None:
        return outlined(simulator, read)

    seen = shown(recording)
    if seen is None or not np.isfinite(seen.points).any():
        return
    if seen.rigid:
        _check_dead(given)
    parameters = simulator.default_parameters
    gravity = float(parameters.gravity) if "gravity" in parameters.names() else 9.81
    if gravity > 0.0:
        body = _Body(seen, recording.period, gravity)
        _check_lengths(body, recording, shown)
        if seen.rigid and gravities and not given.controls.any():
            _check_fall(body, shown(given.on_grid), given.times, gravities)
        _check_vertical(body, recording, shown)
        _check_attitude(body, recording, shown)


def check_angles(limits: Mapping[str, tuple[float, float]], recording: Trajectory) -> None:
    """Compare angles of joints with their ranges.

    Raises:
        DataError: They reach so far beyond them that they are in degrees.
    """
    for name in (name for name in recording.names if name in limits):
        allowed, seen = max(map(abs, limits[name])), np.abs(recording.column(name))
        reached = float(np.nanquantile(seen, 0.9)) if np.isfinite(seen).any() else 0.0
        if reached > DEGREES * allowed:
            raise DataError(
                f"wrong units: {name} reaches {reached:.3g} rad, its joint {allowed:.3g} rad: write [deg] in the header"
            )


def _plain(recording: Trajectory) -> Trajectory:
    """The values in rows at least `POSE_SHORTEST` apart; of lengths, medians of three rows, without strays and gaps."""
    every = max(int(POSE_SHORTEST / recording.period), 1)
    times, values = recording.times[::every], recording.values[::every].copy()
    lengths = [k for k, unit in enumerate(recording.units) if unit == "m"]
    three = np.sort(np.lib.stride_tricks.sliding_window_view(values[:, lengths], 3, axis=0), axis=-1)  # NaN comes last
    seen = np.isfinite(three).sum(axis=-1)
    values[1:-1, lengths] = np.where(
        seen == 2, 0.5 * (three[..., 0] + three[..., 1]), np.where(seen == 1, three[..., 0], three[..., 1])
    )
    return Trajectory(times, np.zeros((len(times) - 1, 0)), values, recording.names, recording.units)


class _Body:
    """What a recording shows of gravity and ground: accelerations, and rows of rest."""

    def __init__(self, seen: Outline, period: float, gravity: float) -> None:
        self.seen, self.points, self.period, self.gravity = seen, seen.points, period, gravity
        extent: Array = np.ptp(seen.rest, axis=0)
        self.planar = bool(extent[1] == 0.0)
        self.size = 0.5 * float(extent[extent > 0.0].min())
        self.center = seen.points.mean(axis=1)
        self.acceleration, noise, self.rows = _acceleration(self.center, period, gravity)
        self.still = _still(seen.points, POSE_STILL * self.size + 6.0 * noise)

    def scaled(self, unit: float) -> _Body:
        """The body if lengths are in a unit [m]."""
        return _Body(self.seen._replace(points=unit * self.points), self.period, self.gravity)

    def falls(self, up: Array) -> int:
        """Rows of the longest free fall along a direction (3,); 0 if it is a short one."""
        with np.errstate(invalid="ignore"):
            free = np.linalg.norm(self.acceleration + self.gravity * up, axis=1) < FALLING * self.gravity
        rows = max((last - first + 1 for first, last in runs_of(free) if not self._stopped(up, first, last)), default=0)
        deep = 0.5 * self.gravity * (rows * self.period) ** 2 > FALLEN * self.size
        return rows if deep and rows >= FALL_ROWS else 0

    def _stopped(self, up: Array, first: int, last: int) -> bool:
        """It next rests as high as the top of this motion: a hand that stops it accelerates it like a fall the other way."""
        rest = np.flatnonzero(self.still[last:])
        heights = self.center @ up
        top = np.nanmax(heights[first : last + 1]) - FALLEN * self.size
        return len(rest) > 0 and bool(heights[last + rest[0]] >= top)

    def tilt(self) -> float:
        """RMS height of the standing face's other corners over the lowest one at rest, over the body's size."""
        heights = np.sort(self.points[self.still][..., 2], axis=1)
        return float(np.sqrt(np.nanmean((heights[:, 2] - heights[:, 0]) ** 2))) / self.size

    def standing(self) -> float:
        """Height of the centre at rest, over its height above the lowest point; 0 without rows at rest."""
        if self.still.sum() < STILL_ROWS:
            return 0.0
        heights = self.points[self.still][..., 2]
        return float(np.median(self.center[self.still, 2]) / np.median(self.center[self.still, 2] - heights.min(axis=1)))

    def misfit(self, seen: Outline, up: Array = UP) -> float:
        """RMS deviation of an outline from ground that is level, and from its shape at rest, over the body's size.

        NaN without evidence: rows in which it touches or rests.
        """
        heights = np.sort(seen.points[..., 2], axis=1)
        low = heights[:, 0]
        pulled = self.acceleration @ up
        touching = _inner(np.abs(pulled + self.gravity) > STRUCK * self.gravity, self.rows // 2)
        there = touching | self.still
        parts = []
        if touching.sum() >= TOUCH_ROWS:
            parts.append(low[touching] - np.nanmedian(low[there]))
        if self.still.sum() >= STILL_ROWS:
            parts.append(heights[self.still, 1 if self.planar else 2] - low[self.still])
        if not parts:
            return float("nan")
        parts.append(np.minimum(low - np.nanmedian(low[there]), 0.0))
        return float(np.sqrt(sum(np.nanmean(part**2) for part in parts))) / self.size


def _acceleration(center: Array, period: float, gravity: float) -> tuple[Array, float, int]:
    """Accelerations (T, 3) by parabolas through so many rows that noise leaves a tenth of gravity; NaN where it leaves more.

    Also the noise [m], and the rows of a parabola.
    """
    third = np.diff(center, 3, axis=0)
    noise = float(np.nanmax(np.nanmedian(np.abs(third), axis=0), initial=0.0)) / (0.6745 * np.sqrt(20.0)) if len(third) else 0.0
    found = np.full(center.shape, np.nan)
    for rows in WINDOWS:
        place = period * (np.arange(rows) - rows // 2)
        kernel = 2.0 * np.linalg.pinv(np.vander(place, 3))[0]
        if rows > len(center):
            break
        if noise * np.linalg.norm(kernel) < QUIET * gravity:
            inside = slice(rows // 2, len(center) - rows // 2)
            found[inside] = np.stack([np.convolve(column, kernel[::-1], mode="valid") for column in center.T], axis=1)
            break
    return found, noise, rows


def _inner(flags: NDArray[np.bool_], rows: int) -> NDArray[np.bool_]:
    """Flags without the first and last rows of every run: parabolas show a strike so early, and so late."""
    found = np.zeros(len(flags), dtype=bool)
    for first, last in runs_of(flags):
        found[first + rows : last + 1 - rows] = True
    return found


def _still(points: Array, most: float) -> NDArray[np.bool_]:
    """Rows (T,) from which all points move little within two rows before and after."""
    windows = np.lib.stride_tricks.sliding_window_view(points, 5, axis=0)
    found = np.zeros(len(points), dtype=bool)
    with np.errstate(invalid="ignore"):
        found[2:-2] = np.ptp(windows, axis=-1).max(axis=(1, 2)) < most
    return found


def _check_lengths(body: _Body, recording: Trajectory, shown: Shown) -> None:
    """Raises DataError: the shape, a fall or the height at rest show another unit of length than m."""
    given, height = _unexplained(body, body.seen), body.standing()
    if not body.seen.rigid:
        errors = {unit: _unexplained(body, shown(_scaled(recording, unit))) for unit in LENGTHS}
        best = min(errors, key=errors.__getitem__)
        fitting = [best] if given > POSE_LEAST and UPRIGHT * errors[best] < given else []
        said = f"as they are, the shape is off by {given:.2g} times its size"
    elif abs(height * min(LENGTHS) - 1.0) < STANDING:
        fitting, said = [min(LENGTHS)], f"at rest its centre is {height:.4g} times as high as on the ground"
    else:
        fitting = [unit for unit in LENGTHS if body.scaled(unit).falls(UP) > TIMES * body.falls(UP)]
        said = f"in flight it falls with {body.gravity / (fitting or [1.0])[0]:.3g} m/s^2"
    if fitting:
        name = LENGTHS[fitting[0]]
        raise DataError(f"wrong units: lengths look as if they were given in {name} ({said}); write [{name}] in the header")


def _check_fall(body: _Body, seen: Outline | None, times: Array, gravities: Sequence[float]) -> None:
    """Raises DataError: before its first strike the body falls steadily, and far from gravity."""
    fallen = _fall(seen, times, body.size) if seen is not None else None
    if fallen is None:
        return
    pulled, error = fallen
    known = min(gravities, key=lambda gravity: abs(gravity - pulled))
    if not 1.0 / FALL_TIMES < pulled / known < FALL_TIMES and abs(pulled - known) > FALL_ERRORS * error:
        factor = float(np.sqrt(known / pulled))
        ms = "are the times in ms? then " if factor > 100.0 else ""
        raise DataError(
            f"wrong frame rate or unit: it falls with {pulled:.3g} m/s^2 before it strikes, expected {known:.3g}: {ms}it would "
            f"fit {factor / body.period:.3g} frames per second, or lengths {factor**2:.3g} times as long; if it fell so, give "
            "gravity in `initial_guess`"
        )


def _fall(seen: Outline, times: Array, size: float) -> tuple[float, float] | None:
    """Downward acceleration of the centre before the first strike, and its standard error; None if it is no clear free fall."""
    low, center = seen.points[..., 2].min(axis=1), seen.points.mean(axis=1)
    with np.errstate(invalid="ignore"):
        first = int(np.argmax(low < np.nanquantile(low, 0.05) + OVER_GROUND * size))
    rows = np.flatnonzero(np.isfinite(low[:first]))[:-1]  # it may strike between the last one and the next
    if len(rows) < FLIGHT_ROWS:
        return None
    half = 0.5 * float(np.ptp(times[rows]))
    moments = (times[rows] - times[rows].mean()) / half
    powers = np.polynomial.polynomial.polyvander(moments, 3)
    found = np.linalg.lstsq(powers, center[rows], rcond=None)[0]
    deviation = np.sqrt(np.sum((center[rows] - powers @ found) ** 2, axis=0) / (len(rows) - 4))
    errors = np.sqrt(np.linalg.inv(powers.T @ powers).diagonal())[:, None] * deviation  # (4, 3)
    pulled, error = -2.0 * found[2, 2], 2.0 * errors[2, 2]
    changed = 6.0 * (abs(found[3, 2]) + 2.0 * errors[3, 2])
    aside = 2.0 * (np.hypot(*found[2, :2]) + 2.0 * errors[2, :2].max())
    course = np.polynomial.Polynomial.fit(moments, center[rows, 2], 4, domain=(-1.0, 1.0)).deriv(2)(np.linspace(-0.9, 0.9, 7))
    falling = bool(np.abs(course + pulled).max() < pulled)  # all the time: a hand brakes the body before the ground
    clear = falling and 2.0 * pulled > FALLEN * size and changed < STEADY * pulled and aside < ASIDE * pulled
    return (float(pulled / half**2), float(error / half**2)) if clear else None


def _check_dead(recording: Trajectory) -> None:
    """Raises DataError: a body moves, and its place along an axis, or its attitude, is the same number in all rows.

    Straight drops and motion in a plane, simulated without noise, keep several columns; these pass.
    """
    poses: list[str] = [name for name in ("x", "y", "z", "theta", "qw", "qx", "qy", "qz") if name in recording.names]
    changes: dict[str, Array] = {
        name: np.abs(np.diff(column[np.isfinite(column)])) for name in poses for column in [recording.column(name)]
    }
    dead: list[str] = [name for name, change in changes.items() if len(change) and not change.any()]
    turns = [name for name in poses if name.startswith("q")]
    moving = [change[change > 0.0].min() for name, change in changes.items() if name != "z" and change.any()]
    if not moving or min(moving) > FINE:
        return
    stays = [name for name in turns if name in dead]
    if turns and stays == turns:
        dead, said = ["the attitude"], "the same"
    elif stays[1:] or not (dead := [name for name in dead if name not in stays]):
        return
    else:
        said = f"{np.nanmedian(recording.column(dead[0])):.6g}"
    raise DataError(
        f"{dead[0]} stays {said} in all rows while the body moves: no body in flight does so; export the whole pose"
    )


def _scaled(recording: Trajectory, unit: float) -> Trajectory:
    """The recording if lengths are in a unit [m]."""
    return replace(recording, values=recording.values * np.where([known == "m" for known in recording.units], unit, 1.0))


def _apart(seen: Outline) -> tuple[Array, Array]:
    """Distances between points in at most 100 rows, (R, pairs), and at rest, (pairs,)."""
    rows = np.unique(np.linspace(0, len(seen.points) - 1, 100).astype(int))
    i, j = np.triu_indices(len(seen.rest), 1)
    return (
        np.linalg.norm(seen.points[rows][:, i] - seen.points[rows][:, j], axis=-1),
        np.linalg.norm(seen.rest[i] - seen.rest[j], axis=-1),
    )


def _check_vertical(body: _Body, recording: Trajectory, shown: Shown) -> None:
    """Raises DataError: gravity pulls along another axis than z, or the body stands on ground across another one."""
    if body.planar:
        return
    fallen = body.falls(UP)
    others = {name: turn for name, turn in TO_Z_UP.items() if name != "z"}
    falls = {name: body.falls(turn[2]) for name, turn in others.items()}
    best, also = max(falls, key=falls.__getitem__), ""
    if falls[best] > TIMES * fallen:
        said = "in flight it falls along this axis"
    elif max(falls.values()) == fallen == 0 and body.still.sum() >= STILL_ROWS and (given := body.tilt()) > POSE_LEAST:
        left = {}
        for name in [other for other in others if other != "-z"]:  # many bodies look alike upside down
            seen = shown(_turned(recording, others[name]))
            left[name] = np.inf if seen is None else body.misfit(seen, others[name][2])
        best = min(left, key=left.__getitem__)
        if not left[best] < min(STANDS, given / UPRIGHT):
            return
        opposite = best.removeprefix("-") if best.startswith("-") else f"-{best}"
        also = f" or {opposite}" if left[opposite] < POSE_ALIKE * left[best] else ""
        said = "at rest it stands across this axis"
    else:
        return
    raise DataError(
        f"wrong axes: {best}{also} looks as if it pointed up ({said}), expected z: give a mapping (--map) with "
        f'up = "{best}", or turn places and attitudes into axes with z up'
    )


def _turned(recording: Trajectory, turn: Array) -> Trajectory:
    """The recording in other axes: places, and attitudes with the bodies' axes turned likewise."""
    values = recording.values.copy()
    for stem, last in _stems(recording.names):
        columns = [recording.names.index(f"{stem}{name}") for name in last]
        values[:, columns] = values[:, columns] @ turn.T
    return replace(recording, values=values)


def _stems(names: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Beginnings of names to which three coordinates, or the vector of a quaternion, belong."""
    groups = (("x", "y", "z"), ("qx", "qy", "qz"))
    stems = dict.fromkeys(name[: len(name) - len(name.rpartition(".")[2])] for name in names)
    return [(stem, group) for stem in stems for group in groups if {f"{stem}{name}" for name in group} <= set(names)]


def _check_attitude(body: _Body, recording: Trajectory, shown: Shown) -> None:
    """Raises DataError: attitudes read otherwise explain ground and shape, or the rates beside them, several times better."""
    readings = list(_readings(recording))
    if not readings:
        return
    seen = {reading.words: reading.read(recording) for reading in readings}
    rates = _spin_error(recording)
    if rates > RATES:
        errors = {words: _spin_error(read) for words, read in seen.items()}
    else:
        errors = {}
    if not errors or TIMES * min(errors.values()) >= rates:
        rates = _unexplained(body, shown(recording))
        if not rates > POSE_LEAST:
            return
        errors = {words: _unexplained(body, shown(read)) for words, read in seen.items()}
    found = [words for words, error in sorted(errors.items(), key=lambda item: item[1]) if TIMES * error < rates]
    if found:
        best = errors[found[0]]
        also = [words for words in found[1:] if errors[words] < POSE_ALIKE * best]
        raise DataError(f"wrong labels: {'; or '.join([found[0], *also])}")


def _unexplained(body: _Body, seen: Outline | None) -> float:
    """RMS deviation of an outline from level ground and from the shape at rest, over the body's size; NaN without evidence."""
    if seen is None:
        return float("nan")
    if not seen.rigid:
        apart, rest = _apart(seen)
        return float(np.sqrt(np.nanmean((apart - rest) ** 2))) / body.size
    return body.misfit(seen)


def _readings(recording: Trajectory) -> Iterator[PoseReading]:
    """Other readings of attitudes."""
    names = recording.names
    turns = quaternions_of(names)

    def with_turns(change: Callable[[Array], Array]) -> Callable[[Trajectory], Trajectory]:
        def read(given: Trajectory) -> Trajectory:
            values = given.values.copy()
            for columns in turns:
                values[:, columns] = change(values[:, columns])
            return replace(given, values=values)

        return read

    if turns:
        order = "quaternions look as if they stood in the order x y z w under the names qw qx qy qz"
        inverse = "quaternions look as if they turned the world into the body, expected the body into the world"
        rename = 'rename the columns qx, qy, qz, qw, or give a mapping (--map) with quaternion = "xyzw"'
        signs = "change the signs of qx, qy and qz"
        yield PoseReading(f"{order}: {rename}", with_turns(lambda q: q[:, [3, 0, 1, 2]]))
        yield PoseReading(f"{inverse}: {signs}", with_turns(lie.conjugate))
        yield PoseReading(
            f"{order}, and turned the world into the body: {rename}, and {signs}",
            with_turns(lambda q: lie.conjugate(q[:, [3, 0, 1, 2]])),
        )
    angles = [k for k, name in enumerate(names) if name == "theta" and recording.units[k] == "rad"]
    for words, factor in (
        ("theta looks as if it turned the other way: change its sign", -1.0),
        ("theta looks as if it was given in degrees: write [deg] in the header", np.pi / 180.0),
    ):
        if angles and not turns and (factor < 0.0 or np.ptp(np.nan_to_num(recording.values[:, angles])) > TURN):

            def read(given: Trajectory, factor: float = factor) -> Trajectory:
                values = given.values.copy()
                values[:, angles] *= factor
                return replace(given, values=values)

            yield PoseReading(words, read)


def _spin_error(recording: Trajectory) -> float:
    """RMS difference of the recorded angular velocities from those of the attitudes, over their RMS; 0 without both."""
    names, off, size = recording.names, 0.0, 0.0
    for stem, group in _stems(names):
        wanted = [f"{stem}{name}" for name in ("qw", "qx", "qy", "qz", "wx", "wy", "wz")]
        if group[0] != "qx" or not set(wanted) <= set(names):
            continue
        part = recording.select(wanted).values
        turned = lie.difference(part[1:, :4], part[:-1, :4]) / recording.period
        mean = 0.5 * (part[1:, 4:] + part[:-1, 4:])
        off, size = off + float(np.nansum((turned - mean) ** 2)), size + float(np.nansum(mean**2))
    return float(np.sqrt(off / size)) if size > 0.0 else 0.0
