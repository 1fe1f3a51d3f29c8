"""A transfer study from its file to its report: checked, registered, run, filmed, reported."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from softgym_envs.core.errors import OptionError, SoftgymError
from softgym_envs.core.files import git_commit
from softgym_envs.core.task import load
from softgym_envs.systems import systems
from sysid.fitting.table import method_of

from .conditions import CONDITIONS, check_study, possible
from .definition import Study
from .document import StudyFile, read_study
from .jobs import Executor, register, registered, run_jobs
from .planned import PlanWorker, read_replay
from .report import write_report
from .summary import Summary
from .task import TransferTask

FILM_FRAMES = 20
"""Most frames, so that the report stays below a megabyte."""


def run_study(
    given: Path,
    out: Path | None,
    *,
    executor: Executor,
    workers: int | None,
    conditions: tuple[str, ...],
    video: bool,
    progress: Callable[[str], None],
    **counts: int | None,
) -> Summary:
    """See `agents.transfer`; `counts` are seeds, datasets and starts in place of the study's own."""
    if given.is_dir():
        return write_report(registered(given), given, images=("transfer.gif",) * (given / "transfer.gif").exists())
    study, case = chosen(given, conditions, **counts)
    out = out or Path("runs") / f"transfer_{study.name}"
    progress(f"study {study.name}, seed {study.repeats.seed}, commit {git_commit()}")
    command = " ".join(
        ["softgym-envs transfer", given.as_posix(), *(["--ray"] if executor == "ray" else [])]
        + [f"--{name} {value}" for name, value in counts.items() if value is not None]
        + ([f"--conditions {' '.join(conditions)}"] if conditions else [])
    )
    register(study, case.description, out, provenance={"commit": git_commit(), "command": command})
    for threshold in study.thresholds:
        progress(f"  threshold: {threshold.label}")
    run, stopped = worker(case, study, out), False
    try:
        run_jobs(study.jobs(CONDITIONS), run, out, executor=executor, workers=workers, progress=progress)
    except KeyboardInterrupt:
        stopped = True  # the report says how many runs are missing
    try:
        summary = write_report(study, out, images=film(case, out) if video else ())
    except SoftgymError:
        if not stopped:
            raise
    if stopped:
        raise KeyboardInterrupt(f"{out} has a report of the runs so far; the same command goes on")
    return summary


def bundled() -> dict[str, Path]:
    """Studies in the folders of systems, by name."""
    packages = {entry.engine.partition(":")[0].rpartition(".")[0] for entry in systems().values()}
    specs = [importlib.util.find_spec(package) for package in sorted(packages)]
    folders = [Path(place) for spec in specs if spec for place in spec.submodule_search_locations or ()]
    return {path.stem: path for folder in folders for path in sorted(folder.glob("studies/*.toml"))}


def chosen(given: Path, conditions: tuple[str, ...] = (), **counts: int | None) -> StudyFile:
    """Study and case, changed and checked; curves and thresholds of left-out conditions are dropped.

    Raises:
        OptionError: No such study, or one that cannot be run.
    """
    if given.suffix != ".toml" and str(given) not in bundled():
        raise OptionError(f"study is {str(given)!r}, expected a .toml file or one of {', '.join(bundled())}")
    study, case = read_study(given if given.suffix == ".toml" else bundled()[str(given)])
    conditions = conditions or possible(case, study.conditions)
    repeats = replace(study.repeats, **{name: value for name, value in counts.items() if value is not None})
    kept = tuple(t for t in study.thresholds if {t.condition, t.versus or t.condition} <= set(conditions))
    curve = tuple(c for c in study.curve if c in conditions)
    study = replace(study, conditions=conditions, curve=curve, thresholds=kept, repeats=repeats)
    check_study(study, case)
    for stage in case.procedure.stages if case.system.procedure else ():
        try:
            method_of(stage.method).settings(stage.options)
        except OptionError as error:
            raise OptionError(f"[case.stages.{stage.name}]: {error}") from None
    if (case.keywords or case.learning) and study.kind != "rl":
        raise OptionError(
            f"[case] has keywords or learning, of environments where policies learn; kind is {study.kind!r}, not 'rl'"
        )
    if study.kind == "rl":
        from ..learning.evaluation import check_keywords

        for more in (case.native_keywords, case.ground_truth_keywords):
            check_keywords(case.env_id, {**case.env_keywords, **more})
    return StudyFile(study, case)


def worker(case: TransferTask, study: Study, out: Path) -> Any:
    """Worker for the jobs of a study."""
    if study.kind != "rl":
        return PlanWorker(case, study, out)
    from .learned import PolicyWorker

    dt = case.native().dt
    common = {**case.env_keywords, "dt": dt, "control_period": study.planning.substeps * dt}
    return PolicyWorker(
        case, study, out, case.env_id, common=common, native=case.native_keywords,
        settings=case.system.learning_of(case.task, "ppo"), ground_truth=case.ground_truth_keywords,
    )  # fmt: skip


def film(case: TransferTask, out: Path) -> tuple[str, ...]:
    """A video of the identified condition beside the nominal one, both on the ground truth; () where there are no replays."""
    render, renderer = load("softgym_envs.envs.drawing:render_state"), load("softgym_envs.rendering:PygameRenderer")
    frames, ground_truth, skip = [], case.ground_truth(), 1
    for condition in ("nominal", "identified"):
        replays = sorted((out / "replays").glob(f"{condition}_b*_d0_s0.json"))
        if not replays:
            return ()
        drawer = renderer(size=(320, 240))
        states = read_replay(replays[0], ground_truth.nx)
        skip = -(-len(states) // FILM_FRAMES)
        pictures = [render(ground_truth, x, case.hints, drawer) for x in states[::skip]]
        frames.append([p for p in pictures if p is not None])
    beside = load("softgym_envs.rendering.video:side_by_side")(*frames, ("before identification", "identified"))
    load("softgym_envs.rendering.video:write_gif")(out / "transfer.gif", beside, fps=10 / skip)
    return ("transfer.gif",)
