r"""Bootstrap particle filter for states and parameters together [Gordon, Salmond, Smith 1993]: the baseline of [Berard2008].

Every particle is a state and a set of parameters. For each recorded row: all particles move by the simulator, one row of a
batch each, and by process noise; parameters take a small random step; weights are multiplied by the likelihood of the measured
row,

.. math:: w \leftarrow w \exp(-\tfrac12 \| (y_k - h(x_k)) / \sigma \|^2)

and particles are resampled (systematically) when their effective number falls below half. Without process noise all of them
would soon be copies of one. Legend: N particles, T rows, p parameters, nx state.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array
from sysid.problem.problem import FitProblem


@dataclass(frozen=True)
class ParticleOptions:
    """Settings of `bootstrap_filter`.

    Raises:
        OptionError: A value is not allowed.
    """

    count: int = 500
    """Number of particles N."""
    walk: float = 0.005
    """Standard deviation of a parameter's random step per row, as a share of its range in fit coordinates."""
    process: Mapping[str, float] = field(default_factory=dict)
    """State entry -> standard deviation of its process noise per row [SI]; entries that are not named have none."""
    first: Mapping[str, float] = field(default_factory=dict)
    """State entry -> standard deviation at the first row; measured entries that are not named: their measurement noise."""
    settled: float = 0.5
    """Last share of the rows, whose mean is the estimate."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.count < 2 or not self.walk >= 0 or not 0 < self.settled <= 1:
            raise OptionError(f"count {self.count}, walk {self.walk}, settled {self.settled}: expected >= 2, >= 0, in (0, 1]")
        for name, value in {**self.process, **self.first}.items():
            if not 0 <= value < np.inf:
                raise OptionError(f"standard deviation of {name} is {value}, expected >= 0")


@dataclass(frozen=True, eq=False)
class FilterResult:
    """Estimates of the filter at every row."""

    names: tuple[str, ...]
    times: Array
    """(T+1,) [s]"""
    mean: Array
    """(T+1, p) parameters, in their units."""
    std: Array
    """(T+1, p) standard deviations of the parameters."""
    states: Array
    """(T+1, nx) mean."""
    effective: Array
    """(T+1,) effective number of particles, before resampling."""
    parameters: Parameters
    """Mean parameters over the settled rows."""
    seconds: float


def bootstrap_filter(problem: FitProblem, options: ParticleOptions | None = None) -> FilterResult:
    """Filter the only recording of a problem.

    Args:
        problem: With known noise; parameters start uniform within their bounds, or normal where there is a prior.
        options: Settings.

    Raises:
        OptionError: The noise is not given, or a name is no state entry.
        DataError: There are several recordings, or all particles fail.
    """
    options, begin = options or ParticleOptions(), time.perf_counter()
    if problem.known_noise is None:
        raise OptionError("`noise` is not given: a filter needs its standard deviation per column")
    if len(problem.split.train) != 1:
        raise DataError(f"{len(problem.split.train)} recordings, a filter takes one")
    (recording,), rng = tuple(problem.split.train), np.random.default_rng(options.seed)
    controls, values = problem.controls(recording), problem.on_grid(recording)
    theta, state = _first(problem, options, rng)
    process, weight = _deviations(problem, options.process), np.full(options.count, 1.0 / options.count)
    walk = options.walk * (problem.search_range[1] - problem.search_range[0])
    rows: list[tuple[Array, Array, Array, float]] = []
    for k, measured in enumerate(values):
        if k:
            theta = np.clip(theta + walk * rng.standard_normal(theta.shape), *problem.theta_bounds)
            parameter_values = type(problem.initial_parameters).from_vector(problem.vectors(theta))
            control = np.repeat(controls[k - 1 : k], options.count, axis=0)
            state, status = problem.simulator.step(state, control, parameter_values, substeps=recording.substeps)
            state = problem.simulator.retract(state, process * rng.standard_normal((options.count, problem.simulator.n)))
            weight = np.where(status == 0, weight, 0.0)
        weight = _weighted(problem, state, measured, weight)
        rows.append(_moments(problem, theta, state, weight))
        if rows[-1][3] < 0.5 * options.count:
            chosen = _systematic(weight, rng)
            theta, state, weight = theta[chosen], state[chosen], np.full(options.count, 1.0 / options.count)
    mean, std, states, effective = (np.array(column) for column in zip(*rows, strict=True))
    settled = mean[-max(1, round(options.settled * len(mean))) :].mean(axis=0)
    parameters = problem.initial_parameters.replace(**dict(zip(problem.free, settled.tolist(), strict=True)))
    seconds = time.perf_counter() - begin
    return FilterResult(problem.free, np.array(recording.times), mean, std, states, effective, parameters, seconds)


def _first(problem: FitProblem, options: ParticleOptions, rng: np.random.Generator) -> tuple[Array, Array]:
    """Parameters (N, p) in fit coordinates and states (N, nx) before the first row is weighed."""
    theta = rng.uniform(*problem.theta_bounds, size=(options.count, len(problem.free)))
    mean, std = problem.prior_rows
    known = np.isfinite(std)
    theta[:, known] = mean[known] + std[known] * rng.standard_normal((options.count, int(known.sum())))
    noise: dict[str, float] = {}
    if problem.measurement is None:
        noise = dict(zip(problem.column_names, np.asarray(problem.known_noise).tolist(), strict=True))
    spread = _deviations(problem, {**noise, **options.first})
    initial_guess = np.repeat(problem.initial_guess(problem.split.train[0])[None], options.count, axis=0)
    state = problem.simulator.retract(initial_guess, spread * rng.standard_normal((options.count, problem.simulator.n)))
    return np.clip(theta, *problem.theta_bounds), state


def _deviations(problem: FitProblem, given: Mapping[str, float]) -> Array:
    """Standard deviation per state entry, (n,), for states that are their own tangent coordinates."""
    names = problem.simulator.state_names
    for name in given:
        if name not in names:
            raise OptionError(f"{name!r} is no state entry; they are {', '.join(names)}")
    return np.array([float(given.get(name, 0.0)) for name in names])


def _weighted(problem: FitProblem, state: Array, measured: Array, weight: Array) -> Array:
    """Weights after a measured row, with sum one."""
    difference = problem.compare(state, np.repeat(measured[None], len(state), axis=0))
    residual = np.nan_to_num(difference / np.asarray(problem.known_noise))
    logarithm = -0.5 * np.sum(residual**2, axis=1) + np.log(np.maximum(weight, 1e-300))
    logarithm = np.where(weight > 0, logarithm, -np.inf)
    if not np.isfinite(logarithm.max()):
        raise DataError("all particles fail: check the start parameters, or take more particles")
    likelihood = np.exp(logarithm - logarithm.max())
    return np.asarray(likelihood / likelihood.sum())


def _moments(problem: FitProblem, theta: Array, state: Array, weight: Array) -> tuple[Array, Array, Array, float]:
    values = problem.vectors(theta)[:, problem.columns]
    mean = weight @ values
    std = np.sqrt(np.maximum(weight @ (values - mean) ** 2, 0.0))
    return mean, std, weight @ state, float(1.0 / np.sum(weight**2))


def _systematic(weight: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """Indices drawn with one random number: particle i appears floor or ceil of N w_i times."""
    places = (np.arange(len(weight)) + rng.random()) / len(weight)
    return np.minimum(np.searchsorted(np.cumsum(weight), places), len(weight) - 1)
