"""The transfer protocol: does what was planned or learned in a simulator work on the truth, and what did identification buy?

Every arm plans with the same algorithm, iterations, restarts, first guesses and starts; arms differ in what they plan in. A
policy is chosen among restarts and feedback strengths in the arm's own model, never on the truth, and is then run once on the
truth from starts that all arms share. Every physics step of the truth is counted: training, validation and tuning apart.

A `Case` is the robot's side of a study: this module knows no robot. Legend: B starts, T control steps, E rows of constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.parameters import ParameterDistribution, Parameters
from softgym_envs.core.simulator import Simulator
from softgym_envs.core.trajectory import DataSplit, Trajectory

from .cost import Cost
from .forcing import ClockCost, ForcedSimulator
from .gps import MINIMUM_ROLLOUTS, GPSOptions, plan_gps
from .ilqg import ILQGOptions, plan_ilqg
from .mpc import ILQGController, SamplingController, SamplingOptions
from .plan import (
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
from .study import Arm, Job, Study, read_json, write_json

Array = NDArray[np.float64]
BatchPolicy = Callable[[Array, int], Array]
"""States (B, nx) at control step t -> controls (B, nu)."""

ARMS = {
    arm.name: arm
    for arm in (
        Arm("zero", "no control", "nominal", "fixed", learns=False),
        Arm("guess", "first guess, not planned", "nominal", "fixed", learns=False),
        Arm("nominal", "engine before identification", "nominal"),
        Arm("wide", "wide domain randomisation", "wide"),
        Arm("forces", "random forces", "forces"),
        Arm("identified", "identified engine", "identified", data=True, budgeted=True),
        Arm("posterior", "identified + posterior randomisation", "posterior", data=True, budgeted=True),
        Arm("residual", "identified + residual model", "residual", data=True, budgeted=True, learns=False),
        Arm("identified_mpc", "identified engine, replanned at every step", "identified", "mpc", True, True, False),
        Arm("true_constants", "our engine with the true constants", "true"),
        Arm("network", "network ensemble on the same data", "network", "sampling", True, True, False),
        Arm("truth_budget", "the truth, with the data's steps only", "truth", "budgeted_plan", budgeted=True),
        Arm("truth_sampled", "the truth, sample-based iLQG", "truth", "sampled_plan", learns=False),
        Arm("truth", "the truth, unlimited (oracle)", "truth"),
    )
}
ORACLE, NOMINAL, NOTHING = "truth", "nominal", "zero"
"""Arms that the return ratio and the share are measured against."""

FEEDBACK = (0.0, 0.3, 1.0)
"""Candidates for the factor on a plan's gains; 0 is open loop."""
HORIZONS = (0.1, 0.5, 1.0, 2.0, 5.0)
"""[s] of prediction errors."""
POSTERIOR_SAMPLES = 64
SHORT_HORIZON = 8
"""Control steps that receding-horizon arms look ahead."""

# Streams of random numbers: one per purpose, so that adding an arm changes no other number.
_DATA, _STARTS, _PLANNING, _SELECTION, _MODEL = range(5)


class Identified(NamedTuple):
    """What `Case.fit` returns."""

    parameters: Parameters
    distribution: ParameterDistribution | None
    """What the fit leaves open; None: nothing is known of it."""
    note: str
    """The fit's verdict in one sentence."""


