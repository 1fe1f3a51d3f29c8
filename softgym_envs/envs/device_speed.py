"""Speed and agreement of environments on a device, stage by stage: what `softgym-envs speed --device` prints.

Legend: B rows, S starts per row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import warp as wp

from ..core.files import write_json
from ..engines.timing import machine
from ..engines.warp import buffers
from .device_env import DeviceVectorEnv

Row = dict[str, Any]

BLOCKS = (32, 64, 128, 256)
"""Sizes of a block on CUDA that are compared."""
SECONDS = 10.0
"""Time of one measurement [s], at most; an episode at its limit is enough."""
STARTS = 8
"""S where starts are used again."""
MOMENTS = (1.0, 3.0)
"""Times after which states are compared [s]."""


def make(env_id: str, rows: int, device: str, **keywords: Any) -> DeviceVectorEnv:
    """The environment, after its first reset."""
    made = gym.make_vec(f"softgym_envs:{env_id}", rows, output="torch", device=device, autoreset_mode="same_step", **keywords)
    made.reset(seed=0)
    envs: Any = made.unwrapped
    return envs  # type: ignore[no-any-return]


def random_actions(envs: DeviceVectorEnv, count: int) -> Iterator[torch.Tensor]:
    """Actions in [-1, 1] on the device."""
    torch.manual_seed(0)
    shape = envs.action_space.shape or ()
    return (2.0 * torch.rand(shape, device=envs.device) - 1.0 for _ in range(count))


def wait(envs: DeviceVectorEnv) -> None:
    """Wait for the device."""
    if envs.device.type == "cuda":
        torch.cuda.synchronize(envs.device)


def episodes(env_id: str, rows: int, device: str) -> Iterator[Row]:
    """Control steps per second of whole episodes with resets, in both precisions; new starts, and starts used again."""
    for dtype in ("float64", "float32"):
        for starts in (None, STARTS):
            envs = make(env_id, rows, device, dtype=dtype, starts=starts)
            for action in random_actions(envs, 3):
                envs.step(action)
            wait(envs)
            begun, count, ended = time.perf_counter(), 0, 0
            for action in random_actions(envs, envs.host.max_episode_steps or 100):
                _, _, terminated, truncated, _ = envs.step(action)
                count, ended = count + 1, ended + int((terminated | truncated).sum())
                if time.perf_counter() - begun > SECONDS:
                    break
            wait(envs)
            rate = rows * count / (time.perf_counter() - begun)
            found = {"dtype": dtype, "starts": "new" if starts is None else f"{starts}, again", "episodes": ended}
            yield {**found, "control steps/s": round(rate), "physics steps/s": round(rate * envs.host.episodes.substeps)}


def kernels(env_id: str, rows: int, device: str) -> Iterator[Row]:
    """Physics alone, by events on CUDA: steps per second for every size of a block, and what the rest of a step takes."""
    usual = buffers.BLOCK
    try:
        for dtype in ("float64", "float32"):
            for block in BLOCKS if device != "cpu" else (1,):
                buffers.BLOCK = block
                envs = make(env_id, rows, device, dtype=dtype, starts=1)
                for action in random_actions(envs, 3):
                    envs.step(action)
                whole = milliseconds(envs, envs.advance)
                physics = milliseconds(envs, envs.physics)
                rate = rows * envs.host.episodes.substeps / physics * 1e3
                times = {"control step [ms]": round(whole, 3), "physics [ms]": round(physics, 3)}
                yield {"dtype": dtype, "block": block, **times, "physics steps/s": round(rate)}
    finally:
        buffers.BLOCK = usual


def milliseconds(envs: DeviceVectorEnv, work: Callable[[], None], repeats: int = 5) -> float:
    """Median time of a launch [ms], without the host on CUDA."""
    found = []
    for _ in range(repeats):
        if envs.device.type == "cpu":
            begun = time.perf_counter()
            work()
            found.append(1e3 * (time.perf_counter() - begun))
            continue
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        ends[0].record()
        work()
        ends[1].record()
        wait(envs)
        found.append(ends[0].elapsed_time(ends[1]))
    return float(np.median(found))


def agreement(env_id: str, rows: int, device: str) -> Iterator[Row]:
    """Largest and median difference of observations from those of the CPU in float64, after some seconds of random actions.

    The last line is the CPU's own difference where the state was moved by 1e-7 at first: how far apart near states go anyway.
    """
    kinds = [
        (f"{device}, float64", device, "float64"),
        (f"{device}, float32", device, "float32"),
        ("moved by 1e-7", "cpu", "float64"),
    ]
    exact = make(env_id, rows, "cpu", max_episode_steps=10_000)
    others = [make(env_id, rows, where, dtype=dtype, max_episode_steps=10_000) for _, where, dtype in kinds]
    others[-1].state.add_(1e-7)
    period = exact.host.episodes.settings.control_period
    marks = {round(moment / period): moment for moment in MOMENTS}
    for count, action in enumerate(random_actions(exact, max(marks)), 1):
        expected = exact.step(action)[0]
        apart = [(envs.step(action.to(envs.device))[0].cpu() - expected).abs().amax(dim=1) for envs in others]
        for (words, *_), found in zip(kinds, apart, strict=True) if count in marks else ():
            yield {
                "compared": words, "after [s]": marks[count],
                "median": f"{float(found.median()):.1e}", "largest": f"{float(found.max()):.1e}",
            }  # fmt: skip


STAGES: dict[str, Callable[[str, int, str], Iterator[Row]]] = {
    "episodes": episodes,
    "kernels": kernels,
    "agreement": agreement,
}
"""Name -> (id, rows, device) -> lines of its table."""


def measure(stage: str, ids: Sequence[str], rows: Sequence[int], device: str) -> Iterator[Row]:
    """The lines of a stage's table for all ids and numbers of rows."""
    for env_id in ids:
        for count in rows:
            for line in STAGES[stage](env_id, count, device):
                yield {"id": env_id, "rows": count, **line}


def report(stage: str, ids: Sequence[str], rows: Sequence[int], device: str, out: Path | None = None) -> None:
    """Print a stage's table as Markdown, line by line, and write it as JSON, too."""
    name, lines = str(wp.get_device(device).name), list[Row]()
    for line in measure(stage, ids, rows, device):
        if not lines:
            print(f"{stage} on {name}\n\n| {' | '.join(line)} |\n|{'---|' * len(line)}")
        print(f"| {' | '.join(map(str, line.values()))} |", flush=True)
        lines.append(line)
        if out is not None:
            write_json(out, {"machine": machine("numpy", "warp-lang", "torch"), "device": name, stage: lines})
