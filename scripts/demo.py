"""The main job at small scale, in two to three minutes: record, identify, plan, transfer, report.

    softgym-envs demo TensegrityRoll-v0        # a SUPERball rolls: make demo
    softgym-envs demo VineGrow-v0              # any id with a transfer task

1. Record the system's experiments on the ground truth, one recording of each.
2. Identify the native engine by the system's procedure: by its stages that fit single steps, if there are any.
3. Plan with iLQG in the identified engine, without the ground truth.
4. Run the plan on the ground truth from the same start: cost there against cost here is the gap.
5. Replan at every control step, by sampling in the identified engine from the true state: feedback closes most of the gap.
6. Write a report page with the table, the fits, a plot and a side-by-side video.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from numpy.typing import NDArray

from agents.control.ilqg import ILQGOptions, plan_ilqg
from agents.control.mpc import SamplingController, SamplingOptions
from agents.control.plan import Plan, Run, check_simulator, random_controls, run_closed_loop, run_open_loop, run_policy
from agents.transfer_study.task import TransferTask
from softgym_envs.core.errors import OptionError, SoftgymError
from softgym_envs.core.files import git_commit, write_atomically, write_json
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Simulator, check_number
from softgym_envs.core.trajectory import is_whole
from softgym_envs.data.page import Section, embed, embed_image, new_figure, plain_axes, render_sections
from softgym_envs.envs.drawing import render_state
from softgym_envs.rendering import PygameRenderer
from softgym_envs.rendering.video import side_by_side, write_gif
from softgym_envs.systems import system_of_task
from sysid.procedure.run import run_procedure
from sysid.report.progress import Beat

Array = NDArray[np.float64]

KNOTS = 10
"""Knots of a plan's initial random controls."""
FASTEST = 50.0
"""[1/s] Most frames of a GIF."""
OURS, THEIRS, AGAIN, IDLE, BEFORE = (
    "identified engine",
    "ground truth, planned after identification",
    "ground truth, replanned",
    "ground truth, no control",
    "ground truth, planned before identification",
)


@dataclass(frozen=True)
class Args:
    """Options of the demonstration."""

    id: Annotated[str, tyro.conf.Positional]
    """Environment id with a transfer task."""
    backend: str = ""
    """The ground truth: one of the system's, "package.module:function" or a .toml file; none: the system's first."""
    seed: int = 0
    """Seed of recordings and planning."""
    iterations: int = 8
    """iLQG iterations per restart."""
    restarts: int = 1
    """Random starts of the planner; the cheapest in the identified engine wins."""
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
    check_number("--seed", args.seed, low=0, whole=True)
    for name in ("iterations", "restarts", "horizon"):
        check_number(f"--{name}", getattr(args, name), low=1, whole=True)
    check_number("--period", args.period, positive=True, unit="s")
    if not is_whole(args.period, dt):
        raise OptionError(f"--period is {args.period:g} s, expected a whole number of physics steps of {dt:g} s")
    check_simulator(case.native(), case.ground_truth())
    case.ground_truth_values()


def identified(
    case: TransferTask, rng: np.random.Generator, out: Path, progress: Beat
) -> tuple[Parameters, tuple[str, ...], int]:
    """Parameters of the case, names of the stages that found them, and the ground truth's steps spent."""
    source, procedure = case.recorded(), case.procedure
    steps = sum(experiment.longest for experiment in procedure.experiments)
    progress.say(f"recording {', '.join(e.name for e in procedure.experiments)}: {steps} steps of the ground truth")
    data = source.record(rng, steps).train
    stages = tuple(stage for stage in procedure.stages if stage.method == "one_step") or procedure.stages
    fit = run_procedure(
        procedure, source.native(), data, start=source.default(), stages=stages, out=out / "fit",
        announce=lambda name: progress.say(f"identifying, stage {name}"),
    )  # fmt: skip
    print(fit.summary())
    return case.adapt(fit.parameters), tuple(stage.name for stage in stages), steps


