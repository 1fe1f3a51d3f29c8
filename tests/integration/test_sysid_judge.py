"""Errors of the diagnostics: false alarms and power of the residual tests, one-sided statements, where segments start."""

from __future__ import annotations

import io
import itertools
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scipy import stats
from sysid_systems import MASS_ON_A_SPRING, Spring, SpringParameters, record

from softgym_envs.core.base import SteppedSimulator
from softgym_envs.core.procedure import EXPERIMENT
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.systems.rigid.dynamics import BlockSimulator, ParticleSimulator
from softgym_envs.systems.rigid.experiments import record as film
from softgym_envs.systems.rigid.model import BlockModel
from softgym_envs.systems.rigid.procedure import BLOCK, PARTICLES
from sysid import FitProblem
from sysid.diagnostics.intervals import IntervalOptions
from sysid.diagnostics.rules import ESTIMATED
from sysid.diagnostics.whiteness import ALARM, WINDOWS, skewness, statistic, weights_of, whiteness
from sysid.fitting.innovations import explained
from sysid.fitting.shooting import ShootingOptions, single_shooting
from sysid.least_squares.cutting import cut
from sysid.problem import deadline
from sysid.problem.noise import noise_of
from sysid.procedure.search import Diagnose
from sysid.procedure.stage import fit_stage
from sysid.procedure.stage_problem import stage_problem

GROUND_TRUTH = SpringParameters(mass=3.0, stiffness=45.0, damping=0.8, gain=2.0)


def polynomials(rows: int, count: int) -> np.ndarray:
    """Orthonormal columns (rows, count): what a fit of so many unknowns takes out."""
    return np.linalg.qr(np.vander(np.linspace(-1, 1, rows), count))[0]


def alarms(residuals: np.ndarray, basis: np.ndarray | None = None) -> int:
    """How many of the residuals (N, T, m) are called wrong, after a fit of the basis has taken its part out of them."""

    def project(noise: np.ndarray) -> np.ndarray:
        return (
            noise if basis is None else noise - np.einsum("tk,kn...->nt...", basis, np.einsum("tk,nt...->kn...", basis, noise))
        )

    return sum(not whiteness(project(one[None]), project).white for one in residuals)


@pytest.mark.parametrize(("rows", "unknowns"), [(100, 0), (40, 10)])
def test_white_noise_is_called_wrong_as_seldom_as_stated(rows: int, unknowns: int) -> None:
    basis = polynomials(rows, unknowns) if unknowns else None
    found = alarms(np.random.default_rng(0).standard_normal((100, rows, 2)), basis)
    assert found <= stats.binom.ppf(0.999, 100, ALARM)


def test_no_system_has_a_rate_of_false_alarms_of_its_own() -> None:
    """All fits of a system share one limit, and with it a rate that is off by chance: of 24 systems by a seventh, no more."""
    off = []
    for rows, columns in itertools.product(range(40, 280, 20), (1, 2)):
        basis, rng = polynomials(rows, 2), np.random.default_rng([rows, columns])

        def left(noise: np.ndarray, basis: np.ndarray = basis) -> np.ndarray:
            return noise - np.einsum("tk,sk...->st...", basis, np.einsum("tk,st...->sk...", basis, noise))

        limit = whiteness(left(rng.standard_normal((1, rows, columns, 1)))[..., 0], left).limit
        largest = [statistic(left(rng.standard_normal((1, rows, columns, 1000)))).max(axis=0) for _ in range(20)]
        off.append(float(np.mean(np.array(largest) > limit)) / ALARM - 1.0)
    assert np.sum(np.square(off)) < stats.chi2.isf(1e-3, len(off)) * (1 / 49 + 1 / (ALARM * 20_000))


def test_white_noise_in_a_hundred_columns_is_called_wrong_as_seldom_as_stated() -> None:
    """As many numbers as full states of a SUPERball have. With a normal law's limit 5 of 100 were."""
    found = alarms(np.random.default_rng(0).standard_normal((250, 601, 100)))
    assert found <= stats.binom.ppf(0.999, 250, ALARM)


