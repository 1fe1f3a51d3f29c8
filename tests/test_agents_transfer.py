"""The transfer protocol: statistics against scipy and known coverage, random forces, networks, whole studies."""

import json
import pickle
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from agents_models import Linear, OneConstant, Pendulum
from helpers import load_script
from scipy import stats
from transfer_case import TRUE_GAIN, PendulumCase

from agents.models.forcing import ClockCost, ForcedSimulator
from agents.models.network import NetworkOptions, Transitions, train_networks
from agents.models.residual import CorrectedSimulator, learn_correction
from agents.planning.ilqg import ILQGOptions, plan_ilqg
from agents.study import statistics
from agents.study.case import RoomCase
from agents.study.conditions import CONDITIONS, check_study, possible
from agents.study.definition import Job, Study, Threshold
from agents.study.document import read_study
from agents.study.fits import _fit, draw, identify
from agents.study.jobs import record_path, register, run_jobs
from agents.study.models import SHORT_HORIZON, build_model
from agents.study.planned import PlanWorker
from agents.study.report import headline, markdown, write_report
from agents.study.statistics import Interval
from agents.study.summary import summarise
from softgym_envs.core.errors import DataError, OptionError, ShapeError
from softgym_envs.core.files import read_json, write_json
from softgym_envs.core.layout import Field, StateLayout
from softgym_envs.core.simulator import finite_differences
from softgym_envs.core.task import load
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet
from softgym_envs.rooms import room, rooms
from softgym_envs.vine.obstacles import to_local
from sysid import fit_residual, run_recipe

SEEDS = np.random.default_rng(3)
STUDIES = Path(__file__).parents[1] / "studies"


# --- statistics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 7), (3, 4), (5, 10)])
def test_interquartile_mean_is_scipys_trimmed_mean(shape):
    scores = SEEDS.normal(size=shape)
    assert statistics.interquartile_mean(scores) == pytest.approx(stats.trim_mean(scores.ravel(), 0.25), rel=1e-12)
    np.testing.assert_allclose(
        statistics.interquartile_mean(np.stack([scores, 2 * scores])),
        [stats.trim_mean(s.ravel(), 0.25) for s in (scores, 2 * scores)],
    )


def test_improvement_is_mann_whitneys_u():
    x, y = SEEDS.integers(0, 6, (2, 8)).astype(float), SEEDS.integers(0, 6, (2, 9)).astype(float)
    expected = np.mean([stats.mannwhitneyu(a, b).statistic / (8 * 9) for a, b in zip(x, y, strict=True)])
    assert statistics.probability_of_improvement(x, y) == pytest.approx(expected, rel=1e-12)
    with pytest.raises(ShapeError, match="groups"):
        statistics.probability_of_improvement(x, y[:1])


def test_profile_and_gap_in_closed_form():
    scores = np.array([[0.0, 0.5, 1.0, 2.0]])
    assert statistics.performance_profile(scores, np.array([-1.0, 0.5, 2.0])).tolist() == [1.0, 0.5, 0.0]
    assert statistics.optimality_gap(scores) == pytest.approx((1 + 0.5) / 4)


def test_stratified_intervals_cover():
    """95 % intervals of a mean of 30 normal scores: 88-99 % of 200 trials (three binomial errors; percentiles are narrow)."""
    rng = np.random.default_rng(0)
    mean = lambda s: s.mean(axis=(-1, -2))  # noqa: E731
    hits = 0
    for _ in range(200):
        found = statistics.bootstrap(rng.normal(size=(1, 30)), rng, statistic=mean, groups=False, samples=300)
        hits += found.low <= 0 <= found.high
    assert 176 <= hits <= 198


def test_hierarchical_intervals_see_the_data_sets():
    """Scores that differ by data set only: seeds add no information, so the interval is that of G numbers, not of G R."""
    rng = np.random.default_rng(0)
    groups = rng.normal(size=(10, 1))
    scores = np.repeat(groups, 50, axis=1)
    mean = lambda s: s.mean(axis=(-1, -2))  # noqa: E731
    wide = statistics.bootstrap(scores, rng, statistic=mean, groups=True)
    narrow = statistics.bootstrap(scores, rng, statistic=mean, groups=False)
    expected = 2 * 1.96 * groups.std() / np.sqrt(10)
    assert wide.high - wide.low == pytest.approx(expected, rel=0.15)
    assert narrow.high - narrow.low == 0.0


def test_pairing_cancels_what_is_common():
    rng = np.random.default_rng(0)
    common = 100 * rng.normal(size=(5, 5))
    found = statistics.bootstrap_difference(common + 1.0, common, rng)
    assert found.value == pytest.approx(1.0) and found.high - found.low < 1e-9
    with pytest.raises(ShapeError, match="one shape"):
        statistics.bootstrap_difference(common, common[:2], rng)
    with pytest.raises(ShapeError):
        statistics.bootstrap(np.array([[np.nan, 1.0]]), rng)


# --- random forces ------------------------------------------------------------------------------------------------------


