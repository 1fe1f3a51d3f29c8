"""Record a robot's experiments in the native engine, on a ground truth such as MuJoCo, or in a simulator of your own.

    softgym-envs record tensegrity --backend mujoco --budget 10000 --out recordings.h5
    softgym-envs record block --experiments pulled --count 3 --parameters ground_truth.toml

writes one HDF5 file; every recording names its experiment, so that `identify` runs the system's procedure on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from softgym_envs.core.files import git_commit
from softgym_envs.core.procedure import EXPERIMENT
from softgym_envs.core.system import options_from_text
from softgym_envs.core.trajectory import check_ending
from sysid import record


@dataclass(frozen=True)
class Args:
    """Record a robot's experiments."""

    system: Annotated[str, tyro.conf.Positional]  # Robot: a system's name, or "package.module:SYSTEM" of your own.
    model: str | None = None  # Structure: a name of the system's, or a TOML file; none: the system's first.
    backend: str = "native"  # The simulator: native, a ground truth of the system, or "package.module:function" of your own.
    options: tuple[str, ...] = ()  # Options of the simulator, as contact=patch; none: those that `identify` uses.
    dt: float | None = None  # Physics step [s]; none: the simulator's own; with a camera a whole part of a frame.
    parameters: Path | None = None  # TOML file of the simulator's parameters; none: its defaults.
    experiments: tuple[str, ...] = ()  # Experiments; none: all of the system's procedure.
    count: int = 1  # Recordings of each experiment.
    steps: int | None = None  # Physics steps of a recording; none: as many as last as long as the procedure's.
    budget: int | None = None  # Physics steps of all recordings together.
    sensor: tuple[str, ...] = ()  # Camera instead of states: camera, lab or poor, and changes such as rate=120 noise=0.002.
    seed: int = 0  # Seed of poses, commands and noise.
    out: Path = Path("recordings.h5")  # HDF5 file.


def main(args: Args) -> None:
    """Record."""
    print(f"seed {args.seed}, commit {git_commit()}")
    check_ending(args.out)
    given = {name: value for name, value in vars(args).items() if name not in ("system", "options", "out")}
    found = record(args.system, options=options_from_text(args.options), **given)
    path = found.save(args.out)
    for each in found:
        size = f"{each.num_steps} rows of {len(each.names)} columns"
        print(f"  {each.metadata[EXPERIMENT]}: {each.times[-1] - each.times[0]:g} s, {size}")
    print(f"recordings: {path}")
