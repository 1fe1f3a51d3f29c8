"""Identify the parameters of a robot from recordings: data -> fit -> report.

    softgym-envs identify tensegrity --data recordings.h5                 # of `record`: the system's procedure, stage by stage
    softgym-envs identify tensegrity --stage body --data air.h5           # one stage of it
    softgym-envs identify vine --model robot.toml --data tracked.csv --fps 30 --free-motion

writes runs/fit/fit.toml (give it to `gym.make(..., params=)`), fit.json and report.html. Bad data give a sentence and exit
code 2. Ctrl-C stops a fit; `--resume` goes on. What to record, and how to read the diagnostics: docs/identification.md.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TextIO, cast

import tyro

from softgym_envs.core.errors import OptionError, SoftgymError
from softgym_envs.core.files import git_commit
from softgym_envs.core.system import options_from_text
from softgym_envs.envs.drawing import Drawable, write_overlay
from softgym_envs.systems import system
from sysid import identify, identify_online, load
from sysid.procedure import ProcedureInterrupted
from sysid.procedure.search import Diagnose
from sysid.procedure.stage import CHECKPOINT
from sysid.report import Beat, Seldom, as_flags, rows_in_words


@dataclass(frozen=True)
class Args:
    """Identify the parameters of a robot from recordings."""

    system: Annotated[str, tyro.conf.Positional]  # Which robot: a system's name, or "package.module:SYSTEM" of your own.
    files: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()  # Recordings: .h5 or .csv; or after --data.
    data: tuple[Path, ...] = ()  # More recordings.
    model: str | None = None  # Structure: a name of the system's, or a TOML file; none: the system's first.
    option: tuple[str, ...] = ()  # Structural choices of the simulator, as contact=patch.
    dt: float | None = None  # Physics step [s]; none: the system's own, or a whole part of a frame.
    fps: float | None = None  # Frames per second, if a column `frame` stands for the time, or the times are too rough.
    controls: Path | None = None  # Wide CSV with the controls, for recordings without; the same times.
    meters_per_pixel: float | None = None  # Scale of tracked points in pixels.
    flip_y: bool = False  # The recordings are in image coordinates, y down.
    stage: str | None = None  # Stage of the procedure; none: all, or the one for a laboratory's recordings.
    free: tuple[str, ...] = ()  # Parameters to identify; none: the stage's.
    method: str | None = None  # Method, one of `sysid.METHODS`; none: the stage's.
    settings: tuple[str, ...] = ()  # Settings of the method, as starts=3 errors=clustered levenberg={cost_tolerance=1e-6}.
    start: Path | None = None  # TOML file of the initial parameters; none: the robot's defaults.
    split: tuple[int, int, int] | None = None  # Recordings for training, validation and test; none: the last for test.
    columns: tuple[str, ...] = ()  # Fit only these columns; none: all that are known.
    noise: dict[str, float] = field(default_factory=dict)  # Known standard deviations [SI], as name value pairs.
    free_initial: bool | None = None  # Estimate the states at the start of segments; none: if measured only in part.
    free_motion: bool = False  # The recordings are throws or releases: controls may be constant.
    online: bool = False  # Estimate row by row from the rows before, into online.csv (systems with complementarity).
    seed: int | None = None  # Seed of random starts and minibatches.
    max_iterations: int | None = None  # Most iterations of the method.
    diagnose: Diagnose = "quick"  # Search for what the fit lacks: none; quick, at most as long as the fit; or full.
    out: Path = Path("runs/fit")  # Folder of fit.toml, fit.json, report.html, and of a folder for each stage.
    gif: Path | None = None  # Draw the tracked points over the fitted robot into this .gif.
    resume: bool = False  # Resume an interrupted fit from the files in `out`.


IDLE_ONLINE = ("method", "settings", "split", "free_initial", "seed", "max_iterations", "gif", "resume")


def main(args: Args) -> int:
    """Fit and report; 0 for usable numbers, 2 for none, or some that must not be used, 130 if interrupted."""
    print(f"seed {args.seed or 0}, commit {git_commit()}")
    with Beat(sys.stderr if sys.stderr.isatty() else Seldom(sys.stderr)) as progress:
        try:
            return (online if args.online else fit)(args, progress)
        except SoftgymError as error:
            print(f"no fit: {as_flags(str(error))}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            left = next(args.out.rglob(CHECKPOINT), None)
            print(f"interrupted; {'--resume goes on' if left else 'there is no checkpoint to go on from'}", file=sys.stderr)
            return 130


def asked(args: Args) -> dict[str, Any]:
    """Arguments of both functions."""
    data = load(
        *args.files, *args.data, controls=args.controls, fps=args.fps, meters_per_pixel=args.meters_per_pixel,
        flip_y=args.flip_y,
    )  # fmt: skip
    return {
        "system": args.system, "data": data, "model": args.model, "dt": args.dt,
        "options": options_from_text(args.option), "stage": args.stage, "free": args.free, "initial_guess": args.start,
        "columns": args.columns, "noise": args.noise, "free_motion": args.free_motion, "out": args.out,
        "announce": lambda note: print(as_flags(note), flush=True),
    }  # fmt: skip


def fit(args: Args, progress: TextIO) -> int:
    """`sysid.identify`, and what it found."""
    missing, settings = None, options_from_text(args.settings, "settings", "starts=3")
    try:
        found = identify(
            **asked(args), method=args.method, settings=settings, split=args.split, free_initial=args.free_initial,
            seed=args.seed, max_iterations=args.max_iterations, resume=args.resume, diagnose=args.diagnose,
            progress=progress,
        )  # fmt: skip
    except ProcedureInterrupted as stop:
        found, missing = stop.result, stop.missing
    last = found.stages[-1]
    if args.gif is not None:
        trace, robot = last.fit.trace, cast(Drawable, system(args.system).simulator(args.model, parameter_values=args.start))
        print("picture:", write_overlay(args.gif, robot, trace.names, trace.times, trace.fitted, trace.measured))
    print(as_flags(found.summary()))
    report = next(path for path in (args.out / last.name / "report.html", args.out / "report.html") if path.exists())
    print(f"parameters: {args.out / 'fit.toml'}\nreport: {report}")
    if found.unusable and len(found.stages) > 1:
        print(f"do not use {', '.join(found.unusable)}: the stage that gave them failed; see above", file=sys.stderr)
    if missing is not None:
        print(f"interrupted{'; not fitted: ' * bool(missing)}{', '.join(missing)}; --resume goes on", file=sys.stderr)
        return 130
    return 2 if found.unusable else 0


def online(args: Args, _: TextIO) -> int:
    """`sysid.identify_online`; 0 if every parameter is identified by now, by a model that explains all rows."""
    for name in IDLE_ONLINE:
        if (given := getattr(args, name)) is not None and given is not False and given != ():
            raise OptionError(f"`{name}` does nothing with `online`; leave it out")
    found = identify_online(**asked(args))
    print(f"{rows_in_words(found)}\nrows: {args.out / 'online.csv'}")
    return 0 if found.determined.all() and found.explained else 2


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
