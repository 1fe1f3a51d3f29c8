"""Models that studies plan in beside our engine: ensembles of networks."""

import numpy as np
import pytest
from agents_models import Linear

from agents.models.network import NetworkOptions, Transitions, train_networks
from softgym_envs.core.errors import DataError
from softgym_envs.core.trajectory import Trajectory, TrajectorySet


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
