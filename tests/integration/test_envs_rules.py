"""Every rule of an environment over every id and world of the systems on the list. Long walks of every id, world and
observation. Vector environments: every id and world equals single environments, row by row; how rows end and begin."""

import copy
import inspect
import json
import re
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from helpers import EVERY_ID, EVERY_WORLD, WORLDS, actions_of, equal, noisy, row_of, system_of_id

import softgym_envs  # noqa: F401  (registers the ids)
from softgym_envs.core.conformance import absurd
from softgym_envs.core.errors import OptionError, ShapeError
from softgym_envs.core.simulator import Simulator
from softgym_envs.core.task import Task, load
from softgym_envs.engines.numba.lanes import LANES
from softgym_envs.envs.conformance import replays, seeds
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
    action = actions_of(env, 1)[0]
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
        observation, reward, terminated, _, info = env.step(actions_of(env, 1)[0])
    np.testing.assert_array_equal(observation, before)
    np.testing.assert_array_equal(env.state, state)
    np.testing.assert_array_equal(env.context, context)
    assert terminated and info["sim_failed"] and reward == -FAILURE_PENALTY
    numbers = [*info.pop("parameters", {}).values(), *info.values()]
    assert all(np.isfinite(value).all() for value in numbers)


def obs_modes(env_id, backend):
    """Those of the id, for further ground truths the first one; ("",) if it has but one."""
    system = system_of_id(env_id)
    modes = ("sensors", "state") if "obs_mode" in inspect.signature(load(system.task(env_id).build)).parameters else ("",)
    return modes[:1] if backend in list(system.ground_truths)[1:] else modes


WALKS = [(env_id, backend, obs_mode) for env_id, backend in WORLDS for obs_mode in obs_modes(env_id, backend)]


@pytest.mark.parametrize(("env_id", "backend", "obs_mode"), WALKS, ids=["-".join(filter(None, walk[::-1])) for walk in WALKS])
def test_200_random_steps(env_id, backend, obs_mode):
    """Spaces hold, rewards are finite and the sum of their terms, no observation entry is constant."""
    keywords = {"obs_mode": obs_mode} if obs_mode else {}
    env = gym.make(env_id, backend=backend, max_episode_steps=50, **keywords)
    observed = [env.reset(seed=1)[0]]
    assert len({entry.name for entry in env.unwrapped.task.entries}) == len(observed[0])
    for action in actions_of(env, 200):
        observation, reward, terminated, truncated, info = env.step(action)
        assert env.observation_space.contains(observation)
        terms = [value for name, value in info.items() if name.startswith("reward_")]
        assert np.isfinite(reward) and reward == pytest.approx(sum(terms), rel=1e-12, abs=1e-12)
        assert not info["sim_failed"]
        observed.append(observation)
        if terminated or truncated:
            observed.append(env.reset()[0])
    names = [entry.name for entry in env.unwrapped.task.entries]
    constant = [name for name, span in zip(names, np.ptp(observed, axis=0), strict=True) if span == 0]
    assert constant == []


CRAWL = "TensegrityCrawl-v0"


@EVERY_WORLD
@pytest.mark.parametrize("with_noise", [False, True], ids=["plain", "noisy"])
def test_single_environment_equals_its_row_bit_for_bit(env_id, backend, with_noise):
    """Over the end of an episode: the row resets a step later than the single environment is reset by hand.

    Rows are the first and the last of those that kernels step together, and the one that they step alone.
    """
    keywords = noisy(env_id, backend) if with_noise else {}
    rows, steps, compared = LANES + 1, 2, (0, LANES - 1, LANES)
    envs = gym.make_vec(env_id, num_envs=rows, backend=backend, max_episode_steps=steps, **keywords)
    singles = {i: gym.make(env_id, backend=backend, max_episode_steps=steps, **keywords) for i in compared}
    observed, _ = envs.reset(seed=7)
    for i, env in singles.items():
        np.testing.assert_array_equal(observed[i], env.reset(seed=7 + i)[0])
    ended = False
    for actions in actions_of(envs, 5):
        observed, rewards, terminated, truncated, info = envs.step(actions)
        for i, env in singles.items():
            if ended:
                np.testing.assert_array_equal(observed[i], env.reset()[0])
                assert (rewards[i], terminated[i], truncated[i]) == (0.0, False, False)
                continue
            observation, reward, term, trunc, single_info = env.step(actions[i])
            np.testing.assert_array_equal(observed[i], observation)
            assert (rewards[i], terminated[i], truncated[i]) == (reward, term, trunc)
            equal(single_info, row_of(info, i))
        ended = bool(truncated.any())
        states = np.concatenate([env.unwrapped.state[None] for env in singles.values()])
        np.testing.assert_array_equal(envs.unwrapped.state[list(compared)], states)


@EVERY_ID
def test_restore_of_a_batch_that_waits_for_its_reset(env_id):
    envs = gym.make_vec(env_id, num_envs=2, max_episode_steps=1, disturbance=0.1)
    envs.reset(seed=0)
    actions = actions_of(envs, 4)
    envs.step(actions[0])
    saved = envs.unwrapped.get_state()
    first = [envs.step(a) for a in actions[1:]]
    envs.unwrapped.set_state(saved)
    for expected, a in zip(first, actions[1:], strict=True):
        got = envs.step(a)
        for x, y in zip(expected[:4], got[:4], strict=True):
            np.testing.assert_array_equal(x, y)
        equal(expected[4], got[4])


