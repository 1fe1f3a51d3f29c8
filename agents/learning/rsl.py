"""PPO of rsl-rl-lib on tensors that stay on a device: thousands of rows, few large minibatches.

    folder/policy.npz              the policy after the last step, with its contract: `evaluate` and `play` open it
    folder/model_<N>.pt            checkpoints of rsl-rl-lib after update N; and its TensorBoard files: return, success, losses
    folder/run.json                what must be equal where a training resumes
    folder/progress.csv            return and success of the episodes that ended, by control steps

The environments are those of `gym.make_vec(..., output="torch")`; the settings those of the system for PPO, as far as both
libraries have them. An update learns from `STEPS` control steps of every row.

Legend: B rows, no observation, na action.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from softgym_envs.core.errors import OptionError, needed
from softgym_envs.core.files import git_commit, read_json, write_atomically, write_json

with needed("learner 'rsl' needs rsl-rl-lib", "device"):
    from rsl_rl.env import VecEnv
    from rsl_rl.runners import OnPolicyRunner
    from tensordict import TensorDict

from ..policies import Network, save_network
from . import curve
from .checkpoints import RUN, device_checkpoints, require_equal, require_unused
from .contract import PolicyContract
from .rl import OBSERVED, Training, say_rest, settings

ROWS = 4096
"""Rows, if none are given."""
STEPS = 24
"""Control steps of every row between two updates."""
EPOCHS, MINIBATCHES = 5, 4
"""Passes over them, and minibatches of each: few and large ones, whatever suits the few rows of Stable-Baselines3."""
ACTIVATION = "ELU"
PROGRESS = {"Train/mean_reward": curve.RETURN, "Train/success": "rollout/success_rate"}
"""TensorBoard's name -> column of progress.csv."""
ON_DEVICE = ("device", "dtype", "starts")
"""Keywords that say where and how environments run, not what they are."""


class DeviceEnv(VecEnv):  # type: ignore[misc]  # rsl-rl-lib has no types
    """Environments that give tensors, as rsl-rl-lib sees them."""

    def __init__(self, envs: Any, seed: int) -> None:
        self.envs = envs
        self.cfg: dict[str, Any] = {}
        self.num_envs, self.num_actions = envs.action_space.shape
        observed, _ = envs.reset(seed=seed)
        self.device = observed.device
        self.max_episode_length = 0  # only asked where episodes begin at a random length
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.long, device=self.device)
        self._observed = self._table(observed)

    def get_observations(self) -> Any:
        """The newest observations (B, no)."""
        return self._observed

    def step(self, actions: Any) -> tuple[Any, Any, Any, dict[str, Any]]:
        """Step all rows; "Train/success" is the share of successes among the episodes that ended."""
        observed, rewards, terminated, truncated, info = self.envs.step(actions)
        done = terminated | truncated
        extras: dict[str, Any] = {"time_outs": truncated & ~terminated}
        won = info.get("final_info", info)["is_success"][done].float()
        if len(won):
            extras["log"] = {"Train/success": won}
        self._observed = self._table(observed)
        return self._observed, rewards.float(), done.long(), extras

    def _table(self, observed: Any) -> Any:
        return TensorDict({"policy": observed}, batch_size=[self.num_envs])


