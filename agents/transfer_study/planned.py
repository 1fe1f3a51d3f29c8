"""Planning studies of `.protocol`: one run, planned in a condition's model and run on the ground truth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import FileFormatError
from softgym_envs.core.files import read_json, write_json
from softgym_envs.core.simulator import Simulator

from ..control.plan import Run, total_cost
from .conditions import CONDITIONS
from .definition import Study, StudyRun
from .fits import STARTS, stream
from .models import build_model
from .planner import Planner
from .task import TransferTask


@dataclass(frozen=True, eq=False)
class PlanWorker:
    """Runs one job of a planning study; picklable."""

    case: TransferTask
    study: Study
    out: Path

    def __call__(self, job: StudyRun) -> dict[str, Any]:
        """Plan in the condition's model, run on the ground truth, return the record."""
        condition = CONDITIONS[job.condition]
        model = build_model(self.case, self.study, job, condition, self.out)
        planner = Planner(self.case, self.study, job, model)
        chosen = planner.choose(condition.method)
        ground_truth = self.case.ground_truth()
        starts = self.case.starts(stream(self.study, STARTS), self.study.repeats.starts)
        run = chosen.execute(ground_truth, starts, self.case.ground_truth_values())
        if job.dataset == 0 and job.seed == 0:
            self._keep(job, run)
        spent = dict(model.ground_truth_steps)
        planned = chosen.steps + sum(chosen.spent)
        if condition.model == "ground_truth":
            spent["train"] += planned
        return {
            **score(self.case, self.study, ground_truth, run),
            "model_cost": chosen.model_cost,
            "ground_truth_steps": {**spent, "tuning": self.study.tuning_steps},
            "model_steps": 0 if condition.model == "ground_truth" else planned,
            "detail": {**model.detail, **chosen.detail},
        }

    def _keep(self, job: StudyRun, run: Run) -> None:
        """Write states (T+1, nx) and controls (T, nu) on the ground truth from the unperturbed start, for pictures."""
        kept = {"states": run.states[0].tolist(), "controls": run.controls[0].tolist()}
        write_json(self.out / "replays" / f"{job.name}.json", kept)


def read_replay(path: Path, entries: int) -> NDArray[np.float64]:
    """Read states (T+1, nx) that a worker kept, with the given number of entries.

    Raises:
        FileFormatError: The file cannot be read, or holds no such states.
    """
    try:
        states = np.array(read_json(path).get("states"), dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise error if isinstance(error, FileFormatError) else FileFormatError(f"{path} holds no states: {error}") from error
    if states.ndim != 2 or states.shape[1] != entries or not np.isfinite(states).all():
        raise FileFormatError(f"{path} has states of shape {states.shape}, expected finite ones of {entries} entries")
    return states


def score(case: TransferTask, study: Study, ground_truth: Simulator, run: Run) -> dict[str, Any]:
    """Costs and measures of a run on the ground truth; a failed row costs `Study.failure_cost`."""
    costs = total_cost(case.cost(ground_truth).value(run.states, run.controls), run.status)
    failed = ~np.isfinite(costs)
    bounded = np.where(failed, study.failure_cost, costs)
    measured = {name: np.asarray(values).tolist() for name, values in case.measure(run.states).items()}
    return {"cost": float(bounded.mean()), "costs": bounded.tolist(), "failed": int(failed.sum()), "measures": measured}
