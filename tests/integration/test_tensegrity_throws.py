"""A tensegrity robot's throws before cameras: how it turns at first, contact from markers, and what runs without throws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from softgym_envs.core.procedure import EXPERIMENT
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.data.sensors import SENSORS, Sensor
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.model import prism, superball
from softgym_envs.systems.tensegrity.procedure import PROCEDURE, first_state
from sysid import FitProblem
from sysid.fitting.progressive import ProgressiveFits
from sysid.least_squares.cutting import cut
from sysid.least_squares.system import ShootingSystem
from sysid.procedure.job import Job
from sysid.procedure.run import run_procedure
from sysid.procedure.stage_problem import stage_problem

ROBOT = TensegritySimulator(prism(), contact="patch")
GROUND = {
    "friction": 0.5, "restitution": -0.9, "sliding_damping": 0.95, "contact_bias": 1e-4, "contact_compliance": 6e-3,
    "pivot_friction": 0.8,
}  # fmt: skip
"""Of the ground truth; the fit begins with friction 0.8 and contact that pushes ten times harder."""
STAGES = tuple(stage for stage in PROCEDURE.by_camera.stages if stage.experiment == "throws")


def thrown(seed: int, steps: int = 500) -> Trajectory:
    ground_truth = ROBOT.default_parameters.replace(**GROUND)
    return PROCEDURE.record_one(
        "throws", ROBOT, np.random.default_rng(seed), steps=steps, parameters=ground_truth, from_markers=True
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
    seen = tuple(SENSORS["camera"](thrown(seed), ROBOT, PROCEDURE, rng).for_timestep(ROBOT.dt) for seed in (2, 3))
    found = run_procedure(PROCEDURE.by_camera, ROBOT, TrajectorySet(seen), stages=STAGES, start=ROBOT.default_parameters)
    last = found.stages[-1].fit
    assert last is not None and last.converged and last.explained and not found.unusable
    assert last.codes[0] == "identified_with_reservations"  # intervals do not allow for how rods turn, which nothing shows
    assert "rod*.wz" in last.of("propagated_state")[0].parameter
    ground_truth = ROBOT.default_parameters.replace(**GROUND)
    for estimate in last.estimates:
        std = (estimate.interval[1] - estimate.interval[0]) / (2 * 1.96)
        assert abs(estimate.value - getattr(ground_truth, estimate.name)) < 3.0 * std, estimate.line()
    assert abs(found.parameters.friction - ground_truth.friction) < 0.02
    new = thrown(7)
    misses = [miss(new, parameter_values) for parameter_values in (found.parameters, ROBOT.default_parameters)]
    assert misses[0] < 0.05 * misses[1]


def seen_throw() -> FitProblem:
    seen = SENSORS["camera"](thrown(2, 300), ROBOT, PROCEDURE, np.random.default_rng(0)).for_timestep(ROBOT.dt)
    return stage_problem(PROCEDURE, STAGES[-1], ROBOT, TrajectorySet((seen,)), start=ROBOT.default_parameters)


def test_segments_of_a_throw_begin_at_poses_and_take_over_how_rods_turn() -> None:
    """A guess of a quaternion is no mixture with a simulation; what no marker shows goes on from the segment before."""
    problem = seen_throw()
    segments = cut(problem, problem.split.train, 10, free=True, exact=False)
    for q in ROBOT.model.split(segments.starts)[1].reshape(-1, 4):
        assert abs(np.linalg.norm(q) - 1.0) < 1e-12
    states, _, good = segments.rollout(np.repeat(problem.encode(problem.initial_parameters)[None], 3, axis=0), segments.starts)
    spins = ROBOT.model.split(states)[3][..., 2]
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
    states, _ = ROBOT.rollout(throw.values[:1].copy(), throw.controls[None], parameter_values, substeps=throw.substeps)
    off = ROBOT.model.node_positions(states[0, -1]) - ROBOT.model.node_positions(throw.values[-1])
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
    found = [PROCEDURE.record_one(name, ROBOT, rng, steps=400, from_markers=True) for name in names]
    lab = [SENSORS["camera"](recording, ROBOT, PROCEDURE, rng) for recording in found]
    plain = [replace(t, metadata={k: v for k, v in t.metadata.items() if k != EXPERIMENT}) for t in lab]
    job = Job("tensegrity", plain, model="prism")
    procedure, _, recordings = job.prepared()
    assert tuple(stage.name for stage in procedure.stages) == stages
    assert ("no recording of 'throws'" in " ".join(job.notes)) == (names == ("air",))
    told = tuple(t.metadata.get(EXPERIMENT, "") for t in recordings)
    assert told == (names if "air" in names else ("",))
