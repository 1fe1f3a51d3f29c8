"""Physical parameters with unit, bounds and source: the numbers that `sysid` can identify.

A system declares its parameters once, as a frozen dataclass::

    @dataclass(frozen=True)
    class VineParameters(Parameters):
        bending_stiffness: float = param(0.2, unit="N m/rad", bounds=(1e-3, 10.0), scale="log", source="[Author2019], table 1")

Each value is a float, or an array of shape (B,) that gives every row of a batch its own value (that is domain
randomisation). Values are checked on construction. A vector, as a stiffness per segment, is declared once with its size::

    stiffness: float = param(0.5, count=3, unit="N m/rad", bounds=(0.01, 10.0), scale="log")

and is three parameters `stiffness0`, `stiffness1`, `stiffness2`; its own name stands for all of them wherever parameters are
named or given, and as an attribute it is an array (..., 3). Legend: B batch, P number of parameters.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import numpy as np
import tomli_w
from numpy.typing import NDArray

from .errors import FileFormatError, FitWarning, ParameterError, shown
from .files import check_entries, number_in, read_toml, write_atomically

Array = NDArray[np.float64]
MAX_LOG_COORDINATE = 700.0
"""Largest coordinate on a log scale, near the overflow of exp; intervals of unmeasured parameters end there."""
Option = str | float | list[float]
"""Value of a simulator's structural choice, as it stands in a file of parameters."""

UNUSABLE = "do_not_use"
"""Entry of a file's table [provenance]: why its parameters must not be used; absent if they may."""
UNEXPLAINED = "unexplained"
"""Entry of the same table: why the model does not explain the data that the parameters were fitted to."""

TABLES = ("kind", "provenance", "simulator", "interface", "posterior", "parameters")
"""Entries of a file of parameters."""

P = TypeVar("P", bound="Parameters")


@dataclass(frozen=True)
class ParameterSpec:
    """Declaration of one parameter: default, unit, bounds, scale and source."""

    name: str
    default: float
    unit: str
    bounds: tuple[float, float]
    scale: str
    source: str
    search: tuple[float, float] | None = None
    """Range in which fits look for values, where `bounds` are narrower limits, of stability for example; None: `bounds`."""

    @property
    def suffix(self) -> str:
        """Suffix of printed numbers: " kg"; empty without a unit."""
        return "" if self.unit == "-" else f" {self.unit}"

    def within(self, bounds: tuple[float, float] | None) -> ParameterSpec:
        """Copy with other bounds, in the same fit coordinates; None: its own."""
        return self if bounds is None else replace(self, bounds=bounds, search=self.search_range)

    @property
    def search_range(self) -> tuple[float, float]:
        """See `search`; never None."""
        return self.search or self.bounds

    def encode(self, value: Array | float) -> Array:
        """Coordinate in which a fit should move: log(value) on a log scale, value / (upper - lower) of `search_range` else."""
        value = np.asarray(value, dtype=np.float64)
        return np.log(value) if self.scale == "log" else value / self._width

    def decode(self, coordinate: Array | float) -> Array:
        """Inverse of `encode`."""
        coordinate = np.asarray(coordinate, dtype=np.float64)
        if self.scale == "log":
            return np.exp(np.minimum(coordinate, MAX_LOG_COORDINATE))
        return coordinate * self._width

    def slope(self, value: Array | float) -> Array:
        """d value / d coordinate at `value`."""
        value = np.asarray(value, dtype=np.float64)
        return value if self.scale == "log" else np.full_like(value, self._width)

    @property
    def _width(self) -> float:
        lower, upper = self.search_range
        return upper - lower


def param(
    default: float, *, unit: str, bounds: tuple[float, float], scale: str = "linear", source: str = "", count: int | None = None
) -> Any:
    """Declare one parameter of a `Parameters` class, or a vector of them.

    Args:
        default: Value before identification, inside `bounds`.
        unit: SI unit, "-" if it has none.
        bounds: Smallest and largest value allowed (both finite, inclusive).
        scale: "linear", or "log" for a positive parameter that a fit should move by factors.
        source: Where the default comes from.
        count: Size of a vector; None: one number.
    """
    lower, upper = bounds
    numbers = all(isinstance(value, (int, float)) and math.isfinite(value) for value in (lower, upper, default))
    if not (numbers and lower < upper and lower <= default <= upper):
        raise ParameterError(f"default {default!r} and bounds {bounds} must be finite, with lower <= default <= upper")
    if scale not in ("linear", "log") or (scale == "log" and lower <= 0):
        raise ParameterError(f"scale is {scale!r} with bounds {bounds}; use 'linear', or 'log' with positive bounds")
    declared = {"unit": unit, "bounds": bounds, "scale": scale, "source": source}
    return field(default=default, metadata=declared if count is None else {**declared, "count": count})


