"""Plans of our engine on mismatched models, whose states hold more than the engine's: filters, play, commands on their way."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agents.control.cost import FeatureCost
from agents.control.mpc import SamplingController, SamplingOptions
from agents.control.plan import Plan, PlanOutcome, StepCount, run_closed_loop, run_open_loop, run_policy
from agents.transfer_study.definition import Planning, Repeats, Study, StudyRun
from agents.transfer_study.planned import PlanWorker
from agents.transfer_study.task import TransferTask
from softgym_envs.core.errors import OptionError, ParameterError, ShapeError
from softgym_envs.core.mismatch import MismatchedModel
from softgym_envs.core.task import load
from softgym_envs.data.sensors import markers_of
from softgym_envs.engines.mujoco.mjcf import NoParameters
from softgym_envs.systems import system, systems

EFFECTS = {"latency": 0.02, "backlash": 0.02}
SYSTEMS = [r.name for r in systems().values() if isinstance(r.simulator(backend="mujoco"), MismatchedModel)]
STUDIES = [(r.name, task) for r in systems().values() if r.name in SYSTEMS and r.study for task in load(r.study)]
HORIZON, PERIOD = 3, 0.02


def worlds(name: str) -> tuple[Any, Any, int]:
    """Our engine, a mismatched model, and the engine's physics steps of a control step, with the MuJoCo model's own step."""
    ground_truth = system(name).simulator(backend="mujoco", options={"effects": EFFECTS, "seed": 1})
    return system(name).simulator(dt=ground_truth.dt), ground_truth, round(PERIOD / ground_truth.dt)


def first(engine: Any) -> np.ndarray:
    return np.asarray(engine.initial_state(2))


def plan_of(engine: Any, substeps: int) -> Plan:
    """A rollout of random controls with small random gains."""
    rng = np.random.default_rng(0)
    high = engine.control_bounds[1]
    reach = np.where(np.isfinite(high), high, 1.0)
    controls = 0.2 * reach * rng.uniform(-1, 1, (HORIZON, engine.nu))
    states, _ = engine.rollout(first(engine)[:1], controls[None], substeps=substeps)
    gains = 0.01 * reach[:, None] * rng.standard_normal((HORIZON, engine.nu, engine.n))
    costs = np.zeros(HORIZON + 1)
    return Plan(engine, substeps, states[0], controls, gains, 0 * controls, costs, PlanOutcome.CONVERGED, (), StepCount())


@pytest.mark.parametrize("name", SYSTEMS)
def test_plans_of_the_engine_run_on_a_mismatched_model(name: str) -> None:
    """Controls are the plan's for the entries that it knows; the motion is what the MuJoCo model makes of these controls."""
    engine, ground_truth, substeps = worlds(name)
    assert ground_truth.nx > engine.nx
    plan = plan_of(engine, substeps)
    run = run_closed_loop(plan, ground_truth, first(engine))
    assert run.states.shape == (2, HORIZON + 1, ground_truth.nx) and not run.status.any()
    for t in range(HORIZON):
        np.testing.assert_array_equal(run.controls[:, t], plan.policy(run.states[:, t, : engine.nx], t))
    again, _ = ground_truth.rollout(ground_truth.embed(first(engine)), run.controls, substeps=substeps)
    np.testing.assert_array_equal(run.states, again)
    np.testing.assert_array_equal(run_open_loop(plan, ground_truth, first(engine)).controls[0], plan.controls)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_controller_of_the_engine_steers_a_mismatched_model(name: str) -> None:
    engine, ground_truth, substeps = worlds(name)
    last = engine.layout.nx - 1

    def entry(states: np.ndarray) -> np.ndarray:
        return np.asarray(states[..., last:])

    cost = FeatureCost(engine, entry, np.ones(1), np.ones(1))
    options = SamplingOptions(samples=3, knots=2)

    def controller() -> SamplingController:
        return SamplingController(engine, cost, 2, np.random.default_rng(0), substeps, options=options)

    run = run_policy(controller(), ground_truth, first(engine)[0], steps=2, substeps=substeps)
    by_hand, states = controller(), run.states[0]
    for t in range(2):
        np.testing.assert_array_equal(run.controls[0, t], by_hand(states[t, : engine.nx], t))
    with pytest.raises(ShapeError, match="state has shape"):
        controller()(states[0, : engine.nx - 1], 0)


def test_a_plan_that_knows_more_than_the_world_is_refused() -> None:
    engine, ground_truth, substeps = worlds("block")
    plan = plan_of(ground_truth, substeps)
    with pytest.raises(OptionError, match=r"planned in MujocoBlock with .* plan in the robot's own engine"):
        run_closed_loop(plan, engine, first(engine))
    late = system("block").simulator(backend="mujoco", options={"effects": {"latency": 0.05}})
    with pytest.raises(OptionError, match="do not begin with"):
        run_closed_loop(plan, late, first(engine))


