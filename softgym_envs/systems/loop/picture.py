"""Arm, loop and clamp as a scene, and the arm driven by keys. Pure functions of model and state. Legend: k trail points."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from ...core.parameters import Parameters
from ...core.simulator import Array, Status, check_array
from ...mechanics.structure import rotation
from ...rendering.colors import CAP, FORCE, GOAL, OBSTACLE, RING, ROD, TRAIL, TUBE
from ...rendering.picture import BasePicture, shown
from ...rendering.scene import GroundGrid, Legend, Marker, Primitive, Scene, Segment, Sphere, Trail, extent_of, flat
from .dynamics import LoopSimulator
from .model import ARM, CLAMP, PARAMETERS, PEG_LENGTH, PEG_RADIUS, LoopModel
from .parameters import LoopParameters

BELOW = 0.03
"""Height of the clamped link's axis over the table [m]."""
FORCE_SCALE, LEAST_FORCE = 0.02, 0.5
"""Length of the line of the clamp's force [m/N], and least force that is drawn [N]."""
CLOSED = 5e-3
"""[m, -] Gap up to which a loop counts as closed. Welds of the MuJoCo model yield by 1e-3; the polygon of an elastic rod, which
twists, by 0.3; closing that would take ten times the actual force."""
ELEVATION = 0.35
"""Elevation of the camera [rad]."""
LEGEND = Legend(entries=((FORCE, f"force on the clamp, {100 * FORCE_SCALE:.0f} cm/N"), (GOAL, "goal")))
FRONT = 0.1
"""A way of the hand is seen through nearer objects by up to this [m]: the hand would hide it."""
THICKNESS = (0.11, 0.11, 0.09, 0.09, 0.07, 0.07, 0.05)
"""Thickness of the arm's drawn parts, from each joint to the next [m]."""


class LoopPicture(BasePicture):
    """Draws and drives arm, loop and the force on the clamp, or a peg; see `rendering.picture.Picture`."""

    keys: ClassVar[Mapping[str, str]] = {"arrows": "move the hand that way", "1-6": "turn joints back", "space": "let go"}

    def scene(self, simulator: Any, state: Array, hints: Mapping[str, Array], parameters: Parameters) -> Scene:
        """Arm, loop, clamp and table, with the hints "trail", "goal" and "way"."""
        told, there = simulator.model.parameters_class, parameters.names()
        known = told(**{name: getattr(parameters, name) for name in told.names() if name in there})
        return loop_scene(simulator.model, state, known, **shown(hints, "trail", "goal", "way"))

    def followed(self, model: LoopModel, state: Array) -> Array:
        """The hand, (3,) [m]."""
        return hand(model, state)

    def heading_action(self, model: LoopModel, state: Array, heading: Array) -> Array:
        """Torques J' (heading, 0) that push the hand that way, scaled to a largest entry of 1."""
        slopes = model.mechanism.point_slopes("H", _angles(model, state))[0, :, : len(ARM)]
        torques = np.array([*heading, 0.0]) @ slopes
        return np.asarray(torques / np.abs(torques).max())


PICTURE = LoopPicture()


def hand(model: LoopModel, state: Array) -> Array:
    """Position of H (3,) [m]."""
    return np.asarray(model.mechanism.pose("H", _angles(model, state))[1][0])


@lru_cache(maxsize=8)
def _engine(model: LoopModel) -> LoopSimulator:
    return LoopSimulator(model)


def clamp_force(model: LoopModel, state: Array, parameters: LoopParameters) -> Array:
    """Force of the loop on its clamp (3,) [N]: multipliers of a step of our engine under the torques that hold the start.

    Zero if there is no such step, or if the angles leave a gap, as those of another world may.
    """
    engine, hold = _engine(model), model.hold[None]
    columns, q = engine.tree_constants(parameters), _angles(model, state)
    gap, _ = engine.mechanism.gaps(q, columns)
    if np.abs(gap).max() > CLOSED:
        return np.zeros(3)
    states, status = engine.engine.rollout(state[None], hold[:, None], columns, 1)
    if status[0] != Status.OK:
        return np.zeros(3)
    before, after = q - engine.dt * state[None, model.n :], states[:, 1, : model.n]
    impulse = engine.mechanism.impulses(before, q, after, hold, columns)[0]
    return np.asarray((impulse[:3] + impulse[6:9]) / engine.dt)


