"""Policies that come with the package: networks that see only sensors, taught by planners or learned by PPO.

    python experiments/policies/policies.py  # every id that has a planner
    python experiments/policies/policies.py --ids VineWall-v0 --rounds 24
    python experiments/policies/policies.py --ids TensegrityRoll-v0  # 20 minutes of a processor; continues where it stopped
    python experiments/policies/policies.py --ids SlidingBlock-v0  # 35 minutes

Pupils learn with 2 % sensor noise and actions that come two control steps late (`teaching.imitate`), those of `OWN`
with all delays up to that. Those of `LEARNED` are taught in this way, and then learn more by PPO; those of `CARRIED` are
another id's policy, on this one's observations. All are written as PPO policies of stable-baselines3. Their observations beyond
the task's entries are in <id>.json ("observed", keywords of the environment). Their results are in the task cards
(experiments/task_cards.py). Afterwards `ship.py` writes the files that come with the package.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import tyro
from teaching import Imitation, Lesson, Told, carried, foreseeing, imitate

from agents.learning.evaluation import Controller, zero
from agents.learning.policy import load_policy, save_policy
from agents.learning.rl import LearningPoint, Training
from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.files import provenance, write_json
from softgym_envs.systems import system_of_task, tasks

NOISE, LATE = 0.02, 2
"""Noise of the environments of the training, and control steps by which their actions are late."""
TEACHERS = ("planner", "heuristic")
"""Names of controllers that may teach; the first existing one does."""


@dataclass(frozen=True)
class Own:
    """Training of an id's policy whose teacher is upset by delays: this teacher sees ahead, its pupil its own actions."""

    observed: dict[str, Any]
    """Keywords of the environment, required of the policy's user, too; for an option, those that choose it."""
    teacher: Path | None = None
    """Another policy, learned without noise and delay; none: the system's controller."""
    rounds: int = 11
    updates: int = 400
    num_envs: int = 96
    hidden: tuple[int, ...] = (128, 128)


HERE = Path(__file__).parent
OWN = {
    "ArmReach-v0": Own({"action_memory": 3}, HERE / "reach_ppo.npz"),
    "ArmHold-v0": Own({"action_memory": 3}),
    "LoopBend-v0": Own({"action_memory": 3}),
    "LoopPeg-v0": Own({"action_memory": 3}),
    "UpperBodyReach-v0": Own({}, rounds=14, updates=1000, num_envs=192, hidden=(256, 256)),
    "UpperBodyReach-v0+muscles": Own({"muscles": True}, rounds=14, updates=1000, num_envs=144, hidden=(256, 256)),
}
"""Id, or id+option, -> its training, if it is not the usual one."""
DELAYS = (0, 1, 2)
"""Delays in their training."""
SEEN: dict[str, Any] = {"sensor_noise": NOISE, "action_memory": 3}
"""Keywords of the training's environments."""
ROLLING = HERE / "roll_ppo.npz"
"""Policy that rolls without noise and delay."""
FIT = "experiments/policies/superball_fit.toml"
"""Parameters and contact of the SUPERball that equal those of its MuJoCo model."""


class Learned(NamedTuple):
    """PPO that starts from a pupil."""

    imitation: Imitation
    lesson: Lesson
    teacher: Path | None = None
    """Another policy, learned without noise and delay; none: the system's controller."""
    later: Lesson | None = None
    """A second training by PPO after the first."""


SOFT: dict[str, Any] = {"params": FIT}
CRAWLING = Training(
    "softgym_envs:TensegrityCrawl-v0", 1_996_800, num_envs=128, keywords=SEEN, checkpoint_every=400_000,
    overrides={
        "n_steps": 75, "batch_size": 2400, "n_epochs": 5, "learning_rate": 5e-4, "final_rate": 3.5e-4, "gamma": 0.98,
        "gae_lambda": 0.95, "policy_kwargs": {"net_arch": {"pi": [256, 256], "vf": [256, 256]}, "log_std_init": -1.2},
    },
)  # fmt: skip
"""Half of the rows have the default contacts, half those of the MuJoCo model."""

