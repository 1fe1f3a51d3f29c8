"""Memory of one row's step, and the parameters and forces that are set in it beforehand.

Legend: n coordinates, nb bodies, m constraint rows, nu controls, P parameters, V values.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.simulator import Array
from ..engines.numba.engine import inner, lean
from .kernels import Links, body_scales, new_links, read_values
from .linear import SPARE


class Scratch(NamedTuple):
    """Memory of one row's step; `values`, `scales`, `tau` and `length` are set before the step, which fills the rest."""

    mid: Links
    """Links at q_m."""
    end: Links
    """Links at q, later at q^+."""
    values: Array
    """(V,)"""
    scales: Array
    """(nb,)"""
    tau: Array
    """(n,) B u + offset."""
    length: Array
    """(1,) length of the step [s]: dt, unless it is a part of one."""
    q: Array
    """(n,) q_m."""
    v: Array
    """(n,)"""
    Lq: Array
    """(n,)"""
    Lv: Array
    """(n,)"""
    h: Array
    """(m,)"""
    G: Array
    """(m, n) at q."""
    G1: Array
    """(m, n) at q^+."""
    K: Array
    """(n + m, n + m + 3) factors, in the order of `elimination`."""
    order: NDArray[np.int64]
    """(n + m,)"""
    b: Array
    """(n + m,)"""
    r: Array
    """(n,)"""
    rows: Array
    """(14, n): the entries of all S and w, one after the other, and two rows of K."""
    touch: Array
    """(n, n) curvature of contacts; (0, 0) without pegs."""


@inner
def new_scratch(s):
    """Empty memory."""
    n, m = len(s.parent), s.row[-1]
    nt = n if len(s.peg) > 0 else 0
    return Scratch(
        new_links(s), new_links(s), np.zeros(len(s.base)), np.zeros(len(s.body)), np.zeros(n), np.full(1, s.dt), np.zeros(n),
        np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(m), np.zeros((m, n)), np.zeros((m, n)),
        np.zeros((n + m, n + m + SPARE)), np.zeros(n + m, np.int64), np.zeros(n + m), np.zeros(n), np.zeros((14, n)),
        np.zeros((nt, nt)),
    )  # fmt: skip


@lean
def set_constants(s, parameter_values, w):
    """Set values and scales from one row's parameters (P,)."""
    read_values(s, parameter_values, w.values)
    body_scales(s, w.values, w.scales)


@lean
def set_forces(s, u, w):
    """Set tau = B u + offset."""
    n = len(s.parent)
    for i in range(n):
        w.tau[i] = w.values[4 * n + i]
    for k in range(len(s.actuated)):
        w.tau[s.actuated[k]] += u[k]


@lean
def force(s, w, i):
    """f_i = tau_i - d v_i - f tanh(v_i / w) at the midpoint."""
    found = w.tau[i] - w.values[2 * len(s.parent) + i] * w.v[i]
    dry = friction(s, w, i)
    return found if dry == 0.0 else found - dry * np.tanh(w.v[i] / s.slip[i])


@lean
def resistance(s, w, i):
    """-df_i / dv_i at the midpoint: damping plus the share of dry friction."""
    found, dry = w.values[2 * len(s.parent) + i], friction(s, w, i)
    return found if dry == 0.0 else found + dry / s.slip[i] * (1.0 - np.tanh(w.v[i] / s.slip[i]) ** 2)


@lean
def secant_resistance(s, w, i):
    """f_i / -v_i of damping and dry friction at the midpoint: at least `resistance`, and equal to it at rest."""
    found, dry, x = w.values[2 * len(s.parent) + i], friction(s, w, i), w.v[i] / s.slip[i]
    return found + dry / s.slip[i] * (np.tanh(x) / x if abs(x) > 1e-8 else 1.0)


@lean
def friction(s, w, i):
    """Dry friction of a joint."""
    return w.values[len(s.base) - len(s.parent) + i]
