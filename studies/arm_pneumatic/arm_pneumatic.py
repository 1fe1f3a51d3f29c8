r"""A real arm with 4 joints and 8 pneumatic muscles, predicted 0.1, 0.5 and 1 s ahead from measured pressures.

python studies/arm_pneumatic/arm_pneumatic.py --data pam_arm.npz    # a quarter of an hour; writes results/arm_pneumatic

Recordings of Buechler et al., distributed with Shaj et al., "Action-conditional recurrent Kalman networks" (CoRL 2020). The
mechanism's form, where every muscle's force falls with its contraction, pressure by pressure, and joints drag each other along:

.. math:: \ddot q = C \rho, \quad \rho_j = a_j p_j (1 - b_j (q_j - r_j)) - a'_j p'_j (1 + b'_j (q_j - r_j)) - k_j (q_j - r_j)
   - d_j \dot q_j - f_j \tanh(\dot q_j / v_0) + g_j \cdot (\sin q, \cos q)

"pneumatic + memory" adds to rho what a small recurrent cell says that has seen the past (hysteresis, the air's flow). Beside
them: standing still; a linear ARX model in angles and pressures, whose lags and ridge are chosen by free runs on validation
episodes, and the same trained on free runs of 0.5 s as the others are; and a recurrent network (GRU). All see the angles and
pressures up to the start and the pressures of the horizon; training, validation and test are episodes of their own.
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
ORDERS = (1, 2, 3, 4, 6, 8, 12)
RIDGES = (1e-4, 1e-2, 1.0, 10.0, 100.0, 1e3, 1e4)
"""Over columns of unit variance, rows summed."""
LOST = 0.2
"""Half width of a 95 % interval of a constant's logarithm from which on the data do not tell it."""


@dataclass(frozen=True)
class Args:
    """What to run."""

    data: Path
    """The recordings, npz with `data` (frames, 16) and `length` per episode."""
    other: Path | None = None
    """A second file whose episodes are all for testing; none: those kept back from `data`."""
    steps: int = 1500
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


def owners(episodes: list[Array], horizon: int, stride: int = 5) -> NDArray[np.int64]:
    """Which episode every stretch of `windows` is from, (n,)."""
    counts = [len(range(0, len(e) - PAST - horizon + 1, stride)) for e in episodes]
    return np.repeat(np.arange(len(episodes)), counts)


# --- models ---------------------------------------------------------------------------------------------------------------


