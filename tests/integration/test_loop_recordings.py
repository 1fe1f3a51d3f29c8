"""A laboratory's CSV of the arm: reading, thinning, whitening of errors, recovery with noise, bias, delay and other damping."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from scripts.identify import Args, main
from softgym_envs.core.errors import DataError
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.data.recordings import read_csv
from softgym_envs.mechanics.closed_loop import Following
from softgym_envs.mechanics.innovations import innovations, smoothed
from softgym_envs.systems.loop.dynamics import LoopSimulator
from softgym_envs.systems.loop.manipulation import SCALES
from softgym_envs.systems.loop.model import ARM, FRICTION
from softgym_envs.systems.loop.mujoco import MujocoLoop
from softgym_envs.systems.loop.parameters import LoopParameters
from softgym_envs.systems.loop.procedure import DAMPING, OFFSETS, PROCEDURE, STIFFNESS, manipulation
from softgym_envs.systems.loop.tracking import held, named, pulled, resting_rows, thinned, tracker
from sysid.procedure.stage import fit_stage
from sysid.procedure.stage_problem import stage_problem

GROUND_TRUTH = LoopParameters(theta_stiffness=3.2, psi_stiffness=1.3, loop_damping=0.035, arm_damping=1.1)
NOISE = {**dict.fromkeys(ARM, 2e-3), **{f"control:{name}": 0.2 for name in ARM}}


@cache
def native(steps=400):
    return manipulation(LoopSimulator(), np.random.default_rng(0), steps=steps, parameters=GROUND_TRUTH)


def mujoco_model(period):
    """A slow motion: steps of 10 ms are fine for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SCALES, 12, 0.2)
        return manipulation(MujocoLoop(), np.random.default_rng(1), steps=2500, parameters=GROUND_TRUTH, period=period)


def disturbed(recording, seed, bias=0.2):
    rng = np.random.default_rng(seed)
    torques = recording.controls + 0.2 * rng.standard_normal(recording.controls.shape) + bias
    return replace(recording.with_noise(rng, 2e-3), controls=torques)


def write(path, recording, *, shuffled):
    """Angles and torques; `shuffled`: named as ROS names them, in degrees and N mm, in another order."""
    torques = np.vstack([recording.controls, recording.controls[-1:]])
    columns = [(f"left_{n} [deg]" if shuffled else f"{n} [rad]", recording.column(n)) for n in ARM]
    columns += [(f"effort.left_{n} [N mm]" if shuffled else f"control:{n} [N m]", torques[:, i]) for i, n in enumerate(ARM)]
    if shuffled:
        columns = [(name, values * (180 / np.pi if "deg" in name else 1e3)) for name, values in columns]
        np.random.default_rng(0).shuffle(columns)
    table = np.stack([recording.times, *(values for _, values in columns)], axis=1)
    header = ",".join(["time [s]", *(name for name, _ in columns)])
    np.savetxt(path, table, delimiter=",", header=header, comments="", fmt="%.9g")
    return path


@pytest.mark.parametrize(("period", "shuffled"), [(0.01, False), (0.001, True)])
def test_csv_of_the_mujoco_model_with_noise_and_bias_is_fitted_by_one_command(tmp_path, capsys, period, shuffled):
    """The second file, whose columns stand in another order, is held out."""
    path = write(tmp_path / "run.csv", disturbed(mujoco_model(period), 0), shuffled=shuffled)
    other = write(tmp_path / "other.csv", disturbed(mujoco_model(period), 1), shuffled=not shuffled)
    assert main(Args("loop", files=(path, other), free=(*STIFFNESS, *DAMPING, *OFFSETS), out=tmp_path)) == 0
    said = capsys.readouterr().out
    headline = next(line for line in said.splitlines() if line.startswith(("[ok]", "[warning]", "[do_not_use]")))
    assert all(name in headline for name in (*STIFFNESS, *DAMPING, *OFFSETS)) and (tmp_path / "report.html").exists()
    ground_truth = {
        **dict.fromkeys(OFFSETS, -0.2),
        "theta_stiffness": 3.2,
        "psi_stiffness": 1.3,
        "arm_damping": 1.1,
        "loop_damping": 0.035,
    }
    for estimate in json.loads((tmp_path / "fit.json").read_text())["estimates"]:
        assert abs(estimate["value"] - ground_truth[estimate["name"]]) < 4 * estimate["std"], estimate
        assert estimate["std"] < 0.5 * max(abs(estimate["value"]), 0.2), estimate


