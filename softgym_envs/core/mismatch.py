"""Mismatched models: simulators that differ from the nominal model by documented levels, sampled by seed.

An effect is a switch with a size: a spread of stiffness, a payload, a latency. Level 0 has none; levels 1, 2 and
3 ("all combined") have the sizes of the system's `Ladder`. Each effect has a generator of its own, so that switching one
on or off changes no other draw. A ground truth that derives from `MismatchedModel` takes the keywords `level`, `seed` and
`effects`:

    gym.make(id, backend="mujoco", options={"level": 2, "seed": 3})
    gym.make(id, backend="mujoco", options={"effects": {"latency": 0.03}})

Latency, dead zone and backlash lie between commands and robot; they are simulated here, for every system. Delayed commands are
further entries of the state, which recordings leave out.

Legend: B batch, nu control, S physics steps of a control step, D physics steps of latency, P parameters.
"""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from .base import SteppedSimulator
from .errors import OptionError
from .layout import Field
from .simulator import Array, IntArray, Status, check_number

LEVELS = 4
"""Levels 0 ... 3."""
UNSEEN = "unseen_"
"""Prefix of state entries that are the world's memory, which nobody can observe."""


class Effect(NamedTuple):
    """One difference between a world and its drawing."""

    name: str
    unit: str
    sizes: tuple[float, float, float]
    """Sizes at levels 1, 2, 3; 0: no effect."""
    text: str
    """Meaning of the size."""
    high: float | None = None
    """Largest size that has a meaning; None: `LARGEST` of the unit."""


LARGEST = {"-": 1.0, "rad": 0.5 * np.pi, "s": 1.0, "m": 1.0, "kg": 100.0, "octaves": 10.0, "decades": 10.0}
"""Unit -> largest size of an effect: all of a quantity, a right angle, more than any robot has."""
STRONGEST = 1000.0
"""Largest size of effects in other units [N, N m, N s/m]."""
DEAF = 0.95
"""Largest dead zone and backlash: with 1, no command moves anything."""


def transmission(latency: tuple[float, float, float], zone: tuple[float, float, float]) -> tuple[Effect, ...]:
    """Effects between commands and robot: latency [s]; dead zone and backlash [half of a control's range]."""
    return (
        Effect("latency", "s", latency, "commands act so much later"),
        Effect("dead_zone", "-", zone, "a command counts from this share of half its range on", DEAF),
        Effect("backlash", "-", zone, "a reversed command does nothing over twice this share of half its range", DEAF),
    )


TRANSMISSION = transmission((0.0, 0.01, 0.03), (0.0, 0.0, 0.01))
"""Transmission effects of the usual sizes."""


@dataclass(frozen=True)
class Ladder:
    """All effects of a system, with their sizes at every level.

    Raises:
        OptionError: Two effects have one name.
    """

    effects: tuple[Effect, ...] = TRANSMISSION

    def __post_init__(self) -> None:
        names = [effect.name for effect in self.effects]
        if len(set(names)) != len(names):
            raise OptionError(f"effects are named {names}, expected each name once")

    def sizes(self, level: int, changes: Mapping[str, float]) -> dict[str, float]:
        """Effect -> size at a level, with changes.

        >>> Ladder().sizes(2, {"backlash": 0.05})
        {'latency': 0.01, 'dead_zone': 0.0, 'backlash': 0.05}

        Raises:
            OptionError: There is no such level or effect, or a size is negative or too large to mean anything.
        """
        check_number("level", level, low=0, whole=True)
        if level >= LEVELS:
            raise OptionError(f"level is {level}, allowed are 0 ... {LEVELS - 1}")
        if not isinstance(changes, Mapping):
            raise OptionError(f"effects is {changes!r}, expected a mapping of names to sizes")
        known = {effect.name: effect for effect in self.effects}
        found = {name: float(effect.sizes[level - 1]) if level else 0.0 for name, effect in known.items()}
        for name, size in changes.items():
            if name not in found:
                raise OptionError(f"effects has {name!r}; there are {', '.join(found)}")
            unit, high = known[name].unit, known[name].high
            high = LARGEST.get(unit, STRONGEST) if high is None else high
            check_number(f"effects: {name}", size, low=0.0, high=high, unit=unit.strip("-"))
            found[name] = float(size)
        return found


