"""Vectors and 3 x 3 matrices as tuples, so that kernels keep them in registers."""

from __future__ import annotations

from ..engines.numba.engine import lean


@lean
def vec(A, i):
    """Row i of an array, first three numbers."""
    return A[i, 0], A[i, 1], A[i, 2]


@lean
def screw(A, i):
    """Row i of an array (., 6)."""
    return A[i, 0], A[i, 1], A[i, 2], A[i, 3], A[i, 4], A[i, 5]


@lean
def mat(A, i):
    """Row i of an array (., 9), row by row."""
    return A[i, 0], A[i, 1], A[i, 2], A[i, 3], A[i, 4], A[i, 5], A[i, 6], A[i, 7], A[i, 8]


@lean
def cross(a, b):
    """Cross product."""
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


@lean
def dot(a, b):
    """Scalar product."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@lean
def add(a, b):
    """Sum."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


@lean
def scaled(f, a):
    """A vector times a number."""
    return f * a[0], f * a[1], f * a[2]


@lean
def rotate(R, a):
    """A matrix times a vector."""
    return (
        R[0] * a[0] + R[1] * a[1] + R[2] * a[2],
        R[3] * a[0] + R[4] * a[1] + R[5] * a[2],
        R[6] * a[0] + R[7] * a[1] + R[8] * a[2],
    )


@lean
def rotate_back(R, a):
    """A transposed matrix times a vector."""
    return (
        R[0] * a[0] + R[3] * a[1] + R[6] * a[2],
        R[1] * a[0] + R[4] * a[1] + R[7] * a[2],
        R[2] * a[0] + R[5] * a[1] + R[8] * a[2],
    )


@lean
def times(A, B):
    """Product of two matrices."""
    x = rotate(A, (B[0], B[3], B[6]))
    y = rotate(A, (B[1], B[4], B[7]))
    z = rotate(A, (B[2], B[5], B[8]))
    return x[0], y[0], z[0], x[1], y[1], z[1], x[2], y[2], z[2]


@lean
def turned(R, A):
    """R A R' of a symmetric A: its upper triangle (xx, xy, xz, yy, yz, zz)."""
    T = times(R, A)
    x, y, z = (R[0], R[1], R[2]), (R[3], R[4], R[5]), (R[6], R[7], R[8])
    first, second, third = (T[0], T[1], T[2]), (T[3], T[4], T[5]), (T[6], T[7], T[8])
    return dot(first, x), dot(first, y), dot(first, z), dot(second, y), dot(second, z), dot(third, z)


@lean
def put(A, i, start, a):
    """Write a vector into row i, from column `start`."""
    A[i, start], A[i, start + 1], A[i, start + 2] = a


@lean
def along(A, i, B, j):
    """Product of two screws or of a screw with a wrench, rows (., 6)."""
    return A[i, 0] * B[j, 0] + A[i, 1] * B[j, 1] + A[i, 2] * B[j, 2] + A[i, 3] * B[j, 3] + A[i, 4] * B[j, 4] + A[i, 5] * B[j, 5]
