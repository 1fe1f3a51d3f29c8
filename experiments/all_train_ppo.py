"""What PPO learns from scratch of every id: sensors only, no demonstrations, the settings that come with the id.

    python experiments/all_train_ppo.py  # every id, five seeds
    python experiments/all_train_ppo.py --jobs 2 --ids VineGrow-v0 ArmReach-v0

Each run is what `softgym-envs train ID --seed SEED` trains: the native engine with its usual parameters, and the steps and
settings that the system declares (`System.learning`). Ten times in a run, the policy plays 50 episodes without exploration, and
that time does not count. At the end it plays 100 others on the native engine and on the MuJoCo model. Finished runs are not run
again: each is a file in runs/all_train_ppo/runs. Writes numbers.json, table.md and picture.png into results/all_train_ppo.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before PyTorch: one thread a run

import io
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tyro
from stable_baselines3.common.callbacks import BaseCallback

from agents.learning.evaluation import evaluate
from agents.learning.policy import policy_of
from agents.learning.rl import Training, settings, train
from agents.transfer_study.jobs import run_jobs
from agents.transfer_study.statistics import Interval, share
from softgym_envs.core.files import git_commit, read_json, write_atomically, write_json
from softgym_envs.data.page import new_figure, plain_axes
from softgym_envs.systems import system_of_task, systems, tasks

CARDS = Path("results/task_cards/numbers.json")
LOOKS, SHOWN, EPISODES = 10, 50, 100
"""Evaluations within a run, their episodes, and those of the evaluation at its end."""
SEED_WITHIN, SEED_AFTER = 30_000_001, 10_000_019
"""Seeds of their first episodes; no training starts from them."""


@dataclass(frozen=True)
class Args:
    """Options."""

    ids: tuple[str, ...] = tuple(task.id for task in tasks())
    """Environments."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Seeds of the trainings."""
    jobs: int = 1
    """Processes."""
    out: Path = Path("results/all_train_ppo")
    """Folder."""
    runs: Path = Path("runs/all_train_ppo")
    """Folder of finished runs."""


class Run(NamedTuple):
    """One training."""

    id: str
    seed: int

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"{self.id}_{self.seed}"


class _Looks(BaseCallback):
    """Plays episodes without exploration now and then; the clock stands still meanwhile."""

    def __init__(self, env_id: str, every: float) -> None:
        super().__init__()
        self.env_id, self.every, self.points = env_id, every, list[tuple[int, float, float]]()
        self.wall, self.processor = time.perf_counter(), time.process_time()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= (len(self.points) + 1) * self.every:
            self.look()

    def look(self) -> None:
        """Play, and note steps, processor time [s] and success."""
        wall, processor = time.perf_counter(), time.process_time()
        found = evaluate(policy_of(self.model), self.env_id, episodes=SHOWN, seed=SEED_WITHIN)
        self.points.append((self.num_timesteps, round(processor - self.processor, 1), found.share.value))
        self.wall += time.perf_counter() - wall
        self.processor += time.process_time() - processor


def learned(run: Run) -> dict[str, Any]:
    """Train one id and evaluate it: seconds, learning curve, and successes by backend."""
    system = system_of_task(run.id)
    own = system.learning_of(run.id, "ppo")
    training = Training(f"softgym_envs:{run.id}", settings("ppo", own)["steps"], seed=run.seed, overrides=own)
    looks = _Looks(training.env_id, training.steps_after() / LOOKS)
    trained = train(training, callbacks=[looks])
    wall, processor = time.perf_counter() - looks.wall, time.process_time() - looks.processor
    looks.look()
    success = {
        world: int(evaluate(policy_of(trained.model), training.env_id, episodes=EPISODES, seed=SEED_AFTER,
                            keywords={"backend": world}).success.sum())
        for world in ("native", "mujoco")
    }  # fmt: skip
    return {
        "commit": git_commit(), "steps": trained.model.num_timesteps, "wall_seconds": round(wall),
        "processor_seconds": round(processor), "success": success, "curve": looks.points,
    }  # fmt: skip


def card_of(name: str) -> float:
    """The least success of the 95 % interval of the policy in an id's task card."""
    runs = read_json(CARDS)[name]["runs"]
    return next(float(run["success_95"][0]) for run in runs if run["controller"] == "policy" and run["backend"] == "native")


def to_card(run: dict[str, Any]) -> float | None:
    """Processor time until the success of the task card [s]."""
    least = card_of(run["id"])
    return next((seconds for _, seconds, success in run["curve"] if success >= least), None)


def percent(found: Interval) -> str:
    """A share with its interval [%]."""
    return f"{100.0 * found.value:.0f} [{100.0 * (found.low or 0.0):.0f}, {100.0 * (found.high or 0.0):.0f}]"


def table_of(runs: list[dict[str, Any]]) -> str:
    """Markdown: success of all seeds with its 95 % interval, and of each seed."""
    lines = [
        "| id | native [%] | seeds | MuJoCo model [%] | seeds | steps | processor [s] | wall [s] | to the card's success [s] |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in [task.id for task in tasks()]:
        if not (own := [run for run in runs if run["id"] == name]):
            continue
        cells = []
        for world in ("native", "mujoco"):
            won = [run["success"][world] for run in own]
            cells += [percent(share(sum(won), EPISODES * len(won))), ", ".join(map(str, won))]
        cells.append(f"{own[0]['steps']:,}")
        cells += [", ".join(str(run[f"{clock}_seconds"]) for run in own) for clock in ("processor", "wall")]
        cells.append(", ".join("-" if (found := to_card(run)) is None else f"{found:.0f}" for run in own))
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw(runs: list[dict[str, Any]], path: Path) -> None:
    """Success against processor time, a panel for each system."""
    panels = [found for found in systems().values() if any(run["id"] in [task.id for task in found.tasks] for run in runs)]
    figure = new_figure(9.0, 5.6)
    for place, found in enumerate(panels):
        axes = figure.add_subplot(2, 3, place + 1)
        for colour, task in enumerate(found.tasks):
            for run in [one for one in runs if one["id"] == task.id]:
                _, seconds, success = zip((0, 0.0, 0.0), *run["curve"], strict=True)
                label = task.id.removesuffix("-v0") if run["seed"] == 0 else None
                axes.plot(seconds, [100.0 * x for x in success], color=f"C{colour}", linewidth=1.0, label=label)
        axes.set_ylim(-3.0, 103.0)
        axes.set_title(found.name, fontsize=9)
        axes.legend(frameon=False, fontsize=7)
        plain_axes(axes)
        if place % 3 == 0:
            axes.set_ylabel("success [%]", fontsize=9)
        if place >= len(panels) - 3:
            axes.set_xlabel("processor time [s]", fontsize=9)
    figure.tight_layout()
    stream = io.BytesIO()
    figure.savefig(stream, dpi=110)
    write_atomically(path, stream.getvalue())


def main(args: Args) -> None:
    """Run what is missing."""
    jobs = [Run(name, seed) for name in args.ids for seed in args.seeds]
    failures = run_jobs(jobs, learned, args.runs, executor="processes" if args.jobs > 1 else "serial", workers=args.jobs)
    runs = [read_json(path) for path in sorted((args.runs / "runs").glob("*.json"))]
    write_json(args.out / "numbers.json", {"runs": runs})
    write_atomically(args.out / "table.md", table_of(runs).encode())
    draw(runs, args.out / "picture.png")
    print(table_of(runs))
    if failures:
        raise SystemExit(f"{len(failures)} runs failed, the first one: {failures[0].message}")


if __name__ == "__main__":
    main(tyro.cli(Args, description=__doc__))
