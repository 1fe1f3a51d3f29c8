"""How policies of results/policies learn: by imitation, by PPO in several worlds at once, or from another task's policy.

Imitation (DAgger): a policy that sees observations learns from a controller that sees the state. S. Ross, G. Gordon, J. A.
Bagnell, "A reduction of imitation learning and structured prediction to no-regret online learning", AISTATS 2011: the learner
drives, the controller labels its states, and all labels so far are fitted again. The result is a PPO model of
stable-baselines3: saved, loaded and trained like any other. Legend: B rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvStepReturn

from agents.learning.evaluation import Controller
from agents.learning.policy import Policy, load_policy
from agents.learning.rl import LearningPoint, Training, train
from agents.learning.shared_policy import SharedPolicy, views_of
from agents.learning.vec_env import SB3VecEnv
from softgym_envs.core.errors import OptionError
from softgym_envs.systems import system_of_task

# --- PPO in several worlds ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lesson:
    """A training by PPO in several worlds at once, from a pupil on.

    Raises:
        OptionError: The rows cannot be divided among the variants.
    """

    training: Training
    variants: tuple[Mapping[str, Any], ...]
    """Further keywords, each set for an equal share of the rows: delays or parameters that one policy must master."""
    critic_first: int = 0
    """Control steps during which only the critic learns, since a pupil has none."""

    def __post_init__(self) -> None:
        if self.training.rows % len(self.variants):
            raise OptionError(f"num_envs is {self.training.rows}, allowed are multiples of the {len(self.variants)} variants")

    def make(self) -> SideBySide:
        """The environments."""
        rows = self.training.rows // len(self.variants)
        each = [replace(self.training, num_envs=rows, keywords={**self.training.keywords, **one}) for one in self.variants]
        return SideBySide([training.make() for training in each])

    def learn(
        self, folder: Path | None, *, resume: bool, report: Callable[[LearningPoint], None] | None, pupil: PPO | None
    ) -> BaseAlgorithm:
        """See `agents.learning.rl.train`; `pupil` is the model whose actor PPO starts from if there is no checkpoint."""

        def start(model: BaseAlgorithm) -> None:
            own = ("log_std", "value_net", "mlp_extractor.value_net", "mlp_extractor.critic")
            actor = {} if pupil is None else pupil.policy.state_dict()
            model.policy.load_state_dict({n: v for n, v in actor.items() if not n.startswith(own)}, strict=False)

        worlds = [{n: Path(v) if n == "params" else v for n, v in variant.items()} for variant in self.variants]
        training = replace(self.training, also={"variants": worlds, "critic_first": self.critic_first})
        first = [CriticFirst(self.critic_first)] if self.critic_first else []
        return train(training, folder, resume=resume, report=report, envs=self.make(), start=start, callbacks=first).model


class CriticFirst(BaseCallback):
    """Trains only the critic for the given control steps: an untrained one would spoil a trained actor."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        policy: Any = self.model.policy
        network = policy.mlp_extractor
        actor = network.actor if isinstance(policy, SharedPolicy) else network.policy_net
        for weights in (*actor.parameters(), *policy.action_net.parameters(), policy.log_std):
            weights.requires_grad_(self.num_timesteps > self.steps)


