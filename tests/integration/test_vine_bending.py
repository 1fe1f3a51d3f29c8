"""The inflated tube's bending moment against quadrature of a wall that carries tension only; rest, energy; force of growth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.interpolate import CubicSpline
from test_physics_vine import energy

from softgym_envs.systems.vine.bending import wrinkling_moment
from softgym_envs.systems.vine.controllers import held
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.model import VineModel
from softgym_envs.systems.vine.mujoco import MujocoVine
from softgym_envs.systems.vine.mujoco_chain import SPRINGS
from softgym_envs.systems.vine.parameters import VineParameters

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
