"""Policies of results/policies: networks that see sensors only, taught by the planners of the rooms, which see the state.

    python studies/policies/policies.py                          # every id that has a planner
    python studies/policies/policies.py --ids VineWall-v0 --rounds 20

They learn with 2 % sensor noise and actions that come two control steps late (`agents.learning.imitation`), and are written as
PPO policies of stable-baselines3. How well they do stands in the task cards (studies/task_cards).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from agents.learning.imitation import Imitation, imitate
from agents.learning.policy import save_policy
from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.files import provenance, write_json
from softgym_envs.rooms import room_of_task, tasks

NOISY = {"sensor_noise": 0.02, "action_delay": 2}
"""Keywords of the environments that they learn in."""
TEACHERS = ("planner", "heuristic")
"""Names of controllers that may teach, the first one that there is."""


@dataclass(frozen=True)
class Args:
    """Teach policies."""

    ids: tuple[str, ...] = ()
    """Which; none: all that have a teacher."""
    rounds: int = 14
    """Of `Imitation`."""
    steps: int = 120
    """Of `Imitation`."""
    seed: int = 0
    """Of everything."""
    out: Path = Path("results/policies")
    """Folder."""


def teach(task_id: str, args: Args) -> None:
    """Write <id>.zip and <id>.json, if the id has a teacher."""
    controllers = room_of_task(task_id).controllers_of(task_id)
    name = next((name for name in TEACHERS if name in controllers), None)
    if name is None:
        return
    run = Imitation(f"softgym_envs:{task_id}", rounds=args.rounds, steps=args.steps, keywords=NOISY, seed=args.seed)
    errors: list[float] = []
    began = time.process_time()

    def report(number: int, error: float) -> None:
        errors.append(error)
        print(f"{task_id:24s} round {number:2d}  mean squared error {error:.4f}", flush=True)

    model = imitate(run, controllers[name], report)
    save_policy(model, args.out / f"{task_id}.zip")
    document = {
        "teacher": name, "rounds": run.rounds, "control_steps": run.rounds * run.steps * run.num_envs, "errors": errors,
        "processor_seconds": round(time.process_time() - began, 1), "environment": NOISY, **provenance(),
    }  # fmt: skip
    write_json(args.out / f"{task_id}.json", document)


def main(args: Args) -> int:
    """Teach; 0 if all went well, 2 for bad input."""
    try:
        for task_id in args.ids or [task.id for task in tasks()]:
            teach(task_id, args)
    except SoftgymError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
