"""Files of a fit: fit.toml (for `gym.make(..., params=)`; marks numbers that must not be used), fit.json, report.html."""

from __future__ import annotations

from pathlib import Path

import tomli_w

from softgym_envs.core.files import read_toml, write_atomically, write_json
from softgym_envs.core.parameters import UNEXPLAINED, UNUSABLE

from ..diagnostics.result import FitResult
from .page import render


def save(result: FitResult, directory: str | Path, *, page: bool = True) -> Path:
    """Write fit.toml, fit.json and report.html; each appears whole or not at all. Returns the directory.

    The page takes 2 s of a processor; without `page` it is not written.

    Raises:
        MissingDependencyError: matplotlib or jinja2 is not installed.
    """
    directory = Path(directory)
    report = render(result) if page else ""
    result.parameters.save(
        directory / "fit.toml",
        std={name: result.std[name] for name in result.posterior.names},
        provenance={"method": result.method, **_reservation(result), **result.provenance},
        simulator=result.spec.table(),
    )
    write_json(directory / "fit.json", result.to_json())
    if page:
        write_atomically(directory / "report.html", report.encode())
    return directory


def copy_constants(source: Path, target: Path, unusable: tuple[str, ...], missing: tuple[str, ...] = ()) -> None:
    """Copy a fit.toml as the result of all stages; appears whole or not at all.

    It is marked where a stage that gave some parameters (`unusable`) failed, or stages are `missing`.
    """
    document = read_toml(source)
    provenance = {name: value for name, value in document["provenance"].items() if name != UNUSABLE}
    if missing:
        provenance[UNEXPLAINED] = f"interrupted: stages {', '.join(missing)} were not fitted"
    provenance |= _mark(f"the stage that gave {', '.join(unusable)} failed") if unusable else {}
    write_atomically(target, tomli_w.dumps({**document, "provenance": provenance}).encode())


def _reservation(result: FitResult) -> dict[str, str]:
    """Reason why the parameters must not be used, or only with care."""
    headline = result.diagnostics[0].sentence()
    if not result.usable:
        return _mark(headline)
    return {} if result.explained else {UNEXPLAINED: f"the fit says: {headline}"}


def _mark(why: str) -> dict[str, str]:
    return {UNUSABLE: f"the fit says: {why}"}