def test_realisation_zero_is_the_simulator_itself_and_others_add_kicks():
    plain = Linear()
    forced = ForcedSimulator(plain, np.array([0.0, 0.3, 0.0, 0.1]), 3, 6, seed=1)
    rng = np.random.default_rng(0)
    controls = np.repeat(rng.normal(size=(1, 6, 2)), 4, axis=0)
    states, status = forced.rollout(forced.initial_state(4), controls, forced.rows(OneConstant(), ensemble=True))
    expected, _ = plain.rollout(plain.initial_state(1), controls[:1])
    np.testing.assert_allclose(states[:1, :, :-1], expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(states[:, :, -1], np.tile(np.arange(7.0), (4, 1)))
    x = np.zeros(4)  # by superposition: every kick is carried on by A
    for t in range(6):
        x = plain.A @ (x + forced.kicks[2, t]) + plain.B @ controls[0, t]
    np.testing.assert_allclose(states[2, -1, :-1], x, rtol=1e-12)
    assert (status == 0).all()
    drawn = ForcedSimulator(plain, np.full(4, 0.3), 500, 6).kicks[1:]
    assert drawn.std() == pytest.approx(0.3, rel=0.03)  # 12000 numbers: 0.65 % is one standard error


def test_forced_derivatives_equal_differences():
    forced = ForcedSimulator(Pendulum(), np.array([0.0, 0.5]), 2, 4, seed=1)
    rng = np.random.default_rng(0)
    state = forced.timed(Pendulum().retract(Pendulum().initial_state(3), rng.normal(size=(3, 2))))
    state[:, -1] = [0, 1, 3]
    parameters = forced.rows(OneConstant(), ensemble=True)
    exact = forced.linearize(state, rng.normal(size=(3, 1)), parameters)
    assert exact.A.shape == (3, 3, 3) and exact.B.shape == (3, 3, 1)
    rng = np.random.default_rng(0)
    rng.normal(size=(3, 2))
    differences = finite_differences(forced, state, rng.normal(size=(3, 1)), parameters)
    np.testing.assert_allclose(exact.A, differences.A, atol=1e-6)
    np.testing.assert_allclose(exact.B, differences.B, atol=1e-6)


def test_a_plan_under_forces_is_a_plan_for_the_simulator():
    case, plain = PendulumCase(), Pendulum()
    cost = case.cost(plain)
    forced = ForcedSimulator(plain, np.array([0.0, 0.3]), 8, 15, seed=1)
    plan = plan_ilqg(
        forced,
        ClockCost(cost),
        forced.initial_state(1)[0],
        controls=np.zeros((15, 1)),
        parameters=forced.rows(OneConstant(gain=3.0), ensemble=True),
        options=ILQGOptions(max_iterations=30),
    )
    kept = forced.without_clock(plan)
    assert kept.states.shape == (16, 3) and kept.gains.shape == (15, 1, 2)
    assert plan.log[-1].cost < plan.log[0].cost
    with pytest.raises(ShapeError, match="scale"):
        ForcedSimulator(plain, np.zeros(3), 1, 1)


# --- networks -----------------------------------------------------------------------------------------------------------


def test_networks_learn_a_linear_system_and_keep_the_protocol():
    plain = Linear()
    rng = np.random.default_rng(0)
    controls = rng.normal(size=(20, 30, 2))
    states, _ = plain.rollout(0.3 * rng.normal(size=(20, 4)), controls)
    data = TrajectorySet(tuple(Trajectory.from_rollout(plain, s, c) for s, c in zip(states, controls, strict=True)))
    options = NetworkOptions(members=2, width=32, layers=1, epochs=60, batch=64)
    network = train_networks(plain, data, substeps=1, rng=np.random.default_rng(1), options=options)
    assert network.networks.error < 0.2  # of the steps' own spread; 1 has learned nothing
    again = train_networks(plain, data, substeps=1, rng=np.random.default_rng(1), options=options)
    x, u = 0.3 * rng.normal(size=(5, 4)), rng.normal(size=(5, 2))
    mean, status = network.step(x, u)
    np.testing.assert_array_equal(mean, again.step(x, u)[0])
    members = [network.step(x, u, type(network.default_parameters)(member=float(i)))[0] for i in range(2)]
    np.testing.assert_allclose(mean, np.mean(members, axis=0), atol=1e-6)
    assert (status == 0).all() and not np.allclose(members[0], members[1], atol=1e-6)
    exact = plain.linearize(x, u)
    spread = np.abs(exact.B).max()
    assert np.abs(network.linearize(x, u).B - exact.B).max() < 0.3 * spread
    far, status = network.step(np.full((1, 4), 1e12), u[:1])
    assert status[0] == 1 and (far == 1e12).all()


def test_networks_see_the_mean_control_of_a_period():
    plain = Linear()
    rng = np.random.default_rng(0)
    controls = rng.normal(size=(1, 9, 2))
    states, _ = plain.rollout(np.ones((1, 4)), controls)
    data = Transitions(plain, TrajectorySet((Trajectory.from_rollout(plain, states[0], controls[0]),)), 3)
    assert len(data.states) == 7
    np.testing.assert_allclose(data.controls[2], controls[0, 2:5].mean(axis=0))
    np.testing.assert_allclose(data.steps[2], states[0, 5] - states[0, 2])
    with pytest.raises(DataError, match="period"):
        Transitions(plain, TrajectorySet((Trajectory.from_rollout(plain, states[0], controls[0]),)), 20)


# --- corrections --------------------------------------------------------------------------------------------------------

SMALL = NetworkOptions(members=2, width=32, layers=1, epochs=60, batch=64, learning_rate=1e-2)


def recorded(plain, missed, rng, *, count=20, steps=30):
    """Recordings of x' = plain(x, u) + missed(x)."""
    found = []
    for controls in rng.normal(size=(count, steps, 2)):
        states = [0.3 * rng.normal(size=4)]
        for u in controls:
            after, _ = plain.step(states[-1][None], u[None])
            states.append(after[0] + missed(states[-1]))
        found.append(Trajectory.from_rollout(plain, np.array(states), controls))
    return TrajectorySet(tuple(found))


def learn(plain, data, parameters=None, substeps=1):
    rng = np.random.default_rng(1)
    return learn_correction(plain, data, parameters or OneConstant(), substeps=substeps, rng=rng, options=SMALL)


def test_a_constant_that_the_engine_lacks_is_found_exactly_and_touches_nothing_else():
    """The limits of the correction coincide where the error is always the same: nothing is left to the networks."""
    plain, rng = Linear(), np.random.default_rng(0)
    data = recorded(plain, lambda x: np.array([0.0, 0.3, 0.0, 0.0]), rng)
    fit = learn(plain, data)
    assert fit.used and fit.after < 1e-24 * fit.before
    corrected = fit.on(plain)
    x, u = rng.normal(size=(6, 4)), rng.normal(size=(6, 2))
    np.testing.assert_allclose(corrected.step(x, u)[0] - plain.step(x, u)[0], np.tile([0.0, 0.3, 0.0, 0.0], (6, 1)), atol=1e-14)
    rows = OneConstant(gain=np.full(6, 2.0))  # constants go on to the engine
    expected = plain.step(x, u, rows)[0] + [0.0, 0.3, 0.0, 0.0]
    np.testing.assert_allclose(corrected.step(x, u, rows)[0], expected, atol=1e-14)
    np.testing.assert_allclose(corrected.linearize(x, u).B, plain.linearize(x, u).B, atol=1e-9)


def test_a_term_that_the_engine_lacks_is_learned():
    """A spring, without noise: one layer of smooth units can express a line, so what is left is training; a fifth at most."""
    plain, rng = Linear(), np.random.default_rng(0)
    fit = learn(plain, recorded(plain, lambda x: np.array([0.0, 0.0, 0.0, -0.2 * x[1]]), rng))
    assert fit.used and np.sqrt(fit.after / fit.before) < 0.2
    assert "leaves" in fit.summary()
    corrected = fit.on(plain)
    assert isinstance(corrected, CorrectedSimulator)
    far, still = np.full((1, 4), 50.0), np.zeros((1, 2))  # nowhere larger than it ever had to be
    added = (corrected.step(far, still)[0] - plain.step(far, still)[0])[0]
    np.testing.assert_allclose(added, np.clip(added, fit.correction.lowest, fit.correction.highest), atol=1e-12)
    assert np.abs(added).max() < 2.0


def test_noise_is_not_learned():
    """E[noise | state, control] = 0: no correction predicts better than none."""
    plain, rng = Linear(), np.random.default_rng(0)
    fit = learn(plain, recorded(plain, lambda x: 0.1 * rng.normal(size=4), rng))
    assert not fit.used and fit.on(plain) is plain and "no correction" in fit.summary()
    exact = learn(plain, recorded(plain, lambda x: np.zeros(4), rng))
    assert exact.on(plain) is plain


def test_a_correction_goes_with_the_robot_among_obstacles():
    """What the recorded robot has not (here two entries that stand still) is left as the engine has it."""

    class Furnished(Linear):
        state_layout, rest = StateLayout(Field("", 6, ("x", "m"))), np.zeros(6)

        def advance(self, x, u, gain):
            return np.concatenate([super().advance(x[:, :4], u, gain), x[:, 4:]], axis=1)

    plain, rng = Linear(), np.random.default_rng(0)
    fit = learn(plain, recorded(plain, lambda x: np.array([0.0, 0.0, 0.0, -0.2 * x[1]]), rng))
    x, u = rng.normal(size=(3, 6)), rng.normal(size=(3, 2))
    after, _ = fit.on(Furnished()).step(x, u)
    np.testing.assert_array_equal(after[:, 4:], x[:, 4:])
    np.testing.assert_allclose(after[:, :4], fit.on(plain).step(np.ascontiguousarray(x[:, :4]), u)[0], atol=1e-12)


def test_a_correction_belongs_to_its_control_period_and_its_robot():
    plain, rng = Linear(), np.random.default_rng(0)
    fit = learn(plain, recorded(plain, lambda x: np.array([0.0, 0.1, 0.0, 0.0]), rng), substeps=3)
    corrected = fit.on(plain)
    with pytest.raises(OptionError, match="multiples of 3"):
        corrected.step(np.zeros((1, 4)), np.zeros((1, 2)))
    with pytest.raises(OptionError, match="other states"):
        fit.on(Pendulum())
    # three steps at once or one by one are the same periods
    x, u = rng.normal(size=(2, 4)), rng.normal(size=(2, 2))
    twice, _ = corrected.rollout(x, np.repeat(u[:, None], 2, axis=1), substeps=3)
    np.testing.assert_array_equal(corrected.step(x, u, substeps=6)[0], twice[:, -1])
    with pytest.raises(DataError, match="too few"):
        learn(plain, recorded(plain, lambda x: np.zeros(4), rng, count=1, steps=1))


# --- studies ------------------------------------------------------------------------------------------------------------

STUDY = Study(
    "pendulum",
    "plan",
    ("zero", "guess", "nominal", "wide", "forces", "identified", "posterior", "true_constants", "truth_budget", "truth"),
    (60, 30),
    curve=("identified",),
    datasets=2,
    seeds=2,
    starts=3,
    horizon=15,
    substeps=1,
    restarts=2,
    iterations=15,
    trust=1.0,
    difference_step=None,
    ensemble=3,
    thresholds=(
        Threshold("identified", "share", 0.95, reason="the same system"),
        Threshold("nominal", "share", 2.0, reason="cannot hold"),
        Threshold("identified", "improvement", 0.9, "nominal"),
    ),
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("study")
    register(STUDY, "pendulum", out, provenance={"commit": "none"})
    failures = run_jobs(STUDY.jobs(CONDITIONS), PlanWorker(PendulumCase(), STUDY, out), out, progress=lambda line: None)
    assert failures == ()
    return out


def test_the_identified_engine_is_as_good_as_the_truth_and_the_nominal_one_is_not(finished):
    summary = summarise(STUDY, finished)
    conditions = {(a.condition, a.budget): a for a in summary.conditions}
    assert summary.complete
    truth, identified, nominal = conditions["truth", 0], conditions["identified", 60], conditions["nominal", 0]
    assert identified.cost.value == pytest.approx(truth.cost.value, rel=1e-3)  # gain is found to rounding
    assert conditions["true_constants", 0].cost.value == pytest.approx(truth.cost.value, rel=1e-9)
    assert nominal.cost.value > 1.05 * truth.cost.value
    assert identified.share.value == pytest.approx(1.0, abs=1e-2) and conditions["zero", 0].share.value == pytest.approx(0.0)
    assert identified.ratio.value == pytest.approx(1.0, abs=1e-2) and nominal.ratio.value == pytest.approx(0.0)


def test_a_broken_promise_is_printed_as_such(finished):
    summary = write_report(STUDY, finished)
    assert [v.passed for v in summary.verdicts] == [True, False, True]
    assert "FAILED" in headline(summary) and "nominal" in headline(summary)
    for name in ("table.md", "report.html", "summary.json"):
        assert "FAILED" in (finished / name).read_text()
    page = (finished / "report.html").read_text()
    assert "http" not in page.replace("http://www.w3.org", "") and page.count("data:image/svg") == 4
    assert len(json.loads((finished / "summary.json").read_text())["runs"]) == len(STUDY.jobs(CONDITIONS))


def test_an_oracle_that_is_beaten_is_told(finished):
    summary = summarise(STUDY, finished)
    assert "ORACLE" not in headline(summary)
    share = Interval(1.5, 1.4, 1.6)
    better = tuple(replace(a, share=share) if a.condition == "identified" else a for a in summary.conditions)
    told = headline(replace(summary, conditions=better))
    assert told.startswith("THE ORACLE IS NONE") and "beaten by identified engine" in told


def test_rows_of_slow_sensors_count_as_physics_steps_of_the_truth():
    whole = PendulumCase().record(np.random.default_rng(0), 60)
    thin = [
        TrajectorySet(tuple(replace(t, times=t.times[::2], values=t.values[::2], controls=t.controls[::2]) for t in part))
        for part in whole
    ]
    assert _fit(PendulumCase(), STUDY, DataSplit(*thin)).truth_steps == {"train": 60, "validation": 20}


def test_every_step_of_the_truth_is_counted(finished):
    record = read_json(record_path(finished, Job("identified", 60, 1, 0)))
    assert record["truth_steps"] == {"train": 60, "validation": 20, "tuning": 0}
    assert read_json(record_path(finished, Job("nominal", 0, 0, 0)))["truth_steps"]["train"] == 0
    budget = read_json(record_path(finished, Job("truth_budget", 60, 0, 0)))["truth_steps"]["train"]
    assert 0 < budget <= 60
    # two guesses and their plans (line searches: whole rollouts of 15), and 2 x 3 candidates judged from 3 starts
    oracle = read_json(record_path(finished, Job("truth", 0, 0, 0)))
    assert oracle["truth_steps"]["train"] > 2 * 15 + 2 * 3 * 3 * 15 and oracle["model_steps"] == 0


def test_fits_are_shared_and_predict(finished):
    record = read_json(finished / "fits" / "b60_d0.json")
    gain = record["parameters"][0]
    assert gain == pytest.approx(TRUE_GAIN, rel=1e-9)
    samples = np.array(record["samples"])[:, 0]
    assert len(samples) == 64 and samples[0] == gain and 0 < np.ptp(samples) <= 2e-3
    errors = {name: dict(map(tuple, pairs)) for name, pairs in record["errors"].items()}
    assert errors["identified"][2.0] < 1e-6 < errors["nominal"][2.0]
    again = identify(PendulumCase(), STUDY, 60, 0, finished)
    assert again.parameters.gain == gain


def test_a_study_resumes_and_other_executors_give_the_same_numbers(finished, tmp_path):
    register(STUDY, "pendulum", tmp_path, provenance={})
    jobs = [job for job in STUDY.jobs(CONDITIONS) if job.condition in ("zero", "identified") and job.budget in (0, 60)]
    marker = {"cost": 1.5, "costs": [1.5] * 3, "failed": 0, "measures": {}, "truth_steps": {}, "model_cost": None}
    write_json(record_path(tmp_path, jobs[0]), marker)
    lines = []
    worker = PlanWorker(PendulumCase(), STUDY, tmp_path)
    assert run_jobs(jobs, worker, tmp_path, executor="processes", workers=2, progress=lines.append) == ()
    assert lines[0] == f"{len(jobs)} runs, 1 done before"
    assert read_json(record_path(tmp_path, jobs[0])) == marker
    for job in jobs[1:]:
        ours, theirs = read_json(record_path(tmp_path, job)), read_json(record_path(finished, job))
        assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}


def test_ray_gives_the_same_numbers(finished, tmp_path):
    pytest.importorskip("ray")
    job = Job("nominal", 0, 0, 0)
    assert run_jobs([job], PlanWorker(PendulumCase(), STUDY, tmp_path), tmp_path, executor="ray", progress=lambda s: None) == ()
    ours, theirs = read_json(record_path(tmp_path, job)), read_json(record_path(finished, job))
    assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}


