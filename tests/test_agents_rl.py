"""Training, evaluation and resuming with stable-baselines3, and transfer studies by reinforcement learning."""

import base64
import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import PPO, SAC

from agents.learning.evaluation import evaluate
from agents.learning.policy import load_policy, policy_of
from agents.learning.rl import Training, load_checkpoint, newest_checkpoint, settings, train
from agents.study.definition import Job, Study
from agents.study.learned import PolicyWorker
from agents.study.statistics import share
from softgym_envs.core.errors import FileFormatError, OptionError
from softgym_envs.rooms import room_of_task, tasks

ID = "softgym_envs:TensegrityCrawl-v0"
ROLL = "softgym_envs:TensegrityRoll-v0"
OWN = room_of_task(ROLL).learning_of("TensegrityRoll-v0", "ppo")
QUICK = {"n_steps": 16, "n_epochs": 2}
SHORT = {"max_episode_steps": 8}


def training(steps, **changes):
    return Training(ID, steps, num_envs=4, keywords=SHORT, checkpoint_every=64, overrides=QUICK, **changes)


def weights(model):
    return np.concatenate([p.detach().numpy().ravel() for p in model.policy.parameters()])


def test_the_same_training_gives_the_same_policy_and_another_seed_another():
    first, again, other = (train(training(128, seed=seed)).model for seed in (0, 0, 1))
    np.testing.assert_array_equal(weights(first), weights(again))
    assert not np.array_equal(weights(first), weights(other))


def test_a_training_resumes_from_its_newest_checkpoint(tmp_path):
    done = train(training(128), tmp_path)
    assert newest_checkpoint(tmp_path).name == "policy_128_steps.zip" and (tmp_path / "progress.csv").exists()
    envs = training(128).make()
    loaded = load_checkpoint(newest_checkpoint(tmp_path), training(128), envs)
    observation = envs.reset()
    np.testing.assert_array_equal(
        loaded.predict(observation, deterministic=True)[0], done.model.predict(observation, deterministic=True)[0]
    )
    more = train(training(256), tmp_path, resume=True).model
    assert more.num_timesteps == 256 and not np.array_equal(weights(more), weights(done.model))
    assert newest_checkpoint(tmp_path).name == "policy_256_steps.zip"


def test_there_must_be_something_to_resume(tmp_path):
    with pytest.raises(FileFormatError, match="no checkpoint"):
        train(training(64), tmp_path, resume=True)
    with pytest.raises(OptionError, match="folder"):
        train(training(64), resume=True)
    (tmp_path / "policy_64_steps.zip").write_bytes(b"no zip")
    with pytest.raises(FileFormatError, match="policy_64_steps"):
        train(training(64), tmp_path, resume=True)


OURS = ("softgym", "agents.", "SB3VecEnv", "SharedPolicy")


def test_nothing_of_ours_is_inside_a_saved_policy(tmp_path):
    """Neither in the policy nor in a checkpoint, in plain letters or pickled."""
    shared = Training(ROLL, 64, num_envs=4, keywords=SHORT, overrides={**OWN, "n_steps": 8, "n_epochs": 1, "batch_size": 32})
    for index, run in enumerate((training(64), shared)):
        train(run, tmp_path / str(index))
        for path in (tmp_path / str(index)).glob("*.zip"):
            with zipfile.ZipFile(path) as archive:
                data = json.loads(archive.read("data"))
            pickled = [
                base64.b64decode(v[":serialized:"]) for v in data.values() if isinstance(v, dict) and ":serialized:" in v
            ]
            text = json.dumps(data).encode() + b"".join(pickled)
            assert not [name for name in OURS if name.encode() in text], path


def test_a_saved_policy_acts_as_the_trained_one_and_starts_a_new_optimiser(tmp_path):
    done = train(training(128), tmp_path).model
    observation = np.random.default_rng(0).normal(size=(5, 43)).astype(np.float32)
    ours = load_policy(tmp_path / "policy.zip")
    np.testing.assert_allclose(ours(observation), policy_of(done)(observation), atol=1e-6)  # float32
    plain = PPO.load(tmp_path / "policy.zip")
    np.testing.assert_array_equal(weights(plain), weights(done))
    assert plain.num_timesteps == 128 and not plain.policy.optimizer.state_dict()["state"]
    assert (tmp_path / "policy.zip").stat().st_size < 0.6 * newest_checkpoint(tmp_path).stat().st_size
    sac = Training(ID, 64, "sac", num_envs=4, keywords=SHORT, overrides={"learning_starts": 16})
    done = train(sac, tmp_path / "sac").model
    ours = load_policy(tmp_path / "sac" / "policy.zip")
    np.testing.assert_allclose(ours(observation), policy_of(done)(observation), atol=1e-6)
    assert SAC.load(tmp_path / "sac" / "policy.zip").num_timesteps == 64


PLAIN = """
import json, sys
import numpy as np
from stable_baselines3 import PPO
model = PPO.load(sys.argv[1])
size = model.observation_space.shape[0]
actions = model.predict(np.random.default_rng(0).standard_normal((200, size)).astype(np.float32), deterministic=True)[0]
print(json.dumps({"ours": [m for m in sys.modules if m.startswith(("softgym_envs", "agents"))], "actions": actions.tolist()}))
"""


