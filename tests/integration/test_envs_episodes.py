"""What an episode is made of: parameters, noise, delay, disturbance, keywords, actions, saved states."""

import dataclasses
import functools
import inspect
import itertools
import re
import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from helpers import equal

import softgym_envs  # noqa: F401  (registers the ids)
from softgym_envs.core.errors import (
    FileFormatError,
    FitWarning,
    OptionError,
    ParameterError,
    ShapeError,
    SimulationWarning,
    SoftgymError,
)
from softgym_envs.core.spec import SimulatorSpec
from softgym_envs.core.task import load
from softgym_envs.envs.settings import Settings
from softgym_envs.systems import system, system_of_task, systems, tasks
from softgym_envs.systems.tensegrity.parameters import TensegrityParameters

ROLL, CRAWL = "TensegrityRoll-v0", "TensegrityCrawl-v0"


# --- Parameters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["native", *system("tensegrity").ground_truths])
def test_constants_from_object_file_and_options(backend, tmp_path):
    kind = gym.make(CRAWL, backend=backend).unwrapped.simulator.default_parameters
    chosen = kind.replace(cable_stiffness=1.2e4, gravity=3.0)
    path = chosen.save(tmp_path / "fit.toml")
    env, filed = (gym.make(CRAWL, backend=backend, params=p).unwrapped for p in (chosen, str(path)))
    np.testing.assert_array_equal(env.reset(seed=0)[0], filed.reset(seed=0)[0])
    table = env.episodes.parameters
    assert (table.cable_stiffness, table.gravity) == (1.2e4, 0.981)  # the id's gravity wins over the file
    _, info = env.reset(seed=0, options={"parameters": {"cable_stiffness": 9e3}})
    assert info["parameters"]["cable_stiffness"] == 9e3
    assert "parameters" not in env.reset(seed=0)[1]
    assert gym.make(CRAWL, backend=backend, gravity=1.5).unwrapped.episodes.nominal.gravity == 1.5


def test_randomised_constants_are_drawn_per_row_and_episode():
    interval = (8e3, 1.2e4)
    envs = gym.make_vec(CRAWL, num_envs=64, randomize={"cable_stiffness": interval})
    draws = np.concatenate([envs.reset(seed=s)[1]["parameters"]["cable_stiffness"] for s in (0, 100)])
    assert len(np.unique(draws)) == 128
    assert interval[0] <= draws.min() and draws.max() <= interval[1]
    # Log-uniform (the constant's scale): mean of the log within five standard errors of the middle.
    logs = np.log(draws)
    span = np.log(interval[1] / interval[0])
    assert abs(logs.mean() - np.log(interval).mean()) < 5 * span / np.sqrt(12 * len(draws))
    assert "parameters" in envs.step(np.zeros((64, 3)))[4]


def test_a_custom_distribution_is_used():
    class Heavy:
        def sample(self, rng, nominal):
            return {"rod_mass": nominal.rod_mass + rng.integers(1, 3)}

    env = gym.make(CRAWL, randomize=Heavy()).unwrapped
    masses = {env.reset(seed=s)[1]["parameters"]["rod_mass"] for s in range(12)}
    assert masses == {11.0, 12.0}


def test_constants_of_the_other_backend_are_refused():
    mujoco_model = gym.make(CRAWL, backend="mujoco").unwrapped.simulator.default_parameters
    with pytest.raises(ParameterError, match=r"MujocoParameters.*TensegrityParameters"):
        gym.make(CRAWL, params=mujoco_model)
    with pytest.raises(ParameterError, match=r"3 rows.*1"):
        gym.make(CRAWL, params=gym.make(CRAWL).unwrapped.simulator.default_parameters.replace(rod_mass=np.full(3, 9.0)))


@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_a_constant_that_is_named_wins_over_the_task(backend):
    """What a file says of it does not, and what a mapping does not name stays the task's."""
    for env_id, name, value in ((CRAWL, "gravity", 5.0), ("TensegrityTerrain-v0", "terrain_scale", 2.0)):
        env = gym.make(env_id, backend=backend, params={name: value}).unwrapped
        env.reset(seed=0)
        assert getattr(env.episodes.parameters, name) == value
    other = gym.make(CRAWL, backend=backend, params={"friction": 0.4}).unwrapped.episodes.nominal
    assert (other.gravity, other.friction) == (0.981, 0.4)


