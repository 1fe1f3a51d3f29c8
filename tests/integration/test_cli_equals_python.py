"""The command line and the public functions give equal bits, for every system: what they decide is decided once. The public
functions of `agents`: what the commands do not show, and that commands and Python give equal bits. The demo runs any id
whose system declares a study of it, and ends in a page. The command `warmup` plays and fits systems, and says how far it
is."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers import ROOT, load_script, run_main, run_script

import agents
import sysid
from softgym_envs.core.errors import OptionError, ParameterError, ShapeError
from softgym_envs.core.files import read_toml
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.systems import LIST, system
from sysid.report.progress import Beat

SHORT = {"loop": 200, "vine": 400, "arm": 300, "upper_body": 100, "tensegrity": 200}
"""Physics steps of a recording where the procedure's would take too long."""

FEW = {
    "loop": ("theta_stiffness", "psi_stiffness"),
    "tensegrity": ("cable_stiffness", "friction"),
    "box": ("friction", "restitution"),
}
"""Parameters to fit where all would take too long."""


def numbers(path: Path) -> dict[str, object]:
    """What a fit.toml says of parameters and simulator, without dates."""
    found = read_toml(path)
    return {name: found[name] for name in found if name != "provenance"}


def same(one: Trajectory, other: Trajectory) -> bool:
    """Whether two recordings are equal in every bit, label and note."""
    pairs = [(one.times, other.times), (one.controls, other.controls), (one.values, other.values)]
    labels = [(each.names, each.units, each.control_names, each.substeps, each.metadata) for each in (one, other)]
    return labels[0] == labels[1] and all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


@pytest.mark.parametrize("name", [system(path).name for path in LIST])
def test_recordings_and_fits_are_equal(name: str, tmp_path: Path) -> None:
    steps = SHORT.get(name)
    words = [] if steps is None else ["--steps", steps]
    record, identify = load_script("scripts/record.py"), load_script("scripts/identify.py")
    assert run_script(record, name, *words, "--seed", 3, "--out", tmp_path / "data.h5") == 0
    data = sysid.record(name, steps=steps, seed=3)
    for ours, theirs in zip(data, TrajectorySet.load(tmp_path / "data.h5"), strict=True):
        assert same(ours, theirs)
    free = FEW.get(name, ())
    quick = ("--max-iterations", 2, "--diagnose", "none", "--out", tmp_path / "command", *(["--free", *free] if free else []))
    code = run_script(identify, name, "--data", tmp_path / "data.h5", *quick)
    found = sysid.identify(name, data, free=free, max_iterations=2, diagnose="none")
    assert code == (2 if found.unusable else 0)
    found.save(tmp_path / "python" / "fit.toml")
    assert numbers(tmp_path / "command" / "fit.toml") == numbers(tmp_path / "python" / "fit.toml")


def test_a_laboratorys_file_and_flags_are_equal(tmp_path: Path) -> None:
    """Frames for times, image coordinates, another method and its settings."""
    run = sysid.record("block", steps=100, seed=1)[0]
    rows = enumerate((run.values[:, :3] * [1e3, -1e3, -180.0 / np.pi]).tolist())
    lines = ["frame,x [mm],y [mm],theta [deg]", *(f"{k},{x:.9g},{y:.9g},{angle:.9g}" for k, (x, y, angle) in rows)]
    (tmp_path / "camera.csv").write_text("\n".join(lines) + "\n")
    words = ("--fps", 100, "--flip-y", "--method", "multiple_shooting", "--settings", "segment_steps=20", "starts=1")
    more = ("--noise", "x", 1e-3, "y", 1e-3, "theta", 5e-3, "--seed", 2, "--diagnose", "none", "--max-iterations", 3)
    script = load_script("scripts/identify.py")
    run_script(script, "block", tmp_path / "camera.csv", *words, *more, "--out", tmp_path / "command")
    found = sysid.identify(
        "block", sysid.load(tmp_path / "camera.csv", fps=100, flip_y=True), method="multiple_shooting",
        settings={"segment_steps": 20, "starts": 1}, noise={"x": 1e-3, "y": 1e-3, "theta": 5e-3}, seed=2,
        diagnose="none", max_iterations=3,
    )  # fmt: skip
    found.save(tmp_path / "python" / "fit.toml")
    assert numbers(tmp_path / "command" / "fit.toml") == numbers(tmp_path / "python" / "fit.toml")


