"""Compiled kernels on disk: one that is damaged is compiled anew, never run; caches that cannot be written are replaced.

Neither Warp nor Numba notices a flipped bit in machine code that it finds in its cache.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import getpass
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import FunctionCache, IndexDataCacheFile

from .errors import StorageError
from .files import write_atomically

T = TypeVar("T")

NOTE = "softgym_envs.json"
"""File in the folder of a compiled Warp module: the hash of every other file there."""
MARK, DIGEST = b"softgym1", 32
"""Files of Numba's cache end with this mark and a SHA-256 of `DIGEST` bytes; Numba's reader ignores both."""


@cache
def spare_folder(what: str) -> Path:
    """Make a folder for a cache whose usual one cannot be written; report it once on stderr."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        user = "nobody"
    path = _own(Path(tempfile.gettempdir()) / f"softgym_envs-{user}") / what
    place = "WARP_CACHE_PATH" if what == "warp" else "NUMBA_CACHE_DIR"
    print(f"softgym_envs: the cache of {what} cannot be written, {path} is used; {place} names another folder", file=sys.stderr)
    return path


def _own(path: Path) -> Path:
    """The folder if only we can write there, since code is run from it; else a new one."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    there = path.lstat()
    if hasattr(os, "getuid") and (there.st_uid != os.getuid() or there.st_mode & 0o022):
        return Path(tempfile.mkdtemp(prefix=path.name))
    return path


# --- Warp ------------------------------------------------------------------------------------------------------------

_whole: set[tuple[str, str]] = set()


def load_whole(kernels: Path, module: str, load: Callable[[], T]) -> T:
    """The result of `load`, which makes Warp load or compile a module; damaged files are removed before.

    Args:
        kernels: Folder of all compiled modules.
        module: Name of the module.
        load: Called once, or a second time if it fails with files that are not noted as whole.

    Raises:
        StorageError: The folder cannot be written.
    """
    if (str(kernels), module) in _whole:
        return load()
    doubtful = False
    for folder in kernels.glob(f"wp_{module}_*"):
        doubtful = not _as_noted(folder) or doubtful
    try:
        try:
            result = load()
        except Exception:
            if not doubtful:
                raise
            for folder in kernels.glob(f"wp_{module}_*"):
                shutil.rmtree(folder, ignore_errors=True)
            result = load()
    except OSError as error:
        raise StorageError(f"Warp cannot keep a kernel in {kernels}: {error}; WARP_CACHE_PATH names another folder") from error
    for folder in kernels.glob(f"wp_{module}_*"):
        _note(folder)
    _whole.add((str(kernels), module))
    return result


def _hashes(folder: Path) -> dict[str, str]:
    """Name -> hash of every file but the note."""
    files = [path for path in folder.iterdir() if path.is_file() and path.name != NOTE]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def _as_noted(folder: Path) -> bool:
    """Whether the files are as noted; damaged ones are removed. False without a note."""
    try:
        noted = json.loads((folder / NOTE).read_text(encoding="utf-8"))
        damaged = [name for name, found in _hashes(folder).items() if noted.get(name, found) != found]
    except (OSError, ValueError, AttributeError):
        return False
    if damaged:
        print(f"softgym_envs: {folder} is damaged ({', '.join(damaged)}): it is compiled anew", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
    return True


def _note(folder: Path) -> None:
    try:
        hashes, note = _hashes(folder), folder / NOTE
        if not note.exists() or json.loads(note.read_text(encoding="utf-8")) != hashes:
            write_atomically(note, json.dumps(hashes).encode())
    except (OSError, ValueError):
        pass  # a read-only cache, or another process writes it now


# --- Numba -----------------------------------------------------------------------------------------------------------


_OURS = tuple(sorted(Path(__file__).parents[1].rglob("*.py")))


@cache
def _hash_of_kernels(paths: tuple[Path, ...]) -> str:
    """Hash of the files that mention Numba, which does not notice when a function in another file has changed."""
    found = hashlib.sha256()
    for path in paths:
        text = path.read_bytes()
        if b"numba" in text:
            found.update(path.name.encode() + text)
    return found.hexdigest()


class CheckedCache(FunctionCache):
    """Numba's cache of a function: every file of code ends with its hash, and depends on the sources of all kernels around."""

    def __init__(self, function: Callable[..., Any], *, announced: bool = False) -> None:
        self._announced = announced
        try:
            super().__init__(function)
        except RuntimeError:  # none of its folders can be written
            settings: Any = numba.config
            settings.CACHE_DIR = str(spare_folder("numba"))
            super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        beside = Path(function.__code__.co_filename).parent.glob("*.py")
        called = _hash_of_kernels(_OURS), _hash_of_kernels(tuple(sorted(beside)))
        self._cache_file = CheckedFile(self._cache_path, self._impl.filename_base, (stamp, *called))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Compiled code, or None: then Numba compiles it, which is reported on stderr if `announced`."""
        found = super().load_overload(sig, target_context)
        if found is None and self._announced:
            name = self._py_func.__name__.strip("_")
            print(f"softgym_envs: {name} kernel: compiling takes up to 20 s, cached afterwards", file=sys.stderr)
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save compiled code, or report on stderr that it cannot be saved."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _say(f"softgym_envs: compiled kernels cannot be kept in {self._cache_path}: {error}")


class CheckedFile(IndexDataCacheFile):
    """Index and data of one function; damaged files count as missing."""

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except Exception:  # an unpickler may raise anything on garbage
            return {}

    def _load_data(self, name: str) -> Any:
        content = Path(self._data_path(name)).read_bytes()
        marked, digest = content[:-DIGEST], content[-DIGEST:]
        body = marked.removesuffix(MARK)
        if body != marked and hashlib.sha256(body).digest() != digest:
            raise OSError(f"{name} is damaged")  # Numba takes it for a file that is gone, and compiles
        try:
            return super()._load_data(name)
        except Exception as error:  # an unpickler may raise anything on half a file
            raise OSError(f"{name} is damaged") from error

    def _save_data(self, name: str, data: Any) -> None:
        content = self._dump(data)
        with self._open_for_write(self._data_path(name)) as stream:
            stream.write(content + MARK + hashlib.sha256(content).digest())


@cache
def _say(text: str) -> None:
    print(text, file=sys.stderr)