LEARNED = {
    "TensegrityRoll-v0": Learned(
        Imitation(
            "softgym_envs:TensegrityRoll-v0", rounds=10, steps=100, num_envs=96, hidden=(64, 64), shared=True, updates=800,
            keywords=SEEN, delays=DELAYS,
        ),
        Lesson(Training(
            "softgym_envs:TensegrityRoll-v0", 301_056, num_envs=96, keywords=SEEN,
            overrides={
                "n_steps": 16, "batch_size": 512, "n_epochs": 6, "learning_rate": 1e-3, "final_rate": 3.73e-4, "gamma": 0.95,
                "gae_lambda": 0.9, "shared": True,
                "policy_kwargs": {"net_arch": {"pi": [64, 64], "vf": [128, 128]}, "log_std_init": -1.5},
            },
        ), tuple({"action_latency": s, **world} for s in (0.0, 0.1, 0.2, 0.2) for world in ({}, SOFT)), critic_first=40_000),
        ROLLING,
    ),
    "SlidingBlock-v0": Learned(
        Imitation(
            "softgym_envs:SlidingBlock-v0", rounds=14, steps=150, num_envs=96, hidden=(256, 256), updates=600, keywords=SEEN,
            delays=DELAYS,
        ),
        Lesson(Training(
            "softgym_envs:SlidingBlock-v0", 8_000_000, num_envs=96, keywords=SEEN, checkpoint_every=500_000,
            overrides={
                "n_steps": 100, "batch_size": 2400, "n_epochs": 6, "learning_rate": 5e-4, "final_rate": 5e-5, "gamma": 0.99,
                "gae_lambda": 0.95,
                "policy_kwargs": {"net_arch": {"pi": [256, 256], "vf": [256, 256]}, "log_std_init": -1.5},
            },
        ), tuple({"action_latency": s} for s in (0.0, 0.1, 0.2)), critic_first=60_000),
    ),
    "TensegrityCrawl-v0": Learned(
        Imitation(
            "softgym_envs:TensegrityCrawl-v0", rounds=10, steps=100, num_envs=96, hidden=(256, 256), updates=400, keywords=SEEN,
            delays=(0, 2),
        ),
        Lesson(
            CRAWLING, tuple({"action_latency": s, **world} for s in (0.0, 0.2) for world in ({}, SOFT)), critic_first=80_000
        ),
        later=Lesson(
            replace(CRAWLING, steps=4_000_000, overrides={**CRAWLING.overrides, "final_rate": 5e-5}),
            tuple({"action_latency": s, **world} for s in (0.0, 0.2) for world in ({}, SOFT, SOFT, SOFT)),
            critic_first=80_000,
        ),
    ),
}  # fmt: skip
"""Id -> who imitates, foreseeing, and the PPO after it: TensegrityRoll in the default parameters and in the MuJoCo model's.

Training on to 480 000 steps, with a rate that falls to zero, lowered success in the MuJoCo model's parameters (checked every 60
000)."""

CARRIED: dict[str, tuple[str, dict[str, Told]]] = {
    "TensegrityWaypoint-v0": (
        "TensegrityRoll-v0",
        {
            "velocity_error.along": ("com.v_along", -1.0),
            "velocity_error.across": ("com.v_across", 0.0),
            "velocity_error.up": ("com.v_up", 0.0),
        },
    ),
    "TensegrityTerrain-v0": ("TensegrityRoll-v0", {"velocity_error.along": ("mean_velocity_error.along", 0.1, 4.0)}),
}
"""Id -> id whose policy it has, and that policy's substitute observations (see `carried`): it rolls at 1 m/s towards the
next waypoint; on uneven ground, which it does not feel, it hurries and brakes as its mean velocity requires. Of 64 episodes
in the default parameters and in `FIT`, factor and offset 4 and 0.1 did 60 and 59, 3 and 0.15 57 and 60, 4 and 0 55 and 58, 3
and 0 36 and 59; with the velocity's error itself, 3 and 0.3 did 30 and 23 of 32."""


@dataclass(frozen=True)
class Args:
    """Options of the training."""

    ids: tuple[str, ...] = ()
    """Ids, or those of `OWN`; none: all that have a teacher, or another id's policy."""
    rounds: int = 14
    """Rounds of `Imitation`, except for ids of `OWN`."""
    steps: int = 120
    """Steps of `Imitation`."""
    seed: int = 0
    """Seed of everything."""
    out: Path = Path("runs/policies/done")
    """Folder."""
    runs: Path = Path("runs/policies")
    """Folder of the checkpoints of PPO, one per id."""


