"""The planner of one run: from a condition's method and model to a policy; every condition has the same settings.

Legend: B starts, T control steps, E rows of parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from softgym_envs.core.parameters import Parameters
from softgym_envs.core.scenario import BatchPolicy
from softgym_envs.core.simulator import Array, Simulator, is_exact

from ..control.gps import MINIMUM_ROLLOUTS, GPSOptions, plan_gps
from ..control.ilqg import ILQGOptions, plan_ilqg
from ..control.mpc import SamplingController, SamplingOptions
from ..control.plan import (
    CountedSimulator,
    Plan,
    Run,
    UnstablePlanError,
    roll_policy,
    run_closed_loop,
    run_open_loop,
    run_policy,
    total_cost,
)
from ..models.borrowed import BorrowedSlopes
from .conditions import CONDITIONS
from .definition import Planning, Study, StudyRun
from .fits import PLANNING, SELECTION, STARTS, stream
from .models import SHORT_HORIZON, Model
from .task import TransferTask

SAMPLES = 16
"""Samples of MPPI per round."""
RUN_STEP = 1e-3
"""Change of a control [half range] in differences of whole runs."""
FEEDBACK = (0.0, 0.3, 1.0)
"""Candidate factors on a plan's gains; 0 is open loop."""


Execution = Callable[[Simulator, Array, Parameters | None], Run]
"""Runs a chosen policy on a simulator from states (B, nx)."""


class Chosen(NamedTuple):
    """Result of a condition's planner."""

    execute: Execution
    model_cost: float | None
    """Expected cost in the condition's own model from perturbed starts; None if there is no model run."""
    detail: dict[str, Any]
    steps: int
    """Physics steps of the model, a linearisation by differences counted by its simulated steps"""
    spent: list[int]
    """Physics steps of planning while it runs, one entry per start."""


def follow(plan: Plan, feedback: float) -> Execution:
    """Follow a plan with its gains times a factor."""
    if feedback == 0.0:
        return lambda simulator, state, parameters: run_open_loop(plan, simulator, state, parameters)
    scaled = replace(plan, gains=feedback * plan.gains)
    return lambda simulator, state, parameters: run_closed_loop(scaled, simulator, state, parameters)


