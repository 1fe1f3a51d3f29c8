"""Recordings as a camera and a laboratory write them, right and wrong, through scripts/identify.py."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import run_script
from rigid_ground_truth import jumping
from rigid_ground_truth import slide as pushed
from sysid_systems import Spring, SpringParameters, record

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.procedure import StageData, StageSimulator
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.systems.rigid.dynamics import BlockSimulator, ParticleSimulator
from softgym_envs.systems.rigid.experiments import record as record_rigid
from softgym_envs.systems.rigid.model import BlockModel
from softgym_envs.systems.rigid.parameters import BlockParameters
from softgym_envs.systems.rigid.procedure import BLOCK, CAMERA, first_state
from softgym_envs.systems.vine import VineModel
from softgym_envs.systems.vine.dynamics import VineSimulator
from softgym_envs.systems.vine.parameters import VineParameters
from softgym_envs.systems.vine.procedure import PROCEDURE as VINE
from softgym_envs.systems.vine.procedure import along_body
from sysid import FitProblem, identify, load
from sysid.diagnostics.intervals import IntervalOptions
from sysid.fitting.shooting import ShootingOptions, single_shooting
from sysid.least_squares.levenberg import LevenbergOptions
from sysid.procedure.job import Job, all_recognised, unused
from sysid.procedure.mislabelled import LARGE, with_other_labels
from sysid.procedure.stage_problem import stage_problem


def slide(rate: float, seconds: float = 0.8, friction: float = 0.4, seed: int = 0) -> Trajectory:
    """The block under its weight, seen at a rate of frames per second, with 10 physics steps or more per frame."""
    simulator = BlockSimulator(dt=1.0 / rate / np.ceil(100.0 / rate))
    controls = np.zeros((round(seconds * rate), 2))
    parameter_values, rng = BlockParameters(friction=friction), np.random.default_rng(seed)
    return record_rigid(simulator, np.zeros(6), controls, parameter_values, noise=CAMERA, rng=rng, period=1.0 / rate)


def table(path: Path, times: Sequence[str], columns: dict[str, Any]) -> Path:
    """A wide CSV: what the header says -> numbers."""
    rows = [
        ",".join([time, *(repr(float(v)) for v in row)])
        for time, row in zip(times, np.transpose(list(columns.values())), strict=True)
    ]
    path.write_text("\n".join([",".join(["time [s]" if "." in times[1] else "frame", *columns]), *rows]) + "\n")
    return path


def test_a_camera_of_any_rate_that_counts_frames_and_has_y_down_shows_friction(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Frames for times, image coordinates, angles modulo 360 degrees."""
    pytest.importorskip("casadi")
    rate = 29.97
    run = slide(rate, seed=1)
    x, y, theta = run.values.T
    wrapped = np.rad2deg(-theta) % 360.0
    columns = {"x [mm]": 1e3 * x, "y [mm]": -1e3 * y, "theta [deg]": wrapped}
    path = table(tmp_path / "camera.csv", [str(k) for k in range(len(x))], columns)
    told = ("--data", path, "--fps", rate, "--flip-y", "--out", tmp_path / "fit")
    assert run_script(script, "block", *told) == 0
    said = capsys.readouterr().out
    assert "1 of 1 parameters identified" in said and "theta jumps by whole turns from line to line: unwrapped" in said
    assert "residuals that are not noise: num_directions 512 -> 32" in said  # edges of our own engine's cone
    assert BlockParameters.load(tmp_path / "fit" / "fit.toml").friction == pytest.approx(0.4, abs=0.01)


