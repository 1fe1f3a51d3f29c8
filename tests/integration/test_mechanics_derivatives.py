"""Exact derivatives of steps and motions: linearisation, forward sensitivities, adjoint, differences."""

import numpy as np
import pytest
from mechanics_systems import PARAMETERS, closed, rich

from softgym_envs.core.errors import ShapeError
from softgym_envs.mechanics import Mechanism

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
