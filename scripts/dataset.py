"""Write a Minari dataset of an id, and the same episodes as recordings for `sysid.load`.

    softgym-envs dataset SlidingBlock-v0 --kind expert --episodes 100

Datasets go into Minari's folder (MINARI_DATASETS_PATH, else ~/.minari/datasets). In Python: `agents.dataset`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

import agents


@dataclass(frozen=True)
class Args:
    """Write a dataset of an id."""

    id: Annotated[str, tyro.conf.Positional]
    """Environment."""
    kind: Literal["expert", "medium", "random"] = "expert"
    """Who acts: the policy of the package, the same with half of its actions drawn at random, or random actions."""
    episodes: int = 20
    """Number of episodes."""
    seed: int = 0
    """Seed of the first episode."""


def main(args: Args) -> None:
    """Write, and say where, and how good the episodes are."""
    found = agents.dataset(args.id, args.kind, episodes=args.episodes, seed=args.seed)
    episodes = list(found.iterate_episodes())
    success = np.mean([episode.infos["is_success"][-1] for episode in episodes])
    returns = np.mean([episode.rewards.sum() for episode in episodes])
    print(f"{len(episodes)} episodes, {found.total_steps} steps: success {success:.2f}, return {returns:.3f}")
    folder = Path(found.spec.data_path).parent
    print(f"{folder}\n{folder / 'recordings.h5'}")