class Case(Protocol):
    """The robot's side of a study; picklable, so that every run builds its own simulators."""

    @property
    def name(self) -> str:
        """Goes into study.json: it must change when anything in the case changes that changes numbers."""
        ...

    def native(self) -> Simulator:
        """Our engine."""
        ...

    def truth(self) -> Simulator:
        """What counts as the truth."""
        ...

    def truth_parameters(self) -> Parameters | None:
        """The truth's constants; None: its own defaults."""
        ...

    def recorded(self) -> Case:
        """The case that the recordings are of: this one, or another robot whose constants this one takes over."""
        ...

    def adapt(self, parameters: Parameters) -> Parameters:
        """Constants identified on the recorded case as constants of this one: with another gravity, for example."""
        ...

    def default(self) -> Parameters:
        """Constants of our engine before identification."""
        ...

    def best(self) -> Parameters:
        """Our engine with the truth's constants; where it has others (contact), those that fit unlimited data best."""
        ...

    def wide(self) -> ParameterDistribution:
        """What one would randomise who has no data."""
        ...

    def cost(self, simulator: Simulator) -> Cost:
        """The task, on this simulator's states."""
        ...

    def starts(self, rng: np.random.Generator, count: int) -> Array:
        """(count, nx): perturbed starts, the first one unperturbed; the same rng gives the same starts."""
        ...

    def first_policy(self, rng: np.random.Generator) -> BatchPolicy:
        """A policy whose run gives the first controls of a plan; all arms begin from the same ones."""
        ...

    def force_scale(self) -> Array:
        """(n,): tangent vector of a random kick of 1 m/s."""
        ...

    def record(self, rng: np.random.Generator, steps: int) -> DataSplit:
        """Recordings of the truth with `steps` physics steps for training; validation is counted beside, test is free."""
        ...

    def fit(self, data: DataSplit) -> Identified:
        """Identify our engine.

        Raises:
            DataError: The recordings cannot be used; the run then goes on with the default constants.
        """
        ...

    def residual(self, data: DataSplit, fit: Identified, rng: np.random.Generator) -> Simulator:
        """The identified engine with a learned correction."""
        ...

    def measure(self, states: Array) -> dict[str, Array]:
        """Further numbers of runs (B, T+1, nx), each (B,), such as the distance."""
        ...

    def position(self, states: Array) -> Array:
        """Where the robot is, (..., nx) -> (..., 3) [m]: prediction errors are measured with it."""
        ...


@dataclass(frozen=True, eq=False)
class EmpiricalParameters:
    """Constants drawn from a list of rows: a `ParameterDistribution` that is a file."""

    samples: Parameters
    """One row per sample."""

    def sample(self, rng: np.random.Generator, nominal: Parameters) -> dict[str, float]:
        """One of the rows; only the constants that differ between rows."""
        matrix = self.samples.to_matrix(self.samples.batch or 1)
        row = matrix[int(rng.integers(len(matrix)))]
        varied = np.flatnonzero(np.ptp(matrix, axis=0) > 0)
        return {self.samples.names()[i]: float(row[i]) for i in varied}


def stream(study: Study, purpose: int, *indices: int) -> np.random.Generator:
    """The generator of one purpose; equal arguments give equal numbers on every machine."""
    return np.random.default_rng([study.seed, purpose, *indices])


# --- fits -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FitRecord:
    """A fit with what it cost and how well it predicts; a file in out/fits."""

    parameters: Parameters
    samples: Parameters
    """Rows drawn from the posterior; the parameters themselves where there is none."""
    note: str
    failed: bool
    """The data could not be used: `parameters` are the default ones."""
    truth_steps: dict[str, int]
    """train and validation: physics steps of the truth"""
    errors: dict[str, list[list[float]]]
    """Constants (nominal, identified, true) or "persistence" -> [horizon [s], mean error of the position [m]]"""

    def to_json(self) -> dict[str, Any]:
        """Plain numbers."""
        return {
            "parameters": self.parameters.to_vector().tolist(),
            "names": list(self.parameters.names()),
            "samples": self.samples.to_vector().tolist(),
            "note": self.note,
            "failed": self.failed,
            "truth_steps": self.truth_steps,
            "errors": self.errors,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any], kind: type[Parameters]) -> FitRecord:
        """From a file.

        Raises:
            DataError: It belongs to other constants.
        """
        if document.get("names") != list(kind.names()):
            raise DataError(
                f"the fit names {document.get('names')}, expected {kind.names()}: start the study in another folder"
            )
        return cls(
            kind.from_vector(np.array(document["parameters"])),
            kind.from_vector(np.array(document["samples"])),
            document["note"],
            document["failed"],
            document["truth_steps"],
            document["errors"],
        )


def recordings(case: Case, study: Study, budget: int, dataset: int) -> DataSplit:
    """The data set with this number; larger budgets draw from the same stream."""
    return case.record(stream(study, _DATA, dataset), budget)


