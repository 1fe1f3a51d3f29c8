"""A robot of the user's own from a TOML file: its parameters, its rest pose, and parameters identified for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from helpers import load_script, run_main, run_script

import softgym_envs  # noqa: F401
from softgym_envs.core.errors import FileFormatError, ParameterError, StructureError
from softgym_envs.core.spec import SimulatorSpec
from softgym_envs.systems import system
from softgym_envs.systems.tensegrity import TensegrityModel, TensegrityParameters, prism, superball
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.statics import find_form

SMALL = {"rest_length": 0.2, "rod_mass": 0.05, "cable_stiffness": 500.0, "cable_damping": 2.0}
"""Parameters of a prism with rods of 0.4 m; with the defaults its cables are slack."""


def written(path: Path, model: TensegrityModel, parameter_values: dict[str, Any] | None = None) -> Path:
    """The model as a user writes it."""
    lines = [f'name = "{model.name}"', f"actuated = {list(model.actuated)}", "cap_radius = 0.01", "rod_radius = 0.005"]
    if parameter_values:
        lines += ["[parameters]", *(f"{name} = {value}" for name, value in parameter_values.items())]
    lines += ["[nodes]", *(f"n{i} = {node.round(3).tolist()}" for i, node in enumerate(model.nodes))]
    for r in range(model.num_rods):
        lines += ["[[rods]]", f'nodes = ["n{2 * r}", "n{2 * r + 1}"]']
    for a, b in model.cables:
        lines += ["[[cables]]", f'nodes = ["n{a}", "n{b}"]']
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A small robot whose file says no parameters."""
    return written(tmp_path / "my.toml", prism(rod_length=0.4))


def tensions(env: Any) -> np.ndarray:
    """Of every cable at rest."""
    simulator = TensegritySimulator(env.unwrapped.simulator.model)
    parameter_values = TensegrityParameters(**{name: getattr(env.unwrapped.episodes.nominal, name) for name in SMALL})
    return np.asarray(simulator.cable_tensions(simulator.initial_state(), parameter_values)[0])


@pytest.mark.parametrize("as_file", [False, True], ids=["object", "file"])
def test_a_robot_of_my_own_finds_its_form_with_the_constants_that_i_give(small: Path, tmp_path: Path, as_file: bool) -> None:
    with pytest.raises(StructureError, match="all cables slack: rest_length"):
        gym.make("TensegrityRoll-v0", model=small)
    mine = TensegrityParameters(**SMALL)
    params = mine.save(tmp_path / "parameters.toml") if as_file else mine
    env = gym.make("TensegrityRoll-v0", model=str(small), params=params)
    assert tensions(env).min() > 1.0
    env.reset(seed=0)
    for _ in range(5):
        *_, info = env.step(env.action_space.sample())
        assert not info["sim_failed"]


@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_the_file_of_my_robot_holds_its_constants(tmp_path: Path, backend: str) -> None:
    path = written(tmp_path / "my.toml", prism(rod_length=0.4), {**SMALL, "rod_mass": '{value = 0.05, unit = "kg"}'})
    env = gym.make("TensegrityRoll-v0", model=path, backend=backend)
    nominal = env.unwrapped.episodes.nominal  # type: ignore[attr-defined]
    assert {name: getattr(nominal, name) for name in SMALL} == SMALL and tensions(env).min() > 1.0
    (tmp_path / "heavier.toml").write_text("[parameters]\nrod_mass = 0.06\n")  # the others stay the robot's own
    heavier = gym.make("TensegrityRoll-v0", model=path, backend=backend, params=tmp_path / "heavier.toml")
    assert heavier.unwrapped.episodes.nominal.rod_mass == 0.06  # type: ignore[attr-defined]
    assert heavier.unwrapped.episodes.nominal.rest_length == SMALL["rest_length"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("parameter_values", "error", "message"),
    [
        ({"rod_weight": 1.0}, ParameterError, "unknown parameter 'rod_weight'"),
        ({"rod_mass": -1.0}, ParameterError, "rod_mass = -1.0 kg, allowed"),
        ({"rod_mass": '"heavy"'}, FileFormatError, "'heavy', expected a number"),
        ({"rod_mass": '{value = 50, unit = "g"}'}, ParameterError, "rod_mass is given in 'g', expected 'kg'"),
    ],
)
def test_a_mistake_in_my_constants_is_named(
    tmp_path: Path, parameter_values: Any, error: type[Exception], message: str
) -> None:
    path = written(tmp_path / "my.toml", prism(rod_length=0.4), parameter_values)
    with pytest.raises(error, match=message):
        gym.make("TensegrityRoll-v0", model=path)


