"""Planners of the benchmark that replan row by row: iLQG, linear MPC, sample-based iLQG.

All minimise minus the task's reward (`RewardCost`) in the task's actions, in the native engine, from the full state, with the
parameters that the episode drew. They begin where the actions that wait for their latency end. The horizon T is that of the
id's sampling MPC (`System.planning`).

Legend: B rows, T horizon, n tangent, na actions; S = T na decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import scipy.sparse

from softgym_envs.core.errors import needed
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array, Symbolic, check_array
from softgym_envs.core.task import load

from ..control.actions import ActionSimulator, RewardCost
from ..control.gps import GPSOptions, plan_gps
from ..control.ilqg import STEP_SIZES, ILQGOptions
from ..control.mpc import ILQGController
from ..control.optimal import Manoeuvre, plan_motion
from ..control.plan import Plan, UnstablePlanError, total_cost
from ..control.task_mpc import TaskMpc, World, with_drawn
from ..learning.evaluation import Controller
from .case import Case, CountedEngine, Unable

TRIALS = 3
"""Dampings that iLQG tries side by side in its one line search per iteration."""
ROLLOUTS = 40
"""Rollouts per iteration of sample-based iLQG [Wang2020, V-C]."""
RATE, TRUST = 0.5, 0.5
"""Linear MPC: largest change of an action from one control step to the next, and by one solution."""
SMOOTHNESS, SECONDS = 1e-3, 20.0
"""Optimal control: weight of changes of controls [s^2], most processor time of a motion [s]."""
ALPHAS = np.array([0.0, 0.125, 0.25, 0.5, 1.0])
"""Fractions of a solution that linear MPC tries."""


class RowPlanner(Protocol):
    """Plans for one row."""

    def __call__(self, state: Array, cost: RewardCost) -> Array:
        """Action (na,) at a state (nx,)."""


@dataclass(frozen=True)
class Row:
    """What a planner of one row gets when its episode begins."""

    simulator: ActionSimulator
    substeps: int
    parameters: Parameters
    rng: np.random.Generator
    steps: int
    """Most control steps of the episode."""


def row_by_row(case: Case, new: Callable[[Row], RowPlanner]) -> Controller:
    """Controller with one planner for each row whose episode has not ended, made when an episode begins."""

    def opened(envs: Any) -> Callable[[Any], Any]:
        engine = case.engine(envs)
        simulator, rows = ActionSimulator(engine, envs.task), list[RowPlanner | None]([None] * envs.num_envs)
        nominal = engine.default_parameters

        def act(observation: Any) -> Any:
            begins = envs.episodes.steps == 0
            action = np.zeros(envs.action_space.shape)
            for row in np.flatnonzero(case.alive):
                planner, own = rows[row], np.array([row])
                world = World(envs.task, engine, case.substeps, with_drawn(nominal, envs.episodes, own))
                if planner is None or begins[row]:
                    rng = case.rng(int(row))
                    planner = rows[row] = new(
                        Row(simulator, case.substeps, world.parameter_values, rng, envs.max_episode_steps)
                    )
                start = world.begin(envs, own)
                action[row] = planner(start.state[0], RewardCost(simulator, start.context[0]))
            return action

        return act

    return opened


def horizon_of(case: Case) -> int:
    """T of the id's sampling MPC."""
    return TaskMpc(**case.system.planning_of(case.cell.id)).horizon


