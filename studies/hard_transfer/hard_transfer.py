"""Share of the oracle's gain against the level of the hard twin: table and plot of the studies in this folder.

    softgym-envs transfer studies/hard_transfer/vine_2.toml --out results/hard_transfer/vine_2
    python studies/hard_transfer/hard_transfer.py                   # what is there, side by side

Shares are paired: every seed's cost against that of no control and of the oracle of the same level and seed. With three seeds
the runs themselves are printed, no intervals. Writes shares.md and shares.png into results/hard_transfer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from softgym_envs.core.files import write_atomically

CONDITIONS = {
    "nominal": "data sheet", "far": "factor 2 off", "near": "factor 1.2 off", "identified": "identified",
    "true_constants": "true constants", "truth_doubled": "oracle, twice the samples",
}  # fmt: skip
"""Condition -> column."""
ORACLE, NOTHING = "truth", "zero"


@dataclass(frozen=True)
class Args:
    """What to read."""

    folder: Path = Path("results/hard_transfer")
    """Folders <robot>_<level> of studies."""


def costs(folder: Path) -> dict[str, dict[int, float]]:
    """Condition -> seed -> cost."""
    found: dict[str, dict[int, float]] = {}
    for path in sorted((folder / "runs").glob("*.json")):
        run = json.loads(path.read_text())
        found.setdefault(run["condition"], {})[run["seed"]] = float(run["cost"])
    return found


def shares(found: dict[str, dict[int, float]], condition: str) -> list[float]:
    """Of every seed that has run."""
    some = sorted(set(found.get(condition, {})) & set(found.get(ORACLE, {})) & set(found.get(NOTHING, {})))
    return [(found[NOTHING][s] - found[condition][s]) / (found[NOTHING][s] - found[ORACLE][s]) for s in some]


def main(args: Args) -> None:
    """Table and plot."""
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
        ends = [", ".join(f"{cost:.3g}" for cost in found.get(c, {}).values()) for c in (NOTHING, ORACLE)]
        told = [" ".join(f"{100 * s:.0f}" for s in shares(found, condition)) or "-" for condition in CONDITIONS]
        lines.append(f"| {robot}, {level} | {ends[0]} | {ends[1]} | {' | '.join(told)} |")
    write_atomically(args.folder / "shares.md", ("\n".join(lines) + "\n").encode())
    print("\n".join(lines))
    robots = sorted({name.rsplit("_", 1)[0] for name in studies})
    figure, axes = plt.subplots(1, len(robots), figsize=(5.5 * len(robots), 3.8), squeeze=False, constrained_layout=True)
    for axis, robot in zip(axes[0], robots, strict=True):
        for place, (condition, text) in enumerate(CONDITIONS.items()):
            points = [
                (int(name[-1]) + 0.05 * (place - 2), 100 * share)
                for name, found in studies.items()
                if name.startswith(robot)
                for share in shares(found, condition)
            ]
            if points:
                axis.plot(*np.transpose(points), "o", ms=5, label=text)
        axis.axhline(90, color="k", lw=0.8, ls=":")
        axis.set(xlabel="level of the hard twin", ylabel="share of the oracle's gain [%]", title=robot, xticks=range(4))
        axis.legend(fontsize=8)
    figure.savefig(args.folder / "shares.png", dpi=100)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
