"""A vector environment that notes whether a controller reads more than observations."""

from __future__ import annotations

from typing import Any

READ = ("state", "context", "parameter_values", "parameters", "seen")
"""What no sensor gives."""


class Watched:
    """Passes everything on; notes reading of `READ`, also from its `episodes`.

    The properties are those that `agents.control.task_mpc` asks a vector environment for.
    """

    def __init__(self, inner: Any, notes: set[str] | None = None) -> None:
        self._inner, self._notes = inner, set[str]() if notes is None else notes

    def __getattr__(self, name: str) -> Any:
        """What the environment has."""
        if name in READ:
            self._notes.add(name)
        return getattr(self.__dict__["_inner"], name)

    @property
    def unwrapped(self) -> Any:
        """This one."""
        return self

    @property
    def episodes(self) -> Any:
        """The episodes, watched, too."""
        return Watched(self._inner.episodes, self._notes)

    @property
    def num_envs(self) -> int:
        """B."""
        return int(self._inner.num_envs)

    @property
    def simulator(self) -> Any:
        """The simulator."""
        return self._inner.simulator

    @property
    def task(self) -> Any:
        """The task."""
        return self._inner.task

    @property
    def action_space(self) -> Any:
        """Actions of all rows."""
        return self._inner.action_space

    @property
    def state(self) -> Any:
        """States."""
        return self.__getattr__("state")

    @property
    def context(self) -> Any:
        """Contexts."""
        return self.__getattr__("context")

    @property
    def kind(self) -> str:
        """What was read so far."""
        return "full state" if self._notes else "sensors"
