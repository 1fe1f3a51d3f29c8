"""Committed results: their commands are there, their tables come from their numbers, and they stay small."""

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
from softgym_envs.core.files import read_json

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
