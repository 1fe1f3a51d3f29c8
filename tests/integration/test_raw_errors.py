"""What ended in a traceback at the command line: one sentence that names what to do, and exit code 2."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import ROOT, load_script, run_limited

from softgym_envs.core.errors import FileFormatError, OptionError
from softgym_envs.core.spec import SimulatorSpec
from softgym_envs.core.system import task_keywords
from sysid.diagnostics.uncertainty import clustered_covariance


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`main` of the command line."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return load_script("scripts/__main__.py").main


WITHOUT = """import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {0!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())"""
"""Begin of a program for which a package is not installed."""


@pytest.mark.parametrize(
    ("package", "extra", "arguments"),
    [("casadi", "sysid", ("identify", "block", "--data")), ("torch", "learn", ("train", "SlidingBlock-v0", "--steps", "1")),
     ("torch", "learn", ("evaluate", ROOT / "pyproject.toml", "SlidingBlock-v0"))],
    ids=("casadi", "torch-train", "torch-evaluate"),
)  # fmt: skip
def test_a_missing_package_names_the_extra_that_brings_it(
    command: Any, tmp_path: Path, package: str, extra: str, arguments: tuple[Any, ...]
) -> None:
    """As after `pip install .`."""
    if package == "casadi":
        assert command(("record", "block", "--steps", "100", "--out", str(tmp_path / "data.h5"))) == 0
        arguments = (*arguments, tmp_path / "data.h5")
    code = f"{WITHOUT.format(package)}\nfrom scripts.__main__ import main; sys.exit(main())"
    given = [sys.executable, "-c", code, *map(str, arguments), "--out", str(tmp_path / "out")]
    found = run_limited(given, seconds=60, cwd=ROOT)
    said = found.stderr.replace("stable-baselines3", "torch")
    assert found.returncode == 2 and package in said and f'pip install ".[{extra}]"' in said and "Traceback" not in said


@pytest.mark.parametrize(
    ("word", "said"),
    [("max_episode_steps=0", "max_episode_steps is 0"), ("max_episode_steps=nan", "max_episode_steps is nan"),
     ("max_episode_steps=x", "max_episode_steps is 'x'"), ("id=x", "id is the command's own"), ("nan", "expected key=value"),
     ("num_envs=3", "num_envs is the command's own"), ("wrappers=[]", "wrappers is the command's own")],
)  # fmt: skip
def test_keywords_of_gymnasium_itself_are_checked(word: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        task_keywords((word,), ())
    assert task_keywords(("max_episode_steps=3",), ()) == {"max_episode_steps": 3}


@pytest.mark.parametrize("value", ["3", "[1.0]", "true", "{ a = 1 }"])
def test_a_structure_that_is_not_text_is_named(tmp_path: Path, value: str) -> None:
    path = tmp_path / "fit.toml"
    path.write_text(f'[parameters]\n[simulator]\nsystem = "block"\ndt = 0.01\n[simulator.structure]\npulley = {value}\n')
    with pytest.raises(FileFormatError, match=r"\[simulator\.structure\] pulley is"):
        SimulatorSpec.read(path)


def test_a_full_disk_ends_a_training_in_a_sentence(
    command: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("stable_baselines3")

    def full(self: Path, *_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    monkeypatch.setattr(Path, "open", full)
    given = ("train", "SlidingBlock-v0", "--num-envs", "4", "--steps", "512", "--episodes", "1", "--out", str(tmp_path))
    assert command(given) == 2
    assert "No space left on device" in capsys.readouterr().err


def test_a_fault_of_ours_keeps_its_traceback(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("softgym_envs.systems.systems", broken)
    with pytest.raises(ZeroDivisionError):
        command(("list",))


# --- Data in which nothing touches ------------------------------------------------------------------------------------


def test_clustered_errors_of_a_constant_that_only_its_prior_knows_are_the_priors() -> None:
    """A box that flies tells nothing of friction: J'J is singular, J'J + P is not."""
    rng = np.random.default_rng(0)
    jacobian = np.column_stack([rng.standard_normal(4000), np.zeros(4000)])
    prior, variance = np.diag([0.0, 1.0 / 0.4]), 2.0
    residual = np.sqrt(variance) * rng.standard_normal(4000)
    given = (jacobian, residual, np.arange(4000) // 10, np.eye(2))
    found = clustered_covariance(*given, prior=np.sqrt(variance) * prior, variance=variance)
    assert found[1, 1] == pytest.approx(0.4**2, rel=1e-9) and abs(found[0, 1]) < 1e-12
    assert found[0, 0] == pytest.approx(variance / np.sum(jacobian[:, 0] ** 2), rel=0.2)


def test_clustered_errors_with_a_prior_are_the_scatter_of_such_estimates() -> None:
    """Slope under noise that lasts, with a prior that says as much: 4000 draws of noise and of the prior's mean."""
    rng = np.random.default_rng(1)
    regressor, clusters = rng.standard_normal(300).cumsum()[:, None] / 10, np.arange(300) // 15
    noise = np.repeat(rng.standard_normal((4000, 20)), 15, axis=1)  # as constant as it can be
    information = float(np.sum(regressor**2))
    spread = np.sqrt(15.0 / information)
    means = spread * rng.standard_normal(4000)
    estimates = (noise @ regressor[:, 0] + means / spread**2) / (information + 1.0 / spread**2)
    left = noise - estimates[:, None] * regressor[:, 0]
    prior = np.array([[1.0 / spread]])
    stated = [clustered_covariance(regressor, r, clusters, np.eye(1), prior=prior)[0, 0] for r in left[:400]]
    assert np.mean(np.abs(estimates) < 1.96 * np.sqrt(np.mean(stated))) > 0.93
    assert np.mean(stated) < 2.5 * np.var(estimates)


def test_a_box_that_touches_nothing_is_told_from_its_prior(command: Any, tmp_path: Path, capsys: Any) -> None:
    """Clustered errors and priors: it ended in LinAlgError: Singular matrix."""
    times, rng = np.arange(40) / 148.0, np.random.default_rng(0)
    height = 1.0 + 0.5 * times - 0.5 * 9.81 * times**2
    table = [times, 0.3 * times, 0.1 * times, height, *np.tile([[1.0], [0.0], [0.0], [0.0]], 40)]
    table = np.column_stack(table)
    table[:, 1:4] += 1e-3 * rng.standard_normal((40, 3))
    header = "time [s],x [m],y [m],z [m],qw [-],qx [-],qy [-],qz [-]"
    np.savetxt(tmp_path / "flight.csv", table, delimiter=",", header=header, comments="", fmt="%.9g")
    given = ("identify", "box", "--data", str(tmp_path / "flight.csv"), "--out", str(tmp_path / "out"))
    assert command(given) in (0, 2)
    said = capsys.readouterr()
    assert "(mostly as known before)" in said.out and "Traceback" not in said.err
    assert json.loads((tmp_path / "out" / "fit.json").read_text())["converged"]
