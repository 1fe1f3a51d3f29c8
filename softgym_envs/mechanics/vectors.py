"""Vectors and 3 x 3 matrices as tuples, so that kernels keep them in registers."""

from __future__ import annotations

from ..core.numba_engine import inner


@inner
def vec(A, i):
    """Row i of an array, first three numbers."""
    return A[i, 0], A[i, 1], A[i, 2]


@inner
def screw(A, i):
    """Row i of an array (., 6)."""
    return A[i, 0], A[i, 1], A[i, 2], A[i, 3], A[i, 4], A[i, 5]


@inner
def mat(A, i):
    """Row i of an array (., 9), row by row."""
    return A[i, 0], A[i, 1], A[i, 2], A[i, 3], A[i, 4], A[i, 5], A[i, 6], A[i, 7], A[i, 8]


@inner
def cross(a, b):
    """A x b."""
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@inner
def dot(a, b):
    """A . b."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@inner
def add(a, b):
    """A + b."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


@inner
def scaled(f, a):
    """F a."""
    return f * a[0], f * a[1], f * a[2]


@inner
def rotate(R, a):
    """R a."""
    return (
        R[0] * a[0] + R[1] * a[1] + R[2] * a[2],
        R[3] * a[0] + R[4] * a[1] + R[5] * a[2],
        R[6] * a[0] + R[7] * a[1] + R[8] * a[2],
    )


@inner
def times(A, B):
    """A B."""
    return (
        A[0] * B[0] + A[1] * B[3] + A[2] * B[6], A[0] * B[1] + A[1] * B[4] + A[2] * B[7], A[0] * B[2] + A[1] * B[5] + A[2] * B[8],
        A[3] * B[0] + A[4] * B[3] + A[5] * B[6], A[3] * B[1] + A[4] * B[4] + A[5] * B[7], A[3] * B[2] + A[4] * B[5] + A[5] * B[8],
        A[6] * B[0] + A[7] * B[3] + A[8] * B[6], A[6] * B[1] + A[7] * B[4] + A[8] * B[7], A[6] * B[2] + A[7] * B[5] + A[8] * B[8],
    )  # fmt: skip


@inner
def turned(R, I):
    """R I R' of a symmetric I: its upper triangle (xx, xy, xz, yy, yz, zz)."""
    T = times(R, I)
    return (
        T[0] * R[0] + T[1] * R[1] + T[2] * R[2], T[0] * R[3] + T[1] * R[4] + T[2] * R[5], T[0] * R[6] + T[1] * R[7] + T[2] * R[8],
        T[3] * R[3] + T[4] * R[4] + T[5] * R[5], T[3] * R[6] + T[4] * R[7] + T[5] * R[8],
        T[6] * R[6] + T[7] * R[7] + T[8] * R[8],
    )  # fmt: skip


@inner
def put(A, i, start, a):
    """A[i, start : start + 3] = a."""
    A[i, start], A[i, start + 1], A[i, start + 2] = a


@inner
def along(A, i, B, j):
    """Product of two screws or of a screw with a wrench, rows (., 6)."""
    return A[i, 0] * B[j, 0] + A[i, 1] * B[j, 1] + A[i, 2] * B[j, 2] + A[i, 3] * B[j, 3] + A[i, 4] * B[j, 4] + A[i, 5] * B[j, 5]
