"""Comparison of controllers: cost against wall time and against simulator steps, and whether they run in real time.

    python experiments/tensegrity_controllers.py  # roll and crawl, all controllers, about an hour on 2 cores
    python experiments/tensegrity_controllers.py --tasks roll --controllers ilqg gps

Writes results/tensegrity_controllers. All start from the same state and first controls, and run in our
engine with its default parameters. Planners (ilqg, gps) plan 50 control steps at once; MPC controllers (mppi, ilqg_mpc)
replan at every control step, so their cost is the one of the closed loop. Derivatives by
differences are counted as the simulated steps that they are; a step with exact derivatives counts as 1 (in time it costs more).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
from numpy.typing import NDArray

from agents.control.cost import FeatureCost
from agents.control.gps import GPSOptions, plan_gps
from agents.control.ilqg import ILQGOptions, plan_ilqg
from agents.control.mpc import ILQGController, SamplingController, SamplingOptions
from agents.control.plan import PlanLog, random_controls, run_policy, total_cost
from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.files import git_commit, write_atomically, write_json
from softgym_envs.data.page import COLORS, plain_axes
from softgym_envs.systems.tensegrity import TensegrityModel, TensegrityParameters, prism, superball
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.tasks import CRAWL, ROLL

Array = NDArray[np.float64]
Name = Literal["ilqg", "ilqg_differences", "gps", "mppi", "ilqg_mpc"]


@dataclass(frozen=True)
class Args:
    """Compare controllers."""

    tasks: tuple[Literal["roll", "crawl"], ...] = ("roll", "crawl")
    """roll: SUPERball at 1 m/s; crawl: the prism at 0.2 m/s and a tenth of Earth's gravity."""
    controllers: tuple[Name, ...] = ("ilqg", "ilqg_differences", "gps", "mppi", "ilqg_mpc")
    """ilqg with exact derivatives and with wide differences, the paper's sample-based iLQG, and two receding-horizon ones."""
    seeds: int = 3
    """First guesses; seed 0 ... seeds - 1."""
    horizon: int = 50
    """Control steps of 0.1 s."""
    iterations: int = 20
    """Iterations of ilqg and gps."""
    rollouts: int = 40
    """Rollouts of gps per iteration."""
    out: Path = Path("results/tensegrity_controllers")
    """Folder."""


@dataclass(frozen=True)
class Problem:
    """Control problem."""

    simulator: TensegritySimulator
    parameters: TensegrityParameters
    cost: FeatureCost
    state: Array
    controls: Array
    """(T, nu) first guess"""


@dataclass(frozen=True)
class Result:
    """One controller on one problem."""

    task: str
    controller: str
    seed: int
    cost: float
    seconds: float
    """Time of all planning."""
    processor_seconds: float
    """Processor time of all threads, independent of other load on the processors."""
    steps: int
    real_time_factor: float
    """Robot's time over planning time."""
    curve: tuple[tuple[float, int, float], ...]
    """Planners: (seconds, steps, best cost) after every iteration; MPC: one point"""


def problem(task: str, seed: int, horizon: int) -> Problem:
    """The task with a first guess."""
    model: TensegrityModel = superball() if task == "roll" else prism()
    simulator = TensegritySimulator(model)
    parameters = TensegrityParameters(gravity=9.81 if task == "roll" else 0.981)
    cost = FeatureCost.of(ROLL if task == "roll" else CRAWL, simulator, model)
    rest = model.place_on_ground(simulator.initial_state(1)[0])
    state, _ = simulator.step(rest[None], np.zeros((1, model.nu)), parameters, substeps=2000)
    rng = np.random.default_rng(seed)
    controls = random_controls(simulator, horizon, rng=rng, amplitude=0.3, knots=min(10, horizon))
    return Problem(simulator, parameters, cost, state[0], controls)


def run_ilqg(p: Problem, args: Args, difference_step: float | None) -> tuple[float, list[PlanLog]]:
    """Plan by iLQG; returns final cost and log."""
    options = ILQGOptions(max_iterations=args.iterations, trust=0.3, difference_step=difference_step)
    plan = plan_ilqg(
        p.simulator, p.cost, p.state, controls=p.controls, substeps=100, parameters=p.parameters, options=options
    )  # fmt: skip
    return plan.cost, list(plan.log)


def run_gps(p: Problem, args: Args, seed: int) -> tuple[float, list[PlanLog]]:
    """Plan by sample-based iLQG; returns final cost and log."""
    plan = plan_gps(
        p.simulator, p.cost, p.state, controls=p.controls, rng=np.random.default_rng(seed), substeps=100,
        parameters=p.parameters, options=GPSOptions(iterations=args.iterations, rollouts=args.rollouts),
    )  # fmt: skip
    return plan.cost, list(plan.log)


def planned(task: str, name: str, seed: int, args: Args) -> Result:
    """Result of a planner."""
    p, began = problem(task, seed, args.horizon), time.process_time()
    ways: dict[str, Callable[[], tuple[float, list[PlanLog]]]] = {
        "ilqg": lambda: run_ilqg(p, args, None),
        "ilqg_differences": lambda: run_ilqg(p, args, 1e-2),
        "gps": lambda: run_gps(p, args, seed),
    }
    cost, log = ways[name]()
    best = np.minimum.accumulate([entry.cost for entry in log])
    curve = tuple((e.seconds, e.steps.total(), float(c)) for e, c in zip(log, best, strict=True))
    seconds, steps, _ = curve[-1]
    used = time.process_time() - began
    return Result(task, name, seed, cost, seconds, used, steps, 0.1 * args.horizon / seconds, curve)


