"""scripts/identify.py on a room of the tests: from a file to a report, and verdicts instead of tracebacks."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sysid_systems import Spring, SpringParameters, record

from softgym_envs.core.trajectory import TrajectorySet

TRUTH = SpringParameters(mass=2.0, stiffness=45.0, damping=0.8, gain=2.0)


class Setup:
    simulator = Spring()
    free = ("stiffness", "damping", "gain")

    def measurement(self, names: tuple[str, ...]) -> Any:
        """Two points on the mass."""
        return (lambda x: np.stack([x[..., 0], x[..., 0] + 0.2], axis=-1), names) if names == ("a.x", "b.x") else None

    def first_state(self, names: tuple[str, ...]) -> Any:
        """Where the point was first seen, at rest."""
        return lambda recording: np.array([recording.values[0, 0], 0.0])


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    room = types.ModuleType("softgym_envs.spring")
    room.identification_setup = lambda variant: Setup()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "softgym_envs.spring", room)
    path = Path(__file__).parents[1] / "scripts" / "identify.py"
    spec = importlib.util.spec_from_file_location("identify_script", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "identify_script", module)
    spec.loader.exec_module(module)
    return module


def run(script: Any, *arguments: str) -> int:
    import tyro

    return int(script.main(tyro.cli(script.Args, args=list(arguments))))


@pytest.mark.parametrize("method", ["one_step", "multiple_shooting", "single_shooting"])
def test_a_file_becomes_a_fit(script: Any, tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]) -> None:
    record(Spring(), TRUTH, count=2).save(tmp_path / "data.h5")
    out = tmp_path / "out"
    assert run(script, "spring", "--data", str(tmp_path / "data.h5"), "--method", method, "--out", str(out)) == 0
    assert SpringParameters.load(out / "fit.toml").stiffness == pytest.approx(45.0, rel=1e-8)
    assert (out / "report.html").stat().st_size > 10_000 and not (out / "checkpoint.json").exists()
    said = capsys.readouterr().out
    assert "3 of 3 constants identified" in said and "commit" in said


def test_a_csv_of_the_laboratory_becomes_a_fit(script: Any, tmp_path: Path) -> None:
    t = record(Spring(), TRUTH)[0]
    force = np.append(t.controls[:, 0], 0.0)
    lines = ["time [ms],mass.x [mm],control:force [-]"]
    lines += [
        f"{1000 * a!r},{1000 * b!r},{c!r}"
        for a, b, c in zip(t.times.tolist(), t.values[:, 0].tolist(), force.tolist(), strict=True)
    ]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    out = tmp_path / "out"
    arguments = (
        "--data",
        str(tmp_path / "data.csv"),
        "--method",
        "single_shooting",
        "--noise",
        "mass.x",
        "0.0001",
        "--out",
        str(out),
    )
    assert run(script, "spring", *arguments) == 0
    assert SpringParameters.load(out / "fit.toml").stiffness == pytest.approx(45.0, rel=1e-6)


def test_tracked_points_and_controls_from_two_files_become_a_fit(script: Any, tmp_path: Path) -> None:
    t = record(Spring(), TRUTH)[0]
    lines = ["time [s],point,x [mm],y [mm]"]
    for time, x in zip(t.times.tolist(), t.values[:, 0].tolist(), strict=True):
        lines += [f"{time!r},a,{1000 * x!r},0.0", f"{time!r},b,{1000 * x + 200!r},0.0"]
    (tmp_path / "points.csv").write_text("\n".join(lines) + "\n")
    force = np.append(t.controls[:, 0], 0.0).tolist()
    (tmp_path / "controls.csv").write_text(
        "\n".join(
            ["time [s],x [m],control:force [-]", *(f"{a!r},0.0,{c!r}" for a, c in zip(t.times.tolist(), force, strict=True))]
        )
        + "\n"
    )
    out = tmp_path / "out"
    files = ("--data", str(tmp_path / "points.csv"), "--controls", str(tmp_path / "controls.csv"))
    assert run(script, "spring", *files, "--columns", "a.x", "b.x", "--method", "single_shooting", "--out", str(out)) == 0
    assert SpringParameters.load(out / "fit.toml").stiffness == pytest.approx(45.0, rel=1e-6)


def test_bad_data_and_bad_arguments_end_in_one_sentence(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    TrajectorySet((record(Spring(), TRUTH)[0].window(0.0, 0.1),)).save(tmp_path / "short.h5")
    (tmp_path / "data.txt").write_text("1 2 3")
    cases = {
        ("spring", "--data", str(tmp_path / "short.h5")): "too short",
        ("spring", "--data", str(tmp_path / "none.h5")): "no such file",
        ("spring", "--data", str(tmp_path / "data.txt")): "expected .h5, .hdf5 or .csv",
        ("submarine", "--data", str(tmp_path / "short.h5")): "no robot that can be identified",
        ("spring", "--data", str(tmp_path / "short.h5"), "--free", "colour"): "unknown constant 'colour'",
    }
    for arguments, verdict in cases.items():
        assert run(script, *arguments, "--out", str(tmp_path / "out")) == 2
        said = capsys.readouterr().err
        assert verdict in said and "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_advice_is_given_as_flags_and_unused_columns_are_named(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    t = record(Spring(), TRUTH)[0]
    still = t.with_controls(np.zeros_like(t.controls), t.control_names, t.control_units)
    TrajectorySet((still,)).save(tmp_path / "still.h5")
    assert run(script, "spring", "--data", str(tmp_path / "still.h5"), "--out", str(tmp_path / "out")) == 2
    said = capsys.readouterr().err
    assert "say --free-motion if" in said and "free_motion=True" not in said
    wide = t.with_controls(np.hstack([t.controls, t.controls]), ("force", "pump"), ("N", "V"))
    TrajectorySet((wide,)).save(tmp_path / "wide.h5")
    assert run(script, "spring", "--data", str(tmp_path / "wide.h5"), "--out", str(tmp_path / "out")) == 0
    said = capsys.readouterr()
    assert "recorded, but not used: pump. Is it the right robot?" in said.out
    assert said.err == ""  # no progress bar where nobody watches
