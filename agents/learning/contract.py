"""Contract between a policy and its robot: which numbers in which units go in and come out, how often, and how late.

It is the entry "contract" of the JSON file beside a policy, and of the metadata of an exported .onnx. A policy observes the
task's entries, each clipped to [low, high] in its unit (there is no other normalisation), then its own last actions, oldest
first. Actions are in [-1, 1]; every control of the robot follows one of them.

Legend: B batch, na action, nu control.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from softgym_envs.core.errors import FileFormatError, OptionError, SimulationWarning, shown
from softgym_envs.core.files import LARGEST_NUMBER, check_entries, made
from softgym_envs.core.interface import ends_of
from softgym_envs.core.simulator import Simulator
from softgym_envs.core.spec import plain
from softgym_envs.core.task import Entry, Task

KNOTS = (-1.0, 0.0, 1.0)
"""Actions between which controls are linear."""
PROBES = 16
"""Random actions by which that is checked."""


@dataclass(frozen=True)
class Control:
    """One control of the robot, and the action that drives it."""

    name: str
    unit: str
    action: str
    """Name of the action."""
    values: tuple[float, float, float]
    """Control [unit] at the actions -1, 0 and 1; linear between them."""

    def __str__(self) -> str:
        return f"{self.name} {', '.join(f'{value:.4g}' for value in self.values)} [{self.unit}]"


@dataclass(frozen=True)
class PolicyContract:
    """See the module docstring.

    >>> import gymnasium as gym
    >>> contract = PolicyContract.of(gym.make("softgym_envs:SlidingBlock-v0", action_memory=3))
    >>> contract.period, contract.action_memory, str(contract.controls[0])
    (0.1, 3, 'force_x -10, 0, 10 [N]')
    """

    id: str
    """Environment."""
    period: float
    """Time between actions [s]."""
    observations: tuple[Entry, ...]
    """The task's entries in order, with units and the limits of clipping."""
    actions: tuple[str, ...]
    """Names of the actions (na,)."""
    controls: tuple[Control, ...]
    """The robot's controls (nu,); () if they follow the actions in another way than one by one."""
    action_memory: int = 0
    """Number of last actions that are observed after the entries; zeros at the start."""
    action_latency: tuple[float, float] = (0.0, 0.0)
    """Shortest and longest delay of actions in the training [s]."""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of `gym.make` in the training."""

    @classmethod
    def of(cls, env: Any, keywords: Mapping[str, Any] | None = None) -> PolicyContract:
        """Contract of one of our environments, single or vector.

        Args:
            env: Environment, with or without wrappers.
            keywords: Keywords with which it was made.
        """
        inner = _on_numpy(env)
        settings, task = inner.episodes.settings, inner.task
        return cls(
            inner.built["task"], float(settings.control_period), tuple(map(_finite, task.entries)), tuple(task.action_names),
            controls_of(task, inner.simulator), settings.action_memory, ends_of(settings.action_latency), plain(keywords or {}),
        )  # fmt: skip

    @classmethod
    def read(cls, where: str, table: Any) -> PolicyContract:
        """Contract from a table of a file.

        Raises:
            FileFormatError: It has another form; `where` names the table in the message.
        """
        own = dict(check_entries(where, table, [f.name for f in fields(cls)]))
        for name, kind in (("observations", Entry), ("controls", Control)):
            if not isinstance(found := own.get(name), list):
                raise FileFormatError(f"{where}: {name} is {shown(found)}, expected a list of tables")
            own[name] = [made(f"{where}: {name} {k}", one, kind) for k, one in enumerate(found)]
        return made(where, own, cls)

    def table(self) -> dict[str, Any]:
        """The table of a JSON file."""
        return asdict(self)

    @property
    def size(self) -> int:
        """Length of what the network takes: entries and last actions."""
        return len(self.observations) + self.action_memory * len(self.actions)

    def check(self, env: Any, source: str) -> None:
        """Check that an environment is what the policy was trained for; `SimulationWarning` if controls have other ranges.

        Args:
            env: One of our environments, with or without wrappers; others are not checked.
            source: Name of the policy for messages.

        Raises:
            OptionError: Entries, units, actions, their memory or the control period differ; names the first that does.
        """
        if not hasattr(_on_numpy(env), "episodes"):
            return
        here = PolicyContract.of(env)
        for (what, mine), (_, its) in zip(self._terms(), here._terms(), strict=True):
            for k, (own, other) in enumerate(itertools.zip_longest(mine, its, fillvalue="nothing")):
                if own != other:
                    raise OptionError(f"{source} was trained with {own} as {what} {k}, the environment {here.id} has {other}")
        for then, now in zip(self.controls, here.controls, strict=False):
            if then.name != now.name or not np.allclose(then.values, now.values, rtol=1e-6):
                warnings.warn(
                    f"{source} was trained with controls {then} at actions -1, 0, 1, here they are {now}",
                    SimulationWarning,
                    stacklevel=3,
                )
                break

    def _terms(self) -> tuple[tuple[str, list[str]], ...]:
        """What must be equal, as text: name -> values in order."""
        return (
            ("observation", [f"{entry.name} [{entry.unit}]" for entry in self.observations]),
            ("action", list(self.actions)),
            ("setting", [f"action_memory {self.action_memory}", f"control_period {self.period:g} s"]),
        )


def contract_in(where: Path, settings: Mapping[str, Any], size: tuple[int, int]) -> PolicyContract | None:
    """Contract in a policy's settings; None without such an entry.

    Args:
        where: File of the settings.
        settings: See `agents.policies`.
        size: Lengths of the network's observation and action.

    Raises:
        FileFormatError: The entry has another form, or is of a network of another size.
    """
    if "contract" not in settings:
        return None
    found = PolicyContract.read(f"{where}: contract", settings["contract"])
    if (found.size, len(found.actions)) != size:
        raise FileFormatError(
            f"{where}: the contract has {found.size} observed numbers and {len(found.actions)} actions, the network {size[0]} "
            f"and {size[1]}"
        )
    return found


def controls_of(task: Task, simulator: Simulator) -> tuple[Control, ...]:
    """Controls that each follow one action, piecewise linear with a knot at 0; () if the task scales actions otherwise."""
    na = len(task.action_names)
    unit, still = np.eye(na), np.zeros((1, na))
    low, rest, high = (np.asarray(task.scale_action(actions)) for actions in (-unit, still, unit))
    driver = np.argmax(abs(low - rest) + abs(high - rest), axis=0)  # (nu,)
    along = np.arange(len(driver))
    values = np.stack([low[driver, along], rest[0], high[driver, along]], axis=1)
    probes = np.random.default_rng(0).uniform(-1.0, 1.0, (PROBES, na))
    found = np.stack([np.interp(probes[:, k], KNOTS, row) for k, row in zip(driver, values, strict=True)], axis=1)
    if not np.allclose(found, task.scale_action(probes), rtol=1e-9, atol=1e-9 * np.abs(values).max()):
        return ()
    named = zip(simulator.control_names, simulator.control_units, driver, values.tolist(), strict=True)
    return tuple(Control(name, of, task.action_names[k], tuple(row)) for name, of, k, row in named)


def _on_numpy(env: Any) -> Any:
    """The environment without wrappers; of one with output "torch" the one on NumPy that draws its starts."""
    return getattr(env.unwrapped, "host", env.unwrapped)


def _finite(entry: Entry) -> Entry:
    """The entry with finite limits: JSON has no infinity."""
    ends = np.clip([entry.low, entry.high], -LARGEST_NUMBER, LARGEST_NUMBER)
    return Entry(entry.name, entry.unit, float(ends[0]), float(ends[1]), float(entry.scale))