@dataclass(frozen=True)
class Parameters:
    """Base of every system's parameters; see the module docstring.

    Raises:
        ParameterError: A value is not finite, out of its bounds, or neither scalar nor of shape (B,).
    """

    vectors: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Name of a vector -> names of its entries."""
    _specs: ClassVar[dict[str, ParameterSpec]]

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Replace vectors by their entries, before the dataclass is made."""
        super().__init_subclass__(**keywords)
        declared = {name: value for name, value in vars(cls).items() if isinstance(value, Field) and "count" in value.metadata}
        if not declared:
            return
        annotations, vectors = {}, dict(cls.vectors)
        for name, kind in cls.__annotations__.items():
            if name not in declared:
                annotations[name] = kind
                continue
            told = dict(declared[name].metadata)
            vectors[name] = tuple(f"{name}{k}" for k in range(told.pop("count")))
            for entry in vectors[name]:
                annotations[entry] = kind
                setattr(cls, entry, field(default=declared[name].default, metadata=told))
            setattr(cls, name, property(partial(_stacked, names=vectors[name])))
        cls.__annotations__, cls.vectors = annotations, vectors

    @classmethod
    def expanded(cls, names: Any) -> tuple[str, ...]:
        """Names with those of the entries for the name of a vector.

        Raises:
            ParameterError: Unknown name.
        """
        found = tuple(entry for name in names for entry in cls.vectors.get(name, (name,)))
        cls.check_names(found)
        return found

    @classmethod
    def entries_of(cls, values: Mapping[str, Any], *, ndim: int = 0) -> dict[str, Any]:
        """A mapping with the entries of a vector for its name: one value for all of them, or a list of one each.

        Args:
            values: Name -> value.
            ndim: Axes of a single value: 1 for an interval.

        Raises:
            ParameterError: Unknown name, or a list of another length.
        """
        found: dict[str, Any] = {}
        for name, value in values.items():
            own = cls.vectors.get(name)
            if own is None or np.ndim(value) <= ndim:
                found.update(dict.fromkeys(own or (name,), value))
            elif len(value) == len(own):
                found.update(zip(own, value, strict=True))
            else:
                raise ParameterError(f"{name} has {len(value)} values, expected one, or one for each of {', '.join(own)}")
        cls.check_names(found)
        return found

    def __post_init__(self) -> None:
        sizes = set()
        for spec in self._kept_specs().values():
            given, (lower, upper) = getattr(self, spec.name), spec.bounds
            if isinstance(given, float) and lower <= given <= upper:  # as most are: 20 times faster than below
                continue
            try:
                value = np.asarray(given)
                if value.dtype.kind in "bSU":
                    raise TypeError("booleans and text are none")
                value = value.astype(np.float64, copy=False)
            except (TypeError, ValueError, OverflowError, RuntimeError) as error:
                raise ParameterError(f"{spec.name} = {shown(given)} is no number: {error}") from error
            if value.ndim > 1:
                raise ParameterError(f"{spec.name} has shape {value.shape}, expected a scalar or (B,)")
            if not bool(np.all((value >= lower) & (value <= upper))):  # NaN fails too
                raise ParameterError(
                    f"{spec.name} = {shown(given)}{spec.suffix}, allowed is [{lower:g}, {upper:g}]{spec.suffix}"
                )
            if value.ndim == 1:
                sizes.add(value.shape[0])
        if len(sizes) > 1:
            raise ParameterError(f"parameters of one batch must have one length, got lengths {sorted(sizes)}")

    @classmethod
    def specs(cls) -> dict[str, ParameterSpec]:
        """Name -> unit, bounds, scale and source of every parameter, in the order of `to_vector`."""
        return dict(cls._kept_specs())

    @classmethod
    def _kept_specs(cls) -> dict[str, ParameterSpec]:
        """`specs`, made once for every class."""
        if "_specs" not in cls.__dict__:
            cls._specs = {
                f.name: ParameterSpec(name=f.name, default=f.default, **f.metadata)  # type: ignore[arg-type]
                for f in fields(cls)
            }
        return cls._specs

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of the parameters, in the order of `to_vector`."""
        return tuple(cls._kept_specs())

    @classmethod
    def index(cls, name: str) -> int:
        """Index of parameter `name` in `to_vector`."""
        cls.check_names([name])
        return cls.names().index(name)

    @classmethod
    def columns(cls, name: str) -> slice:
        """Place of a parameter or a vector in `to_vector`: rows of parameters (B, P)[:, columns] are its values (B, count)."""
        first, *_ = own = cls.expanded([name])
        return slice(cls.index(first), cls.index(first) + len(own))

    @classmethod
    def check_names(cls, names: Any) -> None:
        """Raise `ParameterError` for the first name that is no parameter of this class."""
        for name in names:
            if name not in cls.names():
                raise ParameterError(f"unknown parameter {name!r}; {cls.__name__} has {', '.join(cls.names()) or 'none'}")

    @property
    def batch(self) -> int | None:
        """Number of rows B if any parameter is given per row, else None."""
        sizes = [np.shape(getattr(self, name))[0] for name in self.names() if np.ndim(getattr(self, name)) == 1]
        return sizes[0] if sizes else None

    def to_vector(self) -> Array:
        """All parameters, shape (P,), or (B, P) where a parameter is given per row."""
        return self._vector.copy()

    @cached_property
    def _vector(self) -> Array:
        columns = [np.asarray(getattr(self, name), dtype=np.float64) for name in self.names()]
        return np.stack(np.broadcast_arrays(*columns), axis=-1) if columns else np.zeros(0)

    def to_matrix(self, batch: int) -> Array:
        """All parameters, one row per row of the batch, shape (B, P), contiguous.

        Raises:
            ParameterError: The parameters are given for another number of rows.
        """
        vector = self._vector
        if vector.ndim == 2 and len(vector) not in (1, batch):
            raise ParameterError(f"parameters are given for {len(vector)} rows, the batch has {batch}")
        matrix = np.empty((batch, vector.shape[-1]))
        matrix[:] = vector
        return matrix

    @classmethod
    def from_vector(cls: type[P], vector: Array) -> P:
        """Inverse of `to_vector`, shape (P,) or (B, P)."""
        vector = np.asarray(vector, dtype=np.float64)
        if vector.ndim not in (1, 2) or vector.shape[-1] != len(cls.names()):
            raise ParameterError(f"vector has shape {vector.shape}, expected ({len(cls.names())},) or (B, {len(cls.names())})")
        values = [float(v) for v in vector] if vector.ndim == 1 else list(vector.T.copy())
        return cls(**dict(zip(cls.names(), values, strict=True)))

    def replace(self: P, **changes: Any) -> P:
        """A copy with some parameters changed.

        Raises:
            ParameterError: Unknown name, or a value out of bounds.
        """
        return replace(self, **self.entries_of(changes))

    def row(self: P, index: int) -> P:
        """The parameters of one row of the batch."""
        vector = self.to_vector()
        return self.from_vector(vector if vector.ndim == 1 else vector[index])

    def save(
        self,
        path: str | Path,
        *,
        std: Mapping[str, float] | None = None,
        provenance: Mapping[str, Any] | None = None,
        simulator: Mapping[str, Option] | None = None,
        interface: Mapping[str, Any] | None = None,
        posterior: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write a TOML file with value and unit of every parameter (scalars only); the file appears whole or not at all.

        Args:
            path: The file to write.
            std: Standard deviations of identified parameters, in their units.
            provenance: Where the values come from (data hash, commit, date, ...).
            simulator: Structural choices that the parameters belong to; `gym.make(..., params=path)` makes them too.
            interface: `core.interface.Interface.table` of the sensors and commands, which `gym.make` plays.
            posterior: `core.posterior.PosteriorParameters.table`, from which `gym.make(..., randomize="posterior")` draws.
        """
        if self.batch is not None:
            raise ParameterError(f"parameters given per row ({self.batch} rows) cannot be saved; save row(i)")
        std = dict(std or {})
        self.check_names(std)
        parameter_values = {}
        for spec in self.specs().values():
            entry: dict[str, Any] = {"value": float(getattr(self, spec.name)), "unit": spec.unit}
            if spec.name in std:
                entry["std"] = float(std[spec.name])
            parameter_values[spec.name] = entry
        document: dict[str, Any] = {"kind": type(self).__name__, "provenance": dict(provenance or {})}
        for name, table in (("simulator", simulator), ("interface", interface), ("posterior", posterior)):
            if table:
                document[name] = dict(table)
        path = Path(path)
        write_atomically(path, tomli_w.dumps({**document, "parameters": parameter_values}).encode())
        return path

    @classmethod
    def load(cls: type[P], path: str | Path, base: P | None = None) -> P:
        """Read a TOML file written by `save`, or by hand; parameters that it does not name are those of `base`, else defaults.

        The table [parameters] has entries `name = {value = ..., unit = "..."}` or `name = number`.

        Raises:
            FileFormatError: No such file, not TOML, or not in this form.
            ParameterError: Parameters of another class, unknown names, wrong units, values out of bounds.
        """
        document = check_entries(str(path), read_toml(path), TABLES)
        kind = document.get("kind", cls.__name__)
        if kind != cls.__name__:
            raise ParameterError(f"{path} holds {kind}, this simulator takes {cls.__name__}")
        parameter_values = document.get("parameters")
        return replace(base or cls(), **cls.read_table(path, parameter_values))

    @classmethod
    def read_table(cls, path: str | Path, parameter_values: Any) -> dict[str, float]:
        """Values of a table [parameters] of a TOML file.

        Raises:
            FileFormatError: It is no table, or a value is no number.
            ParameterError: Unknown names, or wrong units.
        """
        if not isinstance(parameter_values, dict):
            raise FileFormatError(f"{path} has no table [parameters]")
        return {name: cls._read_entry(path, name, entry) for name, entry in cls.entries_of(parameter_values).items()}

    @classmethod
    def _read_entry(cls, path: str | Path, name: str, entry: Any) -> float:
        table = (
            check_entries(f"{path}: {name}", entry, ("value", "unit", "std")) if isinstance(entry, dict) else {"value": entry}
        )
        value, unit = table.get("value"), table.get("unit")
        number = number_in(f"{path}: {name}", value)
        expected = cls.specs()[name].unit
        if unit is not None and unit != expected:
            raise ParameterError(f"{path}: {name} is given in {shown(unit)}, expected {expected!r}")
        return number


