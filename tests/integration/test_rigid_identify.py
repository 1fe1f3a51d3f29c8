"""scripts/identify.py on block and particles: a camera's CSV becomes friction, or the diagnostic that it shows none."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from helpers import load_script, run_script

from softgym_envs.core.errors import DataError
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.systems.rigid.dynamics import BlockSimulator, ParticleSimulator
from softgym_envs.systems.rigid.experiments import record
from softgym_envs.systems.rigid.model import BlockModel, ParticleModel
from softgym_envs.systems.rigid.parameters import BlockParameters, ParticleParameters
from softgym_envs.systems.rigid.procedure import CAMERA, first_state
from softgym_envs.systems.rigid.scene_file import load_block
from sysid.problem.noise import noise_of
from sysid.procedure.identification import Identification

pytest.importorskip("casadi")


def camera_file(path: Path, recording: Trajectory, scales: dict[str, float], *, controls: bool = False) -> Path:
    """Wide CSV in the units of a laboratory: mm and degrees, without control columns unless asked for."""
    units = {1e3: "mm", 1.0: "m", 180 / np.pi: "deg"}
    columns = [1e3 * recording.times, *(recording.values * [scales[name] for name in recording.names]).T]
    header = ["time [ms]", *(f"{name} [{units[scales[name]]}]" for name in recording.names)]
    if controls:
        columns += list(np.vstack([recording.controls, recording.controls[-1:]]).T)
        header += [f"control:{name} [N]" for name in recording.control_names]
    path.write_text(
        "\n".join([",".join(header), *(",".join(map(repr, map(float, row))) for row in zip(*columns, strict=True))])
    )
    return path


def pulled(friction: float, model: BlockModel | None = None, seed: int = 0) -> Trajectory:
    """0.8 s of the block under its weight, with a round cone, seen at 50 Hz."""
    simulator = BlockSimulator(model or BlockModel(num_directions=512))
    parameter_values, rng = BlockParameters(friction=friction), np.random.default_rng(seed)
    return record(simulator, np.zeros(6), np.zeros((40, 2)), parameter_values, noise=CAMERA, rng=rng, period=0.02)


FULL = ("--diagnose", "full")
BLOCK_UNITS = {"x": 1e3, "y": 1e3, "theta": 180 / np.pi}


def test_a_block_on_camera_becomes_its_friction(script, tmp_path, capsys):
    """With nothing but the file: no controls, no noise, no start."""
    path, out = camera_file(tmp_path / "camera.csv", pulled(0.4, seed=1), BLOCK_UNITS), tmp_path / "out"
    assert run_script(script, "block", "--data", path, "--method", "mpec", "--out", out) == 0
    said = capsys.readouterr().out
    assert "1 of 1 parameters identified (friction)" in said and "noise by third differences [SI]: x 0.00" in said
    fit = json.loads((out / "fit.json").read_text())
    (estimate,) = fit["estimates"]
    assert abs(BlockParameters.load(out / "fit.toml").friction - 0.4) < 4 * estimate["std"] < 0.02
    assert fit["method"] == "mpec" and (out / "report.html").stat().st_size > 10_000


def test_geometry_comes_from_a_file(script, tmp_path, monkeypatch):
    """The fit is read from any folder, and on a computer where the file lies beside it."""
    scene = tmp_path / "block.toml"
    scene.write_text(
        "[block]\nsupports = [[0.08, 0.02], [-0.04, 0.06], [-0.05, -0.07]]\nattachment = [0.1, -0.05]\npulley = [1.3, -0.4]\n"
        "num_directions = 8\n"
    )
    model = load_block(scene)
    path, out = camera_file(tmp_path / "camera.csv", pulled(0.25, model), BLOCK_UNITS), tmp_path / "out"
    noise = ("--noise", "x", "0.001", "y", "0.001", "theta", "0.005")
    monkeypatch.chdir(tmp_path)
    assert run_script(script, "block", "--model", "block.toml", "--data", path, "--method", "mpec", "--out", out, *noise) == 0
    (estimate,) = json.loads((out / "fit.json").read_text())["estimates"]
    assert abs(estimate["value"] - 0.25) < 4 * estimate["std"]
    monkeypatch.chdir(out)
    assert Identification.load("fit.toml").spec.model == str(scene)
    scene.rename(out / "block.toml")
    assert Identification.load("fit.toml").spec.model == "block.toml"


def test_a_block_is_followed_row_by_row(script, tmp_path, capsys):
    """On a nearly round cone at 5 ms, as the recording: right at the end; what sticks is not told, and the code says so."""
    simulator = BlockSimulator(BlockModel(num_directions=128), dt=0.005)
    (tmp_path / "block.toml").write_text("[block]\nnum_directions = 128\npulley = [1.2, 0.3]\n")
    codes = []
    for friction in (0.4, 0.7):
        parameter_values, rng = BlockParameters(friction=friction), np.random.default_rng(0)
        seen = record(simulator, np.zeros(6), np.zeros((30, 2)), parameter_values, noise=CAMERA, rng=rng, period=0.02)
        path = camera_file(tmp_path / "camera.csv", seen, BLOCK_UNITS)
        flags = ("--model", tmp_path / "block.toml", "--dt", 0.005, "--online", "--out", tmp_path)
        codes.append(run_script(script, "block", "--data", path, *flags, "--noise", "x", 1e-3, "y", 1e-3, "theta", 5e-3))
    said = capsys.readouterr().out
    assert "the same command says without --online" in said
    assert codes == [0, 2] and "friction = 0.4" in said.replace("0.39", "0.4") and "not identifiable so far" in said
    rows = np.genfromtxt(tmp_path / "online.csv", delimiter=",", names=True)
    assert len(rows) == 11 and rows["friction"].shape == (11,)
    for idle in (["--settings", "box=true"], ["--resume"], ["--seed", 0], ["--max-iterations", 5]):
        assert run_script(script, "block", "--data", path, *flags, *idle) == 2
        assert f"{idle[0]} does nothing with --online" in capsys.readouterr().err


def test_a_file_given_twice_and_a_second_one_to_follow_are_refused(script, tmp_path, capsys):
    one, two = (camera_file(tmp_path / f"{seed}.csv", pulled(0.4, seed=seed), BLOCK_UNITS) for seed in (0, 1))
    for files, flags, said in (((one, one), (), "0.csv is given twice"), ((one, two), ("--online",), "--online follows one")):
        assert run_script(script, "block", *files, *flags, "--out", tmp_path) == 2
        assert said in capsys.readouterr().err


def test_a_stated_bound_is_used_and_a_missed_one_is_said(script, tmp_path, capsys):
    """Uniform noise of 5 mm on a particle; then a bound of nine tenths of it, which so few rows would not tell by their sum."""
    simulator, rng = ParticleSimulator(), np.random.default_rng(0)
    noise = {"x": 5e-3 / np.sqrt(3), "y": 5e-3 / np.sqrt(3)}
    seen = record(simulator, simulator.initial_state()[0], np.full((30, 1), 5.0), noise=noise, rng=rng, uniform=True)
    path = camera_file(tmp_path / "camera.csv", seen, {"x": 1e3, "y": 1e3}, controls=True)
    for share in (1.0, 0.9):
        stated = ("--dt", 0.05, "--noise", "x", share * noise["x"], "y", share * noise["y"])
        run_script(script, "particles", "--data", path, "--settings", "box=true", "--out", tmp_path, *stated)
    said = capsys.readouterr().out
    assert said.count("parameters are the mean of what noise within 1.73 standard deviations allows") == 1
    assert said.count("missed: no parameters") == 1
    unable = ("--method", "cma_es", "--noise", "x", 1e-3, "y", 1e-3)
    for given, said in (((), "box needs --noise, and the method mpec"), (unable, "cma_es has no option 'box'")):
        assert run_script(script, "particles", "--data", path, "--settings", "box=true", "--out", tmp_path, *given) == 2
        assert said in capsys.readouterr().err


def test_particles_on_camera_become_their_frictions(script, tmp_path):
    """Two of them, under forces that the file says; a camera of 20 Hz is the physics step."""
    simulator = ParticleSimulator(ParticleModel(2))
    ground_truth = simulator.parameters_class(friction0=0.1, friction1=0.4)
    start, controls = np.array([-3.0, 1.0, 0, 0, 4.0, 4.0, 0, 0]), np.full((100, 2), 5.0)
    recording = record(simulator, start, controls, ground_truth, noise={"x": 3e-3, "y": 3e-3}, rng=np.random.default_rng(0))
    path = camera_file(tmp_path / "camera.csv", recording, dict.fromkeys(recording.names, 1.0), controls=True)
    (tmp_path / "two.toml").write_text("[particles]\ncount = 2\n")
    given = ("--model", tmp_path / "two.toml", "--data", path, "--dt", 0.05, "--method", "mpec")
    assert run_script(script, "particles", *given, "--out", tmp_path / "out") == 0
    found = simulator.parameters_class.load(tmp_path / "out" / "fit.toml")
    assert (found.friction0, found.friction1) == (pytest.approx(0.1, abs=2e-4), pytest.approx(0.4, abs=2e-4))


def test_steps_that_are_much_too_long_are_named_though_half_of_them_would_not_do(script, tmp_path, capsys):
    """A particle of our own engine that is pushed to and fro, in steps of 1.25 ms, fitted in steps of 50 ms."""
    simulator, rng = ParticleSimulator(dt=0.00125), np.random.default_rng(3)
    controls = np.where(np.arange(200) // 20 % 2 == 0, 6.0, -6.0)[:, None]
    parameter_values, noise = simulator.default_parameters.replace(friction=0.3), {"x": 1e-3, "y": 1e-3}
    run = record(simulator, np.array([0.0, 0.0, 1.0, 0.0]), controls, parameter_values, noise=noise, rng=rng, period=0.05)
    TrajectorySet((run.for_timestep(0.05),)).save(tmp_path / "run.h5")
    assert run_script(script, "particles", "--data", tmp_path / "run.h5", *FULL, "--out", tmp_path / "out") == 0
    assert "the simulator's own step of 0.05 s is a part of why" in capsys.readouterr().out


def test_what_sticks_in_the_engines_own_steps_is_explained_though_it_gives_no_number(script, tmp_path):
    """It falls 3 m and stays: a bound of friction, and no number, in the steps it was made in."""
    simulator, rng = ParticleSimulator(), np.random.default_rng(100)
    falling, noise, ground_truth = np.array([0.0, 3.0, 0.0, 0.0]), {"x": 1e-3, "y": 1e-3}, ParticleParameters(friction=0.8)
    run = record(simulator, falling, np.full((36, 1), 5.0), ground_truth, noise=noise, rng=rng)
    path = camera_file(tmp_path / "camera.csv", run, dict.fromkeys(run.names, 1.0), controls=True)
    assert run_script(script, "particles", "--data", path, "--out", tmp_path / "out") == 2
    fit = json.loads((tmp_path / "out" / "fit.json").read_text())
    (friction,) = fit["estimates"]
    assert fit["explained"] and friction["hidden"] and friction["interval"][0] <= 0.8 <= friction["interval"][1]


def test_particles_of_no_engines_step_are_explained(script, tmp_path, capsys):
    """Simulated in steps of 0.25 ms, seen at 100 Hz: nobody says in which steps to fit them."""
    simulator, rng = ParticleSimulator(dt=0.00025), np.random.default_rng(5)
    controls = np.where(np.arange(120) // 25 % 2 == 0, 6.0, -6.0)[:, None]
    parameter_values, noise = simulator.default_parameters.replace(friction=0.31), {"x": 1e-3, "y": 1e-3}
    run = record(simulator, np.array([0.0, 0.5, 1.5, 0.0]), controls, parameter_values, noise=noise, rng=rng, period=0.01)
    path = camera_file(tmp_path / "camera.csv", run, dict.fromkeys(run.names, 1.0), controls=True)
    assert run_script(script, "particles", "--data", path, "--out", tmp_path / "out") == 0
    fit = json.loads((tmp_path / "out" / "fit.json").read_text())
    (friction,) = fit["estimates"]
    assert fit["explained"] and abs(friction["value"] - 0.31) < 3.5 * friction["std"], capsys.readouterr().out


def test_evolution_takes_the_same_file(script, tmp_path):
    """Without derivatives to where the homotopy ends: the difference is a tenth of a standard deviation."""
    noise = {"x": 3e-3, "y": 3e-3}
    start = np.array([0.0, 3.0, 0.0, 0.0])
    recording = record(ParticleSimulator(), start, np.full((100, 1), 5.0), noise=noise, rng=np.random.default_rng(0))
    path = camera_file(tmp_path / "camera.csv", recording, dict.fromkeys(recording.names, 1.0), controls=True)
    found = {}
    for method in ("mpec", "cma_es"):
        out = tmp_path / method
        given = ("--data", path, "--dt", 0.05, "--noise", "x", 0.003, "y", 0.003)
        assert run_script(script, "particles", *given, "--method", method, "--out", out) == 0
        (found[method],) = json.loads((out / "fit.json").read_text())["estimates"]
    assert found["mpec"]["value"] == pytest.approx(found["cma_es"]["value"], abs=0.1 * found["mpec"]["std"])
    assert abs(found["mpec"]["value"] - 0.2) < 4 * found["mpec"]["std"]


def test_evolution_tells_the_noise_that_nobody_states(script, tmp_path):
    """Metres and radians of a block that slides: weighed by what their columns show, judged by what the fit leaves.

    Noise of seed 0 is one of the draws in a hundred that a right model is called wrong for.
    """
    path, out = camera_file(tmp_path / "camera.csv", pulled(0.3, seed=1), BLOCK_UNITS), tmp_path / "out"
    assert run_script(script, "block", "--data", path, "--method", "cma_es", "--out", out) == 0
    found = json.loads((out / "fit.json").read_text())
    low, high = found["estimates"][0]["interval"]
    assert found["explained"] and low < 0.3 < high
    assert all(found["noise"][name] == pytest.approx(sigma, rel=0.3) for name, sigma in CAMERA.items())


def test_evolution_that_explains_nothing_tries_no_candidate_causes_that_it_cannot_free(script, tmp_path, capsys):
    """Another cone than is fitted; the method knows no parameters of recordings, such as latency: that ended in an error."""
    path = camera_file(tmp_path / "camera.csv", pulled(0.3, BlockModel(num_directions=128), seed=1), BLOCK_UNITS)
    given = ("--data", path, "--method", "cma_es", "--settings", "candidates=12", "tolerance=1e-6", *FULL)
    assert run_script(script, "block", *given, "--out", tmp_path / "out") == 0
    said = capsys.readouterr().out
    assert "model mismatch" in said and re.search(r"tried(: | \()drag", said) and "act late" not in said


def thrown(friction: float, velocity: tuple[float, float, float], seed: int = 0) -> Trajectory:
    """0.8 s of a block that a hand let go, with a round cone, seen at 60 Hz."""
    simulator = BlockSimulator(BlockModel(num_directions=128, pulley=None), dt=1 / 240)
    parameter_values, rng = BlockParameters(friction=friction), np.random.default_rng(seed)
    start = np.concatenate([np.zeros(3), velocity])
    return record(simulator, start, np.zeros((48, 2)), parameter_values, noise=CAMERA, rng=rng, period=1 / 60)


@pytest.mark.parametrize("method", ["mpec", "single_shooting", "multiple_shooting"])
def test_a_block_that_a_hand_threw(script, tmp_path, method):
    """It is in motion when the recording begins: fits that began at rest ended in "no effect on what was measured"."""
    (tmp_path / "block.toml").write_text("[block]\n")
    path, out = camera_file(tmp_path / "camera.csv", thrown(0.25, (1.2, 0.3, 2.0)), BLOCK_UNITS), tmp_path / "out"
    given = ("--model", tmp_path / "block.toml", "--data", path, "--fps", 60, "--method", method)
    assert run_script(script, "block", *given, "--out", out) == 0
    found = json.loads((out / "fit.json").read_text())
    assert found["explained"] and abs(found["estimates"][0]["value"] - 0.25) < 4 * found["estimates"][0]["std"] < 0.01


def test_a_straight_slide_between_two_edges_is_explained(script, tmp_path):
    """Of a cone of 512 edges, nearly a round one: 32 edges leave four times what noise may. The fit can be played."""
    simulator, angle = BlockSimulator(BlockModel(num_directions=512, pulley=None), dt=1 / 960), np.pi / 64
    start, still = np.array([0, 0, 0, 1.5 * np.cos(angle), 1.5 * np.sin(angle), 0]), np.zeros((48, 2))
    parameter_values, rng = BlockParameters(friction=0.2), np.random.default_rng(0)
    seen = record(simulator, start, still, parameter_values, noise=CAMERA, rng=rng, period=1 / 60)
    path, out = camera_file(tmp_path / "camera.csv", seen, BLOCK_UNITS), tmp_path / "out"
    (tmp_path / "block.toml").write_text("[block]\n")
    assert run_script(script, "block", "--model", tmp_path / "block.toml", "--data", path, "--fps", 60, "--out", out) == 0
    found = json.loads((out / "fit.json").read_text())
    assert found["explained"] and abs(found["estimates"][0]["value"] - 0.2) < 4 * found["estimates"][0]["std"] < 0.01
    gym.make("SlidingBlock-v0", params=out / "fit.toml").close()


def test_what_record_wrote_of_a_block_is_fitted_by_the_engine_that_it_is_of(script, tmp_path):
    """Not by the rounder cone of a laboratory's stage."""
    recorder = load_script("scripts/record.py")
    assert not recorder.main(recorder.Args("block", out=tmp_path / "pulled.h5"))
    assert run_script(script, "block", "--data", tmp_path / "pulled.h5", "--out", tmp_path) == 0
    found = json.loads((tmp_path / "fit.json").read_text())["estimates"][0]
    assert abs(found["value"] - BlockParameters().friction) < 4 * found["std"] < 0.01
    assert f'num_directions = "{BlockModel().num_directions}"' in (tmp_path / "fit.toml").read_text()


