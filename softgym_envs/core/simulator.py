"""The Simulator protocol: what every simulator guarantees.

Legend: B batch, T horizon (control steps), nx state, n tangent, nu control, np parameters. Batch axis first, always;
float64, SI, rad. One control step holds the control for `substeps` physics steps of `dt` seconds.

Promises, tested in tests/integration/test_contract.py for every simulator:

1. *Pure*: arguments are not written to; the same arguments give the same numbers, bit for bit.
2. *Complete state*: a state is all there is; restoring it reproduces the future bit for bit.
3. *Rows are independent*: row i of a batch equals a batch of that row alone, bit for bit.
4. *Failure is a status*, never an exception inside a batch: a failed row keeps its last good state.
5. `rollout` equals repeated `step`.

Optional capabilities are protocols of their own, checked by isinstance: `Differentiable`, `HasStabilityLimit`, `Residual`,
`Symbolic`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from math import isfinite
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .errors import OptionError, ShapeError, shown
from .parameters import Option, Parameters

if TYPE_CHECKING:
    from .complementarity import ComplementarityForm

Array = NDArray[np.float64]
IntArray = NDArray[np.int32]
Side = Callable[[int], Array]
"""Lower (0) or upper (1) end of a central difference."""


class Status(IntEnum):
    """Outcome of a row; each message says what to do."""

    OK = 0
    DIVERGED = 1  # not finite, or faster than the simulator's speed limit: use smaller dt, damping or controls
    UNSOLVED = 2  # no contact forces were found

    @property
    def message(self) -> str:
        """One sentence for people."""
        return (
            "ok",
            "the simulation diverged, or went beyond its speed limit: use a smaller dt, less damping or smaller controls",
            "the contact forces could not be computed: use a smaller dt, or masses and geometry of similar size",
        )[self]


class Linearization(NamedTuple):
    """dx' = A dx + B du + C dp in tangent coordinates, for one control step."""

    A: Array
    """(B, n, n)"""
    B: Array
    """(B, n, nu)"""
    C: Array
    """(B, n, np)"""


class Gradient(NamedTuple):
    """A rollout, and the pull-back of a cotangent of its states; NaN in a row that failed."""

    states: Array
    """(B, T+1, nx)"""
    status: IntArray
    """(B,)"""
    state: Array
    """(B, nx) with respect to the initial state"""
    controls: Array
    """(B, T, nu)"""
    parameter_values: Array
    """(B, P)"""


@runtime_checkable
class Simulator(Protocol):
    """See the module docstring."""

    @property
    def nx(self) -> int:
        """Length of a state."""

    @property
    def n(self) -> int:
        """Dimension of the tangent space at a state."""

    @property
    def nu(self) -> int:
        """Number of controls."""

    @property
    def dt(self) -> float:
        """Physics step [s]."""

    @property
    def control_bounds(self) -> tuple[Array, Array]:
        """Lowest and highest control, each (nu,)."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """One name per entry of the state."""

    @property
    def state_units(self) -> tuple[str, ...]:
        """One SI unit per entry of the state."""

    @property
    def control_names(self) -> tuple[str, ...]:
        """One name per control."""

    @property
    def control_units(self) -> tuple[str, ...]:
        """One SI unit per control."""

    @property
    def options(self) -> Mapping[str, Option]:
        """Structural choices that identified parameters belong to; written with them."""

    @property
    def default_parameters(self) -> Parameters:
        """Parameters before identification."""

    def initial_state(self, batch: int = 1) -> Array:
        """The rest state, (B, nx)."""

    def step(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """One control step: (B, nx), (B, nu) -> next state (B, nx), status (B,)."""

    def rollout(
        self, state: Array, controls: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """T control steps: (B, nx), (B, T, nu) -> states (B, T+1, nx), status (B,)."""

    def retract(self, state: Array, dx: Array) -> Array:
        """Move a state by a tangent vector: (..., nx), (..., n) -> (..., nx)."""

    def difference(self, a: Array, b: Array) -> Array:
        """Tangent vector dx with retract(b, dx) = a: (..., nx) twice -> (..., n)."""

    def linearize(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Linearization:
        """Derivatives of one control step at (B, nx), (B, nu)."""


@runtime_checkable
class Differentiable(Simulator, Protocol):
    """A simulator with derivatives of its own."""

    @property
    def exact(self) -> bool:
        """Whether `linearize` and `vjp` are exact, to rounding."""

    def vjp(
        self, state: Array, controls: Array, cotangent: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Gradient:
        """Rollout, and the gradient of sum(cotangent * states) with respect to state, controls and parameters.

        Args:
            state: (B, nx).
            controls: (B, T, nu).
            cotangent: (B, T+1, nx).
            parameters: Parameters.
            substeps: Physics steps per control step.
        """


@runtime_checkable
class Residual(Simulator, Protocol):
    """A simulator with a learned correction; a frozen dataclass, so that `dataclasses.replace` changes the weights."""

    @property
    def residual(self) -> tuple[float, ...]:
        """W weights; () for none."""

    def residual_vjp(
        self, state: Array, controls: Array, cotangent: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray, Array]:
        """States (B, T+1, nx), status (B,), and every row's gradient (B, W) of sum(cotangent * states) along the weights."""