def _stacked(parameters: Parameters, *, names: tuple[str, ...]) -> Array:
    """A vector's entries, (count,), or (B, count)."""
    return np.stack(np.broadcast_arrays(*(np.asarray(getattr(parameters, name)) for name in names)), axis=-1)


def warn_of_file(path: str | Path) -> None:
    """Issue a `FitWarning` if a file of parameters says not to use them, or that their model did not explain the data.

    Raises:
        FileFormatError: No such file, or not TOML.
    """
    provenance = read_toml(path).get("provenance")
    said = [provenance[name] for name in (UNUSABLE, UNEXPLAINED) if name in provenance] if isinstance(provenance, dict) else []
    if said:
        warnings.warn(f"{path}: {said[0]}", FitWarning, stacklevel=2)


GivenParameters = Parameters | Mapping[str, float] | str | Path
"""Parameters as `gym.make` takes them: an object, {name: value} of those that differ from the default, or a TOML file."""


@runtime_checkable
class ParameterDistribution(Protocol):
    """Domain randomisation: a distribution over parameters, drawn once per reset."""

    def sample(self, rng: np.random.Generator, nominal: Parameters) -> dict[str, float]:
        """Draw the parameters that vary; the others keep their nominal value."""


Interval = tuple[float, float] | tuple[str, float, float]
"""(low, high), or ("x", low, high): these times the nominal value."""
FACTOR = "x"
"""First entry of an interval of factors."""


