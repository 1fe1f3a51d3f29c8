"""Models that studies plan in beside our engine: under random forces, and of networks."""

import numpy as np
import pytest
from agents_models import Linear, OneConstant, Pendulum
from transfer_case import PendulumCase

from agents.control.ilqg import ILQGOptions, plan_ilqg
from agents.models.forcing import ClockCost, ForcedSimulator
from agents.models.network import NetworkOptions, Transitions, train_networks
from softgym_envs.core.errors import DataError, ShapeError
from softgym_envs.core.simulator import finite_differences
from softgym_envs.core.trajectory import Trajectory, TrajectorySet

# --- random forces ------------------------------------------------------------------------------------------------------


def test_realisation_zero_is_the_simulator_itself_and_others_add_kicks():
    plain = Linear()
    forced = ForcedSimulator(plain, np.array([0.0, 0.3, 0.0, 0.1]), 3, 6, seed=1)
    rng = np.random.default_rng(0)
    controls = np.repeat(rng.normal(size=(1, 6, 2)), 4, axis=0)
    states, status = forced.rollout(forced.initial_state(4), controls, forced.rows(OneConstant(), ensemble=True))
    expected, _ = plain.rollout(plain.initial_state(1), controls[:1])
    np.testing.assert_allclose(states[:1, :, :-1], expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(states[:, :, -1], np.tile(np.arange(7.0), (4, 1)))
    x = np.zeros(4)  # by superposition: every kick is carried on by A
    for t in range(6):
        x = plain.A @ (x + forced.kicks[2, t]) + plain.B @ controls[0, t]
    np.testing.assert_allclose(states[2, -1, :-1], x, rtol=1e-12)
    assert (status == 0).all()
    drawn = ForcedSimulator(plain, np.full(4, 0.3), 500, 6).kicks[1:]
    assert drawn.std() == pytest.approx(0.3, rel=0.03)  # 12000 numbers: 0.65 % is one standard error


def test_forced_derivatives_equal_differences():
    forced = ForcedSimulator(Pendulum(), np.array([0.0, 0.5]), 2, 4, seed=1)
    rng = np.random.default_rng(0)
    state = forced.timed(Pendulum().retract(Pendulum().initial_state(3), rng.normal(size=(3, 2))))
    state[:, -1] = [0, 1, 3]
    parameters = forced.rows(OneConstant(), ensemble=True)
    exact = forced.linearize(state, rng.normal(size=(3, 1)), parameters)
    assert exact.A.shape == (3, 3, 3) and exact.B.shape == (3, 3, 1)
    rng = np.random.default_rng(0)
    rng.normal(size=(3, 2))
    differences = finite_differences(forced, state, rng.normal(size=(3, 1)), parameters)
    np.testing.assert_allclose(exact.A, differences.A, atol=1e-6)
    np.testing.assert_allclose(exact.B, differences.B, atol=1e-6)


def test_a_plan_under_forces_is_a_plan_for_the_simulator():
    case, plain = PendulumCase(), Pendulum()
    cost = case.cost(plain)
    forced = ForcedSimulator(plain, np.array([0.0, 0.3]), 8, 15, seed=1)
    plan = plan_ilqg(
        forced,
        ClockCost(cost),
        forced.initial_state(1)[0],
        controls=np.zeros((15, 1)),
        parameters=forced.rows(OneConstant(gain=3.0), ensemble=True),
        options=ILQGOptions(max_iterations=30),
    )
    kept = forced.without_clock(plan)
    assert kept.states.shape == (16, 3) and kept.gains.shape == (15, 1, 2)
    assert plan.log[-1].cost < plan.log[0].cost
    with pytest.raises(ShapeError, match="scale"):
        ForcedSimulator(plain, np.zeros(3), 1, 1)


# --- networks -----------------------------------------------------------------------------------------------------------


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