def test_constants_identified_for_my_robot_are_taken_although_they_move_its_rest_pose(tmp_path: Path) -> None:
    """Identified with the form of the start parameters; a robot with other rods is another robot."""
    path = written(tmp_path / "my.toml", prism(rod_length=0.4), SMALL)
    simulator = system("tensegrity").simulator(str(path), options={"contact": "patch"})
    found = simulator.default_parameters.replace(rest_length=0.21, cable_stiffness=450.0)  # type: ignore[attr-defined]
    fit = found.save(tmp_path / "fit.toml", simulator=SimulatorSpec.of(simulator).table())
    env = gym.make("TensegrityRoll-v0", model=path, params=fit)
    assert np.abs(env.unwrapped.simulator.model.nodes - simulator.model.nodes).max() > 1e-4  # type: ignore[attr-defined]
    written(tmp_path / "other.toml", prism(rod_length=0.45), SMALL)
    with pytest.raises(ParameterError, match=r"identified for another value of rods: \[0.39.*, here \[0.4"):
        gym.make("TensegrityRoll-v0", model=tmp_path / "other.toml", params=fit)


def test_a_structure_too_long_to_be_written_out_is_named_without_its_hash() -> None:
    ball, other = (SimulatorSpec.of(system("tensegrity").simulator(name), name) for name in ("superball", "prism"))
    assert ball.mismatch(other) == "they were identified for another value of actuated (model superball)"


def test_constants_from_a_camera_of_any_rate_are_taken_by_environments(tmp_path: Path) -> None:
    """A frame of 1/29.97 s has 34 physics steps of 0.981 ms, of which 0.1 s is no multiple: 0.980 ms is near enough."""
    simulator = system("tensegrity").simulator("superball", dt=1 / 29.97 / 34, options={"contact": "patch"})
    fit = simulator.default_parameters.save(  # type: ignore[attr-defined]
        tmp_path / "fit.toml", simulator=SimulatorSpec.of(simulator).table()
    )
    env = gym.make("TensegrityRoll-v0", params=fit)
    assert env.unwrapped.simulator.dt == pytest.approx(0.1 / 102, rel=1e-12)  # type: ignore[attr-defined]
    with pytest.raises(ParameterError, match="identified with dt"):
        gym.make("TensegrityRoll-v0", params=fit, dt=1e-3 / 2)


def test_my_robot_is_recorded_and_identified_with_its_own_constants(small: Path, tmp_path: Path) -> None:
    TensegrityParameters(**SMALL).save(tmp_path / "mine.toml")
    record, identify = load_script("scripts/record.py"), load_script("scripts/identify.py")
    told = ("--model", small, "--out", tmp_path / "air.h5", "--experiments", "air", "--steps", 200)
    assert run_script(record, "tensegrity", *told, "--parameters", tmp_path / "mine.toml") == 0
    start = TensegrityParameters(**{**SMALL, "cable_stiffness": 400.0}).save(tmp_path / "start.toml")
    told = (
        "--model",
        small,
        "--data",
        tmp_path / "air.h5",
        "--stage",
        "body",
        "--initial-guess",
        start,
        "--out",
        tmp_path / "fit",
    )
    assert run_script(identify, "tensegrity", *told) == 0
    assert TensegrityParameters.load(tmp_path / "fit" / "fit.toml").cable_stiffness == pytest.approx(500.0, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "ratio"),
    [(superball(), 0.2), *((prism(), ratio) for ratio in (0.1, 0.15, 0.2, 0.24, 0.26, 0.8, 1.05))],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_form_finding_converges_however_tight_the_cables_are(model: TensegrityModel, ratio: float) -> None:
    """Forces and moments on every rod vanish."""
    found = find_form(replace(model, rest_ratio=(ratio,) * model.num_cables))
    simulator = TensegritySimulator(found)
    tension = simulator.cable_tensions(simulator.initial_state())[0]
    force = np.zeros((len(found.nodes), 3))
    for (a, b), pull in zip(found.cables, tension, strict=True):
        line = found.nodes[b] - found.nodes[a]
        force[a] += pull * line / np.linalg.norm(line)
        force[b] -= pull * line / np.linalg.norm(line)
    along = found.nodes[1::2] - found.nodes[::2]
    assert np.abs(force[::2] + force[1::2]).max() < 1e-6 * tension.max()
    assert np.abs(np.cross(along, force[1::2] - force[::2])).max() < 1e-6 * tension.max()
    np.testing.assert_allclose(found.rod_lengths, model.rod_lengths, atol=1e-9)


def test_a_robot_of_my_own_is_trained_and_evaluated(tmp_path: Path) -> None:
    """By the commands, with the fit of that robot: for the id's own robot it is refused."""
    pytest.importorskip("stable_baselines3")
    mine = written(tmp_path / "my.toml", prism(rod_length=0.4), SMALL)
    fit = system("tensegrity").simulator(str(mine))
    fit.default_parameters.save(tmp_path / "fit.toml", simulator=SimulatorSpec.of(fit).table())
    train, judge = load_script("scripts/train.py"), load_script("scripts/evaluate.py")
    given = {"params": tmp_path / "fit.toml", "episodes": 1}
    asked = train.Args("TensegrityRoll-v0", steps=64, num_envs=2, model=str(mine), out=tmp_path / "run", **given)
    assert run_main(train, asked) == 0
    policy = str(tmp_path / "run" / "policy.zip")
    assert run_main(judge, judge.Args(policy, "TensegrityRoll-v0", model=str(mine), **given)) == 0
    assert run_main(judge, judge.Args(policy, "TensegrityRoll-v0", **given)) == 2
