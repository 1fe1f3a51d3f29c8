"""Bones, muscles and activations as a scene, and the body driven by keys. Pure functions of model and state."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from ...core.parameters import Parameters
from ...core.simulator import Array, check_array
from ...muscles.picture import THICK, muscle_color
from ...rendering.colors import CAP, GOAL, OBSTACLE, ROD, TRAIL
from ...rendering.picture import BasePicture
from ...rendering.scene import GroundGrid, Legend, Primitive, Scene, Segment, Sphere, Trail, extent_of, flat
from .model import BodyModel
from .muscle_kernels import lengths_and_arms

BODY_FLOOR = -0.9
"""[m]"""
AZIMUTH, ELEVATION = -0.2 * np.pi, 0.3
"""Angles of the camera [rad]."""
SKIN = (216, 178, 152)
"""Colour of neck and head."""
HAND = (232, 124, 40)
"""Colour of the hand that reaches."""


class BodyPicture(BasePicture):
    """Draws and drives the upper body; see `rendering.picture.Picture`."""

    keys: ClassVar[Mapping[str, str]] = {"arrows": "right shoulder and elbow", "1-9": "one joint alone"}

    def scene(self, simulator: Any, state: Array, hints: Mapping[str, Array], parameters: Parameters) -> Scene:
        """Bones and hands, with the hints "trail" and "goal"."""
        model: BodyModel = simulator.model
        q = check_array("state", state, (None,))[None, : model.n]
        parts: list[Primitive] = [GroundGrid(flat(BODY_FLOOR), (0.1, 0.0), 3.0, 0.25)]
        if any(body.name == "torso" for body in model.tree.bodies):
            hips, waist, chest, throat, head = (np.array([0.0, 0.0, z]) for z in (-0.5, -0.36, -0.08, 0.06, 0.18))
            parts += [Segment(np.array([0.0, 0.0, BODY_FLOOR]), hips, 0.06, OBSTACLE), Sphere(hips, 0.1, ROD)]
            parts += [Segment(hips, waist, 0.18, ROD), Segment(waist, chest, 0.22, ROD), Sphere(chest, 0.115, ROD)]
            parts += [Segment(chest, throat, 0.12, ROD), Segment(throat, head, 0.075, SKIN)]
            parts.append(Sphere(head, 0.085, SKIN))
        bones = _bones(model, q)
        parts += bones
        if model.muscles is not None:
            parts += _muscles(model, q, state[2 * model.n :])
        hand = model.hand(q)[0]
        parts.append(Sphere(hand, 0.035, HAND))
        if "goal" in hints:
            parts.append(Sphere(check_array("goal", hints["goal"], (3,)), 0.025, GOAL, front=0.1))
        if "trail" in hints:
            parts.append(Trail(check_array("trail", hints["trail"], (None, 3)), 0.01, TRAIL))
        look_at = np.array([0.1, 0.0, -0.28])
        joints = np.array([part.center for part in bones if isinstance(part, Sphere)])
        extent = extent_of(joints, look_at, 0.72, azimuth=AZIMUTH, elevation=ELEVATION)
        entries = [(HAND, "hand that reaches"), (GOAL, "goal")]
        if model.muscles is not None:
            entries += [(muscle_color(0.0), "muscle at rest"), (muscle_color(1.0), "muscle fully active")]
        legend = Legend(entries=tuple(entries))
        return Scene(tuple(parts), look_at, extent, legend, azimuth=AZIMUTH, elevation=ELEVATION)

    def followed(self, model: BodyModel, state: Array) -> Array:
        """The right hand, (3,) [m]."""
        return np.asarray(model.hand(state[None, : model.n])[0])

    def heading_action(self, model: BodyModel, state: Array, heading: Array) -> Array:
        """Flex the first joint, and the fourth if there is one."""
        action = self.rest_action(model)
        if model.muscles is None:
            action[0], action[min(3, model.n - 1)] = heading[0], heading[1]
            return np.clip(action, -1.0, 1.0)
        arms = lengths_and_arms(model.routes, state[None, : model.n])[1][0]  # pulls that raise the coordinates
        wish = heading[0] * arms[:, 0] + heading[1] * arms[:, min(3, model.n - 1)]
        action[: len(wish)] = np.clip(wish / np.abs(arms).max(), 0.0, 1.0) * 2.0 - 1.0
        return action

    def rest_action(self, model: BodyModel) -> Array:
        """No torques, muscles off."""
        return np.repeat([-1.0, 0.0], [len(model.muscle_names), len(model.motors)])


PICTURE = BodyPicture()


def _bones(model: BodyModel, q: Array) -> list[Primitive]:
    """Bones from every joint to the next ones, and on to the hands."""
    mechanism, tree = model.mechanism, model.tree
    places = dict(zip(tree.coordinates, mechanism.origins(q)[0], strict=True))
    carrier = {joint.child: joint for joint in tree.ordered}

    def begin(body: str) -> Array:
        """Position of the joint that moves a body; the origin, if none does."""
        while body in carrier:
            if carrier[body].name in places:
                return np.asarray(places[carrier[body].name])
            body = carrier[body].parent
        return np.zeros(3)

    ends = [(begin(joint.parent), places[joint.name]) for joint in tree.moving]
    ends += [(begin(frame.body), mechanism.pose(frame.name, q)[1][0]) for frame in tree.frames]
    parts: list[Primitive] = []
    for start, end in ends:
        if np.linalg.norm(end - start) > 1e-6:
            parts += [Segment(start, end, 0.05, ROD), Sphere(end, 0.032, CAP)]
    return parts


def _muscles(model: BodyModel, q: Array, activations: Array) -> list[Primitive]:
    """Muscles from point to point of their paths, through surfaces; thicker and redder where active."""
    parts: list[Primitive] = []
    for active, points in zip(np.clip(activations, 0.0, 1.0), model.muscle_points(q), strict=True):
        color = muscle_color(active)
        width = 0.5 * (THICK[0] + float(active) * (THICK[1] - THICK[0]))
        parts += [Segment(start, end, width, color) for start, end in pairwise(points)]
    return parts
