"""Full states with noise: seen as such, and no place for a prediction to begin; commands that act late are found from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sysid_systems import Spin, SpinParameters, Spring, SpringParameters, record

from softgym_envs.core.procedure import Causes, Procedure, Stage, Steps, in_half_steps
from softgym_envs.core.simulator import IntArray
from softgym_envs.core.trajectory import TrajectorySet
from sysid import Diagnostic, FitProblem, multiple_shooting
from sysid.diagnostics.initial_state import estimate_start, rows_of_start, starts_of
from sysid.diagnostics.result import FitResult, remaining_share
from sysid.diagnostics.validation import open_loop
from sysid.fitting.shooting import ShootingOptions, one_step
from sysid.procedure.candidate_causes import candidate, searched
from sysid.procedure.stage import fit_stage

Array = NDArray[np.float64]

GROUND_TRUTH = SpringParameters(mass=3.0, stiffness=45.0, damping=1.8, gain=20.0)
FREE = ("stiffness", "damping", "gain")
NOISE = {"mass.x": 0.01, "mass.vx": 0.05}
SEGMENTS = ShootingOptions(segment_steps=50)
CANDIDATE_CAUSES = {"commands that act late": ("latency",)}


def problem(data: TrajectorySet, **more: object) -> FitProblem:
    """Of a spring with start parameters that are a third off."""
    start = GROUND_TRUTH.replace(stiffness=60.0, damping=1.2, gain=15.0)
    return FitProblem(Spring(), data, **{"free": FREE, "start": start, **more})


def test_noise_is_seen_from_constants_that_are_off_and_exact_states_have_none() -> None:
    exact, far = record(Spring(), GROUND_TRUTH, steps=200), SpringParameters(stiffness=400.0, damping=0.1, gain=1.0)
    assert not any(problem(exact, start=start).noisy for start in (GROUND_TRUTH, problem(exact).start, far))
    assert all(problem(record(Spring(), GROUND_TRUTH, steps=200, seed=seed, noise=NOISE)).noisy for seed in range(20))
    spun = [record(Spin(), SpinParameters(drag=2.0, torque=7.0), steps=200, noise=noise) for noise in (0.0, 0.02)]
    assert [FitProblem(Spin(), data, ("drag",)).noisy for data in spun] == [False, True]
    noisy = record(Spring(), GROUND_TRUTH, steps=200, noise=NOISE)
    assert problem(exact, noise=NOISE).noisy  # stated
    assert not problem(noisy, free_initial=False).noisy and not problem(noisy, measured=("mass.x",)).noisy


def test_predictions_begin_nearer_to_the_true_state_than_it_was_measured() -> None:
    clean = record(Spring(), GROUND_TRUTH, steps=300)
    noise = np.random.default_rng(0).standard_normal(clean[0].values.shape) * list(NOISE.values())
    given = problem(TrajectorySet((replace(clean[0], values=clean[0].values + noise),)), start=GROUND_TRUTH)
    first = np.arange(0, 280, 20)
    found = starts_of(given, given.split.train[0], GROUND_TRUTH, first)
    assert rows_of_start(given, given.split.train[0]) == 10
    error = np.sqrt(np.mean((found - clean[0].values[first]) ** 2, axis=0)) / list(NOISE.values())
    # Eleven rows that all tell of two numbers: by least squares some 0.3 to 0.6 of the noise of one.
    assert (error < 0.8).all() and (error > 0.1).all()
    exact = problem(clean, start=GROUND_TRUTH)
    assert (
        rows_of_start(exact, clean[0]) == 0
        and (starts_of(exact, clean[0], GROUND_TRUTH, first) == clean[0].values[first]).all()
    )
    far = [max(e.fitted / e.persistence for e in open_loop(p, GROUND_TRUTH) if e.horizon == 0.5) for p in (given, exact)]
    assert far[1] < 1e-9 < far[0] < 0.2


def test_noisy_states_of_the_own_class_are_explained_and_intervals_hold() -> None:
    """Begun at measured rows, all are called wrong; limits are quantiles 1e-4."""
    seeds, held, explained, wrongly = range(12), 0, 0, 0
    for seed in seeds:
        data = record(Spring(), GROUND_TRUTH, steps=300, seed=seed, noise=NOISE)
        found = multiple_shooting(problem(data), SEGMENTS)
        explained += found.explained
        held += sum(e.interval[0] <= getattr(GROUND_TRUTH, e.name) <= e.interval[1] for e in found.estimates)
        wrongly += not multiple_shooting(problem(data, free_initial=False), SEGMENTS).explained
    assert held >= stats.binom.ppf(1e-4, 3 * len(seeds), 0.95)
    assert explained >= stats.binom.ppf(1e-4, len(seeds), 0.99) and wrongly >= 8


def test_single_steps_begin_where_they_were_measured_and_say_so() -> None:
    noisy = problem(record(Spring(), GROUND_TRUTH, noise=0.05))
    assert noisy.estimates_initial and one_step(noisy).of("noisy_starts")


def late(rows: int, *, noise: float = 0.0, seed: int = 0) -> TrajectorySet:
    """A new command in every row, acting so many rows later."""
    exact = record(Spring(), GROUND_TRUTH, steps=400, seed=seed)[0]
    commands = np.random.default_rng([seed, 1]).uniform(-1.0, 1.0, exact.controls.shape)
    acting = np.concatenate([np.repeat(commands[:1], rows, axis=0), commands])[: len(commands)]
    states, _ = Spring().rollout(exact.values[:1], acting[None], GROUND_TRUTH)
    values = states[0] + noise * np.random.default_rng([seed, 2]).standard_normal(states[0].shape)
    return TrajectorySet((replace(exact, controls=commands, values=values),))


def asked(data: TrajectorySet) -> tuple[bool, Diagnostic]:
    """Whether a fit without latency explains the data, and what is said to be why not."""
    given = problem(data)
    blind = multiple_shooting(given, SEGMENTS)
    fit = lambda p: multiple_shooting(p, SEGMENTS)  # noqa: E731
    return blind.explained, candidate(CANDIDATE_CAUSES, fit, given, blind).diagnostics[-1]


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_late_commands_are_named_where_full_states_show_them(noise: float) -> None:
    """A lag of 0.14 s, far beyond the memory of commands that are new in every row: no slope leads there from none."""
    data = late(7, noise=noise)
    assert searched(problem(data, free=(*FREE, "latency"))).view.latency == pytest.approx(0.14)
    explained, said = asked(data)
    assert not explained and said.code == "likely_cause" and said.facts["adequate"]
    assert said.facts["values"]["latency"] == pytest.approx(0.14, abs=0.06)


def test_commands_that_are_not_late_are_not_called_so() -> None:
    """On the own class nothing is asked; and what a model lacks otherwise is not blamed on them."""
    assert all(asked(late(0, noise=0.01, seed=seed))[0] for seed in range(5))
    explained, said = asked(bent())
    assert not explained and said.code == "unknown_cause" and said.facts["tried"] == ["commands that act late"]


def bent() -> TrajectorySet:
    """A wave that no model has."""
    data = late(0, noise=0.002)[0]
    return TrajectorySet((replace(data, values=data.values + 0.05 * np.sin(9.0 * data.times)[:, None] * [1.0, 9.0]),))


def test_a_step_that_explains_the_data_is_not_the_only_cause_that_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is not level left residuals that finer steps happened to explain, and nobody asked the table."""

    def with_finer_steps(procedure: Procedure, given: FitProblem, result: FitResult, say: object) -> FitResult:
        return result.with_diagnostic("step_matters", "warning")

    monkeypatch.setattr("sysid.procedure.stage.with_finer_steps", with_finer_steps)
    stage = Stage("all", "", FREE, "multiple_shooting", {"segment_steps": 50}, causes=Causes(CANDIDATE_CAUSES))
    given: dict[str, Any] = {"folder": None, "resume": False, "progress": None}
    procedure = Procedure(stages=(stage,), steps=Steps(finer=in_half_steps))
    found = fit_stage(procedure, stage, problem(late(7, noise=0.01)), **given)
    assert found.of("step_matters") and found.of("likely_cause")[0].parameter == "commands that act late"
    other = fit_stage(procedure, stage, problem(bent()), **given)
    assert other.of("step_matters") and not other.of("unknown_cause")


