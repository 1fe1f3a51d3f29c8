"""Base classes of simulators: names, sizes, checks, parameters, pickling, `step` and `rollout`, derivatives.

A system's simulator is a frozen dataclass with the fields `model` and `dt`, derived from the base of its engine
(`WarpSimulator`, `NumbaSimulator`, `MujocoSimulator`); the model defines states and controls (`RobotModel`), the system writes
the kernels.

Legend: B batch, T horizon, nx state, n tangent, nu control, P parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .contract import Result, call
from .errors import OptionError, ParameterError
from .layout import Field, StateLayout
from .parameters import Option, Parameters
from .simulator import (
    Array,
    Gradient,
    IntArray,
    Linearization,
    Simulator,
    Status,
    check_array,
    check_number,
    finite_differences,
)

SLACK = 0.02
"""States may exceed a range by this share of its larger end: the limits of MuJoCo models are soft."""
MAX_SUBSTEPS = 1_000_000
"""Largest number of physics steps per control step: a kernel cannot be interrupted."""


class RobotModel(Protocol):
    """Interface of a model that a simulator needs."""

    @property
    def layout(self) -> StateLayout:
        """Layout of a state."""

    @property
    def control_names(self) -> tuple[str, ...]:
        """Names of the nu controls."""

    @property
    def control_units(self) -> tuple[str, ...]:
        """SI units of the nu controls."""

    @property
    def control_bounds(self) -> tuple[Array, Array]:
        """Lowest and highest control, each (nu,)."""

    def rest_state(self) -> Array:
        """State of the robot at rest, (nx,)."""


@runtime_checkable
class Bounded(Protocol):
    """A model whose states have ranges; bounds of other entries are infinite."""

    @property
    def state_bounds(self) -> tuple[Array, Array]:
        """Lowest and highest state that the robot can reach, each (nx,)."""


def layout_of(simulator: Simulator) -> StateLayout | None:
    """Layout of a simulator's state; None for a user's, which need not derive from `BaseSimulator`."""
    return simulator.layout if isinstance(simulator, BaseSimulator) else None


def model_width(simulator: Simulator) -> int:
    """Length of the model's state, with which those of the simulator begin; of a user's simulator, the whole."""
    return int(simulator.model.layout.nx) if isinstance(simulator, BaseSimulator) else simulator.nx


def embedded(simulator: Simulator, state: Array) -> Array:
    """States (..., nx) from those of the model, at rest in further entries; whole states and a user's as they are."""
    if not isinstance(simulator, BaseSimulator) or np.shape(state)[-1:] != (model_width(simulator),):
        return state
    return simulator.embed(np.asarray(state, dtype=np.float64))


def check_state(name: str, state: Array, simulator: Simulator) -> Array:
    """Check states (B, nx) of a simulator; quaternions of nearly unit length are normalised.

    Raises:
        ShapeError: A quaternion is far from unit length.
        OptionError: An entry is out of the model's range (`Bounded`).
    """
    layout, model = layout_of(simulator), getattr(simulator, "model", None)
    if layout is None:
        return state
    state = layout.unit(name, state)
    if isinstance(model, Bounded):
        low, high = model.state_bounds
        largest = np.maximum(np.abs(low), np.abs(high))
        slack = np.where(np.isfinite(largest), SLACK * largest, 0.0)
        seen = state[:, : len(low)]
        wrong = np.argwhere((seen < low - slack) | (seen > high + slack))
        if len(wrong):
            row, k = wrong[0]
            what = f"{simulator.state_names[k]} = {seen[row, k]:.6g} {simulator.state_units[k]}"
            raise OptionError(f"{name}: {what}, allowed is [{low[k]:g}, {high[k]:g}]")
    return state


@dataclass(frozen=True, eq=False)
class PlainStructure:
    """A minimal `RobotModel`: layout, controls and a rest state."""

    layout: StateLayout
    control_names: tuple[str, ...]
    control_units: tuple[str, ...]
    control_bounds: tuple[Array, Array]
    """Lowest and highest control, each (nu,)."""
    rest: Array
    """State at rest, (nx,)."""

    def rest_state(self) -> Array:
        """See `RobotModel`."""
        return self.rest


