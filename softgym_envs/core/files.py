"""Atomic writing and checked reading of files, and the provenance of their numbers: code, versions, date."""

from __future__ import annotations

import datetime
import errno
import importlib.metadata
import json
import math
import os
import platform
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from .errors import FileFormatError, OptionError, StorageError, StructureError, shown
from .typed import typed

T = TypeVar("T")
PACKAGES = ("softgym-envs", "numpy", "scipy", "warp-lang", "mujoco")
"""Distributions whose versions affect results."""


MOST_BYTES = {"TOML": 4 * 2**20, "JSON": 256 * 2**20, "CSV": 2**30}
"""A larger file is refused before it is read; TOML is read at about 1 MB/s."""
LARGEST_NUMBER = 1e12
"""Largest number [SI] in a description of a robot, or among parameters."""
DEEPEST = 50
"""Largest nesting of tables and lists."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a whole file or nothing: to a temporary file beside it, then rename.

    Raises:
        StorageError: The file cannot be written, or a folder or a device is in its place.
    """
    try:
        if path.exists() and not path.is_file():
            raise StorageError(f"cannot write {path}: there is something else of that name; name another file")
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
    except StorageError:
        raise
    except OSError as error:
        space = "free some space there, or " if error.errno == errno.ENOSPC else ""
        raise StorageError(f"cannot write {path}: {error.strerror or error}; {space}name another folder") from error


def write_json(path: Path, document: Any) -> None:
    """Write a whole JSON file or nothing; NaN and infinity are refused (`ValueError`), as JSON has none."""
    write_atomically(path, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())


def read_json(path: str | Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        FileFormatError: No such file, not JSON (NaN and doubled names are none), no object, or too large or deep.
    """
    return json_object(path, read_text(path, "JSON"))


def json_object(where: str | Path, text: str) -> dict[str, Any]:
    """The JSON object of a text that stands at `where`.

    Raises:
        FileFormatError: As `read_json`.
    """
    try:
        document = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{where} is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise FileFormatError(f"{where} holds no JSON object")
    _check_depth(where, document)
    return document


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        FileFormatError: No such file, not TOML, or too large or deep.
    """
    text = read_text(path, "TOML")
    try:
        document = parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is not valid TOML: {error}") from error
    _check_depth(path, document)
    return document


def read_text(path: str | Path, kind: str) -> str:
    """A text file in UTF-8, with or without byte order mark, of at most `MOST_BYTES[kind]`.

    CSV of other programs may also be UTF-16 with its mark, or Windows-1252.

    Raises:
        FileFormatError: No such file, too large, or in another encoding.
    """
    try:
        size = Path(path).stat().st_size
        if not Path(path).is_file():
            raise FileFormatError(f"cannot read {path}: it is no file")
        if size > MOST_BYTES[kind]:
            raise FileFormatError(f"{path} has {size / 2**20:.0f} MB, a {kind} file may have {MOST_BYTES[kind] / 2**20:.0f} MB")
        return _decoded(Path(path).read_bytes(), kind)
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line, byte = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        other = "UTF-16" if error.object[:2] in (b"\xff\xfe", b"\xfe\xff") else "Latin-1 or Windows-1252"
        raise FileFormatError(
            f"{path} is not UTF-8 text: byte 0x{byte:02x} in line {line} (is it {other}?); save it as {kind} in UTF-8"
        ) from error
    except ValueError as error:  # a null character in the path, or one of ours
        raise error if isinstance(error, FileFormatError) else FileFormatError(f"cannot read {shown(path)}: {error}") from error


def _decoded(content: bytes, kind: str) -> str:
    """Text with one sign for the end of a line."""
    if kind == "CSV" and content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = content.decode("utf-16")
    elif kind == "CSV" and b"\0" not in content[:4096]:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = content.decode("cp1252", errors="replace")
    else:
        text = content.decode("utf-8-sig")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def check_entries(where: str, table: Any, allowed: Iterable[str]) -> dict[str, Any]:
    """Return a table all of whose names are allowed.

    Raises:
        FileFormatError: It is no table, or has an unknown name.
    """
    names = tuple(allowed)
    if not isinstance(table, dict):
        raise FileFormatError(f"{where} is {shown(table)}, expected a table with {', '.join(names)}")
    for name in table:
        if name not in names:
            raise FileFormatError(f"{where}: unknown entry {shown(name)}; allowed are {', '.join(names)}")
    return table


def entries(where: str, table: Any, kind: type, *, skip: Collection[str] = ()) -> dict[str, Any]:
    """Values of a table whose names are fields of a dataclass, as the types that it declares; lists become tuples.

    Args:
        where: File and table, for messages.
        table: From a file.
        kind: The dataclass.
        skip: Fields that no file has.

    Raises:
        FileFormatError: It is no table, or has an unknown name, or a value of another type.
    """
    check_entries(where, table, [f.name for f in fields(kind) if f.name not in skip])
    hints = get_type_hints(kind)
    try:
        return {name: typed(f"{where}: {name}", value, hints[name], LARGEST_NUMBER) for name, value in table.items()}
    except OptionError as error:
        raise FileFormatError(str(error)) from None


def made(where: str, table: Any, kind: Callable[..., T], **absent: Any) -> T:
    """A dataclass from a table of a file; `absent` has values for missing entries.

    Raises:
        FileFormatError: As for `entries`, or an entry is missing.
        StructureError: The class refuses the values.
        OptionError: Likewise.
    """
    values = {**absent, **entries(where, table, kind)}  # type: ignore[arg-type]
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]  # type: ignore[arg-type]
    for name in needed:
        if name not in values:
            raise FileFormatError(f"{where}: {name} is missing; needed are {', '.join(needed)}")
    try:
        return kind(**values)
    except (StructureError, OptionError) as error:
        raise type(error)(f"{where}: {error}") from None


