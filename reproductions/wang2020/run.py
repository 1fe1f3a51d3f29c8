"""Identification of the tensegrity's parameters from its MuJoCo model ([Wang2020] V-A, V-B), and from our own noisy data.

    python reproductions/wang2020/run.py --part air  # one recording -> cables, motors
    python reproductions/wang2020/run.py --part contact  # throws -> contact
    python reproductions/wang2020/run.py --part networks
    python reproductions/wang2020/run.py --part recovery   do intervals cover the ground truth?

Results: expected.json. A fit that is worse than its own start, on the recordings it was fitted to, has
failed: the file then says so, and holds no figure of it (`reported`).
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import cma
import numpy as np
import tyro
from numpy.typing import NDArray
from scipy.stats import binom

from softgym_envs.core.files import git_commit, read_json, write_json
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.experiments import record_in_air, record_throw
from softgym_envs.systems.tensegrity.model import TensegrityModel, prism
from softgym_envs.systems.tensegrity.mujoco import MujocoParameters, MujocoTensegrity
from softgym_envs.systems.tensegrity.parameters import CONTACT, TensegrityParameters
from softgym_envs.systems.tensegrity.procedure import BODY
from softgym_envs.systems.tensegrity.residual import random_weights
from sysid import FitProblem, fit_residual, multiple_shooting
from sysid.diagnostics.result import FitResult
from sysid.fitting.residual import ResidualOptions
from sysid.fitting.shooting import ShootingOptions, one_step, single_shooting

sys.path.insert(0, str(Path(__file__).parents[2]))  # `reproductions` is not installed
from reproductions.wang2020.adam import AdamOptions, adam
from reproductions.wang2020.contact_network import train

Array = NDArray[np.float64]
EMPTY = TrajectorySet(())
SETTINGS: dict[str, dict[str, float]] = {
    "Earth": {},
    "a tenth of Earth's gravity": {"gravity": 0.981},
    "the paper's decimetres in SI": {"gravity": 0.981, "torsional_friction": 0.1, "rolling_friction": 0.1},
}
"""Thrown MuJoCo models: "friction 1 1 1" has a lever of 1 dm in the paper's units, and its g is 9.81 dm/s^2."""

MOST, SHORT = 5, 1.0
"""Largest number of throws of 5 s; of more than that, only the first second of each [s]."""
THEIRS = "the paper's decimetres in SI"
PAPER = {
    "contact_bias": (1e-3, 1.0),
    "restitution": (-0.99, 0.99),
    "sliding_damping": (0.0, 0.99),
    "friction": (0.0, 1.0),
    "spin_damping": (0.0, 0.01),
}
"""Ranges of the five contact parameters, [Wang2020] IV-B."""
RUNS, EVALUATIONS, LOST = 3, 600, 10.0
"""Runs of CMA-ES, rollouts of each, and the error of a rollout that diverges [m]."""


@dataclass
class Args:
    """Options of the study."""

    part: Literal["air", "contact", "networks", "recovery"]
    """See the module docstring."""
    tests: int = 10
    """Held-out recordings per setting."""
    iterations: int = 40
    """Iterations of the correction's training."""
    seeds: int = 50
    """Noisy recordings of the recovery study."""
    out: Path = Path("reproductions/wang2020")
    """Folder of the JSON."""


