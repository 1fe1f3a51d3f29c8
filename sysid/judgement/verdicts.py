"""Verdicts on a fit in words: one sentence per finding, the headline first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from softgym_envs.core.simulator import borne_bounds

from ..data.problem import FitProblem
from .elsewhere import Elsewhere
from .held import Held
from .laws import LeftOpen
from .longer import Longer
from .result import Estimate, Verdict
from .scan import Compatible
from .sides import OneSided
from .uncertainty import NORMAL, Identifiability, describe_null
from .validation import HorizonError, held_out
from .whiteness import ALARM, Whiteness

FAR, MUCH = 3.0, 0.01
"""Half widths of its interval, and share of its value, by which an error is more than chance, and matters: no `[ok]` where an
error of a fixed constant may exceed both."""
UNEXPLAINED = "THE MODEL DOES NOT EXPLAIN these data"
"""First words of the headline where residuals are not noise."""
ESTIMATED = 7.0
"""Relative variance, times the rows, of a variance estimated from third differences (`sysid.data.noise`; measured)."""
NOT_CONVERGED = "NOT CONVERGED: do not use these numbers"
"""Headline of a fit that did not converge, until it is compared with the constants before it."""


def misfit(evidence: Evidence) -> float:
    """Largest statistic over its limit; see `FitResult.misfit`."""
    lasting = 0.0 if evidence.whiteness is None else evidence.whiteness.share
    for each in (evidence.longer, evidence.held, evidence.elsewhere):
        lasting = max(lasting, 0.0 if each is None else each.share)
    return max(lasting, evidence.chi2 / _largest(evidence) if evidence.problem.known_noise is not None else 0.0)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Evidence for the verdicts."""

    problem: FitProblem
    identifiability: Identifiability
    estimates: tuple[Estimate, ...]
    converged: bool
    message: str
    """Reason why the method stopped."""
    chi2: float
    """Chi square per degree of freedom."""
    dof: int
    correlation: float
    """Correlation of consecutive residuals; 0 where they are mere rounding."""
    errors: str
    """Assumption of the covariance: "independent" or "clustered"."""
    start_costs: tuple[float, ...]
    pressed: tuple[str, ...]
    """Constants that the fit moved to a bound, e.g. "gain was pressed to its lower bound"."""
    open_loop: tuple[HorizonError, ...]
    compatible: tuple[Compatible, ...] = ()
    """Values that the model's own error allows, per constant; empty where it has none."""
    whiteness: Whiteness | None = None
    """None where residuals are mere rounding."""
    sides: tuple[OneSided | None, ...] = ()
    """One-sided bounds, per constant; None for a constant with two sides."""
    opened: tuple[LeftOpen, ...] = ()
    """Effects of the model's choices on the constants."""
    single: bool = False
    """Whether single steps from recorded states were fitted."""
    from_measured: bool = False
    """Whether fitted predictions start from recorded states."""
    carried: tuple[str, ...] = ()
    """Patterns of state entries that no column shows, and that segments take over from each other."""
    longer: Longer | None = None
    """Test of segments longer than the fitted ones; None: no result."""
    held: Held | None = None
    """Test of fixed constants; None: no result."""
    elsewhere: Elsewhere | None = None
    """Test of held-out recordings, where their residuals are too large; else None."""


def verdicts(evidence: Evidence) -> tuple[Verdict, ...]:
    """All verdicts, headline first."""
    bounded = {e.name for e, side in zip(evidence.estimates, evidence.sides, strict=bool(evidence.sides)) if side is not None}
    null = describe_null(evidence.identifiability, evidence.problem.specs)
    found = [Verdict("warning", text) for text in null if text.partition(" is not identifiable")[0] not in bounded]
    found += [*_one_sided(evidence), *_model_error(evidence)]
    if not evidence.converged:
        found.append(Verdict("failure", evidence.message))
    found += [
        Verdict("warning", f"{text}, where nothing of it shows: check the model, or start it elsewhere")
        for text in evidence.pressed
        if text.partition(" was ")[0] not in bounded or misfit(evidence) > 1.0
    ]
    for e in evidence.estimates:
        if e.at_bound == "lower" and e.value == 0.0 and misfit(evidence) <= 1.0:
            found.append(Verdict("note", f"{e.name} ended at 0{e.suffix}: the data are explained without any"))
        elif e.at_bound:
            text = f"{e.name} ended at its {e.at_bound} bound {e.value:g}{e.suffix}: the best value may lie beyond it"
            found.append(Verdict("warning", text + _unborne(evidence, e)))
    found += [
        *_assumed(evidence),
        *_opened(evidence),
        *_carried(evidence),
        *_weak(evidence),
        *_noise(evidence),
        *_correlation(evidence),
        *_over_longer(evidence),
        *_of_held(evidence),
        *_single_steps(evidence),
        *_starts(evidence),
        *_held_out(evidence),
    ]
    return (_headline(evidence, found), *found)