def test_the_first_state_is_read_from_the_first_rows():
    """Of a throw with a lost row as well as least squares can from so noisy ones, and of two rows; particles by their names."""
    simulator, start = BlockSimulator(), np.array([0, 0, 0, 1.2, 0.3, 2.0])
    sigma, rows = np.array(list(CAMERA.values())), np.delete(np.arange(10) / 60, 3)
    powers = rows[:, None] ** np.arange(3)
    place, speed, _ = np.sqrt(np.diag(np.linalg.inv(powers.T @ powers)))
    for seed in range(5):
        seen = thrown(0.25, tuple(start[3:]), seed)
        initial_guess, values = first_state(simulator, seen.names), seen.values.copy()
        values[3] = np.nan
        seen = replace(seen, values=values)
        assert (np.abs(initial_guess(seen) - start) < 4 * np.concatenate([place * sigma, speed * sigma])).all()
        late = seen.window(seen.times[1], seen.times[2])
        assert (
            abs(initial_guess(late)[3] - 1.2) < 4 * 60 * np.sqrt(2) * sigma[0] + 0.25 * 9.81 / 40
        )  # it has slid 1 / 40 s by then
    names, times = ("particle1.y", "particle0.x"), 0.05 * np.arange(4)
    moving = Trajectory(times, np.zeros((3, 0)), times[:, None] * [2.0, -1.0], names, ("m", "m"), (), ())
    particles = ParticleSimulator(ParticleModel(2))
    state = dict(zip(particles.state_names, first_state(particles, (*names, "theta"))(moving), strict=True))
    assert (state["particle0.vx"], state["particle1.vy"]) == (pytest.approx(-1.0), pytest.approx(2.0))
    assert first_state(simulator, ("vx",)) is None