def teach(which: str, args: Args) -> None:
    """Write <id>.zip and <id>.json, or <id+option>.zip and .json, if the id has a teacher."""
    task_id, own = which.partition("+")[0], OWN.get(which)
    name, controller = controller_of(task_id)
    if not name:
        return
    run = Imitation(
        f"softgym_envs:{task_id}",
        rounds=args.rounds,
        steps=args.steps,
        keywords={"sensor_noise": NOISE},
        delays=(LATE,),
        seed=args.seed,
    )
    if own is not None:
        keywords = {"sensor_noise": NOISE, **own.observed}
        run = replace(run, rounds=own.rounds, updates=own.updates, num_envs=own.num_envs, hidden=own.hidden)
        run = replace(run, keywords=keywords, delays=DELAYS)
        name, controller = taught_by(own.teacher, name, controller)
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
        "environment": {**run.keywords, "action_latency": run.latencies},
        **provenance(),
    }  # fmt: skip
    write_json(args.out / f"{which}.json", document)


def learn(task_id: str, args: Args) -> None:
    """Write <id>.zip and <id>.json: a pupil, and PPO from there on, or from the newest checkpoint if there is one."""
    found = LEARNED[task_id]
    imitation, folder = replace(found.imitation, seed=args.seed), args.runs / task_id
    stages = [(found.lesson, folder), *([(found.later, folder / "later")] if found.later else [])]

    def taught(number: int, error: float) -> None:
        print(f"{task_id:24s} round {number:2d}  mean squared error {error:.4f}", flush=True)

    def learned(point: LearningPoint) -> None:
        print(f"{task_id:24s} {point.steps:8d} steps  return {point.mean_return:8.3f}", flush=True)

    name, teacher = taught_by(found.teacher, *controller_of(task_id))
    model: Any = None if any(folder.glob("policy_*_steps.zip")) else imitate(imitation, teacher, taught)
    for lesson, into in stages:
        resume, seeded = any(into.glob("policy_*_steps.zip")), replace(lesson.training, seed=args.seed)
        model = replace(lesson, training=seeded).learn(into, resume=resume, report=learned, pupil=model)
    save_policy(model, args.out / f"{task_id}.zip")
    steps = imitation.rounds * imitation.steps * imitation.num_envs + sum(lesson.training.steps for lesson, _ in stages)
    variants = [dict(variant) for lesson, _ in stages for variant in lesson.variants]
    document = {
        "teacher": f"{name}; then PPO", "control_steps": steps,
        "observed": {"action_memory": SEEN["action_memory"]}, "environment": SEEN, "variants": variants, **provenance(),
    }  # fmt: skip
    write_json(args.out / f"{task_id}.json", document)


def carry(task_id: str, args: Args) -> None:
    """Write <id>.zip and <id>.json from another id's, which must exist."""
    other, told = CARRIED[task_id]
    path = args.out / f"{other}.zip"
    observed = dict(load_policy(path).keywords)
    source, target = (gym.make_vec(f"softgym_envs:{name}", num_envs=1, **observed).unwrapped for name in (other, task_id))
    save_policy(carried(path, source, target, told), args.out / f"{task_id}.zip")
    write_json(args.out / f"{task_id}.json", {"carried": other, "told": told, "observed": observed, **provenance()})
    print(f"{task_id:24s} carried over from {other}", flush=True)


def controller_of(task_id: str) -> tuple[str, Controller]:
    """Name and controller of the system that teaches; "" if there is none."""
    controllers = system_of_task(task_id).controllers_of(task_id)
    name = next((name for name in TEACHERS if name in controllers), "")
    return name, controllers.get(name, zero)


def taught_by(other: Path | None, name: str, controller: Controller) -> tuple[str, Controller]:
    """Name and controller of the teacher, another policy if given, evaluated in the state in which an action takes effect."""
    if other is None:
        return f"{name}, foreseeing", foreseeing(controller)
    policy = load_policy(other)
    return f"{other}, foreseeing", foreseeing(lambda envs: policy)


def main(args: Args) -> int:
    """Teach and learn; 0 if all went well, 2 for bad input."""
    try:
        for which in args.ids or [*(task.id for task in tasks()), *(name for name in OWN if "+" in name)]:
            (learn if which in LEARNED else carry if which in CARRIED else teach)(which, args)
        print("now run: python experiments/policies/ship.py (agents/policies must hold the same policies)")
    except SoftgymError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
