"""Predictions of new recordings by a fit: errors beside simple predictors, coverage of prediction intervals, files, page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softgym_envs.core.errors import DataError, FileFormatError, OptionError
from softgym_envs.core.files import provenance, read_json, read_toml, write_atomically, write_json
from softgym_envs.core.parameters import UNUSABLE, Parameters
from softgym_envs.core.procedure import EXPERIMENT, Procedure
from softgym_envs.core.simulator import Simulator
from softgym_envs.core.spec import SimulatorSpec
from softgym_envs.core.trajectory import Trajectory, TrajectorySet, is_whole
from softgym_envs.systems import system as system_named

from ..diagnostics.predictions import Coverage, PredictionError, Predictions, ahead, compared, joined, label, of_fit
from ..diagnostics.result import FitResult
from ..problem.checks import check_recordings
from ..problem.problem import FitProblem
from ..problem.wrong_units import quantities
from ..report.prediction import render
from .identification import FIT, Identification, StageResult
from .job import Job
from .stage_problem import stage_problem

FILE = "prediction.json"
LEAST_COVERAGE, FEWEST = 2.0 / 3.0, 9
"""Least share of predictions within the 90 % intervals, and least number of predictions that counts."""
UP_TO = 1.0  # [s] Longest horizon at which a fit must do better than standing still.
MOST_FAILED = 0.1  # Largest share of predictions that may diverge.
UNCHECKED = "no prediction interval was checked: compare the errors with the accuracy that you need"
MOVED = 1e-6  # Error of standing still [SI] from which something moves.


@dataclass(frozen=True, eq=False)
class Prediction:
    """See the module docstring.

    The fit *holds* unless one of `reasons` speaks against it:

    - it must not be used, or more than a tenth of the predictions diverge;
    - less than two thirds of nine or more predictions are within its 90 % intervals;
    - at the longest horizon up to 1 s, standing still predicts all kinds of quantities better, or all that move.

    Where its intervals were not `checked`, that says little: compare the errors with the accuracy that is needed.
    """

    errors: tuple[PredictionError, ...]
    coverage: tuple[Coverage, ...]
    unusable: str
    """Why the fit must not be used; "" if it may be."""
    recordings: tuple[str, ...]
    """File or experiment of every recording."""
    provenance: Mapping[str, str]
    predictions: Predictions | None = None
    """All predictions; None after `load`."""

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Why the fit does not hold for these recordings, in words; empty if it holds."""
        found = [f"the fit must not be used: {self.unusable}"] if self.unusable else []
        worst = max(self.errors, key=lambda error: error.failed / error.windows, default=None)
        if worst is not None and worst.failed > MOST_FAILED * worst.windows:
            found.append(f"{worst.failed} of {worst.windows} predictions over {ahead(worst.horizon)} diverge")
        for each in self.coverage:
            if each.windows >= FEWEST and each.within < LEAST_COVERAGE:
                found.append(
                    f"{100 * each.within:.0f} % of the predictions over {ahead(each.horizon)} are within the 90 % interval of "
                    f"{each.size:.3g} {each.kind}"
                )
        last = max((error.horizon for error in self.errors if error.horizon <= UP_TO), default=None)
        far = [error for error in self.errors if error.horizon == last and error.still > MOVED]
        worse = [error for error in far if error.predicted > error.still]
        if worse and (len(worse) == len(far) or (not any(map(self._speaks_for_it, far)) and any(map(self._moves, worse)))):
            found.append(f"standing still predicts {ahead(far[0].horizon)} better than the fit")
        return tuple(found)

    def _moves(self, far: PredictionError) -> bool:
        """Whether quantities go on moving: standing still errs by more, the longer the horizon."""
        same = [error.still for error in self.errors if error.kind == far.kind and error.horizon <= far.horizon]
        return far.still > 2.0 * min(same)

    def _speaks_for_it(self, far: PredictionError) -> bool:
        """Whether the fit predicts more than noise about a mean, which is 0.7 times the error of standing still."""
        return far.predicted < far.still * (1.0 if self._moves(far) else 0.5)

    @property
    def checked(self) -> bool:
        """Whether prediction intervals of the fit were checked, by nine predictions or more."""
        return any(each.windows >= FEWEST for each in self.coverage)

    @property
    def headline(self) -> str:
        """The result in a sentence."""
        if self.reasons:
            return "the fit does not hold: " + "; ".join(self.reasons)
        return "the fit holds for these recordings" if self.checked else f"nothing speaks against the fit, but {UNCHECKED}"

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against using the fit for such recordings."""
        return not self.reasons

    def summary(self) -> str:
        """The result and its table, for people."""
        lines = [
            self.headline,
            f"{'horizon':>16s} {'unit':>6s} {'predicted':>10s} {'standing still':>15s} {'constant velocity':>18s}",
        ]
        lines += [
            f"{ahead(e.horizon):>16s} {e.kind:>6s} {e.predicted:>10.3g} {e.still:>15.3g} {e.velocity:>18.3g}"
            for e in self.errors
        ]
        lines += [
            f"within the 90 % interval of {c.size:.3g} {c.kind} over {ahead(c.horizon)}: {100 * c.within:.0f} % of {c.windows}"
            for c in self.coverage
        ]
        return "\n".join(lines)

    def save(self, path: str | Path) -> Path:
        """Write prediction.json, or another .json file; a folder gets a file of this name. Returns the path."""
        path = Path(path) if Path(path).suffix == ".json" else Path(path) / FILE
        document = {
            "holds": self.holds, "checked": self.checked, "reasons": list(self.reasons), "unusable": self.unusable,
            "recordings": list(self.recordings),
            "errors": [_plain(each) for each in self.errors], "coverage": [_plain(each) for each in self.coverage],
            "provenance": dict(self.provenance),
        }  # fmt: skip
        write_json(path, document)
        return path

    @classmethod
    def load(cls, path: str | Path) -> Prediction:
        """Read what `save` wrote; its page lacks plots of recordings.

        Raises:
            FileFormatError: No such file, or a damaged one.
        """
        path = Path(path) if Path(path).suffix == ".json" else Path(path) / FILE
        document = read_json(path)
        try:
            errors = tuple(PredictionError(**_numbers(each)) for each in document["errors"])
            coverage = tuple(Coverage(**_numbers(each)) for each in document["coverage"])
            recordings = tuple(map(str, document["recordings"]))
            return cls(errors, coverage, str(document["unusable"]), recordings, dict(document["provenance"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileFormatError(f"{path} is damaged: {error!r}") from error

    def report(self, path: str | Path) -> Path:
        """Write one HTML page; returns the path.

        Raises:
            MissingDependencyError: matplotlib or jinja2 is not installed.
        """
        given = (self.errors, self.coverage, self.reasons, self.headline, self.recordings, self.provenance, self.predictions)
        write_atomically(Path(path), render(*given).encode())
        return Path(path)


def _plain(entry: Any) -> dict[str, Any]:
    return {n: str(v) if isinstance(v, float) and not np.isfinite(v) else v for n, v in asdict(entry).items()}


def _numbers(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if name == "kind" else float(value) for name, value in entry.items()}


# --- By a fit ---------------------------------------------------------------------------------------------------------------


class _Fit(NamedTuple):
    """What predictions need of a fit."""

    parameters: Parameters
    spec: SimulatorSpec
    unusable: str
    stages: tuple[StageResult, ...]  # Empty where only fit.toml is there.


def by_fit(fit: Identification | str | Path, data: Sequence[Trajectory], system: str) -> Prediction:
    """`sysid.predict` by a fit, or by its file."""
    given = _of_file(Path(fit), system) if isinstance(fit, (str, Path)) else _of(fit)
    spec, last = given.spec, given.stages[-1].name if given.stages else None
    job = Job(
        system or spec.system, data, spec.model or None, spec.options, spec.dt, stage=last or None,
        initial_guess=given.parameters,
    )  # fmt: skip
    for place, recording in enumerate(data):
        as_fitted = abs(recording.period - spec.dt * recording.substeps) < 1e-3 * recording.period
        if not (as_fitted or is_whole(recording.period, spec.dt)):
            raise DataError(
                f"{label(recording, place)}: rows are {recording.period:.6g} s apart, no whole multiple of the fit's "
                f"dt = {spec.dt:g} s: resample them, state the rate with `fps`, or fit again with a `dt` that suits both"
            )
    procedure, simulator, recordings = job.prepared()
    if mismatch := spec.mismatch(SimulatorSpec.of(simulator), free=job.declared.free_structure):
        raise OptionError(f"the parameters cannot be used: {mismatch}")
    groups: dict[str, list[Trajectory]] = {}
    for recording in recordings:
        groups.setdefault(_stage_of(recording, given, procedure), []).append(recording)
    parts, coverage = [], list[Coverage]()
    for name, chosen in groups.items():
        result = next((stage.fit for stage in given.stages if stage.name == name), None)
        problem = _problem(procedure, name, simulator, chosen, given.parameters, result)
        pairs = [of_fit(problem, given.parameters, each, len(recordings)) for each in problem.split.train]
        units = list(map(str, quantities(simulator, problem.column_names, problem.column_units)))
        parts.append(compared(pairs, problem.column_names, units))
        coverage += parts[-1].coverage(result.bands if result is not None else ())
    found = joined(parts)
    origin = provenance(
        data_sha256=recordings.sha256, system=spec.system, fit="" if isinstance(fit, Identification) else str(fit)
    )
    names = tuple(label(recording, place) for place, recording in enumerate(recordings))
    return Prediction(found.errors(), tuple(coverage), given.unusable, names, origin, found)


def _of(fit: Identification) -> _Fit:
    return _Fit(fit.parameters, fit.spec, fit.headline if fit.unusable else "", fit.stages)


def _of_file(path: Path, system: str) -> _Fit:
    """A fit from its folder, or from fit.toml alone, which lacks prediction intervals."""
    file = path if path.suffix == ".toml" else path / FIT
    if file.name == FIT and file.with_name("fit.json").is_file():
        return _of(Identification.load(file, system=system))
    spec = SimulatorSpec.read(file)
    if spec is None:
        raise FileFormatError(f"{file} does not say to which simulator it belongs: it is no fit")
    simulator = system_named(system or spec.system).simulator(spec.model or None, options=spec.options)
    parameters = type(simulator.default_parameters).load(file, simulator.default_parameters)
    return _Fit(parameters, spec, str(read_toml(file).get("provenance", {}).get(UNUSABLE, "")), ())


def _stage_of(recording: Trajectory, fit: _Fit, procedure: Procedure) -> str:
    """Stage that fitted such recordings: the last one of their experiment, else the last one."""
    known = {stage.name: stage.experiment for stage in procedure.all_stages}
    fitted = [stage.name for stage in fit.stages if stage.name in known]
    own = [name for name in fitted if known[name] == recording.metadata.get(EXPERIMENT, "")]
    default = (procedure.from_recordings or procedure.stages[-1]).name
    return (own or fitted or [default])[-1]


def _problem(
    procedure: Procedure, name: str, simulator: Simulator, recordings: Sequence[Trajectory], parameters: Parameters,
    result: FitResult | None,
) -> FitProblem:  # fmt: skip
    """The recordings as the stage sees them, whole; only its simulator, columns and starts matter."""
    stage = procedure.stage(name)
    stage = replace(stage, data=replace(stage.data, window=None, noise_known=False))
    labelled = tuple(replace(t, metadata={**t.metadata, EXPERIMENT: stage.experiment}) for t in recordings)
    more: dict[str, Any] = {"free": parameters.names()[:1], "free_motion": True, "checked": True}
    if result is not None:
        more["view"] = result.view
    problem = stage_problem(procedure, stage, simulator, TrajectorySet(labelled), start=parameters, **more)
    check_recordings(problem)
    if result is not None and (lacking := [name for name in result.noise if name not in problem.column_names]):
        raise DataError(f"the recordings lack {', '.join(lacking)}, which the fit was made with")
    if result is not None and result.noise_known and set(problem.column_names) <= set(result.noise):
        return problem.replace(noise={name: result.noise[name] for name in problem.column_names}, checked=True)
    return problem
