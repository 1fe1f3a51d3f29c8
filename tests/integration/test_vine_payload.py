"""A robot with a load at its tip, a soft clamp, a turned base and a body that remembers, against theory and the MuJoCo
model."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

from softgym_envs.core.errors import OptionError, StructureError
from softgym_envs.core.procedure import StageData
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.data.recordings import read_recordings
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.model import VineModel
from softgym_envs.systems.vine.mujoco import MujocoVine
from softgym_envs.systems.vine.parameters import VineParameters
from softgym_envs.systems.vine.procedure import PROCEDURE
from sysid.fitting.shooting import single_shooting
from sysid.procedure.stage_problem import stage_problem

LENGTH, STIFFNESS, DENSITY = 0.1, 0.018, 0.96
PLAIN = VineParameters(bending_stiffness=STIFFNESS, bending_damping=1e-8, linear_density=DENSITY, drag=0.0)


def beam(num_links=12, dt=2e-4, **structure):
    size = {"max_length": LENGTH, "initial_length": LENGTH, "num_sections": 0, "radius": 1e-4, "max_load": 1.0}
    return VineSimulator(VineModel(num_links=num_links, **{**size, **structure}), dt=dt, bending="linear")


def released(simulator, parameters, load, seconds):
    """Heights of the tip after a release from a parabola, and their times."""
    model, steps = simulator.model, round(seconds / simulator.dt)
    state, share = model.straight_state(), (np.arange(model.num_links) + 0.5) / model.num_links
    model.split(state).theta[:] += 0.02 * share * (2 - share)
    controls = np.zeros((1, steps, model.nu))
    controls[..., -1] = load
    states, status = simulator.rollout(state[None], controls, parameters)
    assert status[0] == 0
    return simulator.dt * np.arange(steps + 1), model.tip(states[0])[:, 1]


def frequency(times, heights):
    """[Hz] of the zero crossings."""
    before = np.flatnonzero(heights[:-1] * heights[1:] < 0)
    crossings = times[before] + times[1] * heights[before] / (heights[before] - heights[before + 1])
    return 0.5 / np.polyfit(np.arange(len(crossings)), crossings, 1)[0]


def euler_bernoulli(mass, clamp_length):
    """[Hz] First frequency of a beam with a mass at its end and the spring EI / clamp_length at its root."""

    def determinant(b):
        (c, s), (C, S), k, m = (
            (np.cos(b), np.sin(b)),
            (np.cosh(b), np.sinh(b)),
            b * clamp_length / LENGTH,
            b * mass / DENSITY / LENGTH,
        )
        root = [[1, 0, 1, 0], [k, 1, -k, 1]]
        return np.linalg.det([*root, [-c, -s, C, S], [s + m * c, m * s - c, S + m * C, C + m * S]])

    b = brentq(determinant, 0.8, 1.9)
    return b**2 * np.sqrt(STIFFNESS / DENSITY / LENGTH**4) / (2 * np.pi)


@pytest.mark.parametrize(("mass", "clamp_length"), [(0.052, 0.0), (0.0, 0.005), (0.1, 0.005)])
def test_loaded_and_softly_clamped_beams_ring_as_in_theory(mass, clamp_length):
    """Errors of order 1/N^2: halving the links makes them about four times as large. Half of the mass is a control."""
    parameters = PLAIN.replace(tip_mass=0.5 * mass, clamp_length=clamp_length)
    expected = euler_bernoulli(mass, clamp_length)
    errors = [frequency(*released(beam(n), parameters, 0.5 * mass, 0.6)) / expected - 1 for n in (8, 16)]
    assert abs(errors[1]) < 3e-3 and abs(errors[1]) < 0.6 * abs(errors[0])


def test_a_load_sags_along_gravity():
    """P L^3 / 3 EI across the beam, with the load's weight along a tilted gravity; the load is ahead of the tip by 5 mm."""
    simulator, tilt, ahead = beam(24, dt=1e-3), 0.4, 0.005
    parameters = PLAIN.replace(gravity=0.5, gravity_angle=tilt, tip_offset=ahead, bending_damping=2e-3, linear_density=1e-3)
    states, _ = simulator.rollout(simulator.initial_state(1), np.tile([0.0, 0.02], (1, 4000, 1)), parameters)
    force = 0.02 * 0.5 * np.cos(tilt)
    expected = -force * LENGTH**2 * (2 * LENGTH + 3 * ahead) / (6 * STIFFNESS)
    assert simulator.model.tip(states[0, -1])[1] == pytest.approx(expected, rel=3e-3)