def _headline(evidence: Evidence, found: list[Verdict]) -> Verdict:
    known = [e.name for e in evidence.estimates if not e.hidden and not e.assumed]
    if not known:
        text = "NOT IDENTIFIABLE one by one: these data determine none of the constants; see below what they do determine"
        return Verdict("failure", text)
    if not evidence.converged:
        return Verdict("failure", NOT_CONVERGED)
    count = f"{len(known)} of {len(evidence.estimates)} constants identified ({', '.join(known)})"
    if misfit(evidence) > 1.0:
        return Verdict(
            "warning", f"{UNEXPLAINED}: {', '.join(known)} {'are' if len(known) > 1 else 'is'} its own, not the robot's"
        )
    if any(v.level in ("warning", "failure") for v in found):
        return Verdict("warning", f"{count}, with reservations")
    return Verdict("ok", f"{count}; {evidence.message}")


def _one_sided(evidence: Evidence) -> list[Verdict]:
    """Constants that the data bound on one side, or on none."""
    found = []
    for e, side in zip(evidence.estimates, evidence.sides, strict=bool(evidence.sides)):
        if side is not None and side.open == "both":
            text = f"{e.name} is not identifiable: with others fitted anew, every value that is allowed explains these data"
            found.append(Verdict("warning", text))
        elif side is not None:
            sign, limit = (">=", e.interval[0]) if side.open == "upper" else ("<=", e.interval[1])
            text = f"{e.name} {sign} {limit:.3g}{e.suffix} (95 %) is all that these data say of it: they bound one side only"
            text += "" if misfit(evidence) <= 1.0 else " (of a model that does not explain them: no bound of the robot's own)"
            found.append(Verdict("warning", text))
    return found


def _model_error(evidence: Evidence) -> list[Verdict]:
    """Constants that the model's own error hides, and values that fit better than the result."""
    found = []
    specs, hidden = evidence.problem.specs, evidence.identifiability.hidden
    for spec, compatible, null in zip(specs, evidence.compatible, hidden, strict=bool(evidence.compatible)):
        unit = "" if spec.unit == "-" else f" {spec.unit}"
        low, high = float(spec.decode(compatible.low)), float(spec.decode(compatible.high))
        if compatible.vague(spec) and not null:
            why = f"from {low:.3g} to {high:.3g}{unit} predictions change less than the model's own error"
            found.append(Verdict("warning", f"{spec.name} is not identifiable (by this model): {why}"))
        if compatible.better is not None:
            value = f"{float(spec.decode(compatible.better)):.3g}{unit}"
            text = f"{spec.name} = {value} alone fits better than the fit: a local minimum; start there, or use more starts"
            found.append(Verdict("warning", text))
    return found


def _assumed(evidence: Evidence) -> list[Verdict]:
    """Constants for which the prior says more than the data."""
    names = [e.name for e in evidence.estimates if e.assumed]
    if not names:
        return []
    return [Verdict("note", f"the data say less of {', '.join(names)} than was known before: no measurement of these")]


def _opened(evidence: Evidence) -> list[Verdict]:
    """Constants that a choice of the model changes; a warning where it changes them by more than noise does."""
    std = np.sqrt(np.maximum(np.diag(evidence.identifiability.covariance), 0.0))
    found = []
    for cause, reach, allowed in evidence.opened:
        least = std if allowed else NORMAL * std
        moved = [place for place, e in enumerate(evidence.estimates) if not e.hidden and reach[place] > least[place]]
        told = [f"{evidence.estimates[i].name} by up to {_amount(evidence, i, float(reach[i]))}" for i in moved]
        if told:
            more = any(reach[i] > NORMAL * std[i] for i in moved)
            said = (
                f"{cause} {'moves' if allowed else 'would move'} {', '.join(told)}{', more than noise does' if more else ''}: "
            )
            said += f"intervals{'' if allowed else ' do not'} allow for it"
            found.append(Verdict("warning" if more else "note", said))
    return found


