"""Parameters: checks on construction, vectors, files, distributions; every mistake has one clear message. Procedures as data:
what is recorded for a budget, which recordings a stage fits, and every system's own. An objective's numbers stand once: the
task's reward, the planners' cost and the studies read the same ones."""

import dataclasses
import pickle
import re
from dataclasses import replace
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from sysid_systems import Spring, record

import sysid
from agents.control.cost import FeatureCost
from softgym_envs.core.errors import DataError, FileFormatError, OptionError, ParameterError, SoftgymError
from softgym_envs.core.files import read_toml
from softgym_envs.core.objective import Objective
from softgym_envs.core.parameters import Parameters, UniformParameters, param
from softgym_envs.core.procedure import EXPERIMENT, Experiment, Procedure, Stage, StageData
from softgym_envs.core.task import load
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.systems import systems
from softgym_envs.systems.rigid.dynamics import BlockSimulator, ParticleSimulator
from softgym_envs.systems.rigid.model import ParticleModel
from softgym_envs.systems.rigid.mujoco import MujocoBlock
from softgym_envs.systems.rigid.procedure import BLOCK, PARTICLES
from softgym_envs.systems.tensegrity import prism
from softgym_envs.systems.tensegrity import procedure as tensegrity
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.mujoco import MujocoTensegrity
from softgym_envs.systems.tensegrity.tasks import CRAWL, ROLL
from softgym_envs.systems.vine import VineModel
from softgym_envs.systems.vine import procedure as vine
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.mujoco import MujocoVine
from softgym_envs.systems.vine.tasks import REACH
from sysid.problem.recording_parameters import RecordingParameters


@dataclasses.dataclass(frozen=True)
class Coil(Parameters):
    stiffness: float = param(100.0, unit="N/m", bounds=(1.0, 1e4), scale="log", source="made up")
    offset: float = param(0.5, unit="m", bounds=(-1.0, 3.0))


@dataclasses.dataclass(frozen=True)
class Damper(Parameters):
    damping: float = param(1.0, unit="N s/m", bounds=(0.0, 10.0))


def raises(error, message):
    return pytest.raises(error, match=re.escape(message))


# --- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.5, 2e4, np.nan, np.inf, [10.0, np.nan]])
def test_values_out_of_bounds_are_refused(value):
    with raises(ParameterError, "allowed is [1, 10000] N/m"):
        Coil(stiffness=value)


@pytest.mark.parametrize("value", [True, "5.0", np.True_, [True, False], b"5", {}])
def test_what_is_no_number_is_refused(value):
    """True would be a stiffness of 1, "5.0" one of 5, without a word."""
    with raises(ParameterError, "is no number"):
        Coil(stiffness=value)


def test_shapes_are_checked():
    with raises(ParameterError, "stiffness has shape (1, 1), expected a scalar or (B,)"):
        Coil(stiffness=np.ones((1, 1)))
    with raises(ParameterError, "got lengths [2, 3]"):
        Coil(stiffness=np.full(2, 5.0), offset=np.zeros(3))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"default": 2.0, "bounds": (0.0, 1.0)}, "lower <= default <= upper"),
        ({"default": 0.0, "bounds": (0.0, np.inf)}, "must be finite"),
        ({"default": 0.5, "bounds": (1.0, 0.0)}, "lower <= default <= upper"),
        ({"default": 0.5, "bounds": (0.0, 1.0), "scale": "log"}, "'log' with positive bounds"),
        ({"default": 0.5, "bounds": (0.1, 1.0), "scale": "cubic"}, "scale is 'cubic'"),
    ],
)
def test_declarations_are_checked(keywords, message):
    with raises(ParameterError, message):
        param(unit="-", **keywords)


def test_unknown_names_are_listed():
    for act in (lambda: Coil().replace(strength=1.0), lambda: Coil.index("strength")):
        with raises(ParameterError, "unknown parameter 'strength'; Coil has stiffness, offset"):
            act()
    with raises(ParameterError, "unknown parameter 'mass'; Parameters has none"):
        Parameters.check_names(["mass"])


