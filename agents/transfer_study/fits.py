"""Identification from the recordings of a study, for both kinds of study; and the streams of its random numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from softgym_envs.core.errors import DataError, FileFormatError, shown
from softgym_envs.core.files import read_json, write_json
from softgym_envs.core.parameters import ParameterDistribution, Parameters
from softgym_envs.core.simulator import Simulator
from softgym_envs.core.trajectory import DataSplit, Trajectory

from .definition import Study
from .task import Identified, TransferTask

ERROR_HORIZONS = (0.1, 0.5, 1.0, 2.0, 5.0)
"""[s] of prediction errors."""
POSTERIOR_SAMPLES = 64

# Streams of random numbers: one per purpose, so that adding a condition changes no other number.
DATA, STARTS, PLANNING, SELECTION, MODEL = range(5)


@dataclass(frozen=True, eq=False)
class EmpiricalParameters:
    """Parameters drawn from a list of rows: a `ParameterDistribution` that can be a file."""

    samples: Parameters
    """One row per sample."""

    def sample(self, rng: np.random.Generator, nominal: Parameters) -> dict[str, float]:
        """Draw one of the rows; only the parameters that differ between rows."""
        matrix = self.samples.to_matrix(self.samples.batch or 1)
        row = matrix[int(rng.integers(len(matrix)))]
        varied = np.flatnonzero(np.ptp(matrix, axis=0) > 0)
        return {self.samples.names()[i]: float(row[i]) for i in varied}


def stream(study: Study, purpose: int, *indices: int) -> np.random.Generator:
    """Random generator of one purpose; equal arguments give equal numbers on every machine."""
    return np.random.default_rng([study.repeats.seed, purpose, *indices])


@dataclass(frozen=True, eq=False)
class FitRecord:
    """A fit with its cost in steps and its prediction errors; a file in out/fits."""

    parameters: Parameters
    samples: Parameters
    """Rows drawn from the posterior; the parameters themselves if there is none."""
    note: str
    failed: bool
    """Whether there is no fit, and `parameters` are the default ones, or its diagnostic rejects it; see the note."""
    ground_truth_steps: dict[str, int]
    """train and validation: physics steps of the ground truth"""
    errors: dict[str, list[list[float]]]
    """Parameters (nominal, identified, true) or "persistence" -> [horizon [s], mean error of the position [m]]"""

    def to_json(self) -> dict[str, Any]:
        """The fit as plain numbers."""
        return {
            "parameters": self.parameters.to_vector().tolist(),
            "names": list(self.parameters.names()),
            "samples": self.samples.to_vector().tolist(),
            "note": self.note,
            "failed": self.failed,
            "ground_truth_steps": self.ground_truth_steps,
            "errors": self.errors,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any], kind: type[Parameters]) -> FitRecord:
        """Make a fit from a file's contents.

        Raises:
            DataError: It belongs to other parameters.
            FileFormatError: It is no fit, or a damaged one.
        """
        if document.get("names") != list(kind.names()):
            raise DataError(
                f"the fit names {shown(document.get('names'))}, expected {kind.names()}: start the study in another folder"
            )
        try:
            return cls(
                kind.from_vector(np.array(document["parameters"], dtype=np.float64)),
                kind.from_vector(np.array(document["samples"], dtype=np.float64)),
                str(document["note"]),
                bool(document["failed"]),
                {str(name): int(count) for name, count in document["ground_truth_steps"].items()},
                read_errors(document["errors"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise FileFormatError(
                f"a fit of this study is damaged ({error!r}): remove it, and the same command fits again"
            ) from error


def read_errors(table: Any) -> dict[str, list[list[float]]]:
    """Prediction errors of a file; `ValueError`, `TypeError`, `AttributeError` or `OverflowError` if it has none."""
    found = {str(name): [[float(horizon), float(error)] for horizon, error in pairs] for name, pairs in table.items()}
    if not all(np.isfinite(pair).all() for pairs in found.values() for pair in pairs):
        raise ValueError("an error of prediction is no finite number")
    return found


def recordings(case: TransferTask, study: Study, budget: int, dataset: int) -> DataSplit:
    """The data set with this number; larger budgets draw from the same stream."""
    return case.record(stream(study, DATA, dataset), budget)


def full_states(case: TransferTask, study: Study, budget: int, dataset: int) -> DataSplit:
    """Full states of that data set without sensor or noise: an advantage granted to all that learn."""
    return case.states(stream(study, DATA, dataset), budget)


def identify(case: TransferTask, study: Study, budget: int, dataset: int, out: Path) -> FitRecord:
    """The fit of one data set on the recorded case, read from its file if it exists; parameters adapted to this case."""
    path, source = out / "fits" / f"b{budget}_d{dataset}.json", case.recorded()
    if path.exists():
        record = FitRecord.from_json(read_json(path), type(source.default()))
    else:
        record = _fit(source, study, recordings(source, study, budget, dataset))
        write_json(path, record.to_json())
    return replace(record, parameters=case.adapt(record.parameters), samples=case.adapt(record.samples))


def _fit(case: TransferTask, study: Study, data: DataSplit) -> FitRecord:
    dt = case.ground_truth().dt  # recordings may have rows of a camera, or of sensors
    steps = {name: round(sum(t.num_steps * t.period for t in part) / dt) for name, part in zip(data._fields, data, strict=True)}
    try:
        fit = case.fit(data)
    except DataError as error:
        fit = Identified(case.default(), None, f"no fit: {error}", failed=True)
    rows = draw(fit.parameters, fit.distribution, POSTERIOR_SAMPLES, stream(study, MODEL))
    parameter_values = {"nominal": case.default(), "identified": fit.parameters, "true": case.best()}
    errors = prediction_errors(case, data, parameter_values)
    counted = {"train": steps["train"], "validation": steps["validation"]}
    return FitRecord(fit.parameters, rows, fit.note, fit.failed, counted, errors)


def draw(center: Parameters, distribution: ParameterDistribution | None, rows: int, rng: np.random.Generator) -> Parameters:
    """Draw `rows` rows: the center itself, then samples around it."""
    found = [center]
    found += [center if distribution is None else center.replace(**distribution.sample(rng, center)) for _ in range(rows - 1)]
    return type(center).from_vector(np.stack([p.to_vector() for p in found]))


def prediction_errors(
    case: TransferTask, data: DataSplit, parameter_values: dict[str, Parameters]
) -> dict[str, list[list[float]]]:
    """Mean error of the position over the test recordings (else validation, else none), against the horizon.

    {} for recordings that lack entries of the state, from which nothing can be predicted.
    """
    simulator = case.native()
    known = set(simulator.state_names)
    test = [t for t in (data.test if len(data.test) else data.validation) if known <= set(t.names)]
    if not test:
        return {}
    found: dict[str, list[list[float]]] = {name: [] for name in (*parameter_values, "persistence")}
    for horizon in ERROR_HORIZONS:
        some = [t for t in test if round(horizon / t.period) <= t.num_steps]
        for name in found if some else ():
            values = [
                _prediction_error(case, simulator, parameter_values.get(name), t, round(horizon / t.period)) for t in some
            ]
            good = [v for v in values if np.isfinite(v)]
            if good:
                found[name].append([horizon, float(np.mean(good))])
    return found


def _prediction_error(
    case: TransferTask, simulator: Simulator, parameter_values: Parameters | None, trajectory: Trajectory, steps: int
) -> float:
    """Error on one recording, predicted from its start; parameters None: the robot does not move."""
    states = trajectory.select(simulator.state_names).values
    predicted, status = states[:1], np.zeros(1, dtype=np.int32)
    if parameter_values is not None:
        order = [trajectory.control_names.index(name) for name in simulator.control_names]
        controls = np.ascontiguousarray(trajectory.controls[None, :steps, order])
        rolled, status = simulator.rollout(states[:1].copy(), controls, parameter_values, substeps=trajectory.substeps)
        predicted = rolled[:, -1]
    error = float(np.linalg.norm(case.position(predicted[0]) - case.position(states[steps])))
    return error if status[0] == 0 else np.inf
