"""B episodes side by side: what the single environment (B = 1) and the vector environment share, line by line.

Every number of row i comes from row i of the arguments and from that row's own generator, by elementwise operations, so a
single environment equals its row of a batch bit for bit. This is the one place where state changes in time.

Order of a row's random numbers: `reset` draws parameters, latencies, gains and biases of sensors (where they are intervals),
then the task's first state, then sensor noise; a step draws the disturbance, then the noise of each observation made in it.

An observation of an instant within a control step is that of the state there and of the task's memory as this state updates
it. Rows whose delayed commands take over at other instants are stepped in groups, row by row as they would be alone.

Legend: B batch, nx state, nc context, nu control, na action, no observation, P parameters, D pending observations, K sensors.
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
from .interfacing import SensorModel, Timing, groups_of, no_events
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
        OptionError: The control period is no multiple of the simulator's dt, a latency is too long, or a sensor is unknown.
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
        self.distribution = distribution(self.nominal, settings)
        warn_of_step(simulator, self.nominal, self.distribution)
        entries, na = task.entries, len(task.action_names)
        known = settings.action_memory * na  # entries of the last actions
        self.low = np.array([e.low for e in entries] + known * [-1.0], dtype=np.float32).astype(np.float64)
        self.high = np.array([e.high for e in entries] + known * [1.0], dtype=np.float32).astype(np.float64)
        self._seen = model_width(simulator)
        self.timing = Timing(settings, simulator.dt, self.substeps)
        self._sensing = SensorModel(settings, task, simulator, self._seen, known)
        self._all_seen = self._seen == simulator.nx
        beyond = simulator.n - len(task.disturbance_scale)
        self.kick = settings.disturbance * np.pad(task.disturbance_scale, (0, beyond))
        """Standard deviations of the disturbance before a control step, (n,)."""
        named = enumerate(zip(simulator.state_names, simulator.state_units, strict=False))
        self._speeds = {k: f"{name} = {{:.3g}} {unit}" for k, (name, unit) in named if unit in ("m/s", "rad/s")}
        self._rows, self._na = len(rngs), na
        self.state = np.zeros((self._rows, simulator.nx))
        self.context = np.zeros((self._rows, len(task.context_names)))
        self.queue = np.zeros((self._rows, self.timing.pending_actions, na))
        """Actions that wait, oldest first."""
        self.pending = np.zeros((self._rows, self.timing.pending_observations, len(entries)))
        """Observations of the next control steps, as far as they are made; (B, D, task's entries)."""
        self.late = np.zeros((self._rows, 2), dtype=np.int64)
        """Latency of actions and of observations in physics steps."""
        self.sensors = np.zeros((self._rows, *self._sensing.low.shape))
        """Gain and bias of sensors, (B, 2, K)."""
        self.given = np.zeros((self._rows, settings.action_memory, na))
        """Last actions, (B, action_memory, na), oldest first."""
        self._base = self.nominal.to_matrix(self._rows)
        self.parameter_values = self._base.copy()
        self.observed = np.zeros((self._rows, len(self.low)))
        self.clean = np.zeros((self._rows, len(entries)))
        """First observations of the episodes, before the last actions are appended and bounds applied."""
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
        self._kept: dict[tuple[Any, ...], Array] = {}
        """Settled states of the starts that a task begins from again and again."""

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
        late = np.array([self.timing.draw(self.rngs[row]) for row in rows], dtype=np.int64)
        sensors = np.array([self._sensing.draw(self.rngs[row]) for row in rows])

        def settle(state: Array, control: Array, seconds: float, keep: bool = False) -> Array:
            if keep and parameters is self.nominal and self.nominal.batch is None:
                return self._recalled(state, control, seconds)
            return self._settled(state, control, seconds, parameters)

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
        self.late[rows], self.sensors[rows] = late, sensors
        self._since[rows] = self._clock
        if len(self._sensing.columns):
            clean = task.observe(self._measured(self._visible(first), rows), context)
        clean = self._calibrated(clean, rows)
        self.clean[rows], self.pending[rows] = clean, clean[:, None]
        observed, observation = self._shown(clean, rows)
        self.observed[rows] = observed
        return observation

    def _settled(self, state: Array, control: Array, seconds: float, parameters: Parameters) -> Array:
        """States (k, entries of the robot's model) after some time under held controls (k, nu)."""
        steps = whole_steps("settle time", seconds, self.simulator.dt)
        return self._visible(self.simulator.step(self._whole(state), control, parameters, substeps=steps)[0])

    def _recalled(self, state: Array, control: Array, seconds: float) -> Array:
        """`_settled` by nominal parameters, simulated once for each state and control."""
        keys = [(*(part.tobytes() for part in row), seconds) for row in zip(state, control, strict=True)]
        new = [k for k, key in enumerate(keys) if key not in self._kept]
        if new:
            found = self._settled(state[new], control[new], seconds, self.nominal)
            self._kept.update((keys[k], row) for k, row in zip(new, found, strict=True))
        return np.array([self._kept[key] for key in keys])

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
    def noise(self) -> Array:
        """Standard deviation of the noise of the task's entries, (entries,)."""
        return self._sensing.noise[: len(self.task.entries)]

    @property
    def measures_state(self) -> bool:
        """Whether a sensor measures an entry of the state wrongly, which what the task computes from it follows."""
        return bool(len(self._sensing.columns))

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
        older, action = self._acting(action)
        task, state, context = self._task, self.state, self.context
        if self.settings.disturbance:
            state = self.simulator.retract(state, self.kick * self._normal(self.simulator.n, active))
        control = task.scale_action(action)
        plan = self.timing.plan(self.late, self.steps) if self.timing.divides else None
        if plan is None or no_events(plan, self.substeps):
            next_state, status = self._move(state, control)
        else:
            next_state, status = self._move_in_parts(state, task.scale_action(older), control, plan, active)
        failed = np.empty(self._rows, dtype=np.bool_)
        broken = mark_failed(status, next_state, failed)
        if broken:
            if not self._complained:
                self._complain(int(np.argmax(failed)), int(status[np.argmax(failed)]))
            next_state = np.where(failed[:, None], state, next_state)
        seen, next_seen = (state, next_state) if self._all_seen else (self._visible(state), self._visible(next_state))
        before = context
        context = self._updated(context, control, next_seen)
        terms = task.reward(seen, next_seen, action, before, context)
        self.state, self.context = next_state, context
        self._clock += 1
        observed, observation = self._shown(self._observed(next_seen, before, context, control, plan, active))
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

    def _updated(self, context: Array, control: Array, seen: Array) -> Array:
        """The task's memory after a step that led to a state."""
        if self._remembers:
            return np.asarray(self._task.update_after(context, control, seen))
        return np.asarray(self._task.update(context, seen))

    def _move(
        self, state: Array, control: Array, rows: NDArray[np.intp] | None = None, substeps: int = 0
    ) -> tuple[Array, IntArray]:
        """Some physics steps (0: a control step) of some rows (None: all).

        Only the first call is checked: later states are the simulator's own, and actions are checked.
        """
        substeps, whole = substeps or self.substeps, rows is None or len(rows) == self._rows
        values = self.parameter_values if whole else self.parameter_values[rows]
        if self._checked:
            control = np.ascontiguousarray(control, dtype=np.float64)
            return self.simulator.advance(state, control, values, substeps)  # type: ignore[attr-defined,no-any-return]
        parameters = self.parameters if whole else self._parameters_of(values, rows)  # type: ignore[arg-type]
        if self._task is self.task or self._checks_once:  # `BaseSimulator.step` checks its own first result
            found = self.simulator.step(state, control, parameters, substeps=substeps)
        else:
            expected = Result(state.shape, finite=False), Result((len(state),), "i")
            found = call(self.simulator, "step", (state, control, parameters), expected, substeps=substeps)
        self._checked = self._checks_once
        return found

    def _move_in_parts(
        self, state: Array, older: Array, newer: Array, plan: NDArray[np.int64], active: BoolArray | None
    ) -> tuple[Array, IntArray]:
        """One control step, first under the older control, then under the newer one; observations within it are made."""
        after, status = np.empty_like(state), np.zeros(self._rows, dtype=np.int32)
        for rows in groups_of(plan):
            change, *seen = plan[rows[0]].tolist()
            here, found, time = state[rows], np.zeros(len(rows), dtype=np.int32), 0
            for mark in sorted({change, self.substeps, *seen} - {0}):
                here, code = self._move(here, (older if mark <= change else newer)[rows], rows, mark - time)
                found, time = np.where(found, found, code), mark
                if mark in seen and mark < self.substeps:
                    shown = self._look(self._visible(here), self.context[rows], newer[rows], None, rows, active)
                    for k in np.flatnonzero(np.array(seen) == mark):
                        self.pending[rows, k] = shown
            after[rows], status[rows] = here, found
        return after, status

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

    def _acting(self, action: Array) -> tuple[Array, Array]:
        """The actions that take effect in this control step, (B, na): the older one first, where latencies end within it."""
        if self.settings.action_memory:
            self.given = np.concatenate([self.given[:, 1:], action[:, None]], axis=1)
        if not self.queue.shape[1]:
            return action, action
        line = np.concatenate([self.queue, action[:, None]], axis=1)
        self.queue = line[:, 1:].copy()
        newer = self.queue.shape[1] - self.late[:, 0] // self.substeps
        every = np.arange(self._rows)
        return line[every, np.maximum(newer - 1, 0)], line[every, newer]

    def _observed(
        self, seen: Array, before: Array, after: Array, control: Array, plan: NDArray[np.int64] | None, active: BoolArray | None
    ) -> Array:
        """The task's entries that are observed at the end of a control step, (B, entries)."""
        if plan is None or not self.pending.shape[1]:
            return self._look(seen, before, control, after, None, active)
        now = plan[:, 1:] == self.substeps
        rows = np.flatnonzero(now.any(axis=1))
        if len(rows):
            looked = self._look(seen[rows], before[rows], control[rows], after[rows], rows, active)
            self.pending[rows] = np.where(now[rows][:, :, None], looked[:, None], self.pending[rows])
        shown = self.pending[:, 0].copy()
        self.pending = np.concatenate([self.pending[:, 1:], self.pending[:, -1:]], axis=1)
        return shown

    def _look(
        self,
        seen: Array,
        before: Array,
        control: Array,
        after: Array | None,
        rows: NDArray[np.intp] | None,
        active: BoolArray | None,
    ) -> Array:
        """The task's entries as measured in states of some rows (k,), whose memory was `before` the control step."""
        if len(self._sensing.columns):
            seen, after = self._measured(seen, rows, active), None
        context = self._updated(before, control, seen) if after is None else after
        return self._calibrated(self._task.observe(seen, context), rows, active)

    def _measured(self, seen: Array, rows: NDArray[np.intp] | None, active: BoolArray | None = None) -> Array:
        """States as measured."""
        noise = self._sensing.state_noise
        normal = self._normal(len(noise), active, rows) if noise.any() else None
        return self._sensing.measure(seen, self.sensors if rows is None else self.sensors[rows], normal)

    def _calibrated(self, observed: Array, rows: NDArray[np.intp] | None, active: BoolArray | None = None) -> Array:
        """Observed entries with their gain, bias and noise."""
        observed = self._sensing.calibrate(observed, self.sensors if rows is None else self.sensors[rows])
        noise = self._sensing.noise
        if not noise.any():
            return observed
        return np.asarray(observed + (noise * self._normal(len(noise), active, rows))[:, : observed.shape[1]])

    def _shown(self, observed: Array, rows: NDArray[np.intp] | slice = _ALL) -> tuple[Array, Observation]:
        """Append the last actions, then clip to the observation space; -> observations as float64 and as float32."""
        if self.settings.action_memory:
            observed = np.concatenate([observed, self.given[rows].reshape(len(observed), -1)], axis=1)
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
        for name in ("steps", "late"):
            if not ((arrays[name] >= 0) & (arrays[name] % 1 == 0)).all():
                raise OptionError(f"saved {name!r} holds other than whole numbers >= 0")
        if (arrays["late"] > self.timing.ends[1]).any():
            raise OptionError(f"saved 'late' holds latencies beyond {self.timing.ends[1]} physics steps")
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


_SAVED = (
    "state", "context", "queue", "pending", "given", "late", "sensors", "parameter_values", "observed", "steps",
)  # fmt: skip


def _with(nominal: Parameters, parameter_values: Mapping[str, float], given: Any) -> Parameters:
    """Set the parameters that a task fixes, if this simulator has them and a mapping `given` does not name them."""
    own = given if isinstance(given, Mapping) else ()
    return nominal.replace(
        **{name: value for name, value in parameter_values.items() if name in nominal.names() and name not in own}
    )
