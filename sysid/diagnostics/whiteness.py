r"""Tests whether residuals last in time, column by column, at a stated rate of false alarms.

With weighted residuals r of one column, in time, the sum of lagged products over the first L rows, in its own spread,

.. math:: z_L = \sum_{l \le L} \sum_t r_t r_{t+l} \Big/ \sqrt{\sum_{l \le L} \sum_t r_t^2 r_{t+l}^2}

has mean 0 and variance 1 for white noise (Box and Pierce 1970 sum squares instead, and ignore the sign; products of an error
that lasts have one sign). Short and long memories are tested (L of `WINDOWS`). The unknowns of a fit bias z downwards where
rows are few, so the limit comes from simulated white noise, projected as the residuals were. The largest
z of all columns is compared with the largest of the simulated: the false-alarm rate is that of the whole fit.

Where numbers are too many to simulate, the fit takes little out of a column, but there may be a hundred of them, and z is not
normal that far out: it is a quadratic form r'A r of T numbers, A with w_l / 2 beside its diagonal at lags up to L, of skewness

.. math:: \gamma_L = 8 \operatorname{tr} A^3 \big/ (2 \operatorname{tr} A^2)^{3/2}

(0, 0.14 and 0.35 for L = 1, 3, 10 and T = 606; for L = 10 twelve times as many are beyond 4 as a normal law says). The limit is
that of gamma distributions of these skewnesses (Pearson's type III), the tails of all columns and windows summed.

Where noise was taken off what moves a model (`mechanics.innovations.smoothed`), residuals lack power at high frequencies. They
are then correlated, though nothing lasts beyond noise. If noise has unit variance, the power of low frequencies is tested. It
exceeds that of noise where an error lasts, and not where noise is lacking (Bartlett's window has no negative frequency):

.. math:: \sum_{l \le L} (1 - \tfrac{l}{L+1}) \sum_t r_t r_{t+l} + \tfrac12 \min(0, \sum_t (r_t^2 - 1))

Legend: S segments, L' rows, m columns, p parameters, D draws.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from softgym_envs.core.simulator import Array

ALARM = 0.01  # False-alarm rate of this test for fits of a right model.
WINDOWS = (1, 3, 10)  # Largest lags L [rows].
NOISE_DRAWS = 4999
"""Draws of noise. Fits of one system share their limit, whose rate of false alarms is off by 1 / sqrt(ALARM NOISE_DRAWS), a
seventh."""
NUMBERS = 4_000_000  # Most simulated residuals: beyond, little is taken out of any column, and its z is a gamma variable.
FAINT_RESIDUAL = 0.05
"""Root mean square of weighted residuals below which a column has no error to test, as the largest entry of a quaternion near
rest: it changes with the square of the angle, and has the noise of all four."""
FEWEST_DRAWS = 199  # Fewest draws that give a quantile.


class Whiteness(NamedTuple):
    """The column whose residuals last longest."""

    column: int
    correlation: float  # Correlation of consecutive residuals of this column.
    z: float
    limit: float  # Value that the largest z exceeds in a share `ALARM` of fits, if the residuals are white.

    @property
    def white(self) -> bool:
        """Whether chance explains it."""
        return self.z <= self.limit

    @property
    def share(self) -> float:
        """Statistic over its limit, with a limit below 1 moved to 1; white up to 1."""
        return 1.0 + (self.z - self.limit) / max(self.limit, 1.0)


def whiteness(residual: Array, project: Callable[[Array], Array], *, unit: bool = False) -> Whiteness:
    """Test weighted residuals (S, L', m), zero where nothing was measured.

    Args:
        residual: Residuals of the fit.
        project: White noise (S, L', m, D) -> residuals that the fit would leave of it.
        unit: Whether noise has unit variance, and lacking power is no error; see the module docstring.
    """
    count = np.maximum((residual != 0).sum(axis=(0, 1)), 1)
    residual = residual * (np.sum(residual**2, axis=(0, 1)) > FAINT_RESIDUAL**2 * count)
    z = statistic(in_time(residual)[..., None], unit)[:, 0]
    column = int(np.argmax(z))
    rows = in_time(residual)[..., column]
    norm = float(np.sqrt(np.sum(rows[:, 1:] ** 2) * np.sum(rows[:, :-1] ** 2)))
    correlation = float(np.sum(rows[:, 1:] * rows[:, :-1])) / norm if norm > 0 else 0.0
    return Whiteness(column, correlation, float(z[column]), _limit(residual, project, unit))


def statistic(rows: Array, unit: bool = False) -> Array:
    """The largest z_L of (S, L', m, D) -> (m, D); zero where there are no products."""
    squares = rows**2
    power = 0.5 * np.minimum((squares - (rows != 0)).sum(axis=(0, 1)), 0.0) if unit else 0.0
    count = min(WINDOWS[-1], rows.shape[1] - 1)
    lags = [(slice(lag, None), slice(None, -lag)) for lag in range(1, count + 1)]
    products = np.array([np.einsum("st...,st...->...", rows[:, late], rows[:, early]) for late, early in lags])
    spreads = np.array([np.einsum("st...,st...->...", squares[:, late], squares[:, early]) for late, early in lags])
    found = []
    for window in WINDOWS:
        if window <= count:
            weights = weights_of(window, unit)
            summed = np.tensordot(weights, products[:window], 1) + power
            spread = np.tensordot(weights**2, spreads[:window], 1)
            found.append(np.divide(summed, np.sqrt(spread), out=np.zeros_like(summed), where=spread > 0))
    return np.max(found, axis=0) if found else np.zeros(rows.shape[2:])


def weights_of(window: int, unit: bool) -> Array:
    """Weights w of lags 1 ... L."""
    return np.asarray(1.0 - np.arange(1, window + 1) / (window + 1) if unit else np.ones(window))


def in_time(residual: Array) -> Array:
    """Residuals with segments of one step joined in time; others stay as they are."""
    return residual if residual.shape[1] > 1 else np.swapaxes(residual, 0, 1)


def _limit(residual: Array, project: Callable[[Array], Array], unit: bool) -> float:
    draws = min(NOISE_DRAWS, NUMBERS // residual.size)
    if draws < FEWEST_DRAWS:
        return _far_out(in_time(residual).shape, unit)
    noise = np.random.default_rng(0).standard_normal((*residual.shape, draws)) * (residual != 0)[..., None]
    left = project(noise)
    largest = statistic(left if left.shape[1] > 1 else np.swapaxes(left, 0, 1), unit).max(axis=0)
    return float(np.quantile(largest, 1.0 - ALARM, method="higher"))


def _far_out(shape: tuple[int, ...], unit: bool) -> float:
    """Value that the largest z of (S, L', m) white residuals exceeds in a share `ALARM`, at most: the sum of all tails."""
    from scipy import stats  # takes a third of a second to import, and few fits need it
    from scipy.optimize import brentq

    count, length, columns = shape
    skewed = [skewness(count, length, weights_of(window, unit)) for window in WINDOWS if window < length]
    if not skewed:
        return float(stats.norm.isf(ALARM / columns))
    return float(brentq(lambda z: columns * sum(stats.pearson3.sf(z, skew) for skew in skewed) - ALARM, 0.0, 100.0))


def gamma_limit(drawn: Array, alarm: float) -> float:
    """Value that a share `alarm` exceeds in the gamma distribution (Pearson's type III) with the moments of (D,)."""
    from scipy import stats

    return float(stats.pearson3.isf(alarm, stats.skew(drawn), drawn.mean(), drawn.std()))


def skewness(count: int, length: int, weights: Array) -> float:
    """gamma_L of the module docstring for S segments of L' rows; the trace of A^3 sums over triangles of three lags."""
    top = len(weights)
    signed = {lag: float(weights[abs(lag) - 1]) / 2.0 for lag in range(-top, top + 1) if lag}
    square = sum(w * w * (length - abs(lag)) for lag, w in signed.items())
    cube = 0.0
    for one, other in itertools.product(signed, signed):
        if one + other in signed:
            places = (0, one, one + other)
            cube += signed[one] * signed[other] * signed[one + other] * max(length - max(places) + min(places), 0)
    return float(8.0 * cube / (2.0 * square) ** 1.5 / np.sqrt(count))