def made_each(path: str | Path, document: Mapping[str, Any], key: str, kind: Callable[..., T]) -> tuple[T, ...]:
    """A dataclass from every table of an array of tables, [[key]]; for errors, see `made`."""
    tables = document.get(key, [])
    if not isinstance(tables, list):
        raise FileFormatError(f"{path}: {key} must be an array of tables, [[{key}]]")
    return tuple(made(f"{path}: {key} {index}", table, kind) for index, table in enumerate(tables))


def read_one_table(path: str | Path, name: str, kind: Callable[..., T], **absent: Any) -> T:
    """Make a dataclass from the one table of a TOML file; for errors, see `made`."""
    document = read_toml(path)
    if set(document) != {name}:
        raise FileFormatError(f"{path}: it has {', '.join(document) or 'nothing'}; expected one table [{name}]")
    return made(f"{path}: [{name}]", document[name], kind, **absent)


def number_in(where: str, value: Any) -> float:
    """Return a finite number from a file; booleans are refused.

    Raises:
        FileFormatError: It is not a finite number, or larger than `LARGEST_NUMBER`.
    """
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(number := float(value)):
            if abs(number) > LARGEST_NUMBER:
                raise FileFormatError(f"{where} is {shown(value)}, expected a number of at most {LARGEST_NUMBER:g} in size")
            return number
    except OverflowError:  # an integer beyond the largest float
        pass
    raise FileFormatError(f"{where} is {shown(value)}, expected a number")


def doubled(names: Iterable[str]) -> str | None:
    """First name that occurs twice; None if there is none."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object; `ValueError` for doubled names."""
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError(f"the name {shown(doubled(name for name, _ in pairs))} is there twice")
    return table


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _check_depth(path: str | Path, document: Mapping[str, Any]) -> None:
    """Refuse documents that are nested too deep for recursive code."""
    level: list[Any] = [document]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise FileFormatError(f"{path} has tables or lists nested more than {DEEPEST} deep")


def _inside(value: Any) -> Iterator[Any]:
    """Tables and lists directly in a table or list."""
    return (entry for entry in (value.values() if isinstance(value, dict) else value) if isinstance(entry, (dict, list)))


def parse_toml(text: str) -> dict[str, Any]:
    """A TOML document; `ValueError` if it is none."""
    return tomllib.loads(text)


def provenance(**more: str) -> dict[str, str]:
    """Provenance of numbers: the given entries, then commit, versions, Python and date.

    >>> list(provenance(command="demo"))
    ['command', 'commit', 'versions', 'python', 'date']
    """
    return {
        **more,
        "commit": git_commit(),
        "versions": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


@cache
def git_commit() -> str:
    """Commit of this source tree, "+changes" if it is not clean; of an installed copy its version, "version 0.1.0".

    A copy may be installed inside of another repository, whose commit says nothing about it.
    """
    return commit_of(Path(__file__))


def commit_of(file: Path) -> str:
    """`git_commit`, for a copy of this file."""

    def git(*arguments: str) -> str:
        found = subprocess.run(["git", *arguments], cwd=file.parent, capture_output=True, text=True, timeout=10, check=True)
        return found.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", file.name)  # fails where the repository does not track it
        if git("rev-parse", "--show-prefix") != "softgym_envs/core/":  # a copy in somebody's tree
            return f"version {_version('softgym-envs')}"
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return f"version {_version('softgym-envs')}"


@cache
def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
