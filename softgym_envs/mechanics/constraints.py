r"""Holonomic constraints h(q) = 0 of a tree, their Jacobian and their second derivative times multipliers.

A point r and an axis x of a link that joint i moves change by omega_i x r + v_i and omega_i x x; moving an ancestor j turns
these vectors by omega_j. So for any vector d_i of that kind

.. math::
   \partial d_i / \partial q_j = \omega_j \times d_i, \qquad
   \lambda \cdot (\omega_j \times d_i) = \omega_j \cdot (d_i \times \lambda)

Rows: weld (r - c, x.Y, x.Z, y.Z) with c, Y, Z of the pose; pin r_first - r_second; bond as a weld to the
second frame's pose.
Legend: n coordinates, m rows, nc constraints.
"""

from __future__ import annotations

from ..engines.numba.engine import lean
from .vectors import add, cross, dot, mat, rotate, scaled, times, turn, vec

NO_AXES = ((0.0, 0.0, 0.0),) * 4


@lean
def pose_start(s, c):
    """Index of the first of the six values of constraint c's pose."""
    return 5 * len(s.parent) + 3 + len(s.body) + 6 * c


@lean
def pose_axes(s, values, c):
    """Rotation of a weld's pose, R_z R_y R_x, column by column: X, Y, Z."""
    k = pose_start(s, c) + 3
    (cr, sr), (cp, sp), (cy, sy) = turn(values[k]), turn(values[k + 1]), turn(values[k + 2])
    X = (cp * cy, cp * sy, -sp)
    Y = (sr * sp * cy - cr * sy, sr * sp * sy + cr * cy, sr * cp)
    Z = (cr * sp * cy + sr * sy, cr * sp * sy - sr * cy, cr * cp)
    return X, Y, Z


@lean
def pose_turns(s, values, c):
    """World axes about which the pose turns when its roll, pitch, yaw change."""
    k = pose_start(s, c) + 3
    (cp, sp), (cy, sy) = turn(values[k + 1]), turn(values[k + 2])
    zero = 0.0 * cp + 0.0  # a vector if the pose is
    return (cp * cy, cp * sy, -sp), (-sy, cy, zero), (zero, zero, zero + 1.0)


@lean
def end_point(s, x, c, side):
    """Origin of a constraint's frame in the world."""
    j = s.ends[c, side]
    point = vec(s.point[c], side)
    return point if j < 0 else add(vec(x.at, j), rotate(mat(x.turn, j), point))


@lean
def end_axes(s, x, c, side):
    """Axes x, y, z of a constraint's frame in the world."""
    R, j = mat(s.facing[c], side), s.ends[c, side]
    if j >= 0:
        R = times(mat(x.turn, j), R)
    return (R[0], R[3], R[6]), (R[1], R[4], R[7]), (R[2], R[5], R[8])


@lean
def held_axes(s, values, x, c):
    """Axes x, y of the frame of a weld or bond, and Y, Z that they are held to."""
    ex, ey, _ = end_axes(s, x, c, 0)
    if s.weld[c]:
        _, Y, Z = pose_axes(s, values, c)
    else:
        _, Y, Z = end_axes(s, x, c, 1)
    return ex, ey, Y, Z


@lean
def turns(s, c):
    """Whether a constraint holds a rotation: a weld or bond, not a pin."""
    return s.row[c + 1] - s.row[c] == 6


@lean
def sweep(x, i, r):
    """omega_i x r + v_i: derivative of a point of the world by q_i."""
    return add(cross(vec(x.S, i), r), (x.S[i, 3], x.S[i, 4], x.S[i, 5]))


@lean
def gaps(s, values, x, h):
    """Fill h (m,) at the positions of the links."""
    for c in range(len(s.weld)):
        row, first = s.row[c], end_point(s, x, c, 0)
        if s.weld[c]:
            k = pose_start(s, c)
            second = (values[k], values[k + 1], values[k + 2])
        else:
            second = end_point(s, x, c, 1)
        if turns(s, c):
            ex, ey, Y, Z = held_axes(s, values, x, c)
            h[row + 3], h[row + 4], h[row + 5] = dot(ex, Y), dot(ex, Z), dot(ey, Z)
        for k in range(3):
            h[row + k] = first[k] - second[k]


@lean
def gap_slopes(s, values, x, G):
    """Fill G (m, n) with dh / dq."""
    for row in range(G.shape[0]):
        for i in range(G.shape[1]):
            G[row, i] = 0.0
    for c in range(len(s.weld)):
        row = s.row[c]
        for side in range(1 if s.weld[c] else 2):
            r, sign = end_point(s, x, c, side), 1.0 - 2.0 * side
            i = s.ends[c, side]
            while i >= 0:
                u = sweep(x, i, r)
                for k in range(3):
                    G[row + k, i] += sign * u[k]
                i = s.parent[i]
        if turns(s, c):
            _turn_slopes(s, values, x, c, G)


