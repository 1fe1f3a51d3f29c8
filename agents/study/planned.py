"""Planning studies of `agents.study.protocol`: the model of a condition, a policy planned in it, one run on the truth.

Legend: B starts, T control steps, E rows of constants.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Simulator, is_exact

from ..models.forcing import ClockCost, ForcedSimulator
from ..planning.cost import Cost
from ..planning.gps import MINIMUM_ROLLOUTS, GPSOptions, plan_gps
from ..planning.ilqg import ILQGOptions, plan_ilqg
from ..planning.mpc import ILQGController, SamplingController, SamplingOptions
from ..planning.plan import (
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
from .jobs import Condition, Job, Study, write_json
from .protocol import (
    CONDITIONS,
    MODEL,
    PLANNING,
    POSTERIOR_SAMPLES,
    SELECTION,
    STARTS,
    BatchPolicy,
    Case,
    EmpiricalParameters,
    Identified,
    draw,
    identify,
    recordings,
    stream,
)

Array = NDArray[np.float64]

FEEDBACK = (0.0, 0.3, 1.0)
"""Candidates for the factor on a plan's gains; 0 is open loop."""
SHORT_HORIZON = 8
"""Control steps that receding-horizon conditions look ahead."""


# --- models ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Model:
    """What a condition plans in."""

    simulator: Simulator
    parameters: Parameters | None
    """E rows, the reference first; None: the simulator's own"""
    cost: Cost
    substeps: int
    truth_steps: dict[str, int] = field(default_factory=lambda: {"train": 0, "validation": 0})
    """Spent to make the model."""
    forced: ForcedSimulator | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    """What else is known of the model, for the record."""

    @property
    def rows(self) -> int:
        """E."""
        return (self.parameters.batch or 1) if self.parameters is not None else 1

    def states(self, state: Array, t: int = 0) -> Array:
        """States of the robot at this control step as states of this simulator."""
        return self.forced.timed(state, t) if self.forced is not None else state

    def constants(self, batch: int) -> Parameters | None:
        """Constants of `batch` times E rows, E running fastest."""
        if self.parameters is None:
            return None
        return type(self.parameters).from_vector(np.tile(self.parameters.to_matrix(self.rows), (batch, 1)))

    def reference(self) -> Parameters | None:
        """Constants of the first row."""
        return None if self.parameters is None else self.parameters.row(0)


def build_model(case: Case, study: Study, job: Job, condition: Condition, out: Path) -> Model:
    """The model of a condition; conditions with data read or make the fit of their data set."""
    rng = stream(study, MODEL, job.budget, job.dataset, job.seed)
    if condition.model == "truth":
        truth = case.truth()
        return Model(truth, case.truth_parameters(), case.cost(truth), study.substeps)
    native = case.native()
    cost = case.cost(native)
    if condition.model == "network":
        from ..models.network import train_networks

        data = recordings(case.recorded(), study, job.budget, job.dataset)
        fit_steps = identify(case, study, job.budget, job.dataset, out).truth_steps
        network = train_networks(native, data.train, substeps=study.substeps, rng=rng)
        return Model(network, None, cost, 1, fit_steps, detail={"network_error": network.networks.error})
    if condition.model == "forces":
        scale = study.force * case.force_scale()
        horizon = study.horizon + (SHORT_HORIZON if study.kind == "mpc" else 0)
        forced = ForcedSimulator(native, scale, study.ensemble - 1 or 1, horizon, int(rng.integers(2**31)))
        return Model(forced, forced.rows(case.default(), ensemble=True), ClockCost(cost), study.substeps, forced=forced)
    if not condition.data:
        plain = {"nominal": case.default, "true": case.best}
        if condition.model in plain:
            return Model(native, plain[condition.model](), cost, study.substeps)
        return Model(native, draw(case.default(), case.wide(), study.ensemble, rng), cost, study.substeps)
    record = identify(case, study, job.budget, job.dataset, out)
    if condition.model == "residual":
        data = recordings(case.recorded(), study, job.budget, job.dataset)
        fit = Identified(record.parameters, EmpiricalParameters(record.samples), record.note)
        try:
            native, note = case.residual(data, fit, rng)
        except DataError as error:
            note = f"no correction: {error}"
        detail = {"residual": note}
        return Model(native, fit.parameters, case.cost(native), study.substeps, record.truth_steps, detail=detail)
    rows = record.parameters
    if condition.model == "posterior":
        rows = type(rows).from_vector(record.samples.to_matrix(POSTERIOR_SAMPLES)[: study.ensemble])
    return Model(native, rows, cost, study.substeps, record.truth_steps)


