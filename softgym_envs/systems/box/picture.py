"""The box over its table as a scene, and pushed by keys.

Pure functions of model and state: one state always gives one picture. Legend: k trail points.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product
from typing import Any, ClassVar

import numpy as np

from ...core.parameters import Parameters
from ...core.simulator import Array, check_array
from ...rendering.colors import FORCE, RING, TRAIL, TUBE
from ...rendering.picture import BasePicture
from ...rendering.scene import Face, GroundGrid, Primitive, Scene, Segment, Trail, flat
from .model import BoxModel


class BoxPicture(BasePicture):
    """Draws and drives the box; see `rendering.picture.Picture`."""

    keys: ClassVar[Mapping[str, str]] = {"arrows": "push that way", "1-3": "push back along an axis", "space": "let go"}

    def scene(self, simulator: Any, state: Array, hints: Mapping[str, Array], parameters: Parameters) -> Scene:
        """Box and table, with the hint "trail"."""
        table = float(parameters.to_vector()[parameters.names().index("table")])
        model: BoxModel = simulator.model
        state = check_array("state", state, (None,))[: model.layout.nx]
        corners, signs = model.corners(state), model.signs
        if model.planar:  # drawn as deep as it is high
            depth = np.array([0.0, model.half_size[-1], 0.0])
            corners = np.vstack([corners - depth, corners + depth])
            signs = np.vstack([np.subtract(signs, (0, 1, 0)), np.add(signs, (0, 1, 0))])
        size = float(np.max(model.half_size))
        middle = corners.mean(axis=0)
        ground = (float(middle[0]), float(middle[1]))
        parts: list[Primitive] = [GroundGrid(flat(table), ground, 12.0 * size, spacing=2.0 * size)]
        for a, b in combinations(range(len(corners)), 2):
            if np.count_nonzero(signs[a] != signs[b]) == 1:
                parts.append(Segment(corners[a], corners[b], 0.06 * size, RING))
        for axis, sign in product(range(3), (-1, 1)):
            face = np.flatnonzero(signs[:, axis] == sign)
            others = [i for i in range(3) if i != axis]
            turn = np.argsort(np.arctan2(signs[face][:, others[1]], signs[face][:, others[0]]))
            marked = axis == 0 and sign > 0  # the face towards the body's x, so that turns are seen
            parts.append(Face(corners[face[turn]], FORCE if marked else TUBE))
        if "trail" in hints:
            parts.append(Trail(check_array("trail", hints["trail"], (None, 3)), 0.1 * size, TRAIL))
        aim = np.array([middle[0], middle[1], 0.5 * (middle[2] + table)])
        extent = max(4.0 * size, 0.8 * float(middle[2] - table) + 2.0 * size)
        return Scene(tuple(parts), aim, extent, None, azimuth=-0.5 * np.pi)

    def followed(self, model: BoxModel, state: Array) -> Array:
        """The centre, (3,) [m]."""
        return np.array([state[0], 0.0, state[1]]) if model.planar else np.array(state[:3])

    def heading_action(self, model: BoxModel, state: Array, heading: Array) -> Array:
        """The largest force along the heading."""
        return np.array([heading[0], 0.0]) if model.planar else np.array([heading[0], heading[1], 0.0])


PICTURE = BoxPicture()
