"""Evaluate a policy or controller on the native engine and a ground truth: success with its 95 % interval, and returns.

    softgym-envs evaluate pretrained VineGrow-v0                    # the policy that comes with the package
    softgym-envs evaluate pretrained VineNavigate-v0 --keyword level=3
    softgym-envs evaluate runs/mine/policy.zip VineGrow-v0 --out runs/evaluation.json
    softgym-envs evaluate pretrained SlidingBlock-v0 --backend my_block.toml
    softgym-envs evaluate my_package:controller LoopReach-v0        # your own: (envs) -> (observations -> actions)

Episode i starts from seed + i in both backends. Policies act without exploration noise. In Python: `agents.evaluate`.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before PyTorch, see train.py

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import tyro

import agents
from agents.api import first_ground_truth
from softgym_envs.core.files import git_commit, write_json
from softgym_envs.core.system import NATIVE, task_keywords


@dataclass(frozen=True)
class Args:
    """Evaluate a policy."""

    policy: Annotated[str, tyro.conf.Positional]
    """policy.zip of PPO, A2C or SAC with an MLP (needs torch), a .npz, or "pretrained": the one that comes with the package.
    "package.module:function": a controller, which gets the vector environment and returns observations (B, no) -> actions."""
    id: Annotated[str, tyro.conf.Positional]
    """Environment that it was made for, e.g. VineGrow-v0."""
    backend: str = ""
    """The ground truth: one of the system's, "package.module:function" or a .toml file; none: the system's first."""
    model: str | None = None
    """The robot, a name or TOML file; none: the id's own."""
    keyword: tuple[str, ...] = ()
    """Keywords of the task, key=value: level=3."""
    params: Path | None = None
    """TOML file of a fit: parameters of the native backend."""
    sensor_noise: float = 0.0
    """Noise of observations, over the entries' scales."""
    action_latency: float | tuple[float, float] = 0.0
    """Delay of actions [s]; two numbers: drawn between them for every episode."""
    observation_latency: float | tuple[float, float] = 0.0
    """Delay of observations [s], likewise."""
    action_memory: int = 0
    """Number of its last actions that the policy observes; 0: as in the JSON file beside it, if there is one."""
    episodes: int = 100
    """Episodes per backend."""
    seed: int = 20_000_003
    """Seed of the first episode; no training starts from it."""
    out: Path | None = None
    """JSON file for the numbers."""


def main(args: Args) -> None:
    """Evaluate, print, write."""
    names = ("model", "sensor_noise", "action_latency", "observation_latency", "action_memory")
    given: dict[str, Any] = {name: value for name in names if (value := getattr(args, name))}
    given |= task_keywords(args.keyword, [entry.name for entry in fields(args)])
    given |= {"episodes": args.episodes, "seed": args.seed}
    report: dict[str, Any] = {"command": {k: str(v) for k, v in asdict(args).items()}, "commit": git_commit()}
    for backend, params in {args.backend or first_ground_truth(args.id): None, NATIVE: args.params}.items():
        found = agents.evaluate(args.policy, args.id, backend=backend, params=params, **given)
        report[backend] = found.table()
        print(f"{backend:8s} {found}")
    if args.out is not None:
        write_json(args.out, report)
