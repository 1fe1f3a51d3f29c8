"""Statistics of studies against closed forms and known coverage. Models that studies plan in beside our engine: ensembles of
networks."""

import re

import numpy as np
import pytest
from agents_models import Linear
from scipy import stats

from agents.models.network import NetworkOptions, Transitions, train_networks
from agents.transfer_study import statistics
from softgym_envs.core.errors import DataError, ShapeError
from softgym_envs.core.trajectory import Trajectory, TrajectorySet

# --- coverage of the intervals that are printed --------------------------------------------------------------------------

TRIALS = 1000
ERROR = 3 * np.sqrt(0.05 * 0.95 / TRIALS)
"""Three binomial errors of a simulated coverage."""


def printed(scores):
    """Ends of the interval as a table prints it."""
    return [float(end.replace(",", "")) for end in re.search(r"\[(.*), (.*)\]", str(statistics.mean_of_runs(scores))).groups()]


def coverage(draw, mean):
    rng = np.random.default_rng(0)
    ends = np.array([printed(draw(rng)) for _ in range(TRIALS)])
    return np.mean((ends[:, 0] <= mean) & (mean <= ends[:, 1]))


@pytest.mark.parametrize("runs", [3, 5, 10])
def test_printed_intervals_of_few_runs_cover(runs):
    """95 % intervals: normal runs at least 93 %; lognormal ones, whose logarithms scatter by 0.5, at least 90 %."""
    assert coverage(lambda rng: rng.normal(1.0, 1.0, (1, runs)), 1.0) >= 0.93
    assert coverage(lambda rng: np.exp(0.5 * rng.normal(size=(1, runs))), np.exp(0.125)) >= 0.90


@pytest.mark.parametrize("runs", [3, 5])
@pytest.mark.parametrize("seeds", [0.0, 1.0])
def test_data_sets_that_share_seeds_cover(runs, seeds):
    """Every data set with every seed, each with its own effect: the seeds' one is common, so that runs are not independent."""

    def draw(rng):
        return rng.normal(size=(runs, 1)) + seeds * rng.normal(size=(1, runs)) + 0.5 * rng.normal(size=(runs, runs))

    assert coverage(draw, 0.0) >= 0.95 - ERROR


def test_one_set_of_seeds_is_students_t():
    scores = np.random.default_rng(0).normal(size=(1, 7))
    found = statistics.mean_of_runs(scores)
    expected = stats.ttest_1samp(scores[0], 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx(tuple(expected), rel=1e-12)
    assert statistics.mean_of_runs(scores.T)[:3] == pytest.approx(found[:3])


@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (2, 2), (3, 2), (2, 5)])
def test_two_independent_runs_have_no_interval_and_are_printed(shape):
    scores = np.arange(float(np.prod(shape))).reshape(shape)
    found = statistics.mean_of_runs(scores)
    assert (found.low, found.high) == (None, None) and found.runs == tuple(scores.ravel())
    assert str(found) == f"{scores.mean():.3g} (runs {', '.join(f'{run:g}' for run in scores.ravel())})"


def test_one_run_and_equal_runs_are_a_number():
    assert str(statistics.mean_of_runs(np.array([[0.5]]))) == str(statistics.mean_of_runs(np.full((1, 4), 0.5))) == "0.5"


# --- pairs ---------------------------------------------------------------------------------------------------------------


def test_shares_are_compared_within_pairs():
    """Costs that differ by seed only through what the pair shares: equal shares, so an interval without width."""
    level = np.array([[1.0, 5.0, 30.0]])
    found = statistics.shares(level + 1.0, level + 2.0, level)
    np.testing.assert_allclose(found, 0.5)
    assert statistics.shares(level, level, level) is None
    some = np.repeat(level, 4, axis=0) + np.arange(4.0)[:, None]
    np.testing.assert_allclose(statistics.shares(some, level + 2.0, level), 1.0 - np.arange(4.0)[:, None] / 2 + 0 * level)


def test_better_counts_pairs_of_a_seed():
    ours, theirs = np.array([[1.0, 2.0, 3.0]]), np.array([[2.0, 2.0, 1.0, 0.0]])
    assert statistics.better(ours, theirs) == pytest.approx(0.5)
    with pytest.raises(ShapeError, match="data sets"):
        statistics.better(np.zeros((2, 3)), np.zeros((3, 3)))
    with pytest.raises(ShapeError):
        statistics.mean_of_runs(np.array([[np.nan, 1.0]]))


def test_profile_in_closed_form():
    scores = np.array([[0.0, 0.5, 1.0, 2.0]])
    assert statistics.performance_profile(scores, np.array([-1.0, 0.5, 2.0])).tolist() == [1.0, 0.5, 0.0]


def test_networks_learn_a_linear_system_and_keep_the_protocol():
    plain = Linear()
    rng = np.random.default_rng(0)
    controls = rng.normal(size=(20, 30, 2))
    states, _ = plain.rollout(0.3 * rng.normal(size=(20, 4)), controls)
    data = TrajectorySet(tuple(Trajectory.from_rollout(plain, s, c) for s, c in zip(states, controls, strict=True)))
    options = NetworkOptions(members=2, width=32, layers=1, epochs=60, batch=64)
    network = train_networks(plain, data, substeps=1, rng=np.random.default_rng(1), options=options)
    assert network.networks.error < 0.2  # of the steps' own spread; 1 has learned nothing
    again = train_networks(plain, data, substeps=1, rng=np.random.default_rng(1), options=options)
    x, u = 0.3 * rng.normal(size=(5, 4)), rng.normal(size=(5, 2))
    mean, status = network.step(x, u)
    np.testing.assert_array_equal(mean, again.step(x, u)[0])
    members = [network.step(x, u, type(network.default_parameters)(member=float(i)))[0] for i in range(2)]
    np.testing.assert_allclose(mean, np.mean(members, axis=0), atol=1e-6)
    assert (status == 0).all() and not np.allclose(members[0], members[1], atol=1e-6)
    exact = plain.linearize(x, u)
    spread = np.abs(exact.B).max()
    assert np.abs(network.linearize(x, u).B - exact.B).max() < 0.3 * spread
    far, status = network.step(np.full((1, 4), 1e12), u[:1])
    assert status[0] == 1 and (far == 1e12).all()


def test_networks_see_the_mean_control_of_a_period():
    plain = Linear()
    rng = np.random.default_rng(0)
    controls = rng.normal(size=(1, 9, 2))
    states, _ = plain.rollout(np.ones((1, 4)), controls)
    data = Transitions(plain, TrajectorySet((Trajectory.from_rollout(plain, states[0], controls[0]),)), 3)
    assert len(data.states) == 7
    np.testing.assert_allclose(data.controls[2], controls[0, 2:5].mean(axis=0))
    np.testing.assert_allclose(data.steps[2], states[0, 5] - states[0, 2])
    with pytest.raises(DataError, match="period"):
        Transitions(plain, TrajectorySet((Trajectory.from_rollout(plain, states[0], controls[0]),)), 20)