def test_thresholds_cannot_be_changed_afterwards(tmp_path):
    register(STUDY, "pendulum", tmp_path, provenance={})
    register(STUDY, "pendulum", tmp_path, provenance={"commit": "later"})
    with pytest.raises(OptionError, match="thresholds"):
        register(replace(STUDY, thresholds=STUDY.thresholds[:1]), "pendulum", tmp_path, provenance={})
    with pytest.raises(OptionError, match="case"):
        register(STUDY, "another", tmp_path, provenance={})


def test_unusable_data_and_failing_runs_are_results(tmp_path):
    study = replace(
        STUDY, conditions=("zero", "nominal", "identified", "truth"), thresholds=(), curve=(), iterations=2, restarts=1
    )
    worker = PlanWorker(PendulumCase(unusable=True), study, tmp_path)
    jobs = [Job("identified", 60, 0, 0), Job("nominal", 0, 0, 0)]
    assert run_jobs(jobs, worker, tmp_path, progress=lambda line: None) == ()
    fit = read_json(tmp_path / "fits" / "b60_d0.json")
    assert fit["failed"] and "constant controls" in fit["note"]
    identified, nominal = (read_json(record_path(tmp_path, job)) for job in jobs)
    assert identified["costs"] == nominal["costs"]

    broken = run_jobs([Job("truth", 0, 0, 0)], _explode, tmp_path, progress=lambda line: None)
    assert broken[0].message == "ZeroDivisionError: by zero"
    one_each = replace(study, seeds=1, datasets=1, conditions=("zero", "nominal", "truth"))
    assert run_jobs([Job("zero", 0, 0, 0)], worker, tmp_path, progress=lambda line: None) == ()
    summary = summarise(one_each, tmp_path)
    assert all(condition.runs == condition.expected for condition in summary.conditions) and summary.missing == ("truth",)
    assert "not finished" in headline(summary) and "- no run of the truth, unlimited (oracle)" in markdown(summary)
    assert "1 of 1 FITS NOT TO BE USED" in headline(summary)
    assert "- FIT NOT TO BE USED" in markdown(summary) and "no fit: constant controls" in markdown(summary)