def test_a_camera_of_irregular_frames_shows_friction(script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """50 frames/s, each up to 4 ms off, as the stamps say; the block moves 1.4 mm meanwhile."""
    pytest.importorskip("casadi")
    fine, rng = slide(1000.0, seconds=1.0, seed=3, friction=0.35), np.random.default_rng(3)
    rows = np.rint(20.0 * np.arange(50) + rng.uniform(0.0, 8.0, 50)).astype(int)
    x, y, theta = fine.values[rows].T
    columns = {"x [m]": x, "y [m]": y, "theta [rad]": theta}
    path = table(tmp_path / "camera.csv", [f"{fine.times[row]:.3f}" for row in rows], columns)
    assert run_script(script, "block", "--data", path, "--free-motion", "--out", tmp_path / "fit") == 0
    said = capsys.readouterr().out
    assert "1 of 1 parameters identified" in said and "note: times are irregular, up to" in said
    (found,) = json.loads((tmp_path / "fit" / "fit.json").read_text())["estimates"]
    assert found["interval"][0] <= 0.35 <= found["interval"][1]


def test_noise_that_is_stated_too_small_is_named_and_no_axis_is_blamed(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Residuals by the stated noise were held against residuals by the recordings' own: y was said to point down."""
    pytest.importorskip("casadi")
    run = slide(100.0, seed=2)
    x, y, theta = run.values.T
    path = table(tmp_path / "a.csv", [f"{t:.3f}" for t in run.times], {"x [m]": x, "y [m]": y, "theta [rad]": theta})
    noise = [word for name, std in CAMERA.items() for word in (name, std / 80.0)]
    assert run_script(script, "block", "--data", path, "--free-motion", "--noise", *noise, "--out", tmp_path / "fit") == 0
    said = capsys.readouterr().out
    assert "times smaller than the recordings' own" in said and "--flip-y" not in said


def test_frames_without_a_rate_end_in_a_sentence_that_names_the_flag(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path / "camera.csv", [str(k) for k in range(20)], {"x [m]": np.arange(20.0)})
    assert run_script(script, "block", "--data", path) == 2
    assert "say how many frames a second has with --fps" in capsys.readouterr().err


@pytest.mark.parametrize(("label", "factor"), [("m", 1e3), ("mm", 1e6)])
def test_millimetres_called_metres_end_in_a_sentence(
    script: Any, tmp_path: Path, label: str, factor: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """A thousand times too large, whatever the label says: accelerations of 1000 m/s^2 that no force explains."""
    run = slide(50)
    x, y, theta = run.values.T
    columns = {f"x [{label}]": factor * x, f"y [{label}]": factor * y, "theta [rad]": theta}
    path = table(tmp_path / "camera.csv", [f"{t:.3f}" for t in run.times], columns)
    assert run_script(script, "block", "--data", path, "--out", tmp_path / "fit") == 2
    assert "wrong units: the columns in m accelerate by" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("robot", "header", "message"),
    [
        ("block", "x [deg]", "x is in rad or mrad or deg or rev, expected m or dm"),
        ("block", "theta [mm]", "theta is in m or dm or cm or mm"),
        ("block", "control:force_x [Pa]", "control:force_x is in Pa or hPa"),
        ("box", "x [s]", "x is in s or ms or us or ns or min, expected m"),
    ],
)
def test_a_column_of_another_dimension_is_refused(robot: str, header: str, message: str, tmp_path: Path) -> None:
    """Positions in degrees were fitted as metres: a friction of 0.09 for 0.3, reported as identified."""
    path = table(tmp_path / "camera.csv", [f"{0.02 * k:.3f}" for k in range(40)], {header: np.linspace(0.0, 0.1, 40) ** 2})
    with pytest.raises(DataError, match=f"camera.csv: wrong units: {message}"):
        identify(robot, load(path), free_motion=True)


def test_a_list_of_files_is_refused() -> None:
    with pytest.raises(OptionError, match=r"a file is \['a.csv', 'b.csv'\], expected a path; give several one after another"):
        load(["a.csv", "b.csv"])  # type: ignore[arg-type]


def problem(run: Trajectory, simulator: Any) -> FitProblem:
    return FitProblem(simulator, TrajectorySet((run,)), free=("friction",), free_motion=True)


def test_a_long_slide_is_not_taken_for_wrong_units() -> None:
    """400 frames of a particle that a force pushes 4 km far, and 400 of a block that is pulled."""
    simulator = ParticleSimulator()
    noise = {"x": 1e-3, "y": 1e-3}
    run = record_rigid(simulator, np.array([0.0, 3.0, 0, 0]), np.full((400, 1), 5.0), noise=noise, rng=np.random.default_rng(0))
    assert np.ptp(run.values[:, 0]) > 30 * 3.0
    assert not problem(run, simulator).full_state
    block = BlockSimulator()
    start = np.array([0.0, 0.0, 0.0, -2.0, 0.5, 1.0])
    thrown = record_rigid(
        block, start, np.zeros((400, 2)), BlockParameters(weight=0.0), noise=CAMERA, rng=np.random.default_rng(0)
    )
    assert not problem(thrown, block).full_state


def test_what_rests_or_is_thrown_fast_is_not_taken_for_wrong_units() -> None:
    block = BlockSimulator()
    for speed, friction in ((0.0, 1.0), (8.0, 0.4)):
        parameter_values = BlockParameters(friction=friction, weight=0.0 if speed else 0.1)
        start = np.array([0.0, 0.0, 0.0, -speed, 0.3 * speed, speed])
        run = record_rigid(block, start, np.zeros((60, 2)), parameter_values, noise=CAMERA, rng=np.random.default_rng(0))
        assert not problem(run, block).full_state


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ((1e-3, 1e-3, 1.0), "lengths look as if they were given in km (1000 x too small)"),
        ((10.0, 10.0, 1.0), "lengths look as if they were given in dm (10 x too large)"),
        ((1.0, 1.0, np.pi / 180), "angles look as if radians were called degrees"),
    ],
    ids=["metres called millimetres", "millimetres called centimetres", "radians called degrees"],
)
def test_a_wrong_label_of_a_free_motion_is_named(factors: tuple[float, ...], words: str) -> None:
    """What no acceleration betrays beforehand: the fit ends in the label that explains the recording, and in its friction."""
    run = slide(50)
    given = problem(replace(run, values=run.values * factors), BlockSimulator()).with_estimated_noise()
    found = with_other_labels(given, single_shooting(given))
    assert found.diagnostics[0].sentence().startswith(f"wrong units: the {words}; with that correction, residuals are")
    assert "friction = 0.39" in found.diagnostics[0].facts["told"] and not found.usable


