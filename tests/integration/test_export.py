"""Contracts of policies, and policies as ONNX files on a robot without this package. Datasets of Minari: episodes that replay,
kinds in order, and the same motions as recordings."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from helpers import load_script, run_main

import agents
import softgym_envs  # noqa: F401  (registers the ids)
import sysid
from agents.learning.contract import PolicyContract
from agents.policies import FOLDER, Network, load_network, save_network
from softgym_envs.core.errors import FileFormatError, OptionError, SimulationWarning
from softgym_envs.core.task import Entry

ROOT = Path(__file__).resolve().parents[2]
ROBOT = """
import json, sys, time
class Closed:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {"numpy", "onnxruntime", "run_policy", *sys.stdlib_module_names}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Closed())
sys.path.insert(0, sys.argv[1])
from run_policy import Policy
def observe():
    return json.loads(sys.stdin.readline())
def command(controls):
    print(json.dumps(controls), flush=True)
policy = Policy(sys.argv[1] + "/policy.onnx")
began = time.perf_counter()
late = policy.run(observe, command, int(sys.argv[2]))
print(json.dumps([late, time.perf_counter() - began]))
try:
    policy.act({name: 0.0 for name in policy.names[1:]})
except ValueError as error:
    print(error)
"""
"""A robot's program: only onnxruntime, numpy and the standard library can be imported; observations and commands are lines."""


def network(env_id="SlidingBlock-v0", activation="Tanh", squashed=False, **keywords):
    env = gym.make(f"softgym_envs:{env_id}", **keywords)
    rng, sizes = np.random.default_rng(2), (env.observation_space.shape[0], 16, 8, env.action_space.shape[0])
    layers = tuple(
        (rng.standard_normal((b, a)).astype(np.float32), rng.standard_normal(b).astype(np.float32))
        for a, b in itertools.pairwise(sizes)
    )
    return Network(layers, activation, squashed, keywords, "mine", PolicyContract.of(env, keywords))


@pytest.mark.parametrize("name", ["ArmReach-v0", "VineGrow-v0"])
def test_a_robot_without_this_package_is_driven_like_the_environment(tmp_path, name):
    """A closed loop: the environment sends names and numbers without its memory of actions, and gets commands in SI units."""
    export = load_script("scripts/export.py")
    assert run_main(export, export.Args(Path("pretrained"), name, out=tmp_path / "policy.onnx")) == 0
    policy = agents.pretrained(name)
    env, steps = gym.make(f"softgym_envs:{name}", **policy.keywords), 12
    names, controls = [entry.name for entry in env.unwrapped.task.entries], env.unwrapped.simulator.control_names
    run = [sys.executable, "-c", ROBOT, str(tmp_path), str(steps)]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as robot:
        observation, _ = env.reset(seed=3)
        for _ in range(steps):
            robot.stdin.write(json.dumps(dict(zip(names, observation.tolist(), strict=False))) + "\n")
            robot.stdin.flush()
            found, action = json.loads(robot.stdout.readline()), policy(observation)
            expected = env.unwrapped.task.scale_action(action[None].astype(np.float64))[0]
            size = np.max(np.abs(np.array([control.values for control in policy.contract.controls])), axis=1)
            np.testing.assert_allclose([found[control] for control in controls] / size, expected / size, atol=2e-6)
            observation = env.step(action)[0]
        late, seconds = json.loads(robot.stdout.readline())
        assert seconds >= (steps - 1) * policy.contract.period and late <= steps
        assert robot.stdout.readline().startswith(
            f"{names[0]} is missing or unknown; the policy observes {names[0]}, {names[1]}"
        )


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.npz")))
def test_the_contract_of_every_shipped_policy_is_that_of_its_environment(name):
    """Written once, when it shipped; the environment of today has the same."""
    policy = agents.pretrained(name)
    env = gym.make(f"softgym_envs:{name.partition('+')[0]}", **policy.keywords)
    assert policy.contract.action_latency[1] == pytest.approx(2 * policy.contract.period)
    latency = {"action_latency": (0.0, 0.0)}
    assert replace(policy.contract, **latency) == replace(PolicyContract.of(env, policy.keywords), **latency)
    assert policy.contract.controls