def test_skewness_of_sums_of_lagged_products_is_that_of_their_quadratic_form() -> None:
    """With A as a dense matrix; and far out the law is gamma: counts beyond it are Poisson's."""
    for window, unit in ((1, False), (3, False), (10, False), (10, True)):
        weights, form = weights_of(window, unit), np.zeros((40, 40))
        for lag, weight in enumerate(weights, 1):
            form += 0.5 * weight * (np.eye(40, k=lag) + np.eye(40, k=-lag))
        dense = 8.0 * 3 * np.trace(form @ form @ form) / (2.0 * 3 * np.trace(form @ form)) ** 1.5
        assert skewness(3, 40, weights) == pytest.approx(dense, abs=1e-12)
    z = statistic(np.random.default_rng(1).standard_normal((1, 601, 20000)))  # of three windows the largest
    tails = {c: sum(stats.pearson3.sf(c, skewness(1, 601, weights_of(w, False))) for w in WINDOWS) for c in (3.0, 3.5)}
    for limit, tail in tails.items():
        assert stats.poisson.ppf(1e-4, 0.5 * len(z) * tail) <= np.sum(z > limit) <= stats.poisson.ppf(1 - 1e-4, len(z) * tail)


def test_an_error_that_lasts_is_seen_long_before_half_of_everything_is_correlated() -> None:
    """One of three columns has a correlation of 0.37; pooled, the three have 0.12."""
    rng = np.random.default_rng(1)
    drive = rng.standard_normal((10, 500, 3))
    lasting = drive.copy()
    for t in range(1, 500):
        lasting[:, t, 2] += 0.37 * lasting[:, t - 1, 2]
    assert alarms(lasting) == 10
    test = whiteness(lasting[:1], lambda noise: noise)
    assert test.column == 2 and 0.25 < test.correlation < 0.5


def test_power_that_is_lacking_is_no_error_and_an_error_is_seen_beside_it() -> None:
    """White noise without its upper half: correlated, but nowhere more than noise; with an error that lasts, it is more."""
    rng = np.random.default_rng(2)
    spectrum = np.fft.rfft(rng.standard_normal((8, 12000, 2)), axis=1)
    spectrum[:, 3000:] *= np.sqrt(0.3)
    lacking = np.fft.irfft(spectrum, 12000, axis=1)
    drift = np.repeat(0.3 * rng.standard_normal((8, 600, 2)), 20, axis=1)

    def called(residuals: np.ndarray, unit: bool) -> int:
        return sum(not whiteness(one[None], lambda noise: noise, unit=unit).white for one in residuals)

    assert called(lacking, False) == 8 and called(lacking, True) == 0
    assert called(lacking + drift, True) == 8
    assert called(rng.standard_normal((30, 12000, 2)), True) <= stats.binom.ppf(0.999, 30, ALARM)


def test_variance_of_a_variance_that_third_differences_tell() -> None:
    rng, rows = np.random.default_rng(0), 200
    clean = record(Spring(), GROUND_TRUTH, steps=rows)[0]
    still = replace(clean, values=np.zeros_like(clean.values))
    name = still.names[0]
    told = [noise_of(TrajectorySet((still.with_noise(rng, 1.0),)), (name,))[name] ** 2 for _ in range(400)]
    assert rows * np.var(told) == pytest.approx(ESTIMATED, rel=0.25) and np.mean(told) == pytest.approx(1.0, abs=0.04)


@pytest.mark.parametrize(("friction", "seed"), [(0.6, 0), (0.7, 1), (0.8, 2), (0.95, 3), (0.747, 19)])
def test_what_sticks_bounds_friction_from_below(friction: float, seed: int) -> None:
    """It falls 3 m under a push of 5 N and sticks where it lands if friction is over 5 / (9.81 - ...): about 0.59."""
    pytest.importorskip("casadi")
    fit = fitted(friction, seed)
    (estimate,) = fit.estimates
    assert estimate.hidden and not fit.usable
    low, high = estimate.interval
    assert 0.57 < low < 0.6 and high == 1.0
    (said,) = fit.of("one_sided")
    assert said.parameter == "friction" and said.facts["sign"] == ">=" and said.value == low
    assert not fit.of("no_effect") and "within 0.5" in estimate.line()


@pytest.mark.parametrize("seed", range(3))
def test_what_lies_still_tells_no_friction(seed: int) -> None:
    """Nobody knows its start velocities: a small friction with them, or a large one without, explain the noise as well."""
    pytest.importorskip("casadi")
    simulator, rng = BlockSimulator(BlockModel(pulley=None)), np.random.default_rng(seed)
    noise = {"x": 1e-3, "y": 1e-3, "theta": 5e-3}
    start = simulator.initial_state()[0] * np.repeat([1.0, 0.0], 3)
    recording = film(simulator, start, np.zeros((48, 2)), noise=noise, rng=rng)
    labelled = TrajectorySet((replace(recording, metadata={EXPERIMENT: ""}),))
    assert BLOCK.from_recordings is not None
    problem = stage_problem(BLOCK, BLOCK.from_recordings, simulator, labelled, start=simulator.default_parameters)
    fit = fit_stage(BLOCK, BLOCK.from_recordings, problem, folder=None, resume=False, progress=None)
    assert fit.estimates[0].hidden and not fit.usable and fit.estimates[0].interval[1] == fit.estimates[0].bounds[1]
    assert {"one_sided", "any_value", "no_effect", "within_model_error"} & set(fit.codes)