@runtime_checkable
class HasWarnings(Simulator, Protocol):
    """A simulator that knows of parameters which are allowed, and under which it does what no robot does."""

    def warning(self, parameters: Parameters) -> str:
        """What these parameters do, and how to avoid it, in a sentence; "" where nothing is to be said."""


@runtime_checkable
class HasStabilityLimit(Simulator, Protocol):
    """A simulator whose steps are stable only up to some values of parameters: beyond these, it diverges."""

    def stability_limits(self, parameters: Parameters) -> dict[str, float]:
        """Parameter -> largest value at which steps of `dt` are stable, given the others (one set of parameters, no batch)."""


@runtime_checkable
class Symbolic(Simulator, Protocol):
    """A simulator with a second formulation of its physics step, in CasADi."""

    def symbolic_step(self) -> ComplementarityForm:
        """Equations of one physics step of `dt`, and complementarity pairs if it has any; imports CasADi.

        Raises:
            OptionError: The second formulation does not support the structure.
        """


def is_exact(simulator: Simulator) -> bool:
    """Whether the simulator's derivatives are exact, not differences."""
    return isinstance(simulator, Differentiable) and simulator.exact


def stable_bounds(simulator: Simulator, parameters: Parameters) -> dict[str, tuple[float, float]]:
    """Bounds of parameters whose largest stable value, given the others in `parameters`, lies within their bounds."""
    specs, most = parameters.specs(), simulator.stability_limits(parameters) if isinstance(simulator, HasStabilityLimit) else {}
    bounds = {name: specs[name].bounds for name in most}
    return {name: (low, most[name]) for name, (low, high) in bounds.items() if low < most[name] < high}


NO_NUMBERS = {"b": "booleans", "c": "complex numbers", "S": "text", "U": "text"}
"""Kinds of NumPy's types that do not count as numbers."""


def as_numbers(name: str, value: Any) -> Array:
    """`value` as a float64 array, without a copy where it is one.

    Tensors of torch without gradient are numbers; booleans, complex numbers and text are not.

    Raises:
        ShapeError: `value` does not hold numbers.
    """
    try:
        given = np.asarray(value)
        if given.dtype.kind in NO_NUMBERS:
            raise TypeError(f"it holds {NO_NUMBERS[given.dtype.kind]}")
        return given.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:  # RuntimeError: torch's, of a tensor with gradient
        raise ShapeError(f"{name} is not an array of numbers: {error}") from error


def check_array(name: str, value: Any, shape: tuple[int | None, ...], *, finite: bool = True) -> Array:
    """`value` as a contiguous float64 array of `shape` (None: any length).

    Raises:
        ShapeError: Other shape, or NaN or infinity while `finite` is True.
    """
    array = np.ascontiguousarray(as_numbers(name, value))
    if array.ndim != len(shape) or array.shape != tuple(
        [a if s is None else s for a, s in zip(array.shape, shape, strict=True)]
    ):
        sizes = ["any" if s is None else str(s) for s in shape]
        raise ShapeError(f"{name} has shape {array.shape}, expected ({', '.join(sizes)}{',' * (len(sizes) == 1)})")
    # A finite sum of squares proves it at a third of the time; it may overflow.
    if finite and not isfinite(np.vdot(array, array)) and not np.isfinite(array).all():
        raise ShapeError(f"{name} holds NaN or infinity at index {tuple(int(i[0]) for i in np.nonzero(~np.isfinite(array)))}")
    return array


def check_place(name: str, value: Any, shape: tuple[int, ...], farthest: float) -> Array:
    """`value` as positions of this shape [m], with coordinates within `farthest`.

    Raises:
        ShapeError: Other shape, or NaN or infinity.
        OptionError: A coordinate is beyond `farthest`.
    """
    found = check_array(name, value, shape)
    if np.abs(found).max() > farthest:
        raise OptionError(f"{name} is {shown(value)}, allowed are coordinates within {farthest:g} m")
    return found


MAX_DT = 1.0
"""Longest physics step [s] that a user may ask for."""


