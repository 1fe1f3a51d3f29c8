"""Values of files and keywords against the types that a dataclass declares."""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Mapping
from math import isfinite
from numbers import Integral, Real
from typing import Any

from .errors import OptionError, shown

_NO_VALUES = (typing.TextIO,)
"""Types of what only programs give."""


def typed(where: str, value: Any, hint: Any) -> Any:
    """The value as its declared type: lists become tuples, whole numbers are numbers; numbers must be finite.

    >>> typed("rates", [1, 0.5], tuple[float, ...]), typed("seed", 3, int | None)
    ((1.0, 0.5), 3)

    Args:
        where: Name of the entry, for the message.
        value: Anything.
        hint: A type, a Literal, a tuple[..., ...], a mapping with types of its values, or a union of these.

    Raises:
        OptionError: It is of another type, or not finite.
    """
    if hint is Any or hint in _NO_VALUES:
        return value
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _one_of(where, value, hint, inner)
    if origin is typing.Literal and not isinstance(value, bool) and value in inner:
        return value
    if origin is tuple and isinstance(value, (list, tuple)):
        return tuple(typed(f"{where}[{k}]", entry, inner[0]) for k, entry in enumerate(value))
    if origin in (dict, collections.abc.Mapping) and isinstance(value, Mapping):
        return {name: typed(f"{where}.{name}", entry, inner[1]) for name, entry in value.items()}
    if origin is collections.abc.Callable and callable(value):
        return value
    if hint is float and isinstance(value, Real) and not isinstance(value, bool) and _finite(value):
        return float(value)
    if hint is int and isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if origin is None and isinstance(hint, type) and hint not in (float, int) and isinstance(value, hint):
        return value
    raise OptionError(f"{where} is {shown(value)}, expected {_words(hint)}")


def _one_of(where: str, value: Any, hint: Any, kinds: tuple[Any, ...]) -> Any:
    for kind in kinds:
        try:
            return typed(where, value, kind)
        except OptionError:
            continue
    raise OptionError(f"{where} is {shown(value)}, expected {_words(hint)}")


def _finite(value: Real) -> bool:
    try:
        return isfinite(float(value))
    except OverflowError:  # an integer beyond all floats
        return False


def _words(hint: Any) -> str:
    """The type in words."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return " or ".join(map(repr, inner))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_words(kind) for kind in inner)
    if origin is tuple:
        return f"a list, each entry {_words(inner[0])}"
    if origin in (dict, collections.abc.Mapping):
        return "a table"
    if origin is collections.abc.Callable:
        return "a function"
    names = {float: "a finite number", int: "a whole number", bool: "true or false", str: "text", type(None): "nothing"}
    return names.get(hint) or str(getattr(hint, "__name__", hint))
