"""What Gymnasium and its friends ask of an environment: copies, specs, infos, videos, data sets, learners, tensors."""

import copy
import functools
import json
import os
import pickle
import re
import subprocess
import sys
from dataclasses import fields

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from helpers import EVERY_ID, EVERY_WORLD, IDS, ROOT, actions_of, equal, noisy

import softgym_envs  # noqa: F401  (registers the ids)
from softgym_envs.core.errors import KeywordError, OptionError, ParameterError, ShapeError
from softgym_envs.systems import systems

ONE_PER_SYSTEM = [system.tasks[0].id for system in systems().values() if system.tasks]


# --- Copies -----------------------------------------------------------------------------------------------------------


@EVERY_WORLD
def test_a_copy_goes_on_as_the_original_does(env_id, backend):
    """In the middle of an episode, over its end, with everything random."""
    env = gym.make(env_id, backend=backend, **noisy(env_id, backend))
    copies = (copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env)))
    env.reset(seed=3)
    actions = actions_of(env, 5)
    for action in actions[:2]:
        env.step(action)
    mujoco_model = copies[IDS.index(env_id) % 2](env)
    for k, action in enumerate(actions[2:]):
        if k == 2:
            np.testing.assert_array_equal(mujoco_model.reset()[0], env.reset()[0])
        *ours, info = env.step(action)
        *theirs, other = mujoco_model.step(action)
        equal(dict(enumerate(ours)), dict(enumerate(theirs)))
        equal(info, other)
    assert mujoco_model.unwrapped.simulator is not env.unwrapped.simulator and mujoco_model.spec.id == env_id


@pytest.mark.parametrize("env_id", ONE_PER_SYSTEM)
def test_a_copy_of_a_batch_goes_on_and_one_before_the_first_reset_begins(env_id):
    envs = gym.make_vec(env_id, num_envs=3, max_episode_steps=2, **noisy(env_id))
    unborn = pickle.loads(pickle.dumps(envs))
    with pytest.raises(gym.error.ResetNeeded):
        unborn.step(actions_of(unborn, 1)[0])
    envs.reset(seed=1)
    actions = actions_of(envs, 4)
    envs.step(actions[0])
    mujoco_model = pickle.loads(pickle.dumps(envs))
    for action in actions[1:]:
        equal(envs.step(action)[4], mujoco_model.step(action)[4])
    np.testing.assert_array_equal(unborn.reset(seed=4)[0], envs.reset(seed=4)[0])


def test_model_objects_are_copied_with_the_environment():
    for system in systems().values():
        for task in system.tasks[:1]:
            env = gym.make(task.id, model=system.model(task.model))
            env.reset(seed=0)
            pickle.loads(pickle.dumps(env)).step(actions_of(env, 1)[0])


# --- Specs ------------------------------------------------------------------------------------------------------------


def test_a_spec_of_an_object_of_constants_keeps_what_the_task_fixes():
    """The mapping that JSON holds would win over it."""
    parameters = gym.make("TensegrityCrawl-v0").unwrapped.simulator.default_parameters.replace(friction=0.4, gravity=9.0)
    for make in (gym.make, functools.partial(gym.make_vec, num_envs=2)):
        env = make("TensegrityCrawl-v0", params=parameters)
        again = make(EnvSpec.from_json(env.spec.to_json()))
        assert {(e.unwrapped.episodes.nominal.gravity, e.unwrapped.episodes.nominal.friction) for e in (env, again)} == {
            (0.981, 0.4)
        }


@pytest.mark.parametrize("kind", ["object", "mapping", "string", "path"])
@pytest.mark.parametrize("env_id", ONE_PER_SYSTEM)
def test_a_spec_returns_from_json_with_its_constants(env_id, kind, tmp_path):
    parameters = gym.make(env_id).unwrapped.simulator.default_parameters
    name = next(
        f.name for f in fields(parameters) if 0 < getattr(parameters, f.name) < parameters.specs()[f.name].bounds[1] / 1.1
    )
    parameters = parameters.replace(**{name: 1.1 * getattr(parameters, name)})
    path = parameters.save(tmp_path / "fit.toml")
    given = {"object": parameters, "mapping": {name: getattr(parameters, name)}, "string": str(path), "path": path}[kind]
    env = gym.make(env_id, params=given)
    again = gym.make(EnvSpec.from_json(json.loads(json.dumps(env.spec.to_json()))))
    assert again.unwrapped.episodes.nominal.to_vector().tolist() == env.unwrapped.episodes.nominal.to_vector().tolist()
    np.testing.assert_array_equal(env.reset(seed=0)[0], again.reset(seed=0)[0])


def test_constants_in_a_mapping_are_checked():
    for params, message in (({"colour": 1.0}, "unknown parameter 'colour'"), ({"rod_mass": -1.0}, "rod_mass")):
        with pytest.raises(ParameterError, match=message):
            gym.make("TensegrityRoll-v0", params=params)


