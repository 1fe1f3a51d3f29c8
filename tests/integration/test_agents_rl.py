"""Training, evaluation and resuming with stable-baselines3, and transfer studies by reinforcement learning."""

import base64
import dataclasses
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from helpers import load_script, run_main
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.utils import LinearSchedule

import agents
from agents.learning.checkpoints import RUN, load_checkpoint, newest_checkpoint, save_checkpoint
from agents.learning.curve import learning_curve
from agents.learning.evaluation import Evaluation, evaluate
from agents.learning.policy import PRETRAINED, load_policy, policy_of
from agents.learning.rl import Training, new_model, settings, train
from agents.policies import FOLDER
from agents.transfer_study.definition import Repeats, Study, StudyRun
from agents.transfer_study.fits import EmpiricalParameters
from agents.transfer_study.learned import PolicyWorker
from agents.transfer_study.statistics import share
from softgym_envs.core.errors import FileFormatError, OptionError
from softgym_envs.core.files import write_atomically
from softgym_envs.systems import system_of_task, tasks
from softgym_envs.systems.tensegrity.parameters import TensegrityParameters

ID = "softgym_envs:TensegrityCrawl-v0"
ROLL = "softgym_envs:TensegrityRoll-v0"
OWN = system_of_task(ROLL).learning_of("TensegrityRoll-v0", "ppo")
SAME = {"net_arch": {"pi": [48, 48], "vf": [48, 48]}}
QUICK = {"n_steps": 16, "n_epochs": 2}
SHORT = {"max_episode_steps": 8}


def training(steps, **changes):
    return Training(ID, steps, **{"num_envs": 4, "keywords": SHORT, "checkpoint_every": 64, "overrides": QUICK, **changes})


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
    loaded = new_model(training(128), envs)
    load_checkpoint(newest_checkpoint(tmp_path), loaded)
    assert loaded.num_timesteps == 128
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


