"""Fits one stage of a procedure, and examines the result: what it may lack is looked for where it does not explain its data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.procedure import Procedure, Stage
from softgym_envs.core.spec import changes
from softgym_envs.core.typed import merged

from ..diagnostics.model_form import in_steps_of
from ..diagnostics.prediction_intervals import FEWEST_WINDOWS, HORIZONS, ROWS, bands
from ..diagnostics.result import FitResult
from ..fitting.outliers import LONE, without_lone
from ..fitting.running import Running
from ..fitting.table import METHODS, method_of
from ..problem.deadline import Allowance, allowed
from ..problem.noise import noise_of
from ..problem.problem import FitProblem
from ..problem.recording_parameters import RecordingParameters
from .candidate_causes import BRIEF_TOLERANCE, Fitted, candidate, conditional
from .finer import with_finer_steps
from .mislabelled import suspicious, with_other_labels
from .search import Diagnose, Search

REPEATED = 3
"""Starts of a fit by the method that repeats another, from parameters only: with guessed states there are many minima."""
CHECKPOINT = "checkpoint.json"  # File of a fit under way, in the folder of a stage.


class Interrupted(KeyboardInterrupt):
    """Ctrl-C after a fit was done, during the search for its deficiencies."""

    def __init__(self, result: FitResult) -> None:
        super().__init__()
        self.result = result
        """The finished fit."""


def fit_stage(
    procedure: Procedure,
    stage: Stage,
    problem: FitProblem,
    *,
    folder: Path | None,
    resume: bool,
    progress: TextIO | None,
    diagnose: Diagnose = "full",
    keep: Callable[[FitResult], object] | None = None,
) -> FitResult:
    """Fit one stage by its method, with a checkpoint in `folder` where the method writes one, and examine the result.

    The examinations are `.mislabelled`, `.finer`, `.candidate_causes` and `banded`. `keep` is called with the fit before
    them, which may last for minutes, to save it.

    Raises:
        OptionError: The method does not suit the system, or does not have one of the options.
        DataError: The recordings do not suit the method.
        Interrupted: Ctrl-C after the method has ended.
    """
    fitted, found = fit_without_bands(
        procedure, stage, problem, folder=folder, resume=resume, progress=progress, diagnose=diagnose, keep=keep
    )
    if diagnose == "none":
        return found
    saying(progress)("how well such recordings are predicted")
    try:
        return banded(fitted, found)
    except KeyboardInterrupt as stop:
        raise Interrupted(found) from stop


def saying(progress: TextIO | None) -> Callable[[str], None]:
    """Function that writes a line of progress, if there is a stream for it."""

    def say(what: str) -> None:
        if progress is not None:
            progress.write(f"{what}\n")

    return say


def fit_without_bands(
    procedure: Procedure,
    stage: Stage,
    problem: FitProblem,
    *,
    folder: Path | None,
    resume: bool,
    progress: TextIO | None,
    diagnose: Diagnose = "full",
    keep: Callable[[FitResult], object] | None = None,
) -> Fitted:
    """`fit_stage` without prediction intervals."""
    method, say = method_of(stage.method), saying(progress)
    path = folder / CHECKPOINT if folder is not None and method.leaves_checkpoint else None
    running = Running(path, resume and path is not None, progress)
    say(f"fitting {', '.join(problem.free)} by {method.name}")
    allowance = Allowance()
    with allowed(allowance if diagnose == "quick" else None):
        result = method.fit(problem, method.settings(stage.options), procedure, running)
        unsearched = result.with_diagnostic("interrupted", "note")
        try:
            if keep is not None:
                keep(unsearched)
            return _asked(procedure, stage, problem, result, say, diagnose, allowance)
        except KeyboardInterrupt as stop:
            raise Interrupted(unsearched) from stop


def _asked(
    procedure: Procedure,
    stage: Stage,
    problem: FitProblem,
    result: FitResult,
    say: Callable[[str], None],
    diagnose: Diagnose,
    allowance: Allowance,
) -> Fitted:
    """Examine a finished fit: outliers, another simulator, labels, steps and causes.

    The first two may change the fit, and are part of it: they are examined whatever `diagnose` says.
    """
    method = method_of(stage.method)
    problem, result = _without_lone(procedure, stage, problem, result, say)
    other = _with_fallback(procedure, stage, problem, result, say)
    if other is not None and other.result.explained:
        changed = changes(problem.simulator, other.problem.simulator)
        return other._replace(result=other.result.with_diagnostic("other_simulator", "note", changed=changed))
    search = Search(diagnose, allowance.fitting, say, used=allowance.used)
    finer = procedure.steps.finer is not None and not result.explained
    if suspicious(problem, result):
        result = search.tried("other labels", lambda: with_other_labels(problem, result), forbids=True) or result
    by_step = result
    if finer and result.usable:
        by_step = search.tried("finer steps", lambda: with_finer_steps(procedure, problem, result, say)) or result

    def again(given: FitProblem, from_there: FitResult | None = None) -> FitResult:
        used = METHODS[method.repeated] if method.repeated else method
        given_too = {} if method.repeated else stage.options
        once: dict[str, Any] = {"starts": 1, "initial": {"short_steps": 0}, "intervals": {"prediction_errors": False}}
        if "levenberg" not in given_too:
            once["levenberg"] = {"cost_tolerance": BRIEF_TOLERANCE}
        if from_there is not None:
            once["initial"] |= {"ended": from_there.ended, "restart_steps": 0}
        elif method.repeated:
            once["starts"] = REPEATED
        once = {name: value for name, value in once.items() if used.takes(name)}
        return used.fit(given, used.settings(merged(given_too, once)), procedure)

    unable = () if method.views or method.repeated else RecordingParameters.names()
    idle = {name for name, other in stage.causes.idle_without.items() if not float(problem.given(other))}
    candidate_causes = {words: names for words, names in stage.causes.candidates.items() if not set(names) & {*unable, *idle}}
    untried = "" if stage.causes.untried is None else stage.causes.untried(problem.simulator)
    result = candidate(
        candidate_causes,
        again,
        problem,
        by_step,
        search,
        known=by_step is not result,
        other=other,
        onward=again,
        untried=untried,
    )
    result = conditional(stage.causes.doubtful, partial(again, from_there=result), problem, result, search)
    if search.skipped:
        result = result.with_diagnostic("not_searched", "note", ", ".join(search.skipped))
    return Fitted(problem, result)


def _without_lone(
    procedure: Procedure, stage: Stage, problem: FitProblem, result: FitResult, say: Callable[[str], None]
) -> Fitted:
    """The fit, or, if there are values that stand alone, a fit without them; see `outliers`.

    Exact states and methods that take no gaps are left as they are.
    """
    method = method_of(stage.method)
    able = (method.views or method.repeated) and stage.options.get("loss") != "robust"
    if not able or not result.usable or (problem.full_state and not problem.noisy):
        return Fitted(problem, result)
    without, count = without_lone(problem, result)
    if not count:
        return Fitted(problem, result)
    say("fitting again without values that stand alone")
    onward = (
        [{"starts": 1, "initial": {"restart_steps": 0, "ended": result.ended}}] if method.takes("initial") else []
    )  # this may suffice
    try:
        for options in (*onward, {}):
            again = method.fit(without, method.settings(merged(stage.options, options)), procedure)
            if again.usable and again.explained:
                break
    except DataError:  # single steps take no gaps
        return Fitted(problem, result)
    if not again.usable:
        return Fitted(problem, result)
    again = replace(again, provenance=result.provenance)
    return Fitted(without, again.with_diagnostic("lone_outliers", "note", "", count, LONE))


def _with_fallback(
    procedure: Procedure, stage: Stage, problem: FitProblem, result: FitResult, say: Callable[[str], None]
) -> Fitted | None:
    """The fit in the stage's other simulator, if this result does not explain the data; no checkpoint is written."""
    if result.explained or stage.simulator.fallback is None:
        return None
    method, simulator = method_of(stage.method), stage.simulator.fallback(problem.before or problem.simulator)
    if not changes(problem.simulator, simulator):
        return None
    say("the model does not explain the data; trying the stage's other simulator")
    try:
        fallback = in_steps_of(problem, simulator)
        other = method.fit(fallback, method.settings(stage.options), procedure)
    except (DataError, OptionError):  # a method may not support the other simulator
        return None
    return Fitted(fallback, other) if other.usable or (other.explained and other.converged) else None