@dataclass(frozen=True)
class UniformParameters:
    """Each named parameter uniform in its interval (log-uniform if its scale is "log").

    An interval is (low, high), or ("x", low, high): these times the nominal value, within the parameter's bounds.

    >>> UniformParameters({"friction": (0.4, 0.8)}).intervals["friction"]
    (0.4, 0.8)
    """

    intervals: Mapping[str, Interval]

    def ends(self, nominal: Parameters) -> dict[str, tuple[float, float]]:
        """Parameter -> lowest and highest value, in the order of the parameters' declaration."""
        intervals, specs = nominal.entries_of(self.intervals, ndim=1), nominal.specs()
        found = {}
        for name in (name for name in specs if name in intervals):
            times, (low, high) = intervals[name][0] == FACTOR, intervals[name][-2:]
            if times:
                value = float(getattr(nominal, name))
                low, high = np.clip(sorted((low * value, high * value)), *specs[name].bounds)
            found[name] = (float(low), float(high))
        return found

    def sample(self, rng: np.random.Generator, nominal: Parameters) -> dict[str, float]:
        """Draw one value per named parameter, in the order of the parameters' declaration."""
        specs, values = nominal.specs(), {}
        for name, ends in self.ends(nominal).items():
            lower, upper = (specs[name].encode(bound) for bound in ends)
            values[name] = float(np.clip(specs[name].decode(rng.uniform(lower, upper)), *specs[name].bounds))
        return values
