"""Statistics of studies against scipy, closed forms and known coverage."""

import numpy as np
import pytest
from scipy import stats

from agents.study import statistics
from softgym_envs.core.errors import ShapeError

SEEDS = np.random.default_rng(3)


# --- statistics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 7), (3, 4), (5, 10)])
def test_interquartile_mean_is_scipys_trimmed_mean(shape):
    scores = SEEDS.normal(size=shape)
    assert statistics.interquartile_mean(scores) == pytest.approx(stats.trim_mean(scores.ravel(), 0.25), rel=1e-12)
    np.testing.assert_allclose(
        statistics.interquartile_mean(np.stack([scores, 2 * scores])),
        [stats.trim_mean(s.ravel(), 0.25) for s in (scores, 2 * scores)],
    )


def test_improvement_is_mann_whitneys_u():
    x, y = SEEDS.integers(0, 6, (2, 8)).astype(float), SEEDS.integers(0, 6, (2, 9)).astype(float)
    expected = np.mean([stats.mannwhitneyu(a, b).statistic / (8 * 9) for a, b in zip(x, y, strict=True)])
    assert statistics.probability_of_improvement(x, y) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(ShapeError, match="groups"):
        statistics.probability_of_improvement(x, y[:1])


def test_profile_and_gap_in_closed_form():
    scores = np.array([[0.0, 0.5, 1.0, 2.0]])
    assert statistics.performance_profile(scores, np.array([-1.0, 0.5, 2.0])).tolist() == [1.0, 0.5, 0.0]
    assert statistics.optimality_gap(scores) == pytest.approx((1 + 0.5) / 4)


def test_stratified_intervals_cover():
    """95 % intervals of a mean of 30 normal scores: 88-99 % of 200 trials (three binomial errors; percentiles are narrow)."""
    rng = np.random.default_rng(0)
    mean = lambda s: s.mean(axis=(-1, -2))  # noqa: E731
    hits = 0
    for _ in range(200):
        found = statistics.bootstrap(rng.normal(size=(1, 30)), rng, statistic=mean, groups=False, samples=300)
        hits += found.low <= 0 <= found.high
    assert 176 <= hits <= 198


def test_hierarchical_intervals_see_the_data_sets():
    """Scores that differ by data set only: seeds add no information, so the interval is that of G numbers, not of G R."""
    rng = np.random.default_rng(0)
    groups = rng.normal(size=(10, 1))
    scores = np.repeat(groups, 50, axis=1)
    mean = lambda s: s.mean(axis=(-1, -2))  # noqa: E731
    wide = statistics.bootstrap(scores, rng, statistic=mean, groups=True)
    narrow = statistics.bootstrap(scores, rng, statistic=mean, groups=False)
    expected = 2 * 1.96 * groups.std() / np.sqrt(10)
    assert wide.high - wide.low == pytest.approx(expected, rel=0.15)
    assert narrow.high - narrow.low == 0.0


def test_pairing_cancels_what_is_common():
    rng = np.random.default_rng(0)
    common = 100 * rng.normal(size=(5, 5))
    found = statistics.bootstrap_difference(common + 1.0, common, rng)
    assert found.value == pytest.approx(1.0) and found.high - found.low < 1e-9
    with pytest.raises(ShapeError, match="one shape"):
        statistics.bootstrap_difference(common, common[:2], rng)
    with pytest.raises(ShapeError):
        statistics.bootstrap(np.array([[np.nan, 1.0]]), rng)
