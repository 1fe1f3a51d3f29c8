"""iLQG against Riccati, its own predictions, and the conditions of optimality."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from agents_models import CartPole, Fragile, Linear, OneConstant, Pendulum
from scipy.linalg import solve_discrete_are
from scipy.optimize import minimize

from agents.control.backward import box_qp, positive_definite
from agents.control.cost import Expansion, FeatureCost
from agents.control.ilqg import ILQGOptions, plan_ilqg
from agents.control.plan import (
    CountedSimulator,
    PlanOutcome,
    UnstablePlanError,
    random_controls,
    run_closed_loop,
    run_open_loop,
    run_policy,
)
from agents.control.run_slopes import run_slopes
from softgym_envs.core.errors import OptionError, ShapeError

X0 = np.array([1.0, -0.5, 0.3, 0.8])
RUNS = (run_open_loop, run_closed_loop)
TIGHT = ILQGOptions(damping=1e-12, tolerance=1e-12)


@dataclass(frozen=True)
class Quadratic:
    """x'Qx + u'Ru, at the end x'Px; written without FeatureCost on purpose."""

    Q: np.ndarray
    R: np.ndarray
    P: np.ndarray

    def value(self, states, controls):
        cost = np.einsum("btj,jk,btk->bt", states, self.Q, states)
        cost[:, -1] = np.einsum("bj,jk,bk->b", states[:, -1], self.P, states[:, -1])
        cost[:, :-1] += np.einsum("btj,jk,btk->bt", controls, self.R, controls)
        return cost

    def expand(self, states, controls):
        rows, times, n = states.shape
        weights = np.concatenate([np.tile(self.Q, (times - 1, 1, 1)), self.P[None]])
        xx, uu = np.tile(2 * weights, (rows, 1, 1, 1)), np.tile(2 * self.R, (*controls.shape[:2], 1, 1))
        x = (xx @ states[..., None])[..., 0]
        return Expansion(self.value(states, controls), x, 2 * controls @ self.R, xx, uu, np.zeros((*controls.shape, n)))


@dataclass(frozen=True)
class Changed:
    """Another cost times a factor, plus a constant at every time."""

    cost: object
    factor: float = 1.0
    constant: float = 0.0

    def value(self, states, controls):
        return self.factor * self.cost.value(states, controls) + self.constant

    def expand(self, states, controls):
        found = self.cost.expand(states, controls)
        return Expansion(self.factor * found.value + self.constant, *(self.factor * array for array in found[1:]))


@dataclass(frozen=True)
class Wavy(Quadratic):
    """Beside the quadratic cost sum cos(3 u), which is concave at u = 0."""

    def value(self, states, controls):
        cost = super().value(states, controls)
        cost[:, :-1] += np.cos(3 * controls).sum(axis=-1)
        return cost

    def expand(self, states, controls):
        found = super().expand(states, controls)
        bent = -9 * np.cos(3 * controls)[..., None] * np.eye(controls.shape[-1])
        return found._replace(value=self.value(states, controls), u=found.u - 3 * np.sin(3 * controls), uu=found.uu + bent)


@pytest.fixture
def lqr():
    """System, cost whose final weight solves the DARE, P, and the gain that is then optimal at every time."""
    s = Linear()
    Q, R = np.diag([1.0, 0.1, 0.5, 0.0]), np.array([[0.3, 0.05], [0.05, 0.2]])
    P = solve_discrete_are(s.A, s.B, Q, R)
    K = -np.linalg.solve(R + s.B.T @ P @ s.B, s.B.T @ P @ s.A)
    return s, Quadratic(Q, R, P), P, K


def swing_up(pendulum, **changes):
    return FeatureCost(
        pendulum, lambda x: x, [-1.0, 0.0, 0.0], [1.0, 1.0, 0.1], [50.0, 50.0, 5.0], control_weight=0.05, **changes
    )


# --- box QP -------------------------------------------------------------------------------------------------------


