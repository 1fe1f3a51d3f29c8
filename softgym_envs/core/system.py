"""A system: everything that belongs to one robot, declared as one value in the `__init__` of its folder.

Heavy parts are named by a string "package.module:name" and loaded when used, so that the list of all systems
(`softgym_envs.systems`) imports no physics. Every subcommand and every test uses what is declared here: a new robot is a
folder and a line in that list, or a package of its own with an entry point.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from .errors import MissingDependencyError, OptionError, shown
from .files import parse_toml
from .parameters import GivenParameters
from .simulator import MAX_DT, Simulator, check_number
from .task import load

NATIVE = "native"
"""The backend that is the native engine; every other one is a ground truth."""

WHEN_MADE: list[Callable[[System], None]] = []
"""Called with every system that is made; see `envs.registry`."""


@dataclass(frozen=True)
class TaskId:
    """One environment id of a system."""

    id: str
    build: str
    """(model, *, control_period, obs_mode, keywords of its own) -> task; the environment simulates the task's `model`.

    Its docstring describes the environment.
    """
    max_episode_steps: int
    """Control steps until truncation."""
    model: str
    """Name of the system's model that is used unless the user names another."""

    @property
    def control_period(self) -> float:
        """Usual time between actions [s]."""
        return float(inspect.signature(load(self.build)).parameters["control_period"].default)


