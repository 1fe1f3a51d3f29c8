"""Train PPO or SAC on any id and backend, evaluate on the native engine and the ground truth, draw the learning curve.

    softgym-envs train TensegrityRoll-v0 --params runs/fit/fit.toml --steps 3000000
    softgym-envs train TensegrityRoll-v0 --params runs/fit/fit.toml --steps 6000000 --resume
    softgym-envs train VineNavigate-v0 --keyword level=3
    softgym-envs train VineGrow-v0 --learner rsl --device cuda --dtype float32

The folder (runs/train/<id>_<algorithm>_<backend>_<seed>) gets policy.zip, checkpoints, progress.csv, TensorBoard files
(`tensorboard --logdir runs/train`), curve.png and evaluation.json. It holds one training. Ctrl-C stops it and leaves a
checkpoint; `--resume` continues from the newest complete one, and refuses one of other settings. In Python: `agents.train`.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before PyTorch: its threads and the simulator's would compete for processors

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro

import agents
from softgym_envs.core.posterior import randomize_of
from softgym_envs.core.system import task_keywords


@dataclass(frozen=True)
class Args:
    """Train a policy."""

    id: Annotated[str, tyro.conf.Positional]
    """Environment, e.g. TensegrityRoll-v0."""
    steps: int | None = None
    """Control steps of all rows together, rounded up to whole updates; none: the id's setting, or 1000000."""
    algorithm: Literal["ppo", "sac"] = "ppo"
    """Learning algorithm."""
    learner: Literal["sb3", "rsl"] = "sb3"
    """Library: Stable-Baselines3, or rsl-rl-lib on tensors that stay on --device, for thousands of rows."""
    dtype: Literal["float64", "float32"] = "float64"
    """Precision of physics with --learner rsl, on tensegrity robots and vines."""
    backend: str = "native"
    """Simulator of the training: the native engine, a ground truth of the system, "package.module:function" or a .toml file."""
    model: str | None = None
    """The robot, a name or TOML file; none: the id's own."""
    keyword: tuple[str, ...] = ()
    """Keywords of the task, key=value: level=3."""
    params: Path | None = None
    """TOML file of a fit; none: the backend's defaults."""
    randomize: tuple[str, ...] = ()
    """Parameters drawn for every episode: posterior (of --params), or name=low,high, or name=x,low,high (factors)."""
    disturbance: float = 0.0
    """Random velocity disturbances while training [m/s]."""
    sensor_noise: float = 0.0
    """Noise of observations while training, over the entries' scales."""
    action_latency: float | tuple[float, float] = 0.0
    """Delay of actions while training [s]; two numbers: drawn between them for every episode."""
    observation_latency: float | tuple[float, float] = 0.0
    """Delay of observations while training [s], likewise."""
    action_memory: int = 0
    """Number of previous actions that are observed."""
    num_envs: int | None = None
    """Parallel environments; none: the id's setting, or 64 for PPO and 16 for SAC; 4096 with --learner rsl."""
    seed: int = 0
    """Seed of everything."""
    episodes: int = 50
    """Episodes of each evaluation; the same on all backends."""
    checkpoint_every: int = 100_000
    """Control steps between checkpoints."""
    resume: bool = False
    """Resume from the newest checkpoint of the folder."""
    device: str = "cpu"
    """PyTorch's device of the networks: cpu, cuda, cuda:1, ...; with --learner rsl of the environments, too."""
    out: Path | None = None
    """Folder; none: runs/train/<id>_<algorithm>_<backend>_<seed>."""


def main(args: Args) -> None:
    """Train."""
    given = vars(args) | {"randomize": randomize_of(args.randomize)}
    del given["id"], given["keyword"]
    for name in ("model", "randomize", "disturbance", "sensor_noise", "action_latency", "observation_latency", "action_memory"):
        if not given[name]:  # not given
            del given[name]
    if args.dtype == "float64":  # the default, which other environments do not know
        del given["dtype"]
    agents.train(args.id, **given, **task_keywords(args.keyword, [entry.name for entry in fields(args)]))
