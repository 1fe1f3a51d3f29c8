r"""A real arm: bending stiffness of a steel beam that a Franka Panda swings, from its joint torques only [Mamedov2022].

    git clone https://github.com/shamilmamedov/beam_handling
    python experiments/panda_beam_identify/panda_beam_identify.py --data beam_handling  # writes results/panda_beam_identify

The recordings have no licence and are not ours to pass on; results are. They are 1 kHz angles and torques of the arm, which
moves by 15, 25 or 35 cm within 0.35 to 0.61 s and stops, while the beam it holds rings on: horizontal (Z), up or down.

EI and c of `beam`'s model are fitted to the ring-down of two motions of one orientation; the others are predicted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tyro
from beam import DENSITY, DT, LENGTH, THICKNESS, WIDTH, Recording, bending_of_steel, euler_bernoulli, predicted, read, ringing
from scipy.optimize import least_squares

from softgym_envs.core.files import provenance, write_atomically, write_json

CLEAR = 0.9
"""Least share of a decaying sine in a measured signal for its frequency to be meaningful."""
TRAIN = ("Z_15cm_0.42s_1", "Z_25cm_0.50s_1")
ORIENTATIONS = {"Z": "horizontal", "Xup": "up", "Xdown": "down"}


@dataclass(frozen=True)
class Args:
    """Options of the study."""

    data: Path
    """Clone of the recordings' repository."""
    repeats: int = 6
    """Number of predicted repeats of every motion, of six."""
    out: Path = Path("results/panda_beam_identify")


def compared(recording: Recording, theta: np.ndarray, fitted: bool) -> dict[str, Any]:
    """One line of the table."""
    model = predicted(recording, theta)
    ways = np.linalg.svd(recording.torques, full_matrices=False)[2][0]
    real, ours = ringing(recording.torques, ways), ringing(model, ways)
    left = float(np.linalg.norm(model - recording.torques) / np.linalg.norm(recording.torques))
    line = {
        "motion": recording.name, "fitted": fitted, "measured": real, "model": ours,
        "frequency_error": ours["frequency"] / real["frequency"] - 1, "torque_left": left,
    }  # fmt: skip
    print(f"{recording.name:18s} {real['frequency']:.3f} {ours['frequency']:.3f} Hz, left {left:.2f}", flush=True)
    return line


# --- Fit and report ---------------------------------------------------------------------------------------------------


def fit(recordings: list[Recording]) -> np.ndarray:
    """Fit logarithms of EI and c; every recording has equal weight."""

    def error(theta: np.ndarray) -> np.ndarray:
        parts = [(predicted(r, theta) - r.torques).ravel() / np.linalg.norm(r.torques) for r in recordings]
        return np.concatenate(parts)

    return np.asarray(
        least_squares(error, np.log([bending_of_steel(), 1e-3]), diff_step=1e-4, x_scale=[0.01, 0.3], xtol=1e-4).x
    )


def plot(lines: list[dict[str, Any]], recordings: dict[str, Recording], theta: np.ndarray, path: Path) -> None:
    """Plot frequencies, and one joint's torque per orientation."""
    fig, axes = plt.subplots(2, 2, figsize=(11, 6.5))
    shown = ("Z_35cm_0.61s_1", "Xup_15cm_0.35s_1", "Xdown_15cm_0.35s_1")
    for ax, name in zip(axes.ravel()[1:], shown, strict=True):
        recording = recordings[name]
        joint = int(np.argmax(np.std(recording.torques, axis=0)))
        times = DT * recording.rows
        ax.plot(times, recording.torques[:, joint], "k", lw=1, label="measured")
        ax.plot(times, predicted(recording, theta)[:, joint], "C1", lw=1, label="predicted from the arm's angles")
        ax.set(title=f"{name}, held out", xlabel="time [s]", ylabel=f"torque of joint {joint + 1} [N m]")
        ax.legend(fontsize=8)
    ax = axes[0, 0]
    for key, colour in zip(ORIENTATIONS, ("C0", "C1", "C2"), strict=True):
        mine = [line for line in lines if line["motion"].startswith(f"{key}_")]
        ax.plot(*([line[who]["frequency"] for line in mine] for who in ("measured", "model")), "o", color=colour,
                label=ORIENTATIONS[key])  # fmt: skip
    ends = np.array([2.7, 3.12])
    ax.plot(ends, ends, "k-", lw=0.8)
    for side in (0.97, 1.03):
        ax.plot(ends, side * ends, "k:", lw=0.8)
    ax.axhline(euler_bernoulli(), color="grey", lw=0.8, label="Euler-Bernoulli")
    ax.set(xlabel="measured ring-down [Hz]", ylabel="predicted [Hz]", title="dotted: 3 %", xlim=ends, ylim=ends)
    ax.legend(fontsize=8)
    fig.tight_layout()
    fig.savefig(path, dpi=90)


