"""Simulated sensors of a laboratory: frames of markers or positions, with noise, gaps, outliers, latency and a camera's pose.

    Sensor(rate=120, noise=0.002, dropout=0.05, outliers=0.01, latency=0.02)(recording, simulator, procedure, rng)

takes the full states of a recording and returns the recording that a camera would have made. Robots whose procedure names
`markers` are seen by those; for others every column that is a length or an angle is seen.

Legend: T rows, ny columns, P points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ..core.errors import DataError, OptionError
from ..core.procedure import Procedure
from ..core.simulator import Array, check_number
from ..core.trajectory import UNKNOWN, Trajectory, means_between

MAX_FRAME_GAP = 4
"""Largest distance of filmed rows in frames: frames between two rows are interpolated."""
SEEN = ("m", "rad")
"""Units that a camera measures."""


@dataclass(frozen=True)
class Sensor:
    """See the module docstring.

    Raises:
        OptionError: A share is not in 0 ... 1, or another value is negative.
    """

    rate: float = 0.0
    """Frames per second; 0: the rows of the recording."""
    noise: float = 0.0
    """Standard deviation of every coordinate [m]."""
    angle_noise: float = 0.0
    """Standard deviation of angles [rad]."""
    dropout: float = 0.0
    """Share of points that a frame loses."""
    outliers: float = 0.0
    """Share of points that are seen at a wrong place."""
    outlier_size: float = 0.1
    """Standard deviation of the error of outliers [m, rad]."""
    latency: float = 0.0
    """Delay of a frame's time stamp behind the motion that it shows [s]; commands are logged without delay."""
    turn: float = 0.0
    """Rotation of the camera's frame about the vertical [rad]."""
    tilt: float = 0.0
    """Rotation of the camera's frame about its x axis [rad], only in space."""
    scale: float = 1.0
    """Ratio of measured to true lengths."""
    angle_offset: float = 0.0
    """Measured minus true angles [rad]."""
    angle_gain: float = 1.0
    """Ratio of measured to true angles and rates."""

    def __post_init__(self) -> None:
        for name in ("rate", "noise", "angle_noise", "outlier_size", "latency"):
            check_number(name, getattr(self, name), low=0.0)
        for name in ("dropout", "outliers"):
            check_number(name, getattr(self, name), low=0.0, high=1.0)
        for name in ("scale", "angle_gain"):
            check_number(name, getattr(self, name), positive=True)

    def __call__(self, recording: Trajectory, simulator: Any, procedure: Procedure, rng: np.random.Generator) -> Trajectory:
        """The recording as this sensor saw it.

        Raises:
            DataError: There is nothing that a camera sees, the recording is shorter than the latency, or its rows are so far
                apart that frames between them would show no motion of the robot's.
        """
        exact = markers_of(recording, simulator, procedure)
        framed = self._framed(exact)
        values, groups = self._posed(framed.values.copy(), framed), points_of(framed.names)
        angle = np.array([unit == "rad" for unit in framed.units])
        values += np.where(angle, self.angle_noise, self.noise) * rng.standard_normal(values.shape)
        shape = (len(values), len(groups))
        far, lost = rng.uniform(size=shape) < self.outliers, rng.uniform(size=shape) < self.dropout
        for place, group in enumerate(groups):
            for column in group:
                values[far[:, place], column] += self.outlier_size * rng.standard_normal(int(far[:, place].sum()))
                values[lost[:, place], column] = np.nan
        return replace(framed, values=values, metadata={**framed.metadata, "sensor": str(self)})

    def _framed(self, recording: Trajectory) -> Trajectory:
        """Interpolate frames between rows (Akima 1970: no overshoot at impacts); commands act from their own times on.

        Commands given before the first frame go into `before`: they act within the recording.
        """
        if self.rate == 0 and self.latency == 0:
            return recording
        from scipy.interpolate import Akima1DInterpolator  # half of the import of `sysid`

        begin, end = recording.times[0], recording.times[-1]
        period = 1.0 / self.rate if self.rate else recording.period
        if recording.period > MAX_FRAME_GAP * period:
            seen = f"frames every {period:.3g} s of rows {recording.period:.3g} s apart would be interpolation alone"
            raise DataError(f"{seen}: record rows at most {MAX_FRAME_GAP} frames long (`Experiment.from_markers`)")
        # Frames are stamped by the clock of the commands; the first one shows the robot after the start of the recording.
        first = begin + period * np.ceil(self.latency / period - 1e-9)
        count = int(np.floor((end - first) / period * (1 + 1e-12)))
        if count < 1:
            raise DataError(f"the recording lasts {end - begin:g} s: no two frames with a latency of {self.latency:g} s")
        times = first + period * np.arange(count + 1)
        angle = np.array([unit == "rad" for unit in recording.units])
        smooth = np.where(angle, np.unwrap(np.where(angle, recording.values, 0.0), axis=0), recording.values)
        values = Akima1DInterpolator(recording.times, smooth)(times - self.latency)
        given = np.concatenate([begin + period * np.arange(round((first - begin) / period)), times[:-1]])
        held = np.searchsorted(recording.times, given + 1e-9, side="right") - 1
        controls = recording.controls[np.clip(held, 0, len(recording.controls) - 1)]
        commanded = self._between_frames(recording, first, period)
        if len(commanded):
            controls = means_between(np.append(given, times[-1]) - first, commanded)
        before, controls = np.split(controls, [len(given) - count])
        # "source": as from a file of a laboratory, the simulator's step is to be chosen by whoever fits.
        metadata = {**recording.metadata, "source": "sensor"}
        return replace(
            recording, times=times - first, values=values, controls=controls, before=before, commanded=commanded, substeps=1,
            metadata=metadata,
        )  # fmt: skip

    @staticmethod
    def _between_frames(recording: Trajectory, first: float, period: float) -> Array:
        """`Trajectory.commanded` of frames from `first` on [s], if commands change between them; else none."""
        changed = np.flatnonzero((np.diff(recording.controls, axis=0) != 0.0).any(axis=1)) + 1
        frames = (recording.times[changed] - first) / period
        if np.abs(frames - np.rint(frames)).max(initial=0.0) < 1e-6:
            return UNKNOWN
        changed = np.append(0, changed)
        return np.column_stack([recording.times[changed] - first, recording.controls[changed]])

    def _posed(self, values: Array, recording: Trajectory) -> Array:
        """Columns as seen in the camera's frame."""
        told = (self.turn, self.tilt, self.scale, self.angle_offset, self.angle_gain)
        pose = (np.full(1, number) for number in told)
        return np.asarray(posed(values[None], recording.names, recording.units, *pose)[0])


