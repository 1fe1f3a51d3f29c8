"""Identify the flexible loop as a laboratory: noise, ground truths, links. The paper's own scale: reproductions/caldwell2014.

python experiments/loop_identify/loop_identify.py  # half an hour; writes results/loop_identify

`recordings` holds the documented command's results on noisy and biased recordings,
`finer` the number of links needed, `joints` the number of manipulations that identifies every joint's own stiffness. Every case
is written when it is done; finished ones are not run again (`--fresh`: all are).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import finer
import joints
import numpy as np
import recordings
import tyro
from report import draw, table

from softgym_envs.core.files import provenance, read_json, write_atomically, write_json
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.mujoco import MujocoLoop


@dataclass(frozen=True)
class Args:
    """Options of the study."""

    seeds: int = 50
    """Recordings of our engine, without dry friction, for the coverage of intervals."""
    own: int = 20
    """Recordings of our engine, with dry friction."""
    mujoco_models: int = 5
    """Recordings of the MuJoCo model, without and with dry friction."""
    rods: int = 3
    """Recordings of the elastic rod, whose fits take long: they do not converge."""
    joints: int = 2
    """Loops with springs of their own, of our engine and of the MuJoCo model; each is fitted to 1, 2 and 4 manipulations."""
    only: str = ""
    """Beginning of the names of cases to run; several processes may share the work."""
    fresh: bool = False
    """Forget the results of an earlier run."""
    out: Path = Path("results/loop_identify")


def cases(args: Args) -> dict[str, Callable[[], Any]]:
    """Name -> case, in this order."""
    found: dict[str, Callable[[], Any]] = {}
    for kind, ground_truth in (("smooth", LoopSimulator), ("smooth_mujoco", MujocoLoop)):
        count = args.seeds if kind == "smooth" else args.mujoco_models
        found |= {f"{kind} {seed}": partial(recordings.smooth, ground_truth(), seed) for seed in range(count)}
    found |= {f"own {seed}": partial(recordings.own, seed) for seed in range(args.own)}
    found |= {f"mujoco_model {seed}": partial(recordings.mujoco_model, seed) for seed in range(args.mujoco_models)}
    found |= {f"rod {seed}": partial(recordings.rod, seed) for seed in range(args.rods)}
    found |= {f"twisting {seed}": partial(recordings.twisting, seed) for seed in range(args.rods)}
    for world, (size, counts) in product(("fine", "rod"), finer.LINKS.items()):
        found |= {f"links {world}, {size}, {links}": partial(finer.answer, world, size, links) for links in counts}
    for seed, world, count in product(range(args.joints), joints.WORLDS, joints.COUNTS):
        found[f"joints {world} {seed} {count}"] = partial(joints.answer, world, seed, count)
    return found


def main(args: Args) -> None:
    """Run what is missing, and write the report."""
    path, wanted = args.out / "numbers.json", cases(args)
    if args.fresh:
        path.unlink(missing_ok=True)
    for name, work in wanted.items():
        if name.startswith(args.only) and name not in earlier(path):
            print(name, flush=True)
            new = plain(work())
            done = {**earlier(path), name: new}
            write_json(path, {"provenance": provenance(), "cases": {key: done[key] for key in wanted if key in done}})
    done = earlier(path)
    write_atomically(args.out / "table.md", table(done, [name for name in wanted if name not in done]).encode())
    draw(done, args.out / "picture.png")


def earlier(path: Path) -> dict[str, Any]:
    """Finished cases; others may run at the same time."""
    return dict(read_json(path).get("cases", {})) if path.exists() else {}


def plain(value: Any) -> Any:
    """Convert to JSON: arrays as lists, numbers with six digits."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(entry) for entry in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.6g}")
    return int(value) if isinstance(value, np.integer) else value


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