def check_number(
    name: str,
    value: Any,
    *,
    low: float = -np.inf,
    high: float = np.inf,
    positive: bool = False,
    whole: bool = False,
    unit: str = "",
) -> float:
    """`value`, a finite number (Python's or NumPy's) with low <= value <= high, as a float.

    Args:
        name: Name of the number, for the message.
        value: Anything.
        low: Smallest value allowed.
        high: Largest value allowed.
        positive: Whether it must be > 0.
        whole: Whether it must be an integer.
        unit: Unit, for the message.

    Raises:
        OptionError: It is no such number.
    """
    if isinstance(value, Integral if whole else Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:  # an integer of Python beyond all floats
            number = np.inf
        if isfinite(number) and low <= number <= high and (number > 0 or not positive):
            return number
    limits = [" > 0"] if positive else [f" >= {low:g}"] if isfinite(low) else []
    limits += [f" <= {high:g}"] if isfinite(high) else []
    allowed = f" in [{low:g}, {high:g}]" if isfinite(low) and isfinite(high) and not positive else " and".join(limits)
    kind = "a whole number" if whole else "a number"
    raise OptionError(f"{name} is {shown(value)}, expected {kind}{f' [{unit}]' if unit else ''}{allowed}")


def check_choice(name: str, value: Any, allowed: Iterable[str]) -> str:
    """`value`, one of the names allowed.

    Raises:
        OptionError: It is none of them.
    """
    if not (isinstance(value, str) and value in allowed):
        raise OptionError(f"{name} is {shown(value)}, allowed are {', '.join(allowed)}")
    return value


def check_flag(name: str, value: Any) -> bool:
    """`value`, True or False (Python's or NumPy's).

    Raises:
        OptionError: It is neither.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise OptionError(f"{name} is {shown(value)}, expected True or False")
    return bool(value)


def finite_differences(
    simulator: Simulator,
    state: Array,
    control: Array,
    parameters: Parameters | None = None,
    *,
    substeps: int = 1,
    epsilon: float = 1e-6,
) -> Linearization:
    """Central differences of one control step on the manifold, as one batched call per argument.

    Checks every exact `linearize`, and serves as `linearize` of simulators without one. Parameters change by `epsilon` times
    the larger of their value and 1e-3 of their range, and stay inside the bounds.
    """
    parameters = parameters or simulator.default_parameters
    rows, n, nu = state.shape[0], simulator.n, simulator.nu
    vectors = parameters.to_matrix(rows)
    specs = list(parameters.specs().values())
    bounds = np.array([spec.bounds for spec in specs]).reshape(-1, 2)
    size = np.maximum(np.abs(vectors), 1e-3 * (bounds[:, 1] - bounds[:, 0]))
    upper = np.minimum(vectors + epsilon * size, bounds[:, 1])
    lower = np.maximum(vectors - epsilon * size, bounds[:, 0])

    def columns(count: int, states: Side, controls: Side, parameter_values: Side, widths: Array) -> Array:
        """Derivative of the step with respect to `count` arguments, (B, n, count)."""
        if count == 0:
            return np.zeros((rows, n, 0))
        ends = []
        for side in (0, 1):
            x, u, p = states(side), controls(side), parameter_values(side)
            flat = type(parameters).from_vector(p.reshape(rows * count, -1))
            y, _ = simulator.step(x.reshape(rows * count, -1), u.reshape(rows * count, -1), flat, substeps=substeps)
            ends.append(y.reshape(rows, count, -1))
        return np.swapaxes(simulator.difference(ends[1], ends[0]) / widths[..., None], 1, 2)

    def held(values: Array, count: int) -> Side:
        return lambda side: np.repeat(values[:, None], count, axis=1)

    def moved_state(side: int) -> Array:
        return simulator.retract(held(state, n)(side), np.broadcast_to(signs[side] * np.eye(n), (rows, n, n)))

    def moved_control(side: int) -> Array:
        return held(control, nu)(side) + signs[side] * np.eye(nu)

    def moved_constants(side: int) -> Array:
        p, index = held(vectors, count)(side), np.arange(count)
        p[:, index, index] = (lower, upper)[side]
        return p

    signs, count = (-epsilon, epsilon), vectors.shape[1]
    A = columns(n, moved_state, held(control, n), held(vectors, n), np.full((rows, n), 2.0 * epsilon))
    B = columns(nu, held(state, nu), moved_control, held(vectors, nu), np.full((rows, nu), 2.0 * epsilon))
    C = columns(count, held(state, count), held(control, count), moved_constants, upper - lower)
    return Linearization(A, B, C)
