"""Quaternions against scipy's rotations, and the axioms of a group with its tangent space."""

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.spatial.transform import Rotation

from softgym_envs.core import lie

EPS = np.finfo(np.float64).eps


def scipy_rotation(q):
    return Rotation.from_quat(np.roll(q, -1, axis=-1))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def unit(rng):
    """50 random unit quaternions and another 50."""
    q = rng.standard_normal((2, 50, 4))
    return q / np.linalg.norm(q, axis=-1, keepdims=True)


@pytest.mark.parametrize("size", [0.0, 1e-12, 1e-8, 1e-4, 1.0, 3.0])
def test_exp_is_the_matrix_exponential(rng, size):
    phi = rng.standard_normal(3)
    phi *= size / np.linalg.norm(phi)
    hat = np.array([[0, -phi[2], phi[1]], [phi[2], 0, -phi[0]], [-phi[1], phi[0], 0]])
    np.testing.assert_allclose(scipy_rotation(lie.exp(phi)).as_matrix(), expm(hat), atol=20 * EPS)


@pytest.mark.parametrize("size", [1e-12, 1e-8, 1e-4, 1.0, 3.0, np.pi - 1e-9])
def test_log_inverts_exp(rng, size):
    phi = rng.standard_normal((20, 3))
    phi *= size / np.linalg.norm(phi, axis=1, keepdims=True)
    np.testing.assert_allclose(lie.log(lie.exp(phi)), phi, rtol=0, atol=20 * EPS * max(size, 1e-3))


def test_log_is_the_same_for_both_signs(unit):
    np.testing.assert_array_equal(lie.log(unit[0]), lie.log(-unit[0]))
    assert (np.linalg.norm(lie.log(unit[0]), axis=1) <= np.pi).all()


def test_product_and_inverse_agree_with_scipy(unit):
    p, q = unit
    expected = (scipy_rotation(p) * scipy_rotation(q)).as_matrix()
    np.testing.assert_allclose(scipy_rotation(lie.multiply(p, q)).as_matrix(), expected, atol=20 * EPS)
    one = lie.multiply(p, lie.conjugate(p))
    np.testing.assert_allclose(one, np.tile([1.0, 0, 0, 0], (50, 1)), atol=10 * EPS)


def test_rotate_agrees_with_scipy(rng, unit):
    v = rng.standard_normal((50, 3))
    np.testing.assert_allclose(lie.rotate(unit[0], v), scipy_rotation(unit[0]).apply(v), atol=40 * EPS)


def test_difference_inverts_retract(rng, unit):
    phi = rng.standard_normal((50, 3))
    phi *= rng.uniform(0, 3.1, (50, 1)) / np.linalg.norm(phi, axis=1, keepdims=True)
    q = unit[0]
    np.testing.assert_allclose(lie.difference(lie.retract(q, phi), q), phi, atol=100 * EPS)
    back = lie.retract(q, lie.difference(unit[1], q))
    np.testing.assert_allclose(scipy_rotation(back).as_matrix(), scipy_rotation(unit[1]).as_matrix(), atol=100 * EPS)


def test_tangent_is_in_the_body_frame(unit):
    """Retracting by phi turns about the body's own axes: R(q) exp(phi^), not exp(phi^) R(q)."""
    q, phi = unit[0, :1], np.array([[0.3, -0.2, 0.5]])
    expected = (scipy_rotation(q) * Rotation.from_rotvec(phi)).as_matrix()
    np.testing.assert_allclose(scipy_rotation(lie.retract(q, phi)).as_matrix(), expected, atol=20 * EPS)


def test_retract_stays_on_the_sphere(unit):
    q = 1.001 * unit[0]
    np.testing.assert_allclose(np.linalg.norm(lie.retract(q, np.full((50, 3), 0.7)), axis=1), 1.0, atol=4 * EPS)


def test_from_matrix(unit):
    matrices = scipy_rotation(unit[0]).as_matrix()
    np.testing.assert_allclose(scipy_rotation(lie.from_matrix(matrices)).as_matrix(), matrices, atol=20 * EPS)


def test_from_z_axis(rng):
    z = np.concatenate([rng.standard_normal((50, 3)), [[0, 0, 2.0], [0, 0, -2.0], [1e-7, 0, -1.0]]])
    q = lie.from_z_axis(z)
    got = lie.rotate(q, np.tile([0.0, 0, 1], (len(z), 1)))
    unit_z = z / np.linalg.norm(z, axis=1, keepdims=True)
    np.testing.assert_allclose(got, unit_z, atol=1e-6)
    np.testing.assert_allclose(got[:50], unit_z[:50], atol=1e-12)
    angle = np.linalg.norm(lie.log(q[:50]), axis=1)
    np.testing.assert_allclose(angle, np.arccos(unit_z[:50, 2]), atol=1e-7)  # no turn about z is added