def test_box_qp_satisfies_kkt():
    rng = np.random.default_rng(0)
    rows, nu = 50, 12
    F = rng.normal(size=(rows, nu, nu)) * np.exp(rng.normal(size=(rows, 1, nu)))
    H, g = F @ np.swapaxes(F, 1, 2) + 1e-3 * np.eye(nu), 10 * rng.normal(size=(rows, nu))
    lower, upper = -rng.uniform(0, 1, (rows, nu)), rng.uniform(0, 1, (rows, nu))
    d, free = rng.normal(size=(rows, nu)), np.empty((rows, nu), dtype=np.bool_)
    for problem in zip(H, g, lower, upper, d, free, strict=True):
        box_qp(*problem)
    gradient = g + (H @ d[..., None])[..., 0]
    assert (d >= lower).all() and (d <= upper).all()
    scale = np.abs(g).max(axis=1, keepdims=True) + np.abs(H).sum(axis=2).max(axis=1, keepdims=True)
    assert np.abs(np.where(free, gradient, 0) / scale).max() < 1e-11  # stationary in the free entries
    assert (gradient[~free & (d == lower)] >= 0).all() and (gradient[~free & (d == upper)] <= 0).all()
    assert ((d == lower) | (d == upper))[~free].all()
    assert 0.1 < free.mean() < 0.9, "the problems must exercise both cases"


def test_box_qp_equals_scipy():
    rng = np.random.default_rng(1)
    F = rng.normal(size=(6, 6))
    H, g = F @ F.T + 0.1 * np.eye(6), 3 * rng.normal(size=6)
    d = np.zeros(6)
    box_qp(H, g, -0.3 * np.ones(6), 0.5 * np.ones(6), d, np.empty(6, dtype=np.bool_))
    other = minimize(
        lambda x: 0.5 * x @ H @ x + g @ x, np.zeros(6), jac=lambda x: H @ x + g, bounds=[(-0.3, 0.5)] * 6, tol=1e-14
    )
    assert 0.5 * d @ H @ d + g @ d <= other.fun + 1e-12
    np.testing.assert_allclose(d, other.x, atol=1e-6)


# --- linear systems: closed form ----------------------------------------------------------------------------------


def test_lqr_in_one_step(lqr):
    s, cost, P, K = lqr
    plan = plan_ilqg(s, cost, X0, controls=np.zeros((30, 2)), options=TIGHT)
    assert plan.log[0].step == 1.0
    assert plan.log[0].cost == pytest.approx(X0 @ P @ X0, rel=1e-9)
    assert plan.converged and plan.cost == pytest.approx(X0 @ P @ X0, rel=1e-9)
    np.testing.assert_allclose(plan.gains, np.tile(K, (30, 1, 1)), atol=1e-9)
    np.testing.assert_allclose(plan.controls, plan.states[:-1] @ K.T, atol=1e-9)
    assert plan.log[0].expected == pytest.approx(plan.log[0].actual, rel=1e-9)


def test_lqr_with_substeps_equals_the_system_of_two_steps():
    s = Linear()
    A, B = s.A @ s.A, s.A @ s.B + s.B
    Q, R = np.eye(4), 0.3 * np.eye(2)
    P = solve_discrete_are(A, B, Q, R)
    plan = plan_ilqg(s, Quadratic(Q, R, P), X0, controls=np.zeros((10, 2)), substeps=2, options=TIGHT)
    assert plan.cost == pytest.approx(X0 @ P @ X0, rel=1e-9)


