"""The lab's vine robot against beam theory, conservation, convergence, Coulomb's law and geometry. The vine's MuJoCo model
against our engine, where both have to be the same robot. The paper's model [Jitosho2021]: the O(N) solver against the
program written out as matrices, and OSQP as published."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from reproductions.jitosho2021.experiments import BEAM
from reproductions.jitosho2021.model import CLUTTERED, PaperModel, cluttered_scene, runtime_scene
from reproductions.jitosho2021.parameters import PaperParameters
from reproductions.jitosho2021.program import OsqpSolver, assemble, contact_rows, in_millimetres, solve_exactly
from reproductions.jitosho2021.simulator import PaperSimulator
from softgym_envs.core.errors import DataError, StructureError
from softgym_envs.core.simulator import Status
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.model import VineModel
from softgym_envs.systems.vine.mujoco import MujocoVine
from softgym_envs.systems.vine.obstacles import circle, polygon, rectangle, to_local, wall
from softgym_envs.systems.vine.parameters import VineParameters

QUIET = VineParameters(drag=0.0, bending_damping=1e-8)
LENGTH = 0.4


def beam(num_links, **keywords):
    """A robot of `LENGTH` with so many links, linear bending; so thin that its rotary inertia does not count."""
    model = VineModel(num_links=num_links, max_length=LENGTH, initial_length=LENGTH, num_sections=0, radius=1e-3)
    return VineSimulator(model, bending="linear", **keywords)


def rest(simulator, parameters, control=None, seconds=20.0):
    """Where a damped robot comes to rest."""
    control = np.zeros((1, simulator.nu)) if control is None else control
    state, status = simulator.step(simulator.initial_state(), control, parameters, substeps=round(seconds / simulator.dt))
    assert status[0] == Status.OK
    return state[0]


# --- statics -----------------------------------------------------------------------------------------------------------


def test_cantilever_sags_as_a_beam_does():
    """Own weight q = rho g: deflection q L^4 / 8 EI, slope q L^3 / 6 EI; midpoint rule, so the error is of order 1/N^2."""
    parameters = VineParameters(gravity=0.05)
    load = parameters.linear_density * 0.05
    expected = -load * LENGTH**4 / (8 * parameters.bending_stiffness)
    errors = []
    for n in (10, 20, 40):
        simulator = beam(n)
        tip = simulator.model.tip(rest(simulator, parameters))
        errors.append(abs(tip[1] / expected - 1))
    assert errors[-1] < 1e-3
    # The tip link stands for two in one when it is long; at L = N l it is l long, and halving it divides the error by four.
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.1) and errors[1] / errors[2] == pytest.approx(4.0, rel=0.1)


def test_muscles_bend_the_free_robot_to_one_curvature():
    """G p (1 - kappa / kappa_full) = EI kappa in every joint of a section: kappa = G p / (EI + G p / kappa_full)."""
    model = VineModel(num_links=20, max_length=LENGTH, initial_length=LENGTH, num_sections=1)
    simulator, c = VineSimulator(model, bending="linear"), VineParameters()
    state = rest(simulator, c, np.array([[0.0, 1e4, 0.0]]))
    moment = c.steering_gain * 1e4
    curvature = moment / (c.bending_stiffness + moment / c.steering_curvature)
    bends = np.diff(model.split(state).theta, prepend=0.0) / np.append(0.5, np.ones(19)) / model.link_length
    np.testing.assert_allclose(bends, curvature, rtol=1e-6)


# --- dynamics ----------------------------------------------------------------------------------------------------------


def first_frequency(num_links, dt, seconds=1.0):
    """[rad/s] of a released cantilever, from the zero crossings of its tip."""
    simulator = beam(num_links, dt=dt)
    state = simulator.model.straight_state(curvature=0.0)
    x = (np.arange(num_links) + 0.5) / num_links
    # Slope of the first mode of Euler-Bernoulli: higher ones are hardly excited.
    k = 1.8751040687
    r = (np.cosh(k) + np.cos(k)) / (np.sinh(k) + np.sin(k))
    state[:num_links] += 0.02 * (np.sinh(k * x) + np.sin(k * x) - r * (np.cosh(k * x) - np.cos(k * x)))
    steps = round(seconds / dt)
    states, _ = simulator.rollout(state[None], np.zeros((1, steps, 1)), QUIET)
    y = simulator.model.tip(states[0])[:, 1]
    crossings = np.flatnonzero(y[:-1] * y[1:] < 0)
    times = dt * (crossings + y[crossings] / (y[crossings] - y[crossings + 1]))
    return np.pi / np.diff(times).mean()


def test_released_cantilever_rings_at_euler_bernoulli():
    """omega_1 = 1.8751^2 sqrt(EI / rho L^4): errors of order 1/N^2 in space and dt in time."""
    expected = 1.8751040687**2 * np.sqrt(QUIET.bending_stiffness / (QUIET.linear_density * LENGTH**4))
    coarse, fine = (first_frequency(n, 2e-4) for n in (10, 20))
    assert fine == pytest.approx(expected, rel=2e-3)
    assert abs(fine / expected - 1) < abs(coarse / expected - 1)


def test_oscillation_dies_away_at_the_rate_of_the_tube_and_not_of_the_step():
    """Kelvin-Voigt beam: mode 1 dies away as exp(-omega_1^2 eta t / 2 EI), at a step of 1/30 of its period."""
    simulator = beam(16, dt=0.01)
    c = VineParameters(drag=0.0, bending_damping=1.5e-4)
    k = 1.8751040687
    omega = k**2 * np.sqrt(c.bending_stiffness / (c.linear_density * LENGTH**4))
    state = simulator.model.straight_state()
    x = (np.arange(16) + 0.5) / 16
    r = (np.cosh(k) + np.cos(k)) / (np.sinh(k) + np.sin(k))
    state[:16] += 0.05 * (np.sinh(k * x) + np.sin(k * x) - r * (np.cosh(k * x) - np.cos(k * x)))
    states, _ = simulator.rollout(state[None], np.zeros((1, 150, 1)), c)
    total = energy(simulator, states, c)[0]
    rate = -0.5 * np.polyfit(simulator.dt * np.arange(20, 151), np.log(total[20:]), 1)[0]
    # The wave's own step is second order: (omega dt)^2 = 0.05.
    assert rate == pytest.approx(0.5 * omega**2 * c.bending_damping / c.bending_stiffness, rel=0.06)


def test_growth_converges_under_refinement():
    """A robot that grows and steers: halving links and steps halves the distance to the limit, at least."""
    tips = []
    for n, dt in ((10, 0.02), (20, 0.01), (40, 0.005), (80, 0.0025)):
        simulator = VineSimulator(VineModel(num_links=n, max_length=1.0), dt=dt)
        control = np.tile([0.1, 8e3, 0.0, 0.0, 6e3], (1, 40, 1))
        states, _ = simulator.rollout(simulator.initial_state(), control, substeps=round(0.1 / dt))
        tips.append(simulator.model.tip(states[0, -1])[:2])
    steps = np.linalg.norm(np.diff(tips, axis=0), axis=1)
    assert steps[1] < 0.7 * steps[0] and steps[2] < 0.7 * steps[1] and steps[2] < 4e-3


def energy(simulator, states, parameters, elastic=None):
    """Kinetic energy with the directions of one step earlier (as in `dynamics`), and elastic energy, (T,).

    elastic: curvature [1/m] -> energy per length [N]; linear springs if left out.
    """
    model, parts = simulator.model, simulator.model.split(states)
    n, length = model.num_links, model.link_length
    earlier = parts.theta - simulator.dt * parts.omega
    arm = length * parts.omega[..., None] * np.stack([-np.sin(earlier), np.cos(earlier)], axis=-1)
    ends = np.cumsum(arm, axis=-2)
    centre = ends - 0.5 * arm
    mass = parameters.linear_density * length
    kinetic = 0.5 * mass * (centre**2).sum(axis=(-1, -2)) + 0.5 * mass * (length**2 / 12 + model.radius**2 / 2) * (
        parts.omega**2
    ).sum(axis=-1)
    spacing = np.append(0.5, np.ones(n - 1)) * length
    curvature = np.diff(parts.theta, axis=-1, prepend=0.0) / spacing
    stored = 0.5 * parameters.bending_stiffness * curvature**2 if elastic is None else elastic(curvature)
    return kinetic + (spacing * stored).sum(axis=-1)


@pytest.mark.parametrize("dt", [0.001, 0.01, 0.1])
def test_energy_never_grows_without_growth_and_actuation(dt):
    """From wild states, whatever the step: the scheme is a projection and an implicit spring."""
    rng = np.random.default_rng(0)
    simulator = beam(15, dt=dt)
    state = np.tile(simulator.initial_state(), (6, 1))
    state[:, :15] += np.cumsum(0.3 * rng.normal(size=(6, 15)), axis=1)
    state[:, 15:30] = 20 * rng.normal(size=(6, 15))
    states, status = simulator.rollout(state, np.zeros((6, 200, 1)), QUIET)
    assert (status == Status.OK).all()
    total = energy(simulator, states, QUIET)
    assert (np.diff(total, axis=1) <= 1e-12 * total[:, :1]).all()
    assert (total[:, -1] < 0.9 * total[:, 0]).all()


def test_momentum_balance_of_one_step():
    """The solution is stationary: velocities moved in any direction cost more, by the program in Cartesian terms."""
    rng = np.random.default_rng(1)
    simulator = beam(8)
    c = VineParameters()
    state = simulator.initial_state()
    state[:, :8] += np.cumsum(0.2 * rng.normal(size=8))
    state[:, 8:16] = rng.normal(size=8)
    after, _ = simulator.step(state, np.zeros((1, 1)), c)

    spin = simulator.model.link_length**2 / 12 + simulator.model.radius**2 / 2  # of a thin tube, per mass

    def cost(omega):
        theta, before, h, length = state[0, :8], state[0, 8:16], simulator.dt, simulator.model.link_length
        mass = c.linear_density * length
        spacing = np.append(0.5, np.ones(7)) * length

        def centres(rate, angle):
            arm = length * rate[:, None] * np.stack([-np.sin(angle), np.cos(angle)], axis=1)
            return np.cumsum(arm, axis=0) - 0.5 * arm

        v, old = centres(omega, theta), centres(before, theta - h * before)
        bend, rate = np.diff(theta, prepend=0.0), np.diff(omega, prepend=0.0)
        moved = 0.5 * mass * ((v - old) ** 2).sum() + 0.5 * mass * spin * ((omega - before) ** 2).sum()
        drag = 0.5 * h * c.drag * length * ((v**2).sum() + spin * (omega**2).sum())
        stiff = c.bending_stiffness / spacing
        return (
            moved
            + drag
            + (h * stiff * bend * rate + 0.5 * h * np.maximum(0.6 * h * stiff, c.bending_damping / spacing) * rate**2).sum()
        )

    omega = after[0, 8:16]
    for direction in np.eye(8):
        step = 1e-4 * direction
        slope = (cost(omega + step) - cost(omega - step)) / 2e-4
        assert abs(slope) < 1e-9 * (cost(omega + 1e3 * step) - cost(omega)) / 0.1 + 1e-13


# --- contact -----------------------------------------------------------------------------------------------------------


def clutter(rng, count=14):
    """Circles, boxes and triangles anywhere but on the straight robot."""
    shapes = []
    while len(shapes) < count:
        x, y, size, angle = *rng.uniform((0.1, -0.4), (1.1, 0.4)), rng.uniform(0.02, 0.08), rng.uniform(0, 6.28)
        corners = size * np.array([(np.cos(a), np.sin(a)) for a in angle + np.array([0.0, 1.9, 4.0])])
        shape = (
            circle(x, y, size),
            rectangle(x, y, size, 2 * size, angle),
            polygon(tuple((float(x + a), float(y + b)) for a, b in corners)),
        )[rng.integers(3)]
        axis = np.column_stack([np.linspace(0, 0.32, 50), np.zeros(50)])
        if shape.shape.distance(to_local(axis, np.array([shape.x, shape.y, shape.angle]))).min() > 0.015:
            shapes.append(shape)
    return tuple(shapes)


def test_capsules_never_overlap_obstacles():
    """0.1 mm at most, growing and steering wildly through clutter."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        simulator = VineSimulator(VineModel(obstacles=clutter(rng)))
        low, high = simulator.control_bounds
        controls = np.repeat(rng.uniform(low, high, (4, 20, 5)), 5, axis=1)
        states, status = simulator.rollout(np.tile(simulator.initial_state(), (4, 1)), controls, substeps=10)
        assert (status == Status.OK).all()
        assert simulator.model.clearance(states.reshape(-1, simulator.nx)).min() > -1e-4


