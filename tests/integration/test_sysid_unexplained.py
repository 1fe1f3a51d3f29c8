"""What a user reads where the model does not explain the data; and how the ladder of diagnostics counts it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import load_script
from sysid_systems import Spring, SpringParameters, record

from softgym_envs.core.trajectory import TrajectorySet
from sysid import FitProblem
from sysid.diagnostics.result import FitResult
from sysid.fitting.shooting import single_shooting
from sysid.procedure.stage import banded

GROUND_TRUTH = SpringParameters(mass=3.0, stiffness=45.0, damping=0.8, gain=2.0)
NOISE = 1e-3
ROC = load_script("experiments/all_identify/roc.py")


def fitted(error: float) -> FitResult:
    """A mass on a spring, whose place is seen with an error that lasts; 2 s, too short for prediction intervals."""
    clean = record(Spring(), GROUND_TRUTH, steps=100)[0]
    lasting = error * np.sin(37.0 * clean.times)[:, None]
    noisy = replace(clean, values=clean.values + lasting).with_noise(np.random.default_rng(3), NOISE)
    problem = FitProblem(Spring(), TrajectorySet((noisy,)), ("stiffness", "damping"), start=GROUND_TRUTH, free_initial=True)
    return banded(problem, single_shooting(problem))


def test_a_model_that_does_not_explain_says_so_first_and_how_far_off_it_is() -> None:
    fit = fitted(5 * NOISE)
    assert fit.misfit > 1.0 and not fit.explained and fit.usable
    assert fit.codes[0] == "model_mismatch" and fit.diagnostics[0].severity == "warning"
    assert all(line.endswith("of this model alone") for line in fit.summary().splitlines()[-2:])
    (said,) = fit.of("intervals_of_model")
    off, told = said.value, said.limit
    assert off is not None and told is not None and "predictions of these are off by up to" in said.sentence()
    # A sine of amplitude a is off by a / sqrt(2), beside noise; third differences see some of it, too.
    assert 2.5 * NOISE < off < 5 * NOISE and 0.5 * NOISE < told < 0.5 * off


def test_a_model_that_explains_says_nothing_of_it() -> None:
    fit = fitted(0.0)
    assert fit.misfit <= 1.0 and fit.explained and fit.to_json()["misfit"] == fit.misfit
    assert not {"model_mismatch", "intervals_of_model"} & set(fit.codes) and "alone" not in fit.summary()


def test_area_under_the_roc_curve_counts_what_old_rows_leave_open_as_wrong() -> None:
    def row(level: str, seed: int, explains: bool, misfit: float | None = None) -> dict[str, object]:
        found = {"system": "r", "level": level, "seed": seed, "explains": explains, "miss": 2.0, "false": False}
        return {**found, "identified": explains} | ({} if misfit is None else {"misfit": misfit})

    own = [row("own", 0, True, 0.5), row("own", 1, False, 1.5)]
    missing = [row("2", 0, False, 1.4), row("2", 1, False, 9.0)]
    assert "| 2 | 2 | 0.750 | 2 of 2:" in ROC.table_of(own + missing)
    open_ones = [row("own", 0, True), row("own", 1, False)]
    assert "| 2 | 2 | 0.500 | 1 of 2:" in ROC.table_of(open_ones + missing)
    # Clopper and Pearson: of n right ones, all right, the lower end is 0.025^(1 / n).
    assert ROC.interval(20, 20)[0] == pytest.approx(0.025 ** (1 / 20))
