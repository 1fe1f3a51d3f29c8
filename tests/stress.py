"""A million control steps of random actions over all environments: nothing breaks, nothing grows.

    python tests/stress.py --steps 1000000
    python tests/stress.py --steps 1000000 --system SYSTEM        (only one system)

Every round makes each environment of a fixed list anew (one row and many, both ways of resetting, noise, delay, kicks, drawn
parameters, rough ground), runs whole episodes of all rows until its share of the steps is done, and closes it. Checked at
every step: observations are finite and inside their space, rewards and states are finite; at every round: the process's
memory. Writes a JSON file, anew after every round, so that a kill loses one round at most; exit code 1 on any fault. A
simulation that breaks down is contained (`sim_failed`) and only counted, except for cases that declare it impossible.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tyro
from numpy.typing import NDArray

from softgym_envs.core.files import git_commit, write_json
from softgym_envs.systems import system, systems

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Args:
    """Options of the run."""

    steps: int = 1_000_000
    """Control steps, rows of batches counted one by one."""
    rounds: int = 20
    """Number of times that every environment is made."""
    seed: int = 0
    """Seed of actions and environments."""
    growth: float = 24.0
    """Largest growth of memory after the first quarter of the rounds [MiB]."""
    system: str = ""
    """Run only the environments of one system."""
    out: Path = Path("runs/stress.json")
    """File of the figures."""


@dataclass(frozen=True)
class Case:
    """An environment and its actions."""

    env_id: str
    num_envs: int
    actions: str
    """"uniform" (new ones every step), "held" (every entry at -1 or +1, for 20 steps), "pulled" (all at +1, then all at -1)."""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    may_fail: bool = True
    """Whether a simulation may fail."""


@dataclass
class Tally:
    """Result of one case."""

    case: Case
    steps: int = 0
    episodes: int = 0
    sim_failed: int = 0
    not_finite: int = 0
    """Steps of rows whose observation, reward or state held NaN or infinity."""
    out_of_space: int = 0
    """Control steps after which the observations were not in their space."""


NOISY = {"sensor_noise": 0.05, "action_latency": (0.0, 0.2), "observation_latency": 0.03, "disturbance": 0.1}
SAME = "same_step"
SHORT = {"max_episode_steps": 20}
BLOCKS = {"friction": (0.0, 1.5), "mass": (0.2, 5.0), "inertia": (1e-3, 0.05), "gravity": (1.0, 20.0)}
LOOPS = {"randomize": {"theta_stiffness": (1.0, 8.0), "psi_stiffness": (0.3, 3.0), "loop_scale": (0.8, 1.2)}}
ROBOTS = {
    "randomize": {
        "rod_mass": (8.0, 15.0), "cable_stiffness": (5e3, 1.2e4), "cable_damping": (300.0, 1100.0), "friction": (0.1, 1.5),
        "restitution": (-0.5, 0.3), "motor_speed": (0.5, 3.0),
    }
}  # fmt: skip
VINES = {
    "randomize": {
        "bending_stiffness": (0.003, 0.1), "bending_damping": (2e-5, 1e-3), "friction": (0.0, 1.0), "pressure": (3e3, 5e4),
        "steering_gain": (1e-6, 8e-6),
    }
}  # fmt: skip
CASES = {
    "block": (
        Case("SlidingBlock-v0", 1, "uniform"),
        Case("SlidingBlock-v0", 64, "held", {**NOISY, "randomize": BLOCKS, **SHORT}),
        Case(
            "SlidingBlock-v0",
            16,
            "pulled",
            {"obs_mode": "state", "autoreset_mode": SAME, "control_period": 0.02, **SHORT},
        ),
        Case("SlidingBlock-v0", 4, "uniform", {"backend": "mujoco", "randomize": {"friction": (0.05, 1.0)}, **SHORT}),
    ),
    "loop": (  # soft loops under jumps of all torques may be unstable at steps of 10 ms
        Case("LoopReach-v0", 16, "uniform", {}, False),
        Case("LoopReach-v0", 16, "uniform", {"backend": "mujoco", "goal": "shape", "obs_mode": "state"}, False),
        Case("LoopReach-v0", 16, "held", {**NOISY, "disturbance": 0.05, **LOOPS}),
        Case("LoopBend-v0", 16, "uniform", {}, False),
        Case("LoopBend-v0", 1, "pulled", {"backend": "mujoco", **LOOPS}),
        Case("LoopIdentify-v0", 16, "uniform", {}, False),
        Case("LoopIdentify-v0", 16, "held", {"backend": "mujoco"}),
        Case("LoopPeg-v0", 16, "uniform", {"dt": 0.005}, False),
        Case("LoopPeg-v0", 16, "held", {"backend": "mujoco"}),
        *(Case(f"Loop{name}-v0", 1, "uniform", {"backend": "rod"}, False) for name in ("Reach", "Bend", "Identify", "Peg")),
    ),
    "tensegrity": (
        Case("TensegrityRoll-v0", 1, "uniform"),
        Case("TensegrityRoll-v0", 64, "held", {**NOISY, **ROBOTS, **SHORT, "target_speed": (0.5, 1.5), "heading": None}),
        Case("TensegrityRoll-v0", 16, "pulled", {"control_period": 0.25, "options": {"contact": "paper"}}),
        Case("TensegrityRoll-v0", 7, "held", {"obs_mode": "state", "autoreset_mode": SAME, "action_latency": 0.1, **SHORT}),
        Case("TensegrityRoll-v0", 8, "held", {"randomize": {"cable_damping": (1e3, 1e4)}, **SHORT}),  # must be contained
        Case("TensegrityCrawl-v0", 1, "held"),
        Case("TensegrityCrawl-v0", 64, "uniform", {**NOISY, **ROBOTS, **SHORT}),
        Case("TensegrityCrawl-v0", 16, "pulled", {"gravity": 9.81, "actuated": tuple(range(9)), "control_period": 0.02}),
        Case("TensegrityWaypoint-v0", 1, "pulled", {"control_period": 0.05}),
        Case("TensegrityWaypoint-v0", 64, "uniform", {**ROBOTS, **SHORT, "num_waypoints": 5, "leg": (0.5, 1.0)}),
        Case("TensegrityTerrain-v0", 1, "uniform", {"level": 3.0}),
        Case("TensegrityTerrain-v0", 64, "held", {**NOISY, "level": 2.0, "randomize": {"terrain_scale": (0.0, 3.0)}}),
        Case("TensegrityTerrain-v0", 16, "held", {"ground": "steps", "level": 3.0, "autoreset_mode": SAME, **SHORT}),
        Case("TensegrityTerrain-v0", 16, "uniform", {"ground": "slope", "level": 3.0, "obs_mode": "state"}),
    ),
    "vine": (  # random clutter at every level, gaps, walls; none of them may break down
        Case("VineNavigate-v0", 64, "uniform", {"level": 1.0}, False),
        Case("VineNavigate-v0", 64, "held", {"level": 3.0, "autoreset_mode": SAME}, False),
        Case("VineNavigate-v0", 64, "held", {**NOISY, **VINES, "level": 2.0}, False),
        Case("VineNavigate-v0", 16, "pulled", {"clutter": "paper", "obs_mode": "state"}, False),
        Case("VineNavigate-v0", 1, "uniform", {"level": 3.0}, False),
        Case("VineSqueeze-v0", 64, "held", {**VINES, "level": 3.0}, False),
        Case("VineWall-v0", 64, "uniform", {**NOISY, "obs_mode": "state"}, False),
        Case("VineGrow-v0", 64, "held", {**VINES, "control_period": 0.05}, False),
    ),
}
"""Cases of a system; of other systems each id, on one row and on many, in every backend."""


def cases(name: str) -> list[Case]:
    """Cases of a system, or of all systems for ""."""
    found: list[Case] = []
    for chosen in [system(name)] if name else systems().values():
        found += CASES.get(chosen.name) or [
            Case(task.id, rows, actions, {"backend": backend})
            for task in chosen.tasks
            for backend in chosen.installed
            for rows, actions in ((1, "uniform"), (16, "held"))
        ]
    return found


def actions_of(kind: str, rng: np.random.Generator, shape: tuple[int, ...]) -> Iterator[Array]:
    """Endless actions of one kind; see `Case.actions`."""
    step = 0
    held = np.ones(shape)
    while True:
        if kind == "uniform":
            held = rng.uniform(-1, 1, shape)
        elif kind == "held" and step % 20 == 0:
            held = rng.choice([-1.0, 1.0], shape)
        elif kind == "pulled" and step % 50 == 0:
            held = np.full(shape, 1.0 - 2.0 * (step // 50 % 2))
        yield held
        step += 1


def run(tally: Tally, rows: int, seed: int) -> None:
    """Make the environment, run at least `rows` steps of rows and one whole episode of every row, count, close."""
    case = tally.case
    name = f"softgym_envs:{case.env_id}"
    env = gym.make_vec(name, case.num_envs, vectorization_mode="vector_entry_point", **case.keywords)
    inner: Any = env.unwrapped
    env.reset(seed=seed)
    actions = actions_of(case.actions, np.random.default_rng(seed), (case.num_envs, inner.single_action_space.shape[0]))
    for _ in range(max(-(-rows // case.num_envs), (env.spec and env.spec.max_episode_steps) or 0)):
        observation, reward, terminated, truncated, info = env.step(next(actions))
        parts = (observation, np.asarray(reward)[:, None], inner.state)
        tally.not_finite += int(np.any([~np.isfinite(part).all(axis=1) for part in parts], axis=0).sum())
        tally.out_of_space += not env.observation_space.contains(observation)
        tally.sim_failed += int(info["sim_failed"].sum())
        tally.episodes += int((terminated | truncated).sum())
        tally.steps += case.num_envs
    env.close()


def resident_mib() -> float:
    """Memory of this process, now [MiB]; NaN if the system does not provide it."""
    gc.collect()
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20 if statm.exists() else float("nan")


def stress(args: Args) -> Iterator[dict[str, Any]]:
    """Yield the figures so far, after every round."""
    listed, memory = [Tally(case) for case in cases(args.system)], []
    share = -(-args.steps // (args.rounds * len(listed)))
    begin, commit = time.perf_counter(), git_commit()
    for turn in range(args.rounds):
        for index, tally in enumerate(listed):
            if tally.steps <= turn * share:  # else long episodes of many rows have had their share
                run(tally, share, args.seed + 1000 * (turn * len(listed) + index))
        memory.append(round(resident_mib(), 1))
        figures = figures_of(listed, memory, time.perf_counter() - begin, args)
        print("round {rounds}: {steps} steps, {steps_per_second} per s, {sim_failed} failed".format(**figures), flush=True)
        yield {"commit": commit, **figures}


def figures_of(listed: list[Tally], memory: list[float], seconds: float, args: Args) -> dict[str, Any]:
    """Figures of the finished rounds, with their memory [MiB]."""
    settled = memory[len(memory) // 4]
    counted = ("steps", "episodes", "sim_failed", "not_finite", "out_of_space")
    totals = {name: sum(getattr(tally, name) for tally in listed) for name in counted}
    grown = max(memory) - settled
    broken = sum(tally.sim_failed for tally in listed if not tally.case.may_fail)
    whole = all(tally.episodes >= tally.case.num_envs for tally in listed)
    wrong = totals["not_finite"] + totals["out_of_space"] + broken > 0 or grown > args.growth or not whole
    return {
        "passed": not wrong,
        **totals,
        "rounds": len(memory),
        "seconds": round(seconds, 1),
        "steps_per_second": round(totals["steps"] / seconds, 1),
        "memory_mib": list(memory),
        "memory_grown_mib": round(grown, 1),
        "cases": [{**found.pop("case"), **found} for found in map(asdict, listed)],
    }


def main(args: Args) -> int:
    """Run, print, save; 1 if anything was wrong."""
    for figures in stress(args):
        write_json(args.out, figures)
    for case in figures["cases"]:
        print("  {env_id} x{num_envs} {actions}: {steps} steps, {episodes} episodes, {sim_failed} failed".format(**case))
    wrong = f"{figures['not_finite']} not finite, {figures['out_of_space']} out of space"
    word = "nothing broke, nothing grew" if figures["passed"] else "something is wrong"
    print(f"{word}: {figures['steps']} steps, {wrong}, memory +{figures['memory_grown_mib']} MiB; written to {args.out}")
    return int(not figures["passed"])


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args)))
