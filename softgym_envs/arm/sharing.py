"""How muscles share the torques that joints need: bounded least squares, with little activation.

It gives optimal control its first guess, and controllers that think in torques their excitations.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import lsq_linear

from ..core.simulator import Array
from .body_model import BodyModel
from .body_muscles import lengths_and_arms
from .muscle import SPEED, active_force, passive_force, speed_force

LITTLE = 1.0
"""Weight of an activation beside a torque [N m]."""


def activations(model: BodyModel, q: Array, v: Array, torque: Array) -> Array:
    """Activations (B, m) that give torques (B, n) at q, v (B, n) as nearly as muscles can; those of motors do not matter."""
    t = model.routes
    lengths, arms = lengths_and_arms(t, q)
    force, optimal, slack = t.numbers.T
    fibre, speed = (lengths - slack) / optimal, -np.einsum("bmn,bn->bm", arms, v) / (SPEED * optimal)
    strength, taut = force * active_force(fibre) * np.maximum(speed_force(speed), 0.0), force * passive_force(fibre)
    joints = np.setdiff1d(np.arange(model.n), model.motors)
    found, little = np.empty(lengths.shape), LITTLE * np.eye(lengths.shape[1])
    for row in range(len(q)):
        pulls = arms[row][:, joints].T
        needed = torque[row, joints] - pulls @ taut[row]
        found[row] = lsq_linear(
            np.vstack([pulls * strength[row], little]), np.append(needed, np.zeros(len(little))), (0.0, 1.0)
        ).x
    return found


def controls(model: BodyModel, q: Array, v: Array, torque: Array) -> Array:
    """Controls (B, nu) of the body with muscles for torques (B, n): excitations, then the torques of motors."""
    return np.hstack([activations(model, q, v, torque), torque[:, list(model.motors)]])
