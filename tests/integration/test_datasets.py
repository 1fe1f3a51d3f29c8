"""Datasets of Minari: episodes that replay, kinds in order, and the same motions as recordings."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from helpers import load_script, run_main

import agents
import sysid
from softgym_envs.core.errors import OptionError

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
