"""A SUPERball before cameras: what tells recordings apart, where it was at first, and its body from a short flight. A
tensegrity robot's throws before cameras: how it turns at first, contact from markers, and what runs without throws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from softgym_envs.core.errors import DataError
from softgym_envs.core.procedure import EXPERIMENT
from softgym_envs.core.simulator import Status
from softgym_envs.core.trajectory import Trajectory, TrajectorySet, part_of
from softgym_envs.data.sensors import SENSORS, Sensor
from softgym_envs.systems.tensegrity import prism, superball
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.parameters import TensegrityParameters
from softgym_envs.systems.tensegrity.procedure import GUESS, PROCEDURE, _apart, first_state, tame
from sysid import FitProblem, multiple_shooting
from sysid.diagnostics.intervals import IntervalOptions
from sysid.diagnostics.model_form import in_steps_of
from sysid.fitting.progressive import ProgressiveFits
from sysid.fitting.shooting import ShootingOptions
from sysid.least_squares.cutting import cut
from sysid.least_squares.system import ShootingSystem
from sysid.procedure.job import Job
from sysid.procedure.run import run_procedure
from sysid.procedure.stage_problem import stage_problem

ROBOT = TensegritySimulator(contact="patch")


def seen(name: str, sensor: Sensor, *, steps: int, seed: int = 0) -> Trajectory:
    rng = np.random.default_rng(seed)
    return sensor(PROCEDURE.record_one(name, ROBOT, rng, steps=steps, from_markers=True), ROBOT, PROCEDURE, rng)


def test_flights_and_throws_are_told_apart() -> None:
    assert PROCEDURE.recorded.experiment_of is not None
    for name in ("air", "throws"):
        assert PROCEDURE.recorded.experiment_of(ROBOT, seen(name, SENSORS["lab"], steps=1500)) == name
    rolls = seen("throws", SENSORS["lab"], steps=1500)
    driven = replace(rolls, controls=np.random.default_rng(0).uniform(-1.0, 1.0, rolls.controls.shape))
    assert PROCEDURE.recorded.experiment_of(ROBOT, driven) == ""  # driven, but nothing is held
    flight = seen("air", SENSORS["lab"], steps=1500)
    middle = np.nanmedian(flight.values, axis=0)
    small = replace(flight, values=middle + 0.25 * (flight.values - middle))  # a robot a quarter as large, or driven as little
    assert PROCEDURE.recorded.experiment_of(ROBOT, small) == "air"


def test_rods_that_meet_are_remarked_on() -> None:
    """Segments that cross, are parallel, or end apart; a SUPERball's rods do not meet where motors hardly pull."""
    a, b = np.zeros((3, 3)), np.tile([1.0, 0.0, 0.0], (3, 1))
    c = np.array([[0.5, -1.0, 0.2], [0.0, 0.3, 0.0], [2.0, 0.0, 0.0]])
    d = np.array([[0.5, 1.0, 0.2], [1.0, 0.3, 0.0], [3.0, 0.0, 1.0]])
    np.testing.assert_allclose(_apart(a, b, c, d), [0.2, 0.3, 1.0], atol=1e-12)
    flight = seen("air", SENSORS["lab"], steps=1500)
    assert PROCEDURE.recorded.remark is not None and PROCEDURE.recorded.remark(ROBOT, flight) == ""
    close = replace(flight, values=0.1 * flight.values)
    assert "rods meet in 100 % of the frames" in PROCEDURE.recorded.remark(ROBOT, close)


@pytest.mark.parametrize(
    ("order", "signs", "said"),
    [
        ([2, 3, 0, 1, *range(4, 12)], (1, 1, 1), None),  # rods of one length in another order: nothing to see
        ([0, 4, 2, 3, 1, *range(5, 12)], (1, 1, 1), r"nodes \d+ and \d+ begin \d+ % of rod \d's length apart"),
        (list(range(12)), (1, -1, -1), "all nodes begin under the ground"),
        (list(range(12)), (1000, 1000, 1000), r"begin 1e\+03 times as far apart"),
        (list(range(12)), (-1, 1, 1), "mirror image of the robot: one axis points the other way"),
        ([*range(4), 5, 4, *range(6, 12)], (1, 1, 1), "nodes 4 and 5, the ends of rod 2, look exchanged"),
    ],
)
def test_markers_of_no_such_robot_end_in_a_sentence(order: list[int], signs: tuple[int, int, int], said: str | None) -> None:
    """Simulations of these diverged, which is what was said, with all parameters, and nothing of markers."""
    model = superball()
    nodes = (model.nodes - model.nodes.min(axis=0) + 0.1)[order] * signs
    names = tuple(f"node{k}.{axis}" for k in range(12) for axis in "xyz")
    values = np.tile(nodes.reshape(1, -1), (20, 1))
    seen = Trajectory(0.01 * np.arange(20), np.zeros((19, 0)), values, names, ("m",) * 36, (), ())
    initial_guess = first_state(ROBOT, names)
    assert initial_guess is not None
    if said is None:
        initial_guess(seen)
        return
    with pytest.raises(DataError, match=said):
        initial_guess(seen)