@pytest.mark.parametrize(
    "name", sorted({path.stem for path in FOLDER.glob("*.npz")} - {"TensegrityTerrain-v0", "TensegrityWaypoint-v0"})
)
def test_every_shipped_policy_is_exported(tmp_path, name):
    """Those left out have the network of TensegrityRoll-v0, with more entries."""
    ort = pytest.importorskip("onnxruntime")
    policy = agents.pretrained(name)
    session = ort.InferenceSession(agents.export(policy, out=tmp_path / "policy.onnx"))
    assert json.loads(session.get_modelmeta().custom_metadata_map["contract"])["id"] == name.partition("+")[0]
    seen = np.random.default_rng(5).uniform(-0.5, 0.5, (4, policy.contract.size)).astype(np.float32)
    env = gym.make(f"softgym_envs:{name.partition('+')[0]}", **policy.keywords)
    seen = np.clip(seen, env.observation_space.low, env.observation_space.high)
    np.testing.assert_allclose(session.run(None, {"observation": seen})[0], policy(seen), atol=1e-5)


@pytest.mark.parametrize("activation, squashed", [("ReLU", True), ("ELU", False)])
def test_what_the_graph_takes_is_clipped_to_the_contract(tmp_path, activation, squashed):
    ort = pytest.importorskip("onnxruntime")
    policy = network(activation=activation, squashed=squashed, action_memory=1)
    session = ort.InferenceSession(agents.export(policy, out=tmp_path / "deep" / "p.onnx"))
    far = np.full((1, policy.contract.size), 1e6, dtype=np.float32)
    high = np.array([[*(entry.high for entry in policy.contract.observations), 1.0, 1.0]], dtype=np.float32)
    np.testing.assert_allclose(session.run(None, {"observation": far})[0], policy(high), atol=1e-5)


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_a_trained_policy_carries_its_contract(tmp_path, algorithm):
    pytest.importorskip("stable_baselines3")
    from agents.learning.policy import load_policy
    from agents.learning.rl import Training, train

    settings = {"policy_kwargs": {"net_arch": [8]}} | ({"n_steps": 4} if algorithm == "ppo" else {"buffer_size": 50})
    keywords = {"action_memory": 2, "control_period": 0.05}
    train(Training("softgym_envs:SlidingBlock-v0", 16, algorithm, keywords, 4, overrides=settings), tmp_path)
    contract = load_policy(tmp_path / "policy.zip").contract
    assert (contract.period, contract.action_memory, contract.keywords) == (0.05, 2, keywords)
    assert agents.export(tmp_path / "policy.zip", out=tmp_path / "policy.onnx").is_file()
    with pytest.raises(OptionError, match=r"control_period 0.05 s as setting 1, the environment SlidingBlock-v0 has control_p"):
        agents.evaluate(tmp_path / "policy.zip", "SlidingBlock-v0", episodes=1)


def test_a_policy_is_refused_where_its_contract_does_not_fit():
    policy = network()
    entries = policy.contract.observations
    turned = replace(policy.contract, observations=(entries[1], entries[0], *entries[2:]))
    said = rf"trained with {entries[1].name} \[m\] as observation 0, the environment SlidingBlock-v0 has {entries[0].name}"
    with pytest.raises(OptionError, match=said):
        agents.evaluate(replace(policy, contract=turned), "SlidingBlock-v0", episodes=1)
    longer = replace(policy.contract, observations=(*entries, Entry("more", "m", -1.0, 1.0)))
    with pytest.raises(OptionError, match=r"trained with more \[m\] as observation 7, the environment .* has nothing"):
        agents.export(replace(policy, contract=longer), "SlidingBlock-v0", out="never.onnx")
    with pytest.raises(OptionError, match="action_memory 0 as setting 0, the environment SlidingBlock-v0 has action_memory 3"):
        agents.evaluate(policy, "SlidingBlock-v0", episodes=1, action_memory=3)
    stronger = replace(policy.contract.controls[0], values=(-9.0, 0.0, 9.0))
    with pytest.warns(
        SimulationWarning, match=r"controls force_x -9, 0, 9 \[N\] at actions -1, 0, 1, here they are force_x -10"
    ):
        replace(policy, contract=replace(policy.contract, controls=(stronger,))).check(gym.make("softgym_envs:SlidingBlock-v0"))


