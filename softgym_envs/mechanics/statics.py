r"""Rest: configurations where all forces balance, with some coordinates held.

.. math:: L_q(q, 0) + \tau - h_q(q)^T \lambda = 0, \qquad h(q) = 0

by Newton's method with the exact second derivatives, its step cut to `MAX_NEWTON_STEP`. lambda in N and N m. Rest need not be
stable: the caller knows the branch it starts on. Legend: B batch, n coordinates, m rows, P parameters.
"""

from __future__ import annotations

import numpy as np

from ..core.simulator import Status
from ..engines.numba.engine import kernel, lean
from .constraints import add_gap_curvature, gap_slopes, gaps
from .contact import add_contact_curvature
from .integrator import largest
from .kernels import curvature, place_links, prepare_curvature, slopes
from .linear import factor, factor_any, solve
from .scratch import new_scratch, set_constants
from .stops import stop_stiffness
from .vectors import screw, vec

MAX_NEWTON_STEP = 0.2
"""Longest step of Newton's method [rad, m]."""
REST_TOLERANCE = 1e-10
"""Largest change of q and |h| at the end."""
REST_ITERATIONS = 200

_OK, _UNSOLVED = int(Status.OK), int(Status.UNSOLVED)


@lean
def _balance(s, q, tau, lam, w):
    """w.b <- L_q + tau - G' lambda, h at q, in the order of K; places `end`."""
    n, b = len(s.parent), w.b
    w.v[:] = 0.0
    place_links(s, q, w.end)
    slopes(s, w.values, w.scales, q, w.v, w.end, w.Lq, w.Lv)
    gaps(s, w.values, w.end, w.h)
    gap_slopes(s, w.values, w.end, w.G)
    for i in range(n):
        a = s.slot[i]
        b[a] = w.Lq[i] + tau[i]
        for r in range(len(lam)):
            b[a] -= w.G[r, i] * lam[r]
    for r in range(len(lam)):
        b[s.slot[n + r]] = w.h[r]


@lean
def _matrix(s, q, held, lam, w, D):
    """K = [[Q - sum lambda h_qq, -G'], [G, 0]]; a held coordinate keeps its place. D (n, n) is memory.

    A bond's curvature by joints of both its sides is left out: steps to rest are slightly inexact, rest is not.
    """
    n, K, slot = len(s.parent), w.K, s.slot
    prepare_curvature(s, w.values, w.scales, w.end)
    K[:], D[:] = 0.0, 0.0
    add_gap_curvature(s, w.values, w.end, lam, -1.0, D)
    add_contact_curvature(s, w.values, w.end, 1.0, D)
    for i in range(n):
        a, b, t, j = screw(w.end.a, i), screw(w.end.b, i), vec(w.end.t, i), i
        while j >= 0:
            _, _, _, Q = curvature(w.end.S, w.end.w, j, a, b, t)
            K[slot[i], slot[j]], K[slot[j], slot[i]] = Q + D[i, j], Q + D[j, i]
            j = s.parent[j]
        K[slot[i], slot[i]] -= w.values[i]
        for r in range(len(lam)):
            K[slot[i], slot[n + r]], K[slot[n + r], slot[i]] = -w.G[r, i], w.G[r, i]
    for k in range(len(s.stopped)):
        K[slot[s.stopped[k]], slot[s.stopped[k]]] -= stop_stiffness(s, k, q)
    for i in range(n):
        if held[i]:
            for j in range(K.shape[1]):
                K[slot[i], j] = 0.0
            K[slot[i], slot[i]] = 1.0


@kernel
def find_rest(s, held, tau, parameter_values, q, lam, needed, status):
    """Move rows q (B, n) to rest with coordinates `held` (n,) fixed, under forces tau (B, n).

    Fills lambda (B, m), the forces `needed` (B, n) to hold what is held (zero elsewhere), and status (B,).
    """
    n, w, slot = len(s.parent), new_scratch(s), s.slot
    D = np.empty((n, n))
    for row in range(len(q)):
        set_constants(s, parameter_values[row], w)
        status[row] = _UNSOLVED
        for _ in range(REST_ITERATIONS):
            _balance(s, q[row], tau[row], lam[row], w)
            _matrix(s, q[row], held, lam[row], w, D)
            for i in range(n):
                if held[i]:
                    w.b[slot[i]] = 0.0
            if not factor(w.K, w.order, s.near, s.far, s.left):
                _matrix(s, q[row], held, lam[row], w, D)
                if not factor_any(w.K, w.order):
                    break
            solve(w.K, w.order, s.near, s.far, s.left, w.b)
            size = 0.0
            for i in range(n):
                size = max(size, abs(w.b[slot[i]]))
            cut = min(1.0, MAX_NEWTON_STEP / max(size, 1e-300))
            for i in range(n):
                q[row, i] -= cut * w.b[slot[i]]
            for r in range(lam.shape[1]):
                lam[row, r] -= cut * w.b[slot[n + r]]
            if size <= REST_TOLERANCE and largest(w.h) <= REST_TOLERANCE:
                status[row] = _OK
                break
            if not np.isfinite(size):
                break
        _balance(s, q[row], tau[row], lam[row], w)
        for i in range(n):
            needed[row, i] = -w.b[slot[i]] if held[i] else 0.0
