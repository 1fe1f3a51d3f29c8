"""The Task protocol: what a robot should do, apart from how it moves.

A task turns states into observations, rewards and terminations. It never knows which simulator runs under it, so that the same
task on the native engine and on the MuJoCo model is one keyword. All functions are pure and batch first; row i of the result
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
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .errors import MissingDependencyError, OptionError, shown
from .simulator import Array

BoolArray = NDArray[np.bool_]

LARGEST = 2**63
"""Largest integer among options: integers of Python may be larger than any float."""
_ONE = np.array(1.0)  # NumPy computes with an array faster than with a number
LASTING = ("hold_time", "duration")
"""Keywords of tasks: times [s] that must pass before they succeed."""
SHARED_OPTIONS = ("state", "parameters")
"""Options of `reset` that every task has: the first state (nx,) or (B, nx), and parameters by name."""


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
    """Input of a task that begins episodes of B rows."""

    rngs: Sequence[np.random.Generator]
    """One generator per row; a row draws from its own only."""
    options: Mapping[str, Any]
    """Options of `reset`, without the shared ones; see `Task.option_names`."""
    parameter_values: Mapping[str, Array]
    """Name -> the value of that parameter in every row, (B,)."""
    settle: Callable[..., Array]
    """(state (B, nx), control (B, nu), seconds) -> state (B, nx): let the robot move under a held control.

    With `keep=True` results for nominal parameters are kept, and looked up where the same row is asked for again.
    """
    state: Array | None = None
    """(B, nx): first states that the caller chose; None lets the task draw them."""


@runtime_checkable
class LooksFromActuators(Protocol):
    """A task with equal actuators, so that one network may serve them all."""

    @property
    def actuator_views(self) -> NDArray[np.int64] | None:
        """Entries of the observation that every actuator sees, (ends, nu, F); None if actuators differ."""


@runtime_checkable
class RemembersControls(Protocol):
    """A task whose contexts depend on the given controls."""

    def update_after(self, context: Array, control: Array, state: Array) -> Array:
        """`update` after a step under a control (B, nu), in the simulator's units; `update` itself keeps the last one."""


def context_after(task: Task, context: Array, control: Array, state: Array) -> Array:
    """A task's contexts (B, nc) after a step under controls (B, nu) that led to states (B, nx)."""
    if isinstance(task, RemembersControls):
        return task.update_after(context, control, state)
    return task.update(context, state)


@runtime_checkable
class Task(Protocol):
    """See the module docstring."""

    @property
    def model(self) -> Any:
        """The model whose simulator the task runs on."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The observation, entry by entry."""

    @property
    def action_names(self) -> tuple[str, ...]:
        """One name per entry of the action."""

    @property
    def context_names(self) -> tuple[str, ...]:
        """One name per entry of the context."""

    @property
    def option_names(self) -> tuple[str, ...]:
        """Options of `reset` beside the shared ones."""

    @property
    def success_definition(self) -> str:
        """One sentence: when `success` holds."""

    @property
    def parameter_values(self) -> Mapping[str, float]:
        """Parameters of the simulator that the task fixes, e.g. gravity."""

    @property
    def disturbance_scale(self) -> Array:
        """Tangent vector of a random kick of unit size (n,), zero where nothing is kicked."""

    def option_constants(self, options: Mapping[str, Any]) -> Mapping[str, float]:
        """Parameters set by the options of one `reset`, e.g. a terrain level.

        Raises:
            OptionError: An option has a value that is not allowed.
        """

    def reset(self, start: Start) -> tuple[Array, Array]:
        """First states (B, nx) and contexts (B, nc).

        Raises:
            OptionError: An option has a value that is not allowed.
        """

    def scale_action(self, action: Array) -> Array:
        """Action (B, na) in [-1, 1] -> control (B, nu) in the simulator's units."""

    def update(self, context: Array, state: Array) -> Array:
        """Context after a step that led to `state`, (B, nc)."""

    def observe(self, state: Array, context: Array) -> Array:
        """Observations (B, no), not clipped, a fresh array; `context` is from `update` or `reset` for this state."""

    def reward(self, state: Array, next_state: Array, action: Array, before: Array, after: Array) -> dict[str, Array]:
        """Named terms, each (B,); their sum is the reward. `before` and `after` are the contexts of the two states."""

    def terminated(self, state: Array, context: Array) -> BoolArray:
        """Whether the episode ends here for another reason than time, (B,)."""

    def success(self, state: Array, context: Array) -> BoolArray:
        """Whether the task succeeds, (B,); see `success_definition`."""

    def measure(self, state: Array, context: Array) -> dict[str, Array]:
        """Further numbers for `info`, each (B,); these may be views of the arguments."""

    def draw_hints(self, context: Array) -> dict[str, Array]:
        """Hints for a picture of the robot, for one row's context (nc,): "goal" (3,), "velocity" (3,)."""


