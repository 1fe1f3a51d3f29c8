"""States and parameters in one nonlinear program: known ground truths, agreement with shooting, contact schedules, bad
input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("casadi")
import casadi

from reproductions.jitosho2021.engine_pairs import engine_pairs
from reproductions.jitosho2021.experiments import NOISE, record_oscillation, record_wall
from softgym_envs.core.errors import OptionError
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.systems.rigid.dynamics import ParticleSimulator
from softgym_envs.systems.rigid.experiments import record
from softgym_envs.systems.rigid.parameters import ParticleParameters
from softgym_envs.systems.rigid.symbolic import complementarity_form as contact_form
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.model import VineModel, with_obstacles
from softgym_envs.systems.vine.mujoco import MujocoVineParameters
from softgym_envs.systems.vine.obstacles import circle, wall
from softgym_envs.systems.vine.parameters import VineParameters
from softgym_envs.systems.vine.procedure import TUBE, first_state, measurement, program
from softgym_envs.systems.vine.symbolic import complementarity_form, tracked_points
from sysid import FitProblem, simultaneous
from sysid.fitting.shooting import single_shooting
from sysid.fitting.simultaneous import SimultaneousOptions, solve

PARTICLE = ParticleSimulator()
FORM = contact_form(PARTICLE)
SIZE = 5e-3 / np.sqrt(3)
QUICK = SimultaneousOptions(factor=0.01)
BEAM = VineModel(num_links=5, max_length=0.4 * 5 / 4.5, initial_length=0.4, num_sections=0)
"""Four links and a tip link of half their length: the number of links does not hang on a rounding of the length."""


def falling(**changes):
    """[Berard2008] slide 27: a particle falls, slides and is pushed; its positions with noise, fit from friction 1."""
    start = PARTICLE.initial_state()[0]
    noise = {"x": SIZE, "y": SIZE}
    rng = np.random.default_rng(0)
    recording = record(PARTICLE, start, np.full((100, 1), 5.0), noise=noise, rng=rng, uniform=True)
    keywords = {"start": ParticleParameters(friction=1.0), "noise": noise, "free_motion": True, **changes}
    return FitProblem(PARTICLE, TrajectorySet((recording,)), ("friction",), **keywords)


@pytest.fixture(scope="module")
def found():
    return solve(falling(), FORM, QUICK)


def test_a_contact_schedule_is_found_and_so_is_friction(found):
    """Ground truth inside the interval; the pairs are complementary; touching begins when the fall of 3 m ends."""
    result = simultaneous(falling(), FORM, QUICK)
    assert found.solved and result.converged
    assert result.estimates[0].interval[0] < 0.2 < result.estimates[0].interval[1]
    assert abs(result.parameters.friction - falling().decode(found.theta).friction) < 1e-5  # the polish has little to do
    parameter_values = np.repeat(falling().vectors(found.theta[None]), 100, axis=0)
    x, z = found.pieces[0].states, found.pieces[0].pairs
    controls = np.full((1, 100), 5.0)
    g, f = (np.array(part).T for part in FORM.step(x[:-1].T, controls, parameter_values.T, x[1:].T, z.T))
    assert np.abs(g).max() < 1e-6 and z.min() > -1e-7 and f.min() > -1e-7 and (z * f).max() < 2e-6
    landed = int(np.flatnonzero(z[:, 0] > 1.0)[0]) + 1
    assert landed * PARTICLE.dt == pytest.approx(np.sqrt(2 * 3.0 / 9.81), abs=2 * PARTICLE.dt)


def test_a_given_schedule_leads_to_the_same_constants(found):
    parameter_values = np.repeat(falling().vectors(found.theta[None]), 100, axis=0)
    x, z = found.pieces[0].states, found.pieces[0].pairs
    _, f = (np.array(part).T for part in FORM.step(x[:-1].T, np.full((1, 100), 5.0), parameter_values.T, x[1:].T, z.T))
    given = solve(falling(), FORM, schedule=[f < z])
    assert given.solved and given.iterations < found.iterations
    np.testing.assert_allclose(given.theta, found.theta, rtol=1e-4)
    assert (given.pieces[0].pairs[f >= z] == 0).all()


def oscillation(ground_truth, *, mujoco_model=False, seconds=0.15):
    """Points along a cantilever that was let go, and what it is fitted with."""
    simulator = VineSimulator(BEAM, 1 / 960, "linear")
    rng = np.random.default_rng(2)
    recording = replace(record_oscillation(ground_truth, rng, bend=0.8, seconds=seconds), substeps=4)
    seen = measurement(simulator, recording.names)
    if not mujoco_model:  # the same points of our own engine
        controls = np.zeros((1, recording.num_steps, 1))
        own = ground_truth_of(ground_truth)
        states, _ = simulator.rollout(BEAM.straight_state(curvature=0.8)[None], controls, own, substeps=4)
        clean = seen.function(states[0])
        values = np.where(np.isfinite(recording.values), clean + NOISE * rng.normal(size=clean.shape), np.nan)
        recording = replace(recording, values=values)
    return FitProblem(
        simulator, TrajectorySet((recording,)), free=TUBE, start=VineParameters(drag=0.0),
        measurement=seen, noise=dict.fromkeys(seen.names, NOISE),
        initial_state=first_state(simulator, seen.names), free_initial=True, free_motion=True,
    )  # fmt: skip


def ground_truth_of(ground_truth):
    return VineParameters(
        drag=0.0, bending_stiffness=ground_truth.bending_stiffness, bending_damping=ground_truth.bending_damping
    )


POINTS = tracked_points(BEAM, np.linspace(0.0, 1.0, 21))
GROUND_TRUTH = MujocoVineParameters(bending_stiffness=0.03, bending_damping=5e-4, drag=0.0)


def test_the_symbolic_step_is_the_engines_step():
    """Two formulations of one step, with gravity, drag and growth: equations hold to rounding of their largest term."""
    simulator = VineSimulator(BEAM, 1 / 960, "linear")
    p = VineParameters(
        gravity=3.0, drag=0.3, bending_stiffness=0.03, bending_damping=5e-4, gravity_angle=0.3, base_turn=0.1,
        clamp_length=0.01, tip_mass=0.004, tip_offset=0.02, bending_friction=1e-4,
    )  # fmt: skip
    states, status = simulator.rollout(BEAM.straight_state(curvature=0.8)[None], np.full((1, 100, 1), 0.05), p)
    x, parameter_values = states[0], np.tile(p.to_vector()[:, None], 100)
    g, _ = complementarity_form(simulator).evaluate(
        x[:-1], np.full((100, 1), 0.05), parameter_values.T, x[1:], np.zeros((100, 0))
    )
    moments = 0.03 * 0.8 / 960  # h EI kappa
    scale = np.where(np.arange(BEAM.layout.nx)[:, None] // BEAM.num_links == 1, moments, 1.0)
    assert status[0] == 0 and np.abs(g.T / scale).max() < 1e-12
    measure = measurement(simulator, tuple(f"point{k}.{axis}" for k in range(21) for axis in "xy")).function
    np.testing.assert_allclose(np.array(POINTS(x.T)).T, measure(x), atol=1e-14)


def test_constants_of_a_vine_robot_are_recovered_from_tracked_points():
    """Own data with noise and lost points: 99.9 % intervals hold the ground truth; from parameters a factor of 1.5 and 2.5
    off."""
    result = simultaneous(
        oscillation(GROUND_TRUTH), complementarity_form(VineSimulator(BEAM, 1 / 960, "linear")), observe=POINTS
    )
    assert result.converged and result.reduced_chi2 == pytest.approx(1.0, abs=0.1)
    for name in ("bending_stiffness", "bending_damping"):
        assert abs(getattr(result.parameters, name) - getattr(GROUND_TRUTH, name)) < 3.3 * result.std[name]
        assert result.std[name] < 0.02 * getattr(GROUND_TRUTH, name)


def test_shooting_from_the_solution_does_not_move_it():
    """One problem, two methods, on the MuJoCo model's data."""
    problem = oscillation(GROUND_TRUTH, mujoco_model=True)
    found = solve(problem, complementarity_form(problem.simulator), observe=POINTS)
    shot = single_shooting(problem)
    np.testing.assert_allclose(np.exp(found.theta), [getattr(shot.parameters, name) for name in problem.free], rtol=1e-3)


