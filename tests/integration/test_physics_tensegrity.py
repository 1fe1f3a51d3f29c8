"""The tensegrity engine against things that are not our code: closed forms, conservation, order of convergence, MuJoCo."""

from __future__ import annotations

import itertools
from dataclasses import replace

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray
from tensegrity_systems import lifted, rods

from softgym_envs.core import lie
from softgym_envs.core.errors import ParameterError
from softgym_envs.core.simulator import finite_differences
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.model import TensegrityModel, prism, superball
from softgym_envs.systems.tensegrity.mujoco import MujocoParameters, MujocoTensegrity, native_constants
from softgym_envs.systems.tensegrity.parameters import TensegrityParameters
from softgym_envs.systems.tensegrity.terrain import Terrain

Array = NDArray[np.float64]
G = 9.81
LEFT_BY_SWEEPS = 1e-3
"""Theory says 0.072^4 = 2.7e-5 for a thin rod touching at its axis' ends; caps have a radius."""


def run(simulator: TensegritySimulator, state: Array, steps: int, parameters: TensegrityParameters | None = None) -> Array:
    """Every state of `steps` steps without control, (steps+1, nx)."""
    states, status = simulator.rollout(state[None], np.zeros((1, steps, simulator.nu)), parameters)
    assert not status.any()
    return states[0]


def slope(errors: list[float], steps: list[float]) -> float:
    """Order of convergence."""
    return float(np.polyfit(np.log(steps), np.log(errors), 1)[0])


# --- free motion -----------------------------------------------------------------------------------------------------


def test_free_fall_is_the_sum_of_semi_implicit_steps() -> None:
    simulator = TensegritySimulator(rods(([0, 0, 50], [1, 0, 50])))
    states = run(simulator, simulator.initial_state()[0], 500)
    k = np.arange(501)
    np.testing.assert_allclose(states[:, 2], 50 - G * 1e-6 * k * (k + 1) / 2, atol=1e-11)


def test_torque_free_rod_precesses_as_the_symmetric_top() -> None:
    """In the rod's frame w turns about z at (I_z/I_x - 1) w_z; the error falls with dt as for a method of order 1."""
    model = rods(([0, 0, 50], [0, 0, 51]), rod_radius=0.2, cap_radius=0.2)
    spin = np.array([1.0, 0.5, 8.0])
    r, length = 0.2, 1.0
    rate = ((r**2 / 2) / ((3 * r**2 + length**2) / 12) - 1) * spin[2]
    errors, steps = [], [2e-3, 1e-3, 5e-4, 2.5e-4]
    for dt in steps:
        simulator = TensegritySimulator(model, dt=dt)
        state = simulator.initial_state()[0]
        state[10:13] = spin
        end = run(simulator, state, round(0.5 / dt), TensegrityParameters(gravity=0.0))[-1]
        angle = rate * 0.5
        exact = [spin[0] * np.cos(angle) - spin[1] * np.sin(angle), spin[0] * np.sin(angle) + spin[1] * np.cos(angle), spin[2]]
        errors.append(float(np.linalg.norm(end[10:13] - exact)))
    assert errors[0] < 0.1 and slope(errors, steps) == pytest.approx(1.0, abs=0.1)


