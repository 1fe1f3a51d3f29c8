"""Goals of the loop's studies, controls beyond those that hold the start, and what the right parameters do for a plan."""

from dataclasses import replace

import numpy as np
import pytest

from agents.control.cost import FeatureCost
from agents.control.ilqg import ILQGOptions, plan_ilqg
from agents.control.plan import run_open_loop
from softgym_envs.core.errors import OptionError, StructureError
from softgym_envs.systems.loop import SYSTEM
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.model import LoopModel
from softgym_envs.systems.loop.parameters import LoopParameters
from softgym_envs.systems.loop.study import REACH, STUDY, commanded, middle


def test_no_control_is_an_arm_that_stays_in_both_worlds():
    model = commanded()
    for world, substeps in ((SYSTEM.simulator(model), 10), (SYSTEM.simulator(model, backend="mujoco", dt=0.002), 50)):
        states, status = world.rollout(world.initial_state(), np.zeros((1, 10, 7)), substeps=substeps)
        assert status[0] == 0 and np.abs(states[0, -1, : model.n] - states[0, 0, : model.n]).max() < 1e-3


def test_commands_are_limited_and_checked():
    low, high = commanded().control_bounds
    np.testing.assert_array_equal(high, commanded().command_limit)
    np.testing.assert_array_equal(low, -high)
    with pytest.raises(StructureError, match="command_limit"):
        LoopModel(command_limit=(1.0, 2.0))
    with pytest.raises(OptionError, match="command_limit"):
        LoopModel(command_limit=(-1.0,) * 7)


@pytest.mark.parametrize("name", STUDY)
def test_goals_are_far_and_starts_are_closed(name):
    scenario = STUDY[name]
    scene = scenario.scene()
    assert scenario.objective in SYSTEM.objectives
    engine = SYSTEM.simulator(scene.model, dt=scenario.dt)
    states = scenario.starts(engine, LoopParameters(), np.random.default_rng(0), 3)
    off = scenario.measure(scene.model, scene.target, states[:, None])["last [m]"]
    assert off.min() > 0.02 and off.max() < 0.3
    h, _ = engine.mechanism.gaps(states[:, : scene.model.n], engine.tree_constants(LoopParameters(), 3))
    assert np.abs(h).max() < 1e-9
    np.testing.assert_allclose(states[0], engine.initial_state()[0], atol=1e-9)


def test_a_plan_under_the_true_constants_arrives_on_the_mujoco_model_and_one_before_identification_does_not():
    scene = STUDY["LoopReach-v0"].scene()
    engine, mujoco_model = LoopSimulator(scene.model), SYSTEM.simulator(scene.model, backend="mujoco", dt=0.002)
    cost, missed = FeatureCost.of(REACH.aimed(scene.target), engine, scene.model), []
    for parameter_values in (LoopParameters(), LoopParameters(theta_stiffness=5.0, psi_stiffness=5.0)):
        options = ILQGOptions(max_iterations=5, trust=0.3)
        start = engine.initial_state()[0]
        plan = plan_ilqg(
            engine, cost, start, controls=np.zeros((12, 7)), substeps=10, parameters=parameter_values, options=options
        )
        run = run_open_loop(replace(plan, substeps=50), mujoco_model, mujoco_model.initial_state())
        missed.append(np.linalg.norm(middle(scene.model, run.states[0, -4:]) - scene.target, axis=1).mean())
    assert missed[0] < 0.01 and missed[1] > 3 * missed[0], missed
