"""Result of a fit: estimates, their uncertainty, and diagnostics.

`sysid.report.save` writes it to files.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from softgym_envs.core.files import provenance
from softgym_envs.core.interface import Interface
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.posterior import FLAT_VARIANCE, PosteriorParameters
from softgym_envs.core.simulator import Array
from softgym_envs.core.spec import SimulatorSpec

from ..least_squares.levenberg import FitIteration
from ..problem.interface import Sensors, interface_of
from ..problem.problem import FitProblem
from ..problem.recording_parameters import RecordingParameters
from .prediction_intervals import Band
from .sentences import Diagnostic, Severity
from .uncertainty import Combination
from .validation import ROLES, HorizonError, Trace, source_of


@dataclass(frozen=True)
class Estimate:
    """One parameter after the fit."""

    name: str
    unit: str
    value: float  # Identified value; for a hidden parameter the start value along the directions that are not seen.
    std: float  # [unit]; infinite if the parameter is hidden.
    interval: tuple[float, float]
    """95 % confidence, widened by the model's own error (see `.scan`); the bounds if nothing is seen."""
    start: float
    bounds: tuple[float, float]
    at_bound: str  # "lower", "upper" or "".
    hidden: bool  # Whether the data do not identify the parameter: `value` is then no measurement.
    assumed: bool = False  # Whether the data say less than the prior: value and interval then come mostly from the prior.

    @property
    def suffix(self) -> str:
        """Unit to print after a number: " kg"; empty without a unit."""
        return "" if self.unit == "-" else f" {self.unit}"

    def line(self) -> str:
        """One line for people, without a number for a hidden parameter."""
        if self.hidden and self.interval != self.bounds:
            low, high = self.interval
            return f"{self.name}: not identifiable, within {low:.4g} ... {high:.4g}{self.suffix} (95 %)"
        if self.hidden:
            return f"{self.name}: not identifiable"
        bound = f" (at its {self.at_bound} bound)" if self.at_bound else " (mostly as known before)" if self.assumed else ""
        low, high = self.interval
        clipped = [bound for bound, end in zip(self.bounds, self.interval, strict=True) if end == bound]
        if clipped and not bound:
            bound = f" (as far as it is allowed: {' ... '.join(f'{end:.4g}' for end in clipped)})"
        digits = next((d for d in range(6, 11) if f"{low:.{d}g}" != f"{high:.{d}g}"), 6)  # enough to see the interval
        return f"{self.name} = {self.value:.{digits}g}{self.suffix}, 95 % [{low:.{digits}g}, {high:.{digits}g}]{bound}"


class Ended(NamedTuple):
    """Final states and noise of a fit, from which another fit of the same recordings may start."""

    states: tuple[Array, ...]  # States of every recording (T+1, nx); where segments meet, those of the later one.
    noise: Array  # (m,) standard deviations that weighted the residuals.


