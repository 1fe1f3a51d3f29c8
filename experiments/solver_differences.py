"""Native engine, MuJoCo and a second physics on the same motions; identification of the latter; a transfer matrix.

python experiments/solver_differences.py           # every missing number: an hour of processor time
python experiments/solver_differences.py --parts motions --ids UpperBodyReach-v0

`make docs` writes docs/reference/solver_differences.md from the numbers. Changed robots of the matrix have parameters that
no controller was made with (`ROBOTS`); planners plan with the default parameters, or with identified ones. Legend: B rows, A
simulator in which a controller was made.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tyro

import sysid
from agents.learning.evaluation import evaluate_controller
from agents.policies import pretrained
from softgym_envs.core.files import provenance, read_json, write_json
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array
from softgym_envs.core.system import NATIVE, System
from softgym_envs.systems import system, system_of_task
from softgym_envs.systems.loop.build import held
from softgym_envs.systems.loop.model import ARM, CLAMP, LoopModel, hanging12
from softgym_envs.systems.upper_body.controllers import FREQUENCY, RATIO

SECOND = {"upper_body": "pinocchio", "loop": "elastica"}
"""System -> its second physics."""
STEPS: dict[str, dict[str, tuple[float, ...]]] = {
    "upper_body": {NATIVE: (5e-3, 1e-3), "mujoco": (1e-3, 2e-4), "pinocchio": (2e-3, 1e-3)},
    "loop": {NATIVE: (1e-2, 1e-3), "mujoco": (1e-3, 2.5e-4), "rod": (2.5e-4,), "elastica": (1e-3, 5e-4)},
}
"""System -> simulator -> usual and finer physics step [s]."""
ROBOTS: dict[str, dict[str, float]] = {
    "upper_body": {"payload": 0.8, "shoulder_stiffness": 8.0, "elbow_stiffness": 3.0},
    "loop": {"theta_stiffness": 3.4, "psi_stiffness": 0.8},
}
"""System -> parameters of the robots that are driven."""
MATRIX = ("UpperBodyReach-v0", "LoopReach-v0", "LoopBend-v0", "LoopPeg-v0", "LoopIdentify-v0")
FITTED = {"upper_body": 1e-3}
"""System -> physics step of its fit [s]: with the usual 5 ms, estimates make up for our engine's error of first order."""
PLANNED = ("UpperBodyReach-v0", "LoopReach-v0")
"""Ids with a planner, and with robots of `ROBOTS` beside the default ones."""
SHORTER = {"LoopReach-v0": {"max_episode_steps": 100}, "LoopPeg-v0": {"max_episode_steps": 100}}
"""Episodes of the loop that are half as long as usual, 5 s."""
SETTLE, ROUNDS, SLOPE = 1.5, 3, 0.05
"""[s] simulated until rest, Gauss-Newton steps, and step of finite differences in an action."""
RECORDED: dict[str, int] = {"upper_body": 1600, "loop": 4000}
"""Physics steps of our engine that a recording lasts."""


@dataclass(frozen=True)
class Args:
    """Options."""

    parts: tuple[str, ...] = ("motions", "identification", "matrix")
    """What is measured."""
    ids: tuple[str, ...] = MATRIX
    """Ids of the matrix."""
    backends: tuple[str, ...] = ()
    """Worlds of the matrix; none: all."""
    episodes: int = 30
    """Episodes per cell."""
    seed: int = 40_000_003
    """Seed of the first episode; no training starts from it."""
    out: Path = Path("results/solver_differences")
    """Folder."""


def measured(args: Args) -> dict[str, Any]:
    """Numbers so far."""
    path = args.out / "numbers.json"
    return read_json(path) if path.is_file() else {}


def keep(args: Args, part: str, key: str, measure: Callable[[], Any]) -> None:
    """Add a number that is missing."""
    path = args.out / "numbers.json"
    if key in measured(args).get(part, {}):
        return
    began = time.process_time()
    found = measure()
    print(f"{part} {key}: {found} ({time.process_time() - began:.0f} s)", flush=True)
    numbers = measured(args)  # again: another process may have written
    more = {**numbers.get(part, {}), key: found}
    write_json(
        path,
        {
            **numbers,
            part: more,
            "robots": ROBOTS,
            "episodes": args.episodes,
            **provenance(command="python experiments/solver_differences.py"),
        },
    )


# --- motions ----------------------------------------------------------------------------------------------------------


SWING = 300
PULLED = 10
"""Rows of 10 ms, and how many of them the wrist of the loop's arm is pulled first."""


