"""Speed of the rigid system beside MuJoCo in one process: a table, and results/rigid_speed/numbers.json.

Both sides run in turn, round by round, on one core if one row moves; every ratio is the median over rounds. Our steps are
longer (implicit, no penalty): a second column gives simulated time per second of computing. MuJoCo's side is mujoco.rollout's
own loop.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import tyro

from softgym_envs.core.files import git_commit, write_atomically
from softgym_envs.engines.timing import rate
from softgym_envs.systems.rigid.dynamics import BlockSimulator, ParticleSimulator
from softgym_envs.systems.rigid.model import BlockModel
from softgym_envs.systems.rigid.mujoco import MujocoBlock, MujocoParticles


@dataclass
class Args:
    """Options of the measurement."""

    rounds: int = 15
    """Rounds per comparison."""
    out: Path = Path("results/rigid_speed/numbers.json")
    """File of the table."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    ours: float
    """Physics steps per second."""
    mujoco: float
    ratio: float
    ours_dt: float
    mujoco_dt: float
    time_ratio: float
    """Simulated seconds per second, ours over MuJoCo's."""


def mj_loop(mujoco_model: Any, state: np.ndarray, steps: int) -> Callable[[], object]:
    """Run only mj_step, from a moving state of the MuJoCo model: no Python per step."""
    model = mujoco_model.mj_model()
    data = mujoco.MjData(model)
    order = mujoco_model.engine.state_index
    data.qpos[:], data.qvel[:] = state[order[: model.nq]], state[order[model.nq :]]
    physics = np.concatenate([[0.0], data.qpos, data.qvel])

    def run() -> None:
        mujoco.mj_setState(model, data, physics, int(mujoco.mjtState.mjSTATE_FULLPHYSICS))
        mujoco.mj_step(model, data, steps)

    return run


def compare(what: str, ours: Any, theirs: Any, state: np.ndarray, rounds: int, steps: int = 400) -> Row:
    """Compare one row, both sides in turn."""
    controls = np.zeros((1, 1, ours.nu))
    run_mujoco = mj_loop(theirs, state, steps)
    planar = state[None, : ours.nx]

    def run_ours() -> None:
        ours.rollout(planar, controls, substeps=steps)

    run_ours()
    run_mujoco()
    rates = np.array([(rate(steps, run_ours), rate(steps, run_mujoco)) for _ in range(rounds)])
    ratio = float(np.median(rates[:, 0] / rates[:, 1]))
    own, peer = (float(r) for r in np.median(rates, axis=0))
    return Row(what, own, peer, ratio, ours.dt, theirs.dt, ratio * ours.dt / theirs.dt)


def main(args: Args) -> None:
    """Measure, print, save."""
    model = BlockModel()
    mujoco_model, particle = MujocoBlock(model), MujocoParticles()
    sliding = mujoco_model.initial_state()[0]
    sliding[3:6] = (2.0, 0.5, 3.0)
    ball = np.array([0.0, 0.0, 20.0, 0.0])
    rows = [
        compare("block pulled by a weight, 32-edged cones", BlockSimulator(model), mujoco_model, sliding, args.rounds, 60),
        compare("block, 8-edged cones", BlockSimulator(BlockModel(num_directions=8)), mujoco_model, sliding, args.rounds, 60),
        compare("particle that slides", ParticleSimulator(dt=0.005), particle, ball, args.rounds),
    ]
    lines = ["| what | ours [steps/s] | MuJoCo [steps/s] | ratio | dt ours, MuJoCo [ms] | simulated time, ratio |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for row in rows:
        lines.append(
            f"| {row.what} | {row.ours:,.0f} | {row.mujoco:,.0f} | {row.ratio:.2f} | {1e3 * row.ours_dt:g}, "
            f"{1e3 * row.mujoco_dt:g} | {row.time_ratio:.1f} |"
        )
    print("\n".join(lines))
    host = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "mujoco": mujoco.__version__, "commit": git_commit()}
    write_atomically(args.out, (json.dumps({"machine": host, "rows": [asdict(r) for r in rows]}, indent=1) + "\n").encode())
    print(f"written to {args.out}")


if __name__ == "__main__":
    main(tyro.cli(Args))
