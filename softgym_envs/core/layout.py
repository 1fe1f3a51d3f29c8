"""The layout of a state: names, units and positions of its entries, and the manifold that they form.

A state is fields in a row; a field is a block of entries that repeats (the rods of a robot, the links of a chain) or stands
once; an entry is a vector, or a unit quaternion whose tangent is a rotation vector in the body frame.

>>> layout = StateLayout(Field("rod", 2, ("x y z", "m"), ("qw qx qy qz", "-", QUATERNION)), Field("", None, ("length", "m")))
>>> layout.nx, layout.n, layout.names[7:9], layout.tangent_names[3:6]
(15, 13, ('rod1.x', 'rod1.y'), ('rod0.rx', 'rod0.ry', 'rod0.rz'))
>>> [part.shape for part in layout.split(np.zeros((4, 15)))]
[(4, 2, 3), (4, 2, 4), (4,)]

Legend: B batch, nx state, n tangent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import lie
from .errors import ShapeError, StructureError
from .units import SI_UNITS

Array = NDArray[np.float64]


class Kind(Enum):
    """Manifold of an entry."""

    VECTOR = "vector"
    QUATERNION = "quaternion"


VECTOR, QUATERNION = Kind.VECTOR, Kind.QUATERNION
_ROTATION = ("rx", "ry", "rz")
EXACT, NEARLY = 1e-9, 1e-3
"""Quaternions within `EXACT` of unit length stay as they are, within `NEARLY` are normalised; others are refused."""


class EntryGroup(NamedTuple):
    """Numbers of one unit that belong together."""

    names: tuple[str, ...]
    unit: str
    kind: Kind = VECTOR
    within: tuple[float, float] | None = None
    """Range in which they are physical, for starts that a fit chooses; None: any."""

    @property
    def tangent_names(self) -> tuple[str, ...]:
        """The names; for a quaternion those of the rotation vector in the body frame."""
        return _ROTATION if self.kind is QUATERNION else self.names

    @property
    def tangent_unit(self) -> str:
        """The unit; rad for a quaternion."""
        return "rad" if self.kind is QUATERNION else self.unit


@dataclass(frozen=True, init=False)
class Field:
    """Entries that stand once or repeat.

    Names are "prefix3.entry", without prefix "entry3"; the number is left out where the field stands once.

    Args:
        prefix: Prefix of all names; may be "".
        count: Number of repetitions, their numbers, or None: once, without a number.
        entries: (names, unit), (names, unit, kind) or (names, unit, kind, within); names are separated by blanks.

    Raises:
        StructureError: A unit that is not an SI unit of `core.units`, or a quaternion without four names.
    """

    prefix: str
    indices: tuple[int, ...] | None
    entries: tuple[EntryGroup, ...]

    def __init__(self, prefix: str, count: int | Sequence[int] | None, *entries: tuple[Any, ...]):
        found = tuple(EntryGroup(tuple(names.split()), unit, *kind) for names, unit, *kind in entries)
        for entry in found:
            if entry.unit not in SI_UNITS or entry.unit == "SI":
                raise StructureError(f"{' '.join(entry.names)} is in {entry.unit!r}; a layout holds SI: {', '.join(SI_UNITS)}")
            if entry.kind is QUATERNION and len(entry.names) != 4:
                raise StructureError(f"a quaternion has four names, got {entry.names}")
        indices = tuple(range(count)) if isinstance(count, int) else None if count is None else tuple(count)
        for name, value in (("prefix", prefix), ("indices", indices), ("entries", found)):
            object.__setattr__(self, name, value)

    @property
    def count(self) -> int:
        """Number of repetitions in a state."""
        return 1 if self.indices is None else len(self.indices)

    @property
    def width(self) -> int:
        """Length of one repetition in a state."""
        return sum(len(entry.names) for entry in self.entries)

    @property
    def tangent_width(self) -> int:
        """Length of one repetition in a tangent vector."""
        return sum(len(entry.tangent_names) for entry in self.entries)

    def offset(self, name: str) -> int:
        """Index of the number of this name in one repetition; kernels read there.

        >>> Field("rod", 6, ("x y z", "m"), ("qw qx qy qz", "-", QUATERNION)).offset("qw")
        3
        """
        return [n for entry in self.entries for n in entry.names].index(name)

    def labels(self, names: Sequence[str]) -> list[str]:
        """Names in a state of these entries, for all repetitions."""
        numbers = [""] if self.indices is None else [str(i) for i in self.indices]
        dotted = f"{self.prefix}{{i}}.{{name}}" if self.prefix else "{name}{i}"
        return [dotted.format(i=i, name=name) for i in numbers for name in names]


class _Run(NamedTuple):
    """Neighbouring entries of one kind in a field: their columns in its block of a state and of a tangent vector."""

    field: int
    state: slice
    tangent: slice
    kind: Kind


@dataclass(frozen=True, init=False)
class StateLayout:
    """Fields in a row; see the module docstring.

    Raises:
        StructureError: Two entries have one name.
    """

    fields: tuple[Field, ...]

    def __init__(self, *fields: Field) -> None:
        object.__setattr__(self, "fields", fields)
        doubled = sorted({name for name in self.names if self.names.count(name) > 1}) if len(set(self.names)) < self.nx else []
        if doubled:
            raise StructureError(f"two entries of a state are called {doubled[0]!r}")

    # --- sizes and names -------------------------------------------------------------------------------------------

    @cached_property
    def nx(self) -> int:
        """Length of a state."""
        return sum(field.count * field.width for field in self.fields)

    @cached_property
    def n(self) -> int:
        """Dimension of the tangent space."""
        return sum(field.count * field.tangent_width for field in self.fields)

    @cached_property
    def is_flat(self) -> bool:
        """Whether states are a vector space: no entry is a quaternion."""
        return all(entry.kind is VECTOR for field in self.fields for entry in field.entries)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """One name per entry of a state."""
        return tuple(s for f in self.fields for s in f.labels([name for entry in f.entries for name in entry.names]))

    @cached_property
    def units(self) -> tuple[str, ...]:
        """One SI unit per entry of a state."""
        return tuple(u for f in self.fields for u in f.count * [e.unit for e in f.entries for _ in e.names])

    @cached_property
    def tangent_names(self) -> tuple[str, ...]:
        """One name per entry of a tangent vector."""
        return tuple(s for f in self.fields for s in f.labels([name for entry in f.entries for name in entry.tangent_names]))

    @cached_property
    def tangent_units(self) -> tuple[str, ...]:
        """One SI unit per entry of a tangent vector."""
        return tuple(u for f in self.fields for u in f.count * [e.tangent_unit for e in f.entries for _ in e.tangent_names])

    # --- positions -------------------------------------------------------------------------------------------------

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Slice of every field in a state."""
        return _slices([field.count * field.width for field in self.fields])

    @cached_property
    def tangent_slices(self) -> tuple[slice, ...]:
        """Slice of every field in a tangent vector."""
        return _slices([field.count * field.tangent_width for field in self.fields])

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Name of a state's entry -> its index."""
        return {name: index for index, name in enumerate(self.names)}

    def blocks(self, state: Array) -> tuple[Array, ...]:
        """Views of the fields of states (..., nx), (..., count, width) each."""
        return _blocks(state, self._shapes)

    def tangent_blocks(self, dx: Array) -> tuple[Array, ...]:
        """Views of the fields of tangent vectors (..., n), (..., count, width) each."""
        return _blocks(dx, self._tangent_shapes)

    def split(self, state: Array) -> tuple[Array, ...]:
        """Views of the entries of states (..., nx): (..., count, width), without the axes of single fields and numbers."""
        return _parts(self.blocks(state), self._cuts)

    @cached_property
    def limits(self) -> Array:
        """Ranges of a state's entries, (2, nx): see `EntryGroup.within`."""
        ranges = [f.count * [e.within or (-np.inf, np.inf) for e in f.entries for _ in e.names] for f in self.fields]
        return np.array([each for found in ranges for each in found]).T

    # --- the manifold ----------------------------------------------------------------------------------------------

    def retract(self, state: Array, dx: Array) -> Array:
        """Move states by tangent vectors: (..., nx), (..., n) -> (..., nx)."""
        if self.is_flat:
            return state + dx
        moved = np.empty((*_lead(state, dx), self.nx))
        x, d, out = self.blocks(state), self.tangent_blocks(dx), self.blocks(moved)
        for k, here, there, kind in self._runs:
            old, change = x[k][..., here], d[k][..., there]
            out[k][..., here] = lie.retract(old, change) if kind is QUATERNION else old + change
        return moved

    def difference(self, a: Array, b: Array) -> Array:
        """Tangent vectors dx with retract(b, dx) = a: (..., nx) twice -> (..., n)."""
        if self.is_flat:
            return a - b
        dx = np.empty((*_lead(a, b), self.n))
        new, old, out = self.blocks(a), self.blocks(b), self.tangent_blocks(dx)
        for k, here, there, kind in self._runs:
            p, q = new[k][..., here], old[k][..., here]
            out[k][..., there] = lie.difference(p, q) if kind is QUATERNION else p - q
        return dx

    def retract_jacobian(self, state: Array) -> Array:
        """d retract(state, dx) / d dx at dx = 0, (B, nx) -> (B, nx, n); for a quaternion half of q times the unit vectors."""
        jacobian = np.zeros((len(state), self.nx, self.n))
        for q, row, column, kind in self._places(state):
            jacobian[:, row, column] = 0.5 * lie.right_matrix(q) if kind is QUATERNION else np.eye(row.stop - row.start)
        return jacobian

    def difference_jacobian(self, state: Array) -> Array:
        """d difference(a, state) / d a at a = state, (B, nx) -> (B, n, nx)."""
        jacobian = np.zeros((len(state), self.n, self.nx))
        for q, row, column, kind in self._places(state):
            value = 2.0 * np.swapaxes(lie.right_matrix(q), 1, 2) if kind is QUATERNION else np.eye(row.stop - row.start)
            jacobian[:, column, row] = value
        return jacobian

    def unit(self, name: str, state: Array) -> Array:
        """States (B, nx) with quaternions of unit length; those that have it within rounding stay bit for bit.

        Raises:
            ShapeError: A quaternion is far from unit length; `name` says what the states are.
        """
        found = state.copy()
        for q, row, _, kind in self._places(state):
            length = np.linalg.norm(q, axis=1) if kind is QUATERNION else np.ones(len(q))
            off = np.abs(length - 1.0)
            if (off > NEARLY).any():
                worst, names = int(np.argmax(off)), f"{self.names[row.start]} to {self.names[row.stop - 1]}"
                raise ShapeError(
                    f"{name}: the quaternion {names} has length {length[worst]:.4g}, expected 1, to {NEARLY:g} at least"
                )
            change = off > EXACT
            found[change, row] = q[change] / length[change, None]
        return found

    def whole(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Flags of a state's entries (nx,); a quaternion with one flag gets all four."""
        found = flags.copy()
        for part, row, _, kind in self._places(flags[None].astype(np.float64)):
            found[row] = part.any() if kind is QUATERNION else flags[row]
        return found

    @cached_property
    def _shapes(self) -> tuple[_Shape, ...]:
        return tuple((at, field.count, field.width) for at, field in zip(self.slices, self.fields, strict=True))

    @cached_property
    def _tangent_shapes(self) -> tuple[_Shape, ...]:
        return tuple((at, field.count, field.tangent_width) for at, field in zip(self.tangent_slices, self.fields, strict=True))

    @cached_property
    def _cuts(self) -> tuple[tuple[Any, ...], ...]:
        return tuple(_cut(field, [len(entry.names) for entry in field.entries]) for field in self.fields)

    @cached_property
    def _runs(self) -> tuple[_Run, ...]:
        runs: list[_Run] = []
        for k, field in enumerate(self.fields):
            x = d = 0
            for entry in field.entries:
                here, there = slice(x, x + len(entry.names)), slice(d, d + len(entry.tangent_names))
                x, d = here.stop, there.stop
                if entry.kind is VECTOR and runs and runs[-1].field == k and runs[-1].kind is VECTOR:
                    last = runs.pop()
                    here, there = slice(last.state.start, x), slice(last.tangent.start, d)
                runs.append(_Run(k, here, there, entry.kind))
        return tuple(runs)

    def _places(self, state: Array) -> list[tuple[Array, slice, slice, Kind]]:
        """Values (B, width), rows of a state and columns of a tangent vector of every run in every repetition."""
        found = []
        for k, here, there, kind in self._runs:
            field, x, d = self.fields[k], self.slices[k].start, self.tangent_slices[k].start
            for r in range(field.count):
                i, j = x + r * field.width, d + r * field.tangent_width
                row = slice(i + here.start, i + here.stop)
                found.append((state[:, row], row, slice(j + there.start, j + there.stop), kind))
        return found


_Shape = tuple[slice, int, int]
"""Slice of a field, its number of repetitions, and its width."""


def _blocks(array: Array, shapes: tuple[_Shape, ...]) -> tuple[Array, ...]:
    lead = array.shape[:-1]
    return tuple([array[..., at].reshape(*lead, count, width) for at, count, width in shapes])


def _lead(a: Array, b: Array) -> tuple[int, ...]:
    """Broadcast shape of two arrays without their last axes."""
    return a.shape[:-1] if a.shape[:-1] == b.shape[:-1] else np.broadcast_shapes(a.shape[:-1], b.shape[:-1])


def _slices(sizes: list[int]) -> tuple[slice, ...]:
    edges = np.concatenate([[0], np.cumsum(sizes)]).astype(int).tolist()
    return tuple(slice(a, b) for a, b in pairwise(edges))


def _cut(field: Field, sizes: list[int]) -> tuple[Any, ...]:
    """Indices of the entries in a block of the field."""
    columns = [where.start if where.stop - where.start == 1 else where for where in _slices(sizes)]
    return tuple((..., 0, column) if field.indices is None else (..., column) for column in columns)


def _parts(blocks: tuple[Array, ...], cuts: tuple[tuple[Any, ...], ...]) -> tuple[Array, ...]:
    return tuple([block[cut] for block, entries in zip(blocks, cuts, strict=True) for cut in entries])
