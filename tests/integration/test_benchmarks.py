"""Benchmarks that users run: lines that are not measured again stay, and two checkouts are compared. The controller benchmark:
cells are reproducible and keep their budgets, a user's own controller enters by one line. The problem of
benchmarks/compare_mujoco_sysid.py: both tools must get what they are said to get, and be judged rightly."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers import load_script, run, run_script

import agents
from agents.benchmark_study import page
from agents.benchmark_study.case import Case, Cell
from agents.benchmark_study.run import Settings, cells, run_cell
from softgym_envs.core.errors import FileFormatError, MissingDependencyError, OptionError, StorageError
from softgym_envs.core.files import read_json
from softgym_envs.core.simulator import Simulator
from softgym_envs.systems import system_of_task, tasks


def test_mechanics_only_environments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mechanics = load_script("benchmarks/mechanics.py")
    step, env = mechanics.Row("one step", 1.0), mechanics.Row("control step", 2.0)
    monkeypatch.setattr(mechanics, "environments", lambda args: [env])
    monkeypatch.setattr(mechanics, "compare", lambda case, args: [step])
    out = tmp_path / "mechanics.json"
    only = mechanics.Args(only_environments=True, out=out)
    mechanics.main(only)
    mechanics.main(only)
    assert mechanics.read_json(out) == {"mechanics": [], "environments": [asdict(env)]}
    mechanics.main(mechanics.Args(links=6, steps=2, out=out))
    mechanics.main(only)
    assert mechanics.read_json(out) == {"mechanics": [asdict(step)], "environments": [asdict(env)]}


@pytest.mark.parametrize("system", ["block", "vine"])
def test_a_system_explains_what_its_own_engine_recorded(system: str) -> None:
    """As its page says: `record`, then `identify`; of all systems by hand: benchmarks/own_data.py."""
    if system == "block":
        pytest.importorskip("casadi")
    row = load_script("benchmarks/own_data.py").run(system)
    assert row.usable and row.adequate and row.hold == row.intervals > 0 and row.seconds < 60


ROOT = Path(__file__).parents[2]
TIMES = ("processor_seconds", "plan_p50", "plan_p95", "missed", "real_time_factor", "seconds", "training_seconds")


def plain(record):
    return {name: value for name, value in record.items() if name not in TIMES}


def test_a_cell_that_runs_alone_equals_that_of_a_table(tmp_path):
    """The table runs several controllers in one process after each other, the other cell runs alone."""
    table = agents.benchmark(
        ["ArmReach-v0"], ["random", "cem", "ilqg"], out=tmp_path, episodes=3, budgets=[60], progress=lambda text: None
    )
    for cell in table:
        own = Cell(cell["id"], cell["controller"], cell["budget"])
        assert plain(run_cell(own, Settings(3, tmp_path))) == {k: v for k, v in plain(cell).items() if k not in Cell._fields}


@pytest.mark.parametrize("controller", ["mppi", "cem", "ilqg", "linear", "gps"])
def test_planners_keep_their_budget_and_say_what_they_see(controller, tmp_path):
    pytest.importorskip("osqp")
    found = run_cell(Cell("ArmHold-v0", controller, 100), Settings(2, tmp_path))
    assert 40 < found["simulated"] / found["executed"] <= 120  # the last plan may outlast the episode
    assert found["sees"] == "full state" and found["plans"] > 0 and found["plan_p95"] >= found["plan_p50"] > 0


@pytest.mark.parametrize("controller", ["ilqg", "linear"])
def test_planners_begin_where_waiting_actions_end(controller, tmp_path):
    """Five control steps late: plans from the state of now drop the load in every episode."""
    found = run_cell(Cell("ArmHold-v0", controller, 100, options="action_latency=0.1"), Settings(3, tmp_path))
    assert found["success"] == "111"


@pytest.mark.parametrize(
    ("id", "keywords", "name", "value"),
    [
        ("TensegrityTerrain-v0", {"level": 3}, "terrain_scale", 3.0),
        ("ArmReach-v0", {"params": {"payload": 2.0}}, "payload", 2.0),
    ],
)
def test_planners_know_the_parameters_of_keywords_and_of_the_task(id, keywords, name, value):
    envs = gym.make_vec(id, num_envs=1, **keywords).unwrapped
    engine = Case(Cell(id, "mppi", 100), np.ones(1, dtype=np.bool_)).engine(envs)
    assert getattr(engine.default_parameters, name) == value


def test_what_a_controller_cannot_do_is_an_empty_cell_with_a_reason(tmp_path):
    found = run_cell(Cell("VineGrow-v0", "ilqg", 100), Settings(1, tmp_path))
    assert set(found) == {"reason"} and "per executed one" in found["reason"]
    with pytest.raises(OptionError, match="controller is 'lqr', allowed are zero"):
        agents.benchmark(["ArmReach-v0"], ["lqr"], out=tmp_path)


def test_what_a_heuristic_reads_is_noted(tmp_path):
    assert run_cell(Cell("ArmReach-v0", "heuristic"), Settings(1, tmp_path))["sees"] == "sensors"
    assert run_cell(Cell("SlidingBlock-v0", "heuristic"), Settings(1, tmp_path))["sees"] == "full state"


READING = """
import copy, pickle
import numpy as np
from agents.control.observer import Observer
from agents.control.task_mpc import TaskMpc

