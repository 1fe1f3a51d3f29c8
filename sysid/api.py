"""The jobs of a user of `sysid`: `record`, `load`, `identify`, `predict`. The subcommands of these names call them.

A system is named as in `softgym_envs.systems`: "vine", or "package.module:SYSTEM" of your own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from softgym_envs.core.errors import DataError, OptionError, shown
from softgym_envs.core.files import provenance
from softgym_envs.core.parameters import Parameters, warn_of_file
from softgym_envs.core.procedure import EXPERIMENT, Procedure
from softgym_envs.core.simulator import check_number
from softgym_envs.core.spec import ROBOT, SimulatorSpec
from softgym_envs.core.system import NATIVE
from softgym_envs.core.task import load as load_object
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.data.film import track as track
from softgym_envs.data.library import in_library
from softgym_envs.data.mapping import Mapping as ColumnMapping
from softgym_envs.data.recordings import FPS, in_order_of, read_csv, read_recordings, with_controls_of
from softgym_envs.data.recordings import flip_y as flipped
from softgym_envs.data.sensors import sensor_from_text
from softgym_envs.systems import system as system_named

if TYPE_CHECKING:
    from .diagnostics.predictions import Predictor
    from .fitting.online import HorizonResult
    from .procedure.identification import Identification
    from .procedure.job import Job
    from .procedure.prediction import Prediction
    from .procedure.search import Diagnose

Given = Parameters | str | Path | None
"""Parameters, or a TOML file of them."""


def record(
    system: str,
    *,
    backend: str = NATIVE,
    model: str | None = None,
    options: Mapping[str, Any] | None = None,
    dt: float | None = None,
    parameters: Given = None,
    experiments: Sequence[str] = (),
    count: int = 1,
    steps: int | None = None,
    budget: int | None = None,
    sensor: str | Sequence[str] = (),
    seed: int = 0,
) -> TrajectorySet:
    """Record a system's experiments in the native engine, on MuJoCo, or on a simulator of your own.

    Args:
        system: Name of the system.
        backend: "native", a ground truth of the system such as "mujoco", or "package.module:function" of your own.
        model: Structure: a name of the system's, or a TOML file; None: the system's first.
        options: Options of the simulator; those of our engine are else the ones with which `identify` fits.
        dt: Physics step [s]; None: the simulator's own, or before a camera a whole part of a frame of our engine, as in fits.
        parameters: Parameters of the simulator; None: its defaults.
        experiments: Names of experiments; (): all of the system's procedure.
        count: Recordings of each experiment.
        steps: Physics steps of a recording; None: as many as last as long as the procedure's for our engine.
        budget: Physics steps of all recordings together; None: `count` of each.
        sensor: Camera in place of states: "camera", "lab" or "poor", and changes such as "rate=120 noise=0.002".
        seed: Seed of poses, commands and noise.

    Raises:
        OptionError: No such system, model, backend or experiment, or a number is too small.
        ParameterError: The parameters are of another simulator.
        DataError: The simulation failed.
    """
    check_number("`seed`", seed, low=0, whole=True)
    for name, number in (("count", count), ("steps", steps), ("budget", budget)):
        if number is not None:
            check_number(f"`{name}`", number, low=1, whole=True)
    declared, rng = system_named(system), np.random.default_rng(seed)
    if not declared.procedure:
        raise OptionError(f"system {declared.name!r} has no procedure: nothing says what to record")
    procedure: Procedure = load_object(declared.procedure)
    drawn = declared.simulator(model, parameters=parameters)
    camera = sensor_from_text(sensor.split() if isinstance(sensor, str) else sensor)
    if dt is None and camera.rate and backend == NATIVE:
        dt = procedure.step_of(1.0 / camera.rate, drawn.dt)
    own = procedure.options if backend == NATIVE else {}  # as `identify` fits
    ground_truth = declared.simulator(model, backend=backend, dt=dt, options={**own, **(options or {})}, parameters=parameters)
    if isinstance(parameters, (str, Path)):
        file, usual = parameters, ground_truth.default_parameters
        parameters = type(usual).load(file, usual)
        warn_of_file(file)
    more: dict[str, Any] = {"parameters": parameters, "from_markers": bool(sensor)}
    if budget is not None:
        found = procedure.record(ground_truth, rng, steps=budget, **more).train
    else:
        chosen = [procedure.experiment(name) for name in experiments] or procedure.experiments
        times = [(each.name, steps or each.steps_on(ground_truth, drawn)) for each in chosen for _ in range(count)]
        found = TrajectorySet(
            tuple(procedure.record_one(name, ground_truth, rng, steps=length, **more) for name, length in times)
        )
    for recording in found:
        _require_numbers(recording)
    if sensor:
        found = TrajectorySet(tuple(camera(recording, drawn, procedure, rng) for recording in found))  # markers as drawn
    robot = json.dumps(SimulatorSpec.of(drawn, Path(model or next(iter(declared.models))).name).table())
    return TrajectorySet(tuple(replace(t, metadata={**t.metadata, ROBOT: robot}) for t in found))


def _require_numbers(recording: Trajectory) -> None:
    """Refuse a recording of a simulation that failed."""
    wrong = ~np.isfinite(recording.values)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise DataError(
            f"{recording.metadata[EXPERIMENT]}: the simulator gives {recording.values[row, column]} for "
            f"{recording.names[column]} at {recording.times[row]:g} s"
        )


def load(
    *files: str | Path,
    controls: str | Path | None = None,
    fps: float | None = None,
    meters_per_pixel: float | None = None,
    flip_y: bool = False,
    map: str | Path | None = None,
) -> Sequence[Trajectory]:
    """Load recordings from files: HDF5 of `TrajectorySet.save`, CSV, files of other programs, or the package's own recordings.

    Formats are those of `softgym_envs.data.formats`. Angles that jump by whole turns are unwrapped, irregular times are kept, y
    up becomes z up: the metadata, and notes of `identify`, say so.
    Returns a `TrajectorySet`, or a tuple where files name their columns differently, which some systems understand.

    Args:
        files: One or several files; see `softgym_envs.data.recordings`. Or names of `softgym_envs.data.library`, such as
            "cube_tosses": recordings of real robots.
        controls: Wide CSV with the controls at the same times, for recordings without.
        fps: Frames per second, where a column `frame` stands for the time, or times are rounded.
        meters_per_pixel: Size of a pixel [m], for points in px.
        flip_y: Whether they are in image coordinates, y down: signs of y and of angles change.
        map: TOML file that names the columns of files which have other names; see `softgym_envs.data.mapping`.

    Raises:
        OptionError: No file, one that is given twice, or a list of files.
        FileFormatError: A file cannot be read; the message names its format and the next step.
        DataError: Columns or controls do not fit each other.
    """
    if not files:
        raise OptionError("no recordings are given: name one file or more")
    if wrong := [file for file in files if not isinstance(file, (str, Path))]:
        raise OptionError(
            f"a file is {shown(wrong[0])}, expected a path; give several one after another: load('a.csv', 'b.csv')"
        )
    files = tuple(in_library(file) for file in files)
    places = [Path(file).resolve() for file in files]
    if twice := [place for place in places if places.count(place) > 1]:
        raise OptionError(f"{twice[0].name} is given twice: the last recording is held out as a test, which it would not be")
    mapping = None if map is None else ColumnMapping.load(map)
    found = read_recordings(files, meters_per_pixel=meters_per_pixel, fps=fps, mapping=mapping)
    if flip_y:
        found = tuple(flipped(recording) for recording in found)
    if controls is not None:
        given = read_csv(controls, fps=fps)
        found = tuple(with_controls_of(recording, given) for recording in found)
    if fps is not None:
        found = tuple(replace(recording, metadata={**recording.metadata, FPS: repr(float(fps))}) for recording in found)
    try:
        return TrajectorySet(tuple(in_order_of(found[0], recording) for recording in found))
    except DataError:
        return found


def identify(
    system: str,
    data: Sequence[Trajectory],
    *,
    model: str | None = None,
    options: Mapping[str, Any] | None = None,
    dt: float | None = None,
    stage: str | None = None,
    free: Sequence[str] = (),
    method: str | None = None,
    settings: Mapping[str, Any] | None = None,
    initial_guess: Given = None,
    split: tuple[int, int, int] | None = None,
    columns: Sequence[str] = (),
    noise: Mapping[str, float] | None = None,
    free_initial: bool | None = None,
    free_motion: bool = False,
    seed: int | None = None,
    max_iterations: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    diagnose: Diagnose = "quick",
    progress: TextIO | None = None,
    announce: Callable[[str], object] | None = None,
) -> Identification:
    """Identify the parameters of a system from recordings.

    Recordings that name their experiment, as those of `record` do, are fitted stage by stage, as the system's procedure says.
    Others are fitted by its stage `from_recordings`, or by `stage`.

    Args:
        system: Name of the system.
        data: Recordings of `record` or `load`.
        model: Structure: a name of the system's, or a TOML file; None: the system's first.
        options: Options of the simulator, as {"contact": "patch"}.
        dt: Physics step [s]; None: the system's own, or a whole part of a frame.
        stage: Stage of the procedure; None: all of them if the recordings name their experiment, else the one for a laboratory.
        free: Parameters to identify; (): the stage's.
        method: Name in `METHODS`; None: the stage's.
        settings: Settings of the method that differ from the stage's, as {"starts": 3}; a mapping where one is a dataclass.
        initial_guess: Parameters before the fit, or a TOML file of them; None: the defaults, with the procedure's guess.
        split: Recordings for training, validation and test, in this order; None: all but the last for training, the last for
            test; all for training where several stages are fitted.
        columns: Columns to fit; (): all that are known.
        noise: Column -> known standard deviation [SI] ("control:name" for a control); None: estimated.
        free_initial: Whether to estimate the states at the start of segments; None: if they are measured only in part.
        free_motion: Whether the recordings are throws or releases: controls may be constant.
        seed: Seed of random starts and minibatches.
        max_iterations: Most iterations of the method.
        out: Folder of fit.toml, fit.json and report.html, with a folder for each of several stages; None: no files.
        resume: Go on from the files of an interrupted fit in `out`.
        diagnose: How long to search for what the fit lacks: "none"; "quick", no longer than the fit took; or "full".
        progress: Stream for lines of progress.
        announce: Called with every note as it arises, and with the summary at the end.

    Raises:
        OptionError: An argument is not allowed, or does not fit the others.
        DataError: The recordings cannot be used; the message says why.
        ProcedureInterrupted: Ctrl-C after a fit had ended; it holds the results.
    """
    return _job(locals()).run()


def identify_online(
    system: str,
    data: Sequence[Trajectory],
    *,
    model: str | None = None,
    options: Mapping[str, Any] | None = None,
    dt: float | None = None,
    stage: str | None = None,
    free: Sequence[str] = (),
    initial_guess: Given = None,
    columns: Sequence[str] = (),
    noise: Mapping[str, float] | None = None,
    free_motion: bool = False,
    out: str | Path | None = None,
    announce: Callable[[str], object] | None = None,
) -> HorizonResult:
    """Estimate parameters row by row from the rows before, as a robot would; for systems with complementarity.

    Arguments are those of `identify`; `out` is the folder of online.csv.

    Raises:
        OptionError: The system has no complementarity form, or there are several recordings.
    """
    found, simulator = _job(locals()).run_online()
    from .report.files import rows_in_words, save_rows

    if announce is not None:
        announce(rows_in_words(found))
    if out is not None:
        save_rows(found, simulator.state_names, Path(out) / "online.csv")
    return found


def predict(fit: Identification | str | Path | Predictor, data: Sequence[Trajectory], *, system: str = "") -> Prediction:
    """Predict new recordings by a fit, beside standing still and constant velocity.

    Predictions over 0.1, 0.25, 0.5 and 1 s begin every quarter of a second, where the recording is long enough, and one goes on
    to the end. They know the commands. They start from measured states, or where these are noisy or measured in part from ones
    estimated from the rows before.

    Args:
        fit: A fit, its fit.toml or folder, or a `Predictor`: a model of your own.
        data: Recordings of `load` or `record` that were not fitted.
        system: "package.module:SYSTEM" of a system that is not on the list.

    Raises:
        FileFormatError: There is no such fit.
        OptionError: The recordings are of another system.
        DataError: The recordings cannot be used; the message says why.
    """
    from .diagnostics.predictions import Predictor, compared, label
    from .procedure.prediction import Prediction, by_fit

    if not len(data):
        raise OptionError("`data` is empty: give one recording or more")
    if not isinstance(fit, Predictor):
        return by_fit(fit, data, system)
    found = compared([(recording, fit) for recording in data], data[0].names, data[0].units)
    names = tuple(label(recording, place) for place, recording in enumerate(data))
    return Prediction(found.errors(), (), "", names, provenance(), found)


def _job(given: Mapping[str, Any]) -> Job:
    """The job of these arguments."""
    from .procedure.job import Job  # imports every method

    plain = {name: tuple(value) for name, value in given.items() if name in ("free", "columns")}
    tables = {name: dict(given.get(name) or {}) for name in ("options", "settings", "noise")}
    out = None if given["out"] is None else Path(given["out"])
    return Job(**{**given, **plain, **tables, "out": out})