@lean
def _turn_slopes(s, values, x, c, G):
    """Add to the rows of a weld or bond that hold its rotation."""
    ex, ey, Y, Z = held_axes(s, values, x, c)
    row, i = s.row[c], s.ends[c, 0]
    while i >= 0:
        omega = vec(x.S, i)
        dx, dy = cross(omega, ex), cross(omega, ey)
        G[row + 3, i] += dot(dx, Y)
        G[row + 4, i] += dot(dx, Z)
        G[row + 5, i] += dot(dy, Z)
        i = s.parent[i]
    i = -1 if s.weld[c] else s.ends[c, 1]
    while i >= 0:
        omega = vec(x.S, i)
        dY, dZ = cross(omega, Y), cross(omega, Z)
        G[row + 3, i] += dot(ex, dY)
        G[row + 4, i] += dot(ex, dZ)
        G[row + 5, i] += dot(ey, dZ)
        i = s.parent[i]


@lean
def add_gap_curvature(s, values, x, lam, factor, D):
    """D (n, n) += factor sum_r lambda_r d2 h_r / dq2."""
    for c in range(len(s.weld)):
        row = s.row[c]
        held = held_axes(s, values, x, c) if turns(s, c) else NO_AXES
        for side in range(1 if s.weld[c] else 2):
            r, sign = end_point(s, x, c, side), 1.0 - 2.0 * side
            force = scaled(sign * factor, (lam[row], lam[row + 1], lam[row + 2]))
            i = s.ends[c, side]
            while i >= 0:
                d = cross(sweep(x, i, r), force)
                if turns(s, c):
                    d = add(d, scaled(factor, _turn_bend(s, x, c, side, held, i, lam)))
                scatter(s, x, i, d, D)
                i = s.parent[i]
        if turns(s, c) and not s.weld[c]:
            _add_mixed_bend(s, values, x, c, lam, factor, D)


@lean
def _turn_bend(s, x, c, side, held, i, lam):
    """sum_r d_i x lambda_r over the rotation rows of a weld or bond, with d_i = omega_i x (axis of this side's frame)."""
    ex, ey, Y, Z = held
    row, omega = s.row[c], vec(x.S, i)
    if side == 0:
        mixed = add(scaled(lam[row + 3], Y), scaled(lam[row + 4], Z))
        return add(cross(cross(omega, ex), mixed), cross(cross(omega, ey), scaled(lam[row + 5], Z)))
    mixed = add(scaled(lam[row + 4], ex), scaled(lam[row + 5], ey))
    return add(cross(cross(omega, Y), scaled(lam[row + 3], ex)), cross(cross(omega, Z), mixed))


@lean
def _add_mixed_bend(s, values, x, c, lam, factor, D):
    """Second derivatives of a bond's rotation rows, by a joint of each side's path."""
    ex, ey, Y, Z = held_axes(s, values, x, c)
    row, i = s.row[c], s.ends[c, 0]
    while i >= 0:
        dx, dy = cross(vec(x.S, i), ex), cross(vec(x.S, i), ey)
        j = s.ends[c, 1]
        while j >= 0:
            dY, dZ = cross(vec(x.S, j), Y), cross(vec(x.S, j), Z)
            value = lam[row + 3] * dot(dx, dY) + lam[row + 4] * dot(dx, dZ) + lam[row + 5] * dot(dy, dZ)
            D[i, j] += factor * value
            D[j, i] += factor * value
            j = s.parent[j]
        i = s.parent[i]


@lean
def scatter(s, x, i, d, D):
    """D_ij and D_ji += omega_j . d for j = i and its ancestors."""
    j = i
    while j >= 0:
        value = dot(vec(x.S, j), d)
        D[i, j] += value
        if j != i:
            D[j, i] += value
        j = s.parent[j]


@lean
def pose_slopes(s, values, x, c, angle):
    """d(x.Y, x.Z, y.Z) / d(roll, pitch or yaw of the pose) of weld c."""
    axis = pose_turns(s, values, c)[angle]
    _, Y, Z = pose_axes(s, values, c)
    ex, ey, _ = end_axes(s, x, c, 0)
    return dot(ex, cross(axis, Y)), dot(ex, cross(axis, Z)), dot(ey, cross(axis, Z))


@lean
def pose_bend(s, x, c, held, axis, i, lam):
    """d(sum_r lambda_r dh_r / dq_i) / d(an angle of the pose, about `axis`) of weld c with these `held_axes`."""
    ex, ey, Y, Z = held
    row, omega = s.row[c], vec(x.S, i)
    dx, dy = cross(omega, ex), cross(omega, ey)
    dY, dZ = cross(axis, Y), cross(axis, Z)
    return lam[row + 3] * dot(dx, dY) + lam[row + 4] * dot(dx, dZ) + lam[row + 5] * dot(dy, dZ)
