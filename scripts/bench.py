"""Measure control steps per second of every environment, ours and the room's truth in turn in one process, also in batches.

    softgym-envs bench                     # every id, a few minutes
    softgym-envs bench --room vine         # one room

One robot is timed by the processor's clock, over as many steps and resets on both sides; batches, in threads, by the wall's.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
import tyro

from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.files import write_json
from softgym_envs.core.room import NATIVE, Room, TaskId
from softgym_envs.core.simulator import check_number
from softgym_envs.core.timing import Rate, Side, alone, compare, machine, table
from softgym_envs.rooms import room, rooms


@dataclass(frozen=True)
class Args:
    """Options of the measurement."""

    room: str = ""
    """One room; none: all."""
    rounds: int = 5
    """Rounds per comparison."""
    steps: int = 200
    """Control steps per round, of one robot."""
    rows: int = 256
    """Robots per batch."""
    out: Path | None = None
    """JSON file for the table, too."""


def single(task: TaskId, backend: str, steps: int) -> Callable[[], None]:
    """Step one robot `steps` times under random actions."""
    env = gym.make(f"softgym_envs:{task.id}", backend=backend)
    env.reset(seed=0)
    env.action_space.seed(0)

    def run() -> None:
        for _ in range(steps):
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                env.reset()

    run()
    return run


def batched(task: TaskId, rows: int, repeats: int) -> Callable[[], None]:
    """Step a batch in our engine `repeats` times under random actions."""
    envs = gym.make_vec(f"softgym_envs:{task.id}", num_envs=rows, vectorization_mode="vector_entry_point")
    envs.reset(seed=0)
    rng = np.random.default_rng(0)

    def run() -> None:
        for _ in range(repeats):
            envs.step(rng.uniform(-1.0, 1.0, envs.action_space.shape).astype(np.float32))

    run()
    return run


def measure(found: Room, args: Args) -> list[Rate]:
    """Measure all ids of a room."""
    rates = []
    for task in found.tasks:
        ours = single(task, NATIVE, args.steps)
        for truth in found.truths:
            peer = single(task, truth, args.steps)
            what = f"{task.id}, one robot, beside {truth}"
            sides: tuple[Side, Side] = (args.steps, ours), (args.steps, peer)
            rates.append(compare(what, "control steps/s", *sides, rounds=args.rounds, clock=time.process_time))
        repeats = max(2, args.steps // 40)
        many = batched(task, args.rows, repeats)
        what = f"{task.id}, {args.rows} rows, {os.cpu_count()} cores"
        rates.append(alone(what, "control steps/s", (args.rows * repeats, many), rounds=args.rounds))
        print(table(rates[-2:]).splitlines()[-1], flush=True)
    return rates


def main(args: Args) -> int:
    """Measure, print, save; 2 for bad input."""
    try:
        for name in ("rounds", "steps", "rows"):
            check_number(f"--{name}", getattr(args, name), low=1, whole=True)
        chosen = [room(args.room)] if args.room else list(rooms().values())
        rates = [rate for found in chosen for rate in measure(found, args)]
    except SoftgymError as error:
        print(error, file=sys.stderr)
        return 2
    host = machine("numpy", "gymnasium")
    print(", ".join(f"{key} {value}" for key, value in host.items()))
    print(table(rates, "truth"))
    if args.out is not None:
        write_json(args.out, {"machine": host, "rows": [asdict(rate) for rate in rates]})
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