def loop_scene(
    model: LoopModel,
    state: Array,
    parameters: LoopParameters,
    *,
    trail: Array | None = None,
    goal: Array | None = None,
    way: Array | None = None,
) -> Scene:
    """Scene of everything visible.

    Args:
        model: Structure.
        state: One state (nx,).
        parameters: Parameters of this row.
        trail: Earlier places of the hand (k, 3) [m], oldest first.
        goal: A point (3,) [m].
        way: The hand's way from its start to its turning point (k, 3) [m].

    Raises:
        ShapeError: An argument has the wrong shape, or is not finite.
    """
    state = check_array("state", state, (None,))[: model.layout.nx]
    origins, grip = model.mechanism.origins(_angles(model, state))[0], hand(model, state)
    pose = model.tree_constants(parameters.to_matrix(1))[0, [PARAMETERS.index(name) for name in CLAMP]]
    clamp = pose[:3] if not model.hanging else grip - np.array([0.0, 0.0, model.height + 0.15])
    table = clamp[2] - BELOW
    middle = np.array([0.6 * clamp[0], 0.55 * clamp[1], clamp[2] + 0.8 * model.height])
    ground = (float(middle[0]), float(middle[1]))
    parts: list[Primitive] = [GroundGrid(flat(table), ground, 3.0, 0.25 if model.hanging else 0.5)]
    over: list[Primitive] = []
    foot = np.array([origins[0, 0], origins[0, 1], table])
    joints = [foot, *origins[: len(ARM)], grip]
    for start, end, width in zip(joints[:-1], joints[1:], (0.16, *THICKNESS), strict=True):
        if np.linalg.norm(end - start) > 1e-6:
            parts.append(Segment(start, end, width, ROD))
    parts += [Sphere(place, 0.55 * width, CAP) for place, width in zip(joints[1:-1], THICKNESS, strict=True)]
    if model.hanging:
        peg = PEG_LENGTH * rotation(pose[3:].tolist())[:, 2]
        parts += [*_ring(model, state), Segment(pose[:3], pose[:3] + peg, 2 * PEG_RADIUS, OBSTACLE)]
        parts.append(Sphere(pose[:3], PEG_RADIUS, CAP))
    else:
        block = np.array([0.0, 0.0, BELOW])
        parts += [*_loop(model, state, grip, clamp), Segment(clamp - block, clamp + block, 0.12, OBSTACLE)]
        force = clamp_force(model, state, parameters)
        if np.linalg.norm(force) > LEAST_FORCE:
            end = clamp + FORCE_SCALE * force
            over += [Segment(clamp, end, 0.025, FORCE), Sphere(end, 0.025, FORCE)]
    parts.append(Sphere(grip, 0.03, RING))
    if way is not None:
        points = check_array("way", way, (None, 3))
        parts += [Sphere(place, 0.012, GOAL, front=FRONT) for place in points]
    if goal is not None:
        place = check_array("goal", goal, (3,))
        ball = Sphere(place, 0.04, GOAL) if way is None and not model.hanging else Sphere(place, 0.022, GOAL, front=FRONT)
        parts += [ball] if model.hanging else [Marker(place, 0.035, GOAL), ball]
    if trail is not None:
        parts.append(Trail(check_array("trail", trail, (None, 3)), 0.01, TRAIL))
    if model.hanging:  # from near: the loop is small beside its arm
        ring, azimuth = model.nodes(state[None])[0], -0.5 * np.pi
        points = np.concatenate([ring, [grip, pose[:3], pose[:3] + 0.4 * peg], *([] if goal is None else [[goal]])])
        middle = 0.5 * (points.min(axis=0) + points.max(axis=0))
        extent = extent_of(points, middle, 0.36, azimuth=azimuth, elevation=ELEVATION)
        legend = Legend(entries=((GOAL, "goal of the loop's middle"),))
        return Scene(tuple(parts), middle, extent, legend, azimuth=azimuth, elevation=ELEVATION)
    azimuth = -0.47 * np.pi
    extent = extent_of(np.array([*joints, *model.nodes(state[None])[0]]), middle, 0.74, azimuth=azimuth, elevation=ELEVATION)
    return Scene(tuple(parts), middle, extent, LEGEND, azimuth=azimuth, elevation=ELEVATION, overlay=tuple(over))


def _ring(model: LoopModel, state: Array) -> list[Primitive]:
    """Links of a loop that hangs."""
    nodes, half, width = model.nodes(state[None])[0], model.links // 2, 2 * model.tube_radius
    ring = np.concatenate([nodes[:half], nodes[half:][::-1], nodes[:1]])
    return [*(Segment(a, b, width, TUBE) for a, b in pairwise(ring)), *(Sphere(place, 0.5 * width, TUBE) for place in nodes)]


def _loop(model: LoopModel, state: Array, grip: Array, clamp: Array) -> list[Primitive]:
    """Links of both sides, from the gripper to the clamp."""
    nodes, half, width = model.nodes(state[None])[0], model.links // 2, 2 * model.tube_radius
    parts: list[Primitive] = []
    for side in (nodes[:half], nodes[half:]):
        line = [grip, *side, clamp]
        parts += [Segment(a, b, width, TUBE) for a, b in pairwise(line)]
        parts += [Sphere(place, 0.5 * width, TUBE) for place in side]
    return parts


def _angles(model: LoopModel, state: Array) -> Array:
    """q, (1, n)."""
    return np.ascontiguousarray(state[None, : model.n])
