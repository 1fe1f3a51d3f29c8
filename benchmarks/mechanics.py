"""Speed of the tree mechanics, CasADi and MuJoCo on the loop on Baxter's arm: 31 coordinates, 12 constraints, dt 0.01 s.

One process, times of its processors (other load does not count, but slows them: lines of environments are the best of 20
rounds). CasADi solves the same equations, and its states are compared: SX, interpreted, `rootfinder("newton")` with its own
derivatives. MuJoCo moves the system's MuJoCo model for the same 50 ms of random torques, in steps of 2 ms, its coarsest stable
ones (ours: 10 ms). Control steps of `LoopReach-v0` (50 ms, random actions) are made with Gymnasium; with the resets counted
they include all that an agent waits for. Those of rows are by the clock, on all cores: the median of rounds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy, whose waiting threads count as time of processors

import casadi as ca
import gymnasium as gym
import numpy as np
import tyro
from step_equations import step_equations
from step_times import step_times

from softgym_envs.core.files import read_json, write_json
from softgym_envs.core.simulator import Simulator
from softgym_envs.mechanics import Mechanism
from softgym_envs.systems.loop.build import held
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.model import ARM, PARAMETERS, LoopModel
from softgym_envs.systems.loop.mujoco import MAX_TREE_STEP, MujocoLoop

GAINS = np.array([80.0, 92.0, 69.0, 53.0, 65.0, 40.0, 8.0])
"""[N m/rad]"""


@dataclass
class Args:
    """Options of the measurement."""

    links: int = 12
    """Links of the loop."""
    steps: int = 2000
    """Rows of the motion (20 s)."""
    casadi_steps: int = 100
    """Rows of CasADi's motion, which is slow."""
    rounds: int = 5
    """Repetitions; the median counts."""
    env_steps: int = 200
    """Control steps of the environments, per repetition."""
    rows: int = 1024
    """Rows of the batched environment."""
    only_environments: bool = False
    """Keep the lines of mechanics in `out`, if there are any."""
    out: Path | None = None
    """JSON file of the numbers."""


@dataclass(frozen=True)
class Row:
    """One line of the table [s]."""

    what: str
    ours: float
    casadi: float | None = None
    mujoco: float | None = None

    def __str__(self) -> str:
        others = (("CasADi", self.casadi), ("MuJoCo", self.mujoco))
        beside = [f"   {name} {its * 1e6:.1f} us, {its / self.ours:.1f} x" for name, its in others if its is not None]
        return f"{self.what:<44} {self.ours * 1e6:10.1f} us" + "".join(beside)


def seconds(
    work: Callable[[], object], rounds: int, *, best: bool = False, clock: Callable[[], float] = time.process_time
) -> float:
    """Median or least time of `work`, after one uncounted run."""
    work()
    times = []
    for _ in range(rounds):
        begin = clock()
        work()
        times.append(clock() - begin)
    return float(np.min(times) if best else np.median(times))


class Case:
    """The arm swings by 0.1 rad about its start, under position feedback."""

    def __init__(self, links: int, steps: int) -> None:
        model = LoopModel(links)
        self.mechanism, self.parameter_values = Mechanism(model.tree, 0.01, PARAMETERS), model.defaults
        self.tree, n = model.tree, self.mechanism.n
        q = np.zeros((1, n))
        q[0, :7] = model.start
        rest = self.mechanism.rest(q, parameter_values=self.parameter_values, held=ARM)
        self.start = self.mechanism.rest_state(rest.q, rest.needed[:, :7], self.parameter_values)
        self.gains = np.hstack([np.diag(GAINS), np.zeros((7, 2 * n - 7))])
        wave = 0.05 * np.sin(0.01 * np.arange(steps)[:, None] * np.array([1.0, 0.8, 1.2, 0.9, 1.1, 0.7, 1.0]))
        self.controls = (rest.needed[:, :7] + (rest.q[:, :7] + wave) * GAINS)[None]

    def motion(self, steps: int) -> Any:
        """Simulate by our engine."""
        return self.mechanism.simulate(self.start, self.controls[:, :steps], self.parameter_values, gains=self.gains)


def casadi_step(case: Case) -> Any:
    """casadi.Function (x, u, c) -> next x; Newton's method for (q+, lambda) from (q, 0), then p+."""
    g, n = step_equations(case.tree, PARAMETERS, 0.01), case.mechanism.n
    x, u, c, y, lam = (ca.SX.sym(name, g.size1_in(k)) for k, name in enumerate(("x", "u", "c", "y", "l")))
    first = ca.vertcat(y[:n], ca.SX.zeros(n))
    rows = g(x, u, c, first, lam)
    problem = {"x": ca.vertcat(y[:n], lam), "p": ca.vertcat(x, u, c), "g": ca.vertcat(rows[:n], rows[2 * n :])}
    solver = ca.rootfinder("solver", "newton", problem, {"linear_solver": "csparse", "abstol": 1e-10})
    late = ca.Function("late", [x, u, c, y[:n]], [rows[n : 2 * n]])
    X, U, C = ca.MX.sym("x", x.numel()), ca.MX.sym("u", u.numel()), ca.MX.sym("c", c.numel())
    controls = U - ca.DM(case.gains) @ X
    after = solver(ca.vertcat(X[:n], ca.DM.zeros(lam.numel())), ca.vertcat(X, controls, C))[:n]
    return ca.Function("step", [X, U, C], [ca.vertcat(after, late(X, controls, C, after))], ["x", "u", "c"], ["y"])


