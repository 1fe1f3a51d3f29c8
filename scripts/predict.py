"""Predict new recordings by a fit: errors at horizons beside two simple predictors, coverage of its prediction intervals.

    softgym-envs predict runs/fit/fit.toml another.csv                    # or a .h5 file of `record`
    softgym-envs predict runs/fit/fit.toml another.csv --out runs/another

writes prediction.json and prediction.html; exit code 2: the fit does not hold for these recordings.
See docs/how-to/predict.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from softgym_envs.core.errors import OptionError
from sysid import load, predict


@dataclass(frozen=True)
class Args:
    """Predict new recordings by a fit."""

    fit: Annotated[Path, tyro.conf.Positional]  # The fit: fit.toml, or its folder.
    files: Annotated[tuple[Path, ...], tyro.conf.Positional]  # Recordings that were not fitted.
    system: str = ""  # "package.module:SYSTEM" of your own system; none: as the fit says.
    fps: float | None = None  # Frames per second, if a column `frame` stands for the time, or the times are too rough.
    controls: Path | None = None  # Wide CSV with the controls, for recordings without; the same times.
    meters_per_pixel: float | None = None  # Scale of tracked points in pixels.
    flip_y: bool = False  # The recordings are in image coordinates, y down.
    map: Path | None = None  # TOML file that names the columns of other programs' files; `inspect` writes it.
    out: Path = Path("runs/prediction")  # Folder of prediction.json and prediction.html.


def main(args: Args) -> int:
    """Predict; 0 where nothing speaks against the fit, 2 where something does."""
    if args.out.exists() and not args.out.is_dir():
        raise OptionError(f"`out` is {args.out}, which is no folder")
    read = {name: getattr(args, name) for name in ("fps", "controls", "meters_per_pixel", "flip_y", "map")}
    found = predict(args.fit, load(*args.files, **read), system=args.system)
    print(found.summary())
    print(f"numbers: {found.save(args.out)}\nreport: {found.report(args.out / 'prediction.html')}")
    return 0 if found.holds else 2
