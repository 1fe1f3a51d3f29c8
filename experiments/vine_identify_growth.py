"""Real everting tubes: length against measured pressure, by the vine's law of growth [blake5634/evtMod].

    git clone https://github.com/blake5634/evtMod
    python experiments/vine_identify_growth.py --data evtMod  # writes results/vine_identify_growth

The recordings have no licence and are not ours to pass on; results are. They are twelve runs of tubes of polyethylene film at
50 Hz. Every run is left out once, and the others of its tube are fitted to their lengths. One run has no other of its kind.
A run ends where the longest of the fitted ones ended: a tube is then used up, in every model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from scipy.ndimage import uniform_filter1d
from scipy.optimize import least_squares

from softgym_envs.core.files import provenance, write_atomically, write_json
from softgym_envs.systems.vine.parameters import RATE_SPEED

OUT = Path("results/vine_identify_growth")
AREA = np.pi * (2 * 0.0381 / (2 * np.pi)) ** 2
"""[m^2] Of a tube that is 1.5 inches wide when flat."""
PSI = 6894.757
HORIZON, EVERY = 1.0, 0.25
"""[s] Ahead, and between starts."""
KINDS = {
    "tube 1, low friction": ("891a0abc", "52f8bea7", "e50137ee"),
    "tube 2, high friction": ("eb610645", "c4f507b1"),
    "tube 3, high friction": ("4bf58872", "0ddc3bfa", "5d0f0862"),
    "long tube, medium friction": ("3c3dfb69", "7a54f1d3", "e28ea261"),
}
"""Runs by what their file names say."""
MOVES, RESTS = 0.1, 0.02
"""[m/s] Speeds above which growth has begun, and below which it has halted."""
STARTS = {
    "linear": ([0.0, 0.01, 0.0],),
    "growth law": ([8.0, 0.1, 1.0, 0.0], [3.0, 1.0, 5.0, 0.5], [10.0, 3.0, 0.5, 0.0]),
}
BOUNDS = {
    "linear": ([-np.inf] * 3, [np.inf] * 3),
    "growth law": ([0.0, 0.01, 0.0, np.log(0.6)], [20.0, 100.0, 50.0, np.log(4.0)]),
}


@dataclass(frozen=True)
class Args:
    """Options."""

    data: Path
    """Clone of the recordings' repository."""


@dataclass(frozen=True)
class Run:
    """One recording at its own times."""

    name: str
    times: np.ndarray
    """(T,) [s]"""
    lengths: np.ndarray
    """(T,) of film that left the reel [m]"""
    pressures: np.ndarray
    """(T,) [kPa] above the air's"""


def read(path: Path, name: str) -> Run:
    """Time, paid-out film and pressure."""
    table = np.genfromtxt(path, delimiter=",", names=True, usecols=range(14))
    lengths, pressures = 1e-3 * table["reel_lin_mm_1"], 1e-3 * PSI * table["press_psi_1"]
    return Run(name, table["time_sec"], lengths - lengths[0], pressures)


def speed(model: str, theta: np.ndarray, pressure: float, length: float) -> float:
    """Growth speed [m/s] of `linear`, a linear model with constant, or of the vine's law without its negligible inertia.

    `theta` of the law: yield pressure and rate pressure [kPa], tail drag [N/m], log of the power.
    """
    if model == "linear":
        return float(theta[0] + theta[1] * pressure + theta[2] * length)
    left = pressure - theta[0] - 1e-3 * theta[2] * length / AREA
    return float(RATE_SPEED * (max(0.0, left) / theta[1]) ** np.exp(theta[3]))


def rollout(model: str, theta: np.ndarray, run: Run, first: int, last: int, end: float) -> np.ndarray:
    """Lengths (last + 1 - first,) [m] from the measured one at `first`; a tube is `end` long at most."""
    length, out = run.lengths[first], np.empty(last + 1 - first)
    out[0] = length
    steps = np.diff(run.times)
    for k in range(first, last):
        length = min(end, length + steps[k] * min(10.0, speed(model, theta, run.pressures[k], length)))
        out[k + 1 - first] = length
    return out


def fit(model: str, runs: list[Run], end: float) -> np.ndarray:
    """Least squares of whole lengths; the best of the starts."""

    def residuals(theta: np.ndarray) -> np.ndarray:
        off = [rollout(model, theta, run, 0, len(run.times) - 1, end) - run.lengths for run in runs]
        return np.concatenate([each / np.sqrt(len(each)) for each in off])

    found = [least_squares(residuals, start, bounds=BOUNDS[model], x_scale="jac") for start in STARTS[model]]
    return np.asarray(min(found, key=lambda each: each.cost).x)


