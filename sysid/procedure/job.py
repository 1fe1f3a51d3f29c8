"""One identification as it is asked for: decides stage, physics step, labels, controls, options and split, then fits.

Everything that `sysid.identify` does not get from the user or from the system's procedure is decided here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.files import git_commit
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.procedure import EXPERIMENT, Procedure, Stage
from softgym_envs.core.simulator import Simulator, check_number
from softgym_envs.core.spec import SimulatorSpec
from softgym_envs.core.system import System
from softgym_envs.core.task import load
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet
from softgym_envs.core.typed import merged
from softgym_envs.data.recordings import FPS, IRREGULAR, TURNED, UNWRAPPED, in_order_of
from softgym_envs.systems import system as system_named

from ..diagnostics.result import FitResult
from ..fitting.online import HorizonResult, online
from ..fitting.table import METHODS, method_of
from ..problem.lost_rows import without_lost
from ..problem.problem import FitProblem
from ..problem.wrong_poses import check_angles, check_poses
from ..problem.wrong_units import check_dimensions
from ..report.files import save
from .identification import FIT, Identification, StageResult
from .run import ProcedureInterrupted, run_procedure
from .search import Diagnose
from .stage import CHECKPOINT, Interrupted, fit_stage
from .stage_problem import stage_problem

OF_ONE_STAGE = ("settings", "columns", "noise", "free_initial", "free_motion", "seed")
"""Arguments that a procedure sets itself, stage by stage."""


@dataclass(frozen=True)
class Job:
    """See the module docstring; fields are the arguments of `sysid.identify`."""

    system: str
    data: Sequence[Trajectory]
    model: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    dt: float | None = None
    stage: str | None = None
    free: tuple[str, ...] = ()
    method: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    initial_guess: Parameters | str | Path | None = None
    split: tuple[int, int, int] | None = None
    columns: tuple[str, ...] = ()
    noise: Mapping[str, float] = field(default_factory=dict)
    free_initial: bool | None = None
    free_motion: bool = False
    seed: int | None = None
    max_iterations: int | None = None
    out: Path | None = None
    resume: bool = False
    diagnose: Diagnose = "quick"
    progress: TextIO | None = None
    announce: Callable[[str], object] | None = None
    notes: list[str] = field(default_factory=list)

    def run(self) -> Identification:
        """Fit one stage, or all that the recordings were made for, and announce what was found."""
        try:
            found = self._fitted()
        except ProcedureInterrupted as stop:
            self._announce(stop.result)
            raise
        except KeyboardInterrupt as stop:
            left = None if self.out is None else next(self.out.rglob(CHECKPOINT), None)
            raise KeyboardInterrupt("`resume` goes on" if left else "there is no checkpoint to go on from") from stop
        self._announce(found)
        return found

    def _announce(self, found: Identification) -> None:
        if self.announce is not None:
            self.announce(found.summary())
            if self.out is not None:
                self.announce(f"parameters: {self.out / FIT}\nreport: {self.out / 'report.html'}")

    def _fitted(self) -> Identification:
        procedure, simulator, recordings = self.prepared()
        labels = all(EXPERIMENT in t.metadata for t in recordings)
        if labels and _frees_more(procedure, simulator):
            procedure = replace(procedure, from_recordings=None)
        single = self.stage or self.method or self.free or not labels or len(procedure.stages) == 1
        return (self._one_stage if single else self._whole_procedure)(procedure, simulator, recordings)

    def run_online(self) -> tuple[HorizonResult, Simulator]:
        """Estimate row by row from the rows before.

        Raises:
            OptionError: The system has no complementarity form, or there are several recordings.
        """
        procedure, simulator, recordings = self.prepared()
        method_of("mpec").check(procedure)
        if len(recordings) > 1:
            raise OptionError(f"`online` follows one recording; there are {len(recordings)}: give one")
        assert procedure.methods.complementarity is not None
        problem = self.problem(procedure, replace(self, method="mpec").chosen(procedure), simulator, recordings)
        return online(problem, procedure.methods.complementarity(problem.simulator, problem.shared_steps)), simulator

    def say(self, note: str) -> None:
        """Keep a note, and announce it."""
        self.notes.append(note)
        if self.announce is not None:
            self.announce(note)

    # --- what is fitted -------------------------------------------------------------------------------------------------

    @cached_property
    def declared(self) -> System:
        """The system."""
        return system_named(self.system)

    def prepared(self) -> tuple[Procedure, Simulator, TrajectorySet]:
        """Procedure, simulator to fit, and the recordings at a whole number of its steps per row, with controls."""
        if self.announce is not None:
            self.announce(f"seed {self.seed or 0}, commit {git_commit()}")
        for name, low in (("seed", 0), ("max_iterations", 1)):
            if getattr(self, name) is not None:
                check_number(f"`{name}`", getattr(self, name), low=low, whole=True)
        if self.out is not None and self.out.exists() and not self.out.is_dir():
            raise OptionError(f"`out` is {self.out}, which is no folder")
        if not self.declared.procedure:
            raise OptionError(f"system {self.declared.name!r} has no procedure: it cannot be identified")
        procedure: Procedure = load(self.declared.procedure)
        model, options = self.declared.model(self.model, self.initial_guess), {**procedure.options, **self.options}
        simulator = self.declared.simulator(model, options=options)
        method_of(self.method or self.chosen(procedure).method).check(procedure)
        found: tuple[Trajectory, ...] = tuple(self.data)
        self._remark_on_files(found)
        self._compare_robots(simulator, found)
        found = self._without_mislabelled(procedure, simulator, found)
        dt = self.timestep(procedure, simulator.dt, found[0])
        simulator = simulator if dt == simulator.dt else self.declared.simulator(model, dt=dt, options=options)
        found = tuple(t if abs(t.period - dt * t.substeps) < 1e-3 * t.period else t.for_timestep(dt) for t in found)
        if self.stage is None and not set(found[0].names) <= set(simulator.state_names):
            procedure = self._recorded_stages(procedure.by_camera, all_recognised(_experiments_of(procedure, simulator, found)))
        found = self._labelled(procedure, simulator, found)
        if procedure.recorded.remark is not None:
            for remark in sorted({procedure.recorded.remark(simulator, t) for t in found} - {""}):
                self.say(f"note: {remark}")
        if procedure.recorded.infer_controls is not None:
            found = tuple(procedure.recorded.infer_controls(simulator, t) for t in found)
        if self.free_motion:
            found = tuple(t if t.control_names else _undriven(simulator, t) for t in found)
        return procedure, simulator, TrajectorySet(tuple(in_order_of(found[0], t) for t in found))

    def timestep(self, procedure: Procedure, own: float, recording: Trajectory) -> float:
        """Physics step [s]: as given, else a whole part of a frame, the step of `record`, or the system's own if it fits."""
        if self.dt is not None:
            return self.dt
        driven = bool(recording.num_steps and np.ptp(recording.controls, axis=0).any())
        if FPS in recording.metadata:
            return procedure.step_of(1.0 / float(recording.metadata[FPS]), own, driven=driven)
        counts_steps = "source" not in recording.metadata  # it is no CSV
        if EXPERIMENT in recording.metadata and counts_steps:
            return recording.period / recording.substeps
        if counts_steps and abs(recording.period - own * recording.substeps) < 1e-3 * recording.period:
            return own
        step = procedure.step_of(recording.period, own, driven=driven)
        return own if abs(step - own) < 1e-4 * own else step

    def chosen(self, procedure: Procedure) -> Stage:
        """The stage to fit, changed by the arguments.

        Raises:
            OptionError: There is none of this name, its method lacks such an option, or a bound is wanted without noise.
        """
        stage = self._own(procedure)
        method = method_of(self.method or stage.method)
        options = dict(stage.options)
        if method.name != stage.method:
            options = {name: value for name, value in options.items() if method.takes(name)}
            more = {"starts": 3} if method.takes("starts") else {}
            options = merged({**more, **options}, procedure.methods.settings.get(method.name, {}))
        seed = {} if self.seed is None else {"seed": self.seed}
        options = merged(options, {**seed, **self.settings})
        if options.get("box") and not self.noise:
            raise OptionError("box needs `noise`, and the method mpec: it is a bound of that noise")
        options = self._limited(method.name, options)
        method.settings(options)
        kept = {name: value for name, value in stage.simulator.changes.items() if name not in self.options}
        simulator = replace(stage.simulator, changes=kept)
        data = replace(stage.data, free_motion=stage.data.free_motion or self.free_motion)
        free = self.free or stage.free
        return replace(stage, method=method.name, options=options, free=free, simulator=simulator, data=data)

    def _own(self, procedure: Procedure) -> Stage:
        """The stage as the procedure has it."""
        return procedure.stage(self.stage) if self.stage else procedure.from_recordings or procedure.stages[-1]

    def _limited(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        """Options of a method, with the given number of iterations."""
        method = method_of(name)
        if self.max_iterations is None:
            return options
        if method.takes("levenberg"):
            return {**options, "levenberg": {**options.get("levenberg", {}), "max_iterations": self.max_iterations}}
        its = next((each for each in ("iterations", "generations") if method.takes(each)), "max_iterations")
        return {**options, its: self.max_iterations}

    def problem(self, procedure: Procedure, stage: Stage, simulator: Simulator, recordings: TrajectorySet) -> FitProblem:
        """The problem of one stage, with noise estimated from the recordings if the method needs it."""
        labelled = TrajectorySet(tuple(replace(t, metadata={**t.metadata, EXPERIMENT: stage.experiment}) for t in recordings))
        more: dict[str, Any] = {"measured": self.columns, "noise": self.noise, "free_initial": self.free_initial}
        more = {name: value for name, value in more.items() if value is not None and value != () and value != {}}
        problem = stage_problem(procedure, stage, simulator, self._split(labelled), start=self._start(simulator), **more)
        if problem.noise is None and method_of(stage.method).known_noise:
            problem = problem.with_estimated_noise()
            noise = ", ".join(f"{name} {value:.2g}" for name, value in (problem.noise or {}).items())
            self.say(f"noise by third differences [SI]: {noise}; if you know it, give `noise`")
        return problem

    def _start(self, simulator: Simulator) -> Parameters:
        """Parameters before the fit."""
        own, given = simulator.default_parameters, self.initial_guess
        return type(own).load(given, own) if isinstance(given, (str, Path)) else given or own

    def _split(self, recordings: TrajectorySet) -> DataSplit:
        """Recordings for training, validation and test."""
        count = len(recordings)
        return recordings.split(*(self.split or ((count - 1, 0, 1) if count > 1 else (count, 0, 0))))

    # --- fits -----------------------------------------------------------------------------------------------------------

    def _one_stage(self, procedure: Procedure, simulator: Simulator, recordings: TrajectorySet) -> Identification:
        stage = self.chosen(procedure)
        recordings = self._of_stage(stage, recordings)
        under_way = self._goes_on(stage)
        own = self._own(procedure)
        if lost := [name for name in own.options if not method_of(stage.method).takes(name)]:
            self.say(f"note: options of stage {own.name} that {stage.method} has not: {', '.join(lost)}")
        problem = self.problem(procedure, stage, simulator, recordings)
        kept = sum(len(part) for part in self._split(recordings)[1:])
        held = f" (the last {f'{kept} are' if kept > 1 else 'one is'} held out)" if kept else ""
        self.say(
            f"{len(recordings)} recordings{held}, {recordings.num_steps} steps; fitting {', '.join(problem.free)} by "
            f"{stage.method}"
        )
        if not self.columns and (said := unused(problem, recordings)):
            self.say(said)

        def named(found: FitResult) -> FitResult:
            origin = {**found.provenance, "stage": stage.name}
            return replace(found, spec=replace(found.spec, model=self._kept_model), provenance=origin)

        def keep(found: FitResult) -> None:
            if self.out is not None:
                save(named(found), self.out, page=False)

        stopped: KeyboardInterrupt | None = None
        try:
            result = fit_stage(
                procedure, stage, problem, folder=self.out, resume=under_way, progress=self.progress, diagnose=self.diagnose,
                keep=keep,
            )  # fmt: skip
        except Interrupted as stop:
            result, stopped = stop.result, stop
        keep(result)
        found = Identification((StageResult(stage.name, named(result)),), tuple(self.notes))
        if self.out is not None:
            found.report(self.out / "report.html")
        if stopped is not None:
            raise ProcedureInterrupted(found, ()) from stopped
        return found

    @property
    def _kept_model(self) -> str:
        """The model as fit.toml names it: a file by its whole path, so that the fit is read from any folder."""
        is_file = str(self.model).endswith(".toml") and self.model not in self.declared.models
        return str(Path(str(self.model)).resolve()) if is_file else self.model or ""

    def _goes_on(self, stage: Stage) -> bool:
        """Whether the fit goes on from a checkpoint."""
        if not self.resume:
            return False
        if self.out is None:
            raise OptionError("`resume` needs `out`, the folder to go on from")
        if not method_of(stage.method).leaves_checkpoint:
            leaving = ", ".join(name for name, method in METHODS.items() if method.leaves_checkpoint)
            raise OptionError(f"`resume`: {stage.method} leaves no checkpoint; those that do are {leaving}")
        if (self.out / CHECKPOINT).exists():
            return True
        if (self.out / FIT).exists():
            raise OptionError(
                f"`resume`: the fit in {self.out} has ended, with its parameters in {FIT}: there is nothing to go on from"
            )
        self.say(f"note: {self.out} has nothing to go on from yet: the fit begins anew")
        return False

    def _whole_procedure(self, procedure: Procedure, simulator: Simulator, recordings: TrajectorySet) -> Identification:
        for entry in fields(self):
            given = getattr(self, entry.name)
            if entry.name in OF_ONE_STAGE and given is not None and given is not False and given != () and given != {}:
                stages = ", ".join(stage.name for stage in procedure.stages)
                raise OptionError(
                    f"`{entry.name}` is of one stage, these recordings are fitted by {stages}: add `stage` with one of them"
                )
        there = procedure.of({recording.metadata.get(EXPERIMENT, "") for recording in recordings})
        if lacking := [stage.name for stage in procedure.stages if stage not in there.stages]:
            self.say(f"note: no recordings for {', '.join(lacking)}: left out, parameters of these stay as they were")
        procedure = there
        self.say(
            f"{len(recordings)} recordings, {recordings.num_steps} steps; stages {', '.join(s.name for s in procedure.stages)}"
        )
        own = self.initial_guess is not None or str(self.model).endswith(".toml")  # then the guess is of another robot
        stages_ = tuple(replace(s, options=self._limited(s.method, dict(s.options))) for s in there.stages)
        data = self._split(recordings) if self.split else recordings
        found = run_procedure(
            there, simulator, data, start=self._start(simulator) if own else None, stages=stages_, out=self.out,
            resume=self.resume, announce=lambda name: self.announce and self.announce(f"stage {name}"),
            progress=self.progress, diagnose=self.diagnose, model=self._kept_model,
        )  # fmt: skip
        return replace(found, notes=tuple(self.notes))

    # --- recordings -----------------------------------------------------------------------------------------------------

    def _remark_on_files(self, recordings: tuple[Trajectory, ...]) -> None:
        """Notes on what reading the files changed."""
        for turned in sorted({t.metadata[UNWRAPPED] for t in recordings if UNWRAPPED in t.metadata}):
            self.say(f"note: {turned} jumps by whole turns from line to line: unwrapped")
        for up in sorted({t.metadata[TURNED] for t in recordings if TURNED in t.metadata}):
            self.say(f"note: {up} points up in the file: turned, so that z does; `map` states another axis")
        for off in sorted({t.metadata[IRREGULAR] for t in recordings if IRREGULAR in t.metadata}):
            self.say(f"note: times are irregular, {off}: each value is compared at its own; rough stamps: `fps`")

    def _compare_robots(self, simulator: Simulator, recordings: tuple[Trajectory, ...]) -> None:
        """Note recordings of a robot with another structure than the simulator's."""
        name, notes = Path(self.model or next(iter(self.declared.models))).name, set()
        for recording in recordings:
            theirs, ours = SimulatorSpec.recorded(recording.metadata), SimulatorSpec.of(simulator, name)
            if theirs is not None and theirs.system != ours.system:
                raise OptionError(f"the recordings are of a robot of system {theirs.system!r}, this is {ours.system!r}")
            if EXPERIMENT in recording.metadata and recording.control_names not in ((), simulator.control_names):
                there, here = len(recording.control_names), len(simulator.control_names)
                of = theirs.model if theirs is not None else "another robot"
                raise OptionError(
                    f"the recordings are of {of}, with {there} controls; {name}, which is to be fitted, has {here}: say `model`"
                )
            if theirs is not None and theirs.model != name and (differs := theirs.differences(ours)):
                notes.add(f"note: recorded of model {theirs.model}, to be fitted is {name} (`model`): {differs}")
        for note in sorted(notes):
            self.say(note)

    def _without_mislabelled(
        self, procedure: Procedure, simulator: Simulator, recordings: tuple[Trajectory, ...]
    ) -> tuple[Trajectory, ...]:
        """The recordings with lost and repeated rows as missing, each with a note."""
        found, columns, start = [], self.declared.recorded_columns(simulator), self._start(simulator)
        gravities = () if {"gravity", "scale"} & set(self.free) else (9.81, float(getattr(start, "gravity", 9.81)))
        for number, recording in enumerate(recordings, 1):
            where = recording.metadata.get("source", f"recording {number}")
            try:
                check_dimensions(columns, recording)
                seen, notes = without_lost(recording)
                if procedure.recorded.limits is not None:
                    check_angles(procedure.recorded.limits(simulator), seen)
                if procedure.recorded.outline is not None:
                    check_poses(procedure.recorded.outline, simulator, seen, gravities)
            except DataError as error:
                raise DataError(f"{where}: {error}") from error
            for note in notes:
                self.say(f"note: {where}: {note}")
            found.append(seen)
        return tuple(found)

    def _of_stage(self, stage: Stage, recordings: TrajectorySet) -> TrajectorySet:
        """The recordings without those that say they are of another experiment than the stage's."""
        own = ("", stage.experiment)
        others = ", ".join(sorted({label for t in recordings if (label := t.metadata.get(EXPERIMENT, "")) not in own}))
        if not stage.experiment or not others:
            return recordings
        left = tuple(t for t in recordings if t.metadata.get(EXPERIMENT, "") in own)
        if not left:
            raise OptionError(f"stage {stage.name} fits recordings of {stage.experiment!r}, these are of {others}")
        self.say(f"note: stage {stage.name} fits recordings of {stage.experiment!r}: those of {others} are left out")
        return TrajectorySet(left)

    def _recorded_stages(self, procedure: Procedure, experiments: list[str]) -> Procedure:
        """The procedure without stages of experiments that were not recorded."""
        found = procedure.of(experiments)
        for name in sorted({s.experiment for s in procedure.stages} - {s.experiment for s in found.stages}):
            self.say(f"note: no recording of {name!r}: what it shows stays as it is")
        return found

    def _labelled(
        self, procedure: Procedure, simulator: Simulator, recordings: tuple[Trajectory, ...]
    ) -> tuple[Trajectory, ...]:
        """Recordings without labels that cover all experiments of the procedure, each labelled; others unchanged."""
        if any(EXPERIMENT in recording.metadata for recording in recordings):
            return recordings
        names = _experiments_of(procedure, simulator, recordings)
        if "" in names or not {stage.experiment for stage in procedure.stages} <= set(names):
            return recordings
        self.say(f"taken for: {', '.join(names) if len(set(names)) > 1 else names[0]}")
        return tuple(replace(t, metadata={**t.metadata, EXPERIMENT: name}) for t, name in zip(recordings, names, strict=True))


def _undriven(simulator: Simulator, recording: Trajectory) -> Trajectory:
    """A throw or release without columns of controls, with zero controls."""
    none = np.zeros((recording.num_steps, simulator.nu))
    return recording.with_controls(none, simulator.control_names, simulator.control_units)


def _experiments_of(procedure: Procedure, simulator: Simulator, recordings: tuple[Trajectory, ...]) -> list[str]:
    """Experiment of every recording: as stated or recognised; "" if unknown."""
    tell = procedure.recorded.experiment_of or (lambda *_: "")
    return [recording.metadata.get(EXPERIMENT) or tell(simulator, recording) for recording in recordings]


def all_recognised(experiments: list[str]) -> list[str]:
    """The experiments of recordings before a camera, all of them recognised or none.

    Raises:
        OptionError: Some are not.
    """
    if "" in experiments and any(experiments):
        known = ", ".join(dict.fromkeys(name for name in experiments if name))
        raise OptionError(
            f"recording {experiments.index('') + 1} of {len(experiments)} looks like no experiment, others like "
            f"{known}: leave it out, or say `stage`"
        )
    return experiments


def _frees_more(procedure: Procedure, simulator: Simulator) -> bool:
    """Whether the procedure's only stage is of the engine as it is, or frees parameters that `from_recordings` fixes."""
    if procedure.from_recordings is None or len(procedure.stages) > 1:
        return False
    own, from_recordings = procedure.stages[0], procedure.from_recordings
    return from_recordings.simulator.adapt is not None or not set(own.free_of(simulator)) <= set(
        from_recordings.free_of(simulator)
    )


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
    hint = f"columns that it has in these units are {_first(left)}" if left else "is it the right robot?"
    return f"note: recorded, but not used: {_first(columns)}; {hint}"


def _first(names: list[str]) -> str:
    """The first names, and their number."""
    return ", ".join(names[:8]) + (f", ... ({len(names)} in all)" if len(names) > 8 else "")