@pytest.mark.parametrize("folder", ["vine_policy", "rl_roll"])
def test_a_policy_of_the_results_opens_without_this_package(tmp_path, folder):
    """In another folder, without our modules on the path; actions as when it was trained (stored with the results)."""
    root = Path(__file__).parents[1] / "results" / folder
    found = subprocess.run(
        [sys.executable, "-P", "-c", PLAIN, str(root / "policy.zip")], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    found = json.loads(found.stdout.splitlines()[-1])
    observation = np.random.default_rng(0).standard_normal((200, 14 if folder == "vine_policy" else 100)).astype(np.float32)
    then = np.load(Path(__file__).parent / "registered" / "policy_actions.npz")[folder]
    np.testing.assert_allclose(found["actions"], then, atol=1e-6)
    np.testing.assert_allclose(load_policy(root / "policy.zip")(observation), then, atol=1e-6)
    assert not found["ours"]


@pytest.mark.parametrize("hits, count", [(0, 20), (19, 20), (100, 100), (37, 100)])
def test_a_share_is_wilsons(hits, count):
    """At both ends of the interval the score test is at its 5 % limit: (p - q)^2 = z^2 q (1 - q) / n."""
    found = share(hits, count)
    for end in (found.low, found.high):
        assert (found.value - end) ** 2 == pytest.approx(1.959964**2 * end * (1 - end) / count, abs=1e-12)
    with pytest.raises(OptionError, match="share"):
        share(3, 2)


@pytest.mark.parametrize(
    "folder, env_id, least",
    [("vine_policy", "VineGrow-v0", 0.0), ("rl_roll", "TensegrityRoll-v0", -40.0)],  # it comes nearer; standing still is -50
)
def test_a_policy_of_the_results_runs_in_both_backends(monkeypatch, tmp_path, folder, env_id, least):
    root = Path(__file__).parents[1]
    spec = importlib.util.spec_from_file_location("evaluate_script", root / "scripts" / "evaluate.py")
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "evaluate_script", script)
    spec.loader.exec_module(script)
    policy = root / "results" / folder / "policy.zip"
    fit = root / "results" / folder / "fit.toml"
    assert policy.stat().st_size < 800_000
    out = tmp_path / "evaluation.json"
    assert script.main(script.Args(policy, env_id, params=fit if fit.exists() else None, episodes=2, out=out)) == 0
    report = json.loads(out.read_text())
    for backend in ("native", "mujoco"):
        found = report[backend]
        assert found["episodes"] == 2 and found["failed_simulations"] == 0 and found["return_mean"] > least
    assert script.main(script.Args(policy, "SlidingBlock-v0", episodes=2)) == 2  # other sizes


def test_evaluation_equals_single_episodes_without_action():
    found = evaluate(None, ID, episodes=2, seed=7, keywords=SHORT)
    env = gym.make(ID, **SHORT)
    for episode in range(2):
        env.reset(seed=7 + episode)
        total, done = 0.0, False
        while not done:
            _, reward, terminated, truncated, _ = env.step(np.zeros(3, dtype=np.float32))
            total, done = total + reward, terminated or truncated
        assert found.returns[episode] == pytest.approx(total, rel=1e-12)
    assert (found.failed == 0).all()


def test_learning_improves_a_task_that_is_easy():
    """Without a velocity error to gain from, the control cost alone is left: PPO must learn to keep still."""
    easy = {"max_episode_steps": 8, "target_speed": 0.0, "control_weight": 10.0}
    quick = {"n_steps": 32, "n_epochs": 10, "batch_size": 128, "learning_rate": 3e-3, "gamma": 0.5}
    points = train(Training(ID, 16 * 512, num_envs=16, keywords=easy, overrides=quick)).curve
    assert points[-1].mean_return > 0.5 * points[0].mean_return  # both negative: the cost is halved at least


def test_every_id_has_settings():
    for entry in tasks():
        for algorithm in ("ppo", "sac"):
            own = room_of_task(entry.id).learning_of(entry.id, algorithm)
            assert 0 < settings(algorithm, own)["gamma"] < 1 and not set(own) - {*settings(algorithm), "final_rate"}
    with pytest.raises(OptionError, match="dqn"):
        settings("dqn")
    with pytest.raises(OptionError, match="unknown environment 'Roll'"):
        room_of_task("Roll")
    with pytest.raises(OptionError, match="steps"):
        training(0)


class Case:
    """The little that a policy worker asks for without data."""

    def default(self):
        return None


def test_a_worker_keeps_its_budget_and_counts_it(tmp_path):
    study = Study("rl", "rl", ("nominal", "truth_budget", "truth"), (1700,), train_steps=64, starts=2, datasets=1, seeds=1)
    worker = PolicyWorker(Case(), study, tmp_path, ID, common=SHORT, truth={})
    record = worker(Job("truth_budget", 1700, 0, 0))
    assert record["truth_steps"]["train"] == 1700 and record["model_steps"] == 0  # 17 control steps of 100 physics steps
    assert len(record["costs"]) == 2 and record["cost"] > 0
    record = worker(Job("nominal", 0, 0, 0))
    assert record["truth_steps"]["train"] == 0 and record["model_steps"] == 6400


def test_the_script_trains_resumes_and_draws(monkeypatch, tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("train_script", Path(__file__).parents[1] / "scripts" / "train.py")
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "train_script", script)
    spec.loader.exec_module(script)
    arguments = {"id": "TensegrityCrawl-v0", "num_envs": 4, "episodes": 1, "checkpoint_every": 128, "out": tmp_path}
    assert script.main(script.Args(steps=256, **arguments)) == 0
    assert script.main(script.Args(steps=512, resume=True, **arguments)) == 0
    assert newest_checkpoint(tmp_path).name == "policy_512_steps.zip"
    evaluation = json.loads((tmp_path / "evaluation.json").read_text())
    assert set(evaluation) == {"native", "mujoco"} and (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"
    assert script.main(script.Args(steps=256, algorithm="sac", resume=True, **{**arguments, "out": tmp_path / "none"})) == 2
    assert "no checkpoint" in capsys.readouterr().err
