r"""An arm of hinges pulled by antagonistic pairs of pneumatic muscles, described only by parameters of its joints.

Its bones are not measured: everything is per inertia of a joint, and joints couple by constant shares D of each other's
acceleration. With p_1, p_2 inside the muscles of joint j (`pneumatic`), x its angle,

.. math:: \rho_j = \max(p_1 c^+_j(x), 0) - \max(p_2 c^-_j(x), 0) + s_j - k_j x + g_j \cdot (\sin q, \cos q) + \text{stops},
   \qquad \dot v = \rho + D \dot v^- + \beta - (d_j + d'_j (p_1 + p_2)) v - (f_j + f'_j (p_1 + p_2))\, \mathrm{sign}(v)

where friction is Coulomb's, 1 + `stiction` times as much where a joint stands; the acceleration of the other joints is that of
the step before, so that a joint which sticks drags none; and beta fades: a share of the acceleration that the last frames
before the start had needed beyond the model. Muscles pull and never push, and do not pull harder
again where a convex quadratic would let them as they shorten.

A joint's stops lie at the ends of the recorded range, within `STOP_RANGE`, and are no free numbers of a fit's shape: a stop
inside the range would push back where joints still move. Beyond a stop a muscle pulls as at it, the stop's spring pushes back,
and a joint goes `REACH` further at most. Steps are semi-implicit, friction and damping implicit.

Legend: N stretches, P frames of the past, T frames ahead, n joints, C parameters of a joint.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from softgym_envs.core.errors import ShapeError
from softgym_envs.core.simulator import Array
from softgym_envs.engines.numba.engine import inner, kernel
from softgym_envs.systems.arm.pneumatic import filled

PULL, BACK, PRELOAD, STIFFNESS, LOWER, UPPER = 0, 3, 6, 7, 8, 9
FRICTION, FRICTION_PRESSURE, STICTION, DAMPING, DAMPING_PRESSURE = 10, 11, 12, 13, 14
LAG_PULL, LAG_BACK, UNEXPLAINED, FADING, GRAVITY = 15, 16, 17, 18, 19
"""Indices of the parameters of a joint; those of gravity are followed by the shares of the other joints."""
STOP_STIFFNESS, STOP_WIDTH = 400.0, 0.05
"""[1/s^2], [rad] Springs at the ends of a joint's range, per inertia."""
REACH = 0.2
"""[rad] How far a joint may press a stop; there it stands."""
STOP_RANGE = (0.3, 0.15)
"""[rad] How far a stop may lie outside and inside of the recorded end."""
FASTEST = 500.0
"""[rad/s^2] Largest acceleration that is handed on to other joints."""
STANDING = 0.05
"""Speed below which a joint stands [rad/s]."""
FORGET = 0.7
"""Weight of older frames in the mean acceleration that the past had needed beyond the model."""


@register_jitable
def pull(p, q, c):
    """Torque of a muscle on a pulley, p (c_0 + c_1 q + c_2 q^2); see `on_pulley`."""
    return p * (c[0] + q * (c[1] + q * c[2]))


def on_pulley(thread: float, turns: float, length: float, radius: float) -> tuple[float, float, float]:
    """Parameters c of `pull` for a muscle with `length` [m] at q = 0 on a pulley of that radius [m], shortened by turning."""
    scale = radius / (4.0 * np.pi * turns * turns)
    return (
        scale * (3.0 * length * length - thread * thread),
        -6.0 * scale * length * radius,
        3.0 * scale * radius * radius,
    )


@register_jitable
def stuck_or_slid(v, friction):
    """Speed after Coulomb friction has reduced it by at most `friction` [rad/s]: zero where the joint sticks."""
    return np.sign(v) * max(abs(v) - friction, 0.0)


class Known(NamedTuple):
    """Prior of a parameter; pressures are in units of the recording's."""

    name: str
    unit: str
    initial_guess: float
    spread: float
    """Prior standard deviation about the guess."""
    low: float = -np.inf
    high: float = np.inf


