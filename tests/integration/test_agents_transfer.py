"""The transfer protocol: whole studies, what they count, refuse and resume; models of parameters near the best."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from agents_models import TRUE_GAIN, OneConstant, PendulumCase, changed, system_case
from helpers import load_script, run_main

from agents.transfer_study.conditions import CONDITIONS, check_study, possible
from agents.transfer_study.definition import Planning, Repeats, Study, StudyRun, Threshold
from agents.transfer_study.document import read_study
from agents.transfer_study.fits import _fit, draw, identify
from agents.transfer_study.jobs import record_path, register, registered, run_jobs
from agents.transfer_study.planned import PlanWorker
from agents.transfer_study.report import markdown, write_report
from agents.transfer_study.statistics import Interval
from agents.transfer_study.summary import ThresholdResult, summarise
from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.files import read_json, write_json
from softgym_envs.core.trajectory import DataSplit, TrajectorySet

STUDIES = Path(__file__).parents[2] / "experiments"


# --- studies ------------------------------------------------------------------------------------------------------------

STUDY = Study(
    "pendulum",
    "plan",
    (
        "zero",
        "nominal",
        "wide",
        "identified",
        "posterior",
        "true_constants",
        "ground_truth_budget",
        "ground_truth",
    ),
    (60, 30),
    curve=("identified",),
    repeats=Repeats(datasets=2, seeds=2, starts=3),
    planning=Planning(horizon=15, substeps=1, restarts=2, iterations=15, trust=1.0, difference_step=None, ensemble=3),
    thresholds=(
        Threshold("identified", "score", 0.95, reason="the same system"),
        Threshold("nominal", "score", 2.0, reason="cannot hold"),
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


def test_the_identified_engine_is_as_good_as_the_ground_truth_and_the_nominal_one_is_not(finished):
    summary = summarise(STUDY, finished)
    conditions = {(a.condition, a.budget): a for a in summary.conditions}
    assert summary.complete
    ground_truth, identified, nominal = conditions["ground_truth", 0], conditions["identified", 60], conditions["nominal", 0]
    assert identified.cost.value == pytest.approx(ground_truth.cost.value, rel=1e-3)  # gain is found to rounding
    assert conditions["true_constants", 0].cost.value == pytest.approx(ground_truth.cost.value, rel=1e-9)
    assert nominal.cost.value > 1.05 * ground_truth.cost.value
    assert identified.share.value == pytest.approx(1.0, abs=1e-2) and conditions["zero", 0].share.value == pytest.approx(0.0)
    assert identified.improvement == 1.0 and nominal.improvement is None


def test_a_broken_promise_is_printed_as_such(finished):
    summary = write_report(STUDY, finished)
    assert [v.passed for v in summary.thresholds] == [True, False, True]
    assert "FAILED" in summary.headline and "nominal" in summary.headline
    for name in ("table.md", "report.html", "summary.json"):
        assert "FAILED" in (finished / name).read_text()
    page = (finished / "report.html").read_text()
    assert "http" not in page.replace("http://www.w3.org", "") and page.count("data:image/svg") == 4
    assert len(json.loads((finished / "summary.json").read_text())["runs"]) == len(STUDY.jobs(CONDITIONS))


def test_a_study_that_was_stopped_before_a_run_of_its_curve_has_a_report(finished, tmp_path):
    """Ctrl-C ended in a traceback: an axis of budgets without one above 0 has no logarithm."""
    shutil.copytree(finished, tmp_path / "out")
    for record in (tmp_path / "out" / "runs").glob("*.json"):
        if json.loads(record.read_text())["budget"]:
            record.unlink()
    summary = write_report(STUDY, tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert not summary.complete and 1 <= page.count("data:image/svg") < 4


def test_an_oracle_that_is_beaten_is_told(finished):
    summary = summarise(STUDY, finished)
    assert "ORACLE" not in summary.headline
    share = Interval(1.5, 1.4, 1.6)
    better = tuple(replace(a, share=share) if a.condition == "identified" else a for a in summary.conditions)
    told = replace(summary, conditions=better).headline
    assert told.startswith("THE ORACLE IS NONE") and "beaten by identified engine" in told


def test_rows_of_slow_sensors_count_as_physics_steps_of_the_ground_truth():
    whole = PendulumCase().record(np.random.default_rng(0), 60)
    thin = [
        TrajectorySet(tuple(replace(t, times=t.times[::2], values=t.values[::2], controls=t.controls[::2]) for t in part))
        for part in whole
    ]
    assert _fit(PendulumCase(), STUDY, DataSplit(*thin)).ground_truth_steps == {"train": 60, "validation": 20}


def test_every_step_of_the_ground_truth_is_counted(finished):
    record = read_json(record_path(finished, StudyRun("identified", 60, 1, 0)))
    assert record["ground_truth_steps"] == {"train": 60, "validation": 20, "tuning": 0}
    assert read_json(record_path(finished, StudyRun("nominal", 0, 0, 0)))["ground_truth_steps"]["train"] == 0
    budget = read_json(record_path(finished, StudyRun("ground_truth_budget", 60, 0, 0)))["ground_truth_steps"]["train"]
    assert 0 < budget <= 60
    # two guesses and their plans (line searches: whole rollouts of 15), and 2 x 3 candidates judged from 3 starts
    oracle = read_json(record_path(finished, StudyRun("ground_truth", 0, 0, 0)))
    assert oracle["ground_truth_steps"]["train"] > 2 * 15 + 2 * 3 * 3 * 15 and oracle["model_steps"] == 0


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
    marker = {"cost": 1.5, "costs": [1.5] * 3, "failed": 0, "measures": {}, "ground_truth_steps": {}, "model_cost": None}
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
    job = StudyRun("nominal", 0, 0, 0)
    assert run_jobs([job], PlanWorker(PendulumCase(), STUDY, tmp_path), tmp_path, executor="ray", progress=lambda s: None) == ()
    ours, theirs = read_json(record_path(tmp_path, job)), read_json(record_path(finished, job))
    assert {**ours, "seconds": 0} == {**theirs, "seconds": 0}


def test_thresholds_cannot_be_changed_afterwards(tmp_path):
    register(STUDY, "pendulum", tmp_path, provenance={})
    register(STUDY, "pendulum", tmp_path, provenance={"commit": "later"})
    with pytest.raises(OptionError, match="thresholds"):
        register(changed(STUDY, thresholds=STUDY.thresholds[:1]), "pendulum", tmp_path, provenance={})
    with pytest.raises(OptionError, match=r"case differ.*: give another folder"):
        register(STUDY, "another", tmp_path, provenance={})


def test_a_commit_is_named_only_where_it_is_another(tmp_path):
    register(STUDY, {"ground_truth": {"level": 2}}, tmp_path, provenance={"commit": "a" * 40})
    for commit, said in (
        ("a" * 40, r"\(case.ground_truth.level, repeats.seeds differ\): give"),
        ("b" * 40, "check out aaaaaaaaaa, which made it, else give"),
    ):
        with pytest.raises(OptionError, match=said):
            register(
                changed(STUDY, seeds=STUDY.repeats.seeds + 1),
                {"ground_truth": {"level": 3}},
                tmp_path,
                provenance={"commit": commit},
            )


def test_a_study_that_was_registered_before_a_field_was_added_goes_on(tmp_path):
    """What it lacks has its usual value; another one is another study."""
    register(STUDY, "pendulum", tmp_path, provenance={})
    path = tmp_path / "study.json"
    there = read_json(path)
    del there["study"]["tuning_steps"]
    path.write_text(json.dumps(there))
    register(STUDY, "pendulum", tmp_path, provenance={})
    with pytest.raises(OptionError, match="tuning_steps differ"):
        register(changed(STUDY, tuning_steps=5), "pendulum", tmp_path, provenance={})


def test_a_threshold_is_judged_by_the_mean_and_says_where_the_interval_holds_it():
    threshold = STUDY.thresholds[0]
    said = [
        ThresholdResult(threshold, Interval(1.0, *ends), True).label
        for ends in ((None, None, (0.5, 1.5)), (0.5, 1.5), (0.99, 1.01))
    ]
    assert said[0].endswith("found 1 (runs 0.5, 1.5)") and said[2].endswith("found 1 [0.99, 1.01]")
    assert said[1].endswith("found 1 [0.5, 1.5] (the interval holds the limit)")


def test_a_doubled_oracle_tells_whether_the_oracle_is_saturated(finished):
    summary = summarise(STUDY, finished)
    assert summary.saturation == ""  # a planner that converges
    summary = replace(summary, study=changed(STUDY, kind="mpc"))
    assert summary.saturation.startswith("oracle not known to be saturated")
    assert f"- {summary.saturation}" in markdown(summary)
    oracle = next(a for a in summary.conditions if a.condition == "ground_truth")
    for moved, word in ((0.4, "saturated oracle"), (0.6, "UNSATURATED ORACLE")):
        both = [("ground_truth", Interval(1.0, 0.5, 1.5)), ("ground_truth_doubled", Interval(1.0 - moved, 0.0, 1.0))]
        conditions = tuple(replace(oracle, condition=name, cost=cost) for name, cost in both)
        said = replace(summary, conditions=conditions).saturation
        assert said.startswith(f"{word}: twice its samples or steps change its mean cost by {moved}")


def test_conditions_that_trained_unequal_steps_are_no_comparison(tmp_path):
    names = ("zero", "nominal", "ground_truth_budget", "ground_truth", "ground_truth_doubled")
    study = Study("rl", "rl", names, (10,), train_steps=64, repeats=Repeats(1, 1, 1))
    trained = {"zero": 0, "nominal": 640, "ground_truth_budget": 10, "ground_truth": 640, "ground_truth_doubled": 1280}
    for job in study.jobs(CONDITIONS):
        on_ground_truth = CONDITIONS[job.condition].model == "ground_truth"
        steps = {"train": trained[job.condition] if on_ground_truth else 0, "validation": 0, "tuning": 0}
        model = 0 if on_ground_truth else trained[job.condition]
        cost = {"cost": 2.0 - ("ground_truth" in job.condition), "failed": 0, "measures": {}, "model_cost": None}
        write_json(record_path(tmp_path, job), {**cost, "ground_truth_steps": steps, "model_steps": model})
    assert summarise(study, tmp_path).unequal == {}
    path = record_path(tmp_path, StudyRun("ground_truth", 0, 0, 0))
    write_json(path, {**read_json(path), "ground_truth_steps": {"train": 320, "validation": 0, "tuning": 0}})
    summary = summarise(study, tmp_path)
    assert summary.unequal == {"nominal": 640, "ground_truth": 320}
    assert summary.headline.startswith("UNEQUAL TRAINING, no comparison: nominal 640, ground_truth 320 physics steps")


def test_a_folder_is_reported_again_from_its_runs(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "out")
    (tmp_path / "out" / "table.md").unlink(missing_ok=True)
    assert registered(tmp_path / "out") == STUDY
    assert run_main(load_script("scripts/transfer.py"), load_script("scripts/transfer.py").Args(tmp_path / "out")) == 0
    table = (tmp_path / "out" / "table.md").read_text()
    assert table == markdown(summarise(STUDY, finished)) and "| 2/2 |" in table
    write_json(tmp_path / "out" / "study.json", {"study": {"name": "none"}})
    assert run_main(load_script("scripts/transfer.py"), load_script("scripts/transfer.py").Args(tmp_path / "out")) == 2


def test_unusable_data_and_failing_runs_are_results(tmp_path):
    study = changed(
        STUDY, conditions=("zero", "nominal", "identified", "ground_truth"), thresholds=(), curve=(), iterations=2, restarts=1
    )
    worker = PlanWorker(PendulumCase(unusable=True), study, tmp_path)
    jobs = [StudyRun("identified", 60, 0, 0), StudyRun("nominal", 0, 0, 0)]
    assert run_jobs(jobs, worker, tmp_path, progress=lambda line: None) == ()
    fit = read_json(tmp_path / "fits" / "b60_d0.json")
    assert fit["failed"] and "constant controls" in fit["note"]
    identified, nominal = (read_json(record_path(tmp_path, job)) for job in jobs)
    assert identified["costs"] == nominal["costs"]

    broken = run_jobs([StudyRun("ground_truth", 0, 0, 0)], _explode, tmp_path, progress=lambda line: None)
    line = _explode.__code__.co_firstlineno + 1
    assert broken[0].message == f"ZeroDivisionError: by zero ({__file__}:{line})"
    one_each = changed(study, seeds=1, datasets=1, conditions=("zero", "nominal", "ground_truth"))
    assert run_jobs([StudyRun("zero", 0, 0, 0)], worker, tmp_path, progress=lambda line: None) == ()
    summary = summarise(one_each, tmp_path)
    assert all(condition.runs == condition.expected for condition in summary.conditions) and summary.missing == (
        "ground_truth",
    )
    assert "not finished" in summary.headline and "- no run of the ground truth, unlimited (oracle)" in markdown(summary)
    assert "1 of 1 FITS NOT TO BE USED" in summary.headline
    assert "- FIT NOT TO BE USED" in markdown(summary) and "no fit: constant controls" in markdown(summary)


def _explode(job):
    raise ZeroDivisionError("by zero")


def test_bad_studies_are_refused():
    with pytest.raises(OptionError, match="not part of the study"):
        changed(STUDY, curve=("network",))
    with pytest.raises(OptionError, match="seeds"):
        changed(STUDY, seeds=0)
    with pytest.raises(OptionError, match="seeds is 1000000000, allowed are at most"):
        changed(STUDY, seeds=10**9)
    with pytest.raises(OptionError, match="quantity"):
        Threshold("identified", "luck", 0.5)
    with pytest.raises(OptionError, match="'ground_truth'"):
        check_study(changed(STUDY, conditions=STUDY.conditions[:-1]), PendulumCase())
    with pytest.raises(OptionError, match="executor"):
        run_jobs([], _explode, Path(), executor="slurm")
    with pytest.raises(DataError, match="no run"):
        summarise(STUDY, Path("nowhere"))


def replanned(conditions, out, case=None, **changes):
    """Records of one run per condition, replanned at every step."""
    study = changed(STUDY, kind="mpc", conditions=conditions, thresholds=(), curve=(), horizon=6, starts=2, **changes)
    worker = PlanWorker(case or PendulumCase(), study, out)
    assert run_jobs(study.jobs(CONDITIONS), worker, out, progress=lambda line: None) == ()
    return {job.condition: read_json(record_path(out, job)) for job in study.jobs(CONDITIONS)}


def test_sample_based_plans_in_every_world_cost_the_same_steps_and_know_one_row_of_constants(tmp_path):
    """Kind "gps": 2 iterations of 40 rollouts and the last controller, the guess, in model and ground truth alike."""
    conditions = ("nominal", "ground_truth")
    study = changed(
        STUDY, kind="gps", conditions=conditions, thresholds=(), curve=(), horizon=6, starts=2, seeds=1, iterations=2
    )
    worker = PlanWorker(PendulumCase(), study, tmp_path)
    assert run_jobs(study.jobs(CONDITIONS), worker, tmp_path, progress=lambda line: None) == ()
    nominal, ground_truth = (read_json(record_path(tmp_path, job)) for job in study.jobs(CONDITIONS))
    assert ground_truth["ground_truth_steps"]["train"] == nominal["model_steps"] == (2 * 40 + 2) * 6
    with pytest.raises(OptionError, match="many parameters"):
        check_study(changed(study, conditions=("zero", "nominal", "wide", "ground_truth")), PendulumCase())


def test_random_forces_are_for_those_who_learn(tmp_path):
    with pytest.raises(OptionError, match="'forces' kicks the robot while it learns: kind is 'plan', not 'rl'"):
        check_study(changed(STUDY, conditions=(*STUDY.conditions, "forces")), PendulumCase())


def test_a_black_box_learns_nothing_of_another_scene():
    assert possible(system_case("VineGrow-v0"), ("network", "posterior")) == ("network", "posterior")
    assert possible(system_case("VineNavigate-v0"), ("network", "posterior")) == ("posterior",)
    with pytest.raises(OptionError, match="'network'"):
        check_study(changed(STUDY, conditions=("zero", "network", *STUDY.conditions[1:])), system_case("VineNavigate-v0"))


def test_draw_keeps_the_center_first():
    rows = draw(OneConstant(gain=1.0), PendulumCase().wide(), 5, np.random.default_rng(0))
    assert rows.batch == 5 and rows.gain[0] == 1.0 and len(set(rows.gain)) == 5


# --- parameters near the best, and slopes of the engine for the ground truth
# ---------------------------------------------------------


def test_the_oracle_may_borrow_the_engines_slopes_and_constants_are_drawn_near_the_best(tmp_path):
    study = changed(STUDY, conditions=("zero", "nominal", "far", "ground_truth"), curve=(), thresholds=(), difference_step=0.0)
    worker = PlanWorker(PendulumCase(), study, tmp_path)
    records = {job: worker(job) for job in study.jobs(CONDITIONS)}
    drawn = [records[job]["cost"] for job in records if job.condition == "far"]
    oracle = [records[job]["cost"] for job in records if job.condition == "ground_truth"]
    assert max(oracle) <= min(drawn) * (1 + 1e-6)
    own = PlanWorker(PendulumCase(), changed(study, difference_step=None), tmp_path)(StudyRun("ground_truth", 0, 0, 0))
    assert records[StudyRun("ground_truth", 0, 0, 0)]["cost"] == pytest.approx(own["cost"], rel=1e-6)


def test_a_study_file_may_ask_for_slopes_of_whole_runs_in_words(tmp_path):
    path, text = tmp_path / "study.toml", (STUDIES / "loop_reach_ilqg.toml").read_text()
    path.write_text(text.replace("difference_step = 0", 'difference_step = "runs"'))
    assert read_study(path).study.planning.difference_step == "runs"
    path.write_text(text.replace("difference_step = 0", 'difference_step = "walks"'))
    with pytest.raises(OptionError, match="difference_step is 'walks', expected a finite number"):
        read_study(path)


def test_the_oracle_may_have_slopes_of_its_own_whole_runs(tmp_path):
    study = changed(STUDY, conditions=("zero", "nominal", "ground_truth"), curve=(), thresholds=(), difference_step="runs")
    found = PlanWorker(PendulumCase(), study, tmp_path)(StudyRun("ground_truth", 0, 0, 0))
    own = PlanWorker(PendulumCase(), changed(study, difference_step=None), tmp_path)(StudyRun("ground_truth", 0, 0, 0))
    assert found["cost"] == pytest.approx(own["cost"], rel=1e-3)
