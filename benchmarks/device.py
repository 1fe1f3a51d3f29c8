"""Measure batches on a GPU and on the processor's cores, and their difference: the systems whose engine runs on CUDA.

python benchmarks/device.py                             # cpu and cuda; some minutes, kernels of Warp are compiled first
python benchmarks/device.py --rows 1024 8192 --out results/gpu_speed/numbers.json
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
import tyro
import warp as wp

import softgym_envs  # noqa: F401  (registers the ids)
from softgym_envs.core.files import write_json
from softgym_envs.engines.timing import machine
from softgym_envs.systems import system

ENGINES: dict[str, tuple[str, dict[str, Any], float]] = {
    "SUPERball, mode stick": ("tensegrity", {}, 1.0),
    "SUPERball, mode patch": ("tensegrity", {"contact": "patch"}, 1.0),
    "vine": ("vine", {}, 0.05),
}
"""Words -> system, options, largest random control."""


@dataclass(frozen=True)
class Args:
    """Options of the measurement."""

    device: str = "cuda"
    """Device to compare with "cpu"."""
    ids: tuple[str, ...] = ("TensegrityRoll-v0", "VineGrow-v0", "VineWall-v0")
    """Ids of systems whose engine has a device."""
    rows: tuple[int, ...] = (1024, 8192)
    """Rows per batch."""
    steps: int = 20
    """Timed control steps, after four untimed ones."""
    out: Path | None = None
    """JSON file for the figures, too."""


def apart(name: str, options: dict[str, Any], largest: float, device: str) -> float:
    """Largest difference of states after 64 rows of 30 random controls, 10 physics steps each."""
    ends = []
    for where in ("cpu", device):
        simulator = system(name).simulator(device=where, options=options)
        controls = np.random.default_rng(0).uniform(0.0, largest, (64, 30, simulator.nu))
        states, status = simulator.rollout(simulator.initial_state(64), controls, substeps=10)
        ends.append(np.where(status[:, None] == 0, states[:, -1], np.nan))
    return float(np.nanmax(np.abs(ends[0] - ends[1])))


def speed(task: str, rows: int, device: str, steps: int) -> float:
    """Control steps per second under random actions, resets included."""
    envs = gym.make_vec(task, num_envs=rows, vectorization_mode="vector_entry_point", device=device)
    envs.action_space.seed(0)
    envs.reset(seed=0)
    actions = [envs.action_space.sample() for _ in range(4)]
    for action in actions:
        envs.step(action)
    begin = perf_counter()
    for k in range(steps):
        envs.step(actions[k % 4])
    return rows * steps / (perf_counter() - begin)


def main(args: Args) -> None:
    """Measure and print."""
    found: dict[str, Any] = {"machine": machine("numpy", "numba"), "apart": {}, "steps per second": {}}
    for words, (name, options, largest) in ENGINES.items():
        found["apart"][words] = apart(name, options, largest, args.device)
        print(f"{words}: {found['apart'][words]:.1e} apart", flush=True)
    found["device"] = wp.get_device(args.device).name
    print(f"| id | rows | cpu | {found['device']} |\n|---|---:|---:|---:|")
    for task in args.ids:
        for rows in args.rows:
            both = [speed(task, rows, device, args.steps) for device in ("cpu", args.device)]
            found["steps per second"][f"{task}, {rows} rows"] = dict(zip(("cpu", args.device), both, strict=True))
            print(f"| {task} | {rows} | {both[0]:.0f} | {both[1]:.0f} |", flush=True)
            if args.out is not None:
                write_json(args.out, found)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
