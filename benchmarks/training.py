"""Control steps per processor second of trainings by PPO, learning included, with the settings of each id.

    python benchmarks/training.py
    PYTHONPATH=/path/to/another/checkout python benchmarks/training.py --ids VineGrow-v0 ArmReach-v0

One line of JSON per id: microseconds of a processor per control step in all, and in the environment and the update.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import math
import time
from dataclasses import dataclass
from typing import Any

import tyro

from agents.learning.rl import Training, new_model
from softgym_envs.systems import system_of_task, tasks


@dataclass(frozen=True)
class Args:
    """Options."""

    ids: tuple[str, ...] = tuple(task.id for task in tasks())
    """Environments."""
    steps: int = 8192
    """Least number of control steps, after one collection and its update."""


def measure(name: str, steps: int) -> dict[str, Any]:
    """Microseconds per control step of one id."""
    training = Training(f"softgym_envs:{name}", steps, overrides=system_of_task(name).learning_of(name, "ppo"))
    envs, spent = training.make(), {"environment": 0.0, "update": 0.0}
    envs.seed(0)
    model: Any = new_model(training, envs)
    model.learn(training.collected)

    def timed(what: str, call: Any) -> Any:
        def run() -> Any:
            begun = time.process_time()
            found = call()
            spent[what] += time.process_time() - begun
            return found

        return run

    envs.step_wait = timed("environment", envs.step_wait)  # type: ignore[method-assign]
    model.train = timed("update", model.train)
    count, begun = math.ceil(steps / training.collected) * training.collected, time.process_time()
    model.learn(count, reset_num_timesteps=False)
    total = time.process_time() - begun
    parts = {what: round(1e6 * seconds / count, 1) for what, seconds in spent.items()}
    return {"id": name, "steps_per_second": round(count / total), "us": round(1e6 * total / count, 1), **parts}


def main(args: Args) -> None:
    """Measure."""
    for name in args.ids:
        print(json.dumps(measure(name, args.steps)), flush=True)


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
