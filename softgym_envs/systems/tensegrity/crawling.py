"""The prism's crawling heuristic: feedback of laboratory measurements, the same for every motor.

Legend: B batch, m motors, N nodes, K terms.
"""

from __future__ import annotations

import numpy as np

from ...core.simulator import Array
from .model import TensegrityModel

NODE = 6
"""Observed numbers per node: position and velocity."""
AXES = "hyz"
UPPER = tuple((i, j) for i in range(3) for j in range(i, 3))
ALL = tuple((i, j) for i in range(3) for j in range(3))
PRODUCTS = (("p", "p", UPPER), ("p", "q", ALL), ("q", "q", UPPER), ("d", "d", UPPER), ("d", "e", ALL))
"""Pairs of vectors whose products of components are terms."""
TERMS = (
    *("1", "w", "W", "r"),
    *(f"{vector}_{axis}" for vector in "pqvV" for axis in AXES),
    *(f"{a}_{AXES[i]} {b}_{AXES[j]}" for a, b, pairs in PRODUCTS for i, j in pairs),
    *(f"w {vector}_{axis}" for vector in "pq" for axis in AXES),
)
"""Names of the terms; see `crawling`."""

FACTORS: dict[str, float] = {
    "1": -0.37, "w": -2.1, "W": 1.12, "r": 3.97, "p_h": -4.6, "p_y": 3.26, "p_z": 5.41, "q_h": -0.26, "q_y": -0.6,
    "q_z": -0.22, "v_h": 2.94, "v_y": 0.83, "v_z": 1.76, "V_h": -2.15, "V_y": -0.1, "V_z": -0.65, "p_h p_h": 0.61,
    "p_h p_y": 1.24, "p_h p_z": -0.45, "p_y p_y": 1.64, "p_y p_z": -2.39, "p_z p_z": 1.31, "p_h q_h": -0.1, "p_h q_y": -1.21,
    "p_h q_z": 0.08, "p_y q_h": -0.12, "p_y q_y": -2.32, "p_y q_z": -1.98, "p_z q_h": 2.7, "p_z q_y": 1.16, "p_z q_z": 2.27,
    "q_h q_h": 2.11, "q_h q_y": 1.96, "q_h q_z": 0.89, "q_y q_y": -4.11, "q_y q_z": -0.5, "q_z q_z": -1.62, "d_h d_h": -2.33,
    "d_h d_y": 2.64, "d_h d_z": 2.66, "d_y d_y": -1.94, "d_y d_z": 0.24, "d_z d_z": 1.95, "d_h e_h": 2.56, "d_h e_y": 0.11,
    "d_h e_z": -3.06, "d_y e_h": 1.33, "d_y e_y": 0.64, "d_y e_z": 2.97, "d_z e_h": 1.1, "d_z e_y": 0.81, "d_z e_z": 0.76,
    "w p_h": 0.66, "w p_y": -2.05, "w p_z": -1.49, "w q_h": -0.39, "w q_y": -0.04, "w q_z": -0.06,
}  # fmt: skip
"""Term -> its factor; found by experiments/tensegrity_heuristics.py in our engine."""


def crawling(model: TensegrityModel, observation: Array, factors: Array | None = None) -> Array:
    """u = clip(sum of factors times `TERMS`): how far to shorten or pay out a cable, by its position and motion.

    In the command frame (h along, y across, z up): p is a cable's middle from the centre of mass and q the middle of the
    other ends of its two rods, both in half rod lengths; d is the cable's direction, e half the way between those other ends
    in the same sense; v is the velocity of p past the centre of mass, V that of the centre of mass [m/s], r the speed at
    which the cable lengthens [m/s]; w is its motor's position (of its range), W the sum of the other motors'. Nothing
    depends on which end of a cable comes first.

    Args:
        model: The robot.
        observation: In obs_mode "sensors", (B, at least 6 N + m).
        factors: Replace those of `FACTORS`, (K,) or one set per row, (B, 1, K).

    Returns:
        Actions (B, m).
    """
    weights = np.array([FACTORS[name] for name in TERMS]) if factors is None else factors
    return np.asarray(np.clip((_terms(model, observation) * weights).sum(axis=-1), -1.0, 1.0))


def _terms(model: TensegrityModel, observation: Array) -> Array:
    """Values of `TERMS`, (B, m, K)."""
    seen, size = np.asarray(observation, dtype=np.float64), NODE * len(model.nodes)
    nodes = seen[:, :size].reshape(len(seen), -1, NODE)
    place, speed = nodes[..., :3] / (0.5 * float(model.rod_lengths.max())), nodes[..., 3:]
    first, last = np.array(model.cables)[list(model.actuated)].T
    w = seen[:, size : size + model.nu]
    whole = np.broadcast_to(speed.mean(axis=1)[:, None], (*w.shape, 3))
    d = place[:, last] - place[:, first]
    d = d / np.maximum(np.linalg.norm(d, axis=-1, keepdims=True), 1e-9)
    vectors = {
        "p": 0.5 * (place[:, first] + place[:, last]),
        "q": 0.5 * (place[:, first ^ 1] + place[:, last ^ 1]),  # rods are nodes 2r, 2r + 1
        "v": 0.5 * (speed[:, first] + speed[:, last]) - whole,
        "V": whole,
        "d": d,
        "e": 0.5 * (place[:, last ^ 1] - place[:, first ^ 1]),
    }
    rate = ((speed[:, last] - speed[:, first]) * d).sum(axis=-1)
    scalars = [np.ones_like(w), w, w.sum(axis=1, keepdims=True) - w, rate]
    linear = [vectors[name][..., axis] for name in "pqvV" for axis in range(3)]
    products = [vectors[a][..., i] * vectors[b][..., j] for a, b, pairs in PRODUCTS for i, j in pairs]
    motors = [w * vectors[name][..., axis] for name in "pq" for axis in range(3)]
    return np.stack([*scalars, *linear, *products, *motors], axis=-1)
