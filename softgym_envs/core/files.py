"""Files that appear whole or not at all, and where their numbers come from: code, versions, machine, date."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from .errors import FileFormatError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PACKAGES = ("softgym-envs", "numpy", "scipy", "warp-lang", "mujoco")
"""Distributions whose versions decide numbers."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a whole file or nothing: to a temporary file beside it, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json(path: Path, document: Any) -> None:
    """Write a whole JSON file or nothing; NaN and infinity are refused (`ValueError`), as JSON has none."""
    write_atomically(path, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())


def read_json(path: str | Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        FileFormatError: No such file, not JSON, or no object.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise FileFormatError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise FileFormatError(f"{path} holds no JSON object")
    return document


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        FileFormatError: No such file, or not TOML.
    """
    try:
        return parse_toml(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} is not valid TOML: {error}") from error


def parse_toml(text: str) -> dict[str, Any]:
    """A TOML document; `ValueError` if it is none."""
    return tomllib.loads(text)


def provenance(**more: str) -> dict[str, str]:
    """Where numbers come from: what is given, then commit, versions, Python and date.

    >>> list(provenance(command="demo"))
    ['command', 'commit', 'versions', 'python', 'date']
    """
    return {
        **more,
        "commit": git_commit(),
        "versions": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


@cache
def git_commit() -> str:
    """Commit of this source tree, "+changes" if it is not clean, "unknown" outside a repository."""

    def git(*arguments: str) -> str:
        found = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=True
        )
        return found.stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
