"""Settings of every environment, whatever the robot and the task, and the parameters that they give."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..core.errors import OptionError, ParameterError, ShapeError, SimulationWarning, shown
from ..core.interface import Interface
from ..core.parameters import (
    FACTOR,
    GivenParameters,
    Interval,
    ParameterDistribution,
    Parameters,
    UniformParameters,
    warn_of_file,
)
from ..core.posterior import POSTERIOR, PosteriorParameters
from ..core.simulator import HasStabilityLimit, HasWarnings, Simulator, as_numbers, check_number
from ..core.system import NATIVE
from ..rendering.camera import VIEWS

LONGEST = 1e9
"""Longest control period [s]."""
MARGIN = 1.01
"""Factor on the largest stable value up to which there is no warning: fits may end at that value."""


@dataclass(frozen=True)
class Settings(Interface):
    """Settings of every environment, whatever the robot and the task.

    Raises:
        OptionError: A value is not allowed.
    """

    backend: str = NATIVE
    """Simulator that runs the task: "native", "mujoco", another backend of the system, or a "package.module:function", which
    makes a simulator from `model`."""
    model: Any = None
    """Robot: a name of the system's, a TOML file of your own, or a model object; None takes the id's."""
    dt: float | None = None
    """Physics step [s]; None takes that of the file given as `params`, else the backend's own."""
    device: str = "cpu"
    """"cpu", or a CUDA device for the native engine of tensegrity robots and vines."""
    options: Mapping[str, Any] | None = None
    """Further keywords of the simulator, such as its mode of contact; see the system."""
    control_period: float = 0.1
    """Time between actions [s], a multiple of the simulator's dt; some ids have another default."""
    params: GivenParameters | None = None
    """Parameters, {name: value} of those that differ from the simulator's defaults, or the TOML file of a fit; None takes the
    defaults. What a task fixes (gravity, the level of the ground) wins over a file or an object, not over a name in a mapping.
    A file says which system, structure, options and dt it belongs to, and is refused with others. On a backend other than
    "native" a fit or an object replaces the ground truth's parameters, with a warning, or is refused if that has others. A
    file's [interface] holds the defaults of the keywords below from `action_latency` to `sensor_noise`."""
    randomize: Mapping[str, Interval] | Literal["posterior"] | ParameterDistribution | None = None
    """Parameters drawn for every episode: name -> (low, high), or ("x", low, high) for factors of the nominal value, within the
    bounds. "posterior" draws from the uncertainty of the fit in `params`. A distribution is allowed, too."""
    action_memory: int = 0
    """Number of last actions that are observed after the task's entries, oldest first, without noise: needed to act well in
    spite of a delay."""
    disturbance: float = 0.0
    """Standard deviation [m/s] of random velocity disturbances of every body before every control step."""
    width: int = 640
    """Width of pictures [pixels], 16 ... 4096."""
    height: int = 480
    """Height of pictures [pixels], 16 ... 4096."""
    camera: str = "default"
    """View of pictures: "default" shows robot and goal, "side" and "front" from just over the ground, "top" from above;
    "follow" is near to the tip, hand or centre of the robot."""
    overlay: bool = True
    """Whether pictures show the legend, forces, range readings and actual velocities. Without it: robot, surroundings, goal."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", str(self.device))  # torch.device, too
        check_number("control_period", self.control_period, positive=True, unit="s")
        if not (self.options is None or isinstance(self.options, Mapping)):
            raise OptionError(f"options is {shown(self.options)}, expected a mapping of keywords to values")
        super().__post_init__()
        check_number("disturbance", self.disturbance, low=0.0)
        for name in ("width", "height"):
            check_number(name, getattr(self, name), low=16, high=4096, whole=True, unit="pixels")
        if not isinstance(self.camera, str) or self.camera not in VIEWS:
            raise OptionError(f"camera is {shown(self.camera)}, allowed are {', '.join(VIEWS)}")
        if not isinstance(self.overlay, bool):
            raise OptionError(f"overlay is {shown(self.overlay)}, allowed are True and False")
        check_number("action_memory", self.action_memory, low=0, high=1000, whole=True, unit="control steps")


def whole_steps(name: str, seconds: float, dt: float) -> int:
    """Number of steps, seconds / dt.

    Raises:
        OptionError: Not a whole number >= 1.
    """
    if not isinstance(dt, (int, float, np.number)) or isinstance(dt, bool) or not 0 < dt < np.inf:
        raise OptionError(f"dt is {shown(dt)}, expected a number of seconds > 0")
    number = isinstance(seconds, (int, float, np.number)) and not isinstance(seconds, bool)
    steps = round(seconds / dt) if number and 0 < seconds < LONGEST else 0
    if steps < 1 or abs(steps * dt - seconds) > 1e-6 * seconds:
        raise OptionError(f"{name} is {shown(seconds)} s, expected a positive multiple of the simulator's dt {dt} s")
    return steps


def nominal_constants(simulator: Simulator, given: GivenParameters | None, rows: int) -> Parameters:
    """Parameters of the simulator's own class.

    Raises:
        ParameterError: They are of another class, or for another number of rows; or a name or value is not allowed.
        FileFormatError: The file cannot be read.
    """
    kind = type(simulator.default_parameters)
    if given is None:
        return simulator.default_parameters
    if isinstance(given, (str, Path)):
        warn_of_file(given)
    parameters = kind.load(given, simulator.default_parameters) if isinstance(given, (str, Path)) else given
    if isinstance(parameters, Mapping):
        parameters = simulator.default_parameters.replace(**parameters)
    if type(parameters) is not kind:
        taken = f"{type(simulator).__name__} takes {kind.__name__}, a mapping of its names to numbers, or a file of it"
        raise ParameterError(f"params is {type(parameters).__name__}, {taken}")
    if parameters.batch not in (None, rows):
        raise ParameterError(f"params holds {parameters.batch} rows, the environment has {rows}")
    return parameters


def distribution(nominal: Parameters, settings: Settings) -> ParameterDistribution | None:
    """The distribution given by `randomize`.

    Raises:
        OptionError: Neither a mapping nor a distribution, or "posterior" without a file of a fit.
        FileFormatError: That file has no posterior.
        ParameterError: Unknown parameter, or an interval that is not inside its bounds.
    """
    randomize = settings.randomize
    if isinstance(randomize, str) and randomize == POSTERIOR:
        if not isinstance(settings.params, (str, Path)):
            raise OptionError(f"randomize is {POSTERIOR!r}, but params is no file: give the fit.toml of an identification")
        drawn = PosteriorParameters.read(settings.params)
        nominal.check_names(drawn.names)
        return drawn
    if randomize is None or not isinstance(randomize, Mapping):
        if not isinstance(randomize, (ParameterDistribution, type(None))):
            raise OptionError(
                f"randomize is {randomize!r}, expected {{parameter: (low, high)}}, {POSTERIOR!r}, or a distribution with a "
                "method `sample`"
            )
        return randomize
    randomize = nominal.entries_of(randomize, ndim=1)
    return UniformParameters({name: _interval(nominal, name, given) for name, given in randomize.items()})


def _interval(nominal: Parameters, name: str, given: Any) -> Interval:
    """An interval within a parameter's bounds, or of factors >= 0."""
    (lower, upper), times = nominal.specs()[name].bounds, isinstance(given, (tuple, list)) and given[:1] in (("x",), ["x"])
    try:
        ends = as_numbers(name, given[1:] if times else given)
    except ShapeError:
        ends = np.zeros(0)
    least, most = (0.0, np.inf) if times else (lower, upper)
    if ends.shape != (2,) or not least <= ends[0] <= ends[1] <= most or not np.isfinite(ends[1]):
        allowed = f"expected (low, high) inside [{lower:g}, {upper:g}], or ('x', low, high) with factors >= 0"
        raise ParameterError(f"randomize[{name!r}] is {given!r}, {allowed}")
    low, high = ends.tolist()
    return (FACTOR, low, high) if times else (low, high)


def warn_of_step(simulator: Simulator, nominal: Parameters, drawn: ParameterDistribution | None) -> None:
    """Issue a `SimulationWarning` if a parameter, or its interval, makes steps unstable or feeds energy."""
    if nominal.batch is None and isinstance(simulator, HasWarnings) and (told := simulator.warning(nominal)):
        warnings.warn(told, SimulationWarning, stacklevel=5)
    if nominal.batch is not None or not isinstance(simulator, HasStabilityLimit):
        return
    intervals = drawn.ends(nominal) if isinstance(drawn, UniformParameters) else {}
    for name, most in simulator.stability_limits(nominal).items():
        highest = float(intervals[name][1] if name in intervals else getattr(nominal, name))
        if highest > MARGIN * most:
            unit = nominal.specs()[name].suffix
            warnings.warn(
                f"{name} {'up to' if name in intervals else 'is'} {highest:.4g}{unit}: steps of {simulator.dt:g} s bear "
                f"{most:.4g}{unit}, beyond which motion grows that nothing causes; use a smaller dt",
                SimulationWarning,
                stacklevel=5,
            )
