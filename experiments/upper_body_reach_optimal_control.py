"""Optimal control of the upper body's reach [Penner2020, section 3.2]: random targets, meshes, replay on the MuJoCo model, MPC.

python experiments/upper_body_reach_optimal_control.py  # minutes; writes results/upper_body_reach_optimal_control

The right hand goes from its rest to points of UpperBodyReach-v0 in 0.8 s, rest to rest, with least effort, by torques of
all 12 joints. The pose at the end is that of inverse kinematics; joints keep to their limits. Times are processor seconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

from agents.control.cost import FeatureCost
from agents.control.mpc import ILQGController
from agents.control.optimal import Manoeuvre, OptimalMotion, plan_motion
from agents.control.plan import run_policy
from softgym_envs.core.files import provenance, write_json
from softgym_envs.data.page import BLUE, plain_axes
from softgym_envs.systems.upper_body.dynamics import BodySimulator
from softgym_envs.systems.upper_body.model import BodyModel
from softgym_envs.systems.upper_body.mujoco import MujocoUpperBody
from softgym_envs.systems.upper_body.procedure import REACH
from softgym_envs.systems.upper_body.tasks import UpperBodyReach

Array = NDArray[np.float64]
HORIZON, PERIOD, RUN = 0.8, 0.02, 1.5
"""[s] Duration of the manoeuvre; period of the MPC controller; duration of MPC."""
SMOOTHNESS = 1e-3
FASTEST = 12.0
"""[rad/s]"""
RED = "#b01820"
MODEL = BodyModel()


@dataclass(frozen=True)
class Args:
    """Options of the study."""

    targets: int = 10
    """Random targets, N = 50."""
    meshes: tuple[int, ...] = (10, 20, 50, 100)
    """Time nodes N, for the first target."""
    closed: int = 3
    """Targets with MPC on the MuJoCo model."""
    seed: int = 0
    out: Path = Path("results/upper_body_reach_optimal_control")
    """Folder."""


def goals(count: int, seed: int) -> Array:
    """Targets as the task draws them, (count, 3) [m]."""
    task = UpperBodyReach(MODEL)
    return np.array([task._goal(np.random.default_rng([seed, i])) for i in range(count)])


def asked(pose: Array, steps: int) -> Manoeuvre:
    """From rest to rest at a pose (n,)."""
    low, high = MODEL.limits
    bounds = tuple(np.concatenate([side, np.full(MODEL.n, sign * FASTEST)]) for side, sign in ((low, -1), (high, 1)))
    end = np.concatenate([pose, np.zeros(MODEL.n)])
    return Manoeuvre(MODEL.rest_state(), end, steps, MODEL.control_bounds, (bounds[0], bounds[1]), smoothness=SMOOTHNESS)


def planned(goal: Array, steps: int) -> tuple[OptimalMotion, dict[str, Any]]:
    """Plan the motion to a goal; also a line of the results."""
    began = time.process_time()
    pose, left = MODEL.reaching(goal[None])
    found = plan_motion(BodySimulator(dt=HORIZON / steps), asked(pose[0], steps))
    return found, {
        "N": steps, "goal": goal.tolist(), "inverse_kinematics_left": float(left[0]), "solved": found.solved,
        "message": found.message, "iterations": found.iterations, "cost": found.objective, "build": found.build_seconds,
        "solve": found.solve_seconds, "processor_seconds": time.process_time() - began, "error": found.error,
        "hand_error": float(np.linalg.norm(MODEL.hand(found.states[-1:, : MODEL.n])[0] - goal)),
    }  # fmt: skip


def replayed(plan: OptimalMotion) -> Array:
    """States of the MuJoCo model under the plan's torques, (N + 1, 2 n)."""
    mujoco_model, steps = MujocoUpperBody(), len(plan.controls)
    states, _ = mujoco_model.rollout(
        MODEL.rest_state()[None], plan.controls[None], substeps=round(HORIZON / steps / mujoco_model.dt)
    )
    return np.asarray(states[0])


def controlled(goal: Array) -> Array:
    """States of the MuJoCo model under MPC in our engine, (T + 1, 2 n)."""
    mujoco_model, simulator = MujocoUpperBody(), BodySimulator(dt=0.01)
    cost = FeatureCost.of(REACH.aimed(np.concatenate([goal, np.zeros(MODEL.n)])), simulator, MODEL)
    controller = ILQGController(simulator, cost, np.zeros((20, MODEL.n)), substeps=round(PERIOD / simulator.dt))
    run = run_policy(
        controller, mujoco_model, MODEL.rest_state(), steps=round(RUN / PERIOD), substeps=round(PERIOD / mujoco_model.dt)
    )
    return np.asarray(run.states[0])


