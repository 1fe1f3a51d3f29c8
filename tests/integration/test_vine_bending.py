"""The inflated tube's bending moment against quadrature of a wall that carries tension only; rest, energy; force of growth.
Dry friction of a body that bends: swings in closed form, what it holds, MuJoCo's joints, rows beside others, a fit. A robot
with a load at its tip, a soft clamp, a turned base and a body that remembers, against theory and the MuJoCo model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq
from test_physics_vine import energy

from reproductions.jitosho2021.experiments import BEAM, record_oscillation
from softgym_envs.core.errors import OptionError, StructureError
from softgym_envs.core.procedure import StageData
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.data.recordings import read_recordings
from softgym_envs.systems.vine.bending import wrinkling_moment
from softgym_envs.systems.vine.controllers import held
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.links import DRY_RATE
from softgym_envs.systems.vine.model import VineModel
from softgym_envs.systems.vine.mujoco import MujocoVine, MujocoVineParameters
from softgym_envs.systems.vine.mujoco_chain import SPRINGS
from softgym_envs.systems.vine.parameters import VineParameters
from softgym_envs.systems.vine.procedure import PROCEDURE, TUBE, first_state, measurement
from sysid import FitProblem
from sysid.fitting.shooting import ShootingOptions, single_shooting
from sysid.least_squares.levenberg import LevenbergOptions
from sysid.procedure.stage_problem import stage_problem

MODEL = VineModel(num_links=10, max_length=0.4, initial_length=0.4, num_sections=1, max_steering=1e6)
LOOSE = VineParameters(bending_damping=1e-8, drag=0.0)
"""The tube's own damping does nothing: what is left is that of the step."""


def tension_only_wall(num: int) -> tuple[np.ndarray, np.ndarray]:
    """Curvatures and moments (num,) of a slack tube in units of kappa_w and M_w = pi P R^3 / 2, from equilibrium alone.

    Strain is linear over the section, and the wall carries tension only: stress = e (cos phi - cos edge) up to the edge of its
    slack part. Units are R = E t = 1, so that EI = pi and kappa_w = P / 2. Axial balance with pi P gives e, which is kappa.
    """
    edge = np.linspace(np.pi, 0.02, num)[:, None]
    nodes, weights = np.polynomial.legendre.leggauss(40)
    phi = 0.5 * edge * (1.0 + nodes)
    stress = np.cos(phi) - np.cos(edge)
    axial, moment = ((edge * weights * stress * arm).sum(axis=1) for arm in (1.0, np.cos(phi)))  # of both halves
    pressure = 1e-3
    curvature = np.pi * pressure / axial
    return curvature / (0.5 * pressure), curvature * moment / (0.5 * np.pi * pressure)


CURVATURE, MOMENT = tension_only_wall(4001)
WALL = CubicSpline(CURVATURE, MOMENT)
"""M / M_w of kappa / kappa_w beyond 1."""
WORK = WALL.antiderivative()


def onset(c: VineParameters, radius: float) -> tuple[float, float]:
    """M_w [N m] and kappa_w [1/m]."""
    moment = 0.5 * np.pi * c.pressure * radius**3
    return moment, moment / c.bending_stiffness


def test_the_moment_is_that_of_a_wall_that_carries_tension_only() -> None:
    below = np.linspace(0.0, 1.0, 5)
    np.testing.assert_allclose(wrinkling_moment(3.0 * below, 2.0, 6.0), 6.0 * below, rtol=1e-14)
    np.testing.assert_allclose(wrinkling_moment(3.0 * CURVATURE, 2.0, 6.0), 6.0 * MOMENT, rtol=1e-9)
    np.testing.assert_array_equal(wrinkling_moment(-CURVATURE, 2.0, 6.0), -wrinkling_moment(CURVATURE, 2.0, 6.0))
    assert wrinkling_moment(np.array(1e12), 2.0, 6.0) == pytest.approx(12.0, rel=1e-7)


