"""How an `Interface` is played: when delayed commands take over, which instants are observed, and what sensors measure there.

Time is counted in physics steps from the start of an episode; a control step has N of them. Both classes hold no state.

Legend: B batch, N physics steps per control step, D pending observations, nx state, K entries of the state that a sensor
measures wrongly, no observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.base import Bounded, layout_of
from ..core.errors import OptionError
from ..core.interface import CALIBRATION, LATENCIES, Interface, ends_of
from ..core.layout import QUATERNION
from ..core.simulator import Array, Simulator
from ..core.task import BoolArray, Task

MOST_PENDING = 1000
"""Most control steps of a latency."""

Steps = NDArray[np.int64]


@dataclass(frozen=True)
class Timing:
    """Delays of actions and observations, and the rate of observations, in physics steps.

    Raises:
        OptionError: A latency is longer than `MOST_PENDING` control steps.
    """

    interface: Interface
    dt: float
    substeps: int
    """N"""

    def __post_init__(self) -> None:
        for name, most in zip(LATENCIES, self.ends[1], strict=True):
            if most > MOST_PENDING * self.substeps:
                given, longest = getattr(self.interface, name), MOST_PENDING * self.substeps * self.dt
                raise OptionError(f"{name} is {given} s, allowed are {MOST_PENDING} control steps, {longest:g} s")

    @cached_property
    def _spans(self) -> list[tuple[float, float]]:
        return [ends_of(getattr(self.interface, name)) for name in LATENCIES]

    @cached_property
    def ends(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Shortest and longest latency of (actions, observations)."""
        low, high = zip(*((round(a / self.dt), round(b / self.dt)) for a, b in self._spans), strict=True)
        return low, high

    def draw(self, rng: np.random.Generator) -> list[int]:
        """Latencies of an episode, (actions, observations)."""
        return [round((rng.uniform(low, high) if low < high else low) / self.dt) for low, high in self._spans]

    @property
    def sample(self) -> int:
        """Time between observations."""
        rate = self.interface.observation_rate
        return max(1, round(1.0 / (rate * self.dt))) if rate else 1

    @property
    def pending_actions(self) -> int:
        """Number of actions that wait."""
        return -(-self.ends[1][0] // self.substeps)

    @property
    def pending_observations(self) -> int:
        """D; 0 where every observation shows the end of its control step."""
        late = self.ends[1][1] + self.sample - 1
        return 0 if late == 0 or (self.ends[1][1] == 0 and self.substeps % self.sample == 0) else late // self.substeps + 1

    @property
    def divides(self) -> bool:
        """Whether control steps may have to be divided."""
        return bool(self.pending_observations) or any(late % self.substeps for late in self.ends[1])

    @property
    def instants(self) -> tuple[set[int], set[int]]:
        """Instants within a control step at which, in any row, newer commands may take over and observations be made."""
        (least, soonest), (most, latest) = self.ends
        period = self.sample // gcd(self.sample, self.substeps)
        begun = latest // self.substeps + 1 + np.arange(period)  # late enough for every observation
        late = np.arange(max(soonest, latest - self.substeps + 1), latest + 1)
        pairs = np.stack(np.meshgrid(late, begun), axis=-1).reshape(-1, 2)
        plan = self.plan(np.stack([pairs[:, 0], pairs[:, 0]], axis=1), pairs[:, 1])
        changes = {k % self.substeps for k in range(max(least, most - self.substeps + 1), most + 1)}
        return changes - {0}, set(plan[:, 1:].ravel().tolist()) - {0, self.substeps}

    def plan(self, late: Steps, begun: Steps) -> Steps:
        """Events within the next control step, (B, 1 + D); 0: none.

        The first column is when the newer command takes over, the others are when each pending observation is made.

        Args:
            late: (B, 2) latencies.
            begun: (B,) control steps before.
        """
        ends = (begun[:, None] + 1 + np.arange(self.pending_observations)) * self.substeps
        seen = np.maximum((ends - late[:, 1:]) // self.sample * self.sample, 0) - begun[:, None] * self.substeps
        seen = np.where((seen > 0) & (seen <= self.substeps), seen, 0)
        return np.concatenate([late[:, :1] % self.substeps, seen], axis=1)


def groups_of(plan: Steps) -> list[NDArray[np.intp]]:
    """Rows with equal plans (B, ...), group by group."""
    if (plan == plan[0]).all():
        return [np.arange(len(plan))]
    _, place = np.unique(plan, axis=0, return_inverse=True)
    place = place.ravel()
    return [np.flatnonzero(place == k) for k in range(int(place.max()) + 1)]


class SensorModel:
    """What sensors make of states and observations.

    Args:
        interface: Bias, gain and noise.
        task: The task.
        simulator: The simulator under it.
        seen: Entries of the state that the task sees.
        memory: Entries of an observation beyond the task's.

    Raises:
        OptionError: A sensor is unknown, or a quaternion.
    """

    def __init__(self, interface: Interface, task: Task, simulator: Simulator, seen: int, memory: int) -> None:
        self._names = names_of(task, simulator, seen)
        width, entries = len(self._names.state), task.entries
        scale = np.concatenate([np.ones(width), [entry.scale for entry in entries]])
        low, high = np.zeros((2, len(scale))), np.zeros((2, len(scale)))  # gain and bias of state and observation
        low[0], high[0] = 1.0, 1.0
        for row, name in enumerate(reversed(CALIBRATION)):
            for columns, unit, span in self._given(name, getattr(interface, name), scale if row else np.ones(len(scale))):
                ends = ends_of(span)
                low[row, columns], high[row, columns] = ends[0] * unit, ends[1] * unit
        noise = np.zeros(len(scale) + memory)
        for columns, unit, value in self._given("sensor_noise", interface.sensor_noise, scale):
            noise[columns] = value * unit
        wrong = ((low != [[1.0], [0.0]]) | (high != [[1.0], [0.0]])).any(axis=0)
        self.columns = np.flatnonzero(wrong[:width] | (noise[:width] > 0))
        """(K,) entries of the state that a sensor measures wrongly."""
        self.state_noise, self.noise = noise[self.columns], noise[width:]
        """Standard deviations, (K,) and (no,)."""
        self.calibrated = bool(wrong[width:].any())
        """Whether observed entries have a bias or a gain."""
        kept = np.concatenate([self.columns, width + np.arange(len(entries) if self.calibrated else 0)])
        self.low, self.high = low[:, kept], high[:, kept]
        """Ends of gain and bias, (2, K + no)."""
        model = getattr(simulator, "model", None)
        self._bounds = model.state_bounds if isinstance(model, Bounded) else None

    def _given(self, what: str, value: Any, scale: Array) -> list[tuple[NDArray[np.intp], Array, Any]]:
        """Columns of state and observation, the unit of the value that they get, and the value."""
        if isinstance(value, Mapping):
            found = [(self._names.find(what, name), each) for name, each in value.items()]
            return [(columns, np.ones(len(columns)), each) for columns, each in found]
        columns = len(self._names.state) + np.arange(len(self._names.observed))
        return [(columns, scale[columns], value)]

    def draw(self, rng: np.random.Generator) -> Array:
        """Gain and bias of an episode, (2, K + no)."""
        drawn, varied = self.low.copy(), self._varied
        if varied is not None:
            drawn[varied] = rng.uniform(self.low[varied], self.high[varied])
        return drawn

    @cached_property
    def _varied(self) -> BoolArray | None:
        varied = self.low < self.high
        return varied if varied.any() else None

    def measure(self, state: Array, drawn: Array, normal: Array | None) -> Array:
        """States (B, nx) as measured, with gain and bias (B, 2, K + no) and normal numbers (B, K)."""
        found, k = state.copy(), len(self.columns)
        value = found[:, self.columns] * drawn[:, 0, :k] + drawn[:, 1, :k]
        if normal is not None:
            value = value + self.state_noise * normal
        if self._bounds is not None:  # a task may index by what has bounds, as a vine's length
            value = np.clip(value, self._bounds[0][self.columns], self._bounds[1][self.columns])
        found[:, self.columns] = value
        return found

    def calibrate(self, observed: Array, drawn: Array) -> Array:
        """Observed entries (B, no) with their gain and bias."""
        k = len(self.columns)
        return np.asarray(observed * drawn[:, 0, k:] + drawn[:, 1, k:]) if self.calibrated else observed


@dataclass(frozen=True)
class SensorNames:
    """Names and units of the entries of state and observation."""

    state: tuple[tuple[str, str], ...]
    observed: tuple[tuple[str, str], ...]
    quaternions: frozenset[str]

    def find(self, what: str, name: str) -> NDArray[np.intp]:
        """Columns of the state that a sensor's name stands for, or else those of the observation, after the state's.

        Raises:
            OptionError: There are none, or one is of a quaternion.
        """
        for first, entries in ((0, self.state), (len(self.state), self.observed)):
            found = [k for k, (own, unit) in enumerate(entries) if name in (own, unit) or fnmatchcase(own, name)]
            wrong = [entries[k][0] for k in found if first == 0 and entries[k][0] in self.quaternions]
            if wrong:
                raise OptionError(f"{what} names {name!r}: {wrong[0]} is part of a quaternion, which has no error of its own")
            if found:
                return first + np.array(found, dtype=np.intp)
        known = ", ".join(dict.fromkeys(own for own, _ in (*self.state, *self.observed)))
        units = ", ".join(dict.fromkeys(unit for _, unit in (*self.state, *self.observed)))
        raise OptionError(f"{what} names {name!r}; sensors are {known}, patterns of them, or the units {units}")


def names_of(task: Task, simulator: Simulator, seen: int) -> SensorNames:
    """Names of the sensors of a task on a simulator."""
    layout = layout_of(simulator)
    state = tuple(zip(simulator.state_names[:seen], simulator.state_units[:seen], strict=True))
    kinds = (
        [] if layout is None else [e.kind for f in layout.fields for _ in range(f.count) for e in f.entries for _ in e.names]
    )
    turned = frozenset(name for name, kind in zip(simulator.state_names, kinds, strict=False) if kind is QUATERNION)
    return SensorNames(state, tuple((e.name, e.unit) for e in task.entries), turned)


def mapped(interface: Interface, names: SensorNames) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Keywords of an interface with the sensors that there are, and the names of the others."""
    keywords, missing = interface.table(), dict[str, None]()
    for f in fields(Interface):
        value = keywords.get(f.name)
        if isinstance(value, Mapping):
            known = {}
            for name, each in value.items():
                try:
                    names.find(f.name, name)
                except OptionError:
                    missing[name] = None
                else:
                    known[name] = each
            keywords[f.name] = known
    return keywords, tuple(missing)


def no_events(plan: Steps, substeps: int) -> bool:
    """Whether nothing happens within a control step, as planned (B, 1 + D)."""
    return bool((plan[:, 0] == 0).all() and ((plan[:, 1:] == 0) | (plan[:, 1:] == substeps)).all())