_PULLS = (
    Known("pull0", "rad/s^2", 150.0, 80.0, 0.0),
    Known("pull1", "1/s^2", -30.0, 50.0),
    Known("pull2", "1/(rad s^2)", 0.0, 50.0),
)
_BACKS = tuple(Known(k.name.replace("pull", "back"), k.unit, abs(k.initial_guess), k.spread, k.low) for k in _PULLS)
_REST = (
    Known("preload", "rad/s^2", 0.0, 20.0), Known("stiffness", "1/s^2", 20.0, 20.0, 0.0),
    Known("lower", "rad", np.nan, 0.05), Known("upper", "rad", np.nan, 0.05),
    Known("friction", "rad/s^2", 15.0, 20.0, 0.0), Known("friction_pressure", "rad/s^2", 15.0, 20.0, 0.0),
    Known("stiction", "-", 0.2, 0.2, 0.0, 2.0),
    Known("damping", "1/s", 15.0, 20.0, 0.0), Known("damping_pressure", "1/s", 0.0, 10.0),
    Known("lag_pull", "log s", np.log(0.03), 0.7, np.log(1e-3), np.log(0.5)),
    Known("lag_back", "log s", np.log(0.03), 0.7, np.log(1e-3), np.log(0.5)),
    Known("unexplained", "-", 0.0, 0.7, -1.0, 1.0), Known("fading", "log s", np.log(0.2), 1.0, np.log(0.01), np.log(10.0)),
)  # fmt: skip


def known(joint: int, lower: Array, upper: Array) -> tuple[Known, ...]:
    """Priors of a joint's parameters, in order; `lower` and `upper` (n,) are the ends of the recorded range [rad]."""
    low, high, joints = float(lower[joint]), float(upper[joint]), len(lower)
    outside, inside = STOP_RANGE
    gravity = tuple(Known(f"{f}{i}", "rad/s^2", 0.0, 20.0) for i in range(joints) for f in ("sin", "cos"))
    shares = tuple(Known(f"share{i}", "-", 0.0, 0.5) for i in range(joints) if i != joint)
    rest = [*_REST]
    rest[LOWER - PRELOAD] = rest[LOWER - PRELOAD]._replace(initial_guess=low + 0.03, low=low - outside, high=low + inside)
    rest[UPPER - PRELOAD] = rest[UPPER - PRELOAD]._replace(initial_guess=high - 0.03, low=high - inside, high=high + outside)
    return (*_PULLS, *_BACKS, *rest, *gravity, *shares)


@inner
def pressed(beyond):
    """Compression of a stop [rad] at `beyond` its end; begins softly, and grows without limit."""
    if beyond < -20.0 * STOP_WIDTH:
        return 0.0
    return max(beyond, 0.0) + STOP_WIDTH * np.log1p(np.exp(-abs(beyond) / STOP_WIDTH))


@inner
def shortest(x, c, side):
    """Angle at which the quadratic c is read: no further than where a muscle that shortens towards `side` pulls least."""
    if c[2] <= 0.0:
        return x
    vertex = -0.5 * c[1] / c[2]
    return min(x, vertex) if side > 0 else max(x, vertex)


@inner
def torques(c, q, pressure, turned, out):
    """Accelerations rho (n,), without damping and friction, with pressure (2 n,) inside; `turned` (2 n,) is scratch memory."""
    n = len(q)
    for i in range(n):
        turned[2 * i], turned[2 * i + 1] = np.sin(q[i]), np.cos(q[i])
    for j in range(n):
        x, k = q[j], c[j]
        inside = min(max(x, k[LOWER]), k[UPPER])
        out[j] = max(pull(pressure[2 * j], shortest(inside, k[PULL : PULL + 3], 1.0), k[PULL : PULL + 3]), 0.0)
        out[j] -= max(pull(pressure[2 * j + 1], shortest(inside, k[BACK : BACK + 3], -1.0), k[BACK : BACK + 3]), 0.0)
        out[j] += k[PRELOAD] - k[STIFFNESS] * x + STOP_STIFFNESS * (pressed(k[LOWER] - x) - pressed(x - k[UPPER]))
        for i in range(2 * n):
            out[j] += k[GRAVITY + i] * turned[i]


@inner
def dragged(c, acceleration, j):
    """Acceleration of joint j [rad/s^2] by those of the others (n,)."""
    n, total = len(acceleration), 0.0
    for i in range(n):
        if i != j:
            total += c[j, GRAVITY + 2 * n + i - (1 if i > j else 0)] * acceleration[i]
    return total


@inner
def resistance(k, v, total):
    """Damping [1/s] and friction [rad/s^2] of a joint at speed v and the sum of its pressures."""
    friction = max(k[FRICTION] + k[FRICTION_PRESSURE] * total, 0.0)
    standing = 1.0 + k[STICTION] if abs(v) < STANDING else 1.0
    return max(k[DAMPING] + k[DAMPING_PRESSURE] * total, 0.0), friction * standing


