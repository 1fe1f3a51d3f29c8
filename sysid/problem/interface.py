"""The interface that recordings show: from parameters of recordings and the noise of their columns to an `Interface`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from softgym_envs.core.interface import Interface

from .noise import roughness
from .problem import FitProblem
from .recording_parameters import RecordingParameters

LEFT_OUT = ("turn", "tilt", "scale", "command_gain")
"""Parameters of recordings that an environment has no place for: the camera's pose, and the scale of the commands."""
SILENT = 1e-5
"""Share of a column's range below which noise is rounding."""


class Sensors(NamedTuple):
    """What recordings show of the sensors."""

    noise: dict[str, float]
    """Column -> standard deviation of its noise [SI]; empty for states without noise."""
    rate: float
    """Rows per second; 0 where there is no noise, as rows of a simulation are no samples of a sensor."""


def sensors_of(problem: FitProblem, residual: Mapping[str, float]) -> Sensors:
    """Noise of the fitted columns: as known, else the smaller of third differences and residuals, and the rows' rate.

    Args:
        problem: What was fitted.
        residual: Channel -> standard deviation of the residuals.
    """
    if problem.full_state and problem.noise is None and not problem.estimates_initial:
        return Sensors({}, 0.0)
    train, names = problem.split.train, problem.column_names
    if problem.noise is not None:
        noise = np.array([float(problem.noise[name]) for name in names])
    else:
        rough, left = roughness(train, names), np.array([residual.get(name, np.inf) for name in names])
        noise = np.where(rough > 0, np.minimum(rough, left), left)
    seen = np.concatenate([problem.values(recording) for recording in train])
    moved = np.nanmax(seen, axis=0) - np.nanmin(seen, axis=0)
    found = {name: float(s) for name, s, m in zip(names, noise, moved, strict=True) if np.isfinite(s) and s > SILENT * m}
    return Sensors(found, float(f"{1.0 / train[0].period:.9g}") if found else 0.0)


def interface_of(view: RecordingParameters, sensors: Sensors) -> Interface:
    """The interface; a recording shows the sum of all delays only, which is that of the commands here.

    >>> interface_of(RecordingParameters(latency=0.03, angle_offset=0.02), Sensors({}, 0.0)).table()
    {'action_latency': 0.03, 'sensor_bias': {'rad': 0.02}}
    """
    offset, gain = float(view.angle_offset), float(view.angle_gain)
    return Interface(
        action_latency=max(float(view.latency), 0.0),
        observation_rate=sensors.rate,
        sensor_bias={"rad": offset} if offset else 0.0,
        sensor_gain={"rad": gain, "rad/s": gain} if gain != 1.0 else 1.0,
        sensor_noise=sensors.noise or 0.0,
    )


def left_out(view: RecordingParameters) -> tuple[str, ...]:
    """Parameters of recordings that differ from none and are no part of the interface."""
    none = RecordingParameters()
    negative = ("latency",) if view.latency < 0 else ()
    return negative + tuple(name for name in LEFT_OUT if getattr(view, name) != getattr(none, name))
