"""Optimal control of the upper body's reach with muscles of the right arm [Penner2020, section 3.2]: random targets.

python experiments/upper_body_reach_muscles.py  # minutes; writes results/upper_body_reach_muscles, continues where it was
python experiments/upper_body_reach_muscles.py --seed 1 --scatter 0.1 --out results/upper_body_reach_muscles_other_guesses

As `upper_body_reach_optimal_control.py` with torques, but 14 muscles move the right arm: 12 angles and speeds, 14 activations;
14 excitations and 6
torques; 50 time nodes. Goals are those of the task with muscles, which these can hold. It starts from minimum jerk and inverse
dynamics, whose torques are shared among muscles. Where a muscle begins to wrap, its path is rounded over `ROUNDING`: at the
kinks of moment arms Newton's steps oscillate. Times are processor seconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

from agents.control.first_guess import driving_controls, minimum_jerk, rates_of
from agents.control.optimal import Manoeuvre, OptimalMotion, solve_form
from softgym_envs.core.complementarity import ComplementarityForm
from softgym_envs.core.files import provenance, read_json, write_json
from softgym_envs.data.page import plain_axes
from softgym_envs.muscles.routes import Routes
from softgym_envs.systems.upper_body.dynamics import BodySimulator
from softgym_envs.systems.upper_body.model import BodyModel, muscled
from softgym_envs.systems.upper_body.muscle_control import held_pose
from softgym_envs.systems.upper_body.sharing import activations
from softgym_envs.systems.upper_body.symbolic import muscled_step
from softgym_envs.systems.upper_body.tasks import UpperBodyReach

Array = NDArray[np.float64]
HORIZON, SMOOTHNESS, FASTEST, SUBSTEPS, ITERATIONS = 0.8, 1e-3, 12.0, 4, 200
"""[s]; weight of changes; [rad/s]; the engine's steps per step of the plan in its replay; most iterations of IPOPT."""
ROUNDING = 0.05
"""[rad] See `muscles.routes.Routes`."""
BONES = BodyModel()
MODEL = muscled(BONES)
N_JOINTS, N_MUSCLES = MODEL.n, len(MODEL.muscle_names)
COMMAND = "python experiments/upper_body_reach_muscles.py"


@dataclass(frozen=True)
class Args:
    """Options of the study."""

    targets: int = 10
    steps: int = 50
    """Time nodes N."""
    seed: int = 0
    scatter: float = 0.0
    """Standard deviation of changes to the guess: of angles half-way [rad], of activations [-]."""
    out: Path = Path("results/upper_body_reach_muscles")
    """Folder."""


def asked(pose: Array, steps: int) -> Manoeuvre:
    """From rest to rest at a pose (n,), activations free at the end."""
    (low, high), fast = MODEL.limits, np.full(N_JOINTS, FASTEST)
    bounds = np.concatenate([low, -fast, np.zeros(N_MUSCLES)]), np.concatenate([high, fast, np.ones(N_MUSCLES)])
    end = np.concatenate([pose, np.zeros(N_JOINTS), np.full(N_MUSCLES, np.nan)])
    return Manoeuvre(MODEL.rest_state(), end, steps, MODEL.control_bounds, bounds, smoothness=SMOOTHNESS)


def guessed(manoeuvre: Manoeuvre, dt: float) -> tuple[Array, Array]:
    """States (N + 1, nx) of least jerk, and controls (N, nu): inverse dynamics of the bones, shared among the muscles."""
    bones, n = BodySimulator(model=BONES, dt=dt), 2 * N_JOINTS
    path = minimum_jerk(manoeuvre.start, manoeuvre.end, manoeuvre.steps, rates_of(bones), dt)
    free = np.full(N_JOINTS, 1e3)
    torques = driving_controls(bones.symbolic_step(), path[:, :n], BONES.defaults, (-free, free))
    assert torques is not None
    active = activations(MODEL, path[:-1, :N_JOINTS], path[:-1, N_JOINTS:n], torques)
    path[1:, n:] = active
    return path, np.hstack([active, torques[:, list(MODEL.motors)]])