def _carried(evidence: Evidence) -> list[Verdict]:
    """State entries that no column shows, predicted from a recording's start on."""
    if not evidence.carried:
        return []
    what = ", ".join(evidence.carried)
    text = f"{what}, which these data do not show, are predicted from where recordings begin: intervals do not allow for that"
    return [Verdict("warning", text)]


def _amount(evidence: Evidence, place: int, reach: float) -> str:
    """A change of a constant in words: in percent, up to 100, on a log scale, else in its unit."""
    spec, e = evidence.problem.specs[place], evidence.estimates[place]
    if spec.scale == "log":
        return _up_to_100(100 * reach, "%")
    return f"{abs(float(spec.slope(e.value))) * reach:.2g}{e.suffix}"


def _unborne(evidence: Evidence, estimate: Estimate) -> str:
    """Advice where a bound is that of the simulator's steps; "" elsewhere."""
    unborne = borne_bounds(evidence.problem.simulator, evidence.problem.constants)
    limited = estimate.at_bound == "upper" and estimate.name in unborne
    return "; steps of the simulator bear no more: fit with a smaller dt" if limited else ""


def _weak(evidence: Evidence) -> list[Verdict]:
    """Constants with a 95 % interval wider than a factor of e^2, or half of the allowed range."""
    std = np.sqrt(np.maximum(np.diag(evidence.identifiability.covariance), 0.0))
    limits = [0.5 if spec.scale == "log" else 0.125 for spec in evidence.problem.specs]
    weak = [e.name for e, s, limit in zip(evidence.estimates, std, limits, strict=True) if not e.hidden and s > limit]
    return [
        Verdict("warning", f"{name} is weakly identified: its 95 % interval spans much of what is allowed") for name in weak
    ]


def _noise(evidence: Evidence) -> list[Verdict]:
    """Test of known noise by chi square: mean 1, standard deviation sqrt(2 / dof)."""
    if evidence.problem.known_noise is None:
        return []
    told, factor = evidence.problem.noise_estimated, np.sqrt(evidence.chi2)
    noise = "stated noise" if not told else "recordings' noise"
    if evidence.chi2 > _largest(evidence):
        return [Verdict("warning", f"residuals are {factor:.3g} times the {noise}: the model cannot explain the data")]
    if evidence.chi2 < 0.8 * (1.0 - _spread(evidence)) and not told:
        return [Verdict("note", f"residuals are {factor:.2g} times the stated noise: it is overstated, intervals are too wide")]
    return []


def _spread(evidence: Evidence) -> float:
    """Four standard deviations of chi square; noise from third differences of N rows adds a variance of ESTIMATED / N."""
    return float(4.0 * np.sqrt((2.0 + ESTIMATED * evidence.problem.noise_estimated) / max(evidence.dof, 1)))


def _largest(evidence: Evidence) -> float:
    """Largest chi square that noise explains."""
    return 1.1 + _spread(evidence)


def _correlation(evidence: Evidence) -> list[Verdict]:
    test = evidence.whiteness
    if test is not None and not test.white:
        column, chance = evidence.problem.channel_names[test.column], f"by chance in {100 * ALARM:g} of 100 fits"
        if evidence.errors == "clustered":
            text = f"the model does not follow {column} to its noise (residuals last, {test.correlation:.2f}; {chance})"
            return [Verdict("note", f"{text}: intervals allow for it")]
        text = f"residuals are correlated in time ({column}: {test.correlation:.2f}; {chance}): model error"
        return [Verdict("warning", f"{text}; use errors='clustered'")]
    if evidence.correlation < -0.25 and evidence.from_measured:
        text = "the recorded states are noisy, but predictions start from them: the constants are biased"
        text = f"{text}; use longer segments with free_initial=True"
        return [Verdict("warning", text)]
    return []


def _over_longer(evidence: Evidence) -> list[Verdict]:
    """An error that short segments hide."""
    test = evidence.longer
    if test is None or test.share <= 1.0:
        return []
    column, chance = evidence.problem.channel_names[test.column], f"by chance in {100 * ALARM:g} of 100 fits"
    text = f"over segments of {test.rows} rows ({test.seconds:.3g} s) no constants follow {column}: residuals are "
    text += f"{test.growth:.3g} times as large ({chance}); "
    text += f"{test.cause} is why: halve it" if test.cause else "shorter segments hide an error of the model"
    return [Verdict("warning", text)]


