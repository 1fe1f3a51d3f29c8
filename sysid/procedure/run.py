"""Fits a system's procedure stage by stage ([Wang2020] IV-D): parameters of one stage are fixed, or refined, in the next.

The first group of parameters is the one that the model describes best (cables and motors, from a recording in the air); contact
follows. Every stage is saved when it is done, so that an interrupted run can be resumed there. If a stage's parameters predict
held-out data worse than those before it, a diagnostic says so, and the parameters before it are used (`.guard`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from softgym_envs.core.errors import OptionError, SoftgymError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.procedure import Procedure, Stage
from softgym_envs.core.simulator import Simulator
from softgym_envs.core.trajectory import DataSplit, TrajectorySet

from ..diagnostics.result import FitResult
from ..problem.problem import FitProblem
from ..problem.recording_parameters import RecordingParameters
from ..report.files import save
from .guard import EQUAL_WITHIN, better_start, compare
from .identification import Identification, StageResult, loaded
from .search import Diagnose
from .stage import CHECKPOINT, Interrupted, banded, fit_without_bands, saying
from .stage_problem import guarded, stage_problem


class ProcedureInterrupted(KeyboardInterrupt):
    """Ctrl-C after at least one stage was fitted; with `out`, its files are those of a shorter procedure."""

    def __init__(self, result: Identification, missing: tuple[str, ...]) -> None:
        more = "`resume` goes on" if missing or len(result.stages) > 1 else "the fit is kept"
        super().__init__(*([f"not fitted: {', '.join(missing)}"] if missing else []), more)
        self.result, self.missing = result, missing
        """The stages that were fitted, and the names of the others."""


def run_procedure(
    procedure: Procedure,
    simulator: Simulator,
    data: TrajectorySet | DataSplit,
    *,
    start: Parameters | None = None,
    stages: tuple[Stage, ...] | None = None,
    out: Path | None = None,
    resume: bool = False,
    announce: Callable[[str], object] | None = None,
    progress: TextIO | None = None,
    diagnose: Diagnose = "full",
    model: str = "",
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> Identification:
    """Identify, stage by stage.

    Args:
        procedure: The system's procedure.
        simulator: Simulator whose parameters are fitted; stages may change its fields.
        data: Recordings that name their experiment, as `Procedure.record` makes them.
        start: Parameters before the first stage; None: the simulator's, with the procedure's guess.
        stages: Stages in place of the procedure's own.
        out: Folder of fit.toml, fit.json, report.html, and of a folder of every stage with fit.toml, fit.json and checkpoint;
            None: nothing is written.
        resume: Use the files that an earlier run on the same data left in `out`.
        announce: Called with the name of each stage as it begins.
        progress: Stream for iteration lines; None: no output.
        diagnose: How long to search for what a fit lacks; see `.search`.
        model: Name of the structure, for the files.
        limits: See `FitProblem.limits`: for parameters that are used in longer steps than the simulator's. The last stage of an
            experiment keeps within them; earlier ones may look beyond, where some ways to the optimum lead.

    Raises:
        OptionError: There is no stage, `resume` lacks `out`, or a stage needs something that is missing.
        DataError: A stage's recordings are missing, or cannot be used.
        ProcedureInterrupted: Ctrl-C after at least one stage was fitted.
    """
    chosen = procedure.stages if stages is None else stages
    if not chosen or (resume and out is None):
        raise OptionError("the procedure has no stage" if not chosen else "resume needs out, the folder to go on from")
    current = first = start or simulator.default_parameters.replace(**procedure.initial_guess_of(simulator))
    view = RecordingParameters()
    done: list[StageResult] = []
    stopped: KeyboardInterrupt | None = None
    for place, stage in enumerate(chosen):
        try:
            if announce is not None:
                announce(stage.name)
            folder = None if out is None else out / stage.name
            before = current.replace(**stage.begin_of(current))
            last = all(later.experiment != stage.experiment for later in chosen[place + 1 :])
            bounds = limits if last else {}
            problem = guarded(stage_problem(procedure, stage, simulator, data, start=before, view=view, limits=bounds))
            problem = problem if stage.begin else better_start(problem, first)
            identity = hashlib.sha256(f"{problem.fingerprint} {stage.method} {sorted(stage.options.items())}".encode())
            earlier = _earlier(stage, folder, identity.hexdigest(), current) if resume and folder else None
            more: dict[str, Any] = {"identity": identity.hexdigest(), "model": model, "last": last, "diagnose": diagnose}
            found, stopped = (
                (earlier, None) if earlier else _solved(procedure, stage, problem, folder, resume, progress, **more)
            )
        except KeyboardInterrupt as stop:
            if not done:
                raise
            stopped = stop
            break
        done.append(found)
        current, view = found.fit.parameters, found.fit.view
        if stopped is not None:
            break
    result = Identification(tuple(done))
    missing = tuple(stage.name for stage in chosen[len(done) :])
    if out is not None:
        result.save_whole(out, missing)
        result.report(out / "report.html")
    if stopped is not None:
        raise ProcedureInterrupted(result, missing) from stopped
    return result


def _solved(
    procedure: Procedure,
    stage: Stage,
    problem: FitProblem,
    folder: Path | None,
    resume: bool,
    progress: TextIO | None,
    *,
    identity: str,
    model: str,
    last: bool,
    diagnose: Diagnose,
) -> tuple[StageResult, KeyboardInterrupt | None]:
    """Result of a stage, also where Ctrl-C ended its examination; files of such a stage are not those of a finished one."""

    def settled(found: FitResult, **more: str) -> FitResult:
        told = {**found.provenance, "stage": stage.name, **more}
        return _guarded(replace(found, provenance=told, spec=replace(found.spec, model=model)), problem)

    def keep(found: FitResult) -> None:
        if folder is not None:
            save(settled(found), folder, page=False)

    under_way = resume and folder is not None and (folder / CHECKPOINT).exists()
    stopped: KeyboardInterrupt | None = None
    try:
        fitted, found = fit_without_bands(
            procedure, stage, problem, folder=folder, resume=under_way, progress=progress, diagnose=diagnose, keep=keep
        )
        found = settled(found, identity=identity)
        if last and diagnose != "none":  # others are there for the next one
            saying(progress)("how well such recordings are predicted")
            found = banded(fitted, found)
    except Interrupted as stop:
        found, stopped = settled(stop.result), stop
    if folder is not None:
        save(found, folder, page=False)
    return StageResult(stage.name, found), stopped


def _guarded(found: FitResult, problem: FitProblem) -> FitResult:
    """The result, or the parameters before it where these predict kept-back data better, as a diagnostic then says."""
    compared = compare(found.open_loop)
    better = compared.better or found.explained  # a fit that leaves only noise is worse by chance only
    if not better or (compared.better and not found.converged):
        others = found.diagnostics[1:] if found.codes[0] == "not_converged" else found.diagnostics
        code = "used_unconverged" if better else "kept_previous"
        found = replace(found, diagnostics=others).with_diagnostic(
            code, "do_not_use", "", compared.ratio, 1.0 + EQUAL_WITHIN, data=compared.data, percent=100 * compared.ratio
        )
    if better:
        return found
    mean = problem.encode(found.start)[[problem.free.index(name) for name in problem.own]]
    return replace(found, parameters=found.start, view=problem.view, posterior=replace(found.posterior, mean=mean))


def _earlier(stage: Stage, folder: Path, identity: str, kind: Parameters) -> StageResult | None:
    """Result of this stage from an earlier run; None if that was another problem, or did not finish."""
    try:
        found = loaded(folder, type(kind))
    except SoftgymError:
        return None
    return StageResult(stage.name, found) if found.provenance.get("identity") == identity else None
