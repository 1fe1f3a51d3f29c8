"""A transfer study: plans or policies made in our engine, before and after identification, run on the truth.

    softgym-envs transfer studies/superball_mpc/study.toml       # a published study: sampling MPC, hours on 2 cores
    softgym-envs transfer studies/superball_rl/study.toml        # the same by PPO
    softgym-envs transfer smoke                                  # every part once, in a minute
    softgym-envs transfer runs/transfer_superball_mpc            # a folder: its report again, from the runs that are there

A study is a TOML file: a room and a task, conditions, budgets, seeds, thresholds; see `agents.study.document` and studies/.
Results go to runs/transfer_<study>: report.html, table.md, summary.json, one JSON per run. The study and its thresholds are
written there before the first run. Stop it with Ctrl-C; the same command continues it.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: runs share the processors, and rounding does not depend on them

import importlib.util
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium as gym
import tyro

from agents.study.case import RoomCase
from agents.study.conditions import CONDITIONS, check_study, possible
from agents.study.definition import Study
from agents.study.document import read_study
from agents.study.jobs import Failure, register, registered, run_jobs
from agents.study.planned import PlanWorker, read_replay
from agents.study.report import headline, write_report
from softgym_envs import add_room
from softgym_envs.core.errors import OptionError, SoftgymError
from softgym_envs.core.files import git_commit
from softgym_envs.rooms import room, rooms
from sysid import fit_residual, run_recipe
from sysid.methods.table import method_of


@dataclass(frozen=True)
class Args:
    """Run or continue a transfer study."""

    study: Annotated[Path, tyro.conf.Positional]
    """TOML file of a study, or the name of one that comes with the package: smoke; or the folder of one that ran, to report
    its runs again."""
    ray: bool = False
    """Run on a Ray cluster instead of in processes; the numbers are the same."""
    workers: int | None = None
    """Processes; none: one per processor; 1: no processes at all."""
    seeds: int | None = None
    """Fewer or more seeds than the study's own."""
    datasets: int | None = None
    """Fewer or more data sets than the study's own."""
    starts: int | None = None
    """Fewer or more perturbed starts than the study's own."""
    conditions: tuple[str, ...] = ()
    """Only these conditions; none: the study's own. The nominal one and the oracle must be among them."""
    out: Path | None = None
    """Folder; none: runs/transfer_<study>."""
    video: bool = True
    """Draw the identified condition beside the nominal one."""


FILM_FRAMES = 20
"""Most frames, so that the report stays below a megabyte."""


def found(study: Path) -> Path:
    """The file of a study.

    Raises:
        OptionError: No such file, and no study of this name comes with a room.
    """
    if study.suffix == ".toml":
        return study
    bundled = {path.stem: path for path in _bundled()}
    if str(study) in bundled:
        return bundled[str(study)]
    raise OptionError(f"study is {str(study)!r}, expected a .toml file or one of {', '.join(bundled)}")


def _bundled() -> list[Path]:
    """Studies in the folders of rooms."""
    packages = {entry.engine.partition(":")[0].rpartition(".")[0] for entry in rooms().values()}
    specs = [importlib.util.find_spec(package) for package in sorted(packages)]
    folders = [Path(place) for spec in specs if spec for place in spec.submodule_search_locations or ()]
    return [path for folder in folders for path in sorted(folder.glob("studies/*.toml"))]


def chosen(args: Args) -> tuple[RoomCase, Study]:
    """Case and study as changed by the arguments, checked; curves and thresholds of left-out conditions are dropped."""
    given = read_study(found(args.study))
    table, study = given.case, given.study
    if ":" in table.room and room(table.room).name not in rooms():
        add_room(table.room)
    case = RoomCase(
        room(table.room), table.task, run_recipe, fit_residual, table.backend, table.truth_options, table.recorded_task,
        table.stages, table.only, table.sensor, table.structure, table.truth_constants, table.keywords, table.learning,
    )  # fmt: skip
    conditions = args.conditions or possible(case, study.conditions)
    study = replace(
        study,
        conditions=conditions,
        curve=tuple(c for c in study.curve if c in conditions),
        thresholds=tuple(t for t in study.thresholds if {t.condition, t.versus or t.condition} <= set(conditions)),
        **{name: given for name in ("seeds", "datasets", "starts") if (given := getattr(args, name)) is not None},
    )
    check_study(study, case)
    for stage in case.recipe.stages if case.room.recipe else ():
        try:
            method_of(stage.method).settings(stage.options)
        except OptionError as error:
            raise OptionError(f"[case.stages.{stage.name}]: {error}") from None
    if (case.keywords or case.learning) and study.kind != "rl":
        raise OptionError(
            f"[case] has keywords or learning, of environments where policies learn; kind is {study.kind!r}, not 'rl'"
        )
    if study.kind == "rl":
        for more in (case.native_keywords, case.truth_keywords):
            gym.make(case.env_id, **{**case.env_keywords, **more}).close()
    return case, study


