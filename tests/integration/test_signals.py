"""Ctrl-C and SIGTERM in commands: exit 130, what was finished is on disk and can be read, nothing is half-written.

The commands run in processes of their own, with one function replaced by a slow one that prints `SLOW` and sleeps.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import HUNG, ROOT, load_script, run_script
from sysid_systems import Spring, SpringParameters, record
from test_sysid_script import GROUND_TRUTH, PROCEDURE

from softgym_envs.core.errors import FitWarning
from softgym_envs.core.parameters import warn_of_file
from softgym_envs.core.trajectory import TrajectorySet

SPRING = "test_sysid_script:SYSTEM"
SLOW = "slow now"
COMMAND = """
import sys, time
from importlib import import_module
name, calls, *arguments = sys.argv[1:]
sys.path.insert(0, {root!r})
from scripts.__main__ import main
module, _, place = name.partition(":")
*owners, last = place.split(".")
owner = import_module(module)
for one in owners:
    owner = getattr(owner, one)
quick, count = getattr(owner, last), [0]

def slow(*args, **keywords):
    count[0] += 1
    if count[0] > int(calls):
        print({slow!r}, flush=True)
        time.sleep({hung})
    return quick(*args, **keywords)

setattr(owner, last, slow)
sys.exit(main(arguments))
"""


def interrupted(sign: int, slow: str, calls: int, *arguments: Any) -> tuple[int, str, str]:
    """Send a signal to a command in call number `calls` + 1 of the function "module:name"; its exit code and what it said."""
    code = COMMAND.format(root=str(ROOT), slow=SLOW, hung=HUNG)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT), *sys.path])}
    process = subprocess.Popen(
        [sys.executable, "-c", code, slow, str(calls), *map(str, arguments)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in the background
    )  # fmt: skip
    try:
        assert process.stdout is not None
        before = ""
        for line in process.stdout:
            before += line
            if SLOW in line:
                process.send_signal(sign)
                break
        said, complaint = process.communicate(timeout=HUNG)
    finally:
        process.kill()
    assert SLOW in before, complaint
    assert "Traceback" not in complaint
    return process.returncode, before + said, complaint


def whole(folder: Path) -> list[str]:
    """Names of the files in a folder; none is a part of one."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert not [name for name in names if name.endswith(".tmp")]
    return names


# --- identify ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL], ids=lambda sign: sign.name)
def test_a_fit_is_written_before_causes_are_looked_for(tmp_path: Path, sign: signal.Signals) -> None:
    record(Spring(), GROUND_TRUTH, count=2).save(tmp_path / "data.h5")
    given = ("--data", tmp_path / "data.h5", "--method", "single_shooting", "--out", tmp_path / "out")
    code, said, _ = interrupted(sign, "sysid.procedure.stage:_asked", 0, "identify", SPRING, *given)
    assert code == (-sign if sign == signal.SIGKILL else 130)
    found = SpringParameters.load(tmp_path / "out" / "fit.toml")
    assert found.stiffness == pytest.approx(GROUND_TRUTH.stiffness, rel=1e-6)
    page = [] if sign == signal.SIGKILL else ["report.html"]
    assert whole(tmp_path / "out") == ["fit.json", "fit.toml", *page]
    codes = [d["code"] for d in json.loads((tmp_path / "out" / "fit.json").read_text())["diagnostics"]]
    assert "interrupted" in codes
    assert sign == signal.SIGKILL or "interrupted: what it may lack" in said


def test_an_interrupted_procedure_keeps_the_stages_that_were_finished(tmp_path: Path) -> None:
    """The second stage is fitted (Ctrl-C), or has been and is examined (SIGTERM): both lost the first one's findings, too."""
    rng = np.random.default_rng(0)
    data = TrajectorySet(
        tuple(PROCEDURE.record_one("pushed", Spring(), rng, steps=100, parameters=GROUND_TRUTH) for _ in range(2))
    )
    given = ("--data", data.save(tmp_path / "data.h5"), "--out")
    script = load_script("scripts/identify.py")
    assert run_script(script, SPRING, *given, tmp_path / "whole") == 0
    files = ["all/fit.json", "all/fit.toml", "elastic/fit.json", "elastic/fit.toml", "fit.json", "fit.toml", "report.html"]

    out = tmp_path / "fitting"
    code, said, complaint = interrupted(
        signal.SIGINT, "sysid.procedure.run:fit_without_bands", 1, "identify", SPRING, *given, out
    )
    assert code == 130 and "interrupted; not fitted: all; --resume goes on" in complaint
    assert "1 of 1 parameters identified" in said and str(out / "report.html") in said
    assert whole(out) == files[2:]
    with pytest.warns(FitWarning, match="interrupted: stages all were not fitted"):
        warn_of_file(out / "fit.toml")
    begun = (out / "elastic" / "fit.json").read_bytes()
    assert run_script(script, SPRING, *given, out, "--resume") == 0
    assert (out / "elastic" / "fit.json").read_bytes() == begun
    assert SpringParameters.load(out / "fit.toml") == SpringParameters.load(tmp_path / "whole" / "fit.toml")

    out = tmp_path / "asking"
    code, said, complaint = interrupted(signal.SIGTERM, "sysid.procedure.stage:_asked", 1, "identify", SPRING, *given, out)
    assert code == 130 and "interrupted; --resume goes on" in complaint
    assert "3 of 3 parameters identified" in said and "interrupted: what it may lack" in said
    assert whole(out) == files
    assert SpringParameters.load(out / "fit.toml") == SpringParameters.load(tmp_path / "whole" / "fit.toml")
    assert run_script(script, SPRING, *given, out, "--resume") == 0
    assert "interrupted" not in (out / "all" / "fit.json").read_text()