FEW_STEPS = {"horizon": 3, "iterations": 1, "period": 0.02}


@pytest.mark.parametrize("method", ["ilqg", "gps"])
def test_a_plan_of_an_id_starts_at_its_start_and_is_repeatable(method: str) -> None:
    first, again = (agents.plan("ArmReach-v0", method=method, **FEW_STEPS) for _ in range(2))
    np.testing.assert_array_equal(first.controls, again.controls)
    assert first.horizon == 3 and np.isfinite(first.cost)


def test_an_optimal_motion_ends_where_it_is_told() -> None:
    pytest.importorskip("casadi")
    start = system("arm").simulator().initial_state(1)[0]
    end = np.array([start[0] + 0.3, 0.0, np.nan, np.nan])
    found = agents.plan("ArmReach-v0", method="optimal", end=end, horizon=25, period=0.02)
    assert found.solved and found.states[-1][:2] == pytest.approx(end[:2], abs=1e-6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"params": 3}, "params is 3, expected ElbowParameters, a mapping of its names to numbers, or a file of it"),
        ({"params": 3, "method": "optimal", "end": [0.3, 0.0, 0.0, 0.0]}, "params is 3"),
        ({"method": "guess"}, "method is 'guess', allowed are 'ilqg', 'gps', 'optimal'"),
        ({"method": "optimal"}, "end is None"),
        ({"horizon": 0}, "horizon is 0"),
        ({"period": 0.0151}, "period is 0.0151 s, expected a whole number of physics steps"),
    ],
)
def test_what_no_plan_can_be_is_named(given: dict, message: str) -> None:
    with pytest.raises(ParameterError if "params" in given else OptionError, match=message):
        agents.plan("ArmReach-v0", **{**FEW_STEPS, **given})


def test_the_command_evaluates_as_python_does(tmp_path: Path) -> None:
    script, out = load_script("scripts/evaluate.py"), tmp_path / "found.json"
    args = script.Args("pretrained", "SlidingBlock-v0", backend="native", episodes=3, out=out)
    assert run_main(script, args) == 0
    found = agents.evaluate("pretrained", "SlidingBlock-v0", episodes=3)
    assert json.loads(out.read_text())["native"] == found.table()


