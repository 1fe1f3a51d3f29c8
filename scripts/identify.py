"""Identify the constants of a robot from recordings: data -> fit -> report.

    softgym-envs identify tensegrity --data recordings.h5                 # of `record`: the room's recipe, stage by stage
    softgym-envs identify tensegrity --stage body --data air.h5           # one stage of it
    softgym-envs identify vine --model robot.toml --data tracked.csv --fps 30 --free-motion
    softgym-envs identify block --data camera.csv --noise x 0.001 y 0.001 theta 0.005

writes runs/fit/fit.toml (give it to `gym.make(..., params=)`), fit.json and report.html. Recordings are HDF5 files of
`TrajectorySet.save`, CSV files in wide form (`time [s], tip.x [mm], ..., control:valve [-]`) or CSV files of tracked points
(`time [s], point, x [mm], y [mm], z [mm]`). Ctrl-C stops a fit; `--resume` continues it where its method leaves a checkpoint
(shooting). Bad data give a verdict and exit code 2.
What to record, and how to read the verdicts: docs/identification.md.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TextIO, cast

import numpy as np
import tyro

from softgym_envs.core.errors import OptionError, SoftgymError
from softgym_envs.core.files import git_commit
from softgym_envs.core.recipe import EXPERIMENT, Recipe, Stage
from softgym_envs.core.recordings import IRREGULAR, UNWRAPPED, flip_y, in_order_of, read_csv, read_recordings, with_controls_of
from softgym_envs.core.room import Room, options_from_text
from softgym_envs.core.simulator import Simulator, check_number
from softgym_envs.core.spec import SimulatorSpec
from softgym_envs.core.task import load
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet
from softgym_envs.rooms import room as room_named
from sysid import METHODS, FitProblem, FitResult, online, run_recipe, save
from sysid.methods.table import Method, method_of
from sysid.recipe import RecipeInterrupted
from sysid.recipe.stage import CHECKPOINT, FIT, Interrupted, fit_stage
from sysid.recipe.stage_problem import stage_problem
from sysid.report import Beat, Seldom, rows_in_words, save_rows


@dataclass(frozen=True)
class Args:
    """Identify the constants of a robot from recordings."""

    room: Annotated[str, tyro.conf.Positional]
    """Which robot: a room's name , or "package.module:ROOM" of your own."""
    model: str | None = None
    """Structure: a name of the room's, or a TOML file; none: the room's first."""
    option: tuple[str, ...] = ()
    """Structural choices of the simulator, as contact=patch."""
    dt: float | None = None
    """Physics step [s]; none: the room's own, or a whole part of a frame."""
    fps: float | None = None
    """Frames per second of the camera, if a column `frame` stands for the time, or the times are too rough."""
    files: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Recordings: .h5 (any number of trajectories each) or .csv; or after --data."""
    data: tuple[Path, ...] = ()
    """More recordings."""
    stage: str | None = None
    """Stage of the room's recipe; none: all of them if the recordings name their experiment, else the one for a
    laboratory's recordings."""
    free: tuple[str, ...] = ()
    """Constants to identify; none: the stage's."""
    method: str | None = None
    """Method: one_step, multiple_shooting, single_shooting, adam, cma_es, mpec (through complementarity), simultaneous (states
    and constants in one nonlinear program) or innovations (a recording that the model follows); none: the stage's."""
    segment_steps: int | None = None
    """Rows per segment of multiple_shooting."""
    start: Path | None = None
    """TOML file of the initial constants; none: the robot's defaults."""
    split: tuple[int, int, int] | None = None
    """Recordings for training, validation and test, in this order; none: all but the last for training, the last for test; all
    for training where a recipe is run stage by stage."""
    columns: tuple[str, ...] = ()
    """Fit only these columns; none: all that are known."""
    controls: Path | None = None
    """Wide CSV with the controls, for recordings without (tracked points); the same times."""
    meters_per_pixel: float | None = None
    """Scale of tracked points in pixels."""
    flip_y: bool = False
    """The recordings are in image coordinates, y down: change the signs of y and of angles."""
    noise: dict[str, float] = field(default_factory=dict)
    """Known standard deviation per column [SI], as name value pairs (control:name of a control); none: estimated, for mpec,
    simultaneous and innovations from third differences."""
    free_initial: bool | None = None
    """Estimate the states at the start of segments; none: if they are measured only in part."""
    bounded: bool = False
    """mpec: no error is larger than sqrt(3) times its --noise (uniform noise), which sharpens constants."""
    online: bool = False
    """Estimate row by row from the rows before, as a robot would, into online.csv (rooms with complementarity)."""
    free_motion: bool = False
    """The recordings are throws or releases: controls may be constant."""
    errors: Literal["independent", "clustered"] | None = None
    """Assumption of intervals; clustered is honest for a model that is structurally wrong."""
    jacobian: Literal["auto", "exact", "differences"] | None = None
    """Derivatives; see `sysid.ShootingOptions`."""
    starts: int | None = None
    """Number of starts within the bounds; contact needs more than one, as friction 0 is a local minimum."""
    seed: int | None = None
    """Seed of random starts and minibatches."""
    cost_tolerance: float | None = None
    """A fit stops when a step lowers its cost by a smaller share; 1e-6 is enough if initial states are unknown, too."""
    max_iterations: int | None = None
    """Most iterations of the method."""
    out: Path = Path("runs/fit")
    """Folder of fit.toml, fit.json and report.html; a recipe has a folder for each of its stages there."""
    gif: Path | None = None
    """Draw the tracked points over the fitted robot, frame by frame, into this .gif."""
    resume: bool = False
    """Resume an interrupted fit from the files in `out`."""


