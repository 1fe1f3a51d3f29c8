"""Dense LU factors of small matrices that know what is zero: rows with a zero multiplier are left out.

A diagonal entry is the pivot unless it is much smaller than the largest below it. So a tree's matrix, ordered from the leaves
to the root, keeps its zeros: eliminating a leaf touches its ancestors only. Legend: N size, k columns.
"""

from __future__ import annotations

from ..core.numba_engine import inner

PIVOT = 1e-4
"""A diagonal entry smaller than this times the largest entry of its column is exchanged."""
SUMS = {"reassoc", "contract", "nsz"}
"""Sums may be taken in the order that the processor likes; it is always the same one."""


@inner
def factor(A, order):
    """A (N, N) becomes L U with rows exchanged as `order` (N,) says; -> whether it is regular."""
    n = len(order)
    for k in range(n):
        best, pivot = k, abs(A[k, k])
        largest = pivot
        for i in range(k + 1, n):
            if abs(A[i, k]) > largest:
                best, largest = i, abs(A[i, k])
        if not largest > 0.0:
            return False
        order[k] = k
        if pivot < PIVOT * largest:
            order[k] = best
            for j in range(n):
                A[k, j], A[best, j] = A[best, j], A[k, j]
        _eliminate(A, k)
    return True


@inner
def _eliminate(A, k):
    """Rows below k minus their multiple of row k."""
    n = len(A)
    inverse = 1.0 / A[k, k]
    for i in range(k + 1, n):
        if A[i, k] != 0.0:
            f = A[i, k] * inverse
            A[i, k] = f
            for j in range(k + 1, n):
                A[i, j] -= f * A[k, j]


@inner(fastmath=SUMS)
def solve(A, order, b):
    """b (N,) <- A^-1 b."""
    n = len(order)
    for k in range(n):
        if order[k] != k:
            b[k], b[order[k]] = b[order[k]], b[k]
    for i in range(1, n):
        total = 0.0
        for j in range(i):
            total += A[i, j] * b[j]
        b[i] -= total
    for i in range(n - 1, -1, -1):
        total = 0.0
        for j in range(i + 1, n):
            total += A[i, j] * b[j]
        b[i] = (b[i] - total) / A[i, i]


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
