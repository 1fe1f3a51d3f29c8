"""Every rule of an environment over every id and world of the systems on the list; their long walks are in
test_envs_steps.py."""

import json
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from helpers import EVERY_ID, EVERY_WORLD, equal, noisy, system_of_id

import softgym_envs  # noqa: F401  (registers the ids)
from softgym_envs.core.simulator import Simulator
from softgym_envs.core.task import Task
from softgym_envs.envs.conformance import actions_of, replays, seeds
from softgym_envs.envs.episodes import FAILURE_PENALTY
from softgym_envs.envs.registry import register

ALLOWED_WARNINGS = ("already has a registered", "Overriding environment")


@EVERY_WORLD
def test_check_env(env_id, backend):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(gym.make(env_id, backend=backend, render_mode="rgb_array").unwrapped)
    messages = [str(w.message) for w in caught if not any(allowed in str(w.message) for allowed in ALLOWED_WARNINGS)]
    assert messages == []


@EVERY_ID
def test_spec_is_json_and_time_is_limited(env_id):
    spec = gym.spec(env_id)
    assert json.loads(spec.to_json())["id"] == env_id
    again = gym.make(type(spec).from_json(spec.to_json()), max_episode_steps=2)
    again.reset(seed=0)
    ends = [again.step(again.action_space.sample())[2:4] for _ in range(2)]
    assert ends == [(False, False), (False, True)]
    assert spec.max_episode_steps == system_of_id(env_id).task(env_id).max_episode_steps


def test_registering_twice_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register()


def test_no_import_line_is_needed_and_importing_is_light():
    code = (
        "import sys, softgym_envs; heavy = {'warp', 'mujoco', 'torch', 'pygame', 'h5py', 'matplotlib'} & set(sys.modules); "
        "assert not heavy, heavy; import gymnasium as gym; print(len(gym.make('softgym_envs:TensegrityRoll-v0').reset()[0]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "100"


@EVERY_ID
def test_both_backends_have_the_same_spaces_and_protocols(env_id):
    worlds = [gym.make(env_id, backend=backend).unwrapped for backend in ("native", *system_of_id(env_id).ground_truths)]
    for env in worlds:
        assert env.observation_space == worlds[0].observation_space
        assert env.action_space == worlds[0].action_space
        assert isinstance(env.task, Task)
        assert isinstance(env.simulator, Simulator)
        assert [e.name for e in env.task.entries] == [e.name for e in worlds[0].task.entries]


# --- Our rules --------------------------------------------------------------------------------------------------------


@EVERY_WORLD
@pytest.mark.parametrize("rule", [seeds, replays], ids=lambda rule: rule.__name__)
def test_rule(rule, env_id, backend):
    rule(env_id, backend, **noisy(env_id, backend))


@EVERY_ID
def test_returned_data_is_fresh(env_id):
    env = gym.make(env_id)
    kept, _ = env.reset(seed=0)
    copy = kept.copy()
    action = actions_of(env.action_space, 1)[0]
    asked = action.copy()
    one = env.step(action)
    first = (one[0].copy(), dict(one[4]))
    one[0][:] = np.nan
    one[4].clear()
    env.step(action)
    np.testing.assert_array_equal(kept, copy)
    np.testing.assert_array_equal(action, asked)
    again = gym.make(env_id)
    again.reset(seed=0)
    observation, *_, info = again.step(action)
    np.testing.assert_array_equal(observation, first[0])
    equal(info, first[1])


@EVERY_ID
def test_numbers_that_are_not_finite_are_contained(env_id, monkeypatch):
    """Even from a simulator that breaks its promise and returns NaN with status 0."""
    env = gym.make(env_id, disturbance=0.0).unwrapped
    before, _ = env.reset(seed=0)
    state, context = env.state, env.context

    class Broken:
        dt = env.simulator.dt

        def step(self, state, control, parameters, *, substeps):
            return np.full_like(state, np.nan), np.zeros(len(state), dtype=np.int32)

    monkeypatch.setattr(env.episodes, "simulator", Broken())
    with np.errstate(invalid="ignore"):
        observation, reward, terminated, _, info = env.step(actions_of(env.action_space, 1)[0])
    np.testing.assert_array_equal(observation, before)
    np.testing.assert_array_equal(env.state, state)
    np.testing.assert_array_equal(env.context, context)
    assert terminated and info["sim_failed"] and reward == -FAILURE_PENALTY
    numbers = [*info.pop("parameters", {}).values(), *info.values()]
    assert all(np.isfinite(value).all() for value in numbers)
