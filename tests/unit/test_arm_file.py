"""A laboratory's own elbow from a TOML file; pneumatic muscles in the elbow. A laboratory's own loop and arm from a file: the
same arm under other names moves as ours does; bad files are named."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import casadi as ca
import gymnasium as gym
import mujoco
import numpy as np
import pytest
from helpers import urdf

import sysid
from reproductions.penner2020.dmocc import DirectorElbow
from softgym_envs.core.errors import OptionError, SoftgymError
from softgym_envs.core.simulator import finite_differences
from softgym_envs.mechanics import Mechanism
from softgym_envs.mechanics.tree_file import load_tree
from softgym_envs.muscles.arm_file import load_arm
from softgym_envs.systems import system
from softgym_envs.systems.arm.dynamics import ElbowSimulator
from softgym_envs.systems.arm.elbow import inertia, muscle_force, muscle_torque, net_torque
from softgym_envs.systems.arm.model import FILE, ElbowModel, pneumatic_elbow, read_elbow
from softgym_envs.systems.arm.mujoco import MujocoElbow
from softgym_envs.systems.arm.parameters import ElbowParameters, PneumaticElbowParameters
from softgym_envs.systems.arm.procedure import PROCEDURE
from softgym_envs.systems.loop.loop_file import read_model
from softgym_envs.systems.loop.model import ARM, ARM_FILE, LoopModel
from softgym_envs.systems.upper_body.model import read_body
from sysid.procedure.run import run_procedure

MINE = Path(__file__).parents[1] / "data/models/arm.toml"


def test_an_elbow_drawn_otherwise_is_the_same_elbow():
    mine, ours = read_elbow(MINE), ElbowModel()
    for theirs, known in zip(mine.structure(0.01), ours.structure(0.01), strict=True):
        np.testing.assert_allclose(theirs, known, rtol=1e-12, atol=1e-14)
    assert mine.parameters == ours.parameters == ElbowParameters()
    controls = np.random.default_rng(0).uniform(0.0, 0.3, (3, 30, 2))
    for kind in (ElbowSimulator, MujocoElbow):
        a, b = (
            kind(model=model).rollout(np.tile(ours.rest_state(), (3, 1)), controls, substeps=4)[0] for model in (mine, ours)
        )
        np.testing.assert_allclose(a, b, atol=1e-9)
    for name, place in mine.places(0.9).items():
        beside = 0.004 * np.eye(3)[1] if "triceps" in name else 0.0
        if name != "shoulder":
            np.testing.assert_allclose(place, ours.places(0.9)[name] + beside, atol=1e-12)


def test_the_systems_own_file_is_read_as_any_other():
    model = read_elbow(FILE)
    assert replace(model, parameter_values=()) == ElbowModel() and model.parameters == ElbowParameters()


def test_an_arm_that_does_not_hang_weighs_as_the_tree_says(tmp_path: Path):
    """The upper arm level, the load off the forearm's line: the tree mechanics of the same file are the oracle."""
    text = MINE.read_text().replace('name = "mine"', 'name = "mine"\ngravity = [9.0, 0.0, -3.0]')
    file = tmp_path / "level.toml"
    file.write_text(text.replace("xyz = [0.0, 0.0, -0.25]\n[[frame]]", "xyz = [0.05, 0.02, -0.2]\n[[frame]]"))
    model, load = read_elbow(file), 1.7
    structure, tree = model.structure(0.01), Mechanism(model.tree, 0.01, ("payload",))
    without = model.parameters.replace(payload=load, damping=0.001).to_matrix(1)[0]
    without[[0, 4]] = 0.0  # no muscles
    for q in (0.3, 1.0, 2.2):
        slopes = tree.slopes(np.array([[q]]), np.zeros((1, 1)), (load,))
        assert inertia(structure, without) == pytest.approx(slopes.vv[0, 0, 0], rel=1e-12)
        assert net_torque(structure, without, q, 0.0, 0.0, 0.0) == pytest.approx(slopes.q[0, 0], abs=1e-4)  # of the stops


