"""Balls on pegs and bonds of two frames: against CasADi, against differences; energy is kept; a ring rests on a peg. Dry
friction of joints: Coulomb's law, creep where nothing moves, MuJoCo's friction loss."""

from dataclasses import replace

import numpy as np
import pytest
from mechanics_systems import chain
from scipy.optimize import brentq

from softgym_envs.core.errors import StructureError
from softgym_envs.mechanics import Ball, Body, Bond, Frame, Joint, Mechanism, Peg, Tree
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.model import FRICTION as FRICTION_OF_THE_ARM
from softgym_envs.systems.loop.parameters import LoopParameters

PARAMETERS = ("x", "y", "z", "roll", "pitch", "yaw")
POSE = np.array([0.05, -0.03, -0.42, 0.3, 1.2, -0.2])


def leaning(peg: Peg) -> Tree:
    """A chain of three rods with two balls on every rod, beside a peg."""
    tree = chain(3, damping=0.02)
    balls = tuple(Ball(f"ball{i}{k}", f"rod{i}", (0.0, 0.0, -0.1 * k), 0.03) for i in range(3) for k in (1, 2))
    return replace(tree, balls=balls, pegs=(peg,))


PEG = Peg("peg", PARAMETERS[:3], PARAMETERS[3:], 0.2, 0.05, 300.0, 0.01)
MECHANISM = Mechanism(leaning(PEG), 0.005, PARAMETERS)


def depths(q, pose=POSE):
    """How deep every ball is in the peg, from poses in NumPy: an independent formulation."""
    turn = _rotation(pose[3:])
    found = []
    for ball in MECHANISM.tree.balls:
        frame = Mechanism(replace(MECHANISM.tree, frames=(Frame("b", ball.body, ball.xyz),)), 0.005, PARAMETERS).pose(
            "b", q[None]
        )[1][0]
        off = turn.T @ (frame - pose[:3])
        nearest = np.array([0.0, 0.0, np.clip(off[2], 0.0, PEG.length)])
        found.append(ball.radius + PEG.radius - np.linalg.norm(off - nearest))
    return np.array(found)


def _rotation(rpy):
    from softgym_envs.mechanics.structure import rotation

    return rotation(rpy)


def touching(count=6):
    """Configurations in contact, at several depths, at the side and at the ends of the peg."""
    rng, found = np.random.default_rng(0), []
    while len(found) < count:
        q = rng.uniform(-0.6, 0.6, 3)
        deep = depths(q).max()
        if 1e-3 < deep < 0.03 and abs(deep - PEG.softness) > 1e-3:
            found.append(q)
    return np.array(found)


Q = touching()