@pytest.mark.parametrize("tilt", [0.0, 1e-6, 1e-3])
def test_head_on_growth_stalls_and_stays_feasible(tilt):
    """What is infeasible in the paper's model: here speed drops to 0 at the wall, with the contact force below A (P - P_y)."""
    model = VineModel(obstacles=(wall(0.4, 0.0, np.pi + tilt),))
    simulator, c = VineSimulator(model), VineParameters()
    stiff = c.replace(bending_stiffness=10.0)  # does not buckle
    states, status = simulator.rollout(simulator.initial_state(), np.tile([0.05, 0, 0, 0, 0], (1, 60, 1)), stiff, substeps=10)
    assert status[0] == Status.OK
    parts = model.split(states[0])
    assert parts.growth[10] == pytest.approx(0.05, rel=1e-9) and abs(parts.growth[-1]) < 1e-6
    assert model.clearance(states[0])[-1] == pytest.approx(0.0, abs=2e-5)
    forces = simulator.contact_forces(states[0, -1:], np.array([0.05]), stiff)
    head = np.pi * model.radius**2 * (c.pressure - c.yield_pressure)
    limit = head - c.tail_drag * parts.length[-1]
    assert forces.normal.sum() == pytest.approx(limit, rel=1e-3)


def test_a_soft_robot_buckles_where_a_stiff_one_stalls():
    """Euler's load of a cantilever, pi^2 EI / 4 L^2 = 0.3 N, is below the growth force of 3.5 N: it slides on."""
    model = VineModel(obstacles=(wall(0.4, 0.0, np.pi + 1e-3),))
    simulator = VineSimulator(model)
    states, status = simulator.rollout(simulator.initial_state(), np.tile([0.05, 0, 0, 0, 0], (1, 80, 1)), substeps=10)
    assert status[0] == Status.OK
    assert model.split(states[0]).length[-1] == pytest.approx(0.3 + 0.4, abs=0.05)
    assert abs(model.tip(states[0, -1])[1]) > 0.1
    assert model.clearance(states[0]).min() > -1e-4