def crossings(times: Array, values: Array) -> float:
    """Mean period [s] of what swings about zero, from its crossings."""
    there = np.flatnonzero((values[:-1] < 0) != (values[1:] < 0))
    at = times[there] - values[there] * (times[there + 1] - times[there]) / (values[there + 1] - values[there])
    return float(2.0 * np.diff(at).mean())


def swinging_body() -> tuple[Any, Array]:
    """The body without dampers, and a small displacement along its slowest mode."""
    model = system("upper_body").model()
    joints = tuple(replace(joint, damping=0.0) for joint in model.tree.joints)
    model = replace(model, tree=replace(model.tree, joints=joints))
    mechanism, q = model.mechanism, model.rest
    slopes = mechanism.slopes(q[None], np.zeros((1, model.n)), model.defaults)
    values, modes = np.linalg.eig(np.linalg.solve(slopes.vv[0], -slopes.qq[0]))
    slowest = np.real(modes[:, np.argmin(np.real(values))])
    state = model.rest_state()
    state[: model.n] += 0.1 * slowest / np.abs(slowest).max()
    return model, state


def swinging_loop() -> tuple[Any, Array]:
    """The arm with its controller's springs and little damping, at rest; `swing` pulls its wrist first."""
    model = replace(held(LoopModel()), servo_damping=0.0)
    return model, model.rest_state()


def swing(name: str, backend: str, dt: float) -> dict[str, float]:
    """Period [s], and the share of the energy above rest that is left at the end."""
    model, start = swinging_body() if name == "upper_body" else swinging_loop()
    simulator: Any = system(name).simulator(model, backend=backend, dt=dt)
    parameters = simulator.default_parameters.replace(**({"arm_damping": 0.05} if name == "loop" else {}))
    control = np.tile(model.hold if name == "loop" else np.zeros(simulator.nu), (1, SWING, 1))
    if name == "loop":
        control[0, :PULLED, ARM.index("w1")] += 2.0
    states, status = simulator.rollout(simulator.embed(start[None]), control, parameters, substeps=round(1e-2 / dt))
    n, rest = model.n, model.rest_state()
    values = model.tree_constants(parameters.to_matrix(1)) if name == "loop" else parameters.to_matrix(1)
    q, v = states[0, PULLED:, :n], states[0, PULLED:, n : 2 * n]
    middle = 0.5 * (q[1:] + q[:-1]) if name == "loop" and backend == NATIVE else q[1:]  # see `systems.loop.dynamics`
    energy = model.mechanism.energies(
        np.ascontiguousarray(middle), np.ascontiguousarray(v[1:]), np.tile(values, (len(middle), 1))
    ).sum(axis=1) - (middle[:, : len(ARM)] @ model.hold if name == "loop" else 0.0)
    still = model.mechanism.energies(rest[None, :n], np.zeros((1, n)), values).sum()
    still -= rest[: len(ARM)] @ model.hold if name == "loop" else 0.0
    moved = q[:, ARM.index("w1")] if name == "loop" else (q - rest[:n]) @ (start[:n] - rest[:n])
    times: Array = 1e-2 * np.arange(len(moved), dtype=np.float64)
    centred = moved - rest[ARM.index("w1")] if name == "loop" else moved
    share = (energy[-20:].mean() - still) / (energy[:20].mean() - still)
    return {"period": crossings(times, centred), "energy": float(share), "failed": int(status[0])}


def driven(name: str, backend: str, dt: float) -> Array:
    """Angles (T, n) under random controls, new every 50 ms, for half a second."""
    simulator: Any = system(name).simulator(backend=backend, dt=dt)
    rng, (low, high) = np.random.default_rng(1), simulator.control_bounds
    size = 2.0 if name == "loop" else 0.05 * (high - low)
    middle = simulator.model.hold if name == "loop" else 0.5 * (low + high)
    controls = middle + size * rng.uniform(-1.0, 1.0, (1, 10, simulator.nu))
    states, _ = simulator.rollout(simulator.initial_state(), controls, substeps=round(0.05 / dt))
    angles = len(ARM) if name == "loop" else simulator.model.n
    return np.asarray(states[0, :, :angles])


def lifted(backend: str, dt: float) -> float:
    """Height [m] by which a peg below a hanging loop lifts its lowest link in half a second."""
    from softgym_envs.mechanics.placement import frame_pose

    model, ends = hanging12(), list[Array]()
    simulator: Any = system("loop").simulator(model, backend=backend, dt=dt)
    turn, _ = frame_pose(model.arm, "H", dict(zip(ARM, model.start, strict=True)))
    below = turn @ np.array([0.1, 0.0, 0.5 * model.height + 0.034])
    hold = np.tile(model.hold, (1, 5, 1))
    for places in ({}, dict(zip(CLAMP[:3], below.tolist(), strict=True))):
        parameters = simulator.default_parameters.replace(**places)
        states, _ = simulator.rollout(simulator.initial_state(), hold, parameters, substeps=round(0.1 / dt))
        ends.append(model.nodes(np.ascontiguousarray(states[0, -1:, : 2 * model.n]))[0, :, 2].min())
    return float(ends[1] - ends[0])


