"""The Task protocol: what a robot should do, apart from how it moves.

A task turns states into observations, rewards and ends. It never knows which simulator runs under it, so that the same
task on our engine and on the MuJoCo twin is one keyword. All functions are pure and batch first; row i of the result
depends on row i of the arguments only, bit for bit. What a task must remember between steps (goal, elapsed time, index of
the next waypoint, ...) is the `context`, a float64 array: state, context and random generator are all there is to save.

Order within one control step: `scale_action`, the simulator's step, `update` (`update_after`, where a task is
`RemembersControls`), `reward` with the contexts before and after, then `observe`, `terminated`, `success` and `measure` with
the new one. A context may hold what several of them need.

Legend: B batch, nx state, n tangent, nu control, nc context, no observation.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .errors import MissingDependencyError, OptionError, shown

Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

LARGEST = 2**63
"""Integers of Python may be larger than any float."""
_ONE = np.array(1.0)  # NumPy computes with an array faster than with a number
LASTING = ("hold_time", "duration")
"""Keywords of tasks: times [s] after which alone they succeed."""
SHARED_OPTIONS = ("state", "constants")
"""Options of `reset` that every task has: the first state (nx,) or (B, nx), and constants by name."""


@dataclass(frozen=True)
class Entry:
    """One entry of an observation."""

    name: str
    unit: str
    low: float
    """Lowest value; observations are clipped to [low, high]."""
    high: float
    scale: float = 1.0
    """Size of a typical change, in `unit`: sensor noise is given as a fraction of it."""


@dataclass(frozen=True)
class Start:
    """What a task is given to begin episodes of B rows."""

    rngs: Sequence[np.random.Generator]
    """One generator per row; a row draws from its own only."""
    options: Mapping[str, Any]
    """Options of `reset`, without the shared ones; see `Task.option_names`."""
    constants: Mapping[str, Array]
    """Name -> the value of that constant in every row, (B,)."""
    settle: Callable[[Array, Array, float], Array]
    """(state (B, nx), control (B, nu), seconds) -> state (B, nx): let the robot move under a held control."""
    state: Array | None = None
    """(B, nx): first states that the caller chose; None lets the task draw them."""


@runtime_checkable
class LooksFromActuators(Protocol):
    """A task whose actuators are alike, so that one network may serve them all."""

    @property
    def actuator_views(self) -> NDArray[np.int64] | None:
        """Entries of the observation that every actuator looks at, (ends, nu, F); None where they are not alike."""
        ...


@runtime_checkable
class RemembersControls(Protocol):
    """A task whose contexts depend on the controls that were given."""

    def update_after(self, context: Array, control: Array, state: Array) -> Array:
        """`update` after a step under a control (B, nu), in the simulator's units; `update` itself leaves the last one."""
        ...


@runtime_checkable
class Task(Protocol):
    """See the module docstring."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The observation, entry by entry."""
        ...

    @property
    def action_names(self) -> tuple[str, ...]:
        """One name per entry of the action."""
        ...

    @property
    def context_names(self) -> tuple[str, ...]:
        """One name per entry of the context."""
        ...

    @property
    def option_names(self) -> tuple[str, ...]:
        """Options of `reset` beside the shared ones."""
        ...

    @property
    def success_definition(self) -> str:
        """One sentence: when `success` holds."""
        ...

    @property
    def constants(self) -> Mapping[str, float]:
        """Constants of the robot's world that the task fixes, e.g. gravity."""
        ...

    @property
    def disturbance_scale(self) -> Array:
        """(n,): tangent vector of a random kick of unit size, zero where nothing is kicked."""
        ...

    def option_constants(self, options: Mapping[str, Any]) -> Mapping[str, float]:
        """Constants that the options of one `reset` ask for, e.g. a terrain level.

        Raises:
            OptionError: An option has a value that is not allowed.
        """
        ...

    def reset(self, start: Start) -> tuple[Array, Array]:
        """First states (B, nx) and contexts (B, nc).

        Raises:
            OptionError: An option has a value that is not allowed.
        """
        ...

    def scale_action(self, action: Array) -> Array:
        """Action (B, na) in [-1, 1] -> control (B, nu) in the simulator's units."""
        ...

    def update(self, context: Array, state: Array) -> Array:
        """Context after a step that led to `state`, (B, nc)."""
        ...

    def observe(self, state: Array, context: Array) -> Array:
        """(B, no), not clipped, a fresh array; `context` is the one that `update` or `reset` made of this state."""
        ...

    def reward(self, state: Array, next_state: Array, action: Array, before: Array, after: Array) -> dict[str, Array]:
        """Named terms, each (B,); their sum is the reward. `before` and `after` are the contexts of the two states."""
        ...

    def terminated(self, state: Array, context: Array) -> BoolArray:
        """(B,): the episode ends here, for another reason than time."""
        ...

    def success(self, state: Array, context: Array) -> BoolArray:
        """(B,): see `success_definition`."""
        ...

    def measure(self, state: Array, context: Array) -> dict[str, Array]:
        """Further numbers for `info`, each (B,); these may be views of the arguments."""
        ...

    def draw_hints(self, context: Array) -> dict[str, Array]:
        """What a picture should show beside the robot, for one row's context (nc,): "goal" (3,), "velocity" (3,)."""
        ...


