"""LU factors of small matrices that know what is zero: only the ranges of `elimination` are looked at.

A diagonal entry is the pivot unless it is much smaller than the largest below it. `factor` gives up on such a matrix, and
`factor_any` exchanges its rows; then the ranges hold no longer, all entries count, and the order of rows tells.
Entries are taken four at a time, over the end of a range: there are zeros, and three empty columns at the end of the matrix.
Indices are unsigned, so that the compiler need not ask whether they count from the end. Legend: N size, k columns.
"""

from __future__ import annotations

import numpy as np

from ..core.numba_engine import inner

PIVOT = 1e-4
"""A diagonal entry smaller than this times the largest entry of its column is exchanged."""
SUMS = {"reassoc", "contract", "nsz"}
"""Sums may be taken in the order that the processor likes; it is always the same one."""
SPARE = 3
"""Columns beyond the matrix."""
ZERO, ONE, TWO, THREE, FOUR = (np.uint64(number) for number in range(5))


@inner
def factor(A, order, near, far):
    """A (N, N + 3) becomes L U; -> whether that needs no exchange of rows, or else A is lost."""
    n = np.uint64(len(order))
    for k in range(ZERO, n):
        order[k] = k
        pivot, largest = abs(A[k, k]), 0.0
        for i in range(k + ONE, near[k]):
            largest = max(largest, abs(A[i, k]))
        for i in range(far[k], n):
            largest = max(largest, abs(A[i, k]))
        if not pivot > 0.0 or pivot < PIVOT * largest:
            return False
        _eliminate(A, k, k + ONE, near[k], near[k], far[k], n)
        _eliminate(A, k, far[k], n, near[k], far[k], n)
    return True


@inner
def _eliminate(A, k, first, last, end, again, n):
    """Rows first .. last - 1 minus their multiple of row k, in its two ranges."""
    inverse = 1.0 / A[k, k]
    for i in range(first, last):
        if A[i, k] != 0.0:
            f = A[i, k] * inverse
            A[i, k] = f
            for j in range(k + ONE, end, FOUR):
                _subtract(A, i, k, j, f)
            for j in range(again, n, FOUR):
                _subtract(A, i, k, j, f)


@inner
def _subtract(A, i, k, j, f):
    """A_ij -= f A_kj of four columns."""
    a, b = A[i, j] - f * A[k, j], A[i, j + ONE] - f * A[k, j + ONE]
    c, d = A[i, j + TWO] - f * A[k, j + TWO], A[i, j + THREE] - f * A[k, j + THREE]
    A[i, j], A[i, j + ONE], A[i, j + TWO], A[i, j + THREE] = a, b, c, d


@inner
def factor_any(A, order):
    """A (N, N + 3) becomes L U with rows exchanged as `order` (N,) says; -> whether it is regular."""
    n = len(order)
    for k in range(n):
        best = k
        for i in range(k + 1, n):
            if abs(A[i, k]) > abs(A[best, k]):
                best = i
        if not abs(A[best, k]) > 0.0:
            return False
        order[k] = best
        for j in range(n if best != k else 0):
            A[k, j], A[best, j] = A[best, j], A[k, j]
        for i in range(k + 1, n):
            if A[i, k] != 0.0:
                A[i, k] /= A[k, k]
                for j in range(k + 1, n):
                    A[i, j] -= A[i, k] * A[k, j]
    return True


@inner
def _exchanged(order):
    """Whether any rows were."""
    for k in range(len(order)):
        if order[k] != k:
            return True
    return False


@inner(fastmath=SUMS)
def solve(A, order, near, far, left, b):
    """b (N,) <- A^-1 b."""
    n, whole = np.uint64(len(order)), _exchanged(order)
    if whole:
        for k in range(len(order)):
            b[k], b[order[k]] = b[order[k]], b[k]
    for i in range(ONE, n):
        total = 0.0
        for j in range(ZERO if whole else left[i], i):
            total += A[i, j] * b[j]
        b[i] -= total
    for k in range(ONE, n + ONE):
        r = n - k
        total = 0.0
        for j in range(r + ONE, n if whole else near[r]):
            total += A[r, j] * b[j]
        for j in range(n if whole else far[r], n):
            total += A[r, j] * b[j]
        b[r] = (b[r] - total) / A[r, r]


@inner
def solve_transposed(A, order, b):
    """b (N,) <- A'^-1 b."""
    n = len(order)
    for i in range(n):
        b[i] /= A[i, i]
        for j in range(i + 1, n):
            b[j] -= A[i, j] * b[i]
    for i in range(n - 1, 0, -1):
        for j in range(i):
            b[j] -= A[i, j] * b[i]
    for k in range(n - 1, -1, -1):
        if order[k] != k:
            b[k], b[order[k]] = b[order[k]], b[k]


@inner
def solve_columns(A, order, B):
    """B (N, k) <- A^-1 B."""
    n, columns = len(order), B.shape[1]
    for k in range(n):
        if order[k] != k:
            for c in range(columns):
                B[k, c], B[order[k], c] = B[order[k], c], B[k, c]
    for i in range(1, n):
        for j in range(i):
            f = A[i, j]
            if f != 0.0:
                for c in range(columns):
                    B[i, c] -= f * B[j, c]
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            f = A[i, j]
            if f != 0.0:
                for c in range(columns):
                    B[i, c] -= f * B[j, c]
        inverse = 1.0 / A[i, i]
        for c in range(columns):
            B[i, c] *= inverse