def spec_of(system: str = "tensegrity", dt: float = 1e-3, **options: str) -> dict[str, object]:
    return SimulatorSpec(system, dt, options={"contact": "patch", **options}).table()


def test_params_file_brings_the_options_it_was_fitted_with(tmp_path: Path) -> None:
    path = TensegrityParameters(friction=0.5).save(tmp_path / "fit.toml", simulator=spec_of(dt=5e-4))
    simulator = gym.make("TensegrityRoll-v0", params=path).unwrapped.simulator
    assert (simulator.contact, simulator.dt) == ("patch", 5e-4)


def test_params_file_of_another_simulator_is_refused(tmp_path: Path) -> None:
    """In one sentence that says what differs; parameters given as an object are the user's own word."""
    path = TensegrityParameters(friction=0.5).save(tmp_path / "fit.toml", simulator=spec_of())
    for keywords, message in (
        ({"options": {"contact": "paper"}}, "contact = 'patch', here it is 'paper'"),
        ({"dt": 5e-4}, r"dt = 0.001 s, this simulator has 0.0005 s"),
    ):
        with pytest.raises(ParameterError, match=message):
            gym.make("TensegrityRoll-v0", params=path, **keywords)
    simulator = gym.make("TensegrityRoll-v0").unwrapped.simulator
    TensegrityParameters().save(path, simulator=SimulatorSpec.of(simulator, "superball").table())
    gym.make("TensegrityTerrain-v0", params=path)  # another ground changes no parameter
    with pytest.raises(ParameterError, match=r"another value of (cables|nodes) \(model superball\)"):
        gym.make("TensegrityCrawl-v0", params=path)
    gym.make("TensegrityCrawl-v0", params=TensegrityParameters.load(path))
    TensegrityParameters().save(path, simulator=spec_of(system="vine"))
    with pytest.raises(ParameterError, match="system 'vine', this is 'tensegrity'"):
        gym.make("TensegrityRoll-v0", params=path)
    TensegrityParameters().save(path, simulator={"contact": "patch"})
    with pytest.raises(FileFormatError, match=r"put its entries into \[simulator.options\]"):
        gym.make("TensegrityRoll-v0", params=path)


def test_a_file_with_a_bad_simulator_table_is_refused(tmp_path):
    (tmp_path / "fit.toml").write_text("simulator = 3\n[parameters]\nrod_mass = 10.0\n")
    with pytest.raises(FileFormatError, match=r"simulator is 3, expected a table \[simulator\]"):
        gym.make(ROLL, params=tmp_path / "fit.toml")


def test_constants_that_their_own_fit_warns_of_are_not_taken_in_silence(tmp_path: Path) -> None:
    path = TensegrityParameters().save(tmp_path / "fit.toml", provenance={"do_not_use": "the fit says: not converged"})
    with pytest.warns(FitWarning, match=r"fit.toml: the fit says: not converged"):
        gym.make(ROLL, params=path)
    TensegrityParameters().save(path, provenance={"unexplained": "the fit says: model mismatch: residuals are not noise"})
    with pytest.warns(FitWarning, match=r"fit.toml: the fit says: model mismatch"):
        gym.make(ROLL, params=path)
    TensegrityParameters().save(path, provenance={"method": "one_step"})
    with warnings.catch_warnings():
        warnings.simplefilter("error", FitWarning)
        gym.make(ROLL, params=path)


# --- Noise, delay, disturbance ----------------------------------------------------------------------------------------


def test_sensor_noise_has_the_stated_size():
    env = gym.make(ROLL, sensor_noise=0.01).unwrapped
    clean = gym.make(ROLL).unwrapped
    state = clean.reset(seed=0) and clean.state
    noise = np.array([env.reset(seed=s, options={"state": state})[0] for s in range(200)])
    noise -= clean.reset(seed=0, options={"state": state})[0]
    scale = np.array([entry.scale for entry in env.task.entries])
    deviation = (noise / scale).std()
    assert deviation == pytest.approx(0.01, rel=5 / np.sqrt(2 * noise.size))
    np.testing.assert_array_equal(env.state, state)


