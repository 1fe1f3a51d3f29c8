"""Searches for the cause where a model does not explain its data: candidates of one or two parameters each are tried in turn.

Where a stage's fit leaves more than noise, it is repeated from its end with the parameters of every candidate cause freed
beside its own: a camera that is tilted or has another scale, commands that act late, a base that is turned. The one that lowers
the residuals most is named, if it explains the data or lowers them enough (`WORTH`). Else the cause is unknown, also if the
interval of a freed parameter holds its given value. If no candidate cause is named and the misfit is large, or a parameter
shows nothing at its end, all are tried from the start of the fit, whose end may be a wrong minimum. Parameters stay those of
the fit. If none is named and the stage has another simulator that leaves less, all are tried in that.

Where a fit leaves only noise, a wrong value of a fixed parameter may hide in the fitted ones: so drag in damping. Then the fit
is repeated with such parameters freed, and parameters that change are reported to depend on their value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from softgym_envs.core.errors import DataError
from softgym_envs.core.spec import changes
from softgym_envs.core.trajectory import TrajectorySet

from ..diagnostics.residuals import estimated_noise
from ..diagnostics.result import Estimate, FitResult, remaining_share
from ..least_squares.cutting import cut
from ..least_squares.system import ShootingSystem, channel_scale
from ..problem.problem import FitProblem
from .search import Search

BRIEF_TOLERANCE = 1e-5
"""Relative cost tolerance of a fit that shows what another lacks: a sixth of a standard deviation, for 3000 rows."""
ASTRAY = 2.0  # Misfit above which the end of a fit may be a wrong minimum, which leaves more than a failed test does.
WIDER = (
    2.0  # Factor on the width of an interval, with a fixed parameter freed, above which the parameter depends on that value.
)
WORTH, SAID = 0.5, 0.8
"""Largest remaining share of the squared residuals for a candidate cause that does not explain the data to be named, and for
its effect to be mentioned anyway: parameters unrelated to the cause left 53 and 57 % (measured)."""
PARTLY_ABOVE = 0.25
"""Share of the squared residuals above which a candidate cause that leaves it is called a part of the cause."""
HARDLY_SEPARATE = 0.99
"""Correlation with a fitted parameter above which data hardly separate a candidate cause's from it: its interval then holds for
this linear model only, as of the tilt of a table that one straight slide shows."""


class Fitted(NamedTuple):
    """A fit and its problem, whose simulator may be another than the original one."""

    problem: FitProblem
    result: FitResult


class _Tried(NamedTuple):
    """A fit with a candidate cause's parameters freed."""

    words: str
    freed: tuple[str, ...]
    fit: FitResult
    share: float  # Remaining share of the squared residuals.

    @property
    def worth(self) -> bool:
        """Whether the candidate cause is named."""
        return self.fit.explained or self.share <= WORTH

    @property
    def inseparable(self) -> tuple[str, ...]:
        """Fitted parameters of the robot from which data hardly separate its parameters (`HARDLY_SEPARATE`)."""
        names = self.fit.posterior.names
        freed, alike = np.isin(names, self.freed), np.abs(self.fit.correlation) > HARDLY_SEPARATE
        return tuple(name for name, own, row in zip(names, freed, alike, strict=True) if not own and row[freed].any())

    @property
    def values(self) -> dict[str, float]:
        """Values of its parameters."""
        return {e.name: e.value for e in self.fit.estimates if e.name in self.freed}

    @property
    def told(self) -> str:
        """Parameters of the candidate cause in words."""
        hardly = f" (hardly separable from {', '.join(self.inseparable)} by these data)" if self.inseparable else ""
        return "; ".join(e.line() for e in self.fit.estimates if e.name in self.freed) + hardly


def candidate(
    candidate_causes: Mapping[str, tuple[str, ...]],
    fit: Callable[[FitProblem], FitResult],
    problem: FitProblem,
    result: FitResult,
    search: Search | None = None,
    *,
    known: bool = False,
    other: Fitted | None = None,
    onward: Callable[[FitProblem, FitResult], FitResult] | None = None,
    untried: str = "",
) -> FitResult:
    """The result, with a diagnostic on the likeliest cause where it does not explain its data.

    Args:
        candidate_causes: Cause in words -> parameters of the recordings or of the robot that are freed.
        fit: Repeats the fit, by a method that can fit parameters of recordings.
        problem: As it was fitted.
        result: Result of that fit.
        search: Tries candidates, as far as there is time.
        known: Whether a cause was found already (the step): then nothing is added where no candidate cause is named.
        other: The same data in another simulator, where candidate causes are tried if none is named in this one.
        onward: As `fit`, from the final states of a fit; None: `fit`.
        untried: Other possible causes, in words, for the diagnostic where no cause is found, or one that does not explain all.
    """

    def from_end(ended: Fitted) -> Callable[[FitProblem], FitResult]:
        return fit if onward is None else lambda given: onward(given, ended.result)

    search = search or Search()
    there = set(problem.known_specs)
    asked = {
        words: names for words, names in candidate_causes.items() if set(names) <= there and not set(names) <= set(problem.free)
    }
    if result.explained or not result.usable:
        return result
    if not asked:
        return result.with_diagnostic("unknown_cause", "note", tried=[], untried=untried) if untried and not known else result
    ended = problem.replace(start=result.parameters, view=result.view)
    found, elsewhere = _tried(asked, from_end(Fitted(ended, result)), ended, result, search), None
    astray = result.misfit > ASTRAY or any(estimate.at_bound or estimate.hidden for estimate in result.estimates)
    if astray and not any(each.worth for each in found):
        found += _tried(asked, fit, problem, result, search)
    if other is not None and not any(each.worth for each in found) and remaining_share(other.result, result) <= SAID:
        there_ended = other.problem.replace(start=other.result.parameters, view=other.result.view)
        again = _tried(asked, from_end(other), there_ended, result, search)
        if any(each.worth for each in again):
            found, elsewhere = again, changes(problem.simulator, other.problem.simulator)
    best = min(found, key=lambda each: (not each.worth, each.share), default=None)
    facts: dict[str, Any] = {"tried": [words for words in asked if words in search.done], "untried": untried}
    if best is None or not best.worth:
        if known or not facts["tried"]:
            return result
        most = () if best is None or best.share >= SAID else (best.words, best.share)
        return result.with_diagnostic("unknown_cause", "note", *most, told=best.told if most and best else "", **facts)
    return result.with_diagnostic(
        "likely_cause", "warning", best.words, best.share, PARTLY_ABOVE,
        adequate=best.fit.explained, partly=best.share > PARTLY_ABOVE,
        elsewhere=elsewhere, told=best.told, values=best.values, alike=list(best.inseparable), freed=list(best.freed),
        also=[f"{each.words}: {each.told}" for each in found if each is not best and each.fit.explained], **facts,
    )  # fmt: skip