# --- policies -------------------------------------------------------------------------------------------------------------


class Executable(Protocol):
    """A policy that has been chosen."""

    def run(self, simulator: Simulator, state: Array, parameters: Parameters | None = None) -> Run:
        """Run it from states (B, nx)."""
        ...


@dataclass(frozen=True, eq=False)
class PlanExecutable:
    """A plan with its gains times a factor."""

    plan: Plan
    feedback: float

    def run(self, simulator: Simulator, state: Array, parameters: Parameters | None = None) -> Run:
        """See `Executable`."""
        if self.feedback == 0.0:
            return run_open_loop(self.plan, simulator, state, parameters)
        scaled = replace(self.plan, gains=self.feedback * self.plan.gains)
        return run_closed_loop(scaled, simulator, state, parameters)


@dataclass(frozen=True, eq=False)
class PolicyExecutable:
    """A batched policy."""

    policy: BatchPolicy
    steps: int
    substeps: int

    def run(self, simulator: Simulator, state: Array, parameters: Parameters | None = None) -> Run:
        """See `Executable`."""
        return roll_policy(CountedSimulator(simulator, self.substeps), self.policy, state, self.steps, parameters)


@dataclass(frozen=True, eq=False)
class ControllerExecutable:
    """A receding-horizon controller, one start after the other; the record counts the steps of all its plans."""

    controller: ILQGController | SamplingController
    model: Model
    """What it plans in: a state of the truth becomes one of the model's before every plan."""
    steps: int
    substeps: int
    spent: list[int] = field(default_factory=list)
    """Physics steps of planning, one entry per start."""

    def run(self, simulator: Simulator, state: Array, parameters: Parameters | None = None) -> Run:
        """See `Executable`."""
        runs = []

        def policy(state: Array, t: int) -> Array:
            return self.controller(self.model.states(state, t), t)

        for x in state:
            self.controller.reset()
            runs.append(run_policy(policy, simulator, x, steps=self.steps, substeps=self.substeps, parameters=parameters))
            self.spent.append(self.controller.steps.total())
        return Run(*(np.concatenate(parts) for parts in zip(*runs, strict=True)))


class Chosen(NamedTuple):
    """What a condition's planner came up with."""

    executable: Executable
    model_cost: float | None
    """Expected in the condition's own model from perturbed starts; None where there is no model run."""
    detail: dict[str, Any]
    steps: int
    """Physics steps of the model, a linearisation by differences counted as the steps that it takes"""


