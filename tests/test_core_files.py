"""Files appear whole or not at all; what cannot be read ends in one sentence; provenance names code and versions."""

import re
import shutil
import subprocess
from importlib.metadata import version

import pytest

from softgym_envs.core import files
from softgym_envs.core.errors import FileFormatError
from softgym_envs.core.files import commit_of, git_commit, provenance, read_json, read_toml, write_atomically, write_json


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
