"""What must not be used is not used: rank beside exact channels, starts and stages that predict worse, exit codes. Full states
with noise: seen as such, and no place for a prediction to begin; commands that act late are found from them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sysid_systems import Spin, SpinParameters, Spring, SpringParameters, record

from softgym_envs.core.files import read_toml
from softgym_envs.core.procedure import EXPERIMENT, Causes, Experiment, Procedure, Stage, Steps, in_half_steps
from softgym_envs.core.simulator import IntArray
from softgym_envs.core.trajectory import DataSplit, Trajectory, TrajectorySet
from sysid import Diagnostic, FitProblem, multiple_shooting
from sysid.diagnostics.initial_state import estimate_start, rows_of_start, starts_of
from sysid.diagnostics.result import FitResult, remaining_share
from sysid.diagnostics.uncertainty import analyse
from sysid.diagnostics.validation import HorizonError, open_loop
from sysid.fitting.shooting import ShootingOptions, one_step
from sysid.procedure.candidate_causes import candidate, searched
from sysid.procedure.guard import better_start, compare, kept_back
from sysid.procedure.identification import Identification
from sysid.procedure.run import run_procedure
from sysid.procedure.stage import fit_stage

PUSHED = (Experiment("pushed", record=lambda *_, **__: long_recording(), longest=1200),)
GROUND_TRUTH = SpringParameters(stiffness=35.0, damping=2.5)
"""Gain as by default."""


def long_recording(rows: int = 1200) -> Trajectory:
    return replace(record(Spring(), GROUND_TRUTH, steps=rows)[0], metadata={EXPERIMENT: "pushed"})


def specs(count: int) -> tuple[Any, ...]:
    return tuple(replace(SpringParameters.specs()["stiffness"], name=f"k{i}") for i in range(count))


def test_an_exact_channel_makes_no_other_constant_look_dead() -> None:
    """Column 0 is seen through a channel with weights of 1e13; 1 and 2 through white noise, 2 is ten times as weak as 1."""
    rng = np.random.default_rng(0)
    jacobian = np.zeros((300, 3))
    jacobian[:100, 0], jacobian[100:, 1], jacobian[100:, 2] = 1e13, rng.normal(size=200), 0.1 * rng.normal(size=200)
    found = analyse(jacobian, 1.0, specs(3))
    assert not found.hidden.any()
    expected = np.linalg.inv(jacobian[100:, 1:].T @ jacobian[100:, 1:])
    np.testing.assert_allclose(found.covariance[1:, 1:], expected, rtol=1e-9)


def test_a_product_stays_a_product_beside_an_exact_channel() -> None:
    rng = np.random.default_rng(1)
    jacobian = np.zeros((300, 3))
    jacobian[:100, 0] = 1e13
    jacobian[100:, 1] = rng.normal(size=200)
    jacobian[100:, 2] = -3.0 * jacobian[100:, 1]
    found = analyse(jacobian, 1.0, specs(3))
    assert found.hidden.tolist() == [False, True, True] and found.structural == (True,)
    np.testing.assert_allclose(np.abs(found.null[:, 0]), [0, 3 / np.sqrt(10), 1 / np.sqrt(10)], atol=1e-9)


def error(kind: str, fitted: float, start: float, part: str = "validation") -> HorizonError:
    return HorizonError(part, kind, 0.5, fitted, start, 1.0, 5, 0)


def test_a_perfect_motor_does_not_outweigh_a_bad_body() -> None:
    judged = compare((error("-", 1e-12, 1.0), error("m", 0.9, 0.3), error("m/s", 0.9, 0.3)))
    assert not judged.better
    assert compare((error("m", 0.1, 0.3), error("m", 9.0, 0.1, "train"))).better
    assert compare((error("m", 0.1, 0.3),)).better


def test_an_end_at_rest_does_not_judge_alone() -> None:
    """A throw: what was fitted moves ten times as far as the end that was kept back, and is predicted three times as well."""
    moving, resting = error("m", 0.1, 0.3, "train"), replace(error("m", 0.011, 0.01), persistence=0.1)
    assert not compare((error("m", 0.1, 0.3, "train"), error("m", 1.1, 1.0))).better
    assert compare((moving, resting)).better and compare((moving, resting)).data == "kept-back and fitted data"


def test_a_fifth_of_long_recordings_is_kept_back() -> None:
    split = kept_back(DataSplit(TrajectorySet((long_recording(),)), TrajectorySet(()), TrajectorySet(())))
    assert [part.num_steps for part in split] == [960, 240, 0]
    short = kept_back(DataSplit(TrajectorySet((long_recording(600),)), TrajectorySet(()), TrajectorySet(())))
    assert [part.num_steps for part in short] == [600, 0, 0]


def test_a_stage_starts_from_what_predicts_best_and_its_result_is_used_only_if_better() -> None:
    """The first stage may only move the spring's gain far off by a wrong mass: nothing of it goes on."""
    data, free = TrajectorySet((long_recording(),)), ("stiffness", "damping")
    problem = FitProblem(Spring(), kept_back(DataSplit(data, TrajectorySet(()), TrajectorySet(()))), free)
    collapsed = problem.replace(start=SpringParameters(stiffness=0.2, damping=30.0))
    assert better_start(collapsed, SpringParameters()).initial_parameters == SpringParameters()
    assert better_start(problem, SpringParameters(stiffness=0.2, damping=30.0)).initial_parameters == SpringParameters()
    stages = (Stage("all", "pushed", free, "multiple_shooting", {"segment_steps": 20}),)
    found = run_procedure(Procedure(stages, PUSHED), Spring(), data)
    assert found.unusable == () and found.parameters.stiffness == pytest.approx(35.0, rel=1e-6)


