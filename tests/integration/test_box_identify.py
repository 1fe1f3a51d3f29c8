"""What cameras saw of throws becomes the parameters of contact; through the system's procedure, as `identify box` runs it."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import load_script, run_script

from softgym_envs.core import lie
from softgym_envs.core.errors import DataError, FileFormatError, StructureError
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.systems.box.dynamics import BoxSimulator
from softgym_envs.systems.box.experiments import NOISE, TURN_NOISE, posed, thrown
from softgym_envs.systems.box.flight import FLIGHT_ROWS, STRIKE_HEIGHT, begun, first_state, flying
from softgym_envs.systems.box.model import BoxModel, cube, square
from softgym_envs.systems.box.parameters import BoxParameters
from softgym_envs.systems.box.procedure import PROCEDURE
from softgym_envs.systems.box.scene_file import load_box
from sysid import FitProblem
from sysid.diagnostics.residuals import estimated_noise
from sysid.least_squares.cutting import cut
from sysid.least_squares.system import channel_scale
from sysid.procedure.stage import fit_stage
from sysid.procedure.stage_problem import stage_problem

GROUND_TRUTH = BoxParameters(friction=0.3, restitution=0.35, inertia=1.1, table=0.01, rounding=0.003)


def throws(model: Any, count: int, seed: int = 0, ground_truth: BoxParameters = GROUND_TRUTH) -> TrajectorySet:
    simulator, rng = BoxSimulator(model), np.random.default_rng(seed)
    return TrajectorySet(tuple(PROCEDURE.record_one("tossed", simulator, rng, parameters=ground_truth) for _ in range(count)))


HOLDING = BoxParameters(friction=0.65, restitution=0.17, inertia=0.76, gravity=10.03, table=-0.011, rounding=0.0019)
"""Corners mostly stick."""


@pytest.mark.parametrize(("model", "ground_truth"), [(cube(), GROUND_TRUTH), (square(), GROUND_TRUTH), (cube(), HOLDING)])
def test_throws_tell_the_constants_of_contact(model: Any, ground_truth: BoxParameters) -> None:
    """By chance one of five is off by more than 2.5 half widths of its 95 % interval once in 10^5 fits."""
    simulator, data, start = BoxSimulator(model), throws(model, 6, ground_truth=ground_truth), BoxParameters()
    for stage in PROCEDURE.stages:
        problem = stage_problem(PROCEDURE, stage, simulator, data, start=start)
        result = fit_stage(PROCEDURE, stage, problem, folder=None, resume=False, progress=None)
        start = result.parameters
    assert result.converged and result.explained, result.summary()
    off = {}
    for estimate in result.estimates:
        low, high = estimate.interval
        off[estimate.name] = abs(estimate.value - getattr(ground_truth, estimate.name)) / max(0.5 * (high - low), 1e-12)
    assert np.median([off[name] for name in ("friction", "restitution", "inertia", "table", "rounding")]) < 1.0, off
    assert max(off.values()) < 2.5, off


def test_four_numbers_of_a_quaternion_count_as_three() -> None:
    """Errors of 2 mrad are 1e-3 across a quaternion and nothing along it; 5 % are four standard errors of 3700 numbers.

    Taken for four numbers of 0.87e-3 each, attitudes told of parameters as if there were a third more of them.
    """
    simulator, recordings = BoxSimulator(), throws(cube(), 12)
    states, rng = [], np.random.default_rng(0)
    for recording in recordings:
        start = thrown(simulator, copy.deepcopy(rng), GROUND_TRUTH)
        states.append(simulator.rollout(start[None], recording.controls[None], GROUND_TRUTH, substeps=2)[0][0])
        PROCEDURE.record_one("tossed", simulator, rng, parameters=GROUND_TRUTH)
    problem = FitProblem(simulator, recordings, free=("friction",), start=GROUND_TRUTH, free_motion=True)
    segments = cut(problem, recordings, None, free=True, exact=True, states=states)
    assert segments.measured == 6 * sum(len(recording.times) for recording in recordings)
    found = estimated_noise(segments, problem.encode(GROUND_TRUTH), segments.starts, channel_scale(segments))
    fitted = 1 + 12 * len(recordings)  # unknowns that it takes off, though nothing was fitted
    noise = found * np.sqrt(1.0 - fitted / segments.measured)
    np.testing.assert_allclose(noise, [NOISE] * 3 + [0.5 * TURN_NOISE] * 4, rtol=0.05)


def test_the_state_at_the_start_is_told_from_poses() -> None:
    simulator = BoxSimulator()
    start = thrown(simulator, np.random.default_rng(3))
    states, _ = simulator.rollout(start[None], np.zeros((1, FLIGHT_ROWS, 3)), substeps=2)
    layout = simulator.model.layout
    seen = Trajectory(
        times=np.arange(FLIGHT_ROWS + 1) / 148, controls=np.zeros((FLIGHT_ROWS, 3)), values=states[0, :, :7],
        names=layout.names[:7],
        units=layout.units[:7], control_names=simulator.control_names, control_units=("N",) * 3, substeps=2,
    )  # fmt: skip
    found = first_state(seen, simulator)
    np.testing.assert_allclose(found[:10], start[:10], atol=1e-6)
    np.testing.assert_allclose(found[10:], start[10:], atol=1e-6)


def recorded(simulator: BoxSimulator, start: np.ndarray, rows: int, restitution: float = 0.12) -> Trajectory:
    """What cameras see without noise, five physics steps a row."""
    parameters = BoxParameters(restitution=restitution)
    states, _ = simulator.rollout(start[None], np.zeros((1, rows - 1, simulator.nu)), parameters, substeps=5)
    layout, poses = simulator.model.layout, len(simulator.model.measured)
    return Trajectory(
        times=5 * simulator.dt * np.arange(rows), controls=np.zeros((rows - 1, simulator.nu)), values=states[0, :, :poses],
        names=layout.names[:poses], units=layout.units[:poses], control_names=simulator.control_names,
        control_units=simulator.model.control_units, substeps=5,
    )  # fmt: skip


@pytest.mark.parametrize("model", [square(), BoxModel((0.05, 0.03, 0.02))])
def test_a_start_is_told_by_all_of_the_flight_and_nothing_later(model: BoxModel) -> None:
    """Of a brick that tumbles, exactly; what comes after the first strike does not matter, what comes before it does."""
    simulator, rng = BoxSimulator(model, dt=1e-3), np.random.default_rng(1)
    for _ in range(5):
        start, axis = thrown(simulator, rng), 1 if model.planar else 2
        start[axis] += 0.1
        seen = recorded(simulator, start, 120)
        states, _ = simulator.rollout(start[None], np.zeros((1, 119, simulator.nu)), substeps=5)
        fall = states[0, :, simulator.scene.nq + axis] + 9.81 * seen.times
        struck = int(np.argmax(fall > fall[0] + 1e-9))
        rows, found = flying(simulator, seen), first_state(seen, simulator)
        assert FLIGHT_ROWS < rows and struck - 2 <= rows <= struck
        np.testing.assert_allclose(found, start, atol=2e-3)  # the midpoint rule's error of turns
        for row, same in ((rows, True), (rows - 1, False)):
            other = seen.values.copy()
            other[row:, 0] += 0.01
            assert np.array_equal(first_state(replace(seen, values=other), simulator), found) == same


def test_a_strike_that_frames_are_lost_in_ends_the_flight() -> None:
    """A square falls flat and bounces; five frames at the table are lost, so that its first strike is seen as a jolt only."""
    simulator = BoxSimulator(square(), dt=1e-3)
    start = simulator.initial_state()[0]
    start[1] += 0.15
    seen = recorded(simulator, start, 120, restitution=0.8)
    struck = int(np.argmax(np.diff(seen.values[:, 1]) > 0.0)) + 1
    lost = np.delete(seen.values, np.arange(struck - 2, struck + 3), axis=0)
    short = replace(seen, values=lost, times=seen.times[:-5], controls=seen.controls[:-5])
    assert lost[:40, 1].min() > simulator.model.half_size[0] * (1 + 2 * STRIKE_HEIGHT)
    assert flying(simulator, short) <= struck - 2


def test_a_first_strike_is_cut_out_by_how_long_a_box_flew() -> None:
    simulator, recording = BoxSimulator(square()), throws(square(), 1)[0]
    rows = flying(simulator, recording)
    cut = begun(simulator, recording, 1.5)
    assert cut.num_steps == max(math.ceil(1.5 * rows), 12)
    np.testing.assert_array_equal(cut.values, recording.values[: cut.num_steps + 1])
    assert begun(simulator, cut, 100.0).num_steps == cut.num_steps
    assert begun(simulator, recording, 0.1).num_steps == 12


def test_gravity_that_is_known_tells_more_of_a_start() -> None:
    """From six poses with noise of 0.2 mm: standard deviations of the speed are those of a parabola and of a line."""
    simulator, rng = BoxSimulator(), np.random.default_rng(0)
    seen = recorded(simulator, simulator.initial_state()[0] + np.eye(13)[2], FLIGHT_ROWS)
    off = np.empty((200, 2))
    for draw in range(200):
        noisy = replace(
            seen, values=seen.values + np.where(np.arange(7) < 3, 2e-4, 0.0) * rng.standard_normal((FLIGHT_ROWS, 7))
        )
        off[draw] = first_state(noisy, simulator)[9], first_state(noisy, simulator, gravity=9.81)[9]
    t = seen.times
    theory = [2e-4 * np.sqrt(np.linalg.inv(A.T @ A)[1, 1]) for A in (t[:, None] ** np.arange(3), t[:, None] ** np.arange(2))]
    np.testing.assert_allclose(off.std(axis=0), theory, rtol=0.2)  # four standard deviations of 200 draws


def test_a_start_is_guessed_from_whatever_was_seen() -> None:
    """Outliers become gaps, column by column: fits once ended where no row of a stretch had the whole pose."""
    for model in (cube(), square()):
        simulator, recording = BoxSimulator(model), throws(model, 1)[0]
        whole, places = first_state(recording, simulator), 2 if model.planar else 3
        lost = recording.values.copy()
        lost[:, -1] = np.nan
        found = first_state(replace(recording, values=lost), simulator)
        np.testing.assert_allclose(found[:places], whole[:places], atol=2e-3)  # of fewer rows: when it struck is unknown
        assert np.isfinite(found).all()
        lost[:] = np.nan
        nothing = first_state(replace(recording, values=lost), simulator)
        np.testing.assert_array_equal(nothing, simulator.initial_state()[0])


def test_velocities_are_left_out_and_quaternions_keep_their_side() -> None:
    simulator, recording = BoxSimulator(), throws(cube(), 1)[0]
    flipped = recording.values.copy()
    flipped[5:20, 3:] *= -2.0
    names = (*recording.names, "vx")
    values = np.hstack([flipped, np.full((len(flipped), 1), 7.0)])
    found = posed(simulator, replace(recording, values=values, names=names, units=(*recording.units, "m/s")))
    assert found.names == recording.names
    apart = lie.difference(found.values[:, 3:], recording.values[:, 3:])
    np.testing.assert_allclose(apart, 0.0, atol=1e-12)
    assert ((found.values[1:, 3:] * found.values[:-1, 3:]).sum(axis=1) > 0).all()
    with pytest.raises(DataError, match="lacks qz"):
        posed(simulator, recording.select(recording.names[:-1]))


def test_a_csv_of_poses_goes_through_the_documented_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, recordings = load_script("scripts/identify.py"), throws(square(), 6)
    files = []
    for index, recording in enumerate(recordings):
        rows = np.column_stack([recording.times, 1e3 * recording.values[:, :2], np.degrees(recording.values[:, 2])])
        text = "time [s],x [mm],z [mm],theta [deg]\n" + "\n".join(",".join(f"{v:.6f}" for v in row) for row in rows)
        files.append(tmp_path / f"{index}.csv")
        files[-1].write_text(text)
    (tmp_path / "mine.toml").write_text("[box]\nhalf_size = [0.03, 0.03]\n")
    words = ["box", "--model", str(tmp_path / "mine.toml"), "--fps", "148", "--data", *map(str, files), "--out", str(tmp_path)]
    run_script(script, *words)
    assert (tmp_path / "fit.toml").is_file(), capsys.readouterr()
    found = BoxParameters.load(tmp_path / "fit.toml")
    assert found.friction == pytest.approx(0.3, rel=0.1)
    assert found.restitution == pytest.approx(0.35, rel=0.1)
    more = ["--stage", "slid", "--initial-guess", str(tmp_path / "fit.toml"), "--out", str(tmp_path / "slid")]
    run_script(script, *words[:-2], *more)
    assert (tmp_path / "slid" / "fit.toml").is_file(), capsys.readouterr()


def test_boxes_are_read_from_files(tmp_path: Path) -> None:
    path = tmp_path / "box.toml"
    path.write_text("[box]\nhalf_size = [0.1, 0.05]\nsettle_speed = 0.0\n")
    assert load_box(path).half_size == (0.1, 0.05) and load_box(path).planar
    for text, error, match in (
        ("[box]\nsize = 1\n", FileFormatError, "allowed are half_size"),
        ("[block]\n", FileFormatError, "expected one table"),
        ("[box]\nforce_limit = true\n", FileFormatError, "force_limit is True, expected a finite number"),
        ("[box]\nhalf_size = 0.1\n", FileFormatError, "half_size is 0.1, expected a list"),
        ("[box]\nhalf_size = [0.1]\n", StructureError, "two or three lengths"),
    ):
        path.write_text(text)
        with pytest.raises(error, match=match):
            load_box(path)
