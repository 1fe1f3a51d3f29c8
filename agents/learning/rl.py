"""Stable-baselines3 on our batched environments: an adapter (it refuses a Gymnasium VectorEnv), training, evaluation, resume.

    folder/policy.zip              the policy after the last step
    folder/policy_<N>_steps.zip    the policy and its optimiser after N control steps: what `resume` goes on from
    folder/progress.csv            returns and losses; TensorBoard files beside it where TensorBoard is installed

SAC's replay buffer is not saved (it would have to be unpickled): a resumed SAC fills a new one before it goes on learning.
"""

from __future__ import annotations

import importlib.util
import io
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from softgym_envs.core.errors import FileFormatError, MissingDependencyError, OptionError
from softgym_envs.core.files import write_atomically

try:
    from stable_baselines3 import PPO, SAC
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback
    from stable_baselines3.common.logger import configure
    from stable_baselines3.common.utils import LinearSchedule
    from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvStepReturn
except ImportError as error:
    raise MissingDependencyError('agents.learning.rl needs stable-baselines3: pip install "softgym-envs[learn]"') from error

from ..study.jobs import Job, Study
from ..study.protocol import CONDITIONS, NOTHING, Case, EmpiricalParameters, identify
from .shared_policy import SharedPolicy

Array = NDArray[np.float64]


