"""Train PPO or SAC on any id and backend, evaluate on our engine and the truth, draw the learning curve.

    softgym-envs train TensegrityRoll-v0 --params runs/fit/fit.toml --steps 3000000
    softgym-envs train TensegrityRoll-v0 --params runs/fit/fit.toml --steps 6000000 --resume
    softgym-envs train VineNavigate-v0 --keyword level=3

The folder (runs/train/<id>_<algorithm>_<backend>_<seed>) gets policy.zip, checkpoints, progress.csv, TensorBoard files
(`tensorboard --logdir runs/train`), curve.json, curve.png and evaluation.json. It holds one training. Ctrl-C stops it and
leaves a checkpoint; `--resume` continues from the newest complete one, and refuses one of another id, seed, algorithm or
other settings.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before PyTorch: its threads and the simulator's would compete for processors

import io
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import gymnasium as gym
import numpy as np
import tyro

from agents.learning.checkpoints import newest_checkpoint, require_run, steps_of
from agents.learning.evaluation import Evaluation, evaluate
from agents.learning.policy import policy_of
from agents.learning.rl import LearningPoint, Training, train
from softgym_envs.core.errors import FileFormatError, SoftgymError
from softgym_envs.core.files import git_commit, read_json, write_atomically, write_json
from softgym_envs.core.page import BLUE, plain_axes
from softgym_envs.core.room import task_keywords
from softgym_envs.rooms import room_of_task


@dataclass(frozen=True)
class Args:
    """Train a policy."""

    id: Annotated[str, tyro.conf.Positional]
    """Environment, e.g. TensegrityRoll-v0."""
    steps: int = 3_000_000
    """Control steps of all rows together, rounded up to whole updates."""
    algorithm: Literal["ppo", "sac"] = "ppo"
    """Learning algorithm."""
    backend: str = "native"
    """World of the training: our engine, a truth of the room, "package.module:function" or a .toml file."""
    model: str | None = None
    """The robot, a name or TOML file; none: the id's own."""
    keyword: tuple[str, ...] = ()
    """Keywords of the task, key=value: level=3."""
    params: Path | None = None
    """TOML file of a fit; none: the backend's defaults."""
    disturbance: float = 0.0
    """Random velocity kicks while training [m/s]."""
    sensor_noise: float = 0.0
    """Noise of observations while training, over the entries' scales."""
    action_delay: int = 0
    """Delay of actions while training [control steps]."""
    action_memory: int = 0
    """Number of previous actions that are observed."""
    num_envs: int | None = None
    """Rows; none: 64 for PPO, 16 for SAC."""
    seed: int = 0
    """Seed of everything."""
    episodes: int = 50
    """Episodes of each evaluation; the same on all backends."""
    checkpoint_every: int = 100_000
    """Control steps between checkpoints."""
    resume: bool = False
    """Resume from the newest checkpoint of the folder."""
    out: Path | None = None
    """Folder; none: runs/train/<id>_<algorithm>_<backend>_<seed>."""


def folder_of(args: Args) -> Path:
    """Folder of the results."""
    task, backend = args.id.rpartition(":")[2], Path(args.backend).name
    return args.out or Path("runs") / "train" / f"{task}_{args.algorithm}_{backend}_{args.seed}"


def training_of(args: Args) -> Training:
    """The training that the arguments describe."""
    keywords: dict[str, Any] = {"backend": args.backend, **robot_of(args)}
    keywords |= {name: getattr(args, name) for name in ("disturbance", "sensor_noise", "action_delay")}
    if args.params is not None:
        keywords["params"] = args.params
    return Training(
        env_id(args.id),
        args.steps,
        args.algorithm,
        keywords,
        args.num_envs,
        seed=args.seed,
        checkpoint_every=args.checkpoint_every,
        overrides=room_of_task(args.id).learning_of(args.id.rpartition(":")[2], args.algorithm),
    )


def env_id(name: str) -> str:
    """Id with the package in front, so that no import is needed."""
    return name if ":" in name else f"softgym_envs:{name}"


def begun(training: Training, args: Args, out: Path) -> int:
    """Control steps done before: those of the checkpoint from which a training resumes; prints what remains.

    Raises:
        FileFormatError: There is no checkpoint to resume from, or it belongs to another run.
    """
    done = 0
    if args.resume:
        newest = newest_checkpoint(out)
        require_run(newest, training.run)
        done = steps_of(newest)
    end = training.steps_after(done)
    if end == done:
        print(f"nothing is left to train: {newest.name} has {done} steps, --steps is {args.steps}", flush=True)
    elif end != args.steps:
        print(f"trains up to {end} steps, --steps is {args.steps}: it learns from {training.collected} at a time", flush=True)
    return done


