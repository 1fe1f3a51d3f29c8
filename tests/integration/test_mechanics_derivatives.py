"""Exact derivatives of steps and motions: linearisation, forward sensitivities, adjoint, differences. The closed-form
derivatives of the Lagrangian, against CasADi (another formulation) and against differences. Parameters while the mechanism
moves: the filter of the batch fit, row by row."""

import numpy as np
import pytest
from mechanics_systems import PARAMETERS, closed, rich

from reproductions.caldwell2014.kalman import OnlineEstimator
from reproductions.caldwell2014.online import online_estimator
from softgym_envs.core.errors import OptionError, ShapeError
from softgym_envs.mechanics import Mechanism
from softgym_envs.systems.loop.manipulation import record
from softgym_envs.systems.loop.model import ARM, LoopModel
from softgym_envs.systems.loop.model import PARAMETERS as LOOP_PARAMETERS
from softgym_envs.systems.loop.parameters import LoopParameters

RNG = np.random.default_rng(5)
TREE, VALUES = rich(2)


def differences(function, at, steps):
    """Central differences of fourth order of a function of a vector, one column per entry."""

    def slope(direction):
        near, far = (function(at + k * direction) - function(at - k * direction) for k in (1, 2))
        return (8 * near - far) / 12

    return np.stack([slope(step * unit) / step for step, unit in zip(steps, np.eye(len(at)), strict=True)], axis=-1)


@pytest.mark.parametrize(("split", "substeps"), [("left", 1), ("left", 3), ("symmetric", 2)])
def test_linearisation_equals_differences_by_state_controls_and_every_kind_of_constant(split, substeps):
    mechanism = Mechanism(TREE, 0.01, PARAMETERS, split)
    control = RNG.normal(size=(1, 3))
    state = mechanism.simulate(np.zeros((1, mechanism.nx)), RNG.normal(size=(1, 10, 3)), VALUES).states[:, -1]

    def step(x, u, c):
        motion = mechanism.simulate(x[None], u[None, None], c, substeps=substeps)
        assert motion.status[0] == 0
        return motion.states[0, -1]

    found = mechanism.linearize(state, control, VALUES, substeps=substeps)
    expected = (
        differences(lambda x: step(x, control[0], VALUES), state[0], np.full(mechanism.nx, 1e-4)),
        differences(lambda u: step(state[0], u, VALUES), control[0], np.full(3, 1e-4)),
        differences(lambda c: step(state[0], control[0], c), VALUES, np.full(len(VALUES), 1e-5)),
    )
    for exact, numeric in zip(found, expected, strict=True):
        assert np.abs(numeric).max() > 1e-5
        np.testing.assert_allclose(exact[0], numeric, rtol=1e-6, atol=2e-7 * max(1.0, np.abs(numeric).max()))


def test_step_of_a_constrained_tree_loses_one_state_per_constraint():
    mechanism = closed()
    A = mechanism.linearize(np.zeros((1, mechanism.nx)), np.zeros((1, 2)), [1.5, 0.02]).A[0]
    assert np.linalg.matrix_rank(A, tol=1e-9 * np.abs(A).max()) == mechanism.nx - mechanism.m


def test_step_of_a_free_tree_without_damping_is_symplectic():
    from mechanics_systems import chain

    mechanism = Mechanism(chain(4), 0.01)
    start = mechanism.state([[0.5, -0.4, 0.3, 0.2]], [[1.0, 2.0, -1.0, 0.5]])
    A = mechanism.linearize(start, np.zeros((1, 1)), substeps=20).A[0]
    J = np.kron([[0.0, 1.0], [-1.0, 0.0]], np.eye(4))
    assert np.abs(A.T @ J @ A - J).max() < 1e-9


