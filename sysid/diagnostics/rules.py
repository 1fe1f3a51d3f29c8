"""Diagnostics of a fit from its evidence, the headline first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from softgym_envs.core.simulator import stable_bounds

from ..problem.problem import FitProblem
from .hold_out_test import HoldOutTest
from .model_form import ModelFormEffect
from .one_sided import OneSided
from .result import Estimate
from .scan import Compatible
from .score_test import ScoreTest
from .segment_length_test import SegmentLengthTest
from .sentences import Diagnostic, Severity
from .uncertainty import NORMAL, Identifiability, seen_combinations, without_effect
from .validation import HorizonError, held_out
from .whiteness import Whiteness

FAR, MUCH = 3.0, 0.01
"""Half widths of its interval, and share of its value, by which an error is more than chance, and matters: no `[ok]` where an
error of a fixed parameter may exceed both."""
ESTIMATED = 7.0
"""Relative variance, times the rows, of a variance estimated from third differences (`sysid.problem.noise`; measured)."""


def misfit(evidence: Evidence) -> float:
    """Largest statistic over its limit; see `FitResult.misfit`."""
    lasting = 0.0 if evidence.whiteness is None else evidence.whiteness.share
    for each in (evidence.segment_length_test, evidence.score_test, evidence.hold_out_test):
        lasting = max(lasting, 0.0 if each is None else each.share)
    return max(lasting, evidence.chi2 / _largest(evidence) if evidence.problem.known_noise is not None else 0.0)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence for the diagnostics."""

    problem: FitProblem
    identifiability: Identifiability
    estimates: tuple[Estimate, ...]
    converged: bool
    message: str  # Reason why the method stopped.
    chi2: float  # Chi square per degree of freedom.
    dof: int
    correlation: float  # Correlation of consecutive residuals; 0 where they are mere rounding.
    errors: str  # Assumption of the covariance: "independent" or "clustered".
    start_costs: tuple[float, ...]
    pressed: tuple[tuple[str, str], ...]  # Parameters that the fit moved to a bound, and that bound: ("gain", "lower").
    open_loop: tuple[HorizonError, ...]
    compatible: tuple[Compatible, ...] = ()  # Values that the model's own error allows, per parameter; empty where it has none.
    whiteness: Whiteness | None = None  # None where residuals are mere rounding.
    sides: tuple[OneSided | None, ...] = ()  # One-sided bounds, per parameter; None for a parameter with two sides.
    opened: tuple[ModelFormEffect, ...] = ()  # Effects of the model's choices on the parameters.
    single: bool = False  # Whether single steps from recorded states were fitted.
    from_measured: bool = False  # Whether fitted predictions start from recorded states.
    propagated: tuple[str, ...] = ()
    """Patterns of state entries that no column shows, and that segments take over from each other."""
    segment_length_test: SegmentLengthTest | None = None  # Test of segments longer than the fitted ones; None: no result.
    score_test: ScoreTest | None = None  # Test of fixed parameters; None: no result.
    hold_out_test: HoldOutTest | None = None  # Test of held-out recordings, where their residuals are too large; else None.


def diagnostics(evidence: Evidence) -> tuple[Diagnostic, ...]:
    """All diagnostics, headline first."""
    found = [
        *_hidden(evidence), *_one_sided(evidence), *_model_error(evidence), *_stopped(evidence), *_at_bounds(evidence),
        *_assumed(evidence), *_opened(evidence), *_propagated(evidence), *_weak(evidence), *_noise(evidence),
        *_correlation(evidence), *_over_longer(evidence), *_of_held(evidence), *_single_steps(evidence), *_starts(evidence),
        *_held_out(evidence),
    ]  # fmt: skip
    return (_headline(evidence, found), *found)


