r"""Kernels of muscles on a tree of hinges: lengths, moment arms and torques.

They also take complex numbers, whose imaginary part then is a derivative. The gradient of a piece's length by its ends, g_a
and g_b, is a unit vector from its contact to the end; with R the surface's body, A and B those of the ends, and J the Jacobian
of a point that rides on a body,

.. math:: \frac{dl}{dq} = \sum_{pieces} g_a^T (J_A - J_R)(a) + g_b^T (J_B - J_R)(b), \qquad \tau = -\frac{dl}{dq}^T F

`muscles.routes` has the same formulas as symbols, and is the oracle. Legend: b bodies, n coordinates, m muscles.
"""

from __future__ import annotations

import numpy as np

from ...core.simulator import Array
from ...engines.numba.engine import inner, kernel
from ...muscles.muscle import MUSCLE_SPEED, around_circle, tension
from .muscle_tree import CYLINDER, STRAIGHT, MuscleTree


@inner
def stand_up(t, q, turns, origins, axes):
    """Rotations (b, 3, 3), origins (b, 3) and the hinges' axes (b, 3) in the world, at coordinates q (n,)."""
    for i in range(len(t.parent)):
        base, own = t.parent[i], t.turn[i] + 0.0 * q[0]
        if base >= 0:
            origins[i] = origins[base]
            for r in range(3):
                for c in range(3):
                    origins[i, r] += turns[base, r, c] * t.shift[i, c]
            own = product(turns[base], own)
        else:
            origins[i] = t.shift[i]
        for r in range(3):
            axes[i, r] = own[r, 0] * t.axis[i, 0] + own[r, 1] * t.axis[i, 1] + own[r, 2] * t.axis[i, 2]
        k = t.coordinate[i]
        turns[i] = product(own, about(t.axis[i], q[k])) if k >= 0 else own


@inner
def product(a, b):
    """Matrix product a b (3, 3)."""
    found = np.zeros_like(a)
    for r in range(3):
        for c in range(3):
            found[r, c] = a[r, 0] * b[0, c] + a[r, 1] * b[1, c] + a[r, 2] * b[2, c]
    return found


@inner
def about(axis, angle):
    """Rotation (3, 3) about a unit axis."""
    s, c, x, y, z = np.sin(angle), 1.0 - np.cos(angle), axis[0], axis[1], axis[2]
    found = np.empty((3, 3), dtype=np.array([s]).dtype)
    found[0, 0], found[0, 1], found[0, 2] = 1.0 - c * (y * y + z * z), c * x * y - s * z, c * x * z + s * y
    found[1, 0], found[1, 1], found[1, 2] = c * x * y + s * z, 1.0 - c * (x * x + z * z), c * y * z - s * x
    found[2, 0], found[2, 1], found[2, 2] = c * x * z - s * y, c * y * z + s * x, 1.0 - c * (x * x + y * y)
    return found


@inner
def norm(x):
    """Analytic norm of x (3,)."""
    return np.sqrt(x[0] * x[0] + x[1] * x[1] + x[2] * x[2])


@inner
def around(kind, a, b, side, radius, ga, gb):
    """Length of the shortest path from a to b (3,) around a surface in its frame, and its gradients (3,) by both."""
    planar = kind == CYLINDER
    dz = b[2] - a[2] if planar else 0.0 * a[2]
    x, y = a.copy(), b.copy()
    if planar:
        x[2], y[2] = 0.0, 0.0
    far, near = norm(x), norm(y)
    along = x[0] * y[0] + x[1] * y[1] + x[2] * y[2]
    turn = 1.0
    if planar:
        turn = 1.0 if (x[0] * side[1] - x[1] * side[0]).real > 0 else -1.0
        across = turn * (x[0] * y[1] - x[1] * y[0])
    else:
        u, v, w = x[1] * y[2] - x[2] * y[1], x[2] * y[0] - x[0] * y[2], x[0] * y[1] - x[1] * y[0]
        across = np.sqrt(u * u + v * v + w * w)
    angle = np.pi - 2.0 * np.arctan(across / (far * near - along))
    ta, tb = np.sqrt(far * far - radius * radius), np.sqrt(near * near - radius * radius)
    length, _, touching = around_circle(far, near, angle, radius)
    if touching.real > 0:
        # sideways: the unit vector in the plane of the path, from an end on along it
        inward, way = radius / far, ta / far
        inward_b, way_b = radius / near, tb / near
        for i in range(3):
            ea, eb = x[i] / far, y[i] / near
            if planar:
                sa = turn * (-x[1] if i == 0 else x[0]) / far if i < 2 else 0.0 * far
                sb = -turn * (-y[1] if i == 0 else y[0]) / near if i < 2 else 0.0 * near
            else:
                sa, sb = (y[i] - along / far * ea) / (across / far), (x[i] - along / near * eb) / (across / near)
            ga[i] = ea * way - sa * inward
            gb[i] = eb * way_b - sb * inward_b
    else:
        for i in range(3):
            ga[i], gb[i] = x[i] - y[i], y[i] - x[i]
        length = norm(ga)
        for i in range(3):
            ga[i] /= length
            gb[i] /= length
    if planar:
        total = np.sqrt(length * length + dz * dz)
        for i in range(2):
            ga[i] *= length / total
            gb[i] *= length / total
        ga[2], gb[2] = -dz / total, dz / total
        return total
    return length