def test_contact_forces_are_in_the_friction_cone_and_slide_against_the_motion():
    c = VineParameters(friction=0.4)
    seen = sliding = 0
    for seed in range(6):
        rng = np.random.default_rng(100 + seed)
        simulator = VineSimulator(VineModel(obstacles=clutter(rng)))
        controls = np.repeat(rng.uniform(*simulator.control_bounds, (1, 15, 5)), 5, axis=1)
        states, _ = simulator.rollout(simulator.initial_state(), controls, c, substeps=10)
        forces = simulator.contact_forces(states[0], np.full(len(states[0]), 0.1), c)
        assert (forces.normal[forces.active] > 0).all()
        share = np.abs(forces.tangent[forces.active]) / forces.normal[forces.active]
        assert (share <= 0.4 * (1 + 1e-5)).all()
        seen += len(share)
        sliding += int((share > 0.39).sum())
        np.testing.assert_allclose(
            np.linalg.norm(forces.force[forces.active], axis=1),
            np.hypot(forces.normal[forces.active], forces.tangent[forces.active]),
        )
    assert seen > 100 and 0 < sliding < seen


def test_contact_without_friction_is_the_nearest_feasible_velocity():
    """A robot pressed by its weight against a wall beside it: contacts at rest carry the weight."""
    below = wall(0.0, -0.0125, np.pi / 2)
    model = VineModel(num_links=10, max_length=0.3, initial_length=0.3, num_sections=0, obstacles=(below,))
    simulator = VineSimulator(model, bending="linear")
    c = VineParameters(gravity=9.81, friction=0.0, bending_stiffness=1e-4)
    state, status = simulator.step(simulator.initial_state(), np.zeros((1, 1)), c, substeps=1000)
    assert status[0] == Status.OK
    forces = simulator.contact_forces(state, np.zeros(1), c)
    # All of the weight but what the clamp carries, which is at most that of the part before the first contact.
    weight = c.linear_density * 9.81 * 0.3
    assert 0.6 * weight < forces.normal.sum() < weight
    assert model.clearance(state)[0] == pytest.approx(0.0, abs=2e-5)


