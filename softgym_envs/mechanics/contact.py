r"""Contact of balls with pegs, without friction, as a potential: no case distinction in the integrator, and exact derivatives.

With r the centre of a ball, c + t Z, 0 <= t <= length, the nearest point of a peg's axis, n the unit vector from there, and the
depth phi = radii - |r - c - t Z|, a contact has the energy k psi(phi) and pushes the ball along n,

.. math::
   \psi' = \phi^2 / (2 \delta) \; (0 < \phi < \delta), \quad \phi - \delta / 2 \; (\phi \ge \delta), \qquad
   F = k \psi' n, \qquad \partial F / \partial r = k (\psi' \nabla n - \psi'' n n^T) = A

so energy is twice continuously differentiable. A point that joint i moves by u_i adds u_i . F to L_q and
u_j . A u_i + omega_j . (u_i x F) to its derivative. Friction and damping of the contact are left out.

Legend: n coordinates, np pegs; see `structure`.
"""

from __future__ import annotations

from ..engines.numba.engine import lean
from ..engines.numba.lanes import root, select, some
from .constraints import pose_axes, pose_start, pose_turns, scatter, sweep
from .vectors import add, cross, dot, mat, rotate, scaled, vec


@lean
def ball_centre(s, x, b):
    """Centre of a ball in the world."""
    j = s.ball_joint[b]
    return add(vec(x.at, j), rotate(mat(x.turn, j), vec(s.ball, b)))


@lean
def push(stiffness, softness, depth):
    """Energy, force and its slope at a depth > 0."""
    soft, square = depth < softness, depth * depth
    energy = softness**2 / 6.0 + 0.5 * (square - softness**2) - 0.5 * softness * (depth - softness)
    return (
        select(soft, stiffness * (square * depth) / (6.0 * softness), stiffness * energy),
        select(soft, stiffness * square / (2.0 * softness), stiffness * (depth - 0.5 * softness)),
        select(soft, stiffness * depth / softness, stiffness),
    )


@lean
def peg_axis(s, values, k):
    """Direction Z of peg k."""
    return pose_axes(s, values, len(s.weld) + k)[2]


@lean
def nearest(s, values, x, b, k, Z):
    """Depth of ball b in peg k, centre r, r - c, n, whether the side of the peg is touched (not an end), distance."""
    at, start = ball_centre(s, x, b), pose_start(s, len(s.weld) + k)
    d = (at[0] - values[start], at[1] - values[start + 1], at[2] - values[start + 2])
    t = dot(d, Z)
    side = (t > 0.0) & (t < s.peg[k, 0])
    along = select(side, t, select(t > 0.0, s.peg[k, 0], 0.0))
    off = add(d, scaled(-along, Z))
    length = root(dot(off, off))
    distance = select(length > 1e-9, length, 1e-9)
    return s.ball[b, 3] + s.peg[k, 1] - distance, at, d, scaled(1.0 / distance, off), side, distance


@lean
def contact_energy(s, values, x):
    """Energy of all contacts [J]."""
    total = 0.0
    for k in range(len(s.peg)):
        Z = peg_axis(s, values, k)
        for b in range(len(s.ball)):
            depth = nearest(s, values, x, b, k, Z)[0]
            if depth > 0.0:
                total += push(s.peg[k, 2], s.peg[k, 3], depth)[0]
    return total


@lean
def add_contacts(s, values, x, Lq):
    """Lq (n,) += u_i . F."""
    for k in range(len(s.peg)):
        Z = peg_axis(s, values, k)
        for b in range(len(s.ball)):
            depth, at, _, normal, _, _ = nearest(s, values, x, b, k, Z)
            if some(depth > 0.0):
                F = scaled(select(depth > 0.0, push(s.peg[k, 2], s.peg[k, 3], depth)[1], 0.0), normal)
                i = s.ball_joint[b]
                while i >= 0:
                    Lq[i] += dot(sweep(x, i, at), F)
                    i = s.parent[i]


@lean
def bend(u, normal, Z, side, distance, force, slope):
    """A u."""
    along = dot(normal, u)
    flat = add(u, scaled(-along, normal))
    flat = add(flat, scaled(select(side, -dot(Z, u), 0.0), Z))
    return add(scaled(force / distance, flat), scaled(-slope * along, normal))


@lean
def add_contact_curvature(s, values, x, factor, D):
    """D (n, n) += factor d2 L / dq2 of the contacts; -> whether there are any."""
    found = False
    for k in range(len(s.peg)):
        Z = peg_axis(s, values, k)
        for b in range(len(s.ball)):
            depth, at, _, normal, side, distance = nearest(s, values, x, b, k, Z)
            if not some(depth > 0.0):
                continue
            found = True
            _, force, slope = push(s.peg[k, 2], s.peg[k, 3], depth)
            force, slope = select(depth > 0.0, force, 0.0), select(depth > 0.0, slope, 0.0)
            i = s.ball_joint[b]
            while i >= 0:
                u = sweep(x, i, at)
                scatter(s, x, i, scaled(factor, cross(u, scaled(force, normal))), D)
                Au, j = scaled(factor, bend(u, normal, Z, side, distance, force, slope)), i
                while j >= 0:
                    value = dot(sweep(x, j, at), Au)
                    D[i, j] += value
                    if j != i:
                        D[j, i] += value
                    j = s.parent[j]
                i = s.parent[i]
    return found


@lean
def add_contact_columns(s, values, x, factor, columns):
    """columns (n, P) += factor d L_q / d pose of a peg: dF = -A dc, and a x F - A (a x (r - c)) for a turn about a."""
    for k in range(len(s.peg)):
        start, Z = pose_start(s, len(s.weld) + k), peg_axis(s, values, k)
        for b in range(len(s.ball)):
            depth, at, d, normal, side, distance = nearest(s, values, x, b, k, Z)
            if not some(depth > 0.0):
                continue
            _, force, slope = push(s.peg[k, 2], s.peg[k, 3], depth)
            force, slope = select(depth > 0.0, force, 0.0), select(depth > 0.0, slope, 0.0)
            axes = pose_turns(s, values, len(s.weld) + k)
            for entry in range(6):
                column = s.place[start + entry]
                if column < 0:
                    continue
                if entry < 3:
                    shift = (1.0 if entry == 0 else 0.0, 1.0 if entry == 1 else 0.0, 1.0 if entry == 2 else 0.0)
                    dF = scaled(-1.0, bend(shift, normal, Z, side, distance, force, slope))
                else:
                    axis = axes[entry - 3]
                    turned = bend(cross(axis, d), normal, Z, side, distance, force, slope)
                    dF = add(cross(axis, scaled(force, normal)), scaled(-1.0, turned))
                i = s.ball_joint[b]
                while i >= 0:
                    columns[i, column] += factor * dot(sweep(x, i, at), dF)
                    i = s.parent[i]
