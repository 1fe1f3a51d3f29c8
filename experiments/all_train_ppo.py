"""What PPO learns from scratch of every id, by the documented command and nothing else: a baseline for learners.

    python experiments/all_train_ppo.py  # every id, one after the other
    python experiments/all_train_ppo.py --jobs 2 --ids VineGrow-v0 ArmReach-v0

Each id is trained by `softgym-envs train ID --steps 400000`, seed 0, in our engine with its usual parameters, and run for 50
episodes in our engine and on the MuJoCo model. No settings but those that the system declares, no demonstrations, no shaping.
Ids that are done are not run again. Writes numbers.json and table.md into results/all_train_ppo.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from agents.transfer_study.jobs import in_processes
from agents.transfer_study.statistics import share
from softgym_envs.core.files import git_commit, read_json, write_atomically, write_json
from softgym_envs.systems import tasks

SCRIPTS = Path(__file__).parents[1] / "scripts"


@dataclass(frozen=True)
class Args:
    """Options."""

    ids: tuple[str, ...] = tuple(task.id for task in tasks())
    """Environments."""
    steps: int = 400_000
    """Control steps of all rows together."""
    episodes: int = 50
    """Episodes of each evaluation."""
    jobs: int = 1
    """Processes."""
    out: Path = Path("results/all_train_ppo")
    """Folder."""


def learned(name: str, steps: int, episodes: int) -> dict[str, Any]:
    """Train one id and evaluate it: seconds, and success and return by world.

    Raises:
        CalledProcessError: The command failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        given = ["train", name, "--steps", str(steps), "--episodes", str(episodes), "--out", folder]
        begun = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run([sys.executable, str(SCRIPTS), *given], check=True)
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begun
        found = json.loads((Path(folder) / "evaluation.json").read_text())
    worlds = {
        world: {"success": round(run["success"] * run["episodes"]), "return": run["return_mean"]}
        for world, run in found.items()
    }
    made = {"commit": git_commit(), "steps": steps, "episodes": episodes, "seconds": round(seconds)}
    return {**made, "worlds": worlds}


def table_of(rows: dict[str, Any]) -> str:
    """Markdown: success with its 95 % interval."""
    lines = [
        "| id | in our engine | on the MuJoCo model | mean return | control steps | s of a processor |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in sorted(rows, key=[task.id for task in tasks()].index):
        row = rows[name]
        worlds = [row["worlds"][world] for world in ("native", "mujoco")]
        told = [f"{w['success']} of {row['episodes']}: {share(w['success'], row['episodes'])}" for w in worlds]
        returns = ", ".join(f"{w['return']:.3g}" for w in worlds)
        lines.append(f"| `{name}` | {' | '.join(told)} | {returns} | {row['steps']} | {row['seconds']} |")
    return "\n".join(lines) + "\n"


def main(args: Args) -> None:
    """Run what is missing."""
    path = args.out / "numbers.json"
    rows: dict[str, Any] = read_json(path)["rows"] if path.exists() else {}
    wanted = {"steps": args.steps, "episodes": args.episodes}
    calls = [(name, *wanted.values()) for name in args.ids if not wanted.items() <= rows.get(name, {}).items()]
    with closing(in_processes(learned, calls, args.jobs)) as ended:
        for (name, *_), future in ended:
            rows[name] = future.result()
            write_json(path, {"rows": rows})
            write_atomically(args.out / "table.md", table_of(rows).encode())
    print(table_of(rows))


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
