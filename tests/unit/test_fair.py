"""Benchmarks compare like with like and in contact; stress tests run whole episodes; documents name what can be installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers import load_script

from softgym_envs.core.files import read_json, read_toml
from softgym_envs.systems import systems, tasks

ROOT = Path(__file__).parents[2]


def test_the_vine_and_its_mujoco_model_are_timed_as_one_robot_that_leans_on_something():
    """The same links, no muscles in either, and the tube touches in most control steps of both."""
    pytest.importorskip("mujoco")
    pytest.importorskip("osqp")
    bench = load_script("benchmarks/vine.py")
    ours, theirs = bench.VineSimulator(bench.LEANING, bending="linear"), bench.MujocoVine(bench.LEANING, bending="linear")
    assert ours.model == theirs.model == bench.LEANING and bench.LEANING.num_sections == 0
    assert ours.control_names == theirs.control_names == ("growth",)
    assert theirs.mj_model().nu == 1, "the MuJoCo model computes more than growth"
    assert all(bench.rollout_run(side, 0.1)[1]() > 0.5 for side in (ours, theirs))


def test_the_committed_ratio_is_of_a_robot_in_contact():
    speed = read_json(ROOT / "results/vine_speed/numbers.json")["speed"]
    shares = speed["mujoco_model_over_lab_model"]["share_of_control_steps_in_contact"]
    assert set(shares) == {"lab_model", "mujoco_model"} and min(shares.values()) > 0.5


def test_the_committed_speeds_are_what_was_asked():
    """The block is five times as fast as its MuJoCo model; one id takes more than 40 us beside the physics."""
    speed = read_json(ROOT / "results/task_cards/numbers.json")["SlidingBlock-v0"]["speed"]
    assert speed["native"]["single"] >= 5 * speed["mujoco"]["single"]
    steps = read_json(ROOT / "results/step_speed/numbers.json")["rows"]
    assert {row["id"] for row in steps} == {task.id for task in tasks()}
    slow = {row["id"] for row in steps if row["beside"] > 40.0}
    assert slow <= {"LoopIdentify-v0"}  # its estimator steps the loop itself


def test_the_stress_test_runs_whole_episodes_and_says_when_it_did_not():
    stress = load_script("tests/stress.py")
    tally = stress.Tally(stress.Case("TensegrityCrawl-v0", 3, "uniform", {}, False))
    stress.run(tally, 4, seed=0)  # two control steps were enough for four steps of rows
    assert tally.steps == 3 * 150 and tally.episodes == 3 and tally.not_finite == tally.out_of_space == 0
    assert stress.figures_of([tally], [1.0], 1.0, stress.Args())["passed"]
    tally.episodes = 2
    assert not stress.figures_of([tally], [1.0], 1.0, stress.Args())["passed"]


def test_every_system_is_stressed():
    stress = load_script("tests/stress.py")
    assert {case.env_id for case in stress.cases("")} == {task.id for task in tasks()}
    assert set(stress.CASES) <= set(systems())


def test_the_committed_stress_test_is_of_whole_episodes():
    found = read_json(ROOT / "results/stress_test/numbers.json")
    assert all(case["episodes"] >= case["num_envs"] for case in found["cases"])


def test_readme_and_install_page_say_how_to_install_every_extra():
    readme, page = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/how-to/install.md"))
    extras = read_toml(ROOT / "pyproject.toml")["project"]["optional-dependencies"]
    section = re.search(r"^## Install\n(.*?)^## ", readme, re.MULTILINE | re.DOTALL)[1]
    assert all("pip install ." in text and 'pip install ".[all]"' in text for text in (section, page))
    listed = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert listed <= set(extras) and {"mujoco", "learn", "control", "sysid", "report", "scripts"} <= listed
    assert "video" in re.search(r"\[(.*)\]", extras["all"][0])[1].split(","), "RecordVideo needs moviepy"


QUESTIONS = [
    "What", "Why", "Show me", "Install", "First result", "My robot", "My data", "My learner", "How good", "How to cite",
]  # fmt: skip


def test_readme_is_one_page_with_every_id_and_small_pictures():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 700 and len(text.splitlines()) <= 110
    assert set(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)) == {task.id for task in tasks()}
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert len(pictures) == 3 and all((ROOT / name).stat().st_size <= 400_000 for name in pictures)
    assert re.findall(r"^\| \*\*([\w ]+)\??\*\* \| \S", text, re.MULTILINE) == QUESTIONS


def test_versions_below_which_weights_alone_cannot_be_read_are_not_installed():
    """torch.load(weights_only=True) could be bypassed before 2.6 (CVE-2025-32434)."""
    extras = read_toml(ROOT / "pyproject.toml")["project"]["optional-dependencies"]
    wanted = [re.fullmatch(r"torch>=(\d+)\.(\d+)", r) for rs in extras.values() for r in rs if re.match(r"torch\b", r)]
    assert wanted and all(found and (int(found[1]), int(found[2])) >= (2, 6) for found in wanted)