def _tried(
    candidate_causes: Mapping[str, tuple[str, ...]],
    fit: Callable[[FitProblem], FitResult],
    problem: FitProblem,
    before: FitResult,
    search: Search,
) -> list[_Tried]:
    """Try every candidate cause from the start of the problem; keep those with other values that converge or explain all.

    Their residuals are compared with those of a fit before.
    """
    found = []
    search.plan(len(candidate_causes))
    for words, names in candidate_causes.items():
        more = tuple(name for name in names if name not in problem.free)
        wider = problem.replace(free=(*problem.free, *more))
        try:
            again = search.tried(words, partial(_fitted, fit, wider))
        except DataError:
            continue
        if again is None:
            continue
        if (again.converged or again.explained) and any(_matters(problem, e) for e in again.estimates if e.name in more):
            found.append(_Tried(words, more, again, remaining_share(again, before)))
    return found


def _fitted(fit: Callable[[FitProblem], FitResult], problem: FitProblem) -> FitResult:
    """The fit of a problem, from the latency at which single steps fit best."""
    return fit(searched(problem))


def _matters(problem: FitProblem, found: Estimate) -> bool:
    """Whether a freed parameter differs from its fixed value."""
    return not (found.hidden or found.interval[0] <= problem.given(found.name) <= found.interval[1])


def conditional(
    doubtful: tuple[str, ...],
    fit: Callable[[FitProblem], FitResult],
    problem: FitProblem,
    result: FitResult,
    search: Search | None = None,
) -> FitResult:
    """The result, with a reservation on parameters that these data determine only for given values of fixed ones.

    Args:
        doubtful: Fixed parameters of the robot.
        fit: Repeats the fit.
        problem: As it was fitted.
        result: Result of that fit.
        search: Tries candidates, as far as there is time.
    """
    more = tuple(name for name in doubtful if name not in problem.free)
    if not more or not result.explained or not result.usable:
        return result
    wider, what = problem.replace(free=(*problem.free, *more), start=result.parameters, view=result.view), ", ".join(more)
    try:
        again = (search or Search()).tried(f"{what} free, too", partial(fit, wider), "the data are explained")
    except DataError:
        return result
    if again is None:
        return result
    moved = [new for old, new in zip(result.estimates, again.estimates, strict=False) if not old.hidden and _hangs(old, new)]
    if not again.converged or not moved:
        return result
    return result.with_reservation(
        "depends_on_fixed", ", ".join(e.name for e in moved),
        held={name: float(getattr(result.parameters, name)) for name in more}, free=[*problem.free, *more],
        told="; ".join(e.line() for e in (*moved, *(e for e in again.estimates if e.name in more))),
    )  # fmt: skip


def _hangs(old: Estimate, new: Estimate) -> bool:
    """Whether a parameter leaves its interval, or has a much wider one, where another is free."""
    (low, high), (wide_low, wide_high) = old.interval, new.interval
    return new.hidden or not low <= new.value <= high or wide_high - wide_low > WIDER * (high - low)


FIRST_PART = 1.0  # First part of every recording that is used [s].


def searched(problem: FitProblem) -> FitProblem:
    r"""The problem with the initial latency of its fit; unchanged where states are measured in part, or latency is fixed.

    Commands that change in every row differ from the same commands a few rows later: from no latency, the cost is flat, and its
    gradient does not point to the minimum. One step from a recorded state does not need right parameters: where commands have
    an effect in the rows, the squared errors

    .. math:: \sum_k |f(y_k, u_{k-d}) - y_{k+1}|^2 / \sigma^2

    have their minimum at the true d for any size of that effect but zero. All allowed d are tried, on the first second.
    """
    if "latency" not in problem.free or not problem.full_state:
        return problem
    recordings = TrajectorySet(tuple(t.window(t.times[0], t.times[0] + FIRST_PART) for t in problem.split.train))
    segments = cut(problem, recordings, 1, free=False, exact=False)
    theta, place = problem.encode(problem.initial_parameters), problem.free.index("latency")
    spec = problem.specs[place]
    low, high = (end / recordings[0].period for end in spec.bounds)
    tried = recordings[0].period * np.arange(np.ceil(low), np.floor(high) + 1)
    thetas = np.repeat(theta[None], len(tried), axis=0)
    thetas[:, place] = spec.encode(tried)
    system = ShootingSystem(segments, estimated_noise(segments, theta, segments.starts, channel_scale(segments)))
    best = tried[np.argmin(system.costs(thetas, segments.starts))]
    return problem.replace(view=replace(problem.view, latency=float(best)))
