"""One throw of 5 s and five of 1 s: what they say of the contact of a mismatched MuJoCo SUPERball; errors on held-out throws.

    python studies/hard_transfer/throws.py --levels 1 2 3 --seed 22

The truths are not those of the transfer studies in this folder. Cables are nominal, contact starts from the nominal values and
is fitted as in the recipe's last stage. Errors: mean of the centre of mass [mm] over six throws, from five starts each in their
first half second. Writes results/hard_transfer/throws.json, one entry per truth, and keeps existing ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from softgym_envs.core.files import read_json, write_atomically
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.tensegrity.dynamics import TensegritySimulator
from softgym_envs.tensegrity.mujoco import TensegrityTwin, native_constants
from softgym_envs.tensegrity.recipe import RECIPE
from sysid import ShootingOptions, multiple_shooting
from sysid.least_squares.levenberg import LevenbergOptions
from sysid.recipe.stage_problem import stage_problem

STEPS, TESTS, AHEAD = 5000, 6, (200, 500, 1000)
"""Physics steps of 1 ms of all fitted throws; number of held-out throws; horizons."""
OPTIONS = ShootingOptions(
    segment_steps=250, jacobian="differences", errors="clustered", scan=False, reweight=2,
    levenberg=LevenbergOptions(max_iterations=20, cost_tolerance=1e-6),
)  # fmt: skip


@dataclass(frozen=True)
class Args:
    """Options of the study."""

    levels: tuple[int, ...] = (1, 2, 3)
    """Levels of the ladder."""
    seed: int = 22
    """Seed of the draws and of the throws."""
    out: Path = Path("results/hard_transfer/throws.json")
    """File of the entries."""


def errors(engine: TensegritySimulator, tests: TrajectorySet, constants: Parameters) -> dict[str, float]:
    """Mean error [mm] by horizon [ms]."""
    found: dict[str, list[float]] = {str(steps): [] for steps in AHEAD}
    for throw in tests:
        states, first = throw.select(engine.state_names).values, np.arange(0, 500, 100)
        ahead, _ = engine.rollout(states[first].copy(), np.zeros((len(first), max(AHEAD), engine.nu)), constants)
        for steps in AHEAD:
            off = engine.model.center_of_mass(ahead[:, steps]) - engine.model.center_of_mass(states[first + steps])
            found[str(steps)] += (1e3 * np.linalg.norm(off, axis=1)).tolist()
    return {name: round(float(np.mean(values)), 1) for name, values in found.items()}


def compared(level: int, seed: int) -> dict[str, Any]:
    """Compare both kinds of throws on one truth."""
    engine, truth = TensegritySimulator(contact="patch"), TensegrityTwin(level=level, seed=seed)
    tests = TrajectorySet(
        tuple(RECIPE.record_one("throws", truth, np.random.default_rng(100 + i), steps=1500) for i in range(TESTS))
    )
    drawing = native_constants()
    found: dict[str, Any] = {"the drawing": {"errors": errors(engine, tests, drawing)}}
    for count in (1, 5):
        rng = np.random.default_rng([0, 0, seed])
        throws = tuple(RECIPE.record_one("throws", truth, rng, steps=STEPS // count) for _ in range(count))
        fit = multiple_shooting(
            stage_problem(RECIPE, RECIPE.stage("rolling"), engine, TrajectorySet(throws), start=drawing), OPTIONS
        )
        kept = {name: round(float(getattr(fit.parameters, name)), 4) for name in ("friction", "pivot_friction")}
        found[f"{count} x {STEPS // count} ms"] = {**kept, "errors": errors(engine, tests, fit.parameters)}
        print(level, count, found[f"{count} x {STEPS // count} ms"], flush=True)
    return found


def main(args: Args) -> None:
    """Run all truths."""
    there = read_json(args.out) if args.out.exists() else {}
    for level in args.levels:
        there[f"level {level}, seed {args.seed}"] = compared(level, args.seed)
        write_atomically(args.out, (json.dumps(there, indent=1) + "\n").encode())


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