def _headline(evidence: Evidence, found: list[Diagnostic]) -> Diagnostic:
    known = [e.name for e in evidence.estimates if not e.hidden and not e.assumed]
    names, total = ", ".join(known), len(evidence.estimates)
    if not known:
        return Diagnostic("none_identifiable", "do_not_use")
    if not evidence.converged:
        return Diagnostic("not_converged", "do_not_use")
    if misfit(evidence) > 1.0:
        return Diagnostic("model_mismatch", "warning", names, misfit(evidence), 1.0, {"lasting": [], "factor": 0.0})
    reserved = any(d.severity in ("warning", "do_not_use") for d in found)
    code = "identified_with_reservations" if reserved else "identified"
    return Diagnostic(code, "warning" if reserved else "ok", names, len(known), total, {"why": evidence.message})


def _bounded(evidence: Evidence) -> set[str]:
    """Parameters that the data bound on one side, or on none."""
    sides = zip(evidence.estimates, evidence.sides, strict=bool(evidence.sides))
    return {e.name for e, side in sides if side is not None}


def _hidden(evidence: Evidence) -> list[Diagnostic]:
    """Parameters that the data cannot tell apart."""
    found, specs = evidence.identifiability, evidence.problem.specs
    hidden = [spec.name for spec, h in zip(specs, found.hidden, strict=True) if h]
    alone = without_effect(found, specs)
    facts: dict[str, object] = {"structural": all(found.structural)}
    said = [Diagnostic("no_effect", "warning", name, facts=facts) for name in alone if name not in _bounded(evidence)]
    if rest := [name for name in hidden if name not in alone]:
        facts |= {"seen": list(seen_combinations(found, specs))}
        said.append(Diagnostic("only_combinations", "warning", ", ".join(rest), facts=facts))
    return said


def _one_sided(evidence: Evidence) -> list[Diagnostic]:
    """Parameters that the data bound on one side, or on none."""
    found = []
    for e, side in zip(evidence.estimates, evidence.sides, strict=bool(evidence.sides)):
        if side is not None and side.open == "both":
            found.append(Diagnostic("any_value", "warning", e.name))
        elif side is not None and np.isfinite(side.limit):
            sign, limit = (">=", e.interval[0]) if side.open == "upper" else ("<=", e.interval[1])
            facts = {"sign": sign, "unit": e.suffix, "adequate": misfit(evidence) <= 1.0}
            found.append(Diagnostic("one_sided", "warning", e.name, limit, facts=facts))
    return found


def _model_error(evidence: Evidence) -> list[Diagnostic]:
    """Parameters that the model's own error hides, and values that fit better than the result."""
    found = []
    specs, hidden = evidence.problem.specs, evidence.identifiability.hidden
    for spec, compatible, null in zip(specs, evidence.compatible, hidden, strict=bool(evidence.compatible)):
        facts = {"unit": spec.suffix}
        if compatible.vague(spec) and not null:
            ends = {"low": float(spec.decode(compatible.low)), "high": float(spec.decode(compatible.high))}
            found.append(Diagnostic("within_model_error", "warning", spec.name, facts=facts | ends))
        if compatible.better is not None:
            better = float(spec.decode(compatible.better))
            found.append(Diagnostic("local_minimum", "warning", spec.name, better, facts=facts))
    return found


def _stopped(evidence: Evidence) -> list[Diagnostic]:
    return [] if evidence.converged else [Diagnostic("stopped", "do_not_use", facts={"why": evidence.message})]


def _at_bounds(evidence: Evidence) -> list[Diagnostic]:
    """Parameters at a bound, or pressed there without effect."""
    adequate, bounded = misfit(evidence) <= 1.0, _bounded(evidence)
    found = [
        Diagnostic("pressed", "warning", name, facts={"side": side})
        for name, side in evidence.pressed
        if name not in bounded or not adequate
    ]
    limited = stable_bounds(evidence.problem.simulator, evidence.problem.initial_parameters)
    for e in evidence.estimates:
        if e.at_bound == "lower" and e.value == 0.0 and adequate:
            found.append(Diagnostic("zero", "note", e.name, 0.0, facts={"unit": e.suffix}))
        elif e.at_bound:
            facts = {"side": e.at_bound, "unit": e.suffix, "by_step": e.at_bound == "upper" and e.name in limited}
            found.append(Diagnostic("at_bound", "warning", e.name, e.value, facts=facts))
    return found


