"""From what a person asks for (a heading, groups of cables to pull) to an action: one function per kind of model.

Actions are in -1 ... 1, one per control. Legend: nu controls, m actuated cables.
"""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import OptionError
from ..rigid.model import BlockModel
from ..tensegrity.model import TensegrityModel
from ..vine.model import VineModel

Array = NDArray[np.float64]


@singledispatch
def heading_action(model: Any, state: Array, heading: Array) -> Array:
    """The action (nu,) that moves the robot towards `heading` (2,), a horizontal unit vector; state (nx,).

    Raises:
        OptionError: Nothing is known of this kind of model; a room registers its function here.
    """
    raise OptionError(
        f"no keys are known for a model of type {type(model).__name__}; a room registers them in rendering/teleop.py"
    )


@heading_action.register
def _roll(model: TensegrityModel, state: Array, heading: Array) -> Array:
    """u = clip(d_z^2 - d_h^2 - 2.6 p_h - 1.7 p_h p_z + 0.4 p_z): pull cables ahead and along, release upright ones behind.

    p is a cable's middle from the centre of mass in half rod lengths, d its direction; _h is the part along the heading, _z
    the height. Negative actions pull. The five factors were found by a random search on the SUPERball on flat ground, which
    rolls about 1 m/s with them from any pose; a structure with few motors may not move at all.
    """
    ends = model.node_positions(state)[np.array(model.cables)[list(model.actuated)]]  # (m, 2, 3)
    half = 0.5 * float(model.rod_lengths.max())
    middle = (ends.mean(axis=1) - model.center_of_mass(state)) / half
    along = ends[:, 1] - ends[:, 0]
    along /= np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1e-9)
    p_h, p_z, d_h, d_z = middle[:, :2] @ heading, middle[:, 2], along[:, :2] @ heading, along[:, 2]
    return np.asarray(np.clip(d_z**2 - d_h**2 - 2.6 * p_h - 1.7 * p_h * p_z + 0.4 * p_z, -1.0, 1.0))


@heading_action.register
def _grow(model: VineModel, state: Array, heading: Array) -> Array:
    """Grow at full speed, and bend every section towards the heading: a = 2 x its angle from that of the tip, clipped."""
    angle = math.atan2(heading[1], heading[0]) - float(model.tip(state)[2])
    angle = math.atan2(math.sin(angle), math.cos(angle))
    return np.array([1.0, *[min(max(2.0 * angle, -1.0), 1.0)] * model.num_sections])


@heading_action.register
def _push(model: BlockModel, state: Array, heading: Array) -> Array:
    """The largest force at the handle towards the heading: R(theta)^T heading."""
    c, s = math.cos(state[2]), math.sin(state[2])
    return np.array([c * heading[0] + s * heading[1], c * heading[1] - s * heading[0]])


@singledispatch
def rest_action(model: Any) -> Array:
    """The action of a robot that nobody drives, (na,): motors off."""
    return np.zeros(model.nu)


@rest_action.register
def _no_growth(model: VineModel) -> Array:
    """No growth (-1), muscles empty."""
    return np.array([-1.0, *[0.0] * model.num_sections])


@singledispatch
def followed_point(model: Any, state: Array) -> Array:
    """What stands for the robot's place in a picture, and leaves the trail, (3,) [m].

    Raises:
        OptionError: Nothing is known of this kind of model; a room registers its function here.
    """
    raise OptionError(
        f"no point to follow is known for a model of type {type(model).__name__}; a room registers it in rendering/teleop.py"
    )


@followed_point.register
def _center_of_mass(model: TensegrityModel, state: Array) -> Array:
    """The centre of mass."""
    return np.asarray(model.center_of_mass(state))


@followed_point.register
def _center_of_block(model: BlockModel, state: Array) -> Array:
    """The centre of mass, on the table."""
    return np.array([state[0], state[1], 0.0])


@followed_point.register
def _tip(model: VineModel, state: Array) -> Array:
    """The tip, on top of the tube."""
    return np.array([*model.tip(state)[:2], model.radius])


def pull_groups(count: int, pulled: tuple[int, ...], groups: int = 6) -> Array:
    """-1 (pull) for the controls of the groups named in `pulled`, 0 for the others, (count,).

    Controls are dealt out to groups in their order; with fewer controls than groups some groups are empty.

    >>> pull_groups(8, (0, 2), groups=4).tolist()
    [-1.0, -1.0, 0.0, 0.0, -1.0, -1.0, 0.0, 0.0]
    """
    action = np.zeros(count)
    for group, members in enumerate(np.array_split(np.arange(count), groups)):
        if group in pulled:
            action[members] = -1.0
    return action


def ramp(action: Array, target: Array, period: float, time_constant: float = 0.2) -> Array:
    """First-order approach, a + (1 - exp(-period / time_constant)) (target - a); times in s.

    >>> round(float(ramp(np.zeros(1), np.ones(1), 0.2)[0]), 3)
    0.632
    """
    return action + (1.0 - math.exp(-period / time_constant)) * (target - action)
