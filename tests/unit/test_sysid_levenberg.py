"""The least-squares solver against known minima, bounds, closed forms and scipy. One protocol for all methods: every one is
built from plain values, says what it needs, and solves the same problem."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy.optimize import least_squares
from sysid_systems import Spring, SpringParameters, record

from softgym_envs.core.errors import DataError, OptionError, ShapeError
from softgym_envs.core.procedure import Procedure
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from sysid import METHODS, FitProblem
from sysid.fitting.innovations import InnovationOptions, _relaxed, innovations, minimised
from sysid.fitting.table import Method, method_of
from sysid.least_squares.levenberg import LevenbergOptions, LevenbergState, StopReason, levenberg_marquardt, start_state

NO_BLOCKS = np.zeros((1, 0))
FREE = np.full(2, np.inf)


@dataclass(frozen=True)
class Function:
    """A residual function of theta alone, with a complex-step Jacobian."""

    residual: Any

    def cost(self, theta: Any, blocks: Any) -> float:
        return 0.5 * float(np.sum(self.residual(theta) ** 2))

    def compress(self, theta: Any, blocks: Any) -> Any:
        steps = 1e-30j * np.eye(len(theta))
        jacobian = np.stack([self.residual(theta + step).imag / 1e-30 for step in steps], axis=1)
        return np.column_stack([jacobian, self.residual(theta)])[None]

    def move(self, blocks: Any, step: Any) -> Any:
        return blocks


def rosenbrock(x: Any) -> Any:
    return np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]])


def powell_singular(x: Any) -> Any:
    return np.array([x[0] + 10 * x[1], 5**0.5 * (x[2] - x[3]), (x[1] - 2 * x[2]) ** 2, 10**0.5 * (x[0] - x[3]) ** 2])


def minimise(residual: Any, start: Any, bounds: Any, **options: Any) -> LevenbergState:
    start = np.asarray(start, dtype=float)
    chosen = LevenbergOptions(**{"max_iterations": 200, **options})
    system = Function(residual)
    return levenberg_marquardt(system, start_state(system, start, NO_BLOCKS, chosen), bounds, options=chosen)


def test_rosenbrock_reaches_its_minimum() -> None:
    end = minimise(rosenbrock, [-1.2, 1.0], (-FREE, FREE))
    assert end.outcome is not None and end.outcome.converged
    np.testing.assert_allclose(end.theta, [1.0, 1.0], atol=1e-9)


def test_powell_singular_reaches_its_minimum_although_its_jacobian_is_singular_there() -> None:
    end = minimise(powell_singular, [3.0, -1.0, 0.0, 1.0], (np.full(4, -np.inf), np.full(4, np.inf)))
    np.testing.assert_allclose(end.theta, 0.0, atol=1e-3)
    assert end.cost < 1e-12


def test_a_bound_that_cuts_the_valley_gives_the_constrained_minimum() -> None:
    # With x <= 1/2 the minimum is at x = 1/2, y = 1/4.
    end = minimise(rosenbrock, [-1.2, 1.0], (np.array([-2.0, -2.0]), np.array([0.5, 2.0])))
    np.testing.assert_allclose(end.theta, [0.5, 0.25], atol=1e-9)


@pytest.mark.parametrize("start", [[-2.0, -2.0], [2.0, 2.0], [-2.0, 2.0], [2.0, -2.0]])
def test_a_start_in_a_corner_of_the_bounds_does_not_stall(start: list[float]) -> None:
    end = minimise(rosenbrock, start, (np.array([-2.0, -2.0]), np.array([2.0, 2.0])))
    np.testing.assert_allclose(end.theta, [1.0, 1.0], atol=1e-8)


def test_bounded_problems_end_where_scipy_ends() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        matrix, target = rng.standard_normal((12, 4)), rng.standard_normal(12)

        def residual(x: Any, matrix: Any = matrix, target: Any = target) -> Any:
            return matrix @ np.tanh(x) - target

        bounds = (np.full(4, -0.4), np.full(4, 0.3))
        end = minimise(residual, rng.uniform(*bounds), bounds)
        reference = least_squares(residual, np.zeros(4), bounds=bounds, xtol=1e-14, ftol=1e-14, gtol=1e-14)
        np.testing.assert_allclose(end.cost, reference.cost, rtol=1e-7)


@dataclass(frozen=True)
class Blocks:
    """Linear residuals r_s = J_s theta + K_s z_s - t_s."""

    j: Any
    k: Any
    t: Any

    def residual(self, theta: Any, blocks: Any) -> Any:
        return self.j @ theta + np.einsum("sqn,sn->sq", self.k, blocks) - self.t

    def cost(self, theta: Any, blocks: Any) -> float:
        return 0.5 * float(np.sum(self.residual(theta, blocks) ** 2))

    def compress(self, theta: Any, blocks: Any) -> Any:
        return np.concatenate([self.k, self.j, self.residual(theta, blocks)[..., None]], axis=2)

    def move(self, blocks: Any, step: Any) -> Any:
        return blocks + step


def test_eliminating_blocks_equals_solving_the_whole_system() -> None:
    rng = np.random.default_rng(1)
    system = Blocks(rng.standard_normal((5, 9, 3)), rng.standard_normal((5, 9, 4)), rng.standard_normal((5, 9)))
    whole = np.zeros((45, 3 + 20))
    for s in range(5):
        whole[9 * s : 9 * s + 9, :3] = system.j[s]
        whole[9 * s : 9 * s + 9, 3 + 4 * s : 7 + 4 * s] = system.k[s]
    solution = np.linalg.lstsq(whole, system.t.ravel(), rcond=None)[0]
    start = start_state(system, np.zeros(3), np.zeros((5, 4)), LevenbergOptions())
    end = levenberg_marquardt(system, start, (np.full(3, -np.inf), np.full(3, np.inf)))
    np.testing.assert_allclose(end.theta, solution[:3], atol=1e-8)
    np.testing.assert_allclose(end.blocks.ravel(), solution[3:], atol=1e-8)


@dataclass(frozen=True)
class Creeping(Blocks):
    """Derivatives along blocks are five times too large, as across a kink: blocks go a fifth of their way per step."""

    def compress(self, theta: Any, blocks: Any) -> Any:
        return np.concatenate([5.0 * self.k, self.j, self.residual(theta, blocks)[..., None]], axis=2)


def test_where_only_blocks_creep_a_fit_ends_with_constants_inside_of_their_errors() -> None:
    """What is wrong along blocks spans the same space, so parameters are right at once; errors are the whole problem's."""
    rng = np.random.default_rng(3)
    system = Creeping(rng.standard_normal((5, 30, 3)), rng.standard_normal((5, 30, 4)), 3.0 + rng.standard_normal((5, 30)))
    whole = np.zeros((150, 3 + 20))
    for s in range(5):
        whole[30 * s : 30 * s + 30, :3] = system.j[s]
        whole[30 * s : 30 * s + 30, 3 + 4 * s : 7 + 4 * s] = system.k[s]
    solution = np.linalg.lstsq(whole, system.t.ravel(), rcond=None)[0][:3]
    errors = np.sqrt(np.diag(np.linalg.inv(whole.T @ whole)))[:3]
    bounds, ends = (np.full(3, -np.inf), np.full(3, np.inf)), {}
    for deviations in (0.0, 0.01):
        options = LevenbergOptions(cost_tolerance=1e-7, deviations=deviations)
        state = start_state(system, np.full(3, 50.0), np.zeros((5, 4)), options)
        ends[deviations] = levenberg_marquardt(system, state, bounds, options=options)
        assert np.all(np.abs(ends[deviations].theta - solution) < 0.01 * errors)
    assert ends[0.01].outcome is StopReason.NOISE and ends[0.01].outcome.converged
    assert 2 * len(ends[0.01].log) < len(ends[0.0].log)
    unseen = LevenbergOptions(deviations=0.01)  # of a parameter that nothing shows no error is small enough
    blind = Blocks(np.concatenate([system.j[..., :2], np.zeros((5, 30, 1))], axis=2), system.k, system.t)
    end = levenberg_marquardt(blind, start_state(blind, np.zeros(3), np.zeros((5, 4)), unseen), bounds, options=unseen)
    assert end.outcome is not StopReason.NOISE


