"""The script, the published studies and the files they are read from."""

import json
import pickle
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from agents_models import system_case
from helpers import load_script, run_main

from agents.transfer_study.conditions import CONDITIONS
from agents.transfer_study.document import read_study
from agents.transfer_study.run import chosen
from agents.transfer_study.task import TransferTask
from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.simulator import stable_bounds
from softgym_envs.core.task import load
from softgym_envs.systems import system, systems
from softgym_envs.systems.vine.obstacles import to_local

STUDIES = Path(__file__).parents[2] / "experiments"


# --- the script ---------------------------------------------------------------------------------------------------------


def test_the_smoke_study_ends_in_a_report(monkeypatch, tmp_path, capsys):
    script = load_script("scripts/transfer.py")
    conditions = ("zero", "nominal", "wide", "identified", "ground_truth_budget", "ground_truth")
    arguments = {"study": Path("smoke"), "workers": 1, "out": tmp_path}
    assert run_main(script, script.Args(**arguments, conditions=conditions)) == 0
    assert "exploration" in (tmp_path / "table.md").read_text()
    runs = json.loads((tmp_path / "summary.json").read_text())["runs"]
    assert {run["condition"] for run in runs} == set(conditions) and all(np.isfinite(run["costs"]).all() for run in runs)
    assert (tmp_path / "transfer.gif").read_bytes()[:3] == b"GIF"
    assert str(tmp_path) not in (tmp_path / "study.json").read_text()
    assert run_main(script, script.Args(**arguments, conditions=conditions[:2])) == 2
    assert "ground_truth" in capsys.readouterr().err
    assert run_main(script, script.Args(study=Path("nowhere"), out=tmp_path)) == 2
    assert "expected a .toml file or one of" in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for owner in systems().values() for name in (load(owner.study) if owner.study else ())])
