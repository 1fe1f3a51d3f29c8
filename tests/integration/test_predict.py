"""Predictions of new recordings by a fit: right errors, simple predictors, coverage, files, exit codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import load_script, run_script
from sysid_systems import Spring, SpringParameters, record

import sysid
from softgym_envs.core.errors import FileFormatError, OptionError
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from sysid import FitProblem, Prediction, Predictor
from sysid.diagnostics.prediction_intervals import Band
from sysid.diagnostics.predictions import WHOLE, compared, of_fit

GROUND_TRUTH = SpringParameters()


def by(parameters: SpringParameters, noise: float = 0.0, **more: object) -> sysid.diagnostics.predictions.Predictions:
    """Predictions of two recordings of a spring."""
    data = record(Spring(), steps=400, count=2, seed=3, noise=noise)
    problem = FitProblem(Spring(), data, ("stiffness",), start=parameters, **more)
    pairs = [of_fit(problem, parameters, each, len(data)) for each in data]
    return compared(pairs, problem.column_names, problem.column_units)


def test_the_right_parameters_predict_exactly_and_wrong_ones_as_the_solution_of_the_wrong_spring() -> None:
    exact = by(GROUND_TRUTH)
    assert max(error.predicted for error in exact.errors()) < 1e-9
    wrong = SpringParameters(stiffness=26.0)
    ends, data = by(wrong).ends[2], record(Spring(), steps=400, count=2, seed=3)
    for place in (0, len(ends.now) - 1):  # a second way to the same prediction: one rollout of the simulator
        recording, now = data[int(ends.recording[place])], int(ends.now[place])
        steps = round(0.5 / recording.period)
        states, _ = Spring().rollout(
            recording.values[now : now + 1], recording.controls[None, now : now + steps], wrong, substeps=recording.substeps
        )
        np.testing.assert_allclose(ends.predicted[place, -1], states[0, -1], atol=1e-12)
        np.testing.assert_allclose(ends.measured[place, -1], recording.values[now + steps])


def test_noisy_states_do_not_start_predictions() -> None:
    """At 0.1 s the error is that of one reading, not of a reading and a start that is as far off."""
    found = {error.kind: error for error in by(GROUND_TRUTH, noise=0.02).errors() if error.horizon == 0.1}
    assert found["m"].predicted < 1.15 * 0.02


def test_simple_predictors_are_exact_where_they_should_be() -> None:
    times = 0.01 * np.arange(301)
    rows = np.stack([1.0 + 2.0 * times, np.full(301, 3.0), 0.5 * times**2], axis=1)
    line = Trajectory(times, np.zeros((300, 0)), rows, ("a", "b", "c"), ("m", "rad", "s"))
    nothing = Predictor(lambda recording, now, steps: np.full((len(now), steps + 1, 3), np.nan), stride=20)
    found = sysid.predict(nothing, [line])
    assert found.predictions is not None and all(error.failed == error.windows for error in found.errors)
    seen = {each.horizon: each for each in found.predictions.ends}
    np.testing.assert_allclose(seen[0.5].velocity[:, 0] - seen[0.5].measured[:, -1, 0], 0.0, atol=1e-9)
    np.testing.assert_allclose(seen[0.5].measured[:, -1, 0] - seen[0.5].still[:, 0], 2.0 * 0.5)
    assert not found.holds and "diverge" in found.reasons[0]


def test_turns_are_compared_as_angles() -> None:
    """A quaternion and its negative are one attitude; a turn by 0.2 rad is an error of 0.2 rad about one of three axes."""
    turn = np.array([np.cos(0.1), np.sin(0.1), 0.0, 0.0])
    rows = np.tile([1.0, 0.0, 0.0, 0.0], (200, 1))
    poses = Trajectory(0.01 * np.arange(200), np.zeros((199, 0)), rows, ("qw", "qx", "qy", "qz"), ("-",) * 4)
    turned = Predictor(lambda recording, now, steps: np.tile(-turn, (len(now), steps + 1, 1)))
    errors = sysid.predict(turned, [poses]).errors
    assert {error.kind for error in errors} == {"rad"} and errors[-1].horizon == WHOLE
    np.testing.assert_allclose([error.predicted for error in errors], 0.2 / np.sqrt(3), rtol=1e-9)


def test_coverage_counts_predictions_within() -> None:
    found = by(SpringParameters(stiffness=19.0))
    ends = next(each for each in found.ends if each.horizon == 0.5)
    sizes = np.abs(np.median(ends.predicted - ends.measured, axis=1)[:, 0])
    for share in (0.25, 0.75):
        (coverage,) = found.coverage([Band("m", 0.5, float(np.quantile(sizes, share)), 20, 0)])
        assert coverage.within == pytest.approx(share, abs=1.0 / len(sizes))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a fit of the block to two recordings."""
    folder = tmp_path_factory.mktemp("fitted")
    sysid.identify("block", sysid.record("block", count=2, seed=1), diagnose="quick", out=folder)
    return folder


def test_the_command_and_the_function_agree_and_files_can_be_read(fitted: Path, tmp_path: Path) -> None:
    new = sysid.record("block", seed=2)
    new.save(tmp_path / "new.h5")
    script = load_script("scripts/predict.py")
    assert run_script(script, fitted / "fit.toml", tmp_path / "new.h5", "--out", tmp_path / "out") == 0
    found, again = sysid.predict(fitted, new), Prediction.load(tmp_path / "out")
    assert found.holds and again.errors == found.errors and again.coverage == found.coverage
    assert again.recordings == ("new.h5",) and again.reasons == ()
    page = (tmp_path / "out" / "prediction.html").read_text()
    assert "The fit holds" in page and "new.h5" in page and page.count("data:image/svg") == 3
    assert again.report(tmp_path / "again.html").read_text().count("data:image/svg") == 1
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(FileFormatError, match="damaged"):
        Prediction.load(tmp_path / "bad.json")


def test_what_does_not_hold_says_why(fitted: Path, tmp_path: Path) -> None:
    slippery = sysid.record("block", seed=2, parameters=type(sysid.Identification.load(fitted).parameters)(friction=0.9))
    found = sysid.predict(fitted / "fit.toml", slippery)
    assert not found.holds and "standing still" in found.reasons[-1]
    with pytest.raises(OptionError, match=r"of a robot of system"):
        sysid.predict(fitted, sysid.record("particles", steps=40, seed=1))
    with pytest.raises(OptionError, match="`data` is empty"):
        sysid.predict(fitted, TrajectorySet(()))
    alone = tmp_path / "fit.toml"  # without fit.json there are no intervals
    alone.write_bytes((fitted / "fit.toml").read_bytes())
    assert sysid.predict(alone, sysid.record("block", seed=2)).coverage == ()