def test_what_slides_has_two_sides() -> None:
    pytest.importorskip("casadi")
    fit = fitted(0.3, 4)
    assert fit.codes[0] == "identified" and fit.explained and fit.estimates[0].interval[1] < 0.31


def test_a_side_for_which_no_time_is_left_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refits of a block that sticks, stopped after their share: a lower bound below the right one, or none."""
    pytest.importorskip("casadi")
    monkeypatch.setattr(deadline, "LEAST", 0.0)
    for share in (0.0, 0.1):
        monkeypatch.setattr(deadline, "SHARE", share)
        fit = fitted(0.7, 1, "quick")
        low, high = fit.estimates[0].interval
        assert fit.estimates[0].hidden and low < 0.6 and high == 1.0
        assert fit.of("not_searched")[0].parameter == "bounds of friction" or low > 0.57


def fitted(friction: float, seed: int, diagnose: Diagnose = "full") -> Any:
    simulator, rng = ParticleSimulator(), np.random.default_rng(seed)
    parameter_values = simulator.default_parameters.replace(friction=friction)
    start, noise = np.array([0.0, 3.0, 0.0, 0.0]), {"x": 1e-3, "y": 1e-3}
    recording = film(simulator, start, np.full((100, 1), 5.0), parameter_values, noise=noise, rng=rng)
    labelled = TrajectorySet((replace(recording, metadata={EXPERIMENT: ""}),))
    stage = PARTICLES.from_recordings
    assert stage is not None
    problem = stage_problem(PARTICLES, stage, simulator, labelled, start=simulator.default_parameters)
    return fit_stage(PARTICLES, stage, problem, folder=None, resume=False, progress=None, diagnose=diagnose)


def test_a_step_that_is_too_long_is_named() -> None:
    """A block of 128 edges at 5 ms, fitted with 32 at 10 ms: residuals are twice the noise."""
    pytest.importorskip("casadi")
    fine, rng = BlockSimulator(BlockModel(num_directions=128), dt=0.005), np.random.default_rng(1)
    noise = {"x": 1e-3, "y": 1e-3, "theta": 5e-3}
    recording = film(fine, fine.initial_state()[0], np.zeros((40, 2)), noise=noise, rng=rng, period=0.02)
    labelled = TrajectorySet((replace(recording, metadata={EXPERIMENT: ""}, substeps=2),))
    assert BLOCK.from_recordings is not None
    stage = replace(
        BLOCK.from_recordings, simulator=replace(BLOCK.from_recordings.simulator, adapt=None)
    )  # which would take 128 edges by itself
    problem = stage_problem(BLOCK, stage, BlockSimulator(), labelled, start=BlockSimulator().default_parameters)
    progress = io.StringIO()
    fit = fit_stage(BLOCK, stage, problem, folder=None, resume=False, progress=progress)
    first, *tried, last = progress.getvalue().splitlines()
    assert first == "fitting friction by mpec" and "other simulator" not in progress.getvalue()  # it would be the same one
    assert "trying finer steps" in tried[0] and last.startswith("how well")
    why = "step of 0.01 s, or what else is coarse in it, is why: in steps of 0.005 s with num_directions 32 -> 128"
    (said,) = fit.of("step_matters")
    assert not fit.explained and why in said.sentence() and said.facts["told"].startswith("friction = 0.3")


def test_segments_start_from_what_their_rows_tell() -> None:
    """Positions alone: the guess of a segment's start is that of its first rows, not of a simulation from far parameters."""
    data = record(Spring(), GROUND_TRUTH, steps=60)
    far = GROUND_TRUTH.replace(stiffness=400.0)

    def initial_guess(recording: Any) -> np.ndarray:
        x = recording.select(("mass.x",)).values[:, 0]
        return np.array([x[0], (x[1] - x[0]) / recording.period])

    problem = FitProblem(Spring(), data, ("stiffness",), start=far, measured=("mass.x",), initial_state=initial_guess)
    segments = cut(problem, problem.split.train, 20, free=True, exact=True)
    true = data[0].select(Spring().state_names).values[::20][:3]
    np.testing.assert_allclose(segments.starts[:, 0], true[:, 0], atol=1e-12)
    assert np.abs(segments.starts[:, 1] - true[:, 1]).max() < 0.2 * np.abs(data[0].values[:, 1]).max()


