"""Predictors learned from the same episodes: a recurrent network and linear autoregression (ARX). Legend: T frames."""

from __future__ import annotations

import numpy as np
import torch
from episodes import PAST, ROBUST, windows
from numpy.typing import NDArray

Array = NDArray[np.float64]
ORDERS, RIDGES = (1, 2, 3, 4, 6, 8, 12), (1e-4, 1e-2, 1.0, 10.0, 100.0, 1e3, 1e4)
"""Orders and ridges of ARX; ridges over columns of unit variance, rows summed."""


class Recurrent(torch.nn.Module):
    """A GRU that predicts changes of the angles, frame by frame."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.cell, self.out = torch.nn.GRUCell(16, width), torch.nn.Linear(width, 4)

    def forward(self, past: torch.Tensor, pressures: torch.Tensor) -> torch.Tensor:
        """Predict angles (n, T, 4) from angles, their last change (in tenths of a radian per 0.1 s), and pressures."""
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
    """Linear prediction of angles from the last frames: weights (12 order + 1, 4); a frame's pressures act on the next one."""

    def __init__(self, weight: Array) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(weight, dtype=torch.float32))

    def forward(self, past: torch.Tensor, pressures: torch.Tensor) -> torch.Tensor:
        """Predict angles (n, T, 4)."""
        frames, found = list(past[:, -(len(self.weight) // 12) :].unbind(1)), []
        for p in pressures.unbind(1):
            frames[-1] = torch.cat([frames[-1][:, :4], p], dim=1)
            q = torch.cat([*frames, torch.ones(len(p), 1)], dim=1) @ self.weight
            found.append(q)
            frames = [*frames[1:], torch.cat([q, p], dim=1)]
        return torch.stack(found, dim=1)


def trained(model: torch.nn.Module, rate: float, data: dict[str, list[Array]], steps: int, seed: int) -> torch.nn.Module:
    """Train the weights on free runs of 0.5 s; the best on validation episodes are kept."""
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
    """Lags and ridge with the best free runs of 0.5 s on validation episodes."""
    past, pressures, angles, _ = windows(data["validation"], 50, 10)
    scores = {}
    for pair in ((order, ridge) for order in ORDERS for ridge in RIDGES):
        gap = run(Arx(arx(data["train"], *pair)), past, pressures) - angles
        scores[pair] = float(np.mean(np.clip(gap, -10, 10) ** 2))
    return min(scores, key=lambda pair: scores[pair])


def run(model: torch.nn.Module, past: Array, pressures: Array) -> Array:
    """Predict angles (n, T, 4)."""
    with torch.no_grad():
        found = model(torch.tensor(past, dtype=torch.float32), torch.tensor(pressures, dtype=torch.float32))
    return np.asarray(found.double().numpy())
