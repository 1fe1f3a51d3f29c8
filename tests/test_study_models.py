"""Models that studies plan in beside our engine: under random forces, of networks, with a learned correction."""

import numpy as np
import pytest
from agents_models import Linear, OneConstant, Pendulum
from transfer_case import PendulumCase

from agents.models.forcing import ClockCost, ForcedSimulator
from agents.models.network import NetworkOptions, Transitions, train_networks
from agents.models.residual import CorrectedSimulator, learn_correction
from agents.planning.ilqg import ILQGOptions, plan_ilqg
from softgym_envs.core.errors import DataError, OptionError, ShapeError
from softgym_envs.core.layout import Field, StateLayout
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


# --- corrections --------------------------------------------------------------------------------------------------------

SMALL = NetworkOptions(members=2, width=32, layers=1, epochs=60, batch=64, learning_rate=1e-2)


def recorded(plain, missed, rng, *, count=20, steps=30):
    """Recordings of x' = plain(x, u) + missed(x)."""
    found = []
    for controls in rng.normal(size=(count, steps, 2)):
        states = [0.3 * rng.normal(size=4)]
        for u in controls:
            after, _ = plain.step(states[-1][None], u[None])
            states.append(after[0] + missed(states[-1]))
        found.append(Trajectory.from_rollout(plain, np.array(states), controls))
    return TrajectorySet(tuple(found))


def learn(plain, data, parameters=None, substeps=1):
    rng = np.random.default_rng(1)
    return learn_correction(plain, data, parameters or OneConstant(), substeps=substeps, rng=rng, options=SMALL)


def test_a_constant_that_the_engine_lacks_is_found_exactly_and_touches_nothing_else():
    """The limits of the correction coincide where the error is always the same: nothing is left to the networks."""
    plain, rng = Linear(), np.random.default_rng(0)
    data = recorded(plain, lambda x: np.array([0.0, 0.3, 0.0, 0.0]), rng)
    fit = learn(plain, data)
    assert fit.used and fit.after < 1e-24 * fit.before
    corrected = fit.on(plain)
    x, u = rng.normal(size=(6, 4)), rng.normal(size=(6, 2))
    np.testing.assert_allclose(corrected.step(x, u)[0] - plain.step(x, u)[0], np.tile([0.0, 0.3, 0.0, 0.0], (6, 1)), atol=1e-14)
    rows = OneConstant(gain=np.full(6, 2.0))  # constants go on to the engine
    expected = plain.step(x, u, rows)[0] + [0.0, 0.3, 0.0, 0.0]
    np.testing.assert_allclose(corrected.step(x, u, rows)[0], expected, atol=1e-14)
    np.testing.assert_allclose(corrected.linearize(x, u).B, plain.linearize(x, u).B, atol=1e-9)


def test_a_term_that_the_engine_lacks_is_learned():
    """A spring, without noise: one layer of smooth units can express a line, so what is left is training; a fifth at most."""
    plain, rng = Linear(), np.random.default_rng(0)
    fit = learn(plain, recorded(plain, lambda x: np.array([0.0, 0.0, 0.0, -0.2 * x[1]]), rng))
    assert fit.used and np.sqrt(fit.after / fit.before) < 0.2
    assert "leaves" in fit.summary()
    corrected = fit.on(plain)
    assert isinstance(corrected, CorrectedSimulator)
    far, still = np.full((1, 4), 50.0), np.zeros((1, 2))  # nowhere larger than it ever had to be
    added = (corrected.step(far, still)[0] - plain.step(far, still)[0])[0]
    np.testing.assert_allclose(added, np.clip(added, fit.correction.lowest, fit.correction.highest), atol=1e-12)
    assert np.abs(added).max() < 2.0


def test_noise_is_not_learned():
    """E[noise | state, control] = 0: no correction predicts better than none."""
    plain, rng = Linear(), np.random.default_rng(0)
    fit = learn(plain, recorded(plain, lambda x: 0.1 * rng.normal(size=4), rng))
    assert not fit.used and fit.on(plain) is plain and "no correction" in fit.summary()
    exact = learn(plain, recorded(plain, lambda x: np.zeros(4), rng))
    assert exact.on(plain) is plain


def test_a_correction_goes_with_the_robot_among_obstacles():
    """What the recorded robot has not (here two entries that stand still) is left as the engine has it."""

    class Furnished(Linear):
        state_layout, rest = StateLayout(Field("", 6, ("x", "m"))), np.zeros(6)

        def advance(self, x, u, gain):
            return np.concatenate([super().advance(x[:, :4], u, gain), x[:, 4:]], axis=1)

    plain, rng = Linear(), np.random.default_rng(0)
    fit = learn(plain, recorded(plain, lambda x: np.array([0.0, 0.0, 0.0, -0.2 * x[1]]), rng))
    x, u = rng.normal(size=(3, 6)), rng.normal(size=(3, 2))
    after, _ = fit.on(Furnished()).step(x, u)
    np.testing.assert_array_equal(after[:, 4:], x[:, 4:])
    np.testing.assert_allclose(after[:, :4], fit.on(plain).step(np.ascontiguousarray(x[:, :4]), u)[0], atol=1e-12)


def test_a_correction_belongs_to_its_control_period_and_its_robot():
    plain, rng = Linear(), np.random.default_rng(0)
    fit = learn(plain, recorded(plain, lambda x: np.array([0.0, 0.1, 0.0, 0.0]), rng), substeps=3)
    corrected = fit.on(plain)
    with pytest.raises(OptionError, match="multiples of 3"):
        corrected.step(np.zeros((1, 4)), np.zeros((1, 2)))
    with pytest.raises(OptionError, match="other states"):
        fit.on(Pendulum())
    # three steps at once or one by one are the same periods
    x, u = rng.normal(size=(2, 4)), rng.normal(size=(2, 2))
    twice, _ = corrected.rollout(x, np.repeat(u[:, None], 2, axis=1), substeps=3)
    np.testing.assert_array_equal(corrected.step(x, u, substeps=6)[0], twice[:, -1])
    with pytest.raises(DataError, match="too few"):
        learn(plain, recorded(plain, lambda x: np.zeros(4), rng, count=1, steps=1))
