"""LU factors of small matrices with known zeros: only the ranges of `elimination` are read.

A diagonal entry is the pivot unless it is much smaller than an entry below it. `factor` gives up on such a matrix, and
`factor_any` exchanges its rows; then the ranges no longer hold, and all entries count, as the order of rows shows. Factors of
`Wide` numbers are of `factor` only.
Entries are taken four at a time, of two rows where their ranges allow, over the end of a range: there are zeros, and three
columns at the end of the matrix that do not count.
Indices are unsigned, so that the compiler need not check whether they count from the end. Legend: N size, k columns.
"""

from __future__ import annotations

import numpy as np

from ..engines.numba.engine import LEAN, lean
from ..engines.numba.lanes import fma, is_wide, overload, size, some

EXCHANGE_RATIO = 1e-4
"""A diagonal entry smaller than this times an entry below it is exchanged."""
SPARE = 3
"""Columns beyond the matrix."""
ZERO, ONE, TWO, THREE, FOUR = (np.uint64(number) for number in range(5))


@lean
def factor(A, order, near, far, left):
    """A (N, N + 3) becomes L U, 1 / pivot behind every row; -> whether that needs no exchange of rows, or else A is lost.

    Row i minus multiples f, g of the rows k, m = k + 1 above it, two at a time where the ranges of m hold those of k: in one
    function, which is faster than in parts.
    """
    n, most = np.uint64(len(order)), 1.0 / EXCHANGE_RATIO
    good = A[0, 0] == A[0, 0]
    for i in range(ZERO, n):
        order[i] = i
        k = left[i]
        while k < i:
            m, f = k + ONE, A[i, k] * A[k, n]
            if m < i and near[k] <= near[m] and far[m] <= far[k]:
                g = (A[i, m] - f * A[k, m]) * A[m, n]
                if some((f != 0.0) | (g != 0.0)):
                    good = good & (size(f) <= most) & (size(g) <= most)
                    A[i, k], A[i, m] = f, g
                    for j in range(m + ONE, near[m], FOUR):
                        _subtract_two(A, i, k, m, j, f, g)
                    for j in range(far[m], n, FOUR):
                        _subtract_two(A, i, k, m, j, f, g)
                k = m + ONE
            else:
                if some(f != 0.0):
                    good = good & (size(f) <= most)
                    A[i, k] = f
                    for j in range(m, near[k], FOUR):
                        _subtract(A, i, k, j, f)
                    for j in range(far[k], n, FOUR):
                        _subtract(A, i, k, j, f)
                k = m
        good = good & (size(A[i, i]) > 0.0)
        if not some(good):
            break
        A[i, n] = 1.0 / A[i, i]
    return good


@lean
def _subtract(A, i, k, j, f):
    """A_ij -= f A_kj of four columns."""
    a, b = fma(-f, A[k, j], A[i, j]), fma(-f, A[k, j + ONE], A[i, j + ONE])
    c, d = fma(-f, A[k, j + TWO], A[i, j + TWO]), fma(-f, A[k, j + THREE], A[i, j + THREE])
    A[i, j], A[i, j + ONE], A[i, j + TWO], A[i, j + THREE] = a, b, c, d


@lean
def _subtract_two(A, i, k, m, j, f, g):
    """A_ij -= f A_kj + g A_lj of four columns."""
    a, b = fma(-f, A[k, j], A[i, j]), fma(-f, A[k, j + ONE], A[i, j + ONE])
    c, d = fma(-f, A[k, j + TWO], A[i, j + TWO]), fma(-f, A[k, j + THREE], A[i, j + THREE])
    a, b = fma(-g, A[m, j], a), fma(-g, A[m, j + ONE], b)
    c, d = fma(-g, A[m, j + TWO], c), fma(-g, A[m, j + THREE], d)
    A[i, j], A[i, j + ONE], A[i, j + TWO], A[i, j + THREE] = a, b, c, d


@lean
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
        A[k, n] = 1.0 / A[k, k]
    return True


def exchange(A, order):  # type: ignore[no-untyped-def]
    """`factor_any`; no factors of `Wide` numbers."""
    raise NotImplementedError


@overload(exchange, jit_options=LEAN)
def _exchange(A, order):  # type: ignore[no-untyped-def]
    if is_wide(A.dtype):
        return lambda A, order: A[0, 0] < A[0, 0]
    return lambda A, order: factor_any(A, order)


@lean
def _exchanged(order):
    """Whether any rows were exchanged."""
    for k in range(len(order)):
        if order[k] != k:
            return True
    return False


@lean
def solve(A, order, near, far, left, b):
    """b (N,) <- A^-1 b."""
    n, whole = np.uint64(len(order)), _exchanged(order)
    if whole:
        for k in range(len(order)):
            b[k], b[order[k]] = b[order[k]], b[k]
    for i in range(ONE, n):
        b[i] -= _product(A, i, b, ZERO if whole else left[i], i)
    for k in range(ONE, n + ONE):
        r = n - k
        total = _product(A, r, b, r + ONE, n if whole else near[r]) + _product(A, r, b, n if whole else far[r], n)
        b[r] = (b[r] - total) * A[r, n]


@lean
def _product(A, i, b, start, end):
    """sum_j A_ij b_j, four at a time."""
    j, t0, t1, t2, t3 = start, 0.0, 0.0, 0.0, 0.0
    while j + THREE < end:
        t0, t1 = fma(A[i, j], b[j], t0), fma(A[i, j + ONE], b[j + ONE], t1)
        t2, t3 = fma(A[i, j + TWO], b[j + TWO], t2), fma(A[i, j + THREE], b[j + THREE], t3)
        j += FOUR
    while j < end:
        t0 = fma(A[i, j], b[j], t0)
        j += ONE
    return (t0 + t1) + (t2 + t3)


@lean
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


@lean
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
            if some(f != 0.0):
                for c in range(columns):
                    B[i, c] -= f * B[j, c]
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            f = A[i, j]
            if some(f != 0.0):
                for c in range(columns):
                    B[i, c] -= f * B[j, c]
        inverse = 1.0 / A[i, i]
        for c in range(columns):
            B[i, c] *= inverse
