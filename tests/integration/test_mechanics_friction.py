"""Dry friction of joints: Coulomb's law, creep where nothing moves, MuJoCo's friction loss."""

from dataclasses import replace

import numpy as np
import pytest
from mechanics_systems import chain
from scipy.optimize import brentq

from softgym_envs.core.errors import StructureError
from softgym_envs.mechanics import Body, Joint, Mechanism, Tree
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.model import FRICTION as FRICTION_OF_THE_ARM
from softgym_envs.systems.loop.parameters import LoopParameters

INERTIA, FRICTION, WIDTH = 0.5, 0.2, 1e-3


def wheel(**changes):
    """A wheel on a vertical axle: nothing but dry friction acts."""
    joint = Joint("axle", "revolute", "world", "wheel", friction=FRICTION, friction_speed=WIDTH)
    return Tree("wheel", (Body("wheel", 1.0, inertia=(INERTIA,) * 3),), (replace(joint, **changes),), actuated=("axle",))


def test_a_wheel_slows_down_evenly_and_stops_where_coulomb_says():
    mechanism, speed = Mechanism(wheel(), 0.001), 0.8
    motion = mechanism.simulate(mechanism.state([[0.0]], [[speed]]), np.zeros((1, 3000, 1)))
    assert motion.status[0] == 0
    angle, rate = motion.states[0, :, 0], np.diff(motion.states[0, :, 0]) / 0.001
    stop = speed * INERTIA / FRICTION  # 2 s
    t = 0.001 * (np.arange(len(rate)) + 0.5)
    np.testing.assert_allclose(rate[t < 0.95 * stop], (speed - FRICTION / INERTIA * t)[t < 0.95 * stop], atol=2e-3)
    assert angle[-1] == pytest.approx(0.5 * speed * stop, rel=3e-3) and abs(rate[-1]) < 1e-6


def test_what_cannot_break_loose_creeps_and_no_faster_than_said():
    mechanism = Mechanism(wheel(), 0.01)
    motion = mechanism.simulate(np.zeros((1, 2)), np.full((1, 500, 1), 0.5 * FRICTION))
    rate = np.diff(motion.states[0, :, 0]) / 0.01
    assert motion.status[0] == 0 and rate[-1] == pytest.approx(WIDTH * np.arctanh(0.5), rel=1e-6)


def test_a_chain_with_friction_swings_as_in_mujoco():
    mujoco = pytest.importorskip("mujoco")
    from softgym_envs.mechanics.mujoco_tree import spec_of, write_tree

    tree = chain(3)
    tree = replace(tree, joints=tuple(replace(joint, friction=0.03, friction_speed=5e-3) for joint in tree.joints))
    mechanism, start, steps = Mechanism(tree, 0.001), np.array([0.6, -0.4, 0.5]), 1500
    ours, free = (
        found.simulate(found.state([start], [[0.0] * 3]), np.zeros((1, steps, 1))).states[0, :, :3]
        for found in (mechanism, Mechanism(chain(3), 0.001))
    )
    model = spec_of(tree, 0.00025).compile()
    write_tree(model, tree, {})
    data, theirs = mujoco.MjData(model), [start]
    data.qpos[:] = start
    for _ in range(steps):
        mujoco.mj_step(model, data, nstep=4)
        theirs.append(data.qpos.copy())
    assert np.abs(ours - free).max() > 0.1  # friction does something
    assert np.abs(ours - np.array(theirs)).max() < 0.2 * np.abs(ours - free).max()  # both are regularised, each in its way


def test_bad_friction_is_named():
    with pytest.raises(StructureError, match="friction is -1"):
        wheel(friction=-1.0)
    with pytest.raises(StructureError, match="friction_speed is 0"):
        wheel(friction_speed=0.0)


def test_friction_that_is_large_for_the_step_is_solved():
    """Every step of a light wheel with friction is the root that bisection finds."""
    inertia, dt, count = 0.01, 0.01, 200
    body = Body("wheel", 1.0, inertia=(inertia,) * 3)
    mechanism, rng = Mechanism(replace(wheel(friction=2.0, friction_speed=0.02), bodies=(body,)), dt), np.random.default_rng(0)
    momentum, torque = inertia * rng.uniform(-3.0, 3.0, count), rng.uniform(-6.0, 6.0, count)
    motion = mechanism.simulate(np.stack([0 * momentum, momentum], axis=1), torque[:, None, None])
    assert not motion.status.any()

    def left(v, p, u):
        return p + dt * (u - 2.0 * np.tanh(v / 0.02)) - inertia * v

    roots = [brentq(left, -1e3, 1e3, args=pair, xtol=1e-14) for pair in zip(momentum, torque, strict=True)]
    np.testing.assert_allclose(motion.states[:, 1, 0] / dt, roots, atol=1e-9)


def test_an_arm_with_a_gearboxs_friction_moves():
    """0.4 N m in every joint of an arm that holds a loop, in steps of 10 ms."""
    simulator = LoopSimulator()
    parameter_values = LoopParameters().replace(**dict.fromkeys(FRICTION_OF_THE_ARM, 0.4))
    times, rng = 0.01 * np.arange(200), np.random.default_rng(0)
    sizes, rates = rng.uniform(1.2, 1.5, (4, 1, 7)), rng.uniform(0.2, 2.0, (4, 1, 7))
    torques = sizes * np.sin(2 * np.pi * rates * times[:, None])
    states, status = simulator.rollout(np.repeat(simulator.initial_state(), 4, axis=0), torques, parameters=parameter_values)
    assert not status.any() and np.ptp(states[:, :, :7], axis=1).max() > 0.05
    gaps, _ = simulator.mechanism.gaps(states[:, -1, : simulator.model.n], simulator.tree_constants(parameter_values, 4))
    assert np.abs(gaps).max() < 1e-10
