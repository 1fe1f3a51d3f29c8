"""Measure the cost of `env.step` in addition to the physics: every id in one process, every step the best of many rounds.

python benchmarks/steps.py                              # all ids, a quarter of a minute on a quiet machine
python benchmarks/steps.py --rounds 40 --out results/step_speed/numbers.json
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tyro
from step_times import step_times

from softgym_envs.core.files import write_json
from softgym_envs.engines.timing import machine
from softgym_envs.systems import tasks


@dataclass(frozen=True)
class Args:
    """Options of the measurement."""

    only: tuple[str, ...] = ()
    """Ids; none: all."""
    rounds: int = 25
    """Rounds, each from the same reset."""
    steps: int = 100
    """Control steps per round."""
    out: Path | None = None
    """JSON file for the table, too."""


@dataclass(frozen=True)
class Row:
    """Means over the steps [us]."""

    id: str
    step: float
    """`env.step`, without the wrappers of `gym.make`."""
    physics: float
    """Time of the simulator in it."""
    beside: float
    """Time of all else."""


def measure(task_id: str, args: Args) -> Row:
    """Measure random actions, without resets: steps continue beyond an episode's end."""
    env: Any = gym.make(f"softgym_envs:{task_id}").unwrapped
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1.0, 1.0, (args.steps, *env.action_space.shape)).astype(np.float32)
    env.reset(seed=0)
    env.step(actions[0])  # the first one is checked
    whole, physics = 1e6 * step_times(env, actions, args.rounds)
    return Row(task_id, float(whole.mean()), float(physics.mean()), float((whole - physics).mean()))


def main(args: Args) -> None:
    """Measure and print."""
    rows = []
    print("| id | env.step [us] | physics | beside it |\n|---|---:|---:|---:|")
    for task_id in args.only or [task.id for task in tasks()]:
        rows.append(measure(task_id, args))
        print(f"| {task_id} | {rows[-1].step:.0f} | {rows[-1].physics:.0f} | {rows[-1].beside:.1f} |", flush=True)
    if args.out is not None:
        write_json(args.out, {"machine": machine("numpy", "numba"), "rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