def speed(name: str, backend: str, dt: float) -> float:
    """Processor seconds per simulated second of one robot."""
    simulator: Any = system(name).simulator(backend=backend, dt=dt)
    hold = simulator.model.hold if name == "loop" else np.zeros(simulator.nu)
    state, spent = simulator.initial_state(), []
    for _ in range(4):
        began = time.process_time()
        simulator.rollout(state, np.tile(hold, (1, 5, 1)), substeps=round(0.05 / dt))
        spent.append(time.process_time() - began)
    return float(np.median(spent[1:]) / 0.25)


def motions(args: Args) -> None:
    """Measure every simulator at its steps."""
    for name, worlds in STEPS.items():
        finest = driven(name, NATIVE, 1e-4)
        moved = float(np.abs(finest - finest[0]).max())
        for backend, steps in worlds.items():
            for dt in steps:
                here = partial(one_motion, name, backend, dt, finest, moved)
                keep(args, "motions", f"{name} {backend} {dt:g}", here)


def one_motion(name: str, backend: str, dt: float, finest: Array, moved: float) -> dict[str, float]:
    """All numbers of a simulator at one step."""
    found = {**swing(name, backend, dt), "speed": speed(name, backend, dt), "moved": moved}
    found["gap"] = float(np.abs(driven(name, backend, dt) - finest).max())
    return {**found, "lifted": lifted(backend, dt)} if name == "loop" else found


# --- identification ---------------------------------------------------------------------------------------------------


def robot(name: str, backend: str) -> Parameters:
    """Parameters of a robot that is driven."""
    parameters: Parameters = system(name).simulator(backend=backend).default_parameters
    return parameters.replace(**ROBOTS[name])


def identified(name: str, backend: str) -> dict[str, Any]:
    """Estimates, intervals and given values of all parameters, from one recording with a seed."""
    given = robot(name, backend)
    data = sysid.record(name, backend=backend, parameters=given, budget=RECORDED[name], seed=5)
    fit = sysid.identify(name, data, dt=FITTED.get(name), diagnose="none")
    found = {
        e.name: {"value": e.value, "interval": list(e.interval), "given": float(getattr(given, e.name))}
        for stage in fit.decisive
        for e in stage.fit.estimates
        if hasattr(given, e.name)
    }
    return {"headline": fit.headline, "parameters": found, "estimate": fit.parameters.to_matrix(1)[0].tolist()}


# --- matrix -----------------------------------------------------------------------------------------------------------


def resting(made: Any, parameters: Parameters, envs: Any) -> Callable[[Any], Any]:
    """A constant action under which the loop, simulated in A, comes to rest at the goal: damped Gauss-Newton steps."""
    episodes, task, size = envs.episodes, envs.episodes.task, len(ARM)
    plan, tried = np.zeros((envs.num_envs, size)), SLOPE * np.vstack([np.zeros(size), np.eye(size)])
    rest, own = made.embed(task.model.rest_state()[None]), task.model.layout.nx

    def points(action: Array) -> Array:
        controls = task.scale_action(action)[:, None]
        states, _ = made.rollout(np.repeat(rest, len(action), axis=0), controls, parameters, substeps=round(SETTLE / made.dt))
        return np.asarray(task.points(np.ascontiguousarray(states[:, -1, :own])))

    def act(observation: Any) -> Any:
        fresh = np.flatnonzero(episodes.steps == 0)
        if len(fresh):
            action, goal = np.zeros((len(fresh), size)), episodes.context[fresh, :-3]
            for _ in range(ROUNDS):
                found = points((action + tried[:, None]).reshape(-1, size)).reshape(len(tried), len(fresh), -1)
                slopes = ((found[1:] - found[0]) / SLOPE).transpose(1, 2, 0)
                normal = slopes.swapaxes(1, 2) @ slopes + 1e-4 * np.eye(size)
                step = np.linalg.solve(normal, slopes.swapaxes(1, 2) @ (goal - found[0])[..., None])[..., 0]
                action = np.clip(action + np.clip(step, -0.3, 0.3), -1.0, 1.0)
            plan[fresh] = action
        return plan.astype(np.float32)

    return act


