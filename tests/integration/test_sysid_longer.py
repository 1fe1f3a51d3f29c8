"""What short segments hide is seen in longer ones; what is right, or off by the simulator's step only, is not called wrong.
Recordings that were kept back are of the same robot, or it is said that they are not. What a user reads where the model
does not explain the data; and how the ladder of diagnostics counts it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from helpers import load_script
from numpy.typing import NDArray
from scipy import stats
from sysid_systems import Spring, SpringParameters, record

from softgym_envs.core.base import PlainStructure, SteppedSimulator
from softgym_envs.core.layout import Field, StateLayout
from softgym_envs.core.parameters import Parameters, param
from softgym_envs.core.trajectory import DataSplit, TrajectorySet
from sysid import FitProblem, multiple_shooting
from sysid.diagnostics import segment_length_test
from sysid.diagnostics.hold_out_test import RARE, _without_errors
from sysid.diagnostics.intervals import IntervalOptions
from sysid.diagnostics.residuals import WeightedResiduals, weighted_residuals
from sysid.diagnostics.result import FitResult
from sysid.diagnostics.whiteness import ALARM, gamma_limit
from sysid.fitting.shooting import ShootingOptions, single_shooting
from sysid.least_squares.cutting import cut
from sysid.least_squares.segments import Segments
from sysid.least_squares.system import ShootingSystem
from sysid.problem.recording_parameters import RecordingParameters
from sysid.procedure.stage import banded

Array = NDArray[np.float64]

PERIOD = 0.02
"""Of the camera [s]."""


@dataclass(frozen=True)
class PendulumParameters(Parameters):
    """I a'' + c a' + f sign(a') + g sin(a) = u."""

    inertia: float = param(0.035, unit="kg m^2", bounds=(1e-3, 1.0), scale="log")
    weight: float = param(0.8, unit="N m", bounds=(0.01, 10.0), scale="log")
    damping: float = param(0.02, unit="N m s/rad", bounds=(1e-4, 1.0), scale="log")
    friction: float = param(0.0, unit="N m", bounds=(0.0, 1.0))


HINGE = PlainStructure(
    StateLayout(Field("", None, ("angle", "rad"), ("rate", "rad/s"))),
    ("torque",), ("N m",), (np.array([-0.6]), np.array([0.6])), np.zeros(2),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Pendulum(SteppedSimulator):
    """By semi-implicit Euler, of first order in its step; friction sets in over 5 mrad/s."""

    parameters_class = PendulumParameters

    model: Any = HINGE
    dt: float = PERIOD / 10

    def _step(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> tuple[Array, NDArray[np.int32]]:
        inertia, weight, damping, friction = parameter_values.T
        angle, rate = state.T
        for _ in range(substeps):
            force = control[:, 0] - weight * np.sin(angle) - damping * rate - friction * np.tanh(rate / 5e-3)
            rate = rate + self.dt * force / inertia
            angle = angle + self.dt * rate
        return np.stack([angle, rate], axis=1), np.zeros(len(state), dtype=np.int32)


def from_markers(dt: float, seed: int, noise: float = 5e-3, **parameter_values: float) -> TrajectorySet:
    """Six seconds of a pendulum that moves in steps of `dt`, seen in 50 frames per second with `noise` [rad]."""
    ground_truth = PendulumParameters(**parameter_values)
    found = record(Pendulum(dt=dt), ground_truth, steps=300, seed=seed, noise={"angle": noise}, substeps=round(PERIOD / dt))
    return TrajectorySet(tuple(t.select(("angle",)) for t in found))


def fitted(data: TrajectorySet, substeps: int = 10, half_step: bool = False) -> FitResult:
    """Segments of ten rows, from starts that are off, by a simulator of so many steps per frame."""
    start, free = PendulumParameters(inertia=0.05, weight=1.0, damping=0.05), ("inertia", "weight", "damping")
    taken = TrajectorySet(tuple(replace(t, substeps=substeps) for t in data))
    problem = FitProblem(Pendulum(dt=PERIOD / substeps), taken, free, start=start, measured=("angle",))
    return multiple_shooting(problem, ShootingOptions(segment_steps=10, intervals=IntervalOptions(half_step=half_step)))


def test_dry_friction_that_ten_rows_hide_is_seen_in_longer_segments() -> None:
    """Ten rows alone call a damping that is several times off `[ok]`; the limit is a quantile of 1e-4 at a power of 0.9."""
    fits = [fitted(from_markers(PERIOD / 10, seed, friction=0.08)) for seed in range(8)]
    assert sum(not fit.explained for fit in fits) >= stats.binom.ppf(1e-4, len(fits), 0.9)
    hidden = [fit for fit in fits if not fit.of("residuals_last")]
    assert hidden and all(fit.of("longer_segments") for fit in hidden if not fit.explained)
    assert all(fit.estimates[2].value > 1.5 * 0.02 for fit in hidden)


def test_right_models_pass_over_longer_segments_too() -> None:
    """Two tests of a rate of 1 in 100 each: the limit is a quantile of 1e-4."""
    fits = [fitted(from_markers(PERIOD / 10, seed)) for seed in range(24)]
    assert sum(fit.explained for fit in fits) >= stats.binom.ppf(1e-4, len(fits), 0.98)


def test_the_simulators_step_is_named_and_is_no_error_where_intervals_allow_for_it() -> None:
    """Of a ground truth in steps of 0.1 ms, a simulator in steps of 5 ms is off by some of the noise in a second."""
    films = [from_markers(PERIOD / 200, seed) for seed in range(6)]
    plain, halved = ([fitted(film, substeps=4, half_step=halve) for film in films] for halve in (False, True))
    named = [any(d.facts["cause"] for d in fit.of("longer_segments")) for fit in plain]
    assert sum(named) >= 2 and not any(fit.explained for fit, is_named in zip(plain, named, strict=True) if is_named)
    assert sum(fit.explained for fit in halved) >= stats.binom.ppf(1e-4, len(films), 0.98)


def test_the_step_alone_makes_no_model_wrong_where_intervals_allow_for_it() -> None:
    """With 0.1 mrad of noise the error of steps of 2 ms shows in ten rows already; dry friction shows beside it."""
    right: list[FitResult] = []
    wrong: list[FitResult] = []
    for seed in range(4):
        for into, friction in ((right, 0.0), (wrong, 0.03)):
            into.append(fitted(from_markers(PERIOD / 200, seed, 1e-4, friction=friction), half_step=True))
    assert sum(fit.explained for fit in right) >= stats.binom.ppf(1e-4, len(right), 0.98)
    assert not any(fit.explained for fit in wrong)


def left_over(problem: FitProblem, rows: int) -> tuple[Segments, WeightedResiduals]:
    """Segments of so many rows, and what the ground truth leaves of their data."""
    segments = cut(problem, problem.split.train, rows, free=True, exact=False)
    system = ShootingSystem(segments, np.array([5e-3]))
    return segments, weighted_residuals(system, problem.encode(problem.initial_parameters), segments.starts)


def test_the_limit_of_longer_segments_is_that_of_its_rate_of_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise is the same at all lengths, so that at most the sum of three rates fails; the limit is steadier than a quantile."""
    sets, draws, alarm = 50, segment_length_test.GROWTH_DRAWS, ALARM / len(segment_length_test.FACTORS)
    monkeypatch.setattr(segment_length_test, "GROWTH_DRAWS", sets * draws)
    monkeypatch.setattr(segment_length_test, "NUMBERS", 10**12)  # all draws at once, in one order
    (film,) = from_markers(PERIOD / 10, 0)
    taken = TrajectorySet((replace(film.window(0.0, 2.4), substeps=10),))
    problem = FitProblem(Pendulum(), taken, ("inertia", "weight", "damping"), measured=("angle",))
    short = left_over(problem, 10)
    drawn = np.stack(
        [segment_length_test._drawn(*short, *left_over(problem, 10 * factor)) for factor in segment_length_test.FACTORS]
    )
    parts = drawn.reshape(len(drawn), sets, draws)
    limits = np.array([[gamma_limit(some, alarm) for some in part] for part in parts])
    failed = np.mean([(drawn > limit[:, None]).any(axis=0).mean() for limit in limits.T])
    assert ALARM / 2 < failed <= ALARM
    quantiles = np.quantile(parts, 1.0 - alarm, axis=2, method="higher")
    assert stats.f.cdf(np.mean(limits.var(axis=1) / quantiles.var(axis=1)), sets - 1, sets - 1) < 0.01