OTHERS = {
    "seed": ({"seed": 1}, "its seed is 0, expected is 1"),
    "id": (
        {"env_id": "softgym_envs:TensegrityWaypoint-v0"},
        'its id is "TensegrityCrawl-v0", expected is "TensegrityWaypoint-v0"',
    ),
    "algorithm": ({"algorithm": "sac", "overrides": {}}, 'its algorithm is "ppo", expected is "sac"'),
    "rows": ({"num_envs": 8}, "its rows is 4, expected is 8"),
    "keywords": ({"keywords": {**SHORT, "disturbance": 0.1}}, "its keywords.disturbance is "),
    "hyperparameters": ({"overrides": {**QUICK, "gamma": 0.5}}, "its hyperparameters.gamma is 0.98, expected is 0.5"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_checkpoint_of_another_run_is_refused_and_left_as_it_is(tmp_path, what):
    changes, message = OTHERS[what]
    train(training(64), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(FileFormatError, match="belongs to another run") as caught:
        train(dataclasses.replace(training(128), **changes), tmp_path, resume=True)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_run_is_of_one_file_of_constants(tmp_path):
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text("mass = 1")
    second.write_text("mass = 1")
    runs = [training(64, keywords={**SHORT, "params": params}).run for params in (first, str(first), second)]
    assert runs[0] == runs[1] == runs[2]
    second.write_text("mass = 2")
    assert training(64, keywords={**SHORT, "params": second}).run != runs[0]
    backends = [training(64, keywords={"backend": backend}).run for backend in ("native", str(first), str(second), second)]
    assert backends[0] != backends[1] != backends[2] == backends[3]  # a ground truth of one's own is a file, too


def test_a_run_is_of_the_values_of_its_settings():
    def run(value):
        return training(64, keywords={"value": value}).run

    assert run(LinearSchedule(1e-3, 1e-4, 1.0)) == run(LinearSchedule(1e-3, 1e-4, 1.0)) != run(LinearSchedule(1e-3, 0.0, 1.0))
    assert run(lambda: 0) == run(lambda: 0) and run(np.arange(3)) != run(np.arange(1, 4))
    ones, own = (EmpiricalParameters(parameters) for parameters in (TensegrityParameters(rod_mass=1.0), TensegrityParameters()))
    assert run(ones) != run(own) == run(EmpiricalParameters(TensegrityParameters()))
    assert max(len(text) for text in run({"rows": np.arange(10_000)}).values()) < 100


def test_a_checkpoint_that_does_not_say_what_it_is_is_refused(tmp_path):
    train(training(64), tmp_path).model.save(tmp_path / "policy_64_steps.zip")
    with pytest.raises(FileFormatError, match="does not say which run"):
        train(training(128), tmp_path, resume=True)


@pytest.mark.parametrize("left", [0.0, 0.5, 0.999])
def test_a_truncated_checkpoint_is_passed_over(tmp_path, capfd, left):
    train(training(128), tmp_path)
    newest = newest_checkpoint(tmp_path)
    newest.write_bytes(newest.read_bytes()[: int(left * newest.stat().st_size)])
    assert newest_checkpoint(tmp_path).name == "policy_64_steps.zip"
    assert train(training(192), tmp_path, resume=True).model.num_timesteps == 192
    warning = [line for line in capfd.readouterr().err.splitlines() if "damaged" in line]
    assert len(warning) == 1 and "policy_128_steps.zip is damaged, going on from policy_64_steps.zip" in warning[0]
    assert newest_checkpoint(tmp_path).name == "policy_192_steps.zip"


def test_a_checkpoint_appears_whole_or_not_at_all(monkeypatch, tmp_path):
    train(training(64), tmp_path)
    before = sorted(path.name for path in tmp_path.glob("policy*"))
    model = train(training(128)).model

    def fail(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk"):
        save_checkpoint(model, tmp_path, training(128).run)
    assert sorted(path.name for path in tmp_path.glob("policy*")) == before


def test_progress_is_continued_after_the_checkpoint(tmp_path):
    train(training(192), tmp_path)
    first = learning_curve(tmp_path)
    assert [steps for steps, _ in first] == [64, 128, 192]
    (tmp_path / "policy_192_steps.zip").unlink()
    with (tmp_path / "progress.csv").open("a") as stream:
        stream.write("1,2")  # cut short
    train(training(256), tmp_path, resume=True)
    assert (tmp_path / "progress_128.csv").is_file()
    rows = learning_curve(tmp_path)
    assert [steps for steps, _ in rows] == [64, 128, 192, 256] and rows[:2] == first[:2]
    train(training(64), tmp_path / "new")
    assert [steps for steps, _ in learning_curve(tmp_path / "new")] == [64]


def test_a_folder_holds_one_training(tmp_path):
    """A shorter one of the same run would find the checkpoints of the longer one, and resume them as its own."""
    train(training(128), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for steps in (64, 256):
        with pytest.raises(
            OptionError, match=r"holds a training already \(policy.zip\): resume that one, or give another folder"
        ):
            train(training(steps), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / "policy.zip").unlink()
    with pytest.raises(OptionError, match=r"already \(policy_128_steps.zip\)"):
        train(training(64), tmp_path)
    assert training(64, also={"critic_first": 8}).run != training(64).run


@pytest.mark.parametrize("algorithm, own, begun", [("ppo", QUICK, 0), ("ppo", QUICK, 12), ("sac", {"learning_starts": 4}, 0)])
def test_steps_are_rounded_up_to_whole_updates(tmp_path, algorithm, own, begun):
    asked = training(65, algorithm=algorithm, overrides=own)
    envs = asked.make()
    try:
        model = new_model(asked, envs)
        model.num_timesteps = begun
        model.learn(asked.steps - begun, reset_num_timesteps=not begun)
        assert model.num_timesteps == asked.steps_after(begun) >= asked.steps
    finally:
        envs.close()
    assert asked.steps_after(asked.steps) == asked.steps and asked.steps_after(500) == 500


OURS = ("softgym", "agents.", "SB3VecEnv", "SharedPolicy")


def test_nothing_of_ours_is_inside_a_saved_policy(tmp_path):
    """Neither in the policy nor in a checkpoint, in plain letters or pickled."""
    shared = Training(ROLL, 64, num_envs=4, keywords=SHORT, overrides={**OWN, "n_steps": 8, "n_epochs": 1, "batch_size": 32})
    for index, run in enumerate((training(64), shared)):
        train(run, tmp_path / str(index))
        for path in (tmp_path / str(index)).glob("*.zip"):
            with zipfile.ZipFile(path) as archive:
                data = json.loads(archive.read("data"))
                run_of = archive.read(RUN) if RUN in archive.namelist() else b""
            pickled = [
                base64.b64decode(v[":serialized:"]) for v in data.values() if isinstance(v, dict) and ":serialized:" in v
            ]
            text = json.dumps(data).encode() + run_of + b"".join(pickled)
            assert not [name for name in OURS if name.encode() in text], path


def test_a_saved_policy_acts_as_the_trained_one_and_starts_a_new_optimiser(tmp_path):
    done = train(training(128, overrides={**QUICK, "scaled": False}), tmp_path).model
    observation = np.random.default_rng(0).normal(size=(5, 46)).astype(np.float32)
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
for path in sys.argv[1:]:
    before = set(sys.modules)
    model = PPO.load(path)
    size = model.observation_space.shape[0]
    actions = model.predict(np.random.default_rng(0).standard_normal((200, size)).astype(np.float32), deterministic=True)[0]
    ours = [m for m in set(sys.modules) - before if m.startswith(("softgym_envs", "agents"))]
    print(json.dumps({"path": path, "ours": ours, "actions": actions.tolist()}))
"""


def test_a_trained_policy_opens_without_this_package(tmp_path):
    """In another folder, without our modules on the path; it acts as our loader says."""
    train(training(128), tmp_path)
    path = tmp_path / "policy.zip"
    ran = subprocess.run(
        [sys.executable, "-P", "-c", PLAIN, str(path)], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    (found,) = (json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{"))
    policy = load_policy(path)
    observation = np.random.default_rng(0).standard_normal((200, policy.layers[0][0].shape[1])).astype(np.float32)
    np.testing.assert_allclose(policy(observation), found["actions"], atol=2e-6)  # sums of float32
    assert not found["ours"]


@pytest.mark.parametrize("hits, count", [(0, 20), (19, 20), (100, 100), (37, 100)])
def test_a_share_is_wilsons(hits, count):
    """At both ends of the interval the score test is at its 5 % limit: (p - q)^2 = z^2 q (1 - q) / n."""
    found = share(hits, count)
    for end in (found.low, found.high):
        assert (found.value - end) ** 2 == pytest.approx(1.959964**2 * end * (1 - end) / count, abs=1e-12)
    with pytest.raises(OptionError, match="share"):
        share(3, 2)


@pytest.mark.parametrize(("env_id", "least"), [("VineGrow-v0", 0.0), ("TensegrityRoll-v0", -40.0)])
def test_a_policy_of_the_package_runs_in_both_backends(tmp_path, env_id, least):
    """Rolling comes nearer; standing still is -50. TensegrityRoll's observes its last actions, as its .json says."""
    script, out = load_script("scripts/evaluate.py"), tmp_path / "evaluation.json"
    assert run_main(script, script.Args(PRETRAINED, env_id, episodes=2, out=out)) == 0
    report = json.loads(out.read_text())
    for backend in ("native", "mujoco"):
        found = report[backend]
        assert found["episodes"] == 2 and found["failed_simulations"] == 0 and found["return_mean"] > least
    policy = FOLDER / f"{env_id}.npz"
    assert run_main(script, script.Args(policy, "SlidingBlock-v0", episodes=2)) == 2  # other sizes


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
    quick = {"n_steps": 32, "n_epochs": 10, "batch_size": 128, "learning_rate": 3e-3, "gamma": 0.5, "target_kl": None}
    points = train(Training(ID, 16 * 512, num_envs=16, keywords=easy, overrides=quick)).curve
    assert points[-1].mean_return > 0.5 * points[0].mean_return  # both negative: the cost is halved at least


def test_every_id_has_settings():
    for entry in tasks():
        for algorithm in ("ppo", "sac"):
            own = system_of_task(entry.id).learning_of(entry.id, algorithm)
            assert 0 < settings(algorithm, own)["gamma"] < 1 and not set(own) - {*settings(algorithm), "final_rate"}
    with pytest.raises(OptionError, match="dqn"):
        settings("dqn")
    with pytest.raises(OptionError, match="unknown environment 'Roll'"):
        system_of_task("Roll")


@pytest.mark.parametrize("learner", ["sb3", "rsl"])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        *(({name: value}, rf"^{name} is {value!r}, expected a whole number >= 1$") for value in (0, 1.5, 1e4, "a", True)
          for name in ("steps", "num_envs", "checkpoint_every", "episodes")),
        ({"seed": "a"}, "^seed is 'a', expected a whole number"),
        ({"output": "torch"}, "^output is 'torch', which trainings and evaluations set: leave it out"),
        ({"autoreset_mode": "disabled"}, "^autoreset_mode is 'disabled', which trainings and"),
    ],
)  # fmt: skip
def test_a_training_is_refused_before_anything_is_made(tmp_path, learner, wrong, said):
    out = tmp_path / "out"
    with pytest.raises(OptionError, match=said):
        agents.train("SlidingBlock-v0", learner=learner, out=out, **{"steps": 64, "num_envs": 4, **wrong})
    assert not out.exists()


@pytest.mark.parametrize("name", ["num_envs", "autoreset_mode", "output"])
def test_an_evaluation_refuses_what_it_sets(name):
    with pytest.raises(OptionError, match=f"^{name} is 'torch', which trainings and evaluations set: leave it out"):
        agents.evaluate(PRETRAINED, "VineGrow-v0", episodes=2, **{name: "torch"})


@pytest.mark.parametrize("given", [{"dtype": "float32"}, {"starts": 4}])
def test_keywords_of_a_device_need_the_other_learner(tmp_path, given):
    with pytest.raises(OptionError, match=rf"^{next(iter(given))} is .*, which needs learner 'rsl'$"):
        agents.train("VineGrow-v0", steps=64, num_envs=4, out=tmp_path, **given)


def test_an_id_trains_as_long_as_its_settings_say(monkeypatch, tmp_path):
    def stop(training, *_, **__):
        raise OptionError(str(training.steps))

    monkeypatch.setattr("agents.learning.rl.train", stop)
    for name in ("TensegrityRoll-v0", "SlidingBlock-v0"):
        steps = settings("ppo", system_of_task(name).learning_of(name, "ppo"))["steps"]
        with pytest.raises(OptionError, match=str(steps)):
            agents.train(name, out=tmp_path)
    with pytest.raises(OptionError, match="700"):
        agents.train("TensegrityRoll-v0", steps=700, out=tmp_path)


class Case:
    """The little that a policy worker asks for without data."""

    def default(self):
        return None

    def drawn(self, rng, factor):
        self.asked = factor, rng.uniform()


def test_a_worker_keeps_its_budget_and_counts_it(tmp_path):
    study = Study(
        "rl", "rl", ("nominal", "ground_truth_budget", "ground_truth"), (1700,), train_steps=64, repeats=Repeats(1, 1, 2)
    )
    worker = PolicyWorker(Case(), study, tmp_path, ID, common=SHORT, ground_truth={})
    record = worker(StudyRun("ground_truth_budget", 1700, 0, 0))
    assert record["ground_truth_steps"]["train"] == 1700 and record["model_steps"] == 0  # 17 control steps of 100 physics steps
    assert len(record["costs"]) == 2 and record["cost"] > 0
    record = worker(StudyRun("nominal", 0, 0, 0))
    assert record["ground_truth_steps"]["train"] == 0 and record["model_steps"] == 6400


def test_all_conditions_learn_equally_long_but_the_doubled_oracle(tmp_path):
    study = Study(
        "rl",
        "rl",
        ("nominal", "near", "far", "ground_truth", "ground_truth_doubled"),
        (1,),
        train_steps=64,
        repeats=Repeats(seeds=2, starts=1),
    )
    case = Case()
    worker = PolicyWorker(case, study, tmp_path, ID, common=SHORT, ground_truth={})
    steps = [worker.environment(StudyRun(name, 0, 0, 0))[1] for name in ("ground_truth", "ground_truth_doubled", "near", "far")]
    assert steps == [64, 128, 64, 64]
    draws = {}
    for name in ("near", "far"):
        for seed in (0, 0, 1):
            worker.environment(StudyRun(name, 0, 0, seed))
            draws.setdefault((name, seed), set()).add(case.asked)
    assert {(name, asked[0]) for (name, _), all_asked in draws.items() for asked in all_asked} == {("near", 1.2), ("far", 2.0)}
    assert all(len(found) == 1 for found in draws.values()) and draws["near", 0] != draws["near", 1]


def test_the_script_trains_resumes_and_draws(tmp_path, capsys, monkeypatch):
    script = load_script("scripts/train.py")
    arguments = {"id": "TensegrityCrawl-v0", "num_envs": 4, "episodes": 1, "checkpoint_every": 128, "out": tmp_path}
    assert run_main(script, script.Args(steps=256, **arguments)) == 0
    assert "trains up to 256" not in capsys.readouterr().out
    assert run_main(script, script.Args(steps=512, resume=True, **arguments)) == 0
    assert newest_checkpoint(tmp_path).name == "policy_512_steps.zip"
    evaluation = json.loads((tmp_path / "evaluation.json").read_text())
    assert set(evaluation) == {"native", "mujoco"} and (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"
    assert run_main(script, script.Args(steps=512, resume=True, seed=1, **arguments)) == 2
    assert "belongs to another run: its seed is 0, expected is 1" in capsys.readouterr().err
    assert run_main(script, script.Args(steps=256, resume=True, **{**arguments, "out": tmp_path / "none"})) == 2
    assert "no checkpoint" in capsys.readouterr().err
    nowhere = lambda *_: write_atomically(Path("/dev/null/curve.png"), b"")  # noqa: E731
    monkeypatch.setattr("agents.learning.curve.draw_curve", nowhere)  # no system at the end
    assert run_main(script, script.Args(steps=512, resume=True, **arguments)) == 2
    found = capsys.readouterr()
    assert "error: cannot write" in found.err
    assert "nothing is left to train: policy_512_steps.zip has 512 steps, steps is 512" in found.out
    assert run_main(script, script.Args(steps=256, **arguments)) == 2
    assert "holds a training already (policy.zip): resume that one" in capsys.readouterr().err
    monkeypatch.setattr("agents.learning.rl.train", lambda *_, **__: (_ for _ in ()).throw(OptionError("enough")))
    assert run_main(script, script.Args(steps=600, resume=True, **arguments)) == 2
    assert "trains up to 768 steps, steps is 600: it learns from 256 at a time" in capsys.readouterr().out


def test_a_policy_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileFormatError, match=r"gone.zip: no such file"):
        load_policy(tmp_path / "gone.zip")


def test_a_training_that_is_interrupted_leaves_a_checkpoint(tmp_path, capsys, monkeypatch):
    script = load_script("scripts/train.py")
    arguments = {"id": "TensegrityCrawl-v0", "num_envs": 4, "episodes": 1, "out": tmp_path}
    learn, steps = PPO.learn, 0

    def interrupted(model, *args, **keywords):
        step = model.env.step_wait

        def step_wait():
            nonlocal steps
            steps += 1
            if steps > 3:
                raise KeyboardInterrupt
            return step()

        monkeypatch.setattr(model.env, "step_wait", step_wait)
        return learn(model, *args, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(PPO, "learn", interrupted)
        assert run_main(script, script.Args(steps=256, **arguments)) == 130
    assert "the same command with --resume goes on from policy_12_steps.zip" in capsys.readouterr().err
    assert run_main(script, script.Args(steps=256, resume=True, **arguments)) == 0
    with monkeypatch.context() as patch:
        patch.setattr("agents.learning.rl.train", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run_main(script, script.Args(steps=256, **{**arguments, "out": tmp_path / "new"})) == 130
    assert "nothing was learned yet: the same command begins anew" in capsys.readouterr().err


def test_commands_take_keywords_of_the_task(tmp_path, capsys, monkeypatch):
    """By name, as TOML says them; those of the command stay options."""
    script, trained, asked = load_script("scripts/evaluate.py"), load_script("scripts/train.py"), {}
    monkeypatch.setattr(agents, "train", lambda id, **given: asked.update(given))
    assert run_main(trained, trained.Args(id="VineNavigate-v0", keyword=("level=3", "clutter=scattered"))) == 0
    assert {"level": 3, "clutter": "scattered"}.items() <= asked.items() and "disturbance" not in asked
    policy, out = Path("agents/policies/VineNavigate-v0.npz"), tmp_path / "found.json"
    arguments = {"policy": policy, "id": "VineNavigate-v0", "episodes": 1}
    assert run_main(script, script.Args(keyword=("level=3",), out=out, **arguments)) == 0
    for word, message in (
        ("level", "keyword is 'level', expected key=value, as level=3"),
        ("level=9", "level is 9"),
        ("colour=1", "unexpected keyword argument 'colour'"),
        ("sensor_noise=1", "keyword sensor_noise is the command's own"),
        ("backend=x", "keyword backend is the command's own"),
    ):
        assert run_main(script, script.Args(keyword=(word,), **arguments)) == 2
        assert message in capsys.readouterr().err


def test_a_policy_is_evaluated_in_any_ground_truth(tmp_path, capsys):
    """By name or path; what is not there is refused before an episode is run."""
    script, out = load_script("scripts/evaluate.py"), tmp_path / "found.json"
    arguments = {"policy": PRETRAINED, "id": "SlidingBlock-v0", "episodes": 1, "out": out}
    for backend, expected in (
        ("", ["mujoco", "native"]),
        ("native", ["native"]),
        ("softgym_envs.systems.rigid.mujoco:MujocoBlock", ["softgym_envs.systems.rigid.mujoco:MujocoBlock", "native"]),
    ):
        assert run_main(script, script.Args(backend=backend, **arguments)) == 0
        assert [name for name in json.loads(out.read_text()) if name not in ("command", "commit")] == expected
        capsys.readouterr()
    assert run_main(script, script.Args(backend="nofile.toml", **arguments)) == 2
    said = capsys.readouterr()
    assert "nofile.toml" in said.err and "success" not in said.out


def test_a_training_is_evaluated_in_its_world_without_its_noise(tmp_path, monkeypatch):
    """Our engine, the system's first ground truth, and where it learned: there alone with the parameters of the training."""
    asked = []

    def evaluated(policy, env_id, *, episodes, seed, keywords):
        asked.append(keywords)
        return Evaluation(np.zeros(1), np.zeros(1), np.zeros(1))

    monkeypatch.setattr("agents.learning.evaluation.evaluate", evaluated)
    given = {"steps": 16, "num_envs": 2, "backend": "rod", "sensor_noise": 0.01, "action_memory": 1, "out": tmp_path}
    found = agents.train("LoopReach-v0", {"theta_stiffness": 3.0}, **given, progress=lambda text: None)
    assert list(found.evaluations) == ["native", "mujoco", "rod"] and found.folder == tmp_path
    shared = {"action_memory": 1}
    assert asked == [{**shared, "backend": "native"}, {**shared, "backend": "mujoco"}, asked[2]]
    assert asked[2] == {**shared, "backend": "rod", "params": {"theta_stiffness": 3.0}}
