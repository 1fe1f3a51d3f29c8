"""A transfer task: simulators, recordings, fits and costs of one task of any system, from the system's declarations.

A system gives its engine and its ground truths, a `Procedure` (its recordings and identification), an `Objective` (its goal)
and a `Scenario` (starts of runs, initial guesses of planners); nothing here depends on a robot.

Legend: B rows, T control steps, nx state, n tangent, nu control.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from softgym_envs.core.errors import OptionError
from softgym_envs.core.objective import Objective
from softgym_envs.core.parameters import ParameterDistribution, Parameters, UniformParameters
from softgym_envs.core.procedure import EXPERIMENT, Procedure
from softgym_envs.core.scenario import BatchPolicy, Scenario, StudyScene, around_rest, by_name, held_at_random
from softgym_envs.core.simulator import Array, Simulator, stable_bounds
from softgym_envs.core.system import System, identity_of
from softgym_envs.core.task import load
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet, is_whole
from softgym_envs.core.typed import merged
from softgym_envs.data.sensors import sensor_from_text
from sysid.procedure.run import run_procedure

from ..control.cost import FeatureCost
from ..control.plan import random_controls

TESTS = 3
"""Number of recordings for prediction errors."""
FACTOR = 4.0
"""Domain randomisation without data: parameters within this factor of the guess."""
DEFAULT = "default"
"""Value of a stage's option in a study: the method's own default, whatever the procedure has."""
LINEAR_SHARE = 0.25
"""Domain randomisation of a parameter on a linear scale: within this share of its bounds."""


class Identified(NamedTuple):
    """Result of `TransferTask.fit`."""

    parameters: Parameters
    distribution: ParameterDistribution | None
    """Posterior of the fit; None: unknown."""
    note: str
    """Headline of the fit's diagnostics in one sentence."""
    failed: bool = False
    """Whether diagnostics reject some of the parameters. The study uses them nevertheless, and reports it."""


@dataclass(frozen=True)
class _Within:
    """A distribution whose draws are clipped to narrower bounds."""

    whole: ParameterDistribution
    limits: Mapping[str, tuple[float, float]]

    def sample(self, rng: np.random.Generator, nominal: Parameters) -> dict[str, float]:
        """See `ParameterDistribution`."""
        drawn = self.whole.sample(rng, nominal)
        return {n: float(np.clip(value, *self.limits[n])) if n in self.limits else value for n, value in drawn.items()}