class SB3VecEnv(VecEnv):
    """A Gymnasium VectorEnv in SAME_STEP mode as a stable-baselines3 VecEnv.

    An episode's end shows as `done`; its last observation is in info["terminal_observation"], "TimeLimit.truncated" says
    whether time ended it, and info["episode"] holds return "r", length "l" and seconds "t" as Monitor writes them.

    >>> import gymnasium as gym
    >>> envs = SB3VecEnv(gym.make_vec("softgym_envs:TensegrityRoll-v0", num_envs=2, autoreset_mode="same_step"))
    >>> envs.reset().shape
    (2, 100)

    Args:
        envs: The batched environment.

    Raises:
        OptionError: It resets in another way than SAME_STEP.
    """

    def __init__(self, envs: gym.vector.VectorEnv[Any, Any, Any]) -> None:
        mode = envs.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.SAME_STEP:
            raise OptionError(f'the environment resets by {mode}; make it with gym.make_vec(..., autoreset_mode="same_step")')
        self.envs = envs
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self._actions: Any = None
        self._start = time.perf_counter()
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, dtype=np.int64)

    def reset(self) -> NDArray[Any]:
        """Begin an episode in every row, with the seeds given to `seed` and the options given to `set_options`.

        Raises:
            OptionError: Options differ from row to row.
        """
        first = self._options[0]
        if any(options is not first and (options or first) for options in self._options):
            raise OptionError("set_options was given one dictionary per row; all rows take one and the same")
        seeds = [seed for seed in self._seeds if seed is not None]
        observation, info = self.envs.reset(seed=seeds or None, options=first)  # type: ignore[arg-type]
        self.reset_infos = [row_of(info, row) for row in range(self.num_envs)]
        self._returns[:], self._lengths[:] = 0.0, 0
        self._reset_seeds()
        self._reset_options()
        return np.asarray(observation)

    def step_async(self, actions: NDArray[Any]) -> None:
        """Remember the actions (B, na)."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Take the step: observations, rewards (float32), dones, one info per row."""
        observation, reward, terminated, truncated, info = self.envs.step(self._actions)
        done = np.logical_or(terminated, truncated)
        self._returns += reward
        self._lengths += 1
        infos = [row_of(info, row) for row in range(self.num_envs)]
        for row in np.flatnonzero(done):
            infos[row] = self._end(int(row), info, bool(truncated[row] and not terminated[row]))
        return np.asarray(observation), np.asarray(reward, dtype=np.float32), done, infos

    def _end(self, row: int, info: dict[str, Any], by_time: bool) -> dict[str, Any]:
        """Info of an episode's last step."""
        episode = {"r": float(self._returns[row]), "l": int(self._lengths[row]), "t": time.perf_counter() - self._start}
        self._returns[row], self._lengths[row] = 0.0, 0
        last = row_of(info["final_info"], row)
        return {**last, "terminal_observation": info["final_obs"][row], "TimeLimit.truncated": by_time, "episode": episode}

    def close(self) -> None:
        """Close the batched environment."""
        self.envs.close()

    def get_images(self) -> list[NDArray[np.uint8] | None]:
        """One picture per row, where the environment has a render mode."""
        frames: Any = self.envs.render()
        return [None] * self.num_envs if frames is None else list(frames)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """An attribute of the batched environment, once per row.

        Raises:
            AttributeError: It has none of this name.
        """
        return [getattr(self.envs, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of the batched environment.

        Raises:
            OptionError: Only some rows are meant.
        """
        self._require_all(f"set {attr_name}", indices)
        setattr(self.envs, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of the batched environment once; its result, once per row.

        Raises:
            OptionError: Only some rows are meant.
        """
        self._require_all(f"call {method_name}", indices)
        method: Callable[..., Any] = getattr(self.envs, method_name)
        return [method(*method_args, **method_kwargs)] * self.num_envs

    def env_is_wrapped(self, wrapper_class: Any, indices: VecEnvIndices = None) -> list[bool]:
        """No row is wrapped on its own."""
        return [False] * len(list(self._get_indices(indices)))

    def _require_all(self, what: str, indices: VecEnvIndices) -> None:
        if len(list(self._get_indices(indices))) != self.num_envs:
            raise OptionError(f"cannot {what} for rows {indices} alone: all {self.num_envs} rows are one environment")


def row_of(info: dict[str, Any], row: int) -> dict[str, Any]:
    """One row of a vector environment's info, without the masks and the last episode's entries."""
    skip = ("final_obs", "final_info")
    return {name: value[row] for name, value in info.items() if not name.startswith("_") and name not in skip}


# --- training -----------------------------------------------------------------------------------------------------------

ALGORITHMS: dict[str, type[BaseAlgorithm]] = {"ppo": PPO, "sac": SAC}

BRISK: dict[str, Any] = {
    "n_steps": 16, "batch_size": 256, "n_epochs": 8, "learning_rate": LinearSchedule(3e-3, 0.0, 1.0),
}  # fmt: skip
"""PPO with many small updates, and a rate that falls to zero at the end: on VineGrow-v0 as good after 150 000 control steps
as the usual ones after a million."""

SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "": {
        "ppo": {
            "n_steps": 64, "batch_size": 1024, "n_epochs": 5, "learning_rate": 3e-4, "gamma": 0.98, "gae_lambda": 0.95,
            "ent_coef": 0.0, "shared": False, "policy_kwargs": {"net_arch": [256, 256], "log_std_init": -0.5},
        },
        "sac": {
            "learning_rate": 3e-4, "gamma": 0.98, "batch_size": 256, "train_freq": 1, "gradient_steps": 8,
            "learning_starts": 2000, "buffer_size": 300_000, "policy_kwargs": {"net_arch": [256, 256]},
        },
    },
    "TensegrityRoll-v0": {
        "ppo": {
            **BRISK, "gamma": 0.95, "gae_lambda": 0.9,
            "shared": True, "policy_kwargs": {"net_arch": {"pi": [48, 48], "vf": [128, 128]}, "log_std_init": -0.5},
        },
        "sac": {"gamma": 0.95},
    },
    "TensegrityCrawl-v0": {"ppo": {"gamma": 0.97}, "sac": {"gamma": 0.97}},
    "TensegrityWaypoint-v0": {"ppo": {"gamma": 0.99}, "sac": {"gamma": 0.99}},
    "VineGrow-v0": {
        "ppo": {
            **BRISK, "gamma": 0.97,
            "policy_kwargs": {"net_arch": [128, 128], "log_std_init": -0.5},
        },
    },
}  # fmt: skip
"""Id -> algorithm -> what differs from the entry "", which holds for every id.

Keywords of stable-baselines3, and "shared": whether all actuators share one network (`.shared_policy`); the task must
then say what they look at (`actuator_views`).
"""

NUM_ENVS = {"ppo": 64, "sac": 16}
"""Rows of the batched environment."""


def settings(env_id: str, algorithm: str) -> dict[str, Any]:
    """Hyper-parameters of an id: keywords of the algorithm, and "shared"; see `SETTINGS`.

    >>> settings("softgym_envs:TensegrityRoll-v0", "ppo")["gamma"]
    0.95

    Raises:
        OptionError: Unknown algorithm.
    """
    if algorithm not in ALGORITHMS:
        raise OptionError(f"algorithm is {algorithm!r}, allowed are {', '.join(ALGORITHMS)}")
    name = env_id.rpartition(":")[2]
    return {**SETTINGS[""][algorithm], **SETTINGS.get(name, {}).get(algorithm, {})}


@dataclass(frozen=True)
class Training:
    """One training run.

    Raises:
        OptionError: Unknown algorithm, or a count that is not positive.
    """

    env_id: str
    """"package:Id-v0" or "Id-v0"."""
    steps: int
    """Control steps of all rows together."""
    algorithm: Literal["ppo", "sac"] = "ppo"
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """Of `gym.make_vec`: backend, params, randomize, disturbance, ..."""
    num_envs: int | None = None
    """Rows; None: see `NUM_ENVS`."""
    seed: int = 0
    checkpoint_every: int = 100_000
    """Control steps."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Hyper-parameters that differ from `settings`."""

    def __post_init__(self) -> None:
        settings(self.env_id, self.algorithm)
        for name in ("steps", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} is {getattr(self, name)}, allowed is >= 1")
        if self.num_envs is not None and self.num_envs < 1:
            raise OptionError(f"num_envs is {self.num_envs}, allowed is None or >= 1")

    @property
    def rows(self) -> int:
        """Rows of the batched environment."""
        return self.num_envs or NUM_ENVS[self.algorithm]

    def make(self) -> SB3VecEnv:
        """The environments."""
        envs = gym.make_vec(self.env_id, num_envs=self.rows, autoreset_mode="same_step", **dict(self.keywords))
        return SB3VecEnv(envs)

    def hyperparameters(self) -> dict[str, Any]:
        """Keywords of the algorithm; a minibatch is no larger than what PPO collects."""
        found = {**settings(self.env_id, self.algorithm), **self.overrides}
        if self.algorithm == "ppo":
            found["batch_size"] = min(found["batch_size"], self.rows * found["n_steps"])
        return found


class LearningPoint(NamedTuple):
    """One point of a learning curve."""

    steps: int
    """Control steps so far."""
    seconds: float
    mean_return: float
    """Over the episodes that ended last (100 at most), in the environment of the training."""


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
            self.points.append(LearningPoint(self.num_timesteps, time.perf_counter() - self.began, mean))
            if self.report is not None:
                self.report(self.points[-1])


class Trained(NamedTuple):
    """What `train` returns."""

    model: BaseAlgorithm
    curve: tuple[LearningPoint, ...]


def train(
    training: Training,
    folder: Path | None = None,
    *,
    resume: bool = False,
    report: Callable[[LearningPoint], None] | None = None,
) -> Trained:
    """Train a policy; the same training gives the same policy on one machine.

    Args:
        training: What to train on, and for how long.
        folder: Where checkpoints, logs and the policy go; None keeps the policy in memory.
        resume: Go on from the newest checkpoint in `folder` until `training.steps` are reached.
        report: Called with points of the learning curve.

    Raises:
        OptionError: `resume` without a folder.
        FileFormatError: There is no checkpoint to go on from, or it belongs to another environment.
    """
    if resume and folder is None:
        raise OptionError("resume needs the folder of the training that is to go on")
    envs = training.make()
    envs.seed(training.seed)
    curve = _Curve(report)
    try:
        checkpoint = newest_checkpoint(folder) if resume and folder is not None else None
        if checkpoint is not None:
            model = load_policy(checkpoint, training, envs)
            model.num_timesteps = _steps_of(checkpoint)
            if isinstance(model, SAC):
                model.learning_starts += model.num_timesteps
        else:
            model = _new_model(training, envs)
        callbacks: list[BaseCallback] = [curve]
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            formats = ["csv", "tensorboard"] if importlib.util.find_spec("tensorboard") else ["csv"]
            model.set_logger(configure(str(folder), formats))
            every = max(training.checkpoint_every // training.rows, 1)
            callbacks.append(CheckpointCallback(every, str(folder), name_prefix="policy"))
        model.learn(max(training.steps - model.num_timesteps, 0), callback=callbacks, reset_num_timesteps=checkpoint is None)
        if folder is not None:
            model.save(folder / f"policy_{model.num_timesteps}_steps.zip")  # the checkpoint's policy lacks PPO's last update
            model.save(folder / "policy.zip")
    finally:
        envs.close()
    return Trained(model, tuple(curve.points))


def _new_model(training: Training, envs: SB3VecEnv) -> BaseAlgorithm:
    kind: Any = ALGORITHMS[training.algorithm]
    keywords = training.hyperparameters()
    policy: Any = "MlpPolicy"
    if keywords.pop("shared", False):
        policy = SharedPolicy
        keywords["policy_kwargs"] = {**keywords["policy_kwargs"], "views": _views_of(training, envs)}
    model: BaseAlgorithm = kind(policy, envs, seed=training.seed, device="cpu", **keywords)
    return model


def _views_of(training: Training, envs: SB3VecEnv) -> NDArray[np.int64]:
    environment: Any = envs.envs.unwrapped
    views: NDArray[np.int64] | None = getattr(environment.task, "actuator_views", None)
    if views is None:
        raise OptionError(f"shared is True, but the task of {training.env_id} does not say what its actuators look at")
    return views


def _steps_of(checkpoint: Path) -> int:
    return int(checkpoint.stem.split("_")[1])


def newest_checkpoint(folder: Path) -> Path:
    """The checkpoint with the most steps.

    Raises:
        FileFormatError: There is none.
    """
    found = sorted(folder.glob("policy_*_steps.zip"), key=_steps_of)
    if not found:
        raise FileFormatError(f"{folder} holds no checkpoint policy_<N>_steps.zip to go on from")
    return found[-1]


OPTIMIZER = "optimizer.pth"
"""How the names of the files in a policy.zip end that hold a state of an optimiser."""


def save_weights(path: Path, out: Path) -> Path:
    """A policy.zip without the optimiser, a third of the size: it can be evaluated and played, but not trained on.

    Raises:
        FileFormatError: `path` is no policy.zip.
    """
    buffer = io.BytesIO()
    try:
        with zipfile.ZipFile(path) as source, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
            for name in source.namelist():
                if not name.endswith(OPTIMIZER):
                    target.writestr(name, source.read(name))
    except (OSError, zipfile.BadZipFile) as error:
        raise FileFormatError(f"{path} is no policy of stable-baselines3: {error}") from error
    write_atomically(out, buffer.getvalue())
    return out


def load_policy(path: Path, training: Training, envs: SB3VecEnv, *, optimizer: bool = True) -> BaseAlgorithm:
    """Weights and optimiser of a saved policy in a fresh model; nothing in the file is unpickled.

    Args:
        path: policy.zip
        training: What it was trained on, for the sizes of its networks.
        envs: Environments of that id.
        optimizer: False: it may be missing, as in what `save_weights` writes.

    Raises:
        FileFormatError: No such file, or it does not fit the training's environment and networks.
    """
    model = _new_model(training, envs)
    try:
        model.set_parameters(str(path), exact_match=optimizer, device="cpu")
    except (OSError, ValueError, KeyError, RuntimeError, AssertionError) as error:
        raise FileFormatError(f"{path} holds no {training.algorithm} policy of {training.env_id}: {error}") from error
    return model


class Evaluation(NamedTuple):
    """Episodes of a policy."""

    returns: NDArray[np.float64]
    """(E,)"""
    success: NDArray[np.float64]
    """(E,) 1 where the episode ended in success"""
    failed: NDArray[np.float64]
    """(E,) 1 where the simulation failed"""


def evaluate(
    model: BaseAlgorithm | None, env_id: str, *, episodes: int, seed: int, keywords: Mapping[str, Any] | None = None
) -> Evaluation:
    """Returns of whole episodes, all side by side: episode i begins from seed + i, whatever the policy.

    Args:
        model: A policy, used without noise; None: no action.
        env_id: Of the environment.
        episodes: E
        seed: Of the first episode.
        keywords: Of `gym.make_vec`, e.g. backend="mujoco".

    Raises:
        OptionError: `episodes` is not positive, or the environment does not end by itself.
    """
    if episodes < 1:
        raise OptionError(f"episodes is {episodes}, allowed is >= 1")
    envs = gym.make_vec(env_id, num_envs=episodes, autoreset_mode="next_step", **dict(keywords or {}))
    try:
        limit = None if envs.spec is None else envs.spec.max_episode_steps
        if limit is None:
            raise OptionError(f"{env_id} has no max_episode_steps: its episodes need not end")
        observation, _ = envs.reset(seed=seed)
        alive, returns = np.ones(episodes, dtype=np.bool_), np.zeros(episodes)
        success, failed = np.zeros(episodes), np.zeros(episodes)
        zero = np.zeros((episodes, *(envs.single_action_space.shape or ())), dtype=np.float32)
        for _ in range(limit):
            action = zero if model is None else model.predict(observation, deterministic=True)[0]
            observation, reward, terminated, truncated, info = envs.step(action)
            returns += np.where(alive, reward, 0.0)
            success = np.where(alive, info["is_success"], success)
            failed = np.where(alive, info["sim_failed"], failed)
            alive &= ~np.logical_or(terminated, truncated)
            if not alive.any():
                break
    finally:
        envs.close()
    return Evaluation(returns, np.asarray(success, dtype=np.float64), np.asarray(failed, dtype=np.float64))


# --- transfer studies ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PolicyWorker:
    """Runs one job of a transfer study by reinforcement learning: train in its environment, evaluate on the truth."""

    case: Case
    study: Study
    out: Path
    env_id: str
    algorithm: Literal["ppo", "sac"] = "ppo"
    common: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of both environments."""
    native: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of our engine's environments."""
    truth: Mapping[str, Any] = field(default_factory=lambda: {"backend": "mujoco"})
    """Keywords that make an environment the truth."""

    def __call__(self, job: Job) -> dict[str, Any]:
        """Train, evaluate, return the record; the cost is minus the return."""
        keywords, steps, spent = self.environment(job)
        model: BaseAlgorithm | None = None
        curve: tuple[LearningPoint, ...] = ()
        if job.condition != NOTHING and steps > 1:
            training = self.training(job, steps, keywords)
            model, curve = train(training)
        first = 10_000_019 + self.study.seed  # episodes that no training begins from
        truth = {**self.common, **self.truth}
        found = evaluate(model, self.env_id, episodes=self.study.starts, seed=first, keywords=truth)
        on_truth = CONDITIONS[job.condition].model == "truth" and model is not None
        physics = model.num_timesteps * self.study.substeps if model is not None else 0
        return {
            "cost": float(-found.returns.mean()),
            "costs": (-found.returns).tolist(),
            "failed": int(found.failed.sum()),
            "measures": {"success": found.success.tolist()},
            "model_cost": -curve[-1].mean_return if curve else None,
            "truth_steps": {
                "train": spent["train"] + (physics if on_truth else 0),
                "validation": spent["validation"],
                "tuning": self.study.tuning_steps,
            },
            "model_steps": 0 if on_truth else physics,
            "detail": {"curve": [list(point) for point in curve]},
        }

    def training(self, job: Job, steps: int, keywords: Mapping[str, Any]) -> Training:
        """At most `steps` control steps: PPO learns from whole batches, so few steps mean few rows and short batches."""
        usual = settings(self.env_id, self.algorithm).get("n_steps", 1)
        rows = min(NUM_ENVS[self.algorithm], max(steps // 64, 1))
        length = min(usual, steps // rows)
        whole = steps // (rows * length) * rows * length
        overrides = {"n_steps": length} if self.algorithm == "ppo" else {}
        seed = 1000 * self.study.seed + job.seed  # common to all conditions
        both = {**self.common, **keywords}
        return Training(self.env_id, whole, self.algorithm, both, rows, seed=seed, overrides=overrides)

    def environment(self, job: Job) -> tuple[dict[str, Any], int, dict[str, int]]:
        """Keywords of the training's environment, control steps, and the truth's steps that made them."""
        study, nothing = self.study, {"train": 0, "validation": 0}
        keywords: dict[str, Any]
        model = CONDITIONS[job.condition].model
        if model == "truth":
            steps = job.budget // study.substeps if CONDITIONS[job.condition].budgeted else study.train_steps
            return dict(self.truth), steps, nothing
        if model in ("identified", "posterior"):
            record = identify(self.case, study, job.budget, job.dataset, self.out)
            keywords = {**self.native, "params": record.parameters}
            if model == "posterior":
                keywords["randomize"] = EmpiricalParameters(record.samples)
            return keywords, study.train_steps, record.truth_steps
        keywords = {**self.native, "params": self.case.best() if model == "true" else self.case.default()}
        if model == "wide":
            keywords["randomize"] = self.case.wide()
        if model == "forces":
            keywords["disturbance"] = study.force
        return keywords, study.train_steps, nothing
