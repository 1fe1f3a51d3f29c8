"""One network for all motors: turned and relabelled robots, either end of a cable, saving and loading."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticPolicy

from agents.learning.checkpoints import load_checkpoint, newest_checkpoint
from agents.learning.policy import load_policy, policy_of
from agents.learning.rl import Training, new_model, train
from agents.learning.shared_policy import SharedNetwork
from softgym_envs.core.errors import OptionError, ShapeError
from softgym_envs.systems import system_of_task
from softgym_envs.systems.tensegrity import superball

ID = "softgym_envs:TensegrityRoll-v0"
OWN = system_of_task(ID).learning_of("TensegrityRoll-v0", "ppo")
QUICK = {"n_steps": 8, "n_epochs": 1, "batch_size": 32}


def roll(**changes):
    return Training(ID, 64, num_envs=4, keywords={"max_episode_steps": 8}, overrides={**OWN, **QUICK, **changes})


def network(task):
    torch.manual_seed(0)
    return SharedNetwork(len(task.entries), task.actuator_views, [16, 16], [8]).double()


def relabelling(model, turn):
    """Node -> the node whose place it takes when the structure is turned."""
    distance = np.linalg.norm((model.nodes @ turn.T)[:, None] - model.nodes[None], axis=-1)
    assert distance.min(axis=1).max() < 1e-9
    return distance.argmin(axis=1)


def test_a_symmetric_robot_with_its_nodes_relabelled_acts_alike():
    """SUPERball turned by a third about the vertical is SUPERball with other labels: its motors get each other's actions."""
    env = gym.make(ID)
    task, model = env.unwrapped.task, superball()
    actor = network(task)
    c, s = np.cos(2 * np.pi / 3), np.sin(2 * np.pi / 3)
    place = relabelling(model, np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]))
    assert sorted(place) == list(range(12)) and (place != np.arange(12)).all()
    cables = [frozenset(cable) for cable in model.cables]
    motors = np.array([cables.index(frozenset(int(place[node]) for node in cable)) for cable in model.cables])
    observation = np.random.default_rng(0).standard_normal(len(task.entries))
    relabelled = observation.copy()
    relabelled[:72].reshape(12, 6)[place] = observation[:72].reshape(12, 6)
    relabelled[72:96][motors] = observation[72:96]
    first, second = (actor.forward_actor(torch.tensor(o[None])).detach().numpy()[0] for o in (observation, relabelled))
    np.testing.assert_allclose(second[motors], first, atol=1e-14)
    assert np.ptp(first) > 1e-3  # the motors do not all do the same


def test_every_motor_looks_at_its_own_cable_from_either_end():
    env = gym.make(ID)
    task = env.unwrapped.task
    names = np.array([entry.name for entry in task.entries])[task.actuator_views]
    assert names.shape == (2, 24, 29)
    for way, order in ((0, (0, 1)), (1, (1, 0))):
        for motor, cable in enumerate(superball().cables):
            a, b = (cable[i] for i in order)
            seen = names[way, motor]
            assert list(seen[[0, 5, 6, 11]]) == [f"node{a}.x", f"node{a}.vz", f"node{b}.x", f"node{b}.vz"]
            assert seen[24] == f"motor{motor}" and list(seen[25:27]) == ["com.height", "velocity_error.along"]
            rods = {int(name[4:].split(".")[0]) // 2 for name in seen[:24]}
            assert rods == {a // 2, b // 2}


def test_a_trained_policy_is_saved_and_loaded(tmp_path):
    done = train(roll(), tmp_path).model
    loaded = new_model(roll(), roll().make())
    load_checkpoint(newest_checkpoint(tmp_path), loaded)
    observation = np.random.default_rng(0).normal(size=(20, 100)).astype(np.float32)
    expected = policy_of(done)(observation)
    assert np.ptp(expected, axis=1).min() > 1e-3  # motors do not all do the same
    np.testing.assert_array_equal(policy_of(loaded)(observation), expected)
    np.testing.assert_allclose(load_policy(tmp_path / "policy.zip")(observation), expected, atol=1e-6)  # sums in float32
    plain = PPO.load(tmp_path / "policy.zip")
    np.testing.assert_allclose(plain.predict(observation, deterministic=True)[0], expected, atol=1e-6)
    values = [model.policy.predict_values(torch.as_tensor(observation)).detach() for model in (plain, done)]
    np.testing.assert_allclose(*values, atol=1e-5)
    assert isinstance(plain.policy, ActorCriticPolicy) and type(plain.policy) is ActorCriticPolicy


def test_a_task_must_say_what_its_motors_look_at():
    with pytest.raises(OptionError, match="look at"):
        train(Training(ID, 64, num_envs=4, keywords={"obs_mode": "state"}, overrides={**OWN, **QUICK}))
    with pytest.raises(ShapeError, match="indices below 3"):
        SharedNetwork(3, np.array([[[0, 3]]]), [4], [4])
