"""Committed policies of ArmReach and UpperBodyReach against optimal control of the same episodes: a lower bound of their cost.

python experiments/arm_reach_bound.py  # a minute or two per id; writes results/arm_reach_bound, continues where it stopped

A cost is the task's reward without its bonus, negated: the sum over control steps of the distance from the goal
and of effort. Policies drive our engine and the MuJoCo model from the same starts to the same goals, without noise and delay.
The bound is the least cost that optimal control finds over the same steps (all of the shortest of these episodes, or the first
`MOST` of the body), from the same start, by our engine's equations. Its end is free, which makes it a bound. Optimal
control of the elbow may change excitations at every physics step, which is more than a policy may; that of the body has steps
of 20 ms instead of our engine's 5 ms. It is a local optimum of IPOPT, started from a policy's motion.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tyro
from numpy.typing import NDArray

from agents.control.optimal import Manoeuvre, solve_form
from agents.learning.policy import load_policy
from softgym_envs.core.files import provenance, read_json, write_json
from softgym_envs.core.transcription import Symbols, casadi
from softgym_envs.data.page import BLUE, plain_axes
from softgym_envs.mechanics.symbolic import places
from softgym_envs.systems.arm.dynamics import ElbowSimulator
from softgym_envs.systems.arm.tasks import ArmReach
from softgym_envs.systems.upper_body.dynamics import BodySimulator
from softgym_envs.systems.upper_body.model import HAND, BodyModel
from softgym_envs.systems.upper_body.tasks import UpperBodyReach

Array = NDArray[np.float64]
COMMAND = "python experiments/arm_reach_bound.py"
POLICIES = {
    "ArmReach-v0": {"PPO": "experiments/policies/reach_ppo.npz", "taught": "agents/policies/ArmReach-v0.npz"},
    "UpperBodyReach-v0": {"taught": "agents/policies/UpperBodyReach-v0.npz"},
}
"""Id -> name -> file; optimal control starts from the first one's motion."""
WORLDS = ("native", "mujoco")
ROUND = {"ArmReach-v0": 1e-3, "UpperBodyReach-v0": 1e-2}
"""[rad], [m] Rounding of distances about zero, downwards: sqrt(d^2 + r^2) - r."""
MOST = {"ArmReach-v0": 100, "UpperBodyReach-v0": 30}
"""Most control steps that are compared; UpperBodyReach's episodes take 59 to 117."""
SOUGHT = {"ArmReach-v0": 8, "UpperBodyReach-v0": 5}
"""Most episodes whose bound is computed; one of the body takes up to half a minute of processor time."""
ITERATIONS = 200


@dataclass(frozen=True)
class Args:
    """Options of the study."""

    ids: tuple[str, ...] = ("ArmReach-v0", "UpperBodyReach-v0")
    episodes: int = 8
    seed: int = 40_000_001
    """Seed of the first episode; no training starts from it."""
    out: Path = Path("results/arm_reach_bound")
    """Folder."""


@dataclass(frozen=True, eq=False)
class Episode:
    """Episode of a policy."""

    states: Array
    """(T + 1, nx)"""
    controls: Array
    """(T, nu)"""
    goal: Array
    paid: Array
    """(T,) cost of every step."""
    success: bool


def episodes(task_id: str, file: str, backend: str, count: int, seed: int) -> list[Episode]:
    """Run `count` episodes of a policy."""
    policy = load_policy(Path(file))
    envs: Any = gym.make_vec(f"softgym_envs:{task_id}", num_envs=count, backend=backend, **policy.keywords)
    observation, _ = envs.reset(seed=seed)
    runs, task = envs.unwrapped.episodes, envs.unwrapped.episodes.task
    goals, states = runs.context[:, :3].copy(), [runs.state.copy()]
    controls, costs, alive, success = [], [], np.ones(count, dtype=bool), np.zeros(count, dtype=bool)
    lengths = np.zeros(count, dtype=int)
    for _ in range(envs.spec.max_episode_steps):
        action = policy(observation)
        controls.append(task.scale_action(np.asarray(action, dtype=np.float64)))
        observation, reward, terminated, truncated, info = envs.step(action)
        won = alive & np.asarray(info["is_success"])
        costs.append(task.bonus * won - reward)
        success |= won
        lengths += alive
        states.append(runs.state.copy())
        alive &= ~(terminated | truncated)
        if not alive.any():
            break
    envs.close()
    each = np.array(states), np.array(controls), np.array(costs)
    return [
        Episode(each[0][: n + 1, i], each[1][:n, i], goals[i], each[2][:n, i], bool(success[i])) for i, n in enumerate(lengths)
    ]


# --- optimal control --------------------------------------------------------------------------------------------------


def rounded(squared: Any, task_id: str) -> Any:
    """Rounded distance from its square, never more than the distance."""
    return casadi().sqrt(squared + ROUND[task_id] ** 2) - ROUND[task_id]


def elbow_bound(episode: Episode, steps: int) -> tuple[float, bool, int]:
    """Least cost of the given number of control steps, whether it was solved, iterations; physics steps of 5 ms."""
    simulator, ca = ElbowSimulator(), casadi()
    substeps, weight = round(ArmReach.control_period / simulator.dt), ArmReach.effort_weight / 2
    controls = np.repeat(episode.controls[:steps], substeps, axis=0)
    path = simulator.rollout(episode.states[None, 0], controls[None])[0][0]

    def cost(symbols: Symbols) -> Any:
        angles = symbols.states[0][0, substeps::substeps]
        away = ca.sum2(rounded((angles - episode.goal[0]) ** 2, "ArmReach-v0"))
        return away + weight / substeps * ca.sumsqr(symbols.controls[0])

    return least(simulator, path, controls, cost)


