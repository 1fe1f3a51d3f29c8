r"""A real arm with 4 joints and 8 pneumatic muscles, predicted 0.1, 0.5 and 1 s ahead from measured pressures.

    python studies/arm_pneumatic/arm_pneumatic.py fit --data pam_arm.npz        # minutes; writes results/arm_pneumatic
    python studies/arm_pneumatic/arm_pneumatic.py predict --data other.npz      # seconds; every episode of a file, by that fit

Recordings of Buechler et al., distributed with Shaj et al., "Action-conditional recurrent Kalman networks" (CoRL 2020). The
mechanism is `softgym_envs.arm.pneumatic_arm`, its constants fitted to free runs of 0.5 s by Levenberg and Marquardt. Beside it:
standing still; a linear ARX model in angles and pressures, whose lags and ridge are chosen by free runs on validation episodes,
and the same trained on such free runs; a recurrent network (GRU) trained on them. All see the angles and pressures up to the
start and the pressures of the horizon; training, validation and test are episodes of their own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import tyro
from numpy.typing import NDArray

from softgym_envs.arm.pneumatic_arm import Known, known, predicted
from softgym_envs.core.errors import FileFormatError
from softgym_envs.core.files import provenance, read_json, write_json
from softgym_envs.core.page import BLUE, plain_axes
from sysid.least_squares.levenberg import LevenbergOptions, levenberg_marquardt, start_state

Array = NDArray[np.float64]
H = 0.01
"""[s] A frame; the source does not state it."""
RATES = np.array([0.1063, 0.0974, 0.1022, 0.0819])
"""[rad] What a joint moves in a frame at a recorded rate of one, by least squares over frames that move less than 0.15 rad."""
STALE = 0.05
"""[rad] A frame that has moved so much more than the recorded rates say belongs to another episode."""
HORIZONS = (10, 50, 100)
"""Frames ahead."""
PAST = 12
"""Frames that are seen before the start."""
ORDERS, RIDGES = (1, 2, 3, 4, 6, 8, 12), (1e-4, 1e-2, 1.0, 10.0, 100.0, 1e3, 1e4)
"""Of ARX; ridges over columns of unit variance, rows summed."""
KEPT = slice(4, None, 5)
"""Frames of a free run whose errors are fitted."""
NOISE, ROBUST = 0.05, 0.15
"""[rad] What weighs the guesses of constants against errors, and from where on errors count in proportion only."""


@dataclass(frozen=True)
class Args:
    """What to run."""

    what: Annotated[Literal["fit", "predict"], tyro.conf.Positional]
    """Fit and test on held-out episodes of the file, or predict all episodes of a file."""
    data: Path
    """The recordings, npz with `data` (frames, 16) and `length` per episode."""
    parts: tuple[Literal["mechanism", "arx", "gru"], ...] = ("mechanism", "arx", "gru")
    """What to fit; the others stay as they are in the folder."""
    steps: int = 1200
    """Of Adam, for the network; half of it for ARX."""
    iterations: int = 25
    """Of Levenberg and Marquardt, for the mechanism; they go on from the folder's constants, and 0 keeps these."""
    seed: int = 0
    out: Path = Path("results/arm_pneumatic")
    """Folder; `predict` reads fit.npz there."""
    errors: Path | None = None
    """JSON file for the errors of `predict`."""