def controller(envs):
    still = np.zeros(envs.action_space.shape)

    def act(observation):
        {line}
        return still

    return act

def ahead(envs):
    envs.step(np.ones(envs.action_space.shape))

def estimating(envs):
    engine = envs.simulator
    observer = Observer(envs, engine)
    return observer.policy(TaskMpc(samples=4).controller(observer, engine))
"""


def run_reading(folder, monkeypatch, line, name="controller"):
    """A cell of a user's controller with this line."""
    (folder / f"{folder.name}.py").write_text(READING.format(line=line))
    monkeypatch.syspath_prepend(folder)
    return run_cell(Cell("ArmReach-v0", f"{folder.name}:{name}"), Settings(2, folder))


@pytest.mark.parametrize(
    ("line", "sees"),
    [
        ("envs.get_attr('task'), envs.call('simulator')", "sensors"),
        ("envs.get_state()", "full state"),
        ("envs.episodes.snapshot()", "full state"),
        ("envs.call('context')", "full state"),
        ("envs.get_attr('state')", "full state"),
        ("envs.get_attr('episodes')", "full state"),
        ("ahead(copy.deepcopy(envs))", "full state"),
        ("ahead(pickle.loads(pickle.dumps(envs)))", "full state"),
        ("saved = envs.get_state(); ahead(envs); envs.set_state(saved)", "full state"),
    ],
)
def test_what_a_users_controller_reads_is_noted(line, sees, tmp_path, monkeypatch):
    """Also in a copy, which may be stepped: the episodes stay as they are."""
    found, still = run_reading(tmp_path, monkeypatch, line), run_cell(Cell("ArmReach-v0", "zero"), Settings(2, tmp_path))
    assert found["sees"] == sees and found["returns"] == still["returns"]


def test_a_users_planner_on_an_observer_sees_sensors(tmp_path, monkeypatch):
    assert run_reading(tmp_path, monkeypatch, "", "estimating")["sees"] == "sensors"


@pytest.mark.parametrize("line", ["ahead(envs)", "envs.reset()", "envs.episodes.state[:] = 0.1"])
def test_a_controller_that_changes_its_episodes_is_refused(line, tmp_path, monkeypatch):
    """Half of the episode vanished, and the return halved."""
    message = r"the controller stepped or reset .*: look ahead in a copy, copy.deepcopy\(envs\)"
    with pytest.raises(OptionError, match=message):
        run_reading(tmp_path, monkeypatch, line)
    with pytest.raises(OptionError, match=message):
        agents.evaluate(f"{tmp_path.name}:controller", "ArmReach-v0", episodes=2)


