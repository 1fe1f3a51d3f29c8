"""The stable-baselines3 adapter: same numbers as the environment it wraps, ends of episodes as stable-baselines3 wants them.
PPO of rsl-rl-lib on tensors: it learns, resumes, and writes policies that the other subcommands open."""

from __future__ import annotations

import json
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

import agents
from agents.learning import rsl
from agents.learning.checkpoints import kept, require_unused
from agents.learning.curve import learning_curve
from agents.learning.policy import load_policy
from agents.learning.vec_env import SB3VecEnv
from softgym_envs.core.errors import FileFormatError, OptionError
from softgym_envs.systems import system_of_task, tasks

ID = "softgym_envs:TensegrityCrawl-v0"
STEPS = 4


def make(num_envs=3, **keywords):
    given = {"autoreset_mode": "same_step", "max_episode_steps": STEPS, **keywords}
    return SB3VecEnv(gym.make_vec(ID, num_envs=num_envs, **given))


def test_equals_single_environments_over_two_episodes():
    envs = make()
    singles = [gym.make(ID, max_episode_steps=STEPS) for _ in range(3)]
    envs.seed(5)
    rng = np.random.default_rng(0)
    observed = envs.reset()
    expected = np.stack([env.reset(seed=5 + i)[0] for i, env in enumerate(singles)])
    np.testing.assert_array_equal(observed, expected)
    returns = np.zeros(3)
    for step in range(1, 2 * STEPS + 1):
        actions = rng.uniform(-1, 1, (3, 3)).astype(np.float32)
        observed, rewards, dones, infos = envs.step(actions)
        for i, env in enumerate(singles):
            last, reward, terminated, truncated, info = env.step(actions[i])
            returns[i] += reward
            assert rewards[i] == np.float32(reward)
            assert infos[i]["reward_along"] == info["reward_along"]
            assert dones[i] == (terminated or truncated) == (step % STEPS == 0)
            if dones[i]:
                np.testing.assert_array_equal(infos[i]["terminal_observation"], last)
                assert infos[i]["TimeLimit.truncated"]
                assert infos[i]["episode"]["l"] == STEPS
                assert infos[i]["episode"]["r"] == pytest.approx(returns[i], rel=1e-12)
                returns[i] = 0.0
                last, _ = env.reset()
            else:
                assert "terminal_observation" not in infos[i]
            np.testing.assert_array_equal(observed[i], last)
    envs.close()


def test_a_failed_simulation_is_not_a_time_limit():
    envs = make(2)
    envs.reset()
    state = np.array(envs.get_attr("state"))
    state[0, 7] = 1e6  # m/s
    envs.set_options({"state": state})
    envs.reset()
    _, rewards, dones, infos = envs.step(np.zeros((2, 3)))
    assert dones.tolist() == [True, False]
    assert infos[0]["sim_failed"] and not infos[0]["TimeLimit.truncated"]
    assert rewards[0] == -100.0


def test_ppo_updates_and_saves_nothing_of_ours(tmp_path):
    envs = make()
    model = PPO("MlpPolicy", envs, n_steps=8, batch_size=12, n_epochs=1, seed=0, device="cpu")
    before = [p.detach().clone() for p in model.policy.parameters()]
    model.learn(48)
    assert model.num_timesteps == 48
    assert any((a != b).any() for a, b in zip(before, model.policy.parameters(), strict=True))
    assert len(model.ep_info_buffer) == 12  # 48 steps in episodes of 4
    model.save(tmp_path / "policy.zip")
    with zipfile.ZipFile(tmp_path / "policy.zip") as archive:
        saved = json.loads(archive.read("data"))
        assert not any(name in archive.read("data").decode() for name in ("softgym", "agents.", "SB3VecEnv"))
    assert "observation_space" in saved
    env = gym.make(ID)
    observation, _ = env.reset(seed=0)
    action, _ = PPO.load(tmp_path / "policy.zip").predict(observation, deterministic=True)
    np.testing.assert_array_equal(action, model.predict(observation, deterministic=True)[0])


def test_refuses_another_autoreset_mode_and_single_rows():
    with pytest.raises(OptionError, match="same_step"):
        SB3VecEnv(gym.make_vec(ID, num_envs=2))
    for name in (ID, "SlidingBlock-v0"):
        with pytest.raises(OptionError, match="the environment has output='torch'; stable-baselines3 needs output='numpy'"):
            SB3VecEnv(gym.make_vec(name, num_envs=2, autoreset_mode="same_step", output="torch"))
    envs = make(2)
    assert envs.env_is_wrapped(gym.Wrapper) == [False, False]
    assert envs.get_attr("num_envs", [0]) == [2]
    for indices in ([1], [1, 1]):
        with pytest.raises(OptionError, match="all 2 rows"):
            envs.env_method("close", indices=indices)
        with pytest.raises(OptionError, match="all 2 rows"):
            envs.set_attr("mark", 1, indices=indices)
    with pytest.raises(OptionError, match=r"call reset\(\) itself"):
        envs.env_method("reset")


