"""Kernels in single precision: modules with kernels once more, with the types in their text replaced.

`in_float32("softgym_envs.systems.vine.dynamics")` is that module with wp.float32 in place of wp.float64. Modules that import
Warp, directly or through others, exist so by a name that begins with `PACKAGE`, and import each other; all others are there
once. Only forward kernels are meant to be used: identification and gradients stay in double precision.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import re
import sys
from collections.abc import Sequence
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")

OWN, PACKAGE = "softgym_envs", "softgym_envs_float32"
ROOT = Path(__file__).parents[2]
WARP = re.compile(r"^import warp|^from \.[\w.]*\bwarp\b", re.MULTILINE)
RELATIVE = re.compile(r"^( *)from (\.+[\w.]*) import", re.MULTILINE)
TYPES = ((r"\bwp\.float64\b", "wp.float32"), (r"\bwp\.(vec\d|mat\d\d|quat)d\b", r"wp.\1f"), (r"\bdouble\b", "float"))
NUMBA = re.compile(r"^from \.+engines\.numba\.engine import (.+)$", re.MULTILINE)


def in_float32(name: str) -> ModuleType:
    """A module of ours in single precision, by its usual name."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
    return importlib.import_module(PACKAGE + name.removeprefix(OWN))


def as_float32(value: T) -> T:
    """The same dataclass, such as a simulator or a task, of the module in single precision."""
    kind = getattr(in_float32(type(value).__module__), type(value).__qualname__)
    made: T = kind(**{f.name: getattr(value, f.name) for f in fields(value) if f.init})  # type: ignore[arg-type]
    return made


@cache
def _has_kernels(name: str) -> bool:
    """Whether a module imports Warp, directly or through modules of ours; its package counts as one that does."""
    place = ROOT.joinpath(*name.split(".")[1:])
    if place.is_dir():
        return any(_has_kernels(f"{name}.{path.stem}") for path in place.glob("*.py") if path.stem != "__init__")
    text, package = place.with_suffix(".py").read_text("utf-8"), name.rpartition(".")[0]
    imported = {importlib.util.resolve_name(found[2], package) for found in RELATIVE.finditer(text) if not found[1]}
    return bool(WARP.search(text)) or any(_has_kernels(other) for other in imported if other != package)


def _imported(package: str, found: re.Match[str]) -> str:
    """A relative import as an absolute one, of the module in single precision where there is one."""
    name = importlib.util.resolve_name(found[2], package)
    return f"{found[1]}from {PACKAGE + name.removeprefix(OWN) if _has_kernels(name) else name} import"


def _translated(path: Path, package: str) -> str:
    """Text of a module in single precision. Functions for Numba stay Python's: nothing calls them there."""
    text = NUMBA.sub(lambda found: f"{found[1].replace(', ', ' = ')} = lambda function: function", path.read_text("utf-8"))
    text = RELATIVE.sub(partial(_imported, package), text)
    for pattern, replaced in TYPES:
        text = re.sub(pattern, replaced, text)
    return text


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads modules of `PACKAGE`; packages are empty."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        place = self._place(fullname)
        if not f"{fullname}.".startswith(f"{PACKAGE}.") or not (place.is_dir() or place.with_suffix(".py").is_file()):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=place.is_dir())

    def exec_module(self, module: ModuleType) -> None:
        """See `importlib.abc.Loader`."""
        name = module.__name__
        path = self._place(name).with_suffix(".py")
        if path.is_file():
            text = _translated(path, OWN + name.removeprefix(PACKAGE).rpartition(".")[0])
            source = f"{path}, float32"
            linecache.cache[source] = (len(text), None, text.splitlines(keepends=True), source)  # Warp reads it there
            module.__file__ = str(path)
            exec(compile(text, source, "exec"), module.__dict__)

    @staticmethod
    def _place(name: str) -> Path:
        return ROOT.joinpath(*name.split(".")[1:])
