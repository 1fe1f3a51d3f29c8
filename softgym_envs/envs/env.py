"""The one `gymnasium.Env`: any task on any simulator."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ..core.errors import OptionError
from ..core.simulator import Array
from ..core.task import check_time
from ..systems import system as load_system
from .checks import checked_action
from .copies import Copied
from .episodes import Episodes, Observation, Outcome
from .making import make_episodes
from .settings import Settings

_FIRST_ROW = np.zeros(1, dtype=np.intp)

RENDER_MODES = ("human", "rgb_array")


class SoftgymEnv(Copied, gym.Env[Observation, NDArray[np.float32]]):
    """One robot with one task; see `envs.registry` for the ids and `gym.make`.

    Actions are in [-1, 1] (clipped), one per motor; observations are float32, entry by entry in `task.entries`. `info` is
    a fresh dictionary with reward_<term> (their sum is the reward), is_success, sim_failed, what the task measures, and
    "parameters" {name: value} where they differ from the nominal ones. `reset` gives the same keys, with rewards of 0. If the
    simulation breaks down, the last observation comes back with terminated = True and a fixed penalty. A copy by
    `copy.deepcopy` or `pickle` is built anew and goes on from the same point, with the same random numbers.

    >>> env = SoftgymEnv("softgym_envs.systems.tensegrity:SYSTEM", "TensegrityRoll-v0")
    >>> observation, info = env.reset(seed=0)
    >>> observation, reward, terminated, truncated, info = env.step(env.action_space.sample())

    Args:
        system: Path "package.module:SYSTEM" of the system.
        task: The id.
        render_mode: None, "human" or "rgb_array".
        **keywords: Keywords of `episodes.Settings` (backend, model, params, ...) and of the id's own function.

    Raises:
        KeywordError: A keyword is unknown.
        OptionError: A keyword has a value that is not allowed.
        ParameterError: `params` or `randomize` do not fit the simulator.
    """

    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 10}  # noqa: RUF012  (Gymnasium's)

    def __init__(self, system: str, task: str, *, render_mode: str | None = None, **keywords: Any) -> None:
        self.built = {"system": system, "task": task, "render_mode": render_mode, **keywords}
        self.episodes = make_episodes(load_system(system), task, [self.np_random], keywords)
        try:
            check_time(keywords, self.episodes.settings.control_period, load_system(system).task(task).max_episode_steps)
        except OptionError as error:  # Gymnasium's TimeLimit, which is not visible here, may be longer
            gym.logger.warn(str(error))
        self.render_mode = checked_render_mode(render_mode)
        self.metadata = metadata(self.episodes)
        self.observation_space, self.action_space = spaces_of(self.episodes)
        self.backend = self.episodes.settings.backend
        self._renderer: Any = None

    @property
    def state(self) -> Array:
        """The simulator's state, (nx,), a copy."""
        return np.array(self.episodes.state[0])

    @property
    def context(self) -> Array:
        """The task's memory, (nc,), a copy."""
        return np.array(self.episodes.context[0])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Seed of this environment's generator; None continues with it.
            options: "state" (nx,), "parameters" {name: value}, and those of the task (`task.option_names`).

        Raises:
            OptionError: An option is unknown or not allowed.
            ParameterError: A parameter is unknown or out of bounds.
            ShapeError: The state has the wrong shape or is not finite.
        """
        super().reset(seed=seed)
        self.episodes.rngs[0] = self.np_random
        observation = self.episodes.reset(_FIRST_ROW, options)[0]
        if self.render_mode == "human":
            self.render()
        return observation, first_of(reset_info(self.episodes))

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Run one control period.

        Raises:
            ShapeError: The action is not (na,) or holds NaN.
            gymnasium.error.ResetNeeded: No episode has begun.
        """
        require_reset(self.episodes)
        outcome = self.episodes.step(checked_action(action, self.action_space.shape)[None])
        if self.render_mode == "human":
            self.render()
        info = first_of(step_info(self.episodes, outcome))
        return outcome.observation[0], outcome.reward.item(), outcome.terminated.item(), False, info

    def get_state(self) -> dict[str, Any]:
        """The full state of the episode: arrays and JSON-able generator states; see `set_state`.

        A TimeLimit wrapper counts its own steps, which are not part of it.
        """
        return self.episodes.snapshot()

    def set_state(self, saved: dict[str, Any]) -> None:
        """Continue from `get_state` of an equally built environment: the future repeats bit for bit.

        Raises:
            ShapeError: It comes from another id.
            OptionError: An entry is missing, or holds what no environment can reach.
            ParameterError: A parameter is out of its bounds.
        """
        self.episodes.rngs[0] = self.np_random
        self.episodes.restore(saved)

    def render(self) -> Any:
        """The picture (height, width, 3) in "rgb_array"; None, and a window, in "human"."""
        if self.render_mode is None:
            gym.logger.warn('render() without a render mode; use gym.make(id, render_mode="rgb_array")')
            return None
        self._renderer = self._renderer or make_renderer(self.render_mode, self.metadata["render_fps"], self.episodes.settings)
        return draw_row(self.episodes, 0, self._renderer)

    def close(self) -> None:
        """Close the window, if there is one; safe to call twice."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None


# --- shared with the vector environment --------------------------------------------------------------------------------


def spaces_of(episodes: Episodes) -> tuple[spaces.Space[Observation], spaces.Space[Any]]:
    """Observation and action space of one row."""
    observation: Any = spaces.Box(episodes.low.astype(np.float32), episodes.high.astype(np.float32), dtype=np.float32)
    return observation, spaces.Box(-1.0, 1.0, (len(episodes.task.action_names),), dtype=np.float32)


def metadata(episodes: Episodes) -> dict[str, Any]:
    """Render modes and pictures per second (one per control step)."""
    return {"render_modes": list(RENDER_MODES), "render_fps": max(1, round(1.0 / episodes.settings.control_period))}


def checked_render_mode(mode: str | None) -> str | None:
    """Check the render mode.

    Raises:
        OptionError: An unknown mode.
    """
    if mode is not None and mode not in RENDER_MODES:
        raise OptionError(f"render_mode is {mode!r}, allowed are None, {', '.join(RENDER_MODES)}")
    return mode


def require_reset(episodes: Episodes) -> None:
    """Raise `gymnasium.error.ResetNeeded` before the first reset."""
    if not episodes.begun:
        raise gym.error.ResetNeeded("call reset() before step()")


def measures(episodes: Episodes) -> dict[str, Any]:
    """Measures of the task, and the parameters by name if they are not the nominal ones; all (B, ...)."""
    info: dict[str, Any] = episodes.task.measure(episodes.seen, episodes.context)
    if episodes.parameters is not episodes.nominal:
        info["parameters"] = dict(zip(episodes.nominal.names(), episodes.parameter_values.T.copy(), strict=True))
    return info


def step_info(episodes: Episodes, outcome: Outcome) -> dict[str, Any]:
    """`info` of a step, all (B, ...)."""
    info: dict[str, Any] = {"reward_" + name: term for name, term in outcome.terms.items()}
    info["is_success"] = outcome.success
    info["sim_failed"] = outcome.failed
    info.update(measures(episodes))
    return info


def reset_info(episodes: Episodes) -> dict[str, Any]:
    """`info` of a reset, all (B, ...): the keys of a step, with rewards of 0."""
    rows = len(episodes.state)
    info: dict[str, Any] = {"reward_" + name: np.zeros(rows) for name in episodes.term_names}
    info["is_success"] = info["sim_failed"] = np.zeros(rows, dtype=np.bool_)
    info.update(measures(episodes))
    return info


def first_of(info: dict[str, Any]) -> dict[str, Any]:
    """Row 0, as Python numbers where they are numbers."""
    return {
        name: first_of(value) if isinstance(value, dict) else value.item() if value.ndim == 1 else value[0]
        for name, value in info.items()
    }


def make_renderer(mode: str, fps: int, settings: Settings) -> Any:
    """Make a renderer; pygame is imported here and not before."""
    from ..rendering import PygameRenderer

    size = (int(settings.width), int(settings.height))
    return PygameRenderer(size, mode=mode, fps=fps if mode == "human" else None, overlay=settings.overlay)


def draw_row(episodes: Episodes, row: int, renderer: Any) -> Any:
    """Draw one row."""
    from .drawing import render_state

    hints = episodes.task.draw_hints(episodes.context[row])
    parameters = type(episodes.nominal).from_vector(episodes.parameter_values[row])
    simulator, state, view = episodes.simulator, episodes.state[row].copy(), episodes.settings.camera
    return render_state(simulator, state, hints, renderer, parameters=parameters, view=view)  # type: ignore[arg-type]
