r"""A real arm with 4 joints and 8 pneumatic muscles, predicted 0.1, 0.5 and 1 s ahead from measured pressures.

    python experiments/pneumatic_arm_identify/pneumatic_arm_identify.py fit --data pam_arm.npz  # minutes
    python experiments/pneumatic_arm_identify/pneumatic_arm_identify.py folds --data pam_arm.npz  # minutes
    python experiments/pneumatic_arm_identify/pneumatic_arm_identify.py predict --data other.npz  # seconds

Recordings of Buechler et al., distributed with Shaj et al., "Action-conditional recurrent Kalman networks" (CoRL 2020). The
mechanism is `mechanism`, its parameters fitted to free runs of 0.5 s by Levenberg and Marquardt. Baselines:
standing still; a linear ARX model in angles and pressures, whose lags and ridge are chosen by free runs on validation episodes,
and the same trained on such free runs; a recurrent network (GRU) trained on them. All see the angles and pressures up to the
start and the pressures of the horizon; training, validation and test have different episodes.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro
from episodes import H, load, split, windows
from free_runs import mechanism
from learned import Arx, Recurrent, arx, chosen, run, trained
from mechanism import predicted
from numpy.typing import NDArray

from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.files import provenance, read_json, write_json
from softgym_envs.data.page import BLUE, plain_axes

Array = NDArray[np.float64]
HORIZONS = (10, 50, 100)
"""Frames ahead."""
FOLDS, ARX = 5, (12, 1.0)
"""Parts of a cross-validation; order and ridge of ARX in it, which are those that `fit` chooses."""


@dataclass(frozen=True)
class Args:
    """Options of the study."""

    what: Annotated[Literal["fit", "folds", "predict"], tyro.conf.Positional]
    """Fit, and test on held-out episodes; fit to four fifths of the episodes, five times; predict every episode of a file."""
    data: Path
    """The recordings, npz with `data` (frames, 16) and `length` per episode."""
    parts: tuple[Literal["mechanism", "arx", "gru"], ...] = ("mechanism", "arx", "gru")
    """Parts to fit; the others stay as they are in the folder."""
    steps: int = 1200
    """Steps of Adam, for the network; half of them for ARX."""
    iterations: int = 30
    """Iterations of Levenberg and Marquardt, from the folder's parameters on, else from the guesses; 0 keeps these."""
    seed: int = 0
    out: Path = Path("results/pneumatic_arm_identify")
    """Folder; `predict` reads fit.npz there."""
    errors: Path | None = None
    """JSON file for the errors of `predict`."""


# --- what is reported -------------------------------------------------------------------------------------------------


def errors(predicted: Array, angles: Array, owner: NDArray[np.int64]) -> dict[str, Any]:
    """Errors of every joint at the end of the horizon, and of all; 95 % intervals by resampling episodes [deg].

    `rms` and `median` are of joints; `median_episode` and `worst_episodes` are of the episodes' root mean square errors.
    """
    gap = np.degrees(predicted[:, -1] - angles[:, -1])
    count = owner.max(initial=0) + 1
    sums, sizes = np.zeros(count), np.bincount(owner, minlength=count)
    np.add.at(sums, owner, (gap**2).mean(axis=1))
    picks = np.random.default_rng(0).integers(count, size=(1000, count))
    drawn = np.sqrt(sums[picks].sum(axis=1) / np.maximum(sizes[picks].sum(axis=1), 1))
    seen = np.flatnonzero(sizes)
    each = np.sqrt(sums[seen] / sizes[seen])
    return {
        "rms": np.sqrt((gap**2).mean(axis=0)).tolist(), "median": np.median(np.abs(gap), axis=0).tolist(),
        "all": float(np.sqrt((gap**2).mean())), "interval": np.quantile(drawn, [0.025, 0.975]).tolist(),
        "median_episode": float(np.median(each)),
        "worst_episodes": {str(i): round(float(e), 1) for e, i in sorted(zip(each, seen, strict=True), reverse=True)[:5]},
    }  # fmt: skip


def tested(fit: Path, episodes: list[Array]) -> dict[str, Any]:
    """Errors of all predictors by horizon."""
    with np.load(fit, allow_pickle=False) as file:
        weights = {name: file[name] for name in file.files}
    network = Recurrent()
    network.load_state_dict({name[4:]: torch.tensor(value) for name, value in weights.items() if name.startswith("gru.")})
    table: dict[str, Any] = {}
    for horizon in HORIZONS:
        past, pressures, angles, owner = windows(episodes, horizon)
        found = {
            "pneumatic mechanism": predicted(weights["mechanism"], past, pressures, H),
            "GRU": run(network, past, pressures),
            "ARX, free runs": run(Arx(weights["arx_free"]), past, pressures),
            "ARX": run(Arx(weights["arx"]), past, pressures),
            "stands still": np.repeat(past[:, -1:, :4], horizon, axis=1),
        }
        told(table, horizon, found, angles, owner)
    return table


def told(table: dict[str, Any], horizon: int, found: dict[str, Array], angles: Array, owner: NDArray[np.int64]) -> None:
    """Print the errors of all predictors, and add them to the table."""
    each = {name: errors(value, angles, owner) for name, value in found.items()} if len(angles) else {}
    table[f"{horizon * H:g} s"] = {"windows": len(angles), "episodes": len(np.unique(owner)), **each}
    for name, one in each.items():
        low, high = one["interval"]
        joints = " / ".join(f"{value:.1f}" for value in one["rms"])
        line = f"{horizon * H:4g} s  {name:20s} {one['all']:5.2f} deg [{low:.2f}, {high:.2f}]  joints {joints}"
        print(f"{line}  median episode {one['median_episode']:.1f}, worst {max(one['worst_episodes'].values())}", flush=True)


