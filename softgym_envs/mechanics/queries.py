"""Queries of a tree from Python, row by row: energies, derivatives, poses, points, constraints.

Legend: B batch, n coordinates, m rows, P parameters.
"""

from __future__ import annotations

import numpy as np

from ..engines.numba.engine import kernel
from .constraints import gap_slopes, gaps, sweep
from .contact import add_contact_curvature, contact_energy
from .kernels import (
    body_scales,
    curvature,
    gather_momentum,
    gravity,
    move_links,
    new_links,
    place_links,
    prepare_curvature,
    read_values,
    slopes,
)
from .scratch import new_scratch, set_constants
from .stops import stop_energy, stop_stiffness
from .vectors import add, along, dot, mat, put, rotate, screw, vec


@kernel
def lagrangian(s, q, v, parameter_values):
    """L = kinetic - potential energy of rows q, v (B, n), parameters (B, P): both energies (B, 2) [J]."""
    n = len(s.parent)
    energies = np.zeros((len(q), 2))
    x, values, scales = new_links(s), np.empty(len(s.base)), np.empty(len(s.body))
    for row in range(len(q)):
        read_values(s, parameter_values[row], values)
        body_scales(s, values, scales)
        place_links(s, q[row], x)
        move_links(s, v[row], x)
        gather_momentum(s, scales, x)
        g = gravity(s, values)
        energies[row, 1] += contact_energy(s, values, x) + stop_energy(s, q[row])
        for i in range(n):
            energies[row, 0] += 0.5 * v[row, i] * (along(x.S, i, x.H, i) + values[3 * n + i] * v[row, i])
            energies[row, 1] += 0.5 * values[i] * (q[row, i] - values[n + i]) ** 2
            if s.parent[i] < 0:
                energies[row, 1] -= dot(g, (x.mass[i, 1], x.mass[i, 2], x.mass[i, 3]))
    return energies


@kernel
def derivatives(s, q, v, parameter_values, Lq, Lv, Q, C, M):
    """First derivatives (B, n) and second derivatives (B, n, n) of L at rows q, v (B, n), parameters (B, P)."""
    x, values, scales = new_links(s), np.empty(len(s.base)), np.empty(len(s.body))
    for row in range(len(q)):
        read_values(s, parameter_values[row], values)
        body_scales(s, values, scales)
        place_links(s, q[row], x)
        slopes(s, values, scales, q[row], v[row], x, Lq[row], Lv[row])
        prepare_curvature(s, values, scales, x)
        Q[row], C[row], M[row] = 0.0, 0.0, 0.0
        for i in range(len(s.parent)):
            a, b, t, j = screw(x.a, i), screw(x.b, i), vec(x.t, i), i
            while j >= 0:
                M[row, i, j], C[row, i, j], C[row, j, i], Q[row, i, j] = curvature(x.S, x.w, j, a, b, t)
                M[row, j, i], Q[row, j, i] = M[row, i, j], Q[row, i, j]
                j = s.parent[j]
            M[row, i, i] += values[3 * len(s.parent) + i]
            Q[row, i, i] -= values[i]
        add_contact_curvature(s, values, x, 1.0, Q[row])
        for k in range(len(s.stopped)):
            Q[row, s.stopped[k], s.stopped[k]] -= stop_stiffness(s, k, q[row])


@kernel
def link_poses(s, q):
    """Rotations (B, n, 3, 3) and origins (B, n, 3) of the links at rows q (B, n)."""
    n, x = len(s.parent), new_links(s)
    turns, origins = np.empty((len(q), n, 3, 3)), np.empty((len(q), n, 3))
    for row in range(len(q)):
        place_links(s, q[row], x)
        for i in range(n):
            for k in range(9):
                turns[row, i, k // 3, k % 3] = x.turn[i, k]
            put(origins[row], i, 0, vec(x.at, i))
    return turns, origins


@kernel
def frame_places(s, q, joint, origin):
    """Positions (B, 3) of a point that rides on `joint` at `origin` (3,), at rows q (B, n)."""
    x, places = new_links(s), np.empty((len(q), 3))
    for row in range(len(q)):
        place_links(s, q[row], x)
        put(places, row, 0, add(vec(x.at, joint), rotate(mat(x.turn, joint), (origin[0], origin[1], origin[2]))))
    return places


@kernel
def link_origins(s, q):
    """Origins (B, n, 3) of the links at rows q (B, n)."""
    n, x = len(s.parent), new_links(s)
    origins = np.empty((len(q), n, 3))
    for row in range(len(q)):
        place_links(s, q[row], x)
        origins[row] = x.at
    return origins


@kernel
def constraint_values(s, q, parameter_values, h, G):
    """h (B, m) and dh/dq (B, m, n) at rows q (B, n)."""
    w = new_scratch(s)
    for row in range(len(q)):
        set_constants(s, parameter_values[row], w)
        place_links(s, q[row], w.end)
        gaps(s, w.values, w.end, h[row])
        gap_slopes(s, w.values, w.end, G[row])


@kernel
def point_slopes(s, q, joint, origin):
    """Jacobian (B, 3, n) of a point that rides on `joint` at `origin` (3,), at rows q (B, n)."""
    found, x = np.zeros((len(q), 3, q.shape[1])), new_links(s)
    for row in range(len(q)):
        place_links(s, q[row], x)
        i = joint
        while i >= 0:
            r = add(vec(x.at, joint), rotate(mat(x.turn, joint), (origin[0], origin[1], origin[2])))
            u = sweep(x, i, r)
            for k in range(3):
                found[row, k, i] = u[k]
            i = s.parent[i]
    return found