def test_delayed_actions_take_effect_later():
    plain, late = gym.make(CRAWL).unwrapped, gym.make(CRAWL, action_latency=0.2).unwrapped
    plain.reset(seed=0)
    late.reset(seed=0)
    action = np.ones(3)
    for k, expected in enumerate([0.0, 0.0, 1.0]):
        late.step(action)
        plain.step(expected * action)
        np.testing.assert_array_equal(late.state, plain.state, err_msg=f"step {k}")


def test_disturbance_kicks_velocities_by_the_stated_size():
    """Kicks are the difference to an undisturbed step over one physics step from rest in the air."""
    env = gym.make(ROLL, disturbance=0.2, control_period=1e-3).unwrapped
    calm = gym.make(ROLL, control_period=1e-3).unwrapped
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


@pytest.mark.parametrize("env_id", ["LoopPeg-v0", "LoopReach-v0", "UpperBodyReach-v0", "VineGrow-v0", "SlidingBlock-v0"])
@pytest.mark.parametrize("value", [1e300, -1e30, 2e9])
def test_no_episode_begins_from_a_state_of_absurd_size(env_id, value):
    """The task's memory held NaN."""
    env = gym.make(env_id).unwrapped
    env.reset(seed=0)
    before = env.get_state()
    for k in range(0, env.simulator.nx, 7):
        state = env.state
        state[k] = value
        with pytest.raises(OptionError, match=rf"'state': {re.escape(env.simulator.state_names[k])} = .*, allowed is"):
            env.reset(options={"state": state})
    np.testing.assert_array_equal(env.get_state()["context"], before["context"])


@pytest.mark.parametrize("dt", [1e9, 1.5, 1e300])
@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_no_physics_step_is_longer_than_a_second(dt, backend):
    with pytest.raises(OptionError, match=r"dt is .*, expected a number \[s\] > 0 and <= 1"):
        system("block").simulator(dt=dt, backend=backend)
    with pytest.raises(OptionError, match=r"expected a number \[s\] > 0 and <= 1"):
        gym.make("SlidingBlock-v0", dt=dt, control_period=dt, backend=backend)


def test_a_fit_on_the_ground_truth_is_warned_of(tmp_path):
    """It replaces what the fit is to be tested on; parameters by name, or a file of the ground truth's own, are meant."""
    engine, ground_truth = (system("arm").simulator(backend=backend) for backend in ("native", "mujoco"))
    fit = engine.default_parameters.save(tmp_path / "fit.toml", simulator=SimulatorSpec.of(engine).table())
    own, make = ground_truth.default_parameters.save(tmp_path / "own.toml"), functools.partial(gym.make, "ArmReach-v0")
    for given in (fit, ground_truth.default_parameters):
        with pytest.warns(SimulationWarning, match="params replace the parameters of backend 'mujoco'") as told:
            make(backend="mujoco", params=given)
        assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(params=fit)
        make(backend="mujoco", params={"payload": 0.5})
        make(backend="mujoco", params=own)


@pytest.mark.parametrize("name", ["rod", "colour"])
def test_names_of_the_structure_in_a_fit_are_checked(tmp_path, name):
    engine = system("tensegrity").simulator("prism")
    table = SimulatorSpec.of(engine).table()
    table["structure"][name] = "1"
    fit = engine.default_parameters.save(tmp_path / "fit.toml", simulator=table)
    with pytest.raises(ParameterError, match=rf"\[simulator.structure\] has '{name}', the model here has actuated, .*rods"):
        gym.make(CRAWL, params=fit)


# --- Keywords, actions, saved states ----------------------------------------------------------------------------------


