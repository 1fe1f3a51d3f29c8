"""The main job at small scale, in a few minutes: record, identify, plan, transfer, report.

1. Record on the MuJoCo twin: 5 s in the air under random motor commands, 5 s of a rolling throw (10 000 steps of ground truth).
2. Identify, first cables and motors, then contact.
3. Plan a roll at 1 m/s with iLQG in the identified engine. The twin is not asked.
4. Run the plan on the twin from the same start: cost there against cost here is the gap.
5. Replan at every control step, by sampling in the identified engine from the twin's state: feedback closes most of the gap.
6. Write a report page with the table, the fits, a plot and a side-by-side video.
"""

from __future__ import annotations

import base64
import html
import io
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tyro

from agents import (
    FeatureCost,
    ILQGOptions,
    SamplingController,
    SamplingOptions,
    plan_ilqg,
    random_controls,
    run_closed_loop,
    run_open_loop,
    run_policy,
)
from softgym_envs.core.files import write_atomically
from softgym_envs.core.recipe import EXPERIMENT
from softgym_envs.core.trajectory import DataSplit, TrajectorySet
from softgym_envs.envs.drawing import render_state
from softgym_envs.rendering import PygameRenderer
from softgym_envs.rendering.video import side_by_side, write_gif
from softgym_envs.tensegrity.dynamics import TensegritySimulator
from softgym_envs.tensegrity.experiments import record_throw
from softgym_envs.tensegrity.model import TensegrityModel
from softgym_envs.tensegrity.mujoco import TensegrityTwin
from softgym_envs.tensegrity.recipe import RECIPE
from sysid import run_recipe


@dataclass
class Args:
    """How much to do."""

    seed: int = 0
    """Of recordings and planning."""
    iterations: int = 12
    """iLQG iterations per restart."""
    restarts: int = 2
    """Random starts of the planner; the cheapest in the identified engine wins."""
    horizon: int = 50
    """Control steps of 0.1 s."""
    out: Path = Path("runs/demo")
    """Where the report goes."""


def main(args: Args) -> None:
    """Record, identify, plan, transfer, report."""
    begin = time.perf_counter()
    rng = np.random.default_rng(args.seed)
    truth, engine = TensegrityTwin(), TensegritySimulator(contact="patch")

    say(begin, "recording 5 s in the air and 5 s of a throw on the MuJoCo twin")
    air = RECIPE.record_one("air", truth, rng)
    throw = replace(record_throw(truth, rng, speed=2.0), metadata={EXPERIMENT: "throws"})
    body, contact, _ = RECIPE.stages
    fit = run_recipe(
        RECIPE,
        engine,
        DataSplit(TrajectorySet((air, throw.window(0.0, 2.0))), TrajectorySet(()), TrajectorySet((throw.window(2.0, 5.0),))),
        stages=(body, replace(contact, name="contact", window=None)),
        out=args.out,
        announce=lambda name: say(begin, f"identifying the {name} constants"),
    )
    print(fit.summary())

    say(begin, "planning a roll at 1 m/s in the identified engine")
    model = engine.model
    cost = FeatureCost(engine, model.com_velocity, np.array([1.0, 0.0, 0.0]), np.array([1.0, 0.5, 0.1]), control_weight=1e-6)
    state, _ = truth.step(model.place_on_ground(truth.initial_state()[0])[None], np.zeros((1, truth.nu)), substeps=2000)
    plans = [
        plan_ilqg(
            engine,
            cost,
            state[0],
            controls=random_controls(engine, args.horizon, rng=rng, amplitude=0.5, knots=10),
            substeps=100,
            parameters=fit.parameters,
            options=ILQGOptions(max_iterations=args.iterations, difference_step=1e-2),
            callback=lambda entry: print(f"  {entry}", flush=True),
        )
        for _ in range(args.restarts)
    ]
    plan = min(plans, key=lambda p: p.cost)

    say(begin, "running the plan on the twin, and replanning along the way")
    mpc = SamplingController(
        engine, cost, 8, rng, 100, fit.parameters, SamplingOptions(samples=16, knots=4, noise=0.6, iterations=2)
    )
    runs = {
        "identified engine": run_open_loop(plan, engine, state, fit.parameters),
        "MuJoCo twin, open loop": run_open_loop(plan, truth, state),
        "MuJoCo twin, with feedback": run_closed_loop(plan, truth, state),
        "MuJoCo twin, replanned": run_policy(mpc, truth, state[0], steps=args.horizon, substeps=100),
        "MuJoCo twin, motors off": run_open_loop(replace(plan, controls=0.0 * plan.controls), truth, state),
    }
    rows = []
    for name, run in runs.items():
        moved = model.center_of_mass(run.states)[0, -1] - model.center_of_mass(state)[0]
        rows.append((name, float(cost.value(run.states, run.controls).sum()), float(moved[0]), float(moved[1])))
        print(f"  {name:28s} cost {rows[-1][1]:7.2f}   forward {rows[-1][2]:5.2f} m   sideways {rows[-1][3]:5.2f} m")

    say(begin, "drawing")
    ours, theirs = runs["identified engine"].states[0], runs["MuJoCo twin, open loop"].states[0]
    halved = np.repeat(plan.controls, 2, axis=0)[None]
    left = film(engine, engine.rollout(state, halved, fit.parameters, substeps=50)[0][0])
    right = film(truth, truth.rollout(state, halved, substeps=50)[0][0])
    write_gif(args.out / "roll.gif", side_by_side(left, right, ("identified engine", "MuJoCo twin")), fps=20)
    seconds = time.perf_counter() - begin
    summary = {"rows": rows, "seconds": seconds, "ground_truth_steps": 10_000, "seed": args.seed}
    write_atomically(args.out / "demo.json", json.dumps(summary, indent=1).encode())
    write_atomically(args.out / "report.html", page(rows, plot(model, ours, theirs), seconds).encode())
    say(begin, f"report: {args.out / 'report.html'}")