@pytest.mark.parametrize(("free", "unusable"), [("paint", ("paint",)), ("stiffness", ())])
def test_constants_that_no_stage_found_are_named_also_in_the_file(free: str, unusable: tuple[str, ...], tmp_path: Path) -> None:
    stages = (Stage("all", "pushed", (free,), "multiple_shooting", {"segment_steps": 20}),)
    found = run_procedure(Procedure(stages, PUSHED), Spring(), TrajectorySet((long_recording(),)), out=tmp_path)
    assert found.unusable == unusable
    provenance = read_toml(tmp_path / "fit.toml")["provenance"]
    assert provenance.get("do_not_use") == ("the fit says: the stage that gave paint failed" if unusable else None)
    assert SpringParameters.load(tmp_path / "fit.toml") == found.parameters


def test_a_fit_that_is_used_though_it_did_not_converge_says_so_in_its_headline_and_in_the_procedures() -> None:
    """What a transfer study prints of a fit is the procedure's headline: it must not forbid what the study does."""
    data, free = TrajectorySet((long_recording(),)), ("stiffness", "damping")
    options = {"segment_steps": 20, "reweight": 0, "levenberg": {"max_iterations": 2}}
    found = run_procedure(Procedure((Stage("all", "pushed", free, "multiple_shooting", options),), PUSHED), Spring(), data)
    (stage,) = found.stages
    assert not stage.fit.converged and not stage.fit.usable
    assert stage.fit.codes[0] == "used_unconverged" and "not_converged" not in stage.fit.codes
    assert found.headline.startswith("not converged, but used to predict, as errors on kept-back data are ")
    assert found.parameters.stiffness != Spring().default_parameters.stiffness and found.unusable == free


@pytest.mark.parametrize(("code", "unusable"), [("used_unconverged", ("stiffness",)), ("kept_previous", ())])
def test_what_a_failed_stage_changed_is_not_to_be_used_and_what_it_kept_is(code: str, unusable: tuple[str, ...]) -> None:
    data, free = TrajectorySet((long_recording(),)), ("stiffness",)
    good = run_procedure(
        Procedure((Stage("all", "pushed", free, "multiple_shooting", {"segment_steps": 20}),), PUSHED), Spring(), data
    ).stages[0]
    bad = replace(good, fit=replace(good.fit, diagnostics=(Diagnostic(code, "do_not_use"),)))
    assert Identification((good, bad)).unusable == unusable


Array = NDArray[np.float64]

NOISY_GROUND_TRUTH = SpringParameters(mass=3.0, stiffness=45.0, damping=1.8, gain=20.0)
FREE = ("stiffness", "damping", "gain")
NOISE = {"mass.x": 0.01, "mass.vx": 0.05}
SEGMENTS = ShootingOptions(segment_steps=50)
CANDIDATE_CAUSES = {"commands that act late": ("latency",)}


def problem(data: TrajectorySet, **more: object) -> FitProblem:
    """Of a spring with start parameters that are a third off."""
    start = NOISY_GROUND_TRUTH.replace(stiffness=60.0, damping=1.2, gain=15.0)
    return FitProblem(Spring(), data, **{"free": FREE, "start": start, **more})