def off(states: Array, goal: Array) -> Array:
    """Distance of the hand from a goal, (T + 1,) [m]."""
    return np.linalg.norm(MODEL.hand(states[:, : MODEL.n]) - goal, axis=1)


def main(args: Args) -> None:
    """Runs everything, writes numbers.json and picture.png."""
    points, rows, meshes = goals(args.targets, args.seed), [], []
    plans: list[OptimalMotion] = []
    for k, goal in enumerate(points):
        plan, row = planned(goal, 50)
        way = off(replayed(plan), goal)
        row |= {"mujoco_model_open_loop_error": float(way[-1])}
        if k < args.closed:
            row |= {"mujoco_model_mpc_error": float(off(controlled(goal), goal)[-1]), "mpc_seconds": RUN}
        plans.append(plan)
        rows.append(row)
        print(row, flush=True)
    for steps in args.meshes:
        meshes.append(planned(points[0], steps)[1])
        print(meshes[-1], flush=True)
    total = np.array([row["processor_seconds"] for row in rows])
    summary = {
        "solved": sum(row["solved"] for row in rows), "of": len(rows), "median_seconds": float(np.median(total)),
        "largest_seconds": float(total.max()), "median_build": float(np.median([row["build"] for row in rows])),
        "median_solve": float(np.median([row["solve"] for row in rows])),
        "largest_mujoco_model_open_loop_error": max(row["mujoco_model_open_loop_error"] for row in rows),
    }  # fmt: skip
    print(summary)
    args.out.mkdir(parents=True, exist_ok=True)
    document = {**provenance(), "manoeuvre": {"seconds": HORIZON}, "summary": summary, "targets": rows, "meshes": meshes}
    write_json(args.out / "numbers.json", document)
    draw(plans, points, meshes, args.out / "picture.png")


def draw(plans: list[OptimalMotion], points: Array, meshes: list[dict[str, Any]], path: Path) -> None:
    """Plot ways of the hand, angles and torques of the first target, seconds by mesh."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6.4), layout="constrained")
    ways, angles, torques, mujoco_model, seconds, costs = figure.subplots(2, 3).ravel()
    for plan, goal in zip(plans, points, strict=True):
        hand = MODEL.hand(plan.states[:, : MODEL.n])
        ways.plot(hand[:, 0], hand[:, 2], color=BLUE, lw=1)
        ways.plot(*goal[[0, 2]], "o", color=RED, ms=4)
        times = np.linspace(0.0, HORIZON, len(plan.states))
        mujoco_model.plot(times, 1e3 * off(replayed(plan), goal), color=BLUE, lw=1)
    ways.set_aspect("equal")
    ways.set_title("ways of the hand from the side [m]")
    first, times = plans[0], np.linspace(0.0, HORIZON, len(plans[0].states))
    for k, name in enumerate(MODEL.tree.coordinates[:6]):
        angles.plot(times, first.states[:, k], label=name.removeprefix("right_"))
        torques.plot(times[1:], first.controls[:, k])
    angles.legend(frameon=False, fontsize=7)
    angles.set_title("first target: angles of the right arm [rad]")
    torques.set_title("its torques [N m]")
    mujoco_model.set_title("on the MuJoCo model: hand to goal [mm]")
    mujoco_model.set_yscale("log")
    counts = [row["N"] for row in meshes]
    for what, color in (("build", "0.6"), ("solve", RED)):
        seconds.plot(counts, [row[what] for row in meshes], "o-", color=color, label=what)
    seconds.legend(frameon=False)
    seconds.set_title("processor seconds by time nodes N")
    costs.plot(counts, [row["cost"] for row in meshes], "o-", color=BLUE)
    costs.set_title("cost by time nodes N")
    costs.set_ylim(0.0, 1.1 * max([row["cost"] for row in meshes], default=1.0))
    for axes in (ways, angles, torques, mujoco_model, seconds, costs):
        plain_axes(axes)
    for axes in (seconds, costs):
        axes.set_visible(bool(meshes))
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(tyro.cli(Args))
