"""Progress: the last line repeated while work goes on, or, for log files, a line now and then instead of a bar."""

from __future__ import annotations

import io
import threading
import time
from typing import TextIO

EVERY = 5.0  # [s] Longest silence, and shortest time between two lines of a log file.


class Beat(io.StringIO):
    """Stream that passes on its text, and repeats the last whole line with the elapsed time while nothing is written.

    >>> import sys
    >>> with Beat(sys.stdout) as progress:
    ...     progress.say("planning")
    [  0.0 s] planning
    """

    def __init__(self, stream: TextIO, every: float = EVERY) -> None:
        """`stream` is where lines go, `every` the longest silence [s]."""
        super().__init__()
        self._stream, self._every, self._what = stream, every, ""
        self._begin = self._last = time.perf_counter()
        self._end, self._thread = threading.Event(), threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Beat:
        """Start to repeat."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop to repeat."""
        self._end.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        """Time since creation [s]."""
        return time.perf_counter() - self._begin

    def say(self, what: str) -> None:
        """Write a line with the elapsed time."""
        self.write(f"[{self.seconds:5.1f} s] {what}\n")
        self._what = what

    def write(self, text: str) -> int:
        """Pass on text; bars, which overwrite themselves, are not repeated."""
        self._last = time.perf_counter()
        if text.strip() and "\r" not in text:
            self._what = text.strip().rpartition("\n")[2]
        self._stream.write(text)
        self._stream.flush()
        return len(text)

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """File descriptor of the stream."""
        return self._stream.fileno()

    def _beat(self) -> None:
        while not self._end.wait(max(self._last + self._every - time.perf_counter(), 0.1 * self._every)):
            if self._what and time.perf_counter() >= self._last + self._every:
                self._last = time.perf_counter()
                self._stream.write(f"[{self.seconds:5.1f} s] ... {self._what}\n")
                self._stream.flush()


class Seldom(io.StringIO):
    """Stream that passes on whole lines, except bars and lines that follow another one within `every`."""

    def __init__(self, stream: TextIO, every: float = EVERY) -> None:
        """`stream` is where lines go, `every` the time between two [s]."""
        super().__init__()
        self._stream, self._every, self._line, self._last = stream, every, "", time.monotonic()

    def write(self, text: str) -> int:
        """Pass on whole lines; see the class."""
        *lines, self._line = (self._line + text).split("\n")
        whole = [line.rpartition("\r")[2] for line in lines]  # text of a bar before that is overwritten
        told = [line for line in whole if line.strip()]
        if told and time.monotonic() - self._last >= self._every:
            self._last = time.monotonic()
            self._stream.write(f"{told[-1]}\n")
            self._stream.flush()
        return len(text)