def _explode(job):
    raise ZeroDivisionError("by zero")


def test_bad_studies_are_refused():
    with pytest.raises(OptionError, match="not part of the study"):
        replace(STUDY, curve=("network",))
    with pytest.raises(OptionError, match="seeds"):
        replace(STUDY, seeds=0)
    with pytest.raises(OptionError, match="quantity"):
        Threshold("identified", "luck", 0.5)
    with pytest.raises(OptionError, match="'truth'"):
        check_study(replace(STUDY, conditions=STUDY.conditions[:-1]), PendulumCase())
    with pytest.raises(OptionError, match="executor"):
        run_jobs([], _explode, Path(), executor="slurm")
    with pytest.raises(DataError, match="no run"):
        summarise(STUDY, Path("nowhere"))


def replanned(conditions, out, case=None, **changes):
    """Records of one run per condition, replanned at every step."""
    study = replace(STUDY, kind="mpc", conditions=conditions, thresholds=(), curve=(), horizon=6, starts=2, **changes)
    worker = PlanWorker(case or PendulumCase(), study, out)
    assert run_jobs(study.jobs(CONDITIONS), worker, out, progress=lambda line: None) == ()
    return {job.condition: read_json(record_path(out, job)) for job in study.jobs(CONDITIONS)}


def test_sample_based_plans_in_every_world_cost_the_same_steps_and_know_one_row_of_constants(tmp_path):
    """Kind "gps": 2 iterations of 40 rollouts and the last controller, the guess, in model and truth alike."""
    conditions = ("nominal", "truth")
    study = replace(
        STUDY, kind="gps", conditions=conditions, thresholds=(), curve=(), horizon=6, starts=2, seeds=1, iterations=2
    )
    worker = PlanWorker(PendulumCase(), study, tmp_path)
    assert run_jobs(study.jobs(CONDITIONS), worker, tmp_path, progress=lambda line: None) == ()
    nominal, truth = (read_json(record_path(tmp_path, job)) for job in study.jobs(CONDITIONS))
    assert truth["truth_steps"]["train"] == nominal["model_steps"] == (2 * 40 + 2) * 6
    with pytest.raises(OptionError, match="many constants"):
        check_study(replace(study, conditions=("zero", "nominal", "wide", "truth")), PendulumCase())


