r"""Vectors and 3 x 3 matrices as tuples, so that kernels keep them in registers; sines and cosines.

`turn` has neither branches nor calls, so that the compiler takes several angles per instruction. With k the nearest whole
number to 2 x / pi and the rest r = x - k pi / 2 in [-pi / 4, pi / 4], both are their Taylor series in r, exchanged and negated
according to k. pi / 2 is taken as three numbers, so that r keeps its digits for |x| < 1e7. Errors are of the size of rounding.
Tree mechanics spends a fifth of its time in the library's functions otherwise.
"""

from __future__ import annotations

from math import factorial, pi

import numpy as np

from ..engines.numba.engine import lean
from ..engines.numba.lanes import floor, fma, rint, select

QUARTER = 2.0 / pi
HIGH = float(np.float32(pi / 2))
"""pi / 2 to 24 binary digits: a product with k is exact."""
MIDDLE = pi / 2 - HIGH
LOW = 6.123233995736766e-17
"""Part of pi / 2 beyond a float64."""
S3, S5, S7, S9, S11, S13, S15, S17 = ((-1) ** k / factorial(2 * k + 1) for k in range(1, 9))
C4, C6, C8, C10, C12, C14, C16 = ((-1) ** k / factorial(2 * k) for k in range(2, 9))


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


@lean
def turns(x, cosine, sine):
    """cosine and sine (n,) of x (n,) [rad]."""
    for i in range(len(cosine)):
        cosine[i], sine[i] = turn(x[i])


@lean
def turn(x):
    """Cosine and sine of one angle x [rad]."""
    k = rint(x * QUARTER)
    r = fma(-k, LOW, fma(-k, MIDDLE, x - k * HIGH))
    z = r * r
    s = fma(z, fma(z, fma(z, fma(z, fma(z, fma(z, fma(z, S17, S15), S13), S11), S9), S7), S5), S3)
    c = fma(z, fma(z, fma(z, fma(z, fma(z, fma(z, C16, C14), C12), C10), C8), C6), C4)
    s, c = fma(r * z, s, r), fma(z * z, c, fma(-0.5, z, 1.0))
    quarter = k - 4.0 * floor(0.25 * k)
    odd = (quarter == 1.0) | (quarter == 3.0)
    a, b = select(odd, s, c), select(odd, c, s)
    return select((quarter == 1.0) | (quarter == 2.0), -a, a), select(quarter >= 2.0, -b, b)
