"""Residuals of segments and their derivatives: the exact chain against differences, padding, missing values, manifolds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from sysid_systems import Spin, SpinParameters, Spring, SpringParameters, record

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.simulator import finite_differences
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from sysid import FitProblem, multiple_shooting
from sysid.fitting.shooting import one_step, single_shooting
from sysid.least_squares.cutting import cut
from sysid.least_squares.system import ShootingSystem
from sysid.problem.problem import Measurement

GROUND_TRUTH = SpringParameters(mass=3.0, stiffness=45.0, damping=0.8, gain=2.0)
SPRING_FREE = ("stiffness", "damping", "gain", "offset", "paint")


def spring_problem(**changes: Any) -> FitProblem:
    recordings = record(Spring(), GROUND_TRUTH, steps=23, count=2, noise=0.01)
    return FitProblem(Spring(), **{"data": recordings, "free": SPRING_FREE, "start": SpringParameters(mass=3.0), **changes})


def markers() -> Measurement:
    """Two markers: a nonlinear one and a linear one."""
    return Measurement(("far", "near"), lambda x: np.stack([np.sin(x[..., 0]) + x[..., 1], x[..., 0]], axis=-1))


def spin_problem(**changes: Any) -> FitProblem:
    recordings = record(Spin(), SpinParameters(drag=2.0, torque=7.0), steps=40, noise=0.05)
    return FitProblem(Spin(), recordings, **{"free": ("drag", "torque"), **changes})


def marker_problem() -> FitProblem:
    made = []
    for t in record(Spring(), GROUND_TRUTH, steps=23, count=2):
        values = markers().function(t.values)
        made.append(Trajectory(t.times, t.controls, values, ("far", "near"), ("m", "m"), t.control_names, t.control_units))
    return spring_problem(data=TrajectorySet(tuple(made)), measurement=markers())


def test_the_test_systems_have_exact_derivatives() -> None:
    rng = np.random.default_rng(0)
    x, u = rng.standard_normal((4, 2)), rng.uniform(-1, 1, (4, 1))
    exact, differences = (
        Spring().linearize(x, u, GROUND_TRUTH, substeps=3),
        finite_differences(Spring(), x, u, GROUND_TRUTH, substeps=3),
    )
    for a, b in zip(exact, differences, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)


def position_problem() -> FitProblem:
    return spring_problem(measured=("mass.x",))


def seen_late(problem: FitProblem) -> FitProblem:
    """The same numbers, seen up to 0.4 of a row before or after their rows, which are of ten physics steps."""
    rng, made = np.random.default_rng(8), []
    for t in problem.split.train:
        offsets = t.period * rng.uniform(-0.4, 0.4, len(t.times))
        made.append(replace(t, times=10 * t.times, substeps=10 * t.substeps, offsets=10 * offsets))
    return problem.replace(data=TrajectorySet(tuple(made)))


def late_spring_problem() -> FitProblem:
    return seen_late(spring_problem())


def late_spin_problem() -> FitProblem:
    return seen_late(spin_problem())


def late_marker_problem() -> FitProblem:
    return seen_late(marker_problem())


def driven_problem() -> FitProblem:
    """The mass's velocity is what the recording's simulation has, wherever a segment starts."""
    return spring_problem(measured=("mass.x",), actuated=("mass.v*",))


# Short segments of partly measured states need free starts.
CASES = [(make, steps, free) for make in (spring_problem, spin_problem) for steps in (1, 7, None) for free in (False, True)]
CASES += [(make, steps, True) for make in (position_problem, marker_problem) for steps in (1, 7, None)]
CASES += [(make, steps, True) for make in (late_spring_problem, late_spin_problem, late_marker_problem) for steps in (7, None)]
CASES += [(driven_problem, steps, True) for steps in (7, None)]
CASES += [(make, None, False) for make in (position_problem, marker_problem)]


@pytest.mark.parametrize(("make", "steps", "free"), CASES)
def test_the_chain_equals_differences(make: Any, steps: int | None, free: bool) -> None:
    problem = make()
    train = problem.split.train
    chain, differences = (cut(problem, train, steps, free=free, exact=exact) for exact in (True, False))
    theta = problem.encode(problem.initial_parameters)
    starts = problem.simulator.retract(
        chain.starts, 0.05 * np.random.default_rng(3).standard_normal((len(chain.starts), problem.simulator.n))
    )
    a, b = chain.derivative(theta, starts), differences.derivative(theta, starts)
    np.testing.assert_array_equal(a.residual, b.residual)
    np.testing.assert_allclose(a.by_parameters, b.by_parameters, atol=2e-7 * max(1.0, np.abs(b.by_parameters).max()))
    np.testing.assert_allclose(a.starts, b.starts, atol=2e-7)
    assert np.abs(a.by_parameters[..., :2]).max() > 1e-5  # the comparison is of something
    assert a.starts.shape[-1] == (problem.simulator.n if free else 0)


def test_differences_along_starts_to_one_side() -> None:
    problem = position_problem()
    both = cut(problem, problem.split.train, 7, free=True, exact=False)
    theta = problem.encode(problem.initial_parameters)
    a, b = (segments.derivative(theta, both.starts) for segments in (replace(both, one_sided=True), both))
    np.testing.assert_array_equal(a.by_parameters, b.by_parameters)
    np.testing.assert_allclose(a.starts, b.starts, atol=1e-4)
    assert not np.array_equal(a.starts, b.starts)


def test_a_derivative_at_a_bound_is_one_sided_and_right() -> None:
    problem = spring_problem(start=SpringParameters(mass=3.0, stiffness=1e4, offset=-5.0))
    segments = cut(problem, problem.split.train, 5, free=False, exact=False)
    exact = cut(problem, problem.split.train, 5, free=False, exact=True)
    theta = problem.encode(problem.initial_parameters)
    one_sided, chain = (s.derivative(theta, s.starts).by_parameters for s in (segments, exact))
    np.testing.assert_allclose(one_sided, chain, rtol=1e-3, atol=1e-6)


def test_the_padded_end_of_a_recording_counts_for_nothing() -> None:
    problem = spring_problem()
    segments = cut(problem, problem.split.train, 7, free=False, exact=True)  # 23 steps = 3 x 7 + 2
    present = segments.present
    assert present.sum() == 2 * 23 * 2
    derivative = segments.derivative(problem.encode(problem.initial_parameters), segments.starts)
    assert not derivative.residual[~present].any() and not derivative.by_parameters[~present].any()


def test_missing_measurements_count_for_nothing() -> None:
    trajectory = record(Spring(), GROUND_TRUTH, steps=40)[0]
    values = trajectory.values.copy()
    values[10:14, 0] = np.nan
    broken = Trajectory(trajectory.times, trajectory.controls, values, trajectory.names, trajectory.units, ("force",), ("SI",))
    problem = spring_problem(data=TrajectorySet((broken,)), measured=("mass.x",), free=("stiffness",), start=GROUND_TRUTH)
    segments = cut(problem, problem.split.train, None, free=True, exact=True)
    system = ShootingSystem(segments, np.ones(1))
    assert segments.present.sum() == 41 - 4
    assert system.cost(problem.encode(GROUND_TRUTH), segments.starts) < 1e-20  # the start is at rest: the guess is exact


def test_a_prior_is_a_residual() -> None:
    problem = spring_problem(prior={"stiffness": (30.0, 3.0), "offset": (0.2, 0.1)})
    segments = cut(problem, problem.split.train, 5, free=False, exact=True)
    without = ShootingSystem(cut(spring_problem(), problem.split.train, 5, free=False, exact=True), np.ones(2))
    system = ShootingSystem(segments, np.ones(2))
    theta = problem.encode(problem.initial_parameters)
    expected = 0.5 * (np.log(20.0 / 30.0) / 0.1) ** 2 + 0.5 * ((0.5 - 0.2) / 0.1) ** 2
    assert system.cost(theta, segments.starts) - without.cost(theta, segments.starts) == pytest.approx(expected)
    rows = system.compress(theta, segments.starts)[0]
    gradient = rows[:, :-1].T @ rows[:, -1]
    step = 1e-5 * np.eye(5)
    ends = system.costs(np.concatenate([theta + step, theta - step]), segments.starts)
    np.testing.assert_allclose(gradient, (ends[:5] - ends[5:]) / 2e-5, rtol=1e-6, atol=1e-8)


def test_short_segments_of_partly_measured_states_need_free_starts() -> None:
    problem = spring_problem(measured=("mass.x",))
    with pytest.raises(OptionError, match="free_initial=True"):
        cut(problem, problem.split.train, 5, free=False, exact=True)
    with pytest.raises(OptionError, match="segment_steps is 0"):
        cut(problem, problem.split.train, 0, free=True, exact=True)


def test_a_diverging_candidate_costs_infinity_and_has_no_derivative() -> None:
    problem = spring_problem(free=("gain", "mass"))
    segments = cut(problem, problem.split.train, None, free=False, exact=False)
    system = ShootingSystem(segments, np.ones(2))
    far = problem.simulator.retract(segments.starts, np.full((2, 2), 1e9))
    theta = problem.encode(problem.initial_parameters)
    assert system.cost(theta, far) == np.inf
    with pytest.raises(DataError, match="diverges in 2 of 2 segments"):
        segments.derivative(theta, far)


@pytest.mark.parametrize("exact", [False, True])
def test_what_commands_drive_is_no_unknown_within_a_recording(exact: bool) -> None:
    """Where a segment starts it is what the recording, simulated by itself, has there; its slopes are those of that."""
    given, spring = driven_problem(), Spring()
    rows = cut(given, given.split.train, 7, free=True, exact=exact)
    rng = np.random.default_rng(0)
    theta = given.encode(given.initial_parameters) + np.array([0.1, -0.2, 0.1, 0.0, 0.0])
    starts = rows.starts + rng.standard_normal(rows.starts.shape)

    def by_hand(at: np.ndarray, moved: np.ndarray) -> np.ndarray:
        """Residuals (S, 8, 1) of segments put together here."""
        found, parameter_values = [], given.decode(at)
        for s, (recording, begin) in enumerate(zip(rows.recording, rows.begins, strict=True)):
            data, start = given.split.train[int(recording)], moved[s].copy()
            if begin:
                whole, _ = spring.rollout(given.initial_guess(data)[None], data.controls[None], parameter_values)
                start[1] = whole[0, begin, 1]
            states, _ = spring.rollout(start[None], rows.controls[s : s + 1], parameter_values)
            found.append(np.nan_to_num(states[0, :, :1] - rows.values[s]))
        return np.array(found)

    derivative, step = rows.derivative(theta, starts), 1e-5
    np.testing.assert_allclose(derivative.residual, by_hand(theta, starts), atol=1e-12)
    for j, unit in enumerate(step * np.eye(len(theta))):
        slope = (by_hand(theta + unit, starts) - by_hand(theta - unit, starts)) / (2 * step)
        np.testing.assert_allclose(derivative.by_parameters[..., j], slope, atol=1e-7)
    later, size = rows.begins > 0, np.abs(derivative.starts).max(axis=(1, 2))
    assert (size[later, 1] == 0).all() and (size[~later, 1] > 0.1).all() and (size[:, 0] > 0.5).all()
    assert rows.unknowns == 2 * len(starts) - later.sum() and (rows.begins == 0).sum() == len(given.split.train)
    told = replace(rows, problem=given.replace(known_initial=("mass.v*",)))
    assert told.unknowns == len(starts)  # what is known where a recording begins is no unknown to be left out once more


@dataclass(frozen=True, eq=False)
class Sticky(Spin):
    """Steps of a ball with any drag fail."""

    def _step(self, state: np.ndarray, control: np.ndarray, parameter_values: np.ndarray, substeps: int) -> tuple[Any, Any]:
        after, _ = super()._step(state, control, parameter_values, substeps)
        return after, (parameter_values[:, 0] > 0.0).astype(np.int32)


def test_a_constant_at_its_bound_has_no_derivative_where_its_only_side_fails() -> None:
    """A mass of none at the tip of a vine gave slopes of 0 / 0, and fits went on with them."""
    free = SpinParameters(drag=0.0)
    data = record(Spin(), free, steps=20)
    segments = cut(FitProblem(Sticky(), data, ("drag", "torque"), start=free), data, 5, free=False, exact=False)
    with pytest.raises(DataError, match="diverges on both sides"):
        segments.derivative(segments.problem.encode(free), segments.starts)


@pytest.mark.parametrize("late", [0.0, 0.004])
def test_commands_that_change_between_rows_act_when_they_did(late: float) -> None:
    """The exact map of a spring in steps of 2 ms, commands for some of these, rows of ten: parameters and latency are exact."""
    spring, rng, substeps, rows = Spring(dt=0.002), np.random.default_rng(4), 10, 60
    begins = np.unique(rng.choice(np.arange(1, rows * substeps), 80, replace=False))
    begins = np.concatenate([[0], begins])
    given = rng.uniform(-1.0, 1.0, (len(begins), 1))
    fine = given[np.searchsorted(begins, np.arange(rows * substeps), side="right") - 1]
    acted = np.concatenate([np.repeat(fine[:1], round(late / 0.002), axis=0), fine])[: len(fine)]
    states, _ = spring.rollout(np.zeros((1, 2)), acted[None], GROUND_TRUTH)
    commanded = np.column_stack([0.002 * begins, given])
    means = fine.reshape(rows, substeps).mean(axis=1, keepdims=True)
    recording = Trajectory(
        0.02 * np.arange(rows + 1), means, states[0, ::substeps, :1], ("mass.x",), ("m",), ("force",), ("N",), substeps,
        commanded=commanded,
    )  # fmt: skip
    free = ("stiffness", "damping", "gain", *(("latency",) if late else ()))
    problem = FitProblem(
        spring, TrajectorySet((recording,)), free, start=SpringParameters(mass=3.0, offset=GROUND_TRUTH.offset)
    )
    fit = single_shooting(problem)
    found = [*(getattr(fit.parameters, name) / getattr(GROUND_TRUTH, name) for name in free[:3])]
    np.testing.assert_allclose(found, 1.0, atol=1e-6)
    assert fit.view.latency == pytest.approx(late, abs=1e-8)
    coarse = single_shooting(problem.replace(data=TrajectorySet((replace(recording, commanded=np.zeros((0, 0))),))))
    assert abs(coarse.parameters.damping / GROUND_TRUTH.damping - 1.0) > 1e-3
    whole, part = (
        cut(problem, problem.split.train, None, free=True, exact=False),
        cut(problem, problem.split.train, 7, free=True, exact=False),
    )
    theta = problem.encode(GROUND_TRUTH) if not late else problem.replace(view=fit.view).encode(GROUND_TRUTH)
    known = replace(part, starts=states[0, ::substeps][part.begins])
    for segments, starts in ((whole, states[:, 0]), (known, known.starts)):
        residual, good = segments.residuals(theta[None], starts)
        assert good.all() and np.abs(residual).max() < 1e-9
    exact, differences = (cut(problem, problem.split.train, 7, free=True, exact=exact) for exact in (not late, False))
    by_chain, numeric = (each.derivative(theta, known.starts) for each in (exact, differences))
    np.testing.assert_allclose(by_chain.by_parameters, numeric.by_parameters, atol=1e-7)
    np.testing.assert_allclose(by_chain.starts, numeric.starts, atol=1e-7)


def test_values_seen_between_rows_are_compared_with_the_motion_then() -> None:
    """A spring's motion is an exponential of its matrix: off by h^2 / 8 |a| at most, h being the time of a part."""
    rng, substeps, rows, h = np.random.default_rng(5), 10, 60, 0.002
    offsets = 0.02 * np.where(np.arange(rows + 1) % 5 == 0, 0.0, rng.uniform(-0.45, 0.45, rows + 1))
    A = np.array([[0.0, 1.0], [-GROUND_TRUTH.stiffness / GROUND_TRUTH.mass, -GROUND_TRUTH.damping / GROUND_TRUTH.mass]])
    values, vectors = np.linalg.eig(A)
    weights = np.linalg.solve(vectors, np.array([0.2, -0.5]).astype(complex))

    def motion(times: np.ndarray) -> np.ndarray:
        return np.asarray((vectors * weights @ np.exp(values[:, None] * times)).real.T)

    times = 0.02 * np.arange(rows + 1)
    recording = Trajectory(
        times, np.zeros((rows, 1)), motion(times + offsets)[:, :1], ("mass.x",), ("m",), ("force",), ("N",), substeps,
        offsets=offsets,
    )  # fmt: skip
    fine = np.linspace(-0.01, times[-1] + 0.01, 5000)
    bound = h**2 / 8 * np.abs(np.gradient(motion(fine)[:, 1], fine)).max()
    still = replace(GROUND_TRUTH, offset=0.0)
    problem = FitProblem(Spring(dt=h), TrajectorySet((recording,)), ("stiffness", "damping"), start=still, free_motion=True)
    assert problem.parts == 10 and problem.estimates_initial
    for steps in (None, 7):
        segments = cut(problem, problem.split.train, steps, free=True, exact=True)
        residual, good = segments.residuals(problem.encode(still)[None], motion(times)[segments.begins])
        assert good.all() and np.abs(residual).max() <= bound
        # Every row but those of the recording's ends that were seen outside of it, where two segments meet in one of them.
        ends = (offsets[0] < 0.0) + (offsets[-1] > 0.0)
        twice = sum(1 for begin in segments.begins if 0 < begin and offsets[begin] == 0.0)
        assert segments.present.sum() == rows + 1 - ends + twice
    fit = single_shooting(problem)
    assert abs(fit.parameters.stiffness / GROUND_TRUTH.stiffness - 1) < 1e-4
    as_rows = single_shooting(problem.replace(data=TrajectorySet((replace(recording, offsets=np.zeros(0)),))))
    assert abs(as_rows.parameters.stiffness / GROUND_TRUTH.stiffness - 1) > 1e-3
    # Whole states: segments start from estimated ones, single steps from states that were moved to rows along cubics.
    states = replace(recording, values=motion(times + offsets), names=("mass.x", "mass.vx"), units=("m", "m/s"))
    whole = problem.replace(data=TrajectorySet((states,)))
    assert whole.full_state and whole.noisy
    assert abs(multiple_shooting(whole).parameters.stiffness / GROUND_TRUTH.stiffness - 1) < 1e-4
    assert abs(one_step(whole).parameters.stiffness / GROUND_TRUTH.stiffness - 1) < 1e-2