@dataclass(frozen=True, eq=False)
class MismatchedModel(SteppedSimulator):
    """A ground truth with a ladder of effects; a subclass defines `ladder`, `_held`, and makes its effects.

    Raises:
        OptionError: No such level or effect.
    """

    ladder: ClassVar[Ladder] = Ladder()

    level: int = field(default=0, kw_only=True)
    """0: as drawn; 1: careful work; 2: work by hand; 3: all effects together."""
    seed: int = field(default=0, kw_only=True)
    """Seed of the draws."""
    effects: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    """Effect -> size, instead of the level's."""

    @abstractmethod
    def _held(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        """`_step` under commands (B, nu) that act at once."""

    # --- draws -----------------------------------------------------------------------------------------------------

    @cached_property
    def sizes(self) -> dict[str, float]:
        """Effect -> size.

        Raises:
            OptionError: No such level or effect, a size that is not allowed, or no seed.
        """
        check_number("seed", self.seed, low=0, whole=True)
        return self.ladder.sizes(self.level, self.effects)

    @cached_property
    def _drawn(self) -> dict[tuple[str, tuple[int, ...]], Array]:
        return {}

    def rng(self, effect: str) -> np.random.Generator:
        """The generator of one effect."""
        return np.random.default_rng([self.seed, zlib.crc32(effect.encode())])

    def spread(self, effect: str, *shape: int) -> Array:
        """Uniform draws within plus or minus the effect's size; later calls return the same draws."""
        if (effect, shape) not in self._drawn:
            drawn = self.rng(effect).uniform(-1.0, 1.0, shape) if self.sizes[effect] else np.zeros(shape)
            self._drawn[effect, shape] = np.asarray(self.sizes[effect] * drawn)
        return self._drawn[effect, shape]

    def amount(self, effect: str) -> float:
        """Size as given in `effects`, or the level's size times a draw between 0.5 and 1.5."""
        size = self.sizes[effect]
        if effect in self.effects or size == 0:
            return size
        return size * float(self.rng(effect).uniform(0.5, 1.5))

    @property
    def down(self) -> Array:
        """Direction of gravity under the effect "tilt", relative to a level floor, (3,)."""
        tilt, way = self.amount("tilt"), self.rng("tilt").uniform(0.0, 2.0 * np.pi)
        return np.array([np.sin(tilt) * np.cos(way), np.sin(tilt) * np.sin(way), -np.cos(tilt)])

    # --- between commands and robot --------------------------------------------------------------------------------

    @cached_property
    def delay(self) -> int:
        """Latency D in physics steps."""
        return round(self.amount("latency") / self.dt)

    @cached_property
    def memory_fields(self) -> tuple[Field, ...]:
        """Delayed commands, oldest first, and the far side of the backlash."""
        found = []
        if self.delay:
            found.append(Field(f"{UNSEEN}late", self.delay, (" ".join(self.control_names), "-")))
        if self.amount("backlash") > 0:
            found.append(Field(f"{UNSEEN}play", 1, (" ".join(self.control_names), "-")))
        return tuple(found)

    @cached_property
    def _half_range(self) -> Array:
        """Half of every control's range, (nu,); 1 without bounds."""
        half = 0.5 * (self.control_bounds[1] - self.control_bounds[0])
        return np.where(np.isfinite(half), half, 1.0)

    def _step(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        if not self.memory_fields and self.amount("dead_zone") == 0:
            return self._held(state, control, parameter_values, substeps)
        own = self.nx - sum(f.width * f.count for f in self.memory_fields)
        commands, memory = self._arriving(state[:, own:], control, substeps)
        after, status = state.copy(), np.full(len(state), Status.OK, dtype=np.int32)
        turns = np.flatnonzero((commands[:, 1:] != commands[:, :-1]).any(axis=(0, 2))) + 1
        for first, last in zip([0, *turns], [*turns, substeps], strict=True):
            good = np.flatnonzero(status == Status.OK)
            moved, status[good] = self._held(after[good], commands[good, first], parameter_values[good], int(last - first))
            after[good] = moved
        after[:, own:] = memory
        failed = status != Status.OK
        after[failed] = state[failed]
        return after, status

    def _arriving(self, memory: Array, control: Array, substeps: int) -> tuple[Array, Array]:
        """Commands that act in every physics step (B, S, nu), and the memory after them."""
        rows, waiting = len(control), self.delay * self.nu
        queue = memory[:, :waiting].reshape(rows, self.delay, self.nu)
        line = np.concatenate([queue, np.repeat(control[:, None], substeps, axis=1)], axis=1)
        commands, queue = line[:, :substeps].copy(), line[:, substeps:]
        dead, play = self.amount("dead_zone") * self._half_range, self.amount("backlash") * self._half_range
        commands = np.sign(commands) * np.maximum(np.abs(commands) - dead, 0.0)
        after = [queue.reshape(rows, -1)]
        if self.amount("backlash") > 0:
            far = memory[:, waiting:]
            for k in range(substeps):
                far = np.clip(far, commands[:, k] - play, commands[:, k] + play)
                commands[:, k] = far
            after.append(far)
        return commands, np.concatenate(after, axis=1)


def seen(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names without those of a world's memory.

    >>> seen(("x", "unseen_late0.force"))
    ('x',)
    """
    return tuple(name for name in names if not name.startswith(UNSEEN))