class SideBySide(VecEnv):
    """Several `SB3VecEnv` as one, their rows in sequence: worlds that differ in parameters or delays, for one policy.

    Args:
        parts: At least one; spaces are alike.
    """

    def __init__(self, parts: Sequence[SB3VecEnv]) -> None:
        self.parts, self.envs = tuple(parts), parts[0].envs
        self._ends = np.cumsum([part.num_envs for part in self.parts])
        super().__init__(int(self._ends[-1]), self.parts[0].observation_space, self.parts[0].action_space)

    def reset(self) -> NDArray[Any]:
        """Begin an episode in every row, with the seeds given to `seed`."""
        for part, seeds in zip(self.parts, self._shares(self._seeds), strict=True):
            part._seeds = list(seeds)
        self._reset_seeds()
        return np.concatenate([part.reset() for part in self.parts])

    def step_async(self, actions: NDArray[Any]) -> None:
        """Store the actions (B, na)."""
        for part, own in zip(self.parts, self._shares(actions), strict=True):
            part.step_async(own)

    def step_wait(self) -> VecEnvStepReturn:
        """Take the step, one part after the other."""
        observations, rewards, dones, infos = zip(*(part.step_wait() for part in self.parts), strict=True)
        return np.concatenate(observations), np.concatenate(rewards), np.concatenate(dones), list(chain(*infos))

    def close(self) -> None:
        """Close all."""
        for part in self.parts:
            part.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of the environments, once per row."""
        return list(chain(*(part.get_attr(attr_name) for part in self.parts)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of all environments."""
        for part in self.parts:
            part.set_attr(attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of all environments."""
        return list(chain(*(part.env_method(method_name, *method_args, **method_kwargs) for part in self.parts)))

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """See `SB3VecEnv.env_is_wrapped`."""
        return list(chain(*(part.env_is_wrapped(wrapper_class) for part in self.parts)))

    def _shares(self, rows: Any) -> list[Any]:
        """Rows of every part."""
        return [rows[end - part.num_envs : end] for part, end in zip(self.parts, self._ends, strict=True)]


# --- imitation ------------------------------------------------------------------------------------------------------------


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
    """Control steps of `action_latency` among which the rows are divided, in place of one in `keywords`."""
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

    @property
    def latencies(self) -> list[float]:
        """`delays` in seconds."""
        name = self.env_id.rpartition(":")[2]
        period = self.keywords.get("control_period", system_of_task(name).task(name).control_period)
        return [delay * period for delay in self.delays]

    def make(self) -> list[Any]:
        """The environments, one batch per delay."""
        shared: dict[str, Any] = {"num_envs": -(-self.num_envs // max(len(self.delays), 1)), "autoreset_mode": "next_step"}
        each = [{"action_latency": late} for late in self.latencies] or [{}]
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


# --- another task's policy --------------------------------------------------------------------------------------------------

Told = tuple[str, float] | tuple[str, float, float]
"""Entry, offset added to it, and factor applied before that; see `carried`."""


def carried(path: Path, source: Any, target: Any, told: Mapping[str, Told] | None = None) -> PPO:
    """A PPO model of `target` that acts like the policy of `path` does in `source`; its critic is untrained.

    An entry that the policy observes is the target's of the same name, or told[name] = (entry of the target, offset added to
    it, factor applied before that, 1 if left out). The policy ignores further observations of the target. Previous actions
    follow the entries in both.

    Args:
        path: Policy of `source`, an MLP with tanh.
        source: Vector environment of the policy, as it observes it.
        target: Vector environment of the new one, with as many previous actions.
        told: See above.

    Raises:
        OptionError: The target lacks an observed name, or the actions or the activation differ.
    """
    network = load_policy(path)
    if network.squashed or network.activation != "Tanh":
        raise OptionError(f"{path} is no policy of PPO with tanh")
    if source.single_action_space != target.single_action_space:
        raise OptionError(f"the actions differ: {source.single_action_space} and {target.single_action_space}")
    columns, added, factors = _read(_names(source), _names(target), told or {})
    (weight, bias), *others = ((torch.as_tensor(weight), torch.as_tensor(bias)) for weight, bias in network.layers)
    first = torch.zeros(len(weight), len(_names(target)))
    first[:, columns] = weight * torch.as_tensor(factors, dtype=torch.float32)
    layers = [(first, bias + weight @ torch.as_tensor(added, dtype=torch.float32)), *others]
    widths = [len(bias) for _, bias in layers[:-1]]
    keywords = {"net_arch": {"pi": widths, "vf": [128, 128]}, "ortho_init": False, "log_std_init": -2.0}
    model = PPO("MlpPolicy", None, policy_kwargs=keywords, device="cpu", seed=0, _init_setup_model=False)  # type: ignore[arg-type]
    model.observation_space, model.action_space = target.single_observation_space, target.single_action_space
    model.n_envs = 1
    model._setup_model()
    own: Any = model.policy
    linear = [part for part in own.mlp_extractor.policy_net if isinstance(part, torch.nn.Linear)]
    with torch.no_grad():
        for part, (weight, bias) in zip([*linear, own.action_net], layers, strict=True):
            part.weight.copy_(weight)
            part.bias.copy_(bias)
    return model


def _names(envs: Any) -> list[str]:
    """Names of all observations: entries, then the previous actions."""
    names = [entry.name for entry in envs.task.entries]
    return names + [f"action given {k}" for k in range(envs.single_observation_space.shape[0] - len(names))]


def _read(source: list[str], target: list[str], told: Mapping[str, Told]) -> tuple[list[int], list[float], list[float]]:
    """Columns of the target, their offsets, and the factors applied before."""
    read = [(*told.get(name, (name, 0.0)), 1.0)[:3] for name in source]
    missing = [name for name, *_ in read if name not in target]
    if missing:
        raise OptionError(f"the target does not observe {', '.join(missing[:4])}")
    return [target.index(name) for name, *_ in read], [added for _, added, _ in read], [factor for *_, factor in read]
