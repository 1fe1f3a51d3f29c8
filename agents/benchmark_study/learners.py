"""Learners of the benchmark: PPO and SAC from scratch, and behaviour cloning of a planner."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from softgym_envs.core.errors import needed
from softgym_envs.core.simulator import Array

from ..learning.evaluation import Controller, Evaluation, evaluate_controller
from ..policies import Network
from .case import Case

DEMONSTRATIONS = 16
"""Demonstrated episodes of behaviour cloning."""
DEMONSTRATION_SEED = 60_000_011
TEACHERS = ("mppi", "cem")
"""Candidates for the imitated planner, which has the cell's budget."""
WIDTH, EPOCHS, BATCH, RATE = 128, 300, 256, 1e-3


def trained(case: Case, algorithm: Literal["ppo", "sac"]) -> tuple[Controller, Mapping[str, Any]]:
    """A policy that is trained now, with the settings that the system declares.

    Raises:
        MissingDependencyError: PyTorch or Stable-Baselines3 is not installed.
    """
    from ..learning.policy import policy_of
    from ..learning.rl import Training, settings, train

    cell, own = case.cell, case.system.learning_of(case.cell.id, algorithm)
    steps = cell.budget or settings(algorithm, own)["steps"]
    training = Training(f"softgym_envs:{cell.id}", steps, algorithm, cell.keywords, seed=cell.seed, overrides=own)
    began = time.process_time()
    found = train(training)
    case.training_seconds, case.training_steps = time.process_time() - began, training.steps_after()
    policy = policy_of(found.model)
    return lambda envs: policy, {}


def imitated(case: Case) -> tuple[Controller, Mapping[str, Any]]:
    """A network that imitates the better of `TEACHERS`: it sees the observation where they see the state.

    Raises:
        MissingDependencyError: PyTorch is not installed.
    """
    from .controllers import ROWS

    began, shown = time.process_time(), []
    for teacher in TEACHERS:
        alive = np.ones(DEMONSTRATIONS, dtype=np.bool_)
        own = replace(case, cell=case.cell._replace(controller=teacher), alive=alive, engines=[])
        shown.append(demonstrated(ROWS[teacher].make(own)[0], case, alive))
    _, observations, actions = max(shown, key=lambda one: (one[0].success.mean(), one[0].returns.mean()))
    network = fitted(observations, actions, case.cell.seed)
    case.training_seconds, case.training_steps, case.network = time.process_time() - began, len(actions), network
    return lambda envs: network, {}


def demonstrated(controller: Controller, case: Case, alive: Any) -> tuple[Evaluation, Array, Array]:
    """Episodes of a controller, their observations (N, no) and actions (N, na)."""
    seen, done = list[Array](), list[Array]()

    def opened(envs: Any) -> Callable[[Any], Any]:
        policy = controller(envs)

        def act(observation: Any) -> Any:
            action = policy(observation)
            seen.append(np.array(observation)[alive])
            done.append(np.array(action)[alive])
            return action

        return act

    found = evaluate_controller(
        opened, f"softgym_envs:{case.cell.id}", episodes=DEMONSTRATIONS, seed=DEMONSTRATION_SEED + 1000 * case.cell.seed,
        keywords=case.cell.keywords, alive=alive,
    )  # fmt: skip
    return found, np.concatenate(seen), np.concatenate(done)


def fitted(observations: Array, actions: Array, seed: int) -> Network:
    """Least squares of actions by a network of two hidden layers; observations are normalised within its first layer."""
    with needed("imitation needs torch", "learn"):
        import torch
    generator = torch.Generator().manual_seed(seed)
    mean, spread = observations.mean(axis=0), np.maximum(observations.std(axis=0), 1e-3)
    x = torch.as_tensor((observations - mean) / spread, dtype=torch.float32)
    y = torch.as_tensor(actions, dtype=torch.float32)
    sizes, layers = (x.shape[1], WIDTH, WIDTH, y.shape[1]), list[Any]()
    for before, after in pairwise(sizes):
        weight = torch.randn((after, before), generator=generator) / before**0.5
        layers.append((weight.requires_grad_(), torch.zeros(after, requires_grad=True)))
    optimiser = torch.optim.Adam([value for layer in layers for value in layer], lr=RATE)
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(x), generator=generator), BATCH):
            hidden = x[rows]
            for weight, bias in layers[:-1]:
                hidden = torch.tanh(hidden @ weight.T + bias)
            loss = ((hidden @ layers[-1][0].T + layers[-1][1] - y[rows]) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    plain = [(weight.detach().numpy(), bias.detach().numpy()) for weight, bias in layers]
    W, b = plain[0]
    first = (W / spread).astype(np.float32), (b - W @ (mean / spread)).astype(np.float32)
    return Network((first, *plain[1:]))