def test_two_masses_on_a_cable_are_the_damped_oscillator_until_it_is_slack() -> None:
    """(m/2) x'' = -k x - c x' for the stretch x of a cable between two rods in line; then both fly on freely."""
    model = rods(([-1.5, 0, 50], [-0.5, 0, 50]), ([0.5, 0, 50], [1.5, 0, 50]), cables=((1, 2),))
    parameters = TensegrityParameters(gravity=0.0, rest_length=0.9, cable_stiffness=400.0, cable_damping=8.0, rod_mass=2.0)
    k, c, reduced, x0 = 400.0, 8.0, 1.0, 0.1
    decay, omega = c / (2 * reduced), np.sqrt(k / reduced - (c / (2 * reduced)) ** 2)
    errors, steps = [], [1e-3, 5e-4, 2.5e-4, 1.25e-4]
    for dt in steps:
        simulator = TensegritySimulator(model, dt=dt)
        states = run(simulator, simulator.initial_state()[0], round(0.05 / dt), parameters)
        t = np.arange(len(states)) * dt
        exact = x0 * np.exp(-decay * t) * (np.cos(omega * t) + decay / omega * np.sin(omega * t))
        errors.append(float(np.abs(states[:, 13] - states[:, 0] - 2.0 + 0.1 - exact).max()))
    assert errors[0] < 1e-2 * x0 + 1e-3 and slope(errors, steps) == pytest.approx(1.0, abs=0.1)
    late = run(TensegritySimulator(model), TensegritySimulator(model).initial_state()[0], 200, parameters)
    assert TensegritySimulator(model).cable_tensions(late[-1:], parameters)[0, 0] == 0.0
    np.testing.assert_array_equal(late[150:, 7], late[150, 7])


def test_free_flight_conserves_momentum_exactly_and_angular_momentum_to_order_dt() -> None:
    drifts, steps = [], [1e-3, 5e-4, 2.5e-4]
    for dt in steps:
        simulator = TensegritySimulator(dt=dt)
        model = simulator.model
        push = 0.2 * np.random.default_rng(0).standard_normal(model.layout.n)
        state = lifted(model, model.layout.retract(simulator.initial_state()[0], push))
        states = run(simulator, state, round(0.2 / dt), TensegrityParameters(gravity=0.0))
        p, q, v, w, _ = model.split(states)
        np.testing.assert_allclose(v.sum(1), np.tile(v[0].sum(0), (len(v), 1)), atol=1e-12 * np.abs(v[0]).sum() * len(v))
        across = (3 * model.rod_radius**2 + model.rod_lengths[0] ** 2) / 12
        inertia = np.array([across, across, model.rod_radius**2 / 2])
        momentum = (np.cross(p, v) + lie.rotate(q, inertia * w)).sum(1)
        drifts.append(float(np.linalg.norm(momentum[-1] - momentum[0]) / np.linalg.norm(momentum[0])))
    assert drifts[0] < 0.05 and slope(drifts, steps) == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize("fixed_rod", [None, 0])
