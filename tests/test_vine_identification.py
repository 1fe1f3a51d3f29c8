"""Fitting a vine robot to tracked points: the room's offer, recovery from the twin's recordings, the script on a lab's file."""

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.recordings import read_points_csv
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.vine import identification_setup
from softgym_envs.vine.dynamics import VineSimulator
from softgym_envs.vine.experiments import BEAM, NOISE, record_oscillation, record_wall, scene_text, write_points
from softgym_envs.vine.identification import Setup, along_body
from softgym_envs.vine.mujoco import VineTwinParameters
from softgym_envs.vine.parameters import VineParameters
from sysid import FitProblem, Measurement, ShootingOptions, single_shooting
from sysid.methods.levenberg import LevenbergOptions

TRUTH = VineTwinParameters(bending_stiffness=0.03, bending_damping=5e-4, drag=0.0)
ROUGH = ShootingOptions(levenberg=LevenbergOptions(cost_tolerance=1e-5), reweight=1)
SCRIPT = Path(__file__).parents[1] / "scripts" / "identify.py"


def problem(setup, recordings, split, **keywords):
    function, names = setup.measurement(recordings[0].names)
    return FitProblem(
        setup.simulator,
        TrajectorySet(tuple(recordings)).split(*split),
        free=setup.free,
        start=VineParameters(drag=0.0),
        measurement=Measurement(names, function),
        initial_state=setup.first_state(names),
        free_motion=True,
        **keywords,
    )


def oscillations(*bends):
    rng = np.random.default_rng(0)
    setup = Setup(VineSimulator(BEAM, 1 / (240 * 6), "linear"))
    return setup, [replace(record_oscillation(TRUTH, rng, bend=b, seconds=0.3), substeps=6) for b in bends]


def test_points_are_at_equal_shares_of_the_length():
    setup = identification_setup("links=8,fps=60")
    model = setup.simulator.model
    states = np.stack([model.straight_state(0.5, 1.0), model.straight_state(0.61, -2.0)])
    measure, names = setup.measurement(("time", "point0.x", "point2.y", "point4.x", "point4.y"))
    assert names == ("point0.x", "point2.y", "point4.x", "point4.y")
    tips = model.tip(states)
    middle = along_body(model, states, np.array([0.5]))[:, 0]
    np.testing.assert_allclose(
        measure(states), np.column_stack([np.zeros(2), middle[:, 1], tips[:, 0], tips[:, 1]]), atol=1e-12
    )
    assert setup.measurement(("com.x",)) is None and setup.first_state(names) is None
    assert setup.simulator.dt * round(1 / 60 / setup.simulator.dt) == pytest.approx(1 / 60, abs=1e-15)


def test_first_state_is_found_from_noisy_points():
    """Shape from 21 points with 0.5 mm of noise: the tip to 1 mm, headings to 0.02 rad."""
    setup, (recording,) = oscillations(0.8)
    guess = setup.first_state(recording.names)(recording)
    true = BEAM.straight_state(curvature=0.8)
    assert np.linalg.norm(BEAM.tip(guess)[:2] - BEAM.tip(true)[:2]) < 1e-3
    assert np.abs(BEAM.split(guess).theta - BEAM.split(true).theta).max() < 0.02


def test_oscillation_recovers_stiffness_and_damping():
    """Truth near the 95 % intervals of a fit to another simulator; held-out tip within the paper's 3.3 mm."""
    setup, recordings = oscillations(0.8, -0.6)
    fit = problem(setup, recordings, (1, 0, 1), free_initial=True)
    result = single_shooting(fit, ROUGH)
    for name, value in (("bending_stiffness", 0.03), ("bending_damping", 5e-4)):
        found, std = getattr(result.parameters, name), result.std[name]
        assert abs(found - value) < 2 * 1.96 * std + 2e-3 * value, name
        assert std < 0.02 * value
    test = recordings[1]
    start = setup.first_state(test.names)(test)
    states, _ = setup.simulator.rollout(start[None], test.controls[None], result.parameters, substeps=6)
    error = fit.observe(states[0])[:, -1] - test.column("point20.y")
    assert np.nanmean(np.abs(error)) < 3.3e-3


def test_the_wall_alone_identifies_neither_stiffness_nor_damping():
    """Growth and geometry fix the motion ([Jitosho2021]'s own data): tip within 1.1 mm, but no numbers.

    What the stiffness changes is less than what two models of contact differ by; its open range holds the truth.
    """
    rng = np.random.default_rng(1)
    recording, model = record_wall(TRUTH, rng, seconds=1.5)
    setup = Setup(VineSimulator(model, 1 / 300, "linear"))
    fit = problem(setup, [replace(recording, substeps=10)], (1, 0, 0), free_initial=False)
    result = single_shooting(fit, ROUGH)
    stiffness, damping = result.estimates
    assert stiffness.hidden and damping.hidden
    assert stiffness.interval[0] < 0.03 < stiffness.interval[1]
    assert any("bending_stiffness is not identifiable (by this model)" in v.text for v in result.verdicts)
    states, _ = setup.simulator.rollout(
        setup.first_state(recording.names)(recording)[None], recording.controls[None], result.parameters, substeps=10
    )
    error = fit.observe(states[0])[:, -2] - recording.column("point20.x")
    assert np.nanmean(np.abs(error)) < 1.1e-3 + NOISE


