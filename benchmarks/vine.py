"""The vine room, measured: exactness, speed side by side with OSQP and MuJoCo, linearity, batches, overlap in random clutter.

Prints a table, writes results/vine.json and vine_linear.png. Ratios are medians over rounds in which both sides run in turn, on
one core, so that whatever else the machine does hits both. OSQP's time is that of update and solve, without our assembly.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import tyro
from numpy.typing import NDArray

import softgym_envs  # noqa: F401  (registers the ids)
from softgym_envs.core.errors import DataError
from softgym_envs.core.files import write_atomically
from softgym_envs.vine.dynamics import VineSimulator
from softgym_envs.vine.layouts import Clutter
from softgym_envs.vine.model import VineModel
from softgym_envs.vine.mujoco import VineTwin
from softgym_envs.vine.obstacles import circle
from softgym_envs.vine.paper.dynamics import PaperSimulator
from softgym_envs.vine.paper.model import PaperModel, runtime_scene
from softgym_envs.vine.paper.reference import OsqpSolver, assemble, solve_exactly
from softgym_envs.vine.parameters import PaperParameters

Array = NDArray[np.float64]

PAPER_STEP = 3.0e-3
"""[s] Mean time of one step of 30 bodies in [Jitosho2021] IV-A."""
SUBSTEPS = 10
"""Physics steps between two states that are read: one control step of the tasks."""


@dataclass
class Args:
    """What to measure."""

    rounds: int = 9
    """Rounds of each comparison."""
    random_steps: int = 10000
    """Random steps for exactness."""
    scenes: int = 1000
    """Random cluttered scenes for overlap."""
    out: Path = Path("results/vine.json")
    """Where the numbers go."""


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call [s]."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


# --- exactness ---------------------------------------------------------------------------------------------------------


def random_case(rng: np.random.Generator, count: int) -> tuple[PaperModel, PaperParameters, Array]:
    """A robot beside seven circles that it touches by parts of a mm, and random states of it."""
    links = 12
    spots = rng.choice(links, 7, replace=False)
    model = PaperModel(links, 0.01, initial_length=0.36, obstacles=tuple(circle(0.03 * (i + 1), 0.032, 0.02) for i in spots))
    states = np.tile(model.straight_state(), (count, 1))
    q, v = model.split(states)
    q[:] += 1e-4 * rng.normal(size=q.shape)
    v[:] = 0.05 * rng.normal(size=v.shape) + np.array([0.0, 0.3, 0.0]) * rng.uniform(-0.3, 1, (count, 1, 1))
    return model, PaperParameters(body_inertia=float(10 ** rng.uniform(-6, -3.7))), states


def exactness(steps: int) -> dict[str, Any]:
    """Structured solver against dense active set, and OSQP at two tolerances, over random steps."""
    worst, contacts, unsolved = 0.0, np.zeros(8, dtype=int), 0
    osqp: dict[float, list[float]] = {1e-3: [], 1e-6: []}
    batch = 50
    for k in range(steps // batch):
        model, parameters, states = random_case(np.random.default_rng(k), batch)
        after, _ = PaperSimulator(model).step(states, np.full((batch, 1), 0.04), parameters)
        for row, (before, ours) in enumerate(zip(states, model.split(after)[1], strict=True)):
            program = assemble(model, before, 0.04, parameters, 0.01)
            try:
                exact, count = solve_exactly(program)
            except DataError:
                unsolved += 1
                continue
            contacts[count] += 1
            worst = max(worst, float(np.abs(ours.ravel() - exact).max() / np.abs(exact).max()))
            if row == 0:
                for eps, errors in osqp.items():
                    solver = OsqpSolver(eps=eps)
                    solver.load(program)
                    v, solved = solver.solve()
                    if solved:
                        errors.append(float(np.abs(v - exact).max() / np.abs(exact).max()))
    found = {f"osqp_{eps:g}_median_relative": float(np.median(errors)) for eps, errors in osqp.items()}
    return {
        "steps": int(contacts.sum()),
        "worst_relative": worst,
        "steps_by_contacts": contacts.tolist(),
        "infeasible": unsolved,
        **found,
    }


# --- speed -------------------------------------------------------------------------------------------------------------


def osqp_run(model: PaperModel, states: Array, eps: float) -> Callable[[], float]:
    """Time of update and solve over the paper's scene [s]."""
    programs = [assemble(model, state, 0.04, PaperParameters(), 0.01) for state in states[:-1:4]]

    def run() -> float:
        solver = OsqpSolver(eps=eps)
        solver.load(programs[0])
        solver.solve()
        spent = 0.0
        for program in programs[1:]:
            solver.load(program)
            start = time.perf_counter()
            solver.solve()
            spent += time.perf_counter() - start
        return spent / (len(programs) - 1)

    return run


