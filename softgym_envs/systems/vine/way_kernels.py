"""Numba kernels of `free_paths`. Sines and cosines come from NumPy: Numba's have other last digits."""

from __future__ import annotations

import numpy as np

from ...engines.numba.engine import kernel


@kernel
def headings(bend, section, link, first, theta):  # type: ignore[no-untyped-def]
    """Headings of links (n, N) [rad] by one bend per section (n, K) [1/m]; `section` (N,) of each link, `first` at the base."""
    for i in range(len(theta)):
        total = 0.0
        for k in range(len(section)):
            own = bend[i, section[k]]
            total += own
            theta[i, k] = first + (total - 0.5 * own) * link


@kernel
def joints(length, link, cosines, sines, x, y, axes):  # type: ignore[no-untyped-def]
    """Joints (n, N + 1, 2) [m] of robots of lengths (n,) [m], whose base is at (x, y), by their links' headings."""
    for i in range(len(axes)):
        along, aside = 0.0, 0.0
        axes[i, 0, 0], axes[i, 0, 1] = x, y
        for k in range(cosines.shape[1]):
            step = min((k + 1) * link, length[i]) - min(k * link, length[i])
            along += step * cosines[i, k]
            aside += step * sines[i, k]
            axes[i, k + 1, 0], axes[i, k + 1, 1] = x + along, y + aside


@kernel
def nearest(lines, axes, link, found):  # type: ignore[no-untyped-def]
    """Smallest distances (n,) of the points of lines (n, k, 2) from joint `link` (n,) of axes (n, N + 1, 2) [m]."""
    for i in range(len(lines)):
        x, y, least = axes[i, link[i], 0], axes[i, link[i], 1], np.inf
        for k in range(lines.shape[1]):
            dx, dy = lines[i, k, 0] - x, lines[i, k, 1] - y
            least = min(least, dx * dx + dy * dy)
        found[i] = np.sqrt(least)
