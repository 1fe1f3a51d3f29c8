"""Learning curve of a training's folder, from the progress files of Stable-Baselines3."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from softgym_envs.core.files import write_atomically
from softgym_envs.data.page import BLUE, new_figure, plain_axes

from .evaluation import Evaluation

STEPS, RETURN = "time/total_timesteps", "rollout/ep_rew_mean"
"""Columns of control steps, and of the mean return of the latest episodes."""


def learning_curve(folder: Path) -> list[tuple[int, float]]:
    """Control steps and mean returns; a resumed training replaces what came after its checkpoint."""
    found: list[tuple[int, float]] = []
    files = {int(path.stem.partition("_")[2] or 0): path for path in folder.glob("progress*.csv")}
    for begun in sorted(files):
        found = [point for point in found if point[0] <= begun]
        for row in csv.DictReader(files[begun].read_text(encoding="utf-8", errors="replace").splitlines()):
            try:
                found.append((int(row[STEPS]), float(row[RETURN])))
            except (KeyError, TypeError, ValueError):  # no episode has ended yet, or the line was cut short
                continue
    return found


def draw_curve(folder: Path, evaluations: Mapping[str, Evaluation]) -> None:
    """Write curve.png: return against control steps, and the evaluations at the end."""
    points, figure = learning_curve(folder), new_figure(7, 3.6)
    axes = figure.add_subplot()
    axes.plot(*zip(*points, strict=True) if points else ((), ()), color=BLUE, label="training, last 100 episodes")
    for marker, (name, found) in zip("osd", evaluations.items(), strict=False):
        end = points[-1][0] if points else 0
        axes.errorbar(end, found.returns.mean(), found.returns.std(), fmt=marker, capsize=4, label=f"{name}: mean and std")
    axes.set_xlabel("control steps")
    axes.set_ylabel("return")
    axes.legend(frameon=False, fontsize=8)
    plain_axes(axes)
    stream = io.BytesIO()
    figure.savefig(stream, dpi=130)
    write_atomically(folder / "curve.png", stream.getvalue())