def test_box_limits_give_the_constrained_optimum(lqr):
    _, cost, _, _ = lqr
    s = Linear(limit=0.4)
    plan = plan_ilqg(s, cost, X0, controls=np.zeros((12, 2)), options=TIGHT)

    def total(u):
        controls = u.reshape(1, 12, 2)
        return cost.value(s.rollout(X0[None], controls)[0], controls).sum()

    other = minimize(total, np.zeros(24), bounds=[(-0.4, 0.4)] * 24, tol=1e-13, options={"maxfun": 10**5, "maxiter": 10**4})
    assert plan.converged
    assert np.abs(plan.controls).max() <= 0.4 and (np.abs(plan.controls) == 0.4).any()
    assert plan.cost <= other.fun * (1 + 1e-9)
    assert plan.cost >= other.fun * (1 - 1e-6)


@pytest.mark.parametrize("last", [None, (0.1, -0.2)])
@pytest.mark.parametrize("limit", [0.5, np.inf])
def test_limits_of_rates_give_the_constrained_optimum(lqr, limit, last):
    """SLSQP solves the same quadratic program, whose matrices are differences of costs (exact for a quadratic)."""
    _, cost, _, _ = lqr
    s, T, rates = Linear(limit=limit), 12, np.array([2.0, 1.5])
    start = np.random.default_rng(0).uniform(-0.2, 0.2, (T, 2))
    plan = plan_ilqg(s, cost, X0, controls=start, rate_limits=rates, last_control=last, options=TIGHT)

    def totals(controls):
        controls = controls.reshape(-1, T, 2)
        return cost.value(s.rollout(np.tile(X0, (len(controls), 1)), controls)[0], controls).sum(axis=-1)

    unit, constant = np.eye(2 * T), totals(np.zeros(2 * T))[0]
    single = totals(unit) - constant
    H = totals(unit[:, None] + unit).reshape(2 * T, 2 * T) - single[:, None] - single - constant
    g = single - 0.5 * np.diag(H)
    first = 0 if last else 2  # without a last control the first one has no limit
    change, before = (unit - np.eye(2 * T, k=-2))[first:], np.concatenate([last or (), np.zeros(2 * T - 2)])
    allowed = np.tile(rates * s.dt, T)[first:]
    matrix, bound = np.concatenate([change, -change]), np.concatenate([allowed + before, allowed - before])
    limits_of_rates = {"type": "ineq", "fun": lambda u: bound - matrix @ u, "jac": lambda _: -matrix}
    other = minimize(
        lambda u: 0.5 * u @ H @ u + g @ u + constant, np.zeros(2 * T), jac=lambda u: H @ u + g, method="SLSQP",
        bounds=[(-limit, limit)] * (2 * T), constraints=limits_of_rates, options={"ftol": 1e-15, "maxiter": 1000},
    )  # fmt: skip
    assert plan.converged and plan.cost == pytest.approx(other.fun, rel=1e-9)
    np.testing.assert_allclose(plan.controls.ravel(), other.x, atol=1e-6)
    changes = np.abs(change @ plan.controls.ravel() - before)
    assert (changes <= allowed + 1e-12).all() and np.isclose(changes, allowed).sum() > 3
    assert np.isfinite(limit) == (np.abs(plan.controls) == limit).any()
    run = run_closed_loop(plan, s, 1.1 * X0[None])
    changes = np.abs(change @ run.controls.ravel() - before)
    assert (changes <= allowed + 1e-12).all() and not np.allclose(run.controls[0], plan.controls)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"rate_limits": 0.0}, OptionError, r"rate_limits is \[0.0, 0.0\], allowed are rates > 0"),
        ({"rate_limits": np.ones(3)}, ShapeError, "rate_limits"),
        ({"rate_limits": 1.0, "last_control": np.ones(3)}, ShapeError, "last_control"),
        ({"last_control": np.zeros(2)}, OptionError, "last_control limits nothing without rate_limits"),
        ({"rate_limits": 1.0, "last_control": np.ones(2)}, OptionError, r"last_control is \[1.0, 1.0\], allowed is \[-0.4"),
    ],
)
def test_wrong_limits_of_rates_are_named(lqr, given, error, message):
    with pytest.raises(error, match=message):
        plan_ilqg(Linear(limit=0.4), lqr[1], X0, controls=np.zeros((5, 2)), **given)