def test_columns_are_told_by_joint_and_unit(tmp_path):
    recording = native()
    read = read_csv(write(tmp_path / "run.csv", recording, shuffled=True))
    found = named(None, read)
    assert found.control_names == ARM and set(found.names) == set(ARM)
    np.testing.assert_allclose(found.select(ARM).values, recording.values, atol=1e-7)
    np.testing.assert_allclose(found.controls, recording.controls, atol=1e-5)
    same = named(None, recording)
    assert same.names == recording.names and same.control_names == recording.control_names


def test_thinning_keeps_lines_of_angles_and_of_torques_held_from_row_to_row():
    times = 0.001 * np.arange(101)
    line = np.outer(times, np.arange(7.0))
    fine = Trajectory(times, line[:-1] + 0.0005 * np.arange(7.0), line, ARM, ("rad",) * 7, ARM, ("N m",) * 7)
    found = thinned(fine, 10)
    np.testing.assert_allclose(found.values, line[::10], atol=1e-15)
    np.testing.assert_allclose(found.controls[1:], line[10:100:10], atol=1e-15)  # the first has no time before it
    assert held(LoopSimulator(dt=0.001)).dt == pytest.approx(0.01)
    assert held(LoopSimulator(dt=0.004)).dt == pytest.approx(0.008)


@cache
def whitened(seed):
    """Innovations of a disturbed native recording at its true parameters, and what was measured."""
    recording = pulled(held(LoopSimulator()), disturbed(native(), seed))
    parameter_values = GROUND_TRUTH.replace(**{f"offset_{name}": -0.2 for name in ARM}).to_vector()
    return tracker(held(LoopSimulator()), recording).anchored(parameter_values, NOISE), parameter_values


def test_errors_at_the_ground_truth_are_white_and_of_unit_variance():
    """Up to what smoothing of the torques takes away: the filter counts noise that is not there any more."""
    errors, parameter_values = whitened(0)
    found, good = errors.errors(parameter_values[None])
    assert good.all() and 0.8 < np.mean(found[0] ** 2) < 1.1  # a standard deviation of chance is 0.027
    near = np.mean(found[0, 1:] * found[0, :-1], axis=0)
    assert near.max() < 4 / np.sqrt(len(found[0])) and near.min() > -0.35


def test_whitening_does_not_depend_on_feedback():
    """To first order in the noise, whose second order is a thousandth of it."""
    errors, parameter_values = whitened(0)
    follow, noise = errors.recorded, {"force": np.full(7, 0.2), "angle": np.full(7, 2e-3)}
    tree = errors.model.tree_constants(parameter_values[None])[0]
    stiff = innovations(replace(follow, gains=3 * follow.gains), errors.innovations.angles, tree, **noise)
    ours = errors.errors(parameter_values[None])[0][0]
    np.testing.assert_allclose(stiff.errors(tree[None])[0][0], ours, atol=0.1)


def test_slopes_are_differences():
    errors, parameter_values = whitened(0)
    names = LoopParameters.names()
    for name, step in (
        ("theta_stiffness", 1e-4),
        ("friction_w0", 1e-4),
        ("offset_e1", 1e-4),
        ("clamp_pitch", 1e-5),
        ("torque_delay", 1e-4),
        ("torque_gain", 1e-4),
    ):
        way = np.eye(len(names))[:, [names.index(name)]]
        ahead, behind = (errors.errors((parameter_values + side * step * way[:, 0])[None])[0][0] for side in (1, -1))
        expected, found = (ahead - behind) / (2 * step), errors.slopes(parameter_values, way)[..., 0]
        assert np.abs(found - expected).max() < 1e-3 * np.abs(expected).max(), name


def test_constants_at_whose_edge_nothing_rests_are_refused(monkeypatch):
    """Differences of the rest at the start that leave what can rest: one sentence, no NaN further in."""
    errors, parameter_values = whitened(0)
    way = np.eye(len(parameter_values))[:, :1]
    monkeypatch.setattr(Following, "start_slopes", lambda self, at, ways: np.full((62, ways.shape[1]), np.nan))
    with pytest.raises(DataError, match="does not come to rest"):
        errors.slopes(parameter_values, way)