def load(path: Path) -> tuple[list[Array], int]:
    """Episodes (T, 12): 4 angles [rad], 8 pressures; and how many frames were stale.

    The first row of an episode is, and so is whatever comes before or after a jump that the recorded rates contradict.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            data, lengths = file["data"].astype(np.float64), file["length"].astype(int)
    except (OSError, KeyError, ValueError) as error:
        raise FileFormatError(f"{path}: {error}; expected an npz file with `data` (frames, 16) and `length`") from None
    if data.ndim != 2 or data.shape[1] != 16 or lengths.sum() != len(data):
        raise FileFormatError(f"{path}: data is {data.shape}, lengths add up to {lengths.sum()}; expected (that many, 16)")
    episodes, stale = [], 0
    for end, length in zip(np.cumsum(lengths), lengths, strict=True):
        frames = data[end - length + 1 : end]
        moved, said = np.diff(frames[:, :4], axis=0), RATES * frames[:, 4:8]
        odd = np.minimum(np.abs(moved - said[1:]), np.abs(moved - said[:-1])).max(axis=1) > STALE
        cuts = [0, *(np.flatnonzero(odd) + 1), len(frames)]
        longest = int(np.argmax(np.diff(cuts)))
        kept = frames[cuts[longest] : cuts[longest + 1]]
        stale += int(length) - len(kept)
        episodes.append(kept[:, [0, 1, 2, 3, *range(8, 16)]])
    return episodes, stale


def split(episodes: list[Array], seed: int) -> dict[str, list[Array]]:
    """60 % training, 20 % validation, 20 % test."""
    order = np.random.default_rng(seed).permutation(len(episodes))
    cuts = np.split(order, [int(0.6 * len(order)), int(0.8 * len(order))])
    return {name: [episodes[i] for i in cut] for name, cut in zip(("train", "validation", "test"), cuts, strict=True)}


def windows(episodes: list[Array], horizon: int, stride: int = 5) -> tuple[Array, Array, Array, NDArray[np.int64]]:
    """Past (n, PAST, 12), pressures (n, horizon, 8), angles (n, horizon, 4) of stretches, and whose episode they are (n,)."""
    starts = [range(0, len(e) - PAST - horizon + 1, stride) for e in episodes]
    parts = [e[s : s + PAST + horizon] for e, each in zip(episodes, starts, strict=True) for s in each]
    whole = np.array(parts).reshape(-1, PAST + horizon, 12)
    owner = np.repeat(np.arange(len(episodes)), [len(each) for each in starts])
    return whole[:, :PAST], whole[:, PAST - 1 : -1, 4:], whole[:, PAST:, :4], owner


# --- the mechanism ----------------------------------------------------------------------------------------------------


class FreeRuns:
    """Errors of free runs as a function of all constants, and how far these are from their guesses: a `levenberg.System`."""

    def __init__(self, episodes: list[Array], stride: int) -> None:
        self.past, self.valves, self.angles, self.owner = windows(episodes, 50, stride)
        angles = np.concatenate(episodes)[:, :4]
        self.known: list[Known] = [k for j in range(4) for k in known(j, *np.quantile(angles, [0.001, 0.999], axis=0))]
        self.guess, self.spread = np.array([k.guess for k in self.known]), np.array([k.spread for k in self.known])
        self.bounds = np.array([k.low for k in self.known]), np.array([k.high for k in self.known])

    def errors(self, theta: Array) -> Array:
        """(n, 10, 4) [rad]; large ones grow as a square root, so that their squares grow in proportion (Huber)."""
        off = predicted(theta.reshape(4, -1), self.past, self.valves, H)[:, KEPT] - self.angles[:, KEPT]
        off = np.clip(np.nan_to_num(off, nan=10.0), -10.0, 10.0)
        size = np.abs(off)
        return np.asarray(np.where(size < ROBUST, off, np.sign(off) * np.sqrt(np.maximum(2 * ROBUST * size - ROBUST**2, 0.0))))

    def guessed(self, theta: Array) -> Array:
        """Distance from the guesses (p,), in units of errors."""
        return NOISE * (theta - self.guess) / self.spread

    def slopes(self, theta: Array) -> Array:
        """d errors / d theta (n, 40, p): differences over a stretch, since friction makes errors smooth in pieces only."""
        here, found = self.errors(theta), []
        for i in range(len(theta)):
            step = 2e-3 * max(1.0, abs(theta[i])) * (1.0 if theta[i] < self.bounds[1][i] - 0.01 else -1.0)
            moved = theta.copy()
            moved[i] += step
            found.append(((self.errors(moved) - here) / step).reshape(len(here), -1))
        return np.stack(found, axis=2)

    def cost(self, theta: Array, blocks: Array) -> float:
        """Half the sum of squares."""
        return 0.5 * float((self.errors(theta) ** 2).sum() + (self.guessed(theta) ** 2).sum())

    def compress(self, theta: Array, blocks: Array) -> Array:
        """Rows [J r], reduced."""
        rows = np.column_stack([self.slopes(theta).reshape(-1, len(theta)), self.errors(theta).ravel()])
        guessed = np.column_stack([np.diag(NOISE / self.spread), self.guessed(theta)])
        return np.asarray(np.linalg.qr(np.vstack([rows, guessed]), mode="r"))[None]

    def move(self, blocks: Array, step: Array) -> Array:
        """There are no unknowns but the constants."""
        return blocks

    def told(self, theta: Array) -> dict[str, Any]:
        """95 % half widths of all constants, episodes being independent, and which of them the data do not tell.

        What the data leave open is as wide as the guess; told is what they narrow to less than that.
        """
        J, off = self.slopes(theta), self.errors(theta).reshape(len(self.past), -1)
        weight = (NOISE / self.spread) ** 2
        inverse = np.linalg.inv(np.einsum("nrp,nrq->pq", J, J) + np.diag(weight))
        scores = np.zeros((self.owner.max() + 1, len(theta)))
        np.add.at(scores, self.owner, np.einsum("nrp,nr->np", J, off))
        inner = scores.T @ scores + np.diag((weight * self.spread) ** 2)
        half = 1.96 * np.sqrt(np.diag(inverse @ inner @ inverse))
        names = [f"joint {i // (len(theta) // 4)} {k.name}" for i, k in enumerate(self.known)]
        lost = [name for name, width, k in zip(names, half, self.known, strict=True) if width > k.spread]
        ends = (theta <= self.bounds[0] + 1e-6) | (theta >= self.bounds[1] - 1e-6)
        return {
            "constants": {
                name: {"value": value, "half_width": width, "unit": k.unit}
                for name, value, width, k in zip(names, theta.tolist(), half.tolist(), self.known, strict=True)
            },
            "not_told": lost, "at_bound": [name for name, end in zip(names, ends, strict=True) if end],
            "verdict": f"{len(names) - len(lost)} of {len(names)} constants are told better than they were guessed; all are "
            "per inertia of a joint and per unit of recorded pressure: masses, lengths, bores and forces are not told",
        }  # fmt: skip


def mechanism(episodes: list[Array], iterations: int, known_before: Array | None) -> tuple[Array, FreeRuns]:
    """Constants (4, C) whose free runs of 0.5 s fit best, sought from those known before, else from the guesses."""
    system = FreeRuns(episodes, 10)
    theta = system.guess if known_before is None else known_before.ravel()
    if iterations == 0:
        return theta.reshape(4, -1), system
    first = start_state(system, theta, np.zeros((1, 0)), LevenbergOptions())
    options = LevenbergOptions(max_iterations=iterations, cost_tolerance=1e-3)
    found = levenberg_marquardt(system, first, system.bounds, options=options, on_iteration=report)
    return found.theta.reshape(4, -1), system


def report(state: Any) -> None:
    """One line per iteration."""
    print(state.log[-1].line(), flush=True)


# --- the others -------------------------------------------------------------------------------------------------------


class Recurrent(torch.nn.Module):
    """A GRU that says how angles change, frame by frame."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.cell, self.out = torch.nn.GRUCell(16, width), torch.nn.Linear(width, 4)

    def forward(self, past: torch.Tensor, pressures: torch.Tensor) -> torch.Tensor:
        """Angles (n, T, 4); it sees angles, their last change (in tenths of a radian per 0.1 s), and pressures."""
        state, found = past.new_zeros(len(past), self.out.in_features), []
        for t in range(1, PAST - 1):
            state = self.cell(torch.cat([past[:, t, :4], 10 * (past[:, t, :4] - past[:, t - 1, :4]), past[:, t, 4:]], 1), state)
        q, change = past[:, -1, :4], past[:, -1, :4] - past[:, -2, :4]
        for p in pressures.unbind(1):
            state = self.cell(torch.cat([q, 10 * change, p], dim=1), state)
            change = 0.1 * self.out(state)
            q = q + change
            found.append(q)
        return torch.stack(found, dim=1)


