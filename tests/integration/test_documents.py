"""Documents and commands say what is true: code runs, links lead somewhere, commands are understood. The site: built strictly,
with a page per id, links that lead somewhere, and nothing from elsewhere. The notebooks: they run, and are kept with what
they print and draw."""

import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import numpy as np
import pytest
import tyro
from helpers import IDS, ROOT, load_script, run

from softgym_envs.systems import system, systems

SUBCOMMANDS = sorted((ROOT / "scripts").glob("*.py"))


# --- documents ---------------------------------------------------------------------------------------------------------


def python_blocks(path):
    return re.findall(r"^```python\n(.*?)^```$", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_readme_shows_code():
    assert python_blocks(ROOT / "README.md"), "README.md has no ```python block: its first screen must show code that runs"


@pytest.mark.parametrize(
    "page",
    sorted(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
        if python_blocks(path)
    ),
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


def test_every_subcommand_lists_its_options(monkeypatch, capsys):
    """Each file of scripts/ is a subcommand of the command, with `Args` and `main`."""
    said = run(sys.executable, "scripts", cwd=ROOT)
    assert "usage: softgym-envs list" in run(sys.executable, "scripts", "list", "--help", cwd=ROOT, COLUMNS="200")
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    monkeypatch.setenv("COLUMNS", "200")
    for path in SUBCOMMANDS:
        if not path.name.startswith("_") and "\ndef main(" in path.read_text(encoding="utf-8"):
            subcommand = path.stem.removesuffix("_file")
            assert f"  {subcommand} " in said
            with pytest.raises(SystemExit) as ended:
                load_script("scripts/__main__.py").main([subcommand, "--help"])
            assert not ended.value.code and f"usage: softgym-envs {subcommand}" in capsys.readouterr().out
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


class Page(HTMLParser):
    """Links, files and anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.anchors = [], [], {""}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        loads = {"img": "src", "script": "src", "iframe": "src", "link": "href"}
        if (address := given.get(loads.get(tag, ""))) and given.get("rel") != "canonical":
            self.loaded.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Folder of the site; a warning fails the build."""
    folder = tmp_path_factory.mktemp("site")
    run(sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder), cwd=ROOT, NO_MKDOCS_2_WARNING="1")
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text("utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_id_has_a_page_and_a_place_in_the_gallery(site, pages):
    for env_id in IDS:
        assert f"environments/{env_id}.html" in pages[site / "index.html"].links
        text = (site / f"environments/{env_id}.html").read_text("utf-8")
        for heading in ("Task", "Parameters", "Keywords of every id", "Differences of ground truths"):
            assert f">{heading}<" in text, (env_id, heading)
        assert "Reward terms: " in text and ">policy</td>" in text and "<img" in text, env_id


def test_llms_txt_lists_every_page_with_a_sentence(site, pages):
    listed = dict(re.findall(r"^- \[.+?\]\((\S+?)\): (.+)$", (site / "llms.txt").read_text("utf-8"), re.MULTILINE))
    assert listed.keys() == {path.relative_to(site).as_posix() for path in pages}


def test_links_of_the_site_lead_somewhere(site, pages):
    for path, page in pages.items():
        for link in (*page.links, *page.loaded):
            address = urlsplit(link)
            if not address.scheme:
                found = (path.parent / unquote(address.path)).resolve() if address.path else path
                assert found.is_file(), f"{path.relative_to(site)}: {link}"
                assert found not in pages or unquote(address.fragment) in pages[found].anchors, f"{path}: {link}"


def test_the_site_loads_nothing_from_elsewhere(pages):
    for path, page in pages.items():
        assert not [address for address in page.loaded if urlsplit(address).netloc], path


def test_the_index_names_every_page_of_the_documentation():
    """It is the index on GitHub, and gives the navigation of the site."""
    named = set(re.findall(r"\]\(([^)#]+\.md)\)", (ROOT / "docs/README.md").read_text("utf-8")))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages - {"README.md", "index.md"} <= named


SCRIPT = load_script("docs/run_notebooks.py")
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
LARGEST = 150_000
"""[bytes] Size of a notebook."""


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_with_its_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert 8 <= len(notebook.cells) <= 14 and path.stat().st_size < LARGEST
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "python docs/run_notebooks.py"
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook))
    assert not [output for output in outputs(notebook) if output.output_type == "error"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    """From its first cell, in an empty folder; pictures and prints of the same cells as those that are kept."""
    kept, fresh = nbformat.read(path, as_version=4), SCRIPT.executed(path, tmp_path)
    for before, now in zip(kept.cells, fresh.cells, strict=True):
        kinds = [[output.output_type for output in cell.get("outputs", ())] for cell in (before, now)]
        assert kinds[0] == kinds[1], before.source
