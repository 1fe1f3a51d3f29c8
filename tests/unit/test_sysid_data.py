"""Unusable recordings end in a diagnostic, never in numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sysid_systems import Spin, SpinParameters, Spring, SpringParameters, record

from softgym_envs.core.errors import DataError, OptionError, ParameterError, ShapeError
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet
from sysid import FitProblem, multiple_shooting
from sysid.fitting.shooting import ShootingOptions, one_step, single_shooting
from sysid.problem.problem import Measurement

GROUND_TRUTH = SpringParameters(mass=3.0, stiffness=45.0, damping=0.8, gain=2.0)


def good() -> Trajectory:
    return record(Spring(), GROUND_TRUTH)[0]


def problem(trajectory: Trajectory, **changes: Any) -> FitProblem:
    return FitProblem(
        **{"simulator": Spring(), "data": TrajectorySet((trajectory,)), "free": ("stiffness", "damping"), **changes}
    )


def with_values(edit: Any) -> Trajectory:
    values = good().values.copy()
    values = edit(values)
    return replace(good(), values=values)


def nan_rows(values: Any) -> Any:
    values[50:53] = np.nan
    return values


def mostly_nan(values: Any) -> Any:
    return np.where(np.arange(len(values))[:, None] % 4 > 0, np.nan, values)


def test_good_data_pass() -> None:
    assert problem(good()).full_state
    assert not problem(good(), measured=("mass.x",)).full_state


BAD = {
    "too short": (lambda: good().window(0, 0.1), "too short: 5 steps, expected at least 10"),
    "constant controls": (lambda: replace(good(), controls=np.full((200, 1), 0.5)), "controls never change"),
    "nothing moves": (lambda: with_values(np.zeros_like), "nothing moves"),
    "NaN rows": (lambda: with_values(mostly_nan), "mass.x is NaN in 75 % of the rows"),
    "units of length": (lambda: with_values(lambda v: 1000 * v), r"wrong units: the columns in m travel over"),
    "units of position alone": (lambda: with_values(lambda v: v * [1000, 1]), r"wrong units: the lengths look .* mm"),
    "units of velocity alone": (lambda: with_values(lambda v: v * [1, 100]), r"wrong units: the velocities look .* cm"),
    "kilometres": (lambda: with_values(lambda v: v * [1e-3, 1]), r"wrong units: the lengths look .* km"),
    "controls beyond the limits": (
        lambda: replace(good(), controls=1000 * good().controls),
        "the limits are -1 ... 1: wrong unit",
    ),
    "frames given twice": (
        lambda: with_values(lambda v: np.repeat(v[::2], 2, axis=0)[: len(v)]),
        r"\d+ rows repeat the row before",
    ),
    "50 frames in 60 rows": (lambda: with_values(lambda v: v[np.arange(len(v)) * 5 // 6]), r"\d+ rows repeat the row before"),
    "times in milliseconds": (lambda: replace(good(), times=1000 * good().times), "are the times in seconds"),
    "times in milliseconds said to be seconds": (
        lambda: replace(good(), times=1000 * good().times).for_timestep(Spring().dt),
        "rows 20 s apart, .* are the times in ms",
    ),
    "other columns": (lambda: replace(good(), names=("a", "b")), "missing columns: the recordings hold a, b"),
    "other controls": (lambda: replace(good(), control_names=("push",)), "control 'force' is not recorded"),
}


@pytest.mark.parametrize("name", BAD)
def test_unusable_data_end_in_a_diagnostic(name: str) -> None:
    make, diagnostic = BAD[name]
    with pytest.raises(DataError, match=diagnostic):
        problem(make())


def test_an_encoder_that_moves_slowly_repeats_no_frames() -> None:
    """Nor does one that moves by as much in every other row."""
    quantum = 1.05 * np.abs(np.diff(good().values, axis=0)).max(axis=0)  # no row moves by more
    coarse = with_values(lambda v: quantum * np.round(v / quantum))
    assert (np.diff(coarse.values, axis=0) == 0).all(axis=1).mean() > 0.1
    assert problem(coarse).full_state
    steady = np.round(np.arange(201) / 2.5)[:, None] * [0.01, 0.01]
    assert problem(with_values(lambda v: steady), measured=("mass.x",)).column_names == ("mass.x",)


def test_degrees_are_found_on_rotating_robots() -> None:
    trajectory = record(Spin(), SpinParameters(drag=2.0, torque=7.0))[0]
    wrong = replace(trajectory, values=trajectory.values * [1, 1, 1, 1, 57.29578, 57.29578, 57.29578])
    with pytest.raises(DataError, match="degrees"):
        FitProblem(Spin(), TrajectorySet((wrong,)), free=("drag",))


def test_recordings_of_older_versions_take_the_units_of_the_simulator(tmp_path: Path) -> None:
    old = replace(good(), units=("SI", "SI"), control_units=("SI",), values=1000 * good().values)
    loaded = Trajectory.load(TrajectorySet((old,)).save(tmp_path / "old.h5"))
    assert loaded.units == ("SI", "SI")
    with pytest.raises(DataError, match="columns in m travel"):
        problem(loaded)


def test_noise_and_wrong_constants_are_not_taken_for_wrong_units() -> None:
    for seed in range(5):
        noisy = record(Spring(), GROUND_TRUTH, seed=seed, noise=0.05)[0]
        problem(noisy)
        problem(noisy, start=SpringParameters(mass=0.3, stiffness=200.0))


def test_a_missing_column_is_named() -> None:
    with pytest.raises(DataError, match=r"missing column 'mass\.z'"):
        problem(good(), measured=("mass.x", "mass.z"))


def test_throws_may_have_constant_controls_if_declared() -> None:
    controls = np.zeros((1, 60, 1))
    states, _ = Spring().rollout(np.array([[0.3, 0.0]]), controls, GROUND_TRUTH)
    throw = Trajectory.from_rollout(Spring(), states[0], controls[0])
    with pytest.raises(DataError, match="free_motion=True"):
        problem(throw)
    assert problem(throw, free_motion=True).full_state


def test_tracked_points_in_millimetres_are_found_by_the_robot_at_rest() -> None:
    measurement = Measurement(("a.x", "b.x"), lambda x: np.stack([x[..., 0], x[..., 0] + 0.4], axis=-1))
    t = good()
    values = measurement.function(t.values)

    def make(factor: float) -> FitProblem:
        points = Trajectory(t.times, t.controls, factor * values, ("a.x", "b.x"), ("m", "m"), ("force",), ("SI",))
        return problem(points, measurement=measurement)

    assert not make(1.0).full_state
    named = r"spread over 400, the robot over 0\.4 \(1e\+03 times\), as if they were given in mm \(1000 x too large\); use SI"
    with pytest.raises(DataError, match=named):
        make(1000.0)


def test_one_measured_column_in_millimetres_is_found_by_how_far_it_travels() -> None:
    wrong = with_values(lambda v: 1000 * v)
    with pytest.raises(DataError, match="travel over"):
        problem(wrong, measured=("mass.x",))


def test_partly_measured_recordings_may_have_gaps_but_not_too_many() -> None:
    gaps = with_values(nan_rows)
    assert problem(gaps, measured=("mass.x",)).values(gaps).shape == (201, 1)
    empty = with_values(mostly_nan)
    with pytest.raises(DataError, match="NaN in 75 % of the rows"):
        problem(empty, measured=("mass.x",))


def test_states_with_gaps_are_measured_in_part() -> None:
    """Cells that are missing anywhere, where segments begin too: parameters are within four standard deviations."""
    noisy = record(Spring(), GROUND_TRUTH)[0].with_noise(np.random.default_rng(0), {"mass.x": 1e-3, "mass.vx": 5e-3})
    missing = np.random.default_rng(1).random(noisy.values.shape) < 0.05
    missing[[0, 50]] = True, False
    gaps = replace(noisy, values=np.where(missing, np.nan, noisy.values))
    asked = problem(gaps, start=SpringParameters(mass=3.0, stiffness=20.0, damping=2.0, gain=2.0))
    assert not asked.full_state and asked.whole and np.isfinite(asked.states_at_rows(gaps)).all()
    blind = replace(gaps, values=np.where([False, True], np.nan, gaps.values))
    assert (asked.states_at_rows(blind)[:, 1] == 0.0).all()  # as in a window of a longer gap: at rest
    found = multiple_shooting(asked, ShootingOptions(segment_steps=50))
    assert found.converged and found.explained
    for name in ("stiffness", "damping"):
        estimate = next(e for e in found.estimates if e.name == name)
        width = 0.5 * (estimate.interval[1] - estimate.interval[0])
        assert abs(estimate.value - getattr(GROUND_TRUTH, name)) < 2 * width < 0.2 * getattr(GROUND_TRUTH, name)
    with pytest.raises(DataError, match="needs every state entry measured"):
        one_step(asked)


def test_validation_recordings_are_judged_too() -> None:
    train, bad = good(), with_values(mostly_nan)
    with pytest.raises(DataError, match=r"test recording 0: mass\.x is NaN in 75 %"):
        FitProblem(Spring(), DataSplit(TrajectorySet((train,)), TrajectorySet(()), TrajectorySet((bad,))), free=("stiffness",))
    with pytest.raises(DataError, match="no recording to train on"):
        FitProblem(Spring(), TrajectorySet(()), free=("stiffness",))


def test_another_control_period_is_refused() -> None:
    other = record(Spring(), GROUND_TRUTH, substeps=2)[0]
    with pytest.raises(DataError, match="has 2 substeps, the first 1"):
        FitProblem(Spring(), TrajectorySet((good(), other)), free=("stiffness",))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"free": ()}, ParameterError, "at least one name"),
        ({"free": ("stiffness", "stiffness")}, ParameterError, "each once"),
        ({"free": ("colour",)}, ParameterError, "unknown parameter 'colour'"),
        ({"start": SpinParameters()}, ParameterError, "this simulator takes SpringParameters"),
        ({"start": SpringParameters(mass=np.ones(3))}, ParameterError, "3 rows"),  # type: ignore[arg-type]
        ({"prior": {"mass": (1.0, 0.1)}}, ParameterError, "prior of mass"),
        ({"prior": {"damping": (1.0, -0.1)}}, ParameterError, "prior of damping"),
        ({"noise": {"mass.x": 0.1}}, OptionError, "noise of mass.vx is missing"),
        ({"noise": 0.001}, OptionError, r"noise is 0.001, expected \{column: standard deviation\}"),
        ({"free": "mass"}, ParameterError, r"free is 'mass', expected names in a tuple: \('mass',\)"),
        ({"data": good()}, DataError, r"data is Trajectory, expected a TrajectorySet\(\(recording, \.\.\.\)\)"),
        ({"data": [good()]}, DataError, "data is list, expected a TrajectorySet"),
        ({"noise": {"mass.y": 0.1}}, OptionError, "noise names 'mass.y'"),
        ({"measurement": Measurement(("mass.x",), lambda x: x)}, ShapeError, r"shape \(2, 2\)"),
    ],
)
def test_bad_problems_are_refused(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        problem(good(), **changes)


def test_a_third_of_all_frames_may_be_missing() -> None:
    ground_truth = SpringParameters(stiffness=35.0)
    (clean,) = record(Spring(), ground_truth, steps=300, noise=0.01)
    values = clean.select(("mass.x",)).values.copy()
    values[np.random.default_rng(0).random(len(values)) < 0.33] = np.nan
    seen = replace(clean.select(("mass.x",)), values=values)
    problem = FitProblem(
        Spring(), TrajectorySet((seen,)), ("stiffness",), start=ground_truth.replace(stiffness=25.0), measured=("mass.x",)
    )
    (stiffness,) = single_shooting(problem).estimates
    assert abs(stiffness.value - 35.0) < 4.0 * stiffness.std < 3.0