def test_only_block_unknowns_can_be_fitted() -> None:
    rng = np.random.default_rng(2)
    system = Blocks(np.zeros((2, 6, 0)), rng.standard_normal((2, 6, 3)), rng.standard_normal((2, 6)))
    start = start_state(system, np.zeros(0), np.zeros((2, 3)), LevenbergOptions())
    end = levenberg_marquardt(system, start, (np.zeros(0), np.zeros(0)))
    for s in range(2):
        np.testing.assert_allclose(end.blocks[s], np.linalg.lstsq(system.k[s], system.t[s], rcond=None)[0], atol=1e-8)


def test_going_on_from_any_iteration_ends_in_the_same_bits() -> None:
    seen: list[LevenbergState] = []
    system, bounds = Function(rosenbrock), (-FREE, FREE)
    start = start_state(system, np.array([-1.2, 1.0]), NO_BLOCKS, LevenbergOptions())
    end = levenberg_marquardt(system, start, bounds, on_iteration=seen.append)
    for state in seen[:-1]:
        again = levenberg_marquardt(system, state, bounds)
        assert again.theta.tobytes() == end.theta.tobytes() and len(again.log) == len(end.log)


@dataclass(frozen=True)
class Rounded(Function):
    """Its cost lies below the sum of squares of its rows by rounding, as where rows are compressed by QR factorisations."""

    def cost(self, theta: Any, blocks: Any) -> float:
        return super().cost(theta, blocks) * (1 - 1e-13)