def test_obstacles_are_part_of_the_state():
    """The same robot in two places of the wall: rows of one batch."""
    model = VineModel(obstacles=(wall(0.5, 0.0, np.pi),))
    simulator = VineSimulator(model)
    state = np.tile(simulator.initial_state(), (2, 1))
    state[1, -3] = 0.4
    stiff = VineParameters(bending_stiffness=10.0)
    states, _ = simulator.rollout(state, np.tile([0.05, 0, 0, 0, 0], (2, 60, 1)), stiff, substeps=10)
    np.testing.assert_allclose(model.split(states[:, -1]).length, [0.5 - model.radius, 0.4 - model.radius], atol=2e-5)


def test_a_robot_inside_overlapping_obstacles_fails_soon():
    """No contact forces exist there; the first program that is not solved ends the search, which took 1.3 s before."""
    circles = tuple(circle(0.05 * k, 0.0, 0.1) for k in range(8))
    simulator = VineSimulator(VineModel(obstacles=circles), max_contacts=60)
    state, control = simulator.initial_state(1), np.zeros((1, simulator.nu))
    simulator.step(state, control)
    began = time.process_time()
    end, status = simulator.step(state, control, substeps=10)
    assert status[0] != Status.OK and np.array_equal(end, state)
    assert time.process_time() - began < 0.8