class BaseTask(ABC):
    """What a `Task` is unless it says otherwise: it sees the full state, and has no memory, no options and no failure.

    A subclass is a frozen dataclass with a field `model`, a `core.base.Structure`. It writes at least `success_definition`,
    `reset`, `reward` and `success`.
    """

    context_names: tuple[str, ...] = ()
    option_names: tuple[str, ...] = ()
    bound: float = 1e3
    """Largest magnitude of every observed entry of the state [its unit]."""
    model: Any

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The full state."""
        layout = self.model.layout
        return tuple(Entry(*named, -self.bound, self.bound) for named in zip(layout.names, layout.units, strict=True))

    @property
    def action_names(self) -> tuple[str, ...]:
        """The controls."""
        names: tuple[str, ...] = self.model.control_names
        return names

    def scale_action(self, action: Array) -> Array:
        """From [-1, 1] to the bounds of the controls."""
        low, half = self._range
        return np.asarray(low + (action + _ONE) * half)

    @cached_property
    def _range(self) -> tuple[Array, Array]:
        """Lowest controls, and half of how far up it goes from there, (1, nu): NumPy is faster where shapes are alike."""
        low, high = self.model.control_bounds
        return low[None], 0.5 * (high - low)[None]

    def observe(self, state: Array, context: Array) -> Array:
        """The state, as far as the model knows it."""
        return state[:, : self.model.layout.nx].copy()

    @property
    def constants(self) -> Mapping[str, float]:
        """None."""
        return {}

    @property
    def disturbance_scale(self) -> Array:
        """Nothing is kicked, (n,)."""
        return np.zeros(self.model.layout.n)

    def option_constants(self, options: Mapping[str, Any]) -> Mapping[str, float]:
        """None."""
        return {}

    @abstractmethod
    def reset(self, start: Start) -> tuple[Array, Array]:
        """See `Task`."""

    def update(self, context: Array, state: Array) -> Array:
        """The context as it is."""
        return context

    def terminated(self, state: Array, context: Array) -> BoolArray:
        """Never."""
        return np.zeros(len(state), dtype=np.bool_)

    def measure(self, state: Array, context: Array) -> dict[str, Array]:
        """Nothing."""
        return {}

    def draw_hints(self, context: Array) -> dict[str, Array]:
        """Nothing."""
        return {}


def check_options(task: Task, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options as a dictionary.

    Raises:
        OptionError: No mapping, an unknown option, or a number that is none of this machine.
    """
    if options is not None and not isinstance(options, Mapping):
        raise OptionError(f"options is {shown(options)}, expected a mapping of names to values")
    known = (*SHARED_OPTIONS, *task.option_names)
    for name in options or {}:
        if name not in known:
            raise OptionError(f"unknown option {name!r}; allowed are {', '.join(known)}")
    for name, value in (options or {}).items():
        if isinstance(value, int) and abs(value) > LARGEST:
            raise OptionError(f"option {name!r} is {shown(value)}, which is too large to compute with")
    return dict(options or {})


def check_time(keywords: Mapping[str, Any], period: float, steps: int | None) -> None:
    """Refuse keywords that ask for more time than an episode of so many control steps has; None: it has no end.

    Raises:
        OptionError: One of `LASTING` is longer.
    """
    for name in LASTING:
        if steps and keywords.get(name, 0.0) > steps * period + 1e-9:
            raise OptionError(
                f"{name} is {keywords[name]:g} s, but an episode has {steps} control steps of {period:g} s, "
                f"{steps * period:g} s: take a shorter time, or give more max_episode_steps"
            )


EXTRAS = {"mujoco": "mujoco", "casadi": "sysid", "torch": "learn", "stable_baselines3": "learn", "matplotlib": "report"}
"""Package -> our extra that brings it."""


def load(path: str) -> Any:
    """The object that "package.module:name" names. An error that importing the module raises is passed on as it is.

    Raises:
        OptionError: No such module or name.
        MissingDependencyError: It needs a package that an extra of ours brings, and that is not installed.
    """
    module, _, name = path.partition(":")
    expected = f"{path!r} is not the path of an object, expected 'package.module:name'"
    if not module or module.startswith(".") or not name:
        raise OptionError(expected)
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in EXTRAS:
            raise MissingDependencyError(f'{path} needs {missing}: pip install "softgym-envs[{EXTRAS[missing]}]"') from error
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, what it imports is not
        raise OptionError(f"{expected}: {error}") from error
    try:
        return getattr(found, name)
    except AttributeError as error:
        raise OptionError(f"{expected}: {error}") from error
