"""A million control steps of random actions over all environments: nothing breaks, nothing grows.

    python scripts/soak.py --steps 1000000
    python scripts/soak.py --steps 1000000 --room vine        (random clutter; a simulation that breaks down is wrong here)

Every round makes each environment of a fixed list anew (one row and many, both ways of resetting, noise, delay, kicks, drawn
constants, rough ground), runs its share of the steps and lets it go. Checked at every step: observations are finite and inside
their space, rewards and states are finite; at every round: memory of the process. Writes a JSON file; exit code 1 if anything
was wrong. A simulation that breaks down is contained (`sim_failed`) and only counted, but for cases that say it never does.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import tyro
from numpy.typing import NDArray

from softgym_envs.core.files import git_commit, write_atomically

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Args:
    """How long to run."""

    steps: int = 1_000_000
    """Control steps, rows of batches counted one by one."""
    rounds: int = 20
    """How often every environment is made anew."""
    seed: int = 0
    """Of actions and environments."""
    growth: float = 24.0
    """Memory may grow by so much after the first quarter of the rounds [MiB]."""
    room: Literal["all", "tensegrity", "rigid", "vine"] = "all"
    """Run the environments of one room alone; its figures are entered into the file under "rooms"."""
    out: Path = Path("results/soak.json")
    """Where the figures go."""


@dataclass
class Case:
    """One environment, how it is driven, and what came of it."""

    env_id: str
    num_envs: int
    actions: str
    """"uniform" (new ones every step), "held" (every motor at -1 or +1, for 20 steps), "pulled" (all at +1, then all at -1)."""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    may_fail: bool = True
    """Whether a simulation that breaks down is allowed."""
    steps: int = 0
    episodes: int = 0
    sim_failed: int = 0
    not_finite: int = 0
    """Steps of rows whose observation, reward or state held NaN or infinity."""
    out_of_space: int = 0
    """Control steps after which the observations were not in their space."""


NOISY = {"sensor_noise": 0.05, "action_delay": 2, "disturbance": 0.1}
DRAWN = {
    "randomize": {
        "rod_mass": (8.0, 15.0),
        "cable_stiffness": (5e3, 1.2e4),
        "cable_damping": (300.0, 1100.0),
        "friction": (0.1, 1.5),
        "restitution": (-0.5, 0.3),
        "motor_speed": (0.5, 3.0),
    }
}
SHORT = {"max_episode_steps": 20}
ROLL, CRAWL, WAYPOINT, TERRAIN = (f"softgym_envs:Tensegrity{name}-v0" for name in ("Roll", "Crawl", "Waypoint", "Terrain"))


BLOCK = "softgym_envs:SlidingBlock-v0"
BLOCKS = {"friction": (0.0, 1.5), "mass": (0.2, 5.0), "inertia": (1e-3, 0.05), "gravity": (1.0, 20.0)}


GROW, NAVIGATE, SQUEEZE, AT_WALL = (f"softgym_envs:Vine{name}-v0" for name in ("Grow", "Navigate", "Squeeze", "Wall"))
VINES = {
    "randomize": {
        "bending_stiffness": (0.003, 0.1),
        "bending_damping": (2e-5, 1e-3),
        "friction": (0.0, 1.0),
        "pressure": (3e3, 5e4),
        "steering_gain": (1e-6, 8e-6),
    }
}


def cases(room: str) -> list[Case]:
    """Every id of a room (or "all"), every setting, mild and extreme actions."""
    rooms = {"tensegrity": tensegrity_cases, "rigid": rigid_cases, "vine": vine_cases}
    return [case for name, listed in rooms.items() if room in (name, "all") for case in listed()]


def vine_cases() -> list[Case]:
    """Random clutter at every level, gaps, walls; none of them may break down."""
    return [
        Case(NAVIGATE, 64, "uniform", {"level": 1.0}, False),
        Case(NAVIGATE, 64, "held", {"level": 3.0, "autoreset_mode": "same_step"}, False),
        Case(NAVIGATE, 64, "held", {**NOISY, **VINES, "level": 2.0}, False),
        Case(NAVIGATE, 16, "pulled", {"clutter": "paper", "obs_mode": "state"}, False),
        Case(NAVIGATE, 1, "uniform", {"level": 3.0}, False),
        Case(SQUEEZE, 64, "held", {**VINES, "level": 3.0}, False),
        Case(AT_WALL, 64, "uniform", {**NOISY, "obs_mode": "state"}, False),
        Case(GROW, 64, "held", {**VINES, "control_period": 0.05}, False),
    ]


def tensegrity_cases() -> list[Case]:
    """SUPERball and prism."""
    return [
        Case(ROLL, 1, "uniform"),
        Case(ROLL, 64, "held", {**NOISY, **DRAWN, **SHORT, "target_speed": (0.5, 1.5), "heading": None}),
        Case(ROLL, 16, "pulled", {"control_period": 0.25, "simulator_options": {"contact": "paper"}}),
        Case(ROLL, 7, "held", {"obs_mode": "state", "autoreset_mode": "same_step", "action_delay": 1, **SHORT}),
        Case(ROLL, 8, "held", {"randomize": {"cable_damping": (1e3, 1e4)}, **SHORT}),  # breaks down, and must be contained
        Case(CRAWL, 1, "held"),
        Case(CRAWL, 64, "uniform", {**NOISY, **DRAWN, **SHORT}),
        Case(CRAWL, 16, "pulled", {"gravity": 9.81, "actuated": tuple(range(9)), "control_period": 0.02}),
        Case(WAYPOINT, 1, "pulled", {"control_period": 0.05}),
        Case(WAYPOINT, 64, "uniform", {**DRAWN, **SHORT, "num_waypoints": 5, "leg": (0.5, 1.0)}),
        Case(TERRAIN, 1, "uniform", {"level": 3.0}),
        Case(TERRAIN, 64, "held", {**NOISY, "level": 2.0, "randomize": {"terrain_scale": (0.0, 3.0)}}),
        Case(TERRAIN, 16, "held", {"ground": "steps", "level": 3.0, "autoreset_mode": "same_step", **SHORT}),
        Case(TERRAIN, 16, "uniform", {"ground": "slope", "level": 3.0, "obs_mode": "state"}),
    ]


def rigid_cases() -> list[Case]:
    """The sliding block."""
    return [
        Case(BLOCK, 1, "uniform"),
        Case(BLOCK, 64, "held", {**NOISY, "randomize": BLOCKS, **SHORT}),
        Case(BLOCK, 16, "pulled", {"obs_mode": "state", "autoreset_mode": "same_step", "control_period": 0.02, **SHORT}),
        Case(BLOCK, 4, "uniform", {"backend": "mujoco", "randomize": {"friction": (0.05, 1.0)}, **SHORT}),
    ]


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


def run(case: Case, rows: int, seed: int) -> None:
    """Make the environment, run at least `rows` steps of rows, count, close."""
    keywords = dict(case.keywords)
    env = gym.make_vec(case.env_id, case.num_envs, vectorization_mode="vector_entry_point", **keywords)
    inner: Any = env.unwrapped
    env.reset(seed=seed)
    actions = actions_of(case.actions, np.random.default_rng(seed), (case.num_envs, inner.single_action_space.shape[0]))
    for _ in range(-(-rows // case.num_envs)):
        observation, reward, terminated, truncated, info = env.step(next(actions))
        parts = (observation, np.asarray(reward)[:, None], inner.state)
        case.not_finite += int(np.any([~np.isfinite(part).all(axis=1) for part in parts], axis=0).sum())
        case.out_of_space += not env.observation_space.contains(observation)
        case.sim_failed += int(info["sim_failed"].sum())
        case.episodes += int((terminated | truncated).sum())
        case.steps += case.num_envs
    env.close()


def resident_mib() -> float:
    """Memory of this process, now [MiB]; NaN where the system does not tell."""
    gc.collect()
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20 if statm.exists() else float("nan")


def soak(args: Args) -> dict[str, Any]:
    """All rounds; the figures."""
    listed, memory = cases(args.room), []
    share = -(-args.steps // (args.rounds * len(listed)))
    begin = time.perf_counter()
    for turn in range(args.rounds):
        for index, case in enumerate(listed):
            run(case, share, args.seed + 1000 * (turn * len(listed) + index))
        memory.append(round(resident_mib(), 1))
        done = sum(case.steps for case in listed)
        failed = sum(case.sim_failed for case in listed)
        rate = done / (time.perf_counter() - begin)
        print(f"round {turn + 1}/{args.rounds}: {done} steps, {rate:.0f} per s, {memory[-1]} MiB, {failed} failed", flush=True)
    settled = memory[len(memory) // 4]
    counted = ("steps", "episodes", "sim_failed", "not_finite", "out_of_space")
    totals = {name: sum(getattr(case, name) for case in listed) for name in counted}
    grown = max(memory) - settled
    broken = sum(case.sim_failed for case in listed if not case.may_fail)
    wrong = totals["not_finite"] + totals["out_of_space"] + broken > 0 or grown > args.growth
    return {
        "commit": git_commit(),
        "verdict": "something is wrong" if wrong else "nothing broke, nothing grew",
        **totals,
        "seconds": round(time.perf_counter() - begin, 1),
        "steps_per_second": round(totals["steps"] / (time.perf_counter() - begin), 1),
        "memory_mib": memory,
        "memory_grown_mib": round(grown, 1),
        "cases": [asdict(case) for case in listed],
    }


def merged(figures: dict[str, Any], args: Args) -> dict[str, Any]:
    """The file's new content: figures of all rooms at its top, those of single rooms under "rooms"."""
    before = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else {}
    rooms = before.get("rooms", {})
    if args.room != "all":
        return {**before, "rooms": {**rooms, args.room: figures}}
    return {**figures, "rooms": rooms} if rooms else figures


def main(args: Args) -> int:
    """Run, print, save; 1 if anything was wrong."""
    figures = soak(args)
    write_atomically(args.out, json.dumps(merged(figures, args), indent=1).encode())
    for case in figures["cases"]:
        print("  {env_id} x{num_envs} {actions}: {steps} steps, {episodes} episodes, {sim_failed} failed".format(**case))
    wrong = f"{figures['not_finite']} not finite, {figures['out_of_space']} out of space"
    print(f"{figures['verdict']}: {figures['steps']} steps, {wrong}, memory +{figures['memory_grown_mib']} MiB")
    print(f"written to {args.out}")
    return int(figures["verdict"] == "something is wrong")


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args)))
