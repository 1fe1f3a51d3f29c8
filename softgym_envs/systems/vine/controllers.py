"""Controllers that the vine's tasks are judged by; see `core.system.System.controllers`.

A robot that keeps its bends while it grows stays on its way (see `free_paths`). So "planner" commands section k to bend along
the arc from its start to a target, and grows while the bends are as commanded. It knows the state and the poses of openings and
walls. "blind" is the same controller with the goal as its only target; in the open it has no target.

Legend: B batch, K sections.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.simulator import Array
from .bending import wrinkling_moment
from .model import VineModel
from .parameters import VineParameters
from .task_kernels import AHEAD, ASIDE, GOAL_X, GOAL_Y

Policy = Callable[[Any], Array]
Targets = Callable[[VineModel, Array, Array], Array]
"""Model, states (B, nx), goals (B, 2) -> targets of the sections (B, K, 2) [m]."""

BEND_GAIN = 0.15
"""[m] Action per error of a bend."""
SHARPEST = 3.8
"""[1/m] Largest commanded bend."""
BENT = 0.8
"""[1/m] Error of a bend at which growth stops."""


def follow(envs: Any, targets: Targets) -> Policy:
    """Steers along arcs to targets, section by section."""
    model: VineModel = envs.simulator.model

    def act(observation: Any) -> Array:
        state, goal = envs.state, envs.context[:, [GOAL_X, GOAL_Y]]
        start, bend, grown = sections(model, state)
        wanted = np.where(grown, np.clip(arcs(start, targets(model, state, goal)), -SHARPEST, SHARPEST), 0.0)
        error = np.where(grown, wanted - bend, 0.0)
        growth = np.clip(1.5 - np.abs(error).max(axis=1) / BENT, 0.0, 1.0)
        steer = np.clip(held(model, wanted) + BEND_GAIN * error, -1.0, 1.0)
        return np.concatenate([growth[:, None], steer], axis=1)

    return act


def held(model: VineModel, bend: Array) -> Array:
    """Action that holds a bend (B, K) [1/m] of a robot with the usual parameters: M(bend) = muscles' moment."""
    body, size = VineParameters(), np.abs(bend)
    moment = wrinkling_moment(bend, body.bending_stiffness, 0.5 * np.pi * body.pressure * model.radius**3)
    return np.asarray(moment / (body.steering_gain * model.max_steering * (1.0 - size / body.steering_curvature)))


