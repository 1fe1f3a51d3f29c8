"""Robots that run while somebody watches: step by step, at any speed, with parameters, latency and pushes changed on the way.

Knows no browser and no clock: `Live.advance` moves the time. Legend: nx state, n tangent, na actions, no observation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import gymnasium as gym
import numpy as np

from ..core.errors import OptionError
from ..core.mismatch import MismatchedModel
from ..core.parameters import Parameters, ParameterSpec
from ..core.procedure import Procedure
from ..core.simulator import Array, stable_bounds
from ..core.task import load
from ..rendering.scene import Scene
from ..systems import system_of
from .drawing import picture_of, scene_of
from .env import SoftgymEnv

Act = Callable[["Robot"], Any]
"""Robot -> its next action (na,) in -1 ... 1."""
TRAIL = 120
"""Most points of a trail."""
CARRIED = ("state", "context", "parameter_values", "steps", "given", "observed", "pending", "sensors")
"""Entries of `SoftgymEnv.get_state` that a robot keeps when it is built anew."""


def zero(robot: Robot) -> Array:
    """The middle of every control's range."""
    return np.zeros(robot.env.action_space.shape or ())


def random(robot: Robot) -> Array:
    """A random action, the same ones after every reset."""
    return np.random.default_rng([robot.seed, robot.steps]).uniform(-1.0, 1.0, robot.env.action_space.shape)


def rest(robot: Robot) -> Array:
    """The action without any key."""
    return robot.picture.rest_action(robot.simulator.model)


SIMPLE = {"zero": zero, "random": random}
"""Name -> function (robot) -> action (na,): policies that see nothing."""


class Robot:
    """One environment that is stepped, reset, pushed and changed.

    Args:
        name: Id of the environment.
        keywords: Keywords of `gym.make`.
    """

    def __init__(self, name: str, keywords: Mapping[str, Any]) -> None:
        self.name, self.keywords = name, dict(keywords)
        self.changed: dict[str, float] = {}
        """Parameters that were set by hand; they outlast a reset."""
        self.seed = 0
        self._make()
        self.reset(0)

    def _make(self) -> None:
        self.env: gym.Env[Any, Any] = gym.make(self.name, **self.keywords)
        self.inner = cast(SoftgymEnv, self.env.unwrapped)
        self.simulator: Any = self.inner.simulator
        self.picture = picture_of(self.simulator)

    @property
    def parameters(self) -> Parameters:
        """Parameters of the episode."""
        episodes = self.inner.episodes
        return type(episodes.nominal).from_vector(episodes.parameter_values[0])

    @property
    def has_level(self) -> bool:
        """Whether it is a MuJoCo model with levels of mismatch."""
        return isinstance(self.simulator, MismatchedModel)

    def adjustable(self) -> dict[str, ParameterSpec]:
        """Parameters that the system's procedure identifies, or all, within bounds at which steps are stable."""
        system, specs = system_of(self.simulator), self.parameters.specs()
        procedure: Procedure | None = load(system.procedure) if system.procedure else None
        native = system.simulator(self.simulator.model)
        free = [name for stage in procedure.all_stages for name in stage.free_of(native)] if procedure else []
        names = [name for name in dict.fromkeys(free) if name in specs] or list(specs)
        stable = stable_bounds(self.simulator, self.parameters)
        return {name: specs[name].within(stable.get(name)) for name in names}

    # --- the episode ------------------------------------------------------------------------------------------------

    def reset(self, seed: int) -> None:
        """Begin the episode of a seed."""
        options = {"parameters": self.changed} if self.changed else None
        self.observation, self.info = self.env.reset(seed=seed, options=options)
        self.seed, self.steps, self.result, self.over = seed, 0, 0.0, ""
        self.before = self.state = self.inner.state
        self.trail: deque[Array] = deque([self.picture.followed(self.simulator.model, self.state)], maxlen=TRAIL)

    def step(self, action: Array) -> None:
        """One control step under an action (na,); nothing once the episode is over."""
        if self.over:
            return
        self.before = self.state
        self.observation, reward, terminated, truncated, self.info = self.env.step(np.asarray(action, dtype=np.float32))
        self.state = self.inner.state
        self.steps, self.result = self.steps + 1, self.result + float(reward)
        self.trail.append(self.picture.followed(self.simulator.model, self.state))
        if terminated or truncated:
            self.over = "simulation failed" if self.info["sim_failed"] else "ended" if terminated else "time is up"

    def scene(self, share: float = 1.0) -> Scene:
        """The scene at a share of the last control step, between the states before and after it."""
        state = self.state
        if share < 1.0 and not self.over:
            way = self.simulator.difference(self.state[None], self.before[None])
            state = self.simulator.retract(self.before[None], share * way)[0]
        hints = dict(self.inner.task.draw_hints(self.inner.context))
        if len(self.trail) > 2:
            hints["trail"] = np.array([*list(self.trail)[:-1], self.picture.followed(self.simulator.model, state)])
        return scene_of(self.simulator, state, hints, parameters=self.parameters)

    # --- changes ----------------------------------------------------------------------------------------------------

    def set_parameter(self, name: str, value: float) -> None:
        """Change a parameter from now on.

        Raises:
            ParameterError: No such parameter, or a value out of bounds.
        """
        values = self.parameters.replace(**{name: value}).to_vector()
        saved = self.inner.get_state()
        self.inner.set_state({**saved, "parameter_values": values[None]})
        self.changed[name] = value

    def restore_parameters(self) -> None:
        """Parameters as they were before they were set by hand."""
        episodes, saved = self.inner.episodes, self.inner.get_state()
        self.inner.set_state({**saved, "parameter_values": episodes.nominal.to_matrix(1)})
        self.changed.clear()

    def set_latency(self, seconds: float) -> None:
        """Delay actions from now on; the episode goes on.

        Raises:
            OptionError: A latency that is not allowed.
        """
        saved, over = self.inner.get_state(), self.over
        self._rebuild(action_latency=seconds)
        self.inner.set_state({**self.inner.get_state(), **{name: saved[name] for name in CARRIED}})
        self.over = over

    def set_level(self, level: int) -> None:
        """Change the mismatch of a MuJoCo model, 0 ... 3; its episode begins anew.

        Raises:
            OptionError: No such level, or a simulator without levels.
        """
        self._rebuild(options={**self.keywords.get("options", {}), "level": level})
        self.reset(self.seed)

    def _rebuild(self, **keywords: Any) -> None:
        """Make the environment anew, at the start of its episode."""
        before = self.env, self.keywords
        self.keywords = {**self.keywords, **keywords}
        try:
            self._make()
            self.env.reset(seed=self.seed, options={"parameters": self.changed} if self.changed else None)
        except Exception:
            self.env, self.keywords = before
            self.inner = cast(SoftgymEnv, self.env.unwrapped)
            raise
        before[0].close()

    def push(self, direction: Array, speed: float) -> None:
        """Push the robot: an impulse after which the point that the picture follows is faster by about `speed`.

        Simulators know no forces from outside: velocities change at once, those of the task's `disturbance_scale`, each by as
        much as it moves that point along `direction` within a physics step; the largest change is `speed` times its scale.

        Args:
            direction: (3,), of any length.
            speed: [m/s]

        Raises:
            OptionError: Nothing moves that way.
        """
        scale = np.pad(self.inner.task.disturbance_scale, (0, self.simulator.n - len(self.inner.task.disturbance_scale)))
        moved = np.flatnonzero(scale)
        trials = np.zeros((len(moved) + 1, self.simulator.n))
        trials[np.arange(len(moved)), moved] = speed * scale[moved]
        states = self.simulator.retract(np.repeat(self.state[None], len(trials), axis=0), trials)
        control = np.repeat(self.inner.task.scale_action(np.zeros((1, len(self.inner.task.action_names)))), len(trials), axis=0)
        after, _ = self.simulator.step(states, control, self.parameters)
        places = np.array([self.picture.followed(self.simulator.model, state) for state in after])
        effect = np.nan_to_num((places[:-1] - places[-1]) @ np.asarray(direction, dtype=np.float64))
        if not effect.any():
            raise OptionError("a push in this direction moves nothing of this robot")
        impulse = np.zeros(self.simulator.n)
        impulse[moved] = speed * scale[moved] * effect / np.abs(effect).max()
        pushed = self.simulator.retract(self.state[None], impulse[None])
        self.inner.set_state({**self.inner.get_state(), "state": pushed})
        self.state = self.inner.state


