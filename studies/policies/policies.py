"""Policies of results/policies: networks that see sensors only, taught by the planners of the rooms, which see the state.

    python studies/policies/policies.py                          # every id that has a planner
    python studies/policies/policies.py --ids VineWall-v0 --rounds 20

They learn with 2 % sensor noise and actions that come two control steps late (`agents.learning.imitation`), those of `OWN` with
all delays up to that, and are written as PPO policies of stable-baselines3. What they observe beyond the task's entries stands
in <id>.json ("observed", keywords of the environment). How well they do stands in the task cards (studies/task_cards).
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from agents.learning.evaluation import Controller
from agents.learning.imitation import Imitation, foreseeing, imitate
from agents.learning.policy import load_policy, save_policy
from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.files import provenance, write_json
from softgym_envs.rooms import room_of_task, tasks

NOISY = {"sensor_noise": 0.02, "action_delay": 2}
"""Keywords of the environments that they learn in."""
TEACHERS = ("planner", "heuristic")
"""Names of controllers that may teach, the first one that there is."""


@dataclass(frozen=True)
class Own:
    """How an id's policy learns, where delays upset its teacher: this one sees ahead, its pupil its own actions."""

    observed: dict[str, Any]
    """Keywords of the environment, which a user of the policy gives, too; of an option, those that choose it."""
    teacher: Path | None = None
    """Another policy, learned without noise and delay; none: the room's controller."""
    rounds: int = 11
    updates: int = 400
    num_envs: int = 96
    hidden: tuple[int, ...] = (128, 128)


OWN = {
    "ArmReach-v0": Own({"action_memory": 3}, Path("results/arm_policy/policy.zip")),
    "ArmHold-v0": Own({"action_memory": 3}),
    "UpperBodyReach-v0": Own({}, rounds=14, updates=1000, num_envs=192, hidden=(256, 256)),
    "UpperBodyReach-v0+muscles": Own({"muscles": True}, rounds=10, updates=600, num_envs=72, hidden=(256, 256)),
}
"""Id, or id+option, -> how it learns, where it is not as usual."""
DELAYS = (0, 1, 2)
"""In which those learn."""


@dataclass(frozen=True)
class Args:
    """Teach policies."""

    ids: tuple[str, ...] = ()
    """Which, ids or those of `OWN`; none: all that have a teacher."""
    rounds: int = 14
    """Of `Imitation`, but for ids of `OWN`."""
    steps: int = 120
    """Of `Imitation`."""
    seed: int = 0
    """Of everything."""
    out: Path = Path("results/policies")
    """Folder."""


def teach(which: str, args: Args) -> None:
    """Write <id>.zip and <id>.json, or <id+option>.zip and .json, if the id has a teacher."""
    task_id, own = which.partition("+")[0], OWN.get(which)
    controllers = room_of_task(task_id).controllers_of(task_id)
    name = next((name for name in TEACHERS if name in controllers), None)
    if name is None:
        return
    controller = controllers[name]
    run = Imitation(f"softgym_envs:{task_id}", rounds=args.rounds, steps=args.steps, keywords=NOISY, seed=args.seed)
    if own is not None:
        keywords = {"sensor_noise": NOISY["sensor_noise"], **own.observed}
        run = replace(run, rounds=own.rounds, updates=own.updates, num_envs=own.num_envs, hidden=own.hidden)
        run = replace(run, keywords=keywords, delays=DELAYS)
        name, controller = taught_by(own, name, controller)
    errors: list[float] = []
    began = time.process_time()

    def report(number: int, error: float) -> None:
        errors.append(error)
        print(f"{which:24s} round {number:2d}  mean squared error {error:.4f}", flush=True)

    model = imitate(run, controller, report)
    save_policy(model, args.out / f"{which}.zip")
    document = {
        "teacher": name, "rounds": run.rounds, "control_steps": run.rounds * run.steps * run.num_envs, "errors": errors,
        "processor_seconds": round(time.process_time() - began, 1), "observed": own.observed if own else {},
        "environment": dict(run.keywords) | ({"action_delay": list(run.delays)} if own else {}),
        **provenance(),
    }  # fmt: skip
    write_json(args.out / f"{which}.json", document)


def taught_by(own: Own, name: str, controller: Controller) -> tuple[str, Controller]:
    """Name and controller of who teaches, told what will be when an action takes effect."""
    if own.teacher is None:
        return f"{name}, foreseeing", foreseeing(controller)
    policy = load_policy(own.teacher)
    return f"{own.teacher}, foreseeing", foreseeing(lambda envs: policy)


def main(args: Args) -> int:
    """Teach; 0 if all went well, 2 for bad input."""
    try:
        for which in args.ids or [*(task.id for task in tasks()), *(name for name in OWN if "+" in name)]:
            teach(which, args)
    except SoftgymError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