def test_every_declared_study_keeps_the_promises_of_a_case(name):
    """Starts, policies, forces, costs and measures fit the simulators; the same stream gives the same; a case is picklable."""
    owner = next(entry for entry in systems().values() if entry.study and name in load(entry.study))
    case = pickle.loads(pickle.dumps(TransferTask(owner, name)))
    native, ground_truth = case.native(), case.ground_truth()
    assert native.dt == ground_truth.dt and native.control_names == ground_truth.control_names
    assert ground_truth.state_names[: native.nx] == native.state_names
    json.dumps(case.description, allow_nan=False)
    assert any(entry.id == name for entry in owner.tasks) and case.env_id.endswith(name)
    first, again = (case.starts(np.random.default_rng(0), 3) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(case.starts(np.random.default_rng(1), 1)[0], first[0])  # unperturbed
    assert np.abs(first[1:] - first[0]).max(axis=1).min() > 0.01
    controls = np.stack([case.first_policy(np.random.default_rng(0))(first, t) for t in range(3)], axis=1)
    low, high = ground_truth.control_bounds
    assert controls.shape == (3, 3, native.nu) and (controls >= low).all() and (controls <= high).all()
    for simulator in (native, ground_truth):
        assert np.isfinite(case.cost(simulator).value(first[:, None], np.zeros((3, 0, native.nu)))).all()
    assert all(np.asarray(values).shape == (3,) for values in case.measure(first[:, None]).values())
    assert case.position(first).shape == (3, 3) and all(hint.shape == (3,) for hint in case.hints.values())
    drawn = case.wide().sample(np.random.default_rng(0), case.default())
    assert set(drawn) == set(name for stage in case.procedure.stages for name in stage.free_of(native))
    for constant, value in case.scenario.parameters.items():
        assert {getattr(p, constant) for p in (case.default(), case.best(), case.ground_truth_values())} == {value}


@pytest.mark.parametrize("scene", ["Grow", "Navigate"])
def test_a_vine_starts_straight_and_its_goal_is_free_and_out_of_reach(scene):
    case = system_case(f"Vine{scene}-v0")
    ground_truth = case.ground_truth_values()
    assert all(getattr(case.best(), name) == getattr(ground_truth, name) for name in case.best().names())
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


def test_a_vine_study_identifies_the_mujoco_model_and_ends_in_a_report(monkeypatch, tmp_path):
    script = load_script("scripts/transfer.py")
    case = system_case("VineGrow-v0")
    found = case.fit(case.record(np.random.default_rng(1), 2000)).parameters
    for name in case.procedure.initial_guess_of(case.native()):
        after, before = (abs(np.log(getattr(p, name) / getattr(case.best(), name))) for p in (found, case.default()))
        assert after < 0.5 * before, name
    published = (STUDIES / "vine_grow_mpc.toml").read_text()
    short = tmp_path / "short.toml"
    short.write_text(published.replace("horizon = 25", "horizon = 2"))
    arguments = {"workers": 1, "seeds": 1, "starts": 1, "conditions": ("zero", "nominal", "ground_truth"), "video": False}
    assert run_main(script, script.Args(study=short, out=tmp_path / "out", **arguments)) == 0
    assert "nearest [m]" in (tmp_path / "out" / "table.md").read_text()


@pytest.mark.parametrize("task", ["TensegrityRoll-v0", "VineGrow-v0"])
def test_frames_of_a_camera_that_are_no_whole_number_of_steps(monkeypatch, task):
    """120 Hz: the engine that is fitted has other steps. What is of the recordings, as their latency, is drawn for no robot."""
    fitted = []

    def identify(procedure, simulator, data, *, start, stages, limits):
        fitted.append(simulator)
        assert limits == stable_bounds(case.native(), start)  # of the steps that policies run in, not of these
        raise DataError("not here")

    case, rng = system_case(task, sensor=("lab",)), np.random.default_rng(0)
    monkeypatch.setattr("agents.transfer_study.task.run_procedure", identify)
    data = case.record(rng, 400)
    with pytest.raises(DataError, match="not here"):
        case.fit(data)
    assert all(t.period == pytest.approx(1 / 120) for t in data.train)
    assert all(t.substeps * fitted[0].dt == pytest.approx(t.period, rel=1e-9) for t in data.train)
    assert 0 < fitted[0].dt <= case.native().dt
    for known in (case.wide().sample(rng, case.default()), dict.fromkeys(case.identified)):
        assert known and set(known) <= set(case.default().names())
    assert case.drawn(rng, 2.0) != case.best()


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_study_in_the_repository_is_consistent(path):
    study, case = chosen(path)
    assert study == read_study(path).study and study.name == path.stem
    assert study.jobs(CONDITIONS) and study.thresholds
    assert study.planning.horizon <= next(task for task in case.system.tasks if task.id == case.task).max_episode_steps


BAD = """
name = "bad"
kind = "plan"
conditions = ["zero", "nominal", "ground_truth"]
budgets = [10]
"""


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ("[repeats]\nseed = 1.5", "seed is 1.5, expected a whole number"),
        ("arms = []", "has 'arms'; allowed are name, kind, conditions"),
        ("[planning]\ntrust = true", "trust is True, expected a finite number"),
        ("[[thresholds]]\ncondition = 'zero'", "missing 2 required positional arguments: 'quantity' and 'limit'"),
        ("[[thresholds]]\ncondition = 'zero'\nquantity = 'luck'\nlimit = 1", "quantity is 'luck', expected 'score'"),
        ("[case]\nsystem = 1", "system is 1, expected text"),
        ("", "missing 2 required positional arguments: 'system' and 'task'"),
        ("thresholds = 3", "expected [[thresholds]] tables"),
        ("[planning]\ntrust = nan", "trust is nan, expected a finite number"),
        ("[planning]\nforce = -0.1", "force is -0.1, expected a number >= 0"),
        ("[planning]\ndifference_step = inf", "difference_step is inf, expected a finite number or 'runs' or nothing"),
        ("curve = ['zero', 'zero']", "curve has zero twice"),
        (
            "[case]\nsystem = 'block'\ntask = 'b'\nground_truth_parameters = {friction = nan}",
            "case: ground_truth_parameters.friction is nan",
        ),
    ],
)
def test_bad_study_files_are_named(tmp_path, added, message):
    path = tmp_path / "study.toml"
    path.write_text(
        BAD + added + ("" if "case" in message or "system" in message else "\n[case]\nsystem = 'block'\ntask = 'b'\n")
    )
    with pytest.raises(OptionError, match=re.escape(message)):
        read_study(path)


