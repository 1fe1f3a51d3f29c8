"""Checks of descriptions; each message says what was given and what is expected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from math import inf, isfinite
from typing import Any

import numpy as np

from ..core.errors import StructureError


def check_name(where: str, name: Any) -> None:
    """Raise `StructureError` unless `name` is a nonempty string."""
    if not isinstance(name, str) or not name:
        raise StructureError(f"{where}: the name must be a nonempty string")


def check_values(where: str, what: str, *values: Any, count: int = 0, low: float = -inf, named: bool = False) -> None:
    """Raise `StructureError` unless all `values` are finite numbers >= low; `named`: or names of parameters."""
    if count and len(values) != count:
        raise StructureError(f"{where}: {what} has {len(values)} numbers, expected {count}")
    for value in values:
        if named and isinstance(value, str) and value:
            continue
        number = isinstance(value, (int, float, np.floating)) and not isinstance(value, bool)
        if not number or not isfinite(value) or value < low:
            limit = f" >= {low:g}" if isfinite(low) else ""
            raise StructureError(
                f"{where}: {what} is {value!r}, expected a finite number{limit}{' or a name' if named else ''}"
            )


def check_unique(kind: str, names: list[str]) -> None:
    """Raise `StructureError` if a name occurs twice."""
    for name, count in Counter(names).items():
        if count > 1:
            raise StructureError(f"{kind} {name!r} stands there {count} times; names must differ")


def check_known(what: str, name: str, known: Collection[str]) -> None:
    """Raise `StructureError` unless `name` is `known`."""
    if name not in known:
        raise StructureError(f"{what} is {name!r}, which is unknown; there are {', '.join(known) or 'none'}")
