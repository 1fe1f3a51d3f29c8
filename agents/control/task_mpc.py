"""Receding-horizon control of any id by its own reward: sampled action splines, all rows of a batch side by side.

For every row, action splines are drawn around the plan so far, rolled out in our engine, and mixed by
sums of rewards: by MPPI (`.mpc.mix`), or as the mean of the best ones (cross-entropy method). The planner sees the full
state, the task's context, the parameters that the episode drew, and the actions that wait for their latency to end: it plays
them first and plans from there. It may drive another world than it plans in. A row that begins an episode begins a plan,
whatever the others do.

Where rewards are progress, their sum depends only on the end of a plan. Discounted, progress counts on the way too,
sum g^t (c_t - c_t+1) = c_0 - (1 - g) sum g^t c_t+1 - ..., so that a plan which leaves and comes back is worse than one
which stays.

Legend: B rows, S samples, R rows of an engine, T horizon, P knots, na actions, g discount, c measure of progress.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import OptionError, ParameterError, ShapeError, shown
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array, Simulator, check_number
from softgym_envs.core.task import Task, context_after
from softgym_envs.core.trajectory import whole_steps

from .mpc import mix
from .plan import check_splines, spline_matrix

Policy = Callable[[Any], Array]
Rows = NDArray[np.intp]


@runtime_checkable
class _VectorEnv(Protocol):
    """What a `SoftgymVectorEnv` has, and an environment of one robot or of tensors, or a wrapper, has not."""

    episodes: Any
    num_envs: int
    simulator: Any
    task: Any
    action_space: Any


@dataclass(frozen=True)
class TaskMpc:
    """Settings; see the module docstring. `controller` makes the policy of a vector environment.

    Raises:
        OptionError: A value out of its range.
    """

    horizon: int = 20
    """Horizon T in control steps."""
    knots: int = 5
    """Number P of knots of the linear spline."""
    samples: int = 48
    """Samples S."""
    noise: float = 0.5
    """Standard deviation of a knot; actions are in -1 ... 1."""
    iterations: int = 1
    """Rounds of sampling per plan."""
    narrowing: float = 1.0
    """Factor of the noise from one round to the next; below 1 the last rounds refine."""
    replan_every: int = 2
    """Control steps between plans."""
    temperature: float = 0.1
    """See `.mpc.mix`."""
    elites: int = 0
    """0: MPPI. E: the cross-entropy method; mean and spread of the best E samples are those of the next round."""
    discount: float = 1.0
    """Factor on a reward from one control step to the next; see the module docstring."""

    def __post_init__(self) -> None:
        for name, lowest in (("horizon", 2), ("knots", 2), ("samples", 2), ("iterations", 1)):
            check_number(name, getattr(self, name), low=lowest, whole=True)
        for name in ("noise", "temperature"):
            check_number(name, getattr(self, name), low=0.0)
        for name in ("narrowing", "discount"):
            check_number(name, getattr(self, name), low=0.0, high=1.0)
        check_number("elites", self.elites, low=0, high=self.samples, whole=True)
        check_splines(self.horizon, self.knots, self.replan_every)

    def controller(
        self,
        envs: Any,
        engine: Simulator,
        parameters: Parameters | None = None,
        *,
        seed: int = 0,
        alive: NDArray[np.bool_] | None = None,
    ) -> Policy:
        """Policy of a `SoftgymVectorEnv` that plans in `engine` with these parameters; None: the default ones.

        Parameters that an episode draws replace those of their name. Every row has its own random numbers.

        Args:
            envs: The environment.
            engine: Simulator of the plans.
            parameters: Parameters of the engine, one set.
            seed: Seed of the samples.
            alive: (B,) rows to plan for, which the caller may change; the others get their old plans. None: all.

        Raises:
            OptionError: `envs` is no such environment, the engine is another robot's, its physics steps do not divide the
                control period, or the seed is no whole number >= 0.
            ParameterError: `parameters` are not the engine's.
        """
        check_robot(envs, engine, parameters)
        check_number("seed", seed, low=0, whole=True)
        check_alive(alive, envs.num_envs)
        rows, size = envs.num_envs, envs.action_space.shape[1]
        rngs = np.random.default_rng(seed).spawn(rows)
        plan, age = np.zeros((rows, self.horizon, size)), np.zeros(rows, dtype=np.int64)
        model = World(envs.task, engine, substeps_of(envs, engine), parameters or engine.default_parameters)

        def act(observation: Any) -> Array:
            begins = envs.episodes.steps == 0
            plan[begins] = 0.0
            due = np.flatnonzero((begins | (age % self.replan_every == 0)) & (True if alive is None else alive))
            if len(due):
                plan[due] = self._planned(model, envs, due, plan[due], [rngs[row] for row in due])
                age[due] = 0
            action = plan[:, 0].copy()
            plan[:, :-1] = plan[:, 1:]
            age[:] += 1
            return action

        return act

    def _planned(self, model: World, envs: Any, rows: Rows, plan: Array, rngs: list[np.random.Generator]) -> Array:
        """Plans (k, T, na) of some rows (k,), from when the actions that wait have been played."""
        each = replace(model, nominal=with_drawn(model.nominal, envs.episodes, rows))
        many = replace(model, nominal=with_drawn(model.nominal, envs.episodes, np.repeat(rows, self.samples)))
        start = each.begin(envs, rows).repeat(self.samples)
        spline = spline_matrix(self.horizon, self.knots)
        spread = np.full((len(rows), self.knots, plan.shape[2]), self.noise)
        for _ in range(self.iterations):
            plan, spread = self._better(many, start, plan, spread, spline, rngs)
        return plan

    def _better(
        self, model: World, start: Start, plan: Array, spread: Array, spline: Array, rngs: list[np.random.Generator]
    ) -> tuple[Array, Array]:
        """Plans (k, T, na) and spreads (k, P, na) after a round of sampling around the given ones."""
        rows, _, size = plan.shape
        noise = np.array([rng.standard_normal((self.samples, self.knots, size)) for rng in rngs])
        noise[:, 0] = 0.0
        noise *= spread[:, None]
        tried = np.clip(plan[:, None] + np.einsum("tp,bspj->bstj", spline, noise), -1.0, 1.0)
        flat = tried.reshape(rows * self.samples, self.horizon, size)
        costs = -model.returns(start, flat, self.discount).reshape(rows, self.samples)
        if not self.elites:
            return np.array([mix(tried[row], costs[row], self.temperature) for row in range(rows)]), self.narrowing * spread
        best = np.argsort(costs, axis=1, kind="stable")[:, : self.elites, None, None]
        chosen = np.take_along_axis(noise, best, axis=1)
        return np.take_along_axis(tried, best, axis=1).mean(axis=1), chosen.std(axis=1)


def check_robot(envs: Any, engine: Simulator, parameters: Any) -> None:
    """Check that an environment is a `SoftgymVectorEnv` of the engine's robot, and parameters the engine's, or None.

    Raises:
        OptionError: The environment is not.
        ParameterError: The parameters are not.
    """
    if not isinstance(envs, _VectorEnv):
        made = "gym.make_vec(..., num_envs=1, vectorization_mode='vector_entry_point', output='numpy')"
        raise OptionError(f"envs is {type(envs).__name__}, expected a SoftgymVectorEnv, as of {made}")
    theirs = envs.simulator.state_names[: engine.nx]
    if engine.state_names != theirs:
        pairs = zip_longest(engine.state_names, theirs, fillvalue="nothing more")
        ours, other = next((a, b) for a, b in pairs if a != b)
        raise OptionError(f"engine is of another robot than envs: its state has {ours!r} where that of envs has {other!r}")
    if not isinstance(parameters, (kind := type(engine.default_parameters), type(None))):
        raise ParameterError(f"parameters is {shown(parameters)}, expected {kind.__name__}, or None")


def check_alive(alive: Any, rows: int) -> None:
    """Check (B,) flags of rows, or None.

    Raises:
        ShapeError: They have another shape.
    """
    if alive is not None and np.shape(alive) != (rows,):
        raise ShapeError(f"alive has shape {np.shape(alive)}, expected ({rows},): one flag for each row of envs")


def substeps_of(envs: Any, engine: Simulator) -> int:
    """Physics steps of the engine in a control step of the environment.

    Raises:
        OptionError: They are no whole number.
    """
    return whole_steps("the control period of envs", envs.episodes.settings.control_period, engine.dt)


def with_drawn(parameter_values: Parameters, episodes: Any, rows: Rows) -> Parameters:
    """Parameters (k,) of some rows (k,) with those that their episodes drew; drawn ones of unknown name are ignored."""
    usual = episodes.nominal.to_matrix(len(episodes.parameter_values))
    drawn = {}
    for k, name in enumerate(episodes.nominal.names()):
        own = episodes.parameter_values[:, k] != usual[:, k]
        if own.any() and name in parameter_values.names():
            drawn[name] = np.where(own, episodes.parameter_values[:, k], getattr(parameter_values, name))[rows]
    return parameter_values.replace(**drawn) if drawn else parameter_values


class Start(NamedTuple):
    """Where imagined actions begin to act, R rows."""

    state: Array
    """(R, nx)"""
    context: Array
    """(R, nc)"""
    older: Array
    """(R, na): the action before them, which goes on for `late` physics steps."""
    late: Rows
    """(R,): rest of the latency within a control step [physics steps of the engine]"""

    def repeat(self, times: int) -> Start:
        """Each row `times` times."""
        state, context, older = (np.repeat(array, times, axis=0) for array in self[:3])
        return Start(state, context, older, np.repeat(self.late, times))


@dataclass(frozen=True, eq=False)
class World:
    """A task in an engine, as a planner imagines it: no noise, one set of parameters."""

    task: Task
    engine: Simulator
    substeps: int
    nominal: Parameters
    """Parameters, of all rows or of each, except those that the task fixes."""

    @cached_property
    def parameter_values(self) -> Parameters:
        """All parameters."""
        names = self.nominal.names()
        return self.nominal.replace(**{name: value for name, value in self.task.parameter_values.items() if name in names})

    def begin(self, envs: Any, rows: Rows) -> Start:
        """Play the actions that wait in some rows (k,) of an environment."""
        queue, every = envs.episodes.queue[rows], np.arange(len(rows))
        count, (whole, rest) = queue.shape[1], self.late(envs.episodes, rows)
        state, context = envs.state[rows, : self.engine.nx], envs.context[rows]
        for t in range(whole.max()):
            newer = np.minimum(count - whole + t, count - 1)
            older, waits = np.maximum(newer - 1, 0), (t < whole)[:, None]
            after, then, _, _ = self._step(state, context, queue[every, older], queue[every, newer], rest)
            state, context = np.where(waits, after, state), np.where(waits, then, context)
        last = queue[:, -1] if count else np.zeros((len(rows), len(self.task.action_names)))
        return Start(state, context, last, rest)

    def late(self, episodes: Any, rows: Rows) -> tuple[Rows, Rows]:
        """Latency of actions in some rows (k,): whole control steps, and physics steps of the engine beyond them."""
        late, real = episodes.late[rows, 0], episodes.substeps
        return late // real, (late % real * self.substeps + real // 2) // real

    def returns(self, start: Start, actions: Array, discount: float = 1.0) -> Array:
        """Sums of discounted rewards until the episode ends (R,), for actions (R, T, na); -inf where the simulation fails."""
        state, context, older, late = start
        total, alive, good = np.zeros(len(state)), np.ones(len(state), dtype=np.bool_), np.ones(len(state), dtype=np.bool_)
        for t, action in enumerate(actions.swapaxes(0, 1)):
            state, context, reward, failed = self._step(state, context, older, action, late)
            total += np.where(alive, discount**t * reward, 0.0)
            good &= ~failed | ~alive
            alive &= ~self.task.terminated(state, context)
            older = action
        return np.where(good, total, -np.inf)

    def _step(self, state: Array, context: Array, older: Array, action: Array, late: Rows) -> tuple[Array, Array, Array, Any]:
        """One control step, which the older action begins: states, contexts, rewards (R,), and whether it failed (R,)."""
        control = self.task.scale_action(action)
        after, failed = self.move(state, self.task.scale_action(older), control, late)
        then = context_after(self.task, context, control, after)
        terms = self.task.reward(state, after, action, context, then)
        return after, then, np.sum(list(terms.values()), axis=0), failed

    def move(self, state: Array, older: Array, newer: Array, late: Rows) -> tuple[Array, Any]:
        """States after a control step whose first `late` physics steps are under the older control; whether it failed."""
        if not late.any():
            after, status = self.engine.step(state, newer, self.parameter_values, substeps=self.substeps)
            return after, np.asarray(status) != 0
        after, failed, values = state.copy(), np.zeros(len(state), dtype=np.bool_), self.parameter_values
        for change in np.unique(late).tolist():
            rows = np.flatnonzero(late == change)
            own = values if values.batch is None else type(values).from_vector(values.to_matrix(len(state))[rows])
            for control, steps in ((older, change), (newer, self.substeps - change)):
                if steps:
                    after[rows], status = self.engine.step(after[rows], control[rows], own, substeps=steps)
                    failed[rows] |= np.asarray(status) != 0
        return after, failed
