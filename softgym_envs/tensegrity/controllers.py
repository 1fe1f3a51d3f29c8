"""Controllers that the tensegrity's tasks are judged by; see `core.room.Room.controllers`.

Legend: B batch, m motors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .model import TensegrityModel

Array = NDArray[np.float64]
Policy = Callable[[Any], Array]


def rolling(model: TensegrityModel, state: Array, heading: Array) -> Array:
    """u = clip(d_z^2 - d_h^2 - 2.6 p_h - 1.7 p_h p_z + 0.4 p_z): pull cables ahead and along, release upright ones behind.

    p is a cable's middle from the centre of mass in half rod lengths, d its direction; _h is the part along the heading,
    _z the height. Negative actions pull. The five factors were found by a random search on the SUPERball on flat ground,
    which rolls about 1 m/s with them from any pose; a structure with few motors may not move at all.

    Args:
        model: The robot.
        state: (..., nx)
        heading: Horizontal unit vectors (..., 2).

    Returns:
        Actions (..., m).
    """
    ends = model.node_positions(state)[..., np.array(model.cables)[list(model.actuated)], :]  # (..., m, 2, 3)
    half = 0.5 * float(model.rod_lengths.max())
    middle = (ends.mean(axis=-2) - model.center_of_mass(state)[..., None, :]) / half
    along = ends[..., 1, :] - ends[..., 0, :]
    along /= np.maximum(np.linalg.norm(along, axis=-1, keepdims=True), 1e-9)
    p_h, d_h = ((part[..., :2] * heading[..., None, :]).sum(axis=-1) for part in (middle, along))
    p_z, d_z = middle[..., 2], along[..., 2]
    return np.asarray(np.clip(d_z**2 - d_h**2 - 2.6 * p_h - 1.7 * p_h * p_z + 0.4 * p_z, -1.0, 1.0))


def roll(envs: Any) -> Policy:
    """Rolls where the task wants it."""
    heading = [envs.task.context_names.index(name) for name in ("heading_x", "heading_y")]
    return lambda observation: rolling(envs.simulator.model, envs.state, envs.context[:, heading])


def roll_along_x(envs: Any) -> Policy:
    """Rolls along the world's x axis, whatever is wanted."""
    east = np.array([1.0, 0.0])
    return lambda observation: rolling(envs.simulator.model, envs.state, east)


def hold_first(envs: Any) -> Policy:
    """Goes on with the first action of `roll`: does not feel how the robot lies."""
    first = roll(envs)(None)
    return lambda observation: first


def wave(envs: Any) -> Policy:
    """Pulls one motor after the other, twice a second, whatever it feels."""
    phase = 2 * np.pi * np.arange(envs.simulator.nu) / envs.simulator.nu
    second = envs.task.control_period

    def act(observation: Any) -> Array:
        return np.asarray(np.sin(4 * np.pi * second * envs.episodes.steps[:, None] + phase))

    return act


CONTROLLERS: dict[str, dict[str, Callable[[Any], Policy]]] = {
    "TensegrityRoll-v0": {"heuristic": roll, "blind": hold_first},
    "TensegrityCrawl-v0": {"blind": wave},
    "TensegrityWaypoint-v0": {"heuristic": roll, "blind": roll_along_x},
    "TensegrityTerrain-v0": {"heuristic": roll, "blind": roll_along_x},
}
"""Id -> name -> controller."""