BAD = [
    ({"backend": "bullet"}, OptionError, "backend is 'bullet'.*native, mujoco"),
    ({"device": "tpu"}, OptionError, "device is 'tpu'"),
    ({"backend": "mujoco", "device": "cuda"}, OptionError, "device is 'cuda'"),
    ({"nonsense": 1}, OptionError, "got an unexpected keyword argument 'nonsense'; allowed are .*randomize"),
    ({"obs_mode": "pixels"}, OptionError, "obs_mode is 'pixels'.*sensors, state"),
    ({"control_period": 0.00015}, OptionError, "control_period is 0.00015 s.*0.001"),
    ({"control_period": -1.0}, OptionError, "control_period is -1.0"),
    ({"action_latency": -1}, OptionError, r"action_latency is -1, expected a number \[s\] >= 0"),
    ({"action_latency": 1000.0}, OptionError, "action_latency is 1000.0 s, allowed are 1000 control steps, 100 s"),
    ({"action_latency": (0.2, 0.1)}, OptionError, r"action_latency is \(0.2, 0.1\), expected low <= high"),
    ({"observation_latency": (0.0, 0.1, 0.2)}, OptionError, r"observation_latency is .*expected a number, or \(low, high\)"),
    ({"observation_rate": "fast"}, OptionError, "observation_rate is 'fast'"),
    ({"sensor_bias": {"elbow": 0.1}}, OptionError, "sensor_bias names 'elbow'; sensors are rod0.x, .*units m"),
    ({"sensor_bias": {"rod0.q*": 0.1}}, OptionError, "sensor_bias names 'rod0.q.*rod0.qw is part of a quaternion"),
    ({"sensor_gain": {"m": "big"}}, OptionError, r"sensor_gain\['m'\] is 'big'"),
    ({"sensor_noise": float("nan")}, OptionError, "sensor_noise is nan"),
    ({"disturbance": "big"}, OptionError, "disturbance is 'big'"),
    ({"randomize": {"colour": (0, 1)}}, ParameterError, "'colour'"),
    ({"randomize": {"rod_mass": (0, 1)}}, ParameterError, r"randomize\['rod_mass'\].*inside"),
    ({"randomize": {"rod_mass": (2, 1)}}, ParameterError, r"randomize\['rod_mass'\]"),
    ({"params": "no/such/file.toml"}, FileFormatError, "no/such/file.toml"),
    ({"model": "no/such/file.toml"}, FileFormatError, "no/such/file.toml"),
    ({"model": "octahedron"}, OptionError, "model is 'octahedron', expected superball, prism"),
    ({"model": 3}, OptionError, "model is 3, expected superball, prism, a .toml file or a TensegrityModel"),
    ({"options": {"colour": 1}}, OptionError, "'colour'.*contact"),
    ({"target_speed": (2.0, 1.0)}, OptionError, "target_speed"),
    ({"target_speed": -1.0}, OptionError, "target_speed"),
    ({"target_speed": "fast"}, OptionError, "target_speed is 'fast'"),
    ({"target_speed": True}, OptionError, "target_speed is True"),
    ({"heading": "east"}, OptionError, r"heading is 'east', expected a number \[rad\]"),
    ({"heading": float("nan")}, OptionError, "heading is nan"),
    ({"control_weight": -1.0}, OptionError, "control_weight is -1.0, expected a number >= 0"),
    ({"control_period": "0.1"}, OptionError, "control_period is '0.1'"),
    ({"control_period": None}, OptionError, "control_period is None"),
    ({"randomize": "friction"}, OptionError, "randomize is 'friction'.*low, high"),
    ({"params": {"friction": True}}, ParameterError, "friction = True is no number"),
    ({"randomize": {"friction": (False, True)}}, ParameterError, r"randomize\['friction'\] is"),
    ({"randomize": {"friction": ("a", "b")}}, ParameterError, r"randomize\['friction'\] is"),
    ({"options": "paper"}, OptionError, "options is 'paper', expected a mapping"),
    ({"options": {"dt": 1e-3}}, OptionError, "dt, model and device are keywords of their own"),
    ({"dt": "1e-3"}, OptionError, r"dt is '1e-3', expected a number \[s\] > 0"),
    ({"render_mode": "ansi"}, OptionError, "render_mode is 'ansi'"),
]