@pytest.mark.parametrize("make", [superball, prism])
@pytest.mark.parametrize("hold", [1, 100])
def test_without_contact_it_is_mujoco(make, hold: int, fixed_rod: int | None) -> None:
    """Paper V-A: both integrate the same equations; after 5000 steps of random control they still agree to 1e-9 m."""
    model = make()
    ours, mujoco_model = TensegritySimulator(model, fixed_rod=fixed_rod), MujocoTensegrity(model, fixed_rod=fixed_rod)
    gravity = 0.0 if fixed_rod is None else G
    state = lifted(model, ours.initial_state()[0])[None]
    controls = np.random.default_rng(3).uniform(-100, 100, (1, 5000 // hold, model.nu))
    a, _ = ours.rollout(state, controls, TensegrityParameters(gravity=gravity), substeps=hold)
    b, _ = mujoco_model.rollout(state, controls, MujocoParameters(gravity=gravity), substeps=hold)
    assert np.abs(model.node_positions(a) - model.node_positions(b)).max() < 1e-9


def test_trajectories_converge_with_order_one_in_dt() -> None:
    ends, steps = [], [1e-3, 5e-4, 2.5e-4, 1.25e-4, 1.5625e-5]
    for dt in steps:
        simulator = TensegritySimulator(dt=dt)
        state = lifted(simulator.model, simulator.initial_state()[0])[None]
        controls = np.random.default_rng(1).uniform(-100, 100, (1, 3, 24))
        ends.append(simulator.rollout(state, controls, substeps=round(0.1 / dt))[0][0, -1, :3])
    errors = [float(np.linalg.norm(end - ends[-1])) for end in ends[:-1]]
    assert slope(errors, steps[:-1]) == pytest.approx(1.0, abs=0.15)


def test_motor_is_a_first_order_filter() -> None:
    """Eq. (6): w_n = u (1 - (1 - a)^n) with a = motor_speed dt, clamped at the control limit."""
    simulator = TensegritySimulator()
    states, _ = simulator.rollout(simulator.initial_state(), np.full((1, 1000, 24), 250.0))
    np.testing.assert_allclose(states[0, :, -1], 100 * (1 - 0.999 ** np.arange(1001)), rtol=1e-12)


# --- contact ---------------------------------------------------------------------------------------------------------


def lying(speed: float = 0.0, angle: float = 0.0) -> tuple[TensegrityModel, Array]:
    """A rod along x on a plane, sliding along its axis."""
    model = rods(([-0.5, 0, 1], [0.5, 0, 1]), terrain=Terrain.slope(angle))
    state = model.move(model.state_from_nodes(model.nodes), rotation=np.array([0.0, -angle, 0.0]))
    state = model.place_on_ground(state)
    state[7], state[9] = speed * np.cos(angle), speed * np.sin(angle)
    normal = np.array([-np.sin(angle), 0.0, np.cos(angle)])
    distance = state[:3] @ normal
    return model, np.concatenate([state[:3] + (model.cap_radius - distance) * normal, state[3:]])


@pytest.mark.parametrize("contact", ["stick", "paper"])
@pytest.mark.parametrize("friction", [0.2, 0.5])
def test_sliding_rod_stops_after_v2_over_2_mu_g(contact: str, friction: float) -> None:
    model, state = lying(speed=2.0)
    parameters = TensegrityParameters(friction=friction, restitution=0.0, sliding_damping=0.0)
    end = run(TensegritySimulator(model, contact=contact), state, 2500, parameters)[-1]
    # One step at full speed is the accuracy of a first-order method.
    assert end[0] == pytest.approx(4.0 / (2 * friction * G), abs=2.0 * 1e-3)
    if contact == "stick":  # what the sweeps over the two ends leave of one step's load
        assert abs(end[7]) < LEFT_BY_SWEEPS * G * 1e-3


@pytest.mark.parametrize("contact", ["stick", "paper"])
def test_rod_on_a_steep_slope_slides_with_g_sin_minus_mu_g_cos(contact: str) -> None:
    angle, friction = np.deg2rad(30.0), 0.3
    model, state = lying(angle=angle)
    parameters = TensegrityParameters(friction=friction, restitution=0.0, sliding_damping=0.0)
    end = run(TensegritySimulator(model, contact=contact), state, 1000, parameters)[-1]
    expected = G * (np.sin(angle) - friction * np.cos(angle))
    assert -end[7] / np.cos(angle) == pytest.approx(expected * 1.0, rel=2e-3)


@pytest.mark.parametrize("restitution", [0.0, 0.3, 0.8])
def test_dropped_rod_leaves_the_ground_with_minus_e_times_its_speed(restitution: float) -> None:
    model, state = lying()
    state[2] += 0.2
    parameters = TensegrityParameters(restitution=restitution, contact_bias=1e-6)
    speeds = run(TensegritySimulator(model), state, 260, parameters)[:, 9]
    hit = int(np.argmax(np.diff(speeds) > 0))
    assert speeds[hit] == pytest.approx(-np.sqrt(2 * G * 0.2), rel=0.01)
    assert speeds[hit + 1] == pytest.approx(-restitution * speeds[hit], abs=LEFT_BY_SWEEPS * 2 * abs(speeds[hit]) + 1e-6 * 1e3)


@pytest.mark.parametrize("epsilon", [0.0, 0.4])
def test_spin_in_contact_is_multiplied_by_epsilon(epsilon: float) -> None:
    """Eq. (5), on a rod without friction so that nothing else turns it."""
    model, state = lying()
    state[2] -= 1e-4
    state[12] = 5.0
    simulator = TensegritySimulator(model)
    after = run(simulator, state, 2, TensegrityParameters(spin_damping=epsilon, friction=0.0))
    np.testing.assert_allclose(after[1:, 12], [5.0 * epsilon, 5.0 * epsilon**2], atol=1e-9)


def touching(rng: np.random.Generator, depth: float, speed: float) -> tuple[TensegrityModel, Array]:
    """A steep rod with one cap `depth` [m] in the ground, moving and turning at random."""
    direction = np.array([*rng.uniform(-0.6, 0.6, 2), 1.0])
    direction /= np.linalg.norm(direction)
    model = rods(([0.0, 0.0, 1.0], (np.array([0.0, 0.0, 1.0]) + 1.684 * direction).tolist()))
    state = model.place_on_ground(model.state_from_nodes(model.nodes), gap=-depth)
    state[7:13] = speed * rng.standard_normal(6)
    return model, state


MUJOCO_PAD = native_constants()


def cone_excess(model: TensegrityModel, state: Array, change: Array, depth: float) -> float:
    """sqrt(|J_t|^2/mu^2 + |M|^2/l^2) / J_n - 1 for mu = l = 1, from a rod's change of velocity (rod frame for w)."""
    q = state[3:7]
    z = lie.rotate(q, np.array([0.0, 0.0, 1.0]))
    arm = -0.5 * model.rod_lengths[0] * z - (model.cap_radius - depth / 2) * np.array([0.0, 0.0, 1.0])
    across = 10.0 * (3 * model.rod_radius**2 + model.rod_lengths[0] ** 2) / 12
    inertia = np.array([across, across, 10.0 * model.rod_radius**2 / 2])
    J = 10.0 * change[:3]
    M = lie.rotate(q, inertia * change[3:]) - np.cross(arm, J)
    return float(np.sqrt(J[0] ** 2 + J[1] ** 2 + M @ M) / J[2] - 1) if J[2] > 0 else float("inf")


def mujoco_step(model: TensegrityModel, state: Array) -> Array:
    """Velocities of rods without cables after a step of MuJoCo whose solver goes on to the last digit, (6 rods,)."""
    mj = MujocoTensegrity(model).mj_model()
    mj.opt.tolerance, mj.opt.iterations = 0.0, 300
    data = mujoco.MjData(mj)
    bodies = state.reshape(-1, 13)
    data.qpos, data.qvel = bodies[:, :7].ravel(), bodies[:, 7:].ravel()
    mujoco.mj_step(mj, data)
    return np.array(data.qvel)


def pad_step(model: TensegrityModel, state: Array, lift: float = 0.0) -> Array:
    """Velocities of rods without cables after a step of ours, (6 rods,)."""
    lifted = model.move(state, translation=np.array([0.0, 0.0, lift]))
    after, _ = TensegritySimulator(model, contact="patch").step(lifted[None], np.zeros((1, 0)), MUJOCO_PAD)
    return np.asarray(after[0].reshape(-1, 13)[:, 7:].ravel())


@pytest.mark.parametrize("speed", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("both_ends", [False, True])
@pytest.mark.parametrize("depth", [1.2e-3, 0.03])
def test_a_pad_is_mujocos_contact(depth: float, both_ends: bool, speed: float) -> None:
    """The energy of the patch mode is MuJoCo's, whether the contact holds, slides or separates, at one end or at both.

    Deeper than cap_radius - rod_radius = 19 mm the rod's own end touches too.
    """
    rng = np.random.default_rng(1)
    held = slid = 0
    seen = 10
    for _ in range(30):
        model, state = lying() if both_ends else touching(rng, depth, speed)
        state[2] -= depth * both_ends
        state[7:13] = speed * rng.standard_normal(6)
        free = pad_step(model, state, lift=9.0)
        ours, expected = pad_step(model, state) - free, mujoco_step(model, state) - free
        assert np.abs(ours - expected).max() <= 1e-6 * np.abs(expected).max() + 1e-12
        if not both_ends and depth < model.cap_radius - model.rod_radius:
            excess = cone_excess(model, state, ours, depth)
            held, slid = held + (excess < -1e-3), slid + (abs(excess) < 1e-6)
            seen = held if speed < 0.1 else slid
    assert seen >= 10


def crossing(rng: np.random.Generator, overlap: float, depth: float) -> TensegrityModel:
    """Two steep rods, each with one cap `depth` [m] in the ground, whose middle parts overlap by `overlap` [m]."""
    low = np.array([0.0, 0.0, 0.05 - depth])
    u, v = (np.array([x, rng.uniform(-0.5, 0.5), 1.0]) / np.sqrt(1.5) for x in (0.5, -0.5))
    normal = np.cross(u, v) / np.linalg.norm(np.cross(u, v))
    meet = low + rng.uniform(0.6, 0.9) * u + (2 * 0.031 - overlap) * normal
    foot = meet - (meet[2] - low[2]) / v[2] * v
    return rods((low.tolist(), (low + 1.7 * u).tolist()), (foot.tolist(), (foot + 1.7 * v).tolist()))


@pytest.mark.parametrize("speed", [0.05, 1.0])
@pytest.mark.parametrize("lift", [0.0, 50.0])
def test_pads_of_rods_that_touch_each_other_are_mujocos_contact(lift: float, speed: float) -> None:
    """In the air, and on the ground, where all three contacts hold one another; depths over 1 mm as in `MUJOCO_PAD`."""
    rng, met = np.random.default_rng(4), 0
    for _ in range(30):
        model = crossing(rng, overlap=3e-3, depth=5e-3)
        state = model.move(model.state_from_nodes(model.nodes), translation=np.array([0.0, 0.0, lift]))
        for rod in range(2):
            state[13 * rod + 7 : 13 * rod + 13] = speed * rng.standard_normal(6)
        free = state.reshape(-1, 13)[:, 7:].ravel() + np.tile([0.0, 0.0, -9.81e-3, 0.0, 0.0, 0.0], 2)
        ours, expected = pad_step(model, state) - free, mujoco_step(model, state) - free
        assert np.abs(ours - expected).max() <= 1e-6 * np.abs(expected).max() + 1e-12
        met += np.abs(expected).max() > 1e-6
    assert met >= 10


def test_gradients_through_rods_that_touch_each_other_equal_central_differences() -> None:
    rng = np.random.default_rng(6)
    for _ in range(5):
        model = crossing(rng, overlap=3e-3, depth=5e-3)
        state = model.state_from_nodes(model.nodes)
        for rod in range(2):
            state[13 * rod + 7 : 13 * rod + 13] = 0.3 * rng.standard_normal(6)
        simulator = TensegritySimulator(model, contact="patch")
        exact = simulator.linearize(state[None], np.zeros((1, 0)), MUJOCO_PAD, substeps=3)
        differences = finite_differences(simulator, state[None], np.zeros((1, 0)), MUJOCO_PAD, substeps=3, epsilon=1e-6)
        for ours, theirs in ((exact.A, differences.A), (exact.C, differences.C)):
            assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max()


def test_rods_pressed_into_each_other_do_not_spin_up() -> None:
    """Full commands fold the ball, with up to six contacts between rods at once.

    Only contacts turn a rod about its own axis, and they resist turning: the spin is of the order of MuJoCo's (27 times that
    where contacts ignored one another).
    """
    commands = np.random.default_rng(3).choice([-100.0, 100.0], (8, 5, 24)).repeat(20, axis=1)
    spins = []
    for simulator, parameters in ((TensegritySimulator(contact="patch"), MUJOCO_PAD), (MujocoTensegrity(), None)):
        states, status = simulator.rollout(simulator.initial_state(8), commands, parameters, substeps=100)
        assert not status.any()
        spins.append(np.abs(states[:, :, 12:78:13]).max())
    assert spins[0] < 10 * spins[1]


def test_constants_of_the_mujoco_model_are_told_only_where_our_engine_has_them() -> None:
    with pytest.raises(ParameterError, match="torsional_friction"):
        native_constants(MujocoParameters(torsional_friction=0.5))
    with pytest.raises(ParameterError, match="batch"):
        native_constants(MujocoParameters(friction=np.array([0.5, 1.0])))


def mechanical_energy(model: TensegrityModel, states: Array, parameter_values: TensegrityParameters) -> Array:
    """Kinetic energy of thin rods, weight and stretched cables (..., ) [J]."""
    ends, speeds = model.node_positions(states), model.node_velocities(states)
    one, other = speeds[..., ::2, :], speeds[..., 1::2, :]
    moving = parameter_values.rod_mass / 6.0 * (one**2 + one * other + other**2).sum(axis=(-2, -1))
    stretch = np.maximum(model.cable_lengths(states) - parameter_values.rest_length, 0.0)
    weight = parameter_values.rod_mass * parameter_values.gravity * model.num_rods * ends[..., 2].mean(axis=-1)
    return np.asarray(moving + weight + 0.5 * parameter_values.cable_stiffness * (stretch**2).sum(axis=-1))


def test_pads_that_slow_turning_as_sliding_feed_no_energy_to_a_light_robot() -> None:
    """Pads that slow turning less than sliding push a rod on against its cables: it hops, as is said."""
    small = replace(prism(), nodes=0.5 * prism().nodes, rod_radius=0.005)
    engine, fall = TensegritySimulator(model=small, contact="patch"), 0.05
    light = engine.default_parameters.replace(rod_mass=0.1, cable_stiffness=500.0, cable_damping=2.0, rest_length=0.3)
    rng, starts = np.random.default_rng(0), []
    for _ in range(8):
        turned = lie.rotate(lie.exp(0.6 * rng.standard_normal(3)), small.nodes)
        starts.append(small.state_from_nodes(turned - [0.0, 0.0, turned[:, 2].min() - fall]))
    rises = {}
    for turning in (light.sliding_damping, light.pivot_damping):
        states, status = engine.rollout(np.array(starts), np.zeros((8, 4000, engine.nu)), light.replace(pivot_damping=turning))
        energy = mechanical_energy(small, states[:, 1000:], light)
        rises[turning] = float((np.maximum.accumulate(energy[:, ::-1], axis=1)[:, ::-1] - energy).max())
        assert not status.any()
    of_the_fall = small.num_rods * light.rod_mass * light.gravity * fall
    assert rises[light.sliding_damping] < 0.02 * of_the_fall < rises[light.pivot_damping]
    by_mujoco = native_constants(MujocoParameters(rod_mass=0.1, cable_stiffness=500.0, cable_damping=2.0, rest_length=0.3))
    assert engine.warning(by_mujoco) == "" and "without motors the robot gains" in engine.warning(light)


def test_a_pad_never_leaves_its_friction_cone() -> None:
    rng, slid = np.random.default_rng(2), 0
    for _ in range(60):
        model, state = touching(rng, 2e-3, 1.0)
        change = pad_step(model, state) - pad_step(model, state, lift=9.0)
        if np.abs(change).max() < 1e-12:
            continue  # it separates
        excess = cone_excess(model, state, change, 2e-3)
        assert excess <= 1e-6
        slid += excess > -1e-6
    assert slid >= 10


@pytest.mark.parametrize("degrees", [0.0, 5.0])
@pytest.mark.parametrize("make", [superball, prism])
def test_robot_at_rest_creeps_less_than_a_millimetre_a_minute(make, degrees: float) -> None:
    angle = np.deg2rad(degrees)
    model = make(terrain=Terrain.slope(angle))
    state = model.place_on_ground(model.move(model.state_from_nodes(model.nodes), rotation=np.array([0.0, -angle, 0.0])))
    simulator = TensegritySimulator(model)
    # The prism's twist, a soft mode under strong damping, relaxes with a time constant of 110 s.
    rest, _ = simulator.step(state[None], np.zeros((1, model.nu)), substeps=400_000)
    later, _ = simulator.step(rest, np.zeros((1, model.nu)), substeps=60_000)
    assert np.linalg.norm(model.node_positions(later) - model.node_positions(rest), axis=-1).max() < 1e-3


def test_rods_collide_where_their_shapes_overlap_and_keep_their_momentum() -> None:
    """Capsules with spheres at the ends, against brute force over points of both axes."""
    rng = np.random.default_rng(5)
    touched = 0
    for _ in range(60):
        centers = rng.normal(0, 0.13, (2, 3)) + np.array([0, 0, 50])
        ends = [(c - d, c + d) for c, d in zip(centers, random_directions(rng), strict=True)]
        model = rods(*[(a.tolist(), b.tolist()) for a, b in ends])
        s = np.linspace(0, 1, 401)
        radius = np.where((s == 0) | (s == 1), model.cap_radius, model.rod_radius)
        first, second = (a + s[:, None] * (b - a) for a, b in ends)
        gap = (np.linalg.norm(first[:, None] - second[None], axis=-1) - radius[:, None] - radius[None]).min()
        if abs(gap) < 1e-4:
            continue  # closer than the sampling can tell
        simulator = TensegritySimulator(model)
        end = run(simulator, simulator.initial_state()[0], 1, TensegrityParameters(gravity=0.0))[-1]
        moved = np.abs(np.concatenate([end[7:10], end[20:23]])).max() > 0
        assert moved == (gap < 0), gap
        np.testing.assert_allclose(end[7:10] + end[20:23], 0.0, atol=1e-12)
        touched += moved
    assert 10 <= touched <= 50


def random_directions(rng: np.random.Generator) -> Array:
    d = rng.standard_normal((2, 3))
    return np.asarray(0.5 * d / np.linalg.norm(d, axis=1, keepdims=True))


def test_a_crushed_ball_does_not_turn_inside_out() -> None:
    """Full contraction pulls the rods together; rod-rod contact keeps every pair from passing through each other."""
    simulator = TensegritySimulator()
    model = simulator.model
    state = model.place_on_ground(simulator.initial_state()[0])
    states, status = simulator.rollout(state[None], np.full((1, 300, 24), -100.0), substeps=10)
    assert not status.any()
    pairs = list(itertools.combinations(range(6), 2))
    nodes = model.node_positions(states[0])
    sides = np.array([[triple(n[2 * a : 2 * a + 2], n[2 * b : 2 * b + 2]) for a, b in pairs] for n in nodes[::5]])
    crossing = np.abs(sides[0]) > 0.1  # pairs that are not parallel
    assert (np.sign(sides[:, crossing]) == np.sign(sides[0, crossing])).all()


def triple(a: Array, b: Array) -> float:
    """Signed volume spanned by two rods and their distance: its sign changes when they pass through each other."""
    return float((a.mean(0) - b.mean(0)) @ np.cross(a[1] - a[0], b[1] - b[0]))


@pytest.mark.parametrize("terrain", [Terrain.steps(height=0.2, length=0.5), Terrain.rubble(seed=3)])
def test_a_ball_comes_to_rest_on_rough_ground_without_sinking_in(terrain: Terrain) -> None:
    model = superball(terrain=terrain)
    simulator = TensegritySimulator(model)
    state = model.place_on_ground(model.state_from_nodes(model.nodes), gap=0.1)
    states, status = simulator.rollout(state[None], np.zeros((1, 100, 24)), substeps=100)
    assert not status.any()
    assert abs(model.clearance(states[:, -1])[0]) < 0.02
    assert np.abs(model.com_velocity(states[:, -1])).max() < 1e-3
