"""The tensegrity system's environments: each function builds a task. See `envs.registry`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...core.errors import OptionError, ShapeError, shown
from ...core.simulator import as_numbers, check_choice, check_number
from ...core.task import Task
from .model import TensegrityModel, with_terrain
from .poses import StartSpread
from .tasks import CRAWL, ROLL, FollowVelocity, terrain_level
from .terrain import Terrain
from .waypoints import VisitWaypoints

Range = float | Sequence[float]
KEPT = 256
"""Settled starts that episodes on level ground begin from: settling takes a tenth of an episode."""
EVEN = (1.2, 2.5)
"""Distances from the origin [m] at which rubble begins, and reaches its full height."""


def roll(
    model: TensegrityModel,
    *,
    control_period: float = 0.1,
    obs_mode: str = "sensors",
    target_speed: Range = ROLL.aim[0],
    heading: float | None = 0.0,
    control_weight: float = 0.01,
    averaging_time: float = 0.0,
) -> Task:
    """The 6-bar SUPERball rolls over flat ground at a commanded velocity ([Wang2020] V-C).

    Episodes with nominal parameters begin from one of 256 settled starts, turned and pushed at random.

    Args:
        obs_mode: "sensors" or "state".
        target_speed: Commanded speed [m/s], or an interval to draw it from.
        heading: Commanded direction, angle from the x axis [rad]; None draws a new one for every episode.
        control_weight: Weight of the mean squared action.
        averaging_time: Time over which the velocity of the reward is averaged [s], which is then observed, too; 0: not at all,
            as in the paper. Far below 1 m/s a robot rolls in jerks, and standing still would be rewarded more.
    """
    return FollowVelocity(
        model,
        control_period,
        obs_mode,
        control_weight,
        num_kept=KEPT,
        target_speed=_interval("target_speed", target_speed),
        heading=heading,
        averaging_time=averaging_time,
    )


def crawl(
    model: TensegrityModel,
    *,
    control_period: float = 0.1,
    obs_mode: str = "sensors",
    target_speed: Range = CRAWL.aim[0],
    heading: float | None = 0.0,
    control_weight: float = 0.01,
    gravity: float = 0.981,
    actuated: Sequence[int] | None = None,
    averaging_time: float = 1.0,
) -> Task:
    """The 3-bar prism crawls at a tenth of Earth's gravity ([Wang2020] V-D). Three of its nine cables have a motor.

    Episodes with nominal parameters begin from one of 256 settled starts, turned and pushed at random.

    The paper gives no target; the velocity error is weighted (1, 0.5, 0.1) over 0.2 m/s squared. The paper's velocity is that
    at the end of a step (`averaging_time` 0), which pays a gait in jerks less than standing still.

    Args:
        obs_mode: "sensors" or "state".
        target_speed: Commanded speed [m/s], or an interval to draw it from.
        heading: Commanded direction, angle from the x axis [rad]; None draws a new one for every episode.
        control_weight: Weight of the mean squared action.
        gravity: [m/s^2]; wins over a file given as params, not over a mapping that names it.
        actuated: Cables that have a motor, of the prism 0-2 bottom, 3-5 top, 6-8 saddles; None: as the model says (6-8).
        averaging_time: Time over which the velocity of the reward is averaged [s]; 0: not at all.
    """
    if actuated is not None:
        if not isinstance(actuated, (Sequence, np.ndarray)):
            raise OptionError(f"actuated is {shown(actuated)}, expected numbers of cables")
        model = replace(model, actuated=tuple(actuated))
    return FollowVelocity(
        model,
        control_period,
        obs_mode,
        control_weight,
        settle_time=1.0,
        num_kept=KEPT,
        parameter_values={"gravity": check_number("gravity", gravity, unit="m/s^2")},
        target_speed=_interval("target_speed", target_speed),
        heading=heading,
        objective=CRAWL,
        averaging_time=averaging_time,
    )


def waypoint(
    model: TensegrityModel,
    *,
    control_period: float = 0.1,
    obs_mode: str = "sensors",
    num_waypoints: int = 3,
    radius: float = 0.5,
    leg: Range = (1.5, 3.0),
    control_weight: float = 0.01,
) -> Task:
    """The 6-bar SUPERball rolls over flat ground to waypoints in any direction.

    Args:
        obs_mode: "sensors" or "state".
        num_waypoints: How many.
        radius: A waypoint is reached within this distance of the centre of mass [m].
        leg: Distance from one waypoint to the next [m], or an interval to draw it from.
        control_weight: Weight of the mean squared action.
    """
    return VisitWaypoints(
        model, control_period, obs_mode, control_weight, num_waypoints=num_waypoints, radius=radius, leg=_interval("leg", leg)
    )


def terrain(
    model: TensegrityModel,
    *,
    control_period: float = 0.1,
    obs_mode: str = "sensors",
    target_speed: Range = 0.5,
    heading: float | None = None,
    control_weight: float = 0.01,
    ground: str = "rubble",
    level: float = 1.0,
    ground_seed: int = 0,
    averaging_time: float = 1.0,
) -> Task:
    """The 6-bar SUPERball rolls over uneven ground at a commanded velocity. It observes the ground around it.

    Args:
        obs_mode: "sensors" or "state".
        target_speed: Commanded speed [m/s], or an interval to draw it from.
        heading: Commanded direction, angle from the x axis [rad]; None draws a new one for every episode.
        control_weight: Weight of the mean squared action.
        ground: "rubble", "steps", "slope", or "ridge": a V-shaped ridge across the x axis at 2.6 m, open towards the robot.
            At level 3, with heading 0, it is too high to climb: the robot has to leave its way and pass an end.
        level: 0 is flat, 1 is rubble of 0.3 m, steps of 0.2 m, a slope of 8 degrees or a ridge of 1 m; up to 3 times that. An
            option of `reset` as well; it is the parameter terrain_scale, which `randomize` can draw, and `params` can name
            instead.
        ground_seed: Which rubble.
        averaging_time: Time over which the velocity of the reward is averaged [s], longer than the robot takes from one face
            to the next; 0: not at all.
    """
    model = with_terrain(model, uneven_ground(ground, ground_seed))
    return FollowVelocity(
        model,
        control_period,
        obs_mode,
        control_weight,
        spread=StartSpread(place=0.3),
        parameter_values={"terrain_scale": terrain_level(level)},
        target_speed=_interval("target_speed", target_speed),
        heading=heading,
        uneven=True,
        averaging_time=averaging_time,
    )


RIDGE, RIDGE_WIDTH = ((1.8, 1.2), (2.6, 0.0)), 0.7
"""Crest of one half of the ridge, end and middle, and distance from it at which the ground is flat [m]."""


def uneven_ground(kind: str, seed: int = 0) -> Terrain:
    """Ground of level 1, 20 m x 20 m, as a height field, so that the parameter terrain_scale sets its level.

    Rubble is even around the origin, where the robot begins. A ridge is flat beyond `RIDGE_WIDTH` from its crest.

    Raises:
        OptionError: Unknown kind, or no seed.
    """
    check_choice("ground", kind, ("rubble", "steps", "slope", "ridge"))
    check_number("ground_seed", seed, low=0, whole=True)
    if kind == "rubble":
        rubble = Terrain.rubble(height=0.3, seed=seed)
        x, y = (start + rubble.cell * np.arange(n) for start, n in zip(rubble.origin, rubble.heights.shape, strict=True))
        share = np.clip((np.hypot(x[:, None], y) - EVEN[0]) / (EVEN[1] - EVEN[0]), 0.0, 1.0)
        return Terrain(heights=share * rubble.heights, cell=rubble.cell)
    if kind == "steps":
        return Terrain.steps(height=0.2)
    if kind == "ridge":
        x, y = np.meshgrid(np.arange(-10.0, 10.05, 0.1), np.arange(-10.0, 10.05, 0.1), indexing="ij")
        end, along = np.array(RIDGE[0]), np.subtract(RIDGE[1], RIDGE[0])
        share = np.clip(((x - end[0]) * along[0] + (np.abs(y) - end[1]) * along[1]) / (along @ along), 0.0, 1.0)
        away = np.hypot(x - end[0] - share * along[0], np.abs(y) - end[1] - share * along[1])
        return Terrain(heights=0.5 * (1.0 + np.cos(np.pi * np.minimum(away / RIDGE_WIDTH, 1.0))), cell=0.1)
    x = np.arange(-10.0, 11.0)
    return Terrain(heights=np.repeat(np.tan(np.deg2rad(8.0)) * x[:, None], len(x), axis=1), cell=1.0)


def _interval(name: str, value: Range) -> tuple[float, float]:
    """A number as (number, number), an interval as it is."""
    try:
        ends = np.atleast_1d(as_numbers(name, value))
    except ShapeError:
        ends = np.full(1, np.nan)
    if ends.shape not in ((1,), (2,)) or not np.isfinite(ends).all() or ends[0] > ends[-1]:
        raise OptionError(f"{name} is {value!r}, expected a number or (low, high)")
    return float(ends[0]), float(ends[-1])
