"""Commands that act late are told from slow motors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sysid_systems import Spring, SpringParameters, record

from softgym_envs.core.trajectory import TrajectorySet
from sysid import FitProblem, multiple_shooting
from sysid.methods.latency import find_latency

TRUTH = SpringParameters(stiffness=35.0, damping=2.5, gain=5.0)
FREE = ("stiffness", "damping", "gain")


def late(rows: int) -> FitProblem:
    """The commands that were logged acted `rows` rows of 20 ms later."""
    exact = record(Spring(), TRUTH, steps=400)[0]
    logged = np.concatenate([exact.controls[rows:], np.zeros((rows, 1))])
    recording = replace(exact, controls=logged).with_noise(np.random.default_rng(0), 1e-4)
    return FitProblem(Spring(), TrajectorySet((recording,)), FREE)


def test_latency_is_found_and_without_it_the_constants_are_wrong() -> None:
    problem = late(3)
    found = find_latency(problem, 0.1, 50)
    assert found.delay == pytest.approx(0.06, abs=1e-3) and found.share < 0.2
    assert "act 60 ms late" in found.text()
    wrong, right = multiple_shooting(problem), multiple_shooting(problem.replace(delay=0.06))
    assert abs(wrong.parameters.stiffness - 35.0) > 3.0
    assert right.parameters.stiffness == pytest.approx(35.0, rel=0.01)


def test_prompt_commands_have_no_latency() -> None:
    found = find_latency(late(0), 0.1, 50)
    assert found.delay == 0.0 and not found.text()