@pytest.mark.parametrize("factor", [1.0, 1e-6])
def test_gains_are_those_of_riccati_with_usual_options(lqr, factor):
    s, cost, P, K = lqr
    plan = plan_ilqg(s, Changed(cost, factor), X0, controls=np.zeros((30, 2)))
    assert plan.converged and plan.cost == pytest.approx(factor * X0 @ P @ X0, rel=1e-12)
    np.testing.assert_allclose(plan.gains, np.tile(K, (30, 1, 1)), atol=1e-9)


# --- an ensemble of parameters -------------------------------------------------------------------------------------


def test_ensemble_predictions_are_exact_for_linear_dynamics(lqr):
    """The local model is the ground truth there, gains that change and rows beside the reference included."""
    s, cost, _, _ = lqr
    parameter_values = OneConstant(gain=np.array([1.0, 0.6, 1.7]))
    # Random first controls: the rows part, so that the first gains act on rows beside the reference.
    controls = random_controls(s, 15, rng=np.random.default_rng(0), amplitude=1.0)
    plan = plan_ilqg(s, cost, X0, controls=controls, parameters=parameter_values, options=TIGHT)
    full = [entry for entry in plan.log if entry.step == 1.0 and entry.actual > 1e-6]
    assert len(full) >= 2
    for entry in full:
        assert entry.expected == pytest.approx(entry.actual, rel=1e-7)


def test_ensemble_beats_the_nominal_plan_on_average_and_is_stationary():
    p = Pendulum(limit=6.0)
    cost, start = swing_up(p), p.initial_state()[0]
    parameter_values = OneConstant(gain=np.array([1.0, 0.7, 1.3]))
    controls = random_controls(p, 40, rng=np.random.default_rng(0), amplitude=0.5, knots=8)
    nominal = plan_ilqg(p, cost, start, controls=controls)
    robust = plan_ilqg(p, cost, start, controls=nominal.controls, parameters=parameter_values)

    def mean_cost(plan):
        run = run_closed_loop(plan, p, np.tile(start, (3, 1)), parameter_values)
        return cost.value(run.states, run.controls).sum(axis=1).mean()

    assert mean_cost(robust) < mean_cost(nominal)
    assert [e.cost for e in robust.log] == sorted((e.cost for e in robust.log), reverse=True)


# --- a nonlinear system on a circle -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swing():
    p = Pendulum(limit=6.0)
    log = []
    controls = random_controls(p, 60, rng=np.random.default_rng(0), amplitude=0.5, knots=10)
    plan = plan_ilqg(p, swing_up(p), p.initial_state()[0], controls=controls, callback=log.append)
    return p, plan, log


def test_swing_up_reaches_the_top_within_the_limits(swing):
    p, plan, _ = swing
    assert plan.outcome is PlanOutcome.CONVERGED
    upright = np.array([-1.0, 0.0, 0.0])
    assert np.linalg.norm(p.difference(plan.states[-1], upright)) < 0.1  # not on the direct way: torque 6 < g
    assert np.abs(plan.controls).max() == 6.0


def test_cost_falls_monotonically_and_as_logged(swing):
    _, plan, log = swing
    costs = [entry.cost for entry in log]
    assert costs == sorted(costs, reverse=True)
    assert list(plan.log) == log
    assert plan.cost == pytest.approx(costs[-1], rel=1e-12)
    for before, entry in zip(costs, log[1:], strict=False):
        assert before - entry.cost == pytest.approx(entry.actual, abs=1e-9)


def test_plan_is_its_own_rollout_open_and_closed_loop(swing):
    p, plan, _ = swing
    for run in RUNS:
        result = run(plan, p, plan.states[:1])
        np.testing.assert_allclose(result.states[0], plan.states, atol=1e-9)
        assert result.status.tolist() == [0]


