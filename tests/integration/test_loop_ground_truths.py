"""The loop's further ground truths: an elastic rod, and a MuJoCo model as hard as a laboratory."""

from dataclasses import replace

import numpy as np
import pytest

from softgym_envs.core.errors import OptionError
from softgym_envs.core.trajectory import Trajectory
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.mismatch import flawed
from softgym_envs.systems.loop.model import ARM, CLAMP
from softgym_envs.systems.loop.mujoco import MujocoLoop
from softgym_envs.systems.loop.parameters import LoopParameters
from softgym_envs.systems.loop.procedure import manipulation
from softgym_envs.systems.loop.rod import LoopRod

ROD = LoopRod()


def test_rod_hangs_at_rest_as_the_models_loop_does():
    state, model = ROD.initial_state()[0], ROD.model.rest_state()
    polygon = ROD._polygon(state[None], LoopParameters().to_matrix(1))[0]
    np.testing.assert_allclose(polygon, model[len(ARM) : ROD.model.n], atol=5e-3)
    after, status = ROD.rollout(state[None], np.tile(ROD.model.hold, (1, 5, 1)), substeps=40)
    assert status[0] == 0 and np.abs(after[0, -1, : ROD.model.n] - state[: ROD.model.n]).max() < 5e-3


def test_rod_holds_its_line_between_gripper_and_clamp():
    gap = np.abs(ROD.engine.evaluate(ROD.initial_state(), LoopParameters().to_matrix(1), _gap)).max()
    assert gap < 1e-4
    assert len(ROD.tree.coordinates) == 7 + 3 * 24


def _gap(mj, data):
    return np.concatenate([data.site(f"N_{side}").xpos - data.site(f"clamp_{side}").xpos for side in ("left", "right")])


def test_rods_loop_pulls_as_a_ring_of_its_stiffness_does():
    """A sideways push of the hand meets what our loop does with kappa_psi near kappa_theta, within a third."""
    pushed = np.array(ROD.model.start) + np.array([0.06, 0, 0, 0, 0, 0, 0])
    rod = _torque(ROD, pushed)
    ours = _torque(MujocoLoop(), pushed, LoopParameters(psi_stiffness=3.0))
    assert rod == pytest.approx(ours, rel=0.35), (rod, ours)


def _torque(ground_truth, arm, parameters=None):
    """Torque of s0 that holds the arm there after a second, led there with stiff springs."""
    start = np.array(ground_truth.model.start)
    substeps, state, gains = (
        round(0.01 / ground_truth.dt),
        ground_truth.initial_state(),
        np.array([400.0, 400, 300, 300, 100, 100, 50]),
    )
    for k in range(80):
        target = start + min(k / 40, 1.0) * (arm - start)
        control = ground_truth.model.hold + gains * (target - state[0, :7]) - 0.05 * gains * state[0, 31:38]
        lower, upper = ground_truth.control_bounds
        control = np.clip(control, lower, upper)
        found, _ = ground_truth.rollout(state, control[None, None], parameters, substeps=substeps)
        state = found[:, -1]
    return float((control - ground_truth.model.hold)[0])


def test_every_flaw_of_the_sensors_does_what_it_says():
    """A recording of straight lines, 4 s at 100 Hz: a lag shifts torques by its size."""
    times = 0.01 * np.arange(401)
    angles, torques = times[:, None] * np.ones(7), 3.0 * times[:-1, None] * np.ones(7)
    ground_truth = Trajectory(times, torques, angles, ARM, ("rad",) * 7, tuple(f"{a}.torque" for a in ARM), ("N m",) * 7)

    def heard(effect, size):
        others = {"angle_noise": 0.0, "torque_noise": 0.0, "torque_bias": 0.0, "torque_lag": 0.0}
        found = MujocoLoop(seed=1, effects={**others, effect: size}).sensed(ground_truth, np.random.default_rng(0))
        return found.values - angles, found.controls - torques

    for effect, place in (("angle_noise", 0), ("torque_noise", 1)):  # 2800 draws: 5 standard errors of a deviation are 7 %
        errors = heard(effect, 0.02)
        assert not errors[1 - place].any() and errors[place].std() == pytest.approx(0.02, rel=0.07)
    still, biased = heard("torque_bias", 0.2)
    assert not still.any() and np.ptp(biased, axis=0).max() < 1e-12 and 0.01 < np.abs(biased).max() <= 0.2
    still, late = heard("torque_lag", 0.01)
    assert not still.any()
    np.testing.assert_allclose(late[3:], -3.0 * 0.01, atol=1e-12)


