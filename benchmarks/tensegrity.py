"""Speed, side by side with MuJoCo in one process: prints a table and writes results/tensegrity_speed/numbers.json.

Every ratio is the median over rounds in which both sides run in turn, so that other load of the machine affects both.
Single-robot rows run on one core. The robot is the SUPERball, settled on the ground, rod-rod contact on in both.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import gymnasium as gym
import mujoco
import numpy as np
import tyro

from softgym_envs.core.files import write_json
from softgym_envs.engines.timing import Rate, alone, compare, machine, table
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.mujoco import MujocoTensegrity

DATA_SHEET = {"cable_stiffness": 3000.0, "cable_damping": 400.0, "motor_speed": 3.0, "motor_gain": 0.03}
"""The procedure's guess before identification: motors pull three times as far, and rods touch each other."""


@dataclass
class Args:
    """Options of the measurement."""

    rounds: int = 15
    """Rounds per comparison."""
    out: Path = Path("results/tensegrity_speed/numbers.json")
    """File of the table."""


def single_robot(rounds: int) -> list[Rate]:
    """Measure substeps and gradients of one robot."""
    simulator, mujoco_model = TensegritySimulator(), MujocoTensegrity()
    state, _ = simulator.step(simulator.initial_state(), np.zeros((1, 24)), substeps=5000)
    controls = np.zeros((1, 20, 24))
    weight = np.ones((1, 6, simulator.nx))
    model = mujoco_model.mj_model()
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, 5000)
    physics = (600.0, lambda: mujoco.mj_step(model, data, 600))
    simulator.vjp(state, controls[:, :5], weight, substeps=100)
    return [
        compare(
            "forward, mj_step loop as the peer",
            "substeps/s",
            (2000.0, lambda: simulator.rollout(state, controls, substeps=100)),
            physics,
            rounds=rounds,
            required=">= 12",
        ),
        compare(
            "forward + backward (500 substeps), against MuJoCo's forward",
            "substeps/s",
            (500.0, lambda: simulator.vjp(state, controls[:, :5], weight, substeps=100)),
            physics,
            rounds=rounds,
            required=">= 2.5",
        ),
    ]


def rolling(rounds: int) -> list[Rate]:
    """Measure substeps of one robot in mode patch, as in identification and transfer studies, under random commands for 2 s."""
    simulator, mujoco_model = TensegritySimulator(contact="patch"), MujocoTensegrity()
    state, _ = simulator.step(simulator.initial_state(), np.zeros((1, 24)), substeps=1000)
    controls = np.clip(40.0 * np.cumsum(np.random.default_rng(0).normal(size=(1, 20, 24)), axis=1), -100.0, 100.0)
    rows = []
    for what, parameter_values in {
        "mode patch, rolled by random commands": {},
        "the same with a data sheet's parameters: rods meet": DATA_SHEET,
    }.items():
        ours = partial(
            simulator.rollout,
            state,
            controls,
            substeps=100,
            parameters=simulator.default_parameters.replace(**parameter_values),
        )
        peer = partial(
            mujoco_model.rollout,
            state,
            controls,
            substeps=100,
            parameters=mujoco_model.default_parameters.replace(**parameter_values),
        )
        rows.append(compare(what, "substeps/s", (2000.0, ours), (2000.0, peer), rounds=rounds))
    return rows


def episodes(backend: str, steps: int) -> Callable[[], None]:
    """Take `steps` steps of a gym.make environment without control."""
    env = gym.make("softgym_envs:TensegrityRoll-v0", backend=backend)
    env.reset(seed=0)
    action = np.zeros_like(env.action_space.sample())

    def run() -> None:
        for _ in range(steps):
            if env.step(action)[3]:
                env.reset()

    run()
    return run


def single_env(rounds: int) -> Rate:
    """Measure gym.make at the 100 ms control period."""
    native, mujoco_model = episodes("native", 100), episodes("mujoco", 20)
    return compare(
        "gym.make, one control step of 100 ms",
        "env-steps/s",
        (100.0, native),
        (20.0, mujoco_model),
        rounds=rounds,
        required=">= 8",
    )


def batches(rounds: int) -> list[Rate]:
    """Measure the native vector environment on all cores."""
    rows = []
    for count in (1, 64, 1024):
        env = gym.make_vec("softgym_envs:TensegrityRoll-v0", num_envs=count, vectorization_mode="vector_entry_point")
        env.reset(seed=0)
        actions = np.zeros_like(env.action_space.sample())
        repeats = max(2, 200 // count)

        def run(env: gym.vector.VectorEnv = env, actions: np.ndarray = actions, repeats: int = repeats) -> None:
            for _ in range(repeats):
                env.step(actions)

        run()
        what = f"make_vec, {count} rows, {os.cpu_count()} cores"
        rows.append(alone(what, "env-steps/s", (count * repeats, run), rounds=max(3, rounds // 3)))
    return rows


def main(args: Args) -> None:
    """Measure, print, save."""
    host = machine("warp-lang", "mujoco", "numpy")
    rows = [*single_robot(args.rounds), *rolling(args.rounds), single_env(args.rounds), *batches(args.rounds)]
    forward, gradient = rows[0].ours, rows[1].ours
    print(", ".join(f"{key} {value}" for key, value in host.items()))
    print(table(rows))
    print(f"forward + backward costs {forward / gradient:.1f} times a forward pass")
    document = {"machine": host, "rows": [asdict(row) for row in rows], "backward_over_forward": forward / gradient}
    write_json(args.out, document)
    print(f"written to {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