def test_ones_own_elbow_is_an_environment_and_is_identified(tmp_path: Path):
    """What the file says of muscles is the guess; the load and the damping are found from there."""
    file = tmp_path / "strong.toml"
    file.write_text(MINE.read_text().replace("force = 1059.9", "force = 1300.0").replace("damping = 0.05", "damping = 0.2"))
    env = gym.make("softgym_envs:ArmReach-v0", model=str(file))
    assert env.unwrapped.episodes.nominal.biceps_force == 1300.0
    observation, _ = env.reset(seed=1)
    assert observation.shape == (5,) and np.isfinite(env.step(env.action_space.sample())[0]).all()
    simulator = system("arm").simulator(str(file))
    assert PROCEDURE.initial_guess_of(simulator) == {} and PROCEDURE.initial_guess_of(ElbowSimulator())["biceps_force"] == 800.0
    ground_truth = ElbowSimulator(
        model=replace(simulator.model, parameter_values=(("damping", 0.3), ("triceps_force", 1800.0)))
    )
    data = PROCEDURE.record(ground_truth, np.random.default_rng(0), steps=600, tests=1)
    fits = run_procedure(PROCEDURE, simulator, data)
    assert fits.parameters.damping == pytest.approx(0.3, rel=1e-5)
    assert fits.parameters.triceps_force == pytest.approx(1800.0, rel=1e-5)


