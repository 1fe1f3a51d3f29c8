"""The search for what a fit lacks, candidate by candidate, within a budget of processor time.

`diagnose`: "none" tries no candidate, "quick" stops at a deadline, so that all diagnostics together take no longer than the fit
did, "full" tries all. What may forbid to use the parameters is tried first, and for as long as the fit took. The deadline of
others is earlier, for prediction intervals and the last prediction.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, TypeVar, get_args

from softgym_envs.core.errors import OptionError, SoftgymError, shown

from ..problem.deadline import SHARE, OutOfTime, until

T = TypeVar("T")
Diagnose = Literal["none", "quick", "full"]


class Search:
    """See the module docstring."""

    def __init__(
        self,
        diagnose: Diagnose = "full",
        spent: float = 0.0,
        say: Callable[[str], None] = lambda what: None,
        *,
        used: float = 0.0,
    ) -> None:
        """`spent` is the processor time of the fit [s], `used` that of examinations in it; `say` gets a line per candidate."""
        if diagnose not in get_args(Diagnose):
            raise OptionError(f"`diagnose` is {shown(diagnose)}, allowed are {', '.join(map(repr, get_args(Diagnose)))}")
        self.begun = time.process_time()
        self.end = {"none": 0.0, "quick": self.begun + SHARE * spent - used, "full": float("inf")}[diagnose]
        self.last = self.begun + spent if diagnose == "quick" else self.end
        self.say, self.count, self.planned = say, 0, 0
        self.done: list[str] = []
        """Candidates that were tried."""
        self.left_out: list[str] = []
        """Candidates for which no time was left."""

    @property
    def skipped(self) -> list[str]:
        """Candidates that were never tried."""
        return [what for what in dict.fromkeys(self.left_out) if what not in self.done]

    def plan(self, count: int) -> None:
        """Announce further candidates."""
        self.planned += count

    def tried(
        self, what: str, attempt: Callable[[], T], why: str = "the model does not explain the data", *, forbids: bool = False
    ) -> T | None:
        """Result of an attempt; None if there is no time for it. `forbids`: it may forbid to use the parameters."""
        self.count += 1
        now, end = time.process_time(), self.last if forbids else self.end
        if now < end:
            self.say(f"{why}; trying {what} ({self.count} of {max(self.planned, self.count)}{self._left(now, end)})")
            try:
                with until(end):
                    found = attempt()
                self.done.append(what)
                return found
            except OutOfTime:
                pass
            except SoftgymError:
                self.done.append(what)
                raise
        self.left_out.append(what)
        return None

    def _left(self, now: float, end: float) -> str:
        """Time left, in words: of the budget, or for all candidates if they take as long as those before."""
        rest, all_of_them = end - now, float("inf")
        if self.count > 1:
            all_of_them = (now - self.begun) / (self.count - 1) * (max(self.planned, self.count) - self.count + 1)
        if all_of_them < rest:
            return f", about {all_of_them:.0f} s left"
        return "" if rest == float("inf") else f", {rest:.0f} s left at most"
