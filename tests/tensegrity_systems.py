"""Robots of loose rods, for tests of the tensegrity engine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from softgym_envs.systems.tensegrity.model import TensegrityModel

Array = NDArray[np.float64]


def rods(*ends: tuple[list[float], list[float]], cables: tuple[tuple[int, int], ...] = (), **fields: object) -> TensegrityModel:
    """Loose rods from one point to another."""
    nodes = np.array([point for pair in ends for point in pair])
    return TensegrityModel("rods", nodes, cables, (), **fields)  # type: ignore[arg-type]


def lifted(model: TensegrityModel, state: Array) -> Array:
    return model.move(state, translation=np.array([0.0, 0.0, 100.0]))
