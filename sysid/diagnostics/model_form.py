r"""Effects of a model's choices: the parameters that the same robot would get without them.

Parameters belong to a discretisation, and to laws that replace others. A cable's damping of 1000 N s/m in steps of 1 ms is, to
first order in the step, another one in continuous time; dry friction that sets in over a range of speeds is, to first order in
that range, more than Coulomb's. Where noise is small, these effects are larger than its intervals. With weighted residuals r,
their derivatives J by the parameters, and the residuals r' of the same robot with a share s more or less of it (of the step, of
the range of speeds) at the same parameters, one Gauss-Newton step

.. math:: \delta = -(J^T J + P)^{-1} J^T (r' - r)

is the change of the parameters (P: prior information; unknown starts are projected out). Where it is large, the other robot is
fitted instead. Without the choice the parameters change by delta / s where its effect is of first order, and by less where it
is of a higher one.

What a model assumes to be alike, as the springs of a chain, may differ by random factors exp(e_f), of standard deviation s.
With the derivatives D of the residuals by e the parameters change by M e, M = -(J^T J + P)^{-1} J^T D, so parameter i by a
standard deviation of s |M_i|.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from softgym_envs.core.errors import OptionError
from softgym_envs.core.simulator import Array
from softgym_envs.core.trajectory import DataSplit, TrajectorySet, part_of

from ..least_squares.levenberg import LevenbergOptions, levenberg_marquardt, start_state
from ..least_squares.segments import Segments
from ..least_squares.system import ShootingSystem
from ..problem.problem import FitProblem
from .uncertainty import quantile_95

LINEAR_REACH = 0.02
"""[fit coordinate] Largest move of a parameter for which the linear step is used. Poorly determined starts may turn a small
change of the model into any move; beyond, the other model is fitted."""
AGAIN = LevenbergOptions(max_iterations=30, cost_tolerance=1e-6)  # Options of that fit.


class Varied(NamedTuple):
    """The model with another amount of one choice."""

    share: float  # s, more or less: 0.5 for half of it, or one and a half.
    segments: Segments  # Segments predicted with that amount; otherwise those that were fitted.


class Heterogeneity(NamedTuple):
    """Effects of differences between what the model assumes to be alike."""

    spread: float  # s: standard deviation of the logarithm of each factor.
    slopes: Array  # (S, L', m, F) derivatives of the residuals by the logarithms of these factors.


class ModelFormEffect(NamedTuple):
    """Effect of one choice on the parameters."""

    cause: str  # Choice in words: "the simulator's step of 2 ms".
    reach: Array  # (p,) possible errors of the parameters [fit coordinate].
    allowed: bool = True  # Whether intervals are widened by `reach`; else they assume that the robot is as the model says.


def model_form_effect(
    system: ShootingSystem,
    varied: Varied,
    theta: Array,
    starts: Array,
    *,
    project: Callable[[Array], Array],
    jacobian: Array,
    inverse: Array,
) -> Array:
    """Possible errors of the parameters (p,) [fit coordinate], delta / s; zero where the other model diverges.

    Args:
        system: Segments and weights.
        varied: The same segments with another amount of the choice.
        theta: (p,) as fitted.
        starts: (S, nx) as fitted.
        project: Rows (S, L' m, 1) -> without the part that unknown starts explain.
        jacobian: (N, p) of what was measured, weighted and projected.
        inverse: (p, p), (J'J + P)^-1 in the directions that the data see.
    """
    rows = change(system, varied, theta, starts, project)
    if rows is None:
        return np.zeros(len(theta))
    moved = np.abs(inverse @ (jacobian.T @ rows))
    if system.segments.free and moved.max(initial=0.0) > LINEAR_REACH:
        end = _fitted_again(system, varied, theta)
        moved = np.abs(end - theta) if end is not None else moved
    return np.asarray(moved / varied.share)


def change(
    system: ShootingSystem, varied: Varied, theta: Array, starts: Array, project: Callable[[Array], Array]
) -> Array | None:
    """Difference r' - r (N,), projected; None where one of the models diverges. Arguments are those of `model_form_effect`."""
    segments = system.segments
    ends = [some.residuals(theta[None], starts) for some in (segments, varied.segments)]
    if not all(good.all() for _, good in ends):
        return None
    rows = np.where(segments.present, (ends[1][0][0] - ends[0][0][0]) / system.sigma, 0.0)
    return np.asarray(project(rows.reshape(len(rows), -1, 1)).reshape(-1)[segments.present.reshape(-1)])


def _fitted_again(system: ShootingSystem, varied: Varied, theta: Array) -> Array | None:
    """Parameters (p,) of the other model, fitted from those of the first; None where that does not converge.

    It starts from guessed initial states: fast modes in fitted ones, which the data do not show, do not suit it.
    """
    other, bounds = replace(system, segments=varied.segments), system.segments.problem.theta_bounds
    begin = varied.segments.starts
    if not np.isfinite(other.cost(theta, begin)):
        return None
    end = levenberg_marquardt(other, start_state(other, theta, begin, AGAIN), bounds, options=AGAIN)
    return end.theta if end.outcome is not None and end.outcome.converged else None


def heterogeneity_effect(
    system: ShootingSystem, unlike: Heterogeneity, *, project: Callable[[Array], Array], jacobian: Array, inverse: Array
) -> Array:
    """Possible errors of the parameters (p,) [fit coordinate], 95 %: 1.96 s |M_i|; arguments as of `model_form_effect`."""
    segments = system.segments
    count = unlike.slopes.shape[-1]
    columns = np.where(segments.present[..., None], unlike.slopes / system.sigma[:, None], 0.0)
    rows = project(columns.reshape(len(columns), -1, count)).reshape(-1, count)[segments.present.reshape(-1)]
    moved = inverse @ (jacobian.T @ rows)
    return np.asarray(quantile_95(True, 1) * unlike.spread * np.linalg.norm(moved, axis=1))


def in_steps_of(problem: FitProblem, simulator: Any) -> FitProblem:
    """Copy of the problem with another simulator, whose steps are adjusted so that a row has a whole number of them."""
    dt = part_of(problem.split.train[0].period, simulator.dt)
    cut = (TrajectorySet(tuple(replace(t, substeps=round(t.period / dt)) for t in part)) for part in problem.split)
    own = simulator if abs(dt - simulator.dt) < 1e-9 * dt else replace(simulator, dt=dt)
    return problem.replace(simulator=own, data=DataSplit(*cut))


def half_step_variation(segments: Segments) -> dict[str, Varied]:
    """Step in words -> segments in half the simulator's step, for `model_form_effect`.

    Raises:
        OptionError: The simulator has no step that can be changed.
    """
    simulator: Any = segments.problem.simulator
    if not is_dataclass(segments.problem.simulator) or not hasattr(simulator, "dt"):
        raise OptionError(f"{type(simulator).__name__} has no field dt: its step cannot be halved")
    halved = in_steps_of(segments.problem, replace(simulator, dt=0.5 * simulator.dt))
    finer = replace(segments, problem=halved, substeps=2 * segments.substeps)
    return {f"the simulator's step of {1e3 * simulator.dt:.3g} ms": Varied(0.5, finer)}
