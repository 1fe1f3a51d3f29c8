"""A transfer study: plans or policies made in the native engine, before and after identification, run on the ground truth.

    softgym-envs transfer experiments/superball_roll_mpc.toml       # a published study: sampling MPC, hours on 2 cores
    softgym-envs transfer experiments/superball_roll_ppo.toml        # the same by PPO
    softgym-envs transfer smoke                                  # every part once, in a minute
    softgym-envs transfer runs/transfer_superball_roll_mpc  # a folder: its report again, from the runs that are there

A study is a TOML file: a system and a task, conditions, budgets, seeds, thresholds; see `agents.transfer_study.document` and
experiments/. Results go to runs/transfer_<study>: report.html, table.md, summary.json, one JSON per run. The study and its
thresholds are written there before the first run. Stop it with Ctrl-C; the same command continues it. In Python:
`agents.transfer`.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: runs share the processors, and rounding does not depend on them

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

import agents


@dataclass(frozen=True)
class Args:
    """Run or continue a transfer study."""

    study: Annotated[Path, tyro.conf.Positional]
    """TOML file of a study, or the name of one that comes with the package: smoke; or the folder of one that ran, to report
    its runs again."""
    ray: bool = False
    """Run on a Ray cluster instead of in processes; the numbers are the same."""
    workers: int | None = None
    """Processes; none: one per processor; 1: no processes at all."""
    seeds: int | None = None
    """Fewer or more seeds than the study's own."""
    datasets: int | None = None
    """Fewer or more data sets than the study's own."""
    starts: int | None = None
    """Fewer or more perturbed starts than the study's own."""
    conditions: tuple[str, ...] = ()
    """Only these conditions; none: the study's own. The nominal one and the oracle must be among them."""
    out: Path | None = None
    """Folder; none: runs/transfer_<study>."""
    video: bool = True
    """Draw the identified condition beside the nominal one."""


def main(args: Args) -> int:
    """Run and report; 1 if a run failed."""
    given = {name: value for name, value in vars(args).items() if name not in ("study", "ray")}
    given["executor"] = "ray" if args.ray else "serial" if args.workers == 1 else "processes"
    summary = agents.transfer(args.study, **given)
    print(summary.headline)
    for text in (*(result.label for result in summary.thresholds), *(fit.label for fit in summary.fits if fit.failed)):
        print(text)
    print(f"report: {summary.folder / 'report.html'}")
    return int(not summary.complete)