# --- a robot that grows into a wall ----------------------------------------------------------------------------------

STIFFNESS = {"drag": 0.0, "bending_stiffness": 0.03, "bending_damping": 5e-4}


def among_walls(angle, *, links=10, length=0.6, dt=1 / 240):
    robot = VineModel(num_links=links, max_length=length, initial_length=0.4, num_sections=0)
    return VineSimulator(with_obstacles(robot, (wall(0.42, 0.0, np.pi - angle),)), dt, "linear")


@pytest.mark.parametrize(
    ("angle", "friction", "links", "motions", "stalls"),
    [
        (0.5, 0.3, {6, 7, 8}, (True, False), False),
        (0.5, 0.0, {6, 7, 8}, (True, False), False),
        (0.5, 0.5, {6, 7, 8}, (True, False), True),
        (0.5, 0.9, {6, 7}, (False, True), True),
        (0.9, 1.2, {6, 7, 8}, (True, True), True),
        (0.0, 0.3, {6}, (False, True), True),
    ],
)
def test_the_engine_solves_the_complementarity_problem(angle, friction, links, motions, stalls):
    """Its steps and forces fulfil the other formulation: in contact, sliding and sticking, across births, and in a stall.

    Tips held at a slant stay if mu > tan(angle). From mu = 0.5 on friction raises its own normal force: plain rounds fail.

    Equations hold to rounding. Rows of the engine's program are soft (`contact.soften`) by 1e-6 of W_ii and 1e-8 of the largest
    W, so that speeds are off by as much times the impulse; W = A H^-1 A' from the form's own derivatives.
    """
    simulator = among_walls(angle)
    model, p, form = simulator.model, VineParameters(friction=friction, **STIFFNESS), complementarity_form(simulator)
    growth = np.full(360, 0.08)
    states, status = simulator.rollout(model.straight_state()[None], growth[None, :, None], p)
    x = states[0]
    z, schedule = engine_pairs(simulator, x, growth, p)
    parameter_values = np.tile(p.to_vector(), (len(growth), 1))
    g, f = form.evaluate(x[:-1], growth[:, None], parameter_values, x[1:], z)
    n, n_impulses = model.num_links, z[:, 0:-2:3] / 240
    assert status[0] == 0 and set(form.modes(x).ravel()) == links
    assert (n_impulses.max(axis=1) > 0).sum() > 250
    slower = growth - model.split(x[1:]).growth  # 1e-6 m/s at most by soft rows alone, 1e-2 and more in a stall
    assert (slower > 1e-3).any() == stalls
    touching = n_impulses > 0
    slides = schedule[:, 2:-2:3] & touching  # to the right; else it sticks, or slides to the left
    assert (slides.any(), (touching & schedule[:, 1:-2:3] & ~slides).any()) == motions  # slides, sticks
    scale = np.where(np.arange(model.layout.nx) // n == 1, 0.03 / 240, 1.0)  # moments: h EI at a curvature of 1/m
    assert np.abs(g / scale).max() < 1e-12
    # Tolerance of the engine's friction, 1e-7 of the largest bound per round, may add up where rounds converge slowly.
    assert (
        np.abs(np.minimum(z, f)).max()
        < _compliance(form, x, growth, parameter_values, z, model) + 1e-5 * friction * z[:, 0:-2:3].max()
    )


def _compliance(form, x, growth, parameter_values, z, model):
    """1.01e-6 times the largest W_ii times the largest impulse [m/s], over all steps; W from the form's derivatives."""
    sizes = [form.step.size1_in(i) for i in range(6)]
    inputs = [casadi.MX.sym(name, size) for name, size in zip(form.step.name_in(), sizes, strict=True)]
    g = form.step(*inputs)[0]
    moving = [*range(model.num_links, 2 * model.num_links), 2 * model.num_links + 1]
    derivatives = casadi.Function("d", inputs, [casadi.jacobian(g, inputs[3]), casadi.jacobian(g, inputs[4])])
    largest = 0.0
    for k in range(0, len(growth), 10):
        by_y, by_z = (
            np.array(part)[moving]
            for part in derivatives(x[k], growth[k], parameter_values[k], x[k + 1], z[k], form.modes(x[k : k + 1]))
        )
        mobility = np.einsum("ij,ij->j", by_z, np.linalg.solve(by_y[:, moving], by_z)).max() * 240**2
        drive = max(abs(3.6 - z[k, -2]), z[k, -1])  # the pressure pushes with pi r^2 (P - P_y) = 3.6 N
        largest = max(largest, mobility * max(z[k, :-2:3].max(), drive) / 240)
    return 1.01e-6 * largest


@pytest.fixture(scope="module")
def growth_into_a_wall():
    """The MuJoCo model's points, 24 steps of 1/30 s with a birth; and a robot of as few links as will do."""
    recording, system = record_wall(GROUND_TRUTH, np.random.default_rng(1), seconds=0.8)
    simulator = VineSimulator(replace(system, num_links=6, max_length=0.54), 1 / 30, "linear")
    seen = measurement(simulator, recording.names)
    problem = FitProblem(
        simulator, TrajectorySet((replace(recording, substeps=1),)), free=TUBE, start=VineParameters(drag=0.0),
        measurement=seen, noise=dict.fromkeys(seen.names, NOISE),
        initial_state=first_state(simulator, seen.names), free_initial=False, free_motion=True,
    )  # fmt: skip
    return problem, *program(simulator, seen.names)[:2]


def test_growth_into_a_wall_with_the_schedule_found_and_given(growth_into_a_wall):
    """The found solution is one of the engine; its schedule, given, leads to it again from elsewhere."""
    problem, form, points = growth_into_a_wall
    found = solve(problem, form, SimultaneousOptions(tau=1e-2, factor=0.01), observe=points)
    x, z, controls = found.pieces[0].states, found.pieces[0].pairs, problem.split.train[0].controls
    parameter_values = np.repeat(problem.vectors(found.theta[None]), len(z), axis=0)
    _, f = form.evaluate(x[:-1], controls, parameter_values, x[1:], z)
    assert found.solved and set(form.modes(x).ravel()) == {4, 5}
    assert min(z.min(), f.min()) > -1e-7 and (z * f).max() < 2e-6 and z[:, 0:-2:3].max() > 0.05  # it does touch
    simulated, _ = problem.simulator.rollout(x[:1], controls[None], problem.decode(found.theta))
    offset = problem.observe(simulated[0]) - problem.observe(x)
    assert np.abs(offset).max() < 5e-5  # tau is not zero: a tenth of the noise
    given = solve(problem, form, observe=points, schedule=[f < z])
    assert given.solved and given.iterations < found.iterations
    assert given.objective == pytest.approx(found.objective, rel=1e-2)
    assert given.theta[0] == pytest.approx(found.theta[0], abs=0.05)


def test_the_wall_alone_identifies_nothing_whatever_the_method(growth_into_a_wall):
    """The diagnostic and the open range are those of shooting; the tip is within the paper's 1.1 mm on another recording."""
    problem, form, points = growth_into_a_wall
    simulator, recording = problem.simulator, problem.split.train[0]
    states, _ = simulator.rollout(problem.initial_guess(recording)[None], recording.controls[None], problem.initial_parameters)
    _, schedule = engine_pairs(simulator, states[0], recording.controls[:, 0], problem.initial_parameters)
    result = simultaneous(problem, form, observe=points, schedule=[schedule])
    stiffness, damping = result.estimates
    assert result.converged and stiffness.hidden and damping.hidden
    assert stiffness.interval[0] < 0.03 < stiffness.interval[1]
    test, _ = record_wall(GROUND_TRUTH, np.random.default_rng(2), seconds=0.8)
    start = problem.initial_guess(test)[None]
    predicted, _ = simulator.rollout(start, test.controls[None], result.parameters)
    error = problem.observe(predicted[0])[:, -2] - test.column("point20.x")
    assert np.nanmean(np.abs(error)) < 1.1e-3 + NOISE


def test_bad_input():
    with pytest.raises(OptionError, match="`noise` is not given"):
        simultaneous(falling(noise=None), FORM)
    with pytest.raises(OptionError, match="give both or neither"):
        simultaneous(falling(), FORM, observe=POINTS)
    with pytest.raises(OptionError, match=r"schedule has shapes .* expected \[\(100, 4\)\]"):
        simultaneous(falling(), FORM, schedule=[np.zeros((3, 4), dtype=bool)])
    for bad in ({"tau": 0.0}, {"factor": 1.0}, {"last": 2.0}, {"iterations": 0}):
        with pytest.raises(OptionError, match=next(iter(bad))):
            SimultaneousOptions(**bad)
    with pytest.raises(OptionError, match="1 obstacles that are no walls"):
        complementarity_form(VineSimulator(with_obstacles(BEAM, (circle(0.5, 0.0, 0.1),)), 1 / 960, "linear"))
