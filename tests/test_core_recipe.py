"""Recipes as data: what is recorded for a budget, which recordings a stage fits, and every room's own."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sysid_systems import Spring, record

import sysid
from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.recipe import EXPERIMENT, Experiment, Recipe, Stage
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.rigid.dynamics import BlockSimulator, ParticleSimulator
from softgym_envs.rigid.model import ParticleModel
from softgym_envs.rigid.mujoco import BlockTwin
from softgym_envs.rigid.recipe import BLOCK, PARTICLES
from softgym_envs.tensegrity import prism
from softgym_envs.tensegrity import recipe as tensegrity
from softgym_envs.tensegrity.dynamics import TensegritySimulator
from softgym_envs.tensegrity.mujoco import TensegrityTwin
from softgym_envs.vine import VineModel
from softgym_envs.vine import recipe as vine
from softgym_envs.vine.dynamics import VineSimulator
from softgym_envs.vine.mujoco import VineTwin
from sysid.data.view import View

ROOMS = [
    (tensegrity.RECIPE, TensegritySimulator(prism()), TensegrityTwin(prism())),
    (vine.RECIPE, VineSimulator(VineModel(num_links=4), 0.005), VineTwin(VineModel(num_links=4), 0.005)),
    (BLOCK, BlockSimulator(), BlockTwin()),
    (PARTICLES, ParticleSimulator(ParticleModel(2)), ParticleSimulator(ParticleModel(2))),
]


def noted(calls, truth, rng, *, steps, parameters=None):
    calls.append(steps)
    return record(Spring(), Spring().default_parameters)[0].window(0.0, steps * Spring().dt)


def test_a_budget_is_shared_and_every_recording_says_its_experiment():
    calls = []
    recipe = Recipe(
        (Stage("a", "held", ("stiffness",), "one_step"),),
        (Experiment("held", partial(noted, calls), 40, share=0.5, most=1), Experiment("free", partial(noted, calls), 40)),
    )
    data = recipe.record(Spring(), np.random.default_rng(0), steps=130, tests=2)
    assert calls == [40, 30, 30, 30, 40, 40]  # half of the budget may be held, a recording is at most 40 steps long
    assert [t.metadata[EXPERIMENT] for t in data.train] == ["held", "free", "free", "free"]
    assert [t.metadata[EXPERIMENT] for t in data.test] == ["free", "free"]
    assert len(recipe.stages[0].of(data.train)) == 1
    cut = replace(recipe.stages[0], window=5 * Spring().dt).of(data.train)[0]
    assert cut.num_steps == 5


def test_noise_is_said_by_patterns():
    stage = Stage("a", "", ("stiffness",), "one_step", noise={"x*": 1.0, "*": 2.0})
    assert stage.noise_of(("x3", "y")) == {"x3": 1.0, "y": 2.0}
    with pytest.raises(DataError, match="no noise of column 'y'"):
        replace(stage, noise={"x*": 1.0}).noise_of(("y",))
    assert replace(stage, noise={}).noise_of(("y",)) is None


def test_bad_recipes_are_named():
    stage = Stage("a", "", ("stiffness",), "one_step")
    with pytest.raises(OptionError, match="expected each name once"):
        Recipe((stage, stage))
    with pytest.raises(OptionError, match="unknown experiment 'air'; there are none"):
        Recipe((replace(stage, experiment="air"),))
    with pytest.raises(OptionError, match="unknown stage 'b'; there are a"):
        Recipe((stage,)).stage("b")
    with pytest.raises(OptionError, match="no experiment to record"):
        Recipe((stage,)).record(Spring(), np.random.default_rng(0), steps=10)


@pytest.mark.parametrize(
    ("name", "seconds"), [("block", 1.0), ("particles", 5.0), ("loop", 20.0), ("arm", 8.0), ("upper_body", 8.0)]
)
def test_the_verb_records_as_long_on_a_truth_of_short_steps(name, seconds):
    for backend in ("native", "mujoco"):
        (found,) = sysid.record(name, backend=backend)
        assert found.times[-1] - found.times[0] == pytest.approx(seconds)


@pytest.mark.parametrize(("recipe", "engine", "truth"), ROOMS, ids=lambda value: type(value).__name__)
def test_every_rooms_recipe_runs_on_its_engine_and_its_truth(recipe, engine, truth):
    """Every experiment records what its stages fit, and every stage frees constants of the robot or of a view."""
    guess = engine.default_parameters.replace(**recipe.guess_of(engine))
    for stage in recipe.all_stages:
        changed = replace(engine, **stage.simulator)
        guess.check_names(tuple(name for name in stage.free_of(changed) if name not in View.names()))
    for world in (engine, truth):
        for experiment in recipe.experiments:
            steps = min(experiment.longest, 80)
            recording = recipe.record_one(experiment.name, world, np.random.default_rng(0), steps=steps)
            assert recording.metadata[EXPERIMENT] == experiment.name
            assert recording.num_steps * recording.substeps == steps
            again = recipe.record_one(experiment.name, world, np.random.default_rng(0), steps=steps)
            np.testing.assert_array_equal(recording.values, again.values)
            for stage in recipe.stages:
                if stage.experiment == experiment.name:
                    assert len(stage.of(TrajectorySet((recording,)))) == 1
                    stage.noise_of(recording.names)
