"""Every environment id x every rule x both backends."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import softgym_envs  # noqa: F401  (registers the ids)
from softgym_envs.core import lie
from softgym_envs.core.errors import FileFormatError, OptionError, ParameterError, ShapeError, SoftgymError, StructureError
from softgym_envs.core.simulator import Simulator
from softgym_envs.core.spec import SimulatorSpec
from softgym_envs.core.task import Task
from softgym_envs.envs.episodes import FAILURE_PENALTY
from softgym_envs.envs.registry import register
from softgym_envs.rooms import tasks
from softgym_envs.tensegrity.features import COM, HEADING, Body
from softgym_envs.tensegrity.model import prism, superball
from softgym_envs.tensegrity.parameters import TensegrityParameters
from softgym_envs.tensegrity.poses import stable_faces
from softgym_envs.tensegrity.task_kernels import FRAME_NAMES, HEIGHT
from softgym_envs.tensegrity.terrain import Terrain

IDS = [entry.id for entry in tasks()]
TENSEGRITY = [env_id for env_id in IDS if env_id.startswith("Tensegrity")]
ROLL, CRAWL, WAYPOINT, TERRAIN = TENSEGRITY
BACKENDS = ["native", "mujoco"]
OBS_MODES = ["sensors", "state"]
ALLOWED_WARNINGS = ("already has a registered", "Overriding environment")
EVERY_ID = pytest.mark.parametrize("env_id", IDS)
EVERY_BACKEND = pytest.mark.parametrize("backend", BACKENDS)
VARIED = {
    "Tensegrity": {"cable_stiffness": (8e3, 1.2e4)},
    "Vine": {"bending_stiffness": (0.015, 0.03)},
    "Sliding": {"friction": (0.2, 0.5)},
}
ABSURD = {"Tensegrity": "rod0.vx", "Vine": "omega0", "Sliding": "vx"}


def make(env_id, **keywords):
    return gym.make(env_id, **keywords)


def actions_of(env, count, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (count, *env.action_space.shape)).astype(np.float32)


def equal(a, b):
    """Same keys, same types, same numbers, bit for bit."""
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


def of_room(table, env_id):
    return next(value for room, value in table.items() if env_id.startswith(room))


def noisy(env_id):
    return {"sensor_noise": 0.02, "action_delay": 2, "disturbance": 0.05, "randomize": of_room(VARIED, env_id)}


def absurd(env):
    """A finite state from which no simulator can go on: a part at 1e6 m/s or rad/s."""
    simulator = env.unwrapped.simulator
    state = simulator.initial_state(1)[0]
    state[simulator.state_names.index(of_room(ABSURD, env.unwrapped.spec.id))] = 1e6
    return state


# --- Gymnasium's own rules ---------------------------------------------------------------------------------------------


@EVERY_ID
@EVERY_BACKEND
def test_check_env(env_id, backend):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(make(env_id, backend=backend, render_mode="rgb_array").unwrapped)
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
    assert spec.max_episode_steps in (50, 100, 150, 300)


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
    native, twin = (make(env_id, backend=backend).unwrapped for backend in BACKENDS)
    assert native.observation_space == twin.observation_space
    assert native.action_space == twin.action_space
    for env in (native, twin):
        assert isinstance(env.task, Task)
        assert isinstance(env.simulator, Simulator)
    assert [e.name for e in native.task.entries] == [e.name for e in twin.task.entries]


# --- Our rules: numbers ------------------------------------------------------------------------------------------------


@EVERY_ID
@EVERY_BACKEND
@pytest.mark.parametrize("obs_mode", OBS_MODES)
def test_200_random_steps(env_id, backend, obs_mode):
    """Spaces hold, rewards are finite and the sum of their terms, no observation entry is constant."""
    env = make(env_id, backend=backend, obs_mode=obs_mode, max_episode_steps=50)
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


@EVERY_ID
@EVERY_BACKEND
def test_same_seed_same_episode_other_seed_another(env_id, backend):
    def episode(seed):
        env = make(env_id, backend=backend, **noisy(env_id))
        out = [env.reset(seed=seed)[0]]
        for action in actions_of(env, 3):
            observation, reward, *_ = env.step(action)
            out.append(np.append(observation, reward))
        return np.concatenate(out)

    np.testing.assert_array_equal(episode(3), episode(3))
    assert np.abs(episode(3) - episode(4)).max() > 1e-3


@EVERY_ID
@EVERY_BACKEND
@pytest.mark.parametrize("with_noise", [False, True], ids=["plain", "noisy"])
def test_single_environment_equals_its_row_bit_for_bit(env_id, backend, with_noise):
    """Over the end of an episode: the row resets a step later than the single environment is reset by hand."""
    keywords = noisy(env_id) if with_noise else {}
    rows, steps = 5, 2
    envs = gym.make_vec(env_id, num_envs=rows, backend=backend, max_episode_steps=steps, **keywords)
    singles = [make(env_id, backend=backend, max_episode_steps=steps, **keywords) for _ in range(rows)]
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
            equal(single_info, {name: info[name][i] for name in single_info})
        ended = bool(truncated.any())
        np.testing.assert_array_equal(envs.unwrapped.state, np.concatenate([e.unwrapped.state[None] for e in singles]))


@EVERY_ID
@EVERY_BACKEND
def test_restore_equals_replay_bit_for_bit(env_id, backend):
    env = make(env_id, backend=backend, **noisy(env_id)).unwrapped
    env.reset(seed=2)
    actions = actions_of(env, 6)
    for action in actions[:3]:
        env.step(action)
    saved = env.get_state()
    rng = json.loads(json.dumps(saved["rng"]))  # generator states survive JSON, the rest are arrays
    assert all(isinstance(value, np.ndarray) for name, value in saved.items() if name != "rng")
    first = [env.step(action) for action in actions[3:]]
    other = make(env_id, backend=backend, **noisy(env_id)).unwrapped
    other.set_state({**saved, "rng": rng})
    for (o, r, te, tr, info), action in zip(first, actions[3:], strict=True):
        o2, r2, te2, tr2, info2 = other.step(action)
        np.testing.assert_array_equal(o, o2)
        assert (r, te, tr) == (r2, te2, tr2)
        equal(info, info2)
    np.testing.assert_array_equal(env.reset()[0], other.reset()[0])


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


@pytest.mark.parametrize("env_id", TENSEGRITY)
def test_initial_states_are_random_and_at_rest_on_the_ground(env_id):
    envs = gym.make_vec(env_id, num_envs=24)
    envs.reset(seed=0)
    model, state = envs.unwrapped.simulator.model, envs.unwrapped.state
    assert (np.ptp(state, axis=0) > 0).all()
    scale = envs.unwrapped.episodes.constants[:, envs.unwrapped.episodes.nominal.index("terrain_scale")]
    assert np.abs(model.clearance(state, scale[:, None])).max() < 0.03
    assert np.abs(model.com_velocity(state)).max() < 0.25
    # Different faces: the world's vertical, seen from rod 0, takes well separated directions.
    up = lie.rotate(lie.conjugate(state[:, 3:7]), np.array([0.0, 0.0, 1.0]))
    assert len(np.unique(np.round(up, 0), axis=0)) > 2


@EVERY_ID
def test_returned_data_is_fresh(env_id):
    env = make(env_id)
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
    again = make(env_id)
    again.reset(seed=0)
    observation, *_, info = again.step(action)
    np.testing.assert_array_equal(observation, first[0])
    assert info == first[1]


# --- Our rules: failure ------------------------------------------------------------------------------------------------


@EVERY_ID
@EVERY_BACKEND
def test_a_failed_simulation_is_contained(env_id, backend):
    envs, calm = (gym.make_vec(env_id, num_envs=3, backend=backend, sensor_noise=0.01) for _ in range(2))
    envs.reset(seed=0)
    calm.reset(seed=0)
    states = envs.unwrapped.state
    states[1] = absurd(envs)
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


@EVERY_ID
def test_numbers_that_are_not_finite_are_contained(env_id, monkeypatch):
    """Even from a simulator that breaks its promise and returns NaN with status 0."""
    env = make(env_id).unwrapped
    before, _ = env.reset(seed=0)
    state, context = env.state, env.context

    class Broken:
        def step(self, state, control, parameters, *, substeps):
            return np.full_like(state, np.nan), np.zeros(len(state), dtype=np.int32)

    monkeypatch.setattr(env.episodes, "simulator", Broken())
    with np.errstate(invalid="ignore"):
        observation, reward, terminated, _, info = env.step(actions_of(env, 1)[0])
    np.testing.assert_array_equal(observation, before)
    np.testing.assert_array_equal(env.state, state)
    np.testing.assert_array_equal(env.context, context)
    assert terminated and info["sim_failed"] and reward == -FAILURE_PENALTY
    assert all(np.isfinite(value) for value in info.values())


# --- Vector environment ------------------------------------------------------------------------------------------------


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
        np.testing.assert_array_equal(later.step(actions)[0], b[0])


def test_rows_may_end_apart():
    """A row that fails restarts while its neighbour goes on to its own time limit."""
    envs = gym.make_vec(CRAWL, num_envs=2, max_episode_steps=3)
    envs.reset(seed=0)
    states = envs.unwrapped.state
    states[0] = absurd(envs)
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


# --- Keywords and options ----------------------------------------------------------------------------------------------


@EVERY_BACKEND
def test_constants_from_object_file_and_options(backend, tmp_path):
    kind = make(CRAWL, backend=backend).unwrapped.simulator.default_parameters
    chosen = kind.replace(cable_stiffness=1.2e4, gravity=3.0)
    path = chosen.save(tmp_path / "fit.toml")
    env, filed = (make(CRAWL, backend=backend, params=p).unwrapped for p in (chosen, str(path)))
    np.testing.assert_array_equal(env.reset(seed=0)[0], filed.reset(seed=0)[0])
    table = env.episodes.parameters
    assert (table.cable_stiffness, table.gravity) == (1.2e4, 0.981)  # the id's gravity wins over the file
    _, info = env.reset(seed=0, options={"constants": {"cable_stiffness": 9e3}})
    assert info["constants"][kind.index("cable_stiffness")] == 9e3
    assert "constants" not in env.reset(seed=0)[1]
    assert make(CRAWL, backend=backend, gravity=1.5).unwrapped.episodes.nominal.gravity == 1.5


def test_randomised_constants_are_drawn_per_row_and_episode():
    interval = (8e3, 1.2e4)
    envs = gym.make_vec(CRAWL, num_envs=64, randomize={"cable_stiffness": interval})
    place = envs.unwrapped.episodes.nominal.index("cable_stiffness")
    draws = np.concatenate([envs.reset(seed=s)[1]["constants"][:, place] for s in (0, 100)])
    assert len(np.unique(draws)) == 128
    assert interval[0] <= draws.min() and draws.max() <= interval[1]
    # Log-uniform (the constant's scale): mean of the log within five standard errors of the middle.
    logs = np.log(draws)
    span = np.log(interval[1] / interval[0])
    assert abs(logs.mean() - np.log(interval).mean()) < 5 * span / np.sqrt(12 * len(draws))
    assert "constants" in envs.step(np.zeros((64, 3)))[4]


def test_a_custom_distribution_is_used():
    class Heavy:
        def sample(self, rng, nominal):
            return {"rod_mass": nominal.rod_mass + rng.integers(1, 3)}

    env = make(CRAWL, randomize=Heavy()).unwrapped
    masses = {env.reset(seed=s)[1]["constants"][env.episodes.nominal.index("rod_mass")] for s in range(12)}
    assert masses == {11.0, 12.0}


def test_sensor_noise_has_the_stated_size():
    env = make(ROLL, sensor_noise=0.01).unwrapped
    clean = make(ROLL).unwrapped
    state = clean.reset(seed=0) and clean.state
    noise = np.array([env.reset(seed=s, options={"state": state})[0] for s in range(200)])
    noise -= clean.reset(seed=0, options={"state": state})[0]
    scale = np.array([entry.scale for entry in env.task.entries])
    deviation = (noise / scale).std()
    assert deviation == pytest.approx(0.01, rel=5 / np.sqrt(2 * noise.size))
    np.testing.assert_array_equal(env.state, state)


def test_delayed_actions_take_effect_later():
    plain, late = make(CRAWL).unwrapped, make(CRAWL, action_delay=2).unwrapped
    plain.reset(seed=0)
    late.reset(seed=0)
    action = np.ones(3)
    for k, expected in enumerate([0.0, 0.0, 1.0]):
        late.step(action)
        plain.step(expected * action)
        np.testing.assert_array_equal(late.state, plain.state, err_msg=f"step {k}")


def test_disturbance_kicks_velocities_by_the_stated_size():
    """Kicks are the difference to an undisturbed step over one physics step from rest in the air."""
    env = make(ROLL, disturbance=0.2, control_period=1e-3).unwrapped
    calm = make(ROLL, control_period=1e-3).unwrapped
    env.reset(seed=0)
    state = env.simulator.initial_state(1)[0]
    state[2:78:13] += 5.0
    model = env.simulator.model
    kicks = []
    for seed in range(60):
        env.reset(seed=seed, options={"state": state})
        calm.reset(seed=seed, options={"state": state})
        env.step(np.zeros(24))
        calm.step(np.zeros(24))
        kicks.append(model.center_of_mass(env.state[None]) - model.center_of_mass(calm.state[None]))
    # Cables pull equally on both ends, so the centre of mass moves by dt x the mean of six independent kicks.
    size = np.std(np.concatenate(kicks)) / 1e-3
    assert size == pytest.approx(0.2 / np.sqrt(6), rel=5 / np.sqrt(2 * 180))


def test_tasks_take_their_options():
    env = make(ROLL).unwrapped
    env.reset(seed=0, options={"velocity": [0.0, -2.0]})
    np.testing.assert_allclose(env.task.draw_hints(env.context)["velocity"], [0.0, -2.0, 0.0], atol=1e-15)
    env = make(WAYPOINT).unwrapped
    env.reset(seed=0, options={"goal": [[3.0, 4.0], [5.0, 6.0]]})
    np.testing.assert_array_equal(env.task.draw_hints(env.context)["goal"], [3.0, 4.0, 0.0])
    env = make(TERRAIN).unwrapped
    heights = []
    for level in (0.0, 2.0):
        env.reset(seed=0, options={"level": level})
        heights.append(
            [
                o
                for o, e in zip(env.reset(seed=0, options={"level": level})[0], env.task.entries, strict=True)
                if "ground" in e.name
            ]
        )
        assert env.episodes.constants[0, env.episodes.nominal.index("terrain_scale")] == level
    assert np.abs(heights[0]).max() == 0 and np.abs(heights[1]).max() > 1e-3
    assert {make(TERRAIN, ground=g).reset(seed=0)[0].shape for g in ("rubble", "steps", "slope")} == {(108,)}
    assert make(ROLL, target_speed=(0.5, 1.5), heading=None).unwrapped.reset(seed=0)


def test_headings_and_speeds_are_drawn():
    envs = gym.make_vec(ROLL, num_envs=32, target_speed=(0.5, 1.5), heading=None).unwrapped
    envs.reset(seed=0)
    velocity = np.array([envs.task.draw_hints(c)["velocity"] for c in envs.context])
    speed = np.linalg.norm(velocity, axis=1)
    assert 0.5 <= speed.min() < 0.8 and 1.2 < speed.max() <= 1.5
    assert (np.abs(velocity[:, :2].mean(axis=0)) < 5 / np.sqrt(2 * 32)).all()


BAD = [
    ({"backend": "bullet"}, OptionError, "backend is 'bullet'.*native, mujoco"),
    ({"device": "tpu"}, OptionError, "device is 'tpu'"),
    ({"backend": "mujoco", "device": "cuda"}, OptionError, "device is 'cuda'"),
    ({"nonsense": 1}, OptionError, "unknown keyword 'nonsense'.*randomize"),
    ({"obs_mode": "pixels"}, OptionError, "obs_mode is 'pixels'.*sensors, state"),
    ({"control_period": 0.00015}, OptionError, "control_period is 0.00015 s.*0.001"),
    ({"control_period": -1.0}, OptionError, "control_period is -1.0"),
    ({"action_delay": -1}, OptionError, "action_delay is -1"),
    ({"action_delay": 0.5}, OptionError, "action_delay is 0.5"),
    ({"sensor_noise": float("nan")}, OptionError, "sensor_noise is nan"),
    ({"disturbance": "big"}, OptionError, "disturbance is 'big'"),
    ({"randomize": {"colour": (0, 1)}}, ParameterError, "'colour'"),
    ({"randomize": {"rod_mass": (0, 1)}}, ParameterError, r"randomize\['rod_mass'\].*inside"),
    ({"randomize": {"rod_mass": (2, 1)}}, ParameterError, r"randomize\['rod_mass'\]"),
    ({"params": "no/such/file.toml"}, FileFormatError, "no/such/file.toml"),
    ({"model": "no/such/file.toml"}, FileFormatError, "no/such/file.toml"),
    ({"model": "octahedron"}, OptionError, "model is 'octahedron', expected superball, prism"),
    ({"model": 3}, OptionError, "model is 3, expected superball, prism, a .toml file or a TensegrityModel"),
    ({"simulator_options": {"colour": 1}}, OptionError, "'colour'.*contact"),
    ({"target_speed": (2.0, 1.0)}, OptionError, "target_speed"),
    ({"target_speed": -1.0}, OptionError, "target_speed"),
    ({"target_speed": "fast"}, OptionError, "target_speed is 'fast'"),
    ({"heading": "east"}, OptionError, r"heading is 'east', expected a number \[rad\]"),
    ({"heading": float("nan")}, OptionError, "heading is nan"),
    ({"control_weight": -1.0}, OptionError, "control_weight is -1.0, expected a number >= 0"),
    ({"control_period": "0.1"}, OptionError, "control_period is '0.1'"),
    ({"control_period": None}, OptionError, "control_period is None"),
    ({"randomize": "friction"}, OptionError, "randomize is 'friction'.*low, high"),
    ({"randomize": {"friction": ("a", "b")}}, ParameterError, r"randomize\['friction'\] is"),
    ({"simulator_options": "paper"}, OptionError, "simulator_options is 'paper', expected a mapping"),
    ({"simulator_options": {"dt": 1e-3}}, OptionError, "dt, model and device are keywords of their own"),
    ({"dt": "1e-3"}, OptionError, r"dt is '1e-3', expected a number \[s\] > 0"),
    ({"render_mode": "ansi"}, OptionError, "render_mode is 'ansi'"),
]


@pytest.mark.parametrize(
    ("env_id", "keywords", "error", "message"),
    [
        (CRAWL, {"gravity": "moon"}, OptionError, "gravity is 'moon'"),
        (CRAWL, {"actuated": ()}, OptionError, "actuated is empty"),
        (CRAWL, {"actuated": "678"}, StructureError, r"actuated holds '6', expected numbers of cables, 0 \.\.\. 8"),
        (CRAWL, {"actuated": (6.5,)}, StructureError, "actuated holds 6.5"),
        (WAYPOINT, {"num_waypoints": 2.5}, OptionError, "num_waypoints is 2.5, expected a whole number >= 1"),
        (WAYPOINT, {"radius": 0}, OptionError, "radius is 0"),
        (WAYPOINT, {"leg": (0.0, 1.0)}, OptionError, "leg is 0"),
        (TERRAIN, {"ground_seed": "a"}, OptionError, "ground_seed is 'a'"),
        (TERRAIN, {"level": 4}, OptionError, r"level is 4, expected a number in \[0, 3\]"),
    ],
)
def test_bad_keywords_of_one_task(env_id, keywords, error, message):
    with pytest.raises(error, match=message):
        make(env_id, **keywords)


def test_a_file_with_a_bad_simulator_table_is_refused(tmp_path):
    (tmp_path / "fit.toml").write_text("simulator = 3\n[constants]\nrod_mass = 10.0\n")
    with pytest.raises(FileFormatError, match=r"simulator is 3, expected a table \[simulator\]"):
        make(ROLL, params=tmp_path / "fit.toml")


def test_numbers_of_numpy_are_numbers():
    env = make(ROLL, sensor_noise=np.float32(0.1), action_delay=np.int64(1), heading=np.float64(1.0))
    assert env.reset(seed=0)[0].shape == (100,)


def test_a_wrong_action_is_described_as_the_caller_gave_it():
    env = make(ROLL)
    env.reset(seed=0)
    with pytest.raises(ShapeError, match=r"action has shape \(23,\), expected \(24,\)"):
        env.step(np.zeros(23))


@pytest.mark.parametrize(("keywords", "error", "message"), BAD, ids=[str(b[0])[:40] for b in BAD])
def test_bad_keywords(keywords, error, message):
    with warnings.catch_warnings(), pytest.raises(error, match=message) as caught:
        warnings.simplefilter("ignore")  # Gymnasium warns of unknown render modes first
        make(ROLL, **keywords)
    assert isinstance(caught.value, SoftgymError)


def test_constants_of_the_other_backend_are_refused():
    twin = make(CRAWL, backend="mujoco").unwrapped.simulator.default_parameters
    with pytest.raises(ParameterError, match=r"TwinParameters.*TensegrityParameters"):
        make(CRAWL, params=twin)
    with pytest.raises(ParameterError, match=r"3 rows.*1"):
        make(CRAWL, params=make(CRAWL).unwrapped.simulator.default_parameters.replace(rod_mass=np.full(3, 9.0)))


@pytest.mark.parametrize(
    ("env_id", "options", "error", "message"),
    [
        (ROLL, {"colour": 1}, OptionError, "unknown option 'colour'; allowed are state, constants, velocity"),
        (ROLL, {"level": 1}, OptionError, "'level'"),
        (ROLL, {"velocity": [1.0, 2.0, 3.0]}, OptionError, "'velocity'"),
        (ROLL, {"velocity": [np.nan, 0.0]}, OptionError, "'velocity'"),
        (ROLL, {"state": np.zeros(3)}, ShapeError, r"option 'state' has shape \(3,\), expected \(102"),
        (ROLL, {"state": np.full(102, np.nan)}, ShapeError, "option 'state' holds NaN"),
        (ROLL, {"constants": {"colour": 1.0}}, ParameterError, "'colour'"),
        (ROLL, {"constants": {"rod_mass": -1.0}}, ParameterError, "rod_mass"),
        (ROLL, {"constants": {"rod_mass": [1.0, 2.0]}}, ShapeError, "'rod_mass'"),
        (ROLL, {"constants": 3}, OptionError, "'constants' is 3"),
        (WAYPOINT, {"goal": np.zeros((9, 2))}, OptionError, "9 waypoints, at most 3"),
        (WAYPOINT, {"goal": "there"}, OptionError, "'goal' is 'there'"),
        (TERRAIN, {"level": 9}, OptionError, "level is 9"),
    ],
)
def test_bad_options(env_id, options, error, message):
    env = make(env_id)
    with pytest.raises(error, match=message):
        env.reset(seed=0, options=options)
    env.reset(seed=0, options=None)
    env.reset(seed=0, options={})


@pytest.mark.parametrize("action", [np.zeros(2), np.zeros((1, 3)), [0.0, np.nan, 0.0], "left", None, [[1], [2, 3]]])
def test_bad_actions(action):
    env = make(CRAWL).unwrapped
    env.reset(seed=0)
    before = env.get_state()
    with pytest.raises(ShapeError, match="action"):
        env.step(action)
    after = env.get_state()
    assert after.pop("rng") == before.pop("rng")
    equal(after, before)


def test_actions_out_of_range_are_clipped():
    ends = []
    for action in ([5.0, -5.0, np.inf], [1.0, -1.0, 1.0]):
        env = make(CRAWL).unwrapped
        env.reset(seed=0)
        env.step(np.array(action))
        ends.append(env.state)
    np.testing.assert_array_equal(*ends)


def test_bad_saved_states_and_batches():
    env = make(CRAWL).unwrapped
    with pytest.raises(gym.error.ResetNeeded):
        env.step(np.zeros(3))
    env.reset(seed=0)
    saved = env.get_state()
    with pytest.raises(ShapeError, match="saved 'state'"):
        make(ROLL).unwrapped.set_state(saved)
    with pytest.raises(OptionError, match="no entry 'queue'"):
        env.set_state({name: value for name, value in saved.items() if name != "queue"})
    with pytest.raises(OptionError, match="num_envs is 0"):
        gym.make_vec(CRAWL, num_envs=0)
    with pytest.raises(OptionError, match="autoreset_mode is 'never'"):
        gym.make_vec(CRAWL, num_envs=2, autoreset_mode="never")
    with pytest.raises(OptionError, match=r"1 seeds.*2 rows"):
        gym.make_vec(CRAWL, num_envs=2).reset(seed=[1])
    with pytest.raises(ShapeError, match=r"action has shape \(3,\), expected \(2, 3\)"):
        envs = gym.make_vec(CRAWL, num_envs=2)
        envs.reset()
        envs.step(np.zeros(3))


# --- What the tensegrity tasks mean ------------------------------------------------------------------------------------


def random_state(model, seed=0):
    """Any state: rods anywhere, turning and flying."""
    rng = np.random.default_rng(seed)
    state = model.state_from_nodes(model.nodes)[None]
    dx = rng.standard_normal((1, model.layout.n))
    return model.layout.retract(state, dx)


def test_observed_nodes_are_those_of_the_model():
    """Positions and velocities of the nodes, by the model's own geometry and by differences along the motion."""
    model = superball()
    state = random_state(model)
    angle = 0.7
    heading = np.array([[np.cos(angle), np.sin(angle)]])
    context = np.zeros((1, len(FRAME_NAMES)))
    context[:, HEADING], context[:, COM], context[:, HEIGHT] = heading, model.center_of_mass(state), 1.0
    out = Body(model).observer((), len(FRAME_NAMES))(state, context)
    observed = out[0, :72].reshape(12, 6)
    world_to_command = np.array([[np.cos(angle), np.sin(angle), 0], [-np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
    nodes = model.node_positions(state)[0] - model.center_of_mass(state)
    np.testing.assert_allclose(observed[:, :3], nodes @ world_to_command.T, atol=1e-12)
    epsilon = 1e-6
    flow = np.zeros((2, model.layout.n))
    position, _, velocity, spin, _ = model.split(state[0])
    blocks = np.concatenate([velocity, spin, np.zeros_like(position), np.zeros_like(position)], axis=1).ravel()
    flow[:, : len(blocks)] = np.array([[-epsilon], [epsilon]]) * blocks
    ends = model.node_positions(model.layout.retract(np.repeat(state, 2, axis=0), flow))
    rates = (ends[1] - ends[0]) / (2 * epsilon)
    np.testing.assert_allclose(observed[:, 3:], rates @ world_to_command.T, atol=1e-7)
    assert out[0, 96] == 1.0


@pytest.mark.parametrize("env_id", [ROLL, CRAWL, WAYPOINT])
def test_a_robot_turned_with_its_command_sees_and_earns_the_same(env_id):
    env = make(env_id).unwrapped
    env.reset(seed=0)
    task, model = env.task, env.simulator.model
    angle = 1.1
    c, s = np.cos(angle), np.sin(angle)
    goal = np.array([2.0, 1.0])
    option = "goal" if env_id == WAYPOINT else "velocity"
    state = env.state
    state[:3] += 0.1
    there = model.move(state, rotation=np.array([0.0, 0.0, angle]))
    center = model.center_of_mass(state)[:2]
    turned = np.array([c * goal[0] - s * goal[1], s * goal[0] + c * goal[1]])
    chosen = [goal + center, turned + center] if env_id == WAYPOINT else [goal, turned]
    results = []
    for x, g in zip((state, there), chosen, strict=True):
        observation, _ = env.reset(seed=0, options={"state": x, option: g})
        context = env.episodes.context
        moved = x[None].copy()
        later = task.update(context, moved)
        terms = task.reward(x[None], moved, np.zeros((1, model.nu)), context, later)
        results.append(np.concatenate([observation, [float(t[0]) for t in terms.values()]]))
    np.testing.assert_allclose(results[1], results[0], atol=2e-6)


def test_roll_reward_is_the_papers_cost():
    """[Wang2020] V-C: weights (1, 0.5, 0.1) on the squared error to the target (1, 0, 0) m/s."""
    env = make(ROLL, control_weight=0.0).unwrapped
    env.reset(seed=0)
    for action in actions_of(env, 5):
        _, reward, *_ = env.step(action)
        error = env.simulator.model.com_velocity(env.state) - np.array([1.0, 0.0, 0.0])
        assert reward == pytest.approx(-error @ np.diag([1.0, 0.5, 0.1]) @ error, rel=1e-12)


def test_control_cost_is_the_mean_square():
    env = make(CRAWL, control_weight=2.0).unwrapped
    env.reset(seed=0)
    assert env.step(np.array([0.5, -1.0, 0.0]))[4]["reward_control"] == pytest.approx(-2.0 * 1.25 / 3, rel=1e-12)


def push(env, velocity, seconds):
    """Slide the robot through the air without physics: states as if it moved at `velocity` [m/s]."""
    state, context = env.episodes.state, env.episodes.context
    for _ in range(round(seconds / env.task.control_period)):
        state = env.simulator.model.move(state[0], translation=np.array([*velocity, 0.0]) * env.task.control_period)[None]
        context = env.task.update(context, state)
    return state, context


@pytest.mark.parametrize(
    ("velocity", "seconds", "expected"),
    [
        ((0.6, 0.0), 3.0, True),
        ((0.6, 0.0), 1.5, False),
        ((0.4, 0.0), 3.0, False),
        ((0.6, 0.7), 3.0, False),
        ((-0.6, 0.0), 3.0, False),
    ],
)
def test_roll_success_is_what_the_sentence_says(velocity, seconds, expected):
    env = make(ROLL).unwrapped
    env.reset(seed=0)
    assert "2 s" in env.task.success_definition
    assert env.task.success(*push(env, velocity, seconds)).tolist() == [expected]


def test_waypoints_are_visited_in_order_and_progress_adds_up():
    env = make(WAYPOINT, control_weight=0.0).unwrapped
    env.reset(seed=0)
    center = env.simulator.model.center_of_mass(env.state)
    goals = center[:2] + np.array([[2.0, 0.0], [2.0, 2.0]])
    env.reset(seed=0, options={"state": env.state, "goal": goals})
    state, before = env.episodes.state, env.episodes.context
    terms = {"progress": 0.0, "reached": 0.0, "control": 0.0}
    reached = []
    for velocity in [(1.0, 0.0)] * 16 + [(0.0, 1.0)] * 18:
        moved = env.simulator.model.move(state[0], translation=np.array([*velocity, 0.0]) * 0.1)[None]
        after = env.task.update(before, moved)
        for name, value in env.task.reward(state, moved, np.zeros((1, 24)), before, after).items():
            terms[name] += float(value[0])
        state, before = moved, after
        reached.append(float(env.task.measure(state, after)["reached"][0]))
    # 2 m to the first, of which 0.5 m (the radius) remain; then what is left of the way to the second.
    first = 2.0 - 0.5
    start = np.hypot(0.5, 2.0)
    end = np.linalg.norm(env.simulator.model.center_of_mass(state[0])[:2] - goals[1])
    assert reached.index(1.0) == 14 and reached.index(2.0) > 16
    assert terms["reached"] == 2.0
    assert terms["progress"] == pytest.approx(first + start - end, abs=1e-9)
    assert env.task.success(state, before).tolist() == [True]


def test_terrain_is_felt_where_it_is():
    env = make(TERRAIN, heading=0.3, level=2.0).unwrapped
    observation, _ = env.reset(seed=3)
    ground = [o for o, e in zip(observation, env.task.entries, strict=True) if e.name.startswith("ground")]
    terrain = env.simulator.model.terrain
    x, y = env.simulator.model.center_of_mass(env.state)[:2]
    angles = 0.3 + np.deg2rad(45.0 * np.arange(8))
    expected = terrain.height(x + np.cos(angles), y + np.sin(angles), 2.0) - terrain.height(x, y, 2.0)
    np.testing.assert_allclose(ground, expected, atol=1e-6)


def test_stable_faces():
    """The icosahedron stands on all its 20 faces, in a triangle of nodes; the prism stands upright on both triangles."""
    model = superball()
    faces = stable_faces(model)
    assert len(faces) == 20
    for turn in faces:
        nodes = lie.rotate(turn, model.nodes)
        assert (nodes[:, 2] < nodes[:, 2].min() + 1e-5).sum() == 3
    up = lie.rotate(stable_faces(prism()), np.array([0.0, 0.0, 1.0]))
    assert {1, -1} <= set(np.round(up[:, 2], 6).tolist())


def test_a_users_structure_can_be_driven(tmp_path):
    model = prism()
    nodes = "\n".join(f"n{i} = {list(map(float, xyz))}" for i, xyz in enumerate(model.nodes))
    rods = "\n".join(f'[[rods]]\nnodes = ["n{2 * r}", "n{2 * r + 1}"]' for r in range(3))
    cables = "\n".join(f'[[cables]]\nnodes = ["n{a}", "n{b}"]' for a, b in model.cables)
    path = tmp_path / "robot.toml"
    path.write_text(f'name = "mine"\n[nodes]\n{nodes}\n{rods}\n{cables}\n')
    env = make(ROLL, model=str(path))
    env.reset(seed=0)
    assert env.action_space.shape == (9,)
    assert np.isfinite(env.step(env.action_space.sample())[1])


def test_flat_slope_level_is_an_inclined_plane():
    from softgym_envs.tensegrity.build import uneven_ground

    x = np.linspace(-9, 9, 7)
    inclined = Terrain.slope(np.deg2rad(5.0))
    np.testing.assert_allclose(uneven_ground("slope").height(x, 0.3 * x), inclined.height(x, 0.3 * x), atol=1e-12)


def test_pictures():
    env = make(ROLL, render_mode="rgb_array")
    env.reset(seed=0)
    first, again = env.render(), env.render()
    assert first.dtype == np.uint8 and first.ndim == 3 and first is not again
    np.testing.assert_array_equal(first, again)
    env.step(np.ones(24))
    assert (env.render() != first).any()
    env.close()
    env.close()
    envs = gym.make_vec(CRAWL, num_envs=2, render_mode="rgb_array")
    envs.reset(seed=0)
    assert len(envs.render()) == 2
    envs.close()
    human = make(CRAWL, render_mode="human")
    human.reset(seed=0)
    human.step(np.zeros(3))
    assert human.render() is None
    human.close()


def spec_of(room: str = "tensegrity", dt: float = 1e-3, **options: str) -> dict[str, object]:
    return SimulatorSpec(room, dt, options={"contact": "patch", **options}).table()


def test_params_file_brings_the_options_it_was_fitted_with(tmp_path: Path) -> None:
    path = TensegrityParameters(friction=0.5).save(tmp_path / "fit.toml", simulator=spec_of(dt=5e-4))
    simulator = gym.make("TensegrityRoll-v0", params=path).unwrapped.simulator
    assert (simulator.contact, simulator.dt) == ("patch", 5e-4)


def test_params_file_of_another_simulator_is_refused(tmp_path: Path) -> None:
    """In one sentence that says what differs; constants given as an object are the user's own word."""
    path = TensegrityParameters(friction=0.5).save(tmp_path / "fit.toml", simulator=spec_of())
    for keywords, message in (
        ({"simulator_options": {"contact": "paper"}}, "contact = 'patch', here it is 'paper'"),
        ({"dt": 5e-4}, r"dt = 0.001 s, this simulator has 0.0005 s"),
    ):
        with pytest.raises(ParameterError, match=message):
            gym.make("TensegrityRoll-v0", params=path, **keywords)
    simulator = gym.make("TensegrityRoll-v0").unwrapped.simulator
    TensegrityParameters().save(path, simulator=SimulatorSpec.of(simulator, "superball").table())
    gym.make("TensegrityTerrain-v0", params=path)  # another ground changes no constant
    with pytest.raises(ParameterError, match=r"another (cables|nodes) \(model superball\)"):
        gym.make("TensegrityCrawl-v0", params=path)
    gym.make("TensegrityCrawl-v0", params=TensegrityParameters.load(path))
    TensegrityParameters().save(path, simulator=spec_of(room="vine"))
    with pytest.raises(ParameterError, match="room 'vine', this is 'tensegrity'"):
        gym.make("TensegrityRoll-v0", params=path)
    TensegrityParameters().save(path, simulator={"contact": "patch"})
    with pytest.raises(FileFormatError, match=r"put its entries into \[simulator.options\]"):
        gym.make("TensegrityRoll-v0", params=path)
