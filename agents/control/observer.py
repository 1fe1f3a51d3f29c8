"""The state behind observations, by an ensemble Kalman filter [Evensen2003], for planners that need a state.

Each row has M members: robots in our engine that begin where episodes of the task may begin. Every control step moves them
under the actions that take effect, then corrects them, so that what they would observe agrees with what was observed:

    K = S_xo (S_oo + R)^-1,    x_m <- x_m + K (o + e_m - o_m),    e_m ~ N(0, R)

with the members' sample covariances S, and R of the sensors. States are corrected in the tangent, and with them all that an
episode draws: entries of its context, such as a goal, and parameters, such as a load. The first observation, which has most to
tell, is applied in equal parts [Emerick2013].

Legend: B rows, k of them, M members, n tangent, nc context, P parameters, no observation, na actions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import OptionError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array, Simulator, check_array, check_number
from softgym_envs.core.task import context_after

from .task_mpc import Policy, Rows, World, check_alive, check_robot, substeps_of, with_drawn

PARTS = 4
"""Parts in which the first observation of an episode is applied."""
SURPRISE = 10.0
"""An observation so many standard deviations off tells that an episode has drawn its context anew, such as the next goal."""
INFLATION = 1.01
"""Factor on the spread of the members before a correction: it keeps them from collapsing."""


@dataclass(eq=False)
class _Seen:
    """Episodes with other values of their parameters, (B, P) or of all members."""

    episodes: Any
    parameter_values: Array

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["episodes"], name)


class _Members(NamedTuple):
    """Members of k rows."""

    states: Array
    """(k, M, nx)"""
    contexts: Array
    """(k, M, nc)"""
    values: Array
    """(k, M, P) parameters of the environment, whatever the engine's"""