DT = 2e-4
"""[s] So small that neither integrator counts."""


@pytest.mark.parametrize("length", [0.4, 0.39, 0.37])
def test_drag_slows_both_alike_however_far_the_telescope_is_out(length: float) -> None:
    """Released from an arc, in a fluid that takes nine tenths of the swing; what slides out feels drag as long as it is."""
    model, tips = replace(BEAM, initial_length=length), []
    for one in (MujocoVine(model, dt=DT, bending="linear"), VineSimulator(model, DT, "linear")):
        start = one.initial_state(1)
        start[0, : model.layout.nx] = model.straight_state(curvature=0.8)
        parameter_values = one.default_parameters.replace(drag=0.5)
        states, status = one.rollout(start, np.zeros((1, 30, one.nu)), parameter_values, substeps=50)
        assert not status.any()
        tips.append(model.tip(states[0, :, : model.layout.nx])[:, 1])
    # MuJoCo also damps turning, by the cube of a box's side: 0.5 % of the drag's moment.
    assert np.abs(tips[0] - tips[1]).max() < 5e-3 * np.abs(tips[1]).max()


def agreement(model, parameters, dt, growth, states):
    """Largest relative difference of the velocities of one step, and how many contacts push, of every state."""
    after, status = PaperSimulator(model, dt).step(states, np.full((len(states), 1), growth), parameters)
    errors, contacts = [], []
    for before, ours, ok in zip(states, model.split(after)[1], status, strict=True):
        try:
            exact, count = solve_exactly(assemble(model, before, growth, parameters, dt))
        except DataError:
            assert ok == Status.DIVERGED
            continue
        assert ok == Status.OK
        errors.append(np.abs(ours.ravel() - exact).max() / np.abs(exact).max())
        contacts.append(count)
    return np.array(errors), np.array(contacts)


def pressed_states(rng, count):
    """Robots beside a row of circles of which they touch or overlap several by parts of a mm, pushed by random rates."""
    links = 12
    spots = rng.choice(links, 7, replace=False)
    model = PaperModel(links, 0.01, initial_length=0.36, obstacles=tuple(circle(0.03 * (i + 1), 0.032, 0.02) for i in spots))
    states = np.tile(model.straight_state(), (count, 1))
    q, v = model.split(states)
    q[:] += 1e-4 * rng.normal(size=q.shape)
    v[:] = 0.05 * rng.normal(size=v.shape) + np.array([0.0, 0.3, 0.0]) * rng.uniform(-1, 1, (count, 1, 1))
    return model, states


def test_the_solver_is_exact_on_random_steps_with_many_contacts():
    """Relative 1e-9: the two solutions differ by rounding only, of systems with condition numbers up to 1e6."""
    seen = []
    for seed in range(4):
        model, states = pressed_states(np.random.default_rng(seed), 40)
        errors, contacts = agreement(model, PaperParameters(body_inertia=2e-6), 0.01, 0.04, states)
        assert errors.max() < 1e-9
        seen += contacts.tolist()
    assert max(seen) >= 6 and min(seen) <= 1


