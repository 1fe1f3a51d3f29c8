"""The whole workflow at small scale, in a minute and a half: record, identify, plan, transfer, report.

    softgym-envs demo TensegrityRoll-v0        # a SUPERball rolls: make demo
    softgym-envs demo VineGrow-v0              # any id with a transfer task

1. Record the system's experiments on the ground truth, one recording of each.
2. Identify the native engine by the system's procedure: by its stages that fit single steps, if there are any.
3. Control the ground truth by sampling MPC, which plans in the engine before identification, in the identified engine, and in
   the ground truth itself: the best that this planner can do.
4. Write a report page with the three costs, a plot, the fits and a side-by-side film.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from numpy.typing import NDArray

from agents.control.mpc import SamplingController, SamplingOptions
from agents.control.plan import Run, check_simulator, run_policy
from agents.transfer_study.task import TransferTask
from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.files import git_commit, write_atomically, write_json
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Simulator, check_number
from softgym_envs.core.trajectory import whole_steps
from softgym_envs.data.page import Section, embed, embed_image, new_figure, plain_axes, render_sections
from softgym_envs.envs.drawing import render_state
from softgym_envs.rendering import PygameRenderer
from softgym_envs.rendering.video import side_by_side, write_gif
from softgym_envs.systems import system_of_task
from sysid.procedure.run import run_procedure
from sysid.report.progress import Beat

Array = NDArray[np.float64]

AHEAD, KNOTS = 8, 4
"""Control steps that are planned ahead, and knots of their controls."""
FASTEST = 50.0
"""[1/s] Most frames of a GIF."""
IDLE, BEFORE, AFTER, BEST = "no control", "before identification", "identified", "best possible"
"""Runs on the ground truth; the last one plans in the ground truth itself."""
RECORDED, IDENTIFIED, DRIVEN = 5.0, 50.0, 90.0
"""[%] Share of the time after which recordings, fits and runs are done, about."""


@dataclass(frozen=True)
class Args:
    """Options of the demonstration."""

    id: Annotated[str, tyro.conf.Positional]
    """Environment id with a transfer task."""
    backend: str = ""
    """The ground truth: one of the system's, "package.module:function" or a .toml file; none: the system's first."""
    seed: int = 0
    """Seed of recordings and planning."""
    samples: int = 16
    """Samples of the planner, twice per control step."""
    horizon: int = 50
    """Control steps."""
    period: float = 0.1
    """Length of a control step [s]."""
    out: Path = Path("runs/demo")
    """Folder of the report."""


def check(args: Args, case: TransferTask) -> None:
    """Refuse bad numbers, or a ground truth that cannot be made, before anything is recorded.

    Raises:
        OptionError: A number is not allowed.
        SoftgymError: The error of making the ground truth.
    """
    dt = case.native().dt
    for name, low in (("seed", 0), ("samples", 2), ("horizon", 1)):
        check_number(f"--{name}", getattr(args, name), low=low, whole=True)
    check_number("--period", args.period, positive=True, unit="s")
    whole_steps("--period", args.period, dt)
    check_simulator(case.native(), case.ground_truth())
    case.ground_truth_values()


def said(progress: Beat, percent: float, what: str) -> None:
    """Write a line of progress."""
    progress.say(f"{percent:3.0f} % {what}")


def identified(case: TransferTask, rng: np.random.Generator, out: Path, progress: Beat) -> tuple[Parameters, int]:
    """Parameters of the case, and the ground truth's steps spent."""
    source, procedure = case.recorded(), case.procedure
    steps = sum(experiment.longest for experiment in procedure.experiments)
    said(progress, 0, f"recording {', '.join(e.name for e in procedure.experiments)}: {steps} steps of the ground truth")
    data = source.record(rng, steps).train
    stages = tuple(stage for stage in procedure.stages if stage.method == "one_step") or procedure.stages
    shares = iter(np.linspace(RECORDED, IDENTIFIED, len(stages), endpoint=False))
    fit = run_procedure(
        procedure, source.native(), data, start=source.default(), stages=stages, out=out / "fit", diagnose="none",
        announce=lambda name: said(progress, next(shares, IDENTIFIED), f"identifying, stage {name}"),
    )  # fmt: skip
    print(fit.summary())
    return case.adapt(fit.parameters), steps


def driven(case: TransferTask, args: Args, parameters: Parameters, progress: Beat) -> dict[str, Run]:
    """Runs on the ground truth: without control, and replanned at every control step in three engines from the true state."""
    engine, ground_truth, values = case.native(), case.ground_truth(), case.ground_truth_values()
    start, substeps = case.starts(np.random.default_rng(args.seed), 1)[0], round(args.period / engine.dt)
    options = SamplingOptions(samples=args.samples, knots=min(KNOTS, args.horizon), noise=0.6, iterations=2)
    planners = {
        BEFORE: (engine, case.adapt(case.recorded().default())), AFTER: (engine, parameters), BEST: (ground_truth, values)
    }  # fmt: skip
    shares = iter(np.linspace(IDENTIFIED, DRIVEN, len(planners) * args.horizon))

    def run(policy: Any) -> Run:
        return run_policy(policy, ground_truth, start, steps=args.horizon, substeps=substeps, parameters=values)

    def replanned(name: str, simulator: Simulator, known: Parameters) -> Run:
        rng, ahead = np.random.default_rng(args.seed), min(AHEAD, args.horizon)
        mpc = SamplingController(simulator, case.cost(simulator), ahead, rng, substeps, known, options)

        def act(state: Array, t: int) -> Array:
            share = next(shares)
            if t % 10 == 0:
                said(progress, share, f"planning, {name}: control step {t} of {args.horizon}")
            return mpc(state, t)

        return run(act)

    still = np.zeros(len(engine.control_names))
    return {IDLE: run(lambda *_: still), **{name: replanned(name, *planner) for name, planner in planners.items()}}