def test_what_cannot_be_followed_is_refused_in_one_sentence():
    simulator, recording = held(LoopSimulator()), native()
    with pytest.raises(DataError, match="100 Hz or more"):
        pulled(simulator, replace(recording, times=2 * recording.times))
    with pytest.raises(DataError, match="w2 is not recorded"):
        pulled(simulator, recording.select(ARM[:-1]))
    holes = recording.values.copy()
    holes[7, 2] = np.nan
    with pytest.raises(DataError, match="angle of e0 is missing"):
        pulled(simulator, replace(recording, values=holes))
    with pytest.raises(DataError, match="moves from the first row"):
        resting_rows(recording.window(1.0, 3.0))
    assert resting_rows(recording) == 50


def test_procedure_recovers_stiffness_from_a_recording_without_noise(monkeypatch):
    """To what is lost of torques below the sensors' resolution; that loss, which lasts in time, counts as no model error."""
    from sysid.procedure.run import run_procedure

    def scanned(*_, **__):
        raise AssertionError("took 728 of 897 s for a procedure that explains its own recording")

    monkeypatch.setattr("sysid.diagnostics.diagnose.scan", scanned)
    data = PROCEDURE.record(LoopSimulator(), np.random.default_rng(0), steps=1000, parameters=GROUND_TRUTH).train
    start = GROUND_TRUTH.replace(theta_stiffness=5.0, psi_stiffness=5.0)
    found = run_procedure(
        PROCEDURE, LoopSimulator(), data, start=start, stages=(replace(PROCEDURE.stages[0], free=STIFFNESS),)
    ).stages[0].fit  # fmt: skip
    assert found.explained
    assert [found.parameters.theta_stiffness, found.parameters.psi_stiffness] == pytest.approx([3.2, 1.3], rel=2e-3)


def test_dry_friction_is_found_with_the_stiffness_that_it_would_spoil():
    from sysid.procedure.run import run_procedure

    rubbed = GROUND_TRUTH.replace(friction_s1=0.2, friction_w1=0.15)
    rng, clean = np.random.default_rng(3), manipulation(
        LoopSimulator(), np.random.default_rng(0), steps=400, parameters=rubbed
    )  # fmt: skip
    data = replace(clean.with_noise(rng, 5e-4), controls=clean.controls + 0.05 * rng.standard_normal(clean.controls.shape))
    stage = replace(PROCEDURE.from_recordings, free=(*STIFFNESS, *DAMPING, *FRICTION))
    found = run_procedure(PROCEDURE, LoopSimulator(), TrajectorySet((data,)), start=GROUND_TRUTH, stages=(stage,)).stages[0].fit
    for estimate in found.estimates:
        assert abs(estimate.value - getattr(rubbed, estimate.name)) < 4 * estimate.std, estimate
        assert estimate.std < (0.05 if estimate.name in FRICTION else 0.5 * estimate.value), estimate


@pytest.mark.parametrize("start", [(50.0, 50.0), (0.5, 0.5)])
def test_far_starts_that_the_step_does_not_bear_lead_to_the_ground_truth_by_a_damped_loop(start):
    from sysid.fitting.innovations import anchored
    from sysid.procedure.run import run_procedure
    from sysid.procedure.stage_problem import stage_problem

    data = TrajectorySet((disturbed(native(), 0),))
    stage = replace(PROCEDURE.from_recordings, free=(*STIFFNESS, *DAMPING, *OFFSETS))
    first = LoopParameters(theta_stiffness=start[0], psi_stiffness=start[1])
    if start[0] > 5:
        problem = stage_problem(PROCEDURE, stage, LoopSimulator(), data, start=first)
        with pytest.raises(DataError, match="does not follow"):
            anchored(problem, [tracker(problem.simulator, problem.split.train[0])], problem.encode(first), NOISE)
    found = run_procedure(PROCEDURE, LoopSimulator(), data, start=first, stages=(stage,)).stages[0].fit
    assert found.converged
    for estimate in found.estimates[:4]:
        assert abs(estimate.value - getattr(GROUND_TRUTH, estimate.name)) < 4 * estimate.std, estimate


def test_smoothing_keeps_motion_and_takes_noise_away():
    t, rng = np.linspace(0.0, 8.0, 801), np.random.default_rng(0)
    motion = np.stack([3 + np.cos(2 * np.pi * t), 0.5 * np.cos(3 * np.pi * t)], axis=1)
    noise = np.array([0.2, 0.1])
    found = smoothed(motion + noise * rng.standard_normal(motion.shape), noise)
    assert (np.std(found - motion, axis=0) < 0.5 * noise).all()
    np.testing.assert_allclose(smoothed(motion, np.full(2, 1e-9)), motion, atol=1e-6)


