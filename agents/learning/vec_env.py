"""Our batched environments for stable-baselines3, which refuses a Gymnasium VectorEnv."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from softgym_envs.core.errors import OptionError, needed

with needed("agents.learning.vec_env needs stable-baselines3", "learn"):
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvStepReturn


OWN = ("state", "context")
"""Attributes that every row has on its own."""
ROW_BY_ROW = ("get_state", "set_state", "render")
"""Methods that `env_method` calls for single rows, as if they were separate environments."""


class RowInfos(Sequence[dict[str, Any]]):
    """One info per row, made when it is read: most are not.

    Args:
        info: That of the batched environment.
        ends: Row -> its info, where an episode has ended.
        rows: Number of rows.
    """

    def __init__(self, info: dict[str, Any], ends: Mapping[int, dict[str, Any]], rows: int) -> None:
        self.info, self.ends, self.rows = info, ends, range(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[row] for row in self.rows[index]]
        row = self.rows[index]
        return self.ends[row] if row in self.ends else row_of(self.info, row)


class SB3VecEnv(VecEnv):
    """A Gymnasium VectorEnv in SAME_STEP mode as a stable-baselines3 VecEnv.

    An episode's end shows as `done`; its last observation is in info["terminal_observation"], "TimeLimit.truncated" says
    whether time ended it, and info["episode"] holds return "r", length "l" and seconds "t" as Monitor writes them.

    >>> import gymnasium as gym
    >>> envs = SB3VecEnv(gym.make_vec("softgym_envs:TensegrityRoll-v0", num_envs=2, autoreset_mode="same_step"))
    >>> envs.reset().shape
    (2, 100)

    Start Python with OMP_NUM_THREADS=1 in the environment (`scripts/train.py` sets it itself): otherwise PyTorch's threads and
    the simulator's compete for the processors, and training takes 2 to 10 times as long.

    Args:
        envs: The batched environment.

    Raises:
        OptionError: It does not reset in SAME_STEP mode, or gives tensors.
    """

    def __init__(self, envs: gym.vector.VectorEnv[Any, Any, Any]) -> None:
        mode = envs.metadata.get("autoreset_mode")
        if mode not in (AutoresetMode.SAME_STEP, AutoresetMode.SAME_STEP.value):
            raise OptionError(f'the environment resets by {mode}; make it with gym.make_vec(..., autoreset_mode="same_step")')
        if envs.spec is not None and envs.spec.kwargs.get("output") == "torch":
            raise OptionError("the environment has output='torch'; stable-baselines3 needs output='numpy'")
        self.envs = envs
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self.metadata["render_fps"] = envs.metadata.get("render_fps", 30)
        self._actions: Any = None
        self._start = time.perf_counter()
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, dtype=np.int64)

    def reset(self) -> NDArray[Any]:
        """Begin an episode in every row, with the seeds given to `seed` and the options given to `set_options`.

        Raises:
            OptionError: Options differ from row to row.
        """
        first = self._options[0]
        if any(options is not first and (options or first) for options in self._options):
            raise OptionError("set_options was given one dictionary per row; all rows take one and the same")
        seeds = [seed for seed in self._seeds if seed is not None]
        observation, info = self.envs.reset(seed=seeds or None, options=first)  # type: ignore[arg-type]
        self.reset_infos = [row_of(info, row) for row in range(self.num_envs)]
        self._returns[:], self._lengths[:] = 0.0, 0
        self._reset_seeds()
        self._reset_options()
        return np.asarray(observation)

    def step_async(self, actions: NDArray[Any]) -> None:
        """Store the actions (B, na)."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Take the step: observations, rewards (float32), dones, one info per row."""
        observation, reward, terminated, truncated, info = self.envs.step(self._actions)
        done = np.logical_or(terminated, truncated)
        self._returns += reward
        self._lengths += 1
        ends = {int(row): self._end(row, info, bool(truncated[row] and not terminated[row])) for row in np.flatnonzero(done)}
        infos: Any = RowInfos(info, ends, self.num_envs)
        return np.asarray(observation), np.asarray(reward, dtype=np.float32), done, infos

    def _end(self, row: np.intp, info: dict[str, Any], by_time: bool) -> dict[str, Any]:
        """Info of an episode's last step."""
        episode = {"r": float(self._returns[row]), "l": int(self._lengths[row]), "t": time.perf_counter() - self._start}
        self._returns[row], self._lengths[row] = 0.0, 0
        last = row_of(info["final_info"], int(row))
        return {**last, "terminal_observation": info["final_obs"][row], "TimeLimit.truncated": by_time, "episode": episode}

    def close(self) -> None:
        """Close the batched environment."""
        self.envs.close()

    def get_images(self) -> list[NDArray[np.uint8] | None]:
        """One picture per row, if the environment has a render mode."""
        frames: Any = self.envs.render()
        return [None] * self.num_envs if frames is None else list(frames)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """An attribute of every row: its own state, context and spaces; any other attribute is that of the batched environment.

        Raises:
            AttributeError: It has none of this name.
            IndexError: There is no such row.
        """
        rows, envs = rows_of(self, indices), self._with(attr_name)
        value = getattr(envs, f"single_{attr_name}", getattr(envs, attr_name))
        return [value[row] if attr_name in OWN else value for row in rows]

    def _with(self, name: str) -> Any:
        """The outermost environment or wrapper that has an attribute of this name; without one the environment itself."""
        envs: Any = self.envs
        while not hasattr(envs, name) and isinstance(envs, gym.vector.VectorWrapper):
            envs = envs.env
        return envs

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of the batched environment.

        Raises:
            OptionError: Only some rows are meant.
            AttributeError: It cannot be set, as "state"; see `env_method`.
        """
        _require_all(self, f"set {attr_name}", indices)
        setattr(self.envs, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of the batched environment once; its result, once per row.

        "get_state" returns, and "set_state" takes, the state of one row; "render" returns its picture.

        Raises:
            OptionError: Only some rows are given, for another method than these; or "reset" or "step".
        """
        if method_name in ("reset", "step"):
            raise OptionError(f"cannot {method_name} by env_method: all rows do so at once; call {method_name}() itself")
        if method_name in ROW_BY_ROW:
            return self._row_by_row(method_name, rows_of(self, indices), *method_args, **method_kwargs)
        _require_all(self, f"call {method_name}", indices)
        method: Callable[..., Any] = getattr(self._with(method_name), method_name)
        return [method(*method_args, **method_kwargs)] * self.num_envs

    def _row_by_row(self, method_name: str, rows: list[int], saved: Mapping[str, Any] | None = None) -> list[Any]:
        """See `env_method`."""
        if method_name == "render":
            images = self.get_images()
            return [images[row] for row in rows]
        envs: Any = self.envs.unwrapped
        everything = envs.get_state()
        if method_name == "get_state":
            return [{name: value[row : row + 1] for name, value in everything.items()} for row in rows]
        for name, value in everything.items():
            given = (saved or {}).get(name, [False] if name == "done" else [])
            if np.shape(given)[:1] != (1,):
                raise OptionError(f"the saved state has {name!r} of length {len(given)}, expected that of one row")
            for row in rows:
                value[row] = given[0]
        envs.set_state(everything)
        return [None] * len(rows)

    def env_is_wrapped(self, wrapper_class: Any, indices: VecEnvIndices = None) -> list[bool]:
        """No row is wrapped on its own; the episode data of Monitor is there already, so none is needed."""
        return [wrapper_class is Monitor for _ in rows_of(self, indices)]


def rows_of(envs: VecEnv, indices: VecEnvIndices) -> list[int]:
    """Indices of the given rows, None: all; as in a list, -1 is the last one.

    Raises:
        IndexError: There is no such row.
    """
    return [range(envs.num_envs)[row] for row in envs._get_indices(indices)]


def _require_all(envs: VecEnv, what: str, indices: VecEnvIndices) -> None:
    if len(set(rows_of(envs, indices))) != envs.num_envs:
        raise OptionError(f"cannot {what} for rows {indices} alone: all {envs.num_envs} rows are one environment")


def row_of(info: dict[str, Any], row: int) -> dict[str, Any]:
    """One row of a vector environment's info, without the masks and the last episode's entries."""
    skip = ("final_obs", "final_info")
    shown = {name: value for name, value in info.items() if not name.startswith("_") and name not in skip}
    return {name: row_of(value, row) if isinstance(value, dict) else value[row] for name, value in shown.items()}