def identify(case: Case, study: Study, budget: int, dataset: int, out: Path) -> FitRecord:
    """The fit of one data set on the recorded case, from its file if it is there; constants adapted to this case."""
    path, source = out / "fits" / f"b{budget}_d{dataset}.json", case.recorded()
    if path.exists():
        record = FitRecord.from_json(read_json(path), type(source.default()))
    else:
        record = _fit(source, study, recordings(source, study, budget, dataset))
        write_json(path, record.to_json())
    return replace(record, parameters=case.adapt(record.parameters), samples=case.adapt(record.samples))


def _fit(case: Case, study: Study, data: DataSplit) -> FitRecord:
    steps = {name: sum(t.num_steps * t.substeps for t in part) for name, part in zip(data._fields, data, strict=True)}
    try:
        fit, failed = case.fit(data), False
    except DataError as error:
        fit, failed = Identified(case.default(), None, f"no fit: {error}"), True
    rows = draw(fit.parameters, fit.distribution, POSTERIOR_SAMPLES, stream(study, _MODEL))
    constants = {"nominal": case.default(), "identified": fit.parameters, "true": case.best()}
    errors = prediction_errors(case, data, constants)
    counted = {"train": steps["train"], "validation": steps["validation"]}
    return FitRecord(fit.parameters, rows, fit.note, failed, counted, errors)


def draw(center: Parameters, distribution: ParameterDistribution | None, rows: int, rng: np.random.Generator) -> Parameters:
    """`rows` rows: the center itself, then samples around it."""
    found = [center]
    found += [center if distribution is None else center.replace(**distribution.sample(rng, center)) for _ in range(rows - 1)]
    return type(center).from_vector(np.stack([p.to_vector() for p in found]))


def prediction_errors(case: Case, data: DataSplit, constants: dict[str, Parameters]) -> dict[str, list[list[float]]]:
    """Mean error of the position over the test recordings (else validation, else none), against the horizon."""
    test = data.test if len(data.test) else data.validation
    if not len(test):
        return {}
    simulator = case.native()
    found: dict[str, list[list[float]]] = {name: [] for name in (*constants, "persistence")}
    for horizon in HORIZONS:
        some = [t for t in test if round(horizon / t.period) <= t.num_steps]
        for name in found if some else ():
            values = [_prediction_error(case, simulator, constants.get(name), t, round(horizon / t.period)) for t in some]
            good = [v for v in values if np.isfinite(v)]
            if good:
                found[name].append([horizon, float(np.mean(good))])
    return found


def _prediction_error(
    case: Case, simulator: Simulator, constants: Parameters | None, trajectory: Trajectory, steps: int
) -> float:
    """Of one recording from its start; None: it stays where it was."""
    states = trajectory.select(simulator.state_names).values
    predicted, status = states[:1], np.zeros(1, dtype=np.int32)
    if constants is not None:
        order = [trajectory.control_names.index(name) for name in simulator.control_names]
        controls = np.ascontiguousarray(trajectory.controls[None, :steps, order])
        rolled, status = simulator.rollout(states[:1].copy(), controls, constants, substeps=trajectory.substeps)
        predicted = rolled[:, -1]
    error = float(np.linalg.norm(case.position(predicted[0]) - case.position(states[steps])))
    return error if status[0] == 0 else np.inf


# --- models ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Model:
    """What an arm plans in."""

    simulator: Simulator
    parameters: Parameters | None
    """E rows, the reference first; None: the simulator's own"""
    cost: Cost
    substeps: int
    truth_steps: dict[str, int] = field(default_factory=lambda: {"train": 0, "validation": 0})
    """Spent to make the model."""
    forced: ForcedSimulator | None = None
    detail: dict[str, float] = field(default_factory=dict)
    """What else is known of the model, for the record."""

    @property
    def rows(self) -> int:
        """E."""
        return (self.parameters.batch or 1) if self.parameters is not None else 1

    def states(self, state: Array) -> Array:
        """States of the robot as states of this simulator."""
        return self.forced.timed(state) if self.forced is not None else state

    def constants(self, batch: int) -> Parameters | None:
        """Constants of `batch` times E rows, E running fastest."""
        if self.parameters is None:
            return None
        return type(self.parameters).from_vector(np.tile(self.parameters.to_matrix(self.rows), (batch, 1)))

    def reference(self) -> Parameters | None:
        """Constants of the first row."""
        return None if self.parameters is None else self.parameters.row(0)


