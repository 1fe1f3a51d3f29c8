"""Rows through a Warp kernel: the right numbers, whatever the number of rows and the thread that asks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import warp as wp

from softgym_envs.engines.warp.row_kernel import RowKernel


@wp.kernel(enable_backward=False)
def _polynomial(
    coefficients: wp.array(dtype=wp.float64),
    columns: wp.array(dtype=int),
    x: wp.array2d(dtype=wp.float64),
    shift: wp.array2d(dtype=wp.float64),
    out: wp.array2d(dtype=wp.float64),
):
    """out = a + b x + shift, for some columns of x."""
    b = wp.tid()
    for c in range(columns.shape[0]):
        out[b, c] = coefficients[0] + coefficients[1] * x[b, columns[c]] + shift[b, 0]


def _kernel() -> RowKernel:
    return RowKernel(_polynomial, (np.array([0.5, 2.0]), np.array([2, 0], dtype=np.int32)), (3, 1), 2)


def test_any_number_of_rows_in_any_order() -> None:
    kernel, rng = _kernel(), np.random.default_rng(0)
    for rows in (1, 5, 2, 64, 1):
        x, shift = rng.standard_normal((rows, 3)), rng.standard_normal((rows, 1))
        np.testing.assert_allclose(kernel(x, shift), 0.5 + 2.0 * x[:, [2, 0]] + shift, rtol=1e-14, atol=1e-14)


def test_results_are_fresh_and_take_views() -> None:
    kernel = _kernel()
    wide = np.arange(12.0).reshape(2, 6)
    first = kernel(wide[:, ::2], np.zeros((2, 1)))
    kept = first.copy()
    kernel(np.ones((2, 3)), np.ones((2, 1)))
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(first, [[8.5, 0.5], [20.5, 12.5]])


def test_threads_share_one_kernel() -> None:
    kernel = _kernel()

    def ask(value: int) -> bool:
        rows = 1 + value % 7
        return bool((kernel(np.full((rows, 3), float(value)), np.zeros((rows, 1))) == 0.5 + 2.0 * value).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(500)))
