"""Identify the constants of a robot from recordings: data -> fit -> report.

    python scripts/identify.py vine:scene=robot.toml --points tracked.csv --fps 30 --free-motion
    python scripts/identify.py tensegrity --data throw.h5 --free cable_stiffness cable_damping --out results/throw
    python scripts/identify.py block --data camera.csv --method mpec --noise x 0.001 y 0.001 theta 0.005

writes results/throw/fit.toml (give it to `gym.make(..., params=)`), fit.json and report.html. Recordings are HDF5 files of
`TrajectorySet.save`, CSV files in wide form (`time [s], tip.x [mm], ..., control:valve [-]`) or CSV files of tracked points
(`time [s], point, x [mm], y [mm], z [mm]`). Ctrl-C stops a fit; `--resume` goes on. Bad data end in a verdict and exit code 2.
What to record, and how to read the verdicts: docs/identification.md.
"""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro

from softgym_envs.core.errors import DataError, FileFormatError, OptionError, SoftgymError
from softgym_envs.core.files import git_commit
from softgym_envs.core.recordings import align_points, read_csv, read_points_csv
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet
from sysid import (
    AdamOptions,
    EvolutionOptions,
    FitProblem,
    FitResult,
    IdentificationSetup,
    Measurement,
    MpecOptions,
    OffersComplementarity,
    OffersProgram,
    ShootingOptions,
    SimultaneousOptions,
    adam,
    cma_es,
    mpec,
    multiple_shooting,
    noise_of,
    one_step,
    simultaneous,
    single_shooting,
)
from sysid.data.problem import InfersControls
from sysid.methods.levenberg import LevenbergOptions


@dataclass(frozen=True)
class Args:
    """Identify the constants of a robot from recordings."""

    robot: Annotated[str, tyro.conf.Positional]
    """Room, and a variant after a colon: tensegrity, tensegrity:prism, tensegrity:prism,paper, block, particles:count=3."""
    data: tuple[Path, ...] = ()
    """Recordings: .h5 (any number of trajectories each) or .csv."""
    points: tuple[Path, ...] = ()
    """Recordings of tracked points (.csv); the same as --data."""
    fps: float | None = None
    """Frames per second of the camera, for rooms whose physics step follows it (vine, block, particles)."""
    free: tuple[str, ...] = ()
    """Constants to identify; none: what the room proposes."""
    method: Literal["one_step", "multiple_shooting", "single_shooting", "adam", "mpec", "simultaneous", "cma_es"] = (
        "multiple_shooting"
    )
    """How; see `sysid.methods.shooting`. mpec: through complementarity, for block and particles; simultaneous: states and
    constants in one nonlinear program, for vine; cma_es: without derivatives."""
    segment_steps: int = 100
    """Rows per segment of multiple_shooting."""
    start: Path | None = None
    """TOML file of the constants before the fit; none: the robot's defaults."""
    split: tuple[int, int, int] | None = None
    """Recordings for training, validation and test, in this order; none: all but the last for training, the last for test."""
    columns: tuple[str, ...] = ()
    """Fit only these columns; none: all that are known."""
    controls: Path | None = None
    """Wide CSV with the controls, for recordings without (tracked points); the same times."""
    meters_per_pixel: float | None = None
    """Scale of tracked points in pixels."""
    noise: dict[str, float] = field(default_factory=dict)
    """Known standard deviation per column [SI], as name value pairs; none: estimated, for mpec and simultaneous from third
    differences."""
    free_initial: bool | None = None
    """Estimate the states at the start of segments; none: where they are measured in part."""
    free_motion: bool = False
    """The recordings are throws or releases: controls may be constant."""
    errors: Literal["independent", "clustered"] = "independent"
    """What intervals assume; clustered is honest for a model that is structurally wrong."""
    jacobian: Literal["auto", "exact", "differences"] = "auto"
    """Derivatives; see `sysid.ShootingOptions`."""
    starts: int = 3
    """Number of starts within the bounds; contact needs more than one, as friction 0 is a local minimum."""
    seed: int = 0
    """Of random starts and minibatches."""
    cost_tolerance: float = 1e-12
    """A fit ends when a step lowers its cost by a smaller share; 1e-6 is enough where initial states are unknown, too."""
    out: Path = Path("results/fit")
    """Folder of fit.toml, fit.json and report.html."""
    gif: Path | None = None
    """Draw the tracked points over the fitted robot, frame by frame, into this .gif."""
    resume: bool = False
    """Go on from the checkpoint of an interrupted fit in `out` (shooting only)."""


SHOOTING = ("one_step", "multiple_shooting", "single_shooting")
PROGRAM = SimultaneousOptions(tau=1e-2, factor=1e-2)
"""Of --method simultaneous: pairs of N and m/s."""
SHORT = {"block": "rigid:block", "particles": "rigid:particles"}
"""Robots of a room that holds several."""


def full_name(robot: str) -> str:
    """A robot with its room.

    >>> full_name("block"), full_name("particles:count=3"), full_name("vine")
    ('rigid:block', 'rigid:particles,count=3', 'vine')
    """
    short, _, variant = robot.partition(":")
    name = SHORT.get(short, short)
    return with_word(name, variant) if variant else name


