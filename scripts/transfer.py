"""The transfer study: what was planned or learned in our engine, before and after identification, run on the MuJoCo twin.

    python scripts/transfer.py --study superball            # iLQG, all conditions, budget curve: days on 2 cores, hours on 32
    python scripts/transfer.py --study superball --mpc      # the same conditions under sampling MPC (MPPI): hours on 2 cores
    python scripts/transfer.py --study prism                # SUPERball's constants, no new data, a tenth of Earth's gravity
    python scripts/transfer.py --study superball --rl       # the same with PPO
    python scripts/transfer.py --study vine_grow --mpc      # a vine robot's tip to a goal; also vine_navigate, and --rl
    python scripts/transfer.py --study smoke                # every part once, in a minute

Results go to results/transfer_<study>: report.html, table.md, summary.json, one JSON per run. The study and its thresholds are
written there before the first run. Stop it with Ctrl-C; the same command goes on where it was.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: runs share the processors, and rounding does not depend on them

import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro
from numpy.typing import NDArray
from transfer_vine import SUBSTEPS, VineCase, keywords

from agents.planning.cost import Cost, FeatureCost
from agents.planning.plan import random_controls
from agents.study.jobs import Failure, Study, Threshold, read_json, register, run_jobs
from agents.study.planned import PlanWorker
from agents.study.protocol import CONDITIONS, BatchPolicy, Corrected, Identified, check_study, possible
from agents.study.report import write_report
from softgym_envs.core.errors import DataError, OptionError, SoftgymError
from softgym_envs.core.files import git_commit
from softgym_envs.core.parameters import ParameterDistribution, Parameters, UniformParameters
from softgym_envs.core.simulator import Simulator
from softgym_envs.core.trajectory import DataSplit, TrajectorySet
from softgym_envs.tensegrity import TensegrityModel, TensegrityParameters, prism, superball
from softgym_envs.tensegrity.dynamics import TensegritySimulator
from softgym_envs.tensegrity.experiments import record_in_air, record_throw
from softgym_envs.tensegrity.mujoco import TensegrityTwin, TwinParameters, native_constants
from softgym_envs.tensegrity.parameters import CONTACT
from softgym_envs.tensegrity.picture import PICTURE
from softgym_envs.tensegrity.poses import disturbance_scale
from softgym_envs.tensegrity.residual import random_weights
from sysid import FitProblem, LevenbergOptions, ShootingOptions, fit_residual, multiple_shooting, one_step

Array = NDArray[np.float64]

BODY = ("cable_stiffness", "cable_damping", "motor_speed", "motor_gain")
GUESS = {"cable_stiffness": 3000.0, "cable_damping": 400.0, "motor_speed": 3.0, "motor_gain": 0.03}
"""Constants before identification: a factor of about three off, as from a data sheet."""
LONGEST = 5000
"""Physics steps of the longest recording."""


@dataclass(frozen=True)
class Args:
    """Run or go on with a transfer study."""

    study: Literal["superball", "prism", "vine_grow", "vine_navigate", "smoke"]
    """Which study."""
    mpc: bool = False
    """Replan at every control step by sampling MPC instead of planning once with iLQG."""
    rl: bool = False
    """Learn with PPO instead of planning with iLQG."""
    ray: bool = False
    """Run on a Ray cluster instead of in processes; the numbers are the same."""
    workers: int | None = None
    """Processes; none: one per processor; 1: no processes at all."""
    seeds: int | None = None
    """Fewer or more seeds than the study's own."""
    datasets: int | None = None
    """Fewer or more data sets than the study's own."""
    starts: int | None = None
    """Fewer or more perturbed starts than the study's own."""
    conditions: tuple[str, ...] = ()
    """Only these conditions; none: the study's own. The nominal condition and the oracle must be among them."""
    out: Path | None = None
    """Folder; none: results/transfer_<study>."""
    video: bool = True
    """Draw the identified condition beside the nominal one."""


TUNING_STEPS = 6_100_000
"""Steps of the twin that went into choosing samples, iterations and horizon of the sampling MPC, the same everywhere: 198
episodes planned in the engine, and 4 planned in the twin itself."""
TRAIN_STEPS = 150_000
"""Control steps of a training by PPO: 1 to 4 minutes in our engine, 13 to 16 in the twin, with another run beside it."""
CONTACT_STARTS = 4
"""Starts of the search for contact constants: no friction at all is a local minimum of it."""
CONTACT_SEARCH = 1.0
"""How much of the beginning of every throw that search sees [s]."""