@dataclass(frozen=True, eq=False)
class System:
    """See the module docstring."""

    name: str
    summary: str
    """One sentence: what the robot is."""
    engine: str
    """The native simulator: a class, or a function, with keywords `model`, `dt`, its own options, and perhaps `device`."""
    models: Mapping[str, str]
    """Name -> function without arguments that makes a structure; the first one is the default."""
    read_model: str = ""
    """Path of a user's TOML file -> structure; "" if there is no such file."""
    settle: str = ""
    """(structure from a file, parameters as `gym.make` takes them, or None) -> the structure in its rest pose with them; "" if
    the file gives the rest pose."""
    ground_truths: Mapping[str, str] = field(default_factory=dict)
    """Backend -> class or function as `engine`: simulators other than the native engine, with the same states and controls."""
    tasks: tuple[TaskId, ...] = ()
    picture: str = ""
    """A `rendering.picture.Picture`: how the robot is drawn, followed and driven by keys."""
    procedure: str = ""
    """A `core.procedure.Procedure`: how the robot is recorded and identified."""
    study: str = ""
    """Further input of transfer studies: starts, first policies, ranges of parameters; see `core.scenario`."""
    learning: str = ""
    """A mapping: id -> algorithm of reinforcement learning -> settings that differ from `agents.learning.rl.USUAL`."""
    controllers: str = ""
    """A mapping: id -> name -> function (vector environment) -> (observations (B, no) -> actions (B, na)). Baselines for its
    tasks: "heuristic" or "planner" shows that a task can be done, "blind" does not see what it is about."""
    planning: str = ""
    """A mapping: id -> settings of sampling MPC that differ from those of `agents.control.task_mpc.TaskMpc`."""
    ends: str = ""
    """A mapping: id -> function (contexts (B, nc)) -> final states (B, nx) at which the task is done, NaN where free."""
    objectives: Mapping[str, str] = field(default_factory=dict)
    """Name -> a `core.objective.Objective` that studies and planners minimise."""
    free_structure: tuple[str, ...] = ()
    """Fields of the model that identified parameters do not depend on; all others must equal those of the identification."""

    def __post_init__(self) -> None:
        for tell in WHEN_MADE:
            tell(self)

    def task(self, task_id: str) -> TaskId:
        """The id's entry.

        Raises:
            OptionError: The system has no such id.
        """
        for entry in self.tasks:
            if entry.id == task_id:
                return entry
        raise OptionError(f"system {self.name!r} has no task {task_id!r}; there are {', '.join(t.id for t in self.tasks)}")

    def learning_of(self, task_id: str, algorithm: str) -> Mapping[str, Any]:
        """Settings of an algorithm on one of the ids that differ from the usual ones."""
        settings: Mapping[str, Any] = load(self.learning).get(task_id, {}).get(algorithm, {}) if self.learning else {}
        return settings

    def planning_of(self, task_id: str) -> Mapping[str, Any]:
        """Settings of sampling MPC on one of the ids that differ from the usual ones."""
        settings: Mapping[str, Any] = load(self.planning).get(task_id, {}) if self.planning else {}
        return settings

    def controllers_of(self, task_id: str) -> Mapping[str, Callable[[Any], Callable[[Any], Any]]]:
        """Controllers of one of the ids by their names; see `controllers`."""
        found: Mapping[str, Any] = load(self.controllers).get(task_id, {}) if self.controllers else {}
        return found

    def model(self, given: Any = None, parameters: GivenParameters | None = None) -> Any:
        """A structure by its name, from a TOML file, or the given one itself; None: the system's first.

        Args:
            given: Name, path or structure.
            parameters: Parameters for the rest pose of a structure from a file; None: its own.

        Raises:
            OptionError: Neither a name nor a TOML file of this system.
        """
        if given is None:
            given = next(iter(self.models))
        if isinstance(given, (str, Path)):
            if str(given) in self.models:
                return load(self.models[str(given)])()
            if self.read_model and str(given).endswith(".toml"):
                read = load(self.read_model)(given)
                return load(self.settle)(read, parameters) if self.settle else read
        kind = type(load(next(iter(self.models.values())))())
        if isinstance(given, kind):
            return given
        files = ", a .toml file" if self.read_model else ""
        raise OptionError(f"model is {given!r}, expected {', '.join(self.models)}{files} or a {kind.__name__}")

    def simulator(
        self,
        model: Any = None,
        *,
        backend: str = NATIVE,
        dt: float | None = None,
        device: str = "cpu",
        options: Mapping[str, Any] | None = None,
        parameters: GivenParameters | None = None,
    ) -> Simulator:
        """A simulator of this robot: the native engine, or a ground truth.

        Args:
            model: As for `model`.
            backend: "native"; one of `ground_truths`; "package.module:function" of the user's own, called like a class of ours
                and returning a Simulator with our states and controls; or a .toml file that maps the user's MJCF to the
                system's state.
            dt: Physics step [s]; None: the backend's own.
            device: "cpu", or a CUDA device for our engine.
            options: Further keywords of the backend.
            parameters: As for `model`.

        Raises:
            OptionError: Unknown backend or option, a device that it cannot use, or a simulator with other states.
        """
        model, kind = self.model(model, parameters), self._entry_point(backend)
        if not isinstance(options or {}, Mapping):
            raise OptionError(f"options is {options!r}, expected a mapping of keywords to values")
        keywords: dict[str, Any] = dict(options or {})
        allowed = dict(inspect.signature(kind).parameters)
        anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in allowed.values())
        for name in keywords:
            if name in ("model", "dt", "device") or (name not in allowed and not anything):
                own = sorted(set(allowed) - {"model", "dt", "device", "system", "path"}) or ["none"]
                named = "; dt, model and device are keywords of their own" if name in ("model", "dt", "device") else ""
                raise OptionError(f"`options` has {name!r}; {_name(kind)} takes {', '.join(own)}{named}")
        if dt is not None:
            check_number("dt", dt, positive=True, high=MAX_DT, unit="s")
            keywords["dt"] = dt
        if "device" in allowed:
            keywords["device"] = device
        elif not isinstance(device, str) or device != "cpu":
            raise OptionError(f"device is {device!r}, backend {backend!r} of {self.name} runs on 'cpu'")
        if backend in (NATIVE, *self.ground_truths):
            made: Simulator = kind(model=model, **keywords)
            return made
        return self._ground_truth(backend, kind, {"model": model, **keywords})

    def recorded_columns(self, simulator: Simulator) -> dict[str, str]:
        """Names -> SI units of what a recording of this robot may hold: states, markers, and controls as `control:name`."""
        found = dict(zip(simulator.state_names, simulator.state_units, strict=True))
        markers = load(self.procedure).recorded.markers if self.procedure else None
        found |= {name: "m" for name in (markers(simulator) if markers is not None else ()) if name not in found}
        controls = zip(simulator.control_names, simulator.control_units, strict=True)
        return found | {f"control:{name}": unit for name, unit in controls}

    def ground_truth(self, backend: str = "") -> str:
        """The backend that is the ground truth: the given one, or the first of `ground_truths`.

        Raises:
            OptionError: There is no such backend, or none is given and the system has no ground truth.
        """
        if not (backend or self.ground_truths):
            raise OptionError(
                f"system {self.name!r} has no ground truth: give a backend, 'package.module:function' or your .toml file"
            )
        found = backend or next(iter(self.ground_truths))
        self._entry_point(found)
        return found

    @property
    def installed(self) -> tuple[str, ...]:
        """The native engine, and the ground truths whose packages are installed."""
        found = [NATIVE]
        for backend in self.ground_truths:
            try:
                self._entry_point(backend)
            except MissingDependencyError:
                continue
            found.append(backend)
        return tuple(found)

    def _entry_point(self, backend: str) -> Callable[..., Any]:
        """Class or function that makes a simulator of this backend."""
        if not isinstance(backend, (str, Path)):
            raise OptionError(f"backend is {shown(backend)}, allowed are {', '.join((NATIVE, *self.ground_truths))}")
        if backend == NATIVE:
            return load(self.engine)  # type: ignore[no-any-return]
        if backend in self.ground_truths:
            return load(self.ground_truths[backend])  # type: ignore[no-any-return]
        if str(backend).endswith(".toml"):
            return partial(load("softgym_envs.engines.mujoco.mjcf:MjcfGroundTruth"), system=self.name, path=Path(backend))
        if ":" in str(backend):
            return _called(str(backend))
        allowed = ", ".join((NATIVE, *self.ground_truths))
        raise OptionError(
            f"backend is {backend!r}, allowed are {allowed}, 'package.module:function' or a .toml file of your own"
        )

    def _ground_truth(self, backend: str, kind: Callable[..., Any], keywords: dict[str, Any]) -> Simulator:
        """A world of the user's: it must have our states first, and our controls."""
        theirs = getattr(kind, "system", self.name)
        if theirs != self.name:
            raise OptionError(f"backend {backend!r} is a simulator of system {theirs!r}, this is {self.name!r}")
        try:
            made = kind(**keywords)
        except (AttributeError, TypeError) as error:
            raise OptionError(f"backend {backend!r} cannot be called with {', '.join(keywords)}: {error}") from error
        if not isinstance(made, Simulator):
            absent = ", ".join(name for name in vars(Simulator) if not (name.startswith("_") or hasattr(made, name)))
            raise OptionError(
                f"backend {backend!r} made {type(made).__name__}, expected a Simulator (core/simulator.py); it lacks {absent}"
            )
        ours: Simulator = load(self.engine)(model=keywords["model"])
        for what, theirs, expected in (
            ("states", made.state_names[: ours.nx], ours.state_names),
            ("controls", made.control_names, ours.control_names),
        ):
            if tuple(theirs) != tuple(expected):
                wrong = next((a for a in expected if a not in theirs), None)
                said = f"lacks {wrong!r}" if wrong else f"has another order than {', '.join(expected[:4])}, ..."
                raise OptionError(f"backend {backend!r}: its {what} must begin as our engine's do; it {said}")
        return made


