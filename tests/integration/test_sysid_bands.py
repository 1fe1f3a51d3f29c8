"""Bands of predictions hold what they say on new recordings, also where the model is wrong or commands act late. Stated
intervals are right: over 40 noise seeds they cover the ground truth as often as they claim, and are no wider than needed.
For z = (estimate - ground truth) / std in fit coordinates, sum z^2 over 40 seeds is chi^2 with 40 degrees of freedom. Gates
are the quantiles 1e-4 and 1 - 1e-4 of the binomial and chi^2 laws, fixed before any fit was run; too wide fails as well as
too narrow. Predictions of new recordings by a fit: right errors, simple predictors, coverage, files, exit codes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import load_script, run_script
from numpy.typing import NDArray
from scipy import stats
from sysid_systems import Spring, SpringParameters, record

import sysid
from softgym_envs.core.errors import DataError, FileFormatError, OptionError
from softgym_envs.core.procedure import Procedure, Stage, StageData, StageSimulator
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet
from sysid import FitProblem, Prediction, Predictor, multiple_shooting
from sysid.diagnostics.initial_state import rows_unknown
from sysid.diagnostics.prediction_intervals import COVERAGE, Band, bands, scores
from sysid.diagnostics.predictions import WHOLE, PredictionError, compared, of_fit
from sysid.diagnostics.validation import open_loop, trace
from sysid.fitting.shooting import ShootingOptions, single_shooting
from sysid.problem.recording_parameters import Commands, RecordingParameters, delayed
from sysid.procedure.stage import banded, fit_stage

WRONG = SpringParameters(stiffness=26.0, damping=2.5)
"""Of a model that predicts as badly as standing still for a while; the ground truth is `SpringParameters()`."""


def of_positions(data: TrajectorySet, **more: object) -> FitProblem:
    """Positions alone are measured, so that the start of every window is estimated."""
    return FitProblem(Spring(), data, ("stiffness",), start=WRONG, measured=("mass.x",), **more)


@pytest.mark.parametrize("measured", ["states", "positions"])
def test_nine_of_ten_predictions_of_new_recordings_are_inside(measured: str) -> None:
    inside: dict[float, list[bool]] = {}
    for seed in range(12 if measured == "states" else 3):
        data = record(Spring(), steps=400, seed=seed, noise=0.002)
        new = record(Spring(), steps=400, seed=1000 + seed, noise=0.002)[0]
        problem = FitProblem(Spring(), data, ("stiffness",), start=WRONG) if measured == "states" else of_positions(data)
        found = {band.horizon: band for band in bands(problem, WRONG) if band.kind == "m"}
        for horizon, errors in scores(problem, WRONG, new).items():
            inside.setdefault(horizon, []).extend(errors[:, 0] <= found[horizon].size)
    # Windows overlap by half: some 90 (of positions 20) independent ones at 1 s; a share of 0.9 varies by 0.03 (0.07).
    limit = 0.09 if measured == "states" else 0.2
    assert all(abs(np.mean(held) - COVERAGE) < limit for held in inside.values()), {
        h: np.mean(held) for h, held in inside.items()
    }


def test_what_was_not_measured_does_not_count() -> None:
    data = record(Spring(), steps=400, seed=1)
    lost = data[0].values.copy()
    lost[370:, 0] = np.nan
    gone = Trajectory(**{**vars(data[0]), "values": lost})
    errors = scores(of_positions(TrajectorySet((gone,))), WRONG, gone)[0.5]
    assert np.isnan(errors[-1]).all() and np.isfinite(errors[0]).all()
    assert all(band.windows < len(errors) for band in bands(of_positions(TrajectorySet((gone,))), WRONG) if band.horizon == 0.5)


@dataclass(frozen=True)
class Leaning(Spring):
    """A spring on a slope that no parameter tells."""

    slope: float = 0.0

    def _maps(self, parameter_values: NDArray[np.float64], substeps: int) -> NDArray[np.float64]:
        leaning = parameter_values.copy()
        leaning[:, 4] += self.slope
        return super()._maps(leaning, substeps)


def test_where_another_simulator_explains_the_data_bands_are_of_its_predictions() -> None:
    """They were of the one that explains nothing, with the other one's parameters."""
    noise = 0.002
    data, simulator = record(Leaning(slope=5.0), steps=400, noise=noise), Leaning()
    stage = Stage(
        "all",
        "",
        ("stiffness",),
        "multiple_shooting",
        simulator=StageSimulator(fallback=lambda robot: replace(robot, slope=5.0)),
        data=StageData(free_initial=True),
    )
    problem = FitProblem(simulator, data, ("stiffness",), start=SpringParameters(stiffness=26.0), free_initial=True)
    found = fit_stage(Procedure((stage,)), stage, problem, folder=None, resume=False, progress=None)
    assert found.explained and "slope 0 -> 5" in found.of("other_simulator")[0].facts["changed"]
    sizes = [band.size for band in found.bands if band.kind == "m"]
    assert len(sizes) == 2 and max(sizes) < 4 * noise, sizes


