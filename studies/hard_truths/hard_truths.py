"""Hand-built SUPERballs: verdicts of the body's identification on truths outside the model class.

    python studies/hard_truths/hard_truths.py                # 3 truths that were not used for tuning
    python studies/hard_truths/hard_truths.py --seeds 21 22

A truth is the MuJoCo twin with cable gains within 15 % and rest lengths within 2 % (`core.hard`), drawn by seed; recorded is
one flight of the recipe, the full state without noise. "single steps" is only the recipe's former stage, `body`; "recipe"
are all its stages of the body. Writes table.json and table.md into results/hard_truths.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from softgym_envs.core.files import git_commit, write_atomically
from softgym_envs.core.recipe import Recipe
from softgym_envs.core.task import load
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.rooms import room
from sysid import run_recipe
from sysid.recipe.run import Identification

EFFECTS = {"gain_spread": 0.15, "rest_spread": 0.02}
AFTER = 0.5
"""[s] Horizon of the errors that are written."""
TRUE = {"cable_stiffness": 1e4, "cable_damping": 1e3, "motor_speed": 1.0, "motor_gain": 0.01}
"""Means of the quantities with spreads."""


@dataclass
class Args:
    """Options of the study."""

    seeds: tuple[int, ...] = (11, 12, 13)
    """Seeds of the truths."""
    steps: int = 2500
    """Physics steps of the recording."""
    out: Path = Path("results/hard_truths")
    """Folder of the table."""


def one(seed: int, steps: int) -> list[dict[str, Any]]:
    """Identify one truth; its rows of the table."""
    robot = room("tensegrity")
    recipe: Recipe = load(robot.recipe)
    truth = robot.simulator(backend="mujoco", options={"effects": EFFECTS, "seed": seed})
    air = TrajectorySet((recipe.record_one("air", truth, np.random.default_rng(seed), steps=steps),))
    engine = robot.simulator(options=recipe.options)
    body = tuple(stage for stage in recipe.stages if stage.experiment == "air")
    return [
        {"truth": seed, "what": what, **row_of(run_recipe(recipe, engine, air, stages=stages))}
        for what, stages in (("single steps", body[:1]), ("recipe", body))
    ]


def row_of(found: Identification) -> dict[str, Any]:
    """Constants, verdicts, and errors on the held-out end of the flight."""
    last = found.stages[-1].fit
    assert last is not None
    errors = {e.kind: round(e.fitted, 5) for e in last.open_loop if e.part == "validation" and abs(e.horizon - AFTER) < 1e-6}
    fitted = {e.name: (e.value, e.interval) for e in last.estimates}
    return {
        "used": {name: float(getattr(found.parameters, name)) for name in TRUE},
        "of the last stage": {name: value for name, (value, _) in fitted.items()},
        "intervals": {name: list(interval) for name, (_, interval) in fitted.items()},
        "must not be used": list(found.unusable),
        "headlines": [f"{stage.name}: {stage.verdict}" for stage in found.stages],
        "error at 0.5 s": errors,
    }


def table_of(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    lines = ["| truth | fit | k [N/m] (true mean 10 000) | c [N s/m] (1000) | gain [m] (0.01) | exit code | last headline |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        k, c, _, gain = (row["of the last stage"][name] for name in TRUE)
        code = 2 if row["must not be used"] else 0
        lines.append(f"| {row['truth']} | {row['what']} | {k:.4g} | {c:.4g} | {gain:.3g} | {code} | {row['headlines'][-1]} |")
    return "\n".join([*lines, ""])


def main(args: Args) -> None:
    """All truths."""
    rows: list[dict[str, Any]] = []
    for seed in args.seeds:
        rows += one(seed, args.steps)
        document = {"commit": git_commit(), "effects": EFFECTS, "steps": args.steps, "rows": rows}
        write_atomically(args.out / "table.json", json.dumps(document, indent=1).encode())
        write_atomically(args.out / "table.md", table_of(rows).encode())
        print(table_of(rows[-2:]), flush=True)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