def identity_of(backend: str | Path) -> str:
    """Identity of a backend: its name (a function's code is not hashed); for a .toml file, a hash of it and its MJCF.

    Raises:
        FileFormatError: The file, or the MJCF that it names, cannot be read.
    """
    is_file = str(backend).endswith(".toml")
    return load("softgym_envs.engines.mujoco.mjcf:identity")(Path(backend)) if is_file else str(backend)


def _called(path: str) -> Callable[..., Any]:
    """The class or function that a user's path names."""
    found = load(path)
    try:
        inspect.signature(found)
    except (TypeError, ValueError) as error:
        raise OptionError(f"backend {path!r} names {shown(found)}, expected a class or function of your own") from error
    return found  # type: ignore[no-any-return]


def _name(kind: Any) -> str:
    return str(getattr(kind, "__name__", None) or getattr(kind, "func", kind).__name__)


def options_from_text(words: Sequence[str], what: str = "option", example: str = "contact=patch") -> dict[str, Any]:
    """Keywords from words "key=value"; values as in TOML, or text. `what` and `example` are for the message.

    >>> options_from_text(["contact=patch", "max_contacts=12"])
    {'contact': 'patch', 'max_contacts': 12}

    Raises:
        OptionError: A word has no "=", or a key is there twice.
    """
    options = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not (key and equals and value):
            raise OptionError(f"{what} is {word!r}, expected key=value, as {example}")
        if key in options:
            raise OptionError(f"{what} {key} is given twice: give one value")
        try:
            options[key] = parse_toml(f"value = {value}")["value"]
        except ValueError:
            options[key] = value
    return options


def task_keywords(words: Sequence[str], options: Collection[str]) -> dict[str, Any]:
    """Keywords of a task from words "key=value" of the command line, as level=3.

    Args:
        words: Given words; values as in TOML, or text.
        options: Names of the command's own options.

    Raises:
        OptionError: A word has no "=", names an option of the command, what it sets itself or a key that was there before, or a
            length is no whole number.
    """
    found = options_from_text(words, "keyword", "level=3")
    for name in found:
        if name in options or name in SET_BY_COMMANDS:
            raise OptionError(f"keyword {name} is the command's own, not the task's; see --help")
    if LENGTH in found:
        found[LENGTH] = int(check_number(LENGTH, found[LENGTH], low=1, whole=True))
    return found


SET_BY_COMMANDS = (
    "id", "num_envs", "vectorization_mode", "vector_kwargs", "wrappers", "autoreset_mode", "disable_env_checker", "output",
)  # fmt: skip
"""Arguments of `gymnasium.make` and `make_vec` that commands give themselves."""
LENGTH = "max_episode_steps"
"""The argument of theirs that users may give."""