def air(args: Args) -> dict[str, object]:
    """k/m, c/m and the motors from one recording; also by the paper's procedure; open-loop error on held-out recordings."""
    mujoco_model, engine = MujocoTensegrity(), replace(TensegritySimulator(), fixed_rod=0)
    train, validation = (record_in_air(mujoco_model, np.random.default_rng(seed)) for seed in (0, 1))
    start = TensegrityParameters(cable_stiffness=3000.0, cable_damping=400.0, motor_speed=3.0, motor_gain=0.03)
    problem = FitProblem(
        engine, DataSplit(TrajectorySet((train,)), TrajectorySet((validation,)), EMPTY), free=BODY, start=start
    )
    fit = one_step(problem)
    procedure = adam(problem, AdamOptions())
    result: dict[str, object] = {"required": {"ratios": 1e-6, "position error [m]": 1e-8}, "ground_truth_steps": [5000, 5000]}
    for name, found in (("Gauss-Newton, one step", fit), ("Adam, 40 epochs (the paper's procedure)", procedure)):
        p = constants_of(found)
        ground_truth = MujocoParameters()
        errors = {
            "k/m": float(p.cable_stiffness / p.rod_mass / (ground_truth.cable_stiffness / ground_truth.rod_mass) - 1),
            "c/m": float(p.cable_damping / p.rod_mass / (ground_truth.cable_damping / ground_truth.rod_mass) - 1),
            "motor a": float(p.motor_speed / ground_truth.motor_speed - 1),
            "motor b": float(p.motor_gain / ground_truth.motor_gain - 1),
        }
        entry: dict[str, object] = {"relative_error": errors, "seconds": found.seconds}
        for hold in (0.001, 0.1):
            tests = [record_in_air(mujoco_model, np.random.default_rng(100 + i), hold=hold) for i in range(args.tests)]
            entry[f"position error after 5000 steps, commands held {1000 * hold:g} ms [m]"] = max(
                open_loop_error(engine, p, test) for test in tests
            )
        before, after = (open_loop_error(engine, each, train) for each in (start, p))
        result[name] = reported(entry, "position error after its own recording [m]", before, after)
        print(name, json.dumps(result[name], indent=1), flush=True)
    return result


def constants_of(fit: FitResult) -> TensegrityParameters:
    """The fit's parameters, of the class that our engine takes."""
    assert isinstance(fit.parameters, TensegrityParameters)
    return fit.parameters


def open_loop_error(engine: TensegritySimulator, parameters: TensegrityParameters, recording: Trajectory) -> float:
    """Largest distance of any node at the end of a recording [m]."""
    states, _ = engine.rollout(recording.values[:1], recording.controls[None], parameters)
    model = engine.model
    ends = model.node_positions(states[:, -1]) - model.node_positions(recording.values[None, -1])
    return float(np.linalg.norm(ends, axis=-1).max())


def contact(args: Args) -> dict[str, object]:
    """Error of the centre of mass at 4 s over its path, on held-out throws; drift at rest. Continues where it was stopped."""
    mujoco_model = MujocoTensegrity()
    result: dict[str, Any] = kept(args).get("contact", {})
    for (mode, count), (setting, changes) in itertools.product(
        (("patch", 1), ("patch", 5), ("paper", 1), ("paper", 5), ("stick", 1)), SETTINGS.items()
    ):
        name = f"{setting}: {mode}, {count} throw(s)"
        if name in result or (count > 1 and setting != ("Earth" if mode == "patch" else THEIRS)):
            continue
        parameter_values = MujocoParameters(**changes)
        throws = [record_throw(mujoco_model, np.random.default_rng(i), parameters=parameter_values) for i in range(count)]
        tests = [
            record_throw(mujoco_model, np.random.default_rng(1000 + i), parameters=parameter_values) for i in range(args.tests)
        ]
        result[name] = {**fit_throws(mode, throws, tests, mujoco_model, parameter_values), "commit": git_commit()}
        keep(args, result)
        print(name, json.dumps(result[name], indent=1), flush=True)
    return result


def fit_throws(
    mode: str,
    throws: list[Trajectory],
    tests: list[Trajectory],
    mujoco_model: MujocoTensegrity,
    parameter_values: MujocoParameters,
) -> dict[str, object]:
    """One row of the contact study: errors of the fit on held-out throws, and of the parameters it began at."""
    engine, start = TensegritySimulator(contact=mode), TensegrityParameters(gravity=float(parameter_values.gravity))
    begin = time.process_time()
    if mode == "patch":
        fit = fit_patch(engine, throws, start)
        found, diagnostic = constants_of(fit), fit.diagnostics[0].sentence()
        told: dict[str, object] = {"parameters": {e.name: e.line() for e in fit.estimates}, "diagnostic": diagnostic}
    else:
        found = fit_law(engine, throws, start)
        told = {"parameters": {name: float(getattr(found, name)) for name in PAPER}}
    seconds = time.process_time() - begin
    before, after = (float(distances(engine, throws, p)[0]) for p in (start, found))
    entry = {
        **judge(engine, found, tests),
        "error over path of the start": judge(engine, start, tests)["error over path"],
        **told,
        "processor [s]": seconds,
        "drift at rest [m in 5 s]": drift_at_rest(engine, found, mujoco_model, parameter_values),
    }
    return reported(entry, "mean error on its own throws [m]", before, after)