def test_forces_of_no_strength_change_nothing_when_replanning(tmp_path):
    """Two equal rows: the mean of the costs is exactly the cost."""
    records = replanned(("nominal", "forces"), tmp_path, force=0.0, ensemble=2, seeds=1)
    assert records["forces"]["costs"] == records["nominal"]["costs"]
    assert records["forces"]["model_steps"] == 2 * records["nominal"]["model_steps"]
    strong = replanned(("nominal", "forces"), tmp_path / "strong", force=1.0, ensemble=2, seeds=1)
    assert strong["nominal"]["costs"] == records["nominal"]["costs"] != strong["forces"]["costs"]


def test_the_clock_of_forces_runs_with_the_truth(tmp_path):
    """A state of the truth at step t is planned from with the kicks of t on, and the kicks do not run out."""
    study = replace(STUDY, kind="mpc", thresholds=(), horizon=6)
    model = build_model(PendulumCase(), study, Job("forces", 0, 0, 0), CONDITIONS["forces"], tmp_path)
    state = Pendulum().initial_state(1)
    np.testing.assert_array_equal(model.states(state, 5), [[1.0, 0.0, 0.0, 5.0]])
    assert model.forced.horizon == 6 + SHORT_HORIZON
    second = model.parameters.row(1)
    after, _ = model.simulator.step(model.states(state, 5), np.zeros((1, 1)), second)
    kicked = Pendulum().retract(state, model.forced.kicks[1, 5][None])
    np.testing.assert_allclose(after[:, :-1], Pendulum().step(kicked, np.zeros((1, 1)), OneConstant(gain=0.5))[0], atol=1e-14)