def load_setup(robot: str) -> IdentificationSetup:
    """What a room offers for identification.

    Raises:
        OptionError: No such room, or it offers nothing.
    """
    room, _, variant = robot.partition(":")
    try:
        module = importlib.import_module(f"softgym_envs.{room}")
        offer = module.identification_setup
    except (ModuleNotFoundError, AttributeError, TypeError) as error:
        raise OptionError(
            f"{room!r} is no robot that can be identified ({error}); expected a room such as 'tensegrity'"
        ) from error
    setup: IdentificationSetup = offer(variant)
    return setup


def with_word(robot: str, word: str) -> str:
    """A robot with one more word in its variant.

    >>> with_word("vine:linear", "fps=30"), with_word("vine", "fps=30")
    ('vine:linear,fps=30', 'vine:fps=30')
    """
    return f"{robot},{word}" if ":" in robot else f"{robot}:{word}"


def load_recordings(args: Args, dt: float) -> TrajectorySet:
    """All recordings, at a whole number of physics steps per row.

    Raises:
        FileFormatError: A file is neither .h5 nor .csv, or cannot be read.
        DataError: They do not fit together.
    """
    if not args.data:
        raise OptionError("no recordings are given; name files after --data or --points")
    found: list[Trajectory] = []
    points: list[int] = []
    for path in args.data:
        if path.suffix.lower() in (".h5", ".hdf5"):
            found += TrajectorySet.load(path)
        elif path.suffix.lower() == ".csv":
            long = _holds_points(path)
            points += [len(found)] if long else []
            read = read_points_csv if long else read_csv
            found.append(read(path, meters_per_pixel=args.meters_per_pixel).for_timestep(dt))
        else:
            raise FileFormatError(f"{path} ends in {path.suffix!r}, expected .h5, .hdf5 or .csv")
    for place, aligned in zip(points, align_points([found[place] for place in points]), strict=True):
        found[place] = aligned
    if args.controls is not None:
        given = read_csv(args.controls)
        found = [_with_controls(trajectory, given) for trajectory in found]
    return TrajectorySet(tuple(found))


def _holds_points(path: Path) -> bool:
    """Whether the file is in long form: its header has a column `point`."""
    try:
        with path.open(encoding="utf-8-sig") as stream:
            header = [name.strip() for name in stream.readline().split(",")]
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    return "point" in header


def _with_controls(trajectory: Trajectory, given: Trajectory) -> Trajectory:
    if given.num_steps != trajectory.num_steps or not np.allclose(given.times, trajectory.times, atol=1e-3 * trajectory.period):
        raise DataError(
            f"controls have {given.num_steps} steps from {given.times[0]:g} s, the recording {trajectory.num_steps} from "
            f"{trajectory.times[0]:g} s; they must have the same times"
        )
    return trajectory.with_controls(given.controls, given.control_names, given.control_units)


def build_problem(args: Args, setup: IdentificationSetup, recordings: TrajectorySet) -> FitProblem:
    """The fit that the arguments ask for."""
    simulator = setup.simulator
    kind = type(simulator.default_parameters)
    names = args.columns or recordings.names
    offered = None if set(names) <= set(simulator.state_names) else setup.measurement(names)
    return FitProblem(
        simulator,
        _split(args, recordings),
        free=args.free or setup.free,
        start=kind.load(args.start) if args.start else None,
        measured=args.columns or None,
        measurement=None if offered is None else Measurement(offered[1], offered[0]),
        initial_state=None if offered is None else setup.first_state(offered[1]),
        noise=args.noise or None,
        free_initial=args.free_initial,
        free_motion=args.free_motion or isinstance(setup, OffersComplementarity),
    )


def _split(args: Args, recordings: TrajectorySet) -> DataSplit:
    count = len(recordings)
    return recordings.split(*(args.split or ((count - 1, 0, 1) if count > 1 else (count, 0, 0))))


def check_method(args: Args, setup: IdentificationSetup) -> None:
    """Whether the method suits the room and the other arguments.

    Raises:
        OptionError: It does not.
    """
    if args.method == "mpec" and not isinstance(setup, OffersComplementarity):
        raise OptionError(f"--method mpec: {args.robot} offers no complementarity form; block and particles do")
    if args.method == "simultaneous" and not isinstance(setup, OffersProgram):
        raise OptionError(f"--method simultaneous: {args.robot} offers no symbolic step with measured points; vine does")
    if args.resume and args.method not in SHOOTING:
        raise OptionError(f"--resume: {args.method} leaves no checkpoint; those that do are {', '.join(SHOOTING)}")


