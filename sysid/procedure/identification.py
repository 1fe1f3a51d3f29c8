"""What an identification found: one fit, or those of several stages, with files, page and summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from softgym_envs.core.errors import FileFormatError
from softgym_envs.core.files import read_json, write_atomically, write_json
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.posterior import PosteriorParameters
from softgym_envs.core.spec import SimulatorSpec
from softgym_envs.systems import system as system_named

from ..diagnostics.prediction_intervals import Band
from ..diagnostics.result import Estimate, FitResult
from ..diagnostics.sentences import Diagnostic
from ..diagnostics.uncertainty import Combination
from ..diagnostics.validation import NO_TRACE, HorizonError
from ..least_squares.levenberg import FitIteration
from ..problem.interface import Sensors
from ..problem.recording_parameters import RecordingParameters
from ..report.files import copy_parameters, save
from ..report.page import render

FIT = "fit.toml"  # File of the parameters, in the folder of a stage.


@dataclass(frozen=True)
class StageResult:
    """The fit of a stage."""

    name: str
    fit: FitResult

    @property
    def free(self) -> tuple[str, ...]:
        """Names of the parameters that were fitted."""
        return self.fit.free


@dataclass(frozen=True)
class Identification:
    """See the module docstring."""

    stages: tuple[StageResult, ...]
    """Those that were fitted, in their order."""
    notes: tuple[str, ...] = ()
    """What was decided and remarked on the way, in words."""

    @property
    def parameters(self) -> Parameters:
        """Parameters after the last stage."""
        return self.stages[-1].fit.parameters

    @property
    def spec(self) -> SimulatorSpec:
        """Simulator that the parameters belong to."""
        return self.stages[-1].fit.spec

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Diagnostics of the decisive stages, each headline first."""
        return tuple(found for stage in self.decisive for found in stage.fit.diagnostics)

    @property
    def decisive(self) -> tuple[StageResult, ...]:
        """Stages except those whose parameters were all fitted again later."""
        return tuple(
            stage
            for index, stage in enumerate(self.stages)
            if not set(stage.free) <= {name for later in self.stages[index + 1 :] for name in later.free}
        )

    @property
    def unusable(self) -> tuple[str, ...]:
        """Parameters that are those of a failed stage: the last stage that changed them, or the only one that freed them."""
        failed: dict[str, bool] = {}
        for stage in self.stages:
            for name in stage.free:
                if stage.fit.usable or stage.fit.codes[0] != "kept_previous":
                    failed[name] = not stage.fit.usable
                failed.setdefault(name, True)
        return tuple(name for name, bad in failed.items() if bad)

    @property
    def headline(self) -> str:
        """Headlines of the decisive stages in words, with their names where there are several."""
        said = [(stage.name, stage.fit.diagnostics[0].sentence()) for stage in self.decisive]
        return said[0][1] if len(said) == 1 else "; ".join(f"{name}: {sentence}" for name, sentence in said)

    def distribution(self) -> PosteriorParameters:
        """Posterior of the decisive stages, for domain randomisation."""
        return PosteriorParameters.joint([stage.fit.distribution() for stage in self.decisive])

    def summary(self) -> str:
        """A few lines for people; stages that decide nothing are marked."""
        if len(self.stages) == 1:
            return self.stages[0].fit.summary()
        begins = " (initial guess only: later stages fit these parameters again)"
        heads = (stage.name + (begins if stage not in self.decisive else "") for stage in self.stages)
        lines = [f"{head}\n{stage.fit.summary()}" for head, stage in zip(heads, self.stages, strict=True)]
        if self.unusable:
            lines.append(f"do not use {', '.join(self.unusable)}: the stage that gave them failed; see above")
        return "\n".join(lines)

    # --- files ----------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path, missing: tuple[str, ...] = ()) -> Path:
        """Write fit.toml, which `gym.make(..., params=)` takes, and fit.json beside it, for `load`; returns the path.

        Several stages have a folder each beside it.

        Args:
            path: The file, named fit.toml, or its folder.
            missing: Stages that were to be fitted, and were not.
        """
        folder = _folder(path)
        if len(self.stages) == 1 and not missing:
            save(self.stages[0].fit, folder, page=False)
            return folder / FIT
        for stage in self.stages:
            save(stage.fit, folder / stage.name, page=False)
        self.save_whole(folder, missing)
        return folder / FIT

    def save_whole(self, folder: Path, missing: tuple[str, ...] = ()) -> None:
        """Write fit.toml and fit.json of several stages, whose own files are there."""
        copy_parameters(folder / self.stages[-1].name / FIT, folder / FIT, self.unusable, missing, self.distribution())
        write_json(folder / "fit.json", {"stages": [stage.name for stage in self.stages], "notes": list(self.notes)})

    def report(self, path: str | Path) -> Path:
        """Write one HTML page of all stages; returns the path.

        Raises:
            MissingDependencyError: matplotlib or jinja2 is not installed.
        """
        write_atomically(Path(path), render(*(stage.fit for stage in self.stages)).encode())
        return Path(path)

    @classmethod
    def load(cls, path: str | Path, *, system: str = "", model: Any = None) -> Identification:
        """Read what `save`, or `identify` with `out`, wrote; its pages lack the plot of one recording.

        Args:
            path: fit.toml, or its folder.
            system: "package.module:SYSTEM" of a system that is not on the list.
            model: Structure, if the file that describes it is elsewhere.

        Raises:
            FileFormatError: No such files, or damaged ones.
            OptionError: There is no such system.
        """
        folder = _folder(path)
        spec = SimulatorSpec.read(folder / FIT)
        if spec is None:
            raise FileFormatError(f"{folder / FIT} does not say to which simulator it belongs: it is no fit")
        default = (
            system_named(system or spec.system).simulator(model or spec.model or None, options=spec.options).default_parameters
        )
        document = read_json(folder / "fit.json")
        if "stages" not in document:
            return cls((StageResult(str(document.get("provenance", {}).get("stage", "")), loaded(folder, type(default))),))
        stages = tuple(StageResult(name, loaded(folder / name, type(default))) for name in document["stages"])
        return cls(stages, tuple(document["notes"]))


