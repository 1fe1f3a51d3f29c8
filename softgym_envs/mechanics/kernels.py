r"""The Lagrangian of a tree and its first and second derivatives in closed form, by one recursion in the world's frame.

With screws at the world's origin, S_i = (omega, v) of joint i, and sums over the bodies beyond joint i: inertia I_i, momentum
H_i, first moment (M c)_i, mass M_i; V_i the screw velocity of link i, and w_i = V_{parent(i)} x S_i:

.. math::
   L_{v,i} = S_i \cdot H_i + a_i v_i, \qquad
   L_{q,i} = w_i \cdot H_i + g \cdot F_i - k_i (q_i - q_{0,i}), \qquad F_i = \omega_i \times (M c)_i + M_i v_i

and with b_i = I_i S_i, a_i = S_i x* H_i + I_i w_i, t_i = F_i x g, for j = i or an ancestor of i:

.. math::
   M_{ij} = S_j \cdot b_i, \quad C_{ij} = \partial L_{q,i} / \partial v_j = S_j \cdot a_i, \quad C_{ji} = w_j \cdot b_i, \quad
   Q_{ij} = \partial^2 L / \partial q_i \partial q_j = w_j \cdot a_i + \omega_j \cdot t_i - [i = j] k_i

All other entries vanish. Contacts add theirs (`contact`).
Numba caches compiled code per source file: after a change here, delete `__pycache__`.
Legend: n coordinates, nb bodies, V values.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.simulator import Array
from ..engines.numba.engine import inner, lean
from ..engines.numba.lanes import some, zeros
from .contact import add_contacts
from .stops import add_stops
from .vectors import add, along, cross, dot, mat, put, rotate, rotate_back, scaled, times, turned, turns, vec


class Links(NamedTuple):
    """Positions and motions of the links: scratch memory of one configuration."""

    cosine: Array
    """(n,) cosine of the coordinates."""
    sine: Array
    """(n,)"""
    turn: Array
    """(n, 9) rotation of a link."""
    at: Array
    """(n, 3) origin of a link [m]."""
    S: Array
    """(n, 6) screw of a joint."""
    V: Array
    """(n, 6) screw velocity of a link."""
    w: Array
    """(n, 6) V_parent x S."""
    mass: Array
    """(n, 10) for a link and all beyond it: mass, first moment (3), inertia about the origin (xx, xy, xz, yy, yz, zz)."""
    H: Array
    """(n, 6) their momentum: angular, linear."""
    a: Array
    """(n, 6)"""
    b: Array
    """(n, 6)"""
    t: Array
    """(n, 3)"""


class LinkPlaces(NamedTuple):
    """Positions of `Links`: all that `place_links` writes, also for a `structure.Skeleton`."""

    cosine: Array
    """(n,)"""
    sine: Array
    """(n,)"""
    turn: Array
    """(n, 9)"""
    at: Array
    """(n, 3) [m]"""
    S: Array
    """(n, 6)"""


@inner
def new_places(s):
    """Empty scratch memory of `place_links`."""
    n = len(s.parent)
    return LinkPlaces(np.empty(n), np.empty(n), np.empty((n, 9)), np.empty((n, 3)), np.empty((n, 6)))


@inner
def new_links(s, zero=0.0):
    """Empty scratch memory for numbers like `zero`."""
    n = len(s.parent)
    return Links(
        zeros(n, zero), zeros(n, zero), zeros((n, 9), zero), zeros((n, 3), zero), zeros((n, 6), zero), zeros((n, 6), zero),
        zeros((n, 6), zero), zeros((n, 10), zero), zeros((n, 6), zero), zeros((n, 6), zero), zeros((n, 6), zero),
        zeros((n, 3), zero),
    )  # fmt: skip


@lean
def read_values(s, parameter_values, values):
    """Fill values (V,) from one row's parameters (P,)."""
    for k in range(len(s.base)):
        values[k] = s.base[k] if s.place[k] < 0 else parameter_values[s.place[k]]


@lean
def body_scales(s, values, scales):
    """Fill scales (nb,)."""
    for k in range(len(scales)):
        scales[k] = values[5 * len(s.parent) + 3 + k]


@lean
def gravity(s, values):
    """Gravity g [m/s^2]."""
    k = 5 * len(s.parent)
    return values[k], values[k + 1], values[k + 2]


