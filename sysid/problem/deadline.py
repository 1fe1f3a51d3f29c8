"""Deadline of work that may be left out: predictions raise `OutOfTime` when the processor time is up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_END: ContextVar[float] = ContextVar("end", default=float("inf"))


class OutOfTime(Exception):
    """The time for work that may be left out is over."""


def check() -> None:
    """Raise `OutOfTime` after the deadline."""
    if time.process_time() > _END.get():
        raise OutOfTime


@contextmanager
def until(end: float) -> Iterator[None]:
    """Set the deadline, in `time.process_time` [s]."""
    token = _END.set(end)
    try:
        yield
    finally:
        _END.reset(token)
