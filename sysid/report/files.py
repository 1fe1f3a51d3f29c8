"""Files of a fit: fit.toml (for `gym.make(..., params=)`; marks numbers that must not be used), fit.json, report.html."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tomli_w

from softgym_envs.core.files import read_toml, write_atomically, write_json
from softgym_envs.core.interface import NOT_PLAYED
from softgym_envs.core.parameters import UNEXPLAINED, UNUSABLE
from softgym_envs.core.posterior import PosteriorParameters

from ..diagnostics.result import FitResult
from ..fitting.online import HorizonResult
from ..problem.interface import left_out
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
        provenance={"method": result.method, **_reservation(result), **_without(result), **result.provenance},
        simulator=result.spec.table(),
        interface=result.interface.table(),
        posterior=result.distribution().table(),
    )
    write_json(directory / "fit.json", result.to_json())
    if page:
        write_atomically(directory / "report.html", report.encode())
    return directory


def copy_parameters(
    source: Path, target: Path, unusable: tuple[str, ...], missing: tuple[str, ...], posterior: PosteriorParameters
) -> None:
    """Copy a fit.toml as the result of all stages, with their posterior; appears whole or not at all.

    It is marked where a stage that gave some parameters (`unusable`) failed, or stages are `missing`.
    """
    document = read_toml(source)
    provenance = {name: value for name, value in document["provenance"].items() if name != UNUSABLE}
    if missing:
        provenance[UNEXPLAINED] = f"interrupted: stages {', '.join(missing)} were not fitted"
    provenance |= _mark(f"the stage that gave {', '.join(unusable)} failed") if unusable else {}
    changed = {**document, "provenance": provenance, "posterior": posterior.table()}
    write_atomically(target, tomli_w.dumps(changed).encode())


def _reservation(result: FitResult) -> dict[str, str]:
    """Reason why the parameters must not be used, or only with care."""
    headline = result.diagnostics[0].sentence()
    if not result.usable:
        return _mark(headline)
    return {} if result.explained else {UNEXPLAINED: f"the fit says: {headline}"}


def _without(result: FitResult) -> dict[str, str]:
    """Parameters of the recordings that are no part of the table [interface]."""
    names = left_out(result.view)
    return {NOT_PLAYED: ", ".join(names)} if names else {}


def _mark(why: str) -> dict[str, str]:
    return {UNUSABLE: f"the fit says: {why}"}


def save_rows(found: HorizonResult, state_names: tuple[str, ...], path: Path) -> None:
    """Write times, parameters, their standard deviations, states, seconds and excess per row as CSV [SI]."""
    deviations = tuple(f"{name}.std" for name in found.names)
    header = ("time [s]", *found.names, *deviations, *state_names, "processor [s]", "excess")
    columns = [found.times[:, None], found.mean, found.std, found.states, found.seconds[:, None], found.excess[:, None]]
    rows = [",".join(f"{value:.9g}" for value in row) for row in np.hstack(columns)]
    write_atomically(path, "\n".join([",".join(header), *rows, ""]).encode())


def rows_in_words(found: HorizonResult) -> str:
    """One line per parameter, the time per row, the number of windows that the model does not explain, and a caveat."""
    lines = [
        f"{name} = {value:.4g}, standard deviation {std:.2g}" if told else f"{name}: not identifiable so far"
        for name, value, std, told in zip(found.names, found.mean[-1], found.std[-1], found.determined, strict=True)
    ]
    rows, first = found.seconds[1:], found.seconds[0]
    if len(rows):
        lines += [
            f"{1e3 * np.median(rows):.1f} ms of a processor per row ({1e3 * rows.max():.1f} at most), {first:.2g} s before"
        ]
    missed = int((found.excess > 1.0).sum())
    if missed:
        lines += [
            f"do not use these numbers: in {missed} of {len(found.times)} rows the noise does not explain the residuals (up to "
            f"{np.sqrt(found.excess.max()):.3g} times what it does): model error"
        ]
    if not missed:
        lines += [
            "each row asks its window alone: whether the model explains the whole, the same command says without --online"
        ]
    return "\n".join(lines)
