"""The sliding block as an ordinary differential equation: a formulation of its own, without complementarity or cones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SUPPORTS = np.array([[0.06, 0.0], [-0.05, 0.06], [-0.05, -0.06]])
HANDLE = np.array([0.1, 0.0])
MASS, INERTIA, GRAVITY = 1.0, 0.0067, 9.81
SMOOTH = 2e-4
"""[m/s] Speed over which friction sets in."""


def slide(seconds: float, friction: float, force: Callable[[float], Array], *, dt: float = 5e-5) -> Array:
    """States (T + 1, 6) from rest, without a string; `force` [N] at the handle, along the block's own axes."""
    loads = MASS * GRAVITY * np.linalg.solve(np.vstack([np.ones(3), SUPPORTS.T]), [1.0, 0.0, 0.0])
    count = round(seconds / dt)
    states = np.zeros((count + 1, 6))
    for k in range(count):
        q, v = states[k, :3], states[k, 3:]
        c, s = np.cos(q[2]), np.sin(q[2])
        turn = np.array([[c, -s], [s, c]])
        arms, push, at = SUPPORTS @ turn.T, turn @ force(k * dt), turn @ HANDLE
        speeds = v[:2] + v[2] * np.stack([-arms[:, 1], arms[:, 0]], axis=1)
        rubs = -friction * loads[:, None] * speeds / np.sqrt((speeds**2).sum(axis=1, keepdims=True) + SMOOTH**2)
        total = push + rubs.sum(axis=0)
        torque = at[0] * push[1] - at[1] * push[0] + (arms[:, 0] * rubs[:, 1] - arms[:, 1] * rubs[:, 0]).sum()
        after = v + dt * np.array([total[0] / MASS, total[1] / MASS, torque / INERTIA])
        states[k + 1] = np.concatenate([q + dt * 0.5 * (v + after), after])
    return states


def jumping(rng: np.random.Generator, seconds: float, hold: float = 0.2) -> Array:
    """Forces (N, 2) [N] that are held for so long [s] each, mostly forwards."""
    forces = rng.uniform(-1.0, 1.0, (round(seconds / hold) + 1, 2)) * (7.0, 3.0)
    forces[:, 0] = np.abs(forces[:, 0]) + 1.0
    return forces
