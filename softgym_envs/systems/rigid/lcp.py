"""Linear complementarity problems, 0 <= z ⊥ w = M z + q >= 0, solved exactly by Lemke's method in Numba.

Lemke's method pivots along a path of almost complementary bases; the lexicographic rule of the smallest ratio excludes cycling
[Cottle, Pang, Stone 1992, section 4.4]. For the copositive-plus matrices of contact with Coulomb friction it ends in a solution
[Stewart, Trinkle 1996; Anitescu, Potra 1997]. The basis found is then solved once more from the given numbers, so that errors
of the pivots do not stay. Legend: m number of pairs.
"""

from __future__ import annotations

import numpy as np

from ...engines.numba.engine import inner, kernel

MIN_PIVOT = 1e-11
"""Entries of a column smaller than this are no pivots."""
TIE_SHARE = 1e-14
"""Ratios nearer than this (relative to the larger, or to 1) are equal: the lexicographic rule decides."""
ACCURACY = 1e-12
"""Largest residual, relative to max(1, |q|), that is accepted without another try."""


@kernel
def pivot(M, q, active, z):  # type: ignore[no-untyped-def]
    """Fill `active` (m,): which z are basic, and `z` (m,); -> whether the residual is small. Tries three covering vectors."""
    m, size = len(q), 1.0
    cover = np.empty(m)
    for i in range(m):
        size, cover[i] = max(size, abs(q[i])), 1.0
    for attempt in range(3):
        if lemke(M, q, cover, active):
            basic_solution(M, q, active, z)
            if residual(M, q, z) <= ACCURACY * size:
                for i in range(m):
                    z[i] = max(z[i], 0.0)
                return True
        for i in range(m):
            cover[i] = 1.0 + 0.5 * ((0.6180339887498949 * (i + 1) * (attempt + 1)) % 1.0)
    return False


@inner
def places(chosen):  # type: ignore[no-untyped-def]
    """Indices of the true entries of (m,)."""
    found, count = np.empty(len(chosen), np.int64), 0
    for i in range(len(chosen)):
        if chosen[i]:
            found[count] = i
            count += 1
    return found[:count]


@inner
def residual(M, q, z):  # type: ignore[no-untyped-def]
    """max_i |min(z_i, w_i)| with w = M z + q."""
    worst = 0.0
    for i in range(len(q)):
        w = q[i]
        for j in range(len(q)):
            w += M[i, j] * z[j]
        worst = max(worst, abs(min(z[i], w)))
    return worst


@inner
def basic_solution(M, q, active, z):  # type: ignore[no-untyped-def]
    """z_B = -M_BB^-1 q_B for the basic entries B, zero for the others."""
    chosen = places(active)
    k = len(chosen)
    lhs, rhs = np.empty((k, k), M.dtype), np.empty((k, 1), M.dtype)
    for a in range(k):
        rhs[a, 0] = -q[chosen[a]]
        for b in range(k):
            lhs[a, b] = M[chosen[a], chosen[b]]
    gauss(lhs, rhs)
    for i in range(len(z)):
        z[i] = 0.0
    for a in range(k):
        z[chosen[a]] = rhs[a, 0]


@inner
def gauss(lhs, rhs):  # type: ignore[no-untyped-def]
    """Solve lhs X = rhs in place (rhs becomes X) by elimination with partial pivoting, for real or complex numbers."""
    n, columns = rhs.shape
    for k in range(n):
        best = k
        for i in range(k + 1, n):
            if abs(lhs[i, k]) > abs(lhs[best, k]):
                best = i
        if best != k:
            for j in range(n):
                lhs[k, j], lhs[best, j] = lhs[best, j], lhs[k, j]
            for j in range(columns):
                rhs[k, j], rhs[best, j] = rhs[best, j], rhs[k, j]
        for i in range(k + 1, n):
            factor = lhs[i, k] / lhs[k, k]
            for j in range(k + 1, n):
                lhs[i, j] -= factor * lhs[k, j]
            for j in range(columns):
                rhs[i, j] -= factor * rhs[k, j]
    for k in range(n - 1, -1, -1):
        for j in range(columns):
            for i in range(k + 1, n):
                rhs[k, j] -= lhs[k, i] * rhs[i, j]
            rhs[k, j] /= lhs[k, k]


@inner
def lemke(M, q, cover, active):  # type: ignore[no-untyped-def]
    """Basic entries of z for a covering vector > 0, into `active`; -> False if the path ends in a ray or is too long.

    Columns of the tableau: 0 ... m-1 the w (they hold the inverse of the basis), m ... 2m-1 the z, 2m the artificial variable,
    2m+1 the right-hand side.
    """
    m, done = len(q), True
    for i in range(m):
        active[i] = False
        done = done and q[i] >= 0.0
    if done:
        return True
    table = np.zeros((m, 2 * m + 2))
    for i in range(m):
        table[i, i] = 1.0
        for j in range(m):
            table[i, m + j] = -M[i, j]
        table[i, 2 * m] = -cover[i]
        table[i, 2 * m + 1] = q[i]
    basis = np.arange(m)
    entering, row = 2 * m, 0
    for i in range(1, m):
        if q[i] / cover[i] <= q[row] / cover[row]:  # of equal rows the last one is the lexicographically smallest
            row = i
    for _ in range(50 + 20 * m):
        leaving = basis[row]
        _exchange(table, row, entering)
        basis[row] = entering
        if leaving == 2 * m:
            for i in range(m):
                if basis[i] >= m:
                    active[basis[i] - m] = True
            return True
        entering = leaving + m if leaving < m else leaving - m
        row = _leaving_row(table, entering, basis)
        if row < 0:
            return False
    return False


@inner
def _exchange(table, row, column):  # type: ignore[no-untyped-def]
    """One pivot of the tableau, in place."""
    rows, columns = table.shape
    scale = 1.0 / table[row, column]
    for j in range(columns):
        table[row, j] *= scale
    table[row, column] = 1.0
    for i in range(rows):
        factor = table[i, column]
        if i != row and factor != 0.0:
            for j in range(columns):
                table[i, j] -= factor * table[row, j]
            table[i, column] = 0.0


@inner
def _leaving_row(table, entering, basis):  # type: ignore[no-untyped-def]
    """Row of the lexicographically smallest ratio; the artificial variable's row wins a tie; -1: a ray."""
    m = table.shape[0]
    best = -1
    for i in range(m):
        if table[i, entering] <= MIN_PIVOT:
            continue
        if best < 0:
            best = i
            continue
        a, b = table[i, 2 * m + 1] / table[i, entering], table[best, 2 * m + 1] / table[best, entering]
        if abs(a - b) <= TIE_SHARE * max(1.0, abs(b)):
            if basis[best] == 2 * m:
                continue
            if basis[i] == 2 * m or _lexicographically_less(table, i, best, entering):
                best = i
        elif a < b:
            best = i
    return best


@inner
def _lexicographically_less(table, i, k, entering):  # type: ignore[no-untyped-def]
    """Whether row i of the inverse basis over its pivot is before row k's."""
    for j in range(table.shape[0]):
        a, b = table[i, j] / table[i, entering], table[k, j] / table[k, entering]
        if abs(a - b) > TIE_SHARE * max(1.0, abs(b)):
            return a < b
    return False