@dataclass(frozen=True, eq=False)
class Planner:
    """Plans for one run; every condition has the same settings."""

    case: Case
    study: Study
    job: Job
    model: Model

    @cached_property
    def start(self) -> Array:
        """The unperturbed start, (nx,)."""
        return np.asarray(self.case.starts(stream(self.study, STARTS), 1)[0])

    def rng(self, purpose: int) -> np.random.Generator:
        """Common to all conditions of a seed."""
        return stream(self.study, purpose, self.job.seed)

    def options(self, iterations: int) -> ILQGOptions:
        """Of iLQG."""
        return ILQGOptions(max_iterations=iterations, trust=self.study.trust, difference_step=self.study.difference_step)

    def choose(self, method: str) -> Chosen:
        """The policy of a condition's method."""
        ways = {
            "plan": self.sampling if self.study.kind == "mpc" else self.plan,
            "mpc": self.replanned,
            "sampling": self.sampling,
            "sampled_plan": lambda: self.sampled(GPSOptions()),
            "budgeted_plan": self.within_budget,
            "fixed": self.fixed,
        }
        return ways[method]()

    def fixed(self) -> Chosen:
        """No control, or the first guess as it is."""
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
        """iLQG from every guess; the best pair of plan and feedback in the model, from perturbed starts."""
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
        """Steps that a linearisation costs."""
        simulator = self.model.simulator
        constants = len(simulator.default_parameters.names())
        inner = self.model.forced.simulator if self.model.forced is not None else simulator
        return 1 if is_exact(inner) else 2 * (simulator.n + simulator.nu + constants)

    def judge(self, executable: Executable) -> tuple[float, int]:
        """Mean cost in the model from perturbed starts under all rows of constants, and the steps that it took."""
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

    def sampling(self) -> Chosen:
        """Receding-horizon MPPI in the model, its samples judged under all rows of constants."""
        horizon = min(SHORT_HORIZON, self.study.horizon)
        controller = SamplingController(
            self.model.simulator,
            self.model.cost,
            horizon,
            self.rng(PLANNING),
            self.model.substeps,
            self.model.parameters,
            SamplingOptions(samples=16, knots=min(4, horizon), noise=0.6, iterations=2),
        )
        executable = ControllerExecutable(controller, self.model, self.study.horizon, self.study.substeps)
        return Chosen(executable, None, {}, 0)

    def sampled(self, options: GPSOptions) -> Chosen:
        """The sample-based iLQG of the tensegrity paper; on the truth it is the paper's own baseline."""
        rng = self.rng(PLANNING)
        plan = plan_gps(
            self.model.simulator,
            self.model.cost,
            self.start,
            controls=self.guess(rng),
            rng=rng,
            substeps=self.model.substeps,
            parameters=self.model.reference(),
            options=options,
        )
        steps = plan.steps.total() + self.study.horizon * self.study.substeps
        return Chosen(PlanExecutable(plan, 0.0), None, {"plan_cost": plan.cost}, steps)

    def within_budget(self) -> Chosen:
        """What the data's steps buy on the truth itself: sample-based iLQG if they suffice, else the best of the guesses."""
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


# --- one run --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PlanWorker:
    """Runs one job of a planning study; picklable."""

    case: Case
    study: Study
    out: Path

    def __call__(self, job: Job) -> dict[str, Any]:
        """Plan in the condition's model, run on the truth, return the record."""
        condition = CONDITIONS[job.condition]
        model = build_model(self.case, self.study, job, condition, self.out)
        planner = Planner(self.case, self.study, job, model)
        chosen = planner.choose(condition.method)
        truth = self.case.truth()
        starts = self.case.starts(stream(self.study, STARTS), self.study.starts)
        run = chosen.executable.run(truth, starts, self.case.truth_parameters())
        if job.dataset == 0 and job.seed == 0:
            self._keep(job, run)
        spent = dict(model.truth_steps)
        planned = chosen.steps
        if isinstance(chosen.executable, ControllerExecutable):
            planned += sum(chosen.executable.spent)
        if condition.model == "truth":
            spent["train"] += planned
        return {
            **score(self.case, self.study, truth, run),
            "model_cost": chosen.model_cost,
            "truth_steps": {**spent, "tuning": self.study.tuning_steps},
            "model_steps": 0 if condition.model == "truth" else planned,
            "detail": {**model.detail, **chosen.detail},
        }

    def _keep(self, job: Job, run: Run) -> None:
        """States (T+1, nx) and controls (T, nu) on the truth from the unperturbed start, for pictures."""
        kept = {"states": run.states[0].tolist(), "controls": run.controls[0].tolist()}
        write_json(self.out / "replays" / f"{job.name}.json", kept)


def score(case: Case, study: Study, truth: Simulator, run: Run) -> dict[str, Any]:
    """Costs and measures of a run on the truth; a failed row costs `Study.failure_cost`."""
    costs = total_cost(case.cost(truth).value(run.states, run.controls), run.status)
    failed = ~np.isfinite(costs)
    bounded = np.where(failed, study.failure_cost, costs)
    measured = {name: np.asarray(values).tolist() for name, values in case.measure(run.states).items()}
    return {"cost": float(bounded.mean()), "costs": bounded.tolist(), "failed": int(failed.sum()), "measures": measured}