@pytest.mark.parametrize(
    ("model", "parameters", "dt", "growth", "steps"),
    [(runtime_scene(), PaperParameters(), 0.01, 0.04, 400), (cluttered_scene(), CLUTTERED, 1 / 90, 0.205, 270)],
    ids=["runtime", "cluttered"],
)
def test_the_papers_scenes(model, parameters, dt, growth, steps):
    """Every tenth step exact; joints hold and contact points stay outside to the order of the linearisation."""
    simulator = PaperSimulator(model, dt)
    states, status = simulator.rollout(simulator.initial_state(), np.full((1, steps, 1), growth), parameters)
    assert status[0] == Status.OK
    errors, contacts = agreement(model, parameters, dt, growth, states[0, :-1:10])
    assert errors.max() < 1e-9 and contacts.max() >= 1
    turn = dt * np.abs(model.split(states[0])[1][..., 2]).max()
    assert np.abs(model.joint_errors(states[0])).max() < model.initial_length * turn**2
    assert model.gaps(states[0]).min() > -1e-4
    tip = model.contact_points(states[0])[:, -1]
    assert np.linalg.norm(tip[-1]) > np.linalg.norm(tip[0]) + 0.1


def test_osqp_finds_the_same_within_its_tolerance():
    """Warm-started along the paper's scene, tolerance 1e-6 on |A v - z| and the dual residual, in mm/s of about 40 mm/s."""
    model, parameters = runtime_scene(20), PaperParameters()
    simulator, solver = PaperSimulator(model), OsqpSolver(eps=1e-6)
    states, _ = simulator.rollout(simulator.initial_state(), np.full((1, 120, 1), 0.04), parameters)
    for k in range(0, 120, 4):
        program = assemble(model, states[0, k], 0.04, parameters, 0.01)
        solver.load(program)
        v, solved = solver.solve()
        ours = model.split(states[0, k + 1])[1].ravel()
        assert solved
        # Rows are satisfied within eps (1 + |A v|), in mm/s.
        scaled = in_millimetres(program)
        rows = scaled.A @ (v * np.tile([1e3, 1e3, 1.0], model.num_bodies))
        violation = np.maximum(scaled.low - rows, rows - scaled.high).max()
        assert violation < 2e-6 * (1 + np.abs(rows).max())
        np.testing.assert_allclose(v, ours, atol=1e-3 * np.abs(ours).max())


def test_contact_rows_are_the_gradient_of_the_gap_away_from_corners():
    model = PaperModel(5, 0.02, obstacles=(circle(0.3, 0.1, 0.05), rectangle(0.3, -0.3, 0.8, 0.2, 0.1)))
    state = model.straight_state()
    q, _ = model.split(state)
    rows, gaps = contact_rows(model, q)
    epsilon = 1e-6
    for x in range(3 * model.num_bodies):
        ends = []
        for side in (-epsilon, epsilon):
            moved = state.copy()
            moved[x] += side
            ends.append(contact_rows(model, model.split(moved)[0])[1])
        np.testing.assert_allclose((ends[1] - ends[0]) / (2 * epsilon), rows[:, x], atol=1e-8)
    np.testing.assert_allclose(gaps.reshape(5, 2), model.gaps(state), atol=1e-15)


def test_growth_is_shared_by_all_links():
    model = runtime_scene()
    simulator = PaperSimulator(model)
    states, _ = simulator.rollout(simulator.initial_state(), np.full((1, 10, 1), 0.04))
    q, _ = model.split(states[0, -1])
    gaps = np.linalg.norm(q[1::2, :2] - q[::2, :2], axis=1)
    first, _ = model.split(states[0, 0])
    np.testing.assert_allclose(gaps - np.linalg.norm(first[1::2, :2] - first[::2, :2], axis=1), 0.1 * 0.04 / 15, rtol=1e-3)


def test_head_on_growth_is_infeasible_and_says_so():
    """What the authors' program answers with NaN: the growth motor has unlimited force. The lab's model stalls instead."""
    model = PaperModel(obstacles=(rectangle(0.5, 0.0, 0.1, 1.0),))
    simulator = PaperSimulator(model)
    states, status = simulator.rollout(simulator.initial_state(), np.full((1, 400, 1), 0.04))
    assert status[0] == Status.DIVERGED
    assert np.isfinite(states).all()
    try:
        last, _ = solve_exactly(assemble(model, states[0, -1], 0.04, PaperParameters(), 0.01))
    except DataError as error:
        assert "no solution" in str(error)
    else:
        assert np.abs(last).max() > 100  # rounding leaves a way out, at absurd speed


def test_bad_models():
    with pytest.raises(StructureError, match=r"initial_length is 0\.1 m, expected > 0\.2"):
        PaperModel(initial_length=0.1)
    with pytest.raises(StructureError, match="rectangle in place of a wall"):
        PaperModel(obstacles=(wall(1.0, 0.0, 3.0),))