def test_a_gain_below_rounding_is_the_end_whatever_its_sign() -> None:
    """At a minimum with a large residual the predicted gain is rounding, here below zero."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        a, y = rng.normal(size=(300, 2)), 3 * rng.normal(size=300)
        system = Rounded(lambda x, a=a, y=y: np.tanh(a @ x) - y)
        state = start_state(system, np.array([0.5, -0.5]), NO_BLOCKS, LevenbergOptions())
        end = levenberg_marquardt(system, state, (-FREE, FREE))
        assert end.outcome is StopReason.COST
        assert sum(not entry.accepted for entry in end.log[-5:]) <= 1, [entry.line() for entry in end.log]


@dataclass(frozen=True)
class Cliff(Function):
    """Without a derivative where the first parameter is above 1.1, though costs are finite there."""

    def compress(self, theta: Any, blocks: Any) -> Any:
        if theta[0] > 1.1:
            raise DataError("no derivative")
        return super().compress(theta, blocks)


def test_a_step_to_where_there_is_no_derivative_is_rejected() -> None:
    """Steps of Gauss and Newton would end at 1.58, beyond the minimum at 1, where costs are lower; a start there is refused."""
    options = LevenbergOptions(damping=1e-9)
    steep = Cliff(lambda x: np.array([np.arctan(2.0 * (x[0] - 1.0))]))
    state = start_state(steep, np.array([0.35]), NO_BLOCKS, options)
    end = levenberg_marquardt(steep, state, (np.array([0.0]), np.array([9.0])), options=options)
    assert end.theta[0] == pytest.approx(1.0, abs=1e-6)
    assert any(not entry.accepted for entry in end.log)
    with pytest.raises(DataError):
        levenberg_marquardt(steep, start_state(steep, np.array([2.0]), NO_BLOCKS, options), (-FREE[:1], FREE[:1]))


def test_small_steps_before_what_cannot_be_simulated_are_no_minimum() -> None:
    """(x - 2)^2 beyond whose x = 1 nothing can be simulated: x creeps there, and says so. Beyond x = 2.5 it is met and left."""

    @dataclass(frozen=True)
    class Walled(Function):
        wall: float = 1.0

        def cost(self, theta: Any, blocks: Any) -> float:
            return super().cost(theta, blocks) if theta[0] <= self.wall else np.inf

    def distance(x: Any) -> Any:
        return np.array([x[0] - 2.0, 0.1 * (x[0] - 2.0) ** 2 * x[0]])

    free, options = (np.full(1, -np.inf), np.full(1, np.inf)), LevenbergOptions(max_iterations=200)
    for wall, outcomes in (
        (1.0, {StopReason.EDGE}),
        (2.5, {StopReason.COST, StopReason.STEP, StopReason.GRADIENT, StopReason.ZERO}),
    ):
        system = Walled(distance, wall)
        end = levenberg_marquardt(system, start_state(system, np.full(1, -4.0), NO_BLOCKS, options), free, options=options)
        assert end.outcome in outcomes and end.theta[0] == pytest.approx(min(wall, 2.0), abs=1e-3)


def test_running_out_of_iterations_is_said() -> None:
    end = minimise(rosenbrock, [-1.2, 1.0], (-FREE, FREE), max_iterations=2)
    assert end.outcome is StopReason.ITERATIONS and not end.outcome.converged and "max_iterations" in end.outcome.message


def test_bad_settings_and_starts_are_refused() -> None:
    with pytest.raises(OptionError, match="max_iterations is 0"):
        LevenbergOptions(max_iterations=0)
    with pytest.raises(OptionError, match="deviations is -1"):
        LevenbergOptions(deviations=-1.0)
    with pytest.raises(ShapeError, match="not finite at the start"):
        minimise(lambda x: np.array([np.nan, x[0]]), [1.0, 1.0], (-FREE, FREE))


GROUND_TRUTH = SpringParameters(mass=2.0, stiffness=45.0, damping=0.8, gain=2.0)
QUICK: dict[str, dict[str, Any]] = {"cma_es": {"generations": 60}}
SIGMA = 1e-3
FORCE = 0.1
"""[m] and [m/s], [N]: noise that `Observer` is told of."""
EVERY = pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)


@EVERY
def test_every_method_describes_itself_and_takes_plain_options(method: Method) -> None:
    assert METHODS[method.name] is method and method_of(method.name) is method and method.summary
    assert method.settings() == method.options()
    first = dataclasses.fields(method.options)[0].name
    assert method.takes(first) and method.settings({first: getattr(method.options(), first)}) == method.options()
    with pytest.raises(OptionError, match=f"{method.name} has no option 'colour'; it has {first}"):
        method.settings({"colour": 1})
    for value in (object(), float("nan")):
        with pytest.raises(OptionError, match=f"^{method.name}: {first} is .*, expected "):
            method.settings({first: value})


@EVERY
def test_a_method_that_needs_more_than_a_simulator_says_so(method: Method) -> None:
    if method.needs:
        with pytest.raises(OptionError, match=f"{method.name} does not suit this system: it offers no"):
            method.check(Procedure(stages=()))
    else:
        method.check(Procedure(stages=()))


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if not (method.needs or method.takes("tracker"))])
def test_every_method_solves_the_same_problem(name: str) -> None:
    """Least squares end at the ground truth to rounding, the others within 5 %."""
    method = METHODS[name]
    problem = FitProblem(
        Spring(), record(Spring(), GROUND_TRUTH), ("stiffness", "damping"), start=GROUND_TRUTH.replace(stiffness=30.0)
    )
    found = method.fit(problem, method.settings(QUICK.get(name)))
    assert found.parameters.stiffness == pytest.approx(45.0, rel=5e-2 if name in QUICK else 1e-8)  # type: ignore[attr-defined]
    assert found.method.startswith(name)


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(OptionError, match="unknown method 'initial_guess'; there are one_step, multiple_shooting"):
        method_of("initial_guess")


class Edge:
    """Residual theta (1,), smallest at 0, of a model that has no derivatives below 0.5."""

    segments = SimpleNamespace(
        starts=np.zeros((1, 0)), problem=SimpleNamespace(theta_bounds=(np.full(1, -9.0), np.full(1, 9.0)))
    )

    def cost(self, theta: np.ndarray, blocks: np.ndarray) -> float:
        return 0.5 * float(theta[0] ** 2)

    def compress(self, theta: np.ndarray, blocks: np.ndarray) -> np.ndarray:
        if theta[0] < 0.5:
            raise DataError("no rest")
        return np.array([[[1.0, theta[0]]]])

    def move(self, blocks: np.ndarray, step: np.ndarray) -> np.ndarray:
        return blocks


def test_a_minimisation_ends_before_the_edge_of_the_model_and_says_so() -> None:
    end = minimised(cast(Any, Edge()), np.array([2.0]), LevenbergOptions())
    assert end.theta[0] >= 0.5 and end.outcome is StopReason.EDGE and not end.outcome.converged
    assert "edge" in end.outcome.message
    with pytest.raises(DataError, match="no rest"):
        minimised(cast(Any, Edge()), np.array([0.2]), LevenbergOptions())


@dataclasses.dataclass(frozen=True, eq=False)
class Observer:
    """Predictions of a spring from its start; where controls are taken for noisier than they are, from row to row."""

    simulator: Spring
    sensed: Trajectory
    rows: np.ndarray
    """(T + 1, 2) measured states."""
    forgets: bool = False

    def anchored(self, parameter_values: np.ndarray, noise: Mapping[str, float]) -> Observer:
        return dataclasses.replace(self, forgets=noise["control:force"] > FORCE)

    def errors(self, parameter_values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows, controls = self.rows, self.sensed.controls
        found = np.zeros((len(parameter_values), len(rows), 1))
        for errors, maps in zip(found, self.simulator._maps(parameter_values, 1), strict=True):
            states = rows.copy()
            if self.forgets:
                states[1:], _ = self.simulator._advance(rows[:-1], controls, np.repeat(maps[None], len(controls), axis=0))
            else:
                for k in range(len(controls)):
                    states[k + 1 : k + 2], _ = self.simulator._advance(states[k : k + 1], controls[k : k + 1], maps[None])
            errors[1:, 0] = (states - rows)[1:, 1] / SIGMA
        return found, np.ones(len(parameter_values), dtype=np.bool_)

    def slopes(self, parameter_values: np.ndarray, directions: np.ndarray) -> np.ndarray:
        steps = 1e-6 * directions.T
        (ahead, _), (back, _) = self.errors(parameter_values + steps), self.errors(parameter_values - steps)
        return np.moveaxis((ahead - back) / 2e-6, 0, -1)


def test_innovations_that_explain_nothing_begin_again_with_filters_that_forget() -> None:
    """A spring out of phase over 6 s: a wrong minimum, which predictions from row to row do not have."""
    recording = record(Spring(), GROUND_TRUTH, steps=300, noise=SIGMA)[0]
    rows = np.vstack([np.zeros((1, 2)), recording.values[1:]])  # at rest, as is known

    def tracker(simulator: Spring, seen: Trajectory) -> Observer:
        return Observer(simulator, seen, rows)

    data, options = TrajectorySet((recording.select(("mass.vx",)),)).split(1, 0, 0), InnovationOptions(tracker)
    far, noise = GROUND_TRUTH.replace(stiffness=1000.0), {"mass.vx": SIGMA, "control:force": FORCE}
    given = FitProblem(Spring(), data, ("stiffness",), start=far, noise=noise, free_initial=False)
    found = innovations(given, options)
    assert found.converged and found.explained and abs(found.parameters.stiffness / GROUND_TRUTH.stiffness - 1) < 0.02
    assert found.of("second_fit")[0].facts["how"] == "forgetful"
    assert found.start == far
    near = innovations(given.replace(start=GROUND_TRUTH), options)
    assert near.explained and not near.of("second_fit")


@pytest.mark.parametrize("slope", [-0.9, -1.5, -4.0, 0.5])
def test_filters_that_lead_to_and_fro_settle(slope):
    """A linear map that comes back by `slope` of where it was: it alone runs away, or takes long."""
    theta, share, before = np.array([1.0, -2.0]), 1.0, np.zeros(2)
    for _ in range(3):
        now = slope * theta - theta
        share = _relaxed(share, before, now) if before.any() else share
        theta, before = theta + share * now, now
    limit = 1e-12 if slope < 0 else 0.5**3
    assert np.abs(theta).max() <= 2.0 * limit and 0.1 <= share <= 1.0