def test_the_slope_is_continuous_and_at_most_that_of_the_taut_tube() -> None:
    """Differences of 1e-6 over a grid that is fine at the onset, where the wrong law had twice the slope."""
    x = np.sort(np.concatenate([np.linspace(0.0, 60.0, 6001), 1.0 + np.linspace(-1e-2, 1e-2, 2001)]))
    slope = (wrinkling_moment(x + 1e-6, 1.0, 1.0) - wrinkling_moment(x - 1e-6, 1.0, 1.0)) / 2e-6
    assert 0.0 < slope.min() and slope.max() < 1.0 + 1e-9
    assert np.abs(np.diff(slope[np.abs(x - 1.0) <= 1e-2])).max() < 4e-3  # as the square root of what is beyond the onset
    assert (wrinkling_moment(x, 1.0, 1.0) <= x * (1 + 1e-15)).all()


@pytest.mark.parametrize("share", [0.5, 0.9, 1.0, 1.01, 1.03, 1.05, 1.1, 1.5, 1.9])
def test_a_vine_under_any_constant_pressure_comes_to_rest_where_the_wall_balances(share: float) -> None:
    """With the damping of the step alone; at 1.01 to 1.1 M_w it swung for ever, at 0.5 to 0.7 rad/s."""
    simulator = VineSimulator(MODEL)
    moment, curvature = onset(LOOSE, MODEL.radius)
    pressure = share * moment / LOOSE.steering_gain
    c = LOOSE.replace(steering_curvature=1e3)  # muscles that hardly weaken
    states, status = simulator.rollout(simulator.initial_state(1), np.tile([0.0, pressure, 0.0], (1, 41, 1)), c, substeps=100)
    assert status[0] == 0
    parts = MODEL.split(states[0, -2:])
    assert np.abs(parts.omega).max() < 1e-9
    bends = np.diff(parts.theta[-1], prepend=0.0) / np.append(0.5, np.ones(9)) / MODEL.link_length / curvature
    assert np.ptp(bends) < 1e-9
    balance = bends[0] if bends[0] < 1.0 else WALL(bends[0])
    assert balance == pytest.approx(share * (1 - bends[0] * curvature / 1e3), rel=1e-7)


@pytest.mark.parametrize("dt", [0.001, 0.01, 0.1])
def test_energy_never_grows_where_the_tube_wrinkles(dt: float) -> None:
    """From wild states, whatever the step, also against muscles of constant pressure; elastic energy is that of the wall."""
    rng, simulator = np.random.default_rng(0), VineSimulator(replace(MODEL, radius=0.01), dt=dt)
    moment, curvature = onset(LOOSE, 0.01)
    states = np.tile(simulator.initial_state(), (8, 1))
    parts = simulator.model.split(states)
    parts.theta[:] += np.cumsum(0.3 * rng.normal(size=(8, 10)), axis=1)
    parts.omega[:] = 20 * rng.normal(size=(8, 10))
    parts.pressure[4:, 0] = pressure = 1e4

    def elastic(bend: np.ndarray) -> np.ndarray:
        x = np.abs(bend) / curvature
        wall = moment * curvature * np.where(x < 1.0, 0.5 * x**2, WORK(np.maximum(x, 1.0)) + 0.5)
        pulled = np.minimum(bend, LOOSE.steering_curvature)
        muscle = LOOSE.steering_gain * pressure * (pulled - 0.5 * pulled**2 / LOOSE.steering_curvature)
        return wall - muscle * (np.arange(8) >= 4)[:, None, None]

    controls = np.zeros((8, 200, simulator.nu))
    controls[4:, :, 1] = pressure
    found, status = simulator.rollout(states, controls, LOOSE)
    assert (status == 0).all()
    bends = np.diff(simulator.model.split(found).theta, axis=-1, prepend=0.0) / simulator.model.link_length
    assert (np.abs(bends) > 3 * curvature).any()
    total = energy(simulator, found, LOOSE, elastic)
    assert (np.diff(total, axis=1) <= 1e-9 * np.ptp(total, axis=1)[:, None]).all()


