"""Planning in the actions of a task: a simulator driven by them, and the task's reward as a cost.

Any planner of this package minimises minus the reward of an id so, within -1 ... 1, whatever the actions do to the controls::

    simulator = ActionSimulator(engine, task)
    plan = plan_ilqg(simulator, RewardCost(simulator, context), state, controls=np.zeros((T, na)), substeps=substeps)

Legend: B batch, T control steps, nx state, n tangent, nu control, na action, nc context.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array, Linearization, Simulator
from softgym_envs.core.task import Task, context_after

from .cost import Expansion

STEP = 1e-6
"""Half width of the differences of the scaling of actions."""


class ActionSimulator:
    """A simulator whose controls are the actions of a task, in -1 ... 1; all else is the engine's.

    Args:
        engine: Simulator of the task's robot.
        task: Its `scale_action` makes controls.
    """

    def __init__(self, engine: Simulator, task: Task) -> None:
        self.engine, self.task = engine, task
        self.control_names = tuple(task.action_names)
        self.control_units = ("-",) * self.nu

    def __getattr__(self, name: str) -> Any:
        """What is the same in the engine."""
        return getattr(self.__dict__["engine"], name)

    @property
    def nu(self) -> int:
        """Number of actions na."""
        return len(self.control_names)

    @property
    def control_bounds(self) -> tuple[Array, Array]:
        """-1 and 1, each (na,)."""
        return -np.ones(self.nu), np.ones(self.nu)

    def step(self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1) -> Any:
        """`Simulator.step` under actions (B, na)."""
        return self.engine.step(state, self.task.scale_action(control), parameters, substeps=substeps)

    def rollout(self, state: Array, controls: Array, parameters: Parameters | None = None, *, substeps: int = 1) -> Any:
        """`Simulator.rollout` under actions (B, T, na)."""
        scaled = self.task.scale_action(controls.reshape(-1, self.nu)).reshape(*controls.shape[:2], -1)
        return self.engine.rollout(state, scaled, parameters, substeps=substeps)

    def linearize(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Linearization:
        """`Simulator.linearize` at actions (B, na): B is (B, n, na), by central differences of the scaling."""
        found = self.engine.linearize(state, self.task.scale_action(control), parameters, substeps=substeps)
        ends = [[self.task.scale_action(control + side * step) for side in (STEP, -STEP)] for step in np.eye(self.nu)]
        slope = np.stack([(up - down) / (2.0 * STEP) for up, down in ends], axis=-1)
        return found._replace(B=found.B @ slope)


@dataclass(frozen=True, eq=False)
class RewardCost:
    """Minus the reward of a task, l_t+1 = -r(x_t, x_t+1, a_t) and l_0 = 0, until its episode ends.

    Gradients are central differences in states and actions. A state acts through its own context and the next one, not through
    later ones. Hessians are the diagonals of second differences, at least 0, since rewards are no sums of squares.
    """

    simulator: ActionSimulator
    """Its task gives the reward; planners must use it, too."""
    context: Array
    """(nc,) the task's memory at the first state, as `envs.context[row]`."""
    epsilon: float = field(default=1e-4, repr=False)
    """Half width of the differences."""

    def value(self, states: Array, controls: Array) -> Array:
        """See `Cost.value`; controls are actions (B, T, na)."""
        return self._pass(states, controls)[0]

    def expand(self, states: Array, controls: Array) -> Expansion:
        """See `Cost.expand`."""
        values, contexts, alive = self._pass(states, controls)
        (rows, horizon, na), n = controls.shape, self.simulator.n
        x, xx = np.zeros((rows, horizon + 1, n)), np.zeros((rows, horizon + 1, n, n))
        u, uu = np.zeros((rows, horizon, na)), np.zeros((rows, horizon, na, na))
        offsets = self.epsilon * np.concatenate([np.zeros((1, n)), np.eye(n), -np.eye(n)])
        changes = self.epsilon * np.concatenate([np.zeros((1, na)), np.eye(na), -np.eye(na)])
        for t in range(horizon):
            action, after = controls[:, t], states[:, t + 1]
            tried = np.repeat(action[:, None], len(changes), axis=1) + changes
            found = -alive[:, t, None] * self._reward(states[:, t], after, tried, contexts[t], contexts[t + 1])
            u[:, t], uu[:, t] = self._slopes(found)
            moved = self.simulator.retract(
                np.repeat(after[:, None], len(offsets), axis=1), np.broadcast_to(offsets, (rows, *offsets.shape))
            )
            then = self._context(contexts[t], action, moved)
            found = -alive[:, t, None] * self._reward(states[:, t], moved, action, contexts[t], then)
            if t + 1 < horizon:
                later, following = states[:, t + 2], controls[:, t + 1]
                last = self._context(then, following, later)
                found -= alive[:, t + 1, None] * self._reward(moved, later, following, then, last)
            x[:, t + 1], xx[:, t + 1] = self._slopes(found)
        return Expansion(values, x, u, xx, uu, np.zeros((rows, horizon, na, n)))

    def _slopes(self, found: Array) -> tuple[Array, Array]:
        """Gradients (B, k) and diagonal Hessians (B, k, k) from values (B, 1 + 2 k): in the middle, above, below."""
        k, h = found.shape[1] // 2, self.epsilon
        middle, up, down = found[:, :1], found[:, 1 : 1 + k], found[:, 1 + k :]
        return (up - down) / (2.0 * h), np.maximum(up - 2.0 * middle + down, 0.0)[..., None] / h**2 * np.eye(k)

    def _pass(self, states: Array, controls: Array) -> tuple[Array, list[Array], Array]:
        """Costs (B, T+1), contexts (B, nc) at every time, and 1 where the episode goes on, else 0 (B, T)."""
        values, alive = np.zeros(states.shape[:2], dtype=np.float64), np.ones(controls.shape[:2], dtype=np.float64)
        contexts = [np.repeat(self.context[None], len(states), axis=0)]
        for t in range(controls.shape[1]):
            after, action = states[:, t + 1], controls[:, t]
            contexts.append(self._context(contexts[t], action, after))
            reward = self._reward(states[:, t], after, action, contexts[t], contexts[t + 1])
            values[:, t + 1] = -alive[:, t] * reward
            alive[:, t + 1 :] *= ~self.simulator.task.terminated(after, contexts[t + 1])[:, None]
        return values, contexts, alive

    def _context(self, context: Array, action: Array, after: Array) -> Array:
        """Contexts after steps that led to states; arrays (B, ...) or (B, k, ...), (B, ...) being the same for all k."""
        task, (shape, flat) = self.simulator.task, _flat(context, action, after)
        before, action, seen = flat
        found = context_after(task, before, task.scale_action(action), seen)
        return np.asarray(found).reshape(*shape, -1)

    def _reward(self, before: Array, after: Array, action: Array, context: Array, then: Array) -> Array:
        """Rewards (B,) or (B, k), see `_context`."""
        shape, flat = _flat(before, after, action, context, then)
        return np.asarray(np.sum(list(self.simulator.task.reward(*flat).values()), axis=0)).reshape(shape)


def _flat(*arrays: Array) -> tuple[tuple[int, ...], list[Array]]:
    """The common shape (B,) or (B, k), and every array with these axes in one."""
    wide = max(array.ndim for array in arrays)
    shape = next(array.shape[:-1] for array in arrays if array.ndim == wide)
    full = [array if array.ndim == wide else np.repeat(array[:, None], shape[-1], axis=1) for array in arrays]
    return shape, [np.ascontiguousarray(array.reshape(-1, array.shape[-1])) for array in full]