def test_outliers_do_not_move_the_first_state() -> None:
    """A node 0.3 m elsewhere in one of the first rows: velocities move by what noise moves them."""
    exact = seen("throws", Sensor(rate=120.0), steps=500)
    values = exact.values.copy()
    values[2, :6] += 0.3
    states = []
    for recording in (exact, replace(exact, values=values)):
        initial_guess = first_state(ROBOT, exact.names)
        assert initial_guess is not None
        states.append(initial_guess(recording))
    assert np.abs(states[0] - states[1]).max() < 0.05


def test_the_body_and_its_latency_come_from_markers() -> None:
    """Two seconds of our engine, a factor of 3 off: within five standard deviations, and a tenth of a frame's length.

    With damping four times too large the simulator does not bear its own steps: it begins elsewhere.
    """
    recording = seen("air", SENSORS["lab"], steps=2200, seed=1)
    simulator = TensegritySimulator(contact="patch", dt=part_of(recording.period, 1e-3))
    data = TrajectorySet((recording.for_timestep(simulator.dt),))
    stages = tuple(stage for stage in PROCEDURE.by_camera.stages if stage.experiment == "air")
    wrong = PROCEDURE.initial_guess_of(simulator) | {"cable_damping": 4.0 * ROBOT.default_parameters.cable_damping}
    found = run_procedure(
        PROCEDURE.by_camera, simulator, data, stages=stages, start=simulator.default_parameters.replace(**wrong)
    )
    last = found.stages[-1].fit
    assert last is not None and data[0].metadata[EXPERIMENT] == "air" and not found.unusable
    assert abs(last.view.latency - SENSORS["lab"].latency) < 2e-3
    for estimate in last.estimates:
        ground_truth = 0.02 if estimate.name == "latency" else getattr(ROBOT.default_parameters, estimate.name)
        assert abs(estimate.value - ground_truth) < max(5.0 * estimate.std, 0.02 * ground_truth), estimate.line()
    assert last.reduced_chi2 == pytest.approx(1.0, abs=0.15)


def test_a_robot_whose_rods_are_light_follows_the_constants_that_its_fit_begins_with():
    """Cables of SUPERball's guess are too fast for steps of 1 ms where a rod has 350 g."""
    simulator, light = TensegritySimulator(contact="patch"), TensegrityParameters(rod_mass=0.35)
    commands = np.random.default_rng(0).uniform(-1.0, 1.0, (1, 300, simulator.nu))
    heavy = {**tame(light), "cable_stiffness": GUESS["cable_stiffness"], "cable_damping": GUESS["cable_damping"]}
    failed = [simulator.rollout(simulator.initial_state(1), commands, light.replace(**at))[1][0] for at in (heavy, tame(light))]
    assert failed == [Status.DIVERGED, Status.OK]
    assert tame(TensegrityParameters())["cable_stiffness"] == GUESS["cable_stiffness"]


def test_damping_is_sought_where_steps_bear_it_and_in_finer_steps_too() -> None:
    """The parameters are for this simulator; one of another body, or with bounds of its own, has others."""
    air = PROCEDURE.record_one("air", ROBOT, np.random.default_rng(0), steps=200, from_markers=False)
    problem = FitProblem(ROBOT, TrajectorySet((air,)), ("cable_stiffness", "cable_damping"))
    most = ROBOT.stability_limits(ROBOT.default_parameters)["cable_damping"]
    assert problem.specs[1].bounds == (0.01, most) and problem.specs[0].bounds == (1.0, 1e5)
    finer = in_steps_of(problem, replace(ROBOT, dt=5e-4))
    assert finer.specs[1].bounds == (0.01, most)
    beyond = problem.replace(start=ROBOT.default_parameters.replace(cable_damping=2000.0))
    assert beyond.initial_parameters.cable_damping == most  # type: ignore[attr-defined]
    assert problem.replace(limits={}).specs[1].bounds == (0.01, 1e4)
    lighter = FitProblem(ROBOT, problem.data, problem.free, start=ROBOT.default_parameters.replace(rod_mass=5.0))
    assert lighter.specs[1].bounds[1] == pytest.approx(most / 2, rel=0.01)
    assert problem.replace(limits={"cable_damping": (500.0, 900.0)}).specs[1].bounds == (500.0, 900.0)
    assert problem.fingerprint != problem.replace(limits={"cable_damping": (500.0, 900.0)}).fingerprint