def worker(case: RoomCase, study: Study, out: Path) -> Any:
    """Worker for the jobs of a study."""
    if study.kind != "rl":
        return PlanWorker(case, study, out)
    from agents.study.learned import PolicyWorker

    dt = case.native().dt
    common = {**case.env_keywords, "dt": dt, "control_period": study.substeps * dt}
    return PolicyWorker(
        case, study, out, case.env_id, common=common, native=case.native_keywords,
        settings=case.room.learning_of(case.task, "ppo"), truth=case.truth_keywords,
    )  # fmt: skip


def film(case: RoomCase, out: Path) -> tuple[str, ...]:
    """A video of the identified condition beside the nominal one, both on the truth; () where there are no replays."""
    from softgym_envs.envs.drawing import render_state
    from softgym_envs.rendering import PygameRenderer
    from softgym_envs.rendering.video import side_by_side, write_gif

    frames, truth = [], case.truth()
    for condition in ("nominal", "identified"):
        replays = sorted((out / "replays").glob(f"{condition}_b*_d0_s0.json"))
        if not replays:
            return ()
        renderer = PygameRenderer(size=(320, 240))
        states = read_replay(replays[0], truth.nx)
        skip = -(-len(states) // FILM_FRAMES)
        drawable: Any = truth
        pictures = [render_state(drawable, x, case.hints, renderer) for x in states[::skip]]
        frames.append([p for p in pictures if p is not None])
    write_gif(out / "transfer.gif", side_by_side(frames[0], frames[1], ("before identification", "identified")), fps=10 / skip)
    return ("transfer.gif",)


def main(args: Args) -> int:
    """Register the study, run what is missing, write the report; an exit code.

    0 if all runs are there, 1 if some failed, 2 for bad input, 130 if interrupted.
    """
    stopped = False
    try:
        if args.study.is_dir():
            return reported(args.study)
        case, study = chosen(args)
        out = args.out or Path("runs") / f"transfer_{study.name}"
        print(f"study {study.name}, seed {study.seed}, commit {git_commit()}", flush=True)
        register(study, case.description, out, provenance={"commit": git_commit(), "command": command(args)})
        for threshold in study.thresholds:
            print(f"  threshold: {threshold.text}")
        executor: Literal["serial", "processes", "ray"] = "ray" if args.ray else "serial" if args.workers == 1 else "processes"
        failures: tuple[Failure, ...] = ()
        run = worker(case, study, out)
        try:
            jobs = study.jobs(CONDITIONS)
            failures = run_jobs(jobs, run, out, executor=executor, workers=args.workers, progress=report_line)
        except KeyboardInterrupt:
            stopped = True  # the report says how many runs are missing
            print("interrupted: a report of the runs so far; the same command goes on", file=sys.stderr)
        summary = write_report(study, out, images=film(case, out) if args.video else ())
    except (SoftgymError, gym.error.Error) as error:
        print(error, file=sys.stderr)
        return 130 if stopped else 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130
    print(headline(summary))
    for text in (*(verdict.text for verdict in summary.verdicts), *(fit.text for fit in summary.fits if fit.failed)):
        print(text)
    print(f"report: {out / 'report.html'}")
    return 130 if stopped else 1 if failures else 0


def reported(out: Path) -> int:
    """Write the report of a folder again, from the runs that are there."""
    films = tuple(path.name for path in (out / "transfer.gif",) if path.exists())
    print(headline(write_report(registered(out), out, images=films)))
    print(f"report: {out / 'report.html'}")
    return 0


def command(args: Args) -> str:
    """Command line for the same study."""
    given = ["--ray"] if args.ray else []
    given += [f"--{name} {value}" for name in ("seeds", "datasets", "starts") if (value := getattr(args, name)) is not None]
    given += [f"--conditions {' '.join(args.conditions)}"] if args.conditions else []
    return " ".join(["softgym-envs transfer", args.study.as_posix(), *given])


def report_line(text: str) -> None:
    """One line of progress."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
