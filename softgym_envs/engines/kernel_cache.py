"""Compiled kernels on disk: one that cannot be loaded is compiled anew; caches that cannot be written are replaced."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import getpass
import hashlib
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

from ..core.errors import StorageError

T = TypeVar("T")


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


def load_whole(kernels: Path, module: str, load: Callable[[], T]) -> T:
    """The result of `load`, which makes Warp load or compile a module; files that cannot be loaded are removed first.

    Raises:
        StorageError: The folder `kernels` of all compiled modules cannot be written.
    """
    found = list(kernels.glob(f"wp_{module}_*"))
    try:
        try:
            return load()
        except Exception:
            if not found:
                raise
            for folder in found:
                shutil.rmtree(folder, ignore_errors=True)
            return load()
    except OSError as error:
        raise StorageError(f"Warp cannot keep a kernel in {kernels}: {error}; WARP_CACHE_PATH names another folder") from error


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
    """Numba's cache of a function, which depends on the sources of all kernels around."""

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
            print(f"softgym_envs: {name} kernel: compiling takes 1 to 40 s, cached afterwards", file=sys.stderr)
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
        try:
            return super()._load_data(name)
        except Exception as error:  # an unpickler may raise anything on half a file
            raise OSError(f"{name} is damaged") from error  # Numba takes it for a file that is gone, and compiles


@cache
def _say(text: str) -> None:
    print(text, file=sys.stderr)
