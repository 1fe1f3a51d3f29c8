"""B episodes side by side: what the single environment (B = 1) and the vector environment share, line by line.

Every number of row i comes from row i of the arguments and from that row's own generator, by elementwise operations, so a
single environment equals its row of a batch bit for bit. This is the one place where state changes in time.

Order of a row's random numbers: `reset` draws parameters, then the task's first state, then sensor noise; a step draws the
disturbance, then sensor noise.

Legend: B batch, nx state, nc context, nu control, na action, no observation, P parameters.
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.base import BaseSimulator, check_state, embedded, model_width
from ..core.contract import CheckedTask, Result, call
from ..core.errors import OptionError, ShapeError, SimulationWarning, shown
from ..core.parameters import Parameters
from ..core.simulator import Array, IntArray, Simulator, Status, as_numbers, check_array
from ..core.task import BoolArray, RemembersControls, Start, Task, check_options
from .checks import bound, mark_failed
from .settings import Settings, distribution, nominal_constants, warn_of_step, whole_steps

Observation = NDArray[np.float32]

_ALL = slice(None)

MOST_SUBSTEPS = 10_000
"""Physics steps per action."""
MAX_START_ENTRY = 1e9
"""Largest entry of a state [m, rad, m/s, ...] from which an episode may begin."""
FAILURE_PENALTY = 100.0
"""A row whose simulation fails gets this reward with a minus, as its only non-zero term."""


@dataclass(eq=False)
class Outcome:
    """Result of one control step of B rows."""

    observation: Observation
    """(B, no), fresh"""
    reward: Array
    """(B,): the sum of the terms"""
    terms: dict[str, Array]
    """Name -> (B,)"""
    terminated: BoolArray
    """(B,)"""
    success: BoolArray
    """(B,)"""
    failed: BoolArray
    """(B,): the simulation broke down; the row keeps its last good state and observation"""


class Episodes:
    """See the module docstring.

    Args:
        task: The task.
        simulator: The simulator under the task.
        rngs: One generator per row.
        settings: All other settings.

    Raises:
        OptionError: The control period is no multiple of the simulator's dt.
        ParameterError: `params` or `randomize` do not fit the simulator.
    """

    def __init__(self, task: Task, simulator: Simulator, rngs: Sequence[np.random.Generator], settings: Settings) -> None:
        self.task = task
        self.simulator = simulator
        self.rngs = list(rngs)
        self.settings = settings
        self.substeps = whole_steps("control_period", settings.control_period, simulator.dt)
        if self.substeps > MOST_SUBSTEPS:
            raise OptionError(
                f"control_period is {settings.control_period:g} s: {self.substeps} physics steps of dt = {simulator.dt:g} s, "
                f"at most {MOST_SUBSTEPS} are allowed, since nothing can interrupt them"
            )
        self.nominal = _with(nominal_constants(simulator, settings.params, len(rngs)), task.parameter_values, settings.params)
        self.distribution = distribution(self.nominal, settings.randomize)
        warn_of_step(simulator, self.nominal, self.distribution)
        entries, na = task.entries, len(task.action_names)
        known = settings.action_memory * na  # entries of the last actions
        self.low = np.array([e.low for e in entries] + known * [-1.0], dtype=np.float32).astype(np.float64)
        self.high = np.array([e.high for e in entries] + known * [1.0], dtype=np.float32).astype(np.float64)
        self._noise = settings.sensor_noise * np.array([e.scale for e in entries] + known * [0.0])
        self._seen = model_width(simulator)
        self._all_seen = self._seen == simulator.nx
        beyond = simulator.n - len(task.disturbance_scale)
        self._kick = settings.disturbance * np.pad(task.disturbance_scale, (0, beyond))
        named = enumerate(zip(simulator.state_names, simulator.state_units, strict=False))
        self._speeds = {k: f"{name} = {{:.3g}} {unit}" for k, (name, unit) in named if unit in ("m/s", "rad/s")}
        self._rows, self._na = len(rngs), na
        self.state = np.zeros((self._rows, simulator.nx))
        self.context = np.zeros((self._rows, len(task.context_names)))
        self.queue = np.zeros((self._rows, settings.action_delay, na))
        self.given = np.zeros((self._rows, settings.action_memory, na))
        """Last actions, (B, action_memory, na), oldest first."""
        self._base = self.nominal.to_matrix(self._rows)
        self.parameter_values = self._base.copy()
        self.observed = np.zeros((self._rows, len(self.low)))
        self._clock, self._since = 0, np.zeros(self._rows, dtype=np.int64)
        self.parameters = self.nominal
        self._checks_once = getattr(type(simulator), "step", None) is BaseSimulator.step
        self._checked = False
        self._remembers = isinstance(task, RemembersControls)
        self._task: Any = CheckedTask(task, simulator, self._seen)
        """The task, whose results are checked up to the end of the first step."""
        self.begun = False
        """Whether there has been a reset."""
        self._complained = False

    # --- reset -----------------------------------------------------------------------------------------------------

    def reset(self, rows: NDArray[np.intp], options: Mapping[str, Any] | None = None) -> Observation:
        """Begin new episodes in some rows (k,); -> their observations (k, no).

        Raises:
            OptionError: An option is unknown or not allowed, or no finite observation follows.
            ParameterError: The option "parameters" names an unknown parameter or a value out of bounds.
            ShapeError: The option "state" has the wrong shape, is not finite, or has a quaternion far from unit length.
        """
        given = check_options(self.task, options)
        state = self._given_state(given.pop("state", None), rows)
        parameter_values = self._draw_parameters(rows, given.pop("parameters", None), given)
        parameters = self._parameters_of(parameter_values, rows)

        def settle(state: Array, control: Array, seconds: float) -> Array:
            steps = whole_steps("settle time", seconds, self.simulator.dt)
            return self._visible(self.simulator.step(self._whole(state), control, parameters, substeps=steps)[0])

        fixed = {name: np.full(len(rows), value) for name, value in self.task.parameter_values.items()}
        table = {**fixed, **dict(zip(self.nominal.names(), parameter_values.T, strict=True))}
        shown = None if state is None else self._visible(state)
        task = self.task if options else self._task  # options may lead to anything
        first, context = task.reset(Start([self.rngs[row] for row in rows], given, table, settle, shown))
        first = self._whole(first) if state is None or self._all_seen else state
        clean = task.observe(self._visible(first), context)
        for what, values in (("observations", clean), ("a memory of the task", context)):
            if not np.isfinite(values).all():
                raise OptionError(f"these options lead to {what} that are not finite; is the state one that a robot can be in?")
        self.begun = True
        if not np.array_equal(self.parameter_values[rows], parameter_values):
            self.parameter_values[rows] = parameter_values
            self.parameters = self._parameters_of(self.parameter_values, np.arange(self._rows))
        self.state[rows], self.context[rows] = first, context
        self.queue[rows], self.given[rows] = 0.0, 0.0
        self._since[rows] = self._clock
        observed, observation = self._sense(self._with_given(clean, rows), rows)
        self.observed[rows] = observed
        return observation

    @functools.cached_property
    def term_names(self) -> tuple[str, ...]:
        """Names of the reward's terms."""
        terms = self._task.reward(self.seen, self.seen, np.zeros((self._rows, self._na)), self.context, self.context)
        return (*terms, "failure")

    @property
    def steps(self) -> NDArray[np.int64]:
        """Control steps since each row's last reset, (B,)."""
        return self._clock - self._since

    @steps.setter
    def steps(self, steps: NDArray[np.int64]) -> None:
        self._since = self._clock - steps

    @property
    def seen(self) -> Array:
        """Entries of the state that the task sees, (B, entries of the robot's model)."""
        return self._visible(self.state)

    def _visible(self, state: Array) -> Array:
        """Entries of states (..., nx) that the task sees: those of the robot's model, which come first."""
        return state if self._seen == state.shape[-1] else np.ascontiguousarray(state[..., : self._seen])

    def _whole(self, state: Array) -> Array:
        """Extend states of the robot's model to states of the world: further entries are at rest."""
        return state if self._all_seen else embedded(self.simulator, state)

    def _given_state(self, value: Any, rows: NDArray[np.intp]) -> Array | None:
        if value is None:
            return None
        array, nx = as_numbers("option 'state'", value), self.simulator.nx
        if array.shape not in ((nx,), (self._rows, nx)):
            each = "" if self._rows == 1 else f", or one for each of the {self._rows} rows"
            raise ShapeError(f"option 'state' has shape {array.shape}, expected ({nx},){each}")
        state = np.broadcast_to(check_array("option 'state'", array, array.shape), (self._rows, nx))[rows]
        far = np.argwhere(np.abs(state) > MAX_START_ENTRY)
        if len(far):
            row, k = far[0]
            entry = f"{self.simulator.state_names[k]} = {state[row, k]:g} {self.simulator.state_units[k]}"
            raise OptionError(f"option 'state': {entry}, allowed is at most {MAX_START_ENTRY:g} in size")
        return check_state("option 'state'", state, self.simulator)

    def _draw_parameters(self, rows: NDArray[np.intp], chosen: Any, options: Mapping[str, Any]) -> Array:
        """Parameters of new episodes, (k, P): nominal, then randomised, then as given by the options."""
        kind, parameter_values = self.nominal, self._base[rows]
        if self.distribution is not None:
            for k, row in enumerate(rows):
                base = kind if kind.batch is None else kind.row(int(row))
                for name, value in self.distribution.sample(self.rngs[row], base).items():
                    parameter_values[k, kind.index(name)] = value
        if not isinstance(chosen or {}, Mapping):
            raise OptionError(f"option 'parameters' is {shown(chosen)}, expected a mapping of names to numbers")
        for name, value in {**self.task.option_constants(options), **(chosen or {})}.items():
            place, values = kind.index(name), as_numbers(f"parameter {name!r}", value).ravel()
            if values.size not in (1, self._rows):
                each = "" if self._rows == 1 else f", or one for each of the {self._rows} rows"
                raise ShapeError(f"parameter {name!r} holds {values.size} numbers, expected one{each}")
            check_array(f"parameter {name!r}", values, values.shape)
            parameter_values[:, place] = np.broadcast_to(values, (self._rows,))[rows]
        return parameter_values

    def _parameters_of(self, parameter_values: Array, rows: NDArray[np.intp]) -> Parameters:
        """Parameters (k, P) of some rows: the nominal object if they equal it, since a simulator may cache by it.

        Raises:
            ParameterError: A value is out of its bounds.
        """
        if self.nominal.batch is None and np.array_equal(parameter_values, self._base[rows]):
            return self.nominal
        return type(self.nominal).from_vector(parameter_values)

    # --- step ------------------------------------------------------------------------------------------------------

    def step(self, action: Array, active: BoolArray | None = None) -> Outcome:
        """One control step of all rows.

        Args:
            action: (B, na), checked; see `checks.checked_action`.
            active: (B,): rows that draw random numbers (None: all); the others are about to be reset.
        """
        action = self.applied(action)
        task, state, context = self._task, self.state, self.context
        if self.settings.disturbance:
            state = self.simulator.retract(state, self._kick * self._normal(self.simulator.n, active))
        control = task.scale_action(action)
        next_state, status = self._move(state, control)
        failed = np.empty(self._rows, dtype=np.bool_)
        broken = mark_failed(status, next_state, failed)
        if broken:
            if not self._complained:
                self._complain(int(np.argmax(failed)), int(status[np.argmax(failed)]))
            next_state = np.where(failed[:, None], state, next_state)
        seen, next_seen = (state, next_state) if self._all_seen else (self._visible(state), self._visible(next_state))
        before = context
        context = task.update_after(context, control, next_seen) if self._remembers else task.update(context, next_seen)
        terms = task.reward(seen, next_seen, action, before, context)
        self.state, self.context = next_state, context
        self._clock += 1
        observed, observation = self._sense(self._with_given(task.observe(next_seen, context)), None, active)
        terminated, success = task.terminated(next_seen, context), task.success(next_seen, context)
        reward = functools.reduce(operator.add, terms.values())
        terms["failure"] = np.zeros(self._rows)
        if broken:
            self._contain(failed, before, observed, terms)
            observation = observed.astype(np.float32)
            reward = np.where(failed, -FAILURE_PENALTY, reward)
            terminated, success = terminated | failed, success & ~failed
        self.observed, self._task = observed, self.task
        return Outcome(observation, reward, terms, terminated, success, failed)

    def _move(self, state: Array, control: Array) -> tuple[Array, IntArray]:
        """One control step. Only the first one is checked: later states are the simulator's own, and actions are checked."""
        if self._checked:
            control = np.ascontiguousarray(control, dtype=np.float64)
            return self.simulator.advance(state, control, self.parameter_values, self.substeps)  # type: ignore[attr-defined,no-any-return]
        if self._task is self.task or self._checks_once:  # `BaseSimulator.step` checks its own first result
            found = self.simulator.step(state, control, self.parameters, substeps=self.substeps)
        else:
            expected = Result(state.shape, finite=False), Result((self._rows,), "i")
            found = call(self.simulator, "step", (state, control, self.parameters), expected, substeps=self.substeps)
        self._checked = self._checks_once
        return found

    def _complain(self, row: int, status: int) -> None:
        """Warn once why a simulation failed, and with which parameters: bounds allow more than usual steps can do."""
        self._complained = True
        specs = self.nominal.specs().values()
        changed = [
            f"{spec.name} = {value:.4g} (usually {spec.default:.4g})"
            for spec, value in zip(specs, self.parameter_values[row], strict=True)
            if abs(value - spec.default) > 1e-9 * abs(spec.default)
        ]
        silent = f"{type(self.simulator).__name__}.step returned a state that is not finite, with status 0"
        why = Status(status).message if status else silent
        step = self.settings.control_period / self.substeps
        told = ", ".join([f"dt is {step:g} s", *(changed or ["all parameters have their defaults"]), *self._fastest(row)])
        warnings.warn(f"row {row}: {why}; {told}", SimulationWarning, stacklevel=4)

    def _fastest(self, row: int) -> list[str]:
        """Text on the fastest entry of the last good state, if states have speeds."""
        if not self._speeds:
            return []
        k = max(self._speeds, key=lambda k: abs(self.state[row, k]))
        return [f"the fastest before was {self._speeds[k].format(self.state[row, k])}"]

    def applied(self, action: Array) -> Array:
        """The action that takes effect now, after the delay."""
        if self.settings.action_memory:
            self.given = np.concatenate([self.given[:, 1:], action[:, None]], axis=1)
        if not self.settings.action_delay:
            return action
        late = self.queue[:, 0].copy()
        self.queue = np.concatenate([self.queue[:, 1:], action[:, None]], axis=1)
        return late

    def _with_given(self, observed: Array, rows: NDArray[np.intp] | slice = _ALL) -> Array:
        """Append the last actions to the task's entries."""
        if not self.settings.action_memory:
            return observed
        return np.concatenate([observed, self.given[rows].reshape(len(observed), -1)], axis=1)

    def _sense(
        self, observed: Array, rows: NDArray[np.intp] | None, active: BoolArray | None = None
    ) -> tuple[Array, Observation]:
        """Add noise, then clip to the observation space; -> observations as float64 and as float32."""
        if self.settings.sensor_noise:
            observed = observed + self._noise * self._normal(len(self._noise), active, rows)
        shown = np.empty(observed.shape, dtype=np.float32)
        bound(observed, self.low, self.high, shown)
        return observed, shown

    def _normal(self, count: int, active: BoolArray | None, rows: NDArray[np.intp] | None = None) -> Array:
        """Standard normal numbers from every row's own generator, zero in rows that are not active."""
        chosen = range(self._rows) if rows is None else rows
        zeros = np.zeros(count)
        return np.array([self.rngs[r].standard_normal(count) if active is None or active[r] else zeros for r in chosen])

    def _contain(self, failed: BoolArray, context: Array, observed: Array, terms: dict[str, Array]) -> None:
        """A failed row keeps its last context and observation, and gets the penalty only. In place."""
        self.context = np.where(failed[:, None], context, self.context)
        observed[failed] = self.observed[failed]
        for name in terms:
            terms[name] = np.where(failed, -FAILURE_PENALTY if name == "failure" else 0.0, terms[name])

    # --- save and restore ------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Complete state of the episodes: arrays (B, ...), and "rng", a list of JSON-able generator states."""
        arrays = {name: getattr(self, name).copy() for name in _SAVED}
        return {**arrays, "rng": [rng.bit_generator.state for rng in self.rngs]}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from a `snapshot` of an equally built environment, bit for bit.

        Raises:
            ShapeError: An array has another shape, e.g. from another id or number of rows.
            OptionError: An entry is missing, or holds what no environment can reach.
            ParameterError: A parameter is out of its bounds.
        """
        for name in (*_SAVED, "rng"):
            if not isinstance(saved, Mapping) or name not in saved:
                raise OptionError(f"the saved state has no entry {name!r}; expected are {', '.join((*_SAVED, 'rng'))}")
        arrays = {name: check_array(f"saved {name!r}", saved[name], getattr(self, name).shape) for name in _SAVED}
        for name in ("queue", "given"):
            if (np.abs(arrays[name]) > 1.0).any():
                raise OptionError(f"saved {name!r} holds actions beyond [-1, 1]")
        if not ((arrays["steps"] >= 0) & (arrays["steps"] % 1 == 0)).all():
            raise OptionError("saved 'steps' holds other than whole numbers >= 0")
        parameters = self._parameters_of(arrays["parameter_values"], np.arange(self._rows))
        generators = self._checked_rngs(saved["rng"])
        arrays["state"] = check_state("saved 'state'", arrays["state"], self.simulator)
        for rng, state in zip(self.rngs, generators, strict=True):
            rng.bit_generator.state = state
        for name, array in arrays.items():
            setattr(self, name, array.astype(getattr(self, name).dtype))
        self.parameters = parameters
        self.begun = True

    def _checked_rngs(self, states: Any) -> list[Any]:
        """States of the generators, each tried on a copy."""
        if not isinstance(states, Sequence) or len(states) != self._rows:
            raise ShapeError(f"saved 'rng' is {shown(states)}, expected a list of {self._rows} states of generators")
        try:
            for rng, state in zip(self.rngs, states, strict=True):
                type(rng.bit_generator)(0).state = state
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise OptionError(f"saved 'rng' cannot be used: {error}") from error
        return list(states)


_SAVED = ("state", "context", "queue", "given", "parameter_values", "observed", "steps")


def _with(nominal: Parameters, parameter_values: Mapping[str, float], given: Any) -> Parameters:
    """Set the parameters that a task fixes, if this simulator has them and a mapping `given` does not name them."""
    own = given if isinstance(given, Mapping) else ()
    return nominal.replace(
        **{name: value for name, value in parameter_values.items() if name in nominal.names() and name not in own}
    )
