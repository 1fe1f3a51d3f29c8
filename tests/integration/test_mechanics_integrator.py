"""The variational integrator against closed forms, invariants, orders of convergence and its own equations in CasADi."""

import numpy as np
import pytest
from helpers import load_script
from mechanics_systems import PARAMETERS, chain, closed, pendulum, rich, rod
from scipy.special import ellipk

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