class Arx(torch.nn.Module):
    """Next angles from the last frames, linear: weights (12 order + 1, 4); the pressures of a frame act on the next one."""

    def __init__(self, weight: Array) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(weight, dtype=torch.float32))

    def forward(self, past: torch.Tensor, pressures: torch.Tensor) -> torch.Tensor:
        """Angles (n, T, 4)."""
        frames, found = list(past[:, -(len(self.weight) // 12) :].unbind(1)), []
        for p in pressures.unbind(1):
            frames[-1] = torch.cat([frames[-1][:, :4], p], dim=1)
            q = torch.cat([*frames, torch.ones(len(p), 1)], dim=1) @ self.weight
            found.append(q)
            frames = [*frames[1:], torch.cat([q, p], dim=1)]
        return torch.stack(found, dim=1)


def trained(model: torch.nn.Module, rate: float, data: dict[str, list[Array]], steps: int, seed: int) -> torch.nn.Module:
    """The weights whose free runs of 0.5 s fit best, the best on validation episodes."""
    torch.manual_seed(seed)
    past, pressures, angles = (torch.tensor(part, dtype=torch.float32) for part in windows(data["train"], 50)[:3])
    held = [torch.tensor(part, dtype=torch.float32) for part in windows(data["validation"], 50, 10)[:3]]
    best: tuple[float, dict[str, torch.Tensor]] = (np.inf, model.state_dict())
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(steps):
        rows = torch.randint(len(past), (256,))
        loss = torch.nn.functional.huber_loss(model(past[rows], pressures[rows]), angles[rows], delta=ROBUST)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 50 == 0 or step == steps - 1:
            with torch.no_grad():
                score = float(torch.nn.functional.huber_loss(model(held[0], held[1]), held[2], delta=ROBUST))
            if score < best[0]:
                best = score, {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(best[1])
    return model


def arx(episodes: list[Array], order: int, ridge: float) -> Array:
    """Weights (12 order + 1, 4) by ridge regression of the angles' next change on centred columns of unit variance."""
    rows, aims = [], []
    for e in episodes:
        rows.append(np.concatenate([e[i : len(e) - order + i] for i in range(order)], axis=1))
        aims.append(e[order:, :4] - e[order - 1 : -1, :4])
    A, y = np.concatenate(rows), np.concatenate(aims)
    middle, scale = A.mean(axis=0), A.std(axis=0) + 1e-12
    Z = (A - middle) / scale
    slope = np.linalg.solve(Z.T @ Z + ridge * np.eye(Z.shape[1]), Z.T @ (y - y.mean(axis=0))) / scale[:, None]
    found = np.vstack([slope, y.mean(axis=0) - middle @ slope])
    found[12 * (order - 1) : 12 * (order - 1) + 4] += np.eye(4)  # the change is added to the last angles
    return found


def chosen(data: dict[str, list[Array]]) -> tuple[int, float]:
    """Lags and ridge whose free runs of 0.5 s are best on validation episodes."""
    past, pressures, angles, _ = windows(data["validation"], 50, 10)
    scores = {}
    for pair in ((order, ridge) for order in ORDERS for ridge in RIDGES):
        gap = run(Arx(arx(data["train"], *pair)), past, pressures) - angles
        scores[pair] = float(np.mean(np.clip(gap, -10, 10) ** 2))
    return min(scores, key=lambda pair: scores[pair])


def run(model: torch.nn.Module, past: Array, pressures: Array) -> Array:
    """Angles (n, T, 4)."""
    with torch.no_grad():
        found = model(torch.tensor(past, dtype=torch.float32), torch.tensor(pressures, dtype=torch.float32))
    return np.asarray(found.double().numpy())


# --- what is reported -------------------------------------------------------------------------------------------------


def errors(predicted: Array, angles: Array, owner: NDArray[np.int64]) -> dict[str, Any]:
    """Of every joint at the end of the horizon, and of all; 95 % intervals by drawing episodes again [deg]."""
    gap = np.degrees(predicted[:, -1] - angles[:, -1])
    count = owner.max(initial=0) + 1
    sums, sizes = np.zeros(count), np.bincount(owner, minlength=count)
    np.add.at(sums, owner, (gap**2).mean(axis=1))
    picks = np.random.default_rng(0).integers(count, size=(1000, count))
    drawn = np.sqrt(sums[picks].sum(axis=1) / np.maximum(sizes[picks].sum(axis=1), 1))
    return {
        "rms": np.sqrt((gap**2).mean(axis=0)).tolist(), "median": np.median(np.abs(gap), axis=0).tolist(),
        "all": float(np.sqrt((gap**2).mean())), "interval": np.quantile(drawn, [0.025, 0.975]).tolist(),
    }  # fmt: skip


def tested(fit: Path, episodes: list[Array]) -> dict[str, Any]:
    """Errors of everybody by horizon."""
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
        each = {name: errors(value, angles, owner) for name, value in found.items()} if len(past) else {}
        table[f"{horizon * H:g} s"] = {"windows": len(past), **each}
        for name, one in each.items():
            low, high = one["interval"]
            joints = " / ".join(f"{value:.1f}" for value in one["rms"])
            print(f"{horizon * H:4g} s  {name:20s} {one['all']:5.2f} deg [{low:.2f}, {high:.2f}]  joints {joints}", flush=True)
    return table


def fit(args: Args) -> None:
    """Writes fit.npz and fit.json part by part, then errors.json and errors.png."""
    episodes, stale = load(args.data)
    data = split(episodes, args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "fit.npz"
    weights: dict[str, Any] = {}
    about: dict[str, Any] = {"frames": int(sum(map(len, episodes))), "stale_frames": stale}
    if file.exists():
        with np.load(file, allow_pickle=False) as kept:
            weights = {name: kept[name] for name in kept.files}
    if (args.out / "fit.json").exists():
        about = {**read_json(args.out / "fit.json"), **about}
    for part in args.parts:
        began = time.process_time()
        if part == "mechanism":
            constants, system = mechanism(data["train"], args.iterations, weights.get("mechanism"))
            weights["mechanism"] = constants
            about |= system.told(constants.ravel())
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
        write_json(args.out / "fit.json", {**about, **provenance()})
    table = tested(file, data["test"])
    write_json(args.out / "errors.json", {**provenance(), "errors_deg": table})
    draw(table, args.out / "errors.png")


COLORS = {"stands still": "0.7", "ARX": "#9ab8d8", "ARX, free runs": BLUE, "GRU": "#2a9d4a", "pneumatic mechanism": "#b01820"}


def draw(table: dict[str, Any], path: Path) -> None:
    """Errors of the four joints by horizon."""
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


def main(args: Args) -> None:
    """See the module docstring."""
    if args.what == "fit":
        fit(args)
        return
    episodes, stale = load(args.data)
    print(f"{len(episodes)} episodes, {sum(map(len, episodes))} frames, {stale} stale ones left out")
    table = tested(args.out / "fit.npz", episodes)
    if args.errors is not None:
        write_json(args.errors, {**provenance(), "errors_deg": table})


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
