"""Receding-horizon control of any id by its own reward: sampled action splines, all rows of a batch side by side.

For every row, action splines are drawn around the plan so far, rolled out in our engine, and mixed by
sums of rewards (`.mpc.mix`). The planner sees the full state, the task's context, and the parameters that the episode drew; it
may drive another world than it plans in.

Where rewards are progress, their sum depends only on the end of a plan. Discounted, progress counts on the way too,
sum g^t (c_t - c_t+1) = c_0 - (1 - g) sum g^t c_t+1 - ..., so that a plan which leaves and comes back is worse than one
which stays.

Legend: B rows, S samples, T horizon, P knots, na actions, g discount, c measure of progress.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Protocol, runtime_checkable

import numpy as np

from softgym_envs.core.errors import OptionError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array, Simulator, check_number
from softgym_envs.core.task import RemembersControls, Task

from .mpc import mix
from .plan import check_splines, spline_matrix

Policy = Callable[[Any], Array]


@runtime_checkable
class _Rows(Protocol):
    """What a `SoftgymVectorEnv` has, and an environment of one robot, or a wrapper, has not."""

    episodes: Any
    num_envs: int
    simulator: Any
    task: Any
    action_space: Any
    state: Array
    context: Array


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
    discount: float = 1.0
    """Factor on a reward from one control step to the next; see the module docstring."""

    def __post_init__(self) -> None:
        for name, lowest in (("horizon", 2), ("knots", 2), ("samples", 2), ("iterations", 1)):
            check_number(name, getattr(self, name), low=lowest, whole=True)
        for name in ("noise", "temperature"):
            check_number(name, getattr(self, name), low=0.0)
        for name in ("narrowing", "discount"):
            check_number(name, getattr(self, name), low=0.0, high=1.0)
        check_splines(self.horizon, self.knots, self.replan_every)

    def controller(self, envs: Any, engine: Simulator, parameters: Parameters | None = None) -> Policy:
        """Policy of a `SoftgymVectorEnv` that plans in `engine` with these parameters; None: the default ones.

        Parameters that an episode draws replace those of their name.

        Raises:
            OptionError: `envs` is no such environment, or the engine is another robot's.
        """
        if not isinstance(envs, _Rows):
            made = "gym.make_vec(..., num_envs=1, vectorization_mode='vector_entry_point')"
            raise OptionError(f"envs is {type(envs).__name__}, expected a SoftgymVectorEnv, as of {made}")
        theirs = envs.simulator.state_names[: engine.nx]
        if engine.state_names != theirs:
            pairs = zip_longest(engine.state_names, theirs, fillvalue="nothing more")
            ours, other = next((a, b) for a, b in pairs if a != b)
            raise OptionError(f"engine is of another robot than envs: its state has {ours!r} where that of envs has {other!r}")
        task, rows, size = envs.task, envs.num_envs, envs.action_space.shape[1]
        rng, spline = np.random.default_rng(0), spline_matrix(self.horizon, self.knots)
        plan, age = np.zeros((rows, self.horizon, size)), self.replan_every
        substeps = round(envs.episodes.settings.control_period / engine.dt)
        model = World(task, engine, substeps, parameters or engine.default_parameters)

        def act(observation: Any) -> Array:
            nonlocal plan, age
            if age >= self.replan_every:
                state, context = envs.state[:, : engine.nx], envs.context
                plan[envs.episodes.steps == 0] = 0.0
                known = replace(model, nominal=with_drawn(model.nominal, envs.episodes, self.samples))
                for k in range(self.iterations):
                    plan = self._better(known, state, context, plan, self.noise * self.narrowing**k * spline, rng)
                age = 0
            action = plan[:, 0].copy()
            plan = np.concatenate([plan[:, 1:], plan[:, -1:]], axis=1)
            age += 1
            return action

        return act

    def _better(
        self, model: World, state: Array, context: Array, plan: Array, spline: Array, rng: np.random.Generator
    ) -> Array:
        """Plans (B, T, na) after a round of sampling around the given ones; `spline` (T, P) scales a standard normal knot."""
        rows, _, size = plan.shape
        noise = rng.standard_normal((rows, self.samples, self.knots, size))
        noise[:, 0] = 0.0
        tried = np.clip(plan[:, None] + np.einsum("tp,bspj->bstj", spline, noise), -1.0, 1.0)
        flat = tried.reshape(rows * self.samples, self.horizon, size)
        states, contexts = np.repeat(state, self.samples, axis=0), np.repeat(context, self.samples, axis=0)
        costs = -model.returns(states, contexts, flat, self.discount).reshape(rows, self.samples)
        return np.array([mix(tried[row], costs[row], self.temperature) for row in range(rows)])


def with_drawn(parameter_values: Parameters, episodes: Any, repeats: int) -> Parameters:
    """Parameters with those that episodes drew as (B * repeats,), each row repeated; drawn ones of unknown name are ignored."""
    usual = episodes.nominal.to_matrix(len(episodes.parameter_values))
    drawn = {}
    for k, name in enumerate(episodes.nominal.names()):
        own = episodes.parameter_values[:, k] != usual[:, k]
        if own.any() and name in parameter_values.names():
            values = np.where(own, episodes.parameter_values[:, k], getattr(parameter_values, name))
            drawn[name] = np.repeat(values, repeats)
    return parameter_values.replace(**drawn) if drawn else parameter_values


@dataclass(frozen=True, eq=False)
class World:
    """A task in an engine, as a planner imagines it: no noise, no delay, one set of parameters."""

    task: Task
    engine: Simulator
    substeps: int
    nominal: Parameters
    """Parameters, of all rows or of each, except those that the task fixes."""

    def returns(self, state: Array, context: Array, actions: Array, discount: float = 1.0) -> Array:
        """Sums of discounted rewards until the episode ends (R,), for actions (R, T, na); -inf where the simulation fails."""
        fixed = {name: value for name, value in self.task.parameter_values.items() if name in self.nominal.names()}
        parameter_values = self.nominal.replace(**fixed)
        total, alive, good = np.zeros(len(state)), np.ones(len(state), dtype=np.bool_), np.ones(len(state), dtype=np.bool_)
        for t, action in enumerate(actions.swapaxes(0, 1)):
            control = self.task.scale_action(action)
            after, status = self.engine.step(state, control, parameter_values, substeps=self.substeps)
            if isinstance(self.task, RemembersControls):
                then = self.task.update_after(context, control, after)
            else:
                then = self.task.update(context, after)
            terms = self.task.reward(state, after, action, context, then)
            total += np.where(alive, discount**t * np.sum(list(terms.values()), axis=0), 0.0)
            good &= (np.asarray(status) == 0) | ~alive
            alive &= ~self.task.terminated(after, then)
            state, context = after, then
        return np.where(good, total, -np.inf)