def _of_held(evidence: Evidence) -> list[Verdict]:
    """Fixed constants that are wrong, or that the data do not determine."""
    test, found = evidence.held, list[Verdict]()
    if test is None:
        return []
    if test.share > 1.0:
        chance = f"by chance in {100 * ALARM:g} of 100 fits"
        return [Verdict("warning", f"residuals hide an error that moves the constants, as of {test.cause} ({chance})")]
    std = np.sqrt(np.maximum(np.diag(evidence.identifiability.covariance), 0.0))
    for name, amount, moved in test.untold if misfit(evidence) <= 1.0 else ():
        spec = evidence.problem.known_specs[name]
        unit = "" if spec.unit == "-" else f" {spec.unit}"
        places = [i for i, e in enumerate(evidence.estimates) if not e.hidden and moved[i] > NORMAL * std[i]]
        names = [evidence.estimates[i].name for i in places]
        text = f"intervals are for {name} = {evidence.problem.given(name):.3g}{unit}"
        if places and np.isinf(amount):
            found.append(Verdict("warning", f"{text}: these data cannot tell it from {', '.join(names)}"))
        elif places:
            moves = [f"{each} by {_amount(evidence, i, float(moved[i]))}" for each, i in zip(names, places, strict=True)]
            text += f": these data tell it only to {amount:.2g}{unit}, which moves {', '.join(moves)}"
            times = max(_half_widths(evidence, i, float(moved[i])) for i in places)
            if times > FAR:
                so_many = _up_to_100(times, "half widths of its interval")
                text += f", {so_many}: measure {name}, fit it, too, or record what tells it"
            found.append(Verdict("warning" if times > FAR else "note", text))
    return found


def _up_to_100(number: float, unit: str) -> str:
    """A number with two digits and its unit, "100 ... or more" from there on."""
    return f"{number:.2g} {unit}" if number < 99.5 else f"100 {unit} or more"


def _half_widths(evidence: Evidence, place: int, reach: float) -> float:
    """A constant's change in half widths of its interval; 0 where it is at most `MUCH` of the value."""
    e = evidence.estimates[place]
    (low, high), change = e.interval, abs(float(evidence.problem.specs[place].slope(e.value))) * reach
    return 2.0 * change / max(high - low, np.finfo(float).tiny) if change > MUCH * abs(e.value) else 0.0


def _single_steps(evidence: Evidence) -> list[Verdict]:
    """Errors that single steps cannot show."""
    if not evidence.single or evidence.whiteness is None or misfit(evidence) > 1.0:
        return []
    text = "single steps from recorded states show no error that lasts: a start, no measurement; use multiple_shooting"
    return [Verdict("warning", text)]


def _starts(evidence: Evidence) -> list[Verdict]:
    costs = evidence.start_costs
    if len(costs) < 2:
        return []
    same = sum(cost <= min(costs) * (1 + 1e-3) + 1e-12 for cost in costs)
    return [Verdict("note" if same > 1 else "warning", f"{same} of {len(costs)} starts ended at the best minimum")]


def _held_out(evidence: Evidence) -> list[Verdict]:
    judged = held_out(evidence.open_loop)
    if not judged:
        given = len(evidence.problem.split.test) > 0
        why = "recordings that were held out were not predicted" if given else "no recordings were held out"
        return [Verdict("note", f"{why}: how well the fit generalises was not measured")]
    longest = max(e.horizon for e in judged)
    last = [e for e in judged if e.horizon == longest]
    found = []
    if evidence.elsewhere is not None:
        column, ratio, _ = evidence.elsewhere
        text = f"of recordings that were held out residuals are {ratio:.3g} times as large, most in "
        text += f"{evidence.problem.channel_names[column]}: made with another robot or load, or the model is wrong there"
        found.append(Verdict("warning", text))
    if all(e.start < 1e-6 * e.persistence for e in last):
        found.append(Verdict("note", "the start constants predicted the held-out recordings already"))
    elif all(e.fitted > 0.95 * e.start for e in last):
        found.append(Verdict("warning", f"NO IMPROVEMENT on held-out recordings over the start constants at {longest:.3g} s"))
    useless = [e.kind for e in last if e.fitted >= e.persistence > 0]
    if useless:
        text = f"at {longest:.3g} s the prediction ({', '.join(useless)}) is no better than standing still"
        found.append(Verdict("warning", text))
    return found
