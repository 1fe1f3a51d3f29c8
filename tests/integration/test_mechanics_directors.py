"""Director coordinates: null space, reduced and full steps, conserved quantities, and the tree mechanics as dt goes to zero."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from mechanics_systems import PARAMETERS, chain, rich

from reproductions.penner2020.director_steps import DirectorSteps
from reproductions.penner2020.directors import Directors
from softgym_envs.core.errors import OptionError, StructureError
from softgym_envs.mechanics import Body, Joint, Mechanism, Tree


def rich_directors(seed: int = 0) -> Directors:
    """All kinds of joints, two branches, fixed and massless bodies."""
    tree, values = rich(seed)
    return Directors(tree, dict(zip(PARAMETERS, values.tolist(), strict=True)))


def spinning() -> Tree:
    """A rod that swings on a body that turns freely about the vertical."""
    bodies = (
        Body("base", 2.0, (0.1, 0.0, 0.0), (0.05, 0.06, 0.08)),
        Body("rod", 1.0, (0.0, 0.0, -0.3), (0.03, 0.035, 0.01, 0.002, 0.001, -0.003)),
    )
    joints = (
        Joint("turn", "revolute", "world", "base", axis=(0.0, 0.0, 1.0)),
        Joint("swing", "revolute", "base", "rod", axis=(0.0, 1.0, 0.0), xyz=(0.4, 0.0, 0.0)),
    )
    return Tree("spinning", bodies, joints)


@pytest.mark.parametrize("directors", [Directors(chain()), rich_directors()], ids=["chain", "rich"])
def test_the_null_space_is_that_of_the_constraints(directors: Directors):
    import casadi as ca

    q = ca.SX.sym("q", directors.size)
    slope = ca.Function("slope", [q], [ca.jacobian(directors.constraints(q), q)])
    rng = np.random.default_rng(0)
    for _ in range(5):
        where = directors.configuration(rng.uniform(-2.5, 2.5, directors.f))
        P, G = np.array(directors.null_space(where)), np.array(slope(where))
        assert np.abs(np.array(directors.constraints(where))).max() < 1e-12
        assert np.abs(P.T @ G.T).max() < 1e-12
        assert np.linalg.matrix_rank(P) == directors.f == directors.size - np.linalg.matrix_rank(G, tol=1e-9)


def test_increments_keep_the_constraints_however_large():
    directors, rng = rich_directors(), np.random.default_rng(1)
    q = directors.configuration(rng.uniform(-1, 1, directors.f))
    after = directors.reparametrisation(rng.uniform(-3, 3, directors.f), q)
    assert np.abs(np.array(directors.constraints(after))).max() < 1e-12


def test_configurations_are_those_of_the_tree_mechanics():
    tree, values = rich(2)
    mechanism, directors = Mechanism(tree, 0.01, PARAMETERS), rich_directors(2)
    theta = np.random.default_rng(3).uniform(-1, 1, directors.f)
    q = directors.configuration(theta)
    for frame in ("end", "hand"):
        body = tree.frame(frame).body
        pose, bare = directors.pose(body, q), next(b for b in tree.bodies if b.name == body)
        point = np.array(pose.x).ravel() + np.array(pose.R) @ (np.array(tree.frame(frame).xyz) - np.array(bare.com))
        np.testing.assert_allclose(point, mechanism.pose(frame, theta[None])[1][0], atol=1e-12)
    # the same mass matrix and gravity
    P, velocity = np.array(directors.null_space(q)), np.random.default_rng(4).normal(size=directors.f)
    armature = np.array([values[PARAMETERS.index("armature")] if j.armature else 0.0 for j in tree.moving])
    slopes = mechanism.slopes(theta[None], velocity[None], values)
    mass = np.array(_dm(directors.mass))
    np.testing.assert_allclose(P.T @ mass @ P + np.diag(armature), slopes.vv[0], atol=1e-12)


def _dm(value):
    import casadi as ca

    return ca.DM(value)


def test_the_reduced_step_is_the_full_constrained_step():
    steps = DirectorSteps(Directors(chain(3, stiffness=0.0)), 0.02)
    rng = np.random.default_rng(5)
    impulses = 0.02 * rng.normal(size=(6, 3))
    motion = steps.simulate([0.5, -0.3, 0.8], [1.0, 2.0, -1.0], impulses)
    for n in range(1, 6):
        impulse = 0.5 * (impulses[n - 1] + impulses[n])
        after = steps.full_step(motion.q[n - 1], motion.q[n], impulse)
        np.testing.assert_allclose(after, motion.q[n + 1], atol=1e-10)


def test_momentum_is_kept_and_energy_stays_near():
    errors = []
    for h in (0.02, 0.01):
        steps = DirectorSteps(Directors(spinning()), h)
        motion = steps.simulate([0.0, 1.0], [2.0, 0.5], np.zeros((round(6.0 / h), 2)))
        assert np.ptp(motion.momentum[:, 0]) < 1e-10 * abs(motion.momentum[0, 0]) * len(motion.q)
        energy = np.array([steps.energy(a, b) for a, b in zip(motion.q[:-1], motion.q[1:], strict=True)])
        half = len(energy) // 2
        errors.append(np.ptp(energy))
        assert abs(energy[:half].mean() - energy[half:].mean()) < 0.2 * np.ptp(energy)  # it swings, it does not drift
    assert errors[1] < 0.35 * errors[0]  # h^2


def test_the_tree_mechanics_is_met_in_second_order():
    tree, start, velocity, horizon = chain(3, stiffness=0.0), np.array([0.6, -0.4, 0.5]), np.array([0.5, -1.0, 0.8]), 0.4
    fine = Mechanism(tree, 1e-4, force_split="symmetric")
    ground_truth = fine.simulate(fine.state([start], [velocity]), np.zeros((1, round(horizon / 1e-4), 1))).states[0, -1, :3]
    errors = []
    for h in (0.02, 0.01, 0.005):
        motion = DirectorSteps(Directors(tree), h).simulate(start, velocity, np.zeros((round(horizon / h), 3)))
        errors.append(np.abs(motion.theta[-1] - ground_truth).max())
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert errors[-1] < 1e-3 and (orders > 1.8).all(), (errors, orders)


def test_loops_are_closed_by_multipliers():
    """A weld and a pin in a tree of 11 coordinates: closed as long as it moves, and as the tree mechanics moves."""
    tree, values = rich(0)
    bare = replace(
        tree, joints=tuple(replace(j, stiffness=0.0, damping=0.0, armature=0.0, offset=0.0, friction=0.0) for j in tree.joints)
    )
    given = dict(zip(PARAMETERS, values.tolist(), strict=True))
    steps, horizon = DirectorSteps(Directors(bare, given), 0.005), 0.05
    fine = Mechanism(bare, 2e-4, PARAMETERS, force_split="symmetric")
    theta = np.zeros(fine.n)
    slope = fine.gaps(theta[None], values)[1][0]
    free = np.linalg.svd(slope)[2][len(slope) :]
    velocity = free.T @ np.array([0.5, -0.4, 0.3, 0.2])[: len(free)]
    motion = steps.simulate(theta, velocity, np.zeros((round(horizon / steps.h), fine.n)))
    ground_truth = fine.simulate(
        fine.state([theta], [velocity], parameter_values=values), np.zeros((1, round(horizon / 2e-4), 3)), values
    )
    gaps = [np.abs(np.array(steps.directors.closure(q))).max() for q in motion.q]
    assert max(gaps) < 1e-10 and ground_truth.status[0] == 0
    moved = np.abs(ground_truth.states[0, -1, : fine.n]).max()
    np.testing.assert_allclose(motion.theta[-1], ground_truth.states[0, -1, : fine.n], atol=0.02 * moved)


def test_bad_input_is_named():
    with pytest.raises(StructureError, match="uses parameters"):
        Directors(rich(0)[0])
    with pytest.raises(OptionError, match="h is"):
        DirectorSteps(Directors(chain()), 0.0)
    with pytest.raises(StructureError, match="unknown body"):
        directors = Directors(chain())
        directors.pose("tail", directors.reference)
