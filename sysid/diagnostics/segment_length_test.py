r"""Tests whether parameters hold over longer segments: free starts of short ones follow an error that lasts, and hide it.

Ten rows with a start of their own show little of a dry friction that a model lacks: a wrong damping and wrong velocities
compensate for it. So where the residuals of short segments look like noise, parameters and starts are fitted again over
segments 2, 4 and 8 times as long, each fit from the end of the one before. The parameters may change: what short segments leave
open is no error of the model. Fewer starts follow less of the noise, too, which is accounted for by their number; tested is the
residuals' growth beyond that,

.. math:: z = \log \frac{|r_{long}|^2 / \nu_{long}}{|r_{short}|^2 / \nu_{short}}

against the z of simulated white noise, projected as the residuals of both were: the limit is that of a gamma distribution with
the mean, spread and skewness of the draws, as few of them lie far out. The noise need not be known: short segments show it. The
first length that fails decides. If residuals pass without their part along the effect of half the simulator's step, the step
is the cause: it is named, or nothing fails where intervals allow for it. Nothing is reported if a refit does not converge,
or has residuals so large that its minimum may be a wrong one (a throw, a contact).

Legend: S segments, T rows, m channels, p parameters, D draws.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import linalg

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.simulator import Array

from ..least_squares.cutting import cut
from ..least_squares.levenberg import LevenbergOptions, LevenbergState, levenberg_marquardt, start_state
from ..least_squares.segments import Segments
from ..least_squares.system import ShootingSystem, channel_scale
from .model_form import change, half_step_variation
from .residuals import WeightedResiduals, weighted_residuals
from .uncertainty import analyse
from .whiteness import ALARM, NUMBERS, gamma_limit

FACTORS = (2, 4, 8)  # Lengths of segments, as multiples of the fitted one.
GROWTH_DRAWS = 999
WRONG_MINIMUM = 0.3  # Share of the motion above which residuals may be those of a wrong minimum.
_OPTIONS = LevenbergOptions(max_iterations=15, cost_tolerance=1e-6)


class SegmentLengthTest(NamedTuple):
    """Result of the first length that fails, or of the last one."""

    rows: int
    seconds: float
    column: int  # Column whose residuals grew most.
    growth: float  # Growth of that column's residuals, as a ratio of standard deviations.
    z: float  # z of the module docstring, less its simulated mean, in simulated standard deviations.
    cause: str  # Cause if z exceeds its limit by the simulator's step only: "the simulator's step of 2 ms"; else empty.
    limit: float  # Value that z exceeds in a share `ALARM` of fits of a right model, over all lengths together.

    @property
    def share(self) -> float:
        """Statistic z over its limit, with a limit below 1 moved to 1; the model explains the data up to 1."""
        return 1.0 + (self.z - self.limit) / max(self.limit, 1.0)


def segment_length_test(system: ShootingSystem, theta: Array, starts: Array, *, halved: bool) -> SegmentLengthTest | None:
    """Test longer segments; None where there are none, or where no test is possible.

    Args:
        system: Segments and weights of a fit that is explained.
        theta: (p,) final parameters of that fit.
        starts: (S, nx) final starts of that fit.
        halved: Whether intervals allow for the simulator's step.
    """
    segments, found = system.segments, None
    longest = max(segments.lengths)
    if not segments.free:
        return None
    short, begun = weighted_residuals(system, theta, starts), system
    for factor in FACTORS:
        if begun.segments.horizon >= longest or short.dof < 1:
            break
        try:
            begun = _lengthened(begun, starts, factor * segments.horizon)
            end = _fitted(begun, theta)
        except DataError:
            return found
        if end is None:
            return found
        theta, starts = end.theta, end.blocks
        weighted = weighted_residuals(begun, theta, starts)
        if not _may_be_judged(begun, weighted):
            return found
        found = _tested(system, short, begun, weighted)
        if found.share > 1.0:
            found = _by_step(system, short, begun, weighted, end, found, halved)
        if found.share > 1.0:
            return found
    return found


def _lengthened(system: ShootingSystem, starts: Array, rows: int) -> ShootingSystem:
    """Segments of the same recordings with more rows, which start from states (S, nx) of the shorter ones."""
    short = system.segments
    known = {(int(r), int(b)): start for r, b, start in zip(short.recording, short.begins, starts, strict=True)}
    problem = short.problem
    cuts: Segments = cut(
        problem, problem.split.train, rows, free=True, exact=short.exact, epsilon=short.epsilon, one_sided=short.one_sided
    )
    begun = [known[int(r), int(b)] for r, b in zip(cuts.recording, cuts.begins, strict=True)]
    return replace(system, segments=replace(cuts, starts=np.stack(begun)))


def _fitted(system: ShootingSystem, theta: Array) -> LevenbergState | None:
    """Fit parameters and starts; None where the minimisation does not converge."""
    blocks = system.segments.starts
    if not np.isfinite(system.cost(theta, blocks)):
        return None
    state = start_state(system, theta, blocks, _OPTIONS)
    end = levenberg_marquardt(system, state, system.segments.problem.theta_bounds, options=_OPTIONS)
    return end if end.outcome is not None and end.outcome.converged else None


def _may_be_judged(system: ShootingSystem, weighted: WeightedResiduals) -> bool:
    """Whether residuals are small beside the motion, and one more step wins no more than noise does."""
    segments = system.segments
    present = np.maximum(segments.present.sum(axis=(0, 1)), 1)
    rms = np.sqrt(np.sum(weighted.in_time**2, axis=(0, 1)) / present) * system.sigma
    lengths = np.linalg.norm(weighted.jacobian, axis=0)
    if weighted.dof < 1 or (rms > np.maximum(WRONG_MINIMUM * channel_scale(segments), 3.0 * system.sigma)).any():
        return False
    q, _ = np.linalg.qr(weighted.jacobian / np.where(lengths > 0, lengths, 1.0))
    won = float(np.sum((q.T @ weighted.residual) ** 2))
    return won <= max(1.0, float(weighted.residual @ weighted.residual) / weighted.dof)


def _by_step(
    system: ShootingSystem, short: WeightedResiduals, other: ShootingSystem, long: WeightedResiduals, end: LevenbergState,
    found: SegmentLengthTest, halved: bool,
) -> SegmentLengthTest:  # fmt: skip
    """Repeat the test without the effect of the simulator's step; `found` unchanged where the step is not the cause."""
    try:
        ((cause, varied),) = half_step_variation(other.segments).items()
    except OptionError:
        return found
    rows = change(other, varied, end.theta, end.blocks, long.project)
    if rows is None or not rows.any():
        return found
    q, _ = np.linalg.qr(np.column_stack([long.jacobian, rows]))
    along = q[:, -1]
    without = long._replace(
        residual=long.residual - along * (along @ long.residual),
        jacobian=np.column_stack([long.jacobian, rows]),
        dof=long.dof - 1,
    )
    again = _tested(system, short, other, without)
    if again.share > 1.0:
        return found
    return again if halved else found._replace(cause=cause)


