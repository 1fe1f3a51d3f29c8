"""The transfer protocol: does what was planned or learned in a simulator work on the truth, and what did identification buy?

Every condition plans with the same algorithm, iterations, restarts, first guesses and starts; conditions differ in what they
plan in. A policy is chosen among restarts and feedback strengths in the condition's own model, never on the truth, and is then
run once on the truth from starts that all share. Every step of the truth is counted: training, validation and tuning apart.

A `Case` is the robot's side of a study; these modules know no robot. Here: the conditions, the case, what is identified for
both kinds of study. `agents.study.planned` plans and runs; `agents.learning.rl` learns and runs; `agents.study.report` tells.

Legend: B starts, T control steps, E rows of constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.parameters import ParameterDistribution, Parameters
from softgym_envs.core.simulator import Simulator
from softgym_envs.core.trajectory import DataSplit, Trajectory

from ..planning.cost import Cost
from .jobs import Condition, Study, read_json, write_json

Array = NDArray[np.float64]
BatchPolicy = Callable[[Array, int], Array]
"""States (B, nx) at control step t -> controls (B, nu)."""

CONDITIONS = {
    condition.name: condition
    for condition in (
        Condition("zero", "no control", "nominal", "fixed", learns=False),
        Condition("guess", "first guess, not planned", "nominal", "fixed", learns=False),
        Condition("nominal", "engine before identification", "nominal"),
        Condition("wide", "wide domain randomisation", "wide"),
        Condition("forces", "random forces", "forces"),
        Condition("identified", "identified engine", "identified", data=True, budgeted=True),
        Condition("posterior", "identified + posterior randomisation", "posterior", data=True, budgeted=True),
        Condition("residual", "identified + residual model", "residual", data=True, budgeted=True, learns=False),
        Condition("identified_mpc", "identified engine, replanned at every step", "identified", "mpc", True, True, False),
        Condition("true_constants", "our engine with the true constants", "true"),
        Condition("network", "network ensemble on the same data", "network", "sampling", True, True, False),
        Condition("truth_budget", "the truth, with the data's steps only", "truth", "budgeted_plan", budgeted=True),
        Condition("truth_sampled", "the truth, sample-based iLQG", "truth", "sampled_plan", learns=False),
        Condition("truth", "the truth, unlimited (oracle)", "truth"),
    )
}
ORACLE, NOMINAL, NOTHING = "truth", "nominal", "zero"
"""Conditions that the return ratio and the share are measured against."""

HORIZONS = (0.1, 0.5, 1.0, 2.0, 5.0)
"""[s] of prediction errors."""
POSTERIOR_SAMPLES = 64

# Streams of random numbers: one per purpose, so that adding a condition changes no other number.
DATA, STARTS, PLANNING, SELECTION, MODEL = range(5)


class Identified(NamedTuple):
    """What `Case.fit` returns."""

    parameters: Parameters
    distribution: ParameterDistribution | None
    """What the fit leaves open; None: nothing is known of it."""
    note: str
    """The fit's verdict in one sentence."""


class Corrected(NamedTuple):
    """What `Case.residual` returns."""

    simulator: Simulator
    note: str
    """What the correction is worth, in one sentence."""


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
        """A policy whose run gives the first controls of a plan; all conditions begin from the same ones."""
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

    def residual(self, data: DataSplit, fit: Identified, rng: np.random.Generator) -> Corrected:
        """Our engine with a learned correction of what the identified constants miss; without it where it is of no use.

        Args:
            data: Of the recorded case.
            fit: Constants of this case.
            rng: Of the training.

        Raises:
            DataError: The recordings cannot be used; the run then goes on with our engine alone.
        """
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
    return case.record(stream(study, DATA, dataset), budget)


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
    rows = draw(fit.parameters, fit.distribution, POSTERIOR_SAMPLES, stream(study, MODEL))
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


def possible(case: Case, conditions: tuple[str, ...]) -> tuple[str, ...]:
    """Those conditions that make sense: without an engine, nothing is known of another robot or scene than the recorded one."""
    at_home = case.recorded().name == case.name
    return tuple(name for name in conditions if at_home or CONDITIONS[name].model != "network")


def check_study(study: Study, case: Case) -> None:
    """Raise `OptionError` unless the study has the conditions that its numbers are measured against, and no impossible one.

    Raises:
        OptionError: One is missing, or one has no counterpart in reinforcement learning, or is not `possible`.
    """
    for name in (NOMINAL, ORACLE) if study.kind == "rl" else (NOTHING, NOMINAL, ORACLE):
        if name not in study.conditions:
            raise OptionError(f"the study lacks the condition {name!r}, which its ratios are measured against")
    for name in study.conditions:
        if name not in CONDITIONS:
            raise OptionError(f"unknown condition {name!r}; there are {', '.join(CONDITIONS)}")
        if study.kind == "rl" and not (CONDITIONS[name].learns or name == NOTHING):
            raise OptionError(f"condition {name!r} has no counterpart in reinforcement learning")
        if name not in possible(case, (name,)):
            raise OptionError(f"condition {name!r} has no engine, and the recordings are of another robot or scene")