# --- Infos ------------------------------------------------------------------------------------------------------------


@EVERY_ID
def test_reset_and_step_give_the_same_keys(env_id):
    env = gym.make(env_id)
    begun = env.reset(seed=0)[1]
    done = env.step(actions_of(env, 1)[0])[4]
    assert list(begun) == list(done)
    assert {name: type(value) for name, value in begun.items()} == {name: type(value) for name, value in done.items()}
    assert not any(begun[name] for name in begun if name.startswith("reward_") or name in ("is_success", "sim_failed"))
    envs = gym.make_vec(env_id, num_envs=2)
    assert list(envs.reset(seed=0)[1]) == list(envs.step(actions_of(envs, 1)[0])[4])


def test_minari_collects_episodes_with_their_infos(tmp_path, monkeypatch):
    minari, _ = pytest.importorskip("minari"), pytest.importorskip("jax")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    for env_id in ONE_PER_SYSTEM:
        env = minari.DataCollector(gym.make(env_id), record_infos=True)
        for seed in range(2):
            env.reset(seed=seed)
            for action in actions_of(env, 3):
                env.step(action)
        found = env.create_dataset(f"softgym/{env_id.lower()}")
        assert found.total_steps == 6
        first = next(iter(found.iterate_episodes()))
        assert first.infos["is_success"].shape == (4,) and first.observations.shape == (4, *env.observation_space.shape)
        env.close()


@pytest.mark.parametrize("env_id", ONE_PER_SYSTEM)
def test_infos_of_an_episode_can_be_stacked(env_id):
    """What Minari's DataCollector demands, without it: one structure, numbers and arrays of one shape."""
    env = gym.make(env_id)
    infos = [env.reset(seed=0)[1], *(env.step(action)[4] for action in actions_of(env, 3))]
    stacked = {name: np.stack([info[name] for info in infos]) for name in infos[0]}
    assert all(array.dtype.kind in "fbi" and len(array) == 4 for array in stacked.values())


# --- Batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", AutoresetMode)
def test_modes_of_gymnasium_are_taken_by_member_and_by_name(mode):
    env_id = IDS[0]
    for given in (mode, mode.name.lower()):
        assert gym.make_vec(env_id, num_envs=2, autoreset_mode=given).metadata["autoreset_mode"] is mode
    sync = gym.make_vec(env_id, num_envs=2, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode})
    envs = gym.make_vec(env_id, num_envs=2, max_episode_steps=2, autoreset_mode=mode)
    assert sync.metadata["autoreset_mode"] is envs.metadata["autoreset_mode"]
    ours, theirs = envs.reset(seed=0)[0], sync.reset(seed=0)[0]
    np.testing.assert_array_equal(ours, theirs)
    action = actions_of(envs, 1)[0]
    np.testing.assert_array_equal(envs.step(action)[0], sync.step(action)[0])


def test_without_autoreset_rows_wait_for_a_mask():
    envs = gym.make_vec("SlidingBlock-v0", num_envs=3, max_episode_steps=2, autoreset_mode="disabled")
    with pytest.raises(gym.error.ResetNeeded, match="all rows first"):
        envs.reset(options={"reset_mask": np.array([True, False, False])})
    envs.reset(seed=0)
    actions = actions_of(envs, 3)
    envs.step(actions[0])
    observed, _, _, truncated, _ = envs.step(actions[1])
    assert truncated.all()
    with pytest.raises(gym.error.ResetNeeded, match="rows 0, 1, 2 have ended"):
        envs.step(actions[2])
    again = envs.reset(options={"reset_mask": np.array([True, False, True])})[0]
    np.testing.assert_array_equal(again[1], observed[1])
    assert (again[[0, 2]] != observed[[0, 2]]).any(axis=1).all()
    with pytest.raises(gym.error.ResetNeeded, match="rows 1 have ended"):
        envs.step(actions[2])
    for bad in (np.zeros(3, dtype=bool), np.ones(2, dtype=bool), np.ones(3), "all"):
        with pytest.raises(OptionError, match="reset_mask"):
            envs.reset(options={"reset_mask": bad})


# --- Tensors, videos, learners ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ONE_PER_SYSTEM)
def test_actions_may_be_tensors(env_id):
    torch = pytest.importorskip("torch")
    env, envs = gym.make(env_id), gym.make_vec(env_id, num_envs=2)
    env.reset(seed=0), envs.reset(seed=0)
    action = torch.full(env.action_space.shape, 0.5)
    other = copy.deepcopy(env).step(action.numpy())
    np.testing.assert_array_equal(env.step(action)[0], other[0])
    np.testing.assert_array_equal(envs.step(action.expand(2, -1))[0][0], other[0])
    for world, tensor in ((env, action), (envs, action.expand(2, -1))):
        with pytest.raises(ShapeError, match="detach"):
            world.step(tensor.clone().requires_grad_())