def scattered(path: Array, controls: Array, size: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Scatter a guess: angles by a half wave of random height, every activation by its own random number."""
    n, wave = 2 * N_JOINTS, np.sin(np.pi * np.linspace(0.0, 1.0, len(path)))[:, None]
    path, controls = path.copy(), controls.copy()
    path[:, :N_JOINTS] += size * wave * rng.standard_normal(N_JOINTS)
    controls[:, :N_MUSCLES] = np.clip(
        controls[:, :N_MUSCLES] + size * rng.standard_normal((len(controls), N_MUSCLES)), 0.0, 1.0
    )
    path[1:, n:] = controls[:, :N_MUSCLES]
    return path, controls


def arm_error(states: Array) -> float:
    """Largest change of a moment arm by rounding along a motion [m]."""
    assert MODEL.muscles is not None
    kinked, rounded = (Routes(MODEL.tree, MODEL.muscles, width).lengths(states[:, :N_JOINTS])[1] for width in (0.0, ROUNDING))
    return float(np.abs(rounded - kinked).max())


def planned(goal: Array, steps: int, scatter: float, rng: np.random.Generator) -> tuple[OptimalMotion, dict[str, Any]]:
    """Plan the motion to a goal; also a line of the results."""
    began, dt = time.process_time(), HORIZON / steps
    pose = held_pose(MODEL, goal[None])
    manoeuvre = asked(pose[0], steps)
    path, controls = scattered(*guessed(manoeuvre, dt), scatter, rng)
    form = ComplementarityForm(muscled_step(MODEL, dt, late=True, rounding=ROUNDING))
    found = solve_form(form, manoeuvre, dt, MODEL.defaults, path, controls, iterations=ITERATIONS, began=began)
    played = BodySimulator(model=MODEL, dt=dt / SUBSTEPS).rollout(found.states[:1], found.controls[None], substeps=SUBSTEPS)[0]
    return found, {
        "N": steps, "goal": goal.tolist(), "solved": found.solved,
        "message": found.message, "iterations": found.iterations, "cost": found.objective, "build": found.build_seconds,
        "solve": found.solve_seconds, "processor_seconds": time.process_time() - began, "error": found.error,
        "arm_error": arm_error(found.states),
        "hand_error": float(np.linalg.norm(MODEL.hand(found.states[-1:, :N_JOINTS])[0] - goal)),
        "engine_open_loop_error": float(np.linalg.norm(MODEL.hand(played[0, -1:, :N_JOINTS])[0] - goal)),
    }  # fmt: skip


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Summary of all targets so far."""
    total = np.array([row["processor_seconds"] for row in rows])
    return {
        "solved": sum(row["solved"] for row in rows), "of": len(rows), "median_seconds": float(np.median(total)),
        "largest_seconds": float(total.max()), "median_build": float(np.median([row["build"] for row in rows])),
        "median_solve": float(np.median([row["solve"] for row in rows])),
        "iterations": [row["iterations"] for row in rows],
        "largest_arm_error": max(row["arm_error"] for row in rows),
        "largest_engine_open_loop_error": max(row["engine_open_loop_error"] for row in rows),
    }  # fmt: skip


def main(args: Args) -> None:
    """Runs the targets that are not in numbers.json yet, writes it and picture.png after each."""
    file = args.out / "numbers.json"
    asked_for = {"N": args.steps, "seed": args.seed, "scatter": args.scatter}
    usual = (args.seed, args.scatter) == (0, 0.0)
    command = COMMAND if usual else f"{COMMAND} --seed {args.seed} --scatter {args.scatter} --out {args.out}"
    about = {"command": command, "seconds": HORIZON, "rounding": ROUNDING, **asked_for}
    known = read_json(file) if file.exists() else {}
    rows = known["targets"] if all(known.get(name) == value for name, value in about.items()) else []
    task, states = UpperBodyReach(MODEL), known.get("first", [])
    args.out.mkdir(parents=True, exist_ok=True)
    for k in range(len(rows), args.targets):
        goal, rng = task._goal(np.random.default_rng([args.seed, k])), np.random.default_rng([args.seed, k, 1])
        plan, row = planned(goal, args.steps, args.scatter, rng)
        states = states if rows else plan.states.tolist()
        rows.append(row)
        print(row, flush=True)
        write_json(file, {**provenance(), **about, "summary": summary(rows), "targets": rows, "first": states})
        draw(np.array(states), rows, args.out / "picture.png")


def draw(states: Array, rows: list[dict[str, Any]], path: Path) -> None:
    """Plot angles and activations of the first target's motion; seconds of all."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.6), layout="constrained")
    angles, active, seconds = figure.subplots(1, 3)
    times = np.linspace(0.0, HORIZON, len(states))
    for k, name in enumerate(MODEL.tree.coordinates[:6]):
        angles.plot(times, states[:, k], label=name.removeprefix("right_"))
    for k, name in enumerate(MODEL.muscle_names):
        active.plot(times, states[:, 2 * N_JOINTS + k], label=name, ls="-" if k < 7 else "--")
    angles.legend(frameon=False, fontsize=7)
    active.legend(frameon=False, fontsize=6, ncols=2)
    angles.set_title("first target: angles of the right arm [rad]", fontsize=10)
    active.set_title("activations of its muscles", fontsize=10)
    places = np.arange(len(rows))
    seconds.bar(places, [row["build"] for row in rows], color="0.6", label="build")
    seconds.bar(places, [row["solve"] for row in rows], bottom=[row["build"] for row in rows], color="#b01820", label="solve")
    seconds.legend(frameon=False, fontsize=8)
    seconds.set_title("processor seconds by target", fontsize=10)
    for axes in figure.axes:
        plain_axes(axes)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(tyro.cli(Args))