SEARCH = """
name = "checked"
kind = "mpc"
conditions = ["zero", "nominal", "identified", "ground_truth"]
budgets = [1000]
[case]
system = "tensegrity"
task = "TensegrityCrawl-v0"
"""


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ("[case.stages.search]\nepochs = 3", r"\[case.stages.search\]: one_step has no option 'epochs'; it has jacobian"),
        ("[case.stages.search]\nstarts = 'many'", "starts is 'many', expected a whole number"),
        ("[case.stages.contact]\nlevenberg = 3", "levenberg is 3, expected a table"),
        ("[case.stages.contact.levenberg]\niterations = 3", "levenberg has no option 'iterations'; it has .*max_iterations"),
        ("[case.stages.seen]\nstarts = 2", "stages has 'seen', a stage that this case does not run; it runs"),
        ("only = ['seen']", "only has 'seen', a stage that this case does not run; it runs"),
        ("[case.ground_truth_parameters]\nfriction = -3", "friction"),
    ],
)
def test_a_study_is_checked_before_it_runs(tmp_path, capsys, added, message):
    """A wrong option was told after hours, and the folder then refused the corrected study."""
    script, path, out = load_script("scripts/transfer.py"), tmp_path / "study.toml", tmp_path / "out"
    path.write_text(SEARCH + added)
    assert run_main(script, script.Args(study=path, out=out)) == 2
    assert re.search(message, capsys.readouterr().err) and not out.exists()


def test_a_case_needs_a_declared_study_and_stages_of_the_procedure():
    with pytest.raises(OptionError, match="declares no study of 'VineWall-v0'; there are VineGrow-v0, VineNavigate-v0"):
        system_case("VineWall-v0")
    with pytest.raises(OptionError, match="declares no study of 'SlidingBlock-v0'; there are none"):
        TransferTask(system("block"), "SlidingBlock-v0")
    with pytest.raises(OptionError, match="unknown stage 'legs'"):
        system_case("VineGrow-v0", stages={"legs": {}})
    with pytest.raises(OptionError, match="structure has 'legs'; the model of 'VineGrow-v0' has base, "):
        system_case("VineGrow-v0", structure={"legs": 2})
    assert system_case("VineGrow-v0", structure={"num_links": 7}).native().model.num_links == 7


def test_the_ground_truth_is_the_systems_first_whatever_its_name():
    vine = system("vine")
    owner = replace(vine, ground_truths={"bullet": vine.ground_truths["mujoco"], "late": vine.ground_truths["mujoco"]})
    case = TransferTask(owner, "VineGrow-v0")
    assert case.ground_truth_keywords == {"backend": "bullet"} and case.ground_truth().state_names == case.native().state_names
    assert TransferTask(owner, "VineGrow-v0", "late").backend == "late"
    with pytest.raises(OptionError, match="backend is 'mujoco', allowed are native, bullet, late, "):
        TransferTask(owner, "VineGrow-v0", "mujoco")
    with pytest.raises(OptionError, match="system 'vine' has no ground truth: give a backend"):
        TransferTask(replace(vine, ground_truths={}), "VineGrow-v0")


def test_a_study_gives_its_ground_truth_other_constants_and_registers_them():
    case = system_case("VineGrow-v0", ground_truth_parameters={"bending_stiffness": 0.05})
    assert case.ground_truth_values().bending_stiffness == 0.05 == case.best().bending_stiffness
    assert case.default() == system_case("VineGrow-v0").default()
    assert case.description["ground_truth"]["bending_stiffness"] == 0.05
    with pytest.raises(OptionError, match="ground_truth_parameters has 'legs'; the ground truth of 'VineGrow-v0' has "):
        system_case("VineGrow-v0", ground_truth_parameters={"legs": 2.0})
