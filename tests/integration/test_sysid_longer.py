"""What short segments hide is seen in longer ones; what is right, or off by the simulator's step only, is not called wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sysid_systems import record

from softgym_envs.core.base import PlainStructure, SteppedSimulator
from softgym_envs.core.layout import Field, StateLayout
from softgym_envs.core.parameters import Parameters, param
from softgym_envs.core.trajectory import TrajectorySet
from sysid import FitProblem, multiple_shooting
from sysid.diagnostics import segment_length_test
from sysid.diagnostics.intervals import IntervalOptions
from sysid.diagnostics.residuals import WeightedResiduals, weighted_residuals
from sysid.diagnostics.result import FitResult
from sysid.diagnostics.whiteness import ALARM, gamma_limit
from sysid.fitting.shooting import ShootingOptions
from sysid.least_squares.cutting import cut
from sysid.least_squares.segments import Segments
from sysid.least_squares.system import ShootingSystem

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
