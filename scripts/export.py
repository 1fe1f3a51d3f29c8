"""Write a policy as ONNX, with its contract, and a program beside it that runs it with onnxruntime and numpy alone.

    softgym-envs export runs/mine/policy.zip --out robot/policy.onnx
    softgym-envs export pretrained VineGrow-v0

The contract names observations, units, limits, period and delay. In Python: `agents.export`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

import agents


@dataclass(frozen=True)
class Args:
    """Write a policy as ONNX."""

    policy: Annotated[Path, tyro.conf.Positional]
    """policy.zip of PPO, A2C or SAC with an MLP (needs torch), a .npz, or "pretrained": the one that comes with the package."""
    id: Annotated[str, tyro.conf.Positional] = ""
    """Environment that it was trained in; none: as in the JSON file beside it."""
    out: Path = Path("policy.onnx")
    """The file; run_policy.py is written beside it."""


def main(args: Args) -> None:
    """Write, and say what comes next."""
    written = agents.export(args.policy, args.id, out=args.out)
    print(f"{written}\n{written.with_name('run_policy.py')}\nNext: docs/how-to/deploy.md")