def test_gradient_vanishes_at_the_plan(swing):
    """Independent of the planner: differences of the total cost with respect to the controls that are not at a limit."""
    p, plan, _ = swing
    cost, h = swing_up(p), 1e-5
    index = np.nonzero(np.abs(plan.controls[:, 0]) < 6.0 - h)[0]
    assert len(index) > 5
    controls = np.tile(plan.controls, (2 * len(index), 1, 1))
    for row, t in enumerate(index):
        controls[row, t] += h
        controls[len(index) + row, t] -= h
    states, _ = p.rollout(np.tile(plan.states[0], (len(controls), 1)), controls)
    total = cost.value(states, controls).sum(axis=1)
    slope = (total[: len(index)] - total[len(index) :]) / (2 * h)
    first = np.tile(random_controls(p, 60, rng=np.random.default_rng(0), amplitude=0.5, knots=10), (2, 1, 1))
    first[0, 5] += h
    values = cost.value(p.rollout(np.tile(plan.states[0], (2, 1)), first)[0], first).sum(axis=1)
    assert np.abs(slope).max() < 0.02 * abs(values[0] - values[1]) / h


@pytest.mark.parametrize(("factor", "constant"), [(1e-6, 0.0), (1e6, 0.0), (1.0, 1e3), (1.0, 1e9)])
@pytest.mark.parametrize("iterations", [3, 100])
def test_a_cost_times_a_factor_or_plus_a_constant_has_the_same_plan(iterations, factor, constant):
    p = Pendulum(limit=6.0)
    controls = random_controls(p, 60, rng=np.random.default_rng(0), amplitude=0.5, knots=10)
    options, cost = ILQGOptions(max_iterations=iterations), swing_up(p)
    usual, changed = (
        plan_ilqg(p, each, p.initial_state()[0], controls=controls, options=options)
        for each in (cost, Changed(cost, factor, constant))
    )
    found = cost.value(changed.states[None], changed.controls[None]).sum()
    assert changed.outcome is usual.outcome and found == pytest.approx(usual.cost, rel=1e-5 if constant else 1e-8)


def test_gains_belong_to_the_returned_trajectory(swing):
    """A Riccati recursion along it, written here; controls at their limit feel no feedback."""
    p, plan, _ = swing
    cost, slopes = swing_up(p).expand(plan.states[None], plan.controls[None]), p.linearize(plan.states[:-1], plan.controls)
    V = cost.xx[0, -1]
    for t in reversed(range(60)):
        A, B = slopes.A[t], slopes.B[t]
        free = float(abs(plan.controls[t, 0]) < 6.0)
        K = -free * np.linalg.solve(cost.uu[0, t] + B.T @ V @ B, B.T @ V @ A)
        np.testing.assert_allclose(plan.gains[t], K, rtol=1e-6, atol=1e-9)
        V = cost.xx[0, t] + K.T @ cost.uu[0, t] @ K + (A + B @ K).T @ V @ (A + B @ K)


def test_an_indefinite_matrix_is_turned_positive_and_the_others_stay():
    H = np.array([[[2.0, 0.5], [0.5, 1.0]], [[1.0, 2.0], [2.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]], [[np.nan, 0.0], [0.0, 1.0]]])
    found = np.stack([positive_definite(each, 0.1) for each in H])
    np.testing.assert_array_equal(found[[0, 3]], H[[0, 3]])
    np.testing.assert_allclose(np.linalg.eigvalsh(found[1]), [1.0, 3.0])  # -1 and 3
    np.testing.assert_allclose(found[2], 0.1 * np.eye(2))


