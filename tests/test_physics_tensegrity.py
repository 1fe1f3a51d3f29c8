"""The tensegrity engine against things that are not our code: closed forms, conservation, order of convergence, MuJoCo."""

from __future__ import annotations

import itertools
from dataclasses import replace

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from softgym_envs.core import lie
from softgym_envs.core.errors import OptionError, ParameterError, StructureError
from softgym_envs.core.simulator import finite_differences
from softgym_envs.tensegrity.dynamics import TensegritySimulator
from softgym_envs.tensegrity.model import TensegrityModel, prism, superball
from softgym_envs.tensegrity.mujoco import TensegrityTwin, TwinParameters, native_constants
from softgym_envs.tensegrity.parameters import CONTACT, TensegrityBody, TensegrityParameters
from softgym_envs.tensegrity.statics import find_form, stability
from softgym_envs.tensegrity.structure_file import load_structure
from softgym_envs.tensegrity.terrain import Terrain

Array = NDArray[np.float64]
G = 9.81
LEFT_BY_SWEEPS = 1e-3
"""Theory says 0.072^4 = 2.7e-5 for a thin rod touching at its axis' ends; caps have a radius."""


def rods(*ends: tuple[list[float], list[float]], cables: tuple[tuple[int, int], ...] = (), **fields: object) -> TensegrityModel:
    """Loose rods from one point to another."""
    nodes = np.array([point for pair in ends for point in pair])
    return TensegrityModel("rods", nodes, cables, (), **fields)  # type: ignore[arg-type]


def run(simulator: TensegritySimulator, state: Array, steps: int, parameters: TensegrityParameters | None = None) -> Array:
    """Every state of `steps` steps without control, (steps+1, nx)."""
    states, status = simulator.rollout(state[None], np.zeros((1, steps, simulator.nu)), parameters)
    assert not status.any()
    return states[0]


def slope(errors: list[float], steps: list[float]) -> float:
    """Order of convergence."""
    return float(np.polyfit(np.log(steps), np.log(errors), 1)[0])