def read(args: Args) -> tuple[Trajectory, ...]:
    """Read all recordings from the files, controls from --controls included.

    Raises:
        FileFormatError: A file cannot be read.
        DataError: Its controls do not fit it.
    """
    if not (*args.files, *args.data):
        raise OptionError("no recordings are given; name files after the robot's name, or after --data")
    same = [file for file in {f.resolve() for f in (*args.files, *args.data)} if _times(args, file) > 1]
    if same:
        raise OptionError(f"{same[0].name} is given twice: the last recording is held out as a test, which it would not be")
    found = read_recordings((*args.files, *args.data), meters_per_pixel=args.meters_per_pixel, fps=args.fps)
    if args.flip_y:
        found = tuple(flip_y(recording) for recording in found)
    for turned in sorted({recording.metadata[UNWRAPPED] for recording in found if UNWRAPPED in recording.metadata}):
        print(f"note: {turned} jumps by whole turns from line to line: unwrapped")
    for off in sorted({recording.metadata[IRREGULAR] for recording in found if IRREGULAR in recording.metadata}):
        print(f"note: times are irregular, {off}: each value is compared at its own; rough stamps: --fps")
    if args.controls is None:
        return found
    given = read_csv(args.controls, fps=args.fps)
    return tuple(with_controls_of(trajectory, given) for trajectory in found)


def _times(args: Args, path: Path) -> int:
    """Number of times that a file is given."""
    return sum(given.resolve() == path for given in (*args.files, *args.data))


def timestep(args: Args, recipe: Recipe, own: float, recording: Trajectory) -> float:
    """Physics step [s]: as given, else a whole part of a frame, of the step of `record`, or the room's own if it is one."""
    if args.dt is not None:
        return args.dt
    driven = bool(recording.num_steps and np.ptp(recording.controls, axis=0).any())
    if args.fps is not None:
        return recipe.step_of(1.0 / args.fps, own, driven=driven)
    if EXPERIMENT in recording.metadata and says_substeps(recording):
        return recording.period / recording.substeps
    if says_substeps(recording) and abs(recording.period - own * recording.substeps) < 1e-3 * recording.period:
        return own
    step = recipe.step_of(recording.period, own, driven=driven)
    return own if abs(step - own) < 1e-4 * own else step


