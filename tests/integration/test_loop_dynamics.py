"""The loop's simulator: the mechanics in states (q, v), its derivatives, and the warning about saw-teeth. The loop on Baxter's
arm: counts of the paper, closure, rest. The loop's MuJoCo model against our engine: an independent integrator on the same
tree."""

from dataclasses import replace

import numpy as np
import pytest

from softgym_envs.core.base import pull_back
from softgym_envs.core.errors import OptionError, StructureError
from softgym_envs.mechanics import Mechanism
from softgym_envs.systems.loop.arm_task import INCREMENT
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.model import ARM, PARAMETERS, START, LoopModel, baxter6, baxter12, baxter24
from softgym_envs.systems.loop.mujoco import MujocoLoop
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
    q = states[0, :, : simulator.model.n]
    found = simulator.mechanism.impulses(q[:-2], q[1:-1], q[2:], controls[0, 1:], simulator.tree_constants(batch=len(q) - 2))
    np.testing.assert_allclose(found, motion.multipliers[0, 1:], atol=1e-9)
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
    for row in {0, *(parted // controls.shape[1])}:
        alone, _ = simulator.rollout(simulator.initial_state(), controls[row : row + 1], substeps=5)
        np.testing.assert_array_equal(alone[0], states[row])
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


def mechanism_of(model):
    return Mechanism(model.tree, 0.01, PARAMETERS)


def at_start(model):
    q = np.zeros((1, len(model.tree.coordinates)))
    q[0, :7] = START
    return q


@pytest.mark.parametrize(("links", "coordinates", "height"), [(12, 31, 0.6858), (6, 19, 0.6149), (24, 55, 0.7039)])
def test_counts_and_closure_are_the_papers(links, coordinates, height):
    model = LoopModel(links)
    mechanism = mechanism_of(model)
    assert (mechanism.n, mechanism.m, mechanism.nu) == (coordinates, 12, 7)
    assert abs(model.height - height) < 1e-4
    q = at_start(model)
    h, G = mechanism.gaps(q, model.defaults)
    assert np.abs(h).max() < 1e-12 and np.linalg.matrix_rank(G[0]) == 12
    grip, ends = mechanism.pose("H", q)[1][0], [mechanism.pose(f"N_{side}", q)[1][0] for side in ("left", "right")]
    assert all(abs(np.linalg.norm(end - grip) - model.height) < 1e-12 for end in ends)
    assert grip[2] - ends[0][2] == pytest.approx(model.height)  # it hangs straight down
    assert sum(body.mass for body in model.tree.bodies if body.scale == "loop_scale") == pytest.approx(0.132)


def test_arm_is_baxters():
    joints = {joint.name: joint for joint in LoopModel().tree.joints}
    assert [joints[name].effort for name in ARM] == [50, 50, 50, 50, 15, 15, 15]
    assert all(joints[name].lower < value < joints[name].upper for name, value in zip(ARM, START, strict=True))
    bodies = LoopModel().arm.bodies
    assert sum(body.mass for body in bodies) == pytest.approx(20.01, abs=0.01)


def test_loop_rests_close_to_a_regular_polygon_and_stays_there_under_feedback():
    model = LoopModel()
    mechanism, parameter_values = mechanism_of(model), model.defaults
    rest = mechanism.rest(at_start(model), parameter_values=parameter_values, held=ARM)
    assert rest.status[0] == 0 and np.abs(mechanism.gaps(rest.q, parameter_values)[0]).max() < 1e-10
    sag = np.abs(rest.q[0, 7:]).max()
    assert 1e-4 < sag < 0.1, sag  # 1.3 N on springs of some N m/rad
    assert np.abs(rest.needed[0, :7]).max() < 40  # the motors can hold it
    control = rest.needed[:, :7]
    start = mechanism.rest_state(rest.q, control, parameter_values)
    gain = np.zeros((7, mechanism.nx))
    gain[:, :7] = np.diag([80.0, 92.0, 69.0, 53.0, 65.0, 40.0, 8.0])
    forward = np.repeat((control + rest.q[:, :7] @ gain[:, :7])[:, None], 500, axis=1)
    motion = mechanism.simulate(start, forward, parameter_values, gains=gain)
    assert motion.status[0] == 0
    assert np.abs(motion.states[0, :, : mechanism.n] - rest.q).max() < 1e-8
    pulled = motion.multipliers[0, -1] / mechanism.dt
    np.testing.assert_allclose(pulled, rest.multipliers[0], atol=1e-6)


def test_damped_step_map_under_feedback_is_stable_and_rank_is_50_of_62():
    model = LoopModel()
    mechanism, parameter_values = mechanism_of(model), model.defaults
    rest = mechanism.rest(at_start(model), parameter_values=parameter_values, held=ARM)
    state = mechanism.rest_state(rest.q, rest.needed[:, :7], parameter_values)
    A, B, _ = (part[0] for part in mechanism.linearize(state, rest.needed[:, :7], parameter_values))
    gain = np.zeros((7, mechanism.nx))
    gain[:, :7] = np.diag([80.0, 92.0, 69.0, 53.0, 65.0, 40.0, 8.0])
    assert np.linalg.matrix_rank(A, tol=1e-9 * np.abs(A).max()) == 50
    assert np.abs(np.linalg.eigvals(A)).max() > 1.001  # the arm alone is an inverted pendulum
    assert np.abs(np.linalg.eigvals(A - B @ gain)).max() <= 1 + 1e-9


def test_bad_structures_are_refused():
    with pytest.raises(StructureError, match="loop of 7 links"):
        LoopModel(7)
    with pytest.raises(StructureError, match="3 angles"):
        LoopModel(start=(0.0, 0.0, 0.0))
    with pytest.raises(OptionError, match="mass"):
        LoopModel(mass=0.0)


def test_mujoco_model_and_engine_agree_as_in_the_reference():
    """At dt 2.5 ms: 0.1 to 0.2 mm and 1e-4 rad, as an earlier prototype did over 20 s; at our 10 ms forces are 5 ms late."""
    model = LoopModel(**SERVO)
    controls = pushed(model, 100)
    start, n = MujocoLoop(model).initial_state(), model.n
    states = {}
    for name, simulator in (
        ("ours", LoopSimulator(model)),
        ("fine", LoopSimulator(model, dt=0.0025)),
        ("mujoco_model", MujocoLoop(model)),
    ):
        states[name], status = simulator.rollout(start, controls, substeps=round(0.01 / simulator.dt))
        assert status[0] == 0
    q = {name: np.ascontiguousarray(x[0, :, :n]) for name, x in states.items()}
    hand = {name: model.mechanism.pose("H", x)[1] for name, x in q.items()}
    assert np.ptp(hand["mujoco_model"], axis=0).max() > 0.04
    for name, rms, furthest in (("fine", 2e-4, 2e-4), ("ours", 1.5e-3, 1.5e-3)):
        assert np.sqrt(np.mean((q[name] - q["mujoco_model"]) ** 2)) < rms
        assert np.linalg.norm(hand[name] - hand["mujoco_model"], axis=1).max() < furthest
    assert np.abs(model.mechanism.gaps(q["mujoco_model"], model.defaults)[0]).max() < 2e-4
    speed = np.abs(states["mujoco_model"][0, :, n:]).max()
    assert np.abs(states["fine"] - states["mujoco_model"])[0, :, n:].max() < 0.02 * speed  # the same quantity


def test_every_constant_means_the_same_in_both():
    """Change of the motion by a parameter: the MuJoCo model's is ours."""
    model = LoopModel(6, **SERVO)
    ours, mujoco_model = LoopSimulator(model, dt=0.0025), MujocoLoop(model, dt=0.0005)
    default, controls = ours.default_parameters, np.tile(model.hold, (1, 1, 1))
    changes = {
        "theta_stiffness": 6.0, "psi_stiffness": 2.0, "loop_damping": 0.04, "loop_scale": 3.0, "arm_damping": 2.0,
        "gravity": 5.0,
        "offset_s0": 1.0, "offset_w2": 0.5, "clamp_x": 0.002, "clamp_z": 0.001, "clamp_roll": 0.002, "clamp_yaw": 0.003,
    }  # fmt: skip
    start = ours.step(ours.initial_state(), controls[:, 0] + 1.0, substeps=40)[0]
    moved = {}
    for name, simulator in (("ours", ours), ("mujoco_model", mujoco_model)):
        steps = round(0.2 / simulator.dt)
        rows = [simulator.step(start, controls[:, 0], default.replace(**change), substeps=steps)[0][0] for change in
                ({}, *({key: value} for key, value in changes.items()))]  # fmt: skip
        moved[name] = np.array(rows[1:]) - rows[0]
    for name, a, b in zip(changes, moved["ours"], moved["mujoco_model"], strict=True):
        a, b = a[: model.n], b[: model.n]
        assert np.abs(a).max() > 1e-5 and np.abs(a - b).max() < 0.05 * np.abs(a).max(), name


def test_steps_that_would_be_wrong_in_silence_are_made_of_shorter_ones():
    assert [MujocoLoop(dt=dt).refinement for dt in (0.001, 0.002, 0.005, 0.01)] == [1, 1, 3, 5]
    assert MujocoLoop(LoopModel(24), dt=0.002).refinement == 2
    start, torques = (
        MujocoLoop().initial_state(),
        MujocoLoop().model.hold + 2.0 * np.random.default_rng(0).normal(size=(1, 2, 7)),
    )
    long, short = (MujocoLoop(dt=dt).rollout(start, torques, substeps=round(0.02 / dt))[0] for dt in (0.01, 0.002))
    np.testing.assert_array_equal(long, short)
    with pytest.raises(OptionError, match="dt"):
        MujocoLoop(dt=-0.01)