class Study:
    """A motion of the closed chain with feedback, and the cost sum_t |x_t - target|^2_W / 2."""

    def __init__(self, tree, parameter_values, substeps):
        self.mechanism, self.parameter_values, self.substeps = tree, parameter_values, substeps
        nx, nu = tree.nx, tree.nu
        rng = np.random.default_rng(7)
        self.start, self.controls = np.zeros((2, nx)), 0.2 * rng.normal(size=(2, 40, nu))
        self.gains, self.weights = 0.05 * rng.normal(size=(40, nu, nx)), rng.uniform(0.5, 2.0, size=nx)

    def move(self, parameter_values, start=None, controls=None):
        start, controls = self.start if start is None else start, self.controls if controls is None else controls
        motion = self.mechanism.simulate(start, controls, parameter_values, substeps=self.substeps, gains=self.gains)
        assert not motion.status.any()
        return motion

    def cost(self, motion):
        return 0.5 * (self.weights * (motion.states - 0.1) ** 2).sum(axis=(1, 2))

    def slopes(self, motion):
        return self.weights * (motion.states - 0.1)


@pytest.mark.parametrize("substeps", [1, 2])
@pytest.mark.parametrize("kind", ["closed", "rich"])
def test_adjoint_equals_forward_sensitivities_and_differences(kind, substeps):
    mechanism, parameter_values = (
        (closed(), np.array([1.5, 0.02])) if kind == "closed" else (Mechanism(TREE, 0.01, PARAMETERS), VALUES)
    )
    study = Study(mechanism, parameter_values, substeps)
    motion = study.move(parameter_values)
    gradient = mechanism.gradient(motion, study.slopes(motion))
    forward = np.einsum("btx,btxp->bp", study.slopes(motion), mechanism.sensitivities(motion))
    np.testing.assert_allclose(gradient.parameter_values, forward, rtol=1e-10, atol=1e-10 * np.abs(forward).max())

    numeric = differences(
        lambda c: study.cost(study.move(c)), parameter_values, 1e-5 * np.maximum(np.abs(parameter_values), 0.1)
    )
    np.testing.assert_allclose(gradient.parameter_values, numeric, rtol=1e-6, atol=1e-6 * np.abs(numeric).max())

    shift = np.random.default_rng(1).normal(size=study.start.shape)
    slope = (
        study.cost(study.move(parameter_values, study.start + 1e-6 * shift))
        - study.cost(study.move(parameter_values, study.start - 1e-6 * shift))
    ) / 2e-6
    np.testing.assert_allclose((gradient.state * shift).sum(axis=1), slope, rtol=1e-6)

    shift = np.random.default_rng(2).normal(size=study.controls.shape)
    ends = [study.cost(study.move(parameter_values, controls=study.controls + side * shift)) for side in (1e-4, -1e-4)]
    np.testing.assert_allclose((gradient.controls * shift).sum(axis=(1, 2)), (ends[0] - ends[1]) / 2e-4, rtol=1e-6)


def test_sensitivities_are_products_of_linearisations():
    mechanism, parameter_values = closed(), np.array([1.5, 0.02])
    study = Study(mechanism, parameter_values, 1)
    motion = study.move(parameter_values)
    found = mechanism.sensitivities(motion, start=np.ones((2, mechanism.nx, 2)))
    dx = np.ones((2, mechanism.nx, 2))
    for t in range(10):
        A, B, C = mechanism.linearize(motion.states[:, t], motion.applied[:, t], parameter_values)
        dx = (A - B @ study.gains[t]) @ dx + C
        np.testing.assert_allclose(found[:, t + 1], dx, rtol=1e-8, atol=1e-8 * np.abs(dx).max())


