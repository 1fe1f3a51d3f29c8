"""Write the policies of a folder as the ones that come with the package: agents/policies/<name>.npz.

    python experiments/policies/ship.py  # all; after every training, or a test fails
    python experiments/policies/ship.py VineGrow-v0 UpperBodyReach-v0+muscles

The .zip holds actor and critic for stable-baselines3; the .npz holds the actor, which NumPy alone plays, and its contract.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
import tyro

from agents.learning.contract import PolicyContract
from agents.learning.policy import load_policy
from agents.policies import save_network
from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.files import read_json


@dataclass(frozen=True)
class Args:
    """Options."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Ids, or id+option; none: all."""
    source: Path = Path("runs/policies/done")
    """Folder of the .zip and .json files."""
    out: Path = Path("agents/policies")
    """Folder of the .npz files."""


def main(args: Args) -> int:
    """Write the files; 0 if all went well, 2 for bad input."""
    try:
        for name in args.names or sorted(path.stem for path in args.source.glob("*.zip")):
            path = args.source / f"{name}.zip"
            document = read_json(path.with_suffix(".json"))
            trained: dict[str, Any] = {entry: document[entry] for entry in ("commit", "versions", "date") if entry in document}
            network = load_policy(path)
            env = gym.make(f"softgym_envs:{name.partition('+')[0]}", **network.keywords)
            contract = PolicyContract.of(env, network.keywords)
            contract = replace(contract, action_latency=latencies(document, args.source))
            written = save_network(replace(network, contract=contract), args.out / f"{name}.npz", trained)
            print(f"{written}  {written.stat().st_size / 1e3:.0f} kB")
    except SoftgymError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def latencies(document: dict[str, Any], source: Path) -> tuple[float, float]:
    """Shortest and longest latency of actions in a policy's training [s]."""
    if "carried" in document:
        return latencies(read_json(source / f"{document['carried']}.json"), source)
    worlds, name = (document["environment"], *document.get("variants", ())), "action_latency"
    drawn = [one[name] for one in worlds if name in one]
    return float(min(map(np.min, drawn))), float(max(map(np.max, drawn)))


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
