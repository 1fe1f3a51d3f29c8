"""Cards of all tasks: success and return of every controller on both worlds and at every level, and control steps per second.

    python experiments/task_cards.py  # every id; measured entries stay: continues where it stopped
    python experiments/task_cards.py --ids VineWall-v0 --again

Controllers are no action ("zero"), random actions ("random"), those that the system declares (`System.controllers`), sampling
MPC by the task's own reward ("mpc", which plans in our engine, with the driven world's parameters and kind of contact if the
system gives their values in our engine, and with the parameters that each episode draws; a line has its settings), and the
policies of the package, without and with sensor noise and delay. Episode i begins from the same seed for all of them.
Writes results/task_cards/numbers.json, line by line; `make docs` makes docs/reference/task_cards.md and the tables of
docs/reference/systems from it.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import inspect
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import tyro

from agents.control.task_mpc import TaskMpc
from agents.learning.evaluation import Controller, Evaluation, evaluate_controller, uniform, zero
from agents.learning.policy import load_policy
from agents.transfer_study.statistics import share
from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.files import provenance, read_json, write_json
from softgym_envs.core.system import NATIVE
from softgym_envs.core.task import load
from softgym_envs.systems import system_of_task, tasks

LEVELS = (1.0, 2.0, 3.0)
"""Levels of ids that have them; the ground truths play the first and the last one, MPC the first."""
NOISE, LATE = 0.02, 2
"""Further conditions under which policies are judged: `sensor_noise`, and control steps by which actions are late."""
BLIND = {"VineNavigate-v0": "VineGrow-v0", "VineSqueeze-v0": "VineGrow-v0", "VineWall-v0": "VineGrow-v0"}
"""Id -> id whose policy sees only the first entries of its observation, and no obstacles."""
OPTIONS: dict[str, dict[str, dict[str, Any]]] = {"UpperBodyReach-v0": {"muscles": {"muscles": True}}}
"""Id -> option -> keywords that choose it; lines say "option: controller", the policy is agents/policies/<id>+<option>.npz."""
UNPLANNED = ("LoopIdentify-v0",)
"""Ids for which no planner is affordable. That of TensegrityWaypoint and Terrain does not know the MuJoCo model's contacts."""
FIRST = ("zero", "random")
"""First controllers that users try: measured for every id before the rest."""
ROWS = 64
"""Rows of the batch whose speed is measured."""


@dataclass(frozen=True)
class Args:
    """Options of the measurement."""

    ids: tuple[str, ...] = ()
    """Ids; none: all."""
    backends: tuple[str, ...] = ()
    """Backends; none: our engine and every ground truth."""
    levels: tuple[float, ...] = ()
    """Levels; none: all that there are."""
    controllers: tuple[str, ...] = ()
    """Controllers; none: all, "zero" and "random" of every id before the others, and then speeds."""
    episodes: int = 100
    """Episodes per entry."""
    ground_truth_episodes: int = 50
    """Episodes per entry on worlds other than our engine."""
    mpc_episodes: int = 8
    """Episodes per entry of MPC."""
    seed: int = 30_000_001
    """Seed of the first episode; no training starts from it."""
    again: bool = False
    """Measure existing entries again."""
    out: Path = Path("results/task_cards")
    """Folder."""


class Entry(NamedTuple):
    """One line of a card."""

    backend: str
    controller: str
    level: float | None
    keywords: dict[str, Any]
    drive: Controller


def policy_file(task_id: str) -> Path | None:
    """The id's policy, if there is one."""
    path = Path(f"agents/policies/{task_id}.npz")
    return path if path.is_file() else None


def mpc(task_id: str) -> TaskMpc:
    """The id's planner."""
    return TaskMpc(**system_of_task(task_id).planning_of(task_id))


def planned(task_id: str, envs: Any) -> Callable[[Any], Any]:
    """The id's MPC: it plans in our engine, and knows the parameters of the world that it drives."""
    system, ground_truth = system_of_task(task_id), envs.simulator
    engine = system.simulator(ground_truth.model)
    scenario = load(system.study).get(task_id) if system.study else None
    if type(ground_truth) is type(engine) or scenario is None or scenario.best is None:
        return mpc(task_id).controller(envs, engine)
    known = system.simulator(ground_truth.model, options=scenario.options)
    return mpc(task_id).controller(envs, known, scenario.best(ground_truth.default_parameters))


def drivers(task_id: str) -> Iterator[tuple[str, dict[str, Any], Controller]]:
    """Names, keywords of the environment, and controllers."""
    yield "zero", {}, zero
    yield "random", {}, uniform
    for name, controller in system_of_task(task_id).controllers_of(task_id).items():
        yield name, {}, controller
    if task_id not in UNPLANNED:
        yield "mpc", {}, partial(planned, task_id)
    other = policy_file(BLIND.get(task_id, ""))
    if other is not None:
        blind = load_policy(other)
        size = blind.layers[0][0].shape[1]
        yield f"policy of {BLIND[task_id]}", {}, lambda envs: lambda observation: blind(observation[:, :size])
    late = LATE * system_of_task(task_id).task(task_id).control_period
    yield from learned(policy_file(task_id), late)
    for option, keywords in OPTIONS.get(task_id, {}).items():
        known = {"zero": zero, "random": uniform, **system_of_task(task_id).controllers_of(task_id)}
        for name, controller in known.items():
            yield f"{option}: {name}", keywords, controller
        for name, given, controller in learned(policy_file(f"{task_id}+{option}"), late):
            yield f"{option}: {name}", given, controller