def fold_of(episodes: list[Array], seed: int) -> NDArray[np.int64]:
    """Part of the cross-validation in which each episode is held out."""
    part = np.empty(len(episodes), dtype=np.int64)
    part[np.random.default_rng(seed).permutation(len(episodes))] = np.arange(len(episodes)) % FOLDS
    return part


def folds(args: Args) -> None:
    """Five-fold cross-validation of the mechanism and ARX, both fitted to four fifths."""
    episodes, _ = load(args.data)
    part, file = fold_of(episodes, args.seed), args.out / "folds.npz"
    trains = [[e for e, k in zip(episodes, part, strict=True) if k != fold] for fold in range(FOLDS)]
    args.out.mkdir(parents=True, exist_ok=True)
    before: list[Array | None] = [None] * FOLDS
    if file.exists():
        with np.load(file, allow_pickle=False) as earlier:
            before = list(earlier["mechanism"])
    fitted = [mechanism(train, args.iterations, start)[0] for train, start in zip(trains, before, strict=True)]
    np.savez_compressed(file, mechanism=np.stack(fitted))
    fits = [(parameter_values, Arx(arx(train, *ARX))) for parameter_values, train in zip(fitted, trains, strict=True)]
    table: dict[str, Any] = {}
    for horizon in HORIZONS:
        past, pressures, angles, owner = windows(episodes, horizon)
        found = {name: np.empty_like(angles) for name in ("pneumatic mechanism", "ARX", "stands still")}
        for fold, (parameter_values, linear) in enumerate(fits):
            rows = part[owner] == fold
            found["pneumatic mechanism"][rows] = predicted(parameter_values, past[rows], pressures[rows], H)
            found["ARX"][rows] = run(linear, past[rows], pressures[rows])
            found["stands still"][rows] = past[rows, -1:, :4]
        told(table, horizon, found, angles, owner)
    keep(args, folds={**provenance(), "errors_deg": table})


def fit(args: Args) -> None:
    """Writes fit.npz and the entry "fit" of numbers.json part by part, then "errors" and picture.png."""
    episodes, stale = load(args.data)
    data = split(episodes, args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "fit.npz"
    weights: dict[str, Any] = {}
    about: dict[str, Any] = {"frames": int(sum(map(len, episodes))), "stale_frames": stale}
    if file.exists():
        with np.load(file, allow_pickle=False) as earlier:
            weights = {name: earlier[name] for name in earlier.files}
    about = {**kept(args).get("fit", {}), **about}
    for part in args.parts:
        began = time.process_time()
        if part == "mechanism":
            parameter_values, system = mechanism(data["train"], args.iterations, weights.get("mechanism"))
            weights["mechanism"] = parameter_values
            about |= system.told(parameter_values.ravel())
        elif part == "arx":
            order, ridge = chosen(data)
            weights["arx"] = arx(data["train"], order, ridge)
            free = trained(Arx(weights["arx"]), 1e-4, data, args.steps // 2, args.seed)
            weights["arx_free"] = free.state_dict()["weight"].numpy()
            about |= {"order": order, "ridge": ridge}
        else:
            network = trained(Recurrent(), 3e-3, data, args.steps, args.seed)
            weights |= {f"gru.{name}": value.numpy() for name, value in network.state_dict().items()}
        if part != "mechanism" or args.iterations:
            about |= {f"{part}_seconds": round(time.process_time() - began, 1)}
        np.savez_compressed(file, **weights)
        keep(args, fit={**about, **provenance()})
    table = tested(file, data["test"])
    keep(args, errors={**provenance(), "errors_deg": table})
    draw(table, args.out / "picture.png")


COLORS = {"stands still": "0.7", "ARX": "#9ab8d8", "ARX, free runs": BLUE, "GRU": "#2a9d4a", "pneumatic mechanism": "#b01820"}


def draw(table: dict[str, Any], path: Path) -> None:
    """Plot errors of the four joints by horizon."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    for joint, axes in enumerate(figure.subplots(1, 4)):
        for name, color in COLORS.items():
            axes.plot(range(len(table)), [found[name]["rms"][joint] for found in table.values()], "o-", color=color, label=name)
        axes.set_xticks(range(len(table)), list(table))
        axes.set_title(f"joint {joint}: rms error [deg]")
        axes.set_ylim(bottom=0)
        plain_axes(axes)
        if joint == 0:
            axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def predict(args: Args) -> None:
    """Predicts every episode of the file, and prints the errors."""
    episodes, stale = load(args.data)
    print(f"{len(episodes)} episodes, {sum(map(len, episodes))} frames, {stale} stale ones left out")
    table = tested(args.out / "fit.npz", episodes)
    if args.errors is not None:
        write_json(args.errors, {**provenance(), "errors_deg": table})


def kept(args: Args) -> dict[str, Any]:
    """What earlier runs found: "fit", "errors", "folds"."""
    path = args.out / "numbers.json"
    return read_json(path) if path.exists() else {}


def keep(args: Args, **found: dict[str, Any]) -> None:
    """Write some entries of numbers.json."""
    write_json(args.out / "numbers.json", {**kept(args), **found})


def main(args: Args) -> int:
    """See the module docstring; 1 where the input is refused."""
    try:
        {"fit": fit, "folds": folds, "predict": predict}[args.what](args)
    except SoftgymError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
