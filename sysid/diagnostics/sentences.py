"""Diagnostics of a fit as values, and the one place that makes sentences from them.

Code, severity and numbers are for programs, sentences for people: nothing else reads or makes them. Names of keyword arguments
stand in backticks, here and in messages of errors; `as_flags` rewords these for the command line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

from .whiteness import ALARM

Severity = Literal["ok", "note", "warning", "do_not_use"]


@dataclass(frozen=True)
class Diagnostic:
    """One finding on a fit; JSON-able."""

    code: str
    """Key of `CODES`."""
    severity: Severity
    parameter: str = ""
    """Parameters, column or cause that it is about, separated by ", "."""
    value: float | None = None
    """What was found."""
    limit: float | None = None
    """What is allowed, or expected."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further facts of its sentence."""

    @property
    def hint(self) -> str:
        """What to do."""
        return CODES[self.code].hint

    def sentence(self) -> str:
        """The finding in words."""
        words, own = CODES[self.code].words, {"parameter": self.parameter, "value": self.value, "limit": self.limit}
        return words.format(**own, **self.facts) if isinstance(words, str) else words(SimpleNamespace(**own, **self.facts))

    def to_json(self) -> dict[str, Any]:
        """All fields, with the hint and the sentence."""
        own = {"code": self.code, "severity": self.severity, "parameter": self.parameter, "value": self.value}
        return own | {"limit": self.limit, "facts": dict(self.facts), "hint": self.hint, "sentence": self.sentence()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Diagnostic:
        """Read an entry of fit.json; `KeyError`, `AttributeError`, `TypeError` or `ValueError` where it is damaged."""
        found = cls(*(document[name] for name in ("code", "severity", "parameter", "value", "limit", "facts")))
        found.sentence()
        return found


class Code(NamedTuple):
    """Kind of a diagnostic."""

    meaning: str
    hint: str  # What to do.
    words: str | Callable[[Any], str]  # Sentence with places for fields and facts of a diagnostic, or a function of these.
    alarms: str = ""  # Rate of false alarms for fits of right models.


SWITCHES = ("free_motion", "flip_y")  # Arguments whose flag has no value.
SETTINGS = ("box", "errors", "jacobian", "segment_steps", "starts")  # Arguments that are settings of a method.


def as_flags(text: str) -> str:
    """Text with arguments in backticks as flags of the command line.

    >>> as_flags("say `free_motion=True`, `free=(..., 'a', 'b')` or `errors='clustered'`; raise `max_iterations`")
    'say --free-motion, --free ... a b or --settings errors=clustered; raise --max-iterations'
    """

    def flag(found: re.Match[str]) -> str:
        name, values = found[1], re.sub(r"[(),']", " ", found[2] or "").split()
        if name in SETTINGS:
            return f"--settings {name}={values[0] if values else '...'}"
        return " ".join([f"--{name.replace('_', '-')}", *([] if name in SWITCHES else values)])

    return re.sub(r"`(\w+)(?:=([^`]*))?`", flag, text)


def _chance() -> str:
    return f"by chance in {100 * ALARM:g} of 100 fits"


def up_to_100(number: float, unit: str) -> str:
    """A number with two digits and its unit, "100 ... or more" from there on."""
    return f"{number:.2g} {unit}" if number < 99.5 else f"100 {unit} or more"


def _counted(d: Any) -> str:
    return f"{d.value} of {d.limit} parameters identified ({d.parameter})"


def _mismatch(d: Any) -> str:
    own = f"{d.parameter} {'are effective values' if ', ' in d.parameter else 'is an effective value'} of this model"
    why = [f"errors last from row to row ({', '.join(d.lasting)}; by chance up to {d.chance:.2f})"] if d.lasting else []
    why += [f"errors are {d.factor:.2f} times what noise makes"] if d.factor else []
    return "model mismatch: residuals are not noise: " + (
        f"{' and '.join(why)}; parameters below are of this model alone" if why else own
    )


def _kind_of_data(d: Any) -> str:
    return "for any data of this kind" if d.structural else "at this noise"


def _combinations(d: Any) -> str:
    seen = (
        f"only {' and '.join(d.seen)} {'is' if len(d.seen) == 1 else 'are'} seen"
        if d.seen
        else "no combination of them is seen"
    )
    return f"{d.parameter} are not identifiable one by one ({_kind_of_data(d)}): {seen}"


def _one_sided(d: Any) -> str:
    said = f"{d.parameter} {d.sign} {d.value:.3g}{d.unit} (95 %) is all that these data say of it: they bound one side only"
    return said + ("" if d.adequate else " (of a model that does not explain them: no bound of the robot's own)")


def _at_bound(d: Any) -> str:
    said = f"{d.parameter} ended at its {d.side} bound {d.value:g}{d.unit}: the best value may lie beyond it"
    return said + ("; the simulator's step is unstable beyond it: fit with a smaller `dt`" if d.by_step else "")


def _amount(moved: Mapping[str, Any]) -> str:
    """A change of a parameter: in percent, up to 100, on a log scale, else in its unit."""
    return up_to_100(100 * moved["reach"], "%") if moved["log"] else f"{moved['reach']:.2g}{moved['unit']}"


def _choice(d: Any) -> str:
    told = ", ".join(f"{moved['name']} by up to {_amount(moved)}" for moved in d.moved)
    more = ", more than noise does" if d.more else ""
    allow = "intervals allow for it" if d.allowed else "intervals do not allow for it"
    return f"{d.parameter} {'moves' if d.allowed else 'would move'} {told}{more}: {allow}"


def _lasting(d: Any) -> str:
    if d.clustered:
        said = f"the model does not follow {d.parameter} to its noise (residuals last, {d.correlation:.2f}; {_chance()})"
        return f"{said}: intervals allow for it"
    said = f"residuals are correlated in time ({d.parameter}: {d.correlation:.2f}; {_chance()}): model error"
    return f"{said}; use `errors='clustered'`"


def _longer(d: Any) -> str:
    said = f"over segments of {d.rows} rows ({d.seconds:.3g} s) no parameters follow {d.parameter}: residuals are "
    said += f"{d.growth:.3g} times as large ({_chance()}); "
    return said + (f"{d.cause} is why: halve it" if d.cause else "shorter segments hide an error of the model")


def _fixed(d: Any) -> str:
    said = f"intervals are for {d.parameter} = {d.given:.3g}{d.unit}"
    if d.value is None:
        return f"{said}: these data cannot separate it from {', '.join(moved['name'] for moved in d.moved)}"
    moves = ", ".join(f"{moved['name']} by {_amount(moved)}" for moved in d.moved)
    said += f": these data determine it only to within {d.value:.2g}{d.unit}, which moves {moves}"
    if not d.much:
        return said
    said += f", {up_to_100(d.times, 'half widths of its interval')}"
    return f"{said}: measure {d.parameter}, fit it, too, or record motions that show it"


def _unheld(d: Any) -> str:
    why = "recordings that were held out were not predicted" if d.given else "no recordings were held out"
    return f"{why}: how well the fit generalises was not measured"


def _unknown_cause(d: Any) -> str:
    said = "why the model does not explain the data is unknown" + (f"; tried: {', '.join(d.tried)}" if d.tried else "")
    said += f"; not tried: {d.untried}" if d.untried else ""
    if d.parameter:
        said += f". The largest improvement comes from {d.parameter} ({d.told})"
        said += f", which leaves {100 * d.value:.0f} % of the squared residuals"
    return said


def _likely_cause(d: Any) -> str:
    among = f"of those tried ({', '.join(d.tried)}) " if len(d.tried) > 1 else "(no other was tried) "
    where = f" (in another simulator: {d.elsewhere})" if d.elsewhere is not None else ""
    rest = "and then the data are explained"
    if not d.adequate:
        partly = ", so that it is a part of the cause at most" if d.partly else ""
        rest = f"{100 * d.value:.0f} % of the squared residuals are left{partly}"
    said = f"the likeliest cause {among}is {d.parameter}{where}: {d.told}; {rest}"
    said += (
        ". Record motions that separate them"
        if d.alike
        else f". Fit it, too: `free=({', '.join(['...', *map(repr, d.freed)])})`"
    )
    said += f". As well explained by {', or '.join(d.also)}" if d.also else ""
    return said + (f". Not tried: {d.untried}" if d.untried and not d.adequate else "")


def _depends(d: Any) -> str:
    held = ", ".join(f"{name} = {value:.3g}" for name, value in d.held.items())
    said = f"{d.parameter}: only for {held}, which is fixed; with that free, too, the data are explained by {d.told}"
    return f"{said}. Measure it, or fit it: `free=({', '.join(map(repr, d.free))})`"


def _predicted(d: Any) -> str:
    parts = [f"{horizon:.3g} s ahead within {', '.join(sizes)}" for horizon, sizes in d.sizes]
    right = f"right {'; '.join(parts)}, medians of {d.rows} rows ({d.windows} windows"
    if not d.fitted:
        return f"nine of ten predictions of such recordings are {right} of recordings that were kept back)"
    if d.adequate:
        return f"nine of ten predictions of such recordings are {right}, {d.fitted} of them fitted)"
    return f"nine of ten predictions of the fitted recordings are {right}); of new ones fewer are: hold one out to know"


def _of_the_model(d: Any) -> str:
    more = ""
    if d.parameter:
        more = (
            f"; predictions of these are off by up to {d.value:.2g} {d.unit} ({d.parameter}), noise is {d.limit:.2g} {d.unit}"
        )
    more += f"; prediction intervals need {d.need:g} s" if d.need else "; trust the prediction intervals" if d.trust else ""
    said = "the model does not explain these data: intervals are of the parameters with which it predicts such recordings best"
    return f"{said}, and of what its error leaves open, not of the robot's own{more}"


def _label(d: Any) -> str:
    words = f"wrong {d.what}: {d.parameter}" + "".join(f", or {other}" for other in d.others)
    gain = f"residuals are {d.value:.2g} times the noise, not {d.before:.3g} times ({d.told})"
    beside = ". Something else is wrong, too (another robot or model?), so it may be another label"
    return f"{words}; with that correction, {gain}{beside if d.value > d.limit else ''}. {d.remedy}"


def _step(d: Any) -> str:
    coarse = f"the simulator's own step of {d.before:g} s" + (", or what else is coarse in it," if d.changed else "")
    fine = f"in steps of {d.after:g} s" + (f" with {d.changed}" if d.changed else "")
    if d.adequate:
        return f"{coarse} is why: {fine} the data are explained: {d.told}"
    return f"{coarse} is a part of why: {fine} {100 * d.value:.2g} % of the squared residuals are left: {d.told}"


def _exceeds(d: Any) -> str:
    noise = "recordings' noise" if d.estimated else "stated noise"
    return f"residuals are {d.value:.3g} times the {noise}: the model cannot explain the data"


def _second(d: Any) -> str:
    if d.how == "forgetful":
        return "a first fit ended elsewhere; this one begins where filters end that forget errors sooner"
    end = "a minimum that did not explain the data" if d.converged else "no minimum"
    how = f"begins at what segments of {d.rows} rows give" if d.how == "short" else "used other horizons"
    return f"a first fit ended at {end}; this one {how}"


MEASURE = "Measure the parameter, fit it too, or record motions that show it."
CODES: dict[str, Code] = {
    "identified": Code("All tests passed.", "Use the parameters.", lambda d: f"{_counted(d)}; {d.why}"),
    "identified_with_reservations": Code(
        "Residuals pass for noise, but a warning limits what the parameters mean.",
        "Read the warnings.",
        lambda d: f"{_counted(d)}, with reservations",
    ),
    "model_mismatch": Code(
        "Residuals are not noise: parameters are effective values of this model.",
        "Use them to predict only; see the causes that were tried.",
        _mismatch,
        "0.88 to 1.12 % (springs, eight systems)",
    ),
    "none_identifiable": Code(
        "The data determine no parameter.",
        "Record other motions, or fit fewer parameters.",
        "not identifiable one by one: these data determine none of the parameters; see below what they do determine",
    ),
    "not_converged": Code(
        "The method did not reach a minimum.",
        "Raise `max_iterations`, or begin at other parameters.",
        "not converged: do not use these numbers",
    ),
    "stopped": Code("Why the method stopped.", "Do what the sentence says.", lambda d: d.why),
    "kept_previous": Code(
        "Parameters before the fit predict better; they are used.",
        "Look for a wrong model, label or start.",
        "kept the parameters before this stage, not those below: with these, errors on {data} are {value:.3g} times as large",
    ),
    "used_unconverged": Code(
        "The fit did not converge, but predicts better than the parameters before.",
        "Use the parameters to predict only.",
        "not converged, but used to predict, as errors on {data} are {percent:.3g} % of those before: no measurement of these "
        "parameters",
    ),
    "wrong_label": Code("Other units, axes or columns explain the data, these do not.", "Correct the recordings.", _label),
    "noise_understated": Code(
        "The given noise is far below that of the recordings.",
        "Correct `noise`, or leave it out.",
        "the stated noise is some {value:.2g} times smaller than the recordings' own",
    ),
    "no_effect": Code(
        "A parameter has no effect on what was measured.",
        MEASURE,
        lambda d: f"{d.parameter} is not identifiable ({_kind_of_data(d)}): it has no effect on what was measured",
    ),
    "only_combinations": Code(
        "Only combinations of parameters are determined.",
        "Use the combinations, or measure one of the parameters.",
        _combinations,
    ),
    "any_value": Code(
        "Every allowed value explains the data.",
        MEASURE,
        "{parameter} is not identifiable: with others fitted anew, every value that is allowed explains these data",
    ),
    "one_sided": Code("The data bound a parameter on one side only.", MEASURE, _one_sided),
    "within_model_error": Code(
        "The error of the model hides a parameter.",
        "Improve the model, or measure the parameter.",
        "{parameter} is not identifiable (by this model): from {low:.3g} to {high:.3g}{unit} predictions change "
        "less than the model's own error",
    ),
    "local_minimum": Code(
        "Another value of one parameter fits better.",
        "Start there, or use more `starts`.",
        "{parameter} = {value:.3g}{unit} alone fits better than the fit: a local minimum; start there, or use more `starts`",
    ),
    "pressed": Code(
        "The fit moved a parameter without effect to a bound.",
        "Check the model, or start elsewhere.",
        "{parameter} was driven to its {side} bound, where it has no effect: check the model, or start it elsewhere",
    ),
    "zero": Code(
        "A parameter ended at 0, and the fit is adequate.",
        "Nothing.",
        "{parameter} ended at 0{unit}: the data are explained without any",
    ),
    "at_bound": Code("A parameter ended at a bound.", "Check the model; widen the bounds only with reason.", _at_bound),
    "prior": Code(
        "The prior says more of a parameter than the data.",
        "Do not count it as measured.",
        "the data say less of {parameter} than was known before: no measurement of these",
    ),
    "model_choice": Code(
        "A choice of the model moves parameters: its step, a law, equal parts.",
        "Use a smaller `dt`, or wider intervals where they do not allow for it.",
        _choice,
    ),
    "choice_not_followed": Code(
        "The model cannot follow the data with another amount of a choice.",
        "Take intervals as too narrow.",
        "with another amount of {parameter} the model does not follow the recordings: what it leaves open is not known",
    ),
    "propagated_state": Code(
        "State entries that no column shows are predicted from the start.",
        "Measure them, or use shorter recordings.",
        "{parameter}, which these data do not show, are predicted from where recordings begin: intervals do not allow for that",
    ),
    "weak": Code(
        "An interval spans much of what is allowed.",
        MEASURE,
        "{parameter} is weakly identified: its 95 % interval spans much of what is allowed",
    ),
    "noise_exceeded": Code("Residuals exceed the noise.", "Improve the model, or correct `noise`.", _exceeds),
    "noise_overstated": Code(
        "Residuals are below the given noise.",
        "Correct `noise`.",
        "residuals are {value:.2g} times the stated noise: it is overstated, intervals are too wide",
    ),
    "residuals_last": Code(
        "Residuals are correlated in time.",
        "Improve the model, or use `errors='clustered'`.",
        _lasting,
        "0.88 to 1.12 % (springs, eight systems)",
    ),
    "noisy_starts": Code(
        "Predictions start from noisy measured states.",
        "Use longer segments and `free_initial=True`.",
        "the recorded states are noisy, but predictions start from them: the parameters are biased; use longer "
        "segments with `free_initial=True`",
    ),
    "longer_segments": Code(
        "The parameters do not hold over longer segments.",
        "Improve the model, or use longer segments.",
        _longer,
        "1 of 120 pendulums; 8 of 622 springs",
    ),
    "hidden_error": Code(
        "Residuals lie along the effect of a fixed parameter.",
        "Fit this parameter, too.",
        lambda d: f"residuals hide an error that moves the parameters, as of {d.parameter} ({_chance()})",
        f"{100 * ALARM:g} % by construction",
    ),
    "fixed_uncertain": Code("Parameters hold only for a fixed one that the data hardly show.", MEASURE, _fixed),
    "single_steps": Code(
        "Single steps show no error that lasts.",
        "Fit again by multiple_shooting.",
        "single steps from recorded states show no error that lasts: a start, no measurement; use multiple_shooting",
    ),
    "starts": Code(
        "How many starts ended at the best minimum.",
        "Use more `starts` where it is one.",
        "{value} of {limit} starts ended at the best minimum",
    ),
    "not_held_out": Code("No held-out recording was predicted.", "Hold out a recording.", _unheld),
    "held_out_residuals": Code(
        "Residuals of held-out recordings are larger than those of the fitted ones.",
        "Check that robot and load are the same.",
        "of recordings that were held out residuals are {value:.3g} times as large, most in {parameter}: made with another "
        "robot or load, or the model is wrong there",
        "2 of 600 springs",
    ),
    "start_sufficed": Code(
        "The parameters before the fit predict held-out data exactly.",
        "Nothing.",
        "the start parameters predicted the held-out recordings already",
    ),
    "no_improvement": Code(
        "The fit predicts held-out data no better than the start.",
        "Improve the model, or record more.",
        "no improvement on held-out recordings over the start parameters at {value:.3g} s",
    ),
    "no_better_than_still": Code(
        "The prediction is no better than standing still.",
        "Do not predict so far.",
        "at {value:.3g} s the prediction ({parameter}) is no better than standing still",
    ),
    "unknown_cause": Code(
        "No candidate cause explains the mismatch.", "Try the untested causes, or improve the model.", _unknown_cause
    ),
    "likely_cause": Code(
        "Candidate cause that takes most off the residuals.",
        "Fit its parameters, too, or record motions that separate them.",
        _likely_cause,
    ),
    "depends_on_fixed": Code("Parameters change where a fixed one is freed.", MEASURE, _depends),
    "step_matters": Code("Finer steps of the simulator explain the data.", "Fit with a smaller `dt`.", _step),
    "other_simulator": Code(
        "Residuals are noise only with other options of the simulator, which the fit uses.",
        "Nothing.",
        "the fit uses another option of the simulator, as the usual one leaves residuals that are not noise: {changed}",
    ),
    "lone_outliers": Code(
        "Single values far off their neighbours are left out.",
        "Check the sensor or the tracker.",
        "outliers, more than {limit:g} standard deviations off beside others that are not: {value} of all numbers, left out",
    ),
    "outliers": Code(
        "Points far off the fit are left out.",
        "Check the sensor or the tracker.",
        lambda d: (
            f"{100 * d.value:.2g} % of the points are farther off than {d.limit:g} standard deviations: outliers, left out"
        ),
    ),
    "interrupted": Code(
        "The examination of the fit did not end.",
        "Run it again, with `resume=True`.",
        "interrupted: what it may lack was not looked for to the end",
    ),
    "not_searched": Code(
        "There was no time for some candidate causes, or bounds of parameters.",
        "Give `diagnose='full'`.",
        "not searched: {parameter}; `diagnose='full'`",
    ),
    "second_fit": Code("A second fit replaces the first.", "Nothing.", _second),
    "fits_disagree": Code(
        "Two fits of the same data end farther apart than noise explains.",
        "Use the intervals, which cover both.",
        lambda d: (
            f"another way to the same data ends at {', '.join(f'{name} {value:.3g}' for name, value in d.moved.items())}, "
            "farther off than noise explains: intervals allow for it"
        ),
    ),
    "outside_noise_bound": Code(
        "No parameters leave all residuals within the bound of the noise.",
        "Correct `noise`, or leave out `box`.",
        "missed: no parameters leave all residuals within the stated bound of {limit:.3g} standard deviations; "
        "these are least squares",
    ),
    "noise_bound": Code(
        "Parameters are means of what bounded noise allows.",
        "Nothing.",
        "parameters are the mean of what noise within {limit:.3g} standard deviations allows, intervals 95 % of it",
    ),
    "prediction_interval": Code(
        "Errors that nine of ten predictions stay below.", "Use these where the model does not fit.", _predicted
    ),
    "intervals_of_model": Code(
        "Intervals are of this model's best parameters, not of the robot's.", "Trust the prediction intervals.", _of_the_model
    ),
}
"""Code -> what it means."""
