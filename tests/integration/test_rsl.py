"""PPO of rsl-rl-lib on tensors: it learns, resumes, and writes policies that the other subcommands open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import agents
from agents.learning.curve import learning_curve
from agents.learning.policy import load_policy
from softgym_envs.core.errors import OptionError

pytest.importorskip("rsl_rl")
rsl = pytest.importorskip("agents.learning.rsl")

EASY = {"tolerance": 0.25}


def test_a_policy_is_trained_resumed_and_opened(tmp_path: Path) -> None:
    keywords = {**EASY, "action_memory": 1, "max_episode_steps": 20}
    training = rsl.DeviceTraining("softgym_envs:VineGrow-v0", 2 * 16 * rsl.STEPS, keywords, num_envs=16)
    network = rsl.train(training, tmp_path)
    assert (tmp_path / "model_1.pt").is_file() and list(tmp_path.glob("events.out.tfevents.*"))
    with pytest.raises(OptionError, match="holds a training"):
        rsl.train(training, tmp_path)
    longer = rsl.DeviceTraining(training.env_id, 3 * 16 * rsl.STEPS, training.keywords, num_envs=16)
    again = rsl.train(longer, tmp_path, resume=True)
    assert (tmp_path / "model_2.pt").is_file()
    assert learning_curve(tmp_path)[-1][0] == 3 * 16 * rsl.STEPS and "success" in (tmp_path / "progress.csv").read_text()
    loaded = load_policy(tmp_path / "policy.npz")
    assert loaded.keywords == {"action_memory": 1} and loaded.contract is not None
    observed = np.random.default_rng(0).normal(size=(5, loaded.layers[0][0].shape[1]))
    np.testing.assert_array_equal(loaded(observed), again(observed))
    assert not np.array_equal(again(observed), network(observed))
    assert len(agents.evaluate(tmp_path / "policy.npz", "VineGrow-v0", episodes=2, **EASY).returns) == 2
    with pytest.raises(OptionError, match="no checkpoint"):
        rsl.train(training, tmp_path / "none", resume=True)


def test_the_network_is_that_of_the_actor() -> None:
    """With the normalisation of observations in its first layer; other ids learn on tensors of the CPU."""
    from rsl_rl.runners import OnPolicyRunner

    training = rsl.DeviceTraining("softgym_envs:SlidingBlock-v0", 1, num_envs=4)
    envs = rsl.DeviceEnv(training.make(), 0)
    runner = OnPolicyRunner(envs, training.configuration)
    runner.learn(1)
    network, observed = rsl.exported(runner.get_inference_policy(), {}), envs.get_observations()
    expected = runner.alg.actor(observed).clamp(-1.0, 1.0).detach().numpy()
    np.testing.assert_allclose(network(observed["policy"].numpy()), expected, atol=1e-6)