def stage_of(args: Args, recipe: Recipe) -> Stage:
    """The stage to fit, changed by the arguments.

    Raises:
        OptionError: There is none of this name, its method lacks such an option, or a bound is wanted without noise.
    """
    stage = recipe.stage(args.stage) if args.stage else recipe.laboratory or recipe.stages[-1]
    method = method_of(args.method or stage.method)
    options = dict(stage.options)
    if method.name != stage.method:
        options = {name: value for name, value in options.items() if method.takes(name)}
        more = {"starts": 3} if method.takes("starts") else {}
        options = {**more, **options, **recipe.settings.get(method.name, {})}
    given = {name: getattr(args, name) for name in ("segment_steps", "errors", "jacobian", "starts", "seed")}
    options.update({name: value for name, value in given.items() if value is not None})
    if args.bounded:
        if not method.takes("box") or not args.noise:
            raise OptionError("--bounded needs --noise and the method mpec: it is a bound of that noise")
        options["box"] = True
    if args.cost_tolerance is not None:
        options["levenberg"] = {**options.get("levenberg", {}), "cost_tolerance": args.cost_tolerance}
    options = limited(args, method, options)
    kept = {name: value for name, value in stage.simulator.items() if name not in options_from_text(args.option)}
    free_motion = stage.free_motion or args.free_motion
    return replace(
        stage, method=method.name, options=options, free=args.free or stage.free, simulator=kept, free_motion=free_motion
    )


def limited(args: Args, method: Method, options: dict[str, Any]) -> dict[str, Any]:
    """Options of a method, with the iterations of the arguments."""
    if args.max_iterations is None:
        return options
    if method.takes("levenberg"):
        return {**options, "levenberg": {**options.get("levenberg", {}), "max_iterations": args.max_iterations}}
    name = next((name for name in ("iterations", "epochs", "generations") if method.takes(name)), "max_iterations")
    return {**options, name: args.max_iterations}


def of_stage(stage: Stage, recordings: TrajectorySet) -> TrajectorySet:
    """The recordings without those that say they are of another experiment than the stage's; prints a note on these.

    Raises:
        OptionError: All of them are.
    """
    own = ("", stage.experiment)
    others = sorted({label for t in recordings if (label := t.metadata.get(EXPERIMENT, "")) not in own})
    if not stage.experiment or not others:
        return recordings
    left = tuple(t for t in recordings if t.metadata.get(EXPERIMENT, "") in own)
    if not left:
        raise OptionError(f"stage {stage.name} fits recordings of {stage.experiment!r}, these are of {', '.join(others)}")
    print(f"note: stage {stage.name} fits recordings of {stage.experiment!r}: those of {', '.join(others)} are left out")
    return TrajectorySet(left)


def problem_of(args: Args, recipe: Recipe, stage: Stage, simulator: Simulator, recordings: TrajectorySet) -> FitProblem:
    """The fit that the arguments describe, with noise estimated from the recordings if the method needs it."""
    labelled = TrajectorySet(tuple(replace(t, metadata={**t.metadata, EXPERIMENT: stage.experiment}) for t in recordings))
    more: dict[str, Any] = {"measured": args.columns, "noise": args.noise, "free_initial": args.free_initial}
    more = {name: value for name, value in more.items() if value not in ((), {}, None)}
    start = start_of(args, simulator)
    problem = stage_problem(recipe, stage, simulator, split_of(args, labelled), start=start, **more)
    if problem.noise is None and method_of(stage.method).known_noise:
        problem = problem.with_estimated_noise()
        told = ", ".join(f"{name} {value:.2g}" for name, value in (problem.noise or {}).items())
        print(f"noise by third differences [SI]: {told}; if you know better, say --noise")
    return problem


def start_of(args: Args, simulator: Simulator) -> Any:
    """Initial constants of the fit."""
    own = simulator.default_parameters
    return type(own).load(args.start, own) if args.start else own


