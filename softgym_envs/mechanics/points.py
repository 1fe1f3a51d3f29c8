"""Constraints and points of a tree, row by row. Legend: B batch, n coordinates, m rows, P constants."""

from __future__ import annotations

import numpy as np

from ..core.numba_engine import kernel
from .constraints import gap_slopes, gaps, sweep
from .integrator import new_scratch, set_constants
from .kernels import new_links, place_links
from .vectors import add, mat, rotate, vec


@kernel
def constraint_values(s, q, constants, h, G):
    """h (B, m) and dh/dq (B, m, n) at rows q (B, n)."""
    w = new_scratch(s)
    for row in range(len(q)):
        set_constants(s, constants[row], w)
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