def reported(entry: dict[str, object], measure: str, before: float, after: float) -> dict[str, object]:
    """The row of a fit beside its start, both on the recordings it was fitted to; without figures where the fit is worse.

    >>> reported({"error": 0.1}, "cost", 2.0, 1.0)
    {'error': 0.1, 'cost': {'start': 2.0, 'fit': 1.0}}
    >>> reported({"error": 0.1}, "cost", 2.0, float("nan"))
    {'failed': 'the fit is worse than its start', 'cost': {'start': 2.0, 'fit': nan}}
    """
    better = after <= before
    return {**(entry if better else {"failed": "the fit is worse than its start"}), measure: {"start": before, "fit": after}}


def fit_patch(engine: TensegritySimulator, throws: list[Trajectory], start: TensegrityParameters) -> FitResult:
    """Identify the parameters of contact `patch` by segments of 50 ms, from three starts."""
    data = DataSplit(TrajectorySet(tuple(throws)), EMPTY, EMPTY)
    problem = FitProblem(engine, data, free=CONTACT[engine.contact], start=start, free_motion=True)
    return multiple_shooting(problem, ShootingOptions(segment_steps=50, errors="clustered", starts=3))


def fit_law(engine: TensegritySimulator, throws: list[Trajectory], start: TensegrityParameters) -> TensegrityParameters:
    """Fit the paper's five parameters to the centre of mass over whole throws, by CMA-ES from `start` and random places.

    Segments of 50 ms end at minima without friction, whose rollouts are worse than those of `start`.
    """
    low, high = np.array(list(PAPER.values())).T

    def law(unit: Array) -> TensegrityParameters:
        return start.replace(**dict(zip(PAPER, (low + unit * (high - low)).T, strict=True)))

    best, found = np.inf, start
    for seed in range(1, RUNS + 1):
        own = (np.array([float(getattr(start, name)) for name in PAPER]) - low) / (high - low)
        begin = own.clip(0.0, 1.0) if seed == 1 else np.random.default_rng(seed).uniform(0.2, 0.8, len(PAPER))
        options = {"bounds": [0, 1], "popsize": 20, "maxfevals": EVALUATIONS, "seed": seed, "verbose": -9}
        strategy = cma.CMAEvolutionStrategy(begin, 0.25, options)
        while not strategy.stop():
            asked = np.array(strategy.ask())
            strategy.tell(list(asked), distances(engine, throws, law(asked)).tolist())
        if strategy.best.f < best:
            best, found = strategy.best.f, law(np.asarray(strategy.best.x))
    return found


def distances(engine: TensegritySimulator, throws: list[Trajectory], parameters: TensegrityParameters) -> Array:
    """Mean distance of the centre of mass from that of throws, over whole rollouts, for each row of parameters (B,) [m]."""
    rows, found = parameters.batch or 1, []
    for throw in throws:
        start, still = np.repeat(throw.values[:1], rows, axis=0), np.zeros((rows, throw.num_steps, engine.nu))
        states, status = engine.rollout(start, still, parameters)
        error = np.linalg.norm(engine.model.center_of_mass(states) - engine.model.center_of_mass(throw.values), axis=-1)
        found.append(np.where(status == 0, np.nan_to_num(error, nan=LOST).mean(axis=1), LOST))
    return np.asarray(np.mean(found, axis=0))


def judge(engine: TensegritySimulator, parameters: TensegrityParameters, tests: list[Trajectory]) -> dict[str, object]:
    """Errors of a rollout from the starts of throws."""
    ground_truth = np.stack([test.values for test in tests])[:, :4001]
    states, _ = engine.rollout(ground_truth[:, 0], np.zeros((len(tests), 4000, engine.nu)), parameters)
    return errors_of(engine.model, np.asarray(states), ground_truth)