@pytest.mark.parametrize("seed", range(4))
def test_where_the_cost_is_concave_convergence_means_a_small_gradient(seed):
    """By differences, projected on the limits; once it stopped at gradients of 3 to 5."""
    s, cost, h = Linear(limit=2.0), Wavy(0.1 * np.eye(4), 0.05 * np.eye(2), np.eye(4)), 1e-6
    plan = plan_ilqg(s, cost, X0, controls=np.random.default_rng(seed).uniform(-0.5, 0.5, (12, 2)))
    moved = plan.controls + h * np.concatenate([np.eye(24), -np.eye(24)]).reshape(48, 12, 2)
    total = cost.value(s.rollout(np.tile(X0, (48, 1)), moved)[0], moved).sum(axis=1)
    slope = (total[:24] - total[24:]).reshape(12, 2) / (2 * h)
    inwards = np.where(plan.controls <= -2.0, slope < 0, np.where(plan.controls >= 2.0, slope > 0, True))
    assert plan.converged and np.abs(slope[inwards]).max() < 1e-4


def test_expected_decrease_is_first_order_exact():
    """expected / actual - 1 is of the order of the step: ten times smaller for a step ten times smaller."""
    p = Pendulum()
    controls = random_controls(p, 30, rng=np.random.default_rng(3), amplitude=0.3, knots=6)
    errors = []
    for trust in (1e-2, 1e-3):
        options = ILQGOptions(max_iterations=1, trust=trust, trials=1)
        entry = plan_ilqg(p, swing_up(p), p.initial_state()[0], controls=controls, options=options).log[0]
        assert entry.step == 1.0
        errors.append(abs(entry.expected / entry.actual - 1))
    assert errors[1] < 0.2 * errors[0] and errors[1] < 0.05


def test_feedback_gains_reject_a_push(swing):
    p, plan, _ = swing
    pushed = p.retract(plan.states[:1], np.array([[0.05, 0.1]]))
    missed = {run: np.linalg.norm(p.difference(run(plan, p, pushed).states[0, -1], plan.states[-1])) for run in RUNS}
    assert missed[run_closed_loop] < 0.2 * missed[run_open_loop]


def test_trust_bounds_the_change_of_controls(lqr):
    _, cost, _, _ = lqr
    s = Linear(limit=2.0)
    plan = plan_ilqg(s, cost, X0, controls=np.zeros((8, 2)), options=ILQGOptions(max_iterations=1, trust=0.01, damping=1e-12))
    assert np.abs(plan.controls[0]).max() <= 0.02 + 1e-15
    free = plan_ilqg(s, cost, X0, controls=np.zeros((8, 2)), options=ILQGOptions(max_iterations=1, damping=1e-12))
    assert np.abs(free.controls[0]).max() > 0.02


def test_difference_step_agrees_with_the_simulators_derivatives(lqr):
    s, cost, P, _ = lqr
    plan = plan_ilqg(s, cost, X0, controls=np.zeros((10, 2)), options=ILQGOptions(difference_step=1e-4, damping=1e-12))
    assert plan.cost == pytest.approx(X0 @ P @ X0, rel=1e-9)


# --- bookkeeping and failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("difference_step", [None, 1e-5])
def test_every_simulator_step_is_counted(difference_step):
    p = Pendulum()
    controls = random_controls(p, 20, rng=np.random.default_rng(0))
    options = ILQGOptions(max_iterations=3, difference_step=difference_step)
    plan = plan_ilqg(p, swing_up(p), p.initial_state()[0], controls=controls, substeps=2, options=options)
    taken = 2 * 2 * (2 + 1 + 1)  # central differences: 2 (n + nu + np) steps of 2 substeps per linearised one
    linearized = 4 * 20 if difference_step is None else 0  # the last ones are for the gains
    assert plan.steps.linearized == 2 * linearized
    # Pendulum.linearize hides its differences from the count of the fixture; `finite_differences` by the planner does not.
    assert plan.steps.simulated == p.rows_stepped[0]
    assert plan.steps.total(per_linearization=8) == plan.steps.simulated + taken * linearized