def test_nothing_slides_no_number(script, tmp_path, capsys):
    """The weight is too light for this table: the camera sees a block at rest, and its noise."""
    path, out = camera_file(tmp_path / "camera.csv", pulled(0.9), BLOCK_UNITS), tmp_path / "out"
    assert run_script(script, "block", "--data", path, "--method", "mpec", "--out", out) == 2
    said = capsys.readouterr().out
    assert "not identifiable" in said and "friction: not identifiable" in said
    assert (out / "fit.toml").exists() and "not identifiable" in (out / "report.html").read_text()


def test_bad_requests_end_in_one_sentence(script, tmp_path, capsys):
    path = camera_file(tmp_path / "camera.csv", pulled(0.4), BLOCK_UNITS)
    slow = camera_file(tmp_path / "slow.csv", pulled(0.4).window(0.0, 0.3), BLOCK_UNITS)
    cases = {
        ("block", "--data", path, "--method", "mpec", "--resume"): "mpec leaves no checkpoint",
        ("tensegrity", "--data", path, "--method", "mpec"): "mpec does not suit this system: it offers no complementarity form",
        ("block", "--model", "ball", "--data", path): "model is 'ball', expected block, a .toml file",
        ("block", "--options", "colour", "--data", path): "expected key=value",
        ("block", "--options", "colour=red", "--data", path): "--options has 'colour'",
        ("block", "--data", slow, "--method", "mpec"): "--noise is not given, and that of x cannot be told",
        ("block", "--data", path, "--method", "mpec", "--fps", "30"): "is it another rate?",
    }
    for arguments, diagnostic in cases.items():
        assert run_script(script, *arguments, "--out", tmp_path / "out") == 2
        said = capsys.readouterr().err
        assert diagnostic in said and "Traceback" not in said


def test_noise_is_told_through_kinks_and_gaps():
    """Standard deviation of the estimate with 1000 rows: 4 %. A parabola with an impact and lost rows changes nothing."""
    rng, times = np.random.default_rng(0), 0.01 * np.arange(1001)
    motion = np.where(times < 5, 3 - 0.1 * times**2, 0.5 + 0.02 * times)
    seen = motion + 2e-3 * rng.standard_normal(1001)
    seen[rng.random(1001) < 0.05] = np.nan
    recording = Trajectory(times, np.zeros((1000, 0)), seen[:, None], ("x",), ("m",), (), ())
    assert noise_of(TrajectorySet((recording,)), ("x",))["x"] == pytest.approx(2e-3, rel=0.16)


def test_a_sensor_that_hangs_is_said_to():
    """From a row on one value: no noise is told, and none should be made up for it."""
    run = pulled(0.3)
    values = run.values.copy()
    values[12:, 2] = values[12, 2]
    with pytest.raises(DataError, match=r"theta shows none \(it stays at .* from row 12 on: does its sensor hang\?\)"):
        noise_of(TrajectorySet((replace(run, values=values),)), run.names)