def fit(args: Args, setup: IdentificationSetup, problem: FitProblem) -> FitResult:
    """Run the method that the arguments name."""
    progress = sys.stderr if sys.stderr.isatty() else None  # a log file needs no thousand states of a progress bar
    if args.method == "adam":
        return adam(problem, AdamOptions(seed=args.seed, jacobian=args.jacobian, errors=args.errors, progress=progress))
    if args.method == "cma_es":
        return cma_es(problem, EvolutionOptions(seed=args.seed + 1, errors=args.errors))
    if isinstance(setup, OffersComplementarity) and args.method == "mpec":
        return mpec(with_noise(problem), setup.complementarity(), MpecOptions(errors=args.errors))
    if isinstance(setup, OffersProgram) and args.method == "simultaneous":
        form, observe = setup.program(problem.column_names)
        return simultaneous(with_noise(problem), form, PROGRAM, observe=observe)
    options = ShootingOptions(
        jacobian=args.jacobian, starts=args.starts, seed=args.seed, errors=args.errors,
        checkpoint=args.out / "checkpoint.json", resume=args.resume, progress=progress,
        levenberg=LevenbergOptions(cost_tolerance=args.cost_tolerance),
    )  # fmt: skip
    if args.method == "one_step":
        return one_step(problem, options)
    if args.method == "single_shooting":
        return single_shooting(problem, options)
    return multiple_shooting(problem, args.segment_steps, options)


def with_noise(problem: FitProblem) -> FitProblem:
    """The problem with its noise told from the recordings, if it is not given."""
    if problem.noise is None:
        problem = problem.replace(noise=noise_of(problem.split.train, problem.column_names))
        told = ", ".join(f"{name} {value:.2g}" for name, value in (problem.noise or {}).items())
        print(f"noise by third differences [SI]: {told}; if you know better, say --noise")
    return problem


def draw_points(path: Path, result: FitResult, simulator: Any) -> Path:
    """Measured points over the fitted robot, as a GIF of at most 25 frames per second.

    Raises:
        OptionError: The columns are no points, or nothing draws this robot.
    """
    from softgym_envs.envs.drawing import overlay_scene
    from softgym_envs.rendering import PygameRenderer, write_gif

    trace = result.trace
    if not all(re.fullmatch(r"point\d+\.[xy]", name) for name in trace.names):
        raise OptionError("--gif needs tracked points: columns point0.x, point0.y, ...")
    every = max(1, round(0.04 / (trace.times[1] - trace.times[0])))
    renderer = PygameRenderer((640, 480))
    shapes = (len(trace.times), -1, 2)
    pairs = zip(trace.fitted.reshape(shapes)[::every], trace.measured.reshape(shapes)[::every], strict=True)
    frames = [renderer.rgb(overlay_scene(simulator, fitted, measured)) for fitted, measured in pairs]
    return write_gif(path, frames, min(25.0, 1.0 / (every * (trace.times[1] - trace.times[0]))))


AS_FLAGS = {
    "free_motion=True": "--free-motion",
    "free_initial=True": "--free-initial True",
    "errors='clustered'": "--errors clustered",
    "jacobian='differences'": "--jacobian differences",
    "measured=...": "--columns ...",
    "noise is not given": "--noise is not given",
    "build the simulator with dt": "say --fps (vine, block, particles), or build the simulator with dt",
}
"""What `sysid` advises -> how it is said to this script."""


def as_flags(text: str) -> str:
    """Advice to callers of Python, for the command line."""
    for advice, flag in AS_FLAGS.items():
        text = text.replace(advice, flag)
    return text


def unused(problem: FitProblem, recordings: TrajectorySet) -> str:
    """Sentence on recorded columns that the fit leaves out; empty if there are none."""
    columns = [name for name in recordings.names if name not in problem.column_names]
    columns += [name for name in recordings.control_names if name not in problem.simulator.control_names]
    if not columns:
        return ""
    named = ", ".join(columns[:8]) + (f", ... ({len(columns)} in all)" if len(columns) > 8 else "")
    return f"note: recorded, but not used: {named}. Is it the right robot?"


def main(args: Args) -> int:
    """Fit and report; 0 if numbers came out, 2 if there are none to use, 130 if interrupted."""
    print(f"seed {args.seed}, commit {git_commit()}")
    try:
        args = replace(args, data=args.data + args.points)
        robot = full_name(args.robot)
        setup = load_setup(robot if args.fps is None else with_word(robot, f"fps={args.fps:g}"))
        check_method(args, setup)
        recordings = load_recordings(args, setup.simulator.dt)
        if isinstance(setup, InfersControls):
            recordings = TrajectorySet(tuple(setup.infer_controls(trajectory) for trajectory in recordings))
        problem = build_problem(args, setup, recordings)
        print(f"{len(recordings)} recordings, {recordings.num_steps} steps; fitting {', '.join(problem.free)} by {args.method}")
        if not args.columns and unused(problem, recordings):
            print(unused(problem, recordings))
        result = fit(args, setup, problem)
    except SoftgymError as error:
        print(f"no fit: {as_flags(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        go_on = f"; go on with --resume --out {args.out}" if args.method in SHOOTING else ""
        print(f"interrupted{go_on}", file=sys.stderr)
        return 130
    result.save(args.out)
    if args.gif is not None:
        print("picture:", draw_points(args.gif, result, setup.simulator))
    print(as_flags(result.summary()))
    print(f"constants: {args.out / 'fit.toml'}\nreport: {args.out / 'report.html'}")
    return 2 if all(estimate.hidden for estimate in result.estimates) else 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
