"""Files appear whole or not at all; what cannot be read ends in one sentence; provenance names code and versions."""

import re
import shutil
import subprocess
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
from softgym_envs.core.typed import typed


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
