"""Trajectories: commands and measurements on a uniform grid of times.

A trajectory has T control steps and T + 1 rows of measured values; control k acts from times[k] to times[k+1]. Values are full
states of a simulator or any measured quantities, in SI; NaN where nothing was measured. CSV files of a laboratory are read by
`data.recordings`. Legend: T steps, nu controls, ny measured quantities.

>>> import numpy as np
>>> tip = Trajectory(np.array([0.0, 0.1, 0.2]), np.zeros((2, 0)), np.array([[0.0], [0.5], [1.0]]), ("tip.x",), ("m",))
>>> tip.num_steps, round(tip.period, 12), tip.column("tip.x").tolist()
(2, 0.1, [0.0, 0.5, 1.0])
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from ..data.hdf5 import read, write
from .errors import DataError, FileFormatError, OptionError, ShapeError
from .files import doubled
from .resampling import regridded
from .simulator import Array, Simulator, check_array
from .units import SI_UNITS

FILE = "file"
"""Key of a recording's metadata: the name of the file that it was read from."""
UNKNOWN: Array = np.zeros((0, 0))
"""Commands before a recording's first row, if unknown."""


@dataclass(frozen=True, eq=False)
class Trajectory:
    """One recording; see the module docstring. The arrays are copied and read-only.

    Raises:
        ShapeError: An array has the wrong shape, holds infinity, or times or controls hold NaN.
        DataError: Times do not increase uniformly, names are doubled, or a unit is not an SI unit of `core.units`.
    """

    times: Array
    """(T+1,) [s]"""
    controls: Array
    """(T, nu)"""
    values: Array
    """(T+1, ny); NaN where nothing was measured."""
    names: tuple[str, ...]
    """ny names of the values."""
    units: tuple[str, ...]
    """ny SI units of the values."""
    control_names: tuple[str, ...] = ()
    """nu names of the controls."""
    control_units: tuple[str, ...] = ()
    """nu SI units of the controls."""
    substeps: int = 1
    """Physics steps of the simulator per row."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Further information: robot, date, seed, ..."""
    before: Array = field(default_factory=lambda: UNKNOWN)
    """(E, nu) commands of the rows before the first one, in order: delayed ones act within the recording."""
    commanded: Array = field(default_factory=lambda: UNKNOWN)
    """(C, 1 + nu) times [s] and the commands that act from each on, if they change between rows: then controls are means."""
    offsets: Array = field(default_factory=lambda: np.zeros(0))
    """(T+1,) delays of values behind their row's time [s], half a row at most; empty if there are none."""

    def __post_init__(self) -> None:
        def set_(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        for name in ("names", "units", "control_names", "control_units"):
            set_(name, tuple(getattr(self, name)))
        set_("metadata", {str(key): str(value) for key, value in self.metadata.items()})
        times = check_array("times", self.times, (None,))
        rows = len(times)
        set_("times", _frozen(times))
        set_("controls", _frozen(check_array("controls", self.controls, (rows - 1, len(self.control_names)))))
        before = self.before if len(self.before) else np.zeros((0, len(self.control_names)))
        set_("before", _frozen(check_array("before", before, (None, len(self.control_names)))))
        commanded = self.commanded if len(self.commanded) else np.zeros((0, 1 + len(self.control_names)))
        set_("commanded", _frozen(check_array("commanded", commanded, (None, 1 + len(self.control_names)))))
        if not (np.diff(self.commanded[:, 0]) > 0).all():
            raise DataError("times of commanded must increase")
        set_("values", _frozen(check_array("values", self.values, (rows, len(self.names)), finite=False)))
        if np.isinf(self.values).any():
            raise ShapeError("values holds infinity; use NaN where nothing was measured")
        _check_uniform(times)
        set_("offsets", _frozen(check_array("offsets", self.offsets, (rows if len(self.offsets) else 0,))))
        if (np.abs(self.offsets) > (0.5 + 1e-6) * self.period).any():
            raise DataError(f"offsets are up to {np.abs(self.offsets).max():g} s, allowed is half a row: {self.period / 2:g} s")
        _check_names("names", self.names, "units", self.units)
        _check_names("control_names", self.control_names, "control_units", self.control_units)
        if isinstance(self.substeps, bool) or not isinstance(self.substeps, (int, np.integer)) or self.substeps < 1:
            raise DataError(f"substeps is {self.substeps!r}, expected an integer >= 1")

    @classmethod
    def from_rollout(
        cls,
        simulator: Simulator,
        states: Array,
        controls: Array,
        *,
        substeps: int = 1,
        metadata: Mapping[str, str] | None = None,
    ) -> Trajectory:
        """Full states (T+1, nx) and controls (T, nu) of one row of `Simulator.rollout`, with its names and units."""
        times = simulator.dt * substeps * np.arange(len(states), dtype=np.float64)
        names, control_names = simulator.state_names, simulator.control_names
        units, control_units = simulator.state_units, simulator.control_units
        return cls(times, controls, states, names, units, control_names, control_units, substeps, metadata or {})

    @property
    def num_steps(self) -> int:
        """Number of control steps T."""
        return len(self.times) - 1

    @property
    def period(self) -> float:
        """Time between rows [s]."""
        return float(self.times[-1] - self.times[0]) / self.num_steps

    def column(self, name: str) -> Array:
        """Values of one quantity, (T+1,).

        Raises:
            DataError: No such quantity.
        """
        return self.values[:, self._places([name])[0]]

    @cached_property
    def on_grid(self) -> Trajectory:
        """The recording with values moved to the times of their rows, along the motion around; see `core.resampling`."""
        if not len(self.offsets):
            return self
        return replace(self, values=regridded(self.values, self.late), offsets=np.zeros(0))

    @property
    def late(self) -> Array:
        """Rows by which values were seen after their own, (T+1,): `offsets` over the period, or zeros."""
        return self.offsets / self.period if len(self.offsets) else np.zeros(len(self.times))

    def select(self, names: Sequence[str]) -> Trajectory:
        """Keep only these quantities, in this order.

        Raises:
            DataError: No such quantity.
        """
        places = self._places(names)
        return replace(self, values=self.values[:, places], names=tuple(names), units=tuple(self.units[i] for i in places))

    def select_controls(self, names: Sequence[str]) -> Trajectory:
        """Keep only these controls, in this order.

        Raises:
            DataError: No such control.
        """
        unknown = [name for name in names if name not in self.control_names]
        if unknown:
            raise DataError(f"no control {unknown[0]!r}; there are {_shorten(self.control_names)}")
        places = [self.control_names.index(name) for name in names]
        return replace(
            self, controls=self.controls[:, places], before=self.before[:, places],
            commanded=self.commanded[:, [0, *(1 + place for place in places)]],
            control_names=tuple(names), control_units=tuple(self.control_units[place] for place in places),
        )  # fmt: skip

    def window(self, start: float, stop: float) -> Trajectory:
        """Rows with start <= time <= stop [s]; their times stay as they are, and commands before them go into `before`.

        Raises:
            DataError: Fewer than two rows are left.
        """
        slack = 1e-6 * self.period
        rows = np.flatnonzero((self.times >= start - slack) & (self.times <= stop + slack))
        if len(rows) < 2:
            there = f"{self.times[0]:g} ... {self.times[-1]:g} s"
            ms = f"; rows are {self.period:.4g} s apart: are the times in ms?" if self.period > max(stop - start, 0.0) else ""
            raise DataError(f"window {start:g} ... {stop:g} s holds {len(rows)} rows of {there}, expected at least 2{ms}")
        first, last = rows[0], rows[-1]
        controls, before = self.controls[first:last], np.concatenate([self.before, self.controls[:first]])
        return replace(
            self, times=self.times[rows], values=self.values[rows], controls=controls, before=before,
            offsets=self._offsets(rows),
        )  # fmt: skip

    def thinned(self, rows: int) -> Trajectory:
        """Keep one row of every `rows`, without an incomplete end and without commands before the first row.

        Raises:
            DataError: Controls change between them, or fewer than two remain.
        """
        count = self.num_steps // rows
        parts = self.controls[: count * rows].reshape(count, rows, self.controls.shape[1])
        if count < 1 or (parts != parts[:, :1]).any():
            raise DataError(f"one row of {rows}: controls change in between, or {self.num_steps} rows are too few")
        kept = slice(0, count * rows + 1, rows)
        return replace(
            self, times=self.times[kept], values=self.values[kept], controls=parts[:, 0], before=UNKNOWN,
            substeps=rows * self.substeps, offsets=self._offsets(kept),
        )  # fmt: skip

    def with_noise(self, rng: np.random.Generator, std: float | Mapping[str, float]) -> Trajectory:
        """Values plus independent Gaussian noise: one std for all, or name -> std (the others stay exact) [SI].

        Raises:
            DataError: Unknown quantity, or a std that is negative or not finite.
        """
        by_name = std if isinstance(std, Mapping) else dict.fromkeys(self.names, std)
        sigma = np.zeros(len(self.names))
        sigma[self._places(list(by_name))] = list(by_name.values())
        if not (np.isfinite(sigma) & (sigma >= 0)).all():
            raise DataError(f"std is {std}, expected finite numbers >= 0")
        return replace(self, values=self.values + sigma * rng.standard_normal(self.values.shape))

    def in_parts(self, parts: int) -> tuple[Array, Array]:
        """Controls in `parts` equal parts of every row, (T parts, nu), and of rows before the first one, (E parts, nu)."""
        if not len(self.commanded):
            return np.repeat(self.controls, parts, axis=0), np.repeat(self.before, parts, axis=0)
        earlier = len(self.before) * parts
        edges = self.times[0] + self.period / parts * np.arange(-earlier, self.num_steps * parts + 1)
        found = means_between(edges, self.commanded)
        return found[earlier:], found[:earlier]

    def with_controls(self, controls: Array, names: Sequence[str], units: Sequence[str]) -> Trajectory:
        """Copy with other controls, (T, nu), and their names and SI units; none before the first row."""
        return replace(
            self, controls=controls, control_names=tuple(names), control_units=tuple(units), before=UNKNOWN, commanded=UNKNOWN
        )

    def for_timestep(self, dt: float) -> Trajectory:
        """Copy with `substeps` such that substeps * dt is the period.

        Raises:
            DataError: The period is no whole multiple of `dt` [s].
        """
        count = max(round(self.period / dt), 1)
        if not is_whole(self.period, dt):
            raise DataError(
                f"rows are {self.period:.6g} s apart, no whole multiple of the simulator's dt = {dt:g} s; "
                f"say `dt` = {self.period / count:.6g} s ({count} substeps), or `fps`"
            )
        return replace(self, substeps=count)

    @classmethod
    def load(cls, path: str | Path) -> Trajectory:
        """Read a file of one trajectory; see `TrajectorySet.load`.

        Raises:
            FileFormatError: No such file, damaged, or not exactly one trajectory.
        """
        found = TrajectorySet.load(path)
        if len(found) != 1:
            raise FileFormatError(f"{path} holds {len(found)} trajectories, expected 1; use TrajectorySet.load")
        return found[0]

    def _offsets(self, rows: NDArray[np.intp] | slice) -> Array:
        return self.offsets[rows] if len(self.offsets) else self.offsets

    def _places(self, names: Sequence[str]) -> list[int]:
        place = {name: k for k, name in enumerate(self.names)}
        for name in names:
            if name not in place:
                raise DataError(f"no measured quantity {name!r}; there are {_shorten(self.names)}")
        return [place[name] for name in names]

    def _digest(self) -> bytes:
        digest = hashlib.sha256()
        labels = (self.names, self.units, self.control_names, self.control_units, (str(self.substeps),))
        for text in ("\0".join(group) for group in labels):
            digest.update(f"{len(text)}:{text}".encode())
        some = (each for each in (self.before, self.commanded, self.offsets) if len(each))
        for array in (self.times, self.controls, self.values, *some):
            # one bit pattern for NaN, one for zero, so that equal data hash equally on every machine
            plain = np.where(np.isnan(array), np.nan, array) + 0.0
            digest.update(f"{array.shape}".encode() + plain.astype("<f8").tobytes())
        return digest.digest()


class DataSplit(NamedTuple):
    """Whole trajectories: for fitting, for validation while fitting, and for one test at the end."""

    train: TrajectorySet
    validation: TrajectorySet
    test: TrajectorySet


@dataclass(frozen=True)
class TrajectorySet(Sequence[Trajectory]):
    """Trajectories of the same quantities and controls, for one fit.

    Raises:
        DataError: Two trajectories differ in names or units, or an item is no trajectory.
    """

    trajectories: tuple[Trajectory, ...]

    def __post_init__(self) -> None:
        given: Any = self.trajectories
        found = tuple(given) if isinstance(given, Iterable) else (given,)
        if not isinstance(given, Iterable) or not all(isinstance(one, Trajectory) for one in found):
            raise DataError(f"trajectories is {type(given).__name__}, expected a tuple or list of Trajectory objects")
        object.__setattr__(self, "trajectories", found)
        for index, trajectory in enumerate(self.trajectories):
            for what in ("names", "units", "control_names", "control_units"):
                first, this = getattr(self.trajectories[0], what), getattr(trajectory, what)
                if this != first:
                    raise DataError(f"trajectory {index} has {what} {_shorten(this)}; trajectory 0 has {_shorten(first)}")

    def __len__(self) -> int:
        """Number of trajectories."""
        return len(self.trajectories)

    @overload
    def __getitem__(self, index: int) -> Trajectory: ...
    @overload
    def __getitem__(self, index: slice) -> TrajectorySet: ...
    def __getitem__(self, index: int | slice) -> Trajectory | TrajectorySet:
        """One trajectory, or a set of some."""
        return TrajectorySet(self.trajectories[index]) if isinstance(index, slice) else self.trajectories[index]

    def __iter__(self) -> Iterator[Trajectory]:
        """Iterate over the trajectories."""
        return iter(self.trajectories)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the measured quantities; () for an empty set."""
        return self.trajectories[0].names if self.trajectories else ()

    @property
    def control_names(self) -> tuple[str, ...]:
        """Names of the controls; () for an empty set."""
        return self.trajectories[0].control_names if self.trajectories else ()

    @property
    def num_steps(self) -> int:
        """Control steps of all trajectories together."""
        return sum(trajectory.num_steps for trajectory in self.trajectories)

    @property
    def sha256(self) -> str:
        """Hash of all numbers, names and units in their order (not of the metadata): the provenance of a fit."""
        return hashlib.sha256(b"".join(trajectory._digest() for trajectory in self.trajectories)).hexdigest()

    def split(self, train: int, validation: int, test: int, *, rng: np.random.Generator | None = None) -> DataSplit:
        """The first `train` trajectories, the next `validation`, the last `test`; shuffled before if `rng` is given.

        Raises:
            DataError: The numbers are negative or do not add up to the trajectories there are.
        """
        counts = (train, validation, test)
        if min(counts) < 0 or sum(counts) != len(self):
            raise DataError(f"split {train} + {validation} + {test} must be >= 0 and add up to the {len(self)} trajectories")
        order = np.arange(len(self)) if rng is None else rng.permutation(len(self))
        parts = np.split(order, [train, train + validation])
        return DataSplit(*(TrajectorySet(tuple(self.trajectories[i] for i in part)) for part in parts))

    def save(self, path: str | Path) -> Path:
        """Write an HDF5 file, one group per trajectory; the file appears whole or not at all.

        Raises:
            FileFormatError: The path does not end in .h5 or .hdf5: it would not be read again.
        """
        check_ending(Path(path))
        return write(Path(path), self.sha256, self.trajectories)

    @classmethod
    def load(cls, path: str | Path) -> TrajectorySet:
        """Read a file written by `save`.

        Raises:
            FileFormatError: No such file, not HDF5, not in this form, or damaged (the hash differs).
        """
        parts, expected = read(Path(path))
        try:
            found = cls(tuple(Trajectory(**part) for part in parts))
        except (DataError, ShapeError) as error:
            raise FileFormatError(f"{path}: {error}") from error
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise FileFormatError(f"{path} is no HDF5 file of trajectories, or it is damaged: {error}") from error
        if found.sha256 != expected:
            raise FileFormatError(f"{path} is damaged: its numbers do not have the hash it was saved with")
        return found


def check_ending(path: Path) -> None:
    """Raise `FileFormatError` unless the path ends in .h5 or .hdf5."""
    if path.suffix.lower() not in (".h5", ".hdf5"):
        raise FileFormatError(f"{path} ends in {path.suffix!r}, expected .h5 or .hdf5")


def means_between(edges: Array, commanded: Array) -> Array:
    """Means (K, nu) between edges (K + 1,) [s] of commands that act from their times on (C, 1 + nu); the first also before.

    >>> means_between(np.array([0.0, 1.0, 2.0]), np.array([[0.5, 1.0], [1.5, 3.0]])).ravel().tolist()
    [1.0, 2.0]
    """
    stamps, commands = commanded[:, 0], commanded[:, 1:]
    steps = np.diff(stamps)[:, None] * commands[:-1]
    done = np.concatenate([np.zeros((1, commands.shape[1])), np.cumsum(steps, axis=0)])
    last = np.clip(np.searchsorted(stamps, edges, side="right") - 1, 0, None)
    integral = done[last] + (edges - stamps[last])[:, None] * commands[last]
    return np.asarray(np.diff(integral, axis=0) / np.diff(edges)[:, None])


def is_whole(period: float, dt: float) -> bool:
    """Whether a period is a whole number of physics steps, within 1e-4 of it.

    >>> is_whole(0.01, 0.001), is_whole(1 / 120, 0.001)
    (True, False)
    """
    return abs(max(round(period / dt), 1) * dt - period) <= 1e-4 * period


def whole_steps(name: str, period: float, dt: float) -> int:
    """Physics steps of `dt` in a period.

    Raises:
        OptionError: They are no whole number, see `is_whole`.
    """
    if not is_whole(period, dt):
        raise OptionError(f"{name} is {period:g} s, expected a whole number of physics steps of {dt:g} s")
    return round(period / dt)


def _frozen(array: Array) -> Array:
    array = array.copy()
    array.setflags(write=False)
    return array


def _check_uniform(times: Array) -> None:
    if len(times) < 2:
        raise ShapeError(f"times has shape {times.shape}, expected at least 2 rows")
    steps = np.diff(times)
    if not (steps > 0).all():
        at = int(np.argmin(steps > 0)) + 1
        raise DataError(f"times must increase, but times[{at}] = {times[at]:g} s follows {times[at - 1]:g} s")
    period = (times[-1] - times[0]) / len(steps)
    worst = int(np.argmax(np.abs(steps - period)))
    if abs(steps[worst] - period) > 1e-4 * period:
        raise DataError(
            f"times must be uniform: times[{worst + 1}] comes {steps[worst]:.6g} s after its last, mean {period:.6g} s"
        )


def _check_names(what: str, names: tuple[str, ...], what_units: str, units: tuple[str, ...]) -> None:
    if any(not isinstance(name, str) or not name for name in names):
        raise DataError(f"{what} must be non-empty strings, got {_shorten(names)}")
    if (twice := doubled(names)) is not None:
        raise DataError(f"{what} has {twice!r} twice")
    if len(units) != len(names):
        raise DataError(f"{what_units} has {len(units)} entries, expected {len(names)}, one for each of {what}")
    for name, unit in zip(names, units, strict=True):
        if unit not in SI_UNITS:
            raise DataError(f"{what_units}: {name} is in {unit!r}; a trajectory holds SI: {', '.join(SI_UNITS)}")


def _shorten(names: Sequence[Any]) -> str:
    shown = ", ".join(str(name) for name in names[:12])
    return (shown or "none") + (f", ... ({len(names)} in all)" if len(names) > 12 else "")


def part_of(period: float, longest: float) -> float:
    """The longest physics step [s] that divides a period evenly and is at most `longest`.

    >>> round(part_of(1 / 60, 0.01), 6)
    0.008333
    """
    return period / math.ceil(period / longest - 1e-9)
