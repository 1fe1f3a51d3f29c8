"""What are the loop's constants worth to a controller? Plans under many constants, run on truths that they never saw.

    python studies/loop_transfer/loop_transfer.py    # minutes; writes results/transfer_loop

Ways of 1.6 s are planned by iLQG with exact derivatives in our engine (steps of 10 ms) to goals of LoopReach-v0 (a point of the
loop, which nothing measures) and LoopBend-v0 (the hand), from rest. Constants: those before identification (the paper's start,
[5, 5]), drawn around the true ones (stiffnesses and dampings, log-uniform within a factor), identified from one recording of
the truth under another motion (20 s, the room's recipe), and the true ones (oracle; of the rod, those of the model that it was
made from). Every plan runs on the truth as it is, and with its own feedback from the truth's state. Distances are means over
the last 0.8 s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from agents import FeatureCost, ILQGOptions, Plan, plan_ilqg
from softgym_envs.core.files import provenance, write_atomically, write_json
from softgym_envs.core.recipe import Recipe
from softgym_envs.core.simulator import Array, Simulator
from softgym_envs.core.task import load
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.loop import ROOM
from softgym_envs.loop.dynamics import LoopSimulator
from softgym_envs.loop.model import LoopModel
from softgym_envs.loop.parameters import LoopParameters
from softgym_envs.loop.study import BEND, REACH, bend_goal, commanded, reach_goal
from sysid import run_recipe

PERIOD, HORIZON = 0.1, 16
"""Length of a control step [s], and their number."""
UNKNOWN = ("theta_stiffness", "psi_stiffness", "loop_damping", "arm_damping")
TASKS: dict[str, tuple[Any, Callable[[LoopModel, np.random.Generator], Array]]] = {
    "LoopReach-v0": (REACH, reach_goal),
    "LoopBend-v0": (BEND, bend_goal),
}
RECORDED = 20.0
"""[s]"""
OPTIONS = ILQGOptions(max_iterations=8, trust=0.3)


@dataclass(frozen=True)
class Args:
    """What to run."""

    truths: tuple[str, ...] = tuple(name for name in ("mujoco", "rod") if name in ROOM.truths)
    """Worlds that plans are run on."""
    goals: int = 3
    """Per task."""
    draws: int = 4
    """Per factor and goal."""
    factors: tuple[float, ...] = (1.2, 2.0)
    """Around the true constants."""
    out: Path = Path("results/transfer_loop")
    """Folder of the results."""


def identified(backend: str) -> LoopParameters:
    """Constants from one recording of a truth, by the room's recipe."""
    recipe: Recipe = load(ROOM.recipe)
    truth, rng = ROOM.simulator(backend=backend), np.random.default_rng(0)
    data = TrajectorySet((recipe.record_one("manipulation", truth, rng, steps=round(RECORDED / truth.dt)),))
    start = LoopParameters().replace(**recipe.guess)
    found = run_recipe(recipe, LoopSimulator(), data, start=start, stages=recipe.stages).parameters
    names = ("theta_stiffness", "psi_stiffness")
    print(backend, "identified:", {name: round(float(getattr(found, name)), 4) for name in names}, flush=True)
    return LoopParameters(**{name: float(getattr(found, name)) for name in UNKNOWN})


def drawn(rng: np.random.Generator, factor: float) -> LoopParameters:
    """True constants times random factors."""
    true = LoopParameters()
    return true.replace(**{name: getattr(true, name) * factor ** rng.uniform(-1.0, 1.0) for name in UNKNOWN})


def planned(objective: Any, goal: Array, constants: LoopParameters) -> Plan:
    """The way to a goal, as our engine believes it."""
    engine = LoopSimulator(commanded())
    cost = FeatureCost.of(objective.aimed(goal), engine, engine.model)
    controls = np.zeros((HORIZON, engine.nu))
    substeps = round(PERIOD / engine.dt)
    start = engine.initial_state()[0]
    return plan_ilqg(engine, cost, start, controls=controls, substeps=substeps, parameters=constants, options=OPTIONS)


def missed(plan: Plan, objective: Any, goal: Array, truth: Simulator, *, feedback: bool) -> float:
    """Distance from the goal on the truth, mean over the second half [m]; infinite where the simulation fails."""
    world: Any = truth
    x, seen, off = truth.initial_state(), 2 * world.model.n, []
    low, high = truth.control_bounds
    for t in range(HORIZON):
        u = plan.policy(x[0, :seen], t) if feedback else plan.controls[t]
        x, status = truth.step(x, np.clip(u, low, high)[None], substeps=round(PERIOD / truth.dt))
        if status[0]:
            return float("inf")
        off.append(np.linalg.norm(objective.features(world.model, x[0, :seen]) - goal))
    return float(np.mean(off[HORIZON // 2 :]))


def run(args: Args) -> list[dict[str, Any]]:
    """One record per task, truth, goal and way to constants."""
    fits = {backend: identified(backend) for backend in args.truths}
    truths = {backend: ROOM.simulator(commanded(), backend=backend) for backend in args.truths}
    guess, records = LoopParameters().replace(**load(ROOM.recipe).guess), list[dict[str, Any]]()
    for task, (objective, make_goal) in TASKS.items():
        for number in range(args.goals):
            goal, rng = make_goal(commanded(), np.random.default_rng(number)), np.random.default_rng([number, 1])
            ways = [("before, [5, 5]", guess), ("true constants", LoopParameters())]
            ways += [(f"drawn within {factor:g}", drawn(rng, factor)) for factor in args.factors for _ in range(args.draws)]
            ways += [(f"identified on {backend}", fit) for backend, fit in fits.items()]
            for name, constants in ways:
                plan = planned(objective, goal, constants)
                for backend, truth in truths.items():
                    if name.startswith("identified") and not name.endswith(backend):
                        continue
                    open_loop, closed = (missed(plan, objective, goal, truth, feedback=f) for f in (False, True))
                    entry = {"task": task, "truth": backend, "goal": number, "constants": name.partition(" on ")[0]}
                    records.append({**entry, "open": open_loop, "closed": closed})
            for backend, truth in truths.items():
                idle = replace(plan, controls=0.0 * plan.controls)
                still = missed(idle, objective, goal, truth, feedback=False)
                entry = {"task": task, "truth": backend, "goal": number, "constants": "no control"}
                records.append({**entry, "open": still, "closed": still})
            print(task, number, flush=True)
    return records


def table(records: list[dict[str, Any]]) -> str:
    """Medians and largest distances, as Markdown."""
    lines = ["| task | truth | constants | plan as it is [mm] | with feedback [mm] |", "|---|---|---|---:|---:|"]
    keys = dict.fromkeys((r["task"], r["truth"], r["constants"]) for r in records)
    for key in sorted(keys, key=lambda k: (k[0], k[1])):
        cells = []
        for how in ("open", "closed"):
            values = 1e3 * np.array([r[how] for r in records if (r["task"], r["truth"], r["constants"]) == key])
            cells.append(f"{np.median(values):.1f} (worst {values.max():.1f})")
        lines.append("| " + " | ".join((*key, *cells)) + " |")
    return "\n".join(lines) + "\n"


def main(args: Args) -> None:
    """Run, write, print."""
    records = run(args)
    args.out.mkdir(parents=True, exist_ok=True)
    write_json(args.out / "result.json", {"provenance": provenance(), "goals": args.goals, "records": records})
    write_atomically(args.out / "table.md", table(records).encode())
    print(table(records))


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