def test_what_cannot_be_exported_is_refused_in_a_sentence(tmp_path):
    policy = network()
    for changed, out, said in (
        (replace(policy, contract=None), "p.onnx", "mine has no contract beside it: name the environment"),
        (replace(policy, contract=replace(policy.contract, controls=())), "p.onnx", "scales actions in another way"),
        (policy, "p.pt", "expected a name that ends in .onnx"),
    ):
        with pytest.raises(OptionError, match=said):
            agents.export(changed, out=tmp_path / out)
    assert agents.export(replace(policy, contract=None), "SlidingBlock-v0", out=tmp_path / "p.onnx").is_file()


def test_a_contract_that_is_none_is_refused(tmp_path):
    path = save_network(network(), tmp_path / "p.npz", {})
    with np.load(path) as archive:
        arrays = dict(archive)
    good = json.loads(str(arrays["settings"]))
    short = good["contract"]["observations"][1:]
    assert load_network(path).contract == network().contract
    for said, changed in (
        ("expected a table with id, period", []),
        ("period is 'often'", {**good["contract"], "period": "often"}),
        ("observations is None, expected a list", {**good["contract"], "observations": None}),
        ("controls 0: unit is missing", {**good["contract"], "controls": [{"name": "a", "action": "b", "values": [0, 0, 1]}]}),
        ("has 6 observed numbers and 2 actions, the network 7 and 2", {**good["contract"], "observations": short}),
    ):  # fmt: skip
        np.savez(path, **{**arrays, "settings": json.dumps({**good, "contract": changed})})
        with pytest.raises(FileFormatError, match=said):
            load_network(path)


def test_the_document_prints_the_program(tmp_path):
    program = (ROOT / "agents/learning/templates/run_policy.py.txt").read_text()
    assert program in re.findall(r"```py\n(.*?)```", (ROOT / "docs/how-to/deploy.md").read_text(), re.S)
    assert len(program.splitlines()) <= 50


minari = pytest.importorskip("minari")
ID = "ArmReach-v0"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def recordings_of(found):
    return sysid.load(Path(found.spec.data_path).parent / "recordings.h5")


@pytest.mark.parametrize("env_id", [ID, "SlidingBlock-v0"])
def test_a_shipped_dataset_repeats_in_its_environment_and_in_its_recordings(folder, env_id):
    """Its actions, from its seeds, give its observations and rewards; the recordings are the states of the same steps."""
    found = agents.dataset(env_id)
    env = found.recover_environment()
    recordings = recordings_of(found)
    assert found.total_episodes == len(recordings) == 10
    for episode, recording in zip(found.iterate_episodes(), recordings, strict=True):
        observation, _ = env.reset(seed=int(recording.metadata["seed"]))
        observations, rewards, states = [observation], [], [env.unwrapped.state.copy()]
        for action in episode.actions:
            observation, reward, *_ = env.step(action)
            observations.append(observation)
            rewards.append(reward)
            states.append(env.unwrapped.state.copy())
        np.testing.assert_allclose(episode.observations, observations, atol=1e-5)
        np.testing.assert_allclose(episode.rewards, rewards, atol=1e-5)
        np.testing.assert_allclose(recording.values, states, atol=1e-6)


def test_experts_succeed_more_often_than_medium_ones_and_these_than_chance(folder, capsys):
    success = {}
    for kind in ("expert", "medium", "random"):
        assert run_main(load_script("scripts/dataset.py"), load_script("scripts/dataset.py").Args(ID, kind, episodes=12)) in (
            0,
            None,
        )
        episodes = list(minari.load_dataset(f"softgym/armreach/{kind}-v0").iterate_episodes())
        success[kind] = sum(episode.infos["is_success"][-1] for episode in episodes)
    assert success["expert"] > success["medium"] > success["random"]
    assert "recordings.h5" in capsys.readouterr().out
    with pytest.raises(OptionError, match="there is already a dataset"):
        agents.dataset(ID, episodes=1)


def test_what_is_not_there_is_said(folder):
    with pytest.raises(OptionError, match="give episodes, and it is made"):
        agents.dataset("VineGrow-v0")
    with pytest.raises(OptionError, match="kind is 'good', allowed are expert, medium, random"):
        agents.dataset(ID, "good")
    with pytest.raises(OptionError, match="episodes is 0"):
        agents.dataset(ID, episodes=0)
    with pytest.raises((OptionError, gym.error.Error)):
        agents.dataset("Nothing-v0", episodes=1)