def posed(
    values: Array,
    names: Sequence[str],
    units: Sequence[str],
    turn: Array,
    tilt: Array,
    scale: Array,
    angle_offset: Array,
    angle_gain: Array,
) -> Array:
    """Columns (R, T, ny) as seen by cameras that are turned, tilted and scaled, each (R,); in a plane, angles turn, too.

    Then the offset and gain of angle sensors are applied.
    """
    (c, s), (ct, st), none = (np.cos(turn), np.sin(turn)), (np.cos(tilt), np.sin(tilt)), np.zeros_like(turn)
    about = np.stack([np.stack([c, -s, none], -1), np.stack([s, c, none], -1), np.stack([none, none, none + 1.0], -1)], -2)
    over = np.stack([np.stack([none + 1.0, none, none], -1), np.stack([none, ct, -st], -1), np.stack([none, st, ct], -1)], -2)
    space, plane, found = scale[:, None, None] * about @ over, scale[:, None, None] * about[:, :2, :2], values.copy()
    groups = [group for group in points_of(names) if len(group) > 1]
    for group in groups:
        matrix = space if len(group) == 3 else plane[:, : len(group), : len(group)]
        found[:, :, group] = found[:, :, group] @ np.swapaxes(matrix, 1, 2)
    if all(len(group) == 2 for group in groups):
        found[:, :, [unit == "rad" for unit in units]] += turn[:, None, None]
    return sensed(found, units, angle_offset, angle_gain)