def test_noise_that_nobody_stated_is_judged_with_its_own_error() -> None:
    """Of 40 rows a variance is told within 40 %: residuals 1.15 times as large are no contradiction; 2 times are."""
    clean = record(Spring(), GROUND_TRUTH, steps=40)
    noisy = TrajectorySet(tuple(t.with_noise(np.random.default_rng(0), 0.01) for t in clean))
    problem = FitProblem(
        Spring(), noisy, ("stiffness",), start=GROUND_TRUTH, free_initial=True, noise={n: 0.01 / 1.15 for n in clean.names}
    )
    assert single_shooting(problem.replace(noise_estimated=True)).explained
    low = {name: 0.005 for name in clean.names}
    assert not single_shooting(problem.replace(noise=low, noise_estimated=True)).explained
    assert not single_shooting(problem.replace(noise=low)).explained


@pytest.mark.parametrize("usable", [True, False])
def test_what_must_not_be_used_is_not_hidden_by_a_model_that_explains_nothing(usable: bool) -> None:
    data = record(Spring(), GROUND_TRUTH, steps=60, noise=1e-3)
    result = single_shooting(FitProblem(Spring(), data, ("stiffness",), start=GROUND_TRUTH))
    assert result.usable
    if not usable:
        result = result.with_diagnostic("not_converged", "do_not_use")
    lasting = np.cumsum(np.ones((1, 60, len(result.noise))), axis=1)
    system = SimpleNamespace(
        segments=SimpleNamespace(starts=None, derivative=lambda theta, starts: SimpleNamespace(residual=lasting))
    )
    said = explained(replace(result, reduced_chi2=9.0), cast(Any, system), np.zeros(1))
    assert not said.explained and said.usable == usable
    assert said.codes[0 if usable else 1] == "model_mismatch"


@dataclass(frozen=True, eq=False)
class CoarseSpring(SteppedSimulator):
    """The mass on a spring by semi-implicit Euler steps: of first order."""

    parameters_class = SpringParameters
    model: Any = MASS_ON_A_SPRING
    dt: float = 0.02

    def _step(
        self, state: np.ndarray, control: np.ndarray, parameter_values: np.ndarray, substeps: int
    ) -> tuple[np.ndarray, np.ndarray]:
        (x, v), (m, k, c, g, e) = state.T.copy(), parameter_values[:, :5].T
        for _ in range(substeps):
            v = v + self.dt * ((g * control[:, 0] - c * v - k * x) / m + e)
            x = x + self.dt * v
        return np.stack([x, v], axis=1), np.zeros(len(state), dtype=np.int32)


def test_intervals_allow_for_the_step_where_it_matters_and_only_there() -> None:
    """Euler steps of 20 ms are off by more than the noise leaves open; twice what half of the step changes covers it."""
    data = TrajectorySet((record(Spring(), GROUND_TRUTH, steps=400, noise=1e-4)[0].select(("mass.x",)),))
    free, held = ("stiffness", "damping", "gain"), GROUND_TRUTH.replace(stiffness=40.0, damping=1.0, gain=1.5)
    problem = FitProblem(CoarseSpring(), data, free, start=held)
    plain, wide = (
        single_shooting(problem, ShootingOptions(intervals=IntervalOptions(half_step=halve))) for halve in (False, True)
    )
    inside = [
        [low <= float(getattr(GROUND_TRUTH, e.name)) <= high for e in fit.estimates for low, high in [e.interval]]
        for fit in (plain, wide)
    ]
    assert not all(inside[0]) and all(inside[1])
    assert plain.parameters == wide.parameters
    assert wide.of("model_choice")[0].parameter == "the simulator's step of 20 ms"
    exact = single_shooting(problem.replace(simulator=Spring()), ShootingOptions(intervals=IntervalOptions(half_step=True)))
    assert not exact.of("model_choice")


def test_what_is_far_below_the_noise_is_followed():
    """A slow sine beside white noise lasts where it is as large as the noise, and not where it is a hundredth of it."""
    rng = np.random.default_rng(0)
    noise, sine = rng.standard_normal(200), np.sin(np.arange(200) / 20)
    for size, white in ((1.0, False), (0.01, True)):
        assert whiteness(np.stack([noise, size * sine], axis=-1)[None], lambda drawn: drawn).white is white