@inner
def ride(t, body, p, g, sign, origins, axes, row):
    """row (n,) += sign g . J of a point p (3,) of the world that rides on a body."""
    i = body
    while i >= 0:
        k = t.coordinate[i]
        if k >= 0:
            x, y, z = p[0] - origins[i, 0], p[1] - origins[i, 1], p[2] - origins[i, 2]
            row[k] += sign * (
                g[0] * (axes[i, 1] * z - axes[i, 2] * y)
                + g[1] * (axes[i, 2] * x - axes[i, 0] * z)
                + g[2] * (axes[i, 0] * y - axes[i, 1] * x)
            )
        i = t.parent[i]


@inner
def routes_of(t, q, lengths, slopes):
    """Lengths (m,) of all muscles and their derivatives (m, n) at q (n,); see the module docstring."""
    b, zero = len(t.parent), 0.0 * q[0]
    kind = np.array([zero]).dtype
    turns, origins, axes = np.empty((b, 3, 3), dtype=kind), np.empty((b, 3), dtype=kind), np.empty((b, 3), dtype=kind)
    stand_up(t, q, turns, origins, axes)
    p, c = np.empty((2, 3), dtype=kind), np.empty((2, 3), dtype=kind)
    own, g, world = np.empty((2, 3), dtype=kind), np.empty((2, 3), dtype=kind), np.empty((2, 3), dtype=kind)
    lengths[:], slopes[:] = 0.0, 0.0
    for k in range(len(t.piece)):
        muscle, first, shape, surface = t.piece[k, 0], t.piece[k, 1], t.piece[k, 2], t.piece[k, 3]
        for e in range(2):
            i = t.body[first + e]
            for r in range(3):
                p[e, r] = t.point[first + e, r] if i < 0 else origins[i, r]
                if i >= 0:
                    for d in range(3):
                        p[e, r] += turns[i, r, d] * t.point[first + e, d]
        if shape == STRAIGHT:
            world[0], world[1] = p[0] - p[1], p[1] - p[0]
            length = norm(world[0])
            world /= length
        else:
            s = t.surface[surface]
            frame = t.stand[surface] + zero
            centre = t.place[surface] + zero
            if s >= 0:
                centre = origins[s].copy()
                for r in range(3):
                    for d in range(3):
                        centre[r] += turns[s, r, d] * t.place[surface, d]
                frame = product(turns[s], frame)
            for e in range(2):
                for r in range(3):
                    c[e, r] = p[e, r] - centre[r]
                for r in range(3):
                    own[e, r] = frame[0, r] * c[e, 0] + frame[1, r] * c[e, 1] + frame[2, r] * c[e, 2]
            length = around(shape, own[0], own[1], t.side[k], t.radius[surface], g[0], g[1])
            for e in range(2):
                for r in range(3):
                    world[e, r] = frame[r, 0] * g[e, 0] + frame[r, 1] * g[e, 1] + frame[r, 2] * g[e, 2]
                ride(t, s, p[e], world[e], -1.0, origins, axes, slopes[muscle])
        lengths[muscle] += length
        for e in range(2):
            ride(t, t.body[first + e], p[e], world[e], 1.0, origins, axes, slopes[muscle])


@inner
def pull(t, q, v, active, torque):
    """torque (n,) += torques of all muscles with activations (m,) at q, v (n,) [N m]."""
    m, n = len(t.numbers), len(q)
    lengths = np.empty(m, dtype=q.dtype)
    slopes = np.empty((m, n), dtype=q.dtype)
    routes_of(t, q, lengths, slopes)
    for i in range(m):
        force, optimal, slack = t.numbers[i, 0], t.numbers[i, 1], t.numbers[i, 2]
        rate = 0.0 * q[0]
        for j in range(n):
            rate += slopes[i, j] * v[j]
        load = force * tension(active[i], (lengths[i] - slack) / optimal, rate / (MUSCLE_SPEED * optimal))
        for j in range(n):
            torque[j] -= slopes[i, j] * load


@kernel
def all_routes(t, q, lengths, slopes):
    """Lengths (B, m) and derivatives (B, m, n) at rows q (B, n)."""
    for row in range(len(q)):
        routes_of(t, q[row], lengths[row], slopes[row])


@kernel
def pulled(t, q, v, active, torque):
    """Write torques of muscles with activations (m,) at q, v (n,) into torque (n,)."""
    torque[:] = 0.0
    pull(t, q, v, active, torque)


def muscle_torques(t: MuscleTree, q: Array, v: Array, active: Array) -> Array:
    """Torques (n,) of muscles with activations (m,) at q, v (n,) [N m]."""
    found = np.empty(len(q))
    pulled(t, np.ascontiguousarray(q), np.ascontiguousarray(v), np.ascontiguousarray(active), found)
    return found


def passive_torques(t: MuscleTree, q: Array) -> Array:
    """Torques (n,) of muscles that are off, at rest at q (n,) [N m]."""
    return muscle_torques(t, q, np.zeros(len(q)), np.zeros(len(t.numbers)))


def lengths_and_arms(t: MuscleTree, q: Array) -> tuple[Array, Array]:
    """Lengths (B, m) and moment arms (B, m, n) at rows q (B, n) [m]."""
    lengths, slopes = np.empty((len(q), len(t.numbers))), np.empty((len(q), len(t.numbers), q.shape[1]))
    all_routes(t, np.ascontiguousarray(q), lengths, slopes)
    return lengths, -slopes