def body_bound(episode: Episode, steps: int) -> tuple[float, bool, int]:
    """Least cost of the upper body, as in `elbow_bound`, in control steps."""
    model, ca = BodyModel(), casadi()
    frame, (_, effort) = model.tree.frame(HAND), model.control_bounds
    weight = UpperBodyReach.effort_weight / model.n
    q = ca.SX.sym("q", model.n)
    hand = ca.Function("hand", [q], [(places(ca, model.tree, q)[frame.body] @ ca.vertcat(*frame.xyz, 1))[:3]])

    def cost(symbols: Symbols) -> Any:
        off = hand.map(steps)(symbols.states[0][: model.n, 1:]) - ca.repmat(ca.DM(episode.goal), 1, steps)
        used = symbols.controls[0] / ca.repmat(ca.DM(effort), 1, steps)
        return ca.sum2(rounded(ca.sum1(off**2), "UpperBodyReach-v0")) + weight * ca.sumsqr(used)

    simulator = BodySimulator(dt=UpperBodyReach.control_period)
    return least(simulator, episode.states[: steps + 1], episode.controls[:steps], cost)


def least(simulator: Any, path: Array, controls: Array, cost: Callable[[Symbols], Any]) -> tuple[float, bool, int]:
    """Least cost of a motion with the path's start and a free end."""
    free = np.full(path.shape[1], np.nan)
    manoeuvre = Manoeuvre(path[0], free, len(controls), simulator.control_bounds)
    parameter_values = simulator.default_parameters.to_matrix(1)[0]
    form = simulator.symbolic_step()
    found = solve_form(form, manoeuvre, simulator.dt, parameter_values, path, controls, iterations=ITERATIONS, cost=cost)
    return found.objective, found.solved, found.iterations


BOUNDS = {"ArmReach-v0": elbow_bound, "UpperBodyReach-v0": body_bound}


# --- what is reported -------------------------------------------------------------------------------------------------


def compared(task_id: str, args: Args, save: Callable[[dict[str, Any]], None], known: dict[str, Any]) -> dict[str, Any]:
    """Compute costs of all policies in both worlds, and bounds, episode by episode."""
    runs = {
        f"{name}, {world}": episodes(task_id, file, world, args.episodes, args.seed)
        for name, file in POLICIES[task_id].items()
        for world in WORLDS
    }
    first = next(iter(runs.values()))
    lengths = [min(MOST[task_id], *(len(each[i].paid) for each in runs.values())) for i in range(args.episodes)]
    found: dict[str, Any] = {
        "costs": {
            name: [float(one.paid[:n].sum()) for one, n in zip(each, lengths, strict=True)] for name, each in runs.items()
        },
        "success": {name: int(sum(one.success for one in each)) for name, each in runs.items()},
        "bounds": known.get("bounds", []),
    }
    for i in range(len(found["bounds"]), min(args.episodes, SOUGHT[task_id])):
        began = time.process_time()
        bound, solved, iterations = BOUNDS[task_id](first[i], lengths[i])
        line = {"steps": lengths[i], "cost": bound, "solved": solved, "iterations": iterations}
        found["bounds"].append({**line, "processor_seconds": round(time.process_time() - began, 1)})
        print(task_id, i, found["bounds"][-1], {name: round(cost[i], 2) for name, cost in found["costs"].items()}, flush=True)
        save(found)
    return found


def main(args: Args) -> None:
    """Writes numbers.json after every episode, and picture.png."""
    file = args.out / "numbers.json"
    about = {"command": COMMAND, "episodes": args.episodes, "seed": args.seed}
    known = read_json(file) if file.exists() else {}
    tasks = known["tasks"] if all(known.get(name) == value for name, value in about.items()) else {}
    args.out.mkdir(parents=True, exist_ok=True)
    for task_id in args.ids:

        def save(found: dict[str, Any], task_id: str = task_id) -> None:
            tasks[task_id] = found
            write_json(file, {**provenance(), **about, "tasks": tasks})

        save(compared(task_id, args, save, tasks.get(task_id, {})))
    draw(tasks, args.out / "picture.png")


def draw(tasks: dict[str, Any], path: Path) -> None:
    """Plot costs by episode, in the order of their bounds, for the episodes with a bound."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.8), layout="constrained")
    colors = {"PPO": "#b01820", "taught": BLUE}
    for axes, (task_id, found) in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks.items(), strict=True):
        bounds = np.array([one["cost"] if one["solved"] else np.nan for one in found["bounds"]])
        order, at = np.argsort(bounds), np.arange(len(bounds))
        axes.bar(at, bounds[order], 0.8, color="0.85", label="optimal control, our engine: the bound")
        for name, costs in found["costs"].items():
            costs = costs[: len(bounds)]
            who, _, world = name.partition(", ")
            marker, solved = ("o" if world == "native" else "s"), found["success"][name]
            filled = colors[who] if world == "native" else "none"
            where = "our engine" if world == "native" else "MuJoCo model"
            label = f"{who}, {where}: {solved} of {len(found['costs'][name])} reached"
            axes.plot(at, np.array(costs)[order], marker, ms=5, mfc=filled, mec=colors[who], label=label)
        axes.set_title(f"{task_id}: cost (distance + effort) of the same steps", fontsize=10)
        axes.set_xlabel("episodes, by their bound")
        axes.set_xticks(at)
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=8)
        plain_axes(axes)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(tyro.cli(Args))