def test_the_script_reads_files_that_lack_different_points(monkeypatch, tmp_path):
    """The first frame of one lacks point 3, the other lacks the tip throughout: equal columns, each point where it was seen."""
    spec = importlib.util.spec_from_file_location("identify_script", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "identify_script", script)
    spec.loader.exec_module(script)
    recording = record_oscillation(TRUTH, np.random.default_rng(2), seconds=0.1, fps=120.0)
    lost = [recording.values.copy() for _ in range(2)]
    lost[0][0, 2 * 3 : 2 * 3 + 2] = np.nan
    lost[1][:, -2:] = np.nan
    paths = [write_points(replace(recording, values=v), tmp_path / f"{k}.csv") for k, v in enumerate(lost)]
    setup = Setup(VineSimulator(BEAM, 1 / 480, "linear"))
    for order in ((0, 1), (1, 0)):
        found = script.load_recordings(script.Args("vine", data=tuple(paths[k] for k in order)), setup.simulator.dt)
        assert found.names == recording.names
        for k, run in zip(order, found, strict=True):
            np.testing.assert_allclose(run.values, lost[k], atol=1e-6)
    whole, lacking = (setup.first_state(found.names)(run) for run in (found[1], found[0]))
    assert np.linalg.norm(BEAM.tip(whole)[:2] - BEAM.tip(lacking)[:2]) < 2e-3  # were point 19 the tip, off by 5 % of the length
    with pytest.raises(DataError, match=r"recording \d: point20.x is NaN in 100 % of the rows, allowed is 50 %"):
        single_shooting(problem(setup, [setup.infer_controls(run) for run in found], (2, 0, 0)), ROUGH)


def test_the_script_fits_a_labs_file(tmp_path):
    recording = record_oscillation(TRUTH, np.random.default_rng(2), seconds=0.3, fps=120.0)
    path = write_points(recording, tmp_path / "tracked.csv")
    again = read_points_csv(path)
    np.testing.assert_allclose(again.select(recording.names).values, recording.values, atol=1e-6)
    (tmp_path / "robot.toml").write_text(scene_text(BEAM))
    robot = f"vine:scene={tmp_path / 'robot.toml'},links=8"
    command = [sys.executable, str(SCRIPT), robot, "--points", str(path), "--fps", "120"]
    command += ["--free-motion", "--out", str(tmp_path / "fit")]
    done = subprocess.run(
        [*command, "--gif", str(tmp_path / "fit.gif"), "--free-initial", "False", "--method", "single_shooting"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "bending_stiffness" in done.stdout and (tmp_path / "fit" / "report.html").is_file()
    assert (tmp_path / "fit.gif").stat().st_size > 10_000
    assert VineParameters.load(tmp_path / "fit" / "fit.toml").bending_stiffness == pytest.approx(0.03, rel=0.3)
    path.write_text("time [s],point,x [mm]\n0.0,0,1.0\n")
    bad = subprocess.run(command, capture_output=True, text=True, check=False)
    assert bad.returncode == 2 and "expected time, point, x, y" in bad.stderr


def test_the_script_fits_a_labs_file_by_one_nonlinear_program(tmp_path):
    pytest.importorskip("casadi")
    path = write_points(record_oscillation(TRUTH, np.random.default_rng(2), seconds=0.4, fps=120.0), tmp_path / "tracked.csv")
    (tmp_path / "robot.toml").write_text(scene_text(BEAM))
    command = [sys.executable, str(SCRIPT), f"vine:scene={tmp_path / 'robot.toml'},links=6,steps=4", "--points", str(path)]
    command += ["--fps", "120", "--free-motion", "--method", "simultaneous", "--out", str(tmp_path / "fit")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "noise by third differences" in done.stdout, done.stdout + done.stderr
    assert VineParameters.load(tmp_path / "fit" / "fit.toml").bending_stiffness == pytest.approx(0.03, rel=0.3)
    done = subprocess.run([*command, "--columns", "length"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no fit" in done.stderr
    command[2] = "block"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "--method simultaneous: block offers no symbolic step" in done.stderr


def test_growth_is_told_from_the_points():
    recording, model = record_wall(TRUTH, np.random.default_rng(3), seconds=1.0)
    bare = replace(recording, controls=np.zeros((recording.num_steps, 0)), control_names=(), control_units=())
    told = Setup(VineSimulator(model, 1 / 300, "linear")).infer_controls(bare)
    # Noise of 0.5 mm on every point makes lengths uncertain by some mm, over nine frames of 1/30 s.
    assert told.controls[:, 0].mean() == pytest.approx(0.08, abs=0.01)
    still = record_oscillation(TRUTH, np.random.default_rng(4), seconds=0.2)
    bare = replace(still, controls=np.zeros((still.num_steps, 0)), control_names=(), control_units=())
    assert (Setup(VineSimulator(BEAM, 1 / 480, "linear")).infer_controls(bare).controls == 0).all()


@pytest.mark.parametrize("variant", ["hard", "fps=no", "links=1", "fps=-3", "steps=0"])
def test_bad_variants(variant):
    with pytest.raises(OptionError):
        identification_setup(variant)
