"""PPO of stable-baselines3 with less work around its arithmetic: the same losses, data and log, other sums of float32.

    L = -mean min(A r, A clip(r, 1 - c, 1 + c)) + k_v mean (R - V)^2 - k_e H,   r = exp(log p(a) - log p_old(a))

J. Schulman et al., "Proximal policy optimization algorithms", arXiv:1707.06347, 2017. A: advantages of a minibatch, normalised;
R: returns; V: values; H: entropy; c, k_v, k_e: `clip_range`, `vf_coef`, `ent_coef`.

Values of a collection are computed at its end, in one batch. Minibatches are rows of tensors that share memory with the rollout
buffer. Gradients are written out (`.chain`), with d log p / d mean = e / s and d log p / d log s = e^2 - 1, e = (a - mean) / s:
for networks this small autograd costs as much as the arithmetic. Numbers of the log are read after the last minibatch.

Legend: T steps of a collection, B rows, no observation, na action.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import explained_variance
from stable_baselines3.common.vec_env.base_vec_env import VecEnv

from softgym_envs.core.errors import OptionError

from .chain import Chain, flat_gradients
from .scaling import Scaling
from .shared_policy import SharedPolicy

REFUSED = ("use_sde", "clip_range_vf")
"""Keywords of stable-baselines3's PPO that this one does not implement."""
HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)
LOGGED = ("policy_gradient_loss", "value_loss", "entropy_loss", "loss", "clip_fraction", "approx_kl")
"""Means over as many of an update's last minibatches as an epoch has, in the log as "train/<name>"."""