NOISE_ELSEWHERE = 0.01
"""Of the place of the mass [m]."""


def fitted_elsewhere(other: float, seed: int, *, segments: int | None = None, rows: tuple[int, int] = (200, 200)) -> FitResult:
    """Stiffness from a recording of 20 N/m; another one of `other` N/m is kept back; of so many rows each."""
    parts = []
    for stiffness, which, steps in ((20.0, seed, rows[0]), (other, seed + 1000, rows[1])):
        (moved,) = record(Spring(), SpringParameters(stiffness=stiffness), seed=which, steps=steps)
        seen = moved.select(("mass.x",)).with_noise(np.random.default_rng(which), {"mass.x": NOISE_ELSEWHERE})
        parts.append(TrajectorySet((seen,)))
    split = DataSplit(parts[0], TrajectorySet(()), parts[1])
    problem = FitProblem(Spring(), split, ("stiffness",), measured=("mass.x",))
    return single_shooting(problem) if segments is None else multiple_shooting(problem, ShootingOptions(segment_steps=segments))


@pytest.mark.parametrize("segments", [None, 50])
def test_another_robot_that_was_kept_back_is_said_to_be_one(segments: int | None) -> None:
    fit = fitted_elsewhere(35.0, 0, segments=segments)
    assert not fit.explained and fit.misfit > 1.0 and fit.of("held_out_residuals")[0].parameter == "mass.x"