@dataclass(frozen=True)
class DeviceTraining:
    """One training run on a device.

    Raises:
        OptionError: As `rl.Training`.
    """

    env_id: str
    steps: int
    """Control steps of all rows together, rounded up to whole updates."""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of `gym.make_vec`: device, dtype, starts, params, randomize, ..."""
    num_envs: int | None = None
    """B; None: `ROWS`."""
    seed: int = 0
    checkpoint_every: int = 100_000
    """Control steps between checkpoints."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the usual ones of PPO, see `rl.settings`."""

    def __post_init__(self) -> None:
        _ = self.plain

    @property
    def plain(self) -> Training:
        """The same training by Stable-Baselines3, which checks it and describes its run."""
        return Training(
            self.env_id, self.steps, keywords={name: value for name, value in self.keywords.items() if name != "device"},
            num_envs=self.rows, seed=self.seed, checkpoint_every=self.checkpoint_every, overrides=self.overrides,
        )  # fmt: skip

    @property
    def rows(self) -> int:
        """B."""
        return ROWS if self.num_envs is None else self.num_envs

    @property
    def collected(self) -> int:
        """Control steps between two updates."""
        return self.rows * STEPS

    def make(self) -> Any:
        """The environments."""
        return gym.make_vec(self.env_id, num_envs=self.rows, autoreset_mode="same_step", output="torch", **self.keywords)

    @property
    def run(self) -> dict[str, str]:
        """Description that a folder must share with this training: all but steps, checkpoint_every and device."""
        return self.plain.run

    @property
    def configuration(self) -> dict[str, Any]:
        """The configuration of rsl-rl-lib."""
        usual = settings("ppo", self.overrides)
        widths = usual["policy_kwargs"]["net_arch"]
        network = {
            "class_name": "MLPModel",
            "hidden_dims": widths["vf"] if isinstance(widths, dict) else widths,  # a shared actor is small
            "activation": ACTIVATION.lower(),
            "obs_normalization": True,
        }
        spread = {"class_name": "GaussianDistribution", "init_std": math.exp(usual["policy_kwargs"]["log_std_init"])}
        return {
            "num_steps_per_env": STEPS,
            "save_interval": max(self.checkpoint_every // self.collected, 1),
            "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
            "actor": {**network, "distribution_cfg": spread},
            "critic": network,
            "algorithm": {
                "class_name": "PPO",
                "num_learning_epochs": EPOCHS,
                "num_mini_batches": MINIBATCHES,
                "gamma": usual["gamma"],
                "lam": usual["gae_lambda"],
                "entropy_coef": usual["ent_coef"],
                "learning_rate": usual["learning_rate"],
            },
        }


def train(training: DeviceTraining, folder: Path, *, resume: bool = False) -> Network:
    """Train, and write `policy.npz`; -> the policy.

    Args:
        training: What is learned.
        folder: Folder of checkpoints, TensorBoard files and the policy, for one training only.
        resume: Continue from the newest checkpoint in it.

    Raises:
        OptionError: Without `resume` the folder holds a training, with it none.
        FileFormatError: With `resume` the folder holds another training.
    """
    if not resume:
        require_unused(folder)
    checkpoint = checkpoint_of(training, folder) if resume else None
    torch.manual_seed(training.seed)
    envs = training.make()
    try:
        seen = DeviceEnv(envs, training.seed)
        write_json(folder / RUN, training.run)
        runner = OnPolicyRunner(seen, training.configuration, str(folder), str(seen.device))
        runner.logger._store_code_state = list  # it would write the difference to the last commit, into a folder of its own
        if checkpoint is not None:
            runner.load(str(checkpoint))
            runner.current_learning_iteration += 1  # it counts from 0, and this one is made
        begun = runner.current_learning_iteration
        updates = -(-training.steps // training.collected) - begun
        try:
            if updates > 0:
                runner.learn(updates)
        except KeyboardInterrupt:
            if runner.current_learning_iteration > begun:
                runner.save(str(folder / f"model_{runner.current_learning_iteration}.pt"))
            raise
        finally:
            write_progress(folder, training.collected)
        contract = PolicyContract.of(envs, {k: v for k, v in training.keywords.items() if k not in ON_DEVICE})
        network = exported(runner.alg.actor, training.keywords, contract)
        provenance = {"id": training.env_id, "steps": training.steps, "seed": training.seed, "commit": git_commit()}
        save_network(network, folder / "policy.npz", provenance)
    finally:
        envs.close()
    return network


def checkpoint_of(training: DeviceTraining, folder: Path) -> Path:
    """The newest checkpoint in a folder.

    Raises:
        OptionError: There is none.
        FileFormatError: The folder holds another training.
    """
    checkpoints = device_checkpoints(folder)
    if not checkpoints:
        raise OptionError(f"{folder} holds no checkpoint model_*.pt to resume from")
    require_equal(folder / RUN, read_json(folder / RUN), training.run)
    return checkpoints[-1]


def begun(training: DeviceTraining, folder: Path, say: Callable[[str], None]) -> None:
    """Say what remains of a training that resumes, if that is not what was asked.

    Raises:
        OptionError: There is no checkpoint.
        FileFormatError: The folder holds another training.
    """
    newest = checkpoint_of(training, folder)
    updates = 1 + int(newest.stem.removeprefix("model_"))
    say_rest(newest, updates * training.collected, training.steps, training.collected, say)


def write_progress(folder: Path, collected: int) -> None:
    """Write progress.csv from TensorBoard's files; an update learns from `collected` control steps."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder)).Reload()
    rows: dict[int, dict[str, float]] = {}
    for name, column in PROGRESS.items():
        for event in events.Scalars(name) if name in events.Tags()["scalars"] else ():
            rows.setdefault((event.step + 1) * collected, {})[column] = event.value
    lines = [f"{steps},{','.join(str(rows[steps].get(name, '')) for name in PROGRESS.values())}" for steps in sorted(rows)]
    write_atomically(folder / "progress.csv", "\n".join([f"{curve.STEPS},{','.join(PROGRESS.values())}", *lines, ""]).encode())


def exported(actor: Any, keywords: Mapping[str, Any], contract: PolicyContract | None = None) -> Network:
    """The mean action of an actor of rsl-rl-lib; the first layer takes over the normalisation of observations."""
    layers = [
        (layer.weight.detach().cpu().numpy().copy(), layer.bias.detach().cpu().numpy().copy())
        for layer in actor.mlp
        if isinstance(layer, torch.nn.Linear)
    ]
    weight, bias = layers[0]
    scale = (actor.obs_normalizer.std + actor.obs_normalizer.eps).cpu().numpy()
    weight = weight / scale
    layers[0] = (weight.astype(np.float32), (bias - weight @ actor.obs_normalizer.mean.cpu().numpy()).astype(np.float32))
    observed = {name: keywords[name] for name in OBSERVED if name in keywords}
    return Network(tuple(layers), ACTIVATION, keywords=observed, contract=contract)