class LeanPPO(PPO):
    """PPO for actors with a normal distribution, observations (no,) and actions (na,) in a box; see the module docstring.

    Raises:
        OptionError: A keyword is set that it does not implement.
    """

    noise_decay = 0.0
    """By how much log s falls in a training, beside what it learns."""

    def _setup_model(self) -> None:
        given = [name for name in REFUSED if getattr(self, name)]
        if given:
            raise OptionError(f"{given[0]} is {getattr(self, given[0])!r}, allowed is to leave it out: it is not implemented")
        super()._setup_model()
        network: Any = self.policy.mlp_extractor
        if isinstance(self.policy, SharedPolicy):
            self.actor, critic = Chain(network.actor, views=network.index), network.critic
        else:
            self.actor, critic = Chain(network.policy_net, self.policy.action_net), network.value_net
        self.critic = Chain(critic, self.policy.value_net)
        scaling: Any = self.policy.features_extractor
        self.scaling: Scaling | None = scaling if isinstance(scaling, Scaling) else None
        for group in self.policy.optimizer.param_groups:
            group["fused"] = True  # one call for all weights

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "actor", "critic", "scaling"]

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """Fill the buffer with T steps of all rows; False if the callback ends the training."""
        policy, buffer, box = self.policy, rollout_buffer, self.action_space
        observation: Any = self._last_obs
        starts: Any = self._last_episode_starts
        done = starts
        policy.set_training_mode(False)
        callback.on_rollout_start()
        std = policy.log_std.detach().exp()
        cut: list[tuple[int, int]] = []
        last_seen: list[NDArray[Any]] = []
        for step in range(n_rollout_steps):
            noise = torch.randn(env.num_envs, buffer.action_dim)
            mean = self.actor(self._scaled(torch.from_numpy(observation).to(self.device))).cpu()
            actions = torch.addcmul(mean, std.cpu(), noise).numpy()
            buffer.observations[step], buffer.actions[step], buffer.episode_starts[step] = observation, actions, starts
            buffer.log_probs[step] = _log_density(noise, policy.log_std.detach().cpu())
            observation, rewards, done, infos = env.step(np.clip(actions, box.low, box.high))  # type: ignore[attr-defined]
            buffer.rewards[step] = rewards
            ended = np.flatnonzero(done)
            self._update_info_buffer([infos[row] for row in ended], done[ended])
            for row in ended.tolist():
                if infos[row]["TimeLimit.truncated"]:
                    cut.append((step, row))
                    last_seen.append(infos[row]["terminal_observation"])
            self._last_obs, self._last_episode_starts = observation, starts = observation, done
            self.num_timesteps += env.num_envs
            callback.update_locals(locals())
            if not callback.on_step():
                return False
        buffer.values[:] = self._values(buffer.observations)
        if cut:
            buffer.rewards[tuple(np.transpose(cut))] += self.gamma * self._values(np.stack(last_seen))
        buffer.compute_returns_and_advantage(torch.from_numpy(self._values(observation)), done)
        callback.update_locals(locals())
        callback.on_rollout_end()
        return True

    @torch.no_grad()
    def _scaled(self, observation: torch.Tensor) -> torch.Tensor:
        """Observations (n, no) as networks see them."""
        return observation if self.scaling is None else self.scaling(observation)

    def _value(self, observation: torch.Tensor) -> torch.Tensor:
        """Values (n,) of scaled observations, scaled."""
        return self.critic(observation).squeeze(1)

    def _values(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Values (...) of observations (..., no)."""
        rows = torch.from_numpy(observations).to(self.device)
        found = self._value(self._scaled(rows.flatten(0, -2))).view(rows.shape[:-1])
        if self.scaling is not None:
            found = found * self.scaling.value_deviation + self.scaling.value_mean
        return found.cpu().numpy().copy()

    @torch.no_grad()
    def train(self) -> None:
        """Update the policy by the collection in the buffer."""
        policy, buffer, optimizer = self.policy, self.rollout_buffer, self.policy.optimizer
        policy.set_training_mode(True)
        self._update_learning_rate(optimizer)
        clip: Any = self.clip_range(self._current_progress_remaining)  # type: ignore[operator]
        names = ("observations", "actions", "log_probs", "advantages", "returns")
        whole = [torch.from_numpy(getattr(buffer, name)).flatten(0, 1).to(self.device) for name in names]
        observed, returns = whole[0], whole[-1]
        if self.scaling is not None:
            whole[0], whole[-1] = self._scaled(observed), (returns - self.scaling.value_mean) / self.scaling.value_deviation
        optimizer.zero_grad()
        flat = flat_gradients([weight for weight in policy.parameters() if weight.requires_grad])
        count, logged = len(whole[0]), list[torch.Tensor]()
        per_epoch = -(-count // self.batch_size)
        batches = (batch for _ in range(self.n_epochs) for batch in torch.split(torch.randperm(count), self.batch_size))
        for k, batch in enumerate(batches):
            found = self._gradients(*(values[batch.to(self.device)] for values in whole), clip=clip)
            if self.target_kl is not None or k >= (self.n_epochs - 1) * per_epoch:
                logged.append(self._parts(*found, clip=clip))
            if self.target_kl is not None and logged[-1][-1].item() > 1.5 * self.target_kl:
                break
            flat *= (self.max_grad_norm / (flat.norm() + 1e-6)).clamp(max=1.0)
            optimizer.step()
        if self.noise_decay:
            log_std: Any = policy.log_std
            log_std -= self.noise_decay * count / self._total_timesteps
        if self.scaling is not None:
            self.scaling.update(observed, returns, policy.value_net)
        self._n_updates += self.n_epochs
        for name, value in zip(LOGGED, torch.stack(logged[-per_epoch:]).mean(dim=0).tolist(), strict=True):
            self.logger.record(f"train/{name}", value)
        explained = explained_variance(buffer.values.ravel(), buffer.returns.ravel())
        self.logger.record("train/explained_variance", explained)
        self.logger.record("train/std", policy.log_std.exp().mean().item())
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/clip_range", clip)

    def _gradients(
        self, observation: torch.Tensor, action: torch.Tensor, old: torch.Tensor, advantage: torch.Tensor,
        returns: torch.Tensor, *, clip: float,
    ) -> tuple[torch.Tensor, ...]:  # fmt: skip
        """Compute the gradients of a minibatch's loss; -> what `_parts` takes."""
        log_std: Any = self.policy.log_std
        count = len(advantage)
        precision = (-log_std).exp()
        noise = (action - self.actor(observation)) * precision
        change = _log_density(noise, log_std) - old
        ratio = change.exp()
        if self.normalize_advantage and count > 1:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        free, clipped = advantage * ratio, advantage * ratio.clamp(1.0 - clip, 1.0 + clip)
        slope = torch.where(free <= clipped, free, 0.0).mul_(-1.0 / count).unsqueeze(1)  # dL / d log p
        self.actor.backward(slope * noise * precision)
        squares = noise.square()
        if log_std.requires_grad:
            torch.sum(slope * (squares - 1.0), 0, out=log_std.grad)
            log_std.grad -= self.ent_coef
        miss = self._value(observation) - returns
        self.critic.backward(miss.unsqueeze(1) * (2.0 * self.vf_coef / count))
        return free, clipped, change, ratio, miss

    def _parts(
        self, free: torch.Tensor, clipped: torch.Tensor, change: torch.Tensor, ratio: torch.Tensor, miss: torch.Tensor,
        *, clip: float,
    ) -> torch.Tensor:  # fmt: skip
        """The loss and its parts, in the order of `LOGGED`."""
        gain, missed = -torch.min(free, clipped).mean(), miss.square().mean()
        entropy = -(self.policy.log_std + 0.5 + HALF_LOG_TAU).sum()
        loss = gain + self.ent_coef * entropy + self.vf_coef * missed
        beyond = ((ratio - 1.0).abs() > clip).float().mean()
        return torch.stack((gain, missed, entropy, loss, beyond, (ratio - 1.0 - change).mean()))


def _log_density(noise: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    """log p of actions mean + std noise: -|noise|^2 / 2 - sum (log std + log(2 pi) / 2), (B,)."""
    return -0.5 * noise.square().sum(dim=-1) - (log_std + HALF_LOG_TAU).sum()