def test_the_same_robot_is_not_called_another_one() -> None:
    fits = [fitted_elsewhere(20.0, seed) for seed in range(30)]
    assert sum(bool(fit.of("held_out_residuals")) for fit in fits) <= stats.binom.ppf(1 - 1e-3, len(fits), RARE)


def test_errors_of_the_constants_call_no_recording_another_robot() -> None:
    """Much longer than what was fitted, so that an error of the stiffness that its interval holds shows."""
    fits = [fitted_elsewhere(20.0, seed, rows=(40, 600)) for seed in range(20)]
    assert sum(bool(fit.of("held_out_residuals")) for fit in fits) <= stats.binom.ppf(1 - 1e-3, len(fits), RARE)


def test_residuals_less_what_errors_of_the_constants_make() -> None:
    rng = np.random.default_rng(0)
    residual, jacobian, root = rng.standard_normal(40), rng.standard_normal((40, 3)), rng.standard_normal((3, 2))
    covariance = root @ root.T  # one direction is known
    direct = residual @ np.linalg.solve(np.eye(40) + jacobian @ covariance @ jacobian.T, residual)
    assert _without_errors(residual, jacobian @ root) == pytest.approx(direct, rel=1e-9)


def late(seed: int, rows: int = 10) -> FitResult:
    """The same robot, with commands that act so many rows late: those before the recording that is kept back nobody knows."""
    parts = []
    for which in (seed, seed + 1000):
        (moved,) = record(Spring(), steps=200 + rows, seed=which)
        given = replace(moved.window(0.0, 200 * moved.period), controls=moved.controls[rows:], before=moved.controls[:rows])
        seen = given.select(("mass.x",)).with_noise(np.random.default_rng(which), 0.1 * NOISE_ELSEWHERE)
        parts.append(TrajectorySet((seen,)))
    kept = TrajectorySet((replace(parts[1][0], before=np.zeros((0, 1))),))
    split, view = DataSplit(parts[0], TrajectorySet(()), kept), RecordingParameters(latency=rows * Spring().dt)
    return single_shooting(FitProblem(Spring(), split, ("stiffness",), measured=("mass.x",), view=view))