def errors_of(model: TensegrityModel, states: Array, ground_truth: Array) -> dict[str, object]:
    """Mean error at 4 s over mean path length, for all, slow and fast throws (split at the median path); and before."""
    com = model.center_of_mass(ground_truth)
    path = np.linalg.norm(np.diff(com, axis=1), axis=-1).sum(axis=1)
    errors = np.linalg.norm(model.center_of_mass(states) - com, axis=-1)
    error = errors[:, -1]
    slow = path <= np.median(path)
    return {
        "error after 0.5, 1, 2, 4 s [m]": [round(float(errors[:, k].mean()), 4) for k in (500, 1000, 2000, 4000)],
        "error over path": float(error.mean() / path.mean()),
        "slow": float(error[slow].mean() / path[slow].mean()),
        "fast": float(error[~slow].mean() / path[~slow].mean()),
        "path [m]": [round(float(p), 3) for p in path],
        "error [m]": [round(float(e), 4) for e in error],
    }


def drift_at_rest(
    engine: TensegritySimulator,
    parameters: TensegrityParameters,
    mujoco_model: MujocoTensegrity,
    parameter_values: MujocoParameters,
) -> dict[str, float]:
    """Largest motion of any node in 5 s, from the MuJoCo model's rest after 60 s; in the engine and in the MuJoCo model."""
    model = engine.model
    state = model.place_on_ground(mujoco_model.initial_state()[0])[None]
    state, _ = mujoco_model.step(state, np.zeros((1, mujoco_model.nu)), parameter_values, substeps=60_000)
    own, _ = engine.step(state, np.zeros((1, engine.nu)), parameters, substeps=60_000)
    moved = {}
    for name, simulator, p, start in (
        ("engine", engine, parameters, own),
        ("mujoco_model", mujoco_model, parameter_values, state),
    ):
        end, _ = simulator.step(start, np.zeros((1, engine.nu)), p, substeps=5000)
        moved[name] = float(np.linalg.norm(model.node_positions(end) - model.node_positions(start), axis=-1).max())
    return moved


def networks(args: Args) -> dict[str, object]:
    """The paper's contact law from a throw, with a correction from 5, 30 and 50, and a network in its place (5)."""
    result: dict[str, Any] = kept(args).get("networks", {})
    mujoco_model, parameter_values = MujocoTensegrity(), MujocoParameters(**SETTINGS[THEIRS])
    tests = [
        record_throw(mujoco_model, np.random.default_rng(1000 + i), parameters=parameter_values) for i in range(args.tests)
    ]
    engine = TensegritySimulator(contact="paper")

    def throws(count: int) -> TrajectorySet:
        seconds = 5.0 if count <= MOST else SHORT
        made = (
            record_throw(mujoco_model, np.random.default_rng(i), duration=seconds, parameters=parameter_values)
            for i in range(count)
        )
        return TrajectorySet(tuple(made))

    begin_at = TensegrityParameters(gravity=float(parameter_values.gravity))

    def law() -> dict[str, object]:
        begin, own = time.process_time(), list(throws(1))
        fit = fit_law(engine, own, begin_at)
        kept = {name: float(getattr(fit, name)) for name in PAPER}
        entry = {**judge(engine, fit, tests), "parameters": kept, "processor [s]": time.process_time() - begin}
        before, after = (float(distances(engine, own, p)[0]) for p in (begin_at, fit))
        return reported(entry, "mean error on its own throws [m]", before, after)

    def corrected(count: int) -> dict[str, object]:
        begin, data = time.process_time(), throws(count)
        options = ResidualOptions(iterations=args.iterations, patience=args.iterations, worth=1.0)
        found = fit_residual(engine, data, given, random_weights(np.random.default_rng(0)), options=options)
        entry = {
            **judge(found.simulator, given, tests),
            "of the error on what was set apart": (found.after / found.before) ** 0.5,
        }
        entry |= {"iterations": len(found.log), "processor [s]": time.process_time() - begin}
        before, after = (float(distances(simulator, list(data), given)[0]) for simulator in (engine, found.simulator))
        return reported(entry, "mean error on its own throws [m]", before, after)

    def replaced(count: int) -> dict[str, object]:
        begin, data = time.process_time(), throws(count)
        network, info = train(engine, data, begin_at, np.random.default_rng(0))
        ground_truth = np.stack([test.values for test in tests])[:, :4001]
        states = network.rollout(engine, ground_truth[:, 0], 4000, begin_at)
        entry = {**errors_of(engine.model, states, ground_truth), **info, "processor [s]": time.process_time() - begin}
        return reported(entry, "error of single steps, of no network's", 1.0, info["trained, of no network's error"])

    rows: dict[str, Callable[[], dict[str, object]]] = {
        "the law, 1 throw": law,
        **{f"the law and a correction, {count} throws": partial(corrected, count) for count in (5, 30, 50)},
        "a network instead, 5 throws": partial(replaced, 5),
    }
    for name, row in rows.items():
        if name not in result:
            given = begin_at.replace(**result.get("the law, 1 throw", {}).get("parameters", {}))
            result[name] = {**row(), "commit": git_commit()}
            keep(args, result)
            print(name, json.dumps(result[name]), flush=True)
    return result