def test_sensitivities_to_what_the_controls_change_are_differences():
    mechanism, parameter_values = closed(), np.array([1.5, 0.02])
    study = Study(mechanism, parameter_values, 1)
    pushes = np.random.default_rng(3).normal(size=(*study.controls.shape[1:], 1))
    found = mechanism.sensitivities(study.move(parameter_values), directions=np.zeros((2, 1)), pushes=pushes)
    ends = [study.move(parameter_values, controls=study.controls + side * pushes[..., 0]).states for side in (1e-4, -1e-4)]
    expected = (ends[0] - ends[1]) / 2e-4
    np.testing.assert_allclose(found[..., 0], expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    with pytest.raises(ShapeError, match="pushes has shape"):
        mechanism.sensitivities(study.move(parameter_values), pushes=pushes)


def test_gradient_names_a_bad_argument():
    mechanism = closed()
    motion = mechanism.simulate(np.zeros((1, mechanism.nx)), np.zeros((1, 3, 2)), [1.5, 0.02])
    with pytest.raises(ShapeError, match="slopes has shape"):
        mechanism.gradient(motion, np.zeros((1, 3, mechanism.nx)))
    with pytest.raises(ShapeError, match="start has shape"):
        mechanism.sensitivities(motion, np.zeros((1, 3)))


KERNEL_RNG = np.random.default_rng(3)
RICH_TREE, RICH = rich(3)
MECHANISM = Mechanism(RICH_TREE, 0.01, PARAMETERS)
Q, V = KERNEL_RNG.normal(size=(2, 4, MECHANISM.n))


@pytest.fixture(scope="module")
def oracle():
    ca = pytest.importorskip("casadi")
    from softgym_envs.mechanics.symbolic import describe

    s = describe(RICH_TREE, PARAMETERS)
    qq, lq = ca.hessian(s.lagrangian, s.q)
    vv, lv = ca.hessian(s.lagrangian, s.v)
    outputs = [s.lagrangian, lq, lv, qq, ca.jacobian(lq, s.v), vv, s.gaps, ca.jacobian(s.gaps, s.q)]
    return ca.Function("oracle", [s.q, s.v, s.c], outputs)


def test_lagrangian_and_its_derivatives_are_those_of_casadi(oracle):
    energies, slopes, (h, G) = (
        MECHANISM.energies(Q, V, RICH),
        MECHANISM.slopes(Q, V, RICH),
        MECHANISM.gaps(Q, RICH),
    )
    for row in range(len(Q)):
        expected = [np.array(part) for part in oracle(Q[row], V[row], RICH)]
        ours = [
            energies[row, 0] - energies[row, 1],
            slopes.q[row],
            slopes.v[row],
            slopes.qq[row],
            slopes.qv[row],
            slopes.vv[row],
            h[row],
            G[row],
        ]
        for a, b in zip(ours, expected, strict=True):
            np.testing.assert_allclose(np.ravel(a), b.ravel(), rtol=1e-11, atol=1e-11)


def test_first_derivatives_are_differences_of_the_lagrangian():
    def lagrangian(q, v):
        return (MECHANISM.energies(q, v, RICH) @ [1.0, -1.0])[0]

    steps, slopes = 1e-6 * np.eye(MECHANISM.n), MECHANISM.slopes(Q[:1], V[:1], RICH)
    by_q = [(lagrangian(Q[:1] + e, V[:1]) - lagrangian(Q[:1] - e, V[:1])) / 2e-6 for e in steps]
    by_v = [(lagrangian(Q[:1], V[:1] + e) - lagrangian(Q[:1], V[:1] - e)) / 2e-6 for e in steps]
    np.testing.assert_allclose(slopes.q[0], by_q, atol=1e-7)
    np.testing.assert_allclose(slopes.v[0], by_v, atol=1e-7)


def test_second_derivatives_are_differences_of_the_first():
    steps, slopes = 1e-6 * np.eye(MECHANISM.n), MECHANISM.slopes(Q[:1], V[:1], RICH)
    ends = [[MECHANISM.slopes(Q[:1] + side * e, V[:1], RICH) for side in (1, -1)] for e in steps]
    fast = [[MECHANISM.slopes(Q[:1], V[:1] + side * e, RICH) for side in (1, -1)] for e in steps]
    np.testing.assert_allclose(slopes.qq[0].T, [(a.q - b.q)[0] / 2e-6 for a, b in ends], atol=1e-7)
    np.testing.assert_allclose(slopes.qv[0], [(a.v - b.v)[0] / 2e-6 for a, b in ends], atol=1e-7)
    np.testing.assert_allclose(slopes.vv[0].T, [(a.v - b.v)[0] / 2e-6 for a, b in fast], atol=1e-7)


def test_mass_matrix_is_positive_definite_and_gives_the_kinetic_energy():
    slopes, energies = MECHANISM.slopes(Q, V, RICH), MECHANISM.energies(Q, V, RICH)
    assert np.linalg.eigvalsh(slopes.vv).min() > 0
    np.testing.assert_allclose(0.5 * np.einsum("bi,bij,bj->b", V, slopes.vv, V), energies[:, 0], rtol=1e-12)


def test_point_slopes_are_differences_of_the_pose():
    for frame in ("end", "hand"):
        steps = 1e-6 * np.eye(MECHANISM.n)
        expected = [(MECHANISM.pose(frame, Q[:1] + e)[1] - MECHANISM.pose(frame, Q[:1] - e)[1])[0] / 2e-6 for e in steps]
        np.testing.assert_allclose(MECHANISM.point_slopes(frame, Q[:1])[0].T, expected, atol=1e-8)


def test_rest_balances_all_forces_and_a_state_at_rest_stays():
    loop = closed()
    parameter_values = [1.5, 0.02]
    rest = loop.rest(np.zeros((1, loop.n)), parameter_values=parameter_values, held=("theta0",))
    assert rest.status[0] == 0 and rest.q[0, 0] == 0.0 and np.abs(rest.q).max() > 0.01
    h, G = loop.gaps(rest.q, parameter_values)
    balance = (
        loop.slopes(rest.q, np.zeros_like(rest.q), parameter_values).q
        + rest.needed
        - np.einsum("bmn,bm->bn", G, rest.multipliers)
    )
    assert np.abs(balance).max() < 1e-10 and np.abs(h).max() < 1e-10
    control = np.array([[rest.needed[0, 0], 0.0]])
    for split in ("left", "symmetric"):
        same = closed(force_split=split)
        for start in (
            same.rest_state(rest.q, control, parameter_values),
            same.state(rest.q, np.zeros_like(rest.q), control, parameter_values),
        ):
            motion = same.simulate(start, np.repeat(control[:, None], 100, axis=1), parameter_values)
            assert np.abs(motion.states[0, :, : same.n] - rest.q).max() < 1e-9
        np.testing.assert_allclose(motion.multipliers[0, -1] / same.dt, rest.multipliers[0], atol=1e-8)


MODEL = LoopModel()
LOOP_MECHANISM = Mechanism(MODEL.tree, 0.01, LOOP_PARAMETERS)
OFFSETS = tuple(f"offset_{name}" for name in ARM)


def estimator(**changes):
    initial_guess = MODEL.defaults
    initial_guess[:2] = 5.0
    values = {
        "parameter_values": initial_guess,
        "spread": {"theta_stiffness": 1.0, "psi_stiffness": 1.0, **dict.fromkeys(OFFSETS, 1.0)},
        "linear": OFFSETS,
        "force": np.full(7, 0.05),
        "angle": np.full(7, 5e-4),
        **changes,
    }
    return OnlineEstimator(LOOP_MECHANISM, **values)


@pytest.mark.parametrize("bias", [0.0, 0.2])
def test_estimates_reach_the_ground_truth_within_their_standard_deviations_while_the_arm_moves(bias):
    recording = record(MODEL, LOOP_MECHANISM, MODEL.defaults, 500, scale=0.3).disturbed(
        np.random.default_rng(1), force=0.05, angle=5e-4, bias=bias
    )
    online = estimator()
    belief = online.start(recording.angles[:40])
    first = online.estimates(belief)
    for force, angle in zip(recording.forces[40:], recording.angles[40:], strict=False):
        belief = online.update(belief, force, angle)
    ground_truth = {"theta_stiffness": 4.45252, "psi_stiffness": 0.96969, **dict.fromkeys(OFFSETS, -bias)}
    for name, (value, std) in online.estimates(belief).items():
        assert abs(value - ground_truth[name]) < 4 * std, (name, value, std)
        assert std < 0.1 * first[name][1], name


def test_bad_arguments_are_named():
    with pytest.raises(OptionError, match="'mass'"):
        estimator(spread={"mass": 1.0})


def test_the_systems_estimator_is_this_one():
    recording = record(MODEL, LOOP_MECHANISM, MODEL.defaults, 100, scale=0.3)
    ours = online_estimator(MODEL, LoopParameters(theta_stiffness=5.0, psi_stiffness=5.0), angle=5e-4, torque=0.05)
    found = []
    for online in (ours, estimator()):
        belief = online.start(recording.angles[:40])
        for force, angle in zip(recording.forces[40:], recording.angles[40:], strict=False):
            belief = online.update(belief, force, angle)
        found.append(online.estimates(belief))
    assert found[0] == found[1]