def test_springs_of_the_mujoco_model_are_within_a_percent_of_the_wall() -> None:
    """Below 10 kappa_w, beyond which muscles of the usual parameters do not bend; a taut tube is exact."""
    shares, ends = (np.array(column, dtype=float) for column in zip(*SPRINGS["wrinkling"], strict=True))
    assert shares.sum() == pytest.approx(1.0, abs=1e-12) and (ends[1:] >= 1.0).all() and np.isnan(ends[0])
    near = CURVATURE[CURVATURE < 10.0]
    springs = (shares * np.fmin(near[:, None], ends)).sum(axis=1)
    error = np.abs(springs / MOMENT[: len(near)] - 1.0).max()
    assert 0.0075 < error < 0.0085


def test_both_simulators_hold_a_bend_by_the_action_that_the_controllers_take() -> None:
    model = replace(MODEL, max_steering=VineModel().max_steering)
    for bend in (1.0, 1.5, 2.5, 3.5):
        action = held(model, np.array([[bend]]))[0, 0]
        for simulator, within in ((VineSimulator(model), 1e-6), (MujocoVine(model), 0.03)):
            control = np.array([[0.0, action * model.max_steering, 0.0]])
            state, _ = simulator.step(simulator.initial_state(1), control, substeps=round(10 / simulator.dt))
            theta = model.split(state[0]).theta
            assert np.diff(theta).mean() / model.link_length == pytest.approx(bend, rel=within)


# --- growth ------------------------------------------------------------------------------------------------------------


def speed(simulator: Any, c: Any, length: float = 0.5, turned: float = 0.0) -> float:
    """Growth speed [m/s] soon after rest, of a limp robot of this length that bends by `turned` in all [rad]."""
    model = simulator.model
    state = simulator.initial_state(1)
    parts = model.split(state)
    parts.length[:] = length
    active = int(model.num_active(parts.length)[0])
    parts.theta[:] = turned * np.minimum(np.arange(1, model.num_links + 1) / active, 1.0)
    limp = c.replace(bending_stiffness=1e-6, linear_density=1e-3)
    control = np.zeros((1, simulator.nu))
    control[0, 0] = model.max_growth
    for _ in range(3):  # what depends on the speed follows from step to step
        state, status = simulator.step(state, control, limp, substeps=round(0.02 / simulator.dt))
        assert status[0] == 0
    return float(model.split(state).growth[0])


OPEN = VineModel(num_links=20, max_length=1.0, initial_length=0.5, num_sections=0, max_growth=10.0)
BOTH = pytest.mark.parametrize("simulator", [VineSimulator(OPEN), MujocoVine(OPEN)], ids=["native", "mujoco"])


@BOTH
def test_length_and_bends_add_to_the_force_that_growth_takes(simulator: Any) -> None:
    """[Blumenschein2017]: the drag of length and the drag around bends are terms of a sum; here they were a product."""
    c = simulator.default_parameters.replace(tail_drag=1.0, bend_drag=0.5, tail_friction=0.5)
    straight, longer, bent, both = (speed(simulator, c, *case) for case in ((0.4, 0), (0.8, 0), (0.4, 2), (0.8, 2)))
    assert straight - longer > 0.05 and straight - bent > 0.05
    assert both == pytest.approx(longer + bent - straight, abs=0.02 * (straight - both))


@BOTH
@pytest.mark.parametrize("power", [1.0, 2.0])
def test_growth_speeds_up_with_the_power_of_the_pressure_beyond_the_least(simulator: Any, power: float) -> None:
    """v = phi (P - Y)^n without a tail: twice the pressure beyond Y is 2^n times the speed; `rate_pressure` is 0.1 m/s."""
    c = simulator.default_parameters.replace(tail_drag=0.0, bend_drag=0.0, rate_power=power)
    slow, fast = (speed(simulator, c.replace(pressure=c.yield_pressure + beyond)) for beyond in (1e3, 2e3))
    assert slow == pytest.approx(0.1, rel=0.02)
    assert fast == pytest.approx(2**power * slow, rel=0.02)
    assert speed(simulator, c.replace(pressure=c.yield_pressure)) == pytest.approx(0.0, abs=1e-6)


