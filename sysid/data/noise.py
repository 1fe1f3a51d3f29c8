r"""Noise of smooth motion, told from the recording itself where nobody has measured it.

White noise of standard deviation sigma has third differences

.. math:: y_{k+3} - 3 y_{k+2} + 3 y_{k+1} - y_k \quad\text{of standard deviation}\quad \sqrt{20}\, \sigma

while those of a motion are its jerk times the cube of the period: small where frames are many. Kinks (impacts, sticking) make a
few of them large, and so do points that are seen elsewhere; so sigma is taken from the quantile that one standard deviation
of a normal distribution is, not from their squares, and what is beyond five of it is left out of the next estimate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError
from softgym_envs.core.trajectory import TrajectorySet

WITHIN = 0.6827
"""Share of a normal distribution within one standard deviation."""
BEYOND = 5.0
"""Standard deviations: one in two million normal numbers."""
FEWEST = 20
"""Third differences without a gap that an estimate needs."""


def noise_of(recordings: TrajectorySet, names: tuple[str, ...]) -> dict[str, float]:
    """Column -> standard deviation of its noise [SI]; see the module docstring.

    Of 40 rows it is known within 20 % (one standard deviation), of 400 within 6 %.

    Raises:
        DataError: Too few rows without gaps, or no noise at all: simulated data, or a column that is held.
    """
    found = {}
    for name in names:
        differences = [np.diff(recording.select((name,)).values[:, 0], n=3) for recording in recordings]
        size = np.abs(np.concatenate(differences))
        size = size[np.isfinite(size)]
        if len(size) < FEWEST:
            rows = f"{len(size)} rows without gaps, {FEWEST} are needed"
            raise DataError(f"noise is not given, and that of {name} cannot be told from {rows}")
        sigma = _deviation(size) / np.sqrt(20.0)
        largest = max(float(np.nanmax(np.abs(recording.select((name,)).values))) for recording in recordings)
        if sigma <= 1e-12 * max(largest, 1e-12):
            raise DataError(f"noise is not given, and {name} shows none: give what is known of it")
        found[name] = float(sigma)
    return found


def _deviation(size: NDArray[np.float64]) -> float:
    """Standard deviation of normal numbers of these sizes, some of which are no such numbers."""
    found = float(np.quantile(size, WITHIN))
    for _ in range(5):
        found = float(np.quantile(size[size <= BEYOND * found], WITHIN))
    return found
