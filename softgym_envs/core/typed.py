"""Values of files and keywords against the types that a dataclass declares."""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Mapping
from math import inf, isfinite
from numbers import Integral, Real
from typing import Any

from .errors import OptionError, shown


def typed(where: str, value: Any, hint: Any, largest: float = inf) -> Any:
    """The value as its declared type: lists become tuples, whole numbers are numbers; numbers must be finite.

    >>> typed("rates", [1, 0.5], tuple[float, ...]), typed("seed", 3, int | None)
    ((1.0, 0.5), 3)

    Args:
        where: Name of the entry, for the message.
        value: Anything.
        largest: Largest size of a number.
        hint: A type, a Literal, a tuple, a mapping with types of its values, or a union of these.

    Raises:
        OptionError: It is of another type, not finite, or too large.
    """
    if hint is Any:
        return value
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _one_of(where, value, hint, inner, largest)
    if origin is typing.Literal and not isinstance(value, bool) and value in inner:
        return value
    if origin is tuple and isinstance(value, (list, tuple)) and (inner[-1] is ... or len(inner) == len(value)):
        kinds = inner[:1] * len(value) if inner[-1] is ... else inner
        return tuple(typed(f"{where}[{k}]", *pair, largest) for k, pair in enumerate(zip(value, kinds, strict=True)))
    if origin in (dict, collections.abc.Mapping) and isinstance(value, Mapping):
        return {name: typed(f"{where}.{name}", entry, inner[1], largest) for name, entry in value.items()}
    if origin is collections.abc.Callable and callable(value):
        return value
    if hint is float and isinstance(value, Real) and not isinstance(value, bool) and _size(value) < inf:
        if _size(value) > largest:
            raise OptionError(f"{where} is {shown(value)}, expected a number of at most {largest:g} in size")
        return float(value)
    if hint is int and isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if origin is None and isinstance(hint, type) and hint not in (float, int) and isinstance(value, hint):
        return value
    raise OptionError(f"{where} is {shown(value)}, expected {_words(hint)}")


def _one_of(where: str, value: Any, hint: Any, kinds: tuple[Any, ...], largest: float) -> Any:
    for kind in kinds:
        try:
            return typed(where, value, kind, largest)
        except OptionError:
            continue
    raise OptionError(f"{where} is {shown(value)}, expected {_words(hint)}")


def _size(value: Real) -> float:
    """Absolute value; infinity for NaN, and for an integer beyond all floats."""
    try:
        return abs(float(value)) if isfinite(value) else inf
    except OverflowError:
        return inf


def _words(hint: Any) -> str:
    """The type in words."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return " or ".join(map(repr, inner))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_words(kind) for kind in inner)
    if origin is tuple:
        kinds = list(dict.fromkeys(map(_words, inner)))
        return f"a list, each entry {kinds[0]}" if inner[-1] is ... else f"a list of {len(inner)}, each {' or '.join(kinds)}"
    if origin in (dict, collections.abc.Mapping):
        return "a table"
    if origin is collections.abc.Callable:
        return "a function"
    names = {float: "a finite number", int: "a whole number", bool: "true or false", str: "text", type(None): "nothing"}
    return names.get(hint) or str(getattr(hint, "__name__", hint))


def merged(options: Mapping[str, Any], changes: Mapping[str, Any], removes: Any = None) -> dict[str, Any]:
    """Update options by changes, nested tables too; the value `removes` takes an option out.

    >>> merged({"starts": 3, "levenberg": {"max_iterations": 100}}, {"levenberg": {"max_iterations": 2}})
    {'starts': 3, 'levenberg': {'max_iterations': 2}}
    >>> merged({"starts": 3, "loss": "robust"}, {"loss": "default"}, "default")
    {'starts': 3}
    """
    found = dict(options)
    for name, value in changes.items():
        inner = found.get(name)
        if removes is not None and isinstance(value, str) and value == removes:
            found.pop(name, None)
        elif isinstance(inner, Mapping) and isinstance(value, Mapping):
            found[name] = merged(inner, value, removes)
        else:
            found[name] = value
    return found