def say(begin: float, what: str) -> None:
    """One line of progress."""
    print(f"[{time.perf_counter() - begin:5.1f} s] {what}", flush=True)


def film(simulator: TensegritySimulator | TensegrityTwin, states: np.ndarray) -> list[np.ndarray]:
    """A picture per state, with the trail of the centre of mass."""
    renderer = PygameRenderer(size=(400, 300))
    trail = simulator.model.center_of_mass(states)
    pictures = [
        render_state(simulator, state, {"trail": trail[: k + 1], "velocity": np.array([1.0, 0.0, 0.0])}, renderer)
        for k, state in enumerate(states)
    ]
    return [picture for picture in pictures if picture is not None]


def plot(model: TensegrityModel, ours: np.ndarray, theirs: np.ndarray) -> str:
    """Path and speed of the centre of mass in both worlds, as an embedded PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (path, speed) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for states, label, style in ((ours, "identified engine", "-"), (theirs, "MuJoCo twin", "--")):
        com, velocity = model.center_of_mass(states), model.com_velocity(states)
        path.plot(com[:, 0], com[:, 1], style, label=label)
        speed.plot(0.1 * np.arange(len(com)), velocity[:, 0], style, label=label)
    path.set(xlabel="x [m]", ylabel="y [m]", title="path of the centre of mass", aspect="equal")
    speed.axhline(1.0, color="0.7", lw=1)
    speed.set(xlabel="time [s]", ylabel="forward speed [m/s]", title="target: 1 m/s")
    speed.legend(frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110)
    plt.close(figure)
    return base64.b64encode(buffer.getvalue()).decode()


def page(rows: list[tuple[str, float, float, float]], picture: str, seconds: float) -> str:
    """The report."""
    cells = "".join(f"<tr><td>{html.escape(n)}<td>{c:.2f}<td>{x:.2f}<td>{y:.2f}" for n, c, x, y in rows)
    return f"""<!doctype html><meta charset="utf-8"><title>softgym_envs demo</title>
<style>body{{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}}
td,th{{padding:.2rem 1rem;text-align:right}}td:first-child{{text-align:left}}img{{max-width:100%}}</style>
<h1>Record, identify, plan, transfer</h1>
<p>10 000 steps of the MuJoCo twin were recorded; the plan never saw the twin. Took {seconds:.0f} s.
Fits: <a href="body/report.html">body</a>, <a href="contact/report.html">contact</a>.</p>
<table><tr><th>run of the same plan<th>cost<th>forward [m]<th>sideways [m]{cells}</table>
<p><img src="roll.gif" alt="side by side"></p><p><img src="data:image/png;base64,{picture}" alt="path and speed"></p>"""


if __name__ == "__main__":
    main(tyro.cli(Args))
