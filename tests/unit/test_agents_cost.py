"""Costs against differences of their own value, on a manifold, and bad input."""

import numpy as np
import pytest
from agents_models import Linear, Pendulum

from agents.control.cost import FeatureCost
from agents.control.ilqg import ILQGOptions, plan_ilqg
from softgym_envs.core.errors import OptionError, ShapeError


def direction(state):
    """Two features of the pendulum, neither linear in the tangent: height, and speed squared over 10."""
    return np.stack([state[..., 0], 0.1 * state[..., 2] ** 2], axis=-1)


@pytest.fixture
def trajectory():
    p = Pendulum()
    controls = np.random.default_rng(0).normal(size=(2, 6, 1))
    start = p.retract(p.initial_state(2), np.array([[0.3, 1.0], [2.0, -1.0]]))
    return p, p.rollout(start, controls)[0], controls


def test_value_is_the_written_formula(trajectory):
    p, states, controls = trajectory
    cost = FeatureCost(p, direction, [1.0, 0.5], [2.0, 3.0], [5.0, 0.0], 0.1)
    height, speed = direction(states)[..., 0], direction(states)[..., 1]
    expected = 2 * (height - 1) ** 2 + 3 * (speed - 0.5) ** 2
    expected[:, -1] = 5 * (height[:, -1] - 1) ** 2
    expected[:, :-1] += 0.1 * controls[..., 0] ** 2
    np.testing.assert_allclose(cost.value(states, controls), expected, rtol=1e-14)


def test_gradients_equal_differences_of_the_value(trajectory):
    p, states, controls = trajectory
    cost = FeatureCost(p, direction, [1.0, 0.5], [2.0, 3.0], control_weight=[0.1])
    expansion, h = cost.expand(states, controls), 1e-5
    for i in range(p.n):
        up, down = (cost.value(p.retract(states, sign * h * np.eye(p.n)[i]), controls) for sign in (1, -1))
        # central differences twice: truncation h^2 and rounding 1e-16 / 1e-6 relative to values of order 10
        np.testing.assert_allclose((up - down) / (2 * h), expansion.x[..., i], atol=1e-7)
    du = cost.value(states, controls + h) - cost.value(states, controls - h)
    np.testing.assert_allclose(du[:, :-1] / (2 * h), expansion.u[..., 0], atol=1e-8)


def test_hessian_is_exact_at_zero_residual_and_positive_semidefinite(trajectory):
    p, states, controls = trajectory
    here = direction(states[0, 3])
    cost = FeatureCost(p, direction, here, [2.0, 3.0])
    expansion, h = cost.expand(states, controls), 1e-4
    value = lambda a, b: cost.value(p.retract(states, np.array([a, b])), controls)[0, 3]  # noqa: E731
    mixed = (value(h, h) - value(h, -h) - value(-h, h) + value(-h, -h)) / (4 * h * h)
    assert mixed == pytest.approx(expansion.xx[0, 3, 0, 1], rel=1e-4, abs=1e-5)
    assert np.linalg.eigvalsh(expansion.xx).min() > -1e-9


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"target": [1.0]}, ShapeError, "target"),
        ({"running": [1.0, -2.0]}, OptionError, "running"),
        ({"terminal": [1.0, np.nan]}, ShapeError, "terminal"),
        ({"control_weight": [1.0, 1.0]}, ShapeError, "control_weight"),
        ({"control_weight": -1.0}, OptionError, "control_weight"),
        ({"target": np.ones((3, 1))}, ShapeError, "target"),
        ({"terminal": np.ones((3, 2))}, ShapeError, "terminal"),
        ({"running": [[1.0, 1.0], [1.0, -1.0]]}, OptionError, "running"),
    ],
)
def test_bad_input_is_named(options, error, match):
    good = {"target": [1.0, 0.5], "running": [2.0, 3.0]}
    with pytest.raises(error, match=match):
        FeatureCost(Pendulum(), direction, **(good | options))


def test_constant_features_have_no_derivative():
    s = Linear()
    cost = FeatureCost(s, lambda x: 0 * x[..., :1] + 2.0, [1.0], [3.0])
    expansion = cost.expand(np.ones((1, 3, 4)), np.ones((1, 2, 2)))
    assert expansion.value.tolist() == [[3.0, 3.0, 3.0]]
    assert not expansion.x.any() and not expansion.xx.any() and not expansion.u.any()


def test_targets_and_weights_that_change_give_the_least_squares_solution():
    """Linear features of a linear system: one dense least-squares problem in all controls, solved by LAPACK."""
    s, T, rng, start = Linear(), 8, np.random.default_rng(0), np.array([1.0, -0.5, 0.3, 0.8])
    target, running, terminal = rng.normal(size=(T + 1, 4)), rng.uniform(0.1, 2.0, (T, 4)), rng.uniform(1.0, 2.0, 4)
    weight = rng.uniform(0.1, 1.0, (T, 2))
    cost = FeatureCost(s, lambda x: x, target, running, terminal, weight)
    plan = plan_ilqg(s, cost, start, controls=np.zeros((T, 2)), options=ILQGOptions(damping=1e-12))
    inputs = np.concatenate([np.zeros((1, 2 * T)), np.eye(2 * T)]).reshape(-1, T, 2)
    states = s.rollout(np.tile(start, (len(inputs), 1)), inputs)[0].reshape(len(inputs), -1)
    root = np.sqrt(np.concatenate([running, terminal[None]]).ravel())
    left = np.concatenate([root[:, None] * (states[1:] - states[0]).T, np.diag(np.sqrt(weight.ravel()))])
    right = np.concatenate([root * (target.ravel() - states[0]), np.zeros(2 * T)])
    expected = np.linalg.lstsq(left, right, rcond=None)[0]
    assert plan.converged
    np.testing.assert_allclose(plan.controls.ravel(), expected, atol=1e-8)
    for size in (T - 1, T + 1):
        with pytest.raises(ShapeError, match=f"target has 9 rows, expected {size + 1} for {size} control steps"):
            plan_ilqg(s, cost, start, controls=np.zeros((size, 2)))