@pytest.mark.parametrize(("keywords", "error", "message"), BAD, ids=[str(b[0])[:40] for b in BAD])
def test_bad_keywords(keywords, error, message):
    with warnings.catch_warnings(), pytest.raises(error, match=message) as caught:
        warnings.simplefilter("ignore")  # Gymnasium warns of unknown render modes first
        gym.make(ROLL, **keywords)
    assert isinstance(caught.value, SoftgymError)


BAD_OF_OTHERS = [
    ("UpperBodyReach-v0", {"muscles": "no"}, "muscles is 'no', expected True or False"),
    ("VineNavigate-v0", {"clutter": "paper", "level": 2}, "level is 2, but these obstacles have no levels"),
]


@pytest.mark.parametrize(("env_id", "keywords", "message"), BAD_OF_OTHERS)
def test_bad_keywords_of_other_tasks(env_id, keywords, message):
    with pytest.raises(OptionError, match=message):
        gym.make(env_id, **keywords)


@pytest.mark.parametrize(
    ("env_id", "keywords", "message"),
    [
        ("VineGrow-v0", {"tolerance": 1e9}, r"tolerance is 1000000000.0, expected a number [m] > 0 and <= 1.2"),
        ("VineWall-v0", {"tolerance": 5.0}, r"tolerance is 5.0, expected a number [m] > 0 and <= "),
        ("SlidingBlock-v0", {"tolerance": (20.0, 0.1)}, "tolerance in place is 20.0, expected a number [m] > 0 and <= 10"),
        ("SlidingBlock-v0", {"tolerance": (0.1, 4.0)}, "tolerance in angle is 4.0, expected a number [rad] > 0 and <= 3.14"),
        ("LoopReach-v0", {"tolerance": 1.0}, "tolerance is 1.0, expected a number [m] <= 0.1"),
        ("LoopBend-v0", {"tolerance": 0.1}, "tolerance is 0.1, expected a number [m] > 0 and <= 0.025"),
        ("LoopIdentify-v0", {"tolerance": 2.0}, "tolerance is 2.0, expected a number > 0 and <= 1"),
        ("LoopIdentify-v0", {"angle_noise": 4.0}, "angle_noise is 4.0, expected a number [rad] > 0 and <= 3.14"),
        ("ArmReach-v0", {"tolerance": 3.0}, "tolerance is 3.0, expected a number [rad] > 0 and <= 2.6"),
        ("UpperBodyReach-v0", {"tolerance": 3.0}, "tolerance is 3.0, expected a number [m] <= 1."),
        ("UpperBodyReach-v0", {"goal_effort": 2.0}, "goal_effort is 2.0, expected a number > 0 and <= 1"),
        ("TensegrityWaypoint-v0", {"radius": 4.0}, "radius is 4.0, expected a number [m] > 0 and <= 3"),
        ("TensegrityWaypoint-v0", {"num_waypoints": 10**9}, "num_waypoints is 1000000000, expected a whole number in [1, "),
        ("TensegrityWaypoint-v0", {"leg": (1.0, 1e9)}, "leg is 1000000000.0, expected a number [m] <= 3333"),
    ],
)
def test_numbers_beyond_what_a_keyword_can_mean_are_refused(env_id, keywords, message):
    with pytest.raises(OptionError, match=re.escape(message)):
        gym.make(env_id, **keywords)


def test_nothing_is_to_be_held_for_longer_than_an_episode(recwarn):
    """Gymnasium may lengthen the episodes of a single environment behind its back: that one warns."""
    message = "hold_time is 10 s, but an episode has 100 control steps of 0.02 s, 2 s"
    with pytest.raises(OptionError, match=message):
        gym.make_vec("ArmReach-v0", num_envs=2, hold_time=10.0)
    gym.make_vec("ArmReach-v0", num_envs=2, hold_time=10.0, max_episode_steps=500)
    gym.make("ArmHold-v0")
    gym.make_vec("ArmHold-v0", num_envs=2, max_episode_steps=8)  # a short look, at what nobody has asked for
    assert not recwarn.list
    gym.make("ArmReach-v0", hold_time=10.0)
    assert message in str(recwarn.pop().message)
    with pytest.raises(OptionError, match=r"duration is 11 s, but an episode has 200 control steps of 0\.05 s, 10 s"):
        gym.make_vec("LoopBend-v0", num_envs=2, duration=11.0)