def test_a_robot_that_is_damped_more_than_steps_bear_is_told_to_take_smaller_ones() -> None:
    """A ground truth of 1500 N s/m is found in steps of 0.5 ms; in steps of 1 ms the fit ends at what they bear, and says
    so."""
    finer = replace(ROBOT, dt=5e-4)
    ground_truth = finer.default_parameters.replace(cable_damping=1500.0)
    rng = np.random.default_rng(0)
    whole = PROCEDURE.record_one("air", finer, rng, steps=1200, parameters=ground_truth, from_markers=True)
    rows = {"times": whole.times[::2], "controls": whole.controls[::2], "values": whole.values[::2]}
    air, held = replace(whole, **rows, substeps=2), replace(finer, fixed_rod=0)
    start = ROBOT.default_parameters.replace(cable_stiffness=8e3, cable_damping=800.0)
    own = FitProblem(held, TrajectorySet((air,)), ("cable_stiffness", "cable_damping"), start=start, free_initial=False)
    options = ShootingOptions(segment_steps=10, intervals=IntervalOptions(prediction_errors=False))
    found = multiple_shooting(own, options)
    assert found.parameters.cable_damping == pytest.approx(1500.0, rel=1e-3)  # type: ignore[attr-defined]
    coarse = multiple_shooting(in_steps_of(own, replace(ROBOT, fixed_rod=0)).replace(limits=None), options)
    assert coarse.of("at_bound")[0].facts["side"] == "upper" and coarse.of("at_bound")[0].facts["by_step"]


THROWN = TensegritySimulator(prism(), contact="patch")
GROUND = {
    "friction": 0.5, "restitution": -0.9, "sliding_damping": 0.95, "contact_bias": 1e-4, "contact_compliance": 6e-3,
    "pivot_friction": 0.8,
}  # fmt: skip
"""Of the ground truth; the fit begins with friction 0.8 and contact that pushes ten times harder."""
STAGES = tuple(stage for stage in PROCEDURE.by_camera.stages if stage.experiment == "throws")


def thrown(seed: int, steps: int = 500) -> Trajectory:
    ground_truth = THROWN.default_parameters.replace(**GROUND)
    return PROCEDURE.record_one(
        "throws", THROWN, np.random.default_rng(seed), steps=steps, parameters=ground_truth, from_markers=True
    )


@pytest.mark.parametrize("model", [prism(), superball()])
def test_a_throw_begins_with_rods_that_turn_about_themselves_as_the_robot_does(model: Any) -> None:
    """No marker shows it; a rod that does not turn so slides where it lands."""
    robot = TensegritySimulator(model, contact="patch")
    exact = PROCEDURE.record_one("throws", robot, np.random.default_rng(0), steps=20)
    seen = Sensor(rate=1000.0)(exact, robot, PROCEDURE, np.random.default_rng(0))
    initial_guess = first_state(robot, seen.names)
    assert initial_guess is not None
    own, found = (model.split(state)[3][:, 2] for state in (exact.values[0], initial_guess(seen)))
    assert np.abs(own).max() > 0.3 and np.abs(found - own).max() < 0.02


def test_contact_comes_from_throws_that_a_camera_saw() -> None:
    """Two throws of half a second, the body known: within three standard deviations, another told twenty times as well."""
    rng = np.random.default_rng(0)
    seen = tuple(SENSORS["camera"](thrown(seed), THROWN, PROCEDURE, rng).for_timestep(THROWN.dt) for seed in (2, 3))
    found = run_procedure(PROCEDURE.by_camera, THROWN, TrajectorySet(seen), stages=STAGES, start=THROWN.default_parameters)
    last = found.stages[-1].fit
    assert last is not None and last.converged and last.explained and not found.unusable
    assert last.codes[0] == "identified_with_reservations"  # intervals do not allow for how rods turn, which nothing shows
    assert "rod*.wz" in last.of("propagated_state")[0].parameter
    ground_truth = THROWN.default_parameters.replace(**GROUND)
    for estimate in last.estimates:
        std = (estimate.interval[1] - estimate.interval[0]) / (2 * 1.96)
        assert abs(estimate.value - getattr(ground_truth, estimate.name)) < 3.0 * std, estimate.line()
    assert abs(found.parameters.friction - ground_truth.friction) < 0.02
    new = thrown(7)
    misses = [miss(new, parameter_values) for parameter_values in (found.parameters, THROWN.default_parameters)]
    assert misses[0] < 0.05 * misses[1]


