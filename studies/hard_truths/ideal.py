"""Coverage of intervals for noisy SUPERballs in the ideal case: known noise, estimates started at the truth.

    python studies/hard_truths/ideal.py                     # recordings of `rows.py --rows noise --first 1000 --seeds 20`

Truths, recordings and segments are those of the row "noise" (row_truths.py). The estimate is that of Gauss and Newton with
derivatives J, K (constants, starts of segments) and variances of the noise at the truth, where only this script starts:

    (d, e) = argmin |r + J d + K e|^2,   cov(d) = (J' P J)^-1,   P = I - K K^+

repeated until d is below a thousandth of its standard deviation, ten times at most. Misses here are by chance; further misses
of the documented command are its own. Writes ideal.json into the folder of the rows: per recording the estimate's distance from
the truth in standard deviations, and that of the command's numbers where the folder has them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray
from row_truths import STATES, flights, unknown_noise

from softgym_envs.core.files import git_commit, write_atomically
from softgym_envs.core.task import load
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.rooms import room
from sysid.least_squares.cutting import cut
from sysid.least_squares.segments import Derivative
from sysid.recipe.stage_problem import stage_problem

Array = NDArray[np.float64]

ROWS, AGAIN, ENOUGH = 100, 10, 1e-3
"""Rows of a segment, as in the stage `refine`; most steps; standard deviations."""


@dataclass(frozen=True)
class Args:
    """Options of the study."""

    first: int = 1000
    """Seed of the first recording."""
    seeds: int = 20
    """Number of recordings."""
    out: Path = Path("results/hard_truths/fresh_states")
    """Folder."""


class Linear:
    """Weighted derivatives of segments: constants with starts projected out, and effects of starts."""

    def __init__(self, found: Derivative, sigma: Array) -> None:
        count, _, _, p = found.constants.shape
        self.constants = (found.constants / sigma[:, None]).reshape(count, -1, p)
        self.basis, size, self.turn = np.linalg.svd(
            (found.starts / sigma[:, None]).reshape(count, self.constants.shape[1], -1), full_matrices=False
        )
        self.inverse = np.where(size > 1e-10 * size[:, :1], 1.0 / np.where(size > 0, size, 1.0), 0.0)
        self.basis = np.where(self.inverse[:, None] > 0, self.basis, 0.0)
        left = self.constants - self.basis @ (np.swapaxes(self.basis, 1, 2) @ self.constants)
        self.seen = left.reshape(-1, p)
        self.covariance = np.linalg.inv(self.seen.T @ self.seen)

    def step(self, residual: Array) -> tuple[Array, Array]:
        """d (p,) and e (S, n) of weighted residuals (S, N)."""
        d = -self.covariance @ (self.seen.T @ residual.reshape(-1))
        rest = np.einsum("snk,sn->sk", self.basis, residual + self.constants @ d)
        return d, -np.einsum("sij,si->sj", self.turn, self.inverse * rest)


def ideal(seed: int) -> tuple[Any, Array, Array, Array]:
    """The problem of a recording, fit coordinates of the truth, the ideal estimate and its standard deviations."""
    asked, engine, recipe = unknown_noise(seed), room("tensegrity").simulator(), load(room("tensegrity").recipe)
    truth = engine.default_parameters.replace(**asked.true)
    clean, stage = flights(engine, seed, 600, truth), recipe.stage("refine")
    noise = {name: STATES.get(unit, 0.0) for name, unit in zip(clean.names, clean.units, strict=True)}
    exact, given = (
        stage_problem(recipe, stage, engine, TrajectorySet((data,)), start=truth, noise=noise)
        for data in (clean, asked.recordings[0])
    )
    true, segments = (cut(p, p.split.train, ROWS, free=True, exact=False) for p in (exact, given))
    theta, starts, sigma = exact.encode(truth), true.starts, given.known_noise
    assert sigma is not None
    linear, end = Linear(true.derivative(theta, starts), sigma), theta
    errors = np.sqrt(np.diag(linear.covariance))
    for _ in range(AGAIN):
        residual = segments.residuals(end[None], starts)[0][0] / sigma
        d, e = linear.step(residual.reshape(len(starts), -1))
        end, starts = end + d, exact.simulator.retract(starts, e)
        if np.all(np.abs(d) < ENOUGH * errors):
            break
    return exact, theta, end, errors


def main(args: Args) -> None:
    """Run all recordings."""
    path = args.out / "rows.json"
    there = json.loads(path.read_text())["rows"]["noise"]["found"] if path.exists() else []
    fitted = {row["seed"]: row["values"] for row in there if "values" in row}
    rows: list[dict[str, Any]] = []
    for seed in range(args.first, args.first + args.seeds):
        problem, theta, end, errors = ideal(seed)
        row: dict[str, Any] = {"seed": seed, "ideal": (end - theta) / errors}
        if seed in fitted:
            row["command"] = (problem.encode(problem.constants.replace(**fitted[seed])) - theta) / errors
        rows.append({name: value if name == "seed" else [round(float(z), 3) for z in value] for name, value in row.items()})
        print(rows[-1], flush=True)
        text = ",\n".join(json.dumps(row) for row in rows)
        write_atomically(args.out / "ideal.json", f'{{"commit": "{git_commit()}", "rows": [\n{text}\n]}}\n'.encode())
    for name in ("ideal", "command"):
        z = np.array([row[name] for row in rows if name in row])
        held, size = int(np.sum(np.abs(z) <= 1.96)), float(np.sqrt(np.mean(z**2))) if z.size else float("nan")
        print(f"{name}: {held} of {z.size} within 1.96 standard deviations, rms {size:.2f}")


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