@lean
def place_links(s, q, x):
    """Rotation R_i = R_parent (turn_0 + cos(q) turn_1 + sin(q) turn_2), origin and screw of every joint."""
    turns(q, x.cosine, x.sine)
    for i in range(len(s.parent)):
        T, c, sn = s.turn[i], x.cosine[i], x.sine[i]
        R = (
            T[0, 0] + c * T[1, 0] + sn * T[2, 0], T[0, 1] + c * T[1, 1] + sn * T[2, 1], T[0, 2] + c * T[1, 2] + sn * T[2, 2],
            T[0, 3] + c * T[1, 3] + sn * T[2, 3], T[0, 4] + c * T[1, 4] + sn * T[2, 4], T[0, 5] + c * T[1, 5] + sn * T[2, 5],
            T[0, 6] + c * T[1, 6] + sn * T[2, 6], T[0, 7] + c * T[1, 7] + sn * T[2, 7], T[0, 8] + c * T[1, 8] + sn * T[2, 8],
        )  # fmt: skip
        axis, at = vec(s.axis, i), vec(s.origin, i)
        if s.prismatic[i]:
            at = add(at, scaled(q[i], axis))
        j = s.parent[i]
        if j >= 0:
            P = mat(x.turn, j)
            R, axis, at = times(P, R), rotate(P, axis), add(vec(x.at, j), rotate(P, at))
        for k in range(9):
            x.turn[i, k] = R[k]
        put(x.at, i, 0, at)
        put(x.S, i, 0, (0.0, 0.0, 0.0) if s.prismatic[i] else axis)
        put(x.S, i, 3, axis if s.prismatic[i] else cross(at, axis))


@lean
def move_links(s, v, x):
    """V_i = V_parent + S_i v_i and w_i = V_parent x S_i."""
    for i in range(len(s.parent)):
        j = s.parent[i]
        omega, linear = (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)
        if j >= 0:
            omega, linear = vec(x.V, j), (x.V[j, 3], x.V[j, 4], x.V[j, 5])
        turn, shift = vec(x.S, i), (x.S[i, 3], x.S[i, 4], x.S[i, 5])
        put(x.w, i, 0, cross(omega, turn))
        put(x.w, i, 3, add(cross(omega, shift), cross(linear, turn)))
        put(x.V, i, 0, add(omega, scaled(v[i], turn)))
        put(x.V, i, 3, add(linear, scaled(v[i], shift)))


@lean
def gather_momentum(s, scales, x):
    """Mass, first moment and momentum of every link and all beyond it, with bodies (nb,) times `scales`."""
    for i in range(len(s.parent)):
        for k in range(4):
            x.mass[i, k] = 0.0
        for k in range(6):
            x.H[i, k] = 0.0
    for k in range(len(s.body)):
        if some(scales[k] != 0.0):
            _add_momentum(s, scales[k], k, x)
    for i in range(len(s.parent) - 1, -1, -1):
        j = s.parent[i]
        if j >= 0:
            for k in range(4):
                x.mass[j, k] += x.mass[i, k]
            for k in range(6):
                x.H[j, k] += x.H[i, k]


@lean
def _add_momentum(s, scale, k, x):
    """Add body k to the sums of its link: m, m c, R I R' omega + c x m v_c, m v_c."""
    i = s.body[k]
    R, m, omega = mat(x.turn, i), scale * s.mass[k], vec(x.V, i)
    c = add(vec(x.at, i), rotate(R, vec(s.com, k)))
    push = scaled(m, add((x.V[i, 3], x.V[i, 4], x.V[i, 5]), cross(omega, c)))
    spin = rotate(R, rotate(mat(s.inertia, k), rotate_back(R, omega)))
    angular = add(scaled(scale, spin), cross(c, push))
    x.mass[i, 0] += m
    for a in range(3):
        x.mass[i, 1 + a] += m * c[a]
        x.H[i, a] += angular[a]
        x.H[i, 3 + a] += push[a]


@lean
def gather_inertia(s, scales, x):
    """Inertia of every link and all beyond it, with bodies (nb,) times `scales`."""
    for i in range(len(s.parent)):
        for k in range(4, 10):
            x.mass[i, k] = 0.0
    for k in range(len(s.body)):
        if some(scales[k] != 0.0):
            _add_inertia(s, scales[k], k, x)
    for i in range(len(s.parent) - 1, -1, -1):
        j = s.parent[i]
        if j >= 0:
            for k in range(4, 10):
                x.mass[j, k] += x.mass[i, k]


@lean
def _add_inertia(s, scale, k, x):
    """Add body k to the inertia of its link: R I R' + m (c.c 1 - c c') about the world's origin."""
    i = s.body[k]
    R = mat(x.turn, i)
    c = add(vec(x.at, i), rotate(R, vec(s.com, k)))
    m, A = s.mass[k], turned(R, mat(s.inertia, k))
    x.mass[i, 4] += scale * (A[0] + m * (c[1] * c[1] + c[2] * c[2]))
    x.mass[i, 5] += scale * (A[1] - m * c[0] * c[1])
    x.mass[i, 6] += scale * (A[2] - m * c[0] * c[2])
    x.mass[i, 7] += scale * (A[3] + m * (c[0] * c[0] + c[2] * c[2]))
    x.mass[i, 8] += scale * (A[4] - m * c[1] * c[2])
    x.mass[i, 9] += scale * (A[5] + m * (c[0] * c[0] + c[1] * c[1]))