ODD = ["x", "", True, object(), [1], {}, {"a": 1}, (1, 2, 3), (True, False), float("nan"), np.zeros(3)]
"""What hardly any keyword takes."""


@pytest.mark.parametrize("env_id", [task.id for task in tasks()])
def test_odd_keywords_are_refused_by_name_or_taken(env_id):
    """No other error comes out, and what is refused is named (of files and of parameters, what is in them).

    Keywords of every id are given to the first one of each system.
    """
    system = system_of_task(env_id)
    own = inspect.signature(load(system.task(env_id).build)).parameters
    shared = [field.name for field in dataclasses.fields(Settings)] if env_id == system.tasks[0].id else []
    for name, value in itertools.product({*own, *shared} - {"simulate", "model"}, ODD):
        try:
            gym.make(env_id, **{name: value})
        except SoftgymError as error:
            assert name in str(error) or name in ("params", "randomize"), (name, value, error)


@pytest.mark.parametrize(("name", "values"), [("handle", [(True, False)]), ("options", [0, "", False])])
def test_what_is_no_value_is_not_taken(name, values):
    for value in values:
        with pytest.raises(OptionError, match=name):
            gym.make("SlidingBlock-v0", **{name: value})


def test_numbers_of_numpy_are_numbers():
    env = gym.make(ROLL, sensor_noise=np.float32(0.1), action_latency=np.float32(0.1), heading=np.float64(1.0))
    assert env.reset(seed=0)[0].shape == (100,)


def test_a_wrong_action_is_described_as_the_caller_gave_it():
    env = gym.make(ROLL)
    env.reset(seed=0)
    with pytest.raises(ShapeError, match=r"action has shape \(23,\), expected \(24,\)"):
        env.step(np.zeros(23))


@pytest.mark.parametrize(
    "action", [np.zeros(2), np.zeros((1, 3)), [0.0, np.nan, 0.0], "left", None, [[1], [2, 3]], ["0"] * 3, [True] * 3, [1j] * 3]
)
def test_bad_actions(action):
    env = gym.make(CRAWL).unwrapped
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
        env = gym.make(CRAWL).unwrapped
        env.reset(seed=0)
        env.step(np.array(action))
        ends.append(env.state)
    np.testing.assert_array_equal(*ends)


def test_bad_saved_states_and_batches():
    env = gym.make(CRAWL).unwrapped
    with pytest.raises(gym.error.ResetNeeded):
        env.step(np.zeros(3))
    env.reset(seed=0)
    saved = env.get_state()
    with pytest.raises(ShapeError, match="saved 'state'"):
        gym.make(ROLL).unwrapped.set_state(saved)
    with pytest.raises(OptionError, match="no entry 'queue'"):
        env.set_state({name: value for name, value in saved.items() if name != "queue"})
    for broken, error, message in (
        ({"queue": np.full((1, 2, 3), 5.0)}, OptionError, "'queue' holds actions beyond"),
        ({"steps": np.array([-1.0])}, OptionError, "'steps' holds other than whole numbers"),
        ({"parameter_values": saved["parameter_values"] * -1.0}, ParameterError, "rod_mass"),
        ({"rng": [{"bit_generator": "MT19937"}]}, OptionError, "'rng' cannot be used"),
        ({"rng": [{**saved["rng"][0], "state": {"state": -1, "inc": 10**50}}]}, OptionError, "'rng' cannot be used"),
        ({"rng": 3}, ShapeError, "'rng' is 3"),
        ({"context": saved["context"] * np.nan}, ShapeError, "'context' holds NaN"),
    ):
        late = gym.make(CRAWL, action_latency=0.2).unwrapped
        late.reset(seed=1)
        late.step(np.ones(3))
        before = late.get_state()
        with pytest.raises(error, match=message):  # and nothing has changed
            late.set_state({**before, "state": before["state"] + 1.0, **broken})
        after = late.get_state()
        assert after.pop("rng") == before.pop("rng")
        equal(after, before)
    with pytest.raises(OptionError, match="no entry 'state'"):
        env.set_state(None)
    with pytest.raises(OptionError, match="num_envs is 0"):
        gym.make_vec(CRAWL, num_envs=0)
    with pytest.raises(OptionError, match="autoreset_mode is 'never'"):
        gym.make_vec(CRAWL, num_envs=2, autoreset_mode="never")
    for steps in ("3", 2.5, True, 0):
        with pytest.raises(OptionError, match=r"max_episode_steps is .*expected a whole number \[control steps\] >= 1"):
            gym.make_vec(CRAWL, num_envs=2, max_episode_steps=steps)
    with pytest.raises(OptionError, match=r"1 seeds.*2 rows"):
        gym.make_vec(CRAWL, num_envs=2).reset(seed=[1])
    for seed, message in (
        ([1, None], "seed[1] is None"),
        ([1, -2], "seed[1] is -2"),
        ([1, 2.5], "seed[1] is 2.5"),
        ("12", "seed is"),
    ):
        with pytest.raises(OptionError, match=re.escape(message)):
            gym.make_vec(CRAWL, num_envs=2).reset(seed=seed)
    with pytest.raises(ShapeError, match=r"action has shape \(3,\), expected \(2, 3\)"):
        envs = gym.make_vec(CRAWL, num_envs=2)
        envs.reset()
        envs.step(np.zeros(3))


