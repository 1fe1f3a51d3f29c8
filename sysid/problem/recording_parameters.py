"""Parameters of a recording, not of the robot: pose of the camera, errors of angle sensors, latency and gain of commands.

`FitProblem` fits them beside the robot's parameters: their names may stand in `free`. Legend: T rows, nu controls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.parameters import Parameters, param
from softgym_envs.core.simulator import Array


@dataclass(frozen=True)
class RecordingParameters(Parameters):
    """Parameters of a recording; `softgym_envs.data.sensors.Sensor` makes recordings with such parameters."""

    latency: float = param(0.0, unit="s", bounds=(-0.05, 0.2), source="commands act so much later than the rows show")
    turn: float = param(0.0, unit="rad", bounds=(-0.5, 0.5), source="the camera's frame about the vertical")
    tilt: float = param(0.0, unit="rad", bounds=(-0.5, 0.5), source="and, in space, about its x axis")
    scale: float = param(1.0, unit="-", bounds=(0.5, 2.0), scale="log", source="measured lengths over true ones")
    angle_offset: float = param(0.0, unit="rad", bounds=(-0.5, 0.5), source="measured angles less true ones: a sensor's zero")
    angle_gain: float = param(1.0, unit="-", bounds=(0.8, 1.25), scale="log", source="measured angles and rates over true ones")
    command_gain: float = param(1.0, unit="-", bounds=(0.5, 2.0), scale="log", source="recorded commands over those that act")


POSE = ("turn", "tilt", "scale", "angle_offset", "angle_gain")  # Parameters of `RecordingParameters` that change what is seen.
ACTING = ("latency", "command_gain")  # Parameters of `RecordingParameters` that change what acts.
SENSED = ("angle_offset", "angle_gain")  # Parameters of `RecordingParameters` that matter where full states are measured.


class Commands(NamedTuple):
    """Commands of a recording."""

    own: Array  # (T, nu), each held for its row, or part of a row (`FitProblem.parts`).
    before: Array  # (E, nu) those of the rows before the first one; (0, nu) where these are unknown.


def delayed(commands: Commands, rows: NDArray[np.intp], rates: Array) -> Array:
    """Mean commands that act in rows if commands act late: (R, L, nu).

    A command that acts d rows late, d = m + f with 0 <= f < 1, gives row k the mean f u[k - m - 1] + (1 - f) u[k - m]: nearly
    exact for rows that are short beside what commands move. Before the first command and after the last one these two go on.

    Args:
        commands: Commands of a recording.
        rows: (R, L) row numbers.
        rates: (R,) latency d [rows].

    >>> given = Commands(np.array([[0.0], [1.0], [1.0]]), before=np.array([[4.0]]))
    >>> delayed(given, np.array([[0, 1, 2]]), np.array([0.25]))[0, :, 0].tolist()
    [1.0, 0.75, 1.0]
    """
    whole = np.floor(rates).astype(np.intp)
    share = (rates - whole)[:, None, None]
    all_of_them = np.concatenate([commands.before, commands.own])
    first, last = rows - whole[:, None] + len(commands.before), len(all_of_them) - 1
    now, before = (all_of_them[np.clip(first - back, 0, last)] for back in (0, 1))
    return np.asarray(share * before + (1.0 - share) * now)
