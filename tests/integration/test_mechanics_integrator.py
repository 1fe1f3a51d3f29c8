"""The variational integrator against closed forms, invariants, orders of convergence and its own equations in CasADi. Director
coordinates: null space, reduced and full steps, conserved quantities, and the tree mechanics as dt goes to zero."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import load_script
from mechanics_systems import PARAMETERS, chain, closed, pendulum, rich, rod
from scipy.special import ellipk

from reproductions.penner2020.director_steps import DirectorSteps
from reproductions.penner2020.directors import Directors
from softgym_envs.core.errors import OptionError, ShapeError, StructureError
from softgym_envs.core.simulator import Status
from softgym_envs.mechanics import Body, Joint, Mechanism, Tree, Weld
from softgym_envs.mechanics.integrator import GAP_TOLERANCE

LENGTH = 1.0


def swing(dt, angle, seconds, **options):
    """A pendulum released at rest: times and angles at control steps."""
    mechanism = Mechanism(pendulum(LENGTH), dt, force_split="symmetric", **options)
    steps = round(seconds / dt)
    motion = mechanism.simulate(mechanism.state([[angle]], [[0.0]]), np.zeros((1, steps, 1)))
    assert motion.status[0] == 0
    return dt * np.arange(steps + 1), motion.states[0, :, 0]


def period(dt, angle):
    """Mean time between zeros of one direction, by cubic interpolation between steps."""
    times, angles = swing(dt, angle, 12.0)
    zeros = []
    for k in np.flatnonzero((angles[1:-2] < 0) & (angles[2:-1] >= 0)) + 1:
        near = slice(k - 1, k + 3)
        fit = np.polyfit(angles[near], times[near], 3)
        zeros.append(np.polyval(fit, 0.0))
    return np.mean(np.diff(zeros))


@pytest.mark.parametrize("angle", [0.01, 2.0])
def test_pendulum_has_the_elliptic_period_with_an_error_of_second_order(angle):
    exact = 4 * np.sqrt(LENGTH / 9.81) * ellipk(np.sin(angle / 2) ** 2)
    errors = [abs(period(dt, angle) - exact) for dt in (0.04, 0.02, 0.01)]
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert errors[-1] < 1e-3 * exact and np.all(np.abs(orders - 2) < 0.1), (errors, orders)


@pytest.mark.parametrize(("split", "order"), [("left", 1), ("symmetric", 2)])
def test_forces_are_of_first_order_with_the_papers_split_and_of_second_with_the_symmetric(split, order):
    def end(dt):
        mechanism = Mechanism(pendulum(LENGTH, damping=0.5), dt, force_split=split)
        times = dt * (np.arange(round(1.0 / dt)) + 0.5)
        start = np.array([[0.5, 0.0]])  # p = L_v: what a user of either split would write
        return mechanism.simulate(start, 3 * np.sin(4 * times)[None, :, None]).states[0, -1, 0]

    reference = Mechanism(pendulum(LENGTH, damping=0.5), 1 / 4096, force_split="symmetric")
    times = (np.arange(4096) + 0.5) / 4096
    exact = reference.simulate([[0.5, 0.0]], 3 * np.sin(4 * times)[None, :, None]).states[0, -1, 0]
    errors = [abs(end(dt) - exact) for dt in (1 / 32, 1 / 64, 1 / 128)]
    assert np.all(np.abs(np.log2(np.array(errors[:-1]) / errors[1:]) - order) < 0.2), errors


def middle_energy(mechanism, motion, parameter_values=()):
    """At the midpoints of the steps, (T,)."""
    q = motion.states[0, :, : mechanism.n]
    return mechanism.energies((q[1:] + q[:-1]) / 2, np.diff(q, axis=0) / mechanism.dt, parameter_values).sum(axis=1)


def test_energy_stays_within_bounds_and_does_not_drift_over_1e5_steps():
    mechanism = Mechanism(chain(3), 0.005)
    start = mechanism.state([[0.6, 0.3, -0.2]], np.zeros((1, 3)))
    motion = mechanism.simulate(start, np.zeros((1, 100_000, 1)))
    energy = middle_energy(mechanism, motion)
    swing_of_energy = energy[0] - mechanism.energies(np.zeros((1, 3)), np.zeros((1, 3))).sum()
    error = energy - energy.mean()
    slope = np.polyfit(np.linspace(0, 1, len(error)), error, 1)[0]
    assert motion.status[0] == 0
    assert np.abs(error).max() < 2e-3 * swing_of_energy, np.abs(error).max() / swing_of_energy
    assert abs(slope) < 2e-5 * swing_of_energy, slope / swing_of_energy


def test_energy_error_is_of_second_order():
    def spread(dt):
        mechanism = Mechanism(chain(3), dt)
        motion = mechanism.simulate(mechanism.state([[0.6, 0.3, -0.2]], np.zeros((1, 3))), np.zeros((1, round(5 / dt), 1)))
        return np.ptp(middle_energy(mechanism, motion))

    assert 3.7 < spread(0.005) / spread(0.0025) < 4.3


def floating():
    """A body that floats in the plane, with two rods on it."""
    bodies = (Body("sledge"), Body("bridge"), rod("base"), rod("upper"), rod("lower"))
    joints = (
        Joint("x", "prismatic", "world", "sledge", (1.0, 0.0, 0.0)),
        Joint("z", "prismatic", "sledge", "bridge", (0.0, 0.0, 1.0)),
        Joint("theta", "revolute", "bridge", "base", (0.0, -1.0, 0.0)),
        Joint("first", "revolute", "base", "upper", (0.0, -1.0, 0.0), (0.0, 0.0, -0.5), stiffness=1.0),
        Joint("second", "revolute", "upper", "lower", (0.0, -1.0, 0.0), (0.0, 0.0, -0.5), stiffness=1.0),
    )
    return Mechanism(Tree("floating", bodies, joints, gravity=(0.0, 0.0, 0.0)), 0.01)


def test_linear_and_angular_momentum_of_a_floating_tree_are_conserved():
    mechanism = floating()
    start = mechanism.state([[0.3, -0.2, 0.4, 1.0, -0.8]], [[0.5, 1.0, 2.0, -3.0, 1.0]])
    motion = mechanism.simulate(start, np.zeros((1, 5000, 0)))
    q, p = motion.states[0, :, :5], motion.states[0, :, 5:]
    angular = q[:, 0] * p[:, 1] - q[:, 1] * p[:, 0] + p[:, 2]
    assert np.ptp(q[:, 0]) > 10  # it has travelled
    assert np.abs(p[:, :2] - p[0, :2]).max() < 1e-10
    assert np.abs(angular - angular[0]).max() < 1e-8  # what Newton's method leaves, 5000 times


def test_closed_chain_keeps_its_constraints_at_every_step():
    mechanism = closed()
    rng = np.random.default_rng(0)
    controls = 0.1 * rng.normal(size=(3, 2000, 2))
    motion = mechanism.simulate(np.zeros((3, mechanism.nx)), controls, [1.5, 0.02])
    assert not motion.status.any()
    h, _ = mechanism.gaps(motion.states[:, 1:, : mechanism.n].reshape(-1, mechanism.n), [1.5, 0.02])
    assert np.abs(h).max() <= GAP_TOLERANCE
    assert np.ptp(motion.states[..., : mechanism.n]) > 0.3  # it moves


@pytest.mark.parametrize("split", ["left", "symmetric"])
def test_steps_solve_the_equations_as_casadi_writes_them(split):
    pytest.importorskip("casadi")
    step_equations = load_script("benchmarks/step_equations.py").step_equations

    rng = np.random.default_rng(1)
    (tree, values), early = rich(1), {"left": 1.0, "symmetric": 0.5}[split]
    mechanism = Mechanism(tree, 0.01, PARAMETERS, split)
    equations = step_equations(tree, PARAMETERS, 0.01, early=early)
    motion = mechanism.simulate(np.zeros((1, mechanism.nx)), rng.normal(size=(1, 5, 3)), values)
    assert motion.status[0] == 0
    for k in range(5):
        g = equations(motion.path[0, k], motion.applied[0, k], values, motion.path[0, k + 1], motion.multipliers[0, k])
        assert np.abs(np.array(g)).max() < 1e-10


def test_step_map_of_a_damped_loop_at_rest_has_no_eigenvalue_outside_the_unit_circle():
    for stiffness in (0.5, 2.0):
        mechanism, parameter_values = closed(damping=0.02), [stiffness, 0.02]
        rest = mechanism.rest(np.zeros((1, mechanism.n)), parameter_values=parameter_values)
        A = mechanism.linearize(
            mechanism.rest_state(rest.q, parameter_values=parameter_values), np.zeros((1, 2)), parameter_values
        ).A[0]
        assert rest.status[0] == 0 and np.abs(np.linalg.eigvals(A)).max() <= 1 + 1e-9
        motion = mechanism.simulate(np.zeros((1, mechanism.nx)), np.zeros((1, 4000, 2)), parameter_values)
        assert np.abs(motion.states[0, -1, : mechanism.n] - rest.q).max() < 1e-3  # and it gets there


def test_a_failed_row_keeps_its_last_good_state_and_leaves_the_others_alone():
    mechanism = closed()
    controls = np.zeros((2, 20, 2))
    controls[1, 10:] = 1e8
    motion = mechanism.simulate(np.zeros((2, mechanism.nx)), controls, [1.5, 0.02])
    alone = mechanism.simulate(np.zeros((1, mechanism.nx)), controls[:1], [1.5, 0.02])
    assert motion.status[0] == Status.OK and motion.status[1] in (Status.DIVERGED, Status.UNSOLVED)
    assert np.isfinite(motion.path).all() and np.array_equal(motion.path[1, -1], motion.path[1, 10])
    assert np.array_equal(motion.path[0], alone.path[0])
    assert np.isnan(mechanism.sensitivities(motion)[1]).all() and np.isfinite(mechanism.sensitivities(motion)[0]).all()


def test_rollout_is_repeated_steps_bit_for_bit_and_substeps_are_steps():
    mechanism, parameter_values = closed(), np.array([[1.5, 0.02]])
    controls = 0.1 * np.random.default_rng(0).normal(size=(1, 6, 2))
    start = np.zeros((1, mechanism.nx))
    states, status = mechanism.engine.rollout(start, controls, parameter_values, 2)
    motion = mechanism.simulate(start, controls, parameter_values, substeps=2)
    x = start
    for t in range(6):
        x = mechanism.engine.rollout(x, controls[:, t : t + 1], parameter_values, 2)[0][:, 1]
        assert np.array_equal(x, states[:, t + 1])
    assert np.array_equal(states, motion.states) and not status.any()


def test_constant_and_changing_gains_give_the_controls_that_they_promise():
    mechanism, parameter_values = closed(), [1.5, 0.02]
    rng = np.random.default_rng(0)
    gain, controls = 0.05 * rng.normal(size=(2, mechanism.nx)), 0.1 * rng.normal(size=(1, 30, 2))
    motion = mechanism.simulate(np.zeros((1, mechanism.nx)), controls, parameter_values, gains=gain)
    same = mechanism.simulate(np.zeros((1, mechanism.nx)), controls, parameter_values, gains=np.tile(gain, (30, 1, 1)))
    np.testing.assert_allclose(motion.applied[0], controls[0] - motion.states[0, :-1] @ gain.T, atol=1e-13)
    assert np.array_equal(motion.path, same.path)


def test_bad_arguments_are_named():
    mechanism = Mechanism(pendulum(), 0.01)
    start, controls = [[0.1, 0.0]], np.zeros((1, 5, 1))
    with pytest.raises(ShapeError, match="state has shape"):
        mechanism.simulate([[0.1]], controls)
    with pytest.raises(ShapeError, match="controls holds NaN"):
        mechanism.simulate(start, np.full((1, 5, 1), np.nan))
    with pytest.raises(ShapeError, match="parameter_values has shape"):
        mechanism.simulate(start, controls, [1.0])
    with pytest.raises(ShapeError, match="gains are given for 3"):
        mechanism.simulate(start, controls, gains=np.zeros((3, 1, 2)))
    with pytest.raises(OptionError, match="substeps"):
        mechanism.simulate(start, controls, substeps=0)
    with pytest.raises(OptionError, match="dt"):
        Mechanism(pendulum(), 0.0)
    with pytest.raises(OptionError, match="force_split is 'right'"):
        Mechanism(pendulum(), 0.01, force_split="right")
    with pytest.raises(StructureError, match="held coordinate"):
        mechanism.rest([[0.0]], held=("knee",))
    with pytest.raises(StructureError, match="uses parameter 'k'"):
        Mechanism(Tree("t", (rod("a"),), (Joint("j", "revolute", "world", "a", stiffness="k"),)), 0.01)
    with pytest.raises(StructureError, match="moves no mass"):
        Mechanism(Tree("t", (Body("a"),), (Joint("j", "revolute", "world", "a"),)), 0.01)
    with pytest.raises(StructureError, match="holds nothing"):
        from softgym_envs.mechanics import Frame

        ground = Frame("spot", "world")
        joint = Joint("j", "revolute", "world", "a")
        Mechanism(Tree("t", (rod("a"),), (joint,), (ground,), (Weld("w", "spot"),)), 0.01)


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
