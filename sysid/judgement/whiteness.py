r"""Do residuals last in time? A test per column, at a stated rate of false alarms.

With weighted residuals r of one column, in time, the sum of lagged products over the first L rows, in its own spread,

.. math:: z_L = \sum_{l \le L} \sum_t r_t r_{t+l} \Big/ \sqrt{\sum_{l \le L} \sum_t r_t^2 r_{t+l}^2}

is near normal for white noise (Box and Pierce 1970 sum squares instead, blind to the sign; products of an error that lasts have
one). Short and long memories are asked for (L of `WINDOWS`). What a fit has taken out of the residuals biases z downwards where
rows are few; so the limit comes from simulated white noise that is projected as the residuals were. The largest z of all
columns decides, against the largest of the simulated: the false-alarm rate is that of the whole fit.

Where noise was taken off what moves a model (`mechanics.innovations.smoothed`), residuals lack power at high frequencies and so
are correlated, though nothing lasts beyond noise. If noise has unit variance, asked is for the power of low frequencies, which
is more than noise has where an error lasts, and not where noise is lacking (Bartlett's window has no negative frequency):

.. math:: \sum_{l \le L} (1 - \tfrac{l}{L+1}) \sum_t r_t r_{t+l} + \tfrac12 \min(0, \sum_t (r_t^2 - 1))

Legend: S segments, L' rows, m columns, p constants, D draws.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]

ALARM = 0.01
"""Share of fits of a right model that are called wrong by this test."""
WINDOWS = (1, 3, 10)
"""L [rows]."""
DRAWS = 999
NUMBERS = 4_000_000
"""Of simulated residuals at most: beyond, rows are so many that nothing is taken out of them, and z is normal."""
FEWEST = 199
"""Draws below which a quantile would not be known."""


class Whiteness(NamedTuple):
    """The column whose residuals last longest."""

    column: int
    correlation: float
    """Of consecutive residuals of this column."""
    z: float
    limit: float
    """What the largest z stays below but for `ALARM` of fits, if the residuals are white."""

    @property
    def white(self) -> bool:
        """Whether chance explains it."""
        return self.z <= self.limit

    @property
    def share(self) -> float:
        """Of the limit, with a limit below 1 moved to 1: white up to 1."""
        return 1.0 + (self.z - self.limit) / max(self.limit, 1.0)


def whiteness(residual: Array, project: Callable[[Array], Array], *, unit: bool = False) -> Whiteness:
    """Test weighted residuals (S, L', m), zero where nothing was measured.

    Args:
        residual: As the fit leaves them.
        project: White noise (S, L', m, D) -> what the fit would have left of it.
        unit: Noise has unit variance, and what is lacking is no error; see the module docstring.
    """
    z = statistic(in_time(residual)[..., None], unit)[:, 0]
    column = int(np.argmax(z))
    rows = in_time(residual)[..., column]
    norm = float(np.sqrt(np.sum(rows[:, 1:] ** 2) * np.sum(rows[:, :-1] ** 2)))
    correlation = float(np.sum(rows[:, 1:] * rows[:, :-1])) / norm if norm > 0 else 0.0
    return Whiteness(column, correlation, float(z[column]), _limit(residual, project, unit))


def statistic(rows: Array, unit: bool = False) -> Array:
    """The largest z_L of (S, L', m, D) -> (m, D); zero where there are no products."""
    power = 0.5 * np.minimum((rows**2 - (rows != 0)).sum(axis=(0, 1)), 0.0) if unit else 0.0
    count = min(WINDOWS[-1], rows.shape[1] - 1)
    lags = [(slice(lag, None), slice(None, -lag)) for lag in range(1, count + 1)]
    products = np.array([np.einsum("st...,st...->...", rows[:, late], rows[:, early]) for late, early in lags])
    spreads = np.array([np.einsum("st...,st...->...", rows[:, late] ** 2, rows[:, early] ** 2) for late, early in lags])
    found = []
    for window in WINDOWS:
        if window <= count:
            weights = 1.0 - np.arange(1, window + 1) / (window + 1) if unit else np.ones(window)
            summed = np.tensordot(weights, products[:window], 1) + power
            spread = np.tensordot(weights**2, spreads[:window], 1)
            found.append(np.divide(summed, np.sqrt(spread), out=np.zeros_like(summed), where=spread > 0))
    return np.max(found, axis=0) if found else np.zeros(rows.shape[2:])


def in_time(residual: Array) -> Array:
    """Segments of one step follow each other in time; others stay as they are."""
    return residual if residual.shape[1] > 1 else np.swapaxes(residual, 0, 1)


def _limit(residual: Array, project: Callable[[Array], Array], unit: bool) -> float:
    draws = min(DRAWS, NUMBERS // residual.size)
    if draws < FEWEST:
        return float(stats.norm.isf(ALARM / (residual.shape[2] * len(WINDOWS))))
    noise = np.random.default_rng(0).standard_normal((*residual.shape, draws)) * (residual != 0)[..., None]
    left = project(noise)
    largest = statistic(left if left.shape[1] > 1 else np.swapaxes(left, 0, 1), unit).max(axis=0)
    return float(np.quantile(largest, 1.0 - ALARM, method="higher"))


__all__ = ["ALARM", "Whiteness", "whiteness"]
