"""The interface between robot and controller: late commands and observations, sensors, in single, vector and MuJoCo worlds."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest
from helpers import actions_of

import softgym_envs  # noqa: F401  (registers the ids)
from softgym_envs.core.errors import FileFormatError, OptionError, ParameterError
from softgym_envs.core.interface import Interface
from softgym_envs.core.parameters import UniformParameters
from softgym_envs.core.posterior import PosteriorParameters, randomize_of

ARM, BLOCK, CRAWL = "ArmReach-v0", "SlidingBlock-v0", "TensegrityCrawl-v0"
SENSORS = {
    ARM: {"sensor_bias": {"elbow": (-0.03, 0.03)}, "sensor_gain": {"rad": (0.9, 1.1)}, "sensor_noise": {"velbow": 0.1}},
    BLOCK: {"sensor_bias": 0.1, "sensor_gain": {"goal.*": (0.9, 1.1)}, "sensor_noise": 0.02},
    CRAWL: {"sensor_bias": {"node0.x": 0.01}, "sensor_noise": {"node*.z": 0.01}},
}


@pytest.mark.parametrize("backend", ["native", "mujoco"])
@pytest.mark.parametrize("env_id", [ARM, BLOCK, CRAWL])
def test_a_row_equals_the_single_environment_bit_for_bit(env_id, backend):
    """Latencies between steps that differ from row to row, held samples, sensors that differ; and copies go on alike."""
    late = {"action_latency": (0.0, 0.13), "observation_latency": (0.0, 0.15), "observation_rate": 23.0, "action_memory": 1}
    given = {"backend": backend, "disturbance": 0.01, **late, **SENSORS[env_id]}
    envs = gym.make_vec(env_id, num_envs=3, vectorization_mode="vector_entry_point", **given)
    single = gym.make(env_id, **given).unwrapped
    observed, (first, _) = envs.reset(seed=5)[0], single.reset(seed=7)
    np.testing.assert_array_equal(observed[2], first)
    for step, action in enumerate(0.3 * actions_of(envs, 9)):
        if step == 4:
            envs, single = copy.deepcopy(envs), copy.deepcopy(single)
        rows, one = envs.step(action), single.step(action[2])
        for whole, part in zip(rows[:4], one[:4], strict=True):
            np.testing.assert_array_equal(whole[2], part)
    assert len({tuple(late) for late in envs.episodes.late.tolist()}) > 1


@pytest.mark.parametrize(("latency", "steps"), [(0.03, 6), (0.02, 4), (0.046, 9), (0.004, 1)])
@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_a_command_acts_late_by_its_latency(latency, steps, backend):
    """Against the physics stepped one physics step at a time, each under the command given `latency` before it."""
    env = gym.make(ARM, backend=backend, dt=0.005, action_latency=latency).unwrapped
    env.reset(seed=1)
    simulator, task, per = env.simulator, env.task, 4
    state, actions = env.state[None], actions_of(env, 6).astype(float)
    for k in range(6):
        env.step(actions[k])
        for step in range(k * per, (k + 1) * per):
            given = (step - steps) // per
            action = actions[given] if given >= 0 else np.zeros(2)
            state = simulator.step(state, task.scale_action(action[None]))[0]
        np.testing.assert_allclose(env.state, state[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("latency", "rate"), [(0.03, 0.0), (0.015, 0.0), (0.06, 0.0), (0.0, 1 / 0.03), (0.025, 1 / 0.035)])
def test_an_observation_is_that_of_an_earlier_instant(latency, rate):
    """The angle and the error, whichever instant of the recorded motion they belong to; and the last actions are not late."""
    env = gym.make(ARM, observation_latency=latency, observation_rate=rate, action_memory=1).unwrapped
    first, _ = env.reset(seed=1)
    simulator, task, per, late = env.simulator, env.task, 4, round(latency / 0.005)
    every = round(1 / rate / 0.005) if rate else 1
    states, target = [env.state[None]], float(env.context[0])
    for k, action in enumerate(actions_of(env, 8)):
        seen = env.step(action)[0]
        for _ in range(per):
            states.append(simulator.step(states[-1], task.scale_action(action[None].astype(float)))[0])
        instant = max(((k + 1) * per - late) // every * every, 0)
        angle = states[instant][0, 0]
        assert seen[0] == pytest.approx(angle, abs=1e-6) and seen[4] == pytest.approx(target - angle, abs=1e-6)
        np.testing.assert_array_equal(seen[-2:], action)
        assert instant or np.array_equal(seen[:5], first[:5])


def test_whole_control_steps_late_is_the_plain_motion_later():
    plain, late = gym.make(BLOCK).unwrapped, gym.make(BLOCK, observation_latency=0.2, action_latency=0.1).unwrapped
    shown, seen = [plain.reset(seed=0)[0]], [late.reset(seed=0)[0]]
    actions = 0.3 * actions_of(plain, 6)
    for action, before in zip(actions, [0.0 * actions[0], *actions], strict=False):
        shown.append(plain.step(before)[0])
        seen.append(late.step(action)[0])
    np.testing.assert_array_equal(seen, [shown[0], shown[0], *shown[:-2]])


def test_a_sample_that_is_held_keeps_its_noise():
    env = gym.make(ARM, observation_rate=1 / 0.06, sensor_noise={"elbow": 0.1}).unwrapped
    env.reset(seed=0)
    seen = np.array([env.step(np.zeros(2))[0][0] for _ in range(9)])
    assert (seen[2:8].reshape(2, 3) == seen[[2, 5]][:, None]).all() and len(set(seen)) == 4


def test_whatever_is_computed_from_a_sensor_has_its_error():
    """The encoder's gain and bias, drawn within their intervals, are in the angle and in the distance to the target."""
    given = {"sensor_bias": {"elbow": (0.02, 0.04)}, "sensor_gain": {"rad/s": 2.0}}
    env, plain = gym.make(ARM, **given).unwrapped, gym.make(ARM).unwrapped
    drawn = set()
    for seed in range(4):
        state = plain.reset(seed=seed) and plain.state
        env.reset(seed=seed, options={"state": state})
        plain.reset(seed=seed, options={"state": state})
        seen, shown = env.step(np.ones(2))[0], plain.step(np.ones(2))[0]
        bias = float(seen[0] - shown[0])
        assert 0.02 <= bias <= 0.04 and seen[1] == pytest.approx(2 * shown[1], rel=1e-6)
        assert seen[0] + seen[4] == pytest.approx(env.context[0], abs=1e-6)
        drawn.add(round(bias, 6))
    assert len(drawn) == 4


