"""Statistics of a transfer study: robust means, bootstrap intervals that respect how runs depend on each other, comparisons.

A score matrix has one row per group and one column per run: groups are data sets and runs are seeds (hierarchical), or groups
are tasks and runs are seeds (stratified). After Agarwal et al., "Deep reinforcement learning at the edge of the statistical
precipice", NeurIPS 2021: interquartile means and intervals instead of the mean of a few seeds.

Legend: G groups, R runs per group, N bootstrap samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import OptionError, ShapeError
from softgym_envs.core.simulator import check_array

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Statistic = Callable[[Array], Array]
"""Scores (..., G, R) -> (...,)."""

SAMPLES = 2000
"""Bootstrap samples N: the ends of a 95 % interval then vary by about 0.05 of its width."""


class Interval(NamedTuple):
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def share(hits: int, count: int) -> Interval:
    """A share of successes with its 95 % interval; Wilson, J. Am. Stat. Assoc. 22 (1927), holds near 0 and 1 too.

    (p + z^2 / 2n ± z sqrt(p (1 - p) / n + z^2 / 4 n^2)) / (1 + z^2 / n)

    >>> print(share(95, 100))
    0.95 [0.888, 0.978]

    Raises:
        OptionError: Not 0 <= hits <= count, or count is 0.
    """
    if not 0 <= hits <= count or count == 0:
        raise OptionError(f"{hits} of {count} is no share; expected 0 <= hits <= count and count > 0")
    p, z = hits / count, 1.959964
    middle, half = p + z * z / (2 * count), z * float(np.sqrt(p * (1 - p) / count + z * z / (4 * count * count)))
    scale = 1 + z * z / count
    return Interval(p, max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale))


def check_scores(name: str, scores: Array) -> Array:
    """Scores as a finite matrix (G, R).

    Raises:
        ShapeError: Another shape, empty, or not finite.
    """
    checked = check_array(name, scores, (None, None))
    if not checked.size:
        raise ShapeError(f"{name} has shape {checked.shape}, expected at least one group and one run")
    return checked


def interquartile_mean(scores: Array, *, axes: int = 2) -> Array:
    """Mean after floor(n / 4) scores are cut at either end; n scores over the last `axes` axes.

    >>> float(interquartile_mean(np.array([[0.0, 1.0, 2.0, 99.0]])))
    1.5
    """
    flat = np.sort(scores.reshape(*scores.shape[: scores.ndim - axes], -1), axis=-1)
    cut = flat.shape[-1] // 4
    return np.asarray(flat[..., cut : flat.shape[-1] - cut].mean(axis=-1))


def optimality_gap(scores: Array, target: float = 1.0) -> Array:
    """Mean of max(0, target - score): shortfall of runs from the target; scores above it do not count."""
    return np.asarray(np.maximum(target - scores, 0.0).mean(axis=(-1, -2)))


def performance_profile(scores: Array, thresholds: Array) -> Array:
    """Performance profile P(score > tau) for every threshold tau, (G, R), (K,) -> (K,)."""
    scores = check_scores("scores", scores)
    return np.asarray((scores[..., None] > np.asarray(thresholds)).mean(axis=(0, 1)))


def probability_of_improvement(x: Array, y: Array) -> float:
    """Probability P(X > Y) + P(X = Y) / 2 within a group, averaged over groups: Mann-Whitney's U / (R_x R_y).

    Raises:
        ShapeError: Another number of groups.
    """
    x, y = _same_groups(x, y)
    difference = x[..., :, :, None] - y[..., :, None, :]
    return float(np.mean((difference > 0) + 0.5 * (difference == 0)))


def resample(
    shape: tuple[int, int], rng: np.random.Generator, *, groups: bool, samples: int = SAMPLES
) -> tuple[Indices, Indices]:
    """Indices (N, G, 1) of groups and (N, G, R) of runs, drawn with replacement.

    Args:
        shape: (G, R)
        rng: Source of randomness.
        groups: Draw the groups too (hierarchical: data sets, then seeds in them); else keep each once (stratified).
        samples: N
    """
    count, runs = shape
    rows = (
        rng.integers(count, size=(samples, count, 1)) if groups else np.tile(np.arange(count)[None, :, None], (samples, 1, 1))
    )
    return rows, rng.integers(runs, size=(samples, count, runs))


def bootstrap(
    scores: Array,
    rng: np.random.Generator,
    *,
    statistic: Statistic = interquartile_mean,
    groups: bool = True,
    samples: int = SAMPLES,
) -> Interval:
    """The statistic with its percentile-bootstrap 95 % interval.

    Args:
        scores: (G, R)
        rng: Source of randomness.
        statistic: Statistic to estimate.
        groups: See `resample`: True treats the groups as a sample of a population, False as the whole of it.
        samples: N

    Raises:
        ShapeError: `scores` is not a finite matrix.
    """
    scores = check_scores("scores", scores)
    rows, columns = resample((scores.shape[0], scores.shape[1]), rng, groups=groups, samples=samples)
    found = statistic(scores[rows, columns])
    low, high = np.percentile(found, (2.5, 97.5))
    return Interval(float(statistic(scores)), float(low), float(high))


def bootstrap_improvement(x: Array, y: Array, rng: np.random.Generator, *, samples: int = SAMPLES) -> Interval:
    """`probability_of_improvement` with its 95 % interval; groups are drawn together, runs of x and y separately.

    Raises:
        ShapeError: Another number of groups.
    """
    x, y = _same_groups(x, y)
    rows, left = resample((x.shape[0], x.shape[1]), rng, groups=True, samples=samples)
    _, right = resample((y.shape[0], y.shape[1]), rng, groups=True, samples=samples)
    difference = x[rows, left][..., :, None] - y[rows, right][..., None, :]
    found = np.mean((difference > 0) + 0.5 * (difference == 0), axis=(1, 2, 3))
    low, high = np.percentile(found, (2.5, 97.5))
    return Interval(probability_of_improvement(x, y), float(low), float(high))


def bootstrap_paired(
    function: Callable[..., Array], *scores: Array, rng: np.random.Generator, samples: int = SAMPLES
) -> Interval:
    """Bootstrap function(x, y, ...) of paired runs (the same data set, seed and starts) with its 95 % interval.

    All are resampled with the same indices (data sets, then seeds), so that common effects of a pair cancel.

    Args:
        function: Matrices (..., G, R) of one shape -> (...,).
        *scores: (G, R) each.
        rng: Source of randomness.
        samples: N

    Raises:
        ShapeError: They are not of one shape, or not finite.
    """
    checked = [check_scores(f"scores {index}", x) for index, x in enumerate(scores)]
    for x in checked[1:]:
        if x.shape != checked[0].shape:
            raise ShapeError(f"scores have shapes {checked[0].shape} and {x.shape}; paired scores have one shape")
    rows, columns = resample((checked[0].shape[0], checked[0].shape[1]), rng, groups=True, samples=samples)
    found = function(*(x[rows, columns] for x in checked))
    low, high = np.nanpercentile(found, (2.5, 97.5))
    return Interval(float(function(*checked)), float(low), float(high))


def bootstrap_difference(
    x: Array, y: Array, rng: np.random.Generator, *, statistic: Statistic = interquartile_mean
) -> Interval:
    """Bootstrap statistic(x) - statistic(y) of paired runs; see `bootstrap_paired`."""
    return bootstrap_paired(lambda a, b: statistic(a) - statistic(b), x, y, rng=rng)


def _same_groups(x: Array, y: Array) -> tuple[Array, Array]:
    x, y = check_scores("x", x), check_scores("y", y)
    if len(x) != len(y):
        raise ShapeError(f"x has {len(x)} groups and y {len(y)}; expected the same groups")
    return x, y