def test_noise_is_seen_from_constants_that_are_off_and_exact_states_have_none() -> None:
    exact, far = record(Spring(), NOISY_GROUND_TRUTH, steps=200), SpringParameters(stiffness=400.0, damping=0.1, gain=1.0)
    assert not any(problem(exact, start=start).noisy for start in (NOISY_GROUND_TRUTH, problem(exact).start, far))
    assert all(problem(record(Spring(), NOISY_GROUND_TRUTH, steps=200, seed=seed, noise=NOISE)).noisy for seed in range(20))
    spun = [record(Spin(), SpinParameters(drag=2.0, torque=7.0), steps=200, noise=noise) for noise in (0.0, 0.02)]
    assert [FitProblem(Spin(), data, ("drag",)).noisy for data in spun] == [False, True]
    noisy = record(Spring(), NOISY_GROUND_TRUTH, steps=200, noise=NOISE)
    assert problem(exact, noise=NOISE).noisy  # stated
    assert not problem(noisy, free_initial=False).noisy and not problem(noisy, measured=("mass.x",)).noisy


def test_predictions_begin_nearer_to_the_true_state_than_it_was_measured() -> None:
    clean = record(Spring(), NOISY_GROUND_TRUTH, steps=300)
    noise = np.random.default_rng(0).standard_normal(clean[0].values.shape) * list(NOISE.values())
    given = problem(TrajectorySet((replace(clean[0], values=clean[0].values + noise),)), start=NOISY_GROUND_TRUTH)
    first = np.arange(0, 280, 20)
    found = starts_of(given, given.split.train[0], NOISY_GROUND_TRUTH, first)
    assert rows_of_start(given, given.split.train[0]) == 10
    error = np.sqrt(np.mean((found - clean[0].values[first]) ** 2, axis=0)) / list(NOISE.values())
    # Eleven rows that all tell of two numbers: by least squares some 0.3 to 0.6 of the noise of one.
    assert (error < 0.8).all() and (error > 0.1).all()
    exact = problem(clean, start=NOISY_GROUND_TRUTH)
    assert (
        rows_of_start(exact, clean[0]) == 0
        and (starts_of(exact, clean[0], NOISY_GROUND_TRUTH, first) == clean[0].values[first]).all()
    )
    far = [max(e.fitted / e.persistence for e in open_loop(p, NOISY_GROUND_TRUTH) if e.horizon == 0.5) for p in (given, exact)]
    assert far[1] < 1e-9 < far[0] < 0.2


def test_noisy_states_of_the_own_class_are_explained_and_intervals_hold() -> None:
    """Begun at measured rows, all are called wrong; limits are quantiles 1e-4."""
    seeds, held, explained, wrongly = range(12), 0, 0, 0
    for seed in seeds:
        data = record(Spring(), NOISY_GROUND_TRUTH, steps=300, seed=seed, noise=NOISE)
        found = multiple_shooting(problem(data), SEGMENTS)
        explained += found.explained
        held += sum(e.interval[0] <= getattr(NOISY_GROUND_TRUTH, e.name) <= e.interval[1] for e in found.estimates)
        wrongly += not multiple_shooting(problem(data, free_initial=False), SEGMENTS).explained
    assert held >= stats.binom.ppf(1e-4, 3 * len(seeds), 0.95)
    assert explained >= stats.binom.ppf(1e-4, len(seeds), 0.99) and wrongly >= 8


def test_single_steps_begin_where_they_were_measured_and_say_so() -> None:
    noisy = problem(record(Spring(), NOISY_GROUND_TRUTH, noise=0.05))
    assert noisy.estimates_initial and one_step(noisy).of("noisy_starts")


def late(rows: int, *, noise: float = 0.0, seed: int = 0) -> TrajectorySet:
    """A new command in every row, acting so many rows later."""
    exact = record(Spring(), NOISY_GROUND_TRUTH, steps=400, seed=seed)[0]
    commands = np.random.default_rng([seed, 1]).uniform(-1.0, 1.0, exact.controls.shape)
    acting = np.concatenate([np.repeat(commands[:1], rows, axis=0), commands])[: len(commands)]
    states, _ = Spring().rollout(exact.values[:1], acting[None], NOISY_GROUND_TRUTH)
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
    data = record(Spring(), NOISY_GROUND_TRUTH, steps=100, noise=NOISE)
    initial_guess = FitProblem(Brittle(), data, FREE, start=NOISY_GROUND_TRUTH, measured=("mass.x",)).initial_guess(data[0])
    given = FitProblem(Brittle(only=initial_guess), data, FREE, start=NOISY_GROUND_TRUTH, measured=("mass.x",))
    np.testing.assert_array_equal(estimate_start(given, data[0], NOISY_GROUND_TRUTH), initial_guess)