@dataclass(frozen=True, eq=False)
class FitResult:
    """See the module docstring."""

    method: str
    parameters: Parameters
    start: Parameters
    estimates: tuple[Estimate, ...]
    combinations: tuple[Combination, ...]  # Identified combinations of hidden parameters.
    posterior: PosteriorParameters
    noise: dict[str, float]  # Channel -> standard deviation of the residual, known or estimated.
    noise_known: bool
    reduced_chi2: float  # Squared weighted residuals per degree of freedom.
    dof: int
    singular_values: tuple[float, ...]  # Singular values of the weighted Jacobian in fit coordinates.
    diagnostics: tuple[Diagnostic, ...]  # The first is the headline.
    log: tuple[FitIteration, ...]
    start_costs: tuple[float, ...]  # Final cost of every start of a multi-start.
    converged: bool
    open_loop: tuple[HorizonError, ...]
    trace: Trace
    seconds: float
    provenance: dict[str, str]
    spec: SimulatorSpec  # Simulator that the parameters belong to; saved with them.
    sensors: Sensors  # Noise and rate of the sensors that made the recordings.
    view: RecordingParameters = field(default_factory=RecordingParameters)
    """Parameters of the recordings: latency, and the camera's pose."""
    bands: tuple[Band, ...] = ()
    """Errors of predictions, whether or not the model is right; empty where recordings are too short."""
    misfit: float = 0.0
    """Distance of residuals from noise: the largest statistic of the tests, over its limit.

    The tests are for errors that last in any column, and for their size where the noise is not estimated from the residuals.
    """
    ended: Ended | None = None  # Final states and noise; None for a method that provides no states.

    @property
    def interface(self) -> Interface:
        """Latency of the commands, and bias, gain, noise and rate of the sensors, as the recordings show them."""
        return interface_of(self.view, self.sensors)

    @property
    def explained(self) -> bool:
        """Whether the residuals pass for noise in all tests."""
        return self.misfit <= 1.0

    @property
    def free(self) -> tuple[str, ...]:
        """Names of the parameters that were fitted."""
        return tuple(e.name for e in self.estimates)

    @property
    def std(self) -> dict[str, float]:
        """Parameter -> standard deviation [its unit]."""
        return {e.name: e.std for e in self.estimates}

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Parameter -> 95 % confidence interval."""
        return {e.name: e.interval for e in self.estimates}

    @property
    def at_bound(self) -> tuple[str, ...]:
        """Names of the parameters that ended at a bound."""
        return tuple(e.name for e in self.estimates if e.at_bound)

    @property
    def covariance(self) -> Array:
        """Covariance in the units of the robot's parameters: infinite variance where hidden, NaN in their other entries."""
        own = [e for e in self.estimates if e.name in self.posterior.names]
        slopes = np.array([float(self.parameters.specs()[e.name].slope(e.value)) for e in own])
        covariance = self.posterior.covariance * np.outer(slopes, slopes)
        hidden = np.array([e.hidden for e in own])
        covariance[hidden, :], covariance[:, hidden] = np.nan, np.nan
        covariance[hidden, hidden] = np.inf
        return covariance

    @property
    def correlation(self) -> Array:
        """Correlations of the robot's parameters in fit coordinates; NaN for hidden parameters."""
        std = np.sqrt(np.diag(self.posterior.covariance))
        hidden = np.array([e.hidden for e in self.estimates if e.name in self.posterior.names])
        with np.errstate(all="ignore"):
            correlation = self.posterior.covariance / np.outer(std, std)
        correlation[hidden, :], correlation[:, hidden] = np.nan, np.nan
        return np.asarray(correlation)

    @property
    def usable(self) -> bool:
        """Whether the headline does not forbid to use the parameters."""
        return self.diagnostics[0].severity != "do_not_use"

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes of the diagnostics, headline first."""
        return tuple(d.code for d in self.diagnostics)

    def of(self, code: str) -> tuple[Diagnostic, ...]:
        """The diagnostics of one code."""
        return tuple(d for d in self.diagnostics if d.code == code)

    def distribution(self) -> PosteriorParameters:
        """Distribution for domain randomisation: the posterior, and what the data leave open over its stated intervals.

        Parameters without a number, whose values a direction of the posterior does not couple to others, are drawn alone.
        """
        own = [e for e in self.estimates if e.name in self.posterior.names]
        p, specs = len(own), [self.parameters.specs()[e.name] for e in own]
        null = np.zeros((p, 0)) if self.posterior.null is None else self.posterior.null
        coupled = np.abs(null).max(axis=1, initial=0.0) > FLAT_VARIANCE
        alone = np.flatnonzero([e.hidden and not c for e, c in zip(own, coupled, strict=True)])
        covariance = self.posterior.covariance.copy()
        covariance[alone], covariance[:, alone] = 0.0, 0.0
        spans = [e.interval if e.hidden else e.bounds for e in own]
        ends = np.array([spec.encode(np.array(span)) for spec, span in zip(specs, spans, strict=True)]).reshape(p, 2).T
        return replace(self.posterior, covariance=covariance, null=np.hstack([null, np.eye(p)[:, alone]]), ends=ends)

    def with_diagnostic(
        self, code: str, severity: Severity, parameter: str = "", *numbers: float | None, **facts: Any
    ) -> FitResult:
        """Copy with one more diagnostic; one that forbids to use the parameters becomes the headline."""
        value, limit = (*numbers, None, None)[:2]
        added = Diagnostic(code, severity, parameter, value, limit, facts)
        first = severity == "do_not_use"
        return replace(self, diagnostics=(added, *self.diagnostics) if first else (*self.diagnostics, added))

    def with_reservation(self, code: str, parameter: str = "", *numbers: float | None, **facts: Any) -> FitResult:
        """Copy with a warning; a headline that is `ok` then has reservations."""
        first, *others = self.diagnostics
        if first.severity == "ok":
            first = replace(first, code="identified_with_reservations", severity="warning")
        return replace(self, diagnostics=(first, *others)).with_diagnostic(code, "warning", parameter, *numbers, **facts)

    def summary(self) -> str:
        """A few lines for people: diagnostics, then parameters."""
        whose = "" if self.explained else ", of this model alone"
        lines = [f"[{d.severity}] {d.sentence()}" for d in self.diagnostics]
        lines += [e.line() if e.hidden else f"{e.line()}{whose}" for e in self.estimates]
        lines += [
            f"{c.formula} = {c.value:.6g} {c.unit}, 95 % [{c.interval[0]:.6g}, {c.interval[1]:.6g}]" for c in self.combinations
        ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Everything but the trace, as plain lists and numbers; "inf", "-inf" and "nan" are strings, as JSON has none."""
        plain = {
            "method": self.method, "diagnostics": [d.to_json() for d in self.diagnostics], "converged": self.converged,
            "parameters": {"kind": type(self.parameters).__name__, **_scalars(self.parameters)}, "start": _scalars(self.start),
            "estimates": [asdict(e) for e in self.estimates], "combinations": [asdict(c) for c in self.combinations],
            "posterior": self.posterior.table(), "noise": self.noise, "noise_known": self.noise_known,
            "reduced_chi2": self.reduced_chi2, "dof": self.dof,
            "singular_values": list(self.singular_values), "start_costs": list(self.start_costs),
            "open_loop": [asdict(e) for e in self.open_loop], "log": [asdict(entry) for entry in self.log],
            "seconds": self.seconds, "provenance": self.provenance, "explained": self.explained,
            "misfit": self.misfit,
            "view": _scalars(self.view), "sensors": self.sensors._asdict(), "bands": [asdict(band) for band in self.bands],
        }  # fmt: skip
        cleaned = _without_infinities(plain)
        assert isinstance(cleaned, dict)
        return cleaned