def test_a_correction_of_an_exact_engine_is_refused_and_the_record_says_so(tmp_path):
    records = replanned(("identified", "residual"), tmp_path, seeds=1, datasets=1)
    assert records["residual"]["detail"]["residual"].startswith("no correction")
    assert records["residual"]["costs"] == records["identified"]["costs"]
    bad = replanned(("residual",), tmp_path / "bad", PendulumCase(unusable=True), seeds=1, datasets=1)
    assert bad["residual"]["detail"]["residual"] == "no correction: nothing to learn from"


def room_case(task, **changes):
    owner = room("vine" if task.startswith("Vine") else "tensegrity")
    return RoomCase(owner, task, run_recipe, fit_residual, **changes)


def test_a_black_box_learns_nothing_of_another_scene():
    assert possible(room_case("VineGrow-v0"), ("network", "residual")) == ("network", "residual")
    assert possible(room_case("VineNavigate-v0"), ("network", "residual")) == ("residual",)
    with pytest.raises(OptionError, match="'network'"):
        check_study(replace(STUDY, conditions=("zero", "network", *STUDY.conditions[2:])), room_case("VineNavigate-v0"))


def test_draw_keeps_the_center_first():
    rows = draw(OneConstant(gain=1.0), PendulumCase().wide(), 5, np.random.default_rng(0))
    assert rows.batch == 5 and rows.gain[0] == 1.0 and len(set(rows.gain)) == 5


# --- the script ---------------------------------------------------------------------------------------------------------


