"""Rest-to-rest manoeuvre of the two-muscle arm [Penner2020, section 3.1]: meshes, paths, replay in MuJoCo, MPC.

python reproductions/penner2020/run.py  # minutes

The elbow goes from 0.4 to 1.8 rad in 0.5 s with least effort; the paper publishes no number to compare with. Times are
processor seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

from agents.control.cost import FeatureCost
from agents.control.first_guess import minimum_jerk
from agents.control.mpc import ILQGController
from agents.control.optimal import Manoeuvre, OptimalMotion, plan_motion, solve_form
from agents.control.plan import run_policy
from softgym_envs.core.files import provenance, write_json
from softgym_envs.data.page import BLUE, plain_axes
from softgym_envs.systems.arm.dynamics import ElbowSimulator
from softgym_envs.systems.arm.model import MUSCLES, ElbowModel, muscle_path
from softgym_envs.systems.arm.mujoco import MujocoElbow
from softgym_envs.systems.arm.parameters import ElbowParameters
from softgym_envs.systems.arm.procedure import REACH

sys.path.insert(0, str(Path(__file__).parents[2]))  # `reproductions` is not installed
from reproductions.penner2020.dmocc import DirectorElbow

Array = NDArray[np.float64]
START, END = np.array([0.4, 0.0, 0.05, 0.05]), np.array([1.8, 0.0, np.nan, np.nan])
HORIZON = 0.5
"""[s]"""
BOUNDS = (np.array([0.0, -np.inf, 0.0, 0.0]), np.array([2.6, np.inf, 1.0, 1.0]))
LIMITS = (np.zeros(2), np.ones(2))
SMOOTHNESS = 1e-3
TAUS = (1e-3, 1e-6)
PERIOD = 0.02
"""[s] Period of the controller."""
PARAMETERS = ElbowParameters().to_matrix(1)[0]


@dataclass(frozen=True)
class Args:
    """Options of the study."""

    meshes: tuple[int, ...] = (10, 20, 50, 100, 200)
    """Time nodes N with closed-form paths."""
    segments: tuple[tuple[int, int], ...] = ((20, 5), (20, 10), (20, 20), (50, 20))
    """Pairs (N, K) with discrete paths."""
    out: Path = Path("reproductions/penner2020")
    """Folder."""


def asked(steps: int, start: Array = START) -> Manoeuvre:
    """The manoeuvre on a mesh, for any number of states behind the first four."""
    more = len(start) - 4
    low, high = (np.concatenate([side, np.full(more, far)]) for side, far in zip(BOUNDS, (-np.inf, np.inf), strict=True))
    return Manoeuvre(start, np.concatenate([END, np.full(more, np.nan)]), steps, LIMITS, (low, high), smoothness=SMOOTHNESS)


def closed_form(steps: int) -> OptimalMotion:
    """Plan in director coordinates, paths in closed form, from minimum jerk."""
    elbow = DirectorElbow(HORIZON / steps)
    path = elbow.states(minimum_jerk(START, END, steps, ((0, 1),), elbow.dt))
    return solve_form(elbow.form, asked(steps, path[0]), elbow.dt, PARAMETERS, path)


def discrete(steps: int, segments: int) -> OptimalMotion:
    """Plan with discrete paths, from the closed form."""
    warm, plain = closed_form(steps), DirectorElbow(HORIZON / steps)
    elbow = DirectorElbow(plain.dt, segments=segments)
    path = elbow.states(warm.states / np.array([1.0, plain.inertia, 1.0, 1.0]))
    return solve_form(
        elbow.form, asked(steps, path[0]), elbow.dt, PARAMETERS, path, warm.controls,
        pairs=elbow.pressures(path[1:]), taus=TAUS,
    )  # fmt: skip


def timed(make: Any, *arguments: int) -> tuple[OptimalMotion, float]:
    """A motion and the processor seconds for it, building included."""
    began = time.process_time()
    found = make(*arguments)
    return found, time.process_time() - began


def row(found: OptimalMotion, seconds: float, **more: Any) -> dict[str, Any]:
    """One line of the results."""
    return {
        **more, "solved": found.solved, "message": found.message, "iterations": found.iterations, "cost": found.objective,
        "processor_seconds": seconds, "build": found.build_seconds, "solve": found.solve_seconds, "error": found.error,
    }  # fmt: skip


def replay(plan: OptimalMotion, steps: int) -> dict[str, Any]:
    """Final and largest elbow errors on the MuJoCo model [rad]: of planned controls, and of MPC in our engine, 1 s."""
    mujoco_model, simulator = MujocoElbow(), ElbowSimulator()
    hold = round(HORIZON / steps / mujoco_model.dt)
    states, _ = mujoco_model.rollout(START[None], plan.controls[None], substeps=hold)
    cost = FeatureCost.of(REACH.aimed((END[0], 0.0)), simulator, simulator.model)
    substeps = round(PERIOD / simulator.dt)
    controller = ILQGController(simulator, cost, np.full((20, 2), 0.1), substeps=substeps)
    integral = Offset(controller)
    run = run_policy(integral, mujoco_model, START, steps=75, substeps=round(PERIOD / mujoco_model.dt))
    plain = run_policy(_fresh(controller), mujoco_model, START, steps=75, substeps=round(PERIOD / mujoco_model.dt))
    return {
        "open_loop_final_error": float(states[0, -1, 0] - END[0]),
        "open_loop_final_speed": float(states[0, -1, 1]),
        "mpc_final_error": float(plain.states[0, -1, 0] - END[0]),
        "mpc_with_observer_final_error": float(run.states[0, -1, 0] - END[0]),
        "mpc_seconds": 75 * PERIOD,
        "open_loop_angles": states[0, :, 0].tolist(),
        "mpc_angles": run.states[0, :, 0].tolist(),
    }


def _fresh(controller: ILQGController) -> ILQGController:
    controller.reset()
    return controller


class Offset:
    """MPC whose engine lacks a steady torque: the target is moved by the remaining error, as an observer does.

    The planner keeps its target; the angle that it sees is shifted by a slowly integrated error.
    """

    def __init__(self, controller: ILQGController, gain: float = 0.15) -> None:
        self.controller, self.gain, self.shift = controller, gain, 0.0

    def __call__(self, state: Array, t: int) -> Array:
        """Control (2,) for a state (4,)."""
        if t * PERIOD >= HORIZON:
            self.shift += self.gain * (END[0] - state[0])
        seen = state.copy()
        seen[0] -= self.shift
        return self.controller(seen, t)


def main(args: Args) -> None:
    """Runs everything, writes expected.json and picture.png."""
    results: dict[str, Any] = {
        "manoeuvre": {"start": START[0], "end": END[0], "seconds": HORIZON},
        "engine": [],
        "directors": [],
    }
    motions = {}
    for steps in args.meshes:
        found, seconds = timed(lambda n: plan_motion(ElbowSimulator(dt=HORIZON / n), asked(n)), steps)
        results["engine"].append(row(found, seconds, N=steps))
        motions[steps], seconds = timed(closed_form, steps)
        results["directors"].append(row(motions[steps], seconds, N=steps))
        print(results["engine"][-1], results["directors"][-1], sep="\n", flush=True)
    results["discrete"] = []
    for steps, segments in args.segments:
        found, seconds = timed(discrete, steps, segments)
        reference = motions.get(steps) or closed_form(steps)
        gap = float(np.abs(found.states[:, 0] - reference.states[:, 0]).max())
        results["discrete"].append(
            row(found, seconds, N=steps, K=segments, cost_closed_form=reference.objective, angle_gap=gap)
        )
        print(results["discrete"][-1], flush=True)
    steps = 50 if 50 in motions else args.meshes[-1]
    results["mujoco_model"] = replay(motions[steps], steps)
    print({name: value for name, value in results["mujoco_model"].items() if "angles" not in name})
    args.out.mkdir(parents=True, exist_ok=True)
    write_json(args.out / "expected.json", {**provenance(), **results})
    draw(motions[steps], results["mujoco_model"], args.out / "picture.png")


def draw(plan: OptimalMotion, mujoco_model: dict[str, Any], path: Path) -> None:
    """Plot as figure 1 of the paper: muscle paths, increments of the angle, lengths; also the MuJoCo model."""
    from matplotlib.figure import Figure

    model, times = ElbowModel(), np.linspace(0.0, HORIZON, len(plan.states))
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    arm, *plots = (figure.add_subplot(2, 3, i + 1) for i in range(6))
    for angle, shade in zip(plan.states[:: len(plan.states) // 4, 0], (0.25, 0.4, 0.55, 0.75, 1.0), strict=False):
        configuration(arm, model, float(angle), shade)
    arm.set_aspect("equal")
    arm.set_title("configurations, muscle paths")
    arm.axis("off")
    lengths = model.lengths(plan.states[:, 0], PARAMETERS)[0]
    curves: Sequence[tuple[str, Array, Array]] = (
        ("angle increment u_n [rad]", times[1:], np.diff(plan.states[:, 0])[:, None]),
        ("muscle lengths [m]: biceps, triceps", times, lengths),
        ("activations: biceps, triceps", times, plan.states[:, 2:4]),
        ("excitations: biceps, triceps", times[1:], plan.controls),
    )
    for axes, (title, at, values) in zip(plots, curves, strict=False):
        axes.plot(at, values[:, 0], color="#b01820")
        if values.shape[1] > 1:
            axes.plot(at, values[:, 1], color=BLUE)
        axes.set_title(title)
        plain_axes(axes)
    last = plots[-1]
    last.plot(times, plan.states[:, 0], color="0.5", label="plan")
    last.plot(times, mujoco_model["open_loop_angles"], color=BLUE, label="MuJoCo model, open loop")
    last.plot(
        np.arange(len(mujoco_model["mpc_angles"])) * PERIOD,
        mujoco_model["mpc_angles"],
        color="#b01820",
        label="MuJoCo model, MPC",
    )
    last.legend(frameon=False)
    last.set_title("elbow angle [rad]")
    plain_axes(last)
    for axes in plots:
        axes.set_xlabel("time [s]")
    figure.savefig(path, dpi=110)


def configuration(axes: Any, model: ElbowModel, angle: float, shade: float) -> None:
    """Draw bones and muscles at one angle."""
    places, structure = model.places(angle), model.structure(1.0)
    bones = np.array([[0.0, 0.0, 0.29], places["elbow"], places["hand"]])
    axes.plot(bones[:, 0], bones[:, 2], color="0.3", alpha=shade, lw=3)
    for k, wrapped in enumerate((structure.biceps, structure.triceps)):
        ends = places[f"{MUSCLES[k]}_origin"], places[f"{MUSCLES[k]}_insertion"]
        path = muscle_path(wrapped, ends, float(PARAMETERS[4 * k + 3]), angle)
        axes.plot(path[:, 0], path[:, 2], color="#b01820", alpha=shade, lw=1.5)


if __name__ == "__main__":
    main(tyro.cli(Args))
