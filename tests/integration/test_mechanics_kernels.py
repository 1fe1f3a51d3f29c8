"""The closed-form derivatives of the Lagrangian, against CasADi (another formulation) and against differences."""

import numpy as np
import pytest
from mechanics_systems import PARAMETERS, closed, rich

from softgym_envs.mechanics import Mechanism

RNG = np.random.default_rng(3)
TREE, VALUES = rich(3)
MECHANISM = Mechanism(TREE, 0.01, PARAMETERS)
Q, V = RNG.normal(size=(2, 4, MECHANISM.n))


@pytest.fixture(scope="module")
def oracle():
    ca = pytest.importorskip("casadi")
    from softgym_envs.mechanics.symbolic import describe

    s = describe(TREE, PARAMETERS)
    qq, lq = ca.hessian(s.lagrangian, s.q)
    vv, lv = ca.hessian(s.lagrangian, s.v)
    outputs = [s.lagrangian, lq, lv, qq, ca.jacobian(lq, s.v), vv, s.gaps, ca.jacobian(s.gaps, s.q)]
    return ca.Function("oracle", [s.q, s.v, s.c], outputs)


def test_lagrangian_and_its_derivatives_are_those_of_casadi(oracle):
    energies, slopes, (h, G) = MECHANISM.energies(Q, V, VALUES), MECHANISM.slopes(Q, V, VALUES), MECHANISM.gaps(Q, VALUES)
    for row in range(len(Q)):
        expected = [np.array(part) for part in oracle(Q[row], V[row], VALUES)]
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
        return (MECHANISM.energies(q, v, VALUES) @ [1.0, -1.0])[0]

    steps, slopes = 1e-6 * np.eye(MECHANISM.n), MECHANISM.slopes(Q[:1], V[:1], VALUES)
    by_q = [(lagrangian(Q[:1] + e, V[:1]) - lagrangian(Q[:1] - e, V[:1])) / 2e-6 for e in steps]
    by_v = [(lagrangian(Q[:1], V[:1] + e) - lagrangian(Q[:1], V[:1] - e)) / 2e-6 for e in steps]
    np.testing.assert_allclose(slopes.q[0], by_q, atol=1e-7)
    np.testing.assert_allclose(slopes.v[0], by_v, atol=1e-7)


def test_second_derivatives_are_differences_of_the_first():
    steps, slopes = 1e-6 * np.eye(MECHANISM.n), MECHANISM.slopes(Q[:1], V[:1], VALUES)
    ends = [[MECHANISM.slopes(Q[:1] + side * e, V[:1], VALUES) for side in (1, -1)] for e in steps]
    fast = [[MECHANISM.slopes(Q[:1], V[:1] + side * e, VALUES) for side in (1, -1)] for e in steps]
    np.testing.assert_allclose(slopes.qq[0].T, [(a.q - b.q)[0] / 2e-6 for a, b in ends], atol=1e-7)
    np.testing.assert_allclose(slopes.qv[0], [(a.v - b.v)[0] / 2e-6 for a, b in ends], atol=1e-7)
    np.testing.assert_allclose(slopes.vv[0].T, [(a.v - b.v)[0] / 2e-6 for a, b in fast], atol=1e-7)


def test_mass_matrix_is_positive_definite_and_gives_the_kinetic_energy():
    slopes, energies = MECHANISM.slopes(Q, V, VALUES), MECHANISM.energies(Q, V, VALUES)
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
