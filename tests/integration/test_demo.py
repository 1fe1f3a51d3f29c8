"""The demo runs any id whose system declares a study of it, and ends in a page."""

import io
import json
import subprocess
import sys
import time

import pytest
from helpers import ROOT, load_script

from sysid.report.progress import Beat

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