@dataclass(eq=False)
class Observer:
    """A vector environment as its sensors show it: planners take it in the place of `envs`.

    >>> import gymnasium as gym
    >>> from agents.control.task_mpc import TaskMpc
    >>> from softgym_envs.systems import system
    >>> envs = gym.make_vec("ArmReach-v0", num_envs=2, vectorization_mode="vector_entry_point")
    >>> engine = system("arm").simulator()
    >>> observer = Observer(envs, engine)
    >>> policy = observer.policy(TaskMpc().controller(observer, engine))
    >>> observation, info = envs.reset(seed=0)
    >>> bool(abs(observer.estimated(observation)[:, 0] - envs.state[:, 0]).max() < 0.05)  # elbow [rad]
    True

    Raises:
        OptionError: `envs` is no such environment, the engine is another robot's, or observations are delayed or hold actions.
        ParameterError: `parameters` are not the engine's.
    """

    envs: Any
    """A `SoftgymVectorEnv`, on any backend."""
    engine: Simulator
    """Simulator of the members."""
    parameters: Parameters | None = None
    """One set of the engine; None: the default ones."""
    members: int = 0
    """M; 0: 64, or 2 n if that is more."""
    accuracy: float = 0.01
    """Standard deviation of an observed entry over its scale: that of the sensor noise, or more."""
    seed: int = 0
    """Seed of members and noise."""
    alive: NDArray[np.bool_] | None = None
    """(B,) rows to estimate, which the caller may change; None: all."""
    state: Array = field(init=False)
    """(B, nx) estimates."""
    context: Array = field(init=False)
    """(B, nc) estimates."""

    def __post_init__(self) -> None:
        check_robot(self.envs, self.engine, self.parameters)
        envs, self.members = self.envs, self.members or max(64, 2 * self.engine.n)
        check_number("members", self.members, low=8, whole=True)
        check_number("seed", self.seed, low=0, whole=True)
        check_alive(self.alive, envs.num_envs)
        self.task, self.simulator, self.num_envs = envs.task, envs.simulator, envs.num_envs
        self.action_space, self.max_episode_steps = envs.action_space, envs.max_episode_steps
        settings, entries = envs.episodes.settings, self.task.entries
        if envs.episodes.timing.pending_observations or settings.action_memory:
            raise OptionError(
                "envs has observation_latency, observation_rate or action_memory, which an Observer does not know"
            )
        own = self.parameters or self.engine.default_parameters
        self.world = World(self.task, self.engine, substeps_of(envs, self.engine), own)
        self.deviation = check_number("accuracy", self.accuracy, positive=True) * np.array([e.scale for e in entries])
        self.rngs = np.random.default_rng(self.seed).spawn(self.num_envs)
        starts = envs.__class__(**{**envs.built, "num_envs": self.members, "backend": "native", "autoreset_mode": "next_step"})
        starts.reset(seed=int(np.random.default_rng(self.seed).integers(2**31)))
        first = starts.state[:, : self.engine.nx], starts.context, starts.episodes.parameter_values
        starts.close()
        self.drawn, self.unknown = (np.flatnonzero(np.ptp(one, axis=0) > 0.0) for one in first[1:])
        specs = list(envs.episodes.nominal.specs().values())
        self.bounds = np.array([specs[k].bounds for k in self.unknown]).reshape(-1, 2).T
        self.now = _Members(*(np.repeat(one[None], self.num_envs, axis=0) for one in first))
        self.first = _Members(*(one[None] for one in first))
        self.state, self.context = self.now.states[:, 0].copy(), self.now.contexts[:, 0].copy()
        self.episodes = _Seen(envs.episodes, self.now.values[:, 0].copy())
        self.acting = np.zeros((2, *self.action_space.shape))

    def policy(self, planner: Policy) -> Policy:
        """Policy of the environment that plans from the estimates; `planner` was made with this observer as its `envs`."""

        def act(observation: Any) -> Array:
            self.estimated(observation)
            action = planner(observation)
            self.acting = np.array(self._effective(action))
            return action

        return act

    def _effective(self, action: Array) -> tuple[Array, Array]:
        """The actions (B, na) that take effect in the next control step, the older one first."""
        line = np.concatenate([self.episodes.queue, np.asarray(action, dtype=np.float64)[:, None]], axis=1)
        every = np.arange(len(line))
        newer = line.shape[1] - 1 - self.world.late(self.episodes, every)[0]
        return line[every, np.maximum(newer - 1, 0)], line[every, newer]

    def estimated(self, observation: Any) -> Array:
        """States (B, nx) after an observation (B, no) of the next control step; contexts are in `context`.

        Raises:
            ShapeError: The observation has another shape, or is not finite.
        """
        seen = check_array("observation", observation, (self.num_envs, len(self.task.entries)))
        begins = self.episodes.steps == 0
        alive = np.ones(self.num_envs, dtype=np.bool_) if self.alive is None else self.alive
        for rows in (np.flatnonzero(alive & begins), np.flatnonzero(alive & ~begins)):
            if len(rows):
                self._begin(rows, seen[rows]) if begins[rows[0]] else self._go_on(rows, seen[rows])
        return self.state

    def _begin(self, rows: Rows, seen: Array) -> None:
        """First observations (k, no) of episodes."""
        members = _Members(*(np.repeat(one, len(rows), axis=0) for one in self.first))
        for _ in range(PARTS):
            members = self._corrected(rows, members, self._shown(members.states, members.contexts), seen, PARTS**0.5)
        self._keep(rows, members)

    def _go_on(self, rows: Rows, seen: Array) -> None:
        """Observations (k, no) of a control step later."""
        before, control = _Members(*(one[rows] for one in self.now)), self._repeated(self.acting[1, rows])
        states = self._moved(rows, before, self._repeated(self.acting[0, rows]), control)
        contexts = self._after(before.contexts, control, states)
        shown = self._shown(states, contexts)
        spread = np.sqrt(shown.var(axis=1) + self.deviation**2)
        lost = (np.abs(seen - shown.mean(axis=1)) > SURPRISE * spread).any(axis=1)
        if lost.any():
            before.contexts[np.ix_(lost, np.arange(self.members), self.drawn)] = self.first.contexts[:, :, self.drawn]
            contexts = np.where(lost[:, None, None], self._after(before.contexts, control, states), contexts)
            shown = self._shown(states, contexts)
        self._keep(rows, self._corrected(rows, _Members(states, contexts, before.values), shown, seen, 1.0))

    def _moved(self, rows: Rows, members: _Members, older: Array, newer: Array) -> Array:
        """States (k, M, nx) after a control step under controls (k M, nu)."""
        late = np.repeat(self.world.late(self.episodes, rows)[1], self.members)
        drawn = _Seen(self.episodes, _flat(members.values))
        world = replace(self.world, nominal=with_drawn(self.world.nominal, drawn, np.arange(len(late))))
        start = _flat(members.states)
        if self.episodes.kick.any():
            kicks = np.concatenate([self.rngs[row].standard_normal((self.members, self.engine.n)) for row in rows])
            start = self.engine.retract(start, self.episodes.kick[: self.engine.n] * kicks)
        moved, failed = world.move(start, older, newer, late)
        bad = failed | ~np.isfinite(moved).all(axis=1)
        return self._rows(np.where(bad[:, None], start, moved))

    def _keep(self, rows: Rows, members: _Members) -> None:
        """Corrected members -> estimates: flags of contexts stay flags in a median."""
        self.state[rows, : self.engine.nx] = self._mean(members.states)
        self.context[rows] = np.sort(members.contexts, axis=1)[:, self.members // 2]
        self.episodes.parameter_values[rows] = members.values.mean(axis=1)
        for all_rows, own in zip(self.now, members, strict=True):
            all_rows[rows] = own

    def _repeated(self, action: Array) -> Array:
        """Controls (k M, nu) of actions (k, na)."""
        return np.repeat(self.task.scale_action(action), self.members, axis=0)

    def _after(self, contexts: Array, control: Array, states: Array) -> Array:
        """Contexts (k, M, nc) after a step under controls (k M, nu) to states (k, M, nx)."""
        return self._rows(context_after(self.task, _flat(contexts), control, _flat(states)))

    def _shown(self, states: Array, contexts: Array) -> Array:
        """What members would observe, (k, M, no)."""
        found = self.task.observe(_flat(states), _flat(contexts))
        return self._rows(np.clip(found, self.episodes.low, self.episodes.high))

    def _mean(self, states: Array) -> Array:
        """Mean states (k, nx)."""
        first = states[:, 0]
        change = self.engine.difference(_flat(states), np.repeat(first, self.members, axis=0))
        return self.engine.retract(first, self._rows(change).mean(axis=1))

    def _corrected(self, rows: Rows, members: _Members, shown: Array, seen: Array, factor: float) -> _Members:
        """Members, which would observe `shown` (k, M, no), after an observation (k, no) with the noise times a factor."""
        states, contexts, values = members
        mean = np.repeat(self._mean(states), self.members, axis=0)
        change = self._rows(self.engine.difference(_flat(states), mean))
        x = np.concatenate([change, contexts[:, :, self.drawn], values[:, :, self.unknown]], axis=2)
        middle = x.mean(axis=1, keepdims=True)
        x, o = (INFLATION * (one - one.mean(axis=1, keepdims=True)) for one in (x, shown))
        deviation = factor * self.deviation
        noise = deviation * np.array([self.rngs[row].standard_normal(shown.shape[1:]) for row in rows])
        error = seen[:, None] + noise - (shown.mean(axis=1, keepdims=True) + o)
        cover = o.swapaxes(1, 2) @ o + (self.members - 1) * np.diag(deviation**2)
        x += middle + error @ np.linalg.solve(cover, o.swapaxes(1, 2) @ x)
        change, drawn, unknown = np.split(x, np.cumsum([change.shape[2], len(self.drawn)]), axis=2)
        contexts, values = contexts.copy(), values.copy()
        contexts[:, :, self.drawn], values[:, :, self.unknown] = drawn, np.clip(unknown, *self.bounds)
        return _Members(self._rows(self.engine.retract(mean, _flat(change))), contexts, values)

    def _rows(self, array: Array) -> Array:
        """(k M, n) -> (k, M, n)."""
        found = np.asarray(array)
        return found.reshape(-1, self.members, found.shape[1])


def _flat(array: Array) -> Array:
    """(k, M, n) -> (k M, n)."""
    return np.ascontiguousarray(array.reshape(-1, array.shape[2]))