def split_of(args: Args, recordings: TrajectorySet) -> DataSplit:
    """Recordings for training, validation and test."""
    count = len(recordings)
    return recordings.split(*(args.split or ((count - 1, 0, 1) if count > 1 else (count, 0, 0))))


AS_FLAGS = {
    "free_motion=True": "--free-motion",
    "free_initial=True": "--free-initial True",
    "errors='clustered'": "--errors clustered",
    "jacobian='differences'": "--jacobian differences",
    "measured=...": "--columns ...",
    "noise is not given": "--noise is not given",
    "build the simulator with dt": "say --fps, or --dt",
    "simulator_options": "--option",
    "raise max_iterations": "raise --max-iterations",
    "with fps=...": "with --fps",
    "say fps=...": "say --fps",
    "meters_per_pixel=...": "--meters-per-pixel ...",
    "meters_per_pixel": "--meters-per-pixel",
}
"""Advice of `sysid` -> its wording for this script."""


def as_flags(text: str) -> str:
    """Reword advice to callers of Python for the command line."""
    for advice, flag in AS_FLAGS.items():
        text = text.replace(advice, flag)
    return text


def unused(problem: FitProblem, recordings: TrajectorySet) -> str:
    """Sentence on recorded columns that the fit leaves out; empty if there are none."""
    simulator = problem.simulator
    columns = [name for name in recordings.names if name not in problem.column_names]
    units = {unit for name, unit in zip(recordings.names, recordings[0].units, strict=True) if name in columns}
    known = [n for n, unit in zip(simulator.state_names, simulator.state_units, strict=True) if unit in units]
    left = [name for name in known if name not in problem.column_names]
    columns += [name for name in recordings.control_names if name not in simulator.control_names]
    if not columns:
        return ""
    hint = f"columns that it has in these units are {shown(left)}" if left else "is it the right robot?"
    return f"note: recorded, but not used: {shown(columns)}; {hint}"


def shown(names: list[str]) -> str:
    """The first names, and their number."""
    return ", ".join(names[:8]) + (f", ... ({len(names)} in all)" if len(names) > 8 else "")


def one_stage(args: Args, recipe: Recipe, simulator: Simulator, recordings: TrajectorySet, progress: TextIO | None) -> int:
    """Fit one stage and report."""
    stage = stage_of(args, recipe)
    recordings = of_stage(stage, recordings)
    if args.resume and not method_of(stage.method).leaves_checkpoint:
        leaving = ", ".join(name for name, method in METHODS.items() if method.leaves_checkpoint)
        raise OptionError(f"--resume: {stage.method} leaves no checkpoint; those that do are {leaving}")
    under_way = (args.out / CHECKPOINT).exists()
    if args.resume and not under_way:
        if (args.out / FIT).exists():
            raise OptionError(
                f"--resume: the fit in {args.out} has ended, with its constants in {FIT}: there is nothing to go on from"
            )
        print(f"note: {args.out} has nothing to go on from yet: the fit begins anew")
    own = recipe.stage(args.stage) if args.stage else recipe.laboratory or recipe.stages[-1]
    if lost := [name for name in own.options if not method_of(stage.method).takes(name)]:
        print(f"note: options of stage {own.name} that {stage.method} has not: {', '.join(lost)}")
    problem = problem_of(args, recipe, stage, simulator, recordings)
    kept = sum(len(part) for part in split_of(args, recordings)[1:])
    held = f" (the last {f'{kept} are' if kept > 1 else 'one is'} held out)" if kept else ""
    print(
        f"{len(recordings)} recordings{held}, {recordings.num_steps} steps; fitting {', '.join(problem.free)} by {stage.method}"
    )
    if not args.columns and unused(problem, recordings):
        print(unused(problem, recordings))
    stopped = False

    def named(found: FitResult) -> FitResult:
        return replace(found, spec=replace(found.spec, model=args.model or ""))

    try:
        result = fit_stage(
            recipe, stage, problem, folder=args.out, resume=args.resume and under_way, progress=progress,
            keep=lambda found: save(named(found), args.out),
        )  # fmt: skip
    except Interrupted as stop:
        result, stopped = stop.result, True
    result = named(result)
    save(result, args.out)
    if args.gif is not None:
        from softgym_envs.envs.drawing import Drawable, write_overlay

        trace, robot = result.trace, cast(Drawable, simulator)
        print("picture:", write_overlay(args.gif, robot, trace.names, trace.times, trace.fitted, trace.measured))
    print(as_flags(result.summary()))
    print(f"constants: {args.out / 'fit.toml'}\nreport: {args.out / 'report.html'}")
    return 130 if stopped else 0 if result.usable else 2


