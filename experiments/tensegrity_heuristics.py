"""Factors of the heuristics that roll the SUPERball and crawl with the prism, by CMA-ES in our engine.

    python experiments/tensegrity_heuristics.py roll --again  # from the factors of the code, 2 minutes of a processor
    python experiments/tensegrity_heuristics.py crawl --scratch  # from zero
    python experiments/tensegrity_heuristics.py crawl  # continues from the results, if they are there

Every candidate moves from the same random poses; every row has parameters of its own, drawn narrowly. Some rows have the
contact mode "patch" with our engine's values for soft contacts, the rest "stick" and the default parameters. A row's merit is
the speed along the command, at most the case's cap, less half of that across. No ground truth is used. Writes
results/<robot>_<id>_heuristic/numbers.json, the mean of the search over its last generations. The factors of rolling in the
code started from a wider search's, with zero for the last four.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
import tyro
from numpy.typing import NDArray

from softgym_envs.core.files import provenance, read_json, write_json
from softgym_envs.systems.tensegrity.controllers import FACTORS, rolling
from softgym_envs.systems.tensegrity.crawling import FACTORS as CRAWL_FACTORS
from softgym_envs.systems.tensegrity.crawling import crawling
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
LAST = 6
"""Generations that are averaged at the end."""


class Case(NamedTuple):
    """A heuristic."""

    id: str
    factors: dict[str, float]
    """Those of the code."""
    act: Callable[[Any, Any, Array], Array]
    """Actions of an environment after an observation, for factors (B, 1, K)."""
    cap: float
    """[m/s] Faster is not better: the heuristic should work in all simulators."""
    soft_rows: int
    """Episodes of every candidate with the contact mode "patch"."""
    hard_rows: int
    """The same with "stick"."""
    steps: int
    """Control steps."""
    candidates: int
    """Candidates per generation."""
    weight: float
    """Weight of the sum of squared factors."""
    out: Path


CASES = {
    "roll": Case(
        "TensegrityRoll-v0", FACTORS, lambda env, _, own: rolling(env.simulator.model, env.state, np.array([1.0, 0.0]), own),
        0.8, 6, 3, 36, 12, 0.0, Path("results/superball_roll_heuristic/numbers.json"),
    ),
    "crawl": Case(
        "TensegrityCrawl-v0", CRAWL_FACTORS, lambda env, seen, own: crawling(env.simulator.model, seen, own),
        0.22, 6, 5, 80, 20, 1e-4, Path("results/prism_crawl_heuristic/numbers.json"),
    ),
}  # fmt: skip


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

    case: Annotated[Literal["roll", "crawl"], tyro.conf.Positional]
    """The heuristic."""
    generations: int = 24
    """Generations of CMA-ES; crawling took 100."""
    step: float = 0.4
    """Initial standard deviation of a factor."""
    seed: int = 0
    """Seed of CMA-ES and of the episodes."""
    again: bool = False
    """Start from the factors of the code."""
    scratch: bool = False
    """Start from zero."""


def batches_of(case: Case) -> list[Any]:
    """Batches of all candidates' episodes, one per contact mode."""
    made = []
    for contact, rows, drawn in (("patch", case.soft_rows, Soft()), ("stick", case.hard_rows, {**BODY, **GROUND})):
        chosen: dict[str, Any] = {"options": {"contact": contact}, "randomize": drawn}
        made.append(gym.make_vec(f"softgym_envs:{case.id}", num_envs=case.candidates * rows, **chosen))
    return made


def merits(case: Case, envs: Any, factors: Array, seed: int) -> Array:
    """Merit of every episode, (candidates, rows): 1 is best, the cap reached straight."""
    count, rows = len(factors), envs.num_envs // len(factors)
    observation, _ = envs.reset(seed=[seed + row for _ in range(count) for row in range(rows)])
    inner, own = envs.unwrapped, np.repeat(factors, rows, axis=0)[:, None]  # (B, 1, factors)
    model = inner.simulator.model
    first = model.center_of_mass(inner.state)
    for _ in range(case.steps):
        observation = envs.step(case.act(inner, observation, own))[0]
    way = (model.center_of_mass(inner.state) - first) / (case.steps * inner.task.control_period)
    found = (np.clip(way[:, 0], -case.cap, case.cap) - 0.5 * np.abs(way[:, 1])) / case.cap
    return np.where(np.isfinite(found), found, -1.0).reshape(count, rows)


def first_factors(case: Case, args: Args) -> Array:
    """Initial factors of the search."""
    if args.scratch:
        return np.zeros(len(case.factors))
    if case.out.is_file() and not args.again:
        return np.array([read_json(case.out)["factors"][name] for name in case.factors])
    return np.array(list(case.factors.values()))


def main(args: Args) -> int:
    """Search, write after every generation."""
    import cma

    np.seterr(all="ignore")
    case = CASES[args.case]
    options = {"popsize": case.candidates, "seed": args.seed + 1, "verbose": -9}
    search = cma.CMAEvolutionStrategy(first_factors(case, args), args.step, options)
    batches, trace, means = batches_of(case), [], []
    for generation in range(args.generations):
        began, asked = time.process_time(), np.array(search.ask())
        seed = 40_000_000 + 1000 * (10_000 * args.seed + generation)
        found = np.concatenate([merits(case, envs, asked, seed) for envs in batches], axis=1)
        search.tell(asked, case.weight * (asked**2).sum(axis=1) - found.mean(axis=1))
        trace.append(round(float(found.mean()), 4))
        print(f"{generation:3d} mean {found.mean():.3f} best {found.mean(axis=1).max():.3f} step {search.sigma:.3f}"
              f" {time.process_time() - began:.0f} s", flush=True)  # fmt: skip
        means.append(np.array(search.mean))
        mean = np.mean(means[-LAST:], axis=0)
        factors = {name: round(float(value), 2) for name, value in zip(case.factors, mean, strict=True)}
        write_json(case.out, {"factors": factors, "merit": trace, **provenance()})
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
