"""Identify the parameters of a robot from recordings: data -> fit -> report.

    softgym-envs identify tensegrity --data recordings.h5                 # of `record`: the system's procedure, stage by stage
    softgym-envs identify vine --model robot.toml --data tracked.csv --fps 30 --free-motion

writes runs/fit/fit.toml for `gym.make(..., params=)`, fit.json, report.html; exit code 2: do not use them.
See docs/how-to/identification.md.
"""

import inspect
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from softgym_envs.core.errors import OptionError
from softgym_envs.core.system import options_from_text
from softgym_envs.envs.drawing import write_overlay
from softgym_envs.systems import system
from sysid import identify, identify_online, load
from sysid.diagnostics.sentences import as_flags
from sysid.report.progress import Beat, Seldom


@dataclass(frozen=True)
class Args:
    """Identify the parameters of a robot from recordings."""

    system: Annotated[str, tyro.conf.Positional]  # Which robot: a system's name, or "package.module:SYSTEM" of your own.
    files: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()  # Recordings: .h5, .csv, .c3d, ...; or after --data.
    data: tuple[Path, ...] = ()  # More recordings.
    map: Path | None = None  # TOML file that names the columns of other programs' files; `inspect` writes it.
    model: str | None = None  # Structure: a name of the system's, or a TOML file; none: the system's first.
    options: tuple[str, ...] = ()  # Structural choices of the simulator, as contact=patch.
    dt: float | None = None  # Physics step [s]; none: the system's own, or a whole part of a frame.
    fps: float | None = None  # Frames per second, if a column `frame` stands for the time, or the times are too rough.
    controls: Path | None = None  # Wide CSV with the controls, for recordings without; the same times.
    meters_per_pixel: float | None = None  # Scale of tracked points in pixels.
    flip_y: bool = False  # The recordings are in image coordinates, y down.
    stage: str | None = None  # Stage of the procedure; none: all, or the one for unlabelled recordings.
    free: tuple[str, ...] = ()  # Parameters to identify; none: the stage's.
    method: str | None = None  # Method, one of `sysid.METHODS`; none: the stage's.
    settings: tuple[str, ...] = ()  # Settings of the method, as starts=3 errors=clustered levenberg={cost_tolerance=1e-6}.
    initial_guess: Path | None = None  # TOML file of the initial parameters; none: the robot's defaults.
    split: tuple[int, int, int] | None = None  # Recordings for training, validation and test; none: the last for test.
    columns: tuple[str, ...] = ()  # Fit only these columns; none: all that are known.
    noise: dict[str, float] = field(default_factory=dict)  # Known standard deviations [SI], as name value pairs.
    free_initial: bool | None = None  # Estimate the states at the start of segments; none: if measured only in part.
    free_motion: bool = False  # The recordings are throws or releases: controls may be constant.
    online: bool = False  # Estimate row by row from the rows before, into online.csv (systems with complementarity).
    seed: int | None = None  # Seed of random starts and minibatches.
    max_iterations: int | None = None  # Most iterations of the method.
    diagnose: Literal["none", "quick", "full"] = "quick"  # Search for what the fit lacks; quick: no longer than the fit.
    out: Path = Path("runs/fit")  # Folder of fit.toml, fit.json, report.html, and of a folder for each stage.
    gif: Path | None = None  # Draw the tracked points over the fitted robot into this .gif.
    resume: bool = False  # Resume an interrupted fit from the files in `out`.


def main(args: Args) -> int:
    """Fit and report; 0 for usable numbers, 2 for some that must not be used."""
    given = vars(args) | {"announce": lambda note: print(as_flags(note), flush=True)}
    given |= {"options": options_from_text(args.options), "settings": options_from_text(args.settings, "settings")}

    def of(function: Any) -> dict[str, Any]:
        return {name: given[name] for name in inspect.signature(function).parameters if name in given and name != "files"}

    given["data"] = load(*args.files, *args.data, **of(load))
    if args.online:
        idle = {*of(identify), "gif"} & set(vars(args)) - set(of(identify_online))
        for name in sorted(name for name in idle if getattr(args, name) != getattr(Args(args.system), name)):
            raise OptionError(f"`{name}` does nothing with `online`; leave it out")
        return 0 if (rows := identify_online(**of(identify_online))).determined.all() and rows.explained else 2
    with Beat(sys.stderr if sys.stderr.isatty() else Seldom(sys.stderr)) as given["progress"]:
        found = identify(**of(identify))
    if args.gif is not None:
        robot: Any = system(args.system).simulator(args.model, parameters=args.initial_guess)
        seen = found.stages[-1].fit.trace
        print("picture:", write_overlay(args.gif, robot, seen.names, seen.times, seen.fitted, seen.measured))
    return 2 if found.unusable else 0