def test_energy_and_its_derivatives_are_those_of_casadi():
    ca = pytest.importorskip("casadi")
    from softgym_envs.mechanics.symbolic import describe

    s = describe(MECHANISM.tree, PARAMETERS)
    qq, lq = ca.hessian(s.lagrangian, s.q)
    oracle = ca.Function("oracle", [s.q, s.v, s.c], [s.lagrangian, lq, qq])
    V = np.random.default_rng(1).normal(size=Q.shape)
    energies, slopes = MECHANISM.energies(Q, V, POSE), MECHANISM.slopes(Q, V, POSE)
    for row in range(len(Q)):
        L, lq, qq = (np.array(part) for part in oracle(Q[row], V[row], POSE))
        np.testing.assert_allclose(energies[row, 0] - energies[row, 1], L.item(), rtol=1e-12)
        np.testing.assert_allclose(slopes.q[row], lq.ravel(), rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(slopes.qq[row], qq, rtol=1e-10, atol=1e-9)


def test_the_step_is_differentiated_exactly_also_by_the_pose_of_the_peg():
    state = MECHANISM.state(Q, np.zeros_like(Q), np.zeros((len(Q), 1)), POSE)
    control, step = np.zeros((len(Q), 1)), 1e-6

    def after(x, c):
        return MECHANISM.simulate(x, control[:, None], c).states[:, -1]

    A, _, C = MECHANISM.linearize(state, control, POSE)
    by_state = np.stack(
        [(after(state + step * e, POSE) - after(state - step * e, POSE)) / (2 * step) for e in np.eye(6)], axis=2
    )
    by_pose = np.stack(
        [(after(state, POSE + step * e) - after(state, POSE - step * e)) / (2 * step) for e in np.eye(6)], axis=2
    )
    np.testing.assert_allclose(A, by_state, rtol=1e-5, atol=1e-5 * np.abs(by_state).max())
    np.testing.assert_allclose(C, by_pose, rtol=1e-5, atol=1e-5 * np.abs(by_pose).max())


def test_a_bounce_keeps_the_energy():
    """Contact is elastic: what a pendulum loses on a peg is a matter of the step, of second order."""
    rod = Body("rod", 1.0, (0.0, 0.0, -0.5), (0.01, 0.01, 0.001))
    hinge = Joint("hinge", "revolute", "world", "rod", axis=(0.0, 1.0, 0.0))
    peg = Peg("peg", (0.1, -0.2, -0.5), (-np.pi / 2, 0.0, 0.0), 0.4, 0.02, 5000.0, 0.004)
    tree = Tree("bell", (rod,), (hinge,), balls=(Ball("tip", "rod", (0.0, 0.0, -0.5), 0.03),), pegs=(peg,))
    lost = []
    for dt in (4e-3, 2e-3, 1e-3):
        bell = Mechanism(tree, dt, ())
        motion = bell.simulate(bell.state([[0.6]], [[0.0]]), np.zeros((1, round(1.2 / dt), 0)))
        path = motion.states[0]
        assert -0.3 < path[:, 0].min() < 0.0 and path[len(path) // 2 :, 0].max() > 0.5  # it came, touched, and went
        velocity = np.diff(path[:, 0]) / dt
        energies = bell.energies(0.5 * (path[1:, :1] + path[:-1, :1]), velocity[:, None]).sum(axis=1)
        lost.append(abs(energies[-1] - energies[0]))
    assert lost[0] < 0.02 and lost[2] < lost[0] / 4, lost


def ring(count: int = 8) -> Tree:
    """A planar ring of rods in two branches on a slide, closed by a bond: it hangs from its top, and may fall."""
    length, turn = 0.1, 2 * np.pi / count
    bodies, joints = [Body("top", 0.2, inertia=(1e-3, 1e-3, 1e-3))], []
    joints.append(Joint("slide", "prismatic", "world", "top", axis=(0.0, 0.0, 1.0)))
    for side, sign in (("l", 1), ("r", -1)):
        for i in range(count // 2):
            share = 0.5 if i == count // 2 - 1 else 1.0
            parent = "top" if i == 0 else f"{side}{i - 1}"
            bodies.append(Body(f"{side}{i}", 0.05 * share, (0.0, 0.0, share * length / 2), (1e-4, 1e-4, 1e-5)))
            xyz = (0.0, sign * length / 2, 0.0) if i == 0 else (0.0, 0.0, length)
            rpy = (sign * (turn - np.pi / 2), 0.0, 0.0) if i == 0 else (sign * turn, 0.0, 0.0)
            for axis, name in (((1.0, 0.0, 0.0), "a"), ((0.0, 1.0, 0.0), "b")):
                knee = f"{side}{i}_knee"
                first = name == "a"
                joints.append(
                    Joint(f"{side}{name}{i}", "revolute", parent if first else knee, knee if first else f"{side}{i}", axis,
                          xyz if first else (0.0, 0.0, 0.0), rpy if first else (0.0, 0.0, 0.0), stiffness=2.0, damping=0.02)
                )  # fmt: skip
            bodies.append(Body(knee))
    frames = tuple(
        Frame(f"end_{side}", f"{side}{count // 2 - 1}", (0.0, 0.0, length / 2), (-sign * np.pi / 2, 0.0, 0.0))
        for side, sign in (("l", 1), ("r", -1))
    )
    balls = tuple(Ball(f"ball{b.name}", b.name, (0.0, 0.0, length / 2), 0.02) for b in bodies if b.mass > 0)
    peg = Peg("peg", (-0.3, 0.0, -0.12), (0.0, np.pi / 2, 0.0), 0.6, 0.02, 2000.0, 0.002)
    return Tree("ring", tuple(bodies), tuple(joints), frames, (Bond("closed", "end_l", "end_r"),), balls=balls, pegs=(peg,))


def test_a_bond_is_closed_and_its_curvature_is_a_difference():
    free = Mechanism(replace(ring(), pegs=()), 0.005, ())
    h, G = free.gaps(np.zeros((1, free.n)))
    assert np.abs(h).max() < 1e-12 and np.linalg.matrix_rank(G[0]) == 6
    q = 0.1 * np.random.default_rng(2).normal(size=(1, free.n))
    steps = 1e-6 * np.eye(free.n)
    slopes = np.stack([(free.gaps(q + e)[0] - free.gaps(q - e)[0])[0] / 2e-6 for e in steps], axis=1)
    np.testing.assert_allclose(free.gaps(q)[1][0], slopes, atol=1e-8)
    state = free.state(np.zeros((1, free.n)), np.zeros((1, free.n)))
    state = free.simulate(state, np.zeros((1, 40, 0))).states[:, -1]
    A = free.linearize(state, np.zeros((1, 0)))[0][0]

    def after(x):
        return free.simulate(x, np.zeros((1, 1, 0))).states[0, -1]

    n = free.n
    along = np.linalg.svd(free.gaps(state[:, :n])[1][0])[2][6:]  # differences must keep the bond closed
    for way in (np.concatenate([along[0], np.zeros(n)]), np.concatenate([np.zeros(n), along[3]])):
        slope = (after(state + 1e-6 * way) - after(state - 1e-6 * way)) / 2e-6
        np.testing.assert_allclose(A @ way, slope, atol=2e-5 * np.abs(slope).max())


def test_a_ring_that_falls_on_a_peg_comes_to_rest_on_it_with_its_weight():
    system = Mechanism(ring(), 0.005, ())
    motion = system.simulate(system.state(np.zeros((1, system.n)), np.zeros((1, system.n))), np.zeros((1, 1600, 0)))
    assert motion.status[0] == 0 and np.abs(motion.states[:, -1] - motion.states[:, -200]).max() < 1e-2
    q = motion.states[:, -1, : system.n]
    assert -0.5 < q[0, 0] < 0.0  # it hangs on the peg by its top, and has not fallen through
    h, _ = system.gaps(q)
    assert np.abs(h).max() < 1e-10
    weight = 9.81 * sum(body.mass for body in system.tree.bodies)
    free = Mechanism(replace(ring(), pegs=()), 0.005, ())
    force = system.slopes(q, np.zeros_like(q)).q - free.slopes(q, np.zeros_like(q)).q
    np.testing.assert_allclose(force[0, 0], weight, rtol=0.05)


def test_bad_pegs_and_balls_are_named():
    with pytest.raises(StructureError, match="softness"):
        Peg("peg", softness=0.0)
    with pytest.raises(StructureError, match="radius"):
        Ball("ball", "rod", radius=-1.0)
    with pytest.raises(StructureError, match="ghost"):
        replace(chain(), balls=(Ball("ball", "ghost"),))


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
