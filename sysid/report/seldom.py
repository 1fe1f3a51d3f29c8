"""Progress for a file that somebody reads later: a line now and then instead of a bar."""

from __future__ import annotations

import io
import time
from typing import TextIO

EVERY = 5.0
"""[s] Between two lines."""


class Seldom(io.StringIO):
    """What is written to it goes on line by line, but for bars and for lines that follow another one within `EVERY`."""

    def __init__(self, stream: TextIO, every: float = EVERY) -> None:
        """`stream` is where lines go, `every` the time between two [s]."""
        super().__init__()
        self._stream, self._every, self._line, self._last = stream, every, "", time.monotonic()

    def write(self, text: str) -> int:
        """See the class."""
        *lines, self._line = (self._line + text).split("\n")
        whole = [line.rpartition("\r")[2] for line in lines]  # what a bar wrote before is overwritten
        told = [line for line in whole if line.strip()]
        if told and time.monotonic() - self._last >= self._every:
            self._last = time.monotonic()
            self._stream.write(f"{told[-1]}\n")
            self._stream.flush()
        return len(text)


__all__ = ["Seldom"]
