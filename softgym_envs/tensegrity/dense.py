"""Dense symmetric systems of one row, in C++: Warp's indexing of an array takes most of the time here.

Row b of `matrix` holds a matrix of size x size by rows, and row b of `vector` a vector.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from ..core import warp_engine  # noqa: F401  (sets Warp up)


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
    """Zeros."""


@wp.func_native("""
    double* a = wp::address(matrix, b, 0);
    for (int i = 0; i < size; ++i) {
        double* left = a + i * size;
        for (int j = 0; j <= i; ++j) {
            const double* up = a + j * size;
            double sum = left[j];
            for (int k = 0; k < j; ++k)
                sum -= left[k] * up[k];
            left[j] = i == j ? ::sqrt(sum) : sum / up[j];
        }
    }
""")
def cholesky(matrix: wp.array2d(dtype=wp.float64), b: int, size: int):
    """The lower triangle becomes the Cholesky factor."""


@wp.func_native("""
    const double* a = wp::address(matrix, b, 0);
    double* x = wp::address(vector, b, 0);
    for (int i = 0; i < size; ++i) {
        double sum = x[i];
        for (int k = 0; k < i; ++k)
            sum -= a[i * size + k] * x[k];
        x[i] = sum / a[i * size + i];
    }
    for (int i = size - 1; i >= 0; --i) {
        x[i] /= a[i * size + i];
        for (int k = 0; k < i; ++k)
            x[k] -= a[i * size + k] * x[i];
    }
""")
def substitute(matrix: wp.array2d(dtype=wp.float64), vector: wp.array2d(dtype=wp.float64), b: int, size: int):
    """Solve with the factor, in place."""