OUT_OF_RANGE = [
    ("TensegrityCrawl-v0", {}, "motor6", 150.0, "motor6 = 150 -, allowed is .-100, 100."),
    ("VineGrow-v0", {}, "length", 5.0, "length = 5 m, allowed is .0.03, 1.2."),
    ("VineGrow-v0", {}, "length", -0.2, "length = -0.2 m"),
    ("VineGrow-v0", {}, "left0", -10e3, "left0 = -10000 Pa, allowed is .0, 20000."),
    ("ArmReach-v0", {}, "biceps", 2.0, "biceps = 2 -, allowed is .0, 1."),
    ("UpperBodyReach-v0", {"muscles": True}, -1, -0.5, "= -0.5 -, allowed is .0, 1."),
]


@pytest.mark.parametrize(("env_id", "keywords", "entry", "value", "message"), OUT_OF_RANGE)
def test_states_that_no_robot_gets_into_are_refused(env_id, keywords, entry, value, message):
    """By both entry points, and what the robot gets into passes bit for bit."""
    env = gym.make(env_id, **keywords).unwrapped
    env.reset(seed=0)
    env.step(np.ones(env.action_space.shape))
    saved, state = env.get_state(), env.state
    state[env.simulator.state_names.index(entry) if isinstance(entry, str) else entry] = value
    with pytest.raises(OptionError, match=f"option 'state': .*{message}"):
        env.reset(options={"state": state})
    with pytest.raises(OptionError, match=f"saved 'state': .*{message}"):
        env.set_state({**saved, "state": state[None]})
    env.set_state(saved)
    np.testing.assert_array_equal(env.state, saved["state"][0])
    env.reset(options={"state": saved["state"][0]})
    np.testing.assert_array_equal(env.state, saved["state"][0])


@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_quaternions_of_another_length_are_refused(backend):
    env = gym.make(CRAWL, backend=backend).unwrapped
    env.reset(seed=0)
    saved, first = env.get_state(), env.state
    halved, rounded = first.copy(), first.astype(np.float32).astype(np.float64)
    halved[3:7] *= 0.5
    with pytest.raises(ShapeError, match=r"option 'state': the quaternion rod0.qw to rod0.qz has length 0.5, expected 1"):
        env.reset(options={"state": halved})
    with pytest.raises(ShapeError, match="saved 'state': the quaternion"):
        env.set_state({**saved, "state": halved[None]})
    env.reset(options={"state": rounded})
    assert abs(np.linalg.norm(env.state[3:7]) - 1.0) < 1e-12


@pytest.mark.parametrize("env_id", [entry.id for owner in systems().values() for entry in owner.tasks[:1]])
def test_a_physics_step_that_is_far_too_small_is_refused(env_id):
    with pytest.raises(OptionError, match="at most 10000 are allowed, since nothing can interrupt them"):
        gym.make(env_id, dt=1e-8)


