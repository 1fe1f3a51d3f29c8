"""Compile all kernels of systems, so that no environment and no fit waits for it later.

    softgym-envs warmup              # every system: some minutes, once
    softgym-envs warmup vine block

Later runs use the cache.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from typing import Annotated

import gymnasium as gym
import numpy as np
import tyro

from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.systems import system, systems
from sysid import identify, record

PLAYED, FITTED = 8.0, 40.0
"""[s] Time of an environment and of a fit with an empty cache, for the first estimate."""
NOISE = 1e-3
"""Noise of a recording over the range of its columns: some methods refuse exact ones."""


@dataclass(frozen=True)
class Args:
    """Compile all kernels of systems."""

    systems: Annotated[tuple[str, ...], tyro.conf.Positional] = ()  # Names of systems; none: all.


def play(id: str) -> None:
    """Make an environment, reset, step and render."""
    env = gym.make(f"softgym_envs:{id}", render_mode="rgb_array")
    env.reset(seed=0)
    env.step(env.action_space.sample())
    env.render()
    env.close()


def fit(name: str) -> None:
    """Record a system's experiments in the native engine, and fit all stages by one iteration."""
    rng = np.random.default_rng(0)
    spread = [(t, NOISE * np.ptp(t.values, axis=0) * rng.standard_normal(t.values.shape)) for t in record(name)]
    data = TrajectorySet(tuple(replace(t, values=t.values + noise) for t, noise in spread))
    with tempfile.TemporaryDirectory() as folder:
        identify(name, data, max_iterations=1, out=folder, diagnose="none")


def warm(jobs: Sequence[tuple[str, float, Callable[[], None]]]) -> None:
    """Do (what, seconds, work) in turn; the line says which of how many, and how long all will take."""
    begun, done = time.perf_counter(), 0.0
    for k, (what, seconds, work) in enumerate(jobs):
        rate = (time.perf_counter() - begun) / done if done else 1.0
        left = rate * sum(each[1] for each in jobs[k:])
        print(f"\r{f'compiling {what}: {k + 1} of {len(jobs)}, about {left:.0f} s':60s}", end="", flush=True)
        with redirect_stderr(StringIO()):  # messages on single kernels
            work()
        done += seconds
    print(f"\r{f'{len(jobs)} of {len(jobs)} compiled in {time.perf_counter() - begun:.0f} s':60s}")


def main(args: Args) -> int:
    """Compile."""
    chosen = [system(name) for name in args.systems or systems()]
    jobs: list[tuple[str, float, Callable[[], None]]] = []
    for each in chosen:
        jobs += [(task.id, PLAYED, partial(play, task.id)) for task in each.tasks]
        jobs += [(f"fits of {each.name}", FITTED, partial(fit, each.name))] if each.procedure else []
    warm(jobs)
    return 0
