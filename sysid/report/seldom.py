"""Progress for log files: a line now and then instead of a bar."""

from __future__ import annotations

import io
import time
from typing import TextIO

EVERY = 5.0  # [s] Shortest time between two lines.


class Seldom(io.StringIO):
    """Stream that passes on whole lines, except bars and lines that follow another one within `EVERY`."""

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


__all__ = ["Seldom"]
