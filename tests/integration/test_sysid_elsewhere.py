"""Recordings that were kept back are of the same robot, or it is said that they are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sysid_systems import Spring, SpringParameters, record

from softgym_envs.core.trajectory import DataSplit, TrajectorySet
from sysid import FitProblem, multiple_shooting
from sysid.diagnostics.hold_out_test import RARE, _without_errors
from sysid.diagnostics.result import FitResult
from sysid.diagnostics.whiteness import ALARM
from sysid.fitting.shooting import ShootingOptions, single_shooting
from sysid.problem.recording_parameters import RecordingParameters

NOISE = 0.01
"""Of the place of the mass [m]."""


def fitted(other: float, seed: int, *, segments: int | None = None, rows: tuple[int, int] = (200, 200)) -> FitResult:
    """Stiffness from a recording of 20 N/m; another one of `other` N/m is kept back; of so many rows each."""
    parts = []
    for stiffness, which, steps in ((20.0, seed, rows[0]), (other, seed + 1000, rows[1])):
        (moved,) = record(Spring(), SpringParameters(stiffness=stiffness), seed=which, steps=steps)
        seen = moved.select(("mass.x",)).with_noise(np.random.default_rng(which), {"mass.x": NOISE})
        parts.append(TrajectorySet((seen,)))
    split = DataSplit(parts[0], TrajectorySet(()), parts[1])
    problem = FitProblem(Spring(), split, ("stiffness",), measured=("mass.x",))
    return single_shooting(problem) if segments is None else multiple_shooting(problem, ShootingOptions(segment_steps=segments))


@pytest.mark.parametrize("segments", [None, 50])
def test_another_robot_that_was_kept_back_is_said_to_be_one(segments: int | None) -> None:
    fit = fitted(35.0, 0, segments=segments)
    assert not fit.explained and fit.misfit > 1.0 and fit.of("held_out_residuals")[0].parameter == "mass.x"


def test_the_same_robot_is_not_called_another_one() -> None:
    fits = [fitted(20.0, seed) for seed in range(30)]
    assert sum(bool(fit.of("held_out_residuals")) for fit in fits) <= stats.binom.ppf(1 - 1e-3, len(fits), RARE)


def test_errors_of_the_constants_call_no_recording_another_robot() -> None:
    """Much longer than what was fitted, so that an error of the stiffness that its interval holds shows."""
    fits = [fitted(20.0, seed, rows=(40, 600)) for seed in range(20)]
    assert sum(bool(fit.of("held_out_residuals")) for fit in fits) <= stats.binom.ppf(1 - 1e-3, len(fits), RARE)


def test_residuals_less_what_errors_of_the_constants_make() -> None:
    rng = np.random.default_rng(0)
    residual, jacobian, root = rng.standard_normal(40), rng.standard_normal((40, 3)), rng.standard_normal((3, 2))
    covariance = root @ root.T  # one direction is known
    direct = residual @ np.linalg.solve(np.eye(40) + jacobian @ covariance @ jacobian.T, residual)
    assert _without_errors(residual, jacobian @ root) == pytest.approx(direct, rel=1e-9)


def late(seed: int, rows: int = 10) -> FitResult:
    """The same robot, with commands that act so many rows late: those before the recording that is kept back nobody knows."""
    parts = []
    for which in (seed, seed + 1000):
        (moved,) = record(Spring(), steps=200 + rows, seed=which)
        given = replace(moved.window(0.0, 200 * moved.period), controls=moved.controls[rows:], before=moved.controls[:rows])
        seen = given.select(("mass.x",)).with_noise(np.random.default_rng(which), 0.1 * NOISE)
        parts.append(TrajectorySet((seen,)))
    kept = TrajectorySet((replace(parts[1][0], before=np.zeros((0, 1))),))
    split, view = DataSplit(parts[0], TrajectorySet(()), kept), RecordingParameters(latency=rows * Spring().dt)
    return single_shooting(FitProblem(Spring(), split, ("stiffness",), measured=("mass.x",), view=view))


def test_the_same_robot_under_commands_that_nobody_knows_is_not_called_another_one() -> None:
    fits = [late(seed) for seed in range(12)]
    assert sum(fit.explained for fit in fits) >= stats.binom.ppf(1e-3, len(fits), 1 - 2 * ALARM)
    assert sum(bool(fit.of("held_out_residuals")) for fit in fits) <= stats.binom.ppf(1 - 1e-3, len(fits), RARE)