BAD = {
    'rest_angle = "x"': ("rest_angle = 0.3", "rest_angle"),
    "wings = 2": ("rest_angle = 0.3", "unknown entry 'wings'; allowed are name"),
    "payload = 99.0": ("payload = 0.5", "payload = 99"),
    "strength = 1.0": ("payload = 0.5", "strength"),
    "biceps_force = 900.0": ("payload = 0.5", "biceps_force, which a muscle"),
    'name = "brachialis"': ('name = "biceps"', "expected 'biceps' and 'triceps'"),
    'kind = "electric"': ('kind = "hill"', "kind is 'electric', expected one of hill, pneumatic"),
    'kind = "pneumatic"': ('kind = "hill"', "'biceps'.*force is of hill muscles, this one is pneumatic"),
    "pull = 1059.9": ("force = 1059.9", "muscle 1: unknown entry 'pull'"),
    "optimal = 1.157": ("optimal = 0.1157", "biceps_optimal = 1.157 m, allowed is"),
    "axis = [0.0, 0.0, 1.0]": ("axis = [0.0, -1.0, 0.0]", "hinge 'bend' turns about"),
    "xyz = [0.0, 0.0, -0.3]": ("xyz = [0.0, 0.0, -0.29]\nrpy = [0.0", "expected the elbow in the world's origin"),
    "lower = -9.0": ("lower = 0.0", "expected limits"),
    'damping = "drag"': ("damping = 0.05", "uses parameters .*drag"),
    'damping = 0.05\nfriction = "damping"': ("damping = 0.05", "uses parameters damping as friction"),
    'scale = "muscle"': ('scale = "payload"', "uses parameters .*muscle"),
    'name = "wrist2"': ('name = "hand"', "hand"),
    'kind = "sphere"': ('kind = "cylinder"\nbody = "ulna"', "must wrap around a cylinder about the elbow's axis"),
    "size = [0.05]": ("size = [0.022]", "'biceps' goes through surface 'pulley': its insertion is"),
    'insertion_body = "upper"': ('insertion_body = "ulna"', "'triceps': goes from 'upper' to 'upper'"),
    'origin_body = "shoulder"': ('origin_body = "upper"', "'triceps': body of its origin is 'shoulder'"),
    "sides = [[0.15, 0.1, 0.0]]": ("sides = [[-0.15, 0.1, 0.0]]", "'triceps' pulls the wrong way"),
    "rest_angle = 0.3\ngravity = [0.0, 9.81, 0.0]": ("rest_angle = 0.3", "in the plane of x and z"),
    'kind = "prismatic"': ('kind = "revolute"', "an elbow has one hinge"),
    "force = 0.0": ("force = 1059.9", "'biceps': force is 0, expected a number > 0, or no entry"),
    "optimal = 0": ("optimal = 0.1157", "'biceps': optimal is 0"),
    "slack = 0.0": ("slack = 0.148", "biceps_slack = 0.0 m, allowed is"),
    "size = 5": ("size = [0.022]", "surface 0: size is 5, expected a list"),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_files_are_named(tmp_path: Path, bad: str):
    good, message = BAD[bad]
    text = MINE.read_text()
    assert good in text
    kept = good.split("\n", 1)[1] if "\n" in good else ""
    (tmp_path / "bad.toml").write_text(text.replace(good, f"{bad}\n{kept}" if kept else bad, 1))
    with pytest.raises(SoftgymError, match=message):
        read_elbow(tmp_path / "bad.toml")


def test_an_elbow_needs_muscles_and_system_for_the_task(tmp_path: Path):
    bare = tmp_path / "bare.toml"
    bare.write_text(MINE.read_text().split("[[surface]]")[0])
    with pytest.raises(SoftgymError, match="has no muscles"):
        read_elbow(bare)
    stiff = tmp_path / "stiff.toml"
    stiff.write_text(MINE.read_text().replace("upper = 2.6", "upper = 1.2"))
    with pytest.raises(SoftgymError, match=r"turns from 0 to 1\.2 rad"):
        gym.make("softgym_envs:ArmReach-v0", model=str(stiff))


def test_a_body_has_muscles_and_constants_of_its_file(tmp_path: Path):
    """The same form: two joints of one's own, and a muscle over the second."""
    text = 'surface = [{name = "pulley", kind = "cylinder", body = "upper", size = [0.02], xyz = [0.0, 0.0, -0.3], '
    text += "rpy = [1.5707963267948966, 0.0, 0.0]}]\n"
    text += 'muscle = [{name = "flexor", origin_body = "upper", origin = [0.03, 0.0, -0.05], insertion_body = "lower", '
    text += 'insertion = [0.01, 0.0, -0.05], surfaces = ["pulley"], sides = [[0.1, 0.0, 0.0]], force = 900.0, optimal = 0.12, '
    text += "slack = 0.16}]\nparameters = {payload = 0.0, shoulder_stiffness = 20.0}\n"
    file = tmp_path / "body.toml"
    file.write_text(text + (MINE.parent / "upper_body.toml").read_text())
    model = read_body(file)
    assert model.control_names == ("flexor", "lift") and model.parameters.shoulder_stiffness == 20.0
    with pytest.raises(SoftgymError, match="'flexor' is pneumatic; a body's are hill"):
        file.write_text(file.read_text().replace("force = 900.0, optimal = 0.12", 'kind = "pneumatic", pressure = 4e5'))
        read_body(file)


# --- pneumatic muscles ----------------------------------------------------------------------------------------------------

AIR = pneumatic_elbow()
PARAMETERS = AIR.parameters.to_matrix(1)[0]


def test_the_force_is_that_of_chou_and_hannaford():
    r"""F = pi r^2 p (a (1 - e)^2 - b), a = 3 / tan^2, b = 1 / sin^2 of the angle of the threads at radius r; never a push."""
    rest, radius, angle, supply = 0.24, 0.008, np.radians(20.0), 5e5
    parameter_values = np.array([rest * np.tan(angle) / (2 * np.pi * radius), rest / np.cos(angle), 0.057, 0.02])
    muscle = AIR.structure(1.0).biceps
    assert muscle.supply == supply
    for shortened in (0.0, 0.1, 0.3):
        for share in (0.0, 0.4, 1.0):
            found = muscle_force(muscle, parameter_values, 0, 0.057 + rest * (1 - shortened), 0.0, 0.0, share)
            expected = (
                np.pi * radius**2 * supply * share * (3 / np.tan(angle) ** 2 * (1 - shortened) ** 2 - 1 / np.sin(angle) ** 2)
            )
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert muscle_force(muscle, parameter_values, 0, 0.057 + 0.5 * rest, 0.0, 0.0, 1.0) == 0.0
    torque = muscle_torque(muscle, PARAMETERS, 0, 1.0, 0.0, 0.5)
    (length,), (arm,) = (part[:, 0] for part in AIR.lengths(np.array([1.0]), PARAMETERS))
    assert torque == pytest.approx(arm * muscle_force(muscle, PARAMETERS, 0, length, 0.0, 0.0, 0.5))


def random_states(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    states = np.column_stack([rng.uniform(0.2, 2.3, count), rng.normal(size=count), rng.uniform(0.05, 1, (count, 2))])
    return states, rng.uniform(0, 1, (count, 2))


def test_a_pneumatic_muscle_may_have_no_tendon(tmp_path: Path):
    """A slack of 0 is one that is said, not one that is missing."""
    text = re.sub("force = .*\noptimal = .*\nslack = .*", "slack = 0.0", MINE.read_text()).replace('kind = "hill"\n', "")
    file = tmp_path / "air.toml"
    file.write_text(text.replace("[[muscle]]", '[[muscle]]\nkind = "pneumatic"\npressure = 5e5'))
    found = read_elbow(file).parameters
    assert (found.biceps_slack, found.triceps_slack) == (0.0, 0.0)
    assert found.biceps_turns == PneumaticElbowParameters().biceps_turns
    file.write_text(file.read_text().replace("slack = 0.0", "turns = 0.0"))
    with pytest.raises(SoftgymError, match="turns is 0"):
        read_elbow(file)


def test_pressure_fills_with_a_lag_and_derivatives_are_exact():
    simulator, (states, controls) = ElbowSimulator(model=AIR), random_states(6)
    after, status = simulator.step(states, controls, substeps=4)
    filled = controls + (states[:, 2:] - controls) * np.exp(-0.02 / AIR.parameters.lag)
    np.testing.assert_allclose(after[:, 2:], filled, rtol=1e-12)
    assert not status.any()
    exact, differences = (
        simulator.linearize(states, controls, substeps=2),
        finite_differences(simulator, states, controls, substeps=2),
    )
    for a, b in zip(exact, differences, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-7 * np.abs(b).max())
    one, _ = simulator.step(states, controls)
    parameter_values = np.tile(PARAMETERS, (6, 1))
    assert simulator.symbolic_step().residual(states, controls, parameter_values, one, np.zeros((6, 0))).max() < 1e-11


def test_director_coordinates_with_air_become_the_engine():
    start, control, horizon = np.array([1.2, -1.0, 0.3, 0.1]), np.array([0.25, 0.15]), 0.08
    ground_truth = ElbowSimulator(model=AIR, dt=1e-3).rollout(start[None], control[None, None], substeps=80)[0][0, -1]
    errors = []
    for dt in (0.02, 0.01):
        elbow = DirectorElbow(dt, model=AIR, parameters=AIR.parameters)
        x, u, y = ca.SX.sym("x", 4), ca.SX.sym("u", 2), ca.SX.sym("y", 4)
        residual = elbow.form.step(x, u, PARAMETERS, y, ca.SX.zeros(0))[0]
        step = ca.rootfinder("step", "newton", {"x": y, "p": ca.vertcat(x, u), "g": residual})
        state = elbow.states(start[None])[0]
        for _ in range(round(horizon / dt)):
            state = np.array(step(state, np.concatenate([state, control]))).ravel()
        errors.append(np.abs(state / [1.0, elbow.inertia, 1.0, 1.0] - ground_truth).max())
    assert errors[1] < errors[0] / 3.0 and errors[1] < 2e-2, errors


def test_the_mujoco_model_has_the_same_law():
    """MuJoCo's accelerations to rounding; its motion as its steps, of first order, become short."""
    states, _ = random_states(20)

    def read(world: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
        return np.array([data.qacc[0]])

    theirs = MujocoElbow(model=AIR).engine.evaluate(states, np.tile(PARAMETERS, (20, 1)), read)[:, 0]
    structure = AIR.structure(1.0)
    ours = np.array([net_torque(structure, PARAMETERS, *state) for state in states]) / inertia(structure, PARAMETERS)
    np.testing.assert_allclose(ours, theirs, atol=1e-2)  # stops begin softly in ours
    controls = np.tile([[0.3, 0.1]], (1, 20, 1))
    a, _ = ElbowSimulator(model=AIR, dt=1e-3).rollout(AIR.rest_state()[None], controls, substeps=20)
    errors = []
    for dt in (2e-3, 1e-3, 5e-4):
        b, _ = MujocoElbow(model=AIR, dt=dt).rollout(AIR.rest_state()[None], controls, substeps=round(0.02 / dt))
        np.testing.assert_allclose(a[:, :, 2:], b[:, :, 2:], atol=1e-12)
        errors.append(np.abs(a - b)[:, :, :2].max())
    assert errors[2] < 0.6 * errors[1] < 0.36 * errors[0], errors


def test_pneumatic_constants_are_found_in_recordings():
    ground_truth, first = ElbowSimulator(model=AIR), {"biceps_thread": 0.262, "triceps_turns": 1.1, "damping": 0.2, "lag": 0.09}
    data = PROCEDURE.record(ground_truth, np.random.default_rng(0), steps=600, tests=1)
    fits = run_procedure(PROCEDURE, ground_truth, data, start=AIR.parameters.replace(**first))
    names = PROCEDURE.stages[0].free_of(ground_truth)
    assert set(names) == set(PneumaticElbowParameters.names()) - {"payload", "friction"}
    np.testing.assert_allclose(
        [getattr(fits.parameters, n) for n in names], [getattr(AIR.parameters, n) for n in names], rtol=1e-5
    )


def test_a_fit_of_one_kind_is_refused_by_the_other(tmp_path: Path):
    assert sysid.record("arm", model="pneumatic_elbow", steps=100)
    with pytest.raises(SoftgymError, match="ElbowParameters"):
        gym.make("softgym_envs:ArmReach-v0", model="pneumatic_elbow", params=ElbowParameters())
    assert load_arm(FILE).muscles is not None


OWN = [f"joint{i}" for i in range(7)]


def own_arm(folder, text=""):
    """Baxter's arm with joints of other names, and a loop file beside it."""
    arm = ARM_FILE.read_text(encoding="utf-8")
    for ours, theirs in zip(ARM, OWN, strict=True):
        arm = arm.replace(f'name = "{ours}"', f'name = "{theirs}"').replace(f'"{ours}", ', f'"{theirs}", ')
    arm = arm.replace('"w2"]', '"joint6"]').replace('damping = "arm_damping"', "damping = 0.1")
    (folder / "arm.toml").write_text(arm, encoding="utf-8")
    loop = f'links = 6\nmass = 0.2\n[arm]\nfile = "arm.toml"\njoints = {OWN}\nhand = "gripper"\n'
    (folder / "loop.toml").write_text(text or loop, encoding="utf-8")
    return folder / "loop.toml"


def test_the_same_arm_under_other_names_is_the_same(tmp_path):
    model, ours = read_model(own_arm(tmp_path)), LoopModel(6, mass=0.2)
    assert model.links == 6 and model.own_arm is not None and model.tree.coordinates == ours.tree.coordinates
    np.testing.assert_allclose(model.hold, ours.hold, rtol=1e-12)
    np.testing.assert_allclose(model.rest_state(), ours.rest_state(), atol=1e-12)


def test_an_arm_from_urdf_is_the_same_too(tmp_path):
    (tmp_path / "arm.urdf").write_text(urdf(load_tree(ARM_FILE)), encoding="utf-8")
    path = own_arm(tmp_path, '[arm]\nfile = "arm.urdf"\nhand = "gripper"\n')
    np.testing.assert_allclose(read_model(path).hold, LoopModel().hold, rtol=1e-9)


@pytest.mark.parametrize("backend", ["native", "mujoco"])
def test_gym_make_takes_the_file(tmp_path, backend):
    env = gym.make("softgym_envs:LoopReach-v0", model=str(own_arm(tmp_path)), backend=backend)
    env.reset(seed=0)
    assert not env.step(np.full(7, 0.3, np.float32))[4]["sim_failed"]
    assert env.unwrapped.simulator.model.mass == 0.2


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("links = 7", "7 links"),
        ("links = 12.5", "links"),
        ("links = true", "links"),
        ("mass = -1.0", "mass"),
        ("radius = 'big'", "radius"),
        ("start = [0.0, 1.0]", "start"),
        ("start = [0, 0, 0, 0, 0, 0, 'x']", "start"),
        ("servo_damping = -1.0", "servo_damping"),
        ("radius = 0.0", "radius"),
        ("radius = 1e-9", "radius"),
        ("tube_radius = 0.5", "tube_radius"),
        ("start = [9.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]", "s0 at 9.0"),
        ("command_limit = [1.0, 2.0]", r"command_limit"),
        ("theta_stiffness = -1.0", "theta_stiffness"),
        ("wheels = 3", "wheels"),
        ("hanging = 1", "hanging"),
        ("own_arm = 3", "own_arm"),
        ("arm = 3", "arm"),
        ("[arm]\nfile = 3", "file"),
        ("[arm]\nfile = 'missing.toml'\nhand = 'gripper'", "missing.toml"),
        ("[arm]\nfile = 'arm.toml'\nhand = 'gripper'\njoints = ['a']", "joints"),
        (f"[arm]\nfile = 'arm.toml'\njoints = {OWN}\nhand = 'nowhere'", "nowhere"),
        (f"[arm]\nfile = 'arm.toml'\njoints = {OWN}\nhand = 'gripper'\nhand_xyz = [1.0]", "hand_xyz"),
        (f"[arm]\nfile = 'arm.toml'\njoints = {OWN}\nhand = 'gripper'\nhand_xyz = [0, 0, 0.1]", "gripper"),
        (f"[arm]\nfile = 'arm.toml'\njoints = {OWN}\nhand = 'gripper'\nwrist = 1", "wrist"),
        ("links = ", "TOML"),
    ],
)
def test_bad_files_of_loops_are_named(tmp_path, text, named):
    own_arm(tmp_path)
    (tmp_path / "bad.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SoftgymError, match=named):
        read_model(tmp_path / "bad.toml")


def test_a_loop_that_the_arm_cannot_hold_is_refused(tmp_path):
    path = own_arm(tmp_path, "mass = 50.0")
    with pytest.raises(SoftgymError, match=r"takes .* N m of s1, which gives 50 N m"):
        gym.make("softgym_envs:LoopReach-v0", model=str(path))


def test_other_bad_models_are_named(tmp_path):
    with pytest.raises(OptionError, match=r"\.toml"):
        system("loop").model("nothing")
    with pytest.raises(SoftgymError, match="no_such"):
        gym.make("softgym_envs:LoopReach-v0", model=str(tmp_path / "no_such.toml"))
