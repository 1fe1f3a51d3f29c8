r"""The procedure of [Wang2020] (arXiv 2011.04929, V): one-step mean squared error, minibatches, Adam, a range by a sigmoid.

.. math:: \theta = \ell + (u - \ell)\,\sigma(\phi), \qquad
   L = \frac{1}{|b| m} \sum_{k \in b} \| \operatorname{difference}(f(x_k, u_k, \theta), x_{k+1}) / s \|^2

l and u are the range in which a parameter is searched (`FitProblem.search_range`). Limits of stability within it clip theta;
the sigmoid does not know them, as it would flatten the gradient near them. The learning rate 0.1 is halved every 10 epochs, a
batch holds 256 steps. Gradients are exact (or central differences) through `least_squares.segments`, so the procedure runs on
any simulator. It is the baseline for `.shooting`, which needs 10 to 100 times fewer passes over the data and reaches a minimum
instead of its neighbourhood.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Literal, TextIO

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError, MissingDependencyError, OptionError
from softgym_envs.core.simulator import Array
from sysid.diagnostics.diagnose import Ending, diagnose
from sysid.diagnostics.residuals import estimated_noise
from sysid.diagnostics.result import FitResult
from sysid.fitting.shooting import uses_exact_derivatives
from sysid.least_squares.cutting import cut
from sysid.least_squares.levenberg import FitIteration
from sysid.least_squares.segments import Segments
from sysid.least_squares.system import ShootingSystem, channel_scale
from sysid.problem.problem import FitProblem


@dataclass(frozen=True)
class AdamOptions:
    """Settings; the defaults are the paper's.

    Raises:
        OptionError: A value is not positive.
    """

    epochs: int = 40
    batch: int = 256
    rate: float = 0.1
    halve_every: int = 10
    """Epochs between two halvings of the rate."""
    seed: int = 0
    """Seed of the minibatches' order."""
    jacobian: Literal["auto", "exact", "differences"] = "auto"
    errors: Literal["independent", "clustered"] = "independent"
    progress: TextIO | None = None
    """Stream for epoch lines and a progress bar; None: no output."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "rate", "halve_every"):
            if not getattr(self, name) > 0:
                raise OptionError(f"{name} is {getattr(self, name)}, expected > 0")


def adam(problem: FitProblem, options: AdamOptions | None = None) -> FitResult:
    """Fit by the paper's procedure (see module docstring); keeps the parameters of the epoch with lowest training cost.

    Raises:
        DataError: States are measured in part, or the simulation diverges at the start parameters.
        MissingDependencyError: torch is not installed.
    """
    try:
        import torch
        from tqdm import tqdm
    except ImportError as error:
        raise MissingDependencyError.of(f"adam needs torch and tqdm ({error})", "learn,scripts") from error

    options = options or AdamOptions()
    if not problem.full_state:
        raise DataError("adam fits single steps and needs every state entry measured in every row; use single_shooting")
    begin = time.perf_counter()
    exact = uses_exact_derivatives(problem, options.jacobian)
    segments = cut(problem, problem.split.train, 1, free=False, exact=exact)
    scale = channel_scale(segments)
    system = ShootingSystem(segments, scale)
    start = problem.encode(problem.initial_parameters)
    cost = system.cost(start, segments.starts)
    if not np.isfinite(cost):
        raise DataError(f"the simulation diverges at the start parameters {problem.initial_parameters}")
    limits = tuple(torch.from_numpy(_to_sigmoid(problem, bound)) for bound in problem.theta_bounds)
    begun = _to_sigmoid(problem, start, margin=1e-3)  # the sigmoid's gradient vanishes at an end of the range
    phi = torch.tensor(begun, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([phi], lr=options.rate)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, step_size=options.halve_every, gamma=0.5)
    rng = np.random.default_rng(options.seed)
    log = [FitIteration(0, cost, options.rate, float("nan"), 0.0, True, 0.0)]
    best, theta = (cost, start), start
    bar = tqdm(range(1, options.epochs + 1), file=options.progress, disable=options.progress is None, unit="epoch", leave=False)
    for epoch in bar:
        before = theta
        for rows in _batches(len(segments.starts), options.batch, rng):
            optimiser.zero_grad()
            phi.grad = torch.from_numpy(_gradient(_some(segments, rows), scale, phi.detach().numpy()))
            optimiser.step()
            with torch.no_grad():
                phi.clamp_(*limits)
        theta = _from_sigmoid(problem, phi.detach().numpy())
        cost = system.cost(theta, segments.starts)
        best = min(best, (cost, theta), key=lambda pair: pair[0])
        rate = float(schedule.get_last_lr()[0])
        schedule.step()
        moved, seconds = float(np.abs(theta - before).max()), time.perf_counter() - begin
        log.append(FitIteration(epoch, cost, rate, float("nan"), moved, True, seconds))
        if options.progress is not None:
            tqdm.write(f"epoch {epoch:3d}  cost {cost:.6e}  rate {rate:.4f}", file=options.progress)
    sigma = (
        problem.known_noise if problem.known_noise is not None else estimated_noise(segments, best[1], segments.starts, scale)
    )
    message = f"ran {options.epochs} epochs"
    ending = Ending("adam", best[1], segments.starts, True, message, tuple(log), (best[0],), time.perf_counter() - begin)
    return diagnose(problem, system.with_sigma(sigma), ending, errors=options.errors)


def _gradient(segments: Segments, scale: Array, phi: Array) -> Array:
    """dL/dphi of a minibatch, (p,); rows on which the simulation diverges would raise `DataError`."""
    problem = segments.problem
    derivative = segments.derivative(_from_sigmoid(problem, phi), segments.starts)
    residual = derivative.residual / scale
    gradient = 2.0 * np.einsum("slm,slmp->p", residual, derivative.by_parameters / scale[:, None]) / residual.size
    share = 1.0 / (1.0 + np.exp(-phi))
    return np.asarray(gradient * (problem.search_range[1] - problem.search_range[0]) * share * (1.0 - share))


def _some(segments: Segments, rows: NDArray[np.intp]) -> Segments:
    return replace(
        segments,
        starts=segments.starts[rows],
        controls=segments.controls[rows],
        values=segments.values[rows],
        late=segments.late[rows],
        recording=segments.recording[rows],
    )


def _batches(count: int, size: int, rng: np.random.Generator) -> list[NDArray[np.intp]]:
    order = rng.permutation(count)
    return [order[begin : begin + size] for begin in range(0, count, size)]


def _to_sigmoid(problem: FitProblem, theta: Array, margin: float = 0.0) -> Array:
    lower, upper = problem.search_range
    share = np.clip((theta - lower) / (upper - lower), margin, 1.0 - margin)
    with np.errstate(divide="ignore"):  # infinite at an end of the range
        return np.asarray(np.log(share) - np.log(1.0 - share))


def _from_sigmoid(problem: FitProblem, phi: Array) -> Array:
    lower, upper = problem.search_range
    return np.asarray(lower + (upper - lower) / (1.0 + np.exp(-phi)))
