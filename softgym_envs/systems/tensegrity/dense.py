"""Dense symmetric systems of one row, in C++, as Warp's array indexing would take most of the time.

Row b of `matrix` holds a matrix of size x size by rows, and row b of `vector` a vector.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from ...engines.warp import engine as warp_engine  # noqa: F401  (sets Warp up)


@wp.func_native("""
    double* at = wp::address(matrix, b, row * size + column);
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j)
            at[i * size + j] += block.data[i][j];
""")
def add_block(matrix: wp.array2d(dtype=wp.float64), b: int, size: int, row: int, column: int, block: wp.mat33d):
    """Add a block to the matrix."""


@wp.func_native("""
    double* row = wp::address(matrix, b, 0);
    for (int k = 0; k < size * size; ++k)
        row[k] = 0.0;
""")
def clear(matrix: wp.array2d(dtype=wp.float64), b: int, size: int):
    """Set the matrix to zero."""


@wp.func_native("""
    double* a = wp::address(matrix, b, 0);
    for (int first = 0; first < size; first += 6) {
        for (int k = first; k < first + 6; ++k) {
            double* pivot = a + k * size;
            pivot[k] = ::sqrt(pivot[k]);
            for (int j = k + 1; j < size; ++j)
                pivot[j] /= pivot[k];
            for (int i = k + 1; i < first + 6; ++i)
                for (int j = i; j < size; ++j)
                    a[i * size + j] -= pivot[i] * pivot[j];
        }
        const double *p0 = a + first * size, *p1 = p0 + size, *p2 = p1 + size;
        const double *p3 = p2 + size, *p4 = p3 + size, *p5 = p4 + size;
        for (int i = first + 6; i < size; ++i) {
            const double f0 = p0[i], f1 = p1[i], f2 = p2[i], f3 = p3[i], f4 = p4[i], f5 = p5[i];
            if (f0 == 0.0 && f1 == 0.0 && f2 == 0.0 && f3 == 0.0 && f4 == 0.0 && f5 == 0.0)
                continue;
            double* row = a + i * size;
            for (int j = i; j < size; ++j)
                row[j] -= f0 * p0[j] + f1 * p1[j] + f2 * p2[j] + f3 * p3[j] + f4 * p4[j] + f5 * p5[j];
        }
    }
""")
def cholesky(matrix: wp.array2d(dtype=wp.float64), b: int, size: int):
    """The upper triangle becomes the Cholesky factor; size is a multiple of 6.

    Six rows at a time, so that sums of six products along the rest of a row run in the processor's wide registers. Zero blocks
    of rods that do not touch are skipped.
    """


@wp.func_native("""
    const double* a = wp::address(matrix, b, 0);
    double* x = wp::address(vector, b, 0);
    for (int i = 0; i < size; ++i) {
        x[i] /= a[i * size + i];
        for (int k = i + 1; k < size; ++k)
            x[k] -= a[i * size + k] * x[i];
    }
    for (int i = size - 1; i >= 0; --i) {
        double sum = x[i];
        for (int k = i + 1; k < size; ++k)
            sum -= a[i * size + k] * x[k];
        x[i] = sum / a[i * size + i];
    }
""")
def substitute(matrix: wp.array2d(dtype=wp.float64), vector: wp.array2d(dtype=wp.float64), b: int, size: int):
    """Solve with the factor, in place."""
