"""The loop's MuJoCo model against our engine: an independent integrator on the same tree."""

import numpy as np
import pytest
from test_loop_dynamics import SERVO, pushed

from softgym_envs.core.errors import OptionError
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.model import LoopModel
from softgym_envs.systems.loop.mujoco import MujocoLoop


def test_mujoco_model_and_engine_agree_as_in_the_reference():
    """At dt 2.5 ms: 0.1 to 0.2 mm and 1e-4 rad, as an earlier prototype did over 20 s; at our 10 ms forces are 5 ms late."""
    model = LoopModel(**SERVO)
    controls = pushed(model, 100)
    start, n = MujocoLoop(model).initial_state(), model.n
    states = {}
    for name, simulator in (
        ("ours", LoopSimulator(model)),
        ("fine", LoopSimulator(model, dt=0.0025)),
        ("mujoco_model", MujocoLoop(model)),
    ):
        states[name], status = simulator.rollout(start, controls, substeps=round(0.01 / simulator.dt))
        assert status[0] == 0
    q = {name: np.ascontiguousarray(x[0, :, :n]) for name, x in states.items()}
    hand = {name: model.mechanism.pose("H", x)[1] for name, x in q.items()}
    assert np.ptp(hand["mujoco_model"], axis=0).max() > 0.04
    for name, rms, furthest in (("fine", 2e-4, 2e-4), ("ours", 1.5e-3, 1.5e-3)):
        assert np.sqrt(np.mean((q[name] - q["mujoco_model"]) ** 2)) < rms
        assert np.linalg.norm(hand[name] - hand["mujoco_model"], axis=1).max() < furthest
    assert np.abs(model.mechanism.gaps(q["mujoco_model"], model.defaults)[0]).max() < 2e-4
    speed = np.abs(states["mujoco_model"][0, :, n:]).max()
    assert np.abs(states["fine"] - states["mujoco_model"])[0, :, n:].max() < 0.02 * speed  # the same quantity


def test_every_constant_means_the_same_in_both():
    """Change of the motion by a parameter: the MuJoCo model's is ours."""
    model = LoopModel(6, **SERVO)
    ours, mujoco_model = LoopSimulator(model, dt=0.0025), MujocoLoop(model, dt=0.0005)
    default, controls = ours.default_parameters, np.tile(model.hold, (1, 1, 1))
    changes = {
        "theta_stiffness": 6.0, "psi_stiffness": 2.0, "loop_damping": 0.04, "loop_scale": 3.0, "arm_damping": 2.0,
        "gravity": 5.0,
        "offset_s0": 1.0, "offset_w2": 0.5, "clamp_x": 0.002, "clamp_z": 0.001, "clamp_roll": 0.002, "clamp_yaw": 0.003,
    }  # fmt: skip
    start = ours.step(ours.initial_state(), controls[:, 0] + 1.0, substeps=40)[0]
    moved = {}
    for name, simulator in (("ours", ours), ("mujoco_model", mujoco_model)):
        steps = round(0.2 / simulator.dt)
        rows = [simulator.step(start, controls[:, 0], default.replace(**change), substeps=steps)[0][0] for change in
                ({}, *({key: value} for key, value in changes.items()))]  # fmt: skip
        moved[name] = np.array(rows[1:]) - rows[0]
    for name, a, b in zip(changes, moved["ours"], moved["mujoco_model"], strict=True):
        a, b = a[: model.n], b[: model.n]
        assert np.abs(a).max() > 1e-5 and np.abs(a - b).max() < 0.05 * np.abs(a).max(), name


def test_steps_that_would_be_wrong_in_silence_are_made_of_shorter_ones():
    assert [MujocoLoop(dt=dt).refinement for dt in (0.001, 0.002, 0.005, 0.01)] == [1, 1, 3, 5]
    assert MujocoLoop(LoopModel(24), dt=0.002).refinement == 2
    start, torques = (
        MujocoLoop().initial_state(),
        MujocoLoop().model.hold + 2.0 * np.random.default_rng(0).normal(size=(1, 2, 7)),
    )
    long, short = (MujocoLoop(dt=dt).rollout(start, torques, substeps=round(0.02 / dt))[0] for dt in (0.01, 0.002))
    np.testing.assert_array_equal(long, short)
    with pytest.raises(OptionError, match="dt"):
        MujocoLoop(dt=-0.01)
