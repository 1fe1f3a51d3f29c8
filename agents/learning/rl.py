"""Training with stable-baselines3, and resuming it.

    folder/policy.zip              the policy after the last step, and policy.json, its contract: see `.contract`
    folder/policy_<N>_steps.zip    the policy and its optimiser after N control steps: `resume` continues from it if it is of
                                   the same run: see `.checkpoints`
    folder/progress.csv            returns and losses (progress_<N>.csv from step N on, where it was resumed); TensorBoard files
                                   beside it where TensorBoard is installed

SAC's replay buffer is not saved (it would have to be unpickled): a resumed SAC fills a new one before it continues to learn.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np

from softgym_envs.core.errors import OptionError, needed
from softgym_envs.core.files import write_json
from softgym_envs.core.simulator import check_number
from softgym_envs.core.system import identity_of

with needed("agents.learning.rl needs stable-baselines3", "learn"):
    import torch
    from stable_baselines3 import SAC
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.logger import Logger, make_output_format
    from stable_baselines3.common.utils import LinearSchedule

from .checkpoints import checkpoint_of, described, load_checkpoint, require_unused, save_checkpoint, steps_of
from .contract import PolicyContract
from .evaluation import Evaluation, check_free
from .policy import save_policy
from .ppo import LeanPPO
from .scaling import Scaling
from .shared_policy import SharedPolicy, views_of
from .vec_env import SB3VecEnv

ALGORITHMS: dict[str, type[BaseAlgorithm]] = {"ppo": LeanPPO, "sac": SAC}

USUAL: dict[str, dict[str, Any]] = {
    "ppo": {
        "steps": 1_000_000, "num_envs": 64, "n_steps": 64, "batch_size": 1024, "n_epochs": 6, "learning_rate": 1e-3,
        "final_rate": 0.0, "gamma": 0.98, "gae_lambda": 0.95, "ent_coef": 0.0, "target_kl": 0.02, "shared": False,
        "scaled": True, "noise_decay": 0.0, "policy_kwargs": {"net_arch": [128, 128], "log_std_init": -0.7},
    },
    "sac": {
        "steps": 1_000_000, "num_envs": 16, "learning_rate": 3e-4, "gamma": 0.98, "batch_size": 256, "train_freq": 1,
        "gradient_steps": 8, "learning_starts": 2000, "buffer_size": 300_000, "policy_kwargs": {"net_arch": [256, 256]},
    },
}  # fmt: skip
"""Algorithm -> settings, if the task's system declares no others (`System.learning`).

Keywords of stable-baselines3, and six of ours: "steps" and "num_envs", control steps and rows if none are given; "final_rate",
to which the learning rate falls linearly; "shared": whether all actuators share one network (`.shared_policy`), for which the
task must define their observations (`actuator_views`); "scaled": whether networks see observations and values of order 1
(`.scaling`); and "noise_decay": by how much the logarithm of the noise of actions falls in a training, beside what is learned:
a policy is played without noise. PPO is `.ppo`.
"""

OBSERVED = ("action_memory", "obs_mode")
"""Keywords of environments that change the observations."""
MOST_SEED = 2**32 - 1
"""Largest seed of NumPy's legacy random numbers, which Stable-Baselines3 uses."""


def devices() -> list[str]:
    """PyTorch's devices on this machine."""
    several = range(torch.cuda.device_count())
    return ["cpu", *["cuda"][: len(several)], *(f"cuda:{k}" for k in several)]