LENGTH, DRY_MOMENT = 0.3, 2e-3
ONE = VineModel(num_links=1, num_sections=0, max_length=LENGTH, initial_length=LENGTH)
BODY = VineParameters(bending_stiffness=0.02, bending_damping=2e-4, linear_density=0.02, drag=0.0, bending_friction=DRY_MOMENT)
STIFFNESS = BODY.bending_stiffness / (0.5 * LENGTH)


def swing(dt: float, angle: float, seconds: float) -> np.ndarray:
    """Angles of one link that is let go."""
    simulator, start = VineSimulator(ONE, dt), ONE.straight_state()
    ONE.split(start).theta[:] += angle
    states, status = simulator.rollout(start[None], np.zeros((1, round(seconds / dt), simulator.nu)), BODY)
    assert status[0] == 0
    return np.asarray(states[0, :, 0] - ONE.base[2])


def turns(angles: np.ndarray) -> np.ndarray:
    """Sizes of the angles at which a swing turns, its start first."""
    size = np.abs(angles)
    peak = (size[1:-1] >= size[:-2]) & (size[1:-1] > size[2:])
    return np.concatenate([size[:1], size[1:-1][peak]])


def test_swings_fall_as_the_closed_form_says_to_first_order() -> None:
    """A' = (A - M / k) exp(-zeta pi / sqrt(1 - zeta^2)) - M / k from turn to turn, with viscous damping beside."""
    inertia = BODY.linear_density * LENGTH * (LENGTH**2 / 3 + 0.5 * ONE.radius**2)
    zeta = BODY.bending_damping / (0.5 * LENGTH) / (2 * np.sqrt(STIFFNESS * inertia))
    rest, decay = DRY_MOMENT / STIFFNESS, np.exp(-zeta * np.pi / np.sqrt(1 - zeta**2))
    expected = [0.2]
    for _ in range(2):
        expected.append((expected[-1] - rest) * decay - rest)
    errors = [np.abs(turns(swing(dt, 0.2, 0.3))[:3] - expected).max() for dt in (2e-3, 1e-3, 5e-4)]
    assert errors[0] < 0.1 * rest
    assert errors[1] < 0.75 * errors[0] and errors[2] < 0.75 * errors[1]  # of first order: half each time


def test_a_bend_that_friction_holds_stays_but_for_a_slow_creep() -> None:
    """At half the moment that would move it the rate is that of `DRY_RATE`, whatever the step."""
    for dt in (2e-3, 5e-4):
        angles = swing(dt, 0.5 * DRY_MOMENT / STIFFNESS, 1.0)
        creep = DRY_RATE * 0.5 * LENGTH
        assert 0.0 < angles[0] - angles[-1] < creep
        assert np.diff(angles).min() > -1.05 * creep * dt


def chain(simulator: Any, moment: float) -> np.ndarray:
    """Heading of the last of eight links that are let go from an arc."""
    model = simulator.model
    parameters = simulator.default_parameters.replace(drag=0.0, bending_friction=moment)
    start = model.straight_state()
    model.split(start).theta[:] += 0.05 * np.arange(1, 9)
    states, status = simulator.rollout(start[None], np.zeros((1, round(1 / simulator.dt), simulator.nu)), parameters)
    assert status[0] == 0
    return np.asarray(states[0, :: round(1 / 40 / simulator.dt), 7])


