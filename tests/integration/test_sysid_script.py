"""scripts/identify.py on a system of the tests: from a file to a report, and sentences instead of tracebacks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import load_script, run_script
from sysid_systems import Spring, SpringParameters, record

from softgym_envs.core.errors import OptionError
from softgym_envs.core.procedure import Experiment, InitialState, Measurement, Procedure, Recorded, Stage
from softgym_envs.core.system import System
from softgym_envs.core.task import load as load_object
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.systems import system
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from sysid import FitProblem, load
from sysid.fitting.running import Running
from sysid.fitting.shooting import ShootingOptions, single_shooting
from sysid.procedure.job import Job
from sysid.procedure.run import run_procedure

GROUND_TRUTH = SpringParameters(mass=2.0, stiffness=45.0, damping=0.8, gain=2.0)


def engine(model: Any, dt: float = 0.02) -> Spring:
    """The spring as a system's engine."""
    return Spring(dt=dt)


def pushed(ground_truth: Any, rng: np.random.Generator, *, steps: int, parameters: Any = None) -> Trajectory:
    """Random forces from rest."""
    controls = rng.uniform(-1.0, 1.0, (1, steps, 1))
    states, _ = ground_truth.rollout(ground_truth.initial_state(1), controls, parameters)
    return Trajectory.from_rollout(ground_truth, states[0], controls[0])


def two_points(simulator: Any, names: tuple[str, ...]) -> Measurement | None:
    """Two points on the mass."""
    if not {"a.x", "b.x"} <= set(names):
        return None
    return Measurement(("a.x", "b.x"), lambda x: np.stack([x[..., 0], x[..., 0] + 0.2], axis=-1))


def at_rest(simulator: Any, names: tuple[str, ...]) -> Any:
    """Where the point was first seen, at rest."""
    return lambda recording: np.array([recording.values[0, 0], 0.0])


FREE = ("stiffness", "damping", "gain")
PROCEDURE = Procedure(
    stages=(Stage("elastic", "pushed", FREE[:1], "one_step"), Stage("all", "pushed", FREE, "one_step")),
    from_recordings=Stage("from_recordings", "", FREE, "multiple_shooting", {"starts": 3}),
    experiments=(Experiment("pushed", pushed, 100),),
    recorded=Recorded(two_points),
    initial=InitialState(at_rest),
)
HERE = "test_sysid_script"
SYSTEM = System(
    "spring", "a mass on a spring", f"{HERE}:engine", {"spring": "types:SimpleNamespace"}, procedure=f"{HERE}:PROCEDURE"
)
SPRING = f"{HERE}:SYSTEM"


@pytest.mark.parametrize("method", ["one_step", "multiple_shooting", "single_shooting"])
def test_a_file_becomes_a_fit(script: Any, tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]) -> None:
    record(Spring(), GROUND_TRUTH, count=2).save(tmp_path / "data.h5")
    out = tmp_path / "out"
    assert run_script(script, SPRING, "--data", str(tmp_path / "data.h5"), "--method", method, "--out", str(out)) == 0
    assert SpringParameters.load(out / "fit.toml").stiffness == pytest.approx(45.0, rel=1e-8)
    assert (out / "report.html").stat().st_size > 10_000 and not (out / "checkpoint.json").exists()
    said = capsys.readouterr().out
    assert "3 of 3 parameters identified" in said and "commit" in said


def test_a_csv_of_the_laboratory_becomes_a_fit(script: Any, tmp_path: Path) -> None:
    t = record(Spring(), GROUND_TRUTH)[0]
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
    assert run_script(script, SPRING, *arguments) == 0
    assert SpringParameters.load(out / "fit.toml").stiffness == pytest.approx(45.0, rel=1e-6)


def test_tracked_points_and_controls_from_two_files_become_a_fit(script: Any, tmp_path: Path) -> None:
    t = record(Spring(), GROUND_TRUTH)[0]
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
    assert run_script(script, SPRING, *files, "--columns", "a.x", "b.x", "--method", "single_shooting", "--out", str(out)) == 0
    assert SpringParameters.load(out / "fit.toml").stiffness == pytest.approx(45.0, rel=1e-6)