def compare(case: Case, args: Args) -> list[Row]:
    """Measure all lines of the table."""
    mechanism, steps, short = case.mechanism, args.steps, args.casadi_steps
    motion = case.motion(steps)
    slopes = np.ones((1, steps + 1, mechanism.nx))
    ours = {
        "step": seconds(lambda: case.motion(steps), args.rounds) / steps,
        "adjoint": seconds(lambda: mechanism.gradient(motion, slopes), args.rounds) / steps,
        "forward": seconds(lambda: mechanism.sensitivities(motion), args.rounds) / steps,
    }
    step = casadi_step(case)
    chain = step.mapaccum(short)
    U, C, x = ca.DM(case.controls[0, :short].T), ca.DM(case.parameter_values), ca.DM(case.start[0])
    theirs = np.array(chain(x, U, ca.repmat(C, 1, short))).T
    gap = np.abs(theirs - motion.states[0, 1 : short + 1]).max()
    print(f"status {motion.status.tolist()}, states differ from CasADi's by {gap:.1e} at most over {short} steps")
    parameter_values = ca.MX.sym("c", C.numel())
    cost = ca.sum1(ca.sum2(chain(x, U, ca.repmat(parameter_values, 1, short))))
    gradient = ca.Function("gradient", [parameter_values], [ca.gradient(cost, parameter_values)])
    exact = mechanism.gradient(case.motion(short), np.ones((1, short + 1, mechanism.nx))).parameter_values[0]
    print(f"gradients differ by {np.abs(np.array(gradient(C))[:, 0] - exact).max() / np.abs(exact).max():.1e}, relative")
    slow_step = seconds(lambda: chain(x, U, ca.repmat(C, 1, short)), 2) / short
    slow_gradient = seconds(lambda: gradient(C), 1) / short
    count = len(PARAMETERS)
    return [
        Row("one step", ours["step"], slow_step),
        Row("one gradient, per step, with its simulation", ours["step"] + ours["adjoint"], slow_gradient),
        Row(f"one gradient of {steps} steps", (ours["step"] + ours["adjoint"]) * steps, slow_gradient * steps),
        Row(f"adjoint alone, per step, {count} parameters", ours["adjoint"], None),
        Row(f"forward sensitivities, per step, {count} parameters", ours["forward"], None),
    ]


def stepped(world: Simulator, pairs: list[Any], substeps: int) -> None:
    """Take one control step from each of many states."""
    for pair in pairs:
        world.step(*pair, substeps=substeps)


def environments(args: Args) -> list[Row]:
    """50 ms of motion in both worlds, and control steps of the environment, single and in rows: the best of many rounds."""
    least = partial(seconds, rounds=4 * args.rounds, best=True)
    single: Any = gym.make("softgym_envs:LoopReach-v0").unwrapped
    rng = np.random.default_rng(0)
    single.reset(seed=0)
    actions = rng.uniform(-1.0, 1.0, (args.env_steps, len(ARM))).astype(np.float32)
    states, controls = [], []
    for action in actions:
        states.append(single.state)
        controls.append(single.task.scale_action(action[None].astype(np.float64)))
        single.step(action)
    model = held(LoopModel(args.links))
    worlds: tuple[tuple[Simulator, int], ...] = (
        (LoopSimulator(model), 5),
        (MujocoLoop(model, dt=MAX_TREE_STEP), round(0.05 / MAX_TREE_STEP)),
    )
    moved = []
    for world, substeps in worlds:
        pairs = [(state[None], control) for state, control in zip(states, controls, strict=True)]
        moved.append(least(partial(stepped, world, pairs, substeps)))

    alone, physics = step_times(single, actions, 6 * args.rounds).sum(axis=1)
    player: Any = gym.make("softgym_envs:LoopReach-v0")
    batch = gym.make_vec("softgym_envs:LoopReach-v0", num_envs=args.rows)
    few = max(args.env_steps // 20, 1)
    many = rng.uniform(-1.0, 1.0, (few, args.rows, len(ARM))).astype(np.float32)

    batch.reset(seed=0)
    rows = seconds(lambda: [batch.step(acts) for acts in many], 4 * args.rounds, clock=time.perf_counter)
    count = args.env_steps
    return [
        Row("50 ms of motion", moved[0] / count, mujoco=moved[1] / count),
        Row(
            f"control step by the clock, each the best of {6 * args.rounds}, physics {physics / alone:.0%} of it", alone / count
        ),
        Row("control step, resets counted", least(lambda: played(player, actions)) / count),
        Row(f"control step of one of {args.rows} rows, by the clock, all cores", rows / few / args.rows),
    ]


def played(env: Any, actions: Any) -> None:
    """Play episodes as an agent does, with all wrappers of Gymnasium."""
    env.reset(seed=0)
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()


def table(args: Args, before: dict[str, Any]) -> dict[str, list[Row]]:
    """Lines by subject: mechanics, taken from `before` unless wanted again, and environments."""
    if args.only_environments:
        mechanics = [Row(**line) for line in before.get("mechanics", [])]
    else:
        mechanics = compare(Case(args.links, args.steps), args)
    return {"mechanics": mechanics, "environments": environments(args)}


def main(args: Args) -> None:
    """Measure and print."""
    before = read_json(args.out) if args.out is not None and args.out.exists() else {}
    found = table(args, before)
    for row in (*found["mechanics"], *found["environments"]):
        print(row)
    if args.out is not None:
        write_json(args.out, {part: [asdict(row) for row in rows] for part, rows in found.items()})


if __name__ == "__main__":
    main(tyro.cli(Args))