def _assumed(evidence: Evidence) -> list[Diagnostic]:
    """Parameters for which the prior says more than the data."""
    names = [e.name for e in evidence.estimates if e.assumed]
    return [Diagnostic("prior", "note", ", ".join(names))] if names else []


def _opened(evidence: Evidence) -> list[Diagnostic]:
    """Parameters that a choice of the model changes; a warning where it changes them by more than noise does."""
    std = evidence.identifiability.std
    found = []
    for cause, reach, allowed in evidence.opened:
        least = std if allowed else NORMAL * std
        moved = [place for place, e in enumerate(evidence.estimates) if not e.hidden and reach[place] > least[place]]
        if moved:
            more = any(reach[i] > NORMAL * std[i] for i in moved)
            told = [_moved(evidence, i, float(reach[i])) for i in moved]
            facts = {"moved": told, "more": more, "allowed": allowed}
            found.append(Diagnostic("model_choice", "warning" if more else "note", cause, facts=facts))
    return found


def _propagated(evidence: Evidence) -> list[Diagnostic]:
    """State entries that no column shows, predicted from a recording's start on."""
    return [Diagnostic("propagated_state", "warning", ", ".join(evidence.propagated))] if evidence.propagated else []


def _moved(evidence: Evidence, place: int, reach: float) -> dict[str, object]:
    """Change of a parameter: relative on a log scale, else in its unit."""
    spec, e = evidence.problem.specs[place], evidence.estimates[place]
    log = spec.scale == "log"
    size = reach if log else abs(float(spec.slope(e.value))) * reach
    return {"name": e.name, "reach": size, "log": log, "unit": e.suffix}


def _weak(evidence: Evidence) -> list[Diagnostic]:
    """Parameters with a 95 % interval wider than a factor of e^2, or half of the allowed range."""
    std = evidence.identifiability.std
    limits = [0.5 if spec.scale == "log" else 0.125 for spec in evidence.problem.specs]
    weak = [e.name for e, s, limit in zip(evidence.estimates, std, limits, strict=True) if not e.hidden and s > limit]
    return [Diagnostic("weak", "warning", name) for name in weak]


def _noise(evidence: Evidence) -> list[Diagnostic]:
    """Test of known noise by chi square: mean 1, standard deviation sqrt(2 / dof)."""
    if evidence.problem.known_noise is None:
        return []
    estimated, factor, limit = evidence.problem.noise_estimated, float(np.sqrt(evidence.chi2)), _largest(evidence)
    if evidence.chi2 > limit:
        return [Diagnostic("noise_exceeded", "warning", "", factor, limit**0.5, {"estimated": estimated})]
    if evidence.chi2 < 0.8 * (1.0 - _spread(evidence)) and not estimated:
        return [Diagnostic("noise_overstated", "note", "", factor)]
    return []


def _spread(evidence: Evidence) -> float:
    """Four standard deviations of chi square; noise from third differences of N rows adds a variance of ESTIMATED / N."""
    return float(4.0 * np.sqrt((2.0 + ESTIMATED * evidence.problem.noise_estimated) / max(evidence.dof, 1)))


def _largest(evidence: Evidence) -> float:
    """Largest chi square that noise explains."""
    return 1.1 + _spread(evidence)


def _correlation(evidence: Evidence) -> list[Diagnostic]:
    test = evidence.whiteness
    if test is not None and not test.white:
        clustered, column = evidence.errors == "clustered", evidence.problem.channel_names[test.column]
        facts = {"correlation": test.correlation, "clustered": clustered}
        severity: Severity = "note" if clustered else "warning"
        return [Diagnostic("residuals_last", severity, column, test.z, test.limit, facts)]
    if evidence.correlation < -0.25 and evidence.from_measured:
        return [Diagnostic("noisy_starts", "warning", "", evidence.correlation, -0.25)]
    return []


