"""Documents and commands say what is true: code runs, links lead somewhere, commands are understood."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tyro
from helpers import load_script, run

from softgym_envs.systems import system, systems

ROOT = Path(__file__).resolve().parents[2]
SUBCOMMANDS = sorted((ROOT / "scripts").glob("*.py"))


# --- documents ---------------------------------------------------------------------------------------------------------


def python_blocks(path):
    return re.findall(r"^```python\n(.*?)^```$", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_readme_shows_code():
    assert python_blocks(ROOT / "README.md"), "README.md has no ```python block: its first screen must show code that runs"


@pytest.mark.parametrize(
    "page", ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
)
def test_code_of_the_documents_runs(page, tmp_path):
    """All blocks of a page, one after the other in one program, away from this folder."""
    code = "\n".join(python_blocks(ROOT / page))
    (tmp_path / "page.py").write_text(code, encoding="utf-8")
    checkout = {"PYTHONPATH": str(ROOT)} if "from reproductions" in code else {}  # which is not installed
    run(sys.executable, "page.py", cwd=tmp_path, MPLBACKEND="Agg", **checkout)


def test_links_of_the_documents_lead_somewhere():
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
            assert target.startswith(("http://", "https://", "mailto:")) or (path.parent / target).exists(), (
                f"{path.name}: {target}"
            )


def test_generated_pages_are_up_to_date():
    run(sys.executable, "docs/generate.py", "--check", cwd=ROOT)


def test_versions_agree():
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


# --- commands ----------------------------------------------------------------------------------------------------------


def test_every_subcommand_lists_its_options():
    """Each file of scripts/ is a subcommand of the command, with `Args` and `main`."""
    said = run(sys.executable, "scripts", cwd=ROOT)
    for path in SUBCOMMANDS:
        if not path.name.startswith("_") and "\ndef main(" in path.read_text(encoding="utf-8"):
            subcommand = path.stem.removesuffix("_file")
            assert f"  {subcommand} " in said
            assert "usage: softgym-envs" in run(sys.executable, "scripts", subcommand, "--help", cwd=ROOT, COLUMNS="200")
    unknown = subprocess.run([sys.executable, "scripts", "grow"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert unknown.returncode == 2 and "unknown subcommand 'grow'" in unknown.stderr
    words = [sys.executable, "scripts", "identify", "block", "--data", "a.csv", "--data", "b.csv"]
    twice = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert twice.returncode == 2 and "--data is given twice" in twice.stderr  # b.csv alone was fitted


def documented_commands():
    """(page, subcommand, arguments) of every command of ours that a page shows, in blocks and within sentences."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    pages += [*(ROOT / "results").rglob("*.md"), *(ROOT / "experiments").rglob("*.md")]
    for path in pages:
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        shown = re.findall(
            r"^ *((?:softgym-envs |python scripts/)\w.*)$|`((?:softgym-envs |python scripts/)\w[^`]*)`", text, re.MULTILINE
        )
        for line in (" ".join(pair).replace("<system>", "vine").replace("\n", " ").strip() for pair in shown):
            if "<" not in line and "..." not in line and "`" not in line:
                subcommand, *given = shlex.split(line.removeprefix("python "), comments=True)[line.startswith("softgym") :]
                yield path.relative_to(ROOT).as_posix(), Path(subcommand).stem, tuple(given)


def test_commands_of_the_documents_are_understood():
    """Subcommands, flags and values are those that there are: a page once told of `list <system> --states`, which was none."""
    commands = set(documented_commands())
    assert len(commands) > 60 and {subcommand for _, subcommand, _ in commands} >= {
        "list",
        "record",
        "identify",
        "train",
        "transfer",
        "play",
    }
    for page, subcommand, given in sorted(commands):
        try:
            file = "inspect_file" if subcommand == "inspect" else subcommand
            tyro.cli(load_script(f"scripts/{file}.py").Args, args=given)
        except SystemExit:
            pytest.fail(f"{page}: {subcommand} {' '.join(given)}")


def test_list_tells_what_a_ground_truth_is_mapped_to():
    said = run(sys.executable, "scripts", "list", "block", "--states", cwd=ROOT)
    assert re.search(r"state\n  x +m\n", said) and re.search(r"control\n  force_x +N\n", said)


def test_list_names_every_system_and_id():
    said = run(sys.executable, "scripts", "list", cwd=ROOT)
    for found in systems().values():
        assert f"{found.name}: {found.summary}" in said
        assert all(task.id in said for task in found.tasks)


@pytest.mark.parametrize("name", ["tensegrity", "vine", "block", "box"])
def test_the_file_on_a_systems_page_is_read(name: str, tmp_path: Path) -> None:
    text = (ROOT / "docs/reference/systems" / f"{name}.md").read_text().split("```toml\n")[1].split("```")[0]
    (tmp_path / "mine.toml").write_text(text)
    engine = system(name).simulator(system(name).model(str(tmp_path / "mine.toml"), None))
    states, status = engine.rollout(engine.initial_state(1), np.zeros((1, 5, engine.nu)))
    assert not status.any() and np.isfinite(states).all()
