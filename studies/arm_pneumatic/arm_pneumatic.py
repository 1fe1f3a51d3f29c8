r"""A real arm with 4 joints and 8 pneumatic muscles, predicted 0.1, 0.5 and 1 s ahead from measured pressures.

python studies/arm_pneumatic/arm_pneumatic.py --data pam_arm.npz    # minutes; writes results/arm_pneumatic

Recordings of Buechler et al., distributed with Shaj et al., "Action-conditional recurrent Kalman networks" (CoRL 2020). The
model has a mechanism's form, and every muscle's force falls with its contraction, pressure by pressure:

.. math:: \ddot q_j = a_j p_j (1 - b_j (q_j - r_j)) - a'_j p'_j (1 + b'_j (q_j - r_j)) - k_j (q_j - r_j) - d_j \dot q_j
   - f_j \tanh(\dot q_j / v_0) + g_j \cdot (\sin q, \cos q)

Beside it: standing still, and a linear ARX model in angles and pressures whose order is chosen on validation episodes: its
one-step least squares, and the same trained on free runs of 0.5 s as ours is. All see the angles up to the start and the
pressures of the horizon; training, validation and test are episodes of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import tyro
from numpy.typing import NDArray

from softgym_envs.core.files import provenance, write_json
from softgym_envs.core.page import BLUE, plain_axes

Array = NDArray[np.float64]
H = 0.01
"""[s] A frame; the source does not state it."""
HORIZONS = (10, 50, 100)
"""Frames ahead."""
PAST = 12
"""Frames that are seen before the start."""
ORDERS = (2, 4, 8, 12)


@dataclass(frozen=True)
class Args:
    """What to run."""

    data: Path
    """The recordings, npz with `data` (frames, 16) and `length` per episode."""
    steps: int = 600
    """Of Adam."""
    seed: int = 0
    out: Path = Path("results/arm_pneumatic")
    """Folder."""


def load(path: Path, seed: int) -> dict[str, list[Array]]:
    """Episodes (T, 12): 4 angles [rad], 8 pressures; 60 % training, 20 % validation, 20 % test. The first row is stale."""
    with np.load(path, allow_pickle=False) as file:
        data, ends = file["data"].astype(np.float64), np.cumsum(file["length"])
        episodes = [
            data[end - length + 1 : end][:, [0, 1, 2, 3, *range(8, 16)]]
            for end, length in zip(ends, file["length"], strict=True)
        ]
    order = np.random.default_rng(seed).permutation(len(episodes))
    cuts = np.split(order, [int(0.6 * len(order)), int(0.8 * len(order))])
    return {name: [episodes[i] for i in cut] for name, cut in zip(("train", "validation", "test"), cuts, strict=True)}


def windows(episodes: list[Array], horizon: int, stride: int = 5) -> tuple[Array, Array, Array]:
    """Past (n, PAST, 12), pressures (n, horizon, 8) and angles (n, horizon, 4) of stretches of the episodes."""
    parts = [e[s : s + PAST + horizon] for e in episodes for s in range(0, len(e) - PAST - horizon + 1, stride)]
    whole = np.array(parts).reshape(-1, PAST + horizon, 12)
    return whole[:, :PAST], whole[:, PAST - 1 : -1, 4:], whole[:, PAST:, :4]


# --- models ---------------------------------------------------------------------------------------------------------------


class Pneumatic(torch.nn.Module):
    """See the module docstring; positive constants are exponentials."""

    def __init__(self) -> None:
        super().__init__()
        start = {"a": 4.0, "a2": 4.0, "b": -1.0, "b2": -1.0, "k": 2.5, "d": 2.0, "f": 0.0}
        self.log = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.full((4,), v)) for name, v in start.items()})
        self.rest, self.weight = torch.nn.Parameter(torch.zeros(4)), torch.nn.Parameter(torch.zeros(8, 4))

    def forward(self, past: torch.Tensor, pressures: torch.Tensor) -> torch.Tensor:
        """Angles (n, T, 4) from the past (n, PAST, 12) and pressures (n, T, 8)."""
        c = {name: value.exp() for name, value in self.log.items()}
        q, v = past[:, -1, :4], (past[:, -1, :4] - past[:, -4, :4]) / (3 * H)
        found = []
        for p in pressures.unbind(1):
            away = q - self.rest
            pull = c["a"] * p[:, 0::2] * (1 - c["b"] * away) - c["a2"] * p[:, 1::2] * (1 + c["b2"] * away)
            hang = torch.cat([torch.sin(q), torch.cos(q)], dim=1) @ self.weight
            rate = pull - c["k"] * away - c["f"] * torch.tanh(v / 0.3) + hang
            v = (v + H * rate) / (1 + H * c["d"])
            q = q + H * v
            found.append(q)
        return torch.stack(found, dim=1)


class Arx(torch.nn.Module):
    """Next angles from the last `order` frames, linear; starts from one-step least squares."""

    def __init__(self, episodes: list[Array], order: int) -> None:
        super().__init__()
        self.order, self.weight = order, torch.nn.Parameter(torch.tensor(arx(episodes, order), dtype=torch.float32))

    def forward(self, past: torch.Tensor, pressures: torch.Tensor) -> torch.Tensor:
        """Angles (n, T, 4); the pressures of a frame act on the next one."""
        frames, found = list(past[:, -self.order :].unbind(1)), []
        for p in pressures.unbind(1):
            frames[-1] = torch.cat([frames[-1][:, :4], p], dim=1)
            q = torch.cat([*frames, torch.ones(len(p), 1)], dim=1) @ self.weight
            found.append(q)
            frames = [*frames[1:], torch.cat([q, p], dim=1)]
        return torch.stack(found, dim=1)


Model = TypeVar("Model", bound=torch.nn.Module)


def trained(model: Model, rate: float, data: dict[str, list[Array]], steps: int, seed: int) -> tuple[Model, list[float]]:
    """The constants whose free runs of 0.5 s fit best, the best on validation episodes."""
    torch.manual_seed(seed)
    past, pressures, angles = (torch.tensor(part, dtype=torch.float32) for part in windows(data["train"], 50))
    held = [torch.tensor(part, dtype=torch.float32) for part in windows(data["validation"], 50, 10)]
    losses: list[float] = []
    best: tuple[float, dict[str, torch.Tensor]] = (np.inf, model.state_dict())
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(steps):
        rows = torch.randint(len(past), (256,))
        loss = torch.nn.functional.huber_loss(model(past[rows], pressures[rows]), angles[rows], delta=0.2)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if step % 20 == 19:
            with torch.no_grad():
                losses.append(float(torch.nn.functional.huber_loss(model(held[0], held[1]), held[2], delta=0.2)))
            if losses[-1] < best[0]:
                best = losses[-1], {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(best[1])
    return model, losses


def arx(episodes: list[Array], order: int) -> Array:
    """Weights (12 order + 1, 4): next angles from the last `order` frames of angles and pressures, least squares."""
    rows, aims = [], []
    for e in episodes:
        stacked = np.concatenate([e[i : len(e) - order + i] for i in range(order)], axis=1)
        rows.append(np.hstack([stacked, np.ones((len(stacked), 1))]))
        aims.append(e[order:, :4])
    A, y = np.concatenate(rows), np.concatenate(aims)
    return np.linalg.solve(A.T @ A + 1e-3 * np.eye(A.shape[1]), A.T @ y)


def run(model: torch.nn.Module, past: Array, pressures: Array) -> Array:
    """Angles (n, T, 4)."""
    with torch.no_grad():
        found = model(torch.tensor(past, dtype=torch.float32), torch.tensor(pressures, dtype=torch.float32))
    return np.asarray(found.double().numpy())


def errors(predicted: Array, angles: Array) -> dict[str, list[float]]:
    """Root mean square and median error of every joint at the end of the horizon [deg]."""
    gap = np.degrees(predicted[:, -1] - angles[:, -1])
    return {"rms": np.sqrt((gap**2).mean(axis=0)).tolist(), "median": np.median(np.abs(gap), axis=0).tolist()}


def main(args: Args) -> None:
    """Fits, tests, writes pneumatic.json and pneumatic.png."""
    data = load(args.data, args.seed)
    model, losses = trained(Pneumatic(), 0.03, data, args.steps, args.seed)
    past, pressures, angles = windows(data["validation"], 50, 10)
    scores = {}
    for order in ORDERS:
        scores[order] = float(np.sqrt(np.mean((run(Arx(data["train"], order), past, pressures) - angles) ** 2)))
    order = min(scores, key=lambda name: scores[name])
    linear, _ = trained(Arx(data["train"], order), 1e-3, data, args.steps, args.seed)
    models = {"pneumatic model": model, "ARX, free runs": linear, "ARX, one step": Arx(data["train"], order)}
    table: dict[str, Any] = {}
    for horizon in HORIZONS:
        past, pressures, angles = windows(data["test"], horizon)
        found = {name: errors(run(each, past, pressures), angles) for name, each in models.items()}
        found["stands still"] = errors(np.repeat(past[:, -1:, :4], horizon, axis=1), angles)
        table[f"{horizon * H:g} s"] = {"windows": len(past), **found}
        print(horizon, {name: np.round(values["rms"], 2) for name, values in found.items()}, flush=True)
    constants = {name: value.detach().exp().tolist() for name, value in model.log.items()}
    args.out.mkdir(parents=True, exist_ok=True)
    write_json(
        args.out / "pneumatic.json",
        {
            **provenance(),
            "errors_deg": table,
            "arx_order": order,
            "arx_validation": scores,
            "constants": constants,
            "validation": losses,
        },
    )
    draw(table, args.out / "pneumatic.png")


def draw(table: dict[str, Any], path: Path) -> None:
    """Errors of the four joints by horizon."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.2), layout="constrained")
    for joint, axes in enumerate(figure.subplots(1, 4)):
        for name, color in (("stands still", "0.6"), ("ARX, free runs", BLUE), ("pneumatic model", "#b01820")):
            axes.plot(range(len(table)), [found[name]["rms"][joint] for found in table.values()], "o-", color=color, label=name)
        axes.set_xticks(range(len(table)), list(table))
        axes.set_title(f"joint {joint}: rms error [deg]")
        axes.set_ylim(bottom=0)
        plain_axes(axes)
        if joint == 0:
            axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(tyro.cli(Args))