def sections(model: VineModel, state: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Start poses of sections (B, K, 3) [m, m, rad], mean bends (B, K) [1/m], and whether they have begun to grow (B, K)."""
    theta, length = model.split(state).theta, model.split(state).length
    first = np.searchsorted(model.section_of_joint, np.arange(model.num_sections))
    joints, rows = model.points(state), len(state)
    heading = np.where(first > 0, theta[:, np.maximum(first - 1, 0)], model.base[2])
    last = np.minimum(np.append(first[1:], model.num_links)[None] - 1, model.num_active(length)[:, None] - 1)
    size = (last - np.maximum(first - 1, -0.5)) * model.link_length
    grown = last > first
    bend = (np.take_along_axis(theta, np.maximum(last, 0), axis=1) - heading) / np.where(grown, size, 1.0)
    return np.concatenate([joints[:, first], heading.reshape(rows, -1, 1)], axis=2), bend, grown


def arcs(start: Array, target: Array) -> Array:
    """Bends of the arcs that begin at poses (B, K, 3) and end at points (B, K, 2): 2 aside / distance^2, (B, K) [1/m]."""
    way = target - start[..., :2]
    c, s = np.cos(start[..., 2]), np.sin(start[..., 2])
    return np.asarray(2.0 * (c * way[..., 1] - s * way[..., 0]) / np.maximum((way**2).sum(axis=-1), 1e-3))


def to_goal(model: VineModel, state: Array, goal: Array) -> Array:
    """The goal, for all sections."""
    return np.repeat(goal[:, None], model.num_sections, axis=1)


def straight_ahead(model: VineModel, state: Array, goal: Array) -> Array:
    """A point far ahead of the base, for all sections."""
    far = np.array(model.base[:2]) + 2.0 * model.max_length * np.array([np.cos(model.base[2]), np.sin(model.base[2])])
    return np.tile(far, (len(state), model.num_sections, 1))


def through_openings(model: VineModel, state: Array, goal: Array) -> Array:
    """Section 0 goes to the first opening, half way between the first two obstacles; the others to the goal."""
    poses = model.split(state).obstacles
    targets = to_goal(model, state, goal)
    targets[:, 0] = poses[:, :2, :2].mean(axis=1)
    return targets


def straight_through(model: VineModel, state: Array, goal: Array) -> Array:
    """As `through_openings`, but no section turns to the goal before the tip is out: one that bends within a gap gets stuck."""
    targets = through_openings(model, state, goal)
    x, y, angle = np.moveaxis(model.split(state).obstacles[:, :2].mean(axis=1), -1, 0)
    gap, axis = np.stack([x, y], axis=1), np.stack([np.cos(angle), np.sin(angle)], axis=1)
    inside = ((model.tip(state)[:, :2] - gap) * axis).sum(axis=1) < OUT
    targets[:, 1:] = np.where(inside[:, None, None], (gap + ONWARD * axis)[:, None], targets[:, 1:])
    return targets


def round_the_end(envs: Any) -> Policy:
    """Steers to the free end of the wall; once past it, all sections bend towards the goal, and growth ends there."""
    model: VineModel = envs.simulator.model
    half = 0.5 * np.ptp(np.asarray(model.obstacles[0].shape.vertices), axis=0)  # type: ignore[union-attr]

    def end_of_wall(model: VineModel, state: Array, goal: Array) -> Array:
        x, y, angle = np.moveaxis(model.split(state).obstacles[:, 0], -1, 0)
        along = -np.sign(y)[:, None] * np.stack([-np.sin(angle), np.cos(angle)], axis=1)
        end = np.stack([x, y], axis=1) + (half[1] + WALL_MARGIN) * along
        return np.repeat(end[:, None], model.num_sections, axis=1)

    before = follow(envs, end_of_wall)

    def act(observation: Any) -> Array:
        action, context = before(observation), envs.context
        x, y, angle = np.moveaxis(model.split(envs.state).obstacles[:, 0], -1, 0)
        tip = model.tip(envs.state)
        past = np.cos(angle) * (tip[:, 0] - x) + np.sin(angle) * (tip[:, 1] - y) > half[0] + PAST
        bearing = np.arctan2(context[:, ASIDE], np.maximum(context[:, AHEAD], CLOSE))
        pressure = model.split(envs.state).pressure / model.max_steering
        now = (pressure[:, 0::2] - pressure[:, 1::2]).mean(axis=1)
        growth = np.clip(1.5 - np.abs(bearing) / ASKEW, 0.0, 1.0) * np.clip(context[:, AHEAD] / NEAR, 0.0, 1.0)
        back = np.stack([growth, *[np.clip(now + TURN * bearing, -1.0, 1.0)] * model.num_sections], axis=1)
        return np.where(past[:, None], back, action)

    return act


OUT, ONWARD = 0.05, 0.15
"""Distances behind the gap [m]: from which the tip is out, and to which sections steer until then."""
TURN = 0.3
"""[1/rad] Commanded change of the muscles' pressure, over their range, per bearing of the goal."""
ASKEW = 0.3
"""[rad] Bearing of the goal at which growth slows down."""
NEAR, CLOSE = 0.04, 0.12
"""Distances from the goal [m]: at which growth slows down; least one for its bearing, so that the tip comes to rest."""
WALL_MARGIN = 0.03
"""[m] Distance of the target beside the end of the wall."""
PAST = 0.02
"""[m] Distance behind the wall from which the tip is past it."""
BLIND = partial(follow, targets=to_goal)
CONTROLLERS = {
    "VineGrow-v0": {"blind": partial(follow, targets=straight_ahead), "planner": BLIND},
    "VineNavigate-v0": {"blind": BLIND, "planner": partial(follow, targets=through_openings)},
    "VineSqueeze-v0": {"blind": BLIND, "planner": partial(follow, targets=straight_through)},
    "VineWall-v0": {"blind": BLIND, "planner": round_the_end},
}
"""Id -> name -> controller."""