def learned(file: Path | None, late: float) -> Iterator[tuple[str, dict[str, Any], Controller]]:
    """A policy, without noise and delay, and with both, `late` in s; nothing if there is none."""
    if file is not None:
        policy = load_policy(file)
        observed = dict(policy.keywords)
        yield "policy", observed, lambda envs: policy
        yield "policy, noise and delay", {"sensor_noise": NOISE, "action_latency": late, **observed}, lambda envs: policy


def entries(task_id: str, backends: tuple[str, ...]) -> Iterator[Entry]:
    """Every line of an id's card."""
    system = system_of_task(task_id)
    levels = LEVELS if "level" in inspect.signature(load(system.task(task_id).build)).parameters else (None,)
    for backend in backends or system.installed:
        for level in levels if backend == NATIVE else levels[::2]:
            for name, keywords, drive in drivers(task_id):
                if name == "mpc" and level != levels[0]:
                    continue
                given = {} if level is None else {"level": level}
                yield Entry(backend, name, level, {"backend": backend, **given, **keywords}, drive)


def timed(drive: Controller, spent: list[float]) -> Controller:
    """A controller that notes the processor time of every call of its policy, all rows together [s]."""

    def make(envs: Any) -> Callable[[Any], Any]:
        policy = drive(envs)

        def act(observation: Any) -> Any:
            began = time.process_time()
            action = policy(observation)
            spent.append(time.process_time() - began)
            return action

        return act

    return make


def described(found: Evaluation) -> dict[str, Any]:
    """Success with its Wilson interval, mean return with 1.96 standard errors."""
    success, count = share(int(found.success.sum()), len(found.success)), len(found.returns)
    half = 1.96 * float(found.returns.std(ddof=1)) / count**0.5
    mean = float(found.returns.mean())
    return {
        "episodes": count, "success": success.value, "success_95": [success.low, success.high],
        "return": mean, "return_95": [mean - half, mean + half], "failed": int(found.failed.sum()),
    }  # fmt: skip


def speed(task_id: str, backend: str) -> dict[str, float]:
    """Control steps per second of processor time under random actions, one row and ROWS rows."""
    found = {}
    for name, rows, steps in (("single", 1, 200), ("batch", ROWS, 30)):
        envs = gym.make_vec(f"softgym_envs:{task_id}", num_envs=rows, backend=backend)
        policy = uniform(envs)
        observation, _ = envs.reset(seed=0)
        observation = envs.step(policy(observation))[0]
        began = time.process_time()
        for _ in range(steps):
            observation = envs.step(policy(observation))[0]
        found[name] = round(rows * steps / (time.process_time() - began), 1)
        envs.close()
    return {**found, "rows": ROWS}


def measure(task_id: str, args: Args, wanted: Callable[[str], bool]) -> None:
    """Add the missing lines of the wanted controllers to the id's card, line by line."""
    for entry in entries(task_id, args.backends):
        key = {"backend": entry.backend, "controller": entry.controller, "level": entry.level}
        wrong = entry.level is not None and entry.level not in (args.levels or LEVELS)
        if wrong or not wanted(entry.controller) or (not args.again and _without(read_card(task_id, args), key)[1]):
            continue
        episodes, spent = args.episodes if entry.backend == NATIVE else args.ground_truth_episodes, list[float]()
        if entry.controller == "mpc":
            episodes = min(episodes, args.mpc_episodes)
        found = evaluate_controller(
            timed(entry.drive, spent), f"softgym_envs:{task_id}", episodes=episodes, seed=args.seed, keywords=entry.keywords
        )
        run = {**key, **described(found)}
        if entry.controller == "mpc":
            run |= {"settings": asdict(mpc(task_id)), "seconds_per_step": float(f"{np.mean(spent) / episodes:.2g}")}
        print(f"{task_id:24s} {entry.backend:8s} {entry.level or '':3} {entry.controller:26s} success {run['success']:.2f}"
              f"  return {run['return']:9.3f}", flush=True)  # fmt: skip
        card = read_card(task_id, args)  # again: another process may have written
        card |= {"runs": [*_without(card, key)[0], run], **provenance(machine=platform.processor() or platform.machine())}
        write_card(card, args)


def read_card(task_id: str, args: Args) -> dict[str, Any]:
    """Measurements of the card so far."""
    path = args.out / "numbers.json"
    return (read_json(path) if path.is_file() else {}).get(task_id, {"id": task_id, "runs": [], "speed": {}})


def write_card(card: dict[str, Any], args: Args) -> None:
    """Replace the card of its id, or add it."""
    path = args.out / "numbers.json"
    cards = read_json(path) if path.is_file() else {}
    write_json(path, dict(sorted({**cards, card["id"]: card}.items())))


def _without(card: dict[str, Any], key: dict[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    """Other lines of a card, and whether the one of that key exists."""
    kept = [run for run in card["runs"] if {name: run[name] for name in key} != key]
    return kept, len(kept) < len(card["runs"])


def measure_speed(task_id: str, args: Args) -> None:
    """Add the missing speeds to the id's card."""
    for backend in args.backends or system_of_task(task_id).installed:
        if backend not in read_card(task_id, args)["speed"] or args.again:
            found = speed(task_id, backend)
            card = read_card(task_id, args)
            card["speed"][backend] = found
            write_card(card, args)


def is_wanted(args: Args, first: bool, name: str) -> bool:
    """Whether the controller is among the wanted ones, and of the wave that is measured now."""
    return (name in FIRST) == first and name in (args.controllers or (name,))


def main(args: Args) -> int:
    """Measure, write; 0 if all went well, 2 for bad input."""
    np.seterr(all="ignore")
    try:
        ids = args.ids or tuple(task.id for task in tasks())
        for first in (True, False):
            for task_id in ids:
                measure(task_id, args, partial(is_wanted, args, first))
        for task_id in () if args.controllers else ids:
            measure_speed(task_id, args)
    except (SoftgymError, gym.error.Error) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
