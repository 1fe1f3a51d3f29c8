"""A vector environment that notes whether a controller reads more than observations."""

from __future__ import annotations

from typing import Any

READ = (
    "state", "context", "parameter_values", "parameters", "seen", "clean", "pending", "sensors", "rngs",
    "get_state", "snapshot",
)  # fmt: skip
"""What no sensor gives."""
UNWATCHED = ("episodes", "unwrapped", "np_random")
"""What `call` gives as it is."""


class Watched:
    """Passes everything on; notes reading of `READ`, also from its `episodes`, and copying: a copy is what was watched.

    The properties are those that `agents.control.task_mpc` asks a vector environment for.
    """

    def __init__(self, inner: Any, notes: set[str] | None = None) -> None:
        self._inner, self._notes = inner, set[str]() if notes is None else notes

    def __getattr__(self, name: str) -> Any:
        """What the environment has."""
        if name in READ:
            self._notes.add(name)
        return getattr(self.__dict__["_inner"], name)

    @property  # type: ignore[misc]  # Python allows it
    def __class__(self) -> Any:
        """That of the environment."""
        return self._inner.__class__

    def __reduce_ex__(self, protocol: Any) -> Any:
        """What `copy` and `pickle` make a copy from: the environment itself, with its state."""
        self._notes.add("copy")
        return self._inner.__reduce_ex__(protocol)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """What the rows have."""
        if name in (*READ, *UNWATCHED):
            self._notes.add(name)
        return self._inner.call(name, *args, **kwargs)

    def get_attr(self, name: str) -> Any:
        """What the rows have."""
        return self.call(name)

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
    def kind(self) -> str:
        """What was read so far."""
        return "full state" if self._notes else "sensors"
