"""The system's recordings, what cameras see of it, and its procedure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import load_script, run_script

from softgym_envs.core import lie
from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.procedure import EXPERIMENT
from softgym_envs.core.spec import SimulatorSpec
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.systems.tensegrity.dynamics import TensegritySimulator
from softgym_envs.systems.tensegrity.experiments import record_in_air, record_throw, thrown
from softgym_envs.systems.tensegrity.model import prism
from softgym_envs.systems.tensegrity.mujoco import MujocoTensegrity, native_constants
from softgym_envs.systems.tensegrity.parameters import CONTACT, TensegrityParameters
from softgym_envs.systems.tensegrity.procedure import PROCEDURE, first_state, measurement
from sysid.procedure.run import run_procedure


def test_in_the_air_one_rod_hangs_still_and_commands_are_held() -> None:
    simulator = TensegritySimulator(prism())
    recording = record_in_air(simulator, np.random.default_rng(0), duration=0.3, hold=0.1)
    assert recording.values.shape == (301, simulator.nx)
    np.testing.assert_array_equal(recording.values[:, :13], np.tile(recording.values[0, :13], (301, 1)))
    assert recording.values[:, 15].std() > 0  # another rod's height
    blocks = recording.controls.reshape(3, 100, 3)
    np.testing.assert_array_equal(blocks, np.repeat(blocks[:, :1], 100, axis=1))
    assert np.abs(blocks).max() <= 100 and np.unique(blocks).size == 9


def test_a_throw_starts_as_a_rigid_roll() -> None:
    """v = w x r about the point under the centre: that point stands still."""
    model = TensegritySimulator().model
    state = thrown(model, np.random.default_rng(4), (1.0, 1.5))
    com, velocity = model.center_of_mass(state), model.com_velocity(state)
    assert 1.0 <= np.linalg.norm(velocity) <= 1.5 and abs(velocity[2]) < 1e-12
    assert abs(float(model.clearance(state)) - 0.01) < 1e-12
    position, _, linear, *_ = model.split(state)
    rotation = np.cross([0.0, 0.0, 1.0], velocity) / com[2]
    below = com * [1, 1, 0]
    np.testing.assert_allclose(linear, np.cross(rotation, position - below), atol=1e-12)
    again = record_throw(TensegritySimulator(), np.random.default_rng(4), duration=0.01, speed=(1.0, 1.5))
    np.testing.assert_array_equal(again.values[0], state)


def test_measured_columns_are_points_of_the_robot() -> None:
    simulator = TensegritySimulator(prism(), contact="paper")
    found = measurement(simulator, ("com.z", "rod0.x", "node3.x"))
    assert found is not None and found.names == ("com.z", "node3.x")
    state, model = simulator.initial_state(2), simulator.model
    expected = np.stack([model.center_of_mass(state)[:, 2], model.node_positions(state)[:, 3, 0]], axis=-1)
    np.testing.assert_array_equal(found.function(state), expected)
    assert measurement(simulator, ("rod0.x",)) is None
    with pytest.raises(OptionError, match=r"nodes are 0 \.\.\. 5"):
        measurement(simulator, ("node9.x",))
    assert "spin_damping" in PROCEDURE.stage("contact").free_of(simulator)


def test_the_procedure_recovers_the_engines_own_constants(tmp_path: Path) -> None:
    """[Wang2020] IV-D on data of our own engine without noise: the air shows the body, then throws show contact."""
    ground_truth = TensegrityParameters(cable_stiffness=8000.0, motor_gain=0.013, friction=0.25, sliding_damping=0.7)
    engine, rng = TensegritySimulator(prism(actuated=tuple(range(9)))), np.random.default_rng(1)
    air = PROCEDURE.record_one("air", engine, rng, steps=300, parameters=ground_truth)
    throw = replace(
        record_throw(engine, rng, duration=0.5, speed=1.5, parameters=ground_truth), metadata={EXPERIMENT: "throws"}
    )
    stages = (
        replace(PROCEDURE.stage("body"), free=("cable_stiffness", "motor_gain")),
        replace(PROCEDURE.stage("contact"), free=("friction", "sliding_damping"), options={"segment_steps": 5}),
    )
    announced: list[str] = []
    data = TrajectorySet((air, throw))
    found = run_procedure(
        PROCEDURE,
        engine,
        data,
        start=TensegrityParameters(),
        stages=stages,
        out=tmp_path,
        announce=announced.append,
        model="mine",
    )
    assert announced == ["body", "contact"]
    for name in ("cable_stiffness", "motor_gain", "friction", "sliding_damping"):
        assert getattr(found.parameters, name) == pytest.approx(getattr(ground_truth, name), rel=1e-6), name
    assert TensegrityParameters.load(tmp_path / "contact" / "fit.toml") == found.parameters
    spec = SimulatorSpec.read(tmp_path / "contact" / "fit.toml")
    assert spec is not None and (spec.model, spec.dt, spec.options["contact"]) == ("mine", 0.001, engine.contact)
    again = run_procedure(PROCEDURE, engine, data, start=TensegrityParameters(), stages=stages, out=tmp_path, resume=True)
    assert not any(len(stage.fit.trace.times) for stage in again.stages) and again.parameters == found.parameters  # read
    draws = [fit.distribution().sample(np.random.default_rng(0), ground_truth) for fit in (found, again)]
    assert draws[0] == draws[1] and set(draws[0]) == {"cable_stiffness", "motor_gain", "friction", "sliding_damping"}
    with pytest.raises(OptionError, match="the procedure has no stage"):
        run_procedure(PROCEDURE, engine, data, stages=())
    with pytest.raises(DataError, match=r"stage 'search' needs recordings of .throws.; there are"):
        run_procedure(PROCEDURE, engine, TrajectorySet((air,)), stages=PROCEDURE.stages[1:])


def test_the_first_state_of_tracked_nodes_is_where_the_recording_began() -> None:
    """Linear fits over rows k dt of a smooth motion err by O(acceleration x time) in velocity, and half that in place."""
    simulator = TensegritySimulator()
    state = thrown(simulator.model, np.random.default_rng(3), 1.5)
    state = simulator.model.move(state, translation=np.array([0.3, -0.2, 1.0]))  # in free flight
    states, _ = simulator.rollout(state[None], np.zeros((1, 12, simulator.nu)))
    names = tuple(f"node{node}.{axis}" for node in range(12) for axis in "xyz")
    nodes = simulator.model.node_positions(states[0]).reshape(13, 36)
    nodes[2, 4] = np.nan  # a gap
    recording = Trajectory(
        simulator.dt * np.arange(13), np.zeros((12, simulator.nu)), nodes, names, ("m",) * 36, simulator.control_names,
        ("-",) * simulator.nu,
    )  # fmt: skip
    guesses = first_state(simulator, names)
    assert guesses is not None
    initial_guess = guesses(recording)
    center, _, velocity, rates, motors = simulator.model.split(initial_guess)
    seconds = 6 * simulator.dt
    # Largest acceleration of a node during these rows: half of it times the rows' time bounds the slope's error.
    _, _, velocities, spins, _ = simulator.model.split(states[0])
    acceleration = np.abs(np.diff(velocities, axis=0)).max() / simulator.dt
    spinning = np.abs(np.diff(spins, axis=0)).max() / simulator.dt + np.abs(spins).max() ** 2
    np.testing.assert_allclose(
        simulator.model.node_positions(initial_guess), nodes[0].reshape(12, 3), atol=(acceleration + spinning) * seconds**2
    )
    np.testing.assert_allclose(velocity, velocities[0], atol=acceleration * seconds)
    spin = np.cross(
        simulator.model.node_positions(initial_guess)[1::2] - center,
        lie.rotate(guess_quaternions(simulator, initial_guess), rates),
    )
    true = np.cross(
        simulator.model.node_positions(state)[1::2] - simulator.model.split(state)[0],
        lie.rotate(guess_quaternions(simulator, state), simulator.model.split(state)[3]),
    )
    np.testing.assert_allclose(spin, true, atol=spinning * seconds)  # the spin about a rod's own axis is invisible
    assert not motors.any()


def guess_quaternions(simulator: TensegritySimulator, state: np.ndarray) -> np.ndarray:
    return np.asarray(simulator.model.split(state)[1])


def test_untracked_nodes_are_completed_by_the_rest_shape() -> None:
    simulator = TensegritySimulator(prism())
    model = simulator.model
    rest = model.state_from_nodes(model.nodes)
    state = model.move(rest, rotation=np.array([0.3, -0.4, 0.9]), translation=np.array([1.0, 2.0, 3.0]))
    nodes = model.node_positions(state)
    names = tuple(f"point{node}.{axis}" for node in (0, 1, 4, 3) for axis in "xyz")
    values = np.tile(nodes[[0, 1, 4, 3]].reshape(1, 12), (8, 1))
    recording = Trajectory(0.01 * np.arange(8), np.zeros((7, 0)), values, names, ("m",) * 12)
    guesses = first_state(simulator, names)
    assert guesses is not None
    np.testing.assert_allclose(model.node_positions(guesses(recording)), nodes, atol=1e-9)
    assert first_state(simulator, ("com.x", "com.y")) is None
    with pytest.raises(DataError, match=r"nodes \[1\] alone do not tell where the robot is: track three or more"):
        first_state(simulator, ("com.x", "com.y", "point1.x"))


def test_the_whole_procedure_on_the_mujoco_model_ends_in_a_useful_fit(tmp_path: Path) -> None:
    """Record and identify as in docs/how-to/identify_tensegrity.md, on 0.6 s of the MuJoCo model: it predicts a throw."""
    data, fit = tmp_path / "recordings.h5", tmp_path / "fit"
    assert (
        run_script(load_script("scripts/record.py"), "tensegrity", "--backend", "mujoco", "--budget", 600, "--out", data) == 0
    )
    assert run_script(load_script("scripts/identify.py"), "tensegrity", "--data", data, "--out", fit) == 0
    simulator = TensegritySimulator(contact="patch")
    spec = SimulatorSpec.read(fit / "fit.toml")
    assert spec is not None and spec.options["contact"] == simulator.contact
    found, before = TensegrityParameters.load(fit / "fit.toml"), TensegrityParameters()
    unseen = record_throw(MujocoTensegrity(), np.random.default_rng(7), duration=0.5)
    path = simulator.model.center_of_mass(unseen.values)

    def error(parameter_values: TensegrityParameters) -> float:
        states, _ = simulator.rollout(unseen.values[:1], unseen.controls[None], parameter_values)
        return float(np.linalg.norm(simulator.model.center_of_mass(states[0]) - path, axis=-1).max())

    assert error(found) < min(0.2 * error(before), 0.05 * np.linalg.norm(path[-1] - path[0]))


def test_a_robot_at_rest_tells_friction_only_by_its_ratio_to_the_radius_it_turns_about() -> None:
    """A pad that sticks yields by l/mu alone (`pads.pad_wrench`); one that slides by both. A budget buys throws, not rest."""
    engine = TensegritySimulator(prism(), contact="patch")
    plain = engine.default_parameters.replace(**{name: getattr(native_constants(), name) for name in CONTACT["patch"]})
    doubled = plain.replace(friction=2.0 * plain.friction, pivot_friction=2.0 * plain.pivot_friction)
    moved = {}
    settled = engine.model.place_on_ground(engine.initial_state()[0])[None]
    settled, _ = engine.step(settled, np.zeros((1, engine.nu)), plain, substeps=4000)
    for name, start in (("at rest", settled), ("thrown", thrown(engine.model, np.random.default_rng(0), 2.0)[None])):
        ends = [engine.step(start, np.zeros((1, engine.nu)), each, substeps=300)[0][0] for each in (plain, doubled)]
        moved[name] = float(np.abs(ends[0] - ends[1]).max())
    assert moved["at rest"] < 1e-6 < 1e-3 < moved["thrown"]
    assert PROCEDURE.experiment("throws").sizes(5000) == (1000,) * 5 and PROCEDURE.experiment("throws").sizes(500) == (500,)
    assert PROCEDURE.experiment("air").sizes(5000) == (5000,)


def test_what_the_ground_does_is_what_a_step_without_it_lacks():
    """The study of a network in place of the contact law: changes of velocity and spin give back the MuJoCo model's own
    step."""
    pytest.importorskip("torch")
    network = load_script("reproductions/wang2020/contact_network.py")
    engine, parameter_values = TensegritySimulator(), TensegrityParameters()
    states = record_throw(MujocoTensegrity(), np.random.default_rng(0), duration=0.3).values
    touching = network.caps_of(engine, states[:-1]).touch.any(axis=(1, 2))
    assert 20 < touching.sum() < 280
    free = network.without_ground(engine, states[:-1], parameter_values)
    tangent = engine.difference(states[1:], free)
    assert np.abs(tangent[~touching]).max() < 1e-9
    lacking = tangent[:, :72].reshape(len(free), 6, 12)[..., 6:].copy()
    lacking[..., 3:] = lie.rotate(engine.model.split(free)[1], lacking[..., 3:])
    given = network.pushed(engine, free, lacking)
    assert np.abs(engine.difference(states[1:], given)).max() < 1e-5 < 1e-2 < np.abs(tangent).max()


def test_a_contact_law_is_fitted_to_whole_throws_and_compared_with_its_start(monkeypatch):
    """The engine's own throw by other parameters: its motion comes out; a fit that is worse than its start has no figures."""
    pytest.importorskip("torch")
    pytest.importorskip("cma")
    study = load_script("reproductions/wang2020/run.py")
    monkeypatch.setattr(study, "RUNS", 2)
    monkeypatch.setattr(study, "EVALUATIONS", 300)
    engine, start = TensegritySimulator(contact="paper"), TensegrityParameters()
    ground_truth = start.replace(friction=0.3, restitution=0.5, contact_bias=0.05)
    throws = [record_throw(engine, np.random.default_rng(0), duration=0.5, parameters=ground_truth)]
    before, after = (float(study.distances(engine, throws, p)[0]) for p in (start, study.fit_law(engine, throws, start)))
    assert after < 0.25 * before and study.distances(engine, throws, ground_truth) == 0.0
    assert study.reported({"error": 1.0}, "m", before, after) == {"error": 1.0, "m": {"start": before, "fit": after}}
    for worse in (2.0 * before, np.nan):
        assert "error" not in study.reported({"error": 1.0}, "m", before, worse)