def recovery(args: Args) -> dict[str, object]:
    """Intervals from noisy recordings of our own engine (prism in the air, 1 s, all states with known noise)."""
    engine = TensegritySimulator(prism(actuated=tuple(range(9))), fixed_rod=0)
    ground_truth = TensegrityParameters(cable_stiffness=8000.0, cable_damping=300.0, motor_speed=1.5, motor_gain=0.012)
    std = {name: 1e-3 if name.rsplit(".", 1)[-1] in ("x", "y", "z") else 1e-2 for name in engine.state_names}
    std.update({name: 1e-4 for name in engine.state_names if name.rsplit(".", 1)[-1].startswith("q")})
    inside = dict.fromkeys(BODY, 0)
    begin = time.perf_counter()
    for seed in range(args.seeds):
        rng = np.random.default_rng(seed)
        state = engine.model.move(engine.initial_state()[0], translation=np.array([0.0, 0.0, 10.0]))
        controls = rng.uniform(-100, 100, (20, engine.nu)).repeat(5, axis=0)
        states, _ = engine.rollout(state[None], controls[None], ground_truth, substeps=10)
        recording = Trajectory.from_rollout(engine, states[0], controls, substeps=10)
        noisy = recording.with_noise(rng, std)
        moving = {name: s for name, s in std.items() if not name.startswith("rod0.")}
        problem = FitProblem(
            engine,
            TrajectorySet((noisy,)),
            free=BODY,
            measured=tuple(name for name in moving if not name.split(".")[-1].startswith("q")),
            noise={name: s for name, s in moving.items() if not name.split(".")[-1].startswith("q")},
            initial_state=partial(known, state),
            free_initial=False,
        )
        fit = single_shooting(problem)
        for name, (low, high) in fit.intervals.items():
            inside[name] += low <= getattr(ground_truth, name) <= high
        print(f"{seed + 1} of {args.seeds}: {inside}, {time.perf_counter() - begin:.0f} s", flush=True)
    worst = min(inside.values())
    return {
        "required": "each constant inside its 95 % interval in >= 90 % of the seeds",
        "inside": inside,
        "seeds": args.seeds,
        "chance of fewer if the intervals were exact": float(binom.cdf(worst - 1, args.seeds, 0.95)),
    }


def known(state: Array, recording: Trajectory) -> Array:
    """The state from which every recording of this study starts."""
    return state


def kept(args: Args) -> dict[str, Any]:
    """What earlier runs found, by part."""
    path = args.out / "expected.json"
    return read_json(path) if path.exists() else {}


def keep(args: Args, found: dict[str, Any]) -> None:
    """Write what this part found so far."""
    write_json(args.out / "expected.json", {**kept(args), args.part: found})


def main(args: Args) -> None:
    """Run one part, write its JSON."""
    begin = time.perf_counter()
    result = {"air": air, "contact": contact, "networks": networks, "recovery": recovery}[args.part](args)
    command = f"python reproductions/wang2020/run.py --part {args.part}"
    head = {"command": command, "commit": git_commit(), "seconds": time.perf_counter() - begin}
    document = {**head, **result, **head}  # in this order, whatever an earlier run left
    keep(args, document)


if __name__ == "__main__":
    main(tyro.cli(Args))