def sensed(values: Array, units: Sequence[str], angle_offset: Array, angle_gain: Array) -> Array:
    """Columns (R, T, ny) as measured by angle sensors with an offset and a gain, each (R,)."""
    found, angles = values.copy(), [unit == "rad" for unit in units]
    found[:, :, [unit in ("rad", "rad/s") for unit in units]] *= angle_gain[:, None, None]
    found[:, :, angles] += angle_offset[:, None, None]
    return found


SENSORS = {
    "camera": Sensor(rate=100.0, noise=1e-3, angle_noise=5e-3),
    "lab": Sensor(rate=120.0, noise=2e-3, angle_noise=5e-3, dropout=0.05, outliers=0.01, latency=0.02),
    "poor": Sensor(rate=100.0, noise=5e-3, angle_noise=2e-2, dropout=0.1, outliers=0.02, latency=0.03, turn=0.0175),
}
"""Predefined sensors by name."""


def sensor_from_text(words: Sequence[str]) -> Sensor:
    """Read a sensor from a name in `SENSORS` and changes, or only changes, as words "key=value".

    >>> sensor_from_text(["lab", "noise=0.001"]).noise
    0.001

    Raises:
        OptionError: Unknown name or key, or a value that is not allowed.
    """
    known, found = {f.name for f in fields(Sensor)}, Sensor()
    for word in words:
        key, equals, value = word.partition("=")
        if not equals and word in SENSORS:
            found = SENSORS[word]
            continue
        if key not in known or not equals:
            raise OptionError(f"sensor is {word!r}, expected {', '.join(SENSORS)}, or key=value of {', '.join(sorted(known))}")
        try:
            number = float(value)
        except ValueError as error:
            raise OptionError(f"sensor: {key} is {value!r}, expected a number") from error
        found = replace(found, **{key: number})
    return found


def markers_of(recording: Trajectory, simulator: Any, procedure: Procedure) -> Trajectory:
    """Exact values that a camera would see of a recording.

    Raises:
        DataError: A camera would see nothing.
    """
    full = set(simulator.state_names) <= set(recording.names)
    if full and procedure.recorded.markers is not None and procedure.recorded.measurement is not None:
        names = procedure.recorded.markers(simulator)
        measurement = procedure.recorded.measurement(simulator, names)
        if measurement is not None:
            values = measurement.function(recording.select(simulator.state_names).values)
            return replace(recording, values=values, names=measurement.names, units=("m",) * len(measurement.names))
    chosen = [name for name, unit in zip(recording.names, recording.units, strict=True) if unit in SEEN]
    if not chosen:
        raise DataError(f"a camera sees lengths and angles; the recording has neither: {', '.join(recording.names[:6])}")
    return recording.select(chosen)


def points_of(names: Sequence[str]) -> list[list[int]]:
    """Indices of columns that are lost together: coordinates of one point; every other column by itself.

    >>> points_of(["a.x", "a.y", "b.x", "b.y", "angle"])
    [[0, 1], [2, 3], [4]]
    """
    groups: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        stem, _, last = name.rpartition(".")
        key = f"{stem}." if last in ("x", "y", "z") else name
        groups.setdefault(key, []).append(place)
    return list(groups.values())


def quaternions_of(names: Sequence[str]) -> list[list[int]]:
    """Places of the entries w, x, y, z of every quaternion among columns.

    >>> quaternions_of(("x", "rod.qw", "rod.qx", "rod.qy", "rod.qz"))
    [[1, 2, 3, 4]]
    """
    found, places = [], {name: place for place, name in enumerate(names)}
    for name in names:
        if name.rpartition(".")[2] == "qw":
            four = [places.get(name[:-1] + axis) for axis in "wxyz"]
            found += [[place for place in four if place is not None]] if None not in four else []
    return found
