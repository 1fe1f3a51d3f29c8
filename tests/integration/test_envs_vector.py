"""Vector environments: every id and world equals single environments, row by row; how rows end and begin."""

import copy
import re

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from helpers import EVERY_ID, EVERY_WORLD, actions_of, equal, noisy, row_of

import softgym_envs  # noqa: F401  (registers the ids)
from softgym_envs.core.conformance import absurd
from softgym_envs.core.errors import ShapeError
from softgym_envs.envs.episodes import FAILURE_PENALTY

CRAWL = "TensegrityCrawl-v0"


@EVERY_WORLD
@pytest.mark.parametrize("with_noise", [False, True], ids=["plain", "noisy"])
def test_single_environment_equals_its_row_bit_for_bit(env_id, backend, with_noise):
    """Over the end of an episode: the row resets a step later than the single environment is reset by hand."""
    keywords = noisy(env_id, backend) if with_noise else {}
    rows, steps = 5, 2
    envs = gym.make_vec(env_id, num_envs=rows, backend=backend, max_episode_steps=steps, **keywords)
    singles = [gym.make(env_id, backend=backend, max_episode_steps=steps, **keywords) for _ in range(rows)]
    observed, _ = envs.reset(seed=7)
    for i, env in enumerate(singles):
        np.testing.assert_array_equal(observed[i], env.reset(seed=7 + i)[0])
    ended = False
    for actions in actions_of(envs, 5):
        observed, rewards, terminated, truncated, info = envs.step(actions)
        for i, env in enumerate(singles):
            if ended:
                np.testing.assert_array_equal(observed[i], env.reset()[0])
                assert (rewards[i], terminated[i], truncated[i]) == (0.0, False, False)
                continue
            observation, reward, term, trunc, single_info = env.step(actions[i])
            np.testing.assert_array_equal(observed[i], observation)
            assert (rewards[i], terminated[i], truncated[i]) == (reward, term, trunc)
            equal(single_info, row_of(info, i))
        ended = bool(truncated.any())
        np.testing.assert_array_equal(envs.unwrapped.state, np.concatenate([e.unwrapped.state[None] for e in singles]))


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
