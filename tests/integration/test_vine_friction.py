"""Dry friction of a body that bends: swings in closed form, what it holds, MuJoCo's joints, rows beside others, a fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reproductions.jitosho2021.experiments import BEAM, record_oscillation
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.links import DRY_RATE
from softgym_envs.systems.vine.model import VineModel
from softgym_envs.systems.vine.mujoco import MujocoVine, MujocoVineParameters
from softgym_envs.systems.vine.parameters import VineParameters
from softgym_envs.systems.vine.procedure import TUBE, first_state, measurement
from sysid import FitProblem
from sysid.fitting.shooting import ShootingOptions, single_shooting
from sysid.least_squares.levenberg import LevenbergOptions

LENGTH, MOMENT = 0.3, 2e-3
ONE = VineModel(num_links=1, num_sections=0, max_length=LENGTH, initial_length=LENGTH)
BODY = VineParameters(bending_stiffness=0.02, bending_damping=2e-4, linear_density=0.02, drag=0.0, bending_friction=MOMENT)
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
    rest, decay = MOMENT / STIFFNESS, np.exp(-zeta * np.pi / np.sqrt(1 - zeta**2))
    expected = [0.2]
    for _ in range(2):
        expected.append((expected[-1] - rest) * decay - rest)
    errors = [np.abs(turns(swing(dt, 0.2, 0.3))[:3] - expected).max() for dt in (2e-3, 1e-3, 5e-4)]
    assert errors[0] < 0.1 * rest
    assert errors[1] < 0.75 * errors[0] and errors[2] < 0.75 * errors[1]  # of first order: half each time


def test_a_bend_that_friction_holds_stays_but_for_a_slow_creep() -> None:
    """At half the moment that would move it the rate is that of `DRY_RATE`, whatever the step."""
    for dt in (2e-3, 5e-4):
        angles = swing(dt, 0.5 * MOMENT / STIFFNESS, 1.0)
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
