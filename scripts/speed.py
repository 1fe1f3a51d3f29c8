"""Measure control steps per second of every environment and of its ground truth (processor time), and in batches (wall time).

    softgym-envs speed --system vine         # one system; without it every id, a few minutes
    softgym-envs speed --device cuda --stage kernels --rows 1024 8192       # tensegrity robots and vines on a GPU

Prints a table.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import gymnasium as gym
import numpy as np

from softgym_envs.core.files import write_json
from softgym_envs.core.simulator import check_number
from softgym_envs.core.system import NATIVE
from softgym_envs.engines.timing import Rate, alone, compare, machine, table
from softgym_envs.systems import system, systems


@dataclass(frozen=True)
class Args:
    """Options of the measurement."""

    system: str = ""
    """One system; none: all."""
    rounds: int = 5
    """Rounds per comparison."""
    steps: int = 200
    """Control steps per round, of one robot."""
    rows: tuple[int, ...] = (256,)
    """Robots per batch."""
    device: str = ""
    """Measure environments that give tensors on this device instead: cuda or cpu."""
    stage: Literal["episodes", "kernels", "agreement"] = "episodes"
    """What is measured there: whole episodes with resets, physics alone, or the difference from the CPU and of float32."""
    ids: tuple[str, ...] = ("TensegrityRoll-v0", "VineGrow-v0", "VineWall-v0")
    """Ids that are measured there."""
    out: Path | None = None
    """JSON file for the table, too."""


def single(env_id: str, backend: str, steps: int) -> Callable[[], None]:
    """Step one robot `steps` times under random actions."""
    env = gym.make(f"softgym_envs:{env_id}", backend=backend)
    env.reset(seed=0)
    env.action_space.seed(0)

    def run() -> None:
        for _ in range(steps):
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                env.reset()

    return run


def batched(env_id: str, rows: int, repeats: int) -> Callable[[], None]:
    """Step a batch in the native engine `repeats` times under random actions."""
    envs = gym.make_vec(f"softgym_envs:{env_id}", rows, vectorization_mode="vector_entry_point")
    envs.reset(seed=0)
    draw = partial(np.random.default_rng(0).uniform, -1.0, 1.0, envs.action_space.shape)
    return lambda: [envs.step(np.float32(draw())) for _ in range(repeats)].clear()


def main(args: Args) -> None:
    """Measure, print, save."""
    for name, number in (("rounds", args.rounds), ("steps", args.steps), *(("rows", rows) for rows in args.rows)):
        check_number(f"--{name}", number, low=1, whole=True)
    if args.device:
        from softgym_envs.envs.device_speed import report

        report(args.stage, args.ids, args.rows, args.device, args.out)
        return
    unit, repeats, rates = "control steps/s", max(2, args.steps // 40), list[Rate]()
    for found, task in [(s, t) for s in ([system(args.system)] if args.system else systems().values()) for t in s.tasks]:
        (ours := single(task.id, NATIVE, args.steps))()  # once, to compile
        for ground_truth in found.installed[1:]:
            (peer := single(task.id, ground_truth, args.steps))()
            what, sides = f"{task.id}, one robot, beside {ground_truth}", ((args.steps, ours), (args.steps, peer))
            rates.append(compare(what, unit, *sides, rounds=args.rounds, clock=time.process_time))
        for n in args.rows:
            (many := batched(task.id, n, repeats))()
            rates.append(alone(f"{task.id}, {n} rows, {os.cpu_count()} cores", unit, (n * repeats, many), rounds=args.rounds))
        print(table(rates[-1:]).splitlines()[-1], flush=True)
    print(table(rates, "ground truth"))
    if args.out:
        write_json(args.out, {"machine": machine("numpy", "gymnasium"), "rows": [asdict(rate) for rate in rates]})
