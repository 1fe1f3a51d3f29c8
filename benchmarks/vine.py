"""Measurements of the vine system: exactness, speed against OSQP and MuJoCo, linearity, batches, overlap in random clutter.

Prints a table, writes results/vine_speed. Ratios are medians over rounds in which all sides run in turn, in
processor time, on one core, so that other load of the machine affects all. OSQP's time is that of update and solve, without
our assembly. Like is compared with like: `lab_model` and `mujoco_model` are one robot without muscles in one scene, and both
report the share of control steps in which they touch.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tyro
from numpy.typing import NDArray

import softgym_envs  # noqa: F401  (registers the ids)
from softgym_envs.core.errors import DataError
from softgym_envs.core.files import write_atomically
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.layouts import Clutter
from softgym_envs.systems.vine.model import VineModel
from softgym_envs.systems.vine.mujoco import MujocoVine
from softgym_envs.systems.vine.obstacles import circle

sys.path.insert(0, str(Path(__file__).parents[1]))  # `reproductions` is not installed
from reproductions.jitosho2021.model import PaperModel, runtime_scene
from reproductions.jitosho2021.parameters import PaperParameters
from reproductions.jitosho2021.program import OsqpSolver, assemble, solve_exactly
from reproductions.jitosho2021.simulator import PaperSimulator

Array = NDArray[np.float64]

PAPER_STEP = 3.0e-3
"""[s] Mean time of one step of 30 bodies in [Jitosho2021] IV-A."""
SUBSTEPS = 10
"""Physics steps between two states that are read: one control step of the tasks."""


@dataclass
class Args:
    """Options of the measurement."""

    rounds: int = 9
    """Rounds per comparison."""
    random_steps: int = 10000
    """Random steps for exactness."""
    scenes: int = 1000
    """Random cluttered scenes for overlap."""
    mujoco_model_scenes: int = 100
    """Random cluttered scenes for the MuJoCo model."""
    out: Path = Path("results/vine_speed/numbers.json")
    """File of the numbers."""


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one call [s]."""
    start = time.process_time()
    work()
    return time.process_time() - start


# --- exactness ---------------------------------------------------------------------------------------------------------


def random_case(rng: np.random.Generator, count: int) -> tuple[PaperModel, PaperParameters, Array]:
    """A robot beside seven circles that it touches within parts of a mm, and random states of it."""
    links = 12
    spots = rng.choice(links, 7, replace=False)
    model = PaperModel(links, 0.01, initial_length=0.36, obstacles=tuple(circle(0.03 * (i + 1), 0.032, 0.02) for i in spots))
    states = np.tile(model.straight_state(), (count, 1))
    q, v = model.split(states)
    q[:] += 1e-4 * rng.normal(size=q.shape)
    v[:] = 0.05 * rng.normal(size=v.shape) + np.array([0.0, 0.3, 0.0]) * rng.uniform(-0.3, 1, (count, 1, 1))
    return model, PaperParameters(body_inertia=float(10 ** rng.uniform(-6, -3.7))), states


def exactness(steps: int) -> dict[str, Any]:
    """Compare the structured solver with dense active set, and OSQP at two tolerances, over random steps."""
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
            start = time.process_time()
            solver.solve()
            spent += time.process_time() - start
        return spent / (len(programs) - 1)

    return run


LEANING = VineModel(30, 0.6, initial_length=0.4, num_sections=0, obstacles=(circle(0.470, 0.055, 0.060),))
"""The paper's scene with a tube of finite radius, which grows into the circle and along it: capsules, friction, no muscles."""
GROWTH, SECONDS = 0.04, 4.0
"""[m/s], [s]"""


def rollout_run(simulator: Any, period: float) -> tuple[Callable[[], float], Callable[[], float]]:
    """Time per physics step [s] of `LEANING` while it grows, and the share of its control steps in which it touches."""
    substeps = round(period / simulator.dt)
    controls, state = np.full((1, round(SECONDS / period), 1), GROWTH), simulator.initial_state()
    steps = controls.shape[1] * substeps

    def touching() -> float:
        states, status = simulator.rollout(state, controls, substeps=substeps)
        assert (status == 0).all()
        return float((simulator.model.clearance(states[0, 1:]) < 1e-5).mean())

    return lambda: seconds(lambda: simulator.rollout(state, controls, substeps=substeps)) / steps, touching