def planned(case: TransferTask, args: Args, parameters: Parameters, rng: np.random.Generator) -> Plan:
    """Plan in the identified engine; the cheapest of several plans."""
    engine, start = case.native(), case.starts(np.random.default_rng(args.seed), 1)[0]
    options = ILQGOptions(max_iterations=args.iterations, trust=0.3, difference_step=case.scenario.difference_step)
    knots = min(KNOTS, args.horizon)
    plans = [
        plan_ilqg(
            engine, case.cost(engine), start,
            controls=random_controls(engine, args.horizon, rng=rng, amplitude=0.5, knots=knots),
            substeps=round(args.period / engine.dt), parameters=parameters, options=options,
            callback=lambda entry: print(f"  {entry}", flush=True),
        )
        for _ in range(args.restarts)
    ]  # fmt: skip
    return min(plans, key=lambda plan: plan.cost)


def transferred(
    case: TransferTask, args: Args, plan: Plan, before: Plan, parameters: Parameters, rng: np.random.Generator
) -> dict[str, Run]:
    """Run the plan in both simulators, with feedback, replanned and without control, and the plan `before` identification."""
    engine, ground_truth, parameter_values = case.native(), case.ground_truth(), case.ground_truth_values()
    substeps, start = round(args.period / engine.dt), plan.states[:1]
    options = SamplingOptions(samples=16, knots=min(4, args.horizon), noise=0.6, iterations=2)
    mpc = SamplingController(engine, case.cost(engine), min(8, args.horizon), rng, substeps, parameters, options)
    return {
        BEFORE: run_open_loop(before, ground_truth, start, parameter_values),
        OURS: run_open_loop(plan, engine, start, parameters),
        THEIRS: run_open_loop(plan, ground_truth, start, parameter_values),
        "ground truth, with feedback": run_closed_loop(plan, ground_truth, start, parameter_values),
        AGAIN: run_policy(mpc, ground_truth, start[0], steps=args.horizon, substeps=substeps, parameters=parameter_values),
        IDLE: run_open_loop(replace(plan, controls=0.0 * plan.controls), ground_truth, start, parameter_values),
    }


def film(case: TransferTask, simulator: Simulator, states: Array) -> list[NDArray[np.uint8]]:
    """Pictures of all states, with the trail."""
    renderer = PygameRenderer(size=(400, 300))
    drawable: Any = simulator
    trail = case.position(states)
    pictures = [
        render_state(drawable, state, {**case.hints, "trail": trail[: k + 1]}, renderer) for k, state in enumerate(states)
    ]
    return [picture for picture in pictures if picture is not None]


def plot(case: TransferTask, runs: dict[str, Run], costs: dict[str, Array], period: float) -> Any:
    """Plot path and cost over time of the plan in both simulators."""
    figure = new_figure(9, 3.2)
    path, cost = figure.subplots(1, 2)
    for name, style in ((BEFORE, "-."), (OURS, "-"), (THEIRS, "--"), (AGAIN, ":")):
        place = case.position(runs[name].states[0])
        path.plot(place[:, 0], place[:, 1], style, label=name)
        cost.plot(period * np.arange(len(costs[name])), costs[name], style, label=name)
    path.set(xlabel="x [m]", ylabel="y [m]", title="path", aspect="equal")
    cost.set(xlabel="time [s]", title="cost of every control step")
    path.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0.0, -0.9))
    for axes in (path, cost):
        plain_axes(axes)
    return figure


def meaning(case: TransferTask) -> str:
    """Explanation of the table's numbers."""
    objective = case.objective
    effort = f", and of {objective.control_weight:g} times the sum of squared controls over their limits"
    weights, target = (", ".join(f"{v:g}" for v in np.ravel(part)) for part in (objective.weights, case.target))
    return (
        "Cost is a sum over the control steps, less is better: of the squared distance of what the task is about from its "
        f"target ({target}), weighted by ({weights}){effort if objective.control_weight else ''}. "
        "'With feedback' adds iLQG's gains times the distance from the planned states. They are the "
        "derivatives of one motion of the identified engine: right for small errors, wrong once a contact comes earlier or "
        "later than planned, where they may cost more than no feedback at all. Replanning from the true state needs none."
    )