def test_failed_rows_are_rejected():
    s = Fragile()
    cost = FeatureCost(s, lambda x: x[..., :1], [2.0], [1.0], control_weight=1e-6)
    plan = plan_ilqg(s, cost, np.zeros(4), controls=np.zeros((20, 2)), options=ILQGOptions(max_iterations=20))
    run = run_open_loop(plan, s, np.zeros((1, 4)))
    assert run.status.tolist() == [0] and np.abs(plan.states).max() <= 1.0
    assert plan.cost < cost.value(np.zeros((1, 21, 4)), np.zeros((1, 20, 2))).sum()


def test_failing_start_is_an_error():
    s = Fragile()
    cost = FeatureCost(s, lambda x: x, np.zeros(4), np.ones(4))
    with pytest.raises(UnstablePlanError, match="initial controls"):
        plan_ilqg(s, cost, 0.9 * np.ones(4), controls=10 * np.ones((5, 2)))


def test_a_cost_that_is_not_finite_is_told_from_a_failed_simulation():
    s = Linear()
    cost = FeatureCost(s, lambda x: np.where(x > 0.9, np.nan, x), np.zeros(4), np.ones(4))
    with pytest.raises(OptionError, match="cost of the initial controls is not finite, although their simulation is"):
        plan_ilqg(s, cost, X0, controls=np.zeros((5, 2)))


def test_features_without_rows_and_empty_weights_are_named():
    with pytest.raises(ShapeError, match=r"feature gives \(1,\) for states \(1, 4\), expected \(1, m\)"):
        FeatureCost(Linear(), lambda x: x[..., 0], [0.0], [1.0])
    with pytest.raises(ShapeError, match=r"running has shape \(0, 4\), expected \(4,\) or \(T, 4\)"):
        FeatureCost(Linear(), lambda x: x, np.zeros(4), np.ones((0, 4)))


def test_derivatives_that_are_not_finite_end_the_search():
    @dataclass(frozen=True, eq=False)
    class Broken(Linear):
        def linearize(self, state, control, parameters=None, *, substeps=1):
            result = super().linearize(state, control, parameters, substeps=substeps)
            result.A[0, 0, 0] = np.nan
            return result

    s = Broken()
    plan = plan_ilqg(s, FeatureCost(s, lambda x: x, np.zeros(4), np.ones(4)), X0, controls=np.zeros((5, 2)))
    assert plan.outcome is PlanOutcome.NOT_FINITE and not plan.converged


def test_zero_effect_of_controls_is_no_crash():
    """Quu is then luu alone, here zero: only the damping makes it invertible."""
    s = Linear()
    cost = FeatureCost(s, lambda x: 0 * x[..., :1], [1.0], [1.0])
    assert plan_ilqg(s, cost, X0, controls=np.zeros((5, 2))).converged


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"state": np.zeros(3)}, ShapeError, "state"),
        ({"state": np.full(4, np.nan)}, ShapeError, "state"),
        ({"controls": np.zeros((5, 3))}, ShapeError, "controls"),
        ({"controls": np.zeros((0, 2))}, OptionError, "control steps"),
    ],
)
def test_bad_input_is_named(change, error, match):
    s = Linear()
    cost = FeatureCost(s, lambda x: x, np.zeros(4), np.ones(4))
    arguments = {"state": X0, "controls": np.zeros((5, 2))} | change
    with pytest.raises(error, match=match):
        plan_ilqg(s, cost, arguments["state"], controls=arguments["controls"])


@pytest.mark.parametrize("name", ["max_iterations", "tolerance", "damping", "trust", "trials", "difference_step"])
def test_bad_options_are_named(name):
    with pytest.raises(OptionError, match=name):
        ILQGOptions(**{name: -1})
    with pytest.raises(OptionError, match=name):
        ILQGOptions(**{name: np.nan})


@pytest.mark.parametrize("options", [{"horizon": 0}, {"knots": 0}, {"knots": 9}, {"amplitude": -1.0}])
def test_bad_random_controls_are_named(options):
    with pytest.raises(OptionError, match=next(iter(options))):
        random_controls(Linear(), **({"horizon": 5, "rng": np.random.default_rng(0)} | options))


