"""Identification procedures as data: what to record of a robot, and which parameters each stage fits to which recordings.

A system declares one `Procedure`; `sysid.identify`, the subcommands `record` and `identify`, the demo and the transfer
studies all run the same one. Legend: nx state, nu control, ny measured columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, Protocol

import numpy as np

from .complementarity import ComplementarityForm
from .errors import DataError, OptionError
from .mismatch import seen
from .parameters import Parameters
from .simulator import Array, Simulator
from .trajectory import DataSplit, Trajectory, TrajectorySet, part_of

EXPERIMENT = "experiment"
"""Key of a recording's metadata: the name of its experiment."""


class Recorder(Protocol):
    """Makes one recording of about `steps` physics steps on any world of the system, with the world's parameters."""

    def __call__(
        self, ground_truth: Any, rng: np.random.Generator, *, steps: int, parameters: Parameters | None = None
    ) -> Trajectory:
        """Make the recording."""


@dataclass(frozen=True)
class Measurement:
    """Measured quantities as a function of the state, y = h(x): tracked points, a centre of mass, ..."""

    names: tuple[str, ...]
    """ny columns of the recordings."""
    function: Callable[[Array], Array]
    """States (..., nx) -> (..., ny), in SI; smooth."""

    def select(self, names: tuple[str, ...]) -> Measurement:
        """Measurement of these columns only, in this order."""
        if names == self.names:
            return self
        places = [self.names.index(name) for name in names]
        return Measurement(names, lambda states: self.function(states)[..., places])


class Program(NamedTuple):
    """The problem that `sysid.fitting.simultaneous` fits."""

    form: ComplementarityForm
    """The physics step of the simulator."""
    observe: Any
    """casadi.Function: state (nx) -> measured columns (ny)."""
    names: tuple[str, ...]
    """The ny columns."""


