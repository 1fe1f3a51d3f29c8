"""Batched control steps per second under random actions in two checkouts of this repository, round by round in turn.

git worktree add ../old 8bf4331
python benchmarks/rows_between.py --old ../old --out rows.json                 # common ids, some minutes
python benchmarks/rows_between.py --old ../old --only VineNavigate-v0 --new-keywords '{"clutter": "scattered"}'

Each side is a process of its own, which keeps its environment from round to round; the first round warms up and is not counted.
Processor time counts all threads, so its ratio depends less on the machine's other load than that of the clock.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import tyro

from softgym_envs.core.errors import OptionError
from softgym_envs.core.files import read_json, write_json
from softgym_envs.core.timing import machine
from softgym_envs.rooms import tasks

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Args:
    """Options of the measurement."""

    old: Path
    """Checkout of this repository to compare with."""
    new: Path = HERE.parent
    """New checkout."""
    only: tuple[str, ...] = ()
    """Ids; none: all of this checkout."""
    rows: int = 256
    """Rows per batch."""
    steps: int = 30
    """Control steps per round."""
    rounds: int = 7
    """Rounds of each side, after one uncounted round."""
    old_keywords: str = "{}"
    """Keywords of `gym.make_vec` on the old side, as JSON."""
    new_keywords: str = "{}"
    """Keywords of `gym.make_vec` on the new side, as JSON."""
    out: Path | None = None
    """JSON table to write or extend."""


@dataclass(frozen=True)
class Row:
    """Medians over the rounds."""

    id: str
    old_keywords: dict[str, Any]
    new_keywords: dict[str, Any]
    old: float
    """Control steps per second of processor time."""
    new: float
    ratio: float
    """new / old."""
    old_clock: float
    """Control steps per second by the clock."""
    new_clock: float
    ratio_clock: float
    lowest: float
    """Least ratio of processor times of a round."""
    highest: float
    rows: int
    steps: int
    rounds: int


class Side:
    """A process that steps one id of a checkout."""

    def __init__(self, path: Path, task_id: str, keywords: dict[str, Any], args: Args) -> None:
        if not (path / "softgym_envs").is_dir():
            raise OptionError(f"{path} is no checkout of this repository: there is no folder softgym_envs in it")
        self.path = path
        asked = {"id": task_id, "rows": args.rows, "steps": args.steps, "keywords": keywords, "path": str(path)}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "rows_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(path.resolve())},
        )
        self.write(json.dumps(asked))

    def write(self, line: str) -> None:
        """Write one line to the process."""
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)

    def read(self) -> Any:
        """Read one answer.

        Raises:
            OptionError: The process ended.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise OptionError(f"{self.path}: the process ended with {self.process.wait()}; what it said stands above")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self.process.communicate()


def measure(task_id: str, args: Args) -> Row:
    """Measure one id on both sides, in turn."""
    keywords = json.loads(args.old_keywords), json.loads(args.new_keywords)
    sides = [Side(path, task_id, words, args) for path, words in zip((args.old, args.new), keywords, strict=True)]
    try:
        for side in sides:
            side.read()
        spent: list[list[list[float]]] = []
        for _ in range(args.rounds):
            spent.append([])
            for side in sides:
                side.write("")
                spent[-1].append(side.read())
    finally:
        for side in sides:
            side.close()
    count = args.rows * args.steps
    old, new = [count / median(turn[k][0] for turn in spent) for k in (0, 1)]
    old_clock, new_clock = [count / median(turn[k][1] for turn in spent) for k in (0, 1)]
    ratios = [turn[0][0] / turn[1][0] for turn in spent]
    return Row(
        task_id,
        *keywords,
        old,
        new,
        new / old,
        old_clock,
        new_clock,
        new_clock / old_clock,
        min(ratios),
        max(ratios),
        args.rows,
        args.steps,
        args.rounds,
    )


def main(args: Args) -> None:
    """Measure and print."""
    found: list[Any] = read_json(args.out)["rows"] if args.out is not None and args.out.exists() else []
    print("| id | old [1/s of a processor] | new | ratio | by the clock |\n|---|---:|---:|---:|---:|")
    for task_id in args.only or [task.id for task in tasks()]:
        row = measure(task_id, args)
        print(
            f"| {task_id} | {row.old:.0f} | {row.new:.0f} | {row.ratio:.1f} ({row.lowest:.1f} to {row.highest:.1f}) "
            f"| {row.ratio_clock:.1f} |",
            flush=True,
        )
        found.append(asdict(row))
        if args.out is not None:
            write_json(args.out, {"machine": machine("numpy", "numba", "warp-lang"), "rows": found})


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
