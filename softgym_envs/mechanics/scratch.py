"""Memory of one row's step, and the parameters and forces that are set in it beforehand.

Legend: n coordinates, nb bodies, m constraint rows, nu controls, P parameters, V values.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.simulator import Array
from ..engines.numba.engine import inner, lean
from ..engines.numba.lanes import another, select, size, some, tanh, zeros
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
    fresh: Array
    """K while it is factorised: for one row the same memory, for several another, of which some rows are then taken."""
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
def new_scratch(s, zero=0.0):
    """Empty memory for numbers like `zero`."""
    n, m = len(s.parent), s.row[-1]
    nt = n if len(s.peg) > 0 else 0
    K = zeros((n + m, n + m + SPARE), zero)
    return Scratch(
        new_links(s, zero), new_links(s, zero), zeros(len(s.base), zero), zeros(len(s.body), zero), zeros(n, zero),
        np.full(1, s.dt), zeros(n, zero), zeros(n, zero), zeros(n, zero), zeros(n, zero), zeros(m, zero), zeros((m, n), zero),
        zeros((m, n), zero), K, another(K, zero), np.zeros(n + m, np.int64), zeros(n + m, zero), zeros(n, zero),
        zeros((14, n), zero), zeros((nt, nt), zero),
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
    found, dry = w.tau[i] - w.values[2 * len(s.parent) + i] * w.v[i], friction(s, w, i)
    if some(dry != 0.0):
        found = found - dry * tanh(w.v[i] / s.slip[i])
    return found


@lean
def resistance(s, w, i):
    """-df_i / dv_i at the midpoint: damping plus the share of dry friction."""
    found, dry = w.values[2 * len(s.parent) + i], friction(s, w, i)
    if some(dry != 0.0):
        share = tanh(w.v[i] / s.slip[i])
        found = found + dry / s.slip[i] * (1.0 - share * share)
    return found


@lean
def secant_resistance(s, w, i):
    """f_i / -v_i of damping and dry friction at the midpoint: at least `resistance`, and equal to it at rest."""
    found, dry, x = w.values[2 * len(s.parent) + i], friction(s, w, i), w.v[i] / s.slip[i]
    return found + dry / s.slip[i] * select(size(x) > 1e-8, tanh(x) / x, 1.0)


@lean
def friction(s, w, i):
    """Dry friction of a joint."""
    return w.values[len(s.base) - len(s.parent) + i]