def test_policy_runs_on_one_state_and_goes_on_after_the_horizon(swing):
    p, plan, _ = swing
    run = run_policy(plan.policy, p, plan.states[0], steps=70)
    np.testing.assert_allclose(run.states[0, :61], plan.states, atol=1e-9)
    np.testing.assert_array_equal(plan.policy(plan.states[0], 500), plan.policy(plan.states[0], 59))
    np.testing.assert_array_equal(plan.shifted(2)[:-2], plan.controls[2:])
    assert (plan.shifted(100) == plan.controls[-1]).all() and plan.shifted(100).shape == plan.controls.shape


@pytest.mark.parametrize("run", RUNS)
def test_a_plan_lasts_as_long_in_a_world_of_other_steps(run):
    """The pole falls for a second whatever the physics step: angles differ by the integrator's first order only."""
    s, fine = CartPole(), CartPole(dt=0.005)
    cost = FeatureCost(s, lambda x: x, np.zeros(4), np.full(4, 1e-3), control_weight=1.0)
    start = np.array([[0.0, 0.05, 0.0, 0.0]])
    plan = plan_ilqg(s, cost, start[0], controls=np.zeros((20, 1)))
    assert plan.states[-1, 1] > 0.3
    np.testing.assert_allclose(run(plan, fine, start).states[0, -1, 1], plan.states[-1, 1], rtol=0.25)
    with pytest.raises(
        OptionError, match=r"the plan's control step is 0.05 s, expected a whole number of physics steps of 0.03 s"
    ):
        run(plan, CartPole(dt=0.03), start)


# --- slopes of whole runs -----------------------------------------------------------------------------------------


def test_slopes_of_whole_runs_are_those_of_the_system_on_all_that_controls_can_reach(swing):
    p, plan, _ = swing
    inside = 0.5 * plan.controls  # nowhere at its limit
    states = run_open_loop(replace(plan, controls=inside), p, plan.states[:1]).states[0]
    A, B = run_slopes(CountedSimulator(p, 1), states, inside, None, 1e-6)
    exact = p.linearize(states[:-1], inside)
    np.testing.assert_allclose(B, exact.B, atol=1e-5)
    np.testing.assert_allclose(A[0], 0.0)  # nothing was before
    np.testing.assert_allclose(A[1] @ B[0], exact.A[1] @ exact.B[0], atol=1e-5)
    np.testing.assert_allclose(A[2:], exact.A[2:], atol=1e-4)  # two controls reach every state


def test_with_slopes_of_whole_runs_the_plan_is_the_same(lqr):
    s, cost, _, _ = lqr
    controls = np.zeros((30, 2))
    exact = plan_ilqg(s, cost, X0, controls=controls, options=TIGHT)
    found = plan_ilqg(s, cost, X0, controls=controls, options=replace(TIGHT, difference_step=1e-3, whole_runs=True))
    assert found.cost == pytest.approx(exact.cost, rel=1e-6)
    with pytest.raises(OptionError, match="whole_runs needs a difference_step"):
        ILQGOptions(whole_runs=True)


def test_a_swing_up_ends_at_the_optimum_of_crocoddyl():
    """SolverBoxDDP of crocoddyl 3.2.1, from the same controls and with th_stop 1e-12, ends at 185.12252367896863."""
    s, weights = CartPole(), np.array([1.0, 1.0, 0.1, 0.1])
    cost = FeatureCost(s, lambda x: x, np.zeros(4), weights, 100.0 * weights, 0.01)
    controls = 2.0 * np.random.default_rng(0).standard_normal((60, 1))
    plan = plan_ilqg(s, cost, np.array([0.0, np.pi, 0.0, 0.0]), controls=controls, options=ILQGOptions(300, 1e-9))
    assert plan.outcome is PlanOutcome.CONVERGED and plan.cost == pytest.approx(185.12252367896863, rel=1e-9)
