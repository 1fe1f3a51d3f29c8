r"""Rest: configurations where all forces balance, with some coordinates held.

.. math:: L_q(q, 0) + \tau - h_q(q)^T \lambda = 0, \qquad h(q) = 0

by Newton's method with the exact second derivatives, its step cut to `LONGEST_STEP`. lambda in N and N m. Rest need not be
stable: the caller knows the branch it starts on. Numba caches compiled code per source file: after a change in a file that this
one uses, touch this one. Legend: B batch, n coordinates, m rows, P constants.
"""

from __future__ import annotations

import numpy as np

from ..core.numba_engine import inner, kernel
from ..core.simulator import Status
from .constraints import add_gap_curvature, gap_slopes, gaps
from .integrator import largest
from .kernels import curvature, place_links, prepare_curvature, slopes
from .linear import factor, solve
from .scratch import new_scratch, set_constants
from .vectors import screw, vec

LONGEST_STEP = 0.2
"""[rad, m]"""
TOLERANCE = 1e-10
"""Largest change of q and |h| at the end."""
MAX_ITERATIONS = 200

_OK, _UNSOLVED = int(Status.OK), int(Status.UNSOLVED)


@inner
def _balance(s, q, tau, lam, w, b):
    """b <- L_q + tau - G' lambda, h at q; places `end`."""
    n = len(s.parent)
    w.v[:] = 0.0
    place_links(s, q, w.end)
    slopes(s, w.values, w.scales, q, w.v, w.end, w.Lq, w.Lv)
    gaps(s, w.values, w.end, w.h)
    gap_slopes(s, w.values, w.end, w.G)
    for i in range(n):
        b[i] = w.Lq[i] + tau[i]
        for r in range(len(lam)):
            b[i] -= w.G[r, i] * lam[r]
    for r in range(len(lam)):
        b[n + r] = w.h[r]


@inner
def _matrix(s, held, lam, w):
    """K = [[Q - sum lambda h_qq, -G'], [G, 0]]; a held coordinate keeps its place."""
    n, K = len(s.parent), w.K
    prepare_curvature(s, w.values, w.end)
    K[:] = 0.0
    add_gap_curvature(s, w.values, w.end, lam, -1.0, K)
    for i in range(n):
        a, b, t, j = screw(w.end.a, i), screw(w.end.b, i), vec(w.end.t, i), i
        while j >= 0:
            _, _, _, Q = curvature(w.end.S, w.end.w, j, a, b, t)
            K[i, j] += Q
            if i != j:
                K[j, i] += Q
            j = s.parent[j]
        K[i, i] -= w.values[i]
        for r in range(len(lam)):
            K[i, n + r], K[n + r, i] = -w.G[r, i], w.G[r, i]
    for i in range(n):
        if held[i]:
            for j in range(K.shape[1]):
                K[i, j] = 0.0
            K[i, i] = 1.0


@kernel
def find_rest(s, held, tau, constants, q, lam, needed, status):
    """Move rows q (B, n) to rest with coordinates `held` (n,) where they are, under forces tau (B, n).

    Fills lambda (B, m), the forces `needed` (B, n) to hold what is held (zero elsewhere), and status (B,).
    """
    n, w = len(s.parent), new_scratch(s)
    for row in range(len(q)):
        set_constants(s, constants[row], w)
        status[row] = _UNSOLVED
        for _ in range(MAX_ITERATIONS):
            _balance(s, q[row], tau[row], lam[row], w, w.b)
            _matrix(s, held, lam[row], w)
            for i in range(n):
                if held[i]:
                    w.b[i] = 0.0
            if not factor(w.K, w.order):
                break
            solve(w.K, w.order, w.b)
            size = largest(w.b[:n])
            cut = min(1.0, LONGEST_STEP / max(size, 1e-300))
            for i in range(n):
                q[row, i] -= cut * w.b[i]
            for r in range(lam.shape[1]):
                lam[row, r] -= cut * w.b[n + r]
            if size <= TOLERANCE and largest(w.h) <= TOLERANCE:
                status[row] = _OK
                break
            if not np.isfinite(size):
                break
        _balance(s, q[row], tau[row], lam[row], w, w.b)
        for i in range(n):
            needed[row, i] = -w.b[i] if held[i] else 0.0