@dataclass(frozen=True)
class Experiment:
    """A recorded experiment on the robot."""

    name: str
    record: Recorder
    longest: int
    """Largest number of physics steps of a recording, and its length without a budget; for other worlds see `steps_on`."""
    share: float = 1.0
    """Share of a budget of physics steps; the last experiment gets what the others leave."""
    most: int | None = None
    """Largest number of recordings; None: as many as the budget allows."""
    from_markers: Recorder | None = None
    """Recorder with commands that a camera's frames can follow, in rows as short as the frames; None: `record`."""
    held: float = 0.0
    """Duration of a command [s], and of the rows that corrections and networks learn from, though `from_markers` has more rows;
    0: rows as recorded."""
    enough: int | None = None
    """Physics steps after which a recording adds little: a budget makes recordings of about this length; None: `longest`."""

    def steps_on(self, ground_truth: Simulator, engine: Simulator) -> int:
        """Physics steps of a world that last as long as `longest` of our engine's."""
        return max(round(self.longest * engine.dt / ground_truth.dt), 1)

    def sizes(self, budget: int) -> tuple[int, ...]:
        """Physics steps of the recordings that a budget allows: as few and equal as possible, or of about `enough` steps.

        >>> Experiment("a", record=..., longest=40).sizes(100), Experiment("a", record=..., longest=40, most=1).sizes(100)
        ((34, 33, 33), (40,))
        >>> Experiment("a", record=..., longest=40, enough=20).sizes(100)
        (20, 20, 20, 20, 20)
        """
        if budget <= 0:
            return ()
        count = min(max(-(-budget // self.longest), budget // (self.enough or self.longest)), self.most or budget)
        return tuple(len(part) for part in np.array_split(np.zeros(min(budget, count * self.longest)), count))


@dataclass(frozen=True)
class StageSimulator:
    """Simulator of a stage."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the simulator that are changed for this stage."""
    adapt: Callable[[Any], Any] | None = None
    """Simulator -> the simulator to fit, if the new value of a field depends on others."""
    fallback: Callable[[Any], Any] | None = None
    """Simulator (not adapted) -> an alternative, whose fit is used if it explains the data and this one's does not; an equal
    simulator is no alternative."""


@dataclass(frozen=True)
class StageData:
    """Recordings of a stage, as they are fitted."""

    prepare: Callable[[Any, Trajectory], Trajectory] | None = None
    """(adapted simulator, recording) -> the recording as that simulator follows it."""
    window: float | None = None
    """Duration [s] from the start of every recording that is used; None: all."""
    free_initial: bool | None = None
    """Whether initial states are unknowns; None: as `FitProblem` does."""
    free_motion: bool = False
    """Whether the recordings are throws or releases: controls may be constant."""
    noise: Mapping[str, float] = field(default_factory=dict)
    """Pattern of column names -> standard deviation [SI], the first match counts; empty: estimated."""
    noise_known: bool = False
    """Whether columns are weighted by the noise estimated from their third differences, not by the residuals of a fit."""


@dataclass(frozen=True)
class Causes:
    """Parameters that a stage frees to find out what its fit lacks, or what it hides."""

    candidates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Cause in words -> parameters of recordings or robot, freed where a fit does not explain its data, to name the cause."""
    untried: Callable[[Any], str] | None = None
    """Simulator -> what else the system can model, in words ("" for nothing), reported if none of the candidate causes is the
    cause."""
    idle_without: Mapping[str, str] = field(default_factory=dict)
    """Assumed parameter -> parameter that must not be zero for it to act: gravity's direction, say, needs gravity."""
    doubtful: tuple[str, ...] = ()
    """Parameters that are fixed though rarely measured: freed if a fit explains its data, to see what depends on them."""


@dataclass(frozen=True)
class Stage:
    """One group of parameters, fitted with all others fixed ([Wang2020] IV-D)."""

    name: str
    experiment: str
    """Experiment whose recordings are fitted; "" for a laboratory's."""
    free: tuple[str, ...] | Callable[[Any], tuple[str, ...]]
    """Parameters of the robot and of the recordings (`sysid.problem.recording_parameters`), or a function of the simulator
    that names them."""
    method: str
    """Name in `sysid.fitting.METHODS`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the method; a mapping where the option is a dataclass."""
    begin: Mapping[str, float] | Callable[[Parameters], Mapping[str, float]] = field(default_factory=dict)
    """Start values of parameters, whatever was found before: with them the robot moves so little that a fit can follow it."""
    prior: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Pattern of free parameters -> (mean, standard deviation) of their prior [their unit], the first match counts."""
    simulator: StageSimulator = field(default_factory=StageSimulator)
    data: StageData = field(default_factory=StageData)
    causes: Causes = field(default_factory=Causes)

    def free_of(self, simulator: Simulator) -> tuple[str, ...]:
        """Parameters that are fitted with this simulator."""
        names, vectors = self.free(simulator) if callable(self.free) else self.free, simulator.default_parameters.vectors
        return tuple(entry for name in names for entry in vectors.get(name, (name,)))

    def begin_of(self, parameters: Parameters) -> Mapping[str, float]:
        """Start values that differ from these parameters."""
        return self.begin(parameters) if callable(self.begin) else self.begin

    def prior_of(self, free: tuple[str, ...]) -> dict[str, tuple[float, float]]:
        """Priors of free parameters.

        >>> Stage("a", "", ("mass", "force0"), "one_step", prior={"force*": (1.0, 0.3)}).prior_of(("mass", "force0"))
        {'force0': (1.0, 0.3)}
        """
        found = {name: [known for pattern, known in self.prior.items() if fnmatchcase(name, pattern)] for name in free}
        return {name: known[0] for name, known in found.items() if known}

    def noise_of(self, names: tuple[str, ...]) -> dict[str, float] | None:
        """Standard deviation of every column; None where it is to be estimated.

        Raises:
            DataError: No pattern fits a column.
        """
        if not self.data.noise:
            return None
        found = {}
        for name in names:
            value = next((std for pattern, std in self.data.noise.items() if fnmatchcase(name, pattern)), None)
            if value is None:
                raise DataError(
                    f"stage {self.name!r} says no noise of column {name!r}; it does of {', '.join(self.data.noise)}"
                )
            found[name] = value
        return found

    def of(self, recordings: TrajectorySet) -> TrajectorySet:
        """The recordings that this stage fits, cut to its window."""
        chosen = tuple(t for t in recordings if t.metadata.get(EXPERIMENT, "") == self.experiment)
        if self.data.window is None:
            return TrajectorySet(chosen)
        return TrajectorySet(tuple(t.window(t.times[0], t.times[0] + self.data.window) for t in chosen))


@dataclass(frozen=True)
class Steps:
    """Physics steps of fits."""

    longest: float | None = None
    """Longest physics step [s] for fits to files of a laboratory or a camera; None: the simulator's own."""
    driven: float | None = None
    """Longest physics step [s] for recordings whose controls change; None: `longest`."""
    finer: Callable[[Any], Any] | None = None
    """Simulator -> the same robot in finer steps, to check whether its step is why data are not explained; None: no check."""


class Outline(NamedTuple):
    """Points of a system over level ground, z up, as a recording shows them."""

    points: Array
    """(T, n, 3) [m]; NaN where unseen."""
    rest: Array
    """(n, 3) the same points of the system at rest [m]."""
    rigid: bool
    """Whether all belong to one rigid body, and are the lowest that it has."""


@dataclass(frozen=True)
class Recorded:
    """How recordings of a laboratory show the system."""

    measurement: Callable[[Any, tuple[str, ...]], Measurement | None] | None = None
    """(simulator, names of all recorded columns) -> measurement of those that are not state entries; None if there are none."""
    markers: Callable[[Any], tuple[str, ...]] | None = None
    """Simulator -> columns of `measurement` that a laboratory's camera would see; None: lengths and angles of the state."""
    infer_controls: Callable[[Any, Trajectory], Trajectory] | None = None
    """(simulator, recording) -> the recording with controls; unchanged if it has some or none can be inferred."""
    experiment_of: Callable[[Any, Trajectory], str] | None = None
    """(simulator, recording of a laboratory) -> its experiment, "" if it cannot be determined; None: it never can."""
    remark: Callable[[Any, Trajectory], str] | None = None
    """(simulator, recording of a laboratory) -> what speaks against fitting it with this model, in words; "" if nothing."""
    outline: Callable[[Any, Trajectory], Outline | None] | None = None
    """(simulator, recording) -> points over the ground, from which wrong axes and attitudes are noticed; None: not recorded."""
    limits: Callable[[Any], Mapping[str, tuple[float, float]]] | None = None
    """Simulator -> lowest and highest angle [rad] of joints by name, from which degrees are noticed."""


@dataclass(frozen=True)
class InitialState:
    """What is known of the state where a recording, or a segment of it, begins."""

    guess: Callable[[Any, tuple[str, ...]], Callable[[Trajectory], Array] | None] | None = None
    """(simulator, names of all recorded columns) -> recording -> guess of its initial state (nx,)."""
    known: tuple[str, ...] = ()
    """Patterns of tangent coordinates that are not fitted: known from `guess` when a recording begins, or unimportant."""
    actuated: tuple[str, ...] = ()
    """Patterns of state entries that only commands drive, whatever the robot does: not fitted within a recording."""
    propagated: tuple[str, ...] = ()
    """Patterns of state entries among `known` that matter: a segment takes them over from the prediction before it."""


@dataclass(frozen=True)
class MethodData:
    """What single methods need, or use, of the system."""

    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Method -> options that suit this system better than the method's own, for methods that no stage uses."""
    complementarity: Callable[[Any, int], ComplementarityForm] | None = None
    """(simulator, physics steps of which every row takes a multiple) -> its step for `sysid.fitting.mpec`, or a coarser
    one's."""
    program: Callable[[Any, tuple[str, ...]], Program] | None = None
    """(simulator, names of all recorded columns) -> the problem that `sysid.fitting.simultaneous` fits."""
    choices: Mapping[str, tuple[float, Callable[[Any], Any]]] = field(default_factory=dict)
    """Choice of our engine in words -> (share, simulator -> the same robot with that share more or less of it). Intervals of
    `innovations` reach as far as none of it would change the parameters, and a diagnostic names these."""
    homogeneous: Mapping[str, tuple[float, Callable[[Any], Any]]] = field(default_factory=dict)
    """Parts that our engine assumes to be equal, and how much they may differ, in words -> (standard deviation of the logarithm
    of their factors, simulator -> the same robot with a factor for each, None if it has them). A diagnostic of `innovations`
    names the parameters that this changes; intervals are for equal parts."""


@dataclass(frozen=True)
class Procedure:
    """See the module docstring.

    Raises:
        OptionError: Two stages or experiments of one name, or a stage of an experiment that is not there.
    """

    stages: tuple[Stage, ...]
    """Stages in order; each starts from the parameters of the one before."""
    experiments: tuple[Experiment, ...] = ()
    """Experiments; the last one also provides recordings to test predictions."""
    from_markers: tuple[Stage, ...] = ()
    """Stages for experiments that a camera recorded; (): `stages` serve for these, too."""
    from_recordings: Stage | None = None
    """Stage that `identify` fits to recordings without an experiment; None: the last stage."""
    others: tuple[Stage, ...] = ()
    """Stages that are fitted only if named (`identify --stage`)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Structural choices of our engine that describe recordings best; `identify` uses them unless the user gives others."""
    initial_guess: Mapping[str, float] | Callable[[Any], Mapping[str, float]] = field(default_factory=dict)
    """Parameters before identification, as from a data sheet, or simulator -> these; the others have their defaults."""
    steps: Steps = field(default_factory=Steps)
    recorded: Recorded = field(default_factory=Recorded)
    initial: InitialState = field(default_factory=InitialState)
    methods: MethodData = field(default_factory=MethodData)

    def __post_init__(self) -> None:
        for what, named in (("stages", self.all_stages), ("experiments", self.experiments)):
            names = [entry.name for entry in named]
            if len(set(names)) != len(names):
                raise OptionError(f"{what} are named {names}, expected each name once")
        for stage in self.all_stages:
            if stage.experiment:
                self.experiment(stage.experiment)

    def initial_guess_of(self, simulator: Simulator) -> dict[str, float]:
        """Parameters before identification with this simulator that are not its defaults."""
        return dict(self.initial_guess(simulator) if callable(self.initial_guess) else self.initial_guess)

    def step_of(self, period: float, own: float, *, driven: bool = False) -> float:
        """Longest physics step [s] that divides a period evenly, at most `Steps.longest`, or else the simulator's own.

        Args:
            period: Period of rows [s].
            own: The simulator's physics step [s].
            driven: Whether controls change: then at most `Steps.driven`.
        """
        return part_of(period, (self.steps.driven if driven else None) or self.steps.longest or own)

    @property
    def all_stages(self) -> tuple[Stage, ...]:
        """The stages, those for a camera, those by name only, and the laboratory's."""
        stages = (*self.stages, *self.from_markers, *self.others)
        return stages if self.from_recordings is None else (*stages, self.from_recordings)

    @property
    def by_camera(self) -> Procedure:
        """The procedure for experiments that a camera recorded; unchanged if it has no other stages for them."""
        return replace(self, stages=self.from_markers, from_markers=()) if self.from_markers else self

    def of(self, experiments: Collection[str]) -> Procedure:
        """The procedure without stages of other experiments; unchanged if the first stage's own is not among these."""
        if self.stages[0].experiment not in experiments:
            return self
        return replace(self, stages=tuple(stage for stage in self.stages if stage.experiment in experiments))

    def stage(self, name: str) -> Stage:
        """The stage of this name.

        Raises:
            OptionError: There is none.
        """
        return next((s for s in self.all_stages if s.name == name), None) or _unknown("stage", name, self.all_stages)

    def experiment(self, name: str) -> Experiment:
        """The experiment of this name.

        Raises:
            OptionError: There is none.
        """
        return next((e for e in self.experiments if e.name == name), None) or _unknown("experiment", name, self.experiments)

    def record_one(
        self,
        name: str,
        ground_truth: Simulator,
        rng: np.random.Generator,
        *,
        steps: int | None = None,
        parameters: Parameters | None = None,
        from_markers: bool = False,
    ) -> Trajectory:
        """One recording, labelled with its experiment, without the world's own memory.

        Args:
            name: The experiment.
            ground_truth: The world that is recorded.
            rng: Generator of poses and commands.
            steps: Physics steps of the world; None: `longest`, which last less on a world of shorter steps than our
                engine's (`Experiment.steps_on`).
            parameters: Parameters of the world; None: its defaults.
            from_markers: Whether a camera will have to follow; see `Experiment.from_markers`.

        Raises:
            OptionError: No such experiment.
        """
        experiment = self.experiment(name)
        record = (experiment.from_markers if from_markers else None) or experiment.record
        found = record(ground_truth, rng, steps=steps or experiment.longest, parameters=parameters)
        found = found.select(seen(found.names))
        return replace(found, metadata={**found.metadata, EXPERIMENT: name})

    def record(
        self,
        ground_truth: Simulator,
        rng: np.random.Generator,
        *,
        steps: int,
        parameters: Parameters | None = None,
        tests: int = 0,
        from_markers: bool = False,
    ) -> DataSplit:
        """Recordings of all experiments for a budget of physics steps, plus `tests` of the last one.

        Args:
            ground_truth: The world that is recorded.
            rng: Generator of the recordings for training; test recording i has its own of seed i.
            steps: Total physics steps of the recordings for training.
            parameters: Parameters of the world; None: its defaults.
            tests: Recordings of full length to judge predictions by.
            from_markers: Whether a camera will have to follow; see `Experiment.from_markers`.

        Raises:
            OptionError: The procedure has no experiment.
        """
        if not self.experiments:
            raise OptionError("this procedure has no experiment to record")
        train: list[Trajectory] = []
        left = steps
        for experiment in self.experiments:
            budget = left if experiment is self.experiments[-1] else max(int(steps * experiment.share), 1)
            for size in experiment.sizes(budget):
                train.append(
                    self.record_one(
                        experiment.name, ground_truth, rng, steps=size, parameters=parameters, from_markers=from_markers
                    )
                )
                left -= train[-1].num_steps * train[-1].substeps
        last = self.experiments[-1].name
        test = tuple(
            self.record_one(last, ground_truth, np.random.default_rng(i), parameters=parameters, from_markers=from_markers)
            for i in range(tests)
        )
        return DataSplit(TrajectorySet(tuple(train)), TrajectorySet(()), TrajectorySet(test))


def in_usual_steps(simulator: Any) -> Any:
    """Copy of the robot in its engine's usual steps, in which it may have been simulated; see `StageSimulator.fallback`."""
    return replace(simulator, dt=type(simulator).dt)


def in_half_steps(simulator: Any) -> Any:
    """Copy of the robot in half of the simulator's step; see `Steps.finer`."""
    return replace(simulator, dt=0.5 * simulator.dt)


def _unknown(kind: str, name: str, known: tuple[Any, ...]) -> Any:
    raise OptionError(f"unknown {kind} {name!r}; there are {', '.join(entry.name for entry in known) or 'none'}")