def test_a_factor_is_no_certainty_where_the_robot_is_another_one() -> None:
    """Centimetres of a block without a string, called metres, and fitted with one: decimetres explain them best, but badly."""
    free, string = BlockSimulator(BlockModel(pulley=None)), BlockSimulator()
    start, parameter_values = np.array([0.0, 0.0, 0.0, -1.0, 0.3, 1.0]), BlockParameters(friction=0.1, weight=0.0)
    run = record_rigid(
        free, start, np.zeros((40, 2)), parameter_values, noise=CAMERA, rng=np.random.default_rng(0), period=0.02
    )
    wrong = replace(run, values=run.values * [100.0, 100.0, 1.0])
    for simulator, sure in ((free, True), (string, False)):
        given = problem(wrong, simulator).replace(initial_state=first_state(simulator, wrong.names)).with_estimated_noise()
        said = with_other_labels(given, single_shooting(given)).diagnostics[0]
        assert said.parameter.endswith("given in cm (100 x too large)") == sure == (said.value <= said.limit)
        assert said.code == "wrong_label" and said.facts["what"] == "units"


def test_a_wrong_label_is_named_whatever_noise_is_stated() -> None:
    """Degrees called radians, and the noise of a camera in radians, as a page tells: the label is found all the same."""
    run = slide(50)
    given = problem(replace(run, values=run.values * [1.0, 1.0, 180 / np.pi]), BlockSimulator()).replace(noise=CAMERA)
    found = with_other_labels(given, single_shooting(given))
    assert found.codes[0] == "wrong_label"
    assert found.diagnostics[0].parameter.startswith("the angles look as if they were given in degrees")


def test_another_robot_is_not_taken_for_wrong_units() -> None:
    """Five times the inertia: nothing explains it but that."""
    simulator, parameter_values = BlockSimulator(), BlockParameters(inertia=0.0335)
    run = record_rigid(
        simulator, np.zeros(6), np.zeros((40, 2)), parameter_values, noise=CAMERA, rng=np.random.default_rng(0), period=0.02
    )
    given = problem(run, simulator).with_estimated_noise()
    result = single_shooting(given)
    assert result.reduced_chi2 > LARGE**2
    assert with_other_labels(given, result) is result