def settings(algorithm: str, own: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The usual settings, updated by `own`.

    >>> settings("ppo", {"gamma": 0.9})["gamma"]
    0.9

    Raises:
        OptionError: Unknown algorithm.
    """
    if algorithm not in USUAL:
        raise OptionError(f"algorithm is {algorithm!r}, allowed are {', '.join(USUAL)}")
    return {**USUAL[algorithm], **(own or {})}


@dataclass(frozen=True)
class Training:
    """One training run.

    Raises:
        OptionError: Unknown algorithm, a count that is no whole number >= 1, a seed that PyTorch and NumPy do not both take, a
            keyword that trainings set, or no such device.
    """

    env_id: str
    """"package:Id-v0" or "Id-v0"."""
    steps: int
    """Control steps of all rows together, rounded up to whole collections (`steps_after`)."""
    algorithm: Literal["ppo", "sac"] = "ppo"
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of `gym.make_vec`: backend, params, randomize, disturbance, ..."""
    num_envs: int | None = None
    """Rows; None: as in the settings."""
    seed: int = 0
    checkpoint_every: int = 100_000
    """Control steps between checkpoints."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from `USUAL`: those of the system (`System.learning_of`), and the user's."""
    also: Mapping[str, Any] = field(default_factory=dict)
    """Further facts that a checkpoint must share."""
    device: str = "cpu"
    """PyTorch's device of the networks: "cpu", "cuda", "cuda:1", ..."""

    def __post_init__(self) -> None:
        settings(self.algorithm)
        check_free(self.keywords)
        for name in ("steps", "checkpoint_every", *(("num_envs",) if self.num_envs is not None else ())):
            check_number(name, getattr(self, name), low=1, whole=True)
        check_number("seed", self.seed, low=0, high=MOST_SEED, whole=True)
        if self.device not in devices():
            raise OptionError(f"device is {self.device!r}, allowed are {', '.join(devices())} (PyTorch {torch.__version__})")

    @property
    def rows(self) -> int:
        """Rows of the batched environment."""
        return self.num_envs or int(settings(self.algorithm, self.overrides)["num_envs"])

    def steps_after(self, begun: int = 0) -> int:
        """Total control steps at the end of a training that resumes at `begun`: it learns from `collected` at a time."""
        return end_of(begun, self.steps, self.collected)

    @property
    def collected(self) -> int:
        """Control steps of all rows between two updates."""
        found = settings(self.algorithm, self.overrides)
        return self.rows * int(found["n_steps" if self.algorithm == "ppo" else "train_freq"])

    def make(self) -> SB3VecEnv:
        """The environments."""
        return SB3VecEnv(gym.make_vec(self.env_id, num_envs=self.rows, autoreset_mode="same_step", **self.keywords))

    def hyperparameters(self) -> dict[str, Any]:
        """Keywords of the algorithm; a minibatch is no larger than PPO's batch."""
        found = settings(self.algorithm, self.overrides)
        final = found.pop("final_rate", None)
        del found["num_envs"], found["steps"]
        if final is not None:
            found["learning_rate"] = LinearSchedule(found["learning_rate"], final, 1.0)
        if self.algorithm == "ppo":
            found["batch_size"] = min(found["batch_size"], self.rows * found["n_steps"])
        return found

    @property
    def run(self) -> dict[str, str]:
        """Description that a checkpoint must share with this training: all but `steps`, `checkpoint_every` and `device`.

        A named file counts by its contents, not by its name.
        """

        def read(keywords: Mapping[str, Any]) -> dict[str, Any]:
            found = {n: Path(v) if isinstance(v, str) and os.path.isfile(v) else v for n, v in keywords.items()}
            return found | ({"backend": identity_of(keywords["backend"])} if "backend" in keywords else {})

        return described(
            {
                "id": self.env_id.rpartition(":")[2],
                "algorithm": self.algorithm,
                "seed": self.seed,
                "rows": self.rows,
                "keywords": read(self.keywords),
                **self.also,
                "hyperparameters": settings(self.algorithm, self.overrides),
            }
        )


class LearningPoint(NamedTuple):
    """One point of a learning curve."""

    steps: int
    """Control steps so far."""
    seconds: float
    mean_return: float
    """Mean return over the latest episodes (100 at most), in the environment of the training."""
    success: float
    """Share of successes among them; exploration's noise included."""


class _Curve(BaseCallback):
    """Collects a learning curve; `report` is called with every point."""

    def __init__(self, report: Callable[[LearningPoint], None] | None) -> None:
        super().__init__()
        self.points: list[LearningPoint] = []
        self.report = report
        self.began = time.perf_counter()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        episodes = self.model.ep_info_buffer or ()
        due = not self.points or self.num_timesteps >= self.points[-1].steps + max(self.training_env.num_envs * 16, 1000)
        if episodes and due:
            mean = float(np.mean([episode["r"] for episode in episodes]))
            success = float(np.mean(self.model.ep_success_buffer or 0.0))
            self.points.append(LearningPoint(self.num_timesteps, time.perf_counter() - self.began, mean, success))
            if self.report is not None:
                self.report(self.points[-1])


class _Checkpoints(BaseCallback):
    """Writes a checkpoint after every given number of steps of each row."""

    def __init__(self, every: int, folder: Path, run: Mapping[str, str]) -> None:
        super().__init__()
        self.every, self.folder, self.run = every, folder, run

    def _on_step(self) -> bool:
        if self.n_calls % self.every == 0:
            save_checkpoint(self.model, self.folder, self.run)
        return True


class Trained(NamedTuple):
    """Result of `train`."""

    model: BaseAlgorithm
    curve: tuple[LearningPoint, ...]
    evaluations: Mapping[str, Evaluation] = {}
    """Backend -> episodes of the policy, of `agents.train`."""
    folder: Path | None = None
    """Folder of policy.zip."""


def train(
    training: Training,
    folder: Path | None = None,
    *,
    resume: bool = False,
    report: Callable[[LearningPoint], None] | None = None,
    envs: Any = None,
    start: Callable[[BaseAlgorithm], None] | None = None,
    callbacks: Sequence[BaseCallback] = (),
) -> Trained:
    """Train a policy; equal trainings give equal policies on one machine.

    Ctrl-C leaves a checkpoint in `folder`, and is passed on.

    Args:
        training: Task and length of the training.
        folder: Folder of checkpoints, logs and the policy, for one training only; None keeps the policy in memory.
        resume: Continue from the newest checkpoint in `folder` until `training.steps` are reached; none are taken if they are.
        report: Called with points of the learning curve.
        envs: The environments of stable-baselines3; None: `training.make`.
        start: Called with the untrained model, to give it other weights; not where a training resumes.
        callbacks: Further callbacks of stable-baselines3.

    Raises:
        OptionError: `resume` without a folder, or without `resume` a folder that already holds a training.
        FileFormatError: There is no checkpoint to resume from, or it belongs to another run.
    """
    if resume and folder is None:
        raise OptionError("resume needs the folder of the training that is to go on")
    run = training.run if folder is not None else {}
    checkpoint = checkpoint_of(folder, run) if resume and folder is not None else None
    if folder is not None and not resume:
        require_unused(folder)
    envs = envs or training.make()
    envs.seed(training.seed)
    curve = _Curve(report)
    try:
        model = new_model(training, envs)
        if checkpoint is not None:
            load_checkpoint(checkpoint, model)
        elif start is not None:
            start(model)
        called = [curve, *callbacks]
        if folder is not None:
            model.set_logger(_logger(folder, model.num_timesteps))
            called.append(_Checkpoints(max(training.checkpoint_every // training.rows, 1), folder, run))
        try:
            model.learn(max(training.steps - model.num_timesteps, 0), callback=called, reset_num_timesteps=checkpoint is None)
        except KeyboardInterrupt:
            if folder is not None and model.num_timesteps:
                save_checkpoint(model, folder, run)
            raise
        if folder is not None:
            save_checkpoint(model, folder, run)  # the last one lacks PPO's last update
            save_policy(model, folder / "policy.zip")
            observed = {name: training.keywords[name] for name in OBSERVED if name in training.keywords}
            contract = PolicyContract.of(envs.envs, training.keywords)
            write_json(folder / "policy.json", {"observed": observed, "contract": contract.table()})
    finally:
        envs.close()
    return Trained(model, tuple(curve.points))


def begun(training: Training, folder: Path, say: Callable[[str], None]) -> None:
    """Say what remains of a training that resumes, if that is not what was asked.

    Raises:
        FileFormatError: There is no checkpoint to resume from, or it belongs to another run.
    """
    newest = checkpoint_of(folder, training.run)
    say_rest(newest, steps_of(newest), training.steps, training.collected, say)


def say_rest(newest: Path, done: int, steps: int, collected: int, say: Callable[[str], None]) -> None:
    """Say what remains of a training with a checkpoint after `done` steps, if that is not up to `steps`."""
    end = end_of(done, steps, collected)
    if end == done:
        say(f"nothing is left to train: {newest.name} has {done} steps, steps is {steps}")
    elif end != steps:
        say(f"trains up to {end} steps, steps is {steps}: it learns from {collected} at a time")


def end_of(done: int, steps: int, collected: int) -> int:
    """Control steps at the end of a training that goes on from `done` and learns from `collected` at a time."""
    return done + max(-(-(steps - done) // collected), 0) * collected


def new_model(training: Training, envs: Any) -> BaseAlgorithm:
    """The untrained model at the start of a training.

    Raises:
        OptionError: `shared` is set, but the task does not define its actuators' observations.
    """
    kind: Any = ALGORITHMS[training.algorithm]
    keywords = training.hyperparameters()
    policy: Any = "MlpPolicy"
    if keywords.pop("shared", False):
        policy = SharedPolicy
        keywords["policy_kwargs"] = {**keywords["policy_kwargs"], "views": views_of(envs.envs.unwrapped)}
    if keywords.pop("scaled", False):
        keywords["policy_kwargs"] = {**keywords["policy_kwargs"], "features_extractor_class": Scaling}
    decay = keywords.pop("noise_decay", 0.0)
    model: BaseAlgorithm = kind(policy, envs, seed=training.seed, device=training.device, **keywords)
    if isinstance(model, LeanPPO):
        model.noise_decay = decay
    return model


def _logger(folder: Path, steps: int) -> Logger:
    """progress.csv, of a training that resumes after some steps progress_<steps>.csv, and TensorBoard files."""
    kinds = ["csv", *(["tensorboard"] if importlib.util.find_spec("tensorboard") else [])]
    return Logger(str(folder), [make_output_format(kind, str(folder), f"_{steps}" if steps else "") for kind in kinds])
