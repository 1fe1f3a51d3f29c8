"""Fits a room's recipe stage by stage ([Wang2020] IV-D): constants of one stage are fixed, or refined, in the next.

The first group of constants is the one that the model describes best (cables and motors, from a recording in the air); contact
follows. Every stage is saved when it is done, so that an interrupted run can be resumed there. If a stage's
constants predict held-out data worse than those before it, a verdict says so, and the constants before it are used (`.guard`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from softgym_envs.core.errors import DataError, OptionError, SoftgymError
from softgym_envs.core.files import read_json
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.recipe import EXPERIMENT, Recipe, Stage
from softgym_envs.core.simulator import Simulator
from softgym_envs.core.spec import changes
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet

from ..data.problem import FitProblem
from ..data.view import View
from ..judgement.result import FitResult
from ..judgement.step import in_steps_of
from ..judgement.uncertainty import JointParameters, PosteriorParameters
from ..judgement.verdicts import NOT_CONVERGED
from ..report.files import copy_constants, load_distribution, save
from .finer import blamed
from .guard import better_start, compare, kept_back
from .mislabelled import unmasked
from .outliers import LONE, without_lone
from .predictions import banded
from .suspects import NEARLY, Fitted, conditional, suspected
from .table import METHODS, method_of

REPEATED = 3
"""Starts of a fit by the method that repeats another, from constants only: with guessed states there are many minima."""
CHECKPOINT, FIT = "checkpoint.json", "fit.toml"
"""Files of a fit under way and of its constants, in the folder of a stage."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C after a fit was done, during the search for its deficiencies."""

    def __init__(self, result: FitResult) -> None:
        super().__init__()
        self.result = result
        """The finished fit."""


@dataclass(frozen=True)
class StageResult:
    """Result of a stage."""

    name: str
    free: tuple[str, ...]
    parameters: Parameters
    posterior: PosteriorParameters
    verdict: str
    """Headline of the fit."""
    text: str
    """Summary of the fit."""
    fit: FitResult | None
    """None where it was read from the files of an earlier run."""
    usable: bool = True
    """Whether the headline is no failure."""
    view: View = field(default_factory=View)
    """Constants of the recordings."""


@dataclass(frozen=True)
class RecipeResult:
    """Results of all stages, in their order."""

    stages: tuple[StageResult, ...]

    @property
    def parameters(self) -> Parameters:
        """Constants after the last stage."""
        return self.stages[-1].parameters

    @property
    def decisive(self) -> tuple[StageResult, ...]:
        """Stages except those whose constants were all fitted again later."""
        return tuple(
            stage
            for index, stage in enumerate(self.stages)
            if not set(stage.free) <= {name for later in self.stages[index + 1 :] for name in later.free}
        )

    @property
    def unusable(self) -> tuple[str, ...]:
        """Constants that no stage found: all stages that freed them failed, or predicted worse than the constants before."""
        names = dict.fromkeys(name for stage in self.stages for name in stage.free)
        found = {name for stage in self.stages if stage.usable for name in stage.free}
        return tuple(name for name in names if name not in found)

    @property
    def verdict(self) -> str:
        """Headlines of the decisive stages, with their names where there are several."""
        only = len(self.decisive) == 1
        return "; ".join(stage.verdict if only else f"{stage.name}: {stage.verdict}" for stage in self.decisive)

    def distribution(self) -> JointParameters:
        """Posterior of the decisive stages, for domain randomisation."""
        return JointParameters(tuple(stage.posterior for stage in self.decisive))

    def summary(self) -> str:
        """Summaries of all stages; those that decide nothing are marked."""
        begins = " (a start alone: later stages fit its constants again, and judge them)"
        heads = (stage.name + (begins if stage not in self.decisive else "") for stage in self.stages)
        return "\n".join(f"{head}\n{stage.text}" for head, stage in zip(heads, self.stages, strict=True))