def test_a_controller_of_my_own_is_evaluated_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command and Python take "module:function"; it equals the same function given as a policy."""
    lines = ["import numpy as np", "def right(envs):", "    return lambda seen: np.tile([1.0, 0.5], (len(seen), 1))"]
    more = ["def wide(envs):", "    return lambda seen: np.zeros((len(seen), 9))", "def empty(envs):", "    pass", "number = 3"]
    (tmp_path / "my_controllers.py").write_text("\n".join(lines + more))
    monkeypatch.syspath_prepend(str(tmp_path))
    script, out = load_script("scripts/evaluate.py"), tmp_path / "found.json"
    args = script.Args("my_controllers:right", "SlidingBlock-v0", backend="native", episodes=2, out=out)
    assert run_main(script, args) == 0
    found = agents.evaluate(lambda seen: np.tile([1.0, 0.5], (len(seen), 1)), "SlidingBlock-v0", episodes=2)
    assert json.loads(out.read_text())["native"] == found.table()
    for name, error, message in (
        ("my_controllers:other", OptionError, "is not the path of an object"),
        ("my_controllers:number", OptionError, r"policy 'my_controllers:number' is 3, expected a function \(envs\) -> "),
        ("my_controllers:empty", OptionError, "policy 'my_controllers:empty' made None, expected a function"),
        ("my_controllers:wide", ShapeError, r"\(2, 9\)"),
    ):
        with pytest.raises(error, match=message):
            agents.evaluate(name, "SlidingBlock-v0", episodes=2)


PEAK = """\
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""Prints the peak of memory of a command [kB on Linux]; a child of pytest itself would begin with that of pytest."""


@pytest.fixture(scope="module")
def demo():
    return load_script("scripts/demo.py")


def test_a_vine_is_recorded_identified_planned_and_transferred_in_a_gigabyte(tmp_path):
    command = [sys.executable, ROOT / "scripts" / "demo.py", "VineGrow-v0", "--horizon", "12", "--samples", "8"]
    ran = subprocess.run(
        [sys.executable, "-c", PEAK, *command, "--out", tmp_path], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert int(ran.stdout) < (1e9 if sys.platform == "darwin" else 1e6)
    numbers = json.loads((tmp_path / "demo.json").read_text())
    costs = {row[0]: float(row[1]) for row in numbers["rows"]}
    assert list(costs) == ["no control", "before identification", "identified", "best possible"]
    assert numbers["ground_truth_steps"] == 1000
    assert max(costs["identified"], costs["best possible"]) < costs["no control"]
    assert (tmp_path / "fit" / "body" / "fit.toml").exists() and (tmp_path / "demo.gif").read_bytes()[:3] == b"GIF"
    page = (tmp_path / "report.html").read_text()
    assert "Cost is a sum over the control steps, less is better" in page and "Cost on the ground truth: before" in page
    assert page.count("data:image/") == 2 and 'href="fit/report.html"' in page


def test_the_demo_says_what_it_is_at_while_it_works():
    """A line at every change, and others for as long as nothing changes; none after its end."""
    said = io.StringIO()
    with Beat(said, 1e-3) as progress:
        progress.say("planning")
        while said.getvalue().count("... planning") < 3:  # for ever, if there are none
            time.sleep(1e-3)
        progress.write("drawing\n")
        progress.write("\r 10 %|#         |")  # a bar
        while said.getvalue().count("s] ... drawing\n") < 3:
            time.sleep(1e-3)
    assert said.getvalue().splitlines()[0].endswith("s] planning") and not progress._thread.is_alive()


def test_an_id_without_a_study_is_refused(demo, tmp_path, capsys):
    assert demo.main(demo.Args(id="SlidingBlock-v0", out=tmp_path)) == 2
    assert "declares no study of 'SlidingBlock-v0'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"horizon": 0}, "--horizon is 0, expected a whole number >= 1"),
        ({"samples": 1}, "--samples is 1, expected a whole number >= 2"),
        ({"seed": -1}, "--seed is -1, expected a whole number >= 0"),
        ({"period": 0.0}, "--period is 0.0, expected a number [s] > 0"),
        ({"period": 0.0015}, "--period is 0.0015 s, expected a whole number of physics steps of "),
        ({"backend": "nofile.toml"}, "nofile.toml"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_recorded(demo, tmp_path, capsys, given, message):
    assert demo.main(demo.Args(id="VineGrow-v0", out=tmp_path, **given)) == 2
    said = capsys.readouterr()
    assert message in said.err and "recording" not in said.out


def test_plans_that_are_worth_nothing_are_said_to_be(demo):
    assert "does ElasticCatch-v0 begin at its goal" in demo.idle_note("ElasticCatch-v0", {demo.IDLE: 0.0, demo.BEST: 0.0})
    assert demo.idle_note("ElasticCatch-v0", {demo.IDLE: 5.0, demo.BEST: 0.0}) == ""


def test_a_ground_truth_that_the_system_has_not_is_refused(demo, tmp_path, capsys):
    assert demo.main(demo.Args(id="VineGrow-v0", backend="bullet", out=tmp_path)) == 2
    assert "backend is 'bullet', allowed are native, mujoco, " in capsys.readouterr().err


def test_a_system_is_played_and_fitted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    warmup, done = load_script("scripts/warmup.py"), list[str]()
    identify, make = warmup.identify, gym.make

    def named(work: Any, name: str, *given: Any, **more: Any) -> Any:
        done.append(name)
        return work(name, *given, **more)

    monkeypatch.setattr(warmup, "identify", lambda *given, **more: named(identify, *given, **more))
    monkeypatch.setattr(gym, "make", lambda *given, **more: named(make, *given, **more))
    assert warmup.main(warmup.Args(("block",))) == 0 and done == ["softgym_envs:SlidingBlock-v0", "block"]
    said = capsys.readouterr().out.split("\r")
    assert said[1].startswith("compiling SlidingBlock-v0: 1 of 2, about 48 s") and "2 of 2 compiled" in said[-1]
