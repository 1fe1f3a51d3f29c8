"""Bones, muscle paths and activations as a scene, and the arm driven by keys. Pure functions of model and state."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from ..core.parameters import Parameters
from ..core.simulator import Array, check_array
from ..rendering.colors import CAP, GOAL, OBSTACLE, ROD, TRAIL, Color
from ..rendering.picture import BasePicture, shown
from ..rendering.scene import GroundGrid, Primitive, Scene, Segment, Sphere, Trail, extent_of
from .body_model import BodyModel
from .body_muscles import lengths_and_arms
from .elbow import Wrapped
from .model import MUSCLES, ElbowModel, muscle_path

OFF, ON = np.array([214.0, 178.0, 170.0]), np.array([176.0, 24.0, 32.0])
"""Colours of a muscle without and with full activation."""
FLOOR = -0.42
"""[m]"""
STAND = np.array([-0.15, 0.0, 0.0])
"""Length of the post that carries the shoulder [m]."""
THICK = (0.016, 0.036)
"""Drawn width of a muscle without and with full activation [m]."""


class ArmPicture(BasePicture):
    """Draws and drives the elbow; see `rendering.picture.Picture`."""

    keys: ClassVar[Mapping[str, str]] = {"arrows": "flex (right) or stretch (left)", "1-6": "one muscle alone"}

    def scene(self, simulator: Any, state: Array, hints: Mapping[str, Array], parameters: Parameters) -> Scene:
        """Bones, load and muscles, with the hints "trail" and "goal"."""
        constants = parameters.to_matrix(1)[0] if "biceps_radius" in parameters.names() else None
        return arm_scene(simulator.model, state, constants, **shown(hints, "trail", "goal"))

    def followed(self, model: ElbowModel, state: Array) -> Array:
        """The hand, (3,) [m]."""
        return model.places(float(state[0]))["hand"]

    def heading_action(self, model: ElbowModel, state: Array, heading: Array) -> Array:
        """Excite the biceps to flex, the triceps to stretch."""
        return np.clip(np.array([heading[0], -heading[0]]), -1.0, 1.0)

    def rest_action(self, model: ElbowModel) -> Array:
        """Muscles off."""
        return -np.ones(2)


PICTURE = ArmPicture()


def arm_scene(
    model: ElbowModel, state: Array, constants: Array | None, *, trail: Array | None = None, goal: Array | None = None
) -> Scene:
    """Scene of everything visible.

    Args:
        model: Structure.
        state: One state (nx,).
        constants: Constants in the order of the kernels (P,); None: the nominal radii.
        trail: Earlier places of the hand (k, 3) [m], oldest first.
        goal: Wanted place of the hand (3,) [m].

    Raises:
        ShapeError: An argument has the wrong shape, or is not finite.
    """
    state = check_array("state", state, (None,))
    places, structure = model.places(float(state[0])), model.structure(1.0)
    post = places["shoulder"] + STAND
    parts: list[Primitive] = [
        GroundGrid(lambda x, y: np.full_like(np.asarray(x, dtype=np.float64), FLOOR), (0.1, 0.0), 2.0, 0.25),
        Segment(np.array([*post[:2], FLOOR]), post, 0.03, OBSTACLE), Segment(post, places["shoulder"], 0.03, OBSTACLE),
        Segment(places["shoulder"], places["elbow"], 0.024, ROD),
        Segment(places["elbow"], places["hand"], 0.022, ROD),
        Sphere(places["shoulder"], 0.03, CAP), Sphere(places["elbow"], 0.014, CAP), Sphere(places["hand"], 0.035, CAP),
    ]  # fmt: skip
    for i, wrapped in enumerate((structure.biceps, structure.triceps)):
        muscle = model.muscle(MUSCLES[i])
        radius = model.muscles.surface(muscle.surfaces[0]).size[0] if constants is None else float(constants[4 * i + 3])
        ends = places[f"{muscle.name}_origin"], places[f"{muscle.name}_insertion"]
        parts += _muscle(wrapped, ends, radius, float(state[0]), float(np.clip(state[2 + i], 0.0, 1.0)))
    if goal is not None:
        parts.append(Sphere(check_array("goal", goal, (3,)), 0.02, GOAL, front=0.1))
    if trail is not None:
        parts.append(Trail(check_array("trail", trail, (None, 3)), 0.01, TRAIL))
    return Scene(tuple(parts), np.array([0.06, 0.0, -0.06]), 0.46, None, azimuth=-0.42 * np.pi, elevation=0.4)


def _muscle(wrapped: Wrapped, ends: tuple[Array, Array], radius: float, angle: float, activation: float) -> list[Primitive]:
    """The path as a band, whose belly is thicker and redder where the muscle is active."""
    path = muscle_path(wrapped, ends, radius, angle)
    color: Color = tuple(int(value) for value in OFF + activation * (ON - OFF))  # type: ignore[assignment]
    low, high = 0.25 * path[1] + 0.75 * path[0], 0.75 * path[1] + 0.25 * path[0]
    belly = Segment(low, high, THICK[0] + activation * (THICK[1] - THICK[0]), color)
    return [*(Segment(start, end, 0.009, color) for start, end in pairwise(path)), belly]


# --- upper body ---------------------------------------------------------------------------------------------------------

BODY_FLOOR = -0.9
"""[m]"""


class BodyPicture(BasePicture):
    """Draws and drives the upper body; see `rendering.picture.Picture`."""

    keys: ClassVar[Mapping[str, str]] = {"arrows": "right shoulder and elbow", "1-9": "one joint alone"}

    def scene(self, simulator: Any, state: Array, hints: Mapping[str, Array], parameters: Parameters) -> Scene:
        """Bones and hands, with the hints "trail" and "goal"."""
        return body_scene(simulator.model, state, **shown(hints, "trail", "goal"))

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


BODY = BodyPicture()


def body_scene(model: BodyModel, state: Array, *, trail: Array | None = None, goal: Array | None = None) -> Scene:
    """Scene of everything visible.

    Args:
        model: Structure.
        state: One state (nx,).
        trail: Earlier places of the right hand (k, 3) [m], oldest first.
        goal: Wanted place of the right hand (3,) [m].

    Raises:
        ShapeError: An argument has the wrong shape, or is not finite.
    """
    q = check_array("state", state, (None,))[None, : model.n]
    parts: list[Primitive] = [
        GroundGrid(lambda x, y: np.full_like(np.asarray(x, dtype=np.float64), BODY_FLOOR), (0.1, 0.0), 3.0, 0.25)
    ]
    if any(body.name == "torso" for body in model.tree.bodies):
        neck, hips = np.array([0.0, 0.0, 0.02]), np.array([0.0, 0.0, -0.5])
        parts.append(Segment(np.array([0.0, 0.0, BODY_FLOOR]), hips, 0.06, OBSTACLE))
        parts += [Segment(hips, neck, 0.14, ROD), Sphere(np.array([0.0, 0.0, 0.2]), 0.1, CAP)]
    bones = _bones(model, q)
    parts += bones
    if model.muscles is not None:
        parts += _muscles(model, q, state[2 * model.n :])
    hand = model.hand(q)[0]
    parts.append(Sphere(hand, 0.035, tuple(int(value) for value in ON)))  # type: ignore[arg-type]
    if goal is not None:
        parts.append(Sphere(check_array("goal", goal, (3,)), 0.025, GOAL, front=0.1))
    if trail is not None:
        parts.append(Trail(check_array("trail", trail, (None, 3)), 0.01, TRAIL))
    look_at = np.array([0.1, 0.0, -0.28])
    extent = extent_of(np.array([part.center for part in bones if isinstance(part, Sphere)]), look_at, 0.78)
    return Scene(tuple(parts), look_at, extent, None, azimuth=-0.2 * np.pi, elevation=0.4)


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
        color: Color = tuple(int(value) for value in OFF + active * (ON - OFF))  # type: ignore[assignment]
        width = 0.5 * (THICK[0] + float(active) * (THICK[1] - THICK[0]))
        parts += [Segment(start, end, width, color) for start, end in pairwise(points)]
    return parts


__all__ = ["BODY", "PICTURE", "ArmPicture", "BodyPicture", "arm_scene", "body_scene"]
