"""Gradients that are written out against autograd, and PPO's update against that of stable-baselines3."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from agents.learning.chain import Chain, flat_gradients
from agents.learning.policy import load_policy, policy_of, save_policy
from agents.learning.ppo import LOGGED, LeanPPO
from agents.learning.rl import Training, devices
from agents.learning.scaling import Scaling
from agents.learning.shared_policy import SharedPolicy
from softgym_envs.core.errors import OptionError

VIEWS = np.array([[[0, 1], [2, 1]], [[1, 0], [1, 2]], [[0, 2], [2, 0]]])


class Line(gym.Env):
    """A point on a line is to stay at zero; an episode ends after 7 steps, or beyond 2."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.steps = self.np_random.uniform(-1, 1, 3).astype(np.float32), 0
        return self.at.copy(), {}

    def step(self, action):
        self.at[:2] += 0.3 * action
        self.steps += 1
        far = bool(np.abs(self.at).max() > 2.0)
        return self.at.copy(), -float(np.square(self.at).sum()), far, self.steps == 7 and not far, {}


def model(kind=LeanPPO, policy="MlpPolicy", **keywords):
    envs = DummyVecEnv([lambda: gym.wrappers.RecordEpisodeStatistics(Line())] * 4)
    return kind(policy, envs, n_steps=32, batch_size=48, n_epochs=2, seed=0, device="cpu", **keywords)


SHARED = {"policy": SharedPolicy, "policy_kwargs": {"views": VIEWS, "net_arch": {"pi": [8, 8], "vf": [8]}}}


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_gradients_of_a_chain_are_those_of_autograd(activation):
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 6), activation(), nn.Linear(6, 5), activation()), nn.Linear(5, 2)
    network = nn.Sequential(*layers)
    chain, weights = Chain(*layers), list(network.parameters())
    for rows in (9, 5):  # fewer rows use part of the same memory
        inputs, slope = torch.randn(rows, 4), torch.randn(rows, 2)
        result = network(inputs)
        expected = torch.autograd.grad(result, weights, slope)
        flat = flat_gradients(weights)
        torch.testing.assert_close(chain(inputs), result.detach())
        chain.backward(slope)
        for weight, gradient in zip(weights, expected, strict=True):
            torch.testing.assert_close(weight.grad, gradient)
        assert flat.abs().sum() > 0


def test_only_layers_that_are_known_make_a_chain():
    with pytest.raises(OptionError, match="holds GELU, allowed there is Tanh, ReLU"):
        Chain(nn.Linear(2, 2), nn.GELU(), nn.Linear(2, 1))