def test_the_smoke_study_ends_in_a_report(monkeypatch, tmp_path, capsys):
    script = load_script("scripts/transfer.py")
    conditions = ("zero", "nominal", "forces", "identified", "truth_budget", "truth")
    arguments = {"study": Path("smoke"), "workers": 1, "out": tmp_path}
    assert script.main(script.Args(**arguments, conditions=conditions)) == 0
    assert "exploration" in (tmp_path / "table.md").read_text()
    runs = json.loads((tmp_path / "summary.json").read_text())["runs"]
    assert {run["condition"] for run in runs} == set(conditions) and all(np.isfinite(run["costs"]).all() for run in runs)
    assert (tmp_path / "transfer.gif").read_bytes()[:3] == b"GIF"
    assert str(tmp_path) not in (tmp_path / "study.json").read_text()
    assert script.main(script.Args(**arguments, conditions=conditions[:2])) == 2
    assert "truth" in capsys.readouterr().err
    assert script.main(script.Args(study=Path("nowhere"), out=tmp_path)) == 2
    assert "expected a .toml file or one of" in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for owner in rooms().values() for name in (load(owner.study) if owner.study else ())])
def test_every_declared_study_keeps_the_promises_of_a_case(name):
    """Starts, policies, forces, costs and measures fit the simulators; the same stream gives the same; a case is picklable."""
    owner = next(entry for entry in rooms().values() if entry.study and name in load(entry.study))
    case = pickle.loads(pickle.dumps(RoomCase(owner, name, run_recipe, fit_residual)))
    native, truth = case.native(), case.truth()
    assert native.dt == truth.dt and native.control_names == truth.control_names
    assert truth.state_names[: native.nx] == native.state_names
    json.dumps(case.description, allow_nan=False)
    assert any(entry.id == name for entry in owner.tasks) and case.env_id.endswith(name)
    first, again = (case.starts(np.random.default_rng(0), 3) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(case.starts(np.random.default_rng(1), 1)[0], first[0])  # unperturbed
    assert np.abs(first[1:] - first[0]).max(axis=1).min() > 0.01 and case.force_scale().shape == (native.n,)
    controls = np.stack([case.first_policy(np.random.default_rng(0))(first, t) for t in range(3)], axis=1)
    low, high = truth.control_bounds
    assert controls.shape == (3, 3, native.nu) and (controls >= low).all() and (controls <= high).all()
    for simulator in (native, truth):
        assert np.isfinite(case.cost(simulator).value(first[:, None], np.zeros((3, 0, native.nu)))).all()
    assert all(np.asarray(values).shape == (3,) for values in case.measure(first[:, None]).values())
    assert case.position(first).shape == (3, 3) and all(hint.shape == (3,) for hint in case.hints.values())
    drawn = case.wide().sample(np.random.default_rng(0), case.default())
    assert set(drawn) == set(name for stage in case.recipe.stages for name in stage.free_of(native))
    for constant, value in case.scenario.constants.items():
        assert {getattr(p, constant) for p in (case.default(), case.best(), case.truth_parameters())} == {value}


@pytest.mark.parametrize("scene", ["Grow", "Navigate"])
def test_a_vine_starts_straight_and_its_goal_is_free_and_out_of_reach(scene):
    case = room_case(f"Vine{scene}-v0")
    truth = case.truth_parameters()
    assert all(getattr(case.best(), name) == getattr(truth, name) for name in case.best().names())
    starts = case.starts(np.random.default_rng(0), 3)
    np.testing.assert_array_equal(starts[0], case.model.straight_state())
    standing = zip(case.model.obstacles, case.model.poses, strict=True)
    free = [o.shape.distance(to_local(case.target[None], pose))[0] for o, pose in standing]
    assert len(free) == (4 if scene == "Navigate" else 0) and all(distance > case.model.radius for distance in free)
    measured = case.measure(starts[:, None])
    np.testing.assert_allclose(measured["nearest [m]"], np.linalg.norm(case.position(starts)[:, :2] - case.target, axis=1))
    assert not measured["reached"].any()
    zero = case.cost(case.native()).value(starts[:, None], np.zeros((3, 0, case.native().nu)))
    np.testing.assert_allclose(zero[:, 0], 10 * measured["last [m]"] ** 2)


def test_a_vine_study_identifies_the_twin_and_ends_in_a_report(monkeypatch, tmp_path):
    script = load_script("scripts/transfer.py")
    case = room_case("VineGrow-v0")
    found = case.fit(case.record(np.random.default_rng(1), 2000)).parameters
    for name in case.recipe.guess_of(case.native()):
        after, before = (abs(np.log(getattr(p, name) / getattr(case.best(), name))) for p in (found, case.default()))
        assert after < 0.5 * before, name
    published = (STUDIES / "vine_grow_mpc" / "study.toml").read_text()
    short = tmp_path / "short.toml"
    short.write_text(published.replace("horizon = 25", "horizon = 2"))
    arguments = {"workers": 1, "seeds": 1, "starts": 1, "conditions": ("zero", "nominal", "truth"), "video": False}
    assert script.main(script.Args(study=short, out=tmp_path / "out", **arguments)) == 0
    assert "nearest [m]" in (tmp_path / "out" / "table.md").read_text()


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*/study.toml")), ids=lambda path: path.parent.name)
def test_every_study_in_the_repository_is_consistent(monkeypatch, path):
    script = load_script("scripts/transfer.py")
    case, study = script.chosen(script.Args(study=path))
    assert study == read_study(path).study and study.name == path.parent.name
    assert study.jobs(CONDITIONS) and study.thresholds
    assert study.horizon <= next(task for task in case.room.tasks if task.id == case.task).max_episode_steps


BAD = """
name = "bad"
kind = "plan"
conditions = ["zero", "nominal", "truth"]
budgets = [10]
"""


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ("seed = 1.5", "seed is 1.5, expected int"),
        ("arms = []", "has 'arms'; allowed are name, kind, conditions"),
        ("trust = true", "trust is True, expected float"),
        ("[[thresholds]]\ncondition = 'zero'", "missing 2 required positional arguments: 'quantity' and 'limit'"),
        ("[[thresholds]]\ncondition = 'zero'\nquantity = 'luck'\nlimit = 1", "quantity is 'luck', expected 'share'"),
        ("[case]\nroom = 1", "room is 1, expected str"),
        ("", "missing 2 required positional arguments: 'room' and 'task'"),
        ("thresholds = 3", "expected [[thresholds]] tables"),
    ],
)
def test_bad_study_files_are_named(tmp_path, added, message):
    path = tmp_path / "study.toml"
    path.write_text(BAD + added + ("" if "case" in message or "room" in message else "\n[case]\nroom = 'a'\ntask = 'b'\n"))
    with pytest.raises(OptionError, match=re.escape(message)):
        read_study(path)