@EVERY_WORLD
def test_a_failed_simulation_is_contained(env_id, backend):
    envs, calm = (gym.make_vec(env_id, num_envs=3, backend=backend, sensor_noise=0.01) for _ in range(2))
    envs.reset(seed=0)
    calm.reset(seed=0)
    states = envs.unwrapped.state
    states[1] = absurd(envs.unwrapped.simulator, states[1])
    before, _ = envs.reset(seed=0, options={"state": states})
    calm.reset(seed=0, options={"state": calm.unwrapped.state})
    actions = actions_of(envs, 1)[0]
    observed, rewards, terminated, truncated, info = envs.step(actions)
    expected, expected_rewards, *_ = calm.step(actions)
    assert info["sim_failed"].tolist() == terminated.tolist() == [False, True, False]
    assert not truncated.any()
    assert rewards[1] == info["reward_failure"][1] == -FAILURE_PENALTY
    assert not info["is_success"][1]
    np.testing.assert_array_equal(observed[1], before[1])
    np.testing.assert_array_equal(observed[[0, 2]], expected[[0, 2]])
    np.testing.assert_array_equal(rewards[[0, 2]], expected_rewards[[0, 2]])
    assert np.isfinite(observed).all() and envs.observation_space.contains(observed)
    observed, rewards, terminated, _, info = envs.step(actions)  # NEXT_STEP: the row begins anew
    assert rewards[1] == 0.0 and not terminated.any() and not info["sim_failed"].any()
    envs.step(actions)
    assert np.abs(envs.unwrapped.state).max() < 1e5


# --- Of one id --------------------------------------------------------------------------------------------------------


def test_next_step_and_same_step_tell_the_same_story():
    steps, count = 2, 6
    later = gym.make_vec(CRAWL, num_envs=2, max_episode_steps=steps)
    at_once = gym.make_vec(CRAWL, num_envs=2, max_episode_steps=steps, autoreset_mode="same_step")
    assert later.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert at_once.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert later.metadata is not type(later).metadata
    np.testing.assert_array_equal(later.reset(seed=0)[0], at_once.reset(seed=0)[0])
    for k in range(count):
        actions = actions_of(later, 1, seed=k)[0]
        a = later.step(actions)
        b = at_once.step(actions)
        np.testing.assert_array_equal(a[1], b[1])
        if (k + 1) % steps:
            np.testing.assert_array_equal(a[0], b[0])
            assert "final_obs" not in b[4]
            continue
        assert b[3].all() and b[4]["_final_obs"].all()
        np.testing.assert_array_equal(a[0], np.stack(list(b[4]["final_obs"])))
        equal(a[4], b[4]["final_info"])
        begun = later.step(actions)
        np.testing.assert_array_equal(begun[0], b[0])
        for name, value in begun[4].items():  # as in Gymnasium's own environments: the info of what is observed
            np.testing.assert_array_equal(b[4][name], value, err_msg=name)


def test_rows_may_end_apart():
    """A row that fails restarts while its neighbour goes on to its own time limit."""
    envs = gym.make_vec(CRAWL, num_envs=2, max_episode_steps=3)
    envs.reset(seed=0)
    states = envs.unwrapped.state
    states[0] = absurd(envs.unwrapped.simulator, states[0])
    envs.reset(options={"state": states})
    action = np.zeros((2, 3), dtype=np.float32)
    ends = [(t.tolist(), u.tolist()) for _, _, t, u, _ in (envs.step(action) for _ in range(5))]
    none = [False, False]
    assert ends == [([True, False], none), (none, none), (none, [False, True]), (none, none), (none, [True, False])]


def test_make_vec_defaults_to_the_native_batch():
    envs = gym.make_vec("softgym_envs:" + CRAWL, num_envs=2)
    assert type(envs.unwrapped).__name__ == "SoftgymVectorEnv"
    assert envs.max_episode_steps == 150
    synced = gym.make_vec(CRAWL, num_envs=2, vectorization_mode="sync")
    np.testing.assert_array_equal(envs.reset(seed=4)[0], synced.reset(seed=4)[0])
    np.testing.assert_array_equal(envs.reset(seed=[9, 2])[0][1], synced.reset(seed=2)[0][0])


def test_infos_are_the_callers_to_keep():
    """What a step told does not change when the rows go on or begin anew."""
    envs = gym.make_vec(CRAWL, num_envs=2)
    envs.reset(seed=0)
    action = np.ones((2, 3), dtype=np.float32)
    told = [envs.step(action)[4], envs.reset(seed=1)[1]]
    kept = copy.deepcopy(told)
    envs.step(action)
    envs.reset(seed=2)
    for info, before in zip(told, kept, strict=True):
        equal(info, before)


@pytest.mark.parametrize(
    ("rows", "each"),
    [(None, ""), (1, ""), (3, ", or one for each of the 3 rows")],
)
def test_wrong_shapes_of_options_name_the_shape_of_one_row(rows, each):
    env = gym.make("SlidingBlock-v0") if rows is None else gym.make_vec("SlidingBlock-v0", num_envs=rows)
    for state in (np.zeros(4), np.zeros((2, 6))):
        with pytest.raises(ShapeError, match=re.escape(f"option 'state' has shape {state.shape}, expected (6,){each}") + "$"):
            env.reset(options={"state": state})
    with pytest.raises(ShapeError, match=f"parameter 'friction' holds 2 numbers, expected one{each}$"):
        env.reset(options={"parameters": {"friction": [0.2, 0.3]}})


@pytest.mark.parametrize("keywords", [{}, {"output": "torch", "device": "cpu"}])
@pytest.mark.parametrize("options", ["text", 3, [("goal", 1)]])
def test_options_that_are_no_mapping_are_refused(keywords, options):
    with pytest.raises(OptionError, match="expected a mapping of names to values"):
        gym.make_vec("softgym_envs:VineGrow-v0", num_envs=2, **keywords).reset(options=options)
