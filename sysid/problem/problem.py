"""Problem of identification: which parameters, from which recordings, through which measured quantities.

`FitProblem` checks its data before any method sees them: recordings that cannot be used raise a `DataError` with a reason and a
remedy (`.checks`). Legend: B rows, T steps, nx state, n tangent, ny measured, m residual channels, p free parameters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.base import layout_of
from softgym_envs.core.errors import DataError, OptionError, ParameterError, shown
from softgym_envs.core.parameters import Parameters, ParameterSpec
from softgym_envs.core.procedure import Measurement
from softgym_envs.core.simulator import Array, Simulator, check_array, stable_bounds
from softgym_envs.core.spec import SimulatorSpec
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet
from softgym_envs.data.sensors import posed, sensed

from . import checks
from .noise import noise_of, noisy_states, roughness
from .recording_parameters import POSE, SENSED, Commands, RecordingParameters

FEW_PARTS, MANY_PARTS = 5, 20
"""Parts of a row, over which commands are averaged: the most up to 20, or if these are fewer than 5, the fewest above 20."""
_UNMOVED = RecordingParameters()
OF_PARAMETERS = {"start", "prior", "view", "candidate_causes", "limits"}
"""Fields of a `FitProblem` whose change needs no new check of its recordings."""


@dataclass(frozen=True, eq=False)
class FitProblem:
    """Recordings, a simulator, and the parameters to fit; see the module docstring.

    If the recordings hold every state entry, residuals live in the tangent space, r = difference(predicted, measured) (m = n);
    else they are predicted minus measured columns (m = ny), and the initial state is estimated with the parameters.

    Raises:
        DataError: The recordings cannot be used; the message is the diagnostic.
        ParameterError: Unknown or doubled names in `free`, `prior` or `start`.
        OptionError: `noise` or `measured` do not fit the recordings.
    """

    simulator: Simulator
    data: DataSplit | TrajectorySet
    """A plain set is used for training only."""
    free: tuple[str, ...]
    """p parameters to identify."""
    start: Parameters | None = None
    """Parameters before the fit, within `limits`, and final values of those that are not free; None: the simulator's."""
    measured: tuple[str, ...] | None = None
    """Columns to fit, state entries by name; None: every column that is a state entry. Ignored with `measurement`."""
    measurement: Measurement | None = None
    """Columns that are functions of the state."""
    noise: Mapping[str, float] | None = None
    """Standard deviation of the noise per column [SI]; None: estimated per channel from the residuals."""
    noise_estimated: bool = False
    """Whether `noise` was estimated from the recordings themselves (`.noise`), and so has an error of its own."""
    prior: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Parameter -> (mean, standard deviation) of prior knowledge [its unit]."""
    initial_state: Callable[[Trajectory], Array] | None = None
    """Recording -> its initial state (nx,) where it is not measured; None: the rest state with the measured entries put in."""
    free_initial: bool | None = None
    """Whether to estimate the state at the start of every segment and prediction; None: yes where states are measured in part,
    or with noise: stated, or detected (`.noise.noisy_states`)."""
    free_motion: bool = False
    """Whether the recordings are throws or releases: controls may then be constant."""
    view: RecordingParameters = field(default_factory=RecordingParameters)
    """Parameters of the recordings before the fit, and final values of those that are not free."""
    known_initial: tuple[str, ...] = ()
    """Patterns of tangent coordinates (`StateLayout.tangent_names`) that are known at the start of a recording, or do not
    matter. They are no unknowns where states are measured in part."""
    actuated: tuple[str, ...] = ()
    """Patterns of state entries that only commands move, whatever the robot does (muscles that fill). Where states are
    measured in part, they are unknown at a recording's first row only; later segments start with the values that the simulation
    from `initial_state` has there. A recording of several segments must begin like that, or long before they are over."""
    candidate_causes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Cause in words -> fixed parameters of the robot or of the recordings that may be wrong: residuals are tested for their
    effect."""
    propagated: tuple[str, ...] = ()
    """Patterns of state entries among `known_initial` that matter, though no measurement shows them. Where states are measured
    in part, a segment within a recording takes them over from the end of the prediction of the segment before it."""

    before: Simulator | None = None
    """The simulator as the user made it, where a procedure's stage has changed it."""
    limits: Mapping[str, tuple[float, float]] | None = None
    """Parameter of the robot -> narrower bounds than its own; None: those with which the simulator's steps are stable.

    They are kept for a problem in finer steps, which allow wider ones: the parameters are for this simulator.
    """
    checked: bool = field(default=False, repr=False)
    """Whether the recordings were checked already; set by `replace` where only parameters change."""

    def __post_init__(self) -> None:
        if not isinstance(self.data, DataSplit | TrajectorySet):
            raise DataError(
                f"data is {type(self.data).__name__}, expected a TrajectorySet((recording, ...)), or a DataSplit of them"
            )
        if isinstance(self.free, str):
            raise ParameterError(f"free is {self.free!r}, expected names in a tuple: ({self.free!r},)")
        if self.noise is not None and not isinstance(self.noise, Mapping):
            raise OptionError(f"noise is {shown(self.noise)}, expected {{column: standard deviation}}")
        if not isinstance(self.data, DataSplit):
            object.__setattr__(self, "data", DataSplit(self.data, TrajectorySet(()), TrajectorySet(())))
        object.__setattr__(self, "start", self.start or self.simulator.default_parameters)
        object.__setattr__(
            self, "free", tuple(e for name in self.free for e in self.initial_parameters.vectors.get(name, (name,)))
        )
        self._check_start()
        limits = stable_bounds(self.simulator, self.initial_parameters) if self.limits is None else self.limits
        self.initial_parameters.check_names(limits)
        within = {name: float(np.clip(self.given(name), *limits[name])) for name in limits if name in self.free}
        object.__setattr__(self, "limits", limits)
        object.__setattr__(self, "start", self.initial_parameters.replace(**within))
        self._check_parameters()
        if not self.checked:
            checks.check_data(self)
        for name in SENSED:
            if name in self.free and not self.estimates_initial:
                raise OptionError(f"{name} is free: predictions must not begin at measured angles; say `free_initial=True`")

    def _check_start(self) -> None:
        if type(self.initial_parameters) is not type(self.simulator.default_parameters):
            expected = type(self.simulator.default_parameters).__name__
            raise ParameterError(f"start is {type(self.initial_parameters).__name__}, this simulator takes {expected}")
        if self.initial_parameters.batch is not None:
            raise ParameterError(f"start holds parameters for {self.initial_parameters.batch} rows, expected one value each")

    def _check_parameters(self) -> None:
        self.initial_parameters.check_names(name for name in (*self.free, *self.prior) if name not in self.view.names())
        if not self.free or len(set(self.free)) != len(self.free):
            raise ParameterError(f"free is {self.free}, expected at least one name, each once")
        for name, (mean, std) in self.prior.items():
            spec = self.known_specs[name]
            if name not in self.free or not spec.bounds[0] <= mean <= spec.bounds[1] or not (np.isfinite(std) and std > 0):
                raise ParameterError(
                    f"prior of {name} is ({mean}, {std}); expected a free parameter, mean in {spec.bounds}, std > 0"
                )

    # --- parameters and their fit coordinates -----------------------------------------------------------------------

    @property
    def initial_parameters(self) -> Parameters:
        """Parameters before the fit: `start`, never None."""
        if self.start is None:
            raise ParameterError("start is missing")
        return self.start

    @property
    def split(self) -> DataSplit:
        """`data`, always as a split."""
        return self.data if isinstance(self.data, DataSplit) else DataSplit(self.data, TrajectorySet(()), TrajectorySet(()))

    @property
    def shared_steps(self) -> int:
        """Largest number of physics steps that divides every fitted row."""
        return int(np.gcd.reduce([recording.substeps for recording in self.split.train]))

    @cached_property
    def known_specs(self) -> dict[str, ParameterSpec]:
        """Specifications of every parameter of the robot and of the recordings."""
        own = {name: spec.within((self.limits or {}).get(name)) for name, spec in self.initial_parameters.specs().items()}
        return {**self.view.specs(), **own}

    @cached_property
    def specs(self) -> tuple[ParameterSpec, ...]:
        """Specification of each free parameter."""
        return tuple(self.known_specs[name] for name in self.free)

    @cached_property
    def own(self) -> tuple[str, ...]:
        """The free parameters of the robot."""
        return tuple(name for name in self.free if name in self.initial_parameters.names())

    @cached_property
    def columns(self) -> NDArray[np.intp]:
        """Places of the robot's free parameters in `Parameters.to_vector`; (p,) where no recording parameter is free."""
        return np.array([self.initial_parameters.index(name) for name in self.own], dtype=np.intp)

    @cached_property
    def theta_bounds(self) -> tuple[Array, Array]:
        """Bounds of the fit coordinates, each (p,): beyond these values are clipped or rejected."""
        lower, upper = (np.array([float(s.encode(s.bounds[side])) for s in self.specs]) for side in (0, 1))
        return lower, upper

    @cached_property
    def search_range(self) -> tuple[Array, Array]:
        """Range in which methods search, each (p,): the declared bounds, whatever `limits` are. It scales steps and spreads."""
        lower, upper = (np.array([float(s.encode(s.search_range[side])) for s in self.specs]) for side in (0, 1))
        return lower, upper

    def encode(self, parameters: Parameters) -> Array:
        """Fit coordinates theta (p,): log of a parameter on a log scale, else its fraction of the declared range.

        Parameters of the recordings are those of `view`.
        """
        given = {name: getattr(parameters if name in self.own else self.view, name) for name in self.free}
        theta = np.array([float(spec.encode(given[spec.name])) for spec in self.specs])
        return np.asarray(np.clip(theta, *self.theta_bounds))

    def natural(self, theta: Array) -> Array:
        """Fit coordinates (K, p) -> free parameters in their units, (K, p)."""
        columns = [np.clip(spec.decode(theta[:, place]), *spec.bounds) for place, spec in enumerate(self.specs)]
        return np.stack(columns, axis=1)  # exp(log(b)) may pass b by rounding

    def vectors(self, theta: Array) -> Array:
        """All parameters of the robot at fit coordinates (K, p), the others as in `start`: (K, P)."""
        vectors = np.repeat(self.initial_parameters.to_vector()[None], len(theta), axis=0)
        vectors[:, self.columns] = self.natural(theta)[:, [self.free.index(name) for name in self.own]]
        return vectors

    def views(self, theta: Array) -> dict[str, Array]:
        """All parameters of the recordings at fit coordinates (K, p), each (K,)."""
        values = self.natural(theta)
        return {
            name: values[:, self.free.index(name)]
            if name in self.free
            else np.full(len(theta), float(getattr(self.view, name)))
            for name in self.view.names()
        }

    def view_at(self, theta: Array) -> RecordingParameters:
        """Parameters of the recordings at fit coordinates (p,)."""
        return RecordingParameters(**{name: float(column[0]) for name, column in self.views(theta[None]).items()})

    def decode(self, theta: Array) -> Parameters:
        """Parameters at fit coordinates (p,)."""
        return type(self.initial_parameters).from_vector(self.vectors(theta[None])[0])

    def slopes(self, theta: Array) -> Array:
        """d parameter / d fit coordinate, (p,)."""
        values = self.natural(theta[None])[0]
        return np.array([float(s.slope(v)) for s, v in zip(self.specs, values, strict=True)])

    @cached_property
    def prior_rows(self) -> tuple[Array, Array]:
        """Fit coordinates of the priors' means and their standard deviations, each (p,); NaN and infinity without one."""
        mean, std = np.full(len(self.free), np.nan), np.full(len(self.free), np.inf)
        for place, spec in enumerate(self.specs):
            if spec.name in self.prior:
                value, width = self.prior[spec.name]
                mean[place], std[place] = float(spec.encode(value)), width / float(spec.slope(value))
        return mean, std

    def given(self, name: str) -> float:
        """Value of a parameter of the robot or of the recordings before the fit."""
        return float(getattr(self.initial_parameters if name in self.initial_parameters.names() else self.view, name))

    # --- what is measured ------------------------------------------------------------------------------------------

    @cached_property
    def whole(self) -> bool:
        """Whether every entry of the state is a column."""
        return self.measurement is None and set(self.column_names) >= set(self.simulator.state_names)

    @cached_property
    def full_state(self) -> bool:
        """Whether the recordings hold the full state, in every row; states with gaps are measured in part."""
        return self.whole and all(np.isfinite(self.values(recording)).all() for part in self.split for recording in part)

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns that are fitted; in the state's order where they are the full state."""
        if self.measurement is not None:
            return self.measurement.names
        names = self.split.train.names if self.measured is None else self.measured
        chosen = set(names) & set(self.simulator.state_names)
        return tuple(name for name in self.simulator.state_names if name in chosen)

    @cached_property
    def column_units(self) -> tuple[str, ...]:
        """SI units of the fitted columns."""
        return self.split.train[0].select(self.column_names).units

    @cached_property
    def state_columns(self) -> NDArray[np.intp]:
        """Places in the state of the fitted columns (without `measurement`)."""
        return np.array([self.simulator.state_names.index(name) for name in self.column_names], dtype=np.intp)

    @cached_property
    def estimates_initial(self) -> bool:
        """Whether initial states are unknowns, and predictions start from estimated ones."""
        return not self.full_state or self.noisy if self.free_initial is None else self.free_initial

    @cached_property
    def irregular(self) -> bool:
        """Whether values were seen at other times than those of their rows."""
        return any(len(recording.offsets) for part in self.split for recording in part)

    @cached_property
    def noisy(self) -> bool:
        """Whether full states are measured with noise, or between rows, and `free_initial` does not say how to treat that."""
        known = self.noise is not None or self.irregular  # what is moved to rows is not exact there
        return self.full_state and self.free_initial is None and (known or noisy_states(self))

    @cached_property
    def quaternions(self) -> tuple[NDArray[np.intp], ...]:
        """Channels (4,) of each quaternion that is seen whole, where states are measured in part.

        A unit quaternion has three independent errors in its four numbers.
        """
        layout, places, found = layout_of(self.simulator), np.arange(self.simulator.nx), list[NDArray[np.intp]]()
        if self.full_state or self.measurement is not None or layout is None:
            return ()
        for column in self.state_columns:
            whole = np.flatnonzero(layout.whole(places == column))
            if whole[0] == column and len(whole) > 1 and np.isin(whole, self.state_columns).all():
                found.append(np.flatnonzero(np.isin(self.state_columns, whole)))
        return tuple(found)

    def values(self, trajectory: Trajectory) -> Array:
        """The fitted columns as they were seen, `Trajectory.offsets` after their rows, (T+1, ny)."""
        return trajectory.select(self.column_names).values

    def on_grid(self, trajectory: Trajectory) -> Array:
        """The fitted columns at the times of rows, (T+1, ny); see `Trajectory.on_grid`."""
        return self.values(trajectory.on_grid)

    def states_at_rows(self, trajectory: Trajectory) -> Array:
        """States (T+1, nx) at, or near, the rows of a recording of whole states; gaps are bridged by straight lines.

        Entries that are not seen at all, as in a short window, are those of rest.
        """
        rows, found = np.arange(len(trajectory.times)), self.on_grid(trajectory).copy()
        if np.isfinite(found).all():
            return found
        for column, rest in zip(found.T, self.simulator.initial_state(1)[0][self.state_columns], strict=True):
            seen = np.isfinite(column)
            column[:] = np.interp(rows, rows[seen], column[seen]) if seen.any() else rest
        return np.asarray(self.simulator.retract(found, np.zeros((len(rows), self.simulator.n))))

    def controls(self, trajectory: Trajectory) -> Array:
        """Controls of rows in the simulator's order, (T, nu)."""
        return np.asarray(trajectory.controls[:, self._controlled(trajectory)])

    def commands(self, trajectory: Trajectory) -> Commands:
        """Controls of `parts` of every row, and those before the first row where the recording has them."""
        own, before = trajectory.in_parts(self.parts)
        places = self._controlled(trajectory)
        return Commands(own[:, places], before[:, places])

    @cached_property
    def parts(self) -> int:
        """Parts of a row, in whole physics steps, where commands change or values are seen between rows; else 1."""
        late = "latency" in self.free or self.view.latency != 0.0
        changing = any(len(recording.commanded) for part in self.split for recording in part)
        return parts_of(self.shared_steps) if late or changing or self.irregular else 1

    def _controlled(self, trajectory: Trajectory) -> list[int]:
        """Places of the simulator's controls among the recorded ones."""
        return [trajectory.control_names.index(name) for name in self.simulator.control_names]

    def observe(self, states: Array) -> Array:
        """The fitted columns of states, (..., nx) -> (..., ny)."""
        if self.measurement is None:
            return np.ascontiguousarray(states[..., self.state_columns])
        return np.asarray(self.measurement.function(states), dtype=np.float64)

    def compare(self, states: Array, values: Array, view: Mapping[str, Array] | None = None) -> Array:
        """Residual channels of states (R, L, nx) against measured columns (R, L, ny): (R, L, m); NaN where not measured.

        Args:
            states: Predicted.
            values: Measured.
            view: Parameters of the recordings, each (R,); None: `self.view`.
        """
        if self.full_state:
            return self.simulator.difference(self._sensed(states, view), np.broadcast_to(values, states.shape))
        return self.seen(states, view) - values

    def _sensed(self, states: Array, view: Mapping[str, Array] | None) -> Array:
        """Full states (R, L, nx) as measured by sensors of angles."""
        given = {name: np.full(len(states), getattr(self.view, name)) for name in SENSED} if view is None else view
        if all((given[name] == getattr(_UNMOVED, name)).all() for name in SENSED):
            return states
        return sensed(states, self.simulator.state_units, *(given[name] for name in SENSED))

    def seen(self, states: Array, view: Mapping[str, Array] | None = None) -> Array:
        """The fitted columns of states (R, L, nx) as the camera sees them, (R, L, ny); see `compare`."""
        found = self.observe(states)
        if view is None and all(getattr(self.view, name) == getattr(_UNMOVED, name) for name in POSE):
            return found
        pose = view or {name: np.full(len(states), float(getattr(self.view, name))) for name in POSE}
        return posed(found, self.column_names, self.column_units, *(pose[name] for name in POSE))

    @cached_property
    def unknown_start(self) -> NDArray[np.intp]:
        """Unknown tangent coordinates of a start; see `known_initial`. All of them, where the full state is measured."""
        if self.full_state:
            return np.arange(self.simulator.n)
        layout = layout_of(self.simulator)
        names = layout.tangent_names if layout is not None else ("",) * self.simulator.n
        return np.flatnonzero([not any(fnmatchcase(name, pattern) for pattern in self.known_initial) for name in names])

    @cached_property
    def actuated_entries(self) -> NDArray[np.intp]:
        """(d,) places in the state of entries that only commands move; see `actuated`. Empty where full states are measured."""
        return self._among(self.actuated, self.simulator.state_names)

    @cached_property
    def propagated_entries(self) -> NDArray[np.intp]:
        """Places in the state of entries that segments take over; see `propagated`. Empty where the full state is measured."""
        return self._among(self.propagated, self.simulator.state_names)

    @cached_property
    def actuated_tangent(self) -> NDArray[np.intp]:
        """(d,) places in the tangent of entries that only commands move."""
        layout = layout_of(self.simulator)
        return self._among(self.actuated, layout.tangent_names if layout else ())

    def _among(self, patterns: tuple[str, ...], names: tuple[str, ...]) -> NDArray[np.intp]:
        if self.full_state:
            return np.zeros(0, dtype=np.intp)
        return np.flatnonzero([any(fnmatchcase(name, pattern) for pattern in patterns) for name in names])

    def initial_guess(self, trajectory: Trajectory) -> Array:
        """Initial state of a recording, (nx,): measured, given, or the rest state with the measured entries put in."""
        if self.full_state:
            return np.asarray(self.states_at_rows(trajectory)[0])
        if self.initial_state is not None:
            found = self.initial_state(trajectory.on_grid)
            given: Array = check_array("initial_state(trajectory)", found, (self.simulator.nx,))
            return given
        if self.whole:
            return np.asarray(self.states_at_rows(trajectory)[0])
        state = self.simulator.initial_state(1)[0].copy()
        if self.measurement is None:
            first = self.on_grid(trajectory)[0]
            state[self.state_columns] = np.where(np.isfinite(first), first, state[self.state_columns])
        return self.simulator.retract(state, np.zeros(self.simulator.n))  # normalises entries on a manifold

    @cached_property
    def tangent_map(self) -> Array:
        """d difference(x + e, x) / d e at the first measured state, (n, nx)."""
        x = self.values(self.split.train[0])[0]
        step = 1e-6 * np.eye(self.simulator.nx)
        ahead, behind = (self.simulator.difference(x + sign * step, np.repeat(x[None], len(x), axis=0)) for sign in (1, -1))
        return np.asarray((ahead - behind).T / 2e-6)

    @cached_property
    def channel_names(self) -> tuple[str, ...]:
        """Names of the m channels: columns, or the state entry that a tangent coordinate moves most."""
        if not self.full_state:
            return self.column_names
        return tuple(self.simulator.state_names[int(np.argmax(np.abs(row)))] for row in self.tangent_map)

    @cached_property
    def known_noise(self) -> Array | None:
        """Standard deviation per channel (m,), or None where it is to be estimated."""
        if self.noise is None:
            return None
        sigma = np.array([float(self.noise[name]) for name in self.column_names])
        return np.sqrt(self.tangent_map**2 @ sigma**2) if self.full_state else sigma

    @cached_property
    def rough_noise(self) -> Array:
        """Standard deviation per channel (m,) that weights a start of full states: known, or estimated from columns."""
        if self.known_noise is not None:
            return self.known_noise
        return np.sqrt(self.tangent_map**2 @ roughness(self.split.train, self.column_names) ** 2)

    def with_estimated_noise(self) -> FitProblem:
        """Copy of the problem with noise estimated from its recordings for training; see `.noise`.

        Raises:
            DataError: Noise cannot be estimated from them.
        """
        return self.replace(noise=noise_of(self.split.train, self.column_names), noise_estimated=True)

    # --- identity --------------------------------------------------------------------------------------------------

    @cached_property
    def spec(self) -> SimulatorSpec:
        """System, structure, options and physics step that identified parameters belong to."""
        return SimulatorSpec.of(self.simulator)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that decides the outcome of a fit: a checkpoint of another problem is refused."""
        digest = hashlib.sha256()
        for part in self.split:
            digest.update(part.sha256.encode())
        noise = sorted((self.noise or {}).items())
        described = [
            type(self.simulator).__name__,
            self.spec,
            _plain_fields(self.simulator),
            self.initial_parameters,
            self.free,
        ]
        described += [
            self.column_names,
            noise,
            sorted(self.prior.items()),
            self.estimates_initial,
            self.view,
            self.known_initial,
        ]
        described += [self.actuated, self.propagated, sorted((self.limits or {}).items())]
        digest.update(repr(described).encode())
        return digest.hexdigest()

    def replace(self, **changes: Any) -> FitProblem:
        """A copy with some fields changed; a stage of a progressive fit is `replace(free=..., start=result.parameters)`."""
        allowed = [f.name for f in fields(self)]
        unknown = [name for name in changes if name not in allowed]
        if unknown:
            raise OptionError(f"unknown field {unknown[0]!r} of FitProblem; it has {', '.join(allowed)}")
        return replace(self, **{"checked": set(changes) <= OF_PARAMETERS, **changes})


def parts_of(substeps: int) -> int:
    """Number of equal parts, of whole physics steps, into which a row is cut where commands change within it.

    >>> [parts_of(substeps) for substeps in (1, 7, 10, 40, 23, 134)]
    [1, 7, 10, 20, 23, 67]
    """
    counts = [count for count in range(1, substeps + 1) if substeps % count == 0]
    most = max(count for count in counts if count <= MANY_PARTS)
    return most if most >= min(FEW_PARTS, substeps) else min(count for count in counts if count > MANY_PARTS)


def _plain_fields(simulator: Simulator) -> list[tuple[str, str]]:
    """Options of a simulator that is a dataclass, as text."""
    if not is_dataclass(simulator):
        return []
    values = [(f.name, getattr(simulator, f.name)) for f in fields(simulator)]
    return [(name, repr(value)) for name, value in values if value is None or isinstance(value, (bool, int, float, str))]