def bought(costs: dict[str, Array]) -> str:
    """What identification changes on the ground truth, in words; costs are those of every control step of every run."""
    before, after, again, idle = (float(costs[name].sum()) for name in (BEFORE, THEIRS, AGAIN, IDLE))
    return (
        f"On the ground truth the plan of the engine before identification costs {before:.2f}, that of the identified engine "
        f"{after:.2f}, and replanned {again:.2f}. Doing nothing costs {idle:.2f}. Less is better."
    )


def idle_note(task: str, costs: dict[str, Array]) -> str:
    """Note for a plan that gains nothing; costs are those of every control step of every run."""
    if costs[IDLE].sum() > costs[THEIRS].sum():
        return ""
    return f"note: doing nothing costs no more than the plan: does {task} begin at its goal? See `starts` of `Scenario`\n"


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
    rng = np.random.default_rng(args.seed)
    parameters, stages, steps = identified(case, rng, args.out, progress)
    progress.say("planning in the engine before identification")
    guess = case.adapt(case.recorded().default())
    before = planned(case, args, guess, rng)
    progress.say("planning in the identified engine")
    plan = planned(case, args, parameters, rng)
    progress.say("running the plan on the ground truth, and replanning along the way")
    runs = transferred(case, args, plan, before, parameters, rng)
    cost = case.cost(case.native())
    costs = {name: cost.value(run.states, run.controls)[0] for name, run in runs.items()}
    measured = {name: case.measure(run.states) for name, run in runs.items()}
    head = ("run", "cost", *measured[OURS])
    rows = tuple(
        (name, f"{costs[name].sum():.2f}", *(f"{round(float(v[0]), 2) + 0.0:.2f}" for v in measured[name].values()))
        for name in runs
    )
    for row in (head, *rows):
        print(
            f"  {row[0]:44s} " + " ".join(f"{cell:>{max(len(name), 8)}s}" for name, cell in zip(head[1:], row[1:], strict=True))
        )
    print(idle_note(args.id, costs), end="")
    progress.say("drawing")
    shown = ((case.native(), OURS), (case.ground_truth(), AGAIN), (case.ground_truth(), BEFORE), (case.ground_truth(), THEIRS))
    films = [film(case, world, runs[name].states[0]) for world, name in shown]
    for name, pair in (("demo", (0, 1)), ("bought", (2, 3))):
        labels = (shown[pair[0]][1].removeprefix("ground truth, "), shown[pair[1]][1].removeprefix("ground truth, "))
        both = side_by_side(films[pair[0]], films[pair[1]], labels)
        write_gif(args.out / f"{name}.gif", both, fps=min(1.0 / args.period, FASTEST))
    seconds = progress.seconds
    write_json(
        args.out / "demo.json",
        {"id": args.id, "rows": rows, "seconds": seconds, "ground_truth_steps": steps, "seed": args.seed},
    )
    sections = (
        Section("What identification bought", bought(costs), head, rows),
        Section(
            "Before and after identification",
            "Plans of both engines on the ground truth, in open loop.",
            images=(embed_image(args.out / "bought.gif"),),
        ),
        Section("Path and cost", images=(embed(plot(case, runs, costs, args.period)),)),
        Section("Planned and replanned", images=(embed_image(args.out / "demo.gif"),)),
        Section("What the numbers mean", f"No plan saw the ground truth. {meaning(case)}"),
        Section("Fits", links=(("stages " + ", ".join(stages), "fit/report.html"),)),
    )
    sub = f"{args.id}: {steps:,} steps of the ground truth were recorded; took {seconds:.0f} s"
    write_atomically(args.out / "report.html", render_sections("Record, identify, plan, transfer", sub, sections).encode())
    progress.say(f"report: {args.out / 'report.html'}")


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