def remaining_share(after: FitResult, before: FitResult) -> float:
    """Share of the squared residuals that another fit of the same data leaves: ratio of chi squares times that of weights."""
    weights = [after.noise[name] / before.noise[name] for name in before.noise]
    return after.reduced_chi2 / before.reduced_chi2 * float(np.exp(2.0 * np.mean(np.log(weights))))


def provenance_of(problem: FitProblem) -> dict[str, str]:
    """Origin of a fit's numbers: data, simulator, code, versions, date."""
    substeps = problem.split.train[0].substeps
    parts = {
        f"data_sha256_{name}": part.sha256
        for name, part in zip(("train", "validation", "test"), problem.split, strict=True)
        if len(part)
    }
    return provenance(
        **parts,
        files=_files(problem),
        recordings=" + ".join(str(len(part)) for part in problem.split) + " (train + validation + test)",
        steps=" + ".join(str(part.num_steps) for part in problem.split) + " (train + validation + test)",
        simulator=f"{type(problem.simulator).__name__}, dt = {problem.simulator.dt:g} s, {substeps} substeps",
    )


def _files(problem: FitProblem) -> str:
    """Files, or else experiments, of all recordings, with their roles.

    Several recordings of one file, or of one experiment, are named once.
    """
    parts = zip(ROLES.values(), problem.split, strict=True)
    named = [(role, dict.fromkeys(filter(None, map(source_of, part)))) for role, part in parts]
    return "; ".join(f"{role}: {', '.join(sources)}" for role, sources in named if sources)


def _scalars(parameters: Parameters) -> dict[str, float]:
    return {name: float(getattr(parameters, name)) for name in parameters.names()}


def _without_infinities(value: object) -> object:
    if isinstance(value, np.generic):  # a comparison of NumPy's numbers is no bool, which JSON does not take
        value = value.item()
    if isinstance(value, dict):
        return {key: _without_infinities(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_infinities(entry) for entry in value]
    if isinstance(value, float) and not np.isfinite(value):
        return str(float(value))
    return value
