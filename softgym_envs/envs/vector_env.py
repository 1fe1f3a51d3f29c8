"""The one native `gymnasium.vector.VectorEnv`: B robots in one simulator call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ..core.errors import OptionError, ShapeError, needed, shown
from ..core.simulator import Array, check_choice, check_number
from ..core.task import BoolArray, check_time, options_of
from ..systems import system as load_system
from .checks import checked_action
from .copies import Copied
from .env import checked_render_mode, draw_row, make_renderer, metadata, require_reset, reset_info, spaces_of, step_info
from .episodes import Observation
from .making import make_episodes

Step = tuple[Observation, Array, BoolArray, BoolArray, dict[str, Any]]

AUTORESET_MODES = {mode.name.lower(): mode for mode in AutoresetMode}
"""Our spelling, "same_step"; Gymnasium's own, "SameStep", is the same but for capitals and underlines."""

ALL_AT_ONCE = ("reset", "step", "close", "np_random_seed")
"""Names that `SoftgymVectorEnv.call` refuses."""


def make_vector_env(
    system: str,
    task: str,
    num_envs: int = 1,
    *,
    output: str = "numpy",
    starts: int | None = None,
    dtype: str = "float64",
    **keywords: Any,
) -> Any:
    """A `SoftgymVectorEnv`, or with output "torch" one of tensors: what `gym.make_vec` calls.

    Tasks that have kernels for a device get a `device_env.DeviceVectorEnv`; others the NumPy environment on the CPU, whose
    arrays become tensors without a copy.

    Args:
        system: Path "package.module:SYSTEM" of the system.
        task: The id.
        num_envs: B.
        output: "numpy" or "torch".
        starts: See `DeviceVectorEnv`.
        dtype: Likewise.
        **keywords: As for `SoftgymVectorEnv`.

    Raises:
        OptionError: A keyword has a value that is not allowed.
        MissingDependencyError: torch is not installed.
    """
    check_choice("output", output, ("numpy", "torch"))
    made = SoftgymVectorEnv(system, task, num_envs, **keywords)
    given = f"dtype is {dtype!r}" if dtype != "float64" else f"starts is {starts!r}" if starts is not None else ""
    if output == "numpy":
        if given:
            raise OptionError(f"{given}, which needs output='torch'")
        return made
    with needed("output='torch' needs torch", "learn"):
        from .device_env import DeviceVectorEnv, has_kernels
    if has_kernels(made.task):
        return DeviceVectorEnv(made, starts=starts, dtype=dtype)
    if given:
        raise OptionError(f"{given}, but {task} has no kernels for a device")
    from gymnasium.wrappers.vector import NumpyToTorch

    return NumpyToTorch(StackedFinal(made))