def build_model(case: Case, study: Study, job: Job, arm: Arm, out: Path) -> Model:
    """The model of an arm; arms with data read or make the fit of their data set."""
    rng = stream(study, _MODEL, job.budget, job.dataset, job.seed)
    if arm.model == "truth":
        truth = case.truth()
        return Model(truth, case.truth_parameters(), case.cost(truth), study.substeps)
    native = case.native()
    cost = case.cost(native)
    if arm.model == "network":
        from .network import train_networks

        data = recordings(case.recorded(), study, job.budget, job.dataset)
        fit_steps = identify(case, study, job.budget, job.dataset, out).truth_steps
        network = train_networks(native, data.train, substeps=study.substeps, rng=rng)
        return Model(network, None, cost, 1, fit_steps, detail={"network_error": network.error})
    if arm.model == "forces":
        scale = study.force * case.force_scale()
        forced = ForcedSimulator(native, scale, study.ensemble - 1 or 1, study.horizon, int(rng.integers(2**31)))
        return Model(forced, forced.rows(case.default(), ensemble=True), ClockCost(cost), study.substeps, forced=forced)
    if not arm.data:
        plain = {"nominal": case.default, "true": case.best}
        if arm.model in plain:
            return Model(native, plain[arm.model](), cost, study.substeps)
        return Model(native, draw(case.default(), case.wide(), study.ensemble, rng), cost, study.substeps)
    record = identify(case, study, job.budget, job.dataset, out)
    if arm.model == "residual":
        data = recordings(case.recorded(), study, job.budget, job.dataset)
        fit = Identified(record.parameters, EmpiricalParameters(record.samples), record.note)
        native = case.residual(data, fit, rng)
        cost = case.cost(native)
    rows = record.parameters
    if arm.model == "posterior":
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
    steps: int
    substeps: int
    spent: list[int] = field(default_factory=list)
    """Physics steps of planning, one entry per start."""

    def run(self, simulator: Simulator, state: Array, parameters: Parameters | None = None) -> Run:
        """See `Executable`."""
        runs = []
        for x in state:
            self.controller.reset()
            runs.append(
                run_policy(self.controller, simulator, x, steps=self.steps, substeps=self.substeps, parameters=parameters)
            )
            self.spent.append(self.controller.steps.total())
        return Run(*(np.concatenate(parts) for parts in zip(*runs, strict=True)))


class Chosen(NamedTuple):
    """What an arm's planner came up with."""

    executable: Executable
    model_cost: float | None
    """Expected in the arm's own model from perturbed starts; None where there is no model run."""
    detail: dict[str, Any]
    steps: int
    """Physics steps of the model, a linearisation by differences counted as the steps that it takes"""


