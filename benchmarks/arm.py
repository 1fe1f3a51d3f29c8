"""Speed of `ArmReach-v0` compared with MyoSuite's elbow, control steps of 20 ms under random actions, per core.

    python benchmarks/arm.py --peer MYOSUITE/bin/python --out results/arm_speed/numbers.json

MyoSuite stays in its own environment, whose interpreter is `--peer` (`python -m venv MYOSUITE; MYOSUITE/bin/pip install
myosuite`); both sides take turns, round by round, times are of the processor. Its elbow (`myoElbowPose1D6MRandom-v0`) has 6
muscles and is MuJoCo with steps of 2 ms, ours has 2 and makes implicit steps of 5 ms; so our MuJoCo model runs, too. Steps
include all that an agent waits for, resets too.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import tyro

from softgym_envs.core.files import provenance, write_json

PEER = """
import os, sys, time, warnings
warnings.filterwarnings("ignore")
os.environ["MUJOCO_GL"] = "disabled"
import gymnasium, numpy, mujoco, myosuite
env = gymnasium.make("myoElbowPose1D6MRandom-v0")
env.reset(seed=0)
actions = numpy.random.default_rng(0).uniform(-1, 1, (200, *env.action_space.shape)).astype("float32")
print("versions", "myosuite", getattr(myosuite, "__version__", "3"), "mujoco", mujoco.__version__, env.unwrapped.dt, flush=True)
for line in sys.stdin:
    began = time.process_time()
    for k in range(int(line)):
        _, _, ended, cut, _ = env.step(actions[k % 200])
        if ended or cut:
            env.reset()
    print((time.process_time() - began) / int(line), flush=True)
"""


@dataclass(frozen=True)
class Args:
    """Options of the measurement."""

    peer: Path | None = None
    """Interpreter of an environment with MyoSuite; none: only ours."""
    rounds: int = 7
    """Rounds, of which the median counts."""
    steps: int = 400
    """Control steps per round."""
    rows: int = 256
    """Rows of the batch."""
    out: Path | None = None
    """JSON file."""


class Peer:
    """MyoSuite in its own process."""

    def __init__(self, interpreter: Path) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([str(interpreter), "-c", PEER], stderr=subprocess.DEVNULL, **pipes)
        self.versions = self._line("versions")

    def _line(self, begins: str = "") -> str:
        """Read the next line with this beginning; MyoSuite itself prints, too."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(begins):
                return line.strip()
        raise RuntimeError("the peer's interpreter has ended: is MyoSuite installed there?")

    def __call__(self, steps: int) -> float:
        """Processor seconds per control step."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return float(self._line())


class Single:
    """`gym.make`."""

    def __init__(self, backend: str) -> None:
        self.env = gym.make("softgym_envs:ArmReach-v0", backend=backend)
        self.env.reset(seed=0)
        self.actions = np.random.default_rng(0).uniform(-1, 1, (200, 2)).astype(np.float32)
        self.env.step(self.actions[0])

    def __call__(self, steps: int) -> float:
        """Processor seconds per control step."""
        began = time.process_time()
        for k in range(steps):
            _, _, ended, cut, _ = self.env.step(self.actions[k % 200])
            if ended or cut:
                self.env.reset()
        return (time.process_time() - began) / steps


class Batch:
    """`gym.make_vec`; all threads' time counts."""

    def __init__(self, rows: int) -> None:
        self.envs = gym.make_vec("softgym_envs:ArmReach-v0", num_envs=rows)
        self.envs.reset(seed=0)
        self.rows = rows
        self.actions = np.random.default_rng(0).uniform(-1, 1, (20, rows, 2)).astype(np.float32)
        self.envs.step(self.actions[0])

    def __call__(self, steps: int) -> float:
        """Processor seconds per row and control step."""
        began = time.process_time()
        for k in range(max(steps // 4, 20)):
            self.envs.step(self.actions[k % 20])
        return (time.process_time() - began) / max(steps // 4, 20) / self.rows


def main(args: Args) -> None:
    """Measures, prints, writes."""
    peer = Peer(args.peer) if args.peer else None
    sides: dict[str, Any] = {"single": Single("native"), "mujoco_model": Single("mujoco"), "batch": Batch(args.rows)}
    if peer is not None:
        sides["myosuite"] = peer
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(args.rounds):
        for name, side in sides.items():
            times[name].append(side(args.steps))
    found: dict[str, Any] = {"us_per_step": {name: 1e6 * float(np.median(values)) for name, values in times.items()}}
    if peer is not None:
        each = {
            name: [b / a for a, b in zip(times[name], times["myosuite"], strict=True)]
            for name in ("single", "batch", "mujoco_model")
        }
        found |= {"peer": peer.versions, "times_as_fast": {name: float(np.median(values)) for name, values in each.items()}}
        found["range_of_rounds"] = {name: [min(values), max(values)] for name, values in each.items()}
    print(json.dumps(found, indent=1))
    if args.out is not None:
        write_json(args.out, {**provenance(), "rows": args.rows, **found})


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