def earlier_points(done: int, out: Path) -> list[LearningPoint]:
    """Learning curve up to the checkpoint from which a training resumes.

    Raises:
        FileFormatError: The file of the curve is damaged.
    """
    path = out / "curve.json"
    if not done or not path.exists():
        return []
    points = read_json(path).get("points")
    if not isinstance(points, list) or not all(_is_point(point) for point in points):
        raise FileFormatError(f"{path} holds no learning curve: remove it, and the training goes on without what was before")
    return [point for p in points if (point := LearningPoint(*p)).steps <= done]


def _is_point(point: Any) -> bool:
    """Whether a file's entry is a `LearningPoint`."""
    whole = isinstance(point, list) and len(point) == len(LearningPoint._fields)
    return whole and all(isinstance(number, (int, float)) and abs(number) < sys.float_info.max for number in point)


def what_is_kept(out: Path) -> str:
    """Message on how to continue an interrupted training."""
    try:
        return f"the same command with --resume goes on from {newest_checkpoint(out).name}"
    except FileFormatError:
        return "nothing was learned yet: the same command begins anew"


def draw(points: list[LearningPoint], reached: dict[str, Evaluation], path: Path) -> None:
    """Return against control steps, and the evaluations at the end."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([p.steps for p in points], [p.mean_return for p in points], color=BLUE, label="training, last 100 episodes")
    for marker, (name, found) in zip("osd", reached.items(), strict=False):
        end = points[-1].steps if points else 0
        axes.errorbar(end, found.returns.mean(), found.returns.std(), fmt=marker, capsize=4, label=f"{name}: mean and std")
    axes.set_xlabel("control steps")
    axes.set_ylabel("return")
    axes.legend(frameon=False, fontsize=8)
    plain_axes(axes)
    stream = io.BytesIO()
    figure.savefig(stream, dpi=130)
    write_atomically(path, stream.getvalue())


def main(args: Args) -> int:
    """Train, evaluate, draw; 0 if all went well, 2 for bad input, 130 if interrupted."""
    out = folder_of(args)
    print(f"seed {args.seed}, commit {git_commit()}, folder {out}", flush=True)
    try:
        training = training_of(args)
        points = earlier_points(begun(training, args, out), out)

        def report(point: LearningPoint) -> None:
            points.append(point)
            write_json(out / "curve.json", {"points": [list(p) for p in points]})
            print(f"{point.steps:10d} steps  {point.seconds:7.0f} s  return {point.mean_return:9.3f}", flush=True)

        policy = policy_of(train(training, out, resume=args.resume, report=report).model)
        reached = {
            backend: evaluate(policy, training.env_id, episodes=args.episodes, seed=10_000_019, keywords=keywords)
            for backend, keywords in evaluations(args).items()
        }
        finish(points, reached, out)
    except (SoftgymError, gym.error.Error) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"interrupted; {what_is_kept(out)}", file=sys.stderr)
        return 130
    return 0


def finish(points: list[LearningPoint], reached: dict[str, Evaluation], out: Path) -> None:
    """Print, write and draw the results.

    Raises:
        StorageError: It cannot be written.
    """
    for backend, found in reached.items():
        print(
            f"{backend:8s} return {found.returns.mean():9.3f} ± {found.returns.std():.3f}, success {found.success.mean():.0%}"
        )
    write_json(
        out / "evaluation.json",
        {name: {k: np.asarray(v).tolist() for k, v in found._asdict().items()} for name, found in reached.items()},
    )
    draw(points, reached, out / "curve.png")


def robot_of(args: Args) -> dict[str, Any]:
    """Keywords that determine the robot, its task, and its observations."""
    own = {name: given for name in ("model", "action_memory") if (given := getattr(args, name))}
    return own | task_keywords(args.keyword, [field.name for field in fields(args)])


def evaluations(args: Args) -> dict[str, dict[str, Any]]:
    """Keywords by world: our engine, the room's first truth and the world of the training, the only one with --params."""
    names = dict.fromkeys(("native", *list(room_of_task(args.id).truths)[:1], args.backend))
    found: dict[str, dict[str, Any]] = {name: {"backend": name, **robot_of(args)} for name in names}
    if args.params is not None:
        found[args.backend]["params"] = args.params
    return found


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args, description=__doc__)))