@dataclass(frozen=True, eq=False)
class Planner:
    """Plans for one run; every arm has the same settings."""

    case: Case
    study: Study
    job: Job
    model: Model

    @cached_property
    def start(self) -> Array:
        """The unperturbed start, (nx,)."""
        return np.asarray(self.case.starts(stream(self.study, _STARTS), 1)[0])

    def rng(self, purpose: int) -> np.random.Generator:
        """Common to all arms of a seed."""
        return stream(self.study, purpose, self.job.seed)

    def options(self, iterations: int) -> ILQGOptions:
        """Of iLQG."""
        return ILQGOptions(max_iterations=iterations, trust=self.study.trust, difference_step=self.study.difference_step)

    def choose(self, method: str) -> Chosen:
        """The policy of an arm's method."""
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
        policy = self.case.first_policy(self.rng(_PLANNING)) if self.job.arm == "guess" else lambda x, t: np.zeros((len(x), nu))
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
        rng, best, steps = self.rng(_PLANNING), None, 0
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
            raise UnstablePlanError(f"the simulation fails under all {tried} first guesses of arm {self.job.arm}")
        cost, plan, feedback = best
        kept = self.model.forced.without_clock(plan) if self.model.forced is not None else plan
        detail = {"feedback": feedback, "plan_cost": plan.cost, "outcome": plan.outcome.name, "iterations": len(plan.log)}
        return Chosen(PlanExecutable(kept, feedback), cost, detail, steps)

    @property
    def per_linearization(self) -> int:
        """Steps that a linearisation costs."""
        simulator = self.model.simulator
        constants = len(simulator.default_parameters.names())
        exact = bool(getattr(simulator, "exact_linearize", False))
        return 1 if exact else 2 * (simulator.n + simulator.nu + constants)

    def judge(self, executable: Executable) -> tuple[float, int]:
        """Mean cost in the model from perturbed starts under all rows of constants, and the steps that it took."""
        starts = self.case.starts(self.rng(_SELECTION), self.study.starts)
        states = np.repeat(self.model.states(starts), self.model.rows, axis=0)
        run = executable.run(self.model.simulator, states, self.model.constants(len(starts)))
        costs = total_cost(self.model.cost.value(run.states, run.controls), run.status)
        bounded = np.where(np.isfinite(costs), costs, self.study.failure_cost)
        return float(bounded.mean()), len(states) * self.study.horizon * self.study.substeps

    def replanned(self) -> Chosen:
        """Receding-horizon iLQG in the model."""
        controls = self.guess(self.rng(_PLANNING))[: min(SHORT_HORIZON, self.study.horizon)]
        controller = ILQGController(
            self.model.simulator,
            self.model.cost,
            controls,
            self.model.substeps,
            self.model.parameters,
            self.options(2),
            self.options(self.study.iterations),
        )
        return Chosen(ControllerExecutable(controller, self.study.horizon, self.study.substeps), None, {}, 0)

    def sampling(self) -> Chosen:
        """Receding-horizon MPPI in the model, its samples judged under all rows of constants."""
        horizon = min(SHORT_HORIZON, self.study.horizon)
        controller = SamplingController(
            self.model.simulator,
            self.model.cost,
            horizon,
            self.rng(_PLANNING),
            self.model.substeps,
            self.model.parameters,
            SamplingOptions(samples=16, knots=min(4, horizon), noise=0.6, iterations=2),
        )
        executable = ControllerExecutable(controller, self.study.horizon, self.study.substeps)
        return Chosen(executable, None, dict(self.model.detail), 0)

    def sampled(self, options: GPSOptions) -> Chosen:
        """The sample-based iLQG of the tensegrity paper; on the truth it is the paper's own baseline."""
        rng = self.rng(_PLANNING)
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
        rng, best = self.rng(_PLANNING), None
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
        """Plan in the arm's model, run on the truth, return the record."""
        arm = ARMS[job.arm]
        model = build_model(self.case, self.study, job, arm, self.out)
        planner = Planner(self.case, self.study, job, model)
        chosen = planner.choose(arm.method)
        truth = self.case.truth()
        starts = self.case.starts(stream(self.study, _STARTS), self.study.starts)
        run = chosen.executable.run(truth, starts, self.case.truth_parameters())
        if job.dataset == 0 and job.seed == 0:
            self._keep(job, run)
        spent = dict(model.truth_steps)
        planned = chosen.steps
        if isinstance(chosen.executable, ControllerExecutable):
            planned += sum(chosen.executable.spent)
        if arm.model == "truth":
            spent["train"] += planned
        return {
            **score(self.case, self.study, truth, run),
            "model_cost": chosen.model_cost,
            "truth_steps": {**spent, "tuning": self.study.tuning_steps},
            "model_steps": 0 if arm.model == "truth" else planned,
            "detail": chosen.detail,
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


def check_study(study: Study) -> None:
    """Raise `OptionError` unless the study has the arms that its numbers are measured against.

    Raises:
        OptionError: One is missing, or an arm has no counterpart in reinforcement learning.
    """
    for name in (NOMINAL, ORACLE) if study.kind == "rl" else (NOTHING, NOMINAL, ORACLE):
        if name not in study.arms:
            raise OptionError(f"the study lacks the arm {name!r}, which its ratios are measured against")
    for name in study.arms:
        if name not in ARMS:
            raise OptionError(f"unknown arm {name!r}; there are {', '.join(ARMS)}")
        if study.kind == "rl" and not (ARMS[name].learns or name == NOTHING):
            raise OptionError(f"arm {name!r} has no counterpart in reinforcement learning")