def film(case: TransferTask, states: Array) -> list[NDArray[np.uint8]]:
    """Pictures of all states (T+1, nx) of the ground truth, with the trail."""
    renderer, trail = PygameRenderer(size=(400, 300)), case.position(states)
    drawable: Any = case.ground_truth()
    pictures = [
        render_state(drawable, state, {**case.hints, "trail": trail[: k + 1]}, renderer) for k, state in enumerate(states)
    ]
    return [picture for picture in pictures if picture is not None]


def plot(case: TransferTask, runs: dict[str, Run], costs: dict[str, Array], period: float) -> Any:
    """Plot path and cost over time of the three plans."""
    figure = new_figure(9, 3.2)
    path, cost = figure.subplots(1, 2)
    for name, style in ((BEFORE, ":"), (AFTER, "-"), (BEST, "--")):
        place = case.position(runs[name].states[0])
        path.plot(place[:, 0], place[:, 1], style, label=name)
        cost.plot(period * np.arange(len(costs[name])), costs[name], style, label=name)
    path.set(xlabel="x [m]", ylabel="y [m]", title="path", aspect="equal")
    cost.set(xlabel="time [s]", title="cost of every control step")
    cost.legend(frameon=False, fontsize=8)
    for axes in (path, cost):
        plain_axes(axes)
    return figure


def meaning(case: TransferTask) -> str:
    """Explanation of the table's numbers."""
    objective = case.objective
    effort = f", and of {objective.control_weight:g} times the sum of squared controls over their limits"
    weights, target = (", ".join(f"{v:g}" for v in np.ravel(part)) for part in (objective.weights, case.target))
    return (
        "All runs are on the ground truth. The planner samples controls from the true state, at every control step. It plans "
        "in the engine before identification, in the identified one, or in the ground truth itself (best possible). Chance "
        "decides between plans of equal worth, so that the identified engine may come out ahead of the best possible. "
        "Cost is a sum over the control steps, less is better: of the squared distance of what the task is about from its "
        f"target ({target}), weighted by ({weights}){effort if objective.control_weight else ''}."
    )


def bought(totals: dict[str, float]) -> str:
    """Total costs, in a sentence."""
    return f"Cost on the ground truth: {', '.join(f'{name} {totals[name]:.2f}' for name in (BEFORE, AFTER, BEST))}."


def idle_note(task: str, totals: dict[str, float]) -> str:
    """Note for plans that gain nothing."""
    if totals[IDLE] > totals[BEST]:
        return ""
    return f"note: doing nothing costs no more than the best plan: does {task} begin at its goal? See `starts` of `Scenario`\n"


def main(args: Args) -> int:
    """Record, identify, plan, transfer, report; 2 for bad input or a full disk."""
    try:
        with Beat(sys.stdout) as progress:
            run(args, progress)
    except SoftgymError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"interrupted; {args.out} has what was done", file=sys.stderr)
        return 130
    return 0


def run(args: Args, progress: Beat) -> None:
    """Body of `main`, with progress."""
    print(f"seed {args.seed}, commit {git_commit()}", flush=True)
    case = TransferTask(system_of_task(args.id), args.id.rpartition(":")[2], args.backend)
    check(args, case)
    parameters, steps = identified(case, np.random.default_rng(args.seed), args.out, progress)
    runs = driven(case, args, parameters, progress)
    cost = case.cost(case.native())
    costs = {name: cost.value(run.states[..., : case.model.layout.nx], run.controls)[0] for name, run in runs.items()}
    totals = {name: float(values.sum()) for name, values in costs.items()}
    measured = {name: case.measure(run.states) for name, run in runs.items()}
    head = ("run", "cost", *measured[AFTER])
    rows = tuple(
        (name, f"{totals[name]:.2f}", *(f"{round(float(v[0]), 2) + 0.0:.2f}" for v in measured[name].values())) for name in runs
    )
    said(progress, DRIVEN, "drawing")
    before, after = (film(case, runs[name].states[0]) for name in (BEFORE, AFTER))
    write_gif(args.out / "demo.gif", side_by_side(before, after, (BEFORE, AFTER)), fps=min(1.0 / args.period, FASTEST))
    write_json(
        args.out / "demo.json",
        {"id": args.id, "rows": rows, "seconds": progress.seconds, "ground_truth_steps": steps, "seed": args.seed},
    )
    sections = (
        Section("What identification bought", bought(totals), head, rows, images=(embed_image(args.out / "demo.gif"),)),
        Section("Path and cost", images=(embed(plot(case, runs, costs, args.period)),)),
        Section("What the numbers mean", meaning(case)),
        Section("Fits", links=(("parameters, intervals, diagnostics", "fit/report.html"),)),
    )
    sub = f"{args.id}: {steps:,} steps of the ground truth were recorded; took {progress.seconds:.0f} s"
    write_atomically(args.out / "report.html", render_sections("Record, identify, plan, transfer", sub, sections).encode())
    for row in (head, *rows):
        print(
            f"  {row[0]:24s} " + " ".join(f"{cell:>{max(len(name), 8)}s}" for name, cell in zip(head[1:], row[1:], strict=True))
        )
    print(f"{idle_note(args.id, totals)}{bought(totals)}")
    said(progress, 100, f"report: {args.out / 'report.html'}")


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