OF_ONE_STAGE = (
    "segment_steps", "columns", "noise", "free_initial", "bounded", "free_motion", "errors", "jacobian", "starts", "seed",
    "cost_tolerance", "gif",
)  # fmt: skip
"""Arguments that a recipe sets itself, stage by stage."""
IDLE_ONLINE = (
    "method", "segment_steps", "free_initial", "bounded", "errors", "jacobian", "starts", "seed", "cost_tolerance",
    "max_iterations", "gif", "resume",
)  # fmt: skip
"""Arguments that estimates row by row have no use for."""


def refuse_idle(args: Args) -> None:
    """No flag that --online would not heed.

    Raises:
        OptionError: There is one.
    """
    for name in IDLE_ONLINE:
        given = getattr(args, name)
        if args.online and given is not None and given is not False:
            raise OptionError(f"--{name.replace('_', '-')} does nothing with --online; leave it out")


def refuse_of_one_stage(args: Args, recipe: Recipe) -> None:
    """No flag that a recipe, stage by stage, would not heed.

    Raises:
        OptionError: There is one.
    """
    for name in OF_ONE_STAGE:
        if getattr(args, name) != getattr(Args(args.room), name):
            stages = ", ".join(stage.name for stage in recipe.stages)
            flag = f"--{name.replace('_', '-')}"
            raise OptionError(f"{flag} is of one stage, these recordings are fitted by {stages}: add --stage with one of them")


def row_by_row(args: Args, recipe: Recipe, simulator: Simulator, recordings: TrajectorySet) -> int:
    """Estimate online and report; 0 if every constant is identified by now, by a model that explains all rows."""
    method_of("mpec").check(recipe)
    if len(recordings) > 1:
        raise OptionError(f"--online follows one recording; there are {len(recordings)}: give one")
    assert recipe.complementarity is not None
    problem = problem_of(args, recipe, stage_of(replace(args, method="mpec"), recipe), simulator, recordings)
    found = online(problem, recipe.complementarity(problem.simulator, problem.shared_steps))
    save_rows(found, simulator.state_names, args.out / "online.csv")
    print(f"{rows_in_words(found)}\nrows: {args.out / 'online.csv'}")
    return 0 if found.determined.all() and found.explained else 2


def whole_recipe(args: Args, recipe: Recipe, simulator: Simulator, recordings: TrajectorySet, progress: TextIO | None) -> int:
    """Fit all stages and report."""
    refuse_of_one_stage(args, recipe)
    there = recipe.of({recording.metadata.get(EXPERIMENT, "") for recording in recordings})
    if lacking := [stage.name for stage in recipe.stages if stage not in there.stages]:
        print(f"note: no recordings for {', '.join(lacking)}: left out, constants of these stay as they were")
    recipe = there
    print(f"{len(recordings)} recordings, {recordings.num_steps} steps; stages {', '.join(s.name for s in recipe.stages)}")
    own = args.start is not None or str(args.model).endswith(".toml")  # then the recipe's guess is of another robot
    stages = tuple(replace(s, options=limited(args, method_of(s.method), dict(s.options))) for s in recipe.stages)
    data = split_of(args, recordings) if args.split else recordings
    missing: tuple[str, ...] | None = None
    try:
        found = run_recipe(
            recipe, simulator, data, start=start_of(args, simulator) if own else None, stages=stages, out=args.out,
            resume=args.resume, announce=lambda name: print(f"stage {name}", flush=True), progress=progress,
            model=args.model or "",
        )  # fmt: skip
    except RecipeInterrupted as stop:
        found, missing = stop.result, stop.missing
    print(as_flags(found.summary()))
    print(f"constants: {args.out / 'fit.toml'}\nreport: {args.out / found.stages[-1].name / 'report.html'}")
    if found.unusable:
        print(f"do not use {', '.join(found.unusable)}: the stage that gave them failed; see above", file=sys.stderr)
    if missing is not None:
        rest = f"; not fitted: {', '.join(missing)}" if missing else ""
        print(f"interrupted{rest}; --resume goes on", file=sys.stderr)
        return 130
    return 2 if found.unusable else 0


