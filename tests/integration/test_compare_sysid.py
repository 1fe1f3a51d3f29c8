"""The problem of benchmarks/compare_mujoco_sysid.py: both tools must get what they are said to get, and be judged rightly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import load_script

from softgym_envs.core.errors import MissingDependencyError
from softgym_envs.core.simulator import Simulator


@pytest.fixture(scope="module")
def compare() -> Any:
    return load_script("benchmarks/compare_mujoco_sysid.py")


@pytest.mark.parametrize("sensors", ["markers", "joints"])
def test_our_model_of_the_recording_is_mujocos(compare: Any, sensors: Any) -> None:
    """Kinematics written by hand, one call per control step, against MuJoCo's own sensors in one rollout."""
    recording, simulator = compare.record(sensors), compare.ChainSimulator(at_once=False)
    assert isinstance(simulator, Simulator)
    controls = recording.controls[None]
    states, status = simulator.rollout(recording.start[None], controls, compare.GROUND_TRUTH, substeps=compare.SUBSTEPS)
    assert not status.any()
    np.testing.assert_allclose(recording.measurement.function(states[0]), recording.values, rtol=0, atol=1e-12)
    assert np.ptp(recording.values, axis=0).max() > 100 * compare.NOISE


def test_one_call_for_the_whole_rollout_gives_the_same_bits(compare: Any) -> None:
    rng = np.random.default_rng(0)
    state, controls = 0.1 * rng.normal(size=(3, 20)), rng.uniform(-1, 1, (3, 20, 1))
    parameter_values = compare.ChainParameters(stiffness=np.array([0.02, 0.2, 2.0]), damping=np.array([0.05, 0.005, 5e-4]))
    fast, slow = (
        compare.ChainSimulator(at_once=choice).rollout(state, controls, parameter_values, substeps=5)
        for choice in (True, False)
    )
    assert (fast[0] == slow[0]).all() and (fast[1] == slow[1]).all()


def test_a_row_that_fails_is_left_to_the_engine(compare: Any) -> None:
    state = np.zeros((2, 20))
    state[1, 10:] = 900.0  # next to the engine's limit of 1000 rad/s
    controls = np.full((2, 20, 1), 2.0)
    fast, slow = (compare.ChainSimulator(at_once=choice).rollout(state, controls, substeps=5) for choice in (True, False))
    assert list(slow[1]) == [0, 1]
    assert (fast[0] == slow[0]).all() and (fast[1] == slow[1]).all()


def test_intervals_are_judged_by_coverage_and_width(compare: Any) -> None:
    """Estimates with a known spread: right intervals, intervals half as wide, and a bias of three standard deviations."""
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(400, 2))
    ground_truth = compare.GROUND_TRUTH.to_vector()

    def row(width: float, bias: float) -> Any:
        fits = []
        for draw in draws:
            values = dict(zip(compare.GROUND_TRUTH.names(), ground_truth * (1 + 0.01 * (draw + bias)), strict=True))
            half = {name: (0.0196 * width * t,) * 2 for name, t in zip(compare.GROUND_TRUTH.names(), ground_truth, strict=True)}
            fits.append(compare.Fitted(values, half, 1.0))
        return compare.summarise("some", "none", fits)

    good, narrow, biased = row(1.0, 0.0), row(0.5, 0.0), row(1.0, 3.0)
    assert all(good.calibrated.values()) and not any(narrow.calibrated.values()) and not any(biased.calibrated.values())
    # 4 standard deviations of a standard deviation from 400 draws are 14 %.
    assert list(good.width.values()) == pytest.approx([1.0, 1.0], rel=0.14)
    assert list(narrow.width.values()) == pytest.approx([0.5, 0.5], rel=0.14)
    assert list(biased.error.values()) == pytest.approx([0.01 * np.sqrt(10)] * 2, rel=0.05)
    low, high = good.chance["stiffness"]
    assert low < 0.95 < high


def test_without_the_extra_one_sentence_says_which(compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "peer", None)
    with pytest.raises(MissingDependencyError, match=r"\.\[compare\]"):
        compare.require_peer()


def test_ours_finds_the_constants(compare: Any) -> None:
    recording = compare.record("markers")
    fit = compare.ours(recording, recording.noisy(0))
    assert compare.right(fit)
