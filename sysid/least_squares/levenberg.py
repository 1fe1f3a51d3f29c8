r"""Bounded nonlinear least squares by Levenberg-Marquardt, with optional unknowns per block eliminated.

.. math:: \min_{\theta, z} \tfrac12 \sum_s \| r_s(\theta, z_s) \|^2 \quad\text{subject to}\quad \ell \le \theta \le u

In identification theta are the parameters (in their fit coordinates) and z_s the unknown initial state of segment s. Every
iteration solves the damped linear problem *with* its bounds exactly (BVLS), so that a start at a bound does not stall:

.. math:: \min_{d, e} \sum_s \| r_s + J_s d + K_s e_s \|^2 + \lambda (\| D d \|^2 + \| E e \|^2)
   \quad\text{subject to}\quad \ell \le \theta + d \le u

The e_s are eliminated block by block through a QR factorisation. D, E hold the largest column norms seen so far (More 1978),
the damping follows Nielsen (1999). Legend: S blocks, p parameters, n unknowns per block, q rows of a compressed block.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, Protocol

import numpy as np

from softgym_envs.core.errors import DataError, OptionError, ShapeError
from softgym_envs.core.simulator import Array

FALLS = 1e-6  # Relative decrease of the cost by a linear problem that is more than rounding.
ROUNDING = 1e-12
"""Share of the largest column below which a column counts as zero: damped by its own length, its step would be unbounded."""


class StopReason(StrEnum):
    """Reason why the solver stopped; each message says what to do."""

    COST = "cost"
    STEP = "step"
    NOISE = "noise"
    GRADIENT = "gradient"
    ZERO = "zero"
    ITERATIONS = "iterations"
    EDGE = "edge"

    @property
    def converged(self) -> bool:
        """Whether a minimum was reached."""
        return self not in (StopReason.ITERATIONS, StopReason.EDGE)

    @property
    def message(self) -> str:
        """Reason and remedy in one sentence."""
        return {
            "cost": "converged: the cost no longer falls",
            "step": "converged: the parameters no longer move",
            "noise": "converged: the parameters move by nothing beside their errors",
            "gradient": "converged: the gradient vanishes",
            "zero": "converged: the residual is zero to rounding",
            "iterations": "stopped at the largest number of iterations: raise `max_iterations`",
            "edge": "stopped at the edge of what the model can do: start elsewhere",
        }[self.value]


class LeastSquares(Protocol):
    """Least-squares problem. A trial that cannot be simulated costs infinity; it is rejected, not raised."""

    def cost(self, theta: Array, blocks: Array) -> float:
        """1/2 sum of squared residuals at theta (p,) and block unknowns (S, nz); infinity where the model fails."""
        ...

    def compress(self, theta: Array, blocks: Array) -> Array:
        """Rows [K_s J_s r_s] of every block, or any orthogonal transform of them, (S, q, n + p + 1).

        A loss other than squares gives rows whose J_s' r_s is its gradient.

        Raises:
            DataError: The model can be simulated there, but not around it: such a trial is rejected, too.
        """
        ...

    def move(self, blocks: Array, step: Array) -> Array:
        """Block unknowns (S, nz) moved by tangent steps (S, n)."""
        ...


@dataclass(frozen=True)
class LevenbergOptions:
    """Settings of `levenberg_marquardt`.

    Raises:
        OptionError: A value is not positive.
    """

    max_iterations: int = 50
    damping: float = 1e-3
    """Initial lambda, relative to the squared column norms."""
    cost_tolerance: float = 1e-12
    """Stop when an accepted step lowers the cost by less than this fraction."""
    step_tolerance: float = 1e-12
    """Stop when no parameter moves by more than this [fit coordinate]."""
    gradient_tolerance: float = 1e-12
    """Stop when the cosine between residual and every free column of J is below this."""
    deviations: float = 0.0
    """Stop when a step is accepted at no more than the first damping, and the linear problem has its minimum within this many
    standard deviations of every parameter (residuals of unit variance): only block unknowns then lower the cost. 0: never."""

    def __post_init__(self) -> None:
        for name in ("max_iterations", "damping", "cost_tolerance", "step_tolerance", "gradient_tolerance"):
            if not getattr(self, name) > 0:
                raise OptionError(f"{name} is {getattr(self, name)}, expected > 0")
        if not self.deviations >= 0:
            raise OptionError(f"deviations is {self.deviations}, expected >= 0")


@dataclass(frozen=True)
class FitIteration:
    """One iteration."""

    iteration: int
    cost: float  # Final 1/2 sum of squared weighted residuals of the iteration.
    damping: float  # lambda used.
    ratio: float  # Actual over predicted reduction; NaN before the first step.
    step: float  # Largest move of a parameter [fit coordinate].
    accepted: bool
    seconds: float  # Time since the start of this minimisation.

    def line(self) -> str:
        """One line for people."""
        mark = " " if self.accepted else "x"
        return (
            f"{self.iteration:4d} {mark} cost {self.cost:.6e}  lambda {self.damping:.1e}"
            f"  ratio {self.ratio:6.2f}  step {self.step:.2e}  {self.seconds:6.1f} s"
        )


@dataclass(frozen=True, eq=False)
class LevenbergState:
    """Complete state between two iterations: a minimisation restored from it continues as if never interrupted."""

    theta: Array  # (p,)
    blocks: Array  # (S, nz)
    cost: float
    damping: float
    growth: float  # Factor of lambda at the next rejected step.
    scale: Array  # (p,) D.
    block_scale: Array  # (S, n) E.
    log: tuple[FitIteration, ...]
    outcome: StopReason | None = None
    edge: bool = False
    """Whether a trial failed or had no derivative, and none has been accepted at no more than the first damping since."""


class _LevenbergStep(NamedTuple):
    theta: Array
    blocks: Array
    predicted: float  # Decrease of the linear model's cost by the step.
    reduced: Array  # [J r] (N, p + 1) of the parameters, damped block unknowns eliminated.


def start_state(system: LeastSquares, theta: Array, blocks: Array, options: LevenbergOptions) -> LevenbergState:
    """State before the first iteration.

    Raises:
        ShapeError: The cost is not finite at the start.
    """
    cost = system.cost(theta, blocks)
    if not np.isfinite(cost):
        raise ShapeError("the cost is not finite at the start of the minimisation")
    log = (FitIteration(0, cost, options.damping, float("nan"), 0.0, True, 0.0),)
    return LevenbergState(theta, blocks, cost, options.damping, 2.0, np.zeros(len(theta)), np.zeros((0, 0)), log)


def levenberg_marquardt(
    system: LeastSquares,
    state: LevenbergState,
    bounds: tuple[Array, Array],
    *,
    options: LevenbergOptions | None = None,
    on_iteration: Callable[[LevenbergState], None] | None = None,
) -> LevenbergState:
    """Minimise; see the module docstring.

    Args:
        system: Residuals and their derivatives.
        state: From `start_state`, or one that `on_iteration` was given.
        bounds: Smallest and largest theta, each (p,).
        options: Settings.
        on_iteration: Called with the state after every iteration; what it raises (KeyboardInterrupt) passes through.

    Returns:
        The last state, with `outcome`.

    Raises:
        DataError: There is no derivative at the start.
    """
    options = options or LevenbergOptions()
    begin = time.perf_counter() - state.log[-1].seconds
    rows = system.compress(state.theta, state.blocks) if state.outcome is None else np.zeros(0)
    while state.outcome is None:
        state = _rescale(state, rows)
        before, (state, moved) = state, _iterate(system, state, rows, bounds, options, begin)
        if moved and state.outcome is None:
            try:
                rows = system.compress(state.theta, state.blocks)
            except DataError:
                state = _taken_back(before, state)
        if on_iteration is not None:
            on_iteration(state)
    return state


def _iterate(
    system: LeastSquares,
    state: LevenbergState,
    rows: Array,
    bounds: tuple[Array, Array],
    options: LevenbergOptions,
    begin: float,
) -> tuple[LevenbergState, bool]:
    """One trial step, accepted or not."""
    if _stationary(state, rows, bounds, options):
        return replace(state, outcome=StopReason.ZERO if state.cost == 0 else StopReason.GRADIENT), False
    step = _solve(rows, state, bounds)
    theta = np.clip(state.theta + step.theta, *bounds)
    blocks = system.move(state.blocks, step.blocks)
    cost = system.cost(theta, blocks)
    predicted = step.predicted
    ratio = (state.cost - cost) / predicted if predicted > 0 and np.isfinite(cost) else -np.inf
    accepted = bool(ratio > 1e-4)
    size = float(np.abs(step.theta).max(initial=0.0))
    entry = FitIteration(
        len(state.log),
        cost if accepted else state.cost,
        state.damping,
        float(ratio),
        size,
        accepted,
        time.perf_counter() - begin,
    )
    outcome = _outcome(state, cost, predicted, max(size, float(np.abs(step.blocks).max(initial=0.0))), accepted, options)
    edge = not np.isfinite(cost) or (state.edge and not (accepted and state.damping <= options.damping))
    if edge and outcome is not None and _falls(rows, state, bounds, options):
        outcome = StopReason.EDGE
    if outcome is None and accepted and options.deviations > 0 and state.damping <= options.damping:
        outcome = StopReason.NOISE if _deviations(step.reduced) <= options.deviations else None
    if accepted:
        damping = max(state.damping * max(1 / 3, 1 - (2 * ratio - 1) ** 3), 1e-12)
        moved = replace(state, theta=theta, blocks=blocks, cost=cost, damping=damping, growth=2.0)
    else:
        moved = replace(state, damping=state.damping * state.growth, growth=2 * state.growth)
    return replace(moved, log=(*state.log, entry), outcome=outcome, edge=edge), accepted


def _taken_back(before: LevenbergState, state: LevenbergState) -> LevenbergState:
    """State before an accepted step, with that step rejected."""
    entry = replace(state.log[-1], cost=before.cost, ratio=-np.inf, accepted=False)
    damping, growth = before.damping * before.growth, 2 * before.growth
    return replace(before, damping=damping, growth=growth, log=(*before.log, entry), edge=True)


def _outcome(
    state: LevenbergState, cost: float, predicted: float, size: float, accepted: bool, options: LevenbergOptions
) -> StopReason | None:
    if size <= options.step_tolerance:
        return StopReason.STEP
    if accepted and state.cost - cost <= options.cost_tolerance * state.cost:
        return StopReason.COST
    if not accepted and abs(predicted) <= options.cost_tolerance * state.cost:  # below zero only by rounding
        return StopReason.COST
    return StopReason.ITERATIONS if len(state.log) >= options.max_iterations else None


def _falls(rows: Array, state: LevenbergState, bounds: tuple[Array, Array], options: LevenbergOptions) -> bool:
    """Whether the linear problem at no more than the first damping still lowers the cost: then small steps show no minimum."""
    free = replace(state, damping=min(state.damping, options.damping))
    return bool(_solve(rows, free, bounds).predicted > max(100 * options.cost_tolerance, FALLS) * state.cost)


def _rescale(state: LevenbergState, rows: Array) -> LevenbergState:
    """Update D and E, which never shrink; a column without effect gets the largest of the others (its step is zero anyway)."""
    p = len(state.theta)
    n = rows.shape[2] - p - 1
    norms = np.sqrt(np.sum(rows[:, :, n : n + p] ** 2, axis=(0, 1)))
    block_norms = np.sqrt(np.sum(rows[:, :, :n] ** 2, axis=1))
    scale = np.maximum(state.scale, norms)
    block_scale = block_norms if state.block_scale.shape != block_norms.shape else np.maximum(state.block_scale, block_norms)
    return replace(state, scale=scale, block_scale=block_scale)


def _positive(scale: Array) -> Array:
    """Scale with entries that are rounding (`ROUNDING`) replaced by the largest entry, or one."""
    largest = scale.max(initial=0.0)
    return np.where(scale > ROUNDING * largest, scale, largest if largest > 0 else 1.0)


def _stationary(state: LevenbergState, rows: Array, bounds: tuple[Array, Array], options: LevenbergOptions) -> bool:
    """Whether the cosines between the residual and all columns that may still lower the cost are below the tolerance."""
    norm = np.sqrt(2.0 * state.cost)
    if norm == 0:
        return True
    p = len(state.theta)
    n = rows.shape[2] - p - 1
    gradient = np.einsum("sqj,sq->j", rows[:, :, n : n + p], rows[:, :, -1])
    pushed = ((state.theta <= bounds[0]) & (gradient > 0)) | ((state.theta >= bounds[1]) & (gradient < 0))
    cosine = np.where(pushed, 0.0, np.abs(gradient)) / (_positive(state.scale) * norm)
    block = np.abs(np.einsum("sqj,sq->sj", rows[:, :, :n], rows[:, :, -1]))
    scale = _positive(state.block_scale)
    largest = max(float(cosine.max(initial=0.0)), float((block / (scale * norm)).max(initial=0.0)))
    return largest <= options.gradient_tolerance


def _solve(rows: Array, state: LevenbergState, bounds: tuple[Array, Array]) -> _LevenbergStep:
    """Solve the damped, bounded linear problem of the module docstring."""
    p = len(state.theta)
    count, _, width = rows.shape
    n = width - p - 1
    root = np.sqrt(state.damping)
    if n:
        damped = np.zeros((count, n, width))
        damped[:, np.arange(n), np.arange(n)] = root * _positive(state.block_scale)
        factors = triangle(np.concatenate([rows, damped], axis=1))
        reduced = factors[:, n:, n:].reshape(-1, p + 1)
    else:
        factors, reduced = rows, rows.reshape(-1, p + 1)
    step = _bounded(reduced, root * _positive(state.scale), bounds[0] - state.theta, bounds[1] - state.theta)
    blocks = np.zeros((count, n))
    if n:
        right = factors[:, :n, n : n + p] @ step + factors[:, :n, -1]
        blocks = -np.linalg.solve(factors[:, :n, :n], right[..., None])[..., 0]
    model = rows[:, :, -1] + rows[:, :, n : n + p] @ step + np.einsum("sqn,sn->sq", rows[:, :, :n], blocks)
    return _LevenbergStep(step, blocks, 0.5 * float(np.sum(rows[:, :, -1] ** 2) - np.sum(model**2)), reduced)


def _deviations(rows: Array) -> float:
    """Largest distance of a parameter from the minimum for rows [J r] (N, p + 1), in its standard deviations.

    That is |R^-1 z|_j over the length of row j of R^-1, with J = Q R and z = Q' r; infinite where J does not show a parameter.
    """
    p = rows.shape[1] - 1
    factor = triangle(rows)
    if len(factor) < p or not np.all(np.abs(np.diag(factor[:p, :p])) > 0):
        return np.inf
    inverse = np.linalg.inv(factor[:p, :p])
    return float((np.abs(inverse @ factor[:p, p]) / np.linalg.norm(inverse, axis=1)).max(initial=0.0))


def triangle(rows: Array) -> Array:
    """Upper-triangular rows with the same normal equations, R of a QR factorisation: (..., N, w) -> (..., min(N, w), w)."""
    return np.asarray(np.linalg.qr(rows, mode="r"), dtype=np.float64)


def _bounded(rows: Array, damping: Array, lower: Array, upper: Array) -> Array:
    """argmin |J d + r|^2 + |damping d|^2 with lower <= d <= upper, for rows [J r] (N, p + 1)."""
    p = len(damping)
    if p == 0:
        return np.zeros(0)
    from scipy.optimize import lsq_linear

    # In units of the damping all columns are comparable: BVLS then decides activity well.
    matrix = np.vstack([rows[:, :p], np.diag(damping)]) / damping
    target = np.concatenate([-rows[:, p], np.zeros(p)])
    factor = triangle(np.column_stack([matrix, target]))
    result = lsq_linear(
        factor[:p, :p], factor[:p, p], (lower * damping, np.maximum(upper, lower + 1e-300) * damping), method="bvls"
    )
    return np.clip(np.asarray(result.x, dtype=np.float64) / damping, lower, upper)
