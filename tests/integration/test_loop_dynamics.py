"""The loop's simulator: the mechanics in states (q, v), its derivatives, and the warning about saw-teeth."""

from dataclasses import replace

import numpy as np
import pytest

from softgym_envs.core.base import pull_back
from softgym_envs.core.errors import OptionError, StructureError
from softgym_envs.systems.loop.arm_task import INCREMENT
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.model import LoopModel, baxter6, baxter12, baxter24
from softgym_envs.systems.loop.parameters import LoopParameters

SERVO = {"servo_stiffness": (80.0, 90.0, 70.0, 60.0, 60.0, 40.0, 20.0), "servo_damping": 5.0}


def pushed(model, horizon, seed=0):
    """Torques near those that hold the start, (1, T, 7)."""
    t, phase = 0.01 * np.arange(horizon)[:, None], np.random.default_rng(seed).uniform(0, 6, 7)
    return (model.hold + np.array([6, 5, 4, 4, 2, 1.5, 1]) * np.sin(4 * t + phase) * (1 - np.exp(-3 * t)))[None]


@pytest.mark.parametrize("make", [baxter12, baxter6, baxter24])
def test_what_holds_the_start_holds_it(make):
    simulator = LoopSimulator(make())
    start = simulator.initial_state()
    assert simulator.layout.n == 2 * simulator.model.n and simulator.state_names[:8] == (
        *simulator.control_names,
        "left0.theta",
    )
    states, status = simulator.rollout(start, np.tile(simulator.model.hold, (1, 50, 1)))
    assert status[0] == 0 and np.abs(states - start[:, None]).max() < 1e-8
    assert (np.abs(simulator.model.hold) < 0.8 * simulator.control_bounds[1]).all()


def test_a_motion_is_that_of_the_mechanics():
    simulator = LoopSimulator(LoopModel(**SERVO))
    controls = pushed(simulator.model, 60)
    states, status = simulator.rollout(simulator.initial_state(), controls)
    motion = simulator.mechanism.simulate(simulator.momentum(simulator.initial_state()), controls, simulator.tree_constants())
    assert status[0] == 0 and np.ptp(states[0, :, :7], axis=0).min() > 0.005
    np.testing.assert_allclose(simulator.velocities(motion.path), states[:, 1:], atol=1e-9)
    np.testing.assert_allclose(simulator.momentum(states[0]), motion.path[0], atol=1e-11)
    n = simulator.model.n
    np.testing.assert_allclose(np.diff(states[..., :n], axis=1) / simulator.dt, states[:, 1:, n:], atol=1e-12)
    closed, _ = simulator.mechanism.gaps(np.ascontiguousarray(states[0, :, :n]), simulator.tree_constants())
    assert np.abs(closed).max() <= 1e-10


def test_the_adjoint_is_the_chain_of_linearizations():
    simulator = LoopSimulator(LoopModel(6, **SERVO))
    start, controls = simulator.initial_state(2), np.repeat(pushed(simulator.model, 6), 2, axis=0)
    start[:, 7 + simulator.model.n :] = 0.0
    cotangent = np.random.default_rng(1).normal(size=(2, 7, simulator.nx))
    parameters = LoopParameters(theta_stiffness=np.array([4.0, 5.0]), clamp_x=0.0)
    found = simulator.vjp(start, controls, cotangent, parameters, substeps=2)
    slow = pull_back(simulator, simulator.layout, start, controls, cotangent, parameters, 2)
    for ours, expected in zip(found[2:], slow[2:], strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-10 * np.abs(expected).max())
    nothing = simulator.vjp(start, controls[:, :0], cotangent[:, :1])
    assert np.array_equal(nothing.state, cotangent[:, 0])


def test_steps_that_have_no_solution_are_taken_in_parts():
    simulator = LoopSimulator(LoopModel(**SERVO))
    signs = np.sign(np.random.default_rng(5).uniform(-1, 1, (24, 24, 7)))
    controls = simulator.model.hold + np.repeat(signs, 5, axis=1) * INCREMENT
    controls = np.clip(controls, *simulator.control_bounds)
    states, status = simulator.rollout(simulator.initial_state(24), controls, substeps=5)
    fine, good = replace(simulator, dt=0.0025).rollout(simulator.initial_state(24), controls[:, :40], substeps=20)
    assert not status.any() and not good.any()
    assert np.median(np.abs(states[:, 40, :7] - fine[:, 40, :7]).max(axis=1)) < 0.01
    flat, torques = states[:, :-1].reshape(-1, simulator.nx), controls.reshape(-1, 1, 7)
    motion = simulator.mechanism.simulate(simulator.momentum(flat), np.repeat(torques, 5, axis=1), simulator.tree_constants())
    parted = np.flatnonzero(motion.status)
    assert len(parted) > 2
    _check_slopes(simulator, flat[parted], torques[parted])


