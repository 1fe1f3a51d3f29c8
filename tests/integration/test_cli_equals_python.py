"""The command line and the public functions give equal bits, for every system: what they decide is decided once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import load_script, run_script

import sysid
from softgym_envs.core.files import read_toml
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.systems import LIST, system

SHORT = {"loop": 200, "vine": 400, "arm": 300, "upper_body": 100, "tensegrity": 200}
"""Physics steps of a recording where the procedure's would take too long."""

FEW = {"loop": ("theta_stiffness", "psi_stiffness")}
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