def test_a_case_needs_a_declared_study_and_stages_of_the_recipe():
    with pytest.raises(OptionError, match="declares no study of 'VineWall-v0'; there are VineGrow-v0, VineNavigate-v0"):
        room_case("VineWall-v0")
    with pytest.raises(OptionError, match="declares no study of 'SlidingBlock-v0'; there are none"):
        RoomCase(room("block"), "SlidingBlock-v0", run_recipe, fit_residual)
    with pytest.raises(OptionError, match="unknown stage 'legs'"):
        room_case("VineGrow-v0", stages={"legs": {}})
    with pytest.raises(OptionError, match="structure has 'legs'; the model of 'VineGrow-v0' has base, "):
        room_case("VineGrow-v0", structure={"legs": 2})
    assert room_case("VineGrow-v0", structure={"num_links": 7}).native().model.num_links == 7


def test_a_study_gives_its_truth_other_constants_and_registers_them():
    case = room_case("VineGrow-v0", truth_constants={"bending_stiffness": 0.05})
    assert case.truth_parameters().bending_stiffness == 0.05 == case.best().bending_stiffness
    assert case.default() == room_case("VineGrow-v0").default()
    assert case.description["truth"]["bending_stiffness"] == 0.05
    with pytest.raises(OptionError, match="truth_constants has 'legs'; the truth of 'VineGrow-v0' has "):
        room_case("VineGrow-v0", truth_constants={"legs": 2.0})


# --- constants near the best, and slopes of the engine for the truth ---------------------------------------------------------


def test_the_oracle_may_borrow_the_engines_slopes_and_constants_are_drawn_near_the_best(tmp_path):
    study = replace(STUDY, conditions=("zero", "nominal", "far", "truth"), curve=(), thresholds=(), difference_step=0.0)
    worker = PlanWorker(PendulumCase(), study, tmp_path)
    records = {job: worker(job) for job in study.jobs(CONDITIONS)}
    drawn = [records[job]["cost"] for job in records if job.condition == "far"]
    oracle = [records[job]["cost"] for job in records if job.condition == "truth"]
    assert max(oracle) <= min(drawn) * (1 + 1e-6)
    own = PlanWorker(PendulumCase(), replace(study, difference_step=None), tmp_path)(Job("truth", 0, 0, 0))
    assert records[Job("truth", 0, 0, 0)]["cost"] == pytest.approx(own["cost"], rel=1e-6)


def test_a_study_file_may_ask_for_slopes_of_whole_runs_in_words(tmp_path):
    path, text = tmp_path / "study.toml", (STUDIES / "loop_reach_mpc" / "study.toml").read_text()
    path.write_text(text.replace("difference_step = 0", 'difference_step = "runs"'))
    assert read_study(path).study.difference_step == "runs"
    path.write_text(text.replace("difference_step = 0", 'difference_step = "walks"'))
    with pytest.raises(OptionError, match="difference_step is 'walks', expected float"):
        read_study(path)


def test_the_oracle_may_have_slopes_of_its_own_whole_runs(tmp_path):
    study = replace(STUDY, conditions=("zero", "nominal", "truth"), curve=(), thresholds=(), difference_step="runs")
    found = PlanWorker(PendulumCase(), study, tmp_path)(Job("truth", 0, 0, 0))
    own = PlanWorker(PendulumCase(), replace(study, difference_step=None), tmp_path)(Job("truth", 0, 0, 0))
    assert found["cost"] == pytest.approx(own["cost"], rel=1e-3)
