"""Exchanged names and turned signs of recordings of whole states are named before any fit, and right ones pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sysid_systems import Spring, SpringParameters

from softgym_envs.core.errors import DataError
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.systems import system
from softgym_envs.systems.arm.parameters import ElbowParameters
from sysid import FitProblem
from sysid.problem import wrong_labels

ENGINE = system("arm").simulator()
NOISE = np.array([2e-3, 2e-2, 5e-3, 5e-3])
FREE = ("biceps_force", "damping", "rise_time")


def scaled(parameter_values: ElbowParameters, factors: dict[str, float]) -> ElbowParameters:
    """Parameters times factors, within their bounds."""
    specs = parameter_values.specs()
    return parameter_values.replace(
        **{n: float(np.clip(getattr(parameter_values, n) * f, *specs[n].bounds)) for n, f in factors.items()}
    )


def recorded(seed: int, factor: float = 1.25) -> tuple[Trajectory, ElbowParameters]:
    """An elbow with parameters within `factor` of the usual ones, jumping commands, 4 s at 100 Hz, with noise; and these."""
    rng = np.random.default_rng(seed)
    fine = replace(ENGINE, dt=1e-3)
    usual = fine.default_parameters
    parameter_values = scaled(usual, {name: factor ** rng.uniform(-1.0, 1.0) for name in FREE})
    controls = np.repeat(rng.uniform(0.0, (0.5, 0.25), (16, 2)), 25, axis=0)
    states, status = fine.rollout(fine.initial_state(1), controls[None], parameter_values, substeps=10)
    assert not status.any()
    noisy = states[0] + NOISE * rng.standard_normal(states[0].shape)
    recording = Trajectory.from_rollout(fine, noisy, controls, substeps=10)
    return replace(recording, substeps=round(0.01 / ENGINE.dt)), parameter_values


def problem(recording: Trajectory, start: ElbowParameters = ENGINE.default_parameters) -> FitProblem:
    """A fit of the recording."""
    return FitProblem(ENGINE, TrajectorySet((recording,)).split(1, 0, 0), free=FREE, start=start)


@pytest.mark.parametrize("seed", range(8))
def test_right_labels_pass_under_constants_far_off(seed: int) -> None:
    """Neither a start a factor of 3 off, either way, nor the usual parameters, up to 3 times off, find another label."""
    recording, ground_truth = recorded(seed, factor=3.0)
    given = problem(recording)
    rng = np.random.default_rng(seed)
    start = scaled(ground_truth, {name: 3.0 ** rng.choice([-1, 1]) for name in FREE})
    for parameter_values in (start, given.simulator.default_parameters):
        assert wrong_labels._likeliest(given, parameter_values) == ""


def test_commands_that_act_half_a_period_late_do_not_look_turned() -> None:
    spring = Spring(dt=0.01)
    controls = np.where(np.arange(400) // 20 % 2, 1.0, -1.0)[:, None]  # a square wave of 0.4 s
    states, _ = spring.rollout(spring.initial_state(1), np.roll(controls, 20, axis=0)[None], SpringParameters())
    late = Trajectory.from_rollout(spring, states[0], controls)
    FitProblem(spring, TrajectorySet((late,)).split(1, 0, 0), free=("stiffness",))


def test_mistakes_are_named_in_words() -> None:
    right, _ = recorded(7)
    angle, rate, biceps, triceps = range(4)
    turned = np.array([-1.0, -1.0, 1.0, 1.0])
    mistakes = {
        "controls biceps and triceps look exchanged": replace(right, controls=right.controls[:, ::-1]),
        "columns biceps and triceps look exchanged": replace(right, values=right.values[:, [angle, rate, triceps, biceps]]),
        "biceps and triceps look exchanged, states and controls": replace(
            right, values=right.values[:, [angle, rate, triceps, biceps]], controls=right.controls[:, ::-1]
        ),
        "angles and rates look turned": replace(right, values=right.values * turned),
        "rates look turned": replace(right, values=right.values * np.array([1.0, -1.0, 1.0, 1.0])),
    }
    for words, recording in mistakes.items():
        with pytest.raises(DataError, match=f"wrong labels: {words}"):
            problem(recording)


def test_percentages_are_told_apart_from_other_units() -> None:
    right, _ = recorded(8)
    with pytest.raises(DataError, match=r"written as \[%\] in the header"):
        problem(replace(right, controls=100.0 * right.controls))