def table(result: dict[str, Any]) -> str:
    """As Markdown."""
    lines = [
        "# Bending stiffness of a beam from a Panda's joint torques", "",
        "`python experiments/panda_beam_identify/panda_beam_identify.py --data CLONE`; recordings of [Mamedov2022].", "",
        "| fitted to two motions | EI [N m^2] | c [N m^2 s] | largest frequency error of the other orientations |",
        "| --- | --- | --- | --- |",
    ]  # fmt: skip
    lines += [
        f"| {row['on']} | {row['bending']:.4f} | {row['damping']:.2e} | {row['largest_error_elsewhere']:.1%} |"
        for row in result["fits"]
    ]
    lines += [
        "", f"Errors are over motions whose measured ring-down is a decaying sine to {CLEAR:.0%}.",
        f"Steel of these sizes: {bending_of_steel():.4f} N m^2, {DENSITY * LENGTH * WIDTH * THICKNESS:.3f} kg; "
        f"Euler-Bernoulli without gravity: {euler_bernoulli():.2f} Hz.", "",
        f"Predicted with the fit to {', '.join(TRAIN)}:", "",
        "| motion | repeats | measured [Hz] | predicted [Hz] | error: mean, worst | Euler-Bernoulli's | torque left, worst "
        "| sine's share | |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    for motion, group in groupby(result["motions"], key=lambda line: line["motion"][:-2]):
        mine = list(group)
        real, ours = (float(np.mean([line[who]["frequency"] for line in mine])) for who in ("measured", "model"))
        worst, left = (np.max(np.abs([line[what] for line in mine])) for what in ("frequency_error", "torque_left"))
        share = min(line["measured"]["share"] for line in mine)
        role = "one of them fitted" if any(line["fitted"] for line in mine) else "held out"
        lines.append(
            f"| {motion} | {len(mine)} | {real:.3f} | {ours:.3f} | {ours / real - 1:+.1%}, {worst:.1%} "
            f"| {euler_bernoulli() / real - 1:+.1%} | {left:.0%} | {share:.0%} | {role} |"
        )
    return "\n".join(lines) + "\n"


def main(args: Args) -> None:
    """Fit, predict, write."""
    paths = sorted((args.data / "data" / "param_estimation_ICRA").glob("ocp_*.csv"))
    chosen = [path for path in paths if int(re.findall(r"_(\d+)$", path.stem)[0]) <= args.repeats]
    recordings = {found.name: found for found in map(read, chosen)}
    missing = [name for name in TRAIN if name not in recordings]
    if missing:
        raise SystemExit(f"{args.data} has no data/param_estimation_ICRA/ocp_{missing[0]}.csv")
    fits, main_theta = [], np.zeros(2)
    for key, what in ORIENTATIONS.items():
        names = [n for n in recordings if n.startswith(f"{key}_") and ("15cm" in n or "25cm" in n) and n.endswith("_1")]
        theta = fit([recordings[name] for name in names])
        if key == "Z":
            main_theta = theta
        others = [compared(r, theta, False) for name, r in recordings.items() if not name.startswith(f"{key}_")]
        errors = [abs(line["frequency_error"]) for line in others if line["measured"]["share"] > CLEAR]
        bending, damping = np.exp(theta)
        fits.append({
            "on": what, "motions": names, "bending": bending, "damping": damping,
            "largest_error_elsewhere": max(errors),
        })  # fmt: skip
    lines = [compared(recording, main_theta, name in TRAIN) for name, recording in recordings.items()]
    result = {"euler_bernoulli": euler_bernoulli(), "steel": bending_of_steel(), "fits": fits, "motions": lines}
    write_json(args.out / "numbers.json", {**result, "provenance": provenance()})
    write_atomically(args.out / "table.md", table(result).encode())
    plot(lines, recordings, main_theta, args.out / "picture.png")
    print(table(result))


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
