"""Report of the study: a table in Markdown, and a picture."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import joints
import numpy as np
import recordings


def table(done: dict[str, Any], missing: list[str]) -> str:
    """Table of the finished cases, and how many of each kind are missing."""
    parts = ["# Identification of the loop\n", "`python experiments/loop_identify/loop_identify.py`\n", _noisy(done)]
    parts += [joints.table(done), _links(done)]
    if missing:
        kinds = Counter(name.split()[0] for name in missing)
        counts = ", ".join(f"{count} of `{kind}`" for kind, count in kinds.items())
        parts.insert(2, f"NOT COMPLETE: the machine's time was over; the same command runs what is missing: {counts}.\n")
    return "\n".join(parts)


def draw(done: dict[str, Any], path: Path) -> None:
    """Plot coverage and links."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(12, 4), constrained_layout=True)
    _draw_inside(axes[0], done)
    _draw_links(axes[1], done)
    for ax in axes.flat:
        ax.set_visible(ax.has_data())
    figure.savefig(path, dpi=90)
    plt.close(figure)


def rows_of(done: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Recordings of one ground truth."""
    return [row for name, row in done.items() if name.startswith(f"{kind} ") and name.split()[1].isdigit()]


def _noisy(done: dict[str, Any]) -> str:
    names = {
        "smooth": "the model's own, 18 parameters free", "own": "the model's own, 25",
        "smooth_mujoco": "MuJoCo model, 18", "mujoco_model": "MuJoCo model, 25", "rod": "elastic rod (another structure), 18",
        "twisting": "the same rod, by a model whose links twist, 20",
    }  # fmt: skip
    lines = [
        "Recordings of 8 s at 100 Hz with noise (2 mrad, 0.2 N m) and bias (+-0.2 N m of every torque), fitted by the method",
        "of `softgym-envs identify loop run.csv` from [5, 5]. Stiffness and damping of every ground truth are drawn, the rod's",
        "are",
        "the defaults; where 25 parameters are free, so is dry friction, up to 0.15 N m in every joint (in MuJoCo its own);",
        "where 18 are free, there is none, and that is known.\n",
        "| ground truth | recordings | explained | 95 % intervals that hold: stiffness, all | rms errors | chi2 | cpu s |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, what in names.items():
        rows = rows_of(done, kind)
        if not rows:
            continue
        s = recordings.summary(rows)
        error = ", ".join(f"{value:.1%}" for value in s["rms_error"].values())
        inside = f"{s['inside_stiffness']:.0%}, {s['inside_all']:.1%}" if kind not in ("rod", "twisting") else "-"
        lines.append(
            f"| {what} | {s['recordings']} ({s['failed']} failed) | {s['explained']} | {inside} "
            f"| {error if kind not in ('rod', 'twisting') else '-'} | {s['chi2']:.2f} | {s['cpu']:.1f} |"
        )
    return "\n".join([*lines, *_paired(done)]) + "\n"


def _paired(done: dict[str, Any]) -> list[str]:
    """Compare the MuJoCo model's recordings with our engine's of the same ground truth, phases and noise."""
    lines = [
        "",
        "The same ground truths, phases, noise in both simulators (dry friction sticks in MuJoCo; ours: tanh of speed):",
        "how many intervals hold the ground truth, and how many standard deviations apart estimates are (mean, rms).\n",
        "| free | recordings | hold in our engine | in MuJoCo | stiffness | dry friction | all else |", "|---" * 7 + "|",
    ]  # fmt: skip
    for ours, theirs, free in (("smooth", "smooth_mujoco", 18), ("own", "mujoco_model", 25)):
        if not rows_of(done, ours) or not rows_of(done, theirs):
            continue
        p = recordings.paired(rows_of(done, ours), rows_of(done, theirs))
        moved = [
            f"{p['mean_shift'][kind]:+.2f}, {p['rms_shift'][kind]:.2f}" if kind in p["mean_shift"] else "-"
            for kind in ("stiffness", "dry friction", "all else")
        ]
        lines.append(f"| {free} | {p['recordings']} | {' | '.join(p['held'])} | {' | '.join(moved)} |")
    return lines


def _links(done: dict[str, Any]) -> str:
    lines = [
        "6, 12 or 24 links: errors of two manipulations held out (see `finer`).\n",
        "| ground truth | motion | links | hand [mm] | at [5, 5] | fitted | innovations | theta, psi of 12 links | cpu s |",
        "|---" * 9 + "|",
    ]
    for name, row in done.items():
        if name.startswith("links "):
            as_12, ends = row["as_12_links"], "" if row["converged"] else " (not converged)"
            lines.append(
                f"| {row['ground_truth']} | {row['size']} | {row['links']}{ends} | {1e3 * row['held_out']['hand']:.3f} "
                f"| {1e3 * row['start']['hand']:.3f} | {1e3 * row['train']['hand']:.3f} | {row['held_out']['innovations']:.2f} "
                f"| {as_12['theta_stiffness']:.3f}, {as_12['psi_stiffness']:.3f} | {row['cpu']:.0f} |"
            )
    return "\n".join(lines) + "\n"


def _legend(ax: Any, **more: Any) -> None:
    """Add a legend if something is drawn."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend(**more)


def _draw_inside(ax: Any, done: dict[str, Any]) -> None:
    """Plot the share of intervals with the ground truth by constant."""
    for place, (kind, label) in enumerate((("smooth", "the model's own"), ("smooth_mujoco", "MuJoCo model"))):
        rows = rows_of(done, kind)
        if rows:
            inside = recordings.summary(rows)["inside"]
            ax.bar(np.arange(len(inside)) + 0.4 * place, list(inside.values()), 0.4, label=f"{label} ({len(rows)})")
            ax.set_xticks(np.arange(len(inside)) + 0.2, list(inside), rotation=70, fontsize=7)
    ax.axhline(0.95, color="k", lw=0.8)
    ax.set(ylim=(0.5, 1.01), title="share of 95 % intervals that hold the ground truth")
    _legend(ax, fontsize=8, loc="lower right")


def _draw_links(ax: Any, done: dict[str, Any]) -> None:
    """Plot held-out errors by links."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for name, row in done.items():
        if name.startswith("links "):
            curves.setdefault(f"{row['ground_truth']}, {row['size']}", []).append((row["links"], 1e3 * row["held_out"]["hand"]))
    for label, points in curves.items():
        ax.loglog(*zip(*points, strict=True), "o-", label=label)
    ax.set_xticks([6, 12, 24], ["6", "12", "24"])
    ax.set(xlabel="links of the model", ylabel="hand, held out [mm]", title="errors of predicted manipulations")
    _legend(ax, fontsize=8)
