"""A fit on disk: fit.toml (what `gym.make(..., params=)` takes), fit.json (for machines) and report.html (for people)."""

from __future__ import annotations

from pathlib import Path

from softgym_envs.core.errors import FileFormatError
from softgym_envs.core.files import read_json, write_atomically, write_json

from ..judgement.result import FitResult
from ..judgement.uncertainty import PosteriorParameters
from .page import render


def save(result: FitResult, directory: str | Path) -> Path:
    """Write fit.toml, fit.json and report.html; each appears whole or not at all. Returns the directory.

    Raises:
        MissingDependencyError: matplotlib or jinja2 is not installed.
    """
    directory = Path(directory)
    page = render(result)
    result.parameters.save(
        directory / "fit.toml",
        std={name: result.std[name] for name in result.posterior.names},
        provenance={"method": result.method, **result.provenance},
        simulator=result.spec.table(),
    )
    write_json(directory / "fit.json", result.to_json())
    write_atomically(directory / "report.html", page.encode())
    return directory


def load_distribution(path: str | Path) -> PosteriorParameters:
    """The posterior of a saved fit, from its directory or its fit.json.

    Raises:
        FileFormatError: No such file, not JSON, or no posterior in it.
    """
    path = Path(path) / "fit.json" if Path(path).is_dir() else Path(path)
    document = read_json(path)
    if not isinstance(document.get("posterior"), dict):
        raise FileFormatError(f"{path} holds no fit with a posterior")
    return PosteriorParameters.from_json(document["posterior"])