def test_a_viscoelastic_beam_rings_and_dies_away_as_its_modulus_says():
    """s^2 + w^2 (1 + sum g s t / (1 + s t)) = 0 for a mode that rings at w without memory."""
    parameters = PLAIN.replace(relaxation=0.2, relaxation_time=0.03, creep=0.1, creep_time=0.4)
    w = 2 * np.pi * frequency(*released(beam(), PLAIN, 0.03, 0.6))
    times, heights = released(beam(viscoelastic=True), parameters, 0.03, 0.6)
    s = np.poly1d([1, 0])
    fast, slow = 0.03 * s + 1, 0.4 * s + 1
    roots = (s * s * fast * slow + w**2 * (fast * slow + 0.2 * 0.03 * s * slow + 0.1 * 0.4 * s * fast)).roots
    root = roots[np.argmax(roots.imag)]
    drift = roots[np.abs(roots.imag) < 1e-9].real  # what creeps back beside the ringing
    columns = np.stack([np.exp(root * times).real, np.exp(root * times).imag, *(np.exp(d * times) for d in drift)], axis=1)
    late = times > 0.1  # higher modes are gone
    left = heights[late] - columns[late] @ np.linalg.lstsq(columns[late], heights[late], rcond=None)[0]
    assert np.abs(left).max() < 0.02 * np.abs(heights[late]).max()
    shifted = np.exp((root * 1.02) * times)
    wrong = np.stack([shifted.real, shifted.imag, *columns.T[2:]], axis=1)[late]
    assert (
        np.abs(heights[late] - wrong @ np.linalg.lstsq(wrong, heights[late], rcond=None)[0]).max()
        > 0.02 * np.abs(heights[late]).max()
    )


def test_the_mujoco_model_bears_the_same_load_on_the_same_base():
    """Turned base, tilted gravity, soft clamp, mass and load ahead of the tip: paths of 7 mm agree to 2 %."""
    ours = beam(10)
    parameters = {
        "gravity": 9.81,
        "gravity_angle": 0.3,
        "base_turn": 0.2,
        "clamp_length": 0.004,
        "tip_mass": 0.01,
        "tip_offset": 0.01,
    }
    parameters |= {"bending_stiffness": STIFFNESS, "bending_damping": 1e-4, "linear_density": DENSITY, "drag": 0.0}
    mujoco_model = MujocoVine(ours.model, dt=2e-4, bending="linear")
    controls, ends = np.tile([0.0, 0.03], (1, 20, 1)), []
    for world in (ours, mujoco_model):
        states, status = world.rollout(world.initial_state(1), controls, world.parameters_class(**parameters), substeps=50)
        assert status[0] == 0
        ends.append(ours.model.tip(states[0]))
    np.testing.assert_allclose(ends[0], ends[1], atol=0.02 * np.ptp(ends[1][:, 1]))
    assert np.ptp(ends[1][:, 1]) > 5e-3


def test_what_a_mujoco_model_and_a_model_refuse():
    with pytest.raises(OptionError, match="no viscoelastic body"):
        MujocoVine(VineModel(viscoelastic=True))
    with pytest.raises(StructureError, match="max_load is -1"):
        VineModel(max_load=-1.0)
    with pytest.raises(StructureError, match="viscoelastic is 1"):
        replace(VineModel(), viscoelastic=1)


def test_markers_ride_on_the_tip():
    """A marker stays at its place in the frame of the tip link."""
    model = beam(num_markers=2).model
    state = model.straight_state(curvature=3.0)
    model.split(state).markers[...] = [[0.0, 0.0], [0.01, 0.02]]
    (x, y, angle), places = model.tip(state), model.marker_places(state)
    c, s = np.cos(angle), np.sin(angle)
    np.testing.assert_allclose(places, [[x, y], [x + 0.01 * c - 0.02 * s, y + 0.01 * s + 0.02 * c]], atol=1e-15)


def test_stiffness_and_base_come_from_markers_at_two_loads(tmp_path):
    """Released straight with 0 and 30 g, two markers at 100 Hz with 20 um of noise, read from CSV files: 99.9 % intervals."""
    model = beam(5, num_markers=2, viscoelastic=True).model
    simulator = VineSimulator(model, dt=1e-3, bending="linear")
    initial_guess = PLAIN.replace(gravity=9.81, bending_damping=1e-5, relaxation=0.2, relaxation_time=0.03)
    ground_truth, rng, files = initial_guess.replace(bending_stiffness=0.021, base_turn=0.03), np.random.default_rng(0), []
    for load in (0.0, 0.03):
        state = model.straight_state()
        model.split(state).markers[...] = [[0.003, 0.012], [-0.002, -0.014]]
        controls = np.tile([0.0, load], (1, 60, 1))
        states, _ = simulator.rollout(state[None], controls, ground_truth, substeps=10)
        places = 1e3 * (model.marker_places(states[0]) + 2e-5 * rng.standard_normal((61, 2, 2)))
        places[0] = 1e3 * model.marker_places(state)  # where they are fixed is taken from the first row
        rows = np.column_stack([0.01 * np.arange(61), places.reshape(61, -1), np.full(61, 1e3 * load)])
        names = "time [s],marker0.x [mm],marker0.y [mm],marker1.x [mm],marker1.y [mm],control:load [g]"
        files.append(tmp_path / f"{load}.csv")
        np.savetxt(files[-1], rows, fmt="%.5f", delimiter=",", header=names, comments="")
    runs = [PROCEDURE.recorded.infer_controls(simulator, run.for_timestep(1e-3)) for run in read_recordings(files)]
    data = StageData(free_initial=False, free_motion=True)
    stage = replace(PROCEDURE.from_recordings, free=("bending_stiffness", "base_turn"), data=data)
    problem = stage_problem(PROCEDURE, stage, simulator, TrajectorySet(tuple(runs)), start=initial_guess)
    result = single_shooting(problem)
    assert result.converged
    for name in stage.free:
        assert abs(getattr(result.parameters, name) - getattr(ground_truth, name)) < 3.3 * result.std[name]
        assert result.std[name] < 0.01 * abs(getattr(ground_truth, name))
