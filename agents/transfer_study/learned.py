"""Studies of reinforcement learning: train in a condition's environment, evaluate on the ground truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..learning.evaluation import evaluate
from ..learning.policy import policy_of
from ..learning.rl import LearningPoint, Training, settings, train
from .conditions import CONDITIONS, NOTHING
from .definition import Study, StudyRun
from .fits import MODEL, EmpiricalParameters, identify, stream
from .task import TransferTask

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm


@dataclass(frozen=True, eq=False)
class PolicyWorker:
    """Runs one job of a transfer study by reinforcement learning: train in its environment, evaluate on the ground truth."""

    case: TransferTask
    study: Study
    out: Path
    env_id: str
    algorithm: Literal["ppo", "sac"] = "ppo"
    common: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of the environments of both worlds."""
    native: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of our engine's environments."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the algorithm; see `agents.learning.rl.Training.overrides`."""
    ground_truth: Mapping[str, Any] = field(default_factory=lambda: {"backend": "mujoco"})
    """Keywords that make an environment the ground truth."""

    def __call__(self, job: StudyRun) -> dict[str, Any]:
        """Train, evaluate, return the record; the cost is minus the return."""
        keywords, steps, spent = self.environment(job)
        model: BaseAlgorithm | None = None
        curve: tuple[LearningPoint, ...] = ()
        if job.condition != NOTHING and steps > 1:
            training = self.training(job, steps, keywords)
            model, curve, *_ = train(training)
        first = 10_000_019 + self.study.repeats.seed  # episodes that no training starts from
        ground_truth = {**self.common, **self.ground_truth}
        found = evaluate(
            None if model is None else policy_of(model),
            self.env_id,
            episodes=self.study.repeats.starts,
            seed=first,
            keywords=ground_truth,
        )
        on_ground_truth = CONDITIONS[job.condition].model == "ground_truth" and model is not None
        physics = model.num_timesteps * self.study.planning.substeps if model is not None else 0
        return {
            "cost": float(-found.returns.mean()),
            "costs": (-found.returns).tolist(),
            "failed": int(found.failed.sum()),
            "measures": {"success": found.success.tolist()},
            "model_cost": -curve[-1].mean_return if curve else None,
            "ground_truth_steps": {
                "train": spent["train"] + (physics if on_ground_truth else 0),
                "validation": spent["validation"],
                "tuning": self.study.tuning_steps,
            },
            "model_steps": 0 if on_ground_truth else physics,
            "detail": {"curve": [list(point) for point in curve]},
        }

    def training(self, job: StudyRun, steps: int, keywords: Mapping[str, Any]) -> Training:
        """Training of at most `steps` control steps: PPO learns from whole batches, so few steps mean few, short rows."""
        usual = settings(self.algorithm, self.settings)
        rows = min(usual["num_envs"], max(steps // 64, 1))
        length = min(usual.get("n_steps", 1), steps // rows)
        whole = steps // (rows * length) * rows * length
        overrides = {**self.settings, **({"n_steps": length} if self.algorithm == "ppo" else {})}
        seed = 1000 * self.study.repeats.seed + job.seed  # common to all conditions
        both = {**self.common, **keywords}
        return Training(self.env_id, whole, self.algorithm, both, rows, seed=seed, overrides=overrides)

    def environment(self, job: StudyRun) -> tuple[dict[str, Any], int, dict[str, int]]:
        """Keywords of the training's environment, control steps, and the ground truth's steps spent on it."""
        study, nothing = self.study, {"train": 0, "validation": 0}
        keywords: dict[str, Any]
        condition = CONDITIONS[job.condition]
        model = condition.model
        if model == "ground_truth":
            steps = job.budget // study.planning.substeps if condition.budgeted else study.train_steps
            return dict(self.ground_truth), 2 * steps if condition.method == "doubled" else steps, nothing
        if model in ("identified", "posterior"):
            record = identify(self.case, study, job.budget, job.dataset, self.out)
            keywords = {**self.native, "params": record.parameters}
            if model == "posterior":
                keywords["randomize"] = EmpiricalParameters(record.samples)
            return keywords, study.train_steps, record.ground_truth_steps
        if model == "drawn":
            params = self.case.drawn(stream(study, MODEL, job.budget, job.dataset, job.seed), condition.factor)
        else:
            params = self.case.best() if model == "true" else self.case.default()
        keywords = {**self.native, "params": params}
        if model == "wide":
            keywords["randomize"] = self.case.wide()
        if model == "forces":
            keywords["disturbance"] = study.planning.force
        return keywords, study.train_steps, nothing