def world(args: Args, room: Room) -> tuple[Recipe, Simulator, TrajectorySet]:
    """The room's recipe, the simulator to fit, and the recordings at a whole number of its steps per row, with controls."""
    if not room.recipe:
        raise OptionError(f"room {room.name!r} has no recipe: it cannot be identified")
    recipe: Recipe = load(room.recipe)
    model, options = room.model(args.model, args.start), {**recipe.options, **options_from_text(args.option)}
    simulator = room.simulator(model, options=options)
    method_of(args.method or stage_of(args, recipe).method).check(recipe)
    found = read(args)
    compare_robots(args, room, simulator, found)
    dt = timestep(args, recipe, simulator.dt, found[0])
    simulator = simulator if dt == simulator.dt else room.simulator(model, dt=dt, options=options)
    found = tuple(t if abs(t.period - dt * t.substeps) < 1e-3 * t.period else t.for_timestep(dt) for t in found)
    if args.stage is None and not set(found[0].names) <= set(simulator.state_names):
        recipe = filmed(recipe.by_camera, all_recognised(experiments_of(recipe, simulator, found)))
    found = labelled(recipe, simulator, found)
    if recipe.remark is not None:
        for told in sorted({recipe.remark(simulator, t) for t in found} - {""}):
            print(f"note: {told}")
    if recipe.infer_controls is not None:
        found = tuple(recipe.infer_controls(simulator, t) for t in found)
    if args.free_motion:
        found = tuple(t if t.control_names else undriven(simulator, t) for t in found)
    return recipe, simulator, TrajectorySet(tuple(in_order_of(found[0], t) for t in found))


def undriven(simulator: Simulator, recording: Trajectory) -> Trajectory:
    """A throw or release without columns of controls, with zero controls."""
    none = np.zeros((recording.num_steps, simulator.nu))
    return recording.with_controls(none, simulator.control_names, simulator.control_units)


def compare_robots(args: Args, room: Room, simulator: Simulator, recordings: tuple[Trajectory, ...]) -> None:
    """Print a note if recordings are of a robot with another structure than the simulator's.

    Raises:
        OptionError: They are of another room, or `record` wrote them of a robot with other controls.
    """
    name, notes = Path(args.model or next(iter(room.models))).name, set()
    for recording in recordings:
        theirs, ours = SimulatorSpec.recorded(recording.metadata), SimulatorSpec.of(simulator, name)
        if theirs is not None and theirs.room != ours.room:
            raise OptionError(f"the recordings are of a robot of room {theirs.room!r}, this is {ours.room!r}")
        if EXPERIMENT in recording.metadata and recording.control_names not in ((), simulator.control_names):
            there, here = len(recording.control_names), len(simulator.control_names)
            of = theirs.model if theirs is not None else "another robot"
            raise OptionError(
                f"the recordings are of {of}, with {there} controls; {name}, which is to be fitted, has {here}: say --model"
            )
        if theirs is not None and theirs.model != name and (differs := theirs.differences(ours)):
            notes.add(f"note: recorded of model {theirs.model}, to be fitted is {name} (--model): {differs}")
    print(*sorted(notes), sep="\n", end="\n" if notes else "")


