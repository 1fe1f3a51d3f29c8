"""Models that conditions plan in: our engine under some parameters, networks, or the ground truth.

Legend: B starts, T control steps, E rows of parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from softgym_envs.core.base import embedded
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array, Simulator

from ..control.cost import Cost
from ..control.plan import own_entries
from ..models.borrowed import BorrowedSlopes
from .definition import Condition, Study, StudyRun
from .fits import MODEL, POSTERIOR_SAMPLES, draw, full_states, identify, stream
from .task import TransferTask

SHORT_HORIZON = 8
"""Horizon of receding-horizon conditions in control steps."""


@dataclass(frozen=True, eq=False)
class Model:
    """A condition's model for planning."""

    simulator: Simulator
    parameters: Parameters | None
    """E rows, the reference first; None: the simulator's own"""
    cost: Cost
    substeps: int
    ground_truth_steps: dict[str, int] = field(default_factory=lambda: {"train": 0, "validation": 0})
    """Steps of the ground truth spent to make the model."""
    detail: dict[str, Any] = field(default_factory=dict)
    """Further facts about the model, for the record."""

    @property
    def rows(self) -> int:
        """Number E of rows."""
        return (self.parameters.batch or 1) if self.parameters is not None else 1

    def states(self, state: Array) -> Array:
        """Convert states of the robot, or of a simulator with further entries, to states of this simulator."""
        world = self.simulator.simulator if isinstance(self.simulator, BorrowedSlopes) else self.simulator
        return own_entries(world, embedded(world, state))

    def parameter_values(self, batch: int) -> Parameters | None:
        """Parameters of `batch` times E rows, E running fastest."""
        if self.parameters is None:
            return None
        return type(self.parameters).from_vector(np.tile(self.parameters.to_matrix(self.rows), (batch, 1)))

    def reference(self) -> Parameters | None:
        """Parameters of the first row."""
        return None if self.parameters is None else self.parameters.row(0)


def build_model(case: TransferTask, study: Study, job: StudyRun, condition: Condition, out: Path) -> Model:
    """The model of a condition; conditions with data read or make the fit of their data set."""
    settings, rng = study.planning, stream(study, MODEL, job.budget, job.dataset, job.seed)
    if condition.model == "ground_truth":
        ground_truth = case.ground_truth()
        if settings.difference_step == 0:
            ground_truth = BorrowedSlopes(ground_truth, case.native(), case.best())
        return Model(ground_truth, case.ground_truth_values(), case.cost(ground_truth), settings.substeps)
    native = case.native()
    cost = case.cost(native)
    if condition.model == "network":
        from ..models.network import train_networks

        data = full_states(case.recorded(), study, job.budget, job.dataset)
        fit_steps = identify(case, study, job.budget, job.dataset, out).ground_truth_steps
        network = train_networks(native, data.train, substeps=settings.substeps, rng=rng)
        return Model(network, None, cost, 1, fit_steps, detail={"network_error": network.networks.error})
    if not condition.data:
        plain = {"nominal": case.default, "true": case.best}
        if condition.model == "drawn":
            return Model(native, case.drawn(rng, condition.factor), cost, settings.substeps)
        if condition.model in plain:
            return Model(native, plain[condition.model](), cost, settings.substeps)
        return Model(native, draw(case.default(), case.wide(), settings.ensemble, rng), cost, settings.substeps)
    record = identify(case, study, job.budget, job.dataset, out)
    rows = record.parameters
    if condition.model == "posterior":
        rows = type(rows).from_vector(record.samples.to_matrix(POSTERIOR_SAMPLES)[: settings.ensemble])
    return Model(native, rows, cost, settings.substeps, record.ground_truth_steps)
