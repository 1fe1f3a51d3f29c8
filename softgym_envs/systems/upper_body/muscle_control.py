r"""Controller of the upper body with muscles: finds a pose that these can hold, and brings the arm there in spite of errors.

With M the mass matrix, q* the pose, :math:`\tau_0` the torques that hold the body in place, and s the integral of the error,

.. math:: \tau = \tau_0(q) + M(q) (\omega^2 (q^* + s - q) - 2 \zeta \omega \dot q), \qquad \dot s = k (q^* - q)

which muscles share (`sharing`); s is frozen far from the pose, and bounded. Excitations bring the activations to their wanted
values at the end of the control step. With the whole M, springs at the end of the arm are stiff enough for muscles
with curves other than ours (with each joint's own inertia only, hands miss by 0.1 m); s corrects the rest. Legend: B rows, n
joints, m muscles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.simulator import Array
from ...muscles.muscle import activation_rate
from .model import FALL, RISE, BodyModel
from .sharing import share

FREQUENCY, RATIO = 16.0, 0.6
"""omega [rad/s], and zeta in addition to the joints' own dampers."""
INTEGRAL, NEAR, MOST = 2.0, 0.35, 0.3
"""k [1/s]; error up to which it is integrated, and largest integral [rad]."""
POSTURES, SPREAD = 10, (0.2, 0.8)
"""Number of other start postures, and their range as shares of the joints' limits."""
UNREACHED, TIRED = 1e4, 0.3
"""[N m/m], [N m] Weights of a distance beyond `REACHED_DISTANCE` and of activations, relative to missing torque."""
REACHED_DISTANCE = 0.005
"""[m]"""


def held_pose(model: BodyModel, points: Array) -> Array:
    """Angles (B, n) with the hand at points (B, 3): of solutions from several postures, the one that muscles hold best."""
    low, high = model.limits
    moved = np.isin(np.arange(model.n), model.motors, invert=True)
    shares = np.random.default_rng(0).uniform(*SPREAD, (POSTURES, model.n))
    postures = np.vstack([model.rest[None], np.where(moved, low + (high - low) * shares, model.rest)])
    q, left = model.reaching(np.repeat(points, len(postures), axis=0), np.tile(postures, (len(points), 1)))
    found = share(model, q, np.zeros_like(q), model.holding(q))
    tired = np.abs(found.missing).max(axis=1) + TIRED * (found.activations**2).sum(axis=1)
    cost = (UNREACHED * np.maximum(left - REACHED_DISTANCE, 0.0) + tired).reshape(len(points), -1)
    return np.asarray(q.reshape(*cost.shape, -1)[np.arange(len(points)), cost.argmin(axis=1)])


def leading(activation: Array, wanted: Array, period: float) -> Array:
    """Excitations (B, m) that bring activations to the wanted ones within a control step, as far as possible."""
    gone = 1.0 - np.exp(-period * activation_rate(activation, wanted, RISE, FALL))
    return np.asarray(np.clip(activation + (wanted - activation) / gone, 0.0, 1.0))


def reach_by_muscles(envs: Any, fixed_goal: tuple[float, float, float] | None) -> Callable[[Array], Array]:
    """Policy from observations to actions; the goal is always `fixed_goal` [m] if given."""
    episodes = envs.episodes
    task, model, rows = episodes.task, episodes.task.model, len(episodes.state)
    n, m, motors = model.n, len(model.muscle_names), list(model.motors)
    wanted, summed, begun = np.zeros((rows, n)), np.zeros((rows, n)), np.zeros(rows, dtype=bool)
    low, high = model.control_bounds

    def act(observation: Array) -> Array:
        fresh = np.flatnonzero((episodes.steps == 0) | ~begun)
        if len(fresh):
            points = episodes.context[fresh, :3] if fixed_goal is None else np.tile(fixed_goal, (len(fresh), 1))
            wanted[fresh], summed[fresh], begun[fresh] = held_pose(model, points), 0.0, True
        seen = np.asarray(observation, dtype=np.float64)
        q, v, active = (np.ascontiguousarray(part) for part in np.split(seen[:, : 2 * n + m], [n, 2 * n], axis=1))
        off = wanted - q
        summed[:] = np.clip(summed + INTEGRAL * task.control_period * np.where(np.abs(off) < NEAR, off, 0.0), -MOST, MOST)
        mass = model.mechanism.slopes(q, np.zeros_like(q), model.defaults).vv
        pushed = FREQUENCY**2 * (off + summed) - 2.0 * RATIO * FREQUENCY * v
        torque = model.holding(q) + (mass @ pushed[..., None])[..., 0]
        excitation = leading(active, share(model, q, v, torque).activations, task.control_period)
        control = np.hstack([excitation, torque[:, motors]])
        return np.asarray(np.clip(2.0 * (control - low) / (high - low) - 1.0, -1.0, 1.0), dtype=np.float32)

    return act
