"""The conditions that studies compare, and which of them a study must, may and cannot have."""

from __future__ import annotations

from softgym_envs.core.errors import OptionError

from .definition import Condition, Study
from .task import TransferTask

CONDITIONS = {
    condition.name: condition
    for condition in (
        Condition("zero", "no control", "nominal", "nothing", learns=False),
        Condition("nominal", "engine before identification", "nominal"),
        Condition("near", "engine with parameters a factor of 1.2 off, drawn", "drawn", factor=1.2),
        Condition("far", "engine with parameters a factor of 2 off, drawn", "drawn", factor=2.0),
        Condition("wide", "wide domain randomisation", "wide"),
        Condition("forces", "random forces", "forces", plans=False),
        Condition("identified", "identified engine", "identified", data=True, budgeted=True),
        Condition("posterior", "identified + posterior randomisation", "posterior", data=True, budgeted=True),
        Condition("true_constants", "our engine with the true parameters", "true"),
        Condition("network", "network ensemble on the same data", "network", "sampling", True, True, False),
        Condition(
            "ground_truth_budget",
            "the ground truth, with the data's steps only",
            "ground_truth",
            "budgeted_plan",
            budgeted=True,
        ),
        Condition("ground_truth", "the ground truth, unlimited (oracle)", "ground_truth"),
        Condition("ground_truth_doubled", "the ground truth, twice the oracle's samples", "ground_truth", "doubled"),
    )
}
ROBUST = ("wide", "posterior")
"""Models with many rows of parameters at once."""
ORACLE, NOMINAL, NOTHING, DOUBLED = "ground_truth", "nominal", "zero", "ground_truth_doubled"
"""Reference conditions of the share, and the oracle with twice its samples or steps."""


def possible(case: TransferTask, conditions: tuple[str, ...]) -> tuple[str, ...]:
    """Conditions that make sense for the case: without an engine, only the recorded robot and scene are known."""
    at_home = case.recorded().description == case.description
    return tuple(name for name in conditions if at_home or CONDITIONS[name].model != "network")


def check_study(study: Study, case: TransferTask) -> None:
    """Raise `OptionError` unless the study has its reference conditions, and no impossible one.

    Raises:
        OptionError: One is missing, or has no counterpart in reinforcement learning or sample-based iLQG, or is not `possible`.
    """
    for name in (NOMINAL, ORACLE) if study.kind == "rl" else (NOTHING, NOMINAL, ORACLE):
        if name not in study.conditions:
            raise OptionError(f"the study lacks the condition {name!r}, which others are measured against")
    for name in study.conditions:
        if name not in CONDITIONS:
            raise OptionError(f"unknown condition {name!r}; there are {', '.join(CONDITIONS)}")
        if study.kind == "rl" and not (CONDITIONS[name].learns or name == NOTHING):
            raise OptionError(f"condition {name!r} has no counterpart in reinforcement learning")
        if study.kind != "rl" and not CONDITIONS[name].plans:
            raise OptionError(f"condition {name!r} kicks the robot while it learns: kind is {study.kind!r}, not 'rl'")
        if study.kind == "gps" and CONDITIONS[name].model in ROBUST:
            raise OptionError(f"condition {name!r} plans over many parameters at once, sample-based iLQG (kind 'gps') over one")
        if name not in possible(case, (name,)):
            raise OptionError(f"condition {name!r} has no engine, and the recordings are of another robot or scene")
