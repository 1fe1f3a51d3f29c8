"""A loop whose links twist: the paper's loop in the limit of stiff joints, MuJoCo's chain, and what a rod says of itself."""

import pickle
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

from softgym_envs.core.parameters import Parameters
from softgym_envs.systems.loop import SYSTEM
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.loop_file import read_model
from softgym_envs.systems.loop.model import ARM, LoopModel
from softgym_envs.systems.loop.mujoco import MujocoLoop
from softgym_envs.systems.loop.parameters import LoopParameters, TwistParameters, loop_parameters
from softgym_envs.systems.loop.procedure import EVERYTHING, unknown
from softgym_envs.systems.loop.rod import LoopRod

TWISTING = LoopModel(twist=True)


def turned(model, stiffness=0.0):
    """Angles of the loop at rest, the hand turned by 0.3 rad about its axis and bent by 0.2, with this stiffness of twist."""
    parameter_values = model.defaults[None]
    if model.twist:
        parameter_values[0, model.parameter_names.index("twist_stiffness")] = stiffness
    arm = np.array([model.start])
    arm[0, [4, 6]] += [0.2, 0.3]
    return model.relax(arm, parameter_values)[0][0]


def test_joints_have_a_third_angle_with_constants_of_its_own(tmp_path):
    assert (LoopModel().n, TWISTING.n) == (31, 43) and TWISTING.layout.names[7:10] == ("left0.theta", "left0.psi", "left0.phi")
    assert TWISTING.parameters_class is TwistParameters and LoopModel().parameters_class is LoopParameters
    assert set(unknown(LoopSimulator(model=TWISTING))) - set(EVERYTHING) == {"twist_stiffness", "twist_damping"}
    both = loop_parameters(3, True)
    assert issubclass(both, Parameters) and pickle.loads(pickle.dumps(both(twist_stiffness=2.0))) == both(twist_stiffness=2.0)
    (tmp_path / "loop.toml").write_text("twist = true\n")
    assert read_model(tmp_path / "loop.toml").twist


def test_stiff_twist_is_the_papers_loop():
    """At rest under a turned hand: what twist changes is of first order in its softness."""
    places = np.flatnonzero([not name.endswith("phi") for name in TWISTING.layout.names[: TWISTING.n]])
    paper, gaps = turned(LoopModel()), []
    for stiffness in (2e3, 8e3):
        found = turned(TWISTING, stiffness)[places]
        gaps.append(np.abs(found - paper).max())
    assert gaps[0] > 1e-3 and gaps[1] == pytest.approx(gaps[0] / 4, rel=0.2)


def test_slopes_of_trees_constants_are_differences():
    model = LoopModel(6, twist=True, spring_parts=1)
    row = model.parameters_class(twist_stiffness=2.0, theta_left0=1.3).to_matrix(1)
    steps = 1e-6 * np.eye(row.shape[1])
    found = (model.tree_constants(row + steps) - model.tree_constants(row - steps)).T / 2e-6
    np.testing.assert_allclose(model.tree_slopes(row)[0], found, atol=1e-7)
    assert len(model.parameter_names) == found.shape[0]


def test_engine_and_mujoco_twist_alike():
    engine, mujoco_model = LoopSimulator(model=TWISTING, dt=1e-3), MujocoLoop(model=TWISTING, dt=1e-3)
    controls = np.tile(TWISTING.hold, (1, 15, 1))
    controls[..., 4:] += 2.0
    ours, theirs = (
        world.rollout(world.initial_state(), controls, substeps=10)[0][0, -1, : TWISTING.n] for world in (engine, mujoco_model)
    )
    phi = np.array([name.endswith("phi") for name in TWISTING.layout.names[: TWISTING.n]])
    moved = np.abs(ours - engine.initial_state()[0, : TWISTING.n])
    assert moved[phi].max() > 5e-3 and np.abs(ours - theirs).max() < 0.02 * moved.max()


def test_rod_shows_its_twist_to_a_model_that_has_one():
    """In the first state there is none; the wrist's turn arrives in the links nearest to the hand with its sign."""
    rod = LoopRod(model=TWISTING, pieces=1, dt=5e-3)
    start = rod.initial_state()[0, : TWISTING.n]
    phi = np.array([name.endswith("phi") for name in TWISTING.layout.names[: TWISTING.n]])
    assert rod.state_names[: TWISTING.n] == LoopSimulator(model=TWISTING).state_names[: TWISTING.n]
    assert np.abs(start[phi]).max() < 5e-3 and len(ARM) == 7
    controls = np.tile(TWISTING.hold, (1, 15, 1))
    controls[..., 4:] += 2.0
    theirs = rod.rollout(rod.initial_state(), controls, substeps=2)[0][0, -1, : TWISTING.n]
    same = TwistParameters(psi_stiffness=4.45252, twist_stiffness=4.45252 / 1.5)
    ours = LoopSimulator(model=TWISTING, dt=5e-3).rollout(rod.initial_state()[:, : 2 * TWISTING.n], controls, same, substeps=2)[
        0
    ]
    assert np.corrcoef(theirs[phi], ours[0, -1, : TWISTING.n][phi])[0, 1] > 0.9


@pytest.mark.parametrize("backend", ["native", "mujoco", "rod"])
@pytest.mark.parametrize("task", [task.id for task in SYSTEM.tasks])
def test_tasks_and_pictures_know_of_twist(task, backend):
    """Every task of the system, whatever parameters its world has."""
    usual = gym.make(task).unwrapped.simulator.model
    env = gym.make(task, backend=backend, model=replace(usual, twist=True), render_mode="rgb_array")
    env.reset(seed=0)
    observation, reward, *_ = env.step(np.zeros(env.action_space.shape, np.float32))
    assert np.isfinite(observation).all() and np.isfinite(reward) and env.render().std() > 5.0
