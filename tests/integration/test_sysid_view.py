"""Parameters of recordings: latency and a camera's pose are found beside the robot's own; outliers spoil nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sysid_systems import Spring, SpringParameters, record

from softgym_envs.core.base import PlainStructure
from softgym_envs.core.errors import OptionError, ParameterError
from softgym_envs.core.layout import Field, StateLayout
from softgym_envs.core.procedure import Procedure, Stage
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.data.sensors import Sensor
from sysid import METHODS, FitProblem, multiple_shooting
from sysid.diagnostics.intervals import IntervalOptions
from sysid.diagnostics.result import FitResult
from sysid.fitting.shooting import ShootingOptions, single_shooting
from sysid.least_squares.cutting import cut
from sysid.least_squares.levenberg import LevenbergOptions
from sysid.least_squares.system import HUBER, ShootingSystem
from sysid.problem.noise import noise_of
from sysid.problem.problem import Measurement
from sysid.problem.recording_parameters import POSE, Commands, RecordingParameters, delayed
from sysid.procedure.candidate_causes import candidate, conditional
from sysid.procedure.search import Search
from sysid.procedure.stage import fit_stage

GROUND_TRUTH = SpringParameters(mass=3.0, stiffness=45.0, damping=0.8, gain=20.0)
FREE = ("stiffness", "damping", "gain")
CANDIDATE_CAUSES = {"commands that act late": ("latency",), "a turned camera": ("turn",)}
EVERY = 25
"""Rows of 1 ms that a command lasts."""


def driven(sensor: Sensor, *, seconds: float = 4.0, seed: int = 0) -> TrajectorySet:
    """The position of the driven mass as a camera saw it; simulated at 1 kHz, commands last for 25 ms."""
    rng, spring = np.random.default_rng(seed), Spring(dt=1e-3)
    commands = np.repeat(rng.uniform(-1.0, 1.0, (round(seconds / (EVERY * 1e-3)), 1)), EVERY, axis=0)
    commands[:200] = 0.0
    states, _ = spring.rollout(np.zeros((1, 2)), commands[None], GROUND_TRUTH)
    exact = Trajectory.from_rollout(spring, states[0], commands).select(("mass.x",))
    return TrajectorySet((sensor(exact, spring, Procedure(stages=()), rng),))


def problem(recordings: TrajectorySet, **changes: Any) -> FitProblem:
    spring = Spring(dt=recordings[0].period)
    start = SpringParameters(mass=3.0, stiffness=30.0, damping=1.5, gain=10.0)
    return FitProblem(spring, recordings, **{"free": (*FREE, "latency"), "start": start, **changes})


@pytest.mark.parametrize("latency", [0.0, 0.02, 0.033])
def test_a_latency_is_found_beside_the_constants(latency: float) -> None:
    """At 40 Hz, so that 20 ms is no whole number of rows. Of four intervals of 95 % three hold at least."""
    found = single_shooting(problem(driven(Sensor(rate=40.0, noise=2e-3, latency=latency))))
    assert found.converged and abs(found.view.latency - latency) < 2e-3
    ground_truth = {**{name: getattr(GROUND_TRUTH, name) for name in FREE}, "latency": latency}
    assert sum(low <= ground_truth[name] <= high for name, (low, high) in found.intervals.items()) >= 3


def test_the_gain_of_torque_sensors_is_found_and_named() -> None:
    """Commands are recorded 0.8 times as large as they act; single rows and whole predictions, full states and in part."""
    (exact,) = driven(Sensor(rate=40.0, noise=2e-3))
    faint = TrajectorySet((replace(exact, controls=0.8 * exact.controls, before=0.8 * exact.before),))
    given = problem(faint, free=("stiffness", "damping", "command_gain"), start=GROUND_TRUTH)
    for segments in (0, 40):
        found = multiple_shooting(given, ShootingOptions(segment_steps=segments)) if segments else single_shooting(given)
        assert found.view.command_gain == pytest.approx(0.8, rel=5e-3) and found.explained
    known = given.replace(free=("stiffness", "damping"))
    blind = single_shooting(known)
    assert not blind.explained
    (cause,) = candidate({"another gain": ("command_gain",)}, single_shooting, known, blind).of("likely_cause")
    assert cause.parameter == "another gain" and cause.facts["values"]["command_gain"] < 1.0 and cause.facts["adequate"]


def test_without_its_latency_the_data_are_not_explained() -> None:
    recordings = driven(Sensor(rate=40.0, noise=2e-3, latency=0.03))
    blind, seeing = (single_shooting(problem(recordings, free=free)) for free in (FREE, (*FREE, "latency")))
    assert not blind.explained and seeing.explained and "latency" in seeing.summary()


def test_segments_inside_a_recording_know_what_was_commanded_before() -> None:
    found = multiple_shooting(problem(driven(Sensor(rate=40.0, noise=2e-3, latency=0.06))), ShootingOptions(segment_steps=40))
    assert abs(found.view.latency - 0.06) < 2e-3


def test_a_delayed_command_is_the_mean_over_its_row() -> None:
    """Against commands on a grid that is 100 times as fine, shifted and averaged."""
    rng, rows = np.random.default_rng(0), np.arange(2, 8)
    controls = rng.uniform(-1.0, 1.0, (10, 2))
    for late in (-1.7, 0.0, 0.25, 2.0, 2.61):
        fine = np.repeat(controls, 100, axis=0)
        instants = 100 * rows[:, None] + np.arange(100) - round(100 * late)
        expected = fine[np.clip(instants, 0, len(fine) - 1)].mean(axis=1)
        np.testing.assert_allclose(
            delayed(Commands(controls, controls[:0]), rows[None], np.array([late]))[0], expected, atol=1e-12
        )


POINT = StateLayout(Field("mass", None, ("x", "m"), ("vx", "m/s")))


def in_space() -> Measurement:
    """A point that moves along x, at a fixed height and depth."""
    return Measurement(("p.x", "p.y", "p.z"), lambda s: np.stack([s[..., 0], 0.3 + 0 * s[..., 0], 0.5 + s[..., 0]], axis=-1))


def test_gradients_of_pose_and_latency_are_those_of_differences_of_the_prediction() -> None:
    recording = driven(Sensor(rate=40.0))[0]
    values = in_space().function(np.repeat(recording.values, 2, axis=1))
    seen = Trajectory(recording.times, recording.controls, values, in_space().names, ("m",) * 3, ("force",), ("N",))
    free, view = (
        ("stiffness", "latency", "turn", "tilt", "scale"),
        RecordingParameters(latency=0.011, turn=0.1, tilt=-0.2, scale=1.1),
    )
    given = problem(TrajectorySet((seen,)), free=free, measurement=in_space(), view=view)
    segments = cut(given, given.split.train, 50, free=True, exact=False)
    theta = given.encode(given.initial_parameters)
    slopes = segments.derivative(theta, segments.starts).by_parameters
    for j in range(len(free)):
        h = 1e-4 * np.eye(len(free))[j]
        residual, _ = segments.residuals(np.stack([theta - h, theta + h]), segments.starts)
        np.testing.assert_allclose(slopes[..., j], (residual[1] - residual[0]) / 2e-4, atol=2e-5)
    assert given.view_at(theta) == view


def test_a_cameras_pose_is_found() -> None:
    recording = driven(Sensor(rate=40.0))[0]
    values = in_space().function(np.repeat(recording.values, 2, axis=1))
    seen = Trajectory(recording.times, recording.controls, values, in_space().names, ("m",) * 3, ("force",), ("N",))
    camera = Sensor(noise=1e-3, turn=0.05, tilt=-0.03, scale=1.02)
    made = camera(seen, Spring(), Procedure(stages=()), np.random.default_rng(0))
    found = single_shooting(problem(TrajectorySet((made,)), free=POSE[:3], start=GROUND_TRUTH, measurement=in_space()))
    for name, value in (("turn", 0.05), ("tilt", -0.03), ("scale", 1.02)):
        low, high = found.intervals[name]
        assert abs(getattr(found.view, name) - value) < 1e-3 and high - low < 0.01


TORSION = PlainStructure(
    StateLayout(Field("mass", None, ("x", "rad"), ("vx", "rad/s"))),
    ("torque",), ("N m",), (-np.ones(1), np.ones(1)), np.zeros(2),
)  # fmt: skip
SENSED_CANDIDATE_CAUSES = {
    "another zero": ("angle_offset",),
    "another gain": ("angle_gain",),
    "commands that act late": ("latency",),
}


@pytest.mark.parametrize("columns", [("mass.x", "mass.vx"), ("mass.x",)])
@pytest.mark.parametrize(("cause", "name", "value"), [("zero", "angle_offset", 0.05), ("gain", "angle_gain", 1.04)])
def test_a_sensor_of_angles_that_is_off_is_named(columns: tuple[str, ...], cause: str, name: str, value: float) -> None:
    """A torsion spring; how strongly commands act is known, so that the gain is told from it. Chances are 1e-4 or less."""
    spring = Spring(model=TORSION)
    exact = record(spring, GROUND_TRUTH, steps=300, noise={"mass.x": 0.004, "mass.vx": 0.02})[0]
    seen = Sensor(**{name: value})._posed(exact.values, exact)
    data = TrajectorySet((replace(exact, values=seen).select(columns),))
    start = GROUND_TRUTH.replace(stiffness=60.0, damping=1.2)
    given = FitProblem(spring, data, ("stiffness", "damping"), start=start, free_initial=True, measured=columns)
    fit = lambda p: multiple_shooting(p, ShootingOptions(segment_steps=100))  # noqa: E731
    blind = fit(given)
    (said,) = candidate(SENSED_CANDIDATE_CAUSES, fit, given, blind).of("likely_cause")
    assert not blind.explained and said.parameter.endswith(f"another {cause}") and list(said.facts["values"]) == [name]
    assert said.facts["adequate"]
    found = fit(given.replace(free=("stiffness", "damping", name)))
    low, high = found.intervals[name]
    assert abs(value - 0.5 * (low + high)) < 2.0 * (high - low) and high - low < 0.02


def test_a_sensor_of_angles_is_not_freed_where_predictions_begin_at_what_it_says() -> None:
    spring = Spring(model=TORSION)
    data = record(spring, GROUND_TRUTH, steps=100, noise=0.004)
    with pytest.raises(OptionError, match="angle_gain is free: predictions must not begin"):
        FitProblem(spring, data, ("stiffness", "angle_gain"), start=GROUND_TRUTH, free_initial=False)


def turned() -> FitProblem:
    """A point in space before a camera that is turned by 0.05 rad."""
    recording = driven(Sensor(rate=40.0))[0]
    values = in_space().function(np.repeat(recording.values, 2, axis=1))
    seen = Trajectory(recording.times, recording.controls, values, in_space().names, ("m",) * 3, ("force",), ("N",))
    made = Sensor(noise=1e-3, turn=0.05)(seen, Spring(), Procedure(stages=()), np.random.default_rng(0))
    return problem(TrajectorySet((made,)), free=FREE, start=GROUND_TRUTH, measurement=in_space())


def test_the_likeliest_cause_is_named() -> None:
    given = turned()
    blind = single_shooting(given)
    trying: list[str] = []
    (said,) = candidate(CANDIDATE_CAUSES, single_shooting, given, blind, Search(say=trying.append)).of("likely_cause")
    assert len(trying) == len(CANDIDATE_CAUSES) > 1
    for count, (line, words) in enumerate(zip(trying, CANDIDATE_CAUSES, strict=True), 1):
        assert line.startswith(f"the model does not explain the data; trying {words} ({count} of {len(trying)}")
    assert not blind.explained and said.parameter == "a turned camera" and said.facts["adequate"]
    none = candidate({"commands that act late": ("latency",)}, single_shooting, given, blind).diagnostics[-1]
    assert none.sentence().endswith("is unknown; tried: commands that act late")
    alone = candidate({"a turned camera": ("turn",)}, single_shooting, given, blind).diagnostics[-1]
    assert alone.sentence().startswith("the likeliest cause (no other was tried) is a turned camera")
    right = single_shooting(given.replace(free=(*FREE, "turn")))
    assert candidate(CANDIDATE_CAUSES, single_shooting, given, right) is right  # nothing to explain
    advice = candidate({}, single_shooting, given, blind, untried="a lens").diagnostics[-1]
    assert advice.sentence() == "why the model does not explain the data is unknown; not tried: a lens"


def test_a_number_that_hangs_on_a_held_constant_is_said_to() -> None:
    """Only ratios to the mass move a spring: with another one held, the same data are explained by other numbers."""
    given = problem(driven(Sensor(rate=40.0, noise=2e-3)), free=FREE)
    found = single_shooting(given)
    trying: list[str] = []
    told = conditional(("mass",), single_shooting, given, found, Search(say=trying.append))
    assert trying == ["the data are explained; trying mass free, too (1 of 1)"]
    assert found.explained and told.codes[0] == "identified_with_reservations" and told.estimates == found.estimates
    assert told.diagnostics[-1].sentence().startswith("stiffness, damping, gain: only for mass = 3, which is fixed")
    assert conditional(("paint",), single_shooting, given, found) is found  # it has no effect


def test_the_robust_loss_has_its_gradient() -> None:
    given = problem(driven(Sensor(rate=40.0, noise=2e-3, outliers=0.05)))
    segments = cut(given, given.split.train, 100, free=True, exact=False)
    system, theta = ShootingSystem(segments, np.array([0.01]), HUBER), given.encode(given.initial_parameters)
    rows = system.compress(theta, segments.starts)
    gradient = np.einsum("sqj,sq->j", rows[:, :, 2:5], rows[:, :, -1])
    for j in range(3):
        h = 1e-5 * np.eye(4)[j]
        numeric = (system.cost(theta + h, segments.starts) - system.cost(theta - h, segments.starts)) / 2e-5
        np.testing.assert_allclose(gradient[j], numeric, rtol=1e-4)


def test_outliers_and_gaps_spoil_nothing() -> None:
    """The same recording with 5 % of its points 0.3 m elsewhere: estimates move by less than half a standard deviation."""
    camera = Sensor(rate=40.0, noise=2e-3, dropout=0.05, outlier_size=0.3)
    clean, bad = (single_shooting(problem(driven(replace(camera, outliers=share))), robust()) for share in (0.0, 0.05))
    assert bad.explained and bad.of("outliers")
    for name in clean.free:
        low, high = clean.intervals[name]
        values = [next(e.value for e in fit.estimates if e.name == name) for fit in (clean, bad)]
        assert abs(values[0] - values[1]) < 0.25 * (high - low) + 0.1 * (high - low)
    spoilt = single_shooting(problem(driven(Sensor(rate=40.0, noise=2e-3, outliers=0.05, outlier_size=0.3))))
    assert next(iter(spoilt.noise.values())) > 20 * next(iter(bad.noise.values()))


def test_values_that_stand_alone_are_left_out_of_fits_by_squares() -> None:
    """As above, by a procedure whose stage knows nothing of outliers."""
    camera = Sensor(rate=40.0, noise=2e-3, dropout=0.05, outlier_size=0.3)
    stage = Stage("seen", "", (*FREE, "latency"), "single_shooting")
    clean, bad = (by_procedure(stage, driven(replace(camera, outliers=share), seconds=8.0)) for share in (0.0, 0.01))
    assert clean.explained and not clean.of("lone_outliers")
    assert bad.explained and bad.of("lone_outliers")[0].limit == 6
    for name in clean.free:
        low, high = clean.intervals[name]
        values = [next(e.value for e in fit.estimates if e.name == name) for fit in (clean, bad)]
        assert abs(values[0] - values[1]) < 0.25 * (high - low) + 0.1 * (high - low)


def test_a_wrong_model_stays_wrong_without_values_that_stand_alone() -> None:
    stage = Stage("seen", "", FREE, "single_shooting")
    late = driven(Sensor(rate=40.0, noise=2e-3, outliers=0.01, outlier_size=0.3, latency=0.03), seconds=8.0)
    assert not by_procedure(stage, late).explained


def by_procedure(stage: Stage, recordings: TrajectorySet) -> FitResult:
    given = problem(recordings, free=stage.free)
    return fit_stage(Procedure((stage,)), stage, given, folder=None, resume=False, progress=None)


def robust() -> ShootingOptions:
    return ShootingOptions(loss="robust")


def test_what_the_model_does_not_know_is_no_outlier() -> None:
    """Half of the points elsewhere: nothing is left out, and the diagnostics stand."""
    found = single_shooting(problem(driven(Sensor(rate=40.0, noise=2e-3, outliers=0.5, outlier_size=0.05))), robust())
    assert not found.of("outliers")


def test_a_recording_that_is_mostly_elsewhere_is_not_emptied() -> None:
    """Few points of all, most of one recording: nothing is left out, where no fit would take the rest."""
    sizes = ((0.0, 12.0), (0.9, 1.0))
    seen = [driven(Sensor(rate=40.0, noise=2e-3, outliers=p, outlier_size=0.3), seconds=t)[0] for p, t in sizes]
    brief = replace(
        robust(), intervals=IntervalOptions(model_error=False), reweight=1, levenberg=LevenbergOptions(max_iterations=5)
    )
    found = single_shooting(problem(TrajectorySet(tuple(seen))), brief)
    assert not found.of("outliers")


def test_noise_is_told_in_spite_of_outliers() -> None:
    for share in (0.0, 0.02):
        recordings = driven(Sensor(rate=200.0, noise=2e-3, outliers=share), seconds=10.0)
        assert abs(noise_of(recordings, ("mass.x",))["mass.x"] / 2e-3 - 1.0) < 0.05


def test_what_is_known_of_a_start_is_no_unknown() -> None:
    given = problem(driven(Sensor(rate=40.0)), known_initial=("mass.v*",))
    assert given.unknown_start.tolist() == [0]
    segments = cut(given, given.split.train, None, free=True, exact=False)
    slopes = segments.derivative(given.encode(given.initial_parameters), segments.starts).starts
    assert np.abs(slopes[..., 0]).max() > 0.5 and np.abs(slopes[..., 1]).max() == 0.0


def test_effects_of_a_start_that_died_out_are_not_simulated() -> None:
    """A strongly damped mass: derivatives of the second half are zero, those of the first as without the shortcut."""
    recordings = driven(Sensor(rate=100.0))
    heavy = problem(recordings, start=SpringParameters(mass=1.0, damping=40.0, stiffness=300.0))
    segments, theta = cut(heavy, recordings, None, free=True, exact=False), heavy.encode(heavy.initial_parameters)
    quick = segments.derivative(theta, segments.starts).starts
    residual = segments.residuals(theta[None], segments.starts)[0][0]
    whole = segments._along_unknowns(theta, segments.starts, [len(theta), len(theta) + 1], residual)
    np.testing.assert_allclose(quick, whole, atol=1e-3)
    assert np.abs(quick[:, 200:]).max() == 0.0 and np.abs(quick[:, :30]).max() > 0.1


def test_methods_that_know_no_latency_say_so() -> None:
    given = problem(driven(Sensor(rate=40.0)))
    with pytest.raises(OptionError, match="cma_es knows no parameters of recordings"):
        METHODS["cma_es"].fit(given)
    with pytest.raises(OptionError, match="no exact derivatives for"):
        single_shooting(given, ShootingOptions(jacobian="exact"))
    with pytest.raises(ParameterError, match="unknown parameter 'lateness'"):
        problem(driven(Sensor(rate=40.0)), free=("lateness",))