def _check_slopes(simulator, state, controls):
    """Forward and adjoint derivatives against differences, but for steps at the edge of where they are taken in parts."""
    rng, eps = np.random.default_rng(0), 1e-7
    dx, du, cotangent = (
        rng.normal(size=state.shape),
        rng.normal(size=controls.shape),
        rng.normal(size=(len(state), 2, simulator.nx)),
    )
    cotangent[:, 0] = 0.0
    after, before = (simulator.rollout(state + e * dx, controls + e * du, substeps=5)[0][:, 1] for e in (eps, -eps))
    expected, (A, B, _) = (after - before) / (2 * eps), simulator.linearize(state, controls[:, 0], substeps=5)
    found = np.einsum("bij,bj->bi", A, dx) + np.einsum("bij,bj->bi", B, du[:, 0])
    close = np.abs(found - expected).max(axis=1) < 1e-5 * np.abs(found).max(axis=1)
    assert close.mean() > 0.6
    pulled = simulator.vjp(state, controls, cotangent, substeps=5)
    ours, theirs = (
        (pulled.state * dx).sum(axis=1) + (pulled.controls * du).sum(axis=(1, 2)),
        (found * cotangent[:, 1]).sum(axis=1),
    )
    np.testing.assert_allclose(ours[close], theirs[close], rtol=1e-6, atol=1e-6 * np.abs(theirs[close]).max())


def test_too_little_damping_for_the_step_is_warned_of():
    simulator = LoopSimulator()
    with pytest.warns(UserWarning, match="saw-teeth"):
        simulator.tree_constants(LoopParameters(loop_damping=1e-3))
    assert "dt <= 0.001 s" in simulator.warning(LoopParameters(loop_damping=1e-3))
    assert replace(simulator, dt=0.001).warning(LoopParameters(loop_damping=1e-3)) == ""
    with pytest.raises(OptionError, match="dt"):
        LoopSimulator(dt=0.0)


def test_a_loop_that_falls_gains_no_energy_or_is_warned_of():
    """Energy at the middle of steps; at both dampings' lower bounds that of states, whose speeds lag, swings by 6 J."""
    parameter_values = LoopParameters(loop_damping=1e-4, arm_damping=0.01)
    simulator = LoopSimulator(dt=1e-3)
    assert "gain energy" in simulator.warning(parameter_values)
    with pytest.warns(UserWarning, match="gain energy"):
        states, status = simulator.rollout(simulator.initial_state(), np.zeros((1, 800, 7)), parameter_values)
    with pytest.warns(UserWarning, match="gain energy"):
        rows = np.repeat(simulator.tree_constants(parameter_values, 1), 800, axis=0)
    q, v = states[0, :, : simulator.mechanism.n], states[0, 1:, simulator.mechanism.n :]
    energy = simulator.mechanism.energies(0.5 * (q[1:] + q[:-1]), v, rows).sum(axis=1)
    assert status[0] == 0 and np.ptp(energy) > 30.0
    assert energy.max() - energy[0] < 0.01


def test_the_loop_relaxes_where_it_can_and_says_where_it_cannot():
    model = LoopModel()
    arm = np.array(model.start) + np.array([[0.1, 0.05, 0.0, -0.1, 0.0, 0.1, 0.2], [0.0] * 7])
    parameter_values = model.tree_constants(LoopParameters(clamp_x=np.array([0.05, 0.0])).to_matrix(2))
    q, torque = model.relax(arm, parameter_values)
    h, _ = model.mechanism.gaps(q, parameter_values)
    assert np.abs(h).max() < 1e-9 and np.array_equal(q[:, :7], arm)
    np.testing.assert_allclose(torque[1], model.hold, atol=1e-9)
    nodes = model.nodes(np.hstack([q, np.zeros_like(q)]))
    assert nodes.shape == (2, 12, 3)
    lengths = np.linalg.norm(np.diff(nodes[:, :6], axis=1), axis=2)
    np.testing.assert_allclose(lengths, model.link_length)
    with pytest.raises(StructureError, match="does not reach"):
        model.relax(np.array([[1.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]), model.defaults[None])


def test_a_controller_that_makes_no_sense_is_refused():
    with pytest.raises(StructureError, match="servo_stiffness"):
        LoopModel(servo_stiffness=(1.0,))
    with pytest.raises(OptionError, match="servo"):
        LoopModel(servo_damping=-1.0)
