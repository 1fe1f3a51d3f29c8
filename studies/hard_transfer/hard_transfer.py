"""Share of the oracle's gain against the level of the mismatched MuJoCo model: table and plot of the studies in this folder.

    softgym-envs transfer studies/hard_transfer/kept_ball_2.toml --out results/hard_transfer/kept_ball_2
    python studies/hard_transfer/hard_transfer.py                   # the finished ones, side by side

Level 3 is every mismatch at once. Shares [%] are paired: every seed's cost against that of no control and of the oracle of its
level and seed. Means have 95 % intervals by Student's t; where there are two seeds, runs are printed.
Writes shares.md and shares.png into results/hard_transfer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from numpy.typing import NDArray

from agents.study.statistics import mean_of_runs, shares
from softgym_envs.core.files import write_atomically

CONDITIONS = {
    "nominal": "data sheet", "far": "factor 2 off", "near": "factor 1.2 off", "identified": "identified",
    "true_constants": "true constants", "truth_doubled": "oracle, twice the samples", "posterior": "+ posterior",
    "residual": "+ correction", "network": "network, same data", "truth_budget": "MuJoCo model, the data's steps",
    "wide": "wide randomisation", "forces": "random forces",
}  # fmt: skip
"""Condition -> column."""
ORACLE, NOTHING = "truth", "zero"


@dataclass(frozen=True)
class Args:
    """Options of the table."""

    folder: Path = Path("results/hard_transfer")
    """Folders <robot>_<level> of studies."""


Array = NDArray[np.float64]
Costs = dict[str, Array]
"""Condition -> costs (data sets, seeds)."""
ACROSS = 5
"""Robots side by side in the plot."""


def costs(folder: Path) -> Costs:
    """Costs of a study."""
    found: dict[str, dict[int, list[float]]] = {}
    for path in sorted((folder / "runs").glob("*.json")):
        run = json.loads(path.read_text())
        found.setdefault(run["condition"], {}).setdefault(run["dataset"], []).append(float(run["cost"]))
    return {condition: np.array([sets[d] for d in sorted(sets)]) for condition, sets in found.items()}


def shares_of(found: Costs, condition: str) -> Array | None:
    """Shares of all runs (data sets, seeds) [%]; None without the condition."""
    if condition not in found:
        return None
    each = shares(found[condition], found[NOTHING], found[ORACLE])
    return None if each is None else 100 * each


def told(values: Array | None) -> str:
    """Shares as text [%]."""
    if values is None:
        return "-"
    mean = mean_of_runs(np.round(values, 6))
    if mean.low is None or mean.high is None:
        return " ".join(f"{run:.0f}" for run in mean.runs) or f"{mean.value:.0f}"
    return f"{mean.value:.0f} [{mean.low:.0f}, {mean.high:.0f}]"


def main(args: Args) -> None:
    """Write table and plot."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    studies = {path.name: costs(path) for path in sorted(args.folder.glob("*_[0-3]"))}
    lines = [
        "| robot, level | no control | oracle | " + " | ".join(CONDITIONS.values()) + " |",
        "| --- " * (3 + len(CONDITIONS)) + "|",
    ]
    for name, found in studies.items():
        robot, level = name.rsplit("_", 1)
        ends = [", ".join(f"{cost:.3g}" for cost in found[c].ravel()) for c in (NOTHING, ORACLE)]
        cells = [told(shares_of(found, condition)) for condition in CONDITIONS]
        lines.append(f"| {robot}, {level} | {ends[0]} | {ends[1]} | {' | '.join(cells)} |")
    write_atomically(args.folder / "shares.md", ("\n".join(lines) + "\n").encode())
    print("\n".join(lines))
    robots = sorted({name.rsplit("_", 1)[0] for name in studies})
    rows = -(-len(robots) // ACROSS)
    figure, axes = plt.subplots(rows, ACROSS, figsize=(3.6 * ACROSS, 3.4 * rows + 1.0), squeeze=False, layout="constrained")
    for axis in axes.flat[len(robots) :]:
        axis.set_visible(False)
    for axis, robot in zip(axes.flat, robots, strict=False):
        for place, (condition, text) in enumerate(CONDITIONS.items()):
            points = [
                (int(name[-1]) + 0.06 * (place - len(CONDITIONS) // 2), 100 * share)
                for name, found in studies.items()
                if name.rsplit("_", 1)[0] == robot
                if (each := shares_of(found, condition)) is not None
                for share in each.ravel()
            ]
            if points:
                axis.plot(
                    *np.transpose(points),
                    "o",
                    ms=4,
                    label=text,
                    color="k" if condition == "identified" else plt.get_cmap("tab20")(place),
                )
        axis.axhline(90, color="k", lw=0.8, ls=":")
        axis.set(xlabel="level of the mismatched MuJoCo model", title=robot, xticks=range(4), xlim=(-0.5, 3.5), ylim=(-80, 115))
    for axis in axes[:, 0]:
        axis.set_ylabel("share of the oracle's gain [%]")
    handles = {text: h for axis in axes.flat for h, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=6, fontsize=9)
    figure.savefig(args.folder / "shares.png", dpi=100)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