OWN = """
import numpy as np

def controller(envs):
    return lambda observation: np.zeros(envs.action_space.shape)
"""


def test_a_users_controller_enters_by_one_line(tmp_path):
    """A module in the current folder gets a row, a page and a place in the plot; so does a policy file."""
    (tmp_path / "my_package.py").write_text(OWN)
    policy = ROOT / "agents" / "policies" / "ArmReach-v0.npz"
    words = ["benchmark", "ArmReach-v0", "my_package:controller", str(policy), "zero", "--episodes", "2", "--out", "out"]
    run(sys.executable, ROOT / "scripts", *words, cwd=tmp_path)
    numbers = {cell["controller"]: cell for cell in read_json(tmp_path / "out" / "numbers.json")["cells"]}
    assert numbers["my_package:controller"]["returns"] == numbers["zero"]["returns"]
    assert numbers["my_package:controller"]["sees"] == "sensors" and numbers[str(policy)]["success"] == "11"
    text = (tmp_path / "out" / "benchmark.md").read_text()
    assert "| `ArmReach-v0` | `my_package:controller` | 0 [" in text and "](arm.png)" in text
    assert (tmp_path / "out" / "arm.png").stat().st_size > 5_000
    own, best = ((tmp_path / "out" / f"{name}.md").read_text() for name in ("my-package-controller", "zero"))
    for page_of in (text, own, best):
        assert "Published rows played up to 30 episodes, rows of this folder the first 2. A row" in page_of
    assert "It sees: sensors." in own and "| `my_package:controller` | 0.00 |" in own
    assert own.split("| 0.00 | ")[1].split(" of")[0] == best.split("| 0.00 | ")[1].split(" of")[0]


def test_cells_that_were_made_otherwise_are_refused(tmp_path, monkeypatch, capsys):
    """Other episodes or another file of the controller; an empty cell is tried again."""
    module, lines = tmp_path / "changing_controller.py", list[str]()
    module.write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    compared = partial(agents.benchmark, ["ArmReach-v0"], out=tmp_path / "out", progress=lines.append)
    compared(["changing_controller:controller", "zero", "zero"], episodes=2)
    compared(["changing_controller:controller"], episodes=2)
    assert lines[0].startswith("2 runs") and lines[-1] == "1 runs, 1 done before"
    with pytest.raises(OptionError, match="has episodes 2, now it is 3"):
        compared(["zero"], episodes=3)
    module.write_text(OWN + "# changed")
    with pytest.raises(OptionError, match="has source"):
        compared(["changing_controller:controller"], episodes=2)
    for _ in range(2):
        compared(["mppi"], episodes=2, budgets=[1])
        assert lines[-2] == "1 runs, 0 done before"
    for options in ("num_envs=5", "output=torch"):
        with pytest.raises(OptionError, match="command's own"):
            compared(["zero"], options=options)
    assert run_script(load_script("scripts/benchmark.py"), "Bogus-v0", "zero") == 2
    assert "unknown environment 'Bogus-v0'" in capsys.readouterr().err
    (tmp_path / "failing_controller.py").write_text("def wrong(envs):\n    return lambda observation: 1 / 0\n")
    with pytest.raises(OptionError, match=r"ZeroDivisionError: division by zero \(.*failing_controller.py:2\)"):
        compared(["failing_controller:wrong"], episodes=2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ids": "Bogus-v0"}, "unknown environment 'Bogus-v0'"),
        ({"ids": [3]}, "ids holds 3, expected names, as 'ArmReach-v0'"),
        ({"controllers": "bogus"}, "controller is 'bogus'"),
        ({"controllers": str}, "controllers holds <class 'str'>, expected names, as 'package.module:function'"),
        ({"budgets": []}, "budgets is empty"),
        ({"budgets": 0}, "budgets is 0"),
        ({"budgets": "100"}, "budgets is '100'"),
        ({"options": {}}, "options is {}, expected words key=value"),
        ({"options": "tolerance=0.1 tolerance=0.2"}, "keyword tolerance is given twice"),
    ],
)
def test_what_cannot_be_compared_is_named(given, message, tmp_path):
    with pytest.raises(OptionError, match=message):
        agents.benchmark(**{"ids": ["ArmReach-v0"], "controllers": ["zero"], "out": tmp_path, **given})


