"""Numba kernels of `terrain`: the height of the ground at points."""

from __future__ import annotations

import numpy as np

from ...engines.numba.engine import inner, kernel


@inner
def height_at(field, x, y, scale):  # type: ignore[no-untyped-def]
    """Ground height [m] at x, y [m]. Bilinear within a cell: z = a + b s + (c + d s) t, with s and t in [0, 1]."""
    last_x, last_y, cells = field.last_x, field.last_y, field.cells
    s, t = x * field.per_cell + 0.5 * (last_x + 1.0), y * field.per_cell + 0.5 * (last_y + 1.0)
    if np.isnan(s) or np.isnan(t):
        return s + t
    s, t = min(max(s, 0.0), last_x + 1.0), min(max(t, 0.0), last_y + 1.0)
    i, j = int(min(s, last_x)), int(min(t, last_y))
    k = i * (int(last_y) + 1) + j
    s, t = s - i, t - j
    return x * field.rise + scale * (cells[k, 0] + cells[k, 1] * s + (cells[k, 2] + cells[k, 3] * s) * t)


@kernel
def heights(field, x, y, scale, found):  # type: ignore[no-untyped-def]
    """Heights at many points, each with its own scale, into `found`."""
    for k in range(len(x)):
        found[k] = height_at(field, x[k], y[k], scale[k])
