r"""Sharing of joint torques among muscles: least squares with little activation, within bounds.

With pulls P (moment arms times strengths) and torques t beyond the passive ones,

.. math:: \min_{0 \le a \le 1} |P a - t|^2 + w^2 |a|^2

one activation after the other. It gives optimal control its first guess, and torque controllers their
excitations. Legend: B rows, n joints, m muscles, k joints that muscles move.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.simulator import Array
from ...engines.numba.engine import kernel
from ...muscles.muscle import MUSCLE_SPEED, active_force, passive_force, speed_force
from .model import BodyModel
from .muscle_kernels import lengths_and_arms

LITTLE = 1.0
"""Weight w of an activation relative to a torque [N m]."""
SWEEPS, SETTLED = 500, 1e-4
"""Most sweeps; change of activations in a sweep at which they stop."""


class Shared(NamedTuple):
    """Result of sharing torques."""

    activations: Array
    """(B, m)"""
    missing: Array
    """(B, k) residual torques [N m]."""


def share(model: BodyModel, q: Array, v: Array, torque: Array) -> Shared:
    """Activations that give torques (B, n) at q, v (B, n) as nearly as muscles can; torques of motors are ignored."""
    t = model.routes
    lengths, arms = lengths_and_arms(t, q)
    force, optimal, slack = t.numbers.T
    fibre, speed = (lengths - slack) / optimal, -np.einsum("bmn,bn->bm", arms, v) / (MUSCLE_SPEED * optimal)
    strength, taut = force * active_force(fibre) * np.maximum(speed_force(speed), 0.0), force * passive_force(fibre)
    joints = np.setdiff1d(np.arange(model.n), model.motors)
    arms = arms[:, :, joints].swapaxes(1, 2)
    needed = torque[:, joints] - (arms @ taut[..., None])[..., 0]
    pulls, found = np.ascontiguousarray(arms * strength[:, None]), np.zeros(lengths.shape)
    bounded(pulls, needed, LITTLE, found)
    return Shared(found, needed - (pulls @ found[..., None])[..., 0])


def activations(model: BodyModel, q: Array, v: Array, torque: Array) -> Array:
    """Activations of `share`, (B, m)."""
    return share(model, q, v, torque).activations


@kernel
def bounded(pulls, needed, little, found):
    """See the module docstring: pulls (B, k, m), needed (B, k), found (B, m), from where it stands."""
    for row in range(len(pulls)):
        a, P = found[row], pulls[row]
        left = needed[row].copy()
        for i in range(P.shape[1]):
            left -= P[:, i] * a[i]
        for _ in range(SWEEPS):
            moved = 0.0
            for i in range(P.shape[1]):
                slope, curve = -little * little * a[i], little * little
                for k in range(len(P)):
                    slope += P[k, i] * left[k]
                    curve += P[k, i] * P[k, i]
                step = min(max(a[i] + slope / curve, 0.0), 1.0) - a[i]
                a[i] += step
                moved = max(moved, abs(step))
                for k in range(len(P)):
                    left[k] -= P[k, i] * step
            if moved < SETTLED:
                break
