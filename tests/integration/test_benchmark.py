"""The controller benchmark: cells are reproducible and keep their budgets, a user's own controller enters by one line."""

import sys
from pathlib import Path

import pytest
from helpers import run

import agents
from agents.benchmark_study import page
from agents.benchmark_study.case import Cell
from agents.benchmark_study.run import Settings, run_cell
from softgym_envs.core.errors import OptionError
from softgym_envs.core.files import read_json
from softgym_envs.systems import tasks

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


def test_what_a_controller_cannot_do_is_an_empty_cell_with_a_reason(tmp_path):
    found = run_cell(Cell("VineGrow-v0", "ilqg", 100), Settings(1, tmp_path))
    assert set(found) == {"reason"} and "per executed one" in found["reason"]
    with pytest.raises(OptionError, match="controller is 'lqr', allowed are zero"):
        agents.benchmark(["ArmReach-v0"], ["lqr"], out=tmp_path)


def test_what_a_heuristic_reads_is_noted(tmp_path):
    assert run_cell(Cell("ArmReach-v0", "heuristic"), Settings(1, tmp_path))["sees"] == "sensors"
    assert run_cell(Cell("SlidingBlock-v0", "heuristic"), Settings(1, tmp_path))["sees"] == "full state"


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


def test_published_cells_are_of_every_id_and_each_has_episodes_or_a_reason():
    cells = page.published()
    for name in ("zero", "random", "heuristic", "policy"):
        assert {cell["id"] for cell in cells if cell["controller"] == name} == {task.id for task in tasks()}
    for cell in cells:
        assert cell.get("reason") or len(cell["success"]) == len(cell["returns"]) == cell["episodes"]
    names = [Cell(*(cell[key] for key in Cell._fields)).name for cell in cells]
    assert len(set(names)) == len(names) and page.PUBLISHED.stat().st_size < 200_000


def test_imitation_is_a_policy_file_that_plays(tmp_path):
    pytest.importorskip("torch")
    cell = Cell("ArmReach-v0", "imitation", 100)
    found = run_cell(cell, Settings(4, tmp_path))
    assert found["training_steps"] > 300 and found["simulated"] == 0 and found["sees"] == "sensors"
    again = run_cell(Cell("ArmReach-v0", str(tmp_path / "policies" / f"{cell.name}.npz")), Settings(4, tmp_path))
    assert again["returns"] == found["returns"]