class BaseSimulator(ABC):
    """A `core.simulator.Simulator` of a model; a subclass is a frozen dataclass with the fields `model` and `dt`.

    Abstract are `_step` and `_rollout`. Derive from `SteppedSimulator` or `RolledSimulator`, which implement `_rollout` by
    `_step`, or `_step` by `_rollout`.

    Raises:
        OptionError: dt is not positive.
    """

    system: ClassVar[str]
    """Name of the system."""
    option_names: ClassVar[tuple[str, ...]] = ()
    """Fields that identified parameters belong to; see `options`."""
    extra_fields: ClassVar[tuple[Field, ...]] = ()
    """Entries of the state beyond the model's; `extra_rest` at rest."""

    model: Any
    dt: float

    def __post_init__(self) -> None:
        check_number("dt", self.dt, positive=True, unit="s")

    @property
    def parameters_class(self) -> type[Parameters]:
        """Class of the parameters; the model's, if a subclass names none."""
        found: type[Parameters] = self.model.parameters_class
        return found

    @abstractmethod
    def _step(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        """`step` with checked arguments; parameters (B, P)."""

    @abstractmethod
    def _rollout(self, state: Array, controls: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        """`rollout` with checked arguments; parameters (B, P)."""

    def _linearize(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> Linearization:
        """`linearize` with checked arguments, parameters (B, P): central differences, if a subclass has nothing better.

        Not exact where a contact opens; half the derivative where a control is clamped.
        """
        return finite_differences(self, state, control, self.parameters_class.from_vector(parameter_values), substeps=substeps)

    def __getstate__(self) -> dict[str, Any]:
        """Fields only: engines hold buffers and threads, and are made again when needed."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    # --- names and sizes -------------------------------------------------------------------------------------------

    @cached_property
    def layout(self) -> StateLayout:
        """Layout of a state."""
        layout: StateLayout = self.model.layout
        more = (*self.extra_fields, *self.memory_fields)
        return StateLayout(*layout.fields, *more) if more else layout

    @cached_property
    def nx(self) -> int:
        """Length of a state."""
        return self.layout.nx

    @cached_property
    def n(self) -> int:
        """Dimension of the tangent space."""
        return self.layout.n

    @cached_property
    def nu(self) -> int:
        """Number of controls."""
        return len(self.control_names)

    @cached_property
    def state_names(self) -> tuple[str, ...]:
        """One name per entry of the state."""
        return self.layout.names

    @cached_property
    def state_units(self) -> tuple[str, ...]:
        """One SI unit per entry of the state."""
        return self.layout.units

    @cached_property
    def control_names(self) -> tuple[str, ...]:
        """One name per control."""
        names: tuple[str, ...] = self.model.control_names
        return names

    @cached_property
    def control_units(self) -> tuple[str, ...]:
        """One SI unit per control."""
        units: tuple[str, ...] = self.model.control_units
        return units

    @cached_property
    def control_bounds(self) -> tuple[Array, Array]:
        """Lowest and highest control, each (nu,)."""
        bounds: tuple[Array, Array] = self.model.control_bounds
        return bounds

    @cached_property
    def default_parameters(self) -> Parameters:
        """Parameters before identification: the model's, if it has any."""
        own = getattr(self.model, "parameters", None)
        return own if isinstance(own, self.parameters_class) else self.parameters_class()

    @property
    def options(self) -> dict[str, Option]:
        """Structural choices that identified parameters belong to: saved with them, applied by `gym.make(..., params=file)`."""
        values = {name: getattr(self, name) for name in self.option_names}
        return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items() if v not in ((), False)}

    # --- states ----------------------------------------------------------------------------------------------------

    @property
    def extra_rest(self) -> Array:
        """Values of `extra_fields` at rest, (numbers,)."""
        return np.zeros(0)

    @property
    def memory_fields(self) -> tuple[Field, ...]:
        """Last entries of the state, zero at rest, e.g. delayed commands."""
        return ()

    def embed(self, state: Array) -> Array:
        """Extend states of the model (..., its nx) to states of this simulator (..., nx): further entries are at rest."""
        if not (self.extra_fields or self.memory_fields):
            return state
        rest = np.zeros(self.nx - state.shape[-1])
        rest[: len(self.extra_rest)] = self.extra_rest
        return np.concatenate([state, np.broadcast_to(rest, (*state.shape[:-1], len(rest)))], axis=-1)

    def initial_state(self, batch: int = 1) -> Array:
        """The model's rest state, (B, nx)."""
        rest = call(self.model, "rest_state", (), Result((self.model.layout.nx,), names=self.model.layout.names))
        return np.tile(self.embed(rest), (batch, 1))

    def retract(self, state: Array, dx: Array) -> Array:
        """See `Simulator.retract`."""
        return self.layout.retract(state, dx)

    def difference(self, a: Array, b: Array) -> Array:
        """See `Simulator.difference`."""
        return self.layout.difference(a, b)

    # --- steps -----------------------------------------------------------------------------------------------------

    def step(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """One control step; see `Simulator.step`.

        Raises:
            ShapeError: `state` or `control` has another shape, or holds NaN or infinity.
            OptionError: `substeps` is not a positive integer.
            ParameterError: Parameters of another simulator, or of another number of rows.
        """
        return self._first("_step", *self._checked("control", state, control, parameters, substeps), int(substeps))  # type: ignore[no-any-return]

    def advance(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        """`step` without checks: arguments must be contiguous and finite, parameters (B, P)."""
        return self._step(state, control, parameter_values, substeps)

    def rollout(
        self, state: Array, controls: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """T control steps; see `Simulator.rollout` and, for errors, `step`."""
        return self._first("_rollout", *self._checked("controls", state, controls, parameters, substeps), int(substeps))  # type: ignore[no-any-return]

    def linearize(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Linearization:
        """Derivatives of one control step; see `Simulator.linearize` and, for errors, `step`."""
        return self._first("_linearize", *self._checked("control", state, control, parameters, substeps), int(substeps))  # type: ignore[no-any-return]

    @cached_property
    def _tried(self) -> set[str]:
        """Methods whose first results were checked."""
        return set()

    def _first(self, name: str, *arguments: Any) -> Any:
        """Call `_step`, `_rollout` or `_linearize`; the first result of each is checked, see `contract.call`."""
        if name in self._tried:
            return getattr(self, name)(*arguments)
        (rows, nx), n, nu = arguments[0].shape, self.n, self.nu
        expected = {
            "_step": (Result((rows, nx), finite=False), Result((rows,), "i")),
            "_rollout": (Result((rows, arguments[1].shape[1] + 1, nx), finite=False), Result((rows,), "i")),
            "_linearize": (*(Result((rows, n, k), finite=False) for k in (n, nu, arguments[2].shape[1])),),
        }
        found = call(self, name, arguments, expected[name])
        self._tried.add(name)
        return found

    def parameter_values(self, parameters: Parameters | None, batch: int) -> Array:
        """Parameters of every row, (B, P).

        Raises:
            ParameterError: They are those of another simulator, or of another number of rows.
        """
        given = self.default_parameters if parameters is None else parameters
        if not isinstance(given, self.parameters_class):
            expected = self.parameters_class.__name__
            raise ParameterError(f"parameters are {type(given).__name__}, {type(self).__name__} takes {expected}")
        return given.to_matrix(batch)

    def _checked(
        self, name: str, state: Array, control: Array, parameters: Parameters | None, substeps: int
    ) -> tuple[Array, Array, Array]:
        """State (B, nx), "control" (B, nu) or "controls" (B, T, nu), parameters (B, P); a model's state is embedded."""
        if (self.extra_fields or self.memory_fields) and np.shape(state)[-1:] == (self.model.layout.nx,):
            state = self.embed(np.asarray(state, dtype=np.float64))
        state = check_array("state", state, (None, self.nx))
        shape = (len(state), self.nu) if name == "control" else (len(state), None, self.nu)
        control = check_array(name, control, shape)
        check_number("substeps", substeps, low=1, high=MAX_SUBSTEPS, whole=True)
        return state, control, self.parameter_values(parameters, len(state))


class SteppedSimulator(BaseSimulator):
    """A simulator whose engine makes one control step at a time; derivatives are finite differences."""

    def _rollout(self, state: Array, controls: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        def advance(rows: NDArray[np.intp], x: Array, u: Array) -> tuple[Array, IntArray]:
            return self._first("_step", x, u, parameter_values[rows], substeps)  # type: ignore[no-any-return]

        return repeat_steps(advance, state, controls)


class Engine(Protocol):
    """Batched control steps."""

    def rollout(self, state: Array, controls: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        """(B, nx), (B, T, nu), (B, P) -> states (B, T+1, nx), status (B,); a row that fails keeps its last good state."""


class RolledSimulator(BaseSimulator):
    """A simulator whose engine runs whole horizons."""

    @property
    @abstractmethod
    def engine(self) -> Engine:
        """Engine, made on first use."""

    @property
    def weights(self) -> tuple[float, ...]:
        """Structural numbers that the kernels read after the parameters."""
        return ()

    def _rollout(self, state: Array, controls: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        return self.engine.rollout(state, controls, self._columns(parameter_values), substeps)

    def _step(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        states, status = self._rollout(state, control[:, None], parameter_values, substeps)
        return np.ascontiguousarray(states[:, 1]), status

    def _columns(self, parameter_values: Array) -> Array:
        """Parameters (B, P) and the weights, (B, P + W)."""
        weights = self.weights
        return (
            np.concatenate([parameter_values, np.tile(weights, (len(parameter_values), 1))], axis=1)
            if weights
            else parameter_values
        )

    def _checked_cotangent(
        self, state: Array, controls: Array, cotangent: Array, parameters: Parameters | None, substeps: int
    ) -> tuple[Array, Array, Array, Array]:
        """Arguments of a pull-back: state, controls, parameters, cotangent (B, T+1, nx)."""
        state, controls, parameter_values = self._checked("controls", state, controls, parameters, substeps)
        shape = (len(state), controls.shape[1] + 1, self.nx)
        return state, controls, parameter_values, check_array("cotangent", cotangent, shape)


def repeat_steps(
    advance: Callable[[NDArray[np.intp], Array, Array], tuple[Array, IntArray]], state: Array, controls: Array
) -> tuple[Array, IntArray]:
    """T control steps, one after the other; a row that fails keeps its last good state and is not advanced again.

    Args:
        advance: (rows (k,), state (k, nx), control (k, nu)) -> next state (k, nx), status (k,).
        state: (B, nx).
        controls: (B, T, nu).

    Returns:
        States (B, T+1, nx), status (B,).
    """
    states = np.repeat(state[:, None], controls.shape[1] + 1, axis=1)
    status = np.full(len(state), Status.OK, dtype=np.int32)
    every = np.arange(len(state))
    for t in range(controls.shape[1]):
        if len(every) and not status.any():  # all rows: no indexing needed
            states[:, t + 1], status[:] = advance(every, states[:, t].copy(), controls[:, t].copy())
            continue
        alive = np.flatnonzero(status == Status.OK)
        states[:, t + 1] = states[:, t]
        if len(alive):
            states[alive, t + 1], status[alive] = advance(alive, states[alive, t], controls[alive, t])
    return states, status


def pull_back(
    simulator: Simulator,
    layout: StateLayout,
    state: Array,
    controls: Array,
    cotangent: Array,
    parameters: Parameters,
    substeps: int,
) -> Gradient:
    """`Differentiable.vjp` by the chain rule over the control steps, from `linearize` at all of them in one batch."""
    states, status = simulator.rollout(state, controls, parameters, substeps=substeps)
    rows, horizon, nu = controls.shape
    flat = states[:, :-1].reshape(rows * horizon, -1)
    repeated = type(parameters).from_vector(np.repeat(parameters.to_matrix(rows), horizon, axis=0))
    found = simulator.linearize(flat, controls.reshape(rows * horizon, nu), repeated, substeps=substeps)
    A, B, C = (part.reshape(rows, horizon, *part.shape[1:]) for part in found)
    into = layout.retract_jacobian(states.reshape(rows * (horizon + 1), -1)).reshape(rows, horizon + 1, layout.nx, layout.n)
    pulled = np.einsum("btxn,btx->btn", into, cotangent)
    change, du, dp = pulled[:, -1], np.empty_like(controls), np.zeros((rows, C.shape[-1]))
    for t in reversed(range(horizon)):
        du[:, t] = np.einsum("bnu,bn->bu", B[:, t], change)
        dp += np.einsum("bnp,bn->bp", C[:, t], change)
        change = pulled[:, t] + np.einsum("bnm,bn->bm", A[:, t], change)
    dx = np.einsum("bnx,bn->bx", layout.difference_jacobian(state), change)
    for gradient in (dx, du, dp):
        gradient[status != Status.OK] = np.nan
    return Gradient(states, status, dx, du, dp)