@lean
def _inertia_times(x, i, omega, linear):
    """I_i (omega, linear): angular I omega + Mc x v and linear M v + omega x Mc momentum."""
    m, moment = x.mass[i, 0], (x.mass[i, 1], x.mass[i, 2], x.mass[i, 3])
    xx, xy, xz, yy, yz, zz = x.mass[i, 4], x.mass[i, 5], x.mass[i, 6], x.mass[i, 7], x.mass[i, 8], x.mass[i, 9]
    spun = (
        xx * omega[0] + xy * omega[1] + xz * omega[2],
        xy * omega[0] + yy * omega[1] + yz * omega[2],
        xz * omega[0] + yz * omega[1] + zz * omega[2],
    )
    return add(spun, cross(moment, linear)), add(scaled(m, linear), cross(omega, moment))


@lean
def lift(x, i):
    """F_i = omega_i x (M c)_i + M_i v_i: derivative of gravity's work by q_i, per g."""
    moment = (x.mass[i, 1], x.mass[i, 2], x.mass[i, 3])
    return add(cross(vec(x.S, i), moment), scaled(x.mass[i, 0], (x.S[i, 3], x.S[i, 4], x.S[i, 5])))


@lean
def body_slopes(s, g, x, Lq, Lv):
    """Parts of L_q and L_v (n,) that belong to the bodies: w_i . H_i + g . F_i and S_i . H_i."""
    for i in range(len(s.parent)):
        Lq[i] = along(x.w, i, x.H, i) + dot(g, lift(x, i))
        Lv[i] = along(x.S, i, x.H, i)


@lean
def slopes(s, values, scales, q, v, x, Lq, Lv):
    """L_q and L_v (n,) at q, v (n,), where x is placed; fills the rest of x."""
    n = len(s.parent)
    move_links(s, v, x)
    gather_momentum(s, scales, x)
    body_slopes(s, gravity(s, values), x, Lq, Lv)
    for i in range(n):
        Lq[i] -= values[i] * (q[i] - values[n + i])
        Lv[i] += values[3 * n + i] * v[i]
    add_contacts(s, values, x, Lq)
    add_stops(s, q, Lq)


@lean
def prepare_curvature(s, values, scales, x):
    """b_i = I_i S_i, a_i = S_i x* H_i + I_i w_i, t_i = F_i x g."""
    g = gravity(s, values)
    gather_inertia(s, scales, x)
    for i in range(len(s.parent)):
        turn, shift = vec(x.S, i), (x.S[i, 3], x.S[i, 4], x.S[i, 5])
        spin, push = vec(x.H, i), (x.H[i, 3], x.H[i, 4], x.H[i, 5])
        angular, linear = _inertia_times(x, i, turn, shift)
        put(x.b, i, 0, angular)
        put(x.b, i, 3, linear)
        angular, linear = _inertia_times(x, i, vec(x.w, i), (x.w[i, 3], x.w[i, 4], x.w[i, 5]))
        put(x.a, i, 0, add(angular, add(cross(turn, spin), cross(shift, push))))
        put(x.a, i, 3, add(linear, cross(turn, push)))
        put(x.t, i, 0, cross(lift(x, i), g))


@lean
def curvature(S, w, j, a, b, t):
    """M_ij, C_ij, C_ji, Q_ij of the bodies, for j = i or an ancestor of i, from a_i, b_i, t_i."""
    S0, S1, S2, S3, S4, S5 = S[j, 0], S[j, 1], S[j, 2], S[j, 3], S[j, 4], S[j, 5]
    w0, w1, w2, w3, w4, w5 = w[j, 0], w[j, 1], w[j, 2], w[j, 3], w[j, 4], w[j, 5]
    return (
        S0 * b[0] + S1 * b[1] + S2 * b[2] + S3 * b[3] + S4 * b[4] + S5 * b[5],
        S0 * a[0] + S1 * a[1] + S2 * a[2] + S3 * a[3] + S4 * a[4] + S5 * a[5],
        w0 * b[0] + w1 * b[1] + w2 * b[2] + w3 * b[3] + w4 * b[4] + w5 * b[5],
        w0 * a[0] + w1 * a[1] + w2 * a[2] + w3 * a[3] + w4 * a[4] + w5 * a[5] + S0 * t[0] + S1 * t[1] + S2 * t[2],
    )
