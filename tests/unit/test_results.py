"""Committed results: their commands are there, their tables come from their numbers, and they stay small. Published figures:
every text equals its results, and every quotation is there. Benchmarks compare like with like and in contact; stress tests
run whole episodes; documents name what can be installed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from helpers import load_script

from agents.transfer_study.document import read_study
from agents.transfer_study.report import markdown
from softgym_envs.core.files import read_json, read_toml
from softgym_envs.systems import systems, tasks

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
TABLES = load_script("experiments/tables.py")
STUDIES = {path.parent.name: read_json(path) for path in RESULTS.glob("*/numbers.json") if "study" in read_json(path)}
OURS = ("scripts", "experiments", "benchmarks", "reproductions")


def entries(value: Any) -> Iterator[str]:
    """Texts called "command" anywhere in a document."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key == "command" and isinstance(inner, str):
            yield inner
        yield from entries(inner)


@cache
def commands() -> dict[str, Path]:
    """Command -> a file that names it: in JSON and, between backticks or indented, in Markdown."""
    found: dict[str, Path] = {}
    for path in sorted(RESULTS.rglob("*.json")):
        found.update(dict.fromkeys(entries(json.loads(path.read_text(encoding="utf-8"))), path))
    for path in (*sorted(RESULTS.rglob("*.md")), *sorted((ROOT / "reproductions").rglob("*.md"))):
        text = path.read_text(encoding="utf-8")
        told = re.findall(r"`((?:python|softgym-envs) [^`]+)`|^ {4}((?:python|softgym-envs) .+)$", text, re.MULTILINE)
        found.update(dict.fromkeys((one or other for one, other in told), path))
    return found


def problems(command: str) -> list[str]:
    """What a command names and is not there."""
    words = shlex.split(command, comments=True)
    if words[0] == "python":
        words = words[1:]
    script = ROOT / words[0] if words[0] != "softgym-envs" else ROOT / "scripts" / f"{words[1]}.py"
    if not script.exists():
        return [f"{words[0]} {words[1] if len(words) > 1 else ''}".strip()]
    source = script.read_text(encoding="utf-8")
    options = [word[2:].partition("=")[0].replace("-", "_") for word in words if word.startswith("--")]
    missing = [f"--{name}" for name in options if not re.search(rf"\b{name}: |[\"']--{name.replace('_', '-')}\b", source)]
    files = [word for word in words if word.startswith(tuple(f"{folder}/" for folder in OURS))]
    return missing + [word for word in files if not (ROOT / word).exists()]


def test_commands_name_scripts_and_options_that_are_there() -> None:
    wrong = {f"{path}: {command}": found for command, path in commands().items() if (found := problems(command))}
    assert not wrong


def test_commands_that_are_gone_are_told() -> None:
    assert problems("python experiments/none.py --seeds 20") == ["experiments/none.py --seeds"]
    assert problems("python scripts/transfer.py --study prism --mpc --starts 3") == ["--study", "--mpc"][1:]
    assert problems("softgym-envs fly") == ["softgym-envs fly"]
    assert problems("softgym-envs transfer experiments/none.toml") == ["experiments/none.toml"]
    assert problems("python benchmarks/vine.py") == []


def test_every_result_of_a_study_has_its_file_and_the_other_way_round() -> None:
    assert STUDIES and set(STUDIES) == {path.stem for path in (ROOT / "experiments").glob("*.toml")}


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_the_study_file_is_the_study_that_ran_and_its_table_comes_from_its_numbers(name: str) -> None:
    """Thresholds were written before the first run."""
    study, there = read_study(ROOT / "experiments" / f"{name}.toml").study, STUDIES[name]["study"]
    now = json.loads(json.dumps(vars(study), default=vars))
    assert {key: now[key] for key in there} == there
    found = TABLES.summary(STUDIES[name])
    assert (RESULTS / name / "table.md").read_text(encoding="utf-8") == markdown(found)
    assert STUDIES[name]["scores"] == TABLES.scores(found)
    assert {run["condition"] for run in STUDIES[name]["runs"]} <= set(study.conditions)


def test_results_are_small_and_of_the_agreed_kinds() -> None:
    files = [path for path in RESULTS.rglob("*") if path.is_file() and path.suffix != ".csv"]
    assert sum(path.stat().st_size for path in files) <= 5_000_000
    assert {path.name for path in files} <= {
        "numbers.json", "table.md", "picture.png", "fit.toml", "mujoco_model.toml", "fit.json", "fit.npz",
    }  # fmt: skip


CLAIMS = load_script("experiments/claims.py")
ENTRIES = {name: entry for name, entry in CLAIMS.claims().items() if name != "about"}


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_published_figures_are_those_of_the_results(name: str) -> None:
    numbers, entry = CLAIMS.numbers_of(name), ENTRIES[name]
    wrong = [CLAIMS.differs(figure, numbers) for figure in entry["figures"]]
    for figure in entry["figures"]:
        for file, words in figure.get("quoted", {}).items():
            wrong += [CLAIMS.differs(figure | {"text": words}, numbers)]
            wrong += [f"{file} does not quote {words!r}"] * (words not in (ROOT / file).read_text(encoding="utf-8"))
    assert not [text for text in wrong if text]
    assert entry["figures"] and all(len(figure["what"]) <= 80 for figure in entry["figures"])
    assert all((ROOT / module).exists() for module in entry["modules"])
    assert entry["seconds"] <= 60 or "OUT" not in entry["command"]


def test_the_page_is_written_from_the_claims_and_runs_take_15_minutes_in_all() -> None:
    assert sum(entry["seconds"] for entry in ENTRIES.values() if "OUT" in entry["command"]) <= 15 * 60
    assert CLAIMS.PAGE.read_text(encoding="utf-8") == CLAIMS.page(), "make claims"


def test_a_text_that_is_not_the_value_is_told() -> None:
    figure = {"what": "score", "text": "101 % [98, 103]", "value": '[100 * x for x in n["score"]]'}
    assert CLAIMS.differs(figure, {"score": [1.0054, 0.9802, 1.0307]}) == ""
    assert "results [99.0, 98.0, 103.0]" in CLAIMS.differs(figure, {"score": [0.99, 0.98, 1.03]})
    assert CLAIMS.differs(figure, {"score": [0.99, 0.98, 1.03]}, tolerance=0.03) == ""
    assert [number for number, _ in CLAIMS.told("10 000 steps, -9 % [-24, 5], 3e-14, mismatch2")] == [10000, -9, -24, 5, 3e-14]


def test_names_and_comments_do_not_make_a_figure_stale_and_arithmetic_does(tmp_path: Path) -> None:
    def digest(source: str) -> str:
        (tmp_path / "module.py").write_text(source, encoding="utf-8")
        return CLAIMS.digest([str(tmp_path)])

    given = digest('"""Sum."""\nfrom a import b\n\ndef f(x, y):\n    return x + 2.0 * y\n')
    assert digest("from c import d\n\ndef g(u, v):  # other names\n    return u + 2.0 * v\n") == given
    assert digest("def f(x, y):\n    return x + 2.5 * y\n") != given != digest("def f(x, y):\n    return y + 2.0 * x\n")


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