def run_recipe(
    recipe: Recipe,
    simulator: Simulator,
    data: TrajectorySet | DataSplit,
    *,
    start: Parameters | None = None,
    stages: tuple[Stage, ...] | None = None,
    out: Path | None = None,
    resume: bool = False,
    announce: Callable[[str], None] | None = None,
    progress: TextIO | None = None,
    model: str = "",
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> RecipeResult:
    """Identify, stage by stage.

    Args:
        recipe: The room's recipe.
        simulator: Simulator whose constants are fitted; stages may change its fields.
        data: Recordings that name their experiment, as `Recipe.record` makes them.
        start: Constants before the first stage; None: the simulator's, with the recipe's guess.
        stages: Stages in place of the recipe's own.
        out: Folder for the last stage's fit.toml, and a folder of every stage in it, with fit.toml, fit.json, report.html and
            checkpoint; None: nothing is written.
        resume: Use the files that an earlier run on the same data left in `out`.
        announce: Called with the name of each stage as it begins.
        progress: Stream for iteration lines; None: no output.
        model: Name of the structure, for the files.
        limits: See `FitProblem.limits`: for constants that are used in longer steps than the simulator's. The last stage of an
            experiment keeps within them; earlier ones may look beyond, where some ways to the optimum lead.

    Raises:
        OptionError: There is no stage, `resume` lacks `out`, or a stage needs something that is missing.
        DataError: A stage's recordings are missing, or cannot be used.
    """
    chosen = recipe.stages if stages is None else stages
    if not chosen or (resume and out is None):
        raise OptionError("the recipe has no stage" if not chosen else "resume needs out, the folder to go on from")
    current = first = start or simulator.default_parameters.replace(**recipe.guess_of(simulator))
    view = View()
    done: list[StageResult] = []
    for place, stage in enumerate(chosen):
        if announce is not None:
            announce(stage.name)
        folder = None if out is None else out / stage.name
        before = current.replace(**stage.begin_of(current))
        last = all(later.experiment != stage.experiment for later in chosen[place + 1 :])
        bounds = limits if last else {}
        problem = guarded(stage_problem(recipe, stage, simulator, data, start=before, view=view, limits=bounds))
        problem = problem if stage.begin else better_start(problem, first)
        identity = hashlib.sha256(f"{problem.fingerprint} {stage.method} {sorted(stage.options.items())}".encode()).hexdigest()
        earlier = _earlier(stage, folder, identity, current) if resume and folder else None
        more: dict[str, Any] = {"identity": identity, "model": model, "last": last}
        done.append(earlier or _solved(recipe, stage, problem, folder, resume, progress, **more))
        current, view = done[-1].parameters, done[-1].view
    found = RecipeResult(tuple(done))
    if out is not None:
        copy_constants(out / chosen[-1].name / FIT, out / FIT, found.unusable)
    return found


def stage_problem(
    recipe: Recipe, stage: Stage, simulator: Simulator, data: TrajectorySet | DataSplit, *, start: Parameters, **more: Any
) -> FitProblem:
    """The problem of one stage.

    Args:
        recipe: The room's recipe: it says how columns that are no state entries are measured.
        stage: Stage with the constants to free.
        simulator: The room's simulator; the stage may change its fields.
        data: Recordings of any experiments; those of the stage are used.
        start: Constants before.
        more: Further fields of `FitProblem`, which take precedence.

    Raises:
        DataError: No recording is of the stage's experiment, or they cannot be used.
        OptionError: The simulator has no field that the stage changes.
    """
    split = data if isinstance(data, DataSplit) else DataSplit(data, TrajectorySet(()), TrajectorySet(()))
    if not len(split.train):
        raise DataError("no recording is left to fit: validation and test take them all")
    train, validation, test = (stage.of(part) for part in split)
    if not len(train):
        there = ", ".join(sorted({t.metadata.get(EXPERIMENT, "none") for t in split.train}))
        raise DataError(
            f"stage {stage.name!r} needs recordings of {stage.experiment!r}; there are some of {there}: record more"
        )
    before = simulator = changed(simulator, stage.simulator)
    if stage.adapt is not None:
        simulator = stage.adapt(simulator)
    if stage.prepare is not None:
        train, validation, test = (_prepared(stage.prepare, simulator, part) for part in (train, validation, test))
    columns = more.get("measured") or train.names
    known = set(columns) <= set(simulator.state_names)
    measurement = None if known or recipe.measurement is None else recipe.measurement(simulator, train.names)
    if measurement is None and recipe.markers is not None and not set(columns) & set(simulator.state_names):
        there, seen = (", ".join(names[:6]) + ", ..." * (len(names) > 6) for names in (columns, recipe.markers(simulator)))
        raise DataError(f"missing columns: the recordings hold {there}; a camera's are named {seen}: rename them")
    first = recipe.first_state and recipe.first_state(simulator, measurement.names if measurement else tuple(columns))
    if measurement is not None and more.get("measured"):
        measurement = measurement.select(_known(columns, measurement.names))
    free = more.get("free") or stage.free_of(simulator)
    fields: dict[str, Any] = {
        "free": free, "start": start, "measurement": measurement, "initial_state": first,
        "noise": stage.noise_of(train.names), "free_motion": stage.free_motion, "free_initial": stage.free_initial,
        "prior": stage.prior_of(free), "known_start": recipe.known_start, "driven": recipe.driven,
        "carried": recipe.carried, "suspects": stage.suspects, "before": before,
    }  # fmt: skip
    problem = FitProblem(simulator, DataSplit(train, validation, test), **{**fields, **more})
    return problem.with_estimated_noise() if stage.told_noise and problem.noise is None else problem


def guarded(problem: FitProblem) -> FitProblem:
    """The problem with the ends of its recordings held out for judging, where they are long enough."""
    return problem.replace(data=kept_back(problem.split))


def _known(columns: tuple[str, ...], there: tuple[str, ...]) -> tuple[str, ...]:
    """The chosen columns, all of them measured.

    Raises:
        DataError: One is not.
    """
    for name in columns:
        if name not in there:
            raise DataError(f"missing column {name!r}: the robot measures {', '.join(there[:12])} of what was recorded")
    return columns


def _prepared(
    prepare: Callable[[Simulator, Trajectory], Trajectory], simulator: Simulator, part: TrajectorySet
) -> TrajectorySet:
    return TrajectorySet(tuple(prepare(simulator, recording) for recording in part))


def changed(simulator: Simulator, fields: Mapping[str, Any]) -> Simulator:
    """The simulator with some fields changed.

    Raises:
        OptionError: It has no such field.
    """
    for name in fields:
        if not hasattr(simulator, name):
            raise OptionError(f"a stage changes {name!r}, which {type(simulator).__name__} has not")
    return replace(simulator, **fields) if fields else simulator  # type: ignore[type-var]


def fit_stage(
    recipe: Recipe, stage: Stage, problem: FitProblem, *, folder: Path | None, resume: bool, progress: TextIO | None
) -> FitResult:
    """Fit one stage by its method, with a checkpoint in `folder` where the method writes one, and examine the result.

    The examinations are `.mislabelled`, `.finer`, `.suspects` and `.predictions`.

    Raises:
        OptionError: The method does not suit the room, or does not have one of the options.
        DataError: The recordings do not suit the method.
        Interrupted: Ctrl-C after the method has ended.
    """
    fitted, found = _fitted(recipe, stage, problem, folder=folder, resume=resume, progress=progress)
    _saying(progress)("how well such recordings are predicted")
    try:
        return banded(fitted, found)
    except KeyboardInterrupt as stop:
        raise Interrupted(found) from stop


def _saying(progress: TextIO | None) -> Callable[[str], None]:
    """Function that writes a line of progress, if there is a stream for it."""

    def say(what: str) -> None:
        if progress is not None:
            progress.write(f"{what}\n")

    return say


def _fitted(
    recipe: Recipe, stage: Stage, problem: FitProblem, *, folder: Path | None, resume: bool, progress: TextIO | None
) -> Fitted:
    """`fit_stage` without bands of predictions."""
    method, say = method_of(stage.method), _saying(progress)
    where: dict[str, Any] = {}
    if folder is not None and method.leaves_checkpoint:
        where = {"checkpoint": folder / CHECKPOINT, "resume": resume}
    if method.takes("progress"):
        where["progress"] = progress
    say(f"fitting {', '.join(problem.free)} by {method.name}")
    result = method.fit(problem, method.settings({**stage.options, **where}), recipe)
    try:
        return _asked(recipe, stage, problem, result, say)
    except KeyboardInterrupt as stop:
        said = "interrupted: what it may lack was not looked for to the end"
        raise Interrupted(result.with_verdict("note", said)) from stop


def _asked(recipe: Recipe, stage: Stage, problem: FitProblem, result: FitResult, say: Callable[[str], None]) -> Fitted:
    """Examine a finished fit: outliers, another simulator, labels, steps and causes."""
    method = method_of(stage.method)
    problem, result = _without_lone(recipe, stage, problem, result, say)
    other = _otherwise(recipe, stage, problem, result, say)
    if other is not None and other.result.explained:
        told = f"explained by another simulator only: {changes(problem.simulator, other.problem.simulator)}"
        return other._replace(result=other.result.with_verdict("note", told))
    result = unmasked(problem, result)
    by_step = blamed(recipe, problem, result, say)

    def again(given: FitProblem, from_there: FitResult | None = None) -> FitResult:
        used = METHODS[method.repeated] if method.repeated else method
        given_too = {} if method.repeated else stage.options
        once: dict[str, Any] = {"starts": 1, "near": 0, "shorter": 0, "compare": False}  # it begins where the fit ended
        if "levenberg" not in given_too:
            once["levenberg"] = {"cost_tolerance": NEARLY}
        if from_there is not None:
            once["begin"] = from_there.ended
        elif method.repeated:
            once["starts"] = REPEATED
        once = {name: value for name, value in once.items() if used.takes(name)}
        return used.fit(given, used.settings({**given_too, **once}), recipe)

    unable = () if method.views or method.repeated else View.names()
    suspects = {words: names for words, names in stage.suspects.items() if not set(names) & set(unable)}
    untried = "" if stage.untried is None else stage.untried(problem.simulator)
    result = suspected(
        suspects, again, problem, by_step, say, known=by_step is not result, other=other, onward=again, untried=untried
    )
    return Fitted(problem, conditional(stage.doubtful, partial(again, from_there=result), problem, result, say))


def _without_lone(recipe: Recipe, stage: Stage, problem: FitProblem, result: FitResult, say: Callable[[str], None]) -> Fitted:
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
    onward = [{"starts": 1, "near": 0, "begin": result.ended}] if method.takes("begin") else []  # this may suffice
    try:
        for options in (*onward, {}):
            again = method.fit(without, method.settings({**stage.options, **options}), recipe)
            if again.usable and again.explained:
                break
    except DataError:  # single steps take no gaps
        return Fitted(problem, result)
    if not again.usable:
        return Fitted(problem, result)
    said = f"outliers, more than {LONE:g} standard deviations off beside others that are not: {count} of all numbers, left out"
    return Fitted(without, replace(again, provenance=result.provenance).with_verdict("note", said))


def _otherwise(
    recipe: Recipe, stage: Stage, problem: FitProblem, result: FitResult, say: Callable[[str], None]
) -> Fitted | None:
    """The fit in the stage's other simulator, if this result does not explain the data; no checkpoint is written."""
    if result.explained or stage.instead is None:
        return None
    method, simulator = method_of(stage.method), stage.instead(problem.before or problem.simulator)
    if not changes(problem.simulator, simulator):
        return None
    say("the model does not explain the data; trying the stage's other simulator")
    try:
        instead = in_steps_of(problem, simulator)
        other = method.fit(instead, method.settings(stage.options), recipe)
    except (DataError, OptionError):  # a method may not support the other simulator
        return None
    return Fitted(instead, other) if other.usable or (other.explained and other.converged) else None


def _solved(
    recipe: Recipe,
    stage: Stage,
    problem: FitProblem,
    folder: Path | None,
    resume: bool,
    progress: TextIO | None,
    *,
    identity: str,
    model: str,
    last: bool,
) -> StageResult:
    under_way = resume and folder is not None and (folder / CHECKPOINT).exists()
    fitted, found = _fitted(recipe, stage, problem, folder=folder, resume=under_way, progress=progress)
    told = {**found.provenance, "stage": stage.name, "identity": identity}
    found = replace(found, provenance=told, spec=replace(found.spec, model=model))
    judged = compare(found.open_loop)
    better = judged.better or found.explained  # a fit that leaves only noise is worse by chance only
    said = "" if better and not judged.better else judged.text(found.converged)
    if said:
        others = found.verdicts[1:] if found.verdicts[0].text == NOT_CONVERGED else found.verdicts
        found = replace(found, verdicts=others).with_verdict("failure", said)
    if not better:
        found = replace(
            found,
            parameters=found.start,
            view=problem.view,
            posterior=replace(found.posterior, mean=_encoded(found.start, problem)),
        )
    if last:
        _saying(progress)("how well such recordings are predicted")
    if last:  # others are there for the next one
        found = banded(fitted, found)
    if folder is not None:
        save(found, folder)
    return StageResult(
        stage.name, found.free, found.parameters, found.distribution(), found.verdicts[0].text, found.summary(), found,
        found.usable, found.view,
    )  # fmt: skip


def _encoded(parameters: Parameters, problem: FitProblem) -> Any:
    """Fit coordinates of the robot's free constants."""
    return problem.encode(parameters)[[problem.free.index(name) for name in problem.own]]


def _earlier(stage: Stage, folder: Path, identity: str, kind: Parameters) -> StageResult | None:
    """Result of this stage from an earlier run; None if that was another problem, or did not finish."""
    try:
        document = read_json(folder / "fit.json")
        if document.get("provenance", {}).get("identity") != identity:
            return None
        posterior, parameters = load_distribution(folder), type(kind).load(folder / FIT)
        verdicts = [f"[{v['level']}] {v['text']}" for v in document["verdicts"]]
        headline, names = document["verdicts"][0], tuple(e["name"] for e in document["estimates"])
        return StageResult(
            stage.name, names, parameters, posterior, headline["text"], "\n".join(verdicts), None,
            headline["level"] != "failure", View(**document["view"]),
        )  # fmt: skip
    except (SoftgymError, KeyError, IndexError, TypeError, AttributeError):
        return None
