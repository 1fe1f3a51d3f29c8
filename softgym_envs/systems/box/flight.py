"""Initial state of a thrown box: fits a flight to the poses before the first strike.

In flight the centre keeps its horizontal velocity and falls with constant acceleration. The attitude turns free of torque,
I w' = I w x w, which needs only the ratios of moments. Legend: T rows, nx state, K turns.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import lie
from ...core.simulator import Array
from ...core.trajectory import Trajectory
from .experiments import posed

FLIGHT_ROWS = 6
"""Rows that count as flight at least, however early a box strikes, or if its poses do not show when."""
STRIKE_HEIGHT = 0.1
"""Height over a corner's resting height below which it may have struck, and size of a jolt; over the smallest half edge."""
MIN_STRIKE_ROWS = 12
"""Least rows of a window around a first strike."""
ROUNDS, STEP = 3, 1e-5
"""Gauss-Newton iterations for rotations, and step of their finite differences [rad, rad/s]."""


def first_state(recording: Trajectory, simulator: Any, gravity: float | None = None) -> Array:
    """Fit the state (nx,) at the first row to the rows before the first strike.

    Position and attitude are fitted separately, as a camera may have lost one of them; one that was never seen is that at rest.

    Args:
        recording: Poses.
        simulator: Simulator of the box.
        gravity: Gravitational acceleration [m/s^2]; None: fitted to the same rows.
    """
    seen, state = posed(simulator, recording.on_grid), simulator.initial_state(1)[0].copy()
    planar, pushed = simulator.model.planar, bool(np.any(recording.controls))
    axes, rows = 2 if planar else 3, flying(simulator, seen)
    times = seen.times[:rows] - seen.times[0]
    place, turn = seen.values[:rows, :axes], seen.values[:rows, axes:]
    rates = axes + turn.shape[1]
    there = np.isfinite(place).all(axis=1)
    if there.any():
        t, fallen = times[there], 0.5 * (gravity or 0.0) * times[there] ** 2
        for axis in range(axes):
            falls = axis == axes - 1
            curve = pushed or (falls and gravity is None)
            values = place[there, axis] + (fallen if falls and not pushed else 0.0)
            state[axis], state[rates + axis] = _begin(t, values, 2 if curve else 1)
    there = np.isfinite(turn).all(axis=1)
    if there.any() and planar:
        state[axes], state[rates + axes] = _begin(times[there], turn[there, 0], 1)
    elif there.any():
        spin = slice(rates + axes, rates + 2 * axes)
        state[axes:rates], state[spin] = _spinning(simulator.model.uniform_inertia, times[there], turn[there])
    return np.asarray(state)


def flying(simulator: Any, seen: Trajectory) -> int:
    """Count rows before the lowest corner comes near its resting height, or before a jolt upwards; at least `FLIGHT_ROWS`."""
    model, poses = simulator.model, seen.values
    low = model.corners(np.hstack([poses, np.zeros((len(poses), model.layout.nx - poses.shape[1]))]))[..., 2].min(axis=1)
    if np.isnan(low).all():
        return FLIGHT_ROWS
    soon = low + np.fmin(np.diff(low, prepend=low[:1]), 0.0)  # a row later
    margin = STRIKE_HEIGHT * min(model.half_size)
    there = soon < np.nanquantile(low, 0.05) + margin
    there[:-2] |= np.diff(poses[:, 1 if model.planar else 2], 2) > margin  # e.g. frames lost in a strike
    return max(int(np.argmax(there)) + 1, FLIGHT_ROWS)


def begun(simulator: Any, recording: Trajectory, share: float) -> Trajectory:
    """Poses from the release of a box for `share` times its flight before the first strike, `MIN_STRIKE_ROWS` rows at least.

    Raises:
        DataError: A column of the pose is missing.
    """
    seen = posed(simulator, recording)
    last = min(max(math.ceil(share * flying(simulator, seen)), MIN_STRIKE_ROWS), seen.num_steps)
    return seen.window(seen.times[0], seen.times[last])


def _begin(times: Array, values: Array, degree: int) -> tuple[float, float]:
    """Fit a polynomial; -> its value and slope at time zero."""
    found = np.polynomial.polynomial.polyfit(times, values, min(degree, len(times) - 1))
    return float(found[0]), float(found[1]) if len(found) > 1 else 0.0


def _spinning(moments: Array, times: Array, turns: Array) -> tuple[Array, Array]:
    """Fit a torque-free rotation to attitudes (T, 4); -> attitude (4,) and angular velocity (3,) at time zero."""
    q, spin = turns[0], np.zeros(3)
    if len(times) < 2:
        return q, spin
    spin = np.median(lie.difference(turns[1:], turns[:-1]) / np.diff(times)[:, None], axis=0)
    tried = np.vstack([np.zeros(6), STEP * np.eye(6)])
    for _ in range(ROUNDS):
        off = lie.difference(_turned(moments, times, lie.retract(q, tried[:, :3]), spin + tried[:, 3:]), turns[:, None])
        slopes = (off[:, 1:] - off[:, :1]) / STEP  # (T, 6, 3)
        change = np.asarray(np.linalg.lstsq(slopes.transpose(0, 2, 1).reshape(-1, 6), -off[:, 0].ravel(), rcond=None)[0], float)
        q, spin = lie.retract(q, change[:3]), spin + change[3:]
    return q, spin


def _turned(moments: Array, times: Array, q: Array, spin: Array) -> Array:
    """Attitudes (T, K, 4) of K torque-free rotations, by the midpoint rule from row to row."""

    def rate(w: Array) -> Array:
        return np.asarray(np.cross(moments * w, w) / moments)

    found, now = [], 0.0
    for time in times:
        middle = spin + 0.5 * (time - now) * rate(spin)
        q, spin, now = lie.retract(q, (time - now) * middle), spin + (time - now) * rate(middle), time
        found.append(q)
    return np.array(found)