def test_the_same_robot_under_commands_that_nobody_knows_is_not_called_another_one() -> None:
    fits = [late(seed) for seed in range(12)]
    assert sum(fit.explained for fit in fits) >= stats.binom.ppf(1e-3, len(fits), 1 - 2 * ALARM)
    assert sum(bool(fit.of("held_out_residuals")) for fit in fits) <= stats.binom.ppf(1 - 1e-3, len(fits), RARE)


GROUND_TRUTH = SpringParameters(mass=3.0, stiffness=45.0, damping=0.8, gain=2.0)
NOISE = 1e-3
ROC = load_script("experiments/all_identify/roc.py")


def fitted_unexplained(error: float) -> FitResult:
    """A mass on a spring, whose place is seen with an error that lasts; 2 s, too short for prediction intervals."""
    clean = record(Spring(), GROUND_TRUTH, steps=100)[0]
    lasting = error * np.sin(37.0 * clean.times)[:, None]
    noisy = replace(clean, values=clean.values + lasting).with_noise(np.random.default_rng(3), NOISE)
    problem = FitProblem(Spring(), TrajectorySet((noisy,)), ("stiffness", "damping"), start=GROUND_TRUTH, free_initial=True)
    return banded(problem, single_shooting(problem))


def test_a_model_that_does_not_explain_says_so_first_and_how_far_off_it_is() -> None:
    fit = fitted_unexplained(5 * NOISE)
    assert fit.misfit > 1.0 and not fit.explained and fit.usable
    assert fit.codes[0] == "model_mismatch" and fit.diagnostics[0].severity == "warning"
    assert all(line.endswith("of this model alone") for line in fit.summary().splitlines()[-2:])
    (said,) = fit.of("intervals_of_model")
    off, told = said.value, said.limit
    assert off is not None and told is not None and "predictions of these are off by up to" in said.sentence()
    # A sine of amplitude a is off by a / sqrt(2), beside noise; third differences see some of it, too.
    assert 2.5 * NOISE < off < 5 * NOISE and 0.5 * NOISE < told < 0.5 * off


def test_a_model_that_explains_says_nothing_of_it() -> None:
    fit = fitted_unexplained(0.0)
    assert fit.misfit <= 1.0 and fit.explained and fit.to_json()["misfit"] == fit.misfit
    assert not {"model_mismatch", "intervals_of_model"} & set(fit.codes) and "alone" not in fit.summary()


def test_area_under_the_roc_curve_counts_what_old_rows_leave_open_as_wrong() -> None:
    def row(level: str, seed: int, explains: bool, misfit: float | None = None) -> dict[str, object]:
        found = {"system": "r", "level": level, "seed": seed, "explains": explains, "miss": 2.0, "false": False}
        return {**found, "identified": explains} | ({} if misfit is None else {"misfit": misfit})

    own = [row("own", 0, True, 0.5), row("own", 1, False, 1.5)]
    missing = [row("2", 0, False, 1.4), row("2", 1, False, 9.0)]
    assert "| 2 | 2 | 0.750 | 2 of 2:" in ROC.table_of(own + missing)
    open_ones = [row("own", 0, True), row("own", 1, False)]
    assert "| 2 | 2 | 0.500 | 1 of 2:" in ROC.table_of(open_ones + missing)
    # Clopper and Pearson: of n right ones, all right, the lower end is 0.025^(1 / n).
    assert ROC.interval(20, 20)[0] == pytest.approx(0.025 ** (1 / 20))