def test_a_world_without_constants_is_as_it_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapped MJCF has none: what the scenario says of the ground truth (gravity of the crawling prism) is left to it."""
    case = TransferTask(system("tensegrity"), "TensegrityCrawl-v0")
    assert float(case.ground_truth_values().gravity) == 0.981  # type: ignore[attr-defined]
    monkeypatch.setattr(TransferTask, "ground_truth", lambda self: SimpleNamespace(default_parameters=NoParameters()))
    assert case.ground_truth_values() == NoParameters()
    object.__setattr__(case, "ground_truth_parameters", {"gravity": 1.0})
    with pytest.raises(ParameterError, match="unknown parameter 'gravity'; NoParameters has none"):
        case.ground_truth_values()


def test_drawn_constants_are_the_factor_off_in_both_directions() -> None:
    case = TransferTask(system("vine"), "VineGrow-v0")
    ratios = []
    for seed in range(8):
        drawn = case.drawn(np.random.default_rng(seed), 1.2)
        ratios.append([getattr(drawn, name) / getattr(case.best(), name) for name in case.identified])
    np.testing.assert_allclose(np.abs(np.log(ratios)), np.log(1.2))
    assert (np.array(ratios) > 1).any(axis=0).all() and (np.array(ratios) < 1).any(axis=0).all()


def test_rivals_are_drawn_within_what_steps_of_our_engine_bear() -> None:
    """Beyond 1107 N s/m a SUPERball moves by itself, and would be a straw man."""
    case = TransferTask(system("tensegrity"), "TensegrityRoll-v0")
    most = case.native().stability_limits(case.best())["cable_damping"]  # type: ignore[attr-defined]
    drawn = [case.drawn(np.random.default_rng(seed), 2.0).cable_damping for seed in range(8)]  # type: ignore[attr-defined]
    assert set(np.round(drawn, 3)) == {round(case.best().cable_damping / 2, 3), round(most, 3)}  # type: ignore[attr-defined]
    assert case.wide().intervals["cable_damping"][1] <= 1.01 * most
    assert case.around(case.best(), 1.4).intervals["cable_damping"][1] == pytest.approx(most)


def test_a_camera_sees_the_training_and_states_judge() -> None:
    plain = TransferTask(system("vine"), "VineGrow-v0")
    case = TransferTask(system("vine"), "VineGrow-v0", sensor=("camera",))
    data = case.record(np.random.default_rng(0), 400)
    assert data.train.names[:2] == ("point0.x", "point0.y") and set(case.native().state_names) <= set(data.test.names)
    assert data.train[0].period == pytest.approx(0.01) and data.train[0].substeps == 2
    assert case.procedure.stages != plain.procedure.stages and case.identified == (
        *plain.identified,
        "base_turn",
        "tip_mass",
        "drag",
    )
    wide = case.wide().intervals  # a clamp's heading is within two standard deviations of what setting it by eye gives
    half = case.around(case.default().replace(base_turn=0.01), 2.0).intervals  # half of that way, by logarithms
    assert half["base_turn"] == pytest.approx((-0.01, 0.03))
    assert np.array(half["steering_gain"]) == pytest.approx(case.default().steering_gain * np.array([0.5, 2.0]))
    assert wide["base_turn"] == (-0.04, 0.04) and {n: wide[n] for n in plain.identified} == plain.wide().intervals
    assert "sensor" not in plain.description and case.description["sensor"] == ["camera"]


def test_what_learns_gets_the_states_of_the_experiments_that_the_camera_saw(tmp_path: Path) -> None:
    case = TransferTask(system("vine"), "VineGrow-v0", sensor=("camera",))
    seen, states = (make(np.random.default_rng(0), 400).train for make in (case.record, case.states))
    for frames, full in zip(seen, states, strict=True):
        points = markers_of(full, case.native(), case.procedure).select(frames.names)
        at_rows = frames.values[:: round(full.period / frames.period)]
        noise = at_rows - points.values[: len(at_rows)]  # 1 mm, 22 columns of 10 rows: the root mean square is known to 5 %
        assert abs(np.sqrt(np.mean(noise**2)) - 1e-3) < 1.5e-4
        straight = np.stack([np.interp(frames.times, points.times, column) for column in points.values.T], axis=1)
        assert np.sqrt(np.mean((frames.values - straight) ** 2)) > 4e-3  # what a robot does between rows is seen
        assert full.substeps == 40 and full.num_steps == 10 and len(np.unique(full.controls[:, 0])) == 10
    study = Study(
        "hard", "mpc", ("network",), (400,), repeats=Repeats(5, 1, 1), planning=Planning(2, 40, restarts=1, iterations=1)
    )
    assert PlanWorker(case, study, tmp_path)(StudyRun("network", 400, 0, 0))["failed"] == 0


@pytest.mark.parametrize(("name", "task"), STUDIES)
def test_every_condition_runs_on_a_mismatched_model(name: str, task: str, tmp_path: Path) -> None:
    case = TransferTask(system(name), task, ground_truth_options={"effects": EFFECTS, "seed": 1})
    conditions = ("zero", "near", "true_constants", "wide", "ground_truth", "ground_truth_doubled", "ground_truth_budget")
    substeps = round(0.05 / case.native().dt)
    study = Study("hard", "mpc", conditions, (20,), repeats=Repeats(5, 1, 1), planning=Planning(2, substeps, 1, 1, ensemble=2))
    worker = PlanWorker(case, study, tmp_path)
    for condition in conditions:
        record = worker(StudyRun(condition, 20 if condition == "ground_truth_budget" else 0, 0, 0))
        assert record["failed"] == 0 and np.isfinite(record["cost"])


def test_policies_learn_late_and_are_judged_as_the_ground_truth_is() -> None:
    """What they are to bear is in our engine's environments alone; what they see is in both."""
    case = TransferTask(system("vine"), "VineGrow-v0", keywords={"action_memory": 2}, learning={"action_latency": 0.1})
    assert case.native_keywords["action_latency"] == 0.1 and case.env_keywords["action_memory"] == 2
    assert "action_latency" not in {**case.env_keywords, **case.ground_truth_keywords}
    assert (case.description["keywords"], case.description["learning"]) == ({"action_memory": 2}, {"action_latency": 0.1})