def _over_longer(evidence: Evidence) -> list[Diagnostic]:
    """An error that short segments hide."""
    test = evidence.segment_length_test
    if test is None or test.share <= 1.0:
        return []
    facts = {"rows": test.rows, "seconds": test.seconds, "growth": test.growth, "cause": test.cause}
    column = evidence.problem.channel_names[test.column]
    return [Diagnostic("longer_segments", "warning", column, test.z, test.limit, facts)]


def _of_held(evidence: Evidence) -> list[Diagnostic]:
    """Fixed parameters that are wrong, or that the data do not determine."""
    test, found = evidence.score_test, list[Diagnostic]()
    if test is None:
        return []
    if test.share > 1.0:
        return [Diagnostic("hidden_error", "warning", test.cause, test.share, 1.0)]
    std = evidence.identifiability.std
    for name, amount, moved in test.not_given if misfit(evidence) <= 1.0 else ():
        spec = evidence.problem.known_specs[name]
        places = [i for i, e in enumerate(evidence.estimates) if not e.hidden and moved[i] > NORMAL * std[i]]
        if not places:
            continue
        times = max(_half_widths(evidence, i, float(moved[i])) for i in places)
        facts = {
            "given": evidence.problem.given(name), "unit": spec.suffix,
            "moved": [_moved(evidence, i, float(moved[i])) for i in places], "times": times, "much": times > FAR,
        }  # fmt: skip
        known = None if np.isinf(amount) else amount
        severity: Severity = "warning" if known is None or times > FAR else "note"
        found.append(Diagnostic("fixed_uncertain", severity, name, known, facts=facts))
    return found


def _half_widths(evidence: Evidence, place: int, reach: float) -> float:
    """A parameter's change in half widths of its interval; 0 where it is at most `MUCH` of the value."""
    e = evidence.estimates[place]
    (low, high), change = e.interval, abs(float(evidence.problem.specs[place].slope(e.value))) * reach
    return 2.0 * change / max(high - low, np.finfo(float).tiny) if change > MUCH * abs(e.value) else 0.0


def _single_steps(evidence: Evidence) -> list[Diagnostic]:
    """Errors that single steps cannot show."""
    hidden = evidence.single and evidence.whiteness is not None and misfit(evidence) <= 1.0
    return [Diagnostic("single_steps", "warning")] if hidden else []


def _starts(evidence: Evidence) -> list[Diagnostic]:
    costs = evidence.start_costs
    if len(costs) < 2:
        return []
    same = sum(cost <= min(costs) * (1 + 1e-3) + 1e-12 for cost in costs)
    return [Diagnostic("starts", "note" if same > 1 else "warning", "", same, len(costs))]


def _held_out(evidence: Evidence) -> list[Diagnostic]:
    errors = held_out(evidence.open_loop)
    if not errors:
        return [Diagnostic("not_held_out", "note", facts={"given": len(evidence.problem.split.test) > 0})]
    longest = max(e.horizon for e in errors)
    last = [e for e in errors if e.horizon == longest]
    found = []
    if evidence.hold_out_test is not None:
        column, ratio, share = evidence.hold_out_test
        name = evidence.problem.channel_names[column]
        found.append(Diagnostic("held_out_residuals", "warning", name, ratio, ratio / share**0.5))
    if all(e.start < 1e-6 * e.persistence for e in last):
        found.append(Diagnostic("start_sufficed", "note"))
    elif all(e.fitted > 0.95 * e.start for e in last):
        found.append(Diagnostic("no_improvement", "warning", "", longest))
    useless = [e.kind for e in last if e.fitted >= e.persistence > 0]
    if useless:
        found.append(Diagnostic("no_better_than_still", "warning", ", ".join(useless), longest))
    return found