@dataclass(frozen=True, eq=False)
class Planner:
    """Plans for one run; every condition has the same settings."""

    case: TransferTask
    study: Study
    job: StudyRun
    model: Model

    @property
    def settings(self) -> Planning:
        """Settings of planners."""
        return self.study.planning

    @cached_property
    def start(self) -> Array:
        """Unperturbed start (nx,)."""
        return np.asarray(self.case.starts(stream(self.study, STARTS), 1)[0])

    def rng(self, purpose: int) -> np.random.Generator:
        """Random generator common to all conditions of a seed."""
        return stream(self.study, purpose, self.job.seed)

    def options(self, iterations: int) -> ILQGOptions:
        """Options of iLQG."""
        width, trust = self.settings.difference_step, self.settings.trust
        if width != "runs":
            return ILQGOptions(max_iterations=iterations, trust=trust, difference_step=width or None)
        if CONDITIONS[self.job.condition].model != "ground_truth":
            return ILQGOptions(max_iterations=iterations, trust=trust)
        return ILQGOptions(max_iterations=iterations, trust=trust, difference_step=RUN_STEP, whole_runs=True)

    def choose(self, method: str) -> Chosen:
        """The policy chosen by a condition's method."""
        plans = {
            "plan": self.plan,
            "gps": lambda: self.sampled(GPSOptions(self.settings.iterations)),
            "mpc": self.sampling,
        }
        ways = {
            "plan": plans[self.study.kind],
            "sampling": self.sampling,
            "doubled": lambda: self.sampling(2 * SAMPLES),
            "budgeted_plan": self.within_budget,
            "nothing": self.nothing,
        }
        return ways[method]()

    def nothing(self) -> Chosen:
        """No control."""
        nu = self.model.simulator.nu
        return Chosen(self.apply(lambda x, t: np.zeros((len(x), nu))), None, {}, 0, [])

    def apply(self, policy: BatchPolicy) -> Execution:
        """Apply a batched policy for the study's control steps."""
        horizon, substeps = self.settings.horizon, self.settings.substeps
        return lambda world, x, parameters: roll_policy(CountedSimulator(world, substeps), policy, x, horizon, parameters)

    def initial_guess(self, rng: np.random.Generator) -> Array:
        """First controls (T, nu): the first policy's, in the reference row of the model."""
        policy = self.case.first_policy(rng)
        counted = CountedSimulator(self.model.simulator, self.model.substeps)
        run = roll_policy(
            counted,
            policy,
            self.model.states(self.start[None]),
            self.settings.horizon,
            self.model.reference(),
        )
        return np.asarray(run.controls[0])

    def plan(self) -> Chosen:
        """Run iLQG from every guess; choose the best pair of plan and feedback in the model, from perturbed starts."""
        options = self.options(self.settings.iterations)
        rng, best, steps = self.rng(PLANNING), None, 0
        per_guess, tried = self.settings.horizon * self.settings.substeps, 0
        for _ in range(self.settings.restarts):
            try:
                plan = plan_ilqg(
                    self.model.simulator,
                    self.model.cost,
                    self.model.states(self.start),
                    controls=self.initial_guess(rng),
                    substeps=self.model.substeps,
                    parameters=self.model.parameters,
                    options=options,
                )
            except UnstablePlanError:
                tried += 1
                steps += per_guess
                continue
            steps += per_guess + plan.steps.total(self.per_linearization)
            for feedback in FEEDBACK:
                cost, spent = self.judge(follow(plan, feedback))
                steps += spent
                if best is None or cost < best[0]:
                    best = cost, plan, feedback
        if best is None:
            raise UnstablePlanError(f"the simulation fails under all {tried} first guesses of condition {self.job.condition}")
        cost, plan, feedback = best
        detail = {"feedback": feedback, "plan_cost": plan.cost, "outcome": plan.outcome.name, "iterations": len(plan.log)}
        return Chosen(follow(plan, feedback), cost, detail, steps, [])

    @property
    def per_linearization(self) -> int:
        """Simulated steps that a linearisation costs."""
        simulator = self.model.simulator
        parameter_values = len(simulator.default_parameters.names())
        inner = simulator.engine if isinstance(simulator, BorrowedSlopes) else simulator
        return 1 if is_exact(inner) else 2 * (simulator.n + simulator.nu + parameter_values)

    def judge(self, execute: Execution) -> tuple[float, int]:
        """Mean cost in the model from perturbed starts under all rows of parameters, and the steps taken."""
        starts = self.case.starts(self.rng(SELECTION), self.study.repeats.starts)
        states = np.repeat(self.model.states(starts), self.model.rows, axis=0)
        run = execute(self.model.simulator, states, self.model.parameter_values(len(starts)))
        costs = total_cost(self.model.cost.value(run.states, run.controls), run.status)
        bounded = np.where(np.isfinite(costs), costs, self.study.failure_cost)
        return float(bounded.mean()), len(states) * self.settings.horizon * self.settings.substeps

    def sampling(self, samples: int = SAMPLES) -> Chosen:
        """Receding-horizon MPPI in the model, its samples judged under all rows of parameters."""
        horizon = min(SHORT_HORIZON, self.settings.horizon)
        controller = SamplingController(
            self.model.simulator,
            self.model.cost,
            horizon,
            self.rng(PLANNING),
            self.model.substeps,
            self.model.parameters,
            SamplingOptions(samples=samples, knots=min(4, horizon), noise=0.6, iterations=2),
        )
        steps, substeps, spent = self.settings.horizon, self.settings.substeps, list[int]()

        def policy(state: Array, t: int) -> Array:
            return controller(self.model.states(state), t)  # a state of the ground truth, as one of the model

        def execute(simulator: Simulator, state: Array, parameters: Parameters | None) -> Run:
            runs = []
            for x in state:
                controller.reset()
                runs.append(run_policy(policy, simulator, x, steps=steps, substeps=substeps, parameters=parameters))
                spent.append(controller.steps.total())
            return Run(*(np.concatenate(parts) for parts in zip(*runs, strict=True)))

        return Chosen(execute, None, {}, 0, spent)

    def sampled(self, options: GPSOptions) -> Chosen:
        """Sample-based iLQG of the tensegrity paper."""
        rng = self.rng(PLANNING)
        plan = plan_gps(
            self.model.simulator,
            self.model.cost,
            self.model.states(self.start),
            controls=self.initial_guess(rng),
            rng=rng,
            substeps=self.model.substeps,
            parameters=self.model.reference(),
            options=options,
        )
        steps = plan.steps.total() + self.settings.horizon * self.settings.substeps
        return Chosen(follow(plan, 0.0), None, {"plan_cost": plan.cost}, steps, [])

    def within_budget(self) -> Chosen:
        """Planning on the ground truth with the data's steps: sample-based iLQG, or else the best of the guesses."""
        per_rollout = self.settings.horizon * self.settings.substeps
        rollouts = self.job.budget // per_rollout
        if rollouts >= 2 * MINIMUM_ROLLOUTS + 2:
            count = min(40, (rollouts - 2) // 2)
            return self.sampled(GPSOptions(iterations=min(20, (rollouts - 2) // count), rollouts=count))
        rng, best = self.rng(PLANNING), None
        counted = CountedSimulator(self.model.simulator, self.settings.substeps)
        for _ in range(max(rollouts, 1)):
            policy = self.case.first_policy(rng)
            if rollouts == 0:
                best = np.inf, policy
                break
            run = roll_policy(counted, policy, self.start[None], self.settings.horizon, self.model.reference())
            cost = float(total_cost(self.model.cost.value(run.states, run.controls), run.status)[0])
            if best is None or cost < best[0]:
                best = cost, policy
        assert best is not None
        return Chosen(self.apply(best[1]), None, {"rollouts": rollouts}, counted.steps.total(), [])