def test_what_a_fit_to_rounding_leaves_is_little() -> None:
    """Its weights are those that it began with, as rounding is no noise; so the share counts the residuals, too."""
    data = late(0)
    wrong, right = (multiple_shooting(problem(data, free=free), SEGMENTS) for free in (("stiffness",), FREE))
    assert remaining_share(right, wrong) < 1e-6


@dataclass(frozen=True, eq=False)
class Brittle(Spring):
    """Goes nowhere but from one state, from rest if that is not said."""

    only: Any = None

    def _rollout(self, state: Array, controls: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        states, status = super()._rollout(state, controls, parameter_values, substeps)
        begin = np.zeros(2) if self.only is None else self.only
        return states, np.where((state != begin).any(axis=1), 1, status).astype(np.int32)


def test_where_no_state_around_the_guess_can_be_simulated_predictions_begin_there() -> None:
    data = record(Spring(), GROUND_TRUTH, steps=100, noise=NOISE)
    initial_guess = FitProblem(Brittle(), data, FREE, start=GROUND_TRUTH, measured=("mass.x",)).initial_guess(data[0])
    given = FitProblem(Brittle(only=initial_guess), data, FREE, start=GROUND_TRUTH, measured=("mass.x",))
    np.testing.assert_array_equal(estimate_start(given, data[0], GROUND_TRUTH), initial_guess)