def test_a_file_brings_its_interface_and_keywords_win(tmp_path):
    env = gym.make(ARM).unwrapped
    file = tmp_path / "fit.toml"
    interface = Interface(action_latency=(0.01, 0.02), sensor_bias={"elbow": 0.03}, sensor_noise={"wrist.x": 0.01})
    env.simulator.default_parameters.save(file, interface=interface.table())
    assert Interface.read(file) == interface
    with pytest.warns(UserWarning, match=r"\[interface\] is played in part: this environment has no sensor wrist.x"):
        made = gym.make(ARM, params=file, action_latency=0.0).unwrapped
    assert made.episodes.settings.table() == {"sensor_bias": {"elbow": 0.03}}


def test_the_posterior_of_a_fit_is_drawn_with_its_covariance(tmp_path):
    """Means and covariance in fit coordinates as in the file; along what the data do not see, the whole interval, uniformly."""
    plain = gym.make(BLOCK).unwrapped.simulator.default_parameters
    specs, names = plain.specs(), ("friction", "mass", "inertia")
    mean = np.array([float(specs[name].encode(getattr(plain, name))) for name in names])
    covariance = np.zeros((3, 3))
    covariance[:2, :2] = np.diag([0.02, 0.05]) @ [[1.0, 0.8], [0.8, 1.0]] @ np.diag([0.02, 0.05])
    ends = np.array([mean - 1.0, mean + 1.0])
    ends[:, 2] = specs["inertia"].encode(np.array([0.006, 0.03]))
    posterior = PosteriorParameters(names, mean, covariance, np.array([[0.0], [0.0], [1.0]]), ends)
    file = plain.save(tmp_path / "fit.toml", posterior=posterior.table())
    envs = gym.make_vec(BLOCK, num_envs=500, params=file, randomize="posterior")
    single = gym.make(BLOCK, params=file, randomize="posterior").unwrapped
    info = envs.reset(seed=3)[1]["parameters"]
    assert single.reset(seed=10)[1]["parameters"] == {name: info[name][7] for name in plain.names()}
    drawn = np.array([specs[name].encode(info[name]) for name in names]).T
    np.testing.assert_allclose(drawn[:, :2].mean(0), mean[:2], atol=5 * 0.05 / np.sqrt(500))
    np.testing.assert_allclose(np.cov(drawn[:, :2].T) / covariance[:2, :2], np.ones((2, 2)), atol=5 * np.sqrt(2 / 500))
    low, high = drawn[:, 2].min(), drawn[:, 2].max()
    assert np.allclose([low, high], ends[:, 2], atol=0.03 * np.ptp(ends[:, 2])) and (info["gravity"] == plain.gravity).all()
    assert drawn[:, 2].std() == pytest.approx(np.ptp(ends[:, 2]) / np.sqrt(12), rel=0.1)
    with pytest.raises(OptionError, match="randomize is 'posterior', but params is no file"):
        gym.make(BLOCK, randomize="posterior")
    with pytest.raises(FileFormatError, match=r"has no table \[posterior\]: identify again"):
        gym.make(BLOCK, params=plain.save(tmp_path / "plain.toml"), randomize="posterior")


def test_factors_are_times_the_nominal_value_and_end_at_the_bounds():
    given = {"friction": ("x", 0.8, 1.2), "mass": (0.5, 0.6)}
    envs = gym.make_vec(BLOCK, num_envs=200, params={"friction": 0.4}, randomize=given)
    drawn = envs.reset(seed=0)[1]["parameters"]
    low, high = drawn["friction"].min(), drawn["friction"].max()
    assert 0.32 <= low < 0.33 and 0.47 < high <= 0.48 and 0.5 <= drawn["mass"].min() <= drawn["mass"].max() <= 0.6
    assert UniformParameters({"friction": ("x", 0.5, 100.0)}).ends(envs.unwrapped.episodes.nominal) == {"friction": (0.2, 1.5)}
    assert randomize_of(["friction=x,0.8,1.2", "mass=0.5,0.6"]) == given and randomize_of(["posterior"]) == "posterior"
    with pytest.raises(ParameterError, match=r"randomize\['friction'\] is \('x', -1, 2\).*factors >= 0"):
        gym.make(BLOCK, randomize={"friction": ("x", -1, 2)})
    with pytest.raises(OptionError, match="randomize is 'friction=x,1', expected posterior, name=low,high"):
        randomize_of(["friction=x,1"])