class Live:
    """Robots in step, under the actions that are chosen for the first one.

    Args:
        robots: The robots.
        act: Chooses the actions.
        seed: Seed of the first episode.
    """

    def __init__(self, robots: Sequence[Robot], act: Act = rest, seed: int = 0) -> None:
        self.robots, self.act = tuple(robots), act
        self.paused, self.speed, self.next_seed = False, 1.0, True
        self.period: float = robots[0].inner.episodes.settings.control_period
        """Time between actions [s]."""
        self.waited = 0.0
        """Time since the end of the episode [s]."""
        self.reset(seed)

    @property
    def first(self) -> Robot:
        """The robot for which actions are chosen."""
        return self.robots[0]

    def reset(self, seed: int) -> None:
        """Begin the episode of a seed."""
        for robot in self.robots:
            robot.reset(seed)
        self.share, self.waited = 1.0, 0.0

    def step(self) -> None:
        """One control step of every robot."""
        action = self.act(self.first)
        for robot in self.robots:
            robot.step(action)

    def advance(self, seconds: float) -> None:
        """Let time pass [s]; a second after the end of an episode, the next one begins if `next_seed` is set."""
        if self.paused:
            return
        if self.first.over:
            self.waited += seconds
            if self.waited > 1.0 and self.next_seed:
                self.reset(self.first.seed + 1)
            return
        self.share += seconds * self.speed / self.period
        while self.share >= 1.0 and not self.first.over:
            self.step()
            self.share -= 1.0
        if self.first.over:
            self.share = 1.0

    def scenes(self) -> dict[str, Scene]:
        """Scene of every robot now, by its backend."""
        return {robot.inner.backend: robot.scene(min(self.share, 1.0)) for robot in self.robots}

    def close(self) -> None:
        """Close the environments."""
        for robot in self.robots:
            robot.env.close()