def test_bad_data_and_bad_arguments_end_in_one_sentence(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    TrajectorySet((record(Spring(), GROUND_TRUTH)[0].window(0.0, 0.1),)).save(tmp_path / "short.h5")
    (tmp_path / "data.txt").write_text("1 2 3")
    cases = {
        (SPRING, "--data", str(tmp_path / "short.h5")): "too short",
        (SPRING, "--data", str(tmp_path / "none.h5")): "no such file",
        (SPRING, "--data", str(tmp_path / "data.txt")): "expected a header and at least one row",
        ("submarine", "--data", str(tmp_path / "short.h5")): "unknown system 'submarine'",
        (SPRING, "--data", str(tmp_path / "short.h5"), "--seed", "-1"): "--seed is -1, expected a whole number >= 0",
        (SPRING, "--data", str(tmp_path / "short.h5"), "--settings", "colour=1"): "multiple_shooting has no option 'colour'",
        (SPRING, "--data", str(tmp_path / "short.h5"), "--free", "colour"): "unknown parameter 'colour'",
        (SPRING, "--data", str(tmp_path / "short.h5"), "--split", "0", "0", "1"): "no recording is left to fit",
        (SPRING, "--data", str(tmp_path / "short.h5"), "--split", "2", "0", "0"): "add up to the 1 trajectories",
    }
    for arguments, diagnostic in cases.items():
        assert run_script(script, *arguments, "--out", str(tmp_path / "out")) == 2
        said = capsys.readouterr().err
        assert diagnostic in said and "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_advice_is_given_as_flags_and_unused_columns_are_named(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    t = record(Spring(), GROUND_TRUTH)[0]
    still = t.with_controls(np.zeros_like(t.controls), t.control_names, t.control_units)
    TrajectorySet((still,)).save(tmp_path / "still.h5")
    assert run_script(script, SPRING, "--data", str(tmp_path / "still.h5"), "--out", str(tmp_path / "out")) == 2
    said = capsys.readouterr().err
    assert "say --free-motion if" in said and "free_motion=True" not in said
    wide = t.with_controls(np.hstack([t.controls, t.controls]), ("force", "pump"), ("N", "V"))
    TrajectorySet((wide,)).save(tmp_path / "wide.h5")
    assert run_script(script, SPRING, "--data", str(tmp_path / "wide.h5"), "--out", str(tmp_path / "out")) == 0
    said = capsys.readouterr()
    assert "recorded, but not used: pump; is it the right robot?" in said.out
    assert "\r" not in said.err and "it/s" not in said.err  # no bar where nobody watches


def test_another_method_keeps_the_options_of_a_stage_that_it_has() -> None:
    """A vine's laboratory stage lets intervals allow for half a step; an evolution strategy has no such option."""
    procedure = load_object(system("vine").procedure)
    shooting, evolution = (Job("vine", (), method=method).chosen(procedure) for method in ("multiple_shooting", "cma_es"))
    assert shooting.options["intervals"]["half_step"] and shooting.options["initial"]["restart_steps"] == 24
    assert "intervals" not in evolution.options and "initial" not in evolution.options


def test_what_was_recorded_goes_through_the_whole_procedure_and_resumes(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record_script = load_script("scripts/record.py")
    ground_truth, file, out = GROUND_TRUTH.save(tmp_path / "ground_truth.toml"), tmp_path / "rec.h5", tmp_path / "out"
    assert run_script(record_script, SPRING, "--parameters", str(ground_truth), "--count", "2", "--out", str(file)) == 0
    assert "pushed: 2 s, 100 rows of 2 columns" in capsys.readouterr().out
    start = SpringParameters(mass=2.0).save(tmp_path / "start.toml")
    arguments = (SPRING, "--data", str(file), "--initial-guess", str(start), "--out", str(out))
    assert run_script(script, *arguments) == 0
    assert SpringParameters.load(out / "all" / "fit.toml").stiffness == pytest.approx(45.0, rel=1e-8)
    assert (out / "fit.toml").read_bytes() == (out / "all" / "fit.toml").read_bytes()
    before = (out / "all" / "fit.json").read_text()
    for flags in (("--noise", "mass.x", "0.1"), ("--settings", "starts=3"), ("--seed", "3")):
        assert run_script(script, *arguments, *flags) == 2
        assert (
            f"{flags[0]} is of one stage, these recordings are fitted by elastic, all: add --stage" in capsys.readouterr().err
        )
    assert run_script(script, *arguments[:-1], str(file)) == 2
    assert "which is no folder" in capsys.readouterr().err
    assert run_script(script, *arguments, "--resume") == 0
    assert (out / "all" / "fit.json").read_text() == before  # taken, not fitted again
    assert run_script(script, *arguments, "--split", "1", "0", "1") == 0
    assert "1 + 0 + 1 (train" in json.loads((out / "all" / "fit.json").read_text())["provenance"]["recordings"]
    assert run_script(script, *arguments, "--stage", "elastic", "--free", "stiffness", "damping", "gain") == 0
    assert SpringParameters.load(out / "fit.toml").stiffness == pytest.approx(45.0, rel=1e-8)
    capsys.readouterr()
    assert run_script(script, *arguments, "--stage", "elastic", "--resume") == 2
    assert "has ended, with its parameters in fit.toml" in capsys.readouterr().err
    assert run_script(script, *arguments, "--stage", "plastic") == 2
    assert "unknown stage 'plastic'; there are elastic, all, from_recordings" in capsys.readouterr().err
    assert run_script(record_script, SPRING, "--experiments", "drop", "--out", str(file)) == 2
    assert "unknown experiment 'drop'; there are pushed" in capsys.readouterr().err


def test_only_the_last_stage_of_an_experiment_keeps_within_limits() -> None:
    """Of a spring of 45 N/m the first stage tells that; the next may not say more than 40, and begins there."""
    recording = PROCEDURE.record_one("pushed", Spring(), np.random.default_rng(0), steps=100, parameters=GROUND_TRUTH)
    start = SpringParameters(mass=2.0, damping=0.8, gain=2.0)
    limits = {"stiffness": (1.0, 40.0)}
    first, last = run_procedure(PROCEDURE, Spring(), TrajectorySet((recording,)), start=start, limits=limits).stages
    assert first.fit.parameters.stiffness == pytest.approx(45.0, rel=1e-6)  # type: ignore[attr-defined]
    assert last.fit.parameters.stiffness == pytest.approx(40.0, rel=1e-9)  # type: ignore[attr-defined]


def test_a_throw_needs_no_controls_and_a_cameras_names_are_said(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line per point and time, no column of controls; and the same with labels of another laboratory's."""
    simulator = TensegritySimulator(contact="patch")
    nodes = simulator.model.node_positions(
        simulator.rollout(simulator.initial_state(), np.zeros((1, 20, 24)), substeps=10)[0][0]
    )
    for name, label in (("throw", "{}"), ("other", "M{}")):
        lines = [
            f"{0.01 * row:.2f},{label.format(node)},{x!r},{y!r},{z!r}"
            for row, points in enumerate(nodes.tolist())
            for node, (x, y, z) in enumerate(points)
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join(["time [s],point,x [m],y [m],z [m]", *lines]) + "\n")
    _, _, recordings = Job("tensegrity", load(tmp_path / "throw.csv"), free_motion=True).prepared()
    assert recordings.control_names == simulator.control_names and not recordings[0].controls.any()
    other = ("tensegrity", "--data", str(tmp_path / "other.csv"), "--free-motion", "--out", str(tmp_path / "out"))
    assert run_script(script, *other) == 2
    assert "a camera's are named node0.x, node0.y" in capsys.readouterr().err


def test_recordings_of_another_robot_are_refused_before_any_stage(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By what `record` says of the robot; of files from before it said so, by their controls."""
    file, out = tmp_path / "throws.h5", ("--out", str(tmp_path / "out"))
    arguments = ("tensegrity", "--model", "prism", "--experiments", "throws", "--steps", "20", "--out", str(file))
    assert run_script(load_script("scripts/record.py"), *arguments) == 0
    assert run_script(script, "tensegrity", "--data", str(file), *out) == 2
    assert "of prism, with 3 controls; superball, which is to be fitted, has 24: say --model" in capsys.readouterr().err
    assert run_script(script, "block", "--data", str(file), *out) == 2
    assert "of a robot of system 'tensegrity', this is 'block'" in capsys.readouterr().err
    old = (replace(t, metadata={"experiment": "throws"}) for t in TrajectorySet.load(file))
    TrajectorySet(tuple(old)).save(file)
    assert run_script(script, "tensegrity", "--data", str(file), *out) == 2
    assert "of another robot, with 3 controls; superball" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_structure_that_is_not_the_recorded_one_is_named(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, file = tmp_path / "thrown.toml", tmp_path / "thrown.h5"
    model.write_text("[block]\n")  # no string
    recorded = ("block", "--model", str(model), "--steps", "20", "--out", str(file))
    assert run_script(load_script("scripts/record.py"), *recorded) == 0
    arguments = ("block", "--data", str(file), "--out", str(tmp_path / "out"))
    run_script(script, *arguments)
    named = "note: recorded of model thrown.toml, to be fitted is block (--model): pulley null -> [1.2, 0.3]"
    assert named in capsys.readouterr().out
    run_script(script, *arguments, "--model", str(model))
    assert "recorded of" not in capsys.readouterr().out


def test_a_fit_that_was_interrupted_before_its_first_checkpoint_begins_anew(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(Spring(), GROUND_TRUTH, count=2).save(tmp_path / "data.h5")
    arguments = ("--data", str(tmp_path / "data.h5"), "--method", "single_shooting", "--out", str(tmp_path / "out"))
    assert run_script(script, SPRING, *arguments, "--resume") == 0
    assert "out has nothing to go on from yet: the fit begins anew" in capsys.readouterr().out


def test_ctrl_c_after_the_fit_has_ended_saves_it(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While causes are looked for, as for minutes; all was lost."""

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("sysid.procedure.stage.candidate", interrupted)
    record(Spring(), GROUND_TRUTH, count=2).save(tmp_path / "data.h5")
    arguments = ("--data", str(tmp_path / "data.h5"), "--method", "single_shooting", "--out", str(tmp_path / "out"))
    assert run_script(script, SPRING, *arguments) == 130
    assert "[note] interrupted: what it may lack was not looked for to the end" in capsys.readouterr().out
    found = SpringParameters.load(tmp_path / "out" / "fit.toml")
    assert found.stiffness == pytest.approx(GROUND_TRUTH.stiffness, rel=1e-6) and (tmp_path / "out" / "report.html").exists()


def test_a_stage_takes_no_recordings_that_say_they_are_of_another_experiment(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stage `seen` fitted throws with a rod held."""
    recordings = record(Spring(), GROUND_TRUTH, count=3)
    labels = ("pushed", "thrown", "")
    made = [replace(t, metadata={**t.metadata, "experiment": label}) for t, label in zip(recordings, labels, strict=True)]
    TrajectorySet(tuple(made)).save(tmp_path / "all.h5")
    TrajectorySet((made[1],)).save(tmp_path / "thrown.h5")
    given = (SPRING, "--stage", "all", "--out", tmp_path / "out", "--data")
    assert run_script(script, *given, tmp_path / "thrown.h5") == 2
    assert "stage all fits recordings of 'pushed', these are of thrown" in capsys.readouterr().err
    assert run_script(script, *given, tmp_path / "all.h5", "--split", 2, 0, 0) == 0
    said = capsys.readouterr().out
    assert "note: stage all fits recordings of 'pushed': those of thrown are left out" in said and "2 recordings, " in said


def test_a_camera_decides_the_physics_step(tmp_path: Path) -> None:
    """50 Hz are two steps of 10 ms for a system whose own step is 15 ms; --fps says what rounded times hide."""
    lines = ["time [s],mass.x [m],control:force [-]", *(f"{0.02 * k:.4f},{np.sin(0.1 * k)},0.0" for k in range(30))]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n")
    for fps, dt, expected in ((None, None, 0.01), (50.0, None, 0.01), (None, 0.005, 0.005)):
        found = load(tmp_path / "data.csv", fps=fps)
        assert Job(SPRING, found, dt=dt).timestep(PROCEDURE, 0.015, found[0]) == pytest.approx(expected, rel=1e-12)


def test_recordings_are_fitted_in_finer_steps_than_they_were_made_in(script: Any, tmp_path: Path) -> None:
    record(Spring(), GROUND_TRUTH, count=2).save(tmp_path / "data.h5")
    arguments = ("--data", str(tmp_path / "data.h5"), "--method", "multiple_shooting", "--out", str(tmp_path / "out"))
    assert run_script(script, SPRING, *arguments, "--dt", str(0.5 * Spring().dt)) == 0
    found = json.loads((tmp_path / "out" / "fit.json").read_text())
    assert f"dt = {0.5 * Spring().dt:g} s, 2 substeps" in found["provenance"]["simulator"]


def test_recordings_that_count_a_ground_truths_own_steps_are_fitted_in_the_systems(script: Any, tmp_path: Path) -> None:
    """As `play --backend mujoco --dataset` writes them: rows without an experiment, whose steps are shorter than the
    system's."""
    recording = record(Spring(dt=Spring().dt / 2), GROUND_TRUTH, count=1)[0]
    path = TrajectorySet((recording,)).save(tmp_path / "data.h5")
    assert script.main(script.Args(SPRING, data=(path,), out=tmp_path / "out")) == 0
    assert SpringParameters.load(tmp_path / "out" / "fit.toml").stiffness == pytest.approx(GROUND_TRUTH.stiffness, rel=0.05)


def test_a_checkpoint_of_another_simulator_is_refused_in_one_sentence(tmp_path: Path) -> None:
    class Stream:
        def write(self, text: str) -> None:
            if "minimisation 2" in text:
                raise KeyboardInterrupt

        def flush(self) -> None:
            pass

    path = tmp_path / "checkpoint.json"
    data = record(Spring(), GROUND_TRUTH, count=1)
    options = ShootingOptions(starts=3)
    problem = FitProblem(Spring(), data, FREE)
    with pytest.raises(KeyboardInterrupt):
        single_shooting(problem, options, Running(path, progress=Stream()))  # type: ignore[arg-type]
    half = TrajectorySet(tuple(replace(t, substeps=2) for t in data))
    with pytest.raises(OptionError, match=r"another fit: its parameters: they were identified with dt = 0.02 s, .* has 0.01 s"):
        single_shooting(FitProblem(Spring(dt=0.01), half, FREE), options, Running(path, resume=True))
    assert single_shooting(problem, options, Running(path, resume=True)).converged


def test_our_engine_records_with_the_options_that_are_fitted(tmp_path: Path) -> None:
    """`record` recorded SUPERballs with one law of contact, `identify` fitted another: no fit was adequate."""
    file, tensegrity = tmp_path / "throw.h5", system("tensegrity")
    given = ("tensegrity", "--model", "prism", "--experiments", "throws", "--steps", "600", "--out", file)
    errors = {}
    for option in ((), ("--options", "contact=stick")):
        assert run_script(load_script("scripts/record.py"), *given, *option) == 0
        recording = TrajectorySet.load(file)[0]
        for contact in ("patch", "stick"):
            simulator = tensegrity.simulator("prism", options={"contact": contact})
            substeps = round(recording.period / simulator.dt)
            states, _ = simulator.rollout(recording.values[:1], recording.controls[None], substeps=substeps)
            errors[option, contact] = np.abs(states[0] - recording.values).max()
    assert errors[(), "patch"] < 1e-9 < 1e-3 < errors[(), "stick"]
    assert errors[option, "stick"] < 1e-9 < 1e-3 < errors[option, "patch"]


def test_the_procedure_chooses_the_simulators_options_unless_the_user_does() -> None:
    tensegrity = system("tensegrity")
    robot = tensegrity.simulator("prism")
    recording = load_object(tensegrity.procedure).record_one("throws", robot, np.random.default_rng(0), steps=20)
    for options, contact in (({}, "patch"), ({"contact": "paper"}, "paper")):
        simulator: Any = Job("tensegrity", (recording,), model="prism", options=options).prepared()[1]
        assert simulator.contact == contact