def test_degrees_called_radians_end_in_a_sentence(script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the documented command, which took them for a friction of 0.98."""
    pytest.importorskip("casadi")
    run = slide(50)
    x, y, theta = run.values.T
    columns = {"x [m]": x, "y [m]": y, "theta [rad]": np.rad2deg(theta)}
    path = table(tmp_path / "camera.csv", [f"{t:.3f}" for t in run.times], columns)
    assert run_script(script, "block", "--data", path, "--out", tmp_path / "fit") == 2
    assert "[do_not_use] wrong units: the angles look as if they were given in degrees" in capsys.readouterr().out


def test_a_recording_of_no_experiment_beside_others_ends_in_a_sentence() -> None:
    assert all_recognised(["air", "air"]) == ["air", "air"] and all_recognised(["", ""]) == ["", ""]
    with pytest.raises(OptionError, match=r"recording 2 of 3 looks like no experiment, others like air, throws"):
        all_recognised(["air", "", "throws"])


def test_columns_that_the_robot_calls_otherwise_are_hinted_at() -> None:
    run = slide(50, seconds=0.2)
    more = replace(
        run, values=np.column_stack([run.values, 0 * run.times]), names=(*run.names, "xdot"), units=(*run.units, "m/s")
    )
    said = unused(problem(more, BlockSimulator()), TrajectorySet((more,)))
    assert said == "note: recorded, but not used: xdot; columns that it has in these units are vx, vy"


# --- iterations --------------------------------------------------------------------------------------------------------


def test_iterations_are_raised_where_the_message_asks_for_it(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One iteration is too few: the advice is a flag that this script has, and following it helps."""
    from test_sysid_script import SPRING

    record(Spring(), SpringParameters(mass=2.0, stiffness=45.0, damping=0.8, gain=2.0), steps=60).save(tmp_path / "data.h5")
    told = ("--data", tmp_path / "data.h5", "--method", "single_shooting", "--settings", "starts=1", "--out", tmp_path / "fit")
    run_script(script, SPRING, *told, "--max-iterations", 1)
    said = capsys.readouterr().out
    assert "not converged" in said and "raise --max-iterations" in said
    assert run_script(script, SPRING, *told, "--max-iterations", 60) == 0
    assert "3 of 3 parameters identified" in capsys.readouterr().out


def test_a_fit_that_creeps_at_its_optimum_may_be_used() -> None:
    """Stopped at its last iteration, where one more step would move no parameter by a tenth of its standard deviation."""
    ground_truth = SpringParameters(mass=3.0, stiffness=45.0, damping=0.8, gain=2.0)
    data = record(Spring(), ground_truth, noise=0.01)
    found = FitProblem(Spring(), data, free=("stiffness", "damping"), start=ground_truth, free_initial=True)
    patient = single_shooting(found, ShootingOptions(reweight=0))
    for most, usable in ((1, False), (6, True)):
        far = found.replace(start=ground_truth.replace(stiffness=44.0, damping=0.7))
        settings = LevenbergOptions(max_iterations=most, cost_tolerance=1e-15)
        hurried = single_shooting(far, ShootingOptions(reweight=0, levenberg=settings))
        assert hurried.log[-1].iteration == most and hurried.converged == usable
    moved = abs(hurried.parameters.stiffness - patient.parameters.stiffness) / patient.std["stiffness"]
    assert moved < 0.2 and hurried.usable
    near = found.replace(start=ground_truth.replace(stiffness=44.5, damping=0.74))
    one = single_shooting(near, ShootingOptions(reweight=0, levenberg=LevenbergOptions(max_iterations=1, cost_tolerance=1e-15)))
    assert one.converged and "intervals reach so much farther" in one.diagnostics[0].facts["why"]
    for wide, plain in zip(one.estimates, patient.estimates, strict=True):  # by as much as it may be off
        reach = np.log(wide.interval[1] / wide.value) - np.log(plain.interval[1] / plain.value)
        assert reach == pytest.approx(abs(np.log(plain.value / wide.value)), rel=0.5, abs=1e-4)


# --- a vine without its tip --------------------------------------------------------------------------------------------


def test_points_keep_their_places_when_only_some_are_fitted() -> None:
    """Without the tip among --columns, point 12 of 0 ... 20 is still at 12/20 of the length."""
    model = VineModel(num_links=5, max_length=0.45, initial_length=0.4, num_sections=0)
    simulator = VineSimulator(model, 1 / 480, "linear")
    start = model.straight_state(0.4)
    model.split(start).theta[:] += np.linspace(0.05, 0.4, 5)
    states, _ = simulator.rollout(start[None], np.zeros((1, 60, model.nu)), VineParameters(), substeps=2)
    values = along_body(model, states[0], np.linspace(0.0, 1.0, 21)).reshape(61, -1)
    names = tuple(f"point{k}.{axis}" for k in range(21) for axis in "xy")
    run = Trajectory(np.arange(61) / 240, np.zeros((60, model.nu)), values, names, ("m",) * 42, model.control_names,
                     ("m/s", *["Pa"] * (model.nu - 1)), 2)  # fmt: skip
    chosen = ("point4.x", "point4.y", "point12.y")
    stage = replace(VINE.from_recordings, simulator=StageSimulator(), data=StageData(free_motion=True))  # type: ignore[type-var]
    found = stage_problem(VINE, stage, simulator, TrajectorySet((run,)), start=VineParameters(), measured=chosen)
    assert found.column_names == chosen
    np.testing.assert_allclose(found.observe(states[0]), run.select(chosen).values, atol=1e-12)
    assert VINE.recorded.remark is not None and VINE.recorded.remark(simulator, run) == ""
    assert "a body 0.48 m long, the model's is 0.45 m fully grown" in VINE.recorded.remark(
        simulator, replace(run, values=1.2 * run.values)
    )
    grown = replace(simulator, model=replace(model, initial_length=0.45))
    assert "a body 0.4 m long, the model's is 0.45 m fully grown" in VINE.recorded.remark(grown, run)
    assert "point0 is 10 mm from the model's base" in VINE.recorded.remark(
        simulator, replace(run, values=run.values + [0.01, 0.0] * 21)
    )
    with pytest.raises(DataError, match=r"missing column 'point40\.x'"):
        stage_problem(VINE, stage, simulator, TrajectorySet((run,)), start=VineParameters(), measured=("point40.x",))


def test_a_mirrored_camera_and_exchanged_columns_are_named() -> None:
    """What no factor mends: y that points down, with angles, and x for y."""
    run = slide(50)
    x, y, theta = run.values.T
    for values, what, words in (
        ((x, -y, -theta), "axes", "y and angles look as if they were in image coordinates, y down"),
        ((y, x, theta), "columns", "x and y look exchanged"),
    ):
        given = problem(replace(run, values=np.stack(values, axis=1)), BlockSimulator()).with_estimated_noise()
        found = with_other_labels(given, single_shooting(given))
        said = found.diagnostics[0]
        assert (said.code, said.facts["what"], said.parameter) == ("wrong_label", what, words) and not found.usable
        assert said.facts["told"].startswith(("friction = 0.39", "friction = 0.40"))


def test_a_block_that_is_pushed_hard_is_explained_and_late_forces_are_found(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a formulation of its own, at 50 Hz; in steps of 10 ms its own physics was off by ten times this noise."""
    pytest.importorskip("casadi")
    rng = np.random.default_rng(5)
    forces, noise = jumping(rng, 1.0), np.array([5e-4, 5e-4, 3e-3])
    path = pushed(1.0, 0.3, lambda t: forces[int(t / 0.2 + 1e-9)])[::400, :3]
    seen = path + noise * rng.standard_normal(path.shape)
    held = np.append(np.repeat(forces[:5], 10, axis=0), forces[5:6], axis=0)
    (tmp_path / "block.toml").write_text("[block]\n")
    columns = {
        "x [m]": seen[:, 0],
        "y [m]": seen[:, 1],
        "theta [rad]": seen[:, 2],
        "control:force_x [N]": held[:, 0],
        "control:force_y [N]": held[:, 1],
    }
    file = table(tmp_path / "pushed.csv", [f"{0.02 * k:.3f}" for k in range(len(seen))], columns)
    told = ("--model", tmp_path / "block.toml", "--data", file, "--out", tmp_path / "fit")
    assert run_script(script, "block", *told) == 0
    assert "1 of 1 parameters identified" in capsys.readouterr().out
    (found,) = json.loads((tmp_path / "fit" / "fit.json").read_text())["estimates"]
    assert abs(found["value"] - 0.3) < 2.0 * (found["interval"][1] - found["interval"][0])
    assert "latency" in BLOCK.from_recordings.causes.candidates["forces that act late"]
    (recording,) = Job("block", load(file), model=str(tmp_path / "block.toml")).prepared()[2]
    early = replace(recording, controls=np.concatenate([recording.controls[1:], recording.controls[-1:]]))
    ground_truth = BlockSimulator(BlockModel(pulley=None, num_directions=512), 2.5e-4)
    asked = FitProblem(
        ground_truth, TrajectorySet((early,)), ("friction", "latency"), initial_state=first_state(ground_truth, early.names)
    )
    late = single_shooting(
        asked.replace(noise=dict(zip(early.names, noise, strict=True))),
        ShootingOptions(intervals=IntervalOptions(prediction_errors=False)),
    )
    assert late.estimates[1].name == "latency" and late.estimates[1].value == pytest.approx(0.02, abs=2e-3)