FILM_FRAMES = 20
"""At most, so that the report stays below a megabyte."""


@dataclass(frozen=True)
class Both:
    """Two independent distributions over different constants."""

    first: ParameterDistribution
    second: ParameterDistribution

    def sample(self, rng: np.random.Generator, nominal: Parameters) -> dict[str, float]:
        """Draw from both."""
        return {**self.first.sample(rng, nominal), **self.second.sample(rng, nominal)}


@dataclass(frozen=True)
class TensegrityCase:
    """A tensegrity robot as an `agents.study.protocol.Case`."""

    robot: Literal["superball", "prism"]
    gravity: float = 9.81
    """[m/s^2]"""
    target: tuple[float, float, float] = (1.0, 0.0, 0.0)
    """Velocity of the centre of mass [m/s]."""
    weights: tuple[float, float, float] = (1.0, 0.5, 0.1)
    data_from: Literal["superball", "prism"] = "superball"
    """Robot that is recorded, at Earth's gravity."""
    segment: int = 50
    """Rows of a segment when contact is fitted."""
    fit_iterations: int = 100

    @property
    def name(self) -> str:
        """For study.json."""
        return repr(self)

    @property
    def env_id(self) -> str:
        """Of the same task."""
        return f"softgym_envs:{'TensegrityRoll-v0' if self.robot == 'superball' else 'TensegrityCrawl-v0'}"

    @property
    def hints(self) -> dict[str, Array]:
        """For pictures."""
        return {"velocity": np.array(self.target)}

    @cached_property
    def model(self) -> TensegrityModel:
        """The structure."""
        return superball() if self.robot == "superball" else prism()

    def native(self) -> TensegritySimulator:
        """Our engine with the contact that identifies best."""
        return TensegritySimulator(self.model, contact="patch")

    def truth(self) -> TensegrityTwin:
        """The MuJoCo twin."""
        return TensegrityTwin(self.model)

    def truth_parameters(self) -> TwinParameters:
        """The twin's defaults at this gravity."""
        return TwinParameters(gravity=self.gravity)

    def recorded(self) -> TensegrityCase:
        """Recordings are made at Earth's gravity."""
        return replace(self, robot=self.data_from, gravity=9.81)

    def adapt(self, parameters: Parameters) -> Parameters:
        """The same constants at this gravity."""
        gravity = self.gravity if parameters.batch is None else np.full(parameters.batch, self.gravity)
        return parameters.replace(gravity=gravity)

    def default(self) -> TensegrityParameters:
        """Before identification."""
        return TensegrityParameters(gravity=self.gravity, **GUESS)

    def best(self) -> Parameters:
        """What the twin's settings mean in our engine."""
        return native_constants(self.truth_parameters())

    def wide(self) -> UniformParameters:
        """Body constants within a factor of four of the guess, contact constants nearly anywhere."""
        specs, intervals = TensegrityParameters.specs(), {}
        for name in (*BODY, *CONTACT["patch"]):
            low, high = specs[name].bounds
            value = float(getattr(self.default(), name))
            if specs[name].scale == "log":
                intervals[name] = (max(value / 4, low), min(value * 4, high))
            else:
                intervals[name] = (max(value - 0.25 * (high - low), low), min(value + 0.25 * (high - low), high))
        return UniformParameters(intervals)

    def cost(self, simulator: Simulator) -> Cost:
        """sum_t w . (v_com - target)^2, [Wang2020] V-C."""
        return FeatureCost(simulator, self.model.com_velocity, np.array(self.target), np.array(self.weights))

    def starts(self, rng: np.random.Generator, count: int) -> Array:
        """The rest pose after 2 s on the ground in our engine, then shifted, turned and pushed at random."""
        model = self.model
        rest = model.place_on_ground(model.state_from_nodes(model.nodes))
        settled, _ = self.native().step(rest[None], np.zeros((1, model.nu)), self.best(), substeps=2000)
        size = np.tile(np.array([0.005] * 3 + [0.01] * 3 + [0.02] * 6), model.num_rods)
        kick = np.zeros((count, model.layout.n))
        rods = model.layout.tangent_slices[0]
        kick[:, rods] = rng.standard_normal((count, rods.stop)) * size
        kick[:1] = 0.0
        states = model.layout.retract(np.repeat(settled, count, axis=0), kick)
        below = np.minimum(model.clearance(states) - float(model.clearance(settled)[0]), 0.0)
        model.split(states)[0][..., 2] -= below[:, None]  # no deeper in the ground than at rest
        return states

    def first_policy(self, rng: np.random.Generator) -> BatchPolicy:
        """SUPERball: the hand-found roll of the viewer with a random strength, heading and disturbance; prism: random waves."""
        limit, nu = self.model.control_limit, self.model.nu
        if self.robot == "prism":
            rate, phase, size = rng.uniform(0.3, 1.5), rng.uniform(0.0, 2 * np.pi, nu), rng.uniform(0.3, 1.0)
            return lambda x, t: np.tile(limit * size * np.sin(2 * np.pi * rate * 0.1 * t + phase), (len(x), 1))
        angle, size = rng.normal(0.0, 0.3), rng.uniform(0.5, 1.0)
        heading = np.array([np.cos(angle), np.sin(angle)])
        noise = random_controls(self.truth(), 50, rng=rng, amplitude=0.2, knots=10)

        def roll(x: Array, t: int) -> Array:
            actions = np.stack([PICTURE.heading_action(self.model, row, heading) for row in x])
            return np.clip(size * limit * actions + noise[t % 50], -limit, limit)

        return roll

    def force_scale(self) -> Array:
        """A kick of 1 m/s for every rod."""
        return disturbance_scale(self.model)

    def record(self, rng: np.random.Generator, steps: int) -> DataSplit:
        """Half of the steps in the air under random commands, half thrown; three more throws to judge predictions by."""
        air = max(steps // 2, 1)
        train = [record_in_air(self.truth(), rng, duration=1e-3 * min(air, LONGEST))]
        left = steps - train[0].num_steps
        while left > 0:
            train.append(record_throw(self.truth(), rng, duration=1e-3 * min(left, LONGEST)))
            left -= train[-1].num_steps
        test = [record_throw(self.truth(), np.random.default_rng(i), duration=1e-3 * LONGEST) for i in range(3)]
        return DataSplit(TrajectorySet(tuple(train)), TrajectorySet(()), TrajectorySet(tuple(test)))

    def fit(self, data: DataSplit) -> Identified:
        """Cables and motors from the recording in the air, then contact from the throws."""
        air, throws = data.train[0], data.train[1:]
        if not len(throws):
            raise DataError("there is no throw to identify contact from: record more steps")
        options = ShootingOptions(errors="clustered", levenberg=LevenbergOptions(max_iterations=self.fit_iterations))
        held = replace(self.native(), fixed_rod=0)
        body = one_step(FitProblem(held, TrajectorySet((air,)), free=BODY, start=self.default()), options)
        found = fit_contact(self.native(), body.parameters, throws, self.segment, options)
        spread = Both(body.distribution(), found.distribution())
        return Identified(found.parameters, spread, f"{body.verdicts[0].text}; {found.verdicts[0].text}")

    def residual(self, data: DataSplit, fit: Identified, rng: np.random.Generator) -> Corrected:
        """A correction of contact, learned from the throws of the recorded robot at Earth's gravity."""
        source = self.recorded()
        found = fit_residual(source.native(), data.train[1:], source.adapt(fit.parameters), random_weights(rng))
        return Corrected(replace(self.native(), residual=found.simulator.residual), found.summary())

    def measure(self, states: Array) -> dict[str, Array]:
        """Way along and across the command [m]."""
        way = self.position(states)[:, -1] - self.position(states)[:, 0]
        return {"along [m]": way[:, 0], "across [m]": np.abs(way[:, 1])}

    def position(self, states: Array) -> Array:
        """Centre of mass."""
        return self.model.center_of_mass(states)


def fit_contact(
    simulator: TensegritySimulator, start: Parameters, throws: TrajectorySet, segment: int, options: ShootingOptions
) -> Any:
    """Contact constants from throws, the body held: a search over single steps, then segments from what it found."""
    beginnings = TrajectorySet(tuple(t.window(0.0, CONTACT_SEARCH) for t in throws))
    problem = FitProblem(simulator, beginnings, free=CONTACT["patch"], start=start, free_motion=True)
    near = one_step(problem, replace(options, starts=CONTACT_STARTS, jacobian="differences"))
    problem = replace(problem, data=throws, start=near.parameters)
    return multiple_shooting(problem, replace(options, segment_steps=min(segment, min(t.num_steps for t in throws))))


# --- studies ------------------------------------------------------------------------------------------------------------

PLANNED = (
    "zero", "guess", "nominal", "wide", "forces", "identified", "posterior", "residual", "identified_mpc", "true_constants",
    "network", "truth_budget", "truth_sampled", "truth",
)  # fmt: skip
REPLANNED = (
    "zero", "nominal", "wide", "forces", "identified", "posterior", "residual", "true_constants", "network", "truth_budget",
    "truth",
)  # fmt: skip
LEARNED = ("zero", "nominal", "wide", "forces", "identified", "posterior", "true_constants", "truth_budget", "truth")
SUPERBALL_THRESHOLDS = (
    Threshold("identified", "share", 0.95, reason="issue 3: 95 % of the oracle with 10 000 training steps"),
    Threshold("posterior", "share", 0.95, reason="the robust variant"),
    Threshold("identified", "improvement", 0.95, "truth_budget", reason="beats the truth with the same steps"),
    Threshold("identified", "improvement", 0.95, "nominal", reason="identification pays"),
    Threshold("identified", "improvement", 0.75, "wide", reason="beats the cheap rival: randomisation"),
    Threshold("identified", "improvement", 0.75, "forces", reason="beats the cheap rival: random forces"),
    Threshold("identified", "improvement", 0.95, "network", reason="beats the black box"),
)
PRISM_CONDITIONS = tuple(a for a in PLANNED if a != "identified_mpc")
PRISM_THRESHOLDS = (Threshold("identified", "share", 0.95, reason="issue 3: no new data"),)
BUDGETS = (10_000, 1_000, 2_500, 5_000, 20_000)
VINE_THRESHOLDS = (
    Threshold("identified", "share", 0.9, reason="nearly what planning on the truth itself gives"),
    Threshold("identified", "improvement", 0.95, "nominal", reason="identification pays"),
)


def build_vine(args: Args) -> tuple[VineCase, Study]:
    """Case and study of a vine robot.

    Raises:
        OptionError: Neither --mpc nor --rl: these studies replan, or learn.
    """
    if not (args.mpc or args.rl):
        raise OptionError(f"--study {args.study} needs --mpc or --rl")
    case = VineCase("grow" if args.study == "vine_grow" else "navigate")
    kind: Literal["mpc", "rl"] = "rl" if args.rl else "mpc"
    study = Study(
        f"{args.study}_{kind}", kind, LEARNED if args.rl else REPLANNED, (100 * SUBSTEPS,), datasets=1,
        starts=50 if args.rl else 5, horizon=25, substeps=SUBSTEPS, thresholds=VINE_THRESHOLDS, failure_cost=100.0,
        train_steps=TRAIN_STEPS if args.rl else 0,
    )  # fmt: skip
    return case, _changed(study, case, args)


def build(args: Args) -> tuple[TensegrityCase, Study]:
    """Case and study."""
    name = f"{args.study}_{'rl' if args.rl else 'plan'}"
    if args.study == "superball":
        case = TensegrityCase("superball")
        study = Study(
            name, "plan", PLANNED, BUDGETS, curve=("identified", "truth_budget"), datasets=5, seeds=5, starts=10,
            thresholds=SUPERBALL_THRESHOLDS, failure_cost=200.0,
        )  # fmt: skip
    elif args.study == "prism":
        case = TensegrityCase("prism", gravity=0.981, target=(0.2, 0.0, 0.0), weights=(25.0, 12.5, 2.5))
        study = Study(
            name, "plan", PRISM_CONDITIONS, BUDGETS[:1], datasets=5, seeds=5, starts=10, horizon=150,
            thresholds=PRISM_THRESHOLDS, failure_cost=600.0,
        )  # fmt: skip
    else:
        case = TensegrityCase("prism", data_from="prism", segment=20, fit_iterations=2)
        study = Study(
            name, "plan", PLANNED, (400, 200), curve=("identified",), datasets=1, seeds=1, starts=2, horizon=4, restarts=1,
            iterations=1, ensemble=2, failure_cost=200.0,
        )  # fmt: skip
    if args.mpc:
        study = replace(
            study, name=f"{args.study}_mpc", kind="mpc", tuning_steps=TUNING_STEPS,
            conditions=tuple(a for a in REPLANNED if a in study.conditions),
            curve=tuple(a for a in study.curve if a in REPLANNED),
            thresholds=tuple(t for t in study.thresholds if {t.condition, t.versus or t.condition} <= set(REPLANNED)),
        )  # fmt: skip
    if args.rl:
        study = replace(
            study, kind="rl", conditions=LEARNED, budgets=study.budgets[:1], curve=(),
            starts=2 if args.study == "smoke" else 50,
            train_steps=128 if args.study == "smoke" else TRAIN_STEPS,
            thresholds=tuple(t for t in study.thresholds if {t.condition, t.versus or t.condition} <= set(LEARNED)),
        )  # fmt: skip
    return case, _changed(study, case, args)


def _changed(study: Study, case: TensegrityCase | VineCase, args: Args) -> Study:
    """The study with what the arguments change; thresholds and curves of conditions that are left out go."""
    conditions = args.conditions or possible(case, study.conditions)
    return replace(
        study,
        conditions=conditions,
        curve=tuple(a for a in study.curve if a in conditions),
        thresholds=tuple(t for t in study.thresholds if {t.condition, t.versus or t.condition} <= set(conditions)),
        seeds=args.seeds or study.seeds,
        datasets=args.datasets or study.datasets,
        starts=args.starts or study.starts,
    )


def worker(args: Args, case: TensegrityCase | VineCase, study: Study, out: Path) -> Any:
    """What runs a job."""
    if not args.rl:
        return PlanWorker(case, study, out)
    from agents.study.learned import PolicyWorker

    if isinstance(case, VineCase):
        return PolicyWorker(case, study, out, case.env_id, common=keywords(case))
    common = {} if case.robot == "superball" else {"gravity": case.gravity}
    return PolicyWorker(case, study, out, case.env_id, common=common, native={"simulator_options": {"contact": "patch"}})


def film(case: TensegrityCase | VineCase, out: Path) -> tuple[str, ...]:
    """A video of the identified condition beside the nominal one, both on the truth; () where there are no replays."""
    from softgym_envs.envs.drawing import render_state
    from softgym_envs.rendering import PygameRenderer
    from softgym_envs.rendering.video import side_by_side, write_gif

    frames, truth = [], case.truth()
    for condition in ("nominal", "identified"):
        replays = sorted((out / "replays").glob(f"{condition}_b*_d0_s0.json"))
        if not replays:
            return ()
        renderer = PygameRenderer(size=(320, 240))
        states = np.array(read_json(replays[0])["states"])
        skip = -(-len(states) // FILM_FRAMES)
        pictures = [render_state(truth, x, case.hints, renderer) for x in states[::skip]]
        frames.append([p for p in pictures if p is not None])
    write_gif(out / "transfer.gif", side_by_side(frames[0], frames[1], ("before identification", "identified")), fps=10 / skip)
    return ("transfer.gif",)


def chosen(args: Args) -> tuple[TensegrityCase | VineCase, Study]:
    """The case and the study, checked."""
    if args.study.startswith("vine"):
        vine, study = build_vine(args)
        check_study(study, vine)
        return vine, study
    case, study = build(args)
    check_study(study, case)
    return case, study


def main(args: Args) -> int:
    """Register the study, run what is missing, write the report; 0 if all runs are there, 1 if some failed, 2 for bad input."""
    out = args.out or Path("results") / f"transfer_{args.study}{'_rl' if args.rl else '_mpc' if args.mpc else ''}"
    try:
        case, study = chosen(args)
        print(f"study {study.name}, seed {study.seed}, commit {git_commit()}", flush=True)
        register(study, case.name, out, provenance={"commit": git_commit(), "command": command(args)})
        for threshold in study.thresholds:
            print(f"  threshold: {threshold.text}")
        executor: Literal["serial", "processes", "ray"] = "ray" if args.ray else "serial" if args.workers == 1 else "processes"
        failures: tuple[Failure, ...] = ()
        stopped = False
        try:
            failures = run_jobs(
                study.jobs(CONDITIONS),
                worker(args, case, study, out),
                out,
                executor=executor,
                workers=args.workers,
                progress=report_line,
            )
        except KeyboardInterrupt:
            stopped = True  # the report says how many runs are missing
            print("interrupted: a report of the runs so far; the same command goes on", file=sys.stderr)
        summary = write_report(study, out, images=film(case, out) if args.video else ())
    except SoftgymError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130
    for verdict in summary.verdicts:
        print(verdict.text)
    print(f"report: {out / 'report.html'}")
    return 130 if stopped else 1 if failures else 0


def command(args: Args) -> str:
    """What to type for the same study."""
    given = [f"--study {args.study}", "--mpc" if args.mpc else "", "--rl" if args.rl else "", "--ray" if args.ray else ""]
    given += [f"--{name} {value}" for name in ("seeds", "datasets", "starts") if (value := getattr(args, name)) is not None]
    given += [f"--conditions {' '.join(args.conditions)}"] if args.conditions else []
    return " ".join(["python scripts/transfer.py", *filter(None, given)])


def report_line(text: str) -> None:
    """One line of progress."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