def speed(rounds: int) -> dict[str, Any]:
    """Paper's scene, 400 steps of 10 ms, 30 bodies; all sides in turn. States are read every 0.1 s, by OSQP never."""
    model, steps = runtime_scene(), 400
    simulator, controls = PaperSimulator(model), np.full((1, steps, 1), 0.04)
    start = simulator.initial_state()
    states, _ = simulator.rollout(start, controls)
    ours, theirs = VineSimulator(LEANING, bending="linear"), MujocoVine(LEANING, bending="linear")
    (lab, lab_touches), (mujoco_model, mujoco_model_touches) = (rollout_run(side, 0.1) for side in (ours, theirs))
    sides: dict[str, Callable[[], float]] = {
        "paper_mode": lambda: seconds(lambda: simulator.rollout(start, controls[:, ::SUBSTEPS], substeps=SUBSTEPS)) / steps,
        "paper_mode_every_state_read": lambda: seconds(lambda: simulator.rollout(start, controls)) / steps,
        "osqp_warm_1e-3": osqp_run(model, states[0], 1e-3),
        "osqp_warm_1e-6": osqp_run(model, states[0], 1e-6),
        "lab_model": lab,
        "mujoco_model": mujoco_model,
    }
    for run in sides.values():
        run()
    table = np.array([[run() for run in sides.values()] for _ in range(rounds)])
    micro = dict(zip(sides, (1e6 * np.median(table, axis=0)).round(3).tolist(), strict=True))
    ratios = np.median(table / table[:, :1], axis=0)
    step_ratio = float(np.median(table[:, -1] / table[:, -2]))
    return {
        "microseconds_per_step": micro,
        "mujoco_model_over_lab_model": {
            "per_physics_step": round(step_ratio, 2),
            "per_simulated_second": round(step_ratio * ours.dt / theirs.dt, 2),
            "physics_step_ms": {"lab_model": 1e3 * ours.dt, "mujoco_model": 1e3 * theirs.dt},
            "share_of_control_steps_in_contact": {"lab_model": lab_touches(), "mujoco_model": mujoco_model_touches()},
        },
        "over_paper_mode": dict(zip(sides, ratios.round(2).tolist(), strict=True)),
        "paper_3ms_over_paper_mode": round(PAPER_STEP / float(np.median(table[:, 0]))),
    }


def linearity(rounds: int) -> dict[str, Any]:
    """Time per step of the paper's mode from 10 to 1000 bodies [us], and the exponent of a power law from 100 on."""
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
    """Plot time per step against bodies, with a straight line through the last point and the origin."""
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
    """Take the given number of steps of a batched environment."""
    for _ in range(count):
        envs.step(action)


def batches(rounds: int) -> dict[str, float]:
    """Env-steps per second of processor time of the batched environments at a control period of 0.1 s."""
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


def overlap(simulator: Any, scenes: int) -> dict[str, Any]:
    """Depth of overlap where the tube touches, in fast growth and steering through random clutter, and rows that failed."""
    layout, model = Clutter(curvature=1.5), simulator.model
    low, high = simulator.control_bounds
    depths, failed, substeps = [], 0, round(0.1 / simulator.dt)
    for first in range(0, scenes, 50):
        rng = np.random.default_rng(first)
        count = min(50, scenes - first)
        state = simulator.initial_state(count)
        model.split(state).obstacles[:] = [layout.draw(model, [rng], 3.0).poses[0] for _ in range(count)]
        controls = np.repeat(rng.uniform(low, high, (count, 20, model.nu)), 5, axis=1)
        states, status = simulator.rollout(state, controls, substeps=substeps)
        depths.append(-1e3 * model.clearance(states[:, 1:]).ravel())
        failed += int((status != 0).sum())
    found = np.concatenate(depths)
    touching = found[found > -0.01]
    shares = {f"{share:g} %": round(float(np.percentile(touching, share)), 4) for share in (50, 90, 99, 100)}
    return {"scenes": scenes, "states_that_touch": len(touching), "overlap_mm_at_most_in": shares, "failed": failed}


def main(args: Args) -> None:
    """Measure and write everything."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    cluttered = Clutter(curvature=1.5).furnish(VineModel())
    report = {
        "machine": {
            "cpu": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "speed": speed(args.rounds),
        "linearity": linearity(args.rounds),
        "batches": batches(3),
        "overlap": overlap(VineSimulator(cluttered), args.scenes),
        "overlap_of_the_mujoco_model": overlap(MujocoVine(cluttered), args.mujoco_model_scenes),
        "exactness": exactness(args.random_steps),
    }
    text = json.dumps(report, indent=1)
    print(text)
    write_atomically(args.out, (text + "\n").encode())
    draw_linearity(report["linearity"], args.out.with_name("picture.png"))


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