def test_a_batch_is_wrapped_for_tensors():
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    from gymnasium.wrappers.vector import NumpyToTorch

    envs = NumpyToTorch(gym.make_vec(IDS[0], num_envs=2))
    envs.reset(seed=0)
    observation, reward, *_ = envs.step(torch.zeros(envs.action_space.shape))
    assert isinstance(observation, torch.Tensor) and reward.shape == (2,)


def test_an_unknown_keyword_is_a_type_error_as_libraries_expect():
    """TorchRL tries frameskip, and goes on without it after this error; others look at the signature's kind of text."""
    for make in (gym.make, functools.partial(gym.make_vec, num_envs=2)):
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'frameskip'; allowed are .*control_period") as caught:
            make("VineGrow-v0", frameskip=1)
        assert isinstance(caught.value, KeywordError) and isinstance(caught.value, OptionError)
    with pytest.raises(OptionError) as caught:
        gym.make("VineGrow-v0", control_period=-1.0)
    assert not isinstance(caught.value, TypeError)


def test_rows_are_called_and_read_as_environments_of_gymnasium():
    """Side by side with Gymnasium's own vector environment of single ones."""
    ours = gym.make_vec("SlidingBlock-v0", num_envs=3, max_episode_steps=2, autoreset_mode="same_step").unwrapped
    mode = {"vector_kwargs": {"autoreset_mode": AutoresetMode.SAME_STEP}}
    theirs = gym.make_vec("SlidingBlock-v0", num_envs=3, vectorization_mode="sync", max_episode_steps=2, **mode)
    assert ours.autoreset_mode is theirs.autoreset_mode is ours.metadata["autoreset_mode"]
    for envs in (ours, theirs):
        envs.reset(seed=5)
        envs.step(actions_of(ours, 1)[0])
    for name in ("state", "context", "backend", "observation_space", "action_space", "render_mode"):
        for found, expected in zip(ours.call(name), theirs.call(name), strict=True):
            np.testing.assert_array_equal(found, expected)
        assert len(ours.get_attr(name)) == len(theirs.get_attr(name)) == 3
    for found, expected in zip(ours.call("get_state"), theirs.call("get_state"), strict=True):
        equal(found, expected)
    pictures = gym.make_vec("SlidingBlock-v0", num_envs=2, render_mode="rgb_array").unwrapped
    pictures.reset(seed=0)
    assert [image.shape[2] for image in pictures.call("render")] == [3, 3]
    saved = theirs.call("get_state")[1]
    for envs in (ours, theirs):
        assert envs.call("set_state", saved) == (None, None, None)
    action = actions_of(ours, 1)[0]
    np.testing.assert_array_equal(ours.step(action)[0], theirs.step(action)[0])
    for rows in zip(ours.get_attr("np_random"), theirs.get_attr("np_random"), strict=True):
        assert rows[0].random() == rows[1].random()
    for name in ("reset", "np_random_seed", "nothing"):
        with pytest.raises(AttributeError, match=name):
            ours.call(name)


def test_attributes_are_set_for_all_rows_or_refused():
    envs = gym.make_vec("SlidingBlock-v0", num_envs=3).unwrapped
    for values in (7, [7, 7, 7]):
        envs.set_attr("max_episode_steps", values)
        assert envs.get_attr("max_episode_steps") == (7, 7, 7)
    with pytest.raises(OptionError, match="got 2 values, expected one, or one for each of 3 rows"):
        envs.set_attr("max_episode_steps", [1, 2])
    with pytest.raises(OptionError, match="the rows share it"):
        envs.set_attr("max_episode_steps", [1, 2, 3])
    for name in ("state", "autoreset_mode"):
        with pytest.raises(AttributeError, match=name):
            envs.set_attr(name, None)


NEEDY = re.findall(
    r"^```python needs=(\S+)\n(.*?)^```$",
    (ROOT / "docs/how-to/learners.md").read_text(encoding="utf-8"),
    flags=re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize(("needs", "code"), NEEDY, ids=[needs for needs, _ in NEEDY])
def test_examples_with_other_packages_run(needs, code, tmp_path):
    """The other blocks of the page are run with all documents."""
    for name in needs.split(","):
        pytest.importorskip(name)
    environment = {**os.environ, "MINARI_DATASETS_PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_record_video_writes_a_film(tmp_path):
    pytest.importorskip("moviepy")
    env = gym.make(IDS[0], render_mode="rgb_array")
    env = gym.wrappers.RecordVideo(env, str(tmp_path), disable_logger=True, episode_trigger=lambda episode: True)
    env.reset(seed=0)
    for action in actions_of(env, 3):
        env.step(action)
    env.close()
    (film,) = tmp_path.glob("*.mp4")
    assert film.stat().st_size > 1000
