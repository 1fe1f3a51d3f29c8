"""Measured and predicted heights of a beam's tip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from releases import PERIOD


def draw(path: Path, lines: list[dict[str, Any]]) -> None:
    """Plot a column of panels: mean height of the markers over the place where they were held, and the error."""
    figure, axes = plt.subplots(
        2, len(lines), figsize=(4.6 * len(lines), 5.4), squeeze=False, height_ratios=(3, 1), sharex=True
    )
    for (upper, lower), line in zip(axes.T, lines, strict=True):
        release, paths = line["release"], line["paths"]
        times, real = PERIOD * np.arange(len(release.paths)), 1e3 * release.heights
        ours, blind = 1e3 * paths[..., 1].mean(axis=2)
        upper.plot(times, real - real[0], ".", color="0.3", markersize=3, label="markers")
        upper.plot(times, ours - real[0], color="tab:red", linewidth=1, label="predicted")
        upper.plot(times, blind - real[0], ":", color="tab:blue", linewidth=1, label="blind: from the held rows alone")
        fitted = f"fitted to {line['fitted to']}" if "fitted to" in line else "frozen parameters"
        upper.set_title(f"{line['recording']}, {line['load_g']:g} g\n{fitted}", fontsize=9)
        lower.plot(times, ours - real, color="tab:red", linewidth=1)
        lower.plot(times, blind - real, ":", color="tab:blue", linewidth=1)
        lower.set_ylim(-1.5, 1.5)
        lower.axhline(0.0, color="0.6", linewidth=0.5)
        lower.set_xlabel("s after the release")
    axes[0, 0].set_ylabel("mean height of the markers [mm]")
    axes[1, 0].set_ylabel("error [mm]")
    axes[0, 0].legend(fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    plt.close(figure)