def seen_throw() -> FitProblem:
    seen = SENSORS["camera"](thrown(2, 300), THROWN, PROCEDURE, np.random.default_rng(0)).for_timestep(THROWN.dt)
    return stage_problem(PROCEDURE, STAGES[-1], THROWN, TrajectorySet((seen,)), start=THROWN.default_parameters)


def test_segments_of_a_throw_begin_at_poses_and_take_over_how_rods_turn() -> None:
    """A guess of a quaternion is no mixture with a simulation; what no marker shows goes on from the segment before."""
    problem = seen_throw()
    segments = cut(problem, problem.split.train, 10, free=True, exact=False)
    for q in THROWN.model.split(segments.starts)[1].reshape(-1, 4):
        assert abs(np.linalg.norm(q) - 1.0) < 1e-12
    states, _, good = segments.rollout(np.repeat(problem.encode(problem.initial_parameters)[None], 3, axis=0), segments.starts)
    spins = THROWN.model.split(states)[3][..., 2]
    assert good.all() and np.array_equal(spins[1:, 0], spins[:-1, -1]) and np.abs(spins[1:, 0] - spins[0, 0]).max() > 1e-3


def test_starts_of_longer_segments_come_from_shorter_ones() -> None:
    """The first fit is of starts alone, at other parameters than the ground truth's; of the squares a fifth is left at most."""
    problem = seen_throw()
    grown = ProgressiveFits((5,), exact=False, epsilon=1e-5, one_sided=True, robust=True).begin(problem)
    assert grown.states is not None
    np.testing.assert_allclose(grown.problem.initial_parameters.to_vector(), problem.initial_parameters.to_vector(), rtol=1e-12)
    theta, costs = problem.encode(problem.initial_parameters), []
    for states in (None, grown.states):
        segments = cut(problem, problem.split.train, 10, free=True, exact=False, states=states)
        costs.append(ShootingSystem(segments, np.ones(18)).cost(theta, segments.starts))
    assert costs[1] < 0.2 * costs[0]


def miss(throw: Trajectory, parameter_values: Any) -> float:
    """Root mean square of how far the ends of the rods are off after the whole throw [m]."""
    states, _ = THROWN.rollout(throw.values[:1].copy(), throw.controls[None], parameter_values, substeps=throw.substeps)
    off = THROWN.model.node_positions(states[0, -1]) - THROWN.model.node_positions(throw.values[-1])
    return float(np.sqrt((off**2).sum(axis=-1).mean()))


@pytest.mark.parametrize(
    ("names", "stages"),
    [
        (("air",), ("beginning", "begun", "seen")),
        (("air", "throws"), ("beginning", "begun", "seen", "landed")),
        (("throws",), ("beginning", "begun", "seen", "landed")),
    ],
)
def test_stages_of_what_nobody_recorded_are_left_out_and_that_is_said(names: tuple[str, ...], stages: tuple[str, ...]) -> None:
    """A flight alone tells the body; throws alone are no recordings of the procedure, but a laboratory's."""
    rng = np.random.default_rng(0)
    found = [PROCEDURE.record_one(name, THROWN, rng, steps=400, from_markers=True) for name in names]
    lab = [SENSORS["camera"](recording, THROWN, PROCEDURE, rng) for recording in found]
    plain = [replace(t, metadata={k: v for k, v in t.metadata.items() if k != EXPERIMENT}) for t in lab]
    job = Job("tensegrity", plain, model="prism")
    procedure, _, recordings = job.prepared()
    assert tuple(stage.name for stage in procedure.stages) == stages
    assert ("no recording of 'throws'" in " ".join(job.notes)) == (names == ("air",))
    told = tuple(t.metadata.get(EXPERIMENT, "") for t in recordings)
    assert told == (names if "air" in names else ("",))