def _folder(path: str | Path) -> Path:
    """Folder of a fit.toml."""
    path = Path(path)
    if path.suffix not in ("", ".toml") or (path.suffix == ".toml" and path.name != FIT):
        raise FileFormatError(f"{path} is no folder, and not named {FIT}")
    return path.parent if path.suffix else path


def loaded(folder: Path, kind: type[Parameters]) -> FitResult:
    """The fit whose files are in a folder, without its trace.

    Raises:
        FileFormatError: No such files, or damaged ones.
    """
    document, parameters = read_json(folder / "fit.json"), kind.load(folder / FIT)
    try:
        plain: dict[str, Any] = {f.name: document[f.name] for f in fields(FitResult) if f.name in PLAIN}
        listed: dict[str, Any] = {name: tuple(_made(made, entry) for entry in document[name]) for name, made in LISTS.items()}
        return FitResult(
            **plain, **listed, parameters=parameters, start=kind(**_numbers(document["start"])),
            posterior=PosteriorParameters.of_table(f"{folder / 'fit.json'}: posterior", document["posterior"]),
            diagnostics=tuple(Diagnostic.from_json(entry) for entry in document["diagnostics"]),
            noise=_numbers(document["noise"]), singular_values=tuple(map(float, document["singular_values"])),
            start_costs=tuple(map(float, document["start_costs"])), view=RecordingParameters(**_numbers(document["view"])),
            sensors=Sensors(_numbers(document["sensors"]["noise"]), float(document["sensors"]["rate"])),
            trace=NO_TRACE,
            spec=SimulatorSpec.read(folder / FIT) or SimulatorSpec("", 0.0),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise FileFormatError(f"{folder / 'fit.json'} is damaged: {error!r}") from error


PLAIN = ("method", "noise_known", "reduced_chi2", "dof", "converged", "seconds", "provenance", "misfit")
LISTS: Mapping[str, type[Any]] = {
    "estimates": Estimate, "combinations": Combination, "log": FitIteration, "open_loop": HorizonError, "bands": Band,
}  # fmt: skip


def _made(kind: type[Any], entry: Mapping[str, Any]) -> Any:
    """A row of a list: texts that stand for numbers, "inf" and "nan", are these."""
    return kind(**{name: _number(value) for name, value in entry.items()})


def _number(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_number, value))
    return float(value) if isinstance(value, str) and value in ("inf", "-inf", "nan") else value


def _numbers(table: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in table.items()}