def test_torque_sensors_of_another_gain_are_named():
    """Stiffness takes up what they do not measure, and residuals pass for noise but along their gain."""
    recording = disturbed(native(), 0)
    weak = replace(recording, controls=0.9 * recording.controls)
    stage = replace(PROCEDURE.from_recordings, free=(*STIFFNESS, *DAMPING, *OFFSETS))
    for seen, code in ((recording, "fixed_uncertain"), (weak, "likely_cause")):
        problem = stage_problem(PROCEDURE, stage, LoopSimulator(), TrajectorySet((seen,)), start=LoopParameters())
        found = fit_stage(PROCEDURE, stage, problem, folder=None, resume=False, progress=None)
        assert found.explained == (seen is recording)
        (said,) = (d for d in found.of(code) if "torque_gain" in (d.parameter, *d.facts.get("freed", ())))
    low, high = map(float, said.facts["told"].split("95 % [")[1].split("]")[0].split(", "))
    assert low < 0.9 < high and high - low < 0.1, said


@pytest.mark.parametrize("rate", [200, 300, 400, 500, 1000])
def test_rows_that_are_averaged_keep_white_noise_white(rate):
    """Windows of an even number of rows shared one: at 200 Hz a third of the noise was its neighbour's."""
    count, rng = rate // 100, np.random.default_rng(rate)
    rows = 2000 * count
    noisy = Trajectory(
        np.arange(rows + 1) / rate, rng.standard_normal((rows, 7)), rng.standard_normal((rows + 1, 7)),
        ARM, ("rad",) * 7, ARM, ("N m",) * 7,
    )  # fmt: skip
    found = thinned(noisy, count)
    for white in (found.values[1:-1], found.controls[1:-1]):
        lag = np.mean(white[1:] * white[:-1], axis=0) / np.mean(white**2, axis=0)
        assert np.abs(lag).max() < 4.5 / np.sqrt(len(white))


def test_an_arm_that_rests_and_angles_in_degrees_are_refused_with_their_cause():
    recording = disturbed(native(), 0)
    rest = np.array(LoopSimulator().model.start) + 2e-3 * np.random.default_rng(0).standard_normal(recording.values.shape)
    for values, words in ((rest, "the arm never moves"), (np.rad2deg(recording.values), "is it in degrees")):
        with pytest.raises(DataError, match=words):
            pulled(held(LoopSimulator()), replace(recording, values=values))


def mislabelled(recording, signs=(), angles=(), torques=()):
    """Torques (or angles) of some joints with the other sign, columns of two joints exchanged."""
    values, controls = recording.values.copy(), recording.controls.copy()
    for kind, joint in signs:
        column = (values if kind == "angle" else controls)[:, ARM.index(joint)]
        column *= -1.0
    for table, pair in ((values, angles), (controls, torques)):
        places = [ARM.index(joint) for joint in pair]
        table[:, places] = table[:, places[::-1]]
    return replace(recording, values=values, controls=controls)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"signs": [("torque", joint) for joint in ARM]}, "all torques of the other sign"),
        ({"signs": [("torque", "s1")]}, "the torque of s1 of the other sign"),
        ({"signs": [("angle", "s1")]}, "the angle of s1 of the other sign"),
        ({"angles": ("s1", "e1"), "torques": ("s1", "e1")}, "s1 and e1 exchanged"),
        ({"torques": ("s1", "e0")}, "torques of s1 and e0 exchanged"),
    ],
)
def test_signs_and_names_that_the_weight_at_rest_contradicts_are_named(wrong, words):
    recording = disturbed(named(None, native()).select(ARM), 3)
    pulled(held(LoopSimulator()), recording)
    with pytest.raises(DataError, match=f"with {words}"):
        pulled(held(LoopSimulator()), mislabelled(recording, **wrong))


def test_torques_without_those_that_carry_the_arms_weight_are_named():
    recording = disturbed(named(None, native()).select(ARM), 3)
    light = replace(recording, controls=recording.controls - recording.controls[:10].mean(axis=0))
    with pytest.raises(DataError, match="compensated elsewhere"):
        pulled(held(LoopSimulator()), light)
