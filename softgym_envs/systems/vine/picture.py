"""A vine robot as a scene (tube at its true diameter, muscles coloured by pressure, obstacles, forces, goal), driven by keys.

Pure functions of model and state: one state always gives one picture. The plane of the robot is a table, seen from above.
Legend: M obstacles, K sections, C contacts, k trail points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from ...core.parameters import Parameters
from ...core.simulator import Array, check_array
from ...rendering.colors import FORCE, GOAL, OBSTACLE, RING, ROD, TRAIL, TUBE, tension_colors, to_ints
from ...rendering.picture import shown
from ...rendering.scene import Arrow, GroundGrid, Legend, Marker, Primitive, Prism, Scene, Segment, Sphere, Trail, extent_of
from .model import ContactForces, VineModel, contact_table
from .obstacles import outline

RING_SPACING = 0.1
"""[m] of everted length between two rings on the tube."""
ARROW_SCALE = 0.08
"""[m/N]"""
SHORTEST_ARROW, LONGEST_ARROW = 0.05, 0.25
"""[m]"""
NO_FORCES: ContactForces = contact_table(np.zeros((1, 0, 9)))
"""Forces on a robot that touches nothing."""
RAY = (205, 110, 60)
"""Colour of range readings."""
GOAL_RADIUS = 0.025
"""Radius of the ring around a goal [m]."""
AZIMUTH, ELEVATION = -0.5 * np.pi, float(np.deg2rad(68.0))
"""Angles of the camera [rad]."""
REEL = 0.035
"""Half width of the drawn box that holds the tube before it everts [m]."""
CORNERS = np.array([(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)])


class VinePicture:
    """Draws and drives vine robots, and tracked points over them; see `rendering.picture`."""

    keys: ClassVar[Mapping[str, str]] = {"arrows": "grow that way", "1-6": "grow slower, bend right", "space": "stop"}

    def scene(self, simulator: Any, state: Array, hints: Mapping[str, Array], parameters: Parameters) -> Scene:
        """The robot with the forces on it if it were to grow, and with the hints "trail", "goal" and "rays"."""
        model: VineModel = simulator.model
        asked = np.array([0.5 * model.max_growth])  # forces if the robot were to grow
        forces = simulator.contact_forces(np.asarray(state, dtype=np.float64)[None], asked, parameters)
        return vine_scene(model, state[: model.layout.nx], forces, **shown(hints, "trail", "goal", "rays"))

    def followed(self, model: VineModel, state: Array) -> Array:
        """The tip, on top of the tube, (3,) [m]."""
        return np.array([*model.tip(state)[:2], model.radius])

    def heading_action(self, model: VineModel, state: Array, heading: Array) -> Array:
        """Grow at full speed, and bend every section towards the heading: a = 2 x its angle from that of the tip, clipped."""
        angle = math.atan2(heading[1], heading[0]) - float(model.tip(state)[2])
        angle = math.atan2(math.sin(angle), math.cos(angle))
        return np.array([1.0, *[min(max(2.0 * angle, -1.0), 1.0)] * model.num_sections])

    def rest_action(self, model: VineModel) -> Array:
        """No growth (-1), muscles empty."""
        return np.array([-1.0, *[0.0] * model.num_sections])

    def overlay(self, model: VineModel, fitted: Array, measured: Array) -> Scene:
        """Points that a camera saw over the tube of a fitted robot.

        Args:
            model: The robot; its obstacles stand where they do at first.
            fitted: Points along the fitted robot's axis, (P, 2) [m].
            measured: The same points as they were measured, (P, 2) [m]; NaN where they were lost.
        """
        scene = vine_scene(model, model.straight_state(), NO_FORCES)
        kept = [part for part in scene.primitives if isinstance(part, (GroundGrid, Prism))]
        axis = np.column_stack([fitted, np.full(len(fitted), model.radius)])
        tube: list[Primitive] = [Segment(a, b, 2 * model.radius, TUBE) for a, b in pairwise(axis)]
        seen = measured[np.isfinite(measured).all(axis=1)]
        dots: list[Primitive] = [Sphere(np.array([x, y, 2.2 * model.radius]), 0.35 * model.radius, FORCE) for x, y in seen]
        return replace(scene, primitives=(*kept, *tube, *dots), legend=None)


PICTURE = VinePicture()


def vine_scene(
    model: VineModel,
    state: Array,
    forces: ContactForces,
    *,
    trail: Array | None = None,
    goal: Array | None = None,
    rays: Array | None = None,
) -> Scene:
    """Everything visible of one robot.

    Args:
        model: The robot and its obstacles.
        state: One state (nx,).
        forces: Forces of the obstacles, in row 0.
        trail: Earlier places of the tip (k, 3) [m], oldest first.
        goal: A point to reach (3,) [m].
        rays: Range readings, from the tip to where they end (k, 2, 3) [m].

    Raises:
        ShapeError: An argument has the wrong shape, or is not finite.
    """
    state = check_array("state", state, (model.layout.nx,))
    look_at, extent = _view(model, state, goal)
    ground = GroundGrid(_flat, (float(look_at[0]), float(look_at[1])), 2.4 * extent, spacing=0.1)
    parts: list[Primitive] = [ground, *_obstacles(model, state), _reel(model), *_tube(model, state)]
    over: list[Primitive] = _arrows(model, forces)
    if trail is not None:
        parts.append(Trail(check_array("trail", trail, (None, 3)), 0.3 * model.radius, TRAIL))
    if goal is not None:
        parts.append(Marker(check_array("goal", goal, (3,)), GOAL_RADIUS, GOAL))
    if rays is not None:
        ends = check_array("rays", rays, (None, 2, 3))
        over += [Segment(a, b, 0.15 * model.radius, RAY, dashed=True) for a, b in ends]
        over += [Sphere(b, 0.3 * model.radius, RAY) for _, b in ends]
    entries = [(FORCE, "force of an obstacle")] if model.obstacles else []
    entries += [] if rays is None else [(RAY, "range reading")]
    note = f"a ring every {100 * RING_SPACING:.0f} cm"
    legend = Legend("muscle pressure [kPa]", 0.0, 1e-3 * model.max_steering, note, tuple(entries))
    return Scene(tuple(parts), look_at, extent, legend, azimuth=AZIMUTH, elevation=ELEVATION, overlay=tuple(over))


def _view(model: VineModel, state: Array, goal: Array | None) -> tuple[Array, float]:
    """Middle (3,) and extent [m] of a picture that holds the robot and the goal, or without a goal the way ahead."""
    base, ahead = np.array(model.base[:2]), np.array([np.cos(model.base[2]), np.sin(model.base[2])])
    tube = model.points(state)[: int(model.num_active(model.split(state).length)) + 1, :2]
    reel = [base - 2.0 * REEL * ahead, base - REEL * ahead[::-1] * (-1.0, 1.0), base + REEL * ahead[::-1] * (-1.0, 1.0)]
    far = base + 0.7 * model.max_length * ahead if goal is None else goal[:2]
    points = np.array([*reel, *(far + step for step in GOAL_RADIUS * CORNERS), *tube])
    points = np.column_stack([points, np.full(len(points), model.radius)])
    middle = 0.5 * (points.min(axis=0) + points.max(axis=0))
    return middle, extent_of(points, middle, 0.25 * model.max_length, azimuth=AZIMUTH, elevation=ELEVATION)


def _reel(model: VineModel) -> Primitive:
    """The box at the base that the tube grows out of."""
    ahead = np.array([math.cos(model.base[2]), math.sin(model.base[2])])
    left = REEL * np.array([-ahead[1], ahead[0]])
    front = np.array(model.base[:2])
    back = front - 2.0 * REEL * ahead
    return Prism(np.array([front + left, back + left, back - left, front - left]), 3.0 * model.radius, ROD)


def _flat(x: Array, y: Array) -> Array:
    return np.zeros_like(np.asarray(x, dtype=np.float64))


def _obstacles(model: VineModel, state: Array) -> list[Primitive]:
    poses = model.split(state).obstacles
    height = 2.2 * model.radius
    pairs = zip(model.obstacles, poses, strict=True)
    return [Prism(outline(o.shape, pose, reach=model.max_length), height, OBSTACLE) for o, pose in pairs]


def _tube(model: VineModel, state: Array) -> list[Primitive]:
    """The tube, its rings, the muscles on both sides, and the tip."""
    joints, parts = model.points(state), model.split(state)
    count, radius = int(model.num_active(parts.length)), model.radius
    points = np.column_stack([joints[: count + 1], np.full(count + 1, radius)])
    out: list[Primitive] = [Sphere(points[i], radius, TUBE) for i in range(count + 1)]
    out += [Segment(a, b, 2 * radius, TUBE) for a, b in pairwise(points)]
    colors = to_ints(tension_colors(parts.pressure / model.max_steering)) if model.num_sections else []
    for i in range(count if model.num_sections else 0):
        pair = 2 * model.section_of_joint[i]
        lift = 0.8 * radius * np.array([-math.sin(parts.theta[i]), math.cos(parts.theta[i]), 0.0])
        for muscle, side in ((pair, lift), (pair + 1, -lift)):
            above = side + np.array([0.0, 0.0, radius])
            out.append(Segment(points[i] + above, points[i + 1] + above, 0.55 * radius, tuple(colors[muscle])))
    return out + _rings(model, state)


def _rings(model: VineModel, state: Array) -> list[Primitive]:
    """Thin bands across the tube every RING_SPACING of everted length."""
    stations = np.arange(RING_SPACING, float(model.split(state).length), RING_SPACING)
    place, ahead = (model.points_along(state, stations + step) for step in (0.0, 1e-4))
    out: list[Primitive] = []
    for p, q in zip(place, ahead, strict=True):
        along = (q - p) / max(float(np.linalg.norm(q - p)), 1e-9)
        across = 0.7 * model.radius * np.array([-along[1], along[0], 0.0])
        top = np.array([*p, 2.2 * model.radius])
        out.append(Segment(top - across, top + across, 0.25 * model.radius, RING))
    return out


def _arrows(model: VineModel, forces: ContactForces) -> list[Primitive]:
    """Forces on the robot, ending where they act."""
    out: list[Primitive] = []
    for c in np.flatnonzero(forces.active[0]):
        force = forces.force[0, c]
        size = float(np.linalg.norm(force))
        length = min(max(ARROW_SCALE * size, SHORTEST_ARROW), LONGEST_ARROW)
        end = np.array([*forces.position[0, c], 2.3 * model.radius])
        start = end - np.array([*(length * force / size), 0.0])
        out.append(Arrow(start, end, 0.6 * model.radius, FORCE))
    return out
