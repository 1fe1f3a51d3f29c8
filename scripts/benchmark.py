"""Compare controllers on any ids at equal budgets; your own controller gets a row, a page and a place in the plot.

    softgym-envs benchmark LoopReach-v0 my_package:controller       # (envs) -> (observations (B, no) -> actions (B, na))
    softgym-envs benchmark LoopReach-v0 runs/train/mine/policy.zip
    softgym-envs benchmark ArmReach-v0 mppi ilqg --budget 100 1000
    softgym-envs benchmark --out runs/all --jobs 2                  # every id, every controller: hours

Results go to the folder: benchmark.md, a page per controller, a picture per system, numbers.json, one JSON per cell. Cells that
are there are not run again; those of other episodes, or of a controller whose file has changed, are refused. Published rows of
the same ids stand beside them. In Python: `agents.benchmark`.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: cells share the processors, and rounding does not depend on them

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

import agents


@dataclass(frozen=True)
class Args:
    """Compare controllers."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Ids, and controllers: zero, random, heuristic, policy, mppi, mppi_sensors, cem, ilqg, linear, optimal, gps, ppo, sac,
    imitation; "package.module:function" of your own, or a policy file; none: all ids, all controllers."""
    budget: tuple[int, ...] = (100,)
    """Planners: simulated control steps per executed one."""
    training_steps: int | None = None
    """PPO and SAC: control steps; none: those of each id's settings."""
    episodes: int = 30
    """Episodes per cell."""
    keyword: tuple[str, ...] = ()
    """Keywords of the task, key=value: level=3."""
    jobs: int = 1
    """Processes."""
    executor: Literal["processes", "ray"] = "processes"
    """ray: a cluster that shares the folder; the numbers are the same."""
    out: Path = Path("runs") / "benchmark"
    """Folder."""


def main(args: Args) -> None:
    """Run what is missing, and report."""
    ids = [name for name in args.names if re.fullmatch(r".*-v\d+", name)]
    controllers = [name for name in args.names if name not in ids]
    executor = "serial" if args.jobs == 1 and args.executor == "processes" else args.executor
    agents.benchmark(
        ids, controllers, out=args.out, budgets=args.budget, training_steps=args.training_steps, episodes=args.episodes,
        options=" ".join(args.keyword), executor=executor, workers=args.jobs,
    )  # fmt: skip
    print(f"page: {args.out / 'benchmark.md'}")