def experiments_of(recipe: Recipe, simulator: Simulator, recordings: tuple[Trajectory, ...]) -> list[str]:
    """Experiment of every recording: as stated or recognised; "" if unknown."""
    tell = recipe.experiment_of or (lambda *_: "")
    return [recording.metadata.get(EXPERIMENT) or tell(simulator, recording) for recording in recordings]


def all_recognised(experiments: list[str]) -> list[str]:
    """The experiments of recordings before a camera, all of them recognised or none.

    Raises:
        OptionError: Some are not.
    """
    if "" in experiments and any(experiments):
        known = ", ".join(dict.fromkeys(name for name in experiments if name))
        raise OptionError(
            f"recording {experiments.index('') + 1} of {len(experiments)} looks like no experiment of the recipe, others like "
            f"{known}: leave it out, or say --stage"
        )
    return experiments


def filmed(recipe: Recipe, experiments: list[str]) -> Recipe:
    """The recipe without stages of experiments that were not recorded; prints a note on each."""
    found = recipe.of(experiments)
    for name in sorted({s.experiment for s in recipe.stages} - {s.experiment for s in found.stages}):
        print(f"note: no recording of {name!r}: what it shows stays as it is")
    return found


def labelled(recipe: Recipe, simulator: Simulator, recordings: tuple[Trajectory, ...]) -> tuple[Trajectory, ...]:
    """Recordings of a laboratory that cover all experiments of the recipe, each labelled; others unchanged."""
    if any(EXPERIMENT in recording.metadata for recording in recordings):
        return recordings
    names = experiments_of(recipe, simulator, recordings)
    if "" in names or not {stage.experiment for stage in recipe.stages} <= set(names):
        return recordings
    print(f"taken for: {', '.join(names) if len(set(names)) > 1 else names[0]}")
    return tuple(replace(t, metadata={**t.metadata, EXPERIMENT: name}) for t, name in zip(recordings, names, strict=True))


def tells_more(recipe: Recipe, simulator: Simulator) -> bool:
    """Whether the recipe's only stage is of the engine as it is, or frees constants that the laboratory's stage fixes."""
    if recipe.laboratory is None or len(recipe.stages) > 1:
        return False
    own, laboratory = recipe.stages[0], recipe.laboratory
    return laboratory.adapt is not None or not set(own.free_of(simulator)) <= set(laboratory.free_of(simulator))


def says_substeps(recording: Trajectory) -> bool:
    """Whether the recording states its physics steps per row: it is no CSV."""
    return "source" not in recording.metadata


def main(args: Args) -> int:
    """Fit and report; 0 for usable numbers, 2 for none, or some that must not be used, 130 if interrupted."""
    print(f"seed {args.seed or 0}, commit {git_commit()}")
    with Beat(sys.stderr if sys.stderr.isatty() else Seldom(sys.stderr)) as progress:
        return identify(args, progress)


def identify(args: Args, progress: TextIO) -> int:
    """Body of `main`, with a line of progress every few seconds."""
    try:
        refuse_idle(args)
        if args.out.exists() and not args.out.is_dir():
            raise OptionError(f"--out is {args.out}, which is no folder")
        check_number("--seed", args.seed or 0, low=0, whole=True)
        recipe, simulator, recordings = world(args, room_named(args.room))
        if args.online:
            return row_by_row(args, recipe, simulator, recordings)
        labelled = all(EXPERIMENT in t.metadata for t in recordings)
        if labelled and tells_more(recipe, simulator):
            recipe = replace(recipe, laboratory=None)
        single = args.stage or args.method or args.free or not labelled or len(recipe.stages) == 1
        return (one_stage if single else whole_recipe)(args, recipe, simulator, recordings, progress)
    except SoftgymError as error:
        print(f"no fit: {as_flags(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        left = next(args.out.rglob(CHECKPOINT), None)
        print(f"interrupted; {'--resume goes on' if left else 'there is no checkpoint to go on from'}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