@dataclass(frozen=True)
class TransferTask:
    """The robot's side of a study: a task, its ground truth, recordings and fit; table [case] of a study's file.

    Picklable, so that every run builds its own simulators.

    Raises:
        OptionError: The system declares no study of this task, or has no such ground truth; its model has no such field, or its
            ground truth no such parameter; or a stage is named that it does not run.
        ParameterError: A parameter of the ground truth is out of its bounds.
    """

    system: System
    task: str
    """Environment id, without the package."""
    backend: str = ""
    """Backend that is the ground truth; "": the system's first ground truth."""
    ground_truth_options: dict[str, Any] = field(default_factory=dict)
    """Keywords of the ground truth, such as level and seed of a mismatched model."""
    recorded_task: str = ""
    """Id of the task that is recorded; "": the scenario's own choice."""
    stages: dict[str, Any] = field(default_factory=dict)
    """Stage of the procedure -> changed options; `DEFAULT` takes the method's own."""
    only: tuple[str, ...] = ()
    """Stages of the procedure to run; (): all."""
    sensor: tuple[str, ...] = ()
    """Sensor of the recordings for training, as words of `data.sensors.sensor_from_text`; (): full states."""
    structure: dict[str, Any] = field(default_factory=dict)
    """Field of the model -> value other than that of the task's robot."""
    ground_truth_parameters: dict[str, float] = field(default_factory=dict)
    """Parameter of the ground truth -> value other than its default."""
    keywords: dict[str, Any] = field(default_factory=dict)
    """Keywords of the environments of both worlds, where policies learn: `action_memory`, say."""
    learning: dict[str, Any] = field(default_factory=dict)
    """Keywords of our engine's environments only, for robust policies: `action_latency` or `sensor_noise`, say."""

    def __post_init__(self) -> None:
        known = load(self.system.study) if self.system.study else {}
        for task in filter(None, (self.task, self.recorded_task)):
            if task not in known:
                there = ", ".join(known) or "none"
                raise OptionError(f"system {self.system.name!r} declares no study of {task!r}; there are {there}")
        object.__setattr__(self, "backend", self.system.ground_truth(self.backend))
        declared: Procedure = load(self.system.procedure) if self.system.procedure else Procedure(stages=())
        for name in (*self.stages, *self.only):
            declared.stage(name)
        run = [stage.name for stage in self.procedure.stages] if self.system.procedure else []
        for what, names in (("stages", self.stages), ("only", self.only)):
            for name in names:
                if name not in run:
                    there = ", ".join(run) or "none of them"
                    raise OptionError(f"{what} has {name!r}, a stage that this case does not run; it runs {there}")
        allowed = {entry.name for entry in fields(self.scene.model)}
        for name in self.structure:
            if name not in allowed:
                raise OptionError(f"structure has {name!r}; the model of {self.task!r} has {', '.join(sorted(allowed))}")
        sensor_from_text(self.sensor)
        parameter_values = self.ground_truth().default_parameters.names()  # building it checks `ground_truth_options`
        for name in self.ground_truth_parameters:
            if name not in parameter_values:
                there = ", ".join(parameter_values) or "no parameters that can be changed"
                raise OptionError(f"ground_truth_parameters has {name!r}; the ground truth of {self.task!r} has {there}")
        self.ground_truth_values()  # checks their values

    # --- what the system declares ----------------------------------------------------------------------------------------

    @cached_property
    def scenario(self) -> Scenario:
        """Scenario of the task."""
        scenario: Scenario = load(self.system.study)[self.task]
        return scenario

    @cached_property
    def procedure(self) -> Procedure:
        """Procedure of the system, with the options of this case.

        Raises:
            OptionError: The system has none.
        """
        if not self.system.procedure:
            raise OptionError(f"system {self.system.name!r} declares no procedure: nothing can be identified")
        procedure: Procedure = load(self.system.procedure)
        procedure = procedure.by_camera if self.sensor else procedure
        chosen = [s for s in procedure.stages if not self.only or s.name in self.only]
        changed = (replace(s, options=merged(s.options, self.stages.get(s.name, {}), DEFAULT)) for s in chosen)
        return replace(procedure, stages=tuple(changed))

    @cached_property
    def scene(self) -> StudyScene:
        """Robot and goal."""
        if self.scenario.scene is None:
            return StudyScene(self.system.model(self.system.task(self.task).model))
        return self.scenario.scene()

    @cached_property
    def model(self) -> Any:
        """Structure of the robot."""
        return replace(self.scene.model, **self.structure) if self.structure else self.scene.model

    @cached_property
    def objective(self) -> Objective:
        """Objective with its target."""
        objective: Objective = load(self.system.objectives[self.scenario.objective])
        return objective if self.scene.target is None else objective.aimed(self.scene.target)

    @property
    def target(self) -> Array:
        """Target (m,) of the objective."""
        return np.array(self.objective.aim)

    @property
    def description(self) -> dict[str, Any]:
        """Description for study.json: what decides the numbers, except the code."""
        scenario, objective = self.scenario, self.objective
        return {
            "system": self.system.name,
            "task": self.task,
            "recorded": self.recorded_task or scenario.recorded or self.task,
            "target": [round(entry, 9) for entry in objective.aim],
            "weights": list(objective.weights),
            "control_weight": objective.control_weight,
            "parameters": dict(scenario.parameters),
            "ground_truth": {
                "backend": self.backend,
                **({"world": world} if (world := identity_of(self.backend)) != self.backend else {}),
                **self.ground_truth_options,
                **scenario.ground_truth_parameters,
                **self.ground_truth_parameters,
            },
            "engine": {**scenario.options, **({} if scenario.dt is None else {"dt": scenario.dt})},
            "initial_guess": self.procedure.initial_guess_of(self.native()),
            "stages": {s.name: {"method": s.method, **_told(s.options), **_said(s.prior)} for s in self.procedure.stages},
            **({"sensor": list(self.sensor)} if self.sensor else {}),
            **({"structure": dict(self.structure)} if self.structure else {}),
            **({"keywords": dict(self.keywords)} if self.keywords else {}),
            **({"learning": dict(self.learning)} if self.learning else {}),
        }

    @property
    def env_id(self) -> str:
        """Id of the environment of the task."""
        return f"softgym_envs:{self.task}"

    @property
    def env_keywords(self) -> dict[str, Any]:
        """Keywords of its environments, in both worlds."""
        return {**self.scenario.keywords, **({"model": self.model} if self.structure else {}), **self.keywords}

    @property
    def native_keywords(self) -> dict[str, Any]:
        """Keywords of its environments in our engine."""
        return {**({"options": dict(self.scenario.options)} if self.scenario.options else {}), **self.learning}

    @property
    def ground_truth_keywords(self) -> dict[str, Any]:
        """Keywords of its environments in the ground truth."""
        return {"backend": self.backend, **({"options": dict(self.ground_truth_options)} if self.ground_truth_options else {})}

    @property
    def hints(self) -> dict[str, Array]:
        """Hints for pictures."""
        return {self.scenario.hint: np.concatenate([self.target, np.zeros(3)])[:3]}

    # --- simulators and parameters --------------------------------------------------------------------------------------

    def native(self) -> Simulator:
        """Our engine."""
        return self.system.simulator(self.model, dt=self.scenario.dt, options=self.scenario.options)

    def ground_truth(self) -> Simulator:
        """World that counts as the ground truth, in our engine's physics steps: a control step takes as long in both."""
        return self.system.simulator(self.model, backend=self.backend, dt=self.native().dt, options=self.ground_truth_options)

    def ground_truth_values(self) -> Parameters:
        """The ground truth's parameters; a world of one's own may lack what the scenario says, and is as it was built."""
        default = self.ground_truth().default_parameters
        declared = {**self.scenario.parameters, **self.scenario.ground_truth_parameters}
        own = {name: value for name, value in declared.items() if name in default.names()}
        return default.replace(**own, **self.ground_truth_parameters)

    def recorded(self) -> TransferTask:
        """The task of the recordings: this one, or another robot whose parameters this one takes over."""
        task = self.recorded_task or self.scenario.recorded or self.task
        return self if task == self.task else replace(self, task=task, recorded_task="")

    def adapt(self, parameters: Parameters) -> Parameters:
        """Parameters identified on the recorded task with this scenario's own, another gravity for example."""
        fixed = self.scenario.parameters
        if parameters.batch is None:
            return parameters.replace(**fixed)
        return parameters.replace(**{name: np.full(parameters.batch, value) for name, value in fixed.items()})

    def default(self) -> Parameters:
        """Parameters of our engine before identification: the procedure's guess."""
        native = self.native()
        return native.default_parameters.replace(**{**self.procedure.initial_guess_of(native), **self.scenario.parameters})

    def best(self) -> Parameters:
        """Our engine with the ground truth's parameters; if it has others, those that best fit unlimited data."""
        if self.scenario.best is None:
            return by_name(self.native(), self.ground_truth_values())
        return self.scenario.best(self.ground_truth_values())

    @cached_property
    def identified(self) -> tuple[str, ...]:
        """Parameters of the robot that the procedure fits; a latency of the recordings, say, is not one."""
        engine = self.native()
        known = engine.default_parameters.names()
        return tuple(dict.fromkeys(name for s in self.procedure.stages for name in s.free_of(engine) if name in known))

    def _limits(self, parameters: Parameters) -> dict[str, tuple[float, float]]:
        """Bounds beyond which parameters are unstable at the steps in which planners and policies run."""
        return stable_bounds(self.native(), parameters)

    def drawn(self, rng: np.random.Generator, factor: float) -> Parameters:
        """`best` with every identified parameter times the factor or its reciprocal, by a coin each."""
        best, limits = self.best(), self._limits(self.best())
        specs = {name: spec.within(limits.get(name)) for name, spec in best.specs().items()}
        turned = {name: factor ** rng.choice([-1.0, 1.0]) * float(getattr(best, name)) for name in self.identified}
        return best.replace(**{name: float(np.clip(value, *specs[name].bounds)) for name, value in turned.items()})

    def wide(self) -> UniformParameters:
        """Range of domain randomisation without data: within `FACTOR` of the guess, or as the procedure knows."""
        means = {name: mean for name, (mean, _) in self._known().items() if name in self.identified}
        return self.around(self.default().replace(**means), FACTOR)

    def around(self, center: Parameters, factor: float) -> UniformParameters:
        """Range of domain randomisation about identified parameters; on a linear scale the factor's part of `LINEAR_SHARE`."""
        known, part, limits = self._known(), float(np.log(factor) / np.log(FACTOR)), self._limits(center)
        intervals = {}
        for name in self.identified:
            spec, value = center.specs()[name].within(limits.get(name)), float(getattr(center, name))
            low, high = spec.bounds
            if spec.scale == "log" and name not in known:
                ends = (value / factor, value * factor)
            else:
                reach = part * (2.0 * known[name][1] if name in known else LINEAR_SHARE * (high - low))
                ends = (value - reach, value + reach)
            intervals[name] = (max(ends[0], low), min(ends[1], high))
        return UniformParameters(intervals)

    def _known(self) -> dict[str, tuple[float, float]]:
        """Parameters with a prior in the procedure: mean and standard deviation."""
        engine = self.native()
        return {name: said for stage in self.procedure.stages for name, said in stage.prior_of(stage.free_of(engine)).items()}

    def cost(self, simulator: Simulator) -> FeatureCost:
        """The task, on this simulator's states."""
        return FeatureCost.of(self.objective, simulator, self.model)

    def starts(self, rng: np.random.Generator, count: int) -> Array:
        """Perturbed starts (count, nx), the first one unperturbed; the same rng gives the same starts."""
        return (self.scenario.starts or around_rest)(self.native(), self.best(), rng, count)

    def first_policy(self, rng: np.random.Generator) -> BatchPolicy:
        """Policy whose run gives the initial controls of a plan, with the scenario's noise; the same for all conditions."""
        policy, noise = (self.scenario.first_policy or held_at_random)(self.model, rng), self.scenario.first_noise
        if noise is None:
            return policy
        ground_truth = self.ground_truth()
        added = random_controls(ground_truth, noise.steps, rng=rng, amplitude=noise.amplitude, knots=noise.knots)
        low, high = ground_truth.control_bounds
        return lambda x, t: np.clip(policy(x, t) + added[t % noise.steps], low, high)

    def record(self, rng: np.random.Generator, steps: int) -> DataSplit:
        """Recordings of the ground truth, `steps` physics steps for training; a sensor sees only those."""
        found = self._recorded(rng, steps)
        if not self.sensor:
            return found
        sensor, native = sensor_from_text(self.sensor), self.native()
        seen = (sensor(t, native, self.procedure, rng) for t in found.train)
        return found._replace(train=TrajectorySet(tuple(t.for_timestep(self._engine_for(t).dt) for t in seen)))

    def states(self, rng: np.random.Generator, steps: int) -> DataSplit:
        """The experiments of `record` as full states without a sensor; one row for every command, where they are held."""
        found = self._recorded(rng, steps)
        return DataSplit(*(TrajectorySet(tuple(self._held(t) for t in part)) for part in found))

    def _held(self, recording: Trajectory) -> Trajectory:
        held = self.procedure.experiment(recording.metadata[EXPERIMENT]).held
        return recording.thinned(round(held / recording.period)) if held else recording

    def _recorded(self, rng: np.random.Generator, steps: int) -> DataSplit:
        from_markers = bool(self.sensor)
        return self.procedure.record(
            self.ground_truth(), rng, steps=steps, parameters=self.ground_truth_values(), tests=TESTS, from_markers=from_markers
        )

    def fit(self, data: DataSplit) -> Identified:
        """Identify our engine by the procedure's stages.

        Raises:
            DataError: The recordings cannot be used; the run then continues with the default parameters.
        """
        engine, start = self._engine_for(data.train[0]), self.default()
        limits = self._limits(start)
        found = run_procedure(self.procedure, engine, data.train, start=start, stages=self.procedure.stages, limits=limits)
        return Identified(found.parameters, _Within(found.distribution(), limits), found.headline, bool(found.unusable))

    def _engine_for(self, recording: Trajectory) -> Simulator:
        """Our engine; if rows are no whole number of its steps, as frames of a camera, with a step that divides them."""
        native, period = self.native(), recording.period
        if is_whole(period, native.dt):
            return native
        return self.system.simulator(self.model, dt=self.procedure.step_of(period, native.dt), options=self.scenario.options)

    def measure(self, states: Array) -> Mapping[str, Array]:
        """Further numbers of runs (B, T+1, nx), each (B,), such as the distance."""
        if self.scenario.measure is None:
            return {}
        return self.scenario.measure(self.model, self.target, states[..., : self.model.layout.nx])

    def position(self, states: Array) -> Array:
        """Position of the robot, (..., nx) -> (..., 3) [m], by which prediction errors are measured."""
        states = states[..., : self.model.layout.nx]
        if self.scenario.position is not None:
            return self.scenario.position(self.model, states)
        features = self.objective.features(self.model, states)[..., :3]
        return np.concatenate([features, np.zeros((*features.shape[:-1], 3 - features.shape[-1]))], axis=-1)


def _said(prior: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """The prior as it is written down, if there is any."""
    return {"prior": dict(prior)} if prior else {}


def _told(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as they are written down: functions by their names."""
    return {name: value.__qualname__ if callable(value) else value for name, value in options.items()}
