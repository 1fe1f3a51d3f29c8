"""The loop's twin against our engine: an independent integrator on the same tree."""

import numpy as np
import pytest
from test_loop_dynamics import SERVO, pushed

from softgym_envs.core.errors import OptionError
from softgym_envs.loop.dynamics import LoopSimulator
from softgym_envs.loop.model import LoopModel
from softgym_envs.loop.mujoco import LoopTwin


def test_twin_and_engine_agree_as_in_the_reference():
    """At dt 2.5 ms: 0.1 to 0.2 mm and 1e-4 rad, as an earlier prototype did over 20 s; at our 10 ms forces are 5 ms late."""
    model = LoopModel(**SERVO)
    controls = pushed(model, 100)
    start, n = LoopTwin(model).initial_state(), model.n
    states = {}
    for name, simulator in (
        ("ours", LoopSimulator(model)),
        ("fine", LoopSimulator(model, dt=0.0025)),
        ("twin", LoopTwin(model)),
    ):
        states[name], status = simulator.rollout(start, controls, substeps=round(0.01 / simulator.dt))
        assert status[0] == 0
    q = {name: np.ascontiguousarray(x[0, :, :n]) for name, x in states.items()}
    hand = {name: model.mechanism.pose("H", x)[1] for name, x in q.items()}
    assert np.ptp(hand["twin"], axis=0).max() > 0.04
    for name, rms, furthest in (("fine", 2e-4, 2e-4), ("ours", 1.5e-3, 1.5e-3)):
        assert np.sqrt(np.mean((q[name] - q["twin"]) ** 2)) < rms
        assert np.linalg.norm(hand[name] - hand["twin"], axis=1).max() < furthest
    assert np.abs(model.mechanism.gaps(q["twin"], model.defaults)[0]).max() < 2e-4
    speed = np.abs(states["twin"][0, :, n:]).max()
    assert np.abs(states["fine"] - states["twin"])[0, :, n:].max() < 0.02 * speed  # the same quantity


def test_every_constant_means_the_same_in_both():
    """Change of the motion by a constant: the twin's is ours."""
    model = LoopModel(6, **SERVO)
    ours, twin = LoopSimulator(model, dt=0.0025), LoopTwin(model, dt=0.0005)
    default, controls = ours.default_parameters, np.tile(model.hold, (1, 1, 1))
    changes = {
        "theta_stiffness": 6.0, "psi_stiffness": 2.0, "loop_damping": 0.04, "loop_scale": 3.0, "arm_damping": 2.0,
        "gravity": 5.0,
        "offset_s0": 1.0, "offset_w2": 0.5, "clamp_x": 0.002, "clamp_z": 0.001, "clamp_roll": 0.002, "clamp_yaw": 0.003,
    }  # fmt: skip
    start = ours.step(ours.initial_state(), controls[:, 0] + 1.0, substeps=40)[0]
    moved = {}
    for name, simulator in (("ours", ours), ("twin", twin)):
        steps = round(0.2 / simulator.dt)
        rows = [simulator.step(start, controls[:, 0], default.replace(**change), substeps=steps)[0][0] for change in
                ({}, *({key: value} for key, value in changes.items()))]  # fmt: skip
        moved[name] = np.array(rows[1:]) - rows[0]
    for name, a, b in zip(changes, moved["ours"], moved["twin"], strict=True):
        a, b = a[: model.n], b[: model.n]
        assert np.abs(a).max() > 1e-5 and np.abs(a - b).max() < 0.05 * np.abs(a).max(), name


def test_steps_that_would_be_wrong_in_silence_are_made_of_shorter_ones():
    assert [LoopTwin(dt=dt).refinement for dt in (0.001, 0.002, 0.005, 0.01)] == [1, 1, 3, 5]
    assert LoopTwin(LoopModel(24), dt=0.002).refinement == 2
    start, torques = LoopTwin().initial_state(), LoopTwin().model.hold + 2.0 * np.random.default_rng(0).normal(size=(1, 2, 7))
    long, short = (LoopTwin(dt=dt).rollout(start, torques, substeps=round(0.02 / dt))[0] for dt in (0.01, 0.002))
    np.testing.assert_array_equal(long, short)
    with pytest.raises(OptionError, match="dt"):
        LoopTwin(dt=-0.01)