def banded(problem: FitProblem, result: FitResult) -> FitResult:
    """The result with prediction intervals (`diagnostics.prediction_intervals`), and diagnostics on them.

    Args:
        problem: As it was fitted; recordings that it held out are predicted, too.
        result: With the parameters and the latency that are used.
    """
    found = bands(problem.replace(view=result.view), result.parameters)
    result = replace(result, bands=found)
    if found:
        few = min(found, key=lambda band: band.windows)
        sizes = [
            (horizon, [f"{band.size:.2g} {band.kind}".removesuffix(" -") for band in found if band.horizon == horizon])
            for horizon in dict.fromkeys(band.horizon for band in found)
        ]
        result = result.with_diagnostic(
            "prediction_interval", "note", sizes=sizes, rows=ROWS, windows=few.windows, fitted=few.fitted,
            adequate=result.explained,
        )  # fmt: skip
    if result.explained:
        return result
    known = problem.full_state or problem.estimates_initial
    need = (FEWEST_WINDOWS + 1) * HORIZONS[0] / 2 if known and not found else 0.0
    trust = bool(found) and all(band.fitted == 0 for band in found)
    far = () if found or result.noise_known else _far(problem, result)
    unit = problem.column_units[problem.column_names.index(far[0])] if far else ""
    return result.with_diagnostic("intervals_of_model", "note", *far, need=need, trust=trust, unit=unit)


def _far(problem: FitProblem, result: FitResult) -> tuple[str, float, float] | tuple[()]:
    """The column that fitted predictions miss by most beside its noise, by how much, and that noise; () where none shows."""
    names = tuple(name for name in problem.column_names if name in result.noise)
    try:
        noise = noise_of(problem.split.train, names)
        worst = max(names, key=lambda name: result.noise[name] / noise[name])
    except (DataError, ValueError):
        return ()
    return worst, result.noise[worst], noise[worst]