def replanned(task: str, name: str, seed: int, args: Args) -> Result:
    """Result of a receding-horizon controller."""
    p = problem(task, seed, args.horizon)
    ahead = min(15, args.horizon)
    controller: SamplingController | ILQGController
    if name == "mppi":
        options = SamplingOptions(samples=64, knots=min(6, ahead), noise=0.3)
        rng = np.random.default_rng(seed)
        controller = SamplingController(p.simulator, p.cost, ahead, rng, 100, p.parameters, options)
    else:
        few = ILQGOptions(max_iterations=2, trust=0.3, difference_step=1e-2)
        first = ILQGOptions(max_iterations=min(10, args.iterations), trust=0.3, difference_step=1e-2)
        controller = ILQGController(p.simulator, p.cost, p.controls[:ahead], 100, p.parameters, few, first)
    began = time.process_time()
    run = run_policy(controller, p.simulator, p.state, steps=args.horizon, substeps=100, parameters=p.parameters)
    cost = float(total_cost(p.cost.value(run.states, run.controls), run.status)[0])
    seconds, steps = sum(controller.seconds), controller.steps.total()
    used, factor = time.process_time() - began, float(100 * p.simulator.dt / np.mean(controller.seconds))
    return Result(task, name, seed, cost, seconds, used, steps, factor, ((seconds, steps, cost),))


def table(results: list[Result]) -> str:
    """Medians over seeds, as Markdown."""
    lines = ["| task | controller | cost (median of seeds) | worst | planning time [s] | processor time [s] | simulator steps"]
    lines[0] += " | real-time factor |"
    lines += ["|---" * 8 + "|"]
    for task, name in dict.fromkeys((r.task, r.controller) for r in results):
        some = [r for r in results if (r.task, r.controller) == (task, name)]
        keys = ("cost", "seconds", "processor_seconds", "steps", "real_time_factor")
        cost, seconds, used, steps, factor = (float(np.median([getattr(r, key) for r in some])) for key in keys)
        worst = max(r.cost for r in some)
        lines.append(
            f"| {task} | {name} | {cost:.3g} | {worst:.3g} | {seconds:.3g} | {used:.3g} | {steps:,.0f} | {factor:.3g} |"
        )
    return "\n".join(lines) + "\n"


def race(results: list[Result]) -> str:
    """Time and steps in which every planner reaches the best cost of the sample-based one, seed by seed, as Markdown."""
    lines = ["| task | seed | cost to reach | planner | seconds | simulator steps |", "|---" * 6 + "|"]
    for goal in (r for r in results if r.controller == "gps"):
        target = min(cost for _, _, cost in goal.curve)
        for r in results:
            if (r.task, r.seed) == (goal.task, goal.seed) and len(r.curve) > 1:
                reached = [point for point in r.curve if point[2] <= target]
                when = f"{reached[0][0]:.3g} | {reached[0][1]:,}" if reached else "not reached | not reached"
                lines.append(f"| {r.task} | {r.seed} | {target:.3g} | {r.controller} | {when} |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def draw(results: list[Result], path: Path) -> None:
    """Plot cost against seconds and against steps, one row per task."""
    from matplotlib.figure import Figure

    tasks = list(dict.fromkeys(r.task for r in results))
    names = list(dict.fromkeys(r.controller for r in results))
    figure = Figure(figsize=(10, 3.4 * len(tasks)), layout="constrained")
    grid = figure.subplots(len(tasks), 2, squeeze=False)
    for row, task in enumerate(tasks):
        for column, label in enumerate(("planning time [s]", "simulator steps")):
            axes: Any = grid[row, column]
            for r in (r for r in results if r.task == task):
                points = np.array([(p[column], p[2]) for p in r.curve])
                label_once = r.controller if r.seed == 0 else None
                style = "-" if len(points) > 1 else "D"
                axes.loglog(
                    points[:, 0], points[:, 1], style, color=COLORS[names.index(r.controller)], alpha=0.8, label=label_once
                )
            axes.set(xlabel=label, ylabel="cost", title=task)
            plain_axes(axes)
        grid[row, 0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=130)


def main(args: Args) -> int:
    """Run all, write the table and the plot; 2 for bad input."""
    print(f"seeds 0 ... {args.seeds - 1}, commit {git_commit()}", flush=True)
    results: list[Result] = []
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        for task in args.tasks:
            for name in args.controllers:
                for seed in range(args.seeds):
                    began = time.perf_counter()
                    run = replanned if name in ("mppi", "ilqg_mpc") else planned
                    results.append(run(task, name, seed, args))
                    r = results[-1]
                    print(
                        f"{task:6s} {name:17s} seed {seed}  cost {r.cost:8.3f}  {time.perf_counter() - began:6.1f} s",
                        flush=True,
                    )
    except SoftgymError as error:
        print(error, file=sys.stderr)
        return 2
    machine = {"python": platform.python_version(), "processors": os.cpu_count(), "commit": git_commit()}
    write_json(args.out / "numbers.json", {"machine": machine, "runs": [asdict(r) for r in results]})
    command = f"python experiments/tensegrity_controllers.py --tasks {' '.join(args.tasks)}"
    command += f" --controllers {' '.join(args.controllers)}"
    command += f" --seeds {args.seeds} --horizon {args.horizon} --iterations {args.iterations} --rollouts {args.rollouts}"
    write_atomically(args.out / "table.md", f"`{command}`, commit {git_commit()}\n\n{table(results)}\n{race(results)}".encode())
    draw(results, args.out / "picture.png")
    print(table(results), race(results), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
