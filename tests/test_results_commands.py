"""Every command that stands with a committed number names a script and options that are there."""

import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("scripts", "studies", "benchmarks")


def entries(value: Any) -> Iterator[str]:
    """Texts called "command" anywhere in a document."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if key == "command" and isinstance(inner, str):
            yield inner
        yield from entries(inner)


@cache
def commands() -> dict[str, Path]:
    """Command -> a file of results that names it: in JSON and, between backticks or indented, in Markdown."""
    found: dict[str, Path] = {}
    for path in sorted((ROOT / "results").rglob("*.json")):
        found.update(dict.fromkeys(entries(json.loads(path.read_text(encoding="utf-8"))), path))
    for path in sorted((ROOT / "results").rglob("*.md")):
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


@pytest.mark.parametrize("command", sorted(commands()))
def test_a_command_names_a_script_and_options_that_are_there(command):
    assert problems(command) == [], f"{commands()[command]}: {command}"


def test_commands_that_are_gone_are_told():
    assert problems("python scripts/study_block.py --seeds 20") == ["scripts/study_block.py --seeds"]
    assert problems("python scripts/transfer.py --study prism --mpc --starts 3") == ["--study", "--mpc"][1:]
    assert problems("softgym-envs fly") == ["softgym-envs fly"]
    assert problems("softgym-envs transfer studies/none/study.toml") == ["studies/none/study.toml"]
    assert problems("python benchmarks/vine.py") == []