def mujoco_run(steps: int) -> Callable[[], float]:
    """Time of mj_step of the twin with 30 bodies in contact with a circle [s]."""
    model = VineModel(num_links=29, max_length=0.58, initial_length=0.4, obstacles=(circle(0.47, 0.07, 0.06),))
    mj = VineTwin(model, dt=0.002, bending="linear").mj_model(29)
    data = mujoco.MjData(mj)
    mujoco.mj_step(mj, data, 50)
    return lambda: seconds(lambda: mujoco.mj_step(mj, data, steps)) / steps


def lab_run(steps: int) -> Callable[[], float]:
    """Time of a step of the lab model in the paper's scene, 30 links, capsules, friction, implicit bending [s]."""
    model = VineModel(30, 0.6, initial_length=0.44, obstacles=(circle(0.470, 0.025 + 0.03, 0.060),))
    simulator = VineSimulator(model)
    controls = np.tile([0.04, 0.0, 0.0, 0.0, 0.0], (1, steps // SUBSTEPS, 1))
    state = simulator.initial_state()
    return lambda: seconds(lambda: simulator.rollout(state, controls, substeps=SUBSTEPS)) / steps


def speed(rounds: int) -> dict[str, Any]:
    """Paper's scene, 400 steps of 10 ms, 30 bodies; all sides in turn. We read the state every 10 steps, the others never."""
    model, steps = runtime_scene(), 400
    simulator, controls = PaperSimulator(model), np.full((1, steps, 1), 0.04)
    start = simulator.initial_state()
    states, _ = simulator.rollout(start, controls)
    sides: dict[str, Callable[[], float]] = {
        "paper_mode": lambda: seconds(lambda: simulator.rollout(start, controls[:, ::SUBSTEPS], substeps=SUBSTEPS)) / steps,
        "paper_mode_every_state_read": lambda: seconds(lambda: simulator.rollout(start, controls)) / steps,
        "osqp_warm_1e-3": osqp_run(model, states[0], 1e-3),
        "osqp_warm_1e-6": osqp_run(model, states[0], 1e-6),
        "mujoco_mj_step": mujoco_run(steps),
        "lab_model": lab_run(steps),
    }
    for run in sides.values():
        run()
    table = np.array([[run() for run in sides.values()] for _ in range(rounds)])
    micro = dict(zip(sides, (1e6 * np.median(table, axis=0)).round(3).tolist(), strict=True))
    ratios = np.median(table / table[:, :1], axis=0)
    return {
        "microseconds_per_step": micro,
        "over_paper_mode": dict(zip(sides, ratios.round(2).tolist(), strict=True)),
        "paper_3ms_over_paper_mode": round(PAPER_STEP / float(np.median(table[:, 0]))),
    }


def linearity(rounds: int) -> dict[str, Any]:
    """Paper's mode from 10 to 1000 bodies: [us] per step, and the exponent of a power law from 100 on."""
    bodies, times = [10, 30, 100, 300, 1000], []
    for count in bodies:
        simulator = PaperSimulator(runtime_scene(count))
        controls, start = np.full((1, 100, 1), 0.04), simulator.initial_state()
        run = partial(simulator.rollout, start, controls, substeps=2)
        run()
        times.append(min(seconds(run) for _ in range(rounds)) / 200)
    exponent = np.polyfit(np.log(bodies[2:]), np.log(times[2:]), 1)[0]
    return {
        "bodies": bodies,
        "microseconds_per_step": (1e6 * np.array(times)).round(2).tolist(),
        "exponent": round(exponent, 3),
    }


def draw_linearity(found: dict[str, Any], path: Path) -> None:
    """Time per step against bodies, beside a straight line through the last point and the origin."""
    from matplotlib.figure import Figure

    bodies, times = np.array(found["bodies"]), np.array(found["microseconds_per_step"])
    figure = Figure(figsize=(5.0, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.loglog(bodies, times[-1] * bodies / bodies[-1], "--", color="0.6", label="proportional to bodies")
    axes.loglog(bodies, times, "o-", label=f"measured; exponent {found['exponent']:.2f} from 100 bodies")
    axes.set_xlabel("bodies")
    axes.set_ylabel("time per step [µs], one core")
    axes.legend(frameon=False, fontsize=8)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=130)


def steps_of(envs: Any, action: Array, count: int) -> None:
    """So many steps of a batched environment."""
    for _ in range(count):
        envs.step(action)


def batches(rounds: int) -> dict[str, float]:
    """Env-steps per second of the batched environments at a control period of 0.1 s, on all cores."""
    found: dict[str, float] = {}
    for env_id in ("VineGrow-v0", "VineNavigate-v0"):
        for rows in (1, 64, 1024):
            envs = gym.make_vec(env_id, num_envs=rows, vectorization_mode="vector_entry_point")
            envs.reset(seed=0)
            action = np.random.default_rng(0).uniform(-1, 1, envs.action_space.shape)
            envs.step(action)
            count = max(3, 300 // rows)
            rates = [rows * count / seconds(partial(steps_of, envs, action, count)) for _ in range(rounds)]
            found[f"{env_id} x {rows}"] = round(float(np.median(rates)))
            envs.close()
    return found


# --- overlap -----------------------------------------------------------------------------------------------------------


def overlap(scenes: int) -> dict[str, Any]:
    """Wild growth and steering through random clutter: deepest overlap of the tube, and rows that failed."""
    layout = Clutter(curvature=1.5)
    model = layout.furnish(VineModel())
    simulator = VineSimulator(model)
    low, high = simulator.control_bounds
    deepest, failed, steps = np.inf, 0, 0
    for first in range(0, scenes, 50):
        rng = np.random.default_rng(first)
        count = min(50, scenes - first)
        state = simulator.initial_state(count)
        model.split(state).obstacles[:] = [layout.draw(model, rng, 3.0).poses for _ in range(count)]
        controls = np.repeat(rng.uniform(low, high, (count, 20, model.nu)), 5, axis=1)
        states, status = simulator.rollout(state, controls, substeps=10)
        deepest = min(deepest, float(model.clearance(states).min()))
        failed += int((status != 0).sum())
        steps += 10 * controls.shape[1] * count
    return {"scenes": scenes, "physics_steps": steps, "deepest_overlap_mm": round(-1e3 * deepest, 4), "failed": failed}


def main(args: Args) -> None:
    """Measure everything and write it down."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    report = {
        "machine": {
            "cpu": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "speed": speed(args.rounds),
        "linearity": linearity(args.rounds),
        "batches": batches(3),
        "overlap": overlap(args.scenes),
        "exactness": exactness(args.random_steps),
    }
    text = json.dumps(report, indent=1)
    print(text)
    write_atomically(args.out, (text + "\n").encode())
    draw_linearity(report["linearity"], args.out.with_name("vine_linear.png"))


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