def test_mismatched_models_flaws_are_drawn_by_seed_and_seen_in_recordings():
    hard = MujocoLoop(level=2, seed=3)
    row = LoopParameters().to_vector()
    true, other = flawed(hard, row), flawed(MujocoLoop(level=2, seed=4), row)
    moved = [name for name, a, b in zip(LoopParameters.names(), row, true, strict=True) if a != b]
    assert set(moved) == {"arm_damping", "loop_damping", *CLAMP}
    assert np.array_equal(true, flawed(MujocoLoop(level=2, seed=3), row)) and not np.allclose(true, other)
    assert np.array_equal(flawed(MujocoLoop(), row), row)
    soft, drawn = (mujoco_model.mj_model() for mujoco_model in (MujocoLoop(), hard))
    factors = drawn.jnt_stiffness[soft.jnt_stiffness > 0] / soft.jnt_stiffness[soft.jnt_stiffness > 0]
    assert np.ptp(np.log(factors)) > 0.1 and np.abs(np.log(factors)).max() <= 0.1
    assert (drawn.dof_frictionloss > 0).sum() == 7
    quiet = {"angle_noise": 0.0, "torque_noise": 0.0, "torque_bias": 0.0, "torque_lag": 0.0}
    clean, noisy = (
        manipulation(MujocoLoop(effects={**quiet, **more}), np.random.default_rng(0), steps=600)
        for more in ({}, {"angle_noise": 2e-3, "torque_noise": 0.2, "torque_lag": 0.0})
    )
    assert clean.names == noisy.names == ARM
    assert np.std(noisy.values - clean.values) == pytest.approx(2e-3, rel=0.2)
    assert np.std(noisy.controls - clean.controls) == pytest.approx(0.2, rel=0.2)


def test_bad_options_are_named():
    with pytest.raises(OptionError, match="friction"):
        MujocoLoop(effects={"friction": -1.0}).engine.models(LoopParameters().to_matrix(1))
    with pytest.raises(OptionError, match="poisson"):
        LoopRod(poisson=0.7)
    with pytest.raises(OptionError, match="pieces"):
        LoopRod(pieces=3)
    with pytest.raises(OptionError, match="dt"):
        LoopRod(dt=0.0)


def test_a_rod_of_fewer_pieces_moves_alike():
    torques = ROD.model.hold + 4.0 * np.random.default_rng(0).normal(size=(1, 4, 7))
    coarse = LoopRod(dt=5e-3, pieces=1)
    assert coarse.refinement == 10 and len(coarse.tree.coordinates) == 7 + 3 * 12
    ends = []
    for rod in (coarse, replace(coarse, pieces=2)):
        states, status = rod.rollout(rod.initial_state(), torques, substeps=10)
        assert status[0] == 0
        ends.append(rod.model.nodes(states[0, -1:, : rod.model.layout.nx]))
    moved = np.abs(ends[1] - ROD.model.nodes(ROD.model.rest_state()[None])).max()
    assert np.abs(ends[0] - ends[1]).max() < 0.2 * moved and moved > 0.02


def test_rod_begins_with_the_models_entries():
    ours = LoopSimulator()
    assert ROD.state_names[: ours.nx] == ours.state_names and ROD.control_names == ours.control_names


def test_rods_long_steps_are_made_of_short_ones():
    torques = ROD.model.hold + 2.0 * np.random.default_rng(0).normal(size=(1, 3, 7))
    short, long = (
        LoopRod(dt=dt).rollout(ROD.initial_state(), torques, substeps=round(0.02 / dt))[0][0] for dt in (2.5e-4, 2e-3)
    )
    np.testing.assert_array_equal(short, long)


def test_rods_recordings_are_seen_through_the_arms_sensors():
    clean, noisy = (
        manipulation(LoopRod(dt=5e-3, effects=effects), np.random.default_rng(0), steps=300)
        for effects in ({}, {"angle_noise": 2e-3, "torque_noise": 0.2, "torque_bias": 0.3})
    )
    assert np.std(noisy.values - clean.values) == pytest.approx(2e-3, rel=0.2)
    off = (noisy.controls - clean.controls).mean(axis=0)
    assert 0.1 < np.abs(off).max() < 0.35