def posed(made: Any, parameters: Parameters, envs: Any) -> Callable[[Any], Any]:
    """Inverse kinematics, then springs, dampers, and the torques that hold the pose in A: the system's heuristic, made in A."""
    episodes, model = envs.episodes, envs.episodes.task.model
    n, wanted = model.n, np.zeros((envs.num_envs, model.n))
    full = model.mechanism.slopes(model.rest[None], np.zeros((1, n)), model.defaults).vv[0]
    mass, values = 1.0 / np.diag(np.linalg.inv(full)), parameters.to_matrix(envs.num_envs)

    def holding(q: Array) -> Array:
        if not hasattr(made.engine, "evaluate"):
            return np.asarray(model.holding(q, values))
        still = np.hstack([np.clip(q, *model.limits), np.zeros_like(q)])
        found = np.empty_like(q)
        found[:, made.engine.state_index[:n]] = made.engine.evaluate(
            still, values, lambda mj, data: data.qfrc_bias - data.qfrc_passive
        )
        return found

    def act(observation: Any) -> Any:
        fresh = np.flatnonzero(episodes.steps == 0)
        if len(fresh):
            wanted[fresh] = model.reaching(episodes.context[fresh, :3])[0]
        q, v = (np.ascontiguousarray(observation[:, k * n : (k + 1) * n], dtype=np.float64) for k in range(2))
        torque = holding(q) + FREQUENCY**2 * mass * (wanted - q) - 2 * RATIO * FREQUENCY * mass * v
        low, high = model.control_bounds
        return np.clip(2.0 * (torque - low) / (high - low) - 1.0, -1.0, 1.0).astype(np.float32)

    return act


def planner(task_id: str, made: str, parameters: Parameters, envs: Any) -> Callable[[Any], Any]:
    """The planner of an id that plans in A with these parameters."""
    found, model = system_of_task(task_id), envs.episodes.task.model
    if found.name == "upper_body":
        return posed(found.simulator(model, backend=made), parameters, envs)
    return resting(found.simulator(model, backend=made, dt=0.01 if made == NATIVE else 2e-3), parameters, envs)


def rows(args: Args, task_id: str, backend: str, robots: str) -> dict[str, tuple[dict[str, Any], Callable[[Any], Any]]]:
    """Name of a row -> what the environment needs, and the controller: the shipped policy, and planners."""
    found: System = system_of_task(task_id)
    policy = pretrained(f"softgym_envs:{task_id}")
    controllers: dict[str, Any] = {}
    if robots == "default":
        controllers["policy | native | no"] = (dict(policy.keywords), lambda envs: policy)
    for made in (NATIVE, "mujoco") if task_id in PLANNED else ():
        usual = found.simulator(backend=made).default_parameters
        controllers[f"planner | {made} | no"] = ({}, partial(planner, task_id, made, usual))
        fit = measured(args).get("identification", {}).get(f"{found.name} {backend}")
        if fit is not None and robots == "changed":
            known = type(usual).from_vector(np.array(fit["estimate"]))
            controllers[f"planner | {made} | yes"] = ({}, partial(planner, task_id, made, known))
    return controllers


def cell(args: Args, task_id: str, backend: str, robots: str, keywords: dict[str, Any], controller: Any) -> dict[str, Any]:
    """Success and return of a controller in B."""
    changed = {"params": robot(system_of_task(task_id).name, backend)} if robots == "changed" else {}
    found = evaluate_controller(
        controller, f"softgym_envs:{task_id}", episodes=args.episodes, seed=args.seed,
        keywords={**keywords, **changed, **SHORTER.get(task_id, {}), "backend": backend},
    )  # fmt: skip
    return found.table()


def matrix(args: Args) -> None:
    """Run every controller in every world."""
    for task_id in args.ids:
        name = system_of_task(task_id).name
        for backend in args.backends or (NATIVE, "mujoco", SECOND[name]):
            for robots in ("default", "changed") if task_id in PLANNED else ("default",):
                for row, (keywords, controller) in rows(args, task_id, backend, robots).items():
                    here = partial(cell, args, task_id, backend, robots, keywords, controller)
                    keep(args, "matrix", f"{task_id} | {backend} | {robots} | {row}", here)


def main(args: Args) -> int:
    """Measure what is missing."""
    np.seterr(all="ignore")
    if "motions" in args.parts:
        motions(args)
    if "identification" in args.parts:
        for name, second in SECOND.items():
            for backend in args.backends or (NATIVE, "mujoco", second):
                if backend in STEPS[name]:
                    keep(args, "identification", f"{name} {backend}", partial(identified, name, backend))
    if "matrix" in args.parts:
        matrix(args)
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
