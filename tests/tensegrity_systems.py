"""Robots of loose rods, for tests of the tensegrity engine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from softgym_envs.systems.tensegrity.model import TensegrityModel

Array = NDArray[np.float64]
STRUCTURE = """
name = "tripod"
actuated = ["c0", "c1"]
[nodes]
a = [0.0, 0.0, 0.0]
b = [0.0, 0.0, 1.0]
c = [0.5, 0.0, 0.0]
d = [0.5, 0.0, 1.0]
[[rods]]
nodes = ["a", "b"]
[[rods]]
nodes = ["c", "d"]
[[cables]]
name = "c0"
nodes = ["a", "c"]
[[cables]]
name = "c1"
nodes = ["b", "d"]
stiffness_ratio = 2.0
"""
"""A structure of two rods, as a file."""


def rods(*ends: tuple[list[float], list[float]], cables: tuple[tuple[int, int], ...] = (), **fields: object) -> TensegrityModel:
    """Loose rods from one point to another."""
    nodes = np.array([point for pair in ends for point in pair])
    return TensegrityModel("rods", nodes, cables, (), **fields)  # type: ignore[arg-type]


def lifted(model: TensegrityModel, state: Array) -> Array:
    return model.move(state, translation=np.array([0.0, 0.0, 100.0]))