def lifted(model: TensegrityModel, state: Array) -> Array:
    return model.move(state, translation=np.array([0.0, 0.0, 100.0]))


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
    ours, twin = TensegritySimulator(model, fixed_rod=fixed_rod), TensegrityTwin(model, fixed_rod=fixed_rod)
    gravity = 0.0 if fixed_rod is None else G
    state = lifted(model, ours.initial_state()[0])[None]
    controls = np.random.default_rng(3).uniform(-100, 100, (1, 5000 // hold, model.nu))
    a, _ = ours.rollout(state, controls, TensegrityParameters(gravity=gravity), substeps=hold)
    b, _ = twin.rollout(state, controls, TwinParameters(gravity=gravity), substeps=hold)
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
    mj = TensegrityTwin(model).mj_model()
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
    for simulator, parameters in ((TensegritySimulator(contact="patch"), MUJOCO_PAD), (TensegrityTwin(), None)):
        states, status = simulator.rollout(simulator.initial_state(8), commands, parameters, substeps=100)
        assert not status.any()
        spins.append(np.abs(states[:, :, 12:78:13]).max())
    assert spins[0] < 10 * spins[1]


def test_constants_of_the_twin_are_told_only_where_our_engine_has_them() -> None:
    with pytest.raises(ParameterError, match="torsional_friction"):
        native_constants(TwinParameters(torsional_friction=0.5))
    with pytest.raises(ParameterError, match="batch"):
        native_constants(TwinParameters(friction=np.array([0.5, 1.0])))


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


# --- gradients -------------------------------------------------------------------------------------------------------


ALL_CONTACT = set().union(*CONTACT.values())
PRESSED = TensegrityParameters(restitution=-0.3, sliding_damping=0.5, friction=0.8, spin_damping=0.3, contact_bias=1e-3)
"""Overlap decays slowly, so that contacts which begin closed stay closed: the motion is differentiable."""


def pressed(simulator: TensegritySimulator) -> Array:
    """Settled, then pushed 5 mm into the ground and shaken: at rest, where approach turns into separation, e has a kink."""
    model = simulator.model
    state = model.place_on_ground(simulator.initial_state()[0])[None]
    state, _ = simulator.step(state, np.zeros((1, model.nu)), substeps=2000)
    shake = np.concatenate([np.tile(np.repeat([0.0, 1e-3, 0.02, 0.02], 3), model.num_rods), np.ones(model.nu)])
    state = model.layout.retract(state, shake * np.random.default_rng(8).standard_normal((1, model.layout.n)))
    return model.move(state[0], translation=np.array([0.0, 0.0, -5e-3]))[None]


def error_of(exact: float, f, size: float) -> float:
    """Difference to the best of a range of fourth-order differences: rounding limits small steps, curvature large ones."""
    steps = size * np.logspace(-9, -2, 22)
    return min(abs((8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h) - exact) for h in steps)


@pytest.mark.parametrize("contact", ["stick", "paper", "patch"])
@pytest.mark.parametrize("make", [superball, prism])
def test_reverse_mode_through_500_substeps_of_contact_equals_central_differences(make, contact: str) -> None:
    """Every constant, and random directions of state and controls, to 1e-5 relative."""
    simulator = TensegritySimulator(make(), contact=contact)
    model, rng = simulator.model, np.random.default_rng(2)
    state = pressed(simulator)
    controls = rng.uniform(-20, 20, (1, 5, model.nu))
    weight = rng.standard_normal((1, 6, model.layout.nx))
    weight[:, :-1] = 0
    parameters = PRESSED
    gradient = simulator.vjp(state, controls, weight, parameters, substeps=100)
    assert (model.clearance(gradient.states) < -1e-4).all(), "the robot must stay in contact"

    def value(x: Array, u: Array, p: TensegrityParameters) -> float:
        return float((simulator.rollout(x, u, p, substeps=100)[0] * weight).sum())

    def agrees(terms: Array, f, size: float) -> None:
        """A directional derivative is a sum that may cancel: its rounding is relative to the sum of |terms|."""
        assert error_of(float(terms.sum()), f, size) <= 1e-5 * np.abs(terms).sum()

    dx = rng.standard_normal((1, model.layout.n))
    du = rng.standard_normal(controls.shape)
    in_tangent = gradient.state[0] @ model.layout.retract_jacobian(state)[0]
    agrees(in_tangent * dx[0], lambda h: value(model.layout.retract(state, h * dx), controls, parameters), 1e-2)
    agrees(gradient.controls * du, lambda h: value(state, controls + h * du, parameters), 10.0)
    for index, name in enumerate(parameters.names()):
        exact = float(gradient.constants[0, index])
        if name == "terrain_scale" or (name in ALL_CONTACT and name not in CONTACT[contact]):
            assert exact == 0.0
            continue
        size = abs(getattr(parameters, name))

        def moved(h: float, name: str = name) -> float:
            return value(state, controls, parameters.replace(**{name: getattr(parameters, name) + h}))

        agrees(np.array([exact]), moved, size)


@pytest.mark.parametrize("contact", ["stick", "paper", "patch"])
@pytest.mark.parametrize("make", [superball, prism])
def test_linearize_in_contact_equals_central_differences(make, contact: str) -> None:
    """One control step of 100 ms on the ground: every column to 1e-5 of its largest entry, the best of several widths.

    Beside that, the rounding of a difference: the last digits of the state, over a hundred steps, over the width.
    """
    simulator = TensegritySimulator(make(), contact=contact)
    state = pressed(simulator)
    control = np.random.default_rng(2).uniform(-20, 20, (1, simulator.nu))
    exact = simulator.linearize(state, control, PRESSED, substeps=100)
    assert float(simulator.model.clearance(state)[0]) < -1e-3, "the robot must be in contact"
    scales = [abs(getattr(PRESSED, name)) or 1.0 for name in PRESSED.names()]
    widths = (np.ones(simulator.n), np.ones(simulator.nu), np.array(scales))
    excess = [np.full(matrix.shape[2], np.inf) for matrix in exact]
    for epsilon in (1e-4, 1e-5, 1e-6, 1e-7, 1e-8):
        differences = finite_differences(simulator, state, control, PRESSED, substeps=100, epsilon=epsilon)
        for index, (a, b, width) in enumerate(zip(exact, differences, widths, strict=True)):
            rounding = 100 * np.finfo(float).eps * np.abs(state).max() / (epsilon * width)
            error = np.abs(a[0] - b[0]).max(axis=0) - rounding
            excess[index] = np.minimum(excess[index], error / np.maximum(np.abs(a[0]).max(axis=0), 1e-300))
    for name, errors in zip("ABC", excess, strict=True):
        assert errors.max() <= 1e-5, (name, errors.argmax(), errors.max())


def test_gradient_over_rubble_sees_the_terrain_scale() -> None:
    simulator = TensegritySimulator(superball(terrain=Terrain.rubble(seed=1)))
    state = pressed(simulator)
    controls = np.zeros((1, 2, 24))
    weight = np.zeros((1, 3, simulator.nx))
    weight[:, -1, 2] = 1.0
    gradient = simulator.vjp(state, controls, weight, PRESSED, substeps=50)
    exact = gradient.constants[0, TensegrityParameters.index("terrain_scale")]

    def height(h: float) -> float:
        return float(simulator.rollout(state, controls, PRESSED.replace(terrain_scale=1 + h), substeps=50)[0][0, -1, 2])

    assert exact != 0.0 and error_of(float(exact), height, 1.0) <= 1e-5 * abs(exact)


def test_gradient_in_pieces_equals_gradient_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long rollouts are recorded control step by control step."""
    simulator, rng = TensegritySimulator(), np.random.default_rng(0)
    state, controls = np.repeat(pressed(simulator), 3, axis=0), rng.uniform(-50, 50, (3, 4, 24))
    weight = rng.standard_normal((3, 5, simulator.nx))
    whole = simulator.vjp(state, controls, weight, substeps=10)
    monkeypatch.setattr("softgym_envs.core.warp_engine.RECORD_BYTES", 0)
    pieces = simulator.vjp(state, controls, weight, substeps=10)
    for a, b in zip(whole, pieces, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12 * np.abs(a).max())


def test_torch_sees_the_same_numbers_and_gradients() -> None:
    import torch

    simulator = TensegritySimulator(prism())
    state = pressed(simulator)
    controls = np.full((1, 3, 3), 10.0)
    constants = TensegrityParameters().to_matrix(1)
    tensors = [torch.tensor(a, requires_grad=True) for a in (state, controls, constants)]
    states = simulator.torch_rollout(*tensors, substeps=20)
    np.testing.assert_array_equal(states.detach().numpy(), simulator.rollout(state, controls, substeps=20)[0])
    states[:, -1].sum().backward()
    weight = np.zeros(states.shape)
    weight[:, -1] = 1.0
    expected = simulator.vjp(state, controls, weight, substeps=20)
    for tensor, gradient in zip(tensors, expected[2:], strict=True):
        np.testing.assert_allclose(tensor.grad.numpy(), gradient, rtol=1e-12)


# --- statics and structures ------------------------------------------------------------------------------------------


def test_form_finding_finds_the_known_rest_poses() -> None:
    """SUPERball: cables of sqrt(6)/4 of the rod by symmetry. Any structure: the net force on every rod is zero."""
    model = superball()
    rng = np.random.default_rng(0)
    shaken = np.concatenate([np.tile(np.repeat([0.03, 0.05, 0.0, 0.0], 3), 6) * rng.standard_normal(72), np.zeros(24)])
    crooked = replace(model, nodes=model.node_positions(model.layout.retract(model.state_from_nodes(model.nodes), shaken)))
    found = find_form(crooked)
    lengths = found.cable_lengths(found.state_from_nodes(found.nodes))
    np.testing.assert_allclose(lengths, np.sqrt(6) / 4 * 1.684, atol=1e-6)
    np.testing.assert_allclose(found.rod_lengths, 1.684, atol=1e-9)
    settled_prism = find_form(prism())
    simulator = TensegritySimulator(settled_prism)
    force = net_forces(settled_prism, simulator.cable_tensions(simulator.initial_state())[0])
    assert np.abs(force).max() < 1e-3  # of 1e3 N of tension


def net_forces(model: TensegrityModel, tensions: Array) -> Array:
    """Sum of the cables' pulls on each rod, (R, 3)."""
    total = np.zeros((model.num_rods, 3))
    for (a, b), tension in zip(model.cables, tensions, strict=True):
        pull = tension * (model.nodes[b] - model.nodes[a]) / np.linalg.norm(model.nodes[b] - model.nodes[a])
        total[a // 2] += pull
        total[b // 2] -= pull
    return total


@pytest.mark.parametrize(
    ("changes", "dt"), [({}, 1e-3), ({"cable_damping": 1500.0}, 1e-3), ({"rod_mass": 5.0}, 1e-3), ({}, 1.5e-3)]
)
def test_stability_verdict_is_what_happens(changes: dict[str, float], dt: float) -> None:
    """A pushed robot in free flight comes to rest or not, as the eigenvalues of the rest pose said."""
    simulator = TensegritySimulator(dt=dt)
    parameters = TensegrityParameters(gravity=0.0, **changes)
    verdict = stability(simulator, parameters)
    assert ("use a smaller dt" in str(verdict)) == (not verdict.stable)
    model = simulator.model
    push = np.concatenate([np.tile(np.repeat([0, 0, 1e-6, 1e-6], 3), 6), np.zeros(24)])
    state = lifted(
        model,
        model.layout.retract(simulator.initial_state()[0], push * np.random.default_rng(0).standard_normal(model.layout.n)),
    )
    end, status = simulator.step(state[None], np.zeros((1, 24)), parameters, substeps=2000)
    speed = np.abs(end[0, 7:10] - model.com_velocity(end)[0]).max()
    assert (status[0] == 0 and speed < 1e-5) == verdict.stable


STRUCTURE = """
name = "tripod"
actuated = ["c0", "c1"]
[nodes]
a = [0.0, 0.0, 0.0]
b = [0.0, 0.0, 1.0]
c = [0.5, 0.0, 0.0]
d = [0.5, 0.0, 1.0]
[[rods]]
nodes = ["a", "b"]
[[rods]]
nodes = ["c", "d"]
[[cables]]
name = "c0"
nodes = ["a", "c"]
[[cables]]
name = "c1"
nodes = ["b", "d"]
stiffness_ratio = 2.0
"""


def test_structures_come_from_toml(tmp_path) -> None:
    path = tmp_path / "robot.toml"
    path.write_text(STRUCTURE)
    model = load_structure(path)
    assert (model.name, model.num_rods, model.cables, model.actuated) == ("tripod", 2, ((0, 2), (1, 3)), (0, 1))
    # Twice the stiffness pulls twice as hard.
    simulator = TensegritySimulator(model)
    tensions = simulator.cable_tensions(simulator.initial_state(), TensegrityParameters(rest_length=0.4))
    np.testing.assert_allclose(tensions[0], [0.1e4, 0.2e4], rtol=1e-12)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('nodes = ["a", "c"]', 'nodes = ["a", "x"]', "cable 0 dangles: node 'x' does not exist"),
        ('nodes = ["a", "c"]', 'nodes = ["a", "b"]', "cable 0 joins nodes 0 and 1 of one rod"),
        ('nodes = ["c", "d"]', 'nodes = ["c", "a"]', "node 'a' is the end of 2 rods"),
        ("d = [0.5, 0.0, 1.0]", "d = [0.5, 0.0]", "node 'd' is"),
        ("d = [0.5, 0.0, 1.0]", "d = [0.5, 0.0, 0.01]", "rod 1 is 0.01 m long"),
        ('actuated = ["c0", "c1"]', 'actuated = ["c7"]', "actuated cable 'c7' does not exist"),
        ('name = "tripod"', 'nmae = "tripod"', "unknown entry 'nmae'"),
        ("stiffness_ratio = 2.0", 'stiffness_ratio = "stiff"', "stiffness_ratio of cable 1 is 'stiff', expected a number"),
        ('actuated = ["c0", "c1"]', 'actuated = "c0"', "actuated is 'c0', expected a list"),
        ('actuated = ["c0", "c1"]', "rod_radius = true", "rod_radius is True, expected a number"),
        ("[nodes]", "[nodes", "not valid TOML"),
    ],
)
def test_bad_structures_are_refused_with_one_clear_error(tmp_path, old: str, new: str, message: str) -> None:
    path = tmp_path / "robot.toml"
    path.write_text(STRUCTURE.replace(old, new, 1))
    with pytest.raises((StructureError, ValueError), match=message):
        load_structure(path)


def test_ground_height_is_bilinear_for_few_points_and_for_many() -> None:
    """Grid points, the middle of a cell (mean of its corners), the rim goes on; both ways agree bit for bit; NaN stays NaN."""
    heights = np.random.default_rng(0).standard_normal((5, 9))
    ground = Terrain(heights=heights, cell=0.5, angle=0.1)
    x, y = np.meshgrid(0.5 * (np.arange(5) - 2), 0.5 * (np.arange(9) - 4), indexing="ij")
    np.testing.assert_allclose(ground.height(x, y, 3.0), 3.0 * heights + np.tan(0.1) * x, atol=1e-14)
    corners = heights[1:3, 2:4].mean() + np.tan(0.1) * -0.25
    np.testing.assert_allclose(ground.height(np.array([-0.25]), np.array([-0.75])), corners, atol=1e-14)
    np.testing.assert_allclose(
        ground.height(np.array([50.0]), np.array([-50.0])), heights[-1, 0] + np.tan(0.1) * 50, atol=1e-12
    )
    points = np.random.default_rng(1).uniform(-3, 3, (2, 60, 12))
    points[0, 3, 3] = points[1, 7, 5] = np.nan
    many = ground.height(*points)
    np.testing.assert_array_equal(many, [ground.height(px, py) for px, py in zip(*points, strict=True)])
    assert np.argwhere(np.isnan(many)).tolist() == [[3, 3], [7, 5]]
    assert np.isnan(Terrain.flat().height(np.array([0.0, np.nan, 0.0]), np.array([0.0, 0.0, np.nan]))).tolist() == [
        False,
        True,
        True,
    ]


def test_bad_simulators_are_refused() -> None:
    with pytest.raises(OptionError, match="contact is 'sticky', allowed are paper, stick, patch"):
        TensegritySimulator(contact="sticky")
    with pytest.raises(OptionError, match="device is 'tpu'"):
        TensegritySimulator(device="tpu")
    with pytest.raises(StructureError, match="fixed_rod is 9"):
        TensegritySimulator(fixed_rod=9)
    with pytest.raises(ParameterError, match="parameters are TensegrityBody"):
        simulator = TensegritySimulator()
        simulator.step(simulator.initial_state(), np.zeros((1, 24)), TensegrityBody())
    with pytest.raises(StructureError, match="slack"):
        find_form(superball(), TensegrityParameters(rest_length=3.0))
