"""The mechanism's parameters from free runs of half a second, by Levenberg and Marquardt; which parameters the data determine.

Legend: C parameters of a joint.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from episodes import ROBUST, H, windows
from mechanism import Known, known, predicted
from numpy.typing import NDArray

from sysid.least_squares.levenberg import LevenbergOptions, levenberg_marquardt, start_state

Array = NDArray[np.float64]
KEPT = slice(4, None, 5)
"""Frames of a free run whose errors are fitted."""
STRIDE = 20
"""Frames between the starts of free runs."""
NOISE = 0.05
"""[rad] Noise that weighs the guesses of parameters against errors."""


class FreeRuns:
    """Errors of free runs as a function of all parameters, and distances of these from their guesses: a `levenberg.System`."""

    def __init__(self, episodes: list[Array], stride: int) -> None:
        self.past, self.valves, self.angles, self.owner = windows(episodes, 50, stride)
        angles = np.concatenate(episodes)[:, :4]
        self.known: list[Known] = [k for j in range(4) for k in known(j, angles.min(axis=0), angles.max(axis=0))]
        self.initial_guess, self.spread = (
            np.array([k.initial_guess for k in self.known]),
            np.array([k.spread for k in self.known]),
        )
        self.bounds = np.array([k.low for k in self.known]), np.array([k.high for k in self.known])

    def errors(self, theta: Array) -> Array:
        """Errors (n, 10, 4) [rad]; large ones grow as a square root, so that their squares grow linearly (Huber)."""
        off = predicted(theta.reshape(4, -1), self.past, self.valves, H)[:, KEPT] - self.angles[:, KEPT]
        off = np.clip(np.nan_to_num(off, nan=10.0), -10.0, 10.0)
        size = np.abs(off)
        return np.asarray(np.where(size < ROBUST, off, np.sign(off) * np.sqrt(np.maximum(2 * ROBUST * size - ROBUST**2, 0.0))))

    def guessed(self, theta: Array) -> Array:
        """Distance from the guesses (p,), in units of errors."""
        return NOISE * (theta - self.initial_guess) / self.spread

    def slopes(self, theta: Array) -> Array:
        """d errors / d theta (n, 40, p): differences over a finite step, since friction makes errors only piecewise smooth."""
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
        """Reduced rows [J r]."""
        rows = np.column_stack([self.slopes(theta).reshape(-1, len(theta)), self.errors(theta).ravel()])
        guessed = np.column_stack([np.diag(NOISE / self.spread), self.guessed(theta)])
        return np.asarray(np.linalg.qr(np.vstack([rows, guessed]), mode="r"))[None]

    def move(self, blocks: Array, step: Array) -> Array:
        """Unchanged blocks: there are no unknowns but the parameters."""
        return blocks

    def told(self, theta: Array) -> dict[str, Any]:
        """95 % half widths of all parameters, with episodes as independent, and which parameters the data determine.

        Undetermined parameters keep the guess's width; determined ones are narrowed to less than that.
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
            "parameters": {
                name: {"value": value, "half_width": width, "unit": k.unit}
                for name, value, width, k in zip(names, theta.tolist(), half.tolist(), self.known, strict=True)
            },
            "not_told": lost, "at_bound": [name for name, end in zip(names, ends, strict=True) if end],
            "diagnostic": f"{len(names) - len(lost)} of {len(names)} parameters are known better than guessed; all are "
            "per inertia of a joint and per unit of recorded pressure: masses, lengths, bores and forces are not told",
        }  # fmt: skip


def mechanism(episodes: list[Array], iterations: int, known_before: Array | None = None) -> tuple[Array, FreeRuns]:
    """Parameters (4, C) whose free runs of 0.5 s fit best, searched from those known before, else from the guesses."""
    system = FreeRuns(episodes, STRIDE)
    theta = system.initial_guess if known_before is None else np.clip(known_before.ravel(), *system.bounds)
    if iterations == 0:
        return theta.reshape(4, -1), system
    first = start_state(system, theta, np.zeros((1, 0)), LevenbergOptions())
    options = LevenbergOptions(max_iterations=iterations, cost_tolerance=2e-4)
    found = levenberg_marquardt(system, first, system.bounds, options=options, on_iteration=report)
    return found.theta.reshape(4, -1), system


def report(state: Any) -> None:
    """One line per iteration."""
    print(state.log[-1].line(), flush=True)
