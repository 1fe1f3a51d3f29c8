"""The block's friction row by row from the command line, at a discretisation that no longer matters: 512 edges, steps of 5 ms.

    python experiments/block_identify/online.py  # 10 blocks of our engine and 3 of MuJoCo

Friction is drawn between 0.15 and 0.6; a camera sees the block 50 times a second for 1.2 s (1 mm, 5 mrad), fits start from 0.7.
Each recording becomes a CSV file that `softgym-envs identify block --online` reads. The machine was busy.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from softgym_envs.core.files import git_commit, read_json, write_json
from softgym_envs.systems.rigid.dynamics import BlockSimulator
from softgym_envs.systems.rigid.experiments import record
from softgym_envs.systems.rigid.model import BlockModel
from softgym_envs.systems.rigid.mujoco import MujocoBlock
from softgym_envs.systems.rigid.procedure import CAMERA, FINE_CONE_EDGES, PERIOD

STEP, ROWS = 0.005, 60
MODEL = f"[block]\nnum_directions = {FINE_CONE_EDGES}\npulley = [1.2, 0.3]\n"
START = "[parameters]\nfriction = 0.7\n"


COMMAND = "python experiments/block_identify/online.py"


@dataclass
class Args:
    """Options of the study."""

    own: int = 10
    """Blocks of our engine."""
    mujoco: int = 3
    """Blocks of MuJoCo."""
    out: Path = Path("results/block_identify/numbers.json")
    """File of the numbers."""


def estimate(world: Any, seed: int, folder: Path) -> dict[str, Any]:
    """Estimate from one recording, by the command line."""
    rng = np.random.default_rng(seed)
    friction = float(rng.uniform(0.15, 0.6))
    seen = record(
        world, world.initial_state()[0], np.zeros((ROWS, 2)), world.default_parameters.replace(friction=friction),
        noise=CAMERA, rng=rng, period=PERIOD,
    )  # fmt: skip
    x, y, theta = (1e3 * seen.values[:, 0], 1e3 * seen.values[:, 1], np.degrees(seen.values[:, 2]))
    lines = [f"{t:.4f},{a:.5f},{b:.5f},{c:.5f}" for t, a, b, c in zip(seen.times, x, y, theta, strict=True)]
    (folder / "camera.csv").write_text("\n".join(["time [s],x [mm],y [mm],theta [deg]", *lines, ""]))
    given = [
        "--model",
        "block.toml",
        "--initial-guess",
        "start.toml",
        "--dt",
        str(STEP),
        "--data",
        "camera.csv",
        "--online",
        "--out",
        "out",
    ]
    noise = [word for name, value in CAMERA.items() for word in (name, str(value))]
    ended = subprocess.run(
        [sys.executable, "-m", "softgym_commands", "identify", "block", *given, "--noise", *noise],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    rows = np.genfromtxt(folder / "out" / "online.csv", delimiter=",", skip_header=1)
    off = (rows[:, 1] - friction) / rows[:, 2]
    return {
        "seed": seed, "friction": friction, "found": float(rows[-1, 1]), "std": float(rows[-1, 2]), "code": ended.returncode,
        "rows inside 1.96 std": float(np.mean(np.abs(off) < 1.96)), "last inside": bool(abs(off[-1]) < 1.96),
        "ms per row, median": float(1e3 * np.median(rows[1:, -2])), "ms per row, most": float(1e3 * rows[1:, -2].max()),
        "first window [s]": float(rows[0, -2]), "rows not explained": int((rows[:, -1] > 1).sum()), "rows": len(rows),
    }  # fmt: skip


def main(args: Args) -> None:
    """All blocks; writes after each."""
    before = read_json(args.out) if args.out.exists() else {}
    document: dict[str, Any] = {"command": COMMAND, "commit": git_commit(), "own": [], "mujoco": []}
    worlds: dict[str, tuple[Any, int]] = {
        "own": (BlockSimulator(BlockModel(num_directions=FINE_CONE_EDGES), dt=STEP), args.own),
        "mujoco": (MujocoBlock(), args.mujoco),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "block.toml").write_text(MODEL)
        (folder / "start.toml").write_text(START)
        for world, (simulator, count) in worlds.items():
            for seed in range(count):
                document[world].append(estimate(simulator, seed, folder))
                print(world, json.dumps(document[world][-1]), flush=True)
                write_json(args.out, {**before, "row_by_row": document})


if __name__ == "__main__":
    main(tyro.cli(Args))