class BaseTask(ABC):
    """Default `Task`: it sees the full state, and has no memory, no options and no failure.

    A subclass is a frozen dataclass with a field `model`, a `core.base.RobotModel`. It defines at least `success_definition`,
    `reset`, `reward` and `success`.
    """

    context_names: tuple[str, ...] = ()
    option_names: tuple[str, ...] = ()
    parameter_values: Mapping[str, float] = MappingProxyType({})
    bound: float = 1e3
    """Largest magnitude of every observed entry of the state [its unit]."""
    model: Any

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Entries of the full state."""
        layout = self.model.layout
        return tuple(Entry(*named, -self.bound, self.bound) for named in zip(layout.names, layout.units, strict=True))

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the controls."""
        names: tuple[str, ...] = self.model.control_names
        return names

    def scale_action(self, action: Array) -> Array:
        """Scale from [-1, 1] to the bounds of the controls."""
        low, half = self._range
        return np.asarray(low + (action + _ONE) * half)

    @cached_property
    def _range(self) -> tuple[Array, Array]:
        """Lowest controls, and half of their ranges, (1, nu): NumPy is faster with equal shapes."""
        low, high = self.model.control_bounds
        return low[None], 0.5 * (high - low)[None]

    def observe(self, state: Array, context: Array) -> Array:
        """Copy of the model's entries of the state."""
        return state[:, : self.model.layout.nx].copy()

    @property
    def disturbance_scale(self) -> Array:
        """Zeros (n,): nothing is kicked."""
        return np.zeros(self.model.layout.n)

    def option_constants(self, options: Mapping[str, Any]) -> Mapping[str, float]:
        """No parameters."""
        return {}

    @abstractmethod
    def reset(self, start: Start) -> tuple[Array, Array]:
        """See `Task`."""

    def update(self, context: Array, state: Array) -> Array:
        """The context, unchanged."""
        return context

    def terminated(self, state: Array, context: Array) -> BoolArray:
        """Never: all False, (B,)."""
        return np.zeros(len(state), dtype=np.bool_)

    def measure(self, state: Array, context: Array) -> dict[str, Array]:
        """No further numbers."""
        return {}

    def draw_hints(self, context: Array) -> dict[str, Array]:
        """No hints."""
        return {}


class GoalTask(BaseTask):
    """A task that succeeds, and ends, once a column of its context is 1."""

    done_column: ClassVar[int]

    def terminated(self, state: Array, context: Array) -> BoolArray:
        """Whether the task has succeeded."""
        return self.success(state, context)

    def success(self, state: Array, context: Array) -> BoolArray:
        """See `success_definition`."""
        return context[:, self.done_column].astype(np.bool_)


def check_options(task: Task, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options as a dictionary.

    Raises:
        OptionError: No mapping, an unknown option, or an integer beyond `LARGEST`.
    """
    given, known = options_of(options), (*SHARED_OPTIONS, *task.option_names)
    for name, value in given.items():
        if name not in known:
            raise OptionError(f"unknown option {name!r}; allowed are {', '.join(known)}")
        if isinstance(value, int) and abs(value) > LARGEST:
            raise OptionError(f"option {name!r} is {shown(value)}, which is too large to compute with")
    return given


def options_of(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy of the options as a dictionary.

    Raises:
        OptionError: No mapping.
    """
    if options is not None and not isinstance(options, Mapping):
        raise OptionError(f"options is {shown(options)}, expected a mapping of names to values")
    return dict(options or {})


def check_time(keywords: Mapping[str, Any], period: float, steps: int | None) -> None:
    """Refuse keywords that need more time than an episode of `steps` control steps has; None: it has no end.

    Raises:
        OptionError: One of `LASTING` is longer.
    """
    for name in LASTING:
        if steps and keywords.get(name, 0.0) > steps * period + 1e-9:
            raise OptionError(
                f"{name} is {keywords[name]:g} s, but an episode has {steps} control steps of {period:g} s, "
                f"{steps * period:g} s: take a shorter time, or give more max_episode_steps"
            )


EXTRAS = {
    "mujoco": "mujoco", "casadi": "sysid", "torch": "learn", "stable_baselines3": "learn", "matplotlib": "report",
    "elastica": "elastica", "pinocchio": "pinocchio",
}  # fmt: skip
"""Package -> our extra that installs it."""


def load(path: str) -> Any:
    """Load the object that "package.module:name" names; errors from importing the module pass unchanged.

    Raises:
        OptionError: No such module or name.
        MissingDependencyError: It needs a package of one of our extras that is not installed.
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
            raise MissingDependencyError.of(f"{path} needs {missing}", EXTRAS[missing]) from error
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module exists, but one of its imports does not
        raise OptionError(f"{expected}: {error}") from error
    try:
        return getattr(found, name)
    except AttributeError as error:
        raise OptionError(f"{expected}: {error}") from error
