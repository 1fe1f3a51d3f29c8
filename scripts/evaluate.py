"""Evaluate a policy on our engine and a truth: the same episodes, success with its 95 % interval, returns.

    softgym-envs evaluate pretrained VineGrow-v0                    # the policy that comes with the package
    softgym-envs evaluate pretrained VineNavigate-v0 --keyword level=3
    softgym-envs evaluate runs/mine/policy.zip VineGrow-v0 --out runs/evaluation.json
    softgym-envs evaluate pretrained SlidingBlock-v0 --backend my_block.toml

Episode i starts from seed + i in both backends. The policy is used without noise.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before PyTorch, see train.py

import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
import tyro

from agents.learning.evaluation import Evaluation, evaluate
from agents.learning.policy import load_policy
from agents.study.statistics import Interval, share
from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.files import git_commit, write_json
from softgym_envs.core.room import NATIVE, task_keywords
from softgym_envs.rooms import room_of_task


@dataclass(frozen=True)
class Args:
    """Evaluate a policy."""

    policy: Annotated[Path, tyro.conf.Positional]
    """policy.zip of PPO, A2C or SAC with an MLP (needs torch), a .npz, or "pretrained": the one that comes with the package."""
    id: Annotated[str, tyro.conf.Positional]
    """Environment that it was trained in, e.g. VineGrow-v0."""
    backend: str = ""
    """The truth: one of the room's, "package.module:function" or a .toml file; none: the room's first."""
    model: str | None = None
    """The robot, a name or TOML file; none: the id's own."""
    keyword: tuple[str, ...] = ()
    """Keywords of the task, key=value: level=3."""
    params: Path | None = None
    """TOML file of a fit: constants of the native backend."""
    sensor_noise: float = 0.0
    """Noise of observations, over the entries' scales."""
    action_delay: int = 0
    """Delay of actions [control steps]."""
    action_memory: int = 0
    """Number of its last actions that the policy observes; 0: as in the JSON file beside it, if there is one."""
    episodes: int = 100
    """Episodes per backend."""
    seed: int = 20_000_003
    """Seed of the first episode; no training starts from it."""
    out: Path | None = None
    """JSON file for the numbers."""


def described(found: Evaluation, success: Interval) -> dict[str, Any]:
    """Numbers of one backend."""
    return {
        "episodes": len(found.success),
        "success": success.value,
        "success_95": [success.low, success.high],
        "return_mean": float(found.returns.mean()),
        "return_std": float(found.returns.std()),
        "failed_simulations": int(found.failed.sum()),
        "seeds_without_success": np.flatnonzero(found.success == 0).tolist(),
    }


def main(args: Args) -> int:
    """Evaluate, print, write; 0 if all went well, 2 for bad input, 130 if interrupted."""
    name = args.id if ":" in args.id else f"softgym_envs:{args.id}"
    try:
        policy = load_policy(args.policy, name)
        shared: dict[str, Any] = {"sensor_noise": args.sensor_noise, "action_delay": args.action_delay}
        shared |= policy.keywords
        shared |= {key: given for key in ("model", "action_memory") if (given := getattr(args, key))}
        shared |= task_keywords(args.keyword, [field.name for field in fields(args)])
        native = {} if args.params is None else {"params": args.params}
        report: dict[str, Any] = {"command": {k: str(v) for k, v in asdict(args).items()}, "commit": git_commit()}
        truth = args.backend or next(iter(room_of_task(name).truths), NATIVE)
        for backend, keywords in {truth: {}, NATIVE: native}.items():
            both = {"backend": backend, **shared, **keywords}
            found = evaluate(policy, name, episodes=args.episodes, seed=args.seed, keywords=both)
            success = share(int(found.success.sum()), args.episodes)
            report[backend] = described(found, success)
            print(f"{backend:8s} success {success}, return {found.returns.mean():.3f} ± {found.returns.std():.3f}")
        if args.out is not None:
            write_json(args.out, report)
    except (SoftgymError, gym.error.Error) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; nothing is written", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
