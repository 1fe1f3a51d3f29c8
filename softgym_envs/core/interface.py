"""Interface between robot and controller: delays of actions and observations, and bias, gain, noise and rate of the sensors.

It is the table [interface] of a fit.toml, and keywords of every environment::

    [interface]
    action_latency = 0.03
    observation_rate = 50.0

    [interface.sensor_bias]
    elbow = 0.03

A mapping names sensors: an entry, a pattern of names ("node*.x") or a unit ("rad"). Entries of the robot's state come first:
they are measured so, and whatever a task computes from them follows. Other names are entries of the observation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .errors import FileFormatError, OptionError, shown
from .files import check_entries, read_toml
from .simulator import check_number

Span = float | tuple[float, float]
"""A number, or (low, high): drawn uniformly for every episode."""
Sensors = Span | Mapping[str, Span]
"""A value of all observed entries, or sensor -> its value."""

LATENCIES, CALIBRATION = ("action_latency", "observation_latency"), ("sensor_bias", "sensor_gain")


NOT_PLAYED = "not_in_interface"
"""Entry of a file's table [provenance]: parameters of the recordings that are no part of [interface], as a camera's pose."""


@dataclass(frozen=True)
class Interface:
    """See the module docstring.

    Raises:
        OptionError: A value is not allowed.
    """

    action_latency: Span = 0.0
    """Delay of actions [s], or (low, high): drawn for every episode. It may end within a control step; it is rounded to physics
    steps. Zero actions come first."""
    observation_latency: Span = 0.0
    """Delay of observations [s], or (low, high): drawn for every episode; rounded to physics steps. An episode's first
    observation is repeated until the delay is over."""
    observation_rate: float = 0.0
    """Observations per second, counted from the episode's start; the newest one is repeated with its noise. 0: one per control
    step."""
    sensor_bias: Sensors = 0.0
    """Measured less true value: {sensor: value in its unit}, or a number for every observed entry, over its `scale`. A sensor
    is an entry's name, a pattern of names or a unit. A value may be (low, high): drawn for every episode."""
    sensor_gain: Sensors = 1.0
    """Measured over true value, given like `sensor_bias`; it acts before the bias."""
    sensor_noise: float | Mapping[str, float] = 0.0
    """Standard deviation of Gaussian noise, given like `sensor_bias`: a number is over `scale` (1 m, 1 m/s, the motor's
    range)."""

    def __post_init__(self) -> None:
        for name in LATENCIES:
            _check_span(name, getattr(self, name), low=0.0, unit="s")
        check_number("observation_rate", self.observation_rate, low=0.0, unit="1/s")
        for name in CALIBRATION:
            for what, value in _named(name, getattr(self, name)):
                _check_span(what, value)
        for what, value in _named("sensor_noise", self.sensor_noise):
            check_number(what, value, low=0.0)
        for f in fields(Interface):
            object.__setattr__(self, f.name, _plain(getattr(self, f.name)))

    def table(self) -> dict[str, Any]:
        """The table [interface] of a TOML file: what differs from a perfect interface."""
        found = {f.name: (getattr(self, f.name), f.default) for f in fields(Interface)}
        return {name: value for name, (value, perfect) in found.items() if value not in (perfect, {})}

    @classmethod
    def read(cls, path: str | Path) -> Interface:
        """The interface in a file of parameters; a perfect one if the file has none.

        Raises:
            FileFormatError: The file cannot be read, or its table [interface] is not in this form.
        """
        table = read_toml(path).get("interface", {})
        try:
            return cls(**check_entries(f"{path}: [interface]", table, [f.name for f in fields(cls)]))
        except OptionError as error:
            raise FileFormatError(f"{path}: [interface] {error}") from error


def ends_of(span: Span) -> tuple[float, float]:
    """Lowest and highest value of a span.

    >>> ends_of(0.5), ends_of((0, 1))
    ((0.5, 0.5), (0.0, 1.0))
    """
    low, high = span if isinstance(span, (tuple, list)) else (span, span)
    return float(low), float(high)


def _named(name: str, value: Any) -> list[tuple[str, Any]]:
    """Values of a setting, each with its name for a message."""
    return [(f"{name}[{key!r}]", each) for key, each in value.items()] if isinstance(value, Mapping) else [(name, value)]


def _check_span(name: str, value: Any, *, low: float = float("-inf"), unit: str = "") -> None:
    if not isinstance(value, (tuple, list)):
        check_number(name, value, low=low, unit=unit)
        return
    if len(value) != 2:
        raise OptionError(f"{name} is {shown(value)}, expected a number, or (low, high)")
    first, last = (check_number(name, end, low=low, unit=unit) for end in value)
    if first > last:
        raise OptionError(f"{name} is {shown(value)}, expected low <= high")


def _plain(value: Any) -> Any:
    """Checked values as floats, pairs and dictionaries of them."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    return ends_of((value[0], value[1])) if isinstance(value, (tuple, list)) else float(value)