LOOSE = SpringParameters(stiffness=0.1, damping=0.3, offset=0.0, gain=20.0)
"""Nothing pulls it back: an error of its velocity is one of its place that grows."""
LATE = 6
"""Rows of 20 ms."""


def driven(seeds: range, late: int, noise: float, columns: tuple[str, ...]) -> TrajectorySet:
    """Eight seconds each, the same motion and noise whenever its commands were given: so many rows earlier."""
    found = []
    for seed in seeds:
        known = record(Spring(), LOOSE, steps=400 + LATE, seed=seed)[0]
        shown, acting = known.window(0.0, 400 * known.period), known.controls
        given = replace(shown, controls=acting[late : 400 + late], before=acting[:late])
        found.append(given.with_noise(np.random.default_rng([seed, 1]), noise).select(columns))
    return TrajectorySet(tuple(found))


def late_problem(data: TrajectorySet | DataSplit, late: int, noise: float, columns: tuple[str, ...]) -> FitProblem:
    """At the true parameters; noise is known, or there is none."""
    known = dict.fromkeys(columns, noise) if noise else None
    return FitProblem(
        Spring(),
        data,
        ("gain",),
        start=LOOSE,
        measured=columns,
        noise=known,
        view=RecordingParameters(latency=late * Spring().dt),
    )


@pytest.mark.parametrize("columns", [("mass.x", "mass.vx"), ("mass.x",)])
def test_commands_before_a_window_act_within_it_where_they_are_late(columns: tuple[str, ...]) -> None:
    """Starts are estimated from rows in which they act: bands are those of commands that act at once."""
    sizes = []
    for late in (0, LATE):
        data = driven(range(4), late, 1e-3, columns)
        found = bands(late_problem(data, late, 1e-3, columns), LOOSE)
        sizes.append([band.size for band in found])
    np.testing.assert_allclose(sizes[1], sizes[0], rtol=1e-6)


def test_bands_of_late_commands_hold_nine_of_ten_predictions_and_do_not_shrink_with_the_horizon() -> None:
    """One prediction of every new recording counts, so that they are independent; limits are quantiles of 1e-4."""
    columns = ("mass.x",)
    problem = late_problem(driven(range(20), LATE, 1e-3, columns), LATE, 1e-3, columns)
    near, far = (band.size for band in bands(problem, LOOSE))
    assert 1e-3 < near < far
    new = [scores(problem, LOOSE, run.window(2.0, 4.0)) for run in driven(range(100, 180), LATE, 1e-3, columns)]
    for horizon, size in ((0.5, near), (1.0, far)):
        held = sum(bool(errors[horizon][0, 0] <= size) for errors in new)
        assert stats.binom.ppf(1e-4, len(new), COVERAGE) <= held <= stats.binom.ppf(1 - 1e-4, len(new), COVERAGE)


def test_what_is_kept_back_begins_under_the_commands_before_it() -> None:
    """Parameters are the true ones and states exact: errors of predictions are none, where a part of a recording begins,
    too."""
    columns = ("mass.x", "mass.vx")
    runs = driven(range(2), LATE, 0.0, columns)
    train, test = (TrajectorySet(tuple(t.window(*ends) for t in runs)) for ends in ((0.0, 4.0), (4.0, 8.0)))
    errors = open_loop(late_problem(DataSplit(train, TrajectorySet(()), test), LATE, 0.0, columns), LOOSE)
    assert {e.part for e in errors} == {"train", "test"} and max(e.fitted for e in errors) < 1e-9


def whole(runs: TrajectorySet) -> TrajectorySet:
    """Recordings as they are made: nobody knows what was commanded before them."""
    return TrajectorySet(tuple(replace(run, before=np.zeros((0, 1))) for run in runs))


