"""Numba functions of a box's geometry: attitude, corners, rows of contact Jacobians, motion along a step.

All work on real and on complex numbers, so that derivatives are taken by complex steps through the same code; decisions use
real parts. Legend: n corners, nq numbers of a pose, nv velocities.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.simulator import Array
from ...engines.numba.engine import inner

FRICTION, MASS, INERTIA, GRAVITY, TABLE, ROUNDING, RESTITUTION = range(7)
"""Indices of the parameters in their vector."""


class BoxData(NamedTuple):
    """Structure, as the kernels read it."""

    dt: float
    nq: int
    nv: int
    nu: int
    sizes: Array
    """(3,) half edges [m]"""
    signs: Array
    """(n, 3)"""
    uniform: Array
    """(nv,): 1 for translations; for rotations the moments of a uniform box over its mass."""
    settle_speed: float
    strike_parts: int
    force_columns: NDArray[np.int64]
    """(nu,): indices of the velocities on which the controls act."""


@inner
def attitude(scene, q, R):  # type: ignore[no-untyped-def]
    """Rotation matrix of a pose, body to world, into R (3, 3)."""
    for i in range(3):
        for j in range(3):
            R[i, j] = 0.0
    if scene.nq == 3:
        c, s = np.cos(q[2]), np.sin(q[2])
        R[0, 0], R[0, 2], R[1, 1], R[2, 0], R[2, 2] = c, -s, 1.0, s, c
        return
    w, x, y, z = q[3], q[4], q[5], q[6]
    R[0, 0], R[0, 1], R[0, 2] = 1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)
    R[1, 0], R[1, 1], R[1, 2] = 2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)
    R[2, 0], R[2, 1], R[2, 2] = 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)


@inner
def gap(scene, q, R, p, corner):  # type: ignore[no-untyped-def]
    """Height of a rounded corner's lowest point over the table [m]: (p + R rho)_z - r, rho the centre of its ball."""
    height = q[1 if scene.nq == 3 else 2] - p[TABLE] - p[ROUNDING]
    for j in range(3):
        height += R[2, j] * scene.signs[corner, j] * (scene.sizes[j] - p[ROUNDING])
    return height


@inner
def contact_rows(scene, q, R, p, corner, rows):  # type: ignore[no-untyped-def]
    """Write a corner's contact Jacobian into rows (3, nv): its velocity along z, x and y at the table per velocity of the body.

    Along e, with the arm a from the centre, it is e . v + (R^T (a x e)) . w. All contacts are in the table's plane, so that
    corners that cannot move against each other do not.
    """
    a = np.zeros(3, R.dtype)
    for i in range(2):
        for j in range(3):
            a[i] += R[i, j] * scene.signs[corner, j] * (scene.sizes[j] - p[ROUNDING])
    a[2] = p[TABLE] - q[1 if scene.nq == 3 else 2]
    for k in range(3):
        axis = (k + 2) % 3  # z, x, y
        b, c = (axis + 1) % 3, (axis + 2) % 3
        cross = np.zeros(3, R.dtype)  # a x e
        cross[b], cross[c] = a[c], -a[b]
        for i in range(scene.nv):
            rows[k, i] = 0.0
        if scene.nq == 3:
            if axis != 1:
                rows[k, 0 if axis == 0 else 1] = 1.0
            rows[k, 2] = -cross[1]
        else:
            rows[k, axis] = 1.0
            for i in range(3):
                for j in range(3):
                    rows[k, 3 + i] += R[j, i] * cross[j]


@inner
def move(scene, q, v, after, t, whole, moved):  # type: ignore[no-untyped-def]
    """Pose after t of a step of length `whole` in which velocities change evenly from v to `after`, into `moved`.

    Rotations are exp of t w + t^2 (w_after - w) / (2 whole), in the body's frame.
    """
    way = np.empty(scene.nv, moved.dtype)
    share = 0.5 * t / whole
    for i in range(scene.nv):
        way[i] = t * (v[i] + share * (after[i] - v[i]))
    if scene.nq == 3:
        for i in range(3):
            moved[i] = q[i] + way[i]
        return
    for i in range(3):
        moved[i] = q[i] + way[i]
    square = 0.25 * (way[3] * way[3] + way[4] * way[4] + way[5] * way[5])
    if abs(square) < 1e-8:  # series: the square root has no derivative at zero
        c, s = 1 - square / 2 + square * square / 24, 0.5 * (1 - square / 6 + square * square / 120)
    else:
        angle = np.sqrt(square)
        c, s = np.cos(angle), 0.5 * np.sin(angle) / angle
    x, y, z = s * way[3], s * way[4], s * way[5]
    a, b, d, e = q[3], q[4], q[5], q[6]
    moved[3], moved[4] = a * c - b * x - d * y - e * z, a * x + b * c + d * z - e * y
    moved[5], moved[6] = a * y - b * z + d * c + e * x, a * z + b * y - d * x + e * c
    norm = np.sqrt(moved[3] * moved[3] + moved[4] * moved[4] + moved[5] * moved[5] + moved[6] * moved[6])
    for i in range(3, 7):
        moved[i] = moved[i] / norm
