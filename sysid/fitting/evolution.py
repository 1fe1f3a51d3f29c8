"""CMA-ES [Hansen 2001] over parameters and initial states: identification without derivatives or structure.

Every generation is one batch of rollouts. Where derivatives exist, `shooting` and `mpec` need far fewer rollouts; CMA-ES needs
no start near the answer and no slope. Legend: K candidates, S recordings, p parameters, n tangent.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

import numpy as np

from softgym_envs.core.errors import DataError, OptionError, needed
from softgym_envs.core.simulator import Array

from ..diagnostics.diagnose import Ending, diagnose
from ..diagnostics.residuals import estimated_noise
from ..diagnostics.result import FitResult
from ..least_squares.cutting import cut
from ..least_squares.levenberg import FitIteration
from ..least_squares.system import ShootingSystem, channel_scale
from ..problem.noise import noise_of
from ..problem.problem import FitProblem


@dataclass(frozen=True)
class EvolutionOptions:
    """Settings of `cma_es`.

    Raises:
        OptionError: A value is not positive.
    """

    generations: int = 300
    """Most generations."""
    candidates: int = 24
    """Candidates K per generation."""
    spread: float = 0.3
    """Initial standard deviation of the parameters, as a share of their range in fit coordinates."""
    start_spread: float = 0.1
    """Initial standard deviation of unknown initial states [SI]."""
    tolerance: float = 1e-9
    """Stop when the costs of a generation differ by less than this fraction."""
    seed: int = 1
    errors: Literal["independent", "clustered"] = "independent"
    """Assumption of the covariance about the residuals; see `diagnose`."""

    def __post_init__(self) -> None:
        for name in ("generations", "candidates", "spread", "start_spread", "tolerance", "seed"):
            if not getattr(self, name) > 0:
                raise OptionError(f"{name} is {getattr(self, name)}, expected > 0")


def cma_es(problem: FitProblem, options: EvolutionOptions | None = None) -> FitResult:
    """Minimise the weighted residuals of `single_shooting`.

    Raises:
        MissingDependencyError: The package cma is not installed.
        DataError: No candidate can be simulated at the end.
    """
    with needed("evolution needs cma", "sysid"):
        import cma
    options, begin = options or EvolutionOptions(), time.perf_counter()
    segments = cut(problem, problem.split.train, None, free=problem.estimates_initial, exact=False)
    scale = channel_scale(segments)
    sigma = _noise(problem, scale)
    system, (low, high) = ShootingSystem(segments, sigma), problem.search_range
    p, count, n = len(low), len(segments.starts), problem.simulator.n if segments.free else 0
    width = np.concatenate([options.spread * (high - low), np.full(count * n, options.start_spread)])
    origin = np.concatenate([problem.encode(problem.initial_parameters), np.zeros(count * n)])
    bounds = [np.concatenate([(b - origin[:p]) / width[:p], np.full(count * n, s * np.inf)]) for b, s in ((low, -1), (high, 1))]
    strategy = cma.CMAEvolutionStrategy(
        np.zeros(len(origin)),
        1.0,
        {
            "bounds": [[None if np.isinf(v) else float(v) for v in b] for b in bounds],
            "popsize": options.candidates,
            "maxiter": options.generations,
            "tolfunrel": options.tolerance,
            "seed": options.seed,
            "verbose": -9,
        },
    )
    log: list[FitIteration] = []
    while not strategy.stop():
        asked = np.array(strategy.ask())
        costs = _costs(system, origin + width * asked, p)
        strategy.tell(list(asked), np.where(np.isfinite(costs), costs, 1e300).tolist())
        seconds = time.perf_counter() - begin
        log.append(FitIteration(len(log), float(strategy.best.f), 0.0, float("nan"), float(strategy.sigma), True, seconds))
    best = origin + width * np.asarray(strategy.best.x)
    theta, starts = np.clip(best[:p], *problem.theta_bounds), _moved(system, best[None, p:])[:count]
    stopped = ", ".join(strategy.stop())
    done = "maxiter" not in strategy.stop()
    message = f"evolution stopped by {stopped}" + ("" if done else ": raise generations")
    seconds = time.perf_counter() - begin
    ending = Ending("cma_es", theta, starts, done, message, tuple(log), (log[-1].cost,), seconds)
    if problem.known_noise is None:
        system = system.with_sigma(estimated_noise(segments, theta, starts, scale))
    return diagnose(problem, system, ending, errors=options.errors)


def _noise(problem: FitProblem, scale: Array) -> Array:
    """Weights (m,): known noise, else noise estimated from columns; a scale of each column that shows none."""
    if problem.known_noise is not None or problem.full_state:
        return scale if problem.known_noise is None else problem.known_noise
    try:
        told = noise_of(problem.split.train, problem.column_names)
    except DataError:
        return scale
    return np.array([told[name] for name in problem.column_names])


def _moved(system: ShootingSystem, steps: Array) -> Array:
    """Initial states (K S, nx) for tangent steps (K, S n)."""
    starts = np.tile(system.segments.starts, (len(steps), 1))
    return system.move(starts, steps.reshape(len(starts), -1)) if steps.size else starts


def _costs(system: ShootingSystem, unknowns: Array, p: int) -> Array:
    """Costs of candidates (K, p + S n), infinite where the simulation fails, (K,)."""
    segments = system.segments
    count = len(segments.starts)
    theta = np.clip(unknowns[:, :p], *segments.problem.theta_bounds)
    _, seen, good = segments.rollout(np.repeat(theta, count, axis=0), _moved(system, unknowns[:, p:]))
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.sum((segments.compare(seen) / system.sigma) ** 2, axis=(1, 2)).reshape(len(theta), count)
    total = 0.5 * squares.sum(axis=1)
    return np.where(good.reshape(len(theta), count).all(axis=1), total, np.inf)
