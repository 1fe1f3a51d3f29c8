"""Tests for wrong labels of a bad fit: one factor on lengths or angles, y that points down, or two exchanged columns.

Before a fit only accelerations that no force can cause are refused (`sysid.problem.wrong_units`): too small ones may be
friction. After it, recordings whose residuals are many times their noise are fitted again from the simulator's own parameters,
once for every label that may be meant instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.simulator import Array
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet

from ..diagnostics.intervals import IntervalOptions
from ..diagnostics.result import FitResult
from ..fitting.shooting import ShootingOptions, single_shooting
from ..problem.problem import FitProblem
from ..problem.wrong_units import hypotheses, kinds

LARGE = 5.0  # Ratio of residuals to noise below which labels are not tested: smaller ones are other errors of a model.
BETTER = 5.0  # Factor by which residuals, relative to the noise, must shrink for a label to be wrong.
SIMILAR = 1.5  # Multiple of the smallest residuals up to which other labels are named, too.
MOST_PAIRS = 6  # Most pairs of columns that may have been exchanged; with more of them none is tried.
TOLD = 2.0  # Ratio of residuals to noise above which another error may imitate a wrong label.
QUICK = ShootingOptions(
    intervals=IntervalOptions().minimal
)  # Options of fits from which only residuals and parameters are used.


def with_other_labels(problem: FitProblem, result: FitResult) -> FitResult:
    """The result, not to be used, where another label explains the data and this one does not.

    For free motions that are seen in part and whose noise is known; others are judged before the fit.
    """
    if not suspicious(problem, result):
        return result
    kind = kinds(problem)
    as_given = result
    if not problem.noise_estimated:  # other labels are compared under the noise that recordings show
        try:
            as_given = single_shooting(relabelled(problem, np.eye(len(kind))), QUICK)
        except SoftgymError:
            return result
        if as_given.reduced_chi2 <= LARGE**2:
            times = float(np.sqrt(result.reduced_chi2 / as_given.reduced_chi2))
            return result.with_diagnostic("noise_understated", "warning", "noise", times, LARGE)
    found = []
    for what, words, remedy, meant in [*_units(kind), *_axes(problem.column_names, kind)]:
        try:
            again = single_shooting(relabelled(problem, meant), QUICK)
        except SoftgymError:
            continue
        if again.converged and BETTER**2 * again.reduced_chi2 < as_given.reduced_chi2:
            found.append((again.reduced_chi2, what, words, remedy, again))
    if not found:
        return result
    found.sort(key=lambda entry: entry[0])
    chi2, what, words, remedy, again = found[0]
    return result.with_diagnostic(
        "wrong_label", "do_not_use", words, float(np.sqrt(chi2)), TOLD, what=what, remedy=remedy,
        others=[other for value, _, other, _, _ in found[1:] if value <= SIMILAR**2 * chi2],
        before=float(np.sqrt(as_given.reduced_chi2)), told="; ".join(estimate.line() for estimate in again.estimates),
    )  # fmt: skip


def suspicious(problem: FitProblem, result: FitResult) -> bool:
    """Whether another label may explain the data, and this one does not."""
    large = result.noise_known and result.reduced_chi2 > LARGE**2 and problem.free_motion and not problem.full_state
    return large and not result.explained


def _units(kind: NDArray[np.str_]) -> Iterator[tuple[str, str, str, Array]]:
    """Other units: "units", in words, the remedy, and the matrix (ny, ny) that converts the columns."""
    for words, factors in hypotheses(kind):
        yield "units", f"the {words}", "Convert to SI", np.diag(factors)


def _axes(names: tuple[str, ...], kind: NDArray[np.str_]) -> Iterator[tuple[str, str, str, Array]]:
    """Other axes: image coordinates, y down, of a motion in a plane; two columns of one unit exchanged."""
    axes = [name.split(".")[-1] for name in names]
    turned = np.array([axis == "y" for axis in axes]) | (kind == "rad")
    if "y" in axes and "z" not in axes:
        words = "y and angles look as if they were in image coordinates, y down"
        yield "axes", words, "Give `flip_y=True`", np.diag(np.where(turned, -1.0, 1.0))
    pairs = [(i, j) for i, j in itertools.combinations(range(len(names)), 2) if kind[i] == kind[j]]
    for i, j in pairs if len(pairs) <= MOST_PAIRS else ():
        order = np.arange(len(names))
        order[[i, j]] = j, i
        yield "columns", f"{names[i]} and {names[j]} look exchanged", "Exchange them", np.eye(len(names))[order]


def relabelled(problem: FitProblem, meant: Array) -> FitProblem:
    """The problem with converted columns, the noise estimated from these, and the simulator's own parameters.

    A stated noise is not used: it is unknown for which label it was meant.

    Args:
        problem: As it was given.
        meant: (ny, ny) conversion, one entry of each row is not zero.
    """
    names, source = problem.column_names, np.argmax(np.abs(meant), axis=1)

    def read(recording: Trajectory) -> Trajectory:
        values, there = recording.values.copy(), [recording.names.index(name) for name in names]
        factors = meant[np.arange(len(names)), source]
        values[:, there] = recording.values[:, [there[k] for k in source]] * factors
        return replace(recording, values=values)

    parts = (TrajectorySet(tuple(read(recording) for recording in part)) for part in problem.split)
    changed = problem.replace(data=DataSplit(*parts), start=problem.simulator.default_parameters)
    return changed.with_estimated_noise()