@pytest.mark.parametrize(("name", "side"), [("rod_mass", 0), ("cable_damping", 1), ("motor_gain", 1)])
def test_bounds_that_the_usual_step_cannot_integrate_are_named(name, side):
    env = gym.make(ROLL).unwrapped
    env.reset(seed=0, options={"parameters": {name: env.simulator.default_parameters.specs()[name].bounds[side]}})
    with pytest.warns(SimulationWarning, match=f"use a smaller dt.*dt is 0.001 s, {name} = .*usually"):
        while not env.step(np.ones(24))[4]["sim_failed"]:
            pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.step(np.ones(24))  # said once


def test_a_speed_limit_that_is_reached_is_named():
    env = gym.make("SlidingBlock-v0", disturbance=1e3).unwrapped
    env.reset(seed=0)
    with pytest.warns(SimulationWarning, match="went beyond its speed limit.*the fastest before was .* m/s"):
        while not env.step(np.ones(2))[4]["sim_failed"]:
            pass


def test_actions_given_last_are_observed():
    """Behind the task's entries, oldest first, as they were given, not as they take effect; zero at first, and saved."""
    env = gym.make(CRAWL, action_memory=2, action_latency=0.1, sensor_noise=0.1).unwrapped
    plain = gym.make(CRAWL).unwrapped
    first, _ = env.reset(seed=0)
    size = len(env.action_space.low)
    assert env.observation_space.shape == (plain.observation_space.shape[0] + 2 * size,) and (first[-2 * size :] == 0).all()
    for value in (0.25, -2.0):
        seen = env.step(np.full(size, value))[0]
    assert (seen[-2 * size :] == np.repeat(np.float32([0.25, -1.0]), size)).all() and env.observation_space.contains(seen)
    saved = env.get_state()
    after = env.step(np.zeros(size))[0]
    env.set_state(saved)
    assert (env.step(np.zeros(size))[0] == after).all()


def test_the_last_waypoint_ends_the_episode():
    """Three quarters of an episode were left to do nothing in, which earned more than the policy."""
    env = gym.make("softgym_envs:TensegrityWaypoint-v0", num_waypoints=2)
    env.reset(seed=0)
    here = env.unwrapped.simulator.model.center_of_mass(env.unwrapped.state)[..., :2].reshape(2)
    env.reset(seed=0, options={"goal": np.stack([here, here + 0.1])})
    ends = [env.step(np.zeros(env.action_space.shape))[2] for _ in range(2)]
    assert ends == [False, True]


@pytest.mark.parametrize(
    ("env_id", "goal", "bad", "told"),
    [
        ("ArmReach-v0", 1.2, 9.0, r"option 'goal' is 9.0, expected a number \[rad\] in \[0, 2.6\]"),
        ("ArmHold-v0", 1.2, "up", "option 'goal' is 'up'"),
        ("UpperBodyReach-v0", [0.3, -0.2, -0.2], [9.0, 0.0, 0.0], "allowed are coordinates within 3 m"),
        ("LoopReach-v0", [0.8, -0.2, 0.3], [0.8, -0.2], r"option 'goal' has shape \(2,\), expected \(3,\)"),
    ],
)
def test_a_goal_of_ones_own_is_the_goal(env_id, goal, bad, told):
    """Of every row; the robot begins as without it, but for the elbow, which begins at a distance from it."""
    env, envs = gym.make(f"softgym_envs:{env_id}"), gym.make_vec(f"softgym_envs:{env_id}", num_envs=2)
    env.reset(seed=3)
    begun = env.unwrapped.state.copy()
    env.reset(seed=3, options={"goal": goal})
    envs.reset(seed=3, options={"goal": goal})
    size = np.size(goal)
    for context in (env.unwrapped.context, *envs.unwrapped.context):
        np.testing.assert_allclose(context[:size], np.ravel(goal))
    assert env_id.startswith("Arm") or (env.unwrapped.state == begun).all()
    with pytest.raises((OptionError, ShapeError), match=told):
        env.reset(options={"goal": bad})
