"""Procedures as data: what is recorded for a budget, which recordings a stage fits, and every system's own."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sysid_systems import Spring, record

import sysid
from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.procedure import EXPERIMENT, Experiment, Procedure, Stage, StageData
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.systems.rigid.dynamics import BlockSimulator, ParticleSimulator
from softgym_envs.systems.rigid.model import ParticleModel
from softgym_envs.systems.rigid.mujoco import MujocoBlock
from softgym_envs.systems.rigid.procedure import BLOCK, PARTICLES
from softgym_envs.systems.tensegrity import prism
from softgym_envs.systems.tensegrity import procedure as tensegrity
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.mujoco import MujocoTensegrity
from softgym_envs.systems.vine import VineModel
from softgym_envs.systems.vine import procedure as vine
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.mujoco import MujocoVine
from sysid.problem.recording_parameters import RecordingParameters

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
