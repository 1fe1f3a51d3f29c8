"""Factors of the prism's crawling heuristic (`softgym_envs.systems.tensegrity.crawling`), by CMA-ES in our engine.

    python experiments/prism_crawl_heuristic.py --again  # from the factors of the code
    python experiments/prism_crawl_heuristic.py --scratch  # from zero
    python experiments/prism_crawl_heuristic.py  # continues from --out, if that file is there

Every candidate crawls from the same random poses; every row has parameters of its own, drawn narrowly. Six of eleven rows have
the contact mode "patch" with our engine's values for soft contacts, the rest "stick" and the default parameters. A row's
merit is the speed along the command, at most CAP, less half of that across. No ground truth is used. Writes
results/prism_crawl_heuristic/numbers.json, the mean of the search over its last generations.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tyro
from numpy.typing import NDArray

from softgym_envs.core.files import provenance, read_json, write_json
from softgym_envs.systems.tensegrity.crawling import FACTORS, TERMS, crawling
from softgym_envs.systems.tensegrity.mujoco import MujocoParameters, native_constants

Array = NDArray[np.float64]

BODY = {
    "rod_mass": (9.5, 10.5),
    "cable_stiffness": (9.5e3, 1.05e4),
    "cable_damping": (950.0, 1050.0),
    "motor_speed": (0.95, 1.05),
}
GROUND = {"friction": (0.7, 0.9)}
"""Constant -> range of its draws."""
SOFT = {"contact_timeconst": (0.08, 0.12), "contact_dampratio": (0.9, 1.1), "friction": (0.9, 1.1), "pivot": (0.7, 1.4)}
"""Ranges of soft contacts' settings, converted to our engine's parameters (`native_constants`); drawn by their logarithms."""
FIXED = ("gravity", "terrain_scale")
"""Parameters that the task sets."""
CAP = 0.22
"""[m/s] Faster is not better: crawling should work in all worlds."""
LAST = 6
"""Generations that are averaged at the end."""


@dataclass(frozen=True)
class Soft:
    """Parameters of rows with the contact mode "patch"."""

    def sample(self, rng: np.random.Generator, nominal: Any) -> dict[str, float]:
        """See `ParameterDistribution`."""
        drawn = {name: float(np.exp(rng.uniform(*np.log(ends)))) for name, ends in {**BODY, **SOFT}.items()}
        pivot = drawn.pop("pivot")
        found = native_constants(MujocoParameters(**drawn, torsional_friction=pivot, rolling_friction=pivot))
        return {name: float(getattr(found, name)) for name in found.names() if name not in FIXED}


@dataclass(frozen=True)
class Args:
    """Search for the factors."""

    generations: int = 100
    """Generations of CMA-ES."""
    candidates: int = 20
    """Candidates per generation."""
    soft_rows: int = 6
    """Episodes of every candidate with the contact mode "patch"."""
    hard_rows: int = 5
    """Episodes of every candidate with the contact mode "stick"."""
    steps: int = 80
    """Control steps of 0.1 s."""
    step: float = 0.4
    """Initial standard deviation of a factor."""
    seed: int = 0
    """Seed of CMA-ES and of the episodes."""
    again: bool = False
    """Start from the factors of the code."""
    scratch: bool = False
    """Start from zero."""
    out: Path = Path("results/prism_crawl_heuristic/numbers.json")


def worlds(args: Args) -> list[Any]:
    """Batches of all candidates' episodes, one per contact mode."""
    made = []
    for contact, rows, drawn in (("patch", args.soft_rows, Soft()), ("stick", args.hard_rows, {**BODY, **GROUND})):
        chosen: dict[str, Any] = {"options": {"contact": contact}, "randomize": drawn}
        made.append(gym.make_vec("softgym_envs:TensegrityCrawl-v0", num_envs=args.candidates * rows, **chosen))
    return made


def merits(envs: Any, factors: Array, steps: int, seed: int) -> Array:
    """Merit of every episode, (candidates, rows): 1.1 is best, CAP reached straight."""
    count, rows = len(factors), envs.num_envs // len(factors)
    observation, _ = envs.reset(seed=[seed + row for _ in range(count) for row in range(rows)])
    world, own = envs.unwrapped, np.repeat(factors, rows, axis=0)[:, None]  # (B, 1, factors)
    model = world.simulator.model
    first = model.center_of_mass(world.state)
    for _ in range(steps):
        observation = envs.step(crawling(model, observation, own))[0]
    way = (model.center_of_mass(world.state) - first) / (steps * world.task.control_period)
    found = (np.clip(way[:, 0], -CAP, CAP) - 0.5 * np.abs(way[:, 1])) / 0.2
    return np.where(np.isfinite(found), found, -1.0).reshape(count, rows)


def first_factors(args: Args) -> Array:
    """Initial factors of the search."""
    if args.scratch:
        return np.zeros(len(TERMS))
    if args.out.is_file() and not args.again:
        return np.array([read_json(args.out)["factors"][name] for name in TERMS])
    return np.array([FACTORS[name] for name in TERMS])


def main(args: Args) -> int:
    """Search, write after every generation."""
    import cma

    np.seterr(all="ignore")
    options = {"popsize": args.candidates, "seed": args.seed + 1, "verbose": -9}
    search = cma.CMAEvolutionStrategy(first_factors(args), args.step, options)
    batches, trace, means = worlds(args), [], []
    for generation in range(args.generations):
        began, asked = time.process_time(), np.array(search.ask())
        seed = 50_000_000 + 1000 * (10_000 * args.seed + generation)
        found = np.concatenate([merits(envs, asked, args.steps, seed) for envs in batches], axis=1)
        search.tell(asked, 1e-4 * (asked**2).sum(axis=1) - found.mean(axis=1))
        trace.append(round(float(found.mean()), 4))
        print(f"{generation:3d} mean {found.mean():.3f} best {found.mean(axis=1).max():.3f} step {search.sigma:.3f}"
              f" {time.process_time() - began:.0f} s", flush=True)  # fmt: skip
        means.append(np.array(search.mean))
        mean = np.mean(means[-LAST:], axis=0)
        factors = {name: round(float(value), 2) for name, value in zip(TERMS, mean, strict=True)}
        write_json(args.out, {"factors": factors, "merit": trace, **provenance()})
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
