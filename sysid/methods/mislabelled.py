"""Is a unit wrong? Where a free motion is explained not nearly, one factor on its lengths or angles may mend that.

Before a fit only accelerations that no force can cause are refused (`data.wrong_units`): too small ones may be friction. After
it, recordings whose residuals are many times their noise are fitted again, from the simulator's own constants, as if every
label in question had been another one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from softgym_envs.core.errors import SoftgymError
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet

from ..data.problem import FitProblem
from ..data.wrong_units import Array, hypotheses, quantities
from ..judgement.result import FitResult
from .shooting import single_shooting

LARGE = 5.0
"""Times the recordings' noise: smaller residuals are other errors of a model, and cost no further fits."""
BETTER = 5.0
"""Times smaller residuals, relative to the noise, make a unit guilty."""
ALIKE = 1.5
"""Times the smallest residuals: other labels that explain so well may be meant as well."""
TOLD = 2.0
"""Times the noise: larger residuals have another cause beside, which may pass for a factor."""


def unmasked(problem: FitProblem, result: FitResult) -> FitResult:
    """The result, with a failure in one sentence where another label explains what this one does not.

    For free motions that are seen in part and whose noise is known; others are judged before the fit.
    """
    suspicious = result.noise_known and result.reduced_chi2 > LARGE**2 and problem.free_motion and not problem.full
    if result.explained or not suspicious:
        return result
    kind = np.array(quantities(problem.simulator, problem.column_names, problem.column_units))
    found = []
    for words, factors in hypotheses(kind):
        try:
            again = single_shooting(relabelled(problem, factors))
        except SoftgymError:
            continue
        if again.converged and BETTER**2 * again.reduced_chi2 < result.reduced_chi2:
            found.append((again.reduced_chi2, words, again))
    if not found:
        return result
    found.sort(key=lambda entry: entry[0])
    chi2, words, again = found[0]
    words += "".join(f", or the {other}" for value, other, _ in found[1:] if value <= ALIKE**2 * chi2)
    told = "; ".join(estimate.text() for estimate in again.estimates)
    gain = f"residuals are {np.sqrt(chi2):.2g} times the noise, not {np.sqrt(result.reduced_chi2):.3g} times ({told})"
    beside = "" if chi2 <= TOLD**2 else ". Something else is wrong, too (another robot or model?), so it may be another factor"
    return result.with_verdict("failure", f"wrong units: the {words}; with that factor {gain}{beside}. Convert to SI")


def relabelled(problem: FitProblem, factors: Array) -> FitProblem:
    """The problem with every fitted column times a factor, the noise that it then tells, and the simulator's own constants.

    A stated noise is no help: nobody knows in which unit it was meant.
    """
    scale = dict(zip(problem.column_names, factors.tolist(), strict=True))

    def scaled(recording: Trajectory) -> Trajectory:
        columns = np.array([scale.get(name, 1.0) for name in recording.names])
        return replace(recording, values=recording.values * columns)

    parts = (TrajectorySet(tuple(scaled(recording) for recording in part)) for part in problem.split)
    changed = problem.replace(data=DataSplit(*parts), start=problem.simulator.default_parameters)
    return changed.with_told_noise()


__all__ = ["unmasked"]