def errors(run: Run, models: dict[str, np.ndarray], mean_speed: float, end: float) -> dict[str, dict[str, float]]:
    """Root mean square errors [mm] over the whole run and one second ahead, of all models."""
    last = len(run.times) - 1
    starts = [int(np.searchsorted(run.times, time)) for time in np.arange(0.25, run.times[-1] - HORIZON, EVERY)]
    ends = [min(last, int(np.searchsorted(run.times, run.times[k] + HORIZON))) for k in starts]
    whole = {"standing still": np.full(last + 1, run.lengths[0])}
    whole["constant speed"] = np.minimum(end, run.lengths[0] + mean_speed * (run.times - run.times[0]))
    ahead = {"standing still": [run.lengths[k] for k in starts], "constant speed": []}
    for k, j in zip(starts, ends, strict=True):
        now = (run.lengths[k] - run.lengths[k - 5]) / (run.times[k] - run.times[k - 5])
        ahead["constant speed"].append(min(end, run.lengths[k] + now * (run.times[j] - run.times[k])))
    for name, theta in models.items():
        whole[name] = rollout(name, theta, run, 0, last, end)
        ahead[name] = [rollout(name, theta, run, k, j, end)[-1] for k, j in zip(starts, ends, strict=True)]

    def rms(off: np.ndarray) -> float:
        return float(1e3 * np.sqrt(np.mean(off**2)))

    return {
        name: {"whole": rms(whole[name] - run.lengths), "ahead": rms(np.array(ahead[name]) - run.lengths[ends])}
        for name in whole
    }


def thresholds(run: Run) -> list[float]:
    """Median pressures [kPa] at which growth begins after the first time, and at which it halts; [] where it never does."""
    speeds = np.gradient(uniform_filter1d(run.lengths, 5), run.times)
    moves, begun, halted = False, [], []
    for now, pressure in zip(speeds, run.pressures, strict=True):
        if not moves and now > MOVES:
            begun.append(pressure)
        elif moves and now < RESTS:
            halted.append(pressure)
        moves = now > (RESTS if moves else MOVES)
    return [float(np.median(each)) for each in (begun[1:], halted[: len(begun) - 1])] if len(begun) > 1 else []


def table(rows: list[dict[str, Any]]) -> str:
    """Means over the runs of a kind."""
    names = list(rows[0]["errors"])
    text = (
        "# Growth of real everting tubes from measured pressure\n\n"
        "`python experiments/vine_identify_growth.py --data CLONE`; recordings of blake5634/evtMod.\n\n"
        "Every run is predicted from a fit of the others of its kind. Root mean square errors of length [mm], mean of runs.\n"
    )
    for key, what in (("whole", "Whole runs"), ("ahead", "One second ahead; constant speed is that of the last 0.1 s")):
        text += f"\n{what}:\n\n| kind | runs | {' | '.join(names)} |\n|---|---:|{'---:|' * len(names)}\n"
        for kind in [*KINDS, "all"]:
            own = [row for row in rows if kind in (row["kind"], "all")]
            cells = [f"{np.mean([row['errors'][name][key] for row in own]):.0f}" for name in names]
            text += f"| {kind} | {len(own)} | {' | '.join(cells)} |\n"
    text += "\nPressure [kPa] at which growth halts, and begins again:\n\n| run | halts | begins |\n|---|---:|---:|\n"
    for row in rows:
        if row["thresholds"]:
            begins, halts = row["thresholds"]
            text += f"| {row['kind']}, {row['run']} | {halts:.1f} | {begins:.1f} |\n"
    text += "\nThe law's parameters, range over the fits of a kind:\n\n"
    text += "| kind | yield pressure [kPa] | rate pressure [kPa] | tail drag [N/m] | power |\n|---|---:|---:|---:|---:|\n"
    for kind in KINDS:
        found = np.array([row["growth law"] for row in rows if row["kind"] == kind])
        found[:, 3] = np.exp(found[:, 3])
        cells = [f"{low:.2f} to {high:.2f}" for low, high in zip(found.min(axis=0), found.max(axis=0), strict=True)]
        text += f"| {kind} | {' | '.join(cells)} |\n"
    return text


def main(args: Args) -> None:
    """Leave one run out, fit, and predict it."""
    files = [
        *args.data.glob("dataAndyMay24/eversion_*.csv"),
        *args.data.glob("dataFlowTests23Jul/flowEversion/processed_data/*.csv"),
    ]
    rows = []
    for kind, names in KINDS.items():
        runs = [read(next(path for path in files if name in path.name), name) for name in names]
        for out in runs:
            rest = [run for run in runs if run is not out]
            end = max(float(run.lengths.max()) for run in rest)
            models = {model: fit(model, rest, end) for model in STARTS}
            mean_speed = float(np.mean([np.ptp(run.lengths) / np.ptp(run.times) for run in rest]))
            row = {"kind": kind, "run": out.name, "errors": errors(out, models, mean_speed, end), "thresholds": thresholds(out)}
            rows.append(row | {model: theta.tolist() for model, theta in models.items()})
            print(f"{kind}, {out.name}", flush=True)
    write_json(OUT / "numbers.json", {"provenance": provenance(), "runs": rows})
    write_atomically(OUT / "table.md", table(rows).encode())
    print(table(rows))


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
