"""Bones, muscle paths and activations as a scene, and the arm driven by keys. Pure functions of model and state."""

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
from ...rendering.scene import GroundGrid, Legend, Primitive, Scene, Segment, Sphere, Trail, flat
from .elbow import Wrapped
from .model import MUSCLES, ElbowModel, muscle_path

ARM_FLOOR = -0.42
"""[m]"""
LEGEND = Legend(entries=((muscle_color(0.0), "muscle at rest"), (muscle_color(1.0), "muscle fully active"), (GOAL, "goal")))
STAND = np.array([-0.15, 0.0, 0.0])
"""Length of the post that carries the shoulder [m]."""


class ArmPicture(BasePicture):
    """Draws and drives the elbow; see `rendering.picture.Picture`."""

    keys: ClassVar[Mapping[str, str]] = {"arrows": "flex (right) or stretch (left)", "1-6": "one muscle alone"}

    def scene(self, simulator: Any, state: Array, hints: Mapping[str, Array], parameters: Parameters) -> Scene:
        """Bones, load and muscles, with the hints "trail" and "goal"."""
        parameter_values = parameters.to_matrix(1)[0] if "biceps_radius" in parameters.names() else None
        model: ElbowModel = simulator.model
        state = check_array("state", state, (None,))
        places, structure = model.places(float(state[0])), model.structure(1.0)
        post = places["shoulder"] + STAND
        parts: list[Primitive] = [
            GroundGrid(flat(ARM_FLOOR), (0.1, 0.0), 2.0, 0.25),
            Segment(np.array([*post[:2], ARM_FLOOR]), post, 0.03, OBSTACLE), Segment(post, places["shoulder"], 0.03, OBSTACLE),
            Segment(places["shoulder"], places["elbow"], 0.024, ROD),
            Segment(places["elbow"], places["hand"], 0.022, ROD),
            Sphere(places["shoulder"], 0.03, CAP), Sphere(places["elbow"], 0.014, CAP), Sphere(places["hand"], 0.035, CAP),
        ]  # fmt: skip
        for i, wrapped in enumerate((structure.biceps, structure.triceps)):
            muscle = model.muscle(MUSCLES[i])
            radius = (
                model.muscles.surface(muscle.surfaces[0]).size[0]
                if parameter_values is None
                else float(parameter_values[4 * i + 3])
            )
            ends = places[f"{muscle.name}_origin"], places[f"{muscle.name}_insertion"]
            parts += _muscle(wrapped, ends, radius, float(state[0]), float(np.clip(state[2 + i], 0.0, 1.0)))
        if "goal" in hints:
            parts.append(Sphere(check_array("goal", hints["goal"], (3,)), 0.02, GOAL, front=0.1))
        if "trail" in hints:
            parts.append(Trail(check_array("trail", hints["trail"], (None, 3)), 0.01, TRAIL))
        return Scene(tuple(parts), np.array([0.06, 0.0, -0.05]), 0.45, LEGEND, azimuth=-0.42 * np.pi, elevation=0.3)

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


def _muscle(wrapped: Wrapped, ends: tuple[Array, Array], radius: float, angle: float, activation: float) -> list[Primitive]:
    """The path as a band, whose belly is thicker and redder where the muscle is active."""
    path = muscle_path(wrapped, ends, radius, angle)
    color = muscle_color(activation)
    low, high = 0.25 * path[1] + 0.75 * path[0], 0.75 * path[1] + 0.25 * path[0]
    belly = Segment(low, high, THICK[0] + activation * (THICK[1] - THICK[0]), color)
    return [*(Segment(start, end, 0.009, color) for start, end in pairwise(path)), belly]