def test_errors_are_of_one_tree():
    assert issubclass(ParameterError, SoftgymError)
    assert issubclass(ParameterError, ValueError)


# --- vectors -----------------------------------------------------------------------------------------------------------


def test_vector_round_trip_scalar_and_batch():
    assert Coil.from_vector(Coil(7.0, 2.0).to_vector()) == Coil(7.0, 2.0)
    batch = Coil(stiffness=np.array([5.0, 6.0, 7.0]))
    vector = batch.to_vector()
    np.testing.assert_array_equal(vector, [[5, 0.5], [6, 0.5], [7, 0.5]])
    again = Coil.from_vector(vector)
    assert batch.batch == again.batch == 3
    assert again.row(1) == Coil(6.0, 0.5)
    np.testing.assert_array_equal(again.to_vector(), vector)


def test_from_vector_copies():
    vector = np.array([[5.0, 0.5], [6.0, 0.5]])
    parameters = Coil.from_vector(vector)
    vector[:] = 1.0
    assert parameters.row(0).stiffness == 5.0


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 2, 2), ()])
def test_from_vector_shape(shape):
    with raises(ParameterError, f"vector has shape {shape}, expected (2,) or (B, 2)"):
        Coil.from_vector(np.ones(shape))


def test_to_matrix():
    np.testing.assert_array_equal(Coil().to_matrix(2), [[100, 0.5], [100, 0.5]])
    assert Coil().to_matrix(4).flags.c_contiguous
    with raises(ParameterError, "parameters are given for 3 rows, the batch has 2"):
        Coil(stiffness=np.full(3, 2.0)).to_matrix(2)


@pytest.mark.parametrize("name", ["stiffness", "offset"])
def test_coordinates_of_a_fit(name):
    spec = Coil.specs()[name]
    values = np.linspace(*spec.bounds, 7)
    np.testing.assert_allclose(spec.decode(spec.encode(values)), values, rtol=1e-14)
    c, h = spec.encode(values), 1e-6
    differences = (spec.decode(c + h) - spec.decode(c - h)) / (2 * h)
    np.testing.assert_allclose(spec.slope(values), differences, rtol=1e-8)


# --- files -------------------------------------------------------------------------------------------------------------


def test_file_round_trip(tmp_path):
    spring = Coil(offset=-0.1).replace(stiffness=10 / 3)
    path = spring.save(tmp_path / "new" / "fit.toml", std={"stiffness": 0.25}, provenance={"data": "abc", "seed": 3})
    assert Coil.load(path) == Coil(10 / 3, -0.1)
    document = read_toml(path)
    assert document["parameters"]["stiffness"] == {"value": 10 / 3, "unit": "N/m", "std": 0.25}
    assert document["provenance"] == {"data": "abc", "seed": 3}


def test_file_by_hand(tmp_path):
    path = tmp_path / "hand.toml"
    path.write_text("[parameters]\nstiffness = 50\n")
    assert Coil.load(path) == Coil(50.0, 0.5)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("[parameters\n", FileFormatError, "is not valid TOML"),
        ("x = 1\n", FileFormatError, "unknown entry 'x'"),
        ("parameters = 3\n", FileFormatError, "has no table [parameters]"),
        ("[parameters]\nstiffness = 'soft'\n", FileFormatError, "stiffness is 'soft', expected a number"),
        ("[parameters]\nstiffness = true\n", FileFormatError, "stiffness is True"),
        ("[parameters]\nstiffness = {unit = 'N/m'}\n", FileFormatError, "stiffness is None"),
        ("[parameters]\nstiffness = {value = 5.0, unit = 'N/mm'}\n", ParameterError, "given in 'N/mm', expected 'N/m'"),
        ("[parameters]\nstiffness = 0.5\n", ParameterError, "stiffness = 0.5 N/m, allowed is [1, 10000] N/m"),
        ("[parameters]\nstiffness = nan\n", FileFormatError, "stiffness is nan, expected a number"),
        ("[parameters]\nmass = 1.0\n", ParameterError, "unknown parameter 'mass'; Coil has stiffness, offset"),
        ("kind = 'Damper'\n[parameters]\n", ParameterError, "holds Damper, this simulator takes Coil"),
    ],
)
def test_malformed_files(tmp_path, text, error, message):
    path = tmp_path / "fit.toml"
    path.write_text(text)
    with raises(error, message):
        Coil.load(path)


