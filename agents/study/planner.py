"""The planner of one run: from a condition's method and model to a policy; every condition has the same settings.

Legend: B starts, T control steps, E rows of constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.simulator import is_exact

from ..models.borrowed import BorrowedSlopes
from ..planning.gps import MINIMUM_ROLLOUTS, GPSOptions, plan_gps
from ..planning.ilqg import ILQGOptions, plan_ilqg
from ..planning.mpc import ILQGController, SamplingController, SamplingOptions
from ..planning.plan import CountedSimulator, UnstablePlanError, roll_policy, total_cost
from .conditions import CONDITIONS
from .definition import Job, Study
from .executables import Chosen, ControllerExecutable, Executable, PlanExecutable, PolicyExecutable
from .fits import PLANNING, SELECTION, STARTS, stream
from .models import SHORT_HORIZON, Model
from .task import TransferTask

Array = NDArray[np.float64]

SAMPLES = 16
"""Samples of MPPI per round."""
RUN_STEP = 1e-3
"""Change of a control [half range] in differences of whole runs."""
FEEDBACK = (0.0, 0.3, 1.0)
"""Candidate factors on a plan's gains; 0 is open loop."""


@dataclass(frozen=True, eq=False)
class Planner:
    """Plans for one run; every condition has the same settings."""

    case: TransferTask
    study: Study
    job: Job
    model: Model

    @cached_property
    def start(self) -> Array:
        """Unperturbed start (nx,)."""
        return np.asarray(self.case.starts(stream(self.study, STARTS), 1)[0])

    def rng(self, purpose: int) -> np.random.Generator:
        """Random generator common to all conditions of a seed."""
        return stream(self.study, purpose, self.job.seed)

    def options(self, iterations: int) -> ILQGOptions:
        """Options of iLQG."""
        width, trust = self.study.difference_step, self.study.trust
        if width != "runs":
            return ILQGOptions(max_iterations=iterations, trust=trust, difference_step=width or None)
        if CONDITIONS[self.job.condition].model != "truth":
            return ILQGOptions(max_iterations=iterations, trust=trust)
        return ILQGOptions(max_iterations=iterations, trust=trust, difference_step=RUN_STEP, whole_runs=True)

    def choose(self, method: str) -> Chosen:
        """The policy chosen by a condition's method."""
        plans = {"plan": self.plan, "gps": lambda: self.sampled(GPSOptions(self.study.iterations)), "mpc": self.sampling}
        ways = {
            "plan": plans[self.study.kind],
            "mpc": self.replanned,
            "sampling": self.sampling,
            "doubled": lambda: self.sampling(2 * SAMPLES),
            "sampled_plan": lambda: self.sampled(GPSOptions()),
            "budgeted_plan": self.within_budget,
            "fixed": self.fixed,
        }
        return ways[method]()

    def fixed(self) -> Chosen:
        """No control, or the first guess itself."""
        nu = self.model.simulator.nu
        policy = (
            self.case.first_policy(self.rng(PLANNING)) if self.job.condition == "guess" else lambda x, t: np.zeros((len(x), nu))
        )
        return Chosen(PolicyExecutable(policy, self.study.horizon, self.study.substeps), None, {}, 0)

    def guess(self, rng: np.random.Generator) -> Array:
        """First controls (T, nu): the first policy's, in the reference row of the model."""
        policy, forced = self.case.first_policy(rng), self.model.forced is not None
        counted = CountedSimulator(self.model.simulator, self.model.substeps)
        run = roll_policy(
            counted,
            (lambda x, t: policy(x[:, :-1], t)) if forced else policy,
            self.model.states(self.start[None]),
            self.study.horizon,
            self.model.reference(),
        )
        return np.asarray(run.controls[0])

    def plan(self) -> Chosen:
        """Run iLQG from every guess; choose the best pair of plan and feedback in the model, from perturbed starts."""
        options = self.options(self.study.iterations)
        rng, best, steps = self.rng(PLANNING), None, 0
        per_guess, tried = self.study.horizon * self.study.substeps, 0
        for _ in range(self.study.restarts):
            try:
                plan = plan_ilqg(
                    self.model.simulator,
                    self.model.cost,
                    self.model.states(self.start),
                    controls=self.guess(rng),
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
                cost, spent = self.judge(PlanExecutable(plan, feedback))
                steps += spent
                if best is None or cost < best[0]:
                    best = cost, plan, feedback
        if best is None:
            raise UnstablePlanError(f"the simulation fails under all {tried} first guesses of condition {self.job.condition}")
        cost, plan, feedback = best
        kept = self.model.forced.without_clock(plan) if self.model.forced is not None else plan
        detail = {"feedback": feedback, "plan_cost": plan.cost, "outcome": plan.outcome.name, "iterations": len(plan.log)}
        return Chosen(PlanExecutable(kept, feedback), cost, detail, steps)

    @property
    def per_linearization(self) -> int:
        """Simulated steps that a linearisation costs."""
        simulator = self.model.simulator
        constants = len(simulator.default_parameters.names())
        inner = self.model.forced.simulator if self.model.forced is not None else simulator
        inner = inner.engine if isinstance(inner, BorrowedSlopes) else inner
        return 1 if is_exact(inner) else 2 * (simulator.n + simulator.nu + constants)

    def judge(self, executable: Executable) -> tuple[float, int]:
        """Mean cost in the model from perturbed starts under all rows of constants, and the steps taken."""
        starts = self.case.starts(self.rng(SELECTION), self.study.starts)
        states = np.repeat(self.model.states(starts), self.model.rows, axis=0)
        run = executable.run(self.model.simulator, states, self.model.constants(len(starts)))
        costs = total_cost(self.model.cost.value(run.states, run.controls), run.status)
        bounded = np.where(np.isfinite(costs), costs, self.study.failure_cost)
        return float(bounded.mean()), len(states) * self.study.horizon * self.study.substeps

    def replanned(self) -> Chosen:
        """Receding-horizon iLQG in the model."""
        controls = self.guess(self.rng(PLANNING))[: min(SHORT_HORIZON, self.study.horizon)]
        controller = ILQGController(
            self.model.simulator,
            self.model.cost,
            controls,
            self.model.substeps,
            self.model.parameters,
            self.options(2),
            self.options(self.study.iterations),
        )
        return Chosen(ControllerExecutable(controller, self.model, self.study.horizon, self.study.substeps), None, {}, 0)

    def sampling(self, samples: int = SAMPLES) -> Chosen:
        """Receding-horizon MPPI in the model, its samples judged under all rows of constants."""
        horizon = min(SHORT_HORIZON, self.study.horizon)
        controller = SamplingController(
            self.model.simulator,
            self.model.cost,
            horizon,
            self.rng(PLANNING),
            self.model.substeps,
            self.model.parameters,
            SamplingOptions(samples=samples, knots=min(4, horizon), noise=0.6, iterations=2),
        )
        executable = ControllerExecutable(controller, self.model, self.study.horizon, self.study.substeps)
        return Chosen(executable, None, {}, 0)

    def sampled(self, options: GPSOptions) -> Chosen:
        """Sample-based iLQG of the tensegrity paper; on the truth it is the paper's own baseline."""
        rng = self.rng(PLANNING)
        plan = plan_gps(
            self.model.simulator,
            self.model.cost,
            self.model.states(self.start),
            controls=self.guess(rng),
            rng=rng,
            substeps=self.model.substeps,
            parameters=self.model.reference(),
            options=options,
        )
        steps = plan.steps.total() + self.study.horizon * self.study.substeps
        return Chosen(PlanExecutable(plan, 0.0), None, {"plan_cost": plan.cost}, steps)

    def within_budget(self) -> Chosen:
        """Planning on the truth with the data's steps: sample-based iLQG if they suffice, else the best of the guesses."""
        per_rollout = self.study.horizon * self.study.substeps
        rollouts = self.job.budget // per_rollout
        if rollouts >= 2 * MINIMUM_ROLLOUTS + 2:
            count = min(40, (rollouts - 2) // 2)
            return self.sampled(GPSOptions(iterations=min(20, (rollouts - 2) // count), rollouts=count))
        rng, best = self.rng(PLANNING), None
        counted = CountedSimulator(self.model.simulator, self.study.substeps)
        for _ in range(max(rollouts, 1)):
            policy = self.case.first_policy(rng)
            if rollouts == 0:
                best = np.inf, policy
                break
            run = roll_policy(counted, policy, self.start[None], self.study.horizon, self.model.reference())
            cost = float(total_cost(self.model.cost.value(run.states, run.controls), run.status)[0])
            if best is None or cost < best[0]:
                best = cost, policy
        assert best is not None
        executable = PolicyExecutable(best[1], self.study.horizon, self.study.substeps)
        return Chosen(executable, None, {"rollouts": rollouts}, counted.steps.total())
