"""Checks of what a system's own methods return: once per build of a simulator or an environment, by name.

Later calls are not checked and cost nothing. Legend: B batch, nx state, nu control, nc context, no observation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .errors import ContractError, SoftgymError, shown
from .simulator import Simulator, Status
from .task import Entry, Start, Task
from .units import SI_UNITS

DTYPES = {"f": (np.float64, "float64"), "b": (np.bool_, "booleans"), "i": (np.int32, "int32")}
"""Kind of a result -> its type, and the type in words."""


@dataclass(frozen=True)
class Result:
    """What a method must return: an array of this shape."""

    shape: tuple[int, ...]
    kind: str = "f"
    finite: bool = True
    fresh: bool = False
    """Whether the array must not share memory with an argument."""
    names: tuple[str, ...] = ()
    """Names of the entries of the last axis, for messages."""

    def check(self, said: str, found: Any, given: Sequence[Any]) -> None:
        """Raise `ContractError` if `found` is something else; `said` names the method."""
        dtype, word = DTYPES[self.kind]
        if not isinstance(found, np.ndarray) or found.shape != self.shape or found.dtype != dtype:
            raise ContractError(f"{said} returned {described(found)}, expected {word} of shape {self.shape}")
        if self.kind == "f" and self.finite and not np.isfinite(found).all():
            where = tuple(int(i) for i in np.argwhere(~np.isfinite(found))[0])
            name = f" ({self.names[where[-1]]})" if self.names else ""
            raise ContractError(f"{said} returned {found[where]} at index {where}{name}, expected finite numbers")
        if self.kind == "i" and not np.isin(found, list(Status)).all():
            wrong = found[~np.isin(found, list(Status))][0]
            raise ContractError(
                f"{said} returned the status {wrong}, allowed are {', '.join(f'{s:d} ({s.name})' for s in Status)}"
            )
        if self.fresh and any(isinstance(array, np.ndarray) and np.shares_memory(found, array) for array in given):
            raise ContractError(f"{said} returned a view of an argument, expected a fresh array: return a copy")


@dataclass(frozen=True)
class Terms:
    """What a method must return: a mapping of names to arrays of B rows."""

    rows: int
    vectors: bool = False
    """Whether arrays may have further axes and other types than float64."""

    def check(self, said: str, found: Any, given: Sequence[Any]) -> None:
        """As `Result.check`."""
        if not isinstance(found, Mapping) or not all(isinstance(name, str) for name in found) or not (found or self.vectors):
            raise ContractError(
                f"{said} returned {described(found)}, expected a dict of names to arrays of shape ({self.rows},)"
            )
        for name, value in found.items():
            if not self.vectors:
                Result((self.rows,)).check(f"{said}, entry {name!r},", value, given)
            elif np.shape(value)[:1] != (self.rows,):
                raise ContractError(f"{said}, entry {name!r}, returned {described(value)}, expected {self.rows} rows")


def described(found: Any) -> str:
    """A result in words."""
    if isinstance(found, np.ndarray):
        return f"{found.dtype} of shape {found.shape}"
    return f"{type(found).__name__} {shown(found)}"


def call(
    owner: Any, name: str, arguments: Sequence[Any], expected: Result | Terms | tuple[Result | Terms, ...], **keywords: Any
) -> Any:
    """Call a method and check it: its result is as expected, and it has not written into its arguments.

    Raises:
        ContractError: It is not so; the message names the method, what it returned and what is allowed.
    """
    said, method = f"{type(owner).__name__}.{name}", getattr(owner, name)
    given = [*arguments, *(a.state for a in arguments if isinstance(a, Start))]
    kept = [a.copy() if isinstance(a, np.ndarray) else a for a in given]
    try:
        found = method(*arguments, **keywords)
    except SoftgymError:
        raise
    except (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError) as error:
        raise ContractError(f"{said} raised {type(error).__name__}: {error}") from error
    for k, (now, before) in enumerate(zip(given, kept, strict=True)):
        if isinstance(now, np.ndarray) and not np.array_equal(now, before, equal_nan=True):
            argument = [*inspect.signature(method).parameters, "start.state"][k]
            raise ContractError(f"{said} writes into its argument {argument!r}: work on a copy")
    if not isinstance(expected, tuple):
        expected.check(said, found, given)
        return found
    if not isinstance(found, tuple) or len(found) != len(expected):
        raise ContractError(f"{said} returned {described(found)}, expected a tuple of {len(expected)} arrays")
    for part, value in zip(expected, found, strict=True):
        part.check(said, value, given)
    return found


class CheckedTask:
    """A task whose results are checked at every call; environments use it up to their first step.

    Args:
        task: The task.
        simulator: The simulator under it.
        nx: Entries of the state that the task sees.
    """

    def __init__(self, task: Task, simulator: Simulator, nx: int) -> None:
        self._task = task
        self._names = {"state": tuple(simulator.state_names[:nx]), "context": tuple(task.context_names)}
        self._names |= {"entries": tuple(entry.name for entry in task.entries), "control": tuple(simulator.control_names)}

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name) if name in RESULTS else getattr(self._task, name)

    def _call(self, name: str, *arguments: Any) -> Any:
        first = arguments[0]
        rows = len(first.rngs if isinstance(first, Start) else first)

        def expect(what: str) -> Result | Terms:
            if what in ("terms", "measures"):
                return Terms(rows, what == "measures")
            if what == "flags":
                return Result((rows,), "b")
            return Result((rows, len(self._names[what])), fresh=what == "entries", names=self._names[what])

        expected = tuple(expect(what) for what in RESULTS[name].split())
        return call(self._task, name, arguments, expected if len(expected) > 1 else expected[0])


RESULTS = {
    "reset": "state context", "scale_action": "control", "update": "context", "update_after": "context", "observe": "entries",
    "reward": "terms", "terminated": "flags", "success": "flags", "measure": "measures",
}  # fmt: skip
"""Method of a task -> what it returns."""


def check_members(where: str, value: Any, protocol: type) -> None:
    """Raise `ContractError` if a value lacks members of a protocol; its properties are not evaluated."""
    members = [name for name in vars(protocol) if name[0] != "_"]
    absent = [m for m in members if inspect.getattr_static(value, m, members) is members and not hasattr(value, m)]
    if absent:
        kind = type(value).__name__
        raise ContractError(f"{where}: {kind} lacks {', '.join(absent)}; see `{protocol.__name__}` in {protocol.__module__}")


def check_simulator(simulator: Simulator) -> None:
    """Names, units, bounds and the rest state have the sizes of state and control.

    Raises:
        ContractError: They have not.
    """
    name = type(simulator).__name__
    check_members(name, simulator, Simulator)
    for what, size, names, units in (
        ("state", simulator.nx, simulator.state_names, simulator.state_units),
        ("control", simulator.nu, simulator.control_names, simulator.control_units),
    ):
        if not len(names) == len(set(names)) == size:
            raise ContractError(f"{name}.{what}_names are {shown(names)}, expected {size} different names")
        if len(units) != size:
            raise ContractError(f"{name}.{what}_units are {shown(units)}, expected one per name: {', '.join(names)}")
        wrong = [unit for unit in units if unit not in SI_UNITS or unit == "SI"]
        if wrong:
            raise ContractError(f"{name}.{what}_units holds {wrong[0]!r}, allowed are {', '.join(SI_UNITS)}")
    shapes = tuple(map(np.shape, simulator.control_bounds))
    if shapes != ((simulator.nu,), (simulator.nu,)):
        raise ContractError(f"{name}.control_bounds have shapes {shapes}, expected ({simulator.nu},) twice")
    lower, upper = simulator.control_bounds
    if not (lower < upper).all():
        raise ContractError(f"{name}.control_bounds are {lower} and {upper}, expected lower < upper")
    call(simulator, "initial_state", (1,), Result((1, simulator.nx), names=simulator.state_names))


def check_build(where: str, task: Any, simulate: Callable[[Any], Simulator]) -> Simulator:
    """The simulator of the model of a task, which a task's function returned; both are whole and of one size.

    Raises:
        ContractError: It is not so.
    """
    check_members(where, task, Task)
    simulator = simulate(task.model)
    check_simulator(simulator)
    kind = type(task).__name__
    for entry in task.entries:
        if not isinstance(entry, Entry) or not entry.low < entry.high:
            raise ContractError(f"{kind}.entries holds {shown(entry)}, expected an Entry with low < high")
    size = np.shape(task.disturbance_scale)
    if len(size) != 1 or size[0] > simulator.n:
        raise ContractError(
            f"{kind}.disturbance_scale has shape {size}, expected ({simulator.n},): one number per tangent entry"
        )
    return simulator