@pytest.mark.parametrize("columns", [("mass.x", "mass.vx"), ("mass.x",)])
def test_predictions_begin_where_it_is_known_what_acts(columns: tuple[str, ...]) -> None:
    """Parameters are the true ones: what is known later is no error of theirs, in bands, in horizons and in the trace."""
    runs = driven(range(3), LATE, 0.0, columns)
    problem = late_problem(whole(runs), LATE, 0.0, columns)
    begin = LATE * Spring().dt
    cut = late_problem(TrajectorySet(tuple(run.window(begin, 8.0) for run in runs)), LATE, 0.0, columns)
    for mine, known in zip(problem.split.train, cut.split.train, strict=True):
        assert (rows_unknown(problem, mine), rows_unknown(cut, known)) == (LATE, 0)
        for horizon, errors in scores(problem, LOOSE, mine).items():
            np.testing.assert_array_equal(errors, scores(cut, LOOSE, known)[horizon])
            assert len(errors) and errors.max() < 1e-6
    assert max(e.fitted for e in open_loop(problem, LOOSE)) < 1e-6
    shown = trace(problem, LOOSE)
    assert shown.times[0] == pytest.approx(begin) and np.abs(shown.fitted - shown.measured).max() < 1e-6


@pytest.mark.parametrize(("late", "there", "unknown"), [(0.0, 0, 0), (5.3, 0, 6), (6.0, 2, 4), (6.0, 9, 0), (-2.0, 0, 0)])
def test_rows_are_unknown_up_to_the_latency(late: float, there: int, unknown: int) -> None:
    """Bit by bit: what acts from there on does not hang on what nobody knows."""
    (run,) = driven(range(1), LATE, 0.0, ("mass.x", "mass.vx"))
    problem = late_problem(TrajectorySet((run,)), 0, 0.0, run.names).replace(
        view=RecordingParameters(latency=late * Spring().dt)
    )
    given = replace(run, before=np.zeros((there, 1)))
    assert rows_unknown(problem, given) == unknown
    rows = np.arange(run.num_steps)[None]
    acting = [
        delayed(Commands(run.controls, np.concatenate([np.full((20, 1), earlier), given.before])), rows, np.array([late]))[0]
        for earlier in (-1.0, 1.0)
    ]
    np.testing.assert_array_equal(np.flatnonzero(acting[0] != acting[1]), np.arange(unknown))


@dataclass(frozen=True, eq=False)
class Walled(Spring):
    """Ends where the mass meets a wall."""

    wall: float = np.inf

    def _advance(self, state: Any, control: Any, maps: Any) -> Any:
        new, failed = super()._advance(state, control, maps)
        return new, failed | (new[:, 0] > self.wall)


def test_what_fails_beyond_a_recordings_end_is_no_error() -> None:
    """A wall just behind where the recording ends; predictions 0.5 s ahead are judged by 0.5 s."""
    falling = SpringParameters(stiffness=0.1, damping=0.01, offset=5.0)
    data = record(Spring(), falling, steps=65)
    walled = Walled(wall=1.001 * float(data[0].values[:, 0].max()))
    errors = scores(FitProblem(walled, data, ("stiffness",), start=falling), falling, data[0])
    assert len(errors[0.5]) == 2 and max(errors[0.5].max(), errors[1.0].max()) < 1e-9


def test_short_recordings_have_no_bands_and_a_wrong_model_says_of_what_its_intervals_are() -> None:
    short = record(Spring(), steps=60, noise=0.002)
    assert bands(FitProblem(Spring(), short, ("stiffness",), start=WRONG), WRONG) == ()
    long = record(Spring(), steps=300, noise=0.0005)
    problem = of_positions(long, noise={"mass.x": 0.0005})
    wrong, right = [banded(p, multiple_shooting(p)) for p in (problem, problem.replace(start=SpringParameters()))]
    (interval,) = wrong.of("prediction_interval")
    assert wrong.of("intervals_of_model") and interval.sentence().endswith("of new ones fewer are: hold one out to know")
    held = problem.replace(data=DataSplit(long, TrajectorySet(()), record(Spring(), steps=400, seed=1, noise=0.0005)))
    kept = banded(held, multiple_shooting(held))
    assert kept.of("intervals_of_model")[0].facts["trust"] and all(band.fitted == 0 for band in kept.bands)
    (interval,) = right.of("prediction_interval")
    assert not right.of("intervals_of_model") and interval.facts["sizes"][0][0] == 0.5


GROUND_TRUTH = SpringParameters(mass=3.0, stiffness=45.0, damping=1.8, gain=20.0)
START = GROUND_TRUTH.replace(stiffness=40.0, damping=3.0, gain=15.0)
FREE = ("stiffness", "damping", "gain")
SEEDS = 40
NOISE = {"mass.x": 0.02, "mass.vx": 0.1}