def _tested(
    system: ShootingSystem, short: WeightedResiduals, other: ShootingSystem, long: WeightedResiduals
) -> SegmentLengthTest:
    """Compare the residuals' growth with that of noise."""
    drawn = _drawn(system.segments, short, other.segments, long)
    mean, spread = float(drawn.mean()), float(drawn.std())
    limit = gamma_limit(drawn, ALARM / len(FACTORS))
    z = np.log(long.residual @ long.residual / long.dof) - np.log(short.residual @ short.residual / short.dof)
    sizes = [np.sum(each.in_time**2, axis=(0, 1)) / each.dof for each in (long, short)]
    growth = np.sqrt(sizes[0] / np.maximum(sizes[1], 1e-300))
    column, problem = int(np.argmax(growth)), system.segments.problem
    rows = other.segments.horizon
    seconds = rows * problem.split.train[0].period
    return SegmentLengthTest(
        rows, seconds, column, float(growth[column]), (float(z) - mean) / spread, "", (limit - mean) / spread
    )


def _drawn(segments: Segments, short: WeightedResiduals, other: Segments, long: WeightedResiduals) -> Array:
    """Simulated z (D,): white noise in the recordings, reduced as both fits reduce it."""
    rng, found = np.random.default_rng(0), []
    specs, some = segments.problem.specs, max(1, NUMBERS // (short.in_time.size + long.in_time.size))
    p = len(specs)
    seen = [
        linalg.block_diag(analyse(each.jacobian[:, :p], 1.0, specs).seen, np.eye(each.jacobian.shape[1] - p))
        for each in (short, long)
    ]
    for begin in range(0, GROWTH_DRAWS, some):
        count = min(some, GROWTH_DRAWS - begin)
        noise = [rng.standard_normal((length + 1, short.in_time.shape[2], count)) for length in segments.lengths]
        parts = zip((segments, other), (short, long), seen, strict=True)
        left = [each.left(_in_segments(cuts, noise), s) for cuts, each, s in parts]
        sizes = [np.sum(each**2, axis=(0, 1, 2)) for each in left]
        found.append(np.log(sizes[1] / long.dof) - np.log(sizes[0] / short.dof))
    return np.concatenate(found)


def _in_segments(segments: Segments, noise: list[Array]) -> Array:
    """Noise (T + 1, m, D) of recordings as rows of segments (S, L + 1, m, D), zero where nothing was measured."""
    rows = segments.horizon + 1
    cuts = zip(segments.recording, segments.begins, strict=True)
    parts = [noise[int(recording)][int(begin) : int(begin) + rows] for recording, begin in cuts]
    padded = [np.pad(part, ((0, rows - len(part)), (0, 0), (0, 0))) for part in parts]
    return np.stack(padded) * segments.present[..., None]