def test_ctrl_c_while_a_fit_is_judged_leaves_a_checkpoint(tmp_path: Path) -> None:
    record(Spring(), GROUND_TRUTH, count=2).save(tmp_path / "data.h5")
    given = ("--data", tmp_path / "data.h5", "--method", "single_shooting", "--out", tmp_path / "out")
    code, _, complaint = interrupted(signal.SIGINT, "sysid.fitting.shooting:diagnose", 0, "identify", SPRING, *given)
    assert code == 130 and "--resume goes on" in complaint and whole(tmp_path / "out") == ["checkpoint.json"]
    assert run_script(load_script("scripts/identify.py"), SPRING, *given, "--resume") == 0
    assert whole(tmp_path / "out") == ["fit.json", "fit.toml", "report.html"]


# --- Other commands ---------------------------------------------------------------------------------------------------


def test_an_interrupted_recording_leaves_no_file(tmp_path: Path) -> None:
    given = ("--count", 3, "--steps", 20, "--out", tmp_path / "data.h5")
    code, _, complaint = interrupted(
        signal.SIGTERM, "softgym_envs.core.procedure:Procedure.record_one", 2, "record", "block", *given
    )
    assert code == 130 and "interrupted" in complaint and not whole(tmp_path)


def test_an_interrupted_evaluation_leaves_no_file(tmp_path: Path) -> None:
    given = ("pretrained", "SlidingBlock-v0", "--episodes", 1, "--out", tmp_path / "found.json")
    code, _, complaint = interrupted(signal.SIGTERM, "gymnasium:make_vec", 1, "evaluate", *given)
    assert code == 130 and "interrupted" in complaint and not whole(tmp_path)


def test_what_was_played_before_a_signal_is_written(tmp_path: Path) -> None:
    pytest.importorskip("pygame")
    given = ("SlidingBlock-v0", "--headless-frames", 100, "--dataset", tmp_path / "play.h5", "--record", tmp_path / "play.gif")
    code, said, _ = interrupted(signal.SIGTERM, "softgym_envs.envs.player:Player.step", 5, "play", *given)
    assert code == 130 and said.count("wrote") == 2
    assert len(TrajectorySet.load(tmp_path / "play.h5")[0].times) == 6
    assert (tmp_path / "play.gif").read_bytes()[:3] == b"GIF" and whole(tmp_path) == ["play.gif", "play.h5"]


def test_an_interrupted_study_leaves_what_it_goes_on_from(tmp_path: Path) -> None:
    given = ("smoke", "--workers", 1, "--no-video", "--conditions", "zero", "ground_truth", "nominal", "--out", tmp_path)
    code, _, complaint = interrupted(signal.SIGTERM, "agents.transfer_study.jobs:run_one", 0, "transfer", *given)
    assert code == 130 and "the same command goes on" in complaint and whole(tmp_path) == ["study.json"]


def test_an_interrupted_training_leaves_a_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    given = ("SlidingBlock-v0", "--num-envs", 4, "--steps", 512, "--episodes", 2, "--out", tmp_path)
    code, _, complaint = interrupted(signal.SIGTERM, "agents.learning.ppo:LeanPPO.train", 1, "train", *given)
    assert code == 130 and "the same command with --resume goes on from policy_512_steps.zip" in complaint
    assert "policy_512_steps.zip" in whole(tmp_path) and "policy.zip" not in whole(tmp_path)
    assert run_script(load_script("scripts/train.py"), *given[:4], 600, *given[5:], "--resume") == 0
    assert "policy.zip" in whole(tmp_path)


# --- Where Python loses exceptions ------------------------------------------------------------------------------------


def test_a_signal_in_a_callback_from_c_is_raised_after_it() -> None:
    """As while LLVM compiles: Python drops what a callback raises, and Numba then failed with "no compiled object yet"."""
    main = load_script("scripts/__main__.py")
    there = {"__name__": "llvmlite.binding", "os": os, "signal": signal, "sign": signal.SIGTERM}
    exec("def callback():\n    os.kill(os.getpid(), sign)\n    return 7\n", there)
    found = []
    with pytest.raises(KeyboardInterrupt), main.interruptible():
        found.append(ctypes.CFUNCTYPE(ctypes.c_int)(there["callback"])())
        time.sleep(HUNG)
    assert found == [7]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_an_ignored_signal_stays_ignored() -> None:
    """Commands in the background of a shell ignore Ctrl-C."""
    main, before = load_script("scripts/__main__.py"), signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with main.interruptible():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
