"""Exchanged names and turned signs of recordings of whole states are named before any fit, and right ones pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from softgym_envs.core.errors import DataError
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.rooms import room
from sysid import FitProblem

ENGINE = room("arm").simulator()
NOISE = np.array([2e-3, 2e-2, 5e-3, 5e-3])
FREE = ("biceps_force", "damping", "rise_time")


def recorded(seed: int) -> Trajectory:
    """An elbow of drawn constants under jumping commands, 4 s at 100 Hz, with noise."""
    rng = np.random.default_rng(seed)
    fine = replace(ENGINE, dt=1e-3)
    constants = fine.default_parameters.replace(
        **{name: getattr(fine.default_parameters, name) * rng.uniform(0.8, 1.25) for name in FREE}
    )
    controls = np.repeat(rng.uniform(0.0, (0.5, 0.25), (16, 2)), 25, axis=0)
    states, status = fine.rollout(fine.initial_state(1), controls[None], constants, substeps=10)
    assert not status.any()
    noisy = states[0] + NOISE * rng.standard_normal(states[0].shape)
    return replace(Trajectory.from_rollout(fine, noisy, controls, substeps=10), substeps=round(0.01 / ENGINE.dt))


def problem(recording: Trajectory, factor: float = 1.0) -> FitProblem:
    """A fit that begins `factor` off."""
    start = ENGINE.default_parameters
    start = start.replace(**{name: getattr(start, name) * factor for name in FREE})
    return FitProblem(ENGINE, TrajectorySet((recording,)).split(1, 0, 0), free=FREE, start=start)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("factor", [1 / 3, 1.0, 3.0])
def test_right_labels_pass_from_starts_far_off(seed: int, factor: float) -> None:
    assert problem(recorded(seed), factor).split.train[0].num_steps == 400


def test_mistakes_are_named_in_words() -> None:
    right = recorded(7)
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
    right = recorded(8)
    with pytest.raises(DataError, match=r"written as \[%\] in the header"):
        problem(replace(right, controls=100.0 * right.controls))