@inner
def remaining(c, h):
    """Factors exp(-h / lag) of all muscles (2 n,)."""
    found = np.empty(2 * len(c))
    for j in range(len(c)):
        found[2 * j], found[2 * j + 1] = np.exp(-h / np.exp(c[j, LAG_PULL])), np.exp(-h / np.exp(c[j, LAG_BACK]))
    return found


@inner
def needed(k, v, after, acceleration, total, h):
    """Acceleration that the model lacks [rad/s^2] for speed v to become `after`; friction takes what it can at a standstill."""
    damping, friction = resistance(k, v, total)
    lacking = (after * (1.0 + h * damping) - v) / h - acceleration
    if abs(after) > 0.02:
        return lacking + friction * np.sign(after)
    return lacking - min(max(lacking, -friction), friction)


@inner
def look_back(c, past, h, kept, q, v, pressure, beta, acceleration):
    """State at the past's last frame (P, 3 n), and the acceleration that its frames had needed beyond the model, (n,)."""
    n = len(c)
    rho, speed, turned = np.empty(n), np.zeros(n), np.empty(2 * n)
    pressure[:], beta[:], acceleration[:] = past[0, n:], 0.0, 0.0
    for t in range(len(past) - 1):
        for i in range(2 * n):
            pressure[i] = filled(pressure[i], past[t, n + i], kept[i])
        torques(c, past[t, :n], pressure, turned, rho)
        for j in range(n):
            after = (past[t + 1, j] - past[t, j]) / h
            if t > 0:
                total = pressure[2 * j] + pressure[2 * j + 1]
                lacking = needed(c[j], speed[j], after, rho[j] + dragged(c, acceleration, j), total, h)
                beta[j] = FORGET * beta[j] + (1.0 - FORGET) * lacking
        for j in range(n):
            after = (past[t + 1, j] - past[t, j]) / h
            if t > 0:
                acceleration[j] = min(max((after - speed[j]) / h, -FASTEST), FASTEST)
            v[j] = 0.7 * after + 0.3 * speed[j]
            speed[j] = after
    q[:] = past[-1, :n]


@kernel
def predict(c, past, valves, h, out):
    """Angles out (N, T, n) after every frame of pressures valves (N, T, 2 n), from the past (N, P, 3 n)."""
    n = len(c)
    q, v, beta, rho, acceleration, before = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    pressure, turned, kept, fading = np.empty(2 * n), np.empty(2 * n), remaining(c, h), np.exp(-h / np.exp(c[:, FADING]))
    for row in range(len(past)):
        look_back(c, past[row], h, kept, q, v, pressure, beta, acceleration)
        for j in range(n):
            beta[j] *= c[j, UNEXPLAINED]
        for t in range(valves.shape[1]):
            for i in range(2 * n):
                pressure[i] = filled(pressure[i], valves[row, t, i], kept[i])
            torques(c, q, pressure, turned, rho)
            before[:] = acceleration
            for j in range(n):
                damping, friction = resistance(c[j], v[j], pressure[2 * j] + pressure[2 * j + 1])
                rate = v[j] + h * (rho[j] + dragged(c, before, j) + beta[j])
                after = stuck_or_slid(rate, h * friction) / (1.0 + h * damping)
                acceleration[j] = min(max((after - v[j]) / h, -FASTEST), FASTEST)
                beta[j] *= fading[j]
                low, high = c[j, LOWER] - REACH, c[j, UPPER] + REACH
                reached = min(max(q[j] + h * after, low), high)
                v[j] = after if low < reached < high else 0.0
                out[row, t, j] = reached
            q[:] = out[row, t]


def predicted(parameter_values: Array, past: Array, valves: Array, h: float) -> Array:
    """Angles (N, T, n) [rad] after every frame of h seconds; never more than `REACH` beyond the stops.

    Args:
        parameter_values: (n, C); see `known`.
        past: Angles and pressures (N, P, 3 n), P >= 3; the last frame is the start.
        valves: Pressures (N, T, 2 n), the first acts from the start on.
        h: Time between frames [s].

    Raises:
        ShapeError: Sizes do not fit.
    """
    n = len(parameter_values)
    fits = past.ndim == 3 and past.shape[1] >= 3 and past.shape[2] == 3 * n and valves.ndim == 3
    if not fits or valves.shape[0] != len(past) or valves.shape[2] != 2 * n:
        raise ShapeError(f"past {past.shape} and valves {valves.shape}: expected (N, 3 or more, {3 * n}) and (N, T, {2 * n})")
    out = np.empty((*valves.shape[:2], n))
    predict(parameter_values, np.ascontiguousarray(past), np.ascontiguousarray(valves), h, out)
    return out