def test_one_name_and_one_budget_are_a_list_of_one(tmp_path):
    found = agents.benchmark("ArmReach-v0", "mppi", budgets=20, episodes=1, out=tmp_path, progress=str)
    assert [(cell["id"], cell["controller"], cell["budget"]) for cell in found] == [("ArmReach-v0", "mppi", 20)]


def test_a_folder_that_cannot_be_used_is_refused_before_the_first_cell(tmp_path):
    lines = list[str]()
    compared = partial(agents.benchmark, "ArmReach-v0", "zero", episodes=1, progress=lines.append)
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot write .*file/numbers\.json: .*; name another folder"):
        compared(out=tmp_path / "file")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "other.json").write_text('{"id": ')
    (tmp_path / "runs" / f"{Cell('ArmReach-v0', 'zero').name}.json").write_text('{"id": ')
    for name in ("zero", "other"):
        with pytest.raises(
            FileFormatError, match=f"{name}.*is not valid JSON: .*; remove it, and the same command runs it again"
        ):
            compared(out=tmp_path)
        next((tmp_path / "runs").glob(f"*{name}*")).unlink()
    assert not lines


def test_the_order_of_keywords_gives_no_other_cell():
    both = [
        cells(["TensegrityTerrain-v0"], ["zero"], (), None, text) for text in ("level=3 ground=ridge", "ground=ridge level=3")
    ]
    assert both[0] == both[1] and both[0][0].keywords == {"ground": "ridge", "level": 3}


def test_published_cells_are_of_every_id_and_each_has_episodes_or_a_reason():
    published = page.published()
    for name in ("zero", "random", "heuristic", "policy"):
        assert {cell["id"] for cell in published if cell["controller"] == name} == {task.id for task in tasks()}
    for cell in published:
        assert cell.get("reason") or len(cell["success"]) == len(cell["returns"]) == cell["episodes"]
    assert all(cell["options"] == " ".join(sorted(cell["options"].split())) for cell in published)
    names = [Cell(*(cell[key] for key in Cell._fields)).name for cell in published]
    assert len(set(names)) == len(names) and page.PUBLISHED.stat().st_size < 200_000


def test_learners_train_as_long_as_asked_or_as_their_id_says(tmp_path, monkeypatch):
    trainings = []

    def train(training):
        assert training.keywords == {"tolerance": 0.003}
        trainings.append(training.steps)
        raise MissingDependencyError("enough is known")

    monkeypatch.setattr("agents.learning.rl.train", train)
    for steps in (None, 5000):
        agents.benchmark(["ArmReach-v0"], ["ppo"], out=tmp_path, training_steps=steps, options="tolerance=0.003", progress=str)
    own = system_of_task("ArmReach-v0").learning_of("ArmReach-v0", "ppo")["steps"]
    assert trainings == [own, own, own, 5000, 5000, 5000]


def test_imitation_is_a_policy_file_that_plays(tmp_path):
    pytest.importorskip("torch")
    cell = Cell("ArmReach-v0", "imitation", 100)
    found = run_cell(cell, Settings(4, tmp_path))
    assert found["training_steps"] > 300 and found["simulated"] == 0 and found["sees"] == "sensors"
    again = run_cell(Cell("ArmReach-v0", str(tmp_path / "policies" / f"{cell.name}.npz")), Settings(4, tmp_path))
    assert again["returns"] == found["returns"]


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
