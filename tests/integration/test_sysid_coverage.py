"""Stated intervals are right: over 40 noise seeds they cover the ground truth as often as they claim, and are no wider than
needed.

For z = (estimate - ground truth) / std in fit coordinates, sum z^2 over 40 seeds is chi^2 with 40 degrees of freedom. Gates are
the quantiles 1e-4 and 1 - 1e-4 of the binomial and chi^2 laws, fixed before any fit was run; too wide fails as well as too
narrow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from sysid_systems import Spring, SpringParameters, record

from sysid import FitProblem
from sysid.fitting.shooting import ShootingOptions, single_shooting

GROUND_TRUTH = SpringParameters(mass=3.0, stiffness=45.0, damping=1.8, gain=20.0)
START = GROUND_TRUTH.replace(stiffness=40.0, damping=3.0, gain=15.0)
FREE = ("stiffness", "damping", "gain")
SEEDS = 40
NOISE = {"mass.x": 0.02, "mass.vx": 0.1}


@pytest.mark.parametrize(
    "setting",
    [
        {"noise": NOISE, "free_initial": True},
        {"noise": None, "free_initial": True},
        {"noise": None, "measured": ("mass.x",)},
    ],
    ids=["known noise", "estimated noise per channel", "positions only"],
)
def test_intervals_cover_the_ground_truth_as_often_as_they_say(setting: dict[str, Any]) -> None:
    covered, z = np.zeros(len(FREE)), np.zeros((SEEDS, len(FREE)))
    for seed in range(SEEDS):
        data = record(Spring(dt=0.05), GROUND_TRUTH, steps=60, seed=1000 + seed, noise=NOISE)
        result = single_shooting(
            FitProblem(Spring(dt=0.05), data, free=FREE, start=START, **setting), ShootingOptions(jacobian="exact")
        )
        assert result.converged
        for j, e in enumerate(result.estimates):
            ground_truth = getattr(GROUND_TRUTH, e.name)
            covered[j] += e.interval[0] <= ground_truth <= e.interval[1]
            z[seed, j] = np.log(e.value / ground_truth) / (e.std / e.value)
    least = stats.binom.ppf(1e-4, SEEDS, 0.95)
    assert covered.min() >= least, covered
    low, high = stats.chi2.ppf([1e-4, 1 - 1e-4], SEEDS)
    assert np.all((low < np.sum(z**2, axis=0)) & (np.sum(z**2, axis=0) < high)), np.sum(z**2, axis=0)
