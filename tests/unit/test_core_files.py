"""Files appear whole or not at all; what cannot be read ends in one sentence; provenance names code and versions. Report
pages: one file, nothing fetched from elsewhere, text escaped. `load`: a path that names nothing is a bad option; an error
inside the module it names is that error."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Literal

import pytest

from softgym_envs.core import files
from softgym_envs.core.errors import FileFormatError, OptionError
from softgym_envs.core.files import (
    commit_of,
    git_commit,
    number_in,
    provenance,
    read_json,
    read_toml,
    write_atomically,
    write_json,
)
from softgym_envs.core.task import load
from softgym_envs.core.typed import typed
from softgym_envs.data.page import Section, embed, embed_image, new_figure, plain_axes, render_sections


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "fit.toml"
    write_atomically(path, b"before")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"half")
    assert path.read_bytes() == b"before"
    assert [file.name for file in tmp_path.iterdir()] == ["fit.toml"]


def test_json_round_trip_refuses_what_json_has_not(tmp_path):
    write_json(tmp_path / "new" / "a.json", {"x": [1.5, None]})
    assert read_json(tmp_path / "new" / "a.json") == {"x": [1.5, None]}
    with pytest.raises(ValueError):
        write_json(tmp_path / "b.json", {"x": float("nan")})
    assert not (tmp_path / "b.json").exists()


@pytest.mark.parametrize(
    ("content", "message"), [(None, "cannot read"), ("{", "is not valid JSON"), ("[1]", "holds no JSON object")]
)
def test_unreadable_json_ends_in_one_sentence(tmp_path, content, message):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(FileFormatError, match=message):
        read_json(path)


@pytest.mark.parametrize(("content", "message"), [(None, "cannot read"), ("a = ", "is not valid TOML")])
def test_unreadable_toml_ends_in_one_sentence(tmp_path, content, message):
    path = tmp_path / "a.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(FileFormatError, match=message):
        read_toml(path)


def test_provenance_names_code_and_versions():
    found = provenance(command="demo")
    assert found["command"] == "demo" and found["commit"] == git_commit()
    assert re.fullmatch(r"version [0-9.]+|[0-9a-f]{40}(\+changes)?", git_commit())
    assert "numpy" in found["versions"] and found["date"].endswith("+00:00")


@pytest.mark.parametrize("tracked", [False, True])
def test_a_copy_inside_of_another_repository_records_its_version(tmp_path, tracked):
    """The commit of the user's repository was recorded as that of this code."""
    copy = tmp_path / "mine" / "softgym_envs" / "core" / "files.py"
    copy.parent.mkdir(parents=True)
    shutil.copy(files.__file__, copy)
    (tmp_path / "own.txt").write_text("the user's own file")
    who = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    for command in (["init", "-q"], ["add", "-A" if tracked else "own.txt"], [*who, "commit", "-qm", "mine"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    assert commit_of(copy) == f"version {version('softgym-envs')}"


def test_a_source_tree_records_its_commit(tmp_path):
    copy = tmp_path / "softgym_envs" / "core" / "files.py"
    copy.parent.mkdir(parents=True)
    shutil.copy(files.__file__, copy)
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=me", "-c", "user.email=me@x", "commit", "-qm", "ours"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    found = commit_of(copy)
    assert re.fullmatch(r"[0-9a-f]{40}", found)
    copy.write_text("changed")
    assert commit_of(copy) == found + "+changes"


@pytest.mark.parametrize("value", [1e300, -1e13, 10**20])
def test_numbers_of_absurd_size_are_refused(value):
    with pytest.raises(FileFormatError, match=r"mass is .*, expected a number of at most 1e\+12 in size"):
        number_in("mass", value)
    assert number_in("stiffness", 2e11) == 2e11


@pytest.mark.parametrize(
    ("value", "hint", "said"),
    [
        (float("nan"), float, "a finite number"),
        (True, float, "a finite number"),
        (10**400, float, "a finite number"),
        (1.0, int, "a whole number"),
        (True, int, "a whole number"),
        (1, bool, "true or false"),
        ("fast", Literal["slow", 3], "'slow' or 3"),
        ([1, "a"], tuple[int, ...], "a whole number"),
        (3, tuple[int, ...], "a list, each entry a whole number"),
        ({"a": "b"}, dict[str, float], "a finite number"),
        ([], Mapping[str, float], "a table"),
        ("a", float | Literal["runs"] | None, "a finite number or 'runs' or nothing"),
    ],
)
def test_values_of_another_type_are_refused_by_name(value, hint, said):
    with pytest.raises(OptionError, match=f"^entry.* is .*, expected {re.escape(said)}$"):
        typed("entry", value, hint)


def test_a_page_holds_everything_and_escapes_text(tmp_path):
    figure = new_figure(3, 2)
    plain_axes(figure.add_subplot())
    (tmp_path / "dot.gif").write_bytes(b"GIF89a")
    sections = (
        Section("Table <1>", "a & b", ("name", "x"), (("one", "1"), ("two", "2"))),
        Section("Pictures", images=(embed(figure), embed_image(tmp_path / "dot.gif"))),
        Section("Links", links=(("fit", "fit/report.html"),)),
    )
    page = render_sections("A title", "beneath", sections)
    assert "Table &lt;1&gt;" in page and "a &amp; b" in page and "<title>A title</title>" in page
    assert page.count("<tr>") == 3 and page.count("<img ") == 2 and 'href="fit/report.html"' in page
    assert not re.search(r"(src|href)=\"(?!data:|fit/)", page) and "<script" not in page
    assert "data:image/svg+xml;base64," in page and "data:image/gif;base64,R0lGODlh" in page


def test_equal_figures_are_equal_text():
    def draw():
        figure = new_figure(3, 2)
        figure.add_subplot().plot([0, 1], [1, 0])
        return embed(figure)

    assert draw() == draw()


def test_a_name_that_is_missing_is_an_error(tmp_path):
    jinja2 = pytest.importorskip("jinja2")
    from softgym_envs.data.page import render_page

    (tmp_path / "page2.html").write_text('{% extends "page.html" %}{% block body %}{{ nothing }}{% endblock %}')
    with pytest.raises(jinja2.UndefinedError):
        render_page(tmp_path / "page2.html")


@pytest.fixture
def package(monkeypatch, tmp_path):
    def write(text):
        (tmp_path / "made_up_system.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "made_up_system", raising=False)
        return "made_up_system:Task"

    return write


def test_it_loads(package):
    assert load(package("Task = 3")) == 3


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("import math\nmath.no_such_function", AttributeError, "no_such_function"),
        ("import no_such_library", ModuleNotFoundError, "no_such_library"),
        ("import made_up_system_of_others", ModuleNotFoundError, "made_up_system_of_others"),
        ("int('x')", ValueError, "invalid literal"),
    ],
)
def test_errors_inside_the_module_are_passed_on(package, text, error, message):
    with pytest.raises(error, match=message) as caught:
        load(package(text))
    assert not isinstance(caught.value, OptionError)


@pytest.mark.parametrize(
    "path",
    ["made_up_system:task", "no_such_package:Task", "made_up_system.part:Task", "made_up_system", ":Task", "", ".system:Task"],
)
def test_bad_paths(package, path):
    package("Task = 3")
    with pytest.raises(OptionError, match="is not the path of an object, expected 'package"):
        load(path)
