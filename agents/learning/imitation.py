"""Imitation: a policy that sees observations learns from a controller that sees the state (DAgger).

S. Ross, G. Gordon, J. A. Bagnell, "A reduction of imitation learning and structured prediction to no-regret online learning",
AISTATS 2011: the learner drives, the controller labels its states, and all labels so far are fitted again.

The result is a PPO model of stable-baselines3: saved, loaded and trained like any other. Legend: B rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import PPO

from softgym_envs.core.errors import OptionError

from .evaluation import Controller
from .policy import Policy
from .shared_policy import SharedPolicy, views_of


@dataclass(frozen=True)
class Imitation:
    """Settings of one run.

    Raises:
        OptionError: A count that is not positive.
    """

    env_id: str
    steps: int = 120
    """Steps of all rows in a round."""
    rounds: int = 12
    num_envs: int = 64
    """Number B of rows."""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of `gym.make_vec`, e.g. sensor_noise."""
    delays: tuple[int, ...] = ()
    """Values of `action_delay` among which the rows are divided, in place of one in `keywords`."""
    hidden: tuple[int, ...] = (128, 128)
    """Widths of the network."""
    shared: bool = False
    """Whether all actuators share one network (`.shared_policy`)."""
    updates: int = 600
    """Gradient steps per round."""
    batch_size: int = 512
    learning_rate: float = 1e-3
    """Initial learning rate; it falls linearly to a tenth."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "rounds", "num_envs", "updates", "batch_size"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} is {getattr(self, name)}, allowed is >= 1")

    def make(self) -> list[Any]:
        """The environments, one batch per delay."""
        shared: dict[str, Any] = {"num_envs": -(-self.num_envs // max(len(self.delays), 1)), "autoreset_mode": "next_step"}
        each = [{"action_delay": delay} for delay in self.delays] or [{}]
        return [gym.make_vec(self.env_id, **shared, **{**self.keywords, **one}).unwrapped for one in each]


def imitate(run: Imitation, controller: Controller, report: Callable[[int, float], None] | None = None) -> PPO:
    """Train a policy that imitates a controller, as far as its observations allow.

    Args:
        run: Environment and length of the run.
        controller: The teacher; in the first round it drives all rows, later fewer (1 / 2^round of them).
        report: Called after every round with its number and the mean squared error.
    """
    torch.manual_seed(run.seed)
    rng = np.random.default_rng(run.seed)
    batches = run.make()
    try:
        model = _new_model(run, batches[0])
        optimizer = torch.optim.Adam(model.policy.parameters(), lr=run.learning_rate)
        seen, asked = [], []
        teachers = [controller(envs) for envs in batches]
        observations = [envs.reset(seed=run.seed + i)[0] for i, envs in enumerate(batches)]
        for k in range(run.rounds):
            taught = rng.random((len(batches), batches[0].num_envs, 1)) < 0.5**k
            for _ in range(run.steps):
                for i, envs in enumerate(batches):
                    answer = np.asarray(teachers[i](observations[i]), dtype=np.float32)
                    own = model.predict(observations[i], deterministic=True)[0]
                    seen.append(observations[i])
                    asked.append(answer)
                    observations[i] = envs.step(np.where(taught[i], answer, own))[0]
            optimizer.param_groups[0]["lr"] = run.learning_rate * (1.0 - 0.9 * k / run.rounds)
            error = _fit(model, optimizer, np.concatenate(seen), np.concatenate(asked), run, rng)
            if report is not None:
                report(k, error)
    finally:
        for envs in batches:
            envs.close()
    return model


def foreseeing(controller: Controller) -> Controller:
    """The controller evaluated in the state in which its action will take effect, so that it acts as without delay.

    The pending actions are simulated from the state itself, without noise.
    """

    def made(envs: Any) -> Policy:
        act = controller(envs)

        def foresee(observation: Any) -> Any:
            episodes = envs.episodes
            task, state, context = episodes.task, episodes.state, episodes.context
            for k in range(episodes.queue.shape[1]):
                control = task.scale_action(episodes.queue[:, k])
                state = episodes.simulator.step(state, control, episodes.parameters, substeps=episodes.substeps)[0]
                context = task.update(context, state)
            return act(task.observe(state, context).astype(np.float32))

        return foresee

    return made


def _new_model(run: Imitation, envs: Any) -> PPO:
    """An untrained PPO for the environments' spaces."""
    keywords: dict[str, Any] = {"net_arch": list(run.hidden), "log_std_init": -2.0}
    if run.shared:
        keywords |= {"net_arch": {"pi": list(run.hidden), "vf": list(run.hidden)}, "views": views_of(envs)}
    kind: Any = SharedPolicy if run.shared else "MlpPolicy"
    model = PPO(kind, None, policy_kwargs=keywords, device="cpu", seed=run.seed, _init_setup_model=False)  # type: ignore[arg-type]
    model.observation_space, model.action_space = envs.single_observation_space, envs.single_action_space
    model.n_envs = 1
    model._setup_model()
    return model


def _fit(
    model: PPO, optimizer: torch.optim.Optimizer, seen: Any, asked: Any, run: Imitation, rng: np.random.Generator
) -> float:
    """Least squares of the mean action over all labels so far; returns the mean squared error of the last updates."""
    x, y, policy = torch.as_tensor(seen), torch.as_tensor(asked), model.policy
    errors = []
    for _ in range(run.updates):
        rows = torch.as_tensor(rng.integers(len(x), size=run.batch_size))
        mean = policy.action_net(policy.mlp_extractor.forward_actor(x[rows]))
        loss = torch.mean((mean - y[rows]) ** 2)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        errors.append(float(loss.detach()))
    return float(np.mean(errors[-50:]))
