"""Small box-constrained quadratic programs by block principal pivoting, in Warp functions: one problem per row of a batch.

    min 1/2 x' W x + b' x,  lo <= x <= hi          (W symmetric positive definite)

or: w = W x + b is zero where lo < x < hi, not negative where x = lo, not positive where x = hi. Every index is free or at a
bound; the free ones solve a linear system (Cholesky). All indices that violate the conditions change sides at once and, once
that has stopped helping, one at a time, the last one first. Exact and finite for a positive definite W: [Judice1994].

"""

# mypy: disable-error-code="valid-type"
# ruff: noqa: UP018, RUF046
from __future__ import annotations

import warp as wp

from ...engines.warp.memory import Memory

NUM_VECTORS = 6
LINEAR, LOW, HIGH, X, SLOPE, WORK = map(wp.constant, range(NUM_VECTORS))
"""Indices of the vectors: b, lo, hi, x, w, and work space."""

BLOCK_TRIALS = 8
"""Block changes without progress that are allowed before indices change one at a time."""
MAX_PIVOTS = 1000

_zero = wp.constant(wp.float64(0.0))
_trials = wp.constant(BLOCK_TRIALS)
_pivots = wp.constant(MAX_PIVOTS)


@wp.struct
class BoxProgram:
    """One problem per row; R indices."""

    matrix: wp.array2d(dtype=wp.float64)
    """W (R x R), by rows."""
    factor: wp.array2d(dtype=wp.float64)
    """(R x R), see `factorise`"""
    free: wp.array2d(dtype=int)
    """(R) indices of the factor's rows."""
    vectors: wp.array2d(dtype=wp.float64)
    """(NUM_VECTORS x R)"""
    side: wp.array2d(dtype=int)
    """(R), -1, 0 and 1 for lo, free and hi."""


def box_program(rows: int) -> Memory:
    """Memory for problems of up to `rows` indices."""
    return Memory(
        BoxProgram, {"matrix": rows * rows, "factor": rows * rows, "vectors": NUM_VECTORS * rows, "free": rows, "side": rows}
    )


@wp.func
def factorise(row: int, size: int, qp: BoxProgram):
    """Cholesky factor L of the free part of W, of the indices in `free`; its transpose, row by row, fills `factor`.

    The rest of W is updated as soon as a row of L' is known: these sums do not wait for each other.
    """
    num = int(0)
    for i in range(size):
        if qp.side[row, i] == 0:
            for c in range(num):
                qp.factor[row, c * size + num] = qp.matrix[row, i * size + qp.free[row, c]]
            qp.factor[row, num * size + num] = qp.matrix[row, i * size + i]
            qp.free[row, num] = i
            num += 1
    for k in range(num):
        pivot = wp.sqrt(qp.factor[row, k * size + k])
        qp.factor[row, k * size + k] = pivot
        for j in range(k + 1, num):
            qp.factor[row, k * size + j] = qp.factor[row, k * size + j] / pivot
        for i in range(k + 1, num):
            f = qp.factor[row, k * size + i]
            for j in range(i, num):
                qp.factor[row, i * size + j] = qp.factor[row, i * size + j] - f * qp.factor[row, k * size + j]


@wp.func
def solve_free(row: int, size: int, qp: BoxProgram):
    """x of the free indices from W_ff x_f = -b_f - W_fb x_b, x of the others from their bounds; then w = W x + b."""
    num = int(0)
    for i in range(size):
        if qp.side[row, i] < 0:
            qp.vectors[row, X * size + i] = qp.vectors[row, LOW * size + i]
        if qp.side[row, i] > 0:
            qp.vectors[row, X * size + i] = qp.vectors[row, HIGH * size + i]
        if qp.side[row, i] == 0:
            qp.vectors[row, WORK * size + num] = -qp.vectors[row, LINEAR * size + i]
            num += 1
        qp.vectors[row, SLOPE * size + i] = qp.vectors[row, LINEAR * size + i]
    for j in range(size):
        x = qp.vectors[row, X * size + j]
        if qp.side[row, j] != 0 and x != _zero:
            for a in range(num):
                w = qp.matrix[row, qp.free[row, a] * size + j]
                qp.vectors[row, WORK * size + a] = qp.vectors[row, WORK * size + a] - w * x
    for k in range(num):
        y = qp.vectors[row, WORK * size + k] / qp.factor[row, k * size + k]
        qp.vectors[row, WORK * size + k] = y
        for a in range(k + 1, num):
            f = qp.factor[row, k * size + a]
            qp.vectors[row, WORK * size + a] = qp.vectors[row, WORK * size + a] - f * y
    for back in range(num):
        a = num - 1 - back
        total = qp.vectors[row, WORK * size + a]
        for k in range(a + 1, num):
            total -= qp.factor[row, a * size + k] * qp.vectors[row, WORK * size + k]
        total = total / qp.factor[row, a * size + a]
        qp.vectors[row, WORK * size + a] = total
        qp.vectors[row, X * size + qp.free[row, a]] = total
    for j in range(size):
        x = qp.vectors[row, X * size + j]
        if x != _zero:
            for i in range(size):
                w = qp.matrix[row, i * size + j]
                qp.vectors[row, SLOPE * size + i] = qp.vectors[row, SLOPE * size + i] + w * x


@wp.func
def wanted_side(row: int, i: int, size: int, small_x: wp.float64, small_w: wp.float64, qp: BoxProgram):
    """Side on which index i should be: unchanged if it satisfies its condition."""
    x = qp.vectors[row, X * size + i]
    w = qp.vectors[row, SLOPE * size + i]
    now = qp.side[row, i]
    out = now
    if now == 0:
        if x < qp.vectors[row, LOW * size + i] - small_x:
            out = -1
        elif x > qp.vectors[row, HIGH * size + i] + small_x:
            out = 1
    elif now < 0:
        if w < -small_w:
            out = 0
    else:
        if w > small_w:
            out = 0
    return out


@wp.func
def box_qp(row: int, size: int, known: int, small_x: wp.float64, small_w: wp.float64, qp: BoxProgram):
    """Solve from the sides given; -> 1 if the conditions hold within small_x and small_w, 0 after MAX_PIVOTS changes.

    known: 1 where `factor` is still that of the previous call, for the same W, and no side has changed since.
    With lo = hi an index may be on any side: a multiplier of either sign is fine, and it stays where it is.
    """
    fewest = size + 1
    trials = int(_trials)
    done = int(0)
    count = int(0)
    while done == 0 and count < _pivots:
        count += 1
        if known == 0 or count > 1:
            factorise(row, size, qp)
        solve_free(row, size, qp)
        wrong = int(0)
        last = int(-1)
        for i in range(size):
            if qp.vectors[row, LOW * size + i] < qp.vectors[row, HIGH * size + i]:
                if wanted_side(row, i, size, small_x, small_w, qp) != qp.side[row, i]:
                    wrong += 1
                    last = i
            elif qp.side[row, i] == 0:
                wrong += 1
                last = i
        if wrong == 0:
            done = 1
        else:
            block = int(0)
            if wrong < fewest:
                fewest = wrong
                trials = _trials
                block = 1
            elif trials > 0:
                trials -= 1
                block = 1
            for i in range(size):
                if block == 1 or i == last:
                    if qp.vectors[row, LOW * size + i] < qp.vectors[row, HIGH * size + i]:
                        qp.side[row, i] = wanted_side(row, i, size, small_x, small_w, qp)
                    else:
                        qp.side[row, i] = -1
    return done
