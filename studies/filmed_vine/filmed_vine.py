"""A hand-built vine robot before a camera: identification of its muscles by the recipe, and the prediction errors after it.

    python studies/filmed_vine/filmed_vine.py                        # levels 0 to 3, three truths each
    python studies/filmed_vine/filmed_vine.py --seeds 90 --levels 2

A truth is the MuJoCo twin of a level and a seed, recorded for 10 s (two robots that grow under random pressures) by a camera
(100 Hz, 1 mm) and identified from a data sheet's constants. Errors are of points along the body on three other recordings,
from exact states, with those of the nominal constants. Truths that are done are not run again. Writes table.json and
table.md into results/filmed_vine; seconds are a processor's, of the identification.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from softgym_envs.core.files import write_atomically
from softgym_envs.core.sensors import SENSORS
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.vine.dynamics import VineSimulator
from softgym_envs.vine.model import VineModel
from softgym_envs.vine.mujoco import VineTwin
from softgym_envs.vine.recipe import BODY, GUESS, RECIPE, along_body
from softgym_envs.vine.study import DT, LINKS
from sysid import run_recipe

STEPS, TESTS, EVERY = 2000, 3, 40
"""Physics steps of the recordings for training, recordings for testing, and rows between the states they are predicted from."""
FOUND = (*BODY, "base_turn", "tip_mass", "drag")
"""Constants that are written down."""
AHEAD = (0.5, 1.0)
"""[s]"""
SHARES = np.linspace(0.0, 1.0, 11)
"""Shares of the length at which points are compared."""


@dataclass(frozen=True)
class Args:
    """Options of the study."""

    levels: tuple[int, ...] = (0, 1, 2, 3)
    """Levels of the hard twin."""
    seeds: tuple[int, ...] = (80, 81, 82)
    """Seeds of the truths and of their recordings."""
    out: Path = Path("results/filmed_vine")
    """Folder of the table."""


def ahead(engine: VineSimulator, recordings: list[Trajectory], parameters: Any, seconds: float) -> float:
    """Root mean square error of points along the body [mm]."""
    squares = []
    for recording in recordings:
        rows, states = round(seconds / recording.period), recording.select(engine.state_names).values
        first = np.arange(0, recording.num_steps - rows, EVERY)
        controls = np.stack([recording.controls[k : k + rows] for k in first])
        after, _ = engine.rollout(states[first], controls, parameters, substeps=recording.substeps)
        found, true = (along_body(engine.model, x, SHARES) for x in (after[:, -1], states[first + rows]))
        squares.append(np.mean(np.sum((found - true) ** 2, axis=-1)))
    return round(1e3 * float(np.sqrt(np.mean(squares))), 1)


def one(level: int, seed: int) -> dict[str, Any]:
    """Record, identify and predict one truth."""
    model, rng = VineModel(num_links=LINKS), np.random.default_rng([99, seed, 0])
    truth, engine, recipe = VineTwin(model, dt=DT, level=level, seed=seed), VineSimulator(model, DT), RECIPE.by_camera
    constants = truth.default_parameters.replace(contact_timeconst=2 * DT)
    train = RECIPE.record(truth, rng, steps=STEPS, parameters=constants, filmed=True).train
    seen = TrajectorySet(tuple(SENSORS["camera"](r, engine, recipe, rng).for_timestep(DT) for r in train))
    begin = time.process_time()
    stage = run_recipe(recipe, engine, seen).stages[-1]
    seconds, drawn = time.process_time() - begin, engine.default_parameters
    tests = [
        RECIPE.record_one("pressures", truth, np.random.default_rng(i), parameters=constants, filmed=True) for i in range(TESTS)
    ]
    by = {"fit": stage.parameters, "drawing": drawn, "data sheet": drawn.replace(**GUESS)}
    return {
        "level": level,
        "seed": seed,
        **{name: float(f"{getattr(stage.parameters, name):.3g}") for name in FOUND},
        "converged": bool(stage.fit and stage.fit.converged),
        "verdict": stage.verdict,
        "mm": {name: [ahead(engine, tests, p, s) for s in AHEAD] for name, p in by.items()},
        "seconds": round(seconds),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    head = "level, seed | stiffness [N m^2] | gain [m^3] | lag [s] | tip [kg] | drag [N s/m^2] | converged |"
    lines = [f"| {head} error 0.5, 1 s ahead [mm] | drawing | seconds |", "| " + " | ".join(["---"] * 10) + " |"]
    for row in rows:
        fit, drawn = (", ".join(f"{e:g}" for e in row["mm"][name]) for name in ("fit", "drawing"))
        found = [f"{row[name]:g}" for name in ("bending_stiffness", "steering_gain", "steering_lag", "tip_mass", "drag")]
        cells = [f"{row['level']}, {row['seed']}", *found, "yes" if row["converged"] else "no", fit, drawn, str(row["seconds"])]
        lines.append("| " + " | ".join(cells) + " |")
    said = sorted({row["verdict"] for row in rows})
    return "\n".join(["# A vine before a camera", "", *lines, "", *(f"- {text}" for text in said), ""])


def main(args: Args) -> None:
    """Run what is missing."""
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "table.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    for level in args.levels:
        for seed in args.seeds:
            if not any((row["level"], row["seed"]) == (level, seed) for row in rows):
                rows.append(one(level, seed))
                rows.sort(key=lambda row: (row["level"], row["seed"]))
                write_atomically(path, (json.dumps(rows, indent=1) + "\n").encode())
            print(table(rows))
    write_atomically(args.out / "table.md", table(rows).encode())


if __name__ == "__main__":
    main(tyro.cli(Args))
