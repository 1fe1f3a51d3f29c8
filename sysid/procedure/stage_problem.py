"""The problem of one stage of a system's procedure: its recordings, simulator, free parameters and what measures them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.procedure import EXPERIMENT, Procedure, Stage
from softgym_envs.core.simulator import Simulator
from softgym_envs.core.trajectory import DataSplit, TrajectorySet

from ..problem.problem import FitProblem
from .guard import kept_back


def stage_problem(
    procedure: Procedure, stage: Stage, simulator: Simulator, data: TrajectorySet | DataSplit, *, start: Parameters, **more: Any
) -> FitProblem:
    """The problem of one stage.

    Args:
        procedure: The system's procedure: it says how columns that are no state entries are measured.
        stage: Stage with the parameters to free.
        simulator: The system's simulator; the stage may change its fields.
        data: Recordings of any experiments; those of the stage are used.
        start: Parameters before.
        more: Further fields of `FitProblem`, which take precedence.

    Raises:
        DataError: No recording is of the stage's experiment, or they cannot be used.
        OptionError: The simulator has no field that the stage changes.
    """
    recorded, initial = procedure.recorded, procedure.initial
    split = data if isinstance(data, DataSplit) else DataSplit(data, TrajectorySet(()), TrajectorySet(()))
    if not len(split.train):
        raise DataError("no recording is left to fit: validation and test take them all")
    train, validation, test = (stage.of(part) for part in split)
    if not len(train):
        there = ", ".join(sorted({t.metadata.get(EXPERIMENT, "none") for t in split.train}))
        raise DataError(
            f"stage {stage.name!r} needs recordings of {stage.experiment!r}; there are some of {there}: record more"
        )
    before = simulator = changed(simulator, stage.simulator.changes)
    if stage.simulator.adapt is not None:
        simulator = stage.simulator.adapt(simulator)
    if (prepare := stage.data.prepare) is not None:
        train, validation, test = (
            TrajectorySet(tuple(prepare(simulator, recording) for recording in part)) for part in (train, validation, test)
        )
    columns = more.get("measured") or train.names
    known = set(columns) <= set(simulator.state_names)
    measurement = None if known or recorded.measurement is None else recorded.measurement(simulator, train.names)
    if measurement is None and recorded.markers is not None and not set(columns) & set(simulator.state_names):
        there, seen = (", ".join(names[:6]) + ", ..." * (len(names) > 6) for names in (columns, recorded.markers(simulator)))
        raise DataError(f"missing columns: the recordings hold {there}; a camera's are named {seen}: rename them")
    first = initial.guess and initial.guess(simulator, measurement.names if measurement else tuple(columns))
    if measurement is not None and more.get("measured"):
        measurement = measurement.select(_known(columns, measurement.names))
    free = more.get("free") or stage.free_of(simulator)
    fields: dict[str, Any] = {
        "free": free, "start": start, "measurement": measurement, "initial_state": first,
        "noise": stage.noise_of(train.names), "free_motion": stage.data.free_motion, "free_initial": stage.data.free_initial,
        "prior": stage.prior_of(free), "known_initial": initial.known, "actuated": initial.actuated,
        "propagated": initial.propagated, "candidate_causes": stage.causes.candidates, "before": before,
    }  # fmt: skip
    problem = FitProblem(simulator, DataSplit(train, validation, test), **{**fields, **more})
    return problem.with_estimated_noise() if stage.data.noise_known and problem.noise is None else problem


def guarded(problem: FitProblem) -> FitProblem:
    """The problem with the ends of its recordings held out for judging, where they are long enough."""
    return problem.replace(data=kept_back(problem.split))


def _known(columns: tuple[str, ...], there: tuple[str, ...]) -> tuple[str, ...]:
    """The chosen columns, all of them measured."""
    for name in columns:
        if name not in there:
            raise DataError(f"missing column {name!r}: the robot measures {', '.join(there[:12])} of what was recorded")
    return columns


def changed(simulator: Simulator, fields: Mapping[str, Any]) -> Simulator:
    """The simulator with some fields changed.

    Raises:
        OptionError: It has no such field.
    """
    for name in fields:
        if not hasattr(simulator, name):
            raise OptionError(f"a stage changes {name!r}, which {type(simulator).__name__} has not")
    return replace(simulator, **fields) if fields else simulator  # type: ignore[type-var]
