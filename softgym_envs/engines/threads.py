"""Runs a batch in pieces, one for each free thread, the calling thread among them; and locks that survive `os.fork`."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def in_threads(run: Callable[[Piece], Result], pieces: Sequence[Piece], threads: int) -> list[Result]:
    """Results of `run` for every piece, in order, by `threads` threads; `run` has to release Python's lock.

    The caller works as well: a system wakes a thread at once beside a busy one, but may let it wait some milliseconds
    on the processor of one that has just gone to sleep.

    Raises:
        Exception: The first one that `run` raised, after all threads have stopped.
    """
    results: dict[int, Result] = {}
    waiting = deque(enumerate(pieces))

    def work() -> None:
        while True:
            try:
                k, piece = waiting.popleft()
            except IndexError:
                return
            results[k] = run(piece)

    count = min(threads, len(pieces)) - 1
    others = [_pool(os.getpid(), threads).submit(work) for _ in range(count)]
    try:
        work()
    except BaseException:
        waiting.clear()
        raise
    finally:
        begun = [other for other in others if not other.cancel()]
        wait(begun)
    for other in begun:
        other.result()
    return [results[k] for k in range(len(pieces))]


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """The pool of this process: threads do not survive a fork."""
    del process
    return ThreadPoolExecutor(max(1, threads - 1), thread_name_prefix="softgym")


class ForkLock:
    """A reentrant lock that is free in a forked child.

    A thread that held it in the parent does not exist in the child, and would never release it.

    >>> lock = ForkLock()
    >>> with lock, lock:
    ...     pass
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Replace the lock by one that nobody holds."""
        self._lock = threading.RLock()


_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _renew_all() -> None:
    for lock in _locks:
        lock.renew()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_renew_all)