def replanning(case: Case, horizon: int, once: int, per_iteration: int, most: int) -> tuple[int, int]:
    """Control steps between plans, at most T / 2, and iterations of a plan (at most `most`), that keep the budget.

    Raises:
        Unable: One iteration takes more.
    """
    every = max(1, -(-(once + per_iteration) // case.cell.budget))
    if every > horizon // 2:
        raise Unable(
            f"One iteration simulates {once + per_iteration:,} control steps: {2 * (once + per_iteration) // horizon:,} per "
            "executed one, if every plan is followed for half of its horizon."
        )
    return every, min(most, (case.cell.budget * every - once) // per_iteration)


@dataclass(eq=False)
class IlqgRow:
    """MPC by iLQG for one row; the zero action where the simulation fails under its first controls."""

    row: Row
    horizon: int
    every: int
    iterations: int
    cost: RewardCost | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        options, row = ILQGOptions(max_iterations=self.iterations, trials=TRIALS, searches=1), self.row
        self.controller = ILQGController(
            row.simulator, self._cost, np.zeros((self.horizon, row.simulator.nu)), row.substeps, row.parameters,
            options, options, self.every,
        )  # fmt: skip

    def _cost(self, t: int) -> RewardCost:
        assert self.cost is not None
        return self.cost

    def __call__(self, state: Array, cost: RewardCost) -> Array:
        """See `RowPlanner`."""
        self.cost = cost
        try:
            return self.controller(state, 0)
        except UnstablePlanError:
            return np.zeros(self.row.simulator.nu)


def ilqg(case: Case) -> Controller:
    """MPC by iLQG, with the engine's own derivatives."""
    horizon = horizon_of(case)

    def new(row: Row) -> RowPlanner:
        slope = row.simulator.engine.per_linearization  # type: ignore[attr-defined]
        once = horizon * (2 + slope)  # the first run, and the gains of the last one
        every, iterations = replanning(case, horizon, once, horizon * (TRIALS * len(STEP_SIZES) + slope), 10)
        return IlqgRow(row, horizon, every, iterations)

    return row_by_row(case, new)


@dataclass(eq=False)
class LinearRow:
    r"""Linear MPC for one row: a quadratic program around the shifted plan, with limits of actions and of their rates.

    .. math:: \min_d \tfrac12 d^T (S^T Q S + R) d + (S^T q + r)^T d, \quad -1 \le u + d \le 1, \quad |\Delta (u + d)| \le RATE

    S (T n, S) are the exact derivatives of the states by the actions along the plan, Q, q, R, r the expansion of the reward.
    Of the solution the best of five fractions is taken (`ALPHAS`), by rollouts.
    """

    row: Row
    horizon: int
    every: int
    iterations: int
    age: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.plan = np.zeros((self.horizon, self.row.simulator.nu))
        self.last = np.zeros(self.row.simulator.nu)

    def __call__(self, state: Array, cost: RewardCost) -> Array:
        """See `RowPlanner`."""
        if self.age % self.every == 0:
            for _ in range(self.iterations):
                self.plan = self.improved(state, cost)
        self.age += 1
        self.last = self.plan[0].copy()
        self.plan = np.concatenate([self.plan[1:], self.plan[-1:]])
        return self.last

    def improved(self, state: Array, cost: RewardCost) -> Array:
        """Plan (T, na) after one program; the same one where the simulation fails."""
        row, T = self.row, self.horizon
        states, status = row.simulator.rollout(state[None], self.plan[None], row.parameters, substeps=row.substeps)
        if status[0]:
            return self.plan
        A, B, _ = row.simulator.linearize(states[0, :-1], self.plan, repeated(row.parameters, T), substeps=row.substeps)
        change = self.solution(A, B, cost.expand(states, self.plan[None]))
        if change is None:
            return self.plan
        tried = self.plan + ALPHAS[:, None, None] * change
        runs = np.repeat(state[None], len(tried), axis=0)
        found, failed = row.simulator.rollout(runs, tried, repeated(row.parameters, len(tried)), substeps=row.substeps)
        return np.asarray(tried[int(np.argmin(total_cost(cost.value(found, tried), failed)))])

    def solution(self, A: Array, B: Array, model: Any) -> Array | None:
        """Change of the plan (T, na); None where the derivatives are not finite or the program is not solved."""
        T, n, na = B.shape
        S, H, g = np.zeros((n, T * na)), np.zeros((T * na, T * na)), np.zeros(T * na)
        for t in range(T):
            part = slice(t * na, (t + 1) * na)
            H[part, part] += model.uu[0, t]
            g[part] += model.u[0, t]
            S = A[t] @ S
            S[:, part] = B[t]
            H += S.T @ model.xx[0, t + 1] @ S
            g += S.T @ model.x[0, t + 1]
        if not (np.isfinite(H).all() and np.isfinite(g).all()) or not np.abs(g).max():
            return None
        ridge = 1e-3 * np.diag(H).mean() + 0.1 * np.abs(g).max()
        return solve_program(H + ridge * np.eye(T * na), g, self.plan, self.last)


def repeated(parameters: Parameters, rows: int) -> Parameters:
    """Parameters of one row, for many."""
    return parameters if parameters.batch is None else type(parameters).from_vector(parameters.to_matrix(rows))


def solve_program(H: Array, g: Array, plan: Array, last: Array) -> Array | None:
    """Solve the quadratic program of `LinearRow` by OSQP, around a plan (T, na) after an action (na,).

    Raises:
        MissingDependencyError: OSQP is not installed.
    """
    with needed("linear MPC needs osqp", "control"):
        import osqp
    T, na = plan.shape
    rates = scipy.sparse.eye(T * na) - scipy.sparse.eye(T * na, k=-na)
    now = plan.ravel() - np.concatenate([last, plan.ravel()[:-na]])
    low = np.concatenate([np.maximum(-1.0 - plan.ravel(), -TRUST), -RATE - now])
    high = np.concatenate([np.minimum(1.0 - plan.ravel(), TRUST), RATE - now])
    scale = np.abs(g).max()
    solver = osqp.OSQP()
    solver.setup(
        scipy.sparse.csc_matrix(np.triu(H / scale)), g / scale, scipy.sparse.vstack([scipy.sparse.eye(T * na), rates]).tocsc(),
        np.minimum(low, high), np.maximum(low, high), verbose=False, adaptive_rho_interval=50, max_iter=4000,
    )  # fmt: skip
    found = solver.solve(raise_error=False).x
    return np.asarray(found).reshape(T, na) if found is not None and np.isfinite(found).all() else None


def linear(case: Case) -> Controller:
    """Linear MPC, by OSQP."""
    horizon = horizon_of(case)

    def new(row: Row) -> RowPlanner:
        slope = row.simulator.engine.per_linearization  # type: ignore[attr-defined]
        every, iterations = replanning(case, horizon, 0, horizon * (1 + len(ALPHAS) + slope), 5)
        return LinearRow(row, horizon, every, iterations)

    return row_by_row(case, new)


@dataclass(eq=False)
class GpsRow:
    """Sample-based iLQG for one row: it plans the whole episode when it begins, then follows the plan with its gains."""

    row: Row
    options: GPSOptions
    plan: Plan | None = field(default=None, init=False)
    age: int = field(default=-1, init=False)

    def __call__(self, state: Array, cost: RewardCost) -> Array:
        """See `RowPlanner`."""
        row, self.age = self.row, self.age + 1
        if self.age == 0:
            zero = np.zeros((row.steps, row.simulator.nu))
            try:
                self.plan = plan_gps(
                    row.simulator, cost, check_array("state", state, (None,)), controls=zero, rng=row.rng,
                    substeps=row.substeps, parameters=row.parameters, options=self.options,
                )  # fmt: skip
            except UnstablePlanError:
                self.plan = None
        return np.zeros(row.simulator.nu) if self.plan is None else self.plan.policy(state, self.age)


@dataclass(eq=False)
class OptimalRow:
    """Optimal control by direct transcription for one row, replayed open loop: the least effort to the declared final state.

    The motion takes half of the episode; its last control is held. It plans again when the final state changes.
    """

    row: Row
    engine: CountedEngine
    period: float
    ends: Callable[[Array], Array]
    end: Array | None = field(default=None, init=False)
    actions: Array = field(default_factory=lambda: np.zeros((1, 1)), init=False)
    age: int = field(default=0, init=False)

    def __call__(self, state: Array, cost: RewardCost) -> Array:
        """See `RowPlanner`."""
        end = self.ends(cost.context[None])[0]
        if self.end is None or not np.array_equal(end, self.end, equal_nan=True):
            self.actions, self.age, self.end = self.planned(state, end), 0, end
        self.age += 1
        return np.asarray(self.actions[min(self.age, len(self.actions)) - 1])

    def planned(self, state: Array, end: Array) -> Array:
        """Actions (K, na) of the motion."""
        engine, scale = self.engine, self.row.simulator.task.scale_action
        bounds = scale(-np.ones((1, self.row.simulator.nu)))[0], scale(np.ones((1, self.row.simulator.nu)))[0]
        steps = max(self.row.steps // 2, 2)
        manoeuvre = Manoeuvre(state, end, steps, bounds, smoothness=SMOOTHNESS)
        found = plan_motion(engine.engine, manoeuvre, parameters=self.row.parameters, seconds=SECONDS)
        engine.steps += found.iterations * steps * self.row.substeps
        return np.asarray(np.clip(2.0 * (found.controls - bounds[0]) / (bounds[1] - bounds[0]) - 1.0, -1.0, 1.0))


def optimal(case: Case) -> Controller:
    """Optimal control and replay.

    Raises:
        Unable: The step has no symbolic form, or the system declares no final state.
    """
    system, id = case.system, case.cell.id
    engine = system.simulator(system.task(id).model)
    if not isinstance(engine, Symbolic):
        raise Unable("The step of the native engine has no symbolic form.")
    if not system.ends or id not in load(system.ends):
        raise Unable("The system declares no final state of this id (`System.ends`).")
    ends, period = load(system.ends)[id], system.task(id).control_period
    own = system.simulator(system.task(id).model, dt=period)
    coarse = CountedEngine(own, own.default_parameters)
    case.engines.append(coarse)
    return row_by_row(case, lambda row: OptimalRow(row, coarse, period, ends))


def gps(case: Case) -> Controller:
    """Sample-based iLQG of paper 001; B simulated steps per executed one are B rollouts of the whole episode."""
    iterations = (case.cell.budget - 1) // ROLLOUTS
    if iterations < 1:
        raise Unable(f"One iteration takes {ROLLOUTS} rollouts.")
    options = GPSOptions(iterations=min(iterations, 24), rollouts=ROLLOUTS)
    return row_by_row(case, lambda row: GpsRow(row, options))
