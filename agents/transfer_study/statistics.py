"""Statistics of a transfer study: means of runs with intervals that are honest for few of them, shares of successes.

A score matrix has one row per data set and one column per seed (G, R). Every data set meets every seed: rows and columns are
both effects. With G = 1 the runs are the seeds, and an interval is one for this data set.

Legend: G data sets, R seeds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats

from softgym_envs.core.errors import OptionError, ShapeError
from softgym_envs.core.simulator import Array, check_array

FEWEST_RUNS = 3
"""Independent runs below which there is no interval: that of two is 13 times as wide as their spread."""


class Interval(NamedTuple):
    """A number with its 95 % interval, or with the runs where these are too few for one."""

    value: float
    low: float | None
    high: float | None
    runs: tuple[float, ...] = ()
    """The runs, where there is no interval."""

    def __str__(self) -> str:
        if self.low is not None and self.high is not None:
            return f"{number(self.value)} [{number(self.low)}, {number(self.high)}]"
        if len(self.runs) < 2:
            return number(self.value)
        return f"{number(self.value)} (runs {', '.join(map(number, self.runs))})"


def number(value: float) -> str:
    """A number for a table: three digits, all digits from 1000 on.

    >>> number(12345.6), number(0.98765)
    ('12,346', '0.988')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def mean_of_runs(scores: Array) -> Interval:
    """Mean of runs with its 95 % interval by Student's t over independent runs.

    Data sets and seeds both vary, so the variance of the mean is the sum of what each of them shows. Noise of single runs
    counts twice in it: intervals are rather too wide. The degrees of freedom are those of the fewer of them. Runs that are
    all equal have no interval.
    Simulated coverage stands in tests/unit/test_study_statistics.py.

    >>> print(mean_of_runs(np.array([[1.0, 2.0, 3.0]])))
    2 [-0.484, 4.48]
    >>> print(mean_of_runs(np.array([[1.0, 2.0]])))
    1.5 (runs 1, 2)

    Args:
        scores: (G, R)

    Raises:
        ShapeError: `scores` is not a finite matrix.
    """
    scores = check_scores("scores", scores)
    value = float(scores.mean())
    effects = [scores.mean(axis=1 - axis) for axis in (0, 1) if scores.shape[axis] > 1]
    count = min((len(effect) for effect in effects), default=1)
    if count < FEWEST_RUNS or np.ptp(scores) == 0:
        return Interval(value, None, None, tuple(map(float, scores.ravel())) if np.ptp(scores) > 0 else ())
    error = np.sqrt(sum(stats.sem(effect) ** 2 for effect in effects))
    half = float(stats.t.ppf(0.975, count - 1) * error)
    return Interval(value, value - half, value + half)


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
        raise ShapeError(f"{name} has shape {checked.shape}, expected at least one data set and one seed")
    return checked


def shares(costs: Array, worst: Array, best: Array) -> Array | None:
    """Every run's share (C_worst - C) / (C_worst - C_best) of a gain, compared within pairs of the same seed.

    >>> shares(np.array([[2.0], [1.0]]), np.array([[3.0]]), np.array([[1.0]])).tolist()
    [[0.5], [1.0]]

    Args:
        costs: (G, R)
        worst: (1, R) or (G, R)
        best: (1, R) or (G, R)

    Returns:
        (G, R), of the seeds that all have; None where the best is not better than the worst.
    """
    costs, worst, best = tiled(costs, worst, best)
    gain = worst - best
    return (worst - costs) / gain if np.all(gain > 0) else None


def tiled(*matrices: Array) -> list[Array]:
    """Bring matrices to one shape (G, R): a condition without data is repeated for every data set; missing seeds are cut.

    Raises:
        ShapeError: They have data sets, but not equally many, or one is no finite matrix.
    """
    checked = [check_scores(f"scores {index}", matrix) for index, matrix in enumerate(matrices)]
    groups, runs = max(len(m) for m in checked), min(m.shape[1] for m in checked)
    if any(len(m) not in (1, groups) for m in checked):
        raise ShapeError(f"scores have shapes {', '.join(str(m.shape) for m in checked)}; expected one number of data sets")
    return [np.repeat(m[:, :runs], groups if len(m) == 1 else 1, axis=0) for m in checked]


def better(costs: Array, others: Array) -> float:
    """Share of pairs (the same data set and seed) in which the cost is lower; equal ones count half.

    >>> better(np.array([[1.0, 2.0, 3.0, 3.0]]), np.array([[2.0, 2.0, 4.0, 1.0]]))
    0.625
    """
    costs, others = tiled(costs, others)
    return float(np.mean((costs < others) + 0.5 * (costs == others)))


def performance_profile(scores: Array, thresholds: Array) -> Array:
    """Performance profile P(score > tau) for every threshold tau, (G, R), (K,) -> (K,)."""
    scores = check_scores("scores", scores)
    return np.asarray((scores[..., None] > np.asarray(thresholds)).mean(axis=(0, 1)))