@pytest.mark.parametrize("own", [{}, SHARED], ids=["plain", "shared"])
def test_gradients_of_the_loss_are_those_of_stable_baselines(own):
    """Of an actor that is frozen there are none, as teachers of critics need it."""
    learner = model(ent_coef=0.01, **own)
    policy, clip = learner.policy, 0.2
    torch.manual_seed(1)
    seen, action, advantage, returns = torch.randn(60, 3), torch.randn(60, 2), torch.randn(60), torch.randn(60)
    with torch.no_grad():
        old = policy.evaluate_actions(seen, action)[1] + 0.3 * torch.randn(60)
    value, density, entropy = policy.evaluate_actions(seen, action)
    ratio, scaled = (density - old).exp(), (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    gain = -torch.min(scaled * ratio, scaled * ratio.clamp(1 - clip, 1 + clip)).mean()
    loss = gain - 0.01 * entropy.mean() + 0.5 * nn.functional.mse_loss(returns, value.flatten())
    loss.backward()
    expected = {name: weight.grad.clone() for name, weight in policy.named_parameters()}
    flat_gradients(list(policy.parameters()))
    with torch.no_grad():
        found = learner._gradients(seen, action, old, advantage, returns, clip=clip)
        parts = dict(zip(LOGGED, learner._parts(*found, clip=clip), strict=True))
    for name, weight in policy.named_parameters():
        torch.testing.assert_close(weight.grad, expected[name], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(parts["loss"], loss.detach())
    torch.testing.assert_close(parts["clip_fraction"], ((ratio.detach() - 1).abs() > clip).float().mean())
    frozen = [weight for name, weight in policy.named_parameters() if "value" not in name and "critic" not in name]
    for weight in frozen:
        weight.requires_grad_(False)
    before = [weight.clone() for weight in frozen]
    learner.learn(128)
    assert all(torch.equal(a, b) for a, b in zip(before, frozen, strict=True))


def test_a_collection_is_that_of_stable_baselines():
    """The same actions, values, advantages and returns, with a bootstrap where time ends an episode."""
    mine, theirs = model(), model(PPO)
    for learner in (mine, theirs):
        learner._setup_learn(128)
        learner.set_random_seed(3)
        learner.collect_rollouts(learner.env, learner._init_callback(None), learner.rollout_buffer, 32)
    for name in ("observations", "actions", "rewards", "episode_starts", "values", "log_probs", "advantages", "returns"):
        found, expected = getattr(mine.rollout_buffer, name), getattr(theirs.rollout_buffer, name)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=name)
    assert mine.num_timesteps == theirs.num_timesteps == 128
    assert [each["r"] for each in mine.ep_info_buffer] == [each["r"] for each in theirs.ep_info_buffer]


def test_what_is_not_implemented_or_not_there_is_refused():
    with pytest.raises(OptionError, match=r"clip_range_vf is 0\.1, allowed is to leave it out"):
        model(clip_range_vf=0.1)
    with pytest.raises(OptionError, match=rf"device is 'cuda:99', allowed are {', '.join(devices())}"):
        Training("VineGrow-v0", 10, device="cuda:99")


def test_an_update_ends_where_the_policy_has_moved_far():
    """As in stable-baselines3; the log holds the last minibatches."""
    near, far = model(learning_rate=0.03), model(learning_rate=0.03, target_kl=1e-3)
    moved = []
    for learner in (far, near):
        before = learner.policy.action_net.weight.clone()
        learner.learn(128)
        moved.append((learner.policy.action_net.weight - before).abs().max().item())
    assert 0.0 < moved[0] < 0.7 * moved[1]


def test_scales_are_means_and_deviations_and_change_no_value():
    torch.manual_seed(0)
    scaling, head = Scaling(Line.observation_space), nn.Linear(4, 1)
    parts = [torch.randn(size, 3) * torch.tensor([1.0, 20.0, 0.0]) + 5.0 for size in (40, 40)]
    gains = [100.0 * part[:, 0] - 7.0 for part in parts]
    features = torch.randn(9, 4)
    value = head(features) * scaling.value_deviation + scaling.value_mean
    for observed, returns in zip(parts, gains, strict=True):
        scaling.update(observed, returns, head)
    torch.testing.assert_close(scaling.mean, torch.cat(parts).mean(0))
    torch.testing.assert_close(scaling.deviation[:2], torch.cat(parts).std(0, correction=0)[:2])
    assert scaling.deviation[2] == pytest.approx(1e-3)
    torch.testing.assert_close(scaling.value_deviation[0], torch.cat(gains).std(correction=0))
    torch.testing.assert_close(head(features) * scaling.value_deviation + scaling.value_mean, value, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("own", [{"policy_kwargs": {"net_arch": [8, 8]}}, SHARED], ids=["plain", "shared"])
def test_a_finished_policy_has_its_scales_in_its_layers(own, tmp_path):
    """Stable-baselines3 opens it without this package; a checkpoint still has them."""
    keywords = {**own["policy_kwargs"], "features_extractor_class": Scaling}
    learner = model(**{**own, "policy_kwargs": keywords}, learning_rate=0.01)
    learner.learn(512)
    observed = 3.0 * np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
    expected = policy_of(learner)(observed)
    path = save_policy(learner, tmp_path / "policy.zip")
    np.testing.assert_allclose(load_policy(path)(observed), expected, atol=1e-4)
    plain = PPO.load(path)
    np.testing.assert_allclose(plain.predict(observed, deterministic=True)[0], expected, atol=1e-4)
    with torch.no_grad():
        values = plain.policy.predict_values(torch.from_numpy(observed))[:, 0].numpy()
    np.testing.assert_allclose(values, learner._values(observed), rtol=1e-3, atol=1e-3)
    if own is not SHARED:
        learner.save(tmp_path / "policy_512_steps.zip", exclude=("policy_class", "policy_kwargs"))
        np.testing.assert_allclose(load_policy(tmp_path / "policy_512_steps.zip")(observed), expected, atol=1e-4)
