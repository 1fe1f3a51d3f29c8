"""Deadline of work that may be left out: predictions raise `OutOfTime` when the processor time is up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

SHARE, LEAST = 0.8, 2.0
"""Time for examinations within a fit, over that of the fit, and at least [s]: short ones are always whole."""
_END: ContextVar[float] = ContextVar("end", default=float("inf"))


class OutOfTime(Exception):
    """The time for work that may be left out is over."""


class Allowance:
    """Processor time that examinations within a fit take, and may take: `SHARE` of the rest of the fit."""

    def __init__(self) -> None:
        self.begun, self.used = time.process_time(), 0.0

    @property
    def fitting(self) -> float:
        """Time of the fit so far [s]."""
        return time.process_time() - self.begun - self.used

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Set the deadline of an examination, and count its time."""
        now = time.process_time()
        try:
            with until(now + max(SHARE * self.fitting, LEAST) - self.used):
                yield
        finally:
            self.used += time.process_time() - now


_ALLOWANCE: ContextVar[Allowance | None] = ContextVar("allowance", default=None)


def is_over() -> bool:
    """Whether the deadline is over."""
    return time.process_time() > _END.get()


def check() -> None:
    """Raise `OutOfTime` after the deadline."""
    if is_over():
        raise OutOfTime


@contextmanager
def until(end: float) -> Iterator[None]:
    """Set the deadline, in `time.process_time` [s]; one that is set already stays, if it is earlier."""
    token = _END.set(min(end, _END.get()))
    try:
        yield
    finally:
        _END.reset(token)


@contextmanager
def allowed(allowance: Allowance | None) -> Iterator[None]:
    """Limit the examinations of fits; None: no limit."""
    token = _ALLOWANCE.set(allowance)
    try:
        yield
    finally:
        _ALLOWANCE.reset(token)


@contextmanager
def examination() -> Iterator[None]:
    """Set the deadline of an examination within a fit, if there is one."""
    allowance = _ALLOWANCE.get()
    if allowance is None:
        yield
    else:
        with allowance.spent():
            yield