class StackedFinal(gym.vector.VectorWrapper[Any, Any, Any]):
    """`final_obs` as one array (B, no), as tensors need it; of rows that go on it holds the observation."""

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all rows."""
        observation, reward, terminated, truncated, info = self.env.step(actions)
        if "final_obs" in info:
            final, ended = observation.copy(), info["_final_obs"]
            final[ended] = np.stack(list(info["final_obs"][ended]))
            info["final_obs"] = final
        return observation, reward, terminated, truncated, info


class SoftgymVectorEnv(Copied, gym.vector.VectorEnv[Observation, NDArray[np.float32], Array]):
    """B robots with one task. Row i of `reset(seed=s)` equals `SoftgymEnv.reset(seed=s + i)`, and so does its future.

    >>> import gymnasium as gym
    >>> envs = gym.make_vec("softgym_envs:TensegrityRoll-v0", num_envs=4)
    >>> observations, infos = envs.reset(seed=0)
    >>> observations.shape
    (4, 100)

    Args:
        system: Path "package.module:SYSTEM" of the system.
        task: The id.
        num_envs: B.
        max_episode_steps: Steps after which rows are truncated; None for never.
        autoreset_mode: "next_step" (the step after an episode's last one ignores its action and returns the first
            observation of the next, with reward 0), "same_step" (the last step returns it at once, with `final_obs` and
            `final_info` in the info), "disabled" (rows that have ended wait for `reset(options={"reset_mask": ...})`), or
            Gymnasium's `AutoresetMode`, also by its value: "SameStep".
        render_mode: None or "rgb_array".
        **keywords: As for `SoftgymEnv`.

    Raises:
        KeywordError: A keyword is unknown.
        OptionError: A keyword has a value that is not allowed.
        ParameterError: `params` or `randomize` do not fit the simulator.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012  (Gymnasium's)

    def __init__(
        self,
        system: str,
        task: str,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: str | AutoresetMode = "next_step",
        render_mode: str | None = None,
        **keywords: Any,
    ) -> None:
        if isinstance(num_envs, bool) or not isinstance(num_envs, (int, np.integer)) or num_envs < 1:
            raise OptionError(f"num_envs is {num_envs!r}, expected a whole number >= 1")
        if max_episode_steps is not None:
            max_episode_steps = int(
                check_number("max_episode_steps", max_episode_steps, low=1, whole=True, unit="control steps")
            )
        mode = _autoreset_mode(autoreset_mode)
        if render_mode == "human":
            raise OptionError("render_mode is 'human', a vector environment allows None and 'rgb_array'")
        own = {"num_envs": num_envs, "max_episode_steps": max_episode_steps, "autoreset_mode": mode, "render_mode": render_mode}
        self.built = {"system": system, "task": task, **own, **keywords}
        self.num_envs = int(num_envs)
        self.max_episode_steps = max_episode_steps
        self.render_mode = checked_render_mode(render_mode)
        generators = _generators(int(self.np_random_seed or 0), self.num_envs)
        self.episodes = make_episodes(load_system(system), task, generators, keywords)
        check_time(keywords, self.episodes.settings.control_period, max_episode_steps)
        self.metadata = {**metadata(self.episodes), "render_modes": ["rgb_array"], "autoreset_mode": mode}
        self.single_observation_space, self.single_action_space = spaces_of(self.episodes)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.backend = self.episodes.settings.backend
        self._done = np.zeros(self.num_envs, dtype=np.bool_)
        self._renderer: Any = None

    @property
    def state(self) -> Array:
        """The simulator's states, (B, nx), a copy."""
        return self.episodes.state.copy()

    @property
    def context(self) -> Array:
        """The task's memory, (B, nc), a copy."""
        return self.episodes.context.copy()

    @property
    def autoreset_mode(self) -> AutoresetMode:
        """What happens to a row whose episode has ended."""
        mode: AutoresetMode = self.metadata["autoreset_mode"]
        return mode

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method, or read an attribute, of every row as of a single environment; one result per row.

        "get_state" returns, and "set_state" takes, the state of a single environment. What rows share, such as `simulator`, is
        one object; another method is called once.

        Raises:
            AttributeError: There is none of this name, or rows have none of their own ("reset", "step", "close").
        """
        if name in ALL_AT_ONCE:
            raise AttributeError(f"rows have no {name!r} of their own: use that of the vector environment")
        if name == "set_state":
            (saved,) = (*args, *kwargs.values())
            self.set_state({entry: self._repeated(value) for entry, value in saved.items()})
            return (None,) * self.num_envs
        if name == "get_state":
            saved = self.episodes.snapshot()
            return tuple({entry: value[row : row + 1] for entry, value in saved.items()} for row in range(self.num_envs))
        if name in ("state", "context"):
            return tuple(getattr(self, name))
        if name == "np_random":
            return tuple(self.episodes.rngs)
        value = getattr(self, f"single_{name}" if hasattr(self, f"single_{name}") else name)
        if name == "render":
            return value() or (None,) * self.num_envs
        return (value(*args, **kwargs) if callable(value) else value,) * self.num_envs

    def _repeated(self, value: Any) -> Any:
        """An entry of a single environment's saved state, once per row."""
        return np.repeat(value, self.num_envs, axis=0) if isinstance(value, np.ndarray) else list(value) * self.num_envs

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of every row; see `call`."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute, the same for all rows: one value, or a list or tuple of one per row, all equal.

        Raises:
            OptionError: A list or tuple has another length, or its values differ: rows share their attributes.
            AttributeError: It cannot be set, as "state"; see `call`.
        """
        rows = self.num_envs
        each = values if isinstance(values, (list, tuple)) else [values] * rows
        if len(each) != rows:
            raise OptionError(
                f"set_attr({name!r}) got {len(each)} values, expected one, or one for each of {self.num_envs} rows"
            )
        if not all(value is each[0] or np.array_equal(value, each[0]) for value in each):
            raise OptionError(f"set_attr({name!r}) got values that differ, but the rows share it: give one value")
        setattr(self, name, each[0])

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode in every row.

        Args:
            seed: s: row i is seeded with s + i; or one seed per row; None goes on with the rows' generators.
            options: As for `SoftgymEnv`, for all rows; "state" may be (B, nx). With "reset_mask" (B,) only the rows where
                it is True begin anew; the others stay as they are.

        Raises:
            OptionError: Options are no mapping, an option is unknown or not allowed, or there is not one seed per row.
            ParameterError: A parameter is unknown or out of bounds.
            ShapeError: The state has the wrong shape or is not finite.
        """
        given = options_of(options)
        rows = self.chosen(given.pop("reset_mask", None))
        seeded = self.episodes.rngs if seed is None else self.seeded(seed)
        for row in rows:
            self.episodes.rngs[row] = seeded[row]
        self.episodes.reset(rows, given)
        self._done[rows] = False
        return self.episodes.observed.astype(np.float32), with_masks(reset_info(self.episodes))

    def chosen(self, mask: Any) -> NDArray[np.intp]:
        """Rows that a mask names; None: all.

        Raises:
            OptionError: It does not hold B booleans, one of them True.
            gymnasium.error.ResetNeeded: Other rows have not begun.
        """
        if mask is None:
            return np.arange(self.num_envs)
        array = np.asarray(mask)
        if array.shape != (self.num_envs,) or array.dtype != np.bool_ or not array.any():
            raise OptionError(f"option 'reset_mask' is {mask!r}, expected {self.num_envs} booleans, one of them True")
        if not (self.episodes.begun or array.all()):
            raise gym.error.ResetNeeded("call reset() of all rows first")
        return np.flatnonzero(array)

    def seeded(self, seed: int | Sequence[int]) -> list[np.random.Generator]:
        """Generators of the rows for a seed of `reset`.

        Raises:
            OptionError: There is not one seed per row.
        """
        if isinstance(seed, (int, np.integer)):
            super().reset(seed=int(seed))
            return _generators(int(seed), self.num_envs)
        if not isinstance(seed, (Sequence, np.ndarray)) or isinstance(seed, str):
            raise OptionError(f"seed is {shown(seed)}, expected a whole number >= 0, one for each row, or None")
        if len(seed) != self.num_envs:
            raise OptionError(f"seed holds {len(seed)} seeds, expected one for each of the {self.num_envs} rows")
        seeds = [_checked_seed(f"seed[{row}]", one) for row, one in enumerate(seed)]
        super().reset(seed=seeds[0])
        return [seeding.np_random(one)[0] for one in seeds]

    def step(self, actions: Any) -> Step:  # type: ignore[override]  # flags are booleans, as Gymnasium's own are
        """Run one control period in every row.

        Raises:
            ShapeError: The actions are not (B, na) or hold NaN.
            gymnasium.error.ResetNeeded: No episode has begun.
        """
        require_reset(self.episodes)
        disabled = self.metadata["autoreset_mode"] is AutoresetMode.DISABLED
        if self._done.any():
            if disabled:
                ended = ", ".join(map(str, np.flatnonzero(self._done)))
                raise gym.error.ResetNeeded(f'rows {ended} have ended: call reset(options={{"reset_mask": ended}})')
            return self._step_after_end(actions)
        outcome = self.episodes.step(checked_action(actions, self.action_space.shape))
        truncated = self._truncated()
        done = outcome.terminated | truncated
        info = with_masks(step_info(self.episodes, outcome))
        observation = outcome.observation
        if disabled or self.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP:
            self._done = done
        elif done.any():
            observation = self._reset_at_once(observation, info, done)
        return observation, outcome.reward, outcome.terminated, truncated, info

    def _truncated(self) -> BoolArray:
        if self.max_episode_steps is None:
            return np.zeros(self.num_envs, dtype=np.bool_)
        return np.asarray(self.episodes.steps >= self.max_episode_steps)

    def _step_after_end(self, actions: Any) -> Step:
        """NEXT_STEP: rows whose episode has ended begin a new one, the others go on."""
        ended = self._done
        outcome = self.episodes.step(checked_action(actions, self.action_space.shape), ~ended)
        outcome.observation[ended] = self.episodes.reset(np.flatnonzero(ended))
        outcome.reward[ended] = 0.0
        outcome.terminated[ended] = False
        outcome.success[ended] = False
        outcome.failed[ended] = False
        for name in outcome.terms:
            outcome.terms[name] = np.where(ended, 0.0, outcome.terms[name])
        truncated = self._truncated()
        self._done = outcome.terminated | truncated
        return outcome.observation, outcome.reward, outcome.terminated, truncated, with_masks(step_info(self.episodes, outcome))

    def _reset_at_once(self, observation: Observation, info: dict[str, Any], done: BoolArray) -> Observation:
        """SAME_STEP: the last observation and info of finished rows go to the info, and those of their reset replace them."""
        final = np.full(self.num_envs, None, dtype=object)
        for row in np.flatnonzero(done):
            final[row] = observation[row].copy()
        last = copied(info)
        info.update(final_obs=final, _final_obs=done.copy(), final_info=last, _final_info=done.copy())
        observation = observation.copy()
        observation[done] = self.episodes.reset(np.flatnonzero(done))
        _overwrite(info, reset_info(self.episodes), done)
        return observation

    def get_state(self) -> dict[str, Any]:
        """The full state of all rows; see `SoftgymEnv.get_state`."""
        return {**self.episodes.snapshot(), "done": self._done.copy()}

    def set_state(self, saved: dict[str, Any]) -> None:
        """Continue from `get_state` of an equally built environment: the future repeats bit for bit.

        Raises:
            ShapeError: It comes from another id or number of rows.
            OptionError: An entry is missing, or holds what no environment can reach.
            ParameterError: A parameter is out of its bounds.
        """
        done = np.array(saved.get("done", np.zeros_like(self._done)))
        if done.dtype != np.bool_ or done.shape != self._done.shape:
            raise ShapeError(f"saved 'done' is {shown(done)}, expected booleans of shape {self._done.shape}")
        self.episodes.restore(saved)
        self._done = done

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """One picture (height, width, 3) per row, if the render mode is "rgb_array"."""
        if self.render_mode is None:
            gym.logger.warn('render() without a render mode; use gym.make_vec(id, render_mode="rgb_array")')
            return None
        self._renderer = self._renderer or make_renderer(self.render_mode, self.metadata["render_fps"], self.episodes.settings)
        return tuple(draw_row(self.episodes, row, self._renderer) for row in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Close the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


def with_masks(info: dict[str, Any]) -> dict[str, Any]:
    """Copies, for the caller to keep; by Gymnasium's convention "_key" says which rows have "key": here all have."""
    rows = next(len(value) for value in info.values() if not isinstance(value, dict))
    kept = {name: with_masks(value) if isinstance(value, dict) else value.copy() for name, value in info.items()}
    return {**kept, **{f"_{name}": np.ones(rows, dtype=np.bool_) for name in info}}


def copied(info: dict[str, Any]) -> dict[str, Any]:
    """A copy with copies of the arrays."""
    return {name: copied(value) if isinstance(value, dict) else value.copy() for name, value in info.items()}


def _overwrite(info: dict[str, Any], newer: Mapping[str, Any], rows: BoolArray) -> None:
    """Overwrite some rows, in place."""
    for name, value in newer.items():
        if isinstance(value, dict):
            _overwrite(info[name], value, rows)
        else:
            info[name][rows] = value[rows]


def _autoreset_mode(given: Any) -> AutoresetMode:
    """Gymnasium's member for one of its names or values, however it is written.

    >>> _autoreset_mode("SameStep") is _autoreset_mode("same_step") is AutoresetMode.SAME_STEP
    True
    """
    word = str(getattr(given, "value", given)).lower().replace("_", "")
    for name, mode in AUTORESET_MODES.items():
        if word == name.replace("_", ""):
            return mode
    raise OptionError(f"autoreset_mode is {shown(given)}, allowed are {', '.join(AUTORESET_MODES)}")


def _checked_seed(name: str, seed: Any) -> int:
    """Check a seed."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise OptionError(f"{name} is {shown(seed)}, expected a whole number >= 0")
    return int(seed)


def _generators(seed: int, rows: int) -> list[np.random.Generator]:
    """Generators of the rows; row i's is seeded as that of a single environment with seed + i."""
    return [seeding.np_random(seed + row)[0] for row in range(rows)]