@pytest.mark.parametrize(
    "setting",
    [
        {"noise": NOISE, "free_initial": True},
        {"noise": None, "free_initial": True},
        {"noise": None, "measured": ("mass.x",)},
    ],
    ids=["known noise", "estimated noise per channel", "positions only"],
)
def test_intervals_cover_the_ground_truth_as_often_as_they_say(setting: dict[str, Any]) -> None:
    covered, z = np.zeros(len(FREE)), np.zeros((SEEDS, len(FREE)))
    for seed in range(SEEDS):
        data = record(Spring(dt=0.05), GROUND_TRUTH, steps=60, seed=1000 + seed, noise=NOISE)
        result = single_shooting(
            FitProblem(Spring(dt=0.05), data, free=FREE, start=START, **setting), ShootingOptions(jacobian="exact")
        )
        assert result.converged
        for j, e in enumerate(result.estimates):
            ground_truth = getattr(GROUND_TRUTH, e.name)
            covered[j] += e.interval[0] <= ground_truth <= e.interval[1]
            z[seed, j] = np.log(e.value / ground_truth) / (e.std / e.value)
    least = stats.binom.ppf(1e-4, SEEDS, 0.95)
    assert covered.min() >= least, covered
    low, high = stats.chi2.ppf([1e-4, 1 - 1e-4], SEEDS)
    assert np.all((low < np.sum(z**2, axis=0)) & (np.sum(z**2, axis=0) < high)), np.sum(z**2, axis=0)


PREDICTED = SpringParameters()


def by(parameters: SpringParameters, noise: float = 0.0, **more: object) -> sysid.diagnostics.predictions.Predictions:
    """Predictions of two recordings of a spring."""
    data = record(Spring(), steps=400, count=2, seed=3, noise=noise)
    problem = FitProblem(Spring(), data, ("stiffness",), start=parameters, **more)
    pairs = [of_fit(problem, parameters, each, len(data)) for each in data]
    return compared(pairs, problem.column_names, problem.column_units)


def test_the_right_parameters_predict_exactly_and_wrong_ones_as_the_solution_of_the_wrong_spring() -> None:
    exact = by(PREDICTED)
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
    found = {error.kind: error for error in by(PREDICTED, noise=0.02).errors() if error.horizon == 0.1}
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
    assert [stage.name for stage in sysid.Identification.load(fitted).stages] == ["friction"]
    found, again = sysid.predict(fitted, new), Prediction.load(tmp_path / "out")
    assert found.holds and again.errors == found.errors and again.coverage == found.coverage
    assert again.recordings == ("new.h5",) and again.reasons == ()
    page = (tmp_path / "out" / "prediction.html").read_text()
    assert f"{found.headline[1:]}." in page and "new.h5" in page and page.count("data:image/svg") == 3
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
    found = sysid.predict(alone, sysid.record("block", seed=2))
    assert found.coverage == () and found.holds and not found.checked
    assert found.summary().startswith("nothing speaks against the fit, but no prediction interval was checked")
    with pytest.raises(DataError, match=r"no whole multiple of the fit's dt = .*: resample them, .* or fit again with a `dt`"):
        sysid.predict(fitted, [replace(slippery[0], times=slippery[0].times / 1.48)])
    pose = slippery[0]
    blind = replace(pose, values=pose.values[:, :2], names=pose.names[:2], units=pose.units[:2])
    with pytest.raises(DataError, match="the recordings lack theta, which the fit was made with"):
        sysid.predict(fitted, [blind])


@pytest.mark.parametrize(
    ("metres", "radians", "holds"),
    [
        ([(0.001, 0.01), (0.01, 0.1)], [(0.007, 0.01), (0.007, 0.01)], True),
        ([(0.02, 0.01), (0.2, 0.1)], [(0.007, 0.01), (0.007, 0.01)], False),  # angles are noise, of which a mean is 0.7
        ([(0.02, 0.01), (0.2, 0.1)], [(0.001, 0.01), (0.01, 0.1)], True),
        ([(0.011, 0.01), (0.011, 0.01)], [(0.007, 0.01), (0.007, 0.01)], True),  # at rest, and a little worse by chance
        ([(0.011, 0.01), (0.011, 0.01)], [(0.02, 0.01), (0.02, 0.01)], False),
    ],
)
def test_quantities_that_show_noise_only_do_not_speak_for_a_fit(metres: Any, radians: Any, holds: bool) -> None:
    errors = tuple(
        PredictionError(kind, horizon, predicted, still, still, 20, 0)
        for kind, sizes in (("m", metres), ("rad", radians))
        for horizon, (predicted, still) in zip((0.1, 0.5), sizes, strict=True)
    )
    assert Prediction(errors, (), "", ("new.csv",), {}).holds == holds