def test_joints_of_mujoco_lose_as_much() -> None:
    """What differs is a tenth of what friction changes, at most."""
    model = VineModel(num_links=8, num_sections=0, max_length=0.5, initial_length=0.5)
    ours, mujoco_model = VineSimulator(model, 1e-3), MujocoVine(model, dt=5e-4)
    for moment in (5e-4, 1e-3):
        free, expected, found = chain(mujoco_model, 0.0), chain(mujoco_model, moment), chain(ours, moment)
        assert np.abs(found - expected).max() < 0.1 * np.abs(free - expected).max()


def test_robots_beside_each_other_have_friction_of_their_own() -> None:
    """Four rows in one register: bit for bit what each does alone."""
    simulator = VineSimulator(VineModel(num_links=6, num_sections=0), 2.5e-3)
    start = np.repeat(simulator.model.straight_state()[None], 4, axis=0)
    simulator.model.split(start).theta[:] += 0.05 * np.arange(1, 7)
    moments, controls = np.array([0.0, 1e-4, 1e-3, 5e-3]), np.zeros((4, 100, simulator.nu))
    together, _ = simulator.rollout(start, controls, VineParameters(bending_friction=moments))
    for row, moment in enumerate(moments):
        alone, _ = simulator.rollout(start[row : row + 1], controls[:1], VineParameters(bending_friction=float(moment)))
        np.testing.assert_array_equal(together[row], alone[0])


def test_a_fit_tells_dry_friction_from_damping_on_the_mujoco_model() -> None:
    """From none, and a damping a factor of 1.5 off; at half a millimetre of noise two of three intervals hold at least."""
    ground_truth = MujocoVineParameters(bending_stiffness=0.03, bending_damping=2e-4, drag=0.0, bending_friction=1e-3)
    simulator, rng = VineSimulator(BEAM, 1 / (240 * 6), "linear"), np.random.default_rng(0)
    recording = replace(record_oscillation(ground_truth, rng, bend=0.8, seconds=0.3), substeps=6)
    seen = measurement(simulator, recording.names)
    fit = FitProblem(
        simulator, TrajectorySet((recording,)), free=(*TUBE, "bending_friction"),
        start=VineParameters(drag=0.0, bending_stiffness=0.03, bending_damping=3e-4), measurement=seen,
        initial_state=first_state(simulator, seen.names), free_motion=True,
    )  # fmt: skip
    result = single_shooting(fit, ShootingOptions(levenberg=LevenbergOptions(cost_tolerance=1e-5), reweight=1))
    assert result.parameters.bending_friction == pytest.approx(ground_truth.bending_friction, rel=0.1)
    assert sum(e.interval[0] <= getattr(ground_truth, e.name) <= e.interval[1] for e in result.estimates) >= 2


LOADED_LENGTH, LOADED_STIFFNESS, DENSITY = 0.1, 0.018, 0.96
PLAIN = VineParameters(bending_stiffness=LOADED_STIFFNESS, bending_damping=1e-8, linear_density=DENSITY, drag=0.0)


def beam(num_links=12, dt=2e-4, **structure):
    size = {"max_length": LOADED_LENGTH, "initial_length": LOADED_LENGTH, "num_sections": 0, "radius": 1e-4, "max_load": 1.0}
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
            b * clamp_length / LOADED_LENGTH,
            b * mass / DENSITY / LOADED_LENGTH,
        )
        root = [[1, 0, 1, 0], [k, 1, -k, 1]]
        return np.linalg.det([*root, [-c, -s, C, S], [s + m * c, m * s - c, S + m * C, C + m * S]])

    b = brentq(determinant, 0.8, 1.9)
    return b**2 * np.sqrt(LOADED_STIFFNESS / DENSITY / LOADED_LENGTH**4) / (2 * np.pi)


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
    expected = -force * LOADED_LENGTH**2 * (2 * LOADED_LENGTH + 3 * ahead) / (6 * LOADED_STIFFNESS)
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
    parameters |= {"bending_stiffness": LOADED_STIFFNESS, "bending_damping": 1e-4, "linear_density": DENSITY, "drag": 0.0}
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