def test_answers_what_environments_of_their_own_answer():
    """Attributes, methods and pictures of rows, by index, as DummyVecEnv gives them of single environments."""
    keywords = {"max_episode_steps": STEPS, "render_mode": "rgb_array"}
    dummy = DummyVecEnv([lambda: Monitor(gym.make(ID, **keywords)) for _ in range(3)])
    wrapped = RecordEpisodeStatistics(gym.make_vec(ID, num_envs=3, autoreset_mode="same_step", **keywords))
    envs = SB3VecEnv(wrapped)
    for each in (dummy, envs):
        each.seed(5)
        each.reset()
        each.step(np.full((3, 3), 0.5, dtype=np.float32))
    for indices in (None, 1, -1, [2, 0], np.array([1]), []):
        for name in ("state", "context"):
            np.testing.assert_array_equal(envs.get_attr(name, indices), dummy.get_attr(name, indices))
        for name in ("observation_space", "action_space", "render_mode", "backend"):
            assert envs.get_attr(name, indices) == dummy.get_attr(name, indices)
        pictures, expected = (each.env_method("render", indices=indices) for each in (envs, dummy))
        np.testing.assert_array_equal(pictures, expected)
        assert envs.env_is_wrapped(Monitor, indices) == dummy.env_is_wrapped(Monitor, indices)
        saved, alike = (each.env_method("get_state", indices=indices) for each in (envs, dummy))
        assert all(np.array_equal(a["state"][0], b["state"][0]) for a, b in zip(saved, alike, strict=True))
    for each in (dummy, envs):
        each.set_attr("mark", 7)
        assert each.get_attr("mark", [1]) == [7] and each.has_attr("mark") and not each.has_attr("nothing")
        for call in (each.get_attr, each.env_method):
            with pytest.raises(IndexError):
                call("state" if call == each.get_attr else "get_state", indices=[3])
        with pytest.raises(AttributeError, match="nothing"):
            each.env_method("nothing")
        each.close()


def test_evaluation_finds_its_monitor_and_films_their_pace():
    envs, model = make(2, render_mode="rgb_array"), PPO("MlpPolicy", make(2), n_steps=8, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(evaluate_policy(model, envs, 4, return_episode_rewards=True)[1]) == 4
    assert envs.metadata["render_fps"] == envs.get_attr("metadata")[0]["render_fps"] == 10


@pytest.mark.parametrize("mode", ["SameStep", "same_step", "SAME_STEP", AutoresetMode.SAME_STEP])
def test_every_spelling_of_gymnasium_is_taken(mode):
    envs = make(2, autoreset_mode=mode)
    assert envs.envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    envs.close()
    with pytest.raises(OptionError, match=r"autoreset_mode is .*, allowed are next_step, same_step, disabled"):
        make(2, autoreset_mode="at_once")


def test_states_of_rows_are_those_of_environments_of_their_own():
    """A row's state goes on in a single environment, and comes back into any row."""
    rng, single = np.random.default_rng(0), gym.make(ID, max_episode_steps=STEPS).unwrapped
    envs = make(3)
    envs.seed(1)
    envs.reset()
    envs.step(rng.uniform(-1, 1, (3, 3)).astype(np.float32))
    first, last = envs.env_method("get_state", indices=[0, 2])
    action = rng.uniform(-1, 1, (3, 3)).astype(np.float32)
    after = envs.step(action)[0]
    single.reset(seed=0)
    single.set_state(last)
    np.testing.assert_array_equal(single.step(action[2])[0], after[2])
    assert envs.env_method("set_state", first, indices=[2]) == [None]
    again = envs.step(np.repeat(action[:1], 3, axis=0))[0]
    np.testing.assert_array_equal(again[2], after[0])
    assert not np.array_equal(again[1], after[1])  # it went on
    with pytest.raises(OptionError, match="expected that of one row"):
        envs.env_method("set_state", {}, indices=[2])
    assert len(envs.env_method("get_state")) == 3
    envs.close()


EASY = {"tolerance": 0.25}


def test_a_policy_is_trained_resumed_and_opened(tmp_path: Path) -> None:
    keywords = {**EASY, "action_memory": 1, "max_episode_steps": 20}
    training = rsl.DeviceTraining("softgym_envs:VineGrow-v0", 2 * 16 * rsl.STEPS, keywords, num_envs=16)
    network = rsl.train(training, tmp_path)
    assert (tmp_path / "model_1.pt").is_file() and list(tmp_path.glob("events.out.tfevents.*"))
    assert not (tmp_path / "git").exists()
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
    for other in (replace(longer, num_envs=8), replace(longer, env_id="softgym_envs:VineWall-v0"), replace(longer, seed=1)):
        with pytest.raises(FileFormatError, match=r"belongs to another run: its (rows|id|seed) is"):
            rsl.train(other, tmp_path, resume=True)
    with pytest.raises(OptionError, match="holds a training"):
        require_unused(tmp_path)
    assert kept(tmp_path).endswith("goes on from model_2.pt")
    said: list[str] = []
    for steps in (longer.steps, longer.steps + 1):
        rsl.begun(replace(longer, steps=steps), tmp_path, said.append)
    assert said == [
        "nothing is left to train: model_2.pt has 1152 steps, steps is 1152",
        "trains up to 1536 steps, steps is 1153: it learns from 384 at a time",
    ]
    events = len(list(tmp_path.glob("events.*")))
    rsl.train(longer, tmp_path, resume=True)
    assert len(list(tmp_path.glob("events.*"))) == events, "nothing is left to train"


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


def test_every_id_has_widths() -> None:
    """Also those whose actor is shared by all motors, which rsl-rl-lib does not know."""
    for task in tasks():
        overrides = system_of_task(task.id).learning_of(task.id, "ppo")
        widths = rsl.DeviceTraining(f"softgym_envs:{task.id}", 1, overrides=overrides).configuration["actor"]["hidden_dims"]
        assert all(isinstance(width, int) for width in widths), task.id
