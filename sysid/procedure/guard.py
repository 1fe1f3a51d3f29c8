"""Guards against fits that predict worse: parameters before and after a fit compete on data that were not fitted.

The end of every recording is held out (or a validation recording, where there is one). Both sets of parameters predict it over
several horizons. The errors of every kind of quantity and horizon are compared as ratios, whose geometric mean decides. Where
the end hardly moves, the fitted data count, too, over the same horizons.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from softgym_envs.core.parameters import Parameters
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet

from ..diagnostics.validation import HorizonError, open_loop
from ..problem.problem import FitProblem

HELD_SHARE = 0.2  # Share of every recording that is held out.
FEWEST_HELD = 200
"""Fewest rows of a held-out part; else nothing is held out, and both predict the fitted recordings over longer horizons."""
LONGEST_HORIZON = 1.0  # [s] Longest horizon that counts: beyond, many robots are chaotic.
EQUAL_WITHIN = 0.02  # Relative excess of a fit's errors that still counts as equal.
QUIET = 0.5  # Share of the fitted motion below which a held-out end says too little by itself: a throw has come to rest there.
ROUNDING_SHARE = 1e-6  # Errors below this share of the motion are rounding.


def kept_back(split: DataSplit) -> DataSplit:
    """The split with the ends of the training recordings as validation, if there is none and they are long enough."""
    if len(split.validation) or not len(split.train):
        return split
    parts = [_parted(trajectory) for trajectory in split.train]
    if any(part is None for part in parts):
        return split
    pairs = [part for part in parts if part is not None]
    return DataSplit(TrajectorySet(tuple(a for a, _ in pairs)), TrajectorySet(tuple(b for _, b in pairs)), split.test)


def _parted(trajectory: Trajectory) -> tuple[Trajectory, Trajectory] | None:
    last = round(HELD_SHARE * trajectory.num_steps)
    if last < FEWEST_HELD:
        return None
    cut = trajectory.times[trajectory.num_steps - last]
    return trajectory.window(trajectory.times[0], cut), trajectory.window(cut, trajectory.times[-1])


@dataclass(frozen=True)
class Comparison:
    """Comparison of parameters after a fit with those before it."""

    ratio: float  # Geometric mean of (error after) / (error before); 1 where nothing could be predicted.
    data: str  # Data that were predicted: "kept-back data", "the fitted data" where nothing was held out, or both.

    @property
    def better(self) -> bool:
        """Whether the parameters of the fit are to be used."""
        return self.ratio <= 1.0 + EQUAL_WITHIN


def better_start(problem: FitProblem, before: Parameters) -> FitProblem:
    """The problem, started from parameters `before` earlier stages if these predict held-out data better."""
    if before == problem.initial_parameters:
        return problem
    kept = DataSplit(problem.split.train, problem.split.validation, TrajectorySet(()))
    errors = open_loop(problem.replace(data=kept), onto(problem, before))
    return problem if compare(errors).ratio >= 1.0 else problem.replace(start=onto(problem, before))


def onto(problem: FitProblem, before: Parameters) -> Parameters:
    """The problem's parameters with the free ones of `before`."""
    return problem.initial_parameters.replace(**{name: getattr(before, name) for name in problem.own})


def _quiet(kept: HorizonError, fitted: HorizonError) -> bool:
    """Whether the same quantity moves far less in the held-out part."""
    return (kept.kind, kept.horizon) == (fitted.kind, fitted.horizon) and kept.persistence < QUIET * fitted.persistence


def compare(errors: tuple[HorizonError, ...]) -> Comparison:
    """Compare errors on the held-out part."""
    kept, fitted_part = ([e for e in errors if e.part == part] for part in ("validation", "train"))
    data = "kept-back data" if kept else "the fitted data"
    quiet = [t for t in fitted_part if any(_quiet(e, t) for e in kept)]
    if quiet:
        kept, data = [*kept, *quiet], "kept-back and fitted data"
    kept = kept or fitted_part
    chosen = [e for e in kept if e.horizon <= LONGEST_HORIZON] or kept[:1]
    logs = []
    for e in chosen:
        floor = ROUNDING_SHARE * max(e.persistence, 1e-300)
        fitted = np.inf if e.failed or not np.isfinite(e.fitted) else max(e.fitted, floor)
        start = max(e.start, floor) if np.isfinite(e.start) else np.inf
        if np.isinf(fitted) and np.isinf(start):
            continue
        logs.append(float(np.clip(np.log(fitted) - np.log(start), -1.0, 1.0)))
    return Comparison(float(np.exp(np.mean(logs))) if logs else 1.0, data)