class Pneumatic(torch.nn.Module):
    """See the module docstring; positive constants are exponentials. With `memory` > 0, that many numbers are remembered."""

    def __init__(self, memory: int = 0) -> None:
        super().__init__()
        start = {"a": 4.0, "a2": 4.0, "b": -1.0, "b2": -1.0, "k": 2.5, "d": 2.0, "f": 0.0}
        self.log = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.full((4,), v)) for name, v in start.items()})
        self.rest, self.weight = torch.nn.Parameter(torch.zeros(4)), torch.nn.Parameter(torch.zeros(8, 4))
        self.drag = torch.nn.Parameter(torch.eye(4))
        self.cell = torch.nn.GRUCell(16, memory) if memory else None
        self.out = torch.nn.Linear(memory, 4) if memory else None
        if self.out is not None:
            torch.nn.init.zeros_(self.out.weight)
            torch.nn.init.zeros_(self.out.bias)

    def remember(self, state: torch.Tensor, q: torch.Tensor, v: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        """What is remembered after a frame (n, memory)."""
        assert self.cell is not None
        return self.cell(torch.cat([q, 0.3 * v, p], dim=1), state)

    def forward(self, past: torch.Tensor, pressures: torch.Tensor) -> torch.Tensor:
        """Angles (n, T, 4) from the past (n, PAST, 12) and pressures (n, T, 8)."""
        c = {name: value.exp() for name, value in self.log.items()}
        q, v = past[:, -1, :4], (past[:, -1, :4] - past[:, -4, :4]) / (3 * H)
        state = past.new_zeros(len(past), self.out.in_features) if self.out is not None else past
        if self.out is not None:
            for t in range(1, PAST - 1):
                state = self.remember(state, past[:, t, :4], (past[:, t, :4] - past[:, t - 1, :4]) / H, past[:, t, 4:])
        found = []
        for p in pressures.unbind(1):
            away = q - self.rest
            pull = c["a"] * p[:, 0::2] * (1 - c["b"] * away) - c["a2"] * p[:, 1::2] * (1 + c["b2"] * away)
            hang = torch.cat([torch.sin(q), torch.cos(q)], dim=1) @ self.weight
            rate = pull - c["k"] * away - c["f"] * torch.tanh(v / 0.3) + hang
            if self.out is not None:
                state = self.remember(state, q, v, p)
                rate = rate + 30.0 * self.out(state)
            v = (v + H * rate @ self.drag.T) / (1 + H * c["d"])
            q = q + H * v
            found.append(q)
        return torch.stack(found, dim=1)


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
    """Next angles from the last `order` frames, linear; starts from one-step least squares."""

    def __init__(self, episodes: list[Array], order: int, ridge: float) -> None:
        super().__init__()
        weight = torch.tensor(arx(episodes, order, ridge), dtype=torch.float32)
        self.order, self.weight = order, torch.nn.Parameter(weight)

    def forward(self, past: torch.Tensor, pressures: torch.Tensor) -> torch.Tensor:
        """Angles (n, T, 4); the pressures of a frame act on the next one."""
        frames, found = list(past[:, -self.order :].unbind(1)), []
        for p in pressures.unbind(1):
            frames[-1] = torch.cat([frames[-1][:, :4], p], dim=1)
            q = torch.cat([*frames, torch.ones(len(p), 1)], dim=1) @ self.weight
            found.append(q)
            frames = [*frames[1:], torch.cat([q, p], dim=1)]
        return torch.stack(found, dim=1)


COLORS = {
    "stands still": "0.7", "ARX, free runs": BLUE, "GRU": "#2a9d4a", "pneumatic": "#e09030", "pneumatic + memory": "#b01820",
}  # fmt: skip
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


def arx(episodes: list[Array], order: int, ridge: float) -> Array:
    """Weights (12 order + 1, 4): next angles from the last `order` frames of angles and pressures.

    Ridge regression of the angles' next change on centred columns of unit variance.
    """
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


def chosen(data: dict[str, list[Array]]) -> tuple[int, float, dict[str, float]]:
    """Lags and ridge whose free runs of 0.5 s are best on validation episodes, and all scores [rad]."""
    past, pressures, angles = windows(data["validation"], 50, 10)
    scores = {}
    for order in ORDERS:
        for ridge in RIDGES:
            gap = run(Arx(data["train"], order, ridge), past, pressures) - angles
            scores[order, ridge] = float(np.sqrt(np.mean(np.clip(gap, -10, 10) ** 2)))
    order, ridge = min(scores, key=lambda pair: scores[pair])
    return order, ridge, {f"order {a}, ridge {b:g}": value for (a, b), value in scores.items()}


def run(model: torch.nn.Module, past: Array, pressures: Array) -> Array:
    """Angles (n, T, 4)."""
    with torch.no_grad():
        found = model(torch.tensor(past, dtype=torch.float32), torch.tensor(pressures, dtype=torch.float32))
    return np.asarray(found.double().numpy())


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


def told(model: Pneumatic, episodes: list[Array]) -> dict[str, Any]:
    """How well free runs of 0.5 s tell the mechanism's constants: half widths of 95 % intervals, episodes being independent.

    Of logarithms, of the rest angles [rad], and of the entries of weight and drag; infinite along what nothing tells.
    """
    past, pressures, angles = (torch.tensor(part, dtype=torch.float32) for part in windows(episodes, 50, 25))
    owner = owners(episodes, 50, 25)
    values = {name: value.detach() for name, value in model.named_parameters()}
    slopes = []
    for name, value in values.items():
        for i in range(value.numel()):
            way = {key: torch.zeros_like(other) for key, other in values.items()}
            way[name].view(-1)[i] = 1.0
            call = lambda given: torch.func.functional_call(model, given, (past, pressures))  # noqa: E731
            slopes.append(torch.func.jvp(call, (values,), (way,))[1].reshape(len(past), -1))
    J = torch.stack(slopes, dim=2).double().numpy()  # (n, 200, P)
    gap = (model(past, pressures) - angles).detach().double().numpy().reshape(len(past), -1)
    scores = np.einsum("nrp,nr->np", J, gap)
    meat = np.zeros((J.shape[2],) * 2)
    for k in range(owner.max() + 1):
        score = scores[owner == k].sum(axis=0)
        meat += np.outer(score, score)
    inverse = np.linalg.pinv(np.einsum("nrp,nrq->pq", J, J), rcond=1e-9)
    width = 1.96 * np.sqrt(np.diag(inverse @ meat @ inverse))
    names = [f"{name}[{i}]" for name, value in values.items() for i in range(value.numel())]
    half = dict(zip(names, width.tolist(), strict=True))
    logs = {name.removeprefix("log."): value for name, value in half.items() if name.startswith("log.")}
    lost = sorted(name for name, value in logs.items() if value > LOST)
    verdict = (
        f"{len(logs) - len(lost)} of {len(logs)} constants are told within {LOST:.0%}; not told: {', '.join(lost) or 'none'}"
    )
    return {"half_widths": half, "verdict": verdict}


def main(args: Args) -> None:
    """Fits, tests, writes pneumatic.json and pneumatic.png."""
    data = load(args.data, args.seed)
    test = [e for part in load(args.other, 0).values() for e in part] if args.other else data["test"]
    order, ridge, scores = chosen(data)
    print(f"ARX: order {order}, ridge {ridge:g}", flush=True)
    model, losses = trained(Pneumatic(), 0.03, data, args.steps, args.seed)
    models: dict[str, torch.nn.Module] = {
        "pneumatic": model,
        "pneumatic + memory": trained(warmed(model), 3e-3, data, args.steps, args.seed)[0],
        "GRU": trained(Recurrent(), 3e-3, data, args.steps, args.seed)[0],
        "ARX, free runs": trained(Arx(data["train"], order, ridge), 1e-3, data, args.steps, args.seed)[0],
        "ARX, one step": Arx(data["train"], order, ridge),
    }
    table: dict[str, Any] = {}
    for horizon in HORIZONS:
        past, pressures, angles = windows(test, horizon)
        owner = owners(test, horizon)
        found = {name: errors(run(each, past, pressures), angles, owner) for name, each in models.items()}
        found["stands still"] = errors(np.repeat(past[:, -1:, :4], horizon, axis=1), angles, owner)
        table[f"{horizon * H:g} s"] = {"windows": len(past), **found}
        print(horizon, {name: (round(v["all"], 2), np.round(v["rms"], 1)) for name, v in found.items()}, flush=True)
    constants = {name: value.detach().exp().tolist() for name, value in model.log.items()}
    document: dict[str, Any] = {
        **provenance(), "steps": args.steps, "errors_deg": table, "arx": {"order": order, "ridge": ridge, "validation": scores},
        "constants": constants, "told": told(model, data["train"]), "validation": losses,
    }  # fmt: skip
    print(document["told"]["verdict"])
    args.out.mkdir(parents=True, exist_ok=True)
    write_json(args.out / "pneumatic.json", document)
    draw(table, args.out / "pneumatic.png")


def warmed(mechanism: Pneumatic, memory: int = 32) -> Pneumatic:
    """The mechanism with a memory that says nothing yet."""
    made = Pneumatic(memory)
    made.load_state_dict(mechanism.state_dict(), strict=False)
    return made


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


if __name__ == "__main__":
    main(tyro.cli(Args))
