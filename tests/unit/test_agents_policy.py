"""Policies in files: the one loader against stable-baselines3, and files that hold none."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import softgym_envs  # noqa: F401  (registers the ids)
from agents.learning.policy import load_policy
from softgym_envs.core.errors import FileFormatError, ShapeError


@pytest.mark.parametrize("algorithm", ["PPO", "SAC"])
def test_a_saved_policy_drives_as_stable_baselines3_would(tmp_path, algorithm):
    sb3 = pytest.importorskip("stable_baselines3")
    torch = pytest.importorskip("torch")
    env = gym.make("softgym_envs:TensegrityRoll-v0")
    options = {"net_arch": [16, 8], "activation_fn": torch.nn.ELU}
    small = {"buffer_size": 10} if algorithm == "SAC" else {}
    model = getattr(sb3, algorithm)("MlpPolicy", env, policy_kwargs=options, device="cpu", seed=1, **small)
    model.save(tmp_path / "policy.zip")
    policy = load_policy(tmp_path / "policy.zip")
    for _ in range(3):
        observation = env.observation_space.sample() * 0.01
        expected = model.predict(observation, deterministic=True)[0]
        np.testing.assert_allclose(policy(observation[None])[0], expected, atol=1e-5)


def test_a_recurrent_policy_is_refused(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.PPO("MlpPolicy", gym.make("softgym_envs:SlidingBlock-v0"), device="cpu")
    model.policy.lstm_actor = sb3.common.policies.nn.LSTM(7, 4)  # under the name that sb3-contrib gives it
    model.save(tmp_path / "policy.zip")
    with pytest.raises(FileFormatError, match=r"policy.zip holds lstm_actor.weight_ih_l0: policies with a memory \(LSTM\)"):
        load_policy(tmp_path / "policy.zip")


def test_files_that_are_no_policy_are_refused(tmp_path):
    (tmp_path / "text.zip").write_text("not a zip")
    for name, said in (("text.zip", "is no policy of stable-baselines3"), ("missing.zip", "no such file")):
        with pytest.raises(FileFormatError, match=said):
            load_policy(tmp_path / name)


@pytest.mark.parametrize("document", ['{"observed": [3]}', '{"observed": null}', "[1]"])
def test_what_a_policy_observes_stands_beside_it(tmp_path, document):
    sb3 = pytest.importorskip("stable_baselines3")
    path = tmp_path / "policy.zip"
    sb3.PPO("MlpPolicy", gym.make("softgym_envs:SlidingBlock-v0"), device="cpu").save(path)
    assert load_policy(path).keywords == {}
    (tmp_path / "policy.json").write_text('{"observed": {"action_memory": 3}, "more": 1}')
    assert load_policy(path).keywords == {"action_memory": 3}
    (tmp_path / "policy.json").write_text(document)
    with pytest.raises(FileFormatError, match=r"expected a table of keywords|no JSON object"):
        load_policy(path)


def test_a_policy_of_another_environment_is_refused(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    sb3.PPO("MlpPolicy", gym.make("softgym_envs:TensegrityCrawl-v0"), device="cpu").save(tmp_path / "crawl.zip")
    policy = load_policy(tmp_path / "crawl.zip")
    with pytest.raises(ShapeError, match=r"takes 46 observed numbers, the environment has shape \(1, 100\)"):
        policy(np.zeros((1, 100), dtype=np.float32))