def test_files_that_cannot_be_read(tmp_path):
    with raises(FileFormatError, "cannot read"):
        Coil.load(tmp_path / "absent.toml")
    with raises(FileFormatError, "cannot read"):
        Coil.load(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00\x01")
    with raises(FileFormatError, "is not UTF-8 text"):
        Coil.load(tmp_path / "binary.toml")


def test_what_cannot_be_saved(tmp_path):
    with raises(ParameterError, "parameters given per row (2 rows) cannot be saved"):
        Coil(stiffness=np.full(2, 5.0)).save(tmp_path / "x.toml")
    with raises(ParameterError, "unknown parameter 'mass'"):
        Coil().save(tmp_path / "x.toml", std={"mass": 1.0})
    assert not list(tmp_path.iterdir())


# --- distributions -----------------------------------------------------------------------------------------------------


def test_uniform_parameters_follow_their_scale():
    """Median of a log-uniform constant is the geometric mean; of a uniform one the arithmetic mean."""
    rng = np.random.default_rng(1)
    spread = UniformParameters({"stiffness": (10.0, 1000.0), "offset": (0.0, 2.0)})
    draws = [spread.sample(rng, Coil()) for _ in range(4000)]
    for name, (lower, median, upper) in {"stiffness": (10.0, 100.0, 1000.0), "offset": (0.0, 1.0, 2.0)}.items():
        values = np.array([draw[name] for draw in draws])
        assert lower <= values.min() < values.max() <= upper
        assert abs(np.mean(values < median) - 0.5) < 4 * 0.5 / np.sqrt(4000)  # four standard errors of a fair coin


def test_uniform_parameters_refuse_unknown_names():
    with raises(ParameterError, "unknown parameter 'mass'"):
        UniformParameters({"mass": (1.0, 2.0)}).sample(np.random.default_rng(0), Coil())


@dataclasses.dataclass(frozen=True)
class Segments(Parameters):
    mass: float = param(1.0, unit="kg", bounds=(0.1, 10.0))
    stiffness: float = param(0.5, count=3, unit="N m/rad", bounds=(0.01, 10.0), scale="log", source="a guess")
    damping: float = param(0.1, unit="N m s/rad", bounds=(0.0, 1.0))


class TestVectors:
    """A vector is declared once; its entries are parameters, and its name stands for them."""

    names = ("stiffness0", "stiffness1", "stiffness2")

    def test_is_declared_once(self):
        assert Segments.names() == ("mass", *self.names, "damping") and Segments.columns("stiffness") == slice(1, 4)
        assert {s.unit for name, s in Segments.specs().items() if name in self.names} == {"N m/rad"}
        found = Segments(stiffness1=2.0)
        np.testing.assert_array_equal(found.stiffness, [0.5, 2.0, 0.5])
        rows = Segments.from_vector(np.tile(found.to_vector(), (4, 1)))
        assert rows.stiffness.shape == (4, 3) and pickle.loads(pickle.dumps(rows)).stiffness.shape == (4, 3)

    def test_its_name_stands_for_all_of_it(self, tmp_path):
        assert Segments().replace(stiffness=[1.0, 2.0, 3.0]).stiffness.tolist() == [1.0, 2.0, 3.0]
        assert Segments().replace(stiffness=0.7).stiffness.tolist() == [0.7] * 3
        path = Segments(stiffness2=3.0).save(tmp_path / "fit.toml")
        assert "stiffness2" in path.read_text() and Segments.load(path) == Segments(stiffness2=3.0)
        path.write_text('kind = "Segments"\n[parameters]\nstiffness = [1.0, 2.0, 3.0]\n')
        assert Segments.load(path).stiffness.tolist() == [1.0, 2.0, 3.0]
        drawn = UniformParameters({"stiffness": (0.4, 0.6), "mass": (1.0, 2.0)}).sample(np.random.default_rng(0), Segments())
        assert set(drawn) == {"mass", *self.names} and len(set(drawn.values())) == 4

    def test_wrong_values_are_named(self):
        with pytest.raises(ParameterError, match=r"stiffness1 = 20\.0 N m/rad, allowed is"):
            Segments().replace(stiffness=[1.0, 20.0, 3.0])
        with pytest.raises(ParameterError, match="stiffness has 2 values, expected one, or one for each of stiffness0"):
            Segments().replace(stiffness=[1.0, 2.0])
        with pytest.raises(ParameterError, match="unknown parameter 'stiffness3'"):
            Segments().replace(stiffness3=1.0)


SYSTEMS = [
    (tensegrity.PROCEDURE, TensegritySimulator(prism()), MujocoTensegrity(prism())),
    (vine.PROCEDURE, VineSimulator(VineModel(num_links=4), 0.005), MujocoVine(VineModel(num_links=4), 0.005)),
    (BLOCK, BlockSimulator(), MujocoBlock()),
    (PARTICLES, ParticleSimulator(ParticleModel(2)), ParticleSimulator(ParticleModel(2))),
]


def noted(calls, ground_truth, rng, *, steps, parameters=None):
    calls.append(steps)
    return record(Spring(), Spring().default_parameters)[0].window(0.0, steps * Spring().dt)


def test_a_budget_is_shared_and_every_recording_says_its_experiment():
    calls = []
    procedure = Procedure(
        (Stage("a", "held", ("stiffness",), "one_step"),),
        (Experiment("held", partial(noted, calls), 40, share=0.5, most=1), Experiment("free", partial(noted, calls), 40)),
    )
    data = procedure.record(Spring(), np.random.default_rng(0), steps=130, tests=2)
    assert calls == [40, 30, 30, 30, 40, 40]  # half of the budget may be held, a recording is at most 40 steps long
    assert [t.metadata[EXPERIMENT] for t in data.train] == ["held", "free", "free", "free"]
    assert [t.metadata[EXPERIMENT] for t in data.test] == ["free", "free"]
    assert len(procedure.stages[0].of(data.train)) == 1
    cut = replace(procedure.stages[0], data=StageData(window=5 * Spring().dt)).of(data.train)[0]
    assert cut.num_steps == 5


def test_noise_is_said_by_patterns():
    stage = Stage("a", "", ("stiffness",), "one_step", data=StageData(noise={"x*": 1.0, "*": 2.0}))
    assert stage.noise_of(("x3", "y")) == {"x3": 1.0, "y": 2.0}
    with pytest.raises(DataError, match="no noise of column 'y'"):
        replace(stage, data=StageData(noise={"x*": 1.0})).noise_of(("y",))
    assert replace(stage, data=StageData()).noise_of(("y",)) is None


def test_bad_procedures_are_named():
    stage = Stage("a", "", ("stiffness",), "one_step")
    with pytest.raises(OptionError, match="expected each name once"):
        Procedure((stage, stage))
    with pytest.raises(OptionError, match="unknown experiment 'air'; there are none"):
        Procedure((replace(stage, experiment="air"),))
    with pytest.raises(OptionError, match="unknown stage 'b'; there are a"):
        Procedure((stage,)).stage("b")
    with pytest.raises(OptionError, match="no experiment to record"):
        Procedure((stage,)).record(Spring(), np.random.default_rng(0), steps=10)


@pytest.mark.parametrize(
    ("name", "seconds"), [("block", 1.0), ("particles", 5.0), ("loop", 20.0), ("arm", 8.0), ("upper_body", 8.0)]
)
def test_the_subcommand_records_as_long_on_a_ground_truth_of_short_steps(name, seconds):
    for backend in ("native", "mujoco"):
        (found,) = sysid.record(name, backend=backend)
        assert found.times[-1] - found.times[0] == pytest.approx(seconds)


@pytest.mark.parametrize(("procedure", "engine", "ground_truth"), SYSTEMS, ids=lambda value: type(value).__name__)
def test_every_systems_procedure_runs_on_its_engine_and_its_ground_truth(procedure, engine, ground_truth):
    """Every experiment records what its stages fit, and every stage frees parameters of the robot or of a view."""
    initial_guess = engine.default_parameters.replace(**procedure.initial_guess_of(engine))
    for stage in procedure.all_stages:
        changed = replace(engine, **stage.simulator.changes)
        initial_guess.check_names(tuple(name for name in stage.free_of(changed) if name not in RecordingParameters.names()))
    for world in (engine, ground_truth):
        for experiment in procedure.experiments:
            steps = min(experiment.longest, 80)
            recording = procedure.record_one(experiment.name, world, np.random.default_rng(0), steps=steps)
            assert recording.metadata[EXPERIMENT] == experiment.name
            assert recording.num_steps * recording.substeps == steps
            again = procedure.record_one(experiment.name, world, np.random.default_rng(0), steps=steps)
            np.testing.assert_array_equal(recording.values, again.values)
            for stage in procedure.stages:
                if stage.experiment == experiment.name:
                    assert len(stage.of(TrajectorySet((recording,)))) == 1
                    stage.noise_of(recording.names)


@pytest.mark.parametrize("name", ["block", "particles", "box"])
def test_a_cameras_errors_are_the_noise_that_it_states(name):
    """White, and of its standard deviation, though recordings without a camera have noise of their own."""
    exact, seen = (
        sysid.record(name, sensor=f"camera {change}", seed=1)[0] for change in ("noise=0 angle_noise=0", "noise=0.001")
    )
    errors = seen.values - exact.values
    places = [k for k, unit in enumerate(seen.units) if unit == "m"]
    for error in errors[:, places].T:
        count = len(error)
        assert error.std() == pytest.approx(0.001, rel=4.0 / np.sqrt(2 * count))
        assert abs(np.corrcoef(error[1:], error[:-1])[0, 1]) < 4.0 / np.sqrt(count)


OBJECTIVES = [(name, path) for system in systems().values() for name, path in system.objectives.items()]


@pytest.mark.parametrize(("name", "path"), OBJECTIVES, ids=[name for name, _ in OBJECTIVES])
def test_features_fit_the_weights(name, path):
    system = next(system for system in systems().values() if system.objectives.get(name) == path)
    objective, model = load(path), system.model()
    states = np.tile(system.simulator(model).initial_state(1), (3, 2, 1))
    assert objective.features(model, states).shape == (3, 2, len(objective.weights))


@pytest.mark.parametrize(("env_id", "objective"), [("TensegrityRoll-v0", ROLL), ("TensegrityCrawl-v0", CRAWL)])
def test_a_reward_is_minus_the_cost_of_the_planners(env_id, objective):
    """Motors off, so that only the terms of the velocity are left; the reward sees the state after every step."""
    env = gym.make(f"softgym_envs:{env_id}", averaging_time=0.0).unwrapped
    env.reset(seed=0)
    simulator = env.simulator
    cost = FeatureCost.of(objective, simulator, simulator.model)
    for _ in range(3):
        _, reward, *_ = env.step(np.zeros(env.action_space.shape, dtype=np.float32))
        value = cost.value(np.asarray(env.state)[None, None], np.zeros((1, 0, simulator.nu)))[0, 0]
        assert reward == pytest.approx(-value, rel=1e-12)


def test_controls_are_measured_by_their_limits():
    system = systems()["vine"]
    simulator = system.simulator()
    cost = FeatureCost.of(REACH.aimed((0.5, 0.0)), simulator, simulator.model)
    states, limit = np.tile(simulator.initial_state(1), (1, 2, 1)), simulator.control_bounds[1]
    effort = cost.value(states, limit[None, None])[0, 0] - cost.value(states, 0 * limit[None, None])[0, 0]
    assert effort == pytest.approx(REACH.control_weight * simulator.nu)


def test_bad_objectives_are_named():
    with pytest.raises(OptionError, match="weights are"):
        Objective(REACH.features, weights=(-1.0,))
    with pytest.raises(OptionError, match="one per weight: 2"):
        REACH.aimed((1.0, 2.0, 3.0))
    with pytest.raises(OptionError, match="no target"):
        _ = REACH.aim
