"""A million control steps of random actions over all environments: nothing breaks, nothing grows.

    softgym-envs soak --steps 1000000
    softgym-envs soak --steps 1000000 --room ROOM        (only one room)

Every round makes each environment of a fixed list anew (one row and many, both ways of resetting, noise, delay, kicks, drawn
constants, rough ground), runs whole episodes of all rows until its share of the steps is done, and closes it. Checked at
every step: observations are finite and inside their space, rewards and states are finite; at every round: the process's
memory. Writes a JSON file, anew after every round, so that a kill loses one round at most; exit code 1 on any fault. A
simulation that breaks down is contained (`sim_failed`) and only counted, except for cases that declare it impossible.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tyro
from numpy.typing import NDArray

from softgym_envs.core.errors import FileFormatError, SoftgymError
from softgym_envs.core.files import git_commit, read_json, write_atomically
from softgym_envs.core.room import NATIVE, Room, SoakCase
from softgym_envs.core.simulator import check_number
from softgym_envs.core.task import load
from softgym_envs.rooms import room, rooms

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
    room: str = ""
    """Run only the environments of one room; its figures are entered into the file under "rooms"."""
    out: Path = Path("runs/soak.json")
    """File of the figures."""


@dataclass
class Tally:
    """Result of one case."""

    case: SoakCase
    steps: int = 0
    episodes: int = 0
    sim_failed: int = 0
    not_finite: int = 0
    """Steps of rows whose observation, reward or state held NaN or infinity."""
    out_of_space: int = 0
    """Control steps after which the observations were not in their space."""


def cases(name: str) -> list[SoakCase]:
    """Cases of a room, or of all rooms for ""."""
    return [case for chosen in ([room(name)] if name else rooms().values()) for case in declared(chosen)]


def declared(chosen: Room) -> tuple[SoakCase, ...]:
    """Cases that a room declares; else each of its ids, on one row and on many, in either backend."""
    if chosen.soak:
        found: tuple[SoakCase, ...] = load(chosen.soak)
        return found
    backends = (NATIVE, *chosen.truths)
    return tuple(
        SoakCase(task.id, rows, actions, {"backend": backend})
        for task in chosen.tasks
        for backend in backends
        for rows, actions in ((1, "uniform"), (16, "held"))
    )


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
    env = gym.make_vec(case.env_id, case.num_envs, vectorization_mode="vector_entry_point", **case.keywords)
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


def soak(args: Args) -> Iterator[dict[str, Any]]:
    """Yield the figures so far, after every round."""
    check_number("--seed", args.seed, low=0, whole=True)
    for name in ("steps", "rounds"):
        check_number(f"--{name}", getattr(args, name), low=1, whole=True)
    listed, memory = [Tally(case) for case in cases(args.room)], []
    share = -(-args.steps // (args.rounds * len(listed)))
    begin, commit = time.perf_counter(), git_commit()
    for turn in range(args.rounds):
        for index, tally in enumerate(listed):
            if tally.steps > turn * share:  # long episodes of many rows have had their share
                continue
            run(tally, share, args.seed + 1000 * (turn * len(listed) + index))
        memory.append(round(resident_mib(), 1))
        done = sum(tally.steps for tally in listed)
        failed = sum(tally.sim_failed for tally in listed)
        rate = done / (time.perf_counter() - begin)
        print(f"round {turn + 1}/{args.rounds}: {done} steps, {rate:.0f} per s, {memory[-1]} MiB, {failed} failed", flush=True)
        yield {"commit": commit, **figures_of(listed, memory, time.perf_counter() - begin, args)}


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
        "verdict": "something is wrong" if wrong else "nothing broke, nothing grew",
        **totals,
        "rounds": len(memory),
        "seconds": round(seconds, 1),
        "steps_per_second": round(totals["steps"] / seconds, 1),
        "memory_mib": list(memory),
        "memory_grown_mib": round(grown, 1),
        "cases": [{**found.pop("case"), **found} for found in map(asdict, listed)],
    }


def earlier(path: Path) -> dict[str, Any]:
    """Former content of the file.

    Raises:
        FileFormatError: It is no file of figures.
    """
    found = read_json(path) if path.exists() else {}
    if not isinstance(found, dict) or not isinstance(found.get("rooms", {}), dict):
        raise FileFormatError(f"{path} holds no figures of a soak; name another file")
    return found


def merged(figures: dict[str, Any], before: dict[str, Any], room: str) -> dict[str, Any]:
    """The file's new content: figures of all rooms at its top, those of single rooms under "rooms"."""
    rooms = before.get("rooms", {})
    if room:
        return {**before, "rooms": {**rooms, room: figures}}
    return {**figures, "rooms": rooms} if rooms else figures


def main(args: Args) -> int:
    """Run, print, save; 1 if anything was wrong, 2 for bad input, 130 if interrupted."""
    figures: dict[str, Any] = {}
    try:
        before = earlier(args.out)
        for figures in soak(args):
            write_atomically(args.out, json.dumps(merged(figures, before, args.room), indent=1).encode())
    except SoftgymError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            f"interrupted; {f'{args.out} has the rounds that were done' if figures else 'nothing is written'}", file=sys.stderr
        )
        return 130
    for case in figures["cases"]:
        print("  {env_id} x{num_envs} {actions}: {steps} steps, {episodes} episodes, {sim_failed} failed".format(**case))
    wrong = f"{figures['not_finite']} not finite, {figures['out_of_space']} out of space"
    print(f"{figures['verdict']}: {figures['steps']} steps, {wrong}, memory +{figures['memory_grown_mib']} MiB")
    print(f"written to {args.out}")
    return int(figures["verdict"] == "something is wrong")


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args)))
