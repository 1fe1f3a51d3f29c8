"""Springs of their own: what the factors do in both engines, their derivatives, files, and what recordings tell of them."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from softgym_envs.core.errors import OptionError, ParameterError
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.loop_file import read_model
from softgym_envs.systems.loop.model import LoopModel
from softgym_envs.systems.loop.mujoco import MujocoLoop
from softgym_envs.systems.loop.parameters import LoopParameters, loop_parameters
from softgym_envs.systems.loop.procedure import PROCEDURE, SPRING_DEVIATION, manipulation, unknown
from softgym_envs.systems.loop.springs import factor_names, spring_slopes, spring_values
from sysid.procedure.run import run_procedure

MODEL = LoopModel(6, spring_parts=3)
UNEVEN = {"theta_left0": 1.4, "theta_right2": 0.7, "psi_left1": 1.3}


def torques(model, steps=20):
    return model.hold + 2.0 * np.random.default_rng(0).normal(size=(1, steps, 7))


def test_equal_springs_are_the_loops():
    plain, parted = LoopSimulator(model=LoopModel(6)), LoopSimulator(model=MODEL)
    ours, theirs = (s.rollout(s.initial_state(), torques(plain.model))[0] for s in (plain, parted))
    np.testing.assert_allclose(ours, theirs, atol=1e-10)


def test_factors_are_of_the_joints_that_they_name_in_both_engines():
    parameters = loop_parameters(3)(**UNEVEN)
    mujoco_model = MujocoLoop(model=MODEL).mj_model(parameters)
    for name, factor in (("left_theta0", 1.4), ("right_theta2", 0.7), ("right_theta1", 1.0)):
        assert mujoco_model.jnt_stiffness[mujoco_model.joint(name).id] == pytest.approx(factor * parameters.theta_stiffness)
    assert mujoco_model.jnt_stiffness[mujoco_model.joint("left_psi1").id] == pytest.approx(1.3 * parameters.psi_stiffness)
    own = dict(zip(MODEL.parameter_names, MODEL.tree_constants(parameters.to_matrix(1))[0], strict=True))
    for joint in MODEL.tree.moving:
        if isinstance(joint.stiffness, str):
            assert own[joint.stiffness] == pytest.approx(mujoco_model.jnt_stiffness[mujoco_model.joint(joint.name).id])


def test_a_coarser_or_finer_loop_has_the_same_parts():
    halves = [joint.stiffness for joint in LoopModel(12, spring_parts=2).tree.moving if joint.name.startswith("left_theta")]
    assert halves == ["spring_theta_left0"] * 3 + ["spring_theta_left1"] * 3


def test_slopes_are_differences():
    simulator = LoopSimulator(model=MODEL)
    parameters = loop_parameters(3)(**UNEVEN)
    names, vector = parameters.names(), parameters.to_vector()
    moved = simulator.step(simulator.initial_state(), torques(MODEL)[:, 0], parameters, substeps=5)[0]
    C = simulator.linearize(moved, torques(MODEL)[:, 1], parameters, substeps=5)[2][0]
    for name in ("theta_left0", "psi_right1", "theta_stiffness", "gravity", "friction_w2"):
        way = 1e-4 * np.eye(len(names))[names.index(name)]
        ends = [simulator.step(moved, torques(MODEL)[:, 1], type(parameters).from_vector(vector + s * way), substeps=5)[0]
                for s in (1, -1)]  # fmt: skip
        expected = (ends[0] - ends[1])[0] / 2e-4
        np.testing.assert_allclose(C[:, names.index(name)], expected, atol=2e-5 * np.abs(expected).max() + 1e-9)
    rows = np.random.default_rng(1).uniform(0.5, 2.0, (2, len(names)))
    found, step = spring_slopes(rows, 3), 1e-6
    for column in (0, 1, len(names) - 1, len(names) - 9):
        way = step * np.eye(len(names))[column]
        expected = (spring_values(rows + way, 3) - spring_values(rows - way, 3)) / (2 * step)
        np.testing.assert_allclose(found[:, :, column], expected, atol=1e-8)


def test_classes_are_pickled_and_files_are_of_their_own_kind(tmp_path):
    parameters = loop_parameters(3)(theta_left0=1.2)
    assert pickle.loads(pickle.dumps(parameters)) == parameters
    path = parameters.save(tmp_path / "own.toml")
    assert loop_parameters(3).load(path) == parameters
    with pytest.raises(ParameterError, match="LoopParameters3"):
        LoopParameters.load(path)
    (tmp_path / "joints.toml").write_text("links = 6\nspring_parts = 3\n")
    assert read_model(tmp_path / "joints.toml") == MODEL
    with pytest.raises(OptionError, match=r"spring_parts is 4, expected .* 3"):
        LoopModel(6, spring_parts=4)


def test_two_manipulations_tell_springs_apart_and_say_of_which_they_do_not():
    simulator, rng = LoopSimulator(model=LoopModel(6, spring_parts=1)), np.random.default_rng(0)
    ground_truth = loop_parameters(1)(theta_stiffness=4.0, psi_stiffness=1.2, theta_left0=1.3, theta_right0=0.8)

    def recorded():
        clean = manipulation(simulator, rng, steps=300, parameters=ground_truth)
        return replace(clean.with_noise(rng, 1e-3), controls=clean.controls + 0.05 * rng.standard_normal(clean.controls.shape))

    assert PROCEDURE.from_recordings is not None
    stage = replace(PROCEDURE.from_recordings, free=(*factor_names(1), "loop_damping"))
    start = loop_parameters(1)(theta_stiffness=5.0, psi_stiffness=5.0)
    found = (
        run_procedure(PROCEDURE, simulator, TrajectorySet((recorded(), recorded())), start=start, stages=(stage,)).stages[0].fit
    )
    for e in found.estimates[:4]:
        axis = e.name.split("_")[0] + "_stiffness"
        share = getattr(ground_truth, axis) * getattr(ground_truth, e.name) / getattr(found.parameters, axis)
        assert abs(np.log(e.value / share)) < 4 * e.std / e.value, (e, share)
        assert e.assumed == (e.std / e.value > SPRING_DEVIATION / np.sqrt(2))
    assert set(unknown(simulator)[:4]) == set(factor_names(1)) and "theta_stiffness" not in unknown(simulator)
    assert not found.estimates[0].assumed
